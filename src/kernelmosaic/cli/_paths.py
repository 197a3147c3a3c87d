"""Paths as arguments, refused before any work is done if they could not serve."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryFile

import typer

#: How files end that hold data or a page: a model of that name would be taken for one, or replace one.
_NOT_A_MODEL = (".csv", ".tsv", ".txt", ".parquet", ".npz", ".npy", ".html")


def existing_file(path: Path, what: str = "a file") -> Path:
    """Refuse a path where there is nothing to read; `what` is asked for instead of a folder."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give {what}.")
    return path


def writable_file(path: Path) -> Path:
    """Refuse a path that could not be written afterwards."""
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; give the name of a file.")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"the folder {path.parent} does not exist.")
    try:
        if not path.exists():
            with TemporaryFile(dir=path.parent):  # permissions alone do not tell
                pass
        elif not os.access(path, os.W_OK):
            raise PermissionError
    except OSError:
        raise typer.BadParameter(f"{path} cannot be written; give another path.") from None
    return path


def writable_if_given(path: Path | None) -> Path | None:
    """Refuse a path that could not be written afterwards, where there is one."""
    return None if path is None else writable_file(path)


def model_file(path: Path) -> Path:
    """Refuse, beside what cannot be written, the name of a table or a page."""
    if path.suffix.lower() in _NOT_A_MODEL:
        raise typer.BadParameter(f"{path} is no name for a model; give one such as {path.stem}.skops.")
    return writable_file(path)


def refuse_overwriting(option: str, output: Path | None, inputs: Iterable[Path]) -> None:
    """Refuse an output that is one of the inputs."""
    for path in inputs:
        if output is not None and output.exists() and path.exists() and output.samefile(path):
            raise ValueError(f"{option} {output}: this file is read, and would be overwritten; give another name.")
