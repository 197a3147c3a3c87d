"""Kernels whose samples are the row numbers of a given matrix: a kernel matrix, or the links of a
graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import linalg, sparse

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, Indices, Mask, MatrixLike
from kernelmosaic.backend import (
    NUMPY,
    as_slice,
    one_blas_thread,
    row_strips,
    run_threads,
    threads_for,
)
from kernelmosaic.kernels.base import Block, FeatureKernel, Kernel, is_positive

#: How far entries may be off, relative to the largest, and still be taken for rounded.
ROUNDING = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 1e-6}

#: Up to this many samples a matrix is proved to be positive semi-definite; of more, so many are
#: eliminated from others.
PROVED, _ELIMINATED = 500, 128


@dataclass
class _Prepared:
    """What was made of one given matrix at its first use; a kernel and its clones hold the same
    one."""

    given: Any
    result: Any = None
    # Which samples have only NaN in a kernel matrix; None if there are none.
    gaps: Mask | None = None


class MatrixRows(Kernel):
    """A kernel between the rows of a matrix given at construction: X holds row numbers.

    The matrix is checked, and what is computed from it is computed, once, at the first use; clones
    share both, and so do the kernels of one set that are given the same object.
    """

    input_kind: ClassVar[str] = "rows"
    #: Name of the parameter that holds the matrix.
    matrix_parameter: ClassVar[str]

    @abstractmethod
    def _prepare(self, given: object) -> Any:
        """Check the given matrix and return what `_block` reads."""

    def _n_rows(self) -> int:
        """How many rows there are to choose from."""
        self._prepared()
        return int(np.shape(self._share().given)[0])

    def validate(self, X: MatrixLike) -> Indices:
        return row_numbers(X, self._n_rows(), self.matrix_parameter)

    def _prepared(self) -> Any:
        shared = self._share()
        if shared.result is None:
            # On one thread, unless the matrix is large: beside other work the threads wait for each
            # other for longer than they compute.
            with threads_for(length_of(shared.given)):
                shared.result = self._prepare(shared.given)
        return shared.result

    def _share(self) -> _Prepared:
        given = getattr(self, self.matrix_parameter)
        shared: _Prepared | None = self.__dict__.get("_shared")
        if shared is None or shared.given is not given:
            # Also after set_params, which must not leave the result of the former matrix in place.
            shared = self._shared = _Prepared(given)
        return shared

    def share(self, others: Iterable[Kernel]) -> None:
        """Hold what one of the others, of the same class and the same matrix, has made of it."""
        own = self._share()
        for other in others:
            if (
                isinstance(other, MatrixRows)
                and type(other) is type(self)
                and other._share().given is own.given
            ):
                self._shared = other._share()

    def __sklearn_clone__(self) -> Self:
        # scikit-learn would copy the matrix for every fold and candidate of a search.
        copy = type(self)(**self.get_params(deep=False))
        copy._shared = self._share()
        return copy

    def __repr__(self) -> str:
        parameters = self.get_params(deep=False)
        given = parameters.pop(self.matrix_parameter)
        try:
            size = " x ".join(map(str, np.shape(given)))
        except ValueError:  # rows of different lengths, which `fit` will refuse
            size = type(given).__name__
        arguments = [f"<{size}>", *(f"{key}={value!r}" for key, value in parameters.items())]
        written = ", ".join(arguments)
        return f"{type(self).__name__}({written})"


def length_of(given: object) -> int:
    """Return how many rows a matrix has; 0 for what is none, which its check refuses."""
    shape = getattr(given, "shape", None) or (len(given) if isinstance(given, Sized) else 0,)
    return int(shape[0])


class NewRows(np.ndarray):
    """Samples that are in no row of the given matrices, as their similarities to every row of each.

    The columns are those of all matrices side by side. What a kernel reads of it has the columns of
    its own matrix.

    Attributes
    ----------
    columns_of : dict of slice
        The columns of each kernel, by its name.
    """

    columns_of: Mapping[str, slice]

    @classmethod
    def of(cls, blocks: Mapping[str, AnyArray]) -> NewRows:
        """Return the samples of blocks of shape (n_samples, rows of the matrix), one for every
        kernel."""
        rows: NewRows = np.hstack(list(blocks.values())).view(cls)
        ends = np.cumsum([0, *(block.shape[1] for block in blocks.values())]).tolist()
        rows.columns_of = {
            name: slice(*two) for name, two in zip(blocks, pairwise(ends), strict=True)
        }
        return rows

    def __array_finalize__(self, source: Any) -> None:
        self.columns_of = getattr(source, "columns_of", {})

    def of_kernel(self, name: str) -> NewRows:
        """Return the similarities to the rows of one kernel's matrix."""
        return self[:, self.columns_of[name]].view(NewRows)


