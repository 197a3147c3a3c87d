"""By how much a learned norm has to score better than equal weights for a search to choose it.

    python benchmarks/learned_norms.py --data FOLDER [--minutes 20] [--splits 2] [--output
    fits.jsonl] python benchmarks/learned_norms.py --tables fits.jsonl

`MKLClassifierCV` chooses a learned norm where its best score exceeds that of equal weights by more
than one standard error of the differences over the folds (`learned_weights_pay` of
`engine/choice.py`). Few samples are where the rule matters: here are the sets of
`studies/few_rows.py`, real ones with one linear or Gaussian kernel per column or cluster, and
generated ones where one or three of 20 or 54 groups of columns inform, or all. Two searches are
fitted to every one, with equal weights alone and with learned norms alone; their scores say what a
rule would have chosen, and samples that were held out say what the choice was worth. Splits are
those of the study with numbers from 100 on, which it has not seen. FOLDER is that of the study.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "studies"))

import few_rows

from kernelmosaic import MKLClassifierCV
from kernelmosaic.kernels import Gaussian, Linear, by_group

FIRST_SPLIT = 100
EQUAL, LEARNED = ("uniform",), (1, 2)

#: From the differences of the folds, learned less equal, to whether learned weights are chosen.
RULES: dict[str, Callable[[np.ndarray], bool]] = {
    "equal weights": lambda differences: False,
    "learned weights": lambda differences: True,
    "best mean": lambda differences: differences.mean() > 0,
    "half an error": lambda differences: differences.mean() > 0.5 * error_of(differences),
    "one error (the rule)": lambda differences: differences.mean() > error_of(differences),
    "two errors": lambda differences: differences.mean() > 2.0 * error_of(differences),
    "better in all folds but one": lambda differences: (
        np.sum(differences > 0) >= len(differences) - 1
    ),
    "no fold worse": lambda differences: differences.mean() > 0 and differences.min() >= 0,
}


def error_of(differences: np.ndarray) -> float:
    """Return the standard error of a mean of differences."""
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))


def units(folder: Path, n_splits: int) -> Iterator[few_rows.Unit]:
    """Yield the sets of two classes, split by split, so that a run that is stopped has something of
    every kind."""
    for split in range(FIRST_SPLIT, FIRST_SPLIT + n_splits):
        for n, n_kernels in few_rows.SIZES:
            for signal in few_rows.SIGNALS:
                yield few_rows.Unit(
                    few_rows.GENERATED, f"{signal} classes", "linear", n, n_kernels, split
                )
        for unit in few_rows.cells(folder, few_rows.REAL):
            yield unit._replace(seed=split)


def best_scores(model: Any) -> np.ndarray:
    """Return the scores of the folds at the norm and C of the best mean."""
    scores = np.concatenate([np.atleast_2d(one).T for one in model.scores_by_norm_.values()])
    means = scores.mean(axis=1)
    return np.asarray(scores[np.nanargmax(means)])


def judge(unit: few_rows.Unit, folder: Path) -> dict[str, Any]:
    """Return the differences of the folds, and the held-out log-loss of both searches."""
    task = few_rows.read_task(unit, folder)
    assert task.groups is not None
    kernels = by_group(Linear() if unit.kernel == "linear" else Gaussian(), task.groups)
    row: dict[str, Any] = {"unit": list(unit), "scores": [], "log_loss": []}
    for norms in (EQUAL, LEARNED):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = MKLClassifierCV(kernels, norms=norms).fit(task.X, task.y)
            row["log_loss"].append(few_rows.judge_classes(model, task, False)["log_loss"])
        row["scores"].append(best_scores(model).tolist())
    return row


def run(options: argparse.Namespace) -> None:
    """Fit what the file lacks, and write a line for each."""
    start = time.monotonic()
    done = {tuple(row["unit"]) for row in read(options.output)}
    for unit in units(options.data, options.splits):
        if time.monotonic() - start > 60 * options.minutes:
            return
        if tuple(unit) not in done:
            with open(options.output, "a") as file:
                print(json.dumps(judge(unit, options.data)), file=file)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the fits of a file; none if there is none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def show(rows: list[dict[str, Any]]) -> None:
    """Print the mean log-loss of every rule, and how often it chooses learned weights."""
    groups = {
        "real": [row for row in rows if row["unit"][0] == few_rows.REAL],
        "one or three inform": [
            row for row in rows if row["unit"][1].split(" ")[0] in ("one", "three")
        ],
        "all inform": [row for row in rows if row["unit"][1].startswith("dense")],
    }
    for name, group in groups.items():
        if len(group) < 2:
            continue
        print(f"{name}: {len(group)} fits")
        for rule, chooses_learned in RULES.items():
            chosen = np.array(
                [chooses_learned(np.subtract(*row["scores"][::-1])) for row in group], dtype=int
            )
            losses = np.array(
                [row["log_loss"][choice] for row, choice in zip(group, chosen, strict=True)]
            )
            gains = np.array([row["log_loss"][0] for row in group]) - losses
            print(
                f"    {rule:30s} log-loss {losses.mean():.4f}, better than equal weights by"
                f" {gains.mean():.4f} ± {error_of(gains):.4f}, learned {100 * chosen.mean():3.0f} %"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with the files of the study")
    parser.add_argument(
        "--minutes", type=float, default=20.0, help="begin no fit after so many minutes"
    )
    parser.add_argument("--splits", type=int, default=2, help="so many of every set")
    parser.add_argument(
        "--output", type=Path, default=Path("learned_norms.jsonl"), help="file of the fits"
    )
    parser.add_argument(
        "--tables", type=Path, help="print what the rules of this file's fits come to; fit nothing"
    )
    options = parser.parse_args()
    if options.tables is None:
        run(options)
    show(read(options.tables or options.output))


if __name__ == "__main__":
    main()
