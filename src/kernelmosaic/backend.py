"""NumPy or torch behind one small object, inferred from the arrays, so that a formula is written
once for both.

Array functions that the two libraries spell alike (``exp``, ``sqrt``, ``where``, ``einsum``, ``@``)
are called through ``backend.xp``; what they spell differently are the methods here. Compiled code
sits beside the one function that it replaces, with a test that both give the same result.
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

#: Reading this many bytes takes longer than starting threads.
_WORTH_THREADS = 2**26
#: Linear systems of up to so many samples take two cores as long as one, and ten times as long
#: beside other work.
_FEW_SAMPLES = 3000
#: Up to this many samples NumPy passes over a matrix about as fast as a compiled loop does, and
#: waits for no compiler.
TINY = 256


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
        # There is one object per place, so that places are compared by identity.
        return "NUMPY"

    # Between here and there -----------------------------------------------------------------------

    def asarray(self, values: ArrayOrTensor, dtype: DType = np.float64) -> ArrayOrTensor:
        """Return values as an array of this library in a NumPy dtype (None keeps theirs), copied
        only if need be."""
        return np.asarray(values, dtype=dtype)

    def to_numpy(self, array: ArrayOrTensor) -> AnyArray:
        """Return an array of this library as a NumPy array."""
        return np.asarray(array)

    def borrow(self, array: ArrayOrTensor) -> AnyArray:
        """Return the same, valid until the next call: large arrays then come from a device at full
        speed."""
        return np.asarray(array)

    def astype(self, array: ArrayOrTensor, dtype: DType) -> ArrayOrTensor:
        """Return an array in a NumPy dtype, itself if it has it."""
        return array.astype(dtype, copy=False)

    def copy(self, array: ArrayOrTensor, dtype: DType = None) -> ArrayOrTensor:
        """Return a copy, in a NumPy dtype if one is given."""
        return np.array(array, dtype=dtype)

    def dtype(self, array: ArrayOrTensor) -> np.dtype[Any]:
        """Return the NumPy dtype of an array."""
        found: np.dtype[Any] = array.dtype
        return found

    def add_scaled(self, out: ArrayOrTensor, array: ArrayOrTensor, factor: float) -> None:
        """out += factor * array, in the precision of out."""
        out += out.dtype.type(factor) * array

    def diagonal_view(self, A: ArrayOrTensor) -> ArrayOrTensor:
        """Return the diagonal of a square matrix, which may be written to."""
        return np.einsum("ii->i", A)

    def may_share_memory(self, a: Any, b: Any) -> bool:
        """Whether writing to one array may change the other."""
        return bool(np.may_share_memory(a, b))

    def index(self, rows: RowIndex) -> RowIndex:
        """Return row numbers in a form that this library's arrays are indexed with; slices are left
        alone."""
        return rows if isinstance(rows, slice) else self.asarray(rows, None)

    # Memory ---------------------------------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], dtype: DType = np.float64) -> ArrayOrTensor:
        """Return an array that is not filled."""
        return np.empty(shape, dtype=dtype)

    def zeros(self, shape: tuple[int, ...], dtype: DType = np.float64) -> ArrayOrTensor:
        """Return an array of zeros."""
        return np.zeros(shape, dtype=dtype)

    def free_bytes(self) -> float:
        """Return the memory that may be taken: what the system has without swapping, 4 GiB if that
        is unknown."""
        with suppress(OSError):
            for line in Path("/proc/meminfo").read_text().splitlines():
                if line.startswith("MemAvailable:"):
                    return float(line.split()[1]) * 1024
        try:
            return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
        except (AttributeError, ValueError, OSError):
            return 4.0 * 2**30

    # Linear algebra -------------------------------------------------------------------------------

    def cholesky(self, A: ArrayOrTensor, overwrite: bool = False) -> Any | None:
        """Return the lower Cholesky factor of a symmetric A; None if it is not positive definite up
        to rounding."""
        (potrf,) = get_lapack_funcs(("potrf",), (A,))
        # LAPACK reads columns: the transpose of an array in rows is the same matrix, and need not
        # be copied.
        factor, info = potrf(
            A if A.flags.f_contiguous else A.T, lower=True, overwrite_a=overwrite, clean=True
        )
        return factor if info == 0 else None

    def cho_solve(self, factor: ArrayOrTensor, right: ArrayOrTensor) -> ArrayOrTensor:
        """Return the solution of A x = right for the lower Cholesky factor of A; right is a vector
        or a matrix."""
        return cho_solve((factor, True), right, check_finite=False)

    def invert_lower(self, factor: ArrayOrTensor) -> ArrayOrTensor:
        """Return the inverse of a lower triangular matrix."""
        (trtri,) = get_lapack_funcs(("trtri",), (factor,))
        return trtri(factor, lower=True)[0]

    def cho_inverse(self, factor: ArrayOrTensor) -> ArrayOrTensor:
        """Return the inverse of A for its lower Cholesky factor, which may be overwritten."""
        (potri,) = get_lapack_funcs(("potri",), (factor,))
        below = potri(factor, lower=True, overwrite_c=True)[0]
        self.diagonal_view(below)[...] *= 0.5
        return below + below.T  # above the diagonal a factor has zeros

    # Picking --------------------------------------------------------------------------------------

    def top_k(self, values: ArrayOrTensor, k: int) -> ArrayOrTensor:
        """Return the numbers of the k largest values, in no order."""
        n = len(values)
        return np.argpartition(values, min(n - k, n - 1))[n - k :] if k < n else np.arange(k)

    def nonzero(self, mask: ArrayOrTensor) -> ArrayOrTensor:
        """Return the numbers of the entries of a vector that are not zero."""
        return np.flatnonzero(mask)

    def take_block(self, K: ArrayOrTensor, rows: RowIndex, columns: RowIndex) -> ArrayOrTensor:
        """Return K[rows][:, columns], a copy."""
        # Rows first: reading them in order, twice, takes less than half the time of picking entries
        # one by one.
        return np.take(np.take(K, rows, axis=0), columns, axis=1)


class TorchBackend(Backend):
    """Tensors on a torch device.

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
        self._kinds = {
            np.dtype(name): getattr(torch, name) for name in ("float32", "float64", "int64", "bool")
        }
        self._dtypes = {kind: dtype for dtype, kind in self._kinds.items()}
        self._buffer: Any = None

    def __reduce__(self) -> Any:
        return torch_backend, (self.device,)

    def asarray(self, values: ArrayOrTensor, dtype: DType = np.float64) -> ArrayOrTensor:
        kind = None if dtype is None else self._kinds[np.dtype(dtype)]
        values = values if isinstance(values, self.xp.Tensor) else np.asarray(values, order="C")
        return self.xp.as_tensor(values, dtype=kind, device=self.device)

    def to_numpy(self, array: ArrayOrTensor) -> AnyArray:
        return np.asarray(array.detach().cpu().numpy())

    def borrow(self, array: ArrayOrTensor) -> AnyArray:
        if array.device.type == "cpu":
            return self.to_numpy(array)
        buffer = self._buffer
        if buffer is None or buffer.dtype != array.dtype or buffer.numel() < array.numel():
            self._buffer = buffer = self.xp.empty(array.numel(), dtype=array.dtype, pin_memory=True)
        borrowed = buffer[: array.numel()].view(array.shape)
        borrowed.copy_(array)
        return np.asarray(borrowed.numpy())

    def astype(self, array: ArrayOrTensor, dtype: DType) -> ArrayOrTensor:
        return array.to(self._kinds[np.dtype(dtype)])

    def copy(self, array: ArrayOrTensor, dtype: DType = None) -> ArrayOrTensor:
        return array.to(array.dtype if dtype is None else self._kinds[np.dtype(dtype)], copy=True)

    def dtype(self, array: ArrayOrTensor) -> np.dtype[Any]:
        return np.dtype(self._dtypes[array.dtype])

    def add_scaled(self, out: ArrayOrTensor, array: ArrayOrTensor, factor: float) -> None:
        out.add_(array, alpha=factor)

    def diagonal_view(self, A: ArrayOrTensor) -> ArrayOrTensor:
        return A.diagonal()

    def may_share_memory(self, a: Any, b: Any) -> bool:
        return bool(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())

    def empty(self, shape: tuple[int, ...], dtype: DType = np.float64) -> ArrayOrTensor:
        return self.xp.empty(shape, dtype=self._kinds[np.dtype(dtype)], device=self.device)

    def zeros(self, shape: tuple[int, ...], dtype: DType = np.float64) -> ArrayOrTensor:
        return self.xp.zeros(shape, dtype=self._kinds[np.dtype(dtype)], device=self.device)

    def free_bytes(self) -> float:
        if not str(self.device).startswith("cuda"):
            return super().free_bytes()
        free: int = self.xp.cuda.mem_get_info(self.device)[0]
        # What this process has set aside and does not use is free, too.
        return float(
            free
            + self.xp.cuda.memory_reserved(self.device)
            - self.xp.cuda.memory_allocated(self.device)
        )

    def cholesky(self, A: ArrayOrTensor, overwrite: bool = False) -> Any | None:
        factor, info = self.xp.linalg.cholesky_ex(A)
        return factor if int(info) == 0 else None

    def cho_solve(self, factor: ArrayOrTensor, right: ArrayOrTensor) -> ArrayOrTensor:
        columns = right[:, None] if right.ndim == 1 else right
        found = self.xp.cholesky_solve(columns, factor)
        return found[:, 0] if right.ndim == 1 else found

    def invert_lower(self, factor: ArrayOrTensor) -> ArrayOrTensor:
        n, half = len(factor), len(factor) // 2
        if n <= 2048:
            one = self.xp.eye(n, dtype=factor.dtype, device=factor.device)
            return self.xp.linalg.solve_triangular(factor, one, upper=False)
        # By quarters: two thirds of the operations, and products of matrices instead of
        # substitutions.
        out = self.xp.zeros_like(factor)
        out[:half, :half] = first = self.invert_lower(factor[:half, :half])
        out[half:, half:] = second = self.invert_lower(factor[half:, half:])
        self.xp.mm(-second, factor[half:, :half] @ first, out=out[half:, :half])
        return out

    def cho_inverse(self, factor: ArrayOrTensor) -> ArrayOrTensor:
        return self.xp.cholesky_inverse(factor)

    @cached_property
    def multiplies_halves(self) -> bool:
        """Whether the device has units for products of matrices in half precision, added up in
        single."""
        cuda = str(self.device).startswith("cuda") and self.xp.version.hip is None
        if not cuda or self.xp.cuda.get_device_capability(self.device) < (7, 0):
            return False
        one = self.xp.ones((8, 8), dtype=self.xp.float16, device=self.device)
        try:
            return bool(self.xp.mm(one, one, out_dtype=self.xp.float32).dtype == self.xp.float32)
        except (RuntimeError, TypeError):  # an older torch
            return False

    def half_product(self, A: ArrayOrTensor, B: ArrayOrTensor) -> ArrayOrTensor:
        """Return AB of matrices in half precision, in single precision."""
        return (
            self.xp.mm(A, B, out_dtype=self.xp.float32)
            if self.multiplies_halves
            else A.float() @ B.float()
        )

    def top_k(self, values: ArrayOrTensor, k: int) -> ArrayOrTensor:
        return self.xp.topk(values, min(k, len(values)), sorted=False).indices

    def nonzero(self, mask: ArrayOrTensor) -> ArrayOrTensor:
        return self.xp.nonzero(mask)[:, 0]

    def take_block(self, K: ArrayOrTensor, rows: RowIndex, columns: RowIndex) -> ArrayOrTensor:
        out = self.xp.empty((len(rows), len(columns)), dtype=K.dtype, device=K.device)
        # A few whole rows at a time: all of them at once could be larger than the block by far.
        for strip in row_strips(len(rows), 2**26 // K.shape[1]):
            self.xp.index_select(K[rows[strip]], 1, columns, out=out[strip])
        return out


NUMPY = Backend()


@lru_cache(maxsize=32)
def torch_backend(device: str) -> TorchBackend:
    """Return the backend of a torch device, always the same object."""
    return TorchBackend(device)


def backend_on(device: str | None) -> Backend:
    """Return the backend of a device, NumPy for None; raise if the device is not there."""
    return NUMPY if device is None else torch_backend(str(require_device(device)))


def backend_of(array: ArrayOrTensor) -> Backend:
    """Return the backend of an array: torch's if it is a tensor; torch is not imported to find
    out."""
    return torch_backend(str(array.device)) if is_tensor(array) else NUMPY


def is_tensor(array: ArrayOrTensor) -> bool:
    """Whether an array is a torch tensor; torch is not imported to find out."""
    return type(array).__module__.partition(".")[0] == "torch" and hasattr(array, "detach")


def is_dask(X: MatrixLike) -> bool:
    """Whether X is a Dask collection; Dask itself is not loaded to find out."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(
        X, "__dask_graph__"
    )


# Devices ------------------------------------------------------------------------------------------


def require_device(device: Any) -> Any:
    """Return the torch device of that name, or raise saying what is missing."""
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
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device={device!r}: give None, 'cuda', 'cuda:1' or 'cpu'.") from None
    if found.type not in ("cpu", "cuda"):
        raise ValueError(
            f"device={device!r}: only 'cuda' devices and 'cpu' compute in double precision."
        )
    count = torch.cuda.device_count() if found.type == "cuda" else 1
    if count == 0:
        raise ValueError(f"device={device!r}: torch finds no CUDA device here; use device=None.")
    if (found.index or 0) >= count:
        raise ValueError(f"device={device!r}: there are {count} CUDA devices, numbered from 0.")
    return found


def has_device(device: str | None) -> bool:
    """Whether torch and that device are here."""
    with suppress(ImportError, ValueError):
        return device is not None and require_device(device) is not None
    return False


def tensor_device(X: MatrixLike) -> str | None:
    """Return the device of a tensor; None for arrays and for tensors in the host's memory."""
    return str(X.device) if is_tensor(X) and X.device.type != "cpu" else None


def to_host(X: MatrixLike) -> MatrixLike:
    """Return a tensor, or an array of any library of the array API, in NumPy, anything else as it
    is."""
    if is_tensor(X):
        return X.detach().cpu().numpy()
    return (
        np.asarray(X)
        if hasattr(X, "__array_namespace__") and not isinstance(X, np.ndarray | np.generic)
        else X
    )


# Memory -------------------------------------------------------------------------------------------


def default_budget(backend: Backend = NUMPY) -> float:
    """Return the bytes that may be taken: half of the host's free memory, most of a device's
    own."""
    cuda = str(backend.device).startswith("cuda")
    # Torch and its libraries take from the rest.
    return (0.85 if cuda else 0.5) * backend.free_bytes()


def format_bytes(size: float) -> str:
    """Write a size as people read it: ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def row_strips(n: int, height: int) -> Iterator[slice]:
    """Cut n rows into strips of at most that height."""
    for start in range(0, n, max(1, height)):
        yield slice(start, min(start + max(1, height), n))


def as_slice(rows: RowIndex) -> RowIndex:
    """Return row numbers that count up by one as a slice, which copies nothing; others as they
    are."""
    if (
        isinstance(rows, slice)
        or len(rows) == 0
        or rows[-1] - rows[0] + 1 != len(rows)
        or np.any(np.diff(rows) != 1)
    ):
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1)


# Threads ------------------------------------------------------------------------------------------


def run_threads(work: Callable[[Any], None], items: Iterable[Any], n_bytes: int) -> None:
    """Call work on every item, on the cores that are ours; it gains only if it releases the
    interpreter's lock.

    Threads are started only if all items together read enough bytes for that.
    """
    items = list(items)
    n_threads = min(allowed_threads(), len(items)) if n_bytes >= _WORTH_THREADS else 1
    if n_threads <= 1:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, items))


def map_threads(work: Callable[[Any], Any], items: Iterable[Any], n_threads: int) -> list[Any]:
    """Return work(item) of every item, so many at a time; whatever each of them starts keeps to its
    one thread."""
    items = list(items)
    return list(iterate_threads(work, items, min(n_threads, len(items))))


def iterate_threads(
    work: Callable[[Any], Any], items: Iterable[Any], n_threads: int
) -> Iterator[Any]:
    """Yield what `map_threads` returns, in the order of the items, which are read one by one only
    on one thread."""
    if n_threads <= 1:
        yield from map(work, items)
        return

    def alone(item: object) -> Any:
        _THREAD.is_one_of_several = True
        return work(item)

    with one_blas_thread(), ThreadPoolExecutor(n_threads) as pool:
        yield from pool.map(alone, items)


#: State of this thread.
_THREAD = local()


def allowed_threads() -> int:
    """Return the threads that work may be spread over: as many as the BLAS may use, one inside of
    `map_threads`."""
    return 1 if getattr(_THREAD, "is_one_of_several", False) else blas_threads()


@lru_cache(maxsize=1)
def blas_threads() -> int:
    """Return the threads the BLAS may use in this process: where joblib or the user limits those,
    ours are too."""
    blas = [
        int(library["num_threads"])
        for library in threadpool_info()
        if library["user_api"] == "blas"
    ]
    return min(blas, default=1)


class BlasLimit:
    """The one place that takes the linear algebra to one thread, and back.

    Most libraries have one number of threads in the process. Two threads that each lower it and
    restore what they found would leave it lowered for good where the second one enters before the
    first one leaves: it reads the lowered number, and restores that last. Here the first one that
    enters lowers the number, and the last one that leaves restores it. OpenBLAS on OpenMP has a
    number for every thread, which each thread lowers and restores for itself.

    Parameters
    ----------
    libraries : callable
        Returns threadpoolctl's controllers of the libraries.
    """

    def __init__(self, libraries: Callable[[], Sequence[Any]]) -> None:
        self._libraries = libraries
        # A context of an abandoned generator is left by the garbage collector, in the middle of
        # anything.
        self._lock = RLock()
        #: What is inside of the limit: for every context the thread that entered it.
        self._inside: dict[object, int] = {}
        #: The numbers of threads that the process has back after the last context.
        self._lowered: list[tuple[Any, int]] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave_other_threads)

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """Keep the linear algebra to one thread inside of this context."""
        context = object()
        with self._lock:
            is_first = not self._inside
            self._inside[context] = get_ident()
            if is_first:
                self._lowered = _lower(
                    library for library in self._libraries() if not _counts_by_thread(library)
                )
            lowered_here = _lower(
                library for library in self._libraries() if _counts_by_thread(library)
            )
        try:
            yield
        finally:
            with self._lock:
                _restore(lowered_here)
                self._inside.pop(context, None)
                self._restore_if_left()

    def _restore_if_left(self) -> None:
        if not self._inside:
            lowered, self._lowered = self._lowered, []
            _restore(lowered)

    def _leave_other_threads(self) -> None:
        """Leave the contexts of threads that a forked process does not have, in which nothing would
        leave them."""
        self._lock = RLock()  # another thread may have held it as the process was forked
        self._inside = {
            context: thread for context, thread in self._inside.items() if thread == get_ident()
        }
        self._restore_if_left()


def _counts_by_thread(library: Any) -> bool:
    """Whether every thread has a number of its own, and threadpoolctl (from 3.8 on) reads that of
    the thread."""
    return getattr(library, "threading_layer", None) == "openmp" and hasattr(
        library, "clear_controlling_thread"
    )


def _lower(libraries: Iterable[Any]) -> list[tuple[Any, int]]:
    """Take libraries to one thread, and return those that obeyed with the numbers that they had."""
    lowered = []
    for library in libraries:
        former = library.num_threads
        if former is None or former <= 1:
            continue
        library.set_num_threads(1)
        # The library disobeys where another thread limits it by threadpoolctl: only that thread can
        # change the number.
        if library.num_threads == 1:
            lowered.append((library, former))
    return lowered


def _restore(lowered: Iterable[tuple[Any, int]]) -> None:
    """Give libraries back the numbers of threads that they had."""
    for library, former in lowered:
        # From version 3.8 on, threadpoolctl obeys only the thread that set a number first, until
        # its claim is released. Released before, another thread's claim does not stand in the way;
        # released after, this thread leaves none.
        release = getattr(library, "clear_controlling_thread", None)
        if release is not None:
            release(force=True)
        library.set_num_threads(former)
        if release is not None:
            release(force=True)


#: Returns the libraries in this process: looking for them takes longer than a small factorisation.
_libraries = lru_cache(maxsize=1)(ThreadpoolController)


def _blas_libraries() -> list[Any]:
    """Return threadpoolctl's controllers of the linear algebra in this process."""
    return [library for library in _libraries().lib_controllers if library.user_api == "blas"]


_BLAS_LIMIT = BlasLimit(_blas_libraries)


def one_blas_thread() -> AbstractContextManager[None]:
    """Return a context in which linear algebra stays on the thread that calls it.

    For many small products: the libraries' own threads wait for each other, which costs much where
    cores are busy.
    """
    # The count is taken before it is lowered: our own threads keep to it.
    blas_threads()
    return _BLAS_LIMIT.one_thread()


def threads_for(n_samples: int) -> AbstractContextManager[None]:
    """Return a context for linear algebra with matrices of so many samples: of few on one thread,
    of more on all."""
    return one_blas_thread() if n_samples <= _FEW_SAMPLES else nullcontext()
