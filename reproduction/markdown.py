"""The short account of a run, for the documentation: how many figures agree, which claims held,
what is missing."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

from kernelmosaic.files import write_text
from reproduction.claims import (
    CLAIMS,
    FAILED,
    HELD,
    INCONCLUSIVE,
    NO_FIGURES,
    NOT_RUN,
    OTHER_SOLVERS,
    Judged,
    judge,
    verdict_on,
)
from reproduction.differences import MARGINS
from reproduction.papers import PAPERS, by_name, missing_parts
from reproduction.reading import Result, Run
from reproduction.rows import NEARLY_FREE, WEIGHTS, Tally, label, lines_of, tallies

#: Where a sentence of a note ends.
_SENTENCE = re.compile(r"(?<=\.) (?=[A-Z0-9])")
_VERSIONS = ("kernelmosaic", "python", "numpy", "scipy", "scikit-learn", "numba")
#: A printed figure agrees with a run of ours by this rule; "within" tallies count a plain one
#: besides.
_RULE = (
    "A *run* is a whole table with draws and splits of its own; most tables have three. A run"
    " agrees with a printed figure if the two differ by at most two standard errors of their"
    " difference (where the paper prints no deviation, ours is used). Verdicts of tests and counts"
    " must be equal. A figure counts by the share of our runs that agree. *Between our runs* is the"
    " share of pairs of our own runs that agree with each other: the ceiling, which is far below 95"
    " %, as the splits of a run share their samples. *Of the ceiling* is the share over it. *Gains*"
    " are figures of the methods less those of their baselines on the same splits."
)
_TESTS = (
    "Each claim is judged by the 95 % interval of the difference of two methods in our own runs:"
    " with six data sets or more that of Wilcoxon's signed-rank test, with fewer that of a paired t"
    " test over the runs of each data set, with a single run that of the 5×2 cv F test or of"
    " Welch's t test. There are three verdicts. A claim of *less* or *more* **held** if the whole"
    " interval is as claimed, and **did not hold** if the interval shows a loss, or a gain below"
    " the margin. A claim of *no less* or *no more* **held** if the interval excludes a loss of the"
    " margin, and **did not hold** if it shows a loss and does not exclude one of the margin."
    " Everything else is **inconclusive**: with three runs, only large differences can be told from"
    " chance. Of several data sets more than half must agree and none say the contrary. Printed"
    " figures and ranges must be met in every run, and are refuted if they are met in none."
)
_MARGINS = (
    "Margins: {margins}. None is tighter than the paper's own figures: a gain need not exceed the"
    " printed one, and a printed loss that the paper calls none is none of ours. *Other solvers*"
    " marks claims on the speed of the authors' programs that ours contradict."
)
_SOLVERS = (
    "Claims on the speed of the authors' own programs that ours do not show. Times of other"
    " programs neither confirm nor refute them:"
)
_OPEN = (
    "Neither shown nor refuted. Differences are first less second method, with 95 % intervals in"
    " brackets:"
)
_FREE = (
    "Weights and selections that are printed as zero agree nearly always, whatever a method does:"
    " {counts}. They are not in the shares of papers and in the first lines of this page."
)
_READINGS = (
    "Where a paper does not say how inputs and kernels are scaled, a reading was chosen by its own"
    " printed figures, which favours the figures that it was chosen by. Verdicts and shares under"
    " every reading that was run; the first column is the one taken:"
)
_OUTCOMES = (HELD, FAILED, INCONCLUSIVE, OTHER_SOLVERS)
_Rows = list[tuple[Any, ...]]
#: The last line of the account; a page may go on below it.
_END = "<!-- Below this line edits are kept. -->\n"


def make_markdown(run: Run, folder: str = "report") -> str:
    """Return the account as Markdown: the verdicts first. Long tables are links to csv files in a
    folder beside it."""
    judged = _judged(run)
    parts = [
        "# Reproduced papers",
        (
            "<!-- Made by `python -m reproduction report`; edits above its last line are lost when"
            " it is made again. -->"
        ),
        _verdict(run, judged),
        _by_paper(run, judged),
        *_failed(judged),
        *_figures(run, folder),
        *_claims(judged, folder),
        *_under_readings(run),
        *_missing(run),
        "## The run",
        _about(run),
        _links(run, folder),
        _END,
    ]
    return "\n\n".join(part for part in parts if part)


def long_tables(run: Run) -> dict[str, _Rows]:
    """Return the tables that are too long for the page by name, their heads first."""
    found = {
        "agreement": _agreement(run),
        "claims": _all_claims(_judged(run)),
        "chosen": _apart(run.results, chosen=True),
        "not_counted": _apart(run.results, chosen=False),
        "findings": _findings(run.results),
        "departures": _notes(run.results),
        **{f"readings_{name}": rows for name, rows in _readings(run).items()},
    }
    return {name: rows for name, rows in found.items() if len(rows) > 1}


def write_markdown(run: Run, path: str | Path) -> Path:
    """Write the account of a run to a file, and its long tables to a folder of the same name
    without the ending.

    What an existing file has below the account's last line is kept.
    """
    path = Path(path)
    folder = path.with_suffix("")
    for name, rows in long_tables(run).items():
        folder.mkdir(exist_ok=True)
        write_text(folder / f"{name}.csv", as_csv(rows))
    below = path.read_text(encoding="utf-8").partition(_END)[2] if path.exists() else ""
    return write_text(path, make_markdown(run, folder.name) + below)


def as_csv(rows: _Rows) -> str:
    """Return a table as the text of a csv file."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _judged(run: Run) -> list[Judged]:
    return [one for one in judge(run) if one.verdict.outcome != NOT_RUN]


