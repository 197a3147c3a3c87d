"""What the studies share: their command line, what is kept of a run, tables in Markdown, a line
about the machine."""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from joblib import Parallel, delayed, parallel_config

TOP = Path(__file__).parents[1]
#: Where the tables are committed from which the pages are made, with the pages beside them, and
#: where the pictures are.
TABLES, IMAGES = TOP / "docs" / "studies", TOP / "docs" / "images"
OVERVIEW = TOP / "docs" / "studies.md"

Row = dict[str, Any]


def arguments(
    about: str,
    *,
    device: bool = False,
    groups: Sequence[str] = (),
    again: bool = False,
    runs: bool = False,
) -> argparse.Namespace:
    """Read the command line of a study; some have fits for a GPU, groups of methods, or tables from
    several runs."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument(
        "--data",
        help="folder with the study's files; else the environment variable KERNELMOSAIC_DATA",
    )
    parser.add_argument(
        "--output",
        default="kernelmosaic-studies",
        help="folder of the run; an existing one is resumed",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes that compute, 2 by default")
    parser.add_argument("--only", nargs="*", default=[], help="of the data sets, only these")
    if groups:
        parser.add_argument(
            "--groups",
            nargs="*",
            choices=groups,
            default=list(groups),
            help=(
                "of the groups of methods, only these; what the committed tables have of the others"
                " stays"
            ),
        )
    if again:
        parser.add_argument("--again", action="store_true", help="run what is done, too")
    if device:
        parser.add_argument(
            "--device",
            help="where exact fits of many samples run: cuda; without it they are left out",
        )
    if runs:
        parser.add_argument(
            "--splits", nargs="*", type=int, default=[], help="of the splits, only these, from 0"
        )
        parser.add_argument(
            "--tables",
            nargs="+",
            metavar="RUN",
            help="write tables and page from the runs in these folders; run nothing",
        )
    parser.add_argument(
        "--page",
        action="store_true",
        help="make the page from the committed tables, and run nothing",
    )
    return parser.parse_args()


def main(
    about: str,
    run: Callable[[argparse.Namespace], None],
    write_page: Callable[[], None],
    **has: Any,
) -> None:
    """Run a study as its command line says, or make its page; `has` as in `arguments`."""
    options = arguments(about, **has)
    if options.page:
        write_page()
    else:
        run(options)


def page_of(name: str, overview: Path = OVERVIEW) -> Path:
    """Return the path of a study's page, which lies beside its tables."""
    return overview.with_suffix("") / f"{name}.md"


def head_of(name: str) -> str:
    """Return the comment at the top of a study's page."""
    return f"<!-- Made by `python studies/{name}.py --page` from docs/studies/{name}*.csv. -->\n\n"


def overview_cells(name: str, overview: Path = OVERVIEW) -> tuple[str, ...]:
    """Return what the table of docs/studies.md has beside the link to a study: ours, the best
    other, the verdict."""
    lines = overview.read_text(encoding="utf-8").splitlines()
    return tuple(lines[_line_of(name, lines)][2:-2].split(" | ")[1:])


def write_page(name: str, text: str, cells: Sequence[str], overview: Path = OVERVIEW) -> None:
    """Write a study's page, and its line in the table of docs/studies.md, whose first cell
    stays."""
    page = page_of(name, overview)
    page.write_text(head_of(name) + text, encoding="utf-8")
    lines = overview.read_text(encoding="utf-8").splitlines(keepends=True)
    at = _line_of(name, lines)
    link = lines[at][2:].split(" | ")[0]
    lines[at] = markdown([link, *cells], []).splitlines()[0] + "\n"
    overview.write_text("".join(lines), encoding="utf-8")
    print(f"{page} and its line in {overview} are made.")


def _line_of(name: str, lines: Sequence[str]) -> int:
    return next(
        k
        for k, line in enumerate(lines)
        if line.startswith("| [") and f"](studies/{name}.md) |" in line
    )


