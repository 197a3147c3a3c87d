"""Features of one kernel: few numbers a sample whose inner products are, about, the kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from sklearn.utils.extmath import safe_sparse_dot

from kernelmosaic.backend import backend_of
from kernelmosaic.kernels.base import Block, Kernel
from kernelmosaic.kernels.linear import Linear

#: Eigenvalues of the landmarks' block below this share of the largest are rounding, ...
ROUNDING = 1e-12
#: ... and below this many roundings of its numbers a landmark.
_ROUNDINGS = 4.0


class FeatureMap(ABC):
    """From samples as the kernel sees them to features.

    Attributes
    ----------
    width : int
        How many features there are.
    """

    width: int

    @abstractmethod
    def features(self, X: Any) -> Block:
        """Return the features of samples, (n, width), not normalised yet; X is an array, sparse or a tensor."""


class NystroemMap:
    """Z = K(X, L) K(L, L)^(−½) with landmarks L: the projection onto the span of their images in feature space.

    What it needs of the samples is a block of the kernel, so it serves every kernel there is. With every sample for a
    landmark the features give the kernel itself.

    Parameters
    ----------
    block : ndarray of shape (r, r)
        K(L, L), normalised as later blocks will be.
    """

    def __init__(self, block: Block) -> None:
        K = np.asarray(block, dtype=np.float64)
        eigenvalues, V = eigh(0.5 * (K + K.T), check_finite=False)
        rounding = max(ROUNDING, _ROUNDINGS * len(K) * float(np.finfo(_floating(block)).eps))
        keep = eigenvalues > rounding * max(float(eigenvalues[-1]), 0.0)
        # A kernel of zeros has one feature, which is zero.
        self.root = V[:, keep] / np.sqrt(eigenvalues[keep]) if np.any(keep) else np.zeros((len(K), 1))
        self.n_landmarks = len(K)
        self.width = self.root.shape[1]

    def project(self, block: Block) -> Block:
        """Return the features of samples from their block with the landmarks, an array or a tensor."""
        backend = backend_of(block)
        projected: Block = block @ backend.asarray(self.root, _floating(block))
        return projected


class ColumnsMap(FeatureMap):
    """The linear kernel's own columns, which are exact."""

    def __init__(self, width: int) -> None:
        self.width = width

    def features(self, X: Any) -> Block:
        columns: Block = X.toarray() if hasattr(X, "toarray") else X
        return columns


class FourierMap(FeatureMap):
    """√(a/r) (cos Xω, sin Xω) for r frequencies ω drawn from the spectrum of a kernel a · κ(x − z).

    References
    ----------
    Rahimi and Recht (2007), "Random features for large-scale kernel machines".
    """

    #: What is subtracted from every sample: angles far from zero have few digits left.
    center: Any = 0.0

    def __init__(self, kernel: Kernel, X: Any, rank: int, random: np.random.RandomState) -> None:
        self.frequencies, self.factor = kernel.draw_frequencies(X.shape[1], rank // 2, random)
        self.width = 2 * self.frequencies.shape[1]
        if isinstance(X, np.ndarray):
            self.center = X.mean(axis=0, dtype=np.float64)

    def features(self, X: Any) -> Block:
        backend = backend_of(X)
        dtype = backend.dtype(X)
        frequencies = backend.asarray(self.frequencies, dtype)
        if sparse.issparse(X):
            angles = np.asarray(safe_sparse_dot(X, frequencies, dense_output=True))
            angles -= np.asarray(np.broadcast_to(self.center, X.shape[1:]) @ self.frequencies, dtype=angles.dtype)
        else:
            angles = (X - backend.asarray(self.center, dtype)) @ frequencies
        Z: Block = backend.empty((len(angles), self.width), backend.dtype(angles))
        half = self.width // 2
        backend.xp.cos(angles, out=Z[:, :half])
        backend.xp.sin(angles, out=Z[:, half:])
        Z *= float(np.sqrt(self.factor / half))
        return Z


def explicit_map(
    approximation: str, kernel: Kernel, X: Any, rank: int, random: np.random.RandomState
) -> FeatureMap | None:
    """Return the map of a fitted kernel that needs no landmarks, None where landmarks it must be.

    `X` are samples as the kernel sees them, of which the number of columns and the mean count.
    """
    if isinstance(kernel, Linear) and X.shape[1] <= rank:
        return ColumnsMap(X.shape[1])
    if approximation == "nystroem":
        return None
    if isinstance(kernel, Linear):
        raise ValueError(
            f"rank={rank}: approximation='fourier' keeps the {X.shape[1]} columns of a linear kernel as they are; "
            "raise the rank to their number, or use approximation='nystroem'."
        )
    if rank < 2:
        raise ValueError(f"rank={rank}: Fourier features come in pairs, so give at least 2.")
    return FourierMap(kernel, X, rank, random)


def _floating(block: Block) -> Any:
    dtype = backend_of(block).dtype(block)
    return dtype if dtype.kind == "f" else np.dtype(np.float64)
