"""Fits as values: a recipe and samples go in, a frozen `Fit` comes out; nothing else changes on the
way.

`fit` learns, certifies and returns one fit; `learn` does the first step alone, `follow` a path of
them, each from where the one before ended; `certify` states what several fits prove, from one pass
over the entries; `outputs` evaluates the kernels of several fits once.
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

# Parameters of a fit ------------------------------------------------------------------------------


class Method(ABC):
    """How weights, or gates, are learned for the machines of a task."""

    #: The number of the first line of a history.
    first_iteration: ClassVar[int] = 1
    #: Whether an output is Σ_m η_m Σ_i β_i k_m(x, x_i) + b, so that many fits are evaluated at
    #: once.
    is_plain: ClassVar[bool] = True
    #: Whether what is learned proves a bound, which the fit certifies.
    is_certified: ClassVar[bool] = True

    def read(
        self, recipe: Recipe, task: Task, given: FitInput, store: KernelStore | None
    ) -> tuple[Self, TrainingSet]:
        """Return the method with what it reads of the samples, and their kernels."""
        return self, training_set(recipe, task, given, store)

    def resolved(self, task: Task, data: TrainingSet, y: Any) -> Self:
        """Return the method with what it reads of a training set."""
        return self

    @abstractmethod
    def learner(self, task: Task, data: TrainingSet, machines: Sequence[Any]) -> Any:
        """Return what learns."""

    @abstractmethod
    def learn(
        self, task: Task, data: TrainingSet, machines: list[Any], learner: Any, starts: list[Start]
    ) -> list[Any]:
        """Return what was learned for each machine."""

    def completed(self, fit: Fit) -> Fit:
        """Return a certified fit with what follows from it."""
        return fit

    def pruned(self, fit: Fit) -> Fit:
        """Return a certified fit without the kernels that the certificate allows to have no
        weight."""
        return fit

    def coefficients(self, fit: Fit) -> tuple[Array, Array]:
        """Return β of the distinct samples, (outputs, n), and the constants of the outputs."""
        beta = np.concatenate([np.atleast_2d(one.solution.beta.T) for one in fit.learned])
        return beta, np.concatenate([np.atleast_1d(one.solution.intercept) for one in fit.learned])

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
        """Return the warning that follows the estimator's name, None if there is nothing to warn
        of."""
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
        if len(loosest.history) >= max_iter or remedy is None:
            remedy = fit.learner.advice
        elif remedy == ROUNDING and not self._is_hidden_by_rounding(loosest, fit.recipe.tol):
            remedy = loosest.hindrance or STALLED
        return (
            f" stopped at a relative duality gap of {loosest.gap:.2g}, above"
            f" tol={fit.recipe.tol:g}: {remedy}"
        )

    @staticmethod
    def _is_hidden_by_rounding(learned: Learned, tol: float) -> bool:
        """Whether a gap is above `tol` by no more than the certificate adds for rounding."""
        unrounded_gap = learned.unrounded_gap
        return unrounded_gap is not None and unrounded_gap <= tol


#: Rules of families by which weights are computed before the machine is solved, by the value of
#: `weights` that names them: the module and the function, which is loaded on first use. It takes a
#: task, a training set and the targets of its samples, and returns the weights, or None for a task
#: that the rule does not serve.
WEIGHT_RULES = {"loo": ("kernelmosaic.ridge.rule", "loo_weights")}


def weights_by_rule(name: str, task: Task, data: TrainingSet, y: Any) -> Array | None:
    """Return the weights that a rule of a family computes; None for a task that it does not
    serve."""
    module, function = WEIGHT_RULES[name]
    weights: Array | None = getattr(import_module(module), function)(task, data, y)
    return weights


@dataclass(frozen=True)
class WeightMethod(Method):
    """One weight per kernel, or per class and kernel: given, by a rule, or learned.

    Attributes
    ----------
    parameters : Parameters
        Norm, solver, penalties and the like.
    tol : float
        The gap to reach.
    fixed : dict or None
        Weights that kernels or views keep, by name.
    drops_idle : bool
        Whether small weights are set to zero where the certificate allows it.
    n_jobs : int or None
        Machines learned at the same time, on threads.
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
            given = self.parameters.weights
            eta = 1.0 if given is None else given_weights(given, data.stack.n_kernels)
            scale = float((data.diagonals().mean(axis=1) * eta).max()) or 1.0
            entries = Entries(data.stack, data.sizes())
            labels = [machine.program.target for machine in machines]
            return [learn_hard_margin(learner, entries, y, scale, self.tol) for y in labels]
        each = list(zip(machines, starts, strict=True))
        workers = workers_of(self.n_jobs, data, 1, self.parameters.verbose)
        if workers == 1 or len(machines) == 1:
            return [
                learner.learn(data.stack, machine, replace(start, kernel=data.kernel))
                for machine, start in each
            ]
        return map_threads(lambda one: learner.learn(data.stack, *one), each, workers)

    def pruned(self, fit: Fit, most: float = 0.05) -> Fit:
        """Return a certified fit without the kernels that the certificate allows to have no weight.

        Of weights of sum one, those below a share `most` of the largest are set to zero and the
        machine is solved there: if the gap is within `tol` without them, they are left out; if not,
        the smaller half of them is tried.
        """
        data, parameters = fit.data, self.parameters
        sparse = parameters.norm == 1 and parameters.weights is None and parameters.fixed is None
        if not (self.drops_idle and sparse and parameters.solver == "newton"):
            return fit
        if parameters.learns_C or _has_no_slack(fit.task):
            return fit
        # One step moves the weights that are left; a machine that takes more of them needs those
        # that were left out.
        short, found = type(fit.learner)(replace(fit.learner.options, max_iter=2)), []
        for machine, one in zip(fit.machines, fit.learned, strict=True):
            small = np.flatnonzero(
                (one.weights > 0) & (one.weights < most * one.weights.max(initial=0.0))
            )
            small = small[np.argsort(one.weights[small])]
            for idle in (small, small[: len(small) // 2]):
                # Where the value has a kink, no step shows what other weights are worth.
                if (
                    one.gap > self.tol
                    or one.weights.ndim > 1
                    or len(idle) == 0
                    or one.ended_by is not None
                ):
                    continue
                rest = np.where(np.isin(np.arange(len(one.weights)), idle), 0.0, one.weights)
                with data.threads():
                    less = short.learn(data.stack, machine, Start(rest, one.solution.beta, machine))
                    if less.gap <= self.tol and not less.weights[idle].any():
                        less = less.certified(
                            Entries(data.stack, data.sizes()), machine, fit.learner
                        )
                if less.gap <= self.tol and not less.weights[idle].any():
                    history = [*one.history, less.history[-1]]
                    one = replace(less, n_solves=one.n_solves + less.n_solves, history=history)
                    break
            found.append(one)
        return replace(fit, learned=found)

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
            attributes["C_"] = np.array([one.C for one in fit.learned])
        return attributes

    def last_solver(self, learned: Sequence[Learned]) -> str | None:
        """Return the name of what found the weights; None where they are given."""
        if self.parameters.weights is not None:
            return None
        successors = {one.ended_by for one in learned if one.ended_by is not None}
        return min(successors, default=str(self.parameters.solver))


def _has_no_slack(task: Task) -> bool:
    """Whether the machines of a task are those of C = ∞."""
    return isinstance(task, Classes) and task.is_hard


def workers_of(n_jobs: Any, data: TrainingSet, default: int, verbose: Any) -> int:
    """Return how many threads `n_jobs` means; one where a training set cannot be shared."""
    wanted = default if n_jobs is None else effective_n_jobs(n_jobs)
    return wanted if wanted == 1 or (data.shareable and not verbose) else 1


@dataclass(frozen=True)
class Recipe:
    """What the parameters of an estimator determine about a fit; it contains no samples.

    Attributes
    ----------
    kernels : KernelOptions
        The kernels and the form in which they are kept.
    method : Method
        How their weights are learned.
    task : Task
        From targets to machines, from outputs to predictions.
    tol : float
        The gap to reach.
    verbose : bool
        Whether to print in which form the kernels are kept.
    """

    kernels: KernelOptions
    method: Method
    task: Task
    tol: float
    verbose: bool = False


class Lead(NamedTuple):
    """The weights and slopes of a fit that the same fit to other samples may start from.

    Attributes
    ----------
    weights : ndarray of shape (P,) or (outputs, P)
        Its weights.
    slopes : list of ndarray of shape (P,), or None
        ½ βᵀK_mβ of every machine with one output, as certified.
    single : list of bool
        Whether each machine has one output.
    classes : ndarray or None
        The classes of its samples.
    """

    weights: Array
    slopes: list[Array | None]
    single: list[bool]
    classes: AnyArray | None


# What was learned ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """A fit: what was learned from a training set, one `Learned` per machine.

    Attributes
    ----------
    recipe : Recipe
    task, method : Task, Method
        Those of the recipe, with what they read of the training set.
    data : TrainingSet
        The kernels.
    machines : list
        One per output, or one for all.
    learner : Learner
        What learned the weights, and states the bound that they prove.
    learned : list of Learned
    is_led : bool
        Whether a like fit has led it, by which kernels are left to the certificate.
    rule : object
        What the method has completed the fit with.
    """

    recipe: Recipe
    task: Task
    method: Method
    data: TrainingSet
    machines: list[Any] = field(repr=False)
    learner: Any = field(repr=False)
    learned: list[Any] = field(repr=False)
    is_led: bool = False
    rule: Any = field(default=None, repr=False)

    @property
    def beta(self) -> Array:
        """Coefficients of the distinct samples, (outputs, n); a joint machine has one row per
        class."""
        return self.method.coefficients(self)[0]

    @property
    def support(self) -> Indices:
        """Which distinct samples have a coefficient, in the order of the samples given."""
        support = self.method.support(self)
        return np.asarray(support[np.argsort(self.data.kept[support])])

    @property
    def intercept(self) -> Array:
        """Constants of the outputs."""
        return self.method.coefficients(self)[1]

    @property
    def weights(self) -> Array:
        """The weights, (P,), or one row per output where outputs have their own."""
        return (
            self.learned[0].weights
            if len(self.learned) == 1
            else np.array([one.weights for one in self.learned])
        )

    @property
    def gap(self) -> float:
        """The largest relative duality gap."""
        return float(max(one.gap for one in self.learned))

    @property
    def lead(self) -> Lead:
        """The weights and slopes that the same fit to other samples may start from."""
        single = [machine.has_one_output for machine in self.machines]
        each = zip(self.learned, single, strict=True)
        slopes = [
            one.q if own and np.shape(one.q) == one.weights.shape else None for one, own in each
        ]
        return Lead(self.weights, slopes, single, self.task.classes)

    def eta(self) -> Array:
        """Return the weights of every output, (outputs, P); the classes of a joint machine may
        share theirs."""
        eta = np.concatenate([np.atleast_2d(one.weights) for one in self.learned])
        return np.broadcast_to(eta, (len(self.beta), eta.shape[1]))

    def starts(self, n: int) -> list[Start]:
        """Return where a fit to the same n samples, or to nearly the same, starts; coefficients are
        of all samples."""
        return [
            Start(one.weights, spread(one.solution.beta, self.data.kept, n)) for one in self.learned
        ]

    def decide(self, outputs: Array) -> Any:
        """Return the predictions of outputs."""
        return self.task.decide(outputs, self.intercept)

    def attributes(self) -> Settings:
        """Return the fitted attributes."""
        beta, intercept = self.method.coefficients(self)
        support = self.support
        names, views = self.data.names()
        own = {
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
            own["classes_"] = self.task.classes
        return own | self.method.attributes(self)

    def light(self) -> Fit:
        """Return the fit without matrices: its function can be made, and its attributes are
        known."""
        learned = [replace(one, start=COLD) for one in self.learned]
        return replace(self, data=self.data.light(), learner=None, learned=learned)


def history_of(learned: Sequence[Any], scales: Sequence[float], first: int = 1) -> Settings:
    """Return the attributes that state objective and gap."""
    return {
        "objective_": float(sum(s * one.objective for s, one in zip(scales, learned, strict=True))),
        "duality_gap_": max(one.gap for one in learned),
        "n_iter_": max(len(one.history) for one in learned) + first - 1,
        "n_solves_": sum(one.n_solves for one in learned),
        "history_": [
            {"output": c, "iteration": i, **asdict(step), "objective": scales[c] * step.objective}
            for c, one in enumerate(learned)
            for i, step in enumerate(one.history, start=first)
        ],
    }


def coefficients_of(beta: Array, support: Indices) -> Array:
    """Return the columns of some samples, without a copy if these are all in their order."""
    if np.array_equal(support, np.arange(beta.shape[-1])):
        return beta
    return beta[..., support]


def spread(beta: Array, rows: Indices, n: int) -> Array:
    """Return coefficients of some rows as coefficients of all n samples."""
    full = np.zeros((n, *beta.shape[1:]))
    full[rows] = beta
    return full


# From recipes to fits -----------------------------------------------------------------------------


def training_set(
    recipe: Recipe, task: Task, given: FitInput, store: KernelStore | None = None
) -> TrainingSet:
    """Return the kernels of a recipe, fitted to the samples that count."""
    options = recipe.kernels
    if task.merges_repeats:
        counted = count_samples(options.approximation, given.X, given.y, given.weight)
    else:
        counted = DistinctSamples.all_of(given.X.shape[0], given.weight)
    y = None if given.y is None else given.y[counted.rows]
    task.machines(
        y, counted.weight
    )  # parameters that do not serve are refused before the kernels are computed
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
    """Learn from samples, certify, and leave idle kernels out.

    Parameters
    ----------
    recipe : Recipe
    given : FitInput
        Validated samples.
    data : TrainingSet, optional
        Their kernels, where these are known.
    starts : sequence of Start, optional
        Where each machine starts, with coefficients of all samples given.
    store : KernelStore, optional
        Holds kernels and starts of earlier fits to the same samples.
    weights : ndarray of shape (P,) or (outputs, P), optional
        Weights that the machines start from, where nothing else is known.
    """
    task = recipe.task.prepared(given)
    if data is None:
        method, data = recipe.method.read(recipe, task, given, store)
        recipe = replace(recipe, method=method)
    if recipe.verbose and data.stack.form:
        print(f"{recipe.task.name}: {data.stack.form}.", flush=True)
    if starts is not None:
        starts = [start.take(data.kept) for start in starts]
    found = learn(recipe, given, data, starts, store, weights, task)
    if not recipe.method.is_certified:
        return recipe.method.completed(found)
    (done,) = certify([found])
    if store is not None:
        store.keep(data, done)
    return done.method.pruned(done)


def learn(
    recipe: Recipe,
    given: FitInput,
    data: TrainingSet,
    starts: Sequence[Start] | None = None,
    store: KernelStore | None = None,
    weights: Array | None = None,
    prepared: Task | None = None,
) -> Fit:
    """Learn from samples whose kernels are known, without a certificate; coefficients of starts are
    of `data`."""
    task = recipe.task.prepared(given) if prepared is None else prepared
    y = targets_of_kept(given, data)
    machines = task.machines(y, data.weight)
    with data.threads():
        method = recipe.method.resolved(task, data, y)
        learner = method.learner(task, data, machines)
    if weights is not None:
        each = np.atleast_2d(weights)
        single = [machine.has_one_output and len(each) == len(machines) for machine in machines]
        starts = [Start(each[c] if own else weights) for c, own in enumerate(single)]
    if store is not None and recipe.method.is_certified:
        starts = store.starts(data, learner, machines, starts)
    own = [COLD] * len(machines) if starts is None or len(starts) != len(machines) else list(starts)
    with data.threads():
        learned = method.learn(task, data, machines, learner, own)
    is_led = any(start.similar_q is not None for start in own)
    return Fit(recipe, task, method, data, machines, learner, learned, is_led)


def targets_of_kept(given: FitInput, data: TrainingSet) -> TargetLike:
    """Return the targets of the samples of a training set, without a copy if these are all."""
    if given.y is None or np.array_equal(data.kept, np.arange(given.X.shape[0])):
        return given.y
    return given.y[data.kept]


def follow(
    recipes: Sequence[Recipe],
    given: FitInput,
    data: TrainingSet,
    like: Sequence[Lead] = (),
    starts: Sequence[Start] | None = None,
) -> list[Fit]:
    """Follow a path: every fit starts where the one before it ended, without certificates.

    Parameters
    ----------
    recipes : sequence of Recipe
        Those of a path differ in C.
    given, data
        The samples, and their kernels.
    like : sequence of Lead
        The same path on other samples, whose weights move nearly as these do: weights differ less
        from fold to fold than from one C to the next.
    starts : sequence of Start, optional
        Where the first fit starts, with coefficients of all samples given.
    """
    found: list[Fit] = []
    own = None if starts is None else [start.take(data.kept) for start in starts]
    for i, recipe in enumerate(recipes):
        before = own if not found else [one.start for one in found[-1].learned]
        if like:
            before = _led(before, found, like[: i + 1])
        found.append(learn(recipe, given, data, before))
    return found


def _led(before: Sequence[Start] | None, found: Sequence[Fit], like: Sequence[Lead]) -> list[Start]:
    """Return where every machine of a fit on a path starts, given the same path on other samples.

    The weights are those of the other path at this place. If this path has a fit already, they are
    its last weights, changed as the other path changed them in the last step.
    """
    own = like[-1].weights
    guess = own
    if found and found[-1].weights.shape == own.shape:
        moved = np.maximum(found[-1].weights + (own - like[-2].weights), 0.1 * own)
        guess = moved if np.all(moved.sum(axis=-1) > 0) else own
    led = []
    for c, (slopes, single) in enumerate(zip(like[-1].slopes, like[-1].single, strict=True)):
        start = COLD if before is None else before[c]
        weights = np.atleast_2d(guess)[c] if single else guess
        led.append(replace(start.with_weights(weights), similar_q=slopes))
    return led


# What fits prove, and what they predict -----------------------------------------------------------


def certify(fits: Sequence[Fit], numbers: int = 2**24) -> list[Fit]:
    """Return the fits with certified objectives and gaps.

    A fit that met `tol` by its learner's bounds and does not by its certificate is learned again in
    double precision. Plain fits to one training set are certified together: entries are computed
    once for as many of them as have `numbers` products at most.
    """
    certified_fits: list[Fit] = []
    for group in _groups(fits, numbers):
        certified_fits += _certified_together(group)
    settled = [_settled(rough, fit) for rough, fit in zip(fits, certified_fits, strict=True)]
    return [fit.method.completed(fit) for fit in settled]


def _certified_together(fits: Sequence[Fit]) -> list[Fit]:
    """Return fits to one training set with certificates of all that has none yet."""
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


def _groups(fits: Sequence[Fit], numbers: int) -> list[list[Fit]]:
    """Return fits in groups that are certified together."""
    groups: list[list[Fit]] = []
    room = 0
    for fit in fits:
        stack = fit.data.stack
        plain = all(type(one) is Learned for one in fit.learned) and fit.data.device is None
        columns = sum(one.solution.beta[0].size for one in fit.learned)
        if not groups or not plain or groups[-1][0].data is not fit.data or room < columns:
            groups.append([])
            room = numbers // (stack.n_kernels * stack.n_samples) if plain else 0
        groups[-1].append(fit)
        room -= columns
    return groups


def _settled(rough: Fit, fit: Fit) -> Fit:
    """Return a fit learned again, if it meets the gap asked for by its learner's bounds and not by
    its certificate.

    Kernels that a like fit has left out are read first; then the entries are those in double
    precision.
    """
    tol = fit.recipe.tol
    if not any(
        one.gap > tol >= before.gap for one, before in zip(fit.learned, rough.learned, strict=True)
    ):
        return fit
    data = fit.data if fit.is_led else fit.data.in_double()
    if data is None:
        return fit
    learner = fit.method.learner(fit.task, data, fit.machines)
    starts = [one.start.without_products() for one in rough.learned]
    with data.threads():
        learned = fit.method.learn(fit.task, data, fit.machines, learner, starts)
    return certify([replace(fit, data=data, learner=learner, learned=learned, is_led=False)])[0]


def outputs(fits: Sequence[Fit], X: MatrixLike) -> list[Array]:
    """Return the outputs of every fit for validated samples, (n, outputs), from one evaluation of
    the kernels."""
    data = fits[0].data
    if not all(one.method.is_plain and one.data.kept is data.kept for one in fits):
        return [one.method.function(one).outputs(X) for one in fits]
    each = [one.beta for one in fits]
    beta = np.concatenate(each)
    support = np.flatnonzero(np.any(beta != 0, axis=0))
    values = data.expansion(beta, support, np.concatenate([one.eta() for one in fits])).values(X)
    parts = np.split(values, np.cumsum([len(one) for one in each])[:-1], axis=1)
    return [part + one.intercept for part, one in zip(parts, fits, strict=True)]
