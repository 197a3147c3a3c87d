"""Kernels that are functions of the inner product or of a distance of two samples.

`Linear` and `Polynomial` read inner products, `Gaussian` and `Laplacian` distances. `RadialWidths`
is the Gram matrix of the latter as a function of their widths, for learning these.
"""

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
        # A copy, since the caller reads S for other kernels, and may scale the block in place.
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
        # The relative error of a power is that of the inner product times the degree.
        return self.degree * (super().entry_roundings(X) + 1.0)

    def from_statistic(self, S: Block) -> Block:
        base = S + float(self.offset)
        K: Block = backend_of(S).copy(base)
        # Multiplications are several times faster than NumPy's power, which treats every exponent
        # above 2 as a real number.
        for _ in range(self.degree - 1):
            K *= base
        return K

    def _check_parameters(self) -> None:
        check_count("degree", self.degree)
        is_number = isinstance(self.offset, Real) and not isinstance(self.offset, bool)
        if not is_number or not 0 <= self.offset < np.inf:
            raise ValueError(
                f"offset={self.offset!r}: the offset of a polynomial kernel must be a finite number"
                " of at least 0; with a negative one the kernel is not positive semi-definite."
            )


class Radial(StatisticKernel):
    """k(x, z) = exp(−(d(x, z) / (factor · width))^power) for a distance d.

    The statistic of the kernel is d^power.

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
        """Return the width times the factor; ``"median"`` and ``"nearest"`` are measured.

        Raises a ValueError if a parameter is wrong, or if the width is to be learned.

        Parameters
        ----------
        samples : FitSamples or None
            The training set; None if the width is known to be a number.
        """
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
            # The width of a single distinct sample is 0; its kernel is constant for every width.
            width = samples.width(self.width, self.statistic) or 1.0
            return float(self.factor) * width
        if not is_positive(self.width):
            raise ValueError(
                f"width={self.width!r}: give a positive, finite number, 'median', 'nearest' or"
                " 'learn'."
            )
        return float(self.factor) * float(self.width)

    def rate(self, dtype: DType) -> float:
        """Return the factor of the statistic in the exponent, −1/width^power.

        It is bounded by the range of the precision `dtype`. Raises a NotFittedError if the width
        must be measured first.
        """
        if not hasattr(self, "width_") and isinstance(self.width, str):
            raise NotFittedError(
                f"{self!r} learns its width from the training set: call fit first."
            )
        width = self.width_ if hasattr(self, "width_") else self.measure(None)
        inverse = 1.0 / width
        # Without the bound, 0 * inf would turn the diagonal of a very narrow kernel into NaN.
        return max(-math.prod([inverse] * self.power), float(np.finfo(dtype).min))

    def statistic_scale(self) -> float:
        rate = self.rate(np.float64)
        return -1.0 / rate if rate else np.inf

    def from_statistic(self, S: Block) -> Block:
        backend = backend_of(S)
        exponent = S * self.rate(backend.dtype(S))
        # The logarithm of the smallest normal number, plus one to spare.
        lowest = np.log(np.finfo(backend.dtype(exponent)).tiny) + 1
        if backend is NUMPY and exponent.size and exponent.min() < lowest:
            # Smaller numbers take a processor ten times as long, in this function and wherever
            # they are read: they are raised to the lowest normal number, which becomes zero.
            np.maximum(exponent, lowest, out=exponent)
            np.exp(exponent, out=exponent)
            exponent -= exponent.min()
            return exponent
        K: Block = backend.xp.exp(exponent, out=exponent)
        return K

    @abstractmethod
    def draw_frequencies(
        self, n_columns: int, count: int, random: np.random.RandomState
    ) -> Array: ...


class RadialWidths:
    """The Gram matrix of a radial kernel as a function of the logarithms of its widths.

    The kernel is exp(−Σ_d (|x_d − z_d| / ℓ_d)^power), with one width ℓ for all columns, or one for
    each column.

    Parameters
    ----------
    kernel : Radial
        With ``width="learn"``.
    X : array of shape (n, columns)
        Samples, of NumPy or torch.

    Attributes
    ----------
    unit : Radial
        The kernel of width one.
    per_column : bool
        Whether every column has a width.
    start : ndarray of shape (n_widths,)
        The logarithms of the widths at which learning starts: the median distance times the factor.
    X : array of shape (n, columns)
        The centred samples.
    """

    def __init__(self, kernel: Radial, X: ArrayOrTensor) -> None:
        self.unit = type(kernel)(width=1.0)
        self.per_column = kernel.per_column
        host_samples = backend_of(X).to_numpy(X)
        median = type(kernel)(factor=kernel.factor).measure(FitSamples(host_samples))
        n_widths = X.shape[1] if self.per_column else 1
        self.start = np.full(n_widths, np.log(median))
        self.X = X - X.mean(0)
        self._statistic = None if self.per_column else self._distances(self.X)

    def _distances(self, X: ArrayOrTensor) -> Block:
        """Return the statistic of the kernel between all rows of X."""
        return pairwise_statistic(self.unit.statistic, X, X, self.unit.statistic_scale())

    def matrix(self, log_widths: Array) -> Block:
        """Return the Gram matrix K, of shape (n, n)."""
        if self._statistic is None:
            return self.unit.from_statistic(self._distances(self._scaled(log_widths)))
        rate = float(np.exp(-self.unit.power * log_widths[0]))
        return self.unit.from_statistic(self._statistic * rate)

    def slopes(self, log_widths: Array, S: Block) -> Array:
        """Return the derivatives Σ_ij S_ij ∂ log K_ij / ∂ log ℓ, for a symmetric S.

        Let p be the power. With one width the derivative is p Σ_ij S_ij (d_ij/ℓ)^p. With a width
        per column and scaled samples Z, that of column c is p Σ_ij S_ij |Z_ic − Z_jc|^p.
        """
        p = self.unit.power
        if self._statistic is not None:
            total = float((S * self._statistic).sum())
            return np.array([p * float(np.exp(-p * log_widths[0])) * total])
        Z = self._scaled(log_widths)
        if p == 2:
            # Σ_ij S_ij (z_i − z_j)² = 2 (Σ_i (Σ_j S_ij) z_i² − zᵀSz)
            derivatives = (S.sum(1)[:, None] * Z * Z).sum(0) - (Z * (S @ Z)).sum(0)
            return np.asarray(2.0 * p * backend_of(self.X).to_numpy(derivatives))
        return np.array([p * float((S * abs(z[:, None] - z)).sum()) for z in Z.T])

    def _scaled(self, log_widths: Array) -> ArrayOrTensor:
        """Return the samples with every column divided by its width, in their precision."""
        backend = backend_of(self.X)
        return self.X * backend.asarray(np.exp(-log_widths), backend.dtype(self.X))


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
    """k(x, z) = exp(−‖x − z‖₁ / (factor · width)).

    The distance is the sum of absolute differences. Compared with a Gaussian kernel it falls off
    faster near a sample and slower far from it, and one column that is far off counts less.

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
