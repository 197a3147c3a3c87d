"""The SMO solver against a conic program and LIBSVM, and its habits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC, SVR, OneClassSVM
from tests.calls import recorded
from tests.reference.programs import MAKERS, assert_feasible, cases, make_case, one_class, svm

from kernelmosaic.gram.gram import DenseGram
from kernelmosaic.solvers import free_newton, smo
from kernelmosaic.solvers.free_newton import (
    GramForm,
    InverseForm,
    LowRankForm,
    block_form,
    newton_on_free,
)
from kernelmosaic.solvers.program import Program
from kernelmosaic.solvers.smo import solve_smo
from kernelmosaic.solvers.tuning import SolverOptions

often = settings(max_examples=75, derandomize=True, deadline=None)
sometimes = settings(max_examples=35, derandomize=True, deadline=None)


@pytest.fixture(scope="module")
def conic():
    return pytest.importorskip("tests.reference.conic")


# ---- against the conic reference: every kind of program, hundreds of them


@often
@given(case=cases())
def test_the_optimum_is_reached_and_the_gap_is_a_true_bound(conic, case):
    optimum, _ = conic.solve_program_conic(case.exact, case.program)
    solution = solve_smo(case.K, case.program, tol=1e-6)
    assert_feasible(case.program, solution.beta)
    np.testing.assert_allclose(
        solution.values, case.exact @ solution.beta, atol=1e-8 * (1 + np.abs(solution.beta).sum())
    )
    dual, primal = case.dual(solution.beta), case.primal(solution.beta, solution.intercept)
    rounding = 1e-7 * max(abs(primal), abs(dual)) + 1e-9
    assert solution.gap <= 1e-6
    assert solution.objective == pytest.approx(dual, abs=rounding)
    assert dual <= optimum + rounding
    assert optimum <= primal + rounding
    assert optimum - dual <= solution.gap * max(abs(primal), abs(dual)) + rounding


@often
@given(case=cases(), max_iter=st.integers(0, 30))
def test_the_gap_is_a_true_bound_long_before_the_optimum(conic, case, max_iter):
    solution = solve_smo(case.K, case.program, tol=1e-9, max_iter=max_iter)
    assert solution.n_iter <= max_iter
    assert_feasible(case.program, solution.beta)
    optimum, _ = conic.solve_program_conic(case.exact, case.program)
    primal = case.primal(solution.beta, solution.intercept)
    scale = max(abs(primal), abs(solution.objective))
    assert optimum - solution.objective <= solution.gap * scale + 1e-7 * scale + 1e-9


@sometimes
@given(case=cases(), seed=st.integers(0, 1000))
def test_no_step_loses(case, seed):
    start = case.program.feasible(
        np.random.RandomState(seed).standard_normal(case.program.n_samples)
    )
    # Newton steps are not counted: a solve that may take fewer steps can take one of those and end
    # higher.
    plain, newton = (
        np.array(
            [
                solve_smo(case.K, case.program, start, 0.0, steps, one).objective
                for steps in range(12)
            ]
        )
        for one in (SolverOptions(newton_after=np.inf), SolverOptions())
    )
    assert np.all(np.diff(plain) >= -1e-12 * np.abs(plain).max())
    assert np.all(newton - plain >= -1e-12 * np.abs(plain).max())


@sometimes
@given(case=cases(), seed=st.integers(0, 1000), size=st.floats(-2, 2))
def test_warm_starts_end_at_the_same_optimum(case, seed, size):
    p = case.program
    cold = solve_smo(case.K, p, tol=1e-6)
    anywhere = 10.0**size * np.random.RandomState(seed).standard_normal(p.n_samples)
    for start in (anywhere, p.feasible(anywhere), cold.beta):
        kept = start.copy()
        warm = solve_smo(case.K, p, warm_start=start, tol=1e-6)
        np.testing.assert_array_equal(start, kept)
        assert_feasible(p, warm.beta)
        assert warm.gap <= 1e-6
        assert warm.objective == pytest.approx(cold.objective, rel=3e-6, abs=1e-9)
    assert warm.n_iter <= 1000  # it started where the cold solve had ended


# The paths large problems take, forced on small ones.
@sometimes
@given(case=cases())
def test_compact_blocks_and_newton_steps_change_nothing_but_the_path(conic, case):
    options = SolverOptions(
        min_compact_samples=2, compact_fraction=2.0, newton_after=0.5, flops_per_step=np.inf
    )
    solution = solve_smo(case.K, case.program, tol=1e-6, options=options)
    assert solution.gap <= 1e-6
    assert_feasible(case.program, solution.beta)
    optimum, _ = conic.solve_program_conic(case.exact, case.program)
    assert solution.objective == pytest.approx(optimum, rel=3e-6, abs=1e-8)


@often
@given(case=cases(), seed=st.integers(0, 1000))
def test_a_newton_step_gains_and_stays_feasible(case, seed):
    p, rng = case.program, np.random.RandomState(seed)
    beta = p.feasible(np.abs(p.target).max() * rng.standard_normal(p.n_samples))
    free = p.free(beta)
    residual = p.target - case.exact @ beta - p.ridge * beta
    moved = beta.copy()
    assume(len(free) > 1)
    slope = residual[free] - p.epsilon * np.sign(beta[free])
    form = block_form(case.K[np.ix_(free, free)], p.ridge[free])
    given = form, beta[free], slope, p.sign_limits(free, beta[free]), p.total is not None
    moved[free], _ = newton_on_free(*given, np.inf)
    assume(np.any(moved != beta))
    assert_feasible(p, moved)
    assert case.dual(moved) >= case.dual(beta) - 1e-12 * (1 + abs(case.dual(beta)))


def test_a_newton_step_alone_solves_a_problem_without_bounds():
    case = make_case("ridge", 20, 3.0, "narrow", 0)
    p, beta = case.program, np.zeros(20)
    form = block_form(case.K, p.ridge)
    best, steps = newton_on_free(
        form, beta, p.target, (p.lower, p.upper), p.total is not None, np.inf
    )
    assert steps == 1
    assert case.dual(best) == pytest.approx(solve_smo(case.K, p, tol=1e-9).objective, rel=1e-8)


@pytest.mark.parametrize("sums", [True, False])
@pytest.mark.parametrize(("rank", "kind"), [(3, LowRankForm), (100, InverseForm), (100, GramForm)])
def test_every_form_gives_the_direction_of_the_samples_kept(rank, kind, sums):
    rng = np.random.RandomState(0)
    n, Z = 100, rng.standard_normal((100, rank))
    K, ridge, slope = Z @ Z.T, rng.uniform(1.0, 2.0, n), rng.standard_normal(n)
    form = GramForm(DenseGram(K), ridge, n) if kind is GramForm else block_form(K, ridge)
    assert isinstance(form, kind)
    for kept in (np.arange(n), np.arange(0, n, 2)):
        A, ones = (K + np.diag(ridge))[np.ix_(kept, kept)], np.ones((len(kept), 1))
        bordered = np.block([[A, ones], [ones.T, np.zeros((1, 1))]]) if sums else A
        expected = np.linalg.solve(bordered, np.append(slope[kept], 0.0) if sums else slope[kept])[
            : len(kept)
        ]
        np.testing.assert_allclose(
            form.direction(slope[kept], sums), expected, rtol=1e-6, atol=1e-8
        )
        np.testing.assert_allclose(
            form.multiply(slope[kept]), A @ slope[kept], rtol=1e-6, atol=1e-6
        )
        form.keep(np.arange(len(kept)) % 2 == 0)


# ---- against LIBSVM, which reads kernels in single precision: they are given as such, so both read the same


def training_set(seed, n=60):
    rng = np.random.RandomState(seed)
    X = rng.randn(n, 4)
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 4).astype(np.float32)
    return rng, X, K, K.astype(np.float64)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_svc(seed, C, weighted):
    rng, X, K, K64 = training_set(seed)
    y = np.sign(X[:, 0] + 0.5 * rng.randn(60))
    sample_C = C * (rng.gamma(2.0, size=60) if weighted else np.ones(60))
    libsvm = SVC(C=C, kernel="precomputed", tol=1e-8).fit(K64, y, sample_weight=sample_C / C)
    beta = np.zeros(60)
    beta[libsvm.support_] = libsvm.dual_coef_[0]
    program = Program(y, np.where(y > 0, 0, -sample_C), np.where(y > 0, sample_C, 0), np.zeros(60))
    solution = solve_smo(K, program, tol=1e-9)
    assert solution.objective == pytest.approx(y @ beta - 0.5 * beta @ K64 @ beta, rel=1e-7)
    np.testing.assert_allclose(
        solution.values + solution.intercept, libsvm.decision_function(K64), atol=1e-4
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
def test_svr(seed, C):
    rng, X, K, K64 = training_set(seed)
    y = np.sin(X[:, 0]) + 0.3 * rng.randn(60)
    libsvm = SVR(C=C, epsilon=0.1, kernel="precomputed", tol=1e-8).fit(K64, y)
    beta = np.zeros(60)
    beta[libsvm.support_] = libsvm.dual_coef_[0]
    program = Program(y, np.full(60, -C), np.full(60, C), np.zeros(60), epsilon=0.1)
    solution = solve_smo(K, program, tol=1e-9)
    value = y @ beta - 0.1 * np.abs(beta).sum() - 0.5 * beta @ K64 @ beta
    assert solution.objective == pytest.approx(value, rel=1e-7)
    np.testing.assert_allclose(solution.values + solution.intercept, libsvm.predict(K64), atol=1e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("nu", [0.04, 0.33, 0.88])
def test_one_class(seed, nu):
    # ν times 60 is no whole number, so that some coefficient lies between its bounds and tells the
    # intercept.
    _, _, K, K64 = training_set(seed)
    libsvm = OneClassSVM(nu=nu, kernel="precomputed", tol=1e-9).fit(K64)
    beta = np.zeros(60)
    # LIBSVM's coefficients sum to νn and are at most 1; here they sum to 1.
    beta[libsvm.support_] = libsvm.dual_coef_[0] / (nu * 60)
    solution = solve_smo(K, one_class(60, 1 / (nu * 60)), tol=1e-9)
    assert solution.objective == pytest.approx(-0.5 * beta @ K64 @ beta, rel=1e-7)
    decision = nu * 60 * (solution.values + solution.intercept)
    np.testing.assert_allclose(decision, libsvm.decision_function(K64), atol=1e-4)


# ---- habits


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_the_same_answer_twice(kind):
    case = make_case(kind, 40, 10.0, "wide", 0, np.float32)
    one, other = (solve_smo(case.K, case.program, tol=1e-7) for _ in range(2))
    np.testing.assert_array_equal(one.beta, other.beta)
    assert (one.intercept, one.objective, one.gap, one.n_iter) == (
        other.intercept,
        other.objective,
        other.gap,
        other.n_iter,
    )


def test_a_near_start_takes_fewer_pair_steps():
    steps, pairs = [], SolverOptions(newton_after=np.inf)
    for seed in range(5):
        case = make_case("svm", 200, 10.0, "narrow", seed)
        cold = solve_smo(case.K, case.program, options=pairs)
        rng = np.random.RandomState(seed)
        near = cold.beta * (1 + 0.05 * rng.standard_normal(200))
        steps.append((cold.n_iter, solve_smo(case.K, case.program, near, options=pairs).n_iter))
    cold, warm = np.array(steps).T
    assert np.all(warm < cold)
    assert warm.sum() < 0.5 * cold.sum()


def test_steps_run_out_with_a_gap_to_tell():
    case = make_case("svm", 300, 100.0, "wide", 0)
    solution = solve_smo(case.K, case.program, tol=1e-6, max_iter=50)
    assert solution.n_iter == 50
    assert solution.gap > 1e-6
    nothing = solve_smo(case.K, case.program, tol=1e-6, max_iter=0)
    assert not nothing.beta.any()
    assert nothing.gap > solution.gap


@pytest.mark.parametrize("start", [None, np.zeros(4), np.full(4, 9.0)])
def test_an_infeasible_total_is_refused(start):
    with pytest.raises(ValueError, match="No β is feasible"):
        solve_smo(np.eye(4), one_class(4, 0.2), warm_start=start)


def test_shapes_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match=r"shape \(3, 3\).* 4 samples"):
        solve_smo(np.eye(3), svm(np.array([1.0, -1.0, 1.0, -1.0]), 1.0))
    with pytest.raises(ValueError, match=r"\(3,\)"):
        solve_smo(np.eye(4), svm(np.array([1.0, -1.0, 1.0, -1.0]), 1.0), warm_start=np.zeros(3))


def test_any_numbers_in_any_order_of_memory():
    case = make_case("svm", 30, 1.0, "wide", 2)
    expected = solve_smo(case.K, case.program, tol=1e-6)
    for K in (np.asfortranarray(case.K), case.K[::-1][:, ::-1][::-1][:, ::-1]):
        np.testing.assert_array_equal(solve_smo(K, case.program, tol=1e-6).beta, expected.beta)
    whole = (10 * case.K).round().astype(int) + 30 * np.eye(30, dtype=int)
    as_numbers = solve_smo(whole.astype(float), case.program)
    np.testing.assert_array_equal(solve_smo(whole, case.program).beta, as_numbers.beta)


def test_large_problems_are_solved_on_the_active_samples():
    rng = np.random.RandomState(0)
    n = 2100
    X = rng.randn(n, 3)
    squares = (X**2).sum(1)
    K = np.exp(-(squares[:, None] + squares - 2 * X @ X.T) / 4).astype(np.float32)
    program = svm(np.sign(X[:, 0] + 0.3 * rng.randn(n)), 1.0)
    with recorded(smo.SMOState.run_alone, lambda given: len(given["active"])) as sizes:
        compact = solve_smo(K, program, tol=1e-6)
    assert sizes
    assert max(sizes) < n / 2
    with recorded(smo.SMOState.run_alone) as sizes:
        whole = solve_smo(K, program, tol=1e-6, options=SolverOptions(min_compact_samples=n + 1))
    assert not sizes
    assert compact.gap <= 1e-6
    assert compact.objective == pytest.approx(whole.objective, rel=2e-6)


@pytest.mark.parametrize("place", [(0, 0), (0, 1)])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_matrix_that_is_no_matrix_is_refused(place, bad):
    K = np.eye(4)
    K[place] = K[place[::-1]] = bad
    t = np.array([1.0, -1.0, 1.0, -1.0])
    program = Program(t, np.minimum(0, t), np.maximum(0, t), np.zeros(4))
    with pytest.raises(ValueError, match="K holds NaN or infinity"):
        solve_smo(K, program, tol=1e-9)


def test_a_gap_that_rounds_to_zero_before_the_certificate_does(monkeypatch):
    # With huge bounds the two values agree to all digits at the suggested intercept, and not at the
    # best one.
    rng = np.random.RandomState(0)
    Z, y = rng.standard_normal((30, 3)), np.where(rng.rand(30) < 0.5, -1.0, 1.0)
    honest = smo.SMOState.gap

    def rounded(climb):
        honest(climb)
        return 0.0

    monkeypatch.setattr(smo.SMOState, "gap", rounded)
    assert solve_smo(Z @ Z.T, svm(y, 10.0), tol=1e-6).gap <= 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_point_of_a_large_box_is_found_in_few_passes(monkeypatch, seed):
    # The coefficients sum to zero, and so does the step: neither says by how much sums of large
    # numbers are rounded.
    rng = np.random.default_rng(seed)
    beta, step, passes = 1e6 * rng.uniform(0.1, 0.9, 40), 1e5 * rng.normal(size=40), []
    beta -= beta.mean()
    end, lower, upper = beta + step - step.mean(), np.full(40, -5e5), np.full(40, 2e6)
    clip = np.clip
    with monkeypatch.context() as patch:
        patch.setattr(free_newton.np, "clip", lambda *given: passes.append(1) or clip(*given))
        nearest = free_newton._nearest_of_same_sum(end, beta, lower, upper)
    assert len(passes) <= 6
    assert nearest.sum() == pytest.approx(beta.sum(), abs=1e-7)
    # One shift for all that are not at a bound.
    shift = (end - nearest)[(nearest > lower) & (nearest < upper)]
    assert np.ptp(shift) <= 1e-8
    assert np.allclose(nearest, np.clip(end - shift[0], lower, upper), atol=1e-8)
