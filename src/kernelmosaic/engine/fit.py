"""Fits as values: recipes and samples in, frozen fits out; nothing else is changed.

`fit` learns, certifies and returns one fit. Searches take its steps one by one: `learn` makes a fit
without a certificate, `follow` a path of fits, each started from the one before it; `certify`
states what several fits prove, from one pass over the entries of the kernels; `outputs` evaluates
the kernels of several fits once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from joblib import effective_n_jobs

from kernelmosaic._typing import AnyArray, Array, Indices, MatrixLike, Settings, TargetLike
from kernelmosaic.backend import map_threads
from kernelmosaic.engine.expansion import Function
from kernelmosaic.engine.samples import DistinctSamples, FitInput, count_samples
from kernelmosaic.engine.tasks import Classes, Novelty, Task
from kernelmosaic.engine.training_set import (
    KernelOptions,
    KernelStore,
    TrainingSet,
    read_training_set,
)
from kernelmosaic.learning.certificate import COLD, Entries, Learned, SharedProducts, Start
from kernelmosaic.learning.factory import Parameters, make_learner
from kernelmosaic.learning.fixed import given_weights
from kernelmosaic.learning.hard_margin import learn_hard_margin
from kernelmosaic.learning.norms import read_fixed
from kernelmosaic.learning.problem import ROUNDING, STALLED, Learner

#: Fraction of the largest weight below which a kernel is left out if the certificate allows it.
#: Chosen by hand.
SMALL_WEIGHT = 0.05
#: Number of products, in doubles, of the fits that are certified together: 128 MiB.
MAX_SHARED_PRODUCTS = 2**24
#: Fraction of another fold's weight that a weight started from it has at least. Chosen by hand: a
#: weight of zero would have to be found again.
MIN_FRACTION_OF_LEAD = 0.1

# How weights are learned --------------------------------------------------------------------------


class Method(ABC):
    """How weights, or gates, are learned for the machines of a task.

    A fit calls, in this order:

    1. `read`, for the training set of validated samples.
    2. `resolved`, for the method as it depends on this training set. Only its result learns.
    3. `learner` and `learn`, for one `Learned` per machine. A search calls these for all fits of a
       fold, which it then certifies together.
    4. `completed`, after the certificate, if there is one.
    5. `pruned`, for a fit on its own that is certified; fits of a path are not pruned.
    6. `coefficients`, `support`, `function` and `attributes`, for what an estimator keeps.
    """

    #: The number of the first iteration in a history.
    first_iteration: ClassVar[int] = 1
    #: Whether an output is Σ_m η_m Σ_i β_i k_m(x, x_i) + b, so that several fits can be evaluated
    #: together.
    is_plain: ClassVar[bool] = True
    #: Whether learning ends with a bound on the optimum, which the fit certifies.
    is_certified: ClassVar[bool] = True

    def read(
        self, recipe: Recipe, task: Task, given: FitInput, store: KernelStore | None
    ) -> tuple[Self, TrainingSet]:
        """Return the method with all that depends on the samples, and their training set."""
        return self, training_set(recipe, task, given, store)

    def resolved(self, task: Task, data: TrainingSet, y: Any) -> Self:
        """Return the method with all that depends on the training set.

        `y` are the targets of its samples.
        """
        return self

    @abstractmethod
    def learner(self, task: Task, data: TrainingSet, machines: Sequence[Any]) -> Any:
        """Return what learns the weights of machines; None where nothing is searched."""

    @abstractmethod
    def learn(
        self, task: Task, data: TrainingSet, machines: list[Any], learner: Any, starts: list[Start]
    ) -> list[Any]:
        """Return what was learned for each machine, from its start."""

    def completed(self, fit: Fit) -> Fit:
        """Return a fit with what the method computes once all is learned.

        The fit is certified, unless the method proves no bound.
        """
        return fit

    def pruned(self, fit: Fit) -> Fit:
        """Return a certified fit without kernels that its certificate does not need.

        It is not called for methods that prove no bound.
        """
        return fit

    def coefficients(self, fit: Fit) -> tuple[Array, Array]:
        """Return β of the distinct samples, of shape (outputs, n), and the outputs' constants."""
        solutions = [learned.solution for learned in fit.learned]
        beta = np.concatenate([np.atleast_2d(solution.beta.T) for solution in solutions])
        intercept = np.concatenate([np.atleast_1d(solution.intercept) for solution in solutions])
        return beta, intercept

    def support(self, fit: Fit) -> Indices:
        """Return the distinct samples with a coefficient, in their own order."""
        return np.flatnonzero(np.any(fit.beta != 0, axis=0))

    @abstractmethod
    def function(self, fit: Fit) -> Function:
        """Return the fitted function."""

    def attributes(self, fit: Fit) -> Settings:
        """Return fitted attributes beside those of every fit."""
        return {}

    def progress(self, fit: Fit) -> Settings:
        """Return the fitted attributes that state what was reached, and how."""
        scales = [machine.objective_scale for machine in fit.machines]
        return history_of(fit.learned, scales, self.first_iteration)

    def warning(self, fit: Fit, max_iter: int) -> str | None:
        """Return a warning, which is to follow the estimator's name; None if the gap is met."""
        loosest = max(fit.learned, key=attrgetter("gap"))
        if loosest.gap <= fit.recipe.tol:
            return None
        if isinstance(fit.task, Novelty) and loosest.gap >= 1.0:
            return (
                ": the optimum is zero to rounding, since the origin lies among the samples, and no"
                " gap relative to it is certified; use kernels such as Gaussian(), whose samples"
                " lie to one side of the origin."
            )
        remedy = fit.learner.stalled
        used_all_iterations = len(loosest.history) >= max_iter
        if used_all_iterations or remedy is None:
            remedy = fit.learner.advice
        elif remedy == ROUNDING and not self._is_hidden_by_rounding(loosest, fit.recipe.tol):
            remedy = loosest.hindrance or STALLED
        return (
            f" stopped at a relative duality gap of {loosest.gap:.2g}, above"
            f" tol={fit.recipe.tol:g}: {remedy}"
        )

    @staticmethod
    def _is_hidden_by_rounding(learned: Learned, tol: float) -> bool:
        """Whether a gap would be within `tol` without what the certificate adds for rounding."""
        unrounded_gap = learned.unrounded_gap
        return unrounded_gap is not None and unrounded_gap <= tol


