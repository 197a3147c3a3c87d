"""Tables joined by a column that names their rows: views in files of their own, and where each column comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import ArrayOrTensor
from kernelmosaic.cli.views import Plan, ViewSpec, matching, read_options, safe_name


@dataclass(frozen=True)
class Joined:
    """A table with the columns of other files beside its own.

    Parameters
    ----------
    table : DataFrame
        Columns of files are called ``view.column``.
    on : str
        The column that names the rows.
    views : list of ViewSpec
        The views, in the order given; those of files name every column that they have.
    files : dict
        The file of each view that has one.
    sources : dict
        The file of each joined column, and its name there.
    notes : list of str
        What was left out.
    """

    table: Any
    on: str
    views: list[ViewSpec]
    files: dict[str, Path]
    sources: dict[str, tuple[Path, str]]
    notes: list[str]


def join_tables(raw: ArrayOrTensor, given: Sequence[str], on: str, where: object, never: Mapping[str, str]) -> Joined:
    """Join views that are files of their own, written as ``name=FILE:KERNEL``, to a table by a column of both.

    A view that is no file names columns of the table. A row that a file does not have lacks its view. Columns of files
    that are called like one of `never`, which says what each is, are left out, and so are those that name or number the
    rows.
    """
    import pandas as pd

    from kernelmosaic.tables import looks_like_an_index, read_table, require

    require(raw, [on], where)
    keys = _keys(raw[on], on, where)
    own_columns = list(raw.columns)
    views: list[ViewSpec] = []
    files: dict[str, Path] = {}
    sources: dict[str, tuple[Path, str]] = {}
    notes: list[str] = []
    for text in given:
        name, path, kernel = file_view(text)
        if any(one.name == name for one in views) and (name in files or os.path.isfile(path)):
            raise ValueError(f"--view {text}: there are two views of the name {name!r}; write name=FILE.")
        columns = (
            [] if os.path.isfile(path) else _own_columns(text, own_columns, {**never, on: "the names of the rows"})
        )
        if columns:
            views.append(replace(read_options([text], own_columns)[0], patterns=tuple(columns)))
            continue
        if "=" in text and not os.path.exists(path) and not path.suffix:
            raise ValueError(f"--view {text}: {path} is no file, and {where} has no such column to learn from.")
        table = read_table(path)
        require(table, [on], path)
        names = _keys(table[on], on, path)
        own = table.drop(columns=[on]).set_axis(names)
        if not own.index.isin(keys).any():
            raise ValueError(
                f"--view {text}: none of its {len(own)} rows has a value of column {on!r} that {where} has, such as "
                f"{keys[0]!r}; its first is {own.index[0]!r}."
            )
        why = {column: _why_not(table[column], names, never, looks_like_an_index) for column in own.columns}
        notes += [f"column {column!r} of {path} is left out: {reason}." for column, reason in why.items() if reason]
        own = own[[column for column, reason in why.items() if not reason]]
        if not len(own.columns):
            raise ValueError(f"--view {text}: {path} has no column to learn from beside {on!r} and the target.")
        sources |= {f"{name}.{column}": (path, column) for column in own.columns}
        own.columns = [f"{name}.{column}" for column in own.columns]
        raw = pd.concat([raw, own.reindex(keys).set_axis(raw.index)], axis=1)
        files[name] = path
        views.append(ViewSpec(name, tuple(own.columns), kernel, f"--view {text}"))
    return Joined(raw, on, views, files, sources, notes)


def _own_columns(text: str, columns: Sequence[str], never: Mapping[str, str]) -> list[str]:
    """The columns of the table itself that a view names; none if it names a file."""
    if "=" not in text:
        return []
    wanted = read_options([text], columns)[0]
    for part in map(str.strip, wanted.patterns):
        if part in columns and part in never:
            raise ValueError(f"--view {text}: column {part!r} is {never[part]}, never learned from; leave it out.")
    usable = [column for column in columns if column not in never]
    found = [matching(part, usable) for part in wanted.patterns]
    lost = [part for part, names in zip(wanted.patterns, found, strict=True) if not names]
    if lost and any(found):
        raise ValueError(f"--view {text}: the pattern {lost[0]!r} matches no column.")
    return list(dict.fromkeys(name for names in found for name in names))


def _why_not(column: Any, names: Sequence[str], never: Mapping[str, str], numbers_rows: Any) -> str:
    """Why a column of a file is nothing to learn from; empty if it is."""
    if column.name in never:
        return f"it has the name of {never[column.name]}"
    if [str(value) for value in column] == list(names):
        return "it repeats the names of the rows"
    return "it numbers the rows" if numbers_rows(column) else ""


def _keys(column: Any, on: str, where: object) -> list[str]:
    keys = [str(value) for value in column]
    if column.isna().any() or len(set(keys)) < len(keys):
        repeated = next((key for key in keys if keys.count(key) > 1), "nothing")
        raise ValueError(
            f"{where}: column {on!r} has {repeated!r} more than once, or is empty; --on needs a column that names "
            "every row."
        )
    return keys


def file_view(text: str) -> tuple[str, Path, str]:
    """Return name, path and kernel of ``name=FILE:KERNEL``; the name of a file is what it is called."""
    name, equals, rest = text.partition("=")
    rest = rest if equals else text
    # A colon may be part of a path, as after a drive.
    path, colon, kernel = rest.rpartition(":")
    if not colon or os.path.isfile(rest):
        path, kernel = rest, ""
    return name.strip() if equals else safe_name(Path(path).stem), Path(path), kernel


def located(faults: Sequence[Any], raw: ArrayOrTensor, joined: Joined | None) -> list[Any]:
    """Return faults with the rows' places in the file, and the file and the row's name for what was joined."""
    found = []
    for fault in faults:
        what = fault.what
        if joined is not None and fault.column in joined.sources:
            path, column = joined.sources[fault.column]
            what = f" (column {column!r} of {path}, {joined.on} {str(raw[joined.on].iloc[fault.row])!r}){what}"
        remedy = fault.remedy if joined is None else fault.remedy.replace("--impute median", "--impute views")
        found.append(replace(fault, row=int(raw.index[fault.row]), what=what, remedy=remedy))
    return found


def keep_rows(plan: Plan, raw: ArrayOrTensor, on: str | None, where: object, drop_empty: bool) -> NDArray[np.intp]:
    """Return the places of the rows that have a view; refuse or, if so asked, name those that have none."""
    from kernelmosaic.cli.output import say

    every, empty = np.arange(len(raw)), plan.empty_rows(raw)
    refuses = (bool(plan.groups) or on is not None) and plan.impute not in ("median", "frequent")
    if len(empty) == 0 or not (drop_empty or refuses):
        return every
    n = f"{len(empty)} of {len(raw)} rows"
    lost = _row_names(raw, [int(row) for row in empty], on)
    if len(empty) == len(raw):
        raise ValueError(f"{where}: none of the views has any of its rows, such as {lost.partition(', ')[0]}.")
    if not drop_empty:
        raise ValueError(
            f"{where}: none of the views has {n}: {lost}. Leave them out with --drop-empty, or add them to a view."
        )
    say(note=f"{n} are left out, which none of the views has: {lost}")
    return np.setdiff1d(every, empty)


def _row_names(raw: ArrayOrTensor, rows: Sequence[int], on: str | None, most: int = 20) -> str:
    """Rows, given by their places, as errors name them: by name where they have one, and by number."""
    numbers = [int(raw.index[row]) + 1 for row in rows[:most]]
    names = [f"row {number}" for number in numbers]
    if on is not None:
        cells = raw[on].iloc[list(rows[:most])]
        names = [f"{on} {str(cell)!r} ({name})" for cell, name in zip(cells, names, strict=True)]
    return ", ".join(names) + (f" and {len(rows) - most} more" if len(rows) > most else "")
