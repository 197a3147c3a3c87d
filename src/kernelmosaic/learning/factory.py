"""From an estimator's parameters to a learner, with everything checked and named."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelmosaic._typing import ArrayOrTensor
from kernelmosaic.gram import GramStack
from kernelmosaic.learning.certificate import certify, certify_classes
from kernelmosaic.learning.class_wise import ClassNewton, ProjectedGradient, QuasiNewton
from kernelmosaic.learning.fixed import Alignment, EasyMKL, FixedWeights, given_weights
from kernelmosaic.learning.formulations.conic import QCQP, SDP
from kernelmosaic.learning.formulations.discriminant import (
    DiscriminantApproximateSDP,
    DiscriminantKim,
    DiscriminantQCQP,
    DiscriminantSDP,
)
from kernelmosaic.learning.formulations.reduced_gradient import ReducedGradient
from kernelmosaic.learning.formulations.silp import SILP
from kernelmosaic.learning.generated import ColumnGeneration
from kernelmosaic.learning.learned_c import LearnedC, LearnedWithC, certify_with_C
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import WeightNorm, Weights, make_norm, make_penalties
from kernelmosaic.learning.problem import Learned, Learner, Options
from kernelmosaic.machines.base import check_count

#: Every way to learn one weight per kernel, by the name an estimator's `solver` gives it.
SOLVERS: dict[str, type[Any]] = {
    "newton": Newton,
    "reduced_gradient": ReducedGradient,
    "silp": SILP,
    "qcqp": QCQP,
    "sdp": SDP,
    "alignment": Alignment,
    "easymkl": EasyMKL,
}
#: The same with one weight per class and kernel, ...
CLASS_WISE: dict[str, type[Any]] = {
    "newton": ClassNewton,
    "quasi_newton": QuasiNewton,
    "projected_gradient": ProjectedGradient,
}
#: ... and for discriminant analysis, by the name an estimator's `solver` gives it.
FORMULATIONS: dict[str, type[Any]] = {
    "newton": Newton,
    "silp": SILP,
    "qcqp": DiscriminantQCQP,
    "sdp": DiscriminantSDP,
    "sdp_approximate": DiscriminantApproximateSDP,
    "kim": DiscriminantKim,
}
#: By family: the parameter that names a way to learn the weights, and the ways there are.
FAMILIES = {
    "plain": ("solver", SOLVERS),
    "class-wise": ("solver", CLASS_WISE),
    "discriminant": ("solver", FORMULATIONS),
}


@dataclass(frozen=True)
class Parameters:
    """How an estimator asks for its weights to be learned; the attributes are its parameters of these names.

    Attributes
    ----------
    solver : str
        The parameter that the family names so or otherwise.
    family : str
        One of `FAMILIES`.
    learns_C : bool
        Whether C is learned with the weights.
    """

    tol: float = 1e-3
    max_iter: Any = 100
    verbose: Any = False
    solver: Any = "newton"
    weights: ArrayOrTensor = None
    norm: Any = 1
    l1_ratio: Any = 0.5
    penalties: Any = None
    penalty_power: Any = 0.5
    learns_C: bool = False
    family: str = "plain"


def make_learner(
    parameters: Parameters, stack: GramStack, machines: Sequence[Any] = (), penalties: Weights | None = None
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
    penalties : ndarray of shape (P,), optional
        Those that follow from the kernels; by default the ones that the parameters name.
    """
    norm, learner = make_norm(parameters.norm, parameters.l1_ratio), solver_class(parameters)
    max_iter = check_count("max_iter", parameters.max_iter)
    if stack.is_implicit:
        _check_generated(parameters, norm)
        learner = ColumnGeneration
    if parameters.weights is not None:
        if not isinstance(parameters.penalties, str):
            make_penalties(parameters.penalties, parameters.penalty_power, stack)
        return FixedWeights(given_weights(parameters.weights, stack.n_kernels), parameters.tol)
    if parameters.learns_C and not norm.sums_to_one:
        raise ValueError(f"C='learn' serves norm=1, not {norm}; give C as a number.")
    learner.require(parameters.solver, norm)
    for machine in machines:
        learner.require(parameters.solver, machine=machine)
    if penalties is None:
        penalties = make_penalties(parameters.penalties, parameters.penalty_power, stack)
    return learner(Options(norm, penalties, parameters.tol, max_iter, bool(parameters.verbose)))


def certify_fit(stack: GramStack, sizes: Weights, machine: Any, learner: Learner, learned: Any) -> Learned:
    """Return what was learned with the objective and the gap that its weights and coefficients prove.

    `sizes`, of shape (P, n), are those of the numbers that the kernels' entries are made of.
    """
    if isinstance(learned, LearnedWithC):
        return certify_with_C(stack, sizes, machine, learner, learned)
    if learned.weights.ndim == 2:
        return certify_classes(stack, sizes, machine, learned)
    return certify(stack, sizes, machine, learner, learned)


def _check_generated(parameters: Parameters, norm: WeightNorm) -> None:
    """Raise a ValueError if kernels that are not stored are asked for what takes all of them at once."""
    asked = {
        f"{norm}": norm.sums_to_one,
        f"solver={parameters.solver!r}": parameters.solver == "newton",
        f"weights={reprlib.repr(parameters.weights)}": parameters.weights is None,
        f"penalties={parameters.penalties!r}": not isinstance(parameters.penalties, str),
        "C='learn'": not parameters.learns_C,
    }
    wrong = next((what for what, served in asked.items() if not served), None)
    if wrong is not None:
        raise ValueError(
            f"{wrong} needs all kernels at once, and those of Subsets(...) are not stored: use norm=1, "
            "solver='newton', weights=None, a number for C and no penalties by rule, or give a list of kernels."
        )


def solver_class(parameters: Parameters) -> type[Learner]:
    """Return the class that a solver's name stands for, or raise naming the ones there are."""
    (named, solvers), name = FAMILIES[parameters.family], parameters.solver
    if not isinstance(name, str) or name not in solvers:
        raise ValueError(f"{named}={name!r}: choose one of {', '.join(map(repr, solvers))}.")
    if parameters.learns_C:
        if name != "newton":
            raise ValueError(f"C='learn' is served by solver='newton', not by solver={name!r}.")
        return LearnedC
    return solvers[name]