def _name(paper: str) -> str:
    """Return the authors and the title of a paper."""
    return ": ".join(PAPERS[paper]) if paper in PAPERS else paper


def _verdict(run: Run, judged: Sequence[Judged]) -> str:
    counts = Counter(one.verdict.outcome for one in judged)
    words = {
        HELD: "hold in our runs",
        FAILED: "does not" if counts[FAILED] == 1 else "do not",
        OTHER_SOLVERS: (
            "concern the speed of the authors' own programs, which ours can neither confirm nor"
            " refute"
        ),
        INCONCLUSIVE: "are inconclusive",
    }
    said = ", ".join(f"{counts[name]} {words[name]}" for name in _OUTCOMES if counts[name])
    papers = len({one.claim.paper for one in judged})
    quick = (
        ""
        if run.facts["scale"]["name"] == "full"
        else " **A quick look: its figures are no evidence.**"
    )
    figures = _agreeing(run)
    if not judged:
        return f"This run has no table that a claim of the papers is judged by.{figures}{quick}"
    counted = f"**Of {len(judged)} claims of {papers} paper{'s' * (papers > 1)}, {said}.**"
    return f"{counted} A claim that is tested on two tables counts twice.{figures}{quick}"


def _agreeing(run: Run) -> str:
    """Return a sentence on how many printed figures agree, beside the ceiling, and without the
    paper that has most."""
    total = _total(_printed(run))
    if total is None:
        return ""
    _, share, ceiling, reached = shares(total)
    said = (
        " Of the printed figures (accuracies, errors, support vectors, weights, costs, selections"
        f" of kernels) {total.within:.0f} of {total.compared} agree with ours, {share}"
    )
    if ceiling:
        said += (
            f", where two of our own runs agree with each other in {ceiling}: {reached} of what can"
            " be expected"
        )
    said += "; figures that are zero whatever a method does are not among them."
    by_paper = {
        paper: _printed(run, paper) for paper in {one.experiment.paper for one in run.results}
    }
    counts = {
        paper: sum(tally.compared for tally in tallied) for paper, tallied in by_paper.items()
    }
    largest = max(counts, key=lambda paper: counts[paper])
    rest = _total(
        [tally for paper, tallied in by_paper.items() if paper != largest for tally in tallied]
    )
    if rest is not None and largest in PAPERS:
        _, share, ceiling, reached = shares(rest)
        said += (
            f" Without {PAPERS[largest][0]}, who print most of them, {rest.within:.0f} of"
            f" {rest.compared}, {share}"
        )
        said += f" ({reached} of the ceiling of {ceiling})." if ceiling else "."
    return said


