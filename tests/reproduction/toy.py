"""Small experiments for the tests of the runner: importable, so that other processes can run their
units."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelmosaic.datasets import make_gaussians
from kernelmosaic.estimators import MKLClassifier
from kernelmosaic.kernels import Linear, Polynomial
from reproduction import (
    Experiment,
    Measurement,
    Record,
    Row,
    Scale,
    Settings,
    Unit,
    run_experiments,
)
from reproduction.cells import Grid, Pair, cells_of
from reproduction.executors import make_executor
from reproduction.experiment import Method
from reproduction.protocols import FiveByTwo
from reproduction.sources import Dataset, Generated

N_UNITS = 12


@dataclass(frozen=True)
class Sleeping:
    """Units that sleep, then say a number drawn by their seed; some fail, or kill the process that
    runs them."""

    seconds: float = 0.0
    failing: tuple[int, ...] = ()
    calls: str = ""
    deadly: tuple[int, ...] = ()

    def units(self, experiment: str, scale: Scale) -> list[Unit]:
        return [
            Unit(experiment, "toy", "sleep", "none", number)
            for number in range(scale.replicates or N_UNITS)
        ]

    def run(self, unit: Unit, settings: Settings) -> list[Measurement]:
        if self.calls:
            with Path(self.calls).open("a") as file:
                file.write(f"{unit.replicate} {os.getpid()}\n")
        time.sleep(self.seconds)
        if unit.replicate in self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if unit.replicate in self.failing:
            raise FileNotFoundError("toy.npz is not there; fetch it from\nhttps://example.org.")
        return [Measurement("draw", settings.seed_for(unit.key) / 2**32)]

    def summarise(self, records: Sequence[Record]) -> list[Row]:
        return [row for cell in cells_of(records) for row in cell.rows()]


def sleeping(name: str = "toy-sleep", **options: object) -> Experiment:
    return Experiment(name, "Units that sleep", "none", "none", Sleeping(**options))  # type: ignore[arg-type]


def gaussians(n_samples: int = 90) -> Experiment:
    """The real protocol on generated data."""
    linear, quadratic = ("kL", Linear()), ("kP", Polynomial(degree=2))
    protocol = FiveByTwo(
        datasets=tuple(
            Dataset(
                f"GAUSS{k}",
                Generated(make_gaussians, n_samples, (("n_components", k),)),
                quick=k == 4,
                seeds=1,
            )
            for k in (3, 4)
        ),
        methods=(
            Method("SVM", "kL", MKLClassifier([linear], weights="uniform")),
            Method("MKL", "kL-kP", MKLClassifier([linear, quadratic]), costs=(1.0, 3.0)),
        ),
        grid=Grid("C", (0.1, 10.0)),
        pairs=(Pair(("MKL", "kL-kP"), ("SVM", "kL"), "MKL vs SVM", overall="both sets"),),
    )
    return Experiment("toy-gauss", "Two mixtures", "none", "none", protocol)


if __name__ == "__main__":
    # folder, seconds per unit, processes: a run that a test may kill
    run_experiments(
        [sleeping(seconds=float(sys.argv[2]))],
        sys.argv[1],
        Settings(seed=5),
        make_executor(int(sys.argv[3])),
    )
    print(json.dumps("finished"))
