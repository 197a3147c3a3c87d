"""The low-rank fit on Dask collections: equal to the one in this process, whatever happens to the workers."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from sklearn.base import clone

from kernelmosaic import LocalizedMKLClassifier, MKLClassifier, MKLOneClass, MKLRegressor
from kernelmosaic.kernels import Gaussian, Linear

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

RNG = np.random.RandomState(0)
X = RNG.standard_normal((400, 4))
F = np.sin(2 * X[:, 0]) + X[:, 1]
KERNELS = [Gaussian(1.0), Gaussian(3.0), ("line", Linear(), [0, 1])]
SPREAD = {"approximation": "nystroem", "rank": 25, "random_state": 0, "tol": 1e-6}


@pytest.fixture(scope="module")
def client():
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", worker_dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.mark.parametrize(("normalize", "weights"), [("trace", None), ("centered", "uniform")])
def test_rows_on_workers_are_worth_rows_at_home(client, normalize, weights):
    spread = da.from_array(X, chunks=(130, 2))
    model = MKLClassifier(KERNELS, normalize=normalize, weights=weights, **SPREAD)
    home, away = clone(model).fit(X, F > 0), clone(model).fit(spread, da.from_array(F > 0, chunks=130))
    assert away.duality_gap_ <= 1e-6
    assert away.objective_ == pytest.approx(home.objective_, rel=3e-6)
    np.testing.assert_allclose(away.weights_, home.weights_, atol=5e-3)
    np.testing.assert_allclose(away.decision_function(spread), home.decision_function(X), atol=5e-3)
    np.testing.assert_allclose(away.contributions(X).sum(axis=1) + away.intercept_, away.decision_function(X))


def test_every_machine(client):
    spread = da.from_array(X, chunks=(100, 4))
    regressor = MKLRegressor(KERNELS, weights="uniform", **SPREAD)
    assert clone(regressor).fit(spread, F).objective_ == pytest.approx(clone(regressor).fit(X, F).objective_, rel=3e-6)
    novelty = MKLOneClass(KERNELS, weights="uniform", nu=0.2, **SPREAD)
    assert clone(novelty).fit(spread).objective_ == pytest.approx(clone(novelty).fit(X).objective_, rel=3e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_gates_are_learned_on_workers(client):
    few = SPREAD | {"n_init": 1, "max_iter": 2}
    model = LocalizedMKLClassifier(KERNELS, gating_columns=[0, 1], **few)
    spread = da.from_array(X, chunks=(150, 4))
    home, away = clone(model).fit(X, F > 0), clone(model).fit(spread, F > 0)
    assert away.objective_ == pytest.approx(home.objective_, rel=1e-4)
    np.testing.assert_allclose(away.gate(X), home.gate(X), atol=5e-3)
    np.testing.assert_allclose(away.decision_function(spread), home.decision_function(X), atol=2e-2)


def test_a_data_frame_names_its_columns(client):
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = MKLClassifier([("bell", Gaussian(1.0), ["a", "b"]), Linear()], weights="uniform", **SPREAD)
    away = clone(model).fit(dd.from_pandas(frame, npartitions=3), F > 0)
    assert list(away.feature_names_in_) == list("abcd")
    assert away.objective_ == pytest.approx(clone(model).fit(frame, F > 0).objective_, rel=3e-6)


def test_a_worker_that_dies_costs_a_recomputation(client, monkeypatch):
    from kernelmosaic.gram._dask_features import DaskFactoredGram

    calls, original = [], DaskFactoredGram.normal_matrix

    def dying(gram, theta, precise=False):
        calls.append(len(theta))
        if len(calls) == 3:
            # A process of the cluster this test has started, and the one that holds most.
            holdings = client.has_what()
            busiest = max(holdings, key=lambda worker: len(holdings[worker]))
            assert len(holdings[busiest]) > 0
            os.kill(client.run(os.getpid, workers=[busiest])[busiest], signal.SIGKILL)
        return original(gram, theta, precise)

    monkeypatch.setattr(DaskFactoredGram, "normal_matrix", dying)
    model = MKLClassifier(KERNELS, weights="uniform", **SPREAD)
    away = clone(model).fit(da.from_array(X, chunks=(100, 4)), F > 0)
    assert len(calls) > 3
    home = clone(model).fit(X, F > 0)
    assert away.objective_ == pytest.approx(home.objective_, rel=3e-6)
    np.testing.assert_allclose(away.decision_function(X), home.decision_function(X), atol=5e-3)
