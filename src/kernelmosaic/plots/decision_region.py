"""What a model says of every point of the plane."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import is_classifier, is_outlier_detector, is_regressor
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._typing import AnyArray, AxesOrNone, Estimator, MatrixLike, Settings, TargetLike
from kernelmosaic.plots._common import fitted_model, pyplot

Array = NDArray[np.float64]

#: Okabe and Ito's colours, the first two apart in lightness also; with the markers every class differs in two ways.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#56B4E9", "#D55E00", "#999999")
_MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
#: How much white regions are mixed with, so that samples stand out.
_LIGHT = 0.45


@dataclass
class DecisionRegionDisplay:
    """The plane as a classifier, regressor or novelty detector on two columns sees it, with the samples.

    Classes are coloured regions with black boundaries, for two classes with the margin dashed; values of a regressor
    are shades; the normal region of a detector is coloured. Support vectors are ringed.

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
    >>> display = plots.DecisionRegionDisplay.from_estimator(MKLClassifier().fit(X, y), X, y)
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
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)
    surface_: Any = field(default=None, init=False, repr=False)
    boundaries_: list[Any] = field(default_factory=list, init=False, repr=False)
    samples_: list[Any] = field(default_factory=list, init=False, repr=False)
    support_vectors_: Any = field(default=None, init=False, repr=False)

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
        """Draw what a fitted estimator says of the plane around the samples.

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
        points = _points(X)
        margin = eps * np.maximum(np.ptp(points, axis=0), 1e-12)
        low, high = points.min(axis=0) - margin, points.max(axis=0) + margin
        x, side = (np.linspace(low[d], high[d], grid_resolution) for d in (0, 1))
        plane = _like(X, np.stack(np.meshgrid(x, side), axis=-1).reshape(-1, 2))
        said = _read_plane(estimator, plane, (grid_resolution, grid_resolution))
        first, second = map(str, X.columns) if hasattr(X, "columns") else ("$x_1$", "$x_2$")
        labels = None if y is None else np.asarray(y)
        support = _support(fitted_model(estimator), len(points))
        display = cls(x, side, **said, X=points, y=labels, support=support, feature_names=(first, second))
        return display.plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        plt = pyplot()
        if ax is None:
            _, ax = plt.subplots(figsize=(6.2, 4.8) if self.kind == "values" else (5.6, 4.8), layout="constrained")
        self.ax_, self.figure_, self.samples_ = ax, ax.figure, []
        extent = (self.x_grid[0], self.x_grid[-1], self.y_grid[0], self.y_grid[-1])
        shown = self.response if self.kind == "values" else self._coloured()
        options = {"origin": "lower", "extent": extent, "aspect": "auto", "cmap": "cividis", "zorder": 0} | style
        self.surface_ = ax.imshow(shown, **options)
        self._draw_lines(ax)
        if self.kind == "values":
            self.figure_.colorbar(self.surface_, ax=ax, label="prediction")
        if self.X is not None:
            self._draw_samples(ax)
        ax.set(xlim=extent[:2], ylim=extent[2:], xlabel=self.feature_names[0], ylabel=self.feature_names[1])
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="best", fontsize=8, framealpha=0.9)
        return self

    def _coloured(self) -> Array:
        """The regions as colours; outside a detector's normal region it is white."""
        from matplotlib.colors import to_rgb

        base = [to_rgb(colour) for colour in _COLOURS]
        palette = np.array([(1.0, 1.0, 1.0), base[0]] if self.kind == "novelty" else base)
        chosen = palette[self.response.astype(np.intp) % len(palette)]
        return np.asarray(1.0 - _LIGHT * (1.0 - chosen))

    def _draw_lines(self, ax: AxesOrNone) -> None:
        grid = (self.x_grid, self.y_grid)
        crossed = [values for values in self.boundaries if values.min() < 0 < values.max()]
        self.boundaries_ = [ax.contour(*grid, v, levels=[0.0], colors="black", linewidths=1.6) for v in crossed]
        if self.margin is not None and self.margin.min() < 1 and self.margin.max() > -1:
            style = {"colors": "0.25", "linewidths": 1.0, "linestyles": "dashed"}
            self.boundaries_.append(ax.contour(*grid, self.margin, levels=[-1.0, 1.0], **style))

    def _draw_samples(self, ax: AxesOrNone) -> None:
        # Few samples are drawn larger: a thousand large ones would hide the regions.
        size = float(np.clip(6000 / len(self.X), 6, 36))
        pen = {"s": size, "edgecolors": "black", "linewidths": 0.6, "zorder": 3}
        if self.kind == "values":
            self.samples_ = [ax.scatter(*self.X.T, **self._target_colours(), **pen)]
        else:
            self.samples_ = [ax.scatter(*self.X[own].T, **look, **pen) for own, look in self._groups()]
        if self.support is not None:
            ring = {"s": 4.0 * size, "facecolors": "none", "edgecolors": "black", "linewidths": 0.8, "zorder": 2.5}
            self.support_vectors_ = ax.scatter(*self.X[self.support].T, label="support vector", **ring)

    def _target_colours(self) -> Settings:
        """Targets in the shades of the predictions, on one scale."""
        if self.y is None:
            return {"c": "white"}
        both = (self.response, self.y)
        self.surface_.set_clim(min(map(np.min, both)), max(map(np.max, both)))
        return {"c": self.y, "cmap": self.surface_.cmap, "norm": self.surface_.norm}

    def _groups(self) -> list[tuple[NDArray[np.bool_], Settings]]:
        """The samples of every class with its look; colours of regions and samples agree."""
        if self.y is None:
            return [(np.ones(len(self.X), dtype=bool), {"facecolors": "white"})]
        known = [] if self.classes is None else list(self.classes)
        labels = [*known, *(label for label in np.unique(self.y) if label not in known)]
        looks = [
            {
                "facecolors": _COLOURS[k % len(_COLOURS)] if known else "white",
                "marker": _MARKERS[k % len(_MARKERS)],
                "label": f"class {label}",
            }
            for k, label in enumerate(labels)
        ]
        return [(self.y == label, look) for label, look in zip(labels, looks, strict=True) if np.any(self.y == label)]


