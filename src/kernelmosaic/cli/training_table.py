"""The tables that commands read: joined by the names of their rows; target, views, kernels and test
rows of a fit."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit, StratifiedShuffleSplit

from kernelmosaic import tables
from kernelmosaic._typing import AnyArray, ArrayOrTensor, Indices, MatrixLike, Settings
from kernelmosaic.cli import layout
from kernelmosaic.cli.layout import ROW_COLUMN, Plan, View, ViewSpec
from kernelmosaic.cli.methods import with_method
from kernelmosaic.cli.output import say
from kernelmosaic.cli.requests import FitRequest, TaskName
from kernelmosaic.files import existing_file
from kernelmosaic.kernels import Kernel, by_group, read_gmt
from kernelmosaic.schema import Column, ColumnKind, Schema

T = TypeVar("T")

#: Of a table that no model knows yet: what its columns hold is found out.
NO_SCHEMA = Schema(())


@dataclass(frozen=True)
class Target:
    """What is to be predicted: the task, the columns it is written in, and its values, one row per
    sample."""

    task: TaskName
    columns: tuple[str, ...]
    y: AnyArray


@dataclass(frozen=True)
class TrainingTable:
    """The training data, read and checked.

    Parameters
    ----------
    request : FitRequest
        With the task and the method.
    table : DataFrame
    places : ndarray
        The place of every row in the file, which may have rows that are left out.
    fingerprints : ndarray
        A number per row by which `predict` identifies it: of its name where tables are joined, else
        of its cells.
    target : Target
    groups : ndarray or None
        The number of every row's group; rows of one group are left out, or kept back, together.
    rest, held : ndarray
        The rows to learn from, and those kept back for the test.
    plan : Plan
    kernels : list
    views : dict
        The columns, kernels and files of each view.
    lacking : dict
        How many rows lack each view.
    files : dict
        The files by their use: the table, the views, the kernel matrices; and the column that names
        the rows.
    notes : list of str
        Columns that are left out, and why.
    warnings : list of str
        What makes the score of the model doubtful.
    """

    request: FitRequest
    table: Any
    places: Indices
    fingerprints: NDArray[np.uint64]
    target: Target
    groups: Indices | None
    rest: Indices
    held: Indices
    plan: Plan
    kernels: list[Any]
    views: dict[str, dict[str, list[str]]]
    lacking: dict[str, int]
    files: Settings
    notes: list[str]
    warnings: list[str]

    @property
    def schema(self) -> Schema:
        """How the columns are read, for later tables."""
        plan, target, marks = self.plan, self.target, tables.MISSING_MARKS
        columns = {
            name: Column(name, "numbers", missing=marks)
            for name in (*target.columns, *plan.numbers)
        }
        columns |= {name: Column(name, "texts", missing=marks) for name in plan.texts}
        categories = dict(plan.categories)
        if target.task == "classification":
            categories[target.columns[0]] = [str(value) for value in np.unique(target.y)]
        for name, values in categories.items():
            kind: ColumnKind = "classes" if name in target.columns else "categories"
            missing = tuple(mark for mark in marks if mark not in values)
            columns[name] = Column(name, kind, tuple(values), missing)
        if plan.rows not in (None, ROW_COLUMN):
            columns[plan.rows] = Column(plan.rows, "numbers", missing=marks)
        names = [name for name in (self.request.on, self.request.groups) if name is not None]
        return Schema(tuple(columns.values())).with_names(names, marks)

    @property
    def noted(self) -> Settings:
        """The columns and views as a model file records them."""
        columns = [name for name in self.plan.columns if name != ROW_COLUMN]
        known = {name: getattr(self, name) for name in ("views", "lacking", "files")}
        return {"columns": columns, "plan": asdict(self.plan), **known}


def read_training_table(request: FitRequest, default: list[Kernel] | None = None) -> TrainingTable:
    """Read the files, and lay out which kernel reads which columns; views without kernels have the
    default ones."""
    raw = _read_first_table(request)
    raw.index = range(
        len(raw)
    )  # rows that are left out below leave the numbers of the others as they are
    _check_view_files(raw, request)
    target, faults = _target_or_faults(raw, request)
    request = with_method(request, target.task)
    # The columns that are never learned from, wherever they come from, and what each is.
    never: dict[Any, str] = dict.fromkeys(
        tables.named_indices(request.path), "the index of the table"
    )
    never |= dict.fromkeys(target.columns, "the target")
    never |= {request.event: "the event"}
    never |= {
        request.rows: "the row numbers",
        request.on: "the names of the rows",
        request.groups: "the groups",
    }
    joined = None
    if request.on is not None:
        joined = join_tables(raw, request.views, request.on, request.path, never)
        if not joined.files:
            raise ValueError(
                "--on joins files to the table: name one with --view name=FILE, or leave --on out."
            )
        raw = joined.table
    everything = list(raw.columns)
    dropped = [
        name
        for text in request.drop
        for name in layout.match_columns(
            layout.split_names(text, everything), everything, f"--drop {text}"
        )
    ]
    usable = [name for name in everything if name not in {*never, *dropped}]
    indices = (
        []
        if request.names_views
        else [name for name in usable if tables.looks_like_an_index(raw[name])]
    )
    kinds = {name: tables.kind_of(raw[name]) for name in usable if name not in indices}
    rows_column = request.rows
    if rows_column is not None and not request.kernels:
        raise ValueError(
            "--rows numbers the rows of kernel matrices: give one with --kernel, or leave --rows"
            " out."
        )
    if rows_column is None and request.kernels:
        rows_column, raw[ROW_COLUMN] = ROW_COLUMN, np.arange(len(raw))
    default = layout.usual_kernels(target.task, request.method) if default is None else default
    views, notes = _choose_views(request, kinds, default, joined, never)
    notes += [f"column {name!r} is left out: it numbers the rows." for name in indices]
    if joined is not None:
        notes += [*joined.notes, *joined.unused_rows]
    plan = layout.make_plan(views, kinds, raw, rows_column, request)
    unused = [name for name in kinds if name not in plan.columns]
    if unused and (request.names_views or request.kernels):
        few = "column is" if len(unused) == 1 else "columns are"
        use = f"A --view of them, such as name={unused[0]}, learns from them."
        notes.append(f"{len(unused)} {few} not used: {tables.some(unused, 20)}. {use}")
    kept = keep_rows(plan, raw, request.on, request.path, request.drop_empty)
    if len(kept) < len(raw):
        raw = raw.iloc[kept]
        target, faults = _target_or_faults(raw, request)
    table, more = or_faults(lambda: plan.table(raw, request.path), None)
    tables.refuse(located([*faults, *more], raw, joined), request.path)
    lacks = any(table[list(group)].isna().all(axis=1).any() for group in plan.groups)
    if (
        request.method in ("bilinear", "discriminant")
        and plan.impute in ("none", "views")
        and lacks
    ):
        raise ValueError(
            f"--method {request.method}: some rows lack a view, which mkl, localized, rmkl and"
            " ridge alone learn from; --impute median fills it in."
        )
    layout.check_lengths(views, table, request.path, raw.index)
    given = layout.read_given_kernels(request.kernels, plan, len(raw))
    if given:
        layout.check_row_numbers(table, plan, len(given[0][1].K), request.path, raw.index)
    kernels = [*layout.lay_kernels(plan, views), *given]
    names = [name for name, *_ in kernels]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ValueError(f"two kernels are called {repeated[0]!r}; give one of them another name.")
    read, groups = _views_of(views, joined), _read_groups(raw, request)
    lacking = {
        name: int(raw[view["columns"]].isna().all(axis=1).sum()) for name, view in read.items()
    }
    files = {
        "table": str(request.path),
        "on": request.on,
        "views": {name: str(path) for name, path in joined.files.items()} if joined else {},
        "kernels": {
            name: path for name, _, path in (text.partition("=") for text in request.kernels)
        },
    }
    rest, held = split_off(request, target.task, target.y, groups)
    copies = copies_of_target(table, [name for name in plan.columns if name != plan.rows], target)
    warned = [
        f"column {name!r} duplicates or recodes the target {of!r} in every row that has it: the"
        f" score means nothing if it is not known before the target is; --drop {name!r} leaves it"
        " out."
        for name, of in copies.items()
    ]
    marks = tables.fingerprints(table if request.on is None else row_names(raw, request.on))
    return TrainingTable(
        request,
        table,
        kept,
        marks,
        target,
        groups,
        rest,
        held,
        plan,
        kernels,
        read,
        lacking,
        files,
        notes,
        warned,
    )


def _read_first_table(request: FitRequest) -> Any:
    """Return the table that is named first; classes and names are read as they are written."""
    names = [name for name in (request.target, request.on, request.groups) if name is not None]
    return tables.read_table(request.path, dict.fromkeys(names, tables.MISSING_MARKS))


def _check_view_files(raw: ArrayOrTensor, request: FitRequest) -> None:
    """Refuse views that are files without a column to join them by, and a target that such a file
    alone has."""
    files = {
        text: path
        for text in request.views
        for _, path, _ in [file_view(text)]
        if os.path.isfile(path)
    }
    for text, path in files.items():
        if request.on is None:
            raise ValueError(
                f"--view {text}: {path} is a file; files are joined to {request.path} by a column"
                " that names the rows in each of them: name it with --on COLUMN."
            )
        targets = {name for name in _target_names(request, raw.columns) if name not in raw.columns}
        for name in sorted(targets & {*tables.read_table(path).columns} if targets else ()):
            raise ValueError(
                f"column {name!r} is in {path}, but the target must be in the first table, which is"
                f" {request.path}: write `kernelmosaic fit {path} --view {request.path}` with the"
                " other options."
            )


def row_names(raw: ArrayOrTensor, on: str) -> ArrayOrTensor:
    """Return the column that names the rows as a table of texts, alike for names that are numbers
    in another file."""
    return tables.texts_of(raw[on]).to_frame()


# Tables joined by a column that names their rows --------------------------------------------------


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
        Columns that were left out.
    lacking_rows : list of str
        For every file that lacks rows of the table, how many and one of them.
    unused_rows : list of str
        For every file with rows that the table does not have, how many and one of them.
    """

    table: Any
    on: str
    views: list[ViewSpec]
    files: dict[str, Path]
    sources: dict[str, tuple[Path, str]]
    notes: list[str]
    lacking_rows: list[str]
    unused_rows: list[str]


