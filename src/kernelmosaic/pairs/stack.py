"""Gram matrices of pairs that share their members, known by products.

A matrix of all pairs is never stored, only those of the members of each side. With the coefficients
β of n pairs in a table V, m left members by q right ones, (A ⊗ B) β is A V Bᵀ read at the pairs:
the vec trick of Airola and Pahikkala (2018), of the order of n (m + q) operations where the table
is full, not n².
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
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

#: The number of the member that each pair has on one side.
Codes = Indices
#: What multiplies a table V of coefficients: for every term the sign with which members are
#: exchanged, and A and B of A V Bᵀ.
Plan = list[tuple[int, Array, Array]]

#: Relative rounding error of a matrix of weights that counts as a product of two vectors.
PRODUCT_ROUNDING = 1e-14
#: The same for its small entries, relative to the largest.
PRODUCT_ROUNDING_OF_LARGEST = 1e-15
#: The largest fraction by which the diagonal of all pairs may grow for it to be factorised.
FACTORISED_GROWTH = 1e-6
#: The ridge of a system of free pairs is at least this fraction of the mean diagonal: its solution
#: is a rough one.
FREE_RIDGE = 1e-6
#: The same reason limits its conjugate-gradient steps and their tolerance.
FREE_STEPS = BlockOptions(cg_steps=100, cg_tol=1e-3)


def share_members(kernel_set: KernelSet) -> bool:
    """Return whether a `PairStack` can hold all kernels of a set.

    Every kernel must be one of pairs, a sum of A ⊗ B, and all of pairs of one kind or all of pairs
    of two kinds, so that they have their members in common. Normalisations must be one factor.
    """
    exchanges = set()
    for fitted_kernel in kernel_set.fitted:
        if not isinstance(fitted_kernel.kernel, Pairwise):
            return False
        if not isinstance(fitted_kernel.normalization, Unscaled | UnitTrace):
            return False
        exchanges.add(bool(MODES[fitted_kernel.kernel.mode]))
    return len(exchanges) == 1


def side_ties(kernel_set: KernelSet) -> Array:
    """Return which left and which right kernel each kernel of pairs is made of.

    It is a matrix of ones and zeros, with a row for every kernel of pairs, and a column for every
    kernel of a side.
    """
    column_of_kernel: dict[Hashable, int] = {}
    known_kernels: list[Kernel] = []
    places = []
    for fitted_kernel in kernel_set.fitted:
        kernel = fitted_kernel.kernel
        if not isinstance(kernel, Pairwise) or kernel.mode != "product":
            raise ValueError(
                f"weights='factorized': kernel {fitted_kernel.name!r} is not a product of a left"
                " and a right kernel; use it with pairwise(left, right), or give weights=None."
            )
        columns = fitted_kernel.columns
        if columns is None:
            columns = np.arange(kernel.split + 1)
        left_columns = columns[: kernel.split].tobytes()
        right_columns = columns[kernel.split :].tobytes()
        left = ("left", number_of(kernel.left, known_kernels), left_columns)
        right = ("right", number_of(kernel.right, known_kernels), right_columns)
        left_place = column_of_kernel.setdefault(left, len(column_of_kernel))
        right_place = column_of_kernel.setdefault(right, len(column_of_kernel))
        places.append([left_place, right_place])
    return np.asarray(np.eye(len(column_of_kernel))[places].sum(axis=1))


@dataclass(frozen=True, eq=False)
class PairFactors:
    """The kernels of a set between two sets of pairs, in the matrices of their sides.

    Kernel m is s_m Σ_t A_t ⊗ B_t, between the members of both sets. Kernels of one formula on the
    same columns have the same matrices. For pairs of one kind, the members are exchanged first,
    with the sign of the mode. `PairFactors.between` computes the matrices.

    Attributes
    ----------
    rows, columns : tuple of two ndarray
        The numbers of the left and of the right members, of the pairs in the rows and of those in
        the columns.
    A, B : list of ndarray
        The matrices of the left members, and of the right ones.
    terms : list of list of (int, int)
        For every kernel, the numbers of A_t and B_t of its terms; empty if the kernel is zero.
    scale : ndarray of shape (P,)
        s_m of every kernel.
    sign : ndarray of shape (P,)
        The sign with which the members are exchanged; 0 if they are not.
    """

    rows: tuple[Codes, Codes]
    columns: tuple[Codes, Codes]
    A: list[Array]
    B: list[Array]
    terms: list[list[tuple[int, int]]]
    scale: Array
    sign: AnyArray

    @classmethod
    def between(cls, kernel_set: KernelSet, rows: Views, columns: Views) -> PairFactors:
        """Return the factors between two sets of pairs.

        Parameters
        ----------
        kernel_set : KernelSet
            Kernels that `share_members`.
        rows, columns : Views
            The pairs of the rows and of the columns as the kernels read them.
        """
        kernels = [cast(Pairwise, fitted_kernel.kernel) for fitted_kernel in kernel_set.fitted]
        rules = [fitted_kernel.normalization for fitted_kernel in kernel_set.fitted]
        row_codes, row_members = _members(kernel_set, rows)
        if columns is rows:
            column_codes = row_codes
            column_members = row_members
        else:
            column_codes, column_members = _members(kernel_set, columns)
        matrices = _SideMatrices()
        terms = []
        for m, kernel in enumerate(kernels):
            kernel_terms = []
            for left_factor, right_factor in TERMS[kernel.mode]:
                a = matrices.number(
                    0, left_factor, kernel.left_, row_members[m][0], column_members[m][0]
                )
                b = matrices.number(
                    1, right_factor, kernel.right_, row_members[m][1], column_members[m][1]
                )
                kernel_terms.append((a, b))
            # A kernel that is zero up to rounding has no terms: products, unlike entries, would
            # keep its rounding, which is as large as that of its matrices.
            first_matrix = matrices.of_side[0][kernel_terms[0][0]]
            is_zero = kernel.vanishes(rows[m], first_matrix)
            terms.append([] if is_zero else kernel_terms)
        return cls(
            rows=row_codes,
            columns=column_codes,
            A=matrices.of_side[0],
            B=matrices.of_side[1],
            terms=terms,
            scale=np.array([1.0 / getattr(rule, "scale_", 1.0) for rule in rules]),
            sign=np.array([MODES[kernel.mode] for kernel in kernels]),
        )

    def take(self, rows: Indices) -> PairFactors:
        """Return the factors between some of the pairs of the rows."""
        codes = self.rows[0][rows], self.rows[1][rows]
        return replace(self, rows=codes, columns=codes)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of left and of right members in the columns."""
        return int(self.A[0].shape[1]), int(self.B[0].shape[1])

    def sides(self, weights: Array, sign: int) -> Array:
        """Return T with Σ_m weights_m K_m = Σ_ab T_ab A_a ⊗ B_b, over kernels of this sign.

        Its shape is (len(A), len(B)).
        """
        T = np.zeros((len(self.A), len(self.B)))
        for m in np.flatnonzero((self.sign == sign) & (weights != 0)):
            for a, b in self.terms[m]:
                T[a, b] += weights[m] * self.scale[m]
        return T

    def nearest(self, T: Array) -> tuple[Array, Array, bool]:
        """Return A and B with A ⊗ B near Σ_ab T_ab A_a ⊗ B_b, and whether they are equal.

        They are if T is a product of two vectors.
        """
        row_sums = T.sum(axis=1)
        share = T.sum(axis=0) / T.sum()
        is_exact = np.allclose(
            T,
            np.outer(row_sums, share),
            rtol=PRODUCT_ROUNDING,
            atol=PRODUCT_ROUNDING_OF_LARGEST * T.max(),
        )
        return _weighted_sum(row_sums, self.A), _weighted_sum(share, self.B), is_exact

    def plan(self, weights: Array) -> Plan:
        """Return the terms A ⊗ B of Σ_m weights_m K_m, as few as possible.

        Terms that have their matrix in common on the side with fewer matrices are one term. If the
        weights are products of weights of both sides, as uniform ones are, one term is left.
        """
        plan: Plan = []
        for sign in np.unique(self.sign[weights != 0]):
            T = self.sides(weights, int(sign))
            if not T.any():
                continue
            lefts = np.flatnonzero(T.any(axis=1))
            rights = np.flatnonzero(T.any(axis=0))
            A, B, is_exact = self.nearest(T)
            if is_exact:
                plan.append((int(sign), A, B))
            elif len(lefts) <= len(rights):
                plan += [(int(sign), self.A[a], _weighted_sum(T[a], self.B)) for a in lefts]
            else:
                plan += [(int(sign), _weighted_sum(T[:, b], self.A), self.B[b]) for b in rights]
        return plan

    def table(self, beta: Array) -> Array:
        """Return coefficients of the pairs of the columns, (n, k), as k tables of the members.

        Coefficients of equal pairs are added.
        """
        m, q = self.shape
        flat = self.columns[0] * q + self.columns[1]
        tables = [np.bincount(flat, column, m * q) for column in beta.T]
        return np.asarray(tables, dtype=np.float64).reshape(-1, m, q)

    def times(self, plan: Plan, V: Array) -> Array:
        """Return the product of a combined kernel with tables of coefficients, (n_rows, k)."""
        left, right = self.rows
        if not plan:
            return np.zeros((len(left), len(V)))
        total: Any = 0.0
        for sign, A, B in plan:
            total = total + A @ (exchanged(V, sign) @ B.T)
        return np.ascontiguousarray(total[:, left, right].T)

    def block(self, plan: Plan, rows: Rows, columns: Rows) -> Array:
        """Return the entries of a combined kernel between some pairs."""
        a, b = (codes[rows] for codes in self.rows)
        c, d = (codes[columns] for codes in self.columns)
        out = np.zeros((len(a), len(c)))
        for sign, A, B in plan:
            term = A[np.ix_(a, c)] * B[np.ix_(b, d)]
            if sign:
                term = 0.5 * (term + sign * A[np.ix_(a, d)] * B[np.ix_(b, c)])
            out += term
        return out


