"""The base of all displays: fitted models, axes, colours and markers, samples in a plane.

Displays of families use it, too, so it imports no other module of `plots`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from types import ModuleType
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

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

#: The colours of Okabe and Ito, which colour-blind readers distinguish. Yellow is left out: on
#: white a yellow line is invisible.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000", "#999999")
#: Markers of classes and lines, which differ in them as well as in colour.
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
#: Values of a logarithmic axis up to which each gets a label; chosen by hand.
_FEW_VALUES = 6
#: Rows up to which names are written large; chosen by hand.
_FEW_ROWS = 25


class Display:
    """A picture of a model or a result, drawn by matplotlib.

    Attributes
    ----------
    ax_, figure_
        The axes and the figure that `plot` has drawn on.
    """

    ax_: Any = None
    figure_: Any = None
    #: Draws the picture and returns the display; every display has parameters of its own.
    plot: Any

    def _use_axes(self, ax: AxesOrNone, figsize: tuple[float, float] | None = None) -> Any:
        """Return the given axes, or those of a new figure, and make them those of the display."""
        if ax is None:
            _, ax = pyplot().subplots(figsize=figsize, layout="constrained")
        self.ax_ = ax
        self.figure_ = ax.figure
        return ax


def pyplot() -> ModuleType:
    """Return matplotlib's pyplot, or raise naming the extra that installs it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('Pictures need matplotlib: pip install "kernelmosaic[plots]"') from error
    return plt


def fitted_model(
    estimator: Estimator,
    needed: str = "",
    display: str = "",
    drawable: str = "estimators of kernelmosaic",
) -> Estimator:
    """Return the fitted model inside an estimator: the last step, and the best one of a search.

    Parameters
    ----------
    estimator : estimator
        Fitted; a model of this package, or a pipeline or search around one.
    needed : str
        An attribute that the model must have; its lack is a TypeError.
    display, drawable : str
        The display and what it can draw, for the error.
    """
    check_is_fitted(estimator)
    model = unwrap(estimator)
    if needed and not hasattr(model, needed):
        raise TypeError(
            f"{type(model).__name__} has no {needed}: {display} shows {drawable}, and pipelines and"
            " searches around them."
        )
    return model


def lacking_views(model: Estimator, X: MatrixLike) -> Mask:
    """Return whether samples lack the view of each kernel, of shape (n, len(view_names_))."""
    missing: Any = getattr(model.function_.expansion.sums, "missing", None)
    # Several tables are one table once they are read.
    samples = model.read(X)
    present: Mask | None = None
    if missing is not None:
        present = missing.present_in(samples)
    if present is None:
        return np.zeros((samples.shape[0], len(model.view_names_)), dtype=bool)
    return ~present


def colour(k: int) -> str:
    """Return the colour of the k-th class, kernel or line."""
    return PALETTE[k % len(PALETTE)]


