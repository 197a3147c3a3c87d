"""Passes written in CUDA for the work that plain operations of torch do in several, each beside its
plain fallback.

Gaussian kernels are read straight off the samples: a thread keeps the distances of a few pairs and
reads every width's formula off them, so that a combined matrix costs one write of it, and a product
with β no write at all. Such distances are sums of squared differences in double precision: exactly
zero on the diagonal and exactly symmetric. Features in single precision are multiplied with vectors
in double, which a product of matrices would need a copy for.

The compiler is a private function of torch: where it is missing, or its results differ from those
of the plain operations, those are used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from kernelmosaic.backend import row_strips

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
#: The same in single precision but for the sums: a thread keeps its sample in registers, a block of
#: threads some of the others at hand, and rates are those of powers of two. FEATURES is a multiple
#: of four.
_ROUGHLY = """
extern "C" __global__ void multiply_roughly(
    const float* L, const float* R, const float* rates, const float* beta, double* out,
    const int rows, const int columns, const int span)
{
    __shared__ float4 others[TILE * FEATURES / 4];
    __shared__ float own[COUNT * TILE];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int start = blockIdx.y * span;
    const int stop = start + span < columns ? start + span : columns;
    float x[FEATURES];
    #pragma unroll
    for (int k = 0; k < FEATURES; ++k) x[k] = L[(long long)k * rows + (i < rows ? i : rows - 1)];
    double sums[COUNT];
    for (int m = 0; m < COUNT; ++m) sums[m] = 0.0;
    for (int first = start; first < stop; first += TILE) {
        const int many = stop - first < TILE ? stop - first : TILE;
        __syncthreads();
        const float4* from = (const float4*)(R + (long long)first * FEATURES);
        for (int t = threadIdx.x; t < many * (FEATURES / 4); t += blockDim.x) others[t] = from[t];
        for (int t = threadIdx.x; t < COUNT * TILE; t += blockDim.x)
            own[t] = t % TILE < many ? beta[(long long)(t / TILE) * columns + first + t % TILE] : 0.0f;
        __syncthreads();
        float part[COUNT];
        for (int m = 0; m < COUNT; ++m) part[m] = 0.0f;
        #pragma unroll 4
        for (int j = 0; j < many; ++j) {
            float s = 0.0f;
            #pragma unroll
            for (int k = 0; k < FEATURES / 4; ++k) {
                const float4 y = others[j * (FEATURES / 4) + k];
                const float p = x[4 * k] - y.x, q = x[4 * k + 1] - y.y, r = x[4 * k + 2] - y.z, t = x[4 * k + 3] - y.w;
                s += p * p; s += q * q; s += r * r; s += t * t;
            }
            #pragma unroll
            for (int m = 0; m < COUNT; ++m) part[m] += exp2f(rates[m] * s) * own[m * TILE + j];
        }
        for (int m = 0; m < COUNT; ++m) sums[m] += part[m];
    }
    if (i >= rows) return;
    for (int m = 0; m < COUNT; ++m) out[((long long)blockIdx.y * COUNT + m) * rows + i] = sums[m];
}
"""
#: A thread an entry: the distance is read once, whatever the number of widths.
_ADD = """
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
#: Threads of a block.
_THREADS = 128
#: With more columns than this a matrix product is the faster way to distances.
MOST_FEATURES = 256
#: ... and with more than this a sample has no room in the registers of a thread.
_FEW_FEATURES = 64
#: Samples that a block of threads keeps in shared memory.
_TILE = 64
#: With more kernels than this a thread could not keep their sums to itself.
MOST_KERNELS = 32
#: Numbers of a strip of features that the plain operations copy to double precision.
_STRIP = 2**24
#: How far compiled passes in single and in double precision may be from the plain ones before they
#: are not used.
_SINGLE, _DOUBLE = 1e-4, 1e-9


@lru_cache(maxsize=8)
def available(device: torch.device) -> bool:
    """Whether the passes compile for a device and give the results of plain operations there."""
    if device.type != "cuda":
        return False
    try:
        return all(_gaussians_agree(device)) and all(_features_agree(device))
    except Exception:  # whatever a private function raises, the plain operations are used
        return False


def _gaussians_agree(device: torch.device) -> list[bool]:
    X, beta = _random(device, (301, 7), (2, 301))
    rates, weights = [-0.1, -2.0], [0.25, 1.5]
    D = ((X[:, None] - X[None]) ** 2).sum(-1)
    K = [torch.exp(rate * D) for rate in rates]
    total = weights[0] * K[0] + weights[1] * K[1]
    combined = torch.empty((301, 301), dtype=torch.float32, device=device)
    _combine(X.T.contiguous(), rates, weights, combined)
    # A block of a larger matrix, whose neighbours must stay as they are.
    added = torch.ones((301, 320), dtype=torch.float32, device=device)
    _add(D, rates, weights, added[:, 5:306])
    expected = torch.stack([K[m] @ beta[m] for m in range(2)])[:, 10:240]
    rough, exact = (
        _multiply(X[10:240].T.contiguous(), X, rates, beta, precise) for precise in (False, True)
    )
    return [
        _near(combined, total, _SINGLE),
        _near(added[:, 5:306], 1.0 + total, _SINGLE),
        bool((added[:, :5] == 1.0).all()) and bool((added[:, 306:] == 1.0).all()),
        _near(rough, expected, _SINGLE),
        _near(exact, expected, _DOUBLE),
    ]


