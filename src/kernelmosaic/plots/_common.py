"""What all displays need: the model whose attributes are drawn, and matplotlib."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from kernelmosaic._typing import Estimator


def fitted_model(estimator: Estimator) -> Any:
    """Return the fitted estimator itself, of a search its best one, of a pipeline its last step."""
    check_is_fitted(estimator)
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "steps"):
            estimator = estimator.steps[-1][1]
        else:
            return estimator


def attribute(model: Estimator, name: str, display: str) -> Any:
    """Return a fitted attribute, or say that this display is not for this model."""
    try:
        return getattr(model, name)
    except AttributeError:
        raise TypeError(
            f"{type(model).__name__} has no {name}: {display} shows estimators of kernelmosaic, and pipelines and "
            "searches around them."
        ) from None


def pyplot() -> Any:
    """Return matplotlib, or say how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('Pictures need matplotlib: pip install "kernelmosaic[plots]"') from error
    return plt
