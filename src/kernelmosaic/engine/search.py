"""Searches along paths: which norms and values of C are tried, and their fits for all folds.

`search_paths` returns the outputs of all fits for the samples that each fold holds out, as
`PathFits`. It does not score them: how a value is chosen stands in `choice.py`, which hands over
the function that finds the best value of a norm (`PathOptions.best_value`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn import config_context, get_config
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples

from kernelmosaic._checks import warn_caller
from kernelmosaic._typing import (
    Array,
    Estimator,
    Indices,
    MatrixLike,
    SampleWeight,
    TargetLike,
)
from kernelmosaic.backend import NUMPY, allowed_threads, iterate_threads, to_host
from kernelmosaic.engine.fit import spread
from kernelmosaic.engine.paths import (
    UNTRIED,
    HeldOut,
    HeldOutPaths,
    Leads,
    PreparedFold,
    follow_paths,
    norm_settings,
    path_rule,
    predicts_targets,
)
from kernelmosaic.engine.pipelines import divide_pipeline
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.tasks import Labels, PathRule, Task, find_classes
from kernelmosaic.kernels.views import PerColumn, lay_specs, term_names
from kernelmosaic.learning.certificate import Start
from kernelmosaic.learning.norms import make_norm

#: Number of training samples of the smallest fold from which folds are followed on threads. With
#: fewer samples most of the work holds the interpreter's lock. Chosen by hand.
MIN_SAMPLES_FOR_THREADS = 500
#: Fraction of the free memory that the kernels of all folds on threads may take together. Chosen by
#: hand: the fold that is followed first, and the samples, need memory, too.
MEMORY_FRACTION_OF_THREADS = 0.25

# Samples and folds --------------------------------------------------------------------------------


def read_samples(
    estimator: Estimator, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None
) -> FitInput:
    """Return the samples of a search, validated by a copy of its estimator.

    The samples of a pipeline are validated after its first steps, and returned as they were given.
    """
    steps, model = divide_pipeline(estimator)
    prepared = X if steps is None else clone(steps).fit_transform(X, y)
    samples: FitInput = with_params(model).validated(prepared, y, sample_weight)
    if steps is None:
        return samples
    return replace(samples, X=X, original=X)


def read_folds(splits: Iterable[Any], n_samples: int) -> list[tuple[Indices, Indices]]:
    """Return the row numbers of the training and of the held-out samples of every fold, or raise.

    Parameters
    ----------
    splits : iterable of pairs
        Row numbers or masks of the training samples and of those held out, as arrays, lists, tuples
        or series.
    n_samples : int
        How many samples there are.
    """
    folds = []
    for number, (train, held) in enumerate(splits, start=1):
        train_rows = _read_rows(train, n_samples, f"the training samples of fold {number}")
        held_rows = _read_rows(held, n_samples, f"the held-out samples of fold {number}")
        folds.append((train_rows, held_rows))
    if not folds:
        raise ValueError(
            "cv: there is no fold; give at least one pair of the rows to train on and to hold out."
        )
    return folds


def _read_rows(rows: Any, n_samples: int, description: str) -> Indices:
    """Return the numbers of rows that are given as numbers or as a mask, or raise."""
    values = np.asarray(rows)
    if values.ndim != 1 or len(values) == 0 or values.dtype.kind not in "biu":
        raise ValueError(
            f"cv: {description} are {rows!r}; give a list or an array of row numbers, or a mask."
        )
    try:
        row_numbers: Indices = np.arange(n_samples)[values]
    except IndexError as error:
        raise ValueError(
            f"cv: {description} do not fit {n_samples} samples: {error}; give rows of these"
            " samples."
        ) from error
    if len(row_numbers) == 0:
        raise ValueError(f"cv: {description} are none; give a mask that is true somewhere.")
    return row_numbers


def as_given(samples: FitInput) -> Any:
    """Return samples as tables where they were given so, else as the validated array.

    Splitters, scorers and models find columns of tables by their names.
    """
    return samples.original if hasattr(samples.original, "columns") else samples.X


def with_params(model: Estimator, **params: Any) -> Estimator:
    """Return a copy of the model with other parameters, not fitted, which shares its kernels."""
    return type(model)(**{**model.get_params(deep=False), **params})


# What a search is given and returns ---------------------------------------------------------------


@dataclass(frozen=True)
class PathOptions:
    """How paths are followed.

    Attributes
    ----------
    scale : bool
        Whether columns of numbers are standardised, by the training samples of each fold.
    n_jobs : int or None
        The number of folds that are followed at the same time.
    show : callable
        Called with a text on the number of folds done, and with their number.
    near : int or None
        The number of values on both sides of the best one of equal weights at which the other norms
        are tried first, and by which they are extended; None tries all norms at all values. Other
        values than None need "uniform" among the norms.
    best_value : callable or None
        Called with `PathFits` of one norm, returns the number of its best value, or None where no
        value has a score. It is needed with `near` only.
    """

    scale: bool = True
    n_jobs: int | None = None
    show: Callable[[str, int], None] = lambda text, done: None
    near: int | None = None
    best_value: Callable[[PathFits], int | None] | None = None


@dataclass(frozen=True)
class SearchProblem:
    """What is searched, for which samples, and along which values.

    Attributes
    ----------
    estimator : estimator
        As the search was given it; a pipeline, or a model itself.
    model : estimator
        The last step of a pipeline, or the estimator itself, with the seed of all fits; not fitted.
    samples : FitInput
        All samples, before the first steps of a pipeline.
    task : Task
        The model's task with the classes of all samples; with the numbers of the labels where a
        sample may have several.
    folds : list of (ndarray, ndarray)
        Rows of the training samples and of those held out.
    Cs : ndarray of shape (Cs,)
        The values of C, or of the parameter in its place, in ascending order.
    scale : bool
        Whether columns are standardised.
    """

    estimator: Estimator
    model: Any
    samples: FitInput
    task: Task
    folds: list[tuple[Indices, Indices]]
    Cs: Array
    scale: bool

    @classmethod
    def of(
        cls,
        estimator: Estimator,
        samples: FitInput,
        folds: Sequence[Any],
        Cs: Any,
        scale: bool,
    ) -> SearchProblem:
        """Return the problem with one seed for all fits, the classes and the values of C."""
        model = divide_pipeline(estimator)[1]
        random_state = check_random_state(model.get_params(deep=False).get("random_state"))
        # With one seed all fits draw the same landmarks.
        seed = int(random_state.randint(np.iinfo(np.int32).max))
        model = with_params(model, random_state=seed)
        classes = None
        if is_classifier(model) and samples.y.ndim == 2:
            classes = np.arange(samples.y.shape[1])
        elif is_classifier(model):
            classes = find_classes(samples.y, samples.weight, type(model).__name__)
        task = replace(model._task(), classes=classes)
        values = path_rule(model).values(Cs, samples)
        return cls(estimator, model, samples, task, list(folds), values, scale)

    @property
    def rule(self) -> PathRule:
        """The path rule of the model: which parameter is searched, and how.

        The parameter `rule` of a search, by which it chooses among scores, is another rule.
        """
        return path_rule(self.model)

    @property
    def steps(self) -> Any:
        """The steps of a pipeline before the last; None without such steps."""
        return divide_pipeline(self.estimator)[0]

    @property
    def predicts_one_class(self) -> bool:
        """Whether one class of each sample is predicted."""
        return self.task.classes is not None and self.samples.y.ndim == 1

    @property
    def predicts_targets_or_class(self) -> bool:
        """Whether targets themselves are predicted, or one class of each sample."""
        return predicts_targets(self.model) or self.predicts_one_class


@dataclass(frozen=True)
class PathFits:
    """Outputs of the fits of all folds for the samples held out.

    Attributes
    ----------
    problem : SearchProblem
        The estimator, its samples, the folds and the values of C.
    norms : list
        The norms of the weights.
    held_out : list of list of list of HeldOut
        By norm, fold and value.
    """

    problem: SearchProblem
    norms: list[Any]
    held_out: list[HeldOutPaths]

    @property
    def Cs(self) -> Array:
        """The values of C, or of the parameter in its place, in ascending order."""
        return self.problem.Cs

    @property
    def folds(self) -> list[tuple[Indices, Indices]]:
        """Rows of the training samples and of those held out."""
        return self.problem.folds

    def at(self, m: int, i: int) -> list[HeldOut]:
        """Return the fits of all folds with norm number m at value number i."""
        return [path[i] for path in self.held_out[m]]

    def whole_outputs(self, held_out: HeldOut) -> Array:
        """Return the outputs of a fit for the classes of all samples, as scorers read them."""
        if self.problem.predicts_one_class:
            return held_out.aligned(self.problem.task.classes)
        return held_out.outputs

    def calibration(self, m: int, i: int, method: str, without: int | None = None) -> Any:
        """Return what turns outputs into probabilities, or survival functions.

        It is fitted to the outputs of the samples held out by all folds, or by all but the fold
        `without`.
        """
        folds = [f for f in range(len(self.folds)) if f != without]
        outputs = np.concatenate([self.whole_outputs(self.held_out[m][f][i]) for f in folds])
        rows = np.concatenate([self.folds[f][1] for f in folds])
        return self.problem.task.calibrate(outputs, rows, self.problem.samples, method)

    def weights(self, m: int) -> Array:
        """Return the weights of every fold and value with norm number m.

        Returns
        -------
        ndarray of shape (folds, Cs, P), or (folds, Cs, classes, P)
            NaN for classes without training samples, and where nothing was tried or learned.
        """
        paths = self.held_out[m]
        # A fold with fewer than three classes has fewer weights, and one with a single class none.
        fullest = max((held_out.weights for path in paths for held_out in path), key=np.ndim)
        classes = self.problem.task.classes
        shape = fullest.shape
        if fullest.ndim == 2 and classes is not None:
            shape = (len(classes), fullest.shape[1])

        def aligned(held_out: HeldOut) -> Array:
            full = np.full(shape, np.nan)
            if held_out.is_trivial:
                return full
            if fullest.ndim == 2 and classes is not None:
                full[Labels(classes).codes(held_out.classes)] = held_out.weights
            else:
                full[...] = held_out.weights
            return full

        return np.array([[aligned(held_out) for held_out in path] for path in paths])

    def mean_weights(self, m: int) -> Array:
        """Return the weights of every value, averaged over the folds; NaN where none were tried."""
        # The mean of nothing is NaN, of which NumPy warns.
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            return np.asarray(np.nanmean(self.weights(m), axis=0))

    def gaps(self, m: int) -> Array:
        """Return the certified relative duality gaps with norm number m, of shape (folds, Cs)."""
        return np.array([[held_out.gap for held_out in path] for path in self.held_out[m]])

    def all_gaps(self) -> Array:
        """Return the certified relative duality gaps of all fits that were made."""
        fits = (held_out for paths in self.held_out for path in paths for held_out in path)
        return np.array([held_out.gap for held_out in fits if held_out is not UNTRIED])

    def starts(self, m: int, i: int) -> list[Start] | None:
        """Return starts for the fit to all samples: the means of the folds' fits.

        Each coefficient is the mean over the folds that train on its sample. None is returned where
        the fits of the folds cannot be averaged: they have different classes, their coefficients
        are not kept, or they predict neither targets nor one class of each sample.
        """
        fits = self.at(m, i)
        classes = self.problem.task.classes
        if not self.problem.predicts_targets_or_class:
            return None
        if classes is not None and any(
            not np.array_equal(held_out.classes, classes) for held_out in fits
        ):
            return None
        starts_of_folds = []
        for held_out, (train, _) in zip(fits, self.folds, strict=True):
            starts = held_out.starts(len(train))
            if starts is None:
                return None
            starts_of_folds.append(starts)

        n = _num_samples(self.problem.samples.X)
        n_folds_with_sample = np.zeros(n)
        for train, _ in self.folds:
            n_folds_with_sample[train] += 1
        means = []
        for starts_of_machine in zip(*starts_of_folds, strict=True):
            beta_sum: Any = 0.0
            for start, (train, _) in zip(starts_of_machine, self.folds, strict=True):
                beta_sum = beta_sum + spread(np.asarray(start.beta), train, n)
            counts = np.maximum(n_folds_with_sample, 1.0).reshape(n, *[1] * (beta_sum.ndim - 1))
            weights = np.mean([start.weights for start in starts_of_machine], axis=0)
            means.append(Start(weights, beta_sum / counts))
        return means


# The stages of a search ---------------------------------------------------------------------------


def search_paths(
    estimator: Estimator,
    samples: FitInput,
    folds: Sequence[Any],
    Cs: Any,
    norms: Sequence[Any],
    options: PathOptions,
) -> PathFits:
    """Follow the paths of all folds, and return their outputs for the samples held out.

    A fold computes its kernels once for all norms and values that are tried together, with widths,
    scales and normalising of its own training samples, so that its scores are those of a grid
    search, up to the tolerance of the fits. Along the path every fit starts from the weights and
    the coefficients of the one before it; coefficients at a bound move with the bound. The other
    folds start from the weights of the first fold.

    With `near`, the search has stages:

    1. Equal weights are followed along all values. Their best value says at which scale of the
       combined kernel the good models are.
    2. Every other norm is followed at the values around the one at which its equal weights are the
       best model of stage 1: ‖η‖_p = 1 makes equal weights P^(1 − 1/p) times larger than 1/P, which
       a C smaller by the same factor makes up for.
    3. While the best value of a norm is the first or the last of its values, more values are tried
       on that side, so that every norm is scored at a best value of its own.

    Parameters
    ----------
    estimator : estimator
        With a `PathRule`, or a pipeline that ends in one, whose first steps are fitted to every
        fold.
    samples : FitInput
        All samples, as `read_samples` returns them.
    folds : sequence of (ndarray, ndarray)
        Rows of the training samples and of those held out.
    Cs : int or array-like
        The values of the parameter, or how many.
    norms : sequence
        Norms of the weights; None means the estimator's own.
    options : PathOptions
        How the paths are followed.
    """
    search = FoldSearch.of(estimator, samples, folds, Cs, options)
    norms = list(norms)
    if not search.has_several_kernels():
        # A single kernel has nothing to weigh.
        norms = norms[:1]
    for norm in norms:
        search.check_norm(norm)
    n_values, n_folds = len(search.problem.Cs), len(folds)
    near = options.near
    if near is None or len(norms) == 1 or n_values <= 2 * near + 1:
        all_values = search.along(0, n_values)
        stretches = [Stretch.cold(norm, all_values, n_folds) for norm in norms]
        search.follow(stretches, Progress(0, n_folds, n_folds))
        return search.fits_of(norms)

    # Stage 1: equal weights at all values.
    equal_weights = Stretch.cold("uniform", search.along(0, n_values), n_folds)
    search.follow([equal_weights], Progress(0, n_folds, 2 * n_folds))
    best = search.best_value("uniform")
    if best is None:
        # The folds cannot be scored, whatever the norm.
        return search.fits_of(norms)

    # Stage 2: learned weights around the value at which their combined kernel has the scale of that
    # of stage 1.
    learned_norms = [norm for norm in norms if norm != "uniform"]
    windows = {norm: search.window(norm, best, near) for norm in learned_norms}
    stretches = [search.stretch_from_equal_weights(norm, *windows[norm]) for norm in learned_norms]
    search.follow(stretches, Progress(n_folds, n_folds, 2 * n_folds))

    # Stage 3: further values where the best one is at an end.
    open_norms = learned_norms
    while open_norms:
        extended = {norm: search.extend(norm, windows[norm], near) for norm in open_norms}
        open_norms = [norm for norm in open_norms if extended[norm] != windows[norm]]
        stretches = [
            search.stretch_beyond(norm, windows[norm], extended[norm]) for norm in open_norms
        ]
        if stretches:
            search.follow(stretches, Progress(2 * n_folds, 0, 2 * n_folds))
        windows |= extended
    return search.fits_of(norms)


@dataclass(frozen=True)
class Stretch:
    """Values at which the fits of one norm are followed, fold by fold.

    Attributes
    ----------
    norm : norm
        Of the weights.
    numbers : sequence of int
        The numbers of the values, in the order in which they are followed.
    starts : list
        For every fold the starts of its first fit, a list of `Start`, or None.
    """

    norm: Any
    numbers: Sequence[int]
    starts: list[list[Start] | None]

    @classmethod
    def cold(cls, norm: Any, numbers: Sequence[int], n_folds: int) -> Stretch:
        """Return a stretch whose first fits have no starts."""
        return cls(norm, numbers, [None] * n_folds)


@dataclass(frozen=True)
class Progress:
    """The progress of a search as one stage of it is followed.

    Attributes
    ----------
    before : int
        The number of folds that earlier stages have followed.
    by_stage : int
        The number of folds that this stage counts for; zero for stages that may not come.
    in_all : int
        The number of folds that all stages follow.
    """

    before: int
    by_stage: int
    in_all: int

    def after(self, n_done: int, n_folds: int) -> int:
        """Return how many of `n_folds` to show as done after `n_done` folds of the stage."""
        done = self.before + n_done * self.by_stage // n_folds
        return done * n_folds // self.in_all


@dataclass
class FoldSearch:
    """The fits that a search has made so far; `follow` adds to them.

    Attributes
    ----------
    problem : SearchProblem
        The estimator, its samples, the folds and the values of C.
    options : PathOptions
        How the paths are followed.
    held_out : dict from norm to list of list of HeldOut
        By fold and value; `UNTRIED` where no fit was made.
    prepared : list of PreparedFold or None
        By fold, the training samples after the first steps of a pipeline, which all stages read.
    """

    problem: SearchProblem
    options: PathOptions
    held_out: dict[Any, HeldOutPaths]
    prepared: list[PreparedFold | None]

    @classmethod
    def of(
        cls,
        estimator: Estimator,
        samples: FitInput,
        folds: Sequence[Any],
        Cs: Any,
        options: PathOptions,
    ) -> FoldSearch:
        """Return a search without fits."""
        problem = SearchProblem.of(estimator, samples, folds, Cs, bool(options.scale))
        return cls(problem, options, held_out={}, prepared=[None] * len(folds))

    def has_several_kernels(self) -> bool:
        """Return whether there may be more than one kernel."""
        # The columns of a pipeline's samples are known after its first steps only.
        samples = self.problem.samples if self.problem.steps is None else None
        return count_kernels(self.problem.model, samples) > 1

    def check_norm(self, norm: Any) -> None:
        """Raise if the model has no such norm of weights, or weights."""
        settings = norm_settings(self.problem.model, norm)
        if settings.get("norm") is not None:
            make_norm(settings["norm"])

    def along(self, first: int, end: int) -> list[int]:
        """Return the numbers of values from `first` to before `end`, smoothest model first."""
        numbers = list(range(first, end))
        if self.problem.rule.descending:
            numbers.reverse()
        return numbers

    # Fits -----------------------------------------------------------------------------------------

    def follow(self, stretches: Sequence[Stretch], progress: Progress) -> None:
        """Make the fits of stretches, fold by fold, or raise if no fold has two classes."""
        problem = self.problem
        n_folds = len(problem.folds)
        for stretch in stretches:
            self.held_out.setdefault(stretch.norm, self._untried())
        nothing_learned = True
        with self._paths_of_folds(stretches) as paths_of_folds:
            for f, paths in enumerate(paths_of_folds):
                # All fits of a fold have the same training samples, so one shows whether these are
                # of a single class, and has the samples after the first steps of a pipeline.
                nothing_learned = nothing_learned and paths[0][0].is_trivial
                self.prepared[f] = paths[0][0].prepared
                for stretch, path in zip(stretches, paths, strict=True):
                    for number, fit in zip(stretch.numbers, path, strict=True):
                        self.held_out[stretch.norm][f][number] = fit
                n_done = progress.after(f + 1, n_folds)
                self.options.show(f"{n_done} of {n_folds} folds", n_done)
        if nothing_learned:
            raise ValueError("cv: no fold has training samples of two classes; give other folds.")

    def _paths_of_folds(self, stretches: Sequence[Stretch]) -> Any:
        """Return a context of an iterable over the folds' paths, each a list of paths of fits."""
        problem = self.problem
        if problem.samples.device is not None:
            from kernelmosaic.gpu import follow_together

            paths_of_folds = follow_together(list(self._fold_arguments(stretches)), HeldOut)
            if paths_of_folds is not None:
                return nullcontext(paths_of_folds)
        n_threads = 1
        if problem.steps is None:
            n_threads = _spare_threads(problem.model, problem.samples, problem.folds)
        return closing(_run(self._fold_arguments(stretches), self.options.n_jobs, n_threads))

    def _fold_arguments(self, stretches: Sequence[Stretch]) -> Iterator[tuple[Any, ...]]:
        """Yield the arguments of `_follow_fold`, one fold after the other.

        The models of a fold are made as the fold is begun, because they are large.
        """
        problem = self.problem
        plain = problem.model.get_params(deep=False)
        for name, quiet_value in (("verbose", False), ("calibration", None)):
            if name in plain:
                plain[name] = quiet_value
        parameter, kind = problem.rule.parameter, type(problem.model)
        for f, (train, held) in enumerate(problem.folds):
            paths = []
            for stretch in stretches:
                params = plain | norm_settings(problem.model, stretch.norm)
                Cs = problem.Cs[list(stretch.numbers)].tolist()
                paths.append([kind(**params | {parameter: C}) for C in Cs])
            steps = self.prepared[f] or problem.steps
            starts = [stretch.starts[f] for stretch in stretches]
            yield paths, steps, problem.samples, train, held, problem.scale, starts

    def _untried(self) -> HeldOutPaths:
        """Return `UNTRIED` for every fold and value."""
        return [[UNTRIED] * len(self.problem.Cs) for _ in self.problem.folds]

    def fits_of(self, norms: Sequence[Any]) -> PathFits:
        """Return the fits of norms."""
        held_out = [self.held_out.get(norm, self._untried()) for norm in norms]
        return PathFits(self.problem, list(norms), held_out)

    # Values around the best -----------------------------------------------------------------------

    def best_value(self, norm: Any) -> int | None:
        """Return the number of the best value of a norm; None where no value has a score."""
        assert self.options.best_value is not None
        return self.options.best_value(self.fits_of([norm]))

    def window(self, norm: Any, best: int, near: int) -> tuple[int, int]:
        """Return the values at which a norm is tried first, given the best one of equal weights.

        Returns
        -------
        first, end : int
            The number of the first value, and that after the last.
        """
        middle = self._nearest(self.problem.Cs[best] / self._scale_of(norm))
        return max(middle - near, 0), min(middle + near + 1, len(self.problem.Cs))

    def extend(self, norm: Any, window: tuple[int, int], near: int) -> tuple[int, int]:
        """Return a window with more values on the side where the best of its values is an end."""
        first, end = window
        best = self.best_value(norm)
        if best == first:
            return max(first - near, 0), end
        if best == end - 1:
            return first, min(end + near, len(self.problem.Cs))
        return window

    def stretch_from_equal_weights(self, norm: Any, first: int, end: int) -> Stretch:
        """Return the values of a window; their first fits start from equal weights.

        They start at the value of C at which equal weights of sum one make the same problem as
        equal weights of the norm.
        """
        numbers = self.along(first, end)
        equal_number = self._nearest(self.problem.Cs[numbers[0]] * self._scale_of(norm))
        return Stretch(norm, numbers, self._starts("uniform", equal_number, numbers[0]))

    def stretch_beyond(
        self, norm: Any, window: tuple[int, int], extended: tuple[int, int]
    ) -> Stretch:
        """Return the values that are in an extended window only.

        They are followed away from the window, from the fit at its nearest value.
        """
        if extended[0] < window[0]:
            numbers = list(reversed(range(extended[0], window[0])))
            neighbour = window[0]
        else:
            numbers = list(range(window[1], extended[1]))
            neighbour = window[1] - 1
        return Stretch(norm, numbers, self._starts(norm, neighbour, numbers[0]))

    def _starts(self, norm: Any, number: int, next_number: int) -> list[list[Start] | None]:
        """Return for every fold starts at value `next_number`, from its fit at value `number`.

        The weights are those of that fit. The coefficients are multiplied by the ratio of the
        values where the value is C, by which their bounds grow.
        """
        ratio = 1.0
        if self.problem.rule.parameter == "C":
            ratio = float(self.problem.Cs[next_number] / self.problem.Cs[number])
        starts_of_folds: list[list[Start] | None] = []
        for path, (train, _) in zip(self.held_out[norm], self.problem.folds, strict=True):
            starts = path[number].starts(len(train))
            if starts is not None:
                starts = [replace(start, beta=ratio * np.asarray(start.beta)) for start in starts]
            starts_of_folds.append(starts)
        return starts_of_folds

    def _nearest(self, value: float) -> int:
        """Return the number of the value of C that is nearest in ratio."""
        return int(np.argmin(np.abs(np.log(self.problem.Cs) - np.log(value))))

    def _scale_of(self, norm: Any) -> float:
        """Return the sum Σ η of the equal weights of a norm; one where it does not matter.

        It does not matter where no norm is searched, or where the values are not those of C.
        """
        settings = norm_settings(self.problem.model, norm)
        if "norm" not in settings or self.problem.rule.parameter != "C":
            return 1.0
        # Fits to a single class have no weights.
        fits = (held_out for path in self.held_out["uniform"] for held_out in path)
        n_kernels = max(held_out.weights.shape[-1] for held_out in fits if not held_out.is_trivial)
        equal_weights = make_norm(settings["norm"]).start(n_kernels)
        return float(equal_weights.sum())


