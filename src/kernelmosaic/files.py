"""Files: read if they are there, written whole or not at all; compiled functions kept in the user's cache."""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

if sys.platform != "win32":
    import fcntl


def cache_folder() -> Path:
    """Return where fetched sets and compiled functions are kept: under ``XDG_CACHE_HOME``, else ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "kernelmosaic"


def njit(**options: Any) -> Any:
    """Return `numba.njit` with these options, which keeps what it compiles in the user's cache.

    By default Numba writes beside the module, into the installed package, whose folder then outlives an uninstallation
    and can still be imported. A ``NUMBA_CACHE_DIR`` is kept; where the cache cannot be written, Numba looks elsewhere.
    """
    import numba

    def compiled(function: Callable[..., Any]) -> Any:
        config: Any = numba.config
        given = config.CACHE_DIR  # read as the function is decorated
        config.CACHE_DIR = given or str(cache_folder() / "compiled")
        try:
            return numba.njit(**options)(function)
        finally:
            config.CACHE_DIR = given

    return compiled


def existing_file(path: Path, what: str) -> Path:
    """Refuse a path where there is nothing to read; `what` is what to give in its place."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file; give {what}.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give {what}.")
    return path


def replaceable_file(path: str | os.PathLike[str]) -> Path:
    """Return the regular file, there or not yet, that a path leads to through symbolic links; refuse any other.

    Devices, FIFOs and sockets are refused: a file that is moved to their place would destroy them.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path} is in a folder that does not exist; give a path in one that does.")
    if os.path.lexists(target) and not target.is_file():
        raise ValueError(f"{path} is a device, a FIFO or the like and cannot be replaced; give the name of a file.")
    return target


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text file in UTF-8, line ends as they are, in one step; see `write_bytes`."""
    return write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write a file in one step: a run that dies on the way leaves the former file, not half of a new one.

    The data are written beside the file, in ``.NAME.….part``, which is then moved to its place. What killed runs left
    there for the same file is removed first. A symbolic link stays: the file that it leads to is replaced.

    Parameters
    ----------
    path : str or path-like
        Where to; its folder must exist.
    data : bytes

    Returns
    -------
    Path
    """
    target = replaceable_file(path)
    try:
        _remove_leftovers(target)
        part, file = _new_part(target)
        try:
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        if error.errno is None:
            raise
        # The part is none of the caller's files: the error names the target.
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    return Path(path)


def _new_part(target: Path) -> tuple[Path, BinaryIO]:
    """A file beside the target, locked as long as it is open."""
    while True:
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        file = part.open("xb")
        with suppress(OSError):  # some file systems have no locks
            _lock(file, wait=True)
        if os.fstat(file.fileno()).st_nlink:
            return part, file
        file.close()  # another run took it for a leftover before it was locked


def _lock(file: BinaryIO, wait: bool) -> None:
    """Lock a file until it is closed, or raise if it is locked and must not be waited for."""
    if sys.platform != "win32":  # which does not remove files that are open
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_leftovers(target: Path) -> None:
    """Remove the parts that no run is writing any more: the system takes the lock from a process that dies."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{32}}\.part")
    for part in [path for path in target.parent.iterdir() if name.fullmatch(path.name)]:
        with suppress(OSError), part.open("r+b") as file:
            _lock(file, wait=False)
            part.unlink()
