"""``kernelmosaic fit`` by ridge, the default: the models that Python gives, without folds, and what
is said of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score
from sklearn.preprocessing import StandardScaler
from tests.cli.tables import PLAIN, curve, done, flowers, run, strings, write
from tests.reports.test_page import Reader

from kernelmosaic import MKLRidgeClassifierCV, MKLRidgeCV, load
from kernelmosaic.cli.layout import label_of, read_short
from kernelmosaic.cli.methods import with_method
from kernelmosaic.cli.requests import FitRequest
from kernelmosaic.cli.training_table import read_training_table
from kernelmosaic.kernels import Gaussian, Laplacian, Linear, Ranked
from kernelmosaic.ridge.kernels import ridge_kernels, ridge_view_kernels

pytestmark = pytest.mark.usefixtures("fixed_margins")

RIDGE = ("--method", "ridge")


def noisy(n=60, seed=1):
    table = curve(n, seed)
    return table.assign(y=table["y"] + 300 * np.random.RandomState(seed).randn(n))


def fitted(capsys, tmp_path, table, target, *arguments):
    path = write(table, tmp_path / "data.csv")
    said = done(
        capsys, "fit", path, "--target", target, *RIDGE, *arguments, "-o", tmp_path / "m.skops"
    )
    return load(tmp_path / "m.skops"), said


# The default --------------------------------------------------------------------------------------


def method_taken(said):
    return said.out.splitlines()[0].strip()


def without_seconds(said):
    return [line for line in said.out.splitlines() if "seconds" not in line]


@pytest.mark.parametrize(
    ("table", "target", "view"),
    [(flowers(), "kind", "shape_*:linear+gauss"), (noisy(), "y", "u,v:gauss+linear")],
    ids=["classes", "numbers"],
)
def test_classes_and_numbers_are_learned_by_ridge(capsys, tmp_path, table, target, view):
    view = ("--view", f"s={view}")
    named, said = fitted(capsys, tmp_path, table, target, *view)
    default = done(
        capsys, "fit", tmp_path / "data.csv", "--target", target, *view, "-o", tmp_path / "m.skops"
    )
    assert method_taken(default) == f"ridge, {named.training_['task']}"
    assert without_seconds(default) == without_seconds(said)
    assert default.err == said.err
    np.testing.assert_array_equal(load(tmp_path / "m.skops").predict(table), named.predict(table))


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("C", {"C": 1.0}),
        ("norm", {"norm": 1.0}),
        ("folds", {"folds": 5}),
        ("cost", {"costs": ("s=2",)}),
    ],
)
def test_an_option_of_mkl_alone_takes_mkl(option, given):
    found = with_method(FitRequest(Path("t.csv"), **given), "classification")
    assert (found.method, found.reason) == ("mkl", f"--{option} given")


def test_all_options_of_mkl_alone_are_named(capsys, tmp_path):
    path = write(flowers(), tmp_path / "data.csv")
    options = ("--C", "1", "--folds", "2", "--norm", "2", "--cost", "s=2")
    common = (
        "fit",
        path,
        "--target",
        "kind",
        "--view",
        "s=shape_*:linear",
        *options,
        "-o",
        tmp_path / "m.skops",
    )
    assert (
        method_taken(done(capsys, *common))
        == "mkl (--C, --norm, --folds, --cost given), classification"
    )


def test_the_method_that_is_taken_is_the_one_that_can_be_named(capsys, tmp_path):
    path = write(flowers(), tmp_path / "data.csv")
    common = (
        "fit",
        path,
        "--target",
        "kind",
        "--view",
        "s=shape_*:linear",
        *PLAIN,
        "-o",
        tmp_path / "m.skops",
    )
    default, named = done(capsys, *common), done(capsys, *common, "--method", "mkl")
    assert method_taken(named) == "mkl, classification"
    assert without_seconds(default)[1:] == without_seconds(named)[1:]


def test_a_tube_takes_mkl(capsys, tmp_path):
    path = write(noisy(24), tmp_path / "data.csv")
    said = done(
        capsys,
        "fit",
        path,
        "--target",
        "y",
        "--view",
        "s=u,v:gauss",
        "--epsilon",
        "50",
        "-o",
        path.parent / "m",
    )
    assert method_taken(said) == "mkl (--epsilon given), regression"
    assert load(path.parent / "m").named_steps["model"].epsilon == 50


@pytest.mark.parametrize(
    ("task", "method"),
    [
        ("classification", "ridge"),
        ("regression", "ridge"),
        ("one-class", "mkl"),
        ("survival", "mkl"),
        ("multi-label", "discriminant"),
    ],
)
def test_the_default_of_every_task(task, method):
    found = with_method(FitRequest(Path("t.csv")), task)
    assert (found.task, found.method, found.reason) == (task, method, "")


def test_a_criterion_needs_no_method(capsys, tmp_path):
    path = write(noisy(), tmp_path / "data.csv")
    said = done(
        capsys, "fit", path, "--target", "y", "--criterion", "evidence", "-o", tmp_path / "m.skops"
    )
    assert method_taken(said) == "ridge, regression"
    assert "(learned by evidence)" in said.out


@pytest.mark.parametrize("method", [(), RIDGE])
def test_a_class_of_one_row_is_learned_but_not_rows_that_are_all_classes(capsys, tmp_path, method):
    table = flowers()
    table.loc[0, "kind"] = "orchid"
    path = write(table, tmp_path / "data.csv")
    common = ("--view", "s=shape_*:linear+gauss", *method, "-o", tmp_path / "m.skops")
    assert "3: orchid, rose, tulip" in done(capsys, "fit", path, "--target", "kind", *common).out
    path = write(table.assign(kind=[f"c{i}" for i in range(60)]), tmp_path / "data.csv")
    assert (
        "60 of 60 classes have one row, such as 'c0'"
        in run(capsys, "fit", path, "--target", "kind", *common).error
    )


# Models -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_numbers_are_learned_as_python_learns_them(capsys, tmp_path, criterion):
    table = noisy()
    pipeline, said = fitted(capsys, tmp_path, table, "y", "--criterion", criterion)
    X = StandardScaler().fit_transform(table[["u", "v"]])
    same = MKLRidgeCV(criterion=criterion, scale=False, random_state=0).fit(X, table["y"])
    model = pipeline.named_steps["model"]
    assert isinstance(model, MKLRidgeCV)
    assert len(model.kernel_names_) == 20
    np.testing.assert_allclose(pipeline.predict(table), same.predict(X), rtol=1e-8)
    score = pipeline.training_["score"]
    assert score["how"] == "leave-one-out"
    assert score["mean"] == pytest.approx(r2_score(table["y"], same.loo_predictions_))
    assert (
        f"leave-one-out R² │ {score['mean']:.3f} ± {score['error']:.3f} (standard error; 60 rows)"
        in " ".join(said.out.split())
    )
    assert f"alpha │ {model.alpha_:.4g} (learned by" in " ".join(said.out.split())
    assert "certified gap" not in said.out
    assert "support vectors" not in said.out


def test_classes_have_probabilities(capsys, tmp_path):
    table = flowers().drop(columns="colour")
    pipeline, said = fitted(capsys, tmp_path, table, "kind", "--drop", "noise_*")
    model = pipeline.named_steps["model"]
    assert isinstance(model, MKLRidgeClassifierCV)
    assert "leave-one-out accuracy" in said.out
    done(
        capsys,
        "predict",
        tmp_path / "m.skops",
        tmp_path / "data.csv",
        "--proba",
        "-o",
        tmp_path / "p.csv",
    )
    found = pd.read_csv(tmp_path / "p.csv")
    np.testing.assert_allclose(
        found[["p_rose", "p_tulip"]], pipeline.predict_proba(table), rtol=1e-6
    )


def test_kernels_of_several_views(capsys, tmp_path):
    views = ("--view", "shape=shape_*", "--view", "noise=noise_*")
    pipeline, said = fitted(capsys, tmp_path, flowers(), "kind", *views)
    model = pipeline.named_steps["model"]
    assert len(model.kernel_names_) == 18
    assert model.kernel_names_[:4] == [
        "shape:linear",
        "shape:gauss(0.5*median)",
        "shape:gauss",
        "shape:gauss(2*median)",
    ]
    assert "noise:laplace(4*median)" in model.kernel_names_
    shape, noise = (
        sum(
            w
            for n, w in zip(model.kernel_names_, model.weights_, strict=True)
            if n.startswith(view)
        )
        for view in ("shape", "noise")
    )
    assert shape > noise
    assert (
        "view shape: 2 columns (shape_a, shape_b); linear + gauss(0.5*median) + gauss + "
        in said.err
    )


def test_one_view_has_the_kernels_of_the_estimator():
    kernels = ridge_view_kernels({"a": [0, 1], "b": [2]})
    assert len(kernels) == 18
    assert {tuple(columns) for _, _, columns in kernels} == {(0, 1), (2,)}
    assert sorted({type(kernel) for _, kernel, _ in kernels}, key=str) == sorted(
        [Gaussian, Laplacian, Linear], key=str
    )
    alone = ridge_view_kernels({"a": [0, 1]})
    assert [repr(kernel) for _, kernel, _ in alone] == [repr(kernel) for kernel in ridge_kernels()]


def test_kernels_in_short():
    (kernel,) = read_short("laplace(2*median)")
    assert repr(kernel) == repr(Laplacian("median", 2.0))
    (kernel,) = read_short("rank-gauss(0.5*median)")
    assert label_of(kernel) == "rank-gauss(0.5*median)"
    assert repr(kernel) == repr(Ranked(Gaussian("median", 0.5)))
    assert list(map(label_of, read_short("laplace*3"))) == [
        "laplace(0.5*median)",
        "laplace",
        "laplace(2*median)",
    ]
    (kernel,) = read_short("rank-linear")
    assert isinstance(kernel, Ranked)


@pytest.mark.parametrize("text", ["rank-spectrum(3)", "rank-wd(2)"])
def test_strings_have_no_ranks(text):
    with pytest.raises(ValueError, match="cannot be read"):
        read_short(text)


def test_strings_and_rows_that_lack_a_view(capsys, tmp_path):
    table = strings().assign(u=np.arange(40.0) % 7, v=np.arange(40.0) % 3)
    table.loc[:5, ["u", "v"]] = np.nan
    views = ("--view", "dna=dna", "--view", "two=u,v:gauss+linear")
    pipeline, _ = fitted(capsys, tmp_path, table, "motif", *views)
    assert pipeline.named_steps["model"].kernel_names_ == [
        "dna:spectrum(3)",
        "two:gauss",
        "two:linear",
    ]
    done(
        capsys,
        "predict",
        tmp_path / "m.skops",
        tmp_path / "data.csv",
        "--proba",
        "-o",
        tmp_path / "p.csv",
    )
    assert np.isfinite(pd.read_csv(tmp_path / "p.csv")["p_yes"]).all()


def test_a_given_ridge_is_kept(capsys, tmp_path):
    pipeline, said = fitted(
        capsys, tmp_path, noisy(), "y", "--C", "0.5", "--view", "all=u,v:gauss+linear"
    )
    assert pipeline.named_steps["model"].alpha_ == pytest.approx(0.5)
    assert "alpha │ 0.5 (given)" in " ".join(said.out.split())


def test_rows_that_repeat_are_warned_of(capsys, tmp_path):
    twice = pd.concat([noisy(30), noisy(30)])
    _, said = fitted(capsys, tmp_path, twice, "y", "--view", "all=u,v:gauss")
    assert "50 % of the samples duplicate another one" in said.err


# Intervals ----------------------------------------------------------------------------------------


def test_intervals(capsys, tmp_path):
    pipeline, _ = fitted(capsys, tmp_path, noisy(), "y", "--view", "all=u,v:gauss+linear")
    new = write(noisy(20, seed=9), tmp_path / "new.csv")
    done(
        capsys, "predict", tmp_path / "m.skops", new, "--interval", "0.8", "-o", tmp_path / "p.csv"
    )
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found) == ["prediction", "lower", "upper"]
    X = pipeline[:-1].transform(pd.read_csv(new))
    expected = pipeline.named_steps["model"].predict_interval(X, 0.8)
    np.testing.assert_allclose(found[["lower", "upper"]], expected, rtol=1e-6)


def test_intervals_are_refused_where_there_are_none(capsys, tmp_path):
    fitted(capsys, tmp_path, flowers(), "kind", "--view", "s=shape_*:linear")
    said = run(capsys, "predict", tmp_path / "m.skops", tmp_path / "data.csv", "--interval", "0.9")
    assert (
        said.error
        == "kernelmosaic: --interval 0.9: the model predicts classes, which have no intervals;"
        " --proba adds the probability of each class."
    )
    options = ("--view", "s=u,v:linear", "--method", "mkl", "--C", "1", "--folds", "0")
    fitted(capsys, tmp_path, curve(), "y", *options)
    said = run(capsys, "predict", tmp_path / "m.skops", tmp_path / "data.csv", "--interval", "0.9")
    assert (
        said.error
        == "kernelmosaic: --interval 0.9: the model has no intervals; a regression by `kernelmosaic"
        " fit --method ridge` has them."
    )
    said = run(capsys, "predict", tmp_path / "m.skops", tmp_path / "data.csv", "--interval", "1.5")
    assert said.error == "kernelmosaic: --interval: 1.5: give a number between 0 and 1."


# Mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (*RIDGE, "--norm", "2"),
            "--norm 2: the method must be mkl or rmkl, not ridge; leave the option out.",
        ),
        ((*RIDGE, "--cost", "s=2"), "--cost s=2: the method must be mkl or rmkl, not ridge"),
        (
            (*RIDGE, "--folds", "7"),
            (
                "--folds 7: the method must be mkl, localized, bilinear, discriminant or rmkl, not"
                " ridge"
            ),
        ),
        (
            (*RIDGE, "--task", "one-class"),
            "--method ridge does classification and regression, not one-class",
        ),
        (
            (*RIDGE, "--folds", "5"),
            (
                "--folds 5: the method must be mkl, localized, bilinear, discriminant or rmkl, not"
                " ridge"
            ),
        ),
        (
            ("--method", "mkl", "--criterion", "evidence"),
            "--criterion evidence: the method must be ridge, not mkl; leave the option out.",
        ),
        (
            (*RIDGE, "--criterion", "aic"),
            "--criterion: 'aic' is not one of 'auto', 'loo', 'evidence'",
        ),
    ],
)
def test_what_does_not_suit_is_said_in_one_line(capsys, tmp_path, arguments, words):
    path = write(flowers(), tmp_path / "data.csv")
    said = run(capsys, "fit", path, "--target", "kind", "--view", "s=shape_*:linear", *arguments)
    assert words in said.error


def test_a_tube_does_not_suit(capsys, tmp_path):
    path = write(noisy(), tmp_path / "data.csv")
    said = run(capsys, "fit", path, "--target", "y", *RIDGE, "--epsilon", "1")
    assert (
        said.error
        == "kernelmosaic: --epsilon 1: --method ridge has no epsilon; leave it out, or use --method"
        " mkl."
    )


# What is said of models ---------------------------------------------------------------------------


def page_of(capsys, tmp_path, table, target, *arguments):
    fitted(capsys, tmp_path, table, target, *arguments, "--report", tmp_path / "r.html")
    return Reader((tmp_path / "r.html").read_text(encoding="utf-8"))


def test_inspect(capsys, tmp_path):
    pipeline, _ = fitted(capsys, tmp_path, flowers(), "kind", "--view", "s=shape_*:linear+gauss")
    said = done(capsys, "inspect", tmp_path / "m.skops")
    assert "largest slope per sample" in said.out
    assert "leave-one-out accuracy" in said.out
    found = json.loads(done(capsys, "inspect", tmp_path / "m.skops", "--json").out)
    model = pipeline.named_steps["model"]
    assert found["duality_gap"] is None
    assert found["stationarity"] == pytest.approx(model.stationarity_)
    assert found["objective"] == pytest.approx(model.criterion_)
    shares = [kernel["share"] for kernel in found["kernels"]]
    assert sum(shares) == pytest.approx(1.0)
    assert [kernel["weight"] for kernel in found["kernels"]] == pytest.approx(
        model.weights_.tolist()
    )


def test_explain(capsys, tmp_path):
    pipeline, _ = fitted(capsys, tmp_path, noisy(), "y", "--view", "all=u,v:gauss+linear")
    done(capsys, "explain", tmp_path / "m.skops", tmp_path / "data.csv", "-o", tmp_path / "why.csv")
    why = pd.read_csv(tmp_path / "why.csv")
    np.testing.assert_allclose(
        why["constant"] + why["all:gauss"] + why["all:linear"], pipeline.predict(noisy())
    )


def test_the_page_of_classes(capsys, tmp_path):
    views = ("--view", "shape=shape_*:linear+gauss", "--view", "noise=noise_*:linear+gauss")
    page = page_of(capsys, tmp_path, flowers(), "kind", *views)
    assert [text for _, text in page.all("h2")] == [
        "Which kernels count",
        "Accuracy on unseen rows",
        "Which classes are mistaken for which",
        "Are its probabilities calibrated?",
        "Which columns count in each view",
        "Contributions for one row",
        "Is it the optimum?",
        "What to do next",
    ]
    model = load(tmp_path / "m.skops").named_steps["model"]
    cells = [text for _, text in page.all("td")]
    expected = pd.crosstab(flowers()["kind"], pd.Series(model.loo_predictions_, name="said"))
    confusion = [text for text in cells if text.isdigit()]
    assert [int(one) for one in confusion[:4]] == expected.to_numpy().ravel().tolist()
    # One row per view, with the sum of its shares.
    shares = model.weights_ / model.weights_.sum()
    assert f"{100 * shares[:2].sum():.1f}" in cells
    assert f"{100 * shares[2:].sum():.1f}" in cells
    assert len(page.all("img")) == 6


def test_the_page_of_numbers(capsys, tmp_path):
    views = ("--view", "one=u:gauss+linear", "--view", "two=v:gauss+linear")
    page = page_of(capsys, tmp_path, noisy(), "y", *views)
    titles = [text for _, text in page.all("h2")]
    assert titles[1:4] == [
        "Accuracy on unseen rows",
        "What each view explains",
        "Predicted and true",
    ]
    model = load(tmp_path / "m.skops").named_steps["model"]
    X = load(tmp_path / "m.skops")[:-1].transform(noisy())
    split = model.score_split(X, noisy()["y"])
    cells = [text for _, text in page.all("td")]
    assert f"{split[:2].sum():.3f}" in cells
    assert f"{split[2:].sum():.3f}" in cells


def test_the_page_of_one_view(capsys, tmp_path, hide):
    hide("matplotlib")
    page = page_of(capsys, tmp_path, noisy(), "y", "--view", "all=u,v:gauss+linear")
    assert "What each view explains" not in [text for _, text in page.all("h2")]
    advice = " ".join(text for _, text in page.all("li"))
    assert "Leave out a view" not in advice
    assert "discriminant" not in advice  # of classes alone
    assert "certified gap" in advice


# Groups -------------------------------------------------------------------------------------------


def patients(n_each=4, n_patients=20, seed=0):
    """Rows of one patient are alike, and so are their errors."""
    rng = np.random.RandomState(seed)
    patient = np.repeat(np.arange(n_patients), n_each)
    own = rng.randn(n_patients, 2)[patient]
    X = own + 0.05 * rng.randn(len(patient), 2)
    y = X[:, 0] + rng.randn(n_patients)[patient]
    return pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "who": [f"p{i}" for i in patient], "y": y})


def test_groups_are_left_out_together(capsys, tmp_path):
    table = patients()
    pipeline, said = fitted(
        capsys, tmp_path, table, "y", "--view", "all=u,v:gauss+linear", "--groups", "who"
    )
    X = StandardScaler().fit_transform(table[["u", "v"]])
    kernels = [Gaussian(), Linear()]
    same = MKLRidgeCV(kernels, scale=False, random_state=0).fit(X, table["y"], groups=table["who"])
    np.testing.assert_allclose(pipeline.predict(table), same.predict(X), rtol=1e-8)
    score = pipeline.training_["score"]
    assert (score["how"], score["folds"]) == ("leave-one-group-out", 20)
    assert score["mean"] == pytest.approx(same.best_score_)
    assert "leave-one-group-out R²" in said.out
    alone, _ = fitted(capsys, tmp_path, table, "y", "--view", "all=u,v:gauss+linear")
    assert (
        alone.training_["score"]["mean"] > score["mean"] + 0.2
    )  # the other rows of a patient tell
    # The standard error of a mean of groups of one size is that of their means.
    each = 1 - (table["y"] - same.loo_predictions_) ** 2 / np.var(table["y"])
    assert score["error"] == pytest.approx(each.groupby(table["who"]).mean().std(ddof=1) / 20**0.5)
    assert "who" not in pipeline.training_["columns"]


def test_groups_are_never_learned_from(capsys, tmp_path):
    table = patients()
    pipeline, _ = fitted(capsys, tmp_path, table, "y", "--groups", "who")
    assert pipeline.training_["columns"] == ["u", "v"]
    done(capsys, "predict", tmp_path / "m.skops", write(table[["u", "v"]], tmp_path / "new.csv"))
    line = run(
        capsys,
        "fit",
        tmp_path / "data.csv",
        "--target",
        "y",
        "--groups",
        "who",
        "--view",
        "a=u,who",
    ).error
    assert "column 'who' is the groups, never learned from" in line


def test_groups_are_held_out_as_a_whole(tmp_path):
    path = write(patients(), tmp_path / "data.csv")
    training = read_training_table(FitRequest(path, "y", groups="who", test=0.3))
    assert len(training.test_rows) == 24
    assert not set(training.groups[training.training_rows]) & set(
        training.groups[training.test_rows]
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--groups", "who", "--method", "mkl"), "--groups who: the method must be ridge, not mkl"),
        (("--groups", "who", "--C", "1"), "--groups who: the method must be ridge, not mkl"),
        (("--groups", "whom"), "no column 'whom'; did you mean 'who'?"),
        (("--groups", "same"), "--groups same: the column holds one group only"),
    ],
)
def test_groups_that_cannot_be_left_out(capsys, tmp_path, arguments, words):
    path = write(patients().assign(same=1), tmp_path / "data.csv")
    said = run(capsys, "fit", path, "--target", "y", "--view", "all=u,v:linear", *arguments)
    assert words in said.error


def test_a_class_in_held_out_groups_alone(capsys, tmp_path):
    table = patients(n_patients=4).assign(kind=["a"] * 12 + ["b"] * 4)
    path = write(table, tmp_path / "data.csv")
    common = ("--target", "kind", "--view", "all=u,v:linear", "--groups", "who", "--test", "0.25")
    lines = (
        run(capsys, "fit", path, *common, "--seed", seed, "-o", tmp_path / "m.skops").err
        for seed in range(8)
    )
    assert any(
        "--test 0.25 holds out every group with class 'b'; give a smaller share" in line
        for line in lines
    )
