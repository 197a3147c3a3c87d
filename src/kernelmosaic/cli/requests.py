"""The options of every command: the name, type, default, help and check of each."""

# ruff: noqa: RUF009 (`option` returns a field)

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter
from typing import Any, Literal, get_type_hints

import typer

from kernelmosaic.files import replaceable_file

TaskName = Literal["classification", "regression", "one-class", "survival", "multi-label"]
MethodName = Literal["mkl", "localized", "bilinear", "discriminant", "rmkl", "ridge"]
LossName = Literal["cox", "censored", "rank"]

# Checks of one option -----------------------------------------------------------------------------


def _refuse_unless(holds: Callable[[Any], bool], message: str) -> Callable[[Any], Any]:
    """Return a check that refuses values for which a condition does not hold.

    Parameters
    ----------
    holds : callable
        The condition.
    message : str
        The error, a format of the value.
    """

    def check(value: Any) -> Any:
        """Return a value for which the condition holds, or None."""
        if value is not None and not holds(value):
            raise typer.BadParameter(message.format(value))
        return value

    return check


_positive = _refuse_unless(
    lambda value: 0 < value < float("inf"), "{:g}: give a positive, finite number."
)
_finite = _refuse_unless(lambda value: value < float("inf"), "{:g}: give a finite number.")
_share = _refuse_unless(lambda value: 0 < value < 1, "{:g}: give a number between 0 and 1.")
_parts = _refuse_unless(
    lambda value: value != 1,
    "1 part leaves nothing to learn from; give at least 2, or 0 for no cross-validation.",
)


def _writable_file(path: Path | None) -> Path | None:
    """Return a path; refuse one that could not be written at the end of the command."""
    if path is None:
        return None
    try:
        target = replaceable_file(path)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    try:
        # Permissions alone do not tell whether a folder can be written to.
        with TemporaryFile(dir=target.parent):
            pass
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError
    except OSError:
        raise typer.BadParameter(f"{path} cannot be written; give another path.") from None
    return path


_TABLE_ENDINGS = (".csv", ".tsv", ".txt", ".parquet")


def _model_file(path: Path | None) -> Path | None:
    """Return the path of a model file; refuse endings that tables, arrays and pages have."""
    if path and path.suffix.lower() in (*_TABLE_ENDINGS, ".npz", ".npy", ".html"):
        raise typer.BadParameter(
            f"{path} is not the name of a model file; give one such as {path.stem}.skops."
        )
    return _writable_file(path)


def _table_file(path: Path | None) -> Path | None:
    """Return the path of a table; refuse endings that no table has."""
    if path and not path.is_dir() and path.suffix.lower() not in _TABLE_ENDINGS:
        raise typer.BadParameter(f"{path}: the name must end in .csv, .tsv or .parquet.")
    return _writable_file(path)


# Options ------------------------------------------------------------------------------------------


def option(default: Any, help: str, *names: str, **settings: Any) -> Any:
    """Return a field of a request that is an option of the command line.

    Parameters
    ----------
    default : object
        An option whose default is an empty tuple is repeatable.
    help : str
    *names : str
        Such as ``--output`` and ``-o``. Without names an option is called like its field; a
        repeatable one in the singular, ``--view`` of ``views``.
    **settings
        Further arguments of `typer.Option`.
    """
    return field(
        default=default, metadata={"typer": typer.Option, "names": names, "help": help, **settings}
    )


def argument(help: str, **settings: Any) -> Any:
    """Return a field of a request that is an argument, without a name to type."""
    return field(metadata={"typer": typer.Argument, "help": help, **settings})


_on = partial(
    option,
    None,
    "Column that names the rows; a --view may then be a file with it.",
    metavar="COLUMN",
)
_drop_empty = partial(option, False, "Leave out rows without any view; they are listed.")
_report = partial(option, None, "Where to write a report, an HTML page.", callback=_writable_file)
_seed = partial(option, min=0, max=2**32 - 1)
_output = partial(
    option,
    None,
    "Where to write: .csv, .tsv or .parquet. Default: print.",
    "--output",
    "-o",
    callback=_table_file,
)