#: Rules of families by which weights are computed before the machines are solved, by the value of
#: `weights` that names them: the module and the function, which is loaded on first use. The
#: function takes a task, a training set and the targets of its samples. It returns the weights, or
#: None for tasks to which the rule does not apply.
WEIGHT_RULES = {"loo": ("kernelmosaic.ridge.rule", "loo_weights")}


def weights_by_rule(name: str, task: Task, data: TrainingSet, y: Any) -> Array | None:
    """Return the weights that a rule of `WEIGHT_RULES` computes; None if it does not apply."""
    module, function = WEIGHT_RULES[name]
    weights: Array | None = getattr(import_module(module), function)(task, data, y)
    return weights


@dataclass(frozen=True)
class WeightMethod(Method):
    """One weight per kernel, or per class and kernel: given, computed by a rule, or learned.

    Attributes
    ----------
    parameters : Parameters
        Norm, solver, penalties and the like.
    tol : float
        The gap to reach.
    fixed : dict or None
        Fixed weights of kernels or views, by name.
    drops_idle : bool
        Whether small weights are set to zero where the certificate allows it.
    n_jobs : int or None
        The number of machines that are learned at the same time, on threads.
    """

    parameters: Parameters
    tol: float
    fixed: Any = None
    drops_idle: bool = False
    n_jobs: Any = None

    def resolved(self, task: Task, data: TrainingSet, y: Any) -> Self:
        parameters = self.parameters
        if self.fixed:
            parameters = replace(parameters, fixed=read_fixed(self.fixed, *data.names()))
        if isinstance(parameters.weights, str) and parameters.weights in WEIGHT_RULES:
            weights = weights_by_rule(parameters.weights, task, data, y)
            if weights is not None:
                parameters = replace(parameters, weights=weights)
        return replace(self, parameters=parameters)

    def learner(self, task: Task, data: TrainingSet, machines: Sequence[Any]) -> Learner:
        return make_learner(self.parameters, data.stack, machines)

    def learn(
        self, task: Task, data: TrainingSet, machines: list[Any], learner: Any, starts: list[Start]
    ) -> list[Any]:
        if _has_no_slack(task):
            weights = self.parameters.weights
            eta = 1.0 if weights is None else given_weights(weights, data.stack.n_kernels)
            scale = float((data.diagonals().mean(axis=1) * eta).max()) or 1.0
            entries = Entries(data.stack, data.sizes())
            labels = [machine.program.target for machine in machines]
            return [learn_hard_margin(learner, entries, y, scale, self.tol) for y in labels]
        machine_starts = list(zip(machines, starts, strict=True))
        n_threads = workers_of(self.n_jobs, data, 1, self.parameters.verbose)
        if n_threads > 1 and len(machines) > 1:
            return map_threads(
                lambda machine_start: learner.learn(data.stack, *machine_start),
                machine_starts,
                n_threads,
            )
        # One after the other, machines can combine the kernels in the same place.
        return [
            learner.learn(data.stack, machine, replace(start, kernel=data.kernel))
            for machine, start in machine_starts
        ]

    def pruned(self, fit: Fit) -> Fit:
        """Return a certified fit without kernels that its certificate does not need.

        Weights below a fraction of the largest are set to zero, and the machine is solved there. If
        the gap is within `tol` without these kernels, they are left out; if not, the same is tried
        with the smaller half of the weights.
        """
        parameters = self.parameters
        learns_sparse_weights = (
            parameters.norm == 1
            and parameters.weights is None
            and parameters.fixed is None
            and parameters.solver == "newton"
        )
        if not self.drops_idle or not learns_sparse_weights:
            return fit
        if parameters.learns_C or _has_no_slack(fit.task):
            return fit
        pruned = [
            self._without_small_weights(fit, machine, learned)
            for machine, learned in zip(fit.machines, fit.learned, strict=True)
        ]
        return replace(fit, learned=pruned)

    def _without_small_weights(self, fit: Fit, machine: Any, learned: Learned) -> Learned:
        """Return what was learned for a machine, without small weights if the gap stays within tol.

        Parameters
        ----------
        fit : Fit
            The fit of all machines.
        machine : Machine
            One of its machines.
        learned : Learned
            What was learned for this machine.
        """
        # A learner that was succeeded by another one has met a kink of the value, where no step
        # shows what other weights would give.
        if learned.gap > self.tol or learned.weights.ndim > 1 or learned.ended_by is not None:
            return learned
        data, weights = fit.data, learned.weights
        largest = weights.max(initial=0.0)
        small = np.flatnonzero((weights > 0) & (weights < SMALL_WEIGHT * largest))
        small = small[np.argsort(weights[small])]
        # The other weights are moved by one step, which takes two iterations. A machine that needs
        # more steps needs the kernels that were left out.
        learner = type(fit.learner)(replace(fit.learner.options, max_iter=2))
        for idle in (small, small[: len(small) // 2]):
            if len(idle) == 0:
                continue
            other_weights = np.where(np.isin(np.arange(len(weights)), idle), 0.0, weights)
            start = Start(other_weights, learned.solution.beta, machine)
            with data.threads():
                trial: Learned = learner.learn(data.stack, machine, start)
                if self._meets_gap_without(trial, idle):
                    entries = Entries(data.stack, data.sizes())
                    trial = trial.certified(entries, machine, fit.learner)
            if self._meets_gap_without(trial, idle):
                history = [*learned.history, trial.history[-1]]
                n_solves = learned.n_solves + trial.n_solves
                return replace(trial, n_solves=n_solves, history=history)
        return learned

    def _meets_gap_without(self, learned: Learned, kernels: Indices) -> bool:
        """Whether a gap is within `tol` and these kernels have no weight."""
        return learned.gap <= self.tol and not learned.weights[kernels].any()

    def function(self, fit: Fit) -> Function:
        beta, intercept = self.coefficients(fit)
        expansion = fit.data.expansion(beta, fit.support, fit.eta())
        return Function(expansion, intercept, fit.weights.ndim == 1)

    def attributes(self, fit: Fit) -> Settings:
        attributes: Settings = {
            "solver_": self.last_solver(fit.learned),
            "converged_": fit.gap <= self.tol,
        }
        if self.parameters.learns_C:
            attributes["C_"] = np.array([learned.C for learned in fit.learned])
        return attributes

    def last_solver(self, learned: Sequence[Learned]) -> str | None:
        """Return the name of the solver that found the weights; None where they are given."""
        if self.parameters.weights is not None:
            return None
        successors = {result.ended_by for result in learned if result.ended_by is not None}
        return min(successors, default=str(self.parameters.solver))


def _has_no_slack(task: Task) -> bool:
    """Return whether the machines of a task are those of C = ∞."""
    return isinstance(task, Classes) and task.is_hard


def workers_of(n_jobs: Any, data: TrainingSet, default: int, verbose: Any) -> int:
    """Return the number of threads that `n_jobs` stands for.

    Parameters
    ----------
    n_jobs : int or None
        As in scikit-learn.
    data : TrainingSet
        The training set, on which there may be one thread only.
    default : int
        The number that None stands for.
    verbose : bool
        Whether progress is shown, which takes one thread.
    """
    n_threads = default if n_jobs is None else effective_n_jobs(n_jobs)
    if n_threads == 1 or (data.shareable and not verbose):
        return n_threads
    return 1


# Recipes and fits ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """What the parameters of an estimator determine about a fit; it contains no samples.

    Attributes
    ----------
    kernels : KernelOptions
        The kernels and the form in which they are stored.
    method : Method
        How their weights are learned.
    task : Task
        What turns targets into machines, and outputs into predictions.
    tol : float
        The gap to reach.
    verbose : bool
        Whether to print in which form the kernels are stored.
    """

    kernels: KernelOptions
    method: Method
    task: Task
    tol: float
    verbose: bool = False


class Lead(NamedTuple):
    """The weights and gradients of a fit, from which the same fit of another fold can start.

    Attributes
    ----------
    weights : ndarray of shape (P,) or (outputs, P)
        The weights of the fit.
    slopes : list of (ndarray of shape (P,) or None)
        By machine the certified q_m = ½ βᵀK_mβ, minus the gradient of J in the weights; None for
        machines with several outputs.
    have_one_output : list of bool
        By machine whether it has one output. Such a machine has a row of weights of its own where
        there are several machines.
    classes : ndarray or None
        The classes of the fit's samples.
    """

    weights: Array
    slopes: list[Array | None]
    have_one_output: list[bool]
    classes: AnyArray | None


@dataclass(frozen=True)
class Fit:
    """What was learned from a training set, one `Learned` per machine.

    Attributes
    ----------
    recipe : Recipe
        The recipe of the fit.
    task, method : Task, Method
        Those of the recipe, with all that depends on the training set.
    data : TrainingSet
        The samples that count, with their kernels.
    machines : list
        One per output, or one for all.
    learner : Learner or None
        What learned the weights, and states the bound that they prove; None where nothing is
        searched, for which no warning is given.
    learned : list of Learned
        What was learned for each machine.
    has_leads : bool
        Whether it started from another fold's fit. The gradients of some kernels are then computed
        by the certificate only.
    rule : object
        What `Method.completed` has computed, such as a decision rule or the outputs of machines
        without a sample; None of most methods.
    """

    recipe: Recipe
    task: Task
    method: Method
    data: TrainingSet
    machines: list[Any] = field(repr=False)
    learner: Any = field(repr=False)
    learned: list[Any] = field(repr=False)
    has_leads: bool = False
    rule: Any = field(default=None, repr=False)

    @property
    def beta(self) -> Array:
        """Coefficients of the distinct samples, of shape (outputs, n).

        A joint machine has one output per class.
        """
        return self.method.coefficients(self)[0]

    @property
    def support(self) -> Indices:
        """The distinct samples with a coefficient, in the order in which samples were given."""
        support = self.method.support(self)
        return np.asarray(support[np.argsort(self.data.kept[support])])

    @property
    def intercept(self) -> Array:
        """The constants of the outputs."""
        return self.method.coefficients(self)[1]

    @property
    def weights(self) -> Array:
        """The weights, of shape (P,), or (outputs, P) where outputs have their own."""
        if len(self.learned) == 1:
            weights: Array = self.learned[0].weights
            return weights
        return np.array([learned.weights for learned in self.learned])

    @property
    def gap(self) -> float:
        """The largest relative duality gap."""
        return float(max(learned.gap for learned in self.learned))

    @property
    def lead(self) -> Lead:
        """The weights and gradients from which the same fit of another fold can start."""
        have_one_output = [machine.has_one_output for machine in self.machines]
        slopes = []
        for learned, has_one_output in zip(self.learned, have_one_output, strict=True):
            is_known = has_one_output and np.shape(learned.q) == learned.weights.shape
            slopes.append(learned.q if is_known else None)
        return Lead(self.weights, slopes, have_one_output, self.task.classes)

    def eta(self) -> Array:
        """Return the weights of every output, of shape (outputs, P).

        The classes of a joint machine may share their weights.
        """
        eta = np.concatenate([np.atleast_2d(learned.weights) for learned in self.learned])
        return np.broadcast_to(eta, (len(self.beta), eta.shape[1]))

    def starts(self, n: int) -> list[Start]:
        """Return starts for another fit to the same n samples, or to nearly the same.

        Their coefficients are those of all samples, not of the distinct ones only.
        """
        return [
            Start(learned.weights, spread(learned.solution.beta, self.data.kept, n))
            for learned in self.learned
        ]

    def decide(self, outputs: Array) -> Any:
        """Return the predictions of outputs."""
        return self.task.decide(outputs, self.intercept)

    def attributes(self) -> Settings:
        """Return the fitted attributes of an estimator, by name."""
        beta, intercept = self.method.coefficients(self)
        support = self.support
        names, views = self.data.names()
        attributes = {
            "kernel_names_": names,
            "view_names_": views,
            "support_": self.data.kept[support],
            "support_fraction_": len(support) / len(self.data.kept),
            "dual_coef_": coefficients_of(beta, support),
            "intercept_": intercept,
            "weights_": self.weights,
            **self.method.progress(self),
        }
        if self.task.classes is not None:
            attributes["classes_"] = self.task.classes
        return attributes | self.method.attributes(self)

    def light(self) -> Fit:
        """Return the fit without its matrices and starts.

        Its function and its attributes can still be computed.
        """
        learned = [replace(result, start=COLD) for result in self.learned]
        return replace(self, data=self.data.light(), learner=None, learned=learned)


def history_of(learned: Sequence[Any], scales: Sequence[float], first: int = 1) -> Settings:
    """Return the fitted attributes that state objective, gap and iterations, by name.

    Parameters
    ----------
    learned : sequence of Learned
        What was learned for each machine.
    scales : sequence of float
        The factors of the machines' objectives.
    first : int
        The number of the first iteration.
    """
    history = []
    for c, result in enumerate(learned):
        for i, step in enumerate(result.history, start=first):
            line = {"output": c, "iteration": i, **asdict(step)}
            history.append(line | {"objective": scales[c] * step.objective})
    objectives = [scale * result.objective for scale, result in zip(scales, learned, strict=True)]
    return {
        "objective_": float(sum(objectives)),
        "duality_gap_": max(result.gap for result in learned),
        "n_iter_": max(len(result.history) for result in learned) + first - 1,
        "n_solves_": sum(result.n_solves for result in learned),
        "history_": history,
    }


def coefficients_of(beta: Array, support: Indices) -> Array:
    """Return the columns of some samples, without a copy if these are all in their order."""
    if np.array_equal(support, np.arange(beta.shape[-1])):
        return beta
    return beta[..., support]


def spread(beta: Array, rows: Indices, n: int) -> Array:
    """Return coefficients of some rows as coefficients of all n samples, zero for the others."""
    full = np.zeros((n, *beta.shape[1:]))
    full[rows] = beta
    return full


# From recipes to fits -----------------------------------------------------------------------------


def training_set(
    recipe: Recipe, task: Task, given: FitInput, store: KernelStore | None = None
) -> TrainingSet:
    """Return the training set of a recipe, with kernels fitted to the samples that count."""
    options = recipe.kernels
    if task.merges_repeats:
        counted = count_samples(options.approximation, given.X, given.y, given.weight)
    else:
        counted = DistinctSamples.all_of(given.X.shape[0], given.weight)
    y = None if given.y is None else given.y[counted.rows]
    # Parameters of machines that are not allowed are refused before kernels are computed.
    task.machines(y, counted.weight)
    if options.device is not None:
        options = options.placed(len(counted.rows), task.host_samples)
    data = read_training_set(options, given.X, given.original, counted, store)
    task.check(data, options.normalize)
    return data


def fit(
    recipe: Recipe,
    given: FitInput,
    data: TrainingSet | None = None,
    starts: Sequence[Start] | None = None,
    store: KernelStore | None = None,
    weights: Array | None = None,
) -> Fit:
    """Return the certified fit of a recipe to samples, without kernels that are not needed.

    A fit by a method that proves no bound has no certificate, and keeps all kernels.

    Parameters
    ----------
    recipe : Recipe
        The kernels, and how their weights are learned for which machines.
    given : FitInput
        Validated samples.
    data : TrainingSet, optional
        Their training set, if it is made already; the method of the recipe is then one that `read`
        has returned.
    starts : sequence of Start, optional
        One per machine, with coefficients of all samples.
    store : KernelStore, optional
        Holds training sets and starts of earlier fits to the same samples.
    weights : ndarray of shape (P,) or (outputs, P), optional
        Weights from which the machines start, in place of `starts`.
    """
    task = recipe.task.prepared(given)
    if data is None:
        method, data = recipe.method.read(recipe, task, given, store)
        recipe = replace(recipe, method=method)
    if recipe.verbose and data.stack.form:
        print(f"{recipe.task.name}: {data.stack.form}.", flush=True)
    if starts is not None:
        starts = [start.take(data.kept) for start in starts]
    uncertified = learn(recipe, given, data, starts, store, weights, task)
    if not recipe.method.is_certified:
        return recipe.method.completed(uncertified)
    (certified,) = certify([uncertified])
    if store is not None:
        store.keep(data, certified)
    return certified.method.pruned(certified)


def learn(
    recipe: Recipe,
    given: FitInput,
    data: TrainingSet,
    starts: Sequence[Start] | None = None,
    store: KernelStore | None = None,
    weights: Array | None = None,
    prepared: Task | None = None,
) -> Fit:
    """Return a fit to samples whose training set is made, without a certificate.

    The arguments are those of `fit`, except that coefficients of starts are those of the distinct
    samples, and that `prepared` is the task as it depends on the samples, if that is known.
    """
    task = recipe.task.prepared(given) if prepared is None else prepared
    y = targets_of_kept(given, data)
    machines = task.machines(y, data.weight)
    with data.threads():
        method = recipe.method.resolved(task, data, y)
        learner = method.learner(task, data, machines)
    if weights is not None:
        starts = _starts_at(weights, machines)
    if store is not None and recipe.method.is_certified:
        starts = store.starts(data, learner, machines, starts)
    # Starts of other targets may be too few, or too many.
    if starts is None or len(starts) != len(machines):
        starts = [COLD] * len(machines)
    with data.threads():
        learned = method.learn(task, data, machines, learner, list(starts))
    has_leads = any(start.similar_q is not None for start in starts)
    return Fit(recipe, task, method, data, machines, learner, learned, has_leads)


def _starts_at(weights: Array, machines: Sequence[Any]) -> list[Start]:
    """Return starts with given weights, of shape (P,) or (outputs, P), one per machine."""
    rows = np.atleast_2d(weights)
    starts = []
    for c, machine in enumerate(machines):
        has_row = machine.has_one_output and len(rows) == len(machines)
        starts.append(Start(rows[c] if has_row else weights))
    return starts


def targets_of_kept(given: FitInput, data: TrainingSet) -> TargetLike:
    """Return the targets of the samples of a training set, without a copy if these are all."""
    if given.y is None or np.array_equal(data.kept, np.arange(given.X.shape[0])):
        return given.y
    return given.y[data.kept]


def follow(
    recipes: Sequence[Recipe],
    given: FitInput,
    data: TrainingSet,
    leads: Sequence[Lead] = (),
    starts: Sequence[Start] | None = None,
) -> list[Fit]:
    """Return the fits of a path, each started from the one before it, without certificates.

    Parameters
    ----------
    recipes : sequence of Recipe
        The recipes of a path differ in C.
    given : FitInput
        Validated samples.
    data : TrainingSet
        Their training set.
    leads : sequence of Lead
        Weights and gradients of the same path in another fold. Weights differ less between folds
        than between neighbouring values of C.
    starts : sequence of Start, optional
        Starts of the first fit, with coefficients of all samples.
    """
    fits: list[Fit] = []
    next_starts = None
    if starts is not None:
        next_starts = [start.take(data.kept) for start in starts]
    for i, recipe in enumerate(recipes):
        if fits:
            next_starts = [learned.start for learned in fits[-1].learned]
        if leads:
            previous = fits[-1] if fits else None
            next_starts = _led_starts(next_starts, previous, leads[: i + 1])
        fits.append(learn(recipe, given, data, next_starts))
    return fits


def _led_starts(
    starts: Sequence[Start] | None, previous: Fit | None, leads: Sequence[Lead]
) -> list[Start]:
    """Return starts with the weights and gradients of another fold.

    The first fit of a path has the weights of the other fold at the same C. Each later fit has the
    weights of the fit before it, changed by as much as those of the other fold have changed from
    that C to this one.

    Parameters
    ----------
    starts : sequence of Start or None
        Starts of this path, of which the coefficients are taken.
    previous : Fit or None
        The fit before on this path.
    leads : sequence of Lead
        Those of the other fold up to the same C.
    """
    lead = leads[-1]
    weights = lead.weights
    if previous is not None and previous.weights.shape == lead.weights.shape:
        change = lead.weights - leads[-2].weights
        changed = np.maximum(previous.weights + change, MIN_FRACTION_OF_LEAD * lead.weights)
        if np.all(changed.sum(axis=-1) > 0):
            weights = changed
    led_starts = []
    machines = zip(lead.slopes, lead.have_one_output, strict=True)
    for c, (slopes, has_one_output) in enumerate(machines):
        start = COLD if starts is None else starts[c]
        machine_weights = np.atleast_2d(weights)[c] if has_one_output else weights
        led_starts.append(replace(start.with_weights(machine_weights), similar_q=slopes))
    return led_starts


# What fits prove, and what they predict -----------------------------------------------------------


def certify(fits: Sequence[Fit], max_products: int = MAX_SHARED_PRODUCTS) -> list[Fit]:
    """Return the fits with certified objectives and gaps.

    A fit whose gap is within `tol` by its learner's bounds and above it by its certificate is
    learned again in double precision. Plain fits to one training set are certified together:
    entries are computed once for as many of them as have `max_products` numbers (K_mβ)_i at most.
    """
    certified_fits: list[Fit] = []
    for group in _groups(fits, max_products):
        certified_fits += _certified_together(group)
    settled = [_settled(rough, fit) for rough, fit in zip(fits, certified_fits, strict=True)]
    return [fit.method.completed(fit) for fit in settled]


def _certified_together(fits: Sequence[Fit]) -> list[Fit]:
    """Return fits to one training set, with certificates of the machines that have none yet."""
    learned = [machine_fit for fit in fits for machine_fit in fit.learned]
    if all(machine_fit.is_final for machine_fit in learned):
        return list(fits)
    data = fits[0].data
    with data.threads():
        sizes, shared_products = data.sizes(), None
        if len(fits) > 1:
            betas = [machine_fit.solution.beta for machine_fit in learned]
            shared_products = SharedProducts(data.stack, betas)
        entries = Entries(data.stack, sizes, shared_products)
        return [_certified(fit, entries) for fit in fits]


def _certified(fit: Fit, entries: Entries) -> Fit:
    """Return a fit with a certificate of every machine that has none yet."""
    learned = []
    for machine_fit, machine in zip(fit.learned, fit.machines, strict=True):
        if not machine_fit.is_final:
            machine_fit = machine_fit.certified(entries, machine, fit.learner)
        learned.append(machine_fit)
    return replace(fit, learned=learned)


def _groups(fits: Sequence[Fit], max_products: int) -> list[list[Fit]]:
    """Return fits in groups that are certified together, in their order.

    A group has plain fits to one training set, with `max_products` numbers (K_mβ)_i of all kernels,
    samples and columns of β at most, or it is a single fit.
    """
    groups: list[list[Fit]] = []
    free_columns = 0
    for fit in fits:
        stack = fit.data.stack
        is_plain = fit.data.device is None and all(
            type(learned) is Learned for learned in fit.learned
        )
        n_columns = sum(learned.solution.beta[0].size for learned in fit.learned)
        can_join = bool(groups) and is_plain and groups[-1][0].data is fit.data
        if not can_join or free_columns < n_columns:
            groups.append([])
            free_columns = 0
            if is_plain:
                free_columns = max_products // (stack.n_kernels * stack.n_samples)
        groups[-1].append(fit)
        free_columns -= n_columns
    return groups


def _settled(rough: Fit, fit: Fit) -> Fit:
    """Return a certified fit, learned again if only rounding keeps a gap above `tol`.

    That is so if a gap is within `tol` by the learner's bounds and above it by the certificate.
    After leads the fit is learned again with all gradients, else with entries in double precision.

    Parameters
    ----------
    rough : Fit
        The fit before the certificate.
    fit : Fit
        The certified fit.
    """
    tol = fit.recipe.tol
    lost_gap = any(
        certified.gap > tol >= learned.gap
        for certified, learned in zip(fit.learned, rough.learned, strict=True)
    )
    if not lost_gap:
        return fit
    data = fit.data if fit.has_leads else fit.data.in_double()
    if data is None:
        return fit
    learner = fit.method.learner(fit.task, data, fit.machines)
    starts = [learned.start.without_products() for learned in rough.learned]
    with data.threads():
        learned = fit.method.learn(fit.task, data, fit.machines, learner, starts)
    (settled,) = certify(
        [replace(fit, data=data, learner=learner, learned=learned, has_leads=False)]
    )
    return settled


def outputs(fits: Sequence[Fit], X: MatrixLike) -> list[Array]:
    """Return the outputs of every fit for validated samples, each of shape (n, outputs).

    The kernels of plain fits to one training set are evaluated once.
    """
    data = fits[0].data
    if not all(fit.method.is_plain and fit.data.kept is data.kept for fit in fits):
        return [fit.method.function(fit).outputs(X) for fit in fits]
    betas = [fit.beta for fit in fits]
    beta = np.concatenate(betas)
    eta = np.concatenate([fit.eta() for fit in fits])
    support = np.flatnonzero(np.any(beta != 0, axis=0))
    values = data.expansion(beta, support, eta).values(X)
    first_columns = np.cumsum([len(beta_of_fit) for beta_of_fit in betas])[:-1]
    values_by_fit = np.split(values, first_columns, axis=1)
    return [values + fit.intercept for values, fit in zip(values_by_fit, fits, strict=True)]
