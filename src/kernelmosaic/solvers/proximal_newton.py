"""Newton steps on the weights of the features, for the program of a kernel in factors, K = Z Zᵀ.

The dual less ½σ‖β − β_k‖² is maximised instead of the dual itself; its solution is the next centre
β_k, and σ shrinks. Each such problem is the same program with the ridge ρ + σ and the target t +
σβ_k. The gradient of its primal problem,

    min_{w, b}  ½‖w‖² + Σ_i ℓ_i(t_i + σβ_ki − ⟨z_i, w⟩ − b),

is continuous and piecewise linear: β follows from the residuals, sample by sample, and only samples
whose β is between its bounds contribute to the second derivative. So the Newton matrix I + ZᵀΘZ is
a sum over these few, where interior points sum over all. With a ridge there is nothing to soften: σ
is zero, and a handful of steps suffice.

w and b move together. So β at the end of a full step is computed from the residuals where the
samples are: Zd, Zᵀβ and the next Newton matrix come out of one pass over the rows, and where rows
are on other machines out of one trip. All vectors are where the features are.

Words: the *softened* program is the one with σ, the *adjoint* is Zᵀβ, which equals w at the
solution, and a *pass* reads all rows of Z once.
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
from kernelmosaic.solvers.tuning import (
    DIAGONAL_SAMPLES,
    FINAL_PROXIMAL_GAP,
    LEAST_SIGMA,
    MOST_HALVINGS,
    PROXIMAL_GAP,
    SIGMA_DECREASE,
    SUM_ROUNDING,
    SolverOptions,
)


class ProximalNewton:
    """Semi-smooth Newton steps inside proximal ones.

    Parameters
    ----------
    gram : FactoredGram
        The kernel, known by products with Z.
    program : Program
        The dual program, with losses and a target.
    beta : ndarray of shape (n,)
        A feasible start.
    values : ndarray of shape (n,), optional
        Kβ at the start, if it is known.

    Attributes
    ----------
    w : array of shape (D,)
        The weights of the features.
    intercept : float
        The constant b.
    values : array of shape (n,)
        Zw.
    beta : array of shape (n,)
        The coefficients that follow from w and the intercept. They are in the box, but need not
        meet the total between steps.
    adjoint : array of shape (D,)
        Zᵀβ.
    sigma : float
        The factor σ of the current softened program; zero if every sample has a ridge.
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
        self.gram = gram
        self.backend = gram.backend
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
        """Return the first σ.

        With σ a coefficient moves from bound to bound while its residual changes by σ times the
        width of its box. For the first σ that is half of the mean size of the targets, unless this
        is very small beside the diagonal of the kernel.
        """
        width = p.upper - p.lower
        width = width[np.isfinite(width) & (width > 0)]
        n = p.n_samples
        places = np.linspace(0, n - 1, min(n, DIAGONAL_SAMPLES)).astype(np.intp)
        sample = self.gram.rows(np.unique(places))
        diagonal_sum = float(np.einsum("ij,ij->", sample, sample))
        sigma = 0.5 * float(np.abs(p.target).mean()) / max(float(width.mean()), 1e-300)
        return max(sigma, LEAST_SIGMA * diagonal_sum / len(sample))

    def solve(self, tol: float, max_iter: int = SolverOptions.newton_steps) -> Solution:
        """Take steps until the certified relative gap is at most `tol`; return the best solution.

        Steps end before that if there were `max_iter` of them in all calls, or if rounding prevents
        progress. A later call goes on from the current point.
        """
        p = self.program
        best: Solution | None = None
        moved = True
        while True:
            # 1. The gap of the program. The dual value is corrected by the intercept for the sum
            #    that β misses; the certified β meets the total.
            quadratic = 0.5 * float(self.adjoint @ self.adjoint)
            dual = float(p.linear_value(self.beta)) - quadratic + self.intercept * self._missing()
            intercept = p.best_intercept(self.values, self.intercept)
            primal = 0.5 * float(self.w @ self.w) + float(p.losses(self.values, intercept))
            gap = relative_gap(primal, dual)

            # 2. A certificate, if it may be the last.
            is_last = not moved or self.n_iter >= max_iter
            if gap <= tol or is_last:
                certified = self._certified()
                if best is None or certified.gap < best.gap:
                    best = certified
                if best.gap <= tol or is_last:
                    return best

            # 3. The next softened program, once the current one is solved.
            if self.sigma and self._is_softened_solved(primal, dual, gap, tol):
                self.sigma *= SIGMA_DECREASE
                self._soften(self.beta)

            # 4. A step.
            moved = self._step()

    def _is_softened_solved(self, primal: float, dual: float, gap: float, tol: float) -> bool:
        """Whether the gap of the softened program is small beside that of the program.

        Where the program's own gap is already within `tol`, only the certificate is above it, in
        which w is Zᵀβ. Then the softened gap must be nearly zero.
        """
        best_intercept = self.softened.best_intercept(self.values, self.intercept)
        intercept_error = self.intercept - best_intercept
        weight_gap = 0.5 * float(((self.w - self.adjoint) ** 2).sum())
        softened_gap = weight_gap + abs(intercept_error * self._missing())
        if gap > tol:
            return softened_gap <= PROXIMAL_GAP * (primal - dual)
        return softened_gap <= FINAL_PROXIMAL_GAP * abs(primal)

    def _soften(self, centre: ArrayOrTensor) -> None:
        """Set the softened program around a centre, and its state at the current w."""
        p = self.program
        self.softened = replace(
            p, target=p.target + self.sigma * centre, ridge=p.ridge + self.sigma
        )
        self._set_state()

    def _set_state(self, newton_pass: NewtonPass | None = None) -> None:
        """Set β, the adjoint, the Newton matrix and the value of the softened program at w.

        `newton_pass` is the pass at the current w and intercept; without one the intercept becomes
        the best at w, and the pass is made.
        """
        p = self.softened
        if newton_pass is None:
            self.intercept = p.best_intercept(self.values, self.intercept)
            newton_pass = self._newton_pass(None, self.intercept)
        self.beta: ArrayOrTensor = p.conjugate_argmax(p.target - self.values - self.intercept)
        self.adjoint = newton_pass.adjoint
        self.matrix = newton_pass.matrix
        self.value = self._value(self.w, self.values, self.intercept)

    def _newton_pass(self, direction: ArrayOrTensor, intercept: float) -> NewtonPass:
        """Return the pass at w + direction, or at w if the direction is None."""
        p = self.program
        residual = self.softened.target - self.values - intercept
        rule = BoxRule(p.epsilon, self.sigma)
        return self.gram.newton_pass(direction, residual, rule, (p.lower, p.upper, p.ridge))

    def _value(self, w: ArrayOrTensor, values: ArrayOrTensor, intercept: float) -> float:
        """Return the primal value of the softened program, where values = Zw."""
        return 0.5 * float(w @ w) + float(self.softened.losses(values, intercept))

    def _missing(self) -> float:
        """Return total − Σβ, the derivative of the softened primal value in the intercept."""
        if self.program.total is None:
            return 0.0
        return self.program.total - float(self.beta.sum())

    def _certified(self) -> Solution:
        """Return the certified solution at w.

        If the current β misses the total, β is computed at the intercept for which it meets it.
        """
        p = self.softened
        if abs(self._missing()) > SUM_ROUNDING * float(abs(self.beta).sum()):
            intercept = p.best_intercept(self.values, self.intercept)
            beta = p.conjugate_argmax(p.target - self.values - intercept)
            return certify(self.program, beta, self.gram.products(beta), self.n_iter)
        values = self.gram.products_given(self.beta, self.adjoint)
        return certify(self.program, self.beta, values, self.n_iter)

    def _step(self) -> bool:
        """Take a Newton step with a line search; return False if no step lowers the value."""
        # 1. The direction, and the derivative of the value along it.
        try:
            direction, intercept_change = self._direction()
        except np.linalg.LinAlgError:
            # The Newton matrix has overflown.
            return False
        self.n_iter += 1
        gradient = self.w - self.adjoint
        slope = float(gradient @ direction) + self._missing() * intercept_change
        if not slope < 0:
            return False

        # 2. One pass returns Z times the direction, and all that the next step reads if this one is
        #    taken in full.
        full_intercept = self.intercept + intercept_change
        newton_pass = self._newton_pass(direction, full_intercept)

        def point(size: float, intercept: float | None = None) -> _Point:
            w = self.w + size * direction
            values = self.values + size * newton_pass.change
            if intercept is None:
                intercept = self.softened.best_intercept(values, self.intercept)
            return _Point(self._value(w, values, intercept), w, values)

        # 3. The full step if it lowers the value enough, else a shorter one, whose intercept is the
        #    best. Steps are halved: the value is piecewise quadratic, and the minimum of a parabola
        #    through two points is too near to the start.
        current = _Point(self.value, self.w, self.values)
        full = line_search(lambda size: point(size, full_intercept), current, slope, Trials(1))
        if full is not None:
            _, self.w, self.values = full[1]
            self.intercept = full_intercept
            self._set_state(newton_pass)
            return True
        trials = Trials(MOST_HALVINGS, least=0.5)
        shorter = line_search(point, current, slope, trials)
        if shorter is None:
            return False
        _, self.w, self.values = shorter[1]
        self._set_state()
        return True

    def _direction(self) -> tuple[Any, float]:
        """Return the Newton step of w and that of the intercept.

        The intercept is eliminated from the system of D + 1 unknowns.
        """
        M = self.matrix()
        H, ones, total = M[:-1, :-1], M[:-1, -1], float(M[-1, -1])
        gradient = self.w - self.adjoint
        missing = self._missing()
        has_intercept = self.program.total is not None and total > 0
        if has_intercept:
            H = H - self.backend.xp.outer(ones, ones / total)
            gradient = gradient - ones * (missing / total)
        diagonal = self.backend.diagonal_view(H)
        diagonal += 1.0
        direction = -Cholesky(H).solve(gradient)
        if not has_intercept:
            return direction, 0.0
        return direction, -(missing + float(ones @ direction)) / total


class _Point(NamedTuple):
    """Weights w of the features, the outputs values = Zw, and the softened primal value there."""

    upper: float
    w: ArrayOrTensor
    values: ArrayOrTensor


@dataclass(frozen=True)
class BoxRule:
    """The rule by which β and the diagonal Θ follow from residuals, sample by sample.

    It is called where the samples are, which may be on other machines.
    """

    epsilon: float
    sigma: float

    def __call__(
        self,
        residual: ArrayOrTensor,
        lower: ArrayOrTensor,
        upper: ArrayOrTensor,
        ridge: ArrayOrTensor,
    ) -> tuple[Any, Any]:
        """Return β and Θ of some samples, from their residuals and their part of the program."""
        box = Program(residual, lower, upper, ridge + self.sigma, self.epsilon, None)
        beta = box.conjugate_argmax(residual)
        is_free = (beta > lower) & (beta < upper)
        if self.epsilon:
            is_free &= beta != 0
        return beta, backend_of(residual).xp.where(is_free, 1.0 / box.ridge, 0.0)
