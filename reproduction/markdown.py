"""The short account of a run, for the documentation: how many figures agree, which claims held, what is missing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

from kernelmosaic.files import write_text
from reproduction.claims import FAILED, HELD, NOT_RUN, OTHER_SOLVERS, UNDECIDED, Judged, judge
from reproduction.papers import missing_parts
from reproduction.reading import Result, Run
from reproduction.rows import WEIGHTS, Tally, label, lines_of, tallies

_PAPERS = {
    "000": "Gönen and Alpaydın (2008), Localized multiple kernel learning",
    "001": "Gönen, slides of his thesis on multiple kernel learning",
    "002": "Gönen and Alpaydın (2011), Regularizing multiple kernel learning using response surface methodology",
    "003": "Kobayashi and Otsu, Bilinear formulated multiple kernel learning for multi-class classification",
    "004": "Ye, Ji and Chen (2008), Multi-class discriminant kernel learning via convex programming",
}
#: Where a sentence of a note ends.
_SENTENCE = re.compile(r"(?<=\.) (?=[A-Z0-9])")
_VERSIONS = ("kernelmosaic", "python", "numpy", "scipy", "scikit-learn", "numba")
_RULE = (
    "A *run* of ours is the whole table with draws and splits of its own, as the papers have one; most data sets have "
    "three. A run agrees with a printed figure if |ours − theirs| ≤ 2 √(ours² + theirs²), of standard errors of means "
    "over splits: theirs is the printed deviation divided by the root of the number of splits, or, where none is "
    "printed, taken to be ours. Half a unit of the second decimal is allowed for rounding; where no error is known "
    "two points (0.02 for a weight). Counts and verdicts must be equal. A cell counts by the share of its runs that "
    "agree. The *ceiling* is how often two of our own runs agree with each other by the same rule, the most that can "
    "be expected of a paper. It is below one where ten folds share one test third, whose standard error does not "
    "measure the variation of that third. *Gains* are the methods' figures less those of their baselines on the same "
    "splits, in which a setting of both cancels. Weights printed as zero are counted apart. How often a kernel is "
    "chosen is a count of the paper's splits, whose own standard error follows from it; ours is scaled to as many "
    "splits. A plain rule without errors is given as well: accuracies within two points, weights within 0.03. The "
    "tables themselves are the files `docs/reproduction/*.csv`."
)
_CHOSEN = (
    "Counted apart, and not above, are cells whose own figures decided what the paper leaves open: that they agree "
    "with print is no evidence. Cells that follow from them in part (gains, verdicts, costs) are counted above."
)
#: The last line of the account; a page may go on below it.
_END = "<!-- Below this line edits are kept. -->\n"
_TESTS = (
    "Each claim is judged by the tables of this run at the 5 % level: {counts}. With six data sets or more "
    "Wilcoxon's signed-rank test on the means decides, two-sided; with fewer each data set is tested by itself, "
    "by a paired t test over the runs, whose draws and splits the methods share, so that what differs from run to run "
    "counts as error. With three runs it finds large differences only. Where an experiment has one run, its 5×2 cv F "
    "test decides, else Welch's t test over the replicates, which takes overlapping training sets for independent "
    "ones and so errs towards finding differences. A claim holds if more than half of the data sets show it and none "
    "the contrary; one of being as good fails only if a test shows it to be worse. Figures in brackets are those of "
    "the runs. What a paper states of the times of its own solvers is marked *other solvers* where ours do not show "
    "it: times of other programs cannot refute it. Printed figures that cannot be compared are not judged."
)


def make_markdown(run: Run) -> str:
    """Return the account as Markdown; it says nothing that the tables of the run do not."""
    parts = [
        "# Reproduced papers",
        "<!-- Made by `python -m reproduction report`; edits above its last line are lost when it is made again. -->",
        *_about(run),
        "## How many figures agree",
        _RULE,
        _agreement([one for one in run.results if _is_counted(one)]),
        *_apart(run.results),
        *_readings(run),
        *_studies(run.results),
        *_claims(judge(run)),
        *_notes(run.results),
        *_missing(run),
        *_work(run),
        _END,
    ]
    return "\n\n".join(part for part in parts if part)


def write_markdown(run: Run, path: str | Path) -> Path:
    """Write the account of a run to a file; what an existing file has below the account's last line is kept."""
    path = Path(path)
    below = path.read_text(encoding="utf-8").partition(_END)[2] if path.exists() else ""
    return write_text(path, make_markdown(run) + below)


