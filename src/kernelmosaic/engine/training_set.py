"""Training sets: the samples of a fit with the kernels fitted to them, exactly or in features.

A `KernelStore` holds training sets for further fits to the same samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from copy import copy
from dataclasses import dataclass, fields, replace
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np
from joblib import hash as content_hash
from scipy import sparse
from sklearn.base import BaseEstimator

from kernelmosaic._checks import check_positive
from kernelmosaic._typing import Array, DType, Indices, Mask, MatrixLike, Seed
from kernelmosaic.backend import default_budget, one_blas_thread, threads_for
from kernelmosaic.engine.expansion import (
    ROUNDING,
    Expansion,
    FeatureSums,
    PartialExpansion,
    PartialSums,
    SupportSums,
    without_rounding,
)
from kernelmosaic.engine.samples import DistinctSamples, is_streamed, named_columns, warn_of_scales
from kernelmosaic.gram.factory import make_feature_stack
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.gram.kernel_set import Distances, KernelSet, Views, in_double, take_rows
from kernelmosaic.gram.missing import MissingViews, present_views
from kernelmosaic.gram.normalizing import UnitDiagonal
from kernelmosaic.gram.options import StackOptions
from kernelmosaic.gram.row_blocks import open_rows
from kernelmosaic.gram.stack import ComputedStack, GramStack, StoredStack, make_stack
from kernelmosaic.kernels.base import is_of_user, named
from kernelmosaic.kernels.matrices import PROVED, Precomputed, check_gram_matrix
from kernelmosaic.kernels.views import Entry, KernelSpec, lay_specs, view_names
from kernelmosaic.learning.certificate import COLD, CombinedKernel, Start
from kernelmosaic.learning.problem import Learner
from kernelmosaic.stacking import several_tables

#: Number of samples of which a stored matrix fits any budget: with smaller working sets, a program
#: takes seconds that one block solves in milliseconds.
MIN_STORED_SAMPLES = 128
#: Number of features from which linear algebra has all threads: the factorisation of their products
#: keeps several cores busy. Chosen by hand.
MANY_FEATURES = 2000
#: Number of samples of which the diagonals of kernels in features are computed to see whether they
#: vary. Chosen by hand.
N_DIAGONAL_SAMPLES = 1000
#: Fraction of itself by which k(x, x) may vary between samples and still counts as constant. Chosen
#: by hand, far above rounding.
CONSTANT_DIAGONAL = 1e-3


@dataclass(frozen=True)
class KernelOptions:
    """An estimator's options for its kernels.

    Attributes
    ----------
    entries : list of Entry
        The kernels.
    normalize : str or None
        How they are put on one scale.
    approximation : str or None
        How they are approximated by features.
    rank : int or sequence of int
        Maximum number of features per kernel.
    random_state : int, RandomState or None
        Draws landmarks and frequencies.
    memory_budget : float or None
        Bytes that matrices or features may take.
    device : str or None
        Where they are computed.
    dtype : dtype or None
        Of the matrices; None leaves it to their number.
    missing : str or None
        What stands in for views that samples lack; None if they must have all.
    estimator : str
        Name of the estimator, for warnings.
    host_samples : int or None
        The number of samples up to which the host is faster than a GPU; None leaves it to the task.
    stores : bool
        Whether the matrices are to be stored; False where all samples are read a few times only.
    """

    entries: list[Entry]
    normalize: str | None
    approximation: str | None
    rank: Any
    random_state: Seed
    memory_budget: float | None
    device: str | None
    dtype: DType
    missing: str | None
    estimator: str
    host_samples: int | None = None
    stores: bool = True

    def placed(self, n_samples: int, host_samples: int) -> KernelOptions:
        """Return these options, on the host instead of a GPU where that is faster.

        Parameters
        ----------
        n_samples : int
            The number of samples.
        host_samples : int
            The number of samples up to which the host is faster, where the options say nothing.
        """
        on_gpu = str(self.device).startswith("cuda") and self.approximation is None
        if self.host_samples is not None:
            host_samples = self.host_samples
        if on_gpu and n_samples <= host_samples:
            return replace(self, device=None)
        return self


class TrainingSet(ABC):
    """The samples that count, with the kernels fitted to them.

    Parameters
    ----------
    options : KernelOptions
        The kernels, how they are approximated, how much memory they may take and where they are
        computed.
    specs : list of KernelSpec
        The kernels with the columns that they read.
    X : array, sparse matrix or RowSource
        The samples.
    counted : DistinctSamples
        Which samples count, and how much.
    table : array or data frame
        Has the columns of the samples, by their names if they have any; its rows do not count.
    present : ndarray of shape (n, P), or None
        Which views the samples have, if some lack one.

    Attributes
    ----------
    kept, weight : ndarray of shape (n,)
        Row numbers of the samples in what was given, and how much each counts.
    kernel_set : KernelSet or FeatureMaps
        The fitted kernels.
    samples : array, sparse matrix or RowSource
        The samples themselves.
    stack : GramStack
        Their matrices, or features; made on first use.
    kernel : CombinedKernel
        The combined kernel that fits to this training set use in turn; made on first use.
    device : str or None
        The device on which they are computed; None is the host.
    """

    kernel_set: Any
    samples: MatrixLike
    #: Whether the kernels are known by features; else samples are compared with each other.
    in_features: ClassVar[bool] = False
    #: The samples as exact kernels read them; empty for kernels in features.
    views: Views = Views()
    #: What completes views that samples lack, now or later; None if all have all views.
    missing: MissingViews | None = None
    #: Distances between all samples that were computed as kernels were fitted.
    distances: Distances = MappingProxyType({})
    # These are no `cached_property`: that of Python 3.11 has one lock for all instances. A thread
    # that makes a stack would hold it, and a process forked meanwhile would wait for it forever.
    _stack: Any = None
    _kernel: CombinedKernel | None = None

    def __init__(
        self,
        options: KernelOptions,
        specs: list[KernelSpec],
        X: MatrixLike,
        counted: DistinctSamples,
        table: Any,
        present: Mask | None = None,
    ) -> None:
        self.kept, self.weight, self.table = counted.rows, counted.weight, table
        self.budget, self.device, self.dtype = options.memory_budget, options.device, options.dtype
        self.stores = options.stores
        self.present = present
        # Weights that rules have computed from these kernels, by rule and targets.
        self.weights_of_rules: dict[tuple[str, str], Array] = {}
        self._fit_kernels(options, specs, X)

    @abstractmethod
    def _fit_kernels(self, options: KernelOptions, specs: list[KernelSpec], X: MatrixLike) -> None:
        """Fit the kernels to the samples, and set both in the form that the stack is made of."""

    @property
    def kernel(self) -> CombinedKernel:
        if self._kernel is None:
            self._kernel = CombinedKernel(self.stack)
        return self._kernel

    def threads(self) -> AbstractContextManager[Any]:
        """Return a context for learning, with one thread of linear algebra for few samples."""
        return threads_for(len(self.kept))

    def _changed(self, **attributes: Any) -> Self:
        """Return a copy of this training set with other attributes."""
        changed = copy(self)
        vars(changed).update(attributes)
        return changed

    def in_double(self) -> TrainingSet | None:
        """Return the training set with entries in double precision; None if that is impossible."""
        return None

    def light(self) -> TrainingSet:
        """Return the training set without its matrices, or features.

        They are made again if a function needs them.
        """
        return self._changed(_stack=None, _kernel=None, distances={}, weights_of_rules={})

    def names(self) -> tuple[list[str], list[str]]:
        """Return the names of the kernels, and of the view that each reads."""
        kernels = getattr(self.kernel_set, "kernel_set", self.kernel_set)
        labels = list(getattr(self.table, "columns", range(self.samples.shape[1])))
        return kernels.names, view_names(kernels.fitted, labels)

    @property
    def stack(self) -> Any:
        if self._stack is None:
            stack = self._make_stack()
            self._check_kernels_of_user(stack)
            self._stack = stack
        return self._stack

    def _check_kernels_of_user(self, stack: Any) -> None:
        """Raise if a kernel whose class is the user's is not positive semi-definite.

        Products of features always are.
        """
        return

    @abstractmethod
    def _make_stack(self) -> GramStack: ...

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices, or features; before they are made, those of stored ones."""
        stored = self._stored_bytes() if self._stack is None else int(self._stack.nbytes)
        return stored + sum(distances.nbytes for distances in self.distances.values())

    def _stored_bytes(self) -> int:
        return len(self.kernel_set) * len(self.kept) ** 2 * 8

    def without(self, m: int) -> TrainingSet | None:
        """Return the training set without kernel m, with the computed matrices of the others.

        None is returned where these are not stored.
        """
        return None

    @property
    def shareable(self) -> bool:
        """Whether several threads may work on the stack at once, and are faster then."""
        # A device has memory for one combined matrix, and is no faster with a second one.
        return self.device is None

    @abstractmethod
    def expansion(self, beta: Array, support: Indices, eta: Array) -> Expansion:
        """Return the function of coefficients and weights.

        Parameters
        ----------
        beta : ndarray of shape (outputs, n)
            Coefficients β.
        support : ndarray
            The samples with a coefficient in any output.
        eta : ndarray of shape (outputs, P)
            Weights η.
        """

    @abstractmethod
    def gated_expansion(
        self,
        machines: Sequence[tuple[Array, Array]],
        support: Indices,
        kernel_set: KernelSet | None = None,
    ) -> Expansion:
        """Return the function of machines under gates, with the outputs of all machines in turn.

        Parameters
        ----------
        machines : sequence of (ndarray, ndarray)
            Coefficients of shape (outputs, n) and gates of shape (n, P), per machine.
        support : ndarray
            The samples with a coefficient in any output.
        kernel_set : KernelSet, optional
            The kernels, with projections that were learned; by default the fitted ones.
        """

    @abstractmethod
    def diagonals(self) -> Array:
        """Return k_m(x, x) of every kernel and sample, of shape (P, n)."""

    def sizes(self) -> Array:
        """Return the size of the numbers that entries are computed from, of shape (P, n).

        These are the diagonals, or larger where entries are differences of larger numbers. Bounds
        on rounding follow from them.
        """
        return self.diagonals()

    def varying_diagonals(self) -> list[str]:
        """Return the names of the kernels whose k(x, x) varies between samples."""
        diagonals = self._exact_diagonals()
        largest = np.abs(diagonals).max(axis=1)
        varies = np.ptp(diagonals, axis=1) > CONSTANT_DIAGONAL * largest
        return [self.kernel_set.names[m] for m in np.flatnonzero(varies)]

    def _exact_diagonals(self) -> Array:
        """Return k_m(x, x) of the exact kernels for many samples, of shape (P, n_samples)."""
        return self.diagonals()


