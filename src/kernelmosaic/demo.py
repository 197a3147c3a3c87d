"""The demonstration: four views of generated patients, one of them noise, alone and together."""

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


def _quiet(step: str, done: int) -> None:
    """Report no step."""


@dataclass(frozen=True)
class Row:
    """A fitted entry, its accuracy, on how many test samples, and the seconds of its fit."""

    name: str
    model: Estimator
    accuracy: float
    n_test: int
    seconds: float


@dataclass(frozen=True)
class DemoResult:
    """What the demonstration prints and writes.

    Parameters
    ----------
    title, summary, lead, caption : str
        Above and below the printed table; at the head of the page, and above the table there.
    cells : sequence of tuples of str
        The table under `COLUMNS`, a line per row.
    rows : list of Row
    draw : callable
        Returns the picture as a matplotlib Figure; called where matplotlib is installed.
    """

    title: str
    summary: str
    lead: str
    caption: str
    cells: Sequence[tuple[str, ...]]
    rows: list[Row]
    draw: Callable[[], Any]


COLUMNS = ("kernels", "weight", "patients", "accuracy %", "gap", "seconds")
#: The columns of the views of a cause each, and how much that cause counts.
CAUSES = {"rna": (60, 1.0), "protein": (30, 1.0), "clinic": (6, 0.3)}


def make_patients(n_samples: int, seed: int) -> tuple[Array, dict[str, Any], NDArray[np.int64]]:
    """Draw patients: the sum of three causes decides which are ill, three views show one each, and
    a fifth lack one.

    Returns
    -------
    X : ndarray of shape (n_samples, 99)
        NaN where a patient lacks the view.
    columns : dict of str to columns of X
        By the names of the views.
    y : ndarray of shape (n_samples,)
    """
    rng = np.random.RandomState(seed)
    causes, views = rng.standard_normal((n_samples, len(CAUSES))), {}
    for (name, (n_columns, _)), cause in zip(CAUSES.items(), causes.T, strict=True):
        views[name] = np.outer(cause, rng.normal(0, 0.5, n_columns)) + rng.standard_normal(
            (n_samples, n_columns)
        )
    views["noise"] = rng.standard_normal((n_samples, 3))
    views["protein"][rng.uniform(size=n_samples) < 0.2] = np.nan
    X, columns = stack_views(**views)
    return X, columns, (causes @ [share for _, share in CAUSES.values()] > 0).astype(np.int64)


