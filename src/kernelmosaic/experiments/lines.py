"""One JSON object a line, each with a checksum, appended so that a sudden death tears the last line at worst."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any


def append_line(path: Path, content: dict[str, Any]) -> None:
    """Add one line and wait until the disk has it."""
    text = _encode(content)
    line = f'{{"sha256":"{_checksum(text)}","content":{text}}}\n'
    with path.open("ab", buffering=0) as file:
        file.write(line.encode())  # one call: what another process reads is the whole line or a torn one
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the contents of all sound lines. Damaged ones are reported and moved to a file beside this one."""
    if not path.exists():
        return []
    sound: list[dict[str, Any]] = []
    kept: list[bytes] = []
    damaged: list[bytes] = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        try:
            sound.append(_decode(line))
            kept.append(line)
        except ValueError as error:
            damaged.append(line)
            warnings.warn(
                f"{path}, line {number} is {error}; it is set aside in {_aside(path).name}, and what it held is run "
                "again.",
                RuntimeWarning,
                stacklevel=2,
            )
    if damaged:
        with _aside(path).open("ab") as file:
            file.writelines(line if line.endswith(b"\n") else line + b"\n" for line in damaged)
        write_whole(path, b"".join(kept))
    return sound


def sound_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the contents of all sound lines and leave the file as it is, perhaps under the pen of another process."""
    for line in path.read_bytes().splitlines(keepends=True):
        with suppress(ValueError):
            yield _decode(line)


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file at once: who reads it sees the old one or the new one."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def _encode(content: dict[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _decode(line: bytes) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        raise ValueError("torn")
    try:
        whole = json.loads(line)
        content = whole["content"]
        given = whole["sha256"]
        sound = isinstance(content, dict) and given == _checksum(_encode(content))
    except (ValueError, KeyError, TypeError):
        raise ValueError("not what was written") from None
    if not sound:
        raise ValueError("not what its checksum says")
    return content  # type: ignore[no-any-return]
