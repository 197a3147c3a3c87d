"""The dual programs behind all machines, of one output and of several classes.

A program is everything of a training problem but its kernel. It computes the primal and the dual
value of coefficients β whose outputs Kβ are known, the best intercept, and the nearest feasible
point. `certify` makes a `Solution` of them: coefficients with a bound of their error.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from math import fsum
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import Array, ArrayOrTensor, DType, Indices, RowIndex, TargetLike
from kernelmosaic.backend import NUMPY, Backend, backend_of
from kernelmosaic.solvers.tuning import (
    AT_BOUND,
    CLASS_SUM_ROUNDING,
    FIRST_CANDIDATE_STEP,
    MANY_SAMPLES,
    MAX_BALANCING_STEPS,
    MAX_CONSTANT_SWEEPS,
    MAX_SHIFT_STEPS,
    SPACED_SAMPLES,
    SUM_ROUNDING,
)

Vector = Array
Matrix = Array

#: The attributes of a program with one number per sample.
VECTORS = ("target", "lower", "upper", "ridge")


@dataclass(frozen=True)
class Program:
    """max ⟨t, β⟩ − ε‖β‖₁ − ½βᵀKβ − ½ Σ ρᵢβᵢ²  subject to  lower ≤ β ≤ upper and Σβ = total.

    Attributes
    ----------
    target : ndarray of shape (n,)
        The linear term t.
    lower, upper : ndarray of shape (n,)
        The box, which contains 0; infinite sides are allowed where `ridge` is positive.
    ridge : ndarray of shape (n,)
        The ρᵢ ≥ 0 added to the kernel's diagonal.
    epsilon : float
        Half-width ε of the insensitive tube.
    total : float or None
        The sum of the coefficients; None leaves the sum free, and the machine without an intercept.
    """

    target: Vector
    lower: Vector
    upper: Vector
    ridge: Vector
    epsilon: float = 0.0
    total: float | None = 0.0
    #: Whether any sample has a ridge, and whether every one has.
    has_ridge: bool = field(init=False, repr=False)
    has_ridge_everywhere: bool = field(init=False, repr=False)
    #: Whether the primal value is ½βᵀKβ + `losses`. Where it is not, `primal_value` must be called
    #: with arrays of this process.
    has_losses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # Stored, since reading a number of a vector on a device waits for the device.
        object.__setattr__(self, "has_ridge", bool(self.ridge.any()))
        object.__setattr__(self, "has_ridge_everywhere", bool((self.ridge > 0).all()))

    @property
    def n_samples(self) -> int:
        return len(self.target)

    def placed(self, backend: Backend) -> Program:
        """Return the program with its vectors on the device of a backend."""
        return self if backend is NUMPY else self.mapped(backend.asarray)

    def mapped(self, change: Callable[[Any], Any]) -> Self:
        """Return the program with `change(vector)` in place of each of its vectors."""
        return replace(self, **{name: change(getattr(self, name)) for name in VECTORS})

    def linear_value(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return the terms of the objective without the kernel: ⟨t, β⟩ − ε‖β‖₁ − ½Σρᵢβᵢ²."""
        return self._terms(beta, self.target).sum(-1)

    def conjugate_argmax(self, residual: ArrayOrTensor) -> ArrayOrTensor:
        """Return the uᵢ in the box that maximise uᵢrᵢ − ε|uᵢ| − ½ρᵢuᵢ², for residuals r."""
        xp = backend_of(residual).xp
        if not self.has_ridge:
            is_above_tube = residual > self.epsilon
            is_below_tube = residual < -self.epsilon
            return xp.where(is_above_tube, self.upper, xp.where(is_below_tube, self.lower, 0.0))
        excess = xp.sign(residual) * xp.clip(abs(residual) - self.epsilon, 0.0, None)
        with np.errstate(divide="ignore", invalid="ignore"):
            without_ridge = xp.where(excess == 0, 0.0, excess * np.inf)
            u = xp.where(self.ridge > 0, excess / self.ridge, without_ridge)
        return xp.clip(u, self.lower, self.upper)

    def losses(self, values: ArrayOrTensor, intercept: Any) -> ArrayOrTensor:
        """Return the primal objective of f + intercept less ½βᵀKβ, where values = Kβ."""
        residual = self.target - values - intercept
        return self._loss(self.conjugate_argmax(residual), residual, intercept)

    def _loss(self, u: ArrayOrTensor, residual: ArrayOrTensor, intercept: Any) -> ArrayOrTensor:
        """Return the sum of the losses by their maximisers u, plus intercept · total."""
        return self._terms(u, residual).sum(-1) + intercept * (self.total or 0.0)

    def _terms(self, u: ArrayOrTensor, residual: ArrayOrTensor) -> ArrayOrTensor:
        """Return uᵢrᵢ − ε|uᵢ| − ½ρᵢuᵢ² of every sample."""
        return u * residual - self.epsilon * abs(u) - 0.5 * self.ridge * u**2

    def primal_value(self, quadratic: float, values: Vector, intercept: float) -> float:
        """Return the primal objective of the machine f + intercept.

        Parameters
        ----------
        quadratic : float
            ½βᵀKβ.
        values : ndarray of shape (n,)
            Kβ.
        intercept : float
        """
        residual = self.target - values - intercept
        u = self.conjugate_argmax(residual)
        if not bool(backend_of(u).xp.isfinite(u).all()):
            return np.inf
        return require_finite(quadratic + float(self._loss(u, residual, intercept)))

    # Where β may move, by the residual t − Kβ − ρβ ------------------------------------------------

    def slopes(self, beta: ArrayOrTensor, residual: ArrayOrTensor) -> tuple[Any, Any]:
        """Return the derivatives of the objective as each βᵢ grows, and as each βᵢ shrinks.

        They differ at β = 0 where there is a tube. A coefficient that may not grow has −∞ in the
        first vector, one that may not shrink +∞ in the second.

        Parameters
        ----------
        beta : array of shape (n,)
        residual : array of shape (n,)
            t − Kβ − ρβ.
        """
        xp = backend_of(beta).xp
        e = self.epsilon
        rising = xp.where(beta < self.upper, residual - xp.where(beta >= 0, e, -e), -np.inf)
        falling = xp.where(beta > self.lower, residual - xp.where(beta > 0, e, -e), np.inf)
        return rising, falling

    def violation(self, highest: float, lowest: float) -> float:
        """Return the derivative along the steepest feasible step of one or two coefficients.

        Parameters
        ----------
        highest, lowest : float
            The largest derivative of a coefficient that grows, and the smallest of one that
            shrinks; see `slopes`.
        """
        if self.total is None:
            return max(highest, -lowest, 0.0)
        return max(highest - lowest, 0.0)

    def free(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return the numbers of the free samples: the objective is smooth on both sides of βᵢ."""
        inside = (beta > self.lower) & (beta < self.upper)
        if self.epsilon:
            inside = inside & (beta != 0)
        return backend_of(beta).nonzero(inside)

    def sign_limits(self, rows: RowIndex, beta: ArrayOrTensor) -> tuple[Any, Any]:
        """Return bounds of some coefficients within which none changes its sign.

        The derivative of the objective jumps at zero where there is a tube. Without one these are
        the bounds of the program.
        """
        xp = backend_of(beta).xp
        lower = self.lower[rows]
        upper = self.upper[rows]
        if not self.epsilon:
            return lower, upper
        lower = xp.where(beta > 0, xp.clip(lower, 0.0, None), lower)
        upper = xp.where(beta < 0, xp.clip(upper, None, 0.0), upper)
        return lower, upper

    def value_noise(self, beta: ArrayOrTensor, diagonal: ArrayOrTensor, dtype: DType) -> float:
        """Return the size that rounding may give to a dual value of zero; zero unless t = 0.

        With t = 0 the dual value is never positive, so zero is the best there is, and a one-class
        machine whose samples surround the origin reaches it. No relative gap to zero is ever small.

        Parameters
        ----------
        beta : array of shape (n,)
        diagonal : array of shape (n,)
            The diagonal of K.
        dtype : dtype
            The precision in which the entries of K are known.
        """
        if self.target.any():
            return 0.0
        eps = float(np.finfo(dtype).eps)
        return eps * float(np.sqrt(self.n_samples)) * float(diagonal @ beta**2)

    # Bounds of the value when Kβ is known up to rounding ------------------------------------------

    def worst_losses(self, values: Vector, intercept: float, error: Vector) -> Vector:
        """Return upper bounds of the samples' losses, where Kβ is `values` ± `error`.

        A loss is convex in its residual, so that it is largest at one of the two ends.
        """
        constant = self.target - intercept
        residual = constant - values
        # A difference is rounded relative to itself.
        error = error + sum_rounding(1) * (np.abs(constant) + np.abs(residual))
        ends = np.stack([residual + error, residual - error])
        u = self.conjugate_argmax(ends)
        with np.errstate(invalid="ignore", over="ignore"):
            terms = self._terms(u, ends)
        return np.asarray(np.where(np.isfinite(u), terms, np.inf).max(axis=0))

    def primal_bound(
        self, quadratic: float, values: Vector, intercept: float, error: Vector
    ) -> float:
        """Return an upper bound of the primal objective of f + intercept.

        Kβ is between `values` − `error` and `values` + `error`.
        """
        constant = intercept * (self.total or 0.0)
        losses = float(self.worst_losses(values, intercept, error).sum())
        rounding = sum_rounding(self.n_samples) * (quadratic + losses + abs(constant))
        return quadratic + losses + constant + rounding

    def linear_bound(self, beta: Vector, intercept: float) -> float:
        """Return a lower bound of `linear_value` for a β with rounding errors.

        A sum that misses the total by δ moves the dual value by δ times the multiplier of the
        constraint, which is the intercept: |intercept| |δ| is subtracted.
        """
        size = float(
            (np.abs(self.target) + self.epsilon) @ np.abs(beta) + 0.5 * self.ridge @ beta**2
        )
        missed = 0.0
        if self.total is not None:
            missed = abs(intercept) * abs(fsum([*beta.tolist(), -self.total]))
        return float(self.linear_value(beta)) - sum_rounding(self.n_samples) * size - missed

    # The intercept --------------------------------------------------------------------------------

    def best_intercept(self, values: ArrayOrTensor, near: float | None = None) -> float:
        """Return the intercept that minimises the primal objective, given Kβ.

        It is the middle of the interval of `optimal_intercepts`, its one finite end if the other is
        infinite, and zero if both are.
        """
        interval = self.optimal_intercepts(values, near)
        ends = [end for end in interval if np.isfinite(end)]
        return float(np.mean(ends)) if ends else 0.0

    def optimal_intercepts(
        self, values: ArrayOrTensor, near: float | None = None
    ) -> tuple[float, float]:
        """Return the first and the last intercept that minimise the primal objective, given Kβ.

        With zᵢ = tᵢ − (Kβ)ᵢ and u of `conjugate_argmax`, the objective has the derivative
        total − S(b) at the intercept b, where S(b) = Σ uᵢ(zᵢ − b). S never rises with b. The
        optimal intercepts are those at which it passes the total, an interval:

            first = sup {b : S(b) > total},    last = inf {b : S(b) < total}.

        S changes at the samples for which zᵢ − b is at the edge of the tube, ±ε, or, where they
        have a ridge, between the edge and ±ε + ρᵢ times the bound. At the solution these are the
        free samples: βᵢ = uᵢ is between its bounds, so that b = zᵢ ∓ ε − ρᵢβᵢ. Where such a sample
        exists, first and last are the same. Where there is none, S equals the total from one bend
        of the losses to the next, and these two are the ends; an end is infinite if no sample bends
        there. Without a constraint on the sum the machine has no intercept: both ends are zero.

        Parameters
        ----------
        values : array of shape (n,)
            Kβ, where the vectors of the program are.
        near : float, optional
            A guess of the intercept, where the search starts.

        References
        ----------
        Brucker (1984), "An O(n) algorithm for quadratic knapsack problems".
        """
        if self.total is None:
            return 0.0, 0.0
        z = self.target - values

        # 1. Of many samples, only those are searched whose u may bend near the optimum. The u of
        #    all others are added to S as a number, or as a line.
        undecided = self._undecided(z, near)
        program = undecided.program
        z = undecided.z

        # 2. The knots are the intercepts, in order, at which some u bends: an edge of the tube, and
        #    the other end of the line that begins there. Between two of them S is linear.
        edges = np.concatenate([z - program.epsilon, z + program.epsilon])
        line_ends = edges
        if program.has_ridge:
            lengths = [program.ridge * program.upper, program.ridge * program.lower]
            line_ends = edges - np.concatenate(lengths)
        interval = [-np.inf, np.inf, undecided.low, undecided.high]
        knots = np.unique(np.concatenate([edges, line_ends, interval]))
        if len(knots) == 2:  # outputs have overflown
            return -np.inf, np.inf
        inner = 0.5 * (knots[1:-2] + knots[2:-1])
        middles = np.concatenate([[knots[1] - 1.0], inner, [knots[-2] + 1.0]])
        segments = range(len(middles))

        excess = program._excess_by_segment(undecided, knots, middles)

        def fall_rate(segment: int) -> float:
            """Return −dS/db within a segment."""
            if not program.has_ridge:
                return undecided.fall_rate
            u = program.conjugate_argmax(z - middles[segment])
            moving = (program.ridge > 0) & (u != 0) & (u > program.lower) & (u < program.upper)
            return float((1.0 / program.ridge[moving]).sum()) + undecided.fall_rate

        # 3. The first segment in which S is not above the total, in steps that double from a guess.
        guess = len(segments) // 2 if near is None else int(np.searchsorted(knots[1:-1], near))
        lowest = guess
        highest = guess
        step = 1
        while lowest > 0 and excess(lowest) <= 0:
            lowest = max(lowest - step, 0)
            step *= 2
        while highest < len(segments) and excess(highest) > 0:
            highest = min(highest + step, len(segments))
            step *= 2
        first = bisect_left(segments, 0.0, lowest, highest, key=lambda segment: -excess(segment))

        # 4. Where S equals the total in a whole segment, the interval ends with the last such one.
        is_flat = first < len(segments) and excess(first) == 0 and not fall_rate(first)
        if is_flat:
            end = bisect_right(segments, 0.0, first, key=lambda segment: -excess(segment))
            return float(knots[first]), float(knots[end])

        # 5. Else S passes the total on the line of a segment, or where it jumps between two.
        for segment in segments[max(first - 1, 0) : first + 1]:
            rate = fall_rate(segment)
            if rate <= 0:
                continue
            root = middles[segment] + excess(segment) / rate
            if knots[segment] <= root <= knots[segment + 1]:
                return float(root), float(root)
        return float(knots[first]), float(knots[first])

    def _excess_by_segment(
        self, undecided: Undecided, knots: Vector, middles: Vector
    ) -> Callable[[int], float]:
        """Return a function from the number of a segment to S − total in its middle.

        It is a method of the program of the undecided samples. An excess that may be rounding is
        zero.

        Parameters
        ----------
        undecided : Undecided
            These samples, and what all others add to S.
        knots : ndarray of shape (segments + 1,)
            The ends of the segments.
        middles : ndarray of shape (segments,)
            An intercept within each.
        """
        z = undecided.z
        if self.has_ridge or undecided.fall_rate:

            @cache
            def excess(segment: int) -> float:
                u = self.conjugate_argmax(z - middles[segment])
                settled_sum = undecided.fall_rate * float(undecided.reference - middles[segment])
                return self.excess_sum(u, settled_sum, undecided.size)

            return excess

        # Without a ridge samples are at their upper bound, zero or their lower bound: cumulative
        # sums of the bounds, by z, give S in all segments at once.
        order = np.argsort(z)
        upper_sums = np.append(np.cumsum(self.upper[order][::-1])[::-1], 0.0)
        lower_sums = np.append(0.0, np.cumsum(self.lower[order]))
        # The ends of a segment are compared, not its middle: where the ends are neighbouring
        # numbers, the middle rounds to one of them.
        at_upper = upper_sums[np.searchsorted(z[order] - self.epsilon, knots[:-1], "right")]
        at_lower = lower_sums[np.searchsorted(z[order] + self.epsilon, knots[1:])]
        excesses = at_upper + at_lower - (self.total or 0.0)
        excesses[np.abs(excesses) <= SUM_ROUNDING * (at_upper - at_lower + undecided.size)] = 0.0
        excess_list: list[float] = excesses.tolist()
        return excess_list.__getitem__

    def _undecided(self, z: ArrayOrTensor, near: float | None) -> Undecided:
        """Return the samples that decide the best intercept, and the sum of all others.

        These are the samples whose u may bend near the optimal intercepts.

        All samples are left undecided where they are few and on the host.

        Parameters
        ----------
        z : array of shape (n,)
            t − Kβ.
        near : float or None
            A guess of the intercept; None takes that of evenly spaced samples.
        """
        backend = backend_of(z)
        if len(z) <= MANY_SAMPLES and backend is NUMPY:
            return Undecided(self, z)

        # 1. The intercept of evenly spaced samples, each of which stands for its neighbours, is
        #    about the best one of all.
        spaced = backend.index(np.arange(0, len(z), max(len(z) // SPACED_SAMPLES, 1)))
        z_spaced = backend.to_numpy(z[spaced])
        reference = near
        if reference is None:
            subsample = self.subsampled(spaced)
            reference = subsample.best_intercept(subsample.target - z_spaced)

        # 2. Intercepts at which one of the spaced samples bends are tried on both sides of it, in
        #    steps that double, until S is above the total below and under it above.
        candidates = np.sort(np.concatenate([z_spaced - self.epsilon, z_spaced + self.epsilon]))
        n_candidates = len(candidates)
        middle = int(np.searchsorted(candidates, reference))

        def excess(candidate: int) -> float:
            return self.excess_sum(self.conjugate_argmax(z - candidates[candidate]))

        step = FIRST_CANDIDATE_STEP
        below = middle - step
        while below >= 0 and excess(below) <= 0:
            below -= step
            step *= 2
        step = FIRST_CANDIDATE_STEP
        above = middle + step
        while above < n_candidates and excess(above) >= 0:
            above += step
            step *= 2
        low = float(candidates[below]) if below >= 0 else -np.inf
        high = float(candidates[above]) if above < n_candidates else np.inf

        # 3. Samples are settled if no bend of their u is between `low` and `high`: u is zero in the
        #    tube, on the line of the ridge, or a bound.
        upper_edge = z - self.epsilon
        lower_edge = z + self.epsilon
        upper_end = upper_edge
        lower_end = lower_edge
        settled = (upper_edge < low) & (lower_edge > high)
        fall_rate = 0.0
        if self.has_ridge:
            upper_end = upper_edge - self.ridge * self.upper
            lower_end = lower_edge - self.ridge * self.lower
            is_positive = (upper_end <= low) & (upper_edge >= high)
            is_negative = (lower_edge <= low) & (lower_end >= high)
            on_line = (is_positive | is_negative) & (self.ridge > 0)
            fall_rate = float((1.0 / self.ridge[on_line]).sum())
            settled |= on_line
        settled |= (upper_end > high) | (lower_end < low)

        # 4. The sum of the settled u at the reference is taken off the total of the others.
        u = self.conjugate_argmax(z - reference)[settled]
        rows = backend.nonzero(~settled)
        return Undecided(
            program=self.take(rows, self.target[rows], (self.total or 0.0) - float(u.sum())),
            z=backend.to_numpy(z[rows]),
            low=low,
            high=high,
            reference=reference,
            fall_rate=fall_rate,
            size=float(abs(u).sum()),
        )

    def excess_sum(
        self, u: ArrayOrTensor, settled_sum: float = 0.0, settled_size: float = 0.0
    ) -> float:
        """Return Σu + settled_sum − total, or zero if that may be rounding.

        Rounding is relative to the sizes of the numbers summed: Σ|u| and `settled_size`, the size
        of the terms of `settled_sum`.
        """
        excess = float(u.sum() - (self.total or 0.0)) + settled_sum
        size = float(abs(u).sum()) + settled_size
        is_rounding = np.isfinite(size) and abs(excess) <= SUM_ROUNDING * size
        return 0.0 if is_rounding else excess

    # Feasible points and related programs ---------------------------------------------------------

    def feasible(self, beta: Vector) -> Vector:
        """Return the point of the feasible set nearest to beta.

        The nearest point maximises ⟨β, u⟩ − ½‖u‖²: a program without a kernel, which its intercept
        solves.
        """
        self.require_feasible()
        # Far away β is known only to its own rounding: a second round corrects the sum of the
        # first.
        for _ in range(2):
            clipped = np.clip(beta, self.lower, self.upper)
            if self.total is None or self.excess_sum(clipped) == 0:
                return clipped
            nearest = replace(self, target=beta, ridge=np.ones(self.n_samples), epsilon=0.0)
            shift = nearest._shift_by_newton(beta)
            if shift is None:
                shift = nearest.best_intercept(np.zeros(self.n_samples))
            beta = np.clip(beta - shift, self.lower, self.upper)
        return beta

    def _shift_by_newton(self, z: Vector) -> float | None:
        """Return the shift at which Σu(z − shift) is the total, or None where Newton steps fail.

        The sum is piecewise linear: once no bend lies between, one Newton step is exact. None is
        returned where the sum is flat, or after `MAX_SHIFT_STEPS` steps.
        """
        shift = 0.0
        low = -np.inf
        high = np.inf
        for _ in range(MAX_SHIFT_STEPS):
            u = self.conjugate_argmax(z - shift)
            excess = self.excess_sum(u)
            moving = (u != 0) & (u > self.lower) & (u < self.upper)
            fall_rate = float((1.0 / self.ridge[moving]).sum())
            if not fall_rate:
                return None
            if not excess:
                return float(shift)
            if excess > 0:
                low = shift
            else:
                high = shift
            shift += excess / fall_rate
            if not low < shift < high:
                shift = 0.5 * (low + high)
            if not low < shift < high:
                # The last digit of the shift moves the sum by more than the sum's own rounding.
                return float(shift) if np.isfinite(shift) else None
        return None

    def continued(self, beta: Vector, before: Program) -> Vector:
        """Return a start near the solution β of the program `before`, which has other bounds.

        A coefficient that was at a bound of `before` is put at the same bound of this program.
        """
        moved = np.where((beta >= before.upper) & (beta > 0), self.upper, beta)
        moved = np.where((beta <= before.lower) & (beta < 0), self.lower, moved)
        return np.clip(np.where(np.isfinite(moved), moved, beta), self.lower, self.upper)

    def subsampled(self, rows: RowIndex) -> Program:
        """Return the program of some samples, each of which stands for n / len(rows) samples."""
        repeats = self.n_samples / len(rows)
        subsample = self.take(rows, self.target[rows], self.total)
        return replace(
            subsample,
            lower=repeats * subsample.lower,
            upper=repeats * subsample.upper,
            ridge=subsample.ridge / repeats,
        )

    def take(self, rows: RowIndex, target: TargetLike, total: float | None) -> Program:
        """Return the program of some samples with another target and total, on the host."""
        fetch = backend_of(self.target).to_numpy
        return replace(
            self,
            target=fetch(target),
            lower=fetch(self.lower[rows]),
            upper=fetch(self.upper[rows]),
            ridge=fetch(self.ridge[rows]),
            total=total,
        )

    def spread(self, rows: RowIndex, n_samples: int) -> Program:
        """Return a program of `n_samples` samples; those of this one have the numbers `rows`.

        All other samples have the bounds zero: no coefficient, and so no loss.
        """

        def spread_vector(numbers: Vector, fill: float = 0.0) -> Vector:
            vector = np.full(n_samples, fill)
            vector[rows] = numbers
            return vector

        # Where some samples have a ridge, those without a coefficient may have any; one keeps
        # `has_ridge_everywhere`.
        fill_of_ridge = float(self.has_ridge)
        return replace(
            self,
            target=spread_vector(self.target),
            lower=spread_vector(self.lower),
            upper=spread_vector(self.upper),
            ridge=spread_vector(self.ridge, fill_of_ridge),
        )

    @property
    def is_feasible(self) -> bool:
        """Whether some β within the box sums to the total."""
        if self.total is None:
            return True
        slack = 0.5 * SUM_ROUNDING * abs(self.total)
        return bool(self.lower.sum() - slack <= self.total <= self.upper.sum() + slack)

    def require_feasible(self) -> None:
        """Raise a ValueError unless some β within the box sums to the total."""
        if not self.is_feasible:
            raise ValueError(
                f"No β is feasible: the bounds let the sum range from {self.lower.sum():g} to"
                f" {self.upper.sum():g}, the total is {self.total:g}."
            )


class Undecided(NamedTuple):
    """Samples that decide the best intercept, on the host; all others are settled.

    A sample is settled if its u of `Program.conjugate_argmax` is linear in the intercept between
    `low` and `high`.

    Attributes
    ----------
    program : Program
        The program of the undecided samples. Its total is that of all samples less the u of the
        settled ones at `reference`.
    z : ndarray of shape (n_undecided,)
        Their t − Kβ.
    low, high : float
        Intercepts between which the optimal ones are.
    reference : float
        An intercept between the two.
    fall_rate : float
        By how much the sum of the settled u falls as the intercept grows by one.
    size : float
        Σ|u| of the settled samples.
    """

    program: Program
    z: Vector
    low: float = -np.inf
    high: float = np.inf
    reference: float = 0.0
    fall_rate: float = 0.0
    size: float = 0.0


class Movable(NamedTuple):
    """The arrays that steps of one or two coefficients read and change; of shape (n,).

    Attributes
    ----------
    beta, residual : ndarray
        The coefficients, and t − Kβ − ρβ; changed in place.
    rising, falling : ndarray
        `residual + rising` is the derivative of the objective as β grows, `residual + falling` as
        it shrinks; infinite where β may not move so (`Program.slopes`). Changed in place.
    diagonal : ndarray
        The diagonal of K + diag ρ.
    ridge, lower, upper : ndarray
        ρ and the bounds of the program.
    epsilon : float
        ε of the program.
    keys, bits : ndarray of shape (STRIP,)
        Memory for the numbers that compiled steps compare in a strip, and the same memory read as
        integers.
    """

    beta: Vector
    residual: Vector
    rising: Vector
    falling: Vector
    diagonal: Vector
    ridge: Vector
    lower: Vector
    upper: Vector
    epsilon: float
    keys: Vector
    bits: NDArray[np.int64]


@dataclass(frozen=True)
class Solution:
    """A feasible β with its outputs, its dual value and its relative duality gap.

    Attributes
    ----------
    beta : ndarray of shape (n,) or (n, outputs)
        Signed dual coefficients.
    intercept : float or ndarray of shape (outputs,)
        The constant of the decision function, or of each output.
    values : ndarray like `beta`
        Kβ on the training set; with a kernel per class K_c β_c.
    objective : float
        The dual value: a lower bound on the optimum of the primal.
    gap : float
        (primal − dual) / max(|primal|, |dual|): a certificate, since no β can do better than the
        primal value.
    n_iter : int
        Elementary steps taken by the solver.
    inside : bool
        Whether interior points found it, after steps that solve one sample each had stalled.
    """

    beta: Array
    intercept: Any
    values: Array
    objective: float
    gap: float
    n_iter: int
    inside: bool = field(default=False, kw_only=True)


def sum_rounding(n_terms: int) -> float:
    """Return the relative rounding error of a sum of `n_terms` numbers of one sign."""
    return float(np.finfo(np.float64).eps * np.sqrt(n_terms))


def certify(
    program: Any,
    beta: ArrayOrTensor,
    values: ArrayOrTensor,
    n_iter: int,
    noise: float = 0.0,
    intercept: Any = None,
    **near: float | Vector,
) -> Solution:
    """Return the solution of coefficients β whose outputs are known, with its duality gap.

    Parameters
    ----------
    program : Program or MulticlassProgram
        The training problem without its kernel.
    beta, values : array of shape (n,) or (n, outputs)
        Feasible coefficients and Kβ, where the vectors of the program are.
    n_iter : int
        The steps that the solution states.
    noise : float
        As in `relative_gap`.
    intercept : float or ndarray, optional
        The intercept at which the primal value is taken; by default the best one.
    near : float or ndarray, optional
        A guess from which the best intercept is searched.
    """
    quadratic = 0.5 * float((beta * values).sum())
    dual = require_finite(float(program.linear_value(beta)) - quadratic)
    if intercept is None:
        intercept = program.best_intercept(values, **near)
    primal = program.primal_value(quadratic, values, intercept)
    fetch = backend_of(beta).to_numpy
    gap = relative_gap(primal, dual, noise)
    return Solution(fetch(beta), intercept, fetch(values), dual, gap, n_iter)


def assess(
    gram: Any, program: Any, beta: Array, n_iter: int = 0, **near: float | Vector
) -> Solution:
    """Return the solution of a feasible β for a kernel.

    The kernel computes Kβ as exactly as it can.

    Arguments beside the kernel are those of `certify`.
    """
    noise = 0.0
    if beta.ndim == 1 and not program.target.any():
        noise = program.value_noise(beta, gram.diagonal(), gram.dtype)
    values = np.asarray(gram.products(beta, exact=True))
    return certify(program, beta, values, n_iter, noise, **near)


def require_finite(value: float) -> float:
    """Return the value of a training problem, or raise a ValueError if it is not finite."""
    if not np.isfinite(value):
        raise ValueError(
            f"The objective is {value}: its terms overflow. Lower C (of BilinearMKLClassifier:"
            " kappa), or give the kernels, and targets, a smaller scale; normalize='trace' puts"
            " kernels on one."
        )
    return value


def relative_gap(primal: float, dual: float, noise: float = 0.0) -> float:
    """Return (primal − dual) / max(|primal|, |dual|), the gap by which searches stop.

    It is zero where the primal value is below the dual one, which means that rounding is reached,
    and where the dual value is within the noise. It is infinite where a value is not finite. What a
    fit states is the gap of its certificate, which clips nothing.

    Parameters
    ----------
    primal, dual : float
        The upper and the lower bound of the optimal value.
    noise : float
        The size that rounding may give to a value of zero.
    """
    if not (np.isfinite(primal) and np.isfinite(dual)):
        return np.inf
    scale = max(abs(primal), abs(dual))
    if scale > 0 and abs(dual) >= noise:
        return float(max(primal - dual, 0.0) / scale)
    return 0.0


# Several classes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class MulticlassProgram:
    """max Σ_ic T_ic β_ic − ½ Σ_c β_cᵀ K_c β_c  where Σ_c β_ic = 0 for every sample i.

    With y the sample's label and p its C, β_iy ≥ 0, −p ≤ β_ic ≤ 0 for the other classes, and with
    one slack a sample (Crammer and Singer) also β_iy ≤ p. Both machines ask f_y(xᵢ) − f_c(xᵢ) ≥
    margin_ic − ξ of every other class c, so that T_ic = −margin_ic and T_iy = 0. Where every class
    has a constant b_c, the coefficients of every class sum to zero, too: Σ_i β_ic = 0, of which the
    b_c are the multipliers.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        The classes, as numbers from zero.
    margins : ndarray of shape (n, classes)
        By how much the output of the sample's label must exceed that of every other class; the
        entries of the labels themselves are not read.
    sample_C : ndarray of shape (n,)
        The factor of each sample's slack; zero takes it out.
    pairwise : bool
        Whether a sample has one slack for every other class, or one for the worst of them.
    constants : bool
        Whether every class has a constant.
    """

    labels: Indices
    margins: Matrix
    sample_C: Vector
    pairwise: bool = False
    constants: bool = False

    @property
    def n_samples(self) -> int:
        return len(self.labels)

    @property
    def n_classes(self) -> int:
        return int(self.margins.shape[1])

    @property
    def target(self) -> Matrix:
        """The linear term T."""
        T = -self.margins
        T[self.own] = 0.0
        return T

    @property
    def own(self) -> tuple[Indices, Indices]:
        """The index of the entries (i, yᵢ), one per sample, in arrays of shape (n, classes)."""
        return np.arange(self.n_samples), self.labels

    @property
    def own_upper(self) -> Vector:
        """The upper bounds of β_iy, the coefficients of the samples' labels."""
        return self.sample_C * (self.n_classes - 1) if self.pairwise else self.sample_C

    def linear_value(self, beta: Matrix) -> float:
        """Return the terms of the objective without the kernel."""
        return float(np.sum(self.target * beta))

    def losses(self, values: Matrix) -> float:
        """Return the sum of C times the slacks, for outputs of shape (n, classes)."""
        shortfalls = np.maximum(self._shortfalls(values), 0.0)
        return float(self.sample_C @ self._slacks(shortfalls))

    def _shortfalls(self, values: Matrix) -> Matrix:
        """Return margin_ic + f_c(xᵢ) − f_y(xᵢ), and zero for the samples' labels."""
        shortfalls = self.margins + values - values[self.own][:, np.newaxis]
        shortfalls[self.own] = 0.0
        return shortfalls

    def _slacks(self, shortfalls: Matrix) -> Vector:
        """Return the slack of every sample, or the sum of its slacks, from shortfalls ≥ 0."""
        if self.pairwise:
            return np.asarray(shortfalls.sum(axis=1))
        return np.asarray(shortfalls.max(axis=1))

    def primal_value(self, quadratic: float, values: Matrix, constants: Vector) -> float:
        """Return the primal objective of the outputs values + constants.

        Parameters
        ----------
        quadratic : float
            ½ Σ_c ‖w_c‖².
        values : ndarray of shape (n, classes)
        constants : ndarray of shape (classes,)
        """
        return require_finite(quadratic + self.losses(values + constants))

    def worst_losses(self, values: Matrix, constants: Vector, error: Matrix) -> Vector:
        """Return upper bounds of the samples' losses.

        Outputs are between `values` − `error` and `values` + `error`, plus the constants.
        """
        outputs = values + constants
        error = error + sum_rounding(1) * np.abs(outputs)
        shortfalls = self._shortfalls(outputs)
        shortfalls += error + error[self.own][:, np.newaxis]
        shortfalls += sum_rounding(1) * (np.abs(self.margins + outputs) + np.abs(shortfalls))
        shortfalls[self.own] = 0.0
        shortfalls = np.maximum(shortfalls, 0.0)
        return np.asarray(self.sample_C * self._slacks(shortfalls))

    def primal_bound(
        self, quadratic: float, values: Matrix, constants: Vector, error: Matrix
    ) -> float:
        """Return an upper bound of the primal objective, where outputs are `values` ± `error`."""
        value = quadratic + float(self.worst_losses(values, constants, error).sum())
        return value * (1.0 + sum_rounding(self.n_samples))

    def linear_bound(self, beta: Matrix, constants: Vector) -> float:
        """Return a lower bound of `linear_value` for a β with rounding errors.

        A sum of a class that is δ, not zero, moves the dual value by δ times the class's constant.
        """
        size = float(np.sum(np.abs(self.target * beta)))
        missed = np.zeros(self.n_classes)
        if self.constants:
            missed = np.abs([fsum(beta_of_class) for beta_of_class in beta.T])
        rounding = sum_rounding(beta.size) * size
        return self.linear_value(beta) - rounding - float(np.abs(constants) @ missed)

    # Feasible points and related programs ---------------------------------------------------------

    def take(self, which: Indices | slice) -> MulticlassProgram:
        """Return the program of some samples."""
        return replace(
            self,
            labels=self.labels[which],
            margins=self.margins[which],
            sample_C=self.sample_C[which],
        )

    def given(self, constants: Vector) -> MulticlassProgram:
        """Return the program with the constants fixed: they become part of the margins."""
        margins = self.margins + constants - constants[self.labels][:, np.newaxis]
        return replace(self, margins=margins, constants=False)

    def bounds(self) -> tuple[Matrix, Matrix]:
        """Return the lower and the upper bounds of the coefficients."""
        lower = np.tile(-self.sample_C[:, np.newaxis], self.n_classes)
        upper = np.zeros(self.margins.shape)
        lower[self.own] = 0.0
        upper[self.own] = self.own_upper
        return lower, upper

    def feasible(self, beta: Matrix) -> Matrix:
        """Return a point near β that meets the bounds and the samples' sums, or β if it does.

        The sums of the classes are left to `balanced`.
        """
        C = self.sample_C[:, np.newaxis]
        sizes = np.clip(-beta, 0.0, C)
        sizes[self.own] = 0.0
        if not self.pairwise:
            total = sizes.sum(axis=1, keepdims=True)
            sizes *= np.divide(C, total, out=np.ones_like(total), where=total > C)
        feasible = -sizes
        feasible[self.own] = np.minimum(sizes.sum(axis=1), self.own_upper)
        return feasible

    def continued(self, beta: Matrix, before: MulticlassProgram) -> Matrix:
        """Return a start near the solution β of the program `before`, which has another C.

        The coefficients of a sample are scaled by the ratio of the C if the largest of them was at
        its bound, and stay as they are if not.
        """
        ratio = np.divide(
            self.sample_C, before.sample_C, out=np.ones(self.n_samples), where=before.sample_C > 0
        )
        largest = -beta.min(axis=1) if self.pairwise else beta.max(axis=1)
        is_at_bound = largest >= AT_BOUND * before.sample_C
        return beta * np.where(is_at_bound, ratio, 1.0)[:, np.newaxis]

    # Constants ------------------------------------------------------------------------------------

    @property
    def class_C(self) -> Vector:
        """The sum of `sample_C` over the samples of each class."""
        return np.asarray(np.bincount(self.labels, self.sample_C, self.n_classes), dtype=np.float64)

    def balanced(self, beta: Matrix) -> Matrix:
        """Return a feasible point near a feasible β with Σ_i β_ic = 0 for every class.

        The excess of the classes is moved between coefficients of the same sample, in proportion to
        the squares of their distances to their bounds, so that none leaves its bounds by much. The
        remaining excess makes all coefficients smaller.
        """
        # The coefficients of a class without samples are all of one sign.
        beta = np.where(self.class_C == 0.0, 0.0, beta)
        beta[self.own] = 0.0
        beta[self.own] = -beta.sum(axis=1)
        lower, upper = self.bounds()
        for _ in range(MAX_BALANCING_STEPS):
            excess = beta.sum(axis=0)
            if np.abs(excess).max() <= CLASS_SUM_ROUNDING * np.abs(beta).sum():
                return beta
            room = np.maximum(np.minimum(beta - lower, upper - beta), 0.0)
            # The step minimises Σ step²/weight. It takes the excess off the classes' sums and
            # leaves those of the samples: −weight ∘ (u_c − the sample's weighted mean of u), where
            # u, a number per class, solves a system of the classes.
            weight = room**2
            total = weight.sum(axis=1, keepdims=True)
            fractions = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
            curvature = np.diag(weight.sum(axis=0)) - weight.T @ fractions
            u = np.linalg.lstsq(curvature, excess, rcond=None)[0]
            step = -weight * (u - (fractions @ u)[:, np.newaxis])
            # The largest part of the step within the bounds.
            ratios = np.ones_like(room)
            np.divide(room, np.abs(step), out=ratios, where=np.abs(step) > room)
            beta = self.feasible(beta + float(ratios.min()) * step)
        return self._shrunk(beta)

    def _shrunk(self, beta: Matrix) -> Matrix:
        """Return t β + corrections that make all class sums zero, with a number t near one.

        Samples of the classes with a negative sum get the corrections: each adds to the coefficient
        of its label, by its C, and takes the same off the coefficients of the classes with a
        positive sum.
        """
        class_C = self.class_C
        sums = beta.sum(axis=0)
        sums -= sums.mean()
        lack = np.maximum(-sums, 0.0)
        excess = np.maximum(sums, 0.0)
        if not excess.sum() > 0.0:
            return beta
        # β shrinks so that the corrected coefficients stay within their bounds.
        ones = np.ones_like(class_C)
        t = float(np.min(np.divide(class_C, class_C + lack, out=ones, where=class_C > 0)))
        lack_per_C = np.divide(lack, class_C, out=np.zeros_like(class_C), where=class_C > 0)
        size = t * lack_per_C[self.labels] * self.sample_C
        corrected = t * beta - np.outer(size, excess / excess.sum())
        corrected[self.own] += size
        return self.feasible(corrected)

    def best_intercept(self, values: Matrix, near: Vector | None = None) -> Vector:
        """Return constants of mean zero that lower the losses.

        Sweeps over the classes minimise the losses in one constant at a time.

        They cost no more than those of the start. Without `constants` they are `near`, less its
        mean.

        Parameters
        ----------
        values : ndarray of shape (n, classes)
            Outputs without constants.
        near : ndarray of shape (classes,), optional
            The start; by default zeros.
        """
        b = np.zeros(self.n_classes) if near is None else near.copy()
        n_sweeps = MAX_CONSTANT_SWEEPS if self.constants else 0
        for _ in range(n_sweeps):
            previous = b.copy()
            for c in range(self.n_classes):
                b[c] = self._best_constant(values, b, c)
            if np.array_equal(b, previous):
                break
        return np.asarray(b - b.mean())

    def _best_constant(self, values: Matrix, b: Vector, c: int) -> float:
        """Return the best constant of class c while all others stay; the nearest of several.

        As b_c grows by s, the slacks of the class's samples fall until they are zero, at
        s = `ends`, and those of all other samples rise from s = `starts` on. The sum of these
        piecewise linear functions of s is the primal objective of a program without a kernel, whose
        intercept is s.
        """
        shortfalls = self._shortfalls(values + b)
        is_member = self.labels == c
        of_others = shortfalls[~is_member]
        of_members = np.delete(shortfalls[is_member], c, axis=1)
        if self.pairwise:
            ends = of_members.ravel()
            starts = -of_others[:, c]
            falling = np.repeat(self.sample_C[is_member], self.n_classes - 1)
        else:
            worst_of_other_classes = np.delete(of_others, c, axis=1).max(axis=1, initial=0.0)
            ends = of_members.max(axis=1, initial=-np.inf)
            starts = np.maximum(worst_of_other_classes, 0.0) - of_others[:, c]
            falling = self.sample_C[is_member]
        rising = self.sample_C[~is_member]
        n_bends = len(ends) + len(starts)
        in_one_constant = Program(
            target=np.concatenate([ends, starts]),
            lower=np.concatenate([np.zeros(len(ends)), -rising]),
            upper=np.concatenate([falling, np.zeros(len(starts))]),
            ridge=np.zeros(n_bends),
        )
        first, last = in_one_constant.optimal_intercepts(np.zeros(n_bends))
        return float(b[c] + np.clip(0.0, first, last))
