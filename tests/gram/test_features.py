"""Features of kernels: their inner products against the kernels themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from kernelmosaic import MKLClassifier
from kernelmosaic.gram.factory import make_feature_stack
from kernelmosaic.gram.feature_maps import ColumnsMap, FeatureMaps, FourierMap, NystroemMap
from kernelmosaic.gram.feature_stack import ComputedFeatures, StoredFeatures
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.options import PassOptions
from kernelmosaic.gram.row_blocks import open_rows
from kernelmosaic.gram.stack import make_stack
from kernelmosaic.kernels import Gaussian, Laplacian, Linear, Polynomial, Precomputed, Spectrum
from kernelmosaic.kernels.views import lay_specs, read_kernels
from kernelmosaic.machines.base import SVC
from kernelmosaic.solvers.factored import solve_factored
from kernelmosaic.solvers.tuning import SolverOptions

RNG = np.random.RandomState(0)
X = RNG.standard_normal((60, 5)) + np.array([2.0, 0.0, 0.0, -1.0, 0.0])
WEIGHT = RNG.uniform(0.1, 2.0, size=60)
KERNELS = [
    Gaussian(2.0),
    Gaussian(5.0),
    Polynomial(2),
    Linear(),
    ("some", Gaussian("median"), [1, 3]),
]


def tiles_of(kernels, samples):
    return lay_specs(read_kernels(kernels), samples)


def fit(kernels, samples, rank=500, normalize=None, weight=None, approximation="nystroem", seed=0):
    rows = open_rows(samples)
    kernel_set = FeatureMaps.fit(
        tiles_of(kernels, samples), rows, normalize, weight, approximation, rank, random_state=seed
    )
    return kernel_set, make_feature_stack(kernel_set, rows)


def approximated(stack):
    """The kernels' matrices, from the features."""
    return np.array(
        [
            Z.astype(float) @ Z.T
            for _, Z in sorted(stack.features(slice(0, stack.n_samples), range(stack.n_kernels)))
        ]
    )


def exact(kernels, samples, normalize=None, weight=None):
    kernel_set = KernelSet.fit(tiles_of(kernels, samples), samples, normalize, weight)
    return make_stack(kernel_set, kernel_set.views(samples), dtype=np.float64).matrices


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("normalize", ["trace", "diagonal", "centered", None])
def test_with_every_sample_for_a_landmark_features_give_the_kernels(normalize, weight):
    _, stack = fit(KERNELS, X, normalize=normalize, weight=weight)
    K = exact(KERNELS, X, normalize, weight)
    np.testing.assert_allclose(approximated(stack), K, atol=1e-9 * np.abs(K).max())


def test_samples_need_not_be_numbers():
    words = np.array([["gattaca"], ["gatt"], ["tacat"], ["cat"], ["acatac"]], dtype=object)
    np.testing.assert_allclose(
        approximated(fit([Spectrum(2)], words, normalize="diagonal")[1]),
        exact([Spectrum(2)], words, "diagonal"),
        atol=1e-9,
    )
    rows, K = np.arange(60)[:, np.newaxis], X @ X.T
    np.testing.assert_allclose(
        approximated(fit([Precomputed(K)], rows)[1])[0], K, atol=1e-9 * K.max()
    )


def test_sparse_samples_with_more_columns_than_anyone_could_store():
    rng = np.random.RandomState(0)
    columns = np.sort(rng.randint(50, size=(40, 20)) * 200_000, axis=1)
    S = sparse.csr_matrix(
        (rng.rand(800), columns.ravel(), np.arange(0, 801, 20)), shape=(40, 10_000_000)
    )
    S.sum_duplicates()
    kernels = [Gaussian(1.0), Linear()]
    kernel_set, stack = fit(kernels, S)
    assert [type(one) for one in kernel_set.maps] == [NystroemMap, NystroemMap]
    products = (S @ S.T).toarray()
    norms = np.diag(products)
    K = np.stack([np.exp(2 * products - norms - norms[:, np.newaxis]), products])
    np.testing.assert_allclose(approximated(stack), K, atol=1e-9)


