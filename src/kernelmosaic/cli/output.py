"""What a model file holds, and what the terminal shows: tables on stdout; notes and a progress bar
on stderr."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

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
from kernelmosaic.persistence import info, load
from kernelmosaic.tables import some


def load_model(path: Path) -> tuple[Estimator, Estimator, Settings]:
    """Return the estimator in a model file, the kernel learner inside it, and what `kernelmosaic
    fit` noted.

    Of models made elsewhere, the names of the columns are known if they have any.
    """
    # `inspect` names the versions.
    with warnings.catch_warnings(action="ignore", category=InconsistentVersionWarning):
        estimator = load(path)
    model = unwrap(estimator)
    if not hasattr(model, "kernel_names_"):
        raise ValueError(
            f"the file holds {type(estimator).__name__}, which is not a fitted model of"
            " kernelmosaic."
        )
    unknown = (
        "task",
        "method",
        "target",
        "rows",
        "plan",
        "score",
        "test",
        "gates",
        "seconds",
        "costs",
    )
    noted: Settings = dict.fromkeys(unknown)
    noted |= {name: {} for name in ("price", "views", "lacking", "files")} | {
        "targets": [],
        "warnings": [],
    }
    noted |= {
        "columns": [str(name) for name in getattr(estimator, "feature_names_in_", [])],
        "choice": "",
    }
    return estimator, model, noted | getattr(estimator, "training_", {})


def class_names(card: ModelCard, noted: Settings) -> list[Any]:
    """Return the classes, or the names of the labels of which a row may have several."""
    return list(noted["targets"]) if noted["task"] == "multi-label" else card.classes


def facts(card: ModelCard, noted: Settings) -> list[tuple[str, str]]:
    """Return name and value of what is known of a model: rows, choice and scores, then the facts of
    its card."""
    task, score, test, found = noted["task"], noted["score"], noted["test"], []
    classes, views = class_names(card, noted), card.views
    if task is not None:
        found.append(("learned from", f"{noted['rows']} rows, {len(noted['columns'])} columns"))
    if classes:
        found.append(
            (
                "labels" if task == "multi-label" else "classes",
                f"{len(classes)}: {some(classes, 10)}",
            )
        )
    if task is None:
        found += card.choice
    else:
        found.append(
            (noted["price"]["name"], f"{noted['price']['value']:.4g} ({noted['price']['how']})")
        )
    if noted["choice"]:
        found.append(("weights", noted["choice"]))
    if score:
        rows = f"{score['n']} rows" + (
            f" in {score['folds']} folds" if score["how"] == "cross-validated" else ""
        )
        found.append(
            (
                f"{score['how']} {score['name']}",
                with_error(task, score["mean"], score["error"], rows),
            )
        )
        found.append((f"  {SCORES[task][1]}", figure(task, score["baseline"])))
        found += [(f"{score['how']} {name}", text) for name, text in score["further"].items()]
    if test:
        text = with_error(task, test["value"], test["error"], f"{test['n']} rows")
        found.append((f"{test['name']} on the test rows", text))
    if 1 < len(views) < len(card.kernels):
        found.append(
            (
                "shares of the views",
                some([f"{name} {100 * one:.1f} %" for name, one in views.items()], 6),
            )
        )
    return (
        found
        + card.facts
        + ([("seconds of the fits", f"{noted['seconds']:.2f}")] if noted["seconds"] else [])
    )


def with_error(task: TaskName, value: float, error: float | None, rows: str) -> str:
    """Write a score with its standard error, if there is one, and the rows that it is of."""
    return f"{figure(task, value, error)} ({'' if error is None else 'standard error; '}{rows})"


def share_rows(shares: Sequence[KernelShare], gates: Any) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table of kernels: name, weight, share and, of a localized model,
    the gates.

    Weights of another scale than one keep their digits.
    """
    head = [
        "kernel",
        "mean gate" if gates else "weight",
        "share %",
        *(["gate, 10 % to 90 %"] if gates else []),
    ]
    form = "#.3g" if max((share.weight for share in shares), default=1.0) < 0.1 else ".4f"
    rows = [[share.name, f"{share.weight:{form}}", f"{100 * share.share:.1f}"] for share in shares]
    for row in rows if gates else []:
        low, _, high = gates[row[0]]
        row.append(f"{low:.3f} to {high:.3f}")
    return head, rows


def gate_summary(model: Estimator, X: MatrixLike) -> dict[str, list[float]] | None:
    """Return, for a localized model, the quantiles 0.1, 0.5 and 0.9 of each kernel's gates; None
    for others."""
    if not hasattr(model, "gate"):
        return None
    gates = np.asarray(model.gate(X))
    gates = gates if gates.ndim == 2 else np.moveaxis(gates, 2, 1).reshape(-1, gates.shape[1])
    return dict(
        zip(
            model.kernel_names_, np.quantile(gates, (0.1, 0.5, 0.9), axis=0).T.tolist(), strict=True
        )
    )


