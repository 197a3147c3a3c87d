"""A progress bar for runs whose end is a duality gap, not a count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import log10

#: A context whose value is called with the gap after every iteration.
GapProgress = AbstractContextManager[Callable[[float], None]]


@contextmanager
def gap_progress(what: str, tol: float) -> Iterator[Callable[[float], None]]:
    """Show how many of the decades from a gap of 1 down to `tol` are done; the value is called with each new gap."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn())
    with Progress(*columns) as bar:
        task = bar.add_task(what, total=max(-log10(tol), 1e-9), state="")
        count = 0

        def advance(gap: float) -> None:
            nonlocal count
            count += 1
            done = -log10(min(max(gap, tol * 1e-3), 1.0))
            bar.update(task, completed=done, state=f"iteration {count}, gap {gap:.1e} of {tol:.0e}")

        yield advance
