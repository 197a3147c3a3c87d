"""Stacks and kernels in factors of some of the samples, against the same rows of the whole."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic.gram.factored import DenseFactors
from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.stack import ComputedStack, StoredStack, make_stack
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.kernels.views import lay_specs, read_kernels
from kernelmosaic.solvers.interior_point import CentralPath
from kernelmosaic.solvers.program import Program

ROWS = np.array([1, 4, 5, 11, 29])
torch_only = pytest.mark.torch


def make(kind):
    X = np.random.RandomState(0).standard_normal((30, 3))
    if kind.startswith("features"):
        stack = StoredFeatures([X, X**2, np.sin(X)])
        if kind == "features on a device":
            torch = pytest.importorskip("torch", reason="torch is not installed")
            return StoredFeatures([torch.as_tensor(Z) for Z in stack.arrays])
        return stack
    kernel_set = KernelSet.fit(
        lay_specs(read_kernels([Gaussian(1.0), Linear(), Polynomial(2)]), X), X, "trace"
    )
    views = kernel_set.views(X)
    if kind == "computed":
        return ComputedStack.of(kernel_set, views, np.dtype(np.float64), 4096)
    if "device" in kind:
        pytest.importorskip("torch", reason="torch is not installed")
        from kernelmosaic.backend import torch_backend

        computed = ComputedStack.of(
            kernel_set, views, np.dtype(np.float64), 4096, torch_backend("cpu")
        )
        return StoredStack.of(computed) if "stored" in kind else computed
    return make_stack(kernel_set, views)


KINDS = ["stored", "computed"] + [
    pytest.param(kind, marks=torch_only) for kind in ("device", "device stored")
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_has_the_rows_of_the_whole(kind):
    stack = make(kind)
    part = stack.take(ROWS, stored=True)
    assert (part.n_samples, part.n_kernels) == (5, 3)
    beta = np.random.RandomState(1).standard_normal(5)
    spread = np.zeros(30)
    spread[ROWS] = beta
    np.testing.assert_allclose(
        part.products(beta), stack.products(spread)[:, ROWS], rtol=1e-9, atol=1e-12
    )
    weights = np.array([0.3, 0.0, 2.0])
    whole = stack.combine(weights)
    if isinstance(stack, StoredStack):
        np.testing.assert_array_equal(part.combine(weights), np.asarray(whole)[np.ix_(ROWS, ROWS)])


@pytest.mark.parametrize("where", ["host", pytest.param("device", marks=torch_only)])
def test_rows_side_by_side_are_the_same_kernel(where):
    if where == "device":
        pytest.importorskip("torch", reason="torch is not installed")
    whole = make("features on a device" if where == "device" else "features").combine(
        np.array([0.3, 0.0, 2.0])
    )
    part = whole.take(ROWS)
    Z = whole.rows(ROWS)
    rng = np.random.RandomState(2)
    beta, w, theta = rng.standard_normal((5, 2)), rng.standard_normal(Z.shape[1]), rng.rand(5)
    close = {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(part.rows(np.arange(5)), Z, **close)
    np.testing.assert_allclose(part.adjoint(beta), Z.T @ beta, **close)
    np.testing.assert_allclose(part.apply(w), Z @ w, **close)
    np.testing.assert_allclose(part.diagonal(), np.sum(Z**2, axis=1), **close)
    with_one = np.column_stack([Z, np.ones(5)])
    np.testing.assert_allclose(
        part.normal_matrix(theta), with_one.T @ (theta[:, np.newaxis] * with_one), **close
    )


@pytest.mark.torch
@pytest.mark.parametrize("epsilon", [0.0, 0.2], ids=["classes", "tube"])
def test_the_central_path_is_the_same_wherever_its_vectors_are(epsilon):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.RandomState(3)
    Z = rng.standard_normal((80, 6))
    t = np.sign(Z[:, 0] + rng.standard_normal(80))
    bounds = (-np.ones(80), np.ones(80)) if epsilon else (np.minimum(t, 0.0), np.maximum(t, 0.0))
    program = Program(t, *bounds, np.zeros(80), epsilon=epsilon)
    here = CentralPath(DenseFactors(Z), program).follow(1e-8)
    path = CentralPath(DenseFactors(torch.as_tensor(Z)), program)
    there = path.follow(1e-8)
    assert here.n_iter == there.n_iter
    assert path.gap() <= 1e-8
    np.testing.assert_allclose(there.beta, here.beta, atol=1e-9)
    np.testing.assert_array_equal(there.at_lower, here.at_lower)
    np.testing.assert_array_equal(there.at_upper, here.at_upper)