def test_landmarks_are_chosen_by_what_samples_hold(tmp_path):
    """The same samples in another order, in sparse form, on a disk or each given twice have the
    same landmarks."""
    rng = np.random.default_rng(0)
    Z, order = rng.normal(size=(90, 3)), rng.permutation(90)
    np.save(tmp_path / "rows.npy", Z)
    kernels = tiles_of([Gaussian(2.0)], Z)

    def landmarks(samples, seed=0):
        maps = FeatureMaps.fit(kernels, open_rows(samples), None, rank=12, random_state=seed)
        view = maps.landmarks[0]
        return view.toarray() if sparse.issparse(view) else np.asarray(view)

    expected = landmarks(Z)
    assert expected.shape == (12, 3)
    others = [
        Z[order],
        sparse.csr_matrix(Z),
        np.load(tmp_path / "rows.npy", mmap_mode="r"),
        np.tile(Z, (2, 1)),
    ]
    for samples in others:
        np.testing.assert_allclose(landmarks(samples), expected)
    assert not np.allclose(landmarks(Z, seed=1), expected)
    # Where there are fewer distinct samples than landmarks, repeated ones fill up.
    assert landmarks(np.tile(Z[:8], (3, 1))).shape == (12, 3)


def test_a_product_of_kernels_is_one_kernel():
    kernels = [("both", Gaussian(2.0) * Polynomial(2), [0, 1])]
    _, stack = fit(kernels, X, normalize="trace")
    K = exact(kernels, X, "trace")
    assert len(K) == 1
    np.testing.assert_allclose(approximated(stack), K, atol=1e-8 * K.max())


def test_nystroem_is_the_projection_onto_the_landmarks():
    kernel_set, stack = fit([Gaussian(2.0)], X, rank=15)
    L = kernel_set.landmarks[0][:15]
    k = lambda A, B: np.exp(-((A[:, None] - B[None]) ** 2).sum(-1) / 4.0)  # noqa: E731
    np.testing.assert_allclose(
        approximated(stack)[0], k(X, L) @ np.linalg.pinv(k(L, L)) @ k(L, X), atol=1e-9
    )
    # What is left is positive semi-definite: no landmark makes the approximation worse.
    assert np.linalg.eigvalsh(k(X, X) - approximated(stack)[0]).min() > -1e-10


def test_kernels_of_the_same_columns_have_landmarks_of_their_own():
    def projected(V, L, width):
        k = lambda A, B: np.exp(-((A[:, None] - B[None]) ** 2).sum(-1) / width**2)  # noqa: E731
        return k(V, L) @ np.linalg.pinv(k(L, L), 1e-12) @ k(L, V)

    kernel_set, stack = fit(
        [Gaussian(2.0), Gaussian(3.0), ("part", Gaussian(2.0), [0, 1])], X, rank=[10, 15, 20]
    )
    pool, part = kernel_set.landmarks[0], kernel_set.landmarks[2]
    assert len(np.unique(pool, axis=0)) == 25
    K = approximated(stack)
    np.testing.assert_allclose(K[0], projected(X, pool[:10], 2), atol=1e-8)
    np.testing.assert_allclose(K[1], projected(X, pool[10:25], 3), atol=1e-8)
    # Other columns may be those of the same samples.
    np.testing.assert_allclose(K[2], projected(X[:, :2], part[:20], 2), atol=1e-8)


@pytest.mark.parametrize(
    ("rank", "firsts"), [(20, [0, 20, 40]), (30, [0, 15, 30]), (60, [0, 0, 0]), (99, [0, 0, 0])]
)
def test_landmarks_overlap_where_samples_are_too_few(rank, firsts):
    kernel_set, _ = fit([Gaussian(2.0), Gaussian(3.0), Gaussian(4.0)], X, rank=rank)
    assert [one.landmark_range[0] for one in kernel_set.maps] == firsts
    assert [len(one.root) for one in kernel_set.maps] == [min(rank, 60)] * 3


