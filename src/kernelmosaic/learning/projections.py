"""Projections that are learned with the machine: where they live, and their slopes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack, KernelSet, Views, make_stack, take_rows
from kernelmosaic.gram.linear_algebra import nonzero_rows
from kernelmosaic.gram.normalizing import Centered, UnitDiagonal, UnitTrace
from kernelmosaic.gram.stack import ComputedStack, StoredStack
from kernelmosaic.kernels.transformed import Projected, perturbed

Vector = NDArray[np.float64]


class Projections:
    """The matrices W_m of a kernel_set's projected kernels as one vector, with a stack that follows them.

    Parameters
    ----------
    kernel_set : KernelSet
        The kernels; copied, so that machines learned side by side do not share projections.
    views : list
        The training samples as they see them.
    weight : ndarray of shape (n,)
        Weights of the samples, which a scale may average over.
    budget : float, optional
        Of the stack.
    """

    def __init__(self, kernel_set: KernelSet, views: Views, weight: Vector, budget: float | None = None) -> None:
        self.kernel_set = KernelSet(tuple(deepcopy(fitted_kernel) for fitted_kernel in kernel_set.fitted))
        self.views = views
        self.weight = weight
        self.numbers = projected_kernels(kernel_set)
        self.stack: GramStack = make_stack(self.kernel_set, views, budget=budget)

    def kernel(self, m: int) -> Projected:
        kernel = self.kernel_set.fitted[m].kernel
        assert isinstance(kernel, Projected)
        return kernel

    def read(self) -> Vector:
        """Return all W as one vector."""
        return np.concatenate([self.kernel(m).W_.ravel() for m in self.numbers])

    def start(self, rng: np.random.RandomState) -> Vector:
        """Return where to begin: near the principal directions, each kernel elsewhere if there are several."""
        if len(self.numbers) == 1:
            return self.read()
        return np.concatenate([perturbed(self.kernel(m).W_, rng).ravel() for m in self.numbers])

    def write(self, vector: Vector) -> None:
        """Put all W, the scales that depend on them, and the stored matrices in place."""
        at = 0
        for m in self.numbers:
            kernel, view = self.kernel(m), self.views[m]
            size = kernel.W_.size
            kernel.W_ = vector[at : at + size].reshape(kernel.W_.shape).copy()
            at += size
            self.kernel_set.fitted[m].normalization.fit(kernel, view, self.weight)
        if isinstance(self.stack, StoredStack):
            self._refill(self.stack)
        elif isinstance(self.stack, ComputedStack):
            # What the normalisations know of the samples has changed with W.
            self.stack.samples = self.kernel_set.samples(self.views)

    def _refill(self, stack: StoredStack) -> None:
        for strip in stack.row_strips(stack.n_samples):
            rows = take_rows(self.views, strip)
            for m, block in self.kernel_set.blocks(rows, self.views, self.numbers, stack.dtype):
                stack.matrices[m, strip] = block
        for m in self.numbers:
            # Strips round differently on the two sides of the diagonal.
            K = stack.matrices[m]
            K[...] = 0.5 * (K + K.T)

    def slope(self, beta: NDArray[np.float64], gates: NDArray[np.float64]) -> Vector:
        """Return ∂J/∂W of all projections: −½ Σ_c Σ_ij u_ic u_jc ∂k(x_i, x_j)/∂W with u_c = η_m ∘ β_c."""
        columns = beta.reshape(len(beta), -1)
        return np.concatenate([self._slope(m, gates[:, [m]] * columns).ravel() for m in self.numbers])

    def _slope(self, m: int, U: NDArray[np.float64]) -> NDArray[np.float64]:
        kernel, scale, view = self.kernel(m), self.kernel_set.fitted[m].normalization, self.views[m]
        support = nonzero_rows(U)
        if len(support) == 0:
            return np.zeros_like(kernel.W_)
        if isinstance(scale, Centered):
            return self._centered_slope(kernel, scale, view, U)
        X = view[support]
        G = -0.5 * U[support] @ U[support].T
        if isinstance(scale, UnitTrace):
            # k / mean k(x, x): the scale answers to W as well.
            total = float(np.sum(G * kernel._block(X, X))) / scale.scale_**2
            share = self.weight / self.weight.sum()
            return kernel.vjp(X, G / scale.scale_) - kernel.diagonal_vjp(view, total * share)
        if isinstance(scale, UnitDiagonal):
            norms = np.sqrt(kernel._diagonal(X))
            norms[norms == 0] = 1.0
            G /= np.outer(norms, norms)
            own = np.sum(G * kernel._block(X, X), axis=1) / norms**2
            return kernel.vjp(X, G) - kernel.diagonal_vjp(X, own)
        return kernel.vjp(X, G)

    @staticmethod
    def _centered_slope(kernel: Projected, scale: Centered, view: Any, U: NDArray[np.float64]) -> NDArray[np.float64]:
        """The kernel is HKHᵀ / s, with H = I − 1wᵀ, s = Σ_i w_i k(x_i, x_i) − wᵀKw and w the samples' shares."""
        w = scale.share_
        # uᵀHKHᵀu reads K through Hᵀu, which is zero nowhere: the mean is made of all samples.
        V = U - np.outer(w, U.sum(axis=0))
        G = -0.5 * V @ V.T / scale.scale_
        total = float(np.sum(G * kernel._block(view, view))) / scale.scale_
        G += total * np.outer(w, w)
        return kernel.vjp(view, G) - kernel.diagonal_vjp(view, total * w)


def projected_kernels(kernel_set: KernelSet) -> list[int]:
    """Return the numbers of the kernels whose projection is to be learned."""
    return [m for m, fitted_kernel in enumerate(kernel_set.fitted) if isinstance(fitted_kernel.kernel, Projected)]
