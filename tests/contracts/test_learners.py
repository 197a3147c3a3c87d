"""What every learner of weights must do. The classes are found in the package; each is told here
which kind it is."""

from __future__ import annotations

from inspect import isabstract
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.contracts.discovery import all_subclasses

from kernelmosaic.discriminant.learning import DISCRIMINANT_SOLVERS
from kernelmosaic.learning.certificate import Learned
from kernelmosaic.learning.factory import SOLVERS
from kernelmosaic.learning.norms import make_norm
from kernelmosaic.learning.problem import Learner
from kernelmosaic.multiclass.learning import CLASS_WISE_SOLVERS

pytest.importorskip("clarabel")
from tests.learning.problems import KINDS, learn, make_problem
from tests.reference.conic import solve_mkl_conic, solve_program_conic

#: Learners that reach the optimum over Σ d² η = 1, η ≥ 0.
CONVEX = ("newton", "reduced_gradient", "silp", "qcqp")
#: Learners with a rule of their own for the weights, and those that no `solver` names; tested where
#: they live.
HEURISTIC = ("alignment", "easymkl")
#: Newton steps, which read the machine's curvature, and the conic program, which writes the machine
#: down, with every machine; to the others a machine is its value and slopes, so that they have
#: those of each kind in turn.
PAIRS = [
    *product(("newton", "qcqp"), KINDS),
    *product(("reduced_gradient",), ("svc", "svr squared", "one class")),
    *product(("silp",), ("svc squared", "svr", "one class")),
]
OTHERS = {"SDP", "FixedWeights", "LearnedC"}


def test_every_learner_is_tested():
    tested = {SOLVERS[name].__name__ for name in CONVEX + HEURISTIC} | OTHERS
    # Their tests take every one of them by its name.
    for solvers in (SOLVERS, CLASS_WISE_SOLVERS, DISCRIMINANT_SOLVERS):
        tested |= {learner.__name__ for learner in solvers.values()}
    untested = {cls.__name__ for cls in all_subclasses(Learner) if not isabstract(cls)} - tested
    assert untested == set(), (
        "name its solver in CONVEX or HEURISTIC, so that the tests below cover it"
    )
    assert tested <= {cls.__name__ for cls in all_subclasses(Learner)}
    assert set(SOLVERS) == {*CONVEX, *HEURISTIC, "sdp"}


@pytest.fixture(scope="module")
def solved():
    """Each problem with its conic reference, solved once for all learners."""
    kept = {}

    def get(kind, seed):
        if (kind, seed) not in kept:
            Ks, machine, d = make_problem(kind, seed)
            kept[kind, seed] = Ks, machine, d, *solve_mkl_conic(Ks, machine.program, d)[:2]
        return kept[kind, seed]

    return get


@pytest.fixture(scope="module")
def learned():
    """What each learner finds of each problem, learned once."""
    kept = {}

    def get(solver, kind, seed):
        if (solver, kind, seed) not in kept:
            Ks, machine, d = make_problem(kind, seed)
            kept[solver, kind, seed] = learn(SOLVERS[solver], Ks, machine, penalties=d)
        return kept[solver, kind, seed]

    return get


@pytest.mark.parametrize(("solver", "kind"), PAIRS)
def test_reaches_the_conic_optimum(solver, kind, solved, learned):
    # The many steps of first-order solvers are those of one problem.
    for seed in range(2) if solver not in ("reduced_gradient", "silp") else [1]:
        _, _, d, optimum, weights = solved(kind, seed)
        found = learned(solver, kind, seed)
        assert isinstance(found, Learned)
        assert found.gap <= 1e-6, (seed, found.gap)
        assert found.objective == pytest.approx(optimum, rel=1e-5), seed
        assert_allclose(found.weights, weights, atol=1e-2, err_msg=str(seed))
        assert_allclose(found.weights @ d**2, 1.0, rtol=1e-12)


@pytest.mark.parametrize(("solver", "kind"), PAIRS)
def test_gap_is_a_true_bound_long_before_the_end(solver, kind, solved):
    for seed, tol in enumerate([0.3, 1e-2]):
        Ks, machine, d, optimum, _ = solved(kind, seed)
        found = learn(SOLVERS[solver], Ks, machine, penalties=d, tol=tol)
        assert found.gap <= tol
        scale = max(abs(found.objective), abs(optimum))
        assert -1e-7 * scale <= found.objective - optimum <= found.gap * 1.5 * scale + 1e-7 * scale
        # Nor is the objective only a number: the machine at these weights is worth no less.
        at_weights, _ = solve_program_conic(np.tensordot(found.weights, Ks, 1), machine.program)
        assert at_weights <= found.objective + 1e-7 * scale


