"""What every generator asks of its arguments."""

from __future__ import annotations

from numbers import Integral


def check_count(name: str, value: object, minimum: int = 1) -> int:
    """Return `value` as an int, or raise naming the parameter, what was given and what would do."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r}: give a whole number of at least {minimum}.")
    if value < minimum:
        raise ValueError(f"{name}={value!r}: give a whole number of at least {minimum}.")
    return int(value)
