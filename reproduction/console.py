"""A run on the terminal: a bar and the time left while it lasts, a table per experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from reproduction.experiment import Record, Unit
from reproduction.rows import AWAY, Row
from reproduction.runner import Finished, Watcher

#: Metrics a paper's table prints; the others are in the file.
_SHOWN = ("accuracy", "mse", "error", "sv_percent", "total_cost", "explained_variance_2")
_CAPTION = (
    "In brackets the published figure; = within, ≠ beyond two standard errors of the difference."
)
_QUICK = " A quick look: few folds on few samples, not to be held against the papers."


class Estimate:
    """The time left, from the guesses of the definitions and, as they come in, from the times seen.

    A unit whose cell has been seen is expected to take what the others of its cell took. For the
    rest the guesses are stretched by how far they were off so far.

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


class ConsoleWatcher(Watcher):
    """Shows how far a run is on stderr, if that is a terminal, and one line per experiment in any
    case."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self.n_done = self.n_units = 0

    def started(self, pending: Sequence[Unit], n_done: int, n_workers: int) -> None:
        """Draw the bar."""
        self._estimate = Estimate(pending, n_workers)
        self.n_done, self.n_units = n_done, n_done + len(pending)
        self._task = self._progress.add_task("", total=1.0, text=self._text())
        if n_done:
            self._progress.console.print(
                f"{n_done} of {self.n_units} units are there already.", highlight=False
            )

    def unit_finished(self, record: Record) -> None:
        """Move the bar."""
        assert self._task is not None
        self._estimate.add(record)
        self.n_done += 1
        share = self._estimate.done / max(self._estimate.done + self._estimate.work_left, 1e-9)
        self._progress.update(self._task, completed=share, text=self._text())

    def experiment_finished(self, finished: Finished) -> None:
        """Say so in one line."""
        seconds = sum(record.seconds for record in finished.records)
        failed = f", {len(finished.failures)} failed" if finished.failures else ""
        self._progress.console.print(
            f"{finished.experiment.name}: {len(finished.records)} units{failed}, {seconds:.0f} s of"
            " work",
            highlight=False,
        )

    def _text(self) -> str:
        left = self._estimate.seconds_left
        rest = "" if left is None else f", about {timedelta(seconds=round(left))} left"
        return f"{self.n_done}/{self.n_units} units{rest}"


@contextmanager
def watching() -> Iterator[ConsoleWatcher]:
    """Give a watcher whose bar goes away with the block."""
    columns = BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[text]}")
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield ConsoleWatcher(progress)


def print_table(finished: Finished, quick: bool = False, console: Console | None = None) -> None:
    """Print what the paper's table prints, one line per method, and say where the other figures
    are."""
    console = console or Console()
    findings = finished.experiment.findings(finished.rows)
    # Of a study its verdicts only: it has as many tables as candidates.
    among = (AWAY,) if findings else _SHOWN
    metrics = [metric for metric in among if any(row.metric == metric for row in finished.rows)]
    title = f"{finished.experiment.name}: {finished.experiment.title}"
    table = Table(
        title=title,
        title_justify="left",
        caption=_CAPTION + _QUICK * quick,
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    for name in ("data set", "method", "kernels", "chosen"):
        table.add_column(name)
    for metric in metrics:
        table.add_column(metric, justify="right")
    for lines in _by_cell(finished.rows):
        figures = {row.metric: _figure(row) for row in lines}
        if figures.keys() & set(metrics):
            first = lines[0]
            shown = (figures.get(metric, "") for metric in metrics)
            table.add_row(first.dataset, first.method, first.kernels, first.setting, *shown)
    if table.row_count:
        console.print(table)
    for sentence in findings:
        console.print(sentence + "\n", highlight=False, markup=False)
    others = [row for row in finished.rows if row.metric not in metrics]
    if others:
        compared = [row.within for row in others if row.within is not None]
        beside = (
            f", {len(compared)} of them beside published ones, {sum(compared)} within"
            if compared
            else ""
        )
        kinds = "" if findings else " (weights, times and tests)"
        console.print(
            f"{len(others)} more figures{kinds}{beside} are in {finished.experiment.name}.csv.\n",
            highlight=False,
        )


def _by_cell(rows: Sequence[Row]) -> list[list[Row]]:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.dataset, row.method, row.kernels), []).append(row)
    return list(groups.values())


def _figure(row: Row) -> str:
    ours = _number(row.mean, row.std)
    if row.published is None:
        return ours
    mark = {True: " =", False: " ≠", None: ""}[row.within]
    return f"{ours} [{_number(row.published, row.published_std)}]{mark}".replace("[", "\\[")


def _number(mean: float, std: float | None) -> str:
    return f"{mean:.2f}" if std is None else f"{mean:.2f}±{std:.2f}"
