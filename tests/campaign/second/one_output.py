"""Machines with one output as printed: their losses, their duals, and both values at the returned
model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.campaign.second.ascent import Quadratic
from tests.campaign.second.bounds import FIRST_ORDER, SUMS, Bounds, over_weights, taken_by_weights
from tests.campaign.second.entries import Array, Long, U, applied, combined, summed
from tests.campaign.second.problems import OffsetProblem
from tests.campaign.second.training import Contradiction, Training, columns


@dataclass(frozen=True)
class _Machine:
    """One machine as printed: minimise ½‖w‖² + Σ loss_i(f(x_i)) + b total, and its dual.

    Attributes
    ----------
    target, lower, upper, ridge : ndarray of shape (n,)
        The dual: maximise ⟨t, β⟩ − ε‖β‖₁ − ½ Σ ρ β² − ½ βᵀKβ with lower ≤ β ≤ upper and Σβ = total.
    loss : callable
        From outputs to the losses of the samples.
    factor : float
        2 where the problem is printed without the factor ½.
    """

    target: Array
    lower: Array
    upper: Array
    ridge: Array
    loss: Callable[[Array], Array]
    epsilon: float = 0.0
    total: float = 0.0
    factor: float = 1.0


def one_output_bounds(problem: OffsetProblem, model: Any, data: Training) -> list[Bounds]:
    """Return both sides of the problem of every output, or of all together where they share their
    weights."""
    p, outputs = problem.parameters, len(data.beta)
    if np.isinf(p.get("C", 1.0)):
        return [_hard_margin(problem, model, data, c) for c in range(outputs)]
    machines = [_machine(problem, model, data, c) for c in range(outputs)]
    shared = outputs > 1 and model.weights_.ndim == 1
    groups = [list(range(outputs))] if shared else [[c] for c in range(outputs)]
    return [_one_problem(problem, model, data, machines, group) for group in groups]


def _machine(problem: OffsetProblem, model: Any, data: Training, c: int) -> _Machine:
    p, n, zero = problem.parameters, len(data), np.zeros(len(data), dtype=Long)
    two = p.get("slack", 1) == 2
    if problem.name == "MKLOneClass":
        C = data.weight / (Long(p["nu"]) * (1 if two else data.weight.sum()))
        bound = np.full(n, Long(np.inf)) if two else C
        loss = (
            (lambda f: C * np.maximum(-f, 0) ** 2 / 2) if two else (lambda f: C * np.maximum(-f, 0))
        )
        return _Machine(zero, zero, bound, 1 / C if two else zero, loss, total=1.0)
    C = Long(p["C"]) * data.weight
    if problem.name == "MKLRegressor":
        assert problem.y is not None
        return _regression(p, columns(problem.y)[data.rows, c].astype(Long), C)
    if problem.name == "MKLSurvival":
        assert problem.y is not None
        event, time = problem.y[data.rows].T
        # The library takes the logarithm in double precision, too.
        return _tube(np.log(time).astype(Long), C, p["epsilon"], two, np.where(event > 0, 1, 0))
    if problem.name == "PosteriorMKLClassifier":
        soft = (model.posteriors_[data.rows, 1] - model.posteriors_[data.rows, 0]).astype(Long)
        soft = np.where(abs(soft) > 1e-8, soft, 0)
        C = np.where(soft != 0, C / np.where(soft != 0, abs(soft), 1), 0)
        return _hinge(soft, C, two=False)
    assert problem.y is not None
    positive = model.classes_[c if len(model.classes_) > 2 else 1]
    labels = problem.y[data.rows]
    if p.get("class_weight") == "balanced":
        totals = {one: data.weight[labels == one].sum() for one in model.classes_}
        C = C * np.array([data.weight.sum() / (len(totals) * totals[one]) for one in labels])
    return _hinge(np.where(labels == positive, Long(1), Long(-1)), C, two)


def _hinge(t: Array, C: Array, two: bool) -> _Machine:
    """C max(0, |t| − sign(t) f), or ½ C of its square."""
    reach = np.full(len(t), Long(np.inf)) if two else C

    def loss(f: Array) -> Array:
        xi = np.maximum(abs(t) - np.sign(t) * f, 0)
        return C * xi**2 / 2 if two else C * xi

    lower, upper = np.where(t < 0, -reach, 0), np.where(t > 0, reach, 0)
    return _Machine(t, lower, upper, 1 / C if two else 0 * C, loss, factor=2.0 if two else 1.0)


def _regression(p: dict[str, Any], y: Array, C: Array) -> _Machine:
    if p["loss"] == "squared":
        return _tube(y, C, 0.0, True, 1)
    if p["loss"] == "epsilon":
        return _tube(y, C, p["epsilon"], p["slack"] == 2, 1)
    delta = Long(p["epsilon"])

    def huber(f: Array) -> Array:
        r = abs(y - f)
        near = r**2 / (2 * delta) if delta > 0 else r
        return C * np.where(r <= delta, near, r - delta / 2)

    return _Machine(y, -C, C, delta / C, huber)


def _tube(y: Array, C: Array, epsilon: float, two: bool, above: Any) -> _Machine:
    """C max(0, |y − f| − ε), or ½ C of its square; outputs above y cost nothing where `above` is
    0."""
    reach = np.full(len(y), Long(np.inf)) if two else C

    def loss(f: Array) -> Array:
        xi = np.maximum(np.maximum(y - f, above * (f - y)) - epsilon, 0)
        return C * xi**2 / 2 if two else C * xi

    lower = np.where(np.broadcast_to(above, y.shape) > 0, -reach, 0)
    return _Machine(
        y, lower, reach, 1 / C if two else 0 * C, loss, epsilon=epsilon, factor=2.0 if two else 1.0
    )


def _one_problem(
    problem: OffsetProblem, model: Any, data: Training, machines: list[_Machine], group: list[int]
) -> Bounds:
    """Return both sides of the problem of some outputs that share their weights."""
    p, n = problem.parameters, len(data)
    eta = np.atleast_2d(model.weights_).astype(Long)[group[0] if model.weights_.ndim == 2 else 0]
    K, zero = combined(eta, data.blocks), Long(0)
    quadratic, losses, linear, ridges, missed = zero, zero, zero, zero, zero
    off_quadratic, off_losses, off_linear, floor = zero, zero, zero, zero
    for c in group:
        machine, beta, b = machines[c], data.beta[c], Long(model.intercept_[c])
        missed += abs(b) * _check_feasible(machine, beta)
        f = applied(K, beta)
        lost, off = _lost(
            machine.loss, f.K + b, f.E + 2 * U * (abs(f.K) + abs(b) + abs(machine.target))
        )
        losses += lost + b * machine.total
        floor += _lost(machine.loss, f.K + b, U * (abs(f.K) + abs(b) + abs(machine.target)))[1]
        off_losses += off + U * abs(b) * machine.total
        quadratic += beta @ f.K / 2
        off_quadratic += abs(beta) @ f.E / 2 + summed(n) * (abs(beta) @ abs(f.K))
        linear += machine.target @ beta - machine.epsilon * abs(beta).sum()
        ridges += machine.ridge @ beta**2 / 2
        off_linear += summed(n) * (
            abs(machine.target) @ abs(beta) + machine.epsilon * abs(beta).sum() + ridges
        )
    fixed = "weights" in p or p.get("solver") in ("alignment", "easymkl", "sdp")
    taken, off_taken = (
        (quadratic, off_quadratic)
        if fixed
        else taken_by_weights(p, data, [data.beta[c] for c in group])
    )
    # A multiple of the coefficients, up to themselves, is feasible as well unless they have a sum
    # to meet.
    curved, share = taken + ridges, Long(1)
    if machines[group[0]].total == 0 and curved > 0:
        share = min(share, max(linear, zero) / (2 * curved))
    lower = share * linear - share**2 * curved - missed
    factor = Long(machines[group[0]].factor)
    upper, off_upper = quadratic + losses, off_quadratic + off_losses
    chosen = [machines[c] for c in group]

    def optimum() -> tuple[Any, Any] | None:
        found = _optimum(p, data, chosen, eta)
        return None if found is None else (factor * found[0], factor * found[1])

    off_lower = factor * (off_linear + off_taken)
    # That of a one-class machine is ½‖w‖² + Σ C ξ − ρ, which vanishes where the samples surround
    # the origin.
    terms = (
        quadratic
        + abs(losses)
        + sum(2 * abs(model.intercept_[c]) * machines[c].total for c in group)
    )
    off_upper, terms, floor = factor * off_upper, factor * terms, factor * floor
    return Bounds(
        factor * upper, factor * lower, off_upper, off_lower, fixed, terms, floor, optimum
    )


def _optimum(
    p: dict[str, Any], data: Training, machines: list[_Machine], eta: Array
) -> tuple[Any, Any] | None:
    """Return a lower and an upper bound on the optimum of machines that share their weights, by
    interior points."""
    n, tube = len(data), machines[0].epsilon > 0
    # Of a tube both sides count: β is the difference of two parts.
    parts = [(machine, sign) for machine in machines for sign in ((1, -1) if tube else (1,))]
    S = np.kron(
        np.eye(len(machines)), np.hstack([np.eye(n), -np.eye(n)] if tube else [np.eye(n)])
    ).astype(Long)
    linear = np.concatenate([sign * machine.target - machine.epsilon for machine, sign in parts])
    high = np.concatenate(
        [machine.upper if sign > 0 else -machine.lower for machine, sign in parts]
    )
    low = (
        np.zeros(len(high), dtype=Long)
        if tube
        else np.concatenate([machine.lower for machine in machines])
    )
    free = high > low
    S = S[:, free]
    frame = Quadratic(
        linear[free],
        low[free],
        high[free],
        S.T @ np.diag(np.concatenate([machine.ridge for machine in machines])) @ S,
        [],
        np.kron(np.eye(len(machines)), np.ones(n)).astype(Long) @ S,
        np.array([machine.total for machine in machines], dtype=Long),
    )

    def bounds(z: Array, weights: Array, y: Array) -> tuple[Any, Any]:
        K = combined(weights, data.blocks).K
        betas = (S @ z).reshape(len(machines), n)
        lower, upper = -taken_by_weights(p, data, list(betas))[0], Long(0)
        for machine, beta, b in zip(machines, betas, y, strict=True):
            f = K @ beta
            upper += beta @ f / 2 + machine.loss(f + b).sum() + b * machine.total
            lower += (
                machine.target @ beta
                - machine.epsilon * abs(beta).sum()
                - machine.ridge @ beta**2 / 2
            )
            lower -= abs(b) * abs(beta.sum() - machine.total)
        return lower, upper

    return over_weights(p, data, frame, S, len(machines), eta, bounds)


def _lost(loss: Callable[[Array], Array], f: Array, phi: Array) -> tuple[Any, Any]:
    """Return the sum of the losses, and by how much outputs that are off by φ move it."""
    here = loss(f)
    return here.sum(), (np.maximum(loss(f + phi), loss(f - phi)) - here).sum() + (
        summed(len(f)) + 4 * U
    ) * here.sum()


def _check_feasible(machine: _Machine, beta: Array) -> Any:
    """Raise unless the coefficients are within the box; return by how much they miss their sum."""
    room = 8 * U * np.maximum(abs(beta), 0)
    outside = np.maximum(beta - machine.upper, machine.lower - beta) - room
    if np.any(outside > 0):
        raise Contradiction(
            f"feasible: a coefficient is {float(outside.max()):.2g} beyond its bound"
        )
    missing = abs(beta.sum() - machine.total)
    # Coefficients that the last digit of a target makes, of a sample or two, are zero.
    finite = np.isfinite(machine.upper)
    largest = abs(machine.upper[finite]).max(initial=0)
    if not finite.all():
        largest = max(largest, 1 / machine.ridge[machine.ridge > 0].min(initial=1))
    if abs(beta).sum() <= 64 * U * largest:
        return missing
    if missing > SUMS * max(abs(beta).sum(), Long(machine.total)):
        raise Contradiction(
            f"feasible: the coefficients sum to {float(beta.sum()):.3g}, not to {machine.total:g}"
        )
    return missing


def _hard_margin(problem: OffsetProblem, model: Any, data: Training, c: int) -> Bounds:
    """min ½ (Σ d‖w‖)² subject to y f(x) ≥ 1: the function divided by its smallest margin meets the
    constraints."""
    p, n = problem.parameters, len(data)
    assert problem.y is not None
    positive = model.classes_[c if len(model.classes_) > 2 else 1]
    y = np.where(problem.y[data.rows] == positive, Long(1), Long(-1))
    eta, beta = np.atleast_2d(model.weights_).astype(Long)[c], data.beta[c]
    machine = _hinge(y, np.full(n, Long(np.inf)), two=False)
    missing = _check_feasible(machine, beta)
    f = applied(combined(eta, data.blocks), beta)
    quadratic = beta @ f.K / 2
    off_quadratic = abs(beta) @ f.E / 2 + summed(n) * (abs(beta) @ abs(f.K))
    b = Long(model.intercept_[c])
    margins = y * (f.K + b)
    at = int(np.argmin(margins))
    margin, off = margins[at], f.E[at] + 4 * U * (abs(f.K[at]) + abs(b))
    if not margin > 0:
        # Coefficients may be so large that the last digits of the kernels move outputs by more than
        # the margin. No sum in double precision knows the sign of these: a model has to say so by a
        # gap that bounds nothing, for which the runner asks a warning. Then no value is claimed.
        hidden = np.all(margins + FIRST_ORDER * (f.E + 4 * U * (abs(f.K) + abs(b))) > 0)
        if model.duality_gap_ < 1 or not hidden:
            found = f"the smallest margin is {float(margin):.3g}, rounding {float(off):.2g}"
            raise Contradiction(
                f"margin: C=inf, but {found}, duality_gap_={model.duality_gap_:.3g}"
            )
        return Bounds(quadratic, Long(0), Long(np.inf), Long(np.inf))
    upper = quadratic / margin**2
    fixed = "weights" in p or p.get("solver") in ("alignment", "easymkl", "sdp")
    taken, off_taken = (quadratic, off_quadratic) if fixed else taken_by_weights(p, data, [beta])
    linear = y @ beta
    lower = linear - taken - abs(b) * missing
    if taken > 0:  # the best multiple of the coefficients
        lower = max(lower, linear**2 / (4 * taken) - abs(b) * missing)
    off_upper = off_quadratic / margin**2 + 2 * upper * off / margin
    return Bounds(upper, lower, off_upper, off_taken + summed(n) * abs(beta).sum(), fixed=False)
