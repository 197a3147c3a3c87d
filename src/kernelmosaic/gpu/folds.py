"""The paths of all folds of a search, followed together on a device.

`follow_together` reads the folds, groups those that can share their Gram matrices, spreads the
machines of a group over the samples of all of them, hands their paths to `paths.learn_paths`, and
makes of what is learned what `engine/` makes of folds one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from kernelmosaic.gram.stack import MatrixStack, make_stack
from kernelmosaic.learning.certificate import Learned
from kernelmosaic.learning.factory import make_learner
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.newton import Newton
from kernelmosaic.machines.base import Machine
from kernelmosaic.solvers.program import Program

# The folds of a search ----------------------------------------------------------------------------


@dataclass(frozen=True)
class TogetherFold:
    """One fold: its recipes, its samples among all, and its kernels.

    Attributes
    ----------
    recipes : list of list of Recipe
        By norm and value of C.
    tasks : list of list of Task
        The tasks of these recipes, which know the classes of the fold.
    rows, held : ndarray of int
        The distinct training samples, and the held-out samples, among all samples.
    y : array
        The targets of `rows`.
    weight : ndarray
        How much each of `rows` counts.
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
        cls, paths: Any, samples: FitInput, train: Indices, held: Indices, scale: bool
    ) -> TogetherFold | None:
        """Return a fold; None where a batch does not serve its fits.

        Parameters
        ----------
        paths : sequence of sequences of estimators
            By norm and value of C.
        samples : FitInput
            All samples.
        train, held : ndarray of int
            The training samples and the held-out samples.
        scale : bool
            Whether features are standardized by the training samples.
        """
        training_samples = samples.take(train)
        model = paths[0][0]
        if is_classifier(model) and not _has_one_label_of_several(training_samples.y):
            return None

        # 1. All samples on the scale of the training samples.
        X = samples.X
        if scale:
            kernels = model.read_kernels(training_samples.table, training_samples.views)
            standardizer = training_samples.standardizer(kernels)
            training_samples = replace(training_samples, X=standardizer(training_samples.X))
            X = standardizer(X)

        # 2. The recipes and their tasks.
        recipes = [[estimator.recipe(training_samples) for estimator in path] for path in paths]
        if not all(_is_served(path[0]) for path in recipes):
            return None
        tasks = [[recipe.task.prepared(training_samples) for recipe in path] for path in recipes]

        # 3. The kernels, fitted to the training samples.
        data = training_set(recipes[0][0], tasks[0][0], training_samples)
        if type(data) is not ExactSet or data.device is None or _has_missing_values(X):
            return None
        y = training_samples.y[data.kept]
        return cls(recipes, tasks, train[data.kept], held, y, data.weight, data, X)

    @property
    def scales(self) -> Array:
        """What every kernel is divided by, where its normalization is one number; 1 elsewhere."""
        return np.array(
            [getattr(fitted.normalization, "scale_", 1.0) for fitted in self.data.kernel_set.fitted]
        )

    @property
    def key(self) -> Any:
        """A hash that folds share whose Gram matrices differ by one factor per kernel at most."""
        fitted_kernels = self.data.kernel_set.fitted
        kernels = [(fitted.kernel, fitted.columns) for fitted in fitted_kernels]
        normalizations = []
        for fitted in fitted_kernels:
            is_factor = isinstance(fitted.normalization, UnitTrace | Unscaled)
            normalizations.append(None if is_factor else fitted.normalization)
        return content_hash([kernels, normalizations, self.X])


def _has_one_label_of_several(y: Any) -> bool:
    """Whether every sample has one label, and there are two classes or more."""
    return y.ndim != 2 and len(np.unique(y)) >= 2


def _has_missing_values(X: Any) -> bool:
    """Whether a dense array of numbers has NaN."""
    return isinstance(X, np.ndarray) and X.dtype.kind == "f" and bool(np.isnan(X).any())


def _is_served(recipe: Recipe) -> bool:
    """Whether the weights of a recipe follow from its problem alone, with exact kernels."""
    method = recipe.method
    if not isinstance(method, WeightMethod) or not method.drops_idle:
        return False
    if recipe.kernels.approximation is not None:
        return False
    parameters = method.parameters
    is_leave_one_out = isinstance(parameters.weights, str) and parameters.weights == "loo"
    has_named_penalties = isinstance(parameters.penalties, str)
    return not method.fixed and not has_named_penalties and not is_leave_one_out


