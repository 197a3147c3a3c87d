"""Classes of 115 UCI sets on published splits: kernelmosaic with defaults beside tuned machines,
trees and xRFM.

    python studies/uci_classes.py --data FOLDER [--output FOLDER] [--jobs 2] [--only SET …]
    [--methods NAME …]
        [--most-rows 1000] [--minutes 20] [--device cuda]
    python studies/uci_classes.py --data FOLDER --tables RUN [RUN …]
    python studies/uci_classes.py --page

FOLDER, or the environment variable KERNELMOSAIC_DATA, holds uci_classes.npz. Every method on every
split of every set is a unit of its own and kept in the folder of the run: a stopped run goes on
where it was, and parts may be run on several machines. Each unit's seconds are printed, and at the
end those of each method; `--minutes` ends a run in time. `--tables` writes
docs/studies/uci_classes*.csv, the picture and docs/studies/uci_classes.md from the folders of all
runs. Methods: ours, equal, svm, forest, boosting, tuned-boosting, xrfm, rfm, rfm-leak; xrfm needs
the package of that name, and is left out without it.

Fixed before any run of this script: the sets, their four splits, the methods with their settings,
and the primary figure, **the mean rank of accuracy over the sets**, of the means over the four
splits, among all methods but the one that sees labels of test samples. Second: mean accuracy, sets
better, equal and worse with Wilcoxon's test over the sets, log-loss, seconds. Trials of
kernelmosaic with default settings, an SVM and a forest on most of the sets had been seen before.
"""

from __future__ import annotations

from pathlib import Path

import _contest
import common
import numpy as np
from _contest import Contest, Figures
from _rivals import FITS, LEAK, MANY, MOST_SEARCHED, RFM, TREES, XRFM_SETTINGS, Split, make_split
from common import read_table

PICTURE = "studies_uci_classes_ranks.png"


def read_split(path: Path, name: str, split: int) -> Split:
    """Return a published split."""
    with np.load(path) as file:
        X, y, train, test = (
            file[f"{name}_{part}"] for part in ("X", "y", f"train_{split}", f"test_{split}")
        )
    return make_split(X, y, train, test, split)


def four(n: int) -> int:
    return 4


CONTEST = Contest("uci_classes", "uci_classes.npz", read_split, four, tuple(FITS))


def leak(figures: Figures) -> str:
    """Say what the labels of test samples are worth to the machine whose script uses them."""
    pair = figures.pair(LEAK, RFM)
    return (
        f"\n- **RFM with label leak** against RFM without it: {pair.said()}." if pair.sets else ""
    )


def page() -> str:
    """Return the study's page, made from the committed tables alone."""
    figures = Figures(read_table(CONTEST.name)) if _contest.has_tables(CONTEST.name) else None
    found = {"answer": NOT_YET, "results": "", "lost": ""}
    if figures is not None and figures.compared:
        found = {
            "answer": _contest.answer(figures) + leak(figures),
            "results": RESULTS.format(
                **_contest.results(figures, CONTEST, "log_loss", "log-loss"), picture=PICTURE
            ),
            "lost": (
                "- kernelmosaic is furthest behind the best method on"
                f" {_contest.behind(figures)}.\n" + _contest.not_run(figures)
            ),
        }
    settings = {
        "searched": f"{MOST_SEARCHED:,}",
        "trees": TREES,
        "many": f"{MANY:,}",
        "xrfm": XRFM_SETTINGS,
    }
    return TEXT.format(**settings, points="12 settings (two on very wide sets)", **found)


NOT_YET = (
    "No figures yet: the runs are not finished. `--tables` writes them here from the folders of the"
    " runs."
)
TEXT = """\
# UCI classification on published splits

**Is kernelmosaic with default settings more accurate than tuned SVMs, trees and recursive feature machines on the UCI
sets?** {answer}

## Protocol

115 of the 121 sets of Fernández-Delgado et al. (2014), 10 to 20,000 samples, with their four published random splits of
75 % training and 25 % test samples. Their authors standardised the inputs on all samples. Of sets with a separate test
file only the training file is used, as in other papers on these splits. The primary figure is the mean rank of accuracy
over the sets. Sets, splits, methods and settings were fixed before any run of the script; trials of kernelmosaic, an
SVM and a forest on most of the sets had been seen before.

- *kernelmosaic*: {{class}}`~kernelmosaic.MKLRidgeClassifierCV` with default settings. *equal weights*: the same
  kernels, the ridge alone learned.
- *tuned SVM*: scikit-learn's `SVC`, six values of C times five of gamma by three shuffled folds. *random forest*:
  {trees} trees. *boosting*: `HistGradientBoostingClassifier` with defaults, and tuned over {points} by the same folds.
- *xRFM*: the package `xrfm`, the best of {xrfm} random settings from its authors' search space on a held-out fifth of
  the training part.
- *RFM*: recursive feature machines (Radhakrishnan et al., arXiv:2212.13881) with the settings of their script for these
  sets; ridge, scaling and metric are chosen on halves of the training part. *RFM with label leak* follows that script:
  it chooses on halves of **all** samples, so that test labels influence the metric. It has no rank. The halves of the
  original script are not available; ours are stratified.

Sets of more than {searched} training samples are searched on {searched} of them.

{results}## Limits

{lost}- Many of the sets are small, and several are variants of the same data, so that they are not independent.
- The sets were standardised with their test samples, for all methods alike.

## Run it

    python studies/uci_classes.py --data FOLDER --output run-1 --methods ours svm --most-rows 1000
    python studies/uci_classes.py --data FOLDER --tables run-1 run-2

`uci_classes.npz` has `names` and, for each set, `<set>_X`, `<set>_y`, and the rows `<set>_train_<split>` and
`<set>_test_<split>` of four splits.
"""
RESULTS = """\
## Results

Means over the {n_compared} of {n_sets} sets of which all ranked methods have every split. {splits_run} The last three
columns compare kernelmosaic with the method on all sets that both have, *p* by {{func}}`~kernelmosaic.stats.wilcoxon`.
Seconds are CPU time of fit and search, or wall clock on a GPU. [Every split](uci_classes.csv), [means by
set](uci_classes_sets.csv).

{table}

![Mean ranks; bars join methods that do not differ significantly](../images/{picture})

Mean ranks that differ by less than {difference} do not differ significantly (Nemenyi's test of all pairs at 5 %).
Machines: {machines}.

"""


def summary() -> tuple[str, str, str]:
    """Return the study's cells of the overview: ours, the best other, the verdict."""
    return _contest.summary(
        Figures(read_table(CONTEST.name)) if _contest.has_tables(CONTEST.name) else None
    )


def write_page() -> None:
    if (
        _contest.has_tables(CONTEST.name)
        and (figures := Figures(read_table(CONTEST.name))).compared
    ):
        _contest.draw_ranks(figures, common.IMAGES / PICTURE)
        _contest.write_sets(figures, CONTEST.name)
    common.write_page(CONTEST.name, page(), summary())


if __name__ == "__main__":
    _contest.main(__doc__ or "", CONTEST, write_page)
