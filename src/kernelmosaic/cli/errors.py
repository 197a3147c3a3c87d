"""Mistakes on the command line in one line: the option, the value it was given, what would do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import typer

from kernelmosaic.files import replaceable_file

#: How files end that hold data or a page: a model of that name would be taken for one, or replace one.
_NOT_A_MODEL = (".csv", ".tsv", ".txt", ".parquet", ".npz", ".npy", ".html")

#: What a parser says of a number it could not take, and what is said here; the value stands before either.
_PLAIN_WORDS = (
    (r"^'?{value}'? is not a valid float( range)?\.?$", "input should be a valid number"),
    (r"^'?{value}'? is not a valid int(eger)?( range)?\.?$", "input should be a valid integer"),
    (r"^{value} is not in the range (.*?)\.?$", r"input should be in the range \1"),
)


def usage_line(error: Any, arguments: Sequence[str]) -> str:
    """Return what Typer's parser refused, with the value, which its own message may leave out.

    Parameters
    ----------
    error : UsageError
        Of the parser.
    arguments : sequence of str
        What was typed after the name of the program.
    """
    parameter, message = getattr(error, "param", None), str(error.message).removeprefix("Value error, ")
    if parameter is None or not message:
        command = error.ctx.command_path if error.ctx is not None else "kernelmosaic"
        return f"{error.format_message().rstrip('.')}; `{command} --help` says what there is."
    option, value = _typed(parameter, arguments)
    for words, plain in _PLAIN_WORDS:  # releases of Typer differ in their words
        message = re.sub(words.format(value=re.escape(value)), plain, message)
    is_said = re.search(rf"(?<![\w.]){re.escape(value)}(?![\w.])", message) is not None
    given = "" if is_said else f" {value}"
    return f"{option}{given}: {message[:1].lower() + message[1:]}"


def system_line(error: OSError) -> str:
    """Return what the system refused, without its number."""
    if error.strerror is None:
        return str(error)
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror[:1].lower() + error.strerror[1:]}."


@contextmanager
def after_writing(what: str, path: Path | None) -> Iterator[None]:
    """Say, where a file cannot be written, which one is written already."""
    try:
        yield
    except OSError as error:
        written = "" if path is None else f" The {what} is complete: {path}."
        raise OSError(system_line(error) + written) from error


def _typed(parameter: Any, arguments: Sequence[str]) -> tuple[str, str]:
    """An option as it was typed, and its value; an argument's name, and nothing."""
    if parameter.param_type_name == "argument":
        return str(parameter.human_readable_name), ""
    for i, word in enumerate(arguments):
        for option in parameter.opts:
            if word == option:
                return option, " ".join(arguments[i + 1 : i + 2])
            if option.startswith("--") and word.startswith(f"{option}="):
                return option, word[len(option) + 1 :]
    return str(parameter.opts[0]), ""


def need(package: str, extra: str) -> None:
    """Raise naming the extra that brings a package, if it is not there."""
    if find_spec(package) is None:
        raise ImportError(f'This command needs {package}: pip install "kernelmosaic[{extra}]"')


def writable_file(path: Path) -> Path:
    """Refuse a path that could not be written afterwards."""
    if not path.parent.is_dir():
        raise typer.BadParameter(f"the folder {path.parent} does not exist.")
    try:
        target = replaceable_file(path)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    try:
        with TemporaryFile(dir=target.parent):  # permissions alone are no proof
            pass
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError
    except OSError:
        raise typer.BadParameter(f"{path} cannot be written; give another path.") from None
    return path


def writable_if_given(path: Path | None) -> Path | None:
    """Refuse a path that could not be written afterwards, where there is one."""
    return None if path is None else writable_file(path)


def model_file(path: Path) -> Path:
    """Refuse, beside what cannot be written, the name of a table or a page."""
    if path.suffix.lower() in _NOT_A_MODEL:
        raise typer.BadParameter(f"{path} is no name for a model; give one such as {path.stem}.skops.")
    return writable_file(path)


def refuse_overwriting(option: str, output: Path | None, inputs: Iterable[Path]) -> None:
    """Refuse an output that is one of the inputs."""
    for path in inputs:
        if output is not None and os.path.exists(output) and os.path.exists(path) and output.samefile(path):
            raise ValueError(f"{option} {output}: this file is read, and would be overwritten; give another name.")
