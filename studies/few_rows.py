"""Few samples and many kernels: learned weights beside equal ones, and printed scores beside
held-out ones.

    python studies/few_rows.py --data FOLDER [--output FOLDER] [--jobs 16] [--only PART …]
    [--methods METHOD …]
        [--seeds N] [--minutes N]
    python studies/few_rows.py --tables RUN [RUN …]
    python studies/few_rows.py --rivals RUN [RUN …]
    python studies/few_rows.py --page

FOLDER, or the environment variable KERNELMOSAIC_DATA, holds the files of docs/datasets.md and
docs/studies.md that the real sets are read from; generated parts need no file. Every fit that is
done is kept in the folder of the run: a stopped run goes on where it was. To compare with an
earlier version, run the study once more with that version on the path and with ``--methods
default``: rows carry the version, and the commit if the environment variable KERNELMOSAIC_COMMIT
names it or the package is a checkout. `--tables` writes the means of every cell over its draws to
docs/studies/few_rows.csv, then the picture and the page docs/studies/few_rows.md. `--rivals` writes
those of runs of all methods, which take long, to docs/studies/few_rows_rivals.csv: other machines
beside ours on the same splits.

Fixed before the run:

- generated: groups of ten columns with a common factor, one linear or Gaussian kernel a group; of n
  samples and M groups (100, 20), (180, 54), (180, 150), (400, 54); one, three or all groups inform;
  two classes and numbers; 1,000 new samples judge;
- null: the same without any signal, 200 draws of each size; "better than the baseline" means that
  the printed accuracy exceeds the largest share of a class by two standard errors;
- real: twenty public sets of two classes, at most 150 samples to learn from, one linear or Gaussian
  kernel per column, or per cluster of columns where there are more than 70;
- classes: the sets of two and more classes of uci_classes.npz with at most 700 training samples,
  default kernels;
- numbers: the nine sets of uci_regression.npz, 400 samples, default kernels;
- intervals: one Gaussian per column, 30 to 100 samples; how many held-out targets 90 % intervals
  cover.

The primary figure is the mean log-loss over generated and real sets with signal, beside the least
of equal weights, evidence with a prior of one nat, and the default of the version before; the
second one is the mean difference between printed and held-out accuracy.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np
from common import Row, Store, in_parallel, machine, read_table, write_table
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_diabetes, make_friedman1
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss, r2_score, roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import kernelmosaic
from kernelmosaic import MKLClassifierCV, MKLRegressorCV, MKLRidgeClassifierCV, MKLRidgeCV
from kernelmosaic.kernels import Gaussian, Linear, by_group, per_column

PICTURE = "studies_few_rows.png"
#: The table of the runs of all methods.
RIVALS = "few_rows_rivals"
#: What the default is compared with.
REFERENCE_VERSION, REFERENCE_COMMIT = "0.4.0", "5c6a552f"
DEFAULT, EQUAL, EVIDENCE, MARGIN = "default", "equal weights", "evidence, prior 1", "margin"
SVM, BOOSTING = "tuned SVM", "boosted trees"
METHODS = (DEFAULT, EQUAL, EVIDENCE, MARGIN, SVM, BOOSTING)
GENERATED, NULL, REAL, CLASSES, NUMBERS, INTERVALS = (
    "generated",
    "null",
    "real",
    "classes",
    "numbers",
    "intervals",
)
PARTS = (GENERATED, NULL, REAL, CLASSES, NUMBERS, INTERVALS)
#: Those of the table of other machines.
METHODS_OF_RIVALS = (DEFAULT, EQUAL, MARGIN, SVM, BOOSTING)
#: Methods of every part.
METHODS_OF = {
    GENERATED: METHODS,
    NULL: (DEFAULT,),
    REAL: METHODS,
    CLASSES: (DEFAULT, EQUAL),
    NUMBERS: (DEFAULT, EQUAL),
    INTERVALS: (DEFAULT, EQUAL),
}
SIZES = ((100, 20), (180, 54), (180, 150), (400, 54))
SIGNALS = ("one", "three", "dense")
COLUMNS_PER_GROUP, N_NEW = 10, 1000
#: Draws of every generated cell, of every null cell, splits of every real set, of every UCI set.
N_SEEDS = {GENERATED: 4, NULL: 200, REAL: 5, CLASSES: 2, NUMBERS: 4, INTERVALS: 8}
REAL_SETS = (
    *(
        "sonar",
        "wpbc",
        "ionosphere",
        "liver",
        "heart",
        "wdbc",
        "australian",
        "german_numeric",
        "spambase",
    ),
    *(
        "rosmap",
        "breast",
        "mfeat",
        "ALLAML",
        "PCMAC",
        "BASEHOCK",
        "Prostate_GE",
        "TOX_171",
        "arcene",
        "colon",
    ),
    "leukemia",
)
MOST_TRAIN, MOST_COLUMNS, MOST_SINGLE, N_CLUSTERS = 150, 3000, 70, 50
MOST_UCI_TRAIN, N_UCI_NUMBERS = 700, 400
COVERAGE = 0.9
INTERVAL_SETS = {
    "friedman1": 30,
    "diabetes": 30,
    "radius of breast cancer, 50": 50,
    "radius of breast cancer, 100": 100,
}
SVM_GRID = {"C": np.logspace(-1, 3, 5), "gamma": np.logspace(-2, 1, 4)}
BOOSTING_GRID = {"max_iter": (50, 200), "max_leaf_nodes": (4, 10), "min_samples_leaf": (5, 20)}


class Unit(NamedTuple):
    """All methods on one draw, or split, of one set."""

    part: str
    set: str
    kernel: str
    n: int
    n_kernels: int
    seed: int

    @property
    def name(self) -> str:
        return ", ".join(map(str, self))


class Task(NamedTuple):
    """Samples to learn from and to be judged on, and the columns of every kernel; None for default
    kernels."""

    X: np.ndarray
    y: np.ndarray
    new_X: np.ndarray
    new_y: np.ndarray
    groups: dict[str, list[int]] | None

    @property
    def has_classes(self) -> bool:
        return self.y.dtype.kind in "iu"


# Data ---------------------------------------------------------------------------------------------


def generate(signal: str, n: int, n_groups: int, has_classes: bool, seed: int) -> Task:
    """Return groups of columns with a common factor each, of which some carry the target."""
    rng = np.random.default_rng(seed)
    size = n + N_NEW
    factors = rng.normal(size=(size, n_groups))
    signs = rng.choice([-1, 1], (n_groups, COLUMNS_PER_GROUP))
    columns = 0.8 * factors[:, :, np.newaxis] * signs + rng.normal(
        size=(size, n_groups, COLUMNS_PER_GROUP)
    )
    X = columns.reshape(size, -1)
    coefficients = np.zeros(n_groups)
    if signal == "one":
        coefficients[0] = 1.8
    elif signal == "three":
        coefficients[:3] = 1.3, 0.9, 0.6
    elif signal == "dense":
        coefficients = 1.8 * rng.normal(size=n_groups) / np.sqrt(n_groups)
    linear = factors @ coefficients
    if has_classes:
        y = (rng.random(size) < 1.0 / (1.0 + np.exp(-linear))).astype(int)
    else:
        y = linear + rng.normal(size=size)
    groups = {
        f"group {g}": list(range(g * COLUMNS_PER_GROUP, (g + 1) * COLUMNS_PER_GROUP))
        for g in range(n_groups)
    }
    return Task(X[:n], y[:n], X[n:], y[n:], groups)


def read_real(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return columns and classes, 0 or 1, of one of the twenty sets."""
    if name == "rosmap":
        with np.load(folder / "rosmap.npz") as file:
            X, y = np.hstack([file[view] for view in ("mrna", "methylation", "mirna")]), file["y"]
    elif name == "breast":
        with np.load(folder / "breast_tcga.npz") as file:
            X, y = np.hstack([file["mrna"], file["mirna"]]), file["y"] == 2
    elif name == "mfeat":
        with np.load(folder / "multifeat.npz") as file:
            X = np.hstack([file[view] for view in ("fac", "fou", "kar", "mor", "pix", "zer")])
            y = np.isin(file["y"] % 10, (3, 5, 8))
    elif (folder / f"{name}.npz").exists():
        with np.load(folder / f"{name}.npz") as file:
            X, y = file["X"], file["y"]
    else:
        with np.load(folder / "wide.npz") as file:
            X, y = file[f"{name}_X"], file[f"{name}_y"]
    X = X.astype(float)
    means = np.nanmean(np.where(np.isfinite(X), X, np.nan), axis=0)
    return np.where(np.isfinite(X), X, means), (y == np.max(y)).astype(int)


