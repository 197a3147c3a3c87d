"""When learning weights is not worth it: learned and equal weights, one kernel, a tuned SVM, trees, on the public sets.

    python studies/worth.py --data FOLDER [--output FOLDER] [--jobs 2]
    python studies/worth.py --page

FOLDER, or the environment variable KERNELMOSAIC_DATA, holds the public sets (docs/datasets.md); a set without a file is
fetched. Every split that is done is kept in the folder of the run: a stopped run goes on where it was. Writes
docs/studies/worth*.csv, the picture and its part of docs/studies.md.
"""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

import common
import numpy as np
from common import Row, Store, cpu_time, machine, markdown, p_text, read_table, write_table
from joblib import Parallel, delayed
from scipy.stats import friedmanchisquare, rankdata
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from kernelmosaic import MKLClassifierCV, MKLRegressorCV
from kernelmosaic.datasets import load
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, family
from kernelmosaic.stats import t_test_resampled, wilcoxon, win_tie_loss

PICTURE = "studies_worth_ranks.png"
CLASSES = (
    *("australian", "banana", "breast_cancer_original", "german_numeric", "heart", "ionosphere", "liver", "pima"),
    *("ringnorm", "sonar", "spambase", "wdbc", "wpbc", "advert_first998", "a9a", "w8a"),
    *("vehicle", "wine", "waveform", "satimage", "segment", "pendigits", "multifeat", "usps", "mnist", "olivetti"),
)
REGRESSION = ("concrete", "whitewine", "motorcycle", "diabetes")
REPEATS, TRAIN, TEST = 10, 300, 1000
CS, GAMMAS = np.logspace(-1, 3, 5), np.logspace(-1.5, 0.5, 5)
NORMS = {"ℓ1": 1, "ℓ2": 2, "uniform": "uniform"}
SINGLE, SVM, TREES = "best single kernel", "tuned SVM", "gradient boosting"
METHODS = (*NORMS, SINGLE, SVM, TREES)
#: Of the three norms the one whose score in the folds is best; nothing is fitted for it.
FOLDS = "norm chosen by folds"