def _features_agree(device: torch.device) -> list[bool]:
    Z, w, v = _random(device, (1301, 77), (77,), (1301,))
    Z = Z.float()
    return [
        _near(_rows_times(Z, w), Z.double() @ w, _DOUBLE),
        _near(_columns_times(Z, v), Z.double().T @ v, _DOUBLE),
    ]


def _random(device: torch.device, *shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(device) for shape in shapes
    ]


def _near(found: Tensor, expected: Tensor, tolerance: float) -> bool:
    return float((found - expected).abs().max()) <= tolerance


@lru_cache(maxsize=64)
def _compiled(source: str, name: str, device: torch.device) -> Any:
    with torch.cuda.device(device):
        return torch.cuda._compile_kernel(source, name)


def _run(source: str, name: str, grid: tuple[int, int], args: list[Any]) -> None:
    """Run a pass on the device of its first argument."""
    device = args[0].device
    with torch.cuda.device(device):
        _compiled(source, name, device)(grid=(*grid, 1), block=(_THREADS, 1, 1), args=args)


# Gaussian kernels ---------------------------------------------------------------------------------


def combine_directly(
    XT: Tensor, rates: Sequence[float], weights: Sequence[float], out: Tensor
) -> bool:
    """Write Σ_m weights_m exp(rates_m D) into a matrix, for samples of shape (features, n); False
    if it cannot."""
    n = XT.shape[1]
    usable = (
        out.is_cuda
        and out.dtype == torch.float32
        and out.is_contiguous()
        and XT.shape[0] <= MOST_FEATURES
    )
    if not usable or n > 4 * 65535 or not available(out.device):
        return False
    _combine(XT, rates, weights, out)
    return True


def multiply_directly(
    LT: Tensor, R: Tensor, rates: Sequence[float], beta: Tensor, exact: bool
) -> Tensor | None:
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
    if (
        not LT.is_cuda
        or LT.shape[0] > MOST_FEATURES
        or len(rates) > MOST_KERNELS
        or not available(LT.device)
    ):
        return None
    rough = None if exact else _roughly(LT, R, rates, beta)
    return _multiply(LT, R, rates, beta, exact) if rough is None else rough


def add_gaussians(S: Tensor, rates: Sequence[float], weights: Sequence[float], out: Tensor) -> None:
    """out += Σ_m weights_m exp(rates_m S), where out may be a block of a larger matrix."""
    if out.dtype == torch.float32 and S.dtype == torch.float64 and available(S.device):
        _add(S, rates, weights, out)
        return
    S = S.to(out.dtype)
    T = torch.empty_like(S)
    for rate, weight in zip(rates, weights, strict=True):
        torch.mul(S, rate, out=T)
        out.add_(T.exp_(), alpha=weight)


