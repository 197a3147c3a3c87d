"""Where units are run: here, in other processes, or on a Dask cluster. All hand records back as they finish."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol as Interface

from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from kernelmosaic.experiments.experiment import Protocol
from kernelmosaic.experiments.units import Measurement, Record, Settings, Unit
from kernelmosaic.gram.threads import allowed_threads


@dataclass(frozen=True)
class Task:
    """All a process needs to run one unit."""

    protocol: Protocol
    unit: Unit
    settings: Settings


def execute(task: Task) -> Record:
    """Run one unit; what it raises becomes a record too. One thread, so that figures do not hang on where it runs."""
    start = perf_counter()
    measurements: list[Measurement] = []
    failure = None
    with threadpool_limits(1), warnings.catch_warnings():
        # Records say what did not converge; lines from many processes would only tear the progress bar.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Nor of scales, which are the protocols' to choose.
        warnings.filterwarnings("ignore", "X: columns", UserWarning)
        allowed_threads.cache_clear()
        try:
            measurements = task.protocol.run(task.unit, task.settings)
            failure = _not_finite(measurements)
        except Exception as error:  # whatever it is, the other units go on
            failure = f"{type(error).__name__}: {' '.join(str(error).split())}"
    allowed_threads.cache_clear()
    kept = () if failure else tuple(measurements)
    return Record(task.unit, kept, perf_counter() - start, failure)


def _not_finite(measurements: Sequence[Measurement]) -> str | None:
    odd = [one.metric for one in measurements if not math.isfinite(one.value)]
    return f"ValueError: {', '.join(dict.fromkeys(odd))} not finite" if odd else None


class Executor(Interface):
    """Runs tasks and yields their records in the order in which they finish."""

    @property
    def n_workers(self) -> int:
        """How many units run at a time, for the estimate of the time left."""

    def records(self, tasks: Sequence[Task]) -> Iterator[Record]:
        """Run all tasks."""


@dataclass(frozen=True)
class Serial:
    """One after the other, in this process."""

    n_workers: int = 1

    def records(self, tasks: Sequence[Task]) -> Iterator[Record]:
        """Run all tasks."""
        yield from map(execute, tasks)


@dataclass(frozen=True)
class Processes:
    """Several at a time, in processes of this machine."""

    n_workers: int

    def records(self, tasks: Sequence[Task]) -> Iterator[Record]:
        """Run all tasks."""
        from joblib import Parallel, delayed, parallel_config
        from joblib.externals.loky.process_executor import BrokenProcessPool

        with parallel_config(backend="loky", inner_max_num_threads=1):
            # One task at a time: a batch would be written only when its last task is done.
            pool = Parallel(n_jobs=self.n_workers, batch_size=1, return_as="generator_unordered")
            try:
                yield from pool(delayed(execute)(task) for task in tasks)
            except BrokenProcessPool as error:
                raise ChildProcessError(
                    f"one of {self.n_workers} processes died, perhaps for want of memory; what was finished is kept. "
                    "Run it again, with fewer processes if this recurs."
                ) from error


def make_executor(jobs: int, dask: str | None = None) -> Executor:
    """Return the executor for so many processes, or for the Dask scheduler at an address (``"local"``: one here)."""
    if dask is not None:
        try:
            from kernelmosaic.experiments._distributed_cluster import Cluster
        except ImportError as error:
            raise ImportError('a Dask cluster needs: pip install "kernelmosaic[distribution]"') from error
        return Cluster.at(dask, jobs)
    return Serial() if jobs == 1 else Processes(jobs)
