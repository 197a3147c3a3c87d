"""Regularised multiple kernel learning on GAUSS2 … GAUSS5: MKL, RMKL, EMKL and RWKL.

The protocol of Gönen and Alpaydın (2011): a third of the samples is the test set, the rest is
halved five times. C is chosen for plain MKL on the validation halves, and kept; then each method
chooses its own parameters on them, and is trained on each of the ten training halves and measured
on the test set. Kernels: linear, quadratic, Gaussian, with unit diagonals. Solver calls are
settings tried after C; F test and the rest are wins/ties/losses against MKL over the draws.

    python examples/regularized_mkl.py --seeds 10
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from rich.progress import track
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, train_test_split

from kernelmosaic import MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.model_selection import FiveByTwoFold, ResponseSurfaceSearchCV
from kernelmosaic.stats import f_test_5x2cv, wilcoxon, win_tie_loss

KERNELS = [Linear(), Polynomial(), Gaussian("nearest")]
METHODS = ("MKL", "RMKL", "EMKL", "RWKL")
FIGURES = ("accuracy", "kernels", "support vectors")


@dataclass(frozen=True)
class Outcome:
    """One method on one draw: ten results for each figure, and how many settings were tried."""

    figures: dict[str, np.ndarray]
    solver_calls: int


def searches(model, folds, n_jobs):
    """How each method chooses its parameters, given C."""
    powers = {"penalty_power": np.linspace(0, 1, 11)}
    options = {"cv": folds, "n_jobs": n_jobs, "refit": False}
    return {
        "RMKL": ResponseSurfaceSearchCV(model, on="penalties", **options),
        "EMKL": GridSearchCV(
            clone(model).set_params(penalties="eigenvalue"), powers, **options
        ),
        "RWKL": ResponseSurfaceSearchCV(model, on="weights", **options),
    }


def measure(model, folds, X, y, X_test, y_test):
    """Train on each of the ten halves and measure on the test set."""
    fitted = [clone(model).fit(X[train], y[train]) for train, _ in folds]
    rows = [
        (m.score(X_test, y_test), np.count_nonzero(m.weights_), m.support_fraction_)
        for m in fitted
    ]
    accuracy, kernels, support = np.array(rows).T
    return dict(zip(FIGURES, (100 * accuracy, kernels, 100 * support), strict=True))


def one_draw(n_components, n_samples, seed, n_jobs=None):
    """All methods on one draw of a data set."""
    X, y = make_gaussians(n_components, n_samples, random_state=seed)
    X, X_test, y, y_test = train_test_split(
        X, y, test_size=1 / 3, stratify=y, random_state=seed
    )
    folds = list(FiveByTwoFold(random_state=seed).split(X, y))
    grid = {"C": [0.01, 0.1, 1, 10, 100]}
    plain = MKLClassifier(KERNELS, normalize="diagonal")
    chosen = GridSearchCV(plain, grid, cv=folds, n_jobs=n_jobs, refit=False).fit(X, y)
    plain.set_params(C=chosen.best_params_["C"])
    outcomes = {"MKL": Outcome(measure(plain, folds, X, y, X_test, y_test), 1)}
    for name, search in searches(plain, folds, n_jobs).items():
        search.fit(X, y)
        best = clone(search.estimator).set_params(**search.best_params_)
        figures = measure(best, folds, X, y, X_test, y_test)
        outcomes[name] = Outcome(figures, len(search.cv_results_["params"]))
    return outcomes


def triple(counts):
    return "/".join(map(str, counts))


def report(draws):
    """Print a Markdown table: means over draws and halves, and each method against MKL."""
    tests = "F test | direct | Wilcoxon | SV F test"
    print(
        f"| data | method | accuracy | kernels | support vectors | solver calls | {tests} |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for data, outcomes in draws.items():
        for method in METHODS:
            runs = [draw[method] for draw in outcomes]
            accuracy, kernels, support = (
                np.mean([run.figures[name] for run in runs]) for name in FIGURES
            )
            calls = np.mean([run.solver_calls for run in runs])
            tests = "| – | – | – | – |"
            if method != "MKL":
                ours, theirs = figures(outcomes, method), figures(outcomes, "MKL")
                means = [np.mean(one["accuracy"], axis=1) for one in (ours, theirs)]
                ranks = wilcoxon(*means)
                verdict = ("tie", "win", "loss")[
                    ranks.direction if ranks.p_value < 0.05 else 0
                ]
                tested = [
                    significant(ours[name], theirs[name], sign)
                    for name, sign in (("accuracy", 1), ("support vectors", -1))
                ]
                tests = f"| {tested[0]} | {triple(win_tie_loss(*means))} | {verdict} | {tested[1]} |"
            print(
                f"| {data} | {method} | {accuracy:.2f} | {kernels:.2f} | {support:.1f} % | {calls:.1f} {tests}"
            )


def figures(outcomes, method):
    """The ten results of every draw, by figure."""
    return {name: [draw[method].figures[name] for draw in outcomes] for name in FIGURES}


def significant(ours, theirs, sign):
    """Draws on which the F test finds ours better, neither, theirs better."""
    pairs = zip(ours, theirs, strict=True)
    signs = [
        sign * np.sign(np.mean(a) - np.mean(b)) * (f_test_5x2cv(a, b).p_value < 0.05)
        for a, b in pairs
    ]
    return triple(signs.count(one) for one in (1, 0, -1))


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2, help="draws of each data set")
    parser.add_argument(
        "--samples", type=int, default=300, help="samples of a draw, test set included"
    )
    parser.add_argument(
        "--components",
        type=int,
        nargs="+",
        default=[2, 3, 4, 5],
        help="which of GAUSS2 … GAUSS5",
    )
    parser.add_argument("--jobs", type=int, default=None, help="fits in parallel")
    options = parser.parse_args(arguments)
    # A gap just above the tolerance at an extreme penalty is no news here.
    warnings.simplefilter("ignore", ConvergenceWarning)
    draws = defaultdict(list)
    todo = [(n, seed) for n in options.components for seed in range(options.seeds)]
    for n, seed in track(todo, "draws"):
        draws[f"GAUSS{n}"].append(one_draw(n, options.samples, seed, options.jobs))
    report(draws)


if __name__ == "__main__":
    main()
