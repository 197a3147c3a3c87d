"""Learning from several views without labels.

Similarities of views, their weights, leading eigenvectors of the combined kernel, and graphs of
nearest neighbours.
"""

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

#: A matrix is taken for constant if centring leaves at most this fraction of the sum of the squares
#: of its entries. Chosen by hand, far above what rounding in double precision leaves (about 1e-16).
ROUNDING = 1e-12

#: Lanczos' method stops once all further eigenvalues are at most the k-th, but for so many
#: tolerances of the largest. Chosen by hand: both sides have errors of a few tolerances.
_TOLERANCES_OF_COPIES = 10.0

#: The least number of vectors of a Lanczos run. ARPACK advises 2 k + 1, which is few for small k.
#: Chosen by hand.
_LEAST_LANCZOS_VECTORS = 30

#: Eigenvalues of a combined kernel are positive above these fractions of the largest, which is what
#: scikit-learn's KernelPCA takes for rounding of a matrix in double and in single precision.
_LEAST_EIGENVALUE_DOUBLE = 1e-12
_LEAST_EIGENVALUE_SINGLE = 2e-7

#: Eigenvalues of a random walk below this count as this for new samples. Chosen by hand: such small
#: ones carry no information on clusters, and division by them would make noise larger.
_LEAST_WALK_EIGENVALUE = 0.1

#: Eigenvalues of a random walk that differ by no more than this are equal. Chosen by hand, above
#: the errors of eigenvalues that are computed to `EmbeddingOptions.tol`.
_EQUAL_WALK_EIGENVALUES = 1e-9


@dataclass(frozen=True)
class EmbeddingOptions:
    """How views are compared and eigenvectors are computed. The numbers are chosen by hand.

    Attributes
    ----------
    tol : float
        Relative error of eigenvalues by Lanczos' method.
    random_state : int, RandomState or None
        Draws the vectors that Lanczos' method starts from.
    few_samples : int
        Up to so many samples, a matrix is computed for its eigenvectors; for more samples, Lanczos'
        method computes them by products with vectors.
    most_compared : int
        Views are compared on at most so many samples, evenly spread: the time grows with the square
        of their number.
    block_numbers : int
        Entries of Gram matrices in a block, of all views together: 2²³ numbers are 64 MiB.
    max_restarts : int or None
        Largest number of restarts of a Lanczos run; None means ten times the number of samples.
    """

    tol: float = 1e-10
    random_state: Seed = None
    few_samples: int = 500
    most_compared: int = 5000
    block_numbers: int = 2**23
    max_restarts: int | None = None


# Similarities of views ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ViewSimilarity:
    """Similarities of every two of V views, over the samples that have both.

    K_p is the sum of the kernels of view p.

    Attributes
    ----------
    rv : ndarray of shape (V, V)
        RV coefficients ⟨HK_pH, HK_qH⟩ / (‖HK_pH‖ ‖HK_qH‖), H = I − 11ᵀ/n. They are never negative,
        and zero for two views that no sample has both of.
    unbiased : ndarray of shape (V, V)
        RV coefficients R of U-centred matrices in place of HK_pH. U-centred matrices have zero
        diagonals, and their R is zero on average for independent views.
    pvalues : ndarray of shape (V, V)
        P(χ²₁ > n R + 1) for the unbiased R, adjusted by Holm for the number of pairs; zero on the
        diagonal.
    sizes : ndarray of shape (V,)
        ‖HK_pH‖ / n; zero for a constant view.
    """

    rv: Array
    unbiased: Array
    pvalues: Array
    sizes: Array


@dataclass(frozen=True)
class _ViewSums:
    """Sums over the Gram matrices of V views on n samples, from which similarities follow.

    Entries of samples that lack the view are zero.

    Attributes
    ----------
    has_view : ndarray of shape (n, V)
        One if a sample has a view, else zero.
    products : ndarray of shape (V, V)
        Σ_ij K_p,ij K_q,ij.
    squares : ndarray of shape (V, V)
        Σ_ij K_p,ij² over the samples i, j that have view q.
    diagonals : ndarray of shape (V, n)
        K_p,ii.
    rows : ndarray of shape (V, n, V)
        Σ_j K_p,ij over the samples j that have view q.
    """

    has_view: Array
    products: Array
    squares: Array
    diagonals: Array
    rows: Array


