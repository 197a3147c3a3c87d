"""Calls of a function, recorded while a test runs; what it does stays as it is."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from unittest import mock


@contextmanager
def recorded(
    function: Callable[..., Any], note: Callable[[dict[str, Any]], Any] = len
) -> Iterator[list[Any]]:
    """Yield a list that grows by one with every call of a Python function: by `note` of its
    arguments, by name.

    The function is replaced where it is defined, in its class or module: other modules must not
    import it by name.
    """
    owner: Any = sys.modules[function.__module__]
    *parents, name = function.__qualname__.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    found = vars(owner)[name]
    plain = getattr(found, "__func__", found)
    signature, calls = inspect.signature(plain), list[Any]()

    @wraps(plain)
    def noted(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        calls.append(note(given.arguments))
        return plain(*args, **kwargs)

    with mock.patch.object(owner, name, type(found)(noted) if plain is not found else noted):
        yield calls
