"""From an estimator's parameters to a learner, with everything checked and named."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import KernelBank
from kernelmosaic.learning.base import Learner, Options
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import make_norm

SOLVERS: dict[str, type[Any]] = {"newton": Newton}


def make_learner(parameters: Any, bank: KernelBank) -> Learner:
    """Return the learner that an estimator's parameters ask for.

    Parameters
    ----------
    parameters : object
        With the attributes weights, norm, penalties, penalty_power, solver, tol, max_iter and verbose.
    bank : KernelBank
        The kernels: their number, and for eigenvalue penalties their spectra.
    """
    P = bank.n_kernels
    norm = make_norm(parameters.norm)
    if parameters.weights is not None:
        return FixedWeights(given_weights(parameters.weights, P), parameters.tol)
    if parameters.solver not in SOLVERS:
        raise ValueError(f"solver={parameters.solver!r}: choose one of {', '.join(map(repr, SOLVERS))}.")
    if isinstance(parameters.max_iter, bool) or not isinstance(parameters.max_iter, int | np.integer) or parameters.max_iter < 1:
        raise ValueError(f"max_iter={parameters.max_iter!r}: give a whole number of at least 1.")
    penalties = given_penalties(parameters.penalties, P)
    return SOLVERS[parameters.solver](
        Options(norm, penalties, parameters.tol, int(parameters.max_iter), bool(parameters.verbose))
    )


def given_weights(weights: Any, P: int) -> NDArray[np.float64]:
    """Return weights to keep: 1/P each for "uniform", else the given ones, checked."""
    if isinstance(weights, str):
        if weights != "uniform":
            raise ValueError(f"weights={weights!r}: give 'uniform', {P} numbers, or None to learn them.")
        return np.full(P, 1.0 / P)
    eta = _numbers("weights", weights, P)
    if np.any(eta < 0) or not np.any(eta > 0):
        raise ValueError(f"weights={weights!r}: weights must not be negative, nor all zero.")
    return eta


def given_penalties(penalties: Any, P: int) -> NDArray[np.float64]:
    """Return the d_m, checked; ones for None."""
    if penalties is None:
        return np.ones(P)
    d = _numbers("penalties", penalties, P)
    if np.any(d <= 0):
        raise ValueError(f"penalties={penalties!r}: every penalty must be positive.")
    return d


def _numbers(name: str, values: Any, P: int) -> NDArray[np.float64]:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={values!r}: give {P} numbers, one a kernel.") from None
    if array.shape != (P,):
        raise ValueError(f"{name} has shape {array.shape}, but there are {P} kernels: give one number a kernel.")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}={values!r}: NaN and infinity are not allowed.")
    return array