def read_new_rows(X: Any, n_rows: Mapping[str, int]) -> NewRows | None:
    """Return new samples that are given by blocks of similarities; None if X holds something else,
    as row numbers.

    Parameters
    ----------
    X : mapping, list of arrays, or array
        Blocks of shape (n_samples, rows of the matrix), by the names of the kernels or in their
        order; of one kernel the block itself. A row of NaN is a view that the sample lacks.
    n_rows : dict of int
        How many rows the matrix of each kernel has, by its name.
    """
    if not n_rows:
        return None
    if isinstance(X, Mapping) and not sparse.issparse(X):
        blocks = dict(X)
    elif (
        isinstance(X, list | tuple)
        and len(X) > 0
        and all(len(getattr(one, "shape", ())) == 2 for one in X)
    ):
        if len(X) != len(n_rows):
            raise ValueError(
                f"X holds {len(X)} blocks for the {len(n_rows)} kernels {', '.join(n_rows)}: give"
                " one for each, in this order or by name."
            )
        blocks = dict(zip(n_rows, X, strict=True))
    elif len(n_rows) == 1 and len(getattr(X, "shape", ())) == 2 and X.shape[1] > 1:
        blocks = dict.fromkeys(n_rows, X)
    else:
        return None
    if blocks.keys() != n_rows.keys():
        raise ValueError(
            f"X holds blocks for {', '.join(map(str, blocks)) or 'no kernel'}; the kernels are"
            f" {', '.join(n_rows)}: give a block of similarities for each, with rows of NaN for"
            " samples that lack this view."
        )
    checked = {name: _read_block(name, blocks[name], n) for name, n in n_rows.items()}
    lengths = {name: len(block) for name, block in checked.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            f"X: the blocks have {lengths} rows; give one row for every new sample in each."
        )
    return NewRows.of(checked)


def _read_block(name: str, given: Any, n_rows: int) -> Array:
    """Return a block of similarities as floats; its rows are finite, or NaN where samples lack the
    view."""
    shape = np.shape(given)
    if len(shape) != 2 or shape[0] == 0 or shape[1] != n_rows:
        raise ValueError(
            f"X: the block of kernel {name!r} has shape {shape}; give the similarities of the new"
            f" samples to the {n_rows} rows of K, in their order, of shape (n_new, {n_rows})."
        )
    try:
        block: Array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"X: the block of kernel {name!r} cannot be read as numbers: {error}."
        ) from error
    is_finite = np.isfinite(block)
    partly = np.flatnonzero(~is_finite.all(axis=1) & ~np.isnan(block).all(axis=1))
    if len(partly):
        i, j = partly[0], np.flatnonzero(~is_finite[partly[0]])[0]
        raise ValueError(
            f"X: entry ({i}, {j}) of the block of kernel {name!r} is {block[i, j]}: similarities"
            " must be finite, but for rows of NaN, of samples that lack the view."
        )
    return block


