"""The method of discriminant analysis: weights on a simplex of traces, and the linear rule in the
discriminant space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelmosaic._checks import check_choice
from kernelmosaic._typing import Array, MatrixLike, Settings
from kernelmosaic.discriminant.learning import centered_traces, trace_penalties
from kernelmosaic.discriminant.machine import (
    Discriminant,
    Projection,
    discriminant_projection,
    within_from_least_squares,
)
from kernelmosaic.discriminant.task import Indicators
from kernelmosaic.engine.expansion import Function
from kernelmosaic.engine.fit import Fit, Method, history_of
from kernelmosaic.engine.tasks import Task
from kernelmosaic.engine.training_set import TrainingSet
from kernelmosaic.learning.certificate import Iteration, Learned, Start
from kernelmosaic.learning.factory import Parameters, make_learner
from kernelmosaic.learning.fixed import given_weights
from kernelmosaic.learning.problem import Learner
from kernelmosaic.solvers.program import relative_gap


@dataclass(frozen=True)
class DiscriminantRule:
    """The discriminant space and the rule by which classes are assigned in it.

    Attributes
    ----------
    projection : Projection
        The discriminant directions.
    center : ndarray of shape (components,)
        The projection of the training samples' mean. Since coefficients sum to zero, projections
        are centred by taking this off.
    slopes, constants : ndarray of shape (outputs, components) and (outputs,)
        Classes are assigned by the scores projections · slopesᵀ + constants: one score for two
        classes, positive for the second, else one per class.
    """

    projection: Projection
    center: Array
    slopes: Array
    constants: Array


@dataclass(frozen=True)
class ProjectedFunction(Function):
    """Linear functions of projections: slopes · (Σ_m η_m Σ_i a_i k_m(x, x_i)) + b.

    Attributes
    ----------
    slopes : ndarray of shape (outputs, components)
        The factors of the projections.
    center : ndarray of shape (components,)
        The projection of the training samples' mean.
    """

    slopes: Array = field(kw_only=True)
    center: Array = field(kw_only=True)

    def projections(self, X: MatrixLike) -> Array:
        """Return centred projections of validated samples, of shape (n, components)."""
        return np.asarray(self.expansion.values(X) - self.center)

    def outputs(self, X: MatrixLike) -> Array:
        return np.asarray(self.expansion.values(X) @ self.slopes.T + self.intercept)

    def terms(self, X: MatrixLike) -> Array:
        return np.asarray(self.expansion.terms(X) @ self.slopes.T)


@dataclass(frozen=True)
class TraceMethod(Method):
    """Weights θ ≥ 0 with Σ θ_i r_i = 1, where r_i are the kernels' centred traces.

    In the form of Kim et al. all r_i that are not zero count as one.

    Attributes
    ----------
    parameters : Parameters
        The parameters of the solver, and given weights.
    decision : str
        The name of the rule by which classes are assigned.
    """

    parameters: Parameters
    decision: str

    def learner(self, task: Task, data: TrainingSet, machines: Sequence[Any]) -> Learner:
        assert isinstance(task, Indicators)
        traces = centered_traces(data.stack, data.diagonals())
        parameters = self.parameters
        if isinstance(parameters.weights, str):
            # Equal weights are on the simplex of the learned ones, so that alpha means the same.
            theta = given_weights(parameters.weights, len(traces))
            parameters = replace(parameters, weights=theta / float(theta @ traces))
        simplex_traces = np.sign(traces) if task.is_kim else traces
        return make_learner(parameters, data.stack, penalties=trace_penalties(simplex_traces))

    def learn(
        self, task: Task, data: TrainingSet, machines: list[Any], learner: Any, starts: list[Start]
    ) -> list[Any]:
        starts = [replace(start, kernel=data.kernel) for start in starts]
        return [
            learner.learn(data.stack, machine, start)
            for machine, start in zip(machines, starts, strict=True)
        ]

    def completed(self, fit: Fit) -> Fit:
        (learned,) = fit.learned
        (machine,) = fit.machines
        assert isinstance(fit.task, Indicators)

        # 1. The discriminant space.
        solution = learned.solution
        projection = discriminant_projection(machine.targets, solution.beta, solution.values)
        A = projection.coefficients
        kernel_means = fit.data.stack.products(np.full(len(A), 1.0 / len(A)))
        center = learned.weights @ kernel_means @ A

        # 2. The rule, from the projections of the training samples.
        make_scores = make_rule(self.decision)
        projections = solution.values @ projection.rotation
        slopes, constants = make_scores(projections, machine, projection)
        rule = DiscriminantRule(projection, center, slopes, constants)

        # 3. The objective as the method's paper states it.
        stated = fit.learned
        if fit.task.is_kim:
            stated = [_with_within_class_criterion(learned, machine)]
        return replace(fit, learned=stated, rule=rule)

    def coefficients(self, fit: Fit) -> tuple[Array, Array]:
        rule = fit.rule
        coefficients = rule.slopes @ rule.projection.coefficients.T
        intercept = rule.constants - rule.slopes @ rule.center
        return coefficients, intercept

    def function(self, fit: Fit) -> ProjectedFunction:
        A = fit.rule.projection.coefficients
        weights = np.tile(fit.weights, (A.shape[1], 1))
        expansion = fit.data.expansion(A.T, np.arange(len(A)), weights)
        return ProjectedFunction(
            expansion, fit.intercept, slopes=fit.rule.slopes, center=fit.rule.center
        )

    def attributes(self, fit: Fit) -> Settings:
        assert isinstance(fit.task, Indicators)
        (learned,) = fit.learned
        traces = centered_traces(fit.data.stack, fit.data.diagonals())
        eigenvalues = fit.rule.projection.eigenvalues
        attributes = {
            "alpha_": learned.solution.alpha,
            "trace_shares_": learned.weights * traces,
            # Kernels that are equal for all pairs of samples explain nothing: the sum is zero.
            "explained_ratio_": eigenvalues / (eigenvalues.sum() or 1.0),
            "support_": np.arange(len(fit.data.kept)),
            "support_fraction_": 1.0,
            "dual_coef_": fit.beta,
            "_n_features_out": fit.rule.projection.coefficients.shape[1],
        }
        if not fit.task.is_kim:
            return attributes
        # The regulariser and the objective of Kim et al. are not those of the least squares.
        attributes["alpha_"] = float(fit.task.alpha)
        return history_of(fit.learned, [1.0]) | attributes


def left_out(fit: Fit) -> Array:
    """Return decision values, each by a fit to all other samples, of shape (n, outputs).

    The weights and the rule are those of the fit.
    """
    rule = fit.rule
    (learned,) = fit.learned
    (machine,) = fit.machines
    with fit.data.threads():
        targets_left_out = learned.solution.left_out(machine.targets)
    projections = targets_left_out @ rule.projection.rotation
    return np.asarray(projections @ rule.slopes.T + rule.constants)


def _with_within_class_criterion(learned: Learned, machine: Discriminant) -> Learned:
    """Return what was learned, with F₁* in place of F₃* in all objectives and gaps.

    F₁* is maximised: the value at the weights is its lower bound, and the lower bound of F₃* gives
    the upper one.
    """

    def iteration(objective: float, gap: float) -> Iteration:
        value = machine.objective_scale * objective
        lower_bound = within_from_least_squares(value, machine.counts)
        upper_bound = np.inf
        if gap < 1:
            upper_bound = within_from_least_squares(value * (1.0 - gap), machine.counts)
        return Iteration(lower_bound, relative_gap(upper_bound, lower_bound))

    last = iteration(learned.objective, learned.gap)
    history = [iteration(step.objective, step.gap) for step in learned.history]
    return replace(learned, objective=last.objective, gap=last.gap, history=history)


# How classes are assigned in the discriminant space: both rules are linear in the projections -----


def least_squares_rule(
    Z: Array, machine: Discriminant, projection: Projection
) -> tuple[Array, Array]:
    """Return slopes and constants of the least-squares fit of the class indicators.

    The targets are these indicators, centred and scaled: h_i = √(n/n_i) (1[class i] − n_i/n), and a
    is n/(m₊m₋) times the same for the second class. Undoing that gives one score per class, summing
    to one. For two classes it is one score, the fit of ±1, and for labels the fit of ±1 of each.

    `Z` are the projections of the n training samples.
    """
    counts = machine.counts
    n = len(Z)
    # A = βC with orthogonal columns of C, so that the fit of the targets is Z diag(eigenvalues) Cᵀ.
    slopes = projection.rotation * projection.eigenvalues
    if not machine.has_classes:
        return 2.0 * machine.root @ slopes, 2.0 * counts / n - 1.0
    if len(counts) == 2:
        return 2.0 * counts[0] * counts[1] / n * slopes, np.array([(counts[1] - counts[0]) / n])
    return np.sqrt(counts / n)[:, np.newaxis] * slopes, counts / n


def centroid_rule(Z: Array, machine: Discriminant, projection: Projection) -> tuple[Array, Array]:
    """Return slopes and constants of the rule of the nearest class centroid.

    The score ⟨z, c_i⟩ − ½‖c_i‖² is largest where ‖z − c_i‖ is smallest. For two classes the scores'
    difference is returned. `Z` are the projections of the training samples.
    """
    member = np.eye(len(machine.counts))[machine.labels]
    centroids = member.T @ Z / machine.counts[:, np.newaxis]
    constants = -0.5 * np.sum(centroids**2, axis=1)
    if len(machine.counts) == 2:
        return np.diff(centroids, axis=0), np.diff(constants)
    return centroids, constants


def make_rule(decision: Any) -> Callable[[Array, Discriminant, Projection], tuple[Array, Array]]:
    """Return the rule of a name: from projections to slopes and constants.

    Raises a ValueError that lists the names if there is none of this name.
    """
    rules = {"least_squares": least_squares_rule, "centroid": centroid_rule}
    return rules[check_choice("decision", decision, rules)]
