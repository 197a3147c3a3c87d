"""What the papers have and a run cannot have, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmosaic.datasets import unavailable


@dataclass(frozen=True)
class Missing:
    """A part of a paper that is not run, and why."""

    paper: str
    what: str
    why: str


#: Paper, part, and either the data set that cannot be had or the reason in words.
_PARTS = (
    ("000, 002", "sequence set ARABIDOPSIS (000 Table 2, 002 Table 2)", "ARABIDOPSIS"),
    ("000, 002", "sequence set VERTEBRATES (000 Table 2, 002 Table 2)", "VERTEBRATES"),
    ("002", "sequence set ACCEPTORS (Table 2)", "ACCEPTORS"),
    ("002", "sequence set DONORS (Table 2)", "DONORS"),
    ("002", "sequence set POLYADENYLATION (Table 2)", "POLYADENYLATION"),
    ("000", "two, four and five local linear kernels", "only the runs with three of them are printed."),
    ("001, 002", "protein function (002 Tables 5–7 and Figures 4–9) and location (001)", "YEAST"),
    ("001", "protein stability", "neither the sample nor how its features were made is described."),
    ("001", "gender recognition from faces", "the set, its labels and the patches are not named."),
    ("003", "protein localisation (Figure 1 c and d)", "PROTEIN LOCALISATION"),
    ("003", "bars of Figure 1 a and b", "no numbers are printed; the run has its own and the claims are judged."),
    ("004", "gene expression images", "the collection and the constants of the filters are not described."),
    ("004", "Figures 1, 3 and 4 (times of two-class sets, sweep over λ)", "drawn in the paper, without numbers."),
)


def missing_parts() -> list[Missing]:
    """Return all parts that are not run; the reasons of data sets are those of the catalogue of data sets."""
    reasons = {name.upper(): why for name, why in unavailable().items()}
    return [Missing(paper, what, reasons.get(why, why)) for paper, what, why in _PARTS]
