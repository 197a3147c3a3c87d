"""The best weights seen so far, and how good they are certified to be."""

from __future__ import annotations

from kernelmosaic.learning.base import Iteration, Learned
from kernelmosaic.learning.evaluation import Evaluation, Problem
from kernelmosaic.solvers import relative_gap
from kernelmosaic.solvers.program import Vector


class Incumbent:
    """Keeps the best evaluation and the best lower bound; every evaluation may better either.

    Parameters
    ----------
    problem : Problem
        What is being solved.
    first : Evaluation
        The first look at it.
    """

    def __init__(self, problem: Problem, first: Evaluation) -> None:
        self.problem = problem
        self.best = first
        self.lower = problem.lower(first)
        self.history = [Iteration(first.upper, self.gap)]

    @property
    def gap(self) -> float:
        return relative_gap(self.best.upper, self.lower)

    def see(self, there: Evaluation) -> bool:
        """Take note of an evaluation; whether it is the best so far."""
        self.lower = max(self.lower, self.problem.lower(there))
        if there.upper >= self.best.upper:
            return False
        self.best = there
        return True

    def bound(self, lower: float) -> None:
        """Take note of a lower bound on the optimum."""
        self.lower = max(self.lower, lower)

    def record(self) -> float:
        """Add a line to the history and return the gap."""
        self.history.append(Iteration(self.best.upper, self.gap))
        return self.gap

    def learned(self) -> Learned:
        best, problem = self.best, self.problem
        return Learned(best.theta * problem.scale, best.solution, best.upper, self.gap, problem.n_solves, self.history)


def guaranteed_value(problem: Problem, beta: Vector) -> float:
    """Return what any feasible β guarantees whatever the weights: a lower bound on the optimum."""
    q = problem.bank.quadratic_forms(beta) * problem.scale
    return problem.machine.program.linear_value(beta) - problem.norm.support(q)
