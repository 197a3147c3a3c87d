"""Kernels whose samples are row numbers of a given matrix.

The matrix is a Gram matrix (`Precomputed`) or the adjacency matrix of a graph (`Diffusion`).
"""

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

#: Errors up to this, relative to the largest entry, are taken for rounding. Chosen by hand: half
#: of the digits of a double, and most of the seven of a single, may be lost in making a matrix.
ROUNDING = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 1e-6}

#: Samples up to which a matrix is always factorised to prove that it is positive semi-definite.
#: Of many samples the factorisation takes longer than learning from them. Chosen by hand.
PROVED = 500
#: Samples that a check of a larger matrix eliminates from it. Chosen by hand: the cost is that
#: many products with the rows of the matrix.
_ELIMINATED_SAMPLES = 128
#: Samples among which a check of a larger matrix computes the quadratic form of coefficients.
#: Chosen by hand.
_QUADRATIC_FORM_SAMPLES = 500
#: Rows and columns of the squares in which a matrix is searched for its largest entries. Chosen by
#: hand: such a square of doubles takes half a megabyte, and stays in a processor's cache.
_SQUARE_ROWS = 256
#: Rows of the strips in which an entry without a symmetric partner is located. Chosen by hand.
_STRIP_ROWS = 512


@dataclass
class _Prepared:
    """A given matrix and what was computed from it; a kernel and its clones hold the same object.

    Attributes
    ----------
    given : array-like or sparse matrix
        The matrix as the user gave it.
    result : object
        What `MatrixRows._prepare` returned for it; None before the first use.
    gaps : ndarray of bool or None
        Which samples have only NaN in a Gram matrix; None if there are none.
    """

    given: Any
    result: Any = None
    gaps: Mask | None = None


class MatrixRows(Kernel):
    """A kernel between the rows of a matrix given at construction: X holds row numbers.

    The matrix is checked and prepared once, at the first use. Clones share the result, and so do
    the kernels of one set that were given the same object.
    """

    input_kind: ClassVar[str] = "rows"
    #: Name of the parameter that holds the matrix.
    matrix_parameter: ClassVar[str]

    @abstractmethod
    def _prepare(self, given: object) -> Any:
        """Check the given matrix and return the object that `_block` reads."""

    def _n_rows(self) -> int:
        """Return the number of rows of the matrix, after checking it."""
        self._prepared()
        return int(np.shape(self._shared_state().given)[0])

    def validate(self, X: MatrixLike) -> Indices:
        return row_numbers(X, self._n_rows(), self.matrix_parameter)

    def _prepared(self) -> Any:
        """Return what `_prepare` makes of the matrix, computed at the first call and then kept."""
        state = self._shared_state()
        if state.result is None:
            # Small matrices are prepared on one thread: beside other work, threads would wait for
            # each other for longer than they compute.
            with threads_for(length_of(state.given)):
                state.result = self._prepare(state.given)
        return state.result

    def _shared_state(self) -> _Prepared:
        """Return the object that clones share, made anew if the parameter holds another matrix."""
        matrix = getattr(self, self.matrix_parameter)
        state: _Prepared | None = self.__dict__.get("_shared")
        if state is None or state.given is not matrix:
            # `set_params` may have replaced the matrix: results of the former one do not hold.
            state = self._shared = _Prepared(matrix)
        return state

    def share(self, others: Iterable[Kernel]) -> None:
        """Replace the shared object by that of another kernel of the same class and matrix, if any.

        A matrix that several kernels of a set were given is then prepared once.
        """
        state = self._shared_state()
        for other in others:
            is_same_class = isinstance(other, MatrixRows) and type(other) is type(self)
            if is_same_class and other._shared_state().given is state.given:
                self._shared = other._shared_state()

    def __sklearn_clone__(self) -> Self:
        # scikit-learn would copy the matrix for every fold and candidate of a search.
        copy = type(self)(**self.get_params(deep=False))
        copy._shared = self._shared_state()
        return copy

    def __repr__(self) -> str:
        """Return the constructor's call, with the shape of the matrix in place of its entries."""
        parameters = self.get_params(deep=False)
        matrix = parameters.pop(self.matrix_parameter)
        try:
            size = " x ".join(map(str, np.shape(matrix)))
        except ValueError:
            # The rows have different lengths, which `fit` refuses.
            size = type(matrix).__name__
        arguments = [f"<{size}>", *(f"{key}={value!r}" for key, value in parameters.items())]
        return f"{type(self).__name__}({', '.join(arguments)})"


