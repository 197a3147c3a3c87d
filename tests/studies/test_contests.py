"""What the studies of UCI classes and wide tables compute by themselves: splits, rivals, ranks over
sets, pages."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, ParameterGrid, RepeatedStratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

NAMES = ("common", "_rivals", "_contest", "uci_classes", "wide")


@pytest.fixture
def study(monkeypatch, tmp_path):
    """Copies of the scripts, whose tables, pictures and page lie beside them."""
    scripts, docs = tmp_path / "studies", tmp_path / "docs"
    (docs / "images").mkdir(parents=True)
    scripts.mkdir()
    for name in NAMES:
        shutil.copy(Path(__file__).parents[2] / "studies" / f"{name}.py", scripts)
        monkeypatch.delitem(sys.modules, name, raising=False)
    lines = (f"| [{name}](studies/{name}.md) |  |  |  |\n" for name in ("uci_classes", "wide"))
    (docs / "studies").mkdir()
    (docs / "studies.md").write_text("".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(str(scripts))
    yield SimpleNamespace(**{name.strip("_"): importlib.import_module(name) for name in NAMES})
    for name in NAMES:
        del sys.modules[name]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Two sets in the form of the published ones, the smaller of two classes, the larger of
    three."""
    arrays, rng = {"names": np.array(["three", "two"])}, np.random.RandomState(0)
    for name, n, classes in (("three", 72, 3), ("two", 48, 2)):
        X, y = make_classification(
            n,
            5,
            n_informative=3,
            n_redundant=0,
            n_classes=classes,
            n_clusters_per_class=1,
            random_state=1,
        )
        arrays |= {f"{name}_X": np.column_stack([X, np.ones(n)]).astype(np.float32), f"{name}_y": y}
        for k in range(4):
            order = rng.permutation(n)
            arrays |= {f"{name}_train_{k}": order[n // 4 :], f"{name}_test_{k}": order[: n // 4]}
    path = tmp_path_factory.mktemp("data") / "uci_classes.npz"
    np.savez(path, **arrays)
    return path, arrays


# Splits -------------------------------------------------------------------------------------------


def test_a_split_is_the_published_one_without_constant_columns(study, file):
    path, arrays = file
    split = study.uci_classes.read_split(path, "three", 2)
    np.testing.assert_array_equal(split.A, arrays["three_X"][arrays["three_train_2"], :5])
    np.testing.assert_array_equal(split.b, arrays["three_y"][arrays["three_test_2"]])
    assert split.X.shape == (72, 5)
    assert split.A.dtype == np.float64


def test_a_fold_is_shuffled_first_and_then_split_by_class(study, file):
    path, arrays = file
    order = np.random.RandomState(42).permutation(72)
    X, y = arrays["three_X"][order], arrays["three_y"][order]
    folds = RepeatedStratifiedKFold(n_splits=3, n_repeats=10, random_state=42)
    train, test = list(folds.split(X, y))[17]
    split = study.wide.read_fold(path, "three", 17)
    np.testing.assert_array_equal(split.A, X[train, :5])
    np.testing.assert_array_equal(split.b, y[test])
    assert [study.wide.n_folds(n) for n in (2499, 2500)] == [30, 9]


def test_a_share_is_taken_of_every_class_and_never_all_of_one(study):
    y = np.repeat([0, 1, 2], [20, 10, 1])
    rest, taken = study.rivals.take_share(y, 0.2, seed=3)
    np.testing.assert_array_equal(np.bincount(y[taken], minlength=3), [4, 2, 0])
    np.testing.assert_array_equal(np.sort([*rest, *taken]), np.arange(31))
    assert len(study.rivals.take_share(np.array([0, 1, 1]), 0.1, seed=0)[1]) == 1


def test_units_go_from_small_sets_to_large_ones(study, file):
    units = study.contest.all_units(file[0], study.uci_classes.CONTEST)
    assert len(units) == len({unit.name for unit in units}) == 2 * 4 * 9
    assert [unit.set for unit in units] == ["two"] * 36 + ["three"] * 36
    small = study.contest.all_units(file[0], study.wide.CONTEST, most_rows=50)
    assert {unit.set for unit in small} == {"two"}
    assert len(small) == 30 * 8


# Recursive feature machines -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns", [3, 9], ids=["few columns", "more columns than samples times classes"]
)
def test_the_metric_is_the_mean_outer_product_of_gradients(study, columns):
    rng = np.random.RandomState(0)
    A, alpha, F = (
        rng.normal(size=(4, columns)),
        rng.normal(size=(4, 2)),
        rng.normal(size=(columns, columns)),
    )

    def outputs(x, metric):
        offs = A - x
        return np.exp(-np.sqrt(np.einsum("ij,jk,ik->i", offs, metric, offs)) / 10) @ alpha

    for factor, metric in ((None, np.eye(columns)), (F, F.T @ F)):
        # The slope of a sample's own term, which has none, is zero on average over two opposite
        # steps.
        step = 1e-6 * np.eye(columns)
        slopes = [
            [(outputs(x + h, metric) - outputs(x - h, metric)) / 2e-6 for h in step] for x in A
        ]
        expected = np.mean([np.array(one) @ np.array(one).T for one in slopes], axis=0)
        found = study.rivals.next_factor(np, A, alpha, factor)
        assert found.shape[0] <= min(8, columns)
        np.testing.assert_allclose(found.T @ found, expected, rtol=1e-5, atol=1e-8)


def test_the_machine_solves_ridge_regression_of_indicators_in_its_metric(study, file):
    split = study.uci_classes.read_split(file[0], "three", 0)
    model = study.rivals.RecursiveFeatureMachine(seed=1).fit(split.A, split.a)
    metric = np.eye(5) if model.factor_ is None else model.factor_.T @ model.factor_

    def read(X):
        return X / np.linalg.norm(X, axis=1, keepdims=True) if model.scaled_ else X

    def gram(P, Q):
        return np.array([[np.exp(-np.sqrt((p - q) @ metric @ (p - q)) / 10) for q in Q] for p in P])

    A, B = read(split.A), read(split.B)
    alpha = np.linalg.solve(gram(A, A) + model.ridge_ * np.eye(len(A)), np.eye(3)[split.a])
    expected = gram(B, A) @ alpha
    np.testing.assert_allclose(model.decision_function(split.B), expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(model.predict(split.B), expected.argmax(axis=1))


def test_only_the_machine_with_the_leak_reads_test_labels(study, file):
    split = study.uci_classes.read_split(file[0], "two", 0)
    changed = split.y.copy()
    changed[file[1]["two_test_0"]] = 1 - split.b
    other = split._replace(b=1 - split.b, y=changed)
    for method, same in ((study.rivals.RFM, True), (study.rivals.LEAK, False)):
        first, second = (
            study.rivals.FITS[method](one, None).decision_function(split.B)
            for one in (split, other)
        )
        assert np.array_equal(first, second) == same


@pytest.mark.torch
def test_a_device_computes_the_same(study, file):
    pytest.importorskip("torch")
    split = study.uci_classes.read_split(file[0], "three", 0)
    here, there = (
        study.rivals.RecursiveFeatureMachine(one).fit(split.A, split.a) for one in (None, "cpu")
    )
    np.testing.assert_allclose(
        there.decision_function(split.B), here.decision_function(split.B), rtol=1e-6, atol=1e-8
    )


def test_samples_of_length_zero_are_not_scaled(study):
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    X[3] = 0
    assert not study.rivals.RecursiveFeatureMachine().fit(X, y).scaled_


# The other rivals ---------------------------------------------------------------------------------


def test_figures_are_those_of_the_test_part(study, file):
    split = study.uci_classes.read_split(file[0], "two", 1)
    found = study.rivals.measure("ours", split, with_area=True)
    model = study.rivals.MKLRidgeClassifierCV(random_state=0).fit(split.A, split.a)
    probabilities = model.predict_proba(split.B)
    assert found["accuracy"] == np.mean(model.predict(split.B) == split.b)
    assert found["log_loss"] == pytest.approx(-np.log(probabilities[np.arange(12), split.b]).mean())
    assert found["auc"] == pytest.approx(roc_auc_score(split.b, probabilities[:, 1]))
    assert (found["train"], found["test"], found["columns"], found["device"]) == (36, 12, 5, "")


@pytest.mark.filterwarnings("ignore:The `probability` parameter was deprecated:FutureWarning")
def test_searches_cover_the_stated_points(study, file):
    rivals, split = study.rivals, study.uci_classes.read_split(file[0], "two", 0)
    wide = split._replace(A=np.tile(split.A, 201))
    grids = (rivals.boosting_grid(split), rivals.boosting_grid(wide))
    assert [len(ParameterGrid(grid)) for grid in grids] == [12, 2]
    # The search of the SVM is that of scikit-learn for a pipeline.
    pipeline = make_pipeline(StandardScaler(), SVC())
    grid = {"svc__C": rivals.CS, "svc__gamma": rivals.GAMMAS / split.A.shape[1]}
    assert len(ParameterGrid(grid)) == 30
    expected = GridSearchCV(pipeline, grid, cv=rivals.FOLDS).fit(split.A, split.a)
    model = rivals.FITS["svm"](split, None)
    assert expected.best_params_["svc__C"] == model.machine_.C
    assert rivals.GAMMAS[model.gamma_] / split.A.shape[1] == expected.best_params_["svc__gamma"]
    np.testing.assert_array_equal(model.predict(split.B), expected.predict(split.B))
    outputs = expected.decision_function(split.B)
    np.testing.assert_allclose(
        model.decision_function(split.B), outputs, atol=1e-3 * np.abs(outputs).max()
    )
    assert model.predict_proba(split.B).shape == (12, 2)


def test_areas_of_several_classes_are_means_of_each_against_the_rest(study):
    rng = np.random.RandomState(0)
    y, scores = rng.randint(3, size=30), rng.dirichlet(np.ones(3), size=30)
    expected = roc_auc_score(y, scores, multi_class="ovr")
    assert study.rivals.area(y, scores, np.arange(3)) == pytest.approx(expected)


def test_a_method_without_its_package_is_left_out_with_a_sentence(study, capsys):
    assert study.rivals.installed(["ours", "xrfm"], find=lambda name: None) == ["ours"]
    assert "pip install xrfm" in capsys.readouterr().out
    assert study.rivals.installed(["ours", "xrfm"], find=lambda name: name) == ["ours", "xrfm"]


def test_settings_of_xrfm_are_drawn_within_their_space_and_again_the_same(study):
    settings = [study.rivals.xrfm_settings(k) for k in range(study.rivals.XRFM_SETTINGS)]
    assert settings == [study.rivals.xrfm_settings(k) for k in range(30)]
    assert all(0.5 <= one["bandwidth"] <= 200 and 1e-6 <= one["reg"] <= 10 for one in settings)
    assert all(0.7 <= one["exponent"] <= one["norm_p"] <= 2 for one in settings)
    assert len({one["bandwidth"] for one in settings}) == 30
    assert {one["kernel"] for one in settings} == {"lpq", "l2"}


def test_xrfm_takes_the_setting_that_is_best_on_the_fifth_held_out(study, file):
    pytest.importorskip("xrfm")
    split = study.uci_classes.read_split(file[0], "three", 0)
    model = study.rivals.TunedXRFM(n_settings=3).fit(split.A, split.a)
    probabilities = model.predict_proba(split.B)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert np.mean(model.predict(split.B) == split.b) > 0.5


# Ranks --------------------------------------------------------------------------------------------


def test_critical_differences_are_those_of_the_printed_table(study):
    """Demšar (2006), table 5: q of 5 % for 2, 5 and 10 classifiers."""
    for k, q in ((2, 1.960), (5, 2.728), (10, 3.164)):
        assert study.contest.critical_difference(k, 30) == pytest.approx(
            q * np.sqrt(k * (k + 1) / 180), rel=1e-3
        )


def test_bars_join_runs_of_ranks_within_the_difference(study):
    assert study.contest.cliques([1.0, 1.5, 2.2, 4.0], 1.0) == [(0, 1), (1, 2)]
    assert study.contest.cliques([1.0, 1.2, 1.4], 1.0) == [(0, 2)]
    assert study.contest.cliques([1.0, 3.0], 1.0) == []


def rows_of(accuracies, split=0):
    return [
        {
            "set": name,
            "split": split,
            "method": method,
            "accuracy": value,
            "log_loss": "",
            "train": 30.0,
            "test": 10.0,
        }
        | {"columns": 4.0, "seconds": 1.0, "auc": 0.5}
        for method, own in accuracies.items()
        for name, value in zip("abcd", own, strict=False)
    ]


def test_ranks_are_of_sets_that_all_ranked_methods_have(study):
    figures = study.contest.Figures(
        rows_of(
            {"ours": [0.9, 0.8, 0.7, 0.6], "svm": [0.8, 0.8, 0.9], "forest": [0.7, 0.7, 0.5, 0.9]}
        )
        + rows_of({"xrfm": [1.0], "rfm-leak": [1.0, 1.0, 1.0, 1.0]})
    )
    assert figures.ranked == ["ours", "svm", "forest"]
    assert figures.compared == ["a", "b", "c"]
    assert figures.ranks() == pytest.approx(
        {"ours": (1 + 1.5 + 2) / 3, "svm": (2 + 1.5 + 1) / 3, "forest": 3}
    )
    pair = figures.pair("ours", "svm")
    assert pair.points == pytest.approx(100 * (0.1 + 0 - 0.2) / 3)
    assert pair.cells()[:2] == ["-3.33", "1 / 1 / 1"]
    assert figures.pair("ours", "xrfm").sets == ["a"]
    # Also on sets that one of the ranked methods lacks.
    assert (
        study.contest.behind(figures)
        == "d (60.0 for 90.0, random forest), c (70.0 for 90.0, tuned SVM)"
    )


def test_a_set_counts_for_a_method_that_has_all_its_splits(study):
    both = [
        *rows_of({"ours": [0.5, 0.5], "svm": [0.4, 0.4]}),
        *rows_of({"ours": [0.7, 0.7], "svm": [0.6]}, split=1),
    ]
    figures = study.contest.Figures(both)
    assert figures.complete("ours") == ["a", "b"]
    assert figures.complete("svm") == ["a"]
    np.testing.assert_allclose(figures.means("ours", "ab"), 0.6)
    assert study.contest.splits_run(figures, lambda n: 2) == "All published ones were run."
    fewer = study.contest.splits_run(figures, lambda n: n // 10)
    assert fewer == "2 sets, of 40 samples or more, were run on 2 of the published splits only."


# Runs and pages -----------------------------------------------------------------------------------


def chosen_options(data, output, **more):
    given = {
        "data": str(data),
        "output": str(output),
        "jobs": 1,
        "only": [],
        "methods": ["ours", "forest"],
    }
    return SimpleNamespace(
        **given | {"most_rows": None, "splits": None, "minutes": None, "device": None} | more
    )


def quick(method, split, device, with_area):
    """Figures that take no time; the forest fails on the first split of `two`."""
    if method == "forest" and split.number == 0 and len(split.y) == 48:
        raise ValueError("no tree grows")
    figures = {"accuracy": 0.9 if method == "ours" else 0.8, "log_loss": 0.3, "auc": 0.95}
    sizes = {"train": len(split.a), "test": len(split.b), "columns": split.A.shape[1]}
    return figures | sizes | {"device": "", "seconds": 2.0, "cpu_seconds": 1.0}


def test_a_run_goes_on_where_it_was_and_keeps_no_unit_that_failed(study, file, tmp_path, capsys):
    contest, run = study.uci_classes.CONTEST._replace(measure=quick), study.contest.run
    run(chosen_options(file[0].parent, tmp_path, only=["two"]), contest)
    printed = capsys.readouterr().out
    assert "8 of 8 units are to be run." in printed
    assert "two, 0, forest: ValueError: no tree grows" in printed
    assert "ours: 2.0 s a unit, at most 2.0 s (two, 3, ours)" in printed
    assert len(study.common.Store(str(tmp_path), "uci_classes").units) == 7
    run(chosen_options(file[0].parent, tmp_path, methods=["forest"], most_rows=50), contest)
    assert "1 of 4 units are to be run." in capsys.readouterr().out
    run(chosen_options(file[0].parent, tmp_path, minutes=-1), contest)
    assert len(study.common.Store(str(tmp_path), "uci_classes").units) == 7
    with pytest.raises(SystemExit, match="--only iris: no such set here; choose of three, two"):
        run(chosen_options(file[0].parent, tmp_path, only=["iris"]), contest)


def test_the_page_of_uci_classes_is_made_of_all_runs(study, file, tmp_path):
    contest, page = (
        study.uci_classes.CONTEST._replace(measure=quick),
        study.common.page_of("uci_classes"),
    )
    study.uci_classes.write_page()
    assert "No figures yet" in page.read_text(encoding="utf-8")
    for name in ("two", "three"):
        study.contest.run(chosen_options(file[0].parent, tmp_path / name, only=[name]), contest)
    study.contest.write_tables(
        [str(tmp_path / name) for name in ("two", "three")], contest, file[0]
    )
    study.uci_classes.write_page()
    text = page.read_text(encoding="utf-8")
    assert "Over 1 of 2 sets it has a mean rank of 1.00 among 2 methods" in text
    assert "The best mean ranks are kernelmosaic (1.00), random forest (2.00)." in text
    assert "| random forest | 80.00 | 2.00 | 0.300 | 1.0 | +10.00 | 1 / 0 / 0 |" in text
    assert "All published ones were run." in text
    cells = study.common.overview_cells("uci_classes")
    assert cells[:2] == (
        "accuracy 90.00 %, mean rank 1.00",
        "80.00 %, mean rank 2.00, random forest",
    )
    assert cells[2].startswith("rank 1 of 2 methods over 1 sets")
    sets = study.common.read_table("uci_classes_sets")
    assert sets[1] == {
        "set": "three",
        "train": 54,
        "columns": 5,
        "kernelmosaic": 90.0,
        "random forest": 80.0,
    }
    assert sets[0] == {
        "set": "two",
        "train": 36,
        "columns": 5,
        "kernelmosaic": 90.0,
        "random forest": "",
    }
    assert (study.common.IMAGES / study.uci_classes.PICTURE).stat().st_size > 1000


def test_published_figures_stand_beside_those_of_the_same_folds(study, file, tmp_path):
    contest = study.wide.CONTEST._replace(measure=quick)
    path = tmp_path / "wide.npz"
    path.write_bytes(file[0].read_bytes())
    lines = [f"two,TabPFN-Wide 5k,{k},{0.95 if k < 12 else 0.7},0.9" for k in range(30)]
    lines += ["gisette,TabPFN-Wide 5k,0,0.99,0.99"]
    (tmp_path / "wide_results.csv").write_text(
        "set,method,fold,accuracy,auc\n" + "\n".join(lines), encoding="utf-8"
    )
    options = chosen_options(tmp_path, tmp_path / "run", only=["two"], methods=["ours"])
    study.contest.run(options, contest)
    study.contest.write_tables([str(tmp_path / "run")], contest, path)
    study.wide.write_published(options)
    study.wide.write_page()
    text = study.common.page_of("wide").read_text(encoding="utf-8")
    assert "| two | 30 | 90.0 | 80.0 | 18 / 0 / 12 |" in text
    assert "| TabPFN-Wide 5k, published | 80.00 | 2.00 | 0.900 |  | +10.00 | 1 / 0 / 0 |" in text
    assert "gisette" not in text
    assert (
        "- *kernelmosaic*: {class}`~kernelmosaic.MKLRidgeClassifierCV` with default settings."
        in text
    )
    assert (
        "Not run on these sets, though the script has them: equal weights; tuned SVM; random"
        " forest;" in text
    )
    rows = [
        *rows_of({"ours": [0.9, 0.8], "svm": [0.8, 0.85]}),
        *rows_of({"ours": [0.5, 0.5], "svm": [0.4]}, split=1),
    ]
    assert (
        study.wide.lacking(study.contest.Figures(rows))
        == "- *tuned SVM* was not run on all folds of b, and has no rank. On the folds that both"
        " have, kernelmosaic has +2.50 points of accuracy, better on 1 of 2 sets (*p* ="
        " 1.000).\n"
    )
