"""One search for all ten folds: the protocol of the regularised paper, whose penalties the folds have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.base import clone
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV

from kernelmosaic.experiments.methods import Method
from kernelmosaic.experiments.protocols.five_by_two import N_FOLDS, FiveByTwo, Split
from kernelmosaic.experiments.protocols.pairs import Pair
from kernelmosaic.experiments.protocols.search import PRICES, Grid
from kernelmosaic.experiments.protocols.tables import cells_of
from kernelmosaic.experiments.sources import Dataset, take
from kernelmosaic.experiments.summary import Row
from kernelmosaic.experiments.units import Measurement, Record, Scale, Settings, Unit


@dataclass(frozen=True)
class SharedSearch:
    """The test third and the folds of `FiveByTwo`, with one more search after that for C.

    C is chosen by the mean validation accuracy over the folds; then, with that C, the search that a method's estimator
    is (a `ResponseSurfaceSearchCV` over penalties, say) runs on the same folds; what it finds is fitted to the ten
    halves and measured on the test third. As the folds share the search, a unit is all of them: one method on one data
    set. Its record has ten figures of each metric.

    Parameters
    ----------
    datasets : tuple of Dataset
    methods : tuple of Method
        Estimators, or searches over one; a search is given the folds and the chosen C.
    grid : Grid
        Of the prices.
    pairs : tuple of Pair
    components : int
        If not 0, measure also the share of the variance in the combined kernel's space that so many kernel principal
        components of the training half explain, in percent.
    """

    datasets: tuple[Dataset, ...]
    methods: tuple[Method, ...]
    grid: Grid = PRICES
    pairs: tuple[Pair, ...] = ()
    components: int = 0

    def units(self, experiment: str, scale: Scale) -> list[Unit]:
        """Return all units of the experiment at this scale."""
        return [
            Unit(experiment, data.name, method.name, method.kernels, 0, data.cost * method.cost)
            for data in self.datasets
            if data.quick or scale.all_datasets
            for method in self.methods
        ]

    def run(self, unit: Unit, settings: Settings) -> list[Measurement]:
        """Choose C, search, and measure all folds of one method."""
        data = next(one for one in self.datasets if one.name == unit.dataset)
        method = next(one for one in self.methods if (one.name, one.kernels) == (unit.method, unit.kernels))
        samples = data.source(settings)
        seed = settings.seed_for(unit.dataset, "split")
        folds = FiveByTwo((), ())
        n_folds = settings.scale.replicates or N_FOLDS
        splits = [folds.split(samples, fold, seed) for fold in range(n_folds)]
        start = perf_counter()
        found = self._search(method.estimator, samples.X, samples.y, splits)
        measurements = [Measurement("search_seconds", perf_counter() - start), *_describe_search(found)]
        for split in splits:
            X, y = take(samples.X, split.train), samples.y[split.train]
            fit = Method(method.name, method.kernels, found.model).fit(X, y, settings.seed_for(unit.key))
            right = accuracy_score(samples.y[split.test], fit.model.predict(take(samples.X, split.test)))
            measurements += [Measurement("accuracy", 100 * float(right)), *method.describe(fit)]
            if self.components:
                share = explained_variance(fit.model.kernel_matrix(X), self.components)
                measurements.append(Measurement(f"explained_variance_{self.components}", 100 * share))
        return measurements

    def _search(self, template: Any, X: Any, y: Any, splits: list[Split]) -> Found:
        cv = [(split.train, split.valid) for split in splits]
        is_search = hasattr(template, "estimator")
        machine = clone(template.estimator if is_search else template)
        prices = GridSearchCV(machine, {self.grid.parameter: list(self.grid.values)}, cv=cv, refit=False).fit(X, y)
        machine.set_params(**prices.best_params_)
        if not is_search:
            return Found(machine, None)
        search = clone(template).set_params(estimator=machine, cv=cv, refit=False).fit(X, y)
        return Found(clone(machine).set_params(**search.best_params_), search)

    def summarise(self, records: Sequence[Record]) -> list[Row]:
        """Return means over the folds, then the comparisons."""
        cells = cells_of(records)
        return [row for cell in cells for row in cell.rows()] + [row for pair in self.pairs for row in pair.rows(cells)]


def explained_variance(K: NDArray[np.float64], n_components: int) -> float:
    """Return the share of the variance that the leading kernel principal components of a Gram matrix explain."""
    centred = K - K.mean(axis=0) - K.mean(axis=1, keepdims=True) + K.mean()
    n = len(K)
    leading = eigh(centred, eigvals_only=True, subset_by_index=[n - n_components, n - 1])
    return float(leading.sum() / np.trace(centred))


@dataclass(frozen=True)
class Found:
    """What the searches led to: an estimator with all its parameters, and the second search if there was one."""

    model: Any
    search: Any


def _describe_search(found: Found) -> list[Measurement]:
    """Return C, the penalties, and how many points the search looked at."""
    parameters = found.model.get_params(deep=False)
    measured = {"C": float(parameters["C"])}
    if isinstance(parameters.get("penalties"), list | tuple | np.ndarray):
        names = [entry[0] for entry in parameters["kernels"]]
        values = np.asarray(parameters["penalties"], dtype=np.float64)
        measured |= {f"penalty:{name}": float(one) for name, one in zip(names, values, strict=True)}
    if found.search is not None:
        measured["n_solver_calls"] = float(len(found.search.cv_results_["params"]))
    return [Measurement(metric, value) for metric, value in measured.items()]
