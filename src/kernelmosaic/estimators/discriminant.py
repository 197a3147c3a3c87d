"""Discriminant analysis with one weight per kernel: a classifier, and a projection to the discriminant space."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d

from kernelmosaic._typing import AnyArray, ArrayOrTensor, MatrixLike, TargetLike
from kernelmosaic.estimators._base import parameters
from kernelmosaic.estimators._calibration import Calibration
from kernelmosaic.estimators._input import DistinctSamples, FitInput, level_of_caller
from kernelmosaic.estimators._path import PathRule, accuracy
from kernelmosaic.estimators._training_set import TrainingSet
from kernelmosaic.estimators.classifier import BaseMKLClassifier
from kernelmosaic.gram import GramStack
from kernelmosaic.learning import Iteration, Learned, Learner, Parameters, make_learner
from kernelmosaic.learning.factory import solver_class
from kernelmosaic.learning.fixed import given_weights
from kernelmosaic.learning.ridge import centered_traces, trace_penalties
from kernelmosaic.machines.base import check_count, check_positive
from kernelmosaic.machines.discriminant import (
    Discriminant,
    LabelDiscriminant,
    Projection,
    discriminant_projection,
    within_from_least_squares,
)
from kernelmosaic.solvers import relative_gap


@parameters
class DiscriminantMKLClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseMKLClassifier):
    """Regularised kernel discriminant analysis on a weighted sum of kernels; also a transformer.

    Minimises over the weights θ ≥ 0 with Σ θ_i r_i = 1 the value of the least-squares problems that discriminant
    analysis is: F₃* = aᵀ(I + G̃/λ)⁻¹a for two classes and F₆* = Σ_j h_jᵀ(I + G̃/λ)⁻¹h_j for more, with G̃ = Σ θ_i G̃_i
    the centred combined kernel and r_i = tr G̃_i. That is to maximise the regularised Fisher criterion over the total
    scatter, F₂* = aᵀa − F₃* (F₄* = F₅* = Σ h_jᵀh_j − F₆*); over the within-class scatter it is the same with λ/m, m
    samples. With ``alpha="learn"`` the identity is one more kernel, of trace m, its weight is λ, and F₇* (F₉*) = Σ_j
    h_jᵀ(λI + G̃)⁻¹h_j is minimised over all of them together.

    Samples may have several labels, or none: fitted to indicators Y of shape (n_samples, labels), H is
    √n Π Y (YᵀY)^(−½), which for one label per sample is the same as with classes, and a label is predicted where its
    least-squares fit exceeds one half.

    :meth:`predict_proba` is p ∝ exp(h(f_c)) of the decision values, with one increasing, piecewise linear h, or one for
    each label of several, fitted to the decision value of every training sample by all others, which least squares has
    in closed form at the weights learned.

    Plain regularised kernel discriminant analysis is this estimator with one kernel, or with ``weights="uniform"`` or
    given.

    Parameters
    ----------
    kernels : list, default=None
        Kernels, ``(name, kernel)`` or ``(name, kernel, columns)`` with columns as in
        :class:`~sklearn.compose.ColumnTransformer`. None means linear, quadratic and Gaussians of
        1, 2 and 4 times the median distance between training samples.
    solver : str, default="newton"
        How the weights are learned. ``"newton"``: second-order steps, the fastest; ``"silp"``: the semi-infinite
        linear program, one linear program and one factorisation per step; ``"qcqp"`` and ``"sdp"``: conic programs, for
        small sets; all of these have the same optimum. ``"sdp_approximate"``: one matrix inequality for all classes,
        whose optimum lies above. ``"kim"``: the semi-definite program of Kim et al. for two classes, which maximises
        the within-class criterion over Σ θ_i = 1 with `alpha` as its own λ.
    alpha : float or "learn", default=5e-4
        The regulariser λ, for a combined kernel whose centred trace is one, as it is with learned and uniform weights;
        ``"learn"`` finds it together with the weights.
    weights : {"uniform"}, array-like of shape (P,) or None, default=None
        None learns the weights; ``"uniform"`` gives all the same, with Σ θ_i r_i = 1; an array is kept as it is.
    decision : {"least_squares", "centroid"}, default="least_squares"
        How classes are assigned: by the least-squares fit of the class indicators with its intercept, or by the
        nearest class centroid in the discriminant space.
    normalize : {"trace", "diagonal", "centered"} or None, default="trace"
        How kernels are put on one scale; as r_i follows, ``"trace"`` and None learn the same combination.
    approximation : {"nystroem", "fourier"} or None, default=None
        As in `MKLClassifier`: None computes the kernels exactly, else each becomes a block of features. Serves the
        formulations ``"newton"``, ``"silp"`` and ``"qcqp"``, and given weights.
    rank : int or sequence of P int, default=500
        Maximum number of features per kernel.
    tol : float, default=5e-4
        Relative duality gap at which to stop.
    max_iter : int, default=100
        Maximum number of iterations on the weights.
    memory_budget : float, default=None
        Bytes the Gram matrices, or features, may take, and what :class:`MKLClassifier` lists on top; None means half of
        the free memory. A larger stack is recomputed in blocks.
    device : str, default=None
        As in `MKLClassifier`.
    random_state : int, RandomState or None, default=None
        Draws landmarks and frequencies; exact kernels need none.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    weights_ : ndarray of shape (P,)
        θ.
    view_weights_ : dict
        The weights summed over the kernels of every view, by its name.
    trace_shares_ : ndarray of shape (P,)
        θ_i r_i, what each kernel has of the combined kernel's centred trace.
    alpha_ : float
        λ, given or learned; with ``"kim"`` that of the within-class criterion, as given.
    kernel_names_ : list of str
        Names of the kernels.
    dual_coef_ : ndarray of shape (outputs, n_samples)
        Coefficients of the decision function; one output for two classes, else one per class.
    support_, n_support_, support_fraction_
        Samples with a coefficient, which are all; how many of each class; their share.
    intercept_ : ndarray of shape (outputs,)
        Constants of the decision function, the centring of new samples included.
    explained_ratio_ : ndarray of shape (components,)
        Share of each discriminant direction in the criterion F₄*.
    objective_ : float
        F₃* or F₆* at the weights; F₇* or F₉* with ``alpha="learn"``; the program's own value with
        ``"sdp_approximate"``; F₁*, which is maximised, with ``"kim"``.
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
    Ye, Ji and Chen (2008), "Multi-class discriminant kernel learning via convex programming", Journal of Machine
    Learning Research 9. Kim, Magnani and Boyd (2006), "Optimal kernel selection in kernel Fisher discriminant
    analysis".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import DiscriminantMKLClassifier
    >>> from kernelmosaic.kernels import Gaussian, family
    >>> X, y = load_iris(return_X_y=True)
    >>> kernels = family(Gaussian(), width=[0.5, 2.0, 8.0])
    >>> model = DiscriminantMKLClassifier(kernels).fit(X, y)
    >>> model.transform(X).shape
    (150, 2)
    """

    _: KW_ONLY
    solver: str = "newton"
    alpha: float | str = 5e-4
    weights: ArrayOrTensor = None
    decision: str = "least_squares"
    tol: float = 5e-4

    # Single precision would leave nothing of a small λ.
    _stack_dtype = np.float64
    _knows_probabilities = True
    _path_rule: ClassVar[PathRule | None] = PathRule("alpha", (1e-4, 1e2), descending=True, score=accuracy)
    _has_plain_function = False

    # Fitting -------------------------------------------------------------------------------------------------------

    def fit(self, X: MatrixLike, y: TargetLike) -> Self:  # type: ignore[override]
        """Fit to samples and their classes.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples; with `approximation` also a memory map, the path of a Parquet file, or a Dask collection.
        y : array-like of shape (n_samples,) or (n_samples, labels)
            Classes, or the indicators of labels of which a sample may have several, or none.

        Returns
        -------
        self
        """
        return self._fit_calibrated(self._validated(X, y, None))

    def _validated(self, X: MatrixLike, y: TargetLike, sample_weight: None) -> FitInput:
        given = self._read_input(X, y, multi_output=True)
        return replace(given, y=check_discriminant_targets(given.y, self.decision))

    def _fit_calibrated(self, given: FitInput, calibration: Calibration | None = None) -> Self:
        """Fit to validated samples; without a calibration, decision values of every sample by all others have one."""
        left_out = self._fit_rule(given)
        if calibration is None:
            labels = given.y if self._has_labels else np.searchsorted(self.classes_, np.asarray(given.y))
            values = left_out()
            values = values[:, 0] if values.shape[1] == 1 else values
            calibration = Calibration.fit(values, labels, len(self.classes_), None, "sigmoid")
        self._calibration = calibration
        return self

    def _fit_validated(self, given: FitInput, keep_function: bool = True) -> Self:
        self._fit_rule(given, keep_function)
        return self

    def _fit_rule(self, given: FitInput, keep_function: bool = True) -> Callable[[], Matrix]:
        """Fit to validated samples, and return what finds the decision values of every sample by all others."""
        self._check_parameters()
        (machine,) = self._machines(given.y)
        data = self._training_set(given, DistinctSamples.all_of(len(given.y), None))
        traces = centered_traces(data.stack, data.diagonals())
        learner = self._trace_learner(data.stack, traces)
        with data.threads():
            (found,) = self._learn_each(data, [machine], learner)
            learned = found.certified(data.stack, data.sizes(), machine, learner)
        self._set_kernel_names(data)
        self.weights_ = learned.weights
        self.trace_shares_ = learned.weights * traces
        self.alpha_ = float(self.alpha) if self._is_kim() else learned.solution.alpha
        written = _as_kim_writes(learned, machine) if self._is_kim() else learned
        self._set_history([written], [1.0 if self._is_kim() else machine.objective_scale])
        left_out = self._set_rule(data, machine, learned, keep_function)
        warning = self._gap_warning(learner, written)
        if warning is not None:
            warnings.warn(f"{type(self).__name__}{warning}", ConvergenceWarning, stacklevel=level_of_caller())
        return left_out

    def _machines(self, y: TargetLike, weight: Any = None) -> list[Any]:
        self._has_labels = y.ndim == 2
        self.classes_ = np.arange(y.shape[1]) if self._has_labels else self._find_classes(y)
        if self._has_labels:
            return [LabelDiscriminant(y, self._ridge(len(y)))]
        return [Discriminant(np.searchsorted(self.classes_, np.asarray(y)), self._ridge(len(y)))]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count("max_iter", self.max_iter)
        if isinstance(self.alpha, str) and self.alpha != "learn":
            raise ValueError(f"alpha={self.alpha!r}: give a positive number or 'learn'.")
        make_rule(self.decision)
        if self.alpha == "learn" and self.weights is not None:
            raise ValueError("alpha='learn' finds the regulariser together with the weights, so it needs weights=None.")
        if solver_class(self._parameters()).reads_matrices and self.weights is None and self.approximation is not None:
            raise ValueError(
                f"solver={self.solver!r} reads whole kernel matrices, which approximation="
                f"{self.approximation!r} never forms: use solver='newton', or approximation=None."
            )

    def _ridge(self, n_samples: int) -> float | None:
        """Return λ of the total-scatter form, or None where it is learned."""
        if self.alpha == "learn":
            return None
        alpha = check_positive("alpha", self.alpha)
        # Kim et al. regularise the within-class scatter, whose sums are divided by the number of samples.
        return n_samples * alpha if self._is_kim() else alpha

    def _is_kim(self) -> bool:
        return self.weights is None and self.solver == "kim"

    def _host_samples(self) -> int:
        return 500

    def _parameters(self) -> Parameters:
        return Parameters(self.tol, self.max_iter, self.verbose, self.solver, self.weights, family="discriminant")

    def _trace_learner(self, stack: GramStack, traces: NDArray[np.float64]) -> Learner:
        parameters = self._parameters()
        if isinstance(self.weights, str):
            # Equal weights, on the simplex of the learned ones, so that alpha means the same.
            theta = given_weights(self.weights, len(traces))
            parameters = replace(parameters, weights=theta / float(theta @ traces))
        # Kim et al. sum the weights, not the traces.
        penalties = trace_penalties(np.sign(traces) if self._is_kim() else traces)
        return make_learner(parameters, stack, penalties=penalties)

    def _set_rule(
        self, data: TrainingSet, machine: Discriminant, learned: Learned, keep_function: bool
    ) -> Callable[[], Matrix]:
        """Set the rule, and return what finds the decision values of every sample by all others."""
        projection = discriminant_projection(machine.targets, learned.solution.beta, learned.solution.values)
        A = projection.coefficients
        all_rows = np.arange(len(A))
        rule = make_rule(self.decision)(learned.solution.values @ projection.rotation, machine, projection)
        if keep_function:
            self._expansion = data.expansion(A.T, all_rows, np.tile(learned.weights, (A.shape[1], 1)))
        # Where the training samples' mean projects to: the coefficients sum to zero, so this is all the centring
        # there is.
        means = data.stack.products(np.full(len(A), 1.0 / len(A)))
        self._center = learned.weights @ means @ A
        self._slopes = rule.slopes
        self.dual_coef_ = rule.slopes @ A.T
        self.intercept_ = rule.constants - rule.slopes @ self._center
        # Kernels that are equal for all pairs of samples explain nothing.
        self.explained_ratio_ = projection.eigenvalues / (projection.eigenvalues.sum() or 1.0)
        self.support_ = all_rows
        self.support_fraction_ = 1.0
        self.n_support_ = machine.counts
        self._n_features_out = A.shape[1]
        return lambda: learned.solution.left_out(machine.targets) @ projection.rotation @ rule.slopes.T + rule.constants

    # Predictions out -----------------------------------------------------------------------------------------------

    def _predictions(self, outputs: NDArray[np.float64]) -> AnyArray:
        return (outputs > 0).astype(int) if self._has_labels else super()._predictions(outputs)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self.decision == "least_squares" and not self._is_kim()
        return tags

    def transform(self, X: MatrixLike) -> NDArray[np.float64]:
        """Project samples to the discriminant space.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, components)
            At most classes − 1 columns, the most telling first, centred on the training set, whose regularised total
            scatter in them is the identity.
        """
        check_is_fitted(self)
        return np.asarray(self._expansion.values(self._validate(X, reset=False)) - self._center)

    def _outputs_of(self, X: MatrixLike) -> Matrix:
        return np.asarray(self._expansion.values(X) @ self._slopes.T + self.intercept_)

    def _terms_of(self, X: MatrixLike) -> Matrix:
        return np.asarray(self._expansion.terms(X) @ self._slopes.T)


def check_discriminant_targets(y: TargetLike, decision: str) -> AnyArray:
    """Return classes, of shape (n,), or indicators of labels, of shape (n, labels)."""
    if np.ndim(y) != 2 or np.shape(y)[1] == 1:
        return np.asarray(column_or_1d(y, warn=True))
    if type_of_target(y) != "multilabel-indicator":
        raise ValueError(
            f"y has shape {np.shape(y)}: give one class per sample, or indicators, 0 and 1, one column per label."
        )
    if decision != "least_squares":
        raise ValueError(f"decision={decision!r} tells classes apart; labels need 'least_squares'.")
    return np.asarray(y.toarray() if issparse(y) else y)


def _as_kim_writes(learned: Learned, machine: Discriminant) -> Learned:
    """Return the same with F₁*, which is maximised, for F₃* in the objectives, and the gaps of the former."""

    def step(objective: float, gap: float) -> Iteration:
        value, counts = machine.objective_scale * objective, machine.counts
        reached = within_from_least_squares(value, counts)
        most = within_from_least_squares(value * (1.0 - gap), counts) if gap < 1 else np.inf
        return Iteration(reached, relative_gap(most, reached))

    last = step(learned.objective, learned.gap)
    history = [step(one.objective, one.gap) for one in learned.history]
    return replace(learned, objective=last.objective, gap=last.gap, history=history)


# How classes are assigned in the discriminant space: both rules are linear in the projections -------------------------

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class LinearRule:
    """Scores = projections · slopesᵀ + constants: one for two classes, positive for the second, else one per class."""

    slopes: Matrix
    constants: NDArray[np.float64]


def least_squares_rule(Z: Matrix, machine: Discriminant, projection: Projection) -> LinearRule:
    """Return the least-squares fit of the class indicators, with its intercept.

    The targets are these indicators, centred and scaled: h_i = √(n/n_i) (1[class i] − n_i/n), and a is n/(m₊m₋) times
    the same for the second class. Undoing that gives one score per class, summing to one; two classes share the fit of
    ±1.
    """
    counts, n = machine.counts, len(Z)
    # A = βC with the columns of C orthogonal, so the targets' own fit is Z times eigenvalues times Cᵀ.
    fit = projection.rotation * projection.eigenvalues
    if not machine.has_classes:
        return LinearRule(2.0 * machine.root @ fit, 2.0 * counts / n - 1.0)
    if len(counts) == 2:
        return LinearRule(2.0 * counts[0] * counts[1] / n * fit, np.array([(counts[1] - counts[0]) / n]))
    return LinearRule(np.sqrt(counts / n)[:, np.newaxis] * fit, counts / n)


def centroid_rule(Z: Matrix, machine: Discriminant, projection: Projection) -> LinearRule:
    """Return the rule of the nearest class centroid: ⟨z, c_i⟩ − ½‖c_i‖² is largest where ‖z − c_i‖ is smallest."""
    member = np.eye(len(machine.counts))[machine.labels]
    centroids = member.T @ Z / machine.counts[:, np.newaxis]
    constants = -0.5 * np.sum(centroids**2, axis=1)
    if len(machine.counts) == 2:
        return LinearRule(np.diff(centroids, axis=0), np.diff(constants))
    return LinearRule(centroids, constants)


def make_rule(decision: Any) -> Callable[[Matrix, Discriminant, Projection], LinearRule]:
    """Return the rule of that name, or raise naming the ones there are."""
    rules = {"least_squares": least_squares_rule, "centroid": centroid_rule}
    try:
        return rules[decision]
    except (KeyError, TypeError):
        raise ValueError(f"decision={decision!r}: choose one of {', '.join(map(repr, rules))}.") from None
