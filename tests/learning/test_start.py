"""Where a learner starts: from the end of a like problem, or from nothing where the shapes
differ."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris
from tests.learning.problems import options

from kernelmosaic import DiscriminantMKLClassifier
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.learning.certificate import CombinedKernel, Start
from kernelmosaic.learning.factory import SOLVERS
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.problem import MachineProblem
from kernelmosaic.machines.base import SVC, CrammerSinger, SharedMachines
from kernelmosaic.model_selection import SharedKernels
from kernelmosaic.multiclass.learning import ClassNewton

RNG = np.random.RandomState(0)
X = RNG.standard_normal((60, 4))
KERNELS = np.array([np.exp(-((X[:, None, m] - X[None, :, m]) ** 2)) for m in range(4)])
LABELS = np.digitize(X[:, 0] + X[:, 1] * X[:, 2], [-0.5, 0.5])
SIGNS = np.where(LABELS == 1, 1.0, -1.0)


class CountingStack(StoredStack):
    """Counts how often its kernels are combined."""

    count = 0

    def combine(self, weights, out=None):
        self.count += 1
        return super().combine(weights, out)


@pytest.mark.parametrize("solver", sorted(set(SOLVERS) - {"sdp", "easymkl", "alignment"}))
def test_the_start_of_a_like_machine_leads_to_the_same_optimum(solver):
    stack, learner = StoredStack(KERNELS[:, :30, :30]), SOLVERS[solver](options(4, tol=1e-6))
    first, machine = learner.learn(stack, SVC(SIGNS[:30], 1.0)), SVC(SIGNS[:30], 3.0)
    cold, warm = learner.learn(stack, machine), learner.learn(stack, machine, first.start)
    assert warm.gap <= 1e-6
    assert warm.objective == pytest.approx(cold.objective, rel=2e-6)


def test_what_is_learned_says_where_the_next_may_start():
    machine = SVC(SIGNS, 1.0)
    learned = SOLVERS["newton"](options(4)).learn(StoredStack(KERNELS), machine)
    np.testing.assert_array_equal(learned.start.weights, learned.weights)
    np.testing.assert_array_equal(learned.start.beta, learned.solution.beta)
    assert learned.start.machine is machine
    again = SOLVERS["newton"](options(4)).learn(StoredStack(KERNELS), machine, learned.start)
    assert again.n_solves == 0
    elsewhere = SOLVERS["newton"](options(4)).learn(
        StoredStack(KERNELS), machine, learned.start.without_products()
    )
    assert elsewhere.n_solves == 1


def test_weights_of_other_penalties_are_no_end():
    """The weights of the start lie outside the set of the new ones: what the kernels made of them
    says nothing here."""
    stack, machine = StoredStack(KERNELS), SVC(SIGNS, 1.0)
    start = SOLVERS["newton"](options(4)).learn(stack, machine).start
    assert MachineProblem(stack, machine, options(4)).evaluate_start(start) is not None
    assert (
        MachineProblem(
            stack, machine, options(4, penalties=np.array([1.0, 2.0, 0.5, 1.0]))
        ).evaluate_start(start)
        is None
    )


@pytest.mark.parametrize("norm", [1, 1.5, 2, 4])
def test_a_kernel_without_weight_at_the_start_is_learned_like_any_other(norm):
    """Steps of a power norm are relative to the weights: from zero they went nowhere."""
    stack, machine, learner = StoredStack(KERNELS), SVC(SIGNS, 100.0), SOLVERS["newton"]
    cold = learner(options(4, norm=norm)).learn(stack, machine)
    found = learner(options(4, norm=norm)).learn(
        stack, machine, Start(np.array([0.0, 0.0, 0.0, 1.0]))
    )
    assert found.gap <= 1e-6
    np.testing.assert_allclose(found.weights, cold.weights, atol=5e-3)


def test_coefficients_at_a_bound_start_at_the_new_bound():
    beta = np.where(SIGNS > 0, 1.0, -0.5)
    start = Start(beta=beta, machine=SVC(SIGNS, 1.0)).for_machine(SVC(SIGNS, 2.0))
    np.testing.assert_array_equal(start.beta, np.where(SIGNS > 0, 2.0, -0.5))
    # Coefficients of no machine in particular stay as they are.
    np.testing.assert_array_equal(Start(beta=beta).for_machine(SVC(SIGNS, 2.0)).beta, beta)


def shared_machines(n_outputs):
    return SharedMachines(
        [SVC(np.where(c % 3 == LABELS, 1.0, -1.0), 1.0) for c in range(n_outputs)]
    )


@pytest.mark.parametrize(
    ("start", "machine", "fits"),
    [
        (Start(np.ones(4), np.zeros(60)), SVC(SIGNS, 1.0), True),
        (Start(np.ones(4), np.zeros(59)), SVC(SIGNS, 1.0), False),
        (Start(np.ones(4), np.zeros((60, 3))), CrammerSinger(LABELS, 1.0), True),
        (Start(np.ones(4), np.zeros((60, 4))), CrammerSinger(LABELS, 1.0), False),
        (Start(np.ones((3, 4))), CrammerSinger(LABELS, 1.0), True),
        (Start(np.ones((4, 4))), CrammerSinger(LABELS, 1.0), False),
        (Start(np.ones(4), np.zeros((60, 2))), shared_machines(2), True),
        (Start(np.ones(4), np.zeros((60, 2))), shared_machines(3), False),
    ],
)
def test_starts_of_other_shapes_are_dropped(start, machine, fits):
    fitting = start.for_machine(machine)
    assert (fitting.weights is not None) is fits
    learner = ClassNewton if start.weights.ndim == 2 else SOLVERS["newton"]
    assert learner(options(4)).learn(StoredStack(KERNELS), machine, start).gap <= 1e-3


def test_kernels_are_combined_once_where_problems_share_them():
    stack = CountingStack(KERNELS)
    learner, start = FixedWeights(np.full(4, 0.25)), Start(kernel=CombinedKernel(stack))
    for c in range(3):
        learner.learn(stack, SVC(np.where(c == LABELS, 1.0, -1.0), 1.0), start)
    assert stack.count == 1
    # The kernel of another stack is not taken for this one's.
    other = StoredStack(2.0 * KERNELS)
    found = learner.learn(other, SVC(SIGNS, 1.0), start)
    assert found.objective == learner.learn(other, SVC(SIGNS, 1.0)).objective


def test_one_combined_kernel_serves_changing_weights():
    kernel = CombinedKernel(StoredStack(KERNELS))
    for weights in (np.eye(4)[0], np.full(4, 0.25), np.eye(4)[0]):
        K = kernel.at(weights)
        np.testing.assert_allclose(K.matrix, np.tensordot(weights, KERNELS, 1))


@pytest.mark.parametrize("alphas", [("learn", "learn"), (0.1, "learn"), ("learn", 0.1)])
def test_a_learned_regulariser_may_follow_another_fit(alphas):
    samples, classes = load_iris(return_X_y=True)
    with SharedKernels():
        for alpha in alphas:
            model = DiscriminantMKLClassifier([Gaussian(), Linear()], alpha=alpha).fit(
                samples, classes
            )
    alone = DiscriminantMKLClassifier([Gaussian(), Linear()], alpha=alphas[-1]).fit(
        samples, classes
    )
    assert model.duality_gap_ <= model.tol
    assert model.objective_ == pytest.approx(alone.objective_, rel=2e-3)
