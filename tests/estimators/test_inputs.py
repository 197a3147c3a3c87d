"""Samples of every form: row numbers, frames, sparse matrices, single precision, strings beside
numbers."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.compose import make_column_selector
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC

from kernelmosaic import MKLClassifier, MKLOneClass, MKLRegressor, MKLRidgeCV, load, save
from kernelmosaic.estimators.inputs import CLASSES, NUMBERS, read_new_samples, read_samples
from kernelmosaic.kernels import (
    Clinical,
    Gaussian,
    Linear,
    Polynomial,
    Precomputed,
    Spectrum,
    family,
    per_column,
)

KERNELS = [("line", Linear()), ("square", Polynomial()), ("bell", Gaussian("median"))]
NAMES = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def data():
    return make_classification(80, 4, flip_y=0.15, random_state=0)


@pytest.fixture(scope="module")
def stack(data):
    X, _ = data
    return [Precomputed(X @ X.T), Precomputed((X @ X.T + 1) ** 2)]


# Row numbers --------------------------------------------------------------------------------------


def test_a_stack_of_matrices_equals_its_kernels(data, stack):
    X, y = data
    rows = np.arange(80)
    ours = MKLClassifier(stack, tol=1e-8).fit(rows[:60], y[:60])
    theirs = MKLClassifier([Linear(), Polynomial()], tol=1e-8).fit(X[:60], y[:60])
    np.testing.assert_allclose(ours.weights_, theirs.weights_, atol=1e-5)
    np.testing.assert_allclose(
        ours.decision_function(rows[60:]), theirs.decision_function(X[60:]), atol=1e-3
    )


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_cross_validation_of_a_stack_needs_no_special_code(data, stack, shape):
    X, y = data
    rows = np.arange(80).reshape(shape)
    folds = StratifiedKFold(4)
    scores = cross_val_score(
        MKLClassifier(stack, weights=[1.0, 0.0], normalize=None), rows, y, cv=folds
    )
    expected = cross_val_score(SVC(kernel="linear"), X, y, cv=folds)
    np.testing.assert_allclose(
        scores, expected, atol=0.051
    )  # one of twenty may lie on the boundary
    assert expected.mean() > 0.6


def test_search_and_pipeline_over_a_stack(data, stack):
    _, y = data
    rows = np.arange(80).reshape(-1, 1)
    pipeline = make_pipeline(FunctionTransformer(), MKLClassifier(stack, weights="uniform"))
    search = GridSearchCV(pipeline, {"mklclassifier__C": [1e-3, 1.0]}, cv=3).fit(rows, y)
    assert search.best_params_ == {"mklclassifier__C": 1.0}
    assert search.predict([[0], [79]]).shape == (2,)
    replaced = GridSearchCV(
        MKLClassifier([("K", stack[0])], weights="uniform"),
        {"kernels__K": [stack[0], Precomputed(np.eye(80))]},
        cv=3,
    ).fit(rows, y)
    assert replaced.best_params_["kernels__K"] is stack[0]


@pytest.mark.parametrize(
    "form", [list, np.asarray, pd.Series, pl.Series, lambda r: np.asarray(r)[:, None].astype(float)]
)
def test_row_numbers_in_any_container(data, stack, form):
    _, y = data
    model = MKLClassifier(stack, weights="uniform").fit(form(range(80)), y)
    assert model.n_features_in_ == 1
    expected = (
        MKLClassifier(stack, weights="uniform").fit(np.arange(80), y).decision_function([3, 5])
    )
    np.testing.assert_allclose(model.decision_function(form(range(80)))[[3, 5]], expected)


# Frames -------------------------------------------------------------------------------------------


def frames(X):
    return {"pandas": pd.DataFrame(X, columns=NAMES), "polars": pl.DataFrame(X, schema=NAMES)}


COLUMNS = {
    "names": ["a", "c"],
    "mask": [True, False, True, False],
    "numbers": [0, 2],
    "step": slice(0, 3, 2),
    "callable": lambda frame: [name for name in frame.columns if name in "ac"],
}


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
def test_columns_are_chosen_as_in_a_column_transformer(data, library, columns):
    X, y = data
    frame = frames(X)[library]
    model = MKLClassifier(
        [("some", Gaussian("median"), columns), ("all", Linear())], weights="uniform"
    ).fit(frame, y)
    expected = (
        MKLClassifier([Gaussian("median")], weights="uniform")
        .fit(X[:, [0, 2]], y)
        .kernel_matrix(X[:, [0, 2]])
    )
    linear = X @ X.T / np.square(X).sum(axis=1).mean()
    np.testing.assert_allclose(
        model.kernel_matrix(frame), 0.5 * expected + 0.5 * linear, atol=1e-10
    )
    assert model.feature_names_in_.tolist() == NAMES


def test_a_slice_of_names_ends_with_its_last_name(data):
    X, y = data
    by_name = MKLClassifier([("x", Linear(), slice("b", "c"))], weights="uniform").fit(
        frames(X)["pandas"], y
    )
    np.testing.assert_allclose(
        by_name.decision_function(frames(X)["pandas"]),
        MKLClassifier([Linear()], weights="uniform").fit(X[:, 1:3], y).decision_function(X[:, 1:3]),
    )


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_other_columns_at_predict_are_refused_as_scikit_learn_does(data, library):
    X, y = data
    frame = frames(X)[library]
    model = MKLClassifier([("some", Linear(), ["a"])], weights="uniform").fit(frame, y)
    with pytest.raises(ValueError, match="same order"):
        model.predict(frame[["b", "a", "c", "d"]])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["a", "b", "c"]])
    with pytest.warns(UserWarning, match="valid feature names"):
        model.predict(X)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_strings_beside_numbers(library):
    rng = np.random.RandomState(0)
    words = ["".join(rng.choice(list("ACGT"), 12)) for _ in range(40)]
    table = {"word": words, "size": rng.normal(size=40), "age": rng.normal(size=40)}
    frame = pd.DataFrame(table) if library == "pandas" else pl.DataFrame(table)
    y = np.array([word.count("AC") > 0 for word in words])
    kernels = [("text", Spectrum(2), ["word"]), ("numbers", Linear(), ["size", "age"])]
    model = MKLClassifier(kernels, weights=[0.25, 0.75]).fit(frame, y)
    numbers = np.column_stack([table["size"], table["age"]])
    text = Spectrum(2)(words)
    expected = (
        0.25 * text / np.diag(text).mean()
        + 0.75 * numbers @ numbers.T / np.square(numbers).sum(axis=1).mean()
    )
    np.testing.assert_allclose(model.kernel_matrix(frame), expected, atol=1e-9)
    assert model.score(frame, y) > 0.6
    assert MKLClassifier(kernels).fit(frame, y).weights_.shape == (2,)


def test_columns_that_no_kernel_reads_may_hold_anything(data):
    X, y = data
    frame = frames(X)["pandas"].assign(note="text", gap=np.nan)
    numbers = make_column_selector(pattern="^[abcd]$")
    model = MKLClassifier([("numbers", Linear(), numbers)], weights="uniform").fit(frame, y)
    plain = MKLClassifier([Linear()], weights="uniform").fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(frame), plain.decision_function(X), rtol=1e-6, atol=1e-9
    )
    with pytest.raises(ValueError, match=r"kernel 'gap'.*NaN"):
        MKLClassifier([("gap", Linear(), ["gap"])]).fit(frame, y)
    by_type = MKLClassifier(
        [
            ("text", Spectrum(1), ["note"]),
            ("x", Linear(), make_column_selector(dtype_include=float)),
        ]
    )
    with pytest.raises(ValueError, match=r"kernel 'x'.*NaN"):
        by_type.fit(frame, y)


# Numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "normalize", "form"),
    # Every form becomes the same rows before they are normalised; centring is refused of one class.
    [
        (MKLClassifier, "trace", sparse.csr_matrix),
        (MKLClassifier, "diagonal", sparse.csr_array),
        (MKLClassifier, "centered", sparse.coo_matrix),
        (MKLRegressor, "trace", sparse.csr_array),
        (MKLRegressor, "diagonal", sparse.coo_matrix),
        (MKLRegressor, "centered", sparse.csr_matrix),
        (MKLOneClass, "trace", sparse.coo_matrix),
        (MKLOneClass, "diagonal", sparse.csr_matrix),
    ],
)
def test_sparse_equals_dense(estimator, normalize, form):
    rng = np.random.RandomState(0)
    X = np.where(rng.uniform(size=(50, 6)) < 0.4, rng.normal(size=(50, 6)), 0.0)
    y = (X[:, 0] + 0.3 * rng.normal(size=50) > 0).astype(int)
    kernels = [*KERNELS, ("part", Linear(), [1, 3])]
    dense = estimator(kernels, weights="uniform", normalize=normalize, tol=1e-9).fit(X, y)
    scarce = estimator(kernels, weights="uniform", normalize=normalize, tol=1e-9).fit(form(X), y)
    np.testing.assert_allclose(scarce.kernel_matrix(form(X)), dense.kernel_matrix(X), atol=1e-9)
    np.testing.assert_allclose(
        scarce.contributions(form(X)), dense.contributions(X), rtol=1e-4, atol=1e-5
    )


def test_single_precision_is_close_to_double(data):
    X, y = data
    model = MKLClassifier(KERNELS, weights="uniform").fit(X.astype(np.float32), y)
    expected = MKLClassifier(KERNELS, weights="uniform").fit(X, y)
    assert model.duality_gap_ <= model.tol
    np.testing.assert_allclose(model.decision_function(X), expected.decision_function(X), atol=0.05)
    assert model.decision_function(X.astype(np.float32)).dtype == np.float64


def test_whole_numbers_are_numbers():
    X = np.array([[0, 1], [2, 3], [5, 4], [7, 6]])
    assert MKLClassifier([Linear()]).fit(X, [0, 0, 1, 1]).predict(X).tolist() == [0, 0, 1, 1]


# Many kernels in one line -------------------------------------------------------------------------


def test_a_kernel_a_column(data):
    X, y = data
    model = MKLClassifier(
        [("line", per_column(Linear())), Gaussian("median")], weights="uniform", normalize=None
    )
    model.fit(X, y)
    assert model.kernel_names_ == ["line[0]", "line[1]", "line[2]", "line[3]", "gaussian"]
    named = MKLClassifier(
        [("line", per_column(Linear()), ["b", "d"])], weights="uniform", normalize=None
    )
    named.fit(frames(X)["pandas"], y)
    assert named.kernel_names_ == ["line[b]", "line[d]"]
    np.testing.assert_allclose(
        named.kernel_matrix(frames(X)["pandas"]), 0.5 * X[:, [1, 3]] @ X[:, [1, 3]].T
    )
    only = MKLClassifier(per_column(Linear())).fit(X, y)
    assert only.weights_.shape == (4,)


def test_a_family_of_widths(data):
    X, y = data
    model = MKLClassifier(family(Gaussian(), width=[0.1, 1, 10])).fit(X, y)
    assert model.kernel_names_ == ["gaussian(width=0.1)", "gaussian(width=1)", "gaussian(width=10)"]
    assert model.weights_.sum() == pytest.approx(1.0)


def test_text_for_targets_of_a_regressor():
    with pytest.raises(
        ValueError, match=r"y holds text \('b'\) where one number per sample is needed"
    ):
        MKLRegressor().fit(np.eye(3), [1.0, "b", "c"])


# Rules of a fit, by which new samples are read ----------------------------------------------------


def patients():
    rng = np.random.RandomState(0)
    clinic = pd.DataFrame(
        {"age": rng.randint(20, 80, 40).astype(float), "sex": rng.choice(["f", "m"], 40)}
    )
    expression = pd.DataFrame(rng.standard_normal((40, 3)), columns=["g1", "g2", "g3"])
    kernels = [
        ("clinic", Clinical(), ["clinic__age", "clinic__sex"]),
        ("genes", Linear(), make_genes),
    ]
    return {"clinic": clinic, "genes": expression}, expression["g1"].to_numpy(), kernels


def make_genes(table):
    return [name for name in table.columns if name.startswith("genes__")]


def test_reading_samples_changes_no_estimator():
    tables, y, kernels = patients()
    model = MKLRidgeCV(kernels)
    before = dict(vars(model))
    training_set, rules = read_samples(tables, y, None, NUMBERS, model)
    assert vars(model) == before
    assert training_set.X.shape == (40, 5)
    assert training_set.views == {"clinic": [0, 1], "genes": [2, 3, 4]}
    assert rules.n_columns == 5
    assert list(rules.column_names) == [
        "clinic__age",
        "clinic__sex",
        "genes__g1",
        "genes__g2",
        "genes__g3",
    ]
    assert rules.columns_of_tables["genes"] == ["genes__g1", "genes__g2", "genes__g3"]
    assert {column: sorted(categories) for column, categories in rules.categories.items()} == {
        1: ["f", "m"]
    }
    assert rules.standardizer is None
    with pytest.raises(FrozenInstanceError):
        rules.n_columns = 3


def test_new_samples_are_read_by_the_rules_alone():
    tables, y, kernels = patients()
    fitted = MKLRidgeCV(kernels).fit(tables, y)
    rules = fitted._input_rules
    expected = fitted.read(tables)
    # Another estimator with the same columns, and with parameters that say something else.
    other = MKLRidgeCV([Spectrum(2)], missing=None)
    other.n_features_in_, other.feature_names_in_ = fitted.n_features_in_, fitted.feature_names_in_
    table = read_new_samples(tables, rules, other)
    np.testing.assert_array_equal(table, expected)
    strange = {**tables, "clinic": tables["clinic"].assign(sex="x")}
    with pytest.warns(
        UserWarning, match="column 'clinic__sex' holds 'x', which is not in the training set"
    ):
        read_new_samples(strange, rules, other)


def test_a_model_file_keeps_the_rules(tmp_path):
    pytest.importorskip("skops")
    tables, y, kernels = patients()
    kernels[1] = ("genes", Linear(), ["genes__g1", "genes__g2", "genes__g3"])
    model = MKLRidgeCV(kernels).fit(tables, y)
    save(model, tmp_path / "model.skops")
    copy = load(tmp_path / "model.skops")
    for field in fields(model._input_rules):
        value, loaded = (
            getattr(model._input_rules, field.name),
            getattr(copy._input_rules, field.name),
        )
        if field.name == "standardizer":
            np.testing.assert_array_equal(loaded.columns, value.columns)
        else:
            np.testing.assert_array_equal(loaded, value)
            assert type(loaded) is type(value)
    np.testing.assert_array_equal(copy.predict(tables), model.predict(tables))


def test_rules_follow_the_last_fit(data):
    X, y = data
    model = MKLClassifier([Linear()])
    _, rules = read_samples(X, y, None, CLASSES, model)
    assert rules.column_names is None
    named = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    model.fit(named, y)
    assert list(model.feature_names_in_) == list(named.columns)
    model.fit(X[:, :2], y)
    assert model.n_features_in_ == 2
    assert not hasattr(model, "feature_names_in_")
    with pytest.raises(
        ValueError, match="X has 4 features, but MKLClassifier is expecting 2 features as input"
    ):
        model.predict(X[:, :4])


def test_samples_held_out_are_read_by_the_others(data):
    X, _ = data
    table, held_out = MKLClassifier([Linear()]).read_parts(X[:30], X[30:].tolist())
    np.testing.assert_array_equal(table, X[:30])
    np.testing.assert_array_equal(held_out, X[30:])
    with pytest.raises(ValueError, match="features as input"):
        MKLClassifier([Linear()]).read_parts(X[:30], X[30:, :1])
