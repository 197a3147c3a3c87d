"""Classes of ten wide sets, 500 to 10,000 columns, fold by fold beside the published figures of
TabPFN-Wide and others.

    python studies/wide.py --data FOLDER [--output FOLDER] [--jobs 2] [--only SET …] [--methods NAME
    …]
        [--most-rows 500] [--minutes 20] [--device cuda]
    python studies/wide.py --data FOLDER --tables RUN [RUN …]
    python studies/wide.py --page

FOLDER, or the environment variable KERNELMOSAIC_DATA, holds wide.npz and wide_results.csv. Every
method on every fold of every set is a unit of its own and kept in the folder of the run: a stopped
run goes on where it was, and parts may be run on several machines. Each unit's seconds are printed,
and at the end those of each method; `--minutes` ends a run in time. `--tables` writes
docs/studies/wide*.csv, the picture and the page docs/studies/wide.md from the folders of all runs.
Methods: ours, equal, svm, forest, boosting, tuned-boosting, xrfm, rfm; xrfm needs the package of
that name, and is left out without it.

Fixed before any run of this script: the sets, the published 279 folds, the methods with their
settings, and the primary figure, **the mean rank of accuracy over the sets**, of the means over the
folds, among all methods that are run here and all published ones. Second: mean accuracy, area under
the ROC curve (AUC), sets better, equal and worse with Wilcoxon's test over the sets, log-loss,
seconds, and set by set the difference to TabPFN-Wide 5k on the same folds. Trials of kernelmosaic
with default settings on eight of the sets had been seen before.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import _contest
import common
import numpy as np
from _contest import Contest, Figures
from _rivals import (
    BOOSTING,
    DEFAULT,
    EQUAL,
    FITS,
    FOREST,
    LEAK,
    MANY,
    OURS,
    RFM,
    SVM,
    TITLES,
    TREES,
    XRFM,
    XRFM_SETTINGS,
    Split,
    make_split,
)
from common import Row, data_file, markdown, p_text, read_table, write_table
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.utils import shuffle

from kernelmosaic.stats import t_test_resampled, win_tie_loss

PICTURE = "studies_wide_ranks.png"
#: Three folds, repeated ten times, or three times from so many samples on.
LARGE, MANY_REPEATS, FEW_REPEATS, SEED = 2500, 10, 3, 42
#: The published method that is compared fold by fold.
RIVAL = "TabPFN-Wide 5k, published"


def n_folds(n: int) -> int:
    return 3 * (FEW_REPEATS if n >= LARGE else MANY_REPEATS)


def read_fold(path: Path, name: str, fold: int) -> Split:
    """Return a fold as the published figures have it: samples shuffled first, then split by
    class."""
    with np.load(path) as file:
        X, y = shuffle(file[f"{name}_X"], file[f"{name}_y"], random_state=SEED)
    folds = RepeatedStratifiedKFold(n_splits=3, n_repeats=n_folds(len(y)) // 3, random_state=SEED)
    train, test = list(folds.split(np.zeros(len(y)), y))[fold]
    return make_split(X, y, train, test, fold)


# The script with the leak was never run on these sets.
CONTEST = Contest(
    "wide",
    "wide.npz",
    read_fold,
    n_folds,
    tuple(one for one in FITS if one != LEAK),
    with_area=True,
)


def write_published(chosen: Any) -> None:
    """Write the published figures of the folds that are in the table."""
    there = {(row["set"], int(row["split"])) for row in read_table(CONTEST.name)}
    with data_file(chosen.data, "wide_results.csv").open(encoding="utf-8", newline="") as file:
        own = [row for row in csv.DictReader(file) if (row["set"], int(row["fold"])) in there]
    keys = ("accuracy", "auc")
    write_table(
        "wide_published",
        [
            {"set": row["set"], "split": row["fold"], "method": f"{row['method']}, published"}
            | {key: row[key] for key in keys}
            for row in own
        ],
    )


def read_figures() -> Figures:
    # Published methods have all ten sets; one that lacks some would take them from the ranks of
    # all.
    return Figures([*read_table(CONTEST.name), *read_table("wide_published")], least=1.0)


def by_fold(figures: Figures) -> str:
    """Return, set by set, kernelmosaic beside the rival on the folds that both have."""
    lines = []
    for name in figures.sets:
        first, second = figures.of(name, OURS), figures.of(name, RIVAL)
        folds = sorted(set(first) & set(second))
        if len(folds) < 2:
            continue
        a, b = (np.array([of[k] for k in folds]) for of in (first, second))
        row: Row = next(one for one in figures.rows if one["set"] == name and "train" in one)
        # Published figures are printed with six places.
        won = win_tie_loss(a.round(5), b.round(5))
        p = t_test_resampled(a, b, n_train=int(row["train"]), n_test=int(row["test"])).p_value
        counts = f"{won.wins} / {won.ties} / {won.losses}"
        lines.append(
            [name, len(folds), f"{100 * a.mean():.1f}", f"{100 * b.mean():.1f}", counts, p_text(p)]
        )
    return markdown(
        ["set", "folds", "kernelmosaic", "TabPFN-Wide 5k", "folds better / equal / worse", "*p*"],
        lines,
    )


def methods_text(figures: Figures | None) -> str:
    """Describe the methods that were run, all of them before the first run, and name the others."""
    there = [one for one in CONTEST.methods if figures is None or one in figures.methods]
    lines = [f"- {ABOUT[one]}" for one in there]
    absent = [TITLES[one] for one in CONTEST.methods if one not in there]
    if absent:
        lines.append(f"- Not run on these sets, though the script has them: {'; '.join(absent)}.")
    return "\n".join(lines)


def lacking(figures: Figures) -> str:
    """Name the sets that a method lacks, as lines of the limits, with kernelmosaic beside it on the
    folds it has."""
    lines = []
    for method in figures.methods:
        absent = [name for name in figures.sets if name not in figures.complete(method)]
        if absent:
            sets = ", ".join(absent) if len(absent) < len(figures.sets) else "any set"
            pair = figures.pair_of_splits(OURS, method)
            lines.append(
                f"- *{_contest.title(method)}* was not run on all folds of {sets}, and has no rank."
                f" On the folds that both have, kernelmosaic has {pair.said()}.\n"
            )
    return "".join(lines)


def page() -> str:
    """Return the study's page, made from the committed tables alone."""
    figures = read_figures() if _contest.has_tables(CONTEST.name) else None
    found = {"answer": NOT_YET, "results": "", "lost": "", "methods": methods_text(figures)}
    if figures is not None and figures.compared:
        found |= {
            "answer": _contest.answer(figures),
            "results": RESULTS.format(
                **_contest.results(figures, CONTEST, "auc", "AUC"),
                picture=PICTURE,
                folds=by_fold(figures),
            ),
            "lost": (
                "- kernelmosaic is furthest behind the best method on"
                f" {_contest.behind(figures)}.\n" + lacking(figures)
            ),
        }
    return TEXT.format(**found)


