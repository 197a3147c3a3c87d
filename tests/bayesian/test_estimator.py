"""The posterior over kernel weights: its bound by naive loops, its means by sampling, its behaviour
on noise views."""

from __future__ import annotations

import os

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import digamma, gammaln
from scipy.stats import gamma, multivariate_normal, norm, truncnorm
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from kernelmosaic import BayesianMKLClassifier, MKLClassifier, load, save
from kernelmosaic.bayesian.inference import Inference, Model
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.kernels import Gaussian, Linear, Precomputed
from kernelmosaic.plots import ConvergenceDisplay, KernelWeightsDisplay
from reproduction.data import load as read


def two_views(n=120, noise_views=2, seed=0):
    """One Gaussian and one linear view that tell the classes apart, and views of noise."""
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((n, 4 + 2 * noise_views))
    y = X[:, 0] * X[:, 1] + X[:, 2] > 0
    kernels = [("bell", Gaussian(), [0, 1]), ("line", Linear(), [2, 3])]
    return (
        X,
        y,
        kernels + [(f"noise{m}", Gaussian(), [4 + 2 * m, 5 + 2 * m]) for m in range(noise_views)],
    )


# The bound ----------------------------------------------------------------------------------------


def tiny(outputs=2, P=3, n=5, sweeps=4, kind=Inference):
    rng = np.random.RandomState(1)
    K = np.array([A @ A.T / 4 for A in rng.standard_normal((P, n, 4))])
    labels = np.where(rng.standard_normal((n, outputs)) > 0, 1.0, -1.0)
    inference = kind(StoredStack(K), labels, Model((1.5, 0.7), (0.8, 1.2), (1.0, 2.0), 0.3, 0.5))
    bounds = [inference.sweep() for _ in range(sweeps)]
    return K, labels, inference, bounds


def gamma_terms(prior, q, moments, count):
    """E[log p(precision)] + H(precision) + E[log p(its normal variables)], precision by
    precision."""
    total = 0.0
    for rate, second in zip(q.rate, moments, strict=True):
        mean, log = q.shape / rate, digamma(q.shape) - np.log(rate)
        total += (
            prior[0] * np.log(prior[1]) - gammaln(prior[0]) + (prior[0] - 1) * log - prior[1] * mean
        )
        total += gamma(q.shape, scale=1.0 / rate).entropy()
        total += 0.5 * count * (log - np.log(2 * np.pi)) - 0.5 * mean * second
    return total


def naive_bound(K, labels, q, a_cov):
    """The printed formulas, one sample, kernel and output at a time."""
    (n, outputs), P, model = labels.shape, len(K), q.model
    total = 0.0
    second_e = q.cov[outputs:, outputs:] + np.outer(q.e, q.e)
    for c in range(outputs):
        second_a = a_cov + np.outer(q.a[:, c], q.a[:, c])
        total += multivariate_normal(q.a[:, c], a_cov).entropy()
        for i in range(n):
            g = q.g[:, i, c]
            total += multivariate_normal(g, q.g_cov).entropy()
            second_g = q.g_cov + np.outer(g, g)
            for m in range(P):
                k = K[m, i]
                square = second_g[m, m] - 2 * g[m] * (k @ q.a[:, c]) + k @ second_a @ k
                total += -0.5 * np.log(2 * np.pi * model.variance) - 0.5 * square / model.variance
            mean, y = q.e @ g + q.b[c], labels[i, c]
            ends = (model.margin - mean, 40.0) if y > 0 else (-40.0, -model.margin - mean)
            f = truncnorm(*ends, loc=mean)
            both = q.cov[outputs:, c] + q.e * q.b[c]
            second = np.sum(second_e * second_g) + 2 * both @ g + q.b[c] ** 2 + q.cov[c, c]
            total += -0.5 * np.log(2 * np.pi) - 0.5 * (
                f.var() + f.mean() ** 2 - 2 * f.mean() * mean + second
            )
            total += f.entropy()
    total += multivariate_normal(np.concatenate([q.b, q.e]), q.cov).entropy()
    second_a = [sum(q.a[i, c] ** 2 + a_cov[i, i] for c in range(outputs)) for i in range(n)]
    second_b = [q.b[c] ** 2 + q.cov[c, c] for c in range(outputs)]
    total += gamma_terms(model.sample_prior, q.samples, second_a, outputs)
    total += gamma_terms(model.intercept_prior, q.intercepts, second_b, 1)
    return total + gamma_terms(model.weight_prior, q.weights, np.diag(second_e), 1)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_bound_is_that_of_a_naive_loop(outputs):
    class Remembering(Inference):
        def _update_coefficients(self):
            precision = self.samples.mean.copy()
            super()._update_coefficients()
            self.covariance = np.linalg.inv(
                np.diag(precision) + sum(K @ K for K in self.stack.matrices) / 0.3
            )

        def _rescale(self):
            before = self.e[0]
            super()._rescale()
            self.covariance = self.covariance * (before / self.e[0]) ** 2

    K, labels, inference, bounds = tiny(outputs, kind=Remembering)
    assert_allclose(np.diag(inference.covariance), inference.a_var, rtol=1e-9)
    assert_allclose(bounds[-1], naive_bound(K, labels, inference, inference.covariance), rtol=1e-9)


