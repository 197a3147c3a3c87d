"""Localized multiple kernel learning: one gate per kernel, as a function of the sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils import Tags, TransformerTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._checks import check_C, check_count
from kernelmosaic._typing import (
    AnyArray,
    Array,
    Estimator,
    KernelsLike,
    MatrixLike,
    Seed,
    TargetLike,
)
from kernelmosaic.engine.fit import Recipe
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.tasks import PathRule, accuracy
from kernelmosaic.estimators._base import BaseMKL
from kernelmosaic.estimators.classifier import MKLClassifier
from kernelmosaic.estimators.regressor import MKLOneClass, MKLRegressor
from kernelmosaic.gram.missing import GATED
from kernelmosaic.kernels.base import Kernel, suggest_kernel
from kernelmosaic.kernels.transformed import Projected
from kernelmosaic.localized.gating import make_gating
from kernelmosaic.localized.learning import GateLearner, make_step
from kernelmosaic.localized.method import GateMethod


def has_projections(estimator: Estimator) -> bool:
    """Whether some kernel of the estimator is a projected one."""
    return any(isinstance(entry.kernel, Projected) for entry in estimator.read_kernels())


def has_learned_projections(estimator: Estimator) -> bool:
    """Whether some fitted kernel of the estimator is projected; before a fit, some kernel at all.

    After a fit, later changes of the parameters do not count.
    """
    if not hasattr(estimator, "function_"):
        return has_projections(estimator)
    return any(True for _ in estimator.function_.projections())


class ProjectedSamples(TransformerMixin):
    """The methods of a transformer, in the containers `set_output` asks for.

    Localized estimators take them over one by one, each available only if there is a projected
    kernel; scikit-learn wraps them where they are defined, and would not leave a method that need
    not be there as it is.
    """

    def transform(self: Any, X: MatrixLike) -> MatrixLike:
        """Return the samples in the learned projections, side by side.

        The projections are in the order of the kernels (and classes). Only estimators with a
        :class:`~kernelmosaic.kernels.Projected` kernel have this method.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_components), or a data frame if ``set_output`` asked for one
        """
        X = self.read(X)
        views = [expansion.kernel_set.views(X) for expansion in self.function_.expansions]
        return np.hstack(
            [kernel.transform(views[c][m]) for c, m, kernel in self.function_.projections()]
        )

    def get_feature_names_out(self: Any, input_features: Any = None) -> AnyArray:
        """Return the names of the columns of :meth:`transform`.

        A name is that of the kernel, after that of the class if every class has its own kernels.

        Parameters
        ----------
        input_features : ignored
            Every projection reads all columns of its kernel.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        is_per_class = len(self.function_.expansions) > 1
        names = []
        for c, m, kernel in self.function_.projections():
            prefix = f"{self.classes_[c]}_" if is_per_class else ""
            names += [f"{prefix}{self.kernel_names_[m]}_{k}" for k in range(kernel.W_.shape[1])]
        return np.array(names, dtype=object)


