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
    AnyArray,
    Array,
    AxesOrNone,
    Estimator,
    Mask,
    MatrixLike,
    TargetLike,
)
from kernelmosaic.engine.pipelines import behind_pipeline
from kernelmosaic.kernels.base import is_missing
from kernelmosaic.plots import drawing
from kernelmosaic.plots.drawing import MARKERS, Display, colour, fitted_model
from kernelmosaic.stacking import by_view, check_row_names
from kernelmosaic.survival.metrics import read_times, share_at


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


@dataclass
class SurvivalCalibrationDisplay(Display):
    """Predicted and observed shares of samples that survive a time, by groups of predictions.

    Points on the diagonal are calibrated. Make it by :meth:`from_estimator`.

    Parameters
    ----------
    predicted, observed : ndarray of shape (n_groups,)
        The mean prediction of each group, and Kaplan and Meier's estimate of its share.
    time : float
        The time.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLSurvival, plots
    >>> X = np.random.RandomState(0).randn(60, 2)
    >>> y = np.exp(X[:, 0])
    >>> model = MKLSurvival(loss="cox").fit(X, y)
    >>> display = plots.SurvivalCalibrationDisplay.from_estimator(model, X, y, n_groups=3)
    >>> bool(np.all(np.diff(display.observed) > 0))
    True
    """

    predicted: Array
    observed: Array
    time: float

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: MatrixLike,
        y: TargetLike,
        *,
        time: float | None = None,
        n_groups: int = 5,
        ax: AxesOrNone = None,
        **style: Any,
    ) -> Self:
        """Draw the calibration of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted; :class:`~kernelmosaic.MKLSurvival`, or a search whose best one it is.
        X : array-like of shape (n_samples, n_features)
            Samples, better not those of the fit.
        y : structured array or array-like
            Their events and times.
        time : float, optional
            The time; by default the median of `y`.
        n_groups : int, default=5
            Groups of equal size, in order of the predictions.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.plot``.
        """
        model = fitted_model(
            estimator, "predict_survival_function", cls.__name__, "survival estimators"
        )
        check_row_names(X, y=y)
        held = read_times(y)
        at = float(np.median(held[:, 1])) if time is None else float(time)
        values = np.array(
            [one(min(at, one.domain[1])) for one in model.predict_survival_function(X)]
        )
        groups = np.array_split(np.argsort(values, kind="stable"), n_groups)
        predicted, observed = np.array(
            [(values[rows].mean(), share_at(held[rows], at)) for rows in groups]
        ).T
        return cls(predicted, observed, at).plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        ax = self._use_axes(ax, (3.8, 3.6))
        ax.plot([0, 1], [0, 1], color="#999999", linewidth=1)
        ax.plot(self.predicted, self.observed, **{"marker": "o", "color": colour(0)} | style)
        ax.set(xlabel=f"predicted share alive after {self.time:g}", ylabel="observed share")
        return self


