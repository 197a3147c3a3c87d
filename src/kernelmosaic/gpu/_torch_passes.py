"""Passes in CUDA for work that plain operations of torch do in several, beside those operations.

Each function that other modules call uses its pass where that can be, and plain operations of torch
or None otherwise. A pass is one kernel of CUDA over whole matrices:

- `combine` writes Σ_m weights_m exp(rates_m D_ij) from the samples. A thread keeps the squared
  distances D of a few pairs and computes the formula of every width from them, so that a combined
  matrix costs one write of it.
- `multiply` adds up products of such kernels with coefficients β, and writes no matrix at all.
  `multiply_roughly` does so in single precision but for the sums.
- `add_gaussians` adds Σ_m weights_m exp(rates_m D_ij) to a matrix, from given distances.
- `rows_times` and `columns_times` multiply features in single precision with vectors in double
  precision. A product of matrices would need a copy of the features in double precision.

Distances from the samples are sums of squared differences in double precision: exactly zero on the
diagonal and exactly symmetric.

The compiler is a private function of torch. Where it is missing, or its results differ from those
of the plain operations, the latter are used (`available`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from kernelmosaic.backend import row_strips

#: A thread for the entries of four rows in one column. X has the shape (features, n).
_COMBINE = """
extern "C" __global__ void combine(
    const double* X, float* out, const float* rates, const float* weights,
    const int count, const int features, const int n)
{
    const int j = blockIdx.x * blockDim.x + threadIdx.x;
    const int i = 4 * blockIdx.y;
    if (j >= n) return;
    const int b = i + 1 < n ? i + 1 : n - 1;
    const int c = i + 2 < n ? i + 2 : n - 1;
    const int e = i + 3 < n ? i + 3 : n - 1;
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
#: A thread for one row and a span of columns, which keeps the sums of all kernels; `out` has one
#: part for each span. L has the shape (features, rows), R the shape (columns, features). COUNT is
#: the number of kernels.
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
        const int b = j + 1 < stop ? j + 1 : j;
        const int c = j + 2 < stop ? j + 2 : j;
        const int e = j + 3 < stop ? j + 3 : j;
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
                const double value = exact
                    ? exp(rates[m] * s[u])
                    : (double)expf((float)rates[m] * (float)s[u]);
                sums[m] += value * beta[(long long)m * columns + j + u];
            }
        }
    }
    for (int m = 0; m < COUNT; ++m) out[((long long)blockIdx.y * COUNT + m) * rows + i] = sums[m];
}
"""
#: As `_MULTIPLY`, in single precision but for the sums. A thread keeps its sample in registers, and
#: a block of threads keeps TILE of the other samples in shared memory. Rates are those of powers of
#: two. FEATURES is a multiple of four.
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
            own[t] = t % TILE < many
                ? beta[(long long)(t / TILE) * columns + first + t % TILE]
                : 0.0f;
        __syncthreads();
        float part[COUNT];
        for (int m = 0; m < COUNT; ++m) part[m] = 0.0f;
        #pragma unroll 4
        for (int j = 0; j < many; ++j) {
            float s = 0.0f;
            #pragma unroll
            for (int k = 0; k < FEATURES / 4; ++k) {
                const float4 y = others[j * (FEATURES / 4) + k];
                const float p = x[4 * k] - y.x, q = x[4 * k + 1] - y.y;
                const float r = x[4 * k + 2] - y.z, t = x[4 * k + 3] - y.w;
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
#: A thread for each entry: its distance is read once, whatever the number of widths.
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
#: A warp, which is 32 threads, for each row of Z.
_ROWS = """
extern "C" __global__ void rows_times(
    const float* Z, const double* w, double* out, const int n, const int width)
{
    const int lane = threadIdx.x & 31;
    const int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= n) return;
    const float* z = Z + (long long)row * width;
    double sum = 0.0;
    #pragma unroll 4
    for (int k = lane; k < width; k += 32) sum += (double)z[k] * w[k];
    for (int offset = 16; offset > 0; offset >>= 1)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) out[row] = sum;
}
"""
#: A thread for one column of Z and a span of rows; `out` has one row for each span.
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
#: Threads of a block. Chosen by hand.
_THREADS = 128
#: Threads of a warp.
_WARP = 32
#: Most features of samples that distances are summed from; with more of them, a product of matrices
#: is the faster way to distances.
MOST_FEATURES = 256
#: Most features of samples in `_ROUGHLY`; with more of them, a sample has no room in the registers
#: of a thread.
_FEW_FEATURES = 64
#: Samples that a block of threads keeps in shared memory. Chosen by hand.
_TILE = 64
#: Most kernels of one product; a thread could not keep the sums of more of them in its registers.
MOST_KERNELS = 32
#: Most blocks of threads of a grid along its second axis, a limit of CUDA.
_MAX_GRID_ROWS = 65_535
#: Rows of a matrix that one thread of `_COMBINE` writes, as that source has it.
_ROWS_OF_THREAD = 4
#: Numbers of a strip of features that plain operations copy to double precision: 128 MiB.
_STRIP = 2**24
#: Largest difference between passes and plain operations in single and in double precision, for
#: numbers of size one. Passes that differ by more are not used.
_SINGLE_TOL = 1e-4
_DOUBLE_TOL = 1e-9
#: Threads that keep a device busy: a product with fewer rows splits its columns among more threads.
_BUSY_THREADS = 2**18
#: Fewest rows or columns of a span: a thread with fewer of them costs more than it saves.
_LEAST_SPAN = 64
#: Most spans, whose sums are added up afterwards. So many of features in `_COLUMNS` keep a device
#: busy.
_MAX_SPANS = 1024
#: Largest change of the exponent of a Gaussian by rounding that `_ROUGHLY` may be used with.
_MAX_EXPONENT_ERROR = 3e-5
#: Largest exponent of a Gaussian that counts: ln 10⁹, rounded up. Gaussians below 10⁻⁹ may err.
_LARGEST_EXPONENT = 21.0


@lru_cache(maxsize=8)
def available(device: torch.device) -> bool:
    """Return whether the passes compile for a device and agree with plain operations there."""
    if device.type != "cuda":
        return False
    try:
        return all(_gaussians_agree(device)) and all(_features_agree(device))
    except Exception:
        # Whatever a private function of torch raises, the plain operations are used.
        return False


def _gaussians_agree(device: torch.device) -> list[bool]:
    """Return, for each pass over Gaussian kernels, whether it agrees with plain operations."""
    X, beta = _random(device, (301, 7), (2, 301))
    rates = [-0.1, -2.0]
    weights = [0.25, 1.5]
    D = ((X[:, None] - X[None]) ** 2).sum(-1)
    K = [torch.exp(rate * D) for rate in rates]
    total = weights[0] * K[0] + weights[1] * K[1]
    combined = torch.empty((301, 301), dtype=torch.float32, device=device)
    _combine(X.T.contiguous(), rates, weights, combined)
    # A block of a larger matrix, whose neighbours must stay as they are.
    added = torch.ones((301, 320), dtype=torch.float32, device=device)
    _add(D, rates, weights, added[:, 5:306])
    expected = torch.stack([K[m] @ beta[m] for m in range(2)])[:, 10:240]
    LT = X[10:240].T.contiguous()
    rough = _multiply(LT, X, rates, beta, exact=False)
    exact = _multiply(LT, X, rates, beta, exact=True)
    neighbours_stay = bool((added[:, :5] == 1.0).all()) and bool((added[:, 306:] == 1.0).all())
    return [
        _near(combined, total, _SINGLE_TOL),
        _near(added[:, 5:306], 1.0 + total, _SINGLE_TOL),
        neighbours_stay,
        _near(rough, expected, _SINGLE_TOL),
        _near(exact, expected, _DOUBLE_TOL),
    ]


def _features_agree(device: torch.device) -> list[bool]:
    """Return, for each pass over features, whether it agrees with plain operations."""
    Z, w, v = _random(device, (1301, 77), (77,), (1301,))
    Z = Z.float()
    return [
        _near(_rows_times(Z, w), Z.double() @ w, _DOUBLE_TOL),
        _near(_columns_times(Z, v), Z.double().T @ v, _DOUBLE_TOL),
    ]


def _random(device: torch.device, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Return normal numbers of some shapes on a device, always the same."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(device) for shape in shapes
    ]


def _near(result: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Return whether no entry of two tensors differs by more than a tolerance."""
    return float((result - expected).abs().max()) <= tolerance


