"""The training data of a command: joined tables, target, views, test rows."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
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

#: The schema of tables that no model has read yet: the type of each column follows from its cells.
NO_SCHEMA = Schema(())

#: The most names that a message lists; the number of all names follows them. Chosen by hand.
_MOST_NAMES = 20


@dataclass(frozen=True)
class Target:
    """What is to be predicted.

    Parameters
    ----------
    task : str
    columns : tuple of str
        The columns that hold the target: of survival the times, then the events; none of a
        one-class machine whose target is not named.
    y : ndarray
        One row per sample, in the form of `target_values`.
    """

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
        The columns that the pipeline reads, one row per sample.
    file_rows : ndarray
        The row of the file that each sample stands in, from 0; the file may have rows without any
        view, which are left out.
    fingerprints : ndarray
        A number per sample by which `predict` recognises it: a hash of its name where tables are
        joined, else of its cells.
    target : Target
    groups : ndarray or None
        The number of the group of each sample; the samples of one group are left out of a fit, or
        put into the test set, together.
    training_rows, test_rows : ndarray
        The samples to learn from, and those set aside for the test.
    plan : Plan
    kernels : list
        Tuples of name, kernel, and the columns that it reads of what the plan's pipeline returns.
    views : dict
        The columns, kernels and files of each view.
    lacking : dict
        How many samples lack each view.
    files : dict
        The files by their use: the table, the views, the kernel matrices; and the column that names
        the rows.
    notes : list of str
        Columns that are left out, and why.
    warnings : list of str
        Reasons to doubt the score of the model.
    """

    request: FitRequest
    table: Any
    file_rows: Indices
    fingerprints: NDArray[np.uint64]
    target: Target
    groups: Indices | None
    training_rows: Indices
    test_rows: Indices
    plan: Plan
    kernels: list[Any]
    views: dict[str, dict[str, list[str]]]
    lacking: dict[str, int]
    files: Settings
    notes: list[str]
    warnings: list[str]

    @property
    def schema(self) -> Schema:
        """How each column is read, which later tables of the model are read by, too."""
        plan = self.plan
        target = self.target
        marks = tables.MISSING_MARKS
        columns = {}
        for name in (*target.columns, *plan.numbers):
            columns[name] = Column(name, "numbers", missing=marks)
        for name in plan.texts:
            columns[name] = Column(name, "texts", missing=marks)

        # Categories and classes replace what was said of their columns above. A mark of missing
        # cells that is one of the values is no mark in that column.
        categories = dict(plan.categories)
        if target.task == "classification":
            categories[target.columns[0]] = [str(value) for value in np.unique(target.y)]
        for name, values in categories.items():
            kind: ColumnKind = "classes" if name in target.columns else "categories"
            missing = tuple(mark for mark in marks if mark not in values)
            columns[name] = Column(name, kind, tuple(values), missing)

        if plan.rows is not None and plan.rows != ROW_COLUMN:
            columns[plan.rows] = Column(plan.rows, "numbers", missing=marks)
        names = [name for name in (self.request.on, self.request.groups) if name is not None]
        return Schema(tuple(columns.values())).with_names(names, marks)

    @property
    def record(self) -> Settings:
        """The columns, the plan, the views and the files, as a model file records them."""
        return {
            "columns": [name for name in self.plan.columns if name != ROW_COLUMN],
            "plan": asdict(self.plan),
            "views": self.views,
            "lacking": self.lacking,
            "files": self.files,
        }


def read_training_table(
    request: FitRequest, default_kernels: list[Kernel] | None = None
) -> TrainingTable:
    """Read the files of a request and return the training data, checked.

    Parameters
    ----------
    request : FitRequest
    default_kernels : list of Kernel or None
        The kernels of views that name none; None for those of the task and the method.
    """
    # 1. The first table and its target. Cells of the target that cannot be used are refused in step
    # 5, together with those of other columns.
    raw = _read_first_table(request)
    # Rows that are left out in step 5 must not renumber the rows below them.
    raw.index = range(len(raw))
    _check_view_files(raw, request)
    target, target_faults = _read_target_or_faults(raw, request)
    request = with_method(request, target.task)

    # 2. The columns of other files.
    excluded = _excluded_columns(request, target)
    joined = None
    if request.on is not None:
        joined = join_tables(raw, request.views, request.on, request.path, excluded)
        if not joined.files:
            raise ValueError(
                "--on joins files to the table: name one with --view name=FILE, or leave --on out."
            )
        raw = joined.table

    # 3. The columns that can be learned from, and what they hold.
    kinds, index_columns = _kinds_of_columns(raw, request, excluded)
    rows_column = request.rows
    if rows_column is not None and not request.kernels:
        raise ValueError(
            "--rows numbers the rows of kernel matrices: give one with --kernel, or leave --rows"
            " out."
        )
    if rows_column is None and request.kernels:
        rows_column = ROW_COLUMN
        raw[ROW_COLUMN] = np.arange(len(raw))

    # 4. The views and the plan.
    if default_kernels is None:
        default_kernels = layout.usual_kernels(target.task, request.method)
    views, notes = _choose_views(request, kinds, default_kernels, joined, excluded)
    notes += [f"column {name!r} is left out: it numbers the rows." for name in index_columns]
    if joined is not None:
        notes += [*joined.notes, *joined.unused_rows]
    plan = layout.make_plan(views, kinds, raw, rows_column, request)
    notes += _note_on_unused_columns(request, kinds, plan)

    # 5. The rows with a view, their cells as numbers and texts, and the kernels on them.
    file_rows = rows_with_views(plan, raw, request.on, request.path, request.drop_empty)
    if len(file_rows) < len(raw):
        raw = raw.iloc[file_rows]
        target, target_faults = _read_target_or_faults(raw, request)
    table, faults = read_or_faults(lambda: plan.table(raw, request.path), None)
    tables.refuse(locate_faults([*target_faults, *faults], raw, joined), request.path)
    _check_missing_views(request, plan, table)
    layout.check_lengths(views, table, request.path, raw.index)
    kernels = _make_kernels(request, plan, views, table, raw)

    # 6. The groups, the test rows, and what the model file and the report say of the data.
    described_views = _describe_views(views, joined)
    groups = _read_groups(raw, request)
    lacking = {}
    for name, view in described_views.items():
        lacking[name] = int(raw[view["columns"]].isna().all(axis=1).sum())
    training_rows, test_rows = split_off(request, target.task, target.y, groups)
    feature_columns = [name for name in plan.columns if name != plan.rows]
    identity = table
    if request.on is not None:
        identity = row_names(raw, request.on)
    return TrainingTable(
        request=request,
        table=table,
        file_rows=file_rows,
        fingerprints=tables.fingerprints(identity),
        target=target,
        groups=groups,
        training_rows=training_rows,
        test_rows=test_rows,
        plan=plan,
        kernels=kernels,
        views=described_views,
        lacking=lacking,
        files=_files_by_use(request, joined),
        notes=notes,
        warnings=_warnings_of_copies(table, feature_columns, target),
    )


