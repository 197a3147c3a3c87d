"""The demonstrations: views of generated patients, one of them noise, and kernels against the Bayes rule on GAUSS4."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kernelmosaic._typing import Array, Estimator
from kernelmosaic.datasets import BayesRule, make_gaussians
from kernelmosaic.estimators import DiscriminantMKLClassifier, LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.reports import Page, Picture, Table
from kernelmosaic.stacking import stack_views

Advance = Callable[[str, int], None]


def _quiet(step: str, done: int) -> None:
    """Report no step."""


@dataclass(frozen=True)
class Row:
    """A fitted entry, its accuracy, on how many test samples, and the seconds of its fit; None for a rule without."""

    name: str
    model: Estimator
    accuracy: float
    n_test: int
    seconds: float | None = None


@dataclass(frozen=True)
class DemoResult:
    """What a demonstration prints and writes.

    Parameters
    ----------
    title, summary, lead, caption : str
        Above and below the printed table; at the head of the page, and above the table there.
    columns : tuple of str
    cells : sequence of tuples of str
        The table, a line per row.
    rows : sequence of Row
    picture_text : str
        What the pictures show.
    pictures : callable
        Draws them; called where matplotlib is installed.
    """

    title: str
    summary: str
    lead: str
    caption: str
    columns: tuple[str, ...]
    cells: Sequence[tuple[str, ...]]
    rows: Sequence[Row]
    picture_text: str
    pictures: Callable[[], Iterable[Picture]]


def fitted(
    entries: Mapping[str, Estimator], train: Callable[[Estimator, int], Estimator], n_train: int, advance: Advance
) -> Iterator[tuple[str, Estimator, float]]:
    """Fit every entry and yield it with its seconds.

    A fit to few samples goes before: what is imported, or compiled for more samples than 256, does not count.
    """
    advance("preparing", 0)
    for entry in entries.values():
        train(clone(entry), min(n_train, 300))
    for done, (name, entry) in enumerate(entries.items(), start=1):
        advance(name, done)
        start = perf_counter()
        model = train(clone(entry), n_train)
        yield name, model, perf_counter() - start


# Patients -------------------------------------------------------------------------------------------------------------

#: The columns of the views of a cause each, and how much that cause counts.
CAUSES = {"rna": (60, 1.0), "protein": (30, 1.0), "clinic": (6, 0.3)}


def make_patients(n_samples: int, seed: int) -> tuple[Array, dict[str, Any], NDArray[np.int64]]:
    """Draw patients: the sum of three causes decides which are ill, three views show one each, and a fifth lack one.

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
        views[name] = np.outer(cause, rng.normal(0, 0.5, n_columns)) + rng.standard_normal((n_samples, n_columns))
    views["noise"] = rng.standard_normal((n_samples, 3))
    views["protein"][rng.uniform(size=n_samples) < 0.2] = np.nan
    X, columns = stack_views(**views)
    return X, columns, (causes @ [share for _, share in CAUSES.values()] > 0).astype(np.int64)


