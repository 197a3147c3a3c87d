"""The choice of C and of the norm of the weights: scores of held-out samples, rule, and refit.

`HeldOutScoring.choose` leads from the fits of all folds to a `Choice`: it scores them by the
samples held out, and the rule of `choose_value` takes a norm and a value. A `Choice` fits the
chosen parameters to all samples, calibrates probabilities or survival functions by the samples held
out, and has the estimators of the folds for intervals and sets of classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing, get_tags

from kernelmosaic._checks import check_choice
from kernelmosaic._typing import (
    AnyArray,
    Array,
    Estimator,
    Indices,
    Mask,
    MatrixLike,
    Settings,
    TargetLike,
)
from kernelmosaic.engine.conformal import Conformal
from kernelmosaic.engine.fit import Fit, fit
from kernelmosaic.engine.paths import UNTRIED, HeldOut, PreparedFold, norm_settings
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.scoring import HeldOutPredictor, read_score
from kernelmosaic.engine.search import PathFits, as_given, with_params, without_gap_warnings
from kernelmosaic.engine.training_set import active_store
from kernelmosaic.learning.certificate import Start
from kernelmosaic.stacking import StackedViews

#: What a search may choose: the best score, or the smoothest model within one standard error of it.
RULES = ("best", "one_standard_error")

# From scores to a choice --------------------------------------------------------------------------


@dataclass(frozen=True)
class HeldOutScoring:
    """How a search scores its fits and chooses one of them.

    Attributes
    ----------
    scorer : callable
        As in scikit-learn: called with an estimator, samples, and targets where there are some.
    params : dict of array
        Further arguments of the scorer, of all samples.
    name : object
        The scoring as the user has given it, for messages.
    rule : {"best", "one_standard_error"}
        The rule of `choose_value`.
    calibration : {"sigmoid", "isotonic"} or None
        How decision values become probabilities for scorers; None means "sigmoid". Other tasks than
        classes do not read it, as survival, whose searches have "held out" here.
    """

    scorer: Any
    params: Settings
    name: Any = None
    rule: str = "best"
    calibration: str | None = None

    def choose(self, fits: PathFits) -> Choice:
        """Return the choice among the fits of a search, or raise if none has a score."""
        scores = self.scores(fits)
        self._require_scores(scores)
        eligible = self._eligible(fits, scores)
        m, i = best_model(fits, eligible, self.rule)
        return Choice(fits, scores, self.rule, m, i)

    def best_value(self, fits: PathFits) -> int | None:
        """Return the number of the best value of the fits of one norm; None without any score."""
        eligible = self._eligible(fits, self.scores(fits))
        if np.isnan(eligible.mean(axis=1)).all():
            return None
        return best_model(fits, eligible, self.rule)[1]

    def scores(self, fits: PathFits) -> Array:
        """Return the scores of all fits; NaN where nothing was tried.

        Probabilities and survival functions are calibrated by the samples that the other folds hold
        out.

        Returns
        -------
        ndarray of shape (norms, folds, Cs)
        """
        problem = fits.problem
        kind = get_tags(problem.model).estimator_type
        method = self.calibration or "sigmoid"
        X = as_given(problem.samples)
        arguments = [self._arguments(X, problem.samples.y, held) for _, held in fits.folds]
        scores = np.full((len(fits.norms), len(fits.folds), len(fits.Cs)), np.nan)
        for m, f, i in np.ndindex(*scores.shape):
            held_out = fits.held_out[m][f][i]
            if held_out is UNTRIED:
                continue
            predictions = HeldOutPredictor(
                kind,
                held_out.predicted,
                fits.whole_outputs(held_out),
                problem.task.classes,
                problem.rule.score,
            )
            calibration = partial(fits.calibration, m, i, method, without=f)
            predictor = problem.task.predictor(predictions, calibration)
            args, params = arguments[f]
            scores[m, f, i] = read_score(self.scorer(predictor, *args, **params), self.scorer)
        return scores

    def _arguments(
        self, X: MatrixLike, y: TargetLike, held: Indices
    ) -> tuple[list[Any], dict[str, AnyArray]]:
        """Return the arguments of the scorer for held-out samples: those by place, those by name.

        By place these are samples, and targets where there are some.
        """
        args = [_safe_indexing(X, held)]
        if y is not None:
            args.append(y[held])
        given_params = {name: value for name, value in self.params.items() if value is not None}
        return args, {name: np.asarray(value)[held] for name, value in given_params.items()}

    def _eligible(self, fits: PathFits, scores: Array) -> Array:
        """Return the scores of the models that may be chosen, NaN of the others.

        Scores of ranks and of probabilities do not penalise a model that never predicts a rare
        class. By such scores, none is chosen whose predictions name fewer classes than those of
        another.
        """
        reads_predictions = getattr(self.scorer, "_response_method", "predict") == "predict"
        has_score = ~np.isnan(scores.mean(axis=1))
        if reads_predictions or not has_score.any():
            return scores
        n_unnamed = unnamed_classes(fits)
        names_fewer = n_unnamed > n_unnamed[has_score].min()
        return np.where(names_fewer[:, np.newaxis], np.nan, scores)

    def _require_scores(self, scores: Array) -> None:
        """Raise unless some value of C has a score in every fold."""
        if not np.all(np.isnan(scores.mean(axis=1))):
            return
        folds_without_scores = np.flatnonzero(np.isnan(scores).all(axis=(0, 2))) + 1
        where = "some fold for every C"
        if len(folds_without_scores):
            where = f"fold {', '.join(map(str, folds_without_scores))}"
        raise ValueError(
            f"scoring={self.name!r} is undefined in {where} (of {scores.shape[1]}), whose"
            " held-out samples may lack a class or an event, or be a single one: use fewer folds"
            " (cv), stratified folds, or another scoring."
        )


def unnamed_classes(fits: PathFits) -> Indices:
    """Return how many classes the predictions of all folds never name, by norm and value.

    Where nothing was tried these are all classes. Of what is no classifier, and of several labels
    per sample, the numbers are zero.
    """
    shape = (len(fits.norms), len(fits.Cs))
    if not fits.problem.predicts_one_class:
        return np.zeros(shape, dtype=int)
    n_unnamed = np.full(shape, len(fits.problem.task.classes))
    for m, i in np.ndindex(*shape):
        held_out_by_fold = fits.at(m, i)
        if not any(held_out is UNTRIED for held_out in held_out_by_fold):
            predicted = np.concatenate([held_out.predicted for held_out in held_out_by_fold])
            n_unnamed[m, i] -= len(np.unique(predicted))
    return n_unnamed


def best_model(fits: PathFits, scores: Array, rule: str) -> tuple[int, int]:
    """Return the numbers of the norm and of the value that a rule chooses.

    Parameters
    ----------
    fits : PathFits
        The fits of a search.
    scores : ndarray of shape (norms, folds, Cs)
        Their scores; NaN for models that must not be chosen.
    rule : str
        A rule of `choose_value`.
    """
    equal_weights = None
    if "uniform" in fits.norms:
        equal_weights = fits.norms.index("uniform")
    return _choose(fits, scores, rule, equal_weights)


def _choose(fits: PathFits, scores: Array, rule: str, equal_weights: int | None) -> tuple[int, int]:
    """Return the choice of `choose_value` for the folds and the tolerance of a search."""
    fold_sizes = np.array([len(held) for _, held in fits.folds])
    return choose_value(
        scores,
        fits.problem.model.tol,
        rule,
        fits.problem.rule.descending,
        fold_sizes,
        equal_weights,
    )


# What was chosen ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """The norm and the value that a search has chosen.

    Attributes
    ----------
    fits : PathFits
        The fits of all folds.
    scores : ndarray of shape (norms, folds, Cs)
        Their scores; NaN where nothing was tried.
    rule : str
        The rule of `choose_value`.
    norm_number, value_number : int
        The numbers of the chosen norm and value.
    """

    fits: PathFits
    scores: Array
    rule: str
    norm_number: int
    value_number: int

    @property
    def norm(self) -> Any:
        """The chosen norm."""
        return self.fits.norms[self.norm_number]

    @property
    def C(self) -> float:
        """The chosen value of C, or of the parameter in its place."""
        return float(self.fits.Cs[self.value_number])

    @property
    def scores_of_norm(self) -> Array:
        """The scores of the chosen norm, of shape (folds, Cs)."""
        scores: Array = self.scores[self.norm_number]
        return scores

    @property
    def scores_by_norm(self) -> dict[Any, Array]:
        """The scores of every norm, of shape (folds, Cs)."""
        return dict(zip(self.fits.norms, self.scores, strict=True))

    @property
    def held_out(self) -> list[HeldOut]:
        """The chosen fit of every fold."""
        return self.fits.at(self.norm_number, self.value_number)

    def weights_by_norm(self) -> dict[Any, Array]:
        """Return the weights of each norm at its best value, averaged over the folds.

        Norms that were not chosen are included because equal weights, where these were chosen, do
        not rank the kernels. Norms without a score are left out.
        """
        weights = {}
        for m, norm in enumerate(self.fits.norms):
            scores = self.scores[m]
            if not np.isnan(scores.mean(axis=0)).all():
                _, i = _choose(self.fits, scores[np.newaxis], self.rule, equal_weights=None)
                weights[norm] = self.fits.mean_weights(m)[i]
        return weights

    def described(self) -> str:
        """Return a sentence on the scores of the chosen norm and of the others."""
        return describe_choice(self.scores_by_norm, self.norm, self.value_number, self.rule)

    def predictions_held_out(self) -> AnyArray:
        """Return the prediction of every sample while it was held out, in the samples' order.

        Folds must hold out every sample once.
        """
        return self._in_order([held_out.predicted for held_out in self.held_out])

    def probabilities_held_out(self, method: str) -> AnyArray:
        """Return the probabilities of every sample while it was held out, in the samples' order.

        They are calibrated by the samples that the other folds hold out. Folds must hold out every
        sample once.
        """
        probabilities = []
        for f, held_out in enumerate(self.held_out):
            calibration = self.calibration(method, without=f)
            probabilities.append(calibration.probabilities(self.fits.whole_outputs(held_out)))
        return self._in_order(probabilities)

    def _in_order(self, values_by_fold: Sequence[AnyArray]) -> AnyArray:
        """Return values of the held-out samples of every fold in the order of the samples."""
        rows = np.concatenate([held for _, held in self.fits.folds])
        return np.concatenate(values_by_fold)[np.argsort(rows)]

    # Fits with the chosen parameters --------------------------------------------------------------

    def calibration(self, method: str, without: int | None = None) -> Any:
        """Return what turns outputs into probabilities, or survival functions.

        It is fitted to the outputs of the chosen fits for the samples held out by all folds, or by
        all but the fold `without`.
        """
        return self.fits.calibration(self.norm_number, self.value_number, method, without)

    def starts(self) -> list[Start] | None:
        """Return starts for the fit to all samples, the means of the folds' fits; None if none."""
        return self.fits.starts(self.norm_number, self.value_number)

    def estimator(self, **params: Any) -> Estimator:
        """Return the model with the chosen parameters, not fitted.

        Other parameters are set as well, as far as the model has them.
        """
        model = self.fits.problem.model
        chosen = norm_settings(model, self.norm) | {self.fits.problem.rule.parameter: self.C}
        own_names = model.get_params(deep=False)
        further = {name: value for name, value in params.items() if name in own_names}
        return with_params(model, **chosen | further)

    def refit(self, method: str | None = None) -> Estimator:
        """Return the chosen estimator fitted to all samples; of a pipeline, a pipeline.

        Parameters
        ----------
        method : {"sigmoid", "isotonic"} or None
            How outputs of held-out samples become probabilities, or survival functions. None leaves
            them to the estimator.
        """
        params: Settings = {}
        calibration = None
        if method is not None:
            params = {"calibration": method}
            calibration = self.calibration(method)
        samples = self.fits.problem.samples
        model, scaled, prepared = self._read(samples, params, prepared=None)
        model.fit_input(scaled, calibration=calibration, starts=self.starts())
        return self._after_steps(prepared, model)

    def refit_in(self, search: Any, samples: FitInput) -> None:
        """Fit the chosen parameters to all samples, and set the fitted attributes of a search.

        Parameters
        ----------
        search : estimator
            The search that keeps the fit; it is itself an estimator of the searched kind.
        samples : FitInput
            All samples, as the search has validated them.
        """
        scaled = search.scaled(samples, self.fits.problem.scale)
        recipe = self.estimator(verbose=search.verbose).recipe(scaled)
        search.keep(fit(recipe, scaled, starts=self.starts(), store=active_store()), scaled)
        if search.calibration:
            search.keep_calibration(self.calibration(search.calibration))

    def conformal(self) -> Conformal | None:
        """Return the chosen estimators of all folds, with the scores of the samples they held out.

        None is returned of what predicts neither targets nor one class of each sample. Samples of
        weight zero have no score, nor have those that a fold with a single class holds out.
        """
        problem = self.fits.problem
        if not problem.predicts_targets_or_class:
            return None
        samples, y = problem.samples, problem.samples.y
        counts: Mask = np.ones(len(y), dtype=bool)
        if samples.weight is not None:
            counts = samples.weight > 0
        X = as_given(samples)
        models, unseen = [], []
        for (train, held), held_out in zip(self.fits.folds, self.held_out, strict=True):
            held = held[counts[held]]
            if held_out.is_trivial or len(held) == 0:
                continue
            training = replace(samples.take(train), original=_safe_indexing(X, train))
            with without_gap_warnings():
                models.append(self._model_of_fold(held_out, training))
            unseen.append((_safe_indexing(X, held), y[held]))
        if not models:
            return None
        return Conformal.of(models, unseen, problem.task.classes)

    def _model_of_fold(self, held_out: HeldOut, training: FitInput) -> Estimator:
        """Return the chosen estimator fitted to the training samples of a fold.

        Parameters
        ----------
        held_out : HeldOut
            The chosen fit of the fold. If the search has stored the fit, it is not repeated.
        training : FitInput
            The training samples of the fold, before the first steps of a pipeline.
        """
        # Conformal prediction reads outputs, which need no calibration.
        params = {"calibration": None, "verbose": False}
        model, scaled, prepared = self._read(training, params, prepared=held_out.prepared)
        stored_fit: Fit | None = held_out.fit
        if stored_fit is None:
            model.fit_input(scaled)
        else:
            model.keep(stored_fit, scaled)
        return self._after_steps(prepared, model)

    def _read(
        self, samples: FitInput, params: Settings, prepared: PreparedFold | None
    ) -> tuple[Any, FitInput, PreparedFold | None]:
        """Return the chosen model with further parameters, and samples as it reads them.

        Parameters
        ----------
        samples : FitInput
            Samples before the first steps of a pipeline.
        params : dict
            Further parameters of the model.
        prepared : PreparedFold or None
            The samples after the first steps; None if these are to be fitted, or there are none.

        Returns
        -------
        model, scaled, prepared
            The model, not fitted; the samples, standardised if the search does that; and the
            samples after the first steps of a pipeline, None without such steps.
        """
        problem = self.fits.problem
        model = self.estimator(**params)
        if problem.steps is not None:
            prepared = prepared or PreparedFold.of(problem.steps, samples)
            X = prepared.X
        elif samples.views is None:
            X = samples.original
        else:
            # Several tables were given: each has its own columns.
            X = StackedViews(samples.original, samples.views)
        validated = model.validated(X, samples.y, samples.weight)
        validated = replace(validated, device=samples.device)
        return model, model.scaled(validated, problem.scale), prepared

    def _after_steps(self, prepared: PreparedFold | None, model: Estimator) -> Estimator:
        """Return a fitted model, in a pipeline after the fitted first steps if there are some."""
        if prepared is None:
            return model
        name = self.fits.problem.estimator.steps[-1][0]
        return type(prepared.steps)([*prepared.steps.steps, (name, model)])


