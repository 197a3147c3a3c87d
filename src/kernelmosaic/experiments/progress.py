"""How far a run is and how long it will take."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmosaic.experiments.units import Record, Unit


class Estimate:
    """The time left, from the guesses of the definitions and, as they come in, from the times seen.

    A unit whose cell has been seen is expected to take what the others of its cell took. For the rest the guesses are
    stretched by how far they were off so far.

    Parameters
    ----------
    pending : sequence of Unit
        What is to be run.
    n_workers : int
        How many units run at a time.
    """

    def __init__(self, pending: Sequence[Unit], n_workers: int) -> None:
        self._waiting = {unit.key: unit for unit in pending}
        self._n_workers = n_workers
        self._seen: dict[str, list[float]] = {}
        self._guessed = self._taken = 0.0
        self.done = 0.0

    def add(self, record: Record) -> None:
        """Count a finished unit."""
        unit = self._waiting.pop(record.unit.key)
        self._seen.setdefault(unit.cell, []).append(record.seconds)
        self._guessed += unit.cost
        self._taken += record.seconds
        self.done += record.seconds

    @property
    def work_left(self) -> float:
        """The seconds of work that are left, whoever does it."""
        stretch = self._taken / self._guessed if self._guessed > 0 else 1.0
        total = 0.0
        for unit in self._waiting.values():
            seen = self._seen.get(unit.cell)
            total += sum(seen) / len(seen) if seen else stretch * unit.cost
        return total

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the end; None before anything has been seen."""
        if self._waiting and not self._seen:
            return None
        return self.work_left / min(self._n_workers, max(len(self._waiting), 1))
