"""Weights for other machines by the leave-one-out error of least squares: ``weights="loo"``."""

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
    """Return the weights of least squares, of sum one; None for a task that least squares does not
    serve."""
    targets = targets_of(task, y, data.weight)
    return None if targets is None else weights_for(targets, data)


def weights_for(targets: RidgeTargets, data: TrainingSet) -> Array:
    """Return the weights of sum one that least squares learns, once for the same targets of a
    training set."""
    key = ("loo", str(content_hash([targets.Y, targets.weight])))
    if key not in data.weights_of_rules:
        if not is_streamed(data.samples):
            # The last digits of standardised columns depend on the order of samples.
            order = content_order(on_grid(data.samples), targets.Y, targets.weight)
            targets = replace(targets, order=order)
        with data.threads():
            weights = learn_weights(data.stack, targets, RidgeOptions(n_init=2)).weights
        data.weights_of_rules[key] = weights / weights.sum()
    return data.weights_of_rules[key]


@singledispatch
def targets_of(task: Task, y: TargetLike, weight: Array) -> RidgeTargets | None:
    """Return the targets of least squares for a task; None where there is no such machine."""
    return None


@targets_of.register
def _(task: Classes, y: TargetLike, weight: Array) -> RidgeTargets:
    factors = class_factors(task.class_weight, y, weight, task.classes)
    return RidgeTargets.of_classes(task.labels(y), weight * factors)


@targets_of.register
def _(task: Numbers, y: TargetLike, weight: Array) -> RidgeTargets:
    columns = y if y.ndim == 2 else y[:, np.newaxis]
    return RidgeTargets.of_numbers(columns, weight)