def join_tables(
    raw: ArrayOrTensor,
    given: Sequence[str],
    on: str,
    where: object,
    never: Mapping[Any, str],
    schema: Schema = NO_SCHEMA,
) -> Joined:
    """Join views that are files of their own, written as ``name=FILE:KERNEL``, to a table by a
    column of both.

    Names of rows are compared as they are written. A view that is no file names columns of the
    table. A row that a file does not have lacks its view. Columns of files that are called like one
    of `never` (each described) are left out, and so are those that name or number the rows. The
    columns of files are read by the schema, as far as they are in it.
    """
    import pandas as pd

    tables.require(raw, [on], where)
    keys = _keys(raw[on], on, where)
    own_columns = list(raw.columns)
    joined = Joined(raw, on, [], {}, {}, [], [], [])
    views, files, notes = joined.views, joined.files, joined.notes
    lacking_rows, unused_rows, known_keys = joined.lacking_rows, joined.unused_rows, set(keys)
    for text in given:
        name, path, kernel = file_view(text)
        if any(one.name == name for one in views) and (name in files or os.path.isfile(path)):
            raise ValueError(
                f"--view {text}: there are two views of the name {name!r}; write name=FILE."
            )
        columns = [] if os.path.isfile(path) else _own_columns(text, own_columns, never)
        if columns:
            views.append(
                replace(layout.read_options([text], own_columns)[0], patterns=tuple(columns))
            )
            continue
        if "=" in text and not os.path.exists(path) and not path.suffix:
            hint = (
                tables.meant(str(path), own_columns) or f" there are {tables.some(own_columns, 6)}."
            )
            raise ValueError(
                f"--view {text}: {path} is not a file, and {where} has no such column;{hint}"
            )
        table = schema.of_view(name).with_names([on], tables.MISSING_MARKS).read(path)
        tables.require(table, [on], path)
        names = _keys(table[on], on, path)
        own = table.drop(columns=[on]).set_axis(names)
        unused = [key for key in names if key not in known_keys]
        known_names = set(names)
        lacking = [key for key in keys if key not in known_names]
        hint = _hint_at_spelling(unused, path, lacking, where)
        if len(unused) == len(names):
            raise ValueError(
                f"--view {text}: none of its {len(own)} rows has a value of column {on!r} that"
                f" {where} has, such as {keys[0]!r}; its first is {names[0]!r}.{hint}"
            )
        if unused:
            of_rows = f"{len(unused)} of {len(names)} rows of {path}"
            unused_rows.append(f"{of_rows} are not used: {where} has no {on} {unused[0]!r}.{hint}")
        if lacking:
            of_rows = f"{len(lacking)} of {len(keys)} rows of {where}"
            lacking_rows.append(
                f"view {name!r}: {of_rows} lack it: {path} has no {on} {lacking[0]!r}.{hint}"
            )
        never_here = dict.fromkeys(tables.named_indices(path), "the index of the table") | {**never}
        why = {column: _why_not(table[column], names, never_here) for column in own.columns}
        notes += [
            f"column {column!r} of {path} is left out: {reason}."
            for column, reason in why.items()
            if reason
        ]
        own = own[[column for column, reason in why.items() if not reason]]
        if not len(own.columns):
            raise ValueError(
                f"--view {text}: {path} has no column to learn from beside {on!r} and the target."
            )
        for column in own.columns:
            if f"{name}.{column}" in raw.columns:
                raise ValueError(
                    f"--view {text}: column {column!r} of {path} is called '{name}.{column}' once"
                    f" it is joined, and {where} has a column of this name; rename one of them, or"
                    " give the view another name."
                )
        joined.sources.update({f"{name}.{column}": (path, column) for column in own.columns})
        own.columns = [f"{name}.{column}" for column in own.columns]
        raw = pd.concat([raw, own.reindex(keys).set_axis(raw.index)], axis=1)
        files[name] = path
        views.append(ViewSpec(name, tuple(own.columns), kernel, f"--view {text}"))
    return replace(joined, table=raw)