@pytest.mark.parametrize(
    "factor",
    [
        "_update_coefficients",
        "_update_kernel_outputs",
        "_update_weights",
        "_rescale",
        "_update_outputs",
    ],
)
def test_no_factor_lowers_the_bound(factor):
    _, _, inference, bounds = tiny(sweeps=2)
    assert bounds[1] >= bounds[0]
    getattr(inference, factor)()
    inference._update_outputs()
    assert inference.bound() >= bounds[1] - 1e-10 * abs(bounds[1])


@pytest.mark.parametrize("prior", [(1.0, 1.0), (1e-10, 1e-10)])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_bound_never_falls(classes, prior):
    X, y = load_iris(return_X_y=True)
    rows = np.flatnonzero(y >= 3 - classes)[::2]
    model = BayesianMKLClassifier(weight_prior=prior, tol=1e-12, max_iter=60)
    with pytest.warns(ConvergenceWarning, match="max_iter=60 .* raise max_iter, or tol"):
        model.fit(X[rows], y[rows])
    elbo = np.array([step["elbo"] for step in model.history_])
    assert len(elbo) == model.n_iter_ == 60
    assert np.all(np.diff(elbo) >= -1e-9 * np.abs(elbo[1:]))
    assert model.elbo_ == elbo[-1]


# The posterior ------------------------------------------------------------------------------------


def test_no_mean_could_be_better():
    K, labels, q, _ = tiny(1, P=2, n=2, sweeps=1000)
    a_cov = np.linalg.inv(np.diag(q.samples.mean) + sum(one @ one for one in K) / q.model.variance)
    assert_allclose(np.diag(a_cov), q.a_var, rtol=1e-5)
    best = naive_bound(K, labels, q, a_cov)
    for means in (q.a, q.g, q.e, q.b):
        for at in np.ndindex(*means.shape):
            for step in (-1e-3, 1e-3):
                kept, means[at] = means[at], means[at] + step
                assert naive_bound(K, labels, q, a_cov) < best
                means[at] = kept


