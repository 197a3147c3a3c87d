"""The command line: ``kernelmosaic fit``, ``predict``, ``explain``, ``inspect`` and ``demo``."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.util import find_spec


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 2, and one line on stderr, for what the caller
    can correct."""
    missing = [package for package in ("typer", "rich", "pandas") if find_spec(package) is None]
    if missing:
        needed = ", ".join(missing)
        print(
            f'kernelmosaic: the command line needs {needed}: pip install "kernelmosaic[cli]"',
            file=sys.stderr,
        )
        return 2
    usual = gc.get_threshold()
    gc.set_threshold(
        100_000, *usual[1:]
    )  # the packages that a command loads are many objects and no garbage
    try:
        from kernelmosaic.cli.commands import run

        return run(argv)
    finally:
        gc.set_threshold(*usual)
