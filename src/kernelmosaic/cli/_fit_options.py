"""The options of ``kernelmosaic fit``, one a line of its help."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kernelmosaic.cli._paths import model_file, writable_if_given


class MethodName(StrEnum):
    """How the kernels are combined."""

    mkl = "mkl"
    localized = "localized"
    bilinear = "bilinear"
    discriminant = "discriminant"
    rmkl = "rmkl"


class TaskName(StrEnum):
    """What is learned."""

    classification = "classification"
    regression = "regression"
    one_class = "one-class"


def _positive(value: float | None) -> float | None:
    if value is not None and not 0 < value < float("inf"):
        raise typer.BadParameter(f"{value:g} is not a positive number.")
    return value


def _finite(value: float | None) -> float | None:
    if value is not None and value == float("inf"):
        raise typer.BadParameter("inf is not a finite number.")
    return value


def _not_one(value: int) -> int:
    if value == 1:
        raise typer.BadParameter("1 part leaves nothing to learn from; give at least 2, or 0 for no cross-validation.")
    return value


Train = Annotated[Path, typer.Argument(help="Table to learn from: .csv, .tsv, .parquet or .npz.")]
Target = Annotated[str | None, typer.Option(metavar="COLUMN", help="What to predict.")]
View = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=PATTERN:KERNEL",
        help="Columns and their kernels, such as shape=fac_*:linear+gauss*5. Repeatable; guessed if left out.",
    ),
]
Kernel = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=FILE", help="A square kernel matrix, its rows as in the table. Repeatable."),
]
Rows = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Where each row's number, from 0, in the matrices is.")
]
Drop = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Columns to leave out, by name or glob. Repeatable.")
]
Method = Annotated[MethodName, typer.Option(help="How the kernels are combined.")]
Task = Annotated[TaskName | None, typer.Option(help="Guessed from the target if left out.")]
Price = Annotated[
    float | None,
    typer.Option(
        "--C",
        callback=_positive,
        help="Price of errors (kappa of bilinear, alpha of discriminant). Default: by cross-validation.",
    ),
]
Norm = Annotated[float, typer.Option(min=1.0, callback=_finite, help="1: few kernels; above, such as 2: all of them.")]
Epsilon = Annotated[
    float | None, typer.Option(min=0.0, callback=_finite, help="Regression: errors up to this are free.")
]
Nu = Annotated[float, typer.Option(min=0.001, max=1.0, help="One-class: share of rows that may be novel.")]
Cost = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=FACTOR", help="Penalty on a view or kernel, for mkl and rmkl. Repeatable."),
]
Test = Annotated[float, typer.Option(min=0.0, max=0.9, help="Share of the rows to hold out and score on.")]
Folds = Annotated[int, typer.Option(min=0, max=50, callback=_not_one, help="Parts of the cross-validation; 0: none.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of folds, test rows and random starts.")]
Jobs = Annotated[int, typer.Option(min=-1, help="Fits at the same time; -1 for all processors.")]
Output = Annotated[Path, typer.Option("--output", "-o", callback=model_file, help="Where to write the model.")]
Report = Annotated[Path | None, typer.Option(callback=writable_if_given, help="Where to write a report, an HTML page.")]
