"""Discriminant analysis: weights on a simplex of traces, and the linear rule in the discriminant
space."""

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
    """What follows from the weights of discriminant analysis.

    Attributes
    ----------
    projection : Projection
        The discriminant directions.
    center : ndarray of shape (components,)
        Where the training samples' mean projects to: the coefficients sum to zero, so this is all
        the centring there is.
    slopes, constants : ndarray
        How classes are assigned: by the scores projections · slopesᵀ + constants, one for two
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
    """Weights θ ≥ 0 with Σ θ_i r_i = 1, r_i the centred traces; Kim et al. sum the weights.

    Attributes
    ----------
    parameters : Parameters
        Solver and weights.
    decision : str
        How classes are assigned.
    """

    parameters: Parameters
    decision: str

    def learner(self, task: Task, data: TrainingSet, machines: Sequence[Any]) -> Learner:
        assert isinstance(task, Indicators)
        traces, parameters = centered_traces(data.stack, data.diagonals()), self.parameters
        if isinstance(parameters.weights, str):
            # Equal weights, on the simplex of the learned ones, so that alpha means the same.
            theta = given_weights(parameters.weights, len(traces))
            parameters = replace(parameters, weights=theta / float(theta @ traces))
        penalties = trace_penalties(np.sign(traces) if task.is_kim else traces)
        return make_learner(parameters, data.stack, penalties=penalties)

    def learn(
        self, task: Task, data: TrainingSet, machines: list[Any], learner: Any, starts: list[Start]
    ) -> list[Any]:
        own = [replace(start, kernel=data.kernel) for start in starts]
        return [
            learner.learn(data.stack, machine, start)
            for machine, start in zip(machines, own, strict=True)
        ]

    def completed(self, fit: Fit) -> Fit:
        (learned,), (machine,) = fit.learned, fit.machines
        projection = discriminant_projection(
            machine.targets, learned.solution.beta, learned.solution.values
        )
        A = projection.coefficients
        slopes, constants = make_rule(self.decision)(
            learned.solution.values @ projection.rotation, machine, projection
        )
        means = fit.data.stack.products(np.full(len(A), 1.0 / len(A)))
        assert isinstance(fit.task, Indicators)
        stated = [_as_kim_writes(learned, machine)] if fit.task.is_kim else fit.learned
        rule = DiscriminantRule(projection, learned.weights @ means @ A, slopes, constants)
        return replace(fit, learned=stated, rule=rule)

    def coefficients(self, fit: Fit) -> tuple[Array, Array]:
        rule = fit.rule
        return (
            rule.slopes @ rule.projection.coefficients.T,
            rule.constants - rule.slopes @ rule.center,
        )

    def function(self, fit: Fit) -> ProjectedFunction:
        A = fit.rule.projection.coefficients
        expansion = fit.data.expansion(
            A.T, np.arange(len(A)), np.tile(fit.weights, (A.shape[1], 1))
        )
        return ProjectedFunction(
            expansion, fit.intercept, slopes=fit.rule.slopes, center=fit.rule.center
        )

    def attributes(self, fit: Fit) -> Settings:
        assert isinstance(fit.task, Indicators)
        (learned,), eigenvalues = fit.learned, fit.rule.projection.eigenvalues
        is_kim, n = fit.task.is_kim, len(fit.data.kept)
        stated = history_of(fit.learned, [1.0]) if is_kim else {}
        return stated | {
            "alpha_": float(fit.task.alpha) if is_kim else learned.solution.alpha,
            "trace_shares_": learned.weights
            * centered_traces(fit.data.stack, fit.data.diagonals()),
            # Kernels that are equal for all pairs of samples explain nothing.
            "explained_ratio_": eigenvalues / (eigenvalues.sum() or 1.0),
            "support_": np.arange(n),
            "support_fraction_": 1.0,
            "dual_coef_": fit.beta,
            "_n_features_out": fit.rule.projection.coefficients.shape[1],
        }


def left_out(fit: Fit) -> Array:
    """Return the decision values of every sample by all others, (n, outputs)."""
    rule, (learned,), (machine,) = fit.rule, fit.learned, fit.machines
    with fit.data.threads():
        found = learned.solution.left_out(machine.targets)
    return np.asarray(found @ rule.projection.rotation @ rule.slopes.T + rule.constants)


def _as_kim_writes(learned: Learned, machine: Discriminant) -> Learned:
    """Return the same with F₁*, which is maximised, for F₃* in the objectives, and the gaps of the
    former."""

    def step(objective: float, gap: float) -> Iteration:
        value, counts = machine.objective_scale * objective, machine.counts
        reached = within_from_least_squares(value, counts)
        most = within_from_least_squares(value * (1.0 - gap), counts) if gap < 1 else np.inf
        return Iteration(reached, relative_gap(most, reached))

    last = step(learned.objective, learned.gap)
    history = [step(one.objective, one.gap) for one in learned.history]
    return replace(learned, objective=last.objective, gap=last.gap, history=history)


# How classes are assigned in the discriminant space: both rules are linear in the projections -----


def least_squares_rule(
    Z: Array, machine: Discriminant, projection: Projection
) -> tuple[Array, Array]:
    """Return the least-squares fit of the class indicators, with its intercept.

    The targets are these indicators, centred and scaled: h_i = √(n/n_i) (1[class i] − n_i/n), and a
    is n/(m₊m₋) times the same for the second class. Undoing that gives one score per class, summing
    to one; two classes share the fit of ±1.
    """
    counts, n = machine.counts, len(Z)
    # A = βC with the columns of C orthogonal, so the targets' own fit is Z times eigenvalues times
    # Cᵀ.
    fit = projection.rotation * projection.eigenvalues
    if not machine.has_classes:
        return 2.0 * machine.root @ fit, 2.0 * counts / n - 1.0
    if len(counts) == 2:
        return 2.0 * counts[0] * counts[1] / n * fit, np.array([(counts[1] - counts[0]) / n])
    return np.sqrt(counts / n)[:, np.newaxis] * fit, counts / n


def centroid_rule(Z: Array, machine: Discriminant, projection: Projection) -> tuple[Array, Array]:
    """Return the rule of the nearest class centroid: ⟨z, c_i⟩ − ½‖c_i‖² is largest where ‖z − c_i‖
    is smallest."""
    member = np.eye(len(machine.counts))[machine.labels]
    centroids = member.T @ Z / machine.counts[:, np.newaxis]
    constants = -0.5 * np.sum(centroids**2, axis=1)
    if len(machine.counts) == 2:
        return np.diff(centroids, axis=0), np.diff(constants)
    return centroids, constants


def make_rule(decision: Any) -> Callable[[Array, Discriminant, Projection], tuple[Array, Array]]:
    """Return the rule of that name, or raise naming the ones there are."""
    rules = {"least_squares": least_squares_rule, "centroid": centroid_rule}
    return rules[check_choice("decision", decision, rules)]