def _read_first_table(request: FitRequest) -> Any:
    """Return the table that is named first.

    The target, the names of the rows and the groups are read as they are written: 007 stays a text.
    """
    names = [name for name in (request.target, request.on, request.groups) if name is not None]
    return tables.read_table(request.path, dict.fromkeys(names, tables.MISSING_MARKS))


def _check_view_files(raw: ArrayOrTensor, request: FitRequest) -> None:
    """Refuse files of views without --on, and a target that only such a file has."""
    for text in request.views:
        _, path, _ = parse_file_view(text)
        if not os.path.isfile(path):
            continue
        if request.on is None:
            raise ValueError(
                f"--view {text}: {path} is a file; files are joined to {request.path} by a column"
                " that names the rows in each of them: name it with --on COLUMN."
            )
        target_names = _target_names(request, raw.columns)
        absent = {name for name in target_names if name not in raw.columns}
        if not absent:
            continue
        for name in sorted(absent & {*tables.read_table(path).columns}):
            raise ValueError(
                f"column {name!r} is in {path}, but the target must be in the first table, which is"
                f" {request.path}: write `kernelmosaic fit {path} --view {request.path}` with the"
                " other options."
            )


def _excluded_columns(request: FitRequest, target: Target) -> dict[str, str]:
    """Return the columns that are never learned from, in any file, each with what it is."""
    excluded = dict.fromkeys(tables.named_indices(request.path), "the index of the table")
    excluded |= dict.fromkeys(target.columns, "the target")
    roles = {
        "the event": request.event,
        "the row numbers": request.rows,
        "the names of the rows": request.on,
        "the groups": request.groups,
    }
    for role, column in roles.items():
        if column is not None:
            excluded[column] = role
    return excluded


