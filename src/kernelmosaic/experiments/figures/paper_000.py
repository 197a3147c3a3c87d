"""Figures 1 to 3 of "Localized multiple kernel learning": the toy of four Gaussians, and BANANA."""

from __future__ import annotations

from typing import Any

from kernelmosaic.datasets import make_gaussians
from kernelmosaic.estimators import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.experiments.figures.drawing import Drawing
from kernelmosaic.experiments.reading import Run
from kernelmosaic.experiments.sources import Generated, Loaded, Samples
from kernelmosaic.experiments.units import Settings
from kernelmosaic.gating import Softmax
from kernelmosaic.kernels import Linear, Polynomial
from kernelmosaic.plots import DecisionRegionDisplay, GatingDisplay, LocalKernelDisplay

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


DRAWINGS = (
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