def line_style(k: int) -> Settings:
    """Return colour and dashes of the k-th line; where colours repeat, the dashes differ."""
    dashes = ("solid", "dashed", "dashdot", "dotted")
    return {"color": colour(k), "linestyle": dashes[(k // len(PALETTE) + k) % len(dashes)]}


def open_frame(ax: Any, grid: str = "y") -> None:
    """Remove the top and right sides of the frame, and draw a grid in grey.

    The lines lead along the ticks of one axis, or of both.
    """
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis=grid, color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)


def name_few_values(ax: Any, values: Array) -> None:
    """Label a logarithmic x axis by its values if they are few.

    The default labels between powers of ten would overlap.
    """
    if len(values) <= _FEW_VALUES:
        ax.set_xticks(values, [f"{value:.2g}" for value in values])
        ax.set_xticks([], minor=True)


def name_rows(ax: Any, names: Sequence[str]) -> None:
    """Write names beside the rows 0, 1, … of the axes."""
    ax.set_yticks(np.arange(len(names)), names, fontsize=9 if len(names) <= _FEW_ROWS else 7)
    ax.tick_params(axis="y", length=0)


def bar_rows(ax: Any, names: Sequence[str]) -> None:
    """Prepare axes for rows of bars from zero: names, the first row at the top, no frame."""
    name_rows(ax, names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.axvline(0.0, color="black", linewidth=0.8, zorder=1)
    ax.spines[["top", "right", "left"]].set_visible(False)


def draw_map(
    display: Display, values: Array, name: str, extend: str = "neither", **style: Any
) -> Any:
    """Draw a matrix as colours with a labelled colour bar, and return the image.

    `extend` names the ends of the colour bar beyond which there are values, as in matplotlib.
    """
    options = {"cmap": "cividis", "aspect": "auto"} | style
    image = display.ax_.imshow(values, **options)
    display.figure_.colorbar(image, ax=display.ax_, label=name, extend=extend, shrink=0.9)
    return image


def title_left_out(ax: Any, n_drawn: int, n_all: int) -> None:
    """Write above the axes how many kernels are drawn, if not all are."""
    if n_drawn < n_all:
        ax.set_title(f"the {n_drawn} largest of {n_all}", fontsize=9, loc="left")


def plane_around(points: Array, margin: float, resolution: int) -> tuple[Array, Array, Array]:
    """Return a grid over the plane of some points: its two axes and its points.

    Parameters
    ----------
    points : ndarray of shape (n, 2)
    margin : float
        How far the grid reaches beyond the points, as a share of their range.
    resolution : int
        Points along each axis.

    Returns
    -------
    x, y : ndarray of shape (resolution,)
    plane : ndarray of shape (resolution², 2)
        Rows along y.
    """
    width = margin * np.maximum(np.ptp(points, axis=0), 1e-12)
    low = points.min(axis=0) - width
    high = points.max(axis=0) + width
    x = np.linspace(low[0], high[0], resolution)
    y = np.linspace(low[1], high[1], resolution)
    return x, y, np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)


def support_mask(model: Estimator, n: int) -> Mask | None:
    """Return the mask of the support vectors among n samples.

    None if the model has no support vectors, or if the n samples cannot be its training set.
    """
    rows = np.asarray(getattr(model, "support_", []))
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        return None
    # Where all samples are support vectors, rings would not distinguish them.
    if not 0 < len(rows) < n or rows.max() >= n:
        return None
    support = np.zeros(n, dtype=bool)
    support[rows] = True
    return support


def draw_samples(
    ax: Any, X: MatrixLike, groups: Iterable[tuple[Any, Settings]], support: Mask | None
) -> tuple[list[Any], Any]:
    """Draw groups of samples in a plane, and rings around support vectors.

    Parameters
    ----------
    ax : Axes
    X : ndarray of shape (n, 2)
    groups : iterable of (rows, settings)
        The rows of each group, and how `Axes.scatter` draws them.
    support : ndarray of bool or None
        The support vectors.

    Returns
    -------
    samples : list of PathCollection
        One for each group.
    rings : PathCollection or None
    """
    # Few samples are drawn larger: a thousand large ones would hide the regions.
    size = float(np.clip(6000 / max(len(X), 1), 6, 36))
    base = {"s": size, "edgecolors": "black", "linewidths": 0.6, "zorder": 3}
    samples = [ax.scatter(*X[rows].T, **(base | settings)) for rows, settings in groups]
    rings = None
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
    return samples, rings


def draw_zeros(ax: Any, x: Array, y: Array, values: Array, **style: Any) -> list[Any]:
    """Draw the lines where values on a grid are zero, and return their contours.

    The list is empty if there are none.
    """
    if values.min() < 0 < values.max():
        return [ax.contour(x, y, values, levels=[0.0], **style)]
    return []


def class_groups(
    labels: Iterable[Any], y: TargetLike, fills: Iterable[str]
) -> list[tuple[Any, Settings]]:
    """Return the rows of every class and how they are drawn, for `draw_samples`.

    Parameters
    ----------
    labels : iterable
        The classes.
    y : ndarray of shape (n,) or None
        The class of every sample; not read if there are no labels.
    fills : iterable of str
        The colours of the classes. There may be more colours than classes.

    Returns
    -------
    list of (rows, settings)
        A group for each class that has samples; `rows` is a mask of shape (n,). If no class has
        samples, all samples are one group in white.
    """
    groups = []
    for label, fill, marker in zip(labels, fills, cycle(MARKERS), strict=False):
        rows = y == label
        if np.any(rows):
            settings = {"facecolors": fill, "marker": marker, "label": f"class {label}"}
            groups.append((rows, settings))
    if not groups:
        return [(slice(None), {"facecolors": "white"})]
    return groups


def shorten_names(names: list[str], most: int = 36) -> list[str]:
    """Return names of at most `most` letters, long ones without their middle.

    If the names would no longer differ, they are returned as they are.
    """
    half = most // 2
    short_names = []
    for name in names:
        if len(name) > most:
            name = f"{name[: half - 1]}…{name[-half:]}"
        short_names.append(name)
    if len(set(short_names)) < len(set(names)):
        return names
    return short_names
