"""Pictures of the papers that explain: what each machine does, which view a gate opens, what a
filter bank sees."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.datasets import make_gaussians
from kernelmosaic.estimators import (
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
    PosteriorMKLClassifier,
)
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.plots import DecisionRegionDisplay
from reproduction.data import log_gabor
from reproduction.experiment import Settings
from reproduction.papers.paper_001 import ADVERT, MULTIFEAT
from reproduction.reading import Run
from reproduction.sources import Generated, Loaded, on_scale

_COLOURS = ("#0072B2", "#E69F00", "#009E73")
_N_SCALES, _N_ORIENTATIONS = 4, 6


def machines(settings: Settings, run: Run) -> Any:
    """Draw the margin, three kernels, the tube of regression, one class, several classes, and
    posteriors."""
    from matplotlib.figure import Figure

    random = np.random.RandomState(settings.seed_for("machines"))
    figure: Any = Figure(figsize=(13.8, 8.6), layout="constrained")
    # A display puts its legend beside its axes, outside of them: each has a part of the figure to
    # itself.
    axes = [part.subplots() for part in figure.subfigures(2, 3).ravel()]
    y = np.repeat([-1, 1], 30)
    apart = random.randn(60, 2) + 1.6 * np.outer(y, [1.0, 0.6])
    _margin(axes[0], apart, y)
    mixed = Generated(make_gaussians, 160, (("n_components", 3),))(settings)
    _kernels(axes[1], mixed.X, mixed.y)
    _tube(axes[2], random)
    one_class = MKLOneClass([Gaussian("median")], nu=0.1).fit(apart)
    DecisionRegionDisplay.from_estimator(one_class, apart, ax=axes[3])
    axes[3].set_title("one class, ν = 0.1")
    labels = np.repeat([0, 1, 2], 25)
    centres = np.array([(0.0, 2.2), (-2.0, -1.0), (2.0, -1.0)])
    several = random.randn(75, 2) + centres[labels]
    joint = MKLClassifier([Polynomial(degree=2)], multi_class="joint").fit(several, labels)
    DecisionRegionDisplay.from_estimator(joint, several, labels, ax=axes[4])
    axes[4].set_title("three classes, one machine")
    _posteriors(figure, axes[5], random)
    return figure


def _plane(
    X: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return two axes around the samples and all points of their grid."""
    low, high = X.min(axis=0) - 0.4, X.max(axis=0) + 0.4
    first, second = (np.linspace(low[k], high[k], 150) for k in range(2))
    return first, second, np.column_stack([one.ravel() for one in np.meshgrid(first, second)])


def _scatter(ax: Any, X: NDArray[np.float64], y: NDArray[Any]) -> None:
    for label, colour, marker in zip(np.unique(y), _COLOURS, "o^s", strict=False):
        ax.scatter(*X[y == label].T, s=16, color=colour, marker=marker)


def _margin(ax: Any, X: NDArray[np.float64], y: NDArray[Any]) -> None:
    model = MKLClassifier([Linear()], C=1.0).fit(X, y)
    first, second, grid = _plane(X)
    heights = model.decision_function(grid).reshape(150, 150)
    ax.contour(
        first,
        second,
        heights,
        levels=[-1, 0, 1],
        colors="black",
        linestyles=["dashed", "solid", "dashed"],
    )
    _scatter(ax, X, y)
    ax.scatter(*X[model.support_].T, s=60, facecolors="none", edgecolors="black")
    ax.set_title("margin and support vectors")


def _kernels(ax: Any, X: NDArray[np.float64], y: NDArray[Any]) -> None:
    first, second, grid = _plane(X)
    _scatter(ax, X, y)
    for (name, kernel), colour in zip(
        (
            ("linear", Linear()),
            ("quadratic", Polynomial(degree=2)),
            ("Gaussian", Gaussian("median")),
        ),
        ("#D55E00", "black", "#009E73"),
        strict=True,
    ):
        heights = (
            MKLClassifier([kernel], C=10.0).fit(X, y).decision_function(grid).reshape(150, 150)
        )
        ax.contour(first, second, heights, levels=[0], colors=colour)
        ax.plot([], [], color=colour, label=name)
    ax.legend(fontsize=8)
    ax.set_title("three kernels, one each")


def _tube(ax: Any, random: np.random.RandomState) -> None:
    x = np.sort(random.uniform(-3, 3, 50))
    y = np.sin(1.5 * x) + 0.2 * random.randn(50)
    epsilon = 0.25
    model = MKLRegressor([Gaussian(1.0)], C=10.0, epsilon=epsilon).fit(x[:, np.newaxis], y)
    line = np.linspace(-3, 3, 300)
    curve = model.predict(line[:, np.newaxis])
    ax.fill_between(
        line,
        curve - epsilon,
        curve + epsilon,
        color=_COLOURS[0],
        alpha=0.2,
        label=f"tube, ε = {epsilon}",
    )
    ax.plot(line, curve, color=_COLOURS[0])
    ax.scatter(x, y, s=16, color="#555555")
    held = model.support_
    ax.scatter(
        x[held], y[held], s=60, facecolors="none", edgecolors="black", label="support vectors"
    )
    ax.legend(fontsize=8)
    ax.set_title("regression")


