"""Tables of the papers, run again: what is run, how it is kept, how it compares.
`docs/reproducing.md` says more."""

from __future__ import annotations

from reproduction.executors import make_executor
from reproduction.experiment import (
    FULL,
    QUICK,
    Experiment,
    Measurement,
    Record,
    Scale,
    Settings,
    Unit,
)
from reproduction.papers import EXPERIMENTS, find_experiments
from reproduction.rows import Row
from reproduction.runner import Finished, Watcher, run_experiments

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
