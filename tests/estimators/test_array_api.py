"""Arrays of libraries that follow the array API: read once, into NumPy, with scikit-learn's
dispatch and without."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import cross_val_score
from tests.sweeps import thinned

import kernelmosaic
from kernelmosaic import MKLClassifier
from kernelmosaic.backend import to_host
from kernelmosaic.kernels import Gaussian, Linear

xp = pytest.importorskip("array_api_strict")

RNG = np.random.RandomState(0)
X = RNG.normal(size=(48, 4))
Y = (X[:, 0] + 0.3 * RNG.normal(size=48) > 0).astype(int)
WEIGHT = RNG.uniform(0.5, 2.0, size=48)
KERNELS = [("a", Linear(), [0, 1]), ("b", Gaussian(2.0), [2, 3])]
NAMES = list(kernelmosaic.estimators.__all__)


@pytest.fixture
def dispatch(monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # scikit-learn insists
    try:
        sklearn.set_config(array_api_dispatch=True)
    except ImportError as error:  # SciPy is older than that
        pytest.skip(str(error))
    yield
    sklearn.set_config(array_api_dispatch=False)


#: Arrays are read in one place: those that read samples by lines of their own, and one of each kind
#: of target.
OF_OWN_LINES = [
    name
    for name in NAMES
    if name
    in (
        "MKLClassifier",
        "MKLRegressorCV",
        "MKLSurvival",
        "MKLOneClass",
        "MKLRidgeCV",
        "MKLKernelPCA",
    )
    or name
    in (
        "PosteriorMKLClassifier",
        "LocalizedMKLClassifier",
        "BayesianMKLClassifier",
        "MKLClustering",
    )
]


@pytest.mark.usefixtures("dispatch")
@pytest.mark.filterwarnings("ignore:Localized:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", thinned(NAMES, OF_OWN_LINES))
def test_every_estimator_takes_them_and_answers_in_numpy(name):
    y = np.column_stack([Y, np.exp(X[:, 0])]) if "Survival" in name else Y
    options = (
        {"Cs": [1.0], "norms": [1], "cv": 2} if name.endswith("CV") and "Ridge" not in name else {}
    )
    options |= {"n_init": 1, "max_iter": 1} if name.startswith("Localized") else {}
    options |= {"random_state": 0} if name == "MKLClustering" else {}
    make = getattr(kernelmosaic, name)
    expected = make(kernels=KERNELS, **options).fit(X, y)
    model = make(kernels=KERNELS, **options).fit(xp.asarray(X), xp.asarray(y))
    asked = "predict" if hasattr(model, "predict") else "transform"
    found = getattr(model, asked)(xp.asarray(X))
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, getattr(expected, asked)(X))
    np.testing.assert_array_equal(model.contributions(xp.asarray(X)), expected.contributions(X))


@pytest.mark.usefixtures("dispatch")
def test_searches():
    A, b = xp.asarray(X), xp.asarray(Y)
    found = cross_val_score(MKLClassifier(KERNELS), A, b, cv=2)
    np.testing.assert_allclose(found, cross_val_score(MKLClassifier(KERNELS), X, Y, cv=2))


def test_weights_and_missing_views_without_dispatch():
    has = np.arange(96).reshape(48, 2) % 7 > 0
    partial = np.where(has[:, [0, 0, 1, 1]], X, np.nan)
    A, gone, b, weight = map(xp.asarray, (X, partial, Y, WEIGHT))
    model = MKLClassifier(KERNELS).fit(gone, b, sample_weight=weight)
    expected = MKLClassifier(KERNELS).fit(partial, Y, sample_weight=WEIGHT)
    np.testing.assert_array_equal(model.predict(gone), expected.predict(partial))
    assert model.score(A, Y) == expected.score(X, Y)


def test_what_is_no_foreign_array_stays_as_it_is(tmp_path):
    memory_map = np.memmap(tmp_path / "x", dtype=np.float64, mode="w+", shape=(2, 2))
    for given in (X, memory_map, np.float64(1.0), [1.0], None):
        assert to_host(given) is given
