"""Kernels of pairs against np.kron, naive loops and the rules of their modes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from kernelmosaic import MKLRegressor
from kernelmosaic.kernels import Gaussian, Linear, Precomputed, Spectrum, pairwise, per_column
from kernelmosaic.pairs.kernels import Members, Pairwise

rng = np.random.RandomState(0)
LEFT, RIGHT = rng.normal(size=(4, 2)), rng.normal(size=(3, 3))
#: A complete table, row by row.
TABLE = np.array([np.concatenate([a, b]) for a in LEFT for b in RIGHT])
K, G = np.exp(-((LEFT[:, None] - LEFT) ** 2).sum(-1) / 1.5**2), RIGHT @ RIGHT.T
MATRIX = (F := rng.normal(size=(6, 4))) @ F.T


def made(mode: str) -> np.ndarray:
    return Pairwise(Gaussian(1.5), Linear(), 2, mode).fit(TABLE)(TABLE)


def test_a_complete_table_has_the_kronecker_product():
    assert_allclose(made("product"), np.kron(K, G), rtol=1e-12, atol=1e-14)


def test_sums_on_a_complete_table():
    assert_allclose(
        made("sum"),
        np.kron(K, np.ones_like(G)) + np.kron(np.ones_like(K), G),
        rtol=1e-12,
        atol=1e-13,
    )
    assert_allclose(
        made("cartesian"), np.kron(K, np.eye(3)) + np.kron(np.eye(4), G), rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize(("mode", "sign"), [("symmetric", 1), ("antisymmetric", -1)])
def test_pairs_of_one_kind_may_be_turned_round(mode, sign):
    """K(x, y) is ½ Σ over both orders of y, computed by a loop; turning a pair round multiplies it
    by the sign."""
    pairs = np.array([[i, j] for i in range(6) for j in range(6)])
    kernel = Pairwise(Precomputed(MATRIX), Precomputed(MATRIX), mode=mode).fit(pairs)
    M = MATRIX
    expected = [
        [0.5 * (M[a, c] * M[b, d] + sign * M[a, d] * M[b, c]) for c, d in pairs.tolist()]
        for a, b in pairs.tolist()
    ]
    found = kernel(pairs)
    assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    assert_allclose(kernel(pairs[:, ::-1], pairs), sign * found, rtol=1e-12, atol=1e-13)
    assert_allclose(kernel.diag(pairs), np.diagonal(expected), rtol=1e-12, atol=1e-13)
    assert np.linalg.eigvalsh(found).min() > -1e-10 * np.abs(found).max()


@pytest.mark.parametrize(
    "kernel", [Precomputed(np.outer(MATRIX[0], MATRIX[0])), Linear()], ids=["given", "linear"]
)
def test_of_a_kernel_of_rank_one_the_antisymmetric_one_is_zero(kernel):
    """What rounding leaves has any sign, and would be a kernel of its own once it is normalised."""
    places = np.argwhere(np.ones((6, 6)))
    pairs = places if isinstance(kernel, Precomputed) else np.sqrt(np.arange(2.0, 8.0))[places]
    found = Pairwise(kernel, kernel, mode="antisymmetric").fit(pairs)
    assert not found(pairs).any()
    assert not found.diag(pairs).any()
    y = np.arange(36) % 5
    model = MKLRegressor(
        [("pairs", Pairwise(kernel, kernel, mode="antisymmetric"))], loss="quantile"
    ).fit(pairs, y)
    assert model.duality_gap_ <= 1e-3


def test_widths_are_those_of_the_distinct_members():
    """However often a member occurs, and in one pool for pairs of one kind."""
    X = TABLE[[0, 0, 0, 1, 5, 7, 11]]
    kernel = Pairwise(Gaussian(), Linear(), 2).fit(X)
    assert kernel.left_.width_ == pytest.approx(Gaussian().fit(np.unique(X[:, :2], axis=0)).width_)
    one = Pairwise(Gaussian(), Gaussian(), 1, "symmetric").fit([[1.0, 2.0], [1.0, 5.0], [2.0, 9.0]])
    assert (
        one.left_.width_ == one.right_.width_ == Gaussian().fit([[1.0], [2.0], [5.0], [9.0]]).width_
    )


def test_numbers_strings_and_row_numbers_in_one_table():
    words = np.array(["ACGT", "CGTA", "TTAC", "ACGT"])
    frame = pd.DataFrame({"drug": [5, 0, 3, 3], "word": words, "mass": [1.0, 2.0, 2.5, 1.0]})
    numbers = pairwise([("matrix", Precomputed(MATRIX), "drug")], [("words", Spectrum(2), "word")])
    assert numbers[0][2] == ["drug", "word"]
    found = numbers[0][1].fit(frame[["drug", "word"]])(frame[["drug", "word"]])
    rows = frame["drug"].to_numpy()
    expected = MATRIX[np.ix_(rows, rows)] * Spectrum(2)(list(words))
    assert_allclose(found, expected, rtol=1e-12)
    table = frame[["mass", "word"]].to_numpy()
    mixed = Pairwise(Gaussian(1.0), Spectrum(2))
    assert_allclose(
        mixed(table),
        Gaussian(1.0)(table[:, :1].astype(float)) * Spectrum(2)(list(words)),
        rtol=1e-12,
    )


def test_all_products_in_order():
    left = [("a", Gaussian(1.0), [0, 1]), ("b", Linear(), 0)]
    right = [("c", Linear(), [2]), ("d", Gaussian(2.0), np.array([2, 3]))]
    found = pairwise(left, right)
    assert [name for name, _, _ in found] == ["a × c", "a × d", "b × c", "b × d"]
    assert [columns for _, _, columns in found] == [[0, 1, 2], [0, 1, 2, 3], [0, 2], [0, 2, 3]]
    assert [kernel.split for _, kernel, _ in found] == [2, 2, 1, 1]
    one = pairwise(
        [("a", Linear(), 0), ("b", Gaussian(), 0)],
        [("x", Linear(), 1), ("y", Gaussian(), 1)],
        mode="symmetric",
    )
    assert [name for name, _, _ in one] == ["a, symmetric", "b, symmetric"]


def test_nested_parameters_and_clones():
    kernel = pairwise([("a", Gaussian(1.0), 0)], [("b", Precomputed(MATRIX), 1)])[0][1]
    assert kernel.get_params()["left__width"] == 1.0
    other = clone(kernel).set_params(left__width=2.0, mode="sum")
    assert (other.left.width, kernel.left.width, other.right.K is MATRIX) == (2.0, 1.0, True)


def test_what_is_printed_is_one_line():
    kernel = Pairwise(
        Gaussian(width=1.25, factor=3.0) * Linear(),
        Gaussian(width=1.25, factor=3.0) + Linear(),
        12,
        "sum",
    )
    assert repr(kernel).endswith("Linear(), split=12, mode='sum')")
    assert "\n" not in repr(kernel)


@pytest.mark.parametrize(
    "values", [[[1.0], [0.0], [-0.0], [1.0]], [["a"], ["b"], ["b"], ["a"]]], ids=["numbers", "text"]
)
def test_members_are_found_once_each(values):
    found = Members.of(np.array(values, dtype=object if isinstance(values[0][0], str) else None))
    assert len(found.values) == 2
    assert_array_equal(found.values[found.codes], values)


A, B = ("a", Linear(), 0), ("b", Linear(), 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: pairwise([Linear()], [B]),
            r"left: kernel 'linear' has columns=None; give \(name, kernel, columns\)",
        ),
        (lambda: pairwise([A], [("b", Linear(), [])]), r"right: kernel 'b' has columns=\[\]"),
        (lambda: pairwise([A], [("b", Linear(), [True, False])]), r"right: kernel 'b' has columns"),
        (
            lambda: pairwise([("a", per_column(Linear()), 0)], [B]),
            "stands for several kernels; write them out",
        ),
        (lambda: pairwise([A], [B], mode="tensor"), r"mode='tensor': choose one of 'product'"),
        (
            lambda: pairwise([A, ("c", Linear(), 2)], [B], mode="symmetric"),
            "left has 2 items and right 1",
        ),
        (
            lambda: pairwise([A], [("b", Gaussian(), 1)], mode="symmetric"),
            "differ; give the same kernel twice",
        ),
        (
            lambda: Pairwise(Linear(), Linear(), 0).fit([[1.0, 2.0]]),
            "split=0: give the number of columns of",
        ),
        (
            lambda: Pairwise(Linear(), Linear(), 2).fit([[1.0, 2.0]]),
            "X has 2 columns: Pairwise.split=2. reads 2",
        ),
        (
            lambda: Pairwise(Precomputed(MATRIX), Linear()).fit([[9, 2.0]]),
            r"X\[0\] is 9.*row numbers of K",
        ),
        (lambda: Pairwise(Linear(), Linear()).fit([[1.0, np.nan]]), "X contains NaN"),
    ],
)
def test_what_is_wrong_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_what_is_no_kernel_is_named():
    with pytest.raises(TypeError, match="left='rbf': Pairwise needs a kernel"):
        Pairwise("rbf", Linear()).fit([[1.0, 2.0]])
