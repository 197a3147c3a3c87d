"""``kernelmosaic inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelmosaic.cli._needs import need
from kernelmosaic.cli._paths import existing_file


def inspect(
    model: Annotated[Path, typer.Argument(help="Model file, from `kernelmosaic fit` or `kernelmosaic.save`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Say what is in a model file: kernels and weights, gates, support vectors, cost, gap, columns, version."""
    need("skops", "persistence")
    existing_file(model, "a model file")
    import json

    from kernelmosaic.cli._model import core, describe, kernel_shares, load_model

    estimator = load_model(model)
    found = describe(estimator, model)
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from kernelmosaic.cli._inspection import lines
    from kernelmosaic.cli._rich_output import print_facts, print_shares

    print_facts(str(model), lines(found))
    print_shares(kernel_shares(core(estimator)), found["gates"])
