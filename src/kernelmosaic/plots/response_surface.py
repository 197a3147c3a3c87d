"""The fitted surface of a response-surface search, seen from above."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._typing import AxesOrNone, Estimator
from kernelmosaic.plots._common import pyplot

Array = NDArray[np.float64]

#: Okabe and Ito's vermilion: told apart from the blues and yellows of the map by any eye.
_ACCENT = "#D55E00"


@dataclass
class ResponseSurfaceDisplay:
    """Contours of the fitted surface, with the points evaluated and the best of them.

    Make it by :meth:`from_search`.

    Parameters
    ----------
    x, y : ndarray of shape (n_grid,)
        The two factors, on their own scale.
    response : ndarray of shape (n_grid, n_grid)
        The fitted surface, rows along `y`.
    points : ndarray of shape (n_points, 2)
        What was evaluated, failures left out, on the factors' own scale; the centre first.
    n_initial : int
        How many of the points are the design.
    best : ndarray of shape (2,)
        The best validated point.
    labels : tuple of str
        Names of the factors.
    response_name : str
        What the contours show.

    Attributes
    ----------
    ax_ : Axes
        Where it was drawn.
    figure_ : Figure
        Its figure.
    contours_ : QuadContourSet
        The filled contours.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier, model_selection, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.kernels import Gaussian, Linear, Polynomial
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> model = MKLClassifier([Linear(), Polynomial(), Gaussian()])
    >>> search = model_selection.ResponseSurfaceSearchCV(model, cv=2, max_iter=1).fit(X, y)
    >>> display = plots.ResponseSurfaceDisplay.from_search(search)
    >>> display.figure_.savefig("surface.png")
    """

    x: Array
    y: Array
    response: Array
    points: Array
    n_initial: int
    best: Array
    labels: tuple[str, str]
    response_name: str = "fitted response"
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)
    contours_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_search(
        cls, search: Any, factors: Any = None, *, grid_resolution: int = 101, ax: AxesOrNone = None
    ) -> Self:
        """Draw the surface of a fitted search.

        Parameters
        ----------
        search : ResponseSurfaceSearchCV
            Fitted.
        factors : pair of int or str, optional
            Which two of ``search.design_.labels`` to show; needed with more than two. The others stay at the best.
        grid_resolution : int, default=101
            Points of the grid along each axis.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ResponseSurfaceDisplay
        """
        check_is_fitted(search, "surface_")
        design = search.design_
        pair = _pair(factors, list(design.labels))
        ok = np.isfinite(design.responses)
        ok[0] = True  # the centre is shown even if its fit failed
        best = design.points[np.nanargmin(design.responses)]
        lower, upper = _box(search, design.points)
        x, y = (np.linspace(lower[k], upper[k], grid_resolution) for k in pair)
        Z = np.tile(best, (grid_resolution**2, 1))
        Z[:, pair] = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
        # One minus the accuracy is an error; of any other score only the sign is turned.
        is_accuracy = search.scoring == "accuracy" or (search.scoring is None and is_classifier(search.estimator))
        offset, name = (1.0, "fitted validation error") if is_accuracy else (0.0, "minus the fitted score")
        display = cls(
            x=10.0**x,
            y=10.0**y,
            response=offset + search.surface_.predict(Z).reshape(grid_resolution, grid_resolution),
            points=10.0 ** design.points[ok][:, pair],
            n_initial=int(ok[: design.n_initial].sum()),
            best=10.0 ** best[pair],
            labels=(design.labels[pair[0]], design.labels[pair[1]]),
            response_name=name,
        )
        return display.plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator: Estimator, factors: Any = None, **options: Any) -> Self:
        """Draw the surface of a fitted search; the same as :meth:`from_search`."""
        return cls.from_search(estimator, factors, **options)

    def plot(self, ax: AxesOrNone = None, *, cmap: str = "cividis", levels: int = 12) -> Self:
        """Draw, on the given axes or in a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.
        cmap : str, default="cividis"
            Colours, dark for low; the default reads alike for all kinds of colour vision.
        levels : int, default=12
            Number of contours.

        Returns
        -------
        self
        """
        plt = pyplot()
        from matplotlib.colors import BoundaryNorm

        if ax is None:
            _, ax = plt.subplots(figsize=(6.2, 4.8), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        low, high = float(self.response.min()), float(self.response.max())
        # Rings of a quadratic at equal distances: the neighbourhood of the optimum is what one looks for.
        values = low + max(high - low, 1e-9) * np.linspace(0, 1, levels + 1) ** 2
        colours = plt.get_cmap(cmap, levels)
        norm = BoundaryNorm(values, levels)
        self.contours_ = ax.contourf(self.x, self.y, self.response, levels=values, cmap=colours, norm=norm)
        ax.contour(
            self.x, self.y, self.response, levels=self.contours_.levels, colors="white", linewidths=0.4, alpha=0.6
        )
        self.figure_.colorbar(self.contours_, ax=ax, label=self.response_name, ticks=values[::2], format="%.3f")
        self._draw_points(ax)
        ax.set(xscale="log", yscale="log", xlabel=_mathematical(self.labels[0]), ylabel=_mathematical(self.labels[1]))
        for axis in (ax.xaxis, ax.yaxis):
            _tick_plainly(axis)
        ax.margins(0)
        ax.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.13),
            ncols=4,
            frameon=False,
            handletextpad=0.2,
            columnspacing=1.2,
        )
        return self

    def _draw_points(self, ax: AxesOrNone) -> None:
        ring = {"s": 42, "linewidths": 1.2, "edgecolors": "black", "clip_on": False}
        design, later = self.points[1 : self.n_initial], self.points[self.n_initial :]
        ax.scatter(*self.points[:1].T, facecolors="black", label="centre", zorder=3.5, **ring)
        ax.scatter(*design.T, facecolors="white", label="design", zorder=3, **ring)
        if len(later):
            ax.scatter(*later.T, facecolors="#56B4E9", marker="s", label="later", zorder=3, **ring)
        ax.scatter(
            *self.best,
            marker="*",
            s=230,
            c=_ACCENT,
            edgecolors="white",
            linewidths=0.9,
            label="best",
            zorder=4,
            clip_on=False,
        )


def _pair(factors: Any, labels: list[str]) -> list[int]:
    """The columns of the two factors to show."""
    if factors is None:
        if len(labels) != 2:
            raise ValueError(
                f"the search has {len(labels)} factors: choose two by factors=, among {', '.join(labels)}."
            )
        return [0, 1]
    chosen = [labels.index(f) if f in labels else f for f in factors]
    if len(chosen) != 2 or chosen[0] == chosen[1] or any(f not in range(len(labels)) for f in chosen):
        raise ValueError(f"factors={factors!r}: give two different ones of {', '.join(labels)}, or their numbers.")
    return chosen


def _box(search: Any, points: Array) -> tuple[Array, Array]:
    """The box that was searched; the design is centred at its first point."""
    bounds = np.broadcast_to(np.asarray(search.bounds, dtype=np.float64), (points.shape[1], 2))
    return points[0] + bounds[:, 0], points[0] + bounds[:, 1]


def _mathematical(label: str) -> str:
    """``d[gaussian]`` as d with a subscript; other names as they are."""
    letter, bracket, name = label.removesuffix("]").partition("[")
    if not bracket or not label.endswith("]") or letter not in ("d", "η"):
        return label
    symbol = {"d": "d", "η": r"\eta"}[letter]
    word = name.replace("_", r"\_").replace(" ", r"\ ")
    return rf"${symbol}_{{\mathrm{{{word}}}}}$"


def _tick_plainly(axis: Any) -> None:
    """Label 0.1, 0.2, 0.5, 1, … instead of powers of ten: a penalty is read as a number."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10.0, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
