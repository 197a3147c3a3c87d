"""Both sides of a training problem, and what learning the weights adds to the dual one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tests.campaign.second.ascent import Quadratic, maximise
from tests.campaign.second.entries import Array, Long, applied, summed
from tests.campaign.second.training import Training

#: Relative to the sizes added: how far coefficients and weights may be off the sums that they must
#: have. The library takes a sum for its total if it is off by 1e-12 of these.
SUMS = 4e-12
#: What the bounds on outputs leave out: they are of first order, and of sums in one order only.
FIRST_ORDER = 4
#: How often weights and coefficients take turns where the weights do not sum to one.
_TURNS = 12


@dataclass(frozen=True)
class Bounds:
    """Both sides of one training problem at the returned model.

    Attributes
    ----------
    upper, lower : long double
        The primal value of the model, and the bound that its coefficients prove.
    off_upper, off_lower : long double
        By how much rounding may have moved either.
    fixed : bool
        Whether the weights are given: then the stated gap is that of these coefficients. Where they
        are learned, the lower bound may be that of other coefficients.
    terms : long double
        The sum of the absolute terms of the primal value where they may cancel, as those of
        one-class machines.
    floor : long double
        By how much the last digit of outputs, targets and constants moves the losses.
    optimum : callable or None
        Returns bounds on the optimum that do not rest on the model, or None where none were found.
    """

    upper: Any
    lower: Any
    off_upper: Any
    off_lower: Any
    fixed: bool = False
    terms: Any = 0.0
    floor: Any = 0.0
    optimum: Callable[[], tuple[Any, Any] | None] | None = None

    @property
    def size(self) -> Any:
        """What the tolerance is a share of."""
        return max(abs(self.upper), abs(self.lower), self.terms)

    def excused(self, off: Any, gap: Any, tol: float) -> Any:
        """Return how much of an error by rounding a stated gap excuses."""
        return max(min(off, tol * self.size), self.floor) if gap <= tol else off


def penalties(p: dict[str, Any], P: int) -> Array:
    return np.asarray(p.get("penalties", np.ones(P)), dtype=Long)


def norm_of(p: dict[str, Any], theta: Array) -> Any:
    norm = p.get("norm", 1)
    return (theta ** Long(norm)).sum() ** (1 / Long(norm))


def _support(p: dict[str, Any], q: Array) -> Any:
    """Return the largest ⟨θ, q⟩ over θ ≥ 0 of norm at most one."""
    norm, top = p.get("norm", 1), q.max()
    if norm == 1 or not top > 0:
        return top
    dual = Long(norm) / (Long(norm) - 1)
    return top * ((q / top) ** dual).sum() ** (1 / dual)


def taken_by_weights(p: dict[str, Any], data: Training, betas: list[Array]) -> tuple[Any, Any]:
    """Return what the best weights take from the dual value, max ⟨θ, q⟩ with q_m = ½ Σ βᵀK_mβ /
    d_m², and its error."""
    d2, n = penalties(p, len(data.blocks)) ** 2, len(data)
    q, off = np.zeros(len(d2), dtype=Long), np.zeros(len(d2), dtype=Long)
    for beta in betas:
        for m, block in enumerate(data.blocks):
            own = applied(block, beta)
            q[m] += beta @ own.K / 2
            off[m] += abs(beta) @ own.E / 2 + summed(n) * (abs(beta) @ abs(own.K))
    return _support(p, np.maximum(q, 0) / d2), _support(p, off / d2)


def over_weights(
    p: dict[str, Any],
    data: Training,
    frame: Quadratic,
    S: Array,
    outputs: int,
    eta: Array,
    bounds: Callable[[Array, Array, Array], tuple[Any, Any]],
) -> tuple[Any, Any] | None:
    """Return the bounds at the best weights: in one go where they sum to one, else by turns with
    the coefficients.

    At weights θ the functions have norms g_m = θ_m √(2 q_m), for which θ_m ∝ g_m^(2/(1 + p)) is
    best.
    """
    d2, norm = penalties(p, len(data.blocks)) ** 2, p.get("norm", 1)
    eye, size = np.eye(outputs, dtype=Long), max(abs(data.beta).max(), Long(1e-30))
    forms = [
        S.T @ np.kron(eye, block.K / one) @ S for block, one in zip(data.blocks, d2, strict=True)
    ]
    if norm == 1:
        found = maximise(replace(frame, forms=forms), size)
        if found is None:
            return None
        theta = np.maximum(found[1], 0)
        return bounds(found[0], theta / theta.sum() / d2, found[2])
    theta, lower, upper = eta * d2, Long(-np.inf), Long(np.inf)
    for _ in range(_TURNS):
        combined = sum(t * form for t, form in zip(theta, forms, strict=True))
        found = maximise(replace(frame, forms=[combined]), size)
        if found is None:
            return None
        below, above = bounds(found[0], theta / d2, found[2])
        lower, upper = max(lower, below), min(upper, above)
        if upper - lower <= 1e-10 * max(abs(lower), abs(upper)):
            break
        norms = np.array(
            [
                t**2 * max(found[0] @ form @ found[0], 0)
                for t, form in zip(theta, forms, strict=True)
            ]
        )
        theta = norms ** (1 / (1 + Long(norm)))
        theta = theta / norm_of(p, theta)
    return lower, upper
