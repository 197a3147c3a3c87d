"""The content of a model file, and what the terminal shows.

Tables go to stdout; notes and the progress bar go to stderr.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text
from sklearn.exceptions import InconsistentVersionWarning

from kernelmosaic._typing import Estimator, MatrixLike, Settings
from kernelmosaic.cli.methods import SCORES, figure
from kernelmosaic.cli.requests import InspectRequest, TaskName
from kernelmosaic.engine.pipelines import unwrap
from kernelmosaic.estimators.card import KernelShare, ModelCard
from kernelmosaic.persistence import ModelFileInfo, info, load
from kernelmosaic.tables import list_names

#: Tables of a page with more rows than this have a box that filters them. Chosen by hand.
MOST_ROWS_AT_A_GLANCE = 12

#: The least share of all weights with which a kernel is listed: below it, a weight would print as
#: 0.0000.
_LEAST_SHARE = 5e-5

#: The largest weight below which weights are printed with significant digits, in place of four
#: digits after the point: those of ridge kernels may all be small.
_SMALL_WEIGHTS = 0.1

#: The seconds between two lines of progress where there is no terminal. Chosen by hand: the log of
#: a build stays short.
_SECONDS_BETWEEN_LINES = 10.0

#: The seconds of progress that the time left is estimated from, on a terminal: an hour, as one step
#: may take minutes.
_SECONDS_OF_SPEED_ESTIMATE = 3600

# The model file -----------------------------------------------------------------------------------


def load_model(path: Path) -> tuple[Estimator, Estimator, Settings]:
    """Return the estimator in a model file, the kernel learner inside it, and its record.

    The record is what `kernelmosaic fit` wrote of the fit. Models that were fitted in Python have
    none: then its entries are None or empty, but for the names of the columns if they have any.
    """
    # `inspect` names the versions, so that a warning of another one is not needed.
    with warnings.catch_warnings(action="ignore", category=InconsistentVersionWarning):
        estimator = load(path)
    model = unwrap(estimator)
    if not hasattr(model, "kernel_names_"):
        raise ValueError(
            f"the file holds {type(estimator).__name__}, which is not a fitted model of"
            " kernelmosaic."
        )
    record: Settings = {
        "task": None,
        "method": None,
        "target": None,
        "rows": None,
        "plan": None,
        "score": None,
        "test": None,
        "gates": None,
        "seconds": None,
        "costs": None,
        "price": {},
        "views": {},
        "lacking": {},
        "files": {},
        "targets": [],
        "warnings": [],
        "columns": [str(name) for name in getattr(estimator, "feature_names_in_", [])],
        "choice": "",
    }
    record |= getattr(estimator, "training_", {})
    return estimator, model, record


def class_names(card: ModelCard, record: Settings) -> list[Any]:
    """Return the classes, or the names of the labels of which a row may have several."""
    if record["task"] == "multi-label":
        return list(record["targets"])
    return card.classes


def gate_summary(model: Estimator, X: MatrixLike) -> dict[str, list[float]] | None:
    """Return the quantiles 0.1, 0.5 and 0.9 of each kernel's gates; None without gates.

    Parameters
    ----------
    model : estimator
        Localized models have gates, of shape (samples, kernels) or (samples, kernels, classes).
    X : samples
        Over which the quantiles are taken, and over all classes.
    """
    if not hasattr(model, "gate"):
        return None
    gates = np.asarray(model.gate(X))
    if gates.ndim == 3:
        gates = np.moveaxis(gates, 2, 1).reshape(-1, gates.shape[1])
    quantiles = np.quantile(gates, (0.1, 0.5, 0.9), axis=0).T.tolist()
    return dict(zip(model.kernel_names_, quantiles, strict=True))


# Facts and tables as texts ------------------------------------------------------------------------


def facts(card: ModelCard, record: Settings) -> list[tuple[str, str]]:
    """Return name and value of the facts of a fit.

    They are its rows, what was chosen, its scores, and the facts of its model. Of a model that was
    fitted in Python, which has no record, they are those of its card.
    """
    task = record["task"]
    score = record["score"]
    test = record["test"]
    classes = class_names(card, record)
    lines = []

    # What was learned from, and what was chosen.
    if task is not None:
        lines.append(("learned from", f"{record['rows']} rows, {len(record['columns'])} columns"))
    if classes:
        kind = "labels" if task == "multi-label" else "classes"
        lines.append((kind, f"{len(classes)}: {list_names(classes, 10)}"))
    if task is None:
        lines += card.choice
    else:
        price = record["price"]
        lines.append((price["name"], f"{price['value']:.4g} ({price['how']})"))
    if record["choice"]:
        lines.append(("weights", record["choice"]))

    # Scores.
    if score:
        how = score["how"]
        rows = f"{score['n']} rows"
        if how == "cross-validated":
            rows += f" in {score['folds']} folds"
        text = describe_score(task, score["mean"], score["error"], rows)
        lines.append((f"{how} {score['name']}", text))
        lines.append((f"  {SCORES[task][1]}", figure(task, score["baseline"])))
        lines += [(f"{how} {name}", value) for name, value in score["further"].items()]
    if test:
        text = describe_score(task, test["value"], test["error"], f"{test['n']} rows")
        lines.append((f"{test['name']} on the test rows", text))

    # The model. If every view has one kernel, the table of kernels has the shares of the views.
    views = card.views
    if 1 < len(views) < len(card.kernels):
        shares = [f"{name} {100 * share:.1f} %" for name, share in views.items()]
        lines.append(("shares of the views", list_names(shares, 6)))
    lines += card.facts
    if record["seconds"]:
        lines.append(("seconds of the fits", f"{record['seconds']:.2f}"))
    return lines


def describe_score(task: TaskName, value: float, error: float | None, rows: str) -> str:
    """Return a score as text, with its standard error and the rows that it is of."""
    if error is None:
        return f"{figure(task, value)} ({rows})"
    return f"{figure(task, value, error)} (standard error; {rows})"


def share_rows(shares: Sequence[KernelShare], gates: Any) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table of kernels, with weights, shares and gates.

    Parameters
    ----------
    shares : sequence of KernelShare
    gates : dict or None
        As `gate_summary` returns it: with gates, the weights are their means.
    """
    head = ["kernel", "weight", "share %"]
    if gates:
        head = ["kernel", "mean gate", "share %", "gate, 10 % to 90 %"]
    largest_weight = max((share.weight for share in shares), default=1.0)
    form = "#.3g" if largest_weight < _SMALL_WEIGHTS else ".4f"
    rows = []
    for share in shares:
        row = [share.name, f"{share.weight:{form}}", f"{100 * share.share:.1f}"]
        if gates:
            low, _, high = gates[share.name]
            row.append(f"{low:.3f} to {high:.3f}")
        rows.append(row)
    return head, rows