def _own_columns(text: str, columns: Sequence[str], never: Mapping[Any, str]) -> list[str]:
    """The columns of the table itself that a view names; none if it names a file."""
    if "=" not in text:
        return []
    wanted = layout.read_options([text], columns)[0]
    for part in map(str.strip, wanted.patterns):
        if part in columns and part in never:
            raise ValueError(
                f"--view {text}: column {part!r} is {never[part]}, never learned from; leave it"
                " out."
            )
    usable = [column for column in columns if column not in never]
    found = [layout.matching(part, usable) for part in wanted.patterns]
    lost = [part for part, names in zip(wanted.patterns, found, strict=True) if not names]
    if lost and any(found):
        layout.match_columns(lost, usable, f"--view {text}")
    return list(dict.fromkeys(name for names in found for name in names))


def _why_not(column: Any, names: Sequence[str], never: Mapping[Any, str]) -> str:
    """Why a column of a file is nothing to learn from; empty if it is."""
    if column.name in never:
        return f"it has the name of {never[column.name]}"
    if [str(value) for value in column] == list(names):
        return "it repeats the names of the rows"
    return "it numbers the rows" if tables.looks_like_an_index(column) else ""


def _keys(column: Any, on: str, where: object) -> list[str]:
    """Return the names of rows as they are written; they must be there and differ."""
    keys = list(tables.texts_of(column))
    repeated = next(
        (key for key, count in Counter(keys).items() if count > 1 and key is not None), "nothing"
    )
    if None in keys or len(set(keys)) < len(keys):
        raise ValueError(
            f"{where}: column {on!r} has {repeated!r} more than once, or is empty; --on needs a"
            " column that names every row."
        )
    return keys