def row_numbers(X: MatrixLike, n_rows: int, matrix: str) -> Indices:
    """Return X, a list or one column of whole numbers between 0 and n_rows - 1, as a vector of
    indices."""
    rows = np.asarray(X)
    if rows.ndim == 2 and rows.shape[1] == 1:
        rows = rows[:, 0]
    if rows.ndim != 1 or rows.size == 0:
        raise ValueError(
            f"X has shape {np.shape(X)}: X must hold row numbers of {matrix}, in a list or in one"
            f" column; np.arange({n_rows}).reshape(-1, 1) stands for all samples."
        )
    given, wanted = (
        rows,
        f"X must hold row numbers of {matrix}, whole numbers from 0 to {n_rows - 1}.",
    )
    if rows.dtype.kind == "O" and all(isinstance(row, Real) for row in rows):
        rows = rows.astype(np.float64)
    if rows.dtype.kind not in "iuf":
        raise ValueError(f"X holds entries such as {given[0]!r}: {wanted}")
    wrong = ~((rows >= 0) & (rows < n_rows))
    if rows.dtype.kind == "f":
        wrong |= rows != np.floor(rows)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(f"X[{first}] is {given[first]}: {wanted}")
    return rows.astype(np.intp, copy=False)


def square_matrix(given: object, name: str, owner: str) -> tuple[AnyArray, bool]:
    """Return the given matrix as floats, not copied when it holds floats, after checking its shape
    and its numbers.

    And whether the numbers of every two samples alone are those of a positive semi-definite matrix,
    up to rounding.
    """
    try:
        A = np.asarray(given)
        if A.dtype.kind == "c":
            raise TypeError("complex numbers")
        if A.dtype not in ROUNDING:
            A = A.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a matrix of real numbers, but it cannot be read as one: {error}."
        ) from error
    if A.ndim != 2 or A.shape[0] != A.shape[1] or A.shape[0] == 0:
        raise ValueError(
            f"{name} has shape {A.shape}: {owner} needs a square matrix with a row and a column for"
            " every sample, training and test alike; X then holds row numbers."
        )
    with np.errstate(invalid="ignore"):  # infinity less infinity
        largest, off, excess = _scan(A)
    if not np.isfinite(largest + off):
        i, j = np.argwhere(~np.isfinite(A))[0]
        raise ValueError(
            f"{name}[{i}, {j}] is {A[i, j]}: {name} must be finite; fill missing entries, or leave"
            " out the samples that have them."
        )
    allowed = ROUNDING[A.dtype] * largest
    # No second matrix is held.
    for rows in row_strips(len(A), 512) if off > allowed else ():
        apart = np.abs(A[rows] - A[:, rows].T)
        if apart.max() > allowed:
            i, j = np.unravel_index(np.argmax(apart), apart.shape)
            i += rows.start
            raise ValueError(
                f"{name}[{i}, {j}] is {A[i, j]:.6g} but {name}[{j}, {i}] is {A[j, i]:.6g}: {name}"
                f" must be symmetric; ({name} + {name}.T) / 2 is."
            )
    return A, excess <= 0


def _scan(A: AnyArray) -> tuple[float, float, float]:
    """Return the largest |A_ij|, |A_ij − A_ji| and |A_ij| − √(A_ii A_jj), all from squares while
    they are in the cache.

    What an eigenvalue may be off by is on the diagonal for the last, which is infinite if that
    leaves it negative.
    """
    diagonal = A.diagonal() + A.dtype.type(_allowed(A))
    norms = np.sqrt(np.maximum(diagonal, 0))
    strips = list(row_strips(len(A), 256))
    found = []

    def scan(square: tuple[slice, slice]) -> None:
        rows, columns = square
        lower, left, above = A[rows, columns], norms[rows], norms[columns]
        apart = lower - A[columns, rows].T
        largest = _largest(lower)
        excess = largest - left.min() * above.min()
        if excess > 0:  # of an even diagonal it is not, and saves looking closer
            excess = (np.abs(lower) - np.multiply.outer(left, above)).max()
        found.append((largest, _largest(apart), excess))

    run_threads(scan, [(a, b) for i, a in enumerate(strips) for b in strips[: i + 1]], A.nbytes)
    largest, off, excess = np.max(found, axis=0)
    return float(largest), float(off), float(excess) if diagonal.min() >= 0 else np.inf


