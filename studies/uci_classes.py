"""Classes of 115 UCI sets on published splits: kernelmosaic as it comes beside tuned machines, trees and xRFM.

    python studies/uci_classes.py --data FOLDER [--output FOLDER] [--jobs 2] [--only SET …] [--methods NAME …]
        [--most-rows 1000] [--minutes 20] [--device cuda]
    python studies/uci_classes.py --data FOLDER --tables RUN [RUN …]
    python studies/uci_classes.py --page

FOLDER, or the environment variable KERNELMOSAIC_DATA, holds uci_classes.npz. Every method on every split of every set
is a unit of its own and kept in the folder of the run: a stopped run goes on where it was, and parts may be run on
several machines. Each unit's seconds are printed, and at the end those of each method; `--minutes` ends a run in time.
`--tables` writes docs/studies/uci_classes*.csv, the picture and docs/studies/uci_classes.md from the folders of
all runs. Methods: ours, equal, svm, forest, boosting, tuned-boosting, xrfm, rfm, rfm-leak; xrfm needs the package of
that name, and is left out without it.

Fixed before any run of this script: the sets, their four splits, the methods with their settings, and the primary
figure, **the mean rank of accuracy over the sets**, of the means over the four splits, among all methods but the one
that sees labels of test samples. Second: mean accuracy, sets better, equal and worse with Wilcoxon's test over the
sets, log-loss, seconds. Trials of kernelmosaic as it comes, an SVM and a forest on most of the sets had been seen
before.
"""

from __future__ import annotations

from pathlib import Path

import _contest
import common
import numpy as np
from _contest import Contest, Figures, critical_difference
from _rivals import FITS, LEAK, MANY, MOST_SEARCHED, RFM, TREES, XRFM_SETTINGS, Split, make_split
from common import read_table

PICTURE = "studies_uci_classes_ranks.png"


def read_split(path: Path, name: str, split: int) -> Split:
    """Return a published split."""
    with np.load(path) as file:
        X, y, train, test = (file[f"{name}_{part}"] for part in ("X", "y", f"train_{split}", f"test_{split}"))
    return make_split(X, y, train, test, split)


def four(n: int) -> int:
    return 4


CONTEST = Contest("uci_classes", "uci_classes.npz", read_split, four, tuple(FITS))


def leak(figures: Figures) -> str:
    """Say what the labels of test samples are worth to the machine whose script uses them."""
    pair = figures.pair(LEAK, RFM)
    if not pair.sets:
        return ""
    return f"\n- What the leak is worth to RFM, with it and without: {pair.said()}."


def found() -> str:
    """Return what the tables say; without them, that there are none yet."""
    if not _contest.has_tables(CONTEST.name):
        return "No figures yet: `--tables` writes them here from the folders of the runs.\n"
    figures = Figures(read_table(CONTEST.name))
    if not figures.compared:
        return "No figures yet of all methods on one set.\n"
    return FOUND.format(
        conclusion=_contest.conclusion(figures) + leak(figures),
        means=_contest.means_table(figures),
        n_compared=len(figures.compared),
        n_sets=len(figures.sets),
        splits_run=_contest.splits_run(figures, CONTEST.n_splits),
        difference=f"{critical_difference(len(figures.ranked), len(figures.compared)):.2f}",
        picture=PICTURE,
        pairs=_contest.pairs_table(figures),
        sets=_contest.sets_table(figures),
        machines=_contest.machines(CONTEST.name),
    )


def page() -> str:
    """Return the study's page, made from the committed tables alone."""
    settings = {"searched": f"{MOST_SEARCHED:,}", "trees": TREES, "many": f"{MANY:,}", "xrfm": XRFM_SETTINGS}
    return TEXT.format(**settings) + found()


TEXT = """\
# UCI: classes on published splits

115 of the 121 sets of Fernández-Delgado et al. (2014), 10 to 20,000 samples, each with its four published random splits
of 75 % to train on and 25 % to test on; inputs are standardised on all samples by their authors. Of sets that come with
a test file only the training file is used, as in the papers on these splits. Fixed before any run of the script: sets,
splits, methods, settings, and the primary figure, the mean rank of accuracy over the sets. Trials of kernelmosaic as it
comes, an SVM and a forest on most of the sets had been seen before.

- *kernelmosaic*: {{class}}`~kernelmosaic.MKLRidgeClassifierCV` as it comes. *Equal weights*: the same kernels, their
  ridge alone learned.
- *Tuned SVM*: scikit-learn's `SVC`, six values of C times five of gamma by three shuffled folds of the training part;
  its probabilities are Platt's sigmoids. *Random forest*: {trees} trees. *Boosting as it comes*:
  `HistGradientBoostingClassifier`; *tuned*: 12 points by the same folds, two where classes × columns exceed {many}.
  Sets of more than {searched} training samples are searched on {searched} of them.
- *xRFM*: the package `xrfm`, the best of {xrfm} random settings, of the space that its authors search, on a fifth of
  the training part, which is held out.
- *RFM*: recursive feature machines (Radhakrishnan et al., arXiv:2212.13881) with the settings of their script for these
  sets: ridge, scaling and metric are chosen on halves of the training part. *With the leak*, as the script has it: on
  halves of **all** samples, so that labels of test samples shape the metric; it has no rank. The script's own halves
  are not at hand; these are drawn by class.

"""

FOUND = """\
## Conclusion

{conclusion}

## Means and ranks

Means over the {n_compared} of {n_sets} sets of which all ranked methods have all splits that were run. {splits_run}
Seconds are CPU time of fit and search; wall clock where a GPU was used.

{means}

![Mean ranks; bars join those that are not told apart](../images/{picture})

Mean ranks that differ by less than {difference} are not told apart by Nemenyi's test of all pairs at 5 %.

## In pairs

{pairs}

## Set by set

Accuracy in percent, mean over the splits.

{sets}

Machines: {machines}.
"""


def summary() -> tuple[str, str, str]:
    """Return the study's cells of the overview: ours, the best other, the verdict."""
    return _contest.summary(Figures(read_table(CONTEST.name)) if _contest.has_tables(CONTEST.name) else None)


def write_page() -> None:
    if _contest.has_tables(CONTEST.name) and (figures := Figures(read_table(CONTEST.name))).compared:
        _contest.draw_ranks(figures, common.IMAGES / PICTURE)
    common.write_page(CONTEST.name, page(), summary())


if __name__ == "__main__":
    _contest.main(__doc__ or "", CONTEST, write_page)
