"""Programs whose kernel lives on a device: solved there in blocks, by what is imported only once there is one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.device import DeviceGram
from kernelmosaic.solvers.dispatch import mean_diagonal, solve, solve_free, solve_unbounded
from kernelmosaic.solvers.program import Program, Solution, Vector


@solve.register(DeviceGram)
def solve_blocked(
    gram: DeviceGram,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    *,
    max_rounds: int | None = None,
    block: int | None = None,
) -> Solution:
    """Solve the dual program to a relative duality gap of `tol`, the matrix staying on its device.

    A round takes the samples whose coefficients have most to gain, solves their program alone on the host, and brings
    everyone's slope up to date with one product on the device. Between rounds Newton steps on the device move all free
    coefficients at once. The certificate is that of `solve_smo`, with Kβ in double precision.

    Parameters
    ----------
    gram : DeviceGram
        Symmetric positive semi-definite matrix on a device.
    program : Program
        The rest of the problem.
    warm_start : ndarray of shape (n,), optional
        Any β, feasible or not.
    tol : float
        The relative duality gap at which to stop.
    max_rounds : int, optional
        Most rounds. A gap above `tol` in the answer tells that they did not do.
    block : int, optional
        Samples a round; by default what suits their number.
    """
    from kernelmosaic.solvers._torch_blocked import BlockedAscent

    ascent = BlockedAscent(gram, program, warm_start, block)
    return ascent.reach(tol, 10_000 if max_rounds is None else max_rounds)


@solve_unbounded.register(DeviceGram)
def _solve_unbounded(gram: DeviceGram, program: Program) -> Solution:
    from kernelmosaic.solvers._torch_linear import solve_linear_on_device

    return solve_linear_on_device(gram, program)


@solve_free.register(DeviceGram)
def _solve_free(
    gram: DeviceGram, program: Program, free: NDArray[np.intp], right_hand_sides: NDArray[np.float64]
) -> NDArray[np.float64]:
    from kernelmosaic.solvers._torch_linear import solve_free_on_device

    return solve_free_on_device(gram, program.ridge, free, right_hand_sides)


@mean_diagonal.register(DeviceGram)
def _mean_diagonal(gram: DeviceGram) -> float:
    return float(gram.diagonal().mean())
