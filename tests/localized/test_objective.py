"""`objective_` of localized models: the primal value, recomputed from the returned model by loops
over its parts."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.sweeps import thinned

from kernelmosaic import LocalizedMKLClassifier, LocalizedMKLOneClass, LocalizedMKLRegressor
from kernelmosaic.gram.factory import make_feature_stack
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.row_blocks import open_rows
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.kernels.views import lay_specs, read_kernels
from kernelmosaic.localized.gating import GATINGS, Softmax
from kernelmosaic.localized.learning import GatedProblem
from kernelmosaic.machines.base import SVC, SVR, CrammerSinger, OneClass

KERNELS = [Linear(), Gaussian(1.5)]
C, EPSILON, NU = 2.5, 0.1, 0.3


def make_samples(classes, n=24):
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
    """½ ‖w‖² summed over the outputs, and the outputs, by sums over gates, coefficients and
    kernels."""
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


ONE_BY_ONE = list(product([2, 3], ["ovr", "ovr-shared"], [1, 2]))


#: Every two settings meet at each commit.
@pytest.mark.parametrize(
    ("classes", "multi_class", "slack"),
    thinned(
        ONE_BY_ONE,
        [one for one in ONE_BY_ONE if (one[0] == 2) == ((one[1] == "ovr") == (one[2] == 1))],
    ),
)
def test_one_versus_rest(classes, multi_class, slack):
    X, y = make_samples(classes)
    model = LocalizedMKLClassifier(
        KERNELS, C=C, slack=slack, multi_class=multi_class, n_init=1
    ).fit(X, y)
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
    check(
        model,
        slack * norm
        + sum(C * max(0.0, abs(t[i] - f[i, 0]) - EPSILON) ** slack for i in range(len(X))),
    )


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
    check(
        model,
        norm
        + model.intercept_[0]
        + price * sum(max(0.0, -f[i, 0]) ** slack for i in range(len(X))),
    )


# ---- its slopes in the gates, in features

X = np.random.RandomState(0).standard_normal((70, 3))
F = np.where(X[:, 0] > 0, X[:, 1], -X[:, 2]) + 0.1 * np.random.RandomState(1).standard_normal(70)
Y = (F > -0.5).astype(int) + (F > 0.5)
FEATURE_KERNELS = [Gaussian(1.5), Linear(), ("square", Polynomial(2), [0, 1])]


def feature_stack(kernels=FEATURE_KERNELS, rank=12):
    rows = open_rows(X)
    specs = lay_specs(read_kernels(kernels), X)
    kernel_set = FeatureMaps.fit(specs, rows, "trace", None, "nystroem", rank, 0)
    return make_feature_stack(kernel_set, rows)


MACHINES = {
    "svc": SVC(np.where(Y > 0, 1.0, -1.0), C=2.0),
    "svc, squared slack": SVC(np.where(Y > 0, 1.0, -1.0), C=2.0, slack=2),
    "svr": SVR(F, C=3.0, epsilon=0.05),
    "one class": OneClass(len(X), C=0.1),
    "joint": CrammerSinger(Y, C=2.0),
}


@pytest.mark.parametrize(
    ("machine", "gating"),
    # Only the coefficients cross from the machine to the gates: every machine with one gate, every
    # gate with one.
    [
        *((name, "softmax") for name in MACHINES),
        *(("svc", name) for name in GATINGS if name != "softmax"),
    ],
)
def test_slopes_equal_finite_differences(machine, gating):
    machine, gating = MACHINES[machine], GATINGS[gating]()
    problem = GatedProblem(feature_stack(), machine, gating, X)
    V = gating.init(np.random.RandomState(3), 3, 3)
    V += 0.2 * np.random.RandomState(4).normal(size=V.shape)
    slopes = problem.slope(problem.evaluate(V, None, 1e-11))
    # Along directions of all parameters at once: one wrong slope shows in each of them.
    directions = np.random.RandomState(5).normal(size=(2, *V.shape))
    steps = 1e-5 * directions
    values = [
        [problem.evaluate(V + sign * h, None, 1e-11).upper for sign in (1, -1)] for h in steps
    ]
    expected = [(above - below) / 2e-5 for above, below in values]
    assert np.abs(slopes).max() > 1e-3
    found = np.sum(directions * slopes, axis=(1, 2))
    assert_allclose(found, expected, rtol=1e-4, atol=3e-4 * np.abs(slopes).max())


def test_slopes_take_two_passes_whatever_the_number_of_kernels():
    stack = feature_stack([Gaussian(width) for width in (0.5, 1.0, 2.0, 4.0, 8.0)])
    problem = GatedProblem(stack, MACHINES["svc"], Softmax(), X)
    at = problem.evaluate(Softmax().init(np.random.RandomState(0), 3, 5), None, 1e-6)
    before = stack.rows_read
    problem.gate_slopes(at)
    assert stack.rows_read - before == 2 * np.count_nonzero(at.solution.beta)


def test_slopes_of_a_joint_machine_sum_over_its_classes():
    stack, gates = feature_stack(), np.random.RandomState(0).uniform(size=(len(X), 3))
    beta = (
        np.random.RandomState(1).standard_normal((len(X), 4))
        * (np.arange(len(X)) % 3 > 0)[:, np.newaxis]
    )
    problem = GatedProblem(stack, CrammerSinger(Y, C=1.0), Softmax(), X)
    K = [next(stack.blocks([m], slice(0, 70), slice(0, 70)))[1] for m in range(3)]
    at = SimpleNamespace(gates=gates, solution=SimpleNamespace(beta=beta))
    expected = np.stack(
        [-np.sum(beta * (K[m] @ (gates[:, [m]] * beta)), axis=1) for m in range(3)], axis=1
    )
    assert_allclose(problem.gate_slopes(at), expected, atol=1e-9)
