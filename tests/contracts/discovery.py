"""The classes of the library, found by importing all of it: those of the core and of every
family."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from typing import TypeVar

import kernelmosaic

T = TypeVar("T")
#: Packages without which some modules cannot be imported, and their classes not be made.
OPTIONAL = {"torch", "dask", "distributed", "clarabel"}


@cache
def import_everything() -> None:
    """Import all modules of the library whose packages are installed."""
    for module in pkgutil.walk_packages(kernelmosaic.__path__, "kernelmosaic."):
        if module.name == "kernelmosaic.__main__":
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in OPTIONAL:
                raise


def all_subclasses(base: type[T]) -> set[type[T]]:
    """Return the classes below `base` that the library defines, abstract ones too."""
    import_everything()
    subclasses = set()
    waiting = base.__subclasses__()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("kernelmosaic."):
            subclasses.add(kind)
    return subclasses


def concrete_subclasses(base: type[T]) -> list[type[T]]:
    """Return the classes below `base` that the library defines and that can be made, by name."""
    concrete = [kind for kind in all_subclasses(base) if not inspect.isabstract(kind)]
    return sorted(concrete, key=lambda kind: kind.__name__)