def _largest(A: AnyArray) -> Any:
    """Return the largest |A_ij|."""
    return np.maximum(A.max(), -A.min())


class Precomputed(MatrixRows):
    """k(i, j) = K[i, j]: the samples are row numbers of a matrix computed elsewhere.

    X is a column of row numbers, so every splitter and search of scikit-learn works as it does on
    features. The matrix is checked once, at the first use, and never copied: clones share it. To
    search over matrices, give the search a list of `Precomputed` kernels rather than of arrays,
    which scikit-learn would copy.

    Where all kernels of a fitted model are given matrices, its methods also take new samples by
    their similarities to the rows of these matrices: in place of X a list of blocks of shape
    (n_new, n), one for each kernel in their order, a dict of blocks by the kernels' names, or the
    block itself where there is one kernel. A sample that lacks a view has a row of NaN there.

    Up to 500 rows the matrix is proved to be positive semi-definite. A larger one is checked
    between every two samples and among some of them together, and after every fit among its support
    samples: a negative eigenvalue that only other samples show is not found.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Similarities between all training samples, and others if these are to have row numbers, too;
        symmetric and positive semi-definite up to rounding. An array, a memory map or a data frame.
        32-bit matrices stay 32-bit. A sample whose row and column are NaN lacks this view:
        estimators then use their other kernels.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.kernels import Precomputed
    >>> K = [[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]]
    >>> # Samples are row numbers.
    >>> model = MKLClassifier([Precomputed(K)]).fit([0, 2], ["a", "b"])
    >>> model.predict([1])
    array(['a'], dtype='<U1')
    >>> # New samples have a row of similarities each.
    >>> import numpy as np
    >>> model.predict(np.array([[0.5, 0.0, 0.9]]))
    array(['b'], dtype='<U1')
    """

    matrix_parameter: ClassVar[str] = "K"
    costs_by_entries: ClassVar[bool] = True

    def __init__(self, K: ArrayOrTensor) -> None:
        self.K = K

    def _prepare(self, given: object) -> AnyArray:
        if sparse.issparse(given):
            raise ValueError(
                "K is sparse: Precomputed needs a dense matrix; K.toarray() makes one."
            )
        gaps = _gaps(given)
        if gaps is not None:
            self._share().gaps = gaps
            given = np.array(given)
            given[gaps] = given[:, gaps] = 0.0
        K, likely = square_matrix(given, "K", "Precomputed")
        # A factorisation proves that no eigenvalue is negative beyond rounding; of many samples it
        # takes longer than learning from them. Large matrices are checked among some samples, and
        # after every fit among its support.
        if len(K) <= PROVED or not likely:
            _prove_positive(K)
        else:
            _probe_positive(K, np.random.RandomState(0).choice(len(K), _ELIMINATED, replace=False))
        return K

    @property
    def has_gaps(self) -> bool:
        """Whether the matrix has only NaN for some samples."""
        self._prepared()
        return self._share().gaps is not None

    def lacks(self, X: MatrixLike) -> Mask:
        if isinstance(X, NewRows):
            return np.asarray(np.isnan(np.asarray(X)).any(axis=1))
        unknown, n = super().lacks(X), self._n_rows()
        gaps = self._share().gaps
        if gaps is not None and not unknown.all():
            unknown[~unknown] = gaps[row_numbers(np.asarray(X)[~unknown], n, "K")]
        return unknown

    def validate(self, X: MatrixLike) -> Any:
        if isinstance(X, NewRows):
            if np.isnan(np.asarray(X)).any():
                i = int(np.argmax(self.lacks(X)))
                raise ValueError(
                    f"X: row {i} of the block is NaN: similarities must be finite where this is the"
                    " only view, or where missing=None; leave the sample out."
                )
            return X
        rows, gaps = super().validate(X), self._share().gaps
        if gaps is not None and gaps[rows].any():
            i = int(np.argmax(gaps[rows]))
            raise ValueError(
                f"X[{i}] is {rows[i]}, and row {rows[i]} of K is NaN: K must be finite where it is"
                " the only view; fill it, leave the sample out, or give further kernels."
            )
        return rows

    def check_definite(self, rows: Indices, coefficients: AnyArray) -> None:
        """Raise if the matrix is not positive semi-definite where a fit made use of it.

        Parameters
        ----------
        rows : ndarray of shape (n_support,)
            Row numbers of the support samples.
        coefficients : ndarray of shape (n_outputs, n_support)
            Their coefficients.
        """
        K = self._prepared()
        if len(K) > PROVED and len(rows):
            order = np.argsort(-np.abs(coefficients).max(axis=0), kind="stable")
            _probe_positive(K, rows[order], coefficients[:, order])

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        K: Block = self._prepared()
        if isinstance(X, NewRows) and isinstance(Y, NewRows):
            raise ValueError(
                "X holds new rows on both sides: a block has their similarities to the rows of K,"
                " not to each other; give the matrix between all samples to Precomputed, and row"
                " numbers."
            )
        if isinstance(X, NewRows):
            return np.asarray(X)[:, Y]
        if isinstance(Y, NewRows):
            return np.asarray(Y)[:, X].T
        rows, columns = as_slice(X), as_slice(Y)
        if isinstance(rows, slice) and isinstance(columns, slice):
            return K[
                rows, columns
            ].copy()  # several times faster than picking the entries one by one
        return np.asarray(K[np.ix_(X, Y)])

    def _diagonal(self, X: MatrixLike) -> Array:
        K = self._prepared()
        if isinstance(X, NewRows):
            gaps = self._share().gaps
            diagonal = np.asarray(
                K.diagonal() if gaps is None else K.diagonal()[~gaps], dtype=np.float64
            )
            if np.ptp(diagonal) > ROUNDING[K.dtype] * np.abs(diagonal).max():
                raise ValueError(
                    "X: k(x, x) of new rows is asked for, by normalize='diagonal' or for a"
                    " variance, which a block of similarities does not hold; give the matrix"
                    " between all samples to Precomputed, and row numbers."
                )
            return np.full(len(X), diagonal[0])
        return np.asarray(K[X, X], dtype=np.float64)


