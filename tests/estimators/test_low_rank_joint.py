"""All classes in one problem, in features: equal to exact kernels at full rank, wherever samples and features are."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone

from kernelmosaic import BilinearMKLClassifier, LocalizedMKLClassifier, MKLClassifier, PosteriorMKLClassifier
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.options import FitOptions
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.machines import Machine
from kernelmosaic.solvers import RoundOptions, SolverOptions

RNG = np.random.RandomState(0)
X = RNG.standard_normal((140, 4))
F = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.standard_normal(140)
Y = np.array(["low", "middle", "high"])[(F > -0.5).astype(int) + (F > 0.7)]
NEW = RNG.standard_normal((30, 4))
KERNELS = [Gaussian(1.0), ("wide", Gaussian(4.0)), Linear(), ("square", Polynomial(2), [0, 1])]
POSTERIORS = np.random.RandomState(1).dirichlet(np.full(3, 0.5), len(X))
LOW = {"approximation": "nystroem", "rank": 20, "random_state": 0}

CASES = {
    "joint": (MKLClassifier(KERNELS, multi_class="joint", tol=1e-6), Y),
    "joint, large C": (MKLClassifier(KERNELS, multi_class="joint", C=20.0, norm=2, tol=1e-6), Y),
    "pairwise": (MKLClassifier(KERNELS, multi_class="pairwise", class_weight="balanced", tol=1e-6), Y),
    "given weights": (MKLClassifier(KERNELS, multi_class="pairwise", weights="uniform", tol=1e-7), Y),
    "centred": (MKLClassifier(KERNELS, multi_class="joint", normalize="centered", tol=1e-6), Y),
    "posterior": (PosteriorMKLClassifier(KERNELS, tol=1e-6), POSTERIORS),
    "posterior from labels": (PosteriorMKLClassifier(KERNELS, estimate="density", tol=1e-6), Y),
    "posterior of two": (PosteriorMKLClassifier(KERNELS, tol=1e-6), Y == "low"),
    "bilinear": (BilinearMKLClassifier(KERNELS, tol=1e-5), Y),
    "bilinear by gradients": (BilinearMKLClassifier(KERNELS, solver="quasi_newton", tol=1e-4), Y),
}


@pytest.fixture
def few_at_a_time(monkeypatch):
    """Many rounds even for the few samples here."""
    options = SolverOptions(class_rounds=RoundOptions(largest=30, steps=5))
    monkeypatch.setattr(Machine, "options", options)


#: Weights reach the machine, the normalisation and the landmarks; the other settings see nothing of them.
WEIGHTED = ("joint", "pairwise", "centred", "posterior", "bilinear")


@pytest.mark.parametrize(
    ("name", "weighted"), [*((name, False) for name in CASES), *((name, True) for name in WEIGHTED)]
)
def test_full_rank_is_exact(name, weighted, few_at_a_time):
    model, y = CASES[name]
    weight = np.random.RandomState(1).randint(0, 3, len(X)).astype(float) if weighted else None
    exact = clone(model).fit(X, y, sample_weight=weight)
    full = clone(model).set_params(approximation="nystroem", random_state=0).fit(X, y, sample_weight=weight)
    assert full.duality_gap_ <= model.tol
    assert full.objective_ == pytest.approx(exact.objective_, rel=3 * model.tol)
    # A gap of tol leaves an error of about its root in the weights and the outputs.
    close = 10 * np.sqrt(model.tol)
    np.testing.assert_allclose(full.weights_, exact.weights_, atol=close * np.abs(exact.weights_).max())
    scale = np.abs(exact.decision_function(X)).max()
    for samples in (X, NEW):
        np.testing.assert_allclose(
            full.decision_function(samples), exact.decision_function(samples), atol=close * scale
        )
    assert list(full.classes_) == list(exact.classes_)


@pytest.mark.parametrize("name", ["joint", "bilinear", "posterior"])
@pytest.mark.parametrize("approximation", ["nystroem", "fourier"])
def test_what_a_fitted_function_says_adds_up(name, approximation):
    model, y = CASES[name]
    model = clone(model).set_params(kernels=[Gaussian(1.0), Gaussian(4.0), Linear()], tol=1e-3, **LOW)
    model.set_params(approximation=approximation).fit(X, y)
    shares = model.contributions(NEW)
    assert shares.shape == (30, 3, 3)
    np.testing.assert_allclose(shares.sum(axis=1) + model.intercept_, model.decision_function(NEW), atol=1e-10)
    K = model.kernel_matrix(NEW, X[model.support_])
    matrices = K if K.ndim == 3 else [K] * 3
    dual = np.stack([k @ b for k, b in zip(matrices, model.dual_coef_, strict=True)], axis=1)
    np.testing.assert_allclose(dual + model.intercept_, model.decision_function(NEW), atol=1e-9)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_gates_over_joint_machines():
    settings = {"max_iter": 3, "n_init": 1, "random_state": 0, "tol": 1e-5}
    model = LocalizedMKLClassifier(KERNELS[:3], multi_class="joint", **settings)
    exact = clone(model).fit(X, Y)
    full = clone(model).set_params(approximation="nystroem", rank=len(X)).fit(X, Y)
    assert full.objective_ == pytest.approx(exact.objective_, rel=1e-3)
    np.testing.assert_allclose(full.gate(X), exact.gate(X), atol=2e-2)


# ---- samples that stay where they are


@pytest.fixture
def mapped(tmp_path):
    path = tmp_path / "samples.dat"
    written = np.memmap(path, dtype=np.float64, mode="w+", shape=X.shape)
    written[:] = X
    written.flush()
    return np.memmap(path, dtype=np.float64, mode="r", shape=X.shape)


@pytest.mark.parametrize("name", ["joint", "bilinear", "posterior"])
def test_a_memory_map_is_worth_its_array(name, mapped):
    model, y = CASES[name]
    model = clone(model).set_params(**LOW)
    stored = clone(model).fit(X, y)
    streamed = clone(model).set_params(memory_budget=2.0e6).fit(mapped, y)
    assert streamed.objective_ == pytest.approx(stored.objective_, rel=3 * model.tol)
    scale = np.abs(stored.decision_function(X)).max()
    close = 10 * np.sqrt(model.tol) * scale
    np.testing.assert_allclose(streamed.decision_function(mapped), stored.decision_function(X), atol=close)


@pytest.mark.parametrize("name", ["joint", "bilinear", "posterior"])
def test_parquet_is_worth_its_array(name, tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pd.DataFrame(X, columns=list("abcd")).to_parquet(tmp_path / "whole.parquet", row_group_size=50)
    model, y = CASES[name]
    model = clone(model).set_params(**LOW)
    streamed = clone(model).fit(tmp_path / "whole.parquet", y)
    assert list(streamed.feature_names_in_) == list("abcd")
    assert streamed.objective_ == pytest.approx(clone(model).fit(X, y).objective_, rel=3 * model.tol)


@pytest.mark.parametrize("name", ["joint", "pairwise", "bilinear", "posterior"])
def test_rows_on_workers_are_worth_rows_at_home(name, few_at_a_time):
    da = pytest.importorskip("dask.array")
    model, y = CASES[name]
    model = clone(model).set_params(tol=1e-4, **LOW)
    away = clone(model).fit(da.from_array(X, chunks=(50, 4)), da.from_array(y, chunks=(50, *np.shape(y)[1:])))
    home = clone(model).fit(X, y)
    assert away.duality_gap_ <= 1e-4
    assert away.objective_ == pytest.approx(home.objective_, rel=3e-4)
    scale = np.abs(home.decision_function(X)).max()
    np.testing.assert_allclose(away.decision_function(X), home.decision_function(X), atol=0.1 * scale)


def test_labels_do_not_become_posteriors_of_samples_elsewhere(mapped):
    da = pytest.importorskip("dask.array")
    model = PosteriorMKLClassifier(KERNELS, **LOW)
    with pytest.raises(ValueError, match=r"estimated from arrays and memory maps only.*give the matrix of posteriors"):
        model.fit(da.from_array(X, chunks=(50, 4)), Y)
    np.testing.assert_array_equal(model.fit(mapped, Y).posteriors_, model.fit(X, Y).posteriors_)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(mapped, POSTERIORS[:-1])


def test_features_need_no_matrix_a_class():
    n = len(X)
    budget = 3 * 8 * n * n
    with pytest.raises(MemoryError, match=r"3 classes needs.*approximation='nystroem'"):
        BilinearMKLClassifier([Linear()], memory_budget=1.5 * 8 * n * n, tol=1e-5).fit(X, Y)
    model = BilinearMKLClassifier([Linear()], memory_budget=budget, tol=1e-5, **LOW).fit(X, Y)
    assert model.duality_gap_ <= 1e-5


@pytest.mark.parametrize(
    ("kind", "n", "budget"),
    [
        (MKLClassifier(multi_class="joint"), 2500, 4e6),
        (MKLClassifier(multi_class="joint", weights="uniform", tol=2e-2), 1200, 1.1e6),
        (BilinearMKLClassifier(), 2500, 4e6),
    ],
    ids=["joint", "joint, features computed", "bilinear"],
)
def test_memory_stays_within_the_budget(kind, n, budget, tmp_path, monkeypatch):
    monkeypatch.setattr(FeatureMaps, "fit_options", FitOptions(least_rows=200))
    d, k = 800, 4
    samples = np.memmap(tmp_path / "samples.dat", dtype=np.float64, mode="w+", shape=(n, d))
    samples[:] = np.random.RandomState(0).standard_normal((n, d))
    y = (samples[:, 0] > 0).astype(int) + (samples[:, 1] > 0) + (samples[:, 2] > 1)
    kernels = [("some", Gaussian(2.0), [0, 1, 2]), ("all", Gaussian(30.0))]
    model = clone(kind).set_params(kernels=kernels, memory_budget=budget, **{**LOW, "rank": 60})
    clone(model).fit(np.array(samples[:600]), y[:600])  # loads what is loaded on first use
    tracemalloc.start()
    model.fit(samples, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.duality_gap_ <= model.tol
    # Beside the stack there are columns of n numbers per class, and the few samples that the kernels are fitted to.
    assert peak < budget + 20 * 8 * n * k + 2 * 8 * 200 * d < 0.75 * samples.nbytes


@pytest.mark.torch
@pytest.mark.parametrize("name", ["joint", "pairwise", "bilinear", "posterior"])
@pytest.mark.parametrize("features", [False, True], ids=["matrices", "features"])
def test_a_device_changes_nothing(name, features, few_at_a_time, monkeypatch):
    pytest.importorskip("torch")
    model, y = CASES[name]
    model = clone(model).set_params(**(LOW if features else {}))
    here = clone(model).fit(X, y)
    if not features:
        # Copies of whole matrices are what is not to be made.
        from kernelmosaic.gram import DenseGram

        monkeypatch.setattr(DenseGram, "__array__", None)
    there = clone(model).set_params(device="cpu").fit(X, y)
    assert there.duality_gap_ <= model.tol
    assert there.objective_ == pytest.approx(here.objective_, rel=3 * model.tol)
    close = 10 * np.sqrt(model.tol) * np.abs(here.decision_function(X)).max()
    np.testing.assert_allclose(there.decision_function(NEW), here.decision_function(NEW), atol=close)


@pytest.mark.torch
def test_single_precision_on_a_device_keeps_the_certificate(few_at_a_time):
    pytest.importorskip("torch")
    for name in ("joint", "bilinear"):
        model, y = CASES[name]
        for budget in (None, 2.5 * 4 * len(X) ** 2):
            there = clone(model).set_params(device="cpu", tol=1e-4, memory_budget=budget)
            there._stack_dtype = np.float32
            there.fit(X, y)
            here = clone(model).set_params(tol=1e-4).fit(X, y)
            assert there.duality_gap_ <= 1e-4
            assert there.objective_ == pytest.approx(here.objective_, rel=3e-4)
