"""The low-rank fit on Dask collections: equal to the one in this process, whatever happens to the
workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
from sklearn.base import clone
from tests.sweeps import later

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Gaussian, Linear

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

RNG = np.random.RandomState(0)
X = RNG.standard_normal((100, 4))
F = np.sin(2 * X[:, 0]) + X[:, 1]
KERNELS = [Gaussian(1.0), Gaussian(3.0), ("line", Linear(), [0, 1])]
SPREAD = {"approximation": "nystroem", "rank": 15, "random_state": 0, "tol": 1e-5}


@pytest.fixture(scope="module")
def client():
    # Where there is a server of forks, packages are imported there, once for all workers.
    method = {"forkserver", "spawn"} & set(multiprocessing.get_all_start_methods())
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "worker_dashboard_address": None}
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": min(method)}),
        distributed.LocalCluster(n_workers=2, processes=True, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def in_this_process():
    """Tasks that run here, where who runs them does not matter."""
    with dask.config.set(scheduler="synchronous"):
        yield


def test_learned_weights_are_those_of_rows_at_home(in_this_process):
    # Every step of the weights is many trips, which workers of their own would make no others.
    spread = da.from_array(X, chunks=(60, 2))
    model = MKLClassifier(KERNELS, **SPREAD)
    home, away = (
        clone(model).fit(X, F > 0),
        clone(model).fit(spread, da.from_array(F > 0, chunks=60)),
    )
    assert away.duality_gap_ <= 1e-5
    assert away.objective_ == pytest.approx(home.objective_, rel=3e-5)
    np.testing.assert_allclose(away.weights_, home.weights_, atol=5e-3)
    np.testing.assert_allclose(away.decision_function(spread), home.decision_function(X), atol=5e-3)
    np.testing.assert_allclose(
        away.contributions(X).sum(axis=1) + away.intercept_, away.decision_function(X)
    )


def test_a_data_frame_names_its_columns(in_this_process):
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = MKLClassifier(
        [("bell", Gaussian(1.0), ["a", "b"]), Linear()], weights="uniform", **SPREAD
    )
    away = clone(model).fit(dd.from_pandas(frame, npartitions=3), F > 0)
    assert list(away.feature_names_in_) == list("abcd")
    assert away.objective_ == pytest.approx(clone(model).fit(frame, F > 0).objective_, rel=3e-5)


@pytest.mark.parametrize("slack", [1, 2])
def test_a_newton_step_is_one_trip(in_this_process, monkeypatch, slack):
    from kernelmosaic.gram._dask_features import DaskFactoredGram, DaskFeatures
    from kernelmosaic.solvers.proximal_newton import ProximalNewton

    trips, passes, steps = [], [], []

    def counted(kind, name, into):
        original = getattr(kind, name)

        def call(self, *args):
            into.append(name)
            return original(self, *args)

        monkeypatch.setattr(kind, name, call)

    counted(DaskFeatures, "ask", trips)
    counted(DaskFactoredGram, "newton_pass", passes)
    counted(ProximalNewton, "_step", steps)
    counted(DaskFactoredGram, "normal_matrix", steps)
    model = MKLClassifier(KERNELS, weights="uniform", slack=slack, **SPREAD | {"tol": 1e-3})
    model.fit(da.from_array(X, chunks=(60, 4)), F > 0)
    assert len(passes) >= 2
    # One each, but for the first look, shorter steps and narrower problems, each of which costs
    # another.
    assert "normal_matrix" not in steps
    assert len(passes) <= 2 * steps.count("_step") + 1
    assert len(trips) <= len(passes) + 12


def holds_most(client):
    """The worker that holds most of the features, and so gets the next tasks."""
    holdings = client.has_what()
    worker = max(holdings, key=lambda each: len(holdings[each]))
    assert len(holdings[worker]) > 0
    return worker


def kill_one(client):
    client.run(_die_first, workers=[holds_most(client)])


def _die_first():
    # Its next task kills the process of the worker, which belongs to the cluster these tests have
    # started.
    from kernelmosaic.gram import _dask_features

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    _dask_features.StackFactors = die


def slow_one(client):
    client.run(_sleep_first, workers=[holds_most(client)])


def _sleep_first():
    # A worker keeps the functions of its tasks: what these look up when they run can still be
    # replaced.
    from kernelmosaic.gram import _dask_features

    def slow(*args, kind=_dask_features.StackFactors):
        time.sleep(0.005)
        slow.calls += 1
        return kind(*args)

    slow.calls = 0
    _dask_features.StackFactors = slow


def _slow_calls():
    from kernelmosaic.gram import _dask_features

    return getattr(_dask_features.StackFactors, "calls", 0)


def alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("misfortune", [later(slow_one), kill_one])
def test_whatever_happens_to_a_worker_costs_time_alone(client, monkeypatch, misfortune):
    from kernelmosaic.gram._dask_features import DaskFeatures

    processes, trips, original = list(client.run(os.getpid).values()), [], DaskFeatures.ask

    def ask(stack, tasks):
        if len(trips) == 2:
            misfortune(client)
        before = sum(map(alive, processes))
        found = original(stack, tasks)
        trips.append(before - sum(map(alive, processes)))
        return found

    model = MKLClassifier(KERNELS, normalize="centered", weights="uniform", **SPREAD)
    home, spread = clone(model).fit(X, F > 0), da.from_array(X, chunks=(35, 2))
    with monkeypatch.context() as patch:
        patch.setattr(DaskFeatures, "ask", ask)
        away = clone(model).fit(spread, da.from_array(F > 0, chunks=35))
    assert len(trips) > 3
    deaths = [trip for trip, died in enumerate(trips) if died]
    if (
        misfortune is kill_one
    ):  # within a trip: alive when its tasks were sent, dead when all had their answers
        assert len(deaths) == sum(trips) == 1
        assert 2 <= deaths[0] < len(trips) - 1
    else:
        assert deaths == []
        assert sum(client.run(_slow_calls).values()) > 0
    assert away.duality_gap_ <= 1e-5
    assert away.objective_ == pytest.approx(home.objective_, rel=3e-5)
    np.testing.assert_allclose(away.decision_function(spread), home.decision_function(X), atol=5e-3)


CLUSTERS = []


def lose_workers(block):
    CLUSTERS[-1].scale(0)
    return block


@pytest.mark.parametrize("when", ["before the fit", "during the fit"])
def test_a_cluster_without_workers_ends_the_fit(when):
    dask = pytest.importorskip("dask")
    cluster = distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        worker_dashboard_address=None,
    )
    CLUSTERS.append(cluster)
    y = da.from_array(F > 0, chunks=60).map_blocks(lose_workers, meta=np.empty(0, dtype=bool))
    with (
        cluster,
        distributed.Client(cluster) as own,
        dask.config.set({"kernelmosaic.worker-timeout": "1s"}),
    ):
        if when == "before the fit":
            cluster.scale(0)
            while own.nthreads():
                time.sleep(0.01)
        model = MKLClassifier(KERNELS, weights="uniform", **SPREAD)
        message = (
            r"the Dask cluster has had no worker for 1 s: start workers"
            r" .*kernelmosaic\.worker-timeout"
        )
        with pytest.raises(TimeoutError, match=message):
            model.fit(da.from_array(X, chunks=(60, 4)), y)
