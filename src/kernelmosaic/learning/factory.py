"""Learners made from the parameters of an estimator, which are checked here."""

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

#: Learners of one weight per kernel, by the names of an estimator's parameter `solver`. A family
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
    """How the weights of an estimator are learned.

    The attributes are its parameters of these names, but for those listed.

    Attributes
    ----------
    solvers : dict
        The learners that `solver` may name.
    learns_C : bool
        Whether C is learned with the weights.
    fixed : ndarray of shape (P,) or None
        Fixed weights of some kernels, whatever the others have; NaN for the others.
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
        Those of the estimator.
    stack : GramStack
        The kernels: their number, and for eigenvalue penalties their spectra.
    machines : sequence of Machine
        The machines to learn for, so that a solver that does not support them raises before any
        work is done.
    penalties : ndarray of shape (P,), optional
        Those that follow from the kernels; by default the ones that the parameters name.
    """
    # 1. Check the parameters of all learners.
    norm = make_norm(parameters.norm)
    learner_class = solver_class(parameters)
    max_iter = check_count("max_iter", parameters.max_iter)

    # 2. Weights that are given need no other learner.
    if parameters.weights is not None:
        return _learner_of_given_weights(parameters, stack)

    # 3. Check that the solver supports the norm and the machines.
    if parameters.fixed is not None:
        norm = BesideFixed(norm, parameters.fixed)
    learner_class.require(parameters.solver, norm)
    for machine in machines:
        learner_class.require(parameters.solver, machine=machine)

    # 4. Make its options, and the learner.
    if penalties is None:
        penalties = make_penalties(parameters.penalties, parameters.penalty_power, stack)
    options = LearnerOptions(norm, penalties, parameters.tol, max_iter, bool(parameters.verbose))
    if parameters.fixed is not None:
        # Fixed weights are no part of the norm, so they have no penalties. The norm tells kernels
        # apart by their positions, so the gradients of all of them are always computed.
        penalties = np.where(np.isnan(parameters.fixed), penalties, 1.0)
        options = replace(options, penalties=penalties, entering_fraction=0.0)
    if learner_class is EasyMKL:
        return EasyMKL(options, _read_lambda(parameters.easymkl_lambda))
    return learner_class(options)


def _learner_of_given_weights(parameters: Parameters, stack: GramStack) -> FixedWeights:
    """Return the learner that keeps the parameter `weights`, beside fixed weights if there are any.

    Penalties are checked although they have no effect.
    """
    if not isinstance(parameters.penalties, str):
        make_penalties(parameters.penalties, parameters.penalty_power, stack)
    if parameters.fixed is None:
        return FixedWeights(given_weights(parameters.weights, stack.n_kernels), parameters.tol)
    if not isinstance(parameters.weights, str) or parameters.weights != "uniform":
        raise ValueError(
            "fixed_weights needs weights=None (the others are learned) or weights='uniform'"
            f" (the others are equal), not weights={parameters.weights!r}."
        )
    is_free = np.isnan(parameters.fixed)
    weights = np.where(is_free, 1.0 / is_free.sum(), parameters.fixed)
    return FixedWeights(weights, parameters.tol)


def _read_lambda(value: Any) -> float:
    """Return the λ of EasyMKL, or raise a ValueError."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not 0 < value <= 1:
        raise ValueError(
            f"easymkl_lambda={value!r}: give a number above 0, near which the mixtures are the"
            " nearest points of the classes, up to 1, where they are the means."
        )
    return float(value)


def solver_class(parameters: Parameters) -> type[Learner]:
    """Return the learner that the parameter `solver` names, or raise an error with the names."""
    name = check_choice("solver", parameters.solver, parameters.solvers)
    if parameters.learns_C:
        if name != "newton":
            raise ValueError(f"C='learn' needs solver='newton', not solver={name!r}.")
        return LearnedC
    return parameters.solvers[name]
