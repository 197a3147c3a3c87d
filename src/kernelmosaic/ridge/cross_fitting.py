"""Leave-one-out residuals by weights that had not seen the sample, and the strength of the prior.

The leave-one-out error of a least-squares machine is exact for fixed weights. For weights that
minimise it, it is a training error: with many kernels and few samples it can be driven to zero on
noise. Here weights are learned without each fold of the samples in turn. The machine of all samples
with those weights gives the leave-one-out residuals of the fold. So the target of a sample affects
neither the machine nor the weights of the output that is compared with it.

`cross_fit` does this for several candidates: criteria with their priors. `choose` takes one of
them. `StrengthRule` says how strong a prior the kernels need.

Reference: the cross-fitting of Chernozhukov et al. (2018), Econometrics Journal 21, C1, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelmosaic._typing import Array, Indices
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.gram.row_blocks import Rows
from kernelmosaic.gram.stack import MatrixStack
from kernelmosaic.ridge import tuning
from kernelmosaic.ridge.learning import (
    DEFAULTS,
    RidgeLearned,
    RidgeOptions,
    RidgeSearch,
    RidgeStart,
    RidgeTargets,
    learn_ridge,
    make_ridge_problem,
    search_ridge,
)
from kernelmosaic.row_order import deal_into_folds
from kernelmosaic.solvers.least_squares import RidgePoint


@dataclass(frozen=True)
class StrengthRule:
    """The strength of the prior on log weights, by the kernels and the number of samples.

    The strength is ``least · (m / base)^power``, between `least` and `most`, where m is the
    effective number of kernels. It falls again if there are more than `rows_per_kernel` samples for
    each of the P kernels. The figures were chosen on 407 tasks of 20 to 150 kernels and 40 to 500
    samples, and confirmed on 94 others with several tables or sources (docs/methods.md, "Few
    samples and many kernels").

    Attributes
    ----------
    least, most : float
        Nats per squared unit of log η: 0.2 serves kernels of one table, 2 serves kernels of
        different columns.
    base, power : float
        The effective number up to which `least` serves, and how steeply the strength rises from
        there. The number is 1.1 to 1.7 for twenty kernels of one table; the strength is `most` from
        about 2.7.
    rows_per_kernel : float
        Samples, or groups of samples, for each kernel, above which the data need less of a prior.
    evidence_from, evidence_prior : float
        The evidence is tried beside the leave-one-out error if the strength is above
        `evidence_from`. Its own prior is at most `evidence_prior`, since the evidence penalises
        complex models by itself.
    gain_classes, gain_numbers : float
        The evidence is chosen if its cross-fitted loss is lower by so many nats: a smaller gain is
        chance.
    most_seen_share : float
        Weights of a fold are a little worse than those of all samples, and their outputs need a
        smaller scale. Therefore outputs by weights that have seen the sample enter the calibration,
        too, with this fraction of the weight if the strength is `least`. If it is `most`, these
        outputs fit the sample too well, and the fraction is zero.
    """

    least: float = 0.2
    most: float = 2.0
    base: float = 1.5
    power: float = 4.0
    rows_per_kernel: float = 15.0
    evidence_from: float = 0.6
    evidence_prior: float = 0.6
    gain_classes: float = 4.0
    gain_numbers: float = 2.0
    most_seen_share: float = 0.75

    def strength(self, n_effective: float, n_kernels: int, n_units: int) -> float:
        """Return the strength of the prior on log weights, in nats per squared unit."""
        by_kernels = self.least * (n_effective / self.base) ** self.power
        by_samples = self.rows_per_kernel * n_kernels / n_units
        return float(max(self.least, min(by_kernels, self.most) * min(1.0, by_samples)))

    def seen_share(self, strength: float, is_given: bool) -> float:
        """Return the fraction of the calibration for outputs by weights that have seen the sample.

        Parameters
        ----------
        strength : float
            That of the prior on log weights.
        is_given : bool
            Whether the user gave the strength.
        """
        if is_given:
            return 0.0
        excess = (strength - self.least) / (self.most - self.least)
        return self.most_seen_share * max(1.0 - excess, 0.0)

    def gain(self, targets: RidgeTargets) -> float:
        """Return by how many nats the cross-fitted loss of the evidence has to be lower."""
        return self.gain_numbers if targets.labels is None else self.gain_classes


@dataclass(frozen=True)
class FoldOptions:
    """Folds, and the accuracy of their fits.

    Attributes
    ----------
    n_folds : int
        Number of parts of the samples, each judged by weights learned from the others.
    rows_per_parameter : float
        Samples, or groups, for each weight that is learned, from which on no folds are needed:
        weights that saw a sample judge it as others would. Chosen by hand.
    alignment_rows : int
        Largest number of samples that the effective number of kernels is computed from. Chosen by
        hand.
    alignment_entries : float
        Largest number of entries of all their matrices together: 16 MiB in single precision.
    tol : float
        The stationarity at which the search for the weights of a fold stops: its weights judge
        samples, and are not those of the model. Chosen by hand.
    """

    n_folds: int = 5
    rows_per_parameter: float = 50.0
    alignment_rows: int = 200
    alignment_entries: float = 2.0**22
    tol: float = 3e-3


#: Return the search for weights of (kernels, targets, options, start).
Search = Callable[
    [MatrixStack | FeatureStack, RidgeTargets, RidgeOptions, RidgeLearned | RidgeStart | None],
    RidgeSearch,
]

RULE = StrengthRule()
FOLDS = FoldOptions()


@dataclass(frozen=True)
class Fold:
    """Samples that are judged, and the samples that the weights for them are learned from.

    Attributes
    ----------
    learned_from : ndarray
        Ascending numbers of the samples that the weights are learned from.
    judged : ndarray
        Numbers of the samples that are judged; none is in both.
    """

    learned_from: Indices
    judged: Indices


@dataclass(frozen=True)
class CrossFitted:
    """Leave-one-out residuals by weights that had not seen the sample.

    Attributes
    ----------
    residuals : ndarray of shape (n, c)
        In the units of `RidgeTargets.Y`.
    loss : float
        Their loss in nats, at the best scale of the outputs.
    middle : RidgeStart
        The geometric means of the parameters learned without each fold: close to those of all
        samples, whose search starts there.
    """

    residuals: Array
    loss: float
    middle: RidgeStart


def effective_number(stack: MatrixStack | FeatureStack, order: Indices) -> float:
    """Return the effective number of kernels, (Σ λ)² / Σ λ².

    λ are the eigenvalues of the matrix of centred alignments of all kernels. The number is one if
    all kernels are the same up to a factor and a constant, and P if any two are orthogonal. The
    targets have no part in it.

    Parameters
    ----------
    stack : MatrixStack or FeatureStack
        The kernels, which are compared on at most `FoldOptions.alignment_rows` samples.
    order : ndarray of shape (n,)
        The samples in an order that does not depend on how they are numbered.

    References
    ----------
    Cortes, Mohri and Rostamizadeh (2012), Journal of Machine Learning Research 13, 795, on centred
    alignment.
    """
    most_rows = min(FOLDS.alignment_rows, int(np.sqrt(FOLDS.alignment_entries / stack.n_kernels)))
    n = min(len(order), max(most_rows, 2))
    rows: Rows = slice(0, n)
    if n < len(order):
        rows = np.sort(order[np.linspace(0, len(order) - 1, n).astype(np.intp)])
    # One row per kernel: its centred matrix, of norm one.
    flat = np.empty((stack.n_kernels, n * n), dtype=np.float32)
    for m, block in stack.blocks(range(stack.n_kernels), rows, rows):
        centred = np.array(block, dtype=np.float64)
        means = centred.mean(axis=0)
        centred -= means
        centred -= (means - means.mean())[:, np.newaxis]
        norm = float(np.linalg.norm(centred))
        # Of a constant kernel only rounding is left; it is aligned with none.
        unit = tuning.ROUNDINGS_OF_CONSTANT * n * np.finfo(np.float64).eps
        is_constant = norm <= unit * float(np.abs(means).max())
        factor = 1.0 / norm if norm > 0 and not is_constant else 0.0
        flat[m] = centred.reshape(-1) * factor
    alignments = np.asarray(flat @ flat.T, dtype=np.float64)
    # Σ λ is the trace, and Σ λ² the sum of all squares.
    total = float(np.trace(alignments))
    return total**2 / float(np.sum(alignments**2)) if total > 0 else 1.0


def make_folds(targets: RidgeTargets, most_rows: int | None = None) -> list[Fold]:
    """Return folds that have equal fractions of every class, or of small and large numbers.

    Groups stay together. If one group has nearly all samples, the few others are a fold alone, and
    the large group is judged by weights that are learned from these few: by little but the priors.

    Parameters
    ----------
    targets : RidgeTargets
        The samples.
    most_rows : int, optional
        Largest number of samples of other folds that the weights of a fold are learned from.
    """
    values = targets.Y[:, 0] if targets.labels is None else targets.labels
    n_folds = min(FOLDS.n_folds, targets.n_units)
    fold_of_row = deal_into_folds(targets.content_order, n_folds, values, targets.group_numbers)
    folds = []
    for k in range(n_folds):
        learned_from = np.flatnonzero(fold_of_row != k)
        if most_rows is not None and len(learned_from) > most_rows:
            spread = targets.take(learned_from).spread(most_rows)
            learned_from = learned_from[spread]
        folds.append(Fold(learned_from, np.flatnonzero(fold_of_row == k)))
    return folds


def needs_folds(n_units: int, n_parameters: int) -> bool:
    """Return whether parameters fit their samples so closely that folds have to judge them.

    Parameters
    ----------
    n_units : int
        Samples, or groups of samples, that the parameters are learned from.
    n_parameters : int
        Weights and widths that are learned.
    """
    return n_units < FOLDS.rows_per_parameter * n_parameters


def cross_fit(
    targets: RidgeTargets,
    folds: Sequence[Fold],
    tried: Sequence[RidgeOptions],
    search: Search,
    stack_for: Callable[[Fold], tuple[MatrixStack | FeatureStack, RidgeLearned | None]],
) -> list[CrossFitted]:
    """Return, for every candidate, leave-one-out residuals by weights learned without the fold.

    The first fold finds the best of several ridges to start from; the others start there.

    Parameters
    ----------
    targets : RidgeTargets
        Targets, weights and groups of all samples.
    folds : sequence of Fold
        Every sample of positive weight is judged in one of them.
    tried : sequence of RidgeOptions
        The candidates.
    search : callable
        Returns the search for the weights of the kernels and targets of a fold, with the options of
        a candidate, from a start.
    stack_for : callable
        Returns, for a fold, the kernels of all samples, and the fit from which the search with
        their widths starts, or None.
    """
    starts: list[RidgeStart | None] = [None] * len(tried)
    residuals = [np.empty_like(targets.Y) for _ in tried]
    points: list[list[RidgePoint]] = [[] for _ in tried]
    for fold in folds:
        stack, learned_with_widths = stack_for(fold)
        fold_stack = stack_of(stack, fold.learned_from)
        fold_targets = targets_of(targets, fold.learned_from)
        for k, candidate in enumerate(tried):
            options = replace(candidate, tol=max(candidate.tol, FOLDS.tol))
            start = starts[k] if learned_with_widths is None else learned_with_widths
            result = search(fold_stack, fold_targets, options, start)
            starts[k] = result.first
            points[k].append(result.point)
            problem = make_ridge_problem(stack, targets, {}, options)
            left_out = problem.form.residuals_left_out(result.point)
            residuals[k][fold.judged] = left_out[fold.judged]

    fits = []
    for k in range(len(tried)):
        loss = left_out_loss(targets, residuals[k])
        fits.append(CrossFitted(residuals[k], loss, middle_of(points[k])))
    return fits


def middle_of(points: Sequence[RidgePoint]) -> RidgeStart:
    """Return the geometric means of weights, ridges and scales."""
    weights = np.exp(np.mean([np.log(point.weights) for point in points], axis=0))
    alpha = np.exp(np.mean([np.log(point.alpha) for point in points]))
    scale = np.exp(np.mean([np.log(point.scale) for point in points]))
    return RidgeStart(weights, float(alpha), float(scale))


def left_out_loss(targets: RidgeTargets, residuals: Array) -> float:
    """Return the loss of residuals in nats.

    The loss of classes is that at the scale of the outputs that makes it least.
    """
    scale = targets.best_scale(residuals, 1.0, DEFAULTS.scale_prior)
    return targets.loss(residuals, scale)[0]


def candidates(
    options: RidgeOptions,
    criterion: str,
    strength: float,
    is_given: bool,
    rule: StrengthRule = RULE,
) -> list[RidgeOptions]:
    """Return the criteria that are tried, with their priors.

    The first is taken unless another is clearly better; see `choose`.

    Parameters
    ----------
    options : RidgeOptions
        All but criterion and prior.
    criterion : {"auto", "loo", "evidence"}
        With "auto" the leave-one-out error, and the evidence if the prior is strong.
    strength : float
        Strength of the prior on log weights.
    is_given : bool
        Whether the user gave the strength. The evidence then takes it, too, without a limit.
    rule : StrengthRule
        From which strength on the evidence is tried, and its largest strength.
    """
    left_out = replace(options, criterion="loo", weight_prior=strength)
    evidence_strength = strength if is_given else min(strength, rule.evidence_prior)
    by_evidence = replace(options, criterion="evidence", weight_prior=evidence_strength)
    if criterion == "evidence":
        return [by_evidence]
    if criterion == "loo" or strength <= rule.evidence_from:
        return [left_out]
    return [left_out, by_evidence]


def choose(fits: Sequence[CrossFitted], least_gain: float) -> int:
    """Return the number of the best fit, or zero if it gains no more than `least_gain` nats.

    The gain is that in the loss over the first fit.
    """
    best = int(np.argmin([fit.loss for fit in fits]))
    return best if fits[0].loss - fits[best].loss > least_gain else 0


def learn_weights(
    stack: MatrixStack | FeatureStack, targets: RidgeTargets, options: RidgeOptions = DEFAULTS
) -> RidgeLearned:
    """Return the machine by the criterion and the prior that suit the kernels and the samples.

    Parameters
    ----------
    stack : MatrixStack or FeatureStack
        The kernels.
    targets : RidgeTargets
        The targets.
    options : RidgeOptions
        All but criterion and prior.
    """
    n_effective = effective_number(stack, targets.content_order)
    strength = RULE.strength(n_effective, stack.n_kernels, targets.n_units)
    criterion = "auto" if stack.can_be_factorised else "loo"
    tried = candidates(options, criterion, strength, False)
    needs_choice = len(tried) > 1 and needs_folds(targets.n_units, stack.n_kernels)
    folds = make_folds(targets) if needs_choice else []
    if not folds:
        return learn_ridge(stack, targets, start=None, options=tried[0])

    def search(
        fold_stack: MatrixStack | FeatureStack,
        fold_targets: RidgeTargets,
        fold_options: RidgeOptions,
        start: RidgeLearned | RidgeStart | None,
    ) -> RidgeSearch:
        return search_ridge(fold_stack, fold_targets, options=fold_options, start=start)

    fits = cross_fit(targets, folds, tried, search, lambda fold: (stack, None))
    chosen = choose(fits, RULE.gain(targets))
    return learn_ridge(stack, targets, start=fits[chosen].middle, options=tried[chosen])


def stack_of(stack: MatrixStack | FeatureStack, rows: Indices) -> MatrixStack | FeatureStack:
    """Return the kernels between some samples, in the form of the stack."""
    return stack.stored_part(rows)


def targets_of(targets: RidgeTargets, rows: Indices) -> RidgeTargets:
    """Return the targets of some samples.

    If they are all of one group, every sample is left out alone.
    """
    subset = targets.take(rows)
    is_one_group = subset.groups is not None and len(subset.groups) < 2
    return replace(subset, groups=None) if is_one_group else subset
