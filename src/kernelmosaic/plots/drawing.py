"""What displays share: the model that is drawn, axes, colours and markers, samples in a plane."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from types import ModuleType
from typing import Any

import numpy as np
from sklearn.utils.validation import _num_samples, check_is_fitted

from kernelmosaic._typing import (
    Array,
    AxesOrNone,
    Estimator,
    Mask,
    MatrixLike,
    Settings,
    TargetLike,
)
from kernelmosaic.engine.pipelines import unwrap

#: Okabe and Ito's colours, which colour-blind readers distinguish; yellow, invisible as a line on
#: white, is left out.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000", "#999999")
#: Classes and lines differ in these as well as in colour.
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")


class Display:
    """A picture: the axes and the figure that `plot` drew on."""

    ax_: Any = None
    figure_: Any = None
    #: Draws; the options are those of the picture.
    plot: Any

    def _use_axes(self, ax: AxesOrNone, figsize: tuple[float, float] | None = None) -> Any:
        """Return the axes to draw on: the given ones, or those of a new figure."""
        if ax is None:
            _, ax = pyplot().subplots(figsize=figsize, layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def pyplot() -> ModuleType:
    """Return matplotlib's pyplot, or raise naming the extra that brings it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('Pictures need matplotlib: pip install "kernelmosaic[plots]"') from error
    return plt


def fitted_model(
    estimator: Estimator,
    needed: str = "",
    display: str = "",
    shown: str = "estimators of kernelmosaic",
) -> Estimator:
    """Return the fitted estimator itself, of a search its best one, of a pipeline its last step.

    Raise if it lacks what a display needs, naming the display and what this shows.
    """
    check_is_fitted(estimator)
    model = unwrap(estimator)
    if needed and not hasattr(model, needed):
        raise TypeError(
            f"{type(model).__name__} has no {needed}: {display} shows {shown}, and pipelines and"
            " searches around them."
        )
    return model


def lacking_views(model: Estimator, X: MatrixLike) -> Mask:
    """Return which views of its kernels samples lack, one column per entry of `view_names_`."""
    missing: Any = getattr(model.function_.expansion.sums, "missing", None)
    present = None if missing is None else missing.present_in(model.read(X))
    return (
        np.zeros((_num_samples(X), len(model.view_names_)), dtype=bool)
        if present is None
        else ~present
    )


def colour(k: int) -> str:
    """Return the colour of the k-th class, kernel or line."""
    return PALETTE[k % len(PALETTE)]


def line_style(k: int) -> Settings:
    """Return the look of the k-th line: the dashes change with the colour, and where colours
    repeat."""
    dashes = ("solid", "dashed", "dashdot", "dotted")
    return {"color": colour(k), "linestyle": dashes[(k // len(PALETTE) + k) % len(dashes)]}


def open_frame(ax: Any, grid: str = "y") -> None:
    """Leave out two sides of the frame, and draw grey lines behind the data along the ticks of an
    axis."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis=grid, color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)


def name_few_values(ax: Any, values: Array) -> None:
    """Label a logarithmic axis of few values by these: labels between powers of ten overlap."""
    if len(values) <= 6:
        ax.set_xticks(values, [f"{value:.2g}" for value in values])
        ax.set_xticks([], minor=True)


def name_rows(ax: Any, names: Sequence[str]) -> None:
    """Write names beside the rows 0, 1, …"""
    ax.set_yticks(np.arange(len(names)), names, fontsize=9 if len(names) <= 25 else 7)
    ax.tick_params(axis="y", length=0)


def bar_rows(ax: Any, names: Sequence[str]) -> None:
    """Name rows of bars from zero, the first at the top, without a frame around them."""
    name_rows(ax, names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.axvline(0.0, color="black", linewidth=0.8, zorder=1)
    ax.spines[["top", "right", "left"]].set_visible(False)


def draw_map(
    display: Display, values: Array, name: str, extend: str = "neither", **style: Any
) -> Any:
    """Draw a matrix as colours, with a labelled colour bar, open where numbers are beyond it."""
    image = display.ax_.imshow(values, **{"cmap": "cividis", "aspect": "auto"} | style)
    display.figure_.colorbar(image, ax=display.ax_, label=name, extend=extend, shrink=0.9)
    return image


def title_left_out(ax: Any, n_shown: int, n_all: int) -> None:
    """Write above the axes that the largest of several kernels are shown, where some are left
    out."""
    if n_shown < n_all:
        ax.set_title(f"the {n_shown} largest of {n_all}", fontsize=9, loc="left")


def plane_around(points: Array, margin: float, resolution: int) -> tuple[Array, Array, Array]:
    """Return a grid over the plane of the points, `margin` of their range beyond them: its two
    axes, and its points."""
    beyond = margin * np.maximum(np.ptp(points, axis=0), 1e-12)
    low, high = points.min(axis=0) - beyond, points.max(axis=0) + beyond
    x, y = (np.linspace(low[d], high[d], resolution) for d in (0, 1))
    return x, y, np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)


def support_mask(model: Estimator, n: int) -> Mask | None:
    """Return which samples are support vectors, if the model has some and these may be its training
    set."""
    rows = np.asarray(getattr(model, "support_", []))
    # Where all samples are, rings distinguish none.
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not 0 < len(rows) < n or rows.max() >= n:
        return None
    support = np.zeros(n, dtype=bool)
    support[rows] = True
    return support


def draw_samples(
    ax: Any, X: MatrixLike, groups: Iterable[tuple[Any, Settings]], support: Mask | None
) -> tuple[list[Any], Any]:
    """Draw groups of samples, each by its rows and its look, and rings around support vectors;
    return what was drawn.

    Few samples are drawn larger: a thousand large ones would hide the regions.
    """
    size = float(np.clip(6000 / max(len(X), 1), 6, 36))
    pen = {"s": size, "edgecolors": "black", "linewidths": 0.6, "zorder": 3}
    drawn, rings = [ax.scatter(*X[rows].T, **(pen | look)) for rows, look in groups], None
    if support is not None:
        ring = {
            "s": 4.0 * size,
            "facecolors": "none",
            "edgecolors": "black",
            "linewidths": 0.8,
            "zorder": 2.5,
        }
        rings = ax.scatter(*X[support].T, label="support vector", **ring)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="best", fontsize=8, framealpha=0.9)
    return drawn, rings


def draw_zeros(ax: Any, x: Array, y: Array, values: Array, **style: Any) -> list[Any]:
    """Draw where the values on a grid are zero, if they are anywhere; return the contours."""
    return (
        [ax.contour(x, y, values, levels=[0.0], **style)] if values.min() < 0 < values.max() else []
    )


def class_groups(
    labels: Iterable[Any], y: TargetLike, fills: Iterable[str]
) -> list[tuple[Any, Settings]]:
    """Return the samples of every class and how they look; of no classes, all samples in white."""
    looks = zip(labels, fills, cycle(MARKERS), strict=False)
    groups = [
        (y == one, {"facecolors": fill, "marker": mark, "label": f"class {one}"})
        for one, fill, mark in looks
    ]
    return [group for group in groups if np.any(group[0])] or [
        (slice(None), {"facecolors": "white"})
    ]


def shortened(names: list[str], most: int = 36) -> list[str]:
    """Long names lose their middle, unless that is where they differ."""
    half = most // 2
    short = [name if len(name) <= most else f"{name[: half - 1]}…{name[-half:]}" for name in names]
    return short if len(set(short)) == len(set(names)) else names
