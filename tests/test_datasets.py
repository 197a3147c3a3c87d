"""The mixtures against their published parameters, the Bayes rule against other integrals, sets
from files."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_wine

from kernelmosaic.datasets import BayesRule, load, make_gaussians

# prior, mean, diagonal of the covariance, label: as printed, one row per component
TABLE = {
    2: [(0.50, (-1, 1), (0.8, 2), 1), (0.50, (1, -2.2), (0.8, 4), -1)],
    3: [(0.25, (-2, 1), (0.8, 2), 1), (0.25, (2, 1), (0.8, 2), 1), (0.50, (0, -2.2), (0.8, 4), -1)],
    4: [
        (0.25, (-3, 1), (0.8, 2), 1),
        (0.25, (1, 1), (0.8, 2), 1),
        (0.25, (-1, -2.2), (0.8, 4), -1),
        (0.25, (3, -2.2), (0.8, 4), -1),
    ],
    5: [
        (0.16, (-4, 1), (0.8, 2), 1),
        (0.18, (0, 1), (0.8, 2), 1),
        (0.16, (4, 1), (0.8, 2), 1),
        (0.25, (-2, -2.2), (0.8, 4), -1),
        (0.25, (2, -2.2), (0.8, 4), -1),
    ],
}
POPULATION_ACCURACY = {2: 92.83, 3: 89.90, 4: 89.74, 5: 88.55}

every_mixture = pytest.mark.parametrize("n_components", sorted(TABLE))


def joint_density(X, n_components, label):
    return sum(
        p * multivariate_normal(m, np.diag(v)).pdf(X)
        for p, m, v, c in TABLE[n_components]
        if c == label
    )


def accuracy_by_lines(n_components):
    """Integrate exactly along x₂ (the + region is an interval between two roots), numerically along
    x₁ only."""

    def along(x1):
        plus, minus = (
            sum(
                p * norm.pdf(x1, m[0], v[0] ** 0.5)
                for p, m, v, c in TABLE[n_components]
                if c == label
            )
            for label in (1, -1)
        )
        # plus · N(x₂; 1, 2) ≥ minus · N(x₂; −2.2, 4), as a quadratic in x₂
        a, b = 1 / 8 - 1 / 4, 1 / 2 + 2.2 / 4
        c = np.log(plus / minus) + 0.5 * np.log(4 / 2) - 1 / 4 + 2.2**2 / 8
        if b * b <= 4 * a * c:
            return minus
        low, high = np.sort(np.roots([a, b, c]))
        inside_plus = norm.cdf(high, 1, 2**0.5) - norm.cdf(low, 1, 2**0.5)
        inside_minus = norm.cdf(high, -2.2, 2) - norm.cdf(low, -2.2, 2)
        return plus * inside_plus + minus * (1 - inside_minus)

    return quad(along, -11, 11, limit=200)[0]


@every_mixture
def test_moments_and_priors_are_those_of_the_table(n_components):
    n = 200_000
    X, y = make_gaussians(n_components, n, random_state=0)
    assert X.shape == (n, 2)
    assert set(y) == {-1, 1}
    for label in (-1, 1):
        rows = [(p, np.array(m), np.array(v)) for p, m, v, c in TABLE[n_components] if c == label]
        prior = sum(p for p, _, _ in rows)
        mean = sum(p * m for p, m, _ in rows) / prior
        cov = sum(p * (np.diag(v) + np.outer(m, m)) for p, m, v in rows) / prior - np.outer(
            mean, mean
        )
        sample = X[y == label]
        assert len(sample) / n == pytest.approx(prior, abs=5 * np.sqrt(0.25 / n))
        np.testing.assert_allclose(
            sample.mean(axis=0), mean, atol=5 * np.sqrt(cov.max() / len(sample))
        )
        np.testing.assert_allclose(
            np.cov(sample.T), cov, atol=7 * cov.max() * np.sqrt(2 / len(sample))
        )


@every_mixture
def test_each_component_has_its_prior(n_components):
    n = 100_000
    X, y = make_gaussians(n_components, n, random_state=3)
    # Components of a class lie 4 apart along x₁ with deviation 0.9: the nearest mean errs 1.3 % of
    # the time per side.
    for label in (-1, 1):
        rows = [(p, m[0]) for p, m, _, c in TABLE[n_components] if c == label]
        nearest = np.abs(X[y == label, :1] - [m for _, m in rows]).argmin(axis=1)
        shares = np.bincount(nearest, minlength=len(rows)) / n
        np.testing.assert_allclose(shares, [p for p, _ in rows], atol=0.008)


def test_a_seed_gives_the_same_draw_and_another_a_different_one():
    X, y = make_gaussians(random_state=7)
    X_again, y_again = make_gaussians(random_state=np.random.RandomState(7))
    np.testing.assert_array_equal(X, X_again)
    np.testing.assert_array_equal(y, y_again)
    assert X.shape == (1200, 2)
    assert not np.array_equal(X, make_gaussians(random_state=8)[0])


@every_mixture
def test_log_odds_are_those_of_scipys_densities(n_components):
    X = np.random.RandomState(0).uniform(-6, 6, size=(300, 2))
    expected = np.log(joint_density(X, n_components, 1)) - np.log(
        joint_density(X, n_components, -1)
    )
    np.testing.assert_allclose(
        BayesRule(n_components).decision_function(X), expected, rtol=1e-9, atol=1e-10
    )


def test_log_odds_stay_finite_where_both_densities_underflow():
    assert np.isfinite(BayesRule().decision_function([[500.0, -300.0], [-1e4, 1e4]])).all()


@every_mixture
def test_population_accuracy(n_components):
    accuracy = BayesRule(n_components).accuracy()
    assert round(100 * accuracy, 2) == POPULATION_ACCURACY[n_components]
    assert accuracy == pytest.approx(accuracy_by_lines(n_components), abs=1e-6)


@every_mixture
def test_sample_accuracy_is_that_of_the_population_and_beats_a_shifted_rule(n_components):
    n = 50_000
    X, y = make_gaussians(n_components, n, random_state=1)
    rule = BayesRule(n_components)
    decision = rule.decision_function(X)
    np.testing.assert_array_equal(rule.predict(X), np.where(decision >= 0, 1, -1))
    accuracy = (rule.predict(X) == y).mean()
    assert accuracy == pytest.approx(
        POPULATION_ACCURACY[n_components] / 100, abs=4 * np.sqrt(0.1 * 0.9 / n)
    )
    for shift in (-0.5, 0.5):
        assert accuracy > ((decision + shift > 0) == (y > 0)).mean()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"n_components": 6}, ValueError, "n_components=6.*2, 3, 4, 5"),
        ({"n_components": "4"}, ValueError, "n_components='4'"),
        ({"n_samples": 0}, ValueError, "n_samples=0.*at least 1"),
        ({"n_samples": 10.5}, ValueError, "n_samples=10.5.*whole number"),
        ({"n_samples": True}, ValueError, "n_samples=True"),
    ],
)
def test_bad_arguments_are_named(arguments, error, words):
    with pytest.raises(error, match=words):
        make_gaussians(**arguments)


def test_the_rule_names_bad_input():
    with pytest.raises(ValueError, match="n_components=1"):
        BayesRule(1)
    with pytest.raises(ValueError, match=r"3 columns.*give 2"):
        BayesRule().predict(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="NaN"):
        BayesRule().predict([[np.nan, 0.0]])


# Sets from files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["argument", "variable"])
def test_a_file_of_views(tmp_path, monkeypatch, by):
    views = {
        "rna": np.array([[1, 2], [3, 250]], dtype=np.uint8),
        "protein": np.array([[0.5], [np.nan]]),
    }
    np.savez(
        tmp_path / "patients.npz",
        y=np.array(["a", "b"]),
        **views,
        train=np.array([1]),
        centre=np.array([[7.0]]),
    )
    monkeypatch.setenv("KERNELMOSAIC_DATA", str(tmp_path) if by == "variable" else "/nowhere")
    found = load("patients", tmp_path if by == "argument" else None)
    assert_array_equal(found.data, [[1, 2, 0.5], [3, 250, np.nan]])
    assert_array_equal(found.target, ["a", "b"])
    assert list(found.views) == ["rna", "protein"]
    assert found.views["rna"].dtype == np.float64
    assert found.columns["protein"] == [2]
    assert (found.train.tolist(), found.centre.tolist()) == ([1], [[7.0]])


def test_a_file_of_one_table(tmp_path):
    np.savez(
        tmp_path / "one.npz",
        X=np.array([[200], [100]], dtype=np.uint8),
        y=np.arange(2),
        other=np.eye(2),
    )
    X, y = load("one", tmp_path, return_X_y=True)
    assert_array_equal(X**2, [[40000.0], [10000.0]])
    assert_array_equal(y, [0, 1])
    assert load("one", tmp_path).views == {}
    np.savez(tmp_path / "letters.npz", X=np.array([b"ACG", b"TT"]), y=np.arange(2))
    assert_array_equal(load("letters", tmp_path).data, [b"ACG", b"TT"])


def test_a_set_of_scikit_learn(tmp_path):
    found = load("wine", tmp_path)
    assert_array_equal(found.data, load_wine().data)
    assert_array_equal(found.target, load_wine().target)
    assert found.views == {}


def test_what_is_wrong_with_a_file_or_a_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("KERNELMOSAIC_DATA", raising=False)
    with pytest.raises(
        FileNotFoundError,
        match=r"name='banana': banana\.npz was not found.*KERNELMOSAIC_DATA.*wine",
    ):
        load("banana")
    with pytest.raises(FileNotFoundError, match=r"data_home='.*nowhere' is not a folder"):
        load("wine", tmp_path / "nowhere")
    np.savez(tmp_path / "banana.npz", X=np.eye(2))
    with pytest.raises(ValueError, match=r"banana\.npz holds X: an array y"):
        load("banana", tmp_path)
    np.savez(tmp_path / "banana.npz", y=np.arange(2), view=np.eye(3))
    with pytest.raises(ValueError, match=r"banana\.npz holds no X, and no view"):
        load("banana", tmp_path)
    np.savez(tmp_path / "banana.npz", y=np.arange(2), X=np.eye(2), target=np.arange(2))
    with pytest.raises(
        ValueError, match=r"banana\.npz holds an array called 'target', as a part of the result is"
    ):
        load("banana", tmp_path)
