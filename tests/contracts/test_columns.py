"""Every kind of column, in every library of data frames, is read by every estimator as the same in
plain types.

The reference is a frame of pandas with floats and text alone, which NumPy reads without any
conversion of types.
"""

from __future__ import annotations

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from tests.sweeps import thinned

import kernelmosaic
from kernelmosaic.imputing import ViewImputer
from kernelmosaic.kernels import Categorical, Clinical, Gaussian, Linear

N = 40
RNG = np.random.RandomState(0)
NUMBER = RNG.normal(size=N)
WARD = RNG.randint(0, 4, N)
SMOKES = RNG.uniform(size=N) < 0.5
Y = (NUMBER + (WARD == 1) > 0.3).astype(int)
TIMES = np.column_stack([Y, np.exp(NUMBER)])
#: Two columns: a number that the target depends on, and the kind that is tested.
PLAIN = {
    "whole numbers": WARD.astype(float),
    "truth values": SMOKES.astype(float),
    "text": np.array([f"w{ward}" for ward in WARD], dtype=object),
    "categories of text": np.array([f"w{ward}" for ward in WARD], dtype=object),
    "categories of whole numbers": np.array([f"w{ward}" for ward in WARD], dtype=object),
    "categories of decimals": np.array([f"w{ward}" for ward in WARD], dtype=object),
    "decimals": WARD + 0.25,
}
PANDAS = {
    "whole numbers": pd.Series(WARD),
    "truth values": pd.Series(SMOKES),
    "text": pd.Series([f"w{ward}" for ward in WARD]),
    "categories of text": pd.Series(pd.Categorical([f"w{ward}" for ward in WARD])),
    "categories of whole numbers": pd.Series(pd.Categorical(WARD)),
    "categories of decimals": pd.Series(pd.Categorical(WARD / 2.0)),
    "decimals": pd.Series([Decimal(int(ward)) + Decimal("0.25") for ward in WARD], dtype=object),
}
POLARS = {
    "whole numbers": pl.Series(WARD),
    "truth values": pl.Series(SMOKES),
    "text": pl.Series([f"w{ward}" for ward in WARD]),
    "categories of text": pl.Series([f"w{ward}" for ward in WARD], dtype=pl.Categorical),
    "decimals": pl.Series(
        [Decimal(int(ward)) + Decimal("0.25") for ward in WARD], dtype=pl.Decimal(10, 2)
    ),
}


