"""Kernels between pairs, such as a drug with a protein: a kernel of the left member and one of the
right in one."""

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
#: Of every mode, how the members of a pair are exchanged: not at all, or with this sign.
MODES = {"product": 0, "sum": 0, "cartesian": 0, "symmetric": 1, "antisymmetric": -1}

#: And of what its terms are products, left and right: a kernel, ones, or whether two members are
#: the same.
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
        What the kernels of the side read of every member.
    codes : ndarray of shape (n,)
        The number of every pair's member.
    """

    values: AnyArray
    codes: Indices

    @classmethod
    def of(cls, V: AnyArray) -> Members:
        """Find the distinct rows of an array of numbers or objects."""
        if V.dtype.kind in "OUS":
            known: dict[Hashable, int] = {}
            codes = np.array(
                [known.setdefault(row, len(known)) for row in map(tuple, V.tolist())], dtype=np.intp
            )
            first = np.unique(codes, return_index=True)[1]
        else:
            rows, axis = (
                (V[:, 0], None) if V.shape[1] == 1 else (V, 0)
            )  # numbers sort faster than rows of them
            _, first, codes = np.unique(rows, axis=axis, return_index=True, return_inverse=True)
        return cls(V[first], codes.reshape(-1))

    @classmethod
    def of_one_kind(cls, left: AnyArray, right: AnyArray) -> tuple[Members, Members]:
        """Find the distinct rows of both sides together."""
        both = cls.of(np.concatenate([left, right]))
        return cls(both.values, both.codes[: len(left)]), cls(both.values, both.codes[len(left) :])


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
    # With the stack comes how the ridge estimators solve its linear systems.
    stack_maker: ClassVar[tuple[str, str] | None] = ("kernelmosaic.pairs.ridge", "make_pair_stack")

    @property
    def input_kind(self) -> str:  # type: ignore[override]
        self._check_parameters()
        return (
            "numbers" if {self.left.input_kind, self.right.input_kind} == {"numbers"} else "table"
        )

    @property
    def keeps_scale(self) -> bool:  # type: ignore[override]
        return self.left.keeps_scale or self.right.keeps_scale

    def _learn(self, samples: FitSamples) -> Self:
        left, right = self.members(samples.X)
        self.left_ = clone(self.left).fit(left.values)
        self.right_ = clone(self.right).fit(right.values)
        return self

    def validate(self, X: MatrixLike) -> MatrixLike:
        self._check_parameters()
        if self.input_kind == "numbers":
            X = super().validate(X)
        else:
            kind = (
                None if hasattr(X, "dtype") else object
            )  # a list of numbers and text stays as it is
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
        """Return both sides of validated pairs; those of one kind share their members."""
        sides = X[:, : self.split], X[:, self.split :]
        return (
            Members.of_one_kind(*sides)
            if MODES[self.mode]
            else (Members.of(sides[0]), Members.of(sides[1]))
        )

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        a, b = self.members(X)
        c, d = (a, b) if Y is X else self.members(Y)
        K: Any = 0.0
        for first, second in TERMS[self.mode]:
            # A and B of the term A ⊗ B between the distinct members.
            A = compare(first, self.left_, a.values, c.values)
            B = compare(second, self.right_, b.values, d.values)
            term = A[np.ix_(a.codes, c.codes)] * B[np.ix_(b.codes, d.codes)]
            if MODES[self.mode]:
                term = self._both_orders(
                    X, term, A[np.ix_(a.codes, d.codes)] * B[np.ix_(b.codes, c.codes)]
                )
            K = K + term
        return np.asarray(K)

    def _both_orders(self, X: MatrixLike, term: Block, turned: Block) -> Block:
        """Return half the sum, or difference, of products; what rounding leaves of equal ones is
        zero.

        The antisymmetric kernel of a kernel of rank one is zero, and nothing else would be left of
        it.
        """
        found = 0.5 * (term + MODES[self.mode] * turned)
        noise = 2.0 * (1.0 + self.entry_roundings(X)) * np.finfo(found.dtype).eps
        return np.asarray(
            np.where(np.abs(found) <= noise * np.abs(term), 0.0, found), dtype=found.dtype
        )

    def vanishes(self, X: MatrixLike, A: Block) -> bool:
        """Whether the kernel made of a matrix A between members is rounding alone: antisymmetric,
        and A of rank one.

        It is if all products of the largest entry are the same in both orders.
        """
        if MODES[self.mode] >= 0:
            return False
        i, j = np.unravel_index(int(np.abs(A).argmax()), A.shape)
        return not np.any(self._both_orders(X, A * A[i, j], np.outer(A[:, j], A[i])))

    def _diagonal(self, X: MatrixLike) -> Array:
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
        """Return, of every pair, the product of which k(x, x) is what a difference leaves; zero in
        other modes."""
        left, right = self._side_diagonals(*self.members(X))
        return left * right if MODES[self.mode] < 0 else np.zeros(len(left))

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        # In one line, as names and messages have it.
        changed = [f"split={self.split!r}"] if self.split != 1 else []
        changed += [f"mode={self.mode!r}"] if self.mode != "product" else []
        return f"Pairwise({', '.join([repr(self.left), repr(self.right), *changed])})"

    def entry_roundings(self, X: MatrixLike) -> float:
        return self.left.entry_roundings(X[:, : self.split]) + self.right.entry_roundings(
            X[:, self.split :]
        )

    def _check_parameters(self) -> None:
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


def _alike(one: Any, other: Any) -> bool:
    """Whether two kernels are of the same class and have equal parameters; so for these."""
    if one is other or sparse.issparse(one):
        return one is other
    if isinstance(one, BaseEstimator):
        parameters = (kernel.get_params(deep=False).values() for kernel in (one, other))
        return type(one) is type(other) and all(map(_alike, *parameters))
    return bool(np.array_equal(one, other))


def number_of(kernel: Kernel, known: list[Kernel]) -> int:
    """Return the place of an equal kernel in a list, to whose end the kernel is added if there is
    none."""
    found = next((k for k, other in enumerate(known) if _alike(kernel, other)), len(known))
    known.extend([kernel] if found == len(known) else [])
    return found


def compare(what: str, kernel: Kernel, V: AnyArray, W: AnyArray) -> Block:
    """Return a factor of a term between members of one side, as `TERMS` has it."""
    if what == "kernel":
        return kernel._block(kernel.validate(V), kernel.validate(W))
    if what == "ones":  # in single precision, which keeps that of what they are multiplied with
        return np.ones((len(V), len(W)), dtype=np.float32)
    v, w = Members.of_one_kind(V, W)
    return np.equal.outer(v.codes, w.codes).astype(np.float32)


def pairwise(
    left: KernelsLike, right: KernelsLike, *, mode: str = "product"
) -> list[tuple[str, Pairwise, Columns]]:
    """Return the kernels of pairs that two lists of kernels make, for the `kernels` parameter of an
    estimator.

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
    sides = [_read_side(name, given) for name, given in (("left", left), ("right", right))]
    if not MODES[mode]:
        return [_pair(a, b, mode) for a in sides[0] for b in sides[1]]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"mode={mode!r}: left has {len(sides[0])} items and right {len(sides[1])}; give every"
            " kernel twice, on the columns of the first member and on those of the second."
        )
    return [_pair(a, b, mode) for a, b in zip(*sides, strict=True)]


