"""Local Fisher discriminant analysis: a linear projection learned before the machine, to compare
others with."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from kernelmosaic._checks import check_count, check_positive

Array = NDArray[np.float64]
#: Squared distances are not scaled by less than this: samples given several times are near,
#: whatever their neighbours.
_LEAST_REACH = 1e-12


class LFDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Local Fisher discriminant analysis.

    Maximises tr((Wᵀ S_w W)⁻¹ Wᵀ S_b W), S = ½ Σ_ij c_ij (x_i − x_j)(x_i − x_j)ᵀ, over linear
    projections W. A pair of one class of n_c samples counts by its affinity A_ij = exp(−‖x_i −
    x_j‖²/(σ_i σ_j)), with σ_i the distance of x_i from its n_neighbors-th neighbour in the class:
    c_ij = A_ij/n_c in S_w, A_ij (1/n − 1/n_c) in S_b. A pair of two classes counts 1/n in S_b
    alone. A class may therefore consist of several clusters, which Fisher's own criterion would
    draw together.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions to keep, at most the number of features.
    n_neighbors : int, default=7
        Whose distance scales the affinity of a sample; in a smaller class, the farthest.
    shrinkage : float, default=1e-2
        Added to the diagonal of S_w, relative to its mean; zero or more.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The directions, the most telling first, in which S_w with its shrinkage is the identity.
    eigenvalues_ : ndarray of shape (n_components,)
        What each adds to the criterion.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    References
    ----------
    Sugiyama (2007), "Dimensionality reduction of multimodal labeled data by local Fisher
    discriminant analysis", Journal of Machine Learning Research 8.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from kernelmosaic import MKLClassifier
    >>> from reproduction.lfda import LFDA
    >>> X, y = load_iris(return_X_y=True)
    >>> make_pipeline(LFDA(n_components=2), MKLClassifier()).fit(X, y).score(X, y) > 0.95
    True
    """

    def __init__(
        self, n_components: int = 2, *, n_neighbors: int = 7, shrinkage: float = 1e-2
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.shrinkage = shrinkage

    def fit(self, X: Any, y: Any) -> Self:
        """Find the projection.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Classes.

        Returns
        -------
        self
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        n, d = X.shape
        check_count("n_neighbors", self.n_neighbors)
        if check_count("n_components", self.n_components) > d:
            raise ValueError(
                f"n_components={self.n_components}: give at most the number of features,"
                f" n_features={d}."
            )
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(
                f"y holds one class only, {classes.tolist()}: LFDA needs at least two classes."
            )
        near, far = np.zeros((n, n)), np.full((n, n), 1.0 / n)
        for label in classes:
            mine = np.flatnonzero(y == label)
            affinity, pairs = self._affinity(X[mine]), np.ix_(mine, mine)
            near[pairs] = affinity / len(mine)
            far[pairs] = affinity * (1.0 / n - 1.0 / len(mine))
        within, between = _scatter(X, near), _scatter(X, far)
        # Classes of a single value have no scatter at all: any direction is as good then.
        ridge = check_positive("shrinkage", self.shrinkage, zero=True) * np.trace(within) / d
        within[np.diag_indices(d)] += ridge if np.trace(within) > 0 else 1.0
        try:
            values, W = eigh(between, within, subset_by_index=(d - self.n_components, d - 1))
        except np.linalg.LinAlgError:
            raise ValueError(
                f"shrinkage={self.shrinkage!r}: the scatter within the classes is singular; raise"
                " shrinkage."
            ) from None
        # Eigenvectors have no sign of their own: let the largest entry be positive.
        W = W * np.where(W[np.abs(W).argmax(axis=0), np.arange(W.shape[1])] < 0, -1.0, 1.0)
        self.components_, self.eigenvalues_ = W[:, ::-1].T.copy(), values[::-1].copy()
        self._n_features_out = len(self.components_)
        return self

    def _affinity(self, X: Array) -> Array:
        squares = cdist(X, X, "sqeuclidean")
        reach = np.sqrt(np.sort(squares, axis=1)[:, min(self.n_neighbors, len(X) - 1)])
        return np.asarray(np.exp(-squares / np.maximum(np.outer(reach, reach), _LEAST_REACH)))

    def transform(self, X: Any) -> Array:
        """Project samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(X @ self.components_.T)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _scatter(X: Array, weights: Array) -> Array:
    """Return ½ Σ_ij w_ij (x_i − x_j)(x_i − x_j)ᵀ."""
    centred = X - X.mean(axis=0)
    return np.asarray(
        centred.T @ (weights.sum(axis=1)[:, np.newaxis] * centred) - centred.T @ weights @ centred
    )
