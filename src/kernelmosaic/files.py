"""Files: read if they are there, written whole or not at all; compiled functions kept in the user's
cache."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import stat
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

if sys.platform != "win32":
    import fcntl


def cache_folder() -> Path:
    """Return where fetched sets and compiled functions are kept: under ``XDG_CACHE_HOME``, else
    ``~/.cache``."""
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser()
        / "kernelmosaic"
    )


def njit(*, cache: bool = False, **options: Any) -> Any:
    """Return `numba.njit` with these options, which keeps what it compiles in the user's cache.

    By default Numba writes beside the module, into the installed package, whose folder then
    outlives an uninstallation and can still be imported. A ``NUMBA_CACHE_DIR`` is kept; where the
    cache cannot be written, Numba looks elsewhere, and compiles in every process where there is no
    place at all. A damaged file is made anew.
    """
    import numba

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher: Any = numba.njit(**options)(function)
        is_interpreted = dispatcher is function  # NUMBA_DISABLE_JIT
        if not cache or is_interpreted:
            return dispatcher
        config: Any = numba.config
        chosen_folder = config.CACHE_DIR
        config.CACHE_DIR = chosen_folder or str(
            cache_folder() / "compiled"
        )  # read as the cache is made
        try:
            dispatcher._cache = _function_cache()(function)
        except RuntimeError:  # no folder can be written
            pass
        finally:
            config.CACHE_DIR = chosen_folder
        return dispatcher

    return compiled


@cache
def _function_cache() -> type[Any]:
    """Return Numba's cache of a function's compiled code, which survives damaged files.

    Numba checks nothing that it reads: files that a crash or a full disk left empty or half written
    raise errors of `pickle` as a function is first called, and changed bytes would be run. So every
    entry has a digest, and a file that cannot be read counts as none: the function is compiled
    again, and its files are written anew.
    """
    caching: Any = import_module("numba.core.caching")  # Numba has no annotations
    dumps: Any = import_module("numba.core.serialize").dumps

    class CheckedEntries(caching.CompileResultCacheImpl):  # type: ignore[misc]
        """Compiled code as bytes with their digest."""

        def reduce(self, result: Any) -> tuple[str, bytes]:
            entry: bytes = dumps(super().reduce(result))
            return hashlib.sha256(entry).hexdigest(), entry

        def rebuild(self, target_context: Any, stored: Any) -> Any:
            digest, entry = stored
            if hashlib.sha256(entry).hexdigest() != digest:
                raise ValueError("the compiled code has changed since it was written")
            return super().rebuild(target_context, pickle.loads(entry))

    class RepairedCache(caching.FunctionCache):  # type: ignore[misc]
        """A cache whose damaged files are thrown away."""

        _impl_class = CheckedEntries

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            try:
                return super().load_overload(sig, target_context)
            except Exception:  # whatever damaged bytes raise as they are read
                self._forget_entries()
                return None

        def save_overload(self, sig: Any, data: Any) -> None:
            try:
                super().save_overload(sig, data)
            except (
                Exception
            ):  # a damaged index, or a disk that is full: the function runs without being kept
                self._forget_entries()

        def _forget_entries(self) -> None:
            """Write an empty index: entries that it does not name are overwritten."""
            with suppress(Exception):
                self.flush()

    return RepairedCache


def existing_file(path: Path, what: str) -> Path:
    """Refuse a path where there is nothing to read; `what` is what to give in its place."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file; give {what}.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give {what}.")
    return path


def replaceable_file(path: str | os.PathLike[str]) -> Path:
    """Return the regular file, there or not yet, that a path leads to through symbolic links;
    refuse any other.

    Devices, FIFOs and sockets are refused: a file that is moved to their place would destroy them.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{path} is in a folder that does not exist; give a path in one that does."
        )
    if os.path.lexists(target) and not target.is_file():
        raise ValueError(
            f"{path} is a device, a FIFO or the like and cannot be replaced; give the name of a"
            " file."
        )
    return target


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text file in UTF-8, line ends as they are, in one step; see `write_bytes`."""
    return write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write a file in one step: a run that dies on the way leaves the former file, not half of a
    new one.

    The data are written beside the file, in ``.NAME.….part``, which is then moved to its place.
    What killed runs left there for the same file is removed first. A symbolic link stays: the file
    that it leads to is replaced. The new file has the mode, and where the system lets it the owner,
    of the one that it replaces.

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
                if sys.platform != "win32":
                    # Still locked: unlocked, it would be a leftover to another run that writes the
                    # same file.
                    os.replace(part, target)
            if (
                sys.platform == "win32"
            ):  # which does not move files that are open, nor remove them as leftovers
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
    """Return a file beside the target, locked as long as it is open, for those who may read the
    target."""
    while True:
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        # Nobody else may read what replaces a file until it is known who may read that.
        mode = 0o600 if target.exists() else 0o666
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        file = os.fdopen(os.open(part, flags, mode), "wb")
        with suppress(OSError):  # some file systems have no locks
            _lock(file, wait=True)
        if os.fstat(file.fileno()).st_nlink:
            _keep_permissions(target, file)
            return part, file
        file.close()  # another run took it for a leftover before it was locked


def _keep_permissions(target: Path, file: BinaryIO) -> None:
    """Give a new file the owner, the mode and the access list of the file that it is to replace, if
    there is one."""
    if sys.platform == "win32":
        return
    try:
        former = target.stat()
    except FileNotFoundError:
        return
    number, mode = file.fileno(), stat.S_IMODE(former.st_mode)
    created = os.fstat(number)
    if (created.st_uid, created.st_gid) != (former.st_uid, former.st_gid):
        try:
            os.fchown(number, former.st_uid, former.st_gid)
        except PermissionError:
            # Another owner, or a group that is not ours: what that group may do is not for ours,
            # only what all may do.
            with suppress(PermissionError):
                os.fchown(number, -1, former.st_gid)
            if os.fstat(number).st_gid != former.st_gid:
                mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
    with suppress(
        OSError
    ):  # some file systems have neither modes nor attributes, some of which only the system sets
        os.fchmod(number, mode)
        if sys.platform == "linux":
            for name in os.listxattr(target):
                with suppress(OSError):
                    os.setxattr(number, name, os.getxattr(target, name))


def _lock(file: BinaryIO, wait: bool) -> None:
    """Lock a file until it is closed, or raise if it is locked and must not be waited for."""
    if sys.platform != "win32":  # which does not remove files that are open
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_leftovers(target: Path) -> None:
    """Remove the parts that no run is writing any more: the system takes the lock from a process
    that dies."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{32}}\.part")
    for part in [path for path in target.parent.iterdir() if name.fullmatch(path.name)]:
        with suppress(OSError), part.open("r+b") as file:
            _lock(file, wait=False)
            part.unlink()
