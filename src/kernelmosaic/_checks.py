"""Checks of parameters, and warnings that point at the caller.

Errors name the parameter, its value and what to give instead.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Hashable, Iterable
from types import FrameType
from typing import Any

import numpy as np


def check_choice(name: str, value: Any, choices: Iterable[Any], other: str = "") -> Any:
    """Return a value that is one of several choices, or raise.

    The error names the choices, and the one that is most similar to a text.

    Parameters
    ----------
    name : str
        The parameter.
    value : object
        Its value.
    choices : iterable
        The allowed values.
    other : str
        The end of the list in the error: ``", or give a Gating object"``.
    """
    allowed = list(choices)
    if isinstance(value, Hashable) and value in allowed:
        return value
    from difflib import get_close_matches

    texts = [choice for choice in allowed if isinstance(choice, str)]
    matches = get_close_matches(str(value).lower(), texts, n=1)
    hint = f"; did you mean {matches[0]!r}?" if matches else "."
    raise ValueError(
        f"{name}={value!r}: choose one of {', '.join(map(repr, allowed))}{other}{hint}"
    )


def check_positive(name: str, value: Any, *, zero: bool = False, word: str | None = None) -> Any:
    """Return a finite positive number as a float, or raise.

    Parameters
    ----------
    name : str
        The parameter.
    value : object
        Its value.
    zero : bool, default=False
        Whether it may be zero.
    word : str, default=None
        A text that may be given instead of a number, and is returned as it is.
    """
    remedy = "give a finite number of at least zero" if zero else "give a positive, finite number"
    if word is not None:
        remedy = f"{remedy}, or {word!r}"
        if isinstance(value, str):
            if value != word:
                raise ValueError(f"{name}={value!r}: {remedy}.")
            return value
    if not _is_number(value):
        raise TypeError(f"{name}={value!r}: {remedy}.")
    is_wrong_zero = value == 0 and not zero
    if not np.isfinite(value) or value < 0 or is_wrong_zero:
        raise ValueError(f"{name}={value!r}: {remedy}.")
    return float(value)


def check_C(value: Any, *, infinite: bool = False) -> float:
    """Return the parameter C, the weight of the slack, as a float, or raise.

    Parameters
    ----------
    value : object
        The parameter C.
    infinite : bool, default=False
        Whether it may be infinite, which allows no slack.
    """
    if infinite:
        if not _is_number(value):
            raise TypeError(f"C={value!r}: give a positive number; np.inf allows no slack.")
        if not value > 0:
            raise ValueError(f"C={value!r}: give a positive number; np.inf allows no slack.")
        return float(value)
    if _is_number(value) and np.isposinf(value):
        raise ValueError(
            f"C={value!r}: give a positive, finite number, such as 1000.0; only MKLClassifier with"
            " multi_class='ovr' learns without slack."
        )
    return float(check_positive("C", value))


def _is_number(value: object) -> bool:
    """Whether a value is a number of Python or NumPy, and no truth value."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def check_share(name: str, value: Any) -> float:
    """Return a number strictly between 0 and 1 as a float, or raise."""
    if not isinstance(value, float | np.floating) or not 0 < value < 1:
        raise ValueError(f"{name}={value!r}: give a number between 0 and 1.")
    return float(value)


def check_count(name: str, value: object, least: int = 1) -> int:
    """Return a whole number of at least `least` as an int, or raise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}={value!r}: give a whole number of at least {least}.")
    return int(value)


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called the package.

    Frames of the package between that line and this function do not count, however many they are.
    """
    level = 1
    frame = sys._getframe()
    while _is_of_package(frame) and frame.f_back is not None:
        level += 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_of_package(frame: FrameType) -> bool:
    """Whether a frame runs code of this package."""
    return bool(frame.f_globals.get("__name__", "").startswith("kernelmosaic."))