def _about(run: Run) -> list[str]:
    facts, machine = run.facts, run.facts["environment"]
    own = [one.work for one in run.results if one.work.commit in ("", machine.get("commit"))]
    seconds = sum(one.seconds for one in own)
    quick = "" if facts["scale"]["name"] == "full" else " **A quick look: its figures are no evidence.**"
    papers = sorted({one.experiment.paper for one in run.results})
    versions = ", ".join(f"{name} {machine.get(name)}" for name in _VERSIONS)
    units = sum(one.units for one in own)
    commit = f" of commit {machine['commit']}" if machine.get("commit") else ""
    where = f"{machine.get('cpus')} CPUs ({machine.get('machine')}, {str(machine.get('system')).split('-')[0]})"
    made = (
        f"Run{commit} on {facts.get('started', 'an unknown day')[:10]} with seed {facts['seed']} at "
        f"{facts['scale']['name']} scale: {len(own)} experiments, {units} units, {_duration(seconds)} of work "
        f"on {where}; {versions}.{quick}"
    )
    others: dict[str, list[str]] = {}
    for one in run.results:
        if one.work.commit not in ("", machine.get("commit")):
            others.setdefault(one.work.commit, []).append(f"`{one.experiment.name}`")
    made += "".join(f" Of another run, commit {its}: {', '.join(names)}." for its, names in others.items())
    earlier = ", ".join(f"`{one.experiment.name}`" for one in run.results if one.is_earlier)
    if earlier:
        made += (
            f"\n\n**Not yet run again**: {earlier}. Their figures are of an earlier definition, under other readings "
            "and with other splits than this page describes."
        )
    # A study of several papers is none of its own.
    return [made, "\n".join(f"- **{paper}** {_PAPERS[paper]}" for paper in papers if paper in _PAPERS)]


def _is_counted(one: Result) -> bool:
    """Say whether an experiment is held against its paper; what other readings and studies give is shown elsewhere."""
    return not (one.experiment.another_reading_of or one.experiment.findings(one.rows))


def _agreement(results: Sequence[Result]) -> str:
    rows = []
    for one in results:
        counted = tallies(one.rows, one.experiment.apart)
        where = f"{one.experiment.paper}, {one.experiment.table}"
        if not counted:
            rows.append((f"`{one.experiment.name}`", where, "nothing to compare", *[""] * 5))
        rows += [
            (f"`{one.experiment.name}`", where, label(tally.metric), tally.group, *shares(tally)) for tally in counted
        ]
    return _table(("experiment", "table", "figure", "of", "within", "share", "ceiling", "of the ceiling"), rows)


def shares(tally: Tally) -> tuple[str, str, str, str]:
    """Return how many agree, as a count and a share, the ceiling, and the share of it."""
    share = tally.within / tally.compared
    within = f"{tally.within:.1f}".removesuffix(".0")
    if tally.ceiling is None:
        return f"{within} of {tally.compared}", f"{share:.0%}".replace("%", " %"), "", ""
    reached = f"{share / tally.ceiling:.2f}" if tally.ceiling else ""
    return (
        f"{within} of {tally.compared}",
        f"{share:.0%}".replace("%", " %"),
        f"{tally.ceiling:.0%}".replace("%", " %"),
        reached,
    )


def _apart(results: Sequence[Result]) -> list[str]:
    """Return what is counted apart because a reading was chosen by it, what cannot be compared at all, and why."""
    chosen, never = [], []
    for one in results:
        for apart in one.experiment.apart:
            cells = [row for row in one.rows if row.share is not None and apart.covers(row)]
            where = (f"`{one.experiment.name}`", " ".join(filter(None, apart.cells)) or "all")
            if cells and apart.chosen:
                within = f"{sum(row.share or 0.0 for row in cells):.1f}".removesuffix(".0")
                chosen.append((*where, f"{within} of {len(cells)}", apart.why))
            elif cells:
                never.append((*where, len(cells), apart.why))
    parts = []
    if chosen:
        parts += [_CHOSEN, _table(("experiment", "cells", "within", "what was chosen"), chosen)]
    if never:
        parts += ["Not counted:", _table(("experiment", "cells", "figures", "why"), never)]
    return parts