# `kernelmosaic inspect` ---------------------------------------------------------------------------

#: The entries of the record that `inspect --json` prints, in their order.
_PRINTED_ENTRIES = (
    "task",
    "method",
    "target",
    "price",
    "rows",
    "score",
    "test",
    "gates",
    "seconds",
    "columns",
    "views",
    "lacking",
    "files",
    "warnings",
)


def show_model(request: InspectRequest) -> None:
    """Print the content of a model file, as tables or as JSON."""
    _, model, record = load_model(request.model)
    header = info(request.model)
    card = ModelCard(model)
    costs = record["costs"] or [1.0] * len(model.kernel_names_)
    prediction_cost = float(model.cost(costs))
    if request.as_json:
        content: Settings = {"file": str(request.model)}
        content |= _content_for_json(card, header, record, prediction_cost)
        print(json.dumps(content, indent=2, ensure_ascii=False))
        return
    lines = _describe_content(card, header, record, prediction_cost)
    print_facts(str(request.model), lines)
    print_shares(card.kernels, record["gates"])


def _content_for_json(
    card: ModelCard, header: ModelFileInfo, record: Settings, prediction_cost: float
) -> Settings:
    """Return the content of a model file as values that JSON can hold.

    What the model does not have is None: a ridge machine has a stationarity in place of a duality
    gap. Every model has `support_`, which may be all samples.
    """
    model = card.model
    objective = getattr(model, "objective_", None)
    stationarity = None
    if card.is_ridge:
        objective = getattr(model, "criterion_", None)
        stationarity = float(model.stationarity_)
    return {
        "estimator": type(model).__name__,
        "kernelmosaic_version": header.kernelmosaic_version,
        "sklearn_version": header.sklearn_version,
        "created": header.created,
        **{name: record[name] for name in _PRINTED_ENTRIES},
        "classes": class_names(card, record),
        "kernels": [asdict(share) for share in card.kernels],
        "support_vectors": len(model.support_),
        "support_fraction": float(model.support_fraction_),
        "cost": prediction_cost,
        "objective": objective,
        "duality_gap": getattr(model, "duality_gap_", None),
        "stationarity": stationarity,
        "iterations": getattr(model, "n_iter_", None),
    }