def _posteriors(figure: Any, ax: Any, random: np.random.RandomState) -> None:
    y = np.repeat([-1, 1], 60)
    X = random.randn(120, 2) + np.outer(y, [0.9, 0.5])
    model = PosteriorMKLClassifier([Gaussian("median")], n_neighbors=9).fit(X, y)
    first, second, grid = _plane(X)
    found = model.predict_proba(grid)[:, 1].reshape(150, 150)
    shown = ax.contourf(
        first, second, found, levels=np.linspace(0, 1, 11), cmap="cividis", alpha=0.8
    )
    for label, marker in ((-1, "o"), (1, "^")):
        mine = y == label
        colours = model.posteriors_[mine, 1]
        ax.scatter(
            *X[mine].T,
            c=colours,
            cmap="cividis",
            vmin=0,
            vmax=1,
            s=20,
            marker=marker,
            edgecolors="white",
        )
    figure.colorbar(shown, ax=ax, label="Pr(second class)")
    ax.set_title("posteriors of nine neighbours")


def integration(settings: Settings, run: Run) -> Any:
    """Draw how two representations are joined: before the kernel, as kernels, or after the
    machines."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(12.0, 3.4), layout="constrained")
    # Boxes by place, and arrows between them by their numbers, from the representations on the left
    # to the output.
    first, second = (0, 1, "first\nrepresentation"), (0, 0, "second\nrepresentation")
    ways: dict[str, tuple[list[tuple[float, float, str]], tuple[tuple[int, int], ...]]] = {
        "early": (
            [
                first,
                second,
                (1, 0.5, "columns\nside by side"),
                (2, 0.5, "one kernel,\none machine"),
            ],
            ((0, 2), (1, 2), (2, 3)),
        ),
        "intermediate": (
            [
                first,
                second,
                (1, 1, "kernel"),
                (1, 0, "kernel"),
                (2, 0.5, "weighted sum,\none machine"),
            ],
            ((0, 2), (1, 3), (2, 4), (3, 4)),
        ),
        "late": (
            [
                first,
                second,
                (1, 1, "kernel,\nmachine"),
                (1, 0, "kernel,\nmachine"),
                (2, 0.5, "outputs\ncombined"),
            ],
            ((0, 2), (1, 3), (2, 4), (3, 4)),
        ),
    }
    for ax, (name, (boxes, arrows)) in zip(figure.subplots(1, 3), ways.items(), strict=True):
        for x, y, text in boxes:
            frame = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": _COLOURS[0]}
            ax.text(x, y, text, ha="center", va="center", fontsize=8, bbox=frame, zorder=2)
        for start, end in arrows:
            (x0, y0, _), (x1, y1, _) = boxes[start], boxes[end]
            ax.annotate(
                "", (x1 - 0.38, y1), (x0 + 0.38, y0), arrowprops={"arrowstyle": "->"}, zorder=1
            )
        ax.set(xlim=(-0.5, 2.5), ylim=(-0.5, 1.5), title=f"{name} integration")
        ax.axis("off")
    return figure


def view_gates(settings: Settings, run: Run) -> Any:
    """Draw how far the gates open every representation, test sample by test sample, on digits and
    advertisements."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(11.0, 6.4), layout="constrained")
    axes = figure.subplots(2, 2)
    for row, (experiment, classes) in zip(
        axes, ((MULTIFEAT, ("small", "large")), (ADVERT, ("other", "advertisement"))), strict=True
    ):
        protocol: Any = experiment.protocol
        data = protocol.datasets[0]
        samples = data.source(settings)
        split = protocol.split(samples, 0, settings.seed_for(data.name, "split"))
        samples = on_scale(samples, split.train, protocol.inputs)
        order = split.test[np.argsort(samples.y[split.test], kind="stable")]
        edge = int(np.sum(samples.y[order] == samples.y.min()))
        for ax, method in zip(row, protocol.methods[-2:], strict=True):
            fit = method.fit(
                samples.X[split.train], samples.y[split.train], settings.seed_for("gates"), C=10.0
            )
            gates = fit.model.gate(samples.X[order]).T
            shown = ax.imshow(
                gates, aspect="auto", cmap="cividis", vmin=0, vmax=1, interpolation="nearest"
            )
            ax.set_yticks(range(len(gates)), fit.model.kernel_names_, fontsize=8)
            ax.axvline(edge - 0.5, color="white", linewidth=1.5)
            ax.set_xticks([edge / 2, (edge + len(order)) / 2], classes)
            gating = "sigmoid" if "sigmoid" in method.name else "softmax"
            ax.set_title(f"{data.name}, {gating} gates")
        figure.colorbar(shown, ax=row, label="gate")
    return figure


def texture(settings: Settings, run: Run) -> Any:
    """Draw one face under the twenty-four filters of a log-Gabor bank."""
    from matplotlib.figure import Figure

    face = np.asarray(Loaded("olivetti")(settings).X[0], dtype=np.float64).reshape(64, 64)
    figure: Any = Figure(figsize=(9.6, 4.9), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 3))
    ax = left.subplots()
    ax.imshow(face, cmap="gray")
    ax.set_title("the image", fontsize=9)
    ax.axis("off")
    found = np.array(list(log_gabor(face[np.newaxis]).values())).reshape(
        _N_SCALES, _N_ORIENTATIONS, 64, 64
    )
    for scale, row in enumerate(right.subplots(_N_SCALES, _N_ORIENTATIONS)):
        for place, ax in enumerate(row):
            ax.imshow(found[scale, place], cmap="gray")
            ax.set(xticks=[], yticks=[])
            if scale == 0:
                ax.set_title(f"{180 * place // _N_ORIENTATIONS}°", fontsize=8)
            if place == 0:
                ax.set_ylabel(f"{3 * 2**scale} pixels", fontsize=8)
    return figure
