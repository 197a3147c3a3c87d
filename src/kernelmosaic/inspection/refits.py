"""Refits: many fits to similar samples, their weights on a common scale, and tables of results."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_consistent_length, check_random_state
from sklearn.utils.validation import _num_samples, has_fit_parameter

from kernelmosaic._typing import (
    AnyArray,
    Array,
    Estimator,
    Indices,
    MatrixLike,
    SampleWeight,
    Seed,
    Settings,
    TargetLike,
)
from kernelmosaic.engine import pipelines
from kernelmosaic.engine.samples import is_streamed
from kernelmosaic.engine.search import warn_of_gaps
from kernelmosaic.engine.training_set import SharedKernels, TrainingSet, active_store
from kernelmosaic.estimators._base import BaseMKL, KernelEstimator
from kernelmosaic.estimators.cv import PathSearch
from kernelmosaic.estimators.inputs import read_sample_weight
from kernelmosaic.learning.problem import progress
from kernelmosaic.ridge.estimator import BaseRidge
from kernelmosaic.stacking import are_tables, check_row_names

# One fit ------------------------------------------------------------------------------------------


def last_step(estimator: Estimator) -> Estimator:
    """Return the last step of a pipeline, or the estimator itself, or raise if it has no
    kernels."""
    model = pipelines.last_step(estimator)
    if not isinstance(model, KernelEstimator):
        raise TypeError(
            f"estimator={type(estimator).__name__}: give an estimator of kernelmosaic or a pipeline"
            " that ends in one; of a search its best_estimator_."
        )
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
    """Fit an estimator, or a pipeline, and return it.

    Parameters
    ----------
    estimator : estimator
        Changed.
    X, y : array-like
        The samples and their targets.
    weight : ndarray or None
        Weights of the samples.
    start : ndarray or None
        Weights of the kernels from which the fit starts.
    data : TrainingSet or None
        The training set of these samples, whose kernels are known.
    groups : ndarray or None
        Samples of one group are left out together where the fit leaves samples out.
    """
    model = last_step(estimator)
    takes_start = isinstance(model, BaseMKL) and not isinstance(model, PathSearch)
    if takes_start and not (start is None and data is None):
        # The start and the known kernels are handed to the last step, so the steps before it are
        # fitted here.
        Z = X
        step = estimator
        while hasattr(step, "steps"):
            steps, step = pipelines.divide_pipeline(step)
            if steps is not None:
                Z = steps.fit_transform(Z, y)
        fit_input = step.validated(Z, y, weight)
        step.fit_input(fit_input, store=active_store(), weights=start, data=data)
        return estimator
    if weight is None and groups is None:
        return estimator.fit(X, y)

    # The steps of pipelines receive their options as step__name.
    prefix = ""
    step = estimator
    while hasattr(step, "steps"):
        name, step = step.steps[-1]
        prefix += f"{name}__"
    if weight is not None and not has_fit_parameter(step, "sample_weight"):
        raise TypeError(f"sample_weight: {type(step).__name__}.fit takes none; give None.")
    options: Settings = {}
    if weight is not None:
        options[f"{prefix}sample_weight"] = weight
    if groups is not None:
        options[f"{prefix}groups"] = groups
    return estimator.fit(X, y, **options)


def prepare(
    estimator: Estimator,
    X: MatrixLike,
    y: TargetLike,
    sample_weight: SampleWeight,
    random_state: Seed,
) -> tuple[Any, Any, Any, Any]:
    """Check the arguments that all inspections have in common.

    Returns
    -------
    estimator : estimator
        A clone that has a seed if it takes one, so that it draws the same landmarks in every fit.
    y : ndarray
    sample_weight : ndarray or None
    random : RandomState
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
    is_array_like = hasattr(X, "shape") or isinstance(X, list | tuple)
    if are_tables(X) or is_streamed(X) or not is_array_like:
        raise TypeError(
            f"X={type(X).__name__}: give the samples as an array, a sparse matrix or a data frame;"
            " stack_views makes one of several tables."
        )
    check_row_names(X, y=y, sample_weight=sample_weight)
    y = np.asarray(y)
    check_consistent_length(X, y)
    weight = None
    if sample_weight is not None:
        # The weights are checked against the number of samples only.
        weight = read_sample_weight(sample_weight, np.empty((_num_samples(X), 1)))
    return estimator, y, weight, random


# Many fits ----------------------------------------------------------------------------------------


