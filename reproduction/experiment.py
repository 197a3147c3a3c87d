"""What is run and what comes of it: an experiment, its units and methods, measurements and
records."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from time import perf_counter
from typing import Any
from typing import Protocol as Interface

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from reproduction.rows import Apart, Row, join


@dataclass(frozen=True)
class Scale:
    """How much of an experiment is run.

    Parameters
    ----------
    name : str
    replicates : int or None
        Most repetitions (folds, splits) of each cell; None means all.
    max_samples : int or None
        Data sets with more samples are subsampled to so many; None means never.
    all_datasets : bool
        Whether every data set is run, or only those that an experiment names for a quick look.
    split_seeds : int or None
        Most split seeds; None means as many as the data sets name.
    """

    name: str
    replicates: int | None = None
    max_samples: int | None = None
    all_datasets: bool = True
    split_seeds: int | None = None

    def seeds(self, named: int) -> range:
        """Return the numbers of the split seeds, of so many that are named."""
        return range(min(named, self.split_seeds or named))


FULL = Scale("full")
QUICK = Scale("quick", replicates=2, max_samples=240, all_datasets=False, split_seeds=1)


@lru_cache(maxsize=12)
def load_once(name: str, data_home: str | None, options: tuple[tuple[str, Any], ...] = ()) -> Any:
    """Load a set, or remember it: many units ask for the same one."""
    from reproduction.data import load

    return load(name, data_home=data_home, **dict(options))


@dataclass(frozen=True)
class Settings:
    """What holds for a whole run: the seed, the scale, and the folder with the data (None: where
    `load` looks).

    `load` returns the set of a name, given that folder and further options.
    """

    seed: int = 0
    scale: Scale = FULL
    data_home: str | None = None
    load: Callable[..., Any] = field(default=load_once, compare=False, repr=False)

    def seed_for(self, *words: object) -> int:
        """Return a seed of its own for what the words name, the same on every machine and in every
        process."""
        text = "/".join(map(str, (self.seed, *words)))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")

    def of_split(self, number: int) -> Settings:
        """Return the settings under which everything random, draws and splits, is another one; of
        number 0, these."""
        return replace(self, seed=self.seed_for("split seed", number)) if number else self


@dataclass(frozen=True)
class Unit:
    """The smallest piece that is run, stored and resumed.

    Parameters
    ----------
    experiment, dataset, method, kernels : str
        What is measured; together they name a cell of the table.
    replicate : int
        Number of the fold or split, from 0.
    seed : int
        Number of the split seed, from 0: the whole of a cell is run again with other draws and
        splits, so that what two runs of the same differ by is known.
    cost : float
        A guess of the seconds it takes, for the order of the units and the estimate of the time
        left.
    """

    experiment: str
    dataset: str
    method: str
    kernels: str
    replicate: int
    seed: int = 0
    cost: float = field(default=1.0, compare=False)

    @property
    def cell(self) -> str:
        """The unit's name without the replicate and the seed."""
        return f"{self.experiment}/{self.dataset}/{self.method}/{self.kernels}"

    @property
    def key(self) -> str:
        """The unit's name, by which a run is resumed."""
        return f"{self.cell}/{self.replicate}" + f"@{self.seed}" * (self.seed > 0)


@dataclass(frozen=True)
class Measurement:
    """One number: what was measured, under which setting of the search (``"C=10"``; empty if there
    is none)."""

    metric: str
    value: float
    setting: str = ""


@dataclass(frozen=True)
class Record:
    """A unit that has been run: its measurements, or why there are none."""

    unit: Unit
    measurements: tuple[Measurement, ...] = ()
    seconds: float = 0.0
    failure: str | None = None


@dataclass(frozen=True)
class Fit:
    """A fitted model, its training time in seconds, and whether it ended within its tolerance."""

    model: Any
    seconds: float
    converged: bool


