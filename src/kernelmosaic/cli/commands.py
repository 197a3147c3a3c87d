"""The commands, and mistakes in what was typed in one line; the work is done elsewhere."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelmosaic import __version__
from kernelmosaic.cli import requests
from kernelmosaic.files import existing_file


def fit(request: requests.FitRequest) -> None:
    """Learn a model from a table: kernels on groups of columns, weighted by the model."""
    _check_files(request)
    from kernelmosaic.cli.fit import publish, train_table

    trained = train_table(request)
    if request.report is None:
        publish(trained)
    else:
        from kernelmosaic.cli.report import make_page

        publish(trained, make_page)


def predict(request: requests.PredictRequest) -> None:
    """Predict the rows of a table. If it has the target column, the score is printed as well."""
    _check_files(request)
    from kernelmosaic.cli.predict import run_prediction

    run_prediction(request)


def explain(request: requests.ExplainRequest) -> None:
    """Show how much each kernel contributes to the decision on every row, as a table and optionally
    as a page."""
    _check_files(request)
    from kernelmosaic.cli.predict import run_explanation

    run_explanation(request)


def _check_files(
    request: requests.FitRequest | requests.EmbedRequest | requests.NewRowsRequest,
) -> None:
    """Refuse inputs that are not there, outputs that are inputs, and one file for two outputs."""
    _need_skops()
    inputs = {request.path: "a table"}
    if isinstance(request, requests.NewRowsRequest):
        inputs = {request.model: "a model file"} | inputs
    elif request.view_file is not None:
        inputs[request.view_file] = "a JSON file"
    read = [existing_file(path, what) for path, what in inputs.items()]
    if request.on is not None:
        from kernelmosaic.cli.training_table import parse_file_view

        read += [parse_file_view(text)[1] for text in request.views]
    read += [Path(text.partition("=")[2]) for text in request.kernels]
    report = getattr(request, "report", None)
    model = request.model if isinstance(request, requests.EmbedRequest) else None
    for option, written in (("--output", request.output), ("--report", report), ("--model", model)):
        for path in read:
            if (
                written is not None
                and written.exists()
                and os.path.exists(path)
                and written.samefile(path)
            ):
                raise ValueError(
                    f"{option} {written}: this file is read, and would be overwritten; give another"
                    " name."
                )
    if report is not None and report == request.output:
        what = "model" if isinstance(request, requests.FitRequest) else "table"
        raise ValueError(f"--report {report}: the {what} is written there; give another name.")


def _need_skops() -> None:
    """Raise naming the extra that installs skops, if it is not there."""
    if find_spec("skops") is None:
        raise ImportError('This command needs skops: pip install "kernelmosaic[persistence]"')


def embed(request: requests.EmbedRequest) -> None:
    """Place the rows of a table, by all of its views and without labels, in a few coordinates."""
    _check_files(request)
    from kernelmosaic.cli.fit import run_unlabelled

    run_unlabelled(request)


def cluster(request: requests.ClusterRequest) -> None:
    """Find clusters of the rows of a table, by all of its views and without labels."""
    embed(request)


def inspect(request: requests.InspectRequest) -> None:
    """Show what is in a model file: kernels and weights, gates, support vectors, cost, gap,
    columns, version."""
    _need_skops()
    existing_file(request.model, "a model file")
    from kernelmosaic.cli.output import show_model

    show_model(request)


def demo(request: requests.DemoRequest) -> None:
    """Compare views alone, their equal and their learned sum on generated patients, in under a
    minute."""
    from rich.console import Console

    from kernelmosaic.cli.output import print_table, progress
    from kernelmosaic.demo import CAUSES, COLUMNS, patients, write_report

    with progress(len(CAUSES) + 4) as advance:
        result = patients(request.samples, request.seed, advance=advance)
    print_table(result.title, COLUMNS, result.cells)
    Console().print(result.summary, highlight=False)
    write_report(result, request.report)
    typer.echo(f"Report: {request.report}")


app = typer.Typer(
    help="Multiple kernel learning behind scikit-learn's interface.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def run(argv: Sequence[str] | None = None, commands: typer.Typer = app) -> int:
    """Run a command and return its exit code; see `kernelmosaic.cli.main`."""
    # Typer raises the errors of the argument parser it carries, which is not always importable
    # under one name.
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    given = None if argv is None else list(argv)
    try:
        code = _parser(commands)(args=given, prog_name="kernelmosaic", standalone_mode=False)
    except usage_error as error:
        return _fail(_usage_line(error, sys.argv[1:] if argv is None else argv))
    except OSError as error:
        return _fail(_system_line(error))
    except (ImportError, MemoryError, ValueError) as error:
        return _fail(str(error))
    except Exception as error:
        if os.environ.get("KERNELMOSAIC_TRACEBACK"):
            raise
        # A model of the user's classes may refuse a table by any error.
        _fail(
            f"{type(error).__name__}: {str(error).rstrip('.')}. This error was not foreseen: either"
            " a table holds what the model cannot read, or kernelmosaic is at fault;"
            " KERNELMOSAIC_TRACEBACK=1 shows where it arose."
        )
        return 1
    if code == 130:  # what Typer makes of an interrupt
        print("kernelmosaic: stopped.", file=sys.stderr)
    return code if isinstance(code, int) else 0


@cache
def _parser(commands: typer.Typer) -> Any:
    """Return the commands with their options, which take longer to list than to read."""
    return typer.main.get_command(commands)


def _fail(message: str) -> int:
    print("kernelmosaic:", " ".join(message.split()), file=sys.stderr)
    return 2


def _usage_line(error: Any, arguments: Sequence[str]) -> str:
    """Return what Typer's parser refused, with the value, which its own message may leave out.

    Parameters
    ----------
    error : UsageError
        Of the parser.
    arguments : sequence of str
        What was typed after the name of the program.
    """
    parameter, message = (
        getattr(error, "param", None),
        str(error.message).removeprefix("Value error, "),
    )
    if parameter is None or not message:
        command = error.ctx.command_path if error.ctx is not None else "kernelmosaic"
        said = error.format_message()
        return (
            f"{said}{'' if said[-1:] in '.?' else '.'} `{command} --help` lists what can be given."
        )
    option, value = _typed(parameter, arguments)
    literal = re.escape(value)
    for words, plain in (  # releases of Typer differ in their words
        (rf"^'?{literal}'? is not a valid float( range)?\.?$", "input should be a valid number"),
        (
            rf"^'?{literal}'? is not a valid int(eger)?( range)?\.?$",
            "input should be a valid integer",
        ),
        (rf"^{literal} is not in the range (.*?)\.?$", r"input should be in the range \1"),
    ):
        message = re.sub(words, plain, message)
    is_there = not value or re.search(rf"(?<![\w.]){literal}(?![\w.])", message) is not None
    given = "" if is_there else f" {value}"
    return f"{option}{given}: {message[:1].lower() + message[1:]}"


def _system_line(error: OSError) -> str:
    """Return what the system refused, without its number, and the notes on it."""
    text = str(error)
    if error.strerror is not None:
        where = "" if error.filename is None else f"{error.filename}: "
        text = f"{where}{error.strerror[:1].lower() + error.strerror[1:]}."
    return " ".join([text, *getattr(error, "__notes__", [])])


def _typed(parameter: Any, arguments: Sequence[str]) -> tuple[str, str]:
    """Return an option as it was typed last, and its value."""
    for i, word in reversed(list(enumerate(arguments))):
        for option in parameter.opts:
            if word == option:
                return option, " ".join(arguments[i + 1 : i + 2])
            if option.startswith("--") and word.startswith(f"{option}="):
                return option, word[len(option) + 1 :]
    return str(parameter.opts[0]), ""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernelmosaic {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for work in (demo, fit, predict, explain, inspect, embed, cluster):
    app.command()(requests.command(work))
