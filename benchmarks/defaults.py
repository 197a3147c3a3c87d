"""What an estimator without arguments is worth: default kernels, widths and norms on the public
sets.

    PYTHONPATH=. python benchmarks/defaults.py [--data FOLDER] [--parts widths,classification,…]
    [--quick]

Reads the sets from the folder that `--data` or the environment variable KERNELMOSAIC_DATA names. At
most 800 samples of a set count (600 with several classes). Columns, and targets of a regression,
are standardised on the training part.

widths          one Gaussian kernel at C = 10 on six sets: accuracy on the training part and on the other, and share of
                support vectors, for widths from the nearest neighbours' distance to eight times the
                median.
classification  five folds at C = 1, 10 and 100: accuracy of scikit-learn's SVC and of MKLClassifier
with several lists
                of kernels and norms; and the share of the weight that the narrowest Gaussian takes.
regression      the same with R² and ε = 0.1.
tuned           every table of numbers of two to ten classes and fewer than 1,000 samples, one half to learn from and
                the other to test on, stratified, in `--splits` draws: accuracy and processor
                seconds (with those of child processes; OMP_NUM_THREADS=1) of MKLRidgeClassifierCV()
                and MKLClassifierCV(), of a grid search of a scaled SVC over 4 C × 4 γ with 5 folds,
                and of HistGradientBoostingClassifier, with defaults and with 4 learning rates × 4
                numbers of leaves searched by 5 folds. Columns are not standardised beforehand. The
                last column is the time of MKLClassifierCV() over that of the SVC.
oneclass        one class of a set is normal. Half of it trains; the area under the ROC curve tells the other half from
                the other classes, for scikit-learn's OneClassSVM and the one-class estimators as
                they come.

With `--store FILE` every figure is kept there as it is found, and a run that was stopped goes on
where it was. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import describe_machine
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

from kernelmosaic import (
    LocalizedMKLOneClass,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLRidgeClassifierCV,
)
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, family
from reproduction.data import load

TWO_CLASSES = (
    *(
        "australian",
        "banana",
        "breast_cancer_original",
        "german_numeric",
        "heart",
        "ionosphere",
        "liver",
        "pima",
    ),
    *("ringnorm", "sonar", "spambase", "wdbc", "wpbc", "advert_first998", "a9a", "w8a"),
)
SEVERAL_CLASSES = (
    *(
        "vehicle",
        "wine",
        "waveform",
        "satimage",
        "segment",
        "pendigits",
        "multifeat",
        "usps",
        "mnist",
        "olivetti",
    ),
)
REGRESSION = ("concrete", "whitewine", "motorcycle", "diabetes")
QUICK = {"heart", "sonar", "wine", "vehicle", "motorcycle", "diabetes"}
SIX = ("sonar", "ionosphere", "heart", "pima", "wdbc", "vehicle")
PRICES = (1.0, 10.0, 100.0)
PAIR = [Linear(), Polynomial()]
#: Name of the list, its kernels, and the settings of the weights that are tried with it.
LISTS: dict[str, tuple[list[Any], tuple[Any, ...]]] = {
    "linear, quadratic, nearest": ([*PAIR, Gaussian("nearest")], (1, "uniform")),
    "linear, quadratic, median": ([*PAIR, Gaussian()], (1, "uniform")),
    "linear, quadratic, 1, 2, 4 × median": (
        [*PAIR, *family(Gaussian(), factor=[1, 2, 4])],
        (1, 4 / 3, 2, "uniform"),
    ),
    "linear, quadratic, 0.5, 1, 2 × median": (
        [*PAIR, *family(Gaussian(), factor=[0.5, 1, 2])],
        (1, 2, "uniform"),
    ),
    "1, 2, 4 × median": (family(Gaussian(), factor=[1, 2, 4]), (1, 2, "uniform")),
}
Samples = tuple[np.ndarray, np.ndarray]


class Store:
    """Figures by name; on disk, too, if there is a file."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.known = path, {}
        if path is not None and path.exists():
            self.known = dict(map(json.loads, path.read_text().splitlines()))

    def get(self, key: str, work: Callable[[], Any]) -> Any:
        if key not in self.known:
            self.known[key] = work()
            if self.path is not None:
                with self.path.open("a") as file:
                    file.write(json.dumps([key, self.known[key]]) + "\n")
        return self.known[key]


