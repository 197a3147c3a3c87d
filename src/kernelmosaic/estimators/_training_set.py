"""The training set as learners see it: which samples count, and the kernels fitted to them, exactly or in features."""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from kernelmosaic._typing import AnyArray, DType, Estimator, MatrixLike, RowIndex, Seed, TargetLike
from kernelmosaic.backend import TINY, default_budget, is_dask, one_blas_thread
from kernelmosaic.estimators._expansion import (
    ROUNDING,
    Expansion,
    FeatureSums,
    PartialExpansion,
    PartialSums,
    SupportSums,
    hide_rounding,
)
from kernelmosaic.gram import (
    GramStack,
    KernelSet,
    StoredStack,
    SubsetKernels,
    SubsetStack,
    make_feature_stack,
    make_stack,
    take_rows,
)
from kernelmosaic.gram.feature_maps import APPROXIMATIONS, FeatureMaps
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.gram.missing import Mask, MissingViews, may_lack, present_views
from kernelmosaic.gram.row_blocks import ArrayRows, RowSource, open_rows
from kernelmosaic.gram.stack import ComputedStack
from kernelmosaic.kernels.base import Kernel, StatisticKernel, is_missing
from kernelmosaic.kernels.subsets import SubsetFamily, Subsets
from kernelmosaic.kernels.views import Entry, KernelSpec, lay_specs, take_columns
from kernelmosaic.learning import Learned, Learner
from kernelmosaic.learning.factory import certify_fit
from kernelmosaic.learning.projections import Projections
from kernelmosaic.learning.start import COLD, CombinedKernel, Start

Array = NDArray[np.float64]
#: Relative differences of a diagonal that count as none: rounding, and what is too little to tell samples apart.
_EVEN = 1e-3
#: Bytes that kernel matrices may take under any budget, one of 128 samples: smaller working sets take seconds for what
#: one block solves in milliseconds.
_LEAST_BUDGET = 2**17
#: About so many samples say whether a diagonal varies, where there may be more than fit the memory.
_LOOKED_AT = 1000
#: Beyond this many features, factorising their products is work for all cores.
_MANY_FEATURES = 2000
#: Repeated samples are looked for in sets up to this size.
_SMALL_BYTES = 2**26
#: Standard deviations this many times apart are warned of.
_FACTOR = 100.0
#: Rows looked at: enough for a standard deviation, ...
_ROWS = 10_000
#: ... or as many as make this many numbers, so that wide samples on a disk stay there, but at least so many.
_NUMBERS, _LEAST_ROWS = 2**16, 200