def test_bound_and_means_beside_the_exact_posterior():
    # Draws from the prior, weighted by the likelihood in which g and f are integrated out, know no
    # approximation.
    rng = np.random.RandomState(0)
    x = np.array([-2.0, -1.5, -1.0, 1.0, 1.5, 2.0])
    K, y = [np.outer(x, x) / 3, np.eye(6)], np.sign(x)
    draws, noise, margin, prior = 100_000, 0.5, 0.2, (3.0, 2.0)

    def normal(size):
        return rng.standard_normal((draws, size)) / np.sqrt(
            rng.gamma(prior[0], 1.0 / prior[1], (draws, size))
        )

    a, e, b = normal(6), normal(2), normal(1)
    outputs = np.einsum("dm,mij,dj->di", e, K, a) + b
    deviation = np.sqrt(1.0 + noise**2 * np.sum(e**2, axis=1))
    likelihood = np.prod(norm.cdf((y * outputs - margin) / deviation[:, np.newaxis]), axis=1)
    exact = likelihood @ outputs / likelihood.sum()
    kernels = [Precomputed(one) for one in K]
    priors = {"sample_prior": prior, "weight_prior": prior, "intercept_prior": prior}
    model = BayesianMKLClassifier(
        kernels, **priors, normalize=None, noise=noise, margin=margin, tol=1e-8
    )
    found = model.fit(np.arange(6)[:, np.newaxis], y).decision_function(np.arange(6)[:, np.newaxis])
    assert model.elbo_ < np.log(likelihood.mean())
    # Factors that know the others by their means alone are too narrow, and outputs too small; their
    # shape is right.
    scale = found @ exact / (exact @ exact)
    assert 0.2 < scale < 1.0
    assert_allclose(found, scale * exact, rtol=0.05)
    moments = likelihood @ e**2 / likelihood.sum()
    assert moments[0] > 2 * moments[1]
    assert model.weights_[0] > 2 * abs(model.weights_[1])


# The estimator ------------------------------------------------------------------------------------


def test_noise_views_shrink_and_accuracy_is_kept():
    X, y, kernels = two_views(n=400, noise_views=3)
    model = BayesianMKLClassifier(kernels).fit(X[:150], y[:150])
    assert np.all(model.weights_[:2] > 10 * model.weights_std_[:2])
    assert np.all(np.abs(model.weights_[2:]) < 0.05 * model.weights_[:2].min())
    best = max(
        MKLClassifier(kernels, C=C).fit(X[:150], y[:150]).score(X[150:], y[150:])
        for C in (1.0, 10.0)
    )
    assert model.score(X[150:], y[150:]) >= best - 0.02


@pytest.mark.skipif(
    "KERNELMOSAIC_DATA" not in os.environ, reason="KERNELMOSAIC_DATA names no folder of npz files"
)
@pytest.mark.parametrize("task", ["EO", None])
def test_noise_views_beside_those_of_multifeat(task):
    found = read("multifeat", **({} if task is None else {"task": task}))
    rng = np.random.RandomState(0)
    views = [*found.views.values(), *rng.standard_normal((2, len(found.target), 40))]
    edges = np.cumsum([0, *(view.shape[1] for view in views)])
    kernels = [(f"view{m}", Linear(), slice(*edges[m : m + 2])) for m in range(len(views))]
    X, y, order = (
        StandardScaler().fit_transform(np.hstack(views)),
        found.target,
        rng.permutation(len(found.target)),
    )
    train, test = order[:300], order[300:1300]
    model = BayesianMKLClassifier(kernels).fit(X[train], y[train])
    assert np.all(np.abs(model.weights_[-2:]) < 0.2 * np.sort(model.weights_[:-2])[1:].min())
    best = max(
        MKLClassifier(kernels, C=C).fit(X[train], y[train]).score(X[test], y[test])
        for C in (1.0, 10.0)
    )
    assert model.score(X[test], y[test]) >= best - 0.02


def test_several_classes_share_the_weights():
    X, y = load_iris(return_X_y=True)
    X = np.hstack(
        [StandardScaler().fit_transform(X), np.random.RandomState(0).standard_normal((150, 4))]
    )
    model = BayesianMKLClassifier(
        [("flower", Gaussian(), list(range(4))), ("noise", Gaussian(), list(range(4, 8)))]
    )
    model.fit(X[::2], y[::2])
    assert model.weights_.shape == model.weights_std_.shape == (2,)
    assert abs(model.weights_[1]) < 0.2 * model.weights_[0]
    assert model.score(X[1::2], y[1::2]) > 0.9
    P = model.predict_proba(X)
    assert P.shape == (150, 3)
    assert_allclose(P.sum(axis=1), 1.0)
    f = model.decision_function(X)
    assert_allclose(model.contributions(X).sum(axis=1) + model.intercept_, f, rtol=1e-9)
    terms = [K @ model.dual_coef_.T for K in [model.kernel_matrix(X, X[::2])]]
    assert_allclose(terms[0] + model.intercept_, f, rtol=1e-6, atol=1e-8)


