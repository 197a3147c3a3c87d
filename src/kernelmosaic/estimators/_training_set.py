"""The training set as learners see it: kernels fitted to the samples that count, in matrices or in features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.estimators._expansion import Expansion
from kernelmosaic.estimators._feature_expansion import FeatureExpansion
from kernelmosaic.estimators._gated_expansion import GatedExpansion
from kernelmosaic.estimators._repeats import Counted, count_repeats
from kernelmosaic.estimators._scales import warn_of_scales
from kernelmosaic.estimators._streamed import is_small, is_streamed, named_columns
from kernelmosaic.gram import GramStack, KernelSet, ProductKernelSet, make_feature_stack, make_stack, take_rows
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.gram.memory import default_budget
from kernelmosaic.gram.row_blocks import open_rows
from kernelmosaic.kernels.views import KernelSpec, lay_specs
from kernelmosaic.learning.gated import Look
from kernelmosaic.learning.projections import Projections

Array = NDArray[np.float64]
#: Relative differences of a diagonal that count as none: rounding, and what is too little to tell samples apart.
_EVEN = 1e-3
#: About so many samples say whether a diagonal varies, where there may be more than fit the memory.
_LOOKED_AT = 1000


class TrainingSet(ABC):
    """The samples that count, with the kernels fitted to them.

    Parameters
    ----------
    model : estimator
        Whose parameters say how kernels are approximated, how much memory they may take and where they are computed.
    counted : Counted
        Which samples count, and how much.

    Attributes
    ----------
    kept, weight : ndarray of shape (n,)
        Row numbers of the samples in what was given, and how much each counts.
    kernel_set : KernelSet or FeatureMaps
        The fitted kernels.
    samples : array, sparse matrix or RowSource
        The samples themselves.
    table : array or data frame
        Has the columns of the samples, by their names if they have any; its rows do not count.
    stack : GramStack
        Their matrices, or features; made when first asked for.
    device : str or None
        Where they are computed.
    """

    kernel_set: Any
    samples: Any
    table: Any

    def __init__(self, model: Any, counted: Counted) -> None:
        self.kept, self.weight = counted.rows, counted.weight
        self.budget: float | None = model.memory_budget
        self.device: str | None = model._fit_device

    @property
    @abstractmethod
    def stack(self) -> GramStack: ...

    @property
    @abstractmethod
    def shareable(self) -> bool:
        """Whether several threads may work on the stack at once, and gain by it."""

    @abstractmethod
    def expansion(self, beta: Array, support: NDArray[np.intp], eta: Array) -> Expansion | FeatureExpansion:
        """Return the function with coefficients β, of shape (outputs, n), and weights η, of shape (outputs, P)."""

    @abstractmethod
    def gated_expansion(
        self, looks: Sequence[Look], support: NDArray[np.intp], kernel_set: KernelSet | None = None
    ) -> GatedExpansion | FeatureExpansion:
        """Return the function of machines solved under their gates, the outputs of one after those of the other.

        `kernel_set` holds the kernels with what else of them was learned; by default they are as they were fitted.
        """

    @abstractmethod
    def diagonals(self) -> Array:
        """Return k_m(x, x) of every kernel and sample, of shape (P, n)."""

    def uneven_kernels(self) -> list[str]:
        """Return the names of the kernels whose k(x, x) differs from sample to sample."""
        diagonals = self._exact_diagonals()
        uneven = np.ptp(diagonals, axis=1) > _EVEN * np.abs(diagonals).max(axis=1)
        return [self.kernel_set.names[m] for m in np.flatnonzero(uneven)]

    @abstractmethod
    def _exact_diagonals(self) -> Array:
        """Return k_m(x, x) of the kernels as they are, not in features, for enough samples to see whether it varies."""


class ExactSet(TrainingSet):
    """Kernels as they are: samples are compared with each other."""

    kernel_set: KernelSet

    def __init__(self, model: Any, rule: type[KernelSet], specs: list[KernelSpec], X: Any, counted: Counted) -> None:
        super().__init__(model, counted)
        self.samples = X
        self.kernel_set = rule.fit(specs, X, model.normalize, counted.weight)
        self.views = self.kernel_set.views(X)
        self.dtype = model._stack_dtype

    @cached_property
    def stack(self) -> GramStack:
        return make_stack(self.kernel_set, self.views, dtype=self.dtype, budget=self.budget, device=self.device)

    @property
    def shareable(self) -> bool:
        # A device has memory for one combined matrix, and gains nothing by a second.
        return self.device is None

    def expansion(self, beta: Array, support: NDArray[np.intp], eta: Array) -> Expansion:
        return Expansion.prune(self.kernel_set, self.views, support, beta[:, support], eta, self.device)

    def gated_expansion(
        self, looks: Sequence[Look], support: NDArray[np.intp], kernel_set: KernelSet | None = None
    ) -> GatedExpansion:
        coefficients = [one.outputs[:, np.newaxis, support] * one.gates[support].T for one in looks]
        kept = take_rows(self.views, support)
        return GatedExpansion(kernel_set or self.kernel_set, kept, np.concatenate(coefficients), device=self.device)

    def projections(self) -> Projections:
        """Return projected kernels whose projections can be learned, with a stack of their own."""
        return Projections(self.kernel_set, self.views, self.weight, self.budget)

    def diagonals(self) -> Array:
        return self.kernel_set.diagonals(self.views)

    _exact_diagonals = diagonals


class FeatureSet(TrainingSet):
    """Kernels in features, of samples that may stay where they are."""

    kernel_set: FeatureMaps

    def __init__(self, model: Any, rule: type[KernelSet], specs: list[KernelSpec], X: Any, counted: Counted) -> None:
        super().__init__(model, counted)
        self.samples = self.rows = open_rows(X)
        budget = default_budget() if self.budget is None else float(self.budget)
        self.kernel_set = FeatureMaps.fit(
            rule,
            specs,
            self.rows,
            model.normalize,
            counted.weight,
            model.approximation,
            model.rank,
            model.random_state,
            budget,
        )

    @cached_property
    def stack(self) -> FeatureStack:
        return make_feature_stack(self.kernel_set, self.rows, self.budget, self.device)

    @property
    def shareable(self) -> bool:
        # Everyone at work needs memory of their own, beside the features.
        return self.budget is None and self.stack.shareable

    def expansion(self, beta: Array, support: NDArray[np.intp], eta: Array) -> FeatureExpansion:
        return FeatureExpansion.prune(self.kernel_set, self.stack, beta, eta, self.device)

    def gated_expansion(
        self, looks: Sequence[Look], support: NDArray[np.intp], kernel_set: KernelSet | None = None
    ) -> FeatureExpansion:
        return FeatureExpansion.prune_gated(self.kernel_set, self.stack, looks, self.device)

    def diagonals(self) -> Array:
        return np.concatenate([self.stack.combine(one).diagonal()[np.newaxis] for one in np.eye(len(self.kernel_set))])

    def _exact_diagonals(self) -> Array:
        counted = np.flatnonzero(self.weight)
        some = self.rows.take(counted[:: -(-len(counted) // _LOOKED_AT)])
        kernels = self.kernel_set.kernel_set
        return kernels.diagonals(kernels.views(some))


def count_samples(model: Any, X: Any, y: Any, sample_weight: Array | None) -> Counted:
    """Return the samples that count; where they fill the memory, or stay on the disk, repeated ones are not found."""
    if model.approximation is None or is_small(X):
        return count_repeats(X, y, sample_weight)
    return Counted.everyone(X.shape[0], sample_weight)


def read_training_set(model: Any, X: Any, original: Any, counted: Counted) -> TrainingSet:
    """Fit the kernels of an estimator to validated samples; `original` is X as given, for the names of its columns."""
    everyone = len(counted.rows) == X.shape[0] and bool(np.all(np.diff(counted.rows) == 1))
    # Exact kernels keep samples, which must be copies of their own; features keep none, and may be of more than fit.
    if model.approximation is None or not everyone:
        X = X[counted.rows]
    named = len(getattr(original, "shape", ())) == 2 and not is_streamed(original)
    table = original if named else named_columns(X)
    specs = lay_specs(model._read_kernels(), table)
    # Multiplied kernels are one kernel: there are no weights to learn between them.
    rule = ProductKernelSet if isinstance(model.weights, str) and model.weights == "product" else KernelSet
    kind = ExactSet if model.approximation is None else FeatureSet
    data = kind(model, rule, specs, X, counted)
    data.table = table
    warn_of_scales(model, specs, data.samples, table)
    return data
