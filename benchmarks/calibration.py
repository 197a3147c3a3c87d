"""What probabilities are worth, and what they cost: `calibration` and the CV estimators against
CalibratedClassifierCV.

    PYTHONPATH=. python benchmarks/calibration.py [--data FOLDER] [--splits 5] [--quick]
    PYTHONPATH=. python benchmarks/calibration.py --data FOLDER --train 300 [--splits 5] [--sets
    vehicle segment]

Reads the sets from the folder that `--data` or the environment variable KERNELMOSAIC_DATA names;
without it, those that come with scikit-learn. At most 700 samples of a set count. Half of them
trains, in repeated stratified splits; columns are standardised by the training half. Log-loss and
Brier score (summed over the classes) of the other half, and seconds of the fit, are means over the
splits; the last rows are means over the sets, times geometric ones, in plain fits.

With `--train`, sets of the folder have so many training samples and all others for testing, and the
log-losses of `"sigmoid"` and `"isotonic"` are compared: the standard error is that of the mean
difference over the splits.

Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import describe_machine, geometric_mean
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler

from kernelmosaic import DiscriminantMKLClassifier, MKLClassifier, MKLClassifierCV
from reproduction.data import load

LOADED: dict[str, Callable[..., Any]] = {
    "wdbc": load_breast_cancer,
    "wine": load_wine,
    "iris": load_iris,
    "digits": load_digits,
}
READ = ("heart", "ionosphere", "sonar", "pima", "german_numeric", "liver", "vehicle", "segment")
#: With `--train`.
COMPARED = (
    "german_numeric",
    "pima",
    "australian",
    "wdbc",
    "breast_cancer_original",
    "banana",
    "vehicle",
    "segment",
    "waveform",
    "spambase",
    "ringnorm",
    "satimage",
    "pendigits",
)
MOST = 700
PLAIN = "`MKLClassifier()`, no probabilities"
METHODS: dict[str, Callable[[], Any]] = {
    PLAIN: lambda: MKLClassifier(),
    '`MKLClassifier(calibration="sigmoid")`': lambda: MKLClassifier(calibration="sigmoid"),
    '`MKLClassifier(calibration="isotonic")`': lambda: MKLClassifier(calibration="isotonic"),
    "`CalibratedClassifierCV`, `ensemble=False`": lambda: CalibratedClassifierCV(
        MKLClassifier(), cv=5, ensemble=False
    ),
    "`CalibratedClassifierCV`, `ensemble=True`": lambda: CalibratedClassifierCV(
        MKLClassifier(), cv=5, ensemble=True
    ),
    "`DiscriminantMKLClassifier()`": lambda: DiscriminantMKLClassifier(),
    "`MKLClassifierCV(Cs=8)`": lambda: MKLClassifierCV(Cs=8),
}


def read_sets(folder: Path | None, quick: bool) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    sets = {name: make(return_X_y=True) for name, make in LOADED.items()}
    for name in () if folder is None else READ:
        found = load(name, data_home=folder)
        sets[name] = found.data, found.target
    chosen = {}
    for name, (X, y) in list(sets.items())[: 2 if quick else None]:
        rows = np.random.RandomState(0).permutation(len(y))[:MOST]
        chosen[name] = (
            np.asarray(X, dtype=np.float64)[rows],
            np.unique(y, return_inverse=True)[1][rows],
        )
    return chosen


def figures(make: Callable[[], Any], X: np.ndarray, y: np.ndarray, splits: int) -> list[float]:
    """Return log-loss, Brier score and seconds, means over the splits."""
    found = []
    for train, test in StratifiedShuffleSplit(splits, test_size=0.5, random_state=0).split(X, y):
        scaler = StandardScaler().fit(X[train])
        model, A = make(), scaler.transform(X[train])
        start = time.perf_counter()
        model.fit(A, y[train])
        seconds = time.perf_counter() - start
        if not hasattr(model, "predict_proba"):
            found.append([np.nan, np.nan, seconds])
            continue
        p = model.predict_proba(scaler.transform(X[test]))
        brier = np.mean(np.sum((p - np.eye(p.shape[1])[y[test]]) ** 2, axis=1))
        found.append([log_loss(y[test], p, labels=model.classes_), brier, seconds])
    return [float(value) for value in np.mean(found, axis=0)]


def compare_methods(names: list[str], folder: Path | None, n_train: int, splits: int) -> None:
    """Print the mean log-losses of both methods on every set, and their difference with its
    standard error."""
    print(
        "| set | tested | sigmoid | isotonic | difference | standard error |\n| --- | --- | --- |"
        " --- | --- | --- |"
    )
    for name in names:
        data = load(name, data_home=folder)
        X = np.asarray(data.data, dtype=np.float64)
        y = np.unique(data.target, return_inverse=True)[1]
        n_test = len(y) - n_train
        splitter = StratifiedShuffleSplit(
            splits, train_size=n_train, test_size=n_test, random_state=0
        )
        losses = np.empty((splits, 2))
        for row, (train, test) in zip(losses, splitter.split(X, y), strict=True):
            scaler = StandardScaler().fit(X[train])
            X_train, X_test = scaler.transform(X[train]), scaler.transform(X[test])
            for k, method in enumerate(("sigmoid", "isotonic")):
                model = MKLClassifier(calibration=method).fit(X_train, y[train])
                row[k] = log_loss(y[test], model.predict_proba(X_test), labels=model.classes_)
        sigmoid, isotonic = losses.mean(axis=0)
        differences = losses[:, 1] - losses[:, 0]
        error = differences.std(ddof=1) / splits**0.5
        cells = f"{sigmoid:.4f} | {isotonic:.4f} | {differences.mean():+.4f} | {error:.4f}"
        print(f"| {name} | {n_test} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = os.environ.get("KERNELMOSAIC_DATA")
    parser.add_argument("--data", type=Path, default=Path(folder) if folder else None)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two sets")
    parser.add_argument(
        "--train", type=int, help="so many training samples; compare sigmoid and isotonic"
    )
    parser.add_argument("--sets", nargs="+", default=list(COMPARED), help="with --train")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", UserWarning)
    if options.train is not None:
        compare_methods(options.sets, options.data, options.train, options.splits)
        return
    sets = read_sets(options.data, options.quick)
    for make in METHODS.values():  # compiled before anything is timed
        for X, y in list(sets.values())[:2]:
            make().fit(StandardScaler().fit_transform(X[:100]), y[:100])
    table = np.empty((len(METHODS), len(sets), 3))
    for j, (X, y) in enumerate(sets.values()):
        for i, make in enumerate(METHODS.values()):
            table[i, j] = figures(make, X, y, options.splits)
    print(
        f"| log-loss | {' | '.join(sets)} | mean | Brier | time |\n| ---"
        f" |{' --- |' * (len(sets) + 3)}"
    )
    for i, head in enumerate(METHODS):
        cells = [
            f"{value:.3f}" if np.isfinite(value) else ""
            for value in (*table[i, :, 0], *table[i, :, :2].mean(axis=0))
        ]
        print(
            f"| {head} | {' | '.join(cells)} |"
            f" {geometric_mean(table[i, :, 2] / table[0, :, 2]):.1f} |"
        )
    print(f"\nA plain fit takes {geometric_mean(table[0, :, 2]):.3f} s.\n\n{describe_machine()}")


if __name__ == "__main__":
    main()
