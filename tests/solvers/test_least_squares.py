"""Systems in matrices and in features by plain algebra; leave-one-out errors and evidence by refits
and differences."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.solvers.least_squares import (
    FeatureForm,
    MatrixForm,
    MatrixLeastSquares,
    class_loss,
    evidence,
    squared_loss,
)


def make(seed=0, n=24, c=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    K = np.exp(-((X[:, None] - X) ** 2).sum(-1) / 4) + 0.3 * X @ X.T
    Y = np.column_stack([np.sin(X[:, 0] + j) + 0.3 * rng.normal(size=n) + j for j in range(c)])
    weight = rng.uniform(0.5, 2.0, n)
    return K, Y, weight, 0.4 / weight


def refitted(K, Y, ridge, left_out):
    """Residuals of samples left out: the bordered system of the others, solved anew."""
    keep = np.setdiff1d(np.arange(len(K)), left_out)
    m = len(keep)
    bordered = np.zeros((m + 1, m + 1))
    bordered[:m, :m] = K[np.ix_(keep, keep)] + np.diag(ridge[keep])
    bordered[:m, m] = bordered[m, :m] = 1.0
    solution = np.linalg.solve(bordered, np.vstack([Y[keep], np.zeros((1, Y.shape[1]))]))
    return Y[left_out] - (K[np.ix_(left_out, keep)] @ solution[:m] + solution[m])


@pytest.mark.parametrize("c", [1, 3])
def test_residuals_are_those_of_n_refits(c):
    K, Y, _, ridge = make(1, c=c)
    system = MatrixLeastSquares.of(K.copy(), ridge)
    wanted = np.vstack([refitted(K, Y, ridge, [i]) for i in range(len(K))])
    assert_allclose(system.residuals(system.A @ Y), wanted, rtol=1e-8, atol=1e-9)


def test_groups_are_left_out_together():
    K, Y, _, ridge = make(2, c=2)
    groups = [np.array(g) for g in ([0, 5, 7], [1], [2, 3], list(range(8, 24)), [4, 6])]
    system = MatrixLeastSquares.of(K.copy(), ridge)
    wanted = np.empty_like(Y)
    for S in groups:
        wanted[S] = refitted(K, Y, ridge, S)
    assert_allclose(system.residuals(system.A @ Y, groups), wanted, rtol=1e-8, atol=1e-9)


def left_out(K, ridge, Y, loss, groups):
    """Return a loss of the samples left out, and its slope in K."""
    system = MatrixLeastSquares.of(K.copy(), ridge)
    beta = system.times(Y)
    r = system.residuals(beta, groups)
    value, g = loss(r)[:2]
    return value, system.slope(beta, r, g, groups)


def criteria(groups):
    K, Y, weight, ridge = make(3, c=1)
    y2 = np.sign(Y - np.median(Y))
    codes = (y2[:, 0] > 0).astype(int)
    _, Y3, _, _ = make(3, c=3)
    labels = Y3.argmax(axis=1)
    indicators = np.eye(3)[labels]
    named = {
        "squares": lambda K: left_out(K, ridge, Y, lambda r: squared_loss(r, weight), groups),
        "two classes": lambda K: left_out(
            K, ridge, y2, lambda r: class_loss(r, y2, codes, 1.7, weight), groups
        ),
        "three classes": lambda K: left_out(
            K, ridge, indicators, lambda r: class_loss(r, indicators, labels, 2.3, weight), groups
        ),
    }
    if groups is None:
        named["evidence"] = lambda K: evidence(MatrixLeastSquares.of(K.copy(), ridge), Y)
        named["evidence, given noise"] = lambda K: evidence(
            MatrixLeastSquares.of(K.copy(), ridge), Y3, 0.7
        )
    return K, named


GROUPS = [np.arange(0, 3), np.arange(3, 10), np.array([10]), np.arange(11, 24)]


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["alone", "groups"])
def test_the_slope_is_the_derivative_in_every_direction(groups):
    K, named = criteria(groups)
    rng, step = np.random.default_rng(0), 1e-5
    for name, criterion in named.items():
        G = criterion(K)[1]
        for _ in range(4):
            D = rng.normal(size=K.shape)
            D = D + D.T
            change = (criterion(K + step * D)[0] - criterion(K - step * D)[0]) / (2 * step)
            assert np.sum(G * D) == pytest.approx(change, rel=1e-5, abs=1e-6), name


def test_the_slope_in_the_scale():
    K, Y, weight, ridge = make(4, c=3)
    labels = Y.argmax(axis=1)
    system, Z = MatrixLeastSquares.of(K.copy(), ridge), np.eye(3)[Y.argmax(axis=1)]
    r = system.residuals(system.times(Z))
    at = lambda a: class_loss(r, Z, labels, np.exp(a), weight)  # noqa: E731
    assert at(0.4)[2] == pytest.approx((at(0.4 + 1e-6)[0] - at(0.4 - 1e-6)[0]) / 2e-6, rel=1e-6)


def test_the_evidence_is_the_restricted_likelihood():
    # The density of the contrasts, which do not see the constant: any orthonormal basis gives the
    # same.
    K, Y, _, ridge = make(5)
    n = len(K)
    Q = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, 1:]]))[0][:, 1:]
    s2 = 0.7
    density = multivariate_normal(np.zeros(n - 1), s2 * Q.T @ (K + np.diag(ridge)) @ Q).logpdf(
        Q.T @ Y[:, 0]
    )
    ours = -evidence(MatrixLeastSquares.of(K.copy(), ridge), Y, s2)[0]
    constant = -0.5 * (n - 1) * np.log(2 * np.pi) + 0.5 * np.log(n)
    assert ours + constant == pytest.approx(density, rel=1e-10)


def test_linear_kernels_against_ridge_cv():
    from sklearn.linear_model import RidgeCV

    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(30, 4)), rng.normal(size=30)
    alphas = [0.1, 1.0, 10.0]
    model = RidgeCV(alphas, store_cv_results=True).fit(X, y)
    for j, alpha in enumerate(alphas):
        system = MatrixLeastSquares.of(X @ X.T, np.full(30, alpha))
        r = system.residuals(system.A @ y[:, np.newaxis])
        assert_allclose(r[:, 0] ** 2, model.cv_results_[:, j], rtol=1e-7)


WEIGHTS, ALPHA = np.array([0.7, 0.0, 0.3]), 0.4


def system_of(form, Zs, weight):
    """Return the same system in one of the forms that kernels have."""
    if form == "matrices":
        return MatrixForm(StoredStack(np.array([Z @ Z.T for Z in Zs])), weight).at(WEIGHTS, ALPHA)
    stack, n = StoredFeatures(Zs), len(weight)
    if form == "features":
        return FeatureForm.of_all_samples(stack, weight, np.float64).at(WEIGHTS, ALPHA)
    centred = FeatureForm.of_centred(stack, np.eye(n)[:, :1])
    return centred.of_samples(centred.at(WEIGHTS, ALPHA), np.arange(n))


@pytest.mark.parametrize("form", ["matrices", "features", "centred features"])
def test_every_system_answers_as_the_bordered_matrix_does(form):
    rng, n = np.random.default_rng(8), 30
    Zs = [rng.normal(size=(n, width)) + 1.0 for width in (3, 2, 4)]
    weight = np.ones(n) if form == "centred features" else rng.uniform(0.5, 2.0, n)
    M = sum(eta * Z @ Z.T for eta, Z in zip(WEIGHTS, Zs, strict=True)) + ALPHA * np.diag(
        1.0 / weight
    )
    bordered = np.block([[M, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    inverse = np.linalg.inv(bordered)
    A, system = inverse[:n, :n], system_of(form, Zs, weight)
    V, S = rng.normal(size=(n, 2)), np.array([4, 9, 20])
    assert_allclose(system.times(V), A @ V, atol=1e-10)
    assert_allclose(system.diagonal, np.diag(A), rtol=1e-9)
    assert_allclose(system.block(S), A[np.ix_(S, S)], atol=1e-10)
    assert_allclose(system.constants, inverse[:n, n], atol=1e-10)
    # The determinant of a bordered matrix is that of M times −1ᵀM⁻¹1.
    assert system.log_det == pytest.approx(np.linalg.slogdet(bordered)[1], rel=1e-10)
    r = system.residuals(A @ V, [S])
    assert_allclose(r[S], np.linalg.solve(A[np.ix_(S, S)], (A @ V)[S]), rtol=1e-8)
