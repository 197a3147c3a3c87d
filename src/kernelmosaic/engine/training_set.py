"""The training set as learners read it: kernels fitted to its samples, exactly or in features; and
a store of those."""

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
    hide_rounding,
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
        Up to how many samples the host is faster than a GPU; None leaves it to the task.
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
        """Return the same with n samples on the host, if it is faster than a GPU up to
        `host_samples`."""
        on_gpu = str(self.device).startswith("cuda") and self.approximation is None
        most = host_samples if self.host_samples is None else self.host_samples
        return replace(self, device=None) if on_gpu and n_samples <= most else self


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
        Where fits that come one after the other combine them.
    device : str or None
        Where they are computed.
    """

    kernel_set: Any
    samples: MatrixLike
    #: Whether the kernels are known by features; else samples are compared with each other.
    in_features: ClassVar[bool] = False
    #: The samples as exact kernels read them; empty for kernels in features.
    views: Views = Views()
    #: What completes views that samples lack, now or later; None if all have all views.
    missing: MissingViews | None = None
    #: Between all samples, as far as kernels were fitted to them.
    distances: Distances = MappingProxyType({})
    # Kept by hand: a thread that makes a stack would hold the lock of Python 3.11's
    # `cached_property`, one for all instances, and a process forked meanwhile would wait for it for
    # ever.
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
        """Fit the kernels to the samples, and keep both in the form that the stack is made of."""

    @property
    def kernel(self) -> CombinedKernel:
        if self._kernel is None:
            self._kernel = CombinedKernel(self.stack)
        return self._kernel

    def threads(self) -> AbstractContextManager[Any]:
        """Return a context for learning: matrices of few samples are no work for several
        threads."""
        return threads_for(len(self.kept))

    def in_double(self) -> TrainingSet | None:
        """Return the same samples with entries in double precision; None where these are not to be
        had."""
        return None

    def light(self) -> TrainingSet:
        """Return the same without the matrices, or features, which are made anew if a function
        needs them."""
        light = copy(self)
        light._stack, light._kernel, light.distances = None, None, {}
        light.weights_of_rules = {}
        return light

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
        """Raise if kernels of classes of the user's are none; features of a kernel make one in any
        case."""
        return

    @abstractmethod
    def _make_stack(self) -> GramStack: ...

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices, or features, that are kept, or would be if they were stored."""
        stored = self._stored_bytes() if self._stack is None else int(self._stack.nbytes)
        return stored + sum(S.nbytes for S in self.distances.values())

    def _stored_bytes(self) -> int:
        return len(self.kernel_set) * len(self.kept) ** 2 * 8

    def without(self, m: int) -> TrainingSet | None:
        """Return the same samples without a kernel, whose matrices are those computed; None where
        they are not kept."""
        return None

    @property
    def shareable(self) -> bool:
        """Whether several threads may work on the stack at once, and gain by it."""
        # A device has memory for one combined matrix, and gains nothing by a second.
        return self.device is None

    @abstractmethod
    def expansion(self, beta: Array, support: Indices, eta: Array) -> Expansion:
        """Return the function with coefficients β, of shape (outputs, n), and weights η, of shape
        (outputs, P)."""

    @abstractmethod
    def gated_expansion(
        self,
        machines: Sequence[tuple[Array, Array]],
        support: Indices,
        kernel_set: KernelSet | None = None,
    ) -> Expansion:
        """Return the function of machines under their gates, the outputs of one after those of the
        other.

        Each machine has coefficients of shape (outputs, n) and gates of shape (n, P). `kernel_set`
        holds the kernels with what else of them was learned; by default they are as they were
        fitted.
        """

    @abstractmethod
    def diagonals(self) -> Array:
        """Return k_m(x, x) of every kernel and sample, of shape (P, n)."""

    def sizes(self) -> Array:
        """Return the size of the numbers that entries are made of: the diagonals, or more where
        these are differences.

        Rounding is bounded from them.
        """
        return self.diagonals()

    def varying_diagonals(self, share: float = 1e-3) -> list[str]:
        """Return the names of the kernels whose k(x, x) varies between samples by more than this
        share of itself."""
        diagonals = self._exact_diagonals()
        varies = np.ptp(diagonals, axis=1) > share * np.abs(diagonals).max(axis=1)
        return [self.kernel_set.names[m] for m in np.flatnonzero(varies)]

    def _exact_diagonals(self) -> Array:
        """Return k_m(x, x) of the kernels as they are, not in features, for enough samples to see
        whether it varies."""
        return self.diagonals()