def _printed(run: Run, paper: str = "", free: bool = False) -> list[Tally]:
    """Return the tallies of printed figures, or of those that agree nearly always.

    Gains follow from other figures, and plain rules count them again.
    """
    return [
        tally
        for _, tally in _tallies(run, paper)
        if tally.group != "gains"
        and " within " not in tally.metric
        and (tally.metric in NEARLY_FREE) == free
    ]


def _by_paper(run: Run, judged: Sequence[Judged]) -> str:
    rows = []
    for paper in sorted(
        {one.experiment.paper for one in run.results if one.experiment.paper in PAPERS}
    ):
        counts = Counter(one.verdict.outcome for one in judged if one.claim.paper == paper)
        total = _total(_printed(run, paper))
        counted = shares(total) if total else ("none printed", "", "", "")
        rows.append((_name(paper), *(counts[name] or "" for name in _OUTCOMES), *counted))
    head = (
        "paper",
        "claims that hold",
        "do not",
        "inconclusive",
        "speed",
        "figures that agree",
        "share",
        "between our runs",
        "of the ceiling",
    )
    return _table(head, rows) if rows else ""


def _tallies(run: Run, paper: str = "") -> list[tuple[Result, Tally]]:
    """Return how many figures agree, experiment by experiment; other readings and studies are left
    out."""
    return [
        (one, tally)
        for one in run.results
        if paper in ("", one.experiment.paper)
        and not (one.experiment.another_reading_of or one.experiment.findings(one.rows))
        for tally in tallies(one.rows, one.experiment.apart)
    ]


def _total(marks: Sequence[Tally]) -> Tally | None:
    """Return several tallies as one; ceilings count by the number of their figures."""
    if not marks:
        return None
    known = [one for one in marks if one.ceiling is not None]
    n_known = sum(one.compared for one in known)
    ceiling = sum(one.compared * (one.ceiling or 0.0) for one in known) / n_known if known else None
    compared, within = sum(one.compared for one in marks), sum(one.within for one in marks)
    return Tally(marks[0].metric, marks[0].group, compared, within, ceiling)


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


def _failed(judged: Sequence[Judged]) -> list[str]:
    """Return the claims that did not hold, or not yet, with the figures, and those on the speed of
    other programs."""
    sections = (
        ("## Claims that did not hold", FAILED, "Figures in brackets are those of the runs:"),
        ("## Inconclusive claims", INCONCLUSIVE, _OPEN),
        ("## Claims on the speed of other programs", OTHER_SOLVERS, _SOLVERS),
    )
    parts = []
    for heading, outcome, introduction in sections:
        lines = [_line_of(one) for one in judged if one.verdict.outcome == outcome]
        if lines:
            parts += [heading, introduction, "\n".join(lines)]
    return parts


def _line_of(one: Judged) -> str:
    """Return a claim with the figures that its verdict hangs on."""
    said = one.verdict.said
    if one.verdict.outcome == INCONCLUSIVE:
        statistic = one.verdict.statistic
        said = f"{statistic[:1].upper()}{statistic[1:]}."
    return f"- {PAPERS[one.claim.paper][0]}: {one.claim.text} (`{one.experiment}`). {said}"


def _figures(run: Run, folder: str) -> list[str]:
    kinds: dict[tuple[str, str], list[Tally]] = {}
    for one, tally in _tallies(run):
        if " within " not in tally.metric and one.experiment.paper in PAPERS:
            figure = label(tally.metric) + ", gains" * (tally.group == "gains")
            kinds.setdefault((PAPERS[one.experiment.paper][0], figure), []).append(tally)
    rows = [
        (*kind, *shares(total))
        for kind, marks in kinds.items()
        if (total := _total(marks)) is not None
    ]
    if not rows:
        return []
    more = (
        "By experiment, and by a plain rule (accuracies within 2 points, weights within 0.03): "
        f"[agreement]({folder}/agreement.csv)."
    )
    if len(_apart(run.results, chosen=True)) > 1:
        more += (
            " Figures by which we chose what a paper leaves open are [counted"
            f" apart]({folder}/chosen.csv)."
        )
    if len(_apart(run.results, chosen=False)) > 1:
        more += (
            " Others, such as those of unknown random draws, [cannot be"
            f" compared]({folder}/not_counted.csv)."
        )
    return [
        "## Published figures beside ours",
        _RULE,
        _table(("paper", "figure", "agree", "share", "between our runs", "of the ceiling"), rows),
        *_nearly_free(run),
        more,
    ]


