"""Discriminant analysis: its criteria, which the weights alone determine."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.campaign.second.ascent import Quadratic, maximise, solved
from tests.campaign.second.bounds import SUMS, Bounds
from tests.campaign.second.entries import Array, Long, U, applied, combined, summed
from tests.campaign.second.problems import OffsetProblem
from tests.campaign.second.training import Contradiction, Training

#: The share of a kernel's trace below which the library takes what centring leaves of it for
#: rounding.
_CONSTANT = 1e-12


def discriminant_bounds(problem: OffsetProblem, model: Any, data: Training) -> list[Bounds]:
    """Return both sides of Σ_j h_jᵀ(λI + Σ θ_i G̃_i)⁻¹h_j, which the weights alone determine."""
    p, n = problem.parameters, len(data)
    assert problem.y is not None
    labels = np.searchsorted(model.classes_, problem.y)
    counts = np.bincount(labels).astype(Long)
    H = _targets(labels, counts)
    theta, learned, lam = model.weights_.astype(Long), p["alpha"] == "learn", Long(model.alpha_)
    if np.any(theta < 0):
        raise Contradiction("weights: a weight is negative")
    kim = p["solver"] == "kim" and "weights" not in p
    lam = n * lam if kim else lam
    centring = np.eye(n, dtype=Long) - Long(1) / n
    Gs = [centring @ block.K @ centring for block in data.blocks]
    traces = np.array([np.trace(G) for G in Gs])
    sizes = np.array([np.trace(block.K) for block in data.blocks])
    nearly = (traces > _CONSTANT / 4 * sizes) & (traces < 4 * _CONSTANT * sizes)
    real = traces > _CONSTANT * sizes
    if nearly.any():
        return []
    _check_shares(p, data, theta, traces, real, n * lam if learned else Long(0), kim)
    if p["decision"] == "least_squares":
        _check_least_squares(model, data, counts)
    G = sum(t * one for t, one in zip(theta, Gs, strict=True))
    beta = solved(lam * np.eye(n, dtype=Long) + G, H)
    value = (H * beta).sum()
    K = combined(theta, data.blocks)
    off = Long(0)
    # A Cholesky factorisation of A has an error of a small multiple of n U √(A_ii A_jj) in its
    # entries.
    roots = np.sqrt(lam + np.diag(K.K))
    for column in beta.T:
        phi = applied(K, column).E + 4 * U * (lam * abs(column) + abs(G @ column))
        phi = 4 * (phi + summed(n) * roots * (roots @ abs(column)))
        off += 2 * abs(column) @ phi + phi @ phi / lam
    forms = np.array([sum(c @ one @ c for c in beta.T) for one in Gs])
    ratios = np.where(real, forms / np.where(real, np.ones_like(traces) if kim else traces, 1), 0)
    most = (
        max(ratios.max(), (beta**2).sum() / n) if learned else lam * (beta**2).sum() + ratios.max()
    )
    lower = value if "weights" in p else value**2 / most
    scale = Long(1) if learned else lam
    if p["solver"] == "sdp_approximate" and "weights" not in p:
        # Its optimum is that of one matrix inequality for all classes, which lies above.
        if not model.objective_ >= scale * (value - off):
            raise Contradiction(
                f"objective: objective_={model.objective_:.9g} is below {float(scale * value):.9g}"
            )
        return []
    if kim:
        m, c = Long(n), counts.prod() / counts.sum()
        within = lambda F: m * (1 / (c * F) - 1) / c  # noqa: E731
        slope = m / (c * scale * value) ** 2
        reached, bound = within(scale * value), within(scale * lower)
        return [_maximised(reached, bound, slope * scale * off)]

    def optimum() -> tuple[Any, Any] | None:
        kept = [G / r for G, r, varies in zip(Gs, traces, real, strict=True) if varies]
        found = _fractional_optimum(kept, H, lam, learned)
        return None if found is None else (scale * found[0], scale * found[1])

    return [
        Bounds(
            scale * value, scale * lower, scale * off, scale * off, "weights" in p, optimum=optimum
        )
    ]


def _fractional_optimum(
    Ns: list[Array], H: Array, lam: Any, learned: bool
) -> tuple[Any, Any] | None:
    """Return bounds on the least Σ_j h_jᵀ(λI + Σ s_i N_i)⁻¹h_j over s ≥ 0, Σ s_i = 1, by interior
    points."""
    n, k = H.shape
    matrices = [np.eye(n, dtype=Long) / n, *Ns] if learned else Ns
    ridge = Long(0) if learned else lam
    eye, N = np.eye(k, dtype=Long), n * k
    rows = np.kron(np.eye(k), np.ones(n)).astype(Long)
    found = maximise(
        Quadratic(
            2 * H.T.ravel(),
            np.full(N, Long(-np.inf)),
            np.full(N, Long(np.inf)),
            2 * ridge * np.eye(N, dtype=Long),
            [2 * np.kron(eye, one) for one in matrices],
            rows,
            np.zeros(k, dtype=Long),
        ),
        abs(H).max() / lam,
    )
    if found is None:
        return None
    shares = np.maximum(found[1], 0) / np.maximum(found[1], 0).sum()
    beta = found[0].reshape(k, n).T
    beta = beta - beta.mean(axis=0)
    most = max(sum(c @ one @ c for c in beta.T) for one in matrices) + ridge * (beta**2).sum()
    M = sum(share * one for share, one in zip(shares, matrices, strict=True)) + ridge * np.eye(
        n, dtype=Long
    )
    value = (H * solved(M + np.ones((n, n), dtype=Long) * np.trace(M) / n**2, H)).sum()
    return (H * beta).sum() ** 2 / most, value


def _maximised(value: Any, bound: Any, off: Any) -> Bounds:
    """Return the bounds of a problem that is maximised: the model has the value, nothing exceeds
    the bound."""
    return Bounds(value, value - max(bound - value, 0), off, off)


def _check_least_squares(model: Any, data: Training, counts: Array) -> None:
    """The fit of the class indicators, or of ±1, has a constant: its mean is theirs."""
    n = len(data)
    wanted = counts / n if len(counts) > 2 else np.array([(counts[1] - counts[0]) / n])
    K = combined(model.weights_.astype(Long), data.blocks)
    for c, (beta, b) in enumerate(zip(data.beta, model.intercept_.astype(Long), strict=True)):
        f = applied(K, beta)
        off = 8 * f.E.mean() + summed(n) * (abs(f.K).mean() + abs(b))
        if not abs(f.K.mean() + b - wanted[c]) <= off:
            raise Contradiction(
                f"rule: the outputs of class {c} have the mean {float(f.K.mean() + b):.9g}, the"
                f" indicators {float(wanted[c]):.9g}, rounding {float(off):.2g}"
            )


def _targets(labels: Array, counts: Array) -> Array:
    """Return a, with 1/m₊ and −1/m₋, or H with √(n/n_i) − √(n_i/n) in class i and −√(n_i/n)
    elsewhere."""
    n = Long(len(labels))
    if len(counts) == 2:
        return np.where(labels == 1, 1 / counts[1], -1 / counts[0])[:, np.newaxis]
    member = labels[:, np.newaxis] == np.arange(len(counts))
    return np.sqrt(n / counts) * member - np.sqrt(counts / n)


def _check_shares(
    p: dict[str, Any],
    data: Training,
    theta: Array,
    traces: Array,
    real: Array,
    identity: Any,
    kim: bool,
) -> None:
    """Hold the weights to Σ θ_i r_i = 1, or with Kim et al. Σ θ_i = 1, unless they are given."""
    given = p.get("weights")
    if isinstance(given, list):
        if not np.array_equal(theta, np.asarray(given)):
            raise Contradiction("weights: given weights were changed")
        return
    total = (theta[real].sum() if kim else theta @ np.where(real, traces, 0)) + identity
    off = sum(
        t * np.trace(block.E + summed(len(data)) * abs(block.K))
        for t, block in zip(theta, data.blocks, strict=True)
    )
    if abs(total - 1) > SUMS + 4 * off:
        raise Contradiction(f"weights: the traces sum to 1 + {float(total - 1):.3g}")