class ExactSet(TrainingSet):
    """Kernels as they are: samples are compared with each other."""

    kernel_set: KernelSet
    # Of every kernel, the training samples that stand in for it where some lack it; known once the
    # stack is made.
    shares: list[Any] | None = None

    def _fit_kernels(self, options: KernelOptions, specs: list[KernelSpec], X: MatrixLike) -> None:
        # What to do about samples that lack views, now or later.
        self.samples, self.missing = X, None
        if self.present is not None and options.device is not None:
            raise ValueError(
                f"device={options.device!r}: some samples lack a view, and missing views are"
                " completed on the host only; use device=None."
            )
        room = (
            StackOptions.distance_bytes
            if self.budget is None
            else min(self.budget / 4, StackOptions.distance_bytes)
        )
        self.kernel_set, self.views, self.distances = KernelSet.fit_samples(
            specs, X, options.normalize, self.weight, self.present, 0.0 if options.device else room
        )
        if (
            options.missing is not None
            and may_lack(specs)
            and (not sparse.issparse(X) or several_tables(self.table))
        ):
            self.missing = MissingViews(options.missing, self.kernel_set, X, self.present)
            self.views = self.missing.views or self.missing.views_of(X, self.present)

    def _make_stack(self) -> GramStack:
        # Matrices that are completed cannot be computed anew for the certificate.
        dtype = self.dtype if self.present is None else np.float64
        # A matrix of 128 samples is stored under any budget: smaller working sets take seconds for
        # what one block solves in milliseconds.
        budget = None if self.budget is None else max(self.budget, 8 * 128**2)
        stack_maker = self.kernel_set.fitted[0].kernel.stack_maker
        if self.device is None and stack_maker is not None:
            module, function = stack_maker
            own_stack: GramStack | None = getattr(import_module(module), function)(
                self.kernel_set, self.views, budget
            )
            if own_stack is not None:
                return own_stack
        known, stores = (self.distances, self.stores) if self.present is None else (None, True)
        stack = make_stack(
            self.kernel_set,
            self.views,
            dtype=dtype,
            budget=budget,
            device=self.device,
            distances=known,
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
        """Raise if a kernel of the user's is not symmetric and positive semi-definite on the
        training samples.

        Of more samples than can be proved quickly, so many are drawn.
        """
        for m, one in enumerate(self.kernel_set.fitted):
            if not is_of_user(one.kernel):
                continue
            having = (
                np.arange(len(self.kept))
                if self.present is None
                else np.flatnonzero(self.present[:, m])
            )
            if len(having) > PROVED:
                having = np.sort(np.random.RandomState(0).choice(having, PROVED, replace=False))
            kernel, samples = self.kernel_set.take([m]), take_rows(self.views.take([m]), having)
            if len(having) == stack.n_samples and self.present is None and self.device is None:
                K = np.asarray(stack.row_block(m, slice(0, stack.n_samples)))
            else:
                K = next(kernel.blocks(samples, samples, [0]))[1]
            few = take_rows(samples, slice(0, 3))
            part = next(kernel.blocks(few, samples, [0]))[1]
            other_way = next(kernel.blocks(samples, few, [0]))[1]
            # Entries that are not numbers are refused by name as the machine is solved.
            if all(np.isfinite(block).all() for block in (K, part, other_way)):
                with named(one.name):
                    check_gram_matrix(K, kernel.diagonals(samples)[0], part, other_way)

    def in_double(self) -> ExactSet | None:
        budget = default_budget() if self.budget is None else self.budget
        needed = (len(self.kernel_set) + 1) * len(self.kept) ** 2 * 8
        if (
            not self.stack.has_exact
            or self.device is not None
            or self.dtype is not None
            or needed > budget
        ):
            return None
        precise = copy(self)
        precise.dtype, precise._stack, precise._kernel = np.dtype(np.float64), None, None
        return precise

    def without(self, m: int) -> ExactSet | None:
        # What stands in for a view that samples lack depends on the other kernels.
        if (
            self._stack is None
            or self._stack.matrices is None
            or self.device is not None
            or self.present is not None
        ):
            return None
        kept = np.delete(np.arange(len(self.kernel_set)), m)
        some = copy(self)
        some.kernel_set = self.kernel_set.take(kept)
        some.views = self.kernel_set.take_views(self.views, kept)
        exact = ComputedStack.of(
            some.kernel_set, some.views, self._stack.dtype, 3 * self._stack.matrices[0].nbytes
        )
        some._stack, some._kernel = StoredStack(self._stack.matrices[kept], exact), None
        if self.missing is not None:
            some.missing = MissingViews(self.missing.rule, some.kernel_set, self.samples, None)
        return some

    def expansion(self, beta: Array, support: Indices, eta: Array) -> Expansion:
        kept = np.flatnonzero(np.any(eta != 0, axis=0))
        kernel_set = self.kernel_set.take(kept)
        own = beta if np.array_equal(support, np.arange(beta.shape[1])) else beta[:, support]
        if self.missing is not None and self.present is not None:
            own, support = self._own_coefficients(beta, self.missing, self.present, kept)
        samples = take_rows(self.kernel_set.take_views(self.views, kept), support)
        kernel_set.check_definite(samples, beta[:, support])
        if self.missing is None:
            return Expansion(
                self._sums(kernel_set, samples, own), eta[:, kept], kept, eta.shape[1], self.device
            )
        sums = PartialSums(kernel_set, samples, own, self.missing, kept)
        return PartialExpansion(sums, eta[:, kept], kept, eta.shape[1], self.device)

    def _sums(self, kernel_set: KernelSet, samples: Views, beta: Array) -> SupportSums:
        """Return the sums over support samples, in the form of the stack where it has one of its
        own."""
        sums: SupportSums | None = None
        # Other stacks have no form of their own, and are not made for this.
        if any(fitted.kernel.reads_pairs for fitted in kernel_set.fitted):
            sums = self.stack.support_sums(kernel_set, samples, beta)
        return SupportSums(kernel_set, samples, beta) if sums is None else sums

    def _own_coefficients(
        self, beta: Array, missing: MissingViews, present: Mask, kept: Indices
    ) -> tuple[Array, Indices]:
        """Return the coefficients of samples as the kernels evaluate them, and which samples these
        are.

        The coefficient of a kernel whose view a sample lacks goes to the samples whose mean stands
        in for it.
        """
        own = beta[:, np.newaxis] * missing.factors(present).T[kept]
        if self.shares is None:
            _ = self.stack  # what stands in for a view is known with the matrices
        assert self.shares is not None
        for k, m in enumerate(kept):
            if self.shares[m] is not None:
                own[:, k] += beta @ self.shares[m]
        support = np.flatnonzero(np.any(own != 0, axis=(0, 1)))
        return own[:, :, support], support

    def gated_expansion(
        self,
        machines: Sequence[tuple[Array, Array]],
        support: Indices,
        kernel_set: KernelSet | None = None,
    ) -> Expansion:
        samples = take_rows(self.views, support)
        self.kernel_set.check_definite(
            samples, np.concatenate([beta[:, support] for beta, _ in machines])
        )
        beta = np.concatenate(
            [beta[:, np.newaxis, support] * gates[support].T for beta, gates in machines]
        )
        if self.missing is None or kernel_set is not None:
            sums = self._sums(kernel_set or self.kernel_set, samples, hide_rounding(beta))
        else:
            every = np.arange(beta.shape[1])
            sums = PartialSums(self.kernel_set, samples, hide_rounding(beta), self.missing, every)
        # All kernels are kept: samples are transformed by learned projections whether predictions
        # need them or not.
        return Expansion(
            sums, np.ones(beta.shape[:2]), np.arange(beta.shape[1]), beta.shape[1], self.device
        )

    def diagonals(self) -> Array:
        return self.kernel_set.diagonals(self.views)

    def sizes(self) -> Array:
        if self.present is not None:  # what stands in for a view has a diagonal of its own
            return np.array([np.diagonal(K) for K in self.stack.matrices], dtype=np.float64)
        sizes = self.kernel_set.diagonals(self.views)
        for size, one, X in zip(sizes, self.kernel_set.fitted, self.views, strict=True):
            rule = one.normalization
            # Entries may be differences, unless all are zero.
            lost = one.kernel.cancelled(X) if size.any() else None
            if lost is not None:
                if isinstance(rule, UnitDiagonal):
                    size += size * lost / rule.row_scale(X) ** 2
                else:
                    size += lost / getattr(rule, "scale_", 1.0)
            size += rule.removed
        return sizes


class FeatureSet(TrainingSet):
    """Kernels in features, of samples that may stay where they are."""

    in_features = True
    kernel_set: FeatureMaps

    def _fit_kernels(self, options: KernelOptions, specs: list[KernelSpec], X: MatrixLike) -> None:
        self.samples = self.rows = open_rows(X)
        budget = default_budget() if self.budget is None else float(self.budget)
        assert options.approximation is not None
        with one_blas_thread():
            how = options.approximation, options.rank, options.random_state
            self.kernel_set = FeatureMaps.fit(
                specs, self.rows, options.normalize, self.weight, *how, budget
            )

    def _make_stack(self) -> FeatureStack:
        return self._features_of(self.kernel_set)

    def _features_of(self, kernel_set: FeatureMaps) -> FeatureStack:
        with self.threads():
            return make_feature_stack(kernel_set, self.rows, self.budget, self.device)

    def threads(self) -> AbstractContextManager[Any]:
        """Return a context for passes over strips of few features, whose products keep no more than
        one core busy.

        Where they are sums over all rows, several strips are worked on at once.
        """
        # Factorising the products of more than 2000 features is work for all cores.
        many = self.device is not None or int(self.kernel_set.widths.sum()) > 2000
        return nullcontext() if many else one_blas_thread()

    def _stored_bytes(self) -> int:
        return len(self.kept) * int(self.kernel_set.widths.sum()) * 8

    @property
    def shareable(self) -> bool:
        # Everyone at work needs memory of their own, beside the features.
        return self.budget is None and self.stack.shareable

    def expansion(self, beta: Array, support: Indices, eta: Array) -> Expansion:
        kept, columns = np.flatnonzero(np.any(eta != 0, axis=0)), np.ascontiguousarray(beta.T)
        if self._stack is not None:
            sums = self.stack.sums(columns, kept)
        else:  # of a set without its features, those of the kernels with a weight are computed once
            sums = self._features_of(self.kernel_set.take(kept)).sums(columns, range(len(kept)))
        return self.feature_expansion(list(sums.values()), eta)

    def feature_expansion(self, w: list[Array], eta: Array) -> Expansion:
        """Return the function with coefficients w_m = Z_mᵀ β of the kernels that have a weight."""
        kept = np.flatnonzero(np.any(eta != 0, axis=0))
        return Expansion(
            FeatureSums(self.kernel_set.take(kept), w),
            eta[:, kept],
            kept,
            eta.shape[1],
            self.device,
        )

    def gated_expansion(
        self,
        machines: Sequence[tuple[Array, Array]],
        support: Indices,
        kernel_set: KernelSet | None = None,
    ) -> Expansion:
        # Of each output and kernel the largest |β_ci g_cm(x_i)|.
        largest = np.array(
            [
                np.abs(one[:, np.newaxis] * gates).max(axis=0)
                for beta, gates in machines
                for one in beta
            ]
        )
        kept = np.flatnonzero(
            np.any(largest > ROUNDING * largest.max(axis=1, keepdims=True), axis=0)
        )
        sums = [
            self.stack.sums(np.ascontiguousarray(beta.T), kept, gates) for beta, gates in machines
        ]
        w = [np.hstack([one[int(m)] for one in sums]) for m in kept]
        eta = np.ones((len(largest), len(kept)))
        return Expansion(
            FeatureSums(self.kernel_set.take(kept), w), eta, kept, len(self.kernel_set), self.device
        )

    def diagonals(self) -> Array:
        return np.concatenate(
            [self.stack.combine(one).diagonal()[np.newaxis] for one in np.eye(len(self.kernel_set))]
        )

    def _exact_diagonals(self) -> Array:
        counted = np.flatnonzero(self.weight)
        some = self.rows.take(
            counted[:: -(-len(counted) // 1000)]
        )  # there may be more than fit the memory
        kernels = self.kernel_set.kernel_set
        return kernels.diagonals(kernels.views(some))


def may_lack(specs: Sequence[KernelSpec]) -> bool:
    """Whether a sample can lack a view and have another: kernels read different columns, or
    matrices.

    New samples may lack a matrix that no training sample lacks: a row of similarities that is NaN.
    A pair is one sample with two members, neither of which it may lack.
    """
    if any(spec.kernel.reads_pairs for spec in specs):
        return False
    if (
        len(specs) < 2
        or len({None if one.columns is None else one.columns.tobytes() for one in specs}) > 1
    ):
        return len(specs) > 1
    return any(isinstance(one.kernel, Precomputed) for one in specs)


def read_training_set(
    options: KernelOptions,
    X: MatrixLike,
    original: Any,
    counted: DistinctSamples,
    store: KernelStore | None = None,
) -> TrainingSet:
    """Fit the kernels to validated samples, unless a store has; `original` is X as given, for the
    names of columns."""
    if store is not None:
        return store.training_set(options, X, original, counted)
    named = len(getattr(original, "shape", ())) == 2 and not is_streamed(original)
    table = original if named else named_columns(X)
    specs = lay_specs(options.entries, table)
    present = None
    if options.missing is not None and options.approximation is None and may_lack(specs):
        present = present_views(specs, X)
        present = None if present is None else present[counted.rows]
    all_rows = len(counted.rows) == X.shape[0] and bool(np.all(np.diff(counted.rows) == 1))
    # Exact kernels keep samples, which must be copies of their own; features keep none, and may be
    # of more than fit.
    if options.approximation is None or not all_rows:
        X = X[counted.rows]
    X = in_double(X) if options.approximation is None else X
    kind: type[ExactSet | FeatureSet] = ExactSet if options.approximation is None else FeatureSet
    with threads_for(len(counted.rows)):
        data = kind(options, specs, X, counted, table, present)
    warn_of_scales(options.estimator, specs, data.samples, table)
    return data


# Kernels and solutions that fits to the same samples share ----------------------------------------


class KernelStore:
    """Training sets by their content, and where fits to each have ended.

    Parameters
    ----------
    memory_budget : float or None
        Bytes that the kernels kept may take; None means a quarter of the free memory. The longest
        unused go first.
    """

    def __init__(self, memory_budget: float | None = None) -> None:
        self.memory_budget = memory_budget
        self._sets: OrderedDict[str, TrainingSet] = OrderedDict()
        self._ends: WeakKeyDictionary[TrainingSet, dict[Any, Start]] = WeakKeyDictionary()
        self._objects: list[object] = []

    def training_set(
        self, options: KernelOptions, X: MatrixLike, original: Any, counted: DistinctSamples
    ) -> TrainingSet:
        """Return the training set that a fit reads, made anew only if none of the same content is
        kept."""
        # Features drawn from a generator that moves on are new ones every time.
        fixed = options.approximation is None or isinstance(options.random_state, int | np.integer)
        if is_streamed(X) or not fixed:
            return read_training_set(options, X, original, counted)
        said = {
            one.name: getattr(options, one.name)
            for one in fields(options)
            if one.name != "estimator"
        }
        entries = [
            (entry.name, self._content(entry.kernel), self._content(entry.columns))
            for entry in options.entries
        ]
        names = [str(name) for name in getattr(original, "columns", ())]
        key = str(
            content_hash(
                [said | {"entries": entries}, self._content(X), names, counted.rows, counted.weight]
            )
        )
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
        self,
        data: TrainingSet,
        learner: Learner,
        machines: Sequence[Any],
        given: Sequence[Start] | None = None,
    ) -> list[Start]:
        """Return where each machine starts: where a like one has ended, at the weights given if
        there are any."""
        ends = self._ends.get(data, {})
        found = [ends.get(_key(learner, machine, c), COLD) for c, machine in enumerate(machines)]
        if given is None:
            return found
        both = zip(given, found, strict=True)
        return [
            own if end is COLD or own.weights is None else end.with_weights(own.weights)
            for own, end in both
        ]

    def keep(self, data: TrainingSet, fit: Any) -> None:
        """Keep where a fit has ended, and the kernels in double precision if it has taken these."""
        if fit.data is not data:
            self._sets.update({key: fit.data for key, one in self._sets.items() if one is data})
            self._ends[fit.data] = {
                key: start.without_products() for key, start in self._ends.get(data, {}).items()
            }
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
        """Return the content of a value, or, as that of a lambda cannot be read, its place among
        such objects."""
        try:
            return content_hash(value)
        except Exception:  # whatever an object raises when it is to be pickled
            pass
        if isinstance(value, BaseEstimator):
            params = value.get_params(deep=False)
            return [
                self._identity(type(value)),
                {name: self._content(one) for name, one in params.items()},
            ]
        if isinstance(value, list | tuple):
            return [self._content(one) for one in value]
        return self._identity(value)

    def _identity(self, value: object) -> int:
        """Return the place of an object among those met, which are kept: two at different times are
        never the same."""
        for place, one in enumerate(self._objects):
            if one is value:
                return place
        self._objects.append(value)
        return len(self._objects) - 1


def _key(learner: Learner, machine: Any, output: int) -> Any:
    """Return the key of a start: other targets may have other classes, and so coefficients of
    another shape."""
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
        Bytes that the kernels kept may take; None means a quarter of the free memory. The longest
        unused go first.

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
