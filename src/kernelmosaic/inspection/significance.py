"""Many fits to nearly the same samples: targets permuted (significance), samples drawn anew (stability)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.utils import _safe_indexing, check_consistent_length, check_random_state
from sklearn.utils.validation import _num_samples, has_fit_parameter

from kernelmosaic._checks import check_choice, check_count, check_positive, check_share
from kernelmosaic._typing import AnyArray, Array, Estimator, Indices, Mask, MatrixLike, SampleWeight, Seed, TargetLike
from kernelmosaic.backend import threads_for, to_host
from kernelmosaic.engine import pipelines
from kernelmosaic.engine.pipelines import behind_pipeline
from kernelmosaic.engine.samples import DistinctSamples, FitInput, is_streamed, read_sample_weight
from kernelmosaic.engine.search import warn_of_gaps
from kernelmosaic.engine.training_set import SharedKernels, TrainingSet, active_store, read_training_set
from kernelmosaic.estimators._base import BaseMKL, KernelEstimator
from kernelmosaic.estimators.cv import PathSearch
from kernelmosaic.estimators.regressor import MKLSurvival
from kernelmosaic.estimators.ridge import BaseRidge
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.kernels.pairs import Pairwise
from kernelmosaic.kernels.subsets import Subsets
from kernelmosaic.learning.problem import progress
from kernelmosaic.stacking import are_tables, check_row_names

# One fit -------------------------------------------------------------------------------------------------------------


def last_step(estimator: Estimator) -> Estimator:
    """Return the estimator itself, of a pipeline its last step, or raise if that has no kernels of its own."""
    model = pipelines.last_step(estimator)
    if not isinstance(model, KernelEstimator):
        raise TypeError(
            f"estimator={type(estimator).__name__}: give an estimator of kernelmosaic or a pipeline that ends in one; "
            "of a search its best_estimator_."
        )
    if any(isinstance(entry.kernel, Subsets) for entry in model.read_kernels()):
        raise ValueError("kernels: those of Subsets(...) are too many to inspect one by one; give a list.")
    return model


def fit(
    estimator: Estimator,
    X: MatrixLike,
    y: TargetLike,
    weight: Array | None,
    start: Array | None = None,
    data: TrainingSet | None = None,
    groups: Indices | None = None,
) -> Estimator:
    """Fit an estimator, or a pipeline, with the weights of the samples, and return it.

    Its last step starts from weights of the kernels, and has the kernels of a training set, if these are given. If it
    has `groups`, it leaves the samples of one group out together.
    """
    Z, model, last = X, estimator, last_step(estimator)
    if isinstance(last, BaseMKL) and not isinstance(last, PathSearch) and not (start is None and data is None):
        while hasattr(model, "steps"):
            steps, model = pipelines.divide_pipeline(model)
            Z = Z if steps is None else steps.fit_transform(Z, y)
        given = model.validated(Z, y, weight)
        model.fit_input(given, store=active_store(), weights=start, data=data)
        return estimator
    if weight is None and groups is None:
        return estimator.fit(X, y)
    path, model = "", estimator
    while hasattr(model, "steps"):
        name, model = model.steps[-1]
        path += f"{name}__"
    if weight is not None and not has_fit_parameter(model, "sample_weight"):
        raise TypeError(f"sample_weight: {type(model).__name__}.fit takes none; give None.")
    options = {"sample_weight": weight, "groups": groups}
    return estimator.fit(X, y, **{f"{path}{name}": value for name, value in options.items() if value is not None})


def prepare(
    estimator: Estimator, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight, random_state: Seed
) -> tuple[Any, Any, Any, Any]:
    """Check what is common to all inspections: a clone that draws the same landmarks in every fit, y, weights, draws.

    Returns
    -------
    estimator, y, sample_weight, random : estimator, ndarray, ndarray or None, RandomState
    """
    last_step(estimator)
    random = check_random_state(random_state)
    estimator = clone(estimator)
    model = last_step(estimator)
    model.set_params(verbose=False)
    if not isinstance(model.get_params(deep=False).get("random_state", 0), int | np.integer):
        model.set_params(random_state=int(random.randint(np.iinfo(np.int32).max)))
    if y is None:
        raise ValueError("y is None: give one target per sample.")
    if are_tables(X) or is_streamed(X) or not (hasattr(X, "shape") or isinstance(X, list | tuple)):
        raise TypeError(
            f"X={type(X).__name__}: give the samples as an array, a sparse matrix or a data frame; stack_views makes "
            "one of several tables."
        )
    check_row_names(X, y=y, sample_weight=sample_weight)
    y = np.asarray(y)
    check_consistent_length(X, y)
    rows = np.empty((_num_samples(X), 1))
    return estimator, y, None if sample_weight is None else read_sample_weight(sample_weight, rows), random


# Many fits -----------------------------------------------------------------------------------------------------------


#: One fit: its targets, weights, and rows, or None where it is to all samples.
Task = tuple[AnyArray, Array | None, Indices | None]


def refit(
    estimator: Estimator,
    X: MatrixLike,
    tasks: Sequence[Task],
    known: Array | None,
    n_jobs: int | None,
    verbose: bool,
    what: str,
    chunk: int = 100,
) -> Array:
    """Return the weights of the kernels in every fit, of shape (fits, P) or (fits, classes, P).

    Parameters
    ----------
    estimator : estimator
        Not changed.
    X : array-like
        All samples.
    tasks : sequence of Task
        What to fit to.
    known : ndarray like the weights, or None
        Weights that every fit starts from.
    n_jobs : int or None
        Processes.
    verbose : bool
        Whether to show how many fits are done.
    what : str
        Whose fits they are.
    chunk : int
        Fits that share the kernels which one process computes, however many processes there are.
    """
    calls = (delayed(_fit_chunk)(estimator, X, tasks[i : i + chunk], known) for i in range(0, len(tasks), chunk))
    found: list[tuple[Array, float]] = []
    with progress(what, len(tasks), verbose) as show:
        for some in Parallel(n_jobs=n_jobs, return_as="generator")(calls):
            found += some
            show(f"{len(found)} of {len(tasks)} fits", len(found))
    remedy = "raise the estimator's max_iter, or accept a larger tol"
    warn_of_gaps(what, np.array([gap for _, gap in found]), last_step(estimator).tol, remedy)
    return np.array([weights for weights, _ in found])


def _fit_chunk(
    estimator: Estimator, X: MatrixLike, tasks: Sequence[Task], known: Array | None
) -> list[tuple[Array, float]]:
    found = []
    # Kernels of one set of samples are kept at a time.
    with SharedKernels(memory_budget=1) as shared, warnings.catch_warnings(action="ignore"):
        # The fit to all samples has given these warnings; gaps are reported once for all fits.
        for y, weight, rows in tasks:
            # So results depend neither on the order of the fits nor on the process that does them.
            shared.store.forget_ends()
            some = X if rows is None else _safe_indexing(X, rows)
            groups = None
            has_copies = rows is not None and len(np.unique(rows)) < len(rows)
            if has_copies and leaves_out_one_by_one(last_step(estimator)):
                groups = rows
            model = last_step(fit(clone(estimator), some, y, weight, known, groups=groups))
            found.append((comparable_weights(model), float(getattr(model, "duality_gap_", 0.0))))
    return found


def leaves_out_one_by_one(model: Estimator) -> bool:
    """Whether the model learns from what it says of samples left out, and can leave copies out together."""
    if not isinstance(model, BaseRidge) or model.criterion != "loo":
        return False
    return not any(isinstance(entry.kernel, Pairwise) for entry in model.read_kernels())


def comparable_weights(model: Estimator) -> Array:
    """Return the weights on a scale that does not depend on the number of samples.

    Where no norm sets the sum of the weights, as in discriminants and bilinear machines, it is one here, of every class
    that has weights of its own.
    """
    weights: Array = model.weight_shares_
    if getattr(model, "_has_normed_weights", True):
        return weights
    sums = weights.sum(axis=-1, keepdims=True)
    shares: Array = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
    return shares


# Tables --------------------------------------------------------------------------------------------------------------


def text_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table in plain text, numbers with three digits."""
    cells = [list(heads)] + [[one if isinstance(one, str) else f"{one:.3g}" for one in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *line[1:]]) for row, line in zip(cells, lines, strict=True))