@lru_cache(maxsize=64)
def _compiled(source: str, name: str, device: torch.device) -> Any:
    """Return the pass of this name, compiled for a device."""
    with torch.cuda.device(device):
        return torch.cuda._compile_kernel(source, name)


def _run(source: str, name: str, grid: tuple[int, int], args: list[Any]) -> None:
    """Run a pass on the device of its first argument.

    Parameters
    ----------
    source, name : str
        The source in CUDA, and the name of its function.
    grid : tuple of two int
        Blocks of threads along both axes.
    args : list
        The arguments of the pass.
    """
    device = args[0].device
    with torch.cuda.device(device):
        _compiled(source, name, device)(grid=(*grid, 1), block=(_THREADS, 1, 1), args=args)


# Gaussian kernels ---------------------------------------------------------------------------------


def combine_directly(
    XT: Tensor, rates: Sequence[float], weights: Sequence[float], out: Tensor
) -> bool:
    """Write Σ_m weights_m exp(rates_m D) into a matrix, and return whether the pass could.

    Parameters
    ----------
    XT : Tensor of shape (features, n)
        The samples, whose squared distances are D.
    rates, weights : sequence of float
        One of each kernel.
    out : Tensor of shape (n, n)
        Where it is written.
    """
    n_features, n = XT.shape
    if not out.is_cuda or out.dtype != torch.float32 or not out.is_contiguous():
        return False
    if n_features > MOST_FEATURES or n > _ROWS_OF_THREAD * _MAX_GRID_ROWS:
        return False
    if not available(out.device):
        return False
    _combine(XT, rates, weights, out)
    return True