def _kinds_of_columns(
    raw: ArrayOrTensor, request: FitRequest, excluded: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the kind of every usable column, and the columns that number the rows.

    Columns that number the rows are only looked for, and left out, where views are guessed: a view
    that the user names may read them.
    """
    columns = list(raw.columns)
    dropped: set[str] = set()
    for text in request.drop:
        patterns = layout.split_names(text, columns)
        dropped |= {*layout.match_columns(patterns, columns, f"--drop {text}")}
    usable = [name for name in columns if name not in excluded and name not in dropped]

    index_columns: list[str] = []
    if not request.names_views:
        index_columns = [name for name in usable if tables.looks_like_an_index(raw[name])]
    kinds = {name: tables.kind_of(raw[name]) for name in usable if name not in index_columns}
    return kinds, index_columns


def _note_on_unused_columns(request: FitRequest, kinds: Mapping[str, str], plan: Plan) -> list[str]:
    """Return a note on columns that no kernel reads, where views are named."""
    unused = [name for name in kinds if name not in plan.columns]
    names_kernels = request.names_views or bool(request.kernels)
    if not unused or not names_kernels:
        return []
    columns_are = "columns are"
    if len(unused) == 1:
        columns_are = "column is"
    use = f"A --view of them, such as name={unused[0]}, learns from them."
    return [
        f"{len(unused)} {columns_are} not used: {tables.list_names(unused, _MOST_NAMES)}. {use}"
    ]


def _check_missing_views(request: FitRequest, plan: Plan, table: Any) -> None:
    """Refuse rows that lack a view if the method cannot learn from them."""
    lacks_views = any(table[list(group)].isna().all(axis=1).any() for group in plan.groups)
    needs_all_views = request.method in ("bilinear", "discriminant")
    leaves_views_empty = plan.impute in ("none", "views")
    if needs_all_views and leaves_views_empty and lacks_views:
        raise ValueError(
            f"--method {request.method}: some rows lack a view, which mkl, localized, rmkl and"
            " ridge alone learn from; --impute median fills it in."
        )


def _make_kernels(
    request: FitRequest, plan: Plan, views: Sequence[View], table: Any, raw: ArrayOrTensor
) -> list[Any]:
    """Return the kernels of the views, then those given as matrices.

    Each is a tuple of name, kernel and columns. Repeated names are refused, and row numbers that
    the matrices do not have.
    """
    given_kernels = layout.read_given_kernels(request.kernels, plan, len(raw))
    if given_kernels:
        n_samples = len(given_kernels[0][1].K)
        layout.check_row_numbers(table, plan, n_samples, request.path, raw.index)
    kernels = [*layout.lay_kernels(plan, views), *given_kernels]
    names = [name for name, *_ in kernels]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ValueError(f"two kernels are called {repeated[0]!r}; give one of them another name.")
    return kernels


def _files_by_use(request: FitRequest, joined: Joined | None) -> Settings:
    """Return the files that were read, by their use, and the column that joins them."""
    view_files = {}
    if joined is not None:
        view_files = {name: str(path) for name, path in joined.files.items()}
    kernel_files = {}
    for text in request.kernels:
        name, _, path = text.partition("=")
        kernel_files[name] = path
    return {
        "table": str(request.path),
        "on": request.on,
        "views": view_files,
        "kernels": kernel_files,
    }


def _warnings_of_copies(table: Any, columns: Sequence[str], target: Target) -> list[str]:
    """Return a warning for every column that duplicates or recodes the target."""
    copies = copies_of_target(table, columns, target)
    return [
        f"column {name!r} duplicates or recodes the target {of!r} in every row that has it: the"
        f" score means nothing if it is not known before the target is; --drop {name!r} leaves it"
        " out."
        for name, of in copies.items()
    ]


def row_names(raw: ArrayOrTensor, on: str) -> ArrayOrTensor:
    """Return a table of one column, the names of the rows as texts.

    A file may hold the names as numbers and another one as texts: both give the same texts.
    """
    return tables.texts_of(raw[on]).to_frame()


# Tables joined by a column that names their rows --------------------------------------------------


@dataclass(frozen=True)
class Joined:
    """A table, and the columns of other files beside those it has.

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
        The file of each joined column, and the name of the column in that file.
    notes : list of str
        Columns that were left out, and why.
    lacking_rows : list of str
        For every file that lacks rows of the table, how many rows and the name of one.
    unused_rows : list of str
        For every file with rows that the table does not have, how many rows and the name of one.
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
    views: Sequence[str],
    on: str,
    where: object,
    excluded: Mapping[str, str],
    schema: Schema = NO_SCHEMA,
) -> Joined:
    """Return a table joined with the files of views, by a column that all of them have.

    A row that a file does not have lacks the view of the file. Columns of a file that are called
    like one of `excluded` are left out, and so are those that name or number the rows.

    Parameters
    ----------
    raw : DataFrame
        The first table.
    views : sequence of str
        Texts such as ``name=FILE:KERNEL``, or ``name=PATTERN:KERNEL`` for columns of the first
        table.
    on : str
        The column that names the rows. Names are compared as they are written.
    where : object
        What errors call the first table.
    excluded : mapping of str to str
        Columns that are never learned from, each with what it is.
    schema : Schema
        How columns of the files are read, as far as they are in it.
    """
    import pandas as pd

    tables.require(raw, [on], where)
    keys = _keys_of_rows(raw[on], on, where)
    table_columns = list(raw.columns)
    joined = Joined(raw, on, [], {}, {}, [], [], [])
    for text in views:
        name, path, kernel = parse_file_view(text)
        is_file = os.path.isfile(path)
        is_repeated = any(spec.name == name for spec in joined.views)
        if is_repeated and (name in joined.files or is_file):
            raise ValueError(
                f"--view {text}: there are two views of the name {name!r}; write name=FILE."
            )

        # A view of columns of the first table.
        view_columns: list[str] = []
        if not is_file:
            view_columns = _columns_of_table(text, table_columns, excluded)
        if view_columns:
            spec = layout.read_options([text], table_columns)[0]
            joined.views.append(replace(spec, patterns=tuple(view_columns)))
            continue
        if "=" in text and not os.path.exists(path) and not path.suffix:
            hint = tables.suggest_name(str(path), table_columns)
            if not hint:
                hint = f" there are {tables.list_names(table_columns, 6)}."
            raise ValueError(
                f"--view {text}: {path} is not a file, and {where} has no such column;{hint}"
            )

        # A view of a file.
        view_table = schema.of_view(name).with_names([on], tables.MISSING_MARKS).read(path)
        tables.require(view_table, [on], path)
        view_keys = _keys_of_rows(view_table[on], on, path)
        lacking, unused = _compare_rows(text, keys, view_keys, on, where)
        joined.lacking_rows.extend(lacking)
        joined.unused_rows.extend(unused)
        columns, notes = _columns_of_file(view_table, view_keys, on, path, excluded)
        joined.notes.extend(notes)
        if not columns:
            raise ValueError(
                f"--view {text}: {path} has no column to learn from beside {on!r} and the target."
            )
        joined_names = [f"{name}.{column}" for column in columns]
        for column, joined_name in zip(columns, joined_names, strict=True):
            if joined_name in raw.columns:
                raise ValueError(
                    f"--view {text}: column {column!r} of {path} is called '{joined_name}' once"
                    f" it is joined, and {where} has a column of this name; rename one of them, or"
                    " give the view another name."
                )
            joined.sources[joined_name] = (path, column)
        features = view_table[columns].set_axis(view_keys)
        features.columns = joined_names
        raw = pd.concat([raw, features.reindex(keys).set_axis(raw.index)], axis=1)
        joined.files[name] = path
        joined.views.append(ViewSpec(name, tuple(joined_names), kernel, f"--view {text}"))
    return replace(joined, table=raw)


def _columns_of_table(text: str, columns: Sequence[str], excluded: Mapping[str, str]) -> list[str]:
    """Return the columns of the first table that a view names; none if it names a file."""
    if "=" not in text:
        return []
    spec = layout.read_options([text], columns)[0]
    for pattern in map(str.strip, spec.patterns):
        if pattern in columns and pattern in excluded:
            raise ValueError(
                f"--view {text}: column {pattern!r} is {excluded[pattern]}, never learned from;"
                " leave it out."
            )
    usable = [column for column in columns if column not in excluded]
    matches = [layout.matching(pattern, usable) for pattern in spec.patterns]
    unmatched = [
        pattern for pattern, names in zip(spec.patterns, matches, strict=True) if not names
    ]
    if unmatched and any(matches):
        # This raises: a view that names some columns of the table is no file.
        layout.match_columns(unmatched, usable, f"--view {text}")
    columns_of_view: dict[str, None] = {}
    for names in matches:
        columns_of_view |= dict.fromkeys(names)
    return list(columns_of_view)


