"""The posterior of weights, coefficients and intercepts, factor by factor, and its bound."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.special import digamma, gammaln, log_ndtr

from kernelmosaic._checks import check_positive
from kernelmosaic._typing import Array
from kernelmosaic.gram.stack import GramStack


class Model(NamedTuple):
    """The constants of the model: gamma priors (shape, rate), the variance of the kernels' outputs,
    and the margin."""

    sample_prior: tuple[float, float]
    weight_prior: tuple[float, float]
    intercept_prior: tuple[float, float]
    variance: float
    margin: float


class Inference:
    """The factors of the approximate posterior of n samples, P kernels and K outputs.

    Parameters
    ----------
    stack : GramStack
        The Gram matrices.
    labels : ndarray of shape (n, K)
        +1 or −1.
    model : Model
        The constants.

    Attributes
    ----------
    a, a_var : ndarray of shape (n, K) and (n,)
        Means of the coefficients, and their variances, which the outputs share.
    g : ndarray of shape (P, n, K)
        Means of the kernels' outputs.
    b, e : ndarray of shape (K,) and (P,)
        Means of the intercepts and the weights.
    cov : ndarray of shape (K + P, K + P)
        Their covariance.
    f : ndarray of shape (n, K)
        Means of the outputs.
    """

    def __init__(self, stack: GramStack, labels: Array, model: Model) -> None:
        self.stack, self.labels, self.model = stack, labels, model
        (n, K), P = labels.shape, stack.n_kernels
        self.squares = np.zeros((n, n))
        for m in range(P):
            for strip in stack.row_strips(n):
                rows = stack.row_block(m, strip)
                self.squares += rows.T @ rows
        # Every kernel says what the labels do, with weight one: nothing is drawn, and (−a, −e) is
        # out of sight.
        self.f = labels * (1.0 + model.margin)
        self.g = np.tile(self.f, (P, 1, 1))
        self.b, self.e, self.cov = np.zeros(K), np.ones(P), np.eye(K + P)
        self.samples = Precisions.start(model.sample_prior, n)
        self.weights = Precisions.start(model.weight_prior, P)
        self.intercepts = Precisions.start(model.intercept_prior, K)

    def sweep(self) -> float:
        """Set each factor in turn to the best one given the others, and return the evidence lower
        bound."""
        self._update_coefficients()
        self._update_kernel_outputs()
        self._update_weights()
        self._rescale()
        self._update_outputs()
        return self.bound()

    def _update_coefficients(self) -> None:
        """Set q(a), whose covariance the outputs share, and q(λ)."""
        variance, (n, K) = self.model.variance, self.labels.shape
        A = self.squares / variance
        A.flat[:: n + 1] += self.samples.mean
        L, failed = dpotrf(A.T, lower=1, overwrite_a=1)
        if failed:
            raise ValueError(
                f"noise={np.sqrt(variance):g} is so small relative to the kernels that a matrix is"
                " numerically singular; raise noise, or scale the kernels down, as"
                " normalize='trace' does."
            )
        target = sum(
            self.stack.products(self.g[m], kernels=[m])[m] for m in range(self.stack.n_kernels)
        )
        self.a = dpotrs(L, target / variance, lower=1)[0]
        self.a_log_det = -2.0 * float(np.log(np.diag(L)).sum())
        self.a_var = np.diag(dpotri(L, lower=1, overwrite_c=1)[0]).copy()
        # tr(Σ Σ_m K_m²), from Σ (Σ_m K_m² / variance + diag λ) = I.
        self.a_trace = variance * float(n - self.samples.mean @ self.a_var)
        self.reach = self.stack.products(self.a)
        self.samples = self.samples.update(np.sum(self.a**2, axis=1) + K * self.a_var, K)

    def _update_kernel_outputs(self) -> None:
        """Set q(g), whose covariance all samples and outputs share."""
        P, K = len(self.e), len(self.b)
        precision = self._weight_moments() + np.eye(P) / self.model.variance
        self.g_cov = np.linalg.inv(precision)
        both = self.cov[K:, :K] + np.outer(self.e, self.b)
        right = (
            self.reach / self.model.variance
            + np.multiply.outer(self.e, self.f)
            - both[:, np.newaxis, :]
        )
        self.g = np.tensordot(self.g_cov, right, axes=1)

    def _update_weights(self) -> None:
        """Set q(e, b), q(ω) and q(γ)."""
        n, K = self.labels.shape
        precision = np.diag(np.concatenate([n + self.intercepts.mean, self.weights.mean]))
        precision[K:, :K] = self.g.sum(axis=1)
        precision[:K, K:] = precision[K:, :K].T
        precision[K:, K:] += self._kernel_moments()
        self.cov = np.linalg.inv(precision)
        self.cov = 0.5 * (self.cov + self.cov.T)
        target = np.concatenate([self.f.sum(axis=0), np.tensordot(self.g, self.f, axes=2)])
        self.b, self.e = np.split(self.cov @ target, [K])
        squares = np.diag(self.cov) + np.concatenate([self.b, self.e]) ** 2
        self.intercepts = self.intercepts.update(squares[:K], 1)
        self.weights = self.weights.update(squares[K:], 1)

    def _rescale(self) -> None:
        """Multiply a and g by the best factor and divide e by it, which leaves f as it is.

        Factor by factor the scale would creep: a, g and e hold one another in place.
        """
        (n, K), P = self.labels.shape, len(self.e)
        spread = np.sum(self.a**2, axis=1) + K * self.a_var
        squares = np.diag(self.cov)[K:] + self.e**2
        # The bound is ½ (count log u − inner u − outer / u) in the square u of the factor.
        count = n * K * (P + 1) - P
        inner = self._misfit() / self.model.variance + float(self.samples.mean @ spread)
        outer = float(self.weights.mean @ squares)
        u = (count + np.sqrt(count**2 + 4.0 * inner * outer)) / (2.0 * inner)
        c = np.sqrt(u)
        self.a, self.reach, self.g, self.e = c * self.a, c * self.reach, c * self.g, self.e / c
        self.a_var, self.a_trace, self.g_cov = u * self.a_var, u * self.a_trace, u * self.g_cov
        self.a_log_det += n * np.log(u)
        scale = np.concatenate([np.ones(K), np.full(P, 1.0 / c)])
        self.cov = scale[:, np.newaxis] * self.cov * scale
        self.samples = self.samples.update(u * spread, K)
        self.weights = self.weights.update(squares / u, 1)

    def _misfit(self) -> float:
        """Σ E‖g − Ka‖², the outputs of the coefficients."""
        n, K = self.labels.shape
        own = n * K * float(np.trace(self.g_cov)) + K * self.a_trace
        return float(np.sum((self.g - self.reach) ** 2) + own)

    def _update_outputs(self) -> None:
        """Set q(f): normal around the mean output, cut off where the label is not met by the
        margin."""
        self.f_mean = np.tensordot(self.e, self.g, axes=1) + self.b
        self.f, self.log_inside = cut_off(self.f_mean, self.labels, self.model.margin)

    def _weight_moments(self) -> Array:
        """E[e eᵀ]."""
        K = len(self.b)
        return np.asarray(self.cov[K:, K:] + np.outer(self.e, self.e))

    def _kernel_moments(self) -> Array:
        """Σ_ic E[g_ic g_icᵀ]."""
        flat = self.g.reshape(len(self.g), -1)
        return np.asarray(flat @ flat.T + flat.shape[1] * self.g_cov)

    def deviation(self) -> float:
        """Return the root of the mean variance of f over samples and outputs, with a at its
        mean."""
        (n, K), e_e = self.labels.shape, self.cov[len(self.b) :, len(self.b) :]
        flat = self.reach.reshape(len(self.e), -1)
        spread = float(np.sum(e_e * (flat @ flat.T))) / (n * K)
        spread += (
            float(
                2.0 * np.sum(self.cov[K:, :K] * self.reach.mean(axis=1))
                + np.trace(self.cov[:K, :K])
            )
            / K
        )
        return float(np.sqrt(1.0 + spread + self.model.variance * np.trace(self._weight_moments())))

    def bound(self) -> float:
        """Return E[log p(y, everything)] − E[log q(everything)], right after `_update_outputs`."""
        (n, K), P, variance = self.labels.shape, len(self.e), self.model.variance
        # f: where it is cut off, and the variance of its mean Σ_m e_m g_m + b.
        both = self.cov[K:, :K] + np.outer(self.e, self.b)
        second = float(np.sum(self._weight_moments() * self._kernel_moments()))
        second += 2.0 * float(np.sum(both * self.g.sum(axis=1)))
        second += n * float(np.sum(self.b**2 + np.diag(self.cov)[:K]))
        outputs = float(self.log_inside.sum()) - 0.5 * (second - float(np.sum(self.f_mean**2)))
        # g around the outputs of the coefficients; its own deviation.
        kernels = -0.5 * n * K * P * np.log(variance) - 0.5 * self._misfit() / variance
        kernels += 0.5 * n * K * (P + np.linalg.slogdet(self.g_cov)[1])
        # a, e and b around zero, with their precisions.
        squares = np.diag(self.cov) + np.concatenate([self.b, self.e]) ** 2
        zero = (
            self.samples.bound(np.sum(self.a**2, axis=1) + K * self.a_var, K)
            + self.intercepts.bound(squares[:K], 1)
            + self.weights.bound(squares[K:], 1)
        )
        own = 0.5 * (K * (n + self.a_log_det) + K + P + np.linalg.slogdet(self.cov)[1])
        return float(outputs + kernels + zero + own)


def cut_off(mean: Array, labels: Array, margin: float) -> tuple[Array, Array]:
    """Return the means of normal variables cut off where a margin is not met, and the logarithms of
    what is left."""
    inside = labels * mean - margin
    log_inside = log_ndtr(inside)
    return (
        mean + labels * np.exp(-0.5 * inside**2 - 0.5 * np.log(2.0 * np.pi) - log_inside),
        log_inside,
    )


class Precisions(NamedTuple):
    """Gamma distributions of the precisions of normal variables around zero, with their prior."""

    prior: tuple[float, float]
    shape: float | Array
    rate: Array

    @classmethod
    def start(cls, prior: tuple[float, float], size: int) -> Precisions:
        """The prior itself."""
        return cls(prior, prior[0], np.full(size, prior[1]))

    @property
    def mean(self) -> Array:
        return self.shape / self.rate

    def update(self, squares: Array, count: int | Array) -> Precisions:
        """Return the posterior, given the expected sums of squares of `count` variables for each
        precision."""
        shape, rate = self.prior
        return Precisions(self.prior, shape + 0.5 * count, rate + 0.5 * squares)

    def bound(self, squares: Array, count: int | Array) -> float:
        """Return what these and the normal densities of their variables, but for 2π, add to the
        bound."""
        (prior_shape, prior_rate), shape = self.prior, self.shape
        log = digamma(shape) - np.log(self.rate)
        normal = 0.5 * count * log - 0.5 * self.mean * squares
        prior = prior_shape * np.log(prior_rate) - gammaln(prior_shape) + (prior_shape - 1.0) * log
        prior = prior - prior_rate * self.mean
        entropy = shape - np.log(self.rate) + gammaln(shape) + (1.0 - shape) * digamma(shape)
        return float(np.sum(normal + prior + entropy))


def read_prior(name: str, value: Any) -> tuple[float, float]:
    """Return shape and rate of a gamma prior, or raise naming the parameter."""
    try:
        shape, rate = value
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}={value!r}: give two positive numbers, the shape and the rate."
        ) from None
    return check_positive(f"{name}[0]", shape), check_positive(f"{name}[1]", rate)