def _readings(run: Run) -> list[str]:
    """Return the tables that were filled under several readings, one column a reading."""
    parts: list[str] = []
    for name in dict.fromkeys(one.experiment.another_reading_of for one in run.results):
        results = run.readings_of(name) if name else []
        if len(results) > 1:
            first = results[0].experiment
            parts += [f"## {first.paper}, {first.table} under several readings", _side_by_side(results)]
    return parts


def _side_by_side(results: Sequence[Result]) -> str:
    """Return the accuracies and the weights' distances of one table under several readings, and their means."""
    found = [_measures(one) for one in results]
    printed = {name: value for column in found for name, (_, _, value) in column.items()}
    # Of what a reading alone has, and of cells that no other reading has, there is nothing to compare.
    cells = [name for name in printed if sum(name in column for column in found) > 1]
    rows = [
        (*name, f"{printed[name]:.2f}" if name[3] == "accuracy" else "", *(_shown(column, name) for column in found))
        for name in cells
    ]
    for figure in dict.fromkeys(name[3] for name in cells):
        mine = [[column[name][1] for name in cells if name in column and name[3] == figure] for column in found]
        means = [f"{sum(one) / len(one):.2f}" if one else "" for one in mine]
        rows.append(("mean difference", "", "", figure, "", *means))
    names = [f"`{one.experiment.name}`" for one in results]
    return _table(("data set", "method", "kernels", "figure", "published", *names), rows)


_Cell = tuple[str, str, str, str]


def _measures(one: Result) -> dict[_Cell, tuple[float, float, float]]:
    """Return by cell the figure, its distance from print, and print: accuracies, and sums of differences of weights."""
    found: dict[_Cell, tuple[float, float, float]] = {}
    for line in lines_of(row for row in one.rows if row.published is not None):
        row = line.figures.get("accuracy")
        if row is not None and row.published is not None:
            found[*row.cell, "accuracy"] = row.mean, abs(row.mean - row.published), row.published
        weights = [one.difference or 0.0 for name, one in line.figures.items() if name.startswith(WEIGHTS[0])]
        if weights:
            total = sum(map(abs, weights))
            found[line.dataset, line.method, line.kernels, "weights"] = total, total, 0.0
    return found


def _shown(column: dict[_Cell, tuple[float, float, float]], name: _Cell) -> str:
    return f"{column[name][0]:.2f}" if name in column else ""


def _studies(results: Sequence[Result]) -> list[str]:
    """Return what the studies among the experiments have found."""
    parts: list[str] = []
    for one in results:
        if found := one.experiment.findings(one.rows):
            parts += [f"## {one.experiment.title}", "\n".join(f"- {sentence}" for sentence in found)]
    return parts


def _claims(judged: Sequence[Judged]) -> list[str]:
    counts = Counter(one.verdict.outcome for one in judged)
    decided = ", ".join(
        f"{counts[name]} {name}" for name in (HELD, FAILED, OTHER_SOLVERS, UNDECIDED, NOT_RUN) if counts[name]
    )
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
    failed = [one for one in judged if one.verdict.outcome in (FAILED, OTHER_SOLVERS)]
    instead = [f"- {one.claim.text} (`{one.experiment}`): {one.verdict.said}" for one in failed]
    return [
        "## What the papers claim",
        _TESTS.format(counts=decided or "none decided"),
        _table(("paper", "claim", "experiment", "here", "by"), rows),
        *(["Claims that did not hold, or of other solvers, with the figures:", "\n".join(instead)] if instead else []),
    ]


def _bold(one: Judged) -> str:
    return f"**{one.verdict.outcome}**" if one.verdict.outcome in (HELD, FAILED) else one.verdict.outcome


def _notes(results: Sequence[Result]) -> list[str]:
    """List the notes of the experiments; a sentence that several share stands once, with their names."""
    noted = [one.experiment for one in results if one.experiment.notes]
    sentences = [_SENTENCE.split(one.notes.strip()) for one in noted]
    count = Counter(chain.from_iterable(sentences))
    shared: dict[str, list[str]] = {}
    for sentence in (sentence for sentence in count if count[sentence] > 1):
        names = ", ".join(f"`{one.name}`" for one, its in zip(noted, sentences, strict=True) if sentence in its)
        shared.setdefault(names, []).append(sentence)
    lines = [f"- {names}: {' '.join(found)}" for names, found in shared.items()]
    for one, its in zip(noted, sentences, strict=True):
        own = " ".join(sentence for sentence in its if count[sentence] == 1)
        lines.append(f"- `{one.name}` ({one.title}): {own or 'as above.'}")
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