def _gaps(given: object) -> Mask | None:
    """Return which samples have only NaN in a matrix, None if there are none."""
    try:
        K = np.asarray(given)
    except ValueError:  # no matrix, which `fit` refuses
        return None
    if K.dtype.kind != "f" or K.ndim != 2 or K.shape[0] != K.shape[1]:
        return None
    gaps = np.isnan(K.diagonal())
    # Other entries that are not finite are refused by the check of the matrix.
    some = bool(gaps.any()) and bool(np.isnan(K[gaps]).all()) and bool(np.isnan(K[:, gaps]).all())
    return gaps if some and not gaps.all() else None


def join_samples(kernel: Precomputed, block: Array) -> None:
    """Give a kernel more samples, in place, of which only the similarities to those it has are
    known.

    What the new samples have in common with each other is taken for zero. A fitted model never
    reads it, but the matrix is no longer positive semi-definite, and is not checked again.

    Parameters
    ----------
    kernel : Precomputed
        A kernel of n samples.
    block : ndarray of shape (m, n)
        Similarities of the new samples, whose row numbers are n, …, n + m - 1, to these.
    """
    old = kernel._prepared()
    n, m = len(old), len(block)
    joined = np.zeros((n + m, n + m), dtype=np.result_type(old, block))
    joined[:n, :n], joined[n:, :n], joined[:n, n:] = old, block, block.T
    kernel.set_params(K=joined)
    kernel._share().result = joined


