"""The softmax gating: kernels compete for each sample."""

from __future__ import annotations

from kernelmosaic.gating.base import Array, LinearGating, scores, scores_vjp, softmax, softmax_vjp


class Softmax(LinearGating):
    """η_m(x) = exp(⟨v_m, x⟩ + v_m0) / Σ_h exp(⟨v_h, x⟩ + v_h0).

    The gates of a sample sum to one, and the regions where one kernel prevails are bounded by hyperplanes.

    Parameters
    ----------
    scale : float, default=1.0
        Standard deviation of the random scores at the start.

    References
    ----------
    Gönen and Alpaydın (2008), "Localized multiple kernel learning", eq. 3.
    """

    def values(self, V: Array, Z: Array) -> Array:
        return softmax(scores(V, Z))

    def vjp(self, V: Array, Z: Array, G: Array) -> Array:
        return scores_vjp(Z, softmax_vjp(self.values(V, Z), G))
