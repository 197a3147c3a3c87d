"""``kernelmosaic report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelmosaic.cli._paths import existing_folder, writable_if_given


def report(
    run: Annotated[
        Path, typer.Argument(help="The run folder, from `kernelmosaic reproduce`, or one of its summaries.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", callback=writable_if_given, help="The page; by default the run's report.html."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data sets, for pictures; else the variable KERNELMOSAIC_DATA.")
    ] = None,
    no_figures: Annotated[bool, typer.Option("--no-figures", help="Tables only.")] = False,
    markdown: Annotated[
        Path | None,
        typer.Option(callback=writable_if_given, help="Write a short page of counts and claims as Markdown instead."),
    ] = None,
    summaries: Annotated[
        Path | None, typer.Option(help="Keep the tables and times in this small folder instead, to report from later.")
    ] = None,
) -> None:
    """Make one page of a run: every table beside the published figures, claims, pictures, times, the machine."""
    existing_folder("--data", data)
    from kernelmosaic.experiments.reading import keep_summaries, read_run

    found = read_run(run)
    if not found.results:
        raise ValueError(f"{run} has no finished table yet; `kernelmosaic reproduce --output {run}` goes on with it.")
    if summaries is not None:
        typer.echo(f"{len(keep_summaries(found, summaries))} files in {summaries}")
    if markdown is not None:
        from kernelmosaic.experiments.markdown import write_markdown

        typer.echo(str(write_markdown(found, markdown)))
    if output is not None or (markdown is None and summaries is None):
        from kernelmosaic.experiments.page import write_page

        if not no_figures:
            typer.echo("Drawing, which may take minutes; pictures in the run folder are not drawn again.", err=True)
        home = None if data is None else str(data.resolve())
        typer.echo(str(write_page(found, output or run / "report.html", home, pictures=not no_figures)))
