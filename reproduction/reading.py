"""A run as a reader wants it: from its folder, or from the few small files that are kept of it."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

from reproduction.experiment import Experiment, Scale, Settings
from reproduction.papers import EXPERIMENTS
from reproduction.rows import Row, read_rows
from reproduction.store import sound_lines

#: Seconds of work and units, one line per experiment; what is kept of the records.
_WORK = "run.csv"


@dataclass(frozen=True)
class Work:
    """What an experiment took: units run, units that failed, seconds of all of them together;
    version and commit."""

    units: int = 0
    failed: int = 0
    seconds: float = 0.0
    version: int = 1
    commit: str = ""


@dataclass(frozen=True)
class Result:
    """An experiment of a run: what it is, its table, what it took."""

    experiment: Experiment
    rows: list[Row]
    work: Work

    @property
    def is_earlier(self) -> bool:
        """Whether the table was made by an earlier definition of the experiment, perhaps under
        another reading."""
        return self.work.version != self.experiment.version


@dataclass(frozen=True)
class Run:
    """All that a report says of a run.

    Parameters
    ----------
    folder : Path
    facts : dict
        What `run.json` has: seed, scale, date, versions, machine.
    results : list of Result
        The finished experiments, in the catalogue's order.
    unfinished : dict of str to Work
        Experiments that have records but no table yet.
    absent : list of Experiment
        Those of the catalogue that were not run.
    """

    folder: Path
    facts: dict[str, Any]
    results: list[Result]
    unfinished: dict[str, Work] = field(default_factory=dict)
    absent: list[Experiment] = field(default_factory=list)

    def settings(self, data_home: str | None = None) -> Settings:
        """Return the settings of the run, for what is drawn beside its tables."""
        return Settings(self.facts["seed"], Scale(**self.facts["scale"]), data_home)

    def of_table(self, paper: str, *tables: str) -> list[Result]:
        """Return the experiments that fill these tables of a paper, under the reading taken for the
        paper's."""
        return [
            one
            for one in self.results
            if one.experiment.paper == paper
            and one.experiment.table in tables
            and not one.experiment.another_reading_of
        ]

    def readings_of(self, name: str) -> list[Result]:
        """Return an experiment, and what fills the same table under other readings."""
        return [
            one
            for one in self.results
            if name in (one.experiment.name, one.experiment.another_reading_of)
        ]


def read_run(folder: str | Path, catalogue: Mapping[str, Experiment] = EXPERIMENTS) -> Run:
    """Read a run folder, or a folder that `keep_summaries` has written.

    Parameters
    ----------
    folder : path
    catalogue : dict of str to Experiment, optional
        What the tables belong to; all experiments there are by default.
    """
    folder = Path(folder)
    try:
        facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        Scale(**facts["scale"])
        facts["seed"], facts["environment"]
    except (FileNotFoundError, NotADirectoryError):
        fault = "has no run.json" if folder.exists() else "is not there"
        raise FileNotFoundError(
            f"{folder} {fault}; give a folder that `python -m reproduction` made."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{folder / 'run.json'} cannot be read; it is not what a run writes."
        ) from None
    work = _work(folder, catalogue, facts["environment"].get("commit") or "")
    tables = {name: folder / f"{name}.csv" for name in catalogue}
    results = [
        Result(
            one,
            one.beside_published(read_rows(tables[name])),
            work.get(name, Work(version=one.version)),
        )
        for name, one in catalogue.items()
        if tables[name].exists()
    ]
    return Run(
        folder,
        facts,
        results,
        {name: done for name, done in work.items() if not tables[name].exists()},
        [one for name, one in catalogue.items() if not tables[name].exists() and name not in work],
    )


def _work(folder: Path, known: Mapping[str, Experiment], commit: str) -> dict[str, Work]:
    if (folder / _WORK).exists():
        return {name: own for name, own in _read_work(folder, commit).items() if name in known}
    found = {}
    for name, experiment in known.items():
        path = folder / f"{name}.jsonl"
        if path.exists():
            # A unit that failed and was run again has two lines: the last one counts.
            records = {
                json.dumps(line["unit"]): line for line in sound_lines(path) if "unit" in line
            }
            failed = sum(line["failure"] is not None for line in records.values())
            seconds = sum(line["seconds"] for line in records.values())
            # A folder is resumed by the same definition only.
            found[name] = Work(len(records), failed, seconds, experiment.version, commit)
    return found


def keep_summaries(run: Run, folder: str | Path) -> list[Path]:
    """Copy what a report needs, the tables and a line on each experiment's work, to a small folder.

    Experiments in that folder that the run has no table of stay, with the commit they were run by:
    a run may take several sittings, and a report then says what is of which.

    Returns
    -------
    list of Path
        What was written; `read_run` reads it.
    """
    folder = Path(folder)
    if folder.resolve() == run.folder.resolve():
        raise ValueError(f"{folder} is the run itself; name another folder for its summaries.")
    folder.mkdir(parents=True, exist_ok=True)
    done = {one.experiment.name: one.work for one in run.results}
    before = {}
    if (folder / _WORK).exists():
        facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        if any(facts[name] != run.facts[name] for name in ("seed", "scale")):
            raise ValueError(
                f"{folder} has summaries of another seed or scale; name another folder."
            )
        before = _read_work(folder, facts["environment"].get("commit") or "")
    kept = {name: work for name, work in before.items() if (folder / f"{name}.csv").exists()}
    names = ["run.json", *(f"{name}.csv" for name in done)]
    for name in names:
        shutil.copyfile(run.folder / name, folder / name)
    _write_work(kept | done, folder / _WORK)
    return [folder / name for name in (*names, _WORK)]


def _read_work(folder: Path, commit: str) -> dict[str, Work]:
    with (folder / _WORK).open(newline="", encoding="utf-8") as file:
        return {
            line["experiment"]: Work(
                int(line["units"]),
                int(line["failed"]),
                float(line["seconds"]),
                int(line.get("version") or 1),
                line.get("commit") or commit,
            )
            for line in csv.DictReader(file)
        }


def _write_work(work: Mapping[str, Work], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("experiment", *(one.name for one in fields(Work))))
        for name, own in work.items():
            writer.writerow((name, *astuple(own)))
