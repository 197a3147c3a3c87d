"""Displays of estimators without labels: similarity of views, embeddings and their eigenvalues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kernelmosaic._typing import (
    AnyArray,
    Array,
    AxesOrNone,
    Estimator,
    Mask,
    MatrixLike,
    Settings,
    TargetLike,
)
from kernelmosaic.engine.pipelines import behind_pipeline
from kernelmosaic.plots import drawing
from kernelmosaic.plots.drawing import MARKERS, Display, colour, fitted_model
from kernelmosaic.stacking import check_row_names

#: The estimators that these displays can draw, for errors.
_DRAWABLE = "MKLKernelPCA and MKLClustering"
#: Different numbers above which samples are coloured on a scale, not by group; chosen by hand.
_MOST_GROUPS = 10


@dataclass
class ViewSimilarityDisplay(Display):
    """Similarity of every two views: a heat map.

    A star marks two views that depend on each other, brackets a view that was left out. Make it by
    :meth:`from_estimator`.

    Parameters
    ----------
    similarity, pvalues : ndarray of shape (V, V)
        The similarities, and the p-values of the test of independence, adjusted for the number of
        pairs.
    names : list of str
        The names of the views.
    kept : ndarray of bool of shape (V,)
        Mask of the views that have a weight.
    level : float, default=0.05
        The p-value up to which two views are called dependent.

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
        model = fitted_model(estimator, "similarity_", cls.__name__, _DRAWABLE)
        has_weight = np.array([model.view_weights_[name] > 0 for name in model.views_])
        display = cls(model.similarity_, model.pvalues_, model.views_, has_weight)
        return display.plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        side = 2.4 + 0.45 * len(self.names)
        ax = self._use_axes(ax, (side + 1.0, side))
        options = {"vmin": 0.0, "vmax": 1.0} | style
        self.image_ = drawing.draw_map(
            self, self.similarity, "similarity (RV, unbiased)", **options
        )
        for v, w in np.ndindex(self.similarity.shape):
            if v == w:
                continue
            similarity = self.similarity[v, w]
            text = f"{similarity:.2f}"
            if self.pvalues[v, w] <= self.level:
                text += "*"
            ink = "black" if similarity > 0.5 else "white"
            ax.text(w, v, text, ha="center", va="center", color=ink, fontsize=8)
        names = []
        for name, has_weight in zip(self.names, self.kept, strict=True):
            names.append(name if has_weight else f"({name})")
        drawing.name_rows(ax, names)
        ax.set_xticks(np.arange(len(names)), names, rotation=45, ha="right", fontsize=9)
        title = f"*: dependent at {self.level:g}; in brackets: no weight"
        ax.set_title(title, fontsize=9, loc="left")
        return self


@dataclass
class EmbeddingDisplay(Display):
    """Samples at two coordinates of an embedding, coloured by cluster or target.

    Samples that lack a view are hollow, or ringed. Make it by :meth:`from_estimator`.

    Parameters
    ----------
    points : ndarray of shape (n_samples, 2)
        The coordinates.
    labels : ndarray of shape (n_samples,) or None
        Classes or numbers that give the colours; more than ten different numbers have a colour bar.
    lacking : ndarray of bool of shape (n_samples,)
        Mask of the samples that lack a view.
    axis_names : tuple of str
        Labels of the coordinates.

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
            The numbers of the coordinates.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.scatter``.

        Returns
        -------
        EmbeddingDisplay
        """
        check_row_names(X, y=y)
        fitted_model(estimator, "embedding_", cls.__name__, _DRAWABLE)
        model, X = behind_pipeline(estimator, X)
        embed = model.transform if hasattr(model, "transform") else model.embed
        Z = np.asarray(embed(X), dtype=np.float64)
        # All samples are at zero along a coordinate that the embedding does not have.
        n_missing = max(2 - Z.shape[1], 0)
        Z = np.column_stack([Z, np.zeros((len(Z), n_missing))])
        labels = None
        if y is not None:
            labels = np.asarray(y)
        elif hasattr(model, "predict"):
            labels = model.predict(X)
        lacking = np.asarray(drawing.lacking_views(model, X).any(axis=1))
        shares = getattr(model, "explained_", ())
        axis_names = []
        for component in components:
            name = f"component {component + 1}"
            if component < len(shares):
                name += f" ({shares[component]:.1%})"
            axis_names.append(name)
        display = cls(Z[:, list(components)], labels, lacking, (axis_names[0], axis_names[1]))
        return display.plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        ax = self._use_axes(ax, (5.6, 4.8))
        labels = np.zeros(len(self.points)) if self.labels is None else self.labels
        groups = np.unique(labels)
        if labels.dtype.kind == "f" and len(groups) > _MOST_GROUPS:
            self._draw_numbers(ax, labels, style)
        else:
            self._draw_groups(ax, labels, groups, style)
        if self.lacking.any():
            ax.set_title("hollow or ringed: lacks a view", fontsize=9, loc="left")
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="best", fontsize=8, framealpha=0.9)
        ax.set(xlabel=self.axis_names[0], ylabel=self.axis_names[1])
        drawing.open_frame(ax, grid="both")
        return self

    def _draw_numbers(self, ax: AxesOrNone, numbers: AnyArray, style: Settings) -> None:
        """Draw samples on a scale of colours, with rings around those that lack a view."""
        options = {"s": 26, "cmap": "cividis", "linewidths": 0} | style
        samples = ax.scatter(*self.points.T, c=numbers, **options)
        ring = {"s": 60, "facecolors": "none", "edgecolors": "0.3", "linewidths": 0.8}
        ax.scatter(*self.points[self.lacking].T, **ring)
        self.figure_.colorbar(samples, ax=ax)

    def _draw_groups(
        self, ax: AxesOrNone, labels: AnyArray, groups: AnyArray, style: Settings
    ) -> None:
        """Draw the samples of every group in a colour and marker, hollow where they lack a view."""
        for k, group in enumerate(groups):
            options: Settings = {
                "s": 26,
                "marker": MARKERS[k % len(MARKERS)],
                "edgecolors": colour(k),
                "linewidths": 0.9,
            }
            if self.labels is not None:
                options["label"] = str(group)
            for is_hollow in (False, True):
                rows = (labels == group) & (self.lacking == is_hollow)
                fill = {"facecolors": "none" if is_hollow else colour(k)}
                if rows.any():
                    ax.scatter(*self.points[rows].T, **options | fill | style)
                    # A group has one entry in the legend.
                    options.pop("label", None)


@dataclass
class EigenvaluesDisplay(Display):
    """The eigenvalues of an embedding, the largest first.

    A gap between them suggests how many components, or clusters, to take. Make it by
    :meth:`from_estimator`.

    Parameters
    ----------
    eigenvalues : ndarray of shape (n_components,)
        The eigenvalues.
    name : str, default="eigenvalue"
        Label of the eigenvalues.

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
        model = fitted_model(estimator, "eigenvalues_", cls.__name__, _DRAWABLE)
        is_graph = getattr(model, "embedding", "kernel") == "graph"
        name = "eigenvalue of the random walk" if is_graph else "eigenvalue"
        return cls(model.eigenvalues_, name).plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        ax = self._use_axes(ax, (4.6, 3.4))
        numbers = np.arange(1, len(self.eigenvalues) + 1)
        options = {"marker": "o", "color": colour(0)} | style
        (self.line_,) = ax.plot(numbers, self.eigenvalues, **options)
        ax.set(xlabel="component", ylabel=self.name)
        ax.xaxis.get_major_locator().set_params(integer=True)
        drawing.open_frame(ax)
        return self
