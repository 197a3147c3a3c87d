"""Putting kernels on one scale: what is learned on the training set is applied to every later
block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Self

import numpy as np
from scipy import sparse

from kernelmosaic._checks import check_choice, warn_caller
from kernelmosaic._typing import Array, ArrayOrTensor, DType, MatrixLike
from kernelmosaic.backend import backend_of, row_strips
from kernelmosaic.kernels.base import Block, Kernel

Diagonal = Array

#: A centred kernel must be known to this relative error, three digits.
CENTRED_ERROR = 1e-3
#: Entries up to this size, and down to its inverse, have room in single precision, their products
#: with others, too.
_MODERATE = 1e24


class Normalization:
    """A rule applied to the blocks of one kernel; `fit` learns its constants on the training set.

    What a rule needs of each sample is computed once by `row_scale` and given to the others, which
    take arrays and tensors alike. A method that a rule does not define leaves the kernel as it is.
    """

    #: How much larger than the entries the numbers are of which these are differences: it is what
    #: they are rounded by.
    removed: float = 0.0

    def fit(self, kernel: Kernel, X: MatrixLike, sample_weight: Array | None) -> Self:
        """Learn the constants of a fitted kernel from samples in the form that it reads."""
        return self

    def row_scale(self, X: MatrixLike) -> Diagonal | None:
        """Return what the rule needs of each sample, or None."""
        return None

    def rounds_last(self, left: ArrayOrTensor, right: ArrayOrTensor) -> bool:
        """Whether entries are rounded to single precision after the rule: before it they are too
        large, or too small.

        It takes the row scales of both sides.
        """
        return False

    def block(self, K: Block, left: ArrayOrTensor, right: ArrayOrTensor) -> Block:
        """Return the block of k(x, y) on the new scale, from the row scales of both; K may be
        overwritten."""
        return K

    def diagonal(self, k: Diagonal, row_scale: ArrayOrTensor) -> Diagonal:
        """The same for k(x, x)."""
        return k

    def features(self, Z: Block, row_scale: ArrayOrTensor) -> Block:
        """The same for features whose inner products are k(x, y)."""
        return Z


class Unscaled(Normalization):
    """k as it is."""


class UnitTrace(Normalization):
    """k divided by the mean of k(x, x) over the training set: one factor, which keeps the kernel's
    geometry."""

    def fit(self, kernel: Kernel, X: MatrixLike, sample_weight: Array | None) -> Self:
        return self.learn(float(np.average(kernel._diagonal(X), weights=sample_weight)))

    def learn(self, mean: float) -> Self:
        """Take the mean diagonal as given."""
        # A kernel of zeros stays one: dividing by its trace would fill it with NaN.
        self.scale_ = mean if mean > 0 else 1.0
        return self

    def rounds_last(self, left: ArrayOrTensor, right: ArrayOrTensor) -> bool:
        return not 1 / _MODERATE <= self.scale_ <= _MODERATE

    def block(self, K: Block, left: ArrayOrTensor, right: ArrayOrTensor) -> Block:
        if self.scale_ != 1.0:  # as that of every Gaussian kernel
            K /= float(self.scale_)
        return K

    def diagonal(self, k: Diagonal, row_scale: ArrayOrTensor) -> Diagonal:
        return k / self.scale_

    def features(self, Z: Block, row_scale: ArrayOrTensor) -> Block:
        return Z / float(np.sqrt(self.scale_))


class UnitDiagonal(Normalization):
    """k(x, z) / √(k(x, x) k(z, z)): the cosine in the kernel's feature space."""

    def fit(self, kernel: Kernel, X: MatrixLike, sample_weight: Array | None) -> Self:
        self.kernel_ = kernel
        return self

    def row_scale(self, X: MatrixLike) -> Diagonal:
        norms = np.sqrt(self.kernel_.diag(X))
        # A sample at the origin of the feature space has no direction; its similarities are zero
        # already.
        return np.where(norms > 0, norms, 1.0)

    def rounds_last(self, left: ArrayOrTensor, right: ArrayOrTensor) -> bool:
        if not (len(left) and len(right)):
            return False
        return not (
            left.min() * right.min() >= 1 / _MODERATE and left.max() * right.max() <= _MODERATE
        )

    def block(self, K: Block, left: ArrayOrTensor, right: ArrayOrTensor) -> ArrayOrTensor:
        backend = backend_of(K)
        dtype = backend.dtype(K)
        K /= backend.astype(left, dtype)[:, None]
        K /= backend.astype(right, dtype)
        return K

    def diagonal(self, k: Diagonal, row_scale: ArrayOrTensor) -> Diagonal:
        return np.where(k > 0, 1.0, 0.0)

    def features(self, Z: Block, row_scale: ArrayOrTensor) -> ArrayOrTensor:
        backend = backend_of(Z)
        return Z / backend.astype(row_scale, backend.dtype(Z))[:, None]