# The rule -----------------------------------------------------------------------------------------


def choose_value(
    scores: Array,
    tol: float,
    rule: str = "best",
    descending: bool = False,
    sizes: Indices | None = None,
    equal_weights: int | None = None,
) -> tuple[int, int]:
    """Return the numbers of the norm and of the value that a search chooses.

    1. Equal weights, if they are among the norms, are kept unless learned ones pay: see
       `learned_weights_pay`. The other steps choose among the norms that this one has left.
    2. Of all scores that tie with the best, the smoothest value is taken; of the norms that tie at
       this value, the first. A plateau of scores, where a larger C changes nothing, thus has one
       choice, whatever the rounding of the scores.
    3. By the rule "one_standard_error", scores that are less than one standard error below the best
       tie with it as well. The standard error is that of the mean over the folds, of the best
       score.

    Parameters
    ----------
    scores : ndarray of shape (norms, folds, values)
        Larger is better; NaN where nothing was tried.
    tol : float
        The tolerance of the fits.
    rule : {"best", "one_standard_error"}
        Whether step 3 is made.
    descending : bool
        Whether large values are smooth.
    sizes : ndarray of shape (folds,), optional
        How many samples each fold holds out.
    equal_weights : int, optional
        Which of the norms is that of equal weights; None if none is.
    """
    check_choice("rule", rule, RULES)
    margin = _distinguishable(scores, tol, sizes)
    if equal_weights is not None and len(scores) > 1:
        is_equal = np.arange(len(scores)) == equal_weights
        left_out = is_equal
        if not learned_weights_pay(scores[~is_equal], scores[equal_weights], margin):
            left_out = ~is_equal
        scores = np.where(left_out[:, np.newaxis, np.newaxis], np.nan, scores)
    means = scores.mean(axis=1)
    m, i = _smoothest(means, margin, margin, descending)
    if rule == "best" or scores.shape[1] == 1:
        return m, i
    error = float(scores[m, :, i].std(ddof=1)) / scores.shape[1] ** 0.5
    below_best = float(np.nanmax(means) - means[m, i])
    return _smoothest(means, max(below_best + error, margin), margin, descending)