def patients(n_train: int = 120, seed: int = 0, n_test: int = 2000, advance: Advance = _quiet) -> DemoResult:
    """Compare every view alone, their equal sum and their learned one on the same patients.

    Parameters
    ----------
    n_train, n_test : int
        Patients to learn from, and others to predict.
    seed : int
        Of the data.
    advance : callable
        Called with the name of each step as it begins and the number of those done, of one per entry and one before.

    Returns
    -------
    DemoResult
    """
    X, columns, y = make_patients(n_train + n_test, seed)
    kernels = {name: (name, Gaussian(), own) for name, own in columns.items()}
    entries = {f"{name} alone": MKLClassifier([kernel]) for name, kernel in kernels.items()}
    entries["equal weights"] = MKLClassifier(list(kernels.values()), weights="uniform")
    entries["learned weights"] = MKLClassifier(list(kernels.values()))

    def known(model: Estimator) -> NDArray[np.bool_]:
        """Whether a patient has a view that the model reads."""
        return np.asarray(np.any([~np.isnan(X[:, own]).any(axis=1) for _, _, own in model.kernels], axis=0))

    def train(model: Estimator, size: int) -> Estimator:
        rows = np.flatnonzero(known(model)[:size])
        return model.fit(X[rows], y[rows])

    test, rows, right, cells = np.arange(n_train, n_train + n_test), [], {}, []
    for name, model, seconds in fitted(entries, train, n_train, advance):
        seen = test[known(model)[test]]
        right[name] = model.predict(X[seen]) == y[seen]
        rows.append(Row(name, model, float(right[name].mean()), len(seen), seconds))
    weights = dict(zip(entries, rows[-1].model.weights_, strict=False))
    for row in rows:
        weight = f"{weights[row.name]:.2f}" if row.name in weights else ""
        figures = str(len(right[row.name])), f"{100 * row.accuracy:.1f}", f"{row.model.duality_gap_:.0e}"
        cells.append((row.name, weight, *figures, f"{row.seconds:.3f}"))
    gain = 100.0 * (right["learned weights"].astype(float) - right["equal weights"])
    lacking = ~known(entries["protein alone"])[test]
    summary = (
        f"The accuracy of learned weights differs from that of equal ones by {gain.mean():+.1f} points (standard error "
        f"{gain.std() / n_test**0.5:.1f}); the learned weight of the noise is {weights['noise alone']:.2f}. The "
        f"{lacking.sum()} patients without protein are predicted by their other views, "
        f"{100 * right['learned weights'][lacking].mean():.0f} % of them correctly."
    )
    about = (
        "Patients are generated: the sum of three causes decides which are ill. RNA, protein and clinic show one cause "
        "each, the fourth view is noise, and a fifth of the patients lack protein."
    )
    return DemoResult(
        title=f"Four views of {n_train} patients, {n_test} others to predict, seed {seed}",
        summary=f"{about} {summary}",
        lead=f"{about} Support vector machines with a Gaussian kernel per view learn from {n_train} of them. {summary}",
        caption=f"The learned weight of the view, how many of {n_test} new patients have it, the accuracy on these, "
        f"the certified relative duality gap, and seconds to fit. Seed {seed}.",
        columns=("kernels", "weight", "patients", "accuracy %", "gap", "seconds"),
        cells=cells,
        rows=rows,
        picture_text="A row per patient in each view, white where the patient lacks it; lines as thick as the weights; "
        "the learned kernel between test patients; and the accuracies.",
        pictures=lambda: [
            Picture(draw_patients(rows, X[test], columns, y[test]), "Four views, weights, kernel and accuracies")
        ],
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
    grid = figure.add_gridspec(4, 2, width_ratios=[1, 4.6], left=0.08, right=0.6, bottom=0.09, top=0.86, hspace=0.16)
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
        axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11, color=colours[name], fontweight="bold")
        ends = (1.06, 0.5), (-0.03, 0.875 - 0.25 * place)
        line = ConnectionPatch(*ends, "axes fraction", "axes fraction", axesA=axes, axesB=whole, color=colours[name])
        line.set(linewidth=0.5 + 14 * weight, capstyle="butt")
        figure.add_artist(line)
        axes.text(1.5, 0.72, f"{weight:.2f}", transform=axes.transAxes, fontsize=11, color=ink, ha="center")
    figure.text(0.122, 0.042, "white: patients\nwithout the view", ha="center", va="center", fontsize=7, color=ink)
    figure.text(0.122, 0.89, "views", ha="center", fontsize=9, color=ink)
    figure.text(0.245, 0.89, "weights", ha="center", fontsize=9, color=ink)
    axes = figure.add_axes((0.775, 0.09, 0.21, 0.77))
    for place, (row, shade) in enumerate(zip(rows, [*colours.values(), "#9a9a9a", ink], strict=True)):
        value, error = 100 * row.accuracy, 200 * (row.accuracy * (1 - row.accuracy) / row.n_test) ** 0.5
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


# GAUSS4 ---------------------------------------------------------------------------------------------------------------

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


