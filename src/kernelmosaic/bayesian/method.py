"""Variational inference as a method of a fit: sweeps until the bound rises no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelmosaic._typing import Array, Indices, Settings, TargetLike
from kernelmosaic.bayesian.inference import Inference, Model
from kernelmosaic.engine.expansion import Function
from kernelmosaic.engine.fit import Fit, Method
from kernelmosaic.engine.tasks import ClassTask, Task
from kernelmosaic.engine.training_set import TrainingSet
from kernelmosaic.learning.certificate import Start
from kernelmosaic.learning.problem import progress


@dataclass(frozen=True, eq=False)
class ProbitClasses(ClassTask):
    """Classes as signs of outputs: of one output for two classes, else of one per class."""

    merges_repeats: ClassVar[bool] = False

    def machines(self, y: TargetLike, weight: Array) -> list[Any]:
        """Return the signs of all outputs, of shape (n, K), as the one machine there is."""
        positive = self.classes[1:] if len(self.classes) == 2 else self.classes
        is_positive = np.asarray(y)[:, np.newaxis] == positive
        return [np.where(is_positive, 1.0, -1.0)]


@dataclass(frozen=True)
class Posterior:
    """What was learned: the factors of the approximate posterior, and how the bound rose.

    Attributes
    ----------
    inference : Inference
        The factors at the end.
    history : list of dict
        Of every iteration the bound, its negative and its relative rise.
    weights, weight_deviations : ndarray of shape (P,)
        Posterior means and standard deviations of the weights.
    deviation : float
        The root of the mean variance of the training samples' outputs.
    """

    inference: Any
    history: list[Settings]
    weights: Array
    weight_deviations: Array
    deviation: float


@dataclass(frozen=True)
class VariationalMethod(Method):
    """A posterior over the weights, by the factors that raise the evidence lower bound most.

    Attributes
    ----------
    tol : float
        Relative rise of the bound at which to stop.
    max_iter : int
        Maximum number of sweeps.
    verbose : bool
        Whether to show a progress bar.
    model : Model
        The constants.
    """

    tol: float
    max_iter: int
    verbose: bool
    model: Any

    is_plain: ClassVar[bool] = False
    is_certified: ClassVar[bool] = False

    def learner(self, task: Task, data: TrainingSet, machines: Sequence[Any]) -> Any:
        assert isinstance(self.model, Model)
        (labels,) = machines
        return Inference(data.stack, labels, self.model)

    def learn(
        self, task: Task, data: TrainingSet, machines: list[Any], learner: Any, starts: list[Start]
    ) -> list[Any]:
        history = self.sweep(learner, task.name)
        n_outputs = learner.labels.shape[1]
        weight_deviations = np.sqrt(np.diag(learner.cov)[n_outputs:])
        return [
            Posterior(learner, history, learner.e.copy(), weight_deviations, learner.deviation())
        ]

    def sweep(self, inference: Any, name: str) -> list[Settings]:
        """Update all factors until the bound rises by at most `tol`; return the history."""
        history: list[Settings] = []
        previous = -np.inf
        with progress(name, self.max_iter, self.verbose) as show:
            for iteration in range(1, self.max_iter + 1):
                elbo = inference.sweep()
                rise = np.inf
                if np.isfinite(previous):
                    rise = (elbo - previous) / abs(elbo)
                step = {"output": 0, "iteration": iteration, "elbo": elbo}
                history.append(step | {"objective": -elbo, "gap": rise})
                show(f"bound {elbo:.6g}, rise {rise:.1e} of {self.tol:.0e}", iteration)
                if rise <= self.tol:
                    break
                previous = elbo
        return history

    def coefficients(self, fit: Fit) -> tuple[Array, Array]:
        (posterior,) = fit.learned
        return posterior.inference.a.T.copy(), posterior.inference.b.copy()

    def support(self, fit: Fit) -> Indices:
        # Every sample has a coefficient.
        return np.arange(len(fit.data.kept))

    def function(self, fit: Fit) -> Function:
        beta, intercept = self.coefficients(fit)
        n_outputs, n_samples = beta.shape
        weights = np.tile(fit.weights, (n_outputs, 1))
        return Function(fit.data.expansion(beta, np.arange(n_samples), weights), intercept)

    def progress(self, fit: Fit) -> Settings:
        (posterior,) = fit.learned
        history = posterior.history
        return {"elbo_": history[-1]["elbo"], "history_": history, "n_iter_": len(history)}

    def attributes(self, fit: Fit) -> Settings:
        (posterior,) = fit.learned
        return {
            "weights_std_": posterior.weight_deviations,
            "_deviation": posterior.deviation,
        }

    def warning(self, fit: Fit, max_iter: int) -> str | None:
        (posterior,) = fit.learned
        rise = posterior.history[-1]["gap"]
        if rise <= self.tol:
            return None
        return (
            f" stopped after max_iter={max_iter} iterations while the bound still rose by"
            f" {rise:.2g}, above tol={self.tol:g}: raise max_iter, or tol."
        )