def follow_together(
    tasks: Sequence[tuple[Any, ...]], record: Callable[..., Any]
) -> list[Any] | None:
    """Return the held-out results of every fold; None where its fits are better made one by one.

    They have the form of `follow_paths`: of each fold, by norm and value of C.

    Folds whose kernels learn nothing of their samples but a factor, such as Gaussians of given
    widths, share the Gram matrices of all samples. The samples that a fold holds out have no
    coefficients in its programs. Every other fold has Gram matrices of all samples for itself, and
    only the values along its paths are learned together. Outputs for held-out samples are rows of
    Kβ in both cases.

    Parameters
    ----------
    tasks : sequence of tuples
        Of every fold: paths of estimators, the steps of a pipeline, all samples, the training rows,
        the held-out rows, whether to scale, and where paths start, which is not used.
    record : callable
        Makes a `HeldOut` of its attributes.
    """
    _, steps, samples, *_ = tasks[0]
    if steps is not None or samples.device is None:
        return None
    folds = []
    for paths, _, fold_samples, train, held, scale, _ in tasks:
        folds.append(TogetherFold.of(paths, fold_samples, train, held, scale))
    served_folds = [fold for fold in folds if fold is not None]
    if len(served_folds) < len(folds):
        return None

    # Folds with the same Gram matrices.
    groups: dict[Any, list[int]] = {}
    for f, fold in enumerate(served_folds):
        groups.setdefault(fold.key, []).append(f)

    results: dict[int, Any] = {}
    for members in groups.values():
        group_results = _follow_group([served_folds[f] for f in members], record)
        if group_results is None:
            return None
        results |= dict(zip(members, group_results, strict=True))
    return [results[f] for f in range(len(served_folds))]


# A group of folds ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoldPath:
    """The problems of one fold and one norm.

    Attributes
    ----------
    fold : TogetherFold
    recipes, tasks : list
        By value of C.
    factor : ndarray of shape (P,)
        The kernels of the fold over those of the stack.
    machines : list of list of Machine
        By value of C and output, on the training samples of the fold.
    learner : FixedWeights or Newton
        That of the kernels of the stack.
    """

    fold: TogetherFold
    recipes: list[Recipe]
    tasks: list[Task]
    factor: Array
    machines: list[list[Any]]
    learner: Any

    @classmethod
    def of(
        cls, fold: TogetherFold, norm: int, scales: Array, stack: MatrixStack
    ) -> FoldPath | None:
        """Return the problems of a fold; None where a batch does not serve them.

        Parameters
        ----------
        fold : TogetherFold
        norm : int
            The number of the norm.
        scales : ndarray of shape (P,)
            What the kernels of the stack are divided by.
        stack : MatrixStack
        """
        recipes = fold.recipes[norm]
        tasks = fold.tasks[norm]
        machines = [task.machines(fold.y, fold.weight) for task in tasks]
        method = recipes[0].method
        assert isinstance(method, WeightMethod)
        learner = make_learner(method.parameters, stack, machines[0])
        first_machine = machines[0][0]
        for machines_of_value in machines:
            if not all(_is_plain(machine, first_machine) for machine in machines_of_value):
                return None
        factor = scales / fold.scales
        scaled_learner = _on_scale(learner, factor)
        if scaled_learner is None:
            return None
        return cls(fold, recipes, tasks, factor, machines, scaled_learner)

    def spread_machines(self, output: int, n_samples: int) -> list[Machine]:
        """Return the machines of one output along C, among the samples of all folds."""
        rows = self.fold.rows
        return [machines[output].spread(rows, n_samples) for machines in self.machines]


