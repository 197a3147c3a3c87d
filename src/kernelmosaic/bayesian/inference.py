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
    """The constants of the model.

    Attributes
    ----------
    sample_prior, weight_prior, intercept_prior : (float, float)
        Shape and rate of the gamma priors of the precisions λ, ω and γ.
    variance : float
        The variance of a kernel's output around its sum.
    margin : float
        The least distance of the outputs of training samples from zero.
    """

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
    samples, weights, intercepts : Precisions
        The distributions of the precisions λ, ω and γ.
    sum_of_squares : ndarray of shape (n, n)
        Σ_m K_m².
    coefficient_outputs : ndarray of shape (P, n, K)
        K_m a, around which the kernels' outputs lie.
    """

    def __init__(self, stack: GramStack, labels: Array, model: Model) -> None:
        self.stack = stack
        self.labels = labels
        self.model = model
        n, K = labels.shape
        P = stack.n_kernels
        self.sum_of_squares = np.zeros((n, n))
        for m in range(P):
            for strip in stack.row_strips(n):
                rows = stack.row_block(m, strip)
                self.sum_of_squares += rows.T @ rows
        # At the start the output of every kernel is that of the labels, with weight one. Nothing is
        # drawn, and of the two equal solutions (a, e) and (−a, −e) the first is approached.
        self.f = labels * (1.0 + model.margin)
        self.g = np.tile(self.f, (P, 1, 1))
        self.b = np.zeros(K)
        self.e = np.ones(P)
        self.cov = np.eye(K + P)
        self.samples = Precisions.start(model.sample_prior, n)
        self.weights = Precisions.start(model.weight_prior, P)
        self.intercepts = Precisions.start(model.intercept_prior, K)

    def sweep(self) -> float:
        """Update all factors in turn, and return the evidence lower bound.

        Each becomes the best one given the others, so that the bound never falls.
        """
        self._update_coefficients()
        self._update_kernel_outputs()
        self._update_weights()
        self._rescale()
        self._update_outputs()
        return self.bound()

    def _update_coefficients(self) -> None:
        """Set q(a), whose covariance the outputs share, and q(λ)."""
        n, K = self.labels.shape
        variance = self.model.variance
        # The precision Σ_m K_m² / variance + diag λ of every output's coefficients.
        A = self.sum_of_squares / variance
        A.flat[:: n + 1] += self.samples.mean
        L, failed = dpotrf(A.T, lower=1, overwrite_a=1)
        if failed:
            raise ValueError(
                f"noise={np.sqrt(variance):g} is so small relative to the kernels that a matrix is"
                " numerically singular; raise noise, or scale the kernels down, as"
                " normalize='trace' does."
            )
        # Σ_m K_m g_m.
        right = sum(
            self.stack.products(self.g[m], kernels=[m])[m] for m in range(self.stack.n_kernels)
        )
        self.a = dpotrs(L, right / variance, lower=1)[0]
        self.a_log_det = -2.0 * float(np.log(np.diag(L)).sum())
        self.a_var = np.diag(dpotri(L, lower=1, overwrite_c=1)[0]).copy()
        # tr(Σ Σ_m K_m²), from Σ (Σ_m K_m² / variance + diag λ) = I.
        self.a_trace = variance * float(n - self.samples.mean @ self.a_var)
        self.coefficient_outputs = self.stack.products(self.a)
        self.samples = self.samples.update(self._coefficient_squares(), K)

    def _coefficient_squares(self) -> Array:
        """Return Σ_c E a_ic² of every sample, of shape (n,)."""
        K = self.labels.shape[1]
        return np.asarray(np.sum(self.a**2, axis=1) + K * self.a_var)

    def _update_kernel_outputs(self) -> None:
        """Set q(g), whose covariance all samples and outputs share."""
        variance = self.model.variance
        precision = self._weight_moments() + np.eye(len(self.e)) / variance
        self.g_cov = np.linalg.inv(precision)
        right = (
            self.coefficient_outputs / variance
            + np.multiply.outer(self.e, self.f)
            - self._weight_intercept_moments()[:, np.newaxis, :]
        )
        self.g = np.tensordot(self.g_cov, right, axes=1)

    def _update_weights(self) -> None:
        """Set q(e, b), q(ω) and q(γ)."""
        n, K = self.labels.shape
        precision = np.diag(np.concatenate([n + self.intercepts.mean, self.weights.mean]))
        precision[K:, :K] = self.g.sum(axis=1)
        precision[:K, K:] = precision[K:, :K].T
        precision[K:, K:] += self._output_moments()
        self.cov = np.linalg.inv(precision)
        self.cov = 0.5 * (self.cov + self.cov.T)
        right = np.concatenate([self.f.sum(axis=0), np.tensordot(self.g, self.f, axes=2)])
        self.b, self.e = np.split(self.cov @ right, [K])
        squares = self._linear_squares()
        self.intercepts = self.intercepts.update(squares[:K], 1)
        self.weights = self.weights.update(squares[K:], 1)

    def _rescale(self) -> None:
        """Multiply a and g by the best factor c and divide e by it, which leaves f as it is.

        Updates of one factor after the other would change the scale in tiny steps only, since a, g
        and e hold one another in place.
        """
        n, K = self.labels.shape
        P = len(self.e)
        coefficient_squares = self._coefficient_squares()
        weight_squares = np.diag(self.cov)[K:] + self.e**2
        # As a function of u = c² the bound is ½ (count log u − inner u − outer / u).
        count = n * K * (P + 1) - P
        inner = self._misfit() / self.model.variance
        inner += float(self.samples.mean @ coefficient_squares)
        outer = float(self.weights.mean @ weight_squares)
        u = (count + np.sqrt(count**2 + 4.0 * inner * outer)) / (2.0 * inner)
        c = np.sqrt(u)
        # Means of a and g take the factor c, their variances u, and those of e its inverse.
        self.a = c * self.a
        self.a_var = u * self.a_var
        self.a_trace = u * self.a_trace
        self.a_log_det += n * np.log(u)
        self.coefficient_outputs = c * self.coefficient_outputs
        self.g = c * self.g
        self.g_cov = u * self.g_cov
        self.e = self.e / c
        scale = np.concatenate([np.ones(K), np.full(P, 1.0 / c)])
        self.cov = scale[:, np.newaxis] * self.cov * scale
        self.samples = self.samples.update(u * coefficient_squares, K)
        self.weights = self.weights.update(weight_squares / u, 1)

    def _misfit(self) -> float:
        """Return Σ_mc E‖g_mc − K_m a_c‖²."""
        n, K = self.labels.shape
        variances = n * K * float(np.trace(self.g_cov)) + K * self.a_trace
        return float(np.sum((self.g - self.coefficient_outputs) ** 2) + variances)

    def _update_outputs(self) -> None:
        """Set q(f): normal around the mean output, cut off where the margin is not met."""
        self.f_mean = np.tensordot(self.e, self.g, axes=1) + self.b
        self.f, self.log_inside = cut_off(self.f_mean, self.labels, self.model.margin)

    def _weight_moments(self) -> Array:
        """Return E[e eᵀ], of shape (P, P)."""
        K = len(self.b)
        return np.asarray(self.cov[K:, K:] + np.outer(self.e, self.e))

    def _weight_intercept_moments(self) -> Array:
        """Return E[e bᵀ], of shape (P, K)."""
        K = len(self.b)
        return np.asarray(self.cov[K:, :K] + np.outer(self.e, self.b))

    def _linear_squares(self) -> Array:
        """Return E b² and E e² beside each other, of shape (K + P,)."""
        return np.asarray(np.diag(self.cov) + np.concatenate([self.b, self.e]) ** 2)

    def _output_moments(self) -> Array:
        """Return Σ_ic E[g_ic g_icᵀ], of shape (P, P)."""
        flat = self.g.reshape(len(self.g), -1)
        return np.asarray(flat @ flat.T + flat.shape[1] * self.g_cov)

    def deviation(self) -> float:
        """Return the root of the mean variance of f over samples and outputs, a at its mean."""
        n, K = self.labels.shape
        weight_cov = self.cov[K:, K:]
        flat = self.coefficient_outputs.reshape(len(self.e), -1)
        of_weights = float(np.sum(weight_cov * (flat @ flat.T))) / (n * K)
        mixed = 2.0 * np.sum(self.cov[K:, :K] * self.coefficient_outputs.mean(axis=1))
        of_intercepts = float(mixed + np.trace(self.cov[:K, :K])) / K
        of_kernels = self.model.variance * np.trace(self._weight_moments())
        return float(np.sqrt(1.0 + (of_weights + of_intercepts) + of_kernels))

    def bound(self) -> float:
        """Return the evidence lower bound, E[log p(y, all variables)] − E[log q(all variables)].

        It holds right after `_update_outputs` alone.
        """
        n, K = self.labels.shape
        P = len(self.e)
        variance = self.model.variance
        # f: where it is cut off, and the second moment of its mean Σ_m e_m g_m + b.
        second_moment = float(np.sum(self._weight_moments() * self._output_moments()))
        mixed = self._weight_intercept_moments() * self.g.sum(axis=1)
        second_moment += 2.0 * float(np.sum(mixed))
        second_moment += n * float(np.sum(self.b**2 + np.diag(self.cov)[:K]))
        variance_of_mean = second_moment - float(np.sum(self.f_mean**2))
        of_outputs = float(self.log_inside.sum()) - 0.5 * variance_of_mean
        # g: its density around K_m a, and its entropy.
        of_kernels = -0.5 * n * K * P * np.log(variance) - 0.5 * self._misfit() / variance
        of_kernels += 0.5 * n * K * (P + np.linalg.slogdet(self.g_cov)[1])
        # a, e and b: their densities around zero, with those of their precisions.
        squares = self._linear_squares()
        of_priors = (
            self.samples.bound(self._coefficient_squares(), K)
            + self.intercepts.bound(squares[:K], 1)
            + self.weights.bound(squares[K:], 1)
        )
        # The entropies of a, e and b.
        log_det = np.linalg.slogdet(self.cov)[1]
        entropies = 0.5 * (K * (n + self.a_log_det) + K + P + log_det)
        return float(of_outputs + of_kernels + of_priors + entropies)


def cut_off(mean: Array, labels: Array, margin: float) -> tuple[Array, Array]:
    """Return the moments of normal variables of variance one that must meet a margin.

    Returns
    -------
    means : ndarray like `mean`
        E[f | label · f > margin].
    log_inside : ndarray like `mean`
        log Pr(label · f > margin).
    """
    inside = labels * mean - margin
    log_inside = log_ndtr(inside)
    log_density = -0.5 * inside**2 - 0.5 * np.log(2.0 * np.pi)
    means = mean + labels * np.exp(log_density - log_inside)
    return means, log_inside


class Precisions(NamedTuple):
    """Gamma distributions of the precisions of normal variables around zero.

    Attributes
    ----------
    prior : (float, float)
        Shape and rate of the prior.
    shape, rate : float or ndarray
        Those of the posterior.
    """

    prior: tuple[float, float]
    shape: float | Array
    rate: Array

    @classmethod
    def start(cls, prior: tuple[float, float], size: int) -> Precisions:
        """Return `size` distributions that are the prior."""
        return cls(prior, prior[0], np.full(size, prior[1]))

    @property
    def mean(self) -> Array:
        """The expected precisions."""
        return self.shape / self.rate

    def update(self, squares: Array, count: int | Array) -> Precisions:
        """Return the posterior.

        Parameters
        ----------
        squares : ndarray
            For each precision the expected sum of squares of its variables.
        count : int or ndarray
            How many variables it has.
        """
        shape, rate = self.prior
        return Precisions(self.prior, shape + 0.5 * count, rate + 0.5 * squares)

    def bound(self, squares: Array, count: int | Array) -> float:
        """Return what the precisions and the densities of their variables add to the bound.

        The constant of 2π is left out. The parameters are those of `update`.
        """
        prior_shape, prior_rate = self.prior
        shape = self.shape
        mean_log = digamma(shape) - np.log(self.rate)
        normal = 0.5 * count * mean_log - 0.5 * self.mean * squares
        prior = prior_shape * np.log(prior_rate) - gammaln(prior_shape)
        prior = prior + (prior_shape - 1.0) * mean_log
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
