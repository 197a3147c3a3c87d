"""What joint machines ask of a stack: one combination per class, and products with several
columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.gram.stack import GramStack, StackClasses, StoredStack


def make_stack(n=37, P=4, dtype=np.float64):
    A = np.random.default_rng(0).normal(size=(P, n, 6))
    return StoredStack((A @ A.transpose(0, 2, 1)).astype(dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rule", [StoredStack.combine_classes, GramStack.combine_classes])
def test_a_combination_a_class(rule, dtype):
    stack = make_stack(dtype=dtype)
    weights = np.random.default_rng(1).uniform(size=(5, 4))
    weights[1], weights[2, 1:] = 0.0, 0.0
    out = np.full((5, 37, 37), np.nan, dtype=dtype)
    rule(stack, weights, out)
    assert_allclose(
        out,
        np.tensordot(weights, stack.matrices, 1),
        rtol=1e-4,
        atol=1e-4 if dtype == np.float32 else 1e-9,
    )
    assert_allclose(out, out.transpose(0, 2, 1), rtol=0, atol=0)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_products_with_columns(share):
    stack = make_stack()
    rng = np.random.default_rng(2)
    beta = rng.normal(size=(37, 3)) * (rng.random((37, 1)) < share)
    expected = np.einsum("mij,jc->mic", stack.matrices, beta)
    assert_allclose(stack.products(beta), expected, atol=1e-9)
    rows = np.array([3, 30, 1])
    assert_allclose(stack.products(beta, rows), expected[:, rows], atol=1e-9)
    some = stack.products(beta, rows, [2])
    assert_allclose(some[2], expected[2][rows], atol=1e-9)
    assert not some[[0, 1, 3]].any()
    assert_allclose(
        stack.quadratic_forms(beta), 0.5 * np.einsum("mic,ic->m", expected, beta), rtol=1e-9
    )


def make_classes(form):
    """Return the kernels of five classes, and the same as one array."""
    rng = np.random.default_rng(3)
    features = [rng.normal(size=(37, width)) for width in (3, 5, 2, 4)]
    weights = rng.uniform(size=(5, 4))
    # One class without weights, one with a single kernel, and a kernel without weights.
    weights[1], weights[2, 1:], weights[:, 3] = 0.0, 0.0, 0.0
    matrices = np.stack([Z @ Z.T for Z in features])
    classes = (
        StoredFeatures(features).combine_classes(weights)
        if form == "features"
        else StackClasses(StoredStack(matrices), weights)
    )
    return classes, np.tensordot(weights, matrices, 1)


@pytest.mark.parametrize("form", ["features", "stack"])
def test_classes_that_are_not_written_down(form):
    classes, matrices = make_classes(form)
    beta = np.random.default_rng(4).normal(size=(37, 5))
    beta[5:20] = 0.0
    assert_allclose(classes.products(beta), np.einsum("cij,jc->ic", matrices, beta), atol=1e-10)
    which = np.array([2, 7, 30, 31])
    assert_allclose(np.asarray(classes.block(which)), matrices[:, which][:, :, which], atol=1e-12)
    assert (classes.n_samples, classes.n_classes) == (37, 5)


def test_blocks_of_features_class_by_class():
    classes, matrices = make_classes("features")
    which = np.array([2, 7, 30, 31])
    block = classes.block(which)
    inside = np.array([0, 3])
    for c in range(5):
        assert_allclose(
            block.of_class(c, inside), matrices[c][np.ix_(which[inside], which[inside])], atol=1e-12
        )
    assert block.mean_diagonal() == pytest.approx(np.mean([np.diag(K)[which] for K in matrices]))
    assert np.asarray(block, dtype=np.float32).dtype == np.float32
    # Numbers whose products would be denormal are none.
    block.rows[0] = 1e-25
    assert block.of_class(0, dtype=np.float32)[0].max() == 0.0


def test_memory_bounds_the_blocks_of_all_classes_together():
    stack = StoredFeatures([np.ones((10, 2))])
    stack.options = replace(stack.options, block_numbers=500)
    assert stack.combine_classes(np.ones((5, 1))).block_samples == 10
