"""The demonstration: kernels on four views of generated patients, alone and added.

One of the views is noise; a fifth of the patients lack another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kernelmosaic._typing import Array, Estimator, Mask
from kernelmosaic.estimators import MKLClassifier
from kernelmosaic.kernels import Gaussian
from kernelmosaic.reports import Page
from kernelmosaic.stacking import stack_views

Advance = Callable[[str, int], None]


def _ignore_step(step: str, done: int) -> None:
    """Do nothing, in place of showing a step."""


@dataclass(frozen=True)
class Row:
    """A fitted model in the table of the demonstration.

    Parameters
    ----------
    name : str
        The view, or how the views are weighted.
    model : estimator
    accuracy : float
        The share of right predictions on test patients.
    n_test : int
        The test patients that have a view of the model.
    seconds : float
        Of the fit.
    """

    name: str
    model: Estimator
    accuracy: float
    n_test: int
    seconds: float


@dataclass(frozen=True)
class DemoResult:
    """The texts, the table and the picture of the demonstration.

    Parameters
    ----------
    title : str
        Of the printed table, and of the page.
    summary : str
        The paragraph below the printed table.
    lead : str
        The first paragraph of the page.
    caption : str
        The text above the table of the page.
    cells : sequence of tuples of str
        The table, a line per model, under the heads `COLUMNS`.
    rows : list of Row
    draw : callable
        Returns the picture as a matplotlib Figure; called if matplotlib is installed.
    """

    title: str
    summary: str
    lead: str
    caption: str
    cells: Sequence[tuple[str, ...]]
    rows: list[Row]
    draw: Callable[[], Any]


#: The heads of the table.
COLUMNS = ("kernels", "weight", "patients", "accuracy %", "gap", "seconds")

#: By view, its number of columns, and the coefficient of its cause in the decision who is ill.
CAUSES = {"rna": (60, 1.0), "protein": (30, 1.0), "clinic": (6, 0.3)}

#: Columns of the view of noise, and the share of patients without the view of proteins.
_N_NOISE_COLUMNS = 3
_SHARE_WITHOUT_PROTEIN = 0.2

#: The training patients of the fits that load and compile what the measured fits use.
_MOST_PATIENTS_TO_WARM_UP = 300

#: The patients of each class that the picture of the learned kernel has.
_PATIENTS_OF_CLASS = 60

#: The quantiles of the kernel's values that are drawn in white and in black. Chosen by hand: the
#: diagonal, which is darker than the rest, is beyond the upper one.
_QUANTILES_OF_SHADES = (0.01, 0.985)


def make_patients(n_samples: int, seed: int) -> tuple[Array, dict[str, Any], NDArray[np.int64]]:
    """Draw patients who are ill if the sum of three causes is positive.

    Three views show one cause each, with noise; the fourth view is noise; a fifth of the patients
    lack the view of proteins.

    Returns
    -------
    X : ndarray of shape (n_samples, 99)
        NaN where a patient lacks the view.
    columns : dict of str to columns of X
        By the names of the views.
    y : ndarray of shape (n_samples,)
        1 for ill patients, 0 for healthy ones.
    """
    rng = np.random.RandomState(seed)
    causes = rng.standard_normal((n_samples, len(CAUSES)))
    views = {}
    for (name, (n_columns, _)), cause in zip(CAUSES.items(), causes.T, strict=True):
        signal = np.outer(cause, rng.normal(0, 0.5, n_columns))
        views[name] = signal + rng.standard_normal((n_samples, n_columns))
    views["noise"] = rng.standard_normal((n_samples, _N_NOISE_COLUMNS))
    views["protein"][rng.uniform(size=n_samples) < _SHARE_WITHOUT_PROTEIN] = np.nan
    X, columns = stack_views(**views)
    coefficients = [coefficient for _, coefficient in CAUSES.values()]
    y = (causes @ coefficients > 0).astype(np.int64)
    return X, columns, y


def patients(
    n_train: int = 120, seed: int = 0, n_test: int = 2000, advance: Advance = _ignore_step
) -> DemoResult:
    """Return a comparison of each view alone, their equal and their learned sum.

    Parameters
    ----------
    n_train, n_test : int
        The number of training and of test patients.
    seed : int
        Of the data.
    advance : callable
        Called with the name of each step as it begins and the number of steps done, of one per
        model and one before.

    Returns
    -------
    DemoResult
    """
    X, columns, y = make_patients(n_train + n_test, seed)
    test = np.arange(n_train, n_train + n_test)
    kernels = {name: (name, Gaussian(), view_columns) for name, view_columns in columns.items()}
    models = {f"{name} alone": MKLClassifier([kernel]) for name, kernel in kernels.items()}
    models["equal weights"] = MKLClassifier(list(kernels.values()), weights="uniform")
    models["learned weights"] = MKLClassifier(list(kernels.values()))

    def has_view_of(model: Estimator) -> Mask:
        """Return which patients have a view that the model reads."""
        masks = [~np.isnan(X[:, columns]).any(axis=1) for _, _, columns in model.kernels]
        return np.asarray(np.any(masks, axis=0))

    def train(model: Estimator, n_patients: int) -> Estimator:
        """Return the model fitted to those of the first patients that have one of its views."""
        rows = np.flatnonzero(has_view_of(model)[:n_patients])
        return clone(model).fit(X[rows], y[rows])

    # 1. Load and compile: this does not count as seconds of a fit.
    advance("preparing", 0)
    for model in models.values():
        train(model, min(n_train, _MOST_PATIENTS_TO_WARM_UP))

    # 2. Fit and predict.
    rows = []
    is_right = {}
    for done, (name, model) in enumerate(models.items(), start=1):
        advance(name, done)
        start = perf_counter()
        fitted = train(model, n_train)
        seconds = perf_counter() - start
        test_rows = test[has_view_of(fitted)[test]]
        is_right[name] = fitted.predict(X[test_rows]) == y[test_rows]
        accuracy = float(is_right[name].mean())
        rows.append(Row(name, fitted, accuracy, len(test_rows), seconds))

    # 3. The table, with the learned weight of each view beside the view alone.
    learned_weights = dict(zip(models, rows[-1].model.weights_, strict=False))
    cells = []
    for row in rows:
        weight = ""
        if row.name in learned_weights:
            weight = f"{learned_weights[row.name]:.2f}"
        accuracy_text = f"{100 * row.accuracy:.1f}"
        gap = f"{row.model.duality_gap_:.0e}"
        n_patients = str(row.n_test)
        cells.append((row.name, weight, n_patients, accuracy_text, gap, f"{row.seconds:.3f}"))

    # 4. The texts.
    gain = 100.0 * (is_right["learned weights"].astype(float) - is_right["equal weights"])
    standard_error = gain.std() / n_test**0.5
    lacks_protein = ~has_view_of(models["protein alone"])[test]
    right_without_protein = 100 * is_right["learned weights"][lacks_protein].mean()
    summary = (
        f"The accuracy of learned weights differs from that of equal ones by {gain.mean():+.1f}"
        f" points (standard error {standard_error:.1f}); the learned weight of the noise"
        f" is {learned_weights['noise alone']:.2f}. The {lacks_protein.sum()} patients without"
        f" protein are predicted by their other views, {right_without_protein:.0f} %"
        " of them correctly."
    )
    about = (
        "Patients are generated: the sum of three causes decides which are ill. RNA, protein and"
        " clinic show one cause each, the fourth view is noise, and a fifth of the patients lack"
        " protein."
    )
    return DemoResult(
        title=f"Four views of {n_train} patients, {n_test} others to predict, seed {seed}",
        summary=f"{about} {summary}",
        lead=(
            f"{about} Support vector machines with a Gaussian kernel per view learn from {n_train}"
            f" of them. {summary}"
        ),
        caption=(
            f"The learned weight of the view, how many of {n_test} new patients have it, the"
            " accuracy on these, the certified relative duality gap, and seconds to fit. Seed"
            f" {seed}."
        ),
        cells=cells,
        rows=rows,
        draw=lambda: draw_patients(rows, X[test], columns, y[test]),
    )


#: The colours of the picture: a view each, and those of texts and of models of all views.
_VIEW_COLOURS = ("#2f6d9c", "#4f9d69", "#d1893c", "#9a9a9a")
_INK = "#333333"
_GREY = "#9a9a9a"


def draw_patients(rows: list[Row], X: Array, columns: dict[str, Any], y: NDArray[np.int64]) -> Any:
    """Return a figure of the views, their weights, the learned kernel and the accuracies.

    Parameters
    ----------
    rows : list of Row
        Of the views in the order of `columns`, then equal and learned weights.
    X : ndarray of shape (n, 99)
        Test patients.
    columns : dict of str to columns of X
    y : ndarray of shape (n,)

    Returns
    -------
    matplotlib Figure
    """
    from matplotlib.figure import Figure  # without pyplot: no window system, no global state

    learned = rows[-1].model
    colours = dict(zip(columns, _VIEW_COLOURS, strict=True))
    figure = Figure(figsize=(10, 3.9), dpi=150)
    kernel_axes = figure.add_axes((0.335, 0.09, 0.3, 0.77))
    _draw_kernel(kernel_axes, learned, X, y)
    _draw_views(figure, kernel_axes, X, columns, colours, learned.weights_)
    figure.text(
        0.122,
        0.042,
        "white: patients\nwithout the view",
        ha="center",
        va="center",
        fontsize=7,
        color=_INK,
    )
    figure.text(0.122, 0.89, "views", ha="center", fontsize=9, color=_INK)
    figure.text(0.245, 0.89, "weights", ha="center", fontsize=9, color=_INK)
    accuracy_axes = figure.add_axes((0.775, 0.09, 0.21, 0.77))
    _draw_accuracies(accuracy_axes, rows, [*colours.values(), _GREY, _INK])
    return figure


def _draw_kernel(axes: Any, learned: Estimator, X: Array, y: NDArray[np.int64]) -> None:
    """Draw the learned kernel between patients, sorted by class and decision.

    Each class must have `_PATIENTS_OF_CLASS` patients; the first ones are drawn.
    """
    patients_of_classes = []
    for label in (0, 1):  # healthy, ill
        patients = np.flatnonzero(y == label)[:_PATIENTS_OF_CLASS]
        order = np.argsort(learned.decision_function(X[patients]))
        patients_of_classes.append(patients[order])
    K = learned.kernel_matrix(X[np.concatenate(patients_of_classes)])
    low, high = np.quantile(K, _QUANTILES_OF_SHADES)
    axes.imshow(K, cmap="Greys", vmin=low, vmax=high)
    # Cell i of a picture reaches from i - 0.5 to i + 0.5.
    border = _PATIENTS_OF_CLASS - 0.5
    middles = [0.5 * _PATIENTS_OF_CLASS - 0.5, 1.5 * _PATIENTS_OF_CLASS - 0.5]
    axes.set_xticks(middles, ["healthy", "ill"], fontsize=9)
    axes.tick_params(length=0)
    axes.set_yticks([])
    axes.axhline(border, color="white", linewidth=1.5)
    axes.axvline(border, color="white", linewidth=1.5)
    axes.set_title("the learned kernel: how alike are two patients?", fontsize=9, color=_INK)


def _draw_views(
    figure: Any,
    kernel_axes: Any,
    X: Array,
    columns: dict[str, Any],
    colours: dict[str, str],
    weights: Array,
) -> None:
    """Draw cells of each view, and lines to the kernel as thick as the weights."""
    from matplotlib.patches import ConnectionPatch

    grid = figure.add_gridspec(
        4, 2, width_ratios=[1, 4.6], left=0.08, right=0.6, bottom=0.09, top=0.86, hspace=0.16
    )
    for i, (name, weight) in enumerate(zip(columns, weights, strict=True)):
        axes = figure.add_subplot(grid[i, 0])
        axes.imshow(X[:12, columns[name]][:, :30], cmap="coolwarm", aspect="auto", vmin=-3, vmax=3)
        axes.set(xticks=[], yticks=[])
        axes.set_ylabel(
            name,
            rotation=0,
            ha="right",
            va="center",
            fontsize=11,
            color=colours[name],
            fontweight="bold",
        )
        line = ConnectionPatch(
            (1.06, 0.5),
            (-0.03, 0.875 - 0.25 * i),
            "axes fraction",
            "axes fraction",
            axesA=axes,
            axesB=kernel_axes,
            color=colours[name],
        )
        line.set(linewidth=0.5 + 14 * weight, capstyle="butt")
        figure.add_artist(line)
        axes.text(
            1.5,
            0.72,
            f"{weight:.2f}",
            transform=axes.transAxes,
            fontsize=11,
            color=_INK,
            ha="center",
        )


def _draw_accuracies(axes: Any, rows: list[Row], colours: list[str]) -> None:
    """Draw the accuracy of each model, with intervals of two standard errors."""
    for i, (row, colour) in enumerate(zip(rows, colours, strict=True)):
        value = 100 * row.accuracy
        error = 200 * (row.accuracy * (1 - row.accuracy) / row.n_test) ** 0.5
        axes.errorbar(value, i, xerr=error, fmt="o", color=colour, markersize=5, elinewidth=2)
        axes.text(value + error + 1.5, i, f"{value:.1f}", va="center", fontsize=9, color=_INK)
    axes.axvline(50, color=_INK, linestyle="--", linewidth=1)
    axes.set(xlim=(46, 100), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xticks([50, 60, 70, 80, 90], ["50\nchance", "60", "70", "80", "90"])
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.tick_params(axis="y", length=0, labelsize=9)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_title("test accuracy, %, with 95 % intervals", fontsize=9, color=_INK, loc="right")
    axes.spines[["top", "right", "left"]].set_visible(False)


def write_report(result: DemoResult, path: Path) -> None:
    """Write the page of the demonstration; its picture needs matplotlib."""
    page = Page(result.title, result.lead)
    page.table(result.caption, COLUMNS, result.cells)
    page.heading("Picture")
    if find_spec("matplotlib") is None:
        page.paragraph(
            'Not drawn: matplotlib is missing. `pip install "kernelmosaic[plots]"` brings it.'
        )
    else:
        page.paragraph(
            "A row per patient in each view, white where the patient lacks it; lines as thick as"
            " the weights; the learned kernel between test patients; and the accuracies."
        )
        page.figure(result.draw(), "Four views, weights, kernel and accuracies")
    page.write(path)
