"""The command line, one file a family of commands. They read arguments; the work is done elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from kernelmosaic import __version__
from kernelmosaic.cli._complaints import system_line, usage_line
from kernelmosaic.cli.demo import demo
from kernelmosaic.cli.fit import fit
from kernelmosaic.cli.inspect import inspect
from kernelmosaic.cli.predict import predict

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
        return _fail(usage_line(error, sys.argv[1:] if argv is None else argv))
    except OSError as error:
        return _fail(system_line(error))
    except (ImportError, MemoryError, ValueError) as error:
        return _fail(str(error))
    except (typer.Abort, KeyboardInterrupt):
        print("kernelmosaic: stopped.", file=sys.stderr)
        return 130
    except Exception as error:
        if os.environ.get("KERNELMOSAIC_TRACEBACK"):
            raise
        _fail(f"{type(error).__name__}: {error}. This should not happen; KERNELMOSAIC_TRACEBACK=1 shows where it did.")
        return 1
    return code if isinstance(code, int) else 0


def _fail(message: str) -> int:
    print("kernelmosaic:", " ".join(message.split()), file=sys.stderr)
    return 2


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernelmosaic {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for _command in (demo, fit, predict, inspect):
    app.command()(_command)
