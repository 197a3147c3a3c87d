"""Classification with a posterior over the weights of the kernels, by variational inference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy.special import log_ndtr, ndtr, softmax

from kernelmosaic._checks import check_count, check_positive
from kernelmosaic._typing import Array, KernelsLike, MatrixLike, Seed, TargetLike
from kernelmosaic.bayesian.inference import Model, read_prior
from kernelmosaic.bayesian.method import ProbitClasses, VariationalMethod
from kernelmosaic.engine.fit import Method, fit
from kernelmosaic.engine.training_set import active_store
from kernelmosaic.estimators.classifier import KernelClassifier


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
    sample_prior : (float, float), default=(1, 1)
        Shape and rate of the gamma prior of the precisions λ.
    weight_prior : (float, float), default=(1e-10, 1e-10)
        Shape and rate of the gamma prior of the precisions ω. The default barely limits how large
        the weights are, and lets those of useless kernels shrink towards zero; (1, 1) holds all of
        them near one.
    intercept_prior : (float, float), default=(1, 1)
        Shape and rate of the gamma prior of the precisions γ.
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
        # Samples on a device are inferred from here.
        given = replace(self.validated(X, y, None), device=None)
        self.keep(fit(self.recipe(given), given, store=active_store()), given)
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count("max_iter", self.max_iter)

    def _check_rank(self) -> None:
        """Raise nothing: there is no such parameter."""

    def _task(self) -> ProbitClasses:
        return ProbitClasses(type(self).__name__)

    def _method(self) -> Method:
        model = Model(
            sample_prior=read_prior("sample_prior", self.sample_prior),
            weight_prior=read_prior("weight_prior", self.weight_prior),
            intercept_prior=read_prior("intercept_prior", self.intercept_prior),
            variance=check_positive("noise", self.noise) ** 2,
            margin=check_positive("margin", self.margin, zero=True),
        )
        return VariationalMethod(self.tol, self.max_iter, bool(self.verbose), model)

    # Predictions out ------------------------------------------------------------------------------

    def _probabilities(self, outputs: Array) -> Array:
        outputs = outputs / self._deviation
        if outputs.ndim == 1:
            return np.asarray(ndtr(outputs[:, np.newaxis] * [-1.0, 1.0]))
        return np.asarray(softmax(log_ndtr(outputs), axis=1))