def learned_weights_pay(learned: Array, equal: Array, margin: float) -> bool:
    """Return whether learned weights score better than equal ones by more than the folds' noise.

    The best models of both kinds are compared fold by fold: the mean of the differences must be
    larger than its standard error. Both models are scored by the same samples, so that what makes a
    fold hard for both is no noise.

    Parameters
    ----------
    learned : ndarray of shape (norms, folds, values)
        Scores of learned weights; NaN where nothing was tried.
    equal : ndarray of shape (folds, values)
        Scores of equal weights.
    margin : float
        The least difference of two means that distinguishes them.
    """
    learned_means = learned.mean(axis=1)
    equal_means = equal.mean(axis=0)
    if np.isnan(learned_means).all():
        return False
    if np.isnan(equal_means).all():
        return True
    norm, value = np.unravel_index(np.nanargmax(learned_means), learned_means.shape)
    differences = learned[norm, :, value] - equal[:, np.nanargmax(equal_means)]
    error = 0.0
    if len(differences) > 1:
        error = float(differences.std(ddof=1)) / len(differences) ** 0.5
    # Half an error, one, and two were compared. With one kernel per column or cluster of columns
    # and at most 150 rows (36 fits to five real sets) the log-loss is 0.382 with one, 0.383 with
    # equal weights, 0.388 by the best mean. Where one or three of 20 or 54 groups of columns
    # inform, it is 0.634, 0.654 and 0.631. On 40 fits to twenty real sets that none of these had
    # part in (benchmarks/learned_norms.py) it is 0.367, 0.370 and 0.363, 0.364 with half an error;
    # all differences are within two standard errors.
    return float(differences.mean()) > max(error, margin)


