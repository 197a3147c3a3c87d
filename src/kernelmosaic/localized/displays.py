"""Displays of localized estimators: gates, and the combined kernel that they make."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._typing import Array, AxesOrNone, Estimator, MatrixLike, Settings, TargetLike
from kernelmosaic.plots import drawing
from kernelmosaic.plots.drawing import MARKERS, Display, class_groups, colour
from kernelmosaic.stacking import check_row_names

#: Samples whose gates are drawn as bars: more bars would be too thin to see; chosen by hand.
_MOST_BARS = 150
#: Different targets up to which bars are grouped and named by class; chosen by hand.
_MOST_CLASSES = 20


@dataclass
class GatingDisplay(Display):
    """Gates of a localized estimator.

    With two columns: the plane, each point in the colours of the kernels by their gates, the lines
    where another kernel takes over (dashed), the decision boundary (solid), the samples and,
    ringed, the support vectors. Otherwise: a stacked bar of gates for every sample, grouped by
    class.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        The samples shown.
    gates : ndarray of shape (n, P)
        Their gates.
    names : list of str
        The names of the kernels.
    y : ndarray of shape (n,) or None
        Classes or targets.
    support : ndarray of bool, shape (n,), or None
        Mask of the support vectors.
    x_grid, y_grid : ndarray or None
        Grid of the plane.
    grid_gates : ndarray of shape (n_grid, n_grid, P) or None
        Gates on the grid.
    grid_decision : ndarray of shape (n_grid, n_grid) or None
        Decision function on the grid.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.

    Examples
    --------
    >>> from kernelmosaic import LocalizedMKLClassifier, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.kernels import Linear
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> model = LocalizedMKLClassifier([Linear(), Linear()], random_state=0).fit(X, y)
    >>> display = plots.GatingDisplay.from_estimator(model, X)
    >>> display.figure_.savefig("gates.png")
    """

    X: MatrixLike
    gates: Array
    names: list[str]
    y: TargetLike = None
    support: Any = None
    x_grid: Any = None
    y_grid: Any = None
    grid_gates: Any = None
    grid_decision: Any = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: MatrixLike,
        y: TargetLike = None,
        *,
        output: int = 0,
        grid_resolution: int = 300,
        ax: AxesOrNone = None,
    ) -> Self:
        """Draw the gates of a fitted localized estimator.

        Parameters
        ----------
        estimator : LocalizedMKLClassifier, LocalizedMKLRegressor or LocalizedMKLOneClass
            Fitted.
        X : array-like of shape (n, n_features)
            Samples to show; the training set, to have its support vectors ringed.
        y : array-like of shape (n,), optional
            Their classes.
        output : int, default=0
            The output whose gates are drawn, with more than two classes.
        grid_resolution : int, default=300
            Points along each axis of the plane.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        """
        check_row_names(X, y=y)
        gates = _gates(estimator, X, output)
        points = np.asarray(X)
        samples: Settings = {
            "X": points,
            "gates": gates,
            "names": list(estimator.kernel_names_),
            "y": None if y is None else np.asarray(y),
            "support": drawing.support_mask(estimator, len(points)),
        }
        if points.ndim != 2 or points.shape[1] != 2:
            return cls(**samples).plot(ax=ax)
        x_grid, y_grid, plane = drawing.plane_around(points, 0.05, grid_resolution)
        shape = (grid_resolution, grid_resolution)
        grid_gates = _gates(estimator, plane, output).reshape(*shape, -1)
        grid_decision = None
        if hasattr(estimator, "decision_function"):
            decision = estimator.decision_function(plane)
            grid_decision = _of_output(decision, output, 1).reshape(shape)
        display = cls(
            **samples,
            x_grid=x_grid,
            y_grid=y_grid,
            grid_gates=grid_gates,
            grid_decision=grid_decision,
        )
        return display.plot(ax=ax)

    def plot(self, ax: AxesOrNone = None) -> Self:
        """Draw, on the given axes or in a new figure."""
        if self.grid_gates is None:
            ax = self._use_axes(ax, (8.0, 3.2))
            self._draw_bars(ax)
        else:
            ax = self._use_axes(ax, (6.4, 5.2))
            self._draw_plane(ax)
        from matplotlib.patches import Patch

        handles = [Patch(color=colour(m)) for m in range(len(self.names))]
        style = {"ncols": min(len(self.names), 6), "frameon": False, "fontsize": 9}
        ax.figure.legend(handles, self.names, loc="outside upper center", **style)
        return self

    def _draw_plane(self, ax: AxesOrNone) -> None:
        """Draw the plane in the colours of the kernels, with boundaries and samples."""
        extent = (self.x_grid[0], self.x_grid[-1], self.y_grid[0], self.y_grid[-1])
        ax.imshow(
            self._mixed_colours(),
            origin="lower",
            extent=extent,
            aspect="auto",
            interpolation="bilinear",
            zorder=0,
        )
        # Dashed lines where another gate becomes the largest. Every pair of kernels is drawn once:
        # dashes that are drawn twice look like a solid line.
        largest = self.grid_gates.max(axis=2)
        dashed = {"colors": "0.35", "linewidths": 1.0, "linestyles": "dashed"}
        for m, h in combinations(range(len(self.names)), 2):
            pair = self.grid_gates[:, :, [m, h]]
            is_below_another = pair.max(axis=2) < largest
            difference = np.ma.masked_array(pair[:, :, 0] - pair[:, :, 1], is_below_another)
            drawing.draw_zeros(ax, self.x_grid, self.y_grid, difference, **dashed)
        if self.grid_decision is not None:
            solid = {"colors": "black", "linewidths": 2.0}
            drawing.draw_zeros(ax, self.x_grid, self.y_grid, self.grid_decision, **solid)
        # Classes are white, black and grey, which differ from the colours of the kernels. With more
        # values than markers, all samples are white.
        classes = np.unique([] if self.y is None else self.y)
        if len(classes) > len(MARKERS):
            classes = classes[:0]
        fills = ("white", "black", *["0.5"] * len(MARKERS))
        groups = class_groups(classes, self.y, fills)
        drawing.draw_samples(ax, self.X, groups, self.support)
        ax.set(xlim=extent[:2], ylim=extent[2:], xlabel="$x_1$", ylabel="$x_2$")

    def _mixed_colours(self) -> Array:
        """Return the colours of the kernels on the grid, mixed by the gates.

        They are lightened so that samples stand out; where all gates are near zero they are white.
        """
        from matplotlib.colors import to_rgb

        colours = np.array([to_rgb(colour(m)) for m in range(len(self.names))])
        gates = np.abs(self.grid_gates)
        total = gates.sum(axis=2, keepdims=True)
        mixed = (gates @ colours) / np.maximum(total, 1e-300)
        strength = 0.55 * np.clip(total, 0.0, 1.0)
        return np.asarray(1.0 - strength * (1.0 - mixed))

    def _draw_bars(self, ax: AxesOrNone) -> None:
        """Draw a stacked bar of gates for every sample, by class and then by the largest gate."""
        order = np.argsort(self.gates.argmax(axis=1), kind="stable")
        if self.y is not None:
            order = order[np.argsort(self.y[order], kind="stable")]
        order = _even_selection(order, _MOST_BARS)
        positions = np.arange(len(order))
        bottom = np.zeros(len(order))
        for m in range(len(self.names)):
            heights = self.gates[order, m]
            ax.bar(positions, heights, bottom=bottom, width=1.0, color=colour(m), linewidth=0)
            bottom += heights
        if self.y is not None and len(np.unique(self.y)) <= _MOST_CLASSES:
            classes, first, counts = np.unique(self.y[order], return_index=True, return_counts=True)
            for edge in first[first > 0]:
                ax.axvline(edge - 0.5, color="black", linewidth=1.0)
            ax.set_xticks(first + counts / 2 - 0.5, [f"class {label}" for label in classes])
            ax.tick_params(axis="x", length=0)
        else:
            ax.set_xlabel("samples" if self.y is None else "samples, by target")
        ax.set(xlim=(-0.5, len(order) - 0.5), ylabel="gate")
        ax.margins(y=0)


@dataclass
class LocalKernelDisplay(Display):
    """The combined kernel matrix of a localized estimator, in blocks.

    Samples are ordered by class, then by the kernel with the largest gate. Samples in different
    regions have a combined kernel near zero, so blocks appear as gates become crisp.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        The combined kernel, ordered.
    groups : list of (str, int)
        Names and sizes of the classes, in order.

    Attributes
    ----------
    ax_, figure_, image_
        Where it was drawn.

    Examples
    --------
    >>> from kernelmosaic import LocalizedMKLClassifier, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.kernels import Linear
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> model = LocalizedMKLClassifier([Linear(), Linear()], random_state=0).fit(X, y)
    >>> display = plots.LocalKernelDisplay.from_estimator(model, X, y)
    >>> display.figure_.savefig("kernel.png")
    """

    K: Array
    groups: list[tuple[str, int]]

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: MatrixLike,
        y: TargetLike = None,
        *,
        output: int = 0,
        max_samples: int = 1000,
        ax: AxesOrNone = None,
    ) -> Self:
        """Draw the combined kernel of a fitted localized estimator.

        Parameters
        ----------
        estimator : localized estimator
            Fitted.
        X : array-like of shape (n, n_features)
            Samples.
        y : array-like of shape (n,), optional
            Their classes.
        output : int, default=0
            The output whose kernel is drawn, with more than two classes.
        max_samples : int, default=1000
            Of more samples an even selection is shown.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        """
        check_row_names(X, y=y)
        X = np.asarray(X)
        labels = np.zeros(len(X), dtype=int)
        if y is not None:
            labels = np.asarray(y)
        gates = _gates(estimator, X, output)
        # By class, then by the largest gate, then by the decision, so that similar samples are
        # neighbours. lexsort reads its last key first.
        class_numbers = np.unique(labels, return_inverse=True)[1]
        decide = getattr(estimator, "decision_function", estimator.predict)
        decision = _of_output(decide(X), output, 1)
        order = np.lexsort((decision, gates.argmax(axis=1), class_numbers))
        order = _even_selection(order, max_samples)
        K = estimator.kernel_matrix(X[order])
        if K.ndim == 3:
            K = K[output]
        classes, counts = np.unique(labels[order], return_counts=True)
        names = [f"class {label}" for label in classes]
        if y is None:
            names = ["samples"]
        return cls(K, list(zip(names, map(int, counts), strict=True))).plot(ax=ax)

    def plot(self, ax: AxesOrNone = None, *, cmap: str = "RdBu_r") -> Self:
        """Draw, on the given axes or in a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.
        cmap : str, default="RdBu_r"
            A diverging map: white is zero, where two samples have nothing in common.
        """
        ax = self._use_axes(ax, (6.0, 5.2))
        # The few largest entries are beyond the scale: they would leave one colour for all others.
        largest = float(np.quantile(np.abs(self.K), 0.98)) or 1.0
        style = {
            "cmap": cmap,
            "vmin": -largest,
            "vmax": largest,
            "interpolation": "nearest",
            "aspect": "equal",
        }
        self.image_ = drawing.draw_map(self, self.K, "combined kernel", "both", **style)
        edges = np.cumsum([0, *(size for _, size in self.groups)])
        for edge in edges[1:-1]:
            ax.axhline(edge - 0.5, color="black", linewidth=0.8)
            ax.axvline(edge - 0.5, color="black", linewidth=0.8)
        centres = (edges[:-1] + edges[1:]) / 2 - 0.5
        names = [name for name, _ in self.groups]
        ax.set_xticks(centres, names)
        ax.set_yticks(centres, names, rotation=90, va="center")
        ax.tick_params(length=0)
        return self


def _gates(estimator: Estimator, X: MatrixLike, output: int) -> Array:
    """Return the gates of samples for one output, of shape (n, P), or raise if there are none."""
    check_is_fitted(estimator)
    if not hasattr(estimator, "gate"):
        raise TypeError(
            f"estimator={type(estimator).__name__} has no gates: give a localized estimator."
        )
    return _of_output(np.asarray(estimator.gate(X)), output, 2)


def _of_output(values: Array, output: int, ndim: int) -> Array:
    """Return the values of one output, of `ndim` axes; several outputs have one more, the last."""
    if values.ndim <= ndim:
        return values
    return values[..., output]


def _even_selection(order: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return at most so many of the samples, spread evenly over their order."""
    if len(order) <= most:
        return order
    positions = np.linspace(0, len(order) - 1, most).astype(int)
    selected: NDArray[np.intp] = order[positions]
    return selected
