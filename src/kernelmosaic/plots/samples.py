"""Displays of samples: contributions of the views to one decision, and the views of all samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils._indexing import _get_column_indices

from kernelmosaic._typing import (
    Array,
    AxesOrNone,
    Estimator,
    Mask,
    MatrixLike,
)
from kernelmosaic.engine.pipelines import behind_pipeline
from kernelmosaic.kernels.base import is_missing
from kernelmosaic.plots import drawing
from kernelmosaic.plots.drawing import Display, colour, fitted_model
from kernelmosaic.stacking import by_view


@dataclass
class ContributionsDisplay(Display):
    """Contribution of each view to the decision on one sample: a waterfall chart.

    It leads from the constant to the decision. Make it by :meth:`from_estimator`.

    Parameters
    ----------
    contributions : ndarray of shape (views,)
        The contributions of the views.
    names : list of str
        The names of the views.
    constant : float
        The constant of the decision.
    title : str, default=""
        The prediction.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    bars_ : BarContainer
        The constant, the views, the decision, from top to bottom.
    shown_ : list of str
        The names of the bars.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifierCV, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> model = MKLClassifierCV(Cs=3, cv=3).fit({"first": X[:, :1], "second": X[:, 1:]}, y)
    >>> display = plots.ContributionsDisplay.from_estimator(model, X[:1], truth=y[0])
    >>> display.figure_.savefig("waterfall.png")
    """

    contributions: Array
    names: list[str]
    constant: float
    title: str = ""

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: MatrixLike,
        *,
        truth: object = None,
        max_views: int = 15,
        ax: AxesOrNone = None,
    ) -> Self:
        """Draw the decision of a fitted estimator on a sample.

        Parameters
        ----------
        estimator : estimator
            Fitted; any of this package with ``contributions``, or a pipeline or search around one.
            Of several classes, the decision is that of the predicted one.
        X : array-like of shape (1, n_features)
            The sample.
        truth : label or number, optional
            Its true class or value, for the title.
        max_views : int, default=15
            Of more views, those that add least are drawn as one.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ContributionsDisplay
        """
        fitted_model(estimator, "contributions", cls.__name__)
        model, X = behind_pipeline(estimator, X)
        contributions = np.asarray(model.contributions(X))
        constants = np.atleast_1d(model.intercept_)
        if len(contributions) != 1:
            raise ValueError(f"X has {len(contributions)} samples: give one, such as X[:1].")

        # 1. The contributions of the views, of several outputs to that of the predicted class.
        predicted = model.predict(X)[0]
        classes = list(getattr(model, "classes_", ()))
        output = 0
        if contributions.ndim == 3 and classes:
            output = classes.index(predicted)
        of_kernels = contributions[0]
        if contributions.ndim == 3:
            of_kernels = of_kernels[:, output]
        of_views = by_view(of_kernels, model.view_names_)
        largest_first = sorted(of_views, key=lambda view: -abs(of_views[view]))
        bars = {view: of_views[view] for view in largest_first}
        if len(bars) > max_views:
            small = [bars.pop(view) for view in largest_first[max_views - 1 :]]
            bars[f"{len(small)} others"] = sum(small)

        # 2. The title.
        title = f"predicted: {_written(predicted)}"
        if hasattr(model, "predict_proba"):
            probability = model.predict_proba(X)[0, classes.index(predicted)]
            title += f", probability {probability:.2f}"
        if truth is not None:
            title += f"; true: {_written(truth)}"
        is_lacking = drawing.lacking_views(model, X)[0]
        missing_views = dict.fromkeys(np.array(model.view_names_)[is_lacking])
        if missing_views:
            title += f"\nmissing view (imputed): {', '.join(missing_views)}"
        values = np.array(list(bars.values()))
        return cls(values, list(bars), float(constants[output]), title).plot(ax)

    def plot(self, ax: AxesOrNone = None) -> Self:
        """Draw, on the given axes or in a new figure."""
        # Bar by bar: the constant, the views, the decision. Every view starts where the bar above
        # it stops.
        stops = self.constant + np.concatenate([[0.0], np.cumsum(self.contributions)])
        starts = np.concatenate([[0.0], stops[:-1], [0.0]])
        stops = np.append(stops, stops[-1])
        sizes = stops - starts
        self.shown_ = ["constant", *self.names, "decision"]
        width = 4.4 + 0.07 * max(map(len, self.shown_))
        ax = self._use_axes(ax, (width, 1.5 + 0.32 * len(stops)))
        rows = np.arange(len(stops))
        view_colours = [colour(0) if value >= 0 else colour(4) for value in self.contributions]
        colours = ["0.6", *view_colours, "0.3"]
        self.bars_ = ax.barh(rows, sizes, left=starts, color=colours, height=0.65)
        ax.bar_label(self.bars_, [f"{size:+.3g}" for size in sizes], padding=3, fontsize=8)
        for row in rows[:-1]:
            ax.plot([stops[row]] * 2, [row - 0.32, row + 1.32], color="0.5", linewidth=0.8)
        drawing.bar_rows(ax, self.shown_)
        ax.set_xlabel("decision")
        ax.set_title(self.title, fontsize=9, loc="left")
        # With sticky edges there would be no margin beyond the bars, and no room for their numbers.
        ax.use_sticky_edges = False
        ax.margins(x=0.18)
        return self


@dataclass
class ViewMapDisplay(Display):
    """The views that samples have: one line per view, filled where samples have it.

    Samples with the same views are side by side. Make it by :meth:`from_views`.

    Parameters
    ----------
    present : ndarray of bool of shape (n_samples, views)
        Whether each sample has each view.
    names : list of str
        The names of the views.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    image_ : AxesImage
        The map.
    order_ : ndarray of int
        The samples from left to right.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import plots
    >>> X = np.array([[1.0, 2.0, 3.0], [np.nan, np.nan, 3.0]])
    >>> display = plots.ViewMapDisplay.from_views(X, {"rna": [0, 1], "protein": [2]})
    >>> display.figure_.savefig("map.png")
    """

    present: Mask
    names: list[str]

    @classmethod
    def from_views(cls, X: MatrixLike, views: Mapping[str, Any], *, ax: AxesOrNone = None) -> Self:
        """Draw the views of samples; a sample has a view if it has an entry in one of its columns.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Samples, NaN in missing entries.
        views : mapping
            From the name of a view to its columns, as :func:`~kernelmosaic.stack_views` returns
            them.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ViewMapDisplay
        """
        present = []
        for columns in views.values():
            numbers = _get_column_indices(X, list(columns))
            V = np.asarray(_safe_indexing(X, numbers, axis=1))
            present.append(~is_missing(V).all(axis=1))
        return cls(np.column_stack(present), list(views)).plot(ax)

    def plot(self, ax: AxesOrNone = None) -> Self:
        """Draw, on the given axes or in a new figure."""
        from matplotlib.colors import ListedColormap

        n, n_views = self.present.shape
        # Samples with most views come first, and those with the same views side by side. lexsort
        # reads its last key first.
        by_view = (~self.present).T[::-1]
        self.order_ = np.lexsort([*by_view, -self.present.sum(axis=1)])
        width = 5.2 + 0.07 * max(map(len, self.names))
        ax = self._use_axes(ax, (width, 1.0 + 0.32 * n_views))
        style = {"cmap": ListedColormap(["0.92", colour(0)]), "vmin": 0, "vmax": 1}
        self.image_ = ax.imshow(
            self.present[self.order_].T, aspect="auto", interpolation="nearest", **style
        )
        drawing.name_rows(ax, self.names)
        ax.set_yticks(np.arange(n_views + 1) - 0.5, minor=True)
        ax.grid(which="minor", axis="y", color="white", linewidth=3)
        ax.tick_params(axis="y", which="both", length=0)
        text_style = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": 8}
        for row, count in enumerate(self.present.sum(axis=0)):
            ax.text(1.01, row, f"{count} of {n}", **text_style)
        ax.set_xlabel("samples; grey: the view is missing")
        ax.spines[:].set_visible(False)
        return self


def _written(value: object) -> str:
    """Return a class or value as text, numbers with four digits."""
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
