"""Centring kernels that are constant: what is left is zero; or nearly so: it is their shape, or
they are refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.svm import SVC

from kernelmosaic import MKLClassifier
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.row_blocks import open_rows
from kernelmosaic.gram.stack import make_stack
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Precomputed, Sum
from kernelmosaic.kernels.views import KernelSpec

RNG = np.random.RandomState(0)
X = RNG.standard_normal((60, 3))
Y = np.where(X[:, 0] + 0.5 * RNG.standard_normal(60) > 0, 1, -1)
#: On columns that do not vary.
CONSTANT = [Polynomial(3), Gaussian(1.0), Linear()]


def centred(kernel, samples, dtype=np.float64, device=None):
    kernel_set = KernelSet.fit([KernelSpec("only", kernel, None)], samples, "centered")
    stack = make_stack(kernel_set, kernel_set.views(samples), dtype=np.dtype(dtype), device=device)
    return next(stack.blocks([0], slice(0, len(samples)), slice(0, len(samples))))[1]


def centred_or_none(*arguments, **options):
    """The same, None where the kernel is refused: of a kernel that varies nothing else may be
    said."""
    try:
        return centred(*arguments, **options)
    except ValueError as error:
        if str(error).startswith("kernel 'only': normalize='centered': of what varies in it"):
            return None
        raise


def features_or_none(kernel, samples, approximation="nystroem"):
    spec = [KernelSpec("only", kernel, None)]
    try:
        fitted = FeatureMaps.fit(spec, open_rows(samples), "centered", None, approximation, 60, 0)
    except ValueError as error:
        if str(error).startswith("kernel 'only': normalize='centered': of what varies in it"):
            return None
        raise
    return next(fitted.blocks(samples, [0]))[1]


def shape_of_wide_gaussians():
    """Their limit: exp(−‖x − z‖²/w²) is 1 − (‖x‖² + ‖z‖² − 2⟨x, z⟩)/w², of which centring leaves
    the products."""
    Z = X - X.mean(axis=0)
    return Z @ Z.T / np.square(Z).sum(axis=1).mean()


@pytest.mark.parametrize("kernel", CONSTANT, ids=repr)
@pytest.mark.parametrize("value", [0.1, np.pi, 1e5])
def test_a_constant_kernel_becomes_zero(kernel, value):
    samples = np.full((41, 3), value)
    for precision in (np.float64, np.float32):
        with pytest.warns(UserWarning, match=r"kernel 'only' is constant .* zero once centred"):
            assert_array_equal(centred(kernel, samples.astype(precision)), 0.0)


@pytest.mark.parametrize("precision", [np.float64, np.float32])
def test_wide_gaussians_keep_their_shape_or_are_refused(precision, device):
    refused = []
    for width in 10.0 ** np.arange(1.5, 11):
        K = centred_or_none(Gaussian(width), X.astype(precision), device=device)
        refused.append(K is None)
        if K is not None:
            assert_allclose(K, shape_of_wide_gaussians(), atol=0.25, err_msg=str(width))
    assert refused == sorted(refused)  # once refused, wider ones are
    assert refused[-1]
    assert not refused[0]


def test_matrices_in_single_precision_are_rounded_after_centring():
    exact = centred(Gaussian(1e4), X)
    assert_allclose(centred(Gaussian(1e4), X, np.float32), exact, atol=1e-6)
    assert_allclose(exact, shape_of_wide_gaussians(), atol=1e-6)


@pytest.mark.parametrize("approximation", ["nystroem", "fourier"])
@pytest.mark.parametrize("kernel", [Gaussian(1.0), Gaussian(7.0)], ids=repr)
@pytest.mark.filterwarnings("ignore:normalize='centered'")
def test_features_of_a_constant_kernel_become_zero(kernel, approximation):
    samples = np.full((41, 3), np.pi)
    fitted = FeatureMaps.fit(
        [KernelSpec("only", kernel, None)],
        open_rows(samples),
        "centered",
        None,
        approximation,
        20,
        0,
    )
    assert_array_equal(next(fitted.blocks(samples, [0]))[1], 0.0)


def test_features_of_wide_gaussians_keep_their_shape_or_are_refused():
    for width in 10.0 ** np.arange(2, 11):
        Z = features_or_none(Gaussian(width), X)
        if Z is None:
            assert width >= 1e5
        else:
            assert_allclose(Z @ Z.T, shape_of_wide_gaussians(), atol=0.1, err_msg=str(width))


@pytest.mark.parametrize("kernel", CONSTANT, ids=repr)
@pytest.mark.filterwarnings("ignore:normalize='centered'")
def test_a_constant_kernel_adds_nothing_to_a_machine(kernel):
    table = np.column_stack([X, np.full((60, 2), 0.1)])
    model = MKLClassifier(
        [("bell", Gaussian(2.0), [0, 1, 2]), ("constant", kernel, [3, 4])],
        weights="uniform",
        normalize="centered",
        C=10.0,
        tol=1e-6,
    ).fit(table, Y)
    K = np.exp(-np.square(X[:, np.newaxis] - X).sum(-1) / 4)
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, np.newaxis] + K.mean()
    K *= 0.5 * len(K) / np.trace(K)
    reference = SVC(kernel="precomputed", C=10.0, tol=1e-8).fit(K, Y)
    a = np.abs(reference.dual_coef_[0])
    s = reference.support_
    assert model.objective_ == pytest.approx(
        a.sum() - 0.5 * reference.dual_coef_[0] @ K[np.ix_(s, s)] @ reference.dual_coef_[0],
        rel=1e-4,
    )


@pytest.mark.parametrize("approximation", [None, "nystroem"])
@pytest.mark.parametrize(
    "flat", [("flat", Gaussian(1e8)), ("flat", Linear(), [3])], ids=["wide", "far"]
)
def test_a_kernel_that_rounding_hides_is_no_kernel_of_zeros(flat, approximation):
    """Without it the certificate would be of another problem: far from zero the last column
    predicts everything."""
    table = np.column_stack([X, Y + 1e14])
    model = MKLClassifier([flat], normalize="centered", approximation=approximation, random_state=0)
    with pytest.raises(
        ValueError,
        match=r"kernel 'flat': normalize='centered': .* fewer than 3 digits; centre and scale",
    ):
        model.fit(table, Y)


def test_other_samples_than_numbers():
    ones, varied = np.ones((6, 6)), 1e9 * np.ones((6, 6)) + 1e-6 * np.eye(6)
    rows = np.arange(6)[:, np.newaxis]
    with pytest.warns(UserWarning, match="constant on the training set"):
        assert not centred(Precomputed(ones), rows).any()
    assert centred_or_none(Precomputed(varied), rows) is None
    same = sparse.csr_matrix(np.tile([0.0, 2.0], (6, 1)))
    with pytest.warns(UserWarning, match="constant on the training set"):
        assert (
            not KernelSet.fit([KernelSpec("only", Linear(), None)], same, "centered")
            .fitted[0]
            .normalization.removed
        )


def test_kernels_of_enough_digits_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kernel in (Gaussian(1e4), Polynomial(3), Linear()):
            assert centred(kernel, X).any()


def centred_exactly(kernel, samples):
    """The same from a loop over pairs in extended precision."""
    L = samples.astype(np.longdouble)
    K = np.empty((len(L), len(L)), dtype=np.longdouble)
    for i, x in enumerate(L):
        for j, z in enumerate(L):
            K[i, j] = formula(kernel, x, z)
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, np.newaxis] + K.mean()
    return (K / K.diagonal().mean()).astype(np.float64)


def formula(kernel, x, z):
    if isinstance(kernel, Sum):
        return formula(kernel.left, x, z) + formula(kernel.right, x, z)
    if isinstance(kernel, Polynomial):
        return (x @ z + kernel.offset) ** kernel.degree
    return (
        x @ z
        if isinstance(kernel, Linear)
        else np.exp(-np.square(x - z).sum() / np.longdouble(kernel.width) ** 2)
    )


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(3), Linear() + Gaussian(3.0)], ids=repr)
@pytest.mark.parametrize("columns", [2, 300])
def test_kernels_far_from_the_origin_have_three_digits_or_are_refused(kernel, columns):
    near = np.random.RandomState(1).standard_normal((40, columns))
    refused = []
    for offset in 10.0 ** np.arange(0, 9, 0.5):
        samples = near + offset
        K = centred_or_none(kernel, samples)
        refused.append(K is None)
        if K is not None:
            # Eigenvalues, relative to the trace over the number of samples, which is one.
            assert np.linalg.norm(K - centred_exactly(kernel, samples), 2) <= 3e-3
    assert refused == sorted(refused)
    assert refused[-1]
    assert not refused[6]  # an offset of a thousand


def test_linear_features_far_from_the_origin_keep_their_digits():
    for offset in 10.0 ** np.arange(0, 15):
        samples = X + offset
        Z = features_or_none(Linear(), samples)
        if Z is None:
            assert offset >= 1e12
        else:
            C = samples.astype(np.longdouble)
            C = C - C.mean(axis=0)
            expected = C @ C.T / np.square(C).sum(axis=1).mean()
            assert np.linalg.norm(Z @ Z.T - expected.astype(np.float64), 2) <= 3e-3