def _probe_positive(K: AnyArray, rows: Indices, coefficients: AnyArray | None = None) -> None:
    """Refuse a matrix that is not positive semi-definite among some samples, or between them and
    another one.

    The first of them are eliminated; what that leaves of the diagonal must not be negative, nor the
    quadratic form of coefficients, where some are given. If either is negative, `_prove_positive`
    decides.
    """
    allowed = _allowed(K)
    first = rows[:_ELIMINATED]
    between = _without_dust(K[first], allowed)
    block = between[:, first]
    block[np.diag_indices_from(block)] += K.dtype.type(allowed)
    with one_blas_thread():
        factor = NUMPY.cholesky(block)
        negative = factor is None
        if factor is not None:
            eliminated = NUMPY.invert_lower(factor) @ between
            negative = bool(
                np.any(K.diagonal() + allowed < np.einsum("ij,ij->j", eliminated, eliminated))
            )
    if not negative and coefficients is not None:
        some, c = rows[:500], coefficients[:, :500]
        negative = bool(
            np.any(
                np.sum(c * (c @ K[np.ix_(some, some)]), axis=1) < -allowed * np.sum(c**2, axis=1)
            )
        )
    if negative:
        _prove_positive(K)


def _prove_positive(K: AnyArray) -> None:
    """Refuse a matrix with an eigenvalue that is negative beyond rounding."""
    smallest = negative_eigenvalue(K)
    if smallest is not None:
        raise ValueError(
            f"K has the eigenvalue {smallest:.3g}: a kernel matrix must be positive semi-definite."
            f" Add {-smallest:.3g} to its diagonal, set its negative eigenvalues to zero, or take K"
            " @ K.T, the inner products of its rows."
        )


def check_gram_matrix(K: AnyArray, diagonal: Array, part: AnyArray, other_way: AnyArray) -> None:
    """Raise if the matrix that a kernel of the user's makes of some samples is none of a kernel.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        The kernel between the samples.
    diagonal : ndarray of shape (n,)
        What the kernel itself returns as k(x, x).
    part, other_way : ndarray of shape (m, n), (n, m)
        The kernel between the first of them and all, and between all and the first, each computed
        as its own block.
    """
    remedy = (
        "correct the formula, or give Precomputed a matrix that is; without it, certificates prove"
        " nothing"
    )
    allowed = ROUNDING[np.dtype(np.float32)] * max(
        float(np.abs(K).max(initial=0.0)), float(np.abs(diagonal).max())
    )
    i, j = _largest_entry(np.abs(part - other_way.T))
    if abs(part[i, j] - other_way[j, i]) > allowed:
        raise ValueError(
            f"k(x, z) is {part[i, j]:.6g} and k(z, x) is {other_way[j, i]:.6g} for samples {i} and"
            f" {j}: a kernel must be symmetric; {remedy}."
        )
    i, j = _largest_entry(np.abs(part - K[: len(part)]))
    if abs(part[i, j] - K[i, j]) > allowed:
        raise ValueError(
            f"k(x, z) is {K[i, j]:.6g} in the block of all samples and {part[i, j]:.6g} in a block"
            f" of {len(part)} of them: what _block returns for two samples must not depend on the"
            " other samples; learn constants of the training set in fit."
        )
    i = int(np.argmax(np.abs(diagonal - K.diagonal())))
    if abs(diagonal[i] - K[i, i]) > allowed:
        raise ValueError(
            f"_diagonal returns {diagonal[i]:.6g} and _block {K[i, i]:.6g} for sample {i} and"
            " itself: make them agree; neither may depend on the other samples of a block."
        )
    smallest = negative_eigenvalue(K)
    if smallest is not None:
        raise ValueError(
            f"the matrix of {len(K)} training samples has the eigenvalue {smallest:.3g}, with"
            f" {K.diagonal().mean():.3g} on its diagonal on average: a kernel must be positive"
            f" semi-definite; {remedy}."
        )


