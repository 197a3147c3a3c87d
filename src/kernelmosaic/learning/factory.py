"""From an estimator's parameters to a learner, with everything checked and named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelmosaic._checks import check_choice, check_count
from kernelmosaic._typing import ArrayOrTensor
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.conic import QCQP, SDP
from kernelmosaic.learning.fixed import Alignment, EasyMKL, FixedWeights, given_weights
from kernelmosaic.learning.hard_margin import LearnedC
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import BesideFixed, Weights, make_norm, make_penalties
from kernelmosaic.learning.problem import Learner, LearnerOptions
from kernelmosaic.learning.simplex import SILP, ReducedGradient

#: Learners of one weight per kernel, by the name that an estimator's `solver` gives them. A family
#: with other learners has a table of its own, which its estimator hands over in
#: `Parameters.solvers`.
SOLVERS: dict[str, type[Learner]] = {
    "newton": Newton,
    "reduced_gradient": ReducedGradient,
    "silp": SILP,
    "qcqp": QCQP,
    "sdp": SDP,
    "alignment": Alignment,
    "easymkl": EasyMKL,
}


@dataclass(frozen=True)
class Parameters:
    """How an estimator's weights are learned; the attributes are its parameters of these names.

    Attributes
    ----------
    solvers : dict
        The learners that `solver` may name.
    learns_C : bool
        Whether C is learned with the weights.
    fixed : ndarray of shape (P,) or None
        Weights that kernels keep whatever the others have; NaN for the others.
    """

    tol: float = 1e-3
    max_iter: Any = 100
    verbose: Any = False
    solver: Any = "newton"
    weights: ArrayOrTensor = None
    norm: Any = 1
    penalties: Any = None
    penalty_power: Any = 0.5
    easymkl_lambda: Any = 0.1
    learns_C: bool = False
    fixed: Weights | None = None
    solvers: Mapping[str, type[Learner]] = field(default_factory=lambda: SOLVERS, repr=False)


def make_learner(
    parameters: Parameters,
    stack: GramStack,
    machines: Sequence[Any] = (),
    penalties: Weights | None = None,
) -> Learner:
    """Return the learner of an estimator's parameters.

    Parameters
    ----------
    parameters : Parameters
        What is asked for.
    stack : GramStack
        The kernels: their number, and for eigenvalue penalties their spectra.
    machines : sequence of Machine
        The machines to learn for, so that a solver that does not support them raises before any
        work is done.
    penalties : ndarray of shape (P,), optional
        Those that follow from the kernels; by default the ones that the parameters name.
    """
    norm, learner = make_norm(parameters.norm), solver_class(parameters)
    max_iter = check_count("max_iter", parameters.max_iter)
    if parameters.weights is not None:
        if not isinstance(parameters.penalties, str):
            make_penalties(parameters.penalties, parameters.penalty_power, stack)
        if parameters.fixed is None:
            return FixedWeights(given_weights(parameters.weights, stack.n_kernels), parameters.tol)
        if not isinstance(parameters.weights, str) or parameters.weights != "uniform":
            raise ValueError(
                "fixed_weights needs weights=None (the others are learned) or weights='uniform'"
                f" (the others are equal), not weights={parameters.weights!r}."
            )
        free = np.isnan(parameters.fixed)
        return FixedWeights(np.where(free, 1.0 / free.sum(), parameters.fixed), parameters.tol)
    if parameters.fixed is not None:
        norm = BesideFixed(norm, parameters.fixed)
    learner.require(parameters.solver, norm)
    for machine in machines:
        learner.require(parameters.solver, machine=machine)
    if penalties is None:
        penalties = make_penalties(parameters.penalties, parameters.penalty_power, stack)
    options = LearnerOptions(norm, penalties, parameters.tol, max_iter, bool(parameters.verbose))
    if parameters.fixed is not None:
        # Weights that are kept are no part of a norm, and the norm reads all kernels by their
        # places.
        options = replace(
            options, penalties=np.where(np.isnan(parameters.fixed), penalties, 1.0), near=0.0
        )
    if learner is EasyMKL:
        return EasyMKL(options, _read_lambda(parameters.easymkl_lambda))
    return learner(options)


def _read_lambda(value: Any) -> float:
    """Return the λ of EasyMKL, or raise."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not 0 < value <= 1:
        raise ValueError(
            f"easymkl_lambda={value!r}: give a number above 0, near which the mixtures are the"
            " nearest points of the classes, up to 1, where they are the means."
        )
    return float(value)


def solver_class(parameters: Parameters) -> type[Learner]:
    """Return the class of a solver's name, or raise naming the known ones."""
    name = check_choice("solver", parameters.solver, parameters.solvers)
    if parameters.learns_C:
        if name != "newton":
            raise ValueError(f"C='learn' needs solver='newton', not solver={name!r}.")
        return LearnedC
    return parameters.solvers[name]
