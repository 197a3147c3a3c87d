"""Kernels that are functions of the inner product, linear and polynomial, or of a distance,
Gaussian and Laplacian."""

from __future__ import annotations

import math
from abc import abstractmethod
from numbers import Real
from typing import ClassVar, Self

import numpy as np
from sklearn.exceptions import NotFittedError

from kernelmosaic._checks import check_count
from kernelmosaic._typing import Array, ArrayOrTensor, DType, MatrixLike
from kernelmosaic.backend import NUMPY, backend_of
from kernelmosaic.kernels.base import Block, StatisticKernel, is_positive
from kernelmosaic.kernels.distances import FitSamples, pairwise_statistic


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


class Polynomial(StatisticKernel):
    """k(x, z) = (⟨x, z⟩ + offset)^degree.

    Parameters
    ----------
    degree : int, default=2
        The degree, at least 1.
    offset : float, default=1.0
        Constant added to the inner product; with 0 only the monomials of exactly this degree
        remain.

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
        # Multiplying is several times faster than NumPy's power, which treats every exponent above
        # 2 as a real number.
        for _ in range(self.degree - 1):
            K *= base
        return K

    def _check_parameters(self) -> None:
        check_count("degree", self.degree)
        if (
            not isinstance(self.offset, Real)
            or isinstance(self.offset, bool)
            or not 0 <= self.offset < np.inf
        ):
            raise ValueError(
                f"offset={self.offset!r}: the offset of a polynomial kernel must be a finite number"
                " of at least 0; with a negative one the kernel is not positive semi-definite."
            )


class Radial(StatisticKernel):
    """k(x, z) = exp(−(d(x, z) / (factor · width))^power) of a distance d; the statistic is d^power.

    Attributes
    ----------
    power : int
        The power of the distance in the exponent.
    """

    learned: ClassVar[str] = "width_"
    power: ClassVar[int]

    def __init__(
        self, width: float | str = "median", factor: float = 1.0, per_column: bool = False
    ) -> None:
        self.width = width
        self.factor = factor
        self.per_column = per_column

    def _learn(self, samples: FitSamples) -> Self:
        self.width_ = self.measure(samples)
        return self

    def measure(self, samples: FitSamples | None) -> float:
        """Return the width, the factor included; one that is a word is measured on the samples."""
        if not is_positive(self.factor):
            raise ValueError(
                f"factor={self.factor!r}: the factor of the width must be a positive, finite"
                " number."
            )
        if self.width == "learn":
            raise ValueError(
                "width='learn': only MKLRidgeCV and MKLRidgeClassifierCV learn widths, and only of"
                " kernels that are not part of another kernel except Ranked(...). Elsewhere give a"
                " number, 'median' or 'nearest', or the kernels_ of such a fitted estimator."
            )
        if self.per_column:
            raise ValueError(
                f"per_column=True with width={self.width!r}: widths per column are learned and need"
                " width='learn'; for given ones use Rescaled(kernel, widths)."
            )
        if isinstance(self.width, str) and self.width in ("median", "nearest"):
            assert samples is not None
            # One distinct sample has no neighbour: every width gives the same constant kernel.
            return float(self.factor) * (samples.width(self.width, self.statistic) or 1.0)
        if not is_positive(self.width):
            raise ValueError(
                f"width={self.width!r}: give a positive, finite number, 'median', 'nearest' or"
                " 'learn'."
            )
        return float(self.factor) * float(self.width)

    def rate(self, dtype: DType) -> float:
        """Return what the statistic is multiplied with in the exponent, −1/width^power, in a
        precision's range."""
        if not hasattr(self, "width_") and isinstance(self.width, str):
            raise NotFittedError(
                f"{self!r} learns its width from the training set: call fit first."
            )
        inverse = 1.0 / (self.width_ if hasattr(self, "width_") else self.measure(None))
        # Bounded, because 0 * inf would turn the diagonal of a very narrow kernel into NaN.
        return max(-math.prod([inverse] * self.power), float(np.finfo(dtype).min))

    def statistic_scale(self) -> float:
        rate = self.rate(np.float64)
        return -1.0 / rate if rate else np.inf

    def from_statistic(self, S: Block) -> Block:
        backend = backend_of(S)
        K = S * self.rate(backend.dtype(S))
        # Below this logarithm, with a little to spare, numbers are too small to be normal.
        lowest = np.log(np.finfo(backend.dtype(K)).tiny) + 1
        if backend is NUMPY and K.size and K.min() < lowest:
            # Such numbers take a processor ten times as long, here and wherever they are read.
            np.maximum(K, lowest, out=K)
            np.exp(K, out=K)
            K -= K.min()
            return K
        found: Block = backend.xp.exp(K, out=K)
        return found

    @abstractmethod
    def draw_frequencies(
        self, n_columns: int, count: int, random: np.random.RandomState
    ) -> Array: ...


