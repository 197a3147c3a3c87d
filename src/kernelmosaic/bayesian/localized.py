"""Bayesian classification by kernels that compete for samples, each with random projections:
variational inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import log_ndtr
from sklearn.utils import check_random_state

from kernelmosaic._checks import check_count, check_positive
from kernelmosaic._typing import Array, KernelsLike, MatrixLike, Seed, Settings
from kernelmosaic.bayesian.estimator import BayesianMKLClassifier
from kernelmosaic.bayesian.inference import Precisions, cut_off, read_prior
from kernelmosaic.bayesian.method import Posterior, VariationalMethod
from kernelmosaic.engine.expansion import Expansion, Function, SupportSums
from kernelmosaic.engine.fit import Fit, Method
from kernelmosaic.engine.tasks import Task
from kernelmosaic.engine.training_set import TrainingSet
from kernelmosaic.learning.certificate import Start
from kernelmosaic.localized.method import GateInputs

#: Draws of the gates' parameters, by which the deviations of mean gates are estimated: a standard
#: deviation from 200 draws has a relative standard error of 5 %.
_GATE_DRAWS = 200
#: Eigenvalues of a Gram matrix, relative to the largest, that count as zero; chosen by hand.
_LEAST_EIGENVALUE = 1e-6


class LocalizedBayesianMKLClassifier(BayesianMKLClassifier):
    """Probit classification by kernels that compete for each sample, with a posterior over gates
    and projections.

    With outputs c and labels y_ic = ±1 as in :class:`BayesianMKLClassifier`, P kernels of R
    components each and z the standardised columns with a one appended, the model is

    - ψ_m ~ Gamma(gate prior), v_m ~ N(0, I/ψ_m), t_im ~ N(⟨v_m, z_i⟩, 1) for m < P: **the kernel
      s_i of a sample is the first one with t_im > 0**, and P if there is none, so that the gates
      η_m(x) = Pr(s = m | x) are a product of probits and sum to one;
    - λ_m ~ Gamma(weight prior), w_mr ~ N(0, I/λ_m), h_imr = ⟨w_mr, φ_m(x_i)⟩: projections in the
      feature space of kernel m; those of a linear kernel are the columns of a projection matrix;
    - e_mrc ~ N(0, 1): weights of the components in the outputs, if R is less than the number of
      outputs; with R equal to it component c is output c, and e_m the identity;
    - γ ~ Gamma(intercept prior), b_c ~ N(0, 1/γ);
    - f_ic ~ N(Σ_r e_mrc h_imr + b_c, 1) with m = s_i, of which it is known that y_ic f_ic > margin.

    Given the kernels s of all samples, an output without intercept has the covariance Σ_m [s(x) =
    m] k_m(x, z) / λ_m [s(z) = m], with R equal to the number of outputs: the kernel of
    :class:`LocalizedMKLClassifier` under gates of zero and one. Copies of one kernel have
    projections of their own, so that several linear kernels make a boundary of pieces. One kernel
    alone has no gates; with fewer components than outputs it is a supervised projection.

    The posterior is approximated by q(λ) q(w) q(e) q(γ) q(b) q(ψ) q(v) q(s, t) q(f). Each factor in
    turn is set to the best one given the others, in closed form (`Inference` lists them), so that
    the evidence lower bound (ELBO) never falls. It has many local maxima, hence `n_init` starts. An
    iteration factorises one n × n matrix per kernel, and per component if there are fewer than
    outputs.

    :meth:`predict_proba` is the probit of the decision function over its deviation, the mean one of
    the training samples. The decision function has the posterior means of the projections, and
    gates averaged over q(v).

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`LocalizedMKLClassifier`; one kernel may occur several times.
    gating_columns : columns, default=None
        Columns that the gates read, as in :class:`LocalizedMKLClassifier`; None means all columns.
    n_components : int, default=None
        Components R per kernel; None means one per output, which restricts nothing.
    weight_prior, intercept_prior, gate_prior : (float, float), default=(1, 1) each
        Shape and rate of the gamma priors of the precisions λ, γ and ψ.
    margin : float, default=1.0
        The least distance of the outputs of training samples from zero; zero or more. Zero is
        probit regression, in which fewer starts part the regions of the kernels.
    n_init : int, default=5
        Random starts, of which the one with the largest bound is kept.
    normalize, tol, memory_budget, verbose
        As in :class:`BayesianMKLClassifier`.
    max_iter : int, default=500
        Maximum number of iterations, start by start.
    random_state : int, RandomState or None, default=0
        Of the starts.

    Attributes
    ----------
    weights_ : ndarray of shape (P,)
        The mean gate of each kernel over the training set.
    weights_std_ : ndarray of shape (P,)
        The standard deviation of that mean under q(v), by 200 draws.
    gating_params_ : dict
        Posterior means of v in the units of the columns: ``coef`` of shape (P − 1, columns) and
        ``intercept``; and the standard deviations ``std`` of shape (P − 1, columns + 1) of those of
        standardised columns, the intercept last.
    dual_coef_ : ndarray of shape (outputs, P, n_samples)
        Coefficients of k_m(x_i, x) in the outputs before gates.
    kernel_names_, intercept_, elbo_, history_, n_iter_, support_, n_support_, support_fraction_
        As in :class:`BayesianMKLClassifier`, of the best start.

    References
    ----------
    Gönen's slides on multiple kernel learning name Bayesian localized learning and projections as
    future work. The model is ours, after Gönen (2012), "Bayesian efficient multiple kernel
    learning", and, for projections, Gönen (2013), "Bayesian supervised dimensionality reduction".

    Examples
    --------
    >>> from kernelmosaic import LocalizedBayesianMKLClassifier
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.kernels import Linear
    >>> X, y = make_gaussians(n_components=4, n_samples=200, random_state=0)
    >>> kernels = [Linear(), Linear(), Linear()]
    >>> model = LocalizedBayesianMKLClassifier(kernels, tol=1e-3).fit(X, y)
    >>> model.gate(X).shape, bool(abs(model.gate(X).sum(axis=1) - 1).max() < 1e-9)
    ((200, 3), True)
    """

    # Gates read the samples themselves.
    reads_samples = True

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        gating_columns: Any = None,
        n_components: int | None = None,
        weight_prior: Any = (1.0, 1.0),
        gate_prior: Any = (1.0, 1.0),
        n_init: int = 5,
        random_state: Seed = 0,
        intercept_prior: Any = (1.0, 1.0),
        margin: float = 1.0,
        normalize: str | None = "trace",
        tol: float = 1e-4,
        max_iter: int = 500,
        memory_budget: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.gating_columns = gating_columns
        self.n_components = n_components
        self.weight_prior = weight_prior
        self.gate_prior = gate_prior
        self.n_init = n_init
        self.random_state = random_state
        self.intercept_prior = intercept_prior
        self.margin = margin
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count("n_init", self.n_init)
        if self.n_components is not None:
            check_count("n_components", self.n_components)

    def _method(self) -> Method:
        model = LocalModel(
            weight_prior=read_prior("weight_prior", self.weight_prior),
            intercept_prior=read_prior("intercept_prior", self.intercept_prior),
            gate_prior=read_prior("gate_prior", self.gate_prior),
            margin=check_positive("margin", self.margin, zero=True),
        )
        return LocalVariationalMethod(
            self.tol,
            self.max_iter,
            bool(self.verbose),
            model,
            n_components=self.n_components,
            gating_columns=self.gating_columns,
            reads_numbers_only=set(self.kernel_traits("input_kind")) == {"numbers"},
            n_init=self.n_init,
            random_state=self.random_state,
        )

    # Predictions out ------------------------------------------------------------------------------

    def gate(self, X: MatrixLike) -> Array:
        """Return the probability that each kernel is that of a sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, P)
        """
        X = self.read(X)
        return np.asarray(self.function_.gates(X)[0])

    def components(self, X: MatrixLike) -> Array:
        """Return the posterior means of the projections ⟨w_mr, φ_m(x)⟩.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, P · R)
            Kernel by kernel.
        """
        X = self.read(X)
        terms = _expanded(
            replace(self.function_.expansion.sums, beta=np.moveaxis(self._alpha, 1, 0))
        ).terms(X)
        return np.asarray(terms.reshape(len(terms), -1))


def _expanded(sums: Any) -> Expansion:
    """Return the sum of all kernels with weights of one, for coefficients (outputs, P, n)."""
    n_outputs, P, _ = sums.beta.shape
    return Expansion(sums, np.ones((n_outputs, P)), np.arange(P), P)


@dataclass(frozen=True)
class ProbitFunction(Function):
    """The posterior mean of the outputs under the probabilities of the kernels.

    Attributes
    ----------
    v, v_cov : ndarray of shape (P, q) and (P, q, q)
        Mean and covariance of the gates' parameters.
    inputs : GateInputs
        What gates read.
    variances : ndarray of shape (P,)
        (mean over c of Σ_r e_mrc²) / λ_m.
    """

    v: Array = field(kw_only=True)
    v_cov: Array = field(kw_only=True)
    inputs: GateInputs = field(kw_only=True)
    variances: Array = field(kw_only=True)

    def gates(self, X: MatrixLike) -> Array:
        """Return the gates of validated samples, of shape (1, n, P)."""
        return _gates(self.v, self.v_cov, _with_ones(self.inputs(X)))[np.newaxis]

    def outputs(self, X: MatrixLike) -> Array:
        return np.asarray(self.expansion.values(X, self.gates(X)) + self.intercept)

    def terms(self, X: MatrixLike) -> Array:
        return np.asarray(self.expansion.terms(X, self.gates(X)))

    def combined(self, X: MatrixLike, Y: MatrixLike) -> Array:
        """Return Σ_m η_m(x) (mean over c of Σ_r e_mrc²) / λ_m k_m(x, z) η_m(z)."""
        one = replace(self.expansion, eta=self.variances[np.newaxis])
        return one.combined(X, Y, self.gates(X), self.gates(Y))


class LocalModel(NamedTuple):
    """The constants of the model: gamma priors (shape, rate), the margin, and how hard the first
    gates are."""

    weight_prior: tuple[float, float]
    intercept_prior: tuple[float, float]
    gate_prior: tuple[float, float]
    margin: float
    spread: float = 5.0


@dataclass(frozen=True)
class LocalVariationalMethod(VariationalMethod):
    """A posterior over gates and projections, the one of the largest bound of several starts.

    Attributes
    ----------
    n_components : int or None
        Components per kernel; None means one per output.
    gating_columns : columns or None
        Columns that the gates read; None means all.
    reads_numbers_only : bool
        Whether all kernels read numbers, as gates do.
    n_init : int
        Random starts.
    random_state : int, RandomState or None
        Draws them.
    """

    model: LocalModel
    n_components: int | None
    gating_columns: Any
    reads_numbers_only: bool
    n_init: int
    random_state: Seed

    def learner(self, task: Task, data: TrainingSet, machines: Sequence[Any]) -> LocalProblem:
        (labels,) = machines
        n_outputs, n_kernels = labels.shape[1], data.stack.n_kernels
        n_components = n_outputs if self.n_components is None else int(self.n_components)
        if n_components > n_outputs:
            raise ValueError(
                f"n_components={self.n_components!r}: a kernel has at most as many components as"
                f" there are outputs, {n_outputs}; give that, or None."
            )
        inputs = GateInputs.none()
        if n_kernels > 1:
            if self.gating_columns is None and not self.reads_numbers_only:
                raise ValueError("gating_columns=None: gates read numbers; name numeric columns.")
            inputs = GateInputs.fit(
                data.samples, data.table, self.gating_columns, None, data.weight
            )
        all_rows = slice(0, len(labels))
        matrices = [_leading(data.stack.row_block(m, all_rows)) for m in range(n_kernels)]
        gate_inputs = _with_ones(inputs(data.samples))
        return LocalProblem(labels, self.model, matrices, inputs, gate_inputs, n_components)

    def learn(
        self, task: Task, data: TrainingSet, machines: list[Any], learner: Any, starts: list[Start]
    ) -> list[Any]:
        rng = check_random_state(self.random_state)
        n_starts = self.n_init if learner.has_random_starts else 1
        best: Inference | None = None
        history: list[Settings] = []
        for _ in range(n_starts):
            inference = learner.start(rng)
            trial = self.sweep(inference, task.name)
            if best is None or trial[-1]["elbo"] > history[-1]["elbo"]:
                best, history = inference, trial
        assert best is not None
        gates = _gates(best.v, best.v_cov, best.Z)
        posterior = LocalPosterior(
            best,
            history,
            gates.mean(axis=0),
            _deviations_of_mean_gates(best),
            best.deviation(gates),
            learner.inputs,
        )
        return [posterior]

    def coefficients(self, fit: Fit) -> tuple[Array, Array]:
        (posterior,) = fit.learned
        inference = posterior.inference
        # Of every sample, the coefficients of all kernels beside each other.
        beta = np.einsum("mrn,mrc->cmn", inference.alpha, inference.e)
        return beta, inference.b.copy()

    def function(self, fit: Fit) -> ProbitFunction:
        (posterior,), (beta, intercept) = fit.learned, self.coefficients(fit)
        inference = posterior.inference
        data: Any = fit.data
        expansion = _expanded(SupportSums(data.kernel_set, data.views, beta))
        # Of one output under its gates; their mean where there are several.
        squares = np.sum(inference.e**2, axis=(1, 2)) / len(intercept)
        return ProbitFunction(
            expansion,
            intercept,
            v=inference.v,
            v_cov=inference.v_cov,
            inputs=posterior.inputs,
            variances=squares / inference.projections.mean,
        )

    def attributes(self, fit: Fit) -> Settings:
        (posterior,) = fit.learned
        inference, inputs = posterior.inference, posterior.inputs
        coef = inference.v[:, :-1] / inputs.scale
        gating = {
            "coef": coef,
            "intercept": inference.v[:, -1] - coef @ inputs.mean,
            "std": np.sqrt(np.diagonal(inference.v_cov, axis1=1, axis2=2)),
        }
        return super().attributes(fit) | {"gating_params_": gating, "_alpha": inference.alpha}


@dataclass(frozen=True)
class LocalPosterior(Posterior):
    """What was learned of gates and projections.

    Attributes
    ----------
    inputs : GateInputs
        What the gates read.
    """

    inputs: GateInputs


@dataclass(frozen=True)
class LocalProblem:
    """What every random start of an inference has in common.

    Attributes
    ----------
    labels : ndarray of shape (n, K)
        +1 or −1.
    model : LocalModel
        The constants.
    matrices : list of (ndarray of shape (n, n), int)
        The Gram matrices with their ranks.
    inputs : GateInputs
        What the gates read.
    Z : ndarray of shape (n, q)
        What they read of the samples, with a one.
    n_components : int
        Components per kernel.
    """

    labels: Array
    model: LocalModel
    matrices: list[tuple[Array, int]]
    inputs: GateInputs
    Z: Array
    n_components: int

    @property
    def has_random_starts(self) -> bool:
        """Whether gates, or weights of fewer components than outputs, are drawn at the start."""
        return len(self.matrices) > 1 or self.n_components < self.labels.shape[1]

    def start(self, rng: np.random.RandomState) -> Inference:
        """Return an inference that begins at random gates."""
        return Inference(self.matrices, self.labels, self.model, self.Z, self.n_components, rng)


class Inference:
    """The factors of the approximate posterior of n samples, P kernels of R components, K outputs
    and q gate inputs.

    With E means under the other factors, π_im = Pr(s_i = m) and ĉ_imc = E Σ_r e_mrc h_imr, they are

    - q(h_mr) = N with precision E λ_m K_m⁻¹ + a_mr diag(π_m), a_mr = Σ_c E e_mrc², and mean its
      inverse times π_im Σ_c (e_mrc (E f_ic − E b_c) − Σ_{p ≠ r} E[e_mrc e_mpc] E h_imp);
    - q(e_m·c) = N with one precision for all c, I + Σ_i π_im E h_im h_imᵀ, and mean its inverse
      times Σ_i π_im E h_im (E f_ic − E b_c);
    - q(s_i, t_i) ∝ p(t_i | E v) exp(ℓ_im) where s_i = m, with the gain ℓ_im = Σ_c (E f_ic − E b_c)
      ĉ_imc − ½ Σ_c E (Σ_r e_mrc h_imr)²: π_im ∝ Φ(μ_im) Π_{h < m} Φ(−μ_ih) exp(ℓ_im), μ_im = ⟨E
      v_m, z_i⟩, and t_im is normal around μ_im, cut off at zero from below if s_i = m, from above
      if s_i > m;
    - q(v_m) = N with precision E ψ_m I + Zᵀ Z and mean its inverse times Zᵀ E t_m;
    - q(b_c) = N with precision E γ + n and mean Σ_i (E f_ic − Σ_m π_im ĉ_imc) / (E γ + n);
    - q(f_ic) = N(Σ_m π_im ĉ_imc + E b_c, 1) cut off at the margin; gamma distributions of λ, ψ and
      γ.

    Parameters
    ----------
    matrices : list of (ndarray of shape (n, n), int)
        The Gram matrices with their ranks.
    labels : ndarray of shape (n, K)
        +1 or −1.
    model : Model
        The constants.
    Z : ndarray of shape (n, q)
        What the gates read.
    R : int
        Components per kernel; with as many as outputs e is the identity and not learned.
    rng : RandomState
        Draws the start.

    Attributes
    ----------
    h, h_var : ndarray of shape (n, P, R)
        Means and variances of the projections.
    alpha : ndarray of shape (P, R, n)
        K_m⁻¹ times the means.
    e, e_cov : ndarray of shape (P, R, K) and (P, R, R)
        Means of the mixing weights, and the covariance that the outputs share.
    b, b_var : ndarray of shape (K,), and float
        Means and variance of the intercepts.
    pi, t : ndarray of shape (n, P) and (n, P − 1)
        π, and the means of t.
    v, v_cov : ndarray of shape (P − 1, q) and (P − 1, q, q)
        Means and covariances of the gates' coefficients.
    f : ndarray of shape (n, K)
        Means of the outputs.
    """

    def __init__(
        self,
        matrices: list[tuple[Array, int]],
        labels: Array,
        model: LocalModel,
        Z: Array,
        R: int,
        rng: np.random.RandomState,
    ) -> None:
        n, K = labels.shape
        P, q = len(matrices), Z.shape[1]
        self.labels = labels
        self.model = model
        self.Z = Z
        self.matrices = [matrix for matrix, _ in matrices]
        self.ranks = np.array([rank for _, rank in matrices])
        self.f = labels * (1.0 + model.margin)
        self.h = np.zeros((n, P, R))
        self.h_var = np.ones((n, P, R))
        self.alpha = np.zeros((P, R, n))
        # E hᵀ K⁻¹ h of every projection, and the log determinant of its covariance over that of K.
        self.h_squares = np.zeros((P, R))
        self.h_log_det = np.zeros((P, R))
        # With as many components as outputs the mixing weights are the identity.
        self.learns_e = R < K
        mixing = np.eye(K)
        if self.learns_e:
            mixing = np.linalg.qr(rng.standard_normal((K, R)))[0].T
        self.e = np.tile(mixing, (P, 1, 1))
        self.e_cov = np.zeros((P, R, R))
        self.b = np.zeros(K)
        self.b_var = 0.0
        self.projections = Precisions(model.weight_prior, 1.0, np.ones(P))
        self.intercepts = Precisions(model.intercept_prior, 1.0, np.ones(1))
        self.gates = Precisions.start(model.gate_prior, P - 1)
        # Gates near zero and one separate copies of one kernel from the first sweep on.
        self.v: Array = model.spread * rng.standard_normal((P - 1, q)) / np.sqrt(q)
        self.v_cov: Array = np.zeros((P - 1, q, q))
        self.pi = _gates(self.v, self.v_cov, Z)

    def sweep(self) -> float:
        """Update all factors in turn, and return the evidence lower bound.

        Each becomes the best one given the others, so that the bound never falls.
        """
        self._update_projections()
        if self.learns_e:
            self._update_mixing()
        self._update_intercepts()
        self._update_switches()
        self._update_gates()
        self._update_outputs()
        return self.bound()

    # The factors ----------------------------------------------------------------------------------

    def _update_projections(self) -> None:
        """Set q(h), kernel after kernel and component after component, and q(λ)."""
        mixing_moments = self._mixing_moments()
        unexplained = self.f - self.b
        n_components = self.h.shape[2]
        self.h_precision = self.projections.mean
        for m, K in enumerate(self.matrices):
            prior_cov = K / self.h_precision[m]
            pi = self.pi[:, m]
            targets = unexplained @ self.e[m].T
            for r in range(n_components):
                others = np.delete(np.arange(n_components), r)
                explained = self.h[:, m, others] @ mixing_moments[m, r, others]
                target = pi * (targets[:, r] - explained)
                # Without mixing weights to learn all components have the same covariance.
                if r == 0 or self.learns_e:
                    # The precision K⁻¹ λ + D with D = diag(root²) is inverted by the Cholesky
                    # factor of I + √D K/λ √D.
                    root = np.sqrt(pi * mixing_moments[m, r, r])
                    B = root[:, np.newaxis] * prior_cov * root
                    B.flat[:: len(B) + 1] += 1.0
                    L = np.linalg.cholesky(B)
                    half = solve_triangular(L, root[:, np.newaxis] * prior_cov, lower=True)
                    explained_variances = np.sum(half**2, axis=0)
                    variances = np.maximum(np.diag(prior_cov) - explained_variances, 0.0)
                    log_det = -2.0 * float(np.log(np.diag(L)).sum())
                dual = target - root * cho_solve((L, True), root * (prior_cov @ target))
                self.h[:, m, r] = prior_cov @ dual
                self.h_var[:, m, r] = variances
                self.alpha[m, r] = dual / self.h_precision[m]
                # On the range of K the trace of the covariance times K⁻¹ λ is its rank less what
                # the samples add to the precision.
                trace = self.ranks[m] - float(root**2 @ variances)
                squares = self.h[:, m, r] @ dual + trace
                self.h_squares[m, r] = squares / self.h_precision[m]
                self.h_log_det[m, r] = log_det
        self.projections = self.projections.update(
            self.h_squares.sum(axis=1), self.ranks * n_components
        )

    def _update_mixing(self) -> None:
        """Set q(e)."""
        moments = np.einsum("nm,nmr,nmp->mrp", self.pi, self.h, self.h, optimize=True)
        diagonal = np.arange(self.h.shape[2])
        moments[:, diagonal, diagonal] += np.einsum("nm,nmr->mr", self.pi, self.h_var)
        self.e_cov = np.linalg.inv(np.eye(len(diagonal)) + moments)
        right = np.einsum("nm,nmr,nc->mrc", self.pi, self.h, self.f - self.b, optimize=True)
        self.e = self.e_cov @ right

    def _update_intercepts(self) -> None:
        """Set q(b) and q(γ)."""
        n, K = self.labels.shape
        self.b_var = float(1.0 / (n + self.intercepts.mean[0]))
        self.b = self.b_var * (self.f - self._mean_outputs()).sum(axis=0)
        self.intercepts = self.intercepts.update(self._intercept_squares(), K)

    def _update_switches(self) -> None:
        """Set q(s, t)."""
        likelihood = np.einsum("nc,nmc->nm", self.f - self.b, self._kernel_outputs())
        self.gain = likelihood - 0.5 * self._output_squares()
        self.mu = mu = self.Z @ self.v.T
        self.pi, self.log_z = _sticks(mu, self.gain)
        # t_m is positive for samples of kernel m, negative for samples of a later one.
        pi_later = np.cumsum(self.pi[:, ::-1], axis=1)[:, -2::-1]
        log_density = -0.5 * mu**2 - 0.5 * np.log(2.0 * np.pi)
        shift_if_positive = np.exp(log_density - log_ndtr(mu))
        shift_if_negative = np.exp(log_density - log_ndtr(-mu))
        self.t = mu + self.pi[:, :-1] * shift_if_positive - pi_later * shift_if_negative

    def _update_gates(self) -> None:
        """Set q(v) and q(ψ)."""
        q = self.Z.shape[1]
        precision = self.gates.mean[:, np.newaxis, np.newaxis] * np.eye(q) + self.Z.T @ self.Z
        self.v_cov = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        self.v = np.einsum("mqp,mp->mq", self.v_cov, self.t.T @ self.Z)
        self.gates = self.gates.update(self._gate_squares(), q)

    def _update_outputs(self) -> None:
        """Set q(f): normal around the mean output, cut off where the margin is not met."""
        self.f_mean = self._mean_outputs() + self.b
        self.f, self.log_inside = cut_off(self.f_mean, self.labels, self.model.margin)

    # Their moments --------------------------------------------------------------------------------

    def _mixing_moments(self) -> Array:
        """Return Σ_c E[e_mrc e_mpc], of shape (P, R, R)."""
        return np.asarray(self.e @ self.e.transpose(0, 2, 1) + len(self.b) * self.e_cov)

    def _kernel_outputs(self) -> Array:
        """Return ĉ, of shape (n, P, K)."""
        return np.asarray(np.einsum("nmr,mrc->nmc", self.h, self.e))

    def _output_squares(self) -> Array:
        """Return Σ_c E(Σ_r e_mrc h_imr)², of shape (n, P)."""
        moments = self._mixing_moments()
        of_variances = np.einsum("nmr,mrr->nm", self.h_var, moments)
        of_means = np.einsum("nmr,mrp,nmp->nm", self.h, moments, self.h, optimize=True)
        return np.asarray(of_means + of_variances)

    def _mean_outputs(self) -> Array:
        """Return Σ_m π_m ĉ_m, the mean outputs without intercepts, of shape (n, K)."""
        return np.asarray(np.einsum("nm,nmc->nc", self.pi, self._kernel_outputs()))

    def _intercept_squares(self) -> Array:
        """Return E‖b‖², of shape (1,)."""
        return np.array([self.b @ self.b + len(self.b) * self.b_var])

    def _gate_squares(self) -> Array:
        """Return E‖v_m‖², of shape (P − 1,)."""
        return np.asarray(np.sum(self.v**2, axis=1) + np.trace(self.v_cov, axis1=1, axis2=2))

    def deviation(self, gates: Array) -> float:
        """Return the root of the mean variance of f over samples and outputs.

        Parameters
        ----------
        gates : ndarray of shape (n, P)
            The probabilities of the kernels, as new samples have them.
        """
        n, K = self.labels.shape
        mean = np.einsum("nm,nmc->nc", gates, self._kernel_outputs())
        variances = float(np.sum(gates * self._output_squares()) - np.sum(mean**2))
        return float(np.sqrt(1.0 + self.b_var + variances / (n * K)))

    def bound(self) -> float:
        """Return the evidence lower bound, E[log p(y, all variables)] − E[log q(all variables)].

        It holds right after `_update_outputs` alone.
        """
        n, K = self.labels.shape
        P, R = self.h_log_det.shape
        q = self.Z.shape[1]
        # f: where it is cut off, and the variance of its mean.
        second_moment = float(np.sum(self.pi * self._output_squares()))
        second_moment += 2.0 * float(np.sum(self._mean_outputs() @ self.b))
        second_moment += n * float(self._intercept_squares()[0])
        variance_of_mean = second_moment - float(np.sum(self.f_mean**2))
        total = float(self.log_inside.sum()) - 0.5 * variance_of_mean
        # h, e and b around zero, with their precisions; log |K| cancels.
        total += self.projections.bound(self.h_squares.sum(axis=1), self.ranks * R)
        entropies = np.sum(R * self.ranks * (1.0 - np.log(self.h_precision)))
        total += 0.5 * float(entropies + self.h_log_det.sum())
        of_precision = self.intercepts.bound(self._intercept_squares(), K)
        total += of_precision + 0.5 * K * (1.0 + np.log(self.b_var))
        if self.learns_e:
            total += 0.5 * K * float(P * R + np.linalg.slogdet(self.e_cov)[1].sum())
            traces = np.trace(self.e_cov, axis1=1, axis2=2).sum()
            total -= 0.5 * float(np.sum(self.e**2) + K * traces)
        # s, t and v. q(t) was set around `mu`; v has moved since.
        moved_mu = self.Z @ self.v.T
        total += float(self.log_z.sum() - np.sum(self.pi * self.gain))
        change = self.mu**2 - moved_mu**2 - 2.0 * self.t * (self.mu - moved_mu)
        total += 0.5 * float(np.sum(change))
        total -= 0.5 * float(np.sum(self.v_cov * (self.Z.T @ self.Z)))
        total += 0.5 * float(np.sum(q + np.linalg.slogdet(self.v_cov)[1]))
        return float(total + self.gates.bound(self._gate_squares(), q))


def _leading(K: Array) -> tuple[Array, int]:
    """Return a Gram matrix without the directions of tiny eigenvalues, and its rank.

    In those the posterior is the prior: they only slow the updates of λ down.
    """
    D, Q = np.linalg.eigh(K)
    is_leading = _LEAST_EIGENVALUE * max(float(D[-1]), 0.0) < D
    Q_leading = Q[:, is_leading]
    return (Q_leading * D[is_leading]) @ Q_leading.T, int(is_leading.sum())


def _sticks(mu: Array, gain: Array) -> tuple[Array, Array]:
    """Return the probabilities Φ(μ_m) Π_{h < m} Φ(−μ_h) exp(gain_m) / z, and log z.

    Parameters
    ----------
    mu : ndarray of shape (n, P − 1)
        μ; the last kernel takes what all others leave.
    gain : ndarray of shape (n, P)
        The logarithms of the likelihoods.

    Returns
    -------
    probabilities : ndarray of shape (n, P)
    log_z : ndarray of shape (n,)
    """
    zeros = np.zeros((len(mu), 1))
    log_taken = np.hstack([log_ndtr(mu), zeros])
    log_left = np.hstack([zeros, np.cumsum(log_ndtr(-mu), axis=1)])
    logs = log_taken + log_left + gain
    log_z = np.logaddexp.reduce(logs, axis=1)
    return np.exp(logs - log_z[:, np.newaxis]), log_z


def _gates(v: Array, v_cov: Array, Z: Array) -> Array:
    """Return Pr(s = m) under v ~ N(v, v_cov), of shape (n, P)."""
    variances = np.einsum("nq,mqp,np->nm", Z, v_cov, Z, optimize=True)
    mu = Z @ v.T / np.sqrt(1.0 + variances)
    no_gain = np.zeros((len(Z), len(v) + 1))
    return _sticks(mu, no_gain)[0]


def _deviations_of_mean_gates(inference: Inference) -> Array:
    """Return the standard deviations of the mean gates under q(v), of shape (P,)."""
    rng = np.random.RandomState(0)
    roots = np.linalg.cholesky(inference.v_cov)
    certain = np.zeros_like(roots)
    means = []
    for _ in range(_GATE_DRAWS):
        step = np.einsum("mqp,mp->mq", roots, rng.standard_normal(inference.v.shape))
        means.append(_gates(inference.v + step, certain, inference.Z).mean(axis=0))
    return np.asarray(np.std(means, axis=0))


def _with_ones(Z: Array) -> Array:
    """Return gate inputs with a column of ones."""
    return np.column_stack([Z, np.ones(len(Z))])
