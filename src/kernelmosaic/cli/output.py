"""What a model file says, and what the terminal shows: tables on stdout; notes and a progress bar on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelmosaic._typing import Estimator, MatrixLike, Settings


@dataclass(frozen=True)
class KernelShare:
    """One kernel of a fitted model.

    Parameters
    ----------
    name : str
    weight : float
        The mean over the classes where each has its own.
    share : float
        Of all weights.
    by_class : list of float
        The classes' own weights, if they have.
    """

    name: str
    weight: float
    share: float
    by_class: list[float]


def load_model(path: Path) -> Estimator:
    """Return the estimator in a model file, or raise saying why it is none."""
    import warnings

    from sklearn.exceptions import InconsistentVersionWarning

    from kernelmosaic.persistence import load

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)  # `inspect` names the versions
        return load(path)


def core(estimator: Estimator) -> Estimator:
    """Return the kernel learner inside a pipeline or search, or raise if there is none that is fitted."""
    inner: Any = getattr(estimator, "best_estimator_", estimator)
    inner = inner.steps[-1][1] if hasattr(inner, "steps") else inner
    if not hasattr(inner, "kernel_names_"):
        raise ValueError(f"the file holds {type(estimator).__name__}, which is no fitted model of kernelmosaic.")
    return inner


def training_of(estimator: Estimator) -> Settings:
    """Return what `kernelmosaic fit` noted; of models made elsewhere the names of the columns, if they have any."""
    names = [str(name) for name in getattr(estimator, "feature_names_in_", [])]
    facts = ("task", "method", "target", "rows", "plan", "views", "lacking", "files", "score", "test")
    nothing: Settings = dict.fromkeys((*facts, "gates", "seconds", "costs"))
    nothing |= {"targets": [], "price": {}, "columns": names, "warnings": []}
    return nothing | getattr(estimator, "training_", {})


def kernel_shares(model: Estimator) -> list[KernelShare]:
    """Return the kernels with their weights, in the model's order."""
    weights = np.atleast_2d(np.asarray(model.weights_, dtype=np.float64))
    means = weights.mean(axis=0)
    total = float(means.sum()) or 1.0
    several = np.ndim(model.weights_) == 2
    return [
        KernelShare(name, float(mean), float(mean / total), [float(w) for w in own] if several else [])
        for name, mean, own in zip(model.kernel_names_, means, weights.T, strict=True)
    ]


def share_rows(shares: Sequence[KernelShare], gates: Any) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table of kernels: name, weight, share and, of a localized model, the gates.

    Weights of another scale than one keep their digits.
    """
    head = ["kernel", "mean gate" if gates else "weight", "share %", *(["gate, 10 % to 90 %"] if gates else [])]
    form = "#.3g" if max((share.weight for share in shares), default=1.0) < 0.1 else ".4f"
    rows = []
    for share in shares:
        low, _, high = gates[share.name] if gates else (0.0, 0.0, 0.0)
        extra = [f"{low:.3f} to {high:.3f}"] if gates else []
        rows.append([share.name, f"{share.weight:{form}}", f"{100 * share.share:.1f}", *extra])
    return head, rows


def describe(estimator: Estimator, path: Path) -> Settings:
    """Return everything `kernelmosaic inspect` says, as plain numbers, texts, lists and dicts."""
    from kernelmosaic.persistence import info

    model, training, header = core(estimator), training_of(estimator), info(path)
    kept = ("task", "method", "target", "price", "rows", "score", "test", "gates", "seconds", "columns", "views")
    return {
        "file": str(path),
        "estimator": type(model).__name__,
        "kernelmosaic_version": header.kernelmosaic_version,
        "sklearn_version": header.sklearn_version,
        "created": header.created,
        **{name: training[name] for name in (*kept, "lacking", "files", "warnings")},
        "classes": class_names(model, training),
        "kernels": [asdict(share) for share in kernel_shares(model)],
        "support_vectors": len(model.support_),
        "support_fraction": float(model.support_fraction_),
        "cost": float(model.cost(training["costs"] or [1.0] * len(model.kernel_names_))),
        "objective": float(model.criterion_ if is_ridge(model) else model.objective_),
        "duality_gap": None if is_ridge(model) else float(model.duality_gap_),
        "stationarity": float(model.stationarity_) if is_ridge(model) else None,
        "iterations": int(model.n_iter_),
    }


def is_ridge(model: Estimator) -> bool:
    """Whether a model has no support vectors and no certified gap, but a stationary point of a criterion."""
    return hasattr(model, "stationarity_")


def class_names(model: Estimator, training: Settings) -> list[Any]:
    """Return the classes, or the names of the labels of which a row may have several."""
    if training["task"] == "multi-label":
        return list(training["targets"])
    return [plain(label) for label in getattr(model, "classes_", [])]


def gate_summary(model: Estimator, X: MatrixLike) -> dict[str, list[float]] | None:
    """Return, for a localized model, where the middle eighty per cent of each kernel's gates lie; None for others."""
    if not hasattr(model, "gate"):
        return None
    gates: NDArray[np.float64] = model.gate(X)
    gates = gates if gates.ndim == 2 else np.moveaxis(gates, 2, 1).reshape(-1, gates.shape[1])
    low, middle, high = np.quantile(gates, (0.1, 0.5, 0.9), axis=0)
    return {name: [float(low[m]), float(middle[m]), float(high[m])] for m, name in enumerate(model.kernel_names_)}


