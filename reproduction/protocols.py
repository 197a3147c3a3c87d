"""How the papers measure: five times two folds, the same with one search for all folds, random
splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.base import clone
from sklearn.metrics import accuracy_score, mean_squared_error
from sklearn.model_selection import RepeatedKFold, train_test_split

from kernelmosaic.estimators import MKLClassifierCV
from kernelmosaic.model_selection import FiveByTwoFold
from reproduction.cells import PRICES, VALIDATION, Both, Gain, Grid, Pair, cells_of, rows_of
from reproduction.experiment import Measurement, Method, Record, Scale, Settings, Unit
from reproduction.rows import Row
from reproduction.sources import Dataset, Samples, classes_or_none, on_scale, take

N_FOLDS = 10
#: A training part takes no more than this share, however small a quick look makes the set.
_MOST = 0.7


@dataclass(frozen=True)
class Split:
    """Row numbers of one fold, and of the test third that all folds share."""

    train: NDArray[np.intp]
    valid: NDArray[np.intp]
    test: NDArray[np.intp]


@dataclass(frozen=True)
class FiveByTwo:
    """Ten halves train, the other halves choose the setting, one common third tests.

    A unit is one fold of one method on one data set. It fits every setting of the grid once and
    records its figures on the other half and on the test third. The setting is chosen afterwards,
    by the mean over the folds; the models that the tables report are those of the folds, so nothing
    is fitted again.

    Parameters
    ----------
    datasets : tuple of Dataset
    methods : tuple of Method
    grid : Grid or Both
    pairs : tuple of Pair
        Methods to compare by the 5×2 cv F test.
    gains : tuple of Gain
        Methods with the baselines they are measured against.
    regression : bool
        Mean squared errors instead of accuracies in percent; halves at random instead of by class.
    inputs : str
        How columns are scaled, by the training half: one of `sources.SCALES`.
    """

    datasets: tuple[Dataset, ...]
    methods: tuple[Method, ...]
    grid: Grid | Both = PRICES
    pairs: tuple[Pair, ...] = ()
    gains: tuple[Gain, ...] = ()
    regression: bool = False
    inputs: str = "as given"

    def units(self, experiment: str, scale: Scale) -> list[Unit]:
        """Return all units of the experiment at this scale."""
        n_folds = min(N_FOLDS, scale.replicates or N_FOLDS)
        return [
            Unit(
                experiment,
                data.name,
                method.name,
                method.kernels,
                fold,
                seed,
                data.cost * method.cost,
            )
            for data in self.datasets
            if data.quick or scale.all_datasets
            for method in self.methods
            for seed in scale.seeds(data.seeds)
            for fold in range(n_folds)
        ]

    def run(self, unit: Unit, settings: Settings) -> list[Measurement]:
        """Fit every setting of the grid on one fold."""
        settings = settings.of_split(unit.seed)
        data = next(one for one in self.datasets if one.name == unit.dataset)
        method = next(
            one for one in self.methods if (one.name, one.kernels) == (unit.method, unit.kernels)
        )
        samples = data.source(settings)
        split = self.split(samples, unit.replicate, settings.seed_for(unit.dataset, "split"))
        samples = on_scale(samples, split.train, self.inputs)
        X, y = take(samples.X, split.train), samples.y[split.train]
        found = []
        for value in self.grid.values:
            fit = method.fit(X, y, settings.seed_for(unit.key), **self.grid.given(value, len(y)))  # type: ignore[arg-type]
            setting = self.grid.setting(value)  # type: ignore[arg-type]
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
            halves = list(
                RepeatedKFold(n_splits=2, n_repeats=N_FOLDS // 2, random_state=seed).split(rest)
            )
        else:
            halves = list(FiveByTwoFold(random_state=seed).split(rest, samples.y[rest]))
        train, valid = halves[fold]
        return Split(rest[train], rest[valid], test)

    def _figures(
        self, model: Any, samples: Samples, split: Split, setting: str
    ) -> list[Measurement]:
        scores = [
            self._score(samples.y[rows], model.predict(take(samples.X, rows)))
            for rows in (split.valid, split.test)
        ]
        if self.regression:
            return [
                Measurement(VALIDATION, -scores[0], setting),
                Measurement("mse", scores[1], setting),
            ]
        return [
            Measurement(VALIDATION, scores[0], setting),
            Measurement("accuracy", scores[1], setting),
        ]

    def _score(self, y: Any, predicted: Any) -> float:
        return float(
            mean_squared_error(y, predicted)
            if self.regression
            else 100 * accuracy_score(y, predicted)
        )

    def summarise(self, records: Sequence[Record]) -> list[Row]:
        """Return means over the folds at the chosen setting, then the comparisons."""
        return rows_of(cells_of(records), (*self.pairs, *self.gains))


@dataclass(frozen=True)
class SharedSearch:
    """The test third and the folds of `FiveByTwo`, with one more search after that for C.

    C is chosen by the mean validation accuracy over the folds; then, with that C, the search that a
    method's estimator is (a `ResponseSurfaceSearchCV` over penalties, say) runs on the same folds;
    what it finds is fitted to the ten halves and measured on the test third. As the folds share the
    search, a unit is all of them: one method on one data set. Its record has ten figures of each
    metric.

    Parameters
    ----------
    datasets : tuple of Dataset
    methods : tuple of Method
        Estimators, or searches over one; a search is given the folds and the chosen C.
    grid : Grid
        Of the sample_C.
    pairs : tuple of Pair
    gains : tuple of Gain
    inputs : str
        How columns are scaled, by the two thirds that are not for test: one of `sources.SCALES`.
    components : int
        If not 0, measure also the share of the variance in the combined kernel's space that so many
        kernel principal components of the training half explain, in percent.
    """

    datasets: tuple[Dataset, ...]
    methods: tuple[Method, ...]
    grid: Grid = PRICES
    pairs: tuple[Pair, ...] = ()
    gains: tuple[Gain, ...] = ()
    inputs: str = "as given"
    components: int = 0

    def units(self, experiment: str, scale: Scale) -> list[Unit]:
        """Return all units of the experiment at this scale."""
        return [
            Unit(
                experiment, data.name, method.name, method.kernels, 0, seed, data.cost * method.cost
            )
            for data in self.datasets
            if data.quick or scale.all_datasets
            for method in self.methods
            for seed in scale.seeds(data.seeds)
        ]

    def run(self, unit: Unit, settings: Settings) -> list[Measurement]:
        """Choose C, search, and measure all folds of one method."""
        settings = settings.of_split(unit.seed)
        data = next(one for one in self.datasets if one.name == unit.dataset)
        method = next(
            one for one in self.methods if (one.name, one.kernels) == (unit.method, unit.kernels)
        )
        samples, splits = self.folds(data, settings)
        start = perf_counter()
        found = self.search(method.estimator, samples.X, samples.y, splits)
        measurements = [
            Measurement("search_seconds", perf_counter() - start),
            *_describe_search(found),
        ]
        for split in splits:
            X, y = take(samples.X, split.train), samples.y[split.train]
            fit = Method(method.name, method.kernels, found.model).fit(
                X, y, settings.seed_for(unit.key)
            )
            right = accuracy_score(
                samples.y[split.test], fit.model.predict(take(samples.X, split.test))
            )
            measurements += [Measurement("accuracy", 100 * float(right)), *method.describe(fit)]
            if self.components:
                share = explained_variance(fit.model.kernel_matrix(X), self.components)
                measurements.append(
                    Measurement(f"explained_variance_{self.components}", 100 * share)
                )
        return measurements

    def folds(self, data: Dataset, settings: Settings) -> tuple[Samples, list[Split]]:
        """Return the samples, scaled by what is not for test, and the rows of every fold."""
        samples = data.source(settings)
        seed, n_folds = settings.seed_for(data.name, "split"), settings.scale.replicates or N_FOLDS
        splits = [FiveByTwo((), ()).split(samples, fold, seed) for fold in range(n_folds)]
        return on_scale(
            samples, np.concatenate([splits[0].train, splits[0].valid]), self.inputs
        ), splits

    def search(self, template: Any, X: Any, y: Any, splits: list[Split]) -> Found:
        """Choose C, then what the template searches for, by the folds."""
        cv = [(split.train, split.valid) for split in splits]
        is_search = hasattr(template, "estimator")
        machine = clone(template.estimator if is_search else template)
        machine.set_params(C=self._choose_C(machine, X, y, cv))
        if not is_search:
            return Found(machine, None)
        search = clone(template).set_params(estimator=machine, cv=cv, refit=False).fit(X, y)
        return Found(clone(machine).set_params(**search.best_params_), search)

    def _choose_C(self, machine: Any, X: Any, y: Any, cv: list[tuple[Any, Any]]) -> float:
        """Return the C of the largest mean validation accuracy; every fold's fits start from one
        another."""
        own = machine.get_params(deep=False)
        shared = {name: own[name] for name in MKLClassifierCV._get_param_names() if name in own}
        norm = "uniform" if machine.weights is not None else machine.norm
        shared.pop("calibration")  # of which the search has another default
        path = MKLClassifierCV(**shared).set_params(
            Cs=self.grid.values, norms=(norm,), cv=cv, scale=False, refit=False
        )
        return float(path.fit(X, y).C_)

    def summarise(self, records: Sequence[Record]) -> list[Row]:
        """Return means over the folds, then the comparisons."""
        return rows_of(cells_of(records), (*self.pairs, *self.gains))


def explained_variance(K: NDArray[np.float64], n_components: int) -> float:
    """Return the share of the variance that the leading kernel principal components of a Gram
    matrix explain."""
    centred = K - K.mean(axis=0) - K.mean(axis=1, keepdims=True) + K.mean()
    n = len(K)
    leading = eigh(centred, eigvals_only=True, subset_by_index=[n - n_components, n - 1])
    return float(leading.sum() / np.trace(centred))


@dataclass(frozen=True)
class Found:
    """What the searches led to: an estimator with all its parameters, and the second search if
    there was one."""

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


@dataclass(frozen=True)
class RandomSplits:
    """Every method is fitted to the same random parts and measured on the rest.

    A unit is one split of one method on one data set. What a method has to choose it chooses inside
    its training part: it is a scikit-learn search then, and its seconds are those of the whole
    search.

    Parameters
    ----------
    datasets : tuple of Dataset
    sizes : tuple of int
        Training samples, one a data set.
    methods : tuple of Method
    repeats : int
        Splits of each split seed.
    gains : tuple of Gain
    inputs : str
        How columns are scaled, by the training part: one of `sources.SCALES`.
    """

    datasets: tuple[Dataset, ...]
    sizes: tuple[int, ...]
    methods: tuple[Method, ...]
    repeats: int
    gains: tuple[Gain, ...] = ()
    inputs: str = "standardised"

    def units(self, experiment: str, scale: Scale) -> list[Unit]:
        """Return all units of the experiment at this scale."""
        return [
            Unit(
                experiment,
                data.name,
                method.name,
                method.kernels,
                repeat,
                seed,
                data.cost * method.cost,
            )
            for data in self.datasets
            if data.quick or scale.all_datasets
            for method in self.methods
            for seed in scale.seeds(data.seeds)
            for repeat in range(min(self.repeats, scale.replicates or self.repeats))
        ]

    def run(self, unit: Unit, settings: Settings) -> list[Measurement]:
        """Fit one method to one split."""
        settings = settings.of_split(unit.seed)
        place = [data.name for data in self.datasets].index(unit.dataset)
        method = next(
            one for one in self.methods if (one.name, one.kernels) == (unit.method, unit.kernels)
        )
        samples = self.datasets[place].source(settings)
        seed = settings.seed_for(unit.dataset, "split", unit.replicate)
        size = self.sizes[place]
        if settings.scale.max_samples is not None:  # of a set that a quick look has made small
            size = min(size, int(_MOST * len(samples.y)))
        train, test = self.split(samples, size, seed)
        fit = method.fit(train.X, train.y, settings.seed_for(unit.key))
        accuracy = 100 * float(np.mean(fit.model.predict(test.X) == test.y))
        return [Measurement("accuracy", accuracy), *method.describe(fit)]

    def split(self, samples: Samples, size: int, seed: int) -> tuple[Samples, Samples]:
        """Return the training and the test part, columns scaled by the former."""
        train, test = train_test_split(
            np.arange(len(samples.y)), train_size=size, random_state=seed
        )
        scaled = on_scale(samples, train, self.inputs)
        first, second = (
            replace(samples, X=take(scaled.X, rows), y=samples.y[rows]) for rows in (train, test)
        )
        return first, second

    def summarise(self, records: Sequence[Record]) -> list[Row]:
        """Return means over the splits, then the gains."""
        return rows_of(cells_of(records), self.gains)
