"""Features on the workers of a Dask cluster: rows are partitioned, and only vectors and D × D matrices travel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import dask
import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.factored import FactoredGram
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import FeatureStack, StackFactors, StoredFeatures, under_gate
from kernelmosaic.gram.gram import Array
from kernelmosaic.gram.row_blocks import ArrayRows, Rows
from kernelmosaic.gram.stack import Kernels
from kernelmosaic.kernels.base import Block


class DaskFeatures(FeatureStack):
    """Features computed where the rows are, and kept there; a partition that is lost is computed again."""

    def __init__(self, kernel_set: FeatureMaps, source: Any, dtype: Any) -> None:
        self.n_kernels, self.n_samples = len(kernel_set), source.shape[0]
        self.widths, self.dtype = kernel_set.widths, np.dtype(dtype)
        self.edges = source.edges
        known = dask.delayed(kernel_set, traverse=False)
        blocks = source.X.to_delayed().ravel()
        self.parts = list(dask.persist(*[dask.delayed(_fill, pure=False)(known, block, dtype) for block in blocks]))

    def over_parts(self, work: Callable[..., Any], *chunked: Any, **shared: Any) -> list[Any]:
        """Return work(features of a partition, its chunks, …) for every partition, done where the features are."""
        return list(dask.compute(*self.tasks(work, *chunked, **shared)))

    def tasks(self, work: Callable[..., Any], *chunked: Any, **shared: Any) -> list[Any]:
        """Return the same, yet to be done; what is chunked is an array of n rows, or a list of one item a partition."""
        spread = {name: dask.delayed(value, traverse=False) for name, value in shared.items()}
        self.rows_read += self.n_samples
        cut = [one if isinstance(one, list) else self.chunks(one) for one in chunked]
        return [
            dask.delayed(work, pure=False)(part, *own, **spread) for part, *own in zip(self.parts, *cut, strict=True)
        ]

    def chunks(self, rows: NDArray[Any] | None) -> list[Any]:
        """Cut an array as the rows are; nothing is one nothing a partition."""
        return [None if rows is None else rows[a:b] for a, b in pairwise(self.edges)]

    def placed_features(self, rows: Rows, kernels: Kernels) -> Iterator[tuple[int, Block]]:
        wanted = np.arange(*rows.indices(self.n_samples)) if isinstance(rows, slice) else np.asarray(rows)
        owner = np.searchsorted(self.edges, wanted, side="right") - 1
        tasks = {
            int(p): dask.delayed(_take, pure=False)(self.parts[p], wanted[owner == p] - self.edges[p], list(kernels))
            for p in np.unique(owner)
        }
        found = dict(zip(tasks, dask.compute(*tasks.values()), strict=True))
        for k, m in enumerate(kernels):
            Z = np.empty((len(wanted), int(self.widths[m])), dtype=self.dtype)
            for p, blocks in found.items():
                Z[owner == p] = blocks[k]
            yield m, Z

    def combine(self, weights: NDArray[Any], out: Any = None) -> Any:
        return DaskFactoredGram(self, np.asarray(weights, dtype=np.float64))

    def combine_gated(self, gates: NDArray[Any], out: Any = None) -> Any:
        return DaskFactoredGram(self, np.any(gates != 0, axis=0).astype(np.float64), np.asarray(gates))

    def outputs(
        self, sums: dict[int, Array], columns: tuple[int, ...] = (), rows: NDArray[np.intp] | None = None
    ) -> NDArray[np.float64]:
        out = np.zeros((self.n_kernels, self.n_samples, *columns))
        if sums:
            out[list(sums)] = np.concatenate(self.over_parts(_outputs, sums=sums), axis=1)
        return out if rows is None else out[:, rows]

    def sums(self, beta: NDArray[Any], kernels: Kernels, gates: NDArray[Any] | None = None) -> dict[int, Array]:
        every = [int(m) for m in kernels]
        parts = self.over_parts(_sums, beta, self.chunks(gates), kernels=every)
        return {m: np.sum([part[m] for part in parts], axis=0) for m in every}


class DaskFactoredGram(FactoredGram):
    """The weighted or gated features on the workers; every operation is one map over the partitions and one sum."""

    stored = False

    def __init__(self, stack: DaskFeatures, weights: Array, gates: Array | None = None) -> None:
        self.stack, self.weights, self.gates = stack, weights, gates
        # Gates travel once, not with every operation.
        chunks = stack.chunks(gates)
        self.spread_gates = chunks if gates is None else list(dask.persist(*map(dask.delayed, chunks)))
        self.n_samples = stack.n_samples
        self.n_features = int(stack.widths[np.flatnonzero(weights)].sum())
        self.block_samples = stack.options.block_samples

    def apply(self, W: Array) -> Array:
        return np.concatenate(dask.compute(*self._tasks("apply", whole=W)))

    def adjoint(self, V: Array) -> Array:
        return np.asarray(np.sum(dask.compute(*self._tasks("adjoint", V)), axis=0))

    def normal_matrix(self, theta: Array, precise: bool = False) -> Array:
        # Summed in pairs on the workers: one matrix comes here, not one a partition.
        terms = self._tasks("normal_matrix", theta)
        while len(terms) > 1:
            terms = [dask.delayed(_add, pure=False)(*terms[k : k + 2]) for k in range(0, len(terms), 2)]
        return np.asarray(terms[0].compute())

    def rows(self, which: NDArray[np.intp]) -> Array:
        active = [int(m) for m in np.flatnonzero(self.weights)]
        found = dict(self.stack.features(which, active))
        gates = None if self.gates is None else self.gates[which]
        scaled = [
            under_gate(np.sqrt(self.weights[m]) * found[m], None if gates is None else gates[:, m]) for m in active
        ]
        return np.hstack([np.zeros((len(which), 0)), *scaled])

    def squared_norms(self) -> Array:
        return np.concatenate(dask.compute(*self._tasks("squared_norms")))

    def _tasks(self, operation: str, *chunked: Array, whole: Array | None = None) -> list[Any]:
        """Return what each partition is to do: an operation of its own factored kernel."""
        options = {"operation": operation, "weights": self.weights, "whole": whole}
        return self.stack.tasks(_operate, self.spread_gates, *chunked, **options)


# What the workers do ----------------------------------------------------------------------------------------------


def _fill(kernel_set: FeatureMaps, block: Any, dtype: Any) -> StoredFeatures:
    return StoredFeatures.fill(kernel_set, ArrayRows(np.asarray(block)), dtype)


def _take(part: StoredFeatures, rows: NDArray[np.intp], kernels: Sequence[int]) -> list[Block]:
    return [Z for _, Z in part.features(rows, kernels)]


def _outputs(part: StoredFeatures, sums: dict[int, Array]) -> Array:
    return np.stack([part.arrays[m] @ total for m, total in sums.items()])


def _sums(part: StoredFeatures, beta: Array, gates: Array | None, kernels: list[int]) -> dict[int, Array]:
    return part.sums(beta, kernels, gates)


def _operate(
    part: StoredFeatures, gates: Array | None, *own: Array, operation: str, weights: Array, whole: Array | None
) -> Array:
    arguments = own if whole is None else (whole,)
    return np.asarray(getattr(StackFactors(part, weights, gates), operation)(*arguments))


def _add(*terms: Array) -> Array:
    return np.asarray(sum(terms))
