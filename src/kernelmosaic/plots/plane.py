"""Samples in a plane: decisions at every point, gates and the kernel that they make, two directions
of a kernel."""

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
    """Predictions of a classifier, regressor or novelty detector over the plane of its two columns,
    with the samples.

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
        Which of these.
    boundaries : list of ndarray of shape (n_grid, n_grid)
        Functions whose zeros are drawn.
    margin : ndarray of shape (n_grid, n_grid) or None, default=None
        Function whose values −1 and 1 are drawn, dashed.
    classes : ndarray or None, default=None
        The labels.
    X, y : ndarray or None, default=None
        Samples to show, and their classes or targets.
    support : ndarray of bool or None, default=None
        Which samples are support vectors.
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
        points = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != 2 or len(points) == 0:
            raise ValueError(
                f"X has shape {points.shape}: regions are drawn of models on two columns."
            )
        x_grid, y_grid, plane = drawing.plane_around(points, eps, grid_resolution)
        said = _read_plane(estimator, _like(X, plane), (grid_resolution, grid_resolution))
        first, second = map(str, X.columns) if hasattr(X, "columns") else ("$x_1$", "$x_2$")
        labels = None if y is None else np.asarray(y)
        support = drawing.support_mask(fitted_model(estimator), len(points))
        display = cls(
            x_grid,
            y_grid,
            **said,
            X=points,
            y=labels,
            support=support,
            feature_names=(first, second),
        )
        return display.plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        ax = self._use_axes(ax, (6.2, 4.8) if self.kind == "values" else (5.6, 4.8))
        extent = (self.x_grid[0], self.x_grid[-1], self.y_grid[0], self.y_grid[-1])
        shown = self.response if self.kind == "values" else self._coloured()
        options = {
            "origin": "lower",
            "extent": extent,
            "aspect": "auto",
            "cmap": "cividis",
            "zorder": 0,
        } | style
        self.surface_ = ax.imshow(shown, **options)
        self.boundaries_ = []
        for values in self.boundaries:
            self.boundaries_ += drawing.draw_zeros(
                ax, self.x_grid, self.y_grid, values, colors="black", linewidths=1.6
            )
        if self.margin is not None and self.margin.min() < 1 and self.margin.max() > -1:
            dashed = {"colors": "0.25", "linewidths": 1.0, "linestyles": "dashed"}
            drawn = ax.contour(self.x_grid, self.y_grid, self.margin, levels=[-1.0, 1.0], **dashed)
            self.boundaries_.append(drawn)
        if self.kind == "values":
            self.figure_.colorbar(self.surface_, ax=ax, label="prediction")
        self.samples_: list[Any] = []
        self.support_vectors_ = None
        if self.X is not None:
            self.samples_, self.support_vectors_ = drawing.draw_samples(
                ax, self.X, self._groups(), self.support
            )
        ax.set(
            xlim=extent[:2],
            ylim=extent[2:],
            xlabel=self.feature_names[0],
            ylabel=self.feature_names[1],
        )
        return self

    def _coloured(self) -> Array:
        """The regions as colours; outside a detector's normal region it is white."""
        from matplotlib.colors import to_rgb

        names = ("white", colour(0)) if self.kind == "novelty" else drawing.PALETTE
        palette = np.array(list(map(to_rgb, names)))
        chosen = palette[self.response.astype(np.intp) % len(palette)]
        # Mixed with white, so that samples stand out.
        return np.asarray(1.0 - 0.45 * (1.0 - chosen))

    def _groups(self) -> list[tuple[Any, Settings]]:
        """The samples of every class with its look; colours of regions and samples agree, and
        shades on one scale."""
        if self.y is None:
            return drawing.class_groups((), None, ())
        if self.kind == "values":
            both = (self.response, self.y)
            self.surface_.set_clim(min(map(np.min, both)), max(map(np.max, both)))
            return [
                (slice(None), {"c": self.y, "cmap": self.surface_.cmap, "norm": self.surface_.norm})
            ]
        known = [] if self.classes is None else list(self.classes)
        labels = [*known, *(label for label in np.unique(self.y) if label not in known)]
        return drawing.class_groups(
            labels, self.y, [colour(k) if known else "white" for k in range(len(labels))]
        )


def _like(X: MatrixLike, plane: Array) -> MatrixLike:
    """The plane in the form of the samples: a frame keeps its names, a sparse matrix is one."""
    if sparse.issparse(X):
        return sparse.csr_array(plane)
    if hasattr(X, "iloc"):
        return type(X)(plane, columns=X.columns)
    return type(X)(plane, schema=X.columns) if hasattr(X, "columns") else plane


