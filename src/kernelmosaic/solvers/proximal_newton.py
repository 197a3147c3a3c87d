"""The program for a kernel in factors, K = Z Zᵀ: Newton steps on the weights of the features, which may start anywhere.

The dual less ½σ‖β − β_k‖² is maximised instead of the dual itself, its answer is the next centre β_k, and σ shrinks.
Each such problem is the same program with the ridge ρ + σ and the target t + σβ_k. The slope of its primal problem,

    min_{w, b}  ½‖w‖² + Σ_i ℓ_i(t_i + σβ_ki − ⟨z_i, w⟩ − b),

is continuous and piecewise linear: β is read off the residuals, sample by sample, and only samples whose β is between
its bounds bend the loss. So the Newton matrix I + ZᵀΘZ is a sum over these few, where interior points sum over all.
With a ridge there is nothing to soften: σ is zero, and a handful of steps do.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from kernelmosaic.gram.factored import FactoredGram
from kernelmosaic.gram.linear import Cholesky
from kernelmosaic.solvers.program import Program, Solution, Vector, certify, relative_gap

#: By how much a residual changes as it takes a coefficient from bound to bound in the first problem, as a share of the
#: targets' size; ...
_FIRST_BAND = 0.5
#: ... its σ is no less than this share of the kernel's diagonal, ...
_LEAST_SIGMA = 0.02
#: ... and shrinks by this factor from problem to problem.
_NARROWER = 0.3
#: A problem is solved once its own gap is this share of the program's; ...
_SOLVED = 0.1
#: ... of the value itself, once only the certificate, whose w is Zᵀβ, is left to close.
_CLOSED = 1e-9
#: Steps after which interior points are faster.
_MAX_ITER = 50
#: Sufficient decrease in a line search, and the most halvings.
_ARMIJO, _HALVINGS = 1e-4, 12


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

    Attributes
    ----------
    sigma : float
        How much the present problem is softened; zero if the ridge does that for every sample.
    n_iter : int
        Newton matrices factorised.

    References
    ----------
    Li, Sun and Toh (2018), "A highly efficient semismooth Newton augmented Lagrangian method for solving Lasso
    problems"; Rockafellar (1976), "Monotone operators and the proximal point algorithm".
    """

    def __init__(self, gram: FactoredGram, program: Program, beta: Vector) -> None:
        self.gram, self.program = gram, program
        self.w = gram.adjoint(beta)
        self.values = gram.apply(self.w)
        self.sigma = 0.0 if (program.ridge > 0).all() else self._first_sigma()
        self.n_iter = 0
        self._soften(beta)

    def _first_sigma(self) -> float:
        p = self.program
        width = p.upper - p.lower
        width = width[np.isfinite(width) & (width > 0)]
        some = self.gram.rows(np.unique(np.linspace(0, p.n_samples - 1, min(p.n_samples, 200)).astype(np.intp)))
        band = _FIRST_BAND * float(np.abs(p.target).mean()) / max(float(width.mean()), 1e-300)
        return max(band, _LEAST_SIGMA * float(np.einsum("ij,ij->", some, some)) / len(some))

    def solve(self, tol: float) -> Solution:
        """Take steps until the certified relative gap is at most `tol`; a larger one tells that they did not do."""
        p = self.program
        best: Solution | None = None
        moved = True
        while True:
            w_dual = self.gram.adjoint(self.beta)
            dual = p.linear_value(self.beta) - 0.5 * float(w_dual @ w_dual)
            losses = float(p.losses(self.values, p.best_intercept(self.values)))
            primal = 0.5 * float(self.w @ self.w) + losses
            gap = relative_gap(primal, dual)
            ends = not moved or self.n_iter >= _MAX_ITER
            if gap <= tol or ends:
                found = certify(p, self.beta, self.gram.apply(w_dual), self.n_iter)
                best = found if best is None or found.gap < best.gap else best
                if best.gap <= tol or ends:
                    return best
            own = 0.5 * float(np.sum((self.w - w_dual) ** 2))
            if self.sigma and own <= (_SOLVED * (primal - dual) if gap > tol else _CLOSED * abs(primal)):
                self.sigma *= _NARROWER
                self._soften(self.beta)
                w_dual = self.gram.adjoint(self.beta)
            moved = self._step(self.w - w_dual)

    def _soften(self, centre: Vector) -> None:
        """Pose the problem around a centre, and read β off the present w."""
        p = self.program
        self.softened = replace(p, target=p.target + self.sigma * centre, ridge=p.ridge + self.sigma)
        self.value = self._read(self.w, self.values)

    def _read(self, w: Vector, values: Vector) -> float:
        """Set β to what w and its best intercept imply, which sums to the total, and return the problem's value."""
        p = self.softened
        intercept = p.best_intercept(values)
        self.beta: Vector = p.conjugate_argmax(p.target - values - intercept)
        return 0.5 * float(w @ w) + float(p.losses(values, intercept))

    def _step(self, slope: Vector) -> bool:
        """Take a Newton step from w, cut where the value no longer falls; False if it never does."""
        try:
            direction = -Cholesky(self._newton_matrix()).solve(slope)
        except LinAlgError:  # overflown
            return False
        steep, change = float(slope @ direction), self.gram.apply(direction)
        w, values, before = self.w, self.values, self.value
        self.n_iter += 1
        size = 1.0
        for _ in range(_HALVINGS if steep < 0 else 0):
            self.w, self.values = w + size * direction, values + size * change
            self.value = self._read(self.w, self.values)
            if self.value <= before + _ARMIJO * size * steep:
                return True
            size *= 0.5
        self.w, self.values = w, values
        self.value = self._read(w, values)
        return False

    def _newton_matrix(self) -> NDArray[np.float64]:
        """Return the curvature in w, the best intercept following it."""
        p = self.softened
        bends = (self.beta > p.lower) & (self.beta < p.upper)
        if p.epsilon:
            bends &= self.beta != 0
        M: NDArray[np.float64] = self.gram.normal_matrix(np.where(bends, 1.0 / p.ridge, 0.0))
        H, ones, total = M[:-1, :-1], M[:-1, -1], float(M[-1, -1])
        if p.total is not None and total > 0:
            H = H - np.outer(ones, ones) / total
        H.flat[:: len(H) + 1] += 1.0
        return H