def length_of(matrix: object) -> int:
    """Return the number of rows of a matrix, 0 for an object without a length.

    Such an object is refused by the check of the matrix.
    """
    shape = getattr(matrix, "shape", None)
    if not shape:
        return len(matrix) if isinstance(matrix, Sized) else 0
    return int(shape[0])


class NewRows(np.ndarray):
    """New samples, described by their similarities to every row of the given matrices.

    One row per sample; the columns are the rows of all matrices, one matrix after the other. A
    kernel reads the columns of its own matrix.

    Attributes
    ----------
    columns_of : dict of slice
        The columns of each kernel, by its name.
    """

    columns_of: Mapping[str, slice]

    @classmethod
    def of(cls, blocks: Mapping[str, AnyArray]) -> NewRows:
        """Return the samples of blocks of shape (n_samples, rows of the matrix), one per kernel."""
        rows: NewRows = np.hstack(list(blocks.values())).view(cls)
        bounds = np.cumsum([0, *(block.shape[1] for block in blocks.values())]).tolist()
        rows.columns_of = {
            name: slice(start, stop)
            for name, (start, stop) in zip(blocks, pairwise(bounds), strict=True)
        }
        return rows

    def __array_finalize__(self, source: Any) -> None:
        self.columns_of = getattr(source, "columns_of", {})

    def of_kernel(self, name: str) -> NewRows:
        """Return the similarities to the rows of one kernel's matrix."""
        return self[:, self.columns_of[name]].view(NewRows)


def read_new_rows(X: Any, n_rows: Mapping[str, int]) -> NewRows | None:
    """Return new samples that are given by blocks of similarities.

    None if X holds no blocks but, for example, row numbers.

    Parameters
    ----------
    X : mapping, list of arrays, or array
        Blocks of shape (n_samples, rows of the matrix), by the names of the kernels or in their
        order; for one kernel the block itself. A row of NaN is a view that the sample lacks.
    n_rows : dict of int
        The number of rows of each kernel's matrix, by the name of the kernel.
    """
    if not n_rows:
        return None
    blocks = _blocks_by_kernel(X, n_rows)
    if blocks is None:
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


