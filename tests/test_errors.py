"""Wrong input of every kind: what is raised names the parameter, what was given, and what would
do."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from tests.calls import recorded

from kernelmosaic import (
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLSurvival,
    PosteriorMKLClassifier,
)
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.kernels import Correlation, Gaussian, Linear, Polynomial, Precomputed, Spectrum

X, Y = make_classification(60, 4, flip_y=0.2, random_state=0)
ALL = [MKLClassifier, MKLRegressor, MKLOneClass]
PENALISED = [MKLClassifier, MKLRegressor]
ONE = [("line", Linear())]
TWO = [("line", Linear()), ("bell", Gaussian("nearest"))]
ROWS = np.arange(4)


def each(estimators, *cases):
    return [
        pytest.param(e, *case, id=f"{e.__name__}-{case[0]}") for e in estimators for case in cases
    ]


# Parameters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "params", "error", "words"),
    [
        *each([MKLClassifier], ({"n_jobs": 0}, ValueError, "n_jobs == 0")),
        *each(
            ALL,
            ({"tol": 0}, ValueError, "tol=0: give a positive, finite number"),
            ({"tol": -1e-3}, ValueError, "tol=-0.001: give a positive, finite number"),
            ({"tol": np.nan}, ValueError, "tol=nan"),
            ({"tol": "small"}, TypeError, "tol='small': give a positive, finite number"),
            ({"max_iter": 0}, ValueError, "max_iter=0: give a whole number of at least 1"),
            ({"max_iter": 2.5}, ValueError, "max_iter=2.5"),
            (
                {"normalize": "unit"},
                ValueError,
                "normalize='unit': choose one of .*'trace'.*'diagonal'",
            ),
            ({"normalize": 1}, ValueError, "normalize=1"),
            ({"solver": "magic"}, ValueError, "solver='magic': choose one of .*'newton'"),
            ({"norm": 0.5}, ValueError, "norm=0.5: give 1 .* above 1"),
            ({"norm": np.inf}, ValueError, "norm=inf"),
            ({"norm": "l1"}, ValueError, "norm='l1'"),
            ({"weights": [1.0, -0.1]}, ValueError, r"weights=\[1.0, -0.1\]: .*negative"),
            ({"weights": [0.0, 0.0]}, ValueError, r"weights=\[0.0, 0.0\]: .*all zero"),
            ({"weights": [1.0]}, ValueError, r"weights has shape \(1,\), but there are 2 kernels"),
            ({"weights": [[1.0, 1.0]]}, ValueError, "weights has shape"),
            ({"weights": [1.0, np.nan]}, ValueError, "weights=.*NaN"),
            (
                {"weights": "equal"},
                ValueError,
                "weights='equal': give 'uniform', 2 numbers, or None",
            ),
            ({"weights": ["a", "b"]}, TypeError, "weights=.*2 numbers"),
            ({"penalties": [1.0, 0.0]}, ValueError, r"penalties=\[1.0, 0.0\]: .*positive"),
            ({"penalties": [-1.0, 2.0]}, ValueError, "penalties=.*positive"),
            (
                {"penalties": [1.0, 2.0, 3.0]},
                ValueError,
                r"penalties has shape \(3,\), but there are 2 kernels",
            ),
            ({"memory_budget": -1}, ValueError, "memory_budget=-1: give a positive, finite number"),
            (
                {"memory_budget": "1 GB"},
                TypeError,
                "memory_budget='1 GB': give a positive, finite number",
            ),
        ),
        *each(
            PENALISED,
            ({"C": 0}, ValueError, "C=0: give a positive"),
            ({"C": -1.0}, ValueError, "C=-1.0: give a positive"),
            ({"C": np.nan}, ValueError, "C=nan: give a positive"),
            ({"C": None}, TypeError, "C=None: give a positive"),
            ({"slack": 3}, ValueError, "slack=3: .*give 1 or 2"),
        ),
        *each(
            [MKLClassifier],
            ({"C": "1"}, ValueError, "C='1': give a positive number, or 'learn'"),
            ({"multi_class": "all"}, ValueError, "multi_class='all': .*'ovr'"),
            ({"class_weight": "equal"}, ValueError, "class_weight='equal': .*'balanced'"),
            ({"class_weight": {0: 1.0, 1: -2.0}}, ValueError, "class_weight=.*positive"),
            ({"class_weight": {0: 1.0, 7: 2.0}}, ValueError, "class_weight"),
        ),
        *each(
            [MKLRegressor],
            ({"C": np.inf}, ValueError, "C=inf: .*finite"),
            ({"epsilon": -0.1}, ValueError, "epsilon=-0.1: give a finite number of at least zero"),
            ({"epsilon": None}, TypeError, "epsilon=None"),
            ({"C": "1"}, TypeError, "C='1': give a positive, finite number"),
        ),
        *each(
            [MKLOneClass],
            ({"nu": 0}, ValueError, "nu=0: give a positive, finite number"),
            ({"nu": 1.5}, ValueError, "nu=1.5: with slack=1 .*; give a number above 0, up to 1"),
            ({"nu": "half"}, TypeError, "nu='half'"),
            ({"normalize": "centered"}, ValueError, "normalize='centered': .*origin.*'trace'"),
        ),
    ],
)
def test_parameters(estimator, params, error, words):
    with pytest.raises(error, match=words):
        estimator(TWO, **params).fit(X, Y)


@pytest.mark.parametrize("estimator", ALL)
def test_the_device_that_others_call_gpu(estimator):
    with pytest.raises(ValueError, match="device='gpu': write device='cuda'"):
        estimator(ONE, device="gpu").fit(X, Y)


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize(
    ("kernels", "error", "words"),
    [
        ([], ValueError, "kernels is empty: give at least one kernel"),
        ("rbf", TypeError, r"kernels='rbf': kernels are objects: write Gaussian\(\)"),
        ([Linear(), "rbf"], TypeError, r"kernels\[1\]='rbf'"),
        ([("a", np.dot)], TypeError, r"is not a kernel; .*Precomputed\(K\)"),
        (np.dot, TypeError, r"kernels=<.*Precomputed\(K\)"),
        ({"a": Linear()}, TypeError, r"kernels=\{'a': Linear\(\)\}.*list\(kernels.items\(\)\)"),
        (("a", Linear()), TypeError, r"give a list, \[\('a', Linear\(\)\)\]"),
        ([["a", Linear()]], TypeError, r"kernels\[0\]=.*write the tuple \('a', Linear\(\)\)"),
        ([("a", Linear()), ("a", Gaussian())], ValueError, "the name 'a' is used 2 times"),
        ([("a", Linear(), [9])], ValueError, r"kernel 'a': columns \[9\] do not fit the 4 of X"),
        ([("a", Linear(), ["size"])], ValueError, r"kernel 'a': columns \['size'\]"),
        ([("a", Linear(), [])], ValueError, "kernel 'a': .*select none"),
        (
            [("a", Linear(), [True, False])],
            ValueError,
            r"kernel 'a': columns \[True, False\] is a mask of 2 for the 4",
        ),
        (
            [("a", Linear(), np.ones(5, dtype=bool))],
            ValueError,
            "kernel 'a': .* a mask of 5 for the 4 columns of X: give",
        ),
        ([("a", Gaussian(-1.0))], ValueError, "kernel 'a': width=-1.0"),
        ([("a", Gaussian("broad"))], ValueError, "kernel 'a': width='broad'.*'nearest'"),
        ([("a", Polynomial(0))], ValueError, "kernel 'a': degree=0"),
        ([("a", Spectrum(2))], (TypeError, ValueError), "kernel 'a': X"),
    ],
)
def test_kernels(estimator, kernels, error, words):
    with pytest.raises(error, match=words):
        estimator(kernels).fit(X, Y)


BAD_MATRICES = {
    "oblong": (np.ones((4, 3)), r"kernel 'K': K has shape \(4, 3\): .*square"),
    "lopsided": (np.eye(4) + np.eye(4, k=1), r"kernel 'K': K\[\d, \d\] is .*symmetric"),
    "indefinite": (
        np.diag([1.0, 1.0, 1.0, -0.5]),
        "kernel 'K': K has the eigenvalue -0.5: .*positive semi-definite",
    ),
    "missing": (
        np.diag([1.0, np.nan, 1.0, 1.0]),
        r"kernel 'K': K\[1, 1\] is nan: K must be finite",
    ),
    "infinite": (np.diag([1.0, np.inf, 1.0, 1.0]), r"kernel 'K': K\[1, 1\] is inf"),
    "words": ([["a"]], "kernel 'K': K must be a matrix of real numbers"),
}


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize(("matrix", "words"), BAD_MATRICES.values(), ids=BAD_MATRICES)
def test_kernel_matrices(estimator, matrix, words):
    with pytest.raises(ValueError, match=words):
        estimator([("K", Precomputed(matrix))]).fit(ROWS, [0, 0, 1, 1])


@pytest.mark.parametrize(
    "rows", [[0, 1, 2, 4], [0, 1, 2, -1], [0, 1, 2, 1.5], [0, 1, 2, np.nan], [[0, 1]] * 4]
)
def test_row_numbers(rows):
    with pytest.raises(ValueError, match=r"kernel 'K': X.*row numbers"):
        MKLClassifier([("K", Precomputed(np.eye(4)))]).fit(rows, [0, 0, 1, 1])


def test_a_matrix_with_rounding_errors_is_welcome():
    rng = np.random.RandomState(0)
    A = rng.normal(size=(20, 3))
    K = A @ A.T + 1e-12 * rng.normal(size=(20, 20))
    MKLClassifier([Precomputed(K)]).fit(np.arange(20), A[:, 0] > 0)


# Samples ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_with_holes(estimator, bad):
    broken = X.copy()
    broken[3, 1] = bad
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        estimator(ONE).fit(broken, Y)
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        estimator(ONE, weights="uniform").fit(X + 5.0, Y).predict(broken)


@pytest.mark.parametrize("estimator", ALL)
def test_text_among_the_numbers(estimator):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcd")).assign(word=["ACGT", *["7"] * 59])
    message = (
        r"X: column 'word' holds text \('ACGT'\) where numbers are needed: .*\(name, kernel,"
        r" columns\)"
    )
    with pytest.raises(ValueError, match=message):
        estimator(ONE).fit(frame, Y)
    with pytest.raises(ValueError, match=r"X: column 4 holds text \('ACGT'\)"):
        estimator(ONE).fit(frame.to_numpy(), Y)
    with pytest.raises(ValueError, match=r"kernel 'line': X: column 1 holds text \('ACGT'\)"):
        estimator([("line", Linear(), ["a", "word"])]).fit(frame, Y)
    estimator(
        [("line", Linear(), ["a", "b"]), ("words", Spectrum(1), ["word"])], weights="uniform"
    ).fit(frame, Y)


def test_text_among_the_targets_is_not_blamed_on_the_samples():
    with pytest.raises(ValueError, match=r"y holds text \('much'\)"):
        MKLRegressor(ONE).fit(X, np.array(["much", *[1.0] * 59], dtype=object))


def test_targets_with_holes():
    with pytest.raises(ValueError, match="Input y contains NaN"):
        MKLRegressor(ONE).fit(X, np.where(Y == 1, np.nan, 0.0))
    with pytest.raises(ValueError, match="requires y to be passed"):
        MKLRegressor(ONE).fit(X, None)
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        MKLClassifier(ONE).fit(X, X[:, 0])


def test_one_class_is_not_enough():
    with pytest.raises(ValueError, match=r"one class only, \[3\]: .*at least two classes"):
        MKLClassifier(ONE).fit(X, np.full(60, 3))
    with pytest.raises(ValueError, match=r"one class only, \[1\]"):
        MKLClassifier(ONE).fit(X, Y, sample_weight=(Y == 1).astype(float))


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (-np.ones(60), "sample_weight"),
        (np.zeros(60), "sample_weight is zero everywhere: at least one sample must count"),
        (np.ones(59), "sample_weight"),
        (np.full(60, np.nan), "sample_weight contains NaN"),
        (np.ones((60, 2)), "[Ss]ample.weight"),
        ("balanced", "sample_weight='balanced': give one number per sample, or None"),
        (["heavy"] * 60, r"sample_weight=\['heavy', .*: give one number per sample, or None"),
        ([None] * 60, "[Ss]ample.weight"),
    ],
    ids=["negative", "zero", "short", "missing", "table", "word", "words", "none"],
)
def test_sample_weights(estimator, weight, words):
    with pytest.raises(ValueError, match=words):
        estimator(ONE).fit(X, Y, sample_weight=weight)


@pytest.mark.parametrize("estimator", ALL)
def test_other_samples_at_predict(estimator):
    with pytest.raises(NotFittedError):
        estimator(ONE).predict(X)
    model = estimator(ONE, weights="uniform").fit(X + 5.0, Y)
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 4"):
        model.predict(X[:, :3])
    with pytest.raises(ValueError, match="expecting 4"):
        model.kernel_matrix(X, X[:, :3])
    for method in (model.contributions, model.kernel_matrix):
        with pytest.raises(ValueError, match="2D array"):
            method(X[0])


def test_sparse_samples_for_a_kernel_that_takes_none():
    from scipy import sparse

    from kernelmosaic.kernels import Correlation

    with pytest.raises(TypeError, match=r"[Ss]parse"):
        MKLClassifier([Correlation()]).fit(sparse.csr_matrix(X), Y)


# Memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ALL)
def test_one_matrix_of_few_samples_is_stored_under_any_budget(estimator):
    model = estimator(TWO, tol=1e-6, memory_budget=1).fit(X, Y)
    assert model.objective_ == pytest.approx(
        estimator(TWO, tol=1e-6).fit(X, Y).objective_, rel=2e-6
    )


@pytest.mark.parametrize("weights", [None, "uniform"])
@pytest.mark.parametrize("estimator", ALL)
def test_a_stack_beyond_the_budget_is_recomputed_with_the_same_result(estimator, weights):
    X, Y = make_classification(150, 4, flip_y=0.2, random_state=0)
    stored = estimator(TWO, weights=weights, tol=1e-6).fit(X, Y)
    with recorded(StoredStack.of) as stored_beyond_the_budget:
        computed = estimator(TWO, weights=weights, tol=1e-6, memory_budget=2 * 8 * 150 * 150).fit(
            X, Y
        )
    assert not stored_beyond_the_budget
    # Blocks of another shape round differently, which the steps to a gap of 1e-6 may enlarge but
    # not beyond its root.
    close = 1e-4 if weights is None else 1e-8
    np.testing.assert_allclose(computed.weights_, stored.weights_, atol=0.01 * close)
    np.testing.assert_allclose(computed.contributions(X), stored.contributions(X), atol=close)
    assert computed.objective_ == pytest.approx(stored.objective_)


# Convergence and silence --------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ALL)
def test_not_converged_says_how_far_and_what_to_raise(estimator):
    with pytest.warns(ConvergenceWarning) as caught:
        model = estimator(TWO, max_iter=1, tol=1e-9, normalize="diagonal").fit(X, Y)
    message = str(caught[0].message)
    assert estimator.__name__ in message
    assert re.search(rf"gap of {model.duality_gap_:.2g}.*tol=1e-09.*max_iter", message)
    assert model.n_iter_ == 1
    assert model.duality_gap_ > 1e-9
    assert caught[0].filename == __file__  # the warning points at the caller's line


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("weights", [None, "uniform"])
def test_nothing_is_printed_and_nothing_warned(estimator, weights, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = estimator(TWO, weights=weights, normalize="diagonal").fit(X, Y)
        model.predict(X), model.contributions(X)
    output, errors = capfd.readouterr()
    assert (output, errors) == ("", "")


@pytest.mark.parametrize("estimator", ALL)
def test_verbose_shows_how_the_gap_falls(estimator, capfd):
    estimator(TWO, verbose=True).fit(X, Y)
    output, errors = capfd.readouterr()
    assert re.search(r"iteration \d+, gap \d\.\de-\d\d of 1e-03", output + errors)


def test_sparse_samples_for_a_kernel_that_reads_none():
    with pytest.raises(
        TypeError, match=r"X is sparse, which kernel 'like' does not read: give X\.toarray\(\)"
    ):
        MKLClassifier([("line", Linear()), ("like", Correlation())]).fit(sparse.csr_array(X), Y)
    gated = LocalizedMKLClassifier(Linear(), gating_kernel=Correlation())
    with pytest.raises(TypeError, match="kernel 'gating_kernel' does not read"):
        gated.fit(sparse.csr_array(X), Y)


@pytest.mark.parametrize(
    "model",
    [MKLClassifier(), MKLRegressor(), MKLOneClass()],
    ids=lambda model: type(model).__name__,
)
def test_an_empty_cell_names_what_fills_it_in_one_sentence(model):
    broken = X.copy()
    broken[3, 1] = np.nan
    with pytest.raises(
        ValueError, match=r"Input X contains NaN: fill empty cells with an imputer .*ViewImputer"
    ) as caught:
        model.fit(broken, Y)
    assert "HistGradientBoosting" not in str(caught.value)
    assert "\n" not in str(caught.value)


# C over all estimators ----------------------------------------------------------------------------

TIMES = [(i % 3 > 0, 1.0 + i) for i in range(60)]
WITH_C = {
    "classes": (MKLClassifier(ONE), Y),
    "classes in one problem": (MKLClassifier(ONE, multi_class="joint"), np.arange(60) % 3),
    "numbers": (MKLRegressor(ONE), X[:, 0]),
    "numbers, Huber": (MKLRegressor(ONE, loss="huber"), X[:, 0]),
    "numbers, squared": (MKLRegressor(ONE, loss="squared"), X[:, 0]),
    "times": (MKLSurvival(ONE), np.array(TIMES, dtype=[("event", bool), ("time", float)])),
    "times, Cox": (
        MKLSurvival(ONE, loss="cox"),
        np.array(TIMES, dtype=[("event", bool), ("time", float)]),
    ),
    "gates": (LocalizedMKLClassifier(ONE), Y),
    "posteriors": (PosteriorMKLClassifier(ONE), Y),
}


@pytest.mark.parametrize("name", sorted(WITH_C))
def test_every_C_that_cannot_be_is_answered_by_what_can(name):
    model, y = WITH_C[name]
    for C in (0, -1.0, np.nan, -np.inf):
        with pytest.raises(ValueError, match=rf"^C={C!r}: give a positive"):
            clone(model).set_params(C=C).fit(X, y)
    for C in (None, True, [1.0]):
        with pytest.raises(TypeError, match=r"^C=.*: give a positive"):
            clone(model).set_params(C=C).fit(X, y)
    if name != "classes":
        with pytest.raises(ValueError, match=r"^C=inf.* multi_class='ovr'"):
            clone(model).set_params(C=np.inf).fit(X, y)


@pytest.mark.parametrize("Cs", [0, 2.0, True, [0.0, 1.0], [np.inf], [[1.0]], "many", None])
def test_values_to_search(Cs):
    with pytest.raises(
        ValueError,
        match=r"^Cs=.*: give (a whole number|how many values to try, or a list of positive)",
    ):
        MKLClassifierCV(ONE, Cs=Cs, cv=2).fit(X, Y)


# Weights and tables -------------------------------------------------------------------------------


def test_complex_weights_are_refused():
    with pytest.raises(ValueError, match=r"^sample_weight=.*: give one number per sample"):
        MKLClassifier(ONE).fit(X, Y, sample_weight=Y * 1j + 1.0)


def test_tables_for_a_model_of_one_table():
    model = MKLClassifier(ONE).fit(X, Y)
    with pytest.raises(
        ValueError, match=r"X has the tables 'v', but .* one table; give an array or a data frame"
    ):
        model.predict({"v": X})


@pytest.mark.parametrize("factor", [2.0**-1070, 2.0**1000])
def test_one_class_machines_know_no_unit_of_weights(factor):
    model = MKLOneClass([("bell", Gaussian(1.0))], tol=1e-6)
    extreme, usual = (
        clone(model).fit(X, sample_weight=np.full(60, unit)) for unit in (factor, 2.0)
    )
    np.testing.assert_allclose(extreme.decision_function(X), usual.decision_function(X), atol=1e-12)


def test_bytes_are_text_where_numbers_are_needed():
    with pytest.raises(
        ValueError,
        match=r"X: column 0 holds text \('ab'\) where numbers are needed: name the columns",
    ):
        MKLClassifier(ONE).fit(np.full((60, 1), b"ab"), Y)
