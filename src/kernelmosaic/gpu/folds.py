"""Paths of all folds followed together on a device, as one batch of problems on the same
matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import hash as content_hash
from sklearn.base import is_classifier

from kernelmosaic._typing import Array, Indices
from kernelmosaic.engine.fit import Fit, Recipe, WeightMethod, training_set
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.tasks import Task
from kernelmosaic.engine.training_set import ExactSet
from kernelmosaic.gpu.paths import learn_paths
from kernelmosaic.gram.normalizing import UnitTrace, Unscaled
from kernelmosaic.gram.stack import make_stack
from kernelmosaic.learning.certificate import Learned
from kernelmosaic.learning.factory import make_learner
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.newton import Newton
from kernelmosaic.machines.base import Machine
from kernelmosaic.solvers.program import Program


@dataclass(frozen=True)
class TogetherFold:
    """One fold: its models, its samples among all, and its kernels.

    Attributes
    ----------
    recipes : list of list of Recipe
        By norm and value.
    tasks : list of list of Task
        Theirs, with the classes of the fold.
    rows, held : ndarray
        The distinct training samples, and those held out, among all samples.
    y : array
        Their targets.
    weight : ndarray
        How much each training sample counts.
    data : ExactSet
        The kernels, fitted to the training samples.
    X : array
        All samples, on the scale of the training samples.
    """

    recipes: list[list[Recipe]]
    tasks: list[list[Task]]
    rows: Indices
    held: Indices
    y: Any
    weight: Array
    data: ExactSet
    X: Any

    @classmethod
    def of(
        cls, paths: Any, given: FitInput, train: Indices, held: Indices, scale: bool
    ) -> TogetherFold | None:
        """Return a fold; None where its fits are not alike enough, or are better taken one by
        one."""
        inside, model = given.take(train), paths[0][0]
        if is_classifier(model) and (inside.y.ndim == 2 or len(np.unique(inside.y)) < 2):
            return None
        X = given.X
        if scale:
            standardizer = inside.standardizer(model.read_kernels(inside.table, inside.views))
            inside, X = replace(inside, X=standardizer(inside.X)), standardizer(X)
        recipes = [[one.recipe(inside) for one in path] for path in paths]
        if not all(_is_served(path[0]) for path in recipes):
            return None
        tasks = [[one.task.prepared(inside) for one in path] for path in recipes]
        data = training_set(recipes[0][0], tasks[0][0], inside)
        lacks = isinstance(X, np.ndarray) and X.dtype.kind == "f" and bool(np.isnan(X).any())
        if type(data) is not ExactSet or data.device is None or lacks:
            return None
        return cls(
            recipes, tasks, train[data.kept], held, inside.y[data.kept], data.weight, data, X
        )

    @property
    def scales(self) -> Array:
        """What every kernel is divided by, where that is one number."""
        return np.array(
            [getattr(one.normalization, "scale_", 1.0) for one in self.data.kernel_set.fitted]
        )

    @property
    def key(self) -> Any:
        """What folds have in common whose matrices are the same up to a factor a kernel."""
        fitted = self.data.kernel_set.fitted
        kernels = [(one.kernel, one.columns) for one in fitted]
        learned = [
            None if isinstance(one.normalization, UnitTrace | Unscaled) else one.normalization
            for one in fitted
        ]
        return content_hash([kernels, learned, self.X])


def follow_together(
    tasks: Sequence[tuple[Any, ...]], record: Callable[..., Any]
) -> list[Any] | None:
    """Return what `follow_paths` does for every fold; None where the fits are better taken one by
    one.

    Folds whose kernels learn nothing of their samples but a factor, such as Gaussians of given
    widths, share the matrices of all samples: the samples held out by a fold have no coefficients
    there. Other folds have matrices of all samples, too, each its own, and the values along a path
    are learned together. What a model says of the samples held out is then at hand.

    Parameters
    ----------
    tasks : sequence of tuples
        Of every fold: paths, the steps of a pipeline, all samples, rows to train on, rows held out,
        whether to scale, and where paths start, which is not read.
    record : callable
        Makes a `HeldOut` of its attributes.
    """
    _, steps, given, *_ = tasks[0]
    if steps is not None or given.device is None:
        return None
    folds = [
        TogetherFold.of(own, given, train, held, scale)
        for own, _, given, train, held, scale, _ in tasks
    ]
    if not all(folds):
        return None
    groups: dict[Any, list[int]] = {}
    every = [fold for fold in folds if fold is not None]
    for f, fold in enumerate(every):
        groups.setdefault(fold.key, []).append(f)
    found: dict[int, Any] = {}
    for members in groups.values():
        held = _follow_group([every[f] for f in members], record)
        if held is None:
            return None
        found |= dict(zip(members, held, strict=True))
    return [found[f] for f in range(len(every))]


def _is_served(recipe: Recipe) -> bool:
    """Whether the weights of a recipe depend on nothing but its problem."""
    method = recipe.method
    if (
        not isinstance(method, WeightMethod)
        or not method.drops_idle
        or recipe.kernels.approximation is not None
    ):
        return False
    parameters = method.parameters
    given = isinstance(parameters.weights, str) and parameters.weights == "loo"
    return not method.fixed and not isinstance(parameters.penalties, str) and not given


def _follow_group(folds: list[TogetherFold], record: Callable[..., Any]) -> list[Any] | None:
    """Follow the paths of folds that share their matrices."""
    data, options = folds[0].data, folds[0].recipes[0][0].kernels
    views = data.kernel_set.views(folds[0].X)
    stack = make_stack(
        data.kernel_set,
        views,
        dtype=options.dtype,
        budget=options.memory_budget,
        device=data.device,
    )
    if stack.matrices is None:
        return None
    removed = np.array([one.normalization.removed for one in data.kernel_set.fitted])
    sizes = data.kernel_set.diagonals(views) + removed[:, np.newaxis]
    by_fold: list[list[Any]] = [[] for _ in folds]
    for p in range(len(folds[0].recipes)):
        columns, learners, each = [], [], []
        for fold in folds:
            factor = folds[0].scales / fold.scales
            machines = [task.machines(fold.y, fold.weight) for task in fold.tasks[p]]
            method = fold.recipes[p][0].method
            assert isinstance(method, WeightMethod)
            learner = make_learner(method.parameters, stack, machines[0])
            if not all(_is_plain(one, machines[0][0]) for at_value in machines for one in at_value):
                return None
            scaled = _on_scale(learner, factor)
            if scaled is None:
                return None
            for c in range(len(machines[0])):
                columns.append(
                    [at_value[c].spread(fold.rows, stack.n_samples) for at_value in machines]
                )
                learners.append(scaled)
            each.append((fold, factor, machines))
        learned = learn_paths(stack, sizes, columns, learners)
        outputs = len(columns) // len(folds)
        for f, (fold, factor, machines) in enumerate(each):
            own = zip(*learned[f * outputs : (f + 1) * outputs], strict=True)
            by_value = zip(fold.recipes[p], fold.tasks[p], machines, own, strict=True)
            by_fold[f].append([record(**_held_out(fold, *one, factor)) for one in by_value])
    return by_fold


def _is_plain(machine: Any, first: Any) -> bool:
    """Whether a machine is a program of one output with targets, with the tube and the total of
    another."""
    if not isinstance(machine, Machine) or type(machine.program) is not Program:
        return False
    like = (machine.program.epsilon, machine.program.total) == (
        first.program.epsilon,
        first.program.total,
    )
    return machine.has_one_output and machine.has_box and machine.has_targets and like


def _on_scale(learner: Any, factor: Array) -> Any:
    """Return the learner for kernels of which a fold's are multiples; None of a learner that is not
    served."""
    if type(learner) is FixedWeights:
        return FixedWeights(learner.weights * factor, learner.options.tol)
    if type(learner) is Newton:
        return Newton(
            replace(learner.options, penalties=learner.options.penalties / np.sqrt(factor))
        )
    return None


def _held_out(
    fold: TogetherFold,
    recipe: Recipe,
    task: Task,
    machines: list[Any],
    learned: Sequence[Learned],
    factor: Array,
) -> dict[str, Any]:
    """Return the attributes of a `HeldOut`: those of the fit of a norm and a value to the fold's
    own kernels."""
    outputs = np.column_stack(
        [one.solution.values[fold.held] + one.solution.intercept for one in learned]
    )
    own = []
    for one in learned:
        solution = one.solution
        solution = replace(
            solution, beta=solution.beta[fold.rows], values=solution.values[fold.rows]
        )
        own.append(replace(one, weights=one.weights / factor, solution=solution))
    fit = Fit(recipe, task, recipe.method, fold.data, machines, None, own).light()
    return {
        "outputs": outputs,
        "predicted": fit.decide(outputs),
        "classes": task.classes,
        "weights": fit.weights,
        "gap": fit.gap,
        "fit": fit,
    }