class Centered(Normalization):
    """k with the training set's mean removed in feature space, then unit trace; zero if k is
    constant there.

    Blocks of new samples need their similarities to the whole training set, which is therefore
    kept.
    """

    def fit(self, kernel: Kernel, X: MatrixLike, sample_weight: Array | None) -> Self:
        self.kernel_, self.X_ = kernel, X
        n = X.shape[0]
        self.share_ = (
            np.full(n, 1.0 / n) if sample_weight is None else sample_weight / sample_weight.sum()
        )
        K, diagonal = kernel(X), np.asarray(kernel.diag(X), dtype=np.float64)
        # Off a common number first: what the entries have in common would round what they have not.
        level = float(self.share_ @ diagonal)
        # A few rows at a time, so that no second matrix is held.
        strips = (K[rows].astype(np.float64) - level for rows in row_strips(n, 512))
        apart = np.concatenate([strip @ self.share_ for strip in strips])
        mean = float(self.share_ @ apart)
        self.means_, self.mean_ = level + apart, level + mean
        trace = float(self.share_ @ (diagonal - level - 2.0 * apart + mean))
        # A kernel that is constant on the training set is zero once centred: dividing what rounding
        # left of it by its trace would make a kernel of noise.
        noise = centring_noise(n, K.dtype, kernel.entry_roundings(X)) * abs(level)
        self.scale_ = trace if trace > 0 and noise <= CENTRED_ERROR * trace else np.inf
        if self.scale_ == np.inf and not (
            is_constant(X) if kernel.input_kind == "numbers" else np.ptp(K) == 0
        ):
            raise_of_rounding()
        self.removed = abs(self.mean_) / self.scale_
        return self

    def rounds_last(self, left: ArrayOrTensor, right: ArrayOrTensor) -> bool:
        return True  # it may leave but the last digits of large entries

    def row_scale(self, X: MatrixLike) -> Diagonal:
        if X is self.X_:
            return self.means_
        return np.asarray(self.kernel_(X, self.X_) @ self.share_, dtype=np.float64)

    def block(self, K: Block, left: ArrayOrTensor, right: ArrayOrTensor) -> ArrayOrTensor:
        backend = backend_of(K)
        # In double precision, whatever the block is in: the row scales are.
        D = K - left[:, None]
        D -= right - self.mean_
        D /= float(self.scale_)
        return backend.astype(D, backend.dtype(K))

    def diagonal(self, k: Diagonal, row_scale: ArrayOrTensor) -> Diagonal:
        return np.asarray((k - 2.0 * row_scale + self.mean_) / self.scale_)


def centring_noise(n_samples: int, dtype: DType, roundings: float = 1.0) -> float:
    """Return what rounding leaves of a constant kernel that is centred, in eigenvalues and relative
    to its mean trace.

    Entries that are each off by some roundings, as a sum over d columns is by about √d, move
    eigenvalues of the matrix by about √n times as much; the mean diagonal is 1.
    """
    precision = np.dtype(dtype) if np.dtype(dtype).kind == "f" else np.dtype(np.float64)
    return float(np.sqrt(n_samples) * roundings * np.finfo(precision).eps)


def is_constant(X: MatrixLike) -> bool:
    """Whether all samples, rows of numbers, are equal: every kernel is constant on them."""
    if sparse.issparse(X):
        return bool((X.max(axis=0) != X.min(axis=0)).nnz == 0)
    return bool(np.all(X[:1] == X))


def raise_of_rounding() -> NoReturn:
    """Raise a ValueError: of a kernel that is not constant centring leaves fewer digits than it
    must have."""
    raise ValueError(
        "normalize='centered': of what varies in it on the training set, rounding leaves fewer"
        f" than {-np.log10(CENTRED_ERROR):.0f} digits; centre and scale its columns, as"
        " StandardScaler does, choose a narrower width, or leave it out."
    )


def warn_of_constant(names: Sequence[str]) -> None:
    """Warn of kernels, if there are any, that are constant on the training set."""
    if names:
        warn_caller(
            f"normalize='centered': kernel {', '.join(map(repr, names))} is constant on the"
            " training set and zero once centred: it adds nothing; leave it out, or give it"
            " columns that vary.",
        )


_RULES: dict[str | None, type[Normalization]] = {
    None: Unscaled,
    "trace": UnitTrace,
    "diagonal": UnitDiagonal,
    "centered": Centered,
}


def make_normalization(rule: str | None) -> Normalization:
    """Return the rule of that name, or raise naming the ones there are."""
    return _RULES[check_choice("normalize", rule, _RULES)]()
