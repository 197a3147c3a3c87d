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

    # It cannot be learned here.
    C: float
    # Samples must have all views.
    missing = None

    _knows_probabilities = True
    # Targets of a fold would be posteriors that its samples do not have by themselves.
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
        if target.ndim == 2 and target.shape[1] > 1:
            given = self._read_input(
                X, _check_posteriors(target), sample_weight, COLUMNS_OF_CLASSES
            )
            P = given.y
            self.classes_ = np.arange(P.shape[1])
            labels = P.argmax(axis=1)
        else:
            given = self.validated(X, y, sample_weight)
            self.classes_ = find_classes(given.y, given.weight, type(self).__name__)
            P = self._estimate(given.X, given.y, given.weight)
            # Samples of weight zero may have classes of their own.
            labels = np.minimum(Labels(self.classes_).codes(given.y), len(self.classes_) - 1)
        self.posteriors_ = P
        soft = replace(given, y=np.column_stack([labels, P]))
        return self.fit_input(soft, store=active_store())

    def _estimate(self, X: MatrixLike, y: AnyArray, weight: Array | None) -> Array:
        """Return the posteriors of the classes, of shape (n, classes)."""
        # Every sample is compared with every other, for which a memory map can be read like an
        # array.
        X = check_array(X.X, dtype=(np.float64, np.float32)) if isinstance(X, ArrayRows) else X
        if isinstance(X, RowSource):
            raise ValueError(
                "y: posteriors are estimated from arrays and memory maps only; for samples in"
                " Parquet files or Dask collections give the matrix of posteriors."
            )
        if getattr(X, "dtype", np.dtype(object)).kind not in "fiu" or self._input_rules.kinds != (
            "numbers",
        ):
            raise ValueError(
                "y: posteriors are estimated from numeric features only; give the matrix of"
                " posteriors."
            )
        X = X.toarray() if hasattr(X, "toarray") else X
        all_rows = np.ones(len(y)) if weight is None else weight
        members: Array = (np.asarray(y)[:, np.newaxis] == self.classes_) * all_rows[:, np.newaxis]
        if self.estimate == "density":
            found = density_posteriors(X, members, self.bandwidth)
        else:
            found = neighbor_posteriors(X, members, self.n_neighbors)
        return np.round(
            found, 12
        )  # samples are put in an order by them, and equal ones must not differ

    def _task(self) -> Posteriors:
        return Posteriors(type(self).__name__, self.classes_, C=self.C)

    def _probabilities(self, outputs: Array) -> Array:
        """Return the posteriors of outputs, none below 10⁻³: a few samples cannot rule out a class.

        Two classes: f is fitted to 2 Pr(+1 | x) − 1. More: f_c to 2 Pr(c | x) up to a constant of
        the sample, which the nearest point of the simplex does not depend on.
        """
        P = np.maximum(project_to_simplex(0.5 * per_class(outputs)), 1e-3)
        return np.asarray(P / P.sum(axis=1, keepdims=True))


def project_to_simplex(V: Array) -> Array:
    """Return the nearest points to the rows of V that are not negative and sum to one."""
    falling = -np.sort(-V, axis=1)
    # max(v − t, 0) with the t for which it sums to one: that of the largest entries that stay above
    # it.
    t = (np.cumsum(falling, axis=1) - 1.0) / np.arange(1, V.shape[1] + 1)
    last = np.sum(falling > t, axis=1, keepdims=True) - 1
    return np.asarray(np.maximum(V - np.take_along_axis(t, last, axis=1), 0.0))


def _check_posteriors(y: TargetLike) -> Array:
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


# Posteriors from labels: the shares of the classes near a sample ----------------------------------


def neighbor_posteriors(X: Array, members: Array, n_neighbors: int, at_once: int = 2**22) -> Array:
    """Return the shares of the classes among each sample's nearest neighbours, itself included.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Samples.
    members : ndarray of shape (n, classes)
        The weight of each sample in the column of its class, zero elsewhere.
    n_neighbors : int
        How many there are, by weight; all at the distance of the last count as well.
    at_once : int
        Distances held at the same time.
    """
    P = np.empty(members.shape)
    weight = members.sum(axis=1)
    each = (row for rows in row_strips(len(X), at_once // len(X)) for row in cdist(X[rows], X))
    for i, distances in enumerate(each):
        order = np.argsort(distances, kind="stable")
        reached = int(np.searchsorted(np.cumsum(weight[order]), n_neighbors))
        # All at the distance of the last, up to rounding: the order of the samples does not rank
        # equal distances.
        within = distances <= (1.0 + 1e-9) * distances[order[min(reached, len(order) - 1)]]
        shares = members[within].sum(axis=0)
        P[i] = shares / shares.sum() if shares.sum() > 0 else 1.0 / len(shares)
    return P


def density_posteriors(X: Array, members: Array, bandwidth: Any, at_once: int = 2**22) -> Array:
    """Return Bayes' rule, Pr(c) p(x | c) / Σ_c' Pr(c') p(x | c'), with Gaussian densities p(· | c)
    around the samples.

    With Pr(c) the share of class c and p(x | c) the mean of the Gaussians at its samples, all of
    one width h, the rule is Σ_{j of class c} exp(−‖x − x_j‖² / 2h²) over the same sum of all
    samples.

    Parameters
    ----------
    X, members, at_once
        As in `neighbor_posteriors`.
    bandwidth : float or "scott"
        The width h, or Scott's rule for it; see `scott_bandwidth`.
    """
    h = scott_bandwidth(X, members) if isinstance(bandwidth, str) else float(bandwidth)
    counted = members.any(axis=1)
    sums = np.empty(members.shape)
    for rows in row_strips(len(X), at_once // len(X)):
        distances = cdist(X[rows], X, "sqeuclidean")
        # From the nearest sample that counts: the sums cannot all vanish, however narrow the
        # Gaussians are.
        distances -= distances[:, counted].min(axis=1, keepdims=True)
        with np.errstate(over="ignore"):
            distances /= max(2.0 * h * h, np.finfo(float).tiny)
        sums[rows] = np.exp(-np.maximum(distances, 0.0)) @ members
    return np.asarray(sums / sums.sum(axis=1, keepdims=True))


def scott_bandwidth(X: Array, members: Array) -> float:
    """Return s n^(−1/(d+4)): s² the variance within the classes, averaged over the d columns; n the
    mean class size."""
    sizes = members.sum(axis=0)
    means = (members.T @ X) / sizes[:, np.newaxis]
    within = sum(
        float(m @ ((X - mean) ** 2).mean(axis=1)) for m, mean in zip(members.T, means, strict=True)
    )
    return float(np.sqrt(within / sizes.sum()) * sizes.mean() ** (-1.0 / (X.shape[1] + 4)))
