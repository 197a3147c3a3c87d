"""Samples far from the origin: distances against direct differences, in matrices, features and
predictions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.svm import SVC

from kernelmosaic import MKLClassifier
from kernelmosaic.gram.factory import make_feature_stack
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.row_blocks import open_rows
from kernelmosaic.gram.stack import make_stack
from kernelmosaic.kernels import Gaussian, Linear, Projected
from kernelmosaic.kernels.views import KernelSpec

RNG = np.random.RandomState(0)
OFFSET = 1e7 * np.array([1.0, -1.0, 0.3])
X = RNG.standard_normal((80, 3)) + OFFSET
Z = RNG.standard_normal((15, 3)) + OFFSET


def bell(A, B, width=2.0):
    """The Gaussian kernel from direct differences."""
    return np.exp(
        -cdist(np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64), "sqeuclidean")
        / width**2
    )


@pytest.mark.parametrize(("left", "right"), [(X, None), (Z, X), (X, Z), (Z[:1], X), (X, Z[:1])])
def test_blocks(left, right):
    found = Gaussian(2.0).fit(X)(left, right)
    assert_allclose(found, bell(left, left if right is None else right), atol=1e-14)


def test_blocks_in_single_precision():
    A, B = (RNG.standard_normal((n, 3)).astype(np.float32) + np.float32(4096) for n in (50, 20))
    assert_allclose(Gaussian(2.0).fit(A)(B, A), bell(B, A), atol=1e-6)
    # One set in double precision, the other in single.
    assert_allclose(Gaussian(2.0).fit(A)(B.astype(np.float64), A), bell(B, A), atol=1e-6)


def test_kernels_of_products_are_not_shifted():
    assert_allclose(Linear().fit(X)(Z, X), Z @ X.T, rtol=1e-15)


@pytest.mark.parametrize("width", ["median", "nearest"])
def test_widths(width):
    assert Gaussian(width).fit(X).width_ == pytest.approx(
        Gaussian(width).fit(X - OFFSET).width_, rel=1e-6
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_stacks(device, dtype):
    specs = [KernelSpec("narrow", Gaussian(1.0), None), KernelSpec("wide", Gaussian(3.0), None)]
    kernel_set = KernelSet.fit(specs, X, "trace")
    stack = make_stack(kernel_set, kernel_set.views(X), dtype=np.dtype(dtype), device=device)
    beta = RNG.standard_normal(len(X))
    all_rows = slice(0, len(X))
    for (_, K), expected in zip(
        stack.blocks([0, 1], all_rows, all_rows), (bell(X, X, 1.0), bell(X, X, 3.0)), strict=True
    ):
        assert_allclose(K, expected, atol=1e-6 if dtype == np.float32 else 1e-13)
        assert np.linalg.eigvalsh(np.asarray(K, dtype=np.float64)).min() > -1e-4
    assert_allclose(
        stack.products(beta)[1], bell(X, X, 3.0) @ beta, atol=1e-4 if dtype == np.float32 else 1e-12
    )


@pytest.mark.parametrize("approximation", ["nystroem", "fourier"])
def test_features(approximation, device):
    fitted = FeatureMaps.fit(
        [KernelSpec("g", Gaussian(2.0), None)], open_rows(X), None, None, approximation, 80, 0
    )
    left, right = (next(fitted.blocks(A, [0]))[1] for A in (Z, X))
    if (
        approximation == "nystroem"
    ):  # every sample is a landmark: the features are exact, up to their cut-off
        expected = bell(Z, X)
        atol = 1e-5
    else:  # the mean of cos ω(x − z) over the frequencies drawn
        differences = Z[:, np.newaxis] - X
        expected = np.cos(differences @ fitted.maps[0].frequencies).mean(axis=2)
        atol = 1e-12
    assert_allclose(left @ right.T, expected, atol=atol)
    stack = make_feature_stack(fitted, open_rows(X), None, device)
    beta = RNG.standard_normal(len(X))
    assert_allclose(
        stack.products(beta)[0], right @ (right.T @ beta), atol=1e-4 if device else 1e-8
    )


def test_fourier_features_of_sparse_and_dense_samples_agree():
    near = X - OFFSET + 2.0
    fitted = FeatureMaps.fit(
        [KernelSpec("g", Gaussian(2.0), None)], open_rows(near), None, None, "fourier", 40, 0
    )
    dense, thin = (next(fitted.blocks(A, [0]))[1] for A in (near, sparse.csr_matrix(near)))
    assert_allclose(thin, dense, atol=1e-12)


def test_predictions_against_libsvm(device):
    y = X[:, 0] > OFFSET[0]
    model = MKLClassifier([Gaussian(2.0)], C=10.0, tol=1e-7, device=device).fit(X, y)
    reference = SVC(kernel="precomputed", C=10.0, tol=1e-8).fit(bell(X, X), y)
    assert_allclose(model.decision_function(Z), reference.decision_function(bell(Z, X)), atol=2e-3)
    assert_allclose(model.kernel_matrix(Z, X), bell(Z, X), atol=1e-12)


def test_projections_start_where_those_of_centred_samples_do():
    far, near = (Projected(Gaussian(2.0)).fit(A) for A in (X, X - OFFSET))
    assert_allclose(far.W_, near.W_, atol=1e-6)
    assert_allclose(far(Z, X), near(Z - OFFSET, X - OFFSET), atol=1e-6)


def test_sparse_samples_far_away_have_the_kernel_of_dense_ones():
    thin = sparse.csr_matrix(X)
    y = X[:, 0] > OFFSET[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_allclose(Gaussian(2.0).fit(thin)(sparse.csr_matrix(Z), thin), bell(Z, X), atol=1e-14)
        dense, found = (
            MKLClassifier([Gaussian(1.0), Gaussian(2.0)]).fit(form, y) for form in (X, thin)
        )
    assert found.objective_ == pytest.approx(dense.objective_, rel=1e-6)