def _written(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


_SHOWN = "MKLKernelPCA and MKLClustering"


@dataclass
class ViewSimilarityDisplay(Display):
    """Similarity of every two views, with a star where they depend on each other; views that were
    left out in brackets.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    similarity, pvalues : ndarray of shape (V, V)
        The similarities, and the p-values of the test of independence, adjusted for the number of
        pairs.
    names : list of str
        Of the views.
    kept : ndarray of bool of shape (V,)
        Which views have a weight.
    level : float, default=0.05
        Up to which p-value two views are called dependent.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    image_ : AxesImage
        The heat map.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLKernelPCA, plots
    >>> rng = np.random.RandomState(0)
    >>> X = rng.randn(50, 3)
    >>> model = MKLKernelPCA(weights="equal").fit([X, X**3, rng.randn(50, 2)])
    >>> display = plots.ViewSimilarityDisplay.from_estimator(model)
    >>> display.figure_.savefig("similarity.png")
    """

    similarity: Array
    pvalues: Array
    names: list[str]
    kept: Mask
    level: float = 0.05

    @classmethod
    def from_estimator(cls, estimator: Estimator, *, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw the similarity of the views of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted; :class:`~kernelmosaic.MKLKernelPCA` or :class:`~kernelmosaic.MKLClustering`.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.imshow``.

        Returns
        -------
        ViewSimilarityDisplay
        """
        model = fitted_model(estimator, "similarity_", cls.__name__, _SHOWN)
        kept = np.array([model.view_weights_[name] > 0 for name in model.views_])
        return cls(model.similarity_, model.pvalues_, model.views_, kept).plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        side = 2.4 + 0.45 * len(self.names)
        ax = self._use_axes(ax, (side + 1.0, side))
        options = {"vmin": 0.0, "vmax": 1.0} | style
        self.image_ = drawing.draw_map(
            self, self.similarity, "similarity (RV, unbiased)", **options
        )
        for v, w in np.ndindex(self.similarity.shape):
            if v != w:
                star = "*" if self.pvalues[v, w] <= self.level else ""
                look = "black" if self.similarity[v, w] > 0.5 else "white"
                ax.text(
                    w,
                    v,
                    f"{self.similarity[v, w]:.2f}{star}",
                    ha="center",
                    va="center",
                    color=look,
                    fontsize=8,
                )
        names = [
            name if kept else f"({name})" for name, kept in zip(self.names, self.kept, strict=True)
        ]
        drawing.name_rows(ax, names)
        ax.set_xticks(np.arange(len(names)), names, rotation=45, ha="right", fontsize=9)
        ax.set_title(
            f"*: dependent at {self.level:g}; in brackets: no weight", fontsize=9, loc="left"
        )
        return self


@dataclass
class EmbeddingDisplay(Display):
    """Samples at two coordinates of an embedding, coloured by cluster or target, hollow where they
    lack a view.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    points : ndarray of shape (n_samples, 2)
        The coordinates.
    labels : ndarray of shape (n_samples,) or None
        Classes or numbers that give the colours; more than ten different numbers have a colour bar.
    lacking : ndarray of bool of shape (n_samples,)
        Which samples lack a view.
    axis_names : tuple of str
        Label of the coordinates.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLClustering, plots
    >>> rng = np.random.RandomState(0)
    >>> X = rng.randn(60, 3) + 4 * np.eye(3)[np.arange(60) % 3]
    >>> model = MKLClustering(3, random_state=0).fit(X)
    >>> display = plots.EmbeddingDisplay.from_estimator(model, X)
    >>> display.figure_.savefig("embedding.png")
    """

    points: Array
    labels: AnyArray | None
    lacking: Mask
    axis_names: tuple[str, str] = ("component 1", "component 2")

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: MatrixLike,
        y: TargetLike = None,
        *,
        components: tuple[int, int] = (0, 1),
        ax: AxesOrNone = None,
        **style: Any,
    ) -> Self:
        """Draw samples in the embedding of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted; :class:`~kernelmosaic.MKLKernelPCA` or :class:`~kernelmosaic.MKLClustering`.
        X : array-like of shape (n_samples, n_features), or tables as in `fit`
            Samples, of the training set or new.
        y : array-like of shape (n_samples,), optional
            Classes or numbers to colour them by; by default the clusters, if there are any.
        components : tuple of two int, default=(0, 1)
            Which coordinates.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.scatter``.

        Returns
        -------
        EmbeddingDisplay
        """
        check_row_names(X, y=y)
        fitted_model(estimator, "embedding_", cls.__name__, _SHOWN)
        model, read = behind_pipeline(estimator, X)
        Z = np.asarray(
            model.transform(read) if hasattr(model, "transform") else model.embed(read),
            dtype=np.float64,
        )
        Z = np.column_stack([Z, np.zeros((len(Z), max(2 - Z.shape[1], 0)))])
        labels = (
            np.asarray(y)
            if y is not None
            else model.predict(read)
            if hasattr(model, "predict")
            else None
        )
        lacking = np.asarray(drawing.lacking_views(model, read).any(axis=1))
        shares = getattr(model, "explained_", ())
        named = [
            f"component {c + 1}" + (f" ({shares[c]:.1%})" if c < len(shares) else "")
            for c in components
        ]
        return cls(Z[:, list(components)], labels, lacking, (named[0], named[1])).plot(
            ax=ax, **style
        )

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        ax = self._use_axes(ax, (5.6, 4.8))
        labels = np.zeros(len(self.points)) if self.labels is None else self.labels
        groups = np.unique(labels)
        if labels.dtype.kind == "f" and len(groups) > 10:
            drawn = ax.scatter(
                *self.points.T, c=labels, **{"s": 26, "cmap": "cividis", "linewidths": 0} | style
            )
            ax.scatter(
                *self.points[self.lacking].T,
                s=60,
                facecolors="none",
                edgecolors="0.3",
                linewidths=0.8,
            )
            self.figure_.colorbar(drawn, ax=ax)
        else:
            for k, group in enumerate(groups):
                look = {
                    "s": 26,
                    "marker": MARKERS[k % 8],
                    "edgecolors": colour(k),
                    "linewidths": 0.9,
                }
                look |= {} if self.labels is None else {"label": str(group)}
                for hollow in (False, True):
                    rows = (labels == group) & (self.lacking == hollow)
                    fill = {"facecolors": "none" if hollow else colour(k)}
                    if rows.any():
                        ax.scatter(*self.points[rows].T, **look | fill | style)
                        look.pop("label", None)
        if self.lacking.any():
            ax.set_title("hollow or ringed: lacks a view", fontsize=9, loc="left")
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="best", fontsize=8, framealpha=0.9)
        ax.set(xlabel=self.axis_names[0], ylabel=self.axis_names[1])
        drawing.open_frame(ax, grid="both")
        return self


@dataclass
class EigenvaluesDisplay(Display):
    """The eigenvalues of an embedding, the largest first: a gap suggests how many components, or
    clusters, to take.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    eigenvalues : ndarray of shape (n_components,)
        The eigenvalues.
    name : str, default="eigenvalue"
        What they are.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    line_ : Line2D
        The curve.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import MKLKernelPCA, plots
    >>> X, _ = load_iris(return_X_y=True)
    >>> display = plots.EigenvaluesDisplay.from_estimator(MKLKernelPCA(n_components=8).fit(X))
    >>> display.figure_.savefig("eigenvalues.png")
    """

    eigenvalues: Array
    name: str = "eigenvalue"

    @classmethod
    def from_estimator(cls, estimator: Estimator, *, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw the eigenvalues of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted; :class:`~kernelmosaic.MKLKernelPCA` or :class:`~kernelmosaic.MKLClustering`.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.plot``.

        Returns
        -------
        EigenvaluesDisplay
        """
        model = fitted_model(estimator, "eigenvalues_", cls.__name__, _SHOWN)
        walk = getattr(model, "embedding", "kernel") == "graph"
        return cls(
            model.eigenvalues_, "eigenvalue of the random walk" if walk else "eigenvalue"
        ).plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        ax = self._use_axes(ax, (4.6, 3.4))
        places = np.arange(1, len(self.eigenvalues) + 1)
        (self.line_,) = ax.plot(
            places, self.eigenvalues, **{"marker": "o", "color": colour(0)} | style
        )
        ax.set(xlabel="component", ylabel=self.name)
        ax.xaxis.get_major_locator().set_params(integer=True)
        drawing.open_frame(ax)
        return self
