"""Tables of the papers, run again: what is run, how it is kept, how it compares. `docs/experiments.md` says more."""

from __future__ import annotations

from kernelmosaic.experiments.catalogue import EXPERIMENTS, find_experiments
from kernelmosaic.experiments.executors import make_executor
from kernelmosaic.experiments.experiment import Experiment
from kernelmosaic.experiments.runner import Finished, Watcher, run_experiments
from kernelmosaic.experiments.summary import Row
from kernelmosaic.experiments.units import FULL, QUICK, Measurement, Record, Scale, Settings, Unit

__all__ = [
    "EXPERIMENTS",
    "FULL",
    "QUICK",
    "Experiment",
    "Finished",
    "Measurement",
    "Record",
    "Row",
    "Scale",
    "Settings",
    "Unit",
    "Watcher",
    "find_experiments",
    "make_executor",
    "run_experiments",
]
