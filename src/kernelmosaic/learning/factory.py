"""From an estimator's parameters to a learner, with everything checked and named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.base import Learner, Options
from kernelmosaic.learning.discriminant import DiscriminantLearner, DiscriminantNewton
from kernelmosaic.learning.fixed import FixedWeights, given_weights
from kernelmosaic.learning.formulations.discriminant_conic import (
    DiscriminantApproximateSDP,
    DiscriminantKim,
    DiscriminantSDP,
)
from kernelmosaic.learning.formulations.discriminant_qcqp import DiscriminantQCQP
from kernelmosaic.learning.formulations.discriminant_silp import DiscriminantSILP
from kernelmosaic.learning.formulations.qcqp import QCQP
from kernelmosaic.learning.formulations.reduced_gradient import ReducedGradient
from kernelmosaic.learning.formulations.sdp import SDP
from kernelmosaic.learning.formulations.silp import SILP
from kernelmosaic.learning.heuristics import Alignment, EasyMKL
from kernelmosaic.learning.learned_c import LearnedC
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import make_norm
from kernelmosaic.learning.penalties import make_penalties
from kernelmosaic.machines import Machine
from kernelmosaic.machines.base import check_count

#: Every way to learn the weights, by the name an estimator's `solver` gives it.
SOLVERS: dict[str, type[Any]] = {
    "newton": Newton,
    "reduced_gradient": ReducedGradient,
    "silp": SILP,
    "qcqp": QCQP,
    "sdp": SDP,
    "alignment": Alignment,
    "easymkl": EasyMKL,
}

#: Every way to learn discriminant weights, by the name an estimator's `formulation` gives it.
FORMULATIONS: dict[str, Callable[[float, int, bool], DiscriminantLearner]] = {
    "newton": DiscriminantNewton,
    "silp": DiscriminantSILP,
    "qcqp": DiscriminantQCQP,
    "sdp": DiscriminantSDP,
    "sdp_approximate": DiscriminantApproximateSDP,
    "kim": DiscriminantKim,
}


def make_learner(parameters: Any, stack: GramStack, machines: Sequence[Machine] = ()) -> Learner:
    """Return the learner that an estimator's parameters ask for.

    Parameters
    ----------
    parameters : object
        With the attributes weights, norm, penalties, penalty_power, solver, tol, max_iter and verbose.
    stack : GramStack
        The kernels: their number, and for eigenvalue penalties their spectra.
    machines : sequence of Machine
        What it will be asked to learn for, so that a solver that cannot serve them says so before any work is done.
    """
    norm, learner = make_norm(parameters.norm), _solver(parameters)
    max_iter = check_count("max_iter", parameters.max_iter)
    if parameters.weights is not None:
        if not isinstance(parameters.penalties, str):
            make_penalties(parameters.penalties, parameters.penalty_power, stack)
        return FixedWeights(given_weights(parameters.weights, stack.n_kernels), parameters.tol)
    if learner is LearnedC and parameters.norm != 1:
        raise ValueError(f"C={parameters.C!r} serves norm=1, not norm={parameters.norm!r}; give C as a number.")
    learner.require(parameters.solver, norm)
    for machine in machines:
        learner.require(parameters.solver, program=machine.program)
    penalties = make_penalties(parameters.penalties, parameters.penalty_power, stack)
    made: Learner = learner(Options(norm, penalties, parameters.tol, max_iter, bool(parameters.verbose)))
    return made


def _solver(parameters: Any) -> type[Any]:
    name = parameters.solver
    if not isinstance(name, str) or name not in SOLVERS:
        raise ValueError(f"solver={name!r}: choose one of {', '.join(map(repr, SOLVERS))}.")
    if isinstance(getattr(parameters, "C", None), str):
        if name != "newton":
            raise ValueError(f"C={parameters.C!r} is served by solver='newton', not by solver={name!r}.")
        return LearnedC
    return SOLVERS[name]


def make_discriminant_learner(formulation: str, tol: float, max_iter: int, verbose: bool) -> DiscriminantLearner:
    """Return the learner of that name, or raise naming the ones there are."""
    try:
        kind = FORMULATIONS[formulation]
    except (KeyError, TypeError):
        known = ", ".join(repr(name) for name in FORMULATIONS)
        raise ValueError(f"formulation={formulation!r}: choose one of {known}.") from None
    return kind(tol, max_iter, verbose)
