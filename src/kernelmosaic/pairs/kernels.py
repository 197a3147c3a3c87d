"""Kernels between pairs, such as a drug with a protein, made of a kernel of each member."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_array

from kernelmosaic._checks import check_choice
from kernelmosaic._typing import AnyArray, Array, Indices, KernelsLike, MatrixLike
from kernelmosaic.kernels.base import Block, Kernel, is_whole
from kernelmosaic.kernels.distances import FitSamples
from kernelmosaic.kernels.views import Entry, PerColumn, check_kernel, read_kernels

#: Numbers or names of columns.
Columns = list[Any]
#: For every mode, the sign with which the members of a pair are exchanged; 0 if they are not.
MODES = {"product": 0, "sum": 0, "cartesian": 0, "symmetric": 1, "antisymmetric": -1}

#: For every mode, its terms, each a left and a right factor: a kernel of the members, ones, or
#: whether two members are the same.
TERMS = {
    "product": [("kernel", "kernel")],
    "sum": [("kernel", "ones"), ("ones", "kernel")],
    "cartesian": [("kernel", "same"), ("same", "kernel")],
    "symmetric": [("kernel", "kernel")],
    "antisymmetric": [("kernel", "kernel")],
}


@dataclass(frozen=True)
class Members:
    """One side of some pairs: the distinct members, and which of them each pair has.

    Attributes
    ----------
    values : array of shape (m, columns)
        The data of every member that kernels of the side read.
    codes : ndarray of shape (n,)
        The number of the member of every pair.
    """

    values: AnyArray
    codes: Indices

    @classmethod
    def of(cls, V: AnyArray) -> Members:
        """Return the members with their data in the rows of V, which are numbers or objects."""
        if V.dtype.kind in "OUS":
            numbers: dict[Hashable, int] = {}
            row_numbers = [numbers.setdefault(row, len(numbers)) for row in map(tuple, V.tolist())]
            codes = np.array(row_numbers, dtype=np.intp)
            first = np.unique(codes, return_index=True)[1]
        elif V.shape[1] == 1:
            # Numbers are sorted faster than rows of one number.
            _, first, codes = np.unique(V[:, 0], return_index=True, return_inverse=True)
        else:
            _, first, codes = np.unique(V, axis=0, return_index=True, return_inverse=True)
        return cls(V[first], codes.reshape(-1))

    @classmethod
    def of_one_kind(cls, left: AnyArray, right: AnyArray) -> tuple[Members, Members]:
        """Return the members of both sides, as numbers in one list of members."""
        joint = cls.of(np.concatenate([left, right]))
        n_left = len(left)
        return cls(joint.values, joint.codes[:n_left]), cls(joint.values, joint.codes[n_left:])


class Pairwise(Kernel):
    """A kernel between pairs (a, b), whose left members a are compared by one kernel and right
    members b by another.

    Parameters of a side's kernel, such as a width, are learned from the distinct members, each
    counted once. With k for `left` and g for `right`, the modes are:

    - ``"product"``: k(a, a') g(b, b');
    - ``"sum"``: k(a, a') + g(b, b');
    - ``"cartesian"``: k(a, a') 1[b = b'] + 1[a = a'] g(b, b');
    - ``"symmetric"``, for pairs of one kind: ½ (k(a, a') k(b, b') + k(a, b') k(b, a')), whose
      functions are f(a, b) = f(b, a);
    - ``"antisymmetric"``: the same with a minus, whose functions are f(a, b) = −f(b, a).

    Parameters
    ----------
    left, right : Kernel
        The kernels of the sides; the same one for both in the last two modes.
    split : int, default=1
        How many of the columns belong to the left member; the others belong to the right one.
    mode : {"product", "sum", "cartesian", "symmetric", "antisymmetric"}, default="product"
        How the two make one kernel.

    Attributes
    ----------
    left_, right_ : Kernel
        The fitted clones.

    See Also
    --------
    pairwise : Makes all products of two lists of kernels.

    References
    ----------
    Viljanen, Airola and Pahikkala (2022), "Generalized vec trick for fast learning of pairwise
    kernel models". Kashima, Oyama, Yamanishi and Tsuda (2009), "On pairwise kernels: an efficient
    alternative and generalization analysis".

    Examples
    --------
    >>> from kernelmosaic.kernels import Linear, Pairwise
    >>> Pairwise(Linear(), Linear())([[1.0, 2.0], [3.0, 4.0]])
    array([[  4.,  24.],
           [ 24., 144.]])
    """

    learned: ClassVar[str] = "left_"
    left_: Kernel
    right_: Kernel

    def __init__(self, left: Kernel, right: Kernel, split: int = 1, mode: str = "product") -> None:
        self.left = left
        self.right = right
        self.split = split
        self.mode = mode

    reads_pairs: ClassVar[bool] = True
    # The module of this function also registers how ridge estimators solve systems of the stack.
    stack_maker: ClassVar[tuple[str, str] | None] = ("kernelmosaic.pairs.ridge", "make_pair_stack")

    @property
    def input_kind(self) -> str:  # type: ignore[override]
        """What the kernel reads: ``"numbers"`` if both sides do, else a table."""
        self._check_parameters()
        if self.left.input_kind == "numbers" and self.right.input_kind == "numbers":
            return "numbers"
        return "table"

    @property
    def keeps_scale(self) -> bool:  # type: ignore[override]
        """Whether the columns of a side must not be standardised."""
        return self.left.keeps_scale or self.right.keeps_scale

    def _learn(self, samples: FitSamples) -> Self:
        """Fit clones of both kernels to the distinct members of their sides."""
        left, right = self.members(samples.X)
        self.left_ = clone(self.left).fit(left.values)
        self.right_ = clone(self.right).fit(right.values)
        return self

    def validate(self, X: MatrixLike) -> MatrixLike:
        """Return pairs as an array, or raise naming what is wrong with them."""
        self._check_parameters()
        if self.input_kind == "numbers":
            X = super().validate(X)
        else:
            # Numbers and text in a list are not converted to one type.
            kind = None if hasattr(X, "dtype") else object
            X = check_array(X, dtype=kind, ensure_all_finite=False, input_name="X", estimator=self)
        if X.shape[1] <= self.split:
            raise ValueError(
                f"X has {X.shape[1]} columns: Pairwise(split={self.split}) reads {self.split} of"
                " the left member and at least one of the right; give the columns of both."
            )
        if self.input_kind != "numbers":
            self.left.validate(X[:, : self.split])
            self.right.validate(X[:, self.split :])
        return X

    def members(self, X: AnyArray) -> tuple[Members, Members]:
        """Return the members of both sides of validated pairs.

        For pairs of one kind these are numbers in one list of members.
        """
        left = X[:, : self.split]
        right = X[:, self.split :]
        if MODES[self.mode]:
            return Members.of_one_kind(left, right)
        return Members.of(left), Members.of(right)

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        """Return the kernel between pairs, computed from matrices of the distinct members."""
        a, b = self.members(X)
        c, d = (a, b) if Y is X else self.members(Y)
        K: Any = 0.0
        for left_factor, right_factor in TERMS[self.mode]:
            # A and B of the term A ⊗ B between the distinct members.
            A = compare(left_factor, self.left_, a.values, c.values)
            B = compare(right_factor, self.right_, b.values, d.values)
            term = A[np.ix_(a.codes, c.codes)] * B[np.ix_(b.codes, d.codes)]
            if MODES[self.mode]:
                exchanged = A[np.ix_(a.codes, d.codes)] * B[np.ix_(b.codes, c.codes)]
                term = self._both_orders(X, term, exchanged)
            K = K + term
        return np.asarray(K)

    def _both_orders(self, X: MatrixLike, term: Block, exchanged: Block) -> Block:
        """Return ½ (term ± exchanged), in which differences that are rounding alone are zero.

        The antisymmetric kernel of a kernel of rank one is zero, and would else consist of
        rounding.

        Parameters
        ----------
        X : array
            Pairs of the rows, which say by how much the entries are rounded.
        term : ndarray
            Products of the kernels between left members and between right members.
        exchanged : ndarray
            The same products with the members of each pair of the columns exchanged.
        """
        values = 0.5 * (term + MODES[self.mode] * exchanged)
        noise = 2.0 * (1.0 + self.entry_roundings(X)) * np.finfo(values.dtype).eps
        is_noise = np.abs(values) <= noise * np.abs(term)
        return np.asarray(np.where(is_noise, 0.0, values), dtype=values.dtype)

    def vanishes(self, X: MatrixLike, A: Block) -> bool:
        """Return whether the kernel made of a matrix A between members is rounding alone.

        It is if the kernel is antisymmetric and A of rank one: all products with the largest entry
        of A are then the same in both orders.
        """
        if MODES[self.mode] >= 0:
            return False
        i, j = np.unravel_index(int(np.abs(A).argmax()), A.shape)
        exchanged = np.outer(A[:, j], A[i])
        return not np.any(self._both_orders(X, A * A[i, j], exchanged))

    def _diagonal(self, X: MatrixLike) -> Array:
        """Return k(x, x) of every pair."""
        a, b = self.members(X)
        left, right = self._side_diagonals(a, b)
        if MODES[self.mode]:
            across = compare("kernel", self.left_, a.values, a.values)[a.codes, b.codes]
            return np.maximum(self._both_orders(X, left * right, across**2), 0.0)
        return left * right if self.mode == "product" else left + right

    def _side_diagonals(self, a: Members, b: Members) -> tuple[Array, Array]:
        """Return k(a, a) and g(b, b) of every pair."""
        left = self.left_._diagonal(self.left_.validate(a.values))[a.codes]
        right = self.right_._diagonal(self.right_.validate(b.values))[b.codes]
        return np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)

    def cancelled(self, X: MatrixLike) -> Array:
        """Return for every pair the product of which k(x, x) is a difference with another product.

        It is zero in modes other than ``"antisymmetric"``.
        """
        left, right = self._side_diagonals(*self.members(X))
        return left * right if MODES[self.mode] < 0 else np.zeros(len(left))

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        # On one line, since names of kernels and error messages contain it.
        arguments = [repr(self.left), repr(self.right)]
        if self.split != 1:
            arguments.append(f"split={self.split!r}")
        if self.mode != "product":
            arguments.append(f"mode={self.mode!r}")
        return f"Pairwise({', '.join(arguments)})"

    def entry_roundings(self, X: MatrixLike) -> float:
        """Return how many roundings an entry of both sides together is wrong by."""
        return self.left.entry_roundings(X[:, : self.split]) + self.right.entry_roundings(
            X[:, self.split :]
        )

    def _check_parameters(self) -> None:
        """Raise if a parameter is not one of the values that it may have."""
        check_kernel("left", self.left, "Pairwise")
        check_kernel("right", self.right, "Pairwise")
        if not is_whole(self.split):
            raise ValueError(
                f"split={self.split!r}: give the number of columns of the left member, at least 1."
            )
        if MODES[check_choice("mode", self.mode, MODES)] and not _alike(self.left, self.right):
            raise ValueError(
                f"mode={self.mode!r} is for pairs of one kind, whose members are compared by one"
                f" kernel, but left={self.left!r} and right={self.right!r} differ; give the same"
                " kernel twice."
            )


def _alike(value: Any, other: Any) -> bool:
    """Return whether two kernels are of one class and have equal parameters.

    Parameters that are kernels are compared in the same way, others by their values.
    """
    if value is other or sparse.issparse(value):
        return value is other
    if isinstance(value, BaseEstimator):
        if type(value) is not type(other):
            return False
        parameters = value.get_params(deep=False).values()
        other_parameters = other.get_params(deep=False).values()
        return all(map(_alike, parameters, other_parameters))
    return bool(np.array_equal(value, other))


def number_of(kernel: Kernel, known: list[Kernel]) -> int:
    """Return the place of an equal kernel in a list; a kernel that is new is added at the end."""
    for place, other in enumerate(known):
        if _alike(kernel, other):
            return place
    known.append(kernel)
    return len(known) - 1


def compare(factor: str, kernel: Kernel, V: AnyArray, W: AnyArray) -> Block:
    """Return a factor of a term, see `TERMS`, between members with the data V and W."""
    if factor == "kernel":
        return kernel._block(kernel.validate(V), kernel.validate(W))
    # Ones and zeros are in single precision, which keeps that of kernels they are multiplied by.
    if factor == "ones":
        return np.ones((len(V), len(W)), dtype=np.float32)
    v, w = Members.of_one_kind(V, W)
    return np.equal.outer(v.codes, w.codes).astype(np.float32)


def pairwise(
    left: KernelsLike, right: KernelsLike, *, mode: str = "product"
) -> list[tuple[str, Pairwise, Columns]]:
    """Return the kernels of pairs that two lists of kernels make.

    They are for the `kernels` parameter of an estimator.

    Parameters
    ----------
    left, right : list of (name, kernel, columns)
        Kernels of the left and of the right member, each with its columns: a name or number, or a
        list of them. Row numbers of a given matrix are a column, too (`Precomputed`).
    mode : {"product", "sum", "cartesian", "symmetric", "antisymmetric"}, default="product"
        How two kernels are combined, as in :class:`Pairwise`. The first three combine every item on
        the left with every item on the right. The last two are for pairs of one kind: item i of
        both lists is the same kernel, on the columns of the first and of the second member, and one
        kernel is made of every item.

    Returns
    -------
    list of (name, Pairwise, columns)
        The left items in order, each with all on the right.

    Examples
    --------
    >>> from kernelmosaic.kernels import Gaussian, Spectrum, pairwise
    >>> both = ["mass", "charge"]
    >>> drugs = [("narrow", Gaussian(1.0), both), ("wide", Gaussian(5.0), both)]
    >>> proteins = [("words", Spectrum(3), "sequence")]
    >>> for name, _, columns in pairwise(drugs, proteins):
    ...     print(name, columns)
    narrow × words ['mass', 'charge', 'sequence']
    wide × words ['mass', 'charge', 'sequence']
    """
    check_choice("mode", mode, MODES)
    lefts = _read_side("left", left)
    rights = _read_side("right", right)
    if not MODES[mode]:
        return [_pair(a, b, mode) for a in lefts for b in rights]
    if len(lefts) != len(rights):
        raise ValueError(
            f"mode={mode!r}: left has {len(lefts)} items and right {len(rights)}; give every"
            " kernel twice, on the columns of the first member and on those of the second."
        )
    return [_pair(a, b, mode) for a, b in zip(lefts, rights, strict=True)]


def _read_side(side: str, kernels: KernelsLike) -> list[tuple[Entry, Columns]]:
    """Return the kernels of one side, each with its columns as a list."""
    entries = []
    for entry in read_kernels(kernels):
        if isinstance(entry.kernel, PerColumn):
            raise ValueError(
                f"{side}: {entry.kernel!r} stands for several kernels; write them out, one item"
                " each."
            )
        columns = entry.columns
        if isinstance(columns, str | Integral):
            columns = [columns]
        elif isinstance(columns, np.ndarray):
            columns = columns.tolist()
        is_list = isinstance(columns, Sequence) and len(columns) > 0
        if not is_list or any(isinstance(column, bool) for column in columns):
            raise ValueError(
                f"{side}: kernel {entry.name!r} has columns={entry.columns!r}; give (name, kernel,"
                " columns) with a name or number, or a list of them: the columns of the left"
                " member differ from those of the right."
            )
        entries.append((entry, list(columns)))
    return entries


def _pair(
    left: tuple[Entry, Columns], right: tuple[Entry, Columns], mode: str
) -> tuple[str, Pairwise, Columns]:
    """Return the name, the kernel and the columns that two kernels of members make."""
    left_entry, left_columns = left
    right_entry, right_columns = right
    signs = {"product": "×", "sum": "+", "cartesian": "□"}
    if mode in signs:
        name = f"{left_entry.name} {signs[mode]} {right_entry.name}"
    else:
        name = f"{left_entry.name}, {mode}"
    kernel = Pairwise(clone(left_entry.kernel), clone(right_entry.kernel), len(left_columns), mode)
    kernel._check_parameters()
    return name, kernel, left_columns + right_columns
