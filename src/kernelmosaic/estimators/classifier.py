"""The base class of classifiers, and classification with one weight per kernel.

Several classes may have one weight per class and kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from types import MethodType
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.exceptions import NotFittedError

from kernelmosaic._typing import (
    AnyArray,
    Array,
    ArrayOrTensor,
    Estimator,
    KernelsLike,
    MatrixLike,
    SampleWeight,
    Seed,
    TargetLike,
)
from kernelmosaic.engine.calibration import Calibration
from kernelmosaic.engine.cross_calibration import CalibrationFolds, cross_calibrate
from kernelmosaic.engine.fit import fit
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.tasks import Classes, ClassTask, PathRule, accuracy, find_classes, single
from kernelmosaic.estimators._base import BaseMKL, KernelEstimator
from kernelmosaic.stacking import check_row_names


class WithProbabilities:
    """A method that only classifiers with probabilities have.

    Without probabilities, access to the method raises an AttributeError that names the remedy.
    ``available_if`` of scikit-learn does not do this: whatever its check raises, the message of its
    AttributeError is "has no attribute 'predict_proba'", and the remedy is in the cause of the
    error only.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        wrapped: Any = self
        update_wrapper(wrapped, method)

    def __get__(self, estimator: Estimator | None, owner: Any = None) -> Any:
        if estimator is None:
            return self.method
        if estimator.calibration is None and not estimator._knows_probabilities:
            name = type(estimator).__name__
            search = "model_selection.PathSearchCV"
            if name == "MKLClassifier":
                search = "MKLClassifierCV"
            raise AttributeError(
                f"{name} has decision values and no probabilities: give calibration='sigmoid' or"
                f" 'isotonic' before fitting, or use {search}."
            )
        return MethodType(self.method, estimator)


