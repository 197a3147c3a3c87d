"""``kernelmosaic explain``: contributions that add up to the decision, as a table and as a page."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from tests.cli.tables import PLAIN, QUICK, curve, done, flowers, run, write
from tests.reports.test_page import Reader

from kernelmosaic import load

pytestmark = pytest.mark.usefixtures("fixed_margins")

KERNELS = ("--view", "s=shape_*:linear+gauss", "--view", "n=noise_*:gauss")


def explained(capsys, tmp_path, table, *arguments):
    """The fitted pipeline, and the table of contributions for the rows it was fitted to."""
    path = write(table, tmp_path / "t.csv")
    done(capsys, "fit", path, *arguments, *PLAIN, "-o", tmp_path / "m.skops")
    done(capsys, "explain", tmp_path / "m.skops", path, "-o", tmp_path / "e.csv")
    return load(tmp_path / "m.skops"), pd.read_csv(tmp_path / "e.csv")


def kernels_of(pipeline, found):
    return found[[name for name in pipeline[-1].kernel_names_ if name in found]]


@pytest.mark.parametrize("method", ["mkl", "localized", "bilinear", "discriminant"])
def test_contributions_add_up_to_the_decision(capsys, tmp_path, method):
    table = flowers()
    pipeline, found = explained(
        capsys, tmp_path, table, "--target", "kind", "--method", method, *KERNELS
    )
    shares = kernels_of(pipeline, found)
    np.testing.assert_allclose(shares.sum(axis=1) + found["constant"], found["decision"], atol=1e-6)
    values = pipeline.decision_function(table)
    values = values if values.ndim == 1 else values.max(axis=1)
    np.testing.assert_allclose(found["decision"], values, atol=1e-6)
    assert list(found["prediction"]) == list(pipeline.predict(table))


def test_of_several_classes_the_predicted_one_is_explained(capsys, tmp_path):
    table = flowers(n=90)
    table["kind"] = np.where(table["noise_b"] > 0.5, "orchid", table["kind"])
    pipeline, found = explained(capsys, tmp_path, table, "--target", "kind", *KERNELS)
    np.testing.assert_allclose(
        found["decision"], pipeline.decision_function(table).max(axis=1), atol=1e-6
    )
    terms = pipeline[-1].contributions(pipeline[:-1].transform(table))
    chosen = np.searchsorted(pipeline.classes_, found["prediction"])
    np.testing.assert_allclose(found["s:linear"], terms[np.arange(90), 0, chosen], atol=1e-6)


@pytest.mark.parametrize("task", ["regression", "one-class"])
def test_other_tasks(capsys, tmp_path, task):
    table = curve() if task == "regression" else flowers().drop(columns=["colour", "kind"])
    arguments = ("--target", "y") if task == "regression" else ("--task", task, "--folds", "2")
    path = write(table, tmp_path / "t.csv")
    price = ("--C", "5000", "--folds", "2") if task == "regression" else ()
    done(capsys, "fit", path, *arguments, *price, "-o", tmp_path / "m.skops")
    text = done(capsys, "explain", tmp_path / "m.skops", path, "--id", table.columns[0]).out
    pipeline = load(tmp_path / "m.skops")
    rows = [line.split(",") for line in text.splitlines()]
    assert rows[0][:4] == [table.columns[0], "prediction", "decision", "constant"]
    decision = (
        pipeline.predict(table) if task == "regression" else pipeline.decision_function(table)
    )
    np.testing.assert_allclose([float(row[2]) for row in rows[1:]], decision, rtol=1e-5, atol=1e-6)


def test_the_page_needs_no_other_file(capsys, tmp_path, hide):
    path = write(flowers(), tmp_path / "t.csv")
    done(capsys, "fit", path, "--target", "kind", *KERNELS, *PLAIN, "-o", tmp_path / "m.skops")
    said = done(capsys, "explain", tmp_path / "m.skops", path, "--report", tmp_path / "e.html")
    assert said.out == f"Report: {tmp_path / 'e.html'}\n"
    text = (tmp_path / "e.html").read_text(encoding="utf-8")
    page = Reader(text)
    assert [heading for _, heading in page.all("h2")] == [
        "Which kernels decide",
        "Contributions for one row",
        "Row by row",
    ]
    assert "http://" not in text
    assert "https://" not in text
    assert all(attributes["src"].startswith("data:image/png") for attributes, _ in page.all("img"))
    assert len(page.all("img")) == 2
    assert len(page.all("tr")) >= 60
    assert any("`" not in words and "rose" in words for _, words in page.all("code"))
    hide("matplotlib")
    path = write(flowers(n=510), tmp_path / "many.csv")
    done(
        capsys,
        "explain",
        tmp_path / "m.skops",
        path,
        "--report",
        tmp_path / "e.html",
        "-o",
        tmp_path / "e.csv",
    )
    page = Reader((tmp_path / "e.html").read_text(encoding="utf-8"))
    assert page.all("img") == []
    assert any("The first 500 of 510" in words for _, words in page.all("p"))
    assert len(pd.read_csv(tmp_path / "e.csv")) == 510


def test_the_row_that_is_drawn_lacks_a_view_or_is_asked_for(capsys, tmp_path):
    table = flowers()
    table.loc[[4, 9], ["noise_a", "noise_b"]] = np.nan
    path = write(table.assign(id=[f"r{i}" for i in range(60)]), tmp_path / "t.csv")
    done(capsys, "fit", path, "--target", "kind", *KERNELS, *QUICK, "-o", tmp_path / "m.skops")
    command = ("explain", tmp_path / "m.skops", path, "--id", "id", "--report", tmp_path / "e.html")
    for options, number in (((), 5), (("--row", 2), 2)):
        done(capsys, *command, *options)
        text = (tmp_path / "e.html").read_text(encoding="utf-8")
        assert f"Row {number}, id <code>r{number - 1}</code>: what each view adds" in text
        (title,) = [one["alt"] for one, _ in Reader(text).all("img") if "on one row" in one["alt"]]
        assert re.search(rf"probability [01]\.\d\d; true: {table['kind'][number - 1]}", title)
        assert ("missing view (imputed): n" in title) == (number == 5)
    assert "--row 61: " in run(capsys, *command, "--row", 61).error
    assert "--report" in run(capsys, *command[:3], "--row", 1).error
    # A target that nobody has written, or that the model has never seen, is none to stop for.
    for change in ({"kind": None}, {"kind": "daisy"}):
        done(
            capsys,
            command[0],
            command[1],
            write(table.assign(**change), tmp_path / "n.csv"),
            *command[5:],
        )


def test_refusals(capsys, tmp_path):
    path = write(flowers(), tmp_path / "t.csv")
    done(capsys, "fit", path, "--target", "kind", *KERNELS, *PLAIN, "-o", tmp_path / "m.skops")
    model = tmp_path / "m.skops"
    assert "would be overwritten" in run(capsys, "explain", model, path, "--report", path).error
    same = ("-o", tmp_path / "x.csv", "--report", tmp_path / "x.csv")
    assert "the table is written there" in run(capsys, "explain", model, path, *same).error
    assert "no column 'name'" in run(capsys, "explain", model, path, "--id", "name").error
    renamed = write(flowers().rename(columns={"kind": "prediction"}), tmp_path / "p.csv")
    assert "--id prediction" in run(capsys, "explain", model, renamed, "--id", "prediction").error
