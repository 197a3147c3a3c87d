"""Displays of samples: contributions to one decision, views present, predicted survival, views
without labels."""

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
    """Contribution of each view to the decision on one sample, from the constant to the decision: a
    waterfall chart.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    contributions : ndarray of shape (views,)
        The contributions of the views.
    names : list of str
        Of the views.
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
        What they are of.

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
            What is true of it, for the title.
        max_views : int, default=15
            Of more views, those that add least are drawn as one.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ContributionsDisplay
        """
        fitted_model(estimator, "contributions", cls.__name__)
        model, read = behind_pipeline(estimator, X)
        terms, constants = np.asarray(model.contributions(read)), np.atleast_1d(model.intercept_)
        if len(terms) != 1:
            raise ValueError(f"X has {len(terms)} samples: give one, such as X[:1].")
        predicted = model.predict(read)[0]
        classes = list(getattr(model, "classes_", ()))
        chosen = classes.index(predicted) if terms.ndim == 3 and classes else 0
        sums = by_view(terms[0] if terms.ndim == 2 else terms[0, :, chosen], model.view_names_)
        title = f"predicted: {_written(predicted)}"
        if hasattr(model, "predict_proba"):
            title += f", probability {model.predict_proba(read)[0, classes.index(predicted)]:.2f}"
        title += "" if truth is None else f"; true: {_written(truth)}"
        if lacking := dict.fromkeys(
            np.array(model.view_names_)[drawing.lacking_views(model, read)[0]]
        ):
            title += f"\nmissing view (imputed): {', '.join(lacking)}"
        shown = dict(sorted(sums.items(), key=lambda item: -abs(item[1])))
        if len(shown) > max_views:
            rest = [shown.pop(name) for name in list(shown)[max_views - 1 :]]
            shown[f"{len(rest)} others"] = sum(rest)
        values = np.array(list(shown.values()))
        return cls(values, list(shown), float(constants[chosen]), title).plot(ax)

    def plot(self, ax: AxesOrNone = None) -> Self:
        """Draw, on the given axes or in a new figure."""
        ends = self.constant + np.concatenate([[0.0], np.cumsum(self.contributions)])
        starts = np.concatenate([[0.0], ends[:-1], [0.0]])
        ends = np.append(ends, ends[-1])
        self.shown_ = ["constant", *self.names, "decision"]
        ax = self._use_axes(ax, (4.4 + 0.07 * max(map(len, self.shown_)), 1.5 + 0.32 * len(ends)))
        places, sizes = np.arange(len(ends)), ends - starts
        colours = [
            "0.6",
            *(colour(0) if one >= 0 else colour(4) for one in self.contributions),
            "0.3",
        ]
        self.bars_ = ax.barh(places, sizes, left=starts, color=colours, height=0.65)
        ax.bar_label(self.bars_, [f"{one:+.3g}" for one in sizes], padding=3, fontsize=8)
        for place in places[:-1]:
            ax.plot([ends[place]] * 2, [place - 0.32, place + 1.32], color="0.5", linewidth=0.8)
        drawing.bar_rows(ax, self.shown_)
        ax.set_xlabel("decision")
        ax.set_title(self.title, fontsize=9, loc="left")
        ax.use_sticky_edges = (
            False  # the ends of bars would have no margin, and no room for their numbers
        )
        ax.margins(x=0.18)
        return self


@dataclass
class ViewMapDisplay(Display):
    """Which samples have which views: one line per view, filled where samples have it, similar
    samples side by side.

    Make it by :meth:`from_views`.

    Parameters
    ----------
    present : ndarray of bool of shape (n_samples, views)
        Which samples have which views.
    names : list of str
        Of the views.

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
        """Draw which samples have any entry of the columns of each view.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Samples, NaN where they lack something.
        views : mapping
            From the name of a view to its columns, as :func:`~kernelmosaic.stack_views` returns
            them.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ViewMapDisplay
        """
        cut = (
            np.asarray(_safe_indexing(X, _get_column_indices(X, list(own)), axis=1))
            for own in views.values()
        )
        return cls(np.column_stack([~is_missing(V).all(axis=1) for V in cut]), list(views)).plot(ax)

    def plot(self, ax: AxesOrNone = None) -> Self:
        """Draw, on the given axes or in a new figure."""
        from matplotlib.colors import ListedColormap

        n, count = self.present.shape
        # Samples with the same views are neighbours, those with most views first.
        self.order_ = np.lexsort([*(~self.present).T[::-1], -self.present.sum(axis=1)])
        ax = self._use_axes(ax, (5.2 + 0.07 * max(map(len, self.names)), 1.0 + 0.32 * count))
        style = {"cmap": ListedColormap(["0.92", colour(0)]), "vmin": 0, "vmax": 1}
        self.image_ = ax.imshow(
            self.present[self.order_].T, aspect="auto", interpolation="nearest", **style
        )
        drawing.name_rows(ax, self.names)
        ax.set_yticks(np.arange(count + 1) - 0.5, minor=True)
        ax.grid(which="minor", axis="y", color="white", linewidth=3)
        ax.tick_params(axis="y", which="both", length=0)
        for m, have in enumerate(self.present.sum(axis=0)):
            ax.text(
                1.01,
                m,
                f"{have} of {n}",
                transform=ax.get_yaxis_transform(),
                va="center",
                fontsize=8,
            )
        ax.set_xlabel("samples; grey: the view is missing")
        ax.spines[:].set_visible(False)
        return self


def _written(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
