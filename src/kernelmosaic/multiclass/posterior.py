"""Classification from class posteriors instead of hard labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.utils import check_array

from kernelmosaic._checks import check_C, check_choice, check_count, check_positive
from kernelmosaic._typing import (
    AnyArray,
    Array,
    ArrayOrTensor,
    KernelsLike,
    MatrixLike,
    SampleWeight,
    Seed,
    TargetLike,
)
from kernelmosaic.backend import row_strips, to_host
from kernelmosaic.engine.tasks import Labels, PathRule, find_classes, per_class
from kernelmosaic.engine.training_set import active_store
from kernelmosaic.estimators.classifier import MKLClassifier
from kernelmosaic.estimators.inputs import COLUMNS_OF_CLASSES
from kernelmosaic.gram.row_blocks import ArrayRows, RowSource
from kernelmosaic.multiclass.task import Posteriors
from kernelmosaic.stacking import check_row_names

#: Smallest probability of a class: a few samples cannot rule it out. Chosen by hand.
LEAST_POSTERIOR = 1e-3
#: Distances that are computed at a time: 32 megabytes of them.
BLOCK_DISTANCES = 2**22
#: Distances that differ by less than this, relative to their size, are equal up to rounding.
EQUAL_DISTANCES = 1e-9


class PosteriorMKLClassifier(MKLClassifier):
    """Classification from class posteriors, on a weighted sum of kernels.

    Samples of uncertain class need a smaller margin, so that noisy labels move the boundary less.
    Two classes, with ŷ = 2 Pr(+1 | x) − 1: min ½‖w‖² + C Σ ξ_i with ŷ_i f(x_i) ≥ ŷ_i² (1 − ξ_i).
    More classes, with a constant each and y the label, or the most probable class where posteriors
    are given instead: min ½ Σ_c ‖w_c‖² + C Σ_i Σ_c ξ_ic with f_y(x_i) − f_c(x_i) ≥ 2 (Pr(y | x_i) −
    Pr(c | x_i)) − ξ_ic. Hard posteriors give exactly ``MKLClassifier(multi_class="pairwise")``.
    :meth:`predict_proba` has the posteriors that the outputs represent: (1 ± f)/2 within [0, 1], or
    the nearest point of the simplex to f/2. Of classes whose outputs differ by rounding only,
    :meth:`predict` returns the first.

    Parameters
    ----------
    kernels : list, default=None
        As in `MKLClassifier`.
    C : float, default=1.0
        Weight of the slack in the objective.
    estimate : {"neighbors", "density"}, default="neighbors"
        For labels: how posteriors come from them, in the Euclidean distance of the features as
        given. They are the shares of the classes among a sample's nearest neighbours, itself
        included; or Bayes' rule with a Gaussian kernel density of every class and its share as the
        prior.
    n_neighbors : int, default=5
        How many neighbours count; all at the distance of the last do as well.
    bandwidth : float or "scott", default="scott"
        Standard deviation of the Gaussians, one for all classes. ``"scott"`` is s n^(−1/(d+4)),
        with s² the variance within the classes, averaged over the d features, and n the mean number
        of samples per class.
    norm, weights, fixed_weights, penalties, penalty_power, solver, easymkl_lambda, normalize
        As in `MKLClassifier`; for more than two classes ``solver="newton"``.
    approximation, rank, random_state
        As in `MKLClassifier`. Samples in Parquet files or Dask collections must come with their
        posteriors.
    tol, max_iter, memory_budget, device, verbose
        As in `MKLClassifier`.

    Attributes
    ----------
    posteriors_ : ndarray of shape (n_samples, classes)
        The targets of the fit.
    classes_ : ndarray
        The class labels; 0, 1, … for a matrix of posteriors.
    weights_, dual_coef_, support_, n_support_, intercept_, objective_, duality_gap_, converged_
        As in `MKLClassifier`.
    solver_, n_iter_, n_solves_, history_
        As in `MKLClassifier`.

    References
    ----------
    Tao, Wu, Wang and Wang (2005), "Posterior probability support vector machines for unbalanced
    data"; Gönen, Tanuğur and Alpaydın (2008), "Multiclass posterior probability support vector
    machines".

    Examples
    --------
    >>> from kernelmosaic import PosteriorMKLClassifier
    >>> from kernelmosaic.kernels import Linear
    >>> X, posteriors = [[-1.0], [1.0], [2.0]], [[1.0, 0.0], [0.4, 0.6], [0.0, 1.0]]
    >>> PosteriorMKLClassifier([Linear()]).fit(X, posteriors).predict([[-2.0], [2.0]])
    array([0, 1])
    """

    # C cannot be learned with the weights.
    C: float
    # Samples must have all views.
    missing = None

    _knows_probabilities = True
    # There is no search over C: the posteriors of the samples of a fold, estimated from all
    # samples, would depend on the held-out ones.
    path_rule: ClassVar[PathRule | None] = None

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        C: float = 1.0,
        estimate: str = "neighbors",
        n_neighbors: int = 5,
        bandwidth: float | str = "scott",
        easymkl_lambda: float = 0.1,
        norm: float | str = 1,
        weights: ArrayOrTensor = None,
        fixed_weights: Any = None,
        penalties: Any = None,
        penalty_power: float = 0.5,
        solver: str = "newton",
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.estimate = estimate
        self.n_neighbors = n_neighbors
        self.bandwidth = bandwidth
        self.easymkl_lambda = easymkl_lambda
        self.norm = norm
        self.weights = weights
        self.fixed_weights = fixed_weights
        self.penalties = penalties
        self.penalty_power = penalty_power
        self.solver = solver
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> Self:
        """Fit to samples and their posteriors or labels.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples, which must have all views.
        y : array-like of shape (n_samples, classes) or (n_samples,)
            Posteriors, each row in [0, 1] and summing to one; or classes, from which they are
            estimated.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of C, sample by sample.

        Returns
        -------
        self
        """
        check_C(self.C)
        check_count("n_neighbors", self.n_neighbors)
        check_positive("bandwidth", self.bandwidth, word="scott")
        check_choice("estimate", self.estimate, ("neighbors", "density"))
        check_row_names(X, y=y)
        target = np.asarray(to_host(y))
        has_posteriors = target.ndim == 2 and target.shape[1] > 1
        if has_posteriors:
            P = _check_posteriors(target)
            inputs = self._read_input(X, P, sample_weight, COLUMNS_OF_CLASSES)
            P = inputs.y
            self.classes_ = np.arange(P.shape[1])
            labels = P.argmax(axis=1)
        else:
            inputs = self.validated(X, y, sample_weight)
            self.classes_ = find_classes(inputs.y, inputs.weight, type(self).__name__)
            P = self._estimate(inputs.X, inputs.y, inputs.weight)
            # Samples of weight zero may have other classes: their label does not matter.
            labels = np.minimum(Labels(self.classes_).codes(inputs.y), len(self.classes_) - 1)
        self.posteriors_ = P
        soft_inputs = replace(inputs, y=np.column_stack([labels, P]))
        return self.fit_input(soft_inputs, store=active_store())

    def _estimate(self, X: MatrixLike, y: AnyArray, weight: Array | None) -> Array:
        """Return the posteriors of the classes, estimated from labels, of shape (n, classes)."""
        # Every sample is compared with every other. A memory map is read like an array for that.
        if isinstance(X, ArrayRows):
            X = check_array(X.X, dtype=(np.float64, np.float32))
        if isinstance(X, RowSource):
            raise ValueError(
                "y: posteriors are estimated from arrays and memory maps only; for samples in"
                " Parquet files or Dask collections give the matrix of posteriors."
            )
        dtype = getattr(X, "dtype", np.dtype(object))
        if dtype.kind not in "fiu" or self._input_rules.kinds != ("numbers",):
            raise ValueError(
                "y: posteriors are estimated from numeric features only; give the matrix of"
                " posteriors."
            )
        if hasattr(X, "toarray"):
            X = X.toarray()
        if weight is None:
            weight = np.ones(len(y))
        is_member = np.asarray(y)[:, np.newaxis] == self.classes_
        members: Array = is_member * weight[:, np.newaxis]
        if self.estimate == "density":
            P = density_posteriors(X, members, self.bandwidth)
        else:
            P = neighbor_posteriors(X, members, self.n_neighbors)
        # Samples are ordered by their posteriors, so rounding must not make equal ones differ.
        return np.round(P, 12)

    def _task(self) -> Posteriors:
        return Posteriors(type(self).__name__, self.classes_, C=self.C)

    def _probabilities(self, outputs: Array) -> Array:
        """Return the posteriors of outputs, none below 10⁻³: a few samples cannot rule out a class.

        Two classes: f is fitted to 2 Pr(+1 | x) − 1. More: f_c to 2 Pr(c | x) up to a constant of
        the sample, which the nearest point of the simplex does not depend on.
        """
        P = np.maximum(project_to_simplex(0.5 * per_class(outputs)), LEAST_POSTERIOR)
        return np.asarray(P / P.sum(axis=1, keepdims=True))


def project_to_simplex(V: Array) -> Array:
    """Return the points of the simplex nearest to the rows of V, of the shape of V.

    They are max(v − t, 0) with the t for which their entries sum to one.
    """
    descending = -np.sort(-V, axis=1)
    # The t if the k largest entries are positive, for every k. The right k is the last one for
    # which they are.
    t = (np.cumsum(descending, axis=1) - 1.0) / np.arange(1, V.shape[1] + 1)
    last = np.sum(descending > t, axis=1, keepdims=True) - 1
    return np.asarray(np.maximum(V - np.take_along_axis(t, last, axis=1), 0.0))


def _check_posteriors(y: TargetLike) -> Array:
    """Return posteriors as an array, or raise a ValueError if they are no probabilities."""
    P = np.asarray(check_array(y, dtype=np.float64, input_name="y"))
    if P.min() < 0 or P.max() > 1:
        raise ValueError(
            f"y: posteriors must lie in [0, 1]; they range from {P.min():g} to {P.max():g}."
        )
    sums = P.sum(axis=1)
    worst = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[worst] - 1.0) > 1e-6:
        raise ValueError(
            f"y: the posteriors of a sample must sum to one; those of row {worst} sum to"
            f" {sums[worst]:g}."
        )
    return P


# Posteriors from labels ---------------------------------------------------------------------------


def neighbor_posteriors(
    X: Array, members: Array, n_neighbors: int, block_distances: int = BLOCK_DISTANCES
) -> Array:
    """Return the fractions of the classes among each sample's nearest neighbours.

    The sample itself is among them.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Samples.
    members : ndarray of shape (n, classes)
        The weight of each sample in the column of its class, zero elsewhere.
    n_neighbors : int
        How many there are, by weight; all at the distance of the last count as well.
    block_distances : int
        Distances that are computed at a time.

    Returns
    -------
    P : ndarray of shape (n, classes)
        Equal fractions for a sample whose neighbours have no weight.
    """
    P = np.empty(members.shape)
    weight = members.sum(axis=1)
    for rows in row_strips(len(X), block_distances // len(X)):
        for i, distances in enumerate(cdist(X[rows], X), start=rows.start):
            order = np.argsort(distances, kind="stable")
            last = int(np.searchsorted(np.cumsum(weight[order]), n_neighbors))
            last = min(last, len(order) - 1)
            # All samples at the distance of the last count: the order of the samples does not rank
            # equal distances.
            radius = (1.0 + EQUAL_DISTANCES) * distances[order[last]]
            class_weights = members[distances <= radius].sum(axis=0)
            total = class_weights.sum()
            P[i] = class_weights / total if total > 0 else 1.0 / len(class_weights)
    return P


def density_posteriors(
    X: Array, members: Array, bandwidth: Any, block_distances: int = BLOCK_DISTANCES
) -> Array:
    """Return the posteriors by Bayes' rule with a Gaussian kernel density of every class.

    They are Pr(c) p(x | c) / Σ_c' Pr(c') p(x | c'), of shape (n, classes). With Pr(c) the share of
    class c and p(x | c) the mean of the Gaussians at its samples, all of one width h, the rule is
    Σ_{j of class c} exp(−‖x − x_j‖² / 2h²) over the same sum of all samples.

    Parameters
    ----------
    X, members, block_distances
        As in `neighbor_posteriors`.
    bandwidth : float or "scott"
        The width h, or Scott's rule for it; see `scott_bandwidth`.
    """
    h = scott_bandwidth(X, members) if isinstance(bandwidth, str) else float(bandwidth)
    has_weight = members.any(axis=1)
    sums = np.empty(members.shape)
    for rows in row_strips(len(X), block_distances // len(X)):
        distances = cdist(X[rows], X, "sqeuclidean")
        # Measured from the nearest sample that has a weight, the sums cannot all be zero, however
        # narrow the Gaussians are. The factor cancels.
        distances -= distances[:, has_weight].min(axis=1, keepdims=True)
        with np.errstate(over="ignore"):
            distances /= max(2.0 * h * h, np.finfo(float).tiny)
        sums[rows] = np.exp(-np.maximum(distances, 0.0)) @ members
    return np.asarray(sums / sums.sum(axis=1, keepdims=True))


def scott_bandwidth(X: Array, members: Array) -> float:
    """Return Scott's bandwidth s n^(−1/(d+4)).

    s² is the variance within the classes, averaged over the d columns of X, and n the mean class
    size. The parameters are those of `density_posteriors`.
    """
    class_sizes = members.sum(axis=0)
    class_means = (members.T @ X) / class_sizes[:, np.newaxis]
    squares = sum(
        float(weights @ ((X - mean) ** 2).mean(axis=1))
        for weights, mean in zip(members.T, class_means, strict=True)
    )
    s = np.sqrt(squares / class_sizes.sum())
    return float(s * class_sizes.mean() ** (-1.0 / (X.shape[1] + 4)))
