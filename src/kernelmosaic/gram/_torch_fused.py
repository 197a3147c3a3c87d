"""Sums of Gaussians of one block of squared distances, in one pass over it where the device can compile one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from kernelmosaic.gram._torch_compiler import compiled

#: A thread an entry: the distance is read once, whatever the number of widths.
_SOURCE = """
extern "C" __global__ void add_gaussians(
    const double* distances, float* out, const float* rates, const float* weights,
    const int count, const int columns, const int stride, const int size)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const float d = (float)distances[i];
    float total = 0.0f;
    for (int m = 0; m < count; ++m) total += weights[m] * expf(rates[m] * d);
    out[(long long)(i / columns) * stride + i % columns] += total;
}
"""
_THREADS = 256
#: How far the compiled pass may be from the plain one before it is not used.
_AGREEMENT = 1e-5


def add_gaussians(S: Tensor, rates: Sequence[float], weights: Sequence[float], out: Tensor) -> None:
    """out += Σ_m weights_m exp(rates_m S), where out may be a block of a larger matrix."""
    fused = _fused(S.device) if S.device.type == "cuda" and out.dtype == torch.float32 else None
    if fused is None:
        _add_one_by_one(S, rates, weights, out)
    else:
        fused(S, rates, weights, out)


def _add_one_by_one(S: Tensor, rates: Sequence[float], weights: Sequence[float], out: Tensor) -> None:
    S = S.to(out.dtype)
    T = torch.empty_like(S)
    for rate, weight in zip(rates, weights, strict=True):
        torch.mul(S, rate, out=T)
        out.add_(T.exp_(), alpha=weight)


@lru_cache(maxsize=8)
def _fused(device: torch.device) -> Callable[..., None] | None:
    """Return the compiled pass for a device, or None where it does not compile or does not agree with the plain one."""
    try:
        with torch.cuda.device(device):
            run = _launcher(compiled(_SOURCE, "add_gaussians", device))
            S = torch.linspace(0.0, 20.0, 300 * 41, dtype=torch.float64, device=device).reshape(300, 41)
            expected, found = (torch.ones(300, 64, device=device) for _ in range(2))
            _add_one_by_one(S, [-0.1, -2.0], [0.25, 1.5], expected[:, 5:46])
            run(S, [-0.1, -2.0], [0.25, 1.5], found[:, 5:46])
            return run if float((expected - found).abs().max()) <= _AGREEMENT else None
    except Exception:  # a private door of torch: whatever goes wrong behind it, the plain pass serves
        return None


def _launcher(function: Any) -> Callable[..., None]:
    def run(S: Tensor, rates: Sequence[float], weights: Sequence[float], out: Tensor) -> None:
        S = S.contiguous()
        constants = _constants(tuple(rates), tuple(weights), S.device)
        grid = (-(-S.numel() // _THREADS), 1, 1)
        args = [S, out, constants[0], constants[1], len(rates), S.shape[1], out.stride(0), S.numel()]
        function(grid=grid, block=(_THREADS, 1, 1), args=args)

    return run


@lru_cache(maxsize=16)
def _constants(rates: tuple[float, ...], weights: tuple[float, ...], device: torch.device) -> Tensor:
    """The widths and weights on the device: the same for every block of a matrix, and copied once."""
    return torch.tensor([rates, weights], dtype=torch.float32, device=device)
