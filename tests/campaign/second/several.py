"""Machines with one output per class: one slack per sample or per pair, and the bilinear one."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.campaign.second.ascent import Quadratic, solved
from tests.campaign.second.bounds import SUMS, Bounds, over_weights, taken_by_weights
from tests.campaign.second.entries import Array, Entries, Long, U, applied, combined, summed
from tests.campaign.second.problems import OffsetProblem
from tests.campaign.second.training import Contradiction, Training, labels_of


def joint_bounds(problem: OffsetProblem, model: Any, data: Training) -> Bounds:
    p, n = problem.parameters, len(data)
    all_rows, k = np.arange(n), len(model.classes_)
    labels = labels_of(problem, model)[data.rows]
    pairwise = problem.name == "PosteriorMKLClassifier" or p["multi_class"] == "pairwise"
    margins = np.full((n, k), Long(2 if pairwise else 1))
    if problem.name == "PosteriorMKLClassifier":
        posteriors = model.posteriors_[data.rows].astype(Long)
        margins = 2 * (posteriors[all_rows, labels][:, np.newaxis] - posteriors)
    margins[all_rows, labels] = 0
    C = Long(p["C"]) * data.weight
    if p.get("class_weight") == "balanced":
        totals = np.array([data.weight[labels == c].sum() for c in range(k)])
        C = C * (data.weight.sum() / (k * totals))[labels]
    tau = data.beta.T
    missing = _check_joint(tau, labels, C, pairwise)
    b = model.intercept_.astype(Long)
    K = combined(model.weights_.astype(Long), data.blocks)
    quadratic, off_quadratic, f, phi = _all_classes([K] * k, tau, b)
    losses, off_losses = _behind(f, phi + 2 * U * abs(margins), margins, labels, C, pairwise)
    floor = _behind(f, U * (abs(f) + abs(b) + abs(margins)), margins, labels, C, pairwise)[1]
    fixed = "weights" in p
    linear = -(margins * tau).sum()
    taken, off_taken = (
        (quadratic, off_quadratic) if fixed else taken_by_weights(p, data, list(tau.T))
    )
    share = min(Long(1), max(linear, 0) / (2 * taken)) if taken > 0 else Long(1)
    lower = share * linear - share**2 * taken - abs(b) @ missing
    off_lower = off_taken + summed(n * k) * (abs(margins) * abs(tau)).sum()

    def optimum() -> tuple[Any, Any] | None:
        return _joint_optimum(p, data, margins, labels, C, pairwise, model.weights_.astype(Long))

    return Bounds(
        quadratic + losses,
        lower,
        off_quadratic + off_losses,
        off_lower,
        fixed,
        floor=floor,
        optimum=optimum,
    )


def _joint_optimum(
    p: dict[str, Any],
    data: Training,
    margins: Array,
    labels: Array,
    C: Array,
    pairwise: bool,
    eta: Array,
) -> tuple[Any, Any] | None:
    """Return a lower and an upper bound on the optimum, by interior points in τ, class by class."""
    n, k = margins.shape
    own = labels[:, np.newaxis] == np.arange(k)
    low = np.where(own, Long(0), -C[:, np.newaxis]).T.ravel()
    high = np.where(own, (k if pairwise else 1) * C[:, np.newaxis], Long(0)).T.ravel()
    samples = np.hstack([np.eye(n)] * k)
    # The last class's sum follows from the others.
    classes = np.kron(np.eye(k), np.ones(n))[:-1]
    rows = np.vstack([samples, classes]).astype(Long)
    sums, S = np.zeros(len(rows), dtype=Long), np.eye(n * k, dtype=Long)
    frame = Quadratic(
        -margins.T.ravel(), low, high, np.zeros((n * k, n * k), dtype=Long), [], rows, sums
    )

    def bounds(z: Array, weights: Array, y: Array) -> tuple[Any, Any]:
        tau, b = z.reshape(k, n).T, np.append(y[n:], Long(0))
        K = combined(weights, data.blocks)
        quadratic, _, f, phi = _all_classes([K] * k, tau, b)
        upper = quadratic + _behind(f, 0 * phi, margins, labels, C, pairwise)[0]
        lower = (
            -(margins * tau).sum()
            - taken_by_weights(p, data, list(tau.T))[0]
            - abs(b) @ abs(tau.sum(axis=0))
        )
        return lower - abs(f).max() * abs(tau.sum(axis=1)).sum(), upper

    return over_weights(p, data, frame, S, k, eta, bounds)


def _all_classes(Ks: list[Entries], tau: Array, b: Array) -> tuple[Any, Any, Array, Array]:
    """Return ½ Σ_c τ_cᵀKτ_c and how far it may be off, the outputs of all classes and how far these
    may be."""
    each = [applied(K, t) for K, t in zip(Ks, tau.T, strict=True)]
    quadratic = sum(t @ one.K / 2 for t, one in zip(tau.T, each, strict=True))
    off = sum(
        abs(t) @ one.E / 2 + summed(len(t)) * (abs(t) @ abs(one.K))
        for t, one in zip(tau.T, each, strict=True)
    )
    f, phi = np.array([one.K for one in each]).T + b, np.array([one.E for one in each]).T
    return quadratic, off, f, phi + 2 * U * (abs(f) + abs(b))


def _behind(
    f: Array, phi: Array, margins: Array, labels: Array, C: Array, pairwise: bool
) -> tuple[Any, Any]:
    """Return Σ C ξ with ξ the sum, or the largest, of max(0, margin + f_c − f_y), and how far it
    may be off."""
    all_rows = np.arange(len(f))

    def losses(extra: Array) -> Array:
        xi = np.maximum(margins + f - f[all_rows, labels][:, np.newaxis] + extra, 0)
        xi[all_rows, labels] = 0
        return C * (xi.sum(axis=1) if pairwise else xi.max(axis=1))

    here = losses(np.zeros_like(f))
    beyond = losses(phi + phi[all_rows, labels][:, np.newaxis])
    return here.sum(), (beyond - here).sum() + summed(len(f)) * here.sum()


def _check_joint(tau: Array, labels: Array, C: Array, pairwise: bool) -> Array:
    """Raise unless the coefficients of every sample are feasible; return by how much those of each
    class miss zero."""
    all_rows = np.arange(len(tau))
    own = tau[all_rows, labels]
    others = tau.copy()
    others[all_rows, labels] = 0
    room = 64 * U * np.maximum(abs(tau).max(axis=1), 0)
    if np.any(abs(tau.sum(axis=1)) > room * tau.shape[1]):
        raise Contradiction(
            f"feasible: a sample's coefficients sum to {float(abs(tau.sum(axis=1)).max()):.2g}"
        )
    if np.any(others.max(axis=1) > room) or np.any(own < -room):
        raise Contradiction("feasible: a coefficient has the wrong sign")
    if np.any(-others.min(axis=1) > C + room) or (not pairwise and np.any(own > C + room)):
        raise Contradiction("feasible: a coefficient is beyond its bound")
    missing = abs(tau.sum(axis=0))
    if np.any(missing > SUMS * abs(tau).sum()):
        raise Contradiction(
            f"feasible: the coefficients of a class sum to {float(missing.max()):.3g}, not to zero"
        )
    return missing


def bilinear_bounds(problem: OffsetProblem, model: Any, data: Training) -> Bounds:
    """½ Σ_c (‖w_c‖² + Σ_r d_cr) + κ Σ ξ; its dual is max Σ_i τ_iy with τ_cᵀK_rτ_c ≤ 1, τ_i ≤ κ e_y
    and Σ_c τ_ic = 0."""
    n, k = len(data), len(model.classes_)
    all_rows, labels = np.arange(n), labels_of(problem, model)[data.rows]
    C = Long(problem.parameters["kappa"]) * data.weight
    d = model.weights_.astype(Long)
    Ks = [combined(own, data.blocks) for own in d]
    margins = np.ones((n, k), dtype=Long)
    margins[all_rows, labels] = 0
    b = np.zeros(k, dtype=Long)
    quadratic, off, f, phi = _all_classes(Ks, data.beta.T, b)
    losses, off_losses = _behind(f, phi, margins, labels, C, pairwise=False)
    upper = quadratic + d.sum() / 2 + losses
    return Bounds(
        upper,
        _bilinear_dual(data, labels, C),
        off + off_losses + summed(d.size) * d.sum(),
        U * upper,
    )


def _bilinear_dual(data: Training, labels: Array, C: Array) -> Any:
    """Return the bound of the coefficients, each class's multiplied with the number that has a
    sample's sum to zero.

    The model shows the coefficients of a class divided by a number of its own, which leaves its
    outputs as they are.
    """
    tau, all_rows = data.beta.T, np.arange(len(data))
    used = np.flatnonzero(np.any(tau != 0, axis=0))
    if len(used) < 2:
        return Long(0)
    size = np.sqrt((tau[:, used] ** 2).sum(axis=0))
    V = tau[:, used] / size
    factors = _null_vector(V.T @ V) / size
    if not (np.all(factors > 0) or np.all(factors < 0)):
        return Long(0)
    scaled = np.zeros_like(tau)
    scaled[:, used] = tau[:, used] * abs(factors)
    # What is left of the sums is taken from the sample's own class.
    scaled[all_rows, labels] -= scaled.sum(axis=1)
    others = scaled.copy()
    others[all_rows, labels] = 0
    if others.max(initial=0) > 1e-12 * abs(scaled).max():
        return Long(0)
    forms = max((t @ block.K @ t for t in scaled.T for block in data.blocks), default=Long(0))
    own = scaled[all_rows, labels]
    largest = max((own / C).max(), np.sqrt(max(forms, Long(0))))
    return own.sum() / largest if largest > 0 else Long(0)


def _null_vector(M: Array) -> Array:
    """Return the eigenvector of the smallest eigenvalue of a positive semi-definite matrix by
    inverse iteration."""
    v = np.ones(len(M), dtype=Long)
    shifted = M + 1e-17 * np.trace(M) * np.eye(len(M), dtype=Long)
    for _ in range(20):
        v = solved(shifted, v[:, np.newaxis])[:, 0]
        v = v / np.sqrt(v @ v)
    return v
