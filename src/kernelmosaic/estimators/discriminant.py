"""Discriminant analysis with one weight a kernel: a classifier, and a projection to the discriminant space."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from kernelmosaic.estimators._base import BaseMKL
from kernelmosaic.estimators._discriminant_rules import DiscriminantRule, make_rule
from kernelmosaic.estimators._expansion import Expansion
from kernelmosaic.gram import Mosaic, Views, make_bank
from kernelmosaic.kernels.views import lay_tiles, read_kernels
from kernelmosaic.learning.discriminant import (
    DiscriminantFixed,
    DiscriminantLearned,
    DiscriminantLearner,
    DiscriminantProblem,
    centered_traces,
)
from kernelmosaic.learning.discriminant_factory import make_discriminant_learner
from kernelmosaic.machines import LeastSquares, Machine
from kernelmosaic.machines.base import check_positive
from kernelmosaic.machines.discriminant import Discriminant, discriminant_projection


class DiscriminantMKLClassifier(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseMKL):
    """Regularised kernel discriminant analysis on a weighted sum of kernels; also a transformer.

    Minimises over the weights θ ≥ 0 with Σ θ_i r_i = 1 the value of the least-squares problems that discriminant analysis is:
    F₃* = aᵀ(I + G̃/λ)⁻¹a for two classes and F₆* = Σ_j h_jᵀ(I + G̃/λ)⁻¹h_j for more, with G̃ = Σ θ_i G̃_i the centred
    combined kernel and r_i = tr G̃_i. That is to maximise the regularised Fisher criterion over the total scatter, F₂* = aᵀa −
    F₃* (F₄* = F₅* = Σ h_jᵀh_j − F₆*); over the within-class scatter it is the same with λ/m, m samples. With
    ``alpha="learn"`` the identity is one more kernel, of trace m, its weight is λ, and F₇* (F₉*) = Σ_j h_jᵀ(λI + G̃)⁻¹h_j is
    minimised over all of them together.

    Plain regularised kernel discriminant analysis is this estimator with one kernel, or with ``weights="uniform"`` or given.

    Parameters
    ----------
    kernels : list, default=None
        Kernels, ``(name, kernel)`` or ``(name, kernel, columns)`` with columns as in
        :class:`~sklearn.compose.ColumnTransformer`. None means linear, quadratic and Gaussian.
    formulation : str, default="newton"
        How the weights are learned. ``"newton"``: second-order steps, the fastest; ``"silp"``: the semi-infinite linear
        program, one linear program and one factorisation a step; ``"qcqp"`` and ``"sdp"``: conic programs, for small sets;
        all of these have the same optimum. ``"sdp_approximate"``: one matrix inequality for all classes, an upper bound of the
        others. ``"kim"``: the semi-definite program of Kim et al. for two classes, which maximises the within-class criterion
        over Σ θ_i = 1 with `alpha` as its own λ.
    alpha : float or "learn", default=5e-4
        The regulariser λ, for a combined kernel whose centred trace is one, as it is with learned and uniform weights;
        ``"learn"`` finds it together with the weights.
    weights : {"uniform"}, array-like of shape (P,) or None, default=None
        None learns the weights; ``"uniform"`` gives all the same, with Σ θ_i r_i = 1; an array is kept as it is.
    decision : {"least_squares", "centroid"}, default="least_squares"
        How classes are assigned: by the least-squares fit of the class indicators with its intercept, or by the nearest class
        centroid in the discriminant space.
    normalize : {"trace", "diagonal", "centered"} or None, default="trace"
        How kernels are put on one scale; as r_i follows, ``"trace"`` and None learn the same combination.
    tol : float, default=5e-4
        Relative duality gap at which to stop.
    max_iter : int, default=100
        Most iterations on the weights.
    memory_budget : float, default=None
        Bytes the Gram matrices may take; None means half of the free memory. A larger bank is recomputed in blocks.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    weights_ : ndarray of shape (P,)
        θ.
    trace_shares_ : ndarray of shape (P,)
        θ_i r_i, what each kernel has of the combined kernel's centred trace.
    alpha_ : float
        λ, given or learned.
    kernel_names_ : list of str
        Names of the kernels.
    dual_coef_ : ndarray of shape (outputs, n_samples)
        Coefficients of the decision function; one output for two classes, else one a class.
    support_, n_support_, support_fraction_
        Samples with a coefficient, which are all; how many of each class; their share.
    intercept_ : ndarray of shape (outputs,)
        Constants of the decision function, the centring of new samples included.
    explained_ratio_ : ndarray of shape (components,)
        Share of each discriminant direction in the criterion F₄*.
    objective_ : float
        F₃* or F₆* at the weights; F₇* or F₉* with ``alpha="learn"``; the program's own value with ``"sdp_approximate"``.
    duality_gap_ : float
        Certified relative duality gap, weights included.
    n_iter_, n_solves_ : int
        Iterations on the weights, and factorisations.
    history_ : list of dict
        Objective and gap of every iteration.
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.

    References
    ----------
    Ye, Ji and Chen (2008), "Multi-class discriminant kernel learning via convex programming", Journal of Machine Learning
    Research 9. Kim, Magnani and Boyd (2006), "Optimal kernel selection in kernel Fisher discriminant analysis".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import DiscriminantMKLClassifier
    >>> from kernelmosaic.kernels import Gaussian, family
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DiscriminantMKLClassifier(family(Gaussian(), width=[0.5, 2.0, 8.0])).fit(X, y)
    >>> model.transform(X).shape
    (150, 2)
    """

    def __init__(
        self,
        kernels: Any = None,
        *,
        formulation: str = "newton",
        alpha: float | str = 5e-4,
        weights: Any = None,
        decision: str = "least_squares",
        normalize: str | None = "trace",
        tol: float = 5e-4,
        max_iter: int = 100,
        memory_budget: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.formulation = formulation
        self.alpha = alpha
        self.weights = weights
        self.decision = decision
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.verbose = verbose

    # Fitting -------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:
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
        original = X
        X, y = self._validate(X, y, reset=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class only, {self.classes_.tolist()}: {type(self).__name__} needs at least two classes to tell apart."
            )
        rule = make_rule(self.decision)
        self._check_params()
        named = original if len(np.shape(original)) == 2 and hasattr(original, "shape") else X
        mosaic = Mosaic.fit(lay_tiles(read_kernels(self.kernels), named), X, self.normalize)
        views = mosaic.views(X)
        # Single precision would leave nothing of a small λ.
        bank = make_bank(mosaic, views, dtype=np.float64, budget=self.memory_budget)
        traces = centered_traces(bank, mosaic.diagonals(views))
        problem = DiscriminantProblem(bank, Discriminant(labels, self._ridge(len(labels))), self._simplex(traces))
        learner = self._learner(traces)
        learned = learner.learn(problem)
        self.kernel_names_ = mosaic.names
        self._keep_learned(learned, traces)
        self._keep_rule(mosaic, views, problem.machine, learned, rule)
        if not self.duality_gap_ <= self.tol:
            warnings.warn(
                f"{type(self).__name__} stopped at a relative duality gap of {self.duality_gap_:.2g}, above "
                f"tol={self.tol:g}: {learner.advice}",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _check_params(self) -> None:
        check_positive("tol", self.tol)
        if isinstance(self.max_iter, bool) or not isinstance(self.max_iter, Integral) or self.max_iter < 1:
            raise ValueError(f"max_iter={self.max_iter!r}: give a whole number, at least 1.")
        if self.memory_budget is not None:
            check_positive("memory_budget", self.memory_budget)
        if isinstance(self.alpha, str) and self.alpha != "learn":
            raise ValueError(f"alpha={self.alpha!r}: give a positive number or 'learn'.")
        if isinstance(self.weights, str) and self.weights != "uniform":
            raise ValueError(f"weights={self.weights!r}: give None, 'uniform' or one number a kernel.")
        if self.alpha == "learn" and self.weights is not None:
            raise ValueError("alpha='learn' finds the regulariser together with the weights, so it needs weights=None.")

    def _ridge(self, n_samples: int) -> float | None:
        """Return λ of the total-scatter form, or None where it is learned."""
        if self.alpha == "learn":
            return None
        alpha = check_positive("alpha", self.alpha)
        # Kim et al. regularise the within-class scatter, whose sums are divided by the number of samples.
        return n_samples * alpha if self._is_kim() else alpha

    def _is_kim(self) -> bool:
        return self.weights is None and self.formulation == "kim"

    def _simplex(self, traces: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the factors of the weights in the constraint on their sum."""
        return np.where(traces > 0, 1.0, 0.0) if self._is_kim() else traces

    def _learner(self, traces: NDArray[np.float64]) -> DiscriminantLearner:
        learner = make_discriminant_learner(self.formulation, self.tol, self.max_iter, bool(self.verbose))
        if self.weights is None:
            return learner
        P = len(traces)
        if isinstance(self.weights, str):
            theta = np.full(P, 1.0 / max(float(traces.sum()), 1e-300))
        else:
            theta = np.asarray(self.weights, dtype=np.float64)
            if theta.shape != (P,) or not np.all(np.isfinite(theta) & (theta >= 0)) or not theta.any():
                raise ValueError(f"weights={self.weights!r}: give {P} finite numbers, one a kernel, none negative and not all zero.")
        return DiscriminantFixed(theta * traces)

    def _keep_learned(self, learned: DiscriminantLearned, traces: NDArray[np.float64]) -> None:
        given = self.weights is not None and not isinstance(self.weights, str)
        self.weights_ = np.array(self.weights, dtype=np.float64) if given else learned.weights
        self.trace_shares_ = learned.weights * traces
        self.alpha_ = learned.alpha
        self.objective_ = learned.objective
        self.duality_gap_ = learned.gap
        self.n_iter_ = len(learned.history)
        self.n_solves_ = learned.n_solves
        self.history_ = [{"iteration": i, **asdict(step)} for i, step in enumerate(learned.history, start=1)]

    def _keep_rule(
        self, mosaic: Mosaic, views: Views, machine: Discriminant, learned: DiscriminantLearned, rule: DiscriminantRule
    ) -> None:
        projection = discriminant_projection(machine.targets, learned.beta, learned.values)
        A = projection.coefficients
        everyone = np.arange(len(A))
        eta = np.tile(learned.weights, (A.shape[1], 1))
        self._expansion = Expansion.prune(mosaic, views, everyone, A.T, eta)
        # What the training samples' mean projects to, kernel by kernel; new samples are centred by it.
        self._offset = self._expansion.values_of(views=None) if False else self._training_mean(views)
        Z = learned.values @ projection.rotation
        slopes, constants = rule.fit(Z, machine, projection)
        self._slopes, self._constants = slopes, constants
        self.dual_coef_ = slopes @ A.T
        self.intercept_ = constants - slopes @ self._offset
        self.explained_ratio_ = projection.eigenvalues / projection.eigenvalues.sum()
        self.support_ = everyone
        self.support_fraction_ = 1.0
        self.n_support_ = machine.counts
        self._n_features_out = A.shape[1]
