"""What is run, and what comes of it: units, measurements, records."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Scale:
    """How much of an experiment is run.

    Parameters
    ----------
    name : str
    replicates : int or None
        Most repetitions (folds, splits) of each cell; None means all.
    max_samples : int or None
        Data sets with more samples are thinned to so many; None means never.
    all_datasets : bool
        Whether every data set is run, or only those that an experiment names for a quick look.
    """

    name: str
    replicates: int | None = None
    max_samples: int | None = None
    all_datasets: bool = True


FULL = Scale("full")
QUICK = Scale("quick", replicates=2, max_samples=240, all_datasets=False)


@dataclass(frozen=True)
class Settings:
    """What holds for a whole run: the seed, the scale, and the folder with the data (None: where `load` looks)."""

    seed: int = 0
    scale: Scale = FULL
    data_home: str | None = None

    def seed_for(self, *words: object) -> int:
        """Return a seed of its own for what the words name, the same on every machine and in every process."""
        text = "/".join(map(str, (self.seed, *words)))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


@dataclass(frozen=True)
class Unit:
    """The smallest piece that is run, stored and resumed.

    Parameters
    ----------
    experiment, dataset, method, kernels : str
        What is measured; together they name a cell of the table.
    replicate : int
        Number of the fold or split, from 0.
    cost : float
        A guess of the seconds it takes, for the estimate of the time left; only the ratios matter.
    """

    experiment: str
    dataset: str
    method: str
    kernels: str
    replicate: int
    cost: float = field(default=1.0, compare=False)

    @property
    def cell(self) -> str:
        """The unit's name without the replicate."""
        return f"{self.experiment}/{self.dataset}/{self.method}/{self.kernels}"

    @property
    def key(self) -> str:
        """The unit's name, by which a run is resumed."""
        return f"{self.cell}/{self.replicate}"


@dataclass(frozen=True)
class Measurement:
    """One number: what was measured, under which setting of the search (``"C=10"``; empty if there is none)."""

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
