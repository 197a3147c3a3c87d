"""Fits along paths of C to the training samples of one fold, and their outputs for those held out.

A path is a sequence of fits to the same samples that differ in C, or in the parameter that an
estimator has in its place. The fits of a path have the same kernels, and each starts from the one
before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone, is_regressor

from kernelmosaic._typing import AnyArray, Array, Estimator, MatrixLike, Settings
from kernelmosaic.engine.calibration import NEVER
from kernelmosaic.engine.fit import Fit, Lead, Recipe, certify, follow, outputs, training_set
from kernelmosaic.engine.pipelines import divide_pipeline
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.tasks import ClassTask, Labels, PathRule, per_class
from kernelmosaic.learning.certificate import Start

# The path of an estimator -------------------------------------------------------------------------


def path_rule(estimator: Estimator) -> PathRule:
    """Return the path rule of an estimator, or raise if it has none.

    The rule of a pipeline is that of its last step.
    """
    model = divide_pipeline(estimator)[1]
    rule: PathRule | None = getattr(model, "path_rule", None)
    if rule is None:
        raise TypeError(
            f"estimator={type(model).__name__}: give an estimator of kernelmosaic with a parameter"
            " C, alpha, kappa or nu, or a pipeline that ends in one; GridSearchCV searches the"
            " parameters of any other."
        )
    return rule


def predicts_targets(estimator: Estimator) -> bool:
    """Return whether predictions are targets themselves, as numbers.

    Predictions of censored times are not: they only order the samples.
    """
    rule: PathRule | None = getattr(divide_pipeline(estimator)[1], "path_rule", None)
    return is_regressor(estimator) and (rule is None or rule.strata is None)


def norm_settings(model: Estimator, norm: Any) -> Settings:
    """Return the parameters that give a model one of the norms of a search, or raise.

    The norm None is the model's own; "uniform" and "loo" are rules for the weights.
    """
    params = model.get_params(deep=False)
    if norm is None:
        return {}
    if isinstance(norm, str) and norm in ("uniform", "loo") and "weights" in params:
        return {"weights": norm}
    if "norm" in params:
        return {"norm": norm, "weights": None}
    if norm == 1 and "weights" in params:
        return {"weights": None}
    allowed = "None alone"
    if "weights" in params:
        allowed = "1, learned, and 'uniform'"
    raise ValueError(f"norms: {type(model).__name__} has the norms {allowed}, not {norm!r}.")


# One fold -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PreparedFold:
    """The training samples of a fold after the first steps of a pipeline.

    Attributes
    ----------
    steps : Pipeline
        The steps, fitted to the training samples. They are kept because steps that draw at random
        would differ after another fit.
    X : array, sparse matrix or data frame
        The training samples as the steps returned them when they were fitted.
    """

    steps: Any
    X: Any

    @classmethod
    def of(cls, steps: Any, samples: FitInput) -> PreparedFold:
        """Return training samples prepared by a copy of the steps, which is fitted to them."""
        fitted_steps = clone(steps)
        return cls(fitted_steps, fitted_steps.fit_transform(samples.X, samples.y))


@dataclass(frozen=True)
class HeldOut:
    """Outputs and predictions of one fit of one fold for its held-out samples.

    Attributes
    ----------
    outputs : ndarray of shape (n_held, outputs)
        Decision values, or predicted targets. There is no column if all training samples have the
        same class. The column of a label that all training samples have, or that none of them has,
        is `NEVER` or −`NEVER`.
    predicted : ndarray of shape (n_held,) or (n_held, targets)
        The predictions.
    classes : ndarray or None
        The classes of the training samples; None of what is no classifier.
    weights : ndarray of shape (P,) or (classes, P)
        The weights of the kernels; NaN, of shape (), where nothing was learned, because all
        training samples have the same class or the same labels.
    gap : float
        The certified relative duality gap.
    fit : Fit or None
        The fit without its matrices; None where more than the coefficients is needed to compute
        its function.
    lead : Lead or None
        The weights and gradients from which the same fit of another fold can start.
    prepared : PreparedFold or None
        The training samples after the first steps of a pipeline; None without such steps.
    """

    outputs: Array
    predicted: AnyArray
    classes: Any
    weights: Array
    gap: float
    fit: Fit | None = None
    lead: Lead | None = None
    prepared: PreparedFold | None = None

    @property
    def is_trivial(self) -> bool:
        """Whether nothing was learned, or nothing tried."""
        return self.weights.ndim == 0

    def starts(self, n: int) -> list[Start] | None:
        """Return starts for another fit to the same n samples; None if the fit is not kept."""
        if self.fit is None:
            return None
        return self.fit.starts(n)

    def aligned(self, classes: AnyArray) -> Array:
        """Return the outputs for the classes of all samples, not only for those of the fold.

        A class without training samples in the fold has the output −`NEVER`, as in scikit-learn's
        ``cross_val_predict``.

        Parameters
        ----------
        classes : ndarray
            The classes of all samples, in order.

        Returns
        -------
        ndarray of shape (n_held,) for two classes, else (n_held, classes)
        """
        n_held = len(self.outputs)
        has_one_class = len(self.classes) == 1
        if len(classes) == 2:
            if has_one_class:
                is_second = self.classes[0] == classes[1]
                return np.full(n_held, NEVER if is_second else -NEVER)
            if self.outputs.shape[1] == 1:
                return self.outputs[:, 0]
            return self.outputs[:, 1] - self.outputs[:, 0]
        if len(self.classes) == len(classes):
            return self.outputs
        fold_outputs = np.zeros((n_held, 1)) if has_one_class else per_class(self.outputs)
        return Labels(classes).spread(fold_outputs, self.classes, -NEVER)


#: Stands for a fit that a search has not made.
UNTRIED = HeldOut(np.empty((0, 0)), np.empty(0), None, np.array(np.nan), np.nan)

#: By path and value.
Recipes = Sequence[Sequence[Recipe]]
Leads = Sequence[Sequence[Lead]]
#: By path and value for one fold, or by fold and value for one norm.
HeldOutPaths = list[list[HeldOut]]
#: By path.
Starts = Sequence[Sequence[Start] | None]


def follow_paths(
    recipes: Recipes,
    inside: FitInput,
    outside: MatrixLike,
    leads: Leads | None = None,
    starts: Starts = (),
) -> HeldOutPaths:
    """Return the outputs of fits along paths to some samples for other samples, held out.

    The recipes must have the same kernels. These are computed once, and the outputs of all fits
    come from one evaluation of them. Each fit of a path starts from the one before it.

    Parameters
    ----------
    recipes : sequence of sequences of Recipe
        By path and value of C.
    inside : FitInput
        The samples to fit to.
    outside : array or sparse matrix
        The samples held out, validated.
    leads : sequence of sequences of Lead, optional
        Weights and gradients of the same paths in another fold. Weights differ less between folds
        than between neighbouring values of C. They are not used if that fold has other classes.
    starts : sequence, optional
        For every path the starts of its first fit, a list of `Start`, or None.

    Returns
    -------
    list of list of HeldOut
        By path and value of C.
    """
    task = recipes[0][0].task
    if not isinstance(task, ClassTask):
        return _follow(recipes, inside, outside, leads, starts)
    if inside.y.ndim == 2 and task.takes_labels:
        return _follow_labels(recipes, inside, outside, leads, starts)
    has_weight = slice(None) if inside.weight is None else inside.weight > 0
    classes = np.unique(inside.y[has_weight])
    if len(classes) == 1:
        return _learn_nothing(recipes, np.repeat(classes, outside.shape[0]), classes)
    if leads is not None and not np.array_equal(np.asarray(leads[0][0].classes), classes):
        leads = None
    return _follow(recipes, inside, outside, leads, starts)


def _follow_labels(
    recipes: Recipes, inside: FitInput, outside: MatrixLike, leads: Leads | None, starts: Starts
) -> HeldOutPaths:
    """Return what `follow_paths` does for classifiers of several labels per sample.

    Labels that are the same for all training samples are left out of the fits and predicted as
    they are.
    """
    varies = np.any(inside.y != inside.y[0], axis=0)
    if varies.all():
        return _follow(recipes, inside, outside, leads, starts)
    if varies.any():
        y = inside.y[:, varies]
        if y.shape[1] == 1:
            # A single label is a problem of two classes.
            y = y[:, 0]
        paths = _follow(recipes, replace(inside, y=y), outside, leads, starts)
    else:
        paths = _learn_nothing(recipes, np.empty((outside.shape[0], 0)), None)
    constant_outputs = np.where(inside.y[0] > 0, NEVER, -NEVER)

    def with_all_labels(held_out: HeldOut) -> HeldOut:
        outputs = np.tile(constant_outputs, (len(held_out.outputs), 1))
        outputs[:, varies] = held_out.outputs
        return replace(
            held_out,
            outputs=outputs,
            predicted=(outputs > 0).astype(int),
            classes=np.arange(len(varies)),
        )

    return [[with_all_labels(held_out) for held_out in path] for path in paths]


def _learn_nothing(recipes: Recipes, predicted: AnyArray, classes: AnyArray | None) -> HeldOutPaths:
    """Return the predictions of fits whose training samples have one class, without weights."""
    outputs = np.empty((len(predicted), 0))
    trivial = HeldOut(outputs, predicted, classes, weights=np.array(np.nan), gap=0.0)
    return [[trivial] * len(path) for path in recipes]


def _follow(
    recipes: Recipes, inside: FitInput, outside: MatrixLike, leads: Leads | None, starts: Starts
) -> HeldOutPaths:
    """Return what `follow_paths` does for samples of which there is something to learn."""
    first = recipes[0][0]
    data = training_set(first, first.task.prepared(inside), inside)
    fits: list[Fit] = []
    for p, path in enumerate(recipes):
        path_leads = () if leads is None else leads[p]
        path_starts = starts[p] if starts else None
        fits += follow(path, inside, data, path_leads, path_starts)

    # All paths are certified and evaluated together, so that kernels are computed once.
    fits = certify(fits)
    held_out = iter(map(_held_out, fits, outputs(fits, outside)))
    return [[next(held_out) for _ in path] for path in recipes]


def _held_out(fit: Fit, values: Array) -> HeldOut:
    """Return a fit's outputs for held-out samples, with what later steps need of the fit."""
    follows_from_coefficients = fit.method.is_plain and fit.rule is None
    return HeldOut(
        values,
        fit.decide(values),
        fit.task.classes,
        fit.weights,
        fit.gap,
        fit=fit.light() if follows_from_coefficients else None,
        lead=fit.lead,
    )