def _compare_rows(
    text: str, keys: Sequence[str], view_keys: Sequence[str], on: str, where: object
) -> tuple[list[str], list[str]]:
    """Compare the names of rows of the first table and of a view's file.

    Returns
    -------
    lacking, unused : list of str
        A note on the rows of the table that the file lacks, and one on the rows of the file that
        the table lacks; empty where there are no such rows.
    """
    name, path, _ = parse_file_view(text)
    known_keys = set(keys)
    unused_keys = [key for key in view_keys if key not in known_keys]
    known_view_keys = set(view_keys)
    lacking_keys = [key for key in keys if key not in known_view_keys]
    hint = _hint_at_spelling(unused_keys, path, lacking_keys, where)
    if len(unused_keys) == len(view_keys):
        raise ValueError(
            f"--view {text}: none of its {len(view_keys)} rows has a value of column {on!r} that"
            f" {where} has, such as {keys[0]!r}; its first is {view_keys[0]!r}.{hint}"
        )
    lacking = []
    if lacking_keys:
        of_rows = f"{len(lacking_keys)} of {len(keys)} rows of {where}"
        lacking = [
            f"view {name!r}: {of_rows} lack it: {path} has no {on} {lacking_keys[0]!r}.{hint}"
        ]
    unused = []
    if unused_keys:
        of_rows = f"{len(unused_keys)} of {len(view_keys)} rows of {path}"
        unused = [f"{of_rows} are not used: {where} has no {on} {unused_keys[0]!r}.{hint}"]
    return lacking, unused


