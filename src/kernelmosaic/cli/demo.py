"""``kernelmosaic demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelmosaic.cli._paths import writable_file


def demo(
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the training and test samples.")] = 0,
    samples: Annotated[int, typer.Option(min=20, max=5000, help="Number of training samples.")] = 600,
    report: Annotated[
        Path, typer.Option(callback=writable_file, help="Where to write the report, an HTML page.")
    ] = Path("kernelmosaic-demo.html"),
) -> None:
    """Compare kernels, their plain and learned sums and the Bayes rule on a toy problem (GAUSS4), in under a minute."""
    from kernelmosaic._demo_report import write_report
    from kernelmosaic.demo import print_result, run_with_progress

    result = run_with_progress(samples, seed)
    print_result(result)
    write_report(result, report)
    typer.echo(f"Report: {report}")
