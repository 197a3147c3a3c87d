"""Views of images: their amplitudes under a bank of log-Gabor filters."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import ArrayOrTensor


def log_gabor(
    images: ArrayOrTensor,
    n_scales: int = 4,
    n_orientations: int = 6,
    wavelength: float = 3.0,
    bandwidth: float = 0.55,
    overlap: float = 1.5,
) -> dict[str, NDArray[np.float64]]:
    """Return images under every filter of a log-Gabor bank, one table per filter, as `fit` takes
    views.

    A filter multiplies the Fourier transform of an image at frequency ρ and angle φ by exp(−(log ρ
    λ_s)² / 2 (log bandwidth)²) · exp(−(φ − φ_o)² / 2 (π / (overlap · n_orientations))²), with
    wavelengths λ_s = wavelength · 2^s and orientations φ_o = π o / n_orientations; the amplitudes
    of what is left are returned. The mean of an image passes no filter.

    Parameters
    ----------
    images : array-like of shape (n, height, width)
        Images.
    n_scales, n_orientations : int, default=4 and 6
        Size of the bank.
    wavelength : float, default=3.0
        The shortest wavelength, in pixels.
    bandwidth : float, default=0.55
        Ratio of the deviation to the centre of a filter in frequency, in (0, 1): 0.55 is about two
        octaves.
    overlap : float, default=1.5
        Distance of neighbouring orientations, in deviations of a filter.

    Returns
    -------
    dict of str to ndarray of shape (n, height · width)
        Amplitudes, by names such as ``"6 px 30°"``.

    References
    ----------
    Field (1987), "Relations between the statistics of natural images and the response properties of
    cortical cells". Ye, Ji and Chen (2008) have four scales and six orientations, and do not state
    the constants.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.data import log_gabor
    >>> views = log_gabor(np.random.RandomState(0).standard_normal((5, 16, 16)))
    >>> len(views), views["3 px 0°"].shape
    (24, (5, 256))
    """
    images = np.asarray(images, dtype=np.float64)
    if images.ndim != 3 or not np.all(np.isfinite(images)):
        raise ValueError(
            f"images have the shape {images.shape}: give finite numbers of shape (n, height,"
            " width)."
        )
    if min(n_scales, n_orientations) < 1 or not (
        wavelength > 0 and 0 < bandwidth < 1 and overlap > 0
    ):
        raise ValueError(
            f"n_scales={n_scales!r}, n_orientations={n_orientations!r}, wavelength={wavelength!r},"
            f" bandwidth={bandwidth!r}, overlap={overlap!r}: all must be positive, and bandwidth"
            " below one."
        )
    down, across = np.meshgrid(*(np.fft.fftfreq(size) for size in images.shape[1:]), indexing="ij")
    radius, angle = np.hypot(down, across), np.arctan2(-down, across)
    radius[0, 0] = 1.0
    spectra, found = np.fft.fft2(images), {}
    for scale, place in product(range(n_scales), range(n_orientations)):
        ring = np.exp(
            -(np.log(radius * wavelength * 2.0**scale) ** 2) / (2 * np.log(bandwidth) ** 2)
        )
        ring[0, 0] = 0.0
        turn = np.angle(np.exp(1j * (angle - np.pi * place / n_orientations)))
        wedge = np.exp(-(turn**2) / (2 * (np.pi / n_orientations / overlap) ** 2))
        name = f"{wavelength * 2.0**scale:g} px {180 * place / n_orientations:g}°"
        found[name] = np.abs(np.fft.ifft2(spectra * ring * wedge)).reshape(len(images), -1)
    return found
