"""What is read and written is what stands in the file: codes that look like numbers, in every table
and format."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.cli.tables import PLAIN, done, run, write, write_as
from tests.sweeps import thinned

from kernelmosaic import load
from kernelmosaic.cli.requests import FitRequest
from kernelmosaic.cli.training_table import read_training_table
from kernelmosaic.schema import Column, Schema
from kernelmosaic.tables import MISSING_MARKS, guess_task, kind_of, labels_of, read_table, texts_of

CODES = np.array(["01", "02", "10", "0", "1", "1.0", "1E5", "2e3", "-7", "1.10", "007", "True"])
LETTERS = np.array([f"{letter}{k}" for k in range(2) for letter in "ABCDEFG"])
FORMATS = ("csv", "tsv", "parquet", "npz")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cohort(n=90, seed=0):
    """Rows with an id, a site and a class whose texts look like numbers, and a number."""
    rng = np.random.default_rng(seed)
    sites = np.concatenate([np.repeat(LETTERS, 3), np.repeat(CODES, 3)])
    site = rng.permutation(np.resize(sites, n))
    ids = rng.permutation(
        [*(f"{i:03d}" for i in range(n // 3)), *(f"{i}E5" for i in range(n - n // 3))]
    )
    grade = np.where(rng.random(n) < 0.5, "01", "02")
    return pd.DataFrame(
        {"id": ids, "age": np.round(rng.standard_normal(n), 3), "site": site, "grade": grade}
    )


def predictions(capsys, path, *options):
    said = done(capsys, "predict", "m.skops", path, "-o", "out.csv", *options)
    return pd.read_csv("out.csv", dtype=str, na_filter=False), said


# Every format -------------------------------------------------------------------------------------


@pytest.mark.parametrize("learned_from", FORMATS)
@pytest.mark.parametrize("seed", thinned(range(4), [0]))
def test_what_is_read_is_what_was_written_in_every_format(here, learned_from, seed):
    rng = np.random.default_rng(100 + seed)
    table = cohort(seed=seed)
    request = FitRequest(
        write_as(table, f"t.{learned_from}"),
        target="grade",
        groups="id",
        method="ridge",
        drop=("id",),
    )
    schema = read_training_table(request).schema
    assert schema["site"].kind == "categories"
    assert set(schema["site"].categories) == set(table["site"])
    assert schema["grade"] == Column("grade", "classes", ("01", "02"), MISSING_MARKS)
    for _ in range(5):
        # A few rows, in which all codes may be numbers, and columns in any order.
        pool = table[table["site"].isin(CODES)] if rng.random() < 0.7 else table
        some = pool.sample(int(rng.integers(1, 6)), random_state=int(rng.integers(1000)))
        some = some[rng.permutation(some.columns)]
        for ending in FORMATS:
            read = schema.read(write_as(some, f"new.{ending}"))
            for name in ("id", "site", "grade"):
                assert read[name].tolist() == some[name].tolist(), (ending, name)
            np.testing.assert_array_equal(read["age"].to_numpy(), some["age"].to_numpy())


@pytest.mark.parametrize("ending", FORMATS)
def test_predictions_do_not_depend_on_the_other_rows_nor_on_the_format(capsys, here, ending):
    table = cohort()
    effect = table["age"] + table["site"].map({"01": 4.0, "1": -4.0, "0": 2.0, "1.0": 6.0}).fillna(
        0.0
    )
    write(table.drop(columns="grade").assign(y=effect), "t.csv")
    done(
        capsys,
        "fit",
        "t.csv",
        "--target",
        "y",
        "--view",
        "all=age,site:linear",
        *PLAIN,
        "-o",
        "m.skops",
    )
    whole, _ = predictions(capsys, "t.csv", "--id", "id")
    assert whole["id"].tolist() == table["id"].tolist()
    few = table[table["site"].isin(["01", "1", "1.0", "007"])].drop(columns="grade")
    alone, said = predictions(capsys, write_as(few, f"few.{ending}"), "--id", "id")
    assert alone["id"].tolist() == few["id"].tolist()
    np.testing.assert_allclose(
        alone["prediction"].astype(float), whole["prediction"].astype(float)[few.index], rtol=1e-9
    )
    assert "category" not in said.err


def test_numbers_of_a_typed_file_are_the_category_that_is_written_so(here):
    schema = Schema((Column("site", "categories", ("1", "2.0", "A"), MISSING_MARKS),))
    pd.DataFrame({"site": [1.0, 2.0, np.nan, 3.0]}).to_parquet("f.parquet")
    assert schema.read("f.parquet")["site"].tolist() == ["1", "2.0", None, "3"]
    pd.DataFrame({"site": [1, 2]}).to_parquet("f.parquet")
    assert schema.read("f.parquet")["site"].tolist() == ["1", "2.0"]


def test_a_category_that_is_written_like_a_missing_cell_is_a_category(capsys, here):
    table = cohort()
    country = pd.Series(np.resize(["NA", "DE", "FR"], len(table)), index=table.index)
    table = table.assign(site=country)
    request = FitRequest(write_as(table, "t.parquet"), target="grade", drop=("id",))
    schema = read_training_table(request).schema
    assert schema["site"].categories == ("DE", "FR", "NA")
    assert "NA" not in schema["site"].missing
    assert schema.read(write(table, "t.csv"))["site"].tolist() == country.tolist()


@pytest.mark.parametrize("values", [[1, 2, 30], [1.0, 2.0, 30.0]])
def test_categories_that_are_numbers_are_categories(capsys, here, values):
    site = np.resize(values, 60)
    effect = (
        pd.Series(site).map({1: 3.0, 2: -3.0, 30: 0.0})
        + np.random.default_rng(0).standard_normal(60) / 10
    )
    table = pd.DataFrame({"site": pd.Categorical(site), "age": np.arange(60.0) % 7, "y": effect})
    table.loc[59, "site"] = None
    table.to_parquet("t.parquet")
    options = ("--view", "all=site,age:linear", "--impute", "frequent")
    done(capsys, "fit", "t.parquet", "--target", "y", *options, *PLAIN, "-o", "m.skops")
    assert load("m.skops").schema_["site"].categories == ("1", "2", "30")
    found, _ = predictions(capsys, "t.parquet")
    assert np.corrcoef(found["prediction"].astype(float), effect)[0, 1] > 0.95
    write(table.assign(site=table["site"].astype("Int64")).drop(columns="y"), "new.csv")
    again, said = predictions(capsys, "new.csv")
    assert "category" not in said.err
    np.testing.assert_allclose(
        again["prediction"].astype(float), found["prediction"].astype(float), rtol=1e-9
    )


def test_a_model_file_holds_the_schema(capsys, here):
    write(cohort(), "t.csv")
    done(
        capsys,
        "fit",
        "t.csv",
        "--target",
        "grade",
        "--drop",
        "id",
        "--groups",
        "id",
        "-o",
        "m.skops",
    )
    schema = load("m.skops").schema_
    assert [(column.name, column.kind) for column in schema.columns] == [
        ("grade", "classes"),
        ("age", "numbers"),
        ("site", "categories"),
        ("id", "names"),
    ]
    found, _ = predictions(capsys, "t.csv")
    assert load("m.skops").predict(schema.read("t.csv")).tolist() == found["prediction"].tolist()


# Ids and classes ----------------------------------------------------------------------------------


def test_ids_and_classes_are_written_as_they_were_read(capsys, here):
    table = cohort().drop(columns="site")
    write(table, "t.csv")
    done(
        capsys,
        "fit",
        "t.csv",
        "--target",
        "grade",
        "--drop",
        "id",
        *PLAIN,
        "--proba",
        "-o",
        "m.skops",
    )
    ids = {
        "patient": ["007", "NA", "010"],
        "well": ["1E5", "2E7", "3E1"],
        "version": ["1.10", "", "2.0"],
    }
    new = pd.DataFrame({**ids, "age": [0.1, -1.0, 2.0], "grade": ["02", "01", "02"]})
    write(new, "new.csv")
    found, said = predictions(
        capsys, "new.csv", "--proba", *(word for name in ids for word in ("--id", name))
    )
    assert {name: found[name].tolist() for name in ids} == ids
    assert set(found["prediction"]) <= {"01", "02"}
    assert list(found.columns)[-2:] == ["p_01", "p_02"]
    assert "accuracy on column 'grade'" in said.err
    write(new.assign(grade=["2", "01", "02"]), "new.csv")
    line = run(capsys, "predict", "m.skops", "new.csv").error
    assert "row 1, column 'grade': the class '2' was not in the training table (01, 02)" in line


def test_a_column_may_be_carried_over_and_read(capsys, here):
    write(cohort(), "t.csv")
    done(capsys, "fit", "t.csv", "--target", "grade", "--drop", "id", *PLAIN, "-o", "m.skops")
    Path("new.csv").write_text("age,site\n1.50,01\n+2,1\n")
    found, _ = predictions(capsys, "new.csv", "--id", "age", "--id", "site")
    assert found["age"].tolist() == ["1.50", "+2"]
    assert found["site"].tolist() == ["01", "1"]


def test_ids_of_an_embedding_are_written_as_they_were_read(capsys, here):
    table = cohort()[["id", "age"]].assign(size=np.arange(90) % 7)
    write(table, "t.csv")
    done(capsys, "embed", "t.csv", "--drop", "id", "--id", "id", "-o", "z.csv")
    assert pd.read_csv("z.csv", dtype=str)["id"].tolist() == table["id"].tolist()


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        (["0", "1", "0"], [0, 1, 0]),
        (["-1", " 1", "-1"], [-1, 1, -1]),
        (["01", "02", "01"], ["01", "02", "01"]),
        (["1.0", "0.0", "1.0"], ["1.0", "0.0", "1.0"]),
        (["True", "False", "True"], [True, False, True]),
        (["TRUE", "FALSE", "TRUE"], ["TRUE", "FALSE", "TRUE"]),
        (["1", "b", "1"], ["1", "b", "1"]),
        ([0.0, 1.0, 0.0], [0, 1, 0]),
        ([True, False, True], [True, False, True]),
    ],
)
def test_classes_are_numbers_only_where_these_are_written_so(cells, classes):
    target = pd.Series(cells, dtype=object if isinstance(cells[0], str) else None)
    assert labels_of(target).tolist() == classes
    assert guess_task(pd.concat([target, target])) == "classification"


def test_a_quantity_that_is_read_as_text_keeps_every_digit(here):
    values = np.random.default_rng(0).standard_normal(200) * 10.0 ** np.arange(-100, 100)
    write(pd.DataFrame({"a": np.arange(200.0), "y": values}), "t.csv")
    assert (
        read_training_table(FitRequest(Path("t.csv"), target="y")).target.y.tolist()
        == values.tolist()
    )


@pytest.mark.parametrize(
    ("classes", "written"), [(["0", "1"], ["0.0", "1.0"]), (["True", "False"], ["TRUE", "false"])]
)
def test_classes_that_are_numbers_or_truth_values_may_be_written_in_another_way(
    capsys, here, classes, written
):
    age = np.arange(20.0)
    write(pd.DataFrame({"age": age, "y": np.resize(classes, 20)}), "t.csv")
    done(capsys, "fit", "t.csv", "--target", "y", *PLAIN, "-o", "m.skops")
    write(pd.DataFrame({"age": age, "y": np.resize(written, 20)}), "new.csv")
    _, said = predictions(capsys, "new.csv")
    assert "accuracy on column 'y'" in said.err


# Truth values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [("True", "False"), ("TRUE", "FALSE"), ("1", "0")])
def test_truth_values_are_numbers_also_where_some_are_missing(capsys, here, written):
    rng = np.random.default_rng(0)
    yes = rng.random((40, 3)) < 0.5
    cells = np.where(yes, *written).astype(object)
    cells[30:] = ""
    table = pd.DataFrame(cells, columns=["b1", "b2", "b3"]).assign(
        a=rng.standard_normal(40), y=np.resize(["p", "n"], 40)
    )
    write(table, "t.csv")
    assert kind_of(read_table(Path("t.csv"))["b1"]) == "numbers"
    views = ("--view", "a=a:linear", "--view", "b=b*:gauss")
    said = done(capsys, "fit", "t.csv", "--target", "y", *views, *PLAIN, "-o", "m.skops")
    assert "lacked by 10 of 40 rows" in said.err
    training = read_training_table(FitRequest(Path("t.csv"), target="y", views=views[1::2]))
    assert training.plan.groups == (("a",), ("b1", "b2", "b3"))
    np.testing.assert_array_equal(training.table[["b1", "b2", "b3"]].iloc[:30], yes[:30])
    assert training.table[["b1", "b2", "b3"]].iloc[30:].isna().all(axis=None)


def test_a_text_among_truth_values_is_a_category():
    assert kind_of(pd.Series(["True", "False", "maybe", "True", "maybe", "False"])) == "categories"
    assert kind_of(pd.Series([True, None, False], dtype=object)) == "numbers"


# Joined files -------------------------------------------------------------------------------------


def patients(rng, ids, columns):
    return pd.DataFrame(rng.standard_normal((len(ids), len(columns))), columns=columns).assign(
        id=list(ids)
    )


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_names_of_rows_are_compared_as_they_are_written(capsys, here, ending):
    rng = np.random.default_rng(0)
    ids = [*(f"{i:03d}" for i in range(1, 40)), "A17"]
    clinical, rna = patients(rng, ids, ["age"]), patients(rng, ids, ["g0", "g1"])
    write(clinical.assign(y=clinical["age"] + rna["g1"]), "t.csv")
    write_as(rna[rna["id"] != "A17"], f"rna.{ending}")
    options = ("--target", "y", "--on", "id", "--view", "c=age:linear")
    said = done(
        capsys,
        "fit",
        "t.csv",
        *options,
        "--view",
        f"rna=rna.{ending}:linear",
        *PLAIN,
        "-o",
        "m.skops",
    )
    assert "lacked by 1 of 40 rows" in said.err
    # The new table has numbers alone; 1 to 3 are other patients than 001 to 003.
    others = ["1", "2", "3"]
    new = pd.concat([clinical.head(5), patients(rng, others, ["age"])])
    write(new, "new.csv")
    found, said = predictions(
        capsys, "new.csv", "--on", "id", "--view", f"rna=rna.{ending}", "--id", "id"
    )
    assert found["id"].tolist() == new["id"].tolist()
    assert f"view 'rna': 3 of 8 rows of new.csv lack it: rna.{ending} has no id '1'." in said.err
    alone, said = predictions(
        capsys, write(clinical.head(5), "few.csv"), "--on", "id", "--view", f"rna=rna.{ending}"
    )
    assert "lack it" not in said.err
    np.testing.assert_allclose(
        alone["prediction"].astype(float), found["prediction"].astype(float).head(5), rtol=1e-9
    )


def test_rows_that_are_lost_are_said_and_other_spellings_named(capsys, here):
    rng = np.random.default_rng(0)
    write(
        patients(rng, [f"{i:03d}" for i in range(20)], ["age"]).assign(y=np.resize(["p", "n"], 20)),
        "t.csv",
    )
    options = ("--target", "y", "--on", "id", "--view", "c=age:linear", "--view", "rna.csv")
    write(patients(rng, [str(i) for i in range(1, 21)], ["g"]), "rna.csv")
    line = run(capsys, "fit", "t.csv", *options).error
    assert (
        "none of its 20 rows has a value of column 'id' that t.csv has, such as '000'; its first is"
        " '1'." in line
    )
    assert (
        "Names are compared as they are written: '1' of rna.csv and '001' of t.csv differ." in line
    )
    ids = [*(f"{i:03d}" for i in range(10)), *(f"{i}.0" for i in range(10, 20)), "Z"]
    write(patients(rng, ids, ["g"]), "rna.csv")
    said = done(capsys, "fit", "t.csv", *options, *PLAIN)
    assert "lacked by 10 of 20 rows" in said.err
    assert "11 of 21 rows of rna.csv are not used: t.csv has no id '10.0'." in said.err
    assert "'10.0' of rna.csv and '010' of t.csv differ" in said.err


def test_categories_of_a_joined_file_are_read_as_they_were(capsys, here):
    rng = np.random.default_rng(0)
    ids = [f"p{i}" for i in range(60)]
    sites = pd.DataFrame({"id": ids, "site": np.resize(["01", "1", "A", "B", "C", "D"], 60)})
    clinical = patients(rng, ids, ["age"])
    write(
        clinical.assign(y=sites["site"].map({"01": 4.0, "1": -4.0}).fillna(0.0) + clinical["age"]),
        "t.csv",
    )
    write(sites, "s.csv")
    options = ("--on", "id", "--view", "c=age:linear")
    done(
        capsys,
        "fit",
        "t.csv",
        "--target",
        "y",
        *options,
        "--view",
        "s=s.csv:linear",
        *PLAIN,
        "-o",
        "m.skops",
    )
    whole, _ = predictions(capsys, "t.csv", "--on", "id", "--view", "s=s.csv")
    own = sites["site"].isin(["01", "1"])
    write(sites[own], "few_s.csv")
    write(clinical[own], "few.csv")
    few, said = predictions(capsys, "few.csv", "--on", "id", "--view", "s=few_s.csv")
    assert "category" not in said.err
    np.testing.assert_allclose(
        few["prediction"].astype(float),
        whole["prediction"].astype(float)[own.to_numpy()],
        rtol=1e-9,
    )


def test_overlapping_views_of_a_file_that_is_not_given(capsys, here):
    rng = np.random.default_rng(0)
    ids = [f"p{i}" for i in range(40)]
    clinical, rna = patients(rng, ids, ["age", "bmi"]), patients(rng, ids, ["g0", "g1", "g2"])
    write(clinical.assign(y=clinical["age"] + rna["g1"]), "t.csv")
    write(rna, "rna.csv")
    Path("sets.gmt").write_text("A\tx\tg0\tg1\nB\tx\tg1\tg2\n")
    options = (
        "--on",
        "id",
        "--view",
        "c=age,bmi:linear",
        "--view",
        "rna=rna.csv",
        "--gene-sets",
        "rna=sets.gmt:linear",
    )
    done(capsys, "fit", "t.csv", "--target", "y", *options, *PLAIN, "-o", "m.skops")
    found, said = predictions(capsys, write(clinical, "new.csv"), "--on", "id")
    assert np.isfinite(found["prediction"].astype(float)).sum() == 40
    assert "view 'rna' (rna.csv when the model was fitted) is not given: no row has it." in said.err


def test_a_joined_column_whose_name_is_taken(capsys, here):
    rng = np.random.default_rng(0)
    ids = [f"p{i}" for i in range(20)]
    write(patients(rng, ids, ["rna.g", "age"]).assign(y=np.resize(["p", "n"], 20)), "t.csv")
    write(patients(rng, ids, ["g"]), "rna.csv")
    line = run(capsys, "fit", "t.csv", "--target", "y", "--on", "id", "--view", "rna=rna.csv").error
    assert (
        "--view rna=rna.csv: column 'g' of rna.csv is called 'rna.g' once it is joined, and t.csv"
        " has a column" in line
    )
    done(capsys, "fit", "t.csv", "--target", "y", "--on", "id", "--view", "expr=rna.csv", *PLAIN)


# An index of Parquet files ------------------------------------------------------------------------


def test_a_named_index_is_a_column_that_is_not_learned_from(capsys, here):
    rng = np.random.default_rng(0)
    table = patients(rng, range(100, 140), ["age", "bmi"]).rename(columns={"id": "patient"})
    table["y"] = table["age"] + table["bmi"]
    table.set_index("patient").to_parquet("t.parquet")
    patients(rng, range(139, 99, -1), ["g"]).rename(columns={"id": "patient"}).set_index(
        "patient"
    ).to_parquet("g.parquet")
    done(capsys, "fit", "t.parquet", "--target", "y", *PLAIN, "-o", "m.skops")
    assert load("m.skops").training_["columns"] == ["age", "bmi"]
    found, _ = predictions(capsys, "t.parquet", "--id", "patient")
    assert found["patient"].tolist() == [str(i) for i in range(100, 140)]
    options = ("--target", "y", "--on", "patient", "--view", "c=age", "--view", "g=g.parquet")
    done(capsys, "fit", "t.parquet", *options, *PLAIN, "-o", "m.skops")
    assert load("m.skops").training_["columns"] == ["age", "g.g"]
    # One kernel: what takes time is no part of the question.
    done(
        capsys,
        "fit",
        "t.parquet",
        "--target",
        "y",
        "--groups",
        "patient",
        "--view",
        "v=age:linear",
        "-o",
        "m.skops",
    )
    line = run(capsys, "fit", "t.parquet", "--target", "y", "--view", "v=age,patient").error
    assert "column 'patient' is the index of the table, never learned from" in line


@pytest.mark.parametrize(
    "index", [pd.Index(list("abcd")), pd.RangeIndex(4), pd.Index([3, 1, 7, 5])]
)
def test_an_index_without_a_name_numbers_the_rows(here, index):
    pd.DataFrame({"age": [1.0, 2.0, 3.0, 4.0]}, index=index).to_parquet("t.parquet")
    table = read_table(Path("t.parquet"))
    assert list(table.columns) == ["age"]
    assert list(table.index) == [0, 1, 2, 3]


def test_an_index_of_two_levels(here):
    index = pd.MultiIndex.from_tuples([("p", 1), ("q", 2)], names=["patient", None])
    pd.DataFrame({"age": [1.0, 2.0]}, index=index).to_parquet("t.parquet")
    assert read_table(Path("t.parquet")).to_dict("list") == {
        "patient": ["p", "q"],
        "age": [1.0, 2.0],
    }


# Rows and columns by number and name --------------------------------------------------------------


def test_rows_have_the_numbers_of_the_file_where_others_are_dropped(capsys, here, hide):
    rng = np.random.default_rng(0)
    numbers = ["a_1", "a_2", "b_1", "b_2"]
    table = pd.DataFrame(rng.standard_normal((30, 4)), columns=numbers)
    table = table.assign(
        id=[f"p{i}" for i in range(1, 31)], y=np.resize(["case", "control"], 30), s="ACGTACGT"
    )
    views = ("--target", "y", "--view", "a=a_*:linear", "--view", "b=b_*:linear")
    write(table, "t.csv")
    done(capsys, "fit", "t.csv", *views, *PLAIN, "-o", "m.skops")
    new = table.head(8).copy()
    new.loc[[1, 2], numbers] = np.nan
    new.loc[5, ["b_1", "b_2"]] = np.nan
    write(new, "new.csv")
    page = ("--drop-empty", "--id", "id", "--report", "page.html")
    done(capsys, "explain", "m.skops", "new.csv", *page)
    text = Path("page.html").read_text(encoding="utf-8")
    rows = re.findall(r'data-head="row">(\d+)</t[dh]>\s*<td data-head="id">p(\d+)<', text)
    assert [number for number, _ in rows] == ["1", "4", "5", "6", "7", "8"]
    assert all(number == patient for number, patient in rows)
    assert "Row 6, id <code>p6</code>" in text
    done(capsys, "explain", "m.skops", "new.csv", "--row", "8", *page)
    assert "Row 8, id <code>p8</code>" in unescape(Path("page.html").read_text(encoding="utf-8"))
    line = run(capsys, "explain", "m.skops", "new.csv", "--row", "9", *page)
    assert "--row 9: new.csv has 8 rows; give the number of one of them." in line.err
    line = run(capsys, "explain", "m.skops", "new.csv", "--row", "2", *page)
    assert "--row 2: this row of new.csv is left out, as it has no view" in line.err
    write(new.assign(y=[*["case"] * 6, "unknown", "case"]), "new.csv")
    said = run(capsys, "predict", "m.skops", "new.csv", "--drop-empty")
    assert (
        "new.csv, row 7, column 'y': the class 'unknown' was not in the training table" in said.err
    )
    longer = table.copy()
    longer.loc[[1, 2], [*numbers, "s"]] = None
    longer.loc[20, "s"] = "ACGTACGTA"
    write(longer, "longer.csv")
    said = run(capsys, "fit", "longer.csv", *views, "--view", "s=s:wd(3)", "--drop-empty")
    assert "longer.csv, row 21, column 's': 9 letters, but row 1 has 8" in said.err


def test_a_comma_may_be_part_of_a_name(capsys, here):
    rng = np.random.default_rng(0)
    columns = ["dose, mg", "dose", "w", "a,b,c"]
    table = pd.DataFrame(rng.standard_normal((20, 4)), columns=columns).assign(
        y=np.resize(["p", "n"], 20)
    )
    write(table, "t.csv")
    fit = ("fit", "t.csv", "--target", "y", *PLAIN)
    for options, learned in (
        (("--drop", "dose, mg"), ["dose", "w", "a,b,c"]),
        (("--drop", "w, dose, mg,a,b,c"), ["dose"]),
        (("--view", "v=dose, mg:linear"), ["dose, mg"]),
        (("--view", "v=w,a,b,c,dose"), ["w", "a,b,c", "dose"]),
        (("--view", "v=d*, w:linear"), ["dose, mg", "dose", "w"]),
    ):
        done(capsys, *fit, *options)
        assert load("model.skops").training_["columns"] == learned
    labels = pd.DataFrame(
        {"x": rng.standard_normal(20), "l, 1": np.resize([0, 1], 20), "m": np.resize([1, 1, 0], 20)}
    )
    write(labels, "l.csv")
    done(capsys, "fit", "l.csv", "--target", "l, 1, m", "--C", "1", "--folds", "0")
    assert load("model.skops").training_["targets"] == ["l, 1", "m"]


@pytest.mark.parametrize(
    ("file", "lines"),
    [
        ("t.tsv", ["a, b, c\td, e, f\tx", "1\t2\t3", "4\t5\t6"]),
        ("t.csv", ["a; b; c,d; e; f,x", "1,2,3", "4,5,6"]),
        ("t.csv", ["a, b, c;d, e, f;x", "1;2;3", "4;5;6"]),
        ("t.txt", ["a, b, c\td; e, f\tx", "1\t2\t3", "4\t5\t6"]),
        ("t.tsv", ['"a\tb",c,x', "1,2,3", "4,5,6"]),
    ],
)
def test_the_sign_that_divides_every_line_is_the_delimiter(here, file, lines):
    Path(file).write_text("\n".join(lines) + "\n")
    table = read_table(Path(file))
    assert table.shape == (2, 3)
    assert table["x"].tolist() == [3, 6]


def test_texts_of_cells():
    cells = pd.Series(
        [1, 1.0, 2.5, "1.0", None, np.nan, True, 1e300, np.int8(3), "NA"], dtype=object
    )
    assert texts_of(cells, missing=["NA"]).tolist() == [
        "1", "1", "2.5", "1.0", None, None, "True", "1e+300", "3", None,
    ]  # fmt: skip
    assert texts_of(pd.Series([1.0, 2.0]), spellings=["1.0"]).tolist() == ["1.0", "2"]