def _combine(XT: Tensor, rates: Sequence[float], weights: Sequence[float], out: Tensor) -> None:
    features, n = XT.shape
    args = [
        XT.contiguous(),
        out,
        *_constants(tuple(rates), tuple(weights), XT.device),
        len(rates),
        features,
        n,
    ]
    _run(_COMBINE, "combine", (-(-n // _THREADS), -(-n // 4)), args)


def _multiply(LT: Tensor, R: Tensor, rates: Sequence[float], beta: Tensor, exact: bool) -> Tensor:
    (features, rows), columns, count = LT.shape, R.shape[0], len(rates)
    out, span = _room(LT.device, count, rows, columns)
    constants = torch.tensor(list(rates), dtype=torch.float64, device=LT.device)
    args: list[Any] = [LT.contiguous(), R.contiguous(), constants, beta.contiguous(), out]
    args += [features, rows, columns, span, int(exact)]
    # The number of kernels is written into the source, so that the sums stay in registers.
    _run(_MULTIPLY.replace("COUNT", str(count)), "multiply", (-(-rows // _THREADS), len(out)), args)
    return out.sum(0)


def _roughly(LT: Tensor, R: Tensor, rates: Sequence[float], beta: Tensor) -> Tensor | None:
    """Return the product with distances in single precision, too; None where that would not do."""
    if LT.shape[0] > _FEW_FEATURES or not _rough_available(LT.device):
        return None
    # In units of the narrowest kernel and of the largest coefficient no number is too large or too
    # small.
    narrowest, centre, size = max(-rate for rate in rates), R.mean(0), float(beta.abs().max())
    left, right = (LT - centre[:, None]) * narrowest**0.5, (R - centre) * narrowest**0.5
    # A rounding ε of coordinates changes an exponent D by 2√D ε. It may do so by 3e-5, of Gaussians
    # of any size that counts, whose exponent is at most ln 10⁹.
    most, counts = 3e-5, 21.0
    largest = float(torch.maximum(left.abs().max(), right.abs().max()))
    if not (
        size > 0
        and narrowest > 0
        and 2 * counts**0.5 * largest * torch.finfo(torch.float32).eps / 2 <= most
    ):
        return None
    return size * _multiply_roughly(left, right, [rate / narrowest for rate in rates], beta / size)


@lru_cache(maxsize=8)
def _rough_available(device: torch.device) -> bool:
    try:
        (X, beta), rates = _random(device, (301, 7), (2, 301)), [-0.1, -2.0]
        found = _multiply_roughly(X[10:240].T, X, rates, beta)
        return _near(found, _multiply(X[10:240].T, X, rates, beta, True), _SINGLE)
    except Exception:  # as in `available`
        return False


def _multiply_roughly(LT: Tensor, R: Tensor, rates: Sequence[float], beta: Tensor) -> Tensor:
    (features, rows), columns, count = LT.shape, R.shape[0], len(rates)
    out, span = _room(LT.device, count, rows, columns)
    powers = torch.tensor(rates, dtype=torch.float64, device=LT.device) / math.log(2.0)
    wide = -(-features // 4) * 4
    L = torch.zeros((wide, rows), dtype=torch.float32, device=LT.device)
    others = torch.zeros((columns, wide), dtype=torch.float32, device=LT.device)
    L[:features], others[:, :features] = LT, R
    args: list[Any] = [
        L,
        others,
        powers.float(),
        beta.float().contiguous(),
        out,
        rows,
        columns,
        span,
    ]
    source = (
        _ROUGHLY.replace("COUNT", str(count))
        .replace("FEATURES", str(wide))
        .replace("TILE", str(_TILE))
    )
    _run(source, "multiply_roughly", (-(-rows // _THREADS), len(out)), args)
    return out.sum(0)


def _room(device: torch.device, count: int, rows: int, columns: int) -> tuple[Tensor, int]:
    """Return room for the sums of all threads among which the columns of a row are split, and how
    many each has."""
    # So many threads keep a device busy: a product with fewer rows splits its columns among more of
    # them.
    span = -(-columns // max(1, min(2**18 // rows, columns // 64, 1024)))
    return torch.empty((-(-columns // span), count, rows), dtype=torch.float64, device=device), span


def _add(S: Tensor, rates: Sequence[float], weights: Sequence[float], out: Tensor) -> None:
    S = S.contiguous()
    constants = _constants(tuple(rates), tuple(weights), S.device)
    args = [S, out, *constants, len(rates), S.shape[1], out.stride(0), S.numel()]
    _run(_ADD, "add_gaussians", (-(-S.numel() // _THREADS), 1), args)


@lru_cache(maxsize=16)
def _constants(
    rates: tuple[float, ...], weights: tuple[float, ...], device: torch.device
) -> Tensor:
    """The widths and weights on the device: the same for every block of a matrix, and copied
    once."""
    return torch.tensor([rates, weights], dtype=torch.float32, device=device)


# Features in single precision ---------------------------------------------------------------------


def multiply_features(
    Z: Tensor, V: Tensor, transposed: bool = False, strip: int = _STRIP
) -> Tensor:
    """Return ZV, or ZᵀV where Z is transposed, in double precision, copying at most `strip` numbers
    at once."""
    n, width = Z.shape
    plain = (
        Z.is_cuda
        and Z.dtype == torch.float32
        and Z.is_contiguous()
        and V.ndim == 1
        and Z.numel() > 0
    )
    if plain and n < 2**31 and available(Z.device):
        return _columns_times(Z, V) if transposed else _rows_times(Z, V)
    out = torch.zeros(
        (width if transposed else n, *V.shape[1:]), dtype=torch.float64, device=Z.device
    )
    for rows in row_strips(n, strip // max(width, 1)):
        if transposed:
            out += Z[rows].double().T @ V[rows]
        else:
            out[rows] = Z[rows].double() @ V
    return out


def _rows_times(Z: Tensor, w: Tensor) -> Tensor:
    n, width = Z.shape
    out = torch.empty(n, dtype=torch.float64, device=Z.device)
    _run(_ROWS, "rows_times", (-(-n // (_THREADS // 32)), 1), [Z, w.contiguous(), out, n, width])
    return out


def _columns_times(Z: Tensor, v: Tensor) -> Tensor:
    n, width = Z.shape
    # 1024 spans of rows keep a device busy, and fewer than 64 rows are not worth one.
    span = max(-(-n // 1024), 64)
    spans = -(-n // span)
    out = torch.empty((spans, width), dtype=torch.float64, device=Z.device)
    _run(
        _COLUMNS,
        "columns_times",
        (-(-width // _THREADS), spans),
        [Z, v.contiguous(), out, n, width, span],
    )
    return out.sum(0)
