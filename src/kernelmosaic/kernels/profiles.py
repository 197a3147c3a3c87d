"""Kernels between profiles, rows whose entries are one quantity in order or under many conditions."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from sklearn.utils import check_array

from kernelmosaic._typing import AnyArray, MatrixLike, TargetLike
from kernelmosaic.kernels.base import Block, Kernel, is_whole
from kernelmosaic.kernels.gaussian import Gaussian


class Correlation(Kernel):
    """k(x, z) = Pearson's correlation between the entries of x and those of z, as for two expression profiles.

    It is the inner product of the rows after each is centred and scaled to length one. A constant row has no direction
    left once it is centred: it stands for the zero vector, and its similarity to every sample, itself included, is 0.

    Examples
    --------
    >>> from kernelmosaic.kernels import Correlation
    >>> Correlation()([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0]]).round(6)
    array([[ 1.,  1., -1.],
           [ 1.,  1., -1.],
           [-1., -1.,  1.]])
    """

    def validate(self, X: MatrixLike) -> Any:
        return check_array(X, dtype=(np.float64, np.float32), ensure_min_features=2, input_name="X", estimator=self)

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        Z = _standardised(X)
        return np.asarray(Z @ (Z if Y is X else _standardised(Y)).T)

    def _diagonal(self, X: MatrixLike) -> NDArray[np.float64]:
        return np.asarray(X.max(axis=1) > X.min(axis=1), dtype=np.float64)


def _standardised(X: MatrixLike) -> Block:
    # Scaled first: squaring then neither overflows nor underflows, and a constant row, of ones now, is centred to exact
    # zeros; rounding of its mean would otherwise leave dust for the division by the length to blow up.
    largest = np.abs(X).max(axis=1, keepdims=True)
    Z = X / np.where(largest > 0, largest, 1)
    Z -= Z.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(Z, axis=1, keepdims=True)
    Z /= np.where(lengths > 0, lengths, 1)
    return np.asarray(Z)


class FFT(Kernel):
    """k(x, z) = exp(−‖s(x) − s(z)‖² / width²), s(x) the magnitudes of the Fourier transform of the profile x.

    Magnitudes forget where along the profile a pattern stands, and keep how often it repeats. Profiles, such as the
    hydropathy of a protein, are rows of one length: pad the shorter ones with zeros.

    Parameters
    ----------
    width : float or {"nearest", "median"}, default="median"
        The width of the Gaussian, as in `Gaussian`; a word is measured between the magnitudes of the training profiles.
    n_frequencies : int or None, default=None
        How many of the lowest frequencies to compare, the mean of the profile being the first; ``None`` for all.
        Fewer filter out the fast changes.

    Attributes
    ----------
    gaussian_ : Gaussian
        The fitted kernel between magnitudes.

    References
    ----------
    Lanckriet, De Bie, Cristianini, Jordan and Noble (2004), "A statistical framework for genomic data fusion".

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic.kernels import FFT
    >>> waves = np.sin(np.outer([1, 2], np.linspace(0, 2 * np.pi, 16, endpoint=False)))
    >>> K = FFT()(waves)
    >>> bool(K[0, 1] < K[0, 0])
    True
    """

    def __init__(self, width: float | str = "median", n_frequencies: int | None = None) -> None:
        self.width = width
        self.n_frequencies = n_frequencies

    def fit(self, X: MatrixLike, y: TargetLike = None) -> Self:
        self.gaussian_ = Gaussian(self.width).fit(self._magnitudes(self.validate(X)))
        return self

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        S = self._magnitudes(X)
        gaussian: Gaussian = self.__dict__.get("gaussian_") or Gaussian(self.width)
        return gaussian._block(S, S if Y is X else self._magnitudes(Y))

    def _diagonal(self, X: MatrixLike) -> NDArray[np.float64]:
        return np.ones(X.shape[0])

    def _magnitudes(self, X: MatrixLike) -> AnyArray:
        available, wanted = X.shape[1] // 2 + 1, self.n_frequencies
        if wanted is not None and not (is_whole(wanted) and wanted <= available):
            raise ValueError(
                f"n_frequencies={wanted!r}: give an integer from 1 to {available}, the number of frequencies of "
                f"profiles with {X.shape[1]} points, or None for all."
            )
        return np.asarray(np.abs(fft.rfft(X, axis=1)[:, :wanted]))