def count_kernels(model: Any, samples: FitInput | None) -> float:
    """Return how many kernels an estimator weighs; infinity if that depends on unknown columns.

    Parameters
    ----------
    model : estimator
        With kernels.
    samples : FitInput or None
        The samples that it is fitted to; None if they are not known, since the steps of a pipeline
        make them.
    """
    if samples is None:
        entries = model.read_kernels()
    else:
        entries = model.read_kernels(samples.table, samples.views)
    if not any(isinstance(entry.kernel, PerColumn) for entry in entries):
        return len(term_names(entries))
    return np.inf if samples is None else len(lay_specs(entries, samples.table))


# Folds, one after the other or at the same time ---------------------------------------------------


def _run(
    arguments_of_folds: Iterator[Any], n_jobs: int | None, n_threads: int
) -> Generator[HeldOutPaths, None, None]:
    """Yield the paths of every fold, given the arguments of `_follow_fold` for each.

    The first fold is followed before the others, which start from its weights. These run in
    `n_jobs` processes, or with ``n_jobs=None`` on `n_threads` threads.
    """
    first_paths = _follow_fold_quietly(*next(arguments_of_folds))
    yield first_paths
    leads = _leads_of(first_paths)
    if n_jobs is None and effective_n_jobs(None) == 1 and n_threads > 1:
        context, config = copy_context(), get_config()

        def follow(arguments: tuple[Any, ...]) -> HeldOutPaths:
            with config_context(**config):
                return context.copy().run(lambda: _follow_fold(*(*arguments, leads)))

        # All threads share the filters of warnings, so that these are set outside the threads.
        with without_gap_warnings():
            yield from iterate_threads(follow, arguments_of_folds, n_threads)
        return
    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    yield from parallel(
        delayed(_follow_fold_quietly)(*arguments, leads) for arguments in arguments_of_folds
    )