@dataclass
class _SideMatrices:
    """The distinct matrices of both sides that kernels of pairs are made of.

    Attributes
    ----------
    of_side : tuple of two lists of ndarray
        The matrices of the left side and of the right side.
    """

    of_side: tuple[list[Array], list[Array]] = field(default_factory=lambda: ([], []))
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _known_kernels: list[Kernel] = field(default_factory=list)

    def number(
        self,
        side: int,
        factor: str,
        kernel: Kernel,
        row_members: tuple[bytes, AnyArray],
        column_members: tuple[bytes, AnyArray],
    ) -> int:
        """Return the number of a matrix among those of its side; a new one is computed.

        Parameters
        ----------
        side : int
            0 for the left side and 1 for the right one.
        factor : str
            The factor of the term, see `TERMS`.
        kernel : Kernel
            The fitted kernel of the side.
        row_members, column_members : tuple
            The members as the kernel reads them, with their key, see `_members`.
        """
        members_key, V = row_members
        _, W = column_members
        formula = number_of(kernel, self._known_kernels) if factor == "kernel" else None
        # A matrix of ones depends on no columns.
        columns_key = members_key if factor != "ones" else None
        key = (side, factor, columns_key, formula)
        matrices = self.of_side[side]
        if key not in self._numbers:
            self._numbers[key] = len(matrices)
            matrices.append(np.asarray(compare(factor, kernel, V, W), dtype=np.float64))
        return self._numbers[key]


