"""Views in tables of their own, joined by a column, which some rows lack."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kernelmosaic.cli import main


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.RandomState(0)
    hidden = rng.normal(size=(50, 2))
    names = np.array([f"p{i}" for i in range(50)])
    kind = np.where(hidden[:, 0] > 0, "sick", "well")
    pd.DataFrame({"id": names[:40], "kind": kind[:40]}).to_csv("train.csv", index=False)
    pd.DataFrame({"id": names[40:], "kind": kind[40:]}).to_csv("new.csv", index=False)
    for view, columns, lost in (("rna", "uvw", slice(0, 8)), ("protein", "kl", slice(10, 25))):
        values = hidden @ rng.normal(size=(2, len(columns))) + 0.2 * rng.normal(
            size=(50, len(columns))
        )
        table = (
            pd.DataFrame(values, columns=list(columns)).assign(id=names).drop(index=range(50)[lost])
        )
        table.sample(frac=1, random_state=1).to_csv(f"{view}.csv", index=False)
    return tmp_path


def test_views_are_joined_and_may_be_left_out_later(tables, capsys):
    given = ["--on", "id", "--view", "rna.csv", "--view", "prot=protein.csv:linear"]
    assert main(["fit", "train.csv", "--target", "kind", *given, "--folds", "2"]) == 0
    assert "prot:linear" in capsys.readouterr().out
    assert main(["predict", "model.skops", "new.csv", *given, "--id", "id"]) == 0
    whole = capsys.readouterr()
    assert whole.out.splitlines()[1].startswith("p40,")
    assert main(["predict", "model.skops", "new.csv", "--on", "id", "--view", "rna.csv"]) == 0
    assert "accuracy" in capsys.readouterr().err


def test_a_row_may_lack_a_named_view_of_one_table(tables, capsys):
    table = (
        pd.read_csv("train.csv")
        .merge(pd.read_csv("rna.csv"))
        .merge(pd.read_csv("protein.csv"), how="left")
    )
    table.to_csv("one.csv", index=False)
    views = ["--view", "rna=u,v,w:linear", "--view", "protein=k,l:linear"]
    assert (
        main(
            [
                "fit",
                "one.csv",
                "--target",
                "kind",
                "--drop",
                "id",
                *views,
                "--C",
                "1",
                "--folds",
                "0",
            ]
        )
        == 0
    )
    assert (
        main(["fit", "one.csv", "--target", "kind", "--drop", "id", "--C", "1", "--folds", "0"])
        == 2
    )
    assert "column 'k' is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--on", "id"], "--on joins files to the table: name one with --view name=FILE"),
        (["--on", "nr", "--view", "rna.csv"], "train.csv has no column 'nr'"),
        (["--on", "id", "--view", "rna.csv", "--view", "x/rna.csv"], "two views of the name 'rna'"),
        (["--on", "id", "--view", "rna=twice.csv"], "column 'id' has 'p1' more than once"),
        (["--on", "id", "--view", "rna=strangers.csv"], "none of its 2 rows"),
        (["--on", "id", "--view", "rna.csv:what"], "unknown kernel 'what'"),
        (
            ["--on", "id", "--view", "protein.csv", "--view", "few.csv"],
            "14 of 40 rows appear in no view: id 'p11' (row 12)",
        ),
        (
            ["--on", "id", "--view", "rna.csv", "--view", "protein.csv", "--method", "bilinear"],
            "--method bilinear: some rows lack a view",
        ),
    ],
)
def test_what_cannot_be_joined_is_refused(tables, capsys, options, words):
    pd.DataFrame({"id": ["p1", "p1"], "a": [1.0, 2.0]}).to_csv("twice.csv", index=False)
    pd.DataFrame({"id": ["q1", "q2"], "a": [1.0, 2.0]}).to_csv("strangers.csv", index=False)
    pd.DataFrame({"id": ["p1", "p10"], "a": [1.0, 2.0]}).to_csv("few.csv", index=False)
    assert main(["fit", "train.csv", "--target", "kind", *options]) == 2
    assert words in capsys.readouterr().err
