"""``kernelmosaic reproduce``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelmosaic.cli._paths import existing_folder, writable_folder

if TYPE_CHECKING:
    from kernelmosaic.experiments import Experiment, Finished


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Experiments to run; --list names them.")
    ] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="Run every experiment.")] = False,
    list_them: Annotated[bool, typer.Option("--list", help="Name the experiments and exit.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A quick look: few folds, small samples.")] = False,
    output: Annotated[Path, typer.Option(help="The run folder; one that is there is resumed.")] = Path(
        "kernelmosaic-run"
    ),
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data sets; else the variable KERNELMOSAIC_DATA names it.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes to run in; 0 means one a core.")] = 0,
    dask: Annotated[
        str | None, typer.Option(help="Run on the Dask scheduler at this address, or on a 'local' cluster.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of everything random.")] = 0,
) -> None:
    """Run tables of the papers again and set them beside the published figures. A stopped run can be resumed."""
    if not list_them:
        if bool(names) == all_of_them:
            raise ValueError("give either the names of experiments or --all; --list names them.")
        existing_folder("--data", data)
        writable_folder("--output", output)
    from kernelmosaic.experiments import EXPERIMENTS, FULL, QUICK, Settings, find_experiments, make_executor

    if list_them:
        _print_list(EXPERIMENTS.values())
        return
    chosen = find_experiments(names or list(EXPERIMENTS))
    home = None if data is None else str(data.resolve())
    settings = Settings(seed, QUICK if quick else FULL, home)
    done = _run(chosen, output, settings, make_executor(jobs or os.cpu_count() or 1, dask))
    _print_results(done, output, quick)


def _run(chosen: list[Experiment], output: Path, settings: Any, executor: Any) -> list[Finished]:
    import warnings

    from kernelmosaic.experiments import run_experiments
    from kernelmosaic.experiments._rich_console import watching

    with watching() as watcher, warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: typer.echo(f"kernelmosaic: {message}", err=True)
        try:
            return run_experiments(chosen, output, settings, executor, watcher)
        except KeyboardInterrupt:
            typer.echo(
                f"kernelmosaic: stopped; {watcher.n_done} of {watcher.n_units} units are kept in {output}. "
                "The same command goes on from there.",
                err=True,
            )
            raise typer.Exit(130) from None


def _print_list(experiments: Any) -> None:
    width = max(len(one.name) for one in experiments)
    for one in experiments:
        typer.echo(f"{one.name:{width}}  {one.title}")


def _print_results(done: list[Finished], output: Path, quick: bool) -> None:
    from kernelmosaic.experiments._rich_console import print_table

    failures: dict[str, list[str]] = {}
    for finished in done:
        print_table(finished, quick)
        for record in finished.failures:
            failures.setdefault(record.failure or "", []).append(record.unit.key)
    typer.echo(f"Tables: {output}")
    for message, keys in failures.items():
        others = f" and {len(keys) - 1} other{'s' * (len(keys) > 2)}" if len(keys) > 1 else ""
        # What a Python program names by an argument, the command line names by an option.
        reason = message.replace("data_home=…", "--data FOLDER")
        typer.echo(f"kernelmosaic: {keys[0]}{others} failed: {reason}", err=True)
    if failures:
        raise typer.Exit(1)