def of_arrow(column):
    """A column of pandas with the types of Arrow; its categories stay those of pandas, with labels
    on Arrow."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        labels = pd.Series(column.cat.categories).convert_dtypes(dtype_backend="pyarrow")
        return pd.Series(pd.Categorical.from_codes(column.cat.codes, pd.Index(labels)))
    return column.convert_dtypes(dtype_backend="pyarrow")


ARROW = {kind: of_arrow(column) for kind, column in PANDAS.items() if kind != "decimals"}
ARROW["decimals"] = PANDAS["decimals"].astype(
    pd.ArrowDtype(pytest.importorskip("pyarrow").decimal128(10, 2))
)
ARROW["dictionary of text"] = PANDAS["text"].astype(
    pd.ArrowDtype(pytest.importorskip("pyarrow").dictionary("int32", "string"))
)
NULLABLE = {
    "whole numbers": PANDAS["whole numbers"].astype("Int64"),
    "truth values": PANDAS["truth values"].astype("boolean"),
    "text": PANDAS["text"].astype("string"),
    "decimals": pd.Series(WARD + 0.25).astype("Float64"),
}
SPARSE = {"whole numbers": pd.Series(pd.arrays.SparseArray(WARD.astype(float), fill_value=0.0))}
PLAIN["dictionary of text"] = PLAIN["text"]

#: Column, by library and kind.
COLUMNS = {
    (library, kind): column
    for library, columns in {
        "pandas": PANDAS,
        "nullable": NULLABLE,
        "arrow": ARROW,
        "sparse": SPARSE,
        "polars": POLARS,
    }.items()
    for kind, column in columns.items()
}

#: What has no order in time, by library.
TIMES_OF = {
    "dates": pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(WARD, "D")),
    "dates with a zone": pd.Series(
        pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(WARD, "D")
    ),
    "dates of Python": pd.Series(
        [datetime.date(2024, 1, 1 + int(ward)) for ward in WARD], dtype=object
    ),
    "dates of Arrow": pd.Series(
        [datetime.date(2024, 1, 1 + int(ward)) for ward in WARD], dtype="date32[pyarrow]"
    ),
    "time spans": pd.Series(pd.to_timedelta(WARD, "D")),
    "periods": pd.Series(pd.period_range("2020-01", periods=N, freq="M")),
    "intervals": pd.Series(pd.arrays.IntervalArray.from_arrays(WARD, WARD + 1)),
    "dates of Polars": pl.Series([datetime.date(2024, 1, 1 + int(ward)) for ward in WARD]),
    "time spans of Polars": pl.Series([datetime.timedelta(days=int(ward)) for ward in WARD]),
}

TUNED = {"Cs": [1.0], "norms": [1], "cv": 2}
OPTIONS = {
    "MKLClassifierCV": TUNED,
    "MKLRegressorCV": TUNED,
    "MKLSurvivalCV": TUNED,
    "MKLClustering": {"n_clusters": 2, "random_state": 0},
    "BayesianMKLClassifier": {"tol": 1e-3},
}
#: Gates are functions of columns that are named, of numbers.
ESTIMATORS = [name for name in sorted(kernelmosaic.estimators.__all__) if "Localized" not in name]
# Posteriors are estimated from columns of numbers.
ESTIMATORS.remove("PosteriorMKLClassifier")


def table(library, kind):
    """A table of a number and a column."""
    return joined(COLUMNS[library, kind])


def joined(column):
    if isinstance(column, pl.Series):
        return pl.DataFrame({"number": NUMBER, "tested": column})
    return pd.DataFrame({"number": NUMBER, "tested": column})


def plain(kind):
    return pd.DataFrame({"number": NUMBER, "tested": PLAIN[kind]})


def fitted(name, X, kernels=None):
    model = getattr(kernelmosaic, name)(kernels=kernels, **OPTIONS.get(name, {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "OneClass" in name:
            return model.fit(X)
        return model.fit(X, TIMES if "Survival" in name else Y)


def outputs(model, X):
    """What a model says of samples, as numbers."""
    if hasattr(model, "labels_"):
        return model.kernel_matrix(X)
    if hasattr(model, "chosen_criterion_"):
        # Constants of classes are calibrated on folds, which are dealt by the entries of a table as
        # they are.
        outputs = (
            model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)
        )
        return np.asarray(outputs, dtype=float) - model.intercept_
    for method in ("decision_function", "predict", "transform"):
        if hasattr(model, method):
            return np.asarray(getattr(model, method)(X), dtype=float)
    raise AssertionError(model)


@pytest.mark.parametrize(("library", "kind"), COLUMNS)
def test_a_column_is_read_as_in_plain_types(library, kind):
    reference, model = (
        fitted("MKLClassifier", plain(kind)),
        fitted("MKLClassifier", table(library, kind)),
    )
    assert model.feature_names_in_.tolist() == ["number", "tested"]
    assert len(model.kernel_names_) == len(reference.kernel_names_)
    expected = outputs(reference, plain(kind))
    np.testing.assert_allclose(
        outputs(model, table(library, kind)), expected, atol=1e-6 * np.abs(expected).max()
    )


#: Columns of every library become the same numbers before an estimator reads them: one has all
#: libraries, and the others have them in turn.
LIBRARIES = ("pandas", "arrow", "polars")
TABLES = [(name, library) for name in ESTIMATORS for library in LIBRARIES]
IN_TURN = [
    (name, library)
    for place, name in enumerate(ESTIMATORS)
    for library in LIBRARIES
    if name == "MKLClassifier" or library == LIBRARIES[place % 3]
]


@pytest.mark.parametrize(("name", "library"), thinned(TABLES, IN_TURN))
def test_a_table_of_all_kinds_is_read_by_every_estimator(name, library):
    kinds = ["whole numbers", "truth values", "categories of text", "text"]
    columns = {"number": NUMBER} | {kind: COLUMNS[library, kind] for kind in kinds}
    X = pl.DataFrame(columns) if library == "polars" else pd.DataFrame(columns)
    same = pd.DataFrame({"number": NUMBER} | {kind: PLAIN[kind] for kind in kinds})
    reference, model = fitted(name, same), fitted(name, X)
    expected = outputs(reference, same)
    np.testing.assert_allclose(outputs(model, X), expected, atol=1e-6 * np.abs(expected).max())
    # A model that was fitted to one library reads the other.
    np.testing.assert_allclose(outputs(reference, X), expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("name", "kind"),
    [("MKLClassifier", kind) for kind in TIMES_OF] + [(name, "dates") for name in ESTIMATORS],
)
def test_dates_and_the_like_are_refused_by_the_name_of_their_column(name, kind):
    what = kind.partition(" of ")[0].partition(" with ")[0]
    with pytest.raises(
        ValueError, match=rf"column 'tested' holds {what} where numbers are needed: give "
    ):
        fitted(name, joined(TIMES_OF[kind]))
    # Beside kernels that do not read the column it does no harm, and none to new samples.
    model = fitted(name, joined(TIMES_OF[kind]), [("line", Linear(), ["number"])])
    assert np.isfinite(outputs(model, joined(TIMES_OF[kind]))).all()


def test_dates_alone_are_no_numbers_and_an_empty_one_is_none():
    days = pd.DataFrame({"seen": TIMES_OF["dates"].where(np.arange(N) != 3)})
    for X, column in ((days, "'seen'"), (days[:3], "'seen'"), (days.to_numpy(), "0")):
        with pytest.raises(ValueError, match=f"column {column} holds dates"):
            kernelmosaic.MKLClassifier().fit(X, Y[: len(X)])
    numbers = pd.DataFrame({"seen": NUMBER})
    model = kernelmosaic.MKLClassifier().fit(numbers, Y)
    with pytest.raises(ValueError, match="column 'seen' holds dates"):
        model.predict(days)


def test_categories_of_intervals_and_dates_are_categories_by_their_names():
    for column in (pd.cut(pd.Series(NUMBER), 4), TIMES_OF["dates"].astype("category")):
        names = np.array(list(map(str, column)), dtype=object)
        model = fitted("MKLClassifier", joined(column))
        assert any("categorical" in name for name in model.kernel_names_)
        reference = fitted("MKLClassifier", joined(names))
        np.testing.assert_allclose(
            outputs(model, joined(column)), outputs(reference, joined(names)), rtol=1e-6
        )


def test_kernels_that_are_given_numbers_read_categories_as_numbers():
    X = table("pandas", "categories of whole numbers")
    model = fitted("MKLClassifier", X, [("bell", Gaussian(), ["number", "tested"])])
    same = np.column_stack([NUMBER, WARD])
    reference = fitted("MKLClassifier", same, [("bell", Gaussian(), [0, 1])])
    np.testing.assert_array_equal(outputs(model, X), outputs(reference, same))


def test_the_clinical_kernel_takes_categories_of_whole_numbers_for_nominal():
    X = table("pandas", "categories of whole numbers")
    model = fitted("MKLClassifier", X, [("clinic", 2.0 * Clinical(), ["tested", "number"])])
    kinds = [("clinic", Clinical(["nominal", "continuous"]), ["tested", "number"])]
    reference = fitted("MKLClassifier", plain("categories of whole numbers"), kinds)
    np.testing.assert_allclose(
        outputs(model, X), outputs(reference, plain("categories of whole numbers")), atol=1e-6
    )
    # An order that is given holds, and so do numbers without the type.
    ordered = fitted("MKLClassifier", X, [("clinic", Clinical("ordinal"), ["tested", "number"])])
    numbers = fitted(
        "MKLClassifier",
        table("pandas", "whole numbers"),
        [("clinic", Clinical(), ["tested", "number"])],
    )
    np.testing.assert_array_equal(
        outputs(ordered, X), outputs(numbers, table("pandas", "whole numbers"))
    )


@pytest.mark.parametrize(
    ("library", "kind"), [one for one in COLUMNS if one[0] != "sparse" and "dict" not in one[1]]
)
def test_empty_cells_are_found_and_filled(library, kind):
    X = table(library, kind)
    gap = np.arange(N) == 7
    if library == "polars":
        whole, X = (
            X,
            X.with_columns(pl.when(pl.Series(~gap)).then(pl.col("tested")).alias("tested")),
        )
    else:
        whole, X = X, X.assign(tested=X["tested"].where(~gap))
    # The column is a view of its own for categories, and a part of one for numbers.
    if kind in ("whole numbers", "truth values"):
        with pytest.raises(ValueError, match=r"X contains NaN: fill empty cells.*ViewImputer"):
            fitted("MKLClassifier", X)
    filled = ViewImputer().fit_transform(X)
    assert type(filled) is type(X)
    values = plain(kind)["tested"][~gap]
    is_number = kind in ("whole numbers", "decimals")
    expected = values.median() if is_number else values.mode()[0]
    cells = filled["tested"].to_list()
    assert not any(map(pd.isna, cells))
    same_kind = {"truth values": bool, "whole numbers": float, "decimals": float}.get(kind, str)
    written = str(cells[7]) if same_kind is str else same_kind(cells[7])
    if kind == "categories of whole numbers":
        written = f"w{int(float(written))}"
    elif kind == "categories of decimals":
        written = f"w{int(2 * float(written))}"
    assert written == same_kind(expected)
    # All other cells are as they were.
    others = [one for i, one in enumerate(whole["tested"].to_list()) if i != 7]
    assert [one for i, one in enumerate(cells) if i != 7] == others
    assert np.isfinite(outputs(fitted("MKLClassifier", filled), filled)).all()


@pytest.mark.parametrize(
    "kernel", [Categorical(), Clinical("nominal"), 2.0 * Categorical()], ids=repr
)
@pytest.mark.parametrize(
    ("codes", "new", "hint"),
    [
        (["a", "b"], "z", ""),
        ([1, 2], 7, ""),
        ([1.5, 2.5], 7.0, ""),
        (["1", "2"], 1, "'1'"),
        ([1, 2], "1", "holds 1"),
    ],
    ids=str,
)
def test_a_category_that_the_training_set_lacks_is_warned_of(kernel, codes, new, hint):
    X = pd.DataFrame({"stage": np.array(codes)[WARD % 2]})
    model = fitted("MKLClassifier", X, [("stage", kernel, ["stage"])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X)
    with pytest.warns(
        UserWarning,
        match=rf"column 'stage' holds {new!r}, which is not in the training set.*{hint}",
    ):
        model.predict(pd.DataFrame({"stage": [new] * 2}))


def test_new_numbers_are_no_unseen_categories():
    X = pd.DataFrame({"age": NUMBER, "ward": WARD})
    model = fitted(
        "MKLClassifier", X, [("clinic", Clinical(["continuous", "nominal"]), ["age", "ward"])]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X.assign(age=X["age"] + 0.001))


def test_text_in_columns_of_an_array_that_no_kernel_reads_does_no_harm():
    X = pd.DataFrame({"number": NUMBER, "note": [f"w{ward}" for ward in WARD]}).to_numpy()
    model = fitted("MKLClassifier", X, [("line", Linear(), [0])])
    reference = fitted("MKLClassifier", NUMBER[:, np.newaxis], [("line", Linear(), [0])])
    np.testing.assert_array_equal(outputs(model, X), outputs(reference, NUMBER[:, np.newaxis]))
