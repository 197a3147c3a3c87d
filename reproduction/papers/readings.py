"""Which reading of what the papers leave open fits? Candidates tried on single kernels, with
scikit-learn alone.

No kernel is learned here, so that what fits cannot be owed to our solvers. A reading is chosen on
some data sets and confirmed by the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from typing import Protocol as Interface

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC, SVR

from reproduction.cells import PRICES
from reproduction.experiment import Experiment, Measurement, Record, Scale, Settings, Unit
from reproduction.papers.paper_000 import TABLE_1
from reproduction.papers.paper_001 import CONCRETE, MULTIFEAT, WHITEWINE, digit_kernels, digits
from reproduction.papers.paper_004 import BINARY, SIGMAS
from reproduction.protocols import FiveByTwo, RandomSplits, explained_variance
from reproduction.rows import AWAY, Figure, Row, published_figures, row_of
from reproduction.sources import Dataset, Loaded, Samples, on_scale

Matrix = NDArray[np.float64]
_SCALES = ("as given", "standardised", "[0, 1]", "[-1, 1]")


@dataclass(frozen=True)
class Reading:
    """A candidate: how the columns are scaled, and how the kernels are made."""

    inputs: str
    kernels: str

    @property
    def name(self) -> str:
        """The name in the tables."""
        return f"{self.inputs}, {self.kernels}"


class Measure(Interface):
    """Gives the figure of every single kernel on one split, under a reading."""

    def __call__(
        self, data: Dataset, reading: Reading, replicate: int, settings: Settings
    ) -> dict[str, float]:
        """Return them by the names that the published ones have."""


@dataclass(frozen=True)
class Widths:
    """Gaussian kernels of ten widths and a machine whose C is chosen by five folds, on random parts
    of four fifths."""

    def __call__(
        self, data: Dataset, reading: Reading, replicate: int, settings: Settings
    ) -> dict[str, float]:
        """Return accuracies in percent."""
        samples = data.source(settings)
        split = RandomSplits((), (), (), 1, inputs=reading.inputs).split
        train, test = split(
            samples, round(0.8 * len(samples.y)), settings.seed_for(data.name, "split", replicate)
        )
        found = {}
        for number, sigma in enumerate(SIGMAS, 1):
            machine = SVC(gamma=1.0 / _EXPONENTS[reading.kernels](sigma))
            search = GridSearchCV(machine, {"C": [0.1, 1.0, 10.0, 100.0, 1000.0]}, cv=5).fit(
                train.X, train.y
            )
            found[f"rbf{number:02d}"] = 100 * float(search.score(test.X, test.y))
        return found


_EXPONENTS: dict[str, Any] = {
    "exp(−d²/σ)": lambda sigma: sigma,
    "exp(−d²/2σ)": lambda sigma: 2 * sigma,
    "exp(−d²/σ²)": lambda sigma: sigma**2,
    "exp(−d²/2σ²)": lambda sigma: 2 * sigma**2,
}


@dataclass(frozen=True)
class Halves:
    """Single kernels on one half of two thirds, C by the other half, the last third for test.

    Parameters
    ----------
    kernels : tuple of (str, object) pairs
        Names, and degrees of polynomials; "nearest" is a Gaussian as wide as the nearest neighbours
        are apart, and a slice is a linear kernel on some of the columns.
    epsilon : float
        Of a regression; 0 means classes.
    """

    kernels: tuple[tuple[str, Any], ...]
    epsilon: float = 0.0

    def __call__(
        self, data: Dataset, reading: Reading, replicate: int, settings: Settings
    ) -> dict[str, float]:
        """Return accuracies in percent, or mean squared errors."""
        samples = data.source(settings)
        folds = FiveByTwo((), (), regression=self.epsilon > 0)
        split = folds.split(samples, replicate, settings.seed_for(data.name, "split"))
        samples = on_scale(samples, split.train, reading.inputs)
        parts = [
            replace(samples, X=samples.X[rows], y=samples.y[rows])
            for rows in (split.train, split.valid, split.test)
        ]
        return {name: self._figure(kernel, reading, parts) for name, kernel in self.kernels}

    def _figure(self, kernel: Any, reading: Reading, parts: list[Samples]) -> float:
        train, *others = parts
        own, *blocks = normalised(kernel, reading.kernels, [part.X for part in parts])
        per_sample = len(own) if reading.kernels == "trace 1" else 1
        found = []
        for C in PRICES.values:
            machine = SVC(kernel="precomputed", C=C / per_sample)
            if self.epsilon:
                machine = SVR(kernel="precomputed", C=C, epsilon=self.epsilon, max_iter=200_000)
            machine.fit(own, train.y)
            found.append(
                [
                    self._score(machine.predict(K), part.y)
                    for K, part in zip(blocks, others, strict=True)
                ]
            )
        test = max(found, key=lambda one: one[0])[1]
        return -test if self.epsilon else test

    def _score(self, predicted: Any, y: Any) -> float:
        return float(
            -np.mean((predicted - y) ** 2) if self.epsilon else 100 * np.mean(predicted == y)
        )


def normalised(kernel: Any, norm: str, samples: list[Matrix]) -> list[Matrix]:
    """Return a kernel between each of the sets of samples and the first, scaled by the first or to
    unit diagonal."""
    train = samples[0]
    blocks, diagonals = zip(*(_block(kernel, X, train) for X in samples), strict=True)
    if norm == "unit diagonal":
        return [
            K / np.sqrt(np.outer(d, diagonals[0])) for K, d in zip(blocks, diagonals, strict=True)
        ]
    return [K / diagonals[0].mean() for K in blocks]


def _block(kernel: Any, X: Matrix, Z: Matrix) -> tuple[Matrix, Matrix]:
    if kernel == "nearest":
        apart = euclidean_distances(Z)
        np.fill_diagonal(apart, np.inf)
        return np.exp(
            -euclidean_distances(X, Z, squared=True) / apart.min(axis=1).mean() ** 2
        ), np.ones(len(X))
    if isinstance(kernel, slice):
        X, Z, kernel = X[:, kernel], Z[:, kernel], 1
    shift = float(kernel > 1)
    # A sample of zeros has no direction; next to nothing keeps the division from failing.
    return (X @ Z.T + shift) ** kernel, (np.sum(X**2, axis=1) + shift) ** kernel + 1e-12


@dataclass(frozen=True)
class SumOfViews:
    """What two principal components of the unweighted sum of the digits' kernels explain; no
    machine at all."""

    kernels: tuple[tuple[str, Any], ...]

    def __call__(
        self, data: Dataset, reading: Reading, replicate: int, settings: Settings
    ) -> dict[str, float]:
        """Return the share of the variance in percent."""
        samples = data.source(settings)
        split = FiveByTwo((), ()).split(samples, replicate, settings.seed_for(data.name, "split"))
        X = on_scale(samples, split.train, reading.inputs).X[split.train]
        total = sum(normalised(kernel, reading.kernels, [X])[0] for _, kernel in self.kernels)
        return {
            "-".join(name for name, _ in self.kernels): (
                100 * explained_variance(np.asarray(total), 2)
            )
        }


@dataclass(frozen=True)
class Trial:
    """Data sets whose printed figures of one baseline decide between readings, or confirm the
    choice."""

    table: tuple[str, str]
    method: str
    metric: str
    datasets: tuple[Dataset, ...]
    measure: Measure


@dataclass(frozen=True)
class Question:
    """What a paper leaves open, the candidates, and the trials: those it is chosen on, those that
    confirm."""

    name: str
    readings: tuple[Reading, ...]
    chosen_on: tuple[Trial, ...]
    confirmed_by: tuple[Trial, ...]
    taken: str

    def trials(self) -> list[tuple[Trial, Dataset]]:
        """Return every trial with each of its data sets."""
        return [
            (trial, data)
            for trial in (*self.chosen_on, *self.confirmed_by)
            for data in trial.datasets
        ]

    def names(self, trials: Sequence[Trial]) -> list[str]:
        """Return the names that the data sets of some trials have in the table."""
        return [f"{self.name}: {data.name}" for trial in trials for data in trial.datasets]


@dataclass(frozen=True)
class Study:
    """Every candidate on every data set; a unit is one split of one of them, with all kernels.

    Parameters
    ----------
    questions : tuple of Question
    repeats : int
        Splits.
    """

    questions: tuple[Question, ...]
    repeats: int = 3

    def units(self, experiment: str, scale: Scale) -> list[Unit]:
        """Return all units of the study at this scale."""
        return [
            Unit(
                experiment,
                f"{one.name}: {data.name}",
                reading.name,
                "single",
                repeat,
                cost=data.cost,
            )
            for one in self.questions
            for _, data in one.trials()
            if data.quick or scale.all_datasets
            for reading in one.readings
            for repeat in range(min(self.repeats, scale.replicates or self.repeats))
        ]

    def run(self, unit: Unit, settings: Settings) -> list[Measurement]:
        """Measure all kernels of one reading on one split."""
        question, trial, data = self._find(unit.dataset)
        reading = next(one for one in question.readings if one.name == unit.method)
        found = trial.measure(data, reading, unit.replicate, settings)
        return [Measurement(f"{trial.metric}:{kernels}", value) for kernels, value in found.items()]

    def _find(self, name: str) -> tuple[Question, Trial, Dataset]:
        return next(
            (one, trial, data)
            for one in self.questions
            for trial, data in one.trials()
            if f"{one.name}: {data.name}" == name
        )

    def summarise(
        self, records: Sequence[Record], printed: Mapping[tuple[str, ...], Figure] | None = None
    ) -> list[Row]:
        """Return the figures of the kernels beside the printed ones, then how far each reading is
        from them.

        The printed ones are those of the papers by default.
        """
        printed = published_figures() if printed is None else printed
        values: dict[tuple[str, str, str], list[float]] = {}
        for record in records:
            for one in record.measurements:
                values.setdefault((record.unit.dataset, record.unit.method, one.metric), []).append(
                    one.value
                )
        rows, away = [], dict[tuple[str, str], list[float]]()
        for (dataset, reading, metric), found in values.items():
            _, trial, data = self._find(dataset)
            name, kernels = metric.split(":")
            row = row_of(dataset, reading, kernels, name, found)
            figure = printed.get((*trial.table, data.name, trial.method, kernels, trial.metric))
            if figure is not None:
                row = replace(row, published=figure.mean)
            rows.append(row)
            if row.published is not None and row.difference is not None:
                # Errors in the units of the target are measured by what is printed.
                unit = row.published / 100 if name == "mse" else 1.0
                away.setdefault((dataset, reading), []).append(abs(row.difference) / unit)
        return rows + [row_of(*key, "all", AWAY, found) for key, found in away.items()]

    def findings(self, rows: Sequence[Row]) -> list[str]:
        """Say for each question which reading fits, on what it was chosen and what confirms it."""
        found = {(row.dataset, row.method): row.mean for row in rows if row.metric == AWAY}
        said = []
        for one in self.questions:
            chosen = [
                name for name in one.names(one.chosen_on) if (name, one.readings[0].name) in found
            ]
            confirming = [
                name
                for name in one.names(one.confirmed_by)
                if (name, one.readings[0].name) in found
            ]
            if chosen:
                said.append(self._finding(one, found, chosen, confirming))
        return said

    def _finding(
        self,
        one: Question,
        found: dict[tuple[str, str], float],
        chosen: list[str],
        confirming: list[str],
    ) -> str:
        def ranked(names: list[str]) -> list[tuple[float, str]]:
            means = [
                (float(np.mean([found[name, reading.name] for name in names])), reading)
                for reading in one.readings
            ]
            return [
                (mean, reading.name) for mean, reading in sorted(means, key=lambda pair: pair[0])
            ]

        first, second = ranked(chosen)[:2]
        taken = {name: mean for mean, name in ranked(chosen)}[one.taken]
        text = (
            f"{one.name}: of {len(one.readings)} readings, “{first[1]}” is nearest on"
            f" {_listed(chosen)}, where it was chosen: {first[0]:.2f} from print in the mean of the"
            f" kernels; next “{second[1]}”, {second[0]:.2f}."
        )
        if one.taken != first[1]:
            text += f" The experiments take “{one.taken}”, {taken:.2f}."
        for name in confirming:
            place = [reading for _, reading in ranked([name])].index(one.taken) + 1
            (best, other), mean = ranked([name])[0], found[name, one.taken]
            nearest = (
                "the nearest"
                if place == 1
                else f"place {place}, the nearest is “{other}” with {best:.2f}"
            )
            text += f" On {_listed([name])} what is taken is {mean:.2f} from print, {nearest}."
        return text


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name.split(": ")[1] for name in names)


def _some(experiment: Experiment, *names: str, most: int | None = None) -> tuple[Dataset, ...]:
    """Return some data sets of an experiment, thinned where they are large."""
    found = {data.name: data for data in experiment.protocol.datasets}  # type: ignore[attr-defined]
    kept = []
    for name in names:
        data = found[name]
        source = (
            replace(data.source, max_samples=most)
            if isinstance(data.source, Loaded)
            else data.source
        )
        kept.append(replace(data, source=source, cost=1.0))
    return tuple(kept)


def _binary(*names: str) -> Trial:
    return Trial((BINARY.paper, BINARY.table), "SVM_C", "accuracy", _some(BINARY, *names), Widths())


def _table_1(*names: str) -> Trial:
    kernels = (("kL", 1), ("kP", 2), ("kG", "nearest"))
    return Trial(
        ("000", TABLE_1.table),
        "SVM",
        "accuracy",
        _some(TABLE_1, *names, most=1500),
        Halves(kernels),
    )


def _regression(experiment: Experiment, name: str, epsilon: float) -> Trial:
    kernels = (("kL", 1), *((f"kP{degree}", degree) for degree in (2, 3, 4, 5)))
    data = _some(experiment, name, most=1500)
    return Trial(("001", experiment.table), "SVR", "mse", data, Halves(kernels, epsilon))


_SLICES = tuple((name, columns) for name, _, columns in digit_kernels())
_SL = Trial(
    ("001", MULTIFEAT.table),
    "SVM",
    "accuracy",
    _some(MULTIFEAT, "MULTIFEAT-SL"),
    Halves((*_SLICES, ("ALL", 1))),
)
_SUM = Trial(
    ("002", "Figure 3"),
    "KPCA on SUM",
    "explained_variance_2",
    (digits("EO", quick=True),),
    SumOfViews(_SLICES),
)


def _all(inputs: Sequence[str], kernels: Sequence[str]) -> tuple[Reading, ...]:
    return tuple(Reading(one, other) for one in inputs for other in kernels)


_NORMS = ("mean diagonal 1", "trace 1", "unit diagonal")

STUDY = Experiment(
    name="readings",
    title=(
        "Which reading of what the papers leave open fits: single kernels, with scikit-learn alone"
    ),
    paper="000, 001, 002, 004",
    table="single kernels",
    protocol=Study(
        (
            Question(
                "004",
                _all(_SCALES, list(_EXPONENTS)),
                (_binary("sonar"),),
                (_binary("heart", "ionosphere", "cancer"),),
                "[-1, 1], exp(−d²/σ)",
            ),
            Question(
                "001 and 002, digits",
                _all(_SCALES, _NORMS[::2]),
                (_SL,),
                (_SUM,),
                "standardised, unit diagonal",
            ),
            Question(
                "001, regression",
                _all(_SCALES[1:], _NORMS[::2]),
                (_regression(CONCRETE, "CONCRETE", 8.0),),
                (_regression(WHITEWINE, "WHITEWINE", 0.33),),
                "standardised, unit diagonal",
            ),
            Question(
                "000, Table 1",
                _all(_SCALES, _NORMS),
                (_table_1("HEART", "IONOSPHERE", "LIVERDISORDER", "PIMA"),),
                (_table_1("BANANA", "GERMANNUMERIC", "RINGNORM", "SONAR", "SPAMBASE", "WDBC"),),
                "standardised, mean diagonal 1",
            ),
        )
    ),
    notes=(
        "scikit-learn's machines on single kernels; three splits (of the 5×2 folds the first"
        " three); C by five folds in 004, else by the other half of each fold. Sets of 000 and 001"
        " are thinned to 1500 samples. Differences of squared errors are in percent of what is"
        " printed."
    ),
)

EXPERIMENTS = (STUDY,)