def split_real(folder: Path, name: str, seed: int) -> Task:
    """Return one split of a real set, with its columns, or clusters of them, as groups."""
    X, y = read_real(folder, name)
    n = min(MOST_TRAIN, int(0.66 * len(y)))
    splitter = StratifiedShuffleSplit(
        1, train_size=n, test_size=min(N_NEW, len(y) - n), random_state=seed
    )
    train, test = next(splitter.split(X, y))
    varies = X[train].std(axis=0) > 0
    X = X[:, varies]
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    if X.shape[1] > MOST_COLUMNS:
        X = X[:, np.random.default_rng(seed).permutation(X.shape[1])[:MOST_COLUMNS]]
    if X.shape[1] > MOST_SINGLE:
        cluster = KMeans(N_CLUSTERS, n_init=1, random_state=0).fit_predict(X[train].T)
        members = [np.flatnonzero(cluster == c).tolist() for c in np.unique(cluster)]
    else:
        members = [[column] for column in range(X.shape[1])]
    groups = {f"group {g}": columns for g, columns in enumerate(members)}
    return Task(X[train], y[train], X[test], y[test], groups)


def split_classes(folder: Path, name: str, seed: int) -> Task:
    with np.load(folder / "uci_classes.npz") as file:
        X, y = file[f"{name}_X"].astype(float), file[f"{name}_y"].astype(int)
        train, test = file[f"{name}_train_{seed}"], file[f"{name}_test_{seed}"]
    return Task(X[train], y[train], X[test], y[test], None)


