"""The classes of a training set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets


def find_classes(estimator: Any, y: NDArray[Any], weight: NDArray[np.float64] | None = None) -> NDArray[Any]:
    """Return the classes of the samples that count, in order, or raise if y holds no classes or a single one."""
    check_classification_targets(y)
    classes: NDArray[Any] = np.unique(y if weight is None else y[weight > 0])
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only, {classes.tolist()}: {type(estimator).__name__} needs at least two classes."
        )
    return classes
