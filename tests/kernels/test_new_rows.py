"""New samples of given matrices, by their similarities to the rows: predictions are those of the
whole matrix."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from kernelmosaic import (
    BayesianMKLClassifier,
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    MKLKernelPCA,
    MKLOneClass,
    MKLRegressor,
    MKLRidgeClassifierCV,
    MKLRidgeCV,
    load,
    save,
)
from kernelmosaic.kernels import Gaussian, Precomputed
from kernelmosaic.model_selection import PathSearchCV

RNG = np.random.RandomState(0)
N, M = 40, 9
X = RNG.randn(N + M, 8)
CLASSES = np.where(X[:N, 0] + 0.3 * RNG.randn(N) > 0, "yes", "no")
NUMBERS = X[:N, 0] + 0.3 * RNG.randn(N)
VIEWS = {"line": X[:, :4] @ X[:, :4].T, "bell": Gaussian(4.0)(X[:, 4:])}
TRAIN, NEW = np.arange(N), np.arange(N, N + M)
BLOCKS = {name: K[N:, :N] for name, K in VIEWS.items()}
ESTIMATORS = {
    "classifier": (MKLClassifier, CLASSES),
    "uniform": (partial(MKLClassifier, weights="uniform"), CLASSES),
    "centred": (partial(MKLClassifier, normalize="centered"), CLASSES),
    "features": (
        partial(MKLClassifier, approximation="nystroem", rank=20, random_state=0),
        CLASSES,
    ),
    "regressor": (MKLRegressor, NUMBERS),
    "one class": (MKLOneClass, None),
    "bilinear": (BilinearMKLClassifier, CLASSES),
    "discriminant": (DiscriminantMKLClassifier, CLASSES),
    "ridge": (MKLRidgeCV, NUMBERS),
    "ridge classifier": (MKLRidgeClassifierCV, CLASSES),
    "bayesian": (partial(BayesianMKLClassifier, max_iter=5), CLASSES),
    "search": (partial(MKLClassifierCV, Cs=2, cv=2), CLASSES),
    "embedding": (MKLKernelPCA, None),
}


def fitted(name, matrices):
    estimator, y = ESTIMATORS[name]
    kernels = [(own, Precomputed(K)) for own, K in matrices.items()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations that are cut short
        model = estimator(kernels=kernels)
        return model.fit(TRAIN) if y is None else model.fit(TRAIN, y)


def outputs(model, X):
    for method in ("decision_function", "predict_proba", "transform", "predict"):
        if hasattr(model, method):
            return getattr(model, method)(X)
    raise AssertionError(model)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_blocks_of_similarities_are_predicted_as_rows_of_the_whole_matrix(name):
    whole = fitted(name, VIEWS)
    model = fitted(name, {own: K[:N, :N] for own, K in VIEWS.items()})
    expected = outputs(whole, NEW)
    for given in (
        BLOCKS,
        dict(reversed(BLOCKS.items())),
        list(BLOCKS.values()),
        tuple(BLOCKS.values()),
    ):
        assert_allclose(outputs(model, given), expected, rtol=1e-6, atol=1e-6)
    assert_allclose(
        outputs(model, {own: pd.DataFrame(block) for own, block in BLOCKS.items()}),
        expected,
        atol=1e-6,
    )
    # Row numbers are taken as before, and the whole matrix takes blocks with as many columns as it
    # has rows.
    assert_allclose(outputs(model, TRAIN), outputs(whole, TRAIN), rtol=1e-6, atol=1e-6)
    assert_allclose(
        outputs(whole, {own: K[N:] for own, K in VIEWS.items()}), expected, rtol=1e-6, atol=1e-6
    )


def test_one_matrix_takes_its_block_as_scikit_learn_does():
    K = VIEWS["line"]
    model = MKLClassifier([Precomputed(K[:N, :N])], normalize=None, C=1.0, tol=1e-8).fit(
        TRAIN, CLASSES
    )
    machine = SVC(kernel="precomputed", C=1.0, tol=1e-8).fit(K[:N, :N], CLASSES)
    assert_allclose(
        model.decision_function(K[N:, :N]), machine.decision_function(K[N:, :N]), atol=1e-5
    )
    assert_array_equal(model.predict(pd.DataFrame(K[N:, :N])), machine.predict(K[N:, :N]))


@pytest.mark.parametrize("missing", ["neighbors", "zero"])
@pytest.mark.parametrize("name", ["classifier", "ridge"])
def test_rows_of_nan_are_views_that_samples_lack(name, missing):
    # Of kernels with a constant diagonal, a block holds all that completing views reads.
    whole = {"a": Gaussian(3.0)(X[:, :4]), "b": Gaussian(4.0)(X[:, 4:])}
    for K, lacking in zip(whole.values(), ([3, N + 1], [5, N, N + 4]), strict=True):
        K[lacking] = K[:, lacking] = np.nan
    blocks = {own: K[N:, :N].copy() for own, K in whole.items()}
    for own, lacking in (("a", 3), ("b", 5)):
        # Entries of columns that the training samples lack are not read.
        blocks[own][~np.isnan(blocks[own]).all(axis=1), lacking] = 0.0
    estimator, y = ESTIMATORS[name]
    kernels = {own: Precomputed(K[:N, :N]) for own, K in whole.items()}
    model = estimator(list(kernels.items()), missing=missing).fit(TRAIN, y)
    other = estimator([(own, Precomputed(K)) for own, K in whole.items()], missing=missing).fit(
        TRAIN, y
    )
    assert_allclose(
        model.predict(blocks) if name == "ridge" else model.decision_function(blocks),
        other.predict(NEW) if name == "ridge" else other.decision_function(NEW),
        atol=1e-6,
    )


def test_saved_models_and_searches_take_blocks(tmp_path):
    model = fitted("classifier", {own: K[:N, :N] for own, K in VIEWS.items()})
    save(model, tmp_path / "m.skops")
    again = load(tmp_path / "m.skops")
    assert_allclose(again.decision_function(BLOCKS), model.decision_function(BLOCKS), rtol=1e-12)
    contributions = model.contributions(BLOCKS)
    assert_allclose(
        contributions.sum(axis=1) + model.intercept_, model.decision_function(BLOCKS), atol=1e-9
    )
    assert_allclose(model.kernel_matrix(BLOCKS, TRAIN), model.kernel_matrix(TRAIN, BLOCKS).T)
    search = GridSearchCV(clone_of(model), {"C": [0.1, 1.0]}, cv=2).fit(
        TRAIN[:, np.newaxis], CLASSES
    )
    assert_array_equal(search.predict(BLOCKS), search.best_estimator_.predict(BLOCKS))
    path = PathSearchCV(clone_of(model), Cs=[0.1, 1.0], cv=2).fit(TRAIN[:, np.newaxis], CLASSES)
    assert path.predict(BLOCKS).shape == (M,)


def clone_of(model):
    return type(model)(**model.get_params(deep=False))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"line": BLOCKS["line"]},
            r"X holds blocks for line; the kernels are line, bell: give a block",
        ),
        ([BLOCKS["line"]] * 3, "X holds 3 blocks for the 2 kernels line, bell"),
        (
            BLOCKS | {"bell": BLOCKS["bell"][:, :5]},
            r"block of kernel 'bell' has shape \(9, 5\); .* 40 rows of K",
        ),
        (BLOCKS | {"bell": BLOCKS["bell"][:5]}, r"the blocks have .*'bell': 5.* rows"),
        (
            BLOCKS | {"bell": np.full((M, N), np.inf)},
            r"entry \(0, 0\) of the block of kernel 'bell' is inf",
        ),
        (
            BLOCKS | {"bell": np.full((M, N), "a")},
            "block of kernel 'bell' cannot be read as numbers",
        ),
        (dict.fromkeys(BLOCKS, np.full((M, N), np.nan)), r"X\[0\] has no view at all"),
    ],
)
def test_other_blocks_are_refused(given, message):
    model = fitted("uniform", {own: K[:N, :N] for own, K in VIEWS.items()})
    with pytest.raises(ValueError, match=message):
        model.predict(given)


def test_what_a_block_does_not_hold_is_said():
    matrices = {own: K[:N, :N] for own, K in VIEWS.items()}
    model = fitted("classifier", matrices)
    with pytest.raises(ValueError, match="new rows on both sides"):
        model.kernel_matrix(BLOCKS)
    kernels = [(own, Precomputed(K)) for own, K in matrices.items()]
    model = MKLClassifier(kernels, normalize="diagonal").fit(TRAIN, CLASSES)
    with pytest.raises(
        ValueError, match=r"k\(x, x\) of new rows is asked for, by normalize='diagonal'"
    ):
        model.predict(BLOCKS)
    model = MKLClassifier(kernels, weights="uniform", missing=None).fit(TRAIN, CLASSES)
    with pytest.raises(ValueError, match="kernel 'bell': X: row 0 of the block is NaN"):
        model.predict(BLOCKS | {"bell": np.full((M, N), np.nan)})


def test_a_fit_takes_row_numbers_and_gates_do_not_read_blocks():
    kernels = [(own, Precomputed(K[:N, :N])) for own, K in VIEWS.items()]
    with pytest.raises(ValueError, match="row number"):
        MKLClassifier(kernels).fit(BLOCKS, CLASSES[:M])
    with pytest.raises(ValueError, match="row number"):
        MKLClassifier(kernels[:1]).fit(VIEWS["line"][:N, :N], CLASSES)
    model = LocalizedMKLClassifier(kernels, gating_kernel=kernels[1][1], tol=0.1).fit(
        TRAIN, CLASSES
    )
    with pytest.raises(ValueError, match="fitted to one table"):
        model.predict(list(BLOCKS.values()))


def test_tables_of_row_numbers_are_no_blocks():
    # A column of row numbers among others, and a table of row numbers for every kernel, as at the
    # fit.
    table = pd.DataFrame({"row": TRAIN, "age": 50.0 + TRAIN})
    model = MKLClassifier([("line", Precomputed(VIEWS["line"]), ["row"])]).fit(table, CLASSES)
    plain = MKLClassifier([("line", Precomputed(VIEWS["line"]))]).fit(TRAIN, CLASSES)
    new = pd.DataFrame({"row": NEW, "age": 50.0})
    assert_allclose(model.decision_function(new), plain.decision_function(NEW))
    assert_allclose(
        model.decision_function(VIEWS["line"][N:]), plain.decision_function(NEW), atol=1e-9
    )
    kernels = [(name, Precomputed(K), name) for name, K in VIEWS.items()]
    tables = {name: pd.DataFrame({"row": TRAIN}) for name in VIEWS}
    model = MKLClassifier(kernels, weights="uniform").fit(tables, CLASSES)
    both = fitted("uniform", VIEWS)
    rows = {name: pd.DataFrame({"row": NEW}) for name in VIEWS}
    assert_allclose(model.decision_function(rows), both.decision_function(NEW))
    blocks = {name: K[N:] for name, K in VIEWS.items()}
    assert_allclose(model.decision_function(blocks), both.decision_function(NEW), atol=1e-9)