def _leads_of(paths: HeldOutPaths) -> Leads | None:
    """Return the weights and gradients from which other folds start; None if some are missing."""
    leads = []
    for path in paths:
        path_leads = [held_out.lead for held_out in path if held_out.lead is not None]
        if len(path_leads) < len(path):
            return None
        leads.append(path_leads)
    return leads


def _spare_threads(model: Any, samples: FitInput, folds: Sequence[Any]) -> int:
    """Return on how many threads the folds after the first are followed.

    Each thread has one thread of linear algebra. Where there are fewer folds than half of the
    threads, linear algebra makes better use of them, one fold after the other. The kernels of all
    folds that are followed at once must fit into a fraction of the free memory.
    """
    n = min(len(train) for train, _ in folds)
    n_threads = allowed_threads()
    n_other_folds = len(folds) - 1
    if n < MIN_SAMPLES_FOR_THREADS or samples.device is not None:
        return 1
    if n_threads > 2 * n_other_folds:
        return 1
    kernel_bytes = 8.0 * n**2 * count_kernels(model, samples)
    # Four copies of the samples: as given, standardised, in double precision, and centred.
    sample_bytes = 32.0 * n * samples.X.shape[1]
    free_bytes = MEMORY_FRACTION_OF_THREADS * NUMPY.free_bytes()
    budget = min(getattr(model, "memory_budget", None) or np.inf, free_bytes)
    return int(min(n_threads, n_other_folds, budget / (kernel_bytes + sample_bytes)))


