"""All experiments there are, and what the papers have that a run cannot have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from reproduction.data.entries import unavailable
from reproduction.experiment import Experiment
from reproduction.papers import (
    paper_000,
    paper_001,
    paper_002,
    paper_003,
    paper_004,
    readings,
    stand_ins,
)

#: By the number that begins the names of their experiments: authors, title.
PAPERS = {
    "000": ("Gönen and Alpaydın (2008)", "Localized multiple kernel learning"),
    "001": ("Gönen (2010)", "Slides of a thesis on multiple kernel learning"),
    "002": (
        "Gönen and Alpaydın (2011)",
        "Regularizing multiple kernel learning using response surface methodology",
    ),
    "003": (
        "Kobayashi and Otsu (2010)",
        "Bilinear formulated multiple kernel learning for multi-class classification",
    ),
    "004": (
        "Ye, Ji and Chen (2008)",
        "Multi-class discriminant kernel learning via convex programming",
    ),
}
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
        *readings.EXPERIMENTS,
    )
}
#: Paper, part, and either the data set that cannot be had or the reason in words.
_PARTS = (
    ("000, 002", "sequence set ARABIDOPSIS (Table 2 of both)", "ARABIDOPSIS"),
    ("000, 002", "sequence set VERTEBRATES (Table 2 of both)", "VERTEBRATES"),
    ("002", "sequence set ACCEPTORS (Table 2)", "ACCEPTORS"),
    ("002", "sequence set DONORS (Table 2)", "DONORS"),
    ("002", "sequence set POLYADENYLATION (Table 2)", "POLYADENYLATION"),
    (
        "001, 002",
        "protein function (Tables 5–7 and Figures 4–9 of the paper) and location (slides)",
        "YEAST",
    ),
    ("001", "protein stability", "neither the sample nor how its features were made is described."),
    ("001", "gender recognition from faces", "the set, its labels and the patches are not named."),
    ("003", "protein localisation (Figure 1 c and d)", "PROTEIN LOCALISATION"),
    (
        "003",
        "bars of Figure 1 a and b",
        "no numbers are printed; the run draws its own and the claims are judged.",
    ),
    (
        "004",
        "gene expression images",
        "the collection and the constants of the filters are not described.",
    ),
    (
        "004",
        "the two sets of Figure 4 (sweep over λ)",
        "their names are lost; wine and segment stand for them.",
    ),
)


def find_experiments(
    names: Sequence[str], catalogue: Mapping[str, Experiment] = EXPERIMENTS
) -> list[Experiment]:
    """Return the experiments of these names, or raise naming the nearest ones."""
    for name in names:
        if name not in catalogue:
            near = get_close_matches(name, catalogue, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise ValueError(f"no experiment is called {name!r}{hint} --list names them all.")
    return [catalogue[name] for name in dict.fromkeys(names)]


def by_name(text: str) -> str:
    """Return a text with the authors of the papers in place of their numbers; names of experiments
    stay."""
    return re.sub(r"\b00[0-4]\b(?!-)", lambda found: PAPERS[found[0]][0], text)


@dataclass(frozen=True)
class Missing:
    """A part of a paper that is not run, and why."""

    paper: str
    what: str
    why: str


def missing_parts() -> list[Missing]:
    """Return all parts that are not run; the reasons of data sets are those of the catalogue of
    data sets."""
    reasons = {name.upper(): why for name, why in unavailable().items()}
    return [Missing(paper, what, reasons.get(why, why)) for paper, what, why in _PARTS]