def _read_plane(estimator: Estimator, plane: Any, shape: tuple[int, int]) -> Settings:
    """Return the fields of the display, from predictions and decision values on the grid."""
    predicted = np.asarray(estimator.predict(plane)).reshape(shape)
    if is_regressor(estimator):
        return {"response": predicted.astype(np.float64), "kind": "values"}
    scores = None
    if hasattr(estimator, "decision_function"):
        scores = np.asarray(estimator.decision_function(plane), dtype=np.float64).reshape(
            *shape, -1
        )
    if is_classifier(estimator):
        classes = np.asarray(estimator.classes_)
        number, two = Labels(classes).codes(predicted), len(classes) == 2
        if scores is not None and scores.shape[2] != (1 if two else len(classes)):
            scores = None
        # ±1 of the decision function means something where support vectors are some of the samples.
        model = fitted_model(estimator)
        has_margin = (
            two and hasattr(model, "support_") and getattr(model, "support_fraction_", 0.0) < 1.0
        )
        margin = scores[:, :, 0] if scores is not None and has_margin else None
        boundaries = _leads(number, scores, len(classes))
        return {
            "response": number,
            "kind": "classes",
            "boundaries": boundaries,
            "margin": margin,
            "classes": classes,
        }
    if is_outlier_detector(estimator):
        inside = predicted > 0
        edge = inside - 0.5 if scores is None else scores[:, :, 0]
        return {"response": inside.astype(np.float64), "kind": "novelty", "boundaries": [edge]}
    raise TypeError(
        f"{type(estimator).__name__} is not a classifier, regressor or outlier detector."
    )


def _leads(number: AnyArray, scores: Array | None, n_classes: int) -> list[Array]:
    """Functions that change sign where classes meet: by scores, smooth lines; by predictions alone,
    steps."""
    if scores is None:
        return [(number == k) - 0.5 for k in range(n_classes)]
    if n_classes == 2:
        return [scores[:, :, 0]]
    return [scores[:, :, k] - np.delete(scores, k, axis=2).max(axis=2) for k in range(n_classes)]


# Directions ---------------------------------------------------------------------------------------


@dataclass
class ProjectionDisplay(Display):
    """A scatter of samples along two directions, coloured by class.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    points : ndarray of shape (n_samples, 2)
        Where the samples lie.
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
        """What both directions explain together."""
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
            Whose kernel, where every class has weights of its own.
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
            return cls.from_kernel_matrix(K if K.ndim == 2 else K[output], y, ax=ax)
        if not hasattr(estimator, "transform"):
            raise TypeError(
                f"{type(estimator).__name__} has no transform: use method='kernel_pca'."
            )
        Z = np.asarray(estimator.transform(X), dtype=np.float64)
        ratio = np.asarray(getattr(estimator, "explained_ratio_", np.full(Z.shape[1], np.nan)))
        return cls(_two(Z), None if y is None else np.asarray(y), _two(ratio), "discriminant").plot(
            ax=ax
        )

    @classmethod
    def from_kernel_matrix(
        cls, K: ArrayOrTensor, y: TargetLike = None, *, ax: AxesOrNone = None
    ) -> Self:
        """Draw the first two principal components of any symmetric kernel matrix, given or combined
        by hand."""
        K = np.asarray(K, dtype=np.float64)
        if K.ndim != 2 or K.shape[0] != K.shape[1]:
            raise ValueError(f"K has the shape {K.shape}: give a square kernel matrix.")
        points = KernelPCA(
            n_components=2, kernel="precomputed", eigen_solver="dense"
        ).fit_transform(K)
        total = float(np.trace(K) - K.sum() / len(K))
        shares = np.sum(points**2, axis=0) / total if total > 0 else np.zeros(points.shape[1])
        classes = None if y is None else np.asarray(y)
        return cls(_two(points), classes, _two(shares), "principal component").plot(ax=ax)

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
            }
            style |= {"c": colour(k), "marker": MARKERS[k % len(MARKERS)], **scatter}
            ax.scatter(*self.points[labels == label].T, **style)
        for setter, number, share in zip(
            (ax.set_xlabel, ax.set_ylabel), ("first", "second"), self.shares, strict=True
        ):
            setter(
                f"{number} {self.axis_name}"
                + (f" ({100 * share:.1f} %)" if np.isfinite(share) else "")
            )
        if self.classes is not None:
            ax.legend(title="class", frameon=False, loc="best")
        return self


def _two(Z: Array) -> Array:
    """Exactly two columns, or numbers: a missing second direction is one along which nothing
    varies."""
    return np.concatenate([Z, np.zeros((*Z.shape[:-1], 2))], axis=-1)[..., :2]
