"""The p-value of a view given the others: its level and its power where samples lack views.

    python benchmarks/conditional.py [--draws 1000] [--sizes 60 120 500] [--jobs 16] [--file FILE]
    [--page]

A machine (`MKLRidgeCV` for numbers, `MKLRidgeClassifierCV` for two classes) has the views "first"
and "second", of five columns and a Gaussian each. A share of the samples lacks the second view, and
another such share, drawn separately, the view that is tested; the first is complete.
`conditional_pvalue` has 99 permutations and a Gaussian of the tested view:

- "noise": neither this view nor the others have to do with the targets.
- "repeated": the view is the first one with a little noise; the targets depend on the first and the
  second.
- "signal": independent columns of which the targets depend on one, beside the first and the second.

The share of p-values of at most 0.05 is the level for the first two, and the power for the last.
Every draw has the seed of its own number. A line of the csv file is a cell: rows, targets, share of
samples that lack a view, and the view that is tested. Cells that the file has of the same commit,
with as many draws, are not computed again; lines of other cells are kept. `--page` prints the lines
as a table in Markdown and computes nothing. 1,000 draws of the 36 cells take about 8,000 seconds of
CPU, most of them at 500 rows.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config

from kernelmosaic import MKLRidgeClassifierCV, MKLRidgeCV
from kernelmosaic.inspection import conditional_pvalue
from kernelmosaic.kernels import Gaussian

LEVEL, PERMUTATIONS, COLUMNS = 0.05, 99, 5
TARGETS = ("classes", "numbers")
MISSING = (0.0, 0.2, 0.5)
#: The views that are tested after a fit to targets of one kind.
TESTED = {"noise": ("noise",), "others": ("repeated", "signal")}
#: Deviation of the noise that is added to the first view to repeat it, whose columns have deviation
#: one.
REPETITION_NOISE = 0.3
#: Slope of the targets in one column of the view with signal; their noise has deviation one.
SIGNAL = 0.6
FILE = Path(__file__).parents[1] / "docs" / "benchmarks" / "conditional.csv"
HEAD = (
    "rows",
    "targets",
    "missing",
    "view",
    "draws",
    "share",
    "error",
    "seconds",
    "version",
    "commit",
)
#: What a line is replaced by.
KEY = HEAD[:4]


def draw_targets(random: np.random.Generator, kind: str, score: np.ndarray) -> np.ndarray:
    """Return numbers, or two classes of about the same size, that depend on a score."""
    numbers = score + random.standard_normal(len(score))
    if kind == "numbers":
        return numbers
    return (numbers > np.median(numbers)).astype(int)


def gaussian_with_gaps(view: np.ndarray, lacking: np.ndarray) -> np.ndarray:
    """Return the Gaussian kernel of a view, fitted to the samples that have it, with NaN for those
    that lack it."""
    n = len(view)
    having = np.flatnonzero(~lacking)
    K = np.full((n, n), np.nan)
    kernel = Gaussian().fit(view[having])
    K[np.ix_(having, having)] = kernel(view[having])
    return K


def compute_p_values(
    design: str, n: int, kind: str, missing: float, number: int
) -> tuple[dict[str, float], float]:
    """Return the p-values of the views that are tested after one fit, and the seconds that this
    took."""
    start = time.perf_counter()
    cell = [number, list(TESTED).index(design), n, TARGETS.index(kind), round(100 * missing)]
    random = np.random.default_rng(cell)
    first, second, noise, signal = random.standard_normal((4, n, COLUMNS))
    repeated = first + REPETITION_NOISE * random.standard_normal((n, COLUMNS))
    score = np.zeros(n)
    if design == "others":
        score = first[:, 0] + second[:, 0] + SIGNAL * signal[:, 0]
    y = draw_targets(random, kind, score)

    known = second.copy()
    known[random.random(n) < missing] = np.nan
    X = np.hstack([first, known])
    views = [
        ("first", Gaussian(), list(range(COLUMNS))),
        ("second", Gaussian(), list(range(COLUMNS, 2 * COLUMNS))),
    ]
    estimator = MKLRidgeCV if kind == "numbers" else MKLRidgeClassifierCV
    with warnings.catch_warnings(action="ignore"):
        machine = estimator(views, n_init=1, tol=1e-2).fit(X, y)
    given = machine.kernel_matrix(X)

    lacking = random.random(n) < missing
    samples = {"noise": noise, "repeated": repeated, "signal": signal}
    options = {"n_permutations": PERMUTATIONS, "random_state": number}
    p_values = {}
    for view in TESTED[design]:
        K = gaussian_with_gaps(samples[view], lacking)
        p_values[view] = conditional_pvalue(K, given, machine.dual_coef_, **options)
    return p_values, time.perf_counter() - start


def measure(options: argparse.Namespace, commit: str) -> Iterator[dict[str, Any]]:
    """Yield the line of every cell that the file does not have; the largest sizes come first, as
    they take longest."""
    draws = options.draws
    facts = {"draws": draws, "version": version("kernelmosaic"), "commit": commit}
    cells = product(sorted(options.sizes, reverse=True), TARGETS, MISSING, TESTED)
    lines = read_lines(options.file)
    # Processes are started once for all cells, one thread each.
    with (
        parallel_config("loky", inner_max_num_threads=1),
        Parallel(n_jobs=options.jobs) as parallel,
    ):
        for n, kind, missing, design in cells:
            known = [lines.get((str(n), kind, str(missing), view), {}) for view in TESTED[design]]
            if all(
                (line.get("commit"), line.get("draws")) == (commit, str(draws)) for line in known
            ):
                continue
            tests = parallel(
                delayed(compute_p_values)(design, n, kind, missing, number)
                for number in range(draws)
            )
            seconds = float(np.mean([duration for _, duration in tests]))
            for view in TESTED[design]:
                share = float(np.mean([p_values[view] <= LEVEL for p_values, _ in tests]))
                error = (share * (1.0 - share) / draws) ** 0.5
                figures = {
                    "share": f"{share:.4f}",
                    "error": f"{error:.4f}",
                    "seconds": f"{seconds:.3f}",
                }
                yield (
                    {"rows": n, "targets": kind, "missing": missing, "view": view} | figures | facts
                )


def read_lines(path: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the lines of a file by their cells, none if there is no file."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {tuple(line[name] for name in KEY): line for line in csv.DictReader(file)}


def write_lines(path: Path, lines: dict[tuple[str, ...], dict[str, Any]]) -> None:
    """Write the lines, sorted by their cells."""
    ordered = sorted(lines.items(), key=lambda line: (int(line[0][0]), *line[0][1:]))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEAD, lineterminator="\n")
        writer.writeheader()
        writer.writerows(line for _, line in ordered)


def print_table(lines: dict[tuple[str, ...], dict[str, Any]]) -> None:
    """Print one row per number of rows, targets and share of gaps, with a column per tested
    view."""
    views = [view for tested in TESTED.values() for view in tested]
    print(f"| rows | targets | samples without the view | {' | '.join(views)} |")
    print("| --- | --- | --- |" + " --- |" * len(views))
    for rows, kind, missing in dict.fromkeys(cell[:3] for cell in lines):
        cells = []
        for view in views:
            line = lines.get((rows, kind, missing, view))
            cells.append(
                ""
                if line is None
                else f"{100 * float(line['share']):.1f} ± {100 * float(line['error']):.1f}"
            )
        print(f"| {rows} | {kind} | {100 * float(missing):.0f} % | {' | '.join(cells)} |")


def current_commit() -> str:
    """Return the commit of the working tree, empty outside of one."""
    found = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=1000, help="of every cell")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[60, 120, 500], help="numbers of rows"
    )
    parser.add_argument("--jobs", type=int, default=16, help="processes")
    parser.add_argument(
        "--file",
        type=Path,
        default=FILE,
        help="csv file; docs/benchmarks/conditional.csv by default",
    )
    parser.add_argument("--commit", default="", help="what is measured, where git cannot tell")
    parser.add_argument(
        "--page", action="store_true", help="print the table of the file, and compute nothing"
    )
    options = parser.parse_args()
    if not options.page:
        start = time.perf_counter()
        commit = options.commit or current_commit()
        for line in measure(options, commit):
            lines = read_lines(options.file)
            lines[tuple(str(line[name]) for name in KEY)] = line
            write_lines(options.file, lines)
            print(
                f"{time.perf_counter() - start:6.0f} s ",
                *(line[name] for name in HEAD[:8]),
                flush=True,
            )
    print_table(read_lines(options.file))


if __name__ == "__main__":
    main()
