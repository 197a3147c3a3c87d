"""Penalties by a response surface with tens of kernels: designs of second and first order, and one
kernel at a time.

    python benchmarks/response_surface.py [--kernels 5 10 20 50] [--draws 0 1 2] [--output FILE.csv]

scikit-learn's digits, even against odd. The 61 pixels that vary are dealt out at random to P
Gaussian kernels. 300 samples train, 600 test; C of plain MKL is the best of 1, 10 and 100 by three
folds, and all searches have these folds and this C. Designs of second order, P(P+1)/2 points, are
run up to P = 10. "One at a time" goes once through the kernels and keeps half or twice the penalty
where the folds score better. The primary figure is the test accuracy less that of plain MKL;
validation scores, points evaluated (three fits each) and kernels used are given besides.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, cross_val_score

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Gaussian
from kernelmosaic.model_selection import ResponseSurfaceSearchCV, SharedKernels

FIELDS = ["kernels", "seed", "design", "points", "validation", "test", "used", "C"]
STEP = 0.3
MOST_OF_SECOND_ORDER = 10


def one_at_a_time(model, X, y, folds):
    """Return the best penalties found, their score and the number of points."""
    n = len(model.kernels)

    def score(z):
        return cross_val_score(
            clone(model).set_params(penalties=tuple(10.0**z)), X, y, cv=folds
        ).mean()

    with SharedKernels():
        z, best, points = np.zeros(n), score(np.zeros(n)), 1
        for m in range(1, n):
            for side in (STEP, -STEP):
                tried = z + side * np.eye(n)[m]
                found, points = score(tried), points + 1
                if found > best:
                    z, best = tried, found
                    break
    return tuple(10.0**z), best, points


def rows(P: int, seed: int):
    """Yield the figures of every design on one draw."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.RandomState(seed)
    varying = rng.permutation(np.flatnonzero(X.std(axis=0) > 0))
    order = rng.permutation(len(y))[:900]
    X, y = X[order], y[order] % 2
    kernels = [
        (f"k{m}", Gaussian(), np.sort(part)) for m, part in enumerate(np.array_split(varying, P))
    ]
    X, y, new, truth = X[:300], y[:300], X[300:], y[300:]
    folds = list(StratifiedKFold(3, shuffle=True, random_state=seed).split(X, y))
    plain = MKLClassifier(kernels)
    with SharedKernels():
        scores = {
            C: cross_val_score(clone(plain).set_params(C=C), X, y, cv=folds).mean()
            for C in (1.0, 10.0, 100.0)
        }
    C = max(scores, key=scores.get)
    plain.set_params(C=C)

    def row(design, model, points, validation):
        used = int(np.count_nonzero(model.weights_))
        return dict(
            zip(
                FIELDS,
                (P, seed, design, points, validation, model.score(new, truth), used, C),
                strict=True,
            )
        )

    yield row("plain", clone(plain).fit(X, y), 1, scores[C])
    penalties, best, points = one_at_a_time(plain, X, y, folds)
    yield row("one at a time", clone(plain).set_params(penalties=penalties).fit(X, y), points, best)
    for order in (1, 2) if P <= MOST_OF_SECOND_ORDER else (1,):
        search = ResponseSurfaceSearchCV(
            plain, on="penalties", order=order, step=STEP, cv=folds
        ).fit(X, y)
        name = {1: "first order", 2: "second order"}[order]
        yield row(name, search.best_estimator_, search.n_solver_calls_, search.best_score_)


def main() -> None:
    """Write a row per draw and design, and print their means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", type=int, nargs="+", default=[5, 10, 20, 50])
    parser.add_argument("--draws", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("docs/studies/response_surface.csv"))
    options = parser.parse_args()
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for P in options.kernels:
            found = []
            for seed in options.draws:
                for one in rows(P, seed):
                    found.append(one)
                    writer.writerow(
                        {
                            k: f"{v:.4f}" if isinstance(v, float) and k != "C" else v
                            for k, v in one.items()
                        }
                    )
                    file.flush()
            for design in dict.fromkeys(one["design"] for one in found):
                same = [one for one in found if one["design"] == design]
                means = {
                    k: np.mean([one[k] for one in same])
                    for k in ("points", "validation", "test", "used")
                }
                print(P, design, "  ".join(f"{k} {v:.4g}" for k, v in means.items()), flush=True)


if __name__ == "__main__":
    main()
