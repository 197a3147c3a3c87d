"""Names for kernels that were given without one."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from kernelmosaic.kernels.base import Kernel


def name_kernels(kernels: Sequence[Kernel]) -> list[str]:
    """Return a distinct name for every kernel, as short as it can be.

    The class in lower case; where a class occurs more than once, then the parameters in which its kernels differ, as in
    ``gaussian(width=0.1)``; where names are still equal, then ``-1``, ``-2``, … in the order given. A name never
    contains two underscores in a row, which separate the levels of scikit-learn's nested parameters.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for i, kernel in enumerate(kernels):
        groups[type(kernel).__name__.lower()].append(i)
    names = [""] * len(kernels)
    for stem, members in groups.items():
        for i, parameters in zip(members, _distinguishing([kernels[i] for i in members]), strict=True):
            names[i] = re.sub("_{2,}", "_", stem + parameters).strip("_")
    return _numbered(names)


def _distinguishing(kernels: list[Kernel]) -> list[str]:
    """For each kernel the parameters, in parentheses, that not all of them have alike."""
    shown = [
        {name: text for name, value in kernel.get_params(deep=False).items() if (text := _text(value)) is not None}
        for kernel in kernels
    ]
    differing = [name for name in dict.fromkeys(n for s in shown for n in s) if len({s.get(name) for s in shown}) > 1]
    parts = [", ".join(f"{name}={s[name]}" for name in differing if name in s) for s in shown]
    return [f"({part})" if part else "" for part in parts]


def _text(value: Any) -> str | None:
    """A parameter as it stands in a name; None for a matrix, say, which a few letters cannot tell from another."""
    if value is None or isinstance(value, bool | str):
        return str(value)
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    return repr(value) if isinstance(value, Kernel) else None


def _numbered(names: list[str]) -> list[str]:
    total, seen, taken = Counter(names), Counter[str](), set(names)
    result = []
    for stem in names:
        name = stem
        while total[stem] > 1 and name in taken:
            seen[stem] += 1
            name = f"{stem}-{seen[stem]}"
        taken.add(name)
        result.append(name)
    return result
