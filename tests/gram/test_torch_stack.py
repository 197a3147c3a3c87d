"""The stack on a torch device against NumPy on whole matrices, stored or recomputed, and what it
refuses."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from kernelmosaic.backend import (
    has_device,
    is_tensor,
    require_device,
    tensor_device,
    to_host,
    torch_backend,
)
from kernelmosaic.gram.gram import DenseGram
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.gram.stack import make_stack as make_any_stack
from kernelmosaic.kernels import Correlation, Gaussian, Laplacian, Linear, Polynomial, family
from kernelmosaic.kernels.base import StatisticKernel
from kernelmosaic.kernels.views import lay_specs, read_kernels

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Bell(StatisticKernel):
    """A formula for arrays alone, which the host has to evaluate."""

    statistic = "squared_distances"

    def from_statistic(self, S):
        if not isinstance(S, np.ndarray):
            raise TypeError("arrays only")
        return 1.0 / (1.0 + S)


class Handed(StatisticKernel):
    """Hands the statistic on as it is, which others share."""

    statistic = "products"

    def from_statistic(self, S):
        return S


#: The last has no formula on the device; two read other columns than the rest.
KERNELS = [
    Linear(),
    Polynomial(3, offset=0.5),
    *family(Gaussian(), width=[0.5, 2.0]),
    ("part", Gaussian(1.0), [0, 2]),
    Correlation(),
]
P, N = len(KERNELS), 57


@pytest.fixture(scope="module")
def samples():
    # Far from the origin: distances from squared norms would lose digits.
    return np.random.default_rng(0).normal(size=(N, 4)) + 30.0


def make_stack(*args, **options):
    """Return a stack whose operations take many squares, of 16 × 16 entries."""
    return make_any_stack(*args, working_bytes=3 * 8 * 16**2, **options)


def fit(X, kernels=KERNELS, normalize="trace"):
    return KernelSet.fit(lay_specs(read_kernels(kernels), X), X, normalize)


def whole(kernel_set, X):
    """The matrices, one kernel at a time by its own code on the host."""
    views = kernel_set.views(X)
    return np.array([next(kernel_set.blocks(views, views, [m]))[1] for m in range(len(kernel_set))])


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "recomputed"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["single", "double"])
@pytest.mark.parametrize("normalize", ["trace", "diagonal", "centered", None])
class TestOperations:
    @pytest.fixture
    def matrices(self, samples, normalize):
        return whole(fit(samples, normalize=normalize), samples)

    @pytest.fixture
    def stack(self, samples, normalize, dtype, stored):
        kernel_set = fit(samples, normalize=normalize)
        budget = (P + 2) * N * N * np.dtype(dtype).itemsize * (1.0 if stored else 0.4)
        stack = make_stack(
            kernel_set, kernel_set.views(samples), dtype=dtype, budget=budget, device="cpu"
        )
        assert isinstance(stack, StoredStack) == stored
        return stack

    @pytest.fixture
    def close(self, dtype, matrices):
        scale = np.abs(matrices).max()
        return {"rtol": 0, "atol": scale * (3e-6 if dtype == np.float32 else 1e-11)}

    def test_combine(self, stack, matrices, close):
        weights = np.array([0.5, 0.0, 2.0, 0.0, 1.0, 0.25])
        gram = stack.combine(weights)
        K = np.asarray(gram)
        assert isinstance(gram, DenseGram)
        assert gram.dtype == stack.dtype
        np.testing.assert_allclose(K, np.tensordot(weights, matrices, 1), **close)
        assert np.array_equal(K, K.T)

    def test_combine_into_a_used_matrix(self, stack, matrices, close):
        used = stack.combine(np.ones(P))
        used.matrix.fill_(torch.nan)
        weights = np.arange(P) / P
        again = stack.combine(weights, out=used)
        assert again.matrix is used.matrix
        np.testing.assert_allclose(np.asarray(again), np.tensordot(weights, matrices, 1), **close)

    def test_combine_gated(self, stack, matrices, close):
        gates = np.random.default_rng(1).uniform(size=(N, P))
        gates[:, 1] = 0.0
        expected = sum(np.outer(gates[:, m], gates[:, m]) * matrices[m] for m in range(P))
        gram = stack.combine(gates)
        np.testing.assert_allclose(np.asarray(gram), expected, **close)
        # Combining must not have changed what is stored.
        np.testing.assert_allclose(np.asarray(stack.combine(gates)), expected, **close)

    def test_combine_classes(self, stack, matrices, close):
        weights = np.random.default_rng(2).uniform(size=(3, P))
        weights[0, 2:], weights[:, 1] = 0.0, 0.0
        classes = stack.combine_classes(weights)
        expected = np.tensordot(weights, matrices, 1)
        some = np.array([3, 4, 40])
        np.testing.assert_allclose(classes.block(some), expected[:, some][:, :, some], **close)
        beta = np.random.default_rng(3).normal(size=(N, 3))
        beta[10:] = 0.0
        close["atol"] *= np.abs(beta).sum()
        np.testing.assert_allclose(
            classes.products(beta), np.einsum("cij,jc->ic", expected, beta), **close
        )

    @pytest.mark.parametrize("columns", [None, 3])
    def test_products_and_forms(self, stack, matrices, close, columns):
        rng = np.random.default_rng(3)
        beta = rng.normal(size=N if columns is None else (N, columns))
        beta[rng.random(N) < 0.6] = 0.0
        close["atol"] *= np.abs(beta).sum()
        expected = np.einsum("mij,j...->mi...", matrices, beta)
        np.testing.assert_allclose(stack.products(beta), expected, **close)
        forms = 0.5 * np.array([np.sum(beta * one) for one in expected])
        close["atol"] *= np.abs(beta).max()
        np.testing.assert_allclose(stack.quadratic_forms(beta), forms, **close)

    def test_products_at_some_rows_of_some_kernels(self, stack, matrices, close):
        beta, rows = np.random.default_rng(4).normal(size=N), np.array([40, 3, 17])
        close["atol"] *= np.abs(beta).sum()
        found = stack.products(beta, rows, [1, 4])
        np.testing.assert_allclose(found[[1, 4]], (matrices @ beta)[[1, 4]][:, rows], **close)
        assert not found[[0, 2, 3, 5]].any()

    def test_blocks_come_to_the_host(self, stack, matrices, close):
        rows, columns = np.array([1, 5, 9, 56]), slice(10, 31)
        for m, block in stack.blocks([0, 3, 5], rows, columns):
            assert isinstance(block, np.ndarray)
            np.testing.assert_allclose(block, matrices[m][rows, columns], **close)

    def test_exact_products_are_in_double_precision(self, stack, matrices, dtype):
        rng = np.random.default_rng(5)
        weights, gates = rng.uniform(size=P), rng.uniform(size=(N, P))
        columns = rng.normal(size=(N, 2)) * (np.arange(N) % 3 == 0)[:, None]
        support = np.array([0, 8, 33, 50])
        beta = rng.normal(size=4)
        for gram, K in (
            (stack.combine(weights), np.tensordot(weights, matrices, 1)),
            (
                stack.combine(gates),
                sum(np.outer(g, g) * K for g, K in zip(gates.T, matrices, strict=True)),
            ),
        ):
            scale = np.abs(K).max()
            np.testing.assert_allclose(
                gram.products(columns, exact=True), K @ columns, atol=1e-9 * scale
            )
            rough = 1e-4 if dtype == np.float32 else 1e-9
            np.testing.assert_allclose(gram.products(columns), K @ columns, atol=rough * scale)
            np.testing.assert_allclose(
                gram.block(support), K[np.ix_(support, support)], atol=rough * scale
            )
            assert (gram.exact is None) == (dtype == np.float64)
            if gram.exact is not None:
                expected = K[:, support] @ beta
                np.testing.assert_allclose(
                    gram.exact(support, beta), expected, atol=1e-10 * np.abs(K).max()
                )
                shifted = gram.add_diagonal(np.arange(N, dtype=float))
                expected[support] += support * beta
                np.testing.assert_allclose(
                    shifted.exact(support, beta), expected, atol=1e-10 * np.abs(K).max()
                )


def test_no_beta_no_product(samples):
    kernel_set = fit(samples)
    stack = make_stack(kernel_set, kernel_set.views(samples), device="cpu")
    assert not stack.products(np.zeros(N)).any()
    assert stack.products(np.ones(N), np.zeros(0, dtype=int)).shape == (P, 0)


def test_a_product_of_kernels(samples):
    kernel_set = fit(samples, [Gaussian(2.0) * Polynomial(2)], None)
    stack = make_stack(kernel_set, kernel_set.views(samples), device="cpu")
    D = ((samples[:, None] - samples) ** 2).sum(-1)
    expected = np.exp(-D / 4.0) * (samples @ samples.T + 1.0) ** 2
    np.testing.assert_allclose(
        np.asarray(stack.combine(np.array([2.0]))), 2.0 * expected, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("normalize", ["trace", "diagonal", "centered", None])
def test_kernels_of_other_statistics_and_of_others(samples, normalize):
    kernels = [Laplacian(3.0), Bell(), Gaussian(2.0), Handed(), Polynomial(2)]
    expected = [
        np.exp(-np.abs(samples[:, None] - samples).sum(-1) / 3.0),
        1.0 / (1.0 + ((samples[:, None] - samples) ** 2).sum(-1)),
        np.exp(-((samples[:, None] - samples) ** 2).sum(-1) / 4.0),
        samples @ samples.T,
        (samples @ samples.T + 1.0) ** 2,
    ]
    if normalize == "centered":
        H = np.eye(N) - 1.0 / N
        expected = [H @ K @ H for K in expected]
    if normalize in ("centered", "trace"):
        expected = [K / np.mean(np.diag(K)) for K in expected]
    if normalize == "diagonal":
        expected = [K / np.sqrt(np.outer(np.diag(K), np.diag(K))) for K in expected]
    kernel_set = fit(samples, kernels, normalize)
    stack = make_stack(kernel_set, kernel_set.views(samples), device="cpu", budget=2.5 * 8 * N * N)
    weights = np.arange(1.0, 6.0)
    total = np.tensordot(weights, expected, 1)
    np.testing.assert_allclose(
        np.asarray(stack.combine(weights)), total, atol=1e-10 * np.abs(total).max()
    )
    for m, weights in enumerate(np.eye(5)):
        scale = np.abs(expected[m]).max()
        np.testing.assert_allclose(
            np.asarray(stack.combine(weights)), expected[m], atol=1e-10 * scale
        )


def test_the_diagonal_is_exact_however_narrow_the_kernel(samples):
    kernel_set = fit(samples, [Gaussian(1e-9)], None)
    for dtype in (np.float32, np.float64):
        stack = make_stack(kernel_set, kernel_set.views(samples), device="cpu", dtype=dtype)
        assert np.array_equal(np.asarray(stack.combine(np.ones(1))), np.eye(N))


def test_sparse_samples():
    from scipy import sparse

    X = sparse.random(40, 9, 0.3, "csr", random_state=0)
    kernel_set = fit(X, [Linear(), Gaussian(1.0)])
    stack = make_stack(kernel_set, kernel_set.views(X), device="cpu")
    expected = whole(fit(X.toarray(), [Linear(), Gaussian(1.0)]), X.toarray()).sum(axis=0)
    np.testing.assert_allclose(np.asarray(stack.combine(np.ones(2))), expected, atol=1e-10)


def test_test_blocks_on_the_device(samples):
    kernel_set = fit(samples, normalize="diagonal")
    rng = np.random.default_rng(6)
    X, right = rng.normal(size=(83, 4)) + 30.0, rng.normal(size=(N, 2))
    views, support = kernel_set.views(X), kernel_set.views(samples)
    out = kernel_set.products(views, support, right, "cpu", 300, 11)
    for m, K in kernel_set.blocks(views, support, range(P)):
        np.testing.assert_allclose(out[m], K @ right, atol=1e-8)


# ---- refusals


def test_a_matrix_that_does_not_fit_is_not_stored_and_its_form_says_how_much_it_needs(samples):
    kernel_set = fit(samples)
    stack = make_stack(kernel_set, kernel_set.views(samples), device="cpu", budget=1000)
    assert not stack.stores_combined
    assert (
        "57 x 57 kernel matrix needs 25.4 KiB on cpu, the budget is 1000 B: entries are computed"
        in stack.form
    )


@pytest.mark.parametrize("device", ["gpu", "meta", 3.5, "cuda:99"])
def test_devices_that_are_none(device):
    with pytest.raises(ValueError, match="device="):
        require_device(device)
    assert not has_device(device)


def test_torch_that_is_missing(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"kernelmosaic\[gpu\]"):
        require_device("cuda")
    assert not has_device("cpu")


def test_where_samples_are():
    X = torch.ones(3, 2)
    assert is_tensor(X)
    assert tensor_device(X) is None
    assert isinstance(to_host(X), np.ndarray)
    assert not is_tensor(np.ones(2))
    assert tensor_device(np.ones(2)) is None


# ---- straight from the samples


def plain_combine(XT, rates, weights, out):
    D = torch.cdist(XT.T, XT.T) ** 2
    out.copy_(sum(w * torch.exp(r * D) for r, w in zip(rates, weights, strict=True)))
    return True


def plain_multiply(LT, R, rates, beta, exact):
    D = torch.cdist(LT.T, R) ** 2
    return torch.stack([torch.exp(r * D) @ b for r, b in zip(rates, beta, strict=True)])


def test_compiled_passes_get_what_they_need(samples, monkeypatch):
    """The passes themselves need a GPU, and check themselves there; here plain operations stand in
    for them."""
    from kernelmosaic.gpu import _torch_passes

    calls = []

    def counted(work):
        return lambda *args: calls.append(work.__name__) or work(*args)

    monkeypatch.setattr(_torch_passes, "combine_directly", counted(plain_combine))
    monkeypatch.setattr(_torch_passes, "multiply_directly", counted(plain_multiply))
    kernels = [
        Linear(),
        *family(Gaussian(), width=[1.0, 3.0, 9.0]),
        ("part", Gaussian(1.0), [0, 2]),
    ]
    kernel_set = fit(samples, kernels)
    matrices = whole(kernel_set, samples)
    stack = make_stack(
        kernel_set, kernel_set.views(samples), device="cpu", dtype=np.float32, budget=3 * 4 * N * N
    )
    weights = np.array([0.0, 0.5, 0.0, 2.0, 0.0])
    gram = stack.combine(weights)
    np.testing.assert_allclose(np.asarray(gram), np.tensordot(weights, matrices, 1), atol=1e-4)
    beta, rows = np.random.default_rng(0).normal(size=N), np.array([5, 2, 50])
    np.testing.assert_allclose(
        stack.products(beta, rows, [3, 1])[[1, 3]], (matrices @ beta)[[1, 3]][:, rows], atol=1e-4
    )
    np.testing.assert_allclose(
        gram.exact(np.arange(N), beta), np.tensordot(weights, matrices, 1) @ beta, atol=1e-4
    )
    assert calls == ["plain_combine", "plain_multiply", "plain_multiply"]
    # Anything but Gaussians of the same columns takes the other way.
    for active in ([0, 1], [1, 4]):
        weights = np.isin(np.arange(5), active).astype(float)
        np.testing.assert_allclose(
            np.asarray(stack.combine(weights)), matrices[active].sum(axis=0), atol=1e-4
        )
    stack.products(beta)
    assert len(calls) == 3


def test_no_compiled_passes_on_the_host():
    from kernelmosaic.gpu._torch_passes import available, combine_directly, multiply_directly

    X = torch.zeros(3, 2, dtype=torch.float64)
    assert not combine_directly(X.T, [-1.0], [1.0], torch.empty(3, 3))
    assert multiply_directly(X.T, X, [-1.0], torch.ones(1, 3), True) is None
    assert not available(torch.device("cpu"))


def product_of_gaussians(X, rates, beta):
    D = ((X[:, None] - X[None]) ** 2).sum(-1)
    return np.stack([np.exp(rate * D) @ own for rate, own in zip(rates, beta, strict=True)])


@pytest.mark.parametrize("unit", [1e-100, 1.0, 1e30])
def test_products_in_single_precision_are_in_units_of_their_own(unit, monkeypatch):
    from kernelmosaic.gpu import _torch_passes

    def in_single_precision(LT, R, rates, beta):
        D = ((LT.T.float()[:, None] - R.float()[None]) ** 2).sum(-1)
        return torch.stack(
            [torch.exp(rate * D) @ own.float() for rate, own in zip(rates, beta, strict=True)]
        ).double()

    monkeypatch.setattr(_torch_passes, "_rough_available", lambda device: True)
    monkeypatch.setattr(_torch_passes, "_multiply_roughly", in_single_precision)
    random = np.random.RandomState(0)
    X, beta, rates = random.standard_normal((40, 3)), random.standard_normal((2, 40)), [-0.3, -2.0]
    # Samples, widths and coefficients that single precision has no numbers for.
    scaled = torch.as_tensor((X + 7.0) * unit)
    narrow = [rate / unit / unit for rate in rates]
    found = _torch_passes._roughly(scaled.T, scaled, narrow, torch.as_tensor(1e60 * beta))
    np.testing.assert_allclose(found / 1e60, product_of_gaussians(X, rates, beta), atol=1e-5)
    # Widths far below what is left of the samples' distances in single precision.
    assert (
        _torch_passes._roughly(
            scaled.T, scaled, [1e5 * rate for rate in narrow], torch.as_tensor(beta)
        )
        is None
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("n", "features"), [(5, 1), (301, 7), (1000, 20), (400, 64), (300, 100)])
def test_compiled_products_on_a_device(n, features):
    from kernelmosaic.gpu._torch_passes import multiply_directly

    random = np.random.RandomState(1)
    X, beta, rates = (
        random.standard_normal((n, features)),
        random.standard_normal((3, n)),
        [-0.01, -0.1, -1.0],
    )
    there = torch.as_tensor(X, device="cuda")
    for exact, allowed in ((True, 1e-9), (False, 1e-4)):
        found = multiply_directly(
            there.T, there, rates, torch.as_tensor(beta, device="cuda"), exact
        )
        np.testing.assert_allclose(found.cpu(), product_of_gaussians(X, rates, beta), atol=allowed)


def test_a_backend_is_one_object_after_a_journey_to_another_process():
    assert pickle.loads(pickle.dumps(torch_backend("cpu"))) is torch_backend("cpu")