def multiply_directly(
    LT: Tensor, R: Tensor, rates: Sequence[float], beta: Tensor, exact: bool
) -> Tensor | None:
    """Return Σ_j exp(rates_m D_ij) beta_mj, of shape (kernels, rows); None if no pass can.

    Parameters
    ----------
    LT : Tensor of shape (features, rows)
        The samples i.
    R : Tensor of shape (columns, features)
        The samples j, whose squared distances to the samples i are D.
    rates : sequence of float
        One of each kernel.
    beta : Tensor of shape (kernels, columns)
        Coefficients.
    exact : bool
        Whether exponentials are taken in double precision; sums always are.
    """
    if not LT.is_cuda or LT.shape[0] > MOST_FEATURES or len(rates) > MOST_KERNELS:
        return None
    if not available(LT.device):
        return None
    if not exact:
        product = _roughly(LT, R, rates, beta)
        if product is not None:
            return product
    return _multiply(LT, R, rates, beta, exact)


def add_gaussians(S: Tensor, rates: Sequence[float], weights: Sequence[float], out: Tensor) -> None:
    """Add Σ_m weights_m exp(rates_m S) to `out`, which may be a block of a larger matrix.

    Parameters
    ----------
    S : Tensor of shape (rows, columns)
        Squared distances.
    rates, weights : sequence of float
        One of each kernel.
    out : Tensor of shape (rows, columns)
    """
    if out.dtype == torch.float32 and S.dtype == torch.float64 and available(S.device):
        _add(S, rates, weights, out)
        return
    S = S.to(out.dtype)
    T = torch.empty_like(S)
    for rate, weight in zip(rates, weights, strict=True):
        torch.mul(S, rate, out=T)
        out.add_(T.exp_(), alpha=weight)


