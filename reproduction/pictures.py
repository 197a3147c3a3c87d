"""Pictures of the papers, drawn again from the run's seed and data; kept in the run folder once drawn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold, cross_val_score

from kernelmosaic.datasets import make_gaussians, make_waveform
from kernelmosaic.estimators import LocalizedMKLClassifier, LocalizedMKLRegressor, MKLClassifier
from kernelmosaic.gating import Softmax
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Projected
from kernelmosaic.model_selection import FiveByTwoFold, ResponseSurfaceSearchCV
from kernelmosaic.plots import (
    DecisionRegionDisplay,
    GatingDisplay,
    LocalKernelDisplay,
    ProjectionDisplay,
    ResponseSurfaceDisplay,
)
from reproduction.experiment import Settings
from reproduction.papers.paper_001 import digit_kernels, digits
from reproduction.reading import Run
from reproduction.sources import Generated, Loaded, Samples, thin
from reproduction.store import write_whole


@dataclass(frozen=True)
class Drawing:
    """One picture of a paper.

    Parameters
    ----------
    name : str
        Of its file: the paper's number, then the figure.
    paper : str
        It is drawn if the run has an experiment of this paper.
    alt, caption : str
        What it shows: for those who do not see it, and under it.
    draw : callable
        Takes the settings and the run and returns a matplotlib Figure, in seconds rather than minutes. It raises
        `LookupError` if the run lacks what it needs.
    version : int
        Raise it when the picture changes, so that a kept one is not taken for it.
    """

    name: str
    paper: str
    alt: str
    caption: str
    draw: Callable[[Settings, Run], Any]
    version: int = 1


@dataclass(frozen=True)
class Drawn:
    """A picture as PNG, or why there is none."""

    caption: str
    alt: str
    image: bytes | None
    problem: str = ""


_SMOOTH = [("kL", Linear()), ("kP", Polynomial(degree=2))]
_LOCAL = [("kL1", Linear()), ("kL2", Linear()), ("kL3", Linear())]
_STEPS = (1, 3, 6, 20)


def _gauss4(settings: Settings) -> Samples:
    return Generated(make_gaussians, 600, (("n_components", 4),))(settings)


def _localized(kernels: list[Any], settings: Settings, **options: Any) -> Any:
    return LocalizedMKLClassifier(kernels, random_state=settings.seed_for("picture"), **options)


def _row(count: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(4.6 * count, 4.4), layout="constrained")
    # A display puts its legend beside its axes, outside of them: each has a part of the figure to itself.
    return figure, [part.subplots() for part in figure.subfigures(1, count)]


def boundaries(settings: Settings, run: Run) -> Any:
    """Draw MKL, LMKL and local linear kernels on GAUSS4."""
    samples = _gauss4(settings)
    X, y = samples.X, samples.y
    figure, axes = _row(3)
    plain = MKLClassifier(_SMOOTH).fit(X, y)
    DecisionRegionDisplay.from_estimator(plain, X, y, ax=axes[0])
    axes[0].set_title(_title("MKL (kL-kP)", plain))
    for ax, kernels, name in ((axes[1], _SMOOTH, "LMKL (kL-kP)"), (axes[2], _LOCAL, "LMKL (kL-kL-kL)")):
        model = _localized(kernels, settings).fit(X, y)
        GatingDisplay.from_estimator(model, X, y, grid_resolution=150, ax=ax)
        ax.set_title(_title(name, model))
    return figure


def combined_kernel(settings: Settings, run: Run) -> Any:
    """Draw the combined kernel of LMKL on GAUSS4 as the gates are learned."""
    from matplotlib.figure import Figure

    samples = _gauss4(settings)
    figure = Figure(figsize=(9.0, 7.6), layout="constrained")
    for ax, steps in zip(figure.subplots(2, 2).ravel(), _STEPS, strict=True):
        # One start, almost the same gates everywhere, so that each picture goes on where the one before it stopped.
        model = _localized(_SMOOTH, settings, n_init=1, step="armijo", tol=1e-9, max_iter=steps, gating=Softmax(0.01))
        LocalKernelDisplay.from_estimator(model.fit(samples.X, samples.y), samples.X, samples.y, max_samples=300, ax=ax)
        ax.set_title(f"after {steps} iteration{'s' * (steps > 1)}")
    return figure


def banana(settings: Settings, run: Run) -> Any:
    """Draw LMKL on BANANA."""
    samples = Loaded("banana", max_samples=800)(settings)
    figure, axes = _row(2)
    for ax, kernels, name in zip(axes, (_SMOOTH, _LOCAL), ("LMKL (kL-kP)", "LMKL (kL-kL-kL)"), strict=True):
        model = _localized(kernels, settings).fit(samples.X, samples.y)
        GatingDisplay.from_estimator(model, samples.X, samples.y, grid_resolution=150, ax=ax)
        ax.set_title(_title(name, model))
    return figure


def _title(name: str, model: Any) -> str:
    return f"{name}, {100 * model.support_fraction_:.0f} % support vectors"


_LOCALIZED = (
    Drawing(
        "000-figure1",
        "000",
        "Three planes with the samples of GAUSS4: boundary and support vectors of MKL, regions and boundaries of LMKL",
        "Figure 1. GAUSS4: boundary and support vectors (ringed) of MKL, and the regions that the gates of LMKL make. "
        "Where a colour ends another kernel takes over; the solid line is the boundary.",
        boundaries,
    ),
    Drawing(
        "000-figure2",
        "000",
        "Four matrices of the combined kernel on GAUSS4, after 1, 3, 6 and 20 iterations",
        "Figure 2. GAUSS4: the combined kernel of LMKL (kL-kP) as its gates are learned from almost equal ones, "
        "samples ordered by class and region. Blocks appear as the regions part.",
        combined_kernel,
    ),
    Drawing(
        "000-figure3",
        "000",
        "Two planes with the samples of BANANA and the regions and boundaries of LMKL",
        "Figure 3. BANANA, 800 samples: regions, boundary and support vectors of LMKL.",
        banana,
    ),
)


_COLOURS = ("#E69F00", "#0072B2", "#009E73")
_DIMENSIONS = (1, 2, 5, 10)
_SHARES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)


def motorcycle(settings: Settings, run: Run) -> Any:
    """Draw three local lines on MOTORCYCLE and their gates."""
    from matplotlib.figure import Figure

    samples = Loaded("motorcycle")(settings)
    x = np.asarray(samples.X, dtype=np.float64).ravel()
    centre, width = x.mean(), x.std()
    model = LocalizedMKLRegressor([Linear()] * 3, C=100.0, epsilon=10.0, random_state=settings.seed_for("motorcycle"))
    model.fit(((x - centre) / width)[:, np.newaxis], samples.y)
    line = np.linspace(x.min(), x.max(), 400)
    scaled = ((line - centre) / width)[:, np.newaxis]
    figure = Figure(figsize=(6.0, 5.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    above.scatter(x, samples.y, s=14, color="#555555", label="samples")
    held = model.support_
    above.scatter(x[held], samples.y[held], s=46, facecolors="none", edgecolors="black", label="support vectors")
    above.plot(line, model.predict(scaled), color="#D55E00", linewidth=2, label="LMKL, three linear kernels")
    above.set_ylabel("acceleration, g")
    above.legend(fontsize=8)
    for m, (gate, style) in enumerate(zip(model.gate(scaled).T, ("-", "--", ":"), strict=True)):
        below.plot(line, gate, color=_COLOURS[m], linestyle=style, label=f"gate {m + 1}")
    below.set(xlabel="milliseconds after the impact", ylabel="gate")
    below.legend(fontsize=8)
    return figure


def convergence(settings: Settings, run: Run) -> Any:
    """Draw the objective over the iterations of LMKL on WAVEFORM, and where each τ would have stopped."""
    from matplotlib.figure import Figure

    samples = Generated(make_waveform, 300)(settings)
    y = np.where(samples.y == np.unique(samples.y)[0], 1, -1)
    model = LocalizedMKLClassifier(
        [Linear()] * 3, step="armijo", n_init=1, tol=1e-7, max_iter=150, random_state=settings.seed_for("waveform")
    )
    model.fit(samples.X, y)
    objective = np.array([step["objective"] for step in model.history_])
    falls = (objective[:-1] - objective[1:]) / np.abs(objective[:-1])
    figure = Figure(figsize=(6.0, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.semilogy(objective - objective.min() + 1e-6 * abs(objective.min()), color="black", linewidth=1.2)
    for share, marker, colour in zip(
        _SHARES, "os^Dv", ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"), strict=True
    ):
        short = np.flatnonzero(falls < share)
        if len(short):
            stop = int(short[0]) + 1
            height = objective[stop] - objective.min() + 1e-6 * abs(objective.min())
            axes.plot(stop, height, marker=marker, color=colour, linestyle="none", label=f"τ = {share:g}: {stop}")
    axes.set(xlabel="iteration", ylabel="objective above its last value")
    axes.legend(title="would stop at", fontsize=8)
    return figure


def projections(settings: Settings, run: Run) -> Any:
    """Draw even and odd digits of USPS by principal components and by a learned projection."""
    from matplotlib.figure import Figure
    from sklearn.decomposition import PCA

    samples = Loaded("usps", max_samples=400, options=(("task", "EO"),))(settings)
    seed = settings.seed_for("usps")
    model = LocalizedMKLClassifier([Projected(Linear(), n_components=2)], n_init=1, max_iter=30, random_state=seed)
    model.fit(samples.X, samples.y)
    learned = np.asarray(model.transform(samples.X))
    figure = Figure(figsize=(9.2, 4.2), layout="constrained")
    plain = PCA(2).fit_transform(samples.X)
    for ax, Z, name in zip(figure.subplots(1, 2), (plain, learned), ("PCA", "learned projection"), strict=True):
        for label, marker, colour, word in ((-1, "o", "#0072B2", "even"), (1, "^", "#E69F00", "odd")):
            ax.scatter(*Z[samples.y == label].T, s=10, marker=marker, color=colour, label=word)
        ax.set_title(name)
        ax.legend(fontsize=8)
    return figure


def dimensions(settings: Settings, run: Run) -> Any:
    """Draw accuracy and support vectors over the projected dimension, for projections learned before and with."""
    from matplotlib.figure import Figure
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline

    samples = Loaded("usps", max_samples=1000, options=(("task", "EO"),))(settings)
    half = len(samples.y) // 2
    order = np.random.RandomState(settings.seed_for("usps halves")).permutation(len(samples.y))
    train, test = order[:half], order[half:]
    options: dict[str, Any] = {"n_init": 1, "max_iter": 20, "tol": 5e-3, "random_state": settings.seed_for("usps")}
    found: dict[str, list[tuple[float, float]]] = {"PCA": [], "GPK": [], "LPK": []}
    for size in _DIMENSIONS:
        models = {
            "PCA": make_pipeline(PCA(size, random_state=0), MKLClassifier([Linear()], C=10.0)),
            "GPK": LocalizedMKLClassifier([Projected(Linear(), size)], **options),
            "LPK": LocalizedMKLClassifier([Projected(Linear(), size)] * 3, **options),
        }
        for name, model in models.items():
            model.fit(samples.X[train], samples.y[train])
            machine = model[-1] if name == "PCA" else model
            score = model.score(samples.X[test], samples.y[test])
            found[name].append((100 * score, 100 * machine.support_fraction_))
    figure = Figure(figsize=(9.2, 4.0), layout="constrained")
    for ax, place, label in zip(figure.subplots(1, 2), (0, 1), ("test accuracy, %", "support vectors, %"), strict=True):
        for (name, values), colour, marker in zip(found.items(), _COLOURS, "os^", strict=True):
            ax.plot(_DIMENSIONS, [value[place] for value in values], color=colour, marker=marker, label=name)
        ax.set(xlabel="projected dimension", ylabel=label, xticks=_DIMENSIONS)
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    return figure


_SLIDES = (
    Drawing(
        "001-motorcycle",
        "001",
        "Acceleration over time with the curve of local regression, and the three gates below",
        "MOTORCYCLE: three local linear kernels make a smooth curve; below, where each of them counts.",
        motorcycle,
    ),
    Drawing(
        "001-convergence",
        "001",
        "Falling objective over the iterations of LMKL on WAVEFORM with the points where each tolerance stops",
        "WAVEFORM, first class against the others: the objective of LMKL with three linear kernels, and where the rule "
        "J(t) > (1 − τ) J(t − 1) would stop for different τ.",
        convergence,
    ),
    Drawing(
        "001-projections",
        "001",
        "Even and odd digits of USPS in two planes: principal components, and a projection learned with the machine",
        "USPS, even against odd, 400 training samples: principal components, and a plane learned with the machine.",
        projections,
    ),
    Drawing(
        "001-dimensions",
        "001",
        "Accuracy and support vectors over the dimension that digits of USPS are projected to, for three methods",
        "USPS, even against odd, 500 samples to train and 500 to test, one split: principal components, one learned "
        "projection (GPK) and three local ones (LPK), all with linear kernels. The slides have LFDA besides.",
        dimensions,
    ),
)


_THREE = [("kL", Linear()), ("kP", Polynomial(degree=2)), ("kG", Gaussian("nearest"))]
#: Powers of ten of the penalties on the grid.
_POWERS = np.linspace(-1.0, 1.0, 7)


def _mixture(settings: Settings, n_components: int) -> Samples:
    return Generated(make_gaussians, 300, (("n_components", n_components),))(settings)


def penalty_grid(settings: Settings, run: Run) -> Any:
    """Draw the validation error over the penalties of two kernels on four mixtures."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 7.6), layout="constrained")
    for ax, k in zip(figure.subplots(2, 2).ravel(), (2, 3, 4, 5), strict=True):
        samples = _mixture(settings, k)
        folds = StratifiedKFold(2, shuffle=True, random_state=settings.seed_for("penalty grid", k))
        errors = np.array([[_error(samples, p, g, folds) for p in _POWERS] for g in _POWERS])
        shown = ax.contourf(_POWERS, _POWERS, errors, levels=10, cmap="cividis")
        low = np.unravel_index(errors.argmin(), errors.shape)
        ax.plot(_POWERS[low[1]], _POWERS[low[0]], marker="*", markersize=14, color="white", markeredgecolor="black")
        figure.colorbar(shown, ax=ax, label="validation error, %")
        ax.set(title=f"GAUSS{k}", xlabel="$\\log_{10} d$ of kP", ylabel="$\\log_{10} d$ of kG")
    return figure