def patients(
    n_train: int = 120, seed: int = 0, n_test: int = 2000, advance: Advance = _quiet
) -> DemoResult:
    """Compare every view alone, their equal sum and their learned one on the same patients.

    Parameters
    ----------
    n_train, n_test : int
        Patients to learn from, and others to predict.
    seed : int
        Of the data.
    advance : callable
        Called with the name of each step as it begins and the number of those done, of one per
        entry and one before.

    Returns
    -------
    DemoResult
    """
    X, columns, y = make_patients(n_train + n_test, seed)
    kernels = {name: (name, Gaussian(), own) for name, own in columns.items()}
    entries = {f"{name} alone": MKLClassifier([kernel]) for name, kernel in kernels.items()}
    entries["equal weights"] = MKLClassifier(list(kernels.values()), weights="uniform")
    entries["learned weights"] = MKLClassifier(list(kernels.values()))

    def known(model: Estimator) -> Mask:
        """Whether a patient has a view that the model reads."""
        return np.asarray(
            np.any([~np.isnan(X[:, own]).any(axis=1) for _, _, own in model.kernels], axis=0)
        )

    def train(entry: Estimator, size: int) -> Estimator:
        rows = np.flatnonzero(known(entry)[:size])
        return clone(entry).fit(X[rows], y[rows])

    advance("preparing", 0)
    for entry in entries.values():
        train(
            entry, min(n_train, 300)
        )  # what is imported or compiled does not count as seconds of a fit
    test, rows, right, cells = np.arange(n_train, n_train + n_test), [], {}, []
    for done, (name, entry) in enumerate(entries.items(), start=1):
        advance(name, done)
        start = perf_counter()
        model = train(entry, n_train)
        seconds = perf_counter() - start
        seen = test[known(model)[test]]
        right[name] = model.predict(X[seen]) == y[seen]
        rows.append(Row(name, model, float(right[name].mean()), len(seen), seconds))
    weights = dict(zip(entries, rows[-1].model.weights_, strict=False))
    for row in rows:
        weight = f"{weights[row.name]:.2f}" if row.name in weights else ""
        figures = (
            str(len(right[row.name])),
            f"{100 * row.accuracy:.1f}",
            f"{row.model.duality_gap_:.0e}",
        )
        cells.append((row.name, weight, *figures, f"{row.seconds:.3f}"))
    gain = 100.0 * (right["learned weights"].astype(float) - right["equal weights"])
    lacking = ~known(entries["protein alone"])[test]
    summary = (
        f"The accuracy of learned weights differs from that of equal ones by {gain.mean():+.1f}"
        f" points (standard error {gain.std() / n_test**0.5:.1f}); the learned weight of the noise"
        f" is {weights['noise alone']:.2f}. The {lacking.sum()} patients without protein are"
        f" predicted by their other views, {100 * right['learned weights'][lacking].mean():.0f} %"
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


def draw_patients(rows: list[Row], X: Array, columns: dict[str, Any], y: NDArray[np.int64]) -> Any:
    """Draw views, their weights, the learned kernel and the accuracies, from left to right.

    Returns
    -------
    matplotlib Figure
    """
    from matplotlib.figure import Figure  # without pyplot: no window system, no global state
    from matplotlib.patches import ConnectionPatch

    colours = dict(zip(columns, ("#2f6d9c", "#4f9d69", "#d1893c", "#9a9a9a"), strict=True))
    ink, learned = "#333333", rows[-1].model
    figure = Figure(figsize=(10, 3.9), dpi=150)
    grid = figure.add_gridspec(
        4, 2, width_ratios=[1, 4.6], left=0.08, right=0.6, bottom=0.09, top=0.86, hspace=0.16
    )
    whole = figure.add_axes((0.335, 0.09, 0.3, 0.77))
    by_class = [np.flatnonzero(y == label)[:60] for label in (0, 1)]
    shown = np.concatenate([of[np.argsort(learned.decision_function(X[of]))] for of in by_class])
    alike = learned.kernel_matrix(X[shown])
    low, high = np.quantile(alike, (0.01, 0.985))  # the diagonal is darker than the rest
    whole.imshow(alike, cmap="Greys", vmin=low, vmax=high)
    whole.set_xticks([29.5, 89.5], ["healthy", "ill"], fontsize=9)
    whole.tick_params(length=0)
    whole.set_yticks([])
    whole.axhline(59.5, color="white", linewidth=1.5)
    whole.axvline(59.5, color="white", linewidth=1.5)
    whole.set_title("the learned kernel: how alike are two patients?", fontsize=9, color=ink)
    for place, (name, weight) in enumerate(zip(columns, learned.weights_, strict=True)):
        axes = figure.add_subplot(grid[place, 0])
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
        ends = (1.06, 0.5), (-0.03, 0.875 - 0.25 * place)
        line = ConnectionPatch(
            *ends, "axes fraction", "axes fraction", axesA=axes, axesB=whole, color=colours[name]
        )
        line.set(linewidth=0.5 + 14 * weight, capstyle="butt")
        figure.add_artist(line)
        axes.text(
            1.5,
            0.72,
            f"{weight:.2f}",
            transform=axes.transAxes,
            fontsize=11,
            color=ink,
            ha="center",
        )
    figure.text(
        0.122,
        0.042,
        "white: patients\nwithout the view",
        ha="center",
        va="center",
        fontsize=7,
        color=ink,
    )
    figure.text(0.122, 0.89, "views", ha="center", fontsize=9, color=ink)
    figure.text(0.245, 0.89, "weights", ha="center", fontsize=9, color=ink)
    axes = figure.add_axes((0.775, 0.09, 0.21, 0.77))
    for place, (row, shade) in enumerate(
        zip(rows, [*colours.values(), "#9a9a9a", ink], strict=True)
    ):
        value, error = (
            100 * row.accuracy,
            200 * (row.accuracy * (1 - row.accuracy) / row.n_test) ** 0.5,
        )
        axes.errorbar(value, place, xerr=error, fmt="o", color=shade, markersize=5, elinewidth=2)
        axes.text(value + error + 1.5, place, f"{value:.1f}", va="center", fontsize=9, color=ink)
    axes.axvline(50, color=ink, linestyle="--", linewidth=1)
    axes.set(xlim=(46, 100), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xticks([50, 60, 70, 80, 90], ["50\nchance", "60", "70", "80", "90"])
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.tick_params(axis="y", length=0, labelsize=9)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_title("test accuracy, %, with 95 % intervals", fontsize=9, color=ink, loc="right")
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def write_report(result: DemoResult, path: Path) -> None:
    """Write the page; the picture is there when matplotlib is."""
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