def data_file(folder: str | None, name: str) -> Path:
    """Return the path of a file of the data folder, or end with a sentence that says how to name
    it."""
    given = folder or os.environ.get("KERNELMOSAIC_DATA")
    if not given:
        raise SystemExit(
            "Name the folder with the data by --data FOLDER or the environment variable"
            " KERNELMOSAIC_DATA."
        )
    path = Path(given) / name
    if not path.exists():
        raise SystemExit(f"{path} does not exist; docs/studies.md says where {name} is from.")
    return path


class Store:
    """One line of JSON a finished unit: a stopped run goes on where it was."""

    def __init__(self, folder: str, name: str) -> None:
        self.path = Path(folder) / f"{name}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.units: dict[str, Any] = {}
        for line in (
            self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else ()
        ):
            try:
                unit = json.loads(line)
            except ValueError:  # the line under way when the run was stopped
                continue
            self.units[unit["unit"]] = unit["found"]

    def add(self, unit: str, found: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            # A stopped run may have left half a line.
            file.write(("\n" if file.tell() else "") + json.dumps({"unit": unit, "found": found}))
        self.units[unit] = found

    def missing(self, units: Iterable[str]) -> list[str]:
        return [unit for unit in units if unit not in self.units]


def in_parallel(
    jobs: int, work: Callable[..., Any], calls: Iterable[tuple[Any, ...]]
) -> Iterator[Any]:
    """Return what `work` makes of each tuple of arguments, the first done first; one thread a
    process computes."""
    with parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        each = Parallel(return_as="generator_unordered", batch_size=1)
        return cast("Iterator[Any]", each(delayed(work)(*one) for one in calls))


@contextmanager
def cpu_time(into: Row, name: str) -> Iterator[None]:
    """Add the CPU seconds of this process, all of its threads, to an entry."""
    start = time.process_time()
    yield
    into[name] = into.get(name, 0.0) + time.process_time() - start


def write_table(name: str, rows: Sequence[Row]) -> None:
    TABLES.mkdir(exist_ok=True)
    with (TABLES / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def update_table(name: str, rows: Sequence[Row], keys: Sequence[str]) -> None:
    """Write rows to a committed table; those that have other entries under the keys than all of
    them stay above."""
    new, kept = {tuple(str(row[key]) for key in keys) for row in rows}, []
    path = TABLES / f"{name}.csv"
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            kept = [
                row for row in csv.DictReader(file) if tuple(row[key] for key in keys) not in new
            ]
    write_table(name, [*kept, *rows])


def read_table(name: str) -> list[Row]:
    """Return the rows of a committed table, numbers as numbers."""
    with (TABLES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [{key: _number(value) for key, value in row.items()} for row in csv.DictReader(file)]


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def markdown(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def machines(table: str) -> str:
    """Name the machines of a committed table, each once; one with a GPU also covers its fits
    without it."""
    names = dict.fromkeys(str(row["machine"]) for row in read_table(table))
    return " and ".join(
        one for one in names if not any(other.startswith(f"{one}; ") for other in names)
    )


def met(reached: bool) -> str:
    return "met" if reached else "missed"


def different(p: float) -> str:
    """Say whether a test shows a difference at 5 %."""
    return "significantly different" if p < 0.05 else "no significant difference"


def p_text(p: float) -> str:
    """Return a p-value as one reads it."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def machine() -> str:
    """Name what the times depend on."""
    import numpy
    import scipy
    import sklearn

    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            processor = next(
                line.split(":")[1].strip() for line in info if line.startswith("model name")
            )
    except (OSError, StopIteration):
        pass
    packages = ", ".join(
        f"{package.__name__} {package.__version__}" for package in (numpy, scipy, sklearn)
    )
    return f"{processor}, {os.cpu_count()} cores; Python {platform.python_version()}, {packages}"


def device_name(device: str | None) -> str:
    """Name the GPU, or return what is given, or nothing."""
    if not device or not device.startswith("cuda"):
        return device or ""
    import torch

    return str(torch.cuda.get_device_name(device))