def read_set(name: str, folder: str | None) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Return numbers, targets, and kernels: one per source where there are several, else those that come by default."""
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        columns: Row = {}
    else:
        found = load(name, data_home=folder)
        X, y, columns = np.asarray(found.data, dtype=np.float64), found.target, found.columns
    if name == "olivetti":  # squares of 4 × 4 pixels, or trees would take hours
        X = X.reshape(-1, 16, 4, 16, 4).mean(axis=(2, 4)).reshape(len(X), -1)
    if columns:
        return X, y, [(view, Gaussian(), where) for view, where in columns.items()]
    return X, y, [Linear(), Polynomial(), *family(Gaussian(), factor=[1, 2, 4])]


def run_split(name: str, repeat: int, folder: str | None) -> Row:
    """Return score and CPU seconds of every method on one split."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", UserWarning)
    regression = name in REGRESSION
    X, y, kernels = read_set(name, folder)
    train_size = min(TRAIN, len(y) * 7 // 10)
    Splits = ShuffleSplit if regression else StratifiedShuffleSplit
    splitter = Splits(1, train_size=train_size, test_size=min(TEST, len(y) - train_size), random_state=repeat)
    train, test = next(splitter.split(X, y))
    A, B, a, b = X[train], X[test], y[train], y[test]
    if regression:
        centre, spread = a.mean(), a.std()
        a, b = (a - centre) / spread, (b - centre) / spread
    folds: Any = (KFold if regression else StratifiedKFold)(3, shuffle=True, random_state=0)
    Ours: Any = MKLRegressorCV if regression else MKLClassifierCV
    scores: Row = {}
    seconds: Row = {}
    chosen: Row = {}
    inner: Row = {}
    for method, norm in NORMS.items():
        with cpu_time(seconds, method):
            model = Ours(kernels, Cs=CS, norms=(norm,), cv=folds).fit(A, a)
            scores[method] = model.score(B, b)
        inner[method], chosen[method] = model.best_score_, model.C_
    with cpu_time(seconds, SINGLE):
        alone = [Ours([kernel], Cs=CS, norms=("uniform",), cv=folds).fit(A, a) for kernel in kernels]
        best = int(np.argmax([model.best_score_ for model in alone]))
        scores[SINGLE] = alone[best].score(B, b)
    inner[SINGLE], chosen[SINGLE] = alone[best].best_score_, best
    step, machine_ = ("svr", SVR()) if regression else ("svc", SVC())
    there = A.std(axis=0) > 0
    grid = {f"{step}__C": CS, f"{step}__gamma": GAMMAS / there.sum()}
    with cpu_time(seconds, SVM):
        search = GridSearchCV(make_pipeline(StandardScaler(), machine_), grid, cv=folds).fit(A[:, there], a)
        scores[SVM] = search.score(B[:, there], b)
    trees: Any = (HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier)(random_state=0)
    with cpu_time(seconds, TREES):
        scores[TREES] = trees.fit(A[:, there], a).score(B[:, there], b)
    figures = {"scores": {key: float(value) for key, value in scores.items()}, "seconds": seconds}
    return figures | {
        "inner": inner,
        "chosen": {key: float(value) for key, value in chosen.items()},
        "train": len(train),
        "test": len(test),
    }


def run(options: Any) -> None:
    """Run the splits that are missing, and write tables, picture and page once all are there."""
    folder = options.data or os.environ.get("KERNELMOSAIC_DATA")
    units = {f"{name}, {k}": (name, k) for k in range(REPEATS) for name in (*CLASSES, *REGRESSION)}
    store = Store(options.output, "worth")
    missing = store.missing([unit for unit, (name, _) in units.items() if not options.only or name in options.only])
    start = time.monotonic()
    done = Parallel(n_jobs=options.jobs, return_as="generator")(
        delayed(run_split)(*units[unit], folder) for unit in missing
    )
    for number, (unit, found) in enumerate(zip(missing, done, strict=True), start=1):
        store.add(unit, found)
        scores = " ".join(f"{100 * score:.1f}" for score in found["scores"].values())
        print(f"{number} of {len(missing)}, {time.monotonic() - start:.0f} s: {unit}: {scores}", flush=True)
    if not store.missing(units):
        write_tables(store)
        write_page()


# Tables, picture and page --------------------------------------------------------------------------------------------


def write_tables(store: Store) -> None:
    """Write one line per set, split and method; splits that not all sets have are left out."""
    names = (*CLASSES, *REGRESSION)
    whole = [k for k in range(REPEATS) if not store.missing(f"{name}, {k}" for name in names)]
    rows = []
    for name in names:
        for k in whole:
            found = store.units[f"{name}, {k}"]
            for method in METHODS:
                line = {"set": name, "split": k, "train": found["train"], "test": found["test"], "method": method}
                line |= {"score": f"{100 * found['scores'][method]:.2f}", "inner": ""}
                if method in found["inner"]:
                    line["inner"] = f"{100 * found['inner'][method]:.2f}"
                rows.append(line | {"cpu_seconds": f"{found['seconds'][method]:.2f}"})
    write_table("worth", rows)
    write_table("worth_machine", [{"machine": machine()}])


class Figures:
    """The committed table: scores (sets, splits, methods), what the folds said, CPU seconds."""

    def __init__(self) -> None:
        rows = read_table("worth")
        self.sets = list(dict.fromkeys(row["set"] for row in rows))
        shape = len(self.sets), -1, len(METHODS)
        self.scores = np.array([row["score"] for row in rows]).reshape(shape)
        inner = [float(row["inner"]) if row["inner"] != "" else np.nan for row in rows]
        self.seconds = np.array([row["cpu_seconds"] for row in rows]).reshape(shape)
        self.sizes = {row["set"]: (int(row["train"]), int(row["test"])) for row in rows}
        self.repeats = self.scores.shape[1]
        # Whether to learn weights is a question for the folds, too: the norm with the best score there.
        norms = slice(0, len(NORMS))
        best = np.argmax(np.array(inner).reshape(shape)[:, :, norms], axis=2)
        folds = np.take_along_axis(self.scores[:, :, norms], best[:, :, None], axis=2)
        self.methods = [*METHODS, FOLDS]
        self.scores = np.concatenate([self.scores, folds], axis=2)
        self.shares = [float(np.mean(best == m)) for m in range(len(NORMS))]
        self.classes = np.array([name in CLASSES for name in self.sets])

    def of(self, method: str) -> np.ndarray:
        """Return the scores of a method, (sets, splits)."""
        return self.scores[:, :, self.methods.index(method)]

    def ranks(self) -> np.ndarray:
        """Return the ranks of the methods on every set by their mean, 1 the best, (sets, methods)."""
        return rankdata(-self.scores.mean(axis=1), axis=1)

    def friedman(self, methods: tuple[str, ...] = METHODS) -> tuple[float, float]:
        columns = [self.of(method).mean(axis=1) for method in methods]
        found = friedmanchisquare(*columns)
        return float(found.statistic), float(found.pvalue)

    def compared(self, a: str, b: str) -> list[str]:
        """Return means over the sets, wins, the test over the sets, and on how many sets the splits tell them apart."""
        first, second = self.of(a).mean(axis=1), self.of(b).mean(axis=1)
        won = win_tie_loss(first, second)
        sure = [0, 0]
        for k, name in enumerate(self.sets):
            n_train, n_test = self.sizes[name]
            difference = first[k] - second[k]
            p = t_test_resampled(self.of(a)[k], self.of(b)[k], n_train=n_train, n_test=n_test).p_value
            sure[0] += p < 0.05 and difference > 0
            sure[1] += p < 0.05 and difference < 0
        off = (first - second)[self.classes].mean()
        p_text_ = p_text(wilcoxon(first, second).p_value)
        return [f"{off:+.2f}", f"{won.wins} / {won.ties} / {won.losses}", p_text_, f"{sure[0]} / {sure[1]}"]


def draw(figures: Figures) -> None:
    """Draw, set by set, how far each method is from the uniform sum."""
    from matplotlib.figure import Figure

    shown = [method for method in METHODS if method != "uniform"]
    base = figures.of("uniform").mean(axis=1)
    order = np.argsort(figures.of("ℓ1").mean(axis=1) - base)
    figure = Figure(figsize=(9, 7.5), layout="constrained")
    ax = figure.subplots()
    for method, marker in zip(shown, "osD^v", strict=True):
        off = np.clip((figures.of(method).mean(axis=1) - base)[order], -12, 12)
        ax.plot(off, range(len(order)), marker, label=method, markersize=5, alpha=0.8)
    ax.axvline(0, color="0.5", linewidth=0.8)
    ax.set_yticks(range(len(order)), [figures.sets[i] for i in order], fontsize=8)
    ax.grid(axis="y", color="0.92")
    ax.set_xlabel("points of accuracy (R² for regression) above the uniform sum; cut at ±12", fontsize=9)
    ax.legend(fontsize=8, frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(common.IMAGES / PICTURE, dpi=95, metadata={"Software": None})


PAIRS = (
    *(("ℓ1", "uniform"), ("ℓ2", "uniform"), ("ℓ1", SINGLE), ("ℓ2", SINGLE), ("uniform", SINGLE)),
    *(("ℓ1", SVM), ("ℓ2", SVM), ("uniform", SVM), (FOLDS, "uniform"), (FOLDS, SVM), (FOLDS, TREES), (SVM, TREES)),
)


def means(figures: Figures) -> str:
    """Return the table of means and ranks."""
    ranks = figures.ranks()
    rows = [
        [
            method,
            f"{figures.of(method)[figures.classes].mean():.2f}",
            f"{figures.of(method)[~figures.classes].mean():.2f}",
            f"{ranks[:, m].mean():.2f}",
            f"{figures.seconds[:, :, m].mean():.1f}" if method in METHODS else "",
        ]
        for m, method in enumerate(figures.methods)
    ]
    return markdown(["method", "accuracy, %", "R², %", "mean rank", "CPU s a search"], rows)


def part() -> str:
    """Return the study's part of docs/studies.md, made from the committed tables alone."""
    figures = Figures()
    ranks = figures.ranks()
    rows = [
        [name, figures.sizes[name][0], *(f"{value:.1f}" for value in figures.scores[k].mean(axis=0))]
        for k, name in enumerate(figures.sets)
    ]
    statistic, p = figures.friedman()
    _, p_norms = figures.friedman(tuple(NORMS))
    rank = dict(zip(figures.methods, ranks.mean(axis=0), strict=True))
    best = np.argmax(figures.scores.mean(axis=1), axis=1)
    trees = [name for name, m in zip(figures.sets, best, strict=True) if figures.methods[m] == TREES]

    def gain(a: str, b: str) -> str:
        return figures.compared(a, b)[0]

    def views(name: str) -> str:
        k = figures.sets.index(name)
        found = figures.scores[k].mean(axis=0)
        off = [found[figures.methods.index(m)] - found[figures.methods.index(SINGLE)] for m in NORMS]
        return f"{min(off):.1f} to {max(off):.1f} points on {name}"

    return TEXT.format(
        short="" if figures.repeats == REPEATS else f" (of {REPEATS} planned, no more have been run)",
        folds_gain=gain(FOLDS, "uniform"),
        single_gain=gain(SINGLE, "uniform"),
        svm_rank=f"{rank[SVM]:.2f}",
        l1_svm=gain("ℓ1", SVM),
        p_l1_svm=figures.compared("ℓ1", SVM)[2],
        views=" and ".join(views(name) for name in ("advert_first998", "multifeat")),
        tree_sets=", ".join(trees),
        means=means(figures),
        rows=markdown(["set", "train", *figures.methods], rows),
        compared=markdown(
            ["", "accuracy, points", "sets better / equal / worse", "p, Wilcoxon", "sets with p < 0.05: for / against"],
            [[f"{a} − {b}", *figures.compared(a, b)] for a, b in PAIRS],
        ),
        n_sets=len(figures.sets),
        n_classes=int(figures.classes.sum()),
        n_targets=int((~figures.classes).sum()),
        repeats=figures.repeats,
        train=TRAIN,
        statistic=f"{statistic:.1f}",
        p=p_text(p),
        p_norms=p_text(p_norms),
        shares=", ".join(f"{m} {100 * share:.0f} %" for m, share in zip(NORMS, figures.shares, strict=True)),
        machine=read_table("worth_machine")[0]["machine"],
        picture=PICTURE,
    )


TEXT = """\
## One table of numbers: learned weights are not more accurate

All {n_sets} public sets of numbers, {n_classes} of classes and {n_targets} of targets. {repeats} random splits each, at
most {train} training samples and 1,000 to test on{short}. Kernels are those that come by default, a linear and a
quadratic one and Gaussians of 1, 2 and 4 times the median distance; where there are several sources (advert_first998,
multifeat), one Gaussian for each. {{class}}`~kernelmosaic.MKLClassifierCV` or {{class}}`~kernelmosaic.MKLRegressorCV`
standardise and choose C of five values, 0.1 to 1,000, by three shuffled folds: with weights of norm 1, of norm 2, equal
ones, and every kernel alone, of which the folds choose the best. *Norm chosen by folds* is the best of the first three
in the folds. Beside them `SVC` or `SVR` of scikit-learn, standardised, with the same values of C and five of gamma
searched by the same folds, and gradient boosting of histograms as it comes, nothing searched. Olivetti's faces are
reduced to 16 × 16 pixels.

Sizes, folds and grids were cut twice for time, the second time after 18 splits had been seen: from 500 training
samples, six values of C and six of gamma, five folds and searched trees.

### Conclusion

- **On one table of numbers learned weights do not raise the accuracy.** Norm 1, norm 2 and equal weights do not differ
  significantly over the sets (Friedman's test of the three: *p* = {p_norms}), and equal weights take the least time. A
  norm chosen by the folds changes the accuracy by {folds_gain} points against equal weights. With {repeats} splits of
  small sets a difference of some tenths of a point would not show.
- **Several kernels are not more accurate than one that is chosen or tuned.** The best single kernel is {single_gain}
  points from equal weights, and the tuned SVM has the best mean rank, {svm_rank}; norm 1 is {l1_svm} points from it
  (*p* = {p_l1_svm}).
- **Several sources gain from several kernels.** On advert_first998 and multifeat one Gaussian for each source is ahead
  of the best source by {views}, whether its weights are learned or equal.
- Gradient boosting, as it comes, has the worst mean rank, and yet the best figure on {tree_sets}. On one
  table it is worth a comparison.
- Learned weights rank the kernels, and norm 1 selects among them: [which method when](choosing.md).

### Means and ranks

{means}

Ranks are of the means over the splits, 1 the best of the seven. Friedman's test of the first six methods over the
{n_sets} sets: χ² = {statistic}, *p* = {p}. What the folds chose: {shares}.

### In pairs

{compared}

Points are means over the sets of classes. Better, equal and worse, and *p* by {{func}}`~kernelmosaic.stats.wilcoxon`,
go by the means on all sets. The last column has the sets on which the splits alone show a difference by
{{func}}`~kernelmosaic.stats.t_test_resampled`. Of twelve comparisons, *p* above 0.004 is weak
evidence.

![Every method set by set, beside the uniform sum](images/{picture})

### Set by set

Accuracy, or R² for the last {n_targets}, in percent, mean over the splits.

{rows}

Machine: {machine}.
"""


def write_page() -> None:
    draw(Figures())
    common.write_part("worth", part())


if __name__ == "__main__":
    common.main(__doc__ or "", run, write_page)
