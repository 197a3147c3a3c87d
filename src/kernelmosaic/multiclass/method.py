"""The method of weights per class and kernel: its learner, its function and its attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmosaic._typing import Array, MatrixLike, Settings
from kernelmosaic.backend import default_budget, format_bytes
from kernelmosaic.engine.expansion import Function
from kernelmosaic.engine.fit import Fit, WeightMethod
from kernelmosaic.engine.tasks import Task
from kernelmosaic.engine.training_set import TrainingSet
from kernelmosaic.learning.problem import Learner
from kernelmosaic.multiclass.learning import matrix_dtype


@dataclass(frozen=True)
class DifferenceFunction(Function):
    """The difference of the functions of two classes: that of the second less that of the first."""

    def outputs(self, X: MatrixLike) -> Array:
        return np.diff(self.expansion.values(X)) + self.intercept

    def terms(self, X: MatrixLike) -> Array:
        return np.diff(self.expansion.terms(X))


@dataclass(frozen=True)
class ClassWiseMethod(WeightMethod):
    """One weight per class and kernel.

    Attributes
    ----------
    memory_budget : float or None
        Bytes for the kernels of the fit and one combined matrix per class; None means half of the
        free memory.
    """

    memory_budget: float | None = None

    def learner(self, task: Task, data: TrainingSet, machines: Sequence[Any]) -> Learner:
        """Return the learner of the weights; raise where a matrix per class exceeds the memory."""
        learner = super().learner(task, data, machines)
        stack = data.stack
        if not stack.writes_matrices:
            return learner
        n_classes = len(task.classes)
        itemsize = matrix_dtype(stack, learner.options).itemsize
        needed_bytes = n_classes * stack.n_samples**2 * itemsize
        if self.memory_budget is None:
            free_bytes = default_budget()
        else:
            stored_bytes = 0 if stack.matrices is None else stack.matrices.nbytes
            free_bytes = self.memory_budget - stored_bytes
        if needed_bytes > free_bytes:
            raise MemoryError(
                f"One combined matrix for each of {n_classes} classes needs"
                f" {format_bytes(needed_bytes)}, the budget leaves {format_bytes(free_bytes)}: use"
                " fewer samples, raise memory_budget, or use approximation='nystroem'."
            )
        return learner

    def function(self, fit: Fit) -> Function:
        beta, intercept = self.coefficients(fit)
        expansion = fit.data.expansion(beta, fit.support, fit.eta())
        if len(intercept) == 2:
            return DifferenceFunction(expansion, np.diff(intercept), shares_weights=False)
        return Function(expansion, intercept, fit.weights.ndim == 1)

    def attributes(self, fit: Fit) -> Settings:
        attributes = super().attributes(fit)
        if len(fit.intercept) == 2:
            attributes["intercept_"] = np.diff(fit.intercept)
        return attributes
