"""The program for a kernel in factors with something on its diagonal: the same as one with a larger ridge."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.factored import ShiftedGram
from kernelmosaic.solvers.dispatch import mean_diagonal, solve, solve_free
from kernelmosaic.solvers.free_block import free_samples
from kernelmosaic.solvers.program import Program, Solution, Vector, certify

#: By how much more exactly the program with the larger ridge is solved each time that does not do, ...
_SHARPER = 0.03
#: ... and when rounding is all that is left.
_SHARPEST = 1e-14
#: A Newton step pays if it takes the gap to this share.
_PAYS = 0.5


@solve.register
def solve_shifted(gram: ShiftedGram, program: Program, warm_start: Vector | None = None, tol: float = 1e-3) -> Solution:
    """Solve the dual program for K = ZZᵀ + diag e to a relative duality gap of `tol`.

    In the dual the diagonal of K and the ridge are the same thing, so β is that of ZZᵀ with the ridge ρ + e. In the
    primal they are not: the former is part of the function, the latter a price of its errors. The certificate is that
    of the program given. Where its gap is larger, as that of a machine without slack is by about a root, β is polished
    by Newton steps on its free samples, and if these do not do, solved for more exactly.
    """
    softer = _softened(gram, program)
    best: Solution | None = None
    n_iter, inner = 0, tol
    while True:
        found = solve(gram.inner, softer, warm_start if best is None else best.beta, inner)
        n_iter += found.n_iter
        there = certify(program, found.beta, found.values + gram.shift * found.beta, n_iter)
        while there.gap > tol and (better := _polished(gram, program, there)).gap < _PAYS * there.gap:
            there = better
        if best is None or there.gap < best.gap:
            best = there
        if best.gap <= tol or inner <= _SHARPEST or found.gap > inner:
            return best
        inner = max(_SHARPER * inner, _SHARPEST)


def _polished(gram: ShiftedGram, program: Program, at: Solution) -> Solution:
    """Return the solution after a Newton step of the free coefficients, the others staying where they are."""
    free = free_samples(program, at.beta)
    if len(free) == 0:
        return at
    residual = program.target - at.values - program.ridge * at.beta - at.intercept
    pull = (residual - program.epsilon * np.sign(at.beta))[free]
    answer = solve_free(gram, program, free, np.column_stack([pull, np.ones(len(free))]))
    step = answer[:, 0]
    if program.total is not None and answer[:, 1].sum() > 0:
        step = step - step.sum() / answer[:, 1].sum() * answer[:, 1]
    beta = at.beta.copy()
    beta[free] += step
    beta = program.feasible(beta)
    values = gram.inner.apply(gram.inner.adjoint(beta)) + gram.shift * beta
    return certify(program, beta, values, at.n_iter + 1)


def _softened(gram: ShiftedGram, program: Program) -> Program:
    """Return the program with the diagonal in its ridge, and with the primal of every such program."""
    ridge = program.ridge + gram.shift
    return Program(program.target, program.lower, program.upper, ridge, program.epsilon, program.total)


@solve_free.register
def _solve_shifted_free(
    gram: ShiftedGram, program: Program, free: NDArray[np.intp], right_hand_sides: NDArray[np.float64]
) -> NDArray[np.float64]:
    return solve_free(gram.inner, _softened(gram, program), free, right_hand_sides)


@mean_diagonal.register
def _mean_diagonal_shifted(gram: ShiftedGram) -> float:
    return mean_diagonal(gram.inner) + float(gram.shift.mean())
