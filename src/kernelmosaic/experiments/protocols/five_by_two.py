"""A third for test, five times two folds of the rest: the protocol of the localized and the regularised papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, mean_squared_error
from sklearn.model_selection import RepeatedKFold, train_test_split
from sklearn.preprocessing import StandardScaler

from kernelmosaic.experiments.methods import Method
from kernelmosaic.experiments.protocols.pairs import Pair
from kernelmosaic.experiments.protocols.search import PRICES, VALIDATION, Grid
from kernelmosaic.experiments.protocols.tables import cells_of
from kernelmosaic.experiments.sources import Dataset, Samples, classes_or_none, take
from kernelmosaic.experiments.summary import Row
from kernelmosaic.experiments.units import Measurement, Record, Scale, Settings, Unit
from kernelmosaic.model_selection import FiveByTwoFold

N_FOLDS = 10


@dataclass(frozen=True)
class Split:
    """Row numbers of one fold, and of the test third that all folds share."""

    train: NDArray[np.intp]
    valid: NDArray[np.intp]
    test: NDArray[np.intp]


@dataclass(frozen=True)
class FiveByTwo:
    """Ten halves train, the other halves choose the setting, one common third tests.

    A unit is one fold of one method on one data set. It fits every setting of the grid once and records its figures on
    the other half and on the test third. The setting is chosen afterwards, by the mean over the folds; the models that
    the tables report are those of the folds, so nothing is fitted again.

    Parameters
    ----------
    datasets : tuple of Dataset
    methods : tuple of Method
    grid : Grid
    pairs : tuple of Pair
        Methods to compare by the 5×2 cv F test.
    regression : bool
        Mean squared errors instead of accuracies in percent; halves at random instead of by class.
    standardise : bool
        Give every column mean 0 and deviation 1 on the training half.
    """

    datasets: tuple[Dataset, ...]
    methods: tuple[Method, ...]
    grid: Grid = PRICES
    pairs: tuple[Pair, ...] = ()
    regression: bool = False
    standardise: bool = False

    def units(self, experiment: str, scale: Scale) -> list[Unit]:
        """Return all units of the experiment at this scale."""
        n_folds = min(N_FOLDS, scale.replicates or N_FOLDS)
        return [
            Unit(experiment, data.name, method.name, method.kernels, fold, data.cost * method.cost)
            for data in self.datasets
            if data.quick or scale.all_datasets
            for method in self.methods
            for fold in range(n_folds)
        ]

    def run(self, unit: Unit, settings: Settings) -> list[Measurement]:
        """Fit every setting of the grid on one fold."""
        data = next(one for one in self.datasets if one.name == unit.dataset)
        method = next(one for one in self.methods if (one.name, one.kernels) == (unit.method, unit.kernels))
        samples = data.source(settings)
        split = self.split(samples, unit.replicate, settings.seed_for(unit.dataset, "split"))
        if self.standardise:
            scaler = StandardScaler().fit(samples.X[split.train])
            samples = replace(samples, X=scaler.transform(samples.X))
        X, y = take(samples.X, split.train), samples.y[split.train]
        found = []
        for value in self.grid.values:
            fit = method.fit(X, y, settings.seed_for(unit.key), **self.grid.given(value, len(y)))
            setting = self.grid.setting(value)
            found += self._figures(fit.model, samples, split, setting)
            found += method.describe(fit, setting)
        return found

    def split(self, samples: Samples, fold: int, seed: int) -> Split:
        """Return the rows of one fold; the published test set is kept where there is one."""
        classes = None if self.regression else classes_or_none(samples.y)
        rest, test = samples.train, samples.test
        if rest is None or test is None:
            rest, test = train_test_split(
                np.arange(len(samples.y)), test_size=1 / 3, stratify=classes, random_state=seed
            )
        if self.regression:
            halves = list(RepeatedKFold(n_splits=2, n_repeats=N_FOLDS // 2, random_state=seed).split(rest))
        else:
            halves = list(FiveByTwoFold(random_state=seed).split(rest, samples.y[rest]))
        train, valid = halves[fold]
        return Split(rest[train], rest[valid], test)

    def _figures(self, model: Any, samples: Samples, split: Split, setting: str) -> list[Measurement]:
        scores = [
            self._score(samples.y[rows], model.predict(take(samples.X, rows))) for rows in (split.valid, split.test)
        ]
        if self.regression:
            return [Measurement(VALIDATION, -scores[0], setting), Measurement("mse", scores[1], setting)]
        return [Measurement(VALIDATION, scores[0], setting), Measurement("accuracy", scores[1], setting)]

    def _score(self, y: Any, predicted: Any) -> float:
        return float(mean_squared_error(y, predicted) if self.regression else 100 * accuracy_score(y, predicted))

    def summarise(self, records: Sequence[Record]) -> list[Row]:
        """Return means over the folds at the chosen setting, then the comparisons."""
        cells = cells_of(records)
        return [row for cell in cells for row in cell.rows()] + [row for pair in self.pairs for row in pair.rows(cells)]