def compare_views(
    stack: GramStack, view_of: Indices, options: EmbeddingOptions, factors: Array | None = None
) -> ViewSimilarity:
    """Return the similarities of views, each by the sum of its kernels.

    Parameters
    ----------
    stack : GramStack
        The Gram matrices of the training samples, which are read once.
    view_of : ndarray of shape (P,)
        The number of the view of every kernel.
    options : EmbeddingOptions
        How many samples are compared.
    factors : ndarray of shape (n, P), optional
        By what the features of a sample in a kernel are multiplied because the sample lacks other
        views; zero where it lacks the view of this kernel, whose replaced values are not compared.

    References
    ----------
    Székely and Rizzo (2014), "Partial distance correlation with methods for dissimilarities", for
    U-centring. Shen, Panda and Vogelstein (2022), "The chi-square test of distance correlation",
    for the p-value.
    """
    sums = _sum_over_samples(stack, view_of, options, factors)

    # 1. Every two views, on the samples that have both.
    V = len(sums.products)
    rv = np.eye(V)
    unbiased = np.eye(V)
    p = np.zeros((V, V))
    for v in range(V):
        for w in range(v):
            has_both = sums.has_view[:, v] * sums.has_view[:, w]
            count = float(has_both.sum())
            product = sums.products[v, w]
            inner = np.array([[sums.squares[v, w], product], [product, sums.squares[w, v]]])
            rows = np.array((sums.rows[v, :, w], sums.rows[w, :, v])) * has_both
            diagonals = np.array(sums.diagonals[[v, w]]) * has_both
            rv[v, w] = rv[w, v] = _cosine(inner, rows, count, count**2)
            # U-centring: without the diagonals, and with other constants.
            R = 0.0
            if count > 3:
                R = _cosine(
                    inner - diagonals @ diagonals.T,
                    rows - diagonals,
                    count - 2,
                    (count - 1) * (count - 2),
                )
            unbiased[v, w] = unbiased[w, v] = R
            p[v, w] = p[w, v] = chdtrc(1, max(count * R + 1, 0.0))

    # 2. The size of every view, on the samples that have it.
    counts = np.maximum(sums.has_view.sum(axis=0), 1.0)
    own_rows = np.einsum("viv->vi", sums.rows)
    norms = np.zeros(V)
    for v in range(V):
        square = sums.products[[v]][:, [v]]
        centred_square = float(_centred(square, own_rows[[v]], counts[v], counts[v] ** 2)[0, 0])
        # A view that is constant but for rounding has no size, as it has no similarity.
        if centred_square > ROUNDING * float(square[0, 0]):
            norms[v] = np.sqrt(centred_square)
    return ViewSimilarity(rv, unbiased, holm(p), norms / counts)


