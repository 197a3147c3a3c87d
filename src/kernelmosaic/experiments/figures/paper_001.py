"""Pictures of the thesis slides: local regression, the course of learning, and learned projections."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmosaic.datasets import make_waveform
from kernelmosaic.estimators import LocalizedMKLClassifier, LocalizedMKLRegressor, MKLClassifier
from kernelmosaic.experiments.figures.drawing import Drawing
from kernelmosaic.experiments.reading import Run
from kernelmosaic.experiments.sources import Generated, Loaded
from kernelmosaic.experiments.units import Settings
from kernelmosaic.kernels import Linear, Projected

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


DRAWINGS = (
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
