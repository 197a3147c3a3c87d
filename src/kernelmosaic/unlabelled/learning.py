"""Several views without labels: how alike they are, which to add up, leading eigenvectors, graphs
of neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from scipy.special import chdtrc
from sklearn.utils import check_random_state

from kernelmosaic._typing import Array, ArrayOrTensor, Indices, Mask, Seed
from kernelmosaic.backend import as_slice, row_strips
from kernelmosaic.gram.stack import GramStack

#: Relative to the squares of its entries, what rounding may leave of the squares of a constant
#: matrix once centred.
ROUNDING = 1e-12


@dataclass(frozen=True)
class EmbeddingOptions:
    """How views are compared and eigenvectors are computed.

    Attributes
    ----------
    tol : float
        Relative error of eigenvalues by Lanczos' method.
    random_state : int, RandomState or None
        Draws the vector that it starts from.
    few_samples : int
        Up to so many samples all entries are written down for eigenvectors; of more, that method
        needs products alone.
    most_compared : int
        Views are compared on at most so many samples, evenly spread: the time grows with the square
        of their number.
    block_numbers : int
        Entries that are worked on at once, of all views together.
    max_restarts : int or None
        Most restarts of a Lanczos run; None means ten times the number of samples.
    """

    tol: float = 1e-10
    random_state: Seed = None
    few_samples: int = 500
    most_compared: int = 5000
    block_numbers: int = 2**23
    max_restarts: int | None = None


# How alike views are ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ViewSimilarity:
    """How alike every two of V views are, over the samples that have both.

    Attributes
    ----------
    rv : ndarray of shape (V, V)
        RV coefficients ⟨HK_pH, HK_qH⟩ / (‖HK_pH‖ ‖HK_qH‖), H = I − 11ᵀ/n; never negative, and zero
        for views that no sample has both of.
    unbiased : ndarray of shape (V, V)
        The same of U-centred matrices, which have zero diagonals: zero on average for independent
        views.
    pvalues : ndarray of shape (V, V)
        P(χ²₁ > n R + 1) of the unbiased R, adjusted by Holm for the number of pairs; zero on the
        diagonal.
    sizes : ndarray of shape (V,)
        ‖HK_pH‖ / n, with K_p the sum of the view's kernels; zero for a constant view.
    """

    rv: Array
    unbiased: Array
    pvalues: Array
    sizes: Array


def compare_views(
    stack: GramStack, view_of: Indices, options: EmbeddingOptions, own: Array | None = None
) -> ViewSimilarity:
    """Return how alike views are, each by the sum of its kernels, in one pass over their matrices.

    Parameters
    ----------
    stack : GramStack
        The kernels of the training samples.
    view_of : ndarray of shape (P,)
        The number of every kernel's view.
    options : EmbeddingOptions
        How many samples are read.
    own : ndarray of shape (n, P), optional
        The factors of what samples have themselves, zero where they lack it: what stands in for a
        view does not count.

    References
    ----------
    Székely and Rizzo (2014), "Partial distance correlation with methods for dissimilarities", for
    U-centring. Shen, Panda and Vogelstein (2022), "The chi-square test of distance correlation",
    for the p-value.
    """
    V, P = int(view_of.max()) + 1, len(view_of)
    some = np.unique(
        np.linspace(0, stack.n_samples - 1, min(stack.n_samples, options.most_compared)).astype(
            np.intp
        )
    )
    n = len(some)
    factors = np.ones((n, P)) if own is None else own[some]
    has = np.column_stack([np.all(factors[:, view_of == v] > 0, axis=1) for v in range(V)]).astype(
        np.float64
    )
    # Takes out what stands in for a view, and what made the others of that sample longer.
    scale = has[:, view_of] / np.where(factors > 0, factors, 1.0)
    products, squares = np.zeros((V, V)), np.zeros((V, V))
    diagonals, sums = np.zeros((V, n)), np.zeros((V, n, V))
    for strip in row_strips(n, options.block_numbers // (n * V)):
        blocks = np.zeros((V, strip.stop - strip.start, n))
        for m, K in stack.blocks(range(P), as_slice(some[strip]), as_slice(some)):
            blocks[view_of[m]] += scale[strip, m, np.newaxis] * K * scale[:, m]
        diagonals[:, strip] = np.diagonal(blocks[:, :, strip], axis1=1, axis2=2)
        sums[:, strip] = blocks @ has
        products += np.tensordot(blocks, blocks, axes=([1, 2], [1, 2]))
        squares += np.einsum("iw,viw->vw", has[strip], blocks**2 @ has)
    rv, unbiased, p = np.eye(V), np.eye(V), np.zeros((V, V))
    for v in range(V):
        for w in range(v):
            both = has[:, v] * has[:, w]
            count = float(both.sum())
            inner = np.array([[squares[v, w], products[v, w]], [products[v, w], squares[w, v]]])
            rows, ends = (
                np.array(one) * both for one in ((sums[v, :, w], sums[w, :, v]), diagonals[[v, w]])
            )
            rv[v, w] = rv[w, v] = _cosine(inner, rows, count, count**2)
            # Without the diagonals, and with the constants of U-centring.
            found = 0.0
            if count > 3:
                found = _cosine(
                    inner - ends @ ends.T, rows - ends, count - 2, (count - 1) * (count - 2)
                )
            unbiased[v, w] = unbiased[w, v] = found
            p[v, w] = p[w, v] = chdtrc(1, max(count * found + 1, 0.0))
    counts, own_sums = np.maximum(has.sum(axis=0), 1.0), np.einsum("viv->vi", sums)
    norms = np.zeros(V)
    for v in range(V):
        square = products[[v]][:, [v]]
        centred_square = float(_centred(square, own_sums[[v]], counts[v], counts[v] ** 2)[0, 0])
        # A view that is constant but for rounding has no size, as it has no similarity.
        if centred_square > ROUNDING * float(square[0, 0]):
            norms[v] = np.sqrt(centred_square)
    return ViewSimilarity(rv, unbiased, holm(p), norms / counts)


def _centred(inner: Array, rows: Array, once: float, twice: float) -> Array:
    """Return inner products of centred matrices, from those of the matrices and their row sums."""
    totals = rows.sum(axis=1)
    return inner - 2.0 / once * (rows @ rows.T) + np.outer(totals, totals) / twice


def _cosine(inner: Array, rows: Array, once: float, twice: float) -> float:
    """Return the cosine between two centred matrices; zero where one has no entries that differ."""
    if once <= 0:
        return 0.0
    C = _centred(inner, rows, once, twice)
    if np.any(C.diagonal() <= ROUNDING * inner.diagonal()):
        return 0.0
    return float(C[0, 1] / np.sqrt(C[0, 0] * C[1, 1]))


def holm(p: Array) -> Array:
    """Return the p-values of pairs, a symmetric matrix, adjusted for their number; the diagonal is
    zero."""
    at = np.triu_indices(len(p), 1)
    order = np.argsort(p[at], kind="stable")
    adjusted = np.maximum.accumulate(p[at][order] * np.arange(len(order), 0, -1))
    out = np.zeros(p.shape)
    out[at[0][order], at[1][order]] = np.minimum(adjusted, 1.0)
    return out + out.T


def screen(found: ViewSimilarity, level: float = 0.05, copy: float = 0.95) -> Mask:
    """Return which views depend on another one that is no copy; on a copy where no others do; all
    where no two do.

    Views whose unbiased RV coefficient reaches `copy` share their noise: that they depend on each
    other does not show that a second measurement has the same structure. Copies of a view that
    stays do so, too.
    """
    dependent = (found.pvalues <= level) & ~np.eye(len(found.pvalues), dtype=bool)
    copies = found.unbiased >= copy
    kept = np.any(dependent & ~copies, axis=1)
    kept = np.any(copies[:, kept], axis=1) if kept.any() else np.any(dependent, axis=1)
    return kept if kept.any() else np.ones(len(kept), dtype=bool)


def statis_weights(found: ViewSimilarity) -> Array:
    """Return weights of sum one, w_p ∝ u_p / ‖HK_pH‖ with u the leading eigenvector of the RV
    coefficients.

    u is the unit vector that maximises ‖Σ_p u_p HK_pH / ‖HK_pH‖ ‖ (STATIS: Lavit et al., 1994),
    where K_p is the sum of the view's kernels: each of them has the weight w_p. A view that is
    constant has none; where all are, weights are equal.
    """
    varies = found.sizes > 0
    if not varies.any():
        return np.full(len(varies), 1.0 / len(varies))
    weights = np.zeros(len(varies))
    u = np.abs(eigh(found.rv[np.ix_(varies, varies)])[1][:, -1])
    weights[varies] = u / found.sizes[varies]
    return np.asarray(weights / weights.sum())


# Leading eigenvectors -----------------------------------------------------------------------------


def leading(
    products: Callable[[Array], Array], n: int, k: int, options: EmbeddingOptions
) -> tuple[Array, Array]:
    """Return the k largest eigenvalues, in descending order, of a symmetric matrix that is known by
    its products.

    Of more than a few samples, by Lanczos' method (ARPACK), repeated until no copy of an eigenvalue
    is missed. The largest entry of every eigenvector, of shape (n, k), is positive.
    """
    k = min(k, n)
    if n <= options.few_samples or 2 * k >= n:
        A = products(np.eye(n))
        values, U = eigh((A + A.T) / 2, subset_by_index=(n - k, n - 1))
        values, U = values[::-1], U[:, ::-1]
    else:
        values, U = _leading_by_lanczos(products, n, k, options)
    return values, U * np.where(U[np.abs(U).argmax(axis=0), np.arange(k)] < 0, -1.0, 1.0)


def _leading_by_lanczos(
    products: Callable[[Array], Array], n: int, k: int, options: EmbeddingOptions
) -> tuple[Array, Array]:
    """Return the k largest eigenvalues, in descending order, with their eigenvectors, by repeated
    runs.

    The vectors A^j v of one start v hold one direction of every eigenspace, so that a run may miss
    the further copies of a repeated eigenvalue. The next run stays orthogonal to all that was
    found; where its largest eigenvalue is not above the k-th so far, nothing is missed.
    """
    random = check_random_state(options.random_state)
    values, U = _lanczos(products, random.uniform(-1.0, 1.0, n), k, options.tol, options)
    # Beside what was found, eigenvalues are compared with the largest: those of rounding have no
    # digits of their own.
    shift = float(np.abs(values).max())
    while True:

        def products_outside(v: Array, basis: Array = U) -> Array:
            outside = v - basis @ (basis.T @ v)
            image = products(outside) + shift * outside
            return np.asarray(image - basis @ (basis.T @ image))

        start = random.uniform(-1.0, 1.0, n)
        # The error of an eigenvalue is about the square of that of its vector.
        missed, _ = _lanczos(products_outside, start, 1, np.sqrt(options.tol), options)
        if missed[0] - shift <= values[-1] + 10.0 * options.tol * shift:
            return values, U
        _, W = _lanczos(products_outside, start, k, options.tol, options)
        # Eigenvectors of the matrix within the span of both runs (Rayleigh and Ritz).
        basis = np.linalg.qr(np.hstack([U, W]))[0]
        image = np.column_stack([products(v) for v in basis.T])
        inner = basis.T @ image
        values, rotation = eigh(0.5 * (inner + inner.T))
        values, U = values[::-1][:k], (basis @ rotation)[:, ::-1][:, :k]


def _lanczos(
    products: Callable[[Array], Array], start: Array, k: int, tol: float, options: EmbeddingOptions
) -> tuple[Array, Array]:
    """Return the k largest eigenvalues that one run finds, in descending order, with their
    eigenvectors."""
    n = len(start)
    operator = LinearOperator((n, n), matvec=lambda v: products(np.ravel(v)), dtype=np.float64)
    try:
        values, U = eigsh(
            operator,
            k,
            which="LA",
            tol=tol,
            v0=start,
            ncv=min(n, max(2 * k + 1, 30)),
            maxiter=options.max_restarts,
        )
    except ArpackNoConvergence as error:
        raise ValueError(
            f"tol={options.tol:g}: Lanczos' method found {len(error.eigenvalues)} of {k}"
            " eigenvalues to this relative error; give a larger tol."
        ) from error
    order = np.argsort(values)[::-1]
    return values[order], U[:, order]


@dataclass(frozen=True)
class Components:
    """Leading components of a centred combined kernel HKH.

    Attributes
    ----------
    values : ndarray of shape (k,)
        Its largest eigenvalues λ, in descending order, all positive.
    vectors : ndarray of shape (n, k)
        Their eigenvectors U.
    trace : float
        The sum of all its eigenvalues.
    center : ndarray of shape (k,)
        The mean over the training samples of what they are projected to before they are centred.
    """

    values: Array
    vectors: Array
    trace: float
    center: Array

    @property
    def scores(self) -> Array:
        """The coordinates of the training samples, U √λ."""
        return np.asarray(self.vectors * np.sqrt(self.values))

    @property
    def directions(self) -> Array:
        """The coordinates U λ^¼, divided by their lengths: halfway between equal components and
        those of variance λ."""
        return unit_rows(self.vectors * self.values**0.25)

    @property
    def coefficients(self) -> Array:
        """What kernels with the training samples are multiplied by to project a sample: U / √λ."""
        return np.asarray(self.vectors / np.sqrt(self.values))


def raise_of_constant_views() -> NoReturn:
    """Raise a ValueError: no view tells samples apart."""
    raise ValueError(
        "X: every view is the same for all samples, which leaves no components; give other columns."
    )


def kernel_components(gram: ArrayOrTensor, k: int, options: EmbeddingOptions) -> Components:
    """Return up to k components of a combined kernel, fewer where it has fewer positive
    eigenvalues."""
    n = gram.n_samples

    def products(beta: Array) -> Array:
        found = np.asarray(gram.products(beta - beta.mean(axis=0)), dtype=np.float64)
        return np.asarray(found - found.mean(axis=0))

    means = np.asarray(gram.products(np.full(n, 1.0 / n)), dtype=np.float64)
    trace = float(gram.diagonal().sum() - means.sum())
    if not trace > 1e-12 * float(np.abs(gram.diagonal()).sum()):
        raise_of_constant_views()
    values, U = leading(products, n, k, options)
    # What scikit-learn takes for rounding of a matrix in double or single precision.
    least = 1e-12 if np.dtype(gram.dtype) == np.float64 else 2e-7
    positive = values > least * max(float(values[0]), 0.0)
    if not positive.any():
        raise_of_constant_views()
    values, U = values[positive], U[:, positive]
    return Components(values, U, trace, means @ (U / np.sqrt(values)))


def unit_rows(U: Array) -> Array:
    """Return rows divided by their lengths; rows of zeros stay."""
    lengths = np.linalg.norm(U, axis=1, keepdims=True)
    return np.asarray(U / np.where(lengths > 0, lengths, 1.0))


# Graphs of neighbours -----------------------------------------------------------------------------


@dataclass(frozen=True)
class NeighborGraph:
    """The k nearest of every sample by the combined kernel's distance, and eigenvectors of walks
    along them.

    Attributes
    ----------
    values : ndarray of shape (k,)
        The largest eigenvalues λ of the random walk D⁻¹W, in descending order.
    vectors : ndarray of shape (n, k)
        Its eigenvectors Ψ, of length √n in the measure D: the coordinates of the samples.
    diagonal : ndarray of shape (n,)
        k(x, x), by which new samples find their neighbours.
    """

    values: Array
    vectors: Array
    diagonal: Array

    def extend(self, K: Array, n_neighbors: int) -> Array:
        """Return the coordinates of new samples, λ⁻¹ times the mean over their neighbours, from
        their kernel rows.

        An eigenvector is that mean at every training sample, but for the symmetry of the graph. λ
        below 0.1 count as 0.1: they carry no information on clusters, and would make noise larger.
        """
        near = _nearest(self.diagonal - 2.0 * K, n_neighbors)
        return np.asarray(self.vectors[near].mean(axis=1) / np.maximum(self.values, 0.1))


def neighbor_graph(
    stack: GramStack, weights: Array, n_neighbors: int, k: int, options: EmbeddingOptions
) -> NeighborGraph:
    """Return the graph W = (A + Aᵀ) / 2, A_ij = 1 if j is among the nearest of i, with k
    eigenvectors."""
    n, kernels = stack.n_samples, np.flatnonzero(weights)
    every, strips = slice(0, n), list(row_strips(n, options.block_numbers // n))

    def combined(rows: slice, columns: slice) -> Array:
        return np.asarray(
            sum(weights[m] * np.asarray(K) for m, K in stack.blocks(kernels, rows, columns))
        )

    diagonal = np.concatenate([np.diagonal(combined(rows, rows)) for rows in strips]).astype(
        np.float64
    )
    near = np.empty((n, n_neighbors), dtype=np.intp)
    farthest = 0.0
    for rows in strips:
        apart = diagonal - 2.0 * combined(rows, every)
        farthest = max(farthest, float((apart.max(axis=1) + diagonal[rows]).max()))
        apart[np.arange(len(apart)), np.arange(n)[rows]] = np.inf
        near[rows] = _nearest(apart, n_neighbors)
    if not farthest > ROUNDING * float(np.abs(diagonal).max()):
        raise_of_constant_views()
    shape = (np.ones(near.size), near.ravel(), np.arange(0, near.size + 1, n_neighbors))
    A = sparse.csr_array(shape, shape=(n, n))
    W = (A + A.T) / 2
    degree = np.asarray(W.sum(axis=1)).ravel()
    root = sparse.diags_array(1.0 / np.sqrt(degree))
    S = (root @ W @ root).tocsr()
    values, U = leading(lambda v: np.asarray(S @ v), n, k, options)
    return NeighborGraph(values, U * np.sqrt(degree.mean() * n / degree)[:, np.newaxis], diagonal)


def _nearest(apart: Array, k: int) -> Indices:
    return np.asarray(np.argpartition(apart, k - 1, axis=1)[:, :k])


def suggest_clusters(values: Array) -> int:
    """Return the k ≥ 2 with the largest gap λ_k − λ_(k+1) between eigenvalues of a random walk.

    Where all are one, the graph has more parts than there are eigenvalues: it is the largest k.
    """
    gaps = values[1:-1] - values[2:]
    if len(gaps) == 0:
        return min(2, len(values))
    if gaps.max() <= 1e-9:
        return 1 + len(gaps)
    return 2 + int(np.argmax(gaps))
