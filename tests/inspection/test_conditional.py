"""Whether a view adds to the others: uniform under the null, able to find what is there, and as
defined."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic.inspection import conditional_pvalue


@pytest.fixture(scope="module")
def conditional():
    """The p-values of three views given a first one in 120 problems: noise, a noisy copy of the
    first, and signal."""
    found, rng = {"noise": [], "copy": [], "signal": []}, np.random.RandomState(0)
    for _ in range(120):
        first, noise, signal = rng.normal(size=(3, 40, 4))
        views = {"noise": noise, "copy": first + 0.5 * rng.normal(size=(40, 4)), "signal": signal}
        y = first @ [1.0, 1.0, 0.5, 0.0] + signal[:, 0] + rng.normal(size=40)
        # Kernel ridge regression: so large a ridge leaves unexplained what the first view has, too,
        # and a copy must not be taken for more.
        K = first @ first.T / np.sum(first**2) * 40
        bordered = np.block(
            [[K + 10 * np.eye(40), np.ones((40, 1))], [np.ones((1, 40)), np.zeros((1, 1))]]
        )
        machine = K, np.linalg.solve(bordered, np.append(y, 0.0))[np.newaxis, :40]
        for name, view in views.items():
            found[name].append(
                conditional_pvalue(view @ view.T, *machine, n_permutations=19, random_state=rng)
            )
    return {name: np.array(p) for name, p in found.items()}


def test_a_view_of_noise_has_any_p_value_as_often(conditional):
    # 1/20, 2/20, … are as probable. The largest difference of the distributions is Kolmogorov and
    # Smirnov's.
    levels = np.arange(1, 21) / 20
    shares = np.array([np.mean(conditional["noise"] <= level + 1e-9) for level in levels])
    assert np.abs(shares - levels).max() < 1.63 / 120**0.5  # one in a hundred is larger


def test_a_view_that_repeats_another_has_no_small_p_value_and_signal_has(conditional):
    for level in (0.05, 0.1, 0.2):
        assert (
            np.mean(conditional["copy"] <= level)
            <= level + 2.6 * (level * (1 - level) / 120) ** 0.5
        )
    assert np.mean(conditional["signal"] <= 0.05) > 0.8


def test_coefficients_of_some_samples_are_refused():
    with pytest.raises(
        ValueError, match=r"dual_coef has shape \(1, 3\), .* zero where a sample is not a supp"
    ):
        conditional_pvalue(np.eye(4), np.eye(4), np.ones((1, 3)))


def ridge_machine(K, y, ridge):
    """Coefficients of kernel ridge regression with an intercept, by its linear system."""
    n = len(K)
    bordered = np.block(
        [[K + ridge * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]]
    )
    return np.linalg.solve(bordered, np.append(y, 0.0))[np.newaxis, :n]


@pytest.mark.parametrize("lacking", [0, 8, 20])
def test_noise_that_samples_lack_has_any_p_value_as_often(lacking):
    # The machine follows noise closely; of its coefficients those of some samples do not sum to
    # zero.
    found, rng = [], np.random.RandomState(1)
    for _ in range(150):
        first, noise = rng.normal(size=(2, 40, 3))
        distances = np.sum((first[:, np.newaxis] - first) ** 2, axis=2)
        given = np.exp(-distances / 3.0)
        K = noise @ noise.T
        lost = rng.permutation(40)[:lacking]
        K[lost], K[:, lost] = np.nan, np.nan
        coefficients = ridge_machine(given, rng.normal(size=40), 0.1)
        found.append(
            conditional_pvalue(K, given, coefficients, n_permutations=19, random_state=rng)
        )
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
    expected = conditional_pvalue(
        K[some], given[some], coefficients[:, has], n_permutations=99, random_state=0
    )
    K[lost], K[:, lost] = np.nan, np.nan
    assert conditional_pvalue(K, given, coefficients, n_permutations=99, random_state=0) == expected


def test_the_statistic_is_that_of_the_definition():
    rng = np.random.RandomState(2)
    n = 12
    first, second = rng.normal(size=(2, n, 2))
    # Coefficients of machines that follow noise closely, which the sign of every sample's
    # neighbours does not predict.
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
                among = moved[np.ix_(rest, rest)] - moved[np.ix_(rest, rest)].mean(
                    axis=1, keepdims=True
                )
                to_left = given[i, rest] - given[rest][:, rest].mean(axis=0)
                to_left = to_left - to_left.mean()
                total += (
                    column[i]
                    - mean
                    - to_left @ np.linalg.solve(among + ridge * np.eye(n - 1), centred)
                ) ** 2
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
    assert conditional_pvalue(
        K, given, coefficients, n_permutations=19, random_state=5
    ) == pytest.approx(expected)


def test_views_of_too_few_samples_and_partial_gaps_are_refused():
    K = np.eye(5)
    K[2:], K[:, 2:] = np.nan, np.nan
    with pytest.raises(
        ValueError, match="K: 2 of 5 samples have the view, too few to permute; give at least 3"
    ):
        conditional_pvalue(K, np.eye(5), np.ones((1, 5)))
    K = np.eye(5)
    K[0, 1] = np.nan
    with pytest.raises(
        ValueError, match="K has NaN or infinite entries between samples that have the view"
    ):
        conditional_pvalue(K, np.eye(5), np.ones((1, 5)))
