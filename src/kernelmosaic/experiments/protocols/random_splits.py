"""Random splits into a training part of given size and a test part: the protocol of the multi-class papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from kernelmosaic.experiments.methods import Method
from kernelmosaic.experiments.protocols.tables import cells_of
from kernelmosaic.experiments.sources import Dataset, Samples, take
from kernelmosaic.experiments.summary import Row, row_of
from kernelmosaic.experiments.units import Measurement, Record, Scale, Settings, Unit

#: Accuracy on the splits that every method has.
COMMON = "accuracy:common splits"
#: A training part takes no more than this share, however small a quick look makes the set.
_MOST = 0.7


@dataclass(frozen=True)
class RandomSplits:
    """Every method is fitted to the same random parts and measured on the rest.

    A unit is one split of one method on one data set. What a method has to choose it chooses inside its training part:
    it is a scikit-learn search then, and its seconds are those of the whole search.

    Parameters
    ----------
    datasets : tuple of Dataset
    sizes : tuple of int
        Training samples, one a data set.
    methods : tuple of Method
    repeats : int
    fewer : tuple of (str, int) pairs
        Methods too slow for all repeats, and how many of the first they get.
    """

    datasets: tuple[Dataset, ...]
    sizes: tuple[int, ...]
    methods: tuple[Method, ...]
    repeats: int
    fewer: tuple[tuple[str, int], ...] = ()

    def units(self, experiment: str, scale: Scale) -> list[Unit]:
        """Return all units of the experiment at this scale."""
        limit, fewer = min(self.repeats, scale.replicates or self.repeats), dict(self.fewer)
        return [
            Unit(experiment, data.name, method.name, method.kernels, repeat, data.cost * method.cost)
            for data in self.datasets
            if data.quick or scale.all_datasets
            for method in self.methods
            for repeat in range(min(limit, fewer.get(method.name, limit)))
        ]

    def run(self, unit: Unit, settings: Settings) -> list[Measurement]:
        """Fit one method to one split."""
        place = [data.name for data in self.datasets].index(unit.dataset)
        method = next(one for one in self.methods if (one.name, one.kernels) == (unit.method, unit.kernels))
        samples = self.datasets[place].source(settings)
        seed = settings.seed_for(unit.dataset, "split", unit.replicate)
        train, test = self.split(samples, self.sizes[place], seed)
        fit = method.fit(train.X, train.y, settings.seed_for(unit.key))
        accuracy = 100 * float(np.mean(fit.model.predict(test.X) == test.y))
        return [Measurement("accuracy", accuracy), *method.describe(fit)]

    @staticmethod
    def split(samples: Samples, size: int, seed: int) -> tuple[Samples, Samples]:
        """Return the training and the test part, columns standardised on the former."""
        size = min(size, int(_MOST * len(samples.y)))
        train, test = train_test_split(np.arange(len(samples.y)), train_size=size, random_state=seed)
        scaler = StandardScaler().fit(np.asarray(take(samples.X, train), dtype=np.float64))

        def part(rows: Any) -> Samples:
            return replace(samples, X=scaler.transform(np.asarray(take(samples.X, rows))), y=samples.y[rows])

        return part(train), part(test)

    def summarise(self, records: Sequence[Record]) -> list[Row]:
        """Return means over the splits and, where some methods have fewer, accuracies on those that all have."""
        rows = [row for cell in cells_of(records) for row in cell.rows()]
        if not self.fewer:
            return rows
        common = min(count for _, count in self.fewer)
        shared = cells_of([one for one in records if one.unit.replicate < common])
        return rows + [
            row_of(cell.dataset, cell.method, cell.kernels, COMMON, cell.values["accuracy"], cell.setting)
            for cell in shared
            if "accuracy" in cell.values
        ]