def labelled(names: Sequence[str], classes: Any, values: Sequence[Array]) -> list[list[Any]]:
    """Return one row per kernel, or per class and kernel: names, then numbers; all values have one shape."""
    heads = names if classes is None else [f"{label}: {name}" for label in classes for name in names]
    return [list(row) for row in zip(heads, *map(np.ravel, values), strict=True)]


def frame(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """Return the same rows as a data frame of pandas, the first head being that of the index."""
    import pandas as pd

    return pd.DataFrame(rows, columns=list(heads)).set_index(heads[0])


#: Relative differences that are rounding: one of the permutations may change nothing.
_ROUNDING = 1e-9


# Permuted targets -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KernelSignificance:
    """What :func:`kernel_significance` returns.

    Attributes
    ----------
    kernel_names : list of str
        Of the P kernels.
    classes : list or None
        Whose weights the rows are, where every class has its own; the arrays below then have shape (classes, P).
    weights : ndarray of shape (P,)
        The weights learned from the targets before any permutation.
    weight_pvalues : ndarray of shape (P,)
        Share of permutations in which the weight is as large.
    alignments : ndarray of shape (P,)
        Centred alignment ⟨HKH, YYᵀ⟩ / (‖HKH‖ ‖HYYᵀH‖) of each kernel with the targets, over the samples that have its
        view; needs no fit.
    alignment_pvalues : ndarray of shape (P,)
        The same for it.
    null_weights, null_alignments : ndarray of shape (n_permutations, P)
        What permuted targets give.
    correction : str or None
        How the p-values are corrected for the number of kernels.
    """

    kernel_names: list[str]
    classes: list[Any] | None
    weights: Array
    weight_pvalues: Array
    alignments: Array
    alignment_pvalues: Array
    null_weights: Array = field(repr=False)
    null_alignments: Array = field(repr=False)
    correction: str | None = None

    def _rows(self) -> list[list[Any]]:
        columns = (self.weights, self.weight_pvalues, self.alignments, self.alignment_pvalues)
        return labelled(self.kernel_names, self.classes, columns)

    def to_frame(self) -> Any:
        """Return a data frame: one row per kernel, or per class and kernel as ``class: kernel``."""
        return frame(("kernel", "weight", "weight_pvalue", "alignment", "alignment_pvalue"), self._rows())

    def __str__(self) -> str:
        return text_table(("kernel", "weight", "p", "alignment", "p"), self._rows())


def kernel_significance(
    estimator: Estimator,
    X: MatrixLike,
    y: TargetLike,
    *,
    n_permutations: int = 1000,
    correction: str | None = None,
    groups: Any = None,
    sample_weight: SampleWeight = None,
    random_state: Seed = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> KernelSignificance:
    """Test by permutations whether the weight and the alignment of each kernel are larger than chance makes them.

    The targets are permuted, the model is fitted again, and so on: the p-value of a kernel is (1 + k) / (1 + N) if k of
    N permutations give it a weight, or an alignment, that is at least as large. The kernels do not depend on the
    targets, and are computed once for all fits.

    The null hypothesis of a *weight* is that the targets have nothing to do with any kernel: since the weights share a
    fixed sum, or norm, that of one kernel depends on the others. The null hypothesis of an *alignment* is that
    the targets have nothing to do with that kernel, among the samples that have its view. What stands in for a view
    does not depend on the targets, and stays as it is.

    Parameters
    ----------
    estimator : estimator
        A classifier or regressor of this package, or a pipeline that ends in one; not changed. Its parameters, C among
        them, must not have been chosen by these targets, or be chosen in every fit, as the CV estimators do.
    X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
        Samples.
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
        Classes or targets.
    n_permutations : int, default=1000
        How often the targets are permuted; p-values are multiples of 1 / (n_permutations + 1).
    correction : {"max", "fdr"} or None, default=None
        For the number of kernels, and of classes. ``"max"`` bounds the probability that any p-value falls below a level
        by chance: the largest of all weights of a permutation, each less its mean and in units of its standard
        deviation over permutations, is what each is compared with. ``"fdr"`` bounds the expected share of false
        discoveries (Benjamini and Hochberg).
    groups : array-like of shape (n_samples,), default=None
        Targets are permuted within groups, such as batches or sites, only.
    sample_weight : array-like of shape (n_samples,), default=None
        Factors of C; they stay with the samples while the targets are permuted.
    random_state : int, RandomState or None, default=None
        Draws the permutations, and a seed for an estimator that has none.
    n_jobs : int, default=None
        Processes; None means one. Results do not depend on it.
    verbose : bool, default=False
        Show how many fits are done.

    Returns
    -------
    KernelSignificance

    References
    ----------
    Phipson and Smyth (2010), "Permutation p-values should never be zero"; Westfall and Young (1993), "Resampling-based
    multiple testing"; Cortes, Mohri and Rostamizadeh (2012), "Algorithms for learning kernels based on centered
    alignment".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.inspection import kernel_significance
    >>> from kernelmosaic.kernels import Gaussian
    >>> X, y = load_iris(return_X_y=True)
    >>> views = [("sepal", Gaussian(), [0, 1]), ("petal", Gaussian(), [2, 3])]
    >>> model = MKLClassifier(views)
    >>> options = {"n_permutations": 39, "random_state": 0}
    >>> found = kernel_significance(model, X[50:], y[50:], **options)
    >>> (found.weight_pvalues <= 0.05).tolist()
    [False, True]
    """
    N = check_count("n_permutations", n_permutations)
    check_choice("correction", correction, (None, "max", "fdr"))
    check_row_names(X, groups=groups)
    estimator, y, weight, random = prepare(estimator, X, y, sample_weight, random_state)
    if isinstance(last_step(estimator), MKLSurvival) or not (y.ndim == 1 or y.dtype.kind in "biuf"):
        raise TypeError(
            "kernel_significance supports classes and numbers as targets, not censored times: use stability, or "
            "kernel_importance."
        )
    # Samples that do not count keep their targets to themselves.
    orders = _permutations(np.arange(len(y)) if weight is None else np.flatnonzero(weight), len(y), groups, N, random)
    model = last_step(fit(estimator, X, y, weight))
    weights = comparable_weights(model)
    own = weights.ndim == 2
    data = _every_sample(estimator, X, weight)
    kept = [order[data.kept] for order in (np.arange(len(y)), *orders)]
    # Kernels are to be aligned with the targets, or with indicators of the classes.
    has_labels = hasattr(model, "classes_") and y.ndim == 1
    Y = (y[:, np.newaxis] == model.classes_ if has_labels else y.reshape(len(y), -1)).astype(np.float64)
    every = alignments(data.stack, Y, kept, data.weight, own, data.present)
    tasks: list[Task] = [(y[order], weight, None) for order in orders]
    # Ten fits start from weights that prefer no kernel, all later ones from the mean of what these find.
    pilots = refit(estimator, X, tasks[:10], None, None, False, "kernel_significance")
    null = pilots
    if rest := tasks[10:]:
        mean_weights = pilots.mean(axis=0) * (np.sum(model.weights_) / np.sum(weights))
        others = refit(estimator, X, rest, mean_weights, n_jobs, verbose, "kernel_significance")
        null = np.concatenate([pilots, others])
    names, classes = list(model.kernel_names_), model.classes_.tolist() if own else None
    p_weights, p_alignments = p_values(weights, null, correction), p_values(every[0], every[1:], correction)
    return KernelSignificance(names, classes, weights, p_weights, every[0], p_alignments, null, every[1:], correction)


def _every_sample(pipeline: Estimator, X: MatrixLike, weight: Array | None) -> TrainingSet:
    """Return the kernels of a fitted model for every sample that counts, repeated or not."""
    model, X = behind_pipeline(pipeline, X)
    weight = np.ones(_num_samples(X)) if weight is None else weight
    rows = np.flatnonzero(weight)
    given = FitInput(model.read(X), None, weight, to_host(X), model.device)
    options = model.kernel_options(given).placed(len(rows), 2000)
    return read_training_set(options, given.X, given.original, DistinctSamples(rows, weight[rows]))


def _group_labels(groups: Any, n: int) -> Indices:
    """Return the number of the group of every sample, or raise if there is not one each."""
    labels: Indices = np.unique(np.asarray(groups), return_inverse=True)[1].reshape(-1)
    if len(labels) != n:
        raise ValueError(f"groups has {len(labels)} entries for {n} samples: give one per sample.")
    return labels


def _permutations(rows: Indices, n: int, groups: Any, count: int, random: np.random.RandomState) -> list[Indices]:
    """Return orders of n samples in which these rows are permuted, within groups if there are any."""
    labels = np.zeros(n, dtype=np.intp) if groups is None else _group_labels(groups, n)
    members = [rows[labels[rows] == g] for g in np.unique(labels[rows])]
    if max(map(len, members)) < 2:
        raise ValueError("groups: every sample has a group of its own, and nothing can be permuted; merge groups.")
    orders = np.tile(np.arange(n), (count, 1))
    for order in orders:
        for some in members:
            order[some] = random.permutation(some)
    return list(orders)


def alignments(
    stack: GramStack,
    Y: Array,
    orders: Sequence[Indices],
    weight: Array,
    by_column: bool,
    present: Mask | None = None,
) -> Array:
    """Return the centred alignment of every kernel with the targets in every order.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    Y : ndarray of shape (all samples, columns)
        The targets.
    orders : sequence of ndarray of shape (n,)
        Whose targets the samples of the stack are given.
    weight : ndarray of shape (n,)
        How much each sample counts.
    by_column : bool
        Whether each column is a target of its own; else Y Yᵀ is the target.
    present : ndarray of shape (n, P), default=None
        Which views the samples have; None means all. The alignment of a kernel is that of the samples that have its
        view: what stands in for a view is computed from the other views, and repeats what these say of the targets.

    Returns
    -------
    ndarray of shape (orders, P), or (orders, columns, P)
    """
    at_once = max(1, 2**23 // (stack.n_samples * Y.shape[1]))  # so many numbers are multiplied with the kernels
    batches = [np.array(orders[i : i + at_once]) for i in range(0, len(orders), at_once)]
    if present is None:
        present = np.ones((stack.n_samples, stack.n_kernels), dtype=bool)
    # Kernels whose views the same samples have are aligned together.
    patterns, pattern_of_kernel = np.unique(present, axis=1, return_inverse=True)
    parts, kernels_in_order = [], []
    for pattern, has_view in enumerate(patterns.T):
        kernels = np.flatnonzero(pattern_of_kernel.ravel() == pattern)
        weight_of_view = weight * has_view
        of_batches = [_aligned(stack, kernels, Y[batch], weight_of_view, by_column) for batch in batches]
        parts.append(np.concatenate(of_batches))
        kernels_in_order.append(kernels)
    order = np.argsort(np.concatenate(kernels_in_order))
    return np.concatenate(parts, axis=-1)[..., order]


def _aligned(stack: GramStack, kernels: Indices, Y: Array, weight: Array, by_column: bool) -> Array:
    """Return the alignments of some kernels with Y of shape (orders, n, columns), reading the stack once."""
    P, n, share = len(kernels), stack.n_samples, weight / weight.sum()
    Y = Y - np.einsum("i,vic->vc", share, Y)[:, np.newaxis]
    T = np.ascontiguousarray((weight[:, np.newaxis] * Y).transpose(1, 0, 2)).reshape(n, -1)
    sums, squares, means = np.zeros((P, T.shape[1])), np.zeros(P), np.zeros((P, n))
    place_of = {kernel: place for place, kernel in enumerate(kernels.tolist())}
    for strip in stack.row_strips(n):
        for m, block in stack.blocks(kernels.tolist(), strip, slice(0, n)):
            place = place_of[m]
            sums[place] += np.einsum("ij,ij->j", T[strip], block @ T)
            squares[place] += weight[strip] @ (np.square(block, dtype=np.float64) @ weight)
            means[place, strip] = block @ share
    # ‖K − r1ᵀ − 1rᵀ + g‖² in the weighted norm, for the weighted means r of the rows and g of the whole.
    total = weight.sum()
    norms = squares - 2.0 * total * (means**2 @ weight) + (total * (means @ share)) ** 2
    norms = np.sqrt(np.where(norms > _ROUNDING * squares, norms, np.inf))
    products = np.einsum("vic,i,vid->vcd", Y, weight, Y)
    forms: Array = sums.T.reshape(len(Y), -1, P)
    if by_column:
        sizes = np.einsum("vcc->vc", products)[:, :, np.newaxis]
    else:
        forms, sizes = forms.sum(axis=1), np.sqrt((products**2).sum(axis=(1, 2)))[:, np.newaxis]
    # Constant targets are aligned with nothing.
    return np.asarray(forms / norms / np.where(sizes > 0, sizes, np.inf))


def conditional_pvalue(
    K: Array, given: Array, dual_coef: Array, *, n_permutations: int = 999, random_state: Seed = None
) -> float:
    """Test by permutations whether a kernel adds anything to a machine that does not have it.

    The null hypothesis is that the samples in the kernel's feature space are independent of the targets, given the
    kernel of the machine. Its dual coefficients β are what the machine leaves unexplained: of least squares the
    residuals over α, of hazards the martingale residuals. Ridge regression on the machine's kernel, with an intercept
    and its ridge by leave-one-out error, removes from β and from the tested kernel what it explains: a kernel that
    repeats those of the machine adds nothing. The statistic is tr(β̃ᵀ K̃ β̃) / ‖Rβ̃‖² with K̃ = R K R, the slope of the
    objective in the weight of what is left of the kernel; it is compared with that of β̃ in permuted order.

    A sample that lacks the tested view is left out: what stands in for its view is computed from the other views, so
    that a completed kernel repeats what these say of the targets. The machine is that of all samples. Where a sample
    lacks another view, the null hypothesis is conditional on what the machine has in its place: a view that repeats
    another one adds something for the samples that lack the other.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        The kernel between training samples, or the sum of the kernels of a view. A sample that lacks the view has NaN
        in its row and column.
    given : ndarray of shape (n, n)
        The kernel of a machine that was fitted without it, its `kernel_matrix`.
    dual_coef : ndarray of shape (outputs, n)
        The coefficients of that machine, zero where a sample is not a support vector.
    n_permutations : int, default=999
        How often the coefficients are permuted; the p-value is a multiple of 1 / (n_permutations + 1).
    random_state : int, RandomState or None, default=None
        Draws the permutations.

    References
    ----------
    Zhang, Peters, Janzing and Schölkopf (2011), "Kernel-based conditional independence test and application in causal
    discovery"; Shah and Peters (2020), "The hardness of conditional independence testing".

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLRidgeCV
    >>> from kernelmosaic.inspection import conditional_pvalue
    >>> first, second = np.random.RandomState(0).normal(size=(2, 60, 3))
    >>> model = MKLRidgeCV().fit(first, first[:, 0] + second[:, 0])
    >>> machine = model.kernel_matrix(first), model.dual_coef_
    >>> conditional_pvalue(second @ second.T, *machine, random_state=0)
    0.001

    Twenty samples lack the second view:

    >>> K = second @ second.T
    >>> K[:20] = K[:, :20] = np.nan
    >>> conditional_pvalue(K, *machine, random_state=0)
    0.001
    """
    N, random = check_count("n_permutations", n_permutations), check_random_state(random_state)
    if not np.shape(K) == np.shape(given) == (np.shape(dual_coef)[-1],) * 2:
        raise ValueError(
            f"dual_coef has shape {np.shape(dual_coef)}, K {np.shape(K)} and given {np.shape(given)}: give kernels "
            "between all training samples, and a column for each, zero where a sample is not a support vector."
        )
    K, given = np.asarray(K, dtype=np.float64), np.asarray(given, dtype=np.float64)
    beta = np.atleast_2d(np.asarray(dual_coef, dtype=np.float64)).T

    # 1. Only samples that have the tested view are compared.
    having = np.flatnonzero(~np.isnan(K.diagonal()))
    if len(having) < LEAST_SAMPLES_TO_PERMUTE:
        raise ValueError(
            f"K: {len(having)} of {len(K)} samples have the view, too few to permute; give at least "
            f"{LEAST_SAMPLES_TO_PERMUTE}."
        )
    K, given, beta = K[np.ix_(having, having)], given[np.ix_(having, having)], beta[having]
    for name, values in (("K", K), ("given", given), ("dual_coef", beta)):
        if not np.all(np.isfinite(values)):
            raise ValueError(
                f"{name} has NaN or infinite entries between samples that have the view: a sample that lacks it has "
                "NaN in its whole row and column of K, and no NaN elsewhere."
            )

    # 2. Ridge regression on the given kernel removes what it explains of the coefficients and of the tested kernel.
    with threads_for(len(K)):
        smoother = _KernelSmoother(given)
        eigenvalues, eigenvectors = np.linalg.eigh(_centred(K))
        is_part = eigenvalues > _ROUNDING * np.abs(eigenvalues).max()
        features = eigenvectors[:, is_part] * np.sqrt(eigenvalues[is_part])
        R = smoother.residual_matrix(features)
        beta = smoother.residual_matrix(beta) @ beta
        features = R @ features

    # 3. The statistic of the coefficients as they are, and in every permuted order.
    orders = np.array([np.arange(len(K)), *(random.permutation(len(K)) for _ in range(N))])
    statistics = np.empty(N + 1)
    batch = max(1, 2**22 // beta.size)
    for start in range(0, N + 1, batch):
        n_orders = min(batch, N + 1 - start)
        # Shape (n, orders * outputs): one product for all orders.
        permuted = beta[orders[start : start + n_orders].T].reshape(len(K), -1)
        slopes = np.square(features.T @ permuted).reshape(-1, n_orders, beta.shape[1]).sum(axis=(0, 2))
        norms = np.square(R @ permuted).reshape(-1, n_orders, beta.shape[1]).sum(axis=(0, 2))
        statistics[start : start + n_orders] = np.divide(slopes, norms, out=np.zeros(n_orders), where=norms > 0)
    return float(p_values(statistics[:1], statistics[1:, np.newaxis])[0])


#: With fewer samples there are fewer than six orders.
LEAST_SAMPLES_TO_PERMUTE = 3


def _centred(K: Array) -> Array:
    """Return a kernel matrix of centred feature vectors."""
    K = K - K.mean(axis=0)
    return np.asarray(K - K.mean(axis=1, keepdims=True))


class _KernelSmoother:
    """Ridge regression with an intercept on a kernel, of any targets.

    Parameters
    ----------
    kernel : ndarray of shape (n, n)
        The kernel between the samples.
    """

    #: Ridges that are tried, in units of the mean eigenvalue; the last one leaves the intercept only.
    RIDGES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, np.inf)

    def __init__(self, kernel: Array) -> None:
        eigenvalues, eigenvectors = np.linalg.eigh(_centred(kernel))
        self.eigenvalues = np.maximum(eigenvalues, 0.0)
        # The intercept explains the constant vector. As long as that vector is left unexplained, the leave-one-out
        # error of centred targets is too small: the other samples tell the one left out, as all of them sum to zero.
        self.eigenvectors: Array = eigenvectors - eigenvectors.mean(axis=0)

    def residual_matrix(self, targets: Array) -> Array:
        """Return the matrix that turns targets into residuals, with the ridge of least leave-one-out error.

        Parameters
        ----------
        targets : ndarray of shape (n, outputs)

        Returns
        -------
        ndarray of shape (n, n)
        """
        unit = self.eigenvalues.mean() or 1.0
        rotated = self.eigenvectors.T @ targets
        best_error = np.inf
        best_part: Array = np.ones_like(self.eigenvalues)
        for factor in self.RIDGES:
            unexplained: Array = np.ones_like(self.eigenvalues)
            if factor < np.inf:
                unexplained = factor * unit / (self.eigenvalues + factor * unit)
            residuals = self.eigenvectors @ (unexplained[:, np.newaxis] * rotated)
            diagonal = np.square(self.eigenvectors) @ unexplained
            error = float(np.sum(np.square(residuals / diagonal[:, np.newaxis])))
            if error < best_error:
                best_error, best_part = error, unexplained
        return np.asarray((self.eigenvectors * best_part) @ self.eigenvectors.T)


def p_values(observed: Array, null: Array, correction: str | None = None) -> Array:
    """Return (1 + k) / (1 + N), where k of the N values under the null are no smaller than the one observed.

    Parameters
    ----------
    observed : ndarray of shape (P,) or (classes, P)
        The statistics.
    null : ndarray of shape (N, P) or (N, classes, P)
        The same under the null hypothesis.
    correction : {"max", "fdr"} or None
        See `kernel_significance`.
    """
    if correction == "max":
        # All N + 1 are exchangeable under the null hypothesis: the level is exact.
        every = np.concatenate([observed[np.newaxis], null])
        spread = every.std(axis=0)
        every = (every - every.mean(axis=0)) / np.where(spread > _ROUNDING * np.abs(every).max(), spread, np.inf)
        observed, null = every[0], every[1:].max(axis=tuple(range(1, every.ndim)), keepdims=True)
    p: Array = (1.0 + np.sum(null >= observed - _ROUNDING * np.abs(observed), axis=0)) / (1.0 + len(null))
    if correction == "fdr":
        from scipy.stats import false_discovery_control

        p = false_discovery_control(p.ravel()).reshape(p.shape)
    return p


# Samples drawn anew ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stability:
    """What :func:`stability` returns.

    Attributes
    ----------
    kernel_names : list of str
        Of the P kernels.
    classes : list or None
        Whose weights the rows are, where every class has its own; the arrays below then have shape (classes, P).
    weights : ndarray of shape (P,)
        The weights learned from all samples. Where they are no more than relative, as those of the ridge estimators,
        of discriminants and of bilinear machines, their sum is one, here and in all fits.
    selection_frequencies : ndarray of shape (P,)
        Share of the fits in which a kernel has a weight above the threshold.
    lower, upper : ndarray of shape (P,)
        Ends of the interval that holds the middle `confidence_level` of a weight.
    resampled_weights : ndarray of shape (n_resamples, P)
        The weights of all fits.
    confidence_level : float
        Of the intervals.
    """

    kernel_names: list[str]
    classes: list[Any] | None
    weights: Array
    selection_frequencies: Array
    lower: Array
    upper: Array
    resampled_weights: Array = field(repr=False)
    confidence_level: float = 0.95

    def _rows(self) -> list[list[Any]]:
        columns = (self.weights, self.selection_frequencies, self.lower, self.upper)
        return labelled(self.kernel_names, self.classes, columns)

    def to_frame(self) -> Any:
        """Return a data frame: one row per kernel, or per class and kernel as ``class: kernel``."""
        return frame(("kernel", "weight", "selection_frequency", "lower", "upper"), self._rows())

    def __str__(self) -> str:
        return text_table(("kernel", "weight", "selected", "from", "to"), self._rows())


def stability(
    estimator: Estimator,
    X: MatrixLike,
    y: TargetLike,
    *,
    n_resamples: int = 100,
    method: str = "subsample",
    fraction: float = 0.5,
    threshold: float = 1e-3,
    confidence_level: float = 0.95,
    groups: Any = None,
    sample_weight: SampleWeight = None,
    random_state: Seed = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> Stability:
    """Refit on samples drawn from the training set: how often a kernel is selected, and the distribution of its weight.

    Every fit is separate: widths and scales of the kernels are those of the samples drawn. It starts from the
    weights of the fit to all samples, which saves time and does not change the result.

    Parameters
    ----------
    estimator : estimator
        Of this package, with targets, or a pipeline that ends in one; not changed.
    X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
        Samples.
    y : array-like
        Their targets, as `fit` takes them.
    n_resamples : int, default=100
        How often samples are drawn.
    method : {"subsample", "bootstrap"}, default="subsample"
        Some of the samples, each at most once; or as many as there are, with replacement, which shows how much the
        weights of a set of this size vary. A sample that is drawn several times is given once, with its number of
        copies as sample weight, or its copies are left out together, so that leaving it out leaves no copy behind.
        Samples are drawn within each class, so that every class is present.
    fraction : float, default=0.5
        Share of the samples in a subsample.
    threshold : float, default=1e-3
        A kernel is selected if its weight is above.
    confidence_level : float, default=0.95
        Share of the weights that the intervals hold.
    groups : array-like of shape (n_samples,), default=None
        Whole groups are drawn, such as donors, in place of samples; draws that lack a class are drawn again.
    sample_weight : array-like of shape (n_samples,), default=None
        Factors of C; samples of weight zero are not drawn.
    random_state : int, RandomState or None, default=None
        Draws the samples, and a seed for an estimator that has none.
    n_jobs : int, default=None
        Processes; None means one. Results do not depend on it.
    verbose : bool, default=False
        Show how many fits are done.

    Returns
    -------
    Stability

    References
    ----------
    Meinshausen and Bühlmann (2010), "Stability selection".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.inspection import stability
    >>> from kernelmosaic.kernels import Gaussian
    >>> X, y = load_iris(return_X_y=True)
    >>> views = [("sepal", Gaussian(), [0, 1]), ("petal", Gaussian(), [2, 3])]
    >>> model = MKLClassifier(views)
    >>> found = stability(model, X[50:], y[50:], n_resamples=10, random_state=0)
    >>> float(found.selection_frequencies[1])
    1.0
    """
    n_resamples = check_count("n_resamples", n_resamples)
    check_choice("method", method, ("subsample", "bootstrap"))
    check_share("fraction", fraction)
    check_share("confidence_level", confidence_level)
    check_positive("threshold", threshold, zero=True)
    check_row_names(X, groups=groups)
    estimator, y, weight, random = prepare(estimator, X, y, sample_weight, random_state)
    model = last_step(fit(estimator, X, y, weight))
    weights = comparable_weights(model)
    strata = y if is_classifier(model) and y.ndim == 1 else np.zeros(len(y))
    counted = np.arange(len(y)) if weight is None else np.flatnonzero(weight)
    share = None if method == "bootstrap" else fraction
    labels = strata if groups is None else _group_labels(groups, len(y))
    members = [counted[labels[counted] == label] for label in np.unique(labels[counted])]
    if groups is None:
        drawn = [np.concatenate([_draw(one, share, random) for one in members]) for _ in range(n_resamples)]
    else:
        drawn = [_draw_groups(members, strata, share, random) for _ in range(n_resamples)]
    has_copies = method == "bootstrap"
    counts_copies = has_copies and not leaves_out_one_by_one(model) and has_fit_parameter(model, "sample_weight")
    tasks = [_task_of_draw(y, weight, rows, counts_copies) for rows in drawn]
    found = refit(estimator, X, tasks, model.weights_, n_jobs, verbose, "stability")
    tail = 0.5 * (1.0 - confidence_level)
    lower, upper = np.quantile(found, [tail, 1.0 - tail], axis=0)
    names, classes = list(model.kernel_names_), model.classes_.tolist() if weights.ndim == 2 else None
    selected = np.mean(found > threshold, axis=0)
    return Stability(names, classes, weights, selected, lower, upper, found, float(confidence_level))


def _task_of_draw(y: AnyArray, weight: Array | None, rows: Indices, counts_copies: bool) -> Task:
    """Return what a fit to drawn samples reads, where `counts_copies` each once with the number of its copies.

    A fit that leaves samples out, as leave-one-out and cross-validation do, would find copies of them among the others.
    """
    if not counts_copies:
        return y[rows], None if weight is None else weight[rows], rows
    distinct, counts = np.unique(rows, return_counts=True)
    sample_weight = counts.astype(np.float64)
    if weight is not None:
        sample_weight *= weight[distinct]
    return y[distinct], sample_weight, distinct


def _draw(numbers: Indices, fraction: float | None, random: np.random.RandomState) -> Indices:
    """Return a fraction of some numbers, drawn without replacement; for None as many, drawn with replacement."""
    size = len(numbers) if fraction is None else max(1, round(fraction * len(numbers)))
    return np.asarray(random.choice(numbers, size, replace=fraction is None))


def _draw_groups(
    members: list[Indices], strata: AnyArray, fraction: float | None, random: np.random.RandomState
) -> Indices:
    """Return the samples of some groups, with every class: a fraction of the groups, or as many with replacement."""
    classes = len(np.unique(strata[np.concatenate(members)]))
    for _ in range(100):
        chosen = _draw(np.arange(len(members)), fraction, random)
        rows = np.concatenate([members[g] for g in chosen])
        if len(np.unique(strata[rows])) == classes:
            return rows
    raise ValueError(
        f"groups: 100 draws of {len(chosen)} of the {len(members)} groups lack a class; raise fraction, or leave "
        "groups None."
    )
