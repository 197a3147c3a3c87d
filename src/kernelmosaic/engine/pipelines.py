"""Estimators inside pipelines and searches."""

from __future__ import annotations

from typing import Any

from kernelmosaic._typing import Estimator, MatrixLike


def divide_pipeline(estimator: Estimator) -> tuple[Any, Any]:
    """Return the steps of a pipeline before the last, or None, and the last; the estimator itself
    if it is none."""
    if not hasattr(estimator, "steps"):
        return None, estimator
    return estimator[:-1] if len(estimator.steps) > 1 else None, estimator.steps[-1][1]


def last_step(estimator: Estimator) -> Any:
    """Return the last step of a pipeline, of nested ones that of the innermost; any other estimator
    as it is."""
    while hasattr(estimator, "steps"):
        estimator = estimator.steps[-1][1]
    return estimator


def unwrap(estimator: Estimator) -> Any:
    """Return the last step of a pipeline, or of the best estimator of a fitted search, however they
    are nested."""
    model = last_step(estimator)
    return unwrap(model.best_estimator_) if hasattr(model, "best_estimator_") else model


def behind_pipeline(estimator: Estimator, X: MatrixLike) -> tuple[Any, Any]:
    """Return what `unwrap` returns of a fitted estimator, and samples as it reads them."""
    if hasattr(estimator, "best_estimator_"):
        return behind_pipeline(estimator.best_estimator_, X)
    if not hasattr(estimator, "steps"):
        return estimator, X
    steps, model = divide_pipeline(estimator)
    return behind_pipeline(model, X if steps is None else steps.transform(X))
