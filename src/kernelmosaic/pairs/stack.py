"""Gram matrices of pairs that share their members: products by the matrices of both sides, and
never one of all pairs.

With the coefficients β of n pairs in a table V, m left members by q right ones, (A ⊗ B) β is A V Bᵀ
read at the pairs: the vec trick of Airola and Pahikkala (2018), of the order of n (m + q)
operations where the table is full, not n².
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, Indices, MatrixLike, RowIndex
from kernelmosaic.backend import default_budget, format_bytes
from kernelmosaic.engine.expansion import SupportSums
from kernelmosaic.gram.gram import DenseGram, Gram
from kernelmosaic.gram.kernel_set import Kernels, KernelSet, Views
from kernelmosaic.gram.linear_algebra import Cholesky, NystromInverse
from kernelmosaic.gram.normalizing import UnitTrace, Unscaled
from kernelmosaic.gram.options import BlockOptions, StackOptions
from kernelmosaic.gram.row_blocks import Rows
from kernelmosaic.gram.stack import MatrixStack
from kernelmosaic.kernels.base import Kernel
from kernelmosaic.pairs.kernels import MODES, TERMS, Members, Pairwise, compare, number_of

Codes = Indices
#: What multiplies a table of coefficients: the sign of the exchange, and A and B of A V Bᵀ.
Plan = list[tuple[int, Array, Array]]


def share_members(kernel_set: KernelSet) -> bool:
    """Whether all kernels are of pairs, each a sum of A ⊗ B between the members that the kernels
    have in common."""
    signs = {
        bool(MODES[one.kernel.mode]) if isinstance(one.kernel, Pairwise) else None
        for one in kernel_set.fitted
    }
    plain = all(isinstance(one.normalization, Unscaled | UnitTrace) for one in kernel_set.fitted)
    return plain and None not in signs and len(signs) == 1


def side_ties(kernel_set: KernelSet) -> Array:
    """Return which left and which right kernel every kernel of pairs is made of, one column each:
    ones and zeros."""
    keys: dict[Hashable, int] = {}
    known: list[Kernel] = []
    places = []
    for one in kernel_set.fitted:
        kernel = one.kernel
        if not isinstance(kernel, Pairwise) or kernel.mode != "product":
            raise ValueError(
                f"weights='factorized': kernel {one.name!r} is not a product of a left and a right"
                " kernel; use it with pairwise(left, right), or give weights=None."
            )
        columns = np.arange(kernel.split + 1) if one.columns is None else one.columns
        left = ("left", number_of(kernel.left, known), columns[: kernel.split].tobytes())
        right = ("right", number_of(kernel.right, known), columns[kernel.split :].tobytes())
        places.append([keys.setdefault(left, len(keys)), keys.setdefault(right, len(keys))])
    return np.asarray(np.eye(len(keys))[places].sum(axis=1))


class PairFactors:
    """The kernels of a set between two sets of pairs, in the matrices of their sides.

    Kernel m is s_m Σ_t A_t ⊗ B_t, between the members of both sets; kernels of one formula on the
    same columns have the same matrices. The members of pairs of one kind are exchanged first, with
    the sign of the mode.

    Parameters
    ----------
    kernel_set : KernelSet
        Kernels that `share_members`.
    rows, columns : list
        Views of the pairs in the rows, and of those in the columns.

    Attributes
    ----------
    rows, columns : tuple of two ndarray
        The numbers of the pairs' left and right members.
    A, B : list of ndarray
        The matrices of the left members, and of the right ones.
    terms : list of list of (int, int)
        Of every kernel, the numbers of the matrices of its terms; none if it is zero.
    scale, sign : ndarray of shape (P,)
        Of every kernel, s_m, and the sign with which members are exchanged; 0 for not at all.
    """

    def __init__(self, kernel_set: KernelSet, rows: Views, columns: Views) -> None:
        kernels = [cast(Pairwise, one.kernel) for one in kernel_set.fitted]
        self.sign = np.array([MODES[kernel.mode] for kernel in kernels])
        self.scale = np.array(
            [1.0 / getattr(one.normalization, "scale_", 1.0) for one in kernel_set.fitted]
        )
        self.rows, above = _members(kernel_set, rows)
        self.columns, beside = (
            (self.rows, above) if columns is rows else _members(kernel_set, columns)
        )
        self.A: list[Array] = []
        self.B: list[Array] = []
        numbers: dict[Hashable, int] = {}
        known: list[Kernel] = []
        self.terms = []
        for m, kernel in enumerate(kernels):
            found = []
            for term in TERMS[kernel.mode]:
                pair = []
                for side, (what, own) in enumerate(
                    zip(term, (kernel.left_, kernel.right_), strict=True)
                ):
                    (key, V), (_, W) = above[m][side], beside[m][side]
                    formula = number_of(own, known) if what == "kernel" else None
                    name = (side, what, key if what != "ones" else None, formula)
                    store = (self.A, self.B)[side]
                    if name not in numbers:
                        numbers[name] = len(store)
                        store.append(np.asarray(compare(what, own, V, W), dtype=np.float64))
                    pair.append(numbers[name])
                found.append((pair[0], pair[1]))
            # Products, unlike entries, would keep the rounding of a kernel that is zero, however
            # large its matrices.
            self.terms.append([] if kernel.vanishes(rows[m], self.A[found[0][0]]) else found)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of left and of right members in the columns."""
        return int(self.A[0].shape[1]), int(self.B[0].shape[1])

    def sides(self, weights: Array, sign: int) -> Array:
        """Return the sum of weights_m s_m by the matrices A and B that a kernel is made of,
        (len(A), len(B))."""
        T = np.zeros((len(self.A), len(self.B)))
        for m in np.flatnonzero((self.sign == sign) & (weights != 0)):
            for a, b in self.terms[m]:
                T[a, b] += weights[m] * self.scale[m]
        return T

    def nearest(self, T: Array) -> tuple[Array, Array, bool]:
        """Return A and B whose product is near the sum of all terms, and whether it is their
        sum."""
        share = T.sum(axis=0) / T.sum()
        exact = np.allclose(T, np.outer(T.sum(axis=1), share), rtol=1e-14, atol=1e-15 * T.max())
        return _weighted(T.sum(axis=1), self.A), _weighted(share, self.B), exact

    def plan(self, weights: Array) -> Plan:
        """Return the terms of Σ_m weights_m K_m, those with the same matrix on the side that has
        fewer as one.

        Weights that are products of those of both sides, as uniform ones are, leave one term.
        """
        out: Plan = []
        for sign in np.unique(self.sign[weights != 0]):
            T = self.sides(weights, int(sign))
            if not T.any():
                continue
            lefts, rights = np.flatnonzero(T.any(axis=1)), np.flatnonzero(T.any(axis=0))
            A, B, exact = self.nearest(T)
            if exact:
                out.append((int(sign), A, B))
            elif len(lefts) <= len(rights):
                out += [(int(sign), self.A[a], _weighted(T[a], self.B)) for a in lefts]
            else:
                out += [(int(sign), _weighted(T[:, b], self.A), self.B[b]) for b in rights]
        return out

    def table(self, beta: Array) -> Array:
        """Return the coefficients of the pairs in the columns, (n, k), as k tables of members."""
        m, q = self.shape
        flat = self.columns[0] * q + self.columns[1]
        tables = [np.bincount(flat, one, m * q) for one in beta.T]
        return np.asarray(tables, dtype=np.float64).reshape(-1, m, q)

    def times(self, plan: Plan, V: Array) -> Array:
        """Return the product with tables of coefficients, at the pairs in the rows, of shape
        (n_rows, k)."""
        total: Any = 0.0
        for sign, A, B in plan:
            total = total + A @ (exchanged(V, sign) @ B.T)
        left, right = self.rows
        return (
            np.ascontiguousarray(total[:, left, right].T) if plan else np.zeros((len(left), len(V)))
        )

    def block(self, plan: Plan, rows: Rows, columns: Rows) -> Array:
        """Return the entries between some pairs."""
        (a, b), (c, d) = (
            [codes[some] for codes in side]
            for side, some in ((self.rows, rows), (self.columns, columns))
        )
        out = np.zeros((len(a), len(c)))
        for sign, A, B in plan:
            term = A[np.ix_(a, c)] * B[np.ix_(b, d)]
            out += 0.5 * (term + sign * A[np.ix_(a, d)] * B[np.ix_(b, c)]) if sign else term
        return out


