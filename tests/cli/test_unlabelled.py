"""``kernelmosaic embed`` and ``cluster``: the same as in Python, tables that lack views, models and
pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score
from tests.cli.tables import done, run

from kernelmosaic import MKLClustering, MKLKernelPCA, load
from kernelmosaic.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("fixed_margins")

RNG = np.random.RandomState(0)
GROUP = np.arange(45) % 3
TABLE = pd.DataFrame(
    np.hstack(
        [4 * np.eye(3)[GROUP] + RNG.randn(45, 3), 3 * RNG.randn(3, 2)[GROUP] + RNG.randn(45, 2)]
    ),
    columns=["rna_a", "rna_b", "rna_c", "pro_a", "pro_b"],
)
VIEWS = ("--view", "rna=rna_*", "--view", "pro=pro_*")
KERNELS = [
    ("rna:gauss", Gaussian(), ["rna_a", "rna_b", "rna_c"]),
    ("pro:gauss", Gaussian(), ["pro_a", "pro_b"]),
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    full = TABLE.assign(name=[f"p{i}" for i in range(45)], kind=np.array(list("xyz"))[GROUP])
    full.to_csv("all.csv", index=False)
    full.loc[::5, ["pro_a", "pro_b"]] = np.nan
    full.to_csv("some.csv", index=False)
    return tmp_path


def test_coordinates_are_those_of_python(capsys, here):
    options = ("--target", "kind", "--drop", "name", "--id", "name", "--components", "3")
    done(capsys, "embed", "all.csv", *VIEWS, *options, "-o", "found.csv")
    found = pd.read_csv("found.csv")
    assert list(found.columns) == ["name", "component1", "component2", "component3"]
    expected = MKLKernelPCA(KERNELS, 3).fit_transform(TABLE)
    np.testing.assert_allclose(found.iloc[:, 1:], expected, rtol=1e-3, atol=1e-4)
    done(capsys, "embed", "all.csv", *VIEWS, *options, "--model", "m.skops")
    done(capsys, "predict", "m.skops", "all.csv", "-o", "new.csv")
    np.testing.assert_allclose(pd.read_csv("new.csv"), expected, rtol=1e-3, atol=1e-4)


def test_names_carried_over_are_those_of_the_rows_that_are_kept(capsys, here):
    table = pd.read_csv("some.csv")
    table.loc[3, ["rna_a", "rna_b", "rna_c", "pro_a", "pro_b"]] = np.nan
    table.to_csv("some.csv", index=False)
    options = ("--target", "kind", "--drop", "name", "--id", "name", "--drop-empty")
    done(capsys, "embed", "some.csv", *VIEWS, *options, "-o", "found.csv")
    assert pd.read_csv("found.csv")["name"].tolist() == [f"p{i}" for i in range(45) if i != 3]


@pytest.mark.parametrize("embedding", ["kernel", "graph"])
def test_clusters_of_rows_that_lack_views(capsys, here, embedding):
    options = ("--target", "kind", "--drop", "name", "--clusters", "3", "--embedding", embedding)
    files = ("-o", "found.csv", "--model", "m.skops", "--report", "page.html")
    said = done(capsys, "cluster", "some.csv", *VIEWS, *options, *files)
    found = pd.read_csv("found.csv")
    assert list(found.columns)[:2] + list(found.columns)[-1:] == [
        "cluster",
        "component1",
        "silhouette",
    ]
    assert adjusted_rand_score(found["cluster"], GROUP) > 0.9
    assert "lacked by 9 of 45 rows" in said.err
    assert "3 by" in said.out
    model = load("m.skops")
    assert isinstance(model[-1], MKLClustering)
    done(capsys, "predict", "m.skops", "some.csv", "-o", "new.csv")
    new = pd.read_csv("new.csv")
    assert adjusted_rand_score(new["cluster"], found["cluster"]) > 0.9
    assert "component1" in new
    assert "MKLClustering" in done(capsys, "inspect", "m.skops").out
    assert '"duality_gap": null' in done(capsys, "inspect", "m.skops", "--json").out
    text = Path("page.html").read_text(encoding="utf-8")
    assert text.count("<img") + text.count("<svg") >= 4
    assert "mean silhouette" in text


def test_the_table_is_printed_without_a_file(capsys, here):
    said = done(capsys, "cluster", "all.csv", *VIEWS, "--target", "kind", "--drop", "name")
    lines = said.out.splitlines()
    assert lines[0].startswith("cluster,component1")
    assert len(lines) == 46


def test_independent_views_are_named(capsys, here):
    noise = pd.read_csv("all.csv").assign(other_a=RNG.randn(45), other_b=RNG.randn(45))
    noise.to_csv("noise.csv", index=False)
    options = ("--view", "other=other_*", "--target", "kind", "--drop", "name")
    said = done(capsys, "embed", "noise.csv", *VIEWS, *options)
    assert "'other' left out" in said.err
    kept = done(capsys, "embed", "noise.csv", *VIEWS, *options, "--weights", "equal")
    assert "left out" not in kept.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cluster", "all.csv", "--clusters", "46"), "n_clusters=46: X has 45 samples"),
        (("embed", "none.csv"), "none.csv"),
        (("embed", "all.csv", "--id", "nobody"), "nobody"),
        (("embed", "all.csv", "--model", "all.csv"), "not the name of a model file"),
        (("cluster", "all.csv", "--embedding", "tree"), "tree"),
    ],
)
def test_mistakes_are_one_line(capsys, here, arguments, words):
    said = run(capsys, *arguments, *VIEWS, "--target", "kind", "--drop", "name")
    assert said.code == 2
    assert words in said.err.splitlines()[-1]
