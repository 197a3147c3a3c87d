"""What a fit states of itself, held to the printed problem in exact arithmetic: primal and dual
values as fractions."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from tests.sweeps import later

from kernelmosaic import MKLClassifier, MKLOneClass, MKLRegressor
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.learning.certificate import certified_gap


def fractions(values):
    """The numbers as they are, without rounding."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(values, dtype=np.float64))


def exact_gram(kernel, X, Z):
    inner = fractions(X) @ fractions(Z).T
    if isinstance(kernel, Linear):
        return inner
    if isinstance(kernel, Polynomial):
        return (inner + Fraction(kernel.offset)) ** kernel.degree
    distances = ((fractions(X)[:, np.newaxis] - fractions(Z)[np.newaxis]) ** 2).sum(axis=2)
    long = -distances.astype(np.longdouble) / np.longdouble(kernel.width) ** 2
    return np.vectorize(lambda value: Fraction(*value.as_integer_ratio()), otypes=[object])(
        np.exp(long)
    )


def statement(model, fit=None):
    """Fit quietly, and return the objective and the gap that are stated, and whether a warning was
    given."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    return (
        model.objective_,
        model.duality_gap_,
        any(issubclass(w.category, ConvergenceWarning) for w in caught),
    )


def forms(model, kernels, X, output=0):
    """Outputs without the intercept, and ½βᵀK_mβ of every kernel, from what the model returns."""
    beta = np.array([Fraction(0)] * len(X), dtype=object)
    beta[model.support_] = fractions(model.dual_coef_[output])
    products = [exact_gram(kernel, X, X) @ beta for kernel in kernels]
    weights = fractions(np.atleast_2d(model.weights_)[output if model.weights_.ndim == 2 else 0])
    return beta, weights @ np.array(products), [beta @ one / 2 for one in products], weights


def check(stated, primal, dual, model):
    objective, gap, warned = stated
    assert not np.isnan(objective)
    assert not np.isnan(gap)
    assert warned == (gap > model.tol)
    if not np.isfinite(gap):
        return
    scale = max(abs(primal), abs(dual))
    assert float(primal - dual) <= gap * float(scale) * (1 + 1e-9) + 1e-300
    assert (
        abs(float(primal) - objective)
        <= gap * float(max(scale, abs(Fraction(objective)))) * (1 + 1e-9) + 1e-300
    )


@pytest.mark.parametrize(
    ("offset", "C", "slack"),
    [
        *((offset, C, 1) for offset, C in [(0.0, 1e3), (1e4, 1e6), (1e6, 1e6)]),
        *((offset, C, 2) for offset, C in [(1e4, 1.0), (1e6, 1e6)]),
        # Nearer to the origin, or with a smaller C, rounding says less.
        *map(later, [(0.0, 1.0, 1), (1e5, 1.0, 1), (0.0, 1e3, 2)]),
    ],
)
def test_classes_far_from_the_origin(offset, C, slack):
    # Far from the origin, and with a large C, a fit works until rounding stops it: each kernel has
    # a few of these.
    far = {(1e4, 1e6, 1): (1,), (1e6, 1e6, 1): (0, 2), (1e6, 1e6, 2): (1,)}
    for seed in far.get((offset, C, slack), range(3)):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(20, 3))
        y = np.where(X[:, 0] + 0.7 * rng.normal(size=20) > 0, 1, -1)
        X = X + offset
        kernels = [[Linear()], [Linear(), Gaussian(2.0)], [Polynomial(2), Linear()]][seed]
        model = MKLClassifier(kernels, C=C, slack=slack, normalize=None)
        stated = statement(model, lambda model=model, X=X, y=y: model.fit(X, y))
        beta, f, q, weights = forms(model, kernels, X)
        labels, c = fractions(y), Fraction(C)
        slacks = np.maximum(1 - labels * (f + Fraction(float(model.intercept_[0]))), 0)
        # Both problems in the scale of the program: with squared slacks that is half of what is
        # printed.
        losses = c * slacks.sum() if slack == 1 else c * (slacks**2).sum() / 2
        primal = weights @ np.array(q) + losses
        dual = labels @ beta - max(q) - (0 if slack == 1 else (beta**2).sum() / c / 2)
        # The sum is zero to within its rounding only: the multiplier of what is missed is the
        # intercept.
        dual -= abs(sum(beta)) * abs(Fraction(float(model.intercept_[0])))
        factor = 1 if slack == 1 else 2
        check(stated, factor * primal, factor * dual, model)


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_targets_far_from_zero(offset):
    for n, seed in [(30, 0), (30, 1), (20, 2)]:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 2))
        y = X[:, 0] + 0.1 * rng.normal(size=n) + offset
        kernels, C, epsilon = [Linear(), Gaussian(1.0)], [1.0, 1e3, 1e5][seed], 0.05
        model = MKLRegressor(kernels, C=C, epsilon=epsilon, normalize=None)
        stated = statement(model, lambda model=model, X=X, y=y: model.fit(X, y))
        beta, f, q, weights = forms(model, kernels, X)
        residuals = fractions(y) - f - Fraction(float(model.intercept_[0]))
        losses = Fraction(C) * np.maximum(np.abs(residuals) - Fraction(epsilon), 0).sum()
        dual = fractions(y) @ beta - Fraction(epsilon) * np.abs(beta).sum() - max(q)
        dual -= abs(sum(beta)) * abs(Fraction(float(model.intercept_[0])))
        check(stated, weights @ np.array(q) + losses, dual, model)


@pytest.mark.parametrize("solver", ["newton", "qcqp"])
@pytest.mark.parametrize("scale", [1e-3, later(1.0), later(10.0), 1e3])
def test_one_class_of_any_scale(scale, solver):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X = scale * rng.normal(size=(24, 3))
        kernels = [Polynomial(3), Polynomial(3, offset=2.0), Linear()]
        model = MKLOneClass(kernels, nu=0.5, normalize=None, solver=solver)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            stated = statement(model, lambda model=model, X=X: model.fit(X))
        beta, f, q, weights = forms(model, kernels, X)
        intercept = Fraction(float(model.intercept_[0]))
        losses = Fraction(1.0 / (0.5 * len(X))) * np.maximum(-(f + intercept), 0).sum()
        dual = -max(q) - abs(sum(beta) - 1) * abs(intercept)
        check(stated, weights @ np.array(q) + losses + intercept, dual, model)


def multiclass_values(model, kernels, X, y, C, pairwise):
    """Primal and dual value of a joint machine as printed, with constants."""
    labels = np.searchsorted(model.classes_, y)
    n, k = len(X), len(model.classes_)
    beta = np.full((n, k), Fraction(0), dtype=object)
    beta[model.support_] = fractions(model.dual_coef_.T)
    products = [exact_gram(kernel, X, X) @ beta for kernel in kernels]
    q = [sum((beta * one).ravel()) / 2 for one in products]
    weights, constants = fractions(model.weights_), fractions(model.intercept_)
    f = sum(w * one for w, one in zip(weights, products, strict=True)) + constants
    margin = 2 if pairwise else 1
    behind = margin + f - f[np.arange(n), labels][:, np.newaxis]
    behind[np.arange(n), labels] = Fraction(0)
    behind = np.maximum(behind, 0)
    losses = Fraction(C) * (behind.sum() if pairwise else behind.max(axis=1).sum())
    others = np.ones((n, k), dtype=bool)
    others[np.arange(n), labels] = False
    dual = -margin * beta[others].sum() - max(q)
    dual -= sum(abs(b) * abs(sum(own)) for b, own in zip(constants, beta.T, strict=True))
    return weights @ np.array(q) + losses, dual


@pytest.mark.parametrize("multi_class", ["joint", "pairwise"])
@pytest.mark.parametrize(("offset", "C"), [later((0.0, 1.0)), (0.0, 1e6), (1e3, 1e3), (1e6, 1e6)])
def test_joint_machines_far_from_the_origin(offset, C, multi_class):
    # Far from the origin rounding of the forms is much of the gap; which draw shows it depends on
    # the machine.
    for seed in (0, 2, 4) if offset == 1e3 else (0,):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(12, 2))
        y = rng.integers(0, 3, size=12)
        X = X + offset + y[:, np.newaxis]
        kernels = [Polynomial(3), Linear()]
        model = MKLClassifier(kernels, C=C, multi_class=multi_class, normalize=None)
        stated = statement(model, lambda model=model, X=X, y=y: model.fit(X, y))
        check(stated, *multiclass_values(model, kernels, X, y, C, multi_class == "pairwise"), model)


def test_matrices_in_single_precision_are_certified_in_double():
    # Above 1,000 samples entries are stored in single precision; what is certified is the kernel.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1100, 3))
    y = np.where(X[:, 0] + rng.normal(size=1100) > 0, 1.0, -1.0)
    kernels, C = [Linear(), Gaussian(2.0)], 1.0
    model = MKLClassifier(kernels, C=C, normalize=None, tol=1e-2)
    objective, gap, warned = statement(model, lambda: model.fit(X, y))
    beta = np.zeros(len(X))
    beta[model.support_] = model.dual_coef_[0]
    # Differences squared, not products: all digits of double precision, far more than the bound
    # below needs.
    distances = cdist(X, X[model.support_], "sqeuclidean")
    products = [X @ (X.T @ beta), np.exp(-distances / 4.0) @ beta[model.support_]]
    q = np.array([0.5 * beta @ one for one in products])
    f = model.weights_ @ np.array(products) + model.intercept_[0]
    primal = model.weights_ @ q + C * np.maximum(1 - y * f, 0).sum()
    dual = y @ beta - q.max() - abs(beta.sum() * model.intercept_[0])
    assert not warned
    assert (primal - dual) / primal <= gap
    # Entries in single precision move the value by more than this.
    assert abs(primal - objective) <= 1e-11 * primal


def test_bounds_that_cross_or_are_not_finite_prove_nothing():
    assert certified_gap(1.0, 1.0, 2.0) == np.inf
    assert certified_gap(1.0, np.inf, 0.5) == np.inf
    assert certified_gap(1.0, 1.0, np.nan) == np.inf
    assert certified_gap(0.0, 0.0, 0.0) == 0.0
    # The primal value may be as far below the objective as the bound is above it.
    assert certified_gap(2.0, 2.5, 1.0) == pytest.approx(1.0)