def _error(samples: Samples, p: float, g: float, folds: Any) -> float:
    model = MKLClassifier(_THREE, normalize="diagonal", penalties=[1.0, 10.0**p, 10.0**g])
    return 100 - 100 * float(np.mean(cross_val_score(model, samples.X, samples.y, cv=folds)))


def example(settings: Settings, run: Run) -> Any:
    """Draw the search for penalties on GAUSS3."""
    from matplotlib.figure import Figure

    samples = _mixture(settings, 3)
    folds = FiveByTwoFold(random_state=settings.seed_for("example"))
    search = ResponseSurfaceSearchCV(MKLClassifier(_THREE, normalize="diagonal"), on="penalties", cv=folds)
    search.fit(samples.X, samples.y)
    figure = Figure(figsize=(6.0, 4.8), layout="constrained")
    display = ResponseSurfaceDisplay.from_search(search, ax=figure.subplots())
    display.ax_.set_title(f"GAUSS3, {search.n_solver_calls_} points evaluated")
    return figure


def principal_components(settings: Settings, run: Run) -> Any:
    """Draw digits by the combined kernels of the unweighted sum, MKL and RMKL."""
    from matplotlib.figure import Figure

    kernels = digit_kernels()
    names = [name for name, _, _ in kernels]
    penalties = _learned_penalties(run, names)
    samples = digits("EO", quick=True).source(settings)
    rows = thin(samples.y, 800, settings.seed_for("projections"))
    X, y = samples.X[rows], samples.y[rows]
    options: dict[str, Any] = {"normalize": "diagonal"}
    models = {"SUM": MKLClassifier(kernels, weights="uniform", **options), "MKL": MKLClassifier(kernels, **options)}
    if penalties is not None:
        models["RMKL"] = MKLClassifier(kernels, penalties=penalties, **options)
    figure = Figure(figsize=(4.4 * len(models), 4.0), layout="constrained")
    for ax, (name, model) in zip(figure.subplots(1, len(models)), models.items(), strict=True):
        display = ProjectionDisplay.from_estimator(model.fit(X, y), X, y, ax=ax)
        ax.set_title(f"{name}: {100 * display.explained_share:.1f} % of the variance")
    return figure


