"""Gaussian kernels straight from the samples, compiled for the device: no block of distances is ever written.

A thread keeps the distances of a few pairs and reads every width's formula off them, so that a combined matrix costs
one write of it, and a product with β no write at all. Distances are sums of squared differences in double precision:
exactly zero on the diagonal and exactly symmetric. Where the compiler, a private door of torch, is not to be had, or
does not agree with the plain operations, those serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from kernelmosaic.gram._torch_compiler import compiled

_COMBINE = """
extern "C" __global__ void combine(
    const double* X, float* out, const float* rates, const float* weights,
    const int count, const int features, const int n)
{
    const int j = blockIdx.x * blockDim.x + threadIdx.x;
    const int i = 4 * blockIdx.y;
    if (j >= n) return;
    const int b = i + 1 < n ? i + 1 : n - 1, c = i + 2 < n ? i + 2 : n - 1, e = i + 3 < n ? i + 3 : n - 1;
    double s[4] = {0.0, 0.0, 0.0, 0.0};
    for (int k = 0; k < features; ++k) {
        const double* row = X + (long long)k * n;
        const double y = row[j];
        const double p = row[i] - y, q = row[b] - y, r = row[c] - y, t = row[e] - y;
        s[0] += p * p; s[1] += q * q; s[2] += r * r; s[3] += t * t;
    }
    for (int u = 0; u < 4 && i + u < n; ++u) {
        const float d = (float)s[u];
        float total = 0.0f;
        for (int m = 0; m < count; ++m) total += weights[m] * expf(rates[m] * d);
        out[(long long)(i + u) * n + j] = total;
    }
}
"""
_MULTIPLY = """
extern "C" __global__ void multiply(
    const double* L, const double* R, const double* rates, const double* beta, double* out,
    const int features, const int rows, const int columns, const int span, const int exact)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    const int start = blockIdx.y * span;
    const int stop = start + span < columns ? start + span : columns;
    double sums[COUNT];
    for (int m = 0; m < COUNT; ++m) sums[m] = 0.0;
    for (int j = start; j < stop; j += 4) {
        const int b = j + 1 < stop ? j + 1 : j, c = j + 2 < stop ? j + 2 : j, e = j + 3 < stop ? j + 3 : j;
        const double* y = R + (long long)j * features;
        const double* z = R + (long long)b * features;
        const double* v = R + (long long)c * features;
        const double* w = R + (long long)e * features;
        double s[4] = {0.0, 0.0, 0.0, 0.0};
        for (int k = 0; k < features; ++k) {
            const double x = L[(long long)k * rows + i];
            const double p = x - y[k], q = x - z[k], r = x - v[k], t = x - w[k];
            s[0] += p * p; s[1] += q * q; s[2] += r * r; s[3] += t * t;
        }
        for (int u = 0; u < 4 && j + u < stop; ++u) {
            for (int m = 0; m < COUNT; ++m) {
                const double value = exact ? exp(rates[m] * s[u]) : (double)expf((float)rates[m] * (float)s[u]);
                sums[m] += value * beta[(long long)m * columns + j + u];
            }
        }
    }
    for (int m = 0; m < COUNT; ++m) out[((long long)blockIdx.y * COUNT + m) * rows + i] = sums[m];
}
"""
_THREADS = 128
#: Threads that keep a device busy: a product with fewer rows splits its columns among more of them.
_BUSY = 2**18
#: With more columns than this a matrix product is the faster way to distances.
MOST_FEATURES = 256
#: With more kernels than this a thread could not keep their sums to itself.
MOST_KERNELS = 32
_AGREEMENT = 1e-5


def combine_directly(XT: Tensor, rates: Sequence[float], weights: Sequence[float], out: Tensor) -> bool:
    """Write Σ_m weights_m exp(rates_m D) into a matrix, for samples of shape (features, n); False if it cannot."""
    n = XT.shape[1]
    usable = out.is_cuda and out.dtype == torch.float32 and out.is_contiguous() and XT.shape[0] <= MOST_FEATURES
    if not usable or n > 4 * 65535 or not available(out.device):
        return False
    _combine(XT, rates, weights, out)
    return True


def multiply_directly(LT: Tensor, R: Tensor, rates: Sequence[float], beta: Tensor, exact: bool) -> Tensor | None:
    """Return Σ_j exp(rates_m D_ij) beta_mj, of shape (kernels, rows), or None if it cannot.

    Parameters
    ----------
    LT : Tensor of shape (features, rows)
        One side.
    R : Tensor of shape (columns, features)
        The other.
    rates : sequence of float
        One a kernel.
    beta : Tensor of shape (kernels, columns)
        Coefficients.
    exact : bool
        Whether exponentials are taken in double precision; sums always are.
    """
    if not LT.is_cuda or LT.shape[0] > MOST_FEATURES or len(rates) > MOST_KERNELS or not available(LT.device):
        return None
    return _multiply(LT, R, rates, beta, exact)


def _combine(XT: Tensor, rates: Sequence[float], weights: Sequence[float], out: Tensor) -> None:
    features, n = XT.shape
    constants = torch.tensor([list(rates), list(weights)], dtype=torch.float32, device=XT.device)
    grid = (-(-n // _THREADS), -(-n // 4), 1)
    args = [XT.contiguous(), out, constants[0], constants[1], len(rates), features, n]
    with torch.cuda.device(out.device):
        compiled(_COMBINE, "combine", out.device)(grid=grid, block=(_THREADS, 1, 1), args=args)


def _multiply(LT: Tensor, R: Tensor, rates: Sequence[float], beta: Tensor, exact: bool) -> Tensor:
    (features, rows), columns, count = LT.shape, R.shape[0], len(rates)
    splits = max(1, min(_BUSY // rows, columns // 64, 1024))
    span = -(-columns // splits)
    splits = -(-columns // span)
    out = torch.empty((splits, count, rows), dtype=torch.float64, device=LT.device)
    constants = torch.tensor(list(rates), dtype=torch.float64, device=LT.device)
    args: list[Any] = [LT.contiguous(), R.contiguous(), constants, beta.contiguous(), out]
    args += [features, rows, columns, span, int(exact)]
    grid = (-(-rows // _THREADS), splits, 1)
    # The number of kernels is written into the source, so that the sums stay in registers.
    run = compiled(_MULTIPLY.replace("COUNT", str(count)), "multiply", LT.device)
    with torch.cuda.device(LT.device):
        run(grid=grid, block=(_THREADS, 1, 1), args=args)
    return out.sum(0)


@lru_cache(maxsize=8)
def available(device: torch.device) -> bool:
    """Whether the passes compile for a device and agree with plain operations there."""
    try:
        generator = torch.Generator().manual_seed(0)
        X = torch.randn((301, 7), generator=generator, dtype=torch.float64).to(device)
        beta = torch.randn((2, 301), generator=generator, dtype=torch.float64).to(device)
        rates, weights = [-0.1, -2.0], [0.25, 1.5]
        D = ((X[:, None] - X[None]) ** 2).sum(-1)
        found = torch.empty((301, 301), dtype=torch.float32, device=device)
        _combine(X.T.contiguous(), rates, weights, found)
        K = [torch.exp(rate * D) for rate in rates]
        wrong = float((found - weights[0] * K[0] - weights[1] * K[1]).abs().max())
        expected = torch.stack([K[m] @ beta[m] for m in range(2)])[:, 10:240]
        for exact in (False, True):
            product = _multiply(X[10:240].T.contiguous(), X, rates, beta, exact)
            wrong = max(wrong, float((product - expected).abs().max()))
        return wrong <= _AGREEMENT * 10
    except Exception:  # whatever goes wrong behind a private door, the plain operations serve
        return False
