"""What an experiment is: a table of a paper, the protocol that fills it, and the figures it is compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

from kernelmosaic.experiments.published import join
from kernelmosaic.experiments.summary import Row
from kernelmosaic.experiments.units import Measurement, Record, Scale, Settings, Unit


class Protocol(Interface):
    """How a table is filled. It must survive pickling: units are run in other processes, perhaps on other machines."""

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
        What it is called on the command line, and the name of its files: the paper's number, then the table.
    title : str
        One line for people.
    paper, table : str
        Where `published.csv` has its figures.
    protocol : Protocol
        How it is run.
    notes : str
        Where it departs from the paper, or what the paper leaves open.
    version : int
        Raise it when what a unit computes changes, so that old results are not mixed with new ones.
    """

    name: str
    title: str
    paper: str
    table: str
    protocol: Protocol
    notes: str = ""
    version: int = 1

    def units(self, scale: Scale) -> list[Unit]:
        """Return all units of this experiment at this scale."""
        return self.protocol.units(self.name, scale)

    def rows(self, records: Sequence[Record]) -> list[Row]:
        """Return the table, with the published figures beside ours."""
        finished = [record for record in records if record.failure is None]
        return join(self.protocol.summarise(finished), self.paper, self.table)

    def fingerprint(self, scale: Scale) -> str:
        """Return a short text that changes with the version and with what there is to run."""
        text = "\n".join([str(self.version), *sorted(unit.key for unit in self.units(scale))])
        return hashlib.sha256(text.encode()).hexdigest()[:16]