def test_kernels_may_differ_in_rank():
    kernel_set, _ = fit([Gaussian(2.0), Gaussian(3.0), Polynomial(2)], X, rank=[5, 20, 11])
    assert [len(one.root) for one in kernel_set.maps] == [5, 20, 11]
    assert list(kernel_set.widths) == [5, 20, 11]
    alone, _ = fit([Gaussian(2.0)], X, rank=5)
    fresh = np.random.RandomState(1).standard_normal((7, 5))
    first = dict(kernel_set.blocks(fresh, [0]))[0]
    chosen = dict(kernel_set.take([0]).blocks(fresh, [0]))[0]
    np.testing.assert_array_equal(first, chosen)
    assert first.shape == dict(alone.blocks(fresh, [0]))[0].shape


def best_of_rank(K, rank):
    values, V = np.linalg.eigh(K)
    return (V[:, -rank:] * values[-rank:]) @ V[:, -rank:].T


@pytest.mark.parametrize("normalize", [None, "centered"])
def test_leading_features_are_the_best_of_their_number(normalize):
    kernels = [Gaussian(2.0), Linear(), Polynomial(2)]
    _, stack = fit(kernels, X, rank=3, normalize=normalize, approximation="leading")
    K = exact(kernels, X)
    for m, found in enumerate(approximated(stack)):
        best = best_of_rank(
            K[m]
            if normalize is None
            else K[m] - K[m].mean(0) - K[m].mean(0)[:, None] + K[m].mean(),
            3,
        )
        best = best if normalize is None else best / np.trace(best) * len(X)
        np.testing.assert_allclose(found, best, atol=1e-9 * np.abs(best).max())


def test_leading_features_leave_out_no_larger_share_of_a_kernel():
    kernels = [Gaussian(2.0), Linear()]
    kernel_set, stack = fit(kernels, X, rank=0.2, approximation="leading")
    for K, found, width in zip(
        exact(kernels, X), approximated(stack), kernel_set.widths, strict=True
    ):
        assert np.trace(K - found) <= 0.2 * np.trace(K) < np.trace(K - best_of_rank(K, width - 1))
    with pytest.raises(ValueError, match=r"rank=1\.5.*below 1"):
        fit(kernels, X, rank=1.5, approximation="leading")


def test_leading_features_of_more_landmarks_than_features_lack_less():
    rng = np.random.RandomState(0)
    noisy = rng.standard_normal((600, 30))
    K = exact([Gaussian("median")], noisy)[0]
    lacking = {
        name: np.trace(
            K - approximated(fit([Gaussian("median")], noisy, rank=40, approximation=name)[1])[0]
        )
        for name in ("nystroem", "leading")
    }
    best = np.trace(K - best_of_rank(K, 40))
    assert lacking["leading"] - best < 0.5 * (lacking["nystroem"] - best)


def test_views_of_sparse_samples_are_the_columns():
    S = sparse.random(30, 40, 0.3, "csr", random_state=0)
    kernels = [(f"k{m}", Linear(), list(range(m, m + 7))) for m in range(6)]
    stack = fit(kernels, S)[1]
    assert stack.form.startswith("42 features outnumber the 30 samples")
    dense = S.toarray()
    np.testing.assert_allclose(
        approximated(stack),
        [dense[:, m : m + 7] @ dense[:, m : m + 7].T for m in range(6)],
        atol=1e-12,
    )


def test_linear_kernels_keep_their_columns():
    kernel_set, stack = fit([Linear()], X, rank=5)
    assert isinstance(kernel_set.maps[0], ColumnsMap)
    np.testing.assert_allclose(approximated(stack)[0], X @ X.T, rtol=1e-12, atol=1e-12)
    assert isinstance(fit([Linear()], X, rank=4)[0].maps[0], NystroemMap)


