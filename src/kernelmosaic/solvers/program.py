"""The dual program behind every machine with one output, that of several classes, and what their
points are worth."""

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
from kernelmosaic.solvers.tuning import MANY_SAMPLES, SUM_ROUNDING

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
        Half-width of the insensitive tube.
    total : float or None
        What the coefficients sum to; None leaves the sum free, and the machine without an
        intercept.
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
    #: Whether `primal_value` is the sum of the losses; else it needs arrays of this process.
    has_losses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # On a device every look at a vector waits for it.
        object.__setattr__(self, "has_ridge", bool(self.ridge.any()))
        object.__setattr__(self, "has_ridge_everywhere", bool((self.ridge > 0).all()))

    @property
    def n_samples(self) -> int:
        return len(self.target)

    def placed(self, backend: Backend) -> Program:
        """Return the program with its vectors where a backend keeps them."""
        return self if backend is NUMPY else self.mapped(backend.asarray)

    def mapped(self, change: Callable[[Any], Any]) -> Self:
        """Return the program with a function of each of its vectors in their place."""
        return replace(self, **{name: change(getattr(self, name)) for name in VECTORS})

    def linear_value(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Everything in the objective that does not read the kernel: ⟨t, β⟩ − ε‖β‖₁ − ½Σρβ²."""
        return self._terms(beta, self.target).sum(-1)

    def conjugate_argmax(self, residual: ArrayOrTensor) -> ArrayOrTensor:
        """Return argmax over the box of uᵢrᵢ − ε|uᵢ| − ½ρᵢuᵢ², sample by sample."""
        xp = backend_of(residual).xp
        if not self.has_ridge:
            over, under = residual > self.epsilon, residual < -self.epsilon
            return xp.where(over, self.upper, xp.where(under, self.lower, 0.0))
        excess = xp.sign(residual) * xp.clip(abs(residual) - self.epsilon, 0.0, None)
        with np.errstate(divide="ignore", invalid="ignore"):
            u = xp.where(
                self.ridge > 0, excess / self.ridge, xp.where(excess == 0, 0.0, excess * np.inf)
            )
        return xp.clip(u, self.lower, self.upper)

    def losses(self, values: ArrayOrTensor, intercept: Any) -> ArrayOrTensor:
        """Return what the primal objective of the machine f + intercept adds to ½βᵀKβ, where values
        = Kβ."""
        residual = self.target - values - intercept
        return self._loss(self.conjugate_argmax(residual), residual, intercept)

    def _loss(self, u: ArrayOrTensor, residual: ArrayOrTensor, intercept: Any) -> ArrayOrTensor:
        return self._terms(u, residual).sum(-1) + intercept * (self.total or 0.0)

    def _terms(self, u: ArrayOrTensor, slope: ArrayOrTensor) -> ArrayOrTensor:
        """Return uᵢsᵢ − ε|uᵢ| − ½ρᵢuᵢ², sample by sample."""
        return u * slope - self.epsilon * abs(u) - 0.5 * self.ridge * u**2

    def primal_value(self, quadratic: float, values: Vector, intercept: float) -> float:
        """Return the primal objective of the machine f + intercept, where values = Kβ and quadratic
        = ½βᵀKβ."""
        residual = self.target - values - intercept
        u = self.conjugate_argmax(residual)
        if not bool(backend_of(u).xp.isfinite(u).all()):
            return np.inf
        return require_finite(quadratic + float(self._loss(u, residual, intercept)))

    # Where β may move, by the residual t − Kβ − ρβ ------------------------------------------------

    def slopes(self, beta: ArrayOrTensor, residual: ArrayOrTensor) -> tuple[Any, Any]:
        """Return the slopes of the objective as each β grows and as it shrinks; infinite where the
        box forbids it."""
        xp, e = backend_of(beta).xp, self.epsilon
        rising = xp.where(beta < self.upper, residual - xp.where(beta >= 0, e, -e), -np.inf)
        falling = xp.where(beta > self.lower, residual - xp.where(beta > 0, e, -e), np.inf)
        return rising, falling

    def violation(self, highest: float, lowest: float) -> float:
        """Return the slope of the steepest step, from the largest slope of a rise and the least of
        a fall."""
        return max(highest, -lowest, 0.0) if self.total is None else max(highest - lowest, 0.0)

    def free(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return the samples whose coefficient may move both ways to first order."""
        inside = (beta > self.lower) & (beta < self.upper)
        return backend_of(beta).nonzero(inside & (beta != 0) if self.epsilon else inside)

    def sign_limits(self, rows: RowIndex, beta: ArrayOrTensor) -> tuple[Any, Any]:
        """Return the bounds of some samples within which none of their β changes its sign, where
        the slope jumps."""
        xp, lower, upper = backend_of(beta).xp, self.lower[rows], self.upper[rows]
        if not self.epsilon:
            return lower, upper
        lower = xp.where(beta > 0, xp.clip(lower, 0.0, None), lower)
        return lower, xp.where(beta < 0, xp.clip(upper, None, 0.0), upper)

    def value_noise(self, beta: ArrayOrTensor, diagonal: ArrayOrTensor, dtype: DType) -> float:
        """Return what a value of zero may come out as where K, of this diagonal, is known up to its
        type's rounding.

        It is asked of programs with t = 0. Their value is never positive, so zero is the best there
        is, and a one-class machine whose samples surround the origin reaches it. No relative gap to
        zero is ever small.
        """
        if self.target.any():
            return 0.0
        return (
            float(np.finfo(dtype).eps) * float(np.sqrt(self.n_samples)) * float(diagonal @ beta**2)
        )

    # What bounds the value when Kβ is known up to rounding ----------------------------------------

    def worst_losses(self, values: Vector, intercept: float, error: Vector) -> Vector:
        """Return the most that each sample's loss may be, where Kβ is `values` up to `error`.

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
        """Return a number that the primal objective of f + intercept does not exceed, for Kβ up to
        `error`."""
        constant = intercept * (self.total or 0.0)
        losses = float(self.worst_losses(values, intercept, error).sum())
        return (
            quadratic
            + losses
            + constant
            + sum_rounding(self.n_samples) * (quadratic + losses + abs(constant))
        )

    def linear_bound(self, beta: Vector, intercept: float) -> float:
        """Return a number that `linear_value` exceeds by no less than its rounding and what Σβ
        misses of the total.

        A sum that misses its total by δ moves the dual value by δ times the multiplier, which is
        the intercept.
        """
        size = float(
            (np.abs(self.target) + self.epsilon) @ np.abs(beta) + 0.5 * self.ridge @ beta**2
        )
        missed = (
            0.0 if self.total is None else abs(intercept) * abs(fsum([*beta.tolist(), -self.total]))
        )
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

        With zᵢ = tᵢ − (Kβ)ᵢ and u of `conjugate_argmax`, the objective has the slope total − S(b)
        at the intercept b, where S(b) = Σ uᵢ(zᵢ − b). S never rises with b. The optimal intercepts
        are those at which it passes the total, an interval:

            first = sup {b : S(b) > total},    last = inf {b : S(b) < total}.

        S changes at the samples for which zᵢ − b is at the edge of the tube, ±ε, or, where they
        have a ridge, between the edge and ±ε + ρᵢ times the bound. At the solution these are the
        free samples: βᵢ = uᵢ is between its bounds, so that b = zᵢ ∓ ε − ρᵢβᵢ. Where such a sample
        exists, first and last are the same. Where there is none, S equals the total from one bend
        of the losses to the next, and these two are the ends; an end is infinite if no sample bends
        there. Without a sum to keep the machine has no intercept: both ends are zero.

        Parameters
        ----------
        values : array of shape (n,)
            Kβ, where the program is.
        near : float, optional
            An intercept near the optimal ones, where the search begins.

        References
        ----------
        Brucker (1984), "An O(n) algorithm for quadratic knapsack problems".
        """
        if self.total is None:
            return 0.0, 0.0
        z = self.target - values

        # 1. Of many samples, keep those whose u may bend near the optimum; what others add to S is
        #    known.
        undecided = self._undecided(z, near)
        program, z = undecided.program, undecided.z

        # 2. The intercepts, in order, at which some u bends: an edge of the tube, and the other end
        #    of the
        # line that begins there. Between two of them S is linear.
        edges = np.concatenate([z - program.epsilon, z + program.epsilon])
        line_ends = edges
        if program.has_ridge:
            line_ends = edges - np.concatenate(
                [program.ridge * program.upper, program.ridge * program.lower]
            )
        ends = [-np.inf, np.inf, undecided.low, undecided.high]
        knots = np.unique(np.concatenate([edges, line_ends, ends]))
        if len(knots) == 2:  # outputs have overflown
            return -np.inf, np.inf
        inner = 0.5 * (knots[1:-2] + knots[2:-1])
        middles = np.concatenate([[knots[1] - 1.0], inner, [knots[-2] + 1.0]])
        segments = range(len(middles))

        excess = program._excess_by_segment(undecided, knots, middles)

        def slope(segment: int) -> float:
            """Return how fast S falls within a segment."""
            if not program.has_ridge:
                return undecided.slope
            u = program.conjugate_argmax(z - middles[segment])
            moving = (program.ridge > 0) & (u != 0) & (u > program.lower) & (u < program.upper)
            return float((1.0 / program.ridge[moving]).sum()) + undecided.slope

        # 3. The first segment in which S is not above the total, in steps that double from a guess.
        guess = len(segments) // 2
        if near is not None:
            guess = int(np.searchsorted(knots[1:-1], near))
        lowest = highest = guess
        step = 1
        while lowest > 0 and excess(lowest) <= 0:
            lowest, step = max(lowest - step, 0), 2 * step
        while highest < len(segments) and excess(highest) > 0:
            highest, step = min(highest + step, len(segments)), 2 * step
        first = bisect_left(segments, 0.0, lowest, highest, key=lambda segment: -excess(segment))

        # 4. Where S equals the total in a whole segment, so it does up to the last such segment.
        if first < len(segments) and excess(first) == 0 and not slope(first):
            after = bisect_right(segments, 0.0, first, key=lambda segment: -excess(segment))
            return float(knots[first]), float(knots[after])

        # 5. Else S passes the total on the line of a segment, or where it jumps between two.
        for segment in segments[max(first - 1, 0) : first + 1]:
            fall = slope(segment)
            root = middles[segment] + excess(segment) / fall if fall > 0 else np.nan
            if knots[segment] <= root <= knots[segment + 1]:
                return float(root), float(root)
        return float(knots[first]), float(knots[first])

    def _excess_by_segment(
        self, undecided: Undecided, knots: Vector, middles: Vector
    ) -> Callable[[int], float]:
        """Return a function that says by how much S exceeds the total in the middle of a segment.

        It is asked of the program of the undecided samples. Rounding counts as no excess.
        """
        z = undecided.z
        if self.has_ridge or undecided.slope:

            @cache
            def excess(segment: int) -> float:
                u = self.conjugate_argmax(z - middles[segment])
                others = undecided.slope * float(undecided.reference - middles[segment])
                return self.excess_sum(u, others, undecided.size)

            return excess

        # Without a ridge samples are at their upper bound, zero or their lower bound: cumulative
        # sums of the bounds, by z, give S in all segments at once.
        order = np.argsort(z)
        from_here_on = np.append(np.cumsum(self.upper[order][::-1])[::-1], 0.0)
        up_to_here = np.append(0.0, np.cumsum(self.lower[order]))
        # By the ends of a segment: where they are next to each other, its middle rounds to one of
        # them.
        at_upper = from_here_on[np.searchsorted(z[order] - self.epsilon, knots[:-1], "right")]
        at_lower = up_to_here[np.searchsorted(z[order] + self.epsilon, knots[1:])]
        excesses = at_upper + at_lower - (self.total or 0.0)
        excesses[np.abs(excesses) <= SUM_ROUNDING * (at_upper - at_lower + undecided.size)] = 0.0
        numbers: list[float] = excesses.tolist()
        return numbers.__getitem__

    def _undecided(self, z: ArrayOrTensor, near: float | None) -> Undecided:
        """Return the samples whose u may bend between two intercepts around the optimum, z = t −
        Kβ.

        Of few samples on the host all are left undecided.
        """
        backend = backend_of(z)
        if len(z) <= MANY_SAMPLES and backend is NUMPY:
            return Undecided(self, z)

        # Evenly spaced samples, each of which stands for several, say about where the optimum is.
        spaced = backend.index(np.arange(0, len(z), max(len(z) // 1000, 1)))
        z_spaced, reference = backend.to_numpy(z[spaced]), near
        if reference is None:
            subsample = self.subsampled(spaced)
            reference = subsample.best_intercept(subsample.target - z_spaced)

        # Intercepts at which one of these bends are tried to both sides of it, in steps that
        # double.
        candidates = np.sort(np.concatenate([z_spaced - self.epsilon, z_spaced + self.epsilon]))
        n_candidates, middle = len(candidates), int(np.searchsorted(candidates, reference))

        def excess(candidate: int) -> float:
            return self.excess_sum(self.conjugate_argmax(z - candidates[candidate]))

        below, step = middle - 8, 8
        while below >= 0 and excess(below) <= 0:
            below, step = below - step, 2 * step
        above, step = middle + 8, 8
        while above < n_candidates and excess(above) >= 0:
            above, step = above + step, 2 * step
        low = float(candidates[below]) if below >= 0 else -np.inf
        high = float(candidates[above]) if above < n_candidates else np.inf

        # Between the two, the u of most samples is a bound, or zero in the tube, or on the line of
        # the ridge.
        upper_edge, lower_edge = z - self.epsilon, z + self.epsilon
        upper_end, lower_end = upper_edge, lower_edge
        settled = (upper_edge < low) & (lower_edge > high)
        slope = 0.0
        if self.has_ridge:
            upper_end, lower_end = (
                upper_edge - self.ridge * self.upper,
                lower_edge - self.ridge * self.lower,
            )
            rising = (upper_end <= low) & (upper_edge >= high)
            falling = (lower_edge <= low) & (lower_end >= high)
            on_line = (rising | falling) & (self.ridge > 0)
            slope = float((1.0 / self.ridge[on_line]).sum())
            settled |= on_line
        settled |= (upper_end > high) | (lower_end < low)
        u = self.conjugate_argmax(z - reference)[settled]
        kept = backend.nonzero(~settled)
        program = self.take(kept, self.target[kept], (self.total or 0.0) - float(u.sum()))
        return Undecided(
            program, backend.to_numpy(z[kept]), low, high, reference, slope, float(abs(u).sum())
        )

    def excess_sum(self, u: ArrayOrTensor, others: float = 0.0, others_size: float = 0.0) -> float:
        """Return by how much u and what others add exceed the total; 0 if that is rounding only.

        Rounding is relative to the sizes of the numbers summed, `others_size` for those of others.
        """
        excess = float(u.sum() - (self.total or 0.0)) + others
        size = float(abs(u).sum()) + others_size
        return 0.0 if np.isfinite(size) and abs(excess) <= SUM_ROUNDING * size else excess

    def feasible(self, beta: Vector) -> Vector:
        """Return the point of the feasible set nearest to beta."""
        self.require_feasible()
        # The nearest point maximises ⟨β, u⟩ − ½‖u‖²: a program without a kernel, solved by its
        # intercept. Far away β is known only to its own rounding, so the first answer's sum is
        # mended by a second.
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
        """Return where Σu(z − shift) is the total, by Newton steps from zero, or None where it is
        flat.

        The sum is piecewise linear: once no bend lies between, one step is exact. A start is rarely
        so far off its total that more than a few are needed, where `optimal_intercepts` sorts all
        samples.
        """
        shift, low, high = 0.0, -np.inf, np.inf
        for _ in range(40):
            u = self.conjugate_argmax(z - shift)
            excess = self.excess_sum(u)
            moving = (u != 0) & (u > self.lower) & (u < self.upper)
            slope = float((1.0 / self.ridge[moving]).sum())
            if not slope:
                return None
            if not excess:
                return float(shift)
            low, high = (shift, high) if excess > 0 else (low, shift)
            shift += excess / slope
            if not low < shift < high:
                shift = 0.5 * (low + high)
            if (
                not low < shift < high
            ):  # its own last digit moves the sum by more than the sum is known to
                return float(shift) if np.isfinite(shift) else None
        return None

    def continued(self, beta: Vector, before: Program) -> Vector:
        """Return a start near the solution β of a program with other bounds: coefficients at one go
        to the new one."""
        moved = np.where((beta >= before.upper) & (beta > 0), self.upper, beta)
        moved = np.where((beta <= before.lower) & (beta < 0), self.lower, moved)
        return np.clip(np.where(np.isfinite(moved), moved, beta), self.lower, self.upper)

    def subsampled(self, rows: RowIndex) -> Program:
        """Return the program of some samples in which each stands for as many as were left out
        beside it."""
        share, few = self.n_samples / len(rows), self.take(rows, self.target[rows], self.total)
        return replace(
            few, lower=share * few.lower, upper=share * few.upper, ridge=few.ridge / share
        )

    def take(self, rows: RowIndex, target: TargetLike, total: float | None) -> Program:
        """Return the program of some samples with a target and a total of their own, its vectors on
        the host."""
        fetch = backend_of(self.target).to_numpy
        lower, upper, ridge = (fetch(one[rows]) for one in (self.lower, self.upper, self.ridge))
        return replace(
            self, target=fetch(target), lower=lower, upper=upper, ridge=ridge, total=total
        )

    def spread(self, rows: RowIndex, n_samples: int) -> Program:
        """Return the program of more samples, of which those beside the rows have no coefficient,
        and so no loss."""

        def among(own: Vector, others: float = 0.0) -> Vector:
            vector = np.full(n_samples, others)
            vector[rows] = own
            return vector

        # Where some samples have a ridge, those without a coefficient may have any.
        ridge = among(self.ridge, float(self.has_ridge))
        return replace(
            self,
            target=among(self.target),
            lower=among(self.lower),
            upper=among(self.upper),
            ridge=ridge,
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
            low, high = self.lower.sum(), self.upper.sum()
            raise ValueError(
                f"No β is feasible: the bounds let the sum range from {low:g} to {high:g}, the"
                f" total is {self.total:g}."
            )


class Undecided(NamedTuple):
    """What is left of a search for the best intercept once most samples are settled, on the host.

    Attributes
    ----------
    program : Program
        That of the samples which are left; what the others add is taken off its total.
    z : ndarray of shape (n_left,)
        Their t − Kβ.
    low, high : float
        Intercepts between which the optimal ones are.
    reference : float
        An intercept between the two, at which the others add what was taken off the total.
    slope : float
        How fast what they add falls as the intercept grows.
    size : float
        The sum of the sizes of what they add.
    """

    program: Program
    z: Vector
    low: float = -np.inf
    high: float = np.inf
    reference: float = 0.0
    slope: float = 0.0
    size: float = 0.0


class Movable(NamedTuple):
    """What steps of one coefficient or two read and change; arrays of shape (n,).

    Attributes
    ----------
    beta, residual : ndarray
        The coefficients and t − Kβ − ρβ, changed in place.
    rising, falling : ndarray
        What to add to the residual for the slopes as β grows and as it shrinks, infinite where it
        may not; changed.
    diagonal : ndarray
        That of K + diag ρ.
    ridge, lower, upper, epsilon : ndarray, float
        Of the program.
    keys, bits : ndarray of shape (STRIP,)
        Room for what compiled steps compare in a strip, and its bits.
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
    """A feasible β with what it is worth.

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
        Whether interior points found it where steps that solve one sample each had stalled.
    """

    beta: Array
    intercept: Any
    values: Array
    objective: float
    gap: float
    n_iter: int
    inside: bool = field(default=False, kw_only=True)


def sum_rounding(n_terms: int) -> float:
    """Return how far a sum of this many numbers of one sign may be off, relative to it."""
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
    """Return the solution with its certified relative duality gap, from β and Kβ where the program
    is.

    The program is a `Program` or a `MulticlassProgram`; the intercept is the best one unless it is
    given. It may be looked for `near` a guess.
    """
    quadratic = 0.5 * float((beta * values).sum())
    dual = require_finite(float(program.linear_value(beta)) - quadratic)
    intercept = program.best_intercept(values, **near) if intercept is None else intercept
    primal = program.primal_value(quadratic, values, intercept)
    fetch = backend_of(beta).to_numpy
    return Solution(
        fetch(beta), intercept, fetch(values), dual, relative_gap(primal, dual, noise), n_iter
    )


def assess(
    gram: Any, program: Any, beta: Array, n_iter: int = 0, **near: float | Vector
) -> Solution:
    """Return a feasible β as a solution for a kernel, with Kβ as exact as the kernel computes it;
    see `certify`."""
    noise = 0.0
    if beta.ndim == 1 and not program.target.any():
        noise = program.value_noise(beta, gram.diagonal(), gram.dtype)
    return certify(
        program, beta, np.asarray(gram.products(beta, exact=True)), n_iter, noise, **near
    )


def require_finite(value: float) -> float:
    """Return the value of a training problem, or raise a ValueError saying what makes it
    overflow."""
    if not np.isfinite(value):
        raise ValueError(
            f"The objective is {value}: its terms overflow. Lower C (of BilinearMKLClassifier:"
            " kappa), or give the kernels, and targets, a smaller scale; normalize='trace' puts"
            " kernels on one."
        )
    return value


def relative_gap(primal: float, dual: float, noise: float = 0.0) -> float:
    """Return (primal − dual) / max(|primal|, |dual|), by which a search stops; zero when the dual
    is within the noise.

    A primal value below the dual one means that rounding is reached, and the search ends there.
    What a fit states is the certificate's, which clips nothing. A bound that is not finite bounds
    nothing: the gap is infinite then.

    Parameters
    ----------
    primal, dual : float
        The bounds.
    noise : float
        What a value of zero may come out as.
    """
    if not (np.isfinite(primal) and np.isfinite(dual)):
        return np.inf
    scale = max(abs(primal), abs(dual))
    return float(max(primal - dual, 0.0) / scale) if scale > 0 and abs(dual) >= noise else 0.0


# Several classes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class MulticlassProgram:
    """max Σ_ic T_ic β_ic − ½ Σ_c β_cᵀ K_c β_c  where every sample's coefficients sum to zero over
    the classes.

    With y the sample's class and p its C, β_iy ≥ 0, −p ≤ β_ic ≤ 0 for the other classes, and with
    one slack a sample (Crammer and Singer) also β_iy ≤ p. Both machines ask f_y(xᵢ) − f_c(xᵢ) ≥
    margin_ic − ξ of every other class c, so that T_ic = −margin_ic and T_iy = 0. Where every class
    has a constant b_c, the coefficients of every class sum to zero, too: Σ_i β_ic = 0, of which the
    b_c are the multipliers.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        The classes, as numbers from zero.
    margins : ndarray of shape (n, classes)
        What the sample's own class must be ahead by; not read for the class itself.
    sample_C : ndarray of shape (n,)
        The factor of each sample's slack; zero takes it out.
    pairwise : bool
        Whether every other class has a slack of its own, or the sample one for the worst of them.
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
        """Where the coefficients of the samples' own classes are."""
        return np.arange(self.n_samples), self.labels

    @property
    def own_upper(self) -> Vector:
        """How large the coefficient of a sample's own class may become."""
        return self.sample_C * (self.n_classes - 1) if self.pairwise else self.sample_C

    def linear_value(self, beta: Matrix) -> float:
        """Everything in the objective that does not read the kernel."""
        return float(np.sum(self.target * beta))

    def losses(self, values: Matrix) -> float:
        """Return what the slacks cost where the outputs, (n, classes), are these."""
        behind = np.maximum(self._behind(values), 0.0)
        return float(self.sample_C @ (behind.sum(axis=1) if self.pairwise else behind.max(axis=1)))

    def _behind(self, values: Matrix) -> Matrix:
        """Return by how much each sample's own class is too little ahead of every other, zero for
        itself."""
        behind = self.margins + values - values[self.own][:, np.newaxis]
        behind[self.own] = 0.0
        return behind

    def primal_value(self, quadratic: float, values: Matrix, constants: Vector) -> float:
        """Return the primal objective of the outputs values + constants, where quadratic = ½ Σ_c
        ‖w_c‖²."""
        return require_finite(quadratic + self.losses(values + constants))

    def worst_losses(self, values: Matrix, constants: Vector, error: Matrix) -> Vector:
        """Return the most that each sample's slacks may cost, where the outputs are `values` up to
        `error`."""
        outputs = values + constants
        error = error + sum_rounding(1) * np.abs(outputs)
        behind = self._behind(outputs)
        behind += error + error[self.own][:, np.newaxis]
        behind += sum_rounding(1) * (np.abs(self.margins + outputs) + np.abs(behind))
        behind[self.own] = 0.0
        behind = np.maximum(behind, 0.0)
        return np.asarray(
            self.sample_C * (behind.sum(axis=1) if self.pairwise else behind.max(axis=1))
        )

    def primal_bound(
        self, quadratic: float, values: Matrix, constants: Vector, error: Matrix
    ) -> float:
        """Return a number that the primal objective does not exceed, for outputs up to `error`."""
        value = quadratic + float(self.worst_losses(values, constants, error).sum())
        return value * (1.0 + sum_rounding(self.n_samples))

    def linear_bound(self, beta: Matrix, constants: Vector) -> float:
        """Return a number that `linear_value` exceeds by no less than its rounding and what the
        sums of β miss."""
        size = float(np.sum(np.abs(self.target * beta)))
        missed = (
            np.abs([fsum(own) for own in beta.T]) if self.constants else np.zeros(self.n_classes)
        )
        return (
            self.linear_value(beta)
            - sum_rounding(beta.size) * size
            - float(np.abs(constants) @ missed)
        )

    def take(self, which: Indices | slice) -> MulticlassProgram:
        """Return the program of some samples."""
        return replace(
            self,
            labels=self.labels[which],
            margins=self.margins[which],
            sample_C=self.sample_C[which],
        )

    def given(self, constants: Vector) -> MulticlassProgram:
        """Return the program in which the constants are given: they are part of the margins."""
        margins = self.margins + constants - constants[self.labels][:, np.newaxis]
        return replace(self, margins=margins, constants=False)

    def bounds(self) -> tuple[Matrix, Matrix]:
        """Return the least and the largest coefficients."""
        lower, upper = (
            np.tile(-self.sample_C[:, np.newaxis], self.n_classes),
            np.zeros(self.margins.shape),
        )
        lower[self.own], upper[self.own] = 0.0, self.own_upper
        return lower, upper

    def feasible(self, beta: Matrix) -> Matrix:
        """Return a feasible point near beta, which it leaves as it is if it is one."""
        C = self.sample_C[:, np.newaxis]
        others = np.clip(-beta, 0.0, C)
        others[self.own] = 0.0
        if not self.pairwise:
            total = others.sum(axis=1, keepdims=True)
            others *= np.divide(C, total, out=np.ones_like(total), where=total > C)
        out = -others
        out[self.own] = np.minimum(others.sum(axis=1), self.own_upper)
        return out

    def continued(self, beta: Matrix, before: MulticlassProgram) -> Matrix:
        """Return a start near the solution β of a program with another C.

        A sample whose coefficients are as large as they may be keeps them so; the others stay as
        they are.
        """
        ratio = np.divide(
            self.sample_C, before.sample_C, out=np.ones(self.n_samples), where=before.sample_C > 0
        )
        largest = -beta.min(axis=1) if self.pairwise else beta.max(axis=1)
        return beta * np.where(largest >= (1.0 - 1e-9) * before.sample_C, ratio, 1.0)[:, np.newaxis]

    # Constants ------------------------------------------------------------------------------------

    @property
    def class_C(self) -> Vector:
        """What the samples of each class may have as coefficients at most, one slack each, in
        sum."""
        return np.asarray(np.bincount(self.labels, self.sample_C, self.n_classes), dtype=np.float64)

    def balanced(self, beta: Matrix) -> Matrix:
        """Return a feasible point near a feasible β at which every class's coefficients sum to
        zero, up to rounding.

        The excess of the classes is moved between coefficients of the same sample that have room,
        by the squares of their room, so that none leaves its bounds by much. What then is left
        makes all coefficients smaller.
        """
        # The coefficients of a class without samples are all of one sign.
        beta = np.where(self.class_C == 0.0, 0.0, beta)
        beta[self.own] = 0.0
        beta[self.own] = -beta.sum(axis=1)
        lower, upper = self.bounds()
        for _ in range(5):
            excess = beta.sum(axis=0)
            if np.abs(excess).max() <= 1e-14 * np.abs(beta).sum():  # rounding
                return beta
            room = np.maximum(np.minimum(beta - lower, upper - beta), 0.0)
            # The step that takes the excess off the classes' sums and is least in Σ step²/weight,
            # samples' sums kept, is −weight ∘ (u_c − the sample's mean of u), where u, a number per
            # class, solves a system of the classes.
            weight, total = room**2, (room**2).sum(axis=1, keepdims=True)
            own = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
            u = np.linalg.lstsq(np.diag(weight.sum(axis=0)) - weight.T @ own, excess, rcond=None)[0]
            step = -weight * (u - (own @ u)[:, np.newaxis])
            share = np.divide(room, np.abs(step), out=np.ones_like(room), where=np.abs(step) > room)
            beta = self.feasible(beta + float(share.min()) * step)
        return self._shrunk(beta)

    def _shrunk(self, beta: Matrix) -> Matrix:
        """Return t β plus, in the coefficients of each class's own samples, what its sum still
        lacks, t near one."""
        excess, class_C = beta.sum(axis=0), self.class_C
        excess -= excess.mean()
        lack, excess = np.maximum(-excess, 0.0), np.maximum(excess, 0.0)
        if not excess.sum() > 0.0:
            return beta
        t = float(
            np.min(np.divide(class_C, class_C + lack, out=np.ones_like(class_C), where=class_C > 0))
        )
        # The own samples of each class that lacks something take it, each by its C, from those with
        # too much.
        size = (
            t
            * np.divide(lack, class_C, out=np.zeros_like(class_C), where=class_C > 0)[self.labels]
            * self.sample_C
        )
        out = t * beta - np.outer(size, excess / excess.sum())
        out[self.own] += size
        return self.feasible(out)

    def best_intercept(self, values: Matrix, near: Vector | None = None) -> Vector:
        """Return constants of mean zero that cost no more than those to start from, class after
        class the best.

        They are zeros unless the classes have constants, and start from zeros by default.
        """
        b = np.zeros(self.n_classes) if near is None else near.copy()
        for _ in range(3 if self.constants else 0):
            before = b.copy()
            for c in range(self.n_classes):
                b[c] = self._best_constant(values, b, c)
            if np.array_equal(b, before):
                break
        return np.asarray(b - b.mean())

    def _best_constant(self, values: Matrix, b: Vector, c: int) -> float:
        """Return the best constant of one class, the others given; of several the nearest to what
        it is."""
        behind = self._behind(values + b)
        members = self.labels == c
        others, own = behind[~members], np.delete(behind[members], c, axis=1)
        if self.pairwise:
            ends, starts = own.ravel(), -others[:, c]
            falling = np.repeat(self.sample_C[members], self.n_classes - 1)
        else:
            rest = np.delete(others, c, axis=1).max(axis=1, initial=0.0)
            ends, starts = own.max(axis=1, initial=-np.inf), np.maximum(rest, 0.0) - others[:, c]
            falling = self.sample_C[members]
        # As the constant grows by t, members' slacks fall until t is at their end, others' rise
        # from their start on.
        n_falling, costs = len(ends), self.sample_C[~members]
        one_constant = Program(
            target=np.concatenate([ends, starts]),
            lower=np.concatenate([np.zeros(n_falling), -costs]),
            upper=np.concatenate([falling, np.zeros(len(starts))]),
            ridge=np.zeros(n_falling + len(starts)),
        )
        first, last = one_constant.optimal_intercepts(np.zeros(n_falling + len(starts)))
        return float(b[c] + np.clip(0.0, first, last))