#: A context without warnings of gaps: a search warns of all its gaps once.
without_gap_warnings = partial(
    warnings.catch_warnings, action="ignore", category=ConvergenceWarning
)


def _follow_fold_quietly(*arguments: Any) -> HeldOutPaths:
    """Return the paths of a fold as `_follow_fold` does, without warnings of gaps."""
    with without_gap_warnings():
        return _follow_fold(*arguments)


def _follow_fold(
    paths: Sequence[Sequence[Any]],
    steps: Any,
    samples: FitInput,
    train: Indices,
    held: Indices,
    scale: bool,
    starts: Sequence[list[Start] | None],
    leads: Leads | None = None,
) -> HeldOutPaths:
    """Return the outputs of the fits of one fold for the samples that it holds out.

    Parameters
    ----------
    paths : sequence of sequences of estimators
        By path and value of C, not fitted.
    steps : Pipeline, PreparedFold or None
        The first steps of a pipeline; as `PreparedFold` if an earlier stage has fitted them.
    samples : FitInput
        All samples.
    train, held : ndarray
        The rows of the training samples, and of those held out.
    scale : bool
        Whether columns are standardised, by the training samples.
    starts : sequence
        For every path the starts of its first fit, a list of `Start`, or None.
    leads : sequence of sequences of Lead, optional
        Weights and gradients of the same paths in another fold.
    """
    inside, outside = samples.take(train), _safe_indexing(samples.X, held)
    prepared = None
    if steps is not None:
        # The steps learn from the training samples of the fold only.
        prepared = steps if isinstance(steps, PreparedFold) else PreparedFold.of(steps, inside)
        reader = with_params(paths[0][0])
        table, outside = reader.read_parts(prepared.X, prepared.steps.transform(outside))
        inside = replace(inside, X=table, original=to_host(prepared.X))
    if scale:
        entries = paths[0][0].read_kernels(inside.table, inside.views)
        standardizer = inside.standardizer(entries)
        inside = replace(inside, X=standardizer(inside.X))
        outside = standardizer(outside)
    recipes = [[model.recipe(inside) for model in path] for path in paths]
    fits = follow_paths(recipes, inside, outside, leads, starts)
    return [[replace(fit, prepared=prepared) for fit in path] for path in fits]


# Warnings about all fits --------------------------------------------------------------------------


def warn_of_gaps(description: str, gaps: Array, tol: float, remedy: str) -> int:
    """Warn once of all fits whose gap is above `tol`, or is NaN, and return how many these are.

    Parameters
    ----------
    description : str
        What was fitted, with which the warning begins.
    gaps : ndarray
        Relative duality gaps.
    tol : float
        The gap that was asked for.
    remedy : str
        What the warning recommends.
    """
    n_loose = int(np.sum(~(gaps <= tol)))
    if n_loose:
        warn_caller(
            f"{description}: {n_loose} of {len(gaps)} fits stopped above tol={tol:g}, the loosest"
            f" at a relative duality gap of {np.max(gaps):.2g}; {remedy}.",
            ConvergenceWarning,
        )
    return n_loose
