"""Backends: NumPy and torch behind one interface, so that a formula is written once for both.

A backend is found from an array (`backend_of`) or from the name of a device (`backend_on`). Array
functions that the two libraries spell alike (``exp``, ``sqrt``, ``where``, ``einsum``, ``@``) are
called through ``backend.xp``; those that they spell differently are the methods of `Backend`.

The module also has what depends on the machine: free memory, and the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property, lru_cache
from pathlib import Path
from threading import RLock, get_ident, local
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, get_lapack_funcs
from threadpoolctl import ThreadpoolController, threadpool_info

from kernelmosaic._typing import AnyArray, ArrayOrTensor, DType, MatrixLike, RowIndex

#: Bytes from which work is spread over threads: reading them takes longer than starting threads.
_BYTES_FOR_THREADS = 2**26
#: Samples up to which a linear system is solved on one thread. Two cores take as long as one there,
#: and ten times as long while other processes keep them busy.
_FEW_SAMPLES = 3000
#: Samples up to which NumPy passes over a matrix about as fast as a compiled loop does, without
#: waiting for a compiler.
TINY = 256
#: Free memory in bytes that is assumed where the system does not say; chosen by hand.
_UNKNOWN_FREE_BYTES = 4.0 * 2**30
#: Rows up to which a triangular matrix is inverted on a device in one call; chosen by hand.
_ROWS_AT_ONCE = 2048
#: Entries of whole rows that `TorchBackend.take_block` copies at a time; chosen by hand.
_ENTRIES_AT_ONCE = 2**26
#: Fraction of the free memory that a fit may take on the host; other processes need the rest.
_HOST_FRACTION = 0.5
#: The same on a device, where torch and its libraries need the rest.
_DEVICE_FRACTION = 0.85


class Backend:
    """NumPy arrays in this process.

    Attributes
    ----------
    name : {"numpy", "torch"}
        The array library.
    xp : module
        Its functions.
    device : str or None
        Where torch keeps its tensors; None for NumPy.
    """

    name = "numpy"
    xp: Any = np
    device: str | None = None

    def __reduce__(self) -> Any:
        # Unpickling returns the one object of the module: backends are compared by identity.
        return "NUMPY"

    # Arrays and their types -----------------------------------------------------------------------
    def asarray(self, values: ArrayOrTensor, dtype: DType = np.float64) -> ArrayOrTensor:
        """Return values as an array of this library, copied only if need be.

        The dtype is a NumPy one; None keeps that of the values.
        """
        return np.asarray(values, dtype=dtype)

    def to_numpy(self, array: ArrayOrTensor) -> AnyArray:
        """Return an array of this library as a NumPy array."""
        return np.asarray(array)

    def borrow(self, array: ArrayOrTensor) -> AnyArray:
        """Return an array as a NumPy array that is valid until the next call.

        A tensor of a GPU is copied to pinned memory that the next call reuses, which is faster than
        `to_numpy` for large arrays.
        """
        return np.asarray(array)

    def astype(self, array: ArrayOrTensor, dtype: DType) -> ArrayOrTensor:
        """Return an array in a NumPy dtype, the array itself if it has this dtype."""
        return array.astype(dtype, copy=False)

    def copy(self, array: ArrayOrTensor, dtype: DType = None) -> ArrayOrTensor:
        """Return a copy of an array, in a NumPy dtype if one is given."""
        return np.array(array, dtype=dtype)

    def dtype(self, array: ArrayOrTensor) -> np.dtype[Any]:
        """Return the NumPy dtype of an array."""
        dtype: np.dtype[Any] = array.dtype
        return dtype

    def add_scaled(self, out: ArrayOrTensor, array: ArrayOrTensor, factor: float) -> None:
        """Add ``factor * array`` to `out` in place, in the precision of `out`."""
        out += out.dtype.type(factor) * array

    def diagonal_view(self, A: ArrayOrTensor) -> ArrayOrTensor:
        """Return the diagonal of a square matrix as a view that can be written to."""
        return np.einsum("ii->i", A)

    def may_share_memory(self, a: Any, b: Any) -> bool:
        """Whether writing to one array may change the other."""
        return bool(np.may_share_memory(a, b))

    def index(self, rows: RowIndex) -> RowIndex:
        """Return row numbers as an array of this library; a slice is returned as it is."""
        return rows if isinstance(rows, slice) else self.asarray(rows, None)

    # Memory ---------------------------------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], dtype: DType = np.float64) -> ArrayOrTensor:
        """Return an array of arbitrary values."""
        return np.empty(shape, dtype=dtype)

    def zeros(self, shape: tuple[int, ...], dtype: DType = np.float64) -> ArrayOrTensor:
        """Return an array of zeros."""
        return np.zeros(shape, dtype=dtype)

    def free_bytes(self) -> float:
        """Return the memory that can be used without swapping, in bytes.

        Where the system does not say it, half of its memory is assumed; 4 GiB if that is unknown,
        too.
        """
        with suppress(OSError):
            for line in Path("/proc/meminfo").read_text().splitlines():
                if line.startswith("MemAvailable:"):
                    return float(line.split()[1]) * 1024
        try:
            return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
        except (AttributeError, ValueError, OSError):
            return _UNKNOWN_FREE_BYTES

    # Linear algebra -------------------------------------------------------------------------------

    def cholesky(self, A: ArrayOrTensor, overwrite: bool = False) -> Any | None:
        """Return the lower Cholesky factor of a symmetric A, or None.

        None means that A is not positive definite up to rounding. With `overwrite`, A may be
        changed.
        """
        (potrf,) = get_lapack_funcs(("potrf",), (A,))
        # LAPACK stores matrices by columns. A symmetric matrix is its own transpose, which is
        # stored by columns if A is stored by rows: no copy is needed.
        columns_first = A if A.flags.f_contiguous else A.T
        factor, info = potrf(columns_first, lower=True, overwrite_a=overwrite, clean=True)
        return factor if info == 0 else None

    def cho_solve(self, factor: ArrayOrTensor, right: ArrayOrTensor) -> ArrayOrTensor:
        """Return x with A x = right, for the lower Cholesky factor of A.

        The right-hand side is a vector of shape (n,) or a matrix of shape (n, m).
        """
        return cho_solve((factor, True), right, check_finite=False)

    def invert_lower(self, factor: ArrayOrTensor) -> ArrayOrTensor:
        """Return the inverse of a lower triangular matrix."""
        (trtri,) = get_lapack_funcs(("trtri",), (factor,))
        return trtri(factor, lower=True)[0]

    def cho_inverse(self, factor: ArrayOrTensor) -> ArrayOrTensor:
        """Return the inverse of A for its lower Cholesky factor, which may be overwritten."""
        (potri,) = get_lapack_funcs(("potri",), (factor,))
        lower = potri(factor, lower=True, overwrite_c=True)[0]
        # Only the lower triangle is computed; the factor has zeros above its diagonal.
        self.diagonal_view(lower)[...] *= 0.5
        return lower + lower.T

    # Selecting entries ----------------------------------------------------------------------------

    def top_k(self, values: ArrayOrTensor, k: int) -> ArrayOrTensor:
        """Return the positions of the k largest values of a vector, in no order."""
        n = len(values)
        if k >= n:
            return np.arange(k)
        return np.argpartition(values, min(n - k, n - 1))[n - k :]

    def nonzero(self, mask: ArrayOrTensor) -> ArrayOrTensor:
        """Return the positions of the entries of a vector that are not zero."""
        return np.flatnonzero(mask)

    def take_block(self, K: ArrayOrTensor, rows: RowIndex, columns: RowIndex) -> ArrayOrTensor:
        """Return K[rows][:, columns], a copy."""
        # Rows are copied first: two passes over memory in order take less than half the time of
        # picking single entries.
        return np.take(np.take(K, rows, axis=0), columns, axis=1)


class TorchBackend(Backend):
    """Tensors on a torch device; methods without a docstring do what those of `Backend` do.
    Parameters
    ----------
    device : str
        Such as ``"cpu"`` or ``"cuda:0"``.
    """

    name = "torch"

    def __init__(self, device: str) -> None:
        import torch

        self.xp = torch
        self.device = device
        self._torch_dtypes = {
            np.dtype(name): getattr(torch, name) for name in ("float32", "float64", "int64", "bool")
        }
        self._numpy_dtypes = {
            torch_dtype: dtype for dtype, torch_dtype in self._torch_dtypes.items()
        }
        #: Pinned memory of `borrow`, kept for the next call.
        self._buffer: Any = None

    def __reduce__(self) -> Any:
        return torch_backend, (self.device,)

    def asarray(self, values: ArrayOrTensor, dtype: DType = np.float64) -> ArrayOrTensor:
        torch_dtype = None if dtype is None else self._torch_dtypes[np.dtype(dtype)]
        if not isinstance(values, self.xp.Tensor):
            values = np.asarray(values, order="C")
        return self.xp.as_tensor(values, dtype=torch_dtype, device=self.device)

    def to_numpy(self, array: ArrayOrTensor) -> AnyArray:
        return np.asarray(array.detach().cpu().numpy())

    def borrow(self, array: ArrayOrTensor) -> AnyArray:
        if array.device.type == "cpu":
            return self.to_numpy(array)
        size = array.numel()
        buffer = self._buffer
        if buffer is None or buffer.dtype != array.dtype or buffer.numel() < size:
            buffer = self.xp.empty(size, dtype=array.dtype, pin_memory=True)
            self._buffer = buffer
        borrowed = buffer[:size].view(array.shape)
        borrowed.copy_(array)
        return np.asarray(borrowed.numpy())

    def astype(self, array: ArrayOrTensor, dtype: DType) -> ArrayOrTensor:
        return array.to(self._torch_dtypes[np.dtype(dtype)])

    def copy(self, array: ArrayOrTensor, dtype: DType = None) -> ArrayOrTensor:
        torch_dtype = array.dtype if dtype is None else self._torch_dtypes[np.dtype(dtype)]
        return array.to(torch_dtype, copy=True)

    def dtype(self, array: ArrayOrTensor) -> np.dtype[Any]:
        return np.dtype(self._numpy_dtypes[array.dtype])

    def add_scaled(self, out: ArrayOrTensor, array: ArrayOrTensor, factor: float) -> None:
        out.add_(array, alpha=factor)

    def diagonal_view(self, A: ArrayOrTensor) -> ArrayOrTensor:
        return A.diagonal()

    def may_share_memory(self, a: Any, b: Any) -> bool:
        return bool(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())

    def empty(self, shape: tuple[int, ...], dtype: DType = np.float64) -> ArrayOrTensor:
        torch_dtype = self._torch_dtypes[np.dtype(dtype)]
        return self.xp.empty(shape, dtype=torch_dtype, device=self.device)

    def zeros(self, shape: tuple[int, ...], dtype: DType = np.float64) -> ArrayOrTensor:
        torch_dtype = self._torch_dtypes[np.dtype(dtype)]
        return self.xp.zeros(shape, dtype=torch_dtype, device=self.device)

    def free_bytes(self) -> float:
        if not str(self.device).startswith("cuda"):
            return super().free_bytes()
        free: int = self.xp.cuda.mem_get_info(self.device)[0]
        # Torch can hand out memory again that it has reserved in this process and does not use.
        reserved = self.xp.cuda.memory_reserved(self.device)
        allocated = self.xp.cuda.memory_allocated(self.device)
        return float(free + reserved - allocated)

    def cholesky(self, A: ArrayOrTensor, overwrite: bool = False) -> Any | None:
        factor, info = self.xp.linalg.cholesky_ex(A)
        return factor if int(info) == 0 else None

    def cho_solve(self, factor: ArrayOrTensor, right: ArrayOrTensor) -> ArrayOrTensor:
        if right.ndim == 1:
            return self.xp.cholesky_solve(right[:, None], factor)[:, 0]
        return self.xp.cholesky_solve(right, factor)

    def invert_lower(self, factor: ArrayOrTensor) -> ArrayOrTensor:
        n = len(factor)
        if n <= _ROWS_AT_ONCE:
            identity = self.xp.eye(n, dtype=factor.dtype, device=factor.device)
            return self.xp.linalg.solve_triangular(factor, identity, upper=False)
        # The inverse of [[A, 0], [B, D]] is [[A⁻¹, 0], [−D⁻¹BA⁻¹, D⁻¹]]. This takes two thirds of
        # the operations, as products of matrices instead of substitutions.
        half = n // 2
        inverse = self.xp.zeros_like(factor)
        inverse_A = self.invert_lower(factor[:half, :half])
        inverse[:half, :half] = inverse_A
        inverse_D = self.invert_lower(factor[half:, half:])
        inverse[half:, half:] = inverse_D
        self.xp.mm(-inverse_D, factor[half:, :half] @ inverse_A, out=inverse[half:, :half])
        return inverse

    def cho_inverse(self, factor: ArrayOrTensor) -> ArrayOrTensor:
        return self.xp.cholesky_inverse(factor)

    @cached_property
    def multiplies_halves(self) -> bool:
        """Whether the device multiplies matrices in half precision.

        The products are summed in single precision.
        """
        is_nvidia = str(self.device).startswith("cuda") and self.xp.version.hip is None
        # Tensor cores came with compute capability 7.0.
        if not is_nvidia or self.xp.cuda.get_device_capability(self.device) < (7, 0):
            return False
        ones = self.xp.ones((8, 8), dtype=self.xp.float16, device=self.device)
        try:
            product = self.xp.mm(ones, ones, out_dtype=self.xp.float32)
        except (RuntimeError, TypeError):  # an older torch without out_dtype
            return False
        return bool(product.dtype == self.xp.float32)

    def half_product(self, A: ArrayOrTensor, B: ArrayOrTensor) -> ArrayOrTensor:
        """Return the product AB of matrices in half precision, summed in single precision."""
        if self.multiplies_halves:
            return self.xp.mm(A, B, out_dtype=self.xp.float32)
        return A.float() @ B.float()

    def top_k(self, values: ArrayOrTensor, k: int) -> ArrayOrTensor:
        return self.xp.topk(values, min(k, len(values)), sorted=False).indices

    def nonzero(self, mask: ArrayOrTensor) -> ArrayOrTensor:
        return self.xp.nonzero(mask)[:, 0]

    def take_block(self, K: ArrayOrTensor, rows: RowIndex, columns: RowIndex) -> ArrayOrTensor:
        out = self.xp.empty((len(rows), len(columns)), dtype=K.dtype, device=K.device)
        # Whole rows are copied in strips: all rows at once could take far more memory than the
        # block.
        for strip in row_strips(len(rows), _ENTRIES_AT_ONCE // K.shape[1]):
            self.xp.index_select(K[rows[strip]], 1, columns, out=out[strip])
        return out


#: The backend of NumPy; there is no other object of it.
NUMPY = Backend()


@lru_cache(maxsize=32)
def torch_backend(device: str) -> TorchBackend:
    """Return the backend of a torch device, always the same object for a device."""
    return TorchBackend(device)


def backend_on(device: str | None) -> Backend:
    """Return the backend of a device, NumPy for None; raise if there is no such device."""
    if device is None:
        return NUMPY
    return torch_backend(str(require_device(device)))


def backend_of(array: ArrayOrTensor) -> Backend:
    """Return the backend of an array: that of torch for a tensor, else NumPy."""
    if not is_tensor(array):
        return NUMPY
    return torch_backend(str(array.device))


def is_tensor(array: ArrayOrTensor) -> bool:
    """Whether an array is a torch tensor; torch is not imported for this."""
    return type(array).__module__.partition(".")[0] == "torch" and hasattr(array, "detach")


def is_dask(X: MatrixLike) -> bool:
    """Whether X is a Dask collection; Dask is not imported for this."""
    library = type(X).__module__.split(".")[0]
    return library in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


# Devices ------------------------------------------------------------------------------------------


def require_device(device: Any) -> Any:
    """Return the torch device of a name, or raise saying what is missing."""
    if isinstance(device, str) and device.lower() in ("gpu", "nvidia"):
        raise ValueError(
            f"device={device!r}: write device='cuda' for a GPU, 'cuda:1' for the second; None for"
            " NumPy."
        )
    try:
        import torch
    except ImportError:
        raise ImportError(
            f"device={device!r} needs the optional package torch: pip install 'kernelmosaic[gpu]'."
        ) from None
    try:
        torch_device = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device={device!r}: give None, 'cuda', 'cuda:1' or 'cpu'.") from None
    if torch_device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"device={device!r}: only 'cuda' devices and 'cpu' compute in double precision."
        )
    n_devices = torch.cuda.device_count() if torch_device.type == "cuda" else 1
    if n_devices == 0:
        raise ValueError(f"device={device!r}: torch finds no CUDA device here; use device=None.")
    if (torch_device.index or 0) >= n_devices:
        raise ValueError(f"device={device!r}: there are {n_devices} CUDA devices, numbered from 0.")
    return torch_device


def has_device(device: str | None) -> bool:
    """Whether torch is installed and finds a device; False for None."""
    with suppress(ImportError, ValueError):
        return device is not None and require_device(device) is not None
    return False


def tensor_device(X: MatrixLike) -> str | None:
    """Return the device of a tensor; None for arrays and for tensors in the host's memory."""
    if not is_tensor(X) or X.device.type == "cpu":
        return None
    return str(X.device)