def show_model(request: InspectRequest) -> None:
    """Print the content of a model file."""
    _, model, noted = load_model(request.model)
    card, header = ModelCard(model), info(request.model)
    cost = float(model.cost(noted["costs"] or [1.0] * len(model.kernel_names_)))
    if request.as_json:
        kept = (
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
        )
        found = {
            "file": str(request.model),
            "estimator": type(model).__name__,
            **{
                name: getattr(header, name)
                for name in ("kernelmosaic_version", "sklearn_version", "created")
            },
            **{name: noted[name] for name in (*kept, "lacking", "files", "warnings")},
            "classes": class_names(card, noted),
            "kernels": [asdict(share) for share in card.kernels],
            "support_vectors": len(model.support_),
            "support_fraction": float(model.support_fraction_),
            "cost": cost,
            "objective": getattr(model, "criterion_" if card.is_ridge else "objective_", None),
            "duality_gap": getattr(model, "duality_gap_", None),
            "stationarity": float(model.stationarity_) if card.is_ridge else None,
            "iterations": getattr(model, "n_iter_", None),
        }
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    lines = [
        ("estimator", type(model).__name__),
        (
            "written by",
            f"kernelmosaic {header.kernelmosaic_version}, scikit-learn {header.sklearn_version}",
        ),
        ("written on", header.created),
    ]
    if noted["task"]:
        target = f", target {noted['target']!r}" if noted["target"] else ""
        lines.append(("task", f"{noted['task']} by {noted['method']}{target}"))
    lines += facts(card, noted)
    if card.has_support:
        lines.append(
            ("cost of a prediction", f"{cost:.1f} (support vectors × share of kernels in use)")
        )
    columns, files = noted["columns"], noted["files"]
    lines.append(("columns", f"{len(columns)}: {some(columns, 8)}" if columns else "none by name"))
    if files:
        lines.append(
            (
                "table",
                files["table"] + (f", joined by column {files['on']!r}" if files["on"] else ""),
            )
        )
    for name, view in noted["views"].items():
        source = f" from {', '.join(view['files'])}" if view["files"] else ""
        lack = f"; {noted['lacking'][name]} rows lacked it" if noted["lacking"][name] else ""
        lines.append(
            (
                f"  view {name}{source}",
                f"{some(view['columns'], 4)}: {' + '.join(view['kernels'])}{lack}",
            )
        )
    lines += [(f"  kernel {name}", path) for name, path in files.get("kernels", {}).items()]
    print_facts(str(request.model), [*lines, *(("warning", text) for text in noted["warnings"])])
    print_shares(card.kernels, noted["gates"])


def print_facts(title: str, lines: Sequence[tuple[str, str]]) -> None:
    """Print facts, a line each."""
    print_table(title, ["", ""], lines, no_wrap=True)


def print_shares(shares: Sequence[KernelShare], gates: Any = None) -> None:
    """Print the kernels that count, the heaviest first; weights below 5e-5 print as zero."""
    counted = sorted(
        (share for share in shares if share.share >= 5e-5), key=lambda share: -share.share
    )
    print_table("Kernels", *share_rows(counted, gates))
    left = len(shares) - len(counted)
    if left:
        print(f"{left} of {len(shares)} kernels {'has' if left == 1 else 'have'} weight 0.")


def print_table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], no_wrap: bool = False
) -> None:
    """Print a table; with a head, all columns but the first are of figures."""
    table = Table(title=title, show_header=any(head), title_justify="left")
    for i, name in enumerate(head):
        figures = name and i > 0
        table.add_column(
            name,
            overflow="fold",
            no_wrap=no_wrap and i == 0,
            justify="right" if figures else "left",
        )
    for row in rows:
        table.add_row(*map(Text, row))  # brackets are not taken for markup
    Console().print(table, highlight=False)


def say(*notes: str) -> None:
    """Print notes on stderr, a line each."""
    for note in notes:
        print("kernelmosaic:", " ".join(note.split()), file=sys.stderr)


@contextmanager
def progress(
    total: int, clock: Callable[[], float] = perf_counter, console: Console | None = None
) -> Iterator[Callable[[str, int], None]]:
    """Show how many of all steps are done, and the time left, while the block runs.

    The value is called with what is done next and how many steps are done. Without a terminal,
    progress is printed in lines, at most one in ten seconds by the clock.
    """
    # FORCE_COLOR asks for colours, also in the log of a build, where a bar would be written again
    # and again.
    console = console or Console(stderr=True, force_terminal=sys.stderr.isatty())
    start = last = clock()
    if not console.is_terminal:

        def show_progress(what: str, done: int) -> None:
            nonlocal last
            now = clock()
            if now - last >= 10.0:
                last = now
                left = (
                    f", about {_duration((now - start) * (total - done) / done)} left"
                    if done
                    else ""
                )
                say(f"{what}: {done} of {total} steps after {_duration(now - start)}{left}")

        yield show_progress
        return
    from rich import progress as rich

    columns = rich.TextColumn("{task.description}"), rich.BarColumn(), rich.MofNCompleteColumn()
    times = rich.TimeElapsedColumn(), rich.TextColumn("left:"), rich.TimeRemainingColumn()
    with rich.Progress(
        *columns, *times, console=console, transient=True, speed_estimate_period=3600
    ) as bar:
        task = bar.add_task("preparing", total=total)
        yield lambda what, done: bar.update(task, description=what, completed=done)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


@contextmanager
def noting(note: str) -> Iterator[None]:
    """Add to an error of the system which file is written already."""
    try:
        yield
    except OSError as error:
        error.add_note(note)
        raise
