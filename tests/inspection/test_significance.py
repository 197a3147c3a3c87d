"""Permutation tests of kernels: against naive loops, uniform under the null, and able to find what is there."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import (
    BayesianMKLClassifier,
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
    MKLSurvival,
)
from kernelmosaic.inspection import conditional_pvalue, kernel_significance
from kernelmosaic.inspection.significance import p_values, refit
from kernelmosaic.kernels import Gaussian, Linear, Precomputed, Subsets

VIEWS = [("first", Gaussian(), [0, 1]), ("second", Gaussian(), [2, 3]), ("line", Linear(), [4, 5])]


def problem(n=40, seed=0, classes=2, signal=0.0):
    random = np.random.RandomState(seed)
    X = random.standard_normal((n, 6))
    score = signal * X[:, 0] + random.standard_normal(n)
    y = np.searchsorted(np.quantile(score, np.arange(1, classes) / classes), score)
    return X, y


def permutations(y, count, seed):
    """The orders that a seed stands for, when the estimator has a seed of its own."""
    random = np.random.RandomState(seed)
    return [random.permutation(np.arange(len(y))) for _ in range(count)]


def centred_alignment(K, Y, w):
    """By the definition, matrices written down: centring and inner products weighted by the samples."""
    H = np.eye(len(K)) - np.outer(np.ones(len(K)), w / w.sum())
    K, L, D = H @ K @ H.T, H @ (Y @ Y.T) @ H.T, np.sqrt(np.outer(w, w))
    return np.sum(D * K * D * L) / (np.linalg.norm(D * K) * np.linalg.norm(D * L))


@pytest.mark.parametrize(("classes", "multi_class"), [(2, "ovr"), (3, "ovr"), (3, "joint")])
def test_weights_are_those_of_a_naive_loop(classes, multi_class):
    X, y = problem(n=15 if classes == 3 else 24, classes=classes)
    model = MKLClassifier(VIEWS, tol=1e-5, random_state=0, multi_class=multi_class)
    found = kernel_significance(model, X, y, n_permutations=2, random_state=3)
    orders = permutations(y, 2, 3)
    naive = np.array([clone(model).fit(X, y[order]).weights_ for order in orders])
    np.testing.assert_allclose(found.null_weights, naive, atol=0.02)
    np.testing.assert_allclose(found.weights, clone(model).fit(X, y).weights_)
    assert found.kernel_names == ["first", "second", "line"]
    assert found.classes == ([0, 1, 2] if classes == 3 and multi_class == "ovr" else None)
    above = np.sum(found.null_weights >= found.weights - 1e-9, axis=0)
    np.testing.assert_allclose(found.weight_pvalues, (1 + above) / 3)


@pytest.mark.parametrize(("classes", "weighted"), [(2, False), (3, True)])
def test_alignments_are_those_of_the_definition(classes, weighted):
    X, y = problem(n=25, classes=classes)
    weight = np.random.RandomState(1).uniform(0.5, 2.0, len(y)) if weighted else None
    model = MKLClassifier(VIEWS, random_state=0)
    found = kernel_significance(model, X, y, n_permutations=3, sample_weight=weight, random_state=3)
    w = np.ones(len(y)) if weight is None else weight
    orders, versions = [np.arange(len(y)), *permutations(y, 3, 3)], [found.alignments, *found.null_alignments]
    for order, got in zip(orders, versions, strict=True):
        for m, (name, kernel, columns) in enumerate(VIEWS):
            K = clone(kernel).fit(X[:, columns])(X[:, columns])
            labels = [1] if classes == 2 else range(classes)
            expected = [centred_alignment(K, (y[order] == c)[:, None].astype(float), w) for c in labels]
            np.testing.assert_allclose(np.atleast_2d(got)[:, m], expected, rtol=1e-9, err_msg=name)


def test_alignments_with_several_targets_are_those_with_all_of_them():
    X, _ = problem(n=25)
    Y = np.random.RandomState(1).standard_normal((25, 2))
    found = kernel_significance(MKLRegressor(VIEWS, random_state=0), X, Y, n_permutations=2, random_state=0)
    K = Gaussian().fit(X[:, :2])(X[:, :2])
    assert found.alignments[0] == pytest.approx(centred_alignment(K, Y, np.ones(25)))
    assert found.null_weights.shape == (2, 3)


def test_alignments_are_those_of_the_samples_that_have_the_view():
    X, y = problem(n=30)
    X[:10, 2:4], X[25:, 4:] = np.nan, np.nan
    model = MKLClassifier(VIEWS, random_state=0)
    found = kernel_significance(model, X, y, n_permutations=3, random_state=3)
    orders = [np.arange(30), *permutations(y, 3, 3)]
    for m, (name, kernel, columns) in enumerate(VIEWS):
        has_view = np.flatnonzero(~np.isnan(X[:, columns[0]]))
        # The scale of a kernel does not change its alignment; widths are those of the samples that have the view.
        samples = X[np.ix_(has_view, columns)]
        K = clone(kernel).fit(samples)(samples)
        for order, alignments in zip(orders, [found.alignments, *found.null_alignments], strict=True):
            Y = y[order][has_view, None].astype(float)
            expected = centred_alignment(K, Y, np.ones(len(has_view)))
            assert alignments[m] == pytest.approx(expected, rel=1e-8), name


def test_sample_weights_stay_with_the_samples_and_those_of_zero_are_out():
    X, y = problem(n=24)
    weight = np.random.RandomState(0).randint(0, 3, len(y)).astype(float)
    model = MKLClassifier(VIEWS, tol=1e-5, random_state=0)
    found = kernel_significance(model, X, y, n_permutations=5, sample_weight=weight, random_state=3)
    kept = np.flatnonzero(weight)
    few = kernel_significance(model, X[kept], y[kept], n_permutations=5, sample_weight=weight[kept], random_state=3)
    np.testing.assert_allclose(found.null_weights, few.null_weights, atol=0.02)
    np.testing.assert_allclose(found.alignments, few.alignments)
    np.testing.assert_allclose(found.null_alignments, few.null_alignments)


def test_repeated_samples_with_other_labels_are_told_apart():
    X, y = problem(n=24)
    X[:10] = X[10:20]
    model = MKLClassifier(VIEWS, tol=1e-5, random_state=0)
    found = kernel_significance(model, X, y, n_permutations=5, random_state=3)
    naive = [clone(model).fit(X, y[order]).weights_ for order in permutations(y, 5, 3)]
    np.testing.assert_allclose(found.null_weights, naive, atol=0.02)


def test_a_planted_kernel_is_found_and_others_are_not():
    X, y = problem(n=40, signal=3.0)
    model = MKLClassifier([(f"{m}", Linear(), [m, m + 1]) for m in (0, 2, 4)])
    for one in (model, make_pipeline(StandardScaler(), model)):
        found = kernel_significance(one, X, y, n_permutations=19, correction="max", random_state=0)
        for p in (found.weight_pvalues, found.alignment_pvalues):
            assert p[0] == pytest.approx(0.05)
        assert np.all(found.weight_pvalues[1:] > 0.5)


def test_a_planted_kernel_is_found_in_regression_and_frames():
    random = np.random.RandomState(0)
    X = pd.DataFrame(random.standard_normal((60, 4)), columns=list("abcd"))
    y = X["c"] ** 2 + 0.1 * random.standard_normal(60)
    model = MKLRegressor([("ab", Gaussian(), ["a", "b"]), ("cd", Gaussian(), ["c", "d"])])
    found = kernel_significance(model, X, y, n_permutations=19, random_state=0)
    assert found.weight_pvalues[1] == found.alignment_pvalues[1] == pytest.approx(0.05)
    assert "cd" in str(found)


def test_p_values_are_uniform_under_the_null():
    # With five permutations a p-value is one of six, each as likely: a test of goodness of fit over problems.
    ranks = {"weight": [], "alignment": []}
    for seed in range(30):
        X, y = problem(n=16, seed=seed)
        model = MKLClassifier([("a", Linear(), [0, 1]), ("b", Linear(), [2, 3])], norm=2, tol=1e-2)
        found = kernel_significance(model, X, y, n_permutations=5, random_state=seed)
        ranks["weight"].append(found.weight_pvalues[0])
        ranks["alignment"].append(found.alignment_pvalues[0])
    for name, p in ranks.items():
        counts = np.bincount(np.rint(np.array(p) * 6).astype(int), minlength=7)[1:]
        assert stats.chisquare(counts).pvalue > 1e-3, (name, counts)


def test_results_depend_on_no_division_of_the_work():
    X, y = problem(n=20)
    model = MKLClassifier(VIEWS, approximation="nystroem", rank=5, random_state=0)
    tasks = [(y[order], None, None) for order in permutations(y, 5, 0)]
    # What processes are given is a chunk, and each computes its kernels for itself.
    one, other = (refit(model, X, tasks, np.full(3, 1 / 3), None, False, "test", chunk) for chunk in (100, 2))
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_targets_stay_within_their_groups():
    X, y = problem(n=30)
    groups = np.repeat(["a", "b", "c"], 10)
    y[:10], y[10:20], y[20:] = 0, 1, np.arange(10) % 2
    found = kernel_significance(MKLClassifier(VIEWS), X, y, n_permutations=5, groups=groups, random_state=0)
    # Within the first two groups all labels are alike; the third is permuted.
    assert not np.allclose(found.null_alignments, found.alignments)
    alone = kernel_significance(
        MKLClassifier(VIEWS), X, y, n_permutations=5, groups=np.r_[np.arange(20), [20] * 10], random_state=0
    )
    assert np.all(np.isfinite(alone.null_weights))
    with pytest.raises(ValueError, match="groups: every sample has a group of its own"):
        kernel_significance(MKLClassifier(VIEWS), X, y, groups=np.arange(30))
    with pytest.raises(ValueError, match="groups has 3 entries for 30 samples"):
        kernel_significance(MKLClassifier(VIEWS), X, y, groups=[1, 2, 3])


@pytest.mark.parametrize("kind", [BilinearMKLClassifier, DiscriminantMKLClassifier, BayesianMKLClassifier])
def test_other_estimators_are_served(kind):
    X, y = problem(n=30, signal=3.0)
    found = kernel_significance(kind(VIEWS), X, y, n_permutations=3, random_state=0)
    assert found.alignment_pvalues.ravel()[0] == pytest.approx(0.25)
    assert found.null_weights.shape == (3, *found.weights.shape)
    assert found.alignments.shape == found.weights.shape
    assert len(str(found).splitlines()) == 1 + found.weights.size


def test_row_numbers_of_given_matrices_and_sparse_samples():
    X, y = problem(n=30, signal=3.0)
    given = [(name, Precomputed(kernel.fit(X[:, columns])(X[:, columns]))) for name, kernel, columns in VIEWS]
    plain, rows = (
        kernel_significance(MKLClassifier(kernels, tol=1e-5), samples, y, n_permutations=2, random_state=0)
        for kernels, samples in ((VIEWS, X), (given, np.arange(30)))
    )
    np.testing.assert_allclose(rows.alignments, plain.alignments)
    np.testing.assert_allclose(rows.null_weights, plain.null_weights, atol=0.02)
    found = kernel_significance(MKLClassifier([Linear()]), csr_array(X), y, n_permutations=2, random_state=0)
    assert found.weight_pvalues == [1.0]


def test_corrections():
    random = np.random.RandomState(0)
    null, observed = random.standard_normal((99, 4)) * [1, 10, 100, 0], np.array([3.0, 5.0, -50.0, 0.0])
    plain = p_values(observed, null)
    np.testing.assert_allclose(plain, [(1 + np.sum(null[:, m] >= observed[m])) / 100 for m in range(4)])
    np.testing.assert_allclose(p_values(observed, null, "fdr"), stats.false_discovery_control(plain))
    corrected = p_values(observed, null, "max")
    assert np.all(corrected >= plain)
    # A step that changes the scale of a statistic changes nothing.
    np.testing.assert_allclose(p_values(7 * observed, 7 * null, "max"), corrected)
    every = np.vstack([observed, null])[:, :3]
    z = (every - every.mean(axis=0)) / every.std(axis=0)
    np.testing.assert_allclose(corrected[0], (1 + np.sum(np.maximum(z[1:].max(axis=1), 0) >= z[0, 0])) / 100)


def test_errors_say_what_would_do():
    X, y = problem(n=20)
    model = MKLClassifier(VIEWS)
    with pytest.raises(ValueError, match="n_permutations=0"):
        kernel_significance(model, X, y, n_permutations=0)
    with pytest.raises(ValueError, match=r"correction='bonferroni'.*'max', 'fdr'"):
        kernel_significance(model, X, y, correction="bonferroni")
    with pytest.raises(TypeError, match="estimator=StandardScaler: give an estimator of kernelmosaic"):
        kernel_significance(StandardScaler(), X, y)
    with pytest.raises(ValueError, match=r"Subsets\(...\) are too many"):
        kernel_significance(MKLClassifier(Subsets(Gaussian())), X, y)
    with pytest.raises(TypeError, match="not censored times"):
        kernel_significance(MKLSurvival(VIEWS), X, y + 1.0)
    with pytest.raises(TypeError, match="X=str: give the samples as an array"):
        kernel_significance(MKLClassifier(VIEWS, approximation="nystroem"), "samples.parquet", y)
    with pytest.raises(ValueError, match="y is None"):
        kernel_significance(MKLOneClass(VIEWS), X, None)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        kernel_significance(model, X, y[:-1])
    with pytest.raises(TypeError, match=r"sample_weight: DiscriminantMKLClassifier.fit takes none"):
        kernel_significance(DiscriminantMKLClassifier(VIEWS), X, y, sample_weight=np.ones(20))
    with pytest.raises(ValueError, match="one class only"):
        kernel_significance(model, X, np.zeros(20))


# A kernel given the others --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def conditional():
    """The p-values of three views given a first one in 120 problems: noise, a noisy copy of the first, and signal."""
    found, rng = {"noise": [], "copy": [], "signal": []}, np.random.RandomState(0)
    for _ in range(120):
        first, noise, signal = rng.normal(size=(3, 40, 4))
        views = {"noise": noise, "copy": first + 0.5 * rng.normal(size=(40, 4)), "signal": signal}
        y = first @ [1.0, 1.0, 0.5, 0.0] + signal[:, 0] + rng.normal(size=40)
        # Kernel ridge regression: so large a ridge leaves unexplained what the first view has, too, and a copy must
        # not be taken for more.
        K = first @ first.T / np.sum(first**2) * 40
        bordered = np.block([[K + 10 * np.eye(40), np.ones((40, 1))], [np.ones((1, 40)), np.zeros((1, 1))]])
        machine = K, np.linalg.solve(bordered, np.append(y, 0.0))[np.newaxis, :40]
        for name, view in views.items():
            found[name].append(conditional_pvalue(view @ view.T, *machine, n_permutations=19, random_state=rng))
    return {name: np.array(p) for name, p in found.items()}


def test_a_view_of_noise_has_any_p_value_as_often(conditional):
    # 1/20, 2/20, … are as probable. The largest difference of the distributions is Kolmogorov and Smirnov's.
    levels = np.arange(1, 21) / 20
    shares = np.array([np.mean(conditional["noise"] <= level + 1e-9) for level in levels])
    assert np.abs(shares - levels).max() < 1.63 / 120**0.5  # one in a hundred is larger


def test_a_view_that_repeats_another_has_no_small_p_value_and_signal_has(conditional):
    for level in (0.05, 0.1, 0.2):
        assert np.mean(conditional["copy"] <= level) <= level + 2.6 * (level * (1 - level) / 120) ** 0.5
    assert np.mean(conditional["signal"] <= 0.05) > 0.8


def test_coefficients_of_some_samples_are_refused():
    with pytest.raises(ValueError, match=r"dual_coef has shape \(1, 3\), .* zero where a sample is not a supp"):
        conditional_pvalue(np.eye(4), np.eye(4), np.ones((1, 3)))


def ridge_machine(K, y, ridge):
    """Coefficients of kernel ridge regression with an intercept, by its linear system."""
    n = len(K)
    bordered = np.block([[K + ridge * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    return np.linalg.solve(bordered, np.append(y, 0.0))[np.newaxis, :n]


@pytest.mark.parametrize("lacking", [0, 8, 20])
def test_noise_that_samples_lack_has_any_p_value_as_often(lacking):
    # The machine follows noise closely; of its coefficients those of some samples do not sum to zero.
    found, rng = [], np.random.RandomState(1)
    for _ in range(150):
        first, noise = rng.normal(size=(2, 40, 3))
        distances = np.sum((first[:, np.newaxis] - first) ** 2, axis=2)
        given = np.exp(-distances / 3.0)
        K = noise @ noise.T
        lost = rng.permutation(40)[:lacking]
        K[lost], K[:, lost] = np.nan, np.nan
        coefficients = ridge_machine(given, rng.normal(size=40), 0.1)
        found.append(conditional_pvalue(K, given, coefficients, n_permutations=19, random_state=rng))
    levels = np.arange(1, 21) / 20
    shares = np.array([np.mean(np.array(found) <= level + 1e-9) for level in levels])
    assert np.abs(shares - levels).max() < 1.63 / 150**0.5  # one in a hundred is larger


def test_only_samples_with_the_view_are_compared():
    rng = np.random.RandomState(0)
    first, second = rng.normal(size=(2, 30, 3))
    given, K = first @ first.T, second @ second.T
    coefficients = ridge_machine(given, second[:, 0] + rng.normal(size=30), 1.0)
    has, lost = np.arange(20), np.arange(20, 30)
    some = np.ix_(has, has)
    expected = conditional_pvalue(K[some], given[some], coefficients[:, has], n_permutations=99, random_state=0)
    K[lost], K[:, lost] = np.nan, np.nan
    assert conditional_pvalue(K, given, coefficients, n_permutations=99, random_state=0) == expected


def test_the_statistic_is_that_of_the_definition():
    rng = np.random.RandomState(2)
    n = 12
    first, second = rng.normal(size=(2, n, 2))
    # Coefficients of machines that follow noise closely, which the sign of every sample's neighbours does not predict.
    given, K = np.exp(-np.sum((first[:, np.newaxis] - first) ** 2, axis=2)), second @ second.T
    coefficients = np.vstack([ridge_machine(given, y, 0.1) for y in rng.normal(size=(2, n))])
    H = np.eye(n) - 1.0 / n

    def left_out_error(ridge, targets):
        """By n fits of ridge regression with an intercept, each without a sample."""
        total = 0.0
        for i in range(n):
            rest = np.delete(np.arange(n), i)
            for column in targets.T:
                centred, mean = column[rest] - column[rest].mean(), column[rest].mean()
                moved = given - given[rest].mean(axis=0)
                among = moved[np.ix_(rest, rest)] - moved[np.ix_(rest, rest)].mean(axis=1, keepdims=True)
                to_left = given[i, rest] - given[rest][:, rest].mean(axis=0)
                to_left = to_left - to_left.mean()
                total += (column[i] - mean - to_left @ np.linalg.solve(among + ridge * np.eye(n - 1), centred)) ** 2
        return total

    def residual_matrix(targets):
        mean = np.trace(H @ given @ H) / n
        ridges = [factor * mean for factor in (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e12)]
        ridge = min(ridges, key=lambda one: left_out_error(one, targets))
        return ridge * H @ np.linalg.inv(H @ given @ H + ridge * np.eye(n)) @ H

    R, beta = residual_matrix(second), residual_matrix(coefficients.T) @ coefficients.T
    random, values = np.random.RandomState(5), []
    for order in [np.arange(n), *(random.permutation(n) for _ in range(19))]:
        moved = R @ beta[order]
        values.append(np.trace(moved.T @ H @ K @ H @ moved) / np.sum(moved**2))
    expected = np.mean(np.array(values) >= values[0] * (1 - 1e-9))
    assert conditional_pvalue(K, given, coefficients, n_permutations=19, random_state=5) == pytest.approx(expected)


def test_views_of_too_few_samples_and_partial_gaps_are_refused():
    K = np.eye(5)
    K[2:], K[:, 2:] = np.nan, np.nan
    with pytest.raises(ValueError, match="K: 2 of 5 samples have the view, too few to permute; give at least 3"):
        conditional_pvalue(K, np.eye(5), np.ones((1, 5)))
    K = np.eye(5)
    K[0, 1] = np.nan
    with pytest.raises(ValueError, match="K has NaN or infinite entries between samples that have the view"):
        conditional_pvalue(K, np.eye(5), np.ones((1, 5)))