@pytest.mark.parametrize(
    ("kernel", "formula"),
    [
        (Gaussian(3.0), lambda D, _: np.exp(-D / 9.0)),
        (
            Gaussian(factor=2),
            lambda D, _: np.exp(-D / (4.0 * np.median(D[np.triu_indices(len(D), 1)]))),
        ),
        (2.0 * Gaussian(3.0), lambda D, _: 2.0 * np.exp(-D / 9.0)),
        (Gaussian(3.0) * Gaussian(4.0), lambda D, _: np.exp(-D / 9.0 - D / 16.0)),
        (Laplacian(5.0), lambda _, A: np.exp(-A / 5.0)),
        (Laplacian(5.0) * Gaussian(3.0), lambda D, A: np.exp(-A / 5.0 - D / 9.0)),
    ],
    ids=["gaussian", "factor", "multiple", "product", "laplacian", "mixed product"],
)
def test_fourier_features_approach_the_kernel_with_the_root_of_the_rank(kernel, formula):
    K = formula(((X[:, None] - X[None]) ** 2).sum(-1), np.abs(X[:, None] - X[None]).sum(-1))
    errors = []
    for rank in (50, 800, 12_800):
        specs, rows = tiles_of([kernel], X), open_rows(X)
        squares = []
        for seed in range(
            16
        ):  # pairs share their frequencies, so that one draw may be good or bad for all of them
            kernel_set = FeatureMaps.fit(
                specs, rows, None, None, "fourier", rank, random_state=seed
            )
            assert isinstance(kernel_set.maps[0], FourierMap)
            Z = approximated(StoredFeatures.fill(ComputedFeatures(kernel_set, rows, np.float64)))[0]
            np.testing.assert_allclose(np.diag(Z), np.diag(K), rtol=1e-9)
            squares.append(np.mean((Z - K) ** 2))
        errors.append(np.sqrt(np.mean(squares)) / K.max())
    # The variance of a mean of r/2 cosines is at most one over r.
    assert errors[0] < 1 / np.sqrt(50)
    assert errors[1] < errors[0] / 2.5
    assert errors[2] < errors[1] / 2.5


def test_features_of_new_samples_are_the_same_map():
    for approximation in ("nystroem", "fourier"):
        kernel_set, stack = fit(
            [Gaussian(2.0), Linear()], X, rank=20, normalize="centered", approximation=approximation
        )
        stored = dict(stack.features(slice(3, 9), [0, 1]))
        for m, Z in kernel_set.blocks(X[3:9], [0, 1]):
            np.testing.assert_allclose(Z, stored[m], atol=1e-12)


def test_what_cannot_be_served_says_so():
    with pytest.raises(ValueError, match=r"kernel 'polynomial'.*approximation='fourier'.*nystroem"):
        fit([Polynomial(2)], X, approximation="fourier")
    with pytest.raises(ValueError, match=r"rank=3.*5 columns.*nystroem"):
        fit([Linear()], X, rank=3, approximation="fourier")
    with pytest.raises(ValueError, match=r"rank=1.*pairs"):
        fit([Gaussian(1.0)], X, rank=1, approximation="fourier")
    with pytest.raises(
        ValueError, match=r"approximation='cosine'.*'nystroem', 'leading', 'fourier'"
    ):
        fit([Gaussian(1.0)], X, approximation="cosine")
    with pytest.raises(ValueError, match=r"rank=\[3\].*2 kernels"):
        fit([Gaussian(1.0), Linear()], X, rank=[3])
    for rank in (0, 2.5, True, "many"):
        with pytest.raises(ValueError, match="rank="):
            fit([Gaussian(1.0)], X, rank=rank)


# ---- the stack: every operation against the matrices


@pytest.fixture(params=["stored", "computed"])
def stack(request, monkeypatch):
    rows = open_rows(X)
    kernel_set = FeatureMaps.fit(tiles_of(KERNELS, X), rows, "trace", rank=12, random_state=0)
    if request.param == "stored":
        stored = make_feature_stack(kernel_set, rows)
        assert isinstance(stored, StoredFeatures)
        stored.options = PassOptions(strip_bytes=4000)  # several strips
        return stored
    return ComputedFeatures(kernel_set, rows, np.float64, PassOptions(strip_bytes=8000))


