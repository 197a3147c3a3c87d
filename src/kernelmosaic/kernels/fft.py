"""The FFT kernel between profiles."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from kernelmosaic.kernels.base import Block, Kernel
from kernelmosaic.kernels.gaussian import Gaussian


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
    """

    def __init__(self, width: float | str = "median", n_frequencies: int | None = None) -> None:
        self.width = width
        self.n_frequencies = n_frequencies

    def fit(self, X: Any, y: Any = None) -> Self:
        self.gaussian_ = Gaussian(self.width).fit(self._magnitudes(self.validate(X)))
        return self

    def _block(self, X: Any, Y: Any) -> Block:
        S = self._magnitudes(X)
        gaussian: Gaussian = self.__dict__.get("gaussian_") or Gaussian(self.width)
        return gaussian._block(S, S if Y is X else self._magnitudes(Y))

    def _diagonal(self, X: Any) -> NDArray[np.float64]:
        return np.ones(X.shape[0])

    def _magnitudes(self, X: Any) -> NDArray[Any]:
        available, wanted = X.shape[1] // 2 + 1, self.n_frequencies
        if wanted is not None and (
            not isinstance(wanted, Integral) or isinstance(wanted, bool) or not 1 <= wanted <= available
        ):
            raise ValueError(
                f"n_frequencies={wanted!r}: give an integer from 1 to {available}, the number of frequencies of "
                f"profiles with {X.shape[1]} points, or None for all."
            )
        return np.asarray(np.abs(fft.rfft(X, axis=1)[:, :wanted]))