def _largest_entry(A: AnyArray) -> tuple[int, int]:
    """Return row and column of the largest entry of a matrix."""
    i, j = np.unravel_index(np.argmax(A), A.shape)
    return int(i), int(j)


def negative_eigenvalue(K: AnyArray) -> float | None:
    """Return the smallest eigenvalue of a matrix, None if it is not negative beyond rounding."""
    allowed = _allowed(K)
    shifted = _without_dust(np.array(K, order="C", subok=False), allowed)
    shifted[np.diag_indices_from(shifted)] += K.dtype.type(allowed)
    with threads_for(len(K)):
        # Much cheaper than eigenvalues, and succeeds for every matrix that passes but the
        # borderline ones.
        if NUMPY.cholesky(shifted, overwrite=True) is not None:
            return None
        smallest = float(linalg.eigvalsh(K, subset_by_index=(0, 0), check_finite=False)[0])
    return smallest if smallest < -allowed else None


def _allowed(K: AnyArray) -> float:
    """Return by how much an eigenvalue may be negative.

    Entries off by a relative r move the eigenvalues by at most n·r times the largest entry, which
    r·trace stands for.
    """
    return ROUNDING[K.dtype] * float(np.abs(K.diagonal()).sum(dtype=np.float64))


def _without_dust(block: AnyArray, allowed: float) -> AnyArray:
    """Set entries to zero that together move no eigenvalue by a share of what is allowed: their
    products are slow."""
    block[np.abs(block) < np.finfo(block.dtype).eps * allowed / block.shape[1]] = 0.0
    return block


class Diffusion(FeatureKernel, MatrixRows):
    """k(i, j) = [exp(β H)]_ij with H = −(graph Laplacian) = A − diag(A·1): heat that has flowed
    from node i to node j.

    X is a column of node numbers. The eigenvectors of the Laplacian are computed once, at the first
    use, and shared by clones, so a family of β costs one decomposition. A loop on a node changes
    nothing, as it cancels in the Laplacian.

    Parameters
    ----------
    adjacency : array-like or sparse matrix of shape (n, n)
        Symmetric, non-negative weights of the links.
    beta : float, default=1.0
        How long the heat flows; near 0 a node resembles only itself, and far from 0 its whole
        component.

    References
    ----------
    Kondor and Lafferty (2002), "Diffusion kernels on graphs and other discrete structures".

    Examples
    --------
    >>> from kernelmosaic.kernels import Diffusion
    >>> chain = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    >>> K = Diffusion(chain)([0, 1, 2])
    >>> bool(K[0, 1] > K[0, 2])
    True
    """

    matrix_parameter: ClassVar[str] = "adjacency"

    def __init__(self, adjacency: Any, beta: float = 1.0) -> None:
        self.adjacency = adjacency
        self.beta = beta

    def _prepare(self, given: Any) -> tuple[Array, Array]:
        A = square_matrix(
            given.toarray() if sparse.issparse(given) else given, "adjacency", "Diffusion"
        )[0]
        if A.min() < 0:
            i, j = np.unravel_index(np.argmin(A), A.shape)
            raise ValueError(
                f"adjacency[{i}, {j}] is {A[i, j]:.6g}: the weights of links must not be negative."
            )
        L = -A.astype(np.float64)
        L[np.diag_indices_from(L)] -= L.sum(axis=1)
        values, vectors = linalg.eigh(L, overwrite_a=True, check_finite=False, driver="evd")
        # Zero eigenvalues, one per component, come out as dust of either sign.
        return np.maximum(values, 0), vectors

    def _features(self, X: MatrixLike) -> Array:
        values, vectors = self._prepared()
        return np.asarray(vectors[X] * np.exp(-0.5 * self.beta * values))

    def _check_parameters(self) -> None:
        if not is_positive(self.beta):
            raise ValueError(
                f"beta={self.beta!r}: the diffusion time must be a positive finite number."
            )
