"""The demonstration: machines on one kernel, on several, and the Bayes rule, side by side on GAUSS4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernelmosaic._typing import Estimator, MatrixLike, TargetLike
from kernelmosaic.datasets import BayesRule, make_gaussians
from kernelmosaic.estimators import DiscriminantMKLClassifier, LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.reports import Page, Picture
from kernelmosaic.reports import Table as ReportTable

N_COMPONENTS = 4
N_TEST = 20_000
_PREPARING, _BAYES = "preparing", "Bayes rule"

_LINEAR, _QUADRATIC, _GAUSSIAN = ("linear", Linear()), ("quadratic", Polynomial(degree=2)), ("gaussian", Gaussian())
_ALL = [_LINEAR, _QUADRATIC, _GAUSSIAN]


@dataclass(frozen=True)
class DemoRow:
    """A line of the table: what it is called and how its estimator is made."""

    name: str
    make: Callable[[], Any]


#: A new learner joins the demonstration by one line here.
ENTRIES = (
    DemoRow("SVM, linear", lambda: MKLClassifier([_LINEAR], weights="uniform")),
    DemoRow("SVM, quadratic", lambda: MKLClassifier([_QUADRATIC], weights="uniform")),
    DemoRow("SVM, Gaussian", lambda: MKLClassifier([_GAUSSIAN], weights="uniform")),
    DemoRow("SVM, sum of the three", lambda: MKLClassifier(_ALL, weights="uniform")),
    DemoRow("MKL (l1)", lambda: MKLClassifier(_ALL)),
    DemoRow("MKL (l2)", lambda: MKLClassifier(_ALL, norm=2)),
    DemoRow("localized (lin, quad)", lambda: LocalizedMKLClassifier([_LINEAR, _QUADRATIC])),
    DemoRow("discriminant", lambda: DiscriminantMKLClassifier(_ALL)),
)


@dataclass(frozen=True)
class Row:
    """What was measured of one entry; the Bayes rule, which is not trained, has an accuracy only."""

    name: str
    model: Estimator
    accuracy: float
    n_support: int | None = None
    support_fraction: float | None = None
    gap: float | None = None
    seconds: float | None = None

    def cells(self) -> tuple[str, ...]:
        """Return the row as the texts of `COLUMNS`."""
        support = "" if self.n_support is None else f"{self.n_support} ({100 * (self.support_fraction or 0):.1f} %)"
        gap = "" if self.gap is None else f"{self.gap:.1e}"
        seconds = "" if self.seconds is None else f"{self.seconds:.3f}"
        return self.name, f"{100 * self.accuracy:.2f}", support, gap, seconds


COLUMNS = ("method", "accuracy %", "support vectors", "gap", "seconds")


@dataclass(frozen=True)
class DemoResult:
    """The rows, and what they were measured on."""

    rows: tuple[Row, ...]
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    n_test: int
    seed: int
    best_accuracy: float


def run_demo(
    n_train: int = 600,
    seed: int = 0,
    n_test: int = N_TEST,
    entries: tuple[DemoRow, ...] = ENTRIES,
    starting: Callable[[str], None] = lambda step: None,
) -> DemoResult:
    """Train every entry on one sample and score it, and the Bayes rule, on another.

    Parameters
    ----------
    n_train, n_test : int
        Sizes of the two samples.
    seed : int
        Seed of both.
    entries : tuple of DemoRow
    starting : callable
        Called with the name of each step as it begins; see `steps`.

    Returns
    -------
    DemoResult
    """
    rng = np.random.RandomState(seed)
    X, y = make_gaussians(N_COMPONENTS, n_train, random_state=rng)
    X_test, y_test = make_gaussians(N_COMPONENTS, n_test, random_state=rng)
    starting(_PREPARING)
    for entry in entries:  # the loops are compiled on first use; that must not count as training
        entry.make().fit(*make_gaussians(N_COMPONENTS, 40, random_state=0))
    rows = []
    for entry in entries:
        starting(entry.name)
        rows.append(_measure(entry, X, y, X_test, y_test))
    starting(_BAYES)
    rule = BayesRule(N_COMPONENTS)
    rows.append(Row(_BAYES, rule, _accuracy(rule, X_test, y_test)))
    return DemoResult(tuple(rows), X, y, n_test, seed, rule.accuracy())


def steps(entries: tuple[DemoRow, ...] = ENTRIES) -> list[str]:
    """Return the names of the steps of `run_demo`, in order."""
    return [_PREPARING, *(entry.name for entry in entries), _BAYES]


def _measure(entry: DemoRow, X: MatrixLike, y: TargetLike, X_test: Any, y_test: Any) -> Row:
    start = perf_counter()
    model = entry.make().fit(X, y)
    seconds = perf_counter() - start
    return Row(
        entry.name,
        model,
        _accuracy(model, X_test, y_test),
        n_support=len(model.support_),
        support_fraction=float(model.support_fraction_),
        gap=float(model.duality_gap_),
        seconds=seconds,
    )


def _accuracy(model: Estimator, X: MatrixLike, y: TargetLike) -> float:
    return float(np.mean(model.predict(X) == y))


def run_with_progress(n_train: int, seed: int) -> DemoResult:
    """Run the demonstration behind a progress bar on stderr."""
    names = steps()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(names[0], total=len(names))

        def starting(name: str) -> None:
            progress.update(task, description=name, completed=names.index(name))

        return run_demo(n_train, seed, starting=starting)


def print_result(result: DemoResult) -> None:
    """Print the table and the one sentence needed to read it."""
    console = Console()
    table = Table(title=f"GAUSS4: {len(result.y)} training and {result.n_test} test samples, seed {result.seed}")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in result.rows:
        table.add_row(*row.cells(), end_section=row is result.rows[-2])
    console.print(table)
    console.print(summary(result), highlight=False)


def summary(result: DemoResult) -> str:
    """Say what the best possible accuracy is, so that the others can be judged."""
    return (
        f"No rule can be right more than {100 * result.best_accuracy:.2f} % of the time on this problem; "
        "the last row is the rule that reaches it, on this test sample."
    )


def write_report(result: DemoResult, path: Path) -> None:
    """Write the page; the pictures are there when matplotlib is."""
    page = Page(
        "One kernel, several kernels, and the best possible rule",
        "GAUSS4 is a two-class problem in the plane: each class is a mixture of two Gaussians. Support vector machines "
        f"were trained on {len(result.y)} samples, on one kernel each, on the unweighted sum of all and on sums whose "
        "weights are learned with the machine (l1: sparse weights, l2: all kernels kept), and scored on "
        f"{result.n_test} fresh ones. {summary(result)}",
    )
    caption = (
        "Accuracy on the test sample, support vectors (and their share of the training sample), certified relative "
        f"duality gap, and seconds to train. Seed {result.seed}."
    )
    page.table(ReportTable(caption, COLUMNS, [row.cells() for row in result.rows]))
    page.heading("Where each machine draws the line")
    if find_spec("matplotlib") is None:
        page.paragraph('Not drawn: matplotlib is missing. `pip install "kernelmosaic[plots]"` brings it.')
    else:
        _add_pictures(page, result)
    page.write(path)


def _add_pictures(page: Page, result: DemoResult) -> None:
    *machines, rule = result.rows
    page.paragraph(
        "Dots are class +1, crosses class −1 of the training sample; the shaded side is where the machine answers +1. "
        "The dashed line is the Bayes rule."
    )
    page.figures(
        Picture(
            _draw(row.model, rule.model, result),
            f"Training sample in the plane with the decision boundary of {row.name} and that of the Bayes rule",
            f"{row.name}: {100 * row.accuracy:.2f} %",
        )
        for row in machines
    )


def _draw(model: Estimator, rule: Any, result: DemoResult) -> Any:
    from matplotlib.figure import Figure  # without pyplot: no window system, no global state

    low, high = result.X.min(axis=0) - 0.5, result.X.max(axis=0) + 0.5
    first, second = (np.linspace(a, b, 120) for a, b in zip(low, high, strict=True))
    grid = np.stack(np.meshgrid(first, second), axis=-1)
    values, best = (m.decision_function(grid.reshape(-1, 2)).reshape(grid.shape[:2]) for m in (model, rule))
    figure = Figure(figsize=(4.4, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.contourf(first, second, values > 0, levels=[0.5, 1.5], colors=["#cfe3f3"])
    # Blue and vermilion stay apart for the colour-blind, and the markers differ as well.
    for label, marker, colour in ((1, "o", "#0072B2"), (-1, "x", "#D55E00")):
        X = result.X[result.y == label]
        axes.scatter(X[:, 0], X[:, 1], s=10, linewidths=0.8, marker=marker, color=colour)
    axes.contour(first, second, values, levels=[0.0], colors="black", linewidths=1.6)
    axes.contour(first, second, best, levels=[0.0], colors="black", linewidths=1.2, linestyles="dashed")
    return figure
