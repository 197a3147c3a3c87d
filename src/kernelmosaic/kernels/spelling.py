"""What to write for a kernel that was given as a string or a class, and lists short enough for a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import isabstract, isclass, signature
from typing import Any

from kernelmosaic.kernels.base import Kernel

#: What other libraries call kernels that are here.
_ELSEWHERE = {
    "rbf": "Gaussian()",
    "gauss": "Gaussian()",
    "lin": "Linear()",
    "poly": "Polynomial(degree=3)",
    "quadratic": "Polynomial(degree=2)",
    "cosine": "Linear(), with normalize='diagonal',",
}
#: Items of a long list that a message shows.
_SHOWN = 5


def suggest_kernel(given: Any) -> str:
    """Return what to write instead of something that is not a kernel, as the end of a message."""
    if isclass(given) and issubclass(given, Kernel):
        return f"that is a class: write {_call(given)}."
    if isinstance(given, str):
        known = {one.__name__.lower(): _call(one) for one in _library_kernels(Kernel)}  # type: ignore[type-abstract]
        call = (_ELSEWHERE | known).get(given.lower().replace("_", ""))
        if call is not None:
            return f"kernels are objects: write {call} from kernelmosaic.kernels."
    if callable(given):
        return "a function is no kernel: compute its matrix and give Precomputed(K), or derive a class from Kernel."
    return "give a kernel of kernelmosaic.kernels, such as Gaussian(), Linear() or Polynomial(degree=2)."


def _library_kernels(parent: type[Kernel]) -> Iterator[type[Kernel]]:
    """Yield the kernels of this package: all of its modules are loaded before anybody can misspell one."""
    for kind in parent.__subclasses__():
        if kind.__module__.startswith("kernelmosaic.") and not isabstract(kind):
            yield kind
        yield from _library_kernels(kind)


def _call(kernel: type[Kernel]) -> str:
    needed = [name for name, one in signature(kernel).parameters.items() if one.default is one.empty]
    return f"{kernel.__name__}({', '.join(needed)})"


def shorten(items: Iterable[Any]) -> str:
    """Write a list with its first items and how many more there are."""
    items = list(items)
    shown = ", ".join(map(repr, items[:_SHOWN]))
    return f"[{shown}, … and {len(items) - _SHOWN} more]" if len(items) > _SHOWN else f"[{shown}]"
