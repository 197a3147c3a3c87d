"""``python -m reproduction NAME…`` runs tables of the papers again; ``python -m reproduction report
RUN`` reports."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn

from reproduction import (
    EXPERIMENTS,
    FULL,
    QUICK,
    Experiment,
    Finished,
    Scale,
    Settings,
    find_experiments,
    make_executor,
    run_experiments,
)
from reproduction.store import COMMIT

_SEEDS = 2**32


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage: a mistake is one line."""
        raise ValueError(f"{message}; --help says what there is.")


def main(
    argv: Sequence[str] | None = None, catalogue: Mapping[str, Experiment] = EXPERIMENTS
) -> int:
    """Run the command and return its exit code: 2, and one line on stderr, for what the caller can
    mend."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments[:1] == ["report"]:
            return _report(_report_parser().parse_args(arguments[1:]), catalogue)
        return _reproduce(_parser().parse_args(arguments), catalogue)
    except (ImportError, MemoryError, OSError, ValueError) as error:
        return _fail(error, 2)
    except SystemExit as end:  # argparse has printed its help
        return int(end.code or 0)


def _fail(problem: object, code: int) -> int:
    print("reproduction:", " ".join(str(problem).split()), file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m reproduction",
        description=(
            "Run tables of the papers again and set them beside the published figures. A stopped"
            " run can be resumed. `python -m reproduction report RUN` makes one page of a run."
        ),
    )
    add = parser.add_argument
    add("names", metavar="NAME", nargs="*", help="experiments to run; --list names them")
    add("--all", action="store_true", help="run every experiment")
    add("--list", action="store_true", help="name the experiments and exit")
    add("--quick", action="store_true", help="a quick look: few folds, small samples")
    add(
        "--output",
        type=Path,
        default=Path("kernelmosaic-run"),
        help="run folder; one that is there is resumed",
    )
    add(
        "--data",
        type=Path,
        help="folder with the data sets; else the variable KERNELMOSAIC_DATA names it",
    )
    add("--jobs", type=_whole(None), default=0, help="processes to run in; 0 means one per core")
    add(
        "--dask",
        metavar="ADDRESS",
        help="run on the Dask scheduler at this address, or on a 'local' cluster",
    )
    add("--seed", type=_whole(_SEEDS), default=0, help="seed of everything random")
    add("--commit", help=f"commit of the sources, for the page to name; else the variable {COMMIT}")
    add(
        "--plan",
        action="store_true",
        help="print what is to be run and about how long it takes, and exit",
    )
    return parser


def _report_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m reproduction report",
        description=(
            "Make one page of a run: every table beside the published figures, claims, pictures,"
            " times, the machine."
        ),
    )
    add = parser.add_argument
    add(
        "run",
        type=Path,
        help="the run folder, from `python -m reproduction`, or one of its summaries",
    )
    add("--output", "-o", type=_file, help="the page; by default the run's report.html")
    add(
        "--data",
        type=Path,
        help="folder with the data sets, for pictures; else the variable KERNELMOSAIC_DATA",
    )
    add("--no-figures", action="store_true", help="tables only")
    add(
        "--markdown",
        type=_file,
        help=(
            "write a short page of counts and claims as Markdown instead, its long tables beside it"
        ),
    )
    add(
        "--summaries",
        type=Path,
        help="keep the tables and times in this small folder instead, to report from later",
    )
    return parser


def _whole(end: int | None) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if value < 0 or (end is not None and value >= end):
            raise argparse.ArgumentTypeError(
                f"{value} is not in the range from 0{f' to {end - 1}' if end else ''}"
            )
        return value

    read.__name__ = "whole number"  # what argparse calls it where `int` refuses
    return read


def _file(text: str) -> Path:
    """Refuse, before minutes of drawing, a path that could not be written afterwards."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"{path} is not the name of a file in a folder that is there"
        )
    return path


def _data_home(path: Path | None) -> str | None:
    if path is None:
        return None
    if not path.is_dir():
        fault = "this is no folder" if path.exists() else "there is no such folder"
        raise ValueError(f"--data {path}: {fault}; give one that holds the sets as npz files.")
    return str(path.resolve())