def exchanged(V: Array, sign: int) -> Array:
    """Return tables with the members of every pair exchanged, with a sign, in half of it; as they
    are if that is 0."""
    return 0.5 * (V + sign * V.transpose(0, 2, 1)) if sign else V


def _weighted(weights: Array, matrices: list[Array]) -> Array:
    return np.asarray(sum(weights[k] * matrices[k] for k in np.flatnonzero(weights)))


def _members(
    kernel_set: KernelSet, views: Views
) -> tuple[tuple[Codes, Codes], list[list[tuple[bytes, AnyArray]]]]:
    """Return the numbers of the pairs' members, left and right, and what every kernel reads of each
    member.

    Members are distinguished by all columns that any kernel reads of them. What is read comes with
    a key, which is equal for kernels that read the same.
    """
    sides: tuple[dict[bytes, AnyArray], dict[bytes, AnyArray]] = ({}, {})
    keys = []
    one_kind = False
    for one, X in zip(kernel_set.fitted, views, strict=True):
        kernel = cast(Pairwise, one.kernel)
        one_kind = one_kind or bool(MODES[kernel.mode])
        columns = np.arange(X.shape[1]) if one.columns is None else one.columns
        parts = X[:, : kernel.split], X[:, kernel.split :]
        own = columns[: kernel.split].tobytes(), columns[kernel.split :].tobytes()
        if one_kind:
            own, parts = (own[0] + own[1],) * 2, (np.concatenate(parts),) * 2
        keys.append(own)
        for side in (0, 1):
            sides[side].setdefault(own[side], parts[side])
    found = []
    for arrays in sides[: 1 if one_kind else 2]:
        each = Members.of(np.column_stack([Members.of(V).codes for V in arrays.values()]))
        first = np.unique(each.codes, return_index=True)[1]
        found.append((each.codes, {key: V[first] for key, V in arrays.items()}))
    left, right = np.split(found[0][0], 2) if one_kind else (found[0][0], found[1][0])
    values = [[(a, found[0][1][a]), (b, found[-1][1][b])] for a, b in keys]
    return (left, right), values


