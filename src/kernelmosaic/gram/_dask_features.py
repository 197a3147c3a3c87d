"""Features on the workers of a Dask cluster: rows are partitioned, and only vectors and D × D matrices travel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dask
import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.factored import Array, FactoredGram
from kernelmosaic.gram.feature_bank import FeatureBank, Kernels, StoredFeatures
from kernelmosaic.gram.feature_mosaic import FeatureMosaic
from kernelmosaic.gram.row_blocks import ArrayRows, Rows, RowSource
from kernelmosaic.kernels.base import Block


class DaskRows(RowSource):
    """Rows of a Dask array or data frame."""

    remote = True

    def __init__(self, X: Any) -> None:
        self.names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        X = X.to_dask_array(lengths=True) if hasattr(X, "to_dask_array") else X
        if any(np.isnan(size) for size in X.chunks[0]):
            X = X.compute_chunk_sizes()
        # One partition holds whole rows.
        self.X = X.rechunk({1: -1}) if X.ndim == 2 else X
        self.shape = self.X.shape

    def take(self, rows: Rows) -> NDArray[Any]:
        return np.asarray(self.X[rows].compute())

    @property
    def edges(self) -> NDArray[np.intp]:
        """Where the partitions begin, and the end."""
        return np.concatenate([[0], np.cumsum(self.X.chunks[0])]).astype(np.intp)


class DaskFeatures(FeatureBank):
    """Features computed where the rows are, and kept there; a partition that is lost is computed again."""

    def __init__(self, mosaic: FeatureMosaic, source: Any, dtype: Any) -> None:
        self.n_kernels, self.n_samples = len(mosaic), source.shape[0]
        self.widths, self.dtype = mosaic.widths, np.dtype(dtype)
        self.edges = source.edges
        known = dask.delayed(mosaic, traverse=False)
        blocks = source.X.to_delayed().ravel()
        self.parts = list(dask.persist(*[dask.delayed(_fill, pure=False)(known, block, dtype) for block in blocks]))

    def over_parts(self, work: Callable[..., Any], *chunked: NDArray[Any], **shared: Any) -> list[Any]:
        """Return work(features of a partition, its chunks, …) for every partition, done where the features are."""
        spread = {name: dask.delayed(value, traverse=False) for name, value in shared.items()}
        tasks = [
            dask.delayed(work, pure=False)(part, *[array[a:b] for array in chunked], **spread)
            for part, a, b in zip(self.parts, self.edges[:-1], self.edges[1:], strict=True)
        ]
        self.rows_read += self.n_samples
        return list(dask.compute(*tasks))

    def features(self, rows: Rows, kernels: Kernels) -> Iterator[tuple[int, Block]]:
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
        raise ValueError("Gates are served by samples in this process, not by Dask collections.")

    def products(
        self, beta: NDArray[Any], rows: NDArray[np.intp] | None = None, kernels: Kernels | None = None
    ) -> NDArray[np.float64]:
        every = list(range(self.n_kernels) if kernels is None else kernels)
        parts = self.over_parts(_products, sums=self.sums(beta, every), kernels=every)
        whole = np.concatenate(parts, axis=1)
        out = np.zeros((self.n_kernels, *whole.shape[1:]))
        out[every] = whole
        return out if rows is None else out[:, rows]

    def sums(self, beta: NDArray[Any], kernels: Kernels) -> dict[int, Array]:
        every = [int(m) for m in kernels]
        parts = self.over_parts(_sums, beta, kernels=every)
        return {m: np.sum([part[m] for part in parts], axis=0) for m in every}


class DaskFactoredGram(FactoredGram):
    """The weighted features on the workers; every operation is one map over the partitions and one sum."""

    def __init__(self, bank: DaskFeatures, weights: Array) -> None:
        self.bank, self.weights = bank, weights
        self.n_samples = bank.n_samples
        self.n_features = int(bank.widths[np.flatnonzero(weights)].sum())
        self.block_samples = bank.block_samples

    def apply(self, W: Array) -> Array:
        return np.concatenate(self.bank.over_parts(_apply, weights=self.weights, W=W))

    def adjoint(self, V: Array) -> Array:
        return np.asarray(np.sum(self.bank.over_parts(_adjoint, V, weights=self.weights), axis=0))

    def normal_matrix(self, theta: Array, precise: bool = False) -> Array:
        # Summed in pairs on the workers: one matrix comes here, not one a partition.
        terms: list[Any] = [
            dask.delayed(_normal_matrix, pure=False)(part, theta[a:b], self.weights)
            for part, a, b in zip(self.bank.parts, self.bank.edges[:-1], self.bank.edges[1:], strict=True)
        ]
        while len(terms) > 1:
            terms = [dask.delayed(_add, pure=False)(*terms[k : k + 2]) for k in range(0, len(terms), 2)]
        self.bank.rows_read += self.n_samples
        return np.asarray(terms[0].compute())

    def rows(self, which: NDArray[np.intp]) -> Array:
        active = [int(m) for m in np.flatnonzero(self.weights)]
        found = dict(self.bank.features(which, active))
        return np.hstack([np.sqrt(self.weights[m]) * found[m] for m in active])

    def diagonal(self) -> Array:
        return np.concatenate(self.bank.over_parts(_diagonal, weights=self.weights))


# What the workers do ----------------------------------------------------------------------------------------------


def _fill(mosaic: FeatureMosaic, block: Any, dtype: Any) -> StoredFeatures:
    return StoredFeatures.fill(mosaic, ArrayRows(np.asarray(block)), dtype)


def _take(part: StoredFeatures, rows: NDArray[np.intp], kernels: Sequence[int]) -> list[Block]:
    return [Z for _, Z in part.features(rows, kernels)]


def _products(part: StoredFeatures, sums: dict[int, Array], kernels: list[int]) -> Array:
    return np.stack([part.arrays[m] @ sums[m] for m in kernels])


def _sums(part: StoredFeatures, beta: Array, kernels: list[int]) -> dict[int, Array]:
    return part.sums(beta, kernels)


def _apply(part: StoredFeatures, weights: Array, W: Array) -> Array:
    return np.asarray(part.combine(weights).apply(W))


def _adjoint(part: StoredFeatures, V: Array, weights: Array) -> Array:
    return np.asarray(part.combine(weights).adjoint(V))


def _normal_matrix(part: StoredFeatures, theta: Array, weights: Array) -> Array:
    return np.asarray(part.combine(weights).normal_matrix(theta))


def _diagonal(part: StoredFeatures, weights: Array) -> Array:
    return np.asarray(part.combine(weights).diagonal())


def _add(*terms: Array) -> Array:
    return np.asarray(sum(terms))
