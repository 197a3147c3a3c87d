"""What the study of UCI computes by itself: the published splits, densities, and which fits need a
device."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm


@pytest.fixture
def uci(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "studies"))
    for name in ("common", "_rivals", "uci"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import uci

    return uci


@pytest.fixture
def copied(monkeypatch, tmp_path):
    """A copy of the script, whose tables lie beside it."""
    scripts = tmp_path / "studies"
    scripts.mkdir()
    (tmp_path / "docs" / "studies").mkdir(parents=True)
    names = ("common", "_rivals", "uci")
    for name in names:
        shutil.copy(Path(__file__).parents[2] / "studies" / f"{name}.py", scripts)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(scripts))
    yield importlib.import_module("uci")
    for name in names:
        del sys.modules[name]


@pytest.fixture
def file(tmp_path):
    """A set of 60 samples with a constant column, in the form of the published ones."""
    rng = np.random.RandomState(0)
    X = np.column_stack([rng.normal(size=(60, 2)), np.ones(60)])
    y = 5 + np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    path = tmp_path / "uci_regression.npz"
    np.savez(
        path,
        yacht_X=X,
        yacht_y=y[:, np.newaxis],
        yacht_test_3=np.array([7, 2, 50]),
        yacht_test_2=np.array([1]),
    )
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
    assert uci.log_density(y, mean, deviation) == pytest.approx(
        norm(mean, deviation).logpdf(y).mean()
    )


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
    assert {unit.method for unit in units if unit.on_device} == {uci.BEST, uci.EQUAL, uci.XRFM}
    assert len([unit for unit in units if unit.set == "kin8nm" and unit.method == uci.BEST]) == 20
    assert {unit.method for unit in units if unit.set == "yacht"} == {
        one for own in uci.GROUPS.values() for one in own
    }


# xRFM ---------------------------------------------------------------------------------------------


class Constant:
    """In place of xRFM: the same output everywhere, which is the reciprocal of the bandwidth."""

    def __init__(self, parameters, **settings):
        self.output, self.settings = 1 / parameters["model"]["bandwidth"], settings

    def fit(self, *arrays):
        self.arrays = arrays

    def predict(self, X):
        return np.full((len(X), 1), self.output)


def test_xrfm_takes_the_setting_of_the_least_error_on_the_fifth_held_out(uci, file, monkeypatch):
    monkeypatch.setitem(sys.modules, "xrfm", SimpleNamespace(xRFM=Constant, __spec__=True))
    A, a, B, b = uci.read_split(file[0], "yacht", 3)
    model = uci.TunedXRFMRegressor(seed=3).fit(A, a)
    Z, z, _, h = model.model_.arrays
    assert (len(z), len(h)) == (46, 11)
    np.testing.assert_allclose([Z.mean(axis=0), Z.std(axis=0) - 1], 0, atol=1e-6)
    mean, deviation = model.targets_.mean_[0], model.targets_.scale_[0]
    np.testing.assert_allclose(
        np.sort(np.concatenate([z, h]).ravel()), np.sort((a - mean) / deviation), atol=1e-5
    )
    outputs = [1 / sys.modules["_rivals"].xrfm_settings(k)["bandwidth"] for k in range(30)]
    best = min(outputs, key=lambda one: np.mean((one - h) ** 2))
    np.testing.assert_allclose(model.predict(B), mean + deviation * best)
    assert model.model_.settings["tuning_metric"] == "mse"
    name, found = uci.run_unit(uci.Unit("yacht", 3, uci.XRFM), file[0], None)
    assert name == "yacht, 3, xRFM"
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((mean + deviation * best - b) ** 2)))


def test_the_package_learns_a_curve(uci, file):
    pytest.importorskip("xrfm")
    A, a, B, b = uci.read_split(file[0], "yacht", 3)
    model = uci.TunedXRFMRegressor(n_settings=4).fit(A, a)
    assert np.mean((model.predict(A) - a) ** 2) < 0.2 * np.var(a)
    assert model.predict(B).shape == b.shape


def test_tables_of_a_run_leave_other_fits_as_they_are(copied, file, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "xrfm", SimpleNamespace(xRFM=Constant, __spec__=True))
    published = tmp_path / "uci_regression_results.csv"
    published.write_text(
        "set,method,rmse,ll,splits,source\nyacht,net,0.66,-1.2,same,paper\n", encoding="utf-8"
    )
    kept = {"set": "yacht", "split": 0, "train": 57, "test": 3, "method": copied.SVM, "rmse": "0.5"}
    kept |= {"ll": "", "covered": "", "width": "", "seconds": "4.51"}
    copied.write_table("uci", [kept])
    copied.write_table("uci_machines", [{"machine": "first"}])
    with pytest.raises(SystemExit, match="no fits of uci there"):
        copied.write_tables([str(tmp_path / "none")], published)
    options = SimpleNamespace(
        data=str(tmp_path), output=str(tmp_path / "run"), jobs=1, only=["yacht"], device=None
    )
    options.groups, options.splits, options.tables = ["xrfm"], [0, 2, 3], []
    for _ in range(2):
        copied.run(options)
    # Splits 0 and 1 served choices; what is done is not done again.
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1] for line in lines[:2]] == ["yacht, 2, xRFM", "yacht, 3, xRFM"]
    assert lines[2:] == ["108 of 110 fits are missing; the page stays as it is."] * 2
    copied.write_tables([options.output], published)
    rows = copied.read_table("uci")
    found = copied.run_unit(copied.Unit("yacht", 3, copied.XRFM), file[0], None)[1]["rmse"]
    assert [(row["split"], row["method"]) for row in rows] == [
        (0, copied.SVM),
        (2, copied.XRFM),
        (3, copied.XRFM),
    ]
    assert [rows[0]["rmse"], rows[2]["rmse"]] == pytest.approx([0.5, found], rel=1e-5)
    assert copied.common.machines("uci_machines") == f"first and {copied.machine()}"


def test_a_machine_with_and_without_its_gpu_is_named_once(copied):
    copied.write_table(
        "uci_machines", [{"machine": "first"}, {"machine": "second"}, {"machine": "first; a GPU"}]
    )
    assert copied.common.machines("uci_machines") == "second and first; a GPU"


def test_methods_are_compared_on_the_splits_that_all_have(copied):
    uci = copied
    rows = [
        {
            "set": name,
            "split": k,
            "method": method,
            "train": 90,
            "test": 10,
            "rmse": e * (1 + 0.01 * k),
            "seconds": s,
        }
        for name, factor in (("yacht", 1.0), ("energy", 2.0), ("kin8nm", 3.0))
        for method, e, s, splits in (
            (uci.BEST, 0.5, 1, range(6)),
            (uci.XRFM, 0.5 * factor, 30, (2, 3, 4)),
        )
        for k in splits
        if not (method == uci.XRFM and name == "kin8nm")
    ]
    uci.write_table("uci", rows)
    uci.write_table(
        "uci_published",
        [{"set": "yacht", "method": "net", "rmse": 0.66, "ll": -1.2, "source": "paper"}],
    )
    figures = uci.Figures()
    energy, yacht = figures.same_splits((uci.BEST, uci.XRFM)).splitlines()[2:]
    assert energy == "| energy | 2 to 4 | 0.515 ± 0.003 | 1.03 ± 0.01 | 1.0 / 30.0 |"
    assert yacht == "| yacht | 2 to 4 | 0.515 ± 0.003 | 0.515 ± 0.003 | 1.0 / 30.0 |"
    # Two sets, of which one is equal: the ratio is the root of a half, and one difference of one
    # has p = 1.
    assert figures.compared(uci.BEST, uci.XRFM) == ["0.707", "1 of 2", "1 / 0", "1.000"]
    assert figures.compared(uci.BEST, uci.SVM) == [""] * 4
    # Twice the error on three splits, and 0.5 (1 + 0.01 · 2.5) over all six.
    assert figures.error("energy", uci.XRFM) == pytest.approx(2 * 0.5125)
    assert figures.error("kin8nm", uci.XRFM) is None