def _hint_at_spelling(
    unused: Sequence[str], path: Path, lacking: Sequence[str], where: object
) -> str:
    """Return a sentence on a row of each file that may be the same one under two spellings; empty
    if there is none."""
    spelt = {_spelling(key): key for key in lacking}
    for key in unused:
        if _spelling(key) in spelt:
            names = f"{key!r} of {path} and {spelt[_spelling(key)]!r} of {where}"
            return f" Names are compared as they are written: {names} differ."
    return ""


def _spelling(name: str) -> str:
    """Return what programs leave of a name: 007, 7.0 and " 7" become 7."""
    whole, point, zeros = name.strip().casefold().partition(".")
    is_whole = point == "" or (zeros != "" and not zeros.strip("0"))
    digits = whole if is_whole else name.strip().casefold()
    return digits.lstrip("0") or "0"


def file_view(text: str) -> tuple[str, Path, str]:
    """Return name, path and kernel of ``name=FILE:KERNEL``; the name of a file is what it is
    called."""
    name, equals, rest = text.partition("=")
    rest = rest if equals else text
    # A colon may be part of a path, as after a drive.
    path, _, kernel = (
        rest.rpartition(":") if ":" in rest and not os.path.isfile(rest) else (rest, "", "")
    )
    return name.strip() if equals else layout.safe_name(Path(path).stem), Path(path), kernel


def located(
    faults: Sequence[tables.Fault], raw: ArrayOrTensor, joined: Joined | None
) -> list[tables.Fault]:
    """Return faults with the rows' places in the file, and the file and the row's name for what was
    joined."""
    found = []
    for fault in faults:
        what = fault.what
        if joined is not None and fault.column in joined.sources:
            path, column = joined.sources[fault.column]
            what = (
                f" (column {column!r} of {path}, {joined.on}"
                f" {str(raw[joined.on].iloc[fault.row])!r}){what}"
            )
        remedy = (
            fault.remedy
            if joined is None
            else fault.remedy.replace("--impute median", "--impute views")
        )
        found.append(replace(fault, row=int(raw.index[fault.row]), what=what, remedy=remedy))
    return found


