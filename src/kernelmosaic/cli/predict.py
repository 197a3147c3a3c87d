"""``kernelmosaic predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelmosaic.cli._needs import need
from kernelmosaic.cli._paths import existing_file, refuse_overwriting, writable_file


def _table_file(path: Path | None) -> Path | None:
    if path is None:
        return None
    if not path.is_dir() and path.suffix.lower() not in (".csv", ".tsv", ".txt", ".parquet"):
        raise typer.BadParameter(f"{path}: the name must end in .csv, .tsv or .parquet.")
    return writable_file(path)


def predict(
    model: Annotated[Path, typer.Argument(help="Model file, from `kernelmosaic fit`.")],
    new: Annotated[Path, typer.Argument(help="Table with the model's columns, in any order.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", callback=_table_file, help="Where to write: .csv, .tsv or .parquet. Default: print."
        ),
    ] = None,
    id_columns: Annotated[
        list[str] | None, typer.Option("--id", metavar="COLUMN", help="Column to carry over to the output. Repeatable.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Add decision values and each kernel's share.")] = False,
    kernel: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="Similarities of the new rows (down) to the training rows. Repeatable."),
    ] = None,
) -> None:
    """Predict the rows of a table. If it has the target column, the score is told as well."""
    need("pandas", "frames")
    existing_file(model, "a model file")
    existing_file(new, "a table")
    read = [model, new, *(Path(text.partition("=")[2]) for text in kernel or ())]
    refuse_overwriting("--output", output, read)
    from kernelmosaic.cli._prediction_run import run_prediction

    run_prediction(model, new, output, tuple(id_columns or ()), scores, tuple(kernel or ()))
