"""Numba's decorator, with what it compiles kept in the user's cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from kernelmosaic.files import cache_folder


def njit(**options: Any) -> Any:
    """Return `numba.njit` with these options.

    By default Numba writes beside the module, into the installed package, whose folder then outlives an uninstallation
    and can still be imported. A ``NUMBA_CACHE_DIR`` is kept; where the cache cannot be written, Numba looks elsewhere.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        config: Any = numba.config
        given = config.CACHE_DIR  # read as the function is decorated
        config.CACHE_DIR = given or str(cache_folder() / "compiled")
        try:
            return numba.njit(**options)(function)
        finally:
            config.CACHE_DIR = given

    return compiled