def exchanged(V: Array, sign: int) -> Array:
    """Return ½ (V + sign Vᵀ) for every table V, or V itself if the sign is 0.

    It adds the coefficients of each pair to the pair with its members exchanged.
    """
    return 0.5 * (V + sign * V.transpose(0, 2, 1)) if sign else V


def _weighted_sum(weights: Array, matrices: list[Array]) -> Array:
    """Return Σ_k weights_k matrices_k."""
    return np.asarray(sum(weights[k] * matrices[k] for k in np.flatnonzero(weights)))


def _members(
    kernel_set: KernelSet, views: Views
) -> tuple[tuple[Codes, Codes], list[list[tuple[bytes, AnyArray]]]]:
    """Return the members of some pairs.

    Members are distinguished by all columns that any kernel reads of them.

    Returns
    -------
    codes : tuple of two ndarray
        The number of the left and of the right member of each pair.
    members : list of list of (bytes, ndarray)
        For every kernel, the left and the right members as it reads them, each with a key that is
        equal for kernels that read the same.
    """
    # 1. What kernels read of each side, by the columns that they read.
    arrays_of_side: tuple[dict[bytes, AnyArray], dict[bytes, AnyArray]] = ({}, {})
    kernel_keys = []
    one_kind = False
    for fitted_kernel, X in zip(kernel_set.fitted, views, strict=True):
        kernel = cast(Pairwise, fitted_kernel.kernel)
        one_kind = one_kind or bool(MODES[kernel.mode])
        columns = fitted_kernel.columns
        if columns is None:
            columns = np.arange(X.shape[1])
        left_key = columns[: kernel.split].tobytes()
        right_key = columns[kernel.split :].tobytes()
        left = X[:, : kernel.split]
        right = X[:, kernel.split :]
        if one_kind:
            # Both sides are one list of members: the left ones of all pairs, then the right ones.
            left_key = right_key = left_key + right_key
            left = right = np.concatenate((left, right))
        kernel_keys.append((left_key, right_key))
        arrays_of_side[0].setdefault(left_key, left)
        arrays_of_side[1].setdefault(right_key, right)

    # 2. The distinct members of each side, and what kernels read of these.
    codes_of_side = []
    members_of_side: list[dict[bytes, AnyArray]] = []
    for arrays in arrays_of_side[: 1 if one_kind else 2]:
        codes_of_array = [Members.of(V).codes for V in arrays.values()]
        codes = Members.of(np.column_stack(codes_of_array)).codes
        first = np.unique(codes, return_index=True)[1]
        codes_of_side.append(codes)
        members_of_side.append({key: V[first] for key, V in arrays.items()})
    if one_kind:
        left_codes, right_codes = np.split(codes_of_side[0], 2)
    else:
        left_codes, right_codes = codes_of_side
    members = []
    for left_key, right_key in kernel_keys:
        left_members = (left_key, members_of_side[0][left_key])
        right_members = (right_key, members_of_side[-1][right_key])
        members.append([left_members, right_members])
    return (left_codes, right_codes), members


