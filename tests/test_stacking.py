"""Views side by side: the table, its columns, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import MKLClassifier, stack_views
from kernelmosaic.kernels import Gaussian, Linear, Spectrum
from kernelmosaic.stacking import by_view

A = np.arange(6.0).reshape(3, 2)
B = np.array([[7.0], [8.0], [9.0]])


def test_arrays_stand_side_by_side():
    X, views = stack_views(fac=A, fou=B.astype(np.float32))
    np.testing.assert_array_equal(X, [[0, 1, 7], [2, 3, 8], [4, 5, 9]])
    assert views == {"fac": [0, 1], "fou": [2]}
    assert all(type(number) is int for numbers in views.values() for number in numbers)


def test_single_precision_stays_where_all_views_have_it():
    assert stack_views(a=A.astype(np.float32), b=B.astype(np.float32)).X.dtype == np.float32


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_one_sparse_view_makes_the_table_sparse(form):
    X, views = stack_views(dense=A, scarce=form(B))
    assert sparse.issparse(X)
    assert X.format == "csr"
    np.testing.assert_array_equal(X.toarray(), np.hstack([A, B]))
    assert views == {"dense": [0, 1], "scarce": [2]}


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_frames_name_their_columns_by_view(library):
    frame = library.DataFrame({"u": [1.0, 2.0, 3.0], "v": ["a", "b", "c"]})
    X, views = stack_views(fac=frame, fou=A, thin=sparse.csr_array(B))
    assert isinstance(X, library.DataFrame)
    assert list(X.columns) == ["fac__u", "fac__v", "fou__0", "fou__1", "thin__0"]
    assert views == {"fac": ["fac__u", "fac__v"], "fou": ["fou__0", "fou__1"], "thin": ["thin__0"]}
    np.testing.assert_array_equal(X[views["fou"]].to_numpy(), A)
    assert list(X["fac__v"]) == ["a", "b", "c"]
    assert X["fac__u"].dtype == frame["u"].dtype


def test_pandas_keeps_its_index():
    X, _ = stack_views(fac=pd.DataFrame(A, index=[5, 6, 7]), fou=B)
    assert X.index.tolist() == [5, 6, 7]
    assert X["fou__0"].tolist() == [7.0, 8.0, 9.0]


def test_numbers_beside_text_stay_numbers():
    words = np.array([["ab"], ["ba"], ["aa"]])
    X, views = stack_views(size=A, word=words)
    assert X[1].tolist() == [2.0, 3.0, "ba"]
    model = MKLClassifier(
        [("size", Linear(), views["size"]), ("word", Spectrum(1), views["word"])], weights="uniform"
    )
    expected = 0.5 * A @ A.T / np.square(A).sum(axis=1).mean() + 0.5 * Spectrum(1)(words) / (8 / 3)
    np.testing.assert_allclose(model.fit(X, [0, 1, 0]).kernel_matrix(X), expected)


def test_the_result_goes_where_one_table_goes():
    rng = np.random.RandomState(0)
    near, far = rng.normal(size=(60, 3)), rng.normal(size=(60, 2))
    y = near[:, 0] > 0
    X, views = stack_views(near=near, far=far)
    model = MKLClassifier([(name, Linear(), views[name]) for name in views])
    assert cross_val_score(model, X, y, cv=3).mean() > 0.8
    model.fit(X, y)
    assert model.kernel_names_ == ["near", "far"]
    assert model.weights_[0] > model.weights_[1]
    new, again = stack_views(near=near[:1], far=far[:1])
    assert again == views
    assert model.predict(new).shape == (1,)


@pytest.mark.parametrize(
    ("views", "error", "words"),
    [
        ({}, ValueError, "at least one view"),
        ({"a": A, "b": B[:2]}, ValueError, "a has 3, b has 2"),
        ({"a": np.zeros((0, 2))}, ValueError, r"view 'a' has shape \(0, 2\)"),
        ({"a": np.zeros((2, 0))}, ValueError, r"view 'a' has shape \(2, 0\)"),
        ({"a": A, "b": B[:, 0]}, ValueError, r"view 'b' has shape \(3,\).*b\.reshape\(-1, 1\)"),
        ({"a": pd.Series([1.0, 2.0])}, ValueError, r"view 'a' has shape \(2,\)"),
        ({"a": np.zeros((2, 2, 2))}, ValueError, r"\(2, 2, 2\)"),
        ({"a": [[1.0], [1.0, 2.0]]}, ValueError, "view 'a' is not a table"),
        ({"a": 3}, ValueError, r"view 'a' has shape \(\)"),
        ({"a__b": A}, ValueError, "'a__b' contains '__'"),
        ({"a": pd.DataFrame(A, columns=["u", "u"])}, ValueError, "'a__u'"),
        (
            {"a": pd.DataFrame(A, columns=["_x", "y"]), "a_": pd.DataFrame(B, columns=["x"])},
            ValueError,
            "'a___x'",
        ),
        ({"a": pd.DataFrame(A), "b": pl.DataFrame(B)}, TypeError, "a pandas, b polars"),
        (
            {"a": pd.DataFrame(A), "b": pd.DataFrame(B, index=[2, 1, 0])},
            ValueError,
            "'b' has another index",
        ),
        (
            {"a": sparse.csr_array(A), "b": np.array([["x"], ["y"], ["z"]])},
            TypeError,
            "view 'b' holds no numbers",
        ),
    ],
    ids=lambda value: None if isinstance(value, dict | type) else re.sub(r"\W+", "-", value),
)
def test_what_is_no_set_of_views_is_refused(views, error, words):
    with pytest.raises(error, match=words):
        stack_views(**views)


def test_numbers_hold_behind_a_scaler():
    rng = np.random.RandomState(0)
    near, far = pd.DataFrame(rng.randn(20, 2), columns=["u", "v"]), 1000 * rng.randn(20, 3)
    stacked = stack_views(near=near, far=far)
    assert stacked.numbers == {"near": [0, 1], "far": [2, 3, 4]}
    assert stack_views(near=near.to_numpy(), far=far).numbers == stacked.numbers
    X, views = stacked
    assert views["near"] == ["near__u", "near__v"]
    y = near["u"] > 0
    kernels = [(name, Gaussian("median"), columns) for name, columns in stacked.numbers.items()]
    by_number = make_pipeline(StandardScaler(), MKLClassifier(kernels)).fit(X, y)
    kernels = [(name, Gaussian("median"), columns) for name, columns in views.items()]
    by_name = make_pipeline(
        StandardScaler().set_output(transform="pandas"), MKLClassifier(kernels)
    ).fit(X, y)
    np.testing.assert_array_equal(by_number.decision_function(X), by_name.decision_function(X))


# Targets beside the views -------------------------------------------------------------------------

RNA = pd.DataFrame(A, index=["p", "q", "r"], columns=["g1", "g2"])
CLINIC = pd.DataFrame({"age": [9.0, 8.0, 7.0]}, index=["s", "q", "p"])


@pytest.mark.parametrize("kind", [pd.Series, pd.DataFrame])
def test_targets_are_joined_by_the_names_of_their_rows(kind):
    y = kind([4, 1, 3, 5], index=["s", "p", "r", "nobody"])
    (X, views), joined = stack_views({"rna": RNA}, y, clinic=CLINIC)
    # Without q, which has no target, in the order of the tables.
    expected = stack_views(rna=RNA, clinic=CLINIC).X.loc[["p", "r", "s"]]
    pd.testing.assert_frame_equal(X, expected)
    assert views == {"rna": ["rna__g1", "rna__g2"], "clinic": ["clinic__age"]}
    assert np.asarray(joined).ravel().tolist() == [1, 3, 4]
    assert joined.index.tolist() == ["p", "r", "s"]
    assert isinstance(joined, kind)


@pytest.mark.parametrize(
    "y", [[1, 2, 3], np.array([1, 2, 3]), pd.Series([1, 2, 3]), pl.Series([1, 2, 3])]
)
def test_targets_without_names_belong_to_rows_by_position(y):
    for table in (RNA, RNA.reset_index(drop=True), A, pl.DataFrame(A)):
        stacked, same = stack_views({"rna": table}, y)
        assert same is y
        assert len(stacked.X) == 3
    with pytest.raises(
        ValueError, match="the views are joined by the names of their rows; give a Series"
    ):
        stack_views({"rna": RNA, "clinic": CLINIC}, y)
    with pytest.raises(ValueError, match="y has 3 rows, and the views have 2"):
        stack_views({"rna": RNA[:2]}, y)


def test_a_view_may_be_called_y():
    assert stack_views(y=RNA).views == {"y": ["y__g1", "y__g2"]}


@pytest.mark.parametrize(
    ("names", "words"), [("ppq", "'p' more than once"), ("xyz", "no row in common.*'x'.*'p'")]
)
def test_targets_that_cannot_be_joined_are_refused(names, words):
    with pytest.raises(ValueError, match=words):
        stack_views({"rna": RNA}, pd.Series([1, 2, 3], index=list(names)))


class Annotated:
    """What stack_views reads of an AnnData."""

    def __init__(self, frame):
        self.frame, self.obs_names, self.var_names = frame, frame.index, frame.columns

    def to_df(self):
        return self.frame


class Modalities:
    """And of a MuData."""

    def __init__(self, **mod):
        self.mod = mod


def test_annotated_data_is_read_by_the_names_of_its_observations():
    rna = pd.DataFrame(A, index=["p", "q", "r"], columns=["g1", "g2"])
    protein = pd.DataFrame(B[:2], index=["r", "s"], columns=["p1"])
    X, views = stack_views(Modalities(rna=Annotated(rna), protein=Annotated(protein)))
    expected, same = stack_views(rna=rna, protein=protein)
    pd.testing.assert_frame_equal(X, expected)
    assert views == same == {"rna": ["rna__g1", "rna__g2"], "protein": ["protein__p1"]}
    assert X.loc["s"].isna().tolist() == [True, True, False]
    labels = pd.Series([0, 1, 0, 1], index=["s", "r", "q", "p"])
    with pytest.raises(
        ValueError, match=r"X\['protein'\]: .*\('p' is in X\['rna'\] alone, 's' is in"
    ):
        MKLClassifier().fit({"rna": Annotated(rna), "protein": Annotated(protein)}, labels)
    with pytest.raises(ValueError, match=r"write y\.loc\[X\['rna'\]\.obs_names\]"):
        MKLClassifier().fit(Modalities(rna=Annotated(rna)), labels)


def test_sparse_annotated_data_stay_sparse_and_keep_their_names():
    rng, cells = np.random.RandomState(0), [f"c{i}" for i in range(20)]
    genes = pd.DataFrame(rng.poisson(1.0, (20, 3)) * 1.0, index=cells, columns=["g1", "g2", "g3"])
    peaks = pd.DataFrame(rng.poisson(1.0, (20, 2)) * 1.0, index=cells, columns=["p1", "p2"])
    both = Modalities(rna=Annotated(genes), atac=Annotated(peaks))
    for one in both.mod.values():
        one.X = sparse.csr_matrix(one.frame.to_numpy())
    X, views = stack_views(both)
    expected, same = stack_views(rna=genes, atac=peaks)
    assert sparse.issparse(X)
    assert views == same
    assert X.columns.tolist() == list(expected.columns)
    np.testing.assert_array_equal(X.toarray(), expected.to_numpy())
    y = pd.Series(rng.randint(2, size=20), index=cells)
    model, dense = (
        MKLClassifier(tol=1e-9).fit(views, y) for views in (both, {"rna": genes, "atac": peaks})
    )
    np.testing.assert_allclose(
        model.decision_function(both), dense.decision_function(expected), atol=1e-4
    )
    assert model.kernel_names_ == dense.kernel_names_
    # Rows in another order are joined by their names.
    both.mod["atac"].obs_names = both.mod["atac"].obs_names[::-1]
    X = stack_views(both).X
    assert sparse.issparse(X)
    np.testing.assert_array_equal(X.toarray()[:, 3:], peaks.to_numpy()[::-1])


def test_a_dict_and_further_views():
    X, views = stack_views({"a b": A}, c=B)
    assert views == {"a b": [0, 1], "c": [2]}
    np.testing.assert_array_equal(X, np.hstack([A, B]))


@pytest.mark.parametrize(
    "container",
    ["abc", A, pd.DataFrame(A), Annotated(pd.DataFrame(A))],
    ids=lambda one: type(one).__name__,
)
def test_a_table_without_a_name_is_refused(container):
    with pytest.raises(TypeError, match=r"is not a collection of views.*stack_views\(name=table\)"):
        stack_views(container)


def test_real_annotated_data():
    anndata = pytest.importorskip("anndata")
    frame = pd.DataFrame(A, index=["p", "q", "r"], columns=["g1", "g2"])
    X, _ = stack_views(rna=anndata.AnnData(frame), other=pd.DataFrame(B, index=["p", "q", "r"]))
    np.testing.assert_array_equal(X.to_numpy(), np.hstack([A, B]))


def test_sums_by_view():
    views = ["rna", "clinic", "rna"]
    assert by_view([1.0, 2.0, 4.0], views) == {"rna": 5.0, "clinic": 2.0}
    several = by_view(np.arange(12.0).reshape(2, 2, 3), views)
    np.testing.assert_array_equal(several["rna"], [[2.0, 8.0], [14.0, 20.0]])
    assert by_view([1.0, 2.0, 4.0], ["all"]) == {"all": 7.0}