def _nearly_free(run: Run) -> list[str]:
    """Return a sentence on the figures that agree nearly always, if there are any."""
    free = _printed(run, free=True)
    if not free:
        return []
    totals = {
        name: _total([tally for tally in free if tally.metric == name]) for name in NEARLY_FREE
    }
    counts = [f"{shares(total)[0]} {name}" for name, total in totals.items() if total is not None]
    return [_FREE.format(counts=", ".join(counts))]


def _agreement(run: Run) -> _Rows:
    head = (
        "experiment",
        "paper",
        "table",
        "figure",
        "of",
        "within",
        "share",
        "ceiling",
        "of the ceiling",
    )
    return [
        head,
        *(
            (
                one.experiment.name,
                by_name(one.experiment.paper),
                one.experiment.table,
                label(tally.metric),
                tally.group,
                *shares(tally),
            )
            for one, tally in _tallies(run)
        ),
    ]


def _apart(results: Sequence[Result], chosen: bool) -> _Rows:
    """Return the cells by which a reading was chosen, with how many agree; or those that cannot be
    compared."""
    rows: _Rows = [
        (
            ("experiment", "cells", "within", "what was chosen")
            if chosen
            else ("experiment", "cells", "figures", "why")
        )
    ]
    for one in results:
        for apart in one.experiment.apart:
            cells = [row for row in one.rows if row.share is not None and apart.covers(row)]
            if cells and bool(apart.chosen) == chosen:
                within = f"{sum(row.share or 0.0 for row in cells):.1f}".removesuffix(".0")
                count = f"{within} of {len(cells)}" if chosen else len(cells)
                rows.append(
                    (
                        one.experiment.name,
                        " ".join(filter(None, apart.cells)) or "all",
                        count,
                        apart.why,
                    )
                )
    return rows


def _readings(run: Run) -> dict[str, _Rows]:
    """Return the tables that were filled under several readings, one column a reading."""
    names = dict.fromkeys(
        one.experiment.another_reading_of
        for one in run.results
        if one.experiment.another_reading_of
    )
    return {name: _side_by_side(found) for name in names if len(found := run.readings_of(name)) > 1}


def _side_by_side(results: Sequence[Result]) -> _Rows:
    """Return the accuracies and the weights' distances of one table under several readings, and
    their means."""
    found = [_measures(one) for one in results]
    printed = {name: value for column in found for name, (_, _, value) in column.items()}
    # Of what a reading alone has, and of cells that no other reading has, there is nothing to
    # compare.
    cells = [name for name in printed if sum(name in column for column in found) > 1]
    rows: _Rows = [
        (
            "data set",
            "method",
            "kernels",
            "figure",
            "published",
            *(one.experiment.name for one in results),
        )
    ]
    rows += [
        (
            *name,
            f"{printed[name]:.2f}" if name[3] == "accuracy" else "",
            *(_shown(column, name) for column in found),
        )
        for name in cells
    ]
    for figure in dict.fromkeys(name[3] for name in cells):
        mine = [
            [column[name][1] for name in cells if name in column and name[3] == figure]
            for column in found
        ]
        means = [f"{sum(one) / len(one):.2f}" if one else "" for one in mine]
        rows.append(("mean difference", "", "", figure, "", *means))
    return rows


_Cell = tuple[str, str, str, str]


def _measures(one: Result) -> dict[_Cell, tuple[float, float, float]]:
    """Return by cell the figure, its distance from print, and print: accuracies, and sums of
    differences of weights."""
    found: dict[_Cell, tuple[float, float, float]] = {}
    for line in lines_of(row for row in one.rows if row.published is not None):
        row = line.figures.get("accuracy")
        if row is not None and row.published is not None:
            found[*row.cell, "accuracy"] = row.mean, abs(row.mean - row.published), row.published
        weights = [
            one.difference or 0.0
            for name, one in line.figures.items()
            if name.startswith(WEIGHTS[0])
        ]
        if weights:
            total = sum(map(abs, weights))
            found[line.dataset, line.method, line.kernels, "weights"] = total, total, 0.0
    return found