def _distinguishable(scores: Array, tol: float, sizes: Indices | None) -> float:
    """Return the least difference of two mean scores that distinguishes two models.

    It is that of the fits' tolerance, and for scores that count samples, half a sample. `scores`
    has the shape (norms, folds, values), `sizes` the numbers of samples that the folds hold out.
    """
    margin = resolution(scores.mean(axis=1), tol)
    if sizes is None:
        return margin
    counts = (scores * np.reshape(sizes, (-1, 1)))[np.isfinite(scores)]
    if np.all(np.abs(counts - np.round(counts)) < 1e-6):
        # All scores are numbers of samples divided by those held out. Of folds of 16 and 17
        # samples, as many right answers differ by less than one sample in their mean.
        return max(margin, 0.5 / (len(sizes) * int(np.max(sizes))))
    return margin


def resolution(means: Array, tol: float) -> float:
    """Return the least difference of two mean scores by which two models are distinguished.

    A fit is certified to a relative gap of `tol`: its objective, and with it the loss that it has
    on samples held out, is known to this fraction and no better. So is the distance of a score from
    the best possible score, 1 for accuracies, R² and concordance, 0 for losses with a minus.
    (Copies of a problem that differ in the last bits of X have R² whose 1 − R² differ by up to
    4 `tol`, relatively.) As outputs that are off by `tol` have a squared error of `tol`², nearly
    perfect scores are known to this fraction of the largest distance, that of a constant model, and
    to rounding.
    """
    best = float(np.nanmax(means))
    ideal = 1.0 if 0.0 < best <= 1.0 else 0.0
    largest = float(np.nanmax(np.abs(ideal - means)))
    if ideal:
        # R² has no lower bound.
        largest = min(largest, 1.0)
    return max(4.0 * tol * abs(ideal - best), max(tol**2, 1e-12) * largest)


