"""From an estimator's parameters to a learner, with everything checked and named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.alignment import Alignment
from kernelmosaic.learning.base import Learner, Options
from kernelmosaic.learning.easymkl import EasyMKL
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.learned_c import LearnedC
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import make_norm
from kernelmosaic.learning.penalties import make_penalties, numbers
from kernelmosaic.learning.qcqp import QCQP
from kernelmosaic.learning.reduced_gradient import ReducedGradient
from kernelmosaic.learning.sdp import SDP
from kernelmosaic.learning.silp import SILP
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


def given_weights(weights: Any, P: int) -> NDArray[np.float64]:
    """Return weights to keep: 1/P each for "uniform", else the given ones, checked; a product is one kernel by now."""
    if isinstance(weights, str):
        if weights not in ("uniform", "product"):
            raise ValueError(f"weights={weights!r}: give 'uniform', 'product', {P} numbers, or None to learn them.")
        return np.full(P, 1.0 / P)
    eta = numbers("weights", weights, P)
    if np.any(eta < 0) or not np.any(eta > 0):
        raise ValueError(f"weights={weights!r}: weights must not be negative, nor all zero.")
    return eta
