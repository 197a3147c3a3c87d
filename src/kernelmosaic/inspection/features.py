"""Which columns count inside each view: what a decision changes when a sample has a column of another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._checks import check_count
from kernelmosaic._typing import AnyArray, Estimator, MatrixLike, Seed
from kernelmosaic.engine.expansion import PartialSums, SupportSums
from kernelmosaic.engine.pipelines import behind_pipeline
from kernelmosaic.gram.kernel_set import FittedKernel
from kernelmosaic.inspection._refits import frame, last_step, text_table
from kernelmosaic.kernels.base import StatisticKernel, is_missing
from kernelmosaic.kernels.distances import pairwise_statistic

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
#: Called with a column, rows, and the rows whose column they get; returns the changes, of shape (rows, outputs).
Change = Callable[[int, Rows, Rows], Array]
#: What one column adds to each statistic.
_TERMS: dict[str, Callable[[Any, Any], Any]] = {
    "products": lambda x, z: x * z,
    "squared_distances": lambda x, z: (x - z) ** 2,
    "manhattan_distances": lambda x, z: abs(x - z),
}


@dataclass(frozen=True, eq=False)
class FeatureImportance:
    """What :func:`feature_importance` returns.

    Attributes
    ----------
    feature_names : list of str
        Of the columns that the estimator reads.
    views : dict
        The column numbers of each view.
    importances : ndarray of shape (columns,)
        By how much the decision changes; zero for a column that no kernel with a weight reads.
    errors : ndarray of shape (columns,)
        Standard errors of the importances, as means over the samples: of this model, not of one fitted to others.
    """

    feature_names: list[str]
    views: dict[str, list[int]]
    importances: Array
    errors: Array

    def largest(self, view: str, n: int = 10) -> list[int]:
        """Return the numbers of the most important columns of a view, the most important first."""
        columns = np.asarray(self.views[view])
        return list(columns[np.argsort(-self.importances[columns], kind="stable")[:n]].tolist())

    def top(self, view: str, n: int = 10) -> list[tuple[str, float]]:
        """Return the most important columns of a view with their importances, the largest first."""
        return [(self.feature_names[j], float(self.importances[j])) for j in self.largest(view, n)]

    def to_frame(self) -> Any:
        """Return a data frame: one row per view and column that it reads, the most important first in each view."""
        rows = [[name, view, value] for view, own in self.views.items() for name, value in self.top(view, len(own))]
        return frame(("column", "view", "importance"), rows)

    def __str__(self) -> str:
        found = [(view, j) for view in self.views for j in self.largest(view)]
        rows = [[view, self.feature_names[j], self.importances[j], self.errors[j]] for view, j in found]
        return text_table(("view", "column", "importance", "±"), rows)


def feature_importance(
    estimator: Estimator, X: MatrixLike, *, n_repeats: int = 5, random_state: Seed = None
) -> FeatureImportance:
    """Return how much the decisions of a fitted model depend on each column, by permuting it within its view.

    The importance of a column is √(½ · mean (f(x) − f(x′))²), where x′ is x with the column of another sample, drawn
    among those that have the view. For a linear kernel that is |w_j| times the standard deviation of the column, up to
    the draw of the permutations; for others it is the same of their nonlinear functions. It measures what the model
    relies on: of two columns with the same information, each may have half. Of several outputs it is the mean square.
    The replacement of a view that a sample lacks stays as it is. Compare columns within a view: one of four columns
    changes the kernels of its view more than one of 500 does, whether or not it has to do with the targets.

    Kernels that are functions of distances or products are not computed anew for every column: one column changes the
    statistic of all pairs by a term of its own.

    Parameters
    ----------
    estimator : estimator
        Fitted; of this package, or a pipeline that ends in one. The columns are those that its last step reads.
    X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
        Samples; those held out show what the model relies on for new ones.
    n_repeats : int, default=5
        How often every column is permuted.
    random_state : int, RandomState or None, default=None
        Draws the permutations.

    Returns
    -------
    FeatureImportance

    See Also
    --------
    kernel_importance : The loss of a score without a whole kernel.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.inspection import feature_importance
    >>> from kernelmosaic.kernels import Gaussian
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> views = [("sepal", Gaussian(), [0, 1]), ("petal", Gaussian(), [2, 3])]
    >>> model = MKLClassifier(views).fit(X[50:], y[50:])
    >>> [name for name, _ in feature_importance(model, X[50:], random_state=0).top("petal")]
    ['petal length (cm)', 'petal width (cm)']
    """
    check_count("n_repeats", n_repeats)
    last_step(estimator)
    check_is_fitted(estimator)
    random = check_random_state(random_state)
    model, read = behind_pipeline(estimator, X)
    V = model.read(read)
    V = V.toarray() if sparse.issparse(V) else V
    names, views = _columns_of(model, estimator)
    change = _change_by_kernels(model, V) if _is_plain(model, V[:2]) else _change_by_outputs(model, V)
    orders = [random.permutation(len(V)) for _ in range(n_repeats)]
    importances, errors, n = np.zeros(V.shape[1]), np.zeros(V.shape[1]), len(V)
    for j in sorted({column for own in views.values() for column in own}):
        there = ~is_missing(V[:, [j]])[:, 0]
        rows, squares = np.flatnonzero(there), np.zeros(n)
        for order in orders:
            squares[rows] += 0.5 / n_repeats * np.square(change(j, rows, order[there[order]])).mean(axis=1)
        importances[j] = np.sqrt(squares.mean())
        if importances[j] > 0 and n > 1:  # by the slope of the root
            errors[j] = squares.std(ddof=1) / n**0.5 / (2.0 * importances[j])
    return FeatureImportance(names, views, importances, errors)


def _columns_of(model: Estimator, estimator: Estimator) -> tuple[list[str], dict[str, list[int]]]:
    """Return the names of the columns that a fitted model reads, and those of each view with a weight."""
    names: Any = getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])
    if estimator is not model and not hasattr(model, "feature_names_in_"):
        with suppress(AttributeError, ValueError):  # of a step without names
            names = estimator[:-1].get_feature_names_out()
    expansion = model.function_.expansion
    kernels = getattr(expansion.kernel_set, "kernel_set", expansion.kernel_set).fitted
    views: dict[str, dict[int, None]] = defaultdict(dict)
    for m, one in zip(expansion.kept, kernels, strict=True):
        columns = range(len(names)) if one.columns is None else one.columns.tolist()
        views[model.view_names_[m]].update(dict.fromkeys(columns))
    return [str(name) for name in names], {name: list(own) for name, own in views.items()}


def _is_plain(model: Estimator, V: AnyArray) -> bool:
    """Whether outputs are sums over support samples, kernel by kernel, and a constant; as a few samples show."""
    expansion = model.function_.expansion
    if type(expansion.sums) not in (SupportSums, PartialSums):
        return False
    sums, found = expansion.values(V), model.function_.outputs(V)
    return sums.shape == found.shape and np.allclose(sums + model.intercept_, found)


def _change_by_outputs(model: Estimator, V: AnyArray) -> Change:
    """Return what computes by how much outputs change if rows have the column of others, by computing them anew."""
    before = model.function_.outputs(V)

    def change(j: int, rows: Rows, others: Rows) -> Array:
        changed = V.copy()
        changed[rows, j] = V[others, j]
        return np.asarray(model.function_.outputs(changed)[rows] - before[rows])

    return change


def _change_by_kernels(model: Estimator, V: AnyArray) -> Change:
    """Return the same, of the kernels that read the column alone."""
    expansion = model.function_.expansion
    sums, kernel_set = expansion.sums, expansion.sums.kernel_set
    present = sums.missing.present_in(V) if isinstance(sums, PartialSums) else None
    factors = np.ones((len(V), expansion.n_kernels)) if present is None else sums.missing.factors(present)
    parts = []
    shared: dict[Any, Any] = {}
    for k, (one, view, support) in enumerate(zip(kernel_set.fitted, sums.views_of(V), sums.samples, strict=True)):
        columns = range(V.shape[1]) if one.columns is None else one.columns.tolist()
        part = _Part(
            one,
            view.toarray() if sparse.issparse(view) else np.asarray(view),
            support,
            dict(zip(columns, range(len(columns)), strict=True)),
            shared,
        )
        beta = sums.of_kernel(k).T * expansion.eta[:, k]
        parts.append((part, beta, part.block(slice(None)) @ beta, factors[:, expansion.kept[k]]))

    def change(j: int, rows: Rows, others: Rows) -> Array:
        out = np.zeros((len(rows), len(expansion.eta)))
        for part, beta, before, factor in parts:
            if j in part.places:
                after = part.block(rows, part.places[j], others) @ beta
                out += (after - before[rows]) * factor[rows, np.newaxis]
        return out

    return change


@dataclass
class _Part:
    """One kernel between samples and support samples, and the place of each column that it reads."""

    one: FittedKernel
    view: AnyArray
    support: Any
    places: dict[int, int]
    shared: dict[Any, Any]

    def __post_init__(self) -> None:
        self.rule, self.kernel = self.one.normalization, self.one.kernel.inner
        self.scale = self.rule.row_scale(self.support)
        self.support = self.support.toarray() if sparse.issparse(self.support) else self.support
        if isinstance(self.kernel, StatisticKernel):
            # Computed once for the kernels that are functions of it.
            key = self.kernel.statistic, self.one.kernel.preparation, tuple(self.places)
            if key not in self.shared:
                self.shared[key] = pairwise_statistic(self.kernel.statistic, self.view, self.support)
            self.statistic = self.shared[key]

    def block(self, rows: Any, place: int | None = None, others: Any = None) -> Array:
        """Return the block for some rows; with a place, as if they had the column there of other rows."""
        kernel, is_plain = self.kernel, isinstance(self.kernel, StatisticKernel)
        changed = self.view[rows]
        if place is not None and not (is_plain and self.scale is None):
            changed = changed.copy()
            changed[:, place] = self.view[others, place]
        scale = None if self.scale is None else self.rule.row_scale(changed)
        if not isinstance(kernel, StatisticKernel):
            return np.asarray(self.rule.block(kernel(changed, self.support), scale, self.scale))
        S = self.statistic[rows]
        if place is not None:
            terms, z = _TERMS[kernel.statistic], self.support[:, place]
            S = S + terms(self.view[others, place, None], z) - terms(self.view[rows, place, None], z)
            S = S if kernel.statistic == "products" else np.maximum(S, 0.0)
        return np.asarray(self.rule.block(np.array(kernel.from_statistic(S)), scale, self.scale))
