"""Displays of samples in a plane: decisions at every point, and two directions of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier, is_outlier_detector, is_regressor
from sklearn.decomposition import KernelPCA
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._checks import check_choice
from kernelmosaic._typing import (
    AnyArray,
    Array,
    ArrayOrTensor,
    AxesOrNone,
    Estimator,
    MatrixLike,
    Settings,
    TargetLike,
)
from kernelmosaic.engine.tasks import Labels
from kernelmosaic.plots import drawing
from kernelmosaic.plots.drawing import MARKERS, Display, colour, fitted_model
from kernelmosaic.stacking import check_row_names

# Decisions ----------------------------------------------------------------------------------------


@dataclass
class DecisionRegionDisplay(Display):
    """Predictions of a classifier, regressor or novelty detector over the plane of its two columns.

    Classes are coloured regions with black boundaries, for two classes with the margin dashed;
    values of a regressor are shades; the normal region of a detector is coloured. Support vectors
    are ringed.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    x_grid, y_grid : ndarray of shape (n_grid,)
        The grid.
    response : ndarray of shape (n_grid, n_grid)
        Number of the class, predicted value, or 1 inside and 0 outside; rows along `y_grid`.
    kind : {"classes", "values", "novelty"}
        The kind of the response.
    boundaries : list of ndarray of shape (n_grid, n_grid)
        Functions whose zeros are drawn.
    margin : ndarray of shape (n_grid, n_grid) or None, default=None
        Function whose values −1 and 1 are drawn, dashed.
    classes : ndarray or None, default=None
        The labels.
    X, y : ndarray or None, default=None
        Samples to show, and their classes or targets.
    support : ndarray of bool or None, default=None
        Mask of the support vectors among the samples.
    feature_names : pair of str
        Labels of the axes.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    surface_ : AxesImage
        The regions or values.
    boundaries_ : list of ContourSet
        The boundaries, the margin last.
    samples_ : list of PathCollection
        The samples, a class each.
    support_vectors_ : PathCollection or None
        The rings.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> model = MKLClassifier().fit(X, y)
    >>> display = plots.DecisionRegionDisplay.from_estimator(model, X, y)
    >>> display.figure_.savefig("region.png")
    """

    x_grid: Array
    y_grid: Array
    response: Array
    kind: str
    boundaries: list[Array] = field(default_factory=list)
    margin: Any = None
    classes: Any = None
    X: MatrixLike = None
    y: TargetLike = None
    support: Any = None
    feature_names: tuple[str, str] = ("$x_1$", "$x_2$")

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: MatrixLike,
        y: TargetLike = None,
        *,
        grid_resolution: int = 200,
        eps: float = 0.08,
        ax: AxesOrNone = None,
        **style: Any,
    ) -> Self:
        """Draw the predictions of a fitted estimator in the plane around the samples.

        Parameters
        ----------
        estimator : classifier, regressor or outlier detector
            Fitted to two columns; of this package or of scikit-learn.
        X : array-like, sparse matrix or data frame of shape (n, 2)
            Samples to show; the training set, to have its support vectors ringed.
        y : array-like of shape (n,), optional
            Their classes or targets.
        grid_resolution : int, default=200
            Points along each axis.
        eps : float, default=0.08
            How far the plane reaches beyond the samples, as a share of their range.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.imshow`` for the regions.

        Returns
        -------
        DecisionRegionDisplay
        """
        check_is_fitted(estimator)
        check_row_names(X, y=y)
        points = X.toarray() if sparse.issparse(X) else X
        points = np.asarray(points, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != 2 or len(points) == 0:
            raise ValueError(
                f"X has shape {points.shape}: regions are drawn of models on two columns."
            )
        x_grid, y_grid, plane = drawing.plane_around(points, eps, grid_resolution)
        shape = (grid_resolution, grid_resolution)
        predictions = _predictions_on(_in_form_of(X, plane), estimator, shape)
        if hasattr(X, "columns"):
            first_name, second_name = map(str, X.columns)
            predictions["feature_names"] = (first_name, second_name)
        if y is not None:
            y = np.asarray(y)
        support = drawing.support_mask(fitted_model(estimator), len(points))
        display = cls(x_grid, y_grid, X=points, y=y, support=support, **predictions)
        return display.plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        has_values = self.kind == "values"
        ax = self._use_axes(ax, (6.2, 4.8) if has_values else (5.6, 4.8))

        # 1. Regions or values.
        extent = (self.x_grid[0], self.x_grid[-1], self.y_grid[0], self.y_grid[-1])
        options = {
            "origin": "lower",
            "extent": extent,
            "aspect": "auto",
            "cmap": "cividis",
            "zorder": 0,
        } | style
        self.surface_ = ax.imshow(
            self.response if has_values else self._region_colours(), **options
        )

        # 2. Boundaries and margin.
        self.boundaries_ = []
        solid = {"colors": "black", "linewidths": 1.6}
        for values in self.boundaries:
            self.boundaries_ += drawing.draw_zeros(ax, self.x_grid, self.y_grid, values, **solid)
        if self.margin is not None and self.margin.min() < 1 and self.margin.max() > -1:
            dashed = {"colors": "0.25", "linewidths": 1.0, "linestyles": "dashed"}
            margin = ax.contour(self.x_grid, self.y_grid, self.margin, levels=[-1.0, 1.0], **dashed)
            self.boundaries_.append(margin)
        if has_values:
            self.figure_.colorbar(self.surface_, ax=ax, label="prediction")

        # 3. Samples.
        self.samples_: list[Any] = []
        self.support_vectors_ = None
        if self.X is not None:
            self.samples_, self.support_vectors_ = drawing.draw_samples(
                ax, self.X, self._groups(), self.support
            )
        x_name, y_name = self.feature_names
        ax.set(xlim=extent[:2], ylim=extent[2:], xlabel=x_name, ylabel=y_name)
        return self

    def _region_colours(self) -> Array:
        """Return the colours of the regions; outside a detector's normal region it is white."""
        from matplotlib.colors import to_rgb

        names = ("white", colour(0)) if self.kind == "novelty" else drawing.PALETTE
        palette = np.array(list(map(to_rgb, names)))
        colours = palette[self.response.astype(np.intp) % len(palette)]
        # Mixed with white, so that samples stand out.
        return np.asarray(1.0 - 0.45 * (1.0 - colours))

    def _groups(self) -> list[tuple[Any, Settings]]:
        """Return the samples of every class and how they are drawn, for `drawing.draw_samples`.

        Samples of a class have the colour of its region. Those of a regressor are shades on the
        scale of the surface, which is widened to hold their targets.
        """
        if self.y is None:
            return drawing.class_groups((), None, ())
        if self.kind == "values":
            lowest = min(np.min(self.response), np.min(self.y))
            highest = max(np.max(self.response), np.max(self.y))
            self.surface_.set_clim(lowest, highest)
            shades = {"c": self.y, "cmap": self.surface_.cmap, "norm": self.surface_.norm}
            return [(slice(None), shades)]
        if self.classes is None or len(self.classes) == 0:
            labels = list(np.unique(self.y))
            return drawing.class_groups(labels, self.y, ["white"] * len(labels))
        classes = list(self.classes)
        labels = [*classes, *(label for label in np.unique(self.y) if label not in classes)]
        fills = [colour(k) for k in range(len(labels))]
        return drawing.class_groups(labels, self.y, fills)