def _shown(column: dict[_Cell, tuple[float, float, float]], name: _Cell) -> str:
    return f"{column[name][0]:.2f}" if name in column else ""


def _findings(results: Sequence[Result]) -> _Rows:
    """Return what the studies among the experiments have found."""
    found = [
        (one.experiment, said) for one in results for said in one.experiment.findings(one.rows)
    ]
    return [
        ("experiment", "title", "finding"),
        *((one.name, one.title, by_name(said)) for one, said in found),
    ]


def _claims(judged: Sequence[Judged], folder: str) -> list[str]:
    """Return all claims, paper by paper, with their verdicts."""
    if not judged:
        return []
    margins = ", ".join(
        f"{label(metric)} {margin}" for metric, margin in MARGINS.items() if metric != "time"
    )
    parts = [
        "## All claims",
        _TESTS,
        f"{_MARGINS.format(margins=margins)} Statistics: [claims]({folder}/claims.csv).",
    ]
    for paper in dict.fromkeys(one.claim.paper for one in judged):
        rows: dict[str, list[str]] = {}
        for one in judged:
            if one.claim.paper == paper:
                rows.setdefault(one.claim.text, []).append(_bold(one))
        merged = [(text, ", ".join(dict.fromkeys(said))) for text, said in rows.items()]
        parts += [f"### {PAPERS[paper][0]}", _table(("claim", "here"), merged)]
    return parts


def _all_claims(judged: Sequence[Judged]) -> _Rows:
    return [
        ("paper", "claim", "experiment", "outcome", "statistic", "figures"),
        *(
            (
                PAPERS[one.claim.paper][0],
                one.claim.text,
                one.experiment,
                one.verdict.outcome,
                one.verdict.statistic,
                one.verdict.said * (one.verdict.outcome in (FAILED, INCONCLUSIVE, OTHER_SOLVERS)),
            )
            for one in judged
        ),
    ]


def _bold(one: Judged) -> str:
    return f"**{one.verdict.outcome}**" if one.verdict.outcome == FAILED else one.verdict.outcome


def _under_readings(run: Run) -> list[str]:
    """Return, for every table that was filled under several readings, the claims and the shares
    under each of them."""
    parts = []
    for name in _readings(run):
        results = run.readings_of(name)
        head = ("", *(f"`{one.experiment.name}`" for one in results))
        rows: _Rows = [(claim, *verdicts) for claim, verdicts in _verdicts_by_reading(run, results)]
        rows.append(("printed figures that agree", *(_share_of(one) for one in results)))
        parts += [f"### `{name}`", _table(head, rows)]
    return ["## Verdicts under every reading", _READINGS, *parts] if parts else []


def _verdicts_by_reading(run: Run, results: Sequence[Result]) -> list[tuple[str, list[str]]]:
    """Return the claims on a table, each with its verdict under every reading of it."""
    experiment = results[0].experiment
    is_quick = run.facts["scale"]["name"] != "full"
    claims = [
        claim
        for claim in CLAIMS
        if claim.paper == experiment.paper and experiment.table in claim.tables
    ]
    found = []
    for claim in claims:
        verdicts = [verdict_on(claim, one, is_quick) for one in results]
        outcomes = [
            NOT_RUN if verdict.statistic == NO_FIGURES else verdict.outcome for verdict in verdicts
        ]
        found.append((claim.text, outcomes))
    return found


def _share_of(result: Result) -> str:
    """Return how many printed figures agree, those by which a reading was chosen among them."""
    apart = [cells for cells in result.experiment.apart if not cells.chosen]
    total = _total(
        [
            tally
            for tally in tallies(result.rows, apart)
            if tally.group != "gains"
            and " within " not in tally.metric
            and tally.metric not in NEARLY_FREE
        ]
    )
    if total is None:
        return "none"
    count, share, ceiling, _ = shares(total)
    return f"{count}, {share}" + (f" (ceiling {ceiling})" if ceiling else "")


