"""From names to ways of learning discriminant weights."""

from __future__ import annotations

from collections.abc import Callable

from kernelmosaic.learning.discriminant import DiscriminantLearner
from kernelmosaic.learning.discriminant_conic import (
    DiscriminantApproximateSDP,
    DiscriminantKim,
    DiscriminantSDP,
)
from kernelmosaic.learning.discriminant_newton import DiscriminantNewton
from kernelmosaic.learning.discriminant_qcqp import DiscriminantQCQP
from kernelmosaic.learning.discriminant_silp import DiscriminantSILP

FORMULATIONS: dict[str, Callable[[float, int, bool], DiscriminantLearner]] = {
    "newton": DiscriminantNewton,
    "silp": DiscriminantSILP,
    "qcqp": DiscriminantQCQP,
    "sdp": DiscriminantSDP,
    "sdp_approximate": DiscriminantApproximateSDP,
    "kim": DiscriminantKim,
}


def make_discriminant_learner(formulation: str, tol: float, max_iter: int, verbose: bool) -> DiscriminantLearner:
    """Return the learner of that name, or raise naming the ones there are."""
    try:
        kind = FORMULATIONS[formulation]
    except (KeyError, TypeError):
        known = ", ".join(repr(name) for name in FORMULATIONS)
        raise ValueError(f"formulation={formulation!r}: choose one of {known}.") from None
    return kind(tol, max_iter, verbose)