# Commands -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableRequest:
    """Options of every command that learns from a table."""

    path: Path = argument("Table to learn from: .csv, .tsv, .parquet or .npz.", metavar="TRAIN")
    target: str | None = option(
        None, "Column that is left out; the report shows it.", metavar="COLUMN"
    )
    views: tuple[str, ...] = option(
        (),
        "Columns and their kernels, such as shape=fac_*:linear+gauss*5; with --on also"
        " NAME=FILE:KERNEL. Repeatable; guessed if left out.",
        metavar="NAME=PATTERN:KERNEL",
    )
    view_file: Path | None = option(
        None,
        'The same in JSON: {"shape": {"columns": ["fac_*"], "kernel": "gauss*5"}}.',
        "--views",
        metavar="FILE",
    )
    gene_sets: str | None = option(
        None,
        "A .gmt file: every set of genes that are columns, of the table or of a VIEW, is a view."
        " Kernel: gauss.",
        metavar="[VIEW=]FILE[:KERNEL]",
    )
    on: str | None = _on()
    impute: Literal["none", "median", "frequent", "views"] = option(
        "none",
        "Fill empty cells: median of numbers, or the most frequent; views: the median, but wholly"
        " empty views stay missing. Categories: the most frequent.",
    )
    kernels: tuple[str, ...] = option(
        (), "A square kernel matrix, its rows as in the table. Repeatable.", metavar="NAME=FILE"
    )
    rows: str | None = option(
        None, "Column with each row's 0-based index in the matrices.", metavar="COLUMN"
    )
    drop: tuple[str, ...] = option(
        (), "Columns to leave out, by name or glob. Repeatable.", metavar="PATTERN"
    )
    drop_empty: bool = _drop_empty()

    @property
    def names_views(self) -> bool:
        """Whether the user names views; otherwise they are guessed."""
        return bool(self.views) or self.view_file is not None or self.gene_sets is not None


@dataclass(frozen=True)
class FitRequest(TableRequest):
    """Options of ``kernelmosaic fit``.

    `task` and `method` may be None until `methods.with_method` sets them. Two fields are no
    options: `reason`, why the method is mkl where ridge is the default, and `started`, the time at
    which the command began, by `perf_counter`.
    """

    target: str | None = option(
        None,
        "Column to predict; several columns of 0 and 1, separated by commas, are labels.",
        metavar="COLUMN",
    )
    event: str | None = option(
        None,
        "Survival: column of the event, 1 if observed at the time in --target, 0 if censored.",
        metavar="COLUMN",
    )
    method: MethodName | None = option(
        None,
        "How the kernels are combined. Default: ridge for classes or numbers; mkl with --C, --norm,"
        " --epsilon, --rule, --cost or --folds, and for other tasks; discriminant for several"
        " labels.",
    )
    task: TaskName | None = option(None, "Guessed from the target if left out.")
    C: float | None = option(
        None,
        "Penalty for errors (kappa of bilinear, alpha of discriminant and ridge). Default: by"
        " cross-validation; for ridge, learned.",
        callback=_positive,
    )
    norm: float | None = option(
        None,
        "1: few kernels; above, such as 2: all of them. Default: mkl chooses 1, 2 or equal weights"
        " by cross-validation; 1 with --folds 0 or --cost, and of rmkl and one-class.",
        min=1.0,
        callback=_finite,
    )
    epsilon: float | None = option(
        None,
        "Regression, and censored survival: errors up to this are not penalised.",
        min=0.0,
        callback=_finite,
    )
    loss: LossName | None = option(
        None,
        "Survival: hazards by Cox's partial likelihood, censored regression on log times, or ranks."
        " Default: cox; with --epsilon, censored.",
    )
    criterion: Literal["auto", "loo", "evidence"] | None = option(
        None,
        "Ridge: the criterion, leave-one-out error or evidence. Default: auto, which is loo, or"
        " with few rows for each kernel the evidence if it is clearly better on rows that its"
        " weights had not seen.",
    )
    rule: Literal["best", "one-standard-error"] | None = option(
        None,
        "Which C is chosen: that of the best score, or the smoothest model within one standard"
        " error of it. Ties go to the smoothest model. Default: best.",
    )
    groups: str | None = option(
        None,
        "Ridge: rows with equal values here, such as those of a patient, are left out together.",
        metavar="COLUMN",
    )
    nu: float = option(0.1, "One-class: share of rows that may be novel.", min=0.001, max=1.0)
    costs: tuple[str, ...] = option(
        (), "Penalty on a view or kernel, for mkl and rmkl. Repeatable.", metavar="NAME=FACTOR"
    )
    test: float = option(0.0, "Share of the rows to hold out and score on.", min=0.0, max=0.9)
    folds: int | None = option(
        None,
        "Folds of the cross-validation that chooses C, one path of fits per fold; 0: none. Default:"
        " 5; ridge needs none.",
        "--folds",
        "--cv",
        min=0,
        max=50,
        callback=_parts,
    )
    seed: int | None = _seed(
        None,
        "Seed of test rows, random starts and shuffled folds. Default: 0, and folds in the order of"
        " the rows.",
    )
    jobs: int = option(1, "Folds computed at the same time; -1: all processors.", min=-1)
    proba: bool = option(False, "Also fit class probabilities.")
    output: Path = option(
        Path("model.skops"), "Where to write the model.", "--output", "-o", callback=_model_file
    )
    report: Path | None = _report()
    resamples: int = option(
        0,
        "With --report: test by so many permutations whether each view adds to the others.",
        min=0,
    )
    reason: str = ""
    started: float = field(default_factory=perf_counter)


