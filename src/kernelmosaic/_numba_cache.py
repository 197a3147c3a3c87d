"""Numba's decorator, with what it compiles kept in the user's cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from kernelmosaic.files import cache_folder

F = TypeVar("F", bound=Callable[..., Any])


def njit(**options: Any) -> Callable[[F], F]:
    """Return `numba.njit` with these options.

    By default Numba writes beside the module, into the installed package, whose folder then outlives an uninstallation
    and can still be imported. A ``NUMBA_CACHE_DIR`` is kept; where the cache cannot be written, Numba looks elsewhere.
    """

    def compiled(function: F) -> F:
        given = numba.config.CACHE_DIR  # read as the function is decorated
        numba.config.CACHE_DIR = given or str(cache_folder() / "compiled")
        try:
            return numba.njit(**options)(function)  # type: ignore[no-any-return]
        finally:
            numba.config.CACHE_DIR = given

    return compiled
