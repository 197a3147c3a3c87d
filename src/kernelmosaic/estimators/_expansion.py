"""The fitted function: a sum over kernels and support samples, evaluated only where its coefficients are not zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import KernelSet, Views, take_rows
from kernelmosaic.gram.predictions import support_products


@dataclass(frozen=True)
class Expansion:
    """f_c(x) = Σ_m η_cm Σ_i β_ci k_m(x, x_i), over the kernels with a weight and the samples with a coefficient.

    Attributes
    ----------
    kernel_set : KernelSet
        The active kernels.
    support : list
        The support samples as these kernels see them.
    beta : ndarray of shape (outputs, n_support)
        Signed dual coefficients.
    eta : ndarray of shape (outputs, active kernels)
        Weights.
    active : ndarray
        The numbers of the active kernels among all P.
    n_kernels : int
        P.
    device : str or None
        Where it was fitted, and is evaluated as long as that device is there.
    """

    kernel_set: KernelSet
    support: Views
    beta: NDArray[np.float64]
    eta: NDArray[np.float64]
    active: NDArray[np.intp]
    n_kernels: int
    device: str | None = None

    @classmethod
    def prune(
        cls,
        kernel_set: KernelSet,
        views: Views,
        support: NDArray[np.intp],
        beta: NDArray[np.float64],
        eta: NDArray[np.float64],
        device: str | None = None,
    ) -> Expansion:
        """Keep what the function needs of the training set: active kernels, support samples."""
        active = np.flatnonzero(np.any(eta != 0, axis=0))
        kept = take_rows(kernel_set.select_views(views, active), support)
        return cls(kernel_set.select(active), kept, beta, eta[:, active], active, eta.shape[1], device)

    def terms(self, X: Any) -> NDArray[np.float64]:
        """Return each kernel's share of the outputs, of shape (n, P, outputs)."""
        views = self.kernel_set.views(X)
        out = np.zeros((X.shape[0], self.n_kernels, self.beta.shape[0]))
        for rows, m, values in self._blocks(views):
            out[rows, self.active[m]] = values
        return out

    def values(self, X: Any) -> NDArray[np.float64]:
        """Return the outputs without their intercepts, of shape (n, outputs)."""
        views = self.kernel_set.views(X)
        out = np.zeros((X.shape[0], self.beta.shape[0]))
        for rows, _, values in self._blocks(views):
            out[rows] += values
        return out

    def combined(self, X: Any, Y: Any) -> NDArray[np.float64]:
        """Return the combined kernel of every output between X and Y, of shape (outputs, len(X), len(Y))."""
        left = self.kernel_set.views(X)
        right = left if Y is X else self.kernel_set.views(Y)
        out = np.zeros((len(self.eta), X.shape[0], Y.shape[0]))
        for m, K in self.kernel_set.blocks(left, right, range(len(self.kernel_set))):
            for total, weight in zip(out, self.eta[:, m], strict=True):
                if weight:
                    total += weight * K
        return out

    def _blocks(self, views: Views) -> Iterator[tuple[slice, int, NDArray[np.float64]]]:
        # Without active kernels or support there is nothing to evaluate.
        if not views or not self.beta.shape[1]:
            return
        for rows, m, values in support_products(self.kernel_set, views, self.support, self.beta.T, self.device):
            yield rows, m, values * self.eta[:, m]
