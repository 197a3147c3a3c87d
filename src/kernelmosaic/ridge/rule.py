"""Weights for other machines by the criterion of least squares: ``weights="loo"``.

`WEIGHT_RULES` of `engine/fit.py` names `loo_weights`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
from joblib import hash as content_hash

from kernelmosaic._typing import Array, TargetLike
from kernelmosaic.engine.samples import is_streamed
from kernelmosaic.engine.tasks import Classes, Numbers, Task, class_factors
from kernelmosaic.engine.training_set import TrainingSet
from kernelmosaic.ridge.cross_fitting import learn_weights
from kernelmosaic.ridge.learning import RidgeOptions, RidgeTargets
from kernelmosaic.row_order import content_order, on_grid


def loo_weights(task: Task, data: TrainingSet, y: Any) -> Array | None:
    """Return the weights, of sum one, that least squares learns for a task.

    They are None for a task without targets of least squares.

    Parameters
    ----------
    task : Task
        Classes or numbers.
    data : TrainingSet
        The samples and kernels.
    y : array of shape (n,) or (n, targets)
        The targets of its samples.
    """
    targets = targets_of(task, y, data.weight)
    return None if targets is None else weights_for(targets, data)


def weights_for(targets: RidgeTargets, data: TrainingSet) -> Array:
    """Return the weights, of sum one, that least squares learns for some targets.

    They are learned once, and stored in `data.weights_of_rules` for the next time.
    """
    key = ("loo", str(content_hash([targets.Y, targets.weight])))
    if key not in data.weights_of_rules:
        if not is_streamed(data.samples):
            # Samples in another order get the same weights; the grid removes the last digits of
            # standardised columns, which depend on the order.
            order = content_order(on_grid(data.samples), targets.Y, targets.weight)
            targets = replace(targets, order=order)
        with data.threads():
            weights = learn_weights(data.stack, targets, RidgeOptions(n_init=2)).weights
        data.weights_of_rules[key] = weights / weights.sum()
    return data.weights_of_rules[key]


@singledispatch
def targets_of(task: Task, y: TargetLike, weight: Array) -> RidgeTargets | None:
    """Return the targets of least squares for a task, or None if it has none."""
    return None


@targets_of.register
def _(task: Classes, y: TargetLike, weight: Array) -> RidgeTargets:
    factors = class_factors(task.class_weight, y, weight, task.classes)
    return RidgeTargets.of_classes(task.labels(y), weight * factors)


@targets_of.register
def _(task: Numbers, y: TargetLike, weight: Array) -> RidgeTargets:
    columns = y if y.ndim == 2 else y[:, np.newaxis]
    return RidgeTargets.of_numbers(columns, weight)