@dataclass(frozen=True)
class EmbedRequest(TableRequest):
    """Options of ``kernelmosaic embed``."""

    weights: Literal["screen", "equal", "statis"] = option(
        "screen",
        "Of the views: equal for those that depend on another one, equal for all, or by STATIS.",
    )
    components: int | None = option(
        None, "Coordinates. Default: 2; of clusters, twice their number.", min=1
    )
    seed: int = _seed(0, "Seed of random starts.")
    ids: tuple[str, ...] = option(
        (), "Column to carry over to the output. Repeatable.", metavar="COLUMN"
    )
    output: Path | None = _output()
    model: Path | None = option(None, "Where to write the model.", callback=_model_file)
    report: Path | None = _report()


@dataclass(frozen=True)
class ClusterRequest(EmbedRequest):
    """Options of ``kernelmosaic cluster``."""

    clusters: int | None = option(
        None, "Number of clusters. Default: suggested by the graph of neighbours.", min=1
    )
    embedding: Literal["kernel", "graph"] = option("kernel", "What clusters are found in.")


@dataclass(frozen=True)
class NewRowsRequest:
    """Options of every command that applies a model to a table."""

    model: Path = argument("Model file, from `kernelmosaic fit`.")
    path: Path = argument("Table with the model's columns, in any order.", metavar="new")
    output: Path | None = _output()
    ids: tuple[str, ...] = option(
        (), "Column to carry over to the output. Repeatable.", metavar="COLUMN"
    )
    views: tuple[str, ...] = option(
        (), "With --on: a view of the new rows. Repeatable.", metavar="NAME=FILE"
    )
    on: str | None = _on()
    drop_empty: bool = _drop_empty()
    kernels: tuple[str, ...] = option(
        (),
        "Similarities of the new rows (down) to the training rows. Repeatable.",
        metavar="NAME=FILE",
    )


@dataclass(frozen=True)
class PredictRequest(NewRowsRequest):
    """Options of ``kernelmosaic predict``."""

    scores: bool = option(False, "Add decision values and each kernel's share.")
    proba: bool = option(False, "Add the probability of each class, in columns p_CLASS.")
    interval: float | None = option(
        None,
        "Ridge: add intervals with this share of targets inside, such as 0.9.",
        callback=_share,
    )


@dataclass(frozen=True)
class ExplainRequest(NewRowsRequest):
    """Options of ``kernelmosaic explain``."""

    report: Path | None = _report()
    row: int | None = option(
        None,
        "The row that the report draws. Default: the first that lacks a view, or the first.",
        min=1,
    )


@dataclass(frozen=True)
class InspectRequest:
    """Options of ``kernelmosaic inspect``."""

    model: Path = argument("Model file, from `kernelmosaic fit` or `kernelmosaic.save`.")
    as_json: bool = option(False, "Print JSON instead of tables.", "--json")


@dataclass(frozen=True)
class DemoRequest:
    """Options of ``kernelmosaic demo``."""

    seed: int = _seed(0, "Seed of the training and test samples.")
    samples: int = option(120, "Training samples.", min=20, max=5000)
    report: Path = option(
        Path("kernelmosaic-demo.html"),
        "Where to write the report, an HTML page.",
        callback=_writable_file,
    )


def command(run: Callable[[Any], None]) -> Callable[..., None]:
    """Return a function that Typer reads as a command.

    Its parameters are the fields of a request that are options or arguments; it makes the request
    of their values and calls `run`.

    Parameters
    ----------
    run : callable
        With one parameter, called ``request`` and annotated with the class of the request.
    """
    request_class = get_type_hints(run)["request"]
    hints = get_type_hints(request_class)
    parameters = []
    repeatable = []
    for request_field in fields(request_class):
        name = request_field.name
        default = request_field.default
        hint = hints[name]
        settings = dict(request_field.metadata)
        if not settings:  # neither an option nor an argument
            continue
        make = settings.pop("typer")
        option_names = settings.pop("names", ()) or [f"--{name.replace('_', '-')}"]
        if default == ():
            repeatable.append(name)
            # Typer repeats options that are lists.
            hint = list[str] | None
            default = None
            option_names = [option_names[0].removesuffix("s")]
        if default is MISSING:
            declaration = make(..., **settings)
        else:
            declaration = make(default, *option_names, **settings)
        parameters.append(
            Parameter(name, Parameter.KEYWORD_ONLY, default=declaration, annotation=hint)
        )

    # The function gets the docstring of `run` below, which Typer shows as the help text.
    def call(**values: Any) -> None:
        for name in repeatable:
            values[name] = tuple(values[name] or ())
        run(request_class(**values))

    # Typer reads the name, the help text, the types and the defaults of a command from these.
    call.__name__ = run.__name__
    call.__doc__ = run.__doc__
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__dict__["__signature__"] = Signature(parameters)
    return call
