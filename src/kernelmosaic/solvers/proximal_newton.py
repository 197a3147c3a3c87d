"""The program for a kernel in factors, K = Z Zᵀ: Newton steps on the weights of the features, which
may start anywhere.

The dual less ½σ‖β − β_k‖² is maximised instead of the dual itself, its answer is the next centre
β_k, and σ shrinks. Each such problem is the same program with the ridge ρ + σ and the target t +
σβ_k. The slope of its primal problem,

    min_{w, b}  ½‖w‖² + Σ_i ℓ_i(t_i + σβ_ki − ⟨z_i, w⟩ − b),

is continuous and piecewise linear: β is read off the residuals, sample by sample, and only samples
whose β is between its bounds bend the loss. So the Newton matrix I + ZᵀΘZ is a sum over these few,
where interior points sum over all. With a ridge there is nothing to soften: σ is zero, and a
handful of steps do.

w and b move together, so that β at the end of a whole step is read off residuals sample by sample,
wherever the samples are: Zd, Zᵀβ and the next Newton matrix come out of one pass, and where rows
are on other machines out of one trip. All vectors are where the features are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from kernelmosaic._typing import ArrayOrTensor
from kernelmosaic.backend import backend_of
from kernelmosaic.gram.factored import FactoredGram, NewtonPass
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.solvers.line_search import Trials, line_search
from kernelmosaic.solvers.program import Program, Solution, Vector, certify, relative_gap
from kernelmosaic.solvers.tuning import SUM_ROUNDING, SolverOptions


class ProximalNewton:
    """Semi-smooth Newton steps inside proximal ones.

    Parameters
    ----------
    gram : FactoredGram
        The kernel, by what Z does to vectors.
    program : Program
        The rest of the problem, with a target.
    beta : ndarray of shape (n,)
        A feasible start.
    values : ndarray of shape (n,), optional
        Kβ there, if it is known.

    Attributes
    ----------
    sigma : float
        How much the present problem is softened; zero if the ridge does that for every sample.
    n_iter : int
        Newton matrices factorised.

    References
    ----------
    Li, Sun and Toh (2018), "A highly efficient semismooth Newton augmented Lagrangian method for
    solving Lasso problems"; Rockafellar (1976), "Monotone operators and the proximal point
    algorithm".
    """

    def __init__(
        self, gram: FactoredGram, program: Program, beta: Vector, values: Vector | None = None
    ) -> None:
        self.gram, self.backend = gram, gram.backend
        self.sigma = 0.0 if program.has_ridge_everywhere else self._first_sigma(program)
        self.program = program.placed(self.backend)
        start = self.backend.asarray(beta)
        self.w: ArrayOrTensor = self.backend.zeros((gram.n_features,))
        self.values: ArrayOrTensor = self.backend.zeros((program.n_samples,))
        if beta.any():
            self.w = gram.adjoint(start)
            self.values = gram.apply(self.w) if values is None else self.backend.asarray(values)
        self.n_iter = 0
        self.intercept = 0.0
        self._soften(start)

    def _first_sigma(self, p: Program) -> float:
        width = p.upper - p.lower
        width = width[np.isfinite(width) & (width > 0)]
        some = self.gram.rows(
            np.unique(np.linspace(0, p.n_samples - 1, min(p.n_samples, 200)).astype(np.intp))
        )
        # A residual that takes a coefficient from bound to bound changes by half the targets' size.
        band = 0.5 * float(np.abs(p.target).mean()) / max(float(width.mean()), 1e-300)
        return max(band, 0.02 * float(np.einsum("ij,ij->", some, some)) / len(some))

    def solve(self, tol: float, max_iter: int = SolverOptions.newton_steps) -> Solution:
        """Take steps until the certified relative gap is at most `tol`, or there are too many of
        them."""
        p = self.program
        best: Solution | None = None
        moved = True
        while True:
            # Between steps β may miss the total, which the intercept prices; what is certified
            # meets it.
            quadratic = 0.5 * float(self.adjoint @ self.adjoint)
            dual = float(p.linear_value(self.beta)) - quadratic + self.intercept * self._missing()
            intercept = p.best_intercept(self.values, self.intercept)
            primal = 0.5 * float(self.w @ self.w) + float(p.losses(self.values, intercept))
            gap = relative_gap(primal, dual)
            ends = not moved or self.n_iter >= max_iter
            if gap <= tol or ends:
                found = self._certified()
                best = found if best is None or found.gap < best.gap else best
                if best.gap <= tol or ends:
                    return best
            # A problem is solved once its own gap is a tenth of the program's, or next to nothing
            # of the value itself once only the certificate, whose w is Zᵀβ, is left to close.
            if self.sigma:
                apart = self.intercept - self.softened.best_intercept(self.values, self.intercept)
                own = 0.5 * float(((self.w - self.adjoint) ** 2).sum()) + abs(
                    apart * self._missing()
                )
                if own <= (0.1 * (primal - dual) if gap > tol else 1e-9 * abs(primal)):
                    self.sigma *= 0.3
                    self._soften(self.beta)
            moved = self._step()

    def _soften(self, centre: ArrayOrTensor) -> None:
        """Pose the problem around a centre, and look at it from the present w and its best
        intercept."""
        p = self.program
        self.softened = replace(
            p, target=p.target + self.sigma * centre, ridge=p.ridge + self.sigma
        )
        self._look()

    def _look(self, seen: NewtonPass | None = None) -> None:
        """Read β, its adjoint Zᵀβ and the curvature off the present w, at its best intercept if no
        pass is given."""
        p = self.softened
        if seen is None:
            self.intercept = p.best_intercept(self.values, self.intercept)
            seen = self._newton_pass(None, self.intercept)
        self.beta: ArrayOrTensor = p.conjugate_argmax(p.target - self.values - self.intercept)
        self.adjoint, self.matrix = seen.adjoint, seen.matrix
        self.value = self._value(self.w, self.values, self.intercept)

    def _newton_pass(self, direction: ArrayOrTensor, intercept: float) -> NewtonPass:
        """Make the one pass of a step: from w and the intercept if there is no direction, else from
        its end."""
        p = self.program
        residual = self.softened.target - self.values - intercept
        rule = BoxRule(p.epsilon, self.sigma)
        return self.gram.newton_pass(direction, residual, rule, (p.lower, p.upper, p.ridge))

    def _value(self, w: ArrayOrTensor, values: ArrayOrTensor, intercept: float) -> float:
        return 0.5 * float(w @ w) + float(self.softened.losses(values, intercept))

    def _missing(self) -> float:
        """By how much β falls short of the total: the value's slope in the intercept."""
        return 0.0 if self.program.total is None else self.program.total - float(self.beta.sum())

    def _certified(self) -> Solution:
        """Return the solution that w implies, its intercept being the best, so that β sums to the
        total."""
        p = self.softened
        if abs(self._missing()) > SUM_ROUNDING * float(abs(self.beta).sum()):
            intercept = p.best_intercept(self.values, self.intercept)
            beta = p.conjugate_argmax(p.target - self.values - intercept)
            return certify(self.program, beta, self.gram.products(beta), self.n_iter)
        return certify(
            self.program, self.beta, self.gram.products_given(self.beta, self.adjoint), self.n_iter
        )

    def _step(self) -> bool:
        """Take a Newton step from w and the intercept, cut where the value no longer falls; False
        if it never does."""
        try:
            direction, turn = self._direction()
        except np.linalg.LinAlgError:  # overflown
            return False
        self.n_iter += 1
        slope, missing = self.w - self.adjoint, self._missing()
        steep = float(slope @ direction) + missing * turn
        if not steep < 0:
            return False
        # What the end of a whole step is worth, and all that the next step needs to know there, is
        # one pass.
        intercept = self.intercept + turn
        seen = self._newton_pass(direction, intercept)

        def end(size: float, intercept: float | None = None) -> _Point:
            w, values = self.w + size * direction, self.values + size * seen.change
            b = (
                self.softened.best_intercept(values, self.intercept)
                if intercept is None
                else intercept
            )
            return _Point(self._value(w, values, b), w, values)

        here = _Point(self.value, self.w, self.values)
        whole = line_search(lambda size: end(size, intercept), here, steep, Trials(1))
        # Halvings: the value is piecewise quadratic, and parabolas lead too near.
        found = whole or line_search(end, here, steep, Trials(12, least=0.5))
        if found is None:
            return False
        _, self.w, self.values = found[1]
        if whole:
            self.intercept = intercept
        self._look(seen if whole else None)
        return True

    def _direction(self) -> tuple[Any, float]:
        """Return the Newton step of w and that of the intercept."""
        M = self.matrix()
        H, ones, total = M[:-1, :-1], M[:-1, -1], float(M[-1, -1])
        slope, missing = self.w - self.adjoint, self._missing()
        has_intercept = self.program.total is not None and total > 0
        if has_intercept:
            H = H - self.backend.xp.outer(ones, ones / total)
            slope = slope - ones * (missing / total)
        diagonal = self.backend.diagonal_view(H)
        diagonal += 1.0
        direction = -Cholesky(H).solve(slope)
        return direction, -(missing + float(ones @ direction)) / total if has_intercept else 0.0


class _Point(NamedTuple):
    """The value of the present problem at weights of the features, and what these make of the
    samples."""

    upper: float
    w: ArrayOrTensor
    values: ArrayOrTensor


@dataclass(frozen=True)
class BoxRule:
    """Reads β and the curvature Θ off residuals, sample by sample, wherever the samples are."""

    epsilon: float
    sigma: float

    def __call__(
        self,
        residual: ArrayOrTensor,
        lower: ArrayOrTensor,
        upper: ArrayOrTensor,
        ridge: ArrayOrTensor,
    ) -> tuple[Any, Any]:
        box = Program(residual, lower, upper, ridge + self.sigma, self.epsilon, None)
        beta = box.conjugate_argmax(residual)
        bends = (beta > lower) & (beta < upper)
        if self.epsilon:
            bends &= beta != 0
        return beta, backend_of(residual).xp.where(bends, 1.0 / box.ridge, 0.0)
