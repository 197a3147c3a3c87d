"""Features on a device against the same features in this process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelmosaic import MKLClassifier, MKLRegressor
from kernelmosaic.gram import feature_stack
from kernelmosaic.gram.factory import make_feature_stack
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.options import PassOptions
from kernelmosaic.gram.row_blocks import open_rows
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.kernels.views import lay_specs, read_kernels

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.torch

KERNELS = {
    "fourier": [Gaussian(1.5), Linear(), Gaussian(4.0)],
    "nystroem": [Gaussian(1.5), Polynomial(2), Linear(), Gaussian(4.0)],
}


def make_stacks(approximation, normalize, n=60, **there):
    X = np.random.RandomState(0).randn(n, 4) + 3.0
    rows = open_rows(X)
    specs = lay_specs(read_kernels(KERNELS[approximation]), X)
    kernel_set = FeatureMaps.fit(specs, rows, normalize, None, approximation, 12, 0)
    return make_feature_stack(kernel_set, rows), make_feature_stack(
        kernel_set, rows, device="cpu", **there
    )


@pytest.mark.parametrize("normalize", ["trace", "diagonal", "centered", None])
@pytest.mark.parametrize("approximation", ["fourier", "nystroem"])
def test_operations_agree(approximation, normalize):
    here, there = make_stacks(approximation, normalize)
    rng = np.random.RandomState(1)
    n, P = here.n_samples, here.n_kernels
    beta = np.where(rng.rand(n) < 0.5, rng.randn(n), 0.0)
    some = np.array([3, 17, 40])
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(there.products(beta), here.products(beta), **close)
    np.testing.assert_allclose(
        there.products(beta, some, [1]), here.products(beta, some, [1]), **close
    )
    np.testing.assert_allclose(there.quadratic_forms(beta), here.quadratic_forms(beta), **close)
    np.testing.assert_allclose(
        there.products(np.stack([beta, -beta], 1)),
        here.products(np.stack([beta, -beta], 1)),
        **close,
    )
    weights = np.array([0.5, 0.0, 2.0, 1.0])[:P]
    gates = rng.rand(n, P)
    for right in (beta, np.stack([beta, -2 * beta], 1)):
        np.testing.assert_allclose(
            there.gated_products(right, gates, some),
            here.gated_products(right, gates, some),
            **close,
        )
    for a, b in [
        (here.combine(weights), there.combine(weights)),
        (here.combine(gates), there.combine(gates)),
    ]:
        W = rng.randn(a.n_features)
        theta = np.where(rng.rand(n) < 0.7, rng.rand(n), 0.0)
        assert a.n_features == b.n_features
        np.testing.assert_allclose(b.apply(W), a.apply(W), **close)
        np.testing.assert_allclose(b.adjoint(beta), a.adjoint(beta), **close)
        np.testing.assert_allclose(b.normal_matrix(theta), a.normal_matrix(theta), **close)
        np.testing.assert_allclose(b.rows(some), a.rows(some), **close)
        np.testing.assert_allclose(b.diagonal(), a.diagonal(), **close)


def test_normal_matrix_in_blocks_of_columns_and_strips():
    here, there = make_stacks("nystroem", "trace", options=PassOptions(4000, columns=7, sparse=0.5))
    theta = np.random.RandomState(2).rand(60)
    ones = np.ones(here.n_kernels)
    np.testing.assert_allclose(
        there.combine(ones).normal_matrix(theta), here.combine(ones).normal_matrix(theta), rtol=1e-9
    )


@pytest.mark.parametrize("approximation", ["fourier", "nystroem"])
def test_fits_agree(approximation):
    rng = np.random.RandomState(3)
    X = rng.randn(300, 4)
    y = X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * rng.randn(300)
    settings = {"approximation": approximation, "rank": 30, "random_state": 0, "tol": 1e-6}
    kernels = [Gaussian(1.0), Gaussian(3.0), Linear()]
    for kind, target in ((MKLClassifier, y > 0), (MKLRegressor, y)):
        plain, device = (
            kind(kernels, device=name, **settings).fit(X, target) for name in (None, "cpu")
        )
        assert device.duality_gap_ <= 1e-6
        assert device.objective_ == pytest.approx(plain.objective_, rel=2e-6)
        np.testing.assert_allclose(device.weights_, plain.weights_, atol=2e-3)
        np.testing.assert_allclose(device.predict(X), plain.predict(X), atol=0.02)


def test_too_many_features_say_so():
    # The products of 28 features fit these bytes, and 64 rows of the features beside them do not.
    with pytest.raises(MemoryError, match="lower rank, raise memory_budget, or use device=None"):
        make_stacks("fourier", "trace", budget=40_000)


@pytest.mark.parametrize("approximation", ["fourier", "nystroem"])
def test_predictions_are_made_on_the_device(approximation):
    rng = np.random.RandomState(4)
    X = rng.randn(80, 4)
    settings = {"approximation": approximation, "rank": 12, "random_state": 0, "device": "cpu"}
    model = MKLRegressor(KERNELS[approximation], **settings).fit(X, X[:, 0] + np.sin(X[:, 1]))
    assert model.function_.expansion.device == "cpu"
    host = replace(model.function_.expansion, device=None)
    fresh = rng.randn(50, 4)
    sums = host.sums
    found = sums.kernel_set.products(open_rows(fresh), sums.w, "cpu", 100)
    for m, Z in sums.kernel_set.blocks(fresh, range(len(sums.w))):
        np.testing.assert_allclose(found[m], Z @ sums.w[m], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        model.function_.expansion.terms(fresh), host.terms(fresh), rtol=1e-8, atol=1e-10
    )
    np.testing.assert_allclose(
        model.predict(fresh), host.values(fresh)[:, 0] + model.intercept_, rtol=1e-8
    )


@pytest.mark.parametrize("approximation", ["fourier", "nystroem"])
def test_features_beyond_the_budget_are_computed_on_the_device_in_every_pass(approximation):
    rng = np.random.RandomState(5)
    X = rng.randn(600, 3)
    y = X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * rng.randn(600)
    settings = {"approximation": approximation, "rank": 20, "random_state": 0, "tol": 1e-5}
    kernels = [Gaussian(1.0), Gaussian(3.0)]
    rows = open_rows(X)
    maps = FeatureMaps.fit(
        lay_specs(read_kernels(kernels), X), rows, "trace", None, approximation, 20, 0
    )
    stack = make_feature_stack(maps, rows, 200_000, "cpu")
    assert isinstance(stack, feature_stack.ComputedFeatures)
    assert max(strip.stop - strip.start for strip in stack.strips()) * 40 * 8 * 3 < 200_000
    for kind, target in ((MKLClassifier, y > 0), (MKLRegressor, y)):
        plain = kind(kernels, **settings).fit(X, target)
        device = kind(kernels, device="cpu", memory_budget=200_000, **settings).fit(X, target)
        assert device.duality_gap_ <= 1e-5
        assert device.objective_ == pytest.approx(plain.objective_, rel=2e-5)
        np.testing.assert_allclose(device.weights_, plain.weights_, atol=2e-3)


def test_the_memory_budget_holds_on_the_device():
    X = np.random.RandomState(5).randn(4000, 3)
    settings = {"approximation": "fourier", "rank": 20, "random_state": 0, "device": "cpu"}
    with pytest.raises(MemoryError, match=r"the budget is 48\.8 KiB"):
        MKLRegressor([Gaussian(1.0)], memory_budget=50_000, **settings).fit(X, X[:, 0])


@pytest.mark.parametrize("columns", [(), (3,)], ids=["one vector", "several"])
def test_single_precision_times_double_is_summed_in_double(columns):
    from kernelmosaic.gpu import _torch_passes

    rng = np.random.RandomState(5)
    Z = rng.standard_normal((57, 9)).astype(np.float32)
    w, v = rng.standard_normal((9, *columns)), rng.standard_normal((57, *columns))
    tensors = [torch.as_tensor(one) for one in (Z, w, v)]
    np.testing.assert_allclose(
        _torch_passes.multiply_features(*tensors[:2], strip=100),
        Z.astype(np.float64) @ w,
        rtol=1e-12,
    )
    found = _torch_passes.multiply_features(tensors[0], tensors[2], transposed=True, strip=100)
    np.testing.assert_allclose(found, Z.astype(np.float64).T @ v, rtol=1e-12)
