"""Kernels and solutions that fits to the same samples share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextvars import ContextVar, Token
from dataclasses import fields
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from joblib import hash as content_hash
from sklearn.base import BaseEstimator

from kernelmosaic._checks import check_positive
from kernelmosaic._typing import MatrixLike
from kernelmosaic.backend import default_budget
from kernelmosaic.engine.samples import DistinctSamples, is_streamed
from kernelmosaic.engine.training_set import KernelOptions, TrainingSet, read_training_set
from kernelmosaic.learning.certificate import COLD, Start
from kernelmosaic.learning.problem import Learner


class KernelStore:
    """Training sets by their content, and where fits to each have ended.

    Parameters
    ----------
    memory_budget : float or None
        Bytes that the kernels kept may take; None means half of the free memory. The longest unused go first.
    """

    def __init__(self, memory_budget: float | None = None) -> None:
        self.memory_budget = memory_budget
        self._sets: OrderedDict[str, TrainingSet] = OrderedDict()
        self._ends: WeakKeyDictionary[TrainingSet, dict[Any, Start]] = WeakKeyDictionary()
        self._objects: list[object] = []

    def training_set(
        self, options: KernelOptions, X: MatrixLike, original: Any, counted: DistinctSamples
    ) -> TrainingSet:
        """Return the training set that a fit reads, made anew only if none of the same content is kept."""
        # Features drawn from a generator that moves on are new ones every time.
        fixed = options.approximation is None or isinstance(options.random_state, int | np.integer)
        if is_streamed(X) or not fixed:
            return read_training_set(options, X, original, counted)
        said = {one.name: getattr(options, one.name) for one in fields(options) if one.name != "estimator"}
        entries = [(entry.name, self._content(entry.kernel), self._content(entry.columns)) for entry in options.entries]
        names = [str(name) for name in getattr(original, "columns", ())]
        key = str(content_hash([said | {"entries": entries}, self._content(X), names, counted.rows, counted.weight]))
        if key not in self._sets:
            self._sets[key] = read_training_set(options, X, original, counted)
        self._sets.move_to_end(key)
        # Every fit needs memory beside the kernels kept.
        allowed = 0.5 * default_budget() if self.memory_budget is None else self.memory_budget
        data = self._sets[key]
        while len(self._sets) > 1 and sum(one.nbytes for one in self._sets.values()) > allowed:
            self._sets.popitem(last=False)
        return data

    def starts(
        self, data: TrainingSet, learner: Learner, machines: Sequence[Any], given: Sequence[Start] | None = None
    ) -> list[Start]:
        """Return where each machine starts: where a like one has ended, at the weights given if there are any."""
        ends = self._ends.get(data, {})
        found = [ends.get(_key(learner, machine, c), COLD) for c, machine in enumerate(machines)]
        if given is None:
            return found
        return [
            own if end is COLD or own.weights is None else end.at(own.weights)
            for own, end in zip(given, found, strict=True)
        ]

    def keep(self, data: TrainingSet, fit: Any) -> None:
        """Keep where a fit has ended, and the kernels in double precision if it has taken these."""
        if fit.data is not data:
            self._sets.update({key: fit.data for key, one in self._sets.items() if one is data})
            self._ends[fit.data] = {key: start.elsewhere() for key, start in self._ends.get(data, {}).items()}
        ends = self._ends.setdefault(fit.data, {})
        for c, (machine, one) in enumerate(zip(fit.machines, fit.learned, strict=True)):
            ends[_key(fit.learner, machine, c)] = one.start

    @property
    def training_sets(self) -> list[TrainingSet]:
        """The training sets kept, the last used at the end."""
        return list(self._sets.values())

    def forget_ends(self) -> None:
        """Forget where fits have ended, so that the next ones do not depend on them."""
        self._ends.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._sets.clear()
        self._ends.clear()
        self._objects.clear()

    def _content(self, value: object) -> Any:
        """Return the content of a value, or, as that of a lambda cannot be read, its place among such objects."""
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

    def _identity(self, value: object) -> int:
        """Return the place of an object among those met, which are kept: two at different times are never the same."""
        for place, one in enumerate(self._objects):
            if one is value:
                return place
        self._objects.append(value)
        return len(self._objects) - 1


def _key(learner: Learner, machine: Any, output: int) -> Any:
    """Return what tells starts apart: other targets may have other classes, and so coefficients of another shape."""
    norm = getattr(getattr(learner, "options", None), "norm", None)
    return type(learner), str(norm), type(machine), getattr(machine, "shape", None), output


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
        self.store = KernelStore(memory_budget)
        self._entered: list[Token[KernelStore | None]] = []

    def __enter__(self) -> Self:
        if self.memory_budget is not None:
            check_positive("memory_budget", self.memory_budget)
        self._entered.append(_ACTIVE.set(self.store))
        return self

    def __exit__(self, *raised: object) -> None:
        _ACTIVE.reset(self._entered.pop())
        if not self._entered:
            self.store.clear()


_ACTIVE: ContextVar[KernelStore | None] = ContextVar("kernelmosaic_kernel_store", default=None)


def active_store() -> KernelStore | None:
    """Return the store of the innermost `SharedKernels`; None without one."""
    return _ACTIVE.get()
