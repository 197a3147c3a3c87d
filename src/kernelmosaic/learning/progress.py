"""How far a run is, for `verbose`: a bar where rich is installed, else plain lines on stdout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import log10
from typing import Protocol

#: A context whose value is called with the gap after every iteration.
GapProgress = AbstractContextManager[Callable[[float], None]]


class Advance(Protocol):
    """Says where a run is: in words and, where an end is known, how much of `total` is done."""

    def __call__(self, state: str, completed: float | None = None, total: float | None = None) -> None:
        """Show it."""


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Advance]:
    """Show what runs and how far it is while the block runs; the value is called with every new state."""
    try:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:  # it comes with the extra `cli`
        yield lambda state, completed=None, total=None: print(f"{what}: {state}", flush=True)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn())
    with Progress(*columns) as bar:
        task = bar.add_task(what, total=total, state="")

        def advance(state: str, completed: float | None = None, total: float | None = None) -> None:
            bar.update(task, state=state, completed=completed, total=total)

        yield advance


@contextmanager
def gap_progress(what: str, tol: float) -> Iterator[Callable[[float], None]]:
    """Show how many of the decades from a gap of 1 down to `tol` are done; the value is called with each new gap."""
    with progress(what, max(-log10(tol), 1e-9)) as show:
        count = 0

        def advance(gap: float) -> None:
            nonlocal count
            count += 1
            done = -log10(min(max(gap, tol * 1e-3), 1.0))
            show(f"iteration {count}, gap {gap:.1e} of {tol:.0e}", done)

        yield advance
