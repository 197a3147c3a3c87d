"""The short account of a run, for the documentation: how many figures agree, which claims held, what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from kernelmosaic.reports import write_text
from reproduction.claims import FAILED, HELD, UNDECIDED, Judged, judge
from reproduction.papers import missing_parts
from reproduction.reading import Result, Run
from reproduction.rows import label, tallies

_PAPERS = {
    "000": "Gönen and Alpaydın (2008), Localized multiple kernel learning",
    "001": "Gönen, slides of his thesis on multiple kernel learning",
    "002": "Gönen and Alpaydın (2011), Regularizing multiple kernel learning using response surface methodology",
    "003": "Kobayashi and Otsu, Bilinear formulated multiple kernel learning for multi-class classification",
    "004": "Ye, Ji and Chen (2008), Multi-class discriminant kernel learning via convex programming",
}
_VERSIONS = ("kernelmosaic", "python", "numpy", "scipy", "scikit-learn", "numba")
_RULE = (
    "A figure is *within* if it is at most two published deviations away; where none is printed, two percentage "
    "points (0.02 for a weight). Counts and verdicts must be equal. Times and other figures without a printed "
    "deviation are not counted. The tables themselves are the files `docs/reproduction/*.csv`."
)
_TESTS = (
    "Each claim is judged by the tables of this run at the 5 % level: {counts}. With six data sets or more "
    "Wilcoxon's signed-rank test on the means decides, two-sided; with fewer each data set is tested by itself, "
    "by the 5×2 cv F test where the experiment has it, else by Welch's t test over the replicates, which takes "
    "overlapping training sets for independent ones and so errs towards finding differences. A claim of being as "
    "good fails only if the test says worse."
)


def make_markdown(run: Run) -> str:
    """Return the account as Markdown; it says nothing that the tables of the run do not."""
    parts = [
        "# The papers, reproduced",
        "<!-- Made by `python -m reproduction report`; edits are lost when it is made again. -->",
        *_about(run),
        "## How many figures agree",
        _RULE,
        _agreement(run.results),
        *_claims(judge(run)),
        *_notes(run.results),
        *_missing(run),
        *_work(run),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def write_markdown(run: Run, path: str | Path) -> Path:
    """Write the account of a run to a file."""
    return write_text(path, make_markdown(run))


def _about(run: Run) -> list[str]:
    facts, machine = run.facts, run.facts["environment"]
    seconds = sum(one.work.seconds for one in run.results)
    quick = "" if facts["scale"]["name"] == "full" else " **A quick look: its figures are no evidence.**"
    papers = sorted({one.experiment.paper for one in run.results})
    versions = ", ".join(f"{name} {machine.get(name)}" for name in _VERSIONS)
    units = sum(one.work.units for one in run.results)
    made = (
        f"Run on {facts.get('started', 'an unknown day')[:10]} with seed {facts['seed']} at {facts['scale']['name']} "
        f"scale: {len(run.results)} experiments, {units} units, {_duration(seconds)} of work on {machine.get('cpus')} "
        f"CPUs ({machine.get('machine')}, {str(machine.get('system')).split('-')[0]}); {versions}.{quick}"
    )
    return [made, "\n".join(f"- **{paper}** {_PAPERS.get(paper, '')}" for paper in papers)]


def _agreement(results: Sequence[Result]) -> str:
    rows = []
    for one in results:
        counted = tallies(one.rows)
        where = f"{one.experiment.paper}, {one.experiment.table}"
        if not counted:
            rows.append((f"`{one.experiment.name}`", where, "nothing printed to compare", "", ""))
        for tally in counted:
            share = f"{100 * tally.within / tally.compared:.0f} %"
            rows.append(
                (f"`{one.experiment.name}`", where, label(tally.metric), f"{tally.within} of {tally.compared}", share)
            )
    return _table(("experiment", "table", "figure", "within", "share"), rows)


def _claims(judged: Sequence[Judged]) -> list[str]:
    counts = Counter(one.verdict.outcome for one in judged)
    decided = ", ".join(f"{counts[name]} {name}" for name in (HELD, FAILED, UNDECIDED) if counts[name])
    rows = [
        (
            one.claim.paper,
            one.claim.text,
            f"`{one.experiment}`" * bool(one.experiment),
            _bold(one),
            one.verdict.statistic,
        )
        for one in judged
    ]
    return [
        "## What the papers claim",
        _TESTS.format(counts=decided or "none decided"),
        _table(("paper", "claim", "experiment", "here", "by"), rows),
    ]


def _bold(one: Judged) -> str:
    return f"**{one.verdict.outcome}**" if one.verdict.outcome in (HELD, FAILED) else one.verdict.outcome


def _notes(results: Sequence[Result]) -> list[str]:
    noted = [one.experiment for one in results if one.experiment.notes]
    lines = [f"- `{one.name}` ({one.title}): {one.notes.strip()}" for one in noted]
    return ["## Where the runs depart from the papers", "\n".join(lines)] if lines else []


def _missing(run: Run) -> list[str]:
    parts = [
        "## What is not here",
        _table(("paper", "what", "why"), [(m.paper, m.what, m.why) for m in missing_parts()]),
    ]
    if run.absent:
        parts.append("Not in this run: " + ", ".join(f"`{one.name}`" for one in run.absent) + ".")
    if run.unfinished:
        parts.append("Not finished in this run: " + ", ".join(f"`{name}`" for name in run.unfinished) + ".")
    return parts


def _work(run: Run) -> list[str]:
    rows = [
        (f"`{one.experiment.name}`", one.work.units, one.work.failed, _duration(one.work.seconds))
        for one in run.results
    ]
    return [
        "## Time",
        "Time of all units together, however many ran at once.",
        _table(("experiment", "units", "failed", "time"), rows),
    ]


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds))) if seconds >= 60 else f"{seconds:.0f} s"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def line(cells: Iterable[Any]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(head), line("---" for _ in head), *map(line, rows)])
