"""Features in single precision times vectors in double: one pass over the features, summed in double precision.

A product of matrices wants both sides in one precision, and a copy of the features in double precision would be three
passes over memory. Where the compiler is not to be had, or does not agree with plain operations, strips of such copies
serve.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from kernelmosaic.gram._torch_compiler import compiled
from kernelmosaic.gram.row_blocks import row_strips

#: A warp a row.
_ROWS = """
extern "C" __global__ void rows_times(const float* Z, const double* w, double* out, const int n, const int width)
{
    const int lane = threadIdx.x & 31;
    const int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= n) return;
    const float* z = Z + (long long)row * width;
    double sum = 0.0;
    #pragma unroll 4
    for (int k = lane; k < width; k += 32) sum += (double)z[k] * w[k];
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) out[row] = sum;
}
"""
#: A thread a column and span of rows; the spans are summed afterwards.
_COLUMNS = """
extern "C" __global__ void columns_times(
    const float* Z, const double* v, double* out, const int n, const int width, const int span)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= width) return;
    const int start = blockIdx.y * span;
    const int stop = start + span < n ? start + span : n;
    double sum = 0.0;
    #pragma unroll 8
    for (int i = start; i < stop; ++i) sum += (double)Z[(long long)i * width + k] * v[i];
    out[(long long)blockIdx.y * width + k] = sum;
}
"""
_THREADS = 128
#: Spans of rows that keep a device busy, and the least rows worth one.
_SPANS, _LEAST_SPAN = 1024, 64
#: Numbers of a strip that is copied to double precision.
_STRIP = 2**24
_AGREEMENT = 1e-12


def rows_times(Z: Tensor, w: Tensor) -> Tensor:
    """Return Zw, of shape (n,) or (n, k), in double precision."""
    if _serves(Z, w):
        return _rows_times(Z, w)
    return torch.cat([Z[strip].double() @ w for strip in _strips(Z)]) if len(Z) else w.new_zeros((0, *w.shape[1:]))


def columns_times(Z: Tensor, V: Tensor) -> Tensor:
    """Return ZᵀV, of shape (D,) or (D, k), in double precision."""
    if _serves(Z, V):
        return _columns_times(Z, V)
    out = torch.zeros((Z.shape[1], *V.shape[1:]), dtype=torch.float64, device=Z.device)
    for strip in _strips(Z):
        out += Z[strip].double().T @ V[strip]
    return out


def _serves(Z: Tensor, vector: Tensor) -> bool:
    plain = Z.is_cuda and Z.dtype == torch.float32 and Z.is_contiguous() and vector.ndim == 1 and Z.numel() > 0
    return plain and len(Z) < 2**31 and available(Z.device)


def _strips(Z: Tensor) -> list[slice]:
    return list(row_strips(len(Z), _STRIP // max(int(Z.shape[1]), 1)))


def _rows_times(Z: Tensor, w: Tensor) -> Tensor:
    n, width = Z.shape
    out = torch.empty(n, dtype=torch.float64, device=Z.device)
    run = compiled(_ROWS, "rows_times", Z.device)
    with torch.cuda.device(Z.device):
        run(grid=(-(-n // (_THREADS // 32)), 1, 1), block=(_THREADS, 1, 1), args=[Z, w.contiguous(), out, n, width])
    return out


def _columns_times(Z: Tensor, v: Tensor) -> Tensor:
    n, width = Z.shape
    span = max(-(-n // _SPANS), _LEAST_SPAN)
    spans = -(-n // span)
    out = torch.empty((spans, width), dtype=torch.float64, device=Z.device)
    run = compiled(_COLUMNS, "columns_times", Z.device)
    with torch.cuda.device(Z.device):
        grid = (-(-width // _THREADS), spans, 1)
        run(grid=grid, block=(_THREADS, 1, 1), args=[Z, v.contiguous(), out, n, width, span])
    return out.sum(0)


@lru_cache(maxsize=8)
def available(device: torch.device) -> bool:
    """Whether the passes compile for a device and agree with plain operations there."""
    try:
        generator = torch.Generator().manual_seed(0)
        Z = torch.randn((1301, 77), generator=generator).to(device)
        w, v = (torch.randn(size, generator=generator, dtype=torch.float64).to(device) for size in (77, 1301))
        wrong = max(
            float((_rows_times(Z, w) - Z.double() @ w).abs().max()),
            float((_columns_times(Z, v) - Z.double().T @ v).abs().max()),
        )
        return wrong <= _AGREEMENT * 1301
    except Exception:  # whatever goes wrong behind a private door, the plain operations serve
        return False
