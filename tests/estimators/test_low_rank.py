"""Estimators in features: equal to the exact ones at full rank, close to them below, and within their memory."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from kernelmosaic import MKLClassifier, MKLOneClass, MKLRegressor
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.options import FitOptions
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Precomputed, Spectrum

RNG = np.random.RandomState(0)
X = RNG.standard_normal((160, 4))
F = np.sin(2 * X[:, 0]) + X[:, 1]
Y = (F > 0).astype(int) + (F > 1)
NEW = RNG.standard_normal((30, 4))
KERNELS = [Gaussian(1.0), ("wide", Gaussian(4.0)), Linear(), ("square", Polynomial(2), [0, 1])]


def outputs(model, samples):
    return model.predict(samples) if isinstance(model, MKLRegressor) else model.decision_function(samples)


CASES = {
    "classifier": (MKLClassifier(KERNELS, tol=1e-7), Y),
    "two classes": (MKLClassifier(KERNELS, C=10.0, tol=1e-7), Y > 0),
    "squared": (MKLClassifier(KERNELS, slack=2, norm=2, tol=1e-7), Y > 0),
    "centred": (MKLClassifier(KERNELS, normalize="centered", tol=1e-7, penalties=[1, 2, 1, 0.5]), Y > 0),
    "product": (MKLClassifier([Gaussian(4.0) * Linear() * Polynomial(2)], tol=1e-7), Y > 0),
    "uniform": (MKLClassifier(KERNELS, weights="uniform", tol=1e-7), Y),
    "silp": (MKLClassifier(KERNELS, solver="silp", tol=1e-5), Y > 0),
    "reduced gradient": (MKLRegressor(KERNELS, solver="reduced_gradient", tol=1e-5), F),
    "qcqp": (MKLClassifier(KERNELS, solver="qcqp", tol=1e-5), Y > 0),
    "alignment": (MKLClassifier(KERNELS, solver="alignment", tol=1e-7), Y > 0),
    "easymkl": (MKLClassifier(KERNELS, solver="easymkl", tol=1e-7), Y > 0),
    "eigenvalue": (MKLClassifier(KERNELS, penalties="eigenvalue", tol=1e-7), Y > 0),
    "regressor": (MKLRegressor(KERNELS, tol=1e-7), F),
    "regressor diagonal": (MKLRegressor(KERNELS, normalize="diagonal", slack=2, tol=1e-7), F),
    "one class": (MKLOneClass(KERNELS, nu=0.3, tol=1e-7), None),
}


#: Weights reach the machine, the normalisation, the landmarks and two heuristics; the others see nothing of them.
WEIGHTED = ("classifier", "squared", "centred", "alignment", "easymkl", "regressor", "one class")


@pytest.mark.parametrize(
    ("name", "weighted"), [*((name, False) for name in CASES), *((name, True) for name in WEIGHTED)]
)
def test_full_rank_is_exact(name, weighted):
    if name == "qcqp":
        pytest.importorskip("clarabel")
    model, y = CASES[name]
    weight = np.random.RandomState(1).randint(0, 3, len(X)).astype(float) if weighted else None
    exact = clone(model).fit(X, y, sample_weight=weight)
    full = clone(model).set_params(approximation="nystroem", random_state=0).fit(X, y, sample_weight=weight)
    assert full.duality_gap_ <= model.tol
    assert full.objective_ == pytest.approx(exact.objective_, rel=3 * model.tol)
    # A gap of tol leaves an error of about its root in the weights and the outputs.
    close = 10 * np.sqrt(model.tol)
    np.testing.assert_allclose(full.weights_, exact.weights_, atol=close)
    np.testing.assert_allclose(outputs(full, X), outputs(exact, X), atol=close * np.abs(outputs(exact, X)).max())
    np.testing.assert_allclose(outputs(full, NEW), outputs(exact, NEW), atol=close * np.abs(outputs(exact, X)).max())
    # Samples of weight zero are no landmarks.
    counted = X if weight is None else X[weight > 0]
    np.testing.assert_allclose(full.kernel_matrix(counted), exact.kernel_matrix(counted), atol=close * len(KERNELS))
    assert abs(len(full.support_) - len(exact.support_)) <= 4


@pytest.mark.parametrize("approximation", ["nystroem", "fourier"])
def test_what_a_fitted_function_says_adds_up(approximation):
    kernels = [Gaussian(1.0), Gaussian(4.0), Linear()]
    for model, y in ((MKLClassifier(kernels), Y), (MKLClassifier(kernels), Y > 0), (MKLRegressor(kernels), F)):
        model.set_params(approximation=approximation, rank=20, random_state=0).fit(X, y)
        shares = model.contributions(NEW)
        np.testing.assert_allclose(shares.sum(axis=1) + model.intercept_.squeeze(), outputs(model, NEW), atol=1e-10)
        # The same function from its dual: β on the kernel between new samples and the support.
        K = model.kernel_matrix(NEW, X[model.support_])
        dual = np.stack(
            [k @ b for k, b in zip(np.atleast_3d(K.T).T if K.ndim == 2 else K, model.dual_coef_, strict=True)]
        )
        np.testing.assert_allclose(dual.T.squeeze() + model.intercept_, np.squeeze(outputs(model, NEW)), atol=1e-9)
        assert model.cost(np.ones(3)) > 0
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(outputs(again, NEW), outputs(model, NEW))


def test_rank_and_seed_decide_what_comes_out():
    model = MKLClassifier(KERNELS[:2], approximation="nystroem", rank=15, random_state=3)
    first = model.fit(X, Y > 0).decision_function(NEW)
    np.testing.assert_array_equal(clone(model).fit(X, Y > 0).decision_function(NEW), first)
    assert not np.allclose(clone(model).set_params(random_state=4).fit(X, Y > 0).decision_function(NEW), first)


def test_more_landmarks_lower_the_objective_towards_the_exact_one():
    exact = MKLClassifier([Gaussian(1.5)], C=3.0, tol=1e-6).fit(X, Y > 0).objective_
    values = []
    for rank in (5, 20, 60, 160):
        model = MKLClassifier([Gaussian(1.5)], C=3.0, tol=1e-6, approximation="nystroem", rank=rank, random_state=0)
        values.append(model.fit(X, Y > 0).objective_)
    # Less of the kernel fits less: the value falls as landmarks come, and never below the exact one.
    assert np.all(np.diff(values) < 1e-6)
    assert values[-1] == pytest.approx(exact, rel=1e-5)


def test_a_search_reaches_the_rank():
    search = GridSearchCV(
        MKLClassifier(KERNELS[:2], approximation="nystroem", random_state=0), {"rank": [2, 80]}, cv=3
    ).fit(X, Y > 0)
    assert search.best_params_ == {"rank": 80}


def test_samples_need_not_be_dense_numbers():
    S = sparse.csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0) + np.eye(4)[:1] * X)  # no row twice
    kernels = [Gaussian(1.0), Linear()]
    settings = {"approximation": "nystroem", "rank": 40, "random_state": 0, "tol": 1e-8}
    dense = MKLClassifier(kernels, **settings).fit(S.toarray(), Y > 0)
    thin = MKLClassifier(kernels, **settings).fit(S, Y > 0)
    # A gap of 1e-8 leaves the function about its root to wander.
    np.testing.assert_allclose(thin.decision_function(S), dense.decision_function(S.toarray()), atol=1e-4)
    words = np.array([["gattaca"], ["gatt"], ["tacat"], ["cat"], ["acatac"], ["gag"]], dtype=object)
    model = MKLClassifier([Spectrum(2)], approximation="nystroem").fit(words, [0, 0, 1, 1, 1, 0])
    np.testing.assert_array_equal(model.predict(words), [0, 0, 1, 1, 1, 0])
    numbers = np.arange(len(X))[:, np.newaxis]
    given = MKLClassifier([Precomputed(X @ X.T)], approximation="nystroem", tol=1e-7).fit(numbers, Y > 0)
    exact = MKLClassifier([Linear()], tol=1e-7).fit(X, Y > 0)
    assert given.objective_ == pytest.approx(exact.objective_, rel=1e-6)


# ---- samples that stay where they are


@pytest.fixture
def mapped(tmp_path):
    def write(samples, dtype=np.float64):
        path = tmp_path / "samples.dat"
        written = np.memmap(path, dtype=dtype, mode="w+", shape=samples.shape)
        written[:] = samples
        written.flush()
        return np.memmap(path, dtype=dtype, mode="r", shape=samples.shape)

    return write


@pytest.mark.parametrize("normalize", ["trace", "diagonal", "centered", None])
def test_a_memory_map_is_worth_its_array(mapped, normalize):
    model = MKLClassifier(KERNELS, approximation="nystroem", rank=30, random_state=0, normalize=normalize, tol=1e-7)
    stored = clone(model).fit(X, Y)
    streamed = clone(model).set_params(memory_budget=2.0e6).fit(mapped(X), Y)
    assert streamed.n_features_in_ == 4
    np.testing.assert_allclose(streamed.decision_function(mapped(NEW)), stored.decision_function(NEW), atol=1e-3)
    assert streamed.objective_ == pytest.approx(stored.objective_, rel=1e-6)


def test_whole_numbers_are_read_as_numbers(mapped):
    whole = np.round(3 * X).astype(np.int16)
    model = MKLRegressor(KERNELS, approximation="nystroem", rank=30, random_state=0)
    streamed, stored = clone(model).fit(mapped(whole, np.int16), F), clone(model).fit(whole, F)
    assert streamed.objective_ == pytest.approx(stored.objective_, rel=2e-3)
    assert (
        clone(MKLOneClass(KERNELS, approximation="fourier", rank=30))
        .set_params(kernels=[Gaussian(20.0)])
        .fit(mapped(whole, np.int16))
        .duality_gap_
        <= 1e-3
    )


def test_parquet_is_worth_its_array(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(X, columns=list("abcd"))
    folder = tmp_path / "parts"
    folder.mkdir()
    frame.iloc[:100].to_parquet(folder / "0.parquet", row_group_size=30)
    frame.iloc[100:].to_parquet(folder / "1.parquet")
    frame.to_parquet(tmp_path / "whole.parquet")
    kernels = [("bell", Gaussian(1.0), ["a", "c"]), Linear()]
    model = MKLClassifier(kernels, approximation="nystroem", rank=30, random_state=0, tol=1e-7)
    stored = clone(model).fit(frame, Y > 0)
    for path in (folder, str(tmp_path / "whole.parquet")):
        streamed = clone(model).fit(path, Y > 0)
        assert list(streamed.feature_names_in_) == list("abcd")
        np.testing.assert_allclose(streamed.decision_function(path), stored.decision_function(frame), atol=1e-3)
        assert streamed.objective_ == pytest.approx(stored.objective_, rel=1e-6)


def test_bad_sources_are_named(mapped, tmp_path):
    model = MKLClassifier(KERNELS, approximation="nystroem")
    with pytest.raises(ValueError, match="there is no such file"):
        model.fit(tmp_path / "nothing.parquet", Y)
    with pytest.raises(ValueError, match=r"holds no file named \*.parquet"):
        model.fit(tmp_path, Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(mapped(X), Y[:-1])
    with pytest.raises(ValueError, match="approximation='nystroem' or 'fourier' only"):
        clone(model).set_params(approximation=None).fit(str(tmp_path), Y)
    fitted = clone(model).set_params(rank=10).fit(mapped(X), Y)
    with pytest.raises(ValueError, match=r"X has 3 features.*expecting 4"):
        fitted.predict(mapped(X[:, :3]))
    broken = X.copy()
    broken[77, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.fit(mapped(broken), Y)


@pytest.mark.parametrize("stored", [True, False], ids=["features stored", "features computed"])
def test_memory_stays_within_the_budget(mapped, stored, monkeypatch):
    monkeypatch.setattr(FeatureMaps, "fit_options", FitOptions(least_rows=200))
    rng = np.random.RandomState(0)
    n, d, rank, budget = 3000, 600, 150, 7.5e6 if stored else 6e6
    samples = mapped(rng.standard_normal((n, d)))
    y = samples[:, 0] + samples[:, 1] > 0
    kernels = [("some", Gaussian(2.0), [0, 1]), ("all", Gaussian(25.0))]
    model = MKLClassifier(
        kernels, weights="uniform", approximation="nystroem", rank=rank, random_state=0, memory_budget=budget
    )
    tracemalloc.start()
    model.fit(samples, y)
    score = np.mean(model.predict(samples) == y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.duality_gap_ <= 1e-3
    assert score > 0.9
    # Beside the stack there are vectors of n numbers, and the few samples that the kernels are fitted to.
    assert peak < budget + 50 * 8 * n + 2 * 8 * 200 * d < 0.75 * samples.nbytes


# ---- what cannot be had


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match=r"approximation='best'.*'nystroem', 'fourier'"):
        MKLClassifier(approximation="best").fit(X, Y)
    with pytest.raises(ValueError, match=r"rank=0"):
        MKLRegressor(approximation="nystroem", rank=0).fit(X, F)
    with pytest.raises(ValueError, match=r"kernel 'polynomial'.*nystroem"):
        MKLOneClass([Polynomial(2)], approximation="fourier").fit(X)