def _notes(results: Sequence[Result]) -> _Rows:
    """List the notes of the experiments; a sentence that several share stands once, with their
    names."""
    noted = [one.experiment for one in results if one.experiment.notes]
    sentences = [_SENTENCE.split(one.notes.strip()) for one in noted]
    count = Counter(chain.from_iterable(sentences))
    shared: dict[str, list[str]] = {}
    for sentence in (sentence for sentence in count if count[sentence] > 1):
        names = ", ".join(
            one.name for one, its in zip(noted, sentences, strict=True) if sentence in its
        )
        shared.setdefault(names, []).append(sentence)
    rows: _Rows = [
        ("experiments", "title", "departure from the paper, or what the paper leaves open")
    ]
    rows += [(names, "", by_name(" ".join(found))) for names, found in shared.items()]
    for one, its in zip(noted, sentences, strict=True):
        own = " ".join(sentence for sentence in its if count[sentence] == 1)
        rows.append((one.name, one.title, by_name(own) or "as above"))
    return rows


def _missing(run: Run) -> list[str]:
    parts = [
        "## What is missing",
        _table(
            ("paper", "part", "reason"),
            [(by_name(m.paper), m.what, m.why) for m in missing_parts()],
        ),
    ]
    if run.absent:
        parts.append("Not in this run: " + ", ".join(f"`{one.name}`" for one in run.absent) + ".")
    if run.unfinished:
        parts.append(
            "Not finished in this run: " + ", ".join(f"`{name}`" for name in run.unfinished) + "."
        )
    return parts


def _about(run: Run) -> str:
    facts, machine = run.facts, run.facts["environment"]
    own = [one.work for one in run.results if one.work.commit in ("", machine.get("commit"))]
    seconds, units = sum(one.seconds for one in own), sum(one.units for one in own)
    versions = ", ".join(f"{name} {machine.get(name)}" for name in _VERSIONS)
    commit = f" of commit {machine['commit']}" if machine.get("commit") else ""
    where = (
        f"{machine.get('cpus')} CPUs ({machine.get('machine')},"
        f" {str(machine.get('system')).split('-')[0]})"
    )
    made = (
        f"Run{commit} on {facts.get('started', 'an unknown day')[:10]} with seed {facts['seed']} at"
        f" {facts['scale']['name']} scale: {len(own)} experiments, {units} units,"
        f" {_duration(seconds)} of work on {where}; {versions}."
    )
    others: dict[str, list[str]] = {}
    for one in run.results:
        if one.work.commit not in ("", machine.get("commit")):
            others.setdefault(one.work.commit, []).append(f"`{one.experiment.name}`")
    made += "".join(
        f" Of another run, commit {its}: {', '.join(names)}." for its, names in others.items()
    )
    failed = ", ".join(
        f"`{one.experiment.name}` ({one.work.failed} of {one.work.units})"
        for one in run.results
        if one.work.failed
    )
    made += f" Units that failed: {failed}." * bool(failed)
    earlier = ", ".join(f"`{one.experiment.name}`" for one in run.results if one.is_earlier)
    if earlier:
        made += (
            f"\n\n**Not yet run again**: {earlier}. Their figures are of an earlier definition,"
            " under other readings and with other splits than this page describes."
        )
    return made


def _links(run: Run, folder: str) -> str:
    """Name the experiments, and link what has no place on the page."""
    names = ", ".join(f"`{one.experiment.name}`" for one in run.results)
    words = {
        "departures": "where the runs depart from the papers",
        "findings": "what experiments without printed figures found",
    }
    words |= {f"readings_{name}": f"`{name}` under several readings" for name in _readings(run)}
    tables = long_tables(run)
    links = [f"[{said}]({folder}/{name}.csv)" for name, said in words.items() if name in tables]
    return f"Experiments: {names}." + f"\n\nTables: {', '.join(links)}." * bool(links)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds))) if seconds >= 60 else f"{seconds:.0f} s"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def line(cells: Iterable[Any]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(head), line("---" for _ in head), *map(line, rows)])
