"""What every machine must do, against conic programs and the primal problem as a textbook writes
it.

The classes are found in the package; each needs an example here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from tests.contracts.discovery import concrete_subclasses

from kernelmosaic.learning.hard_margin import HardMargin
from kernelmosaic.machines.base import (
    SVC,
    SVR,
    CrammerSinger,
    Huber,
    Machine,
    MulticlassMachine,
    OneClass,
    PairwiseSlack,
    Quantile,
    SharedMachines,
)
from kernelmosaic.multiclass.machine import PosteriorSVC
from kernelmosaic.survival.machine import Cox, Ranking, SmoothMachine, Survival

pytest.importorskip("clarabel")
from tests.reference.conic import solve_program_conic
from tests.reference.joint import solve_joint_conic

RNG = np.random.RandomState(0)
N = 24
X = RNG.standard_normal((N, 3))
K = np.exp(-((X[:, None] - X) ** 2).sum(-1) / 4.0)
TARGET = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * RNG.standard_normal(N)
LABELS = np.where(TARGET > 0, 1.0, -1.0)
SOFT = np.where(RNG.rand(N) < 0.15, 0.0, np.tanh(2 * TARGET))
CLASSES = np.digitize(TARGET, [-0.5, 0.5])
WEIGHT = RNG.uniform(0.2, 2.0, size=N)
SOME = RNG.permutation(N)[:12]
EVENT = RNG.rand(N) < 0.6


@dataclass(frozen=True)
class Example:
    """A machine, and its primal problem: the objective of ½‖w‖² (summed over outputs), outputs f
    and intercept b."""

    machine: Any
    primal: Callable[[float, np.ndarray, Any], float]
    K: np.ndarray = field(default_factory=lambda: K)


def excess(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def censored(f: np.ndarray, epsilon: float) -> np.ndarray:
    """How far predictions are off: to both sides of a time that was observed, below one that was
    censored."""
    return excess(np.where(EVENT, np.abs(TARGET - f), TARGET - f) - epsilon)


def huber(error: np.ndarray, delta: float) -> np.ndarray:
    return np.where(error <= delta, error**2 / (2 * delta), error - delta / 2)


TIME, COUNT = np.ceil(4 * np.exp(TARGET)), RNG.randint(0, 4, size=N).astype(float)


def partial_likelihood(f: np.ndarray, count: np.ndarray) -> float:
    """Minus the logarithm of Cox's partial likelihood with Efron's terms, samples written as often
    as they count."""
    rows = np.repeat(np.arange(N), count.astype(int))
    time, event, risk, total = TIME[rows], EVENT[rows], np.exp(-f[rows]), 0.0
    for t in np.unique(time[event]):
        now = event & (time == t)
        for k in range(now.sum()):
            total += np.log(risk[time >= t].sum() - k / now.sum() * risk[now].sum())
        total += f[rows][now].sum()
    return total


def pairs_out_of_order(f: np.ndarray, weight: np.ndarray) -> float:
    later = (TIME[:, None] < TIME) | ((TIME[:, None] == TIME) & ~EVENT)
    short = excess(1.0 - (f - f[:, None]))
    return (
        float(np.sum((later & EVENT[:, None]) * np.outer(weight, weight) * short**2)) / weight.sum()
    )


def most_behind(f: np.ndarray, margin: float) -> np.ndarray:
    """By how much the best other class is too near: one number per sample."""
    behind = margin + f - f[np.arange(N), CLASSES][:, None]
    behind[np.arange(N), CLASSES] = 0.0
    return excess(behind)


EXAMPLES: dict[type, list[Example]] = {
    SVC: [
        Example(
            SVC(LABELS, 3.0).take(SOME),
            lambda half, f, b: half + 3.0 * N / len(SOME) * excess(1 - LABELS[SOME] * f).sum(),
            K[np.ix_(SOME, SOME)],
        ),
        Example(SVC(LABELS, 3.0), lambda half, f, b: half + 3.0 * excess(1 - LABELS * f).sum()),
        Example(
            SVC(LABELS, 3.0, slack=2, sample_weight=WEIGHT),
            lambda half, f, b: 2 * half + 3.0 * WEIGHT @ excess(1 - LABELS * f) ** 2,
        ),
    ],
    SVR: [
        Example(
            SVR(TARGET, 2.0, 0.2),
            lambda half, f, b: half + 2.0 * excess(np.abs(TARGET - f) - 0.2).sum(),
        ),
        Example(
            SVR(TARGET, 2.0, 0.2, slack=2),
            lambda half, f, b: 2 * half + 2.0 * (excess(np.abs(TARGET - f) - 0.2) ** 2).sum(),
        ),
    ],
    Survival: [
        Example(
            Survival(TARGET, EVENT, 2.0, 0.1),
            lambda half, f, b: half + 2.0 * censored(f, 0.1).sum(),
        ),
        Example(
            Survival(TARGET, EVENT, 2.0, 0.1, slack=2, sample_weight=WEIGHT),
            lambda half, f, b: 2 * half + 2.0 * WEIGHT @ censored(f, 0.1) ** 2,
        ),
    ],
    Cox: [
        Example(
            Cox(TIME, EVENT, 2.0), lambda half, f, b: half + 2.0 * partial_likelihood(f, np.ones(N))
        ),
        Example(
            Cox(TIME, EVENT, 0.5, COUNT),
            lambda half, f, b: half + 0.5 * partial_likelihood(f, COUNT),
        ),
    ],
    Ranking: [
        Example(
            Ranking(TIME, EVENT, 2.0),
            lambda half, f, b: half + 2.0 * pairs_out_of_order(f, np.ones(N)),
        ),
        Example(
            Ranking(TIME, EVENT, 0.5, WEIGHT),
            lambda half, f, b: half + 0.5 * pairs_out_of_order(f, WEIGHT),
        ),
    ],
    Huber: [
        Example(
            Huber(TARGET, 2.0, 0.4, WEIGHT),
            lambda half, f, b: half + 2.0 * WEIGHT @ huber(np.abs(TARGET - f), 0.4),
        )
    ],
    Quantile: [
        Example(
            Quantile(TARGET, 2.0, 0.8, WEIGHT),
            lambda half, f, b: (
                half + 2.0 * WEIGHT @ (0.8 * excess(TARGET - f) + 0.2 * excess(f - TARGET))
            ),
        )
    ],
    OneClass: [
        Example(OneClass(N, 4.0 / N), lambda half, f, b: half + 4.0 / N * excess(-f).sum() + b),
        Example(
            OneClass(N, 4.0 / N, WEIGHT, slack=2),
            lambda half, f, b: half + 2.0 / N * WEIGHT @ excess(-f) ** 2 + b,
        ),
    ],
    PosteriorSVC: [
        Example(
            PosteriorSVC(SOFT, 2.0),
            lambda half, f, b: half + 2.0 * excess(1 - f[SOFT != 0] / SOFT[SOFT != 0]).sum(),
        )
    ],
    CrammerSinger: [
        Example(
            CrammerSinger(CLASSES, 1.5, constants=constants),
            lambda half, f, b: half + 1.5 * most_behind(f, 1.0).max(axis=1).sum(),
        )
        for constants in (False, True)
    ],
    PairwiseSlack: [
        Example(
            PairwiseSlack(CLASSES, 1.5, sample_weight=WEIGHT, constants=constants),
            lambda half, f, b: half + 1.5 * WEIGHT @ most_behind(f, 2.0).sum(axis=1),
        )
        for constants in (False, True)
    ],
}
EVERY = [
    pytest.param(example, id=f"{kind.__name__}-{k}")
    for kind, examples in EXAMPLES.items()
    for k, example in enumerate(examples)
]


def found_machines() -> list[type]:
    found = concrete_subclasses(Machine)
    # The outputs of shared machines are those of the machines that they are made of, and a hard
    # margin is found by its own learner, whose tests are in tests/estimators/test_hard_margin.py.
    return [
        kind
        for kind in found
        if kind not in (HardMargin, MulticlassMachine, SharedMachines, SmoothMachine)
    ]


@pytest.mark.parametrize("kind", found_machines(), ids=lambda kind: kind.__name__)
def test_every_machine_has_an_example(kind):
    assert EXAMPLES.get(kind), (
        f"add to EXAMPLES a {kind.__name__} and its primal objective as a textbook writes it"
    )


@cache
def smooth_optimum(primal: Callable[[float, np.ndarray, Any], float]) -> float:
    """The value that a general optimiser finds, in coordinates in which ½‖w‖² is round."""
    root = np.linalg.cholesky(K + 1e-12 * np.eye(N))
    return float(minimize(lambda w: primal(0.5 * w @ w, root @ w, 0.0), np.zeros(N), tol=1e-9).fun)


def optimum(example: Example) -> float:
    """The conic solver's value of the problem, as the papers scale it; of a smooth loss, that of
    another optimiser."""
    if isinstance(example.machine, SmoothMachine):
        return smooth_optimum(example.primal)
    program = example.machine.program
    if isinstance(example.machine, MulticlassMachine):
        n_classes = program.margins.shape[1]
        given = (
            CLASSES,
            n_classes,
            program.sample_C,
            program.margins,
            program.pairwise,
            program.constants,
        )
        return solve_joint_conic(example.K, *given)
    return example.machine.objective_scale * solve_program_conic(example.K, program)[0]


@pytest.mark.parametrize("example", EVERY)
def test_value_gap_and_primal_problem(example):
    machine, best = example.machine, optimum(example)
    found = machine.solve(example.K, tol=1e-8)
    assert found.gap <= 1e-8
    assert machine.objective_scale * found.objective == pytest.approx(best, rel=1e-6)
    values = example.K @ found.beta
    assert_allclose(found.values, values, atol=1e-8 * np.abs(values).max())
    # The primal value at these outputs bounds the optimum from above, and is it.
    primal = example.primal(
        0.5 * float(np.sum(found.beta * values)), values + found.intercept, found.intercept
    )
    assert primal == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("example", EVERY)
def test_gap_is_a_true_bound_before_the_end(example):
    machine, best = example.machine, optimum(example)
    for tol in (0.5, 0.05):
        early = machine.solve(example.K, tol=tol)
        assert early.gap <= tol
        value = machine.objective_scale * early.objective
        scale = max(abs(value), abs(best)) / (1.0 - early.gap)
        assert -1e-7 * scale <= best - value <= (early.gap + 1e-7) * scale


@pytest.mark.parametrize("example", EVERY)
def test_warm_starts_change_nothing(example):
    plain = example.machine.solve(example.K, tol=1e-9)
    # Half the solution, and numbers that break every constraint.
    for start in (
        0.5 * plain.beta,
        10.0 * np.random.RandomState(1).standard_normal(plain.beta.shape),
    ):
        before = start.copy()
        found = example.machine.solve(example.K, warm_start=start, tol=1e-9)
        assert found.gap <= 1e-9
        assert found.objective == pytest.approx(plain.objective, rel=1e-7)
        assert_allclose(found.values, plain.values, atol=1e-3 * np.abs(plain.values).max())
        np.testing.assert_array_equal(start, before)
