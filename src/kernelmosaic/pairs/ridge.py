"""Least squares on kernels of pairs, which are known by products alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from kernelmosaic._typing import Array
from kernelmosaic.gram.linear_algebra import solve_to_residual
from kernelmosaic.gram.options import BlockOptions
from kernelmosaic.pairs.stack import PairGram, PairStack, make_pair_stack
from kernelmosaic.ridge.learning import (
    RidgeOptions,
    RidgeProblem,
    RidgeTargets,
    problem_by_products,
)
from kernelmosaic.solvers.least_squares import Judged, Loss, RidgeMachine, RidgePoint

__all__ = ["PairForm", "make_pair_stack", "pair_problem"]


class PairForm:
    """The criterion by products with kernels of pairs: conjugate gradients and random signs.

    The matrix A, which maps targets to coefficients, is not stored, and so its diagonal is not
    known: A_ii is approximated by w_i τ, where τ is the mean of A_ii / w_i, as in generalised
    cross-validation. τ is estimated by Σ_j z_jᵀ A z_j / (n s) from s vectors z_j of random signs
    divided by √w. They stay the same during a search, so that the criterion is a smooth function of
    the weights, and its gradient is exact.

    Parameters
    ----------
    stack : PairStack
        The kernels.
    targets : RidgeTargets
        Targets Y and weights w of the pairs.
    options : RidgeOptions
        Steps and tolerances.
    """

    def __init__(self, stack: PairStack, targets: RidgeTargets, options: RidgeOptions) -> None:
        self.stack = stack
        self.options = options
        if options.criterion != "loo":
            raise ValueError(
                f"criterion={options.criterion!r}: {stack.form}, but the evidence needs a matrix of"
                " all pairs; use criterion='loo'."
            )
        if targets.groups is not None:
            raise ValueError(
                f"groups: {stack.form}, so groups of pairs cannot be left out together; choose"
                " alpha by cross-validation with PairSplit, or fit to fewer pairs."
            )
        self.Y = targets.Y
        self.weight = targets.weight
        # So many vectors that there are `probe_signs` signs together, but at least two.
        n_probes = max(2, -(-options.probe_signs // stack.n_samples))
        n_probes = min(n_probes, options.most_probes)
        signs = np.random.RandomState(0).choice([-1.0, 1.0], (stack.n_samples, n_probes))
        self.probes = signs / np.sqrt(targets.weight)[:, np.newaxis]
        self.accuracy = BlockOptions(cg_steps=options.product_steps, cg_tol=options.product_tol)
        #: The largest α / Σ η so far at which the preconditioner of the members left a system
        #: unsolved.
        self.unsolved_ridge = 0.0

    def _solve(self, gram: PairGram, point: RidgePoint, right: Array) -> tuple[Array, Array]:
        """Return A times the right-hand sides, and the relative residual of every column.

        The preconditioner of the members costs little, and is enough unless the ridge is small.
        Where it was not enough, later systems of the search with a ridge as small use the strong
        one at once.
        """
        options = self.options
        ridge = point.alpha / self.weight
        relative_ridge = point.alpha / float(point.weights.sum())

        def times(p: Array) -> Array:
            return np.asarray(gram.products(p) + ridge[:, np.newaxis] * p)

        def solve(
            preconditioner: Callable[[Array], Array], start: Array | None, rounds: int
        ) -> tuple[Array, Array]:
            return solve_to_residual(
                times,
                preconditioner,
                right,
                self.accuracy,
                options.product_residual,
                start=start,
                rounds=rounds,
            )

        solution = None
        if relative_ridge > self.unsolved_ridge:
            solution, residuals = solve(gram.preconditioner(ridge), None, 1)
            if np.all(residuals <= options.product_residual):
                return solution, residuals
            self.unsolved_ridge = relative_ridge
        return solve(gram.strong_preconditioner(ridge), solution, options.product_rounds)

    def judge(self, point: RidgePoint, loss: Loss | None) -> Judged:
        """Return the loss of the residuals of pairs left out, and its gradient."""
        assert loss is not None
        weight, gram = self.weight, self._combine(point)
        ridge = (point.alpha / weight)[:, np.newaxis]
        beta, U, tau, _ = self._solve_machine(gram, point)
        r = beta / (tau * weight[:, np.newaxis])
        value, g, in_scale = loss(r, point.scale)
        H, _ = self._solve(gram, point, g / (tau * weight[:, np.newaxis]))
        # dβ = −A dM β and dτ = −Σ_j u_jᵀ dM u_j / (n s).
        slope_in_tau = float(np.sum(g * r)) / (tau * U.size)
        slopes = slope_in_tau * self.stack.bilinear_forms(U, U) - self.stack.bilinear_forms(H, beta)
        in_alpha = slope_in_tau * float(np.sum(ridge * U * U)) - float(np.sum(ridge * H * beta))
        return Judged(value, point.weights * slopes, in_alpha, in_scale)

    def residuals_left_out(self, point: RidgePoint) -> Array:
        """Return the residuals of pairs left out, with the approximated A_ii."""
        beta, _, tau, _ = self._solve_machine(self._combine(point), point)
        return beta / (tau * self.weight[:, np.newaxis])

    def machine(self, point: RidgePoint, loss: Loss | None) -> RidgeMachine:
        """Return the machine at a point, with the loss of the residuals left out as its value."""
        assert loss is not None
        gram, weight = self._combine(point), self.weight[:, np.newaxis]
        beta, _, tau, unsolved = self._solve_machine(gram, point)
        residuals = beta / (tau * weight)
        missed = self.Y - gram.products(beta) - (point.alpha / weight) * beta
        is_solved = unsolved <= self.options.product_residual
        return RidgeMachine(
            beta=beta,
            intercept=missed.mean(axis=0),
            residuals=residuals,
            value=loss(residuals, point.scale)[0],
            unsolved=0.0 if is_solved else unsolved,
        )

    def _solve_machine(
        self, gram: PairGram, point: RidgePoint
    ) -> tuple[Array, Array, float, float]:
        """Return β = A Y, A times the random signs, τ, and the largest relative residual."""
        solution, residuals = self._solve(gram, point, np.column_stack([self.Y, self.probes]))
        beta, probed = np.split(solution, [self.Y.shape[1]], axis=1)
        tau = max(float(np.sum(self.probes * probed)) / probed.size, np.finfo(float).tiny)
        return beta, probed, tau, float(residuals.max())

    def _combine(self, point: RidgePoint) -> PairGram:
        """Return the combined kernel of all pairs at the weights of a point."""
        return cast(PairGram, self.stack.combine(point.weights))


@problem_by_products.register
def pair_problem(stack: PairStack, targets: RidgeTargets, options: RidgeOptions) -> RidgeProblem:
    """Return the criterion by products with kernels of pairs."""
    return RidgeProblem(PairForm(stack, targets, options), targets, options)
