"""Warnings that several kinds of repeated fits share."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from kernelmosaic.estimators._training_set import level_of_caller


def warn_of_gaps(what: str, gaps: NDArray[np.float64], tol: float, remedy: str) -> None:
    """Warn once of all fits whose relative duality gap is above `tol`, or is NaN."""
    loose = int(np.sum(~(gaps <= tol)))
    if loose:
        warnings.warn(
            f"{what}: {loose} of {len(gaps)} fits stopped above tol={tol:g}, the loosest at a relative duality gap of "
            f"{np.max(gaps):.2g}; {remedy}.",
            ConvergenceWarning,
            stacklevel=level_of_caller(),
        )