def _in_form_of(X: MatrixLike, plane: Array) -> MatrixLike:
    """Return points in the form of the samples X: a sparse matrix, a data frame or an array."""
    if sparse.issparse(X):
        return sparse.csr_array(plane)
    if hasattr(X, "iloc"):
        return type(X)(plane, columns=X.columns)
    if hasattr(X, "columns"):
        return type(X)(plane, schema=X.columns)
    return plane


def _predictions_on(plane: Any, estimator: Estimator, shape: tuple[int, int]) -> Settings:
    """Return the fields of a `DecisionRegionDisplay` that describe the predictions.

    Parameters
    ----------
    plane : samples of shape (n_grid², 2)
        The points of the grid.
    estimator : estimator
    shape : tuple of int
        The shape of the grid.
    """
    predicted = np.asarray(estimator.predict(plane)).reshape(shape)
    if is_regressor(estimator):
        return {"response": predicted.astype(np.float64), "kind": "values"}
    scores = None
    if hasattr(estimator, "decision_function"):
        decision = np.asarray(estimator.decision_function(plane), dtype=np.float64)
        scores = decision.reshape(*shape, -1)
    if is_classifier(estimator):
        return _predicted_classes(predicted, scores, estimator)
    if is_outlier_detector(estimator):
        is_inside = predicted > 0
        response = is_inside.astype(np.float64)
        edge = response - 0.5
        if scores is not None:
            edge = scores[:, :, 0]
        return {"response": response, "kind": "novelty", "boundaries": [edge]}
    raise TypeError(
        f"{type(estimator).__name__} is not a classifier, regressor or outlier detector."
    )