def test_products_and_forms_are_those_of_the_matrices(stack):
    K, rng = approximated(stack), np.random.RandomState(1)
    beta = np.where(rng.rand(60) < 0.5, rng.standard_normal(60), 0.0)
    many = beta[:, np.newaxis] * rng.standard_normal((60, 3))
    some = np.array([4, 7, 30])
    np.testing.assert_allclose(stack.products(beta), K @ beta, atol=1e-10)
    np.testing.assert_allclose(
        stack.products(beta, some, [1, 3])[[1, 3]], (K @ beta)[[1, 3]][:, some], atol=1e-10
    )
    np.testing.assert_allclose(stack.products(many, some), (K @ many)[:, some], atol=1e-10)
    gates = rng.standard_normal((60, len(K)))
    gated = np.einsum("mij,jm,j->mi", K, gates, beta)[:, some]
    np.testing.assert_allclose(stack.gated_products(beta, gates, some), gated, atol=1e-10)
    gated = np.einsum("mij,jm,jc->mic", K, gates, many)[:, some]
    np.testing.assert_allclose(stack.gated_products(many, gates, some), gated, atol=1e-10)
    np.testing.assert_allclose(
        stack.quadratic_forms(beta), 0.5 * np.einsum("i,mij,j->m", beta, K, beta), atol=1e-10
    )
    np.testing.assert_allclose(
        stack.quadratic_forms(many), 0.5 * np.einsum("ic,mij,jc->m", many, K, many), atol=1e-9
    )
    np.testing.assert_allclose(stack.row_block(2, some), K[2][some], atol=1e-10)


def test_matrices_of_a_part_are_those_of_the_features(stack):
    assert stack.part_samples == 0  # of so few features the start is all samples
    rows = np.array([3, 8, 9, 41])
    K = approximated(stack)[:, rows][:, :, rows]
    np.testing.assert_allclose(stack.take(rows).matrices, K, rtol=1e-5, atol=1e-6)


def test_a_search_over_many_features_starts_from_a_part_and_ends_at_the_same_weights():
    rng = np.random.RandomState(0)
    many = sparse.random(1050, 1100, 0.2, format="csr", random_state=0)
    y = np.where(
        many[:, :5].sum(axis=1).A1 - many[:, 150:155].sum(axis=1).A1 + 0.1 * rng.randn(1050) > 0,
        1.0,
        -1.0,
    )
    sets = [(f"set {k}", Linear(), np.arange(100 * k, 100 * k + 100)) for k in range(11)]
    features = MKLClassifier(sets, C=0.1, approximation="nystroem", rank=100).fit(many, y)
    assert features.function_.expansion.kernel_set.widths.max() == 100
    matrices = MKLClassifier(sets, C=0.1).fit(many, y)
    assert features.duality_gap_ <= 1e-3
    np.testing.assert_allclose(features.objective_, matrices.objective_, rtol=2e-3)
    np.testing.assert_allclose(features.weights_, matrices.weights_, atol=0.05)
    _, stack = fit(
        [("all", Linear(), np.arange(550)), ("rest", Linear(), np.arange(550, 1100))],
        many,
        rank=600,
    )
    assert stack.part_samples == int(np.sqrt(1050 * 1100 / 2))


def test_a_few_columns_of_sparse_samples_are_read_as_an_array():
    thin = sparse.csr_matrix(np.where(X > 0.5, X, 0.0))
    specs = tiles_of([("few", Gaussian(), [0, 2]), ("all", Linear())], thin)
    views = KernelSet.fit(specs, thin, None).views(thin)
    np.testing.assert_array_equal(views[0], thin.toarray()[:, [0, 2]])
    wide = sparse.hstack([thin] * 120, format="csr")
    assert sparse.issparse(KernelSet.fit(tiles_of([Linear()], wide), wide, None).views(wide)[0])