def split_numbers(folder: Path, name: str, seed: int) -> Task:
    with np.load(folder / "uci_regression.npz") as file:
        X, y = file[f"{name}_X"].astype(float), file[f"{name}_y"].ravel().astype(float)
    order = np.random.default_rng(seed).permutation(len(y))
    n = min(N_UCI_NUMBERS, len(y) * 3 // 4)
    train, test = order[:n], order[n : n + N_NEW]
    return Task(X[train], y[train], X[test], y[test], None)


def split_for_intervals(name: str, n: int, seed: int) -> Task:
    if name == "friedman1":
        X, y = make_friedman1(2000, 10, noise=1.0, random_state=0)
    elif name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    else:
        columns = load_breast_cancer().data
        X, y = columns[:, 1:], columns[:, 0]
    A, B, a, b = train_test_split(X, y, train_size=n, random_state=seed)
    return Task(A, a, B, b, {f"column {j}": [j] for j in range(X.shape[1])})


def read_task(unit: Unit, folder: Path) -> Task:
    """Return the samples of a unit."""
    if unit.part in (GENERATED, NULL):
        signal, target = unit.set.split(" ")
        return generate(signal, unit.n, unit.n_kernels, target == "classes", unit.seed)
    if unit.part == REAL:
        return split_real(folder, unit.set, unit.seed)
    if unit.part == CLASSES:
        return split_classes(folder, unit.set, unit.seed)
    if unit.part == NUMBERS:
        return split_numbers(folder, unit.set, unit.seed)
    return split_for_intervals(unit.set, unit.n, unit.seed)


def all_units(folder: Path, parts: list[str], n_seeds: int | None) -> list[Unit]:
    """Return the units, seed by seed, so that a run that is stopped has something of every cell."""
    units = []
    for part in parts:
        for seed in range(N_SEEDS[part] if n_seeds is None else n_seeds):
            units += [unit._replace(seed=seed) for unit in cells(folder, part)]
    return units


def cells(folder: Path, part: str) -> Iterator[Unit]:
    """Yield the units of a part with seed 0."""
    if part == GENERATED:
        yield from generated_cells(part, SIGNALS, ("linear", "Gaussian"))
    elif part == NULL:
        yield from generated_cells(part, ("none",), ("linear",))
    elif part == REAL:
        yield from (
            Unit(part, name, kernel, 0, 0, 0)
            for name in REAL_SETS
            for kernel in ("linear", "Gaussian")
        )
    elif part == INTERVALS:
        yield from (Unit(part, name, "Gaussian", n, 0, 0) for name, n in INTERVAL_SETS.items())
    else:
        yield from (Unit(part, name, "default", 0, 0, 0) for name in uci_sets(folder, part))


def generated_cells(part: str, signals: Sequence[str], kernels: Sequence[str]) -> Iterator[Unit]:
    for n, n_kernels in SIZES:
        for signal in signals:
            for target in ("classes", "numbers"):
                for kernel in kernels:
                    yield Unit(part, f"{signal} {target}", kernel, n, n_kernels, 0)


def uci_sets(folder: Path, part: str) -> list[str]:
    """Return the names of the sets of numbers, or of those of classes with few training samples."""
    if part == NUMBERS:
        with np.load(folder / "uci_regression.npz") as file:
            return [key[:-2] for key in file.files if key.endswith("_X")]
    with np.load(folder / "uci_classes.npz") as file:
        names = [str(name) for name in file["names"]]
        return [name for name in names if len(file[f"{name}_train_0"]) <= MOST_UCI_TRAIN]


# Fits ---------------------------------------------------------------------------------------------


def make_model(method: str, task: Task, kernel: str) -> Any:
    """Return the estimator of a method, not fitted."""
    if method in (SVM, BOOSTING):
        return make_rival(method, task.has_classes)
    kernels = None
    if task.groups is not None:
        kernels = by_group(Linear() if kernel == "linear" else Gaussian(), task.groups)
        if len(task.groups) == task.X.shape[1] and kernel == "Gaussian":
            kernels = per_column(Gaussian())
    if method == MARGIN:
        return (MKLClassifierCV if task.has_classes else MKLRegressorCV)(kernels)
    settings: dict[str, Any] = {"random_state": 0}
    if method == EQUAL:
        settings["weights"] = "uniform"
    if method == EVIDENCE:
        settings |= {"criterion": "evidence", "weight_prior": 1.0}
    return (MKLRidgeClassifierCV if task.has_classes else MKLRidgeCV)(kernels, **settings)


def make_rival(method: str, has_classes: bool) -> Any:
    if has_classes:
        folds = StratifiedKFold(3, shuffle=True, random_state=0)
        machine, trees = (
            SVC(probability=True, random_state=0),
            HistGradientBoostingClassifier(random_state=0),
        )
    else:
        folds = KFold(3, shuffle=True, random_state=0)
        machine, trees = SVR(), HistGradientBoostingRegressor(random_state=0)
    if method == BOOSTING:
        return GridSearchCV(trees, BOOSTING_GRID, cv=folds)
    # Widths are relative to one over the number of columns.
    pipeline = make_pipeline(StandardScaler(), machine)
    step = pipeline.steps[-1][0]
    return _ScaledWidths(
        pipeline, {f"{step}__{name}": values for name, values in SVM_GRID.items()}, folds
    )


class _ScaledWidths:
    """A grid search whose gamma is divided by the number of columns."""

    def __init__(self, pipeline: Any, grid: dict[str, Any], folds: Any) -> None:
        self.pipeline, self.grid, self.folds = pipeline, grid, folds

    def fit(self, X: np.ndarray, y: np.ndarray) -> Any:
        grid = {
            name: values / X.shape[1] if name.endswith("gamma") else values
            for name, values in self.grid.items()
        }
        return GridSearchCV(self.pipeline, grid, cv=self.folds).fit(X, y)


def judge_classes(model: Any, task: Task, is_ridge: bool) -> Row:
    """Return figures on held-out samples, and those that the model prints."""
    P = np.clip(model.predict_proba(task.new_X), 1e-15, 1.0)
    row: Row = {
        "log_loss": float(log_loss(task.new_y, P, labels=model.classes_)),
        "accuracy": float(np.mean(model.predict(task.new_X) == task.new_y)),
    }
    if len(model.classes_) == 2:
        row["auc"] = float(roc_auc_score(task.new_y, P[:, 1]))
    if is_ridge:
        row["printed"] = float(model.best_score_)
        row["printed_log_loss"] = float(
            log_loss(task.y, model.loo_probabilities_, labels=model.classes_)
        )
        baseline = float(np.bincount(task.y).max() / len(task.y))
        error = float(np.std(model.loo_predictions_ == task.y) / np.sqrt(len(task.y)))
        row["better_than_baseline"] = int(row["printed"] > baseline + 2.0 * error)
    return row


def judge_numbers(model: Any, task: Task, is_ridge: bool) -> Row:
    """Return figures on held-out samples, and those that the model prints."""
    predicted = model.predict(task.new_X)
    row: Row = {
        "rmse": float(np.sqrt(np.mean((predicted - task.new_y) ** 2))),
        "r2": float(r2_score(task.new_y, predicted)),
    }
    if is_ridge:
        row["printed"] = float(model.best_score_)
        low, high = model.predict_interval(task.new_X, coverage=COVERAGE).T
        row["coverage"] = float(np.mean((low <= task.new_y) & (task.new_y <= high)))
    return row


def run_unit(unit: Unit, folder: Path, methods: tuple[str, ...]) -> tuple[Unit, list[Row]]:
    """Return a row for every method."""
    warnings.simplefilter("ignore")
    task = read_task(unit, folder)
    rows = []
    for method in methods:
        start = time.process_time()
        model = make_model(method, task, unit.kernel).fit(task.X, task.y)
        seconds = time.process_time() - start
        is_ridge = method in (DEFAULT, EQUAL, EVIDENCE)
        judge = judge_classes if task.has_classes else judge_numbers
        row: Row = dict(zip(("part", "set", "kernel", "n", "n_kernels", "seed"), unit, strict=True))
        # Machines without kernels, too, are of a cell with so many.
        n_kernels = unit.n_kernels or len(np.ravel(getattr(model, "weights_", [])))
        row |= {"n": len(task.y), "n_kernels": n_kernels, "method": method}
        row |= {"seconds": round(seconds, 3), **judge(model, task, is_ridge)}
        row["n_effective"] = getattr(model, "n_effective_kernels_", None)
        row["criterion"] = getattr(model, "chosen_criterion_", None)
        rows.append(row)
    return unit, rows


def commit() -> str:
    """Return the commit of the package, as far as it is known."""
    named = os.environ.get("KERNELMOSAIC_COMMIT")
    if named:
        return named
    folder = Path(kernelmosaic.__file__).parent
    answer = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return answer.stdout.strip()


def run(options: argparse.Namespace) -> None:
    """Run what is missing, and print a line a unit."""
    folder = Path(options.data or os.environ.get("KERNELMOSAIC_DATA", "."))
    here = {"version": kernelmosaic.__version__, "commit": commit(), "machine": machine()}
    store, start = Store(options.output, "few_rows"), time.monotonic()
    label = f"{here['version']} {here['commit']} {' '.join(options.methods)}"
    units = {
        f"{label}: {unit.name}": unit
        for unit in all_units(folder, options.only or list(PARTS), options.seeds)
    }
    missing = store.missing(units)
    names = {unit: name for name, unit in units.items()}

    def begun() -> Iterator[tuple[Any, ...]]:
        for name in missing:
            unit = units[name]
            if options.minutes is not None and time.monotonic() - start > 60 * options.minutes:
                return
            yield (
                unit,
                folder,
                tuple(method for method in options.methods if method in METHODS_OF[unit.part]),
            )

    print(f"{len(missing)} of {len(units)} units are to be run.", flush=True)
    for number, (unit, rows) in enumerate(in_parallel(options.jobs, run_unit, begun()), start=1):
        store.add(names[unit], [here | row for row in rows])
        if number % 100 == 0:
            print(f"{number} of {len(missing)} after {time.monotonic() - start:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", help="folder with the files; else the environment variable KERNELMOSAIC_DATA"
    )
    parser.add_argument(
        "--output",
        default="kernelmosaic-studies",
        help="folder of the run; an existing one is resumed",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes that compute, 2 by default")
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=[], help="of the parts, only these"
    )
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=list(METHODS), help="only these"
    )
    parser.add_argument("--seeds", type=int, help="so many draws or splits of every cell")
    parser.add_argument("--minutes", type=float, help="begin no unit after so many minutes")
    parser.add_argument(
        "--tables",
        nargs="+",
        metavar="RUN",
        help="write tables and page from the runs in these folders; run nothing",
    )
    parser.add_argument(
        "--rivals",
        nargs="+",
        metavar="RUN",
        help="write the table of all methods from these folders; run nothing",
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="make the page from the committed table, and run nothing",
    )
    options = parser.parse_args()
    if options.tables:
        write_table("few_rows", mean_rows(options.tables))
        draw(read_table("few_rows"))
    if options.rivals:
        write_table(RIVALS, mean_rows(options.rivals))
    if options.tables or options.rivals or options.page:
        write_pages()
    else:
        run(options)