class ExactSet(TrainingSet):
    """A training set with exact kernels, which compare samples with each other.

    Attributes
    ----------
    shares : list or None
        For every kernel the fractions in which training samples replace a view that some lack, or
        None; set as the stack is made.
    """

    kernel_set: KernelSet
    shares: list[Any] | None = None

    def _fit_kernels(self, options: KernelOptions, specs: list[KernelSpec], X: MatrixLike) -> None:
        self.samples = X
        if self.present is not None and options.device is not None:
            raise ValueError(
                f"device={options.device!r}: some samples lack a view, and missing views are"
                " completed on the host only; use device=None."
            )
        distance_bytes: float = StackOptions.distance_bytes
        if self.budget is not None:
            distance_bytes = min(self.budget / 4, distance_bytes)
        if options.device:
            distance_bytes = 0.0
        self.kernel_set, self.views, self.distances = KernelSet.fit_samples(
            specs, X, options.normalize, self.weight, self.present, distance_bytes
        )
        # Of sparse samples, those of several tables may lack one.
        has_gaps = not sparse.issparse(X) or several_tables(self.table)
        if options.missing is not None and may_lack(specs) and has_gaps:
            self.missing = MissingViews(options.missing, self.kernel_set, X, self.present)
            self.views = self.missing.views or self.missing.views_of(X, self.present)

    def _make_stack(self) -> GramStack:
        budget = self.budget
        if budget is not None:
            budget = max(budget, 8 * MIN_STORED_SAMPLES**2)
        stack_maker = self.kernel_set.fitted[0].kernel.stack_maker
        if self.device is None and stack_maker is not None:
            module, function = stack_maker
            make_own_stack = getattr(import_module(module), function)
            own_stack: GramStack | None = make_own_stack(self.kernel_set, self.views, budget)
            if own_stack is not None:
                return own_stack
        dtype, stores = self.dtype, self.stores
        distances: Distances | None = self.distances
        if self.present is not None:
            # Completed matrices must be stored in double precision, since the certificate cannot
            # compute their entries again.
            dtype, distances, stores = np.float64, None, True
        stack = make_stack(
            self.kernel_set,
            self.views,
            dtype=dtype,
            budget=budget,
            device=self.device,
            distances=distances,
            stores=stores,
        )
        if self.missing is not None and self.present is not None:
            if stack.matrices is None:
                raise MemoryError(
                    f"X: missing views are completed in stored matrices, but {stack.form}; raise"
                    " memory_budget, or fit to fewer samples."
                )
            self.shares = self.missing.complete(stack.matrices)
        return stack

    def _check_kernels_of_user(self, stack: GramStack) -> None:
        """Raise if a kernel whose class is the user's is not symmetric positive semi-definite.

        The training samples are compared, or so many of them, drawn at random, as can be proved
        quickly.
        """
        n_samples = len(self.kept)
        for m, fitted in enumerate(self.kernel_set.fitted):
            if not is_of_user(fitted.kernel):
                continue
            rows = np.arange(n_samples)
            if self.present is not None:
                rows = np.flatnonzero(self.present[:, m])
            if len(rows) > PROVED:
                rows = np.sort(np.random.RandomState(0).choice(rows, PROVED, replace=False))
            kernel = self.kernel_set.take([m])
            samples = take_rows(self.views.take([m]), rows)
            stack_has_entries = self.present is None and self.device is None
            if len(rows) == stack.n_samples and stack_has_entries:
                K = np.asarray(stack.row_block(m, slice(0, stack.n_samples)))
            else:
                K = next(kernel.blocks(samples, samples, [0]))[1]
            # Asymmetry shows between few samples and all, computed both ways.
            few_samples = take_rows(samples, slice(0, 3))
            few_rows = next(kernel.blocks(few_samples, samples, [0]))[1]
            few_columns = next(kernel.blocks(samples, few_samples, [0]))[1]
            # Entries that are not finite are refused by name as the machine is solved.
            if all(np.isfinite(block).all() for block in (K, few_rows, few_columns)):
                with named(fitted.name):
                    check_gram_matrix(K, kernel.diagonals(samples)[0], few_rows, few_columns)

    def in_double(self) -> ExactSet | None:
        budget = default_budget() if self.budget is None else self.budget
        needed_bytes = (len(self.kernel_set) + 1) * len(self.kept) ** 2 * 8
        is_in_single = self.stack.has_exact and self.dtype is None and self.device is None
        if not is_in_single or needed_bytes > budget:
            return None
        return self._changed(dtype=np.dtype(np.float64), _stack=None, _kernel=None)

    def without(self, m: int) -> ExactSet | None:
        stack = self._stack
        # What replaces a view that samples lack depends on the other kernels.
        can_be_taken = self.device is None and self.present is None
        if stack is None or stack.matrices is None or not can_be_taken:
            return None
        others = np.delete(np.arange(len(self.kernel_set)), m)
        kernel_set = self.kernel_set.take(others)
        views = self.kernel_set.take_views(self.views, others)
        exact = ComputedStack.of(kernel_set, views, stack.dtype, 3 * stack.matrices[0].nbytes)
        missing = None
        if self.missing is not None:
            missing = MissingViews(self.missing.rule, kernel_set, self.samples, None)
        return self._changed(
            kernel_set=kernel_set,
            views=views,
            missing=missing,
            _stack=StoredStack(stack.matrices[others], exact),
            _kernel=None,
        )

    def expansion(self, beta: Array, support: Indices, eta: Array) -> Expansion:
        kept = np.flatnonzero(np.any(eta != 0, axis=0))
        kernel_set = self.kernel_set.take(kept)
        is_every_sample = np.array_equal(support, np.arange(beta.shape[1]))
        coefficients = beta if is_every_sample else beta[:, support]
        if self.missing is not None and self.present is not None:
            coefficients, support = self._completed_coefficients(
                beta, self.missing, self.present, kept
            )
        samples = take_rows(self.kernel_set.take_views(self.views, kept), support)
        kernel_set.check_definite(samples, beta[:, support])
        if self.missing is None:
            sums = self._sums(kernel_set, samples, coefficients)
            return Expansion(sums, eta[:, kept], kept, eta.shape[1], self.device)
        partial_sums = PartialSums(kernel_set, samples, coefficients, self.missing, kept)
        return PartialExpansion(partial_sums, eta[:, kept], kept, eta.shape[1], self.device)

    def _sums(self, kernel_set: KernelSet, samples: Views, beta: Array) -> SupportSums:
        """Return the sums over support samples, in the form of the stack if it has its own."""
        sums: SupportSums | None = None
        # Only stacks of pairs have a form of their own; other stacks are not made for this.
        if any(fitted.kernel.reads_pairs for fitted in kernel_set.fitted):
            sums = self.stack.support_sums(kernel_set, samples, beta)
        return SupportSums(kernel_set, samples, beta) if sums is None else sums

    def _completed_coefficients(
        self, beta: Array, missing: MissingViews, present: Mask, kept: Indices
    ) -> tuple[Array, Indices]:
        """Return coefficients per kernel, where samples lack views, and the support samples.

        The coefficient of a sample that lacks the view of a kernel goes to the samples whose mean
        replaces the view.

        Parameters
        ----------
        beta : ndarray of shape (outputs, n)
            The coefficients of all samples.
        missing : MissingViews
            What replaces views.
        present : ndarray of shape (n, P)
            Which views the samples have.
        kept : ndarray
            The numbers of the kernels with a weight.

        Returns
        -------
        coefficients : ndarray of shape (outputs, kept kernels, n_support)
        support : ndarray
            The samples with a coefficient.
        """
        coefficients = beta[:, np.newaxis] * missing.factors(present).T[kept]
        if self.shares is None:
            # The fractions are set as the stack is made.
            _ = self.stack
        assert self.shares is not None
        for k, m in enumerate(kept):
            if self.shares[m] is not None:
                coefficients[:, k] += beta @ self.shares[m]
        support = np.flatnonzero(np.any(coefficients != 0, axis=(0, 1)))
        return coefficients[:, :, support], support

    def gated_expansion(
        self,
        machines: Sequence[tuple[Array, Array]],
        support: Indices,
        kernel_set: KernelSet | None = None,
    ) -> Expansion:
        samples = take_rows(self.views, support)
        ungated = np.concatenate([beta[:, support] for beta, _ in machines])
        self.kernel_set.check_definite(samples, ungated)
        gated = [beta[:, np.newaxis, support] * gates[support].T for beta, gates in machines]
        beta = np.concatenate(gated)
        n_outputs, n_kernels, _ = beta.shape
        all_kernels = np.arange(n_kernels)
        if self.missing is None or kernel_set is not None:
            kernels = kernel_set or self.kernel_set
            sums = self._sums(kernels, samples, without_rounding(beta))
        else:
            sums = PartialSums(
                self.kernel_set, samples, without_rounding(beta), self.missing, all_kernels
            )
        # All kernels are kept: samples are transformed by learned projections whether predictions
        # need them or not.
        weights = np.ones((n_outputs, n_kernels))
        return Expansion(sums, weights, all_kernels, n_kernels, self.device)

    def diagonals(self) -> Array:
        return self.kernel_set.diagonals(self.views)

    def sizes(self) -> Array:
        if self.present is not None:
            # What replaces a view has a k(x, x) of its own.
            return np.array([np.diagonal(K) for K in self.stack.matrices], dtype=np.float64)
        sizes = self.kernel_set.diagonals(self.views)
        for size, fitted, X in zip(sizes, self.kernel_set.fitted, self.views, strict=True):
            rule = fitted.normalization
            cancelled = None
            if size.any():
                # Otherwise all entries are zero, and no differences.
                cancelled = fitted.kernel.cancelled(X)
            if cancelled is not None and isinstance(rule, UnitDiagonal):
                size += size * cancelled / rule.row_scale(X) ** 2
            elif cancelled is not None:
                size += cancelled / getattr(rule, "scale_", 1.0)
            size += rule.removed
        return sizes


