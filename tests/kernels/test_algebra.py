"""Sums, products and multiples: what they refuse, how they print, and that they leave what they are
made of alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from kernelmosaic.kernels import (
    Correlation,
    Gaussian,
    Linear,
    Polynomial,
    Precomputed,
    Product,
    Scaled,
    Spectrum,
    Sum,
)

X = np.random.RandomState(1).normal(size=(9, 3))
a, b, c = Gaussian(width=1.0), Linear(), Polynomial(degree=3)
A, B, C = "Gaussian(width=1.0)", "Linear()", "Polynomial(degree=3)"


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (2.0 * a + b, f"2.0 * {A} + {B}"),
        (2.0 * (a + b), f"2.0 * ({A} + {B})"),
        (a + b + c, f"{A} + {B} + {C}"),
        (a + (b + c), f"{A} + ({B} + {C})"),
        (a * b * c, f"{A} * {B} * {C}"),
        (a * (b * c), f"{A} * ({B} * {C})"),
        ((a + b) * c, f"({A} + {B}) * {C}"),
        (a * (b + c), f"{A} * ({B} + {C})"),
        (a + b * c, f"{A} + {B} * {C}"),
        (2 * a * b, f"2.0 * {A} * {B}"),
        (2 * (a * b), f"2.0 * ({A} * {B})"),
        (a * (2 * b), f"{A} * (2.0 * {B})"),
        (2 * (3 * a), f"2.0 * (3.0 * {A})"),
        (a + 0.5 * b, f"{A} + 0.5 * {B}"),
        (b * np.float64(0.1), f"0.1 * {B}"),
        (np.float32(4) * b, f"4.0 * {B}"),
        (np.int64(4) * b, f"4.0 * {B}"),
    ],
)
def test_prints_as_it_would_be_written(kernel, text):
    assert repr(kernel) == text
    names = {kind.__name__: kind for kind in (Gaussian, Linear, Polynomial)}
    assert _tree(eval(text, names)) == _tree(kernel)


def _tree(kernel):
    """The structure, spelled without the repr under test."""
    if isinstance(kernel, Sum | Product):
        return type(kernel), _tree(kernel.left), _tree(kernel.right)
    if isinstance(kernel, Scaled):
        return Scaled, float(kernel.factor), _tree(kernel.kernel)
    return type(kernel), tuple(kernel.get_params().items())


def test_numbers_of_numpy_multiply_to_kernels():
    for kernel in (np.float64(2) * b, b * np.float64(2), np.int32(2) * b):
        assert type(kernel) is Scaled
        assert_allclose(kernel(X), 2 * X @ X.T)


def test_arrays_do_not_multiply_kernels():
    for join in (lambda: np.ones(3) * b, lambda: b * np.ones(3), lambda: np.ones(3) + b):
        with pytest.raises(TypeError):
            join()


@pytest.mark.parametrize("factor", [0, -1.0, np.nan, np.inf, "2", None])
def test_factor_must_be_positive(factor):
    with pytest.raises(ValueError, match="factor="):
        Scaled(factor, Linear())
    late = Scaled(1.0, Linear()).set_params(factor=factor)
    for use in (late.fit, late, late.diag):
        with pytest.raises(ValueError, match="factor="):
            use(X)


def test_negative_multiple_is_refused_where_it_is_written():
    with pytest.raises(ValueError, match=r"factor=-1\.0"):
        -1 * Linear()


@pytest.mark.parametrize("other", ["Linear", None, 3, np.eye(9)])
def test_only_kernels_are_joined(other):
    with pytest.raises(TypeError):
        Linear() + other
    with pytest.raises(TypeError, match="right="):
        Product(Linear(), other)
    with pytest.raises(TypeError, match="left="):
        Sum(other, Linear())
    with pytest.raises(TypeError, match="kernel="):
        Scaled(1.0, other)


@pytest.mark.parametrize("other", [Spectrum(), Precomputed(np.eye(9))])
def test_kernels_on_different_kinds_of_samples_are_not_joined(other):
    for join in (
        lambda: Linear() + other,
        lambda: other * Linear(),
        lambda: Linear() + 2.0 * other,
    ):
        with pytest.raises(
            ValueError,
            match=r"reads numbers.*reads (sequences|rows)|reads (sequences|rows).*numbers",
        ):
            join()
    late = Sum(Linear(), Linear()).set_params(right=other)
    with pytest.raises(ValueError, match="reads numbers"):
        late.fit(X)
    with pytest.raises(ValueError, match="reads numbers"):
        late.input_kind  # noqa: B018


def test_kind_and_sparsity_come_from_the_parts():
    assert (Spectrum() + 2.0 * Spectrum(length=2)).input_kind == "sequences"
    assert (2.0 * Precomputed(np.eye(2))).input_kind == "rows"
    assert (Linear() + Gaussian()).accepts_sparse
    assert (3.0 * Linear()).accepts_sparse
    assert not (Linear() + Correlation()).accepts_sparse
    assert not (2.0 * Correlation() * Linear()).accepts_sparse


def test_parts_are_fitted_as_clones():
    inner = Gaussian()
    kernel = (2.0 * inner + inner * Linear()).fit(X)
    assert not hasattr(inner, "width_")
    width = Gaussian().fit(X).width_
    assert kernel.left_.kernel_.width_ == width
    assert kernel.right_.left_.width_ == width
    # the width of the training set, not of the columns asked for
    assert_allclose(kernel(X[:2], X[2:4]), kernel(X)[:2, 2:4], rtol=1e-12)


def test_parameters_are_reached_by_nested_names():
    kernel = 2.0 * Gaussian(width=1.0) + Polynomial()
    assert {"left__factor", "left__kernel__width", "right__degree"} <= set(kernel.get_params())
    other = clone(kernel).set_params(left__kernel__width=3.0, right__degree=1)
    assert repr(other) == "2.0 * Gaussian(width=3.0) + Polynomial(degree=1)"
    assert repr(kernel) == "2.0 * Gaussian(width=1.0) + Polynomial()"
    assert_allclose(other(X), 2.0 * Gaussian(width=3.0)(X) + X @ X.T + 1, rtol=1e-12)


def test_a_sum_of_many_kernels_reads_its_parts_a_few_times_each():
    """The work grows with the cube of their number at most (clones of clones are checked), not by a
    factor for each."""
    read = []

    class Counted(Linear):
        @property
        def input_kind(self):
            read.append(1)
            return "numbers"

    X = np.arange(6.0).reshape(3, 2)
    total = Counted()
    for _ in range(29):
        total = total + Counted()
    read.clear()
    assert_allclose(total.fit(X)(X), 30 * X @ X.T)
    assert len(read) < 30**3
