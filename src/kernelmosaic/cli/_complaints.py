"""Mistakes on the command line in one line: the option, the value it was given, what would do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any


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
    is_said = re.search(rf"(?<![\w.]){re.escape(value)}(?![\w.])", message) is not None
    given = "" if is_said else f" {value}"
    return f"{option}{given}: {message[:1].lower() + message[1:]}"


def system_line(error: OSError) -> str:
    """Return what the system refused, without its number."""
    if error.strerror is None:
        return str(error)
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror[:1].lower() + error.strerror[1:]}."


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
