"""Kernels that compete for samples: the bound by naive loops, every factor, the exact posterior,
behaviour."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import digamma, gammaln, ndtr
from scipy.stats import gamma, multivariate_normal, norm
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier

from kernelmosaic import LocalizedBayesianMKLClassifier, LocalizedMKLClassifier, load, save
from kernelmosaic.bayesian.localized import Inference, LocalModel
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Precomputed

# The bound ----------------------------------------------------------------------------------------


class Remembering(Inference):
    """Keeps the covariances of the projections, by inverses."""

    def _update_projections(self):
        (P, R), level = self.h_log_det.shape, self.projections.mean.copy()
        self.h_cov = np.empty((P, R, len(self.f), len(self.f)))
        squares = [self.e[m] @ self.e[m].T + self.e.shape[2] * self.e_cov[m] for m in range(P)]
        for m, r in np.ndindex(P, R):
            own = np.diag(self.pi[:, m] * squares[m][r, r])
            self.h_cov[m, r] = np.linalg.inv(level[m] * np.linalg.inv(self.matrices[m]) + own)
        super()._update_projections()


def tiny(outputs=3, components=2, P=3, n=5, sweeps=4):
    rng = np.random.RandomState(1)
    K = [(A @ A.T / 4 + 0.1 * np.eye(n), n) for A in rng.standard_normal((P, n, n))]
    labels = np.where(rng.standard_normal((n, outputs)) > 0, 1.0, -1.0)
    Z = np.column_stack([rng.standard_normal((n, 1)), np.ones(n)])
    model = LocalModel((1.5, 0.7), (1.0, 2.0), (0.8, 1.2), 0.5, 1.0)
    inference = Remembering(K, labels, model, Z, components, rng)
    return inference, [inference.sweep() for _ in range(sweeps)]


def gamma_terms(prior, q, moments, counts):
    """E[log p(precision)] + H(precision) + E[log p(its normal variables)] without determinants of
    these."""
    total, shapes = 0.0, np.broadcast_to(q.shape, q.rate.shape)
    for shape, rate, second, count in zip(shapes, q.rate, moments, counts, strict=True):
        mean, log = shape / rate, digamma(shape) - np.log(rate)
        total += (
            prior[0] * np.log(prior[1]) - gammaln(prior[0]) + (prior[0] - 1) * log - prior[1] * mean
        )
        total += gamma(shape, scale=1.0 / rate).entropy()
        total += 0.5 * count * (log - np.log(2 * np.pi)) - 0.5 * mean * second
    return total


def cut(mean, sign, at=0.0):
    """Mean, variance and entropy of N(mean, 1) cut off at a point, of which the side of that sign
    is left; 0: both."""
    if sign == 0:
        return mean, 1.0, 0.5 * np.log(2 * np.pi * np.e)
    inside = sign * (mean - at)
    ratio = np.exp(-0.5 * inside**2) / np.sqrt(2 * np.pi) / ndtr(inside)
    entropy = 0.5 * np.log(2 * np.pi * np.e) + np.log(ndtr(inside)) - 0.5 * inside * ratio
    return mean + sign * ratio, 1.0 - ratio * (ratio + inside), entropy


def naive_bound(q):
    """The printed formulas, one sample, kernel, component and output at a time."""
    (n, K), (P, R), model = q.labels.shape, q.h_log_det.shape, q.model
    total, precision_moments = 0.0, np.zeros(P)
    for m in range(P):
        for r in range(R):
            mean, cov = q.h[:, m, r], q.h_cov[m, r]
            total += (
                multivariate_normal(mean, cov).entropy() - 0.5 * np.linalg.slogdet(q.matrices[m])[1]
            )
            precision_moments[m] += np.trace(
                np.linalg.inv(q.matrices[m]) @ (cov + np.outer(mean, mean))
            )
    total += gamma_terms(model.weight_prior, q.projections, precision_moments, [n * R] * P)
    for m in range(P if q.learns_e else 0):
        for c in range(K):
            total += multivariate_normal(q.e[m, :, c], q.e_cov[m]).entropy() - 0.5 * R * np.log(
                2 * np.pi
            )
            total += -0.5 * (q.e[m, :, c] @ q.e[m, :, c] + np.trace(q.e_cov[m]))
    total += K * norm(0, np.sqrt(q.b_var)).entropy()
    total += gamma_terms(model.intercept_prior, q.intercepts, [q.b @ q.b + K * q.b_var], [K])
    for m in range(P - 1):
        total += multivariate_normal(q.v[m], q.v_cov[m]).entropy()
    seconds = [q.v[m] @ q.v[m] + np.trace(q.v_cov[m]) for m in range(P - 1)]
    total += gamma_terms(model.gate_prior, q.gates, seconds, [q.Z.shape[1]] * (P - 1))
    for i in range(n):
        second = np.zeros(K)
        for m in range(P):
            total -= q.pi[i, m] * np.log(q.pi[i, m])
            # Of t given s = m: cut off from above before it, from below at it, whole behind it.
            for h in range(P - 1):
                mu, now = q.mu[i, h], q.Z[i] @ q.v[h]
                mean, variance, entropy = cut(mu, -1 if h < m else 1 if h == m else 0)
                square = variance + (mean - now) ** 2 + q.Z[i] @ q.v_cov[h] @ q.Z[i]
                total += q.pi[i, m] * (entropy - 0.5 * np.log(2 * np.pi) - 0.5 * square)
            both = np.outer(q.h[i, m], q.h[i, m]) + np.diag([q.h_cov[m, r, i, i] for r in range(R)])
            for c in range(K):
                weights = np.outer(q.e[m, :, c], q.e[m, :, c]) + q.e_cov[m]
                square = (
                    np.sum(weights * both)
                    + 2 * q.b[c] * (q.e[m, :, c] @ q.h[i, m])
                    + q.b[c] ** 2
                    + q.b_var
                )
                second[c] += q.pi[i, m] * square
        for c in range(K):
            mean, y = (
                sum(q.pi[i, m] * (q.e[m, :, c] @ q.h[i, m]) for m in range(P)) + q.b[c],
                q.labels[i, c],
            )
            f, variance, entropy = cut(q.f_mean[i, c], y, y * model.margin)
            total += (
                entropy
                - 0.5 * np.log(2 * np.pi)
                - 0.5 * (variance + f**2 - 2 * f * mean + second[c])
            )
    return total


@pytest.mark.parametrize(
    ("outputs", "components", "P"), [(1, 1, 3), (3, 3, 2), (3, 2, 3), (3, 1, 1)]
)
def test_the_bound_is_that_of_a_naive_loop(outputs, components, P):
    inference, bounds = tiny(outputs, components, P)
    assert_allclose(bounds[-1], naive_bound(inference), rtol=1e-9)
    assert np.all(np.diff(bounds) > 0)


@pytest.mark.parametrize(
    "factor",
    [
        "_update_projections",
        "_update_mixing",
        "_update_intercepts",
        "_update_switches",
        "_update_gates",
    ],
)
def test_no_factor_lowers_the_bound(factor):
    q, bounds = tiny(sweeps=2)
    getattr(q, factor)()
    q._update_outputs()
    assert q.bound() > bounds[1]


def test_at_the_end_no_factor_could_be_better():
    q, _ = tiny(outputs=2, components=1, P=2, n=2, sweeps=300)
    best = naive_bound(q)
    rates = [q.projections.rate, q.intercepts.rate, q.gates.rate]
    covariances = [
        q.e_cov.reshape(-1),
        *(np.einsum("qq->q", cov) for cov in q.v_cov),
        *np.einsum("mrii->mri", q.h_cov)[:, 0],
    ]
    for values in (q.h, q.e, q.b, q.v, *rates, *covariances):
        for at in np.ndindex(*values.shape):
            for step in (-1e-2, 1e-2):
                kept, values[at] = values[at], values[at] + step * (1e-1 + abs(values[at]))
                assert naive_bound(q) < best
                values[at] = kept
    for i, step in np.ndindex(len(q.pi), 2):
        kept = q.pi[i].copy()
        q.pi[i, 0] *= 0.99 + 0.02 * step
        q.pi[i, 1] = 1.0 - q.pi[i, 0]
        assert naive_bound(q) < best
        q.pi[i] = kept


def test_bound_and_outputs_beside_the_exact_posterior():
    # Draws from the prior, weighted by the likelihood in which f is integrated out, need no
    # approximation.
    rng = np.random.RandomState(0)
    x = np.array([-2.0, -1.5, -1.0, 1.0, 1.5, 2.0])
    y, K, prior, draws = np.sign(x), [np.outer(x, x) / 2, np.eye(6)], (3.0, 2.0), 100_000
    z = np.column_stack([(x - x.mean()) / x.std(), np.ones(6)])

    def normal(*size):
        precision = rng.gamma(prior[0], 1.0 / prior[1], (draws, *(1 for _ in size)))
        return rng.standard_normal((draws, *size)) / np.sqrt(precision)

    h = np.stack([normal(1) * x / np.sqrt(2), normal(6)], axis=2)
    on = normal(2) @ z.T + rng.standard_normal((draws, 6)) > 0
    outputs = np.where(on, h[:, :, 0], h[:, :, 1]) + normal(1)
    likelihood = np.prod(norm.cdf(y * outputs - 0.2), axis=1)
    exact = likelihood @ outputs / likelihood.sum()
    model = LocalizedBayesianMKLClassifier(
        [Precomputed(one) for one in K],
        gating_columns=[1],
        weight_prior=prior,
        intercept_prior=prior,
        gate_prior=prior,
        normalize=None,
        margin=0.2,
        tol=1e-7,
    )
    X = np.column_stack([np.arange(6), x])
    model.set_params(kernels=[("line", Precomputed(K[0]), [0]), ("own", Precomputed(K[1]), [0])])
    found = model.fit(X, y).decision_function(X)
    assert model.elbo_ < np.log(likelihood.mean())
    assert np.corrcoef(found, exact)[0, 1] > 0.98
    assert 0.4 < found @ exact / (exact @ exact) < 1.1
    # The line explains all samples at once, and has most of them.
    share = likelihood @ on.mean(axis=1) / likelihood.sum()
    assert share > 0.5
    assert model.weights_[0] > 0.5


# The estimator ------------------------------------------------------------------------------------


def gaussians(n, seed):
    X, y = make_gaussians(n_components=4, n_samples=n, random_state=seed)
    return X, (y == y.max()).astype(int)


def test_local_lines_are_as_good_as_those_of_support_vector_machines():
    X, y = gaussians(200, 0)
    new, truth = gaussians(4000, 1)
    model = LocalizedBayesianMKLClassifier([Linear(), Polynomial()], n_init=4, tol=1e-3).fit(X, y)
    plain = LocalizedMKLClassifier([Linear(), Polynomial()]).fit(X, y)
    assert model.score(new, truth) > max(0.87, plain.score(new, truth) - 0.02)
    elbo = np.array([step["elbo"] for step in model.history_])
    assert len(elbo) == model.n_iter_
    assert np.all(np.diff(elbo) >= -1e-9 * np.abs(elbo[1:]))
    gates = model.gate(new)
    assert_allclose(gates.sum(axis=1), 1.0)
    assert_allclose(model.gate(X).mean(axis=0), model.weights_)
    # Of samples that are given a probability, that share is of the class.
    p = model.predict_proba(new)[:, 1]
    groups = np.digitize(p, np.linspace(0, 1, 11)[1:-1])
    error = [
        np.mean(groups == k) * abs(p[groups == k].mean() - truth[groups == k].mean())
        for k in np.unique(groups)
    ]
    assert sum(error) < 0.05


def test_decisions_are_sums_over_kernels_under_gates():
    X, y = load_iris(return_X_y=True)
    kernels = [("line", Linear(), [0, 1]), ("bell", Gaussian(), [2, 3])]
    model = LocalizedBayesianMKLClassifier(kernels, n_init=1, tol=1e-3, gating_columns=[2]).fit(
        X[::2], y[::2]
    )
    f = model.decision_function(X)
    assert f.shape == (150, 3)
    assert_allclose(model.contributions(X).sum(axis=1) + model.intercept_, f)
    h = model.components(X).reshape(150, 2, 3)
    assert_allclose(np.einsum("nm,nmc->nc", model.gate(X), h) + model.intercept_, f)
    assert model.score(X[1::2], y[1::2]) > 0.9
    K = model.kernel_matrix(X)
    assert_allclose(K, K.T)
    assert np.linalg.eigvalsh(K).min() > -1e-9 * np.abs(K).max()
    # Gates in the units of the column that they read.
    slope, at = model.gating_params_["coef"][0, 0], model.gating_params_["intercept"][0]
    z = np.column_stack([(X[:, 2] - X[::2, 2].mean()) / X[::2, 2].std(), np.ones(150)])
    spread = np.einsum("nq,qp,np->n", z, model.function_.v_cov[0], z)
    assert_allclose(model.gate(X)[:, 0], norm.cdf((slope * X[:, 2] + at) / np.sqrt(1.0 + spread)))
    assert_allclose(model.gating_params_["std"][0], np.sqrt(np.diag(model.function_.v_cov[0])))


def test_a_projection_of_digits_keeps_the_classes_apart():
    X, y = load_digits(n_class=4, return_X_y=True)
    train, new = slice(0, 120), slice(120, None)
    model = LocalizedBayesianMKLClassifier([Linear()], n_components=2, n_init=1, tol=1e-3).fit(
        X[train], y[train]
    )
    seen, other = model.components(X[train]), model.components(X[new])
    assert other.shape[1] == 2
    # A linear kernel's projection is a matrix.
    W, *_ = np.linalg.lstsq(X[train], seen, rcond=None)
    assert_allclose(X[new] @ W, other, atol=1e-6 * np.abs(other).max())
    near = KNeighborsClassifier(15).fit(seen, y[train]).score(other, y[new])
    centred = X - X[train].mean(axis=0)
    axes = np.linalg.svd(centred[train], full_matrices=False)[2][:2].T
    by_variance = (
        KNeighborsClassifier(15)
        .fit(centred[train] @ axes, y[train])
        .score(centred[new] @ axes, y[new])
    )
    assert near > by_variance + 0.03


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"n_components": 2},
            "n_components=2: a kernel has at most as many components as there are outputs, 1",
        ),
        ({"n_init": 0}, "n_init=0: give a whole number of at least 1"),
        ({"margin": -1.0}, "margin=-1.0: give a finite number of at least zero"),
        ({"gate_prior": 1.0}, "gate_prior=1.0: give two positive numbers, the shape and the rate"),
        (
            {"kernels": [Precomputed(np.eye(40)), Precomputed(np.eye(40))]},
            "gating_columns=None: gates read numbers",
        ),
    ],
)
def test_errors(parameters, message):
    X, y = gaussians(40, 0)
    X = np.arange(40)[:, np.newaxis] if "kernels" in parameters else X
    with pytest.raises(ValueError, match=message):
        LocalizedBayesianMKLClassifier(**{"kernels": [Linear(), Gaussian()], **parameters}).fit(
            X, y
        )


@pytest.mark.parametrize("name", ["gate", "components", "decision_function"])
def test_what_is_asked_before_a_fit(name):
    with pytest.raises(NotFittedError):
        getattr(LocalizedBayesianMKLClassifier(), name)(np.eye(2))


def test_model_files(tmp_path):
    pytest.importorskip("skops")
    X, y = gaussians(60, 0)
    model = LocalizedBayesianMKLClassifier([Linear(), Gaussian()], n_init=1, tol=1e-2).fit(X, y)
    save(model, tmp_path / "model.skops")
    assert_allclose(load(tmp_path / "model.skops").predict_proba(X), model.predict_proba(X))
