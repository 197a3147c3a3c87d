"""The command line: ``kernelmosaic demo`` and its relatives. It reads arguments; the work is done elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from kernelmosaic import __version__

app = typer.Typer(
    help="Multiple kernel learning behind scikit-learn's interface.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Typer raises the errors of the argument parser it carries, which is not always importable under one name.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 2, and one line on stderr, for what the caller can mend."""
    try:
        code = app(args=None if argv is None else list(argv), prog_name="kernelmosaic", standalone_mode=False)
    except _UsageError as error:
        return _fail(error.format_message())  # type: ignore[attr-defined]
    except (ImportError, MemoryError, OSError, ValueError) as error:
        return _fail(str(error))
    except (typer.Abort, KeyboardInterrupt):
        print("kernelmosaic: stopped.", file=sys.stderr)
        return 130
    return code if isinstance(code, int) else 0


def _fail(message: str) -> int:
    print("kernelmosaic:", " ".join(message.split()), file=sys.stderr)
    return 2


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernelmosaic {__version__}")
        raise typer.Exit


def _writable_file(path: Path) -> Path:
    """Refuse, before any work is done, a path that could not be written afterwards."""
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; give the name of a file.")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"the folder {path.parent} does not exist.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise typer.BadParameter(f"{path} cannot be written; give another path.")
    return path


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def demo(
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the training and test samples.")] = 0,
    samples: Annotated[int, typer.Option(min=20, max=5000, help="Number of training samples.")] = 600,
    report: Annotated[
        Path, typer.Option(callback=_writable_file, help="Where to write the report, an HTML page.")
    ] = Path("kernelmosaic-demo.html"),
) -> None:
    """Compare kernels, their plain and learned sums and the Bayes rule on a toy problem (GAUSS4), in under a minute."""
    from kernelmosaic._demo_report import write_report
    from kernelmosaic.demo import print_result, run_with_progress

    result = run_with_progress(samples, seed)
    print_result(result)
    write_report(result, report)
    typer.echo(f"Report: {report}")


if __name__ == "__main__":
    sys.exit(main())
