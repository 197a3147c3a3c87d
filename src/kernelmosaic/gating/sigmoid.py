"""The sigmoid gating: every kernel is switched on or off by itself."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from kernelmosaic.gating.base import Array, LinearGating, scores, scores_vjp


class Sigmoid(LinearGating):
    """η_m(x) = 1 / (1 + exp(−⟨v_m, x⟩ − v_m0)).

    Several kernels may be on for one sample, or none.

    Parameters
    ----------
    scale : float, default=1.0
        Standard deviation of the random scores at the start.

    References
    ----------
    Gönen (2010), thesis, "Localized multiple kernel learning: sigmoid gating".
    """

    def values(self, V: Array, Z: Array) -> Array:
        return np.asarray(expit(scores(V, Z)))

    def vjp(self, V: Array, Z: Array, G: Array) -> Array:
        eta = self.values(V, Z)
        return scores_vjp(Z, G * eta * (1.0 - eta))
