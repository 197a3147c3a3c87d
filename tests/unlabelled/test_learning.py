"""Similarity and screen of views against naive loops; eigenvectors and graphs against NumPy's and
scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import kneighbors_graph

from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.unlabelled.learning import (
    EmbeddingOptions,
    ViewSimilarity,
    compare_views,
    holm,
    kernel_components,
    leading,
    neighbor_graph,
    screen,
    statis_weights,
    suggest_clusters,
)

RNG = np.random.RandomState(0)
N = 22
HIDDEN = RNG.standard_normal((N, 2))
TABLES = [
    HIDDEN @ RNG.standard_normal((2, 4)),
    np.tanh(HIDDEN),
    RNG.standard_normal((N, 3)),
    np.ones((N, 2)),
]
MATRICES = np.array([rbf_kernel(X, gamma=0.3) for X in TABLES])

OPTIONS, LANCZOS = EmbeddingOptions(1e-12, 0), EmbeddingOptions(1e-12, 0, few_samples=10)


def u_centred(K):
    """K̃_ij by its definition (Székely and Rizzo, 2014), entry by entry."""
    n = len(K)
    C = np.zeros((n, n))
    K = K - np.diag(np.diag(K))
    for i in range(n):
        for j in range(n):
            if i != j:
                C[i, j] = (
                    K[i, j]
                    - K[i].sum() / (n - 2)
                    - K[:, j].sum() / (n - 2)
                    + K.sum() / ((n - 1) * (n - 2))
                )
    return C


def cosine(A, B):
    return np.sum(A * B) / np.sqrt(np.sum(A * A) * np.sum(B * B))


@pytest.mark.parametrize("numbers", [2**23, 5 * N * 3])
def test_similarity_is_that_of_naive_loops(numbers):
    found = compare_views(
        StoredStack(MATRICES[:3]), np.arange(3), EmbeddingOptions(block_numbers=numbers)
    )
    H = np.eye(N) - 1 / N
    for p in range(3):
        assert found.sizes[p] == pytest.approx(np.linalg.norm(H @ MATRICES[p] @ H) / N)
        for q in range(3):
            assert found.rv[p, q] == pytest.approx(cosine(H @ MATRICES[p] @ H, H @ MATRICES[q] @ H))
            assert found.unbiased[p, q] == pytest.approx(
                cosine(u_centred(MATRICES[p]), u_centred(MATRICES[q]))
            )
    raw = [chi2.sf(N * found.unbiased[p, q] + 1, 1) for p, q in ((0, 1), (0, 2), (1, 2))]
    order = np.argsort(raw)
    assert order[0] == 0
    assert found.pvalues[0, 1] == pytest.approx(3 * raw[0])
    assert found.pvalues[0, 1] < 0.05
    assert found.pvalues[2, :2].min() == pytest.approx(min(2 * min(raw[1:]), 1.0))


def test_kernels_of_a_view_are_added_and_constant_views_have_no_similarity():
    found = compare_views(StoredStack(MATRICES), np.array([0, 0, 1, 2]), OPTIONS)
    expected = cosine(u_centred(MATRICES[0] + MATRICES[1]), u_centred(MATRICES[2]))
    assert found.unbiased[0, 1] == pytest.approx(expected)
    np.testing.assert_array_equal(found.unbiased[2], [0, 0, 1])
    assert found.pvalues[2, :2].min() > 0.3
    assert found.sizes[2] == pytest.approx(0, abs=1e-7)


def test_pairs_are_compared_on_the_samples_that_have_both():
    own = np.ones((N, 3))
    own[:4, 0], own[2:7, 1] = 0, 0
    # The rest of a sample was made longer, and what stands in for a view may be anything.
    own[7:9, 2] = 1.5
    given = MATRICES[:3] * own.T[:, :, None] * own.T[:, None, :]
    given[0][:4], given[1][:, 2:7] = 9.0, 9.0
    found = compare_views(StoredStack(given), np.arange(3), OPTIONS, own)
    for p, q in ((0, 1), (0, 2), (1, 2)):
        both = np.flatnonzero(own[:, p] * own[:, q])
        A, B = (MATRICES[m][np.ix_(both, both)] for m in (p, q))
        assert found.unbiased[p, q] == pytest.approx(cosine(u_centred(A), u_centred(B)))


def test_many_samples_are_compared_on_some():
    rows = np.unique(np.linspace(0, N - 1, 8).astype(int))
    found = compare_views(
        StoredStack(MATRICES[:2]), np.arange(2), EmbeddingOptions(most_compared=8)
    )
    A, B = (K[np.ix_(rows, rows)] for K in MATRICES[:2])
    assert found.unbiased[0, 1] == pytest.approx(cosine(u_centred(A), u_centred(B)))


def test_three_samples_say_nothing():
    found = compare_views(StoredStack(MATRICES[:2, :3, :3]), np.arange(2), OPTIONS)
    assert found.unbiased[0, 1] == 0.0
    assert screen(found).all()


def test_the_level_of_the_screen():
    """Of independent views, at most about one pair in twenty is called dependent; permutations say
    the same."""
    rng, n, draws = np.random.RandomState(1), 40, 150
    rejected, permuted = 0, 0
    for _ in range(draws):
        K, L = (rbf_kernel(rng.standard_normal((n, 2)), gamma=0.3) for _ in range(2))
        found = compare_views(StoredStack(np.array([K, L])), np.arange(2), OPTIONS)
        rejected += found.pvalues[0, 1] <= 0.05
        A, B = u_centred_fast(K), u_centred_fast(L)
        orders = [rng.permutation(n) for _ in range(99)]
        null = [np.sum(A * B[order][:, order]) for order in orders]
        permuted += 1 + np.sum(null >= np.sum(A * B)) <= 5
    assert rejected <= 0.05 * draws + 3 * np.sqrt(0.05 * 0.95 * draws)
    assert abs(rejected - permuted) <= 0.05 * draws


def u_centred_fast(K):
    n, K = len(K), K - np.diag(np.diag(K))
    r = K.sum(axis=0) / (n - 2)
    C = K - r - r[:, None] + K.sum() / ((n - 1) * (n - 2))
    return C - np.diag(np.diag(C))


def test_holm_adjusts_step_by_step():
    p = np.zeros((3, 3))
    p[0, 1], p[0, 2], p[1, 2] = 0.02, 0.5, 0.03
    expected = np.zeros((3, 3))
    # 3 × 0.02; the larger of that and 2 × 0.03; 0.5.
    expected[0, 1], expected[1, 2], expected[0, 2] = 0.06, 0.06, 0.5
    np.testing.assert_allclose(holm(p + p.T), expected + expected.T)


def test_the_screen_keeps_views_of_rejected_pairs_or_all():
    p = np.ones((4, 4))
    np.fill_diagonal(p, 0.0)
    found = ViewSimilarity(np.eye(4), np.eye(4), p, np.ones(4))
    assert screen(found).all()
    p[1, 3] = p[3, 1] = 0.04
    np.testing.assert_array_equal(screen(found), [False, True, False, True])


def test_a_copy_is_no_other_view_to_the_screen():
    similar, p = np.eye(5), np.ones((5, 5))
    np.fill_diagonal(p, 0.0)
    # Views 0 and 1 are copies of each other.
    similar[0, 1] = similar[1, 0] = 0.96
    p[0, 1] = p[1, 0] = 0.0
    found = ViewSimilarity(similar, similar, p, np.ones(5))
    np.testing.assert_array_equal(screen(found), [True, True, False, False, False])
    p[2, 3] = p[3, 2] = 0.04
    np.testing.assert_array_equal(screen(found), [False, False, True, True, False])
    # One of the copies depends on another view, and both stay.
    p[1, 2] = p[2, 1] = 0.04
    np.testing.assert_array_equal(screen(found), [True, True, True, True, False])
    similar[0, 1] = similar[1, 0] = 0.94
    p[1, 2] = p[2, 1] = 1.0
    np.testing.assert_array_equal(screen(found), [True, True, True, True, False])


def test_statis_weights_maximise_the_norm_of_the_compromise():
    found = compare_views(StoredStack(MATRICES), np.arange(4), OPTIONS)
    H = np.eye(N) - 1 / N
    units = [H @ K @ H for K in MATRICES[:3]]
    units = [K / np.linalg.norm(K) for K in units]
    weights = statis_weights(found)
    assert weights[3] == 0.0
    assert weights.sum() == pytest.approx(1.0)
    u = weights[:3] * found.sizes[:3]
    u /= np.linalg.norm(u)
    best = np.linalg.norm(sum(a * K for a, K in zip(u, units, strict=True)))
    for other in np.random.RandomState(0).standard_normal((200, 3)):
        other /= np.linalg.norm(other)
        assert np.linalg.norm(sum(a * K for a, K in zip(other, units, strict=True))) <= best + 1e-12


def test_two_copies_of_a_view_take_the_weights_of_statis():
    rv = np.array([[1, 0.98, 0.1], [0.98, 1, 0.1], [0.1, 0.1, 1]])
    weights = statis_weights(ViewSimilarity(rv, rv, rv, np.ones(3)))
    assert weights[:2].sum() > 0.9


@pytest.mark.parametrize("options", [OPTIONS, LANCZOS], ids=["dense", "lanczos"])
def test_leading_eigenvectors(options):
    values, U = leading(lambda v: MATRICES[0] @ v, N, 4, options)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(MATRICES[0])[::-1][:4], rtol=1e-10)
    np.testing.assert_allclose(MATRICES[0] @ U, U * values, atol=1e-9)
    assert (U[np.abs(U).argmax(axis=0), range(4)] > 0).all()


def test_components_are_those_of_the_centred_kernel():
    stack = StoredStack(MATRICES[:2])
    found = kernel_components(stack.combine(np.array([0.5, 0.5])), 3, OPTIONS)
    H = np.eye(N) - 1 / N
    C = H @ MATRICES[:2].mean(axis=0) @ H
    np.testing.assert_allclose(found.values, np.linalg.eigvalsh(C)[::-1][:3], rtol=1e-10)
    assert found.trace == pytest.approx(np.trace(C))
    np.testing.assert_allclose(
        found.scores @ found.coefficients.T @ found.vectors, found.vectors, atol=1e-10
    )
    with pytest.raises(ValueError, match="every view is the same for all samples"):
        kernel_components(StoredStack(MATRICES[3:]).combine(np.ones(1)), 3, OPTIONS)


@pytest.mark.parametrize("options", [OPTIONS, LANCZOS], ids=["dense", "lanczos"])
def test_the_graph_and_its_random_walk(options):
    weights = np.array([0.7, 0.3])
    found = neighbor_graph(StoredStack(MATRICES[:2]), weights, 4, 3, options)
    K = np.tensordot(weights, MATRICES[:2], axes=1)
    D = np.sqrt(np.maximum(np.diag(K) + np.diag(K)[:, None] - 2 * K, 0))
    X = np.linalg.cholesky(K + 1e-10 * np.eye(N))  # points whose distances are these
    np.testing.assert_allclose(np.linalg.norm(X[:, None] - X, axis=2), D, atol=1e-4)
    A = kneighbors_graph(X, 4).toarray()
    W = (A + A.T) / 2
    walk = W / W.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        found.values, np.sort(np.linalg.eigvals(walk).real)[::-1][:3], atol=1e-9
    )
    np.testing.assert_allclose(walk @ found.vectors, found.vectors * found.values, atol=1e-8)
    np.testing.assert_allclose(found.diagonal, np.diag(K))
    new = np.tensordot(weights, MATRICES[:2], axes=1)[:5] + 0.01 * np.arange(N)
    for row, coordinates in zip(new, found.extend(new, 3), strict=True):
        near = np.argsort(np.diag(K) - 2 * row)[:3]
        np.testing.assert_allclose(coordinates, found.vectors[near].mean(axis=0) / found.values)


def test_parts_of_a_graph_are_told_apart_by_lanczos():
    """Three parts without a path between them: the eigenvalue one has three eigenvectors, which
    must all be found."""
    part = np.repeat([0, 1, 2], 20)
    K = rbf_kernel(
        20.0 * np.eye(3)[part] + np.random.RandomState(0).standard_normal((60, 3)), gamma=0.1
    )
    found = neighbor_graph(StoredStack(K[np.newaxis]), np.ones(1), 4, 4, LANCZOS)
    assert found.values[2] == pytest.approx(1.0)
    assert found.values[3] < 0.999
    assert suggest_clusters(found.values) == 3


@pytest.mark.parametrize("n_parts", [3, 8])
def test_every_copy_of_a_repeated_eigenvalue_is_found(n_parts):
    """The walk on a graph of several parts has the eigenvalue one as often; one Lanczos run misses
    copies."""
    n = 600
    part = np.arange(n) % n_parts
    X = 20 * np.eye(n_parts)[part] + np.random.default_rng(0).standard_normal((n, n_parts))
    K = rbf_kernel(X, gamma=1 / 40)
    found = neighbor_graph(
        StoredStack(K[np.newaxis]), np.ones(1), 10, 11, EmbeddingOptions(random_state=0)
    )
    A = kneighbors_graph(X, 10).toarray()
    W = (A + A.T) / 2
    roots = np.sqrt(W.sum(axis=1))
    expected = np.linalg.eigvalsh(W / np.outer(roots, roots))[::-1][:11]
    assert (expected > 1 - 1e-9).sum() == n_parts
    np.testing.assert_allclose(found.values, expected, atol=1e-8)
    np.testing.assert_allclose(
        W @ found.vectors, found.vectors * found.values * roots[:, None] ** 2, atol=1e-6
    )
    # Eigenvectors of the eigenvalue one are constant on every part.
    constant = found.vectors[:, :n_parts]
    for p in range(n_parts):
        assert np.ptp(constant[part == p], axis=0).max() < 1e-6
    assert suggest_clusters(found.values) == n_parts


def test_repeated_eigenvalues_have_orthogonal_vectors():
    n, values = 40, np.array([3.0, 3.0, 3.0, 1.0])
    Q = np.linalg.qr(np.random.RandomState(3).standard_normal((n, n)))[0]
    spectrum = np.concatenate([values, np.linspace(0.5, 0.1, n - len(values))])
    A = Q * spectrum @ Q.T
    found, U = leading(lambda v: A @ v, n, 4, LANCZOS)
    np.testing.assert_allclose(found, values, atol=1e-9)
    np.testing.assert_allclose(A @ U, U * found, atol=1e-8)
    np.testing.assert_allclose(U.T @ U, np.eye(4), atol=1e-10)


@pytest.mark.parametrize("rank", [2, 4])
def test_fewer_eigenvalues_than_asked_for(rank):
    F = np.random.RandomState(4).standard_normal((60, rank))
    values, U = leading(lambda v: F @ (F.T @ v), 60, 4, LANCZOS)
    expected = np.zeros(4)
    expected[:rank] = np.linalg.svd(F, compute_uv=False)[:4] ** 2
    np.testing.assert_allclose(values, expected, atol=1e-9)
    np.testing.assert_allclose(U.T @ U, np.eye(4), atol=1e-8)


def test_an_iteration_that_does_not_end_is_said():
    A = np.diag(np.linspace(0.99999, 1.0, 300))
    with pytest.raises(
        ValueError, match=r"tol=1e-17: Lanczos' method found . of 3 eigenvalues .* a larger tol"
    ):
        leading(lambda v: A @ v, 300, 3, EmbeddingOptions(1e-17, 0, few_samples=10, max_restarts=2))


def test_views_that_no_sample_has_both_of():
    own = np.ones((N, 3))
    own[:12, 0], own[12:, 1] = 0, 0
    found = compare_views(StoredStack(MATRICES[:3]), np.arange(3), OPTIONS, own)
    assert found.rv[0, 1] == found.unbiased[0, 1] == 0.0
    assert found.pvalues[0, 1] > 0.05
    both = np.arange(12)
    A, B = (MATRICES[m][np.ix_(both, both)] for m in (1, 2))
    assert found.unbiased[1, 2] == pytest.approx(cosine(u_centred(A), u_centred(B)))


def test_views_that_are_all_constant():
    found = compare_views(StoredStack(np.ones((2, N, N))), np.arange(2), OPTIONS)
    np.testing.assert_array_equal(found.sizes, 0.0)
    np.testing.assert_array_equal(statis_weights(found), 0.5)
    for options in (OPTIONS, LANCZOS):
        stack = StoredStack(np.ones((1, N, N)))
        with pytest.raises(ValueError, match="every view is the same for all samples"):
            kernel_components(stack.combine(np.ones(1)), 3, options)
        with pytest.raises(ValueError, match="every view is the same for all samples"):
            neighbor_graph(stack, np.ones(1), 4, 3, options)


def test_more_parts_than_eigenvalues_suggest_the_most_clusters():
    assert suggest_clusters(np.ones(11)) == 10
    assert suggest_clusters(np.append(np.ones(10), 0.9)) == 10


def test_the_largest_gap_suggests_how_many_clusters():
    assert suggest_clusters(np.array([1, 0.99, 0.98, 0.5, 0.4])) == 3
    assert suggest_clusters(np.array([1, 0.4, 0.39, 0.38])) == 2
    assert suggest_clusters(np.array([1, 0.4])) == 2