def _learned_penalties(run: Run, names: list[str]) -> list[float] | None:
    """Return the penalties that RMKL chose on even against odd digits in this run, None if it has not run."""
    rows = [row for one in run.of_table("002", "Table 4") for row in one.rows]
    found = {
        row.metric.removeprefix("penalty:"): row.mean
        for row in rows
        if (row.dataset, row.method) == ("MULTIFEAT-EO", "RMKL") and row.metric.startswith("penalty:")
    }
    return [found[name] for name in names] if set(names) <= set(found) else None


_REGULARIZED = (
    Drawing(
        "002-figure1",
        "002",
        "Four maps of the validation error over the penalties of two kernels, on GAUSS2 to GAUSS5",
        "Figure 1. Validation error over the penalties of the quadratic and the Gaussian kernel, that of the linear "
        "one fixed at 1 (300 samples, two folds). The star is the least.",
        penalty_grid,
    ),
    Drawing(
        "002-figure2",
        "002",
        "Fitted surface of the validation error on GAUSS3 with the points that were evaluated",
        "Figure 2. GAUSS3: the surface that the search fits, the points it evaluated, and the best one.",
        example,
    ),
    Drawing(
        "002-figure3",
        "002",
        "Digits in the plane of two principal components of the combined kernel, even and odd in two colours",
        "Figure 3. MULTIFEAT, even against odd: the first two principal components of the combined kernel. RMKL has "
        "the mean penalties of this run's Table 4, and is left out if that was not run.",
        principal_components,
    ),
)

