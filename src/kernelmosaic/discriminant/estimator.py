"""Discriminant analysis with one weight per kernel: a classifier, and a projection to the
discriminant space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d

from kernelmosaic._checks import check_count, check_positive
from kernelmosaic._typing import Array, ArrayOrTensor, KernelsLike, MatrixLike, Seed, TargetLike
from kernelmosaic.discriminant.learning import DISCRIMINANT_SOLVERS
from kernelmosaic.discriminant.method import TraceMethod, left_out, make_rule
from kernelmosaic.discriminant.task import Indicators
from kernelmosaic.engine.calibration import Calibration
from kernelmosaic.engine.fit import fit
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.tasks import PathRule, accuracy, single
from kernelmosaic.estimators._base import BaseMKL
from kernelmosaic.estimators.classifier import KernelClassifier
from kernelmosaic.estimators.inputs import COLUMNS_OF_CLASSES
from kernelmosaic.learning.factory import Parameters, solver_class


class DiscriminantMKLClassifier(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelClassifier, BaseMKL
):
    """Regularised kernel discriminant analysis on a weighted sum of kernels; also a transformer.

    Minimises over the weights θ ≥ 0 with Σ θ_i r_i = 1 the value of the least-squares problems that
    discriminant analysis is: F₃* = aᵀ(I + G̃/λ)⁻¹a for two classes and F₆* = Σ_j h_jᵀ(I +
    G̃/λ)⁻¹h_j for more, with G̃ = Σ θ_i G̃_i the centred combined kernel and r_i = tr G̃_i. That is
    to maximise the regularised Fisher criterion over the total scatter, F₂* = aᵀa − F₃* (F₄* = F₅*
    = Σ h_jᵀh_j − F₆*); over the within-class scatter it is the same with λ/m, m samples. With
    ``alpha="learn"`` the identity is one more kernel, of trace m, its weight is λ, and F₇* (F₉*) =
    Σ_j h_jᵀ(λI + G̃)⁻¹h_j is minimised over all of them together.

    Samples may have several labels, or none: fitted to indicators Y of shape (n_samples, labels), H
    is √n Π Y (YᵀY)^(−½), which for one label per sample is the same as with classes, and a label is
    predicted where its least-squares fit exceeds one half.

    :meth:`predict_proba` is p ∝ exp(h(f_c)) of the decision values, with one increasing, piecewise
    linear h, or one for each label of several, fitted to the decision value of every training
    sample by all others, which least squares has in closed form at the weights learned.

    Plain regularised kernel discriminant analysis is this estimator with one kernel, or with
    ``weights="uniform"`` or given.

    Parameters
    ----------
    kernels : list, default=None
        Kernels, ``(name, kernel)`` or ``(name, kernel, columns)`` with columns as in
        :class:`~sklearn.compose.ColumnTransformer`. None means linear, quadratic and Gaussians of
        1, 2 and 4 times the median distance between training samples.
    solver : str, default="newton"
        How the weights are learned. ``"newton"``: second-order steps, the fastest; ``"silp"``: the
        semi-infinite linear program, one linear program and one factorisation per step; ``"qcqp"``
        and ``"sdp"``: conic programs, for small sets; all of these have the same optimum.
        ``"sdp_approximate"``: one matrix inequality for all classes, whose optimum lies above.
        ``"kim"``: the semi-definite program of Kim et al. for two classes, which maximises the
        within-class criterion over Σ θ_i = 1 with `alpha` as its own λ.
    alpha : float or "learn", default=5e-4
        The regulariser λ, for a combined kernel whose centred trace is one, as it is with learned
        and uniform weights; ``"learn"`` finds it together with the weights.
    weights : {"uniform"}, array-like of shape (P,) or None, default=None
        None learns the weights; ``"uniform"`` gives all the same, with Σ θ_i r_i = 1; an array is
        used as given.
    decision : {"least_squares", "centroid"}, default="least_squares"
        How classes are assigned: by the least-squares fit of the class indicators with its
        intercept, or by the nearest class centroid in the discriminant space.
    normalize : {"trace", "diagonal", "centered"} or None, default="trace"
        How kernels are put on one scale; as r_i follows, ``"trace"`` and None learn the same
        combination.
    approximation : {"nystroem", "leading", "fourier"} or None, default=None
        As in `MKLClassifier`: None computes the kernels exactly, else each becomes a block of
        features. Serves the formulations ``"newton"``, ``"silp"`` and ``"qcqp"``, and given
        weights.
    rank : int or sequence of P int, default=500
        Maximum number of features per kernel.
    tol : float, default=5e-4
        Relative duality gap at which to stop.
    max_iter : int, default=100
        Maximum number of iterations on the weights.
    memory_budget : float, default=None
        Bytes the Gram matrices, or features, may take, and what :class:`MKLClassifier` lists on
        top; None means half of the free memory. A larger stack is recomputed in blocks.
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
        θ_i r_i, the share of each kernel in the combined kernel's centred trace.
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
    Ye, Ji and Chen (2008), "Multi-class discriminant kernel learning via convex programming",
    Journal of Machine Learning Research 9. Kim, Magnani and Boyd (2006), "Optimal kernel selection
    in kernel Fisher discriminant analysis".

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

    # Samples must have all views.
    missing = None
    # In single precision a small λ would be below rounding.
    _stack_dtype = np.float64
    _knows_probabilities = True
    _has_normed_weights: ClassVar[bool] = False
    path_rule: ClassVar[PathRule | None] = PathRule(
        "alpha", (1e-4, 1e2), descending=True, score=accuracy
    )

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        weights: ArrayOrTensor = None,
        solver: str = "newton",
        alpha: float | str = 5e-4,
        decision: str = "least_squares",
        tol: float = 5e-4,
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.weights = weights
        self.solver = solver
        self.alpha = alpha
        self.decision = decision
        self.tol = tol
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # Fitting --------------------------------------------------------------------------------------

    def fit(self, X: MatrixLike, y: TargetLike) -> Self:  # type: ignore[override]
        """Fit to samples and their classes.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples; with `approximation` also a memory map, the path of a Parquet or ``.npy`` file,
            or a Dask collection.
        y : array-like of shape (n_samples,) or (n_samples, labels)
            Classes, or indicators of labels; a sample may have several labels, or none.

        Returns
        -------
        self
        """
        return super().fit(X, y)

    def validated(self, X: MatrixLike, y: TargetLike, sample_weight: None) -> FitInput:
        fit_input = self._read_input(X, y, None, COLUMNS_OF_CLASSES)
        y = fit_input.y
        if np.ndim(y) != 2 or np.shape(y)[1] == 1:
            return replace(fit_input, y=np.asarray(column_or_1d(y, warn=True)))
        if type_of_target(y) != "multilabel-indicator":
            raise ValueError(
                f"y has shape {np.shape(y)}: give one class per sample, or indicators, 0 and 1, one"
                " column per label."
            )
        if self.decision != "least_squares":
            raise ValueError(
                f"decision={self.decision!r} is for one class per sample; several labels need"
                " 'least_squares'."
            )
        indicators = y.toarray() if issparse(y) else y
        return replace(fit_input, y=np.asarray(indicators))

    def fit_input(
        self, samples: FitInput, calibration: Any = None, starts: Any = None, **options: Any
    ) -> Self:
        """Fit to validated samples.

        Without a calibration, one is fitted to decision values of every sample by all others.
        """
        fitted = fit(self.recipe(samples), samples, starts=starts, **options)
        self.keep(fitted, samples)
        if calibration is None:
            task: Any = fitted.task
            labels = samples.y if task.has_labels else task.labels(samples.y)
            values = single(left_out(fitted))
            calibration = Calibration.fit(values, labels, len(self.classes_), None, "sigmoid")
        self._calibration = calibration
        return self

    def _task(self) -> Indicators:
        return Indicators(type(self).__name__, alpha=self.alpha, is_kim=self._is_kim())

    def _method(self) -> TraceMethod:
        return TraceMethod(self._parameters(), self.decision)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count("max_iter", self.max_iter)
        check_positive("alpha", self.alpha, word="learn")
        make_rule(self.decision)
        if self.alpha == "learn" and self.weights is not None:
            raise ValueError(
                "alpha='learn' finds the regulariser together with the weights, so it needs"
                " weights=None."
            )
        reads_matrices = solver_class(self._parameters()).reads_matrices
        if reads_matrices and self.weights is None and self.approximation is not None:
            raise ValueError(
                f"solver={self.solver!r} reads whole kernel matrices, which approximation="
                f"{self.approximation!r} never forms: use solver='newton', or approximation=None."
            )

    def _is_kim(self) -> bool:
        return self.weights is None and self.solver == "kim"

    def _parameters(self) -> Parameters:
        return Parameters(
            self.tol,
            self.max_iter,
            self.verbose,
            self.solver,
            self.weights,
            solvers=DISCRIMINANT_SOLVERS,
        )

    # Predictions ----------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self.decision == "least_squares" and not self._is_kim()
        return tags

    def transform(self, X: MatrixLike) -> Array:
        """Project samples to the discriminant space.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, components)
            At most classes − 1 columns, the most discriminative first, centred on the training set,
            whose regularised total scatter in them is the identity.
        """
        X = self.read(X)
        return np.asarray(self.function_.projections(X))