def keep_rows(
    plan: Plan, raw: ArrayOrTensor, on: str | None, where: object, drop_empty: bool
) -> Indices:
    """Return the places of the rows that have a view; refuse or, with --drop-empty, name those that
    have none."""
    every, names = np.arange(len(raw)), [name for name in plan.columns if name in raw.columns]
    if plan.rows is not None or not names:
        return every
    empty = np.flatnonzero(raw[names].isna().all(axis=1).to_numpy())
    refuses = (bool(plan.groups) or on is not None) and plan.impute not in ("median", "frequent")
    if len(empty) == 0 or not (drop_empty or refuses):
        return every
    # By name where they have one, and by number.
    numbers = [f"row {int(raw.index[row]) + 1}" for row in empty]
    named = (
        []
        if on is None
        else [
            f"{on} {str(raw[on].iloc[row])!r} ({n})" for row, n in zip(empty, numbers, strict=True)
        ]
    )
    lost, n = tables.some(named or numbers, 20), f"{len(empty)} of {len(raw)} rows"
    if len(empty) == len(raw):
        raise ValueError(
            f"{where}: none of its rows appears in a view, such as {lost.partition(', ')[0]}."
        )
    if not drop_empty:
        raise ValueError(
            f"{where}: {n} appear in no view: {lost}. Leave them out with --drop-empty, or add them"
            " to a view."
        )
    say(f"{n} are left out, which appear in no view: {lost}")
    return np.setdiff1d(every, empty)


# The target ---------------------------------------------------------------------------------------


def or_faults(read: Callable[[], T], otherwise: T) -> tuple[T, list[tables.Fault]]:
    """Return what is read, or something else and the cells in it that cannot be used."""
    try:
        return read(), []
    except tables.BadCells as error:
        return otherwise, error.faults


def _target_or_faults(raw: ArrayOrTensor, request: FitRequest) -> tuple[Target, list[tables.Fault]]:
    unread = Target(
        request.task or "classification", tuple(_target_names(request, raw.columns)), np.empty(0)
    )
    return or_faults(lambda: read_target(raw, request), unread)


def _target_names(request: FitRequest, columns: Collection[str]) -> list[str]:
    """Return what the columns of the target may be called: a comma is part of a name, or stands
    between two."""
    target = request.target or ""
    names = [*layout.split_names(target, columns), target, request.event or ""]
    return [name if name in columns else name.strip() for name in names if name]


def target_values(
    raw: ArrayOrTensor, task: TaskName, columns: Sequence[str], where: object
) -> AnyArray:
    """Return the target that columns hold: classes, numbers, labels, or events and times."""
    if task == "regression":
        return tables.numbers(raw, columns[0], where)
    if task == "multi-label":
        return tables.indicators(raw, columns, where).astype(int)
    if task == "survival":
        events, times = (
            tables.indicators(raw, columns[1:], where)[:, 0],
            tables.numbers(raw, columns[0], where),
        )
        return np.column_stack([events, times])
    return tables.labels_of(raw[columns[0]])


def read_target(raw: ArrayOrTensor, request: FitRequest) -> Target:
    """Return what is to be predicted, the task guessed where it is not given."""
    name, where = request.target, request.path
    if request.event is not None or request.task == "survival":
        return _read_survival(raw, request)
    if request.task == "one-class":
        if name is not None:
            tables.target_of(
                raw, name, where
            )  # left out of the columns, so it must at least be one
        return Target("one-class", () if name is None else (name,), np.zeros(len(raw)))
    if name is None:
        known = ", ".join(raw.columns[-8:])
        raise ValueError(
            f"name the column to predict with --target (… {known}), or give --task one-class."
        )
    if request.task == "multi-label" or ("," in name and name not in raw.columns):
        parts = layout.split_names(name, raw.columns)
        return _read_labels(
            raw, request, [part if part in raw.columns else part.strip() for part in parts]
        )
    target = tables.target_of(raw, name, where)
    task = request.task or tables.guess_task(target)
    try:
        y = target_values(raw, task, [name], where)
    except ValueError as error:
        raise ValueError(
            f"{error} A regression learns numbers: correct it, or give --task classification if"
            f" column {name!r} names classes."
        ) from None
    if task == "regression" and np.ptp(y) == 0:
        raise ValueError(
            f"{where}, column {name!r}: every row has the same value, {y[0]:g}; there is nothing to"
            " learn. Name another column with --target."
        )
    if task == "classification" and len(np.unique(y)) < 2:
        raise ValueError(
            f"{where}, column {name!r} holds one class only, {y[0]}: a classifier needs two; --task"
            " one-class learns what is normal."
        )
    return Target(task, (name,), y)


