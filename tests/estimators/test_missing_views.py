"""Views that samples lack: against a loop that writes the completed kernel down, and plain fits to
it."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelmosaic import (
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    MKLSurvival,
    load,
    save,
    stack_views,
)
from kernelmosaic.kernels import Categorical, Gaussian, Linear, Precomputed, per_column

COLUMNS = {"a": [0, 1, 2], "b": [3, 4, 5, 6], "c": [7, 8]}
KERNELS = [
    ("a", Gaussian(), [0, 1, 2]),
    ("b", Linear(), [3, 4, 5, 6]),
    ("b2", Gaussian(), [3, 4, 5, 6]),
    ("c", Linear(), [7, 8]),
]
VIEW_OF = [0, 1, 1, 2]
RULES = ["neighbors", "zero"]


def draw(n=60, seed=0, share=0.3):
    """Three views of hidden variables, and which sample has which."""
    rng = np.random.RandomState(seed)
    hidden = rng.normal(size=(n, 2))
    X = np.hstack(
        [
            hidden @ rng.normal(size=(2, len(c))) + 0.3 * rng.normal(size=(n, len(c)))
            for c in COLUMNS.values()
        ]
    )
    there = rng.uniform(size=(n, 3)) >= share
    there[~there.any(axis=1), 0] = True
    return X, hidden[:, 0] + 0.3 * rng.normal(size=n), there


def hidden_views(X, there):
    X = X.copy()
    for columns, has in zip(COLUMNS.values(), there.T, strict=True):
        X[np.ix_(~has, columns)] = np.nan
    return X


def naive_likeness(plain, has):
    """How much kernels tell of each other: their alignment, in units of its mean over the
    others."""
    P = len(plain)
    likeness = np.zeros((P, P))
    for m in range(P):
        for k in range(P):
            if k != m:
                centred = []
                for one in (m, k):
                    own = [i for i in range(len(has)) if has[i, one]]
                    means = plain[one][:, own].mean(axis=1)
                    centred.append(plain[one] - means[:, None] - means + means[own].mean())
                pairs = [i for i in range(len(has)) if has[i, m] and has[i, k]]
                A, B = (C[np.ix_(pairs, pairs)] for C in centred)
                likeness[m, k] = np.sum(A * B) / np.sqrt(np.sum(A * A) * np.sum(B * B))
        likeness[m] *= (P - 1) / likeness[m].sum()
    return likeness


def naive_kernels(X, there, n_train, rule):
    """The kernels between all samples, the first of which train, entry by entry."""
    n, P = len(X), len(KERNELS)
    has = np.array([[bool(there[i, v]) for v in VIEW_OF] for i in range(n)])
    plain = []
    for m, (_, kernel, columns) in enumerate(KERNELS):
        train = [i for i in range(n_train) if has[i, m]]
        fitted = clone(kernel).fit(X[np.ix_(train, columns)])
        K = fitted(X[:, columns])
        plain.append(K / np.mean([K[i, i] for i in train]))
    if rule == "zero":
        length = [np.sqrt(P / has[i].sum()) for i in range(n)]
        return [
            np.array(
                [
                    [length[i] * length[j] * K[i, j] * (has[i, m] and has[j, m]) for j in range(n)]
                    for i in range(n)
                ]
            )
            for m, K in enumerate(plain)
        ]
    spread = []
    for m, K in enumerate(plain):
        train = [i for i in range(n_train) if has[i, m]]
        spread.append(np.mean([K[i, i] + K[j, j] - 2 * K[i, j] for i in train for j in train]))
    likeness = naive_likeness(plain, has[:n_train])
    completed = []
    for m, K in enumerate(plain):
        B = np.eye(n)
        for i in range(n):
            if has[i, m]:
                continue
            far = {}
            for j in range(n_train):
                shared = [k for k in range(P) if has[i, k] and has[j, k]]
                if has[j, m] and shared:
                    each = [
                        (plain[k][i, i] + plain[k][j, j] - 2 * plain[k][i, j]) / spread[k]
                        for k in shared
                    ]
                    count = likeness[m, shared]
                    far[j] = (count @ each + 1) / (count.sum() + 1)
            nearest = sorted(far, key=far.get)[:6] or [j for j in range(n_train) if has[j, m]]
            B[i] = 0.0
            B[i, nearest] = 1.0 / len(nearest)
        completed.append(B @ K @ B.T)
    return completed


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("where", ["both", "prediction"])
def test_a_fit_is_the_plain_one_to_the_kernel_written_down(rule, where):
    X, target, there = draw(75)
    n, y = 50, (target > 0).astype(int)
    if where == "prediction":
        there[:n] = True
    partial = hidden_views(X, there)
    given = [
        (f"K{m}", Precomputed((K + K.T) / 2))
        for m, K in enumerate(naive_kernels(X, there, n, rule))
    ]
    rows = np.arange(len(X)).reshape(-1, 1)
    plain = MKLClassifier(given, norm=2, normalize=None, tol=1e-9).fit(rows[:n], y[:n])
    model = MKLClassifier(KERNELS, norm=2, tol=1e-9, missing=rule).fit(partial[:n], y[:n])
    assert model.duality_gap_ <= 1e-9
    np.testing.assert_allclose(model.objective_, plain.objective_, rtol=1e-7)
    np.testing.assert_allclose(model.weights_, plain.weights_, atol=1e-4)
    np.testing.assert_allclose(
        model.decision_function(partial), plain.decision_function(rows), atol=1e-3
    )
    np.testing.assert_allclose(model.contributions(partial), plain.contributions(rows), atol=1e-3)
    expected = np.tensordot(model.weights_, [kernel.K for _, kernel in given], axes=1)
    np.testing.assert_allclose(model.kernel_matrix(partial), expected, atol=1e-9)
    np.testing.assert_allclose(
        model.kernel_matrix(partial[n:], partial[:9]), expected[n:, :9], atol=1e-9
    )


@pytest.mark.parametrize("rule", RULES)
def test_the_gap_is_that_of_the_kernel_written_down(rule):
    X, target, there = draw()
    y = np.where(target > 0, 1.0, -1.0)
    partial = hidden_views(X, there)
    model = MKLClassifier(KERNELS, C=2.0, tol=1e-6, missing=rule).fit(partial, y)
    beta = np.zeros(len(y))
    beta[model.support_] = model.dual_coef_[0]
    forms = [beta @ K @ beta for K in naive_kernels(X, there, len(X), rule)]
    assert np.all((beta * y >= -1e-12) & (beta * y <= 2.0 + 1e-12))
    assert abs(beta.sum()) < 1e-9
    lower = beta @ y - 0.5 * max(forms)
    upper = (
        0.5 * model.weights_ @ forms
        + 2.0 * np.maximum(1.0 - y * model.decision_function(partial), 0.0).sum()
    )
    assert upper - lower <= 1e-5 * upper
    np.testing.assert_allclose(model.objective_, upper, rtol=1e-5)


@pytest.mark.parametrize("kind", [MKLClassifier, MKLRegressor, MKLOneClass, MKLClassifierCV])
@pytest.mark.filterwarnings("ignore:MKLOneClass")
def test_where_nothing_is_missing_nothing_changes(kind):
    X, target, _ = draw()
    y = (target > 0).astype(int)
    options = {"Cs": [1.0], "norms": (1,), "cv": 2} if kind is MKLClassifierCV else {}
    models = [kind(KERNELS, missing=rule, **options).fit(X, y) for rule in RULES]
    for model in models[1:]:
        np.testing.assert_array_equal(model.weights_, models[0].weights_)
        np.testing.assert_array_equal(model._outputs(X), models[0]._outputs(X))
    if kind is MKLClassifier:
        plain = [(name, Precomputed(clone(kernel)(X[:, own]))) for name, kernel, own in KERNELS]
        rows = np.arange(len(X)).reshape(-1, 1)
        exact, same = (
            MKLClassifier(KERNELS, tol=1e-9).fit(X, y),
            MKLClassifier(plain, tol=1e-9).fit(rows, y),
        )
        np.testing.assert_allclose(
            exact.decision_function(X), same.decision_function(rows), atol=1e-4
        )


@pytest.mark.filterwarnings("ignore:MKLOneClass")
@pytest.mark.parametrize(
    ("model", "target", "rule"),
    # The kernels are completed before a machine reads them: each machine has one rule, those of one
    # kind both.
    [
        (MKLClassifier(KERNELS), "classes", "neighbors"),
        (MKLClassifier(KERNELS, multi_class="joint"), "classes", "zero"),
        (MKLClassifier(KERNELS, calibration="sigmoid", norm=2), "signs", "neighbors"),
        (MKLClassifier(KERNELS, calibration="sigmoid", norm=2), "signs", "zero"),
        (MKLRegressor(KERNELS), "numbers", "zero"),
        (MKLRegressor(KERNELS, loss="squared"), "pairs", "neighbors"),
        (MKLOneClass(KERNELS, nu=0.3), None, "zero"),
        (MKLSurvival(KERNELS), "times", "neighbors"),
        (MKLRegressorCV(KERNELS, Cs=2, norms=(1,), cv=2), "numbers", "neighbors"),
        (MKLRegressorCV(KERNELS, Cs=[1.0], norms=(1,), cv=2), "numbers", "zero"),
    ],
    ids=lambda value: value if value is None or isinstance(value, str) else type(value).__name__,
)
def test_contributions_add_up_for_every_machine(model, target, rule):
    X, t, there = draw()
    targets = {
        "classes": np.digitize(t, [-0.5, 0.5]),
        "signs": t > 0,
        "numbers": t,
        "pairs": np.column_stack([t, -2 * t]),
        "times": np.exp(t),
        None: None,
    }
    partial = hidden_views(X, there)
    model = clone(model).set_params(missing=rule).fit(partial, targets[target])
    outputs = model._outputs(partial)
    shares = model.contributions(partial).reshape(len(X), 4, -1).sum(axis=1) + model.intercept_
    np.testing.assert_allclose(shares, outputs, atol=1e-9)
    # Samples are predicted alike whatever others they come with.
    np.testing.assert_allclose(model._outputs(partial[7:9]), outputs[7:9], atol=1e-9)
    assert model.duality_gap_ <= model.tol


def test_none_and_gaps_of_data_frames_stand_for_nan():
    X, target, there = draw()
    y, partial = target > 0, hidden_views(X, there)
    nones = np.where(np.isnan(partial), None, partial.astype(object))
    by_nan, by_none = MKLClassifier(KERNELS).fit(partial, y), MKLClassifier(KERNELS).fit(nones, y)
    frame = pd.DataFrame(partial, columns=list("uvwxyzrst"))
    named = [(name, kernel, [frame.columns[c] for c in own]) for name, kernel, own in KERNELS]
    by_name = MKLClassifier(named).fit(frame, y)
    for name in ("predict", "decision_function", "contributions"):
        expected = getattr(by_nan, name)(partial)
        np.testing.assert_array_equal(getattr(by_none, name)(nones), expected)
        np.testing.assert_array_equal(getattr(by_name, name)(frame), expected)


@pytest.mark.parametrize("gap", [np.nan, None])
def test_a_row_number_that_is_missing_stands_for_a_gap_of_the_matrix(gap):
    X, target, there = draw()
    y, rows = target > 0, np.arange(len(X)).reshape(-1, 1)
    by_gaps, by_rows, numbers = [], [], np.repeat(rows, 3, axis=1).astype(object)
    for v, (name, own) in enumerate(COLUMNS.items()):
        K, lost = X[:, own] @ X[:, own].T, ~there[:, v]
        by_rows.append((name, Precomputed(K.copy()), [v]))
        K[lost], K[:, lost], numbers[lost, v] = np.nan, np.nan, gap
        by_gaps.append((name, Precomputed(K)))
    expected = MKLClassifier(by_gaps, tol=1e-8).fit(rows, y).decision_function(rows)
    given = numbers if gap is None else numbers.astype(np.float64)
    model = MKLClassifier(by_rows, tol=1e-8).fit(given, y)
    np.testing.assert_allclose(model.decision_function(given), expected, atol=1e-4)


def test_a_matrix_with_gaps_stands_for_nan():
    X, target, there = draw()
    y, partial = target > 0, hidden_views(X, there)
    given = []
    for m, (name, kernel, own) in enumerate(KERNELS):
        has = there[:, VIEW_OF[m]]
        K = clone(kernel).fit(X[np.ix_(has, own)])(X[:, own])
        K[~has], K[:, ~has] = np.nan, np.nan
        given.append((name, Precomputed(K)))
    rows = np.arange(len(X)).reshape(-1, 1)
    model, expected = (
        MKLClassifier(given, tol=1e-8).fit(rows, y),
        MKLClassifier(KERNELS, tol=1e-8).fit(partial, y),
    )
    np.testing.assert_allclose(
        model.decision_function(rows), expected.decision_function(partial), atol=1e-4
    )
    with pytest.raises(ValueError, match=r"of K is NaN.*give further kernels"):
        MKLClassifier(given[:1]).fit(rows, y)


def test_constants_are_learned_from_the_samples_that_have_the_view():
    X, target, there = draw()
    partial = hidden_views(X, there)
    model = MKLClassifier(KERNELS, weights="uniform").fit(partial, target > 0)
    fitted = model.function_.expansion.kernel_set.fitted
    for m in (0, 2):
        own = X[np.ix_(there[:, VIEW_OF[m]], KERNELS[m][2])]
        assert fitted[m].kernel.width_ == Gaussian().fit(own).width_
    own = X[np.ix_(there[:, 1], KERNELS[1][2])]
    np.testing.assert_allclose(fitted[1].normalization.scale_, np.square(own).sum(axis=1).mean())


def test_folds_learn_everything_from_their_own_samples():
    X, target, there = draw()
    y, partial = target > 0, hidden_views(X, there)
    folds = list(StratifiedKFold(2).split(X, y))
    search = MKLClassifierCV(KERNELS, Cs=[1.0], norms=(2,), cv=folds, tol=1e-8).fit(partial, y)
    plain = make_pipeline(StandardScaler(), MKLClassifier(KERNELS, C=1.0, norm=2, tol=1e-8))
    np.testing.assert_allclose(search.scores_[:, 0], cross_val_score(plain, partial, y, cv=folds))
    np.testing.assert_allclose(
        search.decision_function(partial),
        plain.fit(partial, y).decision_function(partial),
        atol=1e-4,
    )


def test_scikit_learn_passes_gaps_around(tmp_path):
    X, target, there = draw()
    y, partial = target > 0, hidden_views(X, there)
    pipeline = make_pipeline(StandardScaler(), MKLClassifier(KERNELS))
    search = GridSearchCV(pipeline, {"mklclassifier__missing": RULES}, cv=2).fit(partial, y)
    assert search.best_params_["mklclassifier__missing"] in RULES
    model = clone(pipeline[-1]).fit(partial, y)
    values = model.decision_function(partial)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).decision_function(partial), values
    )
    save(model, tmp_path / "model.skops")
    np.testing.assert_array_equal(load(tmp_path / "model.skops").decision_function(partial), values)
    assert model.__sklearn_tags__().input_tags.allow_nan
    assert not MKLClassifier().__sklearn_tags__().input_tags.allow_nan


def test_single_cells_are_views_of_kernels_on_one_column():
    X, target, _ = draw()
    X[::3, 4] = np.nan
    model = MKLClassifier([("each", per_column(Linear()))]).fit(X, target > 0)
    assert model.contributions(X).shape == (60, 9)


def test_tables_of_text_may_lack_it():
    X, target, there = draw()
    words = np.where(target > 0.3, "up", "down").astype(object)[:, np.newaxis]
    words[~there[:, 0]] = None
    table = np.hstack([X.astype(object), words])
    kernels = [("text", Categorical(), [9]), ("numbers", Linear(), list(range(9)))]
    model = MKLClassifier(kernels, norm=2).fit(table, target > 0)
    assert model.score(table, target > 0) > 0.8


def test_tables_are_joined_by_the_names_of_their_rows():
    rna = pd.DataFrame({"u": [1.0, 2.0, 3.0]}, index=["p", "q", "r"])
    protein = pd.DataFrame({"v": [5.0, 6.0]}, index=["r", "s"])
    X, views = stack_views(rna=rna, protein=protein)
    assert X.index.tolist() == ["p", "q", "r", "s"]
    np.testing.assert_array_equal(X[views["rna"]].to_numpy()[:, 0], [1.0, 2.0, 3.0, np.nan])
    np.testing.assert_array_equal(X[views["protein"]].to_numpy()[:, 0], [np.nan, np.nan, 5.0, 6.0])
    kernels = [(name, Linear(), columns) for name, columns in views.items()]
    assert MKLClassifier(kernels).fit(X, [0, 0, 1, 1]).predict(X).shape == (4,)
    turned, _ = stack_views(rna=rna, protein=protein.rename(index={"s": "p"}).reindex(["p", "r"]))
    assert turned.index.tolist() == ["p", "q", "r"]
    with pytest.raises(ValueError, match=r"view 'protein': the index has 'r' more than once"):
        stack_views(rna=rna, protein=protein.rename(index={"s": "r"}))
    with pytest.raises(ValueError, match="'protein' has no row in common"):
        stack_views(rna=rna, protein=protein.rename(index={"r": "t"}))


def changed(X, rows, columns):
    X = X.copy()
    X[rows, columns] = np.nan
    return X


def test_what_cannot_be_completed_is_refused():
    X, target, there = draw()
    y, partial = target > 0, hidden_views(X, there)
    refused = {
        r"X\[3\] has no view at all.*\(1 of 60\)": (
            MKLClassifier(KERNELS),
            changed(X, 3, slice(None)),
        ),
        r"kernel 'c': none of the 60 training samples": (
            MKLClassifier(KERNELS),
            changed(X, slice(None), slice(7, 9)),
        ),
        r"kernel 'b': X\[5\] contains NaN in 1 of 4 columns": (
            MKLClassifier(KERNELS),
            changed(X, 5, 3),
        ),
        r"missing='mean': choose one of 'neighbors', 'zero'": (
            MKLClassifier(KERNELS, missing="mean"),
            X,
        ),
        r"approximation='nystroem': X contains NaN": (
            MKLClassifier(KERNELS, approximation="nystroem"),
            partial,
        ),
    }
    for words, (model, samples) in refused.items():
        with pytest.raises(ValueError, match=words):
            model.fit(samples, y)
    with pytest.raises(MemoryError, match=r"completed in stored matrices.*memory_budget"):
        MKLClassifier(KERNELS, memory_budget=60 * 60 * 8 * 2).fit(partial, y)
    model = MKLClassifier(KERNELS).fit(X, y)
    with pytest.raises(ValueError, match=r"X\[3\] has no view at all"):
        model.predict(changed(X, 3, slice(None)))


def test_a_part_of_what_a_kernel_reads_is_refused():
    X, target, _ = draw()
    y, overlapping = target > 0, [*KERNELS, ("d", Linear(), [5, 6, 7])]
    words = r"kernel 'd': X\[4\] contains NaN in 2 of 3 columns"
    with pytest.raises(ValueError, match=words):  # all columns of 'b' and 'b2'
        MKLClassifier(overlapping).fit(changed(X, 4, slice(3, 7)), y)
    model = MKLClassifier(overlapping).fit(X, y)
    with pytest.raises(ValueError, match=words):
        model.predict(changed(X, 4, slice(3, 7)))


@pytest.mark.parametrize("gating", ["softmax", "sigmoid", "constant"])
def test_the_gate_of_a_missing_view_is_zero(gating):
    X, target, there = draw()
    y, has, partial = target > 0, there[:, VIEW_OF], hidden_views(X, there)
    model = LocalizedMKLClassifier(KERNELS, gating=gating, C=2.0, n_init=1, tol=1e-6, max_iter=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(partial, y)
    gates = model.gate(partial)
    assert np.all((gates > 0) == has) if gating != "constant" else np.all(gates[~has] == 0)
    plain = []
    for m, (_, kernel, own) in enumerate(KERNELS):
        train = np.flatnonzero(has[:, m])
        K = clone(kernel).fit(X[np.ix_(train, own)])(X[:, own])
        plain.append(K / K[train, train].mean())
    K = sum(np.outer(gates[:, m], gates[:, m]) * plain[m] for m in range(4))
    np.testing.assert_allclose(model.kernel_matrix(partial), K, atol=1e-9)
    machine = SVC(kernel="precomputed", C=2.0, tol=1e-8).fit(K, y)
    np.testing.assert_allclose(
        model.decision_function(partial), machine.decision_function(K), atol=1e-2
    )
    shares = model.contributions(partial)
    assert np.all(shares[~has] == 0)
    np.testing.assert_allclose(
        shares.sum(axis=1) + model.intercept_, model.decision_function(partial), atol=1e-9
    )
    later = LocalizedMKLClassifier(KERNELS, gating=gating, n_init=1, tol=0.1).fit(X, y)
    assert np.all(later.gate(partial)[~has] == 0)
    shares = later.contributions(partial)
    assert np.all(shares[~has] == 0)
    np.testing.assert_array_equal(later.predict(partial), shares.sum(axis=1) + later.intercept_ > 0)


@pytest.mark.parametrize(("n", "digits"), [(60, 0), (330, 3)])
def test_completion_does_not_depend_on_the_order_of_the_samples(n, digits):
    X, target, there = draw(n, share=0.2)
    # Of coarse numbers many samples are equally near. Of more than 300 samples the scales are
    # measured on some.
    X = np.round(X, digits)
    partial, y = hidden_views(X, there), target > 0
    by_class = np.argsort(y, kind="stable")
    models = [
        MKLClassifier(KERNELS, weights="uniform").fit(partial[rows], y[rows])
        for rows in (by_class, by_class[::-1])
    ]
    first, second = [model.function_.expansion.sums.missing for model in models]
    np.testing.assert_allclose(
        first._spreads_and_likeness()[0], second._spreads_and_likeness()[0], rtol=1e-9
    )
    np.testing.assert_allclose(
        first._spreads_and_likeness()[1], second._spreads_and_likeness()[1], rtol=1e-9
    )
    completed = [model.kernel_matrix(partial[:20], X[:20]) for model in models]
    np.testing.assert_allclose(completed[0], completed[1], atol=1e-9)