def gauss4(n_train: int = 600, seed: int = 0, n_test: int = 20_000, advance: Advance = _quiet) -> DemoResult:
    """Train every entry on one sample of GAUSS4 and score it, and the Bayes rule, on another; see `patients`."""
    rng = np.random.RandomState(seed)
    X, y = make_gaussians(4, n_train, random_state=rng)
    X_test, y_test = make_gaussians(4, n_test, random_state=rng)
    rows, cells = [], []
    for name, model, seconds in fitted(ENTRIES, lambda model, size: model.fit(X[:size], y[:size]), n_train, advance):
        rows.append(Row(name, model, float(np.mean(model.predict(X_test) == y_test)), n_test, seconds))
        support = f"{len(model.support_)} ({100 * model.support_fraction_:.1f} %)"
        cells.append((name, f"{100 * rows[-1].accuracy:.2f}", support, f"{model.duality_gap_:.1e}", f"{seconds:.3f}"))
    rule = BayesRule(4)
    rows.append(Row("Bayes rule", rule, float(np.mean(rule.predict(X_test) == y_test)), n_test))
    cells.append(("Bayes rule", f"{100 * rows[-1].accuracy:.2f}", "", "", ""))
    best = rule.accuracy()
    summary = (
        f"The Bayes rule is the best possible one: it is right on {100 * best:.2f} % of all samples, and on "
        f"{100 * rows[-1].accuracy:.2f} % of these {n_test}, as an accuracy on so many varies by "
        f"{200 * (best * (1 - best) / n_test) ** 0.5:.1f} points either way. The discriminant solves least squares, "
        "a system of linear equations: every sample is a support vector, and its gap is rounding error."
    )

    def draw(row: Row) -> Picture:
        from matplotlib.figure import Figure

        from kernelmosaic.plots import DecisionRegionDisplay

        axes = Figure(figsize=(4.4, 3.6), layout="constrained").subplots()
        drawn = DecisionRegionDisplay.from_estimator(row.model, X, y, grid_resolution=120, ax=axes)
        plane = np.stack(np.meshgrid(drawn.x_grid, drawn.y_grid), axis=-1)
        outputs = rule.decision_function(plane.reshape(-1, 2)).reshape(plane.shape[:2])
        axes.contour(drawn.x_grid, drawn.y_grid, outputs, levels=[0.0], colors="black", linestyles="dotted")
        alt = f"Training sample in the plane with the decision boundary of {row.name} and that of the Bayes rule"
        return Picture(axes.figure, alt, f"{row.name}: {100 * row.accuracy:.2f} %")

    return DemoResult(
        title=f"GAUSS4: {n_train} training and {n_test} test samples, seed {seed}",
        summary=summary,
        lead="GAUSS4 is a two-class problem in the plane: each class is a mixture of two Gaussians. Support vector "
        f"machines were trained on {n_train} samples, on one kernel each, on the unweighted sum of all and on sums "
        "whose weights are learned with the machine (l1: sparse weights, l2: all kernels kept), and scored on "
        f"{n_test} fresh ones. {summary}",
        caption="Accuracy on the test sample, support vectors (and their share of the training sample), certified "
        f"relative duality gap, and seconds to train. Seed {seed}.",
        columns=("method", "accuracy %", "support vectors", "gap", "seconds"),
        cells=cells,
        rows=rows,
        picture_text="Every point has the colour of the class that the machine predicts there; the solid line is the "
        "boundary, dashed lines are the margin, and support vectors of the training sample are ringed. The dotted line "
        "is the Bayes rule.",
        pictures=lambda: map(draw, rows[:-1]),
    )


# Both -----------------------------------------------------------------------------------------------------------------

#: The demonstrations, and how many steps they report.
PROBLEMS: dict[str, tuple[Callable[..., DemoResult], int]] = {
    "patients": (patients, len(CAUSES) + 4),
    "gauss4": (gauss4, 1 + len(ENTRIES)),
}


def write_report(result: DemoResult, path: Path) -> None:
    """Write the page; the pictures are there when matplotlib is."""
    page = Page(result.title, result.lead)
    page.table(Table(result.caption, result.columns, result.cells))
    page.heading("Pictures")
    if find_spec("matplotlib") is None:
        page.paragraph('Not drawn: matplotlib is missing. `pip install "kernelmosaic[plots]"` brings it.')
    else:
        page.paragraph(result.picture_text)
        page.figures(result.pictures())
    page.write(path)