def to_host(X: MatrixLike) -> MatrixLike:
    """Return a tensor, or an array of any library of the array API, as a NumPy array.

    Anything else is returned as it is.
    """
    if is_tensor(X):
        return X.detach().cpu().numpy()
    if hasattr(X, "__array_namespace__") and not isinstance(X, np.ndarray | np.generic):
        return np.asarray(X)
    return X


# Memory -------------------------------------------------------------------------------------------


def default_budget(backend: Backend = NUMPY) -> float:
    """Return how many bytes a fit may take: a fraction of the free memory of host or device."""
    is_gpu = str(backend.device).startswith("cuda")
    fraction = _DEVICE_FRACTION if is_gpu else _HOST_FRACTION
    return fraction * backend.free_bytes()


def format_bytes(size: float) -> str:
    """Return a size in bytes as a text with a unit, such as ``1.5 GiB``."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def row_strips(n: int, height: int) -> Iterator[slice]:
    """Yield slices that cut n rows into strips of at most `height` rows, at least one."""
    for start in range(0, n, max(1, height)):
        yield slice(start, min(start + max(1, height), n))


def as_slice(rows: RowIndex) -> RowIndex:
    """Return consecutive row numbers as a slice, which copies nothing; others as they are."""
    if isinstance(rows, slice) or len(rows) == 0:
        return rows
    # The first test is quick, and rules out most arrays that are not consecutive.
    if rows[-1] - rows[0] + 1 != len(rows) or np.any(np.diff(rows) != 1):
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1)


# Threads ------------------------------------------------------------------------------------------


def run_threads(work: Callable[[Any], None], items: Iterable[Any], n_bytes: int) -> None:
    """Call `work` on every item, on several threads if all items together read enough bytes.

    This is faster than a loop only where `work` releases the interpreter's lock.
    """
    items = list(items)
    n_threads = 1
    if n_bytes >= _BYTES_FOR_THREADS:
        n_threads = min(allowed_threads(), len(items))
    if n_threads <= 1:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, items))


def map_threads(work: Callable[[Any], Any], items: Iterable[Any], n_threads: int) -> list[Any]:
    """Return ``work(item)`` of every item, computed by `n_threads` threads.

    While there are several, each of them keeps linear algebra and `run_threads` to itself.
    """
    items = list(items)
    return list(iterate_threads(work, items, min(n_threads, len(items))))


def iterate_threads(
    work: Callable[[Any], Any], items: Iterable[Any], n_threads: int
) -> Iterator[Any]:
    """Yield what `map_threads` returns, in the order of the items.

    Items are read one by one on a single thread, and all at once on several.
    """
    if n_threads <= 1:
        yield from map(work, items)
        return

    def work_on_one_thread(item: object) -> Any:
        _THREAD.is_one_of_several = True
        return work(item)

    with one_blas_thread(), ThreadPoolExecutor(n_threads) as pool:
        yield from pool.map(work_on_one_thread, items)


#: State of each thread: `is_one_of_several` is set on those that `iterate_threads` has started.
_THREAD = local()


def allowed_threads() -> int:
    """Return how many threads work may be spread over.

    These are as many as the BLAS may use, and one inside of `map_threads`.
    """
    if getattr(_THREAD, "is_one_of_several", False):
        return 1
    return blas_threads()


@lru_cache(maxsize=1)
def blas_threads() -> int:
    """Return how many threads the BLAS may use in this process.

    joblib and users limit this number; the library keeps its own threads to it.
    """
    n_threads = [
        int(library["num_threads"])
        for library in threadpool_info()
        if library["user_api"] == "blas"
    ]
    return min(n_threads, default=1)


class BlasLimit:
    """A limit that keeps linear algebra to one thread inside of contexts.

    Most libraries have one number of threads for the whole process. If two threads each lowered it
    and restored the number that they had read, it could stay lowered for good: where the second
    thread enters before the first one leaves, it reads the lowered number and restores that last.
    So the first context that is entered lowers the number, and the last one that is left restores
    it. OpenBLAS on OpenMP has a number for every thread, which each context lowers and restores
    for its own thread.

    Parameters
    ----------
    libraries : callable
        Returns threadpoolctl's controllers of the libraries.
    """

    def __init__(self, libraries: Callable[[], Sequence[Any]]) -> None:
        self._libraries = libraries
        # Reentrant, since the garbage collector may leave a context, that of an abandoned
        # generator, while this thread holds the lock.
        self._lock = RLock()
        #: The contexts that are entered, with the thread that entered each.
        self._thread_of_context: dict[object, int] = {}
        #: Libraries whose number is lowered, with the number to restore after the last context.
        self._lowered: list[tuple[Any, int]] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave_other_threads)

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """Keep linear algebra to one thread inside of this context."""
        context = object()
        with self._lock:
            is_first = not self._thread_of_context
            self._thread_of_context[context] = get_ident()
            if is_first:
                self._lowered = _lower_to_one(
                    library for library in self._libraries() if not _counts_by_thread(library)
                )
            lowered_on_thread = _lower_to_one(
                library for library in self._libraries() if _counts_by_thread(library)
            )
        try:
            yield
        finally:
            with self._lock:
                _restore(lowered_on_thread)
                self._thread_of_context.pop(context, None)
                self._restore_after_last()

    def _restore_after_last(self) -> None:
        """Restore the numbers of the process if no context is entered any more."""
        if self._thread_of_context:
            return
        lowered = self._lowered
        self._lowered = []
        _restore(lowered)

    def _leave_other_threads(self) -> None:
        """Leave the contexts of all other threads, which a forked process does not have."""
        # Another thread may have held the lock as the process was forked.
        self._lock = RLock()
        self._thread_of_context = {
            context: thread
            for context, thread in self._thread_of_context.items()
            if thread == get_ident()
        }
        self._restore_after_last()


def _counts_by_thread(library: Any) -> bool:
    """Whether a library has a number for every thread, and threadpoolctl reads it.

    Versions of threadpoolctl before 3.8 read a number of the process.
    """
    return getattr(library, "threading_layer", None) == "openmp" and hasattr(
        library, "clear_controlling_thread"
    )


def _lower_to_one(libraries: Iterable[Any]) -> list[tuple[Any, int]]:
    """Set libraries to one thread; return those that obeyed, each with its former number.

    Libraries that had one thread, or whose number is unknown, are left as they are, and are not
    among those returned.
    """
    lowered = []
    for library in libraries:
        former_number = library.num_threads
        if former_number is None or former_number <= 1:
            continue
        library.set_num_threads(1)
        # A library does not obey where another thread limits it by threadpoolctl: only that thread
        # can change the number.
        if library.num_threads == 1:
            lowered.append((library, former_number))
    return lowered


def _restore(lowered: Iterable[tuple[Any, int]]) -> None:
    """Set libraries back to their former numbers of threads."""
    for library, former_number in lowered:
        # From version 3.8 on, threadpoolctl obeys only the thread that set a number first, until
        # its claim is released. The release before removes the claim of another thread, the one
        # after removes that of this thread.
        release = getattr(library, "clear_controlling_thread", None)
        if release is not None:
            release(force=True)
        library.set_num_threads(former_number)
        if release is not None:
            release(force=True)


#: Returns the libraries of this process. They are looked for once: that takes longer than a small
#: factorisation.
_libraries = lru_cache(maxsize=1)(ThreadpoolController)


def _blas_libraries() -> list[Any]:
    """Return threadpoolctl's controllers of the linear algebra in this process."""
    return [library for library in _libraries().lib_controllers if library.user_api == "blas"]


#: The limit of this process.
_BLAS_LIMIT = BlasLimit(_blas_libraries)


def one_blas_thread() -> AbstractContextManager[None]:
    """Return a context in which linear algebra stays on the thread that calls it.

    For many small products: the threads of the libraries wait for each other, which costs much
    where cores are busy.
    """
    # The count is cached before it is lowered, since `allowed_threads` reads it later.
    blas_threads()
    return _BLAS_LIMIT.one_thread()


def threads_for(n_samples: int) -> AbstractContextManager[None]:
    """Return a context for linear algebra on matrices of `n_samples` rows.

    Few rows are computed with on one thread, more on all.
    """
    if n_samples > _FEW_SAMPLES:
        return nullcontext()
    return one_blas_thread()
