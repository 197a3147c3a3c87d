"""Units on a Dask cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from distributed import Client, LocalCluster, as_completed

from kernelmosaic.experiments.executors import Task, execute
from kernelmosaic.experiments.units import Record

#: How often a unit may die with its worker before it counts as failed.
_RETRIES = 3
_SECONDS_TO_ANSWER = 10


@dataclass(frozen=True)
class Cluster:
    """The workers of the scheduler at `address`; ``"local"`` starts `n_workers` processes on this machine."""

    address: str
    n_workers: int

    def records(self, tasks: Sequence[Task]) -> Iterator[Record]:
        """Run all tasks; those of a worker that dies are run again by another."""
        with ExitStack() as stack:
            client = stack.enter_context(self._connect(stack))
            # Not pure: two runs on one scheduler must not be given each other's results.
            futures = {client.submit(execute, task, pure=False, retries=_RETRIES): task for task in tasks}
            for future in as_completed(list(futures), loop=client.loop):
                task = futures.pop(future)
                yield self._result(future, task)
                future.release()

    @classmethod
    def at(cls, address: str, jobs: int) -> Self:
        """Return the cluster at an address that answers, with the workers it has; or one of so many local ones."""
        if address == "local":
            return cls(address, jobs)
        with _client(address) as client:
            return cls(address, max(1, len(client.scheduler_info(n_workers=-1)["workers"])))

    def _connect(self, stack: ExitStack) -> Client:
        if self.address != "local":
            return _client(self.address)
        # Deaths and restarts of workers are dealt with; lines about them would only tear the progress bar.
        quiet = {"dashboard_address": None, "silence_logs": logging.ERROR}
        cluster = LocalCluster(n_workers=self.n_workers, threads_per_worker=1, processes=True, **quiet)
        stack.enter_context(cluster)
        return Client(cluster, set_as_default=False)

    @staticmethod
    def _result(future: object, task: Task) -> Record:
        try:
            return future.result()  # type: ignore[attr-defined, no-any-return]
        except Exception as error:  # the unit's own errors are records; this one is the cluster's
            return Record(task.unit, failure=f"{type(error).__name__}: {' '.join(str(error).split())}")


def _client(address: str) -> Client:
    try:
        return Client(address, timeout=_SECONDS_TO_ANSWER, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OSError(
            f"no Dask scheduler answers at {address!r}; give its address, as tcp://host:8786, or 'local'."
        ) from error
