"""Families of column subsets: what is generated is what nested loops would write down."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from kernelmosaic.kernels import Gaussian, Laplacian, Linear, Subsets

COLUMNS = [2, 3, 5, 7, 11]


def test_kernels_are_those_of_nested_loops():
    given = Subsets(Gaussian(), size=(1, 3), width=[0.5, "nearest"], factor=[1.0, 2.0])
    loops = [
        (list(columns), width, factor)
        for size in (1, 3)
        for columns in combinations(COLUMNS, size)
        for width in (0.5, "nearest")
        for factor in (1.0, 2.0)
    ]
    family = given.expand(COLUMNS)
    assert len(family) == len(loops) == len(list(family))
    for (name, kernel, columns), (expected, width, factor) in zip(family, loops, strict=True):
        assert type(kernel) is Gaussian
        assert (kernel.width, kernel.factor) == (width, factor)
        assert_array_equal(columns, expected)
        assert name == f"gaussian[{','.join(map(str, expected))}](width={width}, factor={factor})"
    assert [name for name, _, _ in family] == list(family.names)
    assert family[-1][0] == family.names[-1] == family[len(family) - 1 :][0][0]
    with pytest.raises(IndexError):
        family[len(family)]


def test_table_pads_smaller_subsets():
    table = Subsets(Laplacian(), size=(2, 1)).expand(COLUMNS).table()
    assert_array_equal(table, [*combinations(range(5), 2), *((c, 5) for c in range(5))])


def test_a_million_kernels_are_a_small_object():
    family = Subsets(Gaussian(), size=4, factor=[0.5, 1, 2]).expand(range(60))
    assert len(family) == 1_462_905
    assert family.names[700_000] == family[700_000][0]
    assert repr(family.names).startswith("<1462905 names, from 'gaussian[0,1,2,3](factor=0.5)'")


def test_names_of_columns_and_of_the_family():
    family = Subsets(Laplacian()).expand([0, 1], labels=["age", "dose"], name="pairs")
    assert list(family.names) == ["pairs[age,dose]"]


def test_it_is_an_estimator():
    given = Subsets(Gaussian(2.0), size=3, factor=[1, 2])
    twin = clone(given).set_params(kernel__width=4.0)
    assert (given.kernel.width, twin.kernel.width, twin.size, twin.factor) == (2.0, 4.0, 3, [1, 2])


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (Subsets(Gaussian(), size=6), ValueError, "size=6: there are 5 columns"),
        (Subsets(Gaussian(), size=0), ValueError, "size=0: give a number of columns"),
        (Subsets(Gaussian(), size=(1, 1)), ValueError, r"size=\(1, 1\)"),
        (Subsets(Gaussian(), size="two"), ValueError, "size='two'"),
        (Subsets(Linear()), TypeError, r"kernel=Linear\(\): Subsets supports Gaussian"),
        (Subsets(Gaussian), TypeError, r"write Gaussian\(\)"),
        (Subsets(Gaussian(), width=2.0), TypeError, r"such as width=\[2.0\]"),
        (Subsets(Gaussian(), factor=iter([1.0, 2.0])), TypeError, "factor=.*: give a list of values"),
        (Subsets(Gaussian(), width=[]), ValueError, "width=\\[\\]"),
        (Subsets(Gaussian(), width=["wide"]), ValueError, "width='wide'"),
        (Subsets(Gaussian(), factor=[1.0, -1.0]), ValueError, "factor=-1.0"),
    ],
)
def test_errors_name_the_parameter(given, error, says):
    with pytest.raises(error, match=says):
        given.expand(COLUMNS)


def test_numbers_of_arrays_print_as_numbers():
    assert Subsets(Gaussian(), width=np.array([0.5, 1.0])).expand([0, 1]).names[0] == "gaussian[0,1](width=0.5)"


def test_slices_of_names():
    names = Subsets(Gaussian()).expand(COLUMNS).names
    assert names[1:3] == [names[1], names[2]]
