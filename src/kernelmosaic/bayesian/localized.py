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
    outputs, P, _ = sums.beta.shape
    return Expansion(sums, np.ones((outputs, P)), np.arange(P), P)


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
    on, t : ndarray of shape (n, P) and (n, P − 1)
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
        (n, K), P, q = labels.shape, len(matrices), Z.shape[1]
        self.labels, self.model, self.Z = labels, model, Z
        self.matrices, self.ranks = (
            [one for one, _ in matrices],
            np.array([rank for _, rank in matrices]),
        )
        self.f = labels * (1.0 + model.margin)
        self.h, self.h_var, self.alpha = (
            np.zeros((n, P, R)),
            np.ones((n, P, R)),
            np.zeros((P, R, n)),
        )
        self.squares, self.log_det = np.zeros((P, R)), np.zeros((P, R))
        self.learns_e = R < K
        part = np.linalg.qr(rng.standard_normal((K, R)))[0].T if self.learns_e else np.eye(K)
        self.e, self.e_cov = np.tile(part, (P, 1, 1)), np.zeros((P, R, R))
        self.b, self.b_var = np.zeros(K), 0.0
        self.projections = Precisions(model.weight_prior, 1.0, np.ones(P))
        self.intercepts = Precisions(model.intercept_prior, 1.0, np.ones(1))
        self.gates = Precisions.start(model.gate_prior, P - 1)
        # Gates that are rather hard part copies of one kernel at once.
        self.v: Array = model.spread * rng.standard_normal((P - 1, q)) / np.sqrt(q)
        self.v_cov: Array = np.zeros((P - 1, q, q))
        self.on = _gates(self.v, self.v_cov, Z)

    def sweep(self) -> float:
        """Set each factor in turn to the best one given the others, and return the evidence lower
        bound."""
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
        squares, rest = self._mixing_moments(), self.f - self.b
        self.level = self.projections.mean
        for m, K in enumerate(self.matrices):
            C, on = K / self.level[m], self.on[:, m]
            pull = rest @ self.e[m].T
            for r in range(self.h.shape[2]):
                others = np.delete(np.arange(self.h.shape[2]), r)
                target = on * (pull[:, r] - self.h[:, m, others] @ squares[m, r, others])
                if r == 0 or self.learns_e:
                    root = np.sqrt(on * squares[m, r, r])
                    B = root[:, np.newaxis] * C * root
                    B.flat[:: len(B) + 1] += 1.0
                    L = np.linalg.cholesky(B)
                    half = solve_triangular(L, root[:, np.newaxis] * C, lower=True)
                    variances = np.maximum(np.diag(C) - np.sum(half**2, axis=0), 0.0)
                    log_det = -2.0 * float(np.log(np.diag(L)).sum())
                dual = target - root * cho_solve((L, True), root * (C @ target))
                self.h[:, m, r], self.h_var[:, m, r] = C @ dual, variances
                self.alpha[m, r] = dual / self.level[m]
                # E hᵀ K⁻¹ h on the range of K, of a trace that is its rank less what the samples
                # add to the precision.
                trace = self.ranks[m] - float(root**2 @ variances)
                self.squares[m, r], self.log_det[m, r] = (
                    (self.h[:, m, r] @ dual + trace) / self.level[m],
                    log_det,
                )
        self.projections = self.projections.update(
            self.squares.sum(axis=1), self.ranks * self.h.shape[2]
        )

    def _update_mixing(self) -> None:
        """Set q(e)."""
        moments = np.einsum("nm,nmr,nmp->mrp", self.on, self.h, self.h, optimize=True)
        every = np.arange(self.h.shape[2])
        moments[:, every, every] += np.einsum("nm,nmr->mr", self.on, self.h_var)
        self.e_cov = np.linalg.inv(np.eye(len(every)) + moments)
        target = np.einsum("nm,nmr,nc->mrc", self.on, self.h, self.f - self.b, optimize=True)
        self.e = self.e_cov @ target

    def _update_intercepts(self) -> None:
        """Set q(b) and q(γ)."""
        n, K = self.labels.shape
        self.b_var = float(1.0 / (n + self.intercepts.mean[0]))
        self.b = self.b_var * (self.f - self._said()).sum(axis=0)
        self.intercepts = self.intercepts.update(self._intercept_squares(), K)

    def _update_switches(self) -> None:
        """Set q(s, t)."""
        self.gain = (
            np.einsum("nc,nmc->nm", self.f - self.b, self._outputs()) - 0.5 * self._output_squares()
        )
        self.mu = mu = self.Z @ self.v.T
        self.on, self.log_z = _sticks(mu, self.gain)
        later = np.cumsum(self.on[:, ::-1], axis=1)[:, -2::-1]
        log_density = -0.5 * mu**2 - 0.5 * np.log(2.0 * np.pi)
        above, below = np.exp(log_density - log_ndtr(mu)), np.exp(log_density - log_ndtr(-mu))
        self.t = mu + self.on[:, :-1] * above - later * below

    def _update_gates(self) -> None:
        """Set q(v) and q(ψ)."""
        q = self.Z.shape[1]
        precision = self.gates.mean[:, np.newaxis, np.newaxis] * np.eye(q) + self.Z.T @ self.Z
        self.v_cov = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        self.v = np.einsum("mqp,mp->mq", self.v_cov, self.t.T @ self.Z)
        self.gates = self.gates.update(self._gate_squares(), q)

    def _update_outputs(self) -> None:
        """Set q(f): normal around the mean output, cut off where the label is not met by the
        margin."""
        self.f_mean = self._said() + self.b
        self.f, self.log_inside = cut_off(self.f_mean, self.labels, self.model.margin)

    # Their moments --------------------------------------------------------------------------------

    def _mixing_moments(self) -> Array:
        """Σ_c E[e_mrc e_mpc], of shape (P, R, R)."""
        return np.asarray(self.e @ self.e.transpose(0, 2, 1) + len(self.b) * self.e_cov)

    def _outputs(self) -> Array:
        """ĉ, of shape (n, P, K)."""
        return np.asarray(np.einsum("nmr,mrc->nmc", self.h, self.e))

    def _output_squares(self) -> Array:
        """Σ_c E(Σ_r e_mrc h_imr)², of shape (n, P)."""
        moments = self._mixing_moments()
        own = np.einsum("nmr,mrr->nm", self.h_var, moments)
        return np.asarray(
            np.einsum("nmr,mrp,nmp->nm", self.h, moments, self.h, optimize=True) + own
        )

    def _said(self) -> Array:
        """Σ_m π_m ĉ_m, of shape (n, K)."""
        return np.asarray(np.einsum("nm,nmc->nc", self.on, self._outputs()))

    def _intercept_squares(self) -> Array:
        return np.array([self.b @ self.b + len(self.b) * self.b_var])

    def _gate_squares(self) -> Array:
        """E‖v_m‖²."""
        return np.asarray(np.sum(self.v**2, axis=1) + np.trace(self.v_cov, axis1=1, axis2=2))

    def deviation(self, gates: Array) -> float:
        """Return the root of the mean variance of f over samples and outputs, under gates as new
        samples have them."""
        n, K = self.labels.shape
        mean = np.einsum("nm,nmc->nc", gates, self._outputs())
        spread = float(np.sum(gates * self._output_squares()) - np.sum(mean**2))
        return float(np.sqrt(1.0 + self.b_var + spread / (n * K)))

    def bound(self) -> float:
        """Return E[log p(y, everything)] − E[log q(everything)], right after `_update_outputs`."""
        (n, K), (P, R) = self.labels.shape, self.log_det.shape
        # f: where it is cut off, and the variance of its mean.
        second = float(np.sum(self.on * self._output_squares())) + 2.0 * float(
            np.sum(self._said() @ self.b)
        )
        second += n * float(self._intercept_squares()[0])
        total = float(self.log_inside.sum()) - 0.5 * (second - float(np.sum(self.f_mean**2)))
        # h, e and b around zero, with their precisions; log |K| cancels.
        total += self.projections.bound(self.squares.sum(axis=1), self.ranks * R)
        total += 0.5 * float(
            np.sum(R * self.ranks * (1.0 - np.log(self.level))) + self.log_det.sum()
        )
        total += self.intercepts.bound(self._intercept_squares(), K) + 0.5 * K * (
            1.0 + np.log(self.b_var)
        )
        if self.learns_e:
            total += 0.5 * K * float(P * R + np.linalg.slogdet(self.e_cov)[1].sum())
            total -= 0.5 * float(
                np.sum(self.e**2) + K * np.trace(self.e_cov, axis1=1, axis2=2).sum()
            )
        # s, t and v. q(t) was set around `mu`; v has moved since.
        q, now = self.Z.shape[1], self.Z @ self.v.T
        total += float(self.log_z.sum() - np.sum(self.on * self.gain))
        total += 0.5 * float(np.sum(self.mu**2 - now**2 - 2.0 * self.t * (self.mu - now)))
        total -= 0.5 * float(np.sum(self.v_cov * (self.Z.T @ self.Z)))
        total += 0.5 * float(np.sum(q + np.linalg.slogdet(self.v_cov)[1]))
        return float(total + self.gates.bound(self._gate_squares(), q))


