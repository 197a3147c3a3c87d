"""The commands, which other modules do, and one line on stderr for a mistake.

The docstring of a command is its help text.
"""

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
    """Refuse missing inputs, outputs that are inputs, and one file for two outputs."""
    _need_skops()
    # 1. The files that are read.
    kinds = {request.path: "a table"}
    if isinstance(request, requests.NewRowsRequest):
        kinds = {request.model: "a model file"} | kinds
    elif request.view_file is not None:
        kinds[request.view_file] = "a JSON file"
    inputs = [existing_file(path, kind) for path, kind in kinds.items()]
    if request.on is not None:
        from kernelmosaic.cli.training_table import parse_file_view

        inputs += [parse_file_view(text)[1] for text in request.views]
    inputs += [Path(text.partition("=")[2]) for text in request.kernels]

    # 2. The files that are written; not every command has each of these options.
    report = getattr(request, "report", None)
    outputs = {"--output": request.output, "--report": report}
    if isinstance(request, requests.EmbedRequest):
        outputs["--model"] = request.model
    for option, output in outputs.items():
        if output is not None and output.exists():
            _refuse_overwriting(option, output, inputs)
    if report is not None and report == request.output:
        content = "table"
        if isinstance(request, requests.FitRequest):
            content = "model"
        raise ValueError(f"--report {report}: the {content} is written there; give another name.")


def _refuse_overwriting(option: str, output: Path, inputs: Sequence[Path]) -> None:
    """Refuse an existing output file that is one of the inputs."""
    for path in inputs:
        if os.path.exists(path) and output.samefile(path):
            raise ValueError(
                f"{option} {output}: this file is read, and would be overwritten; give another"
                " name."
            )


def _need_skops() -> None:
    """Refuse to go on without skops, naming the extra that installs it."""
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
    """Run a command and return its exit code.

    It is 0, 2 for mistakes that the caller can correct, 130 after an interrupt, and 1 for errors
    that were not foreseen. Every error is one line on stderr; with the environment variable
    KERNELMOSAIC_TRACEBACK errors that were not foreseen are raised.

    Parameters
    ----------
    argv : sequence of str or None
        The words after the name of the program; None for those it was started with.
    commands : Typer
    """
    # The parser reads the words of the program itself if it is given None: on Windows it expands
    # the patterns of files among them.
    words = None if argv is None else list(argv)
    # Typer raises the errors of the argument parser it carries, which is not always importable
    # under one name.
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    try:
        code = _parser(commands)(args=words, prog_name="kernelmosaic", standalone_mode=False)
    except usage_error as error:
        if words is None:
            words = sys.argv[1:]
        return _fail(_describe_usage_error(error, words))
    except OSError as error:
        return _fail(_describe_system_error(error))
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
    if code == 130:  # Typer's exit code of an interrupt
        print("kernelmosaic: stopped.", file=sys.stderr)
    return code if isinstance(code, int) else 0


@cache
def _parser(commands: typer.Typer) -> Any:
    """Return the parser of the commands; building it takes longer than parsing."""
    return typer.main.get_command(commands)


def _fail(message: str) -> int:
    """Print an error in one line on stderr, and return exit code 2."""
    print("kernelmosaic:", " ".join(message.split()), file=sys.stderr)
    return 2


#: Messages of the parser, which differ between releases of Typer, as regular expressions of the
#: value that was typed, and the words in their place.
_PARSER_MESSAGES = (
    (r"^'?{value}'? is not a valid float( range)?\.?$", "input should be a valid number"),
    (r"^'?{value}'? is not a valid int(eger)?( range)?\.?$", "input should be a valid integer"),
    (r"^{value} is not in the range (.*?)\.?$", r"input should be in the range \1"),
)


def _describe_usage_error(error: Any, arguments: Sequence[str]) -> str:
    """Return what the parser refused: the option, its value, and what is wrong with it.

    Parameters
    ----------
    error : UsageError
        Of Typer's parser.
    arguments : sequence of str
        The words after the name of the program.
    """
    parameter = getattr(error, "param", None)
    message = str(error.message).removeprefix("Value error, ")
    if parameter is None or not message:
        command = "kernelmosaic"
        if error.ctx is not None:
            command = error.ctx.command_path
        text = error.format_message()
        if text[-1:] not in ".?":
            text += "."
        return f"{text} `{command} --help` lists what can be given."
    option, value = _typed_option(parameter, arguments)
    literal = re.escape(value)
    for pattern, plain in _PARSER_MESSAGES:
        message = re.sub(pattern.replace("{value}", literal), plain, message)
    # The value is added if the message does not have it as a word.
    has_value = not value or re.search(rf"(?<![\w.]){literal}(?![\w.])", message) is not None
    if not has_value:
        option += f" {value}"
    return f"{option}: {message[:1].lower() + message[1:]}"


def _describe_system_error(error: OSError) -> str:
    """Return what the system refused, without its number, and the notes on it."""
    text = str(error)
    if error.strerror is not None:
        where = "" if error.filename is None else f"{error.filename}: "
        text = f"{where}{error.strerror[:1].lower() + error.strerror[1:]}."
    return " ".join([text, *getattr(error, "__notes__", [])])


def _typed_option(parameter: Any, arguments: Sequence[str]) -> tuple[str, str]:
    """Return an option as it was typed, and its value.

    If it was typed twice, the last one counts. If it was not typed, the first name of the option is
    returned without a value.
    """
    for i in reversed(range(len(arguments))):
        word = arguments[i]
        for option in parameter.opts:
            if word == option:
                return option, " ".join(arguments[i + 1 : i + 2])
            if option.startswith("--") and word.startswith(f"{option}="):
                return option, word[len(option) + 1 :]
    return str(parameter.opts[0]), ""


def _print_version(wanted: bool) -> None:
    """Print the version and end the program, if --version is given."""
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
    # Without a command, the help text is printed.
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for command in (demo, fit, predict, explain, inspect, embed, cluster):
    app.command()(requests.command(command))
