"""Which method when: accuracy, support vectors, kernels used and time of each method, on sets
scikit-learn carries.

    python benchmarks/choosing.py [--splits 5] [--parts accuracy,regression,time]

accuracy    GAUSS4 (generated) with two kernels and with four, breast cancer, wine, digits in four views, and the same
            with four views of noise. Half of at most 800 samples trains. Columns are standardised
            on the training part. C (κ, λ) is chosen for each method by three-fold cross-validation
            in the training part; mean and deviation over the splits.
regression  diabetes, and a wave that is fast on one side and slow on the other: the same with R², C
and ε chosen.
time        one fit at C = 10 in fits of scikit-learn's SVC with one Gaussian kernel, on 2000 samples of GAUSS4 and 1200
            of digits; all in one run, the best of three, in turns.

Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import best_times, describe_machine
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from kernelmosaic import (
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    LocalizedMKLRegressor,
    MKLClassifier,
    MKLRegressor,
    stack_views,
)
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.model_selection import ResponseSurfaceSearchCV

PRICES = [0.1, 1.0, 10.0, 100.0]
Results = dict[str, list[tuple[float, ...]]]
FOLDS = StratifiedKFold(3, shuffle=True, random_state=0)


@dataclass(frozen=True)
class Problem:
    """A set and the kernels that all methods are given."""

    name: str
    X: np.ndarray
    y: np.ndarray
    kernels: list[tuple[Any, ...]]


def on_all_columns() -> list[tuple[Any, ...]]:
    widths = {"narrow": Gaussian("nearest"), "wide": Gaussian("median")}
    return [("linear", Linear()), ("quadratic", Polynomial()), *widths.items()]


def digits(noise_views: int) -> Problem:
    found = load_digits()
    images = found.images / 16
    random = np.random.RandomState(0)
    views = {
        "pixels": images.reshape(len(images), -1),
        "squares": images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(len(images), -1),
        "profiles": np.hstack([images.sum(axis=1), images.sum(axis=2)]),
        "fourier": np.abs(np.fft.rfft2(images)).reshape(len(images), -1),
    }
    views |= {f"noise{i}": random.normal(size=(len(images), 10)) for i in range(noise_views)}
    X, columns = stack_views(**views)
    kernels = [(name, Gaussian("median"), chosen) for name, chosen in columns.items()]
    return Problem("digits and noise" if noise_views else "digits", X, found.target, kernels)


def problems() -> list[Problem]:
    cancer = load_breast_cancer(return_X_y=True)
    groups = {"mean": slice(0, 10), "error": slice(10, 20), "worst": slice(20, 30)}
    kinds = {"linear": Linear(), "gaussian": Gaussian("median")}
    views = [
        (f"{group} {kind}", kernel, cut)
        for group, cut in groups.items()
        for kind, kernel in kinds.items()
    ]
    plane = make_gaussians(n_components=4, n_samples=800, random_state=0)
    return [
        Problem("GAUSS4, two kernels", *plane, on_all_columns()[:2]),
        Problem("GAUSS4, four kernels", *plane, on_all_columns()),
        Problem("breast cancer", *cancer, views),
        Problem("wine", *load_wine(return_X_y=True), on_all_columns()),
        digits(0),
        digits(4),
    ]


def searched(model: BaseEstimator, **grid: list[Any]) -> GridSearchCV:
    return GridSearchCV(model, grid, cv=FOLDS)


def methods(kernels: list[tuple[Any, ...]], n_classes: int) -> dict[str, Any]:
    """Every method with its own search; those for more than two classes only where there are
    more."""
    made = {
        "SVM, one Gaussian kernel": searched(SVC(), C=PRICES),
        "uniform weights": searched(MKLClassifier(kernels, weights="uniform"), C=PRICES),
        "MKL, sparse": searched(MKLClassifier(kernels), C=PRICES),
        "MKL, `norm=2`": searched(MKLClassifier(kernels, norm=2), C=PRICES),
        "RMKL": Penalised(kernels),
        "localized": searched(LocalizedMKLClassifier(kernels, step="lbfgs", n_init=1), C=PRICES),
        "discriminant": searched(
            DiscriminantMKLClassifier(kernels), alpha=[1e-4, 1e-3, 1e-2, 1e-1]
        ),
    }
    if n_classes > 2:
        made["joint"] = searched(MKLClassifier(kernels, multi_class="joint"), C=PRICES)
        made["bilinear"] = searched(BilinearMKLClassifier(kernels), kappa=PRICES)
    return made


class Penalised(BaseEstimator):
    """Sparse MKL with C chosen first and penalties by a response surface after."""

    def __init__(self, kernels: Any = None) -> None:
        self.kernels = kernels

    def fit(self, X: Any, y: Any) -> Penalised:
        best = searched(MKLClassifier(self.kernels), C=PRICES).fit(X, y).best_estimator_
        order = 2 if len(self.kernels) <= 6 else 1
        search = ResponseSurfaceSearchCV(clone(best), on="penalties", cv=FOLDS, order=order).fit(
            X, y
        )
        self.best_estimator_ = search.best_estimator_
        return self

    def score(self, X: Any, y: Any) -> float:
        return float(self.best_estimator_.score(X, y))


def used(model: Any, n_samples: int) -> tuple[float, float]:
    """Percent of support vectors, and kernels with any weight."""
    if isinstance(model, SVC | SVR):
        return 100 * len(model.support_) / n_samples, 1.0
    weights = np.atleast_2d(model.weights_)
    return 100 * model.support_fraction_, float(np.count_nonzero((weights > 0).any(axis=0)))


def measure(
    problem: Problem, makers: Callable[..., dict[str, Any]], splits: int, stratify: bool
) -> Results:
    results: Results = {}
    for seed in range(splits):
        most = min(800, len(problem.y)) // 2
        cut = train_test_split(
            problem.X,
            problem.y,
            train_size=most,
            stratify=problem.y if stratify else None,
            random_state=seed,
        )
        X, X_test, y, y_test = cut
        scaler = StandardScaler().fit(X)
        for name, method in makers(problem.kernels, len(np.unique(y)) if stratify else 0).items():
            method.fit(scaler.transform(X), y)
            score = 100 * method.score(scaler.transform(X_test), y_test)
            results.setdefault(name, []).append((score, *used(method.best_estimator_, len(y))))
    print(f"measured {problem.name}", file=sys.stderr, flush=True)
    return results


def compare(
    problems: list[Problem], makers: Callable[..., dict[str, Any]], splits: int, stratify: bool
) -> None:
    """Print two tables: scores, then support vectors and kernels; one row per method, one column
    per set."""
    found = {problem.name: measure(problem, makers, splits, stratify) for problem in problems}
    names = max(found.values(), key=len)
    for cell in (score_cell, size_cell):
        print(f"\n| | {' | '.join(found)} |\n| --- |{' --- |' * len(found)}")
        for name in names:
            print(
                f"| {name} | {' | '.join(cell(results.get(name)) for results in found.values())} |",
                flush=True,
            )


def score_cell(rows: list[tuple[float, ...]] | None) -> str:
    if rows is None:
        return ""
    scores = [row[0] for row in rows]
    return f"{np.mean(scores):.1f} ± {np.std(scores):.1f}"


def size_cell(rows: list[tuple[float, ...]] | None) -> str:
    if rows is None:
        return ""
    _, support, kernels = np.mean(rows, axis=0)
    return f"{support:.0f} %, {kernels:.1f}"


def waves() -> Problem:
    random = np.random.RandomState(0)
    x = random.uniform(-3, 3, size=800)
    y = np.where(x < 0, np.sin(8 * x), np.sin(x)) + 0.15 * random.normal(size=x.size)
    return Problem(
        "two waves", x[:, np.newaxis], y, [("narrow", Gaussian(0.2)), ("wide", Gaussian(2.0))]
    )


def regressors(kernels: list[tuple[Any, ...]], _: int) -> dict[str, Any]:
    grid = {"C": [1.0, 10.0, 100.0], "epsilon": [0.1, 0.3]}
    return {
        "SVR, one Gaussian kernel": GridSearchCV(SVR(), grid, cv=3),
        "uniform weights": GridSearchCV(MKLRegressor(kernels, weights="uniform"), grid, cv=3),
        "MKL, sparse": GridSearchCV(MKLRegressor(kernels), grid, cv=3),
        "MKL, `norm=2`": GridSearchCV(MKLRegressor(kernels, norm=2), grid, cv=3),
        "localized": GridSearchCV(
            LocalizedMKLRegressor(kernels, step="lbfgs", n_init=1), grid, cv=3
        ),
    }


def accuracy(splits: int) -> None:
    compare(problems(), methods, splits, stratify=True)


def regression(splits: int) -> None:
    X, y = load_diabetes(return_X_y=True)
    standard = (y - y.mean()) / y.std()
    compare(
        [Problem("diabetes", X, standard, on_all_columns()), waves()],
        regressors,
        splits,
        stratify=False,
    )


def timed(name: str, X: np.ndarray, y: np.ndarray, kernels: list[tuple[Any, ...]]) -> None:
    models: dict[str, Any] = {
        "SVM, one Gaussian kernel": SVC(C=10),
        "uniform weights": MKLClassifier(kernels, C=10, weights="uniform"),
        "MKL, sparse": MKLClassifier(kernels, C=10),
        "MKL, `norm=2`": MKLClassifier(kernels, C=10, norm=2),
        "localized, one start": LocalizedMKLClassifier(kernels, C=10, step="lbfgs", n_init=1),
        "localized, three starts": LocalizedMKLClassifier(kernels, C=10, step="lbfgs"),
        "discriminant": DiscriminantMKLClassifier(kernels),
    }
    if len(np.unique(y)) > 2:
        models["joint"] = MKLClassifier(kernels, C=10, multi_class="joint")
        models["bilinear"] = BilinearMKLClassifier(kernels, kappa=10)
    for model in models.values():
        clone(model).fit(X[::10], y[::10])  # compiles what is not compiled yet
    seconds = best_times([lambda model=model: clone(model).fit(X, y) for model in models.values()])
    for model, spent in zip(models, seconds, strict=True):
        print(f"| {name} | {model} | {spent:.3f} | {spent / seconds[0]:.1f} |", flush=True)


def times(_: int) -> None:
    print("\n| set | method | seconds | in fits of the plain SVM |\n| --- | --- | --- | --- |")
    X, y = make_gaussians(n_components=4, n_samples=2000, random_state=0)
    timed("GAUSS4, 2000 samples, 4 kernels", X, y, on_all_columns())
    problem = digits(0)
    X = StandardScaler().fit_transform(problem.X[:1200])
    timed("digits, 1200 samples, 4 kernels", X, problem.y[:1200], problem.kernels)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--parts", default="accuracy,regression,time")
    options = parser.parse_args()
    # A gap just above the tolerance at an extreme price is no news here.
    warnings.simplefilter("ignore", ConvergenceWarning)
    parts = {"accuracy": accuracy, "regression": regression, "time": times}
    for part in options.parts.split(","):
        parts[part](options.splits)
    print(f"\n{describe_machine()}")


if __name__ == "__main__":
    main()
