"""The demonstration: machines on one kernel, on several, and the Bayes rule, side by side on GAUSS4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.base import clone

from kernelmosaic._typing import Estimator
from kernelmosaic.datasets import BayesRule, make_gaussians
from kernelmosaic.estimators import DiscriminantMKLClassifier, LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.reports import Page, Picture
from kernelmosaic.reports import Table as ReportTable

_LINEAR, _QUADRATIC, _GAUSSIAN = ("linear", Linear()), ("quadratic", Polynomial(degree=2)), ("gaussian", Gaussian())
_ALL = [_LINEAR, _QUADRATIC, _GAUSSIAN]

#: The lines of the table. A new learner joins the demonstration by one line here.
ENTRIES: dict[str, Estimator] = {
    "SVM, linear": MKLClassifier([_LINEAR], weights="uniform"),
    "SVM, quadratic": MKLClassifier([_QUADRATIC], weights="uniform"),
    "SVM, Gaussian": MKLClassifier([_GAUSSIAN], weights="uniform"),
    "SVM, sum of the three": MKLClassifier(_ALL, weights="uniform"),
    "MKL (l1)": MKLClassifier(_ALL),
    "MKL (l2)": MKLClassifier(_ALL, norm=2),
    "localized (lin, quad)": LocalizedMKLClassifier([_LINEAR, _QUADRATIC]),
    "discriminant": DiscriminantMKLClassifier(_ALL),
}
COLUMNS = ("method", "accuracy %", "support vectors", "gap", "seconds")


@dataclass(frozen=True)
class Row:
    """What was measured of one entry; the Bayes rule, which is not trained, has no seconds."""

    name: str
    model: Estimator
    accuracy: float
    seconds: float | None = None

    def cells(self) -> tuple[str, ...]:
        """Return the row as the texts of `COLUMNS`."""
        accuracy, model = f"{100 * self.accuracy:.2f}", self.model
        if self.seconds is None:
            return self.name, accuracy, "", "", ""
        support = f"{len(model.support_)} ({100 * model.support_fraction_:.1f} %)"
        return self.name, accuracy, support, f"{model.duality_gap_:.1e}", f"{self.seconds:.3f}"


@dataclass(frozen=True)
class DemoResult:
    """The rows, that of the Bayes rule last, and what they were measured on."""

    rows: tuple[Row, ...]
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    n_test: int
    seed: int
    best_accuracy: float


def run_demo(
    n_train: int = 600,
    seed: int = 0,
    n_test: int = 20_000,
    advance: Callable[[str, int], None] = lambda step, done: None,
) -> DemoResult:
    """Train every entry on one sample and score it, and the Bayes rule, on another.

    Parameters
    ----------
    n_train, n_test : int
        Sizes of the two samples.
    seed : int
        Seed of both.
    advance : callable
        Called with the name of each step as it begins and the number of those done, of one per entry and one before.

    Returns
    -------
    DemoResult
    """
    rng = np.random.RandomState(seed)
    X, y = make_gaussians(4, n_train, random_state=rng)
    X_test, y_test = make_gaussians(4, n_test, random_state=rng)
    advance("preparing", 0)
    for entry in ENTRIES.values():  # the loops are compiled on first use; that must not count as training
        clone(entry).fit(*make_gaussians(4, 40, random_state=0))
    rows = []
    for done, (name, entry) in enumerate(ENTRIES.items(), start=1):
        advance(name, done)
        start = perf_counter()
        model = clone(entry).fit(X, y)
        seconds = perf_counter() - start
        rows.append(Row(name, model, float(np.mean(model.predict(X_test) == y_test)), seconds))
    rule = BayesRule(4)
    rows.append(Row("Bayes rule", rule, float(np.mean(rule.predict(X_test) == y_test))))
    return DemoResult(tuple(rows), X, y, n_test, seed, rule.accuracy())


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
        page.paragraph(
            "Every point has the colour of the class that the machine predicts there; the solid line is the boundary, "
            "dashed lines are the margin, and support vectors of the training sample are ringed. The dotted line is "
            "the Bayes rule."
        )
        page.figures(_draw(row, result) for row in result.rows[:-1])
    page.write(path)


def _draw(row: Row, result: DemoResult) -> Picture:
    from matplotlib.figure import Figure  # without pyplot: no window system, no global state

    from kernelmosaic.plots import DecisionRegionDisplay

    axes = Figure(figsize=(4.4, 3.6), layout="constrained").subplots()
    drawn = DecisionRegionDisplay.from_estimator(row.model, result.X, result.y, grid_resolution=120, ax=axes)
    plane = np.stack(np.meshgrid(drawn.x_grid, drawn.y_grid), axis=-1)
    best = result.rows[-1].model.decision_function(plane.reshape(-1, 2)).reshape(plane.shape[:2])
    axes.contour(drawn.x_grid, drawn.y_grid, best, levels=[0.0], colors="black", linestyles="dotted")
    alt = f"Training sample in the plane with the decision boundary of {row.name} and that of the Bayes rule"
    return Picture(axes.figure, alt, f"{row.name}: {100 * row.accuracy:.2f} %")
