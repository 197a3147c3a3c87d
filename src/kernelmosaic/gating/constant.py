"""The constant gating: a global combination."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gating.base import Array, Gating, softmax


class Constant(Gating):
    """η_m(x) = √θ_m with θ_m = exp(v_m) / Σ_h exp(v_h): the combined kernel is Σ_m θ_m k_m, the same for all samples.

    Learned, the θ are the weights of multiple kernel learning with Σ θ_m = 1.

    Parameters
    ----------
    weights : array-like of shape (P,), optional
        The θ_m to keep; None learns them.

    References
    ----------
    Gönen and Alpaydın (2008), "Localized multiple kernel learning", section 2: a gate that does not read its input.
    """

    def __init__(self, weights: Any = None) -> None:
        self.weights = weights

    def init(self, rng: np.random.RandomState, n_features: int, n_kernels: int) -> Array:
        if self.weights is None:
            return np.zeros((n_kernels, 1))
        if self._given().shape != (n_kernels,):
            raise ValueError(f"weights={self.weights!r}: constant gates need {n_kernels} numbers, one a kernel.")
        return np.zeros((n_kernels, 0))

    def values(self, V: Array, Z: Array) -> Array:
        theta = self._given() if self.weights is not None else softmax(V.T)[0]
        return np.tile(np.sqrt(theta), (Z.shape[0], 1))

    def vjp(self, V: Array, Z: Array, G: Array) -> Array:
        if self.weights is not None:
            return np.zeros_like(V)
        theta = softmax(V.T)
        # ∂√θ/∂θ = 1/(2√θ), and the softmax multiplies by θ: written so that θ = 0 does no harm.
        root = np.sqrt(theta)
        slope = 0.5 * root * G.sum(axis=0)
        return np.asarray((slope - theta * slope.sum()).T)

    def in_user_units(self, V: Array, mean: Array, scale: Array) -> dict[str, Any]:
        """Return ``weights`` (P,): the θ_m, squares of the gates."""
        return {"weights": self._given() if self.weights is not None else softmax(V.T)[0]}

    def _given(self) -> NDArray[np.float64]:
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.ndim != 1 or not np.all(np.isfinite(weights) & (weights >= 0)) or not np.any(weights > 0):
            raise ValueError(f"weights={self.weights!r}: give finite numbers, none negative and not all zero.")
        return weights
