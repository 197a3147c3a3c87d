"""Survival: the problem as it is printed, censoring, times in every form, and the concordance."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

from kernelmosaic import MKLRegressor, MKLSurvival, load, save
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, by_group
from kernelmosaic.model_selection import PathSearchCV
from kernelmosaic.survival.metrics import concordance

RNG = np.random.RandomState(0)
N = 60
X = RNG.standard_normal((N, 4))
TIME = np.exp(X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.2 * RNG.standard_normal(N))
LIMIT = RNG.exponential(4.0, size=N)
EVENT = TIME <= LIMIT
Y = np.column_stack([EVENT, np.minimum(TIME, LIMIT)]).astype(float)
WEIGHT = RNG.uniform(0.2, 2.0, size=N)
KERNELS = [Linear(), Gaussian(), Polynomial(2)]


def structured(y, dtype=(("event", "?"), ("time", "<f8"))):
    return np.array(list(zip(y[:, 0] > 0, y[:, 1], strict=True)), dtype=list(dtype))


# The problem --------------------------------------------------------------------------------------


def solve_primal(Ks, y, C, epsilon, weight, p):
    """The optimum of min ½ ‖(‖w_m‖)_m‖² + Σ C_i ξ_i, the norm with exponent 2p/(p + 1), by
    Clarabel; p is 1 or ∞.

    One weight per kernel (p = 1) has the sum of the lengths, the same weight for all (p = ∞) that
    of their squares.
    """
    clarabel = pytest.importorskip("clarabel")
    from scipy import sparse
    from tests.reference.conic import factor

    L = np.hstack([factor(K) for K in Ks])
    ends = np.cumsum([0, *(factor(K).shape[1] for K in Ks)])
    n, P = len(y), len(Ks)
    event, target = y[:, 0] > 0, np.log(y[:, 1])
    # Variables: w, b, ξ, the lengths s_m and, for their norm, r.
    width = L.shape[1] + 1 + n + P + 1
    b, xi, s, r = L.shape[1], slice(L.shape[1] + 1, L.shape[1] + 1 + n), width - P - 1, width - 1
    rows, right, cones = [], [], []

    def require(cone, A, bound):
        rows.append(A)
        right.append(bound)
        cones.append(cone)

    f = np.zeros((n, width))
    f[:, :b], f[:, b] = L, 1.0
    slack = np.zeros((n, width))
    slack[:, xi] = np.eye(n)
    require(clarabel.NonnegativeConeT(n), -slack, np.zeros(n))
    require(clarabel.NonnegativeConeT(n), -f - slack, epsilon - target)  # ξ ≥ log t − f − ε
    require(clarabel.NonnegativeConeT(event.sum()), (f - slack)[event], (epsilon + target)[event])
    for m in range(P):
        A = np.zeros((1 + ends[m + 1] - ends[m], width))
        A[0, s + m] = -1.0
        A[1:, ends[m] : ends[m + 1]] = -np.eye(len(A) - 1)
        require(clarabel.SecondOrderConeT(len(A)), A, np.zeros(len(A)))
    total = np.zeros((1 + P, width))
    total[0, r] = -1.0
    total[1:, s : s + P] = -np.eye(P)
    if p == 1:
        total = np.vstack([total[0] - total[1:].sum(axis=0)])
        require(clarabel.NonnegativeConeT(1), total, np.zeros(1))
    else:
        require(clarabel.SecondOrderConeT(1 + P), total, np.zeros(1 + P))
    c, quadratic = np.zeros(width), np.zeros(width)
    c[xi], quadratic[r] = C * weight, 1.0
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    A, diagonal = sparse.csc_matrix(np.vstack(rows)), sparse.diags(quadratic, format="csc")
    found = clarabel.DefaultSolver(diagonal, c, A, np.concatenate(right), cones, settings).solve()
    assert str(found.status) == "Solved"
    return found.obj_val


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["even", "weighted"])
@pytest.mark.parametrize(
    ("settings", "p"), [({}, 1), ({"weights": np.ones(3)}, np.inf)], ids=["learned", "given"]
)
def test_value_is_that_of_the_printed_problem(settings, p, weight):
    model = MKLSurvival(KERNELS, C=0.7, epsilon=0.2, tol=1e-7, **settings).fit(
        X, Y, sample_weight=weight
    )
    matrices = [
        MKLSurvival([kernel]).fit(X, Y, sample_weight=weight).kernel_matrix(X) for kernel in KERNELS
    ]
    best = solve_primal(matrices, Y, 0.7, 0.2, np.ones(N) if weight is None else weight, p)
    assert model.duality_gap_ <= 1e-7
    assert model.objective_ == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize(
    "settings", [{"norm": 2}, {"norm": 1.5}, {"slack": 2}, {"weights": "uniform"}]
)
def test_gap_is_certified_for_every_norm_and_slack(settings):
    model = MKLSurvival(KERNELS, tol=1e-6, **settings).fit(X, Y)
    assert model.duality_gap_ <= 1e-6
    assert np.all(model.dual_coef_[0][~EVENT[model.support_]] >= 0)
    assert np.any(model.dual_coef_[0] < 0)


def test_without_censoring_it_is_regression_on_the_logarithm():
    model = MKLSurvival(KERNELS, tol=1e-6).fit(X, TIME)
    other = MKLRegressor(KERNELS, tol=1e-6).fit(X, np.log(TIME))
    assert model.objective_ == pytest.approx(other.objective_, rel=1e-5)
    assert_allclose(model.predict(X), other.predict(X), atol=1e-2)


def test_a_longer_time_costs_a_censored_sample_nothing():
    late = np.vstack([Y, Y[-1:]])
    late[-1] = 0.0, 1e-6  # known to live beyond the first moment, as everybody does
    more = np.vstack([X, X[-1:] + 0.1])
    with_it, without = (
        MKLSurvival([Linear()], normalize=None, tol=1e-8).fit(*one)
        for one in ((more, late), (X, Y))
    )
    assert with_it.objective_ == pytest.approx(without.objective_, rel=1e-6)


def test_contributions_add_up_to_the_prediction():
    model = MKLSurvival(KERNELS).fit(X, Y)
    assert_allclose(
        model.contributions(X).sum(axis=1) + model.intercept_, model.predict(X), atol=1e-10
    )


# Times in every form ------------------------------------------------------------------------------

FORMS = {
    "structured": structured(Y),
    "the other order, in single precision": structured(Y)[["time", "event"]].astype(
        [("time", "f4"), ("event", "?")]
    ),
    "lists": Y.tolist(),
    "frame": pd.DataFrame({"event": EVENT, "time": Y[:, 1]}),
    "nullable": pd.DataFrame(
        {"event": pd.array(EVENT, dtype="boolean"), "time": pd.array(Y[:, 1], dtype="Float64")}
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_y(name):
    expected = MKLSurvival(KERNELS).fit(X, Y)
    model = MKLSurvival(KERNELS).fit(X, FORMS[name])
    assert_allclose(model.predict(X), expected.predict(X), atol=1e-3)
    assert model.score(X, FORMS[name]) == pytest.approx(expected.score(X, Y), abs=2e-3)


def changed(row, value):
    y = Y.copy()
    y[row] = value
    return y


BAD = {
    "negative": (changed(3, (1, -2.0)), r"the time of sample 3 is -2; times must not be negative"),
    "zero": (
        structured(changed(5, (0, 0.0))),
        r"the time of sample 5 is 0; times must be positive",
    ),
    "no event": (Y * [0, 1], "no event was observed, all times are censored"),
    "no event in a structured array": (structured(Y * [0, 1]), "no event was observed"),
    "a whole number for the event": (
        structured(Y, [("status", "i8"), ("time", "f8")]),
        r"fields \(status: int64, time: float64\): give a structured array of booleans",
    ),
    "no time": (
        structured(Y, [("event", "?"), ("time", "?")]),
        r"fields \(event: bool, time: bool\)",
    ),
    "one field": (structured(Y)[["time"]], r"fields \(time: float64\)"),
    "the other order": (
        Y[:, ::-1],
        r"its first column holds .* Are the columns in the other order\?",
    ),
    "three columns": (np.hstack([Y, Y[:, :1]]), r"y has shape \(60, 3\): give a structured array"),
    "tuples": (structured(Y).astype(object), r"y holds \(.*\): give a structured array"),
    "text": (
        np.where(EVENT, "dead", "alive"),
        r"y holds text \('.*'\) where one number per sample is needed",
    ),
    "nan": (structured(changed(2, (1, np.nan))), "y contains NaN"),
    "too few": (Y[:-1], "inconsistent numbers of samples"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_y_is_said_in_one_error(name):
    y, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        MKLSurvival().fit(X, y)


def test_events_of_weight_zero_are_none():
    with pytest.raises(ValueError, match="no event was observed"):
        MKLSurvival().fit(X, Y, sample_weight=1.0 - EVENT)


def test_a_weight_of_two_is_a_sample_given_twice():
    twice = np.r_[np.arange(N), np.arange(10)]
    weight = np.bincount(twice).astype(float)
    weighted, repeated = (
        MKLSurvival(KERNELS).fit(X, Y, weight),
        MKLSurvival(KERNELS).fit(X[twice], Y[twice]),
    )
    assert_array_equal(weighted.predict(X), repeated.predict(X))
    assert weighted.score(X, Y, weight) == pytest.approx(
        repeated.score(X[twice], Y[twice]), abs=1e-12
    )


# Around it ----------------------------------------------------------------------------------------


def test_searches_of_scikit_learn_take_structured_arrays():
    y = structured(Y)
    search = GridSearchCV(MKLSurvival(KERNELS), {"C": [0.01, 1.0]}, cv=3).fit(X, y)
    assert search.score(X, y) > 0.8
    assert np.all(cross_val_score(MKLSurvival(KERNELS), X, y, cv=3) > 0.5)


def test_cross_validation_along_the_path_is_a_grid_search():
    Cs = [0.01, 0.1, 1.0]
    plain = MKLSurvival(KERNELS)
    model = PathSearchCV(plain, Cs=Cs, norms=(1, "uniform"), cv=3, scale=False, near=None).fit(
        X, structured(Y)
    )
    folds = list(StratifiedKFold(3).split(X, EVENT))
    for norm, scores in model.scores_by_norm_.items():
        one = MKLSurvival(KERNELS, weights="uniform" if norm == "uniform" else None)
        expected = [cross_val_score(one.set_params(C=C), X, Y, cv=folds) for C in Cs]
        assert_allclose(scores, np.transpose(expected), atol=0.02)
    assert model.C_ in Cs
    assert model.score(X, Y) > 0.85


def test_sets_of_genes_in_a_frame_and_in_a_file(tmp_path):
    frame = pd.DataFrame(X, columns=["A", "B", "C", "D"])
    model = MKLSurvival(by_group({"true": ["A", "B"], "noise": ["C", "D"]})).fit(frame, Y)
    assert model.weights_[0] > model.weights_[1]
    save(model, tmp_path / "model.skops")
    assert_array_equal(load(tmp_path / "model.skops").predict(frame), model.predict(frame))


# The concordance ----------------------------------------------------------------------------------


def count_pairs(y, predicted, weight):
    right = pairs = 0.0
    for (event, time), own, w in zip(y, predicted, weight, strict=True):
        for (other_event, other_time), other, v in zip(y, predicted, weight, strict=True):
            if event and (time < other_time or (time == other_time and not other_event)):
                pairs += w * v
                right += w * v * ((own < other) + 0.5 * (own == other))
    return right / pairs


@pytest.mark.parametrize("seed", range(6))
def test_concordance_counts_pairs(seed):
    rng = np.random.RandomState(seed)
    n = 40
    time = rng.randint(1, 8, size=n) if seed % 2 else rng.rand(n) + 0.1
    predicted = rng.randint(0, 5, size=n).astype(float) if seed % 3 else rng.standard_normal(n)
    y, weight = np.column_stack([rng.rand(n) < 0.6, time]).astype(float), rng.rand(n)
    assert concordance(y, predicted, weight) == pytest.approx(
        count_pairs(y, predicted, weight), abs=1e-12
    )
    assert concordance(y, predicted) == pytest.approx(
        count_pairs(y, predicted, np.ones(n)), abs=1e-12
    )


def test_concordance_of_the_truth_and_of_its_opposite():
    assert concordance(Y, Y[:, 1]) == 1.0
    assert concordance(Y, -Y[:, 1]) == 0.0
    assert concordance(Y, np.zeros(N)) == 0.5


def test_concordance_without_comparable_samples():
    with pytest.warns(UndefinedMetricWarning, match="no two samples are comparable"):
        assert np.isnan(concordance(Y * [0, 1], Y[:, 1]))