def _columns_of_file(
    view_table: Any, view_keys: Sequence[str], on: str, path: Path, excluded: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return the usable columns of a view's file, and a note on each of the others."""
    excluded = dict.fromkeys(tables.named_indices(path), "the index of the table") | {**excluded}
    columns = []
    notes = []
    for column in view_table.columns.drop(on):
        reason = _reason_to_leave_out(view_table[column], view_keys, excluded)
        if reason:
            notes.append(f"column {column!r} of {path} is left out: {reason}.")
        else:
            columns.append(column)
    return columns, notes


def _reason_to_leave_out(column: Any, view_keys: Sequence[str], excluded: Mapping[str, str]) -> str:
    """Return why a column of a file is not learned from; empty if it is."""
    if column.name in excluded:
        return f"it has the name of {excluded[column.name]}"
    if [str(value) for value in column] == list(view_keys):
        return "it repeats the names of the rows"
    if tables.looks_like_an_index(column):
        return "it numbers the rows"
    return ""


def _keys_of_rows(column: Any, on: str, where: object) -> list[str]:
    """Return the names of rows as texts; refuse names that are missing or repeated."""
    keys = list(tables.texts_of(column))
    counts = Counter(keys)
    repeated = [key for key, count in counts.items() if count > 1 and key is not None]
    if None in keys or repeated:
        example = repeated[0] if repeated else "nothing"
        raise ValueError(
            f"{where}: column {on!r} has {example!r} more than once, or is empty; --on needs a"
            " column that names every row."
        )
    return keys


def _hint_at_spelling(
    unused: Sequence[str], path: Path, lacking: Sequence[str], where: object
) -> str:
    """Return a sentence on a row that may have two spellings; empty if there is none.

    Parameters
    ----------
    unused : sequence of str
        Names that only the file at `path` has.
    path : Path
    lacking : sequence of str
        Names that only the first table, called `where`, has.
    where : object
    """
    spellings = {_plain_spelling(key): key for key in lacking}
    for key in unused:
        spelling = _plain_spelling(key)
        if spelling in spellings:
            names = f"{key!r} of {path} and {spellings[spelling]!r} of {where}"
            return f" Names are compared as they are written: {names} differ."
    return ""


def _plain_spelling(name: str) -> str:
    """Return a name as programs write it that take it for a number.

    007, 7.0 and " 7" become 7; other names are put into lower case.
    """
    text = name.strip().casefold()
    integer, point, decimals = text.partition(".")
    has_only_zeros = decimals != "" and not decimals.strip("0")
    if point == "" or has_only_zeros:
        text = integer
    return text.lstrip("0") or "0"


def parse_file_view(text: str) -> tuple[str, Path, str]:
    """Return name, path and kernel of ``name=FILE:KERNEL``.

    A view without a name has that of its file; one without a kernel has the empty text.
    """
    name, equals, source = text.partition("=")
    if not equals:
        source = text
    path = source
    kernel = ""
    # A colon may be part of a path, as after the letter of a drive.
    if ":" in source and not os.path.isfile(source):
        path, _, kernel = source.rpartition(":")
    view_name = name.strip() if equals else layout.safe_name(Path(path).stem)
    return view_name, Path(path), kernel


def locate_faults(
    faults: Sequence[tables.Fault], raw: ArrayOrTensor, joined: Joined | None
) -> list[tables.Fault]:
    """Return faults that say where their cells stand in the files.

    Parameters
    ----------
    faults : sequence of Fault
        Their rows are counted within `raw`.
    raw : DataFrame
        Its index is the rows of the file.
    joined : Joined or None
        Faults of joined columns name the file, the column in it, and the name of the row.
    """
    located = []
    for fault in faults:
        description = fault.what
        remedy = fault.remedy
        if joined is not None:
            remedy = remedy.replace("--impute median", "--impute views")
            if fault.column in joined.sources:
                path, column = joined.sources[fault.column]
                key = str(raw[joined.on].iloc[fault.row])
                description = f" (column {column!r} of {path}, {joined.on} {key!r}){description}"
        file_row = int(raw.index[fault.row])
        located.append(replace(fault, row=file_row, what=description, remedy=remedy))
    return located


def rows_with_views(
    plan: Plan, raw: ArrayOrTensor, on: str | None, where: object, drop_empty: bool
) -> Indices:
    """Return the rows of a table that have a view, by their position.

    With `drop_empty` a note on stderr names the rows without any view; otherwise they are refused
    where rows may lack views at all, and returned where the cells of every row must be complete or
    are filled in.
    """
    all_rows = np.arange(len(raw))
    columns = [name for name in plan.columns if name in raw.columns]
    # Every row has the kernels of given matrices.
    if plan.rows is not None or not columns:
        return all_rows
    empty_rows = np.flatnonzero(raw[columns].isna().all(axis=1).to_numpy())
    may_lack_views = bool(plan.groups) or on is not None
    is_filled = plan.impute in ("median", "frequent")
    refuses = may_lack_views and not is_filled
    if len(empty_rows) == 0 or not (drop_empty or refuses):
        return all_rows

    # Rows are named by their number in the file and, where they have one, by their name.
    empty_names = []
    for row in empty_rows:
        number = f"row {int(raw.index[row]) + 1}"
        if on is None:
            empty_names.append(number)
        else:
            empty_names.append(f"{on} {str(raw[on].iloc[row])!r} ({number})")
    listed = tables.list_names(empty_names, _MOST_NAMES)
    count = f"{len(empty_rows)} of {len(raw)} rows"
    if len(empty_rows) == len(raw):
        raise ValueError(
            f"{where}: none of its rows appears in a view, such as {listed.partition(', ')[0]}."
        )
    if not drop_empty:
        raise ValueError(
            f"{where}: {count} appear in no view: {listed}. Leave them out with --drop-empty, or"
            " add them to a view."
        )
    say(f"{count} are left out, which appear in no view: {listed}")
    return np.setdiff1d(all_rows, empty_rows)


# The target ---------------------------------------------------------------------------------------


def read_or_faults(read: Callable[[], T], default: T) -> tuple[T, list[tables.Fault]]:
    """Return the result of `read` and no faults, or the default and the faults."""
    try:
        return read(), []
    except tables.BadCells as error:
        return default, error.faults


def _read_target_or_faults(
    raw: ArrayOrTensor, request: FitRequest
) -> tuple[Target, list[tables.Fault]]:
    """Return the target, or one without values and the faults of its cells."""
    columns = tuple(_target_names(request, raw.columns))
    without_values = Target(request.task or "classification", columns, np.empty(0))
    return read_or_faults(lambda: read_target(raw, request), without_values)


def _target_names(request: FitRequest, columns: Collection[str]) -> list[str]:
    """Return all names that the columns of the target may have.

    A comma in --target may be part of a name or stand between two names: both readings are listed.
    """
    target = request.target or ""
    names = [*layout.split_names(target, columns), target, request.event or ""]
    return [_as_column(name, columns) for name in names if name]


def _as_column(name: str, columns: Collection[str]) -> str:
    """Return a name without the spaces around it, unless a column has it with them."""
    return name if name in columns else name.strip()


def target_values(
    raw: ArrayOrTensor, task: TaskName, columns: Sequence[str], where: object
) -> AnyArray:
    """Return the values of a target, one row per sample.

    Returns
    -------
    ndarray
        Of a regression, numbers of shape (n,); of several labels, zeros and ones of shape
        (n, labels); of survival, shape (n, 2), the event and the time; else classes of shape (n,).
    """
    if task == "regression":
        return tables.numbers(raw, columns[0], where)
    if task == "multi-label":
        return tables.indicators(raw, columns, where).astype(int)
    if task == "survival":
        events = tables.indicators(raw, columns[1:], where)[:, 0]
        times = tables.numbers(raw, columns[0], where)
        return np.column_stack([events, times])
    return tables.labels_of(raw[columns[0]])


def read_target(raw: ArrayOrTensor, request: FitRequest) -> Target:
    """Return the target of a request; a task that is not given is guessed."""
    name = request.target
    where = request.path
    if request.event is not None or request.task == "survival":
        return _read_survival(raw, request)
    if request.task == "one-class":
        if name is None:
            return Target("one-class", (), np.zeros(len(raw)))
        # The column is only left out of the features, but must be complete like any target.
        tables.complete_column(raw, name, where)
        return Target("one-class", (name,), np.zeros(len(raw)))
    if name is None:
        last_columns = ", ".join(raw.columns[-8:])
        raise ValueError(
            f"name the column to predict with --target (… {last_columns}), or give --task"
            " one-class."
        )
    is_list = "," in name and name not in raw.columns
    if request.task == "multi-label" or is_list:
        names = layout.split_names(name, raw.columns)
        return _read_labels(raw, request, [_as_column(label, raw.columns) for label in names])

    target = tables.complete_column(raw, name, where)
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
    """Return times and events as a target; refuse times that the loss cannot learn from."""
    time = request.target
    event = request.event
    where = request.path
    if request.task not in (None, "survival"):
        raise ValueError(f"--event {event}: a {request.task} has no events; leave the option out.")
    if time is None or event is None:
        raise ValueError(
            "--task survival: name the column of times with --target and that of events with"
            " --event."
        )
    tables.complete_column(raw, time, where)
    y = target_values(raw, "survival", (time, event), where)

    # The censored loss, which is the default if --epsilon is given, takes logarithms of the times.
    takes_logarithms = request.loss == "censored"
    if request.loss is None:
        takes_logarithms = request.epsilon is not None
    if takes_logarithms:
        is_wrong = y[:, 1] <= 0
        condition = "be positive"
    else:
        is_wrong = y[:, 1] < 0
        condition = "not be negative"
    remedy = f"Times must {condition}: leave such rows out, or correct them."
    faults = tables.Fault.at(is_wrong, time, lambda row: f": the time {y[row, 1]:g}", remedy)
    tables.refuse(faults, where)
    if not y[:, 0].any():
        raise ValueError(
            f"{where}, column {event!r}: no event was observed; there is nothing to learn from."
        )
    return Target("survival", (time, event), y)


def _read_labels(raw: ArrayOrTensor, request: FitRequest, names: list[str]) -> Target:
    """Return several columns of zeros and ones as a target; refuse columns of one value."""
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
    """Return the number of every row's group, from 0; None without --groups."""
    name = request.groups
    if name is None:
        return None
    column, faults = read_or_faults(lambda: tables.complete_column(raw, name, request.path), raw)
    # With faults there is no column, only the default; `refuse` raises then.
    tables.refuse(locate_faults(faults, raw, None), request.path)
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
    default_kernels: list[Kernel],
    joined: Joined | None,
    excluded: Mapping[str, str],
) -> tuple[list[View], list[str]]:
    """Return the named views, or guessed ones, and notes on columns left out.

    There may be none if kernel matrices are given.
    """
    # 1. The views that are specified. Gene sets replace the view of the file whose columns they
    # divide.
    specs = _specified_views(request, kinds, joined)
    notes: list[str] = []
    if request.gene_sets is not None:
        gene_set_specs, notes = _gene_sets(request.gene_sets, kinds, joined)
        divided: set[str] = set()
        for spec in gene_set_specs:
            divided.update(spec.patterns)
        view_files = {} if joined is None else joined.files
        other_specs = []
        for spec in specs:
            is_divided = not divided.isdisjoint(spec.patterns)
            if not (spec.name in view_files and is_divided):
                other_specs.append(spec)
        specs = other_specs + gene_set_specs

    # 2. Columns and kernels of the views that are specified, or else guessed views.
    _refuse_excluded_columns(specs, excluded)
    if not specs and request.kernels:
        return [], []
    if not specs and not kinds:
        raise ValueError(f"{request.path} has no column to learn from beside the target.")
    if specs:
        views = layout.read_views(specs, kinds, default_kernels)
    else:
        views, notes = layout.guess_views(kinds, default_kernels)

    # 3. In ridge, one view alone has more kernels than each of several views.
    if request.method == "ridge" and len(views) == 1 and not request.kernels:
        [view] = views
        if list(view.kernels) == default_kernels:
            kernels = layout.usual_kernels("regression", "ridge", is_only_view=True)
            views = [replace(view, kernels=tuple(kernels))]
    return views, notes


