"""Schemas: the types of the columns of a file, which a model keeps to read every later file.

The type of a column does not follow from a file alone: codes such as 01 and 10 are texts beside
A17, and numbers without it. So the training file decides, and every later file is read in the same
way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

__all__ = ["Column", "Schema"]

ColumnKind = Literal["numbers", "categories", "texts", "names", "classes"]


@dataclass(frozen=True)
class Column:
    """How one column is read.

    Attributes
    ----------
    name : str
    kind : {"numbers", "categories", "texts", "names", "classes"}
        The kind of the cells. Numbers may be truth values, which count as one and zero; texts are
        sequences; names identify rows or groups. All but numbers are read as they are written: 007
        stays 007.
    categories : tuple of str
        The values of categories and classes in the table learned from, as they are written there.
    missing : tuple of str
        The texts that mark a missing cell.
    """

    name: str
    kind: ColumnKind
    categories: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether cells are read as they are written."""
        return self.kind != "numbers"


@dataclass(frozen=True)
class Schema:
    """How the columns of a table are read; those of joined files are called ``view.column``.

    Attributes
    ----------
    columns : tuple of Column
    """

    columns: tuple[Column, ...]

    def __getitem__(self, name: str) -> Column:
        """Return the column of this name."""
        return next(column for column in self.columns if column.name == name)

    def read(self, path: str | PathLike[str]) -> Any:
        """Return the table in a file as a data frame.

        Columns that are not in the schema have the types that follow from their cells.

        Parameters
        ----------
        path : str or path-like
            A .csv, .tsv, .txt, .parquet or .npz file.

        Returns
        -------
        DataFrame
        """
        from kernelmosaic import tables

        text_columns = [column for column in self.columns if column.is_text]
        marks = {column.name: column.missing for column in text_columns}
        table = tables.read_table(Path(path), marks)
        texts = {}
        for column in text_columns:
            if column.name in table.columns:
                cells = table[column.name]
                texts[column.name] = tables.texts_of(cells, column.categories, column.missing)
        return table.assign(**texts)

    def __getstate__(self) -> dict[str, str]:
        """Return the columns as one JSON text.

        A model file then has no object for each of many columns.
        """
        return {"columns": json.dumps([asdict(column) for column in self.columns])}

    def __setstate__(self, state: dict[str, str]) -> None:
        columns = []
        for entry in json.loads(state["columns"]):
            categories = tuple(entry["categories"])
            missing = tuple(entry["missing"])
            columns.append(Column(entry["name"], entry["kind"], categories, missing))
        # The dataclass is frozen.
        object.__setattr__(self, "columns", tuple(columns))

    def with_names(self, names: Iterable[str], missing: tuple[str, ...]) -> Schema:
        """Return a schema in which the columns `names` hold names of rows.

        The texts in `missing` mark missing cells of these columns.
        """
        columns = {column.name: column for column in self.columns}
        for name in names:
            columns[name] = Column(name, "names", missing=missing)
        return Schema(tuple(columns.values()))

    def of_view(self, view: str) -> Schema:
        """Return the schema of the file of one view, with the column names of that file.

        In the joined table these columns are called ``view.column``.
        """
        prefix = f"{view}."
        columns = [column for column in self.columns if column.name.startswith(prefix)]
        return Schema(
            tuple(replace(column, name=column.name.removeprefix(prefix)) for column in columns)
        )
