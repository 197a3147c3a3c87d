"""Localized multiple kernel learning: a gate a kernel, as a function of the sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.estimators._localized import BaseLocalized
from kernelmosaic.estimators.classifier import MKLClassifier
from kernelmosaic.estimators.one_class import MKLOneClass
from kernelmosaic.estimators.regressor import MKLRegressor
from kernelmosaic.machines.base import check_positive


class LocalizedMKLClassifier(BaseLocalized, MKLClassifier):
    """Support vector classifier on a locally weighted sum of kernels.

    Minimises ½ Σ_m ‖w_m‖² + C Σ ξ_i over the gates and f(x) = Σ_m η_m(x) ⟨w_m, φ_m(x)⟩ + b, subject to
    y_i f(x_i) ≥ 1 − ξ_i. For given gates it is a support vector machine on k(x, z) = Σ_m η_m(x) k_m(x, z) η_m(z); over
    the gates the problem is not convex, so it is solved from `n_init` random starts. More than two classes are each
    told from the rest, with gates of their own, or all in one problem under shared gates; see `multi_class`.

    Parameters
    ----------
    kernels : list, default=None
        Items are kernels, ``(name, kernel)`` or ``(name, kernel, columns)``, as in :class:`MKLClassifier`. One kernel
        may occur several times; :class:`~kernelmosaic.kernels.Projected` kernels have their projections learned.
    C : float, default=10.0
        Price of the slack. Gates below one shrink the kernels, hence more than a plain machine's.
    gating : {"softmax", "sigmoid", "constant", "gaussian"} or Gating, default="softmax"
        How a gate depends on the sample: kernels compete; each is switched by itself; not at all (a global combination,
        whose weights are the squared gates); by a centre and widths.
    gating_columns : columns, default=None
        What the gates read, written as in :class:`~sklearn.compose.ColumnTransformer`; None means all columns.
    gating_kernel : Kernel, default=None
        Gates in the space of this kernel: they read the leading coordinates (at most 20) of its kernel principal
        component analysis of the training set, so that sequences and precomputed kernels can be gated.
    step : {"lbfgs", "armijo", "fixed"}, default="lbfgs"
        How the gates are improved: quasi-Newton or steepest descent, both with a line search; or fifty steps of 0.01.
    n_init : int, default=3
        Random starts, of which the one with the least objective is kept; they run in parallel.
    slack : {1, 2}, default=1
        Norm of the slack.
    multi_class : {"ovr", "joint", "pairwise"}, default="ovr"
        How more than two classes are handled: one versus rest, each with gates of its own; or all in one problem with
        shared gates, without constants, as in :class:`MKLClassifier`.
    normalize : {"trace", "diagonal", "centered"} or None, default="trace"
        How kernels are put on one scale; see :class:`MKLClassifier`.
    approximation : {"nystroem", "fourier"} or None, default=None
        None computes the kernels exactly; else each becomes a block of features, as in :class:`MKLClassifier`, and X
        may stay in a file. What the gates read is kept in memory: of many columns, name a few `gating_columns`. The
        space of a `gating_kernel` is learned from at most a thousand samples then. Projected kernels must be exact.
    rank : int or sequence of P int, default=500
        Features a kernel, at most.
    class_weight : dict, "balanced" or None, default=None
        Factors of C, class by class.
    tol : float, default=1e-3
        The convergence parameter τ: an iteration is short if J(t) > (1 − τ) J(t − 1), that is, if the objective J falls
        by less than this share of itself.
    n_iter_no_change : int, default=3
        Short iterations in a row at which to stop; 1 is the published rule, which starts on a plateau may meet at once.
    max_iter : int, default=100
        Most iterations on the gates.
    memory_budget : float, default=None
        Bytes the Gram matrices, or features, may take; None means half of the free memory.
    device : str, default=None
        As in `MKLClassifier`; projected kernels are learned on the host only.
    verbose : bool, default=False
        Show the progress; starts then run one after the other.
    random_state : int, RandomState or None, default=0
        Of the starts, and of the landmarks or frequencies of kernels that are approximated.

    Attributes
    ----------
    weights_ : ndarray of shape (P,), or (classes, P) for more than two classes told apart one versus rest
        The mean gate of each kernel over the training set.
    gating_params_ : dict, or list of dict for more than two classes told apart one versus rest
        Parameters of the gates in the units of the columns they read (which are standardised inside): ``coef`` and
        ``intercept`` of softmax and sigmoid scores, ``centres`` and ``widths``, or ``weights``.
    kernel_names_ : list of str
        Names of the kernels; copies are numbered.
    dual_coef_, support_, n_support_, support_fraction_, intercept_, classes_, n_features_in_, feature_names_in_
        As in :class:`MKLClassifier`.
    objective_ : float
        Value of the training problem; summed over the classes.
    duality_gap_ : float
        Certified relative duality gap of the machine under the final gates; the largest over the classes.
    n_iter_, n_solves_ : int
        Iterations on the gates of the best start, and how often a machine was solved in all starts.
    history_ : list of dict
        Objective and the machine's gap after every iteration of the best start, from the start itself on.

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

    def __init__(
        self,
        kernels: Any = None,
        *,
        C: float = 10.0,
        gating: Any = "softmax",
        gating_columns: Any = None,
        gating_kernel: Any = None,
        step: Any = "lbfgs",
        n_init: int = 3,
        slack: int = 1,
        multi_class: str = "ovr",
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: Any = 500,
        class_weight: Any = None,
        tol: float = 1e-3,
        n_iter_no_change: int = 3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        verbose: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.gating = gating
        self.gating_columns = gating_columns
        self.gating_kernel = gating_kernel
        self.step = step
        self.n_init = n_init
        self.slack = slack
        self.multi_class = multi_class
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.class_weight = class_weight
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _machines(self, y: Any, weight: NDArray[np.float64]) -> list[Any]:
        # A price that is learned is a weight of the identity, and there are no weights here.
        check_positive("C", self.C)
        return super()._machines(y, weight)


class LocalizedMKLRegressor(BaseLocalized, MKLRegressor):
    """Support vector regression on a locally weighted sum of kernels.

    Minimises ½ Σ_m ‖w_m‖² + C Σ max(0, |y_i − f(x_i)| − ε) over the gates and f(x) = Σ_m η_m(x) ⟨w_m, φ_m(x)⟩ + b.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`LocalizedMKLClassifier`.
    C : float, default=10.0
        Price of the slack.
    epsilon : float, default=0.1
        Half-width of the tube in which errors are free.
    gating, gating_columns, gating_kernel, step, n_init, slack, normalize, approximation, rank
        As in :class:`LocalizedMKLClassifier`.
    tol, n_iter_no_change, max_iter, memory_budget, device, verbose, random_state
        As in :class:`LocalizedMKLClassifier`.

    Attributes
    ----------
    weights_, gating_params_, kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_, \
objective_, duality_gap_, n_iter_, n_solves_, history_
        As in :class:`LocalizedMKLClassifier`.

    References
    ----------
    Gönen and Alpaydın (2010), "Localized multiple kernel regression".
    """

    def __init__(
        self,
        kernels: Any = None,
        *,
        C: float = 10.0,
        epsilon: float = 0.1,
        gating: Any = "softmax",
        gating_columns: Any = None,
        gating_kernel: Any = None,
        step: Any = "lbfgs",
        n_init: int = 3,
        slack: int = 1,
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: Any = 500,
        tol: float = 1e-3,
        n_iter_no_change: int = 3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        verbose: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.epsilon = epsilon
        self.gating = gating
        self.gating_columns = gating_columns
        self.gating_kernel = gating_kernel
        self.step = step
        self.n_init = n_init
        self.slack = slack
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.verbose = verbose
        self.random_state = random_state


class LocalizedMKLOneClass(BaseLocalized, MKLOneClass):
    """One-class support vector machine on a locally weighted sum of kernels.

    Minimises ½ Σ_m ‖w_m‖² + 1/(ν n) Σ ξ_i + b over the gates and f(x) = Σ_m η_m(x) ⟨w_m, φ_m(x)⟩ + b, subject to
    f(x_i) ≥ −ξ_i.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLOneClass`.
    nu : float, default=0.5
        In (0, 1]: at most this share of the training samples is called novel, at least this share supports the
        boundary.
    gating : {"softmax", "sigmoid", "constant", "gaussian"} or Gating, default="sigmoid"
        As in :class:`LocalizedMKLClassifier`. Softmax gates divide the one class into regions that no longer resemble
        one another, and detect less for it.
    gating_columns, gating_kernel, step, n_init, normalize, approximation, rank
        As in :class:`LocalizedMKLClassifier`, but ``normalize="centered"``.
    tol, n_iter_no_change, max_iter, memory_budget, device, verbose, random_state
        As in :class:`LocalizedMKLClassifier`.

    Attributes
    ----------
    offset_ : float
        ``decision_function = score_samples - offset_``.
    weights_, gating_params_, kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_, \
objective_, duality_gap_, n_iter_, n_solves_, history_
        As in :class:`LocalizedMKLClassifier`.
    """

    def __init__(
        self,
        kernels: Any = None,
        *,
        nu: float = 0.5,
        gating: Any = "sigmoid",
        gating_columns: Any = None,
        gating_kernel: Any = None,
        step: Any = "lbfgs",
        n_init: int = 3,
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: Any = 500,
        tol: float = 1e-3,
        n_iter_no_change: int = 3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        verbose: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.kernels = kernels
        self.nu = nu
        self.gating = gating
        self.gating_columns = gating_columns
        self.gating_kernel = gating_kernel
        self.step = step
        self.n_init = n_init
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.verbose = verbose
        self.random_state = random_state