def _specified_views(
    request: FitRequest, kinds: dict[str, str], joined: Joined | None
) -> list[ViewSpec]:
    """Return the views of the options --view, then those of the file of --views."""
    if joined is None:
        specs = layout.read_options(request.views, kinds)
    else:
        specs = _joined_views(joined, kinds)
    if request.view_file is None:
        return specs
    file_specs = layout.read_view_file(request.view_file)
    if joined is not None:
        # A joined view has the columns that the file gives to no other view.
        columns = list(kinds)
        taken: set[str] = set()
        for spec in file_specs:
            taken |= {*layout.match_columns(spec.patterns, columns, spec.where)}
        untaken = {name: kind for name, kind in kinds.items() if name not in taken}
        specs = _joined_views(joined, untaken)
    return [*specs, *file_specs]


def _refuse_excluded_columns(specs: Sequence[ViewSpec], excluded: Mapping[str, str]) -> None:
    """Refuse views that name a column that is never learned from."""
    for spec in specs:
        for pattern in map(str.strip, spec.patterns):
            if pattern in excluded:
                raise ValueError(
                    f"{spec.where}: column {pattern!r} is {excluded[pattern]}, never learned from;"
                    " leave it out."
                )


def _gene_sets(
    text: str, kinds: Mapping[str, str], joined: Joined | None
) -> tuple[list[ViewSpec], list[str]]:
    """Return a view for every gene set of two genes or more, and a note on the others.

    Only genes that are columns count.

    Parameters
    ----------
    text : str
        ``[VIEW=]FILE[:KERNEL]``, the value of --gene-sets. Without a view, genes are looked for in
        all of them.
    kinds : mapping of str to str
        The columns that can be learned from.
    joined : Joined or None
    """
    _, path, kernel = parse_file_view(text)
    columns_of_gene = _columns_of_genes(text, kinds, joined)
    groups = read_gmt(existing_file(path, "a .gmt file"))
    for gene in chain.from_iterable(groups.values()):
        columns = columns_of_gene.get(gene, [])
        if len(columns) > 1:
            where = " and ".join(columns)
            raise ValueError(
                f"--gene-sets {text}: gene {gene!r} is in {where}; name the view, such as"
                f" rna={path}."
            )
    try:
        gene_sets = by_group(groups, among=columns_of_gene, min_size=2)
    except ValueError:
        listed = tables.list_names([repr(gene) for gene in columns_of_gene], 6)
        raise ValueError(
            f"--gene-sets {text}: no set has two genes that are columns; the columns are"
            f" {listed or 'none'}."
        ) from None

    specs = []
    for name, _, genes in gene_sets:
        gene_columns = tuple(columns_of_gene[gene][0] for gene in genes)
        where = f"--gene-sets {text}"
        specs.append(ViewSpec(layout.safe_name(name), gene_columns, kernel or "gauss", where))
    n_left_out = len(groups) - len(gene_sets)
    if not n_left_out:
        return specs, []
    note = (
        f"{n_left_out} of {len(groups)} gene sets have fewer than two genes that are columns:"
        " left out."
    )
    return specs, [note]


