"""What intervals of 90 % hold, how wide they are, and what they cost: split, CV+, jackknife+ and
conformal quantiles.

    PYTHONPATH=. python benchmarks/intervals.py [--data FOLDER] [--splits 10] [--quick]

Two generated sets, diabetes and, from the folder that `--data` or the environment variable
KERNELMOSAIC_DATA names, motorcycle, concrete and whitewine. In every random split 200 samples train
(100 of motorcycle), and at most 500 others test. Coverage is the share of the test targets inside;
"narrow" and "wide" have that of the third of the test samples with the narrowest and with the
widest intervals, unless all are of one width. Widths are divided by that of the interval which
holds the central 90 % of the training targets, whatever the columns. CPU seconds are those of the
fit. All are means over the splits. The protocol was fixed before the first run; nothing is chosen
by the test samples.

Prints Markdown, as docs/uncertainty.md has it.
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
from common import describe_machine
from scipy.stats import norm
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ShuffleSplit

from kernelmosaic import MKLRegressorCV, MKLRidgeCV
from kernelmosaic.model_selection import SplitConformal
from reproduction.data import load

COVERAGE = 0.9
SEARCH: dict[str, Any] = {"Cs": 6, "norms": ("uniform",), "cv": 5, "tol": 1e-2, "random_state": 0}
TAILS = [0.05, 0.95]
Intervals = Callable[[Any, np.ndarray], np.ndarray]


def conformal(model: Any, X: np.ndarray) -> np.ndarray:
    return np.asarray(model.predict_interval(X, COVERAGE))


def quantiles(model: Any, X: np.ndarray) -> np.ndarray:
    return np.asarray(model.predict(X))


def process(model: Any, X: np.ndarray) -> np.ndarray:
    mean, deviation = model.predict(X, return_std=True)
    reach = norm.ppf(0.5 + COVERAGE / 2) * deviation
    return np.column_stack([mean - reach, mean + reach])


def machine() -> MKLRegressorCV:
    return MKLRegressorCV(**SEARCH)


def tails() -> MKLRegressorCV:
    return MKLRegressorCV(loss="quantile", quantile=TAILS, **SEARCH)


METHODS: dict[str, tuple[Callable[[], Any], Intervals]] = {
    "support vectors, split": (lambda: SplitConformal(machine(), random_state=0), conformal),
    "support vectors, CV+": (machine, conformal),
    "ridge, split": (lambda: SplitConformal(MKLRidgeCV(), random_state=0), conformal),
    "ridge, jackknife+": (MKLRidgeCV, conformal),
    "ridge, mean ± 1.64 deviations": (MKLRidgeCV, process),
    "quantiles, split (CQR)": (lambda: SplitConformal(tails(), random_state=0), conformal),
    "quantiles, CV+": (tails, conformal),
    "quantiles as they are": (tails, quantiles),
}


def read_sets(folder: Path | None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.RandomState(0)
    line = rng.uniform(0, 5, size=(2000, 1))
    growing = np.sin(2 * line[:, 0]) + (0.05 + 0.2 * line[:, 0]) * rng.standard_normal(2000)
    sets = {
        "growing noise": (line, growing),
        "friedman1": make_friedman1(2000, noise=1.0, random_state=0),
        "diabetes": load_diabetes(return_X_y=True),
    }
    for name in () if folder is None else ("motorcycle", "concrete", "whitewine"):
        found = load(name, data_home=folder)
        sets[name] = (
            np.asarray(found.data, dtype=np.float64),
            np.asarray(found.target, dtype=np.float64),
        )
    return sets


def figures(X: np.ndarray, y: np.ndarray, splits: int) -> np.ndarray:
    """Return coverage, that of narrow and of wide intervals, width and seconds, by split and
    method."""
    n_train = min(200, 100 * (len(y) // 120))
    found = np.empty((splits, len(METHODS), 5))
    for s, (train, rest) in enumerate(
        ShuffleSplit(splits, train_size=n_train, random_state=0).split(X)
    ):
        test = rest[:500]
        usual = float(np.diff(np.quantile(y[train], TAILS))[0])
        fitted: dict[Any, tuple[Any, float]] = {}
        for k, (make, intervals) in enumerate(METHODS.values()):
            if make not in fitted:
                start = time.process_time()
                model = make().fit(X[train], y[train])
                fitted[make] = model, time.process_time() - start
            model, seconds = fitted[make]
            low, high = intervals(model, X[test]).T
            inside, width = (low <= y[test]) & (y[test] <= high), high - low
            narrow, _, wide = (
                one.mean() for one in np.array_split(inside[np.argsort(width, kind="stable")], 3)
            )
            if np.ptp(width) < 1e-6 * width.mean():
                narrow = wide = np.nan
            found[s, k] = inside.mean(), narrow, wide, width.mean() / usual, seconds
    return found


def line(figure: np.ndarray) -> str:
    return f"{100 * figure[0]:.1f} / {figure[3]:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = os.environ.get("KERNELMOSAIC_DATA")
    parser.add_argument("--data", type=Path, default=Path(folder) if folder else None)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="one set, two splits")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", UserWarning)
    sets = read_sets(options.data)
    names = list(sets)[: 1 if options.quick else None]
    every = []
    for name in names:
        every.append(figures(*sets[name], 2 if options.quick else options.splits).mean(axis=0))
        print(f"{name}: {[line(one) for one in every[-1]]}", flush=True)
    print(f"\n| coverage, % / width | {' | '.join(names)} | mean | narrow | wide | CPU s a fit |")
    print(f"| --- |{' --- |' * (len(names) + 4)}")
    for head, own in zip(METHODS, np.array(every).swapaxes(0, 1), strict=True):
        _, narrow, wide, _, seconds = mean = own.mean(axis=0)
        ends = " | ".join("" if np.isnan(one) else f"{100 * one:.1f}" for one in (narrow, wide))
        print(f"| {head} | {' | '.join(map(line, (*own, mean)))} | {ends} | {seconds:.2f} |")
    print(f"\n{describe_machine()}")


if __name__ == "__main__":
    main()