def plain(value: object) -> Any:
    """Return NumPy's scalars as Python's own."""
    return value.item() if isinstance(value, np.generic) else value


def lines(found: Settings) -> list[tuple[str, str]]:
    """Return name and value of what `kernelmosaic inspect` prints; see `describe`."""
    lines = [
        ("estimator", found["estimator"]),
        ("written by", f"kernelmosaic {found['kernelmosaic_version']}, scikit-learn {found['sklearn_version']}"),
        ("written on", found["created"]),
    ]
    if found["task"]:
        target = f", target {found['target']!r}" if found["target"] else ""
        lines.append(("task", f"{found['task']} by {found['method']}{target}"))
    if found["classes"]:
        lines.append(("classes", f"{len(found['classes'])}: {some(found['classes'], 10)}"))
    if found["price"]:
        lines.append((found["price"]["name"], f"{found['price']['value']:g}"))
    if found["rows"] is not None:
        lines.append(("learned from", f"{found['rows']} rows"))
    if found["score"]:
        score = found["score"]
        text = f"{score['mean']:.4f} ± {score['spread']:.4f}; looking at no column: {score['baseline']:.4f}"
        lines.append((f"{score['how']} {score['name']}", text))
    if found["test"]:
        lines.append((f"{found['test']['name']} on held-out rows", f"{found['test']['value']:.4f}"))
    columns = found["columns"]
    if found["duality_gap"] is None:
        lines.append(
            ("largest slope per sample", f"{found['stationarity']:.1e} after {found['iterations']} evaluations")
        )
    else:
        lines += [
            (
                "support vectors",
                f"{found['support_vectors']} ({100 * found['support_fraction']:.1f} % of the distinct rows)",
            ),
            ("cost of a prediction", f"{found['cost']:.1f} (support vectors × share of kernels in use)"),
            ("certified gap", f"{found['duality_gap']:.1e} after {found['iterations']} iterations"),
        ]
    lines += [
        ("columns", f"{len(columns)}: {some(columns, 8)}" if columns else "none by name"),
    ]
    files, lacking = found["files"] or {}, found["lacking"] or {}
    if files:
        lines.append(("table", files["table"] + (f", joined by column {files['on']!r}" if files["on"] else "")))
    for name, view in (found["views"] or {}).items():
        source = f" from {', '.join(view['files'])}" if view["files"] else ""
        lack = f"; {lacking[name]} rows lacked it" if lacking.get(name) else ""
        lines.append((f"  view {name}{source}", f"{some(view['columns'], 4)}: {' + '.join(view['kernels'])}{lack}"))
    lines += [(f"  kernel {name}", path) for name, path in files.get("kernels", {}).items()]
    return lines + [("warning", text) for text in found["warnings"]]


def some(names: list[Any], n: int) -> str:
    """Return the first n names as a text, and how many there are if there are more."""
    shown = ", ".join(map(str, names[:n]))
    return shown if len(names) <= n else f"{shown} … ({len(names)} in all)"


def say(*, note: str) -> None:
    """Print one line on stderr."""
    print("kernelmosaic:", " ".join(note.split()), file=sys.stderr)


@contextmanager
def progress(
    total: int, clock: Callable[[], float] = perf_counter, console: Console | None = None
) -> Iterator[Callable[[str, int], None]]:
    """Show how many of all steps are done, and the time left, while the block runs.

    The value is called with what is done next and how many steps are done. Without a terminal, progress is
    printed in lines, at most one in ten seconds by the clock.
    """
    console = console or Console(stderr=True)
    start = last = clock()
    if not console.is_terminal:

        def show_progress(what: str, done: int) -> None:
            nonlocal last
            now = clock()
            if now - last >= 10.0:
                last = now
                left = f", about {_duration((now - start) * (total - done) / done)} left" if done else ""
                say(note=f"{what}: {done} of {total} steps after {_duration(now - start)}{left}")

        yield show_progress
        return
    from rich import progress as rich

    columns = rich.TextColumn("{task.description}"), rich.BarColumn(), rich.MofNCompleteColumn()
    times = rich.TimeElapsedColumn(), rich.TextColumn("left:"), rich.TimeRemainingColumn()
    with rich.Progress(*columns, *times, console=console, transient=True, speed_estimate_period=3600) as bar:
        task = bar.add_task("preparing", total=total)
        yield lambda what, done: bar.update(task, description=what, completed=done)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def print_facts(title: str, facts: Sequence[tuple[str, str]]) -> None:
    """Print what was found, a line each."""
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(name), Text(value))  # brackets are not taken for markup
    Console().print(table, highlight=False)


def print_shares(shares: Sequence[KernelShare], gates: Any = None) -> None:
    """Print the kernels that count, the heaviest first; weights below 5e-5 print as zero."""
    counted = sorted((share for share in shares if share.share >= 5e-5), key=lambda share: -share.share)
    head, rows = share_rows(counted, gates)
    table = Table(title="Kernels", title_justify="left")
    for i, name in enumerate(head):
        table.add_column(name, overflow="fold", justify="right" if i else "left")
    for name, *figures in rows:
        table.add_row(Text(name), *figures)
    console = Console()
    console.print(table, highlight=False)
    left = len(shares) - len(counted)
    if left:
        console.print(f"{left} of {len(shares)} kernels {'has' if left == 1 else 'have'} weight 0.", highlight=False)


@contextmanager
def noting(note: str) -> Iterator[None]:
    """Add to an error of the system which file is written already."""
    try:
        yield
    except OSError as error:
        error.add_note(note)
        raise
