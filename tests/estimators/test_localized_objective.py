"""`objective_` of localized models: the primal value, recomputed from the returned model by loops over its parts."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic import LocalizedMKLClassifier, LocalizedMKLOneClass, LocalizedMKLRegressor
from kernelmosaic.kernels import Gaussian, Linear

KERNELS = [Linear(), Gaussian(1.5)]
C, EPSILON, NU = 2.5, 0.1, 0.3


def make_samples(classes, n=36):
    rng = np.random.RandomState(3)
    y = np.arange(n) % classes
    X = rng.randn(n, 2)
    X[:, 0] += 0.8 * y
    return X, y


def kernel_matrices(X):
    """Both kernels at unit mean diagonal, entry by entry."""
    n = len(X)
    Ks = np.zeros((2, n, n))
    for i in range(n):
        for j in range(n):
            Ks[0, i, j] = sum(X[i, d] * X[j, d] for d in range(X.shape[1]))
            Ks[1, i, j] = np.exp(-sum((X[i, d] - X[j, d]) ** 2 for d in range(X.shape[1])) / 1.5**2)
    for K in Ks:
        K /= sum(K[i, i] for i in range(n)) / n
    return Ks


def parts(model, X):
    """½ ‖w‖² summed over the outputs, and the outputs, by sums over gates, coefficients and kernels."""
    Ks, gates = kernel_matrices(X), model.gate(X)
    outputs = len(model.dual_coef_)
    f, norm = np.zeros((len(X), outputs)), 0.0
    for c in range(outputs):
        g = gates if gates.ndim == 2 else gates[:, :, c]
        beta = np.zeros(len(X))
        beta[model.support_] = model.dual_coef_[c]
        for i in range(len(X)):
            for m in range(2):
                f[i, c] += g[i, m] * sum(Ks[m, i, j] * g[j, m] * beta[j] for j in model.support_)
        norm += 0.5 * sum(beta[i] * f[i, c] for i in range(len(X)))
        f[:, c] += model.intercept_[c]
    return norm, f


def check(model, value):
    assert model.objective_ == pytest.approx(value, rel=1e-9)
    assert model.objective_ == pytest.approx(sum(last_values(model)), rel=1e-12)


def last_values(model):
    """The objective of every output's last iteration."""
    return {line["output"]: line["objective"] for line in model.history_}.values()


@pytest.mark.parametrize("slack", [1, 2])
@pytest.mark.parametrize("multi_class", ["ovr", "ovr-shared"])
@pytest.mark.parametrize("classes", [2, 3])
def test_one_versus_rest(classes, multi_class, slack):
    X, y = make_samples(classes)
    model = LocalizedMKLClassifier(KERNELS, C=C, slack=slack, multi_class=multi_class, n_init=1).fit(X, y)
    norm, f = parts(model, X)
    loss = 0.0
    for c in range(f.shape[1]):
        positive = model.classes_[1] if classes == 2 else model.classes_[c]
        for i in range(len(X)):
            sign = 1.0 if y[i] == positive else -1.0
            loss += C * max(0.0, 1.0 - sign * f[i, c]) ** slack
    check(model, slack * norm + loss)


@pytest.mark.parametrize(("multi_class", "margin"), [("joint", 1.0), ("pairwise", 2.0)])
def test_all_classes_in_one_problem(multi_class, margin):
    X, y = make_samples(3)
    model = LocalizedMKLClassifier(KERNELS, C=C, multi_class=multi_class, n_init=1).fit(X, y)
    norm, f = parts(model, X)
    loss = 0.0
    for i in range(len(X)):
        slacks = [max(0.0, margin - f[i, y[i]] + f[i, c]) for c in range(3) if c != y[i]]
        loss += C * (max(slacks) if multi_class == "joint" else sum(slacks))
    check(model, norm + loss)


@pytest.mark.parametrize("slack", [1, 2])
def test_regression(slack):
    X, _ = make_samples(2)
    t = np.abs(X[:, 0]) + 0.3 * X[:, 1]
    model = LocalizedMKLRegressor(KERNELS, C=C, epsilon=EPSILON, slack=slack, n_init=1).fit(X, t)
    norm, f = parts(model, X)
    check(model, slack * norm + sum(C * max(0.0, abs(t[i] - f[i, 0]) - EPSILON) ** slack for i in range(len(X))))


@pytest.mark.parametrize("loss", ["huber", "squared"])
def test_other_losses_of_regression(loss):
    X, _ = make_samples(2)
    t = np.abs(X[:, 0]) + 0.3 * X[:, 1]
    model = LocalizedMKLRegressor(KERNELS, C=C, epsilon=EPSILON, loss=loss, n_init=1).fit(X, t)
    norm, f = parts(model, X)
    value = (1.0 if loss == "huber" else 2.0) * norm
    for i in range(len(X)):
        r = abs(t[i] - f[i, 0])
        if loss == "squared":
            value += C * r**2
        else:
            value += C * (r**2 / (2 * EPSILON) if r <= EPSILON else r - EPSILON / 2)
    check(model, value)


@pytest.mark.parametrize("slack", [1, 2])
def test_one_class(slack):
    X, _ = make_samples(2)
    model = LocalizedMKLOneClass(KERNELS, nu=NU, slack=slack, n_init=1, random_state=0).fit(X)
    norm, f = parts(model, X)
    price = 1.0 / (NU * len(X)) if slack == 1 else 0.5 / NU
    check(model, norm + model.intercept_[0] + price * sum(max(0.0, -f[i, 0]) ** slack for i in range(len(X))))
