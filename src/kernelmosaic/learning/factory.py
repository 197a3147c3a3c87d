"""From an estimator's parameters to a learner, with everything checked and named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
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
from kernelmosaic.machines.multiclass import MulticlassMachine

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


@dataclass(frozen=True)
class Parameters:
    """How an estimator asks for its weights to be learned; the attributes are its parameters of these names.

    Attributes
    ----------
    learns_C : bool
        Whether C is learned with the weights.
    """

    weights: Any = None
    norm: Any = 1
    l1_ratio: Any = 0.5
    penalties: Any = None
    penalty_power: Any = 0.5
    solver: Any = "newton"
    learns_C: bool = False
    tol: float = 1e-3
    max_iter: Any = 100
    verbose: Any = False

    @classmethod
    def of(cls, estimator: Any) -> Parameters:
        """Return an estimator's; those that it does not have keep their defaults."""
        given = {one.name: getattr(estimator, one.name) for one in fields(cls) if hasattr(estimator, one.name)}
        return cls(**given, learns_C=isinstance(getattr(estimator, "C", None), str))


def make_learner(
    parameters: Parameters, stack: GramStack, machines: Sequence[Machine | MulticlassMachine] = ()
) -> Learner:
    """Return the learner that an estimator's parameters ask for.

    Parameters
    ----------
    parameters : Parameters
        What is asked for.
    stack : GramStack
        The kernels: their number, and for eigenvalue penalties their spectra.
    machines : sequence of Machine or MulticlassMachine
        What it will be asked to learn for, so that a solver that cannot serve them says so before any work is done.
    """
    norm, learner = make_norm(parameters.norm, parameters.l1_ratio), _solver(parameters)
    max_iter = check_count("max_iter", parameters.max_iter)
    if parameters.weights is not None:
        if not isinstance(parameters.penalties, str):
            make_penalties(parameters.penalties, parameters.penalty_power, stack)
        return FixedWeights(given_weights(parameters.weights, stack.n_kernels), parameters.tol)
    if parameters.learns_C and not norm.sums_to_one:
        raise ValueError(f"C='learn' serves norm=1, not {norm}; give C as a number.")
    learner.require(parameters.solver, norm)
    for machine in machines:
        learner.require(parameters.solver, machine=machine)
    penalties = make_penalties(parameters.penalties, parameters.penalty_power, stack)
    made: Learner = learner(Options(norm, penalties, parameters.tol, max_iter, bool(parameters.verbose)))
    return made


def _solver(parameters: Parameters) -> type[Any]:
    name = parameters.solver
    if not isinstance(name, str) or name not in SOLVERS:
        raise ValueError(f"solver={name!r}: choose one of {', '.join(map(repr, SOLVERS))}.")
    if parameters.learns_C:
        if name != "newton":
            raise ValueError(f"C='learn' is served by solver='newton', not by solver={name!r}.")
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
