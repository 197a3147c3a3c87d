"""The dual program of the machines with one output a class, and what a point of it is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.solvers.program import MET, Vector, require_finite, sum_rounding

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class MulticlassProgram:
    """max Σ_ic T_ic β_ic − ½ Σ_c β_cᵀ K_c β_c  where every sample's coefficients sum to zero over the classes.

    With y the sample's class and p its C, β_iy ≥ 0, −p ≤ β_ic ≤ 0 for the other classes, and with one slack a
    sample (Crammer and Singer) also β_iy ≤ p. Both machines ask f_y(xᵢ) − f_c(xᵢ) ≥ margin_ic − ξ of every other class
    c, so that T_ic = −margin_ic and T_iy = 0. Where every class has a constant b_c, the coefficients of every class
    sum to zero, too: Σ_i β_ic = 0, of which the b_c are the multipliers.

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

    labels: NDArray[np.intp]
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
        T[np.arange(self.n_samples), self.labels] = 0.0
        return T

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
        """Return by how much each sample's own class is too little ahead of every other, zero for itself."""
        rows = np.arange(self.n_samples)
        behind = self.margins + values - values[rows, self.labels][:, np.newaxis]
        behind[rows, self.labels] = 0.0
        return behind

    def primal_value(self, quadratic: float, values: Matrix, constants: Vector) -> float:
        """Return the primal objective of the outputs values + constants, where quadratic = ½ Σ_c ‖w_c‖²."""
        return require_finite(quadratic + self.losses(values + constants))

    def worst_losses(self, values: Matrix, constants: Vector, error: Matrix) -> Vector:
        """Return the most that each sample's slacks may cost, where the outputs are `values` up to `error`."""
        rows = np.arange(self.n_samples)
        outputs = values + constants
        error = error + sum_rounding(1) * np.abs(outputs)
        behind = self._behind(outputs)
        behind += error + error[rows, self.labels][:, np.newaxis]
        behind += sum_rounding(1) * (np.abs(self.margins + outputs) + np.abs(behind))
        behind[rows, self.labels] = 0.0
        behind = np.maximum(behind, 0.0)
        return np.asarray(self.sample_C * (behind.sum(axis=1) if self.pairwise else behind.max(axis=1)))

    def primal_bound(self, quadratic: float, values: Matrix, constants: Vector, error: Matrix) -> float:
        """Return a number that the primal objective does not exceed, for outputs up to `error`."""
        value = quadratic + float(self.worst_losses(values, constants, error).sum())
        return value * (1.0 + sum_rounding(self.n_samples))

    def linear_bound(self, beta: Matrix, constants: Vector) -> float:
        """Return a number that `linear_value` exceeds by no less than its rounding and what the sums of β miss."""
        size = float(np.sum(np.abs(self.target * beta)))
        missed = np.abs([fsum(own) for own in beta.T]) if self.constants else np.zeros(self.n_classes)
        return self.linear_value(beta) - sum_rounding(beta.size) * size - float(np.abs(constants) @ missed)

    def take(self, which: NDArray[np.intp] | slice) -> MulticlassProgram:
        """Return the program of some samples."""
        return replace(self, labels=self.labels[which], margins=self.margins[which], sample_C=self.sample_C[which])

    def given(self, constants: Vector) -> MulticlassProgram:
        """Return the program in which the constants are given: they are part of the margins."""
        margins = self.margins + constants - constants[self.labels][:, np.newaxis]
        return replace(self, margins=margins, constants=False)

    def start(self, warm_start: Matrix | None) -> Matrix:
        """Return the feasible point to start from, as an array of its own."""
        return np.zeros(self.margins.shape) if warm_start is None else self.feasible(warm_start)

    def feasible(self, beta: Matrix) -> Matrix:
        """Return a feasible point near beta, which it leaves as it is if it is one."""
        rows = np.arange(self.n_samples)
        others = np.clip(-beta, 0.0, self.sample_C[:, np.newaxis])
        others[rows, self.labels] = 0.0
        if not self.pairwise:
            total = others.sum(axis=1)
            others *= np.divide(self.sample_C, total, out=np.ones(len(total)), where=total > self.sample_C)[
                :, np.newaxis
            ]
        out = -others
        out[rows, self.labels] = np.minimum(others.sum(axis=1), self.own_upper)
        return out

    def continued(self, beta: Matrix, before: MulticlassProgram) -> Matrix:
        """Return a start near the solution β of a program with another C.

        A sample whose coefficients are as large as they may be keeps them so; the others stay as they are.
        """
        ratio = np.divide(self.sample_C, before.sample_C, out=np.ones(self.n_samples), where=before.sample_C > 0)
        largest = -beta.min(axis=1) if self.pairwise else beta.max(axis=1)
        return beta * np.where(largest >= (1.0 - 1e-9) * before.sample_C, ratio, 1.0)[:, np.newaxis]

    # Constants -------------------------------------------------------------------------------------------------------

    @property
    def class_C(self) -> Vector:
        """What the samples of each class may have as coefficients at most, one slack each, in sum."""
        return np.asarray(np.bincount(self.labels, self.sample_C, self.n_classes), dtype=np.float64)

    def balanced(self, beta: Matrix) -> Matrix:
        """Return a feasible point near a feasible β at which every class's coefficients sum to zero, up to rounding.

        The excess of the classes is moved between coefficients of the same sample that have room, by the squares of
        their room, so that none leaves its bounds by much. What then is left makes all coefficients smaller.
        """
        rows, beta = np.arange(self.n_samples), beta.copy()
        # The coefficients of a class without samples are all of one sign.
        beta[:, self.class_C == 0.0] = 0.0
        beta[rows, self.labels] = 0.0
        beta[rows, self.labels] = -beta.sum(axis=1)
        lower, upper = np.tile(-self.sample_C[:, np.newaxis], self.n_classes), np.zeros(beta.shape)
        lower[rows, self.labels], upper[rows, self.labels] = 0.0, self.own_upper
        for _ in range(5):
            excess = beta.sum(axis=0)
            if np.abs(excess).max() <= 1e-14 * np.abs(beta).sum():  # rounding
                return beta
            room = np.maximum(np.minimum(beta - lower, upper - beta), 0.0)
            step = _exchange(excess, room**2)
            share = np.divide(room, np.abs(step), out=np.ones_like(room), where=np.abs(step) > room)
            beta = self.feasible(beta + float(share.min()) * step)
        return self._shrunk(beta)

    def _shrunk(self, beta: Matrix) -> Matrix:
        """Return t β plus, in the coefficients of each class's own samples, what its sum still lacks, t near one."""
        excess, class_C = beta.sum(axis=0), self.class_C
        excess -= excess.mean()
        lack, excess = np.maximum(-excess, 0.0), np.maximum(excess, 0.0)
        if not excess.sum() > 0.0:
            return beta
        t = float(np.min(np.divide(class_C, class_C + lack, out=np.ones_like(class_C), where=class_C > 0)))
        # The own samples of each class that lacks something take it, each by its C, from those with too much.
        size = t * np.divide(lack, class_C, out=np.zeros_like(class_C), where=class_C > 0)[self.labels] * self.sample_C
        out = t * beta - np.outer(size, excess / excess.sum())
        out[np.arange(self.n_samples), self.labels] += size
        return self.feasible(out)

    def best_intercept(self, values: Matrix, start: Vector | None = None) -> Vector:
        """Return constants of mean zero that cost no more than those to start from, class after class the best.

        They are zeros unless the classes have constants, and start from zeros by default.
        """
        b = np.zeros(self.n_classes) if start is None else start.copy()
        for _ in range(3 if self.constants else 0):
            before = b.copy()
            for c in range(self.n_classes):
                b[c] = self._best_constant(values, b, c)
            if np.array_equal(b, before):
                break
        return np.asarray(b - b.mean())

    def _best_constant(self, values: Matrix, b: Vector, c: int) -> float:
        """Return the best constant of one class, the others given; of several the nearest to what it is."""
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
        # As the constant grows by t, members' slacks fall until t is at their end, others' rise from their start on.
        knots, costs = np.concatenate([ends, starts]), np.concatenate([falling, self.sample_C[~members]])
        order = np.argsort(knots[costs > 0])
        knots, costs = knots[costs > 0][order], costs[costs > 0][order]
        # The slope before the first knot and after each.
        slopes = np.concatenate([[0.0], np.cumsum(costs)]) - falling.sum()
        noise = MET * float(costs.sum())
        ends = np.concatenate([[-np.inf], knots, [np.inf]])
        low, high = ends[np.searchsorted(slopes, -noise)], ends[np.searchsorted(slopes, noise, side="right")]
        return float(b[c] + np.clip(0.0, low, high))


def _exchange(excess: Vector, weight: Matrix) -> Matrix:
    """Return the step that takes the excess off the classes' sums and is least in Σ step²/weight, samples' sums kept.

    It is −weight ∘ (u_c − the sample's mean of u), where u, one number per class, solves a system of the classes.
    """
    total = weight.sum(axis=1)
    share = np.divide(weight, total[:, np.newaxis], out=np.zeros_like(weight), where=total[:, np.newaxis] > 0)
    L = np.diag(weight.sum(axis=0)) - weight.T @ share
    u = np.linalg.lstsq(L, excess, rcond=None)[0]
    return np.asarray(-weight * (u - (share @ u)[:, np.newaxis]))
