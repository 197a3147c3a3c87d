"""All experiments there are."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from kernelmosaic.experiments import paper_000, paper_001, paper_002, paper_003, paper_004, stand_ins
from kernelmosaic.experiments.experiment import Experiment

#: In the order in which ``--all`` runs them. A new file of experiments adds its own here.
EXPERIMENTS: dict[str, Experiment] = {
    one.name: one
    for one in (
        *paper_000.EXPERIMENTS,
        *paper_001.EXPERIMENTS,
        *paper_002.EXPERIMENTS,
        *paper_003.EXPERIMENTS,
        *paper_004.EXPERIMENTS,
        *stand_ins.EXPERIMENTS,
    )
}


def find_experiments(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments of these names, or raise naming the nearest ones."""
    for name in names:
        if name not in EXPERIMENTS:
            near = get_close_matches(name, EXPERIMENTS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise ValueError(f"no experiment is called {name!r}{hint} --list names them all.")
    return [EXPERIMENTS[name] for name in dict.fromkeys(names)]
