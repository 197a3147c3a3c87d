"""Features on the workers of a Dask cluster: only vectors and D × D matrices travel.

Rows are partitioned. A trip to the workers and back takes tens of milliseconds, whatever it does.
So a Newton step is one trip, with one task per partition and one sum, and products with β from an
earlier trip are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import pairwise
from operator import add
from typing import Any

import dask
import numpy as np

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, Indices, RowIndex
from kernelmosaic.gram.factored import FactoredGram, NewtonPass
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import (
    ComputedFeatures,
    FeatureStack,
    StackFactors,
    StoredFeatures,
)
from kernelmosaic.gram.kernel_set import Kernels
from kernelmosaic.gram.row_blocks import ArrayRows, Rows, gathered
from kernelmosaic.gram.tuning import EAGER_OPERATIONS, RESULTS_PER_SUM
from kernelmosaic.kernels.base import Block


class DaskFeatures(FeatureStack):
    """Features that are computed on the workers that have the rows, and kept there.

    A partition that is lost is computed again.

    Parameters
    ----------
    kernel_set : FeatureMaps
        The fitted feature maps.
    source : DaskRows
        The training samples.

    Attributes
    ----------
    edges : ndarray of shape (n_partitions + 1,)
        The first row of every partition, and n.
    parts : list
        The `StoredFeatures` of every partition, as Dask's delayed values.
    watched : list of int
        The kernels of the last call of `products`.
    """

    def __init__(self, kernel_set: FeatureMaps, source: Any) -> None:
        self.n_kernels = len(kernel_set)
        self.n_samples = source.shape[0]
        self.widths = kernel_set.widths
        self.dtype = np.dtype(np.float64)
        self.edges = source.edges
        maps = dask.delayed(kernel_set, traverse=False)
        blocks = source.X.to_delayed().ravel()
        fill = dask.delayed(_fill, pure=False)
        self.parts = list(dask.persist(*[fill(maps, block) for block in blocks]))
        self.watched = list(range(self.n_kernels))
        self._known = _KnownProducts(np.zeros(0))
        # Arrays that were sent to the workers last, and their chunks there.
        self._sent: tuple[tuple[Array, ...], list[Any]] = (), []
        self._norms: Array | None = None

    def ask(self, tasks: list[Any]) -> list[Any]:
        """Return the results of tasks; this is one trip."""
        return gathered(tasks, optimize_graph=False)

    def tasks(self, work: Callable[..., Any], *chunked: Any, **shared: Any) -> list[Any]:
        """Return a task for every partition, which will call `work` where the partition is.

        Parameters
        ----------
        work : callable
            Called with the features of a partition, its chunks and the shared arguments.
        *chunked : array of n rows, or list
            Arrays are cut as the rows are; a list has one entry per partition.
        **shared
            Arguments that are the same for all partitions.
        """
        self.rows_read += self.n_samples
        chunks = [rows if isinstance(rows, list) else self.chunks(rows) for rows in chunked]
        task = dask.delayed(partial(work, **shared), pure=False, traverse=False)
        return [task(*arguments) for arguments in zip(self.parts, *chunks, strict=True)]

    def chunks(self, rows: AnyArray | None) -> list[Any]:
        """Return the part of an array that each partition has; for None a list of None."""
        return [None if rows is None else rows[a:b] for a, b in pairwise(self.edges)]

    def send(self, rows: tuple[Array, ...]) -> list[Any]:
        """Return the chunks of arrays on the workers.

        They are sent once as long as the arrays are the same objects.
        """
        sent_arrays, sent_chunks = self._sent
        is_sent = len(sent_arrays) == len(rows) and all(
            sent is array for sent, array in zip(sent_arrays, rows, strict=True)
        )
        if is_sent:
            return sent_chunks
        by_partition = zip(*map(self.chunks, rows), strict=True)
        delayed = [dask.delayed(chunk, pure=False, traverse=False) for chunk in by_partition]
        sent_chunks = list(dask.persist(*delayed))
        self._sent = rows, sent_chunks
        return sent_chunks

    def placed_features(self, rows: Rows, kernels: Kernels) -> Iterator[tuple[int, Block]]:
        """Yield (m, Z_m[rows]) for these kernels; the rows travel to this process in one trip."""
        if isinstance(rows, slice):
            wanted = np.arange(*rows.indices(self.n_samples))
        else:
            wanted = np.asarray(rows)
        partition = np.searchsorted(self.edges, wanted, side="right") - 1
        take = dask.delayed(_take, pure=False)
        tasks = {}
        for p in np.unique(partition):
            rows_inside = wanted[partition == p] - self.edges[p]
            tasks[int(p)] = take(self.parts[p], rows_inside, list(kernels))
        blocks_of_partition = dict(zip(tasks, self.ask(list(tasks.values())), strict=True))
        for k, m in enumerate(kernels):
            Z = np.empty((len(wanted), int(self.widths[m])), dtype=self.dtype)
            for p, blocks in blocks_of_partition.items():
                Z[partition == p] = blocks[k]
            yield m, Z

    def factors(self, weights: Array, gates: Array | None = None) -> DaskFactoredGram:
        """Return Σ_m weights_m g_m g_mᵀ ∘ K_m in its factors, which stay on the workers."""
        return DaskFactoredGram(self, weights, gates)

    def products(
        self, beta: AnyArray, rows: Indices | None = None, kernels: Kernels | None = None
    ) -> Array:
        """Return K_m β at these rows for every kernel; products that are kept are used again."""
        numbers = self.kernel_numbers(kernels)
        self.watched = numbers
        outputs = self.known_products(beta).outputs
        missing = [m for m in numbers if m not in outputs]
        if missing:
            new_outputs = self.outputs(self.sums(beta, missing), beta.shape[1:])
            for m in missing:
                outputs[m] = new_outputs[m]
        wanted = slice(None) if rows is None else rows
        out = np.zeros((self.n_kernels, self.row_count(rows), *beta.shape[1:]))
        for m in numbers:
            out[m] = outputs[m][wanted]
        return out

    def outputs(
        self, sums: dict[int, Array], columns: tuple[int, ...] = (), rows: Indices | None = None
    ) -> Array:
        """Return Z_m s_m at these rows for the sums s_m of every kernel, in one trip."""
        out = np.zeros((self.n_kernels, self.n_samples, *columns))
        if sums:
            out[list(sums)] = np.concatenate(self.ask(self.tasks(_outputs, sums=sums)), axis=1)
        return out if rows is None else out[:, rows]

    def sums(
        self, beta: AnyArray, kernels: Kernels | None, gates: AnyArray | None = None
    ) -> dict[int, Array]:
        """Return Z_mᵀ β, or Z_mᵀ (g_m ∘ β) with gates; sums that are kept are used again."""
        numbers = self.kernel_numbers(kernels)
        # Gated sums are not kept.
        sums = {} if gates is not None else self.known_products(beta).sums
        missing = [m for m in numbers if m not in sums]
        if missing:
            parts = self.ask(self.tasks(_sums, beta, self.chunks(gates), kernels=missing))
            for m in missing:
                sums[m] = np.sum([part_sums[m] for part_sums in parts], axis=0)
        return {m: sums[m] for m in numbers}

    def known_products(self, beta: AnyArray) -> _KnownProducts:
        """Return the products of β that are kept, to which callers add new ones.

        Only those of one β are kept: those of another one are dropped.
        """
        if not np.array_equal(self._known.beta, beta):
            self._known = _KnownProducts(np.array(beta))
        return self._known

    def squared_norms(self) -> Array:
        """Return the squared norms of the rows of every Z_m, of shape (n, P).

        They are computed once.
        """
        if self._norms is None:
            self._norms = np.concatenate(self.ask(self.tasks(_squared_norms)))
        return self._norms


@dataclass
class _KnownProducts:
    """The products of a β that earlier trips have returned, by kernel.

    Attributes
    ----------
    beta : ndarray of shape (n,) or (n, k)
        β.
    sums : dict of int to ndarray
        Z_mᵀβ.
    outputs : dict of int to ndarray
        Z_m Z_mᵀβ.
    """

    beta: Array
    sums: dict[int, Array] = field(default_factory=dict)
    outputs: dict[int, Array] = field(default_factory=dict)

    def add_sums(self, sums: dict[int, Array]) -> None:
        """Add Z_mᵀβ of some kernels."""
        self.sums |= sums


class DaskFactoredGram(FactoredGram):
    """The weighted or gated features on the workers.

    Every operation is one task per partition and one sum. The parameters are those of
    `StackFactors`.
    """

    stored = False

    def __init__(self, stack: DaskFeatures, weights: Array, gates: Array | None = None) -> None:
        self.stack = stack
        self.weights = weights
        self.gates = gates
        # Gates travel once, not with every operation.
        self.gate_chunks = stack.chunks(gates)
        if gates is not None:
            self.gate_chunks = list(dask.persist(*map(dask.delayed, self.gate_chunks)))
        self.active = [int(m) for m in np.flatnonzero(weights)]
        self.n_samples = stack.n_samples
        self.n_features = int(stack.widths[self.active].sum())
        self.block_samples = stack.options.block_samples

    def apply(self, W: Array) -> Array:
        """Return Z W, of shape (n,) or (n, k)."""
        return np.concatenate([rows for (rows,) in self.stack.ask(self._tasks("apply", W=W))])

    def adjoint(self, V: Array) -> Array:
        """Return Zᵀ V, of shape (D,) or (D, k)."""
        if self.gates is None:
            sums = self.stack.sums(V, self.active)
            scaled = [np.sqrt(self.weights[m]) * sums[m] for m in self.active]
            # The empty array gives the shape where no kernel is active.
            return np.concatenate([np.zeros((0, *V.shape[1:])), *scaled])
        return np.asarray(self._summed(self._tasks("adjoint", V))[0])

    def products(self, beta: Array, exact: bool = False) -> Array:
        """Return K β."""
        if self.gates is not None or self.shift is not None:
            return np.asarray(super().products(beta, exact))
        # Products are computed kernel by kernel, with those of the kernels whose gradients are
        # needed next: it takes no more trips than the product with their sum.
        kernels = np.union1d(self.active, self.stack.watched).astype(np.intp)
        products = self.stack.products(beta, kernels=kernels)
        return np.asarray(np.tensordot(self.weights, products, axes=1))

    def products_given(self, beta: Array, adjoint: Array) -> Array:
        """Return K β from β and the known Zᵀβ, which spares a trip."""
        if self.gates is not None:
            return super().products_given(beta, adjoint)
        edges = np.cumsum(self.stack.widths[self.active])[:-1]
        sums = {}
        for m, scaled_sum in zip(self.active, np.split(adjoint, edges), strict=True):
            sums[m] = scaled_sum / np.sqrt(self.weights[m])
        self.stack.known_products(beta).add_sums(sums)
        return self.products(beta)

    def normal_matrix(self, theta: Array, precise: bool = False) -> Array:
        """Return [Z, 1]ᵀ diag(θ) [Z, 1], of shape (D + 1, D + 1)."""
        return np.asarray(self._summed(self._tasks("normal_matrix", theta, precise=precise))[0])

    def adjoint_and_matrix(self, V: Array, theta: Array) -> tuple[Array, Array]:
        """Return Zᵀ V and the precise normal matrix of θ, in one trip."""
        adjoint, M = self._summed(self._tasks("adjoint_and_matrix", V, theta))
        return adjoint, M

    def newton_pass(
        self, direction: Array | None, residual: Array, rule: Callable[..., Any], rows: RowIndex
    ) -> NewtonPass:
        """Return Z d, and Zᵀβ and the normal matrix of θ after the step, in one trip."""
        # The matrix, which may not be needed, is formed in the same trip if that takes a partition
        # no longer than another trip would.
        operations = self.n_samples * (self.n_features + 1) ** 2
        is_eager = operations <= EAGER_OPERATIONS * len(self.stack.parts)
        tasks = self.stack.tasks(
            _newton_sums,
            self.gate_chunks,
            residual,
            self.stack.send(rows),
            weights=self.weights,
            direction=direction,
            rule=rule,
            is_eager=is_eager,
        )
        changes, adjoint, *matrix = self._summed(tasks)
        change = np.concatenate(changes)

        def form_matrix() -> Array:
            if is_eager:
                return np.asarray(matrix[0])
            _, theta = rule(residual - change, *rows)
            return self.normal_matrix(theta)

        return NewtonPass(change, adjoint, form_matrix)

    def placed_rows(self, which: Indices) -> Array:
        """Return these rows of Z."""
        gates = 1.0 if self.gates is None else self.gates[which]
        scales = np.sqrt(self.weights) * gates
        scaled = [scales[..., m : m + 1] * Z for m, Z in self.stack.features(which, self.active)]
        # The empty array gives the shape where no kernel is active.
        return np.hstack([np.zeros((len(which), 0)), *scaled])

    def squared_norms(self) -> Array:
        """Return the squared norms of the rows of Z, of shape (n,)."""
        norms = self.stack.squared_norms()
        if self.gates is not None:
            norms = norms * self.gates**2
        return np.asarray(norms @ self.weights)

    def _tasks(self, operation: str, *chunked: Any, **shared: Any) -> list[Any]:
        """Return a task for every partition that calls a method of its own `StackFactors`.

        The arguments of the method are as in `DaskFeatures.tasks`.
        """
        return self.stack.tasks(
            _operate,
            self.gate_chunks,
            *chunked,
            operation=operation,
            weights=self.weights,
            **shared,
        )

    def _summed(self, tasks: list[Any], n_results: int = RESULTS_PER_SUM) -> tuple[Any, ...]:
        """Return the sums of the results of tasks; this is one trip.

        Workers add results up until at most `n_results` are left, which travel.
        """
        add_up = dask.delayed(_add_up, pure=False, traverse=False)
        while len(tasks) > n_results:
            groups = [tasks[k : k + n_results] for k in range(0, len(tasks), n_results)]
            tasks = [add_up(*group) for group in groups]
        return _add_up(*self.stack.ask(tasks))


# Functions that the workers call ------------------------------------------------------------------


def _fill(kernel_set: FeatureMaps, block: ArrayOrTensor) -> StoredFeatures:
    """Return the features of a partition."""
    rows = ArrayRows(np.asarray(block))
    return StoredFeatures.fill(ComputedFeatures(kernel_set, rows, np.float64))


def _take(partition: StoredFeatures, rows: Indices, kernels: Sequence[int]) -> list[Block]:
    """Return some rows of the features of these kernels."""
    return [Z for _, Z in partition.features(rows, kernels)]


def _outputs(partition: StoredFeatures, sums: dict[int, Array]) -> Array:
    """Return Z_m s_m for the sums s_m of every kernel."""
    return np.stack([partition.arrays[m] @ total for m, total in sums.items()])


def _sums(
    partition: StoredFeatures, beta: Array, gates: Array | None, kernels: list[int]
) -> dict[int, Array]:
    """Return Z_mᵀ β, or Z_mᵀ (g_m ∘ β), of every kernel."""
    return partition.sums(beta, kernels, gates)


def _squared_norms(partition: StoredFeatures) -> Array:
    """Return the squared norms of the rows of every Z_m, of shape (n, P)."""
    unit_weights = np.eye(partition.n_kernels)
    norms = [StackFactors(partition, weights).squared_norms() for weights in unit_weights]
    return np.stack(norms, axis=1)


def _newton_sums(
    partition: StoredFeatures,
    gates: Array | None,
    residual: Array,
    rows: tuple[Array, ...],
    weights: Array,
    direction: Array | None,
    rule: Callable[..., Any],
    is_eager: bool,
) -> tuple[Any, ...]:
    """Return Z d in a list, Zᵀβ and, if it is eager, the normal matrix of a Newton pass.

    Sums over the partitions concatenate the lists. The parameters are those of
    `FactoredGram.newton_pass`.
    """
    step = StackFactors(partition, weights, gates).newton_pass(direction, residual, rule, rows)
    if is_eager:
        return [step.change], step.adjoint, step.matrix()
    return [step.change], step.adjoint


def _operate(
    partition: StoredFeatures,
    gates: Array | None,
    *arguments: Any,
    operation: str,
    weights: Array,
    **shared: Any,
) -> tuple[Any, ...]:
    """Return the results of a method of the `StackFactors` of a partition, as a tuple."""
    result = getattr(StackFactors(partition, weights, gates), operation)(*arguments, **shared)
    return result if isinstance(result, tuple) else (result,)


def _add_up(*results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the sums of the results of several partitions, entry by entry."""
    return tuple(reduce(add, terms) for terms in zip(*results, strict=True))
