"""The command line: ``kernelmosaic fit``, ``predict``, ``explain`` and others.

Words:

- request: the options of one command, as `requests` declares them
- view specification: a view as the user writes it, ``name=PATTERN:KERNEL``; a view: its columns and
  kernels
- key: the name of a row, the cell in the column of --on
- plan: how columns become what the kernels read; it belongs to the model
- training rows, test rows: rows that a model is fitted to; rows that --test sets aside before
- held-out rows: of the training rows, those that a fit of the cross-validation leaves out
- record: what the model file says of the fit beside the estimator, read by `predict` and `inspect`
- new rows: the rows of a later table, as the model reads them
- fault: cells of a column that cannot be used, the first of them named
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.util import find_spec

#: New objects after which Python searches for garbage while a command runs. The packages that a
#: command loads are many objects and no garbage; with Python's own number, 700 to 2,000, searches
#: would slow down the start. Chosen by hand.
_OBJECTS_BETWEEN_SEARCHES = 100_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Mistakes that the caller can correct are one line on stderr and exit code 2.

    Parameters
    ----------
    argv : sequence of str or None
        The words after the name of the program; None for those it was started with.
    """
    needed = ("typer", "rich", "pandas")
    missing = [package for package in needed if find_spec(package) is None]
    if missing:
        print(
            f"kernelmosaic: the command line needs {', '.join(missing)}: pip install"
            ' "kernelmosaic[cli]"',
            file=sys.stderr,
        )
        return 2
    thresholds = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN_SEARCHES, *thresholds[1:])
    try:
        from kernelmosaic.cli.commands import run

        return run(argv)
    finally:
        gc.set_threshold(*thresholds)
