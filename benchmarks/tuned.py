"""Tuned without arguments: MKLClassifierCV() and MKLRegressorCV() against a tuned SVC and SVR, on the public sets.

    python benchmarks/tuned.py [--data FOLDER] [--n-jobs 2] [--store FILE] [--quick]

Reads the sets from the folder that `--data` or the environment variable KERNELMOSAIC_DATA names; at most 800 samples of
a set count (600 with several classes). Five outer folds; within each, the estimators see the raw training part alone:
`MKLClassifierCV()` as it comes, and GridSearchCV over C and gamma of make_pipeline(StandardScaler(), SVC()), five folds
both. Targets of a regression are standardised for SVR, whose epsilon is 0.1. Accuracy, or R², in per cent, and seconds.

With `--store FILE` every figure is kept as it is found, and a run that was stopped goes on where it was. Prints
Markdown, as docs/tuning.md has it.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import describe_machine
from defaults import QUICK, REGRESSION, SEVERAL_CLASSES, TWO_CLASSES, Store, samples
from joblib import Parallel, delayed
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from kernelmosaic import MKLClassifierCV, MKLRegressorCV

CS = np.logspace(-2, 3, 11)
#: Times one over the number of columns.
GAMMAS = np.logspace(-2, 1, 7)


def peer(regression: bool, n_columns: int) -> Any:
    """The pipeline whose C and gamma are searched."""
    if not regression:
        pipeline = make_pipeline(StandardScaler(), SVC())
        return GridSearchCV(pipeline, {"svc__C": CS, "svc__gamma": GAMMAS / n_columns}, cv=5)
    pipeline = TransformedTargetRegressor(make_pipeline(StandardScaler(), SVR()), transformer=StandardScaler())
    return GridSearchCV(pipeline, {"regressor__svr__C": CS, "regressor__svr__gamma": GAMMAS / n_columns}, cv=5)


def figures(name: str, fold: int, folder: Path | None) -> list[Any]:
    """Scores and seconds of both on one outer fold, and what ours chose."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    regression = name in REGRESSION
    X, y = samples(name, folder, 600 if name in SEVERAL_CLASSES else 800)
    X = X[:, X.std(axis=0) > 0]
    split = KFold if regression else StratifiedKFold
    train, held = list(split(5, shuffle=True, random_state=0).split(X, y))[fold]
    ours = MKLRegressorCV() if regression else MKLClassifierCV()
    found: list[Any] = []
    for model in (ours, peer(regression, X.shape[1])):
        start = time.process_time()
        score = model.fit(X[train], y[train]).score(X[held], y[held])
        found += [100 * float(score), time.process_time() - start]
    return [*found, str(ours.norm_), ours.C_]


def table(title: str, names: tuple[str, ...], store: Store, ours: str, theirs: str) -> None:
    print(f"\n{title}\n\n| set | {ours} | {theirs} | difference | CPU seconds | CPU seconds | norms chosen |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for name in names:
        every = [store.known[f"{name} {fold}"] for fold in range(5)]
        a, s, b, t = np.array([one[:4] for one in every]).mean(axis=0)
        rows.append((a, b, s, t))
        chosen = [one[4] for one in every]
        norms = ", ".join(f"{norm} × {chosen.count(norm)}" for norm in sorted(set(chosen)))
        print(f"| {name} | {a:.1f} | {b:.1f} | {a - b:+.1f} | {s:.1f} | {t:.1f} | {norms} |")
    a, b, s, t = np.array(rows).T
    print(f"| mean | {a.mean():.2f} | {b.mean():.2f} | {(a - b).mean():+.2f} | {s.mean():.1f} | {t.mean():.1f} | |")
    as_good, near = np.mean(a >= b - 1e-9), np.mean(a >= b - 0.5)
    print(f"\nAt least as good on {as_good:.0%} of the sets, within half a point on {near:.0%}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("KERNELMOSAIC_DATA"))
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    print(describe_machine())
    classes = [name for name in (*TWO_CLASSES, *SEVERAL_CLASSES) if not given.quick or name in QUICK]
    targets = [name for name in REGRESSION if not given.quick or name in QUICK]
    store = Store(given.store)
    tasks = [(name, fold) for name in reversed([*classes, *targets]) for fold in range(5)]
    missing = [task for task in tasks if "{} {}".format(*task) not in store.known]
    done = Parallel(given.n_jobs, return_as="generator")(delayed(figures)(*task, given.data) for task in missing)
    for (name, fold), found in zip(missing, done, strict=True):
        store.get(f"{name} {fold}", lambda found=found: found)
    table("Accuracy", tuple(classes), store, "`MKLClassifierCV()`", "tuned SVC")
    table("R²", tuple(targets), store, "`MKLRegressorCV()`", "tuned SVR")


if __name__ == "__main__":
    main()