def _read_survival(raw: ArrayOrTensor, request: FitRequest) -> Target:
    time, event, where = request.target, request.event, request.path
    if request.task not in (None, "survival"):
        raise ValueError(f"--event {event}: a {request.task} has no events; leave the option out.")
    if time is None or event is None:
        raise ValueError(
            "--task survival: name the column of times with --target and that of events with"
            " --event."
        )
    tables.target_of(raw, time, where)
    y = target_values(raw, "survival", (time, event), where)
    is_log = request.loss == "censored" or (request.loss is None and request.epsilon is not None)
    remedy = (
        f"Times must {'be positive' if is_log else 'not be negative'}: leave such rows out, or"
        " correct them."
    )
    wrong = y[:, 1] <= 0 if is_log else y[:, 1] < 0
    tables.refuse(
        tables.Fault.at(wrong, time, lambda row: f": the time {y[row, 1]:g}", remedy), where
    )
    if not y[:, 0].any():
        raise ValueError(
            f"{where}, column {event!r}: no event was observed; there is nothing to learn from."
        )
    return Target("survival", (time, event), y)


def _read_labels(raw: ArrayOrTensor, request: FitRequest, names: list[str]) -> Target:
    if request.task not in (None, "multi-label"):
        raise ValueError(
            f"--target {request.target}: a {request.task} has one target; name one column."
        )
    if len(names) < 2:
        raise ValueError(
            f"--target {names[0]}: name several columns of 0 and 1, such as --target a,b,c."
        )
    y = target_values(raw, "multi-label", names, request.path)
    constant = [name for name, column in zip(names, y.T, strict=True) if np.ptp(column) == 0]
    if constant:
        raise ValueError(
            f"{request.path}, column {', '.join(map(repr, constant))}: every row has the same"
            " value; there is nothing to learn. Leave it out of --target."
        )
    return Target("multi-label", tuple(names), y)


def _read_groups(raw: ArrayOrTensor, request: FitRequest) -> Indices | None:
    name = request.groups
    if name is None:
        return None
    column, faults = or_faults(lambda: tables.target_of(raw, name, request.path), raw)
    tables.refuse(located(faults, raw, None), request.path)
    groups = np.unique(tables.labels_of(column), return_inverse=True)[1]
    if groups.max() == 0:
        raise ValueError(
            f"--groups {name}: the column holds one group only, and no row stays when it is left"
            " out; name another column."
        )
    return np.asarray(groups, dtype=np.intp)


# Columns and views --------------------------------------------------------------------------------


def _choose_views(
    request: FitRequest,
    kinds: dict[str, str],
    default: list[Kernel],
    joined: Joined | None,
    never: dict[Any, str],
) -> tuple[list[View], list[str]]:
    """The views that were given or, where none was, guessed; and remarks on columns left out."""
    wanted = _joined_views(joined, kinds) if joined else layout.read_options(request.views, kinds)
    if request.view_file is not None:
        further = layout.read_view_file(request.view_file)
        if joined is not None:
            # A joined view keeps the columns that the file gives to no other.
            taken = {
                column
                for one in further
                for column in layout.match_columns(one.patterns, list(kinds), one.where)
            }
            wanted = _joined_views(
                joined, {name: kind for name, kind in kinds.items() if name not in taken}
            )
        wanted = [*wanted, *further]
    left_out: list[str] = []
    if request.gene_sets is not None:
        sets, left_out = _gene_sets(request.gene_sets, kinds, joined)
        # The sets of a file's columns stand in its place.
        divided = {column for one in sets for column in one.patterns}
        files = {} if joined is None else joined.files
        wanted = [
            one for one in wanted if one.name not in files or not divided & {*one.patterns}
        ] + sets
    for one in wanted:
        for part in map(str.strip, one.patterns):
            if part in never:
                raise ValueError(
                    f"{one.where}: column {part!r} is {never[part]}, never learned from; leave it"
                    " out."
                )
    if not wanted and request.kernels:
        return [], []
    if not wanted and not kinds:
        raise ValueError(f"{request.path} has no column to learn from beside the target.")
    views, notes = (
        (layout.read_views(wanted, kinds, default), left_out)
        if wanted
        else layout.guess_views(kinds, default)
    )
    if request.method == "ridge" and len(views) == 1 and not request.kernels:
        # One view has more kernels than each of several.
        more = tuple(layout.usual_kernels("regression", "ridge", alone=True))
        views = [
            replace(one, kernels=more) if list(one.kernels) == default else one for one in views
        ]
    return views, notes


