"""From columns to what kernels read: a fitted-once plan, and the pipeline it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelmosaic.cli._views import View
from kernelmosaic.kernels import Kernel, Precomputed

#: The column of row numbers that precomputed kernels read, where the user names none.
ROW_COLUMN = "(row number)"


@dataclass(frozen=True)
class Plan:
    """Which columns are used, and how.

    Parameters
    ----------
    numbers : tuple of str
        Columns to be standardised.
    categories : dict
        Columns to be written as zeros and ones, with their values.
    texts : tuple of str
        Columns passed on as they are.
    rows : str or None
        The column of row numbers of given matrices.
    """

    numbers: tuple[str, ...]
    categories: dict[str, list[str]]
    texts: tuple[str, ...]
    rows: str | None = None

    @property
    def columns(self) -> list[str]:
        """All columns the pipeline reads."""
        return [*self.numbers, *self.categories, *self.texts, *([self.rows] if self.rows else [])]

    def positions(self, names: Sequence[str]) -> list[int]:
        """Return where the given columns stand in what the kernels get."""
        places: dict[str, list[int]] = {name: [i] for i, name in enumerate(self.numbers)}
        start = len(self.numbers)
        for name, values in self.categories.items():
            places[name] = list(range(start, start + len(values)))
            start += len(values)
        for i, name in enumerate([*self.texts, *([self.rows] if self.rows else [])]):
            # A column of strings may be a category of one view and a sequence of another.
            places[f"text:{name}"] = [start + i]
        return [place for name in names for place in places[name]]

    def transformer(self) -> Any:
        """Return the step that makes it so; raw tables, columns in any order, go in."""
        from sklearn.compose import ColumnTransformer
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        steps: list[tuple[str, Any, list[str]]] = []
        if self.numbers:
            steps.append(("numbers", StandardScaler(), list(self.numbers)))
        if self.categories:
            values = [np.array(v, dtype=object) for v in self.categories.values()]
            # The values are fixed here: a fold that lacks one must still give the same columns.
            encoder = OneHotEncoder(categories=values, handle_unknown="ignore", sparse_output=False)
            steps.append(("categories", encoder, list(self.categories)))
        if self.texts:
            steps.append(("texts", "passthrough", list(self.texts)))
        if self.rows:
            steps.append(("rows", "passthrough", [self.rows]))
        return ColumnTransformer(steps)

    def table(self, raw: Any, where: Any) -> Any:
        """Return the columns of a raw table that the pipeline reads, checked, as numbers and texts."""
        import pandas as pd

        from kernelmosaic.cli._pandas_columns import numbers, require, texts

        require(raw, self.columns, where)
        figures = [*self.numbers, *([self.rows] if self.rows else [])]
        parts = [numbers(raw, figures, where), texts(raw, [*self.categories, *self.texts], where)]
        table = pd.concat(parts, axis=1)
        return table.loc[:, ~table.columns.duplicated()]


def make_plan(views: Sequence[View], kinds: Mapping[str, str], raw: Any, rows: str | None, where: Any) -> Plan:
    """Return the plan that serves the views, or raise naming a column whose content its kernel cannot read."""
    figures: dict[str, None] = {}
    categories: dict[str, list[str]] = {}
    strings: dict[str, None] = {}
    for view in views:
        for column in view.columns:
            if view.specs[0].reads_sequences:
                if kinds[column] == "numbers":
                    raise ValueError(
                        f"{where}, column {column!r} holds numbers, but {view.specs[0].label} of --view {view.name} "
                        "reads strings; linear, poly2 and gauss read numbers."
                    )
                strings[column] = None
            elif kinds[column] == "numbers":
                figures[column] = None
            elif kinds[column] == "categories":
                categories[column] = sorted({str(value) for value in raw[column].dropna()})
            else:
                raise ValueError(
                    f"{where}, row 1, column {column!r}: {raw[column].iloc[0]!r} is not a number, which the kernel "
                    f"{view.specs[0].label} of --view {view.name} needs; spectrum(3) and wd(5) read strings."
                )
    return Plan(tuple(figures), categories, tuple(strings), rows)


def lay_kernels(plan: Plan, views: Sequence[View]) -> list[tuple[str, Kernel, list[int]]]:
    """Return the kernels of the views by name, with the columns they read of what the plan's transformer gives."""
    kernels = []
    for view in views:
        for spec in view.specs:
            names = [f"text:{c}" for c in view.columns] if spec.reads_sequences else list(view.columns)
            columns = plan.positions(names)
            if spec.word == "correlation" and len(columns) < 2:
                raise ValueError(f"--view {view.name}: correlation needs at least two columns.")
            kernels += [(f"{view.name}:{label}", kernel, columns) for label, kernel in spec.kernels]
    return kernels


