"""Estimators inside pipelines and searches."""

from __future__ import annotations

from typing import Any

from kernelmosaic._typing import Estimator, MatrixLike


def divide_pipeline(estimator: Estimator) -> tuple[Any, Any]:
    """Return the first steps of a pipeline, and its last.

    The first steps are None if there are none. An estimator that is no pipeline is its own last
    step.
    """
    if not hasattr(estimator, "steps"):
        return None, estimator
    first_steps = estimator[:-1] if len(estimator.steps) > 1 else None
    return first_steps, estimator.steps[-1][1]


def last_step(estimator: Estimator) -> Any:
    """Return the last step of a pipeline, of nested ones that of the innermost.

    An estimator that is no pipeline is returned itself.
    """
    while hasattr(estimator, "steps"):
        estimator = estimator.steps[-1][1]
    return estimator


def unwrap(estimator: Estimator) -> Any:
    """Return the model inside pipelines and fitted searches, however they are nested.

    Of a pipeline it is in the last step, of a search it is the best estimator.
    """
    model = last_step(estimator)
    if not hasattr(model, "best_estimator_"):
        return model
    return unwrap(model.best_estimator_)


def behind_pipeline(estimator: Estimator, X: MatrixLike) -> tuple[Any, Any]:
    """Return the model inside a fitted estimator, and samples as it reads them.

    The model is that of `unwrap`; the samples pass the steps of pipelines before it.
    """
    if hasattr(estimator, "best_estimator_"):
        return behind_pipeline(estimator.best_estimator_, X)
    if not hasattr(estimator, "steps"):
        return estimator, X
    steps, model = divide_pipeline(estimator)
    if steps is not None:
        X = steps.transform(X)
    return behind_pipeline(model, X)
