"""The Gaussian gating: every kernel has a place where it prevails."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmosaic.gating.base import Array, Gating, softmax, softmax_vjp


class GaussianGating(Gating):
    """η_m(x) = exp(−q_m(x)) / Σ_h exp(−q_h(x)) with q_m(x) = ½ Σ_d ((x_d − c_md) / w_md)².

    Every kernel has a centre c_m and widths w_m; a sample belongs to the kernels near it. Unlike softmax gates of
    linear scores, the regions may be closed. V holds the centres, then the logarithms of the widths.

    Parameters
    ----------
    scale : float, default=1.0
        Standard deviation of the random centres at the start, in standard deviations of the inputs.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def init(self, rng: np.random.RandomState, n_features: int, n_kernels: int) -> Array:
        if not 0 <= self.scale < np.inf:
            raise ValueError(f"scale={self.scale!r}: the spread of the first centres must be finite and not negative.")
        centres = rng.normal(scale=self.scale, size=(n_kernels, n_features))
        # Distances grow with the number of features; widths that grow alike keep the first gates soft.
        widths = np.full((n_kernels, n_features), 0.5 * np.log(max(n_features, 1)))
        return np.hstack([centres, widths])

    def values(self, V: Array, Z: Array) -> Array:
        centres, widths = self._split(V)
        inverse = widths**-2
        # Σ_d (z_d − c_d)² / w_d², multiplied out: nothing of shape (n, P, n_features).
        q = 0.5 * ((Z**2) @ inverse.T - 2.0 * Z @ (centres * inverse).T + np.sum(centres**2 * inverse, axis=1))
        return softmax(-q)

    def vjp(self, V: Array, Z: Array, G: Array) -> Array:
        centres, widths = self._split(V)
        # Slopes in −q.
        A = softmax_vjp(self.values(V, Z), G)
        total = A.sum(axis=0)[:, np.newaxis]
        first = A.T @ Z
        second = A.T @ Z**2
        in_centres = (first - total * centres) / widths**2
        in_log_widths = (second - 2.0 * centres * first + total * centres**2) / widths**2
        return np.hstack([in_centres, in_log_widths])

    def in_user_units(self, V: Array, mean: Array, scale: Array) -> dict[str, Any]:
        """Return ``centres`` and ``widths`` (P, n_features) in the units of the user's columns."""
        centres, widths = self._split(V)
        return {"centres": mean + scale * centres, "widths": scale * widths}

    @staticmethod
    def _split(V: Array) -> tuple[Array, Array]:
        half = V.shape[1] // 2
        return V[:, :half], np.exp(np.clip(V[:, half:], -50.0, 50.0))