def check_lengths(views: Sequence[View], table: Any, where: Any) -> None:
    """Refuse strings of different lengths where a kernel compares them place by place."""
    for view in views:
        label = next((spec.label for spec in view.specs if spec.word == "wd"), None)
        for column in view.columns if label else ():
            lengths = table[column].str.len().to_numpy()
            odd = int(np.argmax(lengths != lengths[0]))
            if odd:
                raise ValueError(
                    f"{where}, row {odd + 1}, column {column!r}: {lengths[odd]} letters, but row 1 has {lengths[0]}, "
                    f"and {label} of --view {view.name} compares letters at the same place; pad or cut them to one "
                    "length, or use spectrum(3)."
                )


def check_row_numbers(table: Any, plan: Plan, n: int, where: Any) -> None:
    """Refuse a column of row numbers that points outside matrices of n samples."""
    if plan.rows is None or plan.rows == ROW_COLUMN:
        return
    numbers = table[plan.rows].to_numpy()
    wrong = (numbers < 0) | (numbers >= n) | (numbers != np.floor(numbers))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{where}, row {row + 1}, column {plan.rows!r}: {numbers[row]:g} is no row of the kernel matrices, whose "
            f"{n} are numbered from 0 to {n - 1}; --rows names the column of these numbers."
        )


def read_given_kernels(given: Sequence[str], plan: Plan, n_rows: int) -> list[tuple[str, Any, list[int]]]:
    """Return the kernels written as ``name=FILE``, checked to be square, symmetric and positive semi-definite."""
    kernels: list[tuple[str, Any, list[int]]] = []
    for text in given:
        name, path, matrix = read_named_matrix(text)
        if plan.rows == ROW_COLUMN and matrix.shape[0] == matrix.shape[1] != n_rows:
            raise ValueError(
                f"--kernel {text}: the matrix is {matrix.shape[0]} × {matrix.shape[1]}, but the table has {n_rows} "
                "rows; if it holds more samples, name the column of row numbers (from 0) with --rows."
            )
        kernel = Precomputed(matrix)
        try:
            kernel.fit(np.arange(len(matrix)))
        except ValueError as error:
            raise ValueError(f"--kernel {name}={path}: {error}") from None
        if kernels and len(kernels[0][1].K) != len(matrix):
            raise ValueError(
                f"--kernel {text}: the matrix has {len(matrix)} rows, that of {kernels[0][0]} has "
                f"{len(kernels[0][1].K)}; all must hold the same samples."
            )
        kernels.append((name, kernel, plan.positions([f"text:{plan.rows}"])))
    return kernels


def read_named_matrix(text: str) -> tuple[str, Path, Any]:
    """Return the name, path and matrix of ``name=FILE``."""
    from kernelmosaic.cli._pandas_tables import read_matrix

    name, equals, path = text.partition("=")
    if not equals or not name or not path or "__" in name or ":" in name:
        raise ValueError(f"--kernel {text}: write name=FILE, the name without '__' and ':'.")
    try:
        return name, Path(path), read_matrix(Path(path), name)
    except (OSError, ValueError) as error:
        raise ValueError(f"--kernel {text}: {error}") from None