def _gene_sets(
    text: str, kinds: Mapping[str, str], joined: Joined | None
) -> tuple[list[ViewSpec], list[str]]:
    """Return a view for every set of ``[VIEW=]FILE[:KERNEL]`` with two genes or more, and how many
    have fewer."""
    view, path, kernel = file_view(text)
    sources = (
        {} if joined is None else {name: column for name, (_, column) in joined.sources.items()}
    )
    found: dict[str, list[str]] = {}
    for column in kinds:
        gene = sources.get(column, column)
        if "=" not in text or column == f"{view}.{gene}":
            found.setdefault(gene, []).append(column)
    groups = read_gmt(existing_file(path, "a .gmt file"))
    twice = next(
        (gene for genes in groups.values() for gene in genes if len(found.get(gene, ())) > 1), None
    )
    if twice is not None:
        where = " and ".join(found[twice])
        raise ValueError(
            f"--gene-sets {text}: gene {twice!r} is in {where}; name the view, such as rna={path}."
        )
    try:
        kept = by_group(groups, among=found, min_size=2)
    except ValueError:
        known = tables.some([repr(gene) for gene in found], 6)
        raise ValueError(
            f"--gene-sets {text}: no set has two genes that are columns; the columns are"
            f" {known or 'none'}."
        ) from None
    few, where = len(groups) - len(kept), f"--gene-sets {text}"
    notes = (
        [f"{few} of {len(groups)} gene sets have fewer than two genes that are columns: left out."]
        if few
        else []
    )
    sets = [
        (layout.safe_name(name), tuple(found[gene][0] for gene in genes)) for name, _, genes in kept
    ]
    return [ViewSpec(name, columns, kernel or "gauss", where) for name, columns in sets], notes


def _joined_views(joined: Joined, usable: dict[str, str]) -> list[ViewSpec]:
    """The views of joined tables; those of files have the columns that are usable, and are left out
    without any."""
    found = []
    for one in joined.views:
        left = tuple(name for name in one.patterns if name in usable)
        if one.name not in joined.files:
            found.append(one)
        elif left:
            found.append(replace(one, patterns=left))
    return found


def _views_of(views: list[View], joined: Joined | None) -> dict[str, dict[str, list[str]]]:
    """The columns and kernels of each view, and the files that its columns are joined from."""
    found: dict[str, dict[str, list[str]]] = {}
    for view in views:  # one written in several parts is still one
        entry = found.setdefault(view.name, {"columns": [], "kernels": [], "files": []})
        entry["columns"] += [column for column in view.columns if column not in entry["columns"]]
        entry["kernels"] += map(layout.label_of, view.kernels)
    sources = {} if joined is None else joined.sources
    for entry in found.values():
        paths = [str(sources[name][0]) for name in entry["columns"] if name in sources]
        entry["files"] = list(dict.fromkeys(paths))
    return found


# Rows held out ------------------------------------------------------------------------------------


def split_off(
    request: FitRequest, task: TaskName, y: AnyArray, groups: Indices | None
) -> tuple[Indices, Indices]:
    """Return the rows to learn from and those to hold out for the test, in their order, groups as a
    whole."""
    all_rows = np.arange(len(y))
    if request.test == 0:
        return all_rows, all_rows[:0]
    _check_split(request, task, y)
    kind = StratifiedShuffleSplit if task == "classification" else ShuffleSplit
    kind = kind if groups is None else GroupShuffleSplit
    splitter = kind(1, test_size=request.test, random_state=request.seed or 0)
    rest, held = (np.sort(rows) for rows in next(splitter.split(y, y, groups)))
    lost = np.setdiff1d(y, y[rest]) if task == "classification" else y[:0]
    if len(lost):
        raise ValueError(
            f"--test {request.test:g} holds out every group with class {str(lost[0])!r}; give a"
            " smaller share, or another --seed."
        )
    return rest, held


def _check_split(request: FitRequest, task: TaskName, y: AnyArray) -> None:
    """Refuse a share of test rows that leaves one of the parts without a class, or with too
    little."""
    option, n = f"--test {request.test:g}", len(y)
    n_held = math.ceil(request.test * n)
    least, what = 2, "two"
    if task == "classification":
        values, counts = np.unique(y, return_counts=True)
        if counts.min() < 2:
            raise ValueError(
                f"{option}: class {str(values[counts.argmin()])!r} of column {request.target!r} has"
                " one row, which cannot be both learned from and held out; leave the row out, or"
                " hold out none with --test 0."
            )
        least, what = len(values), f"one of each of the {len(values)} classes"
    if n - n_held < least or (task == "classification" and n_held < least):
        too_few = n_held if n_held < least and task == "classification" else n - n_held
        does = "holds out" if too_few == n_held else "leaves, to learn from,"
        way = (
            f"{least / n:.3f} to {min(0.9, 1 - least / n):.3f}" if 2 * least < n else "0, for none"
        )
        raise ValueError(
            f"{option} {does} {too_few} of {n} rows, but at least {what} must be there; give {way}."
        )


