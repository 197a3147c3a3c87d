"""Samples in two dimensions, as a combined kernel or a discriminant space sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import KernelPCA
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._typing import AnyArray, ArrayOrTensor, AxesOrNone, Estimator, MatrixLike, TargetLike
from kernelmosaic.plots._common import pyplot

Array = NDArray[np.float64]

#: Okabe and Ito's colours, told apart by any eye; markers change too, so that eight classes and more stay readable.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")


@dataclass
class ProjectionDisplay:
    """A scatter of samples along two directions, coloured by class.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    points : ndarray of shape (n_samples, 2)
        Where the samples lie.
    classes : ndarray of shape (n_samples,) or None
        Their classes.
    shares : ndarray of shape (2,)
        What each direction explains: of the variance in the kernel's feature space, or of the discriminant criterion.
    axis_name : str
        What the directions are.

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
    >>> display = plots.ProjectionDisplay.from_estimator(DiscriminantMKLClassifier().fit(X, y), X, y)
    >>> display.figure_.savefig("projection.png")
    """

    points: Array
    classes: AnyArray | None
    shares: Array
    axis_name: str = "component"
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

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
        """Draw samples as a fitted estimator sees them.

        Parameters
        ----------
        estimator : estimator
            Fitted; with `kernel_matrix` for ``method="kernel_pca"``, with `transform` for ``method="transform"``.
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,), optional
            Their classes.
        method : {"kernel_pca", "transform"}, default="kernel_pca"
            Principal components of the combined kernel's feature space, or the estimator's own projection.
        output : int, default=0
            Whose kernel, where every class has weights of its own.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ProjectionDisplay
        """
        check_is_fitted(estimator)
        classes = None if y is None else np.asarray(y)
        if method == "kernel_pca":
            points, shares = kernel_components(_one_matrix(estimator.kernel_matrix(X), output))
            return cls(points, classes, shares, "principal component").plot(ax=ax)
        if method == "transform":
            if not hasattr(estimator, "transform"):
                raise TypeError(f"{type(estimator).__name__} has no transform: use method='kernel_pca'.")
            Z = np.asarray(estimator.transform(X), dtype=np.float64)
            ratio = np.asarray(getattr(estimator, "explained_ratio_", np.full(Z.shape[1], np.nan)))
            return cls(_two(Z), classes, _two(ratio[np.newaxis])[0], "discriminant").plot(ax=ax)
        raise ValueError(f"method={method!r}: choose 'kernel_pca' or 'transform'.")

    @classmethod
    def from_kernel_matrix(cls, K: ArrayOrTensor, y: TargetLike = None, *, ax: AxesOrNone = None) -> Self:
        """Draw the first two principal components of any symmetric kernel matrix, given or combined by hand."""
        points, shares = kernel_components(np.asarray(K, dtype=np.float64))
        return cls(points, None if y is None else np.asarray(y), shares, "principal component").plot(ax=ax)

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
        plt = pyplot()
        if ax is None:
            _, ax = plt.subplots(figsize=(5.6, 4.8), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        labels = np.zeros(len(self.points)) if self.classes is None else self.classes
        for k, label in enumerate(np.unique(labels)):
            style = {"s": 26, "linewidths": 0.4, "edgecolors": "white", "alpha": 0.9, "label": str(label)}
            style |= {"c": _COLOURS[k % len(_COLOURS)], "marker": _MARKERS[k % len(_MARKERS)], **scatter}
            ax.scatter(*self.points[labels == label].T, **style)
        for setter, number, share in zip((ax.set_xlabel, ax.set_ylabel), ("first", "second"), self.shares, strict=True):
            setter(f"{number} {self.axis_name}" + (f" ({100 * share:.1f} %)" if np.isfinite(share) else ""))
        if self.classes is not None:
            ax.legend(title="class", frameon=False, loc="best")
        return self


def kernel_components(K: Array) -> tuple[Array, Array]:
    """Return the first two kernel principal components and the shares of the variance that they explain."""
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(f"K has the shape {K.shape}: give a square kernel matrix.")
    n = len(K)
    points = KernelPCA(n_components=min(2, n), kernel="precomputed", eigen_solver="dense").fit_transform(K)
    total = float(np.trace(K) - K.sum() / n)
    shares = np.sum(points**2, axis=0) / total if total > 0 else np.zeros(points.shape[1])
    return _two(points), _two(shares[np.newaxis])[0]


def _two(Z: Array) -> Array:
    """Exactly two columns: a missing second direction is one along which nothing varies."""
    return np.asarray(Z[:, :2] if Z.shape[1] >= 2 else np.hstack([Z, np.zeros((len(Z), 2 - Z.shape[1]))]))


def _one_matrix(K: Array, output: int) -> Array:
    return np.asarray(K if K.ndim == 2 else K[output], dtype=np.float64)
