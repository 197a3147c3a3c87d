"""The `kernels` parameter: its forms, its names, and the columns each kernel reads."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.compose import ColumnTransformer, make_column_selector

from kernelmosaic.kernels import Gaussian, Linear, Polynomial, per_column
from kernelmosaic.kernels.views import lay_specs, one_class_kernels, read_kernels, take_columns

X = np.arange(12.0).reshape(3, 4)
FRAME = pd.DataFrame(X, columns=["a", "b", "c", "d"])


def test_all_forms_side_by_side():
    entries = read_kernels([Linear(), ("bell", Gaussian()), ("part", Polynomial(), [1])])
    assert [(e.name, type(e.kernel), e.columns) for e in entries] == [
        ("linear", Linear, None),
        ("bell", Gaussian, None),
        ("part", Polynomial, [1]),
    ]


def test_none_is_the_default_list_and_one_kernel_a_list_of_one():
    bells = [f"gaussian(factor={factor})" for factor in (1, 2, 4)]
    assert [e.name for e in read_kernels(None)] == ["linear", "polynomial", *bells]
    assert read_kernels(None)[1].kernel.degree == 2
    assert {e.kernel.width for e in read_kernels(None)[2:]} == {"median"}
    assert {type(e.kernel) for e in read_kernels(None, one_class_kernels)} == {Gaussian}
    assert [e.name for e in read_kernels(Gaussian())] == ["gaussian"]
    assert [e.name for e in read_kernels((Gaussian(1.0), Gaussian(2.0)))] == [
        "gaussian(width=1.0)",
        "gaussian(width=2.0)",
    ]


@pytest.mark.parametrize(
    ("kernels", "error", "words"),
    [
        ([], ValueError, "kernels is empty"),
        ("rbf", TypeError, "kernels='rbf'"),
        (3, TypeError, "kernels=3"),
        (["rbf"], TypeError, r"kernels\[0\]='rbf'"),
        ([Linear(), ("a", "rbf")], TypeError, r"kernels\[1\]: 'rbf' is not a kernel"),
        ([("a", Gaussian)], TypeError, "is not a kernel"),
        ([("a",)], TypeError, r"kernels\[0\]=\('a',\)"),
        ([("a", Linear(), [0], 1)], TypeError, r"kernels\[0\]"),
        ([(1, Linear())], ValueError, "name 1"),
        ([("a__b", Linear())], ValueError, "'a__b'"),
        ([("a", Linear()), ("a", Gaussian())], ValueError, "'a' is used 2 times"),
        ([("linear", Gaussian()), Linear()], ValueError, "'linear' is used 2 times"),
    ],
)
def test_what_is_no_list_of_kernels_is_refused_by_place(kernels, error, words):
    with pytest.raises(error, match=words):
        read_kernels(kernels)


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ("rbf", "write Gaussian()"),
        ("RBF", "write Gaussian()"),
        ("gaussian", "write Gaussian()"),
        ("linear", "write Linear()"),
        ("poly", "write Polynomial(degree=3)"),
        ("polynomial", "write Polynomial()"),
        ("precomputed", "write Precomputed(K)"),
        ("weighted_degree", "write WeightedDegree()"),
        ("laplacian", "write Laplacian()"),
        ("sigmoid", "such as Gaussian()"),
        ("", "such as Gaussian()"),
        (Gaussian, "write Gaussian()"),
    ],
)
def test_a_kernel_by_its_name_is_told_what_to_write(given, instead):
    for kernels in (given, [given], [("a", given)], [Linear(), ("a", given, [0])]):
        with pytest.raises(
            TypeError, match=rf"kernels.*{re.escape(repr(given))}.*{re.escape(instead)}"
        ):
            read_kernels(kernels)
    with pytest.raises(TypeError, match=re.escape(instead)):
        per_column(given)


def test_names_of_columns_that_a_scaler_dropped():
    names = [f"x{i}" for i in range(76)]
    with pytest.raises(
        ValueError, match=r"kernel 'a': columns \['x0', .*, … and 71 more\]"
    ) as caught:
        lay_specs(read_kernels([("a", Linear(), names)]), np.zeros((3, 76)))
    assert 'StandardScaler().set_output(transform="pandas")' in str(caught.value)
    assert len(str(caught.value)) < 400
    with pytest.raises(ValueError, match=r"kernel 'a': .*set_output\(transform="):
        lay_specs(
            read_kernels([("a", Linear(), make_column_selector(pattern="x"))]), np.zeros((3, 76))
        )


def test_names_of_columns_that_are_not_there_are_listed_with_those_that_are():
    frame = pd.DataFrame(np.zeros((3, 76)), columns=[f"x{i}" for i in range(76)])
    with pytest.raises(ValueError, match=r"it has no \['y'\], but \['x0', .*'x4', … and 71 more\]"):
        lay_specs(read_kernels([("a", Linear(), ["x3", "y"])]), frame)


CHOICES = [
    [0, 2],
    [-1],
    np.array([3, 1]),
    slice(1, 3),
    slice(None),
    [True, False, False, True],
    np.array([False, True, True, False]),
    2,
    lambda table: [1, 2],
]
NAMED = [["a", "d"], "c", slice("b", "d"), pd.Index(["d"]), make_column_selector(pattern="[ab]")]


@pytest.mark.parametrize("columns", [*CHOICES, *NAMED])
def test_columns_mean_what_they_mean_in_a_column_transformer(columns):
    (tile,) = lay_specs(read_kernels([("k", Linear(), columns)]), FRAME)
    listed = [columns] if isinstance(columns, str | int) else columns
    expected = ColumnTransformer([("k", "passthrough", listed)]).fit_transform(FRAME)
    np.testing.assert_array_equal(take_columns(X, tile.columns), expected)
    np.testing.assert_array_equal(
        take_columns(sparse.csr_matrix(X), tile.columns).toarray(), expected
    )


@pytest.mark.parametrize("columns", CHOICES)
def test_arrays_sparse_matrices_and_polars_frames_too(columns):
    tables = [X, sparse.csr_matrix(X), pl.DataFrame(X, schema=list("abcd"))]
    specs = [
        lay_specs(read_kernels([("k", Linear(), columns)]), table)[0] for table in [FRAME, *tables]
    ]
    for tile in specs[1:]:
        np.testing.assert_array_equal(tile.columns, specs[0].columns)


@pytest.mark.parametrize(
    ("columns", "table"),
    [
        (["z"], FRAME),
        (["a"], X),
        ([4], X),
        ([-5], X),
        ([True, False], X),
        ([], X),
        (slice(7, 9), X),
        (lambda table: ["z"], FRAME),
        ([1.5], X),
        ({"a": 1}, FRAME),
    ],
)
def test_columns_that_do_not_fit_name_the_kernel(columns, table):
    with pytest.raises(ValueError, match=r"kernel 'k': columns .*4"):
        lay_specs(read_kernels([("k", Linear(), columns)]), table)


def test_one_kernel_a_column_is_named_by_it():
    specs = lay_specs(read_kernels([("k", per_column(Gaussian(1.0)), ["d", "b"])]), FRAME)
    assert [(tile.name, tile.columns.tolist()) for tile in specs] == [("k[d]", [3]), ("k[b]", [1])]
    assert specs[0].kernel is not specs[1].kernel
    assert [tile.name for tile in lay_specs(read_kernels(per_column(Linear())), X)] == [
        f"linear[{i}]" for i in range(4)
    ]