class KernelClassifier(ClassifierMixin, KernelEstimator):
    """Base class of classifiers: decision values, classes, and probabilities by calibration."""

    classes_: AnyArray
    # The parameter that says how decision values become probabilities; None fits no calibration.
    calibration: Any = None
    # Whether there are probabilities without that parameter.
    _knows_probabilities = False
    # The fitted calibration, which turns decision values into probabilities.
    _calibration: Any = None

    def decision_function(self, X: MatrixLike) -> Array:
        """Return the decision values, of shape (n_samples, classes).

        Two classes have one value per sample, of shape (n_samples,), positive for the second class.
        """
        return single(self._outputs(X))

    @WithProbabilities
    def predict_proba(self, X: MatrixLike) -> Array:
        """Return the probabilities of the classes, of shape (n_samples, classes).

        The classes are in the order of `classes_`.
        """
        return self._probabilities(self.decision_function(X))

    @WithProbabilities
    def predict_log_proba(self, X: MatrixLike) -> Array:
        """Return the logarithms of the probabilities, of shape (n_samples, classes)."""
        return np.asarray(np.log(self.predict_proba(X)))

    def predict(self, X: MatrixLike) -> AnyArray:
        """Return the class of each sample."""
        labels: AnyArray = self.decide(self._outputs(X))
        return labels

    def score(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> float:
        """Return the accuracy, with weights of the samples a weighted mean."""
        check_row_names(X, y=y, sample_weight=sample_weight)
        return float(super().score(X, y, sample_weight))

    def fit_input(
        self, samples: FitInput, calibration: Any = None, starts: Any = None, **options: Any
    ) -> Self:
        """Fit to validated samples, and fit a calibration if one is wanted and none is given.

        Parameters
        ----------
        samples : FitInput
            As `validated` returns them.
        calibration : Calibration, optional
            What turns decision values into probabilities. None fits it to held-out samples of
            folds, if the parameter `calibration` is set.
        starts : list of Start, optional
            Where the search for the weights of each machine starts.
        **options
            Further arguments of `kernelmosaic.engine.fit.fit`.
        """
        self._calibration = calibration
        recipe = self.recipe(samples)
        # Folds are drawn before the fit, since classes of too few samples for them are an error.
        folds = None
        if calibration is None and self.calibration is not None:
            classes = find_classes(samples.y, samples.weight, type(self).__name__)
            folds = CalibrationFolds.of(self, samples, classes)
        result = fit(recipe, samples, starts=starts, **options)
        self.keep(result, samples)
        if folds is not None:
            self._calibration = cross_calibrate(self, folds, result, len(samples.y))
        return self

    def keep_calibration(self, calibration: Calibration | None) -> None:
        """Set what turns decision values into probabilities."""
        self._calibration = calibration

    def _probabilities(self, outputs: Array) -> Array:
        """Return the probabilities of samples by their decision values."""
        if self._calibration is None:
            raise NotFittedError(
                f"{type(self).__name__} was fitted without calibration and has no probabilities:"
                " call 'fit' again."
            )
        return np.asarray(self._calibration.probabilities(outputs))


class MKLClassifier(KernelClassifier, BaseMKL):
    """Support vector classification on a weighted sum of kernels.

    Minimises ½ (Σ_m d_m ‖w_m‖)² + C Σ ξ_i over f(x) = Σ_m ⟨w_m, φ_m(x)⟩ + b with y_i f(x_i) ≥ 1 −
    ξ_i, which is the support vector machine on Σ_m η_m k_m with the best weights η ≥ 0, Σ d_m² η_m
    = 1. Several classes are separated one versus rest, each with its own weights.

    Parameters
    ----------
    kernels : list, default=None
        Kernels, ``(name, kernel)`` or ``(name, kernel, columns)`` with columns as in
        :class:`~sklearn.compose.ColumnTransformer`. None means linear, quadratic and Gaussians of
        1, 2 and 4 times the median distance between training samples.
    C : float or "learn", default=1.0
        Weight of the slack in the objective. ``"learn"``, with ``slack=2``, learns it with the
        weights: the identity is one more kernel. ``np.inf`` allows no slack: the hard margin, for
        classes that the kernels separate, one versus rest; `slack` and the weights of samples and
        classes then have no effect.
    multi_class : {"ovr", "ovr-shared", "joint", "pairwise"}, default="ovr"
        How more than two classes are handled: one versus rest, each with its own weights; one
        versus rest with one weight per kernel for all classes, which minimise the sum of their
        objectives; or all in one problem with shared weights and a constant per class, with one
        slack per sample (``"joint"``, Crammer and Singer) or per sample and class (``"pairwise"``,
        Weston and Watkins).
    class_weight : dict, "balanced" or None, default=None
        Factors of C, class by class. ``"balanced"`` makes the sums of the sample weights of all
        classes equal.
    calibration : {"sigmoid", "isotonic"} or None, default=None
        How decision values become the probabilities of :meth:`predict_proba`: p ∝ exp(h(f_c)) with
        one increasing, piecewise linear h for all classes, or one monotone function per class,
        which some sets of several classes need. They are fitted to the decision values of samples
        held out, in five folds whose fits start from that to all samples. None fits once, without
        probabilities.
    n_jobs : int, default=None
        Classes separated from the rest at the same time, on threads, each with its own combined
        matrix; None means one after the other, -1 all cores.
    norm : float, default=1
        1 for sparse weights (Σ d_m² η_m = 1), p > 1 for weights θ_m = d_m² η_m of p-norm one.
    weights : "uniform", "loo", array-like of shape (P,) or None, default=None
        None learns the weights; ``"uniform"`` gives each kernel 1/P; ``"loo"`` takes those of
        :class:`MKLRidgeClassifierCV`, or :class:`MKLRidgeCV` for numbers, divided by their sum; an
        array is kept.
    fixed_weights : dict or None, default=None
        Weights, by the name of a kernel or of a view, that are kept fixed and are not part of the
        norm: such kernels do not compete with the others. ``{"clinical": 1.0}`` minimises
        ½‖w_clinical‖² + ½ (Σ_m d_m ‖w_m‖)² + losses, the sum being over the other kernels.
        `weights` is None or ``"uniform"`` then, and `solver` ``"newton"``.
    penalties : array-like of shape (P,), "eigenvalue" or None, default=None
        The d_m; None means ones; ``"eigenvalue"`` takes the number of eigenvalues above ½ to the
        power `penalty_power`.
    penalty_power : float, default=0.5
        The exponent γ of eigenvalue penalties.
    slack : {1, 2}, default=1
        Norm of the slack. With 2 the objective is (Σ_m d_m ‖w_m‖)² + C Σ ξ_i², without the half of
        the first term: C is twice that of ``LinearSVC(loss="squared_hinge")``.
    solver : str, default="newton"
        How the weights are learned: ``"newton"``, ``"reduced_gradient"``, ``"silp"``, ``"qcqp"``,
        ``"sdp"``, or the heuristics ``"alignment"`` and ``"easymkl"``.
    easymkl_lambda : float, default=0.1
        With ``solver="easymkl"``, the λ of Aiolli and Donini, above 0 and at most 1: the weights
        are in proportion to γᵀYK_mYγ, where γ minimises (1 − λ) γᵀY(Σ K_m)Yγ + λ‖γ‖² over one
        mixture of samples per class.
    normalize : {"trace", "diagonal", "centered"} or None, default="trace"
        How kernels are put on one scale: mean diagonal 1 on the training set; unit diagonal;
        centred, then mean diagonal 1. A kernel that is constant on the training set is zero once
        centred; one of which rounding leaves fewer than three digits is refused.
    approximation : {"nystroem", "leading", "fourier"} or None, default=None
        None computes the kernels exactly. Else each becomes a block of features whose inner
        products approximate it, and cost grows with the number of samples, not with its square:
        ``"nystroem"`` projects onto samples drawn as landmarks and is for every kernel;
        ``"leading"`` does so with more landmarks, four times the rank and at least 400, and keeps
        the directions in which these vary most, which of noisy columns lack less than as many
        landmarks; ``"fourier"`` draws frequencies and is for Gaussian and Laplacian kernels. Linear
        kernels of no more columns than `rank` stay exact. X may then be a memory map, or the path
        of a ``.npy`` file, of a Parquet file or of a folder of these, which are read in blocks.
        Weights, objective and gap are those of the approximated problem.
    rank : int, float, or sequence of P such, default=500
        Maximum number of features per kernel, with `approximation` only. With ``"leading"``, a
        number below 1 is the share of a kernel, of the trace of its matrix between 500 landmarks,
        that its features may lack.
    missing : {"neighbors", "zero"}, default="neighbors"
        How a view that a sample lacks is replaced, at fit and at prediction. A sample lacks a view
        if all its columns are NaN, or if a :class:`~kernelmosaic.kernels.Precomputed` matrix has
        NaN in the row and column of the sample. Its feature vector in that kernel is the mean of
        those of the 6 most similar training samples that have the view (``"neighbors"``); or it is
        zero, and those of its other views are multiplied by √(number of kernels / number it has)
        (``"zero"``). The problem stays convex and certified. With ``"neighbors"`` a model of
        several views keeps all training samples.
    tol : float, default=1e-3
        Relative duality gap at which to stop.
    max_iter : int, default=100
        Maximum number of iterations on the weights.
    memory_budget : float, default=None
        Bytes the Gram matrices, or features, may take, at least 128 KiB; None means half of the
        free memory. A larger stack is recomputed in blocks. The samples, vectors and blocks of a
        pass come on top, some 10 MiB up to 5000 samples, and once per process what Numba takes to
        load and to compile, about 120 MiB.
    device : str, default=None
        None computes with NumPy; ``"cuda"`` keeps the Gram matrices on a GPU and solves there,
        ``"cpu"`` does the same with torch on the host. Samples that are a tensor on a GPU need no
        `device`. Up to 2000 samples, or 5000 with all classes in one problem, are computed on the
        host, which is faster.
    random_state : int, RandomState or None, default=None
        Seed of landmarks and frequencies; exact kernels do not use it.
    verbose : bool, default=False
        Show a progress bar; classes are then learned one after the other.

    Attributes
    ----------
    weights_ : ndarray of shape (P,), or (classes, P) with ``multi_class="ovr"``
        The weights of the kernels.
    view_weights_ : dict
        The weights summed over the kernels of every view, by its name.
    kernel_names_ : list of str
        The names of the kernels.
    dual_coef_ : ndarray of shape (outputs, n_support)
        Signed dual coefficients of the support vectors; one output for two classes.
    support_ : ndarray of shape (n_support,)
        Row numbers of the support vectors. Repeated samples are merged into one with the sum of
        their weights, and have the row number of the first.
    n_support_ : ndarray of shape (classes,)
        The number of support vectors of each class.
    support_fraction_ : float
        The share of the support vectors in the distinct training samples.
    intercept_ : ndarray of shape (outputs,)
        Constants of the decision function.
    objective_ : float
        Primal value of the training problem at the returned weights, coefficients and constants;
        summed over the classes.
    duality_gap_ : float
        Certified relative duality gap; the largest over the classes.
    converged_ : bool
        Whether it is at most `tol`.
    solver_ : str or None
        What found the weights: `solver`, or "interior_points" where it handed over to them for a
        class; None where weights are given.
    n_iter_, n_solves_ : int
        Iterations on the weights, and how often a machine was solved, where a step of interior
        points counts as one; solves on a part of the samples, which large sets start from, are not
        counted.
    history_ : list of dict
        Objective and gap of every iteration.
    C_ : ndarray of shape (outputs,)
        The learned C; set with ``C="learn"`` only.
    classes_ : ndarray
        The class labels.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    References
    ----------
    Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response surface
    methodology".

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.kernels import Gaussian, Linear
    >>> X, y = make_gaussians(n_components=4, n_samples=200, random_state=0)
    >>> kernels = [("line", Linear()), ("bell", Gaussian("median"))]
    >>> model = MKLClassifier(kernels, weights="uniform").fit(X, y)
    >>> model.weights_
    array([0.5, 0.5])
    """

    path_rule: ClassVar[PathRule | None] = PathRule(score=accuracy)

    @property
    def _learns_C(self) -> bool:  # type: ignore[override]
        return isinstance(self.C, str) and self.C == "learn"

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        C: float | str = 1.0,
        multi_class: str = "ovr",
        class_weight: Any = None,
        calibration: str | None = None,
        n_jobs: int | None = None,
        easymkl_lambda: float = 0.1,
        norm: float | str = 1,
        weights: ArrayOrTensor = None,
        fixed_weights: Any = None,
        penalties: Any = None,
        penalty_power: float = 0.5,
        slack: int = 1,
        solver: str = "newton",
        missing: str | None = "neighbors",
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.multi_class = multi_class
        self.class_weight = class_weight
        self.calibration = calibration
        self.n_jobs = n_jobs
        self.easymkl_lambda = easymkl_lambda
        self.norm = norm
        self.weights = weights
        self.fixed_weights = fixed_weights
        self.penalties = penalties
        self.penalty_power = penalty_power
        self.slack = slack
        self.solver = solver
        self.missing = missing
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _task(self) -> ClassTask:
        learns_weights = self.weights is None
        return Classes(
            type(self).__name__,
            None,
            self.class_weight,
            self.C,
            self.slack,
            self.multi_class,
            learns_weights,
        )