# Table, picture and page --------------------------------------------------------------------------

KEYS = ("part", "set", "kernel", "n", "n_kernels", "method", "version", "commit", "machine")
FIGURES = (
    *(
        "log_loss",
        "accuracy",
        "auc",
        "rmse",
        "r2",
        "coverage",
        "printed",
        "printed_log_loss",
        "better_than_baseline",
    ),
    *("n_effective", "seconds"),
)


def mean_rows(folders: Sequence[str]) -> list[Row]:
    """Return the means of every cell over its draws or splits."""
    cells_of_runs: dict[tuple[Any, ...], list[Row]] = {}
    for folder in folders:
        for rows in Store(folder, "few_rows").units.values():
            for row in rows:
                cells_of_runs.setdefault(tuple(row[key] for key in KEYS), []).append(row)
    means = []
    for key, rows in sorted(cells_of_runs.items()):
        mean: Row = dict(zip(KEYS, key, strict=True)) | {"draws": len(rows)}
        for figure in FIGURES:
            known = [float(row[figure]) for row in rows if row.get(figure) is not None]
            mean[figure] = f"{np.mean(known):.5g}" if known else ""
        means.append(mean)
    return means


def label(row: Row) -> str:
    """Return the name of a method, with the version if it is the one that this version is compared
    with."""
    is_reference = row["commit"] == REFERENCE_COMMIT
    return f"{row['method']} of {REFERENCE_VERSION}" if is_reference else str(row["method"])