def _smoothest(
    means: Array, margin: float, margin_of_norms: float, descending: bool
) -> tuple[int, int]:
    """Return the smoothest value whose mean score ties with the best, and its first norm.

    Parameters
    ----------
    means : ndarray of shape (norms, values)
        Mean scores; NaN where nothing was tried.
    margin : float
        Scores at most this far below the best tie with it.
    margin_of_norms : float
        The same for the scores of the norms at the value that is taken.
    descending : bool
        Whether large values are smooth.

    Returns
    -------
    norm, value : int
        Their numbers.
    """
    tied = means >= np.nanmax(means) - margin
    values = np.flatnonzero(tied.any(axis=0))
    i = int(values[-1 if descending else 0])
    best_of_value = np.nanmax(means[:, i])
    return int(np.argmax(means[:, i] >= best_of_value - margin_of_norms)), i


def describe_choice(
    scores: dict[Any, Array], chosen: Any, value_number: int, rule: str = "best"
) -> str:
    """Return a sentence on the scores of the chosen norm and of the others, each at its best value.

    Scores are means over the folds, with their standard errors.

    Parameters
    ----------
    scores : dict of ndarray of shape (folds, Cs)
        By norm.
    chosen : norm
        The chosen norm.
    value_number : int
        The number of the chosen value.
    rule : str
        The rule of `choose_value`.
    """
    names_of_rules = {"uniform": "equal weights", "loo": "weights by leave-one-out"}

    def figures(norm: Any, i: int) -> str:
        values = scores[norm][:, i]
        error = values.std(ddof=min(1, len(values) - 1)) / len(values) ** 0.5
        name = names_of_rules.get(norm, f"learned weights of norm {norm}")
        return f"{name} {values.mean():.3f} ± {error:.3f}"

    other_means = {norm: values.mean(axis=0) for norm, values in scores.items() if norm != chosen}
    other_figures = [
        figures(norm, int(np.nanargmax(means)))
        for norm, means in other_means.items()
        if not np.isnan(means).all()
    ]
    best_of_chosen = np.nanmax(scores[chosen].mean(axis=0))
    others_score_better = any(np.any(means > best_of_chosen) for means in other_means.values())
    if chosen == "uniform" and others_score_better:
        reason = (
            "is kept, as no learned weights score better over the folds by more than one standard"
            " error"
        )
    elif rule != "best":
        reason = "is within one standard error of the best over the folds"
    else:
        reason = "scored best over the folds"
    sentence = f"{figures(chosen, value_number)} {reason}"
    if other_figures:
        sentence += f"; {', '.join(other_figures)}"
    return sentence
