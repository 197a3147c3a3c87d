"""Weights, ridge and scale of the least-squares machine by leave-one-out error or evidence.

The parameters are the logarithms of the weights η ≥ 0 (not normalised: their size against the ridge α is learned), of
α, and, for the log-loss of leave-one-out outputs, of the scale a. Weak priors keep them from running away. The problem
is not convex: `stationarity` says how level the end is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from kernelmosaic._typing import ArrayOrTensor, DType, RowIndex
from kernelmosaic.backend import Backend
from kernelmosaic.gram import GramStack
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.solvers.leave_one_out import (
    Array,
    RidgeSystem,
    class_loss,
    evidence,
    inverted,
    log_loss,
    squared_error,
    squared_loss,
)


@dataclass(frozen=True)
class RidgeOptions:
    """What a search may vary.

    Attributes
    ----------
    weight_prior, alpha_prior, scale_prior : float
        Strengths, in nats of the criterion: on log η about equal weights of sum one, on log α about `alpha_mean`, on
        log a about zero.
    alpha_mean : float
        Where the prior of log α is centred.
    first_alpha, first_scale : float
        log α and log a to start from.
    first_steps : int
        Steps from every start, of which the best is followed.
    range : tuple of float
        Least and largest logarithm: beyond, rounding hides what a parameter does.
    left_out_rows : int
        Most samples, evenly spread, whose leave-one-out errors are summed in features; all samples are learned from.
    """

    weight_prior: float = 0.2
    alpha_prior: float = 0.05
    scale_prior: float = 0.02
    alpha_mean: float = -1.0
    first_alpha: float = float(np.log(0.3))
    first_scale: float = 0.5
    first_steps: int = 5
    range: tuple[float, float] = (-20.0, 10.0)
    left_out_rows: int = 20_000

    def alpha_shifts(self, count: int) -> list[float]:
        """Return by how much log α of every start differs from that of the first: smaller and larger in turn."""
        return [0.0] + [float((-1) ** k * ((k + 1) // 2) * np.log(30.0)) for k in range(1, count)]


@dataclass(frozen=True)
class RidgeTargets:
    """Targets of the machine, and what judges its outputs.

    Attributes
    ----------
    Y : ndarray of shape (n, c)
        Numbers; ±1 for two classes; indicators of several.
    weight : ndarray of shape (n,)
        Of the samples.
    labels : ndarray of shape (n,) or None
        The classes, if the criterion is their log-loss.
    groups : sequence of ndarray or None
        Samples that are left out together.
    """

    Y: Array
    weight: Array
    labels: NDArray[np.intp] | None = None
    groups: Sequence[NDArray[np.intp]] | None = None

    @classmethod
    def of_numbers(cls, Y: Array, weight: Array) -> RidgeTargets:
        """Return targets of shape (n, c), those of all units alike."""
        mean = np.average(Y, axis=0, weights=weight)
        spread = np.sqrt(np.average((Y - mean) ** 2, axis=0, weights=weight))
        return cls((Y - mean) / np.where(spread > 0, spread, 1.0), weight)

    @classmethod
    def of_classes(cls, labels: NDArray[np.intp], weight: Array) -> RidgeTargets:
        """Return the targets of classes, which are numbered from 0."""
        indicators = np.eye(int(labels.max()) + 1)[labels]
        return cls(2.0 * indicators[:, 1:] - 1.0 if indicators.shape[1] == 2 else indicators, weight, labels)


@dataclass(frozen=True)
class RidgeLearned:
    """What was learned.

    Attributes
    ----------
    weights, alpha, scale : ndarray of shape (P,), float, float
        η, α and a.
    beta, intercept : ndarray of shape (n, c) and (c,)
        The machine.
    residuals : ndarray of shape (n, c)
        Of samples left out.
    value : float
        The criterion with its priors.
    stationarity : float
        The largest slope in the logarithms, per sample.
    history : list of float
        The values on the way.
    """

    weights: Array
    alpha: float
    scale: float
    beta: Array
    intercept: Array
    residuals: Array
    value: float
    stationarity: float
    history: list[float]


def learn_ridge(
    stack: GramStack,
    targets: RidgeTargets,
    *,
    criterion: str = "loo",
    alpha: float | None = None,
    weights: Array | None = None,
    tol: float = 1e-3,
    max_iter: int = 100,
    n_init: int = 1,
    options: RidgeOptions | None = None,
) -> RidgeLearned:
    """Minimise the criterion over the logarithms of weights, ridge and scale by quasi-Newton steps.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    targets : RidgeTargets
        Targets, weights and groups of the samples.
    criterion : {"loo", "evidence"}
        Leave-one-out error (squares; log-loss if there are labels), or evidence.
    alpha, weights : float, ndarray of shape (P,), optional
        Given ones are kept.
    tol : float
        The stationarity to stop at.
    max_iter : int
        Most steps.
    n_init : int
        Ridges to start from; the best after a few steps is followed.
    options : RidgeOptions
        Priors and start.

    Returns
    -------
    RidgeLearned
    """
    options = RidgeOptions() if options is None else options
    P = stack.n_kernels
    if isinstance(stack, FeatureStack):
        form: RidgeForm = FeatureForm(stack, targets, criterion, options.left_out_rows)
    else:
        form = MatrixForm(stack, targets, criterion)
    problem = RidgeProblem(form, P, criterion == "loo" and targets.labels is not None, options)
    start = np.concatenate([np.full(P, -np.log(P)), [options.first_alpha, options.first_scale]])
    free = np.ones(P + 2, dtype=bool)
    if weights is not None:
        with np.errstate(divide="ignore"):
            start[:P], free[:P] = np.log(weights), False
    if alpha is not None:
        start[P], free[P] = np.log(alpha), False
    free[P + 1] = problem.has_scale
    history: list[float] = []

    def value(x: Array) -> tuple[float, Array]:
        full = start.copy()
        full[free] = x
        found, slope = problem.value(full)
        history.append(found)
        return found, slope[free]

    def improve(x: Array, steps: int) -> Any:
        limits = {"maxiter": steps, "gtol": tol * float(targets.weight.sum()), "ftol": 1e-14}
        return minimize(value, x, jac=True, method="L-BFGS-B", bounds=[options.range] * len(x), options=limits)

    x = start.copy()
    if free.any():
        starts = [start.copy() for _ in range(n_init if free[P] else 1)]
        for one, shift in zip(starts, options.alpha_shifts(len(starts)), strict=True):
            one[P] += shift
        begun = [improve(one[free], options.first_steps if len(starts) > 1 else max_iter) for one in starts]
        best = min(begun, key=lambda one: float(one.fun))
        x[free] = best.x if len(starts) == 1 else improve(best.x, max_iter).x
    value_at_end, slope = problem.value(x)
    # A parameter at the end of its range is level where the slope leads out of it.
    slope = np.where(x <= options.range[0], np.minimum(slope, 0.0), slope)
    slope = np.where(x >= options.range[1], np.maximum(slope, 0.0), slope)
    machine = form.machine(np.exp(x[:P]), float(np.exp(x[P])))
    return RidgeLearned(
        weights=np.exp(x[:P]),
        alpha=float(np.exp(x[P])),
        scale=float(np.exp(x[P + 1])) if problem.has_scale else 1.0,
        beta=machine.beta,
        intercept=machine.intercept,
        residuals=machine.residuals,
        value=value_at_end,
        stationarity=float(np.abs(slope[free]).max(initial=0.0)) / float(targets.weight.sum()),
        history=history,
    )


@dataclass(frozen=True)
class Judged:
    """A criterion at given weights, ridge and scale, with its slopes in their logarithms."""

    value: float
    weights: Array
    alpha: float
    scale: float = 0.0


@dataclass(frozen=True)
class RidgeMachine:
    """The machine at given weights and ridge, and the residuals of samples left out."""

    beta: Array
    intercept: Array
    residuals: Array


class RidgeForm(Protocol):
    """What judges weights and ridge, and returns the machine in the end."""

    def judge(self, weights: Array, alpha: float, scale: float) -> Judged:
        """Return the criterion with its slopes."""

    def machine(self, weights: Array, alpha: float) -> RidgeMachine:
        """Return the machine."""


@dataclass(frozen=True)
class MatrixForm:
    """The criterion by matrices of all pairs of samples: n³ operations."""

    stack: GramStack
    targets: RidgeTargets
    criterion: str

    def judge(self, weights: Array, alpha: float, scale: float) -> Judged:
        t, ridge = self.targets, alpha / self.targets.weight
        system = self._system(weights, ridge)
        if self.criterion == "evidence":
            found = evidence(system, t.Y)
        elif t.labels is not None:
            found = log_loss(system, t.Y, t.labels, scale, t.weight, t.groups)
        else:
            found = squared_error(system, t.Y, t.weight, t.groups)
        slopes = weights * self._inner_products(found.G)
        return Judged(found.value, slopes, float(ridge @ np.diagonal(found.G)), float(found.own.sum()))

    def machine(self, weights: Array, alpha: float) -> RidgeMachine:
        system, Y = self._system(weights, alpha / self.targets.weight), self.targets.Y
        beta = system.A @ Y
        return RidgeMachine(beta, system.intercept(Y), system.residuals(beta, self.targets.groups))

    def _system(self, weights: Array, ridge: Array) -> RidgeSystem:
        return RidgeSystem.of(np.asarray(self.stack.combine(weights), dtype=np.float64), ridge)

    def _inner_products(self, G: Array) -> Array:
        """Return ⟨G, K_m⟩ of every kernel."""
        out, n = np.zeros(self.stack.n_kernels), self.stack.n_samples
        every = np.arange(self.stack.n_kernels)
        for strip in self.stack.row_strips(n):
            for m, block in self.stack.blocks(every, strip, slice(0, n)):
                out[m] += float(np.vdot(G[strip], block))
        return out


@dataclass(frozen=True)
class LeftOut:
    """Some samples in features: the rows T of Φ B, and I − Φ B Φᵀ diag(w) between those left out together.

    Attributes
    ----------
    T : array of shape (n, features)
        On the backend of the features.
    kept : ndarray of shape (n,), or list of ndarray
        The diagonal, or one block per group.
    """

    T: ArrayOrTensor
    kept: Array | list[Array]

    @property
    def starts(self) -> NDArray[np.intp]:
        """Where every group begins."""
        return np.cumsum([0, *map(len, self.kept[:-1])])

    def solve(self, right: Array) -> Array:
        """Return (I − Φ B Φᵀ diag(w))⁻¹ of every group times its part of the right-hand sides."""
        if isinstance(self.kept, np.ndarray):
            return np.asarray(right / self.kept[:, np.newaxis])
        parts = np.split(right, self.starts[1:])
        return np.concatenate([np.linalg.solve(one, part) for one, part in zip(self.kept, parts, strict=True)])

    def squares(self, left: Array, right: Array, backend: Backend, dtype: DType) -> Array:
        """Return the sum over the groups of Σ_c (T_Sᵀ left_S)_c (T_Sᵀ right_S)_c, one number per feature."""
        if isinstance(self.kept, np.ndarray):
            each = backend.asarray(np.sum(left * right, axis=1), dtype)
            return np.asarray(backend.to_numpy((self.T * self.T).T @ each))
        T = backend.to_numpy(self.T)
        sums = ([np.add.reduceat(T * one[:, np.newaxis], self.starts, axis=0) for one in x.T] for x in (left, right))
        return np.asarray(sum((a * b).sum(axis=0) for a, b in zip(*sums, strict=True)))


class FeatureForm:
    """The criterion by features K_m = Z_m Z_mᵀ: n r² operations, and r³ for the evidence once ZᵀZ is known.

    With Φ = [Z_m √η_m, 1], J = diag(1, …, 1, 0) and B = (Φᵀ diag(w) Φ + αJ)⁻¹, the outputs are Φ B Φᵀ diag(w) Y, and
    A = diag(w/α) (I − Φ B Φᵀ diag(w)), A Φ J = diag(w) Φ B J. The samples of `rows` stand for all in leave-one-out
    errors; every sample is learned from.
    """

    def __init__(self, stack: FeatureStack, targets: RidgeTargets, criterion: str, most_rows: int = 20_000) -> None:
        self.stack, self.targets, self.criterion = stack, targets, criterion
        Y, weight, n = targets.Y, targets.weight, stack.n_samples
        self.factors = stack.factors(np.ones(stack.n_kernels))
        self.normal = np.asarray(stack.backend.to_numpy(self.factors.normal_matrix(weight)), dtype=np.float64)
        weighted = weight[:, np.newaxis] * Y
        sums = np.asarray(stack.backend.to_numpy(self.factors.adjoint(weighted)), dtype=np.float64)
        self.right = np.vstack([sums, weighted.sum(axis=0)])
        self.square = float(np.sum(weighted * Y))
        self.kernel = np.repeat(np.arange(stack.n_kernels), stack.widths)
        self.groups = None if targets.groups is None else targets.groups[:: -(-n // most_rows)]
        some = np.unique(np.linspace(0, n - 1, min(n, most_rows)).astype(np.intp))
        self.rows = some if self.groups is None else np.concatenate(self.groups)

    def _solve(self, weights: Array, alpha: float) -> tuple[Array, Array, float]:
        """Return √η of every feature (one of the constant), B, and log det of its inverse."""
        root = np.append(np.sqrt(weights)[self.kernel], 1.0)
        S = root[:, np.newaxis] * self.normal * root
        inside = np.arange(len(S) - 1)
        S[inside, inside] += alpha
        return root, *inverted(S)

    def judge(self, weights: Array, alpha: float, scale: float) -> Judged:
        root, B, log_det = self._solve(weights, alpha)
        b = root[:, np.newaxis] * self.right
        theta = B @ b
        return (
            self._evidence(alpha, B, log_det, b, theta)
            if self.criterion == "evidence"
            else self._left_out(weights, alpha, scale, root, B, b, theta)
        )

    def _evidence(self, alpha: float, B: Array, log_det: float, b: Array, theta: Array) -> Judged:
        t = self.targets
        n, c = t.Y.shape
        R = len(B) - 1
        fit = (self.square - float(np.sum(b * theta))) / alpha
        s2 = fit / ((n - 1) * c)
        log_ridge = n * np.log(alpha) - float(np.log(t.weight).sum())
        total = log_ridge - (R + 1) * np.log(alpha) + log_det
        value = 0.5 * fit / s2 + 0.5 * c * total + 0.5 * (n - 1) * c * np.log(s2)
        own = 1.0 - alpha * np.diagonal(B)[:R]
        # W_mᵀ β = (Φᵀ A Y)_m = θ_m, as A W = diag(w) Φ B.
        per_feature = 0.5 * (c * own - np.sum(theta[:R] ** 2, axis=1) / s2)
        residual = (self.square - float(np.sum(b * theta)) - alpha * float(np.sum(theta[:R] ** 2))) / alpha
        slope = 0.5 * (c * (n - 1 - float(own.sum())) - residual / s2)
        return Judged(float(value), self._per_kernel(per_feature), slope)

    def _left_out(
        self, weights: Array, alpha: float, scale: float, root: Array, B: Array, b: Array, theta: Array
    ) -> Judged:
        t, rows, R = self.targets, self.rows, len(B) - 1
        backend, w, Y = self.stack.backend, self.targets.weight[self.rows], self.targets.Y[self.rows]
        scaled = backend.asarray(root[:, np.newaxis] * B, self.stack.dtype)
        found = self._strips(rows, self.groups, scaled, root)
        f = np.concatenate([backend.to_numpy(one.T @ backend.asarray(b, self.stack.dtype)) for _, one in found])
        r = np.concatenate([one.solve((Y - f)[place]) for place, one in found])
        # The samples of `rows` count for all.
        share = float(t.weight.sum() / w.sum())
        if t.labels is None:
            value, g, own = *squared_loss(r, share * w), 0.0
        else:
            value, g, own = class_loss(r, Y, t.labels[rows], scale, share * w)
        u = np.concatenate([one.solve((alpha / w[:, np.newaxis] * g)[place]) for place, one in found])
        weighted, moved_by = w[:, np.newaxis] * r, w[:, np.newaxis] * u
        squares, across = np.zeros(R + 1), np.zeros((R + 1, Y.shape[1]))
        for place, one in found:
            squares += one.squares(moved_by[place], weighted[place], backend, self.stack.dtype)
            across += backend.to_numpy(one.T.T @ backend.asarray(moved_by[place], self.stack.dtype))
        per_feature = squares[:R] - np.sum(across[:R] * theta[:R], axis=1)
        beta = (w / alpha)[:, np.newaxis] * (Y - f)
        # Σ ridge_i (A u)_i β_i = Σ u_i (β_i − w_i T_i Φᵀβ), where Φᵀβ is θ but for the constant, which is zero.
        moved = float(np.sum(u * beta)) - float(np.sum(across[:R] * theta[:R]))
        slope = float(np.sum(g * r)) - float(squares[:R].sum()) - moved
        return Judged(value, self._per_kernel(per_feature), slope, own)

    def _per_kernel(self, features: Array) -> Array:
        return np.bincount(self.kernel, features, self.stack.n_kernels).astype(np.float64)

    def _strips(
        self,
        rows: NDArray[np.intp] | None,
        groups: Sequence[NDArray[np.intp]] | None,
        scaled: ArrayOrTensor,
        root: Array,
    ) -> list[tuple[slice, LeftOut]]:
        """Return samples in parts, with their places: the given rows, by default all, or all of the given groups."""
        parts: list[tuple[RowIndex, Sequence[NDArray[np.intp]] | None]]
        if groups is None:
            parts = [(part, None) for part in self.stack.strips(rows)]
        else:
            ends = np.cumsum([len(S) for S in groups])
            most = max(self.stack.options.strip_bytes // (8 * len(scaled)), 1)
            cuts = np.flatnonzero(np.diff(ends // most)) + 1
            bundles = [groups[i:j] for i, j in pairwise([0, *cuts.tolist(), len(groups)])]
            parts = [(np.concatenate(bundle), bundle) for bundle in bundles]
        found, done = [], 0
        for part, bundle in parts:
            one = self._influence(part, bundle, scaled, root)
            found.append((slice(done, done + len(one.T)), one))
            done += len(one.T)
        return found

    def _influence(
        self, rows: RowIndex, groups: Sequence[NDArray[np.intp]] | None, scaled: ArrayOrTensor, root: Array
    ) -> LeftOut:
        """Return some samples in features; they are left out together in groups, if there are any."""
        backend, every, w = self.stack.backend, range(self.stack.n_kernels), self.targets.weight[rows]
        ends = np.cumsum(self.stack.widths)
        parts = [
            (slice(int(ends[m] - self.stack.widths[m]), int(ends[m])), Z)
            for m, Z in self.stack.placed_features(rows, every)
        ]
        T = sum(Z @ scaled[place] for place, Z in parts) + scaled[-1]
        if groups is None:
            placed = backend.asarray(root, self.stack.dtype)
            h = sum((T[:, place] * Z) @ placed[place] for place, Z in parts) + T[:, -1]
            return LeftOut(T, np.maximum(1.0 - w * np.asarray(backend.to_numpy(h), np.float64), np.finfo(float).eps))
        host = np.asarray(backend.to_numpy(T), dtype=np.float64)
        Phi = np.ones_like(host)
        for place, Z in parts:
            Phi[:, place] = backend.to_numpy(Z) * root[place]
        edges = pairwise(np.cumsum([0, *map(len, groups)]).tolist())
        return LeftOut(T, [np.eye(j - i) - host[i:j] @ Phi[i:j].T * w[i:j] for i, j in edges])

    def machine(self, weights: Array, alpha: float) -> RidgeMachine:
        t, backend = self.targets, self.stack.backend
        root, B, _ = self._solve(weights, alpha)
        theta = B @ (root[:, np.newaxis] * self.right)
        coefficients = root[:-1, np.newaxis] * theta[:-1]
        outputs = np.asarray(backend.to_numpy(self.factors.apply(coefficients)), dtype=np.float64) + theta[-1]
        scaled = backend.asarray(root[:, np.newaxis] * B, self.stack.dtype)
        missed = t.Y - outputs
        rows = np.arange(len(missed)) if t.groups is None else np.concatenate(t.groups)
        residuals = np.empty_like(missed)
        for place, one in self._strips(None, t.groups, scaled, root):
            residuals[rows[place]] = one.solve(missed[rows[place]])
        beta = (t.weight / alpha)[:, np.newaxis] * missed
        return RidgeMachine(beta, theta[-1], residuals)

    def covariance(self, weights: Array, alpha: float) -> Array:
        """Return α B in features that are not weighted: the variance of an output is φᵀ α B φ, φ = [z_m(x), 1]."""
        root, B, _ = self._solve(weights, alpha)
        return np.asarray(alpha * root[:, np.newaxis] * B * root)


class RidgeProblem:
    """The criterion with its priors, as a function of the logarithms of weights, ridge and scale."""

    def __init__(self, form: RidgeForm, n_kernels: int, has_scale: bool, options: RidgeOptions) -> None:
        self.form, self.n_kernels, self.has_scale, self.options = form, n_kernels, has_scale, options

    def value(self, x: Array) -> tuple[float, Array]:
        P, o = self.n_kernels, self.options
        found = self.form.judge(np.exp(x[:P]), float(np.exp(x[P])), float(np.exp(x[P + 1])))
        slope = np.concatenate([found.weights, [found.alpha, found.scale if self.has_scale else 0.0]])
        with np.errstate(invalid="ignore"):
            off = np.where(np.isfinite(x[:P]), x[:P] + np.log(P), 0.0)
        apart = np.concatenate([off, [x[P] - o.alpha_mean, x[P + 1]]])
        strength = np.concatenate([np.full(P, o.weight_prior), [o.alpha_prior, o.scale_prior * self.has_scale]])
        return found.value + float(strength @ apart**2), slope + 2.0 * strength * apart
