"""The page of a run: every table beside what was printed, the claims, the pictures, the times, the
machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from importlib.util import find_spec

from kernelmosaic.reports import Cell, Page
from reproduction.claims import FAILED, HELD, INCONCLUSIVE, LEVEL, Judged, judge
from reproduction.markdown import shares
from reproduction.papers import by_name, missing_parts
from reproduction.pictures import DRAWINGS, Drawing, Drawn, draw_pictures
from reproduction.reading import Result, Run
from reproduction.rows import (
    COUNTS,
    TESTS,
    WEIGHTS,
    Line,
    Row,
    agreement,
    label,
    lines_of,
    main_metrics,
    more_metrics,
    number,
    ours,
    published,
    tallies,
)

_VERDICTS = {1: "win", 0: "tie", -1: "loss"}
_KINDS = ("wins:", "ties:", "losses:")
_NAMES = {"5x2cvF": "5×2 cv F test", "direct": "bare means"}
_TONES = {True: "good", False: "bad", None: ""}
_RULE = (
    "“Within” means that at least half of our runs differ from the published figure by at most two"
    " standard errors of the difference; counts and verdicts must be equal. The difference, ours"
    " less the published figure, stands beside it. The ceiling is how often our own runs agree with"
    " each other by the same rule. SV stands for support vectors."
)


def _f_tests(page: Page, rows: Sequence[Row]) -> None:
    """Add the 5×2 cv F tests, one line per data set, comparison and metric, if there are any."""
    found = []
    for line in lines_of(row for row in rows if row.metric.startswith(TESTS)):
        for metric in (name.removeprefix("p:") for name in line.figures if name.startswith("p:")):
            p_value, statistic = line.figures[f"p:{metric}"].mean, line.figures[f"F:{metric}"].mean
            said = "significant" if p_value < LEVEL else "not significant"
            found.append(
                (
                    line.dataset,
                    line.method,
                    line.kernels,
                    label(metric),
                    _f(statistic),
                    f"{p_value:.3f}",
                    said,
                )
            )
    if found:
        head = ("data set", "comparison", "kernels", "of", "F", "p", f"at {LEVEL:.0%}")
        caption = (
            "Significance: the combined 5×2 cv F test on each data set, 10 and 5 degrees of"
            " freedom."
        )
        page.table(caption, head, found, len(found) > 5)


def _f(statistic: float) -> str:
    return "> 1000" if statistic > 1000 else f"{statistic:.2f}"


def _counts(page: Page, rows: Sequence[Row]) -> None:
    """Add the counts over data sets beside the printed ones, if there are any."""
    found = []
    for line in lines_of(row for row in rows if row.metric.startswith(COUNTS)):
        for name in (
            name.removeprefix("wins:") for name in line.figures if name.startswith("wins:")
        ):
            test, metric = name.split(":")
            counts = [line.figures[f"{kind}{name}"] for kind in _KINDS]
            found.append(
                (
                    line.dataset,
                    line.method,
                    line.kernels,
                    label(metric),
                    _NAMES.get(test, test),
                    *_both(counts),
                )
            )
        for row in line.figures.values():
            if row.metric.startswith("wilcoxon:"):
                metric = row.metric.removeprefix("wilcoxon:")
                p_value = line.figures[f"wilcoxon_p:{metric}"].mean
                cells = _verdict(row, p_value)
                found.append(
                    (line.dataset, line.method, line.kernels, label(metric), "Wilcoxon", *cells)
                )
    if found:
        head = ("over", "comparison", "kernels", "of", "test", "ours", "published", "agreement")
        page.table("Wins, ties and losses of the first method over the data sets.", head, found)


def _both(counts: Sequence[Row]) -> tuple[str, str, Cell]:
    mine = " / ".join(number(row.mean) for row in counts)
    if any(row.published is None for row in counts):
        return mine, "", Cell("")
    printed = " / ".join(number(row.published) for row in counts)
    return mine, printed, _agreement(all(row.within for row in counts))


def _verdict(row: Row, p_value: float) -> tuple[str, str, Cell]:
    mine = f"{_VERDICTS[round(row.mean)]} (p = {p_value:.3f})"
    if row.published is None:
        return mine, "", Cell("")
    return mine, _VERDICTS[round(row.published)], _agreement(bool(row.within))


def _agreement(same: bool) -> Cell:
    return Cell("the same", "good") if same else Cell("another", "bad")


def make_page(
    run: Run, data_home: str | None = None, drawings: Sequence[Drawing] = DRAWINGS
) -> Page:
    """Return the page of a run.

    Parameters
    ----------
    run : Run
    data_home : str, optional
        Folder with the data sets, for the pictures that need them.
    drawings : sequence of Drawing
        Pictures of the papers; an empty one for a page of tables only.
    """
    scale = run.facts["scale"]["name"]
    done = sum(one.work.seconds for one in run.results)
    lead = (
        f"{len(run.results)} experiment{'s' * (len(run.results) != 1)}, run"
        f" {run.facts.get('started', '')[:10]} at {scale} scale with seed {run.facts['seed']},"
        f" {_duration(done)} of work. {_RULE}"
    )
    if scale != "full":
        lead += (
            " This was a quick look with few folds and subsampled sets: its figures are no"
            " evidence."
        )
    page = Page("The papers, run again", lead, wide=True)
    draws = bool(drawings) and find_spec("matplotlib") is not None
    if drawings and not draws:
        page.paragraph(
            'The pictures are missing: they need matplotlib, `pip install "kernelmosaic[plots]"`.'
        )
    _overview(page, run)
    _claims(page, judge(run))
    drawn = draw_pictures(run, data_home, drawings) if draws else {}
    for paper in dict.fromkeys(one.experiment.paper for one in run.results):
        for result in run.results:
            if result.experiment.paper == paper:
                _experiment(page, result, draws)
        _paper_pictures(page, paper, drawn.get(paper, []), subsampled=scale != "full")
    _times(page, run, draws)
    _not_run(page, run)
    _environment(page, run)
    return page


def _overview(page: Page, run: Run) -> None:
    page.heading("How many figures agree")
    rows = [
        (one.experiment.name, label(tally.metric), tally.group, *shares(tally))
        for one in run.results
        for tally in tallies(one.rows, one.experiment.apart)
    ]
    caption = (
        "Of the figures that can be set beside published ones, how many agree, and how many of our"
        " own runs do."
    )
    head = ("experiment", "figure", "of", "within", "share", "ceiling", "of the ceiling")
    page.table(caption, head, rows, searchable=len(rows) > 5)


def _claims(page: Page, judged: Sequence[Judged]) -> None:
    page.heading("What the papers claim")
    tones = {HELD: "good", FAILED: "bad"}
    rows = [
        (
            one.claim.text,
            Cell(one.verdict.outcome, tones.get(one.verdict.outcome, "warn")),
            one.verdict.statistic
            + f". {one.verdict.said}" * (one.verdict.outcome in (FAILED, INCONCLUSIVE)),
            one.experiment or by_name(one.claim.paper),
        )
        for one in judged
    ]
    page.table(
        "Each claim, judged by the 95 % interval of what our figures say, and a margin in both"
        " directions.",
        ("claim", "here", "by", "experiment"),
        rows,
        searchable=True,
    )


def _experiment(page: Page, result: Result, draws: bool) -> None:
    experiment = result.experiment
    page.heading(f"{experiment.name}: {experiment.title}", experiment.name)
    if experiment.notes:
        page.paragraph(experiment.notes)
    if result.work.failed:
        page.paragraph(
            f"{result.work.failed} of {result.work.units} units failed; they are missing from the"
            " figures."
        )
    lines = lines_of(result.rows)
    _main_table(page, result, lines)
    _f_tests(page, result.rows)
    _counts(page, result.rows)
    for prefix, name in zip(
        WEIGHTS, ("Weights", "Penalties", "How often each kernel is chosen"), strict=True
    ):
        _weights(page, lines, prefix, name)
    _more_table(page, result, lines)
    if draws:
        from reproduction.charts import result_pictures

        for figure, alt, caption in result_pictures(result):
            page.figure(figure, alt, caption)


def _main_table(page: Page, result: Result, lines: Sequence[Line]) -> None:
    metrics = main_metrics(result.rows)
    shown = [line for line in lines if any(metric in line.figures for metric in metrics)]
    if shown:
        head, rows = _side_by_side(shown, metrics)
        caption = (
            f"{by_name(result.experiment.paper)}, {result.experiment.table}: means and deviations"
            " over the replicates."
        )
        page.table(caption, head, rows, searchable=len(rows) > 5)


def _side_by_side(
    lines: Sequence[Line], metrics: Sequence[str]
) -> tuple[list[str], list[list[str | Cell]]]:
    """Return head and rows: who, then each metric, beside it what is published."""
    printed = {m for line in lines for m, row in line.figures.items() if row.published is not None}
    settings = any(line.setting for line in lines)
    head = ["data set", "method", "kernels", *(["chosen"] if settings else [])]
    for metric in metrics:
        head += [label(metric), *(["published", "agreement"] if metric in printed else [])]
    return head, [_row(line, metrics, printed, settings) for line in lines]


def _row(line: Line, metrics: Sequence[str], printed: set[str], settings: bool) -> list[str | Cell]:
    cells: list[str | Cell] = [
        line.dataset,
        line.method,
        line.kernels,
        *([line.setting] if settings else []),
    ]
    for metric in metrics:
        row = line.figures.get(metric)
        cells.append(ours(row) if row else "")
        if metric in printed:
            cells.append(published(row) if row else "")
            cells.append(Cell(agreement(row), _TONES[row.within]) if row else "")
    return cells


def _weights(page: Page, lines: Sequence[Line], prefix: str, name: str) -> None:
    kernels = list(
        dict.fromkeys(
            m.removeprefix(prefix) for one in lines for m in one.figures if m.startswith(prefix)
        )
    )
    rows = []
    for line in lines:
        found = {kernel: line.figures.get(prefix + kernel) for kernel in kernels}
        if any(found.values()):
            cells = [
                Cell(_weight(row), _TONES[row.within]) if row else "" for row in found.values()
            ]
            rows.append([line.dataset, line.method, line.kernels, *cells])
    if rows:
        caption = f"{name}: ours, and in brackets the published ones."
        fold = f"{name} of {len(rows)} models" if len(rows) > 4 else ""
        page.table(caption, ["data set", "method", "kernels", *kernels], rows, len(rows) > 5, fold)


def _weight(row: Row) -> str:
    mine = f"{row.mean:.2f}"
    return mine if row.published is None else f"{mine} [{row.published:.2f}]"


def _more_table(page: Page, result: Result, lines: Sequence[Line]) -> None:
    metrics = more_metrics(result.rows)
    shown = [line for line in lines if any(metric in line.figures for metric in metrics)]
    if shown:
        head, rows = _side_by_side(shown, metrics)
        named = ", ".join(dict.fromkeys(map(label, metrics)))
        page.table(
            f"More of the same models: {named}.", head, rows, len(rows) > 5, f"More: {named}"
        )


def _paper_pictures(page: Page, paper: str, drawn: Sequence[Drawn], subsampled: bool) -> None:
    if not drawn:
        return
    page.heading(f"{by_name(paper)}: its pictures, drawn again", f"{paper} pictures")
    if subsampled:
        page.paragraph("Of a quick look: fewer samples than the captions say.")
    for one in drawn:
        if one.image is not None:
            page.figure(one.image, one.alt, one.caption)
        else:
            page.paragraph(f"{one.caption} Not drawn: {one.problem}")


def _times(page: Page, run: Run, draws: bool) -> None:
    page.heading("Run times")
    rows = [
        (
            one.experiment.name,
            one.work.units,
            one.work.failed,
            f"{one.work.seconds:.1f}",
            _duration(one.work.seconds),
        )
        for one in run.results
    ]
    rows += [
        (name, work.units, work.failed, f"{work.seconds:.1f}", "not finished")
        for name, work in run.unfinished.items()
    ]
    caption = "Seconds of work: those of all units together, however many ran at once."
    page.table(caption, ("experiment", "units", "failed", "seconds", ""), rows)
    if draws and rows:
        from reproduction.charts import work_chart

        page.figure(
            work_chart(run), "Bars: seconds of work of each experiment, as in the table above"
        )


def _not_run(page: Page, run: Run) -> None:
    page.heading("What is not here")
    if run.absent:
        page.paragraph("Not in this run: " + ", ".join(f"`{one.name}`" for one in run.absent) + ".")
    rows = [(one.what, by_name(one.paper), one.why) for one in missing_parts()]
    page.table("What cannot be had, and why.", ("what", "paper", "why"), rows)


def _environment(page: Page, run: Run) -> None:
    page.heading("Environment")
    facts = {
        "started": run.facts.get("started"),
        "seed": run.facts["seed"],
        "scale": run.facts["scale"]["name"],
    }
    page.table(
        "What the run was made with.",
        ("what", "value"),
        list((facts | run.facts["environment"]).items()),
    )


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds))) if seconds >= 60 else f"{seconds:.0f} s"
