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
    TargetLike,
)
from kernelmosaic.engine.pipelines import behind_pipeline
from kernelmosaic.plots import drawing
from kernelmosaic.plots.drawing import MARKERS, Display, colour, fitted_model
from kernelmosaic.stacking import check_row_names

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