@dataclass(frozen=True)
class Method:
    """One column of a table.

    Parameters
    ----------
    name, kernels : str
        As printed: ``"LMKL"`` and ``"kP-kG"``.
    estimator : estimator
        A template; it is cloned, given the parameters of the search, and fitted.
    cost : float
        How long it takes beside other methods.
    costs : tuple of float
        What evaluating each kernel costs, if ``total_cost`` is to be measured.
    shares : bool
        Record weights divided by their sum, as some tables print them.
    """

    name: str
    kernels: str
    estimator: Any
    cost: float = 1.0
    costs: tuple[float, ...] = ()
    shares: bool = False

    def fit(self, X: Any, y: Any, seed: int, **parameters: Any) -> Fit:
        """Return the estimator fitted with these parameters."""
        model = clone(self.estimator).set_params(**parameters)
        if "random_state" in model.get_params(deep=False):
            model.set_params(random_state=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", ConvergenceWarning)
            start = perf_counter()
            model.fit(X, y)
            return Fit(model, perf_counter() - start, converged=not caught)

    def describe(self, fit: Fit, setting: str = "") -> list[Measurement]:
        """Return what a table may say of a fitted model besides its errors."""
        found = {"seconds": fit.seconds, "converged": float(fit.converged)}
        model = fit.model
        if hasattr(model, "best_estimator_"):  # a search: its last fit is what there is to describe
            found["refit_seconds"] = float(model.refit_time_)
            model = model.best_estimator_
        if hasattr(model, "support_fraction_"):
            # Of the distinct samples, as repeated ones are one to the solver.
            found["sv_percent"] = 100 * float(model.support_fraction_)
        if hasattr(model, "weights_"):
            weights = np.atleast_2d(model.weights_)
            found["active_kernels"] = float(np.count_nonzero(weights.max(axis=0) > 0))
            shown = weights.mean(axis=0) / (weights.mean(axis=0).sum() if self.shares else 1.0)
            found |= {
                f"weight:{name}": float(one)
                for name, one in zip(model.kernel_names_, shown, strict=True)
            }
        if self.costs:
            n_samples = len(model.support_) / model.support_fraction_
            found["total_cost"] = 100 * model.cost(self.costs) / n_samples
        return [Measurement(metric, value, setting) for metric, value in found.items()]


class Protocol(Interface):
    """How a table is filled. It must survive pickling: units are run in other processes, perhaps on
    other machines."""

    def units(self, experiment: str, scale: Scale) -> list[Unit]:
        """Return all units of the experiment at this scale."""

    def run(self, unit: Unit, settings: Settings) -> list[Measurement]:
        """Run one unit. A pure function: what is random comes from `Settings.seed_for`."""

    def summarise(self, records: Sequence[Record]) -> list[Row]:
        """Turn the records of finished units into rows of the table."""


@dataclass(frozen=True)
class Experiment:
    """One table to reproduce.

    Parameters
    ----------
    name : str
        What it is called on the command line, and the name of its files: the paper's number, then
        the table.
    title : str
        One line for people.
    paper, table : str
        Where `published.csv` has its figures.
    protocol : Protocol
        How it is run.
    notes : str
        Where it departs from the paper, or what the paper leaves open.
    splits : int
        How many splits the paper's figures are means over.
    apart : tuple of Apart
        Cells that cannot be compared with what is printed.
    another_reading_of : str
        Name of the experiment that fills the same table under the reading that is taken for the
        paper's; this one shows what another reading would give.
    pace : float
        Seconds that a unit of cost 1 takes, roughly: what is long is begun first, of all
        experiments.
    version : int
        Raise it when what a unit computes changes, so that old results are not mixed with new ones.
    """

    name: str
    title: str
    paper: str
    table: str
    protocol: Protocol
    notes: str = ""
    splits: int = 10
    apart: tuple[Apart, ...] = ()
    another_reading_of: str = ""
    pace: float = 1.0
    version: int = 1

    def units(self, scale: Scale) -> list[Unit]:
        """Return all units of this experiment at this scale, their costs in seconds."""
        return [
            replace(unit, cost=unit.cost * self.pace)
            for unit in self.protocol.units(self.name, scale)
        ]

    def rows(self, records: Sequence[Record]) -> list[Row]:
        """Return the table, with the published figures beside ours."""
        finished = [record for record in records if record.failure is None]
        return self.beside_published(self.protocol.summarise(finished))

    def beside_published(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows with the published figures beside ours."""
        return join(rows, self.paper, self.table, self.splits)

    def findings(self, rows: Sequence[Row]) -> list[str]:
        """Return what a study has found, in sentences; most experiments are no studies."""
        say = getattr(self.protocol, "findings", None)
        return [] if say is None else list(say(rows))

    def fingerprint(self, scale: Scale) -> str:
        """Return a short text that changes with the version and with what there is to run."""
        text = "\n".join([str(self.version), *sorted(unit.key for unit in self.units(scale))])
        return hashlib.sha256(text.encode()).hexdigest()[:16]