def test_probabilities():
    X, y, kernels = two_views()
    model = BayesianMKLClassifier(kernels).fit(X, y)
    P, f = model.predict_proba(X), model.decision_function(X)
    assert_allclose(P[:, 1], norm.cdf(f / model._deviation))
    assert_allclose(P.sum(axis=1), 1.0)
    # The classes' names decide nothing.
    mirrored = BayesianMKLClassifier(kernels).fit(X, ~y)
    assert_allclose(mirrored.predict_proba(X)[:, ::-1], P, rtol=1e-7)
    assert_allclose(mirrored.weights_, model.weights_, rtol=1e-7)


def test_the_deviation_is_that_of_draws():
    _, labels, q, _ = tiny(2)
    rng = np.random.RandomState(0)
    draws = rng.multivariate_normal(np.concatenate([q.b, q.e]), q.cov, 100_000)
    variances = []
    for i, c in np.ndindex(*labels.shape):
        g = q.coefficient_outputs[:, i, c] + np.sqrt(0.3) * rng.standard_normal((len(draws), 3))
        f = draws[:, c] + np.sum(draws[:, 2:] * g, axis=1) + rng.standard_normal(len(draws))
        variances.append(f.var())
    assert_allclose(q.deviation(), np.sqrt(np.mean(variances)), rtol=0.01)


def test_matrices_that_do_not_fit_are_recomputed():
    X, y, kernels = two_views(noise_views=1)
    whole = BayesianMKLClassifier(kernels, tol=1e-2).fit(X, y)
    blocks = BayesianMKLClassifier(kernels, tol=1e-2, memory_budget=1.5 * 8 * 120**2).fit(X, y)
    assert_allclose(blocks.weights_, whole.weights_, rtol=1e-7)
    assert_allclose(blocks.decision_function(X), whole.decision_function(X), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"noise": 0.0}, "noise=0.0: give a positive, finite number"),
        ({"margin": -1.0}, "margin=-1.0: give a finite number of at least zero"),
        (
            {"weight_prior": 1.0},
            "weight_prior=1.0: give two positive numbers, the shape and the rate",
        ),
        ({"sample_prior": (1.0, -1.0)}, r"sample_prior\[1\]=-1.0: give a positive, finite"),
        ({"max_iter": 0}, "max_iter=0: give a whole number of at least 1"),
        ({"tol": 0.0}, "tol=0.0: give a positive, finite number"),
    ],
)
def test_errors(parameters, message):
    X, y, kernels = two_views(40)
    with pytest.raises(ValueError, match=message):
        BayesianMKLClassifier(kernels, **parameters).fit(X, y)


def test_verbose_says_how_far_the_bound_is(capsys):
    X, y, kernels = two_views(40)
    BayesianMKLClassifier(kernels, tol=1e-2, verbose=True).fit(X, y)
    assert "BayesianMKLClassifier" in capsys.readouterr().out
    BayesianMKLClassifier(kernels, tol=1e-2).fit(X, y)
    assert capsys.readouterr().out == ""


def test_model_files_summary_and_displays(tmp_path):
    pytest.importorskip("skops")
    X, y, kernels = two_views(60)
    model = BayesianMKLClassifier(kernels).fit(X, y)
    save(model, tmp_path / "model.skops")
    assert_allclose(load(tmp_path / "model.skops").predict_proba(X), model.predict_proba(X))
    assert "evidence lower bound" in model._repr_html_inner()
    pytest.importorskip("matplotlib").use("Agg")
    assert ConvergenceDisplay.from_estimator(model).gap_name == "relative rise of the bound"
    assert len(KernelWeightsDisplay.from_estimator(model).ax_.patches) >= 4
