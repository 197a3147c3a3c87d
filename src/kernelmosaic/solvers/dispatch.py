"""One door to the solvers: which of them serves depends on where, and in which form, the combined kernel lives.

A Gram matrix that is a NumPy array is solved by sequential minimal optimisation. Other forms register their own
functions here, beside their solver: `@solve.register` for the whole program and `@solve_free.register` for the block
of the free samples. Learners and machines then run on them unchanged.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.solvers.free_block import solve_free_block
from kernelmosaic.solvers.linear import solve_linear
from kernelmosaic.solvers.program import Program, Solution, Vector
from kernelmosaic.solvers.smo import solve_smo


@singledispatch
def solve(gram: Any, program: Program, warm_start: Vector | None = None, tol: float = 1e-3) -> Solution:
    """Solve the program for the kernel `gram` to a relative duality gap of `tol`."""
    raise TypeError(f"No solver is registered for kernels of type {type(gram).__name__}.")


@solve.register(np.ndarray)
def _solve_array(gram: NDArray[Any], program: Program, warm_start: Vector | None = None, tol: float = 1e-3) -> Solution:
    return solve_smo(gram, program, warm_start, tol)


@singledispatch
def solve_unbounded(gram: Any, program: Program) -> Solution:
    """Solve a program without a box and without a tube: a linear system."""
    raise TypeError(f"No solver is registered for kernels of type {type(gram).__name__}.")


@solve_unbounded.register(np.ndarray)
def _solve_array_unbounded(gram: NDArray[Any], program: Program) -> Solution:
    return solve_linear(gram, program)


@singledispatch
def solve_free(
    gram: Any, program: Program, free: NDArray[np.intp], right_hand_sides: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return roughly (K_FF + diag ρ_F)⁻¹ times the right-hand sides, where F are the free samples."""
    raise TypeError(f"No solver is registered for kernels of type {type(gram).__name__}.")


@solve_free.register(np.ndarray)
def _solve_array_free(
    gram: NDArray[Any], program: Program, free: NDArray[np.intp], right_hand_sides: NDArray[np.float64]
) -> NDArray[np.float64]:
    return solve_free_block(gram, program.ridge, free, right_hand_sides)


@singledispatch
def mean_diagonal(gram: Any) -> float:
    """Return the mean of k(x, x) over the training set."""
    raise TypeError(f"No mean diagonal is registered for kernels of type {type(gram).__name__}.")


@mean_diagonal.register(np.ndarray)
def _mean_diagonal_array(gram: NDArray[Any]) -> float:
    return float(np.trace(gram)) / len(gram)
