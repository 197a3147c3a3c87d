"""How classes are assigned in the discriminant space: both rules are linear in the projections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.machines.discriminant import Discriminant, Projection

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class LinearRule:
    """Scores = projections · slopesᵀ + constants: one for two classes, positive for the second, else one a class."""

    slopes: Matrix
    constants: NDArray[np.float64]


def least_squares_rule(Z: Matrix, machine: Discriminant, projection: Projection) -> LinearRule:
    """Return the least-squares fit of the class indicators, with its intercept.

    The targets are these indicators, centred and scaled: h_i = √(n/n_i) (1[class i] − n_i/n), and a is n/(m₊m₋) times
    the same for the second class. Undoing that gives one score a class, summing to one; two classes share the fit of
    ±1.
    """
    counts, n = machine.counts, len(Z)
    # A = βC with the columns of C orthogonal, so the targets' own fit is Z times eigenvalues times Cᵀ.
    fit = projection.rotation * projection.eigenvalues
    if len(counts) == 2:
        return LinearRule(2.0 * counts[0] * counts[1] / n * fit, np.array([(counts[1] - counts[0]) / n]))
    return LinearRule(np.sqrt(counts / n)[:, np.newaxis] * fit, counts / n)


def centroid_rule(Z: Matrix, machine: Discriminant, projection: Projection) -> LinearRule:
    """Return the rule of the nearest class centroid: ⟨z, c_i⟩ − ½‖c_i‖² is largest where ‖z − c_i‖ is smallest."""
    member = np.eye(len(machine.counts))[machine.labels]
    centroids = member.T @ Z / machine.counts[:, np.newaxis]
    constants = -0.5 * np.sum(centroids**2, axis=1)
    if len(machine.counts) == 2:
        return LinearRule(np.diff(centroids, axis=0), np.diff(constants))
    return LinearRule(centroids, constants)


RULES: dict[str, Callable[[Matrix, Discriminant, Projection], LinearRule]] = {
    "least_squares": least_squares_rule,
    "centroid": centroid_rule,
}


def make_rule(decision: Any) -> Callable[[Matrix, Discriminant, Projection], LinearRule]:
    """Return the rule of that name, or raise naming the ones there are."""
    try:
        return RULES[decision]
    except (KeyError, TypeError):
        raise ValueError(f"decision={decision!r}: choose one of {', '.join(map(repr, RULES))}.") from None
