"""Features on the workers of a Dask cluster: rows are partitioned, and only vectors and D × D
matrices travel.

A trip to the workers and back takes tens of milliseconds whatever it does, so what can be done in
one is: a Newton step is one task a partition and one sum, and what is known of a β from an earlier
trip is not asked again.
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
from kernelmosaic.kernels.base import Block


class DaskFeatures(FeatureStack):
    """Features computed where the rows are, and kept there; a partition that is lost is computed
    again."""

    def __init__(self, kernel_set: FeatureMaps, source: Any) -> None:
        self.n_kernels, self.n_samples = len(kernel_set), source.shape[0]
        self.widths, self.dtype = kernel_set.widths, np.dtype(np.float64)
        self.edges = source.edges
        known = dask.delayed(kernel_set, traverse=False)
        blocks = source.X.to_delayed().ravel()
        self.parts = list(
            dask.persist(*[dask.delayed(_fill, pure=False)(known, block) for block in blocks])
        )
        self.seen, self.watched = _Seen(np.zeros(0)), list(range(self.n_kernels))
        self._spread: tuple[tuple[Array, ...], list[Any]] = (), []
        self._norms: Array | None = None

    def ask(self, tasks: list[Any]) -> list[Any]:
        """Make a trip: return what tasks return."""
        return gathered(tasks, optimize_graph=False)

    def tasks(self, work: Callable[..., Any], *chunked: Any, **shared: Any) -> list[Any]:
        """Return work(features of a partition, its chunks, …) for every partition, yet to be done
        where these are.

        What is chunked is an array of n rows, or a list of one item a partition.
        """
        self.rows_read += self.n_samples
        cut = [one if isinstance(one, list) else self.chunks(one) for one in chunked]
        task = dask.delayed(partial(work, **shared), pure=False, traverse=False)
        return [task(part, *own) for part, *own in zip(self.parts, *cut, strict=True)]

    def chunks(self, rows: AnyArray | None) -> list[Any]:
        """Cut an array as the rows are; nothing is one nothing a partition."""
        return [None if rows is None else rows[a:b] for a, b in pairwise(self.edges)]

    def spread(self, rows: tuple[Array, ...]) -> list[Any]:
        """Return arrays cut as the rows are, which travel but once as long as they are the same."""
        known, chunks = self._spread
        if len(known) != len(rows) or any(
            one is not other for one, other in zip(known, rows, strict=True)
        ):
            cut = zip(*map(self.chunks, rows), strict=True)
            chunks = list(
                dask.persist(*[dask.delayed(own, pure=False, traverse=False) for own in cut])
            )
            self._spread = rows, chunks
        return chunks

    def placed_features(self, rows: Rows, kernels: Kernels) -> Iterator[tuple[int, Block]]:
        wanted = (
            np.arange(*rows.indices(self.n_samples))
            if isinstance(rows, slice)
            else np.asarray(rows)
        )
        owner = np.searchsorted(self.edges, wanted, side="right") - 1
        tasks = {
            int(p): dask.delayed(_take, pure=False)(
                self.parts[p], wanted[owner == p] - self.edges[p], list(kernels)
            )
            for p in np.unique(owner)
        }
        found = dict(zip(tasks, self.ask(list(tasks.values())), strict=True))
        for k, m in enumerate(kernels):
            Z = np.empty((len(wanted), int(self.widths[m])), dtype=self.dtype)
            for p, blocks in found.items():
                Z[owner == p] = blocks[k]
            yield m, Z

    def factors(self, weights: Array, gates: Array | None = None) -> DaskFactoredGram:
        return DaskFactoredGram(self, weights, gates)

    def products(
        self, beta: AnyArray, rows: Indices | None = None, kernels: Kernels | None = None
    ) -> Array:
        every = self.asked(kernels)
        self.watched, seen = every, self.seen_of(beta)
        if missing := [m for m in every if m not in seen.outputs]:
            fresh = self.outputs(self.sums(beta, missing), beta.shape[1:])
            seen.outputs |= {m: fresh[m] for m in missing}
        at = slice(None) if rows is None else rows
        out = np.zeros(
            (self.n_kernels, self.n_samples if rows is None else len(rows), *beta.shape[1:])
        )
        for m in every:
            out[m] = seen.outputs[m][at]
        return out

    def outputs(
        self, sums: dict[int, Array], columns: tuple[int, ...] = (), rows: Indices | None = None
    ) -> Array:
        out = np.zeros((self.n_kernels, self.n_samples, *columns))
        if sums:
            out[list(sums)] = np.concatenate(self.ask(self.tasks(_outputs, sums=sums)), axis=1)
        return out if rows is None else out[:, rows]

    def sums(
        self, beta: AnyArray, kernels: Kernels | None, gates: AnyArray | None = None
    ) -> dict[int, Array]:
        every = self.asked(kernels)
        known = {} if gates is not None else self.seen_of(beta).sums
        if missing := [m for m in every if m not in known]:
            parts = self.ask(self.tasks(_sums, beta, self.chunks(gates), kernels=missing))
            known |= {m: np.sum([part[m] for part in parts], axis=0) for m in missing}
        return {m: known[m] for m in every}

    def seen_of(self, beta: AnyArray) -> _Seen:
        """Return what is known of these coefficients, to which more may be added; others are
        forgotten."""
        if not np.array_equal(self.seen.beta, beta):
            self.seen = _Seen(np.array(beta))
        return self.seen

    def squared_norms(self) -> Array:
        """Return the squared norms of the rows of every Z_m, of shape (n, P); they are computed
        once."""
        if self._norms is None:
            self._norms = np.concatenate(self.ask(self.tasks(_squared_norms)))
        return self._norms


@dataclass
class _Seen:
    """What trips have returned for a β: Z_mᵀβ and Z_m Z_mᵀβ of some kernels."""

    beta: Array
    sums: dict[int, Array] = field(default_factory=dict)
    outputs: dict[int, Array] = field(default_factory=dict)


class DaskFactoredGram(FactoredGram):
    """The weighted or gated features on the workers; every operation is one map over the partitions
    and one sum."""

    stored = False

    def __init__(self, stack: DaskFeatures, weights: Array, gates: Array | None = None) -> None:
        self.stack, self.weights, self.gates = stack, weights, gates
        # Gates travel once, not with every operation.
        chunks = stack.chunks(gates)
        self.spread_gates = (
            chunks if gates is None else list(dask.persist(*map(dask.delayed, chunks)))
        )
        self.active = [int(m) for m in np.flatnonzero(weights)]
        self.n_samples = stack.n_samples
        self.n_features = int(stack.widths[self.active].sum())
        self.block_samples = stack.options.block_samples

    def apply(self, W: Array) -> Array:
        return np.concatenate([own for (own,) in self.stack.ask(self._tasks("apply", W=W))])

    def adjoint(self, V: Array) -> Array:
        if self.gates is None:
            sums = self.stack.sums(V, self.active)
            scaled = [np.sqrt(self.weights[m]) * sums[m] for m in self.active]
            return np.concatenate([np.zeros((0, *V.shape[1:])), *scaled])
        return np.asarray(self._summed(self._tasks("adjoint", V))[0])

    def products(self, beta: Array, exact: bool = False) -> Array:
        if self.gates is not None or self.shift is not None:
            return np.asarray(super().products(beta, exact))
        # Kernel by kernel, with those whose slopes are needed next: that is as many trips as their
        # sum.
        each = self.stack.products(
            beta, kernels=np.union1d(self.active, self.stack.watched).astype(np.intp)
        )
        return np.asarray(np.tensordot(self.weights, each, axes=1))

    def products_given(self, beta: Array, adjoint: Array) -> Array:
        if self.gates is not None:
            return super().products_given(beta, adjoint)
        ends = np.cumsum(self.stack.widths[self.active])[:-1]
        sums = zip(self.active, np.split(adjoint, ends), strict=True)
        self.stack.seen_of(beta).sums |= {m: own / np.sqrt(self.weights[m]) for m, own in sums}
        return self.products(beta)

    def normal_matrix(self, theta: Array, precise: bool = False) -> Array:
        return np.asarray(self._summed(self._tasks("normal_matrix", theta, precise=precise))[0])

    def adjoint_and_matrix(self, V: Array, theta: Array) -> tuple[Array, Array]:
        adjoint, M = self._summed(self._tasks("adjoint_and_matrix", V, theta))
        return adjoint, M

    def newton_pass(
        self, direction: Array | None, residual: Array, rule: Callable[..., Any], rows: RowIndex
    ) -> NewtonPass:
        # A matrix that may not be needed is formed in the same trip if that costs a partition no
        # more than a trip.
        eager = self.n_samples * (self.n_features + 1) ** 2 <= 1e9 * len(self.stack.parts)
        chunked = self.spread_gates, residual, self.stack.spread(rows)
        shared = {"weights": self.weights, "direction": direction, "rule": rule, "eager": eager}
        changes, adjoint, *matrix = self._summed(self.stack.tasks(_newton_sums, *chunked, **shared))
        change = np.concatenate(changes)

        def form() -> Array:
            return matrix[0] if eager else self.normal_matrix(rule(residual - change, *rows)[1])

        return NewtonPass(change, adjoint, form)

    def placed_rows(self, which: Indices) -> Array:
        scales = np.sqrt(self.weights) * (1.0 if self.gates is None else self.gates[which])
        scaled = [scales[..., m : m + 1] * Z for m, Z in self.stack.features(which, self.active)]
        return np.hstack([np.zeros((len(which), 0)), *scaled])

    def squared_norms(self) -> Array:
        norms = self.stack.squared_norms()
        return np.asarray((norms if self.gates is None else norms * self.gates**2) @ self.weights)

    def _tasks(self, operation: str, *chunked: Any, **shared: Any) -> list[Any]:
        """Return what each partition is to do with its own factored kernel: one of the methods of
        `StackFactors`."""
        return self.stack.tasks(
            _operate,
            self.spread_gates,
            *chunked,
            operation=operation,
            weights=self.weights,
            **shared,
        )

    def _summed(self, tasks: list[Any], most: int = 8) -> tuple[Any, ...]:
        """Make a trip and return the sums of the results; workers add them up until at most so many
        are left."""
        add_up = dask.delayed(_add_up, pure=False, traverse=False)
        while len(tasks) > most:
            tasks = [add_up(*tasks[k : k + most]) for k in range(0, len(tasks), most)]
        return _add_up(*self.stack.ask(tasks))


# What the workers do ------------------------------------------------------------------------------


def _fill(kernel_set: FeatureMaps, block: ArrayOrTensor) -> StoredFeatures:
    return StoredFeatures.fill(
        ComputedFeatures(kernel_set, ArrayRows(np.asarray(block)), np.float64)
    )


def _take(part: StoredFeatures, rows: Indices, kernels: Sequence[int]) -> list[Block]:
    return [Z for _, Z in part.features(rows, kernels)]


def _outputs(part: StoredFeatures, sums: dict[int, Array]) -> Array:
    return np.stack([part.arrays[m] @ total for m, total in sums.items()])


def _sums(
    part: StoredFeatures, beta: Array, gates: Array | None, kernels: list[int]
) -> dict[int, Array]:
    return part.sums(beta, kernels, gates)


def _squared_norms(part: StoredFeatures) -> Array:
    each = np.eye(part.n_kernels)
    return np.stack([StackFactors(part, own).squared_norms() for own in each], axis=1)


def _newton_sums(
    part: StoredFeatures,
    gates: Array | None,
    residual: Array,
    rows: tuple[Array, ...],
    weights: Array,
    direction: Array | None,
    rule: Callable[..., Any],
    eager: bool,
) -> tuple[Any, ...]:
    """Return what a Newton pass over a partition does, its matrix if that is asked for; lists of Z
    d add up to one."""
    seen = StackFactors(part, weights, gates).newton_pass(direction, residual, rule, rows)
    return [seen.change], seen.adjoint, *([seen.matrix()] if eager else [])


def _operate(
    part: StoredFeatures,
    gates: Array | None,
    *own: Any,
    operation: str,
    weights: Array,
    **shared: Any,
) -> tuple[Any, ...]:
    found = getattr(StackFactors(part, weights, gates), operation)(*own, **shared)
    return found if isinstance(found, tuple) else (found,)


def _add_up(*results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the sums of what parts of the rows return, one by one."""
    return tuple(reduce(add, terms) for terms in zip(*results, strict=True))
