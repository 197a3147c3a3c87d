"""What the study of UCI computes by itself: the published splits, densities, and which fits need a device."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm


@pytest.fixture
def uci(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "studies"))
    for name in ("common", "uci"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import uci

    return uci


@pytest.fixture
def file(tmp_path):
    """A set of 60 samples with a constant column, in the form of the published ones."""
    rng = np.random.RandomState(0)
    X = np.column_stack([rng.normal(size=(60, 2)), np.ones(60)])
    y = 5 + np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    path = tmp_path / "uci_regression.npz"
    np.savez(path, yacht_X=X, yacht_y=y[:, np.newaxis], yacht_test_3=np.array([7, 2, 50]))
    return path, X, y


def test_a_split_trains_on_all_rows_but_those_to_test_on(uci, file):
    path, X, y = file
    A, a, B, b = uci.read_split(path, "yacht", 3)
    np.testing.assert_array_equal(B, X[[7, 2, 50], :2])
    np.testing.assert_array_equal(b, y[[7, 2, 50]])
    np.testing.assert_array_equal(A, np.delete(X, [2, 7, 50], axis=0)[:, :2])
    np.testing.assert_array_equal(a, np.delete(y, [2, 7, 50]))


def test_the_density_is_that_of_a_gaussian(uci):
    y, mean, deviation = np.array([1.0, 2.0]), np.array([0.5, 4.0]), np.array([0.1, 3.0])
    assert uci.log_density(y, mean, deviation) == pytest.approx(norm(mean, deviation).logpdf(y).mean())


def test_rows_are_all_or_a_draw_of_the_split(uci):
    np.testing.assert_array_equal(uci.some_rows(5, 5, 0), range(5))
    some = uci.some_rows(50, 20, 1)
    assert len(set(some)) == 20
    np.testing.assert_array_equal(some, uci.some_rows(50, 20, 1))
    assert set(some) != set(uci.some_rows(50, 20, 2))


def test_weights_learned_from_some_rows_serve_all(uci, file):
    A, a, B, _ = uci.read_split(file[0], "yacht", 3)
    model = uci.fit_ours(uci.BEST, A, a, 3, None, most=40)
    rows = uci.some_rows(57, 40, 3)
    learned = uci.MKLRidgeCV(**uci.OURS[uci.BEST]).fit(A[rows], a[rows])
    np.testing.assert_allclose(model.weights_, learned.weights_)
    assert model.alpha_ == pytest.approx(learned.alpha_)
    assert len(model.loo_predictions_) == 57
    assert model.predict(B).shape == (3,)


def test_a_unit_measures_its_method_on_the_samples_to_test_on(uci, file):
    A, a, B, b = uci.read_split(file[0], "yacht", 3)
    name, found = uci.run_unit(uci.Unit("yacht", 3, uci.EVIDENCE), file[0], None)
    model = uci.MKLRidgeCV(criterion="evidence").fit(A, a)
    mean, deviation = model.predict(B, return_std=True)
    low, high = model.predict_interval(B).T
    assert name == "yacht, 3, evidence"
    assert found["rmse"] == pytest.approx(np.linalg.norm(mean - b) / np.sqrt(3))
    assert found["ll"] == pytest.approx(norm(mean, deviation).logpdf(b).mean())
    assert found["covered"] == np.mean((low <= b) & (b <= high))


def test_units_have_names_of_their_own_and_large_exact_fits_need_a_device(uci):
    units = uci.all_units()
    assert len({unit.name for unit in units}) == len(units)
    assert {unit.set for unit in units if unit.on_device} == set(uci.LARGE)
    assert {unit.method for unit in units if unit.on_device} == {uci.BEST, uci.EQUAL}
    assert len([unit for unit in units if unit.set == "kin8nm" and unit.method == uci.BEST]) == 20