def _leading(K: Array, least: float = 1e-6) -> tuple[Array, int]:
    """Return the matrix without the directions of less than this share of the largest eigenvalue,
    and its rank.

    In those the posterior is the prior: they only slow the updates of λ down.
    """
    D, Q = np.linalg.eigh(K)
    kept = least * max(float(D[-1]), 0.0) < D
    return (Q[:, kept] * D[kept]) @ Q[:, kept].T, int(kept.sum())


def _sticks(mu: Array, gain: Array) -> tuple[Array, Array]:
    """Return Φ(μ_m) Π_{h < m} Φ(−μ_h) exp(gain_m), of shape (n, P), over their sums, and the
    logarithms of these."""
    none = np.zeros((len(mu), 1))
    logs = (
        np.hstack([log_ndtr(mu), none]) + np.hstack([none, np.cumsum(log_ndtr(-mu), axis=1)]) + gain
    )
    log_z = np.logaddexp.reduce(logs, axis=1)
    return np.exp(logs - log_z[:, np.newaxis]), log_z


def _gates(v: Array, v_cov: Array, Z: Array) -> Array:
    """Return Pr(s = m) under v ~ N(v, v_cov), of shape (n, P)."""
    spread = np.einsum("nq,mqp,np->nm", Z, v_cov, Z, optimize=True)
    return _sticks(Z @ v.T / np.sqrt(1.0 + spread), np.zeros((len(Z), len(v) + 1)))[0]


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
    return np.column_stack([Z, np.ones(len(Z))])