def _predicted_classes(predicted: AnyArray, scores: Array | None, estimator: Estimator) -> Settings:
    """Return the fields of a `DecisionRegionDisplay` for a classifier; see `_predictions_on`.

    Parameters
    ----------
    predicted : ndarray of shape (n_grid, n_grid)
        Classes.
    scores : ndarray of shape (n_grid, n_grid, n_outputs) or None
        Decision values.
    estimator : classifier
    """
    classes = np.asarray(estimator.classes_)
    is_binary = len(classes) == 2
    # Scores of pairs of classes cannot be drawn as scores of classes.
    if scores is not None and scores.shape[2] != (1 if is_binary else len(classes)):
        scores = None
    # Where only some samples are support vectors, decision values of ±1 are the margin.
    model = fitted_model(estimator)
    is_sparse = hasattr(model, "support_") and getattr(model, "support_fraction_", 0.0) < 1.0
    margin = None
    if scores is not None and is_binary and is_sparse:
        margin = scores[:, :, 0]
    number = Labels(classes).codes(predicted)
    return {
        "response": number,
        "kind": "classes",
        "boundaries": _class_boundaries(number, scores, len(classes)),
        "margin": margin,
        "classes": classes,
    }


def _class_boundaries(number: AnyArray, scores: Array | None, n_classes: int) -> list[Array]:
    """Return functions on the grid that change sign where classes meet.

    Parameters
    ----------
    number : ndarray of shape (n_grid, n_grid)
        The number of the predicted class; without scores the zeros are its steps.
    scores : ndarray of shape (n_grid, n_grid, n_outputs) or None
        Decision values, whose zeros are smooth lines.
    n_classes : int
    """
    if scores is None:
        return [(number == k) - 0.5 for k in range(n_classes)]
    if n_classes == 2:
        return [scores[:, :, 0]]
    boundaries = []
    for k in range(n_classes):
        best_other = np.delete(scores, k, axis=2).max(axis=2)
        boundaries.append(scores[:, :, k] - best_other)
    return boundaries


# Directions ---------------------------------------------------------------------------------------


