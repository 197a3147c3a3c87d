"""The fitted function in features: one weight vector a kernel and output, and no support samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.estimators._gated_expansion import ROUNDING
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.gram.predictions import feature_products
from kernelmosaic.gram.row_blocks import RowSource, open_rows, row_strips
from kernelmosaic.learning.gated import Look

#: Bytes of samples and features a prediction works on at once.
_BLOCK_BYTES = 2**22


@dataclass(frozen=True)
class FeatureExpansion:
    """f_c(x) = Σ_m ⟨w_cm, z_m(x)⟩ with w_cm = η_cm Z_mᵀβ_c, over the kernels with a weight.

    Under gates it is f_c(x) = Σ_m g_cm(x) ⟨w_cm, z_m(x)⟩ with w_cm = Z_mᵀ(g_cm ∘ β_c); the weights η are ones then.
    Gates have the shape (outputs, n, P), or (1, n, P) if the outputs share them.

    Attributes
    ----------
    kernel_set : FeatureMaps
        The active kernels with their feature maps.
    w : list of ndarray of shape (features, outputs)
        The weight vectors, one a kernel.
    eta : ndarray of shape (outputs, active kernels)
        Weights.
    active : ndarray
        The numbers of the active kernels among all P.
    n_kernels : int
        P.
    device : str or None
        Where it was fitted, and is evaluated as long as that device is there.
    """

    kernel_set: FeatureMaps
    w: list[NDArray[np.float64]]
    eta: NDArray[np.float64]
    active: NDArray[np.intp]
    n_kernels: int
    device: str | None = None

    @classmethod
    def prune(
        cls,
        kernel_set: FeatureMaps,
        stack: FeatureStack,
        beta: NDArray[np.float64],
        eta: NDArray[np.float64],
        device: str | None = None,
    ) -> FeatureExpansion:
        """Keep what the function needs: active kernels and their weight vectors; β has shape (outputs, n)."""
        active = np.flatnonzero(np.any(eta != 0, axis=0))
        sums = stack.sums(np.ascontiguousarray(beta.T), active)
        w = [sums[int(m)] * eta[:, m] for m in active]
        return cls(kernel_set.select(active), w, eta[:, active], active, eta.shape[1], device)

    @classmethod
    def prune_gated(
        cls, kernel_set: FeatureMaps, stack: FeatureStack, looks: Sequence[Look], device: str | None = None
    ) -> FeatureExpansion:
        """Keep what the function of machines under their gates needs, one after the other."""
        # Of each output and kernel the largest |β_ci g_cm(x_i)|.
        largest = np.array(
            [np.abs(beta[:, np.newaxis] * one.gates).max(axis=0) for one in looks for beta in one.outputs]
        )
        active = np.flatnonzero(np.any(largest > ROUNDING * largest.max(axis=1, keepdims=True), axis=0))
        sums = [stack.sums(np.ascontiguousarray(one.outputs.T), active, one.gates) for one in looks]
        w = [np.hstack([one[int(m)] for one in sums]) for m in active]
        return cls(kernel_set.select(active), w, np.ones((len(largest), len(active))), active, len(kernel_set), device)

    def terms(self, X: Any, gates: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return each kernel's share of the outputs, of shape (n, P, outputs)."""
        rows = open_rows(X)
        out = np.zeros((rows.shape[0], self.n_kernels, len(self.eta)))
        for strip, m, values in self._shares(rows, gates):
            out[strip, m] = values
        return out

    def values(self, X: Any, gates: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return the outputs without their intercepts, of shape (n, outputs)."""
        rows = open_rows(X)
        out = np.zeros((rows.shape[0], len(self.eta)))
        for strip, _, values in self._shares(rows, gates):
            out[strip] += values
        return out

    def combined(
        self,
        X: Any,
        Y: Any,
        left_gates: NDArray[np.float64] | None = None,
        right_gates: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Return the combined kernel of every output between X and Y, of shape (outputs, len(X), len(Y))."""
        left, right = open_rows(X), open_rows(Y)
        weights = self.eta if left_gates is None else self.eta[: len(left_gates)]
        out = np.zeros((len(weights), left.shape[0], right.shape[0]))
        for strip, m, Z in self._blocks(left):
            for other, _, V in self._blocks(right, [m]):
                block, at = Z @ V.T, self.active[m]
                for c, total in enumerate(out):
                    share = weights[c, m] * block
                    if left_gates is not None and right_gates is not None:
                        share *= np.outer(left_gates[c, strip, at], right_gates[c, other, at])
                    total[strip, other] += share
        return out

    def _shares(
        self, rows: RowSource, gates: NDArray[np.float64] | None
    ) -> Iterator[tuple[slice, int, NDArray[np.float64]]]:
        """Yield (strip, m, what kernel m adds to the outputs there), m among all P."""
        for strip, k, values in feature_products(self.kernel_set, rows, self.w, self.device):
            m = int(self.active[k])
            yield strip, m, values if gates is None else values * gates[:, strip, m].T

    def _blocks(
        self, rows: RowSource, kernels: Sequence[int] | None = None
    ) -> Iterator[tuple[slice, int, NDArray[np.float64]]]:
        every = range(len(self.kernel_set)) if kernels is None else kernels
        width = rows.row_width + 3 * int(self.kernel_set.widths.sum())
        for strip in row_strips(rows.shape[0], _BLOCK_BYTES // (8 * width)):
            for m, Z in self.kernel_set.blocks(rows.take(strip), every):
                yield strip, m, Z
