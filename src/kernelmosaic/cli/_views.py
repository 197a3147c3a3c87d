"""Views: named groups of columns and the kernels on them, as written after ``--view`` or guessed from the columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kernelmosaic.cli._kernel_specs import Spec, read_specs

_NUMBERS, _CATEGORIES, _SEQUENCES = "numbers", "categories", "sequences"
_SEPARATOR = re.compile(r"__|_|\.")
#: More groups than this are not what anybody means by views.
_MOST_GROUPS = 20


@dataclass(frozen=True)
class View:
    """Columns that belong together, and their kernels."""

    name: str
    columns: tuple[str, ...]
    specs: tuple[Spec, ...]


@dataclass
class Views:
    """The views, and what to tell the user about them."""

    views: list[View]
    notes: list[str] = field(default_factory=list)


def match_columns(pattern: str, columns: Sequence[str], what: str) -> list[str]:
    """Return the columns a pattern means: names or globs such as ``fac_*``, several with commas between."""
    found: dict[str, None] = {}
    for part in pattern.split(","):
        part = part.strip()
        # A name is a name, even where it looks like a glob, as x[1] does.
        matching = [part] if part in columns else [name for name in columns if fnmatchcase(name, part)]
        if not matching:
            shown = ", ".join(map(repr, columns[:6])) + (" …" if len(columns) > 6 else "")
            raise ValueError(f"{what}: the pattern {part!r} matches no column; there are {shown}.")
        found.update(dict.fromkeys(matching))
    return list(found)


def read_views(given: Sequence[str], kinds: Mapping[str, str], default: list[Spec]) -> Views:
    """Return the views written as ``name=PATTERN:KERNEL``; without ``:KERNEL``, `default` on numbers."""
    views: list[View] = []
    for text in given:
        name, equals, rest = text.partition("=")
        if not equals or not name.strip() or not rest.strip():
            raise ValueError(f"--view {text}: write name=PATTERN:KERNEL, such as shape=fac_*:linear+gauss*5.")
        name = _checked_name(name.strip(), text)
        pattern, colon, kernel = rest.rpartition(":") if rest not in kinds else (rest, "", "")
        if not colon:
            pattern, kernel = rest, ""
        columns = match_columns(pattern, list(kinds), f"--view {text}")
        try:
            wanted = read_specs(kernel) if kernel else None
        except ValueError as error:
            raise ValueError(f"--view {text}: {error}") from None
        views += _split(name, columns, wanted, kinds, default)
    return Views(_merged(views))


def guess_views(kinds: Mapping[str, str], default: list[Spec]) -> Views:
    """Return views of columns that share a prefix, sequences apart, with `default` kernels on numbers."""
    usable = [name for name, kind in kinds.items() if kind in (_NUMBERS, _CATEGORIES)]
    groups = _groups(usable)
    sequences = [name for name, kind in kinds.items() if kind == _SEQUENCES]
    views = []
    for name, columns in groups.items():
        views += _split(_tame(name), columns, None, kinds, default)
    for column in sequences:
        views.append(View(_tame(column), (column,), tuple(read_specs("spectrum(3)"))))
    left = [name for name, kind in kinds.items() if kind not in (_NUMBERS, _CATEGORIES, _SEQUENCES)]
    notes = [f"column {name!r} is left out: free text. Name it in a --view to use it." for name in left]
    if not views:
        raise ValueError("no column to learn from: every column but the target is free text or left out.")
    return Views(_merged(views), notes)


def _groups(columns: Sequence[str]) -> dict[str, list[str]]:
    """Columns by the part of the name before the first ``_`` or ``.``; all in one where that tells nothing."""
    groups: dict[str, list[str]] = {}
    for name in columns:
        groups.setdefault(_SEPARATOR.split(name, maxsplit=1)[0], []).append(name)
    shared = {prefix: members for prefix, members in groups.items() if prefix and len(members) > 1}
    if not 2 <= len(shared) <= _MOST_GROUPS:
        return {"all": list(columns)} if columns else {}
    alone = [name for name in columns if not any(name in members for members in shared.values())]
    return {**shared, **({"other": alone} if alone else {})}


def _split(
    name: str, columns: Sequence[str], specs: list[Spec] | None, kinds: Mapping[str, str], default: list[Spec]
) -> list[View]:
    """One view for the columns of numbers and categories together, one for every column of strings."""
    if specs is None:
        rows = [c for c in columns if kinds[c] in (_NUMBERS, _CATEGORIES)]
        strings = [c for c in columns if c not in rows]
        # Categories alone have nothing that a square or a distance would add.
        usual = default if any(kinds[c] == _NUMBERS for c in rows) else read_specs("linear")
        views = [View(name, tuple(rows), tuple(usual))] if rows else []
        return views + _one_each(name, strings, read_specs("spectrum(3)"), len(columns) > 1)
    on_strings = [spec for spec in specs if spec.reads_sequences]
    on_rows = [spec for spec in specs if not spec.reads_sequences]
    views = [View(name, tuple(columns), tuple(on_rows))] if on_rows else []
    return views + (_one_each(name, columns, on_strings, len(columns) > 1) if on_strings else [])


def _one_each(name: str, columns: Sequence[str], specs: list[Spec], several: bool) -> list[View]:
    return [View(f"{name}[{_tame(c)}]" if several else name, (c,), tuple(specs)) for c in columns]


def _merged(views: list[View]) -> list[View]:
    """Views written in several parts, as one kernel each, keep one name as long as their kernels differ."""
    seen: set[tuple[str, str]] = set()
    for view in views:
        for spec in view.specs:
            if (view.name, spec.label) in seen:
                raise ValueError(f"--view {view.name}: the kernel {spec.label} is named twice; choose another name.")
            seen.add((view.name, spec.label))
    return views


def _checked_name(name: str, text: str) -> str:
    if "__" in name or ":" in name:
        raise ValueError(f"--view {text}: the name {name!r} must not contain '__' or ':'.")
    return name


def _tame(name: str) -> str:
    """A column's name as part of a kernel's, where two underscores mean something else."""
    return re.sub("_{2,}", "_", name).replace(":", ".") or "column"