def draw(rows: list[Row]) -> None:
    """Draw printed beside held-out accuracy of the default, as it is and as it was."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 4.2), layout="constrained")
    names = sorted({label(row) for row in rows if row["method"] == DEFAULT}, key=len, reverse=True)
    for ax, name in zip(
        figure.subplots(1, len(names), sharex=True, sharey=True, squeeze=False)[0],
        names,
        strict=True,
    ):
        for part, marker in ((GENERATED, "o"), (REAL, "s"), (NULL, "^")):
            cells_of_part = [
                row
                for row in rows
                if label(row) == name and row["part"] == part and row["accuracy"] != ""
            ]
            x, y = (
                [float(row[figure]) for row in cells_of_part] for figure in ("accuracy", "printed")
            )
            ax.plot(x, y, marker, label=TITLES[part], markersize=5, alpha=0.7)
        ax.axline((0.5, 0.5), slope=1.0, color="0.5", linewidth=0.8)
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("accuracy on new samples", fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("accuracy that the fit prints", fontsize=9)
    figure.axes[0].legend(fontsize=8, frameon=False)
    figure.savefig(common.IMAGES / PICTURE, dpi=95, metadata={"Software": None})


TITLES = {
    GENERATED: "generated, with signal",
    NULL: "generated, no signal",
    REAL: "20 real sets, one kernel per column or cluster",
    CLASSES: "UCI classes, default kernels",
    NUMBERS: "UCI numbers, default kernels",
    INTERVALS: "intervals, one Gaussian per column",
}


def mean_of(rows: Sequence[Row], figure: str) -> float | None:
    """Return the mean over the cells that have the figure."""
    known = [float(row[figure]) for row in rows if row[figure] != ""]
    return float(np.mean(known)) if known else None


def rivals_table() -> str:
    """Return the means of all methods over the cells that all of them were run on."""
    rows = read_table(RIVALS)
    lines = []
    for part in (REAL, GENERATED):
        for figure in ("accuracy", "r2"):
            of_part = [row for row in rows if row["part"] == part and row[figure] != ""]
            methods_of_cell: dict[tuple[Any, ...], set[str]] = {}
            for row in of_part:
                methods_of_cell.setdefault(cell_of(row), set()).add(row["method"])
            common_cells = {
                cell
                for cell, methods in methods_of_cell.items()
                if methods == set(METHODS_OF_RIVALS)
            }
            if not common_cells:
                continue
            n_sets = len({cell[1] for cell in common_cells})
            main = "log_loss" if figure == "accuracy" else "rmse"
            of_method = {
                method: {cell_of(row): row for row in of_part if row["method"] == method}
                for method in METHODS_OF_RIVALS
            }
            for method, row_of_cell in of_method.items():
                group = [row_of_cell[cell] for cell in sorted(common_cells)]
                figures = [mean_of(group, key) for key in ("log_loss", "auc", figure, "seconds")]
                shown = ["" if value is None else f"{value:.3f}" for value in figures]
                ours = np.array(
                    [float(of_method[DEFAULT][cell][main]) for cell in sorted(common_cells)]
                )
                more = np.array([float(row[main]) for row in group]) - ours
                error = more.std(ddof=1) / np.sqrt(len(more))
                shown.append("" if method == DEFAULT else f"{more.mean():+.3f} ± {error:.3f}")
                lines.append(
                    [TITLES[part], f"{len(common_cells)} of {n_sets} sets", method, *shown]
                )
    heads = [
        "group",
        "cells",
        "method",
        "log-loss",
        "AUC",
        "accuracy or R²",
        "CPU s",
        "loss less the default's",
    ]
    return common.markdown(heads, lines)


def cell_of(row: Row) -> tuple[Any, ...]:
    """Return what all methods of a cell have in common."""
    n_kernels = row["n_kernels"] if row["part"] == GENERATED else ""
    return (*(row[key] for key in ("part", "set", "kernel", "n")), n_kernels)


def page() -> str:
    """Return the study's page, made from the committed tables alone."""
    rows = read_table("few_rows")
    lines = []
    for part in PARTS:
        for target in ("classes", "numbers"):
            figure = "accuracy" if target == "classes" else "r2"
            of_part = [row for row in rows if row["part"] == part and row[figure] != ""]
            names = sorted({label(row) for row in of_part})
            for name in names:
                group = [row for row in of_part if label(row) == name]
                found = [
                    mean_of(group, key)
                    for key in ("log_loss", figure, "printed", "coverage", "seconds")
                ]
                shown = ["" if value is None else f"{value:.3f}" for value in found]
                better = mean_of(group, "better_than_baseline") if part == NULL else None
                shown.append("" if better is None else f"{100 * better:.1f} %")
                lines.append([TITLES[part], target, name, *shown])
    heads = [
        "group",
        "targets",
        "method",
        "log-loss",
        "accuracy or R²",
        "printed",
        "coverage",
        "CPU s",
        "false alarms",
    ]
    table = common.markdown(heads, lines)
    return f"""# Few samples and many kernels

Weights learned for 20 to 150 kernels from 30 to 400 samples, beside equal weights of the same kernels, and what a fit
prints beside what new samples give. Means over cells; [the table of all cells](few_rows.csv) has sizes,
versions and commits.

{table}

*Printed* is `best_score_` of the ridge estimators, *coverage* that of 90 % intervals, *false alarms* how often the
printed accuracy exceeds the largest class by two standard errors although nothing informs. *default* is
`MKLRidgeClassifierCV()` or `MKLRidgeCV()` with the kernels named, *margin* `MKLClassifierCV()` or `MKLRegressorCV()`.

![Printed beside held-out accuracy](../images/{PICTURE})

## Other machines

The same kernels by the margin, and machines that read the columns: a support vector machine whose C and width, and
boosted trees whose number, leaves and samples per leaf, were chosen by three folds. One split, or draw, of every
cell that all methods were run on ([each cell](few_rows_rivals.csv), with version and commit). The last column has the
mean difference of the log-loss, or RMSE, with its standard error over cells; kernels of the same set share a split.

{rivals_table()}

## Protocol

{protocol()}

Machine: {common.machines("few_rows")}.
"""


def protocol() -> str:
    """Return what was fixed before the run, as the head of this file has it."""
    text = str(__doc__).split("Fixed before the run:")[1]
    return "Fixed before the run:" + text.rstrip()


def summary() -> tuple[str, str, str]:
    """Return what the table of docs/studies.md says of this study."""
    rows = read_table("few_rows")

    def loss_of(part: str, name: str) -> float:
        group = [row for row in rows if row["part"] == part and label(row) == name]
        return float(mean_of(group, "log_loss") or np.nan)

    ours, equal = loss_of(GENERATED, DEFAULT), loss_of(GENERATED, EQUAL)
    verdict = "lower" if ours < equal else "higher"
    return (
        f"log-loss {ours:.3f} generated, {loss_of(REAL, DEFAULT):.3f} real",
        f"{equal:.3f} generated, {loss_of(REAL, EQUAL):.3f} real, equal weights",
        f"{verdict} than equal weights on generated sets (means of draws, no test)",
    )


def write_pages() -> None:
    common.write_page("few_rows", page(), summary())


if __name__ == "__main__":
    main()