@dataclass(frozen=True)
class KernelOptions:
    """What an estimator says of its kernels.

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


@dataclass(frozen=True)
class Likely:
    """What a fit will probably find, since one to much the same samples did.

    Attributes
    ----------
    weights : ndarray of shape (P,) or (outputs, P)
        Its weights.
    coefficients : ndarray of shape (outputs, n) or None
        Its coefficients of all samples given.
    """

    weights: Array
    coefficients: Array | None = None

    def start(self, machine: Any, output: int, kept: NDArray[np.intp]) -> Start:
        """Return what a machine starts from: β, if known, and weights, of all outputs where it has several."""
        beta = None if self.coefficients is None else self.coefficients[:, kept].T
        if machine.has_one_output:
            return Start(np.atleast_2d(self.weights)[output], None if beta is None else beta[:, output])
        return Start(self.weights, beta)


class TrainingSet(ABC):
    """The samples that count, with the kernels fitted to them.

    Parameters
    ----------
    options : KernelOptions
        The kernels, how they are approximated, how much memory they may take and where they are computed.
    counted : DistinctSamples
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
    kernel : CombinedKernel
        Where fits that come one after the other combine them.
    device : str or None
        Where they are computed.
    """

    kernel_set: Any
    samples: MatrixLike
    table: Any
    # Kept by hand: a thread that makes a stack would hold the lock of Python 3.11's `cached_property`, one for all
    # instances, and a process forked meanwhile would wait for it for ever.
    _stack: Any = None
    _kernel: CombinedKernel | None = None

    def __init__(self, options: KernelOptions, counted: DistinctSamples) -> None:
        self.kept, self.weight = counted.rows, counted.weight
        self.budget, self.device = options.memory_budget, options.device

    @property
    def kernel(self) -> CombinedKernel:
        if self._kernel is None:
            self._kernel = CombinedKernel(self.stack)
        return self._kernel

    def learn(self, learner: Learner, machine: Any, start: Start = COLD) -> Learned:
        """Learn the weights of a machine."""
        with self.threads():
            return learner.learn(self.stack, machine, start)

    def threads(self) -> AbstractContextManager[Any]:
        """Return a context for learning: matrices of few samples are no work for several threads."""
        return one_blas_thread() if len(self.kept) <= TINY else nullcontext()

    def certify(self, learner: Learner, machine: Any, learned: Learned) -> Learned:
        """Return what was learned with the objective and the gap that its weights and coefficients prove."""
        with self.threads():
            return certify_fit(self.stack, self.sizes(), machine, learner, learned)

    def increase_precision(self) -> bool:
        """Make the stack anew with entries in double precision; False where that is not to be had."""
        return False

    @property
    def stack(self) -> Any:
        if self._stack is None:
            self._stack = self._make_stack()
        return self._stack

    @abstractmethod
    def _make_stack(self) -> GramStack: ...

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices, or features, that are kept, or would be if they were stored."""
        return self._stored_bytes() if self._stack is None else int(self._stack.nbytes)

    @abstractmethod
    def _stored_bytes(self) -> int: ...

    def without(self, m: int) -> TrainingSet | None:
        """Return the same samples without a kernel, whose matrices are those computed; None where they are not kept."""
        return None

    @property
    @abstractmethod
    def shareable(self) -> bool:
        """Whether several threads may work on the stack at once, and gain by it."""

    @abstractmethod
    def expansion(self, beta: Array, support: NDArray[np.intp], eta: Array) -> Expansion:
        """Return the function with coefficients β, of shape (outputs, n), and weights η, of shape (outputs, P)."""

    @abstractmethod
    def gated_expansion(
        self, machines: Sequence[tuple[Array, Array]], support: NDArray[np.intp], kernel_set: KernelSet | None = None
    ) -> Expansion:
        """Return the function of machines under their gates, the outputs of one after those of the other.

        Each machine has coefficients of shape (outputs, n) and gates of shape (n, P). `kernel_set` holds the kernels
        with what else of them was learned; by default they are as they were fitted.
        """

    @abstractmethod
    def diagonals(self) -> Array:
        """Return k_m(x, x) of every kernel and sample, of shape (P, n)."""

    def sizes(self) -> Array:
        """Return the size of the numbers that entries are made of: the diagonals, or more where these are differences.

        Rounding is bounded from them.
        """
        return self.diagonals()

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
    missing: MissingViews | None
    # Of every kernel, the training samples that stand in for it where some lack it; known once the stack is made.
    shares: list[Any]

    def __init__(
        self,
        options: KernelOptions,
        specs: list[KernelSpec],
        X: MatrixLike,
        counted: DistinctSamples,
        present: Mask | None = None,
    ) -> None:
        super().__init__(options, counted)
        self.samples = X
        self.dtype = options.dtype
        # Which views the samples have, (n, P), if some lack one; and what to do about those that do, now or later.
        self.present, self.missing = present, None
        if present is None:
            kind: Any = SubsetKernels if _is_generated(options) else KernelSet
            self.kernel_set = kind.fit(specs, X, options.normalize, counted.weight)
        else:
            _check_completable(options)
            self.kernel_set = KernelSet.fit(specs, X, options.normalize, counted.weight, present)
        if options.missing is None or sparse.issparse(X) or not may_lack(specs):
            self.views = self.kernel_set.views(X)
        else:
            self.missing = MissingViews(options.missing, self.kernel_set, X, present)
            self.views = self.missing.views or self.missing.views_of(X, present)

    def _make_stack(self) -> GramStack:
        # Matrices that are completed cannot be computed anew for the certificate.
        dtype = self.dtype if self.present is None else np.float64
        budget = None if self.budget is None else max(self.budget, _LEAST_BUDGET)
        stack = make_stack(self.kernel_set, self.views, dtype=dtype, budget=budget, device=self.device)
        if self.missing is not None and self.present is not None:
            if not isinstance(stack, StoredStack):
                raise MemoryError(
                    f"X: views that samples lack are completed in stored matrices, but {stack.form}; raise "
                    "memory_budget, or fit to fewer samples."
                )
            self.shares = self.missing.complete(stack.matrices)
        return stack

    def increase_precision(self) -> bool:
        stack, budget = self.stack, default_budget() if self.budget is None else self.budget
        needed = (len(self.kernel_set) + 1) * len(self.kept) ** 2 * 8
        if not stack.has_exact or self.device is not None or self.dtype is not None or needed > budget:
            return False
        self.dtype, self._stack, self._kernel = np.dtype(np.float64), None, None
        return True

    def _stored_bytes(self) -> int:
        return len(self.kernel_set) * len(self.kept) ** 2 * 8

    def without(self, m: int) -> ExactSet | None:
        # What stands in for a view that samples lack depends on the other kernels.
        if not isinstance(self._stack, StoredStack) or self.device is not None or self.present is not None:
            return None
        kept = np.delete(np.arange(len(self.kernel_set)), m)
        some = copy(self)
        some.kernel_set = self.kernel_set.take(kept)
        some.views = self.kernel_set.take_views(self.views, kept)
        exact = ComputedStack(some.kernel_set, some.views, self._stack.dtype, 3 * self._stack.matrices[0].nbytes)
        some._stack, some._kernel = StoredStack(self._stack.matrices[kept], exact), None
        if self.missing is not None:
            some.missing = MissingViews(self.missing.rule, some.kernel_set, self.samples, None)
        return some

    @property
    def shareable(self) -> bool:
        # A device has memory for one combined matrix, and gains nothing by a second.
        return self.device is None

    def expansion(self, beta: Array, support: NDArray[np.intp], eta: Array) -> Expansion:
        kept = np.flatnonzero(np.any(eta != 0, axis=0))
        kernel_set = self.kernel_set.take(kept)
        own, support = self._own_coefficients(beta, support, kept)
        samples = take_rows(self.kernel_set.take_views(self.views, kept), support)
        kernel_set.check_definite(samples, beta[:, support])
        if self.missing is None:
            return Expansion(SupportSums(kernel_set, samples, own), eta[:, kept], kept, eta.shape[1], self.device)
        sums = PartialSums(kernel_set, samples, own, self.missing, kept)
        return PartialExpansion(sums, eta[:, kept], kept, eta.shape[1], self.device)

    def _own_coefficients(
        self, beta: Array, support: NDArray[np.intp], kept: NDArray[np.intp]
    ) -> tuple[Array, NDArray[np.intp]]:
        """Return the coefficients of samples as the kernels evaluate them, and which samples these are.

        Where some lack a view, their coefficient of that kernel goes to those whose mean stands in for it.
        """
        if self.missing is None or self.present is None:
            return beta[:, support], support
        own = beta[:, np.newaxis] * self.missing.factors(self.present).T[kept]
        for k, m in enumerate(kept):
            if self.shares[m] is not None:
                own[:, k] += beta @ self.shares[m]
        support = np.flatnonzero(np.any(own != 0, axis=(0, 1)))
        return own[:, :, support], support

    def gated_expansion(
        self, machines: Sequence[tuple[Array, Array]], support: NDArray[np.intp], kernel_set: KernelSet | None = None
    ) -> Expansion:
        samples = take_rows(self.views, support)
        self.kernel_set.check_definite(samples, np.concatenate([beta[:, support] for beta, _ in machines]))
        beta = np.concatenate([beta[:, np.newaxis, support] * gates[support].T for beta, gates in machines])
        if self.missing is None or kernel_set is not None:
            sums = SupportSums(kernel_set or self.kernel_set, samples, hide_rounding(beta))
        else:
            every = np.arange(beta.shape[1])
            sums = PartialSums(self.kernel_set, samples, hide_rounding(beta), self.missing, every)
        # All kernels are kept: samples are transformed by learned projections whether predictions need them or not.
        return Expansion(sums, np.ones(beta.shape[:2]), np.arange(beta.shape[1]), beta.shape[1], self.device)

    def projections(self) -> Projections:
        """Return projected kernels whose projections can be learned, with a stack of their own."""
        return Projections(self.kernel_set, self.views, self.weight, self.budget)

    def diagonals(self) -> Array:
        return self.kernel_set.diagonals(self.views)

    _exact_diagonals = diagonals

    def sizes(self) -> Array:
        if self.present is not None:  # what stands in for a view has a diagonal of its own
            return np.array([np.diagonal(K) for K in self.stack.matrices], dtype=np.float64)
        removed = np.array([one.normalization.removed for one in self.kernel_set.fitted])
        return np.asarray(self.diagonals() + removed[:, np.newaxis])