@dataclass
class ProjectionDisplay(Display):
    """A scatter of samples along two directions, coloured by class.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    points : ndarray of shape (n_samples, 2)
        The coordinates of the samples.
    classes : ndarray of shape (n_samples,) or None
        Their classes.
    shares : ndarray of shape (2,)
        Explained share of each direction: of the variance in feature space, or of the discriminant
        criterion.
    axis_name : str
        Label of the directions.

    Attributes
    ----------
    ax_ : Axes
        Where it was drawn.
    figure_ : Figure
        Its figure.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import DiscriminantMKLClassifier, plots
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DiscriminantMKLClassifier().fit(X, y)
    >>> display = plots.ProjectionDisplay.from_estimator(model, X, y)
    >>> display.figure_.savefig("projection.png")
    """

    points: Array
    classes: AnyArray | None
    shares: Array
    axis_name: str = "component"

    @property
    def explained_share(self) -> float:
        """The share that both directions explain together."""
        return float(self.shares.sum())

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: MatrixLike,
        y: TargetLike = None,
        *,
        method: str = "kernel_pca",
        output: int = 0,
        ax: AxesOrNone = None,
    ) -> Self:
        """Draw samples by the kernel or the projection of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted; with `kernel_matrix` for ``method="kernel_pca"``, with `transform` for
            ``method="transform"``.
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,), optional
            Their classes.
        method : {"kernel_pca", "transform"}, default="kernel_pca"
            Principal components of the combined kernel's feature space, or the estimator's own
            projection.
        output : int, default=0
            The class whose kernel is used, where every class has weights of its own.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ProjectionDisplay
        """
        check_is_fitted(estimator)
        check_row_names(X, y=y)
        if check_choice("method", method, ("kernel_pca", "transform")) == "kernel_pca":
            K = np.asarray(estimator.kernel_matrix(X))
            if K.ndim != 2:
                K = K[output]
            return cls.from_kernel_matrix(K, y, ax=ax)
        if not hasattr(estimator, "transform"):
            raise TypeError(
                f"{type(estimator).__name__} has no transform: use method='kernel_pca'."
            )
        Z = np.asarray(estimator.transform(X), dtype=np.float64)
        ratio = np.asarray(getattr(estimator, "explained_ratio_", np.full(Z.shape[1], np.nan)))
        classes = None if y is None else np.asarray(y)
        display = cls(_two_columns(Z), classes, _two_columns(ratio), "discriminant")
        return display.plot(ax=ax)

    @classmethod
    def from_kernel_matrix(
        cls, K: ArrayOrTensor, y: TargetLike = None, *, ax: AxesOrNone = None
    ) -> Self:
        """Draw the first two principal components of any symmetric kernel matrix."""
        K = np.asarray(K, dtype=np.float64)
        if K.ndim != 2 or K.shape[0] != K.shape[1]:
            raise ValueError(f"K has the shape {K.shape}: give a square kernel matrix.")
        pca = KernelPCA(n_components=2, kernel="precomputed", eigen_solver="dense")
        points = pca.fit_transform(K)
        # The trace of the centred kernel matrix is the variance in feature space, times n.
        variance = float(np.trace(K) - K.sum() / len(K))
        shares = np.zeros(points.shape[1])
        if variance > 0:
            shares = np.sum(points**2, axis=0) / variance
        classes = None if y is None else np.asarray(y)
        display = cls(_two_columns(points), classes, _two_columns(shares), "principal component")
        return display.plot(ax=ax)

    def plot(self, ax: AxesOrNone = None, **scatter: Any) -> Self:
        """Draw, on the given axes or in a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.
        **scatter
            Passed to ``Axes.scatter``.

        Returns
        -------
        self
        """
        ax = self._use_axes(ax, (5.6, 4.8))
        labels = np.zeros(len(self.points)) if self.classes is None else self.classes
        for k, label in enumerate(np.unique(labels)):
            style = {
                "s": 26,
                "linewidths": 0.4,
                "edgecolors": "white",
                "alpha": 0.9,
                "label": str(label),
                "c": colour(k),
                "marker": MARKERS[k % len(MARKERS)],
            } | scatter
            ax.scatter(*self.points[labels == label].T, **style)
        ax.set_xlabel(self._axis_label("first", self.shares[0]))
        ax.set_ylabel(self._axis_label("second", self.shares[1]))
        if self.classes is not None:
            ax.legend(title="class", frameon=False, loc="best")
        return self

    def _axis_label(self, ordinal: str, share: float) -> str:
        """Return the label of an axis, with the share that its direction explains.

        An unknown share is left out.
        """
        label = f"{ordinal} {self.axis_name}"
        if np.isfinite(share):
            label += f" ({100 * share:.1f} %)"
        return label


def _two_columns(Z: Array) -> Array:
    """Return the first two entries along the last axis; missing ones are zero.

    A missing second direction is one along which nothing varies.
    """
    return np.concatenate([Z, np.zeros((*Z.shape[:-1], 2))], axis=-1)[..., :2]