@dataclass(frozen=True)
class PairSums(SupportSums):
    """The sums over support pairs that share members, by products with the matrices of the
    members."""

    def strips(self, X: MatrixLike, device: str | None) -> Iterator[tuple[slice, Views]]:
        if len(self.kernel_set) and self.beta.shape[-1]:
            yield slice(0, X.shape[0]), self.views_of(X)

    def products(
        self, strip: Views, kernels: Sequence[int], device: str | None
    ) -> Iterator[tuple[int, Array]]:
        factors = PairFactors(
            self.kernel_set.take(kernels), strip.take(kernels), self.samples.take(kernels)
        )
        for place, k in enumerate(kernels):
            plan = factors.plan(np.eye(len(kernels))[place])
            yield k, factors.times(plan, factors.table(self.of_kernel(k).T))


class PairStack(MatrixStack):
    """The Gram matrices of pairs that share members: those of the members are stored, none of all
    pairs is.

    Parameters
    ----------
    factors : PairFactors
        The kernels between the training pairs.
    diagonals : ndarray of shape (P, n)
        k_m(x, x).
    options : StackOptions
        Sizes that it works with.
    """

    writes_matrices = stores_combined = False
    can_be_factorised = False
    dtype = np.dtype(np.float64)
    #: Some of the pairs have most of the members: their products cost what those of all pairs do.
    part_samples = 0

    def __init__(self, factors: PairFactors, diagonals: Array, options: StackOptions) -> None:
        self.factors, self.diagonals, self.options = factors, diagonals, options
        self.n_kernels, self.n_samples = diagonals.shape
        self.entries = options.on_demand_bytes // 8
        self.nbytes = sum(K.nbytes for K in (*factors.A, *factors.B))

    def support_sums(self, kernel_set: KernelSet, samples: Views, beta: Array) -> PairSums:
        return PairSums(kernel_set, samples, beta)

    def take(self, rows: Indices, stored: bool = False) -> PairStack:
        factors = copy(self.factors)
        factors.rows = factors.columns = (self.factors.rows[0][rows], self.factors.rows[1][rows])
        part = PairStack(factors, self.diagonals[:, rows], self.options)
        part.form = self.form
        return part

    def placed_blocks(
        self, kernels: Kernels, rows: Rows, columns: Rows
    ) -> Iterator[tuple[int, Array]]:
        for m in kernels:
            yield (
                int(m),
                self.factors.block(self.factors.plan(np.eye(self.n_kernels)[m]), rows, columns),
            )

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> Gram:
        return PairGram(self, np.array(weights, dtype=np.float64))

    def _multiply(
        self, right: dict[int, ArrayOrTensor], rows: Rows, columns: Rows, out: ArrayOrTensor
    ) -> None:
        full = np.zeros((self.n_samples, out.shape[2]))
        full[columns] = next(iter(right.values()), 0.0)  # the same for every kernel
        V, made = self.factors.table(full), dict[tuple[int, int], Array]()
        left, beside = (codes[rows] for codes in self.factors.rows)
        for m in right:
            sign = int(self.factors.sign[m])
            for a, b in self.factors.terms[m]:
                if (sign, a) not in made:
                    made[sign, a] = self.factors.A[a] @ exchanged(V, sign)
                found = made[sign, a] @ self.factors.B[b].T
                out[m] += self.factors.scale[m] * found[:, left, beside].T

    def bilinear_forms(self, U: Array, V: Array) -> Array:
        """Return Σ_c u_cᵀ K_m v_c for every kernel, for columns u_c and v_c: a product by every
        matrix of a side."""
        factors, out = self.factors, np.zeros(self.n_kernels)
        left, right = factors.table(U), factors.table(V)
        lefts = [A @ left for A in factors.A]
        for sign in np.unique(factors.sign):
            own = exchanged(right, int(sign))
            rights = [own @ B for B in factors.B]
            for m in np.flatnonzero(factors.sign == sign):
                total = sum(float(np.vdot(lefts[a], rights[b])) for a, b in factors.terms[m])
                out[m] = factors.scale[m] * total
        return out

    def quadratic_forms(self, beta: AnyArray, kernels: Kernels | None = None) -> Array:
        columns = beta.reshape(len(beta), -1)
        return 0.5 * self.bilinear_forms(columns, columns)