def _check_run_folder(path: Path) -> None:
    nearest = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not nearest.is_dir():
        raise ValueError(f"--output {path} is not a folder; give one, or the name of a new one.")
    try:
        with TemporaryFile(dir=nearest):  # permissions alone do not tell
            pass
    except OSError:
        raise ValueError(
            f"--output {path}: nothing can be written there; give another folder."
        ) from None


def _reproduce(given: argparse.Namespace, catalogue: Mapping[str, Experiment]) -> int:
    if given.list:
        width = max(map(len, catalogue))
        for one in catalogue.values():
            print(f"{one.name:{width}}  {one.title}")
        return 0
    if bool(given.names) == given.all:
        raise ValueError("give either the names of experiments or --all; --list names them.")
    chosen = find_experiments(given.names or list(catalogue), catalogue)
    if given.plan:
        return _plan(chosen, QUICK if given.quick else FULL)
    if given.commit:
        os.environ[COMMIT] = given.commit
    home = _data_home(given.data)
    _check_run_folder(given.output)
    executor = make_executor(given.jobs or os.cpu_count() or 1, given.dask)
    from reproduction.console import print_table, watching

    with watching() as watcher, warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print("reproduction:", message, file=sys.stderr)
        settings = Settings(given.seed, QUICK if given.quick else FULL, home)
        try:
            done = run_experiments(chosen, given.output, settings, executor, watcher)
        except KeyboardInterrupt:
            kept = f"{watcher.n_done} of {watcher.n_units} units are kept in {given.output}"
            return _fail(f"stopped; {kept}. The same command goes on from there.", 130)
    for finished in done:
        print_table(finished, given.quick)
    from reproduction.markdown import write_markdown
    from reproduction.reading import read_run

    page = write_markdown(read_run(given.output, catalogue), given.output / "report.md")
    print(f"Tables: {given.output}, and a short page of them: {page}")
    return _print_failures(done)


def _plan(chosen: Sequence[Experiment], scale: Scale) -> int:
    total = 0.0
    for one in chosen:
        costs = [unit.cost for unit in one.units(scale)]
        total += sum(costs)
        print(
            f"{one.name:26}{len(costs):5} units, about {sum(costs):6.0f} s of work, the longest"
            f" {max(costs):4.0f} s"
        )
    print(f"all: about {total / 3600:.1f} hours of work on one core")
    return 0


def _print_failures(done: Sequence[Finished]) -> int:
    failures: dict[str, list[str]] = {}
    for finished in done:
        for record in finished.failures:
            failures.setdefault(record.failure or "", []).append(record.unit.key)
    for message, keys in failures.items():
        others = f" and {len(keys) - 1} other{'s' * (len(keys) > 2)}" if len(keys) > 1 else ""
        # What a Python program names by an argument, the command line names by an option.
        _fail(f"{keys[0]}{others} failed: {message.replace('data_home=…', '--data FOLDER')}", 1)
    return 1 if failures else 0


def _report(given: argparse.Namespace, catalogue: Mapping[str, Experiment]) -> int:
    home = _data_home(given.data)
    from reproduction.reading import keep_summaries, read_run

    found = read_run(given.run, catalogue)
    if not found.results:
        raise ValueError(
            f"{given.run} has no finished table yet; `python -m reproduction --output {given.run}`"
            " goes on."
        )
    if given.summaries is not None:
        print(f"{len(keep_summaries(found, given.summaries))} files in {given.summaries}")
    if given.markdown is not None:
        from reproduction.markdown import write_markdown

        print(write_markdown(found, given.markdown))
    if given.output is not None or (given.markdown is None and given.summaries is None):
        from reproduction.page import make_page
        from reproduction.pictures import DRAWINGS

        if not given.no_figures:
            print(
                "Drawing, which may take minutes; pictures in the run folder are not drawn again.",
                file=sys.stderr,
            )
        page = make_page(found, home, () if given.no_figures else DRAWINGS)
        print(page.write(given.output or given.run / "report.html"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
