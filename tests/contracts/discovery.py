"""The classes of a package or module, found by importing it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")
#: Packages without which some modules cannot be imported, and their classes not be made.
OPTIONAL = {"torch", "dask", "distributed", "clarabel"}


def concrete_subclasses(base: type[T], package: ModuleType) -> list[type[T]]:
    """Return the classes below `base` that the package defines and that can be made, by name."""
    for module in pkgutil.walk_packages(getattr(package, "__path__", []), f"{package.__name__}."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in OPTIONAL:
                raise
    found, waiting = set(), base.__subclasses__()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if not inspect.isabstract(kind) and f"{kind.__module__}.".startswith(f"{package.__name__}."):
            found.add(kind)
    return sorted(found, key=lambda kind: kind.__name__)