@pytest.mark.parametrize("gated", [False, True], ids=["weights", "gates"])
def test_the_combined_kernel_does_to_vectors_what_its_matrix_does(stack, gated):
    K, rng = approximated(stack), np.random.RandomState(2)
    if gated:
        gates = np.abs(rng.standard_normal((60, len(K))))
        gates[:, 1] = 0.0
        gram, full = stack.combine(gates), np.einsum("im,mij,jm->ij", gates, K, gates)
    else:
        eta = np.array([0.3, 0.0, 0.5, 0.1, 0.1])
        gram, full = stack.combine(eta), np.tensordot(eta, K, axes=1)
    Z = gram.rows(np.arange(60))
    assert Z.shape == (60, gram.n_features) == (60, stack.widths.sum() - stack.widths[1])
    np.testing.assert_allclose(Z @ Z.T, full, atol=1e-10)
    V, W, theta = (
        rng.standard_normal((60, 2)),
        rng.standard_normal((gram.n_features, 2)),
        rng.rand(60),
    )
    V[::3] = 0.0
    theta[::4] = 0.0
    np.testing.assert_allclose(gram.adjoint(V), Z.T @ V, atol=1e-10)
    np.testing.assert_allclose(gram.adjoint(V[:, 0]), Z.T @ V[:, 0], atol=1e-10)
    np.testing.assert_allclose(gram.apply(W), Z @ W, atol=1e-10)
    np.testing.assert_allclose(gram.diagonal(), np.diag(full), atol=1e-10)
    Z1 = np.column_stack([Z, np.ones(60)])
    np.testing.assert_allclose(
        gram.normal_matrix(theta), (Z1 * theta[:, np.newaxis]).T @ Z1, atol=1e-10
    )
    np.testing.assert_allclose(
        gram.rows(np.array([9, 2, 30])), Z[[9, 2, 30]], rtol=0, atol=1e-13 * np.abs(Z).max()
    )


def test_double_precision_is_that_of_one_kernel_not_of_its_stack():
    Z, theta = (
        np.random.RandomState(0).standard_normal((60, 4)).astype(np.float32),
        np.linspace(0.1, 1.0, 60),
    )
    gram = StoredFeatures([Z]).combine(np.ones(1))
    before, precise = gram.normal_matrix(theta), gram.in_double()
    Z1 = np.column_stack([Z.astype(np.float64), np.ones(60)])
    expected = (Z1 * theta[:, np.newaxis]).T @ Z1
    np.testing.assert_allclose(precise.normal_matrix(theta), expected, rtol=1e-12)
    assert np.abs(before - expected).max() > 1e-9  # in single precision
    assert precise.in_double() is None
    for other in (gram, gram.stack.combine(np.ones(1))):
        np.testing.assert_array_equal(other.normal_matrix(theta), before)
    # Nor do solves that need it leave it behind.
    y = np.where(Z[:, 0] + 0.1 * Z[:, 1] ** 2 > 0, 1.0, -1.0)
    solve_factored(gram, SVC(y, C=1e4).program, tol=1e-14, options=SolverOptions(few_samples=0))
    np.testing.assert_array_equal(gram.stack.combine(np.ones(1)).normal_matrix(theta), before)


def test_how_features_are_kept_depends_on_the_budget():
    rows = open_rows(X)
    kernel_set = FeatureMaps.fit(tiles_of([Gaussian(2.0)], X), rows, None, rank=20, random_state=0)
    small = 5 * 8 * 21**2
    assert make_feature_stack(kernel_set, rows, small + 8 * 60 * 20).dtype == np.float64
    few = PassOptions(double_bytes=100)
    single = make_feature_stack(kernel_set, rows, small + 4 * 60 * 20, options=few)
    assert isinstance(single, StoredFeatures)
    assert single.dtype == np.float32
    computed = make_feature_stack(kernel_set, rows, small + 4 * 60 * 20 - 1, options=few)
    assert isinstance(computed, ComputedFeatures)
    with pytest.raises(MemoryError, match=r"20 features need.*lower rank"):
        make_feature_stack(kernel_set, rows, small - 1)


def test_fourier_features_of_sparse_samples():
    some = sparse.random(30, 600, density=0.05, format="csr", random_state=0)
    model = MKLClassifier([Gaussian(2.0)], approximation="fourier", random_state=0).fit(
        some, np.arange(30) % 2
    )
    np.testing.assert_allclose(
        model.decision_function(some), model.decision_function(some.toarray()), atol=1e-12
    )
