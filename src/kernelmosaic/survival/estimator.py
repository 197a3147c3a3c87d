"""Times that may be censored, on a weighted sum of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from kernelmosaic._typing import (
    Array,
    ArrayOrTensor,
    KernelsLike,
    MatrixLike,
    SampleWeight,
    Seed,
    TargetLike,
)
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.tasks import PathRule
from kernelmosaic.estimators._base import BaseMKL
from kernelmosaic.estimators.inputs import NUMBERS
from kernelmosaic.kernels.base import refuse_text
from kernelmosaic.stacking import check_row_names
from kernelmosaic.survival.curves import Curves
from kernelmosaic.survival.metrics import concordance, read_times
from kernelmosaic.survival.task import Times, require_event


def observed(y: Array) -> NDArray[np.int64]:
    """Return whether each event was observed, 1 or 0: the first column of y."""
    return y[:, 0].astype(np.int64)


class MKLSurvival(RegressorMixin, BaseMKL):
    """Survival times on a weighted sum of kernels, with censored samples: by regression, hazards or
    ranks.

    Minimises ½ (Σ_m d_m ‖w_m‖)² + C L(f) over f(x) = Σ_m ⟨w_m, φ_m(x)⟩ + b, which is larger for
    longer survival. The problem is convex, and is solved to a certified gap. The losses are

    - ``"censored"``: support vector regression on the logarithm of the time, Σ l_i. Where the event
      was observed at time t_i, l_i = max(0, |log t_i − f(x_i)| − ε). Where the sample was censored
      then, the event comes later: l_i = max(0, log t_i − f(x_i) − ε), and predicting a longer time
      costs nothing.
    - ``"cox"``: proportional hazards, the log hazard of a sample being −f(x) and a constant: minus
      the logarithm of Cox's partial likelihood, with Efron's terms for tied times.
    - ``"rank"``: (1/n) Σ max(0, 1 − (f(x_j) − f(x_i)))² over the pairs in which j outlives the
      event of i.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLClassifier`.
    C : float, default=1.0
        Factor of the loss.
    loss : {"censored", "cox", "rank"}, default="censored"
        See above.
    epsilon : float, default=0.1
        With ``loss="censored"``, half-width ε of the tube in which errors are free, on the scale of
        log t: 0.1 is about 10 % of the time.
    norm, weights, fixed_weights, penalties, penalty_power, solver, normalize, approximation, rank
        As in :class:`MKLClassifier`.
    missing
        As in :class:`MKLClassifier`.
    slack : {1, 2}, default=1
        Norm of the loss l_i of ``loss="censored"``: with 2 the objective is (Σ_m d_m ‖w_m‖)² + C Σ
        l_i².
    tol, max_iter, memory_budget, device, random_state, verbose
        As in :class:`MKLClassifier`.

    Attributes
    ----------
    weights_ : ndarray of shape (P,)
        The weights of the kernels.
    view_weights_ : dict
        The weights summed over the kernels of every view, by its name.
    kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_
        As in :class:`MKLClassifier`; with ``loss="censored"`` the coefficients of censored samples
        are not negative.
    unique_times_ : ndarray of shape (n_times,)
        The times of the training samples, in order, on which survival functions are given.
    objective_, duality_gap_, converged_, solver_, n_iter_, n_solves_, history_
        As in :class:`MKLClassifier`.

    References
    ----------
    Shivaswamy, Chu and Jansche (2007), "A support vector approach to censored targets"; Cox (1972),
    "Regression models and life-tables"; Efron (1977), "The efficiency of Cox's likelihood function
    for censored data"; Pölsterl, Navab and Katouzian (2015), "Fast training of support vector
    machines for survival analysis".

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLSurvival
    >>> rng = np.random.RandomState(0)
    >>> X = rng.randn(100, 3)
    >>> time, limit = np.exp(X[:, 0] + 0.1 * rng.randn(100)), rng.exponential(3, 100)
    >>> y = np.column_stack([time <= limit, np.minimum(time, limit)])  # event, time
    >>> model = MKLSurvival().fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    path_rule: ClassVar[PathRule | None] = PathRule(
        range=(1e-3, 1e2), strata=observed, score=concordance
    )

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        C: float = 1.0,
        loss: str = "censored",
        epsilon: float = 0.1,
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
        self.loss = loss
        self.epsilon = epsilon
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

    def fit(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> Self:
        """Fit to samples and their times.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : structured array, or array-like of shape (n_samples, 2) or (n_samples,)
            Whether the event was observed, and the time of the event or of censoring, which is
            positive, or zero if the loss is not ``"censored"``: a structured array of a boolean and
            a number, as scikit-survival has it; or two columns, the event (0 or 1) and the time. A
            vector of times means that all events were observed.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of C, sample by sample.

        Returns
        -------
        self
        """
        return super().fit(X, y, sample_weight)

    def validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        check_row_names(X, y=y)
        with refuse_text(X, y):
            # Without y, scikit-learn raises.
            times = y if y is None else read_times(y)
        given = self._read_input(X, times, sample_weight, NUMBERS)
        if self.loss == "censored" and not given.y[:, 1].all():
            raise ValueError(
                f"y: the time of sample {np.argmin(given.y[:, 1])} is 0; times must be positive"
                " with loss='censored', which predicts their logarithm: leave such samples out, or"
                " use loss='cox' or 'rank'."
            )
        require_event(given.y[:, 0] if given.weight is None else given.y[:, 0] * given.weight)
        return given

    def _task(self) -> Times:
        return Times(type(self).__name__, None, self.loss, self.C, self.epsilon, self.slack)

    def fit_input(
        self, samples: FitInput, calibration: Any = None, starts: Any = None, **options: Any
    ) -> Self:
        """Fit, and set the survival functions of outputs.

        These are `calibration`, or by default those that fit the training samples.
        """
        super().fit_input(samples, starts=starts, **options)
        if calibration is None:
            outputs = self.function_.outputs(samples.X)[:, 0]
            calibration = self._task().fit_curves(outputs, samples.y, samples.weight)
        self.keep_calibration(calibration)
        return self

    def keep_calibration(self, calibration: Curves) -> None:
        """Set what turns outputs into survival functions, and its times."""
        self.curves_: Curves = calibration
        self.unique_times_ = self.curves_.times

    def predict(self, X: MatrixLike) -> Array:
        """Return a number that is larger for longer survival.

        With ``loss="censored"`` it is the predicted logarithm of the time, of which ``np.exp`` is a
        time; with ``loss="cox"`` it is minus the log hazard, relative to the mean of the training
        samples. Its sign is opposite to that of a risk, which other libraries predict.
        """
        return self.decide(self._outputs(X))

    def predict_survival_function(self, X: MatrixLike, return_array: bool = False) -> Any:
        """Return the probability of surviving beyond each time.

        With ``loss="cox"`` it is exp(−H₀(t) exp(−f(x))) with Breslow's estimate of H₀. With
        ``loss="censored"`` it is S₀(log t − f(x)) with Kaplan and Meier's estimate S₀ of the
        residuals; with ``loss="rank"``, whose f has no unit, the residuals are those of a linear
        function of f. Both are estimated from the training samples, whose residuals are too small
        where C is large; :class:`MKLSurvivalCV` estimates them from samples held out.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        return_array : bool, default=False
            Whether to return an array.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_times)
            Step functions of the time, each with its points ``x`` and its values ``y``; or their
            values at ``unique_times_``.
        """
        return self.curves_.functions(self._outputs(X)[:, 0], return_array)

    def predict_cumulative_hazard_function(self, X: MatrixLike, return_array: bool = False) -> Any:
        """Return −log of the survival function, infinite where that is zero.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        return_array : bool, default=False
            Whether to return an array.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_times)
            As in :meth:`predict_survival_function`.
        """
        return self.curves_.functions(self._outputs(X)[:, 0], return_array, hazard=True)

    def score(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> float:
        """Return Harrell's concordance: the share of the comparable pairs of samples that are
        predicted in order.

        Two samples are comparable if the one with the shorter time had its event then: its
        prediction should be the smaller. Equal predictions count half. Guessing has a concordance
        of 0.5, and the true order one of 1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : structured array or array-like
            Their events and times, as in `fit`.
        sample_weight : array-like of shape (n_samples,), optional
            How much each sample counts; a pair counts the product of both.

        Returns
        -------
        float
        """
        check_row_names(X, y=y, sample_weight=sample_weight)
        return concordance(read_times(y), self.predict(X), sample_weight)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
