"""Sequence experiments on stand-ins: the papers' own sequence sets are not to be had, these are of
their kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.estimators import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.model_selection import ResponseSurfaceSearchCV
from reproduction.cells import Pair
from reproduction.experiment import Experiment, Method, Settings
from reproduction.protocols import FiveByTwo, SharedSearch
from reproduction.sequences import one_hot, windows
from reproduction.sources import Dataset, Samples, thin


@dataclass(frozen=True)
class Windows:
    """Nucleotides around a site as indicators, five bits (A, T, G, C, N) a position.

    Parameters
    ----------
    name : str
        A set of sequences that `reproduction.data.load` knows.
    before, after : int
        Letters kept before the site, and from it on.
    classes : tuple
        Keep these two classes only; none means all.
    most : int
        Most samples; of several classes equally many are kept.
    along_genome : bool
        Test on the last third of the file. Windows that overlap would otherwise lie on both sides
        of a random split.
    """

    name: str
    before: int = 100
    after: int = 100
    classes: tuple[int, ...] = ()
    most: int = 3000
    along_genome: bool = False

    def __call__(self, settings: Settings) -> Samples:
        """Return all samples."""
        found = settings.load(self.name, settings.data_home)
        y = np.asarray(found["target"])
        most = min(self.most, settings.scale.max_samples or self.most)
        rows = self._rows(y, most, settings.seed_for(self.name, "thin"))
        X = one_hot(windows(found["sequences"][rows], found["site"], self.before, self.after))
        if not self.along_genome:
            return Samples(X, y[rows])
        # Rows are in the genome's order, and so are these.
        third = 2 * len(rows) // 3
        return Samples(X, y[rows], np.arange(third), np.arange(third, len(rows)))

    def _rows(self, y: NDArray[np.int_], most: int, seed: int) -> NDArray[np.intp]:
        if not self.along_genome:
            rows = np.flatnonzero(np.isin(y, self.classes)) if self.classes else np.arange(len(y))
            return rows[thin(y[rows], most, seed)]
        random = np.random.RandomState(seed)
        members = [np.flatnonzero(y == label) for label in np.unique(y)]
        half = min(most // len(members), *map(len, members))
        return np.sort(np.concatenate([random.permutation(rows)[:half] for rows in members]))


_SETS = (
    Dataset("HUMAN-TIS", Windows("human_tis"), cost=4, quick=True, seeds=1),
    Dataset("SPLICE-EI", Windows("splice", 30, 30, classes=(0, 2)), cost=4, seeds=1),
    Dataset("SPLICE-IE", Windows("splice", 30, 30, classes=(1, 2)), cost=4, seeds=1),
    Dataset(
        "CELEGANS-ACCEPTOR",
        Windows("celegans_acceptor", most=3000, along_genome=True),
        cost=6,
        seeds=1,
    ),
)
_NOTES = (
    "Stand-ins: not the paper's sets, so no figure is set beside these. Human translation starts"
    " for ARABIDOPSIS and VERTEBRATES, windows of 200; primate splice junctions (windows of 60,"
    " duplicates cross the split) and acceptor sites of C. elegans (1500 of each class, tested on"
    " the last third along the genome) for ACCEPTORS and DONORS. "
)
_LINEAR, _QUADRATIC, _GAUSSIAN = (
    ("kL", Linear()),
    ("kP", Polynomial(degree=2)),
    ("kG", Gaussian("nearest")),
)
_THREE = [_LINEAR, _QUADRATIC, _GAUSSIAN]
_PLAIN = MKLClassifier(_THREE, normalize="diagonal")

LOCALIZED = Experiment(
    name="000-table2-stand-ins",
    title="Localized and plain combinations on sequences (stand-ins)",
    paper="000",
    table="Table 2, stand-ins",
    protocol=FiveByTwo(
        datasets=_SETS,
        methods=(
            Method("SVM", "kP", MKLClassifier([_QUADRATIC], weights="uniform")),
            Method("SVM", "kG", MKLClassifier([_GAUSSIAN], weights="uniform")),
            Method("MKL", "kP-kG", MKLClassifier([_QUADRATIC, _GAUSSIAN]), cost=2),
            Method(
                "LMKL",
                "kP-kG",
                LocalizedMKLClassifier([_QUADRATIC, _GAUSSIAN], step="lbfgs", n_init=1),
                cost=5,
            ),
            Method("SVM", "kL", MKLClassifier([_LINEAR], weights="uniform")),
            Method(
                "LMKL",
                "kL-kL-kL",
                LocalizedMKLClassifier([Linear()] * 3, step="lbfgs", n_init=1),
                cost=5,
            ),
        ),
        pairs=(
            Pair(("LMKL", "kP-kG"), ("MKL", "kP-kG"), "LMKL vs MKL"),
            Pair(("LMKL", "kL-kL-kL"), ("SVM", "kL"), "LMKL vs SVM(kL)"),
        ),
    ),
    notes=_NOTES,
    pace=0.12,
)

REGULARISED = Experiment(
    name="002-table2-stand-ins",
    title="Penalties found by a response surface on sequences (stand-ins)",
    paper="002",
    table="Table 2, stand-ins",
    protocol=SharedSearch(
        datasets=_SETS,
        methods=(
            Method("MKL", "kL-kP-kG", _PLAIN),
            Method("RMKL", "kL-kP-kG", ResponseSurfaceSearchCV(_PLAIN, on="penalties"), cost=8),
        ),
        pairs=(
            Pair(
                ("RMKL", "kL-kP-kG"),
                ("MKL", "kL-kP-kG"),
                "RMKL vs MKL",
                metrics=(("accuracy", True), ("sv_percent", False), ("active_kernels", False)),
            ),
        ),
    ),
    notes=_NOTES,
    pace=0.25,
    version=2,
)

EXPERIMENTS = (LOCALIZED, REGULARISED)
