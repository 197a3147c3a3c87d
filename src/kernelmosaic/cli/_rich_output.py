"""What the terminal shows: tables on stdout; notes and, on a terminal only, a progress bar on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernelmosaic.cli._model import KernelShare, weight_texts

#: Weights below this print as zero.
_NOTHING = 5e-5


def say(*, note: str) -> None:
    """Print one line on stderr."""
    import sys

    print("kernelmosaic:", " ".join(note.split()), file=sys.stderr)


@contextmanager
def progress(total: int) -> Iterator[Callable[[str, int], None]]:
    """Show a bar of that many steps while the block runs; the value is called with what is done and how far."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what, done: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("preparing", total=total)

        def advance(what: str, done: int) -> None:
            bar.update(task, description=what, completed=done or bar.tasks[0].completed)

        yield advance


def print_facts(title: str, facts: Sequence[tuple[str, str]]) -> None:
    """Print what was found, a line each."""
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(_plain(name), _plain(value))
    Console().print(table, highlight=False)


def print_shares(shares: Sequence[KernelShare], gates: Any = None) -> None:
    """Print the kernels that count, the heaviest first."""
    counted = sorted((s for s in shares if s.share >= _NOTHING), key=lambda s: -s.share)
    table = Table(title="Kernels", title_justify="left")
    table.add_column("kernel", overflow="fold")
    for name in ("mean gate" if gates else "weight", "share %", *(("gate, 10 % to 90 %",) if gates else ())):
        table.add_column(name, justify="right")
    texts = weight_texts(list(shares))
    for share in counted:
        low, _, high = gates[share.name] if gates else (0.0, 0.0, 0.0)
        extra = (f"{low:.3f} to {high:.3f}",) if gates else ()
        table.add_row(_plain(share.name), texts[share.name], f"{100 * share.share:.1f}", *extra)
    console = Console()
    console.print(table, highlight=False)
    left = len(shares) - len(counted)
    if left:
        console.print(f"{left} of {len(shares)} kernels have weight 0.", highlight=False)


def _plain(text: str) -> Any:
    """A text whose brackets are not taken for markup."""
    from rich.text import Text

    return Text(text)
