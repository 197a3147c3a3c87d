"""Fits to nearly the same samples, their weights on one scale, and tables of what they give."""

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
    """Return the estimator itself, of a pipeline its last step, or raise if that has no kernels of
    its own."""
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
    """Fit an estimator, or a pipeline, with the weights of the samples, and return it.

    Its last step starts from weights of the kernels, and has the kernels of a training set, if
    these are given. If it has `groups`, it leaves the samples of one group out together.
    """
    Z, model, last = X, estimator, last_step(estimator)
    if (
        isinstance(last, BaseMKL)
        and not isinstance(last, PathSearch)
        and not (start is None and data is None)
    ):
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
    return estimator.fit(
        X, y, **{f"{path}{name}": value for name, value in options.items() if value is not None}
    )


def prepare(
    estimator: Estimator,
    X: MatrixLike,
    y: TargetLike,
    sample_weight: SampleWeight,
    random_state: Seed,
) -> tuple[Any, Any, Any, Any]:
    """Check what is common to all inspections: a clone that draws the same landmarks in every fit,
    y, weights, draws.

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
            f"X={type(X).__name__}: give the samples as an array, a sparse matrix or a data frame;"
            " stack_views makes one of several tables."
        )
    check_row_names(X, y=y, sample_weight=sample_weight)
    y = np.asarray(y)
    check_consistent_length(X, y)
    rows = np.empty((_num_samples(X), 1))
    return (
        estimator,
        y,
        None if sample_weight is None else read_sample_weight(sample_weight, rows),
        random,
    )


# Many fits ----------------------------------------------------------------------------------------


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
    calls = (
        delayed(_fit_chunk)(estimator, X, tasks[i : i + chunk], known)
        for i in range(0, len(tasks), chunk)
    )
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
    """Whether the model learns from what it says of samples left out, and can leave copies out
    together."""
    if not isinstance(model, BaseRidge) or model.criterion != "loo":
        return False
    return not any(entry.kernel.reads_pairs for entry in model.read_kernels())


def comparable_weights(model: Estimator) -> Array:
    """Return the weights on a scale that does not depend on the number of samples.

    Where no norm sets the sum of the weights, as in discriminants and bilinear machines, it is one
    here, of every class that has weights of its own.
    """
    weights: Array = model.weight_shares_
    if getattr(model, "_has_normed_weights", True):
        return weights
    sums = weights.sum(axis=-1, keepdims=True)
    shares: Array = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
    return shares


# Tables -------------------------------------------------------------------------------------------


def text_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table in plain text, numbers with three digits."""
    cells = [list(heads)] + [
        [one if isinstance(one, str) else f"{one:.3g}" for one in row] for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *line[1:]])
        for row, line in zip(cells, lines, strict=True)
    )


def labelled(names: Sequence[str], classes: Any, values: Sequence[Array]) -> list[list[Any]]:
    """Return one row per kernel, or per class and kernel: names, then numbers; all values have one
    shape."""
    heads = (
        names if classes is None else [f"{label}: {name}" for label in classes for name in names]
    )
    return [list(row) for row in zip(heads, *map(np.ravel, values), strict=True)]


def frame(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """Return the same rows as a data frame of pandas, the first head being that of the index."""
    import pandas as pd

    return pd.DataFrame(rows, columns=list(heads)).set_index(heads[0])