@pytest.mark.parametrize(("solver", "kind"), [*PAIRS, *product(HEURISTIC, KINDS)])
def test_solution_is_that_of_the_machine_at_the_weights(solver, kind, learned):
    Ks, machine, d = make_problem(kind, 1)
    if not all(getattr(machine, need) for need in SOLVERS[solver].machine_needs):
        pytest.skip("refused; see below")
    found = learned(solver, kind, 1)
    program, beta = machine.program, found.solution.beta
    assert np.all((beta >= program.lower) & (beta <= program.upper))
    if program.total is not None:
        assert beta.sum() == pytest.approx(program.total, abs=1e-9 * max(1.0, np.abs(beta).sum()))
    K = np.tensordot(found.weights, Ks, 1)
    assert_allclose(found.solution.values, K @ beta, rtol=1e-8, atol=1e-8 * np.abs(K @ beta).max())
    value = program.linear_value(beta) - 0.5 * beta @ K @ beta
    assert value == pytest.approx(solve_program_conic(K, program)[0], rel=1e-5)
    assert np.all(found.weights >= 0)
    assert found.weights @ d**2 == pytest.approx(1.0)


@pytest.mark.parametrize("solver", [*CONVEX, *HEURISTIC])
def test_history_ends_with_the_result(solver):
    Ks, machine, d = make_problem("svc", 2)
    found = learn(SOLVERS[solver], Ks, machine, penalties=d)
    # What is returned has the smallest gap, the history the smallest objective: at the optimum they
    # differ by rounding.
    assert found.history[-1].objective == pytest.approx(found.objective, rel=1e-12)
    assert found.history[-1].gap == found.gap
    assert found.n_solves >= 1


@pytest.mark.parametrize("solver", [*CONVEX, *HEURISTIC])
def test_one_kernel_is_the_plain_machine(solver):
    Ks, machine, _ = make_problem("svc", 3)
    found = learn(SOLVERS[solver], Ks[1:2], machine)
    assert_allclose(found.weights, [1.0])
    plain = machine.solve(Ks[1], tol=1e-10)
    assert found.objective == pytest.approx(plain.objective, rel=1e-5)
    assert_allclose(found.solution.values, plain.values, atol=2e-2 * np.abs(plain.values).max())


@pytest.mark.parametrize(
    ("solver", "kind"),
    [("newton", "svr"), ("reduced_gradient", "svc"), ("silp", "svc squared"), ("qcqp", "svr")],
)
def test_duplicates_and_zeros_change_nothing(solver, kind):
    Ks, machine, _ = make_problem(kind, 4)
    optimum, weights, _ = solve_mkl_conic(Ks, machine.program)
    doubled = np.concatenate([Ks, Ks[2:3], Ks[1:2], np.zeros_like(Ks[:1])])
    found = learn(SOLVERS[solver], doubled, machine)
    assert found.objective == pytest.approx(optimum, rel=1e-5)
    assert found.gap <= 1e-6
    merged = found.weights[:6].copy()
    merged[2] += found.weights[6]
    merged[1] += found.weights[7]
    assert_allclose(merged, weights, atol=1e-2)
    assert found.weights[8] < 1e-6


@pytest.mark.parametrize("solver", CONVEX)
def test_stops_at_max_iter_and_says_how_far_it_came(solver, solved):
    Ks, machine, d, optimum, _ = solved("svc", 1)
    found = learn(SOLVERS[solver], Ks, machine, penalties=d, max_iter=2, tol=1e-12)
    assert len(found.history) <= 3
    assert found.objective * (1 - found.gap) <= optimum * (1 + 1e-7) <= found.objective * (1 + 2e-7)


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_refuses_by_name_what_it_does_not_serve(name):
    learner = SOLVERS[name]
    for given in (1, 2):
        norm = make_norm(given)
        if norm.sums_to_one or not learner.norm_needs:
            learner.require(name, norm)
        else:
            message = rf"solver='{name}' supports norm=1, not norm={given!r}; use solver='newton'"
            with pytest.raises(ValueError, match=message):
                learner.require(name, norm)
    for kind in KINDS:
        machine = make_problem(kind, 0)[1]
        if all(getattr(machine, need) for need in learner.machine_needs):
            learner.require(name, machine=machine)
        else:
            with pytest.raises(
                ValueError,
                match=f"solver='{name}' supports machines .*, not {type(machine).__name__}; use",
            ):
                learner.require(name, machine=machine)


def test_machines_declare_what_their_programs_are():
    for kind in KINDS:
        machine = make_problem(kind, 0)[1]
        p = machine.program
        assert machine.has_targets == bool(p.target.any()), kind
        signed = np.all(np.abs(p.target) == 1) and np.all(
            np.where(p.target > 0, p.lower, p.upper) == 0
        )
        assert machine.has_labels == bool(signed), kind
        mixed = (p.ridge > 0) & (np.isfinite(p.upper) & (p.upper > 0))
        assert machine.has_one_slack == (not mixed.any()), kind
