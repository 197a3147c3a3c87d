"""Paths as arguments, refused before any work is done if they could not serve."""

from __future__ import annotations

import os
from pathlib import Path

import typer


def writable_file(path: Path) -> Path:
    """Refuse a path that could not be written afterwards."""
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; give the name of a file.")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"the folder {path.parent} does not exist.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise typer.BadParameter(f"{path} cannot be written; give another path.")
    return path
