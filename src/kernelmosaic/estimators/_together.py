"""Paths of all folds followed together on a device, as one batch of problems on the same matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import hash as content_hash
from numpy.typing import NDArray
from sklearn.base import is_classifier

from kernelmosaic.estimators._input import FitInput, count_samples
from kernelmosaic.estimators._training_set import ExactSet
from kernelmosaic.gram import StoredStack, make_stack
from kernelmosaic.gram.normalizing import UnitTrace, Unscaled
from kernelmosaic.learning import make_learner
from kernelmosaic.learning.batch import learn_paths
from kernelmosaic.learning.certificate import Learned
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.newton import Newton
from kernelmosaic.machines.base import Machine
from kernelmosaic.solvers.program import Program

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class TogetherFold:
    """One fold: its models, its samples among all, and its kernels.

    Attributes
    ----------
    paths : sequence of sequences of estimators
        By norm and value, to be fitted.
    train, rows, held : ndarray
        The training samples, the distinct ones of these, and those held out, among all samples.
    y : array
        Their targets.
    weight : ndarray
        How much each training sample counts.
    data : ExactSet
        The kernels, fitted to the training samples.
    X : array
        All samples, on the scale of the training samples.
    """

    paths: Sequence[Sequence[Any]]
    train: Rows
    rows: Rows
    held: Rows
    y: Any
    weight: Array
    data: ExactSet
    X: Any

    @classmethod
    def of(cls, paths: Any, given: FitInput, train: Rows, held: Rows, scale: bool) -> TogetherFold | None:
        """Return a fold; None where its fits are not alike enough, or are better taken one by one."""
        inside, model = given.take(train), paths[0][0]
        if is_classifier(model) and (inside.y.ndim == 2 or len(np.unique(inside.y)) < 2):
            return None
        X = given.X
        if scale:
            standardizer = inside.standardizer(model._read_kernels())
            inside, X = replace(inside, X=standardizer(inside.X)), standardizer(X)
        model._check_parameters()
        counted = count_samples(None, inside.X, inside.y, inside.weight)
        data = model._training_set(inside, counted)
        lacks = isinstance(X, np.ndarray) and X.dtype.kind == "f" and bool(np.isnan(X).any())
        if type(data) is not ExactSet or data.device is None or lacks:
            return None
        for path in paths:
            for one in path:
                one._prepare(inside)
        return cls(paths, train, train[counted.rows], held, inside.y[counted.rows], counted.weight, data, X)

    @property
    def scales(self) -> Array:
        """What every kernel is divided by, where that is one number."""
        return np.array([getattr(one.normalization, "scale_", 1.0) for one in self.data.kernel_set.fitted])

    @property
    def key(self) -> Any:
        """What folds have in common whose matrices are the same up to a factor a kernel."""
        kernels = [
            (
                one.kernel,
                one.columns,
                None if isinstance(one.normalization, UnitTrace | Unscaled) else one.normalization,
            )
            for one in self.data.kernel_set.fitted
        ]
        return content_hash([kernels, self.X])


def follow_together(tasks: Sequence[tuple[Any, ...]], record: Callable[..., Any]) -> list[Any] | None:
    """Return what `follow_paths` does for every fold; None where the fits are better taken one by one.

    Folds whose kernels learn nothing of their samples but a factor, such as Gaussians of given widths, share the
    matrices of all samples: the samples held out by a fold have no coefficients there. Other folds have matrices of
    all samples, too, each its own, and the values along a path are learned together. What a model says of the samples
    held out is then at hand.

    Parameters
    ----------
    tasks : sequence of tuples
        Of every fold: paths, the steps of a pipeline, all samples, rows to train on, rows held out, whether to scale,
        and where paths start, which is not read.
    record : callable
        Makes a `FoldOutputs` of its attributes.
    """
    paths, steps, given, *_ = tasks[0]
    if steps is not None or given.device is None or not all(map(_is_served, (path[0] for path in paths))):
        return None
    folds = [TogetherFold.of(own, given, train, held, scale) for own, _, given, train, held, scale, _ in tasks]
    if not all(folds):
        return None
    groups: dict[Any, list[Any]] = {}
    for fold in filter(None, folds):
        groups.setdefault(fold.key, []).append(fold)
    found: dict[int, Any] = {}
    for members in groups.values():
        held = _follow_group(members, paths[0][0], record)
        if held is None:
            return None
        found |= {id(fold): one for fold, one in zip(members, held, strict=True)}
    return [found[id(fold)] for fold in folds]


def _is_served(model: Any) -> bool:
    """Whether the weights of a model depend on nothing but its problem."""
    if not model._is_batched or model.approximation is not None or model.fixed_weights:
        return False
    return not isinstance(model.penalties, str) and not (isinstance(model.weights, str) and model.weights == "loo")


def _follow_group(folds: list[TogetherFold], model: Any, record: Callable[..., Any]) -> list[Any] | None:
    """Follow the paths of folds that share their matrices."""
    data, options = folds[0].data, model
    views = data.kernel_set.views(folds[0].X)
    stack = make_stack(
        data.kernel_set, views, dtype=options._stack_dtype, budget=options.memory_budget, device=data.device
    )
    if not isinstance(stack, StoredStack):
        return None
    removed = np.array([one.normalization.removed for one in data.kernel_set.fitted])
    sizes = data.kernel_set.diagonals(views) + removed[:, np.newaxis]
    by_fold: list[list[Any]] = [[] for _ in folds]
    for p in range(len(folds[0].paths)):
        columns, learners, factors = [], [], []
        for fold in folds:
            factor = folds[0].scales / fold.scales
            machines = [model._machines(fold.y, fold.weight) for model in fold.paths[p]]
            learner = make_learner(fold.paths[p][0]._parameters(), stack, machines[0])
            if not all(_is_plain(one, machines[0][0]) for each in machines for one in each):
                return None
            scaled = _on_scale(learner, factor)
            if scaled is None:
                return None
            for c in range(len(machines[0])):
                columns.append([each[c].spread(fold.rows, stack.n_samples) for each in machines])
                learners.append(scaled)
            factors.append(factor)
        learned = learn_paths(stack, sizes, columns, learners)
        outputs = len(columns) // len(folds)
        for f, fold in enumerate(folds):
            own = learned[f * outputs : (f + 1) * outputs]
            by_fold[f].append(
                [
                    record(*_held_out(fold, one, [path[i] for path in own], factors[f]))
                    for i, one in enumerate(fold.paths[p])
                ]
            )
    return by_fold


def _is_plain(machine: Any, first: Any) -> bool:
    """Whether a machine is a program of one output with targets, with the tube and the total of another."""
    if not isinstance(machine, Machine) or type(machine.program) is not Program:
        return False
    like = (machine.program.epsilon, machine.program.total) == (first.program.epsilon, first.program.total)
    return machine.has_one_output and machine.has_box and machine.has_targets and like


def _on_scale(learner: Any, factor: Array) -> Any:
    """Return the learner for kernels of which a fold's are multiples; None of a learner that is not served."""
    if type(learner) is FixedWeights:
        return FixedWeights(learner.weights * factor, learner.options.tol)
    if type(learner) is Newton:
        return Newton(replace(learner.options, penalties=learner.options.penalties / np.sqrt(factor)))
    return None


def _held_out(fold: TogetherFold, model: Any, learned: list[Learned], factor: Array) -> tuple[Any, ...]:
    """Return the attributes of a `FoldOutputs`."""
    outputs = np.column_stack([one.solution.values[fold.held] + one.solution.intercept for one in learned])
    weights = np.array([one.weights / factor for one in learned])
    gap = max(one.gap for one in learned)
    own = weights[0] if len(weights) == 1 else weights
    beta = np.array([one.solution.beta[fold.train] for one in learned])
    return outputs, model._predictions(outputs), getattr(model, "classes_", None), own, gap, None, beta