def samples(name: str, folder: Path | None, most: int) -> Samples:
    """The numbers of a set, at most so many rows, drawn at random."""
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    else:
        found = load(name, data_home=folder)
        X, y = found.data, found.target
    rows = np.random.RandomState(0).permutation(len(y))[:most]
    return np.asarray(X[rows], dtype=np.float64), y[rows]


def scaled(X: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    scaler = StandardScaler().fit(X)
    return [scaler.transform(one) for one in (X, *others)]


def setting(how: Any) -> dict[str, Any]:
    return {"weights": "uniform"} if how == "uniform" else {"norm": how}


def label(how: Any) -> str:
    return "uniform" if how == "uniform" else f"norm {how:.3g}"


def candidates(regression: bool) -> dict[str, Callable[[float], Any]]:
    """Every candidate as a function of C."""
    plain, ours = (SVR, MKLRegressor) if regression else (SVC, MKLClassifier)
    made: dict[str, Callable[[float], Any]] = {f"{plain.__name__} | ": lambda C: plain(C=C)}
    for name, (kernels, settings) in LISTS.items():
        for how in settings:
            made[f"{name} | {label(how)}"] = lambda C, kernels=kernels, how=how: ours(
                kernels, C=C, **setting(how)
            )
    return made


def narrowest(model: Any) -> float:
    """The share of the weight that the first Gaussian, the narrowest, has."""
    names = getattr(model, "kernel_names_", [])
    first = [m for m, name in enumerate(names) if name.startswith("gaussian")][:1]
    weights = np.atleast_2d(getattr(model, "weights_", np.ones((1, 1))))
    return float(np.mean(weights[:, first].sum(axis=1) / weights.sum(axis=1))) if first else 0.0


def fold_scores(make: Callable[[], Any], data: Samples, regression: bool) -> tuple[float, float]:
    X, y = data
    folds = (
        KFold(5, shuffle=True, random_state=0)
        if regression
        else StratifiedKFold(5, shuffle=True, random_state=0)
    )
    found = []
    for rows, held in folds.split(X, y):
        A, B = scaled(X[rows], X[held])
        a, b = y[rows], y[held]
        if regression:
            a, b = (a - a.mean()) / a.std(), (b - a.mean()) / a.std()
        model = make().fit(A, a)
        found.append((100 * model.score(B, b), 100 * narrowest(model)))
    score, share = np.mean(found, axis=0)
    return float(score), float(share)


def width_figures(kernel: Gaussian, data: Samples) -> list[float]:
    """Accuracy in training and in test, support vectors, all in percent, and the width in
    medians."""
    X, y = data
    found = []
    for rows, held in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        A, B = scaled(X[rows], X[held])
        model = MKLClassifier([kernel], C=10).fit(A, y[rows])
        relative = clone(kernel).fit(A).width_ / Gaussian().fit(A).width_
        scores = 100 * model.score(A, y[rows]), 100 * model.score(B, y[held])
        found.append([*scores, 100 * model.support_fraction_, relative])
    return [float(value) for value in np.mean(found, axis=0)]


def widths(store: Store, folder: Path | None, quick: bool) -> None:
    sets = {name: samples(name, folder, 800) for name in SIX if not quick or name in QUICK}
    kernels = [Gaussian("nearest"), *family(Gaussian(), factor=[0.25, 0.5, 1, 2, 4, 8])]
    print("\n| width | in medians | training accuracy | test accuracy | support vectors |")
    print("| --- | --- | --- | --- | --- |")
    for kernel in kernels:
        rows = [
            store.get(f"widths | {name} | {kernel!r}", lambda d=data, k=kernel: width_figures(k, d))
            for name, data in sets.items()
        ]
        train, test, support, relative = np.mean(rows, axis=0)
        print(
            f"| `{kernel!r}` | {relative:.2g} | {train:.1f} | {test:.1f} | {support:.0f} % |",
            flush=True,
        )


def compare(store: Store, sets: dict[str, Samples], regression: bool) -> None:
    makers = candidates(regression)
    figures = {}
    for name, data in sets.items():
        for method, make in makers.items():
            for C in PRICES:
                key = f"{name} | {method} | {C:g}"
                figures[name, method, C] = store.get(
                    key,
                    lambda make=make, C=C, data=data: fold_scores(
                        lambda: make(C), data, regression
                    ),
                )
        print(f"measured {name}", file=sys.stderr, flush=True)
    print(f"\n{len(sets)} sets: {', '.join(sets)}\n")
    print("| kernels | weights | C = 1 | C = 10 | C = 100 | best C | narrowest Gaussian, C = 1 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for method in makers:
        table = np.array([[figures[name, method, C][0] for C in PRICES] for name in sets])
        share = np.mean([figures[name, method, 1.0][1] for name in sets])
        cells = [f"{value:.1f}" for value in (*table.mean(axis=0), table.max(axis=1).mean())]
        print(f"| {method} | {' | '.join(cells)} | {f'{share:.0f} %' if share else ''} |")
    heads = [m for m in makers if m.endswith((" | ", "| norm 1", "4 × median | uniform"))]
    print(
        "\n| set, at C = 1 |"
        f" {' | '.join(head.replace(' | ', ': ').rstrip(': ') for head in heads)} |"
    )
    print(f"| --- |{' --- |' * len(heads)}")
    for name in sets:
        print(f"| {name} | {' | '.join(f'{figures[name, head, 1.0][0]:.1f}' for head in heads)} |")


def classification(store: Store, folder: Path | None, quick: bool) -> None:
    sets = {name: samples(name, folder, 800) for name in TWO_CLASSES if not quick or name in QUICK}
    sets |= {
        name: samples(name, folder, 600) for name in SEVERAL_CLASSES if not quick or name in QUICK
    }
    compare(store, sets, regression=False)


def regression(store: Store, folder: Path | None, quick: bool) -> None:
    names = [name for name in REGRESSION if not quick or name in QUICK]
    compare(store, {name: samples(name, folder, 800) for name in names}, regression=True)


#: Every table of numbers of two to ten classes and fewer than 1,000 samples.
SMALL = (
    *(
        "wine",
        "wpbc",
        "sonar",
        "heart",
        "liver",
        "ionosphere",
        "wdbc",
        "breast_cancer_original",
        "australian",
        "pima",
    ),
    "vehicle",
)


def tuned_models(n_columns: int) -> dict[str, Any]:
    svc = {"svc__C": [0.1, 1, 10, 100], "svc__gamma": np.array([0.01, 0.1, 1, 10]) / n_columns}
    trees = {"learning_rate": [0.03, 0.1, 0.2, 0.3], "max_leaf_nodes": [4, 8, 16, 31]}
    return {
        "`SVC`, 16 × 5": GridSearchCV(make_pipeline(StandardScaler(), SVC()), svc, cv=5),
        "`MKLRidgeClassifierCV()`": MKLRidgeClassifierCV(),
        "`MKLClassifierCV()`": MKLClassifierCV(),
        "boosting": HistGradientBoostingClassifier(random_state=0),
        "boosting, 16 × 5": GridSearchCV(
            HistGradientBoostingClassifier(random_state=0), trees, cv=5
        ),
    }


def processor_seconds() -> float:
    return sum(
        sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )


def accuracy_and_seconds(model: Any, data: Samples, seed: int) -> tuple[float, float]:
    A, B, a, b = train_test_split(*data, train_size=0.5, stratify=data[1], random_state=seed)
    start = processor_seconds()
    model.fit(A, a)
    seconds = processor_seconds() - start
    return 100 * float(model.score(B, b)), seconds


def tuned(store: Store, folder: Path | None, quick: bool, splits: int) -> None:
    sets = {name: samples(name, folder, 1000) for name in SMALL if not quick or name in QUICK}
    heads = list(tuned_models(1))
    for _ in range(2):  # loaded and compiled
        accuracy_and_seconds(MKLClassifierCV(), sets["vehicle"], 0)
    accuracy_and_seconds(tuned_models(1)["boosting"], sets["vehicle"], 0)
    print(
        f"\n| set | n | {' | '.join(heads)} | ratio |\n| --- | --- |{' --- |' * len(heads)} --- |"
    )
    rows = []
    for name, data in sets.items():
        for seed in range(splits):
            for head, model in tuned_models(data[0].shape[1]).items():
                key = f"tuned | {name} | {head} | {seed}"
                store.get(key, lambda m=model, d=data, s=seed: accuracy_and_seconds(m, d, s))
        each = np.array(
            [
                [store.known[f"tuned | {name} | {head} | {s}"] for s in range(splits)]
                for head in heads
            ]
        )
        rows.append(np.column_stack([each[:, :, 0].mean(axis=1), np.median(each[:, :, 1], axis=1)]))
        cells = " | ".join(f"{score:.1f}, {seconds:.2g} s" for score, seconds in rows[-1])
        print(
            f"| {name} | {len(data[1]) // 2} | {cells} | {rows[-1][2, 1] / rows[-1][0, 1]:.1f} |",
            flush=True,
        )
    means = " | ".join(f"{score:.1f}, {seconds:.2g} s" for score, seconds in np.mean(rows, axis=0))
    print(f"| mean | | {means} | at most {max(row[2, 1] / row[0, 1] for row in rows):.1f} |")


def novelty_areas(model: Any, data: Samples, normal: Any) -> float:
    """The mean area under the ROC curve over five halves of the normal class."""
    X, y = data
    usual, odd = X[y == normal], X[y != normal]
    areas = []
    for seed in range(5):
        order = np.random.RandomState(seed).permutation(len(usual))
        A, held, other = scaled(
            usual[order[: len(order) // 2]], usual[order[len(order) // 2 :]], odd
        )
        truth = np.repeat([1, 0], [len(held), len(other)])
        areas.append(roc_auc_score(truth, model.fit(A).decision_function(np.vstack([held, other]))))
    return float(np.mean(areas))


def oneclass(store: Store, folder: Path | None, quick: bool) -> None:
    old = [*PAIR, Gaussian("nearest")]
    models = {
        "OneClassSVM()": OneClassSVM(),
        "old default": MKLOneClass(old),
        "`MKLOneClass()`": MKLOneClass(),
        '`weights="uniform"`': MKLOneClass(weights="uniform"),
        'old kernels, `"diagonal"`': MKLOneClass(old, normalize="diagonal"),
        '`LocalizedMKLOneClass(step="lbfgs")`': LocalizedMKLOneClass(step="lbfgs", n_init=1),
        'localized, `gating="softmax"`': LocalizedMKLOneClass(
            gating="softmax", step="lbfgs", n_init=1
        ),
    }
    print(f"\n| set, normal class | {' | '.join(models)} |\n| --- |{' --- |' * len(models)}")
    rows = []
    for name in [*TWO_CLASSES, *SEVERAL_CLASSES]:
        if name == "olivetti" or (quick and name not in QUICK):
            continue
        data = samples(name, folder, 800 if name in TWO_CLASSES else 1500)
        for normal in np.unique(data[1])[:2]:
            if np.sum(data[1] == normal) < 40:
                continue
            keys = {head: f"one-class | {name} | {normal} | {head}" for head in models}
            rows.append(
                [
                    store.get(keys[h], lambda m=m, d=data, c=normal: novelty_areas(m, d, c))
                    for h, m in models.items()
                ]
            )
            print(
                f"| {name}, {normal} | {' | '.join(f'{value:.3f}' for value in rows[-1])} |",
                flush=True,
            )
    print(
        f"| mean of {len(rows)} | {' | '.join(f'{value:.3f}' for value in np.mean(rows, axis=0))} |"
    )


PARTS: dict[str, Callable[..., None]] = {
    "widths": widths,
    "classification": classification,
    "regression": regression,
    "oneclass": oneclass,
    "tuned": tuned,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = os.environ.get("KERNELMOSAIC_DATA")
    parser.add_argument("--data", type=Path, default=Path(folder) if folder else None)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="a few small sets")
    parser.add_argument(
        "--store", type=Path, help="file that keeps the figures of a run that may be stopped"
    )
    parser.add_argument(
        "--splits", type=int, default=3, help="draws of the two halves, of the part `tuned`"
    )
    options = parser.parse_args()
    # A gap just above the tolerance at a high price is no news here, nor what the old kernels do to
    # one-class machines.
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", UserWarning)
    for part in options.parts.split(","):
        more = {"splits": options.splits} if part == "tuned" else {}
        PARTS[part](Store(options.store), options.data, options.quick, **more)
    print(f"\n{describe_machine()}")


if __name__ == "__main__":
    main()
