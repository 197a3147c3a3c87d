"""Columns of numbers put on one scale, whatever else a table holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelmosaic._typing import MatrixLike
from kernelmosaic.kernels.views import KernelSpec

#: A column whose standard deviation is below this share of its largest entry is constant up to rounding.
_CONSTANT = 1e-12


@dataclass(frozen=True)
class Standardizer:
    """Subtracts the means of columns and divides by their standard deviations, where kernels read them as numbers.

    Attributes
    ----------
    columns : ndarray of int
        The columns it changes; row numbers, strings and what no kernel reads stay as they are.
    mean, scale : ndarray of shape (len(columns),)
        Of the training samples, by their weights. Sparse samples are divided only, so that they stay sparse.
    """

    columns: NDArray[np.intp]
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def fit(cls, specs: Sequence[KernelSpec], X: MatrixLike, weight: NDArray[np.float64]) -> Standardizer:
        """Return that of the columns which all kernels reading them take as numbers."""
        read = {kind: np.zeros(X.shape[1], dtype=bool) for kind in ("numbers", "other")}
        for spec in specs:
            kind = "numbers" if spec.kernel.input_kind == "numbers" and not spec.kernel.keeps_scale else "other"
            read[kind][slice(None) if spec.columns is None else spec.columns] = True
        columns = np.flatnonzero(read["numbers"] & ~read["other"])
        taken = X[:, columns]
        if sparse.issparse(X):
            taken = sparse.csr_matrix(taken, dtype=np.float64)
            mean = np.asarray(taken.T @ weight).ravel() / weight.sum()
            square = np.asarray(taken.multiply(taken).T @ weight).ravel() / weight.sum()
            scale, largest = np.sqrt(np.maximum(square - mean**2, 0.0)), np.sqrt(square)
            mean = np.zeros(len(columns))
        else:
            taken = np.asarray(taken, dtype=np.float64)
            if np.isnan(taken).any():  # views that samples lack: the other samples give the scale
                return cls._fit_present(columns, taken, weight)
            mean = np.average(taken, axis=0, weights=weight)
            scale = np.sqrt(np.average((taken - mean) ** 2, axis=0, weights=weight))
            largest = np.abs(taken).max(axis=0, initial=0.0)
        return cls(columns, mean, np.where(scale > _CONSTANT * largest, scale, 1.0))

    @classmethod
    def _fit_present(
        cls, columns: NDArray[np.intp], taken: NDArray[np.float64], weight: NDArray[np.float64]
    ) -> Standardizer:
        there = ~np.isnan(taken)
        values, counted = np.where(there, taken, 0.0), there * weight[:, np.newaxis]
        # A column that no sample has is refused by its kernel.
        total = np.maximum(counted.sum(axis=0), np.finfo(np.float64).tiny)
        mean = (counted * values).sum(axis=0) / total
        scale = np.sqrt((counted * (values - mean) ** 2).sum(axis=0) / total)
        return cls(columns, mean, np.where(scale > _CONSTANT * np.abs(values).max(axis=0, initial=0.0), scale, 1.0))

    def __call__(self, X: MatrixLike) -> Any:
        """Return the samples on that scale, as an array of its own."""
        if sparse.issparse(X):
            factors = np.ones(X.shape[1])
            factors[self.columns] = 1.0 / self.scale
            return sparse.csr_matrix(X.multiply(factors[np.newaxis]), dtype=X.dtype)
        out = X.copy()
        out[:, self.columns] = (np.asarray(X[:, self.columns], dtype=np.float64) - self.mean) / self.scale
        return out