# The methods of a transformer are wrapped already, and not all estimators have them.
class BaseLocalized(TransformerMixin, BaseMKL, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """One gate per kernel, as a function of the sample, with the machine that a subclass names."""

    gating: Any
    gating_columns: Any
    gating_kernel: Any
    step: Any
    n_init: int
    n_iter_no_change: int
    # Gates are learned in place of weights.
    weights = None
    # The gate of a view that a sample lacks is zero.
    missing = GATED
    # Gates read the samples themselves.
    reads_samples = True

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("n_init", "n_iter_no_change", "max_iter"):
            check_count(name, getattr(self, name))
        make_step(self.step)
        if self.approximation is not None and has_projections(self):
            raise ValueError(
                f"approximation={self.approximation!r}: projections are learned with exact kernels"
                " only; use approximation=None, or kernels that are not Projected."
            )
        if self.gating_kernel is not None and not isinstance(self.gating_kernel, Kernel):
            raise TypeError(
                f"gating_kernel={self.gating_kernel!r}: give a kernel or None;"
                f" {suggest_kernel(self.gating_kernel)}"
            )

    def recipe(self, given: FitInput) -> Recipe:
        if given.device is not None and has_projections(self):
            raise ValueError(
                f"device={given.device!r}: projected kernels are learned on the host; use"
                " device=None."
            )
        recipe = super().recipe(given)
        return replace(recipe, kernels=replace(recipe.kernels, host_samples=3000))

    def _method(self) -> GateMethod:
        descent = GateLearner(
            gating=make_gating(self.gating),
            step=self.step,
            tol=self.tol,
            max_iter=int(self.max_iter),
            verbose=bool(self.verbose),
            n_short=int(self.n_iter_no_change),
        )
        return GateMethod(
            descent,
            columns=self.gating_columns,
            kernel=self.gating_kernel,
            n_init=int(self.n_init),
            n_jobs=self.n_jobs,
            random_state=self.random_state,
            kinds={kernel.input_kind for kernel in self.weighted_kernels()},
        )

    # Samples in -----------------------------------------------------------------------------------

    def further_kernels(self) -> dict[str, Kernel]:
        if isinstance(self.gating_kernel, Kernel):
            return {"gating_kernel": self.gating_kernel}
        return {}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        try:
            tags.transformer_tags = TransformerTags() if has_learned_projections(self) else None
        except (TypeError, ValueError):
            tags.transformer_tags = None
        return tags

    # Predictions out ------------------------------------------------------------------------------

    def gate(self, X: MatrixLike) -> Array:
        """Return how much each kernel counts for each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, P) or (n_samples, P, classes)
            The latter where every class has gates of its own.
        """
        X = self.read(X)
        gates: Array = np.moveaxis(self.function_.gates(X), 0, -1)
        return gates[:, :, 0] if gates.shape[2] == 1 else gates

    @property
    def projections_(self) -> dict[str, Array]:
        """The learned projections W by the names of their kernels.

        A projection has the shape (columns of the kernel, n_components). A projected sample is Wᵀx,
        x having the columns that the kernel reads. Where every class has projections of its own,
        the class stands before the name of the kernel, as in :meth:`get_feature_names_out`. The
        dict is empty where no kernel is projected.
        """
        check_is_fitted(self)
        is_per_class = len(self.function_.expansions) > 1
        projections = {}
        for c, m, kernel in self.function_.projections():
            name = self.kernel_names_[m]
            if is_per_class:
                name = f"{self.classes_[c]}_{name}"
            projections[name] = kernel.W_.copy()
        return projections

    transform = available_if(has_learned_projections)(ProjectedSamples.transform)
    get_feature_names_out = available_if(has_learned_projections)(
        ProjectedSamples.get_feature_names_out
    )

    @available_if(has_projections)
    def fit_transform(self, X: MatrixLike, y: TargetLike = None, **options: Any) -> MatrixLike:
        """Fit, then return the samples in the learned projections."""
        return self.fit(X, y, **options).transform(X)


class LocalizedMKLClassifier(BaseLocalized, MKLClassifier):
    """Support vector classifier on a locally weighted sum of kernels.

    Minimises ½ Σ_m ‖w_m‖² + C Σ ξ_i over the gates and f(x) = Σ_m η_m(x) ⟨w_m, φ_m(x)⟩ + b, subject
    to y_i f(x_i) ≥ 1 − ξ_i. For given gates it is a support vector machine on k(x, z) = Σ_m η_m(x)
    k_m(x, z) η_m(z); over the gates the problem is not convex, so it is solved from `n_init` random
    starts. More than two classes are each separated from the rest, with their own gates, or all in
    one problem with shared gates; see `multi_class`.

    Parameters
    ----------
    kernels : list, default=None
        Items are kernels, ``(name, kernel)`` or ``(name, kernel, columns)``, as in
        :class:`MKLClassifier`. One kernel may occur several times;
        :class:`~kernelmosaic.kernels.Projected` kernels have their projections learned.
    C : float, default=10.0
        Weight of the slack in the objective. Gates below one shrink the kernels; the default is
        therefore larger than that of :class:`MKLClassifier`.
    gating : {"softmax", "sigmoid", "constant", "gaussian"} or Gating, default="softmax"
        How a gate depends on the sample. ``"softmax"``: the gates of a sample sum to one.
        ``"sigmoid"``: each gate is independent of the others. ``"constant"``: not at all, a global
        combination whose weights are the squared gates. ``"gaussian"``: by a centre and widths.
    gating_columns : columns, default=None
        Columns that the gates read, as in :class:`~sklearn.compose.ColumnTransformer`; None means
        all columns. Gates that read many columns overfit where the kernels separate the classes
        without them; use one or two.
    gating_kernel : Kernel, default=None
        Gates in the space of this kernel: they read the leading coordinates (at most 20) of its
        kernel principal component analysis of the training set, so that sequences and precomputed
        kernels can be gated.
    step : {"armijo", "lbfgs", "fixed"}, default="armijo"
        How the gates are improved: steepest descent, or quasi-Newton steps in a third to a half of
        the time, whose gates predict a little worse, both with a line search; or fifty steps of
        0.01, `max_iter` if that is less.
    n_init : int, default=3
        Random starts, of which the one with the least objective is kept; they run in parallel.
    slack : {1, 2}, default=1
        Norm of the slack; with 2 the objective is Σ_m ‖w_m‖² + C Σ ξ_i².
    normalize : {"trace", "diagonal", "centered"} or None, default="trace"
        How kernels are put on one scale; see :class:`MKLClassifier`.
    approximation : {"nystroem", "leading", "fourier"} or None, default=None
        None computes the kernels exactly; else each becomes a block of features, as in
        :class:`MKLClassifier`, and X may stay in a file. The columns of the gates are kept in
        memory: of many, name a few as `gating_columns`. The space of a `gating_kernel` is learned
        from at most a thousand samples then. Projected kernels must be exact.
    rank : int or sequence of P int, default=500
        Maximum number of features per kernel.
    tol : float, default=1e-2
        The convergence parameter τ: an iteration is short if J(t) > (1 − τ) J(t − 1), that is, if
        the objective J falls by less than this share of itself.
    n_iter_no_change : int, default=3
        The number of short iterations in a row at which to stop; 1 is the published rule, which may
        stop at once where the search starts on a plateau.
    max_iter : int, default=100
        Maximum number of iterations on the gates.
    memory_budget : float, default=None
        Bytes the Gram matrices, or features, may take, and what :class:`MKLClassifier` lists on
        top; None means half of the free memory.
    device : str, default=None
        As in `MKLClassifier`; projected kernels are learned on the host only.
    n_jobs : int, default=None
        Starts, and classes with their own gates, learned at the same time, on threads; None means
        as many as the linear algebra may use, -1 all cores.
    verbose : bool, default=False
        Show the progress; starts then run one after the other.
    random_state : int, RandomState or None, default=0
        Of the starts, and of the landmarks or frequencies of kernels that are approximated.
    multi_class : {"ovr", "ovr-shared", "joint", "pairwise"}, default="ovr"
        How more than two classes are handled: one versus rest, each with its own gates; or all in
        one problem with shared gates and a constant per class, as in :class:`MKLClassifier`.
    class_weight : dict, "balanced" or None, default=None
        Factors of C, class by class.
    calibration : {"sigmoid", "isotonic"} or None, default=None
        How decision values become the probabilities of :meth:`predict_proba`; see
        :class:`MKLClassifier`.

    Attributes
    ----------
    weights_ : ndarray of shape (P,), or (classes, P) for more than two classes, one versus rest
        The mean gate of each kernel over the training set.
    gating_params_ : dict, or list of dict for more than two classes, one versus rest
        Parameters of the gates in the units of the columns they read (which are standardised
        inside): ``coef`` and ``intercept`` of softmax and sigmoid scores, ``centres`` and
        ``widths``, or ``weights``.
    kernel_names_ : list of str
        Names of the kernels; copies are numbered.
    dual_coef_, support_, n_support_, support_fraction_, intercept_, classes_, n_features_in_
        As in :class:`MKLClassifier`.
    feature_names_in_
        As in :class:`MKLClassifier`.
    objective_ : float
        Primal value of the training problem at the returned gates, coefficients and constants;
        summed over the classes.
    duality_gap_ : float
        Certified relative duality gap of the machine under the final gates; the largest over the
        classes.
    n_iter_, n_solves_ : int
        Iterations on the gates of the best start, and how often a machine was solved in all starts.
    history_ : list of dict
        Objective and the machine's gap after every iteration of the best start, from the start
        itself on.

    References
    ----------
    Gönen and Alpaydın (2008), "Localized multiple kernel learning".

    Examples
    --------
    >>> from kernelmosaic import LocalizedMKLClassifier
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.kernels import Linear
    >>> X, y = make_gaussians(n_components=4, n_samples=300, random_state=0)
    >>> model = LocalizedMKLClassifier([Linear(), Linear(), Linear()]).fit(X, y)
    >>> model.kernel_names_
    ['linear-1', 'linear-2', 'linear-3']
    >>> model.gate(X).shape
    (300, 3)
    """

    # Gates below one shrink the kernels.
    path_rule: ClassVar[PathRule | None] = PathRule(range=(0.1, 1e3), score=accuracy)

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        C: float = 10.0,
        slack: int = 1,
        gating: Any = "softmax",
        gating_columns: Any = None,
        gating_kernel: Any = None,
        step: Any = "armijo",
        n_init: int = 3,
        n_iter_no_change: int = 3,
        n_jobs: int | None = None,
        random_state: Seed = 0,
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        tol: float = 1e-2,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        verbose: bool = False,
        multi_class: str = "ovr",
        class_weight: Any = None,
        calibration: str | None = None,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.slack = slack
        self.gating = gating
        self.gating_columns = gating_columns
        self.gating_kernel = gating_kernel
        self.step = step
        self.n_init = n_init
        self.n_iter_no_change = n_iter_no_change
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.verbose = verbose
        self.multi_class = multi_class
        self.class_weight = class_weight
        self.calibration = calibration

    def _check_parameters(self) -> None:
        super()._check_parameters()
        # A learned C is a weight of the identity, and there are no weights here.
        check_C(self.C)


class LocalizedMKLRegressor(BaseLocalized, MKLRegressor):
    """Support vector regression on a locally weighted sum of kernels.

    Minimises ½ Σ_m ‖w_m‖² + C Σ max(0, |y_i − f(x_i)| − ε) over the gates and f(x) = Σ_m η_m(x)
    ⟨w_m, φ_m(x)⟩ + b.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`LocalizedMKLClassifier`.
    C : float, default=10.0
        Weight of the slack in the objective.
    epsilon : float, default=0.1
        Half-width of the tube in which errors are free.
    loss, quantile
        As in :class:`MKLRegressor`.
    gating, gating_columns, gating_kernel, step, n_init, slack, normalize, approximation, rank
        As in :class:`LocalizedMKLClassifier`.
    tol, n_iter_no_change, max_iter, memory_budget, device, n_jobs, verbose, random_state
        As in :class:`LocalizedMKLClassifier`.

    Attributes
    ----------
    weights_, gating_params_, kernel_names_, dual_coef_, support_, n_support_, support_fraction_,
    intercept_, \
objective_, duality_gap_, n_iter_, n_solves_, history_
        As in :class:`LocalizedMKLClassifier`.

    References
    ----------
    Gönen and Alpaydın (2010), "Localized multiple kernel regression".

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import LocalizedMKLRegressor
    >>> from kernelmosaic.kernels import Linear
    >>> X = np.linspace(-1, 1, 60)[:, np.newaxis]
    >>> model = LocalizedMKLRegressor([Linear(), Linear()], C=10, random_state=0)
    >>> model = model.fit(X, np.abs(X[:, 0]))
    >>> model.score(X, np.abs(X[:, 0])) > 0.9, model.gate(X).shape
    (True, (60, 2))
    """

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        C: float = 10.0,
        epsilon: float = 0.1,
        loss: str = "epsilon",
        slack: int = 1,
        gating: Any = "softmax",
        gating_columns: Any = None,
        gating_kernel: Any = None,
        step: Any = "armijo",
        n_init: int = 3,
        n_iter_no_change: int = 3,
        n_jobs: int | None = None,
        random_state: Seed = 0,
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        tol: float = 1e-2,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        verbose: bool = False,
        quantile: Any = 0.5,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.epsilon = epsilon
        self.loss = loss
        self.slack = slack
        self.gating = gating
        self.gating_columns = gating_columns
        self.gating_kernel = gating_kernel
        self.step = step
        self.n_init = n_init
        self.n_iter_no_change = n_iter_no_change
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.verbose = verbose
        self.quantile = quantile


class LocalizedMKLOneClass(BaseLocalized, MKLOneClass):
    """One-class support vector machine on a locally weighted sum of kernels.

    Minimises ½ Σ_m ‖w_m‖² + 1/(ν n) Σ ξ_i + b over the gates and f(x) = Σ_m η_m(x) ⟨w_m, φ_m(x)⟩ +
    b, subject to f(x_i) ≥ −ξ_i; with ``slack=2``, 1/(2ν) Σ ξ_i² in place of 1/(ν n) Σ ξ_i.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLOneClass`.
    nu : float, default=0.5
        As in :class:`MKLOneClass`.
    gating : {"softmax", "sigmoid", "constant", "gaussian"} or Gating, default="sigmoid"
        As in :class:`LocalizedMKLClassifier`. Softmax gates divide the class into regions that no
        longer resemble one another, and detect fewer novelties.
    slack : {1, 2}, default=1
        As in :class:`MKLOneClass`.
    gating_columns, gating_kernel, step, n_init, normalize, approximation, rank
        As in :class:`LocalizedMKLClassifier`, except that ``normalize="centered"`` is refused.
    tol, n_iter_no_change, max_iter, memory_budget, device, n_jobs, verbose, random_state
        As in :class:`LocalizedMKLClassifier`.

    Attributes
    ----------
    offset_ : float
        ``decision_function = score_samples - offset_``.
    weights_, gating_params_, kernel_names_, dual_coef_, support_, n_support_, support_fraction_,
    intercept_, \
objective_, duality_gap_, n_iter_, n_solves_, history_
        As in :class:`LocalizedMKLClassifier`.

    Examples
    --------
    >>> from kernelmosaic import LocalizedMKLOneClass
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, _ = make_gaussians(n_samples=100, random_state=0)
    >>> model = LocalizedMKLOneClass(nu=0.1, random_state=0).fit(X)
    >>> model.predict([[50.0, 50.0]]), model.gate(X).shape
    (array([-1]), (100, 3))
    """

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        nu: float = 0.5,
        gating: Any = "sigmoid",
        slack: int = 1,
        gating_columns: Any = None,
        gating_kernel: Any = None,
        step: Any = "armijo",
        n_init: int = 3,
        n_iter_no_change: int = 3,
        n_jobs: int | None = None,
        random_state: Seed = 0,
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        tol: float = 1e-2,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.nu = nu
        self.gating = gating
        self.slack = slack
        self.gating_columns = gating_columns
        self.gating_kernel = gating_kernel
        self.step = step
        self.n_init = n_init
        self.n_iter_no_change = n_iter_no_change
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.verbose = verbose
