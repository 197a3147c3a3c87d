"""Files: checks before reading, writing as a whole or not at all, and the cache of compiled
functions.

A file is written under another name beside its target, its *part*, which then replaces the target.
"""

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
    """Return the folder of fetched data and compiled functions.

    It is under ``XDG_CACHE_HOME``, else under ``~/.cache``.
    """
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache_home.expanduser() / "kernelmosaic"


def njit(*, cache: bool = False, **options: Any) -> Any:
    """Return `numba.njit` with these options, which caches compiled code in the user's folder.

    By default Numba writes beside the module, into the installed package, whose folder then
    outlives an uninstallation and can still be imported. A ``NUMBA_CACHE_DIR`` is respected; where
    the cache cannot be written, Numba looks for another folder, and compiles in every process if
    there is none. A damaged file is written anew.
    """
    import numba

    def compiled(function: Callable[..., Any]) -> Any:
        """Return the compiled function, which Numba compiles when it is first called."""
        dispatcher: Any = numba.njit(**options)(function)
        is_interpreted = dispatcher is function  # NUMBA_DISABLE_JIT
        if not cache or is_interpreted:
            return dispatcher
        config: Any = numba.config
        chosen_folder = config.CACHE_DIR
        # Numba reads the folder from its configuration when the cache is made.
        config.CACHE_DIR = chosen_folder or str(cache_folder() / "compiled")
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
    """Return a class for Numba's cache of a function's compiled code that survives damaged files.

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
            """Return what is written for compiled code: its bytes, and their digest."""
            entry: bytes = dumps(super().reduce(result))
            return hashlib.sha256(entry).hexdigest(), entry

        def rebuild(self, target_context: Any, stored: Any) -> Any:
            """Return the compiled code that was written, or raise if its bytes have changed."""
            digest, entry = stored
            if hashlib.sha256(entry).hexdigest() != digest:
                raise ValueError("the compiled code has changed since it was written")
            return super().rebuild(target_context, pickle.loads(entry))

    class RepairedCache(caching.FunctionCache):  # type: ignore[misc]
        """A cache that ignores damaged files and writes them anew."""

        _impl_class = CheckedEntries

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            """Return the compiled code for a signature, None if there is none or it is damaged."""
            try:
                return super().load_overload(sig, target_context)
            except Exception:  # damaged bytes may raise anything as they are read
                self._forget_entries()
                return None

        def save_overload(self, sig: Any, data: Any) -> None:
            """Write the compiled code for a signature if that is possible."""
            try:
                super().save_overload(sig, data)
            except Exception:
                # The index is damaged, or the disk is full: the function runs without a cache.
                self._forget_entries()

        def _forget_entries(self) -> None:
            """Write an empty index: entries that it does not name are overwritten."""
            with suppress(Exception):
                self.flush()

    return RepairedCache


def existing_file(path: Path, what: str) -> Path:
    """Return a path to a file, or raise if there is none; `what` says what to give instead."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file; give {what}.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give {what}.")
    return path


def replaceable_file(path: str | os.PathLike[str]) -> Path:
    """Return the regular file, existing or not, that a path leads to through symbolic links.

    Raises for folders, devices, FIFOs and sockets: a file that is moved to their path would
    destroy them.
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
    """Write a file in one step.

    If the process dies, the former file remains, not half of a new one.

    The data are written beside the file, in the part ``.NAME.….part``, which is then moved to the
    path of the file. Parts that killed processes left there for the same file are removed first. A
    symbolic link stays: the file that it leads to is replaced. The new file has the mode, and where
    the system allows it the owner, of the one that it replaces.

    Parameters
    ----------
    path : str or path-like
        Where to write; the folder must exist.
    data : bytes

    Returns
    -------
    Path
    """
    target = replaceable_file(path)
    try:
        _remove_leftovers(target)
        part_path, file = _new_part(target)
        try:
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                if sys.platform != "win32":
                    # The part is still locked: without its lock, another process that writes the
                    # same file would remove it as a leftover.
                    os.replace(part_path, target)
            if sys.platform == "win32":
                # Windows neither moves files that are open, nor lets others remove them.
                os.replace(part_path, target)
        finally:
            part_path.unlink(missing_ok=True)
    except OSError as error:
        if error.errno is None:
            raise
        # Users do not know the part: the error names the path that they gave.
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    return Path(path)


def _new_part(target: Path) -> tuple[Path, BinaryIO]:
    """Return the path of a new part of a target, and the open, locked file.

    The part has the permissions of the target if that exists.
    """
    while True:
        part_path = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        # A part that replaces a file is private until the permissions of that file are copied.
        mode = 0o600 if target.exists() else 0o666
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        file = os.fdopen(os.open(part_path, flags, mode), "wb")
        with suppress(OSError):  # some file systems have no locks
            _lock(file, wait=True)
        if os.fstat(file.fileno()).st_nlink:
            _copy_permissions(target, file)
            return part_path, file
        # Another process removed the part as a leftover before it was locked.
        file.close()


def _copy_permissions(target: Path, file: BinaryIO) -> None:
    """Give a part the owner, the mode and the access list of its target, if that exists."""
    if sys.platform == "win32":
        return
    try:
        former = target.stat()
    except FileNotFoundError:
        return
    number = file.fileno()
    mode = stat.S_IMODE(former.st_mode)
    created = os.fstat(number)
    if (created.st_uid, created.st_gid) != (former.st_uid, former.st_gid):
        try:
            os.fchown(number, former.st_uid, former.st_gid)
        except PermissionError:
            # The owner cannot be changed, and the group only to one that this user is in. Otherwise
            # the part stays with a group of this user, which gets the rights of all others only.
            with suppress(PermissionError):
                os.fchown(number, -1, former.st_gid)
            if os.fstat(number).st_gid != former.st_gid:
                mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
    # Some file systems have neither modes nor attributes, and only the system sets some attributes.
    with suppress(OSError):
        os.fchmod(number, mode)
        if sys.platform == "linux":
            for name in os.listxattr(target):
                with suppress(OSError):
                    os.setxattr(number, name, os.getxattr(target, name))


def _lock(file: BinaryIO, wait: bool) -> None:
    """Lock a file until it is closed; if it is locked already, wait for it or raise."""
    if sys.platform == "win32":
        # Windows needs no lock: files that are open are not removed there.
        return
    operation = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    fcntl.flock(file, operation)


def _remove_leftovers(target: Path) -> None:
    """Remove the parts of a target that no process is writing any more.

    A part can be locked then: the system takes its lock from a process that dies.
    """
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{32}}\.part")
    for part_path in [path for path in target.parent.iterdir() if name.fullmatch(path.name)]:
        with suppress(OSError), part_path.open("r+b") as file:
            _lock(file, wait=False)
            part_path.unlink()
