"""Rules that put kernels on one scale: constants of the training set, applied to every block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Self

import numpy as np
from scipy import sparse

from kernelmosaic._checks import check_choice, warn_caller
from kernelmosaic._typing import Array, ArrayOrTensor, DType, MatrixLike
from kernelmosaic.backend import backend_of, row_strips
from kernelmosaic.gram.tuning import CENTRED_ROWS
from kernelmosaic.kernels.base import Block, Kernel

#: One number per sample, such as k(x, x).
Diagonal = Array

#: The largest relative error of a centred kernel: three digits must be known.
CENTRED_ERROR = 1e-3
#: Entries up to this size, and down to its inverse, can be stored in single precision, which ranges
#: from 1e-38 to 1e38, and multiplied by moderate numbers.
_MODERATE = 1e24


class Normalization:
    """A rule that scales one kernel; `fit` learns its constants on the training set.

    `row_scale` computes once what a rule needs of each sample, and the other methods take it. They
    take arrays and tensors alike. A method that a rule does not define leaves the kernel as it is.
    """

    #: The size of the mean that centring subtracts, on the scale of the centred kernel: its
    #: rounding remains in the entries.
    removed: float = 0.0

    def fit(self, kernel: Kernel, X: MatrixLike, sample_weight: Array | None) -> Self:
        """Learn the constants of a fitted kernel from samples in the form that it reads."""
        return self

    def row_scale(self, X: MatrixLike) -> Diagonal | None:
        """Return what the rule needs of each sample, of shape (n,), or None."""
        return None

    def rounds_last(self, left: ArrayOrTensor, right: ArrayOrTensor) -> bool:
        """Return whether entries may be rounded to single precision only after the rule.

        Before the rule they may be too large or too small for single precision. The arguments are
        the row scales of both sides.
        """
        return False

    def block(self, K: Block, left: ArrayOrTensor, right: ArrayOrTensor) -> Block:
        """Return the block K of k(x, y) on the new scale; K may be overwritten.

        `left` and `right` are the row scales of x and of y.
        """
        return K

    def diagonal(self, k: Diagonal, row_scale: ArrayOrTensor) -> Diagonal:
        """Return the numbers k(x, x) on the new scale, from the row scales of x."""
        return k

    def features(self, Z: Block, row_scale: ArrayOrTensor) -> Block:
        """Return features whose inner products are k(x, y) on the new scale.

        `row_scale` are the row scales of the samples.
        """
        return Z


class Unscaled(Normalization):
    """k as it is."""


class UnitTrace(Normalization):
    """k divided by the mean of k(x, x) over the training set.

    One factor keeps the geometry of the kernel.
    """

    def fit(self, kernel: Kernel, X: MatrixLike, sample_weight: Array | None) -> Self:
        """Learn the mean of k(x, x)."""
        return self.learn(float(np.average(kernel._diagonal(X), weights=sample_weight)))

    def learn(self, mean: float) -> Self:
        """Set the scale to this mean of k(x, x)."""
        # A kernel of zeros is not changed: dividing by its trace would fill it with NaN.
        self.scale_ = mean if mean > 0 else 1.0
        return self

    def rounds_last(self, left: ArrayOrTensor, right: ArrayOrTensor) -> bool:
        return not 1 / _MODERATE <= self.scale_ <= _MODERATE

    def block(self, K: Block, left: ArrayOrTensor, right: ArrayOrTensor) -> Block:
        # The scale of every Gaussian kernel is one.
        if self.scale_ != 1.0:
            K /= float(self.scale_)
        return K

    def diagonal(self, k: Diagonal, row_scale: ArrayOrTensor) -> Diagonal:
        return k / self.scale_

    def features(self, Z: Block, row_scale: ArrayOrTensor) -> Block:
        return Z / float(np.sqrt(self.scale_))


class UnitDiagonal(Normalization):
    """k(x, z) / √(k(x, x) k(z, z)): the cosine in the kernel's feature space."""

    def fit(self, kernel: Kernel, X: MatrixLike, sample_weight: Array | None) -> Self:
        """Keep the kernel, which computes k(x, x) of later samples."""
        self.kernel_ = kernel
        return self

    def row_scale(self, X: MatrixLike) -> Diagonal:
        """Return √k(x, x) of each sample, one where it is zero."""
        norms = np.sqrt(self.kernel_.diag(X))
        # A sample at the origin of the feature space has no direction; its entries are zero, and
        # stay zero.
        return np.where(norms > 0, norms, 1.0)

    def rounds_last(self, left: ArrayOrTensor, right: ArrayOrTensor) -> bool:
        """Return whether a product of row scales is far from one."""
        if len(left) == 0 or len(right) == 0:
            return False
        smallest, largest = left.min() * right.min(), left.max() * right.max()
        return not (smallest >= 1 / _MODERATE and largest <= _MODERATE)

    def block(self, K: Block, left: ArrayOrTensor, right: ArrayOrTensor) -> ArrayOrTensor:
        """Return the block divided by the row scales of both sides."""
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
    """k with the mean of the training set subtracted in feature space, then divided by its trace.

    The kernel is zero if k is constant on the training set. Blocks of new samples need their
    similarities to the whole training set, which is therefore kept.
    """

    def fit(self, kernel: Kernel, X: MatrixLike, sample_weight: Array | None) -> Self:
        """Learn the mean similarity of each training sample, the mean of all, and the trace."""
        self.kernel_, self.X_ = kernel, X
        n = X.shape[0]
        if sample_weight is None:
            self.share_ = np.full(n, 1.0 / n)
        else:
            self.share_ = sample_weight / sample_weight.sum()
        K = kernel(X)
        diagonal = np.asarray(kernel.diag(X), dtype=np.float64)
        # A common number is subtracted first: what all entries have in common would round the
        # differences between them.
        level = float(self.share_ @ diagonal)
        # A few rows at a time, so that there is no second matrix in memory.
        strips = (K[rows].astype(np.float64) - level for rows in row_strips(n, CENTRED_ROWS))
        apart = np.concatenate([strip @ self.share_ for strip in strips])
        mean = float(self.share_ @ apart)
        self.means_, self.mean_ = level + apart, level + mean
        trace = float(self.share_ @ (diagonal - level - 2.0 * apart + mean))
        # A kernel that is constant on the training set is zero once centred: dividing the rounding
        # errors that are left by its trace would make a kernel of noise.
        noise = centring_noise(n, K.dtype, kernel.entry_roundings(X)) * abs(level)
        is_known = trace > 0 and noise <= CENTRED_ERROR * trace
        self.scale_ = trace if is_known else np.inf
        if self.scale_ == np.inf:
            constant = is_constant(X) if kernel.input_kind == "numbers" else np.ptp(K) == 0
            if not constant:
                raise_of_rounding()
        self.removed = abs(self.mean_) / self.scale_
        return self

    def rounds_last(self, left: ArrayOrTensor, right: ArrayOrTensor) -> bool:
        """Return True: only the last digits of large entries may be left."""
        # Only the last digits of large entries may be left.
        return True

    def row_scale(self, X: MatrixLike) -> Diagonal:
        """Return the mean similarity of each sample to the training set."""
        if X is self.X_:
            return self.means_
        return np.asarray(self.kernel_(X, self.X_) @ self.share_, dtype=np.float64)

    def block(self, K: Block, left: ArrayOrTensor, right: ArrayOrTensor) -> ArrayOrTensor:
        """Return the centred block, divided by the trace."""
        backend = backend_of(K)
        # In double precision, as the row scales are, whatever the precision of the block.
        D = K - left[:, None]
        D -= right - self.mean_
        D /= float(self.scale_)
        return backend.astype(D, backend.dtype(K))

    def diagonal(self, k: Diagonal, row_scale: ArrayOrTensor) -> Diagonal:
        return np.asarray((k - 2.0 * row_scale + self.mean_) / self.scale_)


