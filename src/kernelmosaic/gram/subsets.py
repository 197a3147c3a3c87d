"""Kernels of column subsets, by the million: none is stored, and the forms ½βᵀK_mβ of all are one pass over pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, DType, Indices, MatrixLike
from kernelmosaic.backend import backend_on, default_budget, format_bytes, row_strips, run_threads
from kernelmosaic.gram.kernel_set import FittedKernel, Kernels, KernelSet, Views, take_rows
from kernelmosaic.gram.linear_algebra import nonzero_rows
from kernelmosaic.gram.normalizing import Centered, make_normalization
from kernelmosaic.gram.options import StackOptions
from kernelmosaic.gram.row_blocks import Rows
from kernelmosaic.gram.stack import ComputedStack, GramStack, MatrixStack, make_stack, matrix_dtype
from kernelmosaic.kernels.base import Block, named
from kernelmosaic.kernels.distances import FitSamples
from kernelmosaic.kernels.subsets import FamilyNames, SubsetFamily
from kernelmosaic.kernels.views import KernelSpec, take_columns


@dataclass(frozen=True)
class SubsetKernels:
    """The fitted kernels of a family, each made on first use; takes the place of a `KernelSet`.

    Attributes
    ----------
    family : SubsetFamily
        The kernels.
    normalize : str or None
        How they are put on one scale: their diagonals are one already.
    X : array of shape (n, n_columns)
        The training samples in the columns that subsets are taken of.
    widths : ndarray of shape (P,)
        Their widths, factors included.
    """

    family: SubsetFamily
    normalize: str | None
    X: AnyArray
    widths: Array

    @classmethod
    def fit(cls, specs: Sequence[KernelSpec], X: MatrixLike, normalize: str | None) -> SubsetKernels:
        """Find the widths that are measured on the columns of a subset; others are known."""
        (spec,) = specs
        family = spec.kernel
        assert isinstance(family, SubsetFamily)
        if isinstance(make_normalization(normalize), Centered):
            raise ValueError(
                f"normalize={normalize!r}: kernels of Subsets(...) have unit diagonals and are not centred; give "
                "'trace', 'diagonal' or None, or a list of kernels."
            )
        # Of every kernel: rates, sums, and what learners keep.
        needed = len(family) * (64 + 4 * max(family.sizes))
        if needed > default_budget():
            raise MemoryError(
                f"kernels: Subsets(size={family.sizes}) of {len(family.columns)} columns are {len(family)} kernels, "
                f"whose weights and widths need {format_bytes(needed)}: choose fewer columns, a smaller size or fewer "
                "widths."
            )
        with named(spec.name):
            V = family.validate(take_columns(X, spec.columns))
        return cls(family, normalize, V, _widths(family, V))

    @property
    def names(self) -> FamilyNames:
        return self.family.names

    def __len__(self) -> int:
        return len(self.family)

    def take(self, active: Kernels) -> KernelSet:
        """Return these kernels, fitted."""
        fitted = []
        for m in active:
            name, kernel, columns = self.family[int(m)]
            view = self.X[:, self.family.subset(int(m))[0]]
            scale = make_normalization(self.normalize).fit(kernel.fit(view), view, None)
            fitted.append(FittedKernel(name, kernel, columns, scale, int(m) // len(self.family.settings)))
        return KernelSet(tuple(fitted))

    def views(self, X: MatrixLike) -> Views:
        """Return the samples in all columns that subsets are taken of."""
        return Views((self.family.validate(take_columns(X, self.family.columns)),), (0,))

    def take_views(self, views: Views, active: Kernels) -> Views:
        """Return the samples as the kernels that `take` returns read them."""
        settings = len(self.family.settings)
        subsets = [int(m) // settings for m in active]
        return Views.of(subsets, {v: views[0][:, self.family.subset(v * settings)[0]] for v in subsets})


class SubsetStack(GramStack):
    """The Gram matrices of a family of column subsets: matrices for a few kernels, quadratic forms for all.

    Parameters
    ----------
    kernel_set : SubsetKernels
        The fitted kernels.
    views : Views
        The samples as `SubsetKernels.views` returns them.
    dtype, budget, device : optional
        Of the matrices of a few kernels, as for `make_stack`.
    """

    is_implicit = True

    def __init__(
        self,
        kernel_set: SubsetKernels,
        views: Views,
        dtype: DType = None,
        budget: float | None = None,
        device: str | None = None,
    ) -> None:
        self.kernel_set, self.views, self.options = kernel_set, views, StackOptions()
        self.budget, self.device = budget, device
        self.n_samples, self.n_kernels = views[0].shape[0], len(kernel_set)
        self.dtype = matrix_dtype(self.n_samples, dtype)
        self._subsets = kernel_set.family.table()

    @property
    def room(self) -> int:
        """How many kernels may have their matrices stored, beside a combined one."""
        backend = backend_on(self.device)
        budget = default_budget(backend) if self.budget is None else self.budget
        return int(budget / (self.n_samples**2 * self.dtype.itemsize)) - 2

    def take_kernels(self, kernels: Kernels) -> MatrixStack:
        """Return the stack of a few kernels, stored if they fit the memory budget."""
        chosen, views = self.kernel_set.take(kernels), self.kernel_set.take_views(self.views, kernels)
        return make_stack(chosen, views, dtype=self.dtype, budget=self.budget, device=self.device, options=self.options)

    def blocks(self, kernels: Kernels, rows: Rows, columns: Rows) -> Iterator[tuple[int, Block]]:
        asked = self.asked(kernels)
        for k, block in self.take_kernels(asked).blocks(range(len(asked)), rows, columns):
            yield asked[k], block

    def row_strips(self, n_columns: int) -> Iterator[slice]:
        return row_strips(self.n_samples, self.options.subset_numbers // max(n_columns, 1))

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> ArrayOrTensor:
        active = np.flatnonzero(weights)
        return self.take_kernels(active).combine(np.asarray(weights)[active], out)

    def products(self, beta: AnyArray, rows: Indices | None = None, kernels: Kernels | None = None) -> Array:
        asked = np.arange(self.n_kernels) if kernels is None else np.asarray(kernels)
        out = np.zeros((self.n_kernels, self.n_samples if rows is None else len(rows), *beta.shape[1:]))
        for some in row_strips(len(asked), self.options.subset_batch):
            out[asked[some]] = self.take_kernels(asked[some]).products(beta, rows)
        return out

    def quadratic_forms(self, beta: AnyArray, kernels: Kernels | None = None, factors: Array | None = None) -> Array:
        """Return ½ Σ_c β_cᵀ K_m β_c, times a positive factor, for all kernels or those given; zero for others.

        All are computed in single precision first. Those that may be the largest, by a bound on the error, are then
        computed in double: the largest is right, and a certificate may be made of it.
        """
        factors = np.ones(self.n_kernels) if factors is None else factors
        asked = np.arange(self.n_kernels) if kernels is None else np.unique(np.asarray(kernels, dtype=np.intp))
        support = nonzero_rows(beta)
        out = np.zeros(self.n_kernels)
        if len(support) == 0 or len(asked) == 0:
            return out
        found, error = (values * factors[asked] for values in self._single_forms(support, beta[support], asked))
        # Whatever is smaller even with its error cannot be the largest; NaN, which nothing certifies, stays.
        top = np.flatnonzero(found + error >= (found - error).max())
        for some in row_strips(len(top), self.options.subset_batch):
            chosen = asked[top[some]]
            views = self.kernel_set.take_views(take_rows(self.views, support), chosen)
            few = ComputedStack(self.kernel_set.take(chosen), views, np.dtype(np.float64), 2**24)
            found[top[some]] = few.quadratic_forms(beta[support]) * factors[chosen]
        out[asked] = found
        return out

    def _single_forms(self, support: Indices, beta: Array, kernels: Indices) -> tuple[Array, Array]:
        """Return the forms with every entry in single precision, and how far each may be off; β is of the support."""
        from kernelmosaic.gram._numba_stack import add_forms

        single, power = np.finfo(np.float32), self.kernel_set.family.kernel.power
        # Kernels of distances of at most one that fall off faster than `steepest` are left to double precision, and
        # products of coefficients, at most one, are lost in `nothing`. Sums in single precision are of `chunk` pairs,
        # few for the error's sake, before they are added to one in double. Threads share `n_parts` parts of the work.
        steepest, nothing, chunk, n_parts = -(2.0**100), 2.0**-60, 128, 16
        V = self.views[0][support].astype(np.float64)
        # Distances of at most one, and coefficients too: nothing overflows, whatever the scale of the samples.
        unit = float(np.ptp(V, axis=0).max()) or 1.0
        V = V / unit
        largest = float(np.abs(beta).max())
        B = np.atleast_2d(beta.T) / largest
        with np.errstate(over="ignore"):
            exact = -((unit / self.kernel_set.widths[kernels]) ** power)
        rates = np.maximum(exact, steepest).astype(np.float32)
        owners, starts = np.unique(kernels // len(self.kernel_set.family.settings), return_index=True)
        starts = np.append(starts, len(kernels)).astype(np.int64)
        subsets = self._subsets[owners]
        out, weight = np.full(len(kernels), 0.5 * float(np.sum(B**2))), 0.0
        parts = list(row_strips(len(owners), max(-(-len(owners) // n_parts), 1)))
        for left, right in _pairs(len(support), max(self.options.subset_numbers // (V.shape[1] + 1), 1024)):
            D = np.zeros((V.shape[1] + 1, len(left)), dtype=np.float32)  # the last row belongs to no column
            D[:-1] = np.abs(V[left] - V[right]).T ** power
            w = np.sum(B[:, left] * B[:, right], axis=0)
            # Products of smaller numbers would be denormal, which is slow.
            w[np.abs(w) < nothing] = 0.0
            weight += float(np.abs(w).sum()) + 2.0 * nothing / float(single.eps) * len(w)
            add = partial(add_forms, D, w.astype(np.float32), subsets, starts, rates, out, chunk)
            run_threads(lambda some: add(some.start, some.stop), parts, 4 * len(kernels) * len(left))  # noqa: B023
        size = subsets.shape[1]
        # Of a sum of so many terms, of the exponential and its argument, and of distances that are lost to underflow.
        share = (chunk + 2 * size + 12) * float(single.eps) / 2 - size * float(single.tiny) * rates.astype(np.float64)
        share[exact < steepest] = np.inf
        return out * largest**2, share * weight * largest**2


def _pairs(n: int, count: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield the pairs i > j of n things, row by row, so many at a time."""
    for some in row_strips(n * (n - 1) // 2, count):
        pair = np.arange(some.start, some.stop)
        # Row i begins at i (i − 1) / 2, of which the root is exact.
        left = ((1.0 + np.sqrt(1.0 + 8.0 * pair)) / 2.0).astype(np.intp)
        yield left, pair - left * (left - 1) // 2


def _widths(family: SubsetFamily, X: AnyArray) -> Array:
    """Return the width of every kernel; one that is a word is measured on the columns of each subset."""
    widths = np.empty((family.n_subsets, len(family.settings)))
    measured: dict[str, Array] = {}
    for k, setting in enumerate(family.settings):
        kernel = family.make(setting)
        if not isinstance(kernel.width, str):
            widths[:, k] = kernel.measure(None)
            continue
        if kernel.width not in measured:
            measured[kernel.width] = _measure(family, kernel.width, X)
        widths[:, k] = kernel.factor * measured[kernel.width]
    return widths.ravel()


def _measure(family: SubsetFamily, rule: str, X: AnyArray) -> Array:
    """Return the width by a rule for every subset, with a factor of one."""
    subsets, n_columns = family.table(), len(family.columns)
    found = np.empty(family.n_subsets)
    own = family.make({"width": rule, "factor": 1.0})

    def measure(some: slice) -> None:
        for s in range(some.start, some.stop):
            found[s] = own.measure(FitSamples(X[:, subsets[s][subsets[s] < n_columns]]))

    run_threads(measure, row_strips(family.n_subsets, 1024), X.nbytes * family.n_subsets)
    return found