def _columns_of_genes(
    text: str, kinds: Mapping[str, str], joined: Joined | None
) -> dict[str, list[str]]:
    """Return the columns of each gene; if --gene-sets names a view, those of the view.

    Joined columns are called ``view.gene``, other columns like the gene. The arguments are those of
    `_gene_sets`.
    """
    view, _, _ = parse_file_view(text)
    names_view = "=" in text
    sources = {} if joined is None else joined.sources
    columns_of_gene: dict[str, list[str]] = {}
    for column in kinds:
        gene = column
        if column in sources:
            _, gene = sources[column]
        if not names_view or column == f"{view}.{gene}":
            columns_of_gene.setdefault(gene, []).append(column)
    return columns_of_gene


def _joined_views(joined: Joined, usable: Mapping[str, str]) -> list[ViewSpec]:
    """Return the views of joined tables, those of files with their usable columns only.

    The view of a file without a usable column is left out. Views of columns of the first table are
    returned unchanged.
    """
    specs = []
    for spec in joined.views:
        if spec.name not in joined.files:
            specs.append(spec)
            continue
        columns = tuple(name for name in spec.patterns if name in usable)
        if columns:
            specs.append(replace(spec, patterns=columns))
    return specs


def _describe_views(views: list[View], joined: Joined | None) -> dict[str, dict[str, list[str]]]:
    """Return the columns, the kernels and the files of each view by its name.

    Views of one name, such as the columns of numbers and of strings of a view, are one view here.
    """
    sources = {} if joined is None else joined.sources
    described: dict[str, dict[str, list[str]]] = {}
    for view in views:
        entry = described.setdefault(view.name, {"columns": [], "kernels": [], "files": []})
        entry["columns"] += [column for column in view.columns if column not in entry["columns"]]
        entry["kernels"] += map(layout.label_of, view.kernels)
    for entry in described.values():
        paths = [str(sources[name][0]) for name in entry["columns"] if name in sources]
        entry["files"] = list(dict.fromkeys(paths))
    return described


# Test rows ----------------------------------------------------------------------------------------


def split_off(
    request: FitRequest, task: TaskName, y: AnyArray, groups: Indices | None
) -> tuple[Indices, Indices]:
    """Return the rows to learn from and the test rows, both in ascending order.

    Test rows are drawn at random: a share of each class, or groups as a whole if there are groups.
    """
    all_rows = np.arange(len(y))
    if request.test == 0:
        return all_rows, all_rows[:0]
    _check_split(request, task, y)
    kind = ShuffleSplit
    if task == "classification":
        kind = StratifiedShuffleSplit
    if groups is not None:
        kind = GroupShuffleSplit
    splitter = kind(1, test_size=request.test, random_state=request.seed or 0)
    training_rows, test_rows = (np.sort(rows) for rows in next(splitter.split(y, y, groups)))
    if task == "classification":
        absent_classes = np.setdiff1d(y, y[training_rows])
        if len(absent_classes):
            raise ValueError(
                f"--test {request.test:g} holds out every group with class"
                f" {str(absent_classes[0])!r}; give a smaller share, or another --seed."
            )
    return training_rows, test_rows


def _check_split(request: FitRequest, task: TaskName, y: AnyArray) -> None:
    """Refuse a share of test rows that leaves too few rows to learn from, or to test by.

    Two rows must be left to learn from; in a classification, both parts need a row of every class.
    """
    option = f"--test {request.test:g}"
    n = len(y)
    n_test = math.ceil(request.test * n)
    n_training = n - n_test
    n_needed = 2
    n_needed_in_words = "two"
    if task == "classification":
        values, counts = np.unique(y, return_counts=True)
        if counts.min() < 2:
            raise ValueError(
                f"{option}: class {str(values[counts.argmin()])!r} of column {request.target!r} has"
                " one row, which cannot be both learned from and held out; leave the row out, or"
                " hold out none with --test 0."
            )
        n_needed = len(values)
        n_needed_in_words = f"one of each of the {len(values)} classes"

    if task == "classification" and n_test < n_needed:
        fault = f"holds out {n_test}"
    elif n_training < n_needed:
        fault = f"leaves, to learn from, {n_training}"
        # Of two parts of one size, the message names the test rows.
        if n_training == n_test:
            fault = f"holds out {n_test}"
    else:
        return
    remedy = "0, for none"
    if 2 * n_needed < n:
        # 0.9 is the largest share that --test takes.
        remedy = f"{n_needed / n:.3f} to {min(0.9, 1 - n_needed / n):.3f}"
    raise ValueError(
        f"{option} {fault} of {n} rows, but at least {n_needed_in_words} must be there; give"
        f" {remedy}."
    )


# Columns that are the target under another name or in another code --------------------------------

#: The absolute correlation of ranks above which two columns have the same order. Noise of about a
#: thousandth of the spread leaves ranks correlated this much.
_SAME_ORDER = 1 - 1e-6

#: Numbers stand for classes if those of each class differ by at most this share of the smallest
#: difference between two classes. Chosen by hand: measurement noise is smaller, and chance seldom.
_LARGEST_SPREAD = 1e-3

#: The largest difference, in units of the target's range, that rounding leaves between the target
#: and a multiple of it plus a constant. Chosen by hand, far above the 2e-16 of double precision.
_ROUNDING = 1e-9

#: With fewer rows than this, a column is a multiple of the target plus a constant by coincidence.
#: Chosen by hand, like the next two: two rows are always on a line, and few rows often in order.
_LEAST_ROWS_ON_A_LINE = 5

#: With fewer different values of the target than this, a column has its order by coincidence.
_LEAST_VALUES_IN_ORDER = 10

#: Per value of a target with few values, the rows that a column must have: with fewer it goes with
#: the target by coincidence.
_LEAST_ROWS_OF_A_VALUE = 2

