"""A lock on a folder that dies with the process that holds it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for this process, or raise if another one does."""
    path = folder / "run.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            _seize(descriptor)
        except OSError:
            holder = os.read(descriptor, 100).decode(errors="replace").strip() or "unknown"
            raise BlockingIOError(
                f"{folder} is in use by another process (number {holder}); wait for it, or give another folder."
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)  # the system lets go of the lock here, and also when the process is killed


def _seize(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        os.lseek(descriptor, 1024, os.SEEK_SET)  # a byte past the text, so that others can still read who holds it
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        os.lseek(descriptor, 0, os.SEEK_SET)
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
