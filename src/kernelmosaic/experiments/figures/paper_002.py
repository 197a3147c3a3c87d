"""Figures 1 to 3 of "Regularizing multiple kernel learning using response surface methodology"."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold, cross_val_score

from kernelmosaic.datasets import make_gaussians
from kernelmosaic.estimators import MKLClassifier
from kernelmosaic.experiments.figures.drawing import Drawing
from kernelmosaic.experiments.paper_001 import digit_kernels, digits
from kernelmosaic.experiments.reading import Run
from kernelmosaic.experiments.sources import Generated, Samples, thin
from kernelmosaic.experiments.units import Settings
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.model_selection import FiveByTwoFold, ResponseSurfaceSearchCV
from kernelmosaic.plots import ProjectionDisplay, ResponseSurfaceDisplay

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


def projections(settings: Settings, run: Run) -> Any:
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


DRAWINGS = (
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
        projections,
    ),
)