def _describe_content(
    card: ModelCard, header: ModelFileInfo, record: Settings, prediction_cost: float
) -> list[tuple[str, str]]:
    """Return name and value of everything in a model file but the weights of the kernels."""
    versions = f"kernelmosaic {header.kernelmosaic_version}, scikit-learn {header.sklearn_version}"
    lines = [
        ("estimator", type(card.model).__name__),
        ("written by", versions),
        ("written on", header.created),
    ]
    if record["task"]:
        task = f"{record['task']} by {record['method']}"
        if record["target"]:
            task += f", target {record['target']!r}"
        lines.append(("task", task))
    lines += facts(card, record)
    if card.has_support:
        cost = f"{prediction_cost:.1f} (support vectors × share of kernels in use)"
        lines.append(("cost of a prediction", cost))

    # Where the columns are from.
    columns = record["columns"]
    files = record["files"]
    column_names = "none by name"
    if columns:
        column_names = f"{len(columns)}: {list_names(columns, 8)}"
    lines.append(("columns", column_names))
    if files:
        table = files["table"]
        if files["on"]:
            table += f", joined by column {files['on']!r}"
        lines.append(("table", table))
    for name, view in record["views"].items():
        view_name = f"  view {name}"
        if view["files"]:
            view_name += f" from {', '.join(view['files'])}"
        content = f"{list_names(view['columns'], 4)}: {' + '.join(view['kernels'])}"
        n_lacking = record["lacking"][name]
        if n_lacking:
            content += f"; {n_lacking} rows lacked it"
        lines.append((view_name, content))
    lines += [(f"  kernel {name}", path) for name, path in files.get("kernels", {}).items()]
    return lines + [("warning", text) for text in record["warnings"]]


# The terminal -------------------------------------------------------------------------------------


def print_facts(title: str, lines: Sequence[tuple[str, str]]) -> None:
    """Print name and value of facts, a line each."""
    print_table(title, ["", ""], lines, no_wrap=True)


def print_shares(shares: Sequence[KernelShare], gates: Any = None) -> None:
    """Print the kernels of a weight, the largest first, and the number of the others."""
    with_weight = [share for share in shares if share.share >= _LEAST_SHARE]
    with_weight.sort(key=lambda share: -share.share)
    head, rows = share_rows(with_weight, gates)
    print_table("Kernels", head, rows)
    n_without = len(shares) - len(with_weight)
    if n_without:
        verb = "has" if n_without == 1 else "have"
        print(f"{n_without} of {len(shares)} kernels {verb} weight 0.")


def print_table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], no_wrap: bool = False
) -> None:
    """Print a table.

    Parameters
    ----------
    title : str
    head : sequence of str
        Names of the columns; empty texts for a table without a head. Named columns but the first
        hold figures, which are aligned to the right.
    rows : sequence of sequences of str
    no_wrap : bool
        Whether the cells of the first column stay on one line.
    """
    table = Table(title=title, show_header=any(head), title_justify="left")
    for i, name in enumerate(head):
        is_first = i == 0
        holds_figures = name and not is_first
        alignment: Literal["left", "right"] = "right" if holds_figures else "left"
        table.add_column(name, overflow="fold", no_wrap=no_wrap and is_first, justify=alignment)
    for row in rows:
        table.add_row(*map(Text, row))  # as Text, since brackets in a str are markup
    Console().print(table, highlight=False)


def say(*notes: str) -> None:
    """Print notes on stderr, a line each."""
    for note in notes:
        print("kernelmosaic:", " ".join(note.split()), file=sys.stderr)


@contextmanager
def progress(
    total: int, clock: Callable[[], float] = perf_counter, console: Console | None = None
) -> Iterator[Callable[[str, int], None]]:
    """Show the progress of a command while the block runs, and the time left.

    The block gets a function, to be called with what is done next and the number of steps done.
    Without a terminal, progress is printed in lines, at most one in ten seconds.

    Parameters
    ----------
    total : int
        The number of steps.
    clock : callable
        Returns the time in seconds.
    console : Console or None
        Where to show the bar; None for stderr.
    """
    # FORCE_COLOR asks for colours, also in the log of a build, where a bar would be written again
    # and again.
    if console is None:
        console = Console(stderr=True, force_terminal=sys.stderr.isatty())
    if not console.is_terminal:
        yield _line_printer(total, clock)
        return
    from rich import progress as rich

    with rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left:"),
        rich.TimeRemainingColumn(),
        console=console,
        transient=True,
        speed_estimate_period=_SECONDS_OF_SPEED_ESTIMATE,
    ) as bar:
        task = bar.add_task("preparing", total=total)
        yield lambda step, done: bar.update(task, description=step, completed=done)


def _line_printer(total: int, clock: Callable[[], float]) -> Callable[[str, int], None]:
    """Return a function that prints progress in lines; its time runs from now."""
    start = clock()
    last_line = start

    def show_progress(step: str, done: int) -> None:
        """Print a line, unless the last one is too recent."""
        nonlocal last_line
        time = clock()
        if time - last_line < _SECONDS_BETWEEN_LINES:
            return
        last_line = time
        line = f"{step}: {done} of {total} steps after {_duration(time - start)}"
        if done:
            line += f", about {_duration((time - start) * (total - done) / done)} left"
        say(line)

    return show_progress


def _duration(seconds: float) -> str:
    """Return a duration in seconds or, from a minute and a half on, in minutes."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


@contextmanager
def note_on_failure(note: str) -> Iterator[None]:
    """Add a note to an error of the system, which says what is already written."""
    try:
        yield
    except OSError as error:
        error.add_note(note)
        raise
