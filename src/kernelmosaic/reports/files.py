"""Files: read only where there is one, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def existing_file(path: Path, what: str = "a file") -> Path:
    """Refuse a path where there is nothing to read; `what` is asked for instead of a folder."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give {what}.")
    return path


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file in UTF-8, line ends as they are, in one step; see `write_bytes`."""
    return write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, data: bytes) -> Path:
    """Write a file in one step: a run that dies on the way leaves the former file, not half of a new one.

    Parameters
    ----------
    path : str or Path
        Where to; its folder must exist.
    data : bytes

    Returns
    -------
    Path
    """
    path = Path(path)
    target = path.resolve()  # through a symbolic link, which would otherwise be replaced by a file
    # Devices cannot be replaced, nor files in folders that take no new ones: these are written in place.
    if (target.exists() and not target.is_file()) or not os.access(target.parent, os.W_OK):
        target.write_bytes(data)
        return path
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return path
