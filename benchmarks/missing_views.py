"""Views that samples lack: how much accuracy the rules of `missing` keep, beside what else one
might do.

    PYTHONPATH=. python benchmarks/missing_views.py [--data DIR] [--draws 5]
        [--study breast_tcga.npz] [--resamplings 20]

MULTIFEAT, even against odd digits, one kernel per view (six), 600 training samples, 1400 to test.
Blocks are taken off training and test samples alike: 30 % of all (sample, view) blocks at random;
or one view of half of the samples, each of the six in turn. `neighbors` and `zero` are the two
rules. Complete cases trains on the samples that have every view; mean imputation on all; both fill
what test samples lack with the columns' means. Columns are standardised.

With `--study`, subtypes of breast cancer from mRNA, miRNA and protein (an archive with the arrays
mrna, mirna, protein, y, train, test): the test patients have no protein. Fits to 80 % of the
training patients, drawn anew every time, on all three views, predict with two; beside fits to mRNA
and miRNA alone. Prints Markdown.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import describe_machine
from sklearn.impute import SimpleImputer
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import MKLClassifier, MKLClassifierCV, stack_views
from kernelmosaic.kernels import Gaussian, Kernel, Linear
from reproduction.data import load

KERNELS = {"linear": (Linear(), 1.0), "gaussian": (Gaussian(), 10.0)}
METHODS = "complete data", "neighbors", "zero", "mean imputation", "complete cases"
TRAIN = 600
#: The rules were chosen, and the number of neighbours, on draws 0 to 4 of MULTIFEAT and the
#: resamplings of seed 0.
FIRST_SEED = 100
#: Of a fit whose accuracy is of interest.
TOL = 1e-2


def gaps(setting: str, names: list[str], n: int, random: np.random.Generator) -> np.ndarray:
    """Which sample has which view."""
    if setting != "random":
        there = np.ones((n, len(names)), dtype=bool)
        there[:, names.index(setting)] = random.random(n) >= 0.5
        return there
    there = random.random((n, len(names))) >= 0.3
    nothing = np.flatnonzero(~there.any(axis=1))
    there[nothing, random.integers(len(names), size=len(nothing))] = True
    return there


def model(
    kind: str, columns: dict[str, Any], impute: bool = False, missing: str = "neighbors"
) -> Pipeline:
    kernel, C = KERNELS[kind]
    kernels: list[tuple[str, Kernel, Any]] = [
        (name, kernel, list(own)) for name, own in columns.items()
    ]
    learner = MKLClassifier(kernels, C=C, norm=2, missing=missing, tol=TOL)
    return make_pipeline(*([SimpleImputer()] if impute else []), StandardScaler(), learner)


def accuracies(kind: str, setting: str, digits: Any, seed: int) -> dict[str, float]:
    random = np.random.default_rng(seed)
    order = random.permutation(len(digits.target))
    X, y, columns = digits.data[order], digits.target[order], digits.columns
    there = gaps(setting, list(columns), len(y), random)
    partial = X.copy()
    for own, has in zip(columns.values(), there.T, strict=True):
        partial[np.ix_(~has, own)] = np.nan
    cases = np.flatnonzero(there[:TRAIN].all(axis=1))
    every = np.arange(TRAIN)
    tasks = {
        "complete data": (model(kind, columns), X, every),
        "neighbors": (model(kind, columns), partial, every),
        "zero": (model(kind, columns, missing="zero"), partial, every),
        "mean imputation": (model(kind, columns, impute=True), partial, every),
        "complete cases": (model(kind, columns, impute=True), partial, cases),
    }
    return {
        name: 100 * float(fitted.fit(samples[rows], y[rows]).score(samples[TRAIN:], y[TRAIN:]))
        for name, (fitted, samples, rows) in tasks.items()
    }


def multifeat(data: str | None, draws: int, kinds: list[str]) -> None:
    digits = load("multifeat", data, task="EO")
    print(f"| kernels | missing | {' | '.join(METHODS)} |")
    print("| --- | --- |" + " --- |" * len(METHODS))
    for kind in kinds:
        for title, settings in (
            ("30 % at random", ["random"] * draws),
            ("a view of half", list(digits.columns)),
        ):
            found = [
                accuracies(kind, setting, digits, seed)
                for seed, setting in enumerate(settings, start=FIRST_SEED)
            ]
            means = [f"{np.mean([one[name] for one in found]):.2f}" for name in METHODS]
            print(f"| {kind} | {title} | {' | '.join(means)} |", flush=True)


def study_scores(path: str, resamplings: int) -> Iterator[dict[str, float]]:
    archive = np.load(path, allow_pickle=False)
    names = "mrna", "mirna", "protein"
    X, columns = stack_views(**{name: archive[name] for name in names})
    y, train, test = archive["y"], archive["train"], archive["test"]
    draws = StratifiedShuffleSplit(resamplings, train_size=0.8, random_state=FIRST_SEED).split(
        train, y[train]
    )
    for chosen, _ in draws:
        rows = train[chosen]
        # As the new patients are: who knows that they lack a view may train with it hidden from
        # some.
        hidden = X[rows]
        half = np.random.RandomState(FIRST_SEED).permutation(len(rows))[: len(rows) // 2]
        hidden[np.ix_(half, columns["protein"])] = np.nan
        scores = {}
        for title, used, missing, known in (
            ("three views, neighbors", names, "neighbors", X[rows]),
            ("three views, zero", names, "zero", X[rows]),
            ("three views, protein of half", names, "neighbors", hidden),
            ("two views", names[:2], "neighbors", X[rows]),
        ):
            kernels = [
                (f"{name}-{k}", kernel, columns[name]) for name in used for k, kernel in _both()
            ]
            learner = MKLClassifierCV(kernels, Cs=7, missing=missing, tol=TOL).fit(known, y[rows])
            scores[title] = 100 * float(learner.score(X[test], y[test]))
        yield scores


def _both() -> list[tuple[str, Kernel]]:
    return [("linear", Linear()), ("gaussian", Gaussian())]


def study(path: str, resamplings: int) -> None:
    found = list(study_scores(path, resamplings))
    print(f"\n| {' | '.join(found[0])} |")
    print("|" + " --- |" * len(found[0]))
    print(
        "| "
        + " | ".join(f"{np.mean([one[name] for one in found]):.2f}" for name in found[0])
        + " |",
        flush=True,
    )
    for name in list(found[0])[:-1]:
        more = np.array([one[name] - one["two views"] for one in found])
        error = more.std(ddof=1) / np.sqrt(len(more))
        print(
            f"{name} less two views: {more.mean():+.2f} ± {error:.2f} (standard error of the"
            " resamplings)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", help="folder of npz files; default: the environment variable KERNELMOSAIC_DATA"
    )
    parser.add_argument(
        "--draws", type=int, default=5, help="draws of the random blocks; 0: leave MULTIFEAT out"
    )
    parser.add_argument("--kernels", nargs="+", choices=list(KERNELS), default=list(KERNELS))
    parser.add_argument("--study", help="archive of the study")
    parser.add_argument("--resamplings", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(describe_machine(), end="\n\n")
    if options.draws:
        multifeat(options.data, options.draws, options.kernels)
    if options.study:
        study(options.study, options.resamplings)


if __name__ == "__main__":
    main()
