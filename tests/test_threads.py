"""The linear algebra of small problems stays on one thread, and the process gets back the threads
it had."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import wraps

import numpy as np
import pytest
import scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits

from kernelmosaic import (
    BayesianMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedBayesianMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClustering,
    MKLKernelPCA,
    MKLRidgeCV,
)
from kernelmosaic.backend import Backend, BlasLimit, iterate_threads, one_blas_thread
from kernelmosaic.inspection import conditional_pvalue
from kernelmosaic.kernels import Diffusion, Gaussian, Linear, Precomputed, Projected


def blas_threads():
    """Return how many threads the linear algebra may use now."""
    return min(
        (one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"), default=1
    )


@pytest.fixture
def two_threads():
    if not any(one["user_api"] == "blas" for one in threadpool_info()):
        pytest.skip("the threads of this BLAS cannot be counted")
    with threadpool_limits(limits=2, user_api="blas"):
        if blas_threads() < 2:
            pytest.skip("this BLAS has one thread")
        yield


def test_threads_that_enter_the_limit_in_turn_leave_the_number_as_it_was(two_threads):
    inside, outside = threading.Event(), threading.Event()

    def stay():
        with one_blas_thread():
            inside.set()
            outside.wait(10)
            return blas_threads()

    with ThreadPoolExecutor(1) as pool:
        first = one_blas_thread()
        with first:
            other = pool.submit(stay)
            inside.wait(10)
        assert blas_threads() == 1  # the other one is still inside
        outside.set()
        assert other.result() == 1
    assert blas_threads() == 2


def test_the_limit_is_left_by_errors_and_by_generators_that_are_thrown_away(two_threads):
    with pytest.raises(RuntimeError, match="wrong"), one_blas_thread(), one_blas_thread():
        raise RuntimeError("wrong")
    assert blas_threads() == 2
    results = iterate_threads(abs, [-1, -2, -3], 2)
    assert next(results) == 1
    assert blas_threads() == 1
    del results
    assert blas_threads() == 2


class SharedLibrary:
    """A library with one number of threads in the process, which every thread may set."""

    threading_layer = "pthreads"

    def __init__(self, num_threads=4):
        self.num_threads = num_threads

    def set_num_threads(self, number):
        self.num_threads = number


class OwnedLibrary(SharedLibrary):
    """A library whose number only the thread sets that did so first, until it gives that up."""

    owner = None

    def set_num_threads(self, number):
        self.owner = self.owner or threading.get_ident()
        if self.owner == threading.get_ident():
            self.num_threads = number

    def clear_controlling_thread(self, force=False):
        if force or self.owner == threading.get_ident():
            self.owner = None


class LibraryOfThreads(OwnedLibrary):
    """A library with a number for every thread."""

    threading_layer = "openmp"

    def __init__(self):
        self.local = threading.local()

    @property
    def num_threads(self):
        return getattr(self.local, "number", 4)

    def set_num_threads(self, number):
        self.local.number = number


@pytest.mark.parametrize("kind", [SharedLibrary, OwnedLibrary, LibraryOfThreads])
@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_every_kind_of_library_is_limited_as_long_as_a_thread_needs_it(kind, first_to_leave):
    library = kind()
    limit = BlasLimit(lambda: [library])
    with ThreadPoolExecutor(1) as left, ThreadPoolExecutor(1) as right:
        workers = [left, right]
        contexts = [limit.one_thread(), limit.one_thread()]
        for worker, context in zip(workers, contexts, strict=True):
            worker.submit(context.__enter__).result()
            assert worker.submit(lambda: library.num_threads).result() == 1
        workers[first_to_leave].submit(contexts[first_to_leave].__exit__, None, None, None).result()
        last = 1 - first_to_leave
        assert workers[last].submit(lambda: library.num_threads).result() == 1
        workers[last].submit(contexts[last].__exit__, None, None, None).result()
        assert [worker.submit(lambda: library.num_threads).result() for worker in workers] == [4, 4]
    library.set_num_threads(4)  # nobody else has the say
    assert library.num_threads == 4


def test_a_library_that_another_thread_limits_is_left_alone():
    library = OwnedLibrary(2)
    library.owner = -1
    with BlasLimit(lambda: [library]).one_thread():
        library.num_threads = 4  # the other one has ended
    assert library.num_threads == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_has_the_threads_it_may_use(two_threads):
    # Another thread is inside of the limit as the process is forked, and does not exist in the new
    # one.
    inside, outside = threading.Event(), threading.Event()

    def stay():
        with one_blas_thread():
            inside.set()
            outside.wait(10)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(stay)
        inside.wait(10)
        child = os.fork()
        if child == 0:
            with one_blas_thread():
                alone = blas_threads()
            os._exit(10 * alone + blas_threads())
        outside.set()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 12


def test_predictions_in_several_threads_leave_the_number_as_it_was(two_threads):
    rng = np.random.RandomState(0)
    X, y = rng.randn(60, 3), rng.randn(60)
    model = MKLRidgeCV([Linear(), Gaussian()], tol=1.0).fit(X, y)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: model.predict(X[i : i + 5]), range(50)))
    assert blas_threads() == 2


#: The factorisations of NumPy and SciPy, and the backend's own.
ROUTINES = [
    getattr(library, name)
    for library in (np.linalg, scipy.linalg)
    for name in (
        "cholesky",
        "eigh",
        "eigvalsh",
        "inv",
        "lstsq",
        "pinv",
        "qr",
        "solve",
        "svd",
        "solve_triangular",
    )
    if hasattr(library, name)
]


@pytest.fixture
def factorised(monkeypatch):
    """Return a list to which every factorisation adds its name, its size and the threads that it
    may use."""
    calls = []

    def recorded(routine):
        @wraps(routine)
        def record(*args, **options):
            sizes = [
                max(arg.shape) for arg in args if isinstance(arg, np.ndarray) and arg.ndim >= 2
            ]
            calls.append((routine.__name__, max(sizes, default=0), blas_threads()))
            return routine(*args, **options)

        return record

    replaced = {routine: recorded(routine) for routine in ROUTINES}
    modules = [module for name, module in sys.modules.items() if name.startswith("kernelmosaic.")]
    for module in [np.linalg, scipy.linalg, *modules]:
        for name, value in list(vars(module).items()):
            if callable(value) and getattr(value, "__hash__", None) and value in replaced:
                monkeypatch.setattr(module, name, replaced[value])
    for name in ("cholesky", "invert_lower", "cho_inverse"):
        monkeypatch.setattr(Backend, name, recorded(getattr(Backend, name)))
    return calls


RNG = np.random.RandomState(0)
N = 40
X = RNG.randn(N, 25)
CLASSES = np.arange(N) % 2
ROWS = np.arange(N)[:, np.newaxis]
MATRICES = [Precomputed(X[:, :12] @ X[:, :12].T), Precomputed(X[:, 12:] @ X[:, 12:].T)]
LINKS = (np.abs(np.subtract.outer(np.arange(N), np.arange(N))) == 1).astype(float)
FITS = {
    "matrices": lambda: MKLClassifier(MATRICES).fit(ROWS, CLASSES),
    "graph": lambda: MKLClassifier([Diffusion(LINKS), Diffusion(LINKS, 3.0)]).fit(ROWS, CLASSES),
    "projections": lambda: MKLClassifier([Projected(Linear(), 2), Linear()]).fit(X, CLASSES),
    "learned projections": lambda: LocalizedMKLClassifier(
        [Projected(Linear(), 2)] * 2, max_iter=1
    ).fit(X, CLASSES),
    "eigenvalues": lambda: MKLClassifier([Linear(), Gaussian()], penalties="eigenvalue").fit(
        X, CLASSES
    ),
    "easymkl": lambda: MKLClassifier([Linear(), Gaussian()], solver="easymkl").fit(X, CLASSES),
    "programs": lambda: MKLClassifier([Linear(), Gaussian()], solver="qcqp").fit(X, CLASSES),
    "features": lambda: MKLClassifier(
        [Linear(), Gaussian()], approximation="nystroem", rank=30
    ).fit(X, CLASSES),
    "discriminant": lambda: DiscriminantMKLClassifier([Linear(), Gaussian()]).fit(X, CLASSES),
    "ridge": lambda: MKLRidgeCV([Linear(), Gaussian(width="learn")], max_iter=2).fit(X, CLASSES),
    "targets": lambda: MKLRidgeCV([Linear(), Gaussian()], per_target=True).fit(X, X[:, :3]),
    "bayesian": lambda: BayesianMKLClassifier([Linear(), Gaussian()], max_iter=2).fit(X, CLASSES),
    "localized bayesian": lambda: LocalizedBayesianMKLClassifier(
        [Linear(), Gaussian()], max_iter=2
    ).fit(X, CLASSES),
    "embedding": lambda: MKLKernelPCA([Linear(), Gaussian()]).fit(X),
    "clusters": lambda: MKLClustering(2, [Linear(), Gaussian()], random_state=0).fit(X),
    "permutations": lambda: conditional_pvalue(
        X @ X.T, np.eye(N), RNG.randn(1, N), n_permutations=9
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FITS)
def test_few_samples_are_factorised_on_one_thread(two_threads, factorised, name):
    FITS[name]()
    assert factorised
    large = {call for call in factorised if call[1] >= 20}
    assert {call for call in large if call[2] != 1} == set()