def _combine(XT: Tensor, rates: Sequence[float], weights: Sequence[float], out: Tensor) -> None:
    """Do what `combine_directly` does by its pass."""
    n_features, n = XT.shape
    rates_and_weights = _constants(tuple(rates), tuple(weights), XT.device)
    args = [XT.contiguous(), out, *rates_and_weights, len(rates), n_features, n]
    grid = (_ceil_divide(n, _THREADS), _ceil_divide(n, _ROWS_OF_THREAD))
    _run(_COMBINE, "combine", grid, args)


def _multiply(LT: Tensor, R: Tensor, rates: Sequence[float], beta: Tensor, exact: bool) -> Tensor:
    """Return what `multiply_directly` does, by distances in double precision."""
    n_features, n_rows = LT.shape
    n_columns = len(R)
    span, sums = _span_sums(LT.device, len(rates), n_rows, n_columns)
    constants = torch.tensor(list(rates), dtype=torch.float64, device=LT.device)
    args: list[Any] = [LT.contiguous(), R.contiguous(), constants, beta.contiguous(), sums]
    args += [n_features, n_rows, n_columns, span, int(exact)]
    # The number of kernels is written into the source, so that the sums stay in registers.
    source = _MULTIPLY.replace("COUNT", str(len(rates)))
    _run(source, "multiply", (_ceil_divide(n_rows, _THREADS), len(sums)), args)
    return sums.sum(0)


def _roughly(LT: Tensor, R: Tensor, rates: Sequence[float], beta: Tensor) -> Tensor | None:
    """Return what `multiply_directly` does, by distances in single precision.

    None is returned where samples have too many features, or rounding would change Gaussians too
    much.
    """
    if LT.shape[0] > _FEW_FEATURES or not _rough_available(LT.device):
        return None
    # In units of the narrowest width and of the largest coefficient, no number overflows or
    # underflows.
    narrowest_rate = max(-rate for rate in rates)
    centre = R.mean(0)
    beta_size = float(beta.abs().max())
    left = (LT - centre[:, None]) * narrowest_rate**0.5
    right = (R - centre) * narrowest_rate**0.5
    # A rounding error ε of coordinates changes an exponent D by 2√D ε.
    largest = float(torch.maximum(left.abs().max(), right.abs().max()))
    roundoff = torch.finfo(torch.float32).eps
    exponent_error = 2 * _LARGEST_EXPONENT**0.5 * largest * roundoff / 2
    is_accurate = beta_size > 0 and narrowest_rate > 0 and exponent_error <= _MAX_EXPONENT_ERROR
    if not is_accurate:
        return None
    relative_rates = [rate / narrowest_rate for rate in rates]
    return beta_size * _multiply_roughly(left, right, relative_rates, beta / beta_size)


@lru_cache(maxsize=8)
def _rough_available(device: torch.device) -> bool:
    """Return whether the pass in single precision agrees with that in double precision."""
    try:
        X, beta = _random(device, (301, 7), (2, 301))
        rates = [-0.1, -2.0]
        LT = X[10:240].T
        rough = _multiply_roughly(LT, X, rates, beta)
        return _near(rough, _multiply(LT, X, rates, beta, exact=True), _SINGLE_TOL)
    except Exception:
        # As in `available`.
        return False


def _multiply_roughly(LT: Tensor, R: Tensor, rates: Sequence[float], beta: Tensor) -> Tensor:
    """Return what `_multiply` does, in single precision but for the sums."""
    n_features, n_rows = LT.shape
    n_columns = len(R)
    span, sums = _span_sums(LT.device, len(rates), n_rows, n_columns)
    # The pass takes powers of two.
    powers = torch.tensor(rates, dtype=torch.float64, device=LT.device) / math.log(2.0)
    # Features are padded with zeros to a multiple of four, which a thread reads at once.
    width = _ceil_divide(n_features, 4) * 4
    left = torch.zeros((width, n_rows), dtype=torch.float32, device=LT.device)
    right = torch.zeros((n_columns, width), dtype=torch.float32, device=LT.device)
    left[:n_features] = LT
    right[:, :n_features] = R
    args: list[Any] = [left, right, powers.float(), beta.float().contiguous(), sums]
    args += [n_rows, n_columns, span]
    source = _ROUGHLY.replace("COUNT", str(len(rates)))
    source = source.replace("FEATURES", str(width)).replace("TILE", str(_TILE))
    _run(source, "multiply_roughly", (_ceil_divide(n_rows, _THREADS), len(sums)), args)
    return sums.sum(0)


