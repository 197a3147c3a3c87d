"""The discriminant classifier in features: equal to the exact one at full rank, wherever the rows are."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from kernelmosaic import DiscriminantMKLClassifier
from kernelmosaic.gram.feature_stack import ComputedFeatures, FeatureStack, StackFactors
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Precomputed
from kernelmosaic.learning.ridge import FeatureRidge, MatrixRidge
from kernelmosaic.machines.discriminant import binary_targets, class_targets

RNG = np.random.RandomState(0)
X = RNG.standard_normal((160, 4))
F = np.sin(2 * X[:, 0]) + X[:, 1]
THREE = (F > 0).astype(int) + (F > 1)
NEW = RNG.standard_normal((30, 4))
#: At full rank more features than samples, and fewer: 35 of them span what these kernels see.
MANY = [Gaussian(1.0), ("wide", Gaussian(4.0)), Linear(), ("square", Polynomial(2), [0, 1])]
FEW = [Linear(), ("square", Polynomial(2), [0, 1]), ("cube", Polynomial(3), [1, 2]), ("all", Polynomial(2))]
KERNELS = {"many features": MANY, "few features": FEW}
GAUSSIANS = [Gaussian(0.7), Gaussian(2.0), Gaussian(5.0)]
LOW = {"approximation": "nystroem", "rank": 20, "random_state": 0}

CASES = {
    "two classes": ({}, THREE > 0),
    "three classes": ({}, THREE),
    "learned regulariser": ({"alpha": "learn"}, THREE),
    "learned regulariser, two classes": ({"alpha": "learn"}, THREE > 0),
    "large regulariser": ({"alpha": 0.5}, THREE),
    # Without full rank so small a λ leaves β, which is the residual over λ, few digits.
    "tiny regulariser": ({"alpha": 1e-10, "tol": 1e-3}, THREE > 0),
    "centroids": ({"decision": "centroid"}, THREE),
    "centroids, two classes": ({"decision": "centroid"}, THREE > 0),
    "centred": ({"normalize": "centered"}, THREE),
    "diagonal": ({"normalize": "diagonal"}, THREE > 0),
    "silp": ({"solver": "silp", "tol": 1e-5}, THREE),
    "silp, learned regulariser": ({"solver": "silp", "alpha": "learn", "tol": 1e-5}, THREE > 0),
    "qcqp": ({"solver": "qcqp"}, THREE),
    "uniform": ({"weights": "uniform"}, THREE),
    "given": ({"weights": [1.0, 0.0, 2.0, 0.5]}, THREE > 0),
}


@pytest.mark.parametrize("kernels", sorted(KERNELS))
@pytest.mark.parametrize("name", sorted(CASES))
def test_full_rank_is_exact(name, kernels):
    parameters, y = CASES[name]
    model = DiscriminantMKLClassifier(KERNELS[kernels], **{"tol": 1e-8, **parameters})
    exact = clone(model).fit(X, y)
    full = clone(model).set_params(approximation="nystroem", rank=len(X), random_state=0).fit(X, y)
    assert full.duality_gap_ <= model.tol
    close = 1e-5
    assert full.objective_ == pytest.approx(exact.objective_, rel=close)
    assert full.alpha_ == pytest.approx(exact.alpha_, rel=close)
    if (name, kernels) == ("tiny regulariser", "few features"):
        return  # without full rank what such a λ leaves to the weights is less than the gap: any of them will do
    np.testing.assert_allclose(full.trace_shares_, exact.trace_shares_, atol=close)
    np.testing.assert_allclose(full.explained_ratio_, exact.explained_ratio_, atol=close)
    size = np.abs(exact.decision_function(X)).max()
    for samples in (X, NEW):
        np.testing.assert_allclose(full.decision_function(samples), exact.decision_function(samples), atol=close * size)
    np.testing.assert_allclose(np.abs(full.transform(NEW)), np.abs(exact.transform(NEW)), atol=10 * close)


@pytest.mark.parametrize(("kernels", "kind"), [("few features", FeatureRidge), ("many features", MatrixRidge)])
def test_the_smaller_of_two_matrices_is_factorised(kernels, kind, monkeypatch):
    used = []
    for one in (FeatureRidge, MatrixRidge):
        monkeypatch.setattr(
            one, "solve", lambda self, *given, old=one.solve: used.append(type(self)) or old(self, *given)
        )
    DiscriminantMKLClassifier(KERNELS[kernels], approximation="nystroem", rank=100, random_state=0).fit(X, THREE)
    assert set(used) == {kind}


# ---- what is solved on the features is solved exactly


def low_rank_matrices(seed=0):
    """The kernels as their features give them: drawn with one seed, landmarks are the same whatever the weights."""
    ones = [
        DiscriminantMKLClassifier(GAUSSIANS, weights=weights, **{**LOW, "random_state": seed}).fit(X, THREE)
        for weights in np.eye(len(GAUSSIANS))
    ]
    return [one.kernel_matrix(X) for one in ones]


@pytest.mark.parametrize("alpha", [5e-4, "learn"])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_certificate_by_matrices(alpha, classes):
    y = np.minimum(THREE, classes - 1)
    model = DiscriminantMKLClassifier(GAUSSIANS, alpha=alpha, tol=1e-8, **LOW).fit(X, y)
    assert model.duality_gap_ <= 1e-8
    n = len(X)
    H = binary_targets(y)[:, np.newaxis] if classes == 2 else class_targets(y)
    Pi = np.eye(n) - 1.0 / n
    Ns = [Pi @ K @ Pi / np.trace(Pi @ K @ Pi) for K in low_rank_matrices()]
    G = np.tensordot(model.trace_shares_, Ns, 1)
    scale = 1.0 if alpha == "learn" else alpha
    beta = np.linalg.solve(G + model.alpha_ * np.eye(n), H)
    gain = np.sum(H * beta)
    assert model.objective_ == pytest.approx(scale * gain, rel=1e-9)
    # min over the simplex ≥ min over it of the best multiple of any β.
    slopes = [np.sum(beta * (N @ beta)) for N in Ns]
    if alpha == "learn":
        slopes, rest = [*slopes, np.sum(beta**2) / n], 0.0
    else:
        rest = alpha * np.sum(beta**2)
    bound = scale * gain**2 / (max(slopes) + rest)
    assert 0 <= (model.objective_ - bound) / model.objective_ <= 2e-8


@pytest.mark.parametrize("formulation", ["newton", "silp", "qcqp"])
def test_kernels_of_low_rank_given_as_matrices(formulation):
    model = DiscriminantMKLClassifier(GAUSSIANS, solver=formulation, tol=1e-6, **LOW).fit(X, THREE)
    given = [Precomputed(K) for K in low_rank_matrices()]
    numbers = np.arange(len(X))[:, np.newaxis]
    exact = DiscriminantMKLClassifier(given, solver=formulation, tol=1e-6).fit(numbers, THREE)
    assert model.objective_ == pytest.approx(exact.objective_, rel=1e-6)
    np.testing.assert_allclose(model.trace_shares_, exact.trace_shares_, atol=1e-5)
    np.testing.assert_allclose(model.decision_function(X), exact.decision_function(numbers), atol=1e-5)


def test_linear_kernels_keep_their_columns():
    Z = RNG.standard_normal((160, 30)) * np.linspace(0.2, 3.0, 30)
    kernels = [("a", Linear(), slice(0, 8)), ("b", Linear(), slice(8, 15)), ("c", Linear(), slice(15, 30))]
    exact = DiscriminantMKLClassifier(kernels, tol=1e-8).fit(Z, THREE)
    fitted = DiscriminantMKLClassifier(kernels, tol=1e-8, approximation="fourier", rank=15).fit(Z, THREE)
    np.testing.assert_allclose(fitted.weights_, exact.weights_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(fitted.decision_function(Z), exact.decision_function(Z), atol=1e-7)


def test_what_a_fitted_function_says_adds_up():
    for y in (THREE, THREE > 0):
        model = DiscriminantMKLClassifier(GAUSSIANS, **{**LOW, "approximation": "fourier"}).fit(X, y)
        scores = model.decision_function(NEW)
        np.testing.assert_allclose(model.contributions(NEW).sum(axis=1) + model.intercept_.squeeze(), scores, atol=1e-9)
        dual = model.kernel_matrix(NEW, X) @ model.dual_coef_.T + model.intercept_
        np.testing.assert_allclose(dual.squeeze(), scores, atol=1e-8)
        np.testing.assert_allclose(model.transform(X).mean(axis=0), 0.0, atol=1e-9)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.transform(NEW), model.transform(NEW))


# ---- cost


def test_one_pass_forms_the_products_and_none_keeps_a_vector_a_kernel_and_class(monkeypatch):
    formed = []
    normal_matrix, products = StackFactors.normal_matrix, FeatureStack.products

    def counted(gram, theta, precise=False):
        assert precise
        formed.append(gram.n_features)
        return normal_matrix(gram, theta, precise)

    def thin(stack, beta, *rest):
        assert beta.ndim == 1
        return products(stack, beta, *rest)

    monkeypatch.setattr(StackFactors, "normal_matrix", counted)
    monkeypatch.setattr(FeatureStack, "products", thin)
    model = DiscriminantMKLClassifier(GAUSSIANS, tol=1e-6, **LOW).fit(X, THREE)
    assert model.n_solves_ > 3
    assert formed == [60]


def test_features_in_single_precision_keep_the_certificate():
    double = DiscriminantMKLClassifier(GAUSSIANS, tol=1e-8, **LOW).fit(X, THREE)
    # Beside the products of 60 features there is room for these in single precision, not in double.
    budget = 5 * 8 * 61**2 + 6 * 60 * len(X)
    single = DiscriminantMKLClassifier(GAUSSIANS, tol=1e-8, memory_budget=budget, **LOW).fit(X, THREE)
    assert single.objective_ != double.objective_
    assert single.duality_gap_ <= 1e-8
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-5)
    np.testing.assert_allclose(single.decision_function(X), double.decision_function(X), atol=1e-3)


# ---- rows that are elsewhere

#: Near the best weights the objective exceeds its optimum by about the square of the gap. A step on the weights is
#: known by the objective that falls: below a gap of the square root of its rounding, here 10⁻⁷, no arithmetic in double
#: precision can be asked to see one, be it this machine's or a device's.
VISIBLE = 8.0 * np.finfo(np.float64).eps ** 0.5


def settings(**more):
    return DiscriminantMKLClassifier(**{"kernels": GAUSSIANS, "tol": VISIBLE, **LOW, **more})


def assert_alike(found, expected, samples=NEW):
    assert found.duality_gap_ <= VISIBLE
    assert found.objective_ == pytest.approx(expected.objective_, rel=VISIBLE)
    np.testing.assert_allclose(found.trace_shares_, expected.trace_shares_, atol=1e-5)
    np.testing.assert_allclose(found.decision_function(samples), expected.decision_function(NEW), atol=1e-5)
    np.testing.assert_array_equal(found.predict(samples), expected.predict(NEW))
    np.testing.assert_allclose(np.abs(found.transform(samples)), np.abs(expected.transform(NEW)), atol=1e-4)


@pytest.mark.parametrize("alpha", [5e-4, "learn"])
def test_features_need_not_be_stored(tmp_path, alpha, monkeypatch):
    paths = []
    for k, rows in enumerate((X, NEW)):
        path = tmp_path / f"{k}.dat"
        np.memmap(path, dtype=np.float64, mode="w+", shape=rows.shape)[:] = rows
        paths.append(np.memmap(path, dtype=np.float64, mode="r", shape=rows.shape))
    stored = settings(alpha=alpha).fit(X, THREE)
    passes = []
    computed = ComputedFeatures.placed_features
    monkeypatch.setattr(ComputedFeatures, "placed_features", lambda *given: passes.append(1) or computed(*given))
    # No room for 160 × 60 numbers beside the matrices of 61 × 61.
    assert_alike(settings(alpha=alpha, memory_budget=1.8e5).fit(paths[0], THREE), stored, paths[1])
    assert passes


def test_parquet_is_worth_its_array(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    for name, rows in (("train", X), ("new", NEW)):
        pd.DataFrame(rows, columns=list("abcd")).to_parquet(tmp_path / f"{name}.parquet", row_group_size=50)
    streamed = settings().fit(str(tmp_path / "train.parquet"), THREE)
    assert list(streamed.feature_names_in_) == list("abcd")
    assert_alike(streamed, settings().fit(X, THREE), tmp_path / "new.parquet")


@pytest.mark.parametrize("kernels", [GAUSSIANS, MANY], ids=["features", "matrices"])
def test_rows_on_workers_are_worth_rows_at_home(kernels):
    dask = pytest.importorskip("dask")
    da = pytest.importorskip("dask.array")
    model = settings(kernels=kernels, rank=20 if kernels is GAUSSIANS else 100)
    with dask.config.set(scheduler="synchronous"):
        away = clone(model).fit(da.from_array(X, chunks=(60, 2)), da.from_array(THREE, chunks=60))
        assert_alike(away, clone(model).fit(X, THREE), da.from_array(NEW, chunks=(20, 4)))


@pytest.mark.torch
@pytest.mark.parametrize("alpha", [5e-4, "learn"])
@pytest.mark.parametrize("kernels", [GAUSSIANS, MANY], ids=["features", "matrices"])
def test_the_device_changes_nothing(alpha, kernels):
    pytest.importorskip("torch")
    model = settings(alpha=alpha, kernels=kernels, rank=20 if kernels is GAUSSIANS else 100)
    assert_alike(clone(model).set_params(device="cpu").fit(X, THREE), clone(model).fit(X, THREE))


# ---- what cannot be had


@pytest.mark.parametrize("formulation", ["sdp", "sdp_approximate", "kim"])
def test_formulations_in_matrices_are_refused(formulation):
    model = DiscriminantMKLClassifier(GAUSSIANS, solver=formulation, **LOW)
    message = rf"solver='{formulation}' .*approximation='nystroem'.*solver='newton', or approximation=None"
    with pytest.raises(ValueError, match=message):
        model.fit(X, THREE > 0)
    # With given weights there is nothing to formulate.
    assert model.set_params(weights="uniform").fit(X, THREE > 0).duality_gap_ <= 1e-8


def test_bad_values_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"approximation='best'"):
        DiscriminantMKLClassifier(approximation="best").fit(X, THREE)
    with pytest.raises(ValueError, match="rank=0"):
        DiscriminantMKLClassifier(approximation="nystroem", rank=0).fit(X, THREE)
    with pytest.raises(ValueError, match="approximation='nystroem' or 'fourier' only"):
        DiscriminantMKLClassifier().fit(str(tmp_path), THREE)
    with pytest.raises(ValueError, match="alpha=1e-300 leaves"):
        DiscriminantMKLClassifier(GAUSSIANS, alpha=1e-300, **LOW).fit(X, THREE)
    with pytest.raises(ValueError, match="every kernel is constant"):
        DiscriminantMKLClassifier([Gaussian(1.0)], **LOW).fit(np.ones((6, 2)), [0, 1, 0, 1, 0, 1])
