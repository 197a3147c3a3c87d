"""Where units are run: here, in other processes, or on a Dask cluster. All hand records back as
they finish."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from signal import SIG_IGN, SIGINT, signal
from threading import current_thread, main_thread
from time import perf_counter
from typing import Any, Self
from typing import Protocol as Interface

from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from kernelmosaic.backend import blas_threads
from reproduction.experiment import Measurement, Protocol, Record, Settings, Unit

#: How often a unit may die with its worker before it counts as failed.
_RETRIES = 3


@dataclass(frozen=True)
class Task:
    """All a process needs to run one unit."""

    protocol: Protocol
    unit: Unit
    settings: Settings


def execute(task: Task) -> Record:
    """Run one unit; what it raises becomes a record too. One thread, so that figures do not hang on
    where it runs."""
    start = perf_counter()
    measurements: list[Measurement] = []
    failure = None
    with threadpool_limits(1), warnings.catch_warnings():
        # Records say what did not converge; lines from many processes would only tear the progress
        # bar.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Nor of scales, which are the protocols' to choose.
        warnings.filterwarnings("ignore", "X: columns", UserWarning)
        blas_threads.cache_clear()
        try:
            measurements = task.protocol.run(task.unit, task.settings)
            failure = _not_finite(measurements)
        except Exception as error:  # whatever it is, the other units go on
            failure = f"{type(error).__name__}: {' '.join(str(error).split())}"
    blas_threads.cache_clear()
    kept = () if failure else tuple(measurements)
    return Record(task.unit, kept, perf_counter() - start, failure)


def _not_finite(measurements: Sequence[Measurement]) -> str | None:
    odd = [one.metric for one in measurements if not math.isfinite(one.value)]
    return f"ValueError: {', '.join(dict.fromkeys(odd))} not finite" if odd else None


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if current_thread() is not main_thread():  # which alone may say so
        yield
        return
    before = signal(SIGINT, SIG_IGN)
    try:
        yield
    finally:
        signal(SIGINT, before)


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
                with (
                    _interrupts_ignored()
                ):  # which the processes started here inherit: interrupts are for this one
                    records = pool(delayed(execute)(task) for task in tasks)
                yield from records
            except BrokenProcessPool as error:
                raise ChildProcessError(
                    f"one of {self.n_workers} processes died, perhaps for want of memory; what was"
                    " finished is kept. Run it again, with fewer processes if this recurs."
                ) from error


@dataclass(frozen=True)
class Cluster:
    """The workers of the scheduler at `address`; ``"local"`` starts `n_workers` processes on this
    machine."""

    address: str
    n_workers: int

    def records(self, tasks: Sequence[Task]) -> Iterator[Record]:
        """Run all tasks; those of a worker that dies are run again by another."""
        from distributed import as_completed

        with ExitStack() as stack:
            client = stack.enter_context(self._connect(stack))
            # Not pure: two runs on one scheduler must not be given each other's results.
            futures = {
                client.submit(execute, task, pure=False, retries=_RETRIES): task for task in tasks
            }
            for future in as_completed(list(futures), loop=client.loop):
                task = futures.pop(future)
                yield self._result(future, task)
                future.release()

    @classmethod
    def at(cls, address: str, jobs: int, timeout: float) -> Self:
        """Return the cluster at an address that answers, with the workers it has; or one of so many
        local ones."""
        if address == "local":
            return cls(address, jobs)
        with _client(address, timeout) as client:
            return cls(address, max(1, len(client.scheduler_info(n_workers=-1)["workers"])))

    def _connect(self, stack: ExitStack) -> Any:
        if self.address != "local":
            return _client(self.address)
        from distributed import Client, LocalCluster

        # Deaths and restarts of workers are dealt with; lines about them would only tear the
        # progress bar.
        quiet = {"dashboard_address": None, "silence_logs": logging.ERROR}
        cluster = LocalCluster(
            n_workers=self.n_workers, threads_per_worker=1, processes=True, **quiet
        )
        stack.enter_context(cluster)
        return Client(cluster, set_as_default=False)

    @staticmethod
    def _result(future: object, task: Task) -> Record:
        try:
            return future.result()  # type: ignore[attr-defined, no-any-return]
        except Exception as error:  # the unit's own errors are records; this one is the cluster's
            return Record(
                task.unit, failure=f"{type(error).__name__}: {' '.join(str(error).split())}"
            )


def _client(address: str, timeout: float = 10) -> Any:
    from distributed import Client

    try:
        return Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OSError(
            f"no Dask scheduler answers at {address!r}; give its address, as tcp://host:8786, or"
            " 'local'."
        ) from error


def make_executor(jobs: int, dask: str | None = None, timeout: float = 10) -> Executor:
    """Return the executor for so many processes, or for the Dask scheduler at an address
    (``"local"``: one here).

    A scheduler has `timeout` seconds to answer.
    """
    if dask is not None:
        if find_spec("distributed") is None:
            raise ImportError('a Dask cluster needs: pip install "kernelmosaic[distribution]"')
        return Cluster.at(dask, jobs, timeout)
    return Serial() if jobs == 1 else Processes(jobs)
