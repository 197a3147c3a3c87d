"""Threads: the same answers however many there are, and never more of them than asked for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.datasets import load_iris
from tests.calls import recorded
from threadpoolctl import threadpool_info

from kernelmosaic import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.backend import allowed_threads, map_threads, run_threads
from kernelmosaic.engine import expansion
from kernelmosaic.kernels import Gaussian, Laplacian, Linear
from kernelmosaic.model_selection import SharedKernels

X, Y = load_iris(return_X_y=True)
KERNELS = [("line", Linear()), ("bell", Gaussian())]


@pytest.mark.parametrize(
    "model",
    [
        MKLClassifier(KERNELS, tol=1e-5),
        MKLClassifier(KERNELS, weights="uniform", tol=1e-5),
        LocalizedMKLClassifier(KERNELS, n_init=2, max_iter=3, tol=1e-2),
    ],
    ids=["learned", "uniform", "localized"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_jobs_change_nothing(model):
    one = model.set_params(n_jobs=1).fit(X, Y)
    expected = one.decision_function(X)
    for n_jobs in (2, -1):
        two = model.set_params(n_jobs=n_jobs).fit(X, Y)
        np.testing.assert_allclose(two.decision_function(X), expected, atol=1e-8)
        assert two.n_solves_ == one.n_solves_


def test_fits_that_share_kernels_may_have_threads():
    expected = [
        MKLClassifier(KERNELS, C=C, tol=1e-7).fit(X, Y).decision_function(X) for C in (1, 10)
    ]
    with SharedKernels():
        found = [
            MKLClassifier(KERNELS, C=C, tol=1e-7, n_jobs=3).fit(X, Y).decision_function(X)
            for C in (1, 10)
        ]
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_threads_start_no_threads_of_their_own():
    seen = []

    def work(item):
        inner = set()
        run_threads(lambda _: inner.add(threading.get_ident()), range(8), 10**12)
        blas = [
            library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
        ]
        seen.append((allowed_threads(), inner == {threading.get_ident()}, max(blas, default=1)))
        return item**2

    assert map_threads(work, range(5), 3) == [0, 1, 4, 9, 16]
    assert set(seen) == {(1, True, 1)}
    assert map_threads(lambda item: threading.get_ident(), [0], 3) == [threading.get_ident()]


def test_predictions_on_several_threads_are_those_of_one(monkeypatch):
    rng = np.random.RandomState(1)
    model, many = (
        MKLClassifier([*KERNELS, ("tent", Laplacian())]).fit(X, Y),
        rng.standard_normal((6000, X.shape[1])),
    )
    expected = np.concatenate([model.decision_function(some) for some in np.array_split(many, 60)])
    monkeypatch.setattr(expansion, "allowed_threads", lambda: 3)
    with recorded(ThreadPoolExecutor.submit) as strips:
        found = model.decision_function(many)
    assert len(strips) > 1
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
