"""Several tables by name, frames of numbers and text, and errors that name what to write
instead."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_score,
    cross_validate,
    train_test_split,
)
from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelmosaic import (
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressorCV,
    MKLRidgeClassifierCV,
    inspection,
    load,
    save,
    stack_views,
)
from kernelmosaic.imputing import ViewImputer
from kernelmosaic.kernels import (
    Categorical,
    Gaussian,
    Linear,
    Precomputed,
    WeisfeilerLehman,
    by_group,
)
from kernelmosaic.kernels.views import default_kernels
from kernelmosaic.model_selection import PathSearchCV

rng = np.random.default_rng(0)
RNA, PROTEIN = rng.normal(size=(60, 5)), rng.normal(size=(60, 3))
Y = (RNA[:, 0] + PROTEIN[:, 1] > 0).astype(int)
TABLES = {"rna": RNA, "protein": PROTEIN}
X, VIEWS = stack_views(TABLES)
ROWS = [f"sample{i}" for i in range(60)]
FRAMES = {name: pd.DataFrame(table, index=ROWS).add_prefix("x") for name, table in TABLES.items()}


EACH = (
    MKLClassifier([Gaussian()]),
    MKLClassifier([(f"{n}, gaussian", Gaussian(), VIEWS[n]) for n in VIEWS]),
)


@pytest.mark.parametrize(
    ("model", "reference", "tables"),
    [
        (MKLClassifier(), MKLClassifier(by_group(VIEWS, default_kernels())), FRAMES),
        (*EACH, TABLES),
        (*EACH, FRAMES),
        (*EACH, stack_views(TABLES)),
        (
            MKLClassifier(
                [("protein", Linear()), ("wide", Gaussian(), "rna")], calibration="sigmoid"
            ),
            MKLClassifier(
                [("protein", Linear(), VIEWS["protein"]), ("wide", Gaussian(), VIEWS["rna"])],
                calibration="sigmoid",
            ),
            TABLES,
        ),
    ],
    ids=["default-frames", "each-arrays", "each-frames", "each-stacked", "named-arrays"],
)
def test_tables_by_name_are_kernels_on_their_columns(model, reference, tables):
    model.fit(tables, Y)
    reference.fit(X, Y)
    ours, theirs = (getattr(one, "best_estimator_", one) for one in (model, reference))
    assert ours.kernel_names_ == theirs.kernel_names_
    np.testing.assert_array_equal(ours.weights_, theirs.weights_)
    np.testing.assert_array_equal(model.decision_function(tables), reference.decision_function(X))


def test_searches_take_tables():
    laid = [(f"{name}, linear", Linear(), own) for name, own in VIEWS.items()]
    kinds = [
        lambda kernels: MKLClassifierCV(kernels, Cs=2, cv=2, norms=[1]),
        lambda kernels: PathSearchCV(MKLClassifier(kernels), Cs=2, cv=2),
    ]
    for make in kinds:
        model, reference = make([Linear()]).fit(TABLES, Y), make(laid).fit(X, Y)
        np.testing.assert_array_equal(
            model.decision_function(TABLES), reference.decision_function(X)
        )


def test_functions_of_scikit_learn_take_stacked_tables_with_missing_views():
    rna, protein = FRAMES["rna"][:50], FRAMES["protein"][10:]
    stacked, target = stack_views({"rna": rna, "protein": protein}), pd.Series(Y, index=ROWS)
    # By hand: dicts of the rows of each part, in which a table lacks what it does not have.
    whole, expected = (
        {name: table.reindex(ROWS) for name, table in (("rna", rna), ("protein", protein))},
        [],
    )
    for train, test in KFold(2).split(ROWS):
        inside, outside = (
            {name: table.iloc[rows] for name, table in whole.items()} for rows in (train, test)
        )
        model = MKLRidgeClassifierCV().fit(inside, Y[train])
        expected.append(model.score(outside, Y[test]))
        assert len(model.kernel_names_) == 18
    found = cross_val_score(
        MKLRidgeClassifierCV(), stacked, target, cv=KFold(2), error_score="raise"
    )
    np.testing.assert_array_equal(found, expected)
    search = GridSearchCV(
        MKLClassifier([Linear()]), {"C": [0.1, 10.0]}, cv=2, error_score="raise"
    ).fit(stacked, target)
    assert set(search.best_estimator_.view_weights_) == {"rna", "protein"}
    assert search.predict(stacked).shape == (60,)
    options = {"cv": 2, "error_score": "raise", "return_estimator": True}
    assert (
        len(cross_validate(MKLClassifier([Linear()]), stacked, target, **options)["estimator"]) == 2
    )
    train, test, y_train, _ = train_test_split(stacked, target, random_state=0)
    assert (train.shape, test.shape) == ((45, 8), (15, 8))
    pd.testing.assert_frame_equal(test.X, stacked.X.loc[test.X.index])
    assert train.iloc[:2].X.index.tolist() == y_train.index[:2].tolist()


def test_a_list_of_tables_is_numbered():
    model = MKLClassifier([Gaussian()]).fit([RNA, PROTEIN], Y)
    assert list(model.view_weights_) == ["view0", "view1"]
    np.testing.assert_array_equal(model.predict([RNA, PROTEIN]), model.predict(X))


def test_a_table_that_is_not_given_is_missing_in_every_row(tmp_path):
    model = MKLClassifier([Gaussian()]).fit(FRAMES, Y)
    save(model, tmp_path / "model.skops")
    lacking = X.copy()
    lacking[:, VIEWS["protein"]] = np.nan
    new = pd.DataFrame(lacking, columns=model.feature_names_in_)
    expected = model.decision_function(new)
    assert not np.array_equal(expected, model.decision_function(FRAMES))
    for one in (model, load(tmp_path / "model.skops")):
        np.testing.assert_array_equal(one.decision_function({"rna": FRAMES["rna"]}), expected)


@pytest.mark.parametrize(
    "model",
    [
        MKLRidgeClassifierCV(n_init=1),
        DiscriminantMKLClassifier(),
        LocalizedMKLClassifier([Linear()], n_init=1, tol=0.1),
    ],
    ids=repr,
)
def test_every_estimator_takes_tables(model):
    assert {name.partition(", ")[0] for name in model.fit(TABLES, Y).kernel_names_} == set(TABLES)
    assert model.score(TABLES, Y) > 0.8


def test_estimators_without_classes_take_tables():
    assert set(MKLOneClass().fit(TABLES).view_weights_) == set(TABLES)
    model = MKLRegressorCV([Linear()], Cs=3, cv=3).fit(TABLES, RNA[:, 0] + PROTEIN[:, 0])
    np.testing.assert_array_equal(model.predict_interval(TABLES), model.predict_interval(X))


def test_lists_of_matrices_are_no_tables_where_graphs_are_read():
    with pytest.raises((TypeError, ValueError), match="a graph is a tuple"):
        MKLClassifier([WeisfeilerLehman()]).fit([np.ones((3, 3))] * 10, [0, 1] * 5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: MKLClassifier().fit({"a": RNA, "b": PROTEIN[:9]}, Y), "a has 60, b has 9"),
        (
            lambda: MKLClassifier().fit({**FRAMES, "rna": FRAMES["rna"][::-1]}, Y),
            "stack_views(X) joins tables",
        ),
        (lambda: MKLClassifier().fit([RNA @ RNA.T, PROTEIN @ PROTEIN.T], Y), "Precomputed(K)"),
        (
            lambda: MKLClassifier([RNA @ RNA.T]).fit(X, Y),
            "kernels[0]=an array of shape (60, 60): a Gram matrix is given",
        ),
        (lambda: MKLClassifier([("k", RNA @ RNA.T)]).fit(X, Y), "Precomputed(K)"),
        (lambda: MKLClassifier(RNA @ RNA.T).fit(X, Y), "Precomputed(K)"),
        (lambda: MKLClassifier(["rbf"]).fit(X, Y), "write Gaussian()"),
        (lambda: MKLClassifier(rbf_kernel).fit(X, Y), "write Gaussian()"),
        (
            lambda: MKLClassifier([RBF(2.0)]).fit(X, Y),
            "write Gaussian(width=2.82843), the same kernel",
        ),
        (
            lambda: MKLClassifier([("a", DotProduct(2.0))]).fit(X, Y),
            "write Polynomial(degree=1, offset=4)",
        ),
        (lambda: MKLClassifier(RBF() * Matern()).fit(X, Y), "compute the matrix, K = kernel(X)"),
        (lambda: MKLClassifier([laplacian_kernel]).fit(X, Y), "write Laplacian()"),
        (lambda: MKLClassifier([("p", polynomial_kernel)]).fit(X, Y), "write Polynomial()"),
        (
            lambda: MKLClassifier().fit(X, np.eye(3, dtype=int)[Y]),
            "DiscriminantMKLClassifier takes a matrix",
        ),
        (
            lambda: MKLClassifierCV().fit(X, [["a"], ["a", "b"]] * 30),
            "MultiOutputClassifier(MKLClassifierCV())",
        ),
        (
            lambda: MKLClassifier().fit(X, Y).predict(TABLES),
            "the estimator was fitted to one table",
        ),
        (
            lambda: MKLClassifier().fit(TABLES, Y).predict({"dna": RNA}),
            "was fitted to 'rna', 'protein'",
        ),
        (lambda: inspection.kernel_importance(MKLClassifier(), TABLES, Y), "stack_views makes one"),
        (lambda: MKLClassifier().fit(X, Y).predict_proba, "give calibration='sigmoid'"),
    ],
)
def test_errors_name_what_to_write_instead(call, words):
    with pytest.raises((TypeError, ValueError, AttributeError)) as raised:
        call()
    assert words in str(raised.value)


def test_gram_matrices_by_name():
    kernels = [(name, Precomputed(table @ table.T)) for name, table in TABLES.items()]
    assert MKLClassifier(kernels).fit(np.arange(60), Y).kernel_names_ == ["rna", "protein"]


# Numbers beside text ------------------------------------------------------------------------------


def mixed():
    return pd.DataFrame(RNA, columns=list("abcde")).assign(
        sex=["f", "m"] * 30, site=pd.Categorical(["x", "y", "z"] * 20)
    )


@pytest.mark.parametrize("estimator", [MKLClassifier, MKLClassifierCV, MKLRidgeClassifierCV])
def test_columns_of_text_are_compared_as_categories(estimator):
    table = mixed()
    y = np.where(table["sex"] == "f", "yes", "no")
    given = {} if estimator is not MKLClassifierCV else {"Cs": [1.0], "norms": [1], "cv": 2}
    model = estimator(**given).fit(table, y)
    plain = estimator(**given)._kernels_of(None, None)
    kernels = [
        *by_group({"": list("abcde")}, plain),
        ("categorical", Categorical(), ["sex", "site"]),
    ]
    reference = estimator(
        [(name.removeprefix(", "), *rest) for name, *rest in kernels], **given
    ).fit(table, y)
    assert model.kernel_names_ == reference.kernel_names_
    np.testing.assert_array_equal(model.weights_, reference.weights_)
    assert model.weights_[-1] == max(model.weights_)
    assert model.score(table, y) == 1


def test_text_within_tables():
    model = MKLClassifier().fit({"clinic": mixed(), "protein": pd.DataFrame(PROTEIN)}, Y)
    assert "clinic, categorical" in model.kernel_names_
    assert not any(name.startswith("protein, cat") for name in model.kernel_names_)
    assert list(model.view_weights_) == ["clinic", "protein"]


# Cells and views that are missing -----------------------------------------------------------------


@parametrize_with_checks([ViewImputer(), ViewImputer(strategy="most_frequent")])
def test_the_imputer_is_a_transformer(estimator, check):
    check(estimator)


@pytest.mark.parametrize("as_frame", [False, True])
def test_cells_are_filled_and_absent_views_stay(as_frame):
    holes = X.copy()
    holes[:6, VIEWS["rna"]] = np.nan
    holes[10:20, 1] = np.nan
    table = pd.DataFrame(holes).add_prefix("x") if as_frame else holes
    views = {name: [f"x{c}" for c in own] if as_frame else own for name, own in VIEWS.items()}
    filled = np.asarray(ViewImputer(views).fit(table[:50]).transform(table))
    expected = np.where(np.isnan(holes), np.nanmedian(holes[:50], axis=0), holes)
    expected[:6, VIEWS["rna"]] = np.nan
    np.testing.assert_array_equal(filled, expected)
    model = MKLClassifier([(name, Gaussian(), own) for name, own in views.items()])
    with pytest.raises(ValueError, match="ViewImputer"):
        model.fit(table, Y)
    assert (
        model.fit(ViewImputer(views).fit_transform(table), Y).score(
            X if not as_frame else table.fillna(0), Y
        )
        > 0.7
    )


def test_an_array_that_is_not_given_is_missing_in_every_row():
    model = MKLClassifier([Gaussian()]).fit(TABLES, Y)
    lacking = X.copy()
    lacking[:, VIEWS["protein"]] = np.nan
    np.testing.assert_array_equal(
        model.decision_function({"rna": RNA}), model.decision_function(lacking)
    )


@pytest.mark.parametrize(
    "model", [MKLClassifier(), MKLRidgeClassifierCV()], ids=["machine", "ridge"]
)
def test_tables_of_other_widths_are_not_read_as_one_another_s_columns(model):
    wide, narrow = RNA, PROTEIN
    fitted = model.fit({"a": wide, "b": narrow}, Y)
    with pytest.raises(ValueError, match=r"table 'a' has 3 columns, and 5 in the training set"):
        fitted.predict({"a": narrow, "b": wide})
    with pytest.raises(ValueError, match=r"table 'b' has 4 columns, and 3 in the training set"):
        fitted.predict({"b": wide[:, 1:]})
    with pytest.raises(ValueError, match=r"table 'a' has 3 columns, and 5 in the training set"):
        fitted.predict(stack_views(a=narrow, b=wide))
    with pytest.raises(
        ValueError, match=r"X has the views 'b', 'a', and the training set 'a', 'b'; stack the same"
    ):
        fitted.predict(stack_views(b=narrow, a=wide))
    np.testing.assert_array_equal(
        fitted.predict(stack_views(a=wide, b=narrow)), fitted.predict({"a": wide, "b": narrow})
    )
    listed = model.fit([wide, narrow], Y)
    with pytest.raises(ValueError, match=r"table 'view0' has 3 columns, and 5 in the training set"):
        listed.predict([narrow, wide])
    # Frames name their columns, and arrays in their place must be as wide.
    frames = {"a": pd.DataFrame(wide).add_prefix("x"), "b": pd.DataFrame(narrow).add_prefix("x")}
    named = model.fit(frames, Y)
    with pytest.raises(ValueError, match="feature names should match"):
        named.predict({"a": frames["b"], "b": frames["a"]})
    with pytest.raises(ValueError, match=r"table 'a' has 3 columns, and 5 in the training set"):
        named.predict({"a": narrow, "b": wide})


def test_an_imputer_refuses_tables_of_other_widths():
    imputer = ViewImputer().fit({"a": RNA, "b": PROTEIN})
    with pytest.raises(ValueError, match=r"table 'a' has 3 columns, and 5 in the training set"):
        imputer.transform({"a": PROTEIN, "b": RNA})
