"""Survival: the concordance of MKLSurvival beside that of scikit-survival's kernel machine, and how
long fits take.

    pip install scikit-survival python benchmarks/survival.py [--splits 5] [--sets whas500 gbsg2]
    [--parts concordance speed agreement]

The sets are those that scikit-survival ships with events that are true or false, but for flchain,
whose columns tell the cause of death. Categories become indicators, and columns are standardised by
the training samples. In repeated splits, stratified by event, 70 % of the samples train; both
machines choose their regulariser by the same three stratified folds of these:
`FastKernelSurvivalSVM` among 7 values of alpha, from 2⁻¹² to 2¹², and otherwise as it is by default
(a ranking objective, the Gaussian kernel); `MKLSurvival` among 7 values of C and three norms, with
the default kernels. The concordance of the other samples is scikit-survival's.

`speed`: fits of 50 kernels to 500 samples. `agreement`: our concordance against scikit-survival's.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import best_time, describe_machine
from sklearn.model_selection import GridSearchCV, StratifiedKFold, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sksurv import datasets
from sksurv.column import encode_categorical
from sksurv.metrics import concordance_index_censored
from sksurv.svm import FastKernelSurvivalSVM

from kernelmosaic import MKLSurvival
from kernelmosaic.kernels import Gaussian, family
from kernelmosaic.model_selection import PathSearchCV
from kernelmosaic.survival.metrics import concordance, read_times

SETS = {
    "aids": datasets.load_aids,
    "breast_cancer": datasets.load_breast_cancer,
    "gbsg2": datasets.load_gbsg2,
    "veterans": datasets.load_veterans_lung_cancer,
    "whas500": datasets.load_whas500,
}
STRENGTHS = 2.0 ** np.arange(-12, 13, 4)
OURS, THEIRS = METHODS = "MKLSurvival", "FastKernelSurvivalSVM"


def read(name: str) -> tuple[np.ndarray, np.ndarray]:
    X, y = SETS[name]()
    return encode_categorical(X).to_numpy(dtype=np.float64), y


def risk_of(method: str, X: np.ndarray, y: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Fit to the training samples, and return what is the larger the shorter the survival."""
    event = y[y.dtype.names[0]]
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, event))
    if method == OURS:
        search = PathSearchCV(
            MKLSurvival(), Cs=len(STRENGTHS), norms=(1, 2, "uniform"), cv=folds, scale=False
        )
        return -search.fit(X, y).predict(test)
    search = GridSearchCV(
        FastKernelSurvivalSVM(random_state=0), {"alpha": STRENGTHS}, cv=folds
    ).fit(X, y)
    return np.asarray(search.predict(test))


def splits(X: np.ndarray, y: np.ndarray, count: int) -> Iterator[Any]:
    cut = StratifiedShuffleSplit(count, test_size=0.3, random_state=0)
    for train, test in cut.split(X, y[y.dtype.names[0]]):
        scaler = StandardScaler().fit(X[train])
        yield scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test]


def show_concordance(names: list[str], count: int) -> None:
    print(
        f"\nMean concordance over {count} splits, its standard error, and seconds of a fit with its"
        " search\n"
    )
    print(
        "| set | n, columns | "
        + " | ".join(METHODS)
        + " |\n| --- | --- |"
        + " --- |" * len(METHODS)
    )
    for name in names:
        X, y = read(name)
        found: dict[str, list[float]] = {method: [] for method in METHODS}
        spent = dict.fromkeys(METHODS, 0.0)
        for train, times, test, truth in splits(X, y, count):
            event, time_ = (truth[field] for field in truth.dtype.names)
            for method in METHODS:
                start = time.process_time()
                risk = risk_of(method, train, times, test)
                spent[method] += time.process_time() - start
                found[method].append(float(concordance_index_censored(event, time_, risk)[0]))
        cells = [
            f"{np.mean(found[m]):.3f} ± {np.std(found[m]) / np.sqrt(count):.3f}"
            f" ({spent[m] / count:.1f} s)"
            for m in METHODS
        ]
        print(f"| {name} | {X.shape[0]}, {X.shape[1]} | " + " | ".join(cells) + " |", flush=True)


def show_speed() -> None:
    rng = np.random.RandomState(0)
    X = rng.standard_normal((500, 100))
    time_, limit = np.exp(X[:, 0] + 0.3 * rng.standard_normal(500)), rng.exponential(3.0, 500)
    y = np.column_stack([time_ <= limit, np.minimum(time_, limit)])
    kernels = [
        (f"{m}-{i}", kernel, [2 * m, 2 * m + 1, 2 * m + 50, 2 * m + 51])
        for m in range(25)
        for i, kernel in enumerate(family(Gaussian(), factor=[1, 2]))
    ]
    print(
        "\n50 kernels, 500 samples: seconds of a fit\n\n| C | norm 1 | norm 2 |\n| --- | --- |"
        " --- |"
    )
    for C in (0.1, 1.0, 10.0):
        seconds = [
            best_time(lambda C=C, p=p: MKLSurvival(kernels, C=C, norm=p).fit(X, y)) for p in (1, 2)
        ]
        print(f"| {C:g} | {seconds[0]:.2f} | {seconds[1]:.2f} |")


def show_agreement(names: list[str]) -> None:
    print(
        "\nLargest difference between the two concordances, predictions at random, half of them"
        " tied\n"
    )
    for name in names:
        _, y = read(name)
        rng, worst = np.random.RandomState(0), 0.0
        for size in (None, 5) * 5:
            predicted = (
                rng.standard_normal(len(y))
                if size is None
                else rng.randint(size, size=len(y)).astype(float)
            )
            theirs = concordance_index_censored(*(y[field] for field in y.dtype.names), -predicted)[
                0
            ]
            worst = max(worst, abs(concordance(read_times(y), predicted) - theirs))
        print(f"* {name}: {worst:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--parts", nargs="+", default=["concordance", "speed", "agreement"])
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    print(describe_machine())
    if "agreement" in chosen.parts:
        show_agreement(chosen.sets)
    if "speed" in chosen.parts:
        show_speed()
    if "concordance" in chosen.parts:
        show_concordance(chosen.sets, chosen.splits)


if __name__ == "__main__":
    main()