def centring_noise(n_samples: int, dtype: DType, roundings: float = 1.0) -> float:
    """Return the size of eigenvalues that rounding leaves of a constant kernel once it is centred.

    It is relative to the mean diagonal of the kernel. Entries that are each wrong by some
    roundings, as a sum over d columns is by about √d, change eigenvalues of the matrix by about √n
    times as much.
    """
    precision = np.dtype(dtype) if np.dtype(dtype).kind == "f" else np.dtype(np.float64)
    return float(np.sqrt(n_samples) * roundings * np.finfo(precision).eps)


def is_constant(X: MatrixLike) -> bool:
    """Return whether all rows of numbers are equal: every kernel is constant on them."""
    if sparse.issparse(X):
        return bool((X.max(axis=0) != X.min(axis=0)).nnz == 0)
    return bool(np.all(X[:1] == X))


def raise_of_rounding() -> NoReturn:
    """Raise a ValueError: centring leaves too few digits of a kernel that is not constant."""
    raise ValueError(
        "normalize='centered': of what varies in it on the training set, rounding leaves fewer"
        f" than {-np.log10(CENTRED_ERROR):.0f} digits; centre and scale its columns, as"
        " StandardScaler does, choose a narrower width, or leave it out."
    )


def warn_of_constant(names: Sequence[str]) -> None:
    """Warn of these kernels, which are constant on the training set, if there are any."""
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
    """Return the rule of this name, or raise an error that names all rules."""
    return _RULES[check_choice("normalize", rule, _RULES)]()
