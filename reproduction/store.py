"""The run folder: what was asked for, every finished unit, and the tables made from them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import kernelmosaic
from reproduction.experiment import Experiment, Measurement, Record, Settings, Unit
from reproduction.rows import Row, write_rows

#: The variable that names the commit of the sources, which a copy without its history does not
#: know.
COMMIT = "KERNELMOSAIC_COMMIT"
_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "joblib", "threadpoolctl")


def append_line(path: Path, content: dict[str, Any]) -> None:
    """Add one line and wait until the disk has it."""
    text = _encode(content)
    line = f'{{"sha256":"{_checksum(text)}","content":{text}}}\n'
    with path.open("ab", buffering=0) as file:
        file.write(
            line.encode()
        )  # one call: what another process reads is the whole line or a torn one
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the contents of all sound lines. Damaged ones are reported and moved to a file beside
    this one."""
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
                f"{path}, line {number} is {error}; it is set aside in {_aside(path).name}, and"
                " what it held is run again.",
                RuntimeWarning,
                stacklevel=2,
            )
    if damaged:
        with _aside(path).open("ab") as file:
            file.writelines(line if line.endswith(b"\n") else line + b"\n" for line in damaged)
        write_whole(path, b"".join(kept))
    return sound


def sound_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the contents of all sound lines and leave the file as it is, perhaps under the pen of
    another process."""
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
                f"{folder} is in use by another process (number {holder}); wait for it, or give"
                " another folder."
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(
            descriptor
        )  # the system lets go of the lock here, and also when the process is killed


def _seize(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        os.lseek(
            descriptor, 1024, os.SEEK_SET
        )  # a byte past the text, so that others can still read who holds it
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        os.lseek(descriptor, 0, os.SEEK_SET)
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class RunFolder:
    """A run on disk, held by one process at a time; made by `open_run`."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings

    def begin(self, experiment: Experiment) -> dict[str, Record]:
        """Return what there is of the experiment already, by unit key, or raise if it was another
        definition."""
        path = self._results(experiment)
        lines = read_lines(path)
        expected = {
            "experiment": experiment.name,
            "fingerprint": experiment.fingerprint(self.settings.scale),
        }
        headers = [line for line in lines if "fingerprint" in line]
        if any(header != expected for header in headers):
            raise ValueError(
                f"{path} was made by another definition of {experiment.name}; move that file away"
                " to run it anew, or give another folder."
            )
        if not headers:
            append_line(path, expected)
        # A unit that failed and was run again has two lines: the last one counts.
        return {record.unit.key: record for record in map(_record, lines) if record is not None}

    def add(self, experiment: Experiment, record: Record) -> None:
        """Keep one record; it is on disk when this returns."""
        append_line(self._results(experiment), _line(record))

    def write_table(self, experiment: Experiment, rows: Sequence[Row]) -> Path:
        """Write the table of an experiment and return its path."""
        path = self.path / f"{experiment.name}.csv"
        write_rows(rows, path)
        return path

    def _results(self, experiment: Experiment) -> Path:
        return self.path / f"{experiment.name}.jsonl"


@contextmanager
def open_run(path: Path, settings: Settings) -> Iterator[RunFolder]:
    """Make or resume a run folder and hold it until the block ends."""
    path.mkdir(parents=True, exist_ok=True)
    with locked(path):
        _check_or_write(path / "run.json", settings)
        yield RunFolder(path, settings)


def _check_or_write(path: Path, settings: Settings) -> None:
    wanted = {"seed": settings.seed, "scale": asdict(settings.scale)}
    if not path.exists():
        content = {
            **wanted,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "environment": environment(),
        }
        write_whole(path, (json.dumps(content, indent=2) + "\n").encode())
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        given = {name: found[name] for name in wanted}
        before = found["environment"]["kernelmosaic"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} cannot be read; move it away, or give another folder.") from None
    if given != wanted:
        name, seed = given["scale"].get("name"), given["seed"]
        raise ValueError(
            f"{path.parent} holds a run with seed {seed} at {name} scale, not seed {settings.seed}"
            f" at {settings.scale.name} scale; ask for the"
            f" same{' with --quick' * (name == 'quick')} to resume it, or give another folder."
        )
    if before != kernelmosaic.__version__:
        warnings.warn(
            f"{path.parent} was begun with kernelmosaic {before} and goes on with"
            f" {kernelmosaic.__version__}.",
            RuntimeWarning,
            stacklevel=4,
        )


def environment() -> dict[str, Any]:
    """Return the versions and the machine a run is made with; the commit, where the environment
    names it."""
    found: dict[str, Any] = {
        "kernelmosaic": kernelmosaic.__version__,
        "commit": os.environ.get(COMMIT) or None,
    }
    found["python"] = platform.python_version()
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found | {
        "system": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }


def _line(record: Record) -> dict[str, Any]:
    unit = record.unit
    return {
        "unit": [
            unit.experiment,
            unit.dataset,
            unit.method,
            unit.kernels,
            unit.replicate,
            unit.seed,
        ],
        "measurements": [[one.metric, one.value, one.setting] for one in record.measurements],
        "seconds": round(record.seconds, 4),
        "failure": record.failure,
    }


def _record(line: dict[str, Any]) -> Record | None:
    if "unit" not in line:
        return None
    measurements = tuple(Measurement(*one) for one in line["measurements"])
    return Record(Unit(*line["unit"]), measurements, line["seconds"], line["failure"])