def _read_side(side: str, given: KernelsLike) -> list[tuple[Entry, Columns]]:
    """Return the items of one side with their columns as lists."""
    found = []
    for entry in read_kernels(given):
        if isinstance(entry.kernel, PerColumn):
            raise ValueError(
                f"{side}: {entry.kernel!r} stands for several kernels; write them out, one item"
                " each."
            )
        columns = entry.columns
        if isinstance(columns, str | Integral):
            columns = [columns]
        if isinstance(columns, np.ndarray):
            columns = columns.tolist()
        if (
            not isinstance(columns, Sequence)
            or not columns
            or any(isinstance(one, bool) for one in columns)
        ):
            raise ValueError(
                f"{side}: kernel {entry.name!r} has columns={entry.columns!r}; give (name, kernel,"
                " columns) with a name or number, or a list of them: the columns of the left"
                " member differ from those of the right."
            )
        found.append((entry, list(columns)))
    return found


def _pair(
    left: tuple[Entry, Columns], right: tuple[Entry, Columns], mode: str
) -> tuple[str, Pairwise, Columns]:
    (a, own), (b, others) = left, right
    signs = {"product": "×", "sum": "+", "cartesian": "□"}
    name = f"{a.name} {signs[mode]} {b.name}" if mode in signs else f"{a.name}, {mode}"
    kernel = Pairwise(clone(a.kernel), clone(b.kernel), len(own), mode)
    kernel._check_parameters()
    return name, kernel, own + others
