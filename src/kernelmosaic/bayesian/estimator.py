"""Classification with a posterior over the weights of the kernels, by variational inference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.special import digamma, gammaln, log_ndtr, ndtr, softmax
from sklearn.exceptions import ConvergenceWarning

from kernelmosaic._checks import check_count, check_positive, warn_caller
from kernelmosaic._typing import (
    AnyArray,
    Array,
    KernelsLike,
    MatrixLike,
    Seed,
    Settings,
    TargetLike,
)
from kernelmosaic.engine.expansion import Function
from kernelmosaic.engine.samples import DistinctSamples
from kernelmosaic.engine.tasks import Labels, find_classes
from kernelmosaic.engine.training_set import active_store, read_training_set
from kernelmosaic.estimators.classifier import KernelClassifier
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.problem import progress


class BayesianMKLClassifier(KernelClassifier):
    """Probit classification on a weighted sum of kernels, with a posterior over the weights.

    Bayesian efficient multiple kernel learning. With outputs c, one for two classes and otherwise
    one per class against the rest, and labels y_ic = ±1, the model is

    - λ_i ~ Gamma(sample prior), a_ic ~ N(0, 1/λ_i): one coefficient per sample and output;
    - g_imc ~ N(Σ_j a_jc k_m(x_i, x_j), noise²): the output of each kernel for each sample;
    - ω_m ~ Gamma(weight prior), e_m ~ N(0, 1/ω_m): **one weight per kernel, shared by all
      outputs**;
    - γ_c ~ Gamma(intercept prior), b_c ~ N(0, 1/γ_c);
    - f_ic ~ N(Σ_m e_m g_imc + b_c, 1), of which it is known that y_ic f_ic > margin.

    The posterior is approximated by q(λ) q(a) q(g) q(ω) q(γ) q(e, b) q(f). Each factor in turn is
    set to the best one given the others, in closed form, so that the evidence lower bound (ELBO)
    never falls.

    :meth:`predict_proba` is the probit of the decision function over its deviation, that of the
    training samples' outputs f on average: the weights and intercepts, the noise and the unit
    variance of f add to it, the coefficients a are taken at their posterior means. Probabilities
    therefore rank as the decision function does. Several classes have those of one versus rest,
    scaled to sum to one.

    Every iteration factorises one n × n matrix, whatever the number of kernels and classes: this is
    for sets of up to a few thousand samples.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLClassifier`.
    sample_prior, weight_prior, intercept_prior : (float, float), default=(1, 1), (1e-10, 1e-10) and
    (1, 1)
        Shape and rate of the gamma priors of the precisions λ, ω and γ. The default of the weights
        barely limits how large they are, and lets those of useless kernels shrink towards zero; (1,
        1) holds all of them near one.
    noise : float, default=1.0
        Standard deviation of the output of a kernel around its sum; smaller values fit more
        closely.
    margin : float, default=1.0
        The least distance of the outputs of training samples from zero; zero or more.
    normalize : {"trace", "diagonal", "centered"} or None, default="trace"
        As in :class:`MKLClassifier`.
    tol : float, default=1e-4
        Relative rise of the bound at which to stop.
    max_iter : int, default=500
        Maximum number of iterations.
    memory_budget : float, default=None
        Bytes the Gram matrices may take; as in :class:`MKLClassifier`. Two more matrices of their
        size are needed.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    weights_, weights_std_ : ndarray of shape (P,)
        Posterior means and standard deviations of the weights e. They do not sum to one, and may be
        negative; changing the sign of all weights and coefficients changes nothing, and the one
        that starts at weights of one is taken.
    kernel_names_ : list of str
        Names of the kernels.
    dual_coef_ : ndarray of shape (outputs, n_samples)
        Posterior means of the coefficients a.
    intercept_ : ndarray of shape (outputs,)
        Posterior means of b.
    elbo_ : float
        The evidence lower bound reached.
    history_ : list of dict
        Of every iteration the bound (``elbo``), its negative (``objective``) and its relative rise
        (``gap``).
    n_iter_ : int
        Number of iterations.
    support_, n_support_, support_fraction_
        Samples with a coefficient, which are all; how many of each class; their share.
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.

    References
    ----------
    Gönen (2012), "Bayesian efficient multiple kernel learning", International Conference on Machine
    Learning. The paper has two classes; the outputs of several share the weights e and the
    precisions λ here.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import BayesianMKLClassifier
    >>> from kernelmosaic.kernels import Linear
    >>> X = np.random.RandomState(0).standard_normal((60, 4))
    >>> kernels = [("useful", Linear(), [0, 1]), ("useless", Linear(), [2, 3])]
    >>> model = BayesianMKLClassifier(kernels).fit(X, X[:, 0] + X[:, 1] > 0)
    >>> bool(model.weights_[0] > 10 * abs(model.weights_[1]))
    True
    >>> model.predict_proba(X[:1]).shape
    (1, 2)
    """

    _knows_probabilities = True
    # Kernels are exact, and computed on the host.
    approximation = None
    rank = None
    device = None
    # Landmarks and frequencies are drawn with it, of which exact kernels have none.
    random_state: Seed = None
    # The sum of squared matrices is inverted: single precision would leave nothing of a small
    # precision λ.
    _stack_dtype = np.float64

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        sample_prior: Any = (1.0, 1.0),
        weight_prior: Any = (1e-10, 1e-10),
        intercept_prior: Any = (1.0, 1.0),
        noise: float = 1.0,
        margin: float = 1.0,
        normalize: str | None = "trace",
        tol: float = 1e-4,
        max_iter: int = 500,
        memory_budget: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.sample_prior = sample_prior
        self.weight_prior = weight_prior
        self.intercept_prior = intercept_prior
        self.noise = noise
        self.margin = margin
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.verbose = verbose

    def fit(self, X: MatrixLike, y: TargetLike) -> Self:
        """Fit to samples and their classes.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Classes.

        Returns
        -------
        self
        """
        given = replace(
            self.validated(X, y, None), device=None
        )  # samples on a device are inferred from here
        y = given.y
        self.classes_ = find_classes(y, None, type(self).__name__)
        self._check_parameters()
        counted = DistinctSamples.all_of(len(y), None)
        data = read_training_set(
            self.kernel_options(given), given.X, given.original, counted, active_store()
        )
        self.kernel_names_, self.view_names_ = data.names()
        positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        with data.threads():
            inference = self._infer(
                data, np.where(np.asarray(y)[:, np.newaxis] == positive, 1.0, -1.0)
            )
        self.support_, self.support_fraction_ = np.arange(len(y)), 1.0
        self.n_support_ = np.bincount(Labels(self.classes_).codes(y), minlength=len(self.classes_))
        with data.threads():
            self._set_posterior(data, inference)
        if not self.history_[-1]["gap"] <= self.tol:
            warn_caller(
                f"{type(self).__name__} stopped after max_iter={self.max_iter} iterations while the"
                f" bound still rose by {self.history_[-1]['gap']:.2g}, above tol={self.tol:g}:"
                " raise max_iter, or tol.",
                ConvergenceWarning,
            )
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count("max_iter", self.max_iter)

    def _check_rank(self) -> None:
        """Raise nothing: there is no such parameter."""

    def _infer(self, data: Any, labels: Array) -> Any:
        """Return the factors at the end, and set the bound and its history."""
        names = ("sample_prior", "weight_prior", "intercept_prior")
        samples, weights, intercepts = (prior_of(name, getattr(self, name)) for name in names)
        variance, margin = (
            check_positive("noise", self.noise) ** 2,
            check_positive("margin", self.margin, zero=True),
        )
        inference = Inference(
            data.stack, labels, Model(samples, weights, intercepts, variance, margin)
        )
        self.history_, self.elbo_, self.n_iter_ = self._run(inference)
        return inference

    def _run(self, inference: Any) -> tuple[list[Settings], float, int]:
        """Sweep until the bound stops rising; return the history, the last bound and the number of
        iterations."""
        history: list[Settings] = []
        previous = -np.inf
        with progress(type(self).__name__, self.max_iter, bool(self.verbose)) as show:
            for iteration in range(1, self.max_iter + 1):
                elbo = inference.sweep()
                rise = (elbo - previous) / abs(elbo) if np.isfinite(previous) else np.inf
                history.append(
                    {
                        "output": 0,
                        "iteration": iteration,
                        "elbo": elbo,
                        "objective": -elbo,
                        "gap": rise,
                    }
                )
                show(f"bound {elbo:.6g}, rise {rise:.1e} of {self.tol:.0e}", iteration)
                if rise <= self.tol:
                    break
                previous = elbo
        return history, elbo, iteration

    def _set_posterior(self, data: Any, inference: Any) -> None:
        outputs = inference.labels.shape[1]
        self.weights_ = inference.e.copy()
        self.weights_std_ = np.sqrt(np.diag(inference.cov)[outputs:])
        self.intercept_ = inference.b.copy()
        self.dual_coef_ = inference.a.T.copy()
        self._deviation = inference.deviation()
        expansion = data.expansion(
            self.dual_coef_, self.support_, np.tile(self.weights_, (outputs, 1))
        )
        self.function_ = Function(expansion, self.intercept_)

    # Predictions out ------------------------------------------------------------------------------

    def decide(self, outputs: Array) -> AnyArray:
        return Labels(self.classes_).decide(outputs)

    def _probabilities(self, outputs: Array) -> Array:
        outputs = outputs / self._deviation
        if outputs.ndim == 1:
            return np.asarray(ndtr(outputs[:, np.newaxis] * [-1.0, 1.0]))
        return np.asarray(softmax(log_ndtr(outputs), axis=1))


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


def prior_of(name: str, value: Any) -> tuple[float, float]:
    """Return shape and rate of a gamma prior, or raise naming the parameter."""
    try:
        shape, rate = value
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}={value!r}: give two positive numbers, the shape and the rate."
        ) from None
    return check_positive(f"{name}[0]", shape), check_positive(f"{name}[1]", rate)
