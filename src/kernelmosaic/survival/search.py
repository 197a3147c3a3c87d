"""Survival with C and the norm of the weights chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelmosaic._typing import Estimator, KernelsLike, MatrixLike, SampleWeight, Seed, TargetLike
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.estimators.cv import PathSearch, fit_choice
from kernelmosaic.survival.estimator import MKLSurvival
from kernelmosaic.survival.machine import PartialLikelihood
from kernelmosaic.survival.metrics import concordance, integrated_brier_score


class MKLSurvivalCV(PathSearch, MKLSurvival):
    """:class:`MKLSurvival` with C and the norm of its weights chosen by cross-validation.

    Every fold follows a path of warm-started fits along C, one path per norm, and the best pair is
    fitted to all samples. Survival functions are estimated from the outputs of the samples held
    out: with ``loss="cox"`` the hazards are in proportion to exp(−a f(x)), where a, the slope of
    calibration, is fitted to these outputs.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLSurvival`.
    Cs : int or array-like, default=10
        The values of C to try, or their number: that many from 0.001 to 100, evenly spaced on a
        logarithmic scale.
    norms : sequence, default=(1, 2, "uniform")
        The norms of the weights to try; ``"uniform"`` gives all kernels the same weight.
        Learned weights must win by more than one standard error, as in :class:`MKLClassifierCV`.
    cv : int, splitter or iterable, default=5
        As in :class:`~sklearn.model_selection.GridSearchCV`: a number means folds that are
        stratified by whether the event was observed.
    scoring : {"likelihood", "concordance", "brier"}, callable or None, default=None
        ``"likelihood"``, which None means with ``loss="cox"``, is the logarithm of the partial
        likelihood of the samples held out, per event; ``"concordance"``, which None means
        otherwise, is Harrell's; ``"brier"`` is minus the integrated Brier score up to the 80 %
        quantile of time. A function is called with an estimator of the samples held out: its
        `predict`, and its `predict_survival_function`, which is estimated from the other folds.
    near, rule, n_jobs, refit, scale
        As in :class:`MKLClassifierCV`.
    loss : {"cox", "censored", "rank"}, default="cox"
        As in :class:`MKLSurvival`.
    epsilon, fixed_weights, penalties, penalty_power, slack, solver, normalize, approximation, rank
        As in :class:`MKLSurvival`.
    missing
        As in :class:`MKLSurvival`.
    tol, max_iter, memory_budget, device, random_state
        As in :class:`MKLSurvival`.
    verbose : bool, default=False
        Show how many folds are done, and the progress of the last fit.

    Attributes
    ----------
    C_, norm_, Cs_, scores_, scores_by_norm_, weights_by_norm_, best_score_, weights_path_
        As in :class:`MKLClassifierCV`.
    weights_paths_
        As in :class:`MKLClassifierCV`.
    weights_path_by_norm_, duality_gaps_, n_unconverged_
        As in :class:`MKLClassifierCV`.
    weights_, kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_
        Of the fit to all samples, as in :class:`MKLSurvival`.
    objective_, duality_gap_, converged_, solver_
        Of the fit to all samples, as in :class:`MKLSurvival`.
    unique_times_ : ndarray of shape (n_times,)
        As in :class:`MKLSurvival`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLSurvivalCV
    >>> rng = np.random.RandomState(0)
    >>> X = rng.randn(80, 3)
    >>> time, limit = np.exp(X[:, 0] + 0.1 * rng.randn(80)), rng.exponential(3, 80)
    >>> y = np.column_stack([time <= limit, np.minimum(time, limit)])  # event, time
    >>> model = MKLSurvivalCV(Cs=3, cv=3).fit(X, y)
    >>> bool(model.score(X, y) > 0.8), model.predict_survival_function(X[:2])[0].x.shape
    (True, (80,))
    """

    # Parameters of the estimator without a search, of which cross-validation chooses the values.
    C: Any = None
    norm: Any = None
    weights: Any = None
    # Survival functions are fitted to the outputs of samples held out. There is one way to do that,
    # so this is no parameter: a value that is not None makes the search keep them after its refit.
    calibration = "held out"

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        Cs: Any = 10,
        norms: Any = (1, 2, "uniform"),
        cv: Any = 5,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool = True,
        scale: bool = True,
        near: int | None = 1,
        rule: str = "best",
        verbose: bool = False,
        loss: str = "cox",
        epsilon: float = 0.1,
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
    ) -> None:
        self.kernels = kernels
        self.Cs = Cs
        self.norms = norms
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.refit = refit
        self.scale = scale
        self.near = near
        self.rule = rule
        self.verbose = verbose
        self.loss = loss
        self.epsilon = epsilon
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

    fit = fit_choice

    def _plain(self, given: FitInput) -> MKLSurvival:
        """Return the estimator whose C and norm are chosen, with its defaults for both."""
        return MKLSurvival(**self._plain_params())

    def _scorer(self) -> Any:
        scoring = self.scoring or ("likelihood" if self.loss == "cox" else "concordance")
        if not isinstance(scoring, str):
            return super()._scorer()
        scores = {"likelihood": likelihood, "concordance": _concordance, "brier": _minus_brier}
        if scoring not in scores or (scoring == "likelihood" and self.loss != "cox"):
            raise ValueError(
                f"scoring={scoring!r} with loss={self.loss!r}: give a function, 'concordance',"
                " 'brier' or, with loss='cox', 'likelihood'."
            )
        return scores[scoring]


def _minus_brier(
    model: Estimator, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None
) -> float:
    """Return minus the integrated Brier score; larger is better."""
    curves = model.predict_survival_function(X)
    return -integrated_brier_score(
        y, y, curves, sample_weight=sample_weight, train_weight=sample_weight
    )


def _concordance(
    model: Estimator, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None
) -> float:
    """Return Harrell's concordance of the predictions."""
    return concordance(y, model.predict(X), sample_weight)


def likelihood(
    model: Estimator, X: MatrixLike, y: Any, sample_weight: SampleWeight = None
) -> float:
    """Return the logarithm of the partial likelihood per event; NaN if there is no event.

    `y` has events and times, and predictions are minus log hazards.
    """
    weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight)
    n_events = float(y[:, 0] @ weight)
    if not n_events:
        return np.nan
    minus_logarithm = (
        PartialLikelihood(y[:, 1], y[:, 0], weight, 1.0).loss_at(model.predict(X)).value
    )
    return -minus_logarithm / n_events
