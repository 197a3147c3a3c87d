"""Kernels that are functions of the inner product: linear and polynomial."""

from __future__ import annotations

from numbers import Real
from typing import ClassVar

import numpy as np

from kernelmosaic._typing import MatrixLike
from kernelmosaic.backend import backend_of
from kernelmosaic.kernels.base import Block, StatisticKernel, is_whole
from kernelmosaic.kernels.distances import pairwise_statistic


class Linear(StatisticKernel):
    """k(x, z) = ⟨x, z⟩.

    Examples
    --------
    >>> from kernelmosaic.kernels import Linear
    >>> Linear()([[1.0, 2.0], [0.0, 1.0]])
    array([[5., 2.],
           [2., 1.]])
    """

    statistic: ClassVar[str] = "products"

    def from_statistic(self, S: Block) -> Block:
        # The caller keeps S for other kernels, and may scale what it gets from here.
        copy: Block = backend_of(S).copy(S)
        return copy

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        return pairwise_statistic(self.statistic, X, Y)


class Polynomial(StatisticKernel):
    """k(x, z) = (⟨x, z⟩ + offset)^degree.

    Parameters
    ----------
    degree : int, default=2
        The degree, at least 1.
    offset : float, default=1.0
        What is added to the inner product; with 0 only the monomials of exactly this degree remain.

    Examples
    --------
    >>> from kernelmosaic.kernels import Polynomial
    >>> Polynomial(degree=2)([[1.0], [2.0]])
    array([[ 4.,  9.],
           [ 9., 25.]])
    """

    statistic: ClassVar[str] = "products"

    def __init__(self, degree: int = 2, offset: float = 1.0) -> None:
        self.degree = degree
        self.offset = offset

    def entry_roundings(self, X: MatrixLike) -> float:
        # A power of the inner product has its relative error times the degree.
        return self.degree * (super().entry_roundings(X) + 1.0)

    def from_statistic(self, S: Block) -> Block:
        base = S + float(self.offset)
        K: Block = backend_of(S).copy(base)
        # Multiplying is several times faster than NumPy's power, which treats every exponent above 2 as a real number.
        for _ in range(self.degree - 1):
            K *= base
        return K

    def _check_parameters(self) -> None:
        if not is_whole(self.degree):
            raise ValueError(f"degree={self.degree!r}: the degree of a polynomial kernel must be a positive integer.")
        if not isinstance(self.offset, Real) or isinstance(self.offset, bool) or not 0 <= self.offset < np.inf:
            raise ValueError(
                f"offset={self.offset!r}: the offset of a polynomial kernel must be a finite number of at least 0; "
                "with a negative one the kernel is not positive semi-definite."
            )