def _span_sums(
    device: torch.device, n_kernels: int, n_rows: int, n_columns: int
) -> tuple[int, Tensor]:
    """Return the columns of a span, and an empty tensor for the sums of every thread.

    The columns of each row are split into spans, one for each thread. The tensor has the shape
    (spans, kernels, rows).
    """
    n_spans = max(1, min(_BUSY_THREADS // n_rows, n_columns // _LEAST_SPAN, _MAX_SPANS))
    span = _ceil_divide(n_columns, n_spans)
    shape = (_ceil_divide(n_columns, span), n_kernels, n_rows)
    return span, torch.empty(shape, dtype=torch.float64, device=device)


def _ceil_divide(number: int, divisor: int) -> int:
    """Return a quotient of integers, rounded up."""
    return -(-number // divisor)


def _add(S: Tensor, rates: Sequence[float], weights: Sequence[float], out: Tensor) -> None:
    """Do what `add_gaussians` does by its pass."""
    S = S.contiguous()
    rates_and_weights = _constants(tuple(rates), tuple(weights), S.device)
    args = [S, out, *rates_and_weights, len(rates), S.shape[1], out.stride(0), S.numel()]
    _run(_ADD, "add_gaussians", (_ceil_divide(S.numel(), _THREADS), 1), args)


@lru_cache(maxsize=16)
def _constants(
    rates: tuple[float, ...], weights: tuple[float, ...], device: torch.device
) -> Tensor:
    """Return rates and weights on the device, of shape (2, kernels).

    They are the same for every block of a matrix, and are copied once.
    """
    return torch.tensor([rates, weights], dtype=torch.float32, device=device)


# Features in single precision ---------------------------------------------------------------------


def multiply_features(
    Z: Tensor, V: Tensor, transposed: bool = False, strip: int = _STRIP
) -> Tensor:
    """Return ZV in double precision, or ZᵀV where Z is transposed.

    Parameters
    ----------
    Z : Tensor of shape (n, width)
        Features.
    V : Tensor
        A vector or a matrix in double precision.
    transposed : bool
    strip : int
        Most numbers of Z that plain operations copy to double precision at once.
    """
    n, width = Z.shape
    is_single = Z.is_cuda and Z.dtype == torch.float32 and Z.is_contiguous()
    has_pass = is_single and V.ndim == 1 and Z.numel() > 0 and n < 2**31
    if has_pass and available(Z.device):
        if transposed:
            return _columns_times(Z, V)
        return _rows_times(Z, V)
    n_out = width if transposed else n
    out = torch.zeros((n_out, *V.shape[1:]), dtype=torch.float64, device=Z.device)
    for rows in row_strips(n, strip // max(width, 1)):
        if transposed:
            out += Z[rows].double().T @ V[rows]
        else:
            out[rows] = Z[rows].double() @ V
    return out


def _rows_times(Z: Tensor, w: Tensor) -> Tensor:
    """Return Zw by its pass."""
    n, width = Z.shape
    out = torch.empty(n, dtype=torch.float64, device=Z.device)
    rows_of_block = _THREADS // _WARP
    grid = (_ceil_divide(n, rows_of_block), 1)
    _run(_ROWS, "rows_times", grid, [Z, w.contiguous(), out, n, width])
    return out


def _columns_times(Z: Tensor, v: Tensor) -> Tensor:
    """Return Zᵀv by its pass."""
    n, width = Z.shape
    span = max(_ceil_divide(n, _MAX_SPANS), _LEAST_SPAN)
    n_spans = _ceil_divide(n, span)
    sums = torch.empty((n_spans, width), dtype=torch.float64, device=Z.device)
    grid = (_ceil_divide(width, _THREADS), n_spans)
    _run(_COLUMNS, "columns_times", grid, [Z, v.contiguous(), sums, n, width, span])
    return sums.sum(0)
