"""How the columns of a table are read: what a model that was fitted from a file keeps for every
later file.

The type of a column does not follow from a file alone: codes such as 01 and 10 are texts beside
A17, and numbers without it. So the first file decides, and every later one is read as it was.
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
        What the cells are. Numbers may be truth values, which count as one and zero; texts are
        sequences; names are those of rows or groups. All but numbers are read as they are written:
        007 stays 007.
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
        """Return the column of a name."""
        return next(column for column in self.columns if column.name == name)

    def read(self, path: str | PathLike[str]) -> Any:
        """Return the table in a file as a data frame; columns that are not in the schema have the
        types that they seem.

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
        table = tables.read_table(
            Path(path), {column.name: column.missing for column in text_columns}
        )
        found = [column for column in text_columns if column.name in table.columns]
        texts = {
            one.name: tables.texts_of(table[one.name], one.categories, one.missing) for one in found
        }
        return table.assign(**texts)

    def __getstate__(self) -> dict[str, str]:
        """Return the columns as one text: a model file need not hold an object for each of many
        thousands."""
        return {"columns": json.dumps([asdict(column) for column in self.columns])}

    def __setstate__(self, state: dict[str, str]) -> None:
        columns = [
            Column(
                entry["name"], entry["kind"], tuple(entry["categories"]), tuple(entry["missing"])
            )
            for entry in json.loads(state["columns"])
        ]
        object.__setattr__(self, "columns", tuple(columns))

    def with_names(self, names: Iterable[str], missing: tuple[str, ...]) -> Schema:
        """Return a schema in which columns hold the names of rows."""
        columns = {column.name: column for column in self.columns}
        columns |= {name: Column(name, "names", missing=missing) for name in names}
        return Schema(tuple(columns.values()))

    def of_view(self, view: str) -> Schema:
        """Return the schema of the file of a joined view, in which its columns have the names that
        they have there."""
        prefix = f"{view}."
        own = [column for column in self.columns if column.name.startswith(prefix)]
        return Schema(
            tuple(replace(column, name=column.name.removeprefix(prefix)) for column in own)
        )
