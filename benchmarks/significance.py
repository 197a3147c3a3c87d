"""Permutation tests of kernels: false positives, power, and how long a thousand permutations take.

    python benchmarks/significance.py [--problems 1000] [--parts null power speed] [--jobs 1] [--file FILE]

Every problem is drawn from its own number: 40 samples (null) or 60 (power), five views of five columns, one linear
kernel each, C = 1, gaps of 1 %, 19 permutations, which is the least that can reach p = 0.05.

`null`: labels that have nothing to do with any view; how often p ≤ 0.05 (should be 5 %), and how often that of any view
is, corrected and not. `power`: the labels depend on the first view. In the design "plain" columns are independent, and
the first decides; in the design "factor" a factor of twice their deviation is added to all columns of a view, as the
first component of many assays is, and the labels depend on how the first column differs from the mean of its view.
The plain alignment test, which needs no fit, is beside. `speed`: 1000 samples, 10 Gaussians on views of five columns.

What is done is kept in a file and not done again. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import describe_machine
from joblib import Parallel, delayed

from kernelmosaic import MKLClassifier
from kernelmosaic.inspection import kernel_significance
from kernelmosaic.inspection.significance import p_values
from kernelmosaic.kernels import Gaussian, Linear

VIEWS, COLUMNS, LEVEL = 5, 5, 0.05
#: Samples and strength of the signal, by design.
DESIGNS = {"null": (40, 0.0), "plain": (60, 1.5), "factor": (60, 1.5)}


def draw(design: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples, of shape (n, VIEWS * COLUMNS), and the labels of a problem."""
    n, strength = DESIGNS[design]
    rng = np.random.default_rng([number, list(DESIGNS).index(design)])
    own = rng.standard_normal((n, VIEWS, COLUMNS))
    X = own + (2.0 * rng.standard_normal((n, VIEWS, 1)) if design == "factor" else 0.0)
    signal = own[:, 0, 0] - (own[:, 0].mean(axis=1) if design == "factor" else 0.0)
    y = strength * signal + rng.logistic(size=n) > 0
    return X.reshape(n, -1), y.astype(int)


def kernels(kernel: Any, count: int) -> list[Any]:
    return [(f"view {m}", kernel, list(range(COLUMNS * m, COLUMNS * (m + 1)))) for m in range(count)]


def solve(design: str, number: int) -> dict[str, Any]:
    X, y = draw(design, number)
    model = MKLClassifier(kernels(Linear(), VIEWS), tol=1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = kernel_significance(model, X, y, n_permutations=19, random_state=number)
    pairs = {
        "weight": (found.weights, found.null_weights),
        "alignment": (found.alignments, found.null_alignments),
    }
    record: dict[str, Any] = {"design": design, "number": number}
    for name, pair in pairs.items():
        record[name] = (p_values(*pair) <= LEVEL).tolist()
        record[f"{name}, max"] = (p_values(*pair, "max") <= LEVEL).tolist()
    return record


def run(design: str, problems: int, jobs: int, path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {one["number"]: one for one in lines if one["design"] == design and one["number"] < problems}
    left = [number for number in range(problems) if number not in done]
    results = Parallel(n_jobs=jobs, return_as="generator")(delayed(solve)(design, number) for number in left)
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        for count, record in enumerate(results, start=1):
            done[record["number"]] = record
            print(json.dumps(record), file=file, flush=True)
            if count % 50 == 0:
                print(f"  {design}: {count} of {len(left)}", flush=True)
    return list(done.values())


def percent(hits: Any) -> str:
    """A share of independent problems with its standard error."""
    share = np.mean(hits)
    return f"{100 * share:.1f} ± {100 * np.sqrt(share * (1 - share) / len(hits)):.1f} %"


def show_null(found: list[dict[str, Any]]) -> None:
    print(f"\n{len(found)} null problems: how often p ≤ {LEVEL}\n")
    print('| statistic | one view | any view | any view, `correction="max"` |\n| --- | --- | --- | --- |')
    for name in ("weight", "alignment"):
        hits, corrected = (np.array([one[key] for one in found]) for key in (name, f"{name}, max"))
        # The views of a problem are not independent: the error is that of the problems' means.
        means = hits.mean(axis=1)
        each = f"{100 * means.mean():.1f} ± {100 * means.std() / np.sqrt(len(means)):.1f} %"
        print(f"| {name} | {each} | {percent(hits.any(axis=1))} | {percent(corrected.any(axis=1))} |")


def show_power(design: str, found: list[dict[str, Any]]) -> None:
    for name in ("weight", "alignment"):
        hits = np.array([one[name] for one in found])
        print(f"| {design} | {name} | {percent(hits[:, 0])} | {100 * hits[:, 1:].mean():.1f} % |")


def show_speed(permutations: int, jobs: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 50))
    y = (X[:, 0] + rng.standard_normal(1000) > 0).astype(int)
    model = MKLClassifier(kernels(Gaussian(), 10))
    kernel_significance(model, X, y, n_permutations=2, n_jobs=jobs)  # compiles
    start, cpu = time.perf_counter(), time.process_time()
    kernel_significance(model, X, y, n_permutations=permutations, random_state=0, n_jobs=jobs)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    own = f", {cpu:.1f} CPU seconds" if jobs == 1 else ""
    print(f"\n{permutations} permutations, 1000 samples, 10 Gaussians, {jobs} processes: {wall:.1f} s{own}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--parts", nargs="+", default=["null", "power", "speed"], choices=["null", "power", "speed"])
    parser.add_argument("--permutations", type=int, default=1000, help="of `speed`")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--file", type=Path, default=Path(__file__).parent / "results" / "significance.jsonl")
    args = parser.parse_args()
    print(describe_machine())
    if "null" in args.parts:
        show_null(run("null", args.problems, args.jobs, args.file))
    if "power" in args.parts:
        found = {design: run(design, args.problems // 5, args.jobs, args.file) for design in ("plain", "factor")}
        print(f"\n{args.problems // 5} problems per design: how often p ≤ {LEVEL}\n")
        print("| design | statistic | the view with the signal | each other view |\n| --- | --- | --- | --- |")
        for design, records in found.items():
            show_power(design, records)
    if "speed" in args.parts:
        show_speed(args.permutations, args.jobs)


if __name__ == "__main__":
    main()