#: The methods on the page.
ABOUT = {
    OURS: "*kernelmosaic*: {class}`~kernelmosaic.MKLRidgeClassifierCV` with default settings.",
    EQUAL: "*equal weights*: the same kernels, the ridge alone learned.",
    SVM: (
        "*tuned SVM*: scikit-learn's `SVC`, six values of C times five of gamma by three shuffled"
        " folds."
    ),
    FOREST: f"*random forest*: {TREES} trees.",
    DEFAULT: "*boosting, defaults*: `HistGradientBoostingClassifier`.",
    BOOSTING: (
        f"*tuned boosting*: the same over two settings (12 up to {MANY:,} columns) by three"
        " shuffled folds."
    ),
    XRFM: (
        f"*xRFM*: the package `xrfm`, the best of {XRFM_SETTINGS} random settings from its authors'"
        " search space on a held-out fifth of the training part."
    ),
    RFM: (
        "*RFM*: recursive feature machines (Radhakrishnan et al., arXiv:2212.13881), ridge, scaling"
        " and metric chosen on halves of the training part."
    ),
}
NOT_YET = (
    "No figures yet: the runs are not finished. `--tables` writes them here from the folders of the"
    " runs."
)
TEXT = """\
# Wide tables: more columns than samples

**Is kernelmosaic with default settings as accurate as foundation models for wide tables?** {answer}

## Protocol

Ten sets of scikit-feature's collection (genes, words, spectra), 62 to 2,600 samples of 500 to 10,000 columns, with the
279 folds of the TabPFN-Wide study (arXiv:2510.06162): three stratified folds repeated ten times, three times for
madelon. Columns that are constant in the training part are dropped. Published figures are those of the same folds;
their foundation models were run without ensembles. They are not run here, because their weights are not available. The
primary figure is the mean rank of accuracy over the sets among all methods, published ones included. Sets, folds,
methods and settings were fixed before any run of the script; trials of kernelmosaic on eight of the sets (all but
BASEHOCK and madelon) had been seen before.

{methods}

{results}## Limits

{lost}- madelon's classes depend on an interaction of 5 of its 500 columns; 15 more are combinations of these, the rest
  is noise. The default kernels compare samples by all columns, so noise dominates their distances. Trees select
  columns. One learned width per column does not find them either: 60.6 % on the first fold.
- Ten sets are few: only large differences in mean rank are significant.

## Run it

    python studies/wide.py --data FOLDER --output run-1 --methods ours xrfm --device cuda
    python studies/wide.py --data FOLDER --tables run-1 run-2

`wide.npz` has `names`, `<set>_X` and `<set>_y`; `wide_results.csv` has `set`, `method`, `fold`, `accuracy`, `auc`.
"""
RESULTS = """\
## Results

Means over the {n_compared} of {n_sets} sets of which all ranked methods have every fold. {splits_run} The last three
columns compare kernelmosaic with the method on all sets that both have, *p* by {{func}}`~kernelmosaic.stats.wilcoxon`.
Seconds are CPU time of fit and search, or wall clock on a GPU. [Every fold](wide.csv), [published
figures](wide_published.csv), [means by set](wide_sets.csv).

{table}

![Mean ranks; bars join methods that do not differ significantly](../images/{picture})

Mean ranks that differ by less than {difference} do not differ significantly (Nemenyi's test of all pairs at 5 %).

Accuracy set by set, *p* by {{func}}`~kernelmosaic.stats.t_test_resampled` over the folds:

{folds}

Machines: {machines}.

"""


def summary() -> tuple[str, str, str]:
    """Return the study's cells of the overview: ours, the best other, the verdict."""
    return _contest.summary(read_figures() if _contest.has_tables(CONTEST.name) else None)


def write_page() -> None:
    if _contest.has_tables(CONTEST.name) and (figures := read_figures()).compared:
        _contest.draw_ranks(figures, common.IMAGES / PICTURE)
        _contest.write_sets(figures, CONTEST.name)
    common.write_page(CONTEST.name, page(), summary())


if __name__ == "__main__":
    _contest.main(__doc__ or "", CONTEST, write_page, write_published)