def _sum_over_samples(
    stack: GramStack, view_of: Indices, options: EmbeddingOptions, factors: Array | None
) -> _ViewSums:
    """Return the sums of `compare_views`, in one pass over blocks of rows of the Gram matrices."""
    # 1. Samples that are compared, and which views they have.
    V = int(view_of.max()) + 1
    P = len(view_of)
    n_compared = min(stack.n_samples, options.most_compared)
    positions = np.linspace(0, stack.n_samples - 1, n_compared)
    compared = np.unique(positions.astype(np.intp))
    n = len(compared)
    factors = np.ones((n, P)) if factors is None else factors[compared]
    lacks_no_kernel = [np.all(factors[:, view_of == v] > 0, axis=1) for v in range(V)]
    has_view = np.column_stack(lacks_no_kernel).astype(np.float64)

    # 2. What every kernel is multiplied by: zero for replaced values, otherwise 1 / factor.
    scale = has_view[:, view_of] / np.where(factors > 0, factors, 1.0)

    # 3. The sums, strip by strip.
    products = np.zeros((V, V))
    squares = np.zeros((V, V))
    diagonals = np.zeros((V, n))
    rows = np.zeros((V, n, V))
    for strip in row_strips(n, options.block_numbers // (n * V)):
        blocks = np.zeros((V, strip.stop - strip.start, n))
        for m, K in stack.blocks(range(P), as_slice(compared[strip]), as_slice(compared)):
            blocks[view_of[m]] += scale[strip, m, np.newaxis] * K * scale[:, m]
        diagonals[:, strip] = np.diagonal(blocks[:, :, strip], axis1=1, axis2=2)
        rows[:, strip] = blocks @ has_view
        products += np.tensordot(blocks, blocks, axes=([1, 2], [1, 2]))
        squares += np.einsum("iw,viw->vw", has_view[strip], blocks**2 @ has_view)
    return _ViewSums(has_view, products, squares, diagonals, rows)


def _centred(inner: Array, rows: Array, row_count: float, entry_count: float) -> Array:
    """Return the inner products of centred matrices.

    Parameters
    ----------
    inner : ndarray of shape (V, V)
        The inner products of the matrices.
    rows : ndarray of shape (V, n)
        Their sums of rows.
    row_count, entry_count : float
        By what sums of a row, and the sum of all entries, are divided: n and n² for the centring
        HKH, n − 2 and (n − 1) (n − 2) for U-centring.
    """
    totals = rows.sum(axis=1)
    return inner - 2.0 / row_count * (rows @ rows.T) + np.outer(totals, totals) / entry_count


def _cosine(inner: Array, rows: Array, row_count: float, entry_count: float) -> float:
    """Return the cosine between two centred matrices; zero if one of them is constant.

    The arguments are those of `_centred`, for two matrices.
    """
    if row_count <= 0:
        return 0.0
    C = _centred(inner, rows, row_count, entry_count)
    if np.any(C.diagonal() <= ROUNDING * inner.diagonal()):
        return 0.0
    return float(C[0, 1] / np.sqrt(C[0, 0] * C[1, 1]))


def holm(p: Array) -> Array:
    """Return the p-values of pairs, adjusted by Holm's method for their number.

    `p` is a symmetric matrix, and so is what is returned, with a zero diagonal.
    """
    i, j = np.triu_indices(len(p), 1)
    order = np.argsort(p[i, j], kind="stable")
    n_remaining = np.arange(len(order), 0, -1)
    ascending = np.maximum.accumulate(p[i, j][order] * n_remaining)
    adjusted = np.zeros(p.shape)
    adjusted[i[order], j[order]] = np.minimum(ascending, 1.0)
    return adjusted + adjusted.T


def screen(similarity: ViewSimilarity, level: float = 0.05, copy: float = 0.95) -> Mask:
    """Return which views depend on another view, of shape (V,).

    Two views depend on each other if the p-value of their similarity is at most `level`. They are
    copies if their unbiased RV coefficient reaches `copy`: they share their noise, and their
    dependence does not show that a second measurement has the same structure. Hence views are kept

    - that depend on a view that is no copy of them, and the copies of these;
    - if there are none: that depend on a copy;
    - if there are none, either: all.
    """
    V = len(similarity.pvalues)
    dependent = (similarity.pvalues <= level) & ~np.eye(V, dtype=bool)
    copies = similarity.unbiased >= copy
    has_other_dependent = np.any(dependent & ~copies, axis=1)
    if has_other_dependent.any():
        # A view is a copy of itself, since the diagonal of the coefficients is one.
        is_kept: Mask = np.any(copies[:, has_other_dependent], axis=1)
    else:
        is_kept = np.any(dependent, axis=1)
    if not is_kept.any():
        return np.ones(V, dtype=bool)
    return is_kept


def statis_weights(similarity: ViewSimilarity) -> Array:
    """Return the weights of views by STATIS, of shape (V,) and sum one.

    w_p ∝ u_p / ‖HK_pH‖, where u is the leading eigenvector of the RV coefficients: the unit vector
    that maximises ‖Σ_p u_p HK_pH / ‖HK_pH‖ ‖ (STATIS: Lavit et al., 1994). K_p is the sum of the
    kernels of view p, each of which has the weight w_p. A constant view has the weight zero; if all
    views are constant, the weights are equal.
    """
    V = len(similarity.sizes)
    varies = similarity.sizes > 0
    if not varies.any():
        return np.full(V, 1.0 / V)
    rv = similarity.rv[np.ix_(varies, varies)]
    eigenvectors = eigh(rv)[1]
    u = np.abs(eigenvectors[:, -1])
    weights = np.zeros(V)
    weights[varies] = u / similarity.sizes[varies]
    return np.asarray(weights / weights.sum())


# Leading eigenvectors -----------------------------------------------------------------------------


def leading(
    products: Callable[[Array], Array], n: int, k: int, options: EmbeddingOptions
) -> tuple[Array, Array]:
    """Return the k largest eigenvalues of a symmetric matrix and their eigenvectors.

    The entry of largest size of every eigenvector is positive.

    Parameters
    ----------
    products : callable
        Returns the product of the matrix A with a vector, or with the columns of a matrix.
    n : int
        The number of rows of A.
    k : int
        The number of eigenvalues, of which at most n are returned.
    options : EmbeddingOptions
        The number of samples up to which A is computed. For more samples, Lanczos' method (ARPACK)
        is repeated until no copy of an eigenvalue is missed.

    Returns
    -------
    values : ndarray of shape (k,)
        In descending order.
    U : ndarray of shape (n, k)
    """
    k = min(k, n)
    if n <= options.few_samples or 2 * k >= n:
        A = products(np.eye(n))
        values, U = eigh((A + A.T) / 2, subset_by_index=(n - k, n - 1))
        # LAPACK's order is ascending.
        values = values[::-1]
        U = U[:, ::-1]
    else:
        values, U = _leading_by_lanczos(products, n, k, options)
    largest_entries = U[np.abs(U).argmax(axis=0), np.arange(k)]
    return values, U * np.where(largest_entries < 0, -1.0, 1.0)


def _leading_by_lanczos(
    products: Callable[[Array], Array], n: int, k: int, options: EmbeddingOptions
) -> tuple[Array, Array]:
    """Return the k largest eigenvalues and their eigenvectors, by repeated Lanczos runs.

    The vectors A^j v of one start v contain one direction of every eigenspace, so that a run may
    miss the further copies of a repeated eigenvalue. The next run stays orthogonal to the
    eigenvectors so far. If its largest eigenvalue is not above the k-th so far, none is missed.
    """
    random = check_random_state(options.random_state)
    values, U = _lanczos(products, random.uniform(-1.0, 1.0, n), k, options.tol, options)
    # Orthogonal to the eigenvectors, eigenvalues may be of the size of rounding, and would not
    # converge to a relative error. The run computes them plus the largest eigenvalue.
    shift = float(np.abs(values).max())
    while True:

        def products_outside(v: Array, basis: Array = U) -> Array:
            """Return (I − UUᵀ) (A + shift I) (I − UUᵀ) v."""
            outside = v - basis @ (basis.T @ v)
            image = products(outside) + shift * outside
            return np.asarray(image - basis @ (basis.T @ image))

        start = random.uniform(-1.0, 1.0, n)
        # The error of an eigenvalue is about the square of that of its vector, so that a larger
        # tolerance is enough.
        shifted_values, _ = _lanczos(products_outside, start, 1, np.sqrt(options.tol), options)
        largest_outside = shifted_values[0] - shift
        if largest_outside <= values[-1] + _TOLERANCES_OF_COPIES * options.tol * shift:
            return values, U
        _, W = _lanczos(products_outside, start, k, options.tol, options)
        # The eigenvectors of A within the span of both runs (Rayleigh and Ritz).
        basis = np.linalg.qr(np.hstack([U, W]))[0]
        image = np.column_stack([products(v) for v in basis.T])
        inner = basis.T @ image
        values, rotation = eigh(0.5 * (inner + inner.T))
        values = values[::-1][:k]
        U = (basis @ rotation)[:, ::-1][:, :k]


def _lanczos(
    products: Callable[[Array], Array], start: Array, k: int, tol: float, options: EmbeddingOptions
) -> tuple[Array, Array]:
    """Return the k largest eigenvalues that one Lanczos run finds, and their eigenvectors.

    The eigenvalues are in descending order. A run that does not converge raises a ValueError.
    """
    n = len(start)
    operator = LinearOperator((n, n), matvec=lambda v: products(np.ravel(v)), dtype=np.float64)
    try:
        values, U = eigsh(
            operator,
            k,
            which="LA",
            tol=tol,
            v0=start,
            ncv=min(n, max(2 * k + 1, _LEAST_LANCZOS_VECTORS)),
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
        The mean of the training samples' projections K U / √λ, which K not being centred leaves.
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
        """The coordinates U λ^¼ of the training samples, each row divided by its length.

        The exponent is halfway between components of equal variance, U, and `scores`, U √λ.
        """
        return unit_rows(self.vectors * self.values**0.25)

    @property
    def coefficients(self) -> Array:
        """The coefficients U / √λ of the training samples, by which new samples are projected."""
        return np.asarray(self.vectors / np.sqrt(self.values))


def raise_of_constant_views() -> NoReturn:
    """Raise a ValueError that says that every view is constant."""
    raise ValueError(
        "X: every view is the same for all samples, which leaves no components; give other columns."
    )


def kernel_components(gram: ArrayOrTensor, k: int, options: EmbeddingOptions) -> Components:
    """Return the leading components of a combined kernel.

    There are k of them, or as many as the centred kernel has positive eigenvalues. A constant
    kernel raises a ValueError.

    Parameters
    ----------
    gram : CombinedGram
        The combined kernel K of the training samples.
    k : int
        Number of components.
    options : EmbeddingOptions
        How eigenvectors are computed.
    """
    n = gram.n_samples

    def products(beta: Array) -> Array:
        """Return HKH β."""
        image = np.asarray(gram.products(beta - beta.mean(axis=0)), dtype=np.float64)
        return np.asarray(image - image.mean(axis=0))

    means = np.asarray(gram.products(np.full(n, 1.0 / n)), dtype=np.float64)
    trace = float(gram.diagonal().sum() - means.sum())
    if not trace > ROUNDING * float(np.abs(gram.diagonal()).sum()):
        raise_of_constant_views()
    values, U = leading(products, n, k, options)
    is_double = np.dtype(gram.dtype) == np.float64
    least_eigenvalue = _LEAST_EIGENVALUE_DOUBLE if is_double else _LEAST_EIGENVALUE_SINGLE
    positive = values > least_eigenvalue * max(float(values[0]), 0.0)
    if not positive.any():
        raise_of_constant_views()
    values = values[positive]
    U = U[:, positive]
    return Components(values, U, trace, means @ (U / np.sqrt(values)))


def unit_rows(U: Array) -> Array:
    """Return a matrix with rows of length one; rows of zeros stay as they are."""
    lengths = np.linalg.norm(U, axis=1, keepdims=True)
    return np.asarray(U / np.where(lengths > 0, lengths, 1.0))


# Graphs of neighbours -----------------------------------------------------------------------------


@dataclass(frozen=True)
class NeighborGraph:
    """A graph of nearest neighbours, by the eigenvectors of its random walk.

    W has the weights of its edges between samples, and D is diagonal with the row sums of W.
    Neighbours are nearest by the distance of the combined kernel.

    Attributes
    ----------
    values : ndarray of shape (k,)
        The largest eigenvalues λ of the random walk D⁻¹ W, in descending order.
    vectors : ndarray of shape (n, k)
        Its eigenvectors Ψ, with ΨᵀDΨ = n d I for the mean d of D: the coordinates of the samples.
    diagonal : ndarray of shape (n,)
        k(x, x) of the training samples, from which distances to new samples follow.
    """

    values: Array
    vectors: Array
    diagonal: Array

    def extend(self, K: Array, n_neighbors: int) -> Array:
        """Return the coordinates of new samples, of shape (n_new, k).

        They are 1 / λ times the mean over the neighbours of a sample. By λΨ = D⁻¹WΨ, this holds at
        every training sample, but for the symmetry of the graph. Small λ are raised to 0.1.

        Parameters
        ----------
        K : ndarray of shape (n_new, n)
            The combined kernel between new samples and training samples.
        n_neighbors : int
            The number of neighbours of a sample.
        """
        # Squared distances to the training samples, but for k(x, x) of the new sample.
        neighbors = _nearest(self.diagonal - 2.0 * K, n_neighbors)
        eigenvalues = np.maximum(self.values, _LEAST_WALK_EIGENVALUE)
        return np.asarray(self.vectors[neighbors].mean(axis=1) / eigenvalues)


def neighbor_graph(
    stack: GramStack, weights: Array, n_neighbors: int, k: int, options: EmbeddingOptions
) -> NeighborGraph:
    """Return the graph of nearest neighbours of the training samples.

    Its weights are W = (A + Aᵀ) / 2 with A_ij = 1 if j is among the nearest samples of i, else 0. A
    constant combined kernel raises a ValueError.

    Parameters
    ----------
    stack : GramStack
        The Gram matrices of the training samples.
    weights : ndarray of shape (P,)
        The weights of the kernels.
    n_neighbors : int
        The number of neighbours of a sample.
    k : int
        The number of eigenvectors.
    options : EmbeddingOptions
        The size of blocks, and how eigenvectors are computed.
    """
    # 1. The neighbours, by the squared distances k(x, x) + k(y, y) − 2 k(x, y), strip by strip.
    n = stack.n_samples
    kernels = np.flatnonzero(weights)
    all_columns = slice(0, n)
    strips = list(row_strips(n, options.block_numbers // n))

    def combined(rows: slice, columns: slice) -> Array:
        """Return a block of the combined kernel."""
        return np.asarray(
            sum(weights[m] * np.asarray(K) for m, K in stack.blocks(kernels, rows, columns))
        )

    diagonal_blocks = [np.diagonal(combined(rows, rows)) for rows in strips]
    diagonal = np.concatenate(diagonal_blocks).astype(np.float64)
    neighbors = np.empty((n, n_neighbors), dtype=np.intp)
    largest_square = 0.0
    for rows in strips:
        # Squared distances but for k(x, x) of the row, which does not change its order.
        distances = diagonal - 2.0 * combined(rows, all_columns)
        largest_of_strip = float((distances.max(axis=1) + diagonal[rows]).max())
        largest_square = max(largest_square, largest_of_strip)
        # No sample is its own neighbour.
        distances[np.arange(len(distances)), np.arange(n)[rows]] = np.inf
        neighbors[rows] = _nearest(distances, n_neighbors)
    if not largest_square > ROUNDING * float(np.abs(diagonal).max()):
        raise_of_constant_views()

    # 2. The graph, and the symmetric matrix S = D^-½ W D^-½, similar to the random walk D⁻¹ W.
    row_starts = np.arange(0, neighbors.size + 1, n_neighbors)
    entries = (np.ones(neighbors.size), neighbors.ravel(), row_starts)
    A = sparse.csr_array(entries, shape=(n, n))
    W = (A + A.T) / 2
    degree = np.asarray(W.sum(axis=1)).ravel()
    root = sparse.diags_array(1.0 / np.sqrt(degree))
    S = (root @ W @ root).tocsr()

    # 3. Eigenvectors U of S, which D^-½ turns into those of the random walk.
    values, U = leading(lambda v: np.asarray(S @ v), n, k, options)
    return NeighborGraph(values, U * np.sqrt(degree.mean() * n / degree)[:, np.newaxis], diagonal)


def _nearest(distances: Array, k: int) -> Indices:
    """Return the numbers of the k smallest entries of every row, in any order."""
    return np.asarray(np.argpartition(distances, k - 1, axis=1)[:, :k])


def suggest_clusters(values: Array) -> int:
    """Return the number of clusters k ≥ 2 with the largest gap λ_k − λ_(k+1).

    λ are the eigenvalues of a random walk, in descending order, as `values`. If they are all one,
    the graph has more parts than there are eigenvalues, and the largest k is returned.
    """
    # Gaps after λ_2, λ_3, and so on.
    gaps = values[1:-1] - values[2:]
    if len(gaps) == 0:
        return min(2, len(values))
    if gaps.max() <= _EQUAL_WALK_EIGENVALUES:
        return 1 + len(gaps)
    return 2 + int(np.argmax(gaps))