class FeatureSet(TrainingSet):
    """A training set with kernels in features; the samples may stay on a disk."""

    in_features = True
    kernel_set: FeatureMaps

    def _fit_kernels(self, options: KernelOptions, specs: list[KernelSpec], X: MatrixLike) -> None:
        self.samples = self.rows = open_rows(X)
        budget = default_budget() if self.budget is None else float(self.budget)
        assert options.approximation is not None
        with one_blas_thread():
            self.kernel_set = FeatureMaps.fit(
                specs,
                self.rows,
                options.normalize,
                self.weight,
                options.approximation,
                options.rank,
                options.random_state,
                budget,
            )

    def _make_stack(self) -> FeatureStack:
        return self._features_of(self.kernel_set)

    def _features_of(self, kernel_set: FeatureMaps) -> FeatureStack:
        """Return the features of kernels for the training samples."""
        with self.threads():
            return make_feature_stack(kernel_set, self.rows, self.budget, self.device)

    def threads(self) -> AbstractContextManager[Any]:
        """Return a context for learning, with one thread of linear algebra for few features.

        Products of strips of few features keep one core busy; sums over all rows are made of
        several strips at once instead.
        """
        n_features = int(self.kernel_set.widths.sum())
        if self.device is not None or n_features > MANY_FEATURES:
            return nullcontext()
        return one_blas_thread()

    def _stored_bytes(self) -> int:
        return len(self.kept) * int(self.kernel_set.widths.sum()) * 8

    @property
    def shareable(self) -> bool:
        # Each thread needs memory beside the features, which a budget does not provide for.
        return self.budget is None and self.stack.shareable

    def expansion(self, beta: Array, support: Indices, eta: Array) -> Expansion:
        kept = np.flatnonzero(np.any(eta != 0, axis=0))
        columns = np.ascontiguousarray(beta.T)
        if self._stack is not None:
            sums = self.stack.sums(columns, kept)
        else:
            # Without the features of all kernels, those of the kept ones are computed once.
            features = self._features_of(self.kernel_set.take(kept))
            sums = features.sums(columns, range(len(kept)))
        return self.feature_expansion(list(sums.values()), eta)

    def feature_expansion(self, w: list[Array], eta: Array) -> Expansion:
        """Return the function of weight vectors w_m = Z_mᵀ β of the kernels with a weight."""
        kept = np.flatnonzero(np.any(eta != 0, axis=0))
        sums = FeatureSums(self.kernel_set.take(kept), w)
        return Expansion(sums, eta[:, kept], kept, eta.shape[1], self.device)

    def gated_expansion(
        self,
        machines: Sequence[tuple[Array, Array]],
        support: Indices,
        kernel_set: KernelSet | None = None,
    ) -> Expansion:
        # Of each output and kernel the largest |β_ci g_cm(x_i)|, of shape (outputs, P).
        largest_by_output = []
        for beta, gates in machines:
            for beta_of_output in beta:
                gated = np.abs(beta_of_output[:, np.newaxis] * gates)
                largest_by_output.append(gated.max(axis=0))
        largest = np.array(largest_by_output)
        counts = largest > ROUNDING * largest.max(axis=1, keepdims=True)
        kept = np.flatnonzero(np.any(counts, axis=0))
        sums_by_machine = [
            self.stack.sums(np.ascontiguousarray(beta.T), kept, gates) for beta, gates in machines
        ]
        w = [np.hstack([sums[int(m)] for sums in sums_by_machine]) for m in kept]
        weights = np.ones((len(largest), len(kept)))
        feature_sums = FeatureSums(self.kernel_set.take(kept), w)
        return Expansion(feature_sums, weights, kept, len(self.kernel_set), self.device)

    def diagonals(self) -> Array:
        unit_weights = np.eye(len(self.kernel_set))
        diagonals = [self.stack.combine(weights).diagonal() for weights in unit_weights]
        return np.concatenate([diagonal[np.newaxis] for diagonal in diagonals])

    def _exact_diagonals(self) -> Array:
        counted = np.flatnonzero(self.weight)
        # Every so many samples, since there may be more than fit the memory.
        step = -(-len(counted) // N_DIAGONAL_SAMPLES)
        samples = self.rows.take(counted[::step])
        kernels = self.kernel_set.kernel_set
        return kernels.diagonals(kernels.views(samples))


# Making training sets -----------------------------------------------------------------------------


def may_lack(specs: Sequence[KernelSpec]) -> bool:
    """Return whether a sample can lack the view of a kernel and have that of another.

    It can if kernels read different columns, or matrices. New samples may lack a matrix that no
    training sample lacks: a row of similarities that is NaN. A pair is one sample with two members,
    neither of which it may lack.
    """
    if any(spec.kernel.reads_pairs for spec in specs):
        return False
    if len(specs) < 2:
        return False
    columns = {None if spec.columns is None else spec.columns.tobytes() for spec in specs}
    reads_matrices = any(isinstance(spec.kernel, Precomputed) for spec in specs)
    return len(columns) > 1 or reads_matrices


def read_training_set(
    options: KernelOptions,
    X: MatrixLike,
    original: Any,
    counted: DistinctSamples,
    store: KernelStore | None = None,
) -> TrainingSet:
    """Return a training set, with kernels fitted to validated samples; a stored one if there is.

    Parameters
    ----------
    options : KernelOptions
        The kernels, and how they are computed.
    X : array, sparse matrix or RowSource
        Validated samples.
    original : array or data frame
        The samples as they were given, for the names of their columns.
    counted : DistinctSamples
        Which samples count, and how much.
    store : KernelStore, optional
        Holds training sets, to which a new one is added.
    """
    if store is not None:
        return store.training_set(options, X, original, counted)
    is_exact = options.approximation is None
    is_table = len(getattr(original, "shape", ())) == 2 and not is_streamed(original)
    table = original if is_table else named_columns(X)
    specs = lay_specs(options.entries, table)
    present = None
    if options.missing is not None and is_exact and may_lack(specs):
        present = present_views(specs, X)
    if present is not None:
        present = present[counted.rows]
    is_every_row = len(counted.rows) == X.shape[0] and bool(np.all(np.diff(counted.rows) == 1))
    # A set of exact kernels holds samples, which must be copies. One of features holds none, and
    # its samples may not fit the memory.
    if is_exact or not is_every_row:
        X = X[counted.rows]
    kind: type[ExactSet | FeatureSet] = FeatureSet
    if is_exact:
        kind = ExactSet
        X = in_double(X)
    with threads_for(len(counted.rows)):
        data = kind(options, specs, X, counted, table, present)
    warn_of_scales(options.estimator, specs, data.samples, table)
    return data


# Kernels and solutions that fits to the same samples share ----------------------------------------


class KernelStore:
    """Training sets by their content, with the starts that fits to each have left.

    Parameters
    ----------
    memory_budget : float or None
        Bytes that the stored kernels may take; None means a quarter of the free memory. The least
        recently used go first.
    """

    def __init__(self, memory_budget: float | None = None) -> None:
        self.memory_budget = memory_budget
        self._sets: OrderedDict[str, TrainingSet] = OrderedDict()
        self._starts: WeakKeyDictionary[TrainingSet, dict[Any, Start]] = WeakKeyDictionary()
        self._objects: list[object] = []

    def training_set(
        self, options: KernelOptions, X: MatrixLike, original: Any, counted: DistinctSamples
    ) -> TrainingSet:
        """Return the training set that a fit reads, a stored one if there is one of its content.

        The arguments are those of `read_training_set`.
        """
        # Features that are drawn from a generator are new ones every time.
        is_exact = options.approximation is None
        is_repeatable = is_exact or isinstance(options.random_state, int | np.integer)
        if is_streamed(X) or not is_repeatable:
            return read_training_set(options, X, original, counted)
        key = self._key_of_set(options, X, original, counted)
        if key not in self._sets:
            self._sets[key] = read_training_set(options, X, original, counted)
        self._sets.move_to_end(key)
        data = self._sets[key]
        self._drop_oldest()
        return data

    def _key_of_set(
        self, options: KernelOptions, X: MatrixLike, original: Any, counted: DistinctSamples
    ) -> str:
        """Return a key that is equal for training sets of equal content."""
        described = {
            option.name: getattr(options, option.name)
            for option in fields(options)
            if option.name != "estimator"
        }
        described["entries"] = [
            (entry.name, self._content(entry.kernel), self._content(entry.columns))
            for entry in options.entries
        ]
        column_names = [str(name) for name in getattr(original, "columns", ())]
        return str(
            content_hash([described, self._content(X), column_names, counted.rows, counted.weight])
        )

    def _drop_oldest(self) -> None:
        """Remove the least recently used training sets until the others fit the budget."""
        allowed = self.memory_budget
        if allowed is None:
            # Every fit needs memory beside the stored kernels.
            allowed = 0.5 * default_budget()
        while len(self._sets) > 1:
            if sum(data.nbytes for data in self._sets.values()) <= allowed:
                return
            self._sets.popitem(last=False)

    def starts(
        self,
        data: TrainingSet,
        learner: Learner,
        machines: Sequence[Any],
        given: Sequence[Start] | None = None,
    ) -> list[Start]:
        """Return the starts of machines, which earlier fits with machines of the same kind left.

        Parameters
        ----------
        data : TrainingSet
            The training set of the fit.
        learner : Learner
            What learns the weights.
        machines : sequence
            One per output.
        given : sequence of Start, optional
            Starts whose weights are used where they have some.
        """
        stored = self._starts.get(data, {})
        starts = [
            stored.get(_key_of_start(learner, machine, c), COLD)
            for c, machine in enumerate(machines)
        ]
        if given is None:
            return starts
        joined = []
        for given_start, start in zip(given, starts, strict=True):
            if start is COLD or given_start.weights is None:
                joined.append(given_start)
            else:
                joined.append(start.with_weights(given_start.weights))
        return joined

    def keep(self, data: TrainingSet, fit: Any) -> None:
        """Store the starts that a fit leaves, and its kernels in double precision if it made these.

        Parameters
        ----------
        data : TrainingSet
            The training set that the fit began with.
        fit : Fit
            The fit; its training set is another one where it needed double precision.
        """
        if fit.data is not data:
            keys = [key for key, stored in self._sets.items() if stored is data]
            self._sets.update(dict.fromkeys(keys, fit.data))
            self._starts[fit.data] = {
                key: start.without_products() for key, start in self._starts.get(data, {}).items()
            }
        starts = self._starts.setdefault(fit.data, {})
        for c, (machine, learned) in enumerate(zip(fit.machines, fit.learned, strict=True)):
            starts[_key_of_start(fit.learner, machine, c)] = learned.start

    @property
    def training_sets(self) -> list[TrainingSet]:
        """The stored training sets, the last used at the end."""
        return list(self._sets.values())

    def forget_ends(self) -> None:
        """Remove all starts, so that later fits do not depend on earlier ones."""
        self._starts.clear()

    def clear(self) -> None:
        """Remove everything that is stored."""
        self._sets.clear()
        self._starts.clear()
        self._objects.clear()

    def _content(self, value: object) -> Any:
        """Return a key of a value; values of equal content have equal keys.

        1. If the value can be pickled, the key is the hash of its content.
        2. If not, the key of an estimator or kernel is its type with the keys of its parameters,
           and the key of a list or tuple is the list of its members' keys.
        3. Any other object, such as a lambda, equals itself alone: its key is its number among the
           stored objects, to which it is added.
        """
        try:
            return content_hash(value)
        except Exception:
            # To pickle an object may raise any exception.
            pass
        if isinstance(value, BaseEstimator):
            params = value.get_params(deep=False)
            contents = {name: self._content(param) for name, param in params.items()}
            return [self._identity(type(value)), contents]
        if isinstance(value, list | tuple):
            return [self._content(member) for member in value]
        return self._identity(value)

    def _identity(self, value: object) -> int:
        """Return the number of an object among the stored objects, to which a new one is added.

        It stays stored, and so alive, until `clear`: no later object can be taken for it.
        """
        for number, known_object in enumerate(self._objects):
            if known_object is value:
                return number
        self._objects.append(value)
        return len(self._objects) - 1


def _key_of_start(learner: Learner, machine: Any, output: int) -> Any:
    """Return the key of a start: only starts of the same learner, norm, machine and shape fit.

    Other targets may have other classes, and so coefficients of another shape.
    """
    norm = getattr(getattr(learner, "options", None), "norm", None)
    return type(learner), str(norm), type(machine), getattr(machine, "shape", None), output


class SharedKernels:
    """A context whose fits share kernels and solutions wherever they have the same samples.

    A fit within it takes the Gram matrices, or features, that an earlier fit to the same samples
    with the same kernels has computed, and starts from the weights and coefficients that it found.
    What is shared is looked up by content: widths, scales and landmarks are those of the samples of
    each fit, exactly as without the context. So are the certificates: results agree up to `tol`. A
    function within a kernel whose content cannot be read, such as a lambda, is the same if it is
    the same object.

    For searches of scikit-learn, where one estimator is fitted to the same folds over and over.
    Fits in other processes or threads, as with ``n_jobs``, do not see the context.

    Parameters
    ----------
    memory_budget : float, default=None
        Bytes that the stored kernels may take; None means a quarter of the free memory. The least
        recently used go first.

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