@dataclass(frozen=True)
class PairSums(SupportSums):
    """The sums over support pairs that share members, by products with matrices of the members."""

    def strips(self, X: MatrixLike, device: str | None) -> Iterator[tuple[slice, Views]]:
        """Yield all pairs as one strip, unless there are no kernels or no support."""
        if len(self.kernel_set) and self.beta.shape[-1]:
            yield slice(0, X.shape[0]), self.views_of(X)

    def products(
        self, strip: Views, kernels: Sequence[int], device: str | None
    ) -> Iterator[tuple[int, Array]]:
        """Yield (k, sums of kernel k at the pairs) for these kernels."""
        factors = PairFactors.between(
            self.kernel_set.take(kernels), strip.take(kernels), self.samples.take(kernels)
        )
        for unit_weights, k in zip(np.eye(len(kernels)), kernels, strict=True):
            plan = factors.plan(unit_weights)
            yield k, factors.times(plan, factors.table(self.of_kernel(k).T))


class PairStack(MatrixStack):
    """The kernels of training pairs that share members, by the matrices of the members.

    Parameters
    ----------
    factors : PairFactors
        The kernels between the training pairs.
    diagonals : ndarray of shape (P, n)
        k_m(x, x).
    options : StackOptions
        Sizes that the stack works with.
    form : str
        See `GramStack`.
    """

    writes_matrices = stores_combined = False
    can_be_factorised = False
    dtype = np.dtype(np.float64)
    #: Some of the pairs have most of the members: their products cost what those of all pairs do.
    part_samples = 0

    def __init__(
        self, factors: PairFactors, diagonals: Array, options: StackOptions, form: str = ""
    ) -> None:
        self.factors = factors
        self.diagonals = diagonals
        self.options = options
        self.form = form
        self.n_kernels, self.n_samples = diagonals.shape
        self.entries = options.on_demand_bytes // 8
        self.nbytes = sum(K.nbytes for K in (*factors.A, *factors.B))

    def support_sums(self, kernel_set: KernelSet, samples: Views, beta: Array) -> PairSums:
        """Return the sums over support pairs, by products with matrices of the members."""
        return PairSums(kernel_set, samples, beta)

    def take(self, rows: Indices, stored: bool = False) -> PairStack:
        """Return the stack of these pairs, with the same matrices of the members."""
        return PairStack(self.factors.take(rows), self.diagonals[:, rows], self.options, self.form)

    def placed_blocks(
        self, kernels: Kernels, rows: Rows, columns: Rows
    ) -> Iterator[tuple[int, Array]]:
        """Yield (m, K_m[rows][:, columns]) for these kernels."""
        unit_weights = np.eye(self.n_kernels)
        for m in kernels:
            plan = self.factors.plan(unit_weights[m])
            yield int(m), self.factors.block(plan, rows, columns)

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> Gram:
        """Return the combined kernel of weights (P,) or gates (n, P), known by products."""
        return PairGram(self, np.array(weights, dtype=np.float64))

    def _multiply(
        self, right: dict[int, ArrayOrTensor], rows: Rows, columns: Rows, out: ArrayOrTensor
    ) -> None:
        """Add K_m[rows, columns] right[m] to out[m], with the same right[m] for every kernel m."""
        # Every kernel is multiplied by the same coefficients.
        coefficients = np.zeros((self.n_samples, out.shape[2]))
        coefficients[columns] = next(iter(right.values()), 0.0)
        V = self.factors.table(coefficients)
        left_codes, right_codes = (codes[rows] for codes in self.factors.rows)
        # A V for the matrices A of the left side, by the sign of the exchange and the number of A.
        left_products: dict[tuple[int, int], Array] = {}
        for m in right:
            sign = int(self.factors.sign[m])
            for a, b in self.factors.terms[m]:
                if (sign, a) not in left_products:
                    left_products[sign, a] = self.factors.A[a] @ exchanged(V, sign)
                product = left_products[sign, a] @ self.factors.B[b].T
                out[m] += self.factors.scale[m] * product[:, left_codes, right_codes].T

    def bilinear_forms(self, U: Array, V: Array) -> Array:
        """Return Σ_c u_cᵀ K_m v_c for every kernel, of shape (P,), for columns u_c and v_c.

        It takes one product by every matrix of a side.
        """
        factors = self.factors
        out = np.zeros(self.n_kernels)
        left_table = factors.table(U)
        right_table = factors.table(V)
        left_products = [A @ left_table for A in factors.A]
        for sign in np.unique(factors.sign):
            exchanged_table = exchanged(right_table, int(sign))
            right_products = [exchanged_table @ B for B in factors.B]
            for m in np.flatnonzero(factors.sign == sign):
                total = sum(
                    float(np.vdot(left_products[a], right_products[b])) for a, b in factors.terms[m]
                )
                out[m] = factors.scale[m] * total
        return out

    def quadratic_forms(self, beta: AnyArray, kernels: Kernels | None = None) -> Array:
        """Return ½ Σ_c β_cᵀ K_m β_c for every kernel, of shape (P,)."""
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

    Attributes
    ----------
    parts : list of (ndarray or None, Plan)
        The gate and the plan of every part of the sum; one part without a gate for weights.
    """

    has_cheap_products = True
    # The eigenvalues and eigenvectors of A and of B of the product nearest to K.
    _eigen: Any = None
    # The last strong preconditioner, with the ridge that it was made for.
    _strong: tuple[Array, Callable[[Array], Array]] | None = None

    def __init__(self, stack: PairStack, weights: Array) -> None:
        self.stack = stack
        self.weights = weights
        self.n_samples = stack.n_samples
        self.block_samples = stack.options.pair_block
        self.parts: list[tuple[Array | None, Plan]] = []
        if self._has_gates:
            n_kernels = weights.shape[1]
            for m, unit_weights in enumerate(np.eye(n_kernels)):
                self.parts.append((weights[:, m], stack.factors.plan(unit_weights)))
        else:
            self.parts.append((None, stack.factors.plan(weights)))

    @property
    def _has_gates(self) -> bool:
        """Whether the weights are gates."""
        return self.weights.ndim == 2

    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        """Return Kβ, of the shape of β."""
        factors = self.stack.factors
        columns = beta.reshape(self.n_samples, -1)
        n_columns = int(np.prod(beta.shape[1:]))
        out = np.zeros((self.n_samples, n_columns))
        for gate, plan in self.parts:
            factor = 1.0 if gate is None else gate[:, np.newaxis]
            out += factor * factors.times(plan, factors.table(factor * columns))
        if self.shift is not None:
            out += self.shift[:, np.newaxis] * columns
        return out.reshape(beta.shape)

    def block(self, rows: RowIndex) -> Array:
        """Return the entries between some pairs.

        Raises
        ------
        MemoryError
            If there are more pairs than the options allow.
        """
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
        """Return the kernel of these pairs, as a matrix if they are few."""
        if len(rows) <= self.block_samples:
            return DenseGram(self.block(rows))
        gram = self._of_pairs(rows)
        return gram if self.shift is None else gram.add_diagonal(self.shift[rows])

    def _of_pairs(self, rows: RowIndex) -> PairGram:
        """Return the kernel of some pairs, with nothing added to its diagonal."""
        weights = self.weights[rows] if self._has_gates else self.weights
        return PairGram(self.stack.take(rows), weights)

    def diagonal(self) -> Array:
        """Return the diagonal of K, of shape (n,)."""
        diagonals = self.stack.diagonals
        if self._has_gates:
            values = (self.weights.T**2 * diagonals).sum(axis=0)
        else:
            values = self.weights @ diagonals
        return self._shifted(values)

    def preconditioner(self, ridge: Array) -> Callable[[Array], Array]:
        """Return a function that multiplies columns by roughly (K + diag ridge)⁻¹.

        It is the inverse of one product A ⊗ B near K for a full table of members, by the
        eigenvectors of A and of B. Where the table is not full, the eigenvalues of K are smaller,
        by about the fraction of the table that is filled. With gates, exchanged members or many
        members it is the inverse of the diagonal.
        """
        factors = self.stack.factors
        has_many_members = max(factors.shape) > self.stack.options.pair_members
        if self._has_gates or factors.sign.any() or has_many_members:
            return super().preconditioner(ridge)
        if self._eigen is None:
            A, B, _ = factors.nearest(factors.sides(self.weights, 0))
            self._eigen = np.linalg.eigh(A), np.linalg.eigh(B)
        (a, U), (b, W) = self._eigen
        mean_ridge = float(ridge.mean())
        filled_share = min(self.n_samples / (len(a) * len(b)), 1.0)
        eigenvalues = np.outer(np.maximum(a, 0.0), np.maximum(b, 0.0))
        inverse = 1.0 / (filled_share * eigenvalues + mean_ridge)

        # How often each pair is given.
        counts = np.maximum(factors.table(np.ones((self.n_samples, 1))), 1.0)
        left_codes, right_codes = factors.rows

        def apply(r: Array) -> Array:
            V = factors.table(r)
            out = factors.times([(0, U, W)], inverse * (U.T @ V @ W))
            if counts.max() > 1:
                # Differences between equal pairs are in the null space of K: the ridge alone
                # multiplies them.
                means = (V / counts)[:, left_codes, right_codes].T
                out += (r - means) / mean_ridge
            return out

        return apply

    def strong_preconditioner(self, ridge: Array) -> Callable[[Array], Array]:
        """Return a function that multiplies columns by nearly (K + diag ridge)⁻¹, for any kernels.

        It costs far more than `preconditioner`: for few pairs the matrix is factorised, for more
        its leading eigenvectors are computed. The last one is kept.
        """
        if self._strong is None or not np.array_equal(self._strong[0], ridge):
            self._strong = ridge, self._make_strong_preconditioner(ridge)
        return self._strong[1]

    def _make_strong_preconditioner(self, ridge: Array) -> Callable[[Array], Array]:
        """Return the function that `strong_preconditioner` keeps."""
        options, n = self.stack.options, self.n_samples
        if n <= self.block_samples:
            with suppress(np.linalg.LinAlgError):
                return Cholesky(self.block(np.arange(n)), ridge, FACTORISED_GROWTH).solve
        affordable_rank = options.pair_rank_bytes // (8 * n)
        rank = max(min(options.pair_rank, n, affordable_rank), 1)
        return NystromInverse(self.products, ridge, rank)

    def solve_free(self, rows: Indices, ridge: Array, right: Array) -> Array:
        """Return roughly (K_rows + diag ridge)⁻¹ right for the block of these pairs."""
        if len(rows) <= self.stack.options.pair_factorised:
            return super().solve_free(rows, ridge, right)
        gram = self._of_pairs(rows)
        added = ridge if self.shift is None else ridge + self.shift[rows]
        diagonal = gram.diagonal() + added
        least_ridge = FREE_RIDGE * diagonal.mean()
        return gram.solve_by_products(np.maximum(added, least_ridge), right, FREE_STEPS)


def make_pair_stack(
    kernel_set: KernelSet,
    views: Views,
    budget: float | None = None,
    options: StackOptions | None = None,
) -> PairStack | None:
    """Return the stack of pairs that share members, or None where matrices of all pairs are better.

    They are where pairs share few members, where there are few pairs, and for other kernels.

    Parameters
    ----------
    kernel_set : KernelSet
        The fitted kernels.
    views : Views
        The training pairs as the kernels read them.
    budget : float, optional
        Bytes that stored matrices might take; by default half of the free memory.
    options : StackOptions, optional
        Sizes that stacks work with.
    """
    if not share_members(kernel_set):
        return None
    options = options or StackOptions()
    n = views[0].shape[0]
    if budget is None:
        budget = default_budget()
    matrix_bytes = 8 * n**2
    if n <= options.few_pairs and (len(kernel_set) + 1) * matrix_bytes <= budget:
        return None
    left_codes, right_codes = _members(kernel_set, views)[0]
    n_left = int(left_codes.max()) + 1
    n_right = int(right_codes.max()) + 1
    if n_left + n_right > options.pair_share * n:
        return None
    factors = PairFactors.between(kernel_set, views, views)
    stored_bytes = sum(K.nbytes for K in (*factors.A, *factors.B))
    form = (
        f"{n} pairs have {n_left} left and {n_right} right members, whose matrices are"
        f" stored in {format_bytes(stored_bytes)}: products of {len(kernel_set)} kernels are made"
        " of these"
    )
    return PairStack(factors, kernel_set.diagonals(views), options, form)
