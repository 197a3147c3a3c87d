"""Passes over memory on several cores, as many as the linear algebra libraries are allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController, threadpool_info

#: Reading this much takes longer than starting threads.
_WORTH_THREADS = 2**26


def run_threads(work: Callable[[Any], None], items: Iterable[Any], n_bytes: int) -> None:
    """Call work on every item, on the cores that are ours; it gains only if it releases the interpreter's lock.

    The bytes that all items read together tell whether that is worth starting threads for.
    """
    items = list(items)
    n_threads = min(allowed_threads(), len(items)) if n_bytes >= _WORTH_THREADS else 1
    if n_threads <= 1:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, items))


@lru_cache(maxsize=1)
def allowed_threads() -> int:
    """Return the threads the BLAS may use in this process: where joblib or the user limits those, ours are too."""
    blas = [int(library["num_threads"]) for library in threadpool_info() if library["user_api"] == "blas"]
    return min(blas, default=1)


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which linear algebra stays on the thread that calls it.

    For many small products: the libraries' own threads wait for each other, which costs much where cores are busy.
    """
    # The count is taken before it is lowered: our own threads keep to it.
    allowed_threads()
    context: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return context


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    """The libraries in this process: looking for them takes longer than a small factorisation."""
    return ThreadpoolController()
