"""The run folder: what was asked for, every finished unit, and the tables made from them."""

from __future__ import annotations

import json
import os
import platform
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import kernelmosaic
from kernelmosaic.experiments.experiment import Experiment
from kernelmosaic.experiments.lines import append_line, read_lines, write_whole
from kernelmosaic.experiments.lock import locked
from kernelmosaic.experiments.summary import Row, write_rows
from kernelmosaic.experiments.units import Measurement, Record, Settings, Unit

_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "joblib", "threadpoolctl")


class RunFolder:
    """A run on disk, held by one process at a time; made by `open_run`."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings

    def begin(self, experiment: Experiment) -> dict[str, Record]:
        """Return what there is of the experiment already, by unit key, or raise if it was another definition."""
        path = self._results(experiment)
        lines = read_lines(path)
        expected = {"experiment": experiment.name, "fingerprint": experiment.fingerprint(self.settings.scale)}
        headers = [line for line in lines if "fingerprint" in line]
        if any(header != expected for header in headers):
            raise ValueError(
                f"{path} was made by another definition of {experiment.name}; move that file away to run it anew, "
                "or give another folder."
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
        content = {**wanted, "started": datetime.now(UTC).isoformat(timespec="seconds"), "environment": environment()}
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
            f"{path.parent} holds a run with seed {seed} at {name} scale, not seed {settings.seed} at "
            f"{settings.scale.name} scale; ask for the same{' with --quick' * (name == 'quick')} to resume it, or give "
            "another folder."
        )
    if before != kernelmosaic.__version__:
        warnings.warn(
            f"{path.parent} was begun with kernelmosaic {before} and goes on with {kernelmosaic.__version__}.",
            RuntimeWarning,
            stacklevel=4,
        )


def environment() -> dict[str, Any]:
    """Return the versions and the machine a run is made with."""
    found: dict[str, Any] = {"kernelmosaic": kernelmosaic.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found | {"system": platform.platform(), "machine": platform.machine(), "cpus": os.cpu_count()}


def _line(record: Record) -> dict[str, Any]:
    unit = record.unit
    return {
        "unit": [unit.experiment, unit.dataset, unit.method, unit.kernels, unit.replicate],
        "measurements": [[one.metric, one.value, one.setting] for one in record.measurements],
        "seconds": round(record.seconds, 4),
        "failure": record.failure,
    }


def _record(line: dict[str, Any]) -> Record | None:
    if "unit" not in line:
        return None
    measurements = tuple(Measurement(*one) for one in line["measurements"])
    return Record(Unit(*line["unit"]), measurements, line["seconds"], line["failure"])