def _blocks_by_kernel(X: Any, n_rows: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the blocks of similarities in X by the names of kernels, None if X holds none.

    A mapping and a list of two-dimensional arrays hold blocks. A single array is a block if there
    is one kernel and the array has several columns: one column would be row numbers.
    """
    if isinstance(X, Mapping) and not sparse.issparse(X):
        return dict(X)
    if isinstance(X, list | tuple):
        is_list_of_blocks = len(X) > 0 and all(len(getattr(b, "shape", ())) == 2 for b in X)
        if is_list_of_blocks and len(X) != len(n_rows):
            raise ValueError(
                f"X holds {len(X)} blocks for the {len(n_rows)} kernels {', '.join(n_rows)}: give"
                " one for each, in this order or by name."
            )
        if is_list_of_blocks:
            return dict(zip(n_rows, X, strict=True))
    if len(n_rows) == 1 and len(getattr(X, "shape", ())) == 2 and X.shape[1] > 1:
        return dict.fromkeys(n_rows, X)
    return None


def _read_block(name: str, values: Any, n_rows: int) -> Array:
    """Return one kernel's block of similarities as an array of shape (n_new, n_rows) of doubles.

    Raises a ValueError unless every row is finite, or all NaN because the sample lacks the view.
    """
    shape = np.shape(values)
    if len(shape) != 2 or shape[0] == 0 or shape[1] != n_rows:
        raise ValueError(
            f"X: the block of kernel {name!r} has shape {shape}; give the similarities of the new"
            f" samples to the {n_rows} rows of K, in their order, of shape (n_new, {n_rows})."
        )
    try:
        block: Array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"X: the block of kernel {name!r} cannot be read as numbers: {error}."
        ) from error
    is_finite = np.isfinite(block)
    wrong_rows = np.flatnonzero(~is_finite.all(axis=1) & ~np.isnan(block).all(axis=1))
    if len(wrong_rows):
        i = wrong_rows[0]
        j = np.flatnonzero(~is_finite[i])[0]
        raise ValueError(
            f"X: entry ({i}, {j}) of the block of kernel {name!r} is {block[i, j]}: similarities"
            " must be finite, but for rows of NaN, of samples that lack the view."
        )
    return block


def row_numbers(X: MatrixLike, n_rows: int, matrix: str) -> Indices:
    """Return X, a list or one column of row numbers, as a vector of indices.

    Raises a ValueError unless they are whole numbers from 0 to n_rows - 1.

    Parameters
    ----------
    X : array-like of shape (n_samples,) or (n_samples, 1)
        Row numbers, of an integer or a floating-point type.
    n_rows : int
        The number of rows of the matrix.
    matrix : str
        The name of the parameter that holds the matrix, for messages.
    """
    rows = np.asarray(X)
    if rows.ndim == 2 and rows.shape[1] == 1:
        rows = rows[:, 0]
    if rows.ndim != 1 or rows.size == 0:
        raise ValueError(
            f"X has shape {np.shape(X)}: X must hold row numbers of {matrix}, in a list or in one"
            f" column; np.arange({n_rows}).reshape(-1, 1) stands for all samples."
        )
    entries = rows
    remedy = f"X must hold row numbers of {matrix}, whole numbers from 0 to {n_rows - 1}."
    if rows.dtype.kind == "O" and all(isinstance(row, Real) for row in rows):
        rows = rows.astype(np.float64)
    if rows.dtype.kind not in "iuf":
        raise ValueError(f"X holds entries such as {entries[0]!r}: {remedy}")
    is_wrong = ~((rows >= 0) & (rows < n_rows))
    if rows.dtype.kind == "f":
        is_wrong |= rows != np.floor(rows)
    if is_wrong.any():
        i = int(np.argmax(is_wrong))
        raise ValueError(f"X[{i}] is {entries[i]}: {remedy}")
    return rows.astype(np.intp, copy=False)


def square_matrix(matrix: object, name: str, owner: str) -> tuple[AnyArray, bool]:
    """Return a matrix as a symmetric array of floats, and whether its 2 x 2 minors allow a kernel.

    The array is not copied if it holds floats of single or double precision. The second value is
    whether |A_ij| ≤ √(A_ii A_jj) holds for every two samples up to rounding, as it does for every
    positive semi-definite matrix. Raises a ValueError unless the matrix is square, finite and
    symmetric up to rounding.

    Parameters
    ----------
    matrix : array-like of shape (n, n)
        The matrix.
    name, owner : str
        The parameter and the class that need it, for messages.
    """
    try:
        A = np.asarray(matrix)
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
    with np.errstate(invalid="ignore"):
        # The difference of two infinite entries is NaN, and is refused below.
        largest, largest_difference, largest_excess = _scan(A)
    if not np.isfinite(largest + largest_difference):
        i, j = np.argwhere(~np.isfinite(A))[0]
        raise ValueError(
            f"{name}[{i}, {j}] is {A[i, j]}: {name} must be finite; fill missing entries, or leave"
            " out the samples that have them."
        )
    allowed = ROUNDING[A.dtype] * largest
    if largest_difference > allowed:
        _refuse_asymmetric(A, allowed, name)
    return A, largest_excess <= 0


def _refuse_asymmetric(A: AnyArray, allowed: float, name: str) -> None:
    """Raise a ValueError that names an entry A_ij for which |A_ij − A_ji| exceeds `allowed`.

    Strips of rows are compared, so that no second matrix is held.
    """
    for rows in row_strips(len(A), _STRIP_ROWS):
        differences = np.abs(A[rows] - A[:, rows].T)
        if differences.max() > allowed:
            i, j = np.unravel_index(np.argmax(differences), differences.shape)
            i += rows.start
            raise ValueError(
                f"{name}[{i}, {j}] is {A[i, j]:.6g} but {name}[{j}, {i}] is {A[j, i]:.6g}: {name}"
                f" must be symmetric; ({name} + {name}.T) / 2 is."
            )


def _scan(A: AnyArray) -> tuple[float, float, float]:
    """Return the largest |A_ij|, the largest |A_ij − A_ji| and the largest |A_ij| − √(A_ii A_jj).

    For the third, the rounding that an eigenvalue may have is added to the diagonal; the result is
    infinite if an entry of the diagonal is negative even so. Where the third is not positive, it is
    an upper bound in place of the largest value. All are computed from squares of the matrix while
    these are in the cache.
    """
    diagonal = A.diagonal() + A.dtype.type(_allowed_error(A))
    roots = np.sqrt(np.maximum(diagonal, 0))
    strips = list(row_strips(len(A), _SQUARE_ROWS))
    maxima = []

    def scan_square(square: tuple[slice, slice]) -> None:
        rows, columns = square
        entries = A[rows, columns]
        row_roots = roots[rows]
        column_roots = roots[columns]
        differences = entries - A[columns, rows].T
        largest = _largest(entries)
        # This bound on the excess is mostly negative where the diagonal is even.
        excess = largest - row_roots.min() * column_roots.min()
        if excess > 0:
            excess = (np.abs(entries) - np.multiply.outer(row_roots, column_roots)).max()
        maxima.append((largest, _largest(differences), excess))

    squares = [(rows, columns) for i, rows in enumerate(strips) for columns in strips[: i + 1]]
    run_threads(scan_square, squares, A.nbytes)
    largest, difference, excess = np.max(maxima, axis=0)
    if not diagonal.min() >= 0:
        excess = np.inf
    return float(largest), float(difference), float(excess)


def _largest(A: AnyArray) -> Any:
    """Return the largest |A_ij|, without an array of absolute values."""
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
        """Return the matrix as a checked array, with zeros for samples that lack the view."""
        if sparse.issparse(given):
            raise ValueError(
                "K is sparse: Precomputed needs a dense matrix; K.toarray() makes one."
            )
        is_gap = _missing_samples(given)
        if is_gap is not None:
            self._shared_state().gaps = is_gap
            given = np.array(given)
            given[is_gap] = 0.0
            given[:, is_gap] = 0.0
        K, minors_allow_kernel = square_matrix(given, "K", "Precomputed")
        # A factorisation proves that no eigenvalue is negative beyond rounding, but for many
        # samples it takes longer than learning from them. Large matrices are checked among some
        # samples, and after every fit among its support.
        if len(K) <= PROVED or not minors_allow_kernel:
            _prove_positive(K)
        else:
            random = np.random.RandomState(0)
            _probe_positive(K, random.choice(len(K), _ELIMINATED_SAMPLES, replace=False))
        return K

    @property
    def has_gaps(self) -> bool:
        """Whether the matrix has only NaN for some samples."""
        self._prepared()
        return self._shared_state().gaps is not None

    def lacks(self, X: MatrixLike) -> Mask:
        """Return which samples lack this view.

        They have NaN in place of a row number, or NaN in the row of the matrix or of the block.
        """
        if isinstance(X, NewRows):
            return np.asarray(np.isnan(np.asarray(X)).any(axis=1))
        is_lacking = super().lacks(X)
        n_rows = self._n_rows()
        is_gap = self._shared_state().gaps
        if is_gap is not None and not is_lacking.all():
            rows = row_numbers(np.asarray(X)[~is_lacking], n_rows, "K")
            is_lacking[~is_lacking] = is_gap[rows]
        return is_lacking

    def validate(self, X: MatrixLike) -> Any:
        """Return row numbers as a vector, or a block of new samples as it is; refuse NaN."""
        if isinstance(X, NewRows):
            if np.isnan(np.asarray(X)).any():
                i = int(np.argmax(self.lacks(X)))
                raise ValueError(
                    f"X: row {i} of the block is NaN: similarities must be finite where this is the"
                    " only view, or where missing=None; leave the sample out."
                )
            return X
        rows = super().validate(X)
        is_gap = self._shared_state().gaps
        if is_gap is not None and is_gap[rows].any():
            i = int(np.argmax(is_gap[rows]))
            raise ValueError(
                f"X[{i}] is {rows[i]}, and row {rows[i]} of K is NaN: K must be finite where it is"
                " the only view; fill it, leave the sample out, or give further kernels."
            )
        return rows

    def check_definite(self, rows: Indices, coefficients: AnyArray) -> None:
        """Raise a ValueError if the matrix is not positive semi-definite on the support of a fit.

        Small matrices were checked as a whole, so only large ones are checked here.

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
        rows = as_slice(X)
        columns = as_slice(Y)
        if isinstance(rows, slice) and isinstance(columns, slice):
            # Several times faster than picking the entries one by one.
            return K[rows, columns].copy()
        return np.asarray(K[np.ix_(X, Y)])

    def _diagonal(self, X: MatrixLike) -> Array:
        """Return K_ii; for new samples the constant diagonal of K, if it is constant."""
        K = self._prepared()
        if not isinstance(X, NewRows):
            return np.asarray(K[X, X], dtype=np.float64)
        diagonal = K.diagonal()
        is_gap = self._shared_state().gaps
        if is_gap is not None:
            diagonal = diagonal[~is_gap]
        diagonal = np.asarray(diagonal, dtype=np.float64)
        if np.ptp(diagonal) > ROUNDING[K.dtype] * np.abs(diagonal).max():
            raise ValueError(
                "X: k(x, x) of new rows is asked for, by normalize='diagonal' or for a"
                " variance, which a block of similarities does not hold; give the matrix"
                " between all samples to Precomputed, and row numbers."
            )
        return np.full(len(X), diagonal[0])


def _missing_samples(matrix: object) -> Mask | None:
    """Return which samples have only NaN in a matrix; None if none or all have.

    None also where the argument is no square matrix of floats, which its check refuses.
    """
    try:
        K = np.asarray(matrix)
    except ValueError:
        return None
    if K.dtype.kind != "f" or K.ndim != 2 or K.shape[0] != K.shape[1]:
        return None
    is_gap: Mask = np.isnan(K.diagonal())
    if not is_gap.any() or is_gap.all():
        return None
    # Other entries that are not finite are refused by the check of the matrix.
    if not np.isnan(K[is_gap]).all() or not np.isnan(K[:, is_gap]).all():
        return None
    return is_gap


def join_samples(kernel: Precomputed, block: Array) -> None:
    """Give a kernel more samples, in place, whose similarities to its present ones are known.

    The similarities of the new samples to each other are set to zero. A fitted model never reads
    them, but the matrix is no longer positive semi-definite, and is not checked again.

    Parameters
    ----------
    kernel : Precomputed
        A kernel of n samples.
    block : ndarray of shape (m, n)
        Similarities of the new samples, whose row numbers are n, …, n + m - 1, to these.
    """
    K = kernel._prepared()
    n = len(K)
    m = len(block)
    joined = np.zeros((n + m, n + m), dtype=np.result_type(K, block))
    joined[:n, :n] = K
    joined[n:, :n] = block
    joined[:n, n:] = block.T
    kernel.set_params(K=joined)
    kernel._shared_state().result = joined


def _probe_positive(K: AnyArray, rows: Indices, coefficients: AnyArray | None = None) -> None:
    """Raise a ValueError if some samples show that a matrix is not positive semi-definite.

    The first samples of `rows` are eliminated from all others by a partial Cholesky factorisation:
    with B = K[first, first] and C = K[first, :], no entry of diag(K − Cᵀ B⁻¹ C) may be negative,
    nor the quadratic form of the coefficients. If either is negative beyond rounding,
    `_prove_positive` decides.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        A symmetric matrix.
    rows : ndarray of int
        Samples, the most important first.
    coefficients : ndarray of shape (n_outputs, len(rows)), optional
        Coefficients of these samples.
    """
    allowed = _allowed_error(K)
    first = rows[:_ELIMINATED_SAMPLES]
    C = _without_dust(K[first], allowed)
    B = C[:, first]
    B[np.diag_indices_from(B)] += K.dtype.type(allowed)
    with one_blas_thread():
        factor = NUMPY.cholesky(B)
        is_negative = factor is None
        if factor is not None:
            Z = NUMPY.invert_lower(factor) @ C
            is_negative = bool(np.any(K.diagonal() + allowed < np.einsum("ij,ij->j", Z, Z)))
    if not is_negative and coefficients is not None:
        support = rows[:_QUADRATIC_FORM_SAMPLES]
        beta = coefficients[:, :_QUADRATIC_FORM_SAMPLES]
        quadratic_forms = np.sum(beta * (beta @ K[np.ix_(support, support)]), axis=1)
        is_negative = bool(np.any(quadratic_forms < -allowed * np.sum(beta**2, axis=1)))
    if is_negative:
        _prove_positive(K)


def _prove_positive(K: AnyArray) -> None:
    """Raise a ValueError if an eigenvalue of the matrix is negative beyond rounding."""
    smallest = negative_eigenvalue(K)
    if smallest is not None:
        raise ValueError(
            f"K has the eigenvalue {smallest:.3g}: a kernel matrix must be positive semi-definite."
            f" Add {-smallest:.3g} to its diagonal, set its negative eigenvalues to zero, or take K"
            " @ K.T, the inner products of its rows."
        )


def check_gram_matrix(
    K: AnyArray, diagonal: Array, block: AnyArray, reversed_block: AnyArray
) -> None:
    """Raise a ValueError if a kernel written by the user does not return a Gram matrix.

    It must be symmetric, positive semi-definite, and the same in every block and on the diagonal,
    all up to rounding.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        The kernel between the samples.
    diagonal : ndarray of shape (n,)
        What the kernel returns as k(x, x).
    block : ndarray of shape (m, n)
        The kernel between the first m samples and all, computed as a block of its own.
    reversed_block : ndarray of shape (n, m)
        The kernel between all samples and the first m, computed as a block of its own.
    """
    remedy = (
        "correct the formula, or give Precomputed a matrix that is; without it, certificates prove"
        " nothing"
    )
    largest = max(float(np.abs(K).max(initial=0.0)), float(np.abs(diagonal).max()))
    allowed = ROUNDING[np.dtype(np.float32)] * largest
    i, j = _largest_entry(np.abs(block - reversed_block.T))
    if abs(block[i, j] - reversed_block[j, i]) > allowed:
        raise ValueError(
            f"k(x, z) is {block[i, j]:.6g} and k(z, x) is {reversed_block[j, i]:.6g} for samples"
            f" {i} and {j}: a kernel must be symmetric; {remedy}."
        )
    i, j = _largest_entry(np.abs(block - K[: len(block)]))
    if abs(block[i, j] - K[i, j]) > allowed:
        raise ValueError(
            f"k(x, z) is {K[i, j]:.6g} in the block of all samples and {block[i, j]:.6g} in a block"
            f" of {len(block)} of them: what _block returns for two samples must not depend on the"
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
    allowed = _allowed_error(K)
    shifted = _without_dust(np.array(K, order="C", subok=False), allowed)
    shifted[np.diag_indices_from(shifted)] += K.dtype.type(allowed)
    with threads_for(len(K)):
        # A Cholesky factorisation is much cheaper than eigenvalues, and succeeds for every matrix
        # that passes except for borderline ones.
        if NUMPY.cholesky(shifted, overwrite=True) is not None:
            return None
        smallest = float(linalg.eigvalsh(K, subset_by_index=(0, 0), check_finite=False)[0])
    return smallest if smallest < -allowed else None


def _allowed_error(K: AnyArray) -> float:
    """Return the size up to which a negative eigenvalue is taken for rounding, r · Σ_i |K_ii|.

    Entries with the relative error r move the eigenvalues by at most n r times the largest entry,
    for which r times the trace is taken.
    """
    return ROUNDING[K.dtype] * float(np.abs(K.diagonal()).sum(dtype=np.float64))


def _without_dust(block: AnyArray, allowed: float) -> AnyArray:
    """Return a block whose tiny entries were set to zero in place: products of them are slow.

    Together these entries move no eigenvalue by more than a rounding error of `allowed`.
    """
    block[np.abs(block) < np.finfo(block.dtype).eps * allowed / block.shape[1]] = 0.0
    return block


class Diffusion(FeatureKernel, MatrixRows):
    """k(i, j) = [exp(β H)]_ij, the heat that flows from node i to node j of a graph.

    H = A − diag(A·1) is minus the graph Laplacian, for the adjacency matrix A. X is a column of
    node numbers. The eigenvectors of the Laplacian are computed once, at the first use, and shared
    by clones, so a family of β costs one decomposition. A loop on a node changes nothing, as it
    cancels in the Laplacian.

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
        """Return the eigenvalues of the Laplacian, none of them negative, and its eigenvectors."""
        if sparse.issparse(given):
            given = given.toarray()
        A, _ = square_matrix(given, "adjacency", "Diffusion")
        if A.min() < 0:
            i, j = np.unravel_index(np.argmin(A), A.shape)
            raise ValueError(
                f"adjacency[{i}, {j}] is {A[i, j]:.6g}: the weights of links must not be negative."
            )
        L = -A.astype(np.float64)
        L[np.diag_indices_from(L)] -= L.sum(axis=1)
        eigenvalues, eigenvectors = linalg.eigh(
            L, overwrite_a=True, check_finite=False, driver="evd"
        )
        # Every component of the graph has an eigenvalue of zero; rounding gives it either sign.
        return np.maximum(eigenvalues, 0), eigenvectors

    def _features(self, X: MatrixLike) -> Array:
        eigenvalues, eigenvectors = self._prepared()
        return np.asarray(eigenvectors[X] * np.exp(-0.5 * self.beta * eigenvalues))

    def _check_parameters(self) -> None:
        if not is_positive(self.beta):
            raise ValueError(
                f"beta={self.beta!r}: the diffusion time must be a positive finite number."
            )
