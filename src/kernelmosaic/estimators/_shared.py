"""Fits that share what they have in common: the kernels of the same samples, and solutions to start from."""

from __future__ import annotations

from collections import OrderedDict
from contextvars import ContextVar, Token
from dataclasses import fields
from typing import Any, Self

import numpy as np
from joblib import hash as content_hash
from sklearn.base import BaseEstimator

from kernelmosaic.backend import default_budget
from kernelmosaic.estimators._training_set import (
    Counted,
    KernelOptions,
    Likely,
    TrainingSet,
    is_streamed,
    read_training_set,
)
from kernelmosaic.machines.base import check_positive

#: Share of a stack's usual budget that the kernels kept may take: every fit needs memory besides.
_SHARE = 0.5


class SharedKernels:
    """A context whose fits share kernels and solutions wherever they have the same samples.

    A fit within it takes the Gram matrices, or features, that an earlier fit to the same samples with the same kernels
    has computed, and starts from the weights and coefficients that it found. What is shared is looked up by content:
    widths, scales and landmarks are those of the samples of each fit, exactly as without the context. So are the
    certificates: results agree up to `tol`. A function within a kernel whose content cannot be read, such as a lambda,
    is the same if it is the same object.

    For searches of scikit-learn, where one estimator is fitted to the same folds over and over. Fits in other processes
    or threads, as with ``n_jobs``, do not see the context.

    Parameters
    ----------
    memory_budget : float, default=None
        Bytes that the kernels kept may take; None means a quarter of the free memory. The longest unused go first.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.model_selection import SharedKernels
    >>> X, y = load_iris(return_X_y=True)
    >>> with SharedKernels():
    ...     search = GridSearchCV(MKLClassifier(), {"C": [0.1, 1, 10]}, cv=3).fit(X, y)
    >>> search.best_params_["C"] in (0.1, 1, 10)
    True
    """

    def __init__(self, memory_budget: float | None = None) -> None:
        self.memory_budget = memory_budget
        #: What the next fit will probably find, if that is known.
        self.likely: Likely | None = None
        self._sets: OrderedDict[str, TrainingSet] = OrderedDict()
        self._told_apart: dict[int, Any] = {}
        self._entered: list[Token[SharedKernels | None]] = []

    def __enter__(self) -> Self:
        if self.memory_budget is not None:
            check_positive("memory_budget", self.memory_budget)
        self._entered.append(_ACTIVE.set(self))
        return self

    def __exit__(self, *raised: object) -> None:
        _ACTIVE.reset(self._entered.pop())
        if not self._entered:
            self._sets.clear()
            self._told_apart.clear()

    @property
    def training_sets(self) -> list[TrainingSet]:
        """The training sets kept, the last used at the end."""
        return list(self._sets.values())

    def find(self, options: KernelOptions, X: Any, original: Any, counted: Counted) -> TrainingSet:
        """Return the training set that a fit asks for, made anew only if none like it is kept."""
        key = self._key(options, X, original, counted)
        data = self._sets.get(key)
        if data is None:
            data = read_training_set(options, X, original, counted)
            data.starts = {}
        data.likely = self.likely
        self._sets[key] = data
        self._sets.move_to_end(key)
        self._shrink()
        return data

    def _key(self, options: KernelOptions, X: Any, original: Any, counted: Counted) -> str:
        """Return what tells kernels of samples apart: all that they are made of, by content."""
        said = {one.name: getattr(options, one.name) for one in fields(options) if one.name != "estimator"}
        entries = [(entry.name, self._content(entry.kernel), self._content(entry.columns)) for entry in options.entries]
        names = [str(name) for name in getattr(original, "columns", ())]
        return str(content_hash([said | {"entries": entries}, self._content(X), names, counted.rows, counted.weight]))

    def _content(self, value: Any) -> Any:
        """Return what tells a value apart: its content, or, as that of a lambda cannot be read, which object it is."""
        try:
            return content_hash(value)
        except Exception:  # whatever an object raises when it is to be pickled
            pass
        if isinstance(value, BaseEstimator):
            params = value.get_params(deep=False)
            return [self._identity(type(value)), {name: self._content(one) for name, one in params.items()}]
        if isinstance(value, list | tuple):
            return [self._content(one) for one in value]
        return self._identity(value)

    def _identity(self, value: Any) -> int:
        # Kept: another object could have the same number once this one is gone.
        self._told_apart[id(value)] = value
        return id(value)

    def _shrink(self) -> None:
        allowed = _SHARE * default_budget() if self.memory_budget is None else self.memory_budget
        while len(self._sets) > 1 and sum(data.nbytes for data in self._sets.values()) > allowed:
            self._sets.popitem(last=False)


class OneTrainingSet(SharedKernels):
    """The same for fits of which it is known that they have one training set: nothing need be looked up."""

    def _key(self, options: KernelOptions, X: Any, original: Any, counted: Counted) -> str:
        return ""


_ACTIVE: ContextVar[SharedKernels | None] = ContextVar("kernelmosaic_shared_kernels", default=None)


def shared_training_set(options: KernelOptions, X: Any, original: Any, counted: Counted) -> TrainingSet:
    """Return the training set of a fit, shared with others if a context says so and its kernels can be told apart."""
    active = _ACTIVE.get()
    # Features drawn from a generator that moves on are new ones every time.
    fixed = options.approximation is None or isinstance(options.random_state, int | np.integer)
    if active is None or is_streamed(X) or not fixed:
        return read_training_set(options, X, original, counted)
    return active.find(options, X, original, counted)
