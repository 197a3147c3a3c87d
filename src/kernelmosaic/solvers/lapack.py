"""Factorise and invert positive definite matrices with the interpreter's lock released, unlike scipy.linalg."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from kernelmosaic._typing import AnyArray

_LETTERS = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}


def factorise(A: AnyArray) -> None:
    """Overwrite the lower half of A, in C order, by its Cholesky factor."""
    _call("potrf", A)


def invert(A: AnyArray) -> None:
    """Overwrite the lower half of a factorised A by that of the inverse."""
    _call("potri", A)


def _call(name: str, A: AnyArray) -> None:
    if not A.flags.c_contiguous or A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(f"A of shape {A.shape} must be square and in C order.")
    size, failed = ctypes.c_int(len(A)), ctypes.c_int(0)
    # The lower half in C order is the upper half in the order LAPACK reads.
    routine = _routine(_LETTERS[A.dtype] + name)
    routine(b"U", ctypes.byref(size), A.ctypes.data, ctypes.byref(size), ctypes.byref(failed))
    if failed.value:
        raise np.linalg.LinAlgError("a kernel matrix is not positive semi-definite, even up to rounding.")


@lru_cache(maxsize=4)
def _routine(name: str) -> Callable[..., None]:
    """Return the routine that scipy was built with; calls through ctypes release the interpreter's lock."""
    from scipy.linalg import cython_lapack

    capsule = cython_lapack.__pyx_capi__[name]
    api = ctypes.pythonapi
    get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    integer = ctypes.POINTER(ctypes.c_int)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_char_p, integer, ctypes.c_void_p, integer, integer)
    return kind(get_pointer(capsule, get_name(capsule)))