#: A fit to be done: its targets, the weights of its samples, and their rows, None for all samples.
Task = tuple[AnyArray, Array | None, Indices | None]


def refit(
    estimator: Estimator,
    X: MatrixLike,
    tasks: Sequence[Task],
    start: Array | None,
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
        The fits.
    start : ndarray like the weights, or None
        Weights of the kernels from which every fit starts.
    n_jobs : int or None
        Processes.
    verbose : bool
        Whether to show how many fits are done.
    what : str
        The name of the inspection, for messages.
    chunk : int
        Fits that share the kernels which one process computes, however many processes there are;
        chosen by hand.
    """
    calls = (
        delayed(_fit_chunk)(estimator, X, tasks[first : first + chunk], start)
        for first in range(0, len(tasks), chunk)
    )
    results: list[tuple[Array, float]] = []
    with progress(what, len(tasks), verbose) as show:
        for results_of_chunk in Parallel(n_jobs=n_jobs, return_as="generator")(calls):
            results += results_of_chunk
            show(f"{len(results)} of {len(tasks)} fits", len(results))
    remedy = "raise the estimator's max_iter, or accept a larger tol"
    gaps = np.array([gap for _, gap in results])
    warn_of_gaps(what, gaps, last_step(estimator).tol, remedy)
    return np.array([weights for weights, _ in results])


def _fit_chunk(
    estimator: Estimator, X: MatrixLike, tasks: Sequence[Task], start: Array | None
) -> list[tuple[Array, float]]:
    """Return the weights and the duality gap of each fit; see `refit`."""
    results = []
    # The kernels of one set of samples are stored at a time. Warnings are ignored: the fit to all
    # samples has given them, and gaps are reported once for all fits.
    with SharedKernels(memory_budget=1) as shared, warnings.catch_warnings(action="ignore"):
        for y, weight, rows in tasks:
            # A fit must not start from the last one: results would depend on the order of the fits
            # and on the process that does them.
            shared.store.forget_ends()
            samples = X if rows is None else _safe_indexing(X, rows)
            groups = None
            has_copies = rows is not None and len(np.unique(rows)) < len(rows)
            if has_copies and leaves_out_one_by_one(last_step(estimator)):
                groups = rows
            model = last_step(fit(clone(estimator), samples, y, weight, start, groups=groups))
            gap = float(getattr(model, "duality_gap_", 0.0))
            results.append((comparable_weights(model), gap))
    return results


def leaves_out_one_by_one(model: Estimator) -> bool:
    """Whether a model learns by leave-one-out errors.

    Such a model can also leave copies of a sample out together.
    """
    if not isinstance(model, BaseRidge) or model.criterion != "loo":
        return False
    return not any(entry.kernel.reads_pairs for entry in model.read_kernels())


def comparable_weights(model: Estimator) -> Array:
    """Return the weights on a scale that does not depend on the number of samples.

    Where no norm bounds the weights, as in discriminants and bilinear machines, they are divided by
    their sum; the weights of every class by their own, if classes have weights of their own.
    """
    weights: Array = model.weight_shares_
    if getattr(model, "_has_normed_weights", True):
        return weights
    sums = weights.sum(axis=-1, keepdims=True)
    shares: Array = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
    return shares


# Tables -------------------------------------------------------------------------------------------


def text_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table in plain text, numbers with three digits, the first column to the left."""
    cells = [list(heads)]
    cells += [[cell if isinstance(cell, str) else f"{cell:.3g}" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        aligned = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        aligned[0] = row[0].ljust(widths[0])
        lines.append("  ".join(aligned))
    return "\n".join(lines)


def labelled(names: Sequence[str], classes: Any, values: Sequence[Array]) -> list[list[Any]]:
    """Return one row per kernel, or per class and kernel: its name, then its numbers.

    Parameters
    ----------
    names : sequence of str
        The kernels.
    classes : sequence or None
        The classes, where each has weights of its own.
    values : sequence of ndarray of shape (P,) or (classes, P)
        The columns of the table.
    """
    heads = names
    if classes is not None:
        heads = [f"{label}: {name}" for label in classes for name in names]
    return [list(row) for row in zip(heads, *map(np.ravel, values), strict=True)]


def frame(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """Return rows as a pandas data frame whose first column is the index."""
    import pandas as pd

    return pd.DataFrame(rows, columns=list(heads)).set_index(heads[0])
