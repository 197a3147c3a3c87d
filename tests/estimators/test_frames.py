"""Data frames in every estimator: columns by name, names kept, frames out; the reference is the
plain array."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.compose import make_column_selector
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from tests.sweeps import thinned

import kernelmosaic
from kernelmosaic import DiscriminantMKLClassifier, MKLClassifier, stack_views
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Ranked

RNG = np.random.RandomState(0)
X = RNG.normal(size=(48, 5))
Y = (X[:, 0] + X[:, 3] ** 2 + 0.3 * RNG.normal(size=48) > 1).astype(int)
TIMES = np.column_stack([Y, np.exp(X[:, 0])])
NAMES = ["fac__0", "fac__1", "fou__0", "fou__1", "fou__2"]
#: The gates' problem is not convex: after many steps rounding decides where they go, after one it
#: does not.
FAST = {"n_init": 1, "max_iter": 1, "tol": 1e-8}
TIGHT = {"tol": 1e-6}
#: One C by two folds, and columns as they are: sparse ones could not be centred.
TUNED = {"Cs": [1.0], "norms": [1], "cv": 2, "scale": False}
UNSCALED = {"scale": False}
#: Sparse samples are scaled without being centred: as they are, they equal dense ones.
OWN = {
    "MKLClassifierCV": TUNED,
    "MKLRegressorCV": TUNED,
    "MKLSurvivalCV": TUNED,
    "MKLRidgeCV": UNSCALED,
    "MKLRidgeClassifierCV": UNSCALED,
    # Centred kernels of sparse samples would be, too; two clusters by one start.
    "MKLKernelPCA": UNSCALED | {"weights": "equal"},
    "MKLClustering": UNSCALED | {"weights": "equal", "n_clusters": 2, "random_state": 0},
}
#: Its steps are slow and the same in number for equal samples.
OWN["BayesianMKLClassifier"] = {"tol": 1e-4}
ESTIMATORS = {
    name: (
        getattr(kernelmosaic, name),
        (FAST if name.startswith("Localized") else TIGHT) | OWN.get(name, {}),
    )
    for name in sorted(kernelmosaic.estimators.__all__)
}
#: Those that read samples by lines of their own, and those whose frames
#: `tests/contracts/test_columns.py` leaves out; there are frames for every other estimator, and
#: sparse samples in scikit-learn's checks.
OF_OWN_LINES = [
    name
    for name in ESTIMATORS
    if "Localized" in name
    or name
    in ("MKLClassifier", "MKLClassifierCV", "MKLRidgeCV", "MKLKernelPCA", "PosteriorMKLClassifier")
]
FRAMES = {
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "polars": lambda X: pl.DataFrame(X, schema=NAMES),
}


def both_views(fac, fou):
    return [("fac", Linear(), fac), ("fou", Gaussian("median"), fou)]


#: How the two views may be named; all mean columns 0, 1 and 2, 3, 4.
WAYS = {
    "lists": (["fac__0", "fac__1"], ["fou__0", "fou__1", "fou__2"]),
    "patterns": (make_column_selector(pattern="^fac__"), make_column_selector(pattern="^fou__")),
    "slices": (slice("fac__0", "fac__1"), slice("fou__0", None)),
    "numbers": ([0, 1], slice(2, 5)),
    "series": (pl.Series(NAMES[:2]), pd.Index(NAMES[2:])),
}


def outputs(model, X):
    asked = (
        "predict" if hasattr(model, "predict") else "transform",
        "contributions",
        "kernel_matrix",
    )
    return [getattr(model, name)(X) for name in asked]


def mean_kernel(model, X):
    """The kernel over all classes: of two classes with weights of their own only the sum is
    determined."""
    K = model.kernel_matrix(X)
    return K if K.ndim == 2 else K.mean(axis=0)


def fitted(name, kernels, X, **options):
    kind, fast = ESTIMATORS[name]
    model = kind(kernels=kernels, **(fast | options))
    if "OneClass" in name:
        return model.fit(X)
    return model.fit(X, TIMES if "Survival" in name else Y)


def test_all_are_looked_at():
    assert len(ESTIMATORS) >= 10


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", thinned(ESTIMATORS, OF_OWN_LINES))
def test_a_frame_with_names_equals_an_array_with_numbers(name):
    plain = fitted(name, both_views([0, 1], [2, 3, 4]), X)
    # Every way with every library has a test of its own below.
    frame = FRAMES["pandas"](X)
    model = fitted(name, both_views(*WAYS["patterns"]), frame)
    assert model.feature_names_in_.tolist() == NAMES
    assert model.n_features_in_ == 5
    assert model.kernel_names_ == ["fac", "fou"]
    for ours, theirs in zip(outputs(model, frame), outputs(plain, X), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # In single precision an array is as good as its frame, and nearly as good as one in double; for
    # the first, one of each way to read samples.
    single = X.astype(np.float32)
    frame = FRAMES["polars"](single)
    model = fitted(name, both_views(*WAYS["lists"]), frame)
    contributions = model.contributions(frame)
    assert contributions.dtype == np.float64
    if name in ("MKLClassifier", "MKLRidgeCV", "MKLKernelPCA", "BayesianMKLClassifier"):
        expected = fitted(name, both_views([0, 1], [2, 3, 4]), single).contributions(single)
        np.testing.assert_array_equal(contributions, expected)
    np.testing.assert_allclose(mean_kernel(model, frame), mean_kernel(plain, X), atol=2e-3)


@pytest.fixture(scope="module")
def numbered():
    """Decision values of the fit to an array whose columns are given by their numbers."""
    return MKLClassifier(both_views([0, 1], [2, 3, 4])).fit(X, Y).decision_function(X)


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_name_columns(way, library, numbered):
    frame = FRAMES[library](X)
    model = MKLClassifier(both_views(*WAYS[way])).fit(frame, Y)
    np.testing.assert_array_equal(model.decision_function(frame), numbered)


def test_a_column_of_one_name_and_a_selector_that_finds_nothing():
    for make in FRAMES.values():
        one = MKLClassifier([("one", Linear(), "fou__1")]).fit(make(X), Y)
        expected = MKLClassifier([("one", Linear(), [3])]).fit(X, Y)
        np.testing.assert_array_equal(one.decision_function(make(X)), expected.decision_function(X))
        with pytest.raises(ValueError, match=r"kernel 'none'.*select none"):
            MKLClassifier([("none", Linear(), make_column_selector(pattern="^zzz"))]).fit(
                make(X), Y
            )
        with pytest.raises(ValueError, match=r"kernel 'some'.*fac__9"):
            MKLClassifier([("some", Linear(), ["fac__9"])]).fit(make(X), Y)
    with pytest.raises(ValueError, match=r"kernel 'x'.*pandas"):
        MKLClassifier([("x", Linear(), make_column_selector(pattern="^fac"))]).fit(X, Y)
    # Types of columns are pandas' own; scikit-learn's selector says so, and the kernel is named.
    with pytest.raises(ValueError, match=r"kernel 'x'.*pandas"):
        MKLClassifier([("x", Linear(), make_column_selector(dtype_include=float))]).fit(
            FRAMES["polars"](X), Y
        )


@pytest.mark.parametrize("library", FRAMES)
def test_the_transformer_gives_frames_back(library):
    frame, labels = FRAMES[library](X), np.digitize(X[:, 0], [-0.5, 0.5])
    model = DiscriminantMKLClassifier(both_views(*WAYS["lists"])).fit(frame, labels)
    plain = model.transform(frame)
    assert isinstance(plain, np.ndarray)
    names = ["discriminantmklclassifier0", "discriminantmklclassifier1"]
    assert model.get_feature_names_out().tolist() == names
    for wanted, kind in {"pandas": pd.DataFrame, "polars": pl.DataFrame}.items():
        out = model.set_output(transform=wanted).transform(frame)
        assert isinstance(out, kind)
        assert list(out.columns) == names
        np.testing.assert_array_equal(out.to_numpy(), plain)
    if library == "pandas":
        reordered = frame.set_axis(range(100, 148), axis=0)
        assert model.set_output(transform="pandas").transform(reordered).index.tolist() == list(
            range(100, 148)
        )


@pytest.mark.parametrize("wanted", ["pandas", "polars"])
def test_the_transformer_in_a_pipeline_hands_frames_on(wanted):
    frame, labels = FRAMES["pandas"](X), np.digitize(X[:, 0], [-0.5, 0.5])
    pipeline = make_pipeline(DiscriminantMKLClassifier(), KNeighborsClassifier(3)).set_output(
        transform=wanted
    )
    pipeline.fit(frame, labels)
    assert pipeline[-1].feature_names_in_.tolist() == [
        "discriminantmklclassifier0",
        "discriminantmklclassifier1",
    ]
    assert pipeline.score(frame, labels) > 0.7


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", thinned(ESTIMATORS, OF_OWN_LINES))
def test_sparse_equals_dense_where_the_kernels_allow(name):
    thin = np.where(np.abs(X) < 0.5, 0.0, X)
    kernels = [
        ("line", Linear(), [0, 1]),
        ("square", Polynomial()),
        ("bell", Gaussian(2.0), [2, 3, 4]),
    ]
    dense = fitted(name, kernels, thin)
    scarce = fitted(name, kernels, sparse.csr_array(thin))
    same = sparse.csr_array(thin)
    np.testing.assert_allclose(scarce.contributions(same), dense.contributions(thin), atol=2e-3)
    np.testing.assert_allclose(mean_kernel(scarce, same), mean_kernel(dense, thin), atol=2e-3)


@pytest.mark.parametrize("library", FRAMES)
def test_stacked_views_are_what_the_patterns_mean(library):
    kind = FRAMES[library]
    fac, fou = kind(X)[["fac__0", "fac__1"]], kind(X)[["fou__0", "fou__1", "fou__2"]]
    frame, views = stack_views(fac=fac.to_numpy(), fou=fou)
    model = MKLClassifier([(name, Linear(), columns) for name, columns in views.items()]).fit(
        frame, Y
    )
    patterns = [(name, Linear(), make_column_selector(pattern=f"^{name}__")) for name in views]
    by_pattern = MKLClassifier(patterns).fit(frame, Y)
    plain = MKLClassifier([("fac", Linear(), [0, 1]), ("fou", Linear(), [2, 3, 4])]).fit(X, Y)
    np.testing.assert_array_equal(model.decision_function(frame), plain.decision_function(X))
    np.testing.assert_array_equal(by_pattern.decision_function(frame), plain.decision_function(X))
    assert model.feature_names_in_.tolist() == [
        "fac__0",
        "fac__1",
        "fou__fou__0",
        "fou__fou__1",
        "fou__fou__2",
    ]


@pytest.mark.parametrize(
    "name", ["MKLClassifier", "MKLRegressor", "MKLRidgeCV", "MKLRidgeClassifierCV"]
)
def test_a_frame_of_sparse_columns_is_a_sparse_matrix(name):
    thin = np.where(np.abs(X) < 0.5, 0.0, X)
    frame = pd.DataFrame(thin, columns=NAMES).astype(pd.SparseDtype(float, 0.0))
    model, same = fitted(name, None, frame), fitted(name, None, sparse.csr_array(thin))
    assert model.feature_names_in_.tolist() == NAMES
    assert model.kernel_names_ == same.kernel_names_
    np.testing.assert_array_equal(model.predict(frame), same.predict(sparse.csr_array(thin)))


@pytest.mark.parametrize("name", ["MKLClassifier", "MKLRidgeCV"])
def test_sparse_columns_that_kernels_do_not_read_so_are_dense(name):
    thin = np.where(np.abs(X) < 0.5, 0.0, X)
    plain = pd.DataFrame(thin, columns=NAMES)
    frame = plain.astype(pd.SparseDtype(float, 0.0))
    kernels = [("ranks", Ranked(Gaussian())), ("line", Linear())]
    expected = fitted(name, kernels, plain).predict(plain)
    np.testing.assert_array_equal(fitted(name, kernels, frame).predict(frame), expected)
    # Of a model of dense samples, too, and where kernels name their columns or some columns are
    # dense.
    np.testing.assert_array_equal(fitted(name, kernels, plain).predict(frame), expected)
    mixed = frame.assign(fou__2=plain["fou__2"])
    np.testing.assert_array_equal(fitted(name, kernels, mixed).predict(mixed), expected)
    views = both_views(*WAYS["lists"])
    np.testing.assert_array_equal(
        fitted(name, views, frame).predict(frame), fitted(name, views, plain).predict(plain)
    )