class GeneratedSet(ExactSet):
    """Kernels of column subsets, too many to be stored: those that an expansion keeps are made anew."""

    kernel_set: Any

    def _make_stack(self) -> GramStack:
        return SubsetStack(self.kernel_set, self.views, self.dtype, self.budget, self.device)

    def _stored_bytes(self) -> int:
        return 0

    def diagonals(self) -> Array:
        # One for every sample, of shape (P, 1): a number per sample and kernel would fill the memory.
        return np.ones((len(self.kernel_set), 1))

    _exact_diagonals = sizes = diagonals


class FeatureSet(TrainingSet):
    """Kernels in features, of samples that may stay where they are."""

    kernel_set: FeatureMaps

    def __init__(
        self,
        options: KernelOptions,
        specs: list[KernelSpec],
        X: MatrixLike,
        counted: DistinctSamples,
        present: Mask | None = None,
    ) -> None:
        super().__init__(options, counted)
        self.samples = self.rows = open_rows(X)
        budget = default_budget() if self.budget is None else float(self.budget)
        assert options.approximation is not None
        with one_blas_thread():
            self.kernel_set = FeatureMaps.fit(
                specs,
                self.rows,
                options.normalize,
                counted.weight,
                options.approximation,
                options.rank,
                options.random_state,
                budget,
            )

    def _make_stack(self) -> FeatureStack:
        with self.threads():
            return make_feature_stack(self.kernel_set, self.rows, self.budget, self.device)

    def threads(self) -> AbstractContextManager[Any]:
        """Return a context for passes over strips of few features, whose products keep no more than one core busy.

        Where they are sums over all rows, several strips are worked on at once.
        """
        many = self.device is not None or int(self.kernel_set.widths.sum()) > _MANY_FEATURES
        return nullcontext() if many else one_blas_thread()

    def _stored_bytes(self) -> int:
        return len(self.kept) * int(self.kernel_set.widths.sum()) * 8

    @property
    def shareable(self) -> bool:
        # Everyone at work needs memory of their own, beside the features.
        return self.budget is None and self.stack.shareable

    def expansion(self, beta: Array, support: NDArray[np.intp], eta: Array) -> Expansion:
        kept = np.flatnonzero(np.any(eta != 0, axis=0))
        sums = self.stack.sums(np.ascontiguousarray(beta.T), kept)
        w = [sums[int(m)] for m in kept]
        return Expansion(FeatureSums(self.kernel_set.take(kept), w), eta[:, kept], kept, eta.shape[1], self.device)

    def gated_expansion(
        self, machines: Sequence[tuple[Array, Array]], support: NDArray[np.intp], kernel_set: KernelSet | None = None
    ) -> Expansion:
        # Of each output and kernel the largest |β_ci g_cm(x_i)|.
        largest = np.array([np.abs(one[:, np.newaxis] * gates).max(axis=0) for beta, gates in machines for one in beta])
        kept = np.flatnonzero(np.any(largest > ROUNDING * largest.max(axis=1, keepdims=True), axis=0))
        sums = [self.stack.sums(np.ascontiguousarray(beta.T), kept, gates) for beta, gates in machines]
        w = [np.hstack([one[int(m)] for one in sums]) for m in kept]
        eta = np.ones((len(largest), len(kept)))
        return Expansion(FeatureSums(self.kernel_set.take(kept), w), eta, kept, len(self.kernel_set), self.device)

    def diagonals(self) -> Array:
        return np.concatenate([self.stack.combine(one).diagonal()[np.newaxis] for one in np.eye(len(self.kernel_set))])

    def _exact_diagonals(self) -> Array:
        counted = np.flatnonzero(self.weight)
        some = self.rows.take(counted[:: -(-len(counted) // _LOOKED_AT)])
        kernels = self.kernel_set.kernel_set
        return kernels.diagonals(kernels.views(some))


def _check_completable(options: KernelOptions) -> None:
    """Refuse views that samples lack where there is no matrix of each kernel, on the host, to complete."""
    if options.device is not None:
        raise ValueError(
            f"device={options.device!r}: X lacks views of some samples, which are completed on the host; use "
            "device=None."
        )


def _is_generated(options: KernelOptions) -> bool:
    return any(isinstance(entry.kernel, Subsets) for entry in options.entries)


def _kind(options: KernelOptions) -> type[ExactSet | FeatureSet]:
    """Return the form of a training set that an estimator asks for."""
    if not _is_generated(options):
        return ExactSet if options.approximation is None else FeatureSet
    if options.approximation is not None:
        raise ValueError(
            f"approximation={options.approximation!r}: kernels of Subsets(...) are exact; give approximation=None, or "
            "a list of kernels."
        )
    return GeneratedSet


def count_samples(
    approximation: str | None, X: MatrixLike, y: TargetLike, sample_weight: Array | None
) -> DistinctSamples:
    """Return the samples that count; where they fill the memory, or stay on the disk, repeated ones are not found."""
    if approximation is None or is_small(X):
        return count_repeats(X, y, sample_weight)
    return DistinctSamples.all_of(X.shape[0], sample_weight)


def read_training_set(options: KernelOptions, X: MatrixLike, original: Any, counted: DistinctSamples) -> TrainingSet:
    """Fit the kernels to validated samples; `original` is X as given, for the names of its columns."""
    named = len(getattr(original, "shape", ())) == 2 and not is_streamed(original)
    table = original if named else named_columns(X)
    specs = lay_specs(options.entries, table)
    present = None
    if options.missing is not None and options.approximation is None and may_lack(specs):
        present = present_views(specs, X)
        present = None if present is None else present[counted.rows]
    all_rows = len(counted.rows) == X.shape[0] and bool(np.all(np.diff(counted.rows) == 1))
    # Exact kernels keep samples, which must be copies of their own; features keep none, and may be of more than fit.
    if options.approximation is None or not all_rows:
        X = X[counted.rows]
    data = _kind(options)(options, specs, X, counted, present)
    data.table = table
    warn_of_scales(options.estimator, specs, data.samples, table)
    return data


# Which samples count -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DistinctSamples:
    """The samples that count, each once.

    Attributes
    ----------
    rows : ndarray of shape (n,)
        Their row numbers in what was given; of repeated samples, the first.
    weight : ndarray of shape (n,)
        How much each counts.
    """

    rows: NDArray[np.intp]
    weight: NDArray[np.float64]

    @classmethod
    def all_of(cls, n: int, sample_weight: NDArray[np.float64] | None) -> DistinctSamples:
        """Every sample as it is, repeated or not."""
        return cls(np.arange(n), np.ones(n) if sample_weight is None else sample_weight)


def count_repeats(X: MatrixLike, y: TargetLike, sample_weight: NDArray[np.float64] | None) -> DistinctSamples:
    """Return the distinct samples with the sum of their weights.

    A sample of weight two is a sample given twice, and one of weight zero is no sample: both must lead to the very same
    problem, in the same order of samples. So whenever there are weights or repetitions the samples are put in an order
    of their own; a set without either stays as it is.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_features)
        Samples.
    y : array of shape (n_samples,) or (n_samples, n_targets), or None
        Targets: samples with different ones are different samples.
    sample_weight : array of shape (n_samples,) or None
        Their weights.
    """
    all_rows = np.arange(X.shape[0])
    # A sample of weight zero must not touch widths or scales either.
    rows = all_rows if sample_weight is None else np.flatnonzero(sample_weight)
    keys = _keys(X[rows] if len(rows) < len(all_rows) else X, None if y is None else y[rows])
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if sample_weight is None and len(first) == len(all_rows):
        return DistinctSamples(all_rows, np.ones(len(all_rows)))
    weight = None if sample_weight is None else sample_weight[rows]
    return DistinctSamples(rows[first], np.bincount(inverse, weights=weight, minlength=len(first)).astype(np.float64))


def _keys(X: MatrixLike, y: TargetLike) -> AnyArray:
    """Return one comparable key per sample, equal for equal samples."""
    labels = np.zeros(X.shape[0], dtype=np.int64)
    if y is not None:  # a sample with several targets is told apart by all of them
        # Rows of objects cannot be compared before NumPy 2, single ones can.
        rows = 0 if np.ndim(y) > 1 else None
        labels = np.unique(y, return_inverse=True, axis=rows)[1].reshape(-1).astype(np.int64)
    if sparse.issparse(X):
        return _sparse_keys(X, labels)
    if X.dtype.kind not in "iuf":
        X = np.column_stack([_codes(column) for column in X.T])
    # Adding zero makes one of the two zeros that compare equal but differ in their bits.
    cells = np.ascontiguousarray(X + X.dtype.type(0)).view(np.uint8)
    # By class first, as sparse rows are: where no cell is zero both come in the same order, and so in the same folds.
    return _as_void(np.hstack([labels[:, np.newaxis].view(np.uint8), cells.reshape(len(labels), -1)]))


def _sparse_keys(X: MatrixLike, labels: NDArray[np.int64]) -> AnyArray:
    X = X.tocsr(copy=True)
    # Stored zeros and unsorted columns would make equal rows look different.
    X.sum_duplicates()
    X.eliminate_zeros()
    keys = np.empty(X.shape[0], dtype=object)
    for i, (a, b) in enumerate(pairwise(X.indptr)):
        keys[i] = (int(labels[i]), X.indices[a:b].tobytes(), X.data[a:b].tobytes())
    return _codes(keys)


def _codes(column: AnyArray) -> NDArray[np.int64]:
    """Return a number for every entry, equal for equal entries and in the entries' order where they have one."""
    try:
        distinct = dict.fromkeys(column)
    except TypeError:  # entries that cannot be looked up; whether they are any good is for the kernels to say
        return np.arange(len(column), dtype=np.int64)
    try:
        ranked = sorted(distinct)
    except TypeError:  # entries that do not compare, such as str and bytes, keep the order they come in
        ranked = list(distinct)
    rank = {entry: i for i, entry in enumerate(ranked)}
    return np.fromiter((rank[entry] for entry in column), dtype=np.int64, count=len(column))


def _as_void(cells: NDArray[np.uint8]) -> AnyArray:
    # One opaque value per row: sorting compares the bytes, many times faster than column by column.
    return np.ascontiguousarray(cells).view(np.dtype((np.void, cells.shape[1])))[:, 0]


# Samples that need not be in memory ----------------------------------------------------------------------------------


def is_streamed(X: MatrixLike) -> bool:
    """Whether the samples are read from where they are: a memory map, a path, a Dask collection, an opened source."""
    return isinstance(X, np.memmap | str | Path | RowSource) or is_dask(X)


def is_small(X: MatrixLike) -> bool:
    """Whether a copy of the samples would not matter."""
    size = getattr(getattr(X, "data", X), "nbytes", np.inf)
    return not is_streamed(X) and size <= _SMALL_BYTES


def check_approximation(approximation: Any, X: MatrixLike) -> None:
    """Raise a ValueError if there is no such approximation, or if samples need one and there is none."""
    if approximation is None:
        if is_streamed(X) and not isinstance(X, np.memmap):
            raise ValueError(
                f"X={X!r}: samples are read from files with approximation='nystroem' or 'fourier' only; "
                "load them, or choose one of these."
            )
        return
    if approximation not in APPROXIMATIONS:
        known = ", ".join(map(repr, APPROXIMATIONS))
        raise ValueError(f"approximation={approximation!r}: choose one of {known}, or None for exact kernels.")


def validate_rows(
    model: Estimator, X: MatrixLike, y: Sequence[Any], reset: bool, y_numeric: bool = False, multi_output: bool = False
) -> Any:
    """Check the form of samples that stay where they are; what the blocks hold is checked as they are read."""
    rows = open_rows(X)
    if isinstance(rows, ArrayRows) and rows.X.ndim != 2:
        raise ValueError(f"X has {rows.X.ndim} dimensions: give samples in rows and features in columns.")
    if isinstance(rows, ArrayRows) and rows.X.dtype.kind not in "biuf":
        raise ValueError(f"X has the dtype {rows.X.dtype}: a memory map must hold real numbers.")
    if reset:
        model.n_features_in_ = rows.shape[1]
        if rows.names is not None:
            model.feature_names_in_ = np.array(rows.names, dtype=object)
    elif rows.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {rows.shape[1]} features, but {type(model).__name__} is expecting {model.n_features_in_} features "
            "as input."
        )
    if not y:
        return rows
    if y[0] is None:
        raise ValueError("y is None: give one target per sample.")
    target = y[0].compute() if is_dask(y[0]) else y[0]
    target = np.asarray(target) if multi_output else column_or_1d(target, warn=True)
    check_consistent_length(rows, target)
    kinds = {"dtype": np.float64} if y_numeric else {"dtype": None, "ensure_all_finite": target.dtype.kind == "f"}
    return rows, check_array(target, ensure_2d=False, input_name="y", **kinds)


def named_columns(rows: RowIndex) -> Any:
    """Return an empty table with the columns of a source of rows, by which kernels find theirs."""
    if not isinstance(rows, RowSource):
        return rows
    if rows.names is None:
        return np.empty((0, rows.shape[1]))
    try:
        import pandas as pd
    except ImportError:
        return np.empty((0, rows.shape[1]))
    return pd.DataFrame(columns=rows.names, dtype=np.float64)


# Columns so unlike in scale that a kernel sees only the largest of them ----------------------------------------------


class _Extremes(NamedTuple):
    """The columns of largest and smallest standard deviation that a kernel reads."""

    kernel: str
    large: int
    small: int
    deviations: tuple[float, float]

    @property
    def ratio(self) -> float:
        return self.deviations[0] / self.deviations[1]


def warn_of_scales(estimator: str, specs: Sequence[KernelSpec], samples: MatrixLike, table: Any) -> None:
    """Warn once where one kernel reads columns whose standard deviations are 100 times apart or more.

    Only of kernels whose formula reads products or distances. Constant columns do not count, nor do those of two
    values, mostly indicators, whose deviation tells how frequent they are; sparse samples, which scaling would fill,
    are left alone. The ranges must differ as much: a pixel that is rarely lit is not on another scale.
    """
    X = _some_rows(samples)
    if sparse.issparse(X):
        return
    seen: dict[bytes | None, _Extremes | None] = {}
    for spec in specs:
        key = None if spec.columns is None else spec.columns.tobytes()
        if key not in seen and _reads_scale(spec.kernel):
            V = take_columns(X, spec.columns)
            there = V if sparse.issparse(V) else V[~is_missing(V).all(axis=1)]
            seen[key] = _extremes(spec, spec.kernel.validate(there)) if there.shape[0] else None
    worst = max(filter(None, seen.values()), key=lambda one: one.ratio, default=None)
    if worst is None:
        return
    names = getattr(table, "columns", range(X.shape[1]))
    large, small = worst.deviations
    warnings.warn(
        f"X: columns {names[worst.large]!r} and {names[worst.small]!r}, which kernel {worst.kernel!r} reads, have "
        f"standard deviations of {large:.3g} and {small:.3g}: next to the first the second hardly counts. Scale them, "
        f"as in make_pipeline(StandardScaler(), {estimator}(...)), or give them kernels of their own.",
        UserWarning,
        stacklevel=level_of_caller(),
    )


def level_of_caller() -> int:
    """The `stacklevel` of whoever called the estimator; fits get here by ways of different length."""
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("kernelmosaic."):
        level, frame = level + 1, frame.f_back
    return level + 1


def _some_rows(samples: MatrixLike) -> Any:
    """Rows from all over the samples; the first ones where they are on a disk or on other machines."""
    n = samples.shape[0]
    if isinstance(samples, RowSource):
        return samples.take(slice(0, min(_ROWS, max(_LEAST_ROWS, _NUMBERS // samples.row_width), n)))
    return samples[:: -(-n // _ROWS)]


def _reads_scale(kernel: Kernel | SubsetFamily) -> bool:
    """Whether a kernel, or one it is made of, is a function of products or distances of its columns."""
    if isinstance(kernel, StatisticKernel | SubsetFamily):
        return True
    parts = kernel.get_params(deep=False).values()
    return any(isinstance(part, Kernel) and _reads_scale(part) for part in parts)


def _extremes(spec: KernelSpec, X: AnyArray) -> _Extremes | None:
    """Return the columns of largest and smallest deviation, None if they are alike."""
    X = X.astype(np.float64, copy=False)
    low, high = X.min(axis=0), X.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        spread, deviation = high - low, X.std(axis=0)
        counted = np.flatnonzero(~np.all((low == X) | (high == X), axis=0) & np.isfinite(deviation))
    if len(counted) < 2:
        return None
    large, small = counted[np.argmax(deviation[counted])], counted[np.argmin(deviation[counted])]
    # Not a quotient: a deviation may underflow to zero.
    if any(of[large] < _FACTOR * of[small] or of[small] <= 0 for of in (deviation, spread)):
        return None
    place = np.arange(X.shape[1]) if spec.columns is None else spec.columns
    return _Extremes(
        spec.name, int(place[large]), int(place[small]), (float(deviation[large]), float(deviation[small]))
    )