class PairGram(Gram):
    """K = Σ_m d_m K_m of pairs, or Σ_m g_m g_mᵀ ∘ K_m with gates, by the matrices of their members.

    Parameters
    ----------
    stack : PairStack
        The kernels.
    weights : ndarray of shape (P,) or (n, P)
        The weights d, or the gates g.
    """

    has_cheap_products = True
    _eigen: Any = None
    # The ridge, and the preconditioner of it that was made last.
    _strong: tuple[Array, Callable[[Array], Array]] | None = None

    def __init__(self, stack: PairStack, weights: Array) -> None:
        self.stack, self.weights = stack, weights
        self.n_samples, self.block_samples = stack.n_samples, stack.options.pair_block
        rows: list[Array | None] = (
            [None] if weights.ndim == 1 else [weights[:, m] for m in range(weights.shape[1])]
        )
        plans = [weights] if weights.ndim == 1 else np.eye(weights.shape[1])
        #: Pairs of a gate, None for one everywhere, and what it multiplies.
        self.parts = [
            (gate, stack.factors.plan(own)) for gate, own in zip(rows, plans, strict=True)
        ]

    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        columns, out = (
            beta.reshape(self.n_samples, -1),
            np.zeros((self.n_samples, int(np.prod(beta.shape[1:])))),
        )
        for gate, plan in self.parts:
            factor = 1.0 if gate is None else gate[:, np.newaxis]
            out += factor * self.stack.factors.times(
                plan, self.stack.factors.table(factor * columns)
            )
        if self.shift is not None:
            out += self.shift[:, np.newaxis] * columns
        return out.reshape(beta.shape)

    def block(self, rows: RowIndex) -> Array:
        if len(rows) > self.block_samples:
            need = format_bytes(len(rows) ** 2 * 8)
            raise MemoryError(
                f"A block of {len(rows)} x {len(rows)} entries of the kernel of pairs needs {need},"
                " and the pairs are learned from without one: use MKLRidgeCV, MKLRegressor or"
                " MKLClassifier, which need none, or fewer pairs."
            )
        rows = np.asarray(rows)
        out = np.zeros((len(rows), len(rows)))
        for gate, plan in self.parts:
            factor = 1.0 if gate is None else np.outer(gate[rows], gate[rows])
            out += factor * self.stack.factors.block(plan, rows, rows)
        if self.shift is not None:
            out[np.diag_indices_from(out)] += self.shift[rows]
        return out

    def take(self, rows: RowIndex) -> Gram:
        if len(rows) <= self.block_samples:
            return DenseGram(self.block(rows))
        part = PairGram(
            self.stack.take(rows), self.weights if self.weights.ndim == 1 else self.weights[rows]
        )
        return part if self.shift is None else part.add_diagonal(self.shift[rows])

    def diagonal(self) -> Array:
        each = self.stack.diagonals
        values = (
            self.weights @ each
            if self.weights.ndim == 1
            else (self.weights.T**2 * each).sum(axis=0)
        )
        return np.asarray(values if self.shift is None else values + self.shift)

    def preconditioner(self, ridge: Array) -> Callable[[Array], Array]:
        """Return the inverse for one product A ⊗ B near K and a full table, by the eigenvectors of
        A and of B.

        Where the table is not full, eigenvalues of K are about the share of it that is as large.
        """
        factors = self.stack.factors
        if (
            self.weights.ndim == 2
            or factors.sign.any()
            or max(factors.shape) > self.stack.options.pair_members
        ):
            return super().preconditioner(ridge)
        if self._eigen is None:
            A, B, _ = factors.nearest(factors.sides(self.weights, 0))
            self._eigen = np.linalg.eigh(A), np.linalg.eigh(B)
        (a, U), (b, W) = self._eigen
        share = min(self.n_samples / (len(a) * len(b)), 1.0)
        inverse = 1.0 / (
            share * np.outer(np.maximum(a, 0.0), np.maximum(b, 0.0)) + float(ridge.mean())
        )

        counts = np.maximum(factors.table(np.ones((self.n_samples, 1))), 1.0)

        def apply(r: Array) -> Array:
            V = factors.table(r)
            out = factors.times([(0, U, W)], inverse * (U.T @ V @ W))
            if counts.max() > 1:  # what pairs that are the same differ by, the ridge alone sees
                out += (r - (V / counts)[:, factors.rows[0], factors.rows[1]].T) / float(
                    ridge.mean()
                )
            return out

        return apply

    def strong_preconditioner(self, ridge: Array) -> Callable[[Array], Array]:
        """Return what multiplies columns by nearly (K + diag ridge)⁻¹, whatever the kernels: it
        costs far more.

        Of few pairs that is the factorised matrix, of more it has the leading eigenvectors.
        """
        if self._strong is None or not np.array_equal(self._strong[0], ridge):
            self._strong = ridge, self._make_strong_preconditioner(ridge)
        return self._strong[1]

    def _make_strong_preconditioner(self, ridge: Array) -> Callable[[Array], Array]:
        options, n = self.stack.options, self.n_samples
        if n <= self.block_samples:
            with suppress(np.linalg.LinAlgError):
                return Cholesky(self.block(np.arange(n)), ridge, 1e-6).solve
        rank = max(min(options.pair_rank, n, options.pair_rank_bytes // (8 * n)), 1)
        return NystromInverse(self.products, ridge, rank)

    def solve_free(self, rows: Indices, ridge: Array, right: Array) -> Array:
        if len(rows) <= self.stack.options.pair_factorised:
            return super().solve_free(rows, ridge, right)
        part = PairGram(
            self.stack.take(rows), self.weights if self.weights.ndim == 1 else self.weights[rows]
        )
        added = ridge if self.shift is None else ridge + self.shift[rows]
        diagonal = part.diagonal() + added
        return part.solve_by_products(
            np.maximum(added, 1e-6 * diagonal.mean()),
            right,
            BlockOptions(cg_steps=100, cg_tol=1e-3),
        )


def make_pair_stack(
    kernel_set: KernelSet,
    views: Views,
    budget: float | None = None,
    options: StackOptions | None = None,
) -> PairStack | None:
    """Return the stack of pairs that share members; None where they do not, or are so few that
    matrices are stored.

    Parameters
    ----------
    kernel_set : KernelSet
        The fitted kernels.
    views : list
        The training pairs as the kernels read them.
    budget : float, optional
        Bytes that stored matrices might take; by default half of the free memory.
    options : StackOptions, optional
        Sizes that stacks work with.
    """
    if not share_members(kernel_set):
        return None
    options, n = options or StackOptions(), views[0].shape[0]
    room = default_budget() if budget is None else budget
    if n <= options.few_pairs and (len(kernel_set) + 1) * 8 * n**2 <= room:
        return None
    left, right = _members(kernel_set, views)[0]
    members = int(left.max()) + 1, int(right.max()) + 1
    if sum(members) > options.pair_share * n:
        return None
    stack = PairStack(PairFactors(kernel_set, views, views), kernel_set.diagonals(views), options)
    stack.form = (
        f"{n} pairs have {members[0]} left and {members[1]} right members, whose matrices are"
        f" stored in {format_bytes(stack.nbytes)}: products of {len(kernel_set)} kernels are made"
        " of these"
    )
    return stack