class RadialWidths:
    """The matrix of a radial kernel of given samples as a function of the logarithms of its widths,
    and its slopes.

    The kernel is exp(−Σ_d (|x_d − z_d| / ℓ_d)^power), with one ℓ for all columns, or one for each.

    Parameters
    ----------
    kernel : Radial
        With ``width="learn"``.
    X : array of shape (n, columns)
        Samples, of NumPy or torch.
    """

    def __init__(self, kernel: Radial, X: ArrayOrTensor) -> None:
        self.unit, self.per_column = type(kernel)(width=1.0), kernel.per_column
        host = backend_of(X).to_numpy(X)
        median = type(kernel)(factor=kernel.factor).measure(FitSamples(host))
        self.start = np.full(X.shape[1] if self.per_column else 1, np.log(median))
        self.X = X - X.mean(0)
        self._statistic = None if self.per_column else self._distances(self.X)

    def _distances(self, X: ArrayOrTensor) -> Block:
        return pairwise_statistic(self.unit.statistic, X, X, self.unit.statistic_scale())

    def matrix(self, log_widths: Array) -> Block:
        """Return the kernel matrix."""
        if self._statistic is None:
            return self.unit.from_statistic(self._distances(self._scaled(log_widths)))
        return self.unit.from_statistic(
            self._statistic * float(np.exp(-self.unit.power * log_widths[0]))
        )

    def slopes(self, log_widths: Array, S: Block) -> Array:
        """Return Σ_ij S_ij ∂ log K_ij / ∂ log ℓ, for a symmetric S."""
        p, backend = self.unit.power, backend_of(self.X)
        if self._statistic is not None:
            total = float((S * self._statistic).sum())
            return np.array([p * float(np.exp(-p * log_widths[0])) * total])
        Z = self._scaled(log_widths)
        if p == 2:
            return np.asarray(
                2.0
                * p
                * backend.to_numpy((S.sum(1)[:, None] * Z * Z).sum(0) - (Z * (S @ Z)).sum(0))
            )
        return np.array([p * float((S * abs(z[:, None] - z)).sum()) for z in Z.T])

    def _scaled(self, log_widths: Array) -> ArrayOrTensor:
        return self.X * backend_of(self.X).asarray(
            np.exp(-log_widths), backend_of(self.X).dtype(self.X)
        )


class Gaussian(Radial):
    """k(x, z) = exp(−‖x − z‖² / (factor · width)²).

    Distances are computed from inner products, or from differences between samples where inner
    products would lose digits that matter to the kernel; equal samples have k(x, x) = 1 exactly,
    however narrow the kernel. Dense samples are centred first, so that an offset common to all
    costs nothing. Sparse ones are not, since they would lose their zeros: far from the origin, or
    with narrow kernels, most of their distances are computed the slower way.

    Parameters
    ----------
    width : float or {"median", "nearest", "learn"}, default="median"
        A number; ``"median"``, the median distance between two training samples; or ``"nearest"``,
        the mean distance from a training sample to its nearest neighbour, which is much narrower.
        Repeated samples count once in both. ``"learn"`` has it learned, from the median times
        `factor` on, by :class:`kernelmosaic.MKLRidgeCV` and
        :class:`kernelmosaic.MKLRidgeClassifierCV`; other estimators refuse it.
    factor : float, default=1.0
        Factor of the width: ``family(Gaussian(), factor=[1, 2, 4])`` is a family around the scale
        of the data.
    per_column : bool, default=False
        With ``width="learn"``, whether every column has its own width (automatic relevance
        determination): a column of large width does not matter.

    Attributes
    ----------
    width_ : float
        The width in use, the factor included, after `fit`.

    References
    ----------
    ``"nearest"`` is the rule of Gönen and Alpaydın (2011), "Regularizing multiple kernel learning
    using response surface methodology", eq. 9.

    Examples
    --------
    >>> from kernelmosaic.kernels import Gaussian
    >>> Gaussian(factor=2).fit([[0.0], [1.0], [4.0]]).width_
    6.0
    """

    statistic: ClassVar[str] = "squared_distances"
    power: ClassVar[int] = 2

    def draw_frequencies(self, n_columns: int, count: int, random: np.random.RandomState) -> Array:
        return np.asarray(np.sqrt(2.0) / self.width_ * random.standard_normal((n_columns, count)))


class Laplacian(Radial):
    """k(x, z) = exp(−‖x − z‖₁ / (factor · width)), with the sum of absolute differences for a
    distance.

    Compared with a Gaussian kernel it falls off faster near a sample and slower far from it, and
    one column that is far off counts less.

    Parameters
    ----------
    width : float or {"median", "nearest", "learn"}, default="median"
        A number; ``"median"``, the median distance between two training samples; or ``"nearest"``,
        the mean distance from a training sample to its nearest neighbour, which is much narrower.
        Repeated samples count once in both. ``"learn"`` has it learned, from the median times
        `factor` on, by :class:`kernelmosaic.MKLRidgeCV` and
        :class:`kernelmosaic.MKLRidgeClassifierCV`; other estimators refuse it.
    factor : float, default=1.0
        Factor of the width.
    per_column : bool, default=False
        As in :class:`Gaussian`.

    Attributes
    ----------
    width_ : float
        The width in use, the factor included, after `fit`.

    Examples
    --------
    >>> from kernelmosaic.kernels import Laplacian
    >>> Laplacian().fit([[0.0, 0.0], [1.0, 2.0]]).width_
    3.0
    """

    statistic: ClassVar[str] = "manhattan_distances"
    power: ClassVar[int] = 1

    def draw_frequencies(self, n_columns: int, count: int, random: np.random.RandomState) -> Array:
        return random.standard_cauchy((n_columns, count)) / self.width_