#: In the order in which a page shows them.
DRAWINGS: tuple[Drawing, ...] = (*_LOCALIZED, *_SLIDES, *_REGULARIZED)


def draw_pictures(run: Run, data_home: str | None = None) -> dict[str, list[Drawn]]:
    """Return the pictures of every paper that the run has experiments of."""
    papers = {one.experiment.paper for one in run.results}
    found: dict[str, list[Drawn]] = {}
    for drawing in DRAWINGS:
        if drawing.paper in papers:
            found.setdefault(drawing.paper, []).append(_drawn(drawing, run, run.settings(data_home)))
    return found


def _drawn(drawing: Drawing, run: Run, settings: Settings) -> Drawn:
    path = _kept(drawing, run)
    if path is not None and path.exists():
        return Drawn(drawing.caption, drawing.alt, path.read_bytes())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few iterations are what some of the pictures are about
            figure = drawing.draw(settings, run)
    except (LookupError, OSError, ValueError) as error:
        return Drawn(drawing.caption, drawing.alt, None, " ".join(str(error).split()))
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110, facecolor="white")
    if path is not None:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, buffer.getvalue())
    return Drawn(drawing.caption, drawing.alt, buffer.getvalue())


def _kept(drawing: Drawing, run: Run) -> Path | None:
    # Beside records only: a folder of summaries is for small texts.
    if not any(run.folder.glob("*.jsonl")):
        return None
    return run.folder / "figures" / f"{drawing.name}-{drawing.version}.png"
