"""Run experiments: what is not there yet is run, kept as it finishes, and made into tables."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from reproduction.executors import Executor, Serial, Task
from reproduction.experiment import Experiment, Record, Settings, Unit
from reproduction.rows import Row
from reproduction.store import RunFolder, open_run

#: Units of so many seconds or more are begun before all others.
_LONG = 10.0


@dataclass
class Finished:
    """An experiment all of whose units were run: its table, and the units that failed."""

    experiment: Experiment
    rows: list[Row]
    records: list[Record]

    @property
    def failures(self) -> list[Record]:
        """The units that failed."""
        return [record for record in self.records if record.failure is not None]


class Watcher:
    """Told what happens in a run; this one keeps silent."""

    def started(self, pending: Sequence[Unit], n_done: int, n_workers: int) -> None:
        """So many units are there already, these are to be run."""

    def unit_finished(self, record: Record) -> None:
        """A unit is on disk."""

    def experiment_finished(self, finished: Finished) -> None:
        """The last unit of an experiment is on disk, and so is its table."""


@dataclass
class _Progress:
    """An experiment under way."""

    experiment: Experiment
    order: list[str]
    records: dict[str, Record]
    pending: list[Unit] = field(default_factory=list)
    missing: int = 0


def run_experiments(
    experiments: Sequence[Experiment],
    folder: str | Path,
    settings: Settings | None = None,
    executor: Executor | None = None,
    watcher: Watcher | None = None,
) -> list[Finished]:
    """Run experiments, or what a run that was stopped has left of them.

    Parameters
    ----------
    experiments : sequence of Experiment
    folder : path
        The run folder; made if it is not there, resumed if it is.
    settings : Settings
        Seed, scale and data; a folder can only be resumed with the seed and scale it was begun
        with.
    executor : Executor
        Where units are run; by default here, one after the other.
    watcher : Watcher
        Told what happens.

    Returns
    -------
    list of Finished
        One per experiment, in the order given. Units that failed are listed there; a later run
        tries them again.
    """
    settings = settings or Settings()
    watcher = watcher or Watcher()
    runs: Executor = executor or Serial()
    with open_run(Path(folder), settings) as run:
        under_way = {one.name: _begin(run, one) for one in experiments}
        tasks = [
            Task(progress.experiment.protocol, unit, settings)
            for progress in under_way.values()
            for unit in progress.pending
        ]
        # The long ones first, so that no worker is left with one at the end; the others experiment
        # by experiment, so that what is stopped early has whole tables.
        tasks.sort(key=lambda task: -task.unit.cost if task.unit.cost >= _LONG else 0.0)
        n_done = sum(len(progress.order) for progress in under_way.values()) - len(tasks)
        watcher.started([task.unit for task in tasks], n_done, runs.n_workers)
        done = {
            name: _finish(run, one, watcher) for name, one in under_way.items() if not one.missing
        }
        with closing(cast(Any, runs.records(tasks))) as records:
            for record in records:
                progress = under_way[record.unit.experiment]
                run.add(progress.experiment, record)
                progress.records[record.unit.key] = record
                progress.missing -= 1
                watcher.unit_finished(record)
                if not progress.missing:
                    done[record.unit.experiment] = _finish(run, progress, watcher)
    return [done[one.name] for one in experiments]


def _begin(run: RunFolder, experiment: Experiment) -> _Progress:
    units = experiment.units(run.settings.scale)
    kept = run.begin(experiment)
    records = {key: record for key, record in kept.items() if record.failure is None}
    pending = sorted(
        (unit for unit in units if unit.key not in records), key=lambda unit: -unit.cost
    )
    return _Progress(experiment, [unit.key for unit in units], records, pending, len(pending))


def _finish(run: RunFolder, progress: _Progress, watcher: Watcher) -> Finished:
    # In the order of the definition, not of the clock: the same table whoever finished first.
    records = [progress.records[key] for key in progress.order]
    finished = Finished(progress.experiment, progress.experiment.rows(records), records)
    run.write_table(progress.experiment, finished.rows)
    watcher.experiment_finished(finished)
    return finished
