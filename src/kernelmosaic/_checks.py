"""Checks of parameters; errors name the parameter, its value and what to give instead, warnings
point at the caller."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np


def check_choice(name: str, value: Any, choices: Iterable[Any], other: str = "") -> Any:
    """Return a value that is one of several, or raise naming them, and the nearest one.

    Parameters
    ----------
    name : str
        The parameter.
    value : object
        Its value.
    choices : iterable
        What it may be.
    other : str
        What else may be given, as the end of the list: ``", or give a Gating object"``.
    """
    known = list(choices)
    if isinstance(value, Hashable) and value in known:
        return value
    from difflib import get_close_matches

    near = get_close_matches(
        str(value).lower(), [one for one in known if isinstance(one, str)], n=1
    )
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ValueError(f"{name}={value!r}: choose one of {', '.join(map(repr, known))}{other}{hint}")


def check_positive(name: str, value: Any, *, zero: bool = False, word: str | None = None) -> Any:
    """Return a finite positive number, or the word that may be given in its place, or raise."""
    remedy = "give a finite number of at least zero" if zero else "give a positive, finite number"
    if word is not None:
        remedy = f"{remedy}, or {word!r}"
        if isinstance(value, str):
            if value != word:
                raise ValueError(f"{name}={value!r}: {remedy}.")
            return value
    if not _is_number(value):
        raise TypeError(f"{name}={value!r}: {remedy}.")
    if not np.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{name}={value!r}: {remedy}.")
    return float(value)


def check_C(value: Any, *, infinite: bool = False) -> float:
    """Return the weight of the slack, or raise.

    Parameters
    ----------
    value : object
        The parameter C.
    infinite : bool, default=False
        Whether it may be infinite, which allows no slack.
    """
    if infinite:
        if _is_number(value) and value > 0:
            return float(value)
        wrong: type[Exception] = ValueError if _is_number(value) else TypeError
        raise wrong(f"C={value!r}: give a positive number; np.inf allows no slack.")
    if _is_number(value) and np.isposinf(value):
        raise ValueError(
            f"C={value!r}: give a positive, finite number, such as 1000.0; only MKLClassifier with"
            " multi_class='ovr' learns without slack."
        )
    return float(check_positive("C", value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def check_share(name: str, value: Any) -> float:
    """Return a number between 0 and 1, neither of them, or raise naming the parameter and its
    value."""
    if not isinstance(value, float | np.floating) or not 0 < value < 1:
        raise ValueError(f"{name}={value!r}: give a number between 0 and 1.")
    return float(value)


def check_count(name: str, value: object, least: int = 1) -> int:
    """Return a whole number of at least so much, or raise naming the parameter and its value."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}={value!r}: give a whole number of at least {least}.")
    return int(value)


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called the package, however many frames of the package are between."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        "kernelmosaic."
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
