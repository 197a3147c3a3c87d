"""Linear systems in blocks of a kernel matrix, on its device: factorised where they are small enough, else iterated."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernelmosaic.gram._torch_blocks import take_block
from kernelmosaic.gram.device import DeviceGram
from kernelmosaic.solvers.program import Program, Solution, Vector, certify

#: Relative to the mean diagonal: what entries in single and in double precision leave unknown.
_JITTER = {torch.float32: 1e-6, torch.float64: 1e-10}
#: Blocks up to this many samples are factorised: in double precision they take three gigabytes.
FACTORISED = 20_000
#: Where the device has the memory, the curvature of the weights is worth more.
LARGEST_FACTORISED = 36_000
_CG_TOL = 1e-2
_CG_STEPS = 50
#: Entries gathered at once.
_CHUNK = 2**26


def noise_of(A: Tensor, ridge: Tensor) -> float:
    """Return what must be added to the diagonal for the rounding of the entries not to matter."""
    unit = float(A.diagonal().mean()) + float(ridge.mean())
    # Rounding errors that know nothing of each other add up to an eigenvalue that grows with the root of their number.
    share = max(_JITTER[A.dtype], torch.finfo(A.dtype).eps * len(A) ** 0.5)
    return float(share * max(unit, 1e-300))


def regularised_factor(A: Tensor, ridge: Tensor, noise: float | None = None) -> Tensor | None:
    """Return the Cholesky factor of A + diag ridge, lifted by the noise A's entries carry; None if that fails."""
    jitter = noise_of(A, ridge) if noise is None else noise
    for _ in range(4):
        B = A.to(torch.float64, copy=True)
        B.diagonal().add_(ridge + jitter)
        factor: Tensor
        factor, info = torch.linalg.cholesky_ex(B)
        if int(info) == 0:
            return factor
        jitter *= 30.0
    return None


def solve_factor(factor: Tensor, right: Tensor) -> Tensor:
    """Return the solution of the system with that Cholesky factor, for a matrix of right-hand sides."""
    return torch.cholesky_solve(right, factor)


def conjugate_gradients(A: Tensor, diagonal: Tensor, right: Tensor) -> Tensor:
    """Solve (A + diag diagonal) x = right for all columns at once, each with step sizes of its own, to two digits."""
    scale = (A.diagonal().double() + diagonal).rsqrt().unsqueeze(1)
    b = scale * right
    x, r = torch.zeros_like(b), b.clone()
    p = r.clone()
    norm = (r * r).sum(0)
    goal = _CG_TOL**2 * norm
    for _ in range(_CG_STEPS):
        own = scale * p
        Ap = scale * (multiply_rows(A, own) + diagonal.unsqueeze(1) * own)
        curvature = (p * Ap).sum(0)
        step = torch.where(curvature > 0, norm / curvature, torch.zeros_like(norm))
        x += step * p
        r -= step * Ap
        fresh = (r * r).sum(0)
        if bool((fresh <= goal).all()):
            break
        p = r + torch.where(norm > 0, fresh / norm, torch.zeros_like(norm)) * p
        norm = fresh
    return scale * x


def multiply_rows(A: Tensor, x: Tensor) -> Tensor:
    """A x in double precision, a few rows at a time."""
    height = max(1, _CHUNK // A.shape[1])
    return torch.cat([A[i : i + height].double() @ x for i in range(0, A.shape[0], height)])


def _factorises(A: Tensor) -> bool:
    """Whether a block is worth factorising for its curvature: once a solve, so larger ones than for a step are."""
    if A.device.type != "cuda" or len(A) <= FACTORISED:
        return len(A) <= FACTORISED
    # The block in double precision, its factor, and what the factorisation itself asks for.
    return len(A) <= LARGEST_FACTORISED and 3 * 8 * len(A) ** 2 <= torch.cuda.mem_get_info(A.device)[0]


def solve_free_on_device(
    gram: DeviceGram, ridge: Vector, free: NDArray[np.intp], right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return (K_FF + diag ρ_F)⁻¹ times the right-hand sides, roughly where the block is too large to factorise."""
    K = gram.matrix
    at = torch.as_tensor(free, device=K.device)
    sides = torch.as_tensor(right, dtype=torch.float64, device=K.device)
    own = torch.as_tensor(ridge[free], dtype=torch.float64, device=K.device)
    A = take_block(K, at, at)
    if not _factorises(A):
        found = conjugate_gradients(A, own + noise_of(A, own), sides)
    else:
        factor = regularised_factor(A, own)
        found = torch.zeros_like(sides) if factor is None else solve_factor(factor, sides)
    values: NDArray[np.float64] = found.cpu().numpy()
    return values


def solve_linear_on_device(gram: DeviceGram, program: Program) -> Solution:
    """Solve a program whose box is infinite and whose tube is empty: (K + diag ρ) β = t − b, Σβ = total."""
    if program.epsilon or np.isfinite(program.lower).any() or np.isfinite(program.upper).any():
        raise ValueError("solve_linear serves programs without bounds and without a tube; use solve_blocked.")
    K = gram.matrix
    ridge = torch.as_tensor(program.ridge, device=K.device)
    factor = regularised_factor(K, ridge, noise=0.0)
    if factor is None:
        raise np.linalg.LinAlgError("K + diag ρ is not positive definite to machine precision: raise the ridge.")
    sides = np.column_stack([program.target, np.ones(program.n_samples)])
    beta, ones = solve_factor(factor, torch.as_tensor(sides, device=K.device)).cpu().numpy().T
    if program.total is not None:
        beta = beta - (beta.sum() - program.total) / ones.sum() * ones
    if gram.exact is None:
        values = multiply_rows(K, torch.as_tensor(beta[:, np.newaxis], device=K.device))[:, 0].cpu().numpy()
    else:
        values = gram.exact(np.arange(program.n_samples), beta)
    return certify(program, beta, values, 1)