def _points(X: MatrixLike) -> Array:
    dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
    if dense.ndim != 2 or dense.shape[1] != 2 or len(dense) == 0:
        raise ValueError(f"X has shape {dense.shape}: regions are drawn of models on two columns.")
    return np.asarray(dense, dtype=np.float64)


def _like(X: MatrixLike, plane: Array) -> Any:
    """The plane in the form of the samples: a frame keeps its names, a sparse matrix is one."""
    if sparse.issparse(X):
        return sparse.csr_array(plane)
    if hasattr(X, "iloc"):
        return type(X)(plane, columns=X.columns)
    return type(X)(plane, schema=X.columns) if hasattr(X, "columns") else plane


def _read_plane(estimator: Estimator, plane: Any, shape: tuple[int, int]) -> Settings:
    """What the display is made of, from the estimator's answers on the grid."""
    predicted = np.asarray(estimator.predict(plane))
    if is_classifier(estimator):
        classes = np.asarray(estimator.classes_)
        number = np.searchsorted(classes, predicted).reshape(shape)
        scores = _scores(estimator, plane)
        if scores is None or scores.shape[1] != (1 if len(classes) == 2 else len(classes)):
            scores, margin = None, None
        else:
            margin = scores[:, 0].reshape(shape) if len(classes) == 2 and _has_margin(estimator) else None
        boundaries = _leads(number, scores, len(classes), shape)
        return {"response": number, "kind": "classes", "boundaries": boundaries, "margin": margin, "classes": classes}
    if is_outlier_detector(estimator):
        scores = _scores(estimator, plane)
        inside = (predicted > 0).reshape(shape)
        edge = inside - 0.5 if scores is None else scores[:, 0].reshape(shape)
        return {"response": inside.astype(np.float64), "kind": "novelty", "boundaries": [edge]}
    if is_regressor(estimator):
        return {"response": predicted.reshape(shape).astype(np.float64), "kind": "values"}
    raise TypeError(f"{type(estimator).__name__} is no classifier, regressor or outlier detector.")


def _scores(estimator: Estimator, plane: Any) -> Array | None:
    if not hasattr(estimator, "decision_function"):
        return None
    scores = np.asarray(estimator.decision_function(plane), dtype=np.float64)
    return scores[:, np.newaxis] if scores.ndim == 1 else scores


def _has_margin(estimator: Estimator) -> bool:
    """Whether ±1 of the decision function means something: support vectors that are some of the samples."""
    model = fitted_model(estimator)
    return hasattr(model, "support_") and getattr(model, "support_fraction_", 0.0) < 1.0


def _leads(number: AnyArray, scores: Array | None, n_classes: int, shape: tuple[int, int]) -> list[Array]:
    """Functions that change sign where classes meet: by scores, smooth lines; by predictions alone, steps."""
    if scores is not None and n_classes == 2:
        return [scores[:, 0].reshape(shape)]
    leads = []
    for k in range(n_classes):
        own = (number == k) - 0.5 if scores is None else scores[:, k] - np.delete(scores, k, axis=1).max(axis=1)
        leads.append(np.asarray(own, dtype=np.float64).reshape(shape))
    return leads


def _support(model: Estimator, n: int) -> NDArray[np.bool_] | None:
    """Which samples are support vectors, if the model has some and these may be its training set."""
    rows = np.asarray(getattr(model, "support_", []))
    # Where all samples are, a ring around each says nothing.
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not 0 < len(rows) < n or rows.max() >= n:
        return None
    support = np.zeros(n, dtype=bool)
    support[rows] = True
    return support