def _follow_group(folds: list[TogetherFold], record: Callable[..., Any]) -> list[Any] | None:
    """Return the held-out results of folds that share their Gram matrices, by norm and value.

    None is returned where the matrices do not fit, or a batch does not serve the problems.
    """
    # 1. The Gram matrices of all samples, with the kernels of the first fold.
    first_fold = folds[0]
    kernel_set = first_fold.data.kernel_set
    options = first_fold.recipes[0][0].kernels
    views = kernel_set.views(first_fold.X)
    stack = make_stack(
        kernel_set,
        views,
        dtype=options.dtype,
        budget=options.memory_budget,
        device=first_fold.data.device,
    )
    if stack.matrices is None:
        return None
    removed = np.array([fitted.normalization.removed for fitted in kernel_set.fitted])
    sizes = kernel_set.diagonals(views) + removed[:, np.newaxis]

    # 2. For each norm, one path per fold and output.
    results: list[list[Any]] = [[] for _ in folds]
    for norm in range(len(first_fold.recipes)):
        fold_paths = []
        machine_paths = []
        learners = []
        for fold in folds:
            fold_path = FoldPath.of(fold, norm, first_fold.scales, stack)
            if fold_path is None:
                return None
            fold_paths.append(fold_path)
            for output in range(len(fold_path.machines[0])):
                machine_paths.append(fold_path.spread_machines(output, stack.n_samples))
                learners.append(fold_path.learner)
        learned = learn_paths(stack, sizes, machine_paths, learners)

        # 3. What is learned, fold by fold.
        n_outputs = len(machine_paths) // len(folds)
        for f, fold_path in enumerate(fold_paths):
            learned_by_output = learned[f * n_outputs : (f + 1) * n_outputs]
            held_out = _held_out(fold_path, zip(*learned_by_output, strict=True))
            results[f].append([record(**attributes) for attributes in held_out])
    return results


def _is_plain(machine: Any, first: Any) -> bool:
    """Whether a machine is a program of one output that can share a batch with the first one."""
    if not isinstance(machine, Machine) or type(machine.program) is not Program:
        return False
    has_same_tube = machine.program.epsilon == first.program.epsilon
    has_same_total = machine.program.total == first.program.total
    is_program_of_targets = machine.has_one_output and machine.has_box and machine.has_targets
    return is_program_of_targets and has_same_tube and has_same_total


def _on_scale(learner: Any, factor: Array) -> Any:
    """Return the learner for the kernels of the stack; None where a batch does not serve it.

    Parameters
    ----------
    learner : Learner
        That of a fold.
    factor : ndarray of shape (P,)
        The kernels of the fold over those of the stack: weights of the stack are `factor` times
        those of the fold, and penalties, which weights have the inverse square of, are divided by
        its root.
    """
    if type(learner) is FixedWeights:
        return FixedWeights(learner.weights * factor, learner.options.tol)
    if type(learner) is Newton:
        penalties = learner.options.penalties / np.sqrt(factor)
        return Newton(replace(learner.options, penalties=penalties))
    return None


def _held_out(
    fold_path: FoldPath, learned_by_value: Iterable[tuple[Learned, ...]]
) -> list[dict[str, Any]]:
    """Return the attributes of the `HeldOut` of every value of C.

    Each holds a fit to the fold's own kernels and training samples.

    Parameters
    ----------
    fold_path : FoldPath
    learned_by_value : iterable of tuples of Learned
        What is learned, by value of C and output, for the kernels of the stack and all samples.
    """
    fold = fold_path.fold
    results = []
    for recipe, task, machines, learned_outputs in zip(
        fold_path.recipes, fold_path.tasks, fold_path.machines, learned_by_value, strict=True
    ):
        solutions = [learned.solution for learned in learned_outputs]
        outputs = np.column_stack(
            [solution.values[fold.held] + solution.intercept for solution in solutions]
        )
        learned_of_fold = []
        for learned in learned_outputs:
            beta = learned.solution.beta[fold.rows]
            values = learned.solution.values[fold.rows]
            solution = replace(learned.solution, beta=beta, values=values)
            weights = learned.weights / fold_path.factor
            learned_of_fold.append(replace(learned, weights=weights, solution=solution))
        fit = Fit(recipe, task, recipe.method, fold.data, machines, None, learned_of_fold).light()
        results.append(
            {
                "outputs": outputs,
                "predicted": fit.decide(outputs),
                "classes": task.classes,
                "weights": fit.weights,
                "gap": fit.gap,
                "fit": fit,
            }
        )
    return results
