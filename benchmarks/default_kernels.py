"""Which kernels and which criterion the ridge estimators should have by default: learned widths or
not, by columns.

    python benchmarks/default_kernels.py --data FOLDER [--jobs 2] [--output FILE] [--most-rows 500]
    python benchmarks/default_kernels.py --data FOLDER --confirm --output
    docs/benchmarks/default_kernels_again.csv

FOLDER holds uci_regression.npz and uci_classes.npz (docs/studies.md). Training parts of the first
published split alone are used, at most `--most-rows` samples of each, evenly spread; three shuffled
folds. Sets of more than 30 columns are left out: one width per column is learned there from few
samples each.

Fixed before the first run. Candidates: the default kernels by leave-one-out error and by evidence,
and both with `Gaussian(width="learn", per_column=True)` besides. Figures: root mean squared error
of numbers, log-loss of classes; the primary one is their geometric mean over the sets, relative to
the default kernels by leave-one-out error. A candidate becomes the default if it lowers that by 2 %
or more, is no worse on three sets of four, and takes at most three times as long.

That run left one question: of numbers, one width per column lowers the error by 7 %, is better on
six sets of nine and worse on three by 0.1 % at most, which three sets of four do not allow.
`--confirm` answers it on other samples and other sets, by a rule fixed before it ran: up to 1,000
training samples of the second published split, other folds, and five sets that are made by or come
with scikit-learn. Widths join the default kernels of numbers if they lower the error of the nine by
2 % or more and that of the five not at all worse in the geometric mean, no set is worse by more
than 1 %, and the time is at most three times as long. They did not: naval propulsion was worse by
71 %.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import describe_machine
from joblib import Parallel, delayed
from sklearn.datasets import (
    load_diabetes,
    make_friedman1,
    make_friedman2,
    make_friedman3,
    make_regression,
)
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold

from kernelmosaic import MKLRidgeClassifierCV, MKLRidgeCV
from kernelmosaic.kernels import Gaussian
from kernelmosaic.ridge.kernels import ridge_kernels

FILES = {"numbers": "uci_regression.npz", "classes": "uci_classes.npz"}
CANDIDATES = {
    "loo": ("loo", False),
    "evidence": ("evidence", False),
    "loo, widths": ("loo", True),
    "evidence, widths": ("evidence", True),
}


def of_scikit_learn() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return sets of numbers that come with scikit-learn."""
    return {
        "diabetes": load_diabetes(return_X_y=True),
        "friedman1": make_friedman1(500, noise=1.0, random_state=0),
        "friedman2": make_friedman2(500, noise=100.0, random_state=0),
        "friedman3": make_friedman3(500, noise=0.1, random_state=0),
        "linear": make_regression(500, n_features=20, n_informative=5, noise=20.0, random_state=0),
    }


def read(
    data: Path, kind: str, most_rows: int, split: int = 0
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the training samples of every set."""
    found = {}
    with np.load(data / FILES[kind]) as file:
        for name in map(str, file["names"]):
            X, y = file[f"{name}_X"].astype(np.float64), file[f"{name}_y"]
            if kind == "numbers":
                train = np.setdiff1d(np.arange(len(y)), file[f"{name}_test_{split}"])
            else:
                train = file[f"{name}_train_{split}"]
            train = train[np.linspace(0, len(train) - 1, min(len(train), most_rows)).astype(int)]
            X, y = X[train], y[train]
            X = X[:, X.min(axis=0) < X.max(axis=0)]
            if (
                X.shape[1] <= 30
                and len(y) >= 60
                and (kind == "numbers" or np.bincount(y).min() >= 6)
            ):
                found[name] = X, y
    return found


def measure(
    kind: str, name: str, X: np.ndarray, y: np.ndarray, candidate: str, seed: int = 0
) -> dict[str, Any]:
    """Return the figure of one candidate on one set, and the seconds of its fits."""
    criterion, with_widths = CANDIDATES[candidate]
    kernels = [
        *ridge_kernels(),
        *([Gaussian(width="learn", per_column=True)] if with_widths else []),
    ]
    folds = StratifiedKFold if kind == "classes" else KFold
    values, start = [], time.process_time()
    for train, test in folds(3, shuffle=True, random_state=seed).split(X, y):
        make = MKLRidgeClassifierCV if kind == "classes" else MKLRidgeCV
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make(kernels, criterion=criterion, random_state=0).fit(X[train], y[train])
            if kind != "classes":
                values.append(float(np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2))))
            else:
                values.append(
                    float(log_loss(y[test], model.predict_proba(X[test]), labels=model.classes_))
                )
    seconds = time.process_time() - start
    return {
        "kind": kind,
        "set": name,
        "samples": len(y),
        "columns": X.shape[1],
        "candidate": candidate,
        "figure": float(np.mean(values)),
        "seconds": seconds,
    }


def main() -> None:
    """Fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most-rows", type=int, default=500)
    parser.add_argument("--output", type=Path, default=Path("docs/benchmarks/default_kernels.csv"))
    parser.add_argument(
        "--confirm", action="store_true", help="the second question, on other samples and sets"
    )
    chosen = parser.parse_args()
    print(describe_machine())
    if chosen.confirm:
        sets = {
            "numbers": read(chosen.data, "numbers", 1000, split=1),
            "scikit-learn": of_scikit_learn(),
        }
        candidates = ["loo", "loo, widths"]
    else:
        sets = {kind: read(chosen.data, kind, chosen.most_rows) for kind in FILES}
        candidates = list(CANDIDATES)
    units = [
        (kind, name, X, y, candidate, int(chosen.confirm))
        for kind, own in sets.items()
        for name, (X, y) in own.items()
        for candidate in candidates
    ]
    units.sort(key=lambda unit: -len(unit[3]))
    rows = Parallel(chosen.jobs, batch_size=1)(delayed(measure)(*unit) for unit in units)
    rows.sort(key=lambda row: (row["kind"], row["set"], row["candidate"]))
    with chosen.output.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {**row, "figure": f"{row['figure']:.5g}", "seconds": f"{row['seconds']:.2f}"}
            for row in rows
        )
    for kind in sets:
        own = {(row["set"], row["candidate"]): row for row in rows if row["kind"] == kind}
        names = sorted({name for name, _ in own})
        for candidate in candidates:
            pairs = [(own[name, candidate], own[name, "loo"]) for name in names]
            ratios = np.array([a["figure"] / b["figure"] for a, b in pairs])
            times = np.array([a["seconds"] / b["seconds"] for a, b in pairs])
            print(
                f"{kind}, {len(names)} sets, {candidate}: {np.exp(np.mean(np.log(ratios))):.4f} of"
                f" the figure of loo, no worse on {np.mean(ratios <= 1.0):.0%}, at most"
                f" {ratios.max():.4f} of it, {np.exp(np.mean(np.log(times))):.2f} times the time"
            )


if __name__ == "__main__":
    main()