#: Rows in which the order of a column is compared with that of the target, before all rows are, and
#: the absolute correlation of ranks in these rows below which the others are not looked at. Chosen
#: by hand; a column in the order of the target has a correlation near one in any rows.
_N_SCREENING_ROWS = 50
_LEAST_SCREENING_CORRELATION = 0.8

#: With fewer rows than this, the order of a column is not compared: two rows are always in the
#: order of the target or in the reverse one.
_LEAST_SCREENING_ROWS = 3


def copies_of_target(table: MatrixLike, columns: Sequence[str], target: Target) -> dict[str, str]:
    """Return the columns that duplicate or recode a target, each with its target.

    Only rows in which the column has a value count. A column is a copy of classes if its values and
    the classes correspond one to one, up to differences that are small beside those between
    classes. It is a copy of a quantity if the quantity is a multiple of it plus a constant, or if
    both have the same order.
    """
    import pandas as pd

    copies: dict[str, str] = {}
    y = target.y
    if target.task == "survival":
        y = y[:, ::-1]  # the times, then the events, as in `target.columns`
    for name, values_of_target in zip(target.columns, np.atleast_2d(y.T), strict=False):
        is_time = target.task == "survival" and name == target.columns[0]
        is_quantity = target.task == "regression" or is_time
        # Rows with different values of the target, evenly from the smallest to the largest value.
        first_rows = np.unique(values_of_target, return_index=True)[1]
        places = np.linspace(0, len(first_rows) - 1, _N_SCREENING_ROWS).astype(int)
        screening_rows = first_rows[np.unique(places)]
        for column in columns:
            if column in copies:
                continue
            values = table[column].to_numpy()
            is_present = ~pd.isna(values)
            if values.dtype.kind in "iu":
                values = values.astype(np.float64)
            if is_quantity:
                rows = screening_rows[is_present[screening_rows]]
                is_copy = _may_have_order(values, values_of_target, rows) and _is_same_quantity(
                    values[is_present], values_of_target[is_present]
                )
            else:
                is_copy = _is_same_code(values[is_present], values_of_target[is_present])
            if is_copy:
                copies[column] = name
    return copies


def _is_same_code(values: AnyArray, target: AnyArray) -> bool:
    """Return whether the values of a column correspond one to one to classes."""
    import pandas as pd

    classes, class_names = pd.factorize(target)
    n_classes = len(class_names)
    if n_classes < 2 or len(values) < _LEAST_ROWS_OF_A_VALUE * n_classes:
        return False
    if values.dtype.kind == "f":
        return _are_apart(values, classes)
    codes, kinds = pd.factorize(values)
    n_pairs = len(np.unique(codes * len(kinds) + classes))
    return len(kinds) == n_classes == n_pairs


def _are_apart(values: AnyArray, classes: AnyArray) -> bool:
    """Return whether numbers lie close together in classes, and far apart otherwise.

    Parameters
    ----------
    values : ndarray of shape (n,)
    classes : ndarray of shape (n,)
        The number of the class of each value, from 0; every class has a value.
    """
    counts = np.bincount(classes)
    ordered = values[np.argsort(classes, kind="stable")]
    starts = np.cumsum(counts) - counts
    low = np.minimum.reduceat(ordered, starts)
    high = np.maximum.reduceat(ordered, starts)
    order = np.argsort(low)
    gap = (low[order][1:] - high[order][:-1]).min()
    return bool(gap > 0 and (high - low).max() <= _LARGEST_SPREAD * gap)


def _may_have_order(values: AnyArray, target: AnyArray, rows: AnyArray) -> bool:
    """Return whether numbers have about the order of the target in some rows.

    The reverse order counts, too. This is a quick test before `_is_same_quantity`: it is True if
    the rows are too few to tell, and False if the values are no numbers.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Numbers are floating-point numbers; only those of `rows` need be present.
    target : ndarray of shape (n,)
    rows : ndarray of int
        The rows that are compared, each with another value of the target.
    """
    if values.dtype.kind != "f":
        return False
    if len(rows) < _LEAST_SCREENING_ROWS:
        return True
    ranks = np.argsort(np.argsort(values[rows]))
    target_ranks = np.argsort(np.argsort(target[rows]))
    correlation = np.corrcoef(ranks, target_ranks)[0, 1]
    return bool(abs(correlation) > _LEAST_SCREENING_CORRELATION)


def _is_same_quantity(values: AnyArray, target: AnyArray) -> bool:
    """Return whether a target is linear in the values, or has their order."""
    if len(values) < _LEAST_ROWS_ON_A_LINE or np.ptp(values) == 0 or np.ptp(target) == 0:
        return False

    # 1. Least squares of the target on the values, both centred and divided by their range.
    x = (values - values.mean()) / np.ptp(values)
    t = (target - target.mean()) / np.ptp(target)
    if np.max(np.abs(t - x * (x @ t) / (x @ x))) < _ROUNDING:
        return True

    # 2. A target of few values has the order of any column that tells the values apart: the column
    # must tell them apart as a code does.
    distinct_targets, codes = np.unique(target, return_inverse=True)
    if len(distinct_targets) < _LEAST_VALUES_IN_ORDER:
        has_enough_rows = len(values) >= _LEAST_ROWS_OF_A_VALUE * len(distinct_targets)
        return has_enough_rows and _are_apart(values, codes)

    # 3. The order of all rows.
    from scipy.stats import rankdata

    ranks = rankdata(values)
    target_ranks = rankdata(target)
    if abs(np.corrcoef(ranks, target_ranks)[0, 1]) > _SAME_ORDER:
        return True

    # 4. Noise puts rows of equal targets in any order. They count as ordered like the values, for
    # an ascending and for a descending column.
    for sign in (1, -1):
        order = np.lexsort((sign * values, target))
        if abs(np.corrcoef(ranks[order], np.arange(len(order)))[0, 1]) > _SAME_ORDER:
            return True
    return False
