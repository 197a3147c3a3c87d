"""Gates: weights of the kernels that depend on the sample."""

from __future__ import annotations

from typing import Any

from kernelmosaic.gating.gates import Constant, Gating, GaussianGating, LinearGating, Sigmoid, Softmax

__all__ = ["Constant", "Gating", "GaussianGating", "LinearGating", "Sigmoid", "Softmax", "make_gating"]

#: Gatings by the name an estimator's `gating` gives them.
GATINGS: dict[str, type[Gating]] = {
    "softmax": Softmax,
    "sigmoid": Sigmoid,
    "constant": Constant,
    "gaussian": GaussianGating,
}


def make_gating(gating: Any) -> Gating:
    """Return the gating of that name, or the one given, or raise naming those there are."""
    if isinstance(gating, Gating):
        return gating
    if isinstance(gating, str) and gating in GATINGS:
        return GATINGS[gating]()
    raise ValueError(f"gating={gating!r}: choose one of {', '.join(map(repr, GATINGS))}, or give a Gating object.")