# Columns that are the target under another name or in another code --------------------------------

#: Ranks that are correlated more than this are of one order, up to noise of about a thousandth of
#: the spread.
_SAME_ORDER = 1 - 1e-6


def copies_of_target(table: MatrixLike, columns: Sequence[str], target: Target) -> dict[str, str]:
    """Return the columns that duplicate or recode the target, each with the name of that target.

    A column is such a copy of classes if its values and the classes go with each other one to one,
    up to differences that are small beside those between classes; and of a quantity if that is a
    multiple of it plus a constant, or if both have the same order.
    """
    import pandas as pd

    found: dict[str, str] = {}
    parts = (
        target.y[:, ::-1] if target.task == "survival" else target.y
    )  # the times, then the events
    for name, y in zip(target.columns, np.atleast_2d(parts.T), strict=False):
        is_quantity = target.task == "regression" or (
            target.task == "survival" and name == target.columns[0]
        )
        same = _same_quantity if is_quantity else _same_code
        # A few rows of different values, evenly from the smallest to the largest.
        first = np.unique(y, return_index=True)[1]
        few = first[np.unique(np.linspace(0, len(first) - 1, 50).astype(int))]
        for column in columns:
            values = table[column].to_numpy()
            present = ~pd.isna(values)
            values = values.astype(np.float64) if values.dtype.kind in "iu" else values
            if column in found or (
                is_quantity and not _may_have_order(values, y, few[present[few]])
            ):
                continue
            if same(values[present], y[present]):
                found[column] = name
    return found


def _same_code(values: AnyArray, target: AnyArray) -> bool:
    import pandas as pd

    classes, names = pd.factorize(target)
    if len(names) < 2 or len(values) < 2 * len(
        names
    ):  # with fewer rows of each category a copy is a coincidence
        return False
    if values.dtype.kind == "f":
        return _apart(values, classes)
    codes, kinds = pd.factorize(values)
    return bool(len(kinds) == len(names) == len(np.unique(codes * len(kinds) + classes)))


def _apart(values: AnyArray, classes: AnyArray, share: float = 1e-3) -> bool:
    """Whether the values of each class differ by no more than this share of what the nearest class
    is off."""
    counts = np.bincount(classes)
    ordered, starts = values[np.argsort(classes, kind="stable")], np.cumsum(counts) - counts
    low, high = np.minimum.reduceat(ordered, starts), np.maximum.reduceat(ordered, starts)
    order = np.argsort(low)
    gap = (low[order][1:] - high[order][:-1]).min()
    return bool(gap > 0 and (high - low).max() <= share * gap)


def _may_have_order(values: AnyArray, target: AnyArray, rows: AnyArray) -> bool:
    """Whether a column is of numbers whose order in a few rows is about that of the target: looked
    at first."""
    if values.dtype.kind != "f":
        return False
    ranks, own = (np.argsort(np.argsort(one[rows])) for one in (values, target))
    return len(rows) < 3 or abs(np.corrcoef(ranks, own)[0, 1]) > 0.8


def _same_quantity(values: AnyArray, target: AnyArray) -> bool:
    # Less than five rows are on a line, and less than ten in order, by coincidence.
    if len(values) < 5 or np.ptp(values) == 0 or np.ptp(target) == 0:
        return False
    x = (values - values.mean()) / np.ptp(values)
    t = (target - target.mean()) / np.ptp(target)
    # What rounding leaves of the difference between a column and a multiple of it plus a constant.
    rounding = 1e-9
    if np.max(np.abs(t - x * (x @ t) / (x @ x))) < rounding:
        return True
    kinds, codes = np.unique(target, return_inverse=True)
    if len(kinds) < 10:  # values of few kinds are in order wherever the kinds are apart
        return len(values) >= 2 * len(kinds) and _apart(values, codes)
    from scipy.stats import rankdata

    ranks, own = rankdata(values), rankdata(target)
    if abs(np.corrcoef(ranks, own)[0, 1]) > _SAME_ORDER:
        return True
    # Noise gives an order to rows of equal targets, and either may be right.
    orders = (np.lexsort((sign * values, target)) for sign in (1, -1))
    return any(
        abs(np.corrcoef(ranks[order], np.arange(len(order)))[0, 1]) > _SAME_ORDER
        for order in orders
    )
