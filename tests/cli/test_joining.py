"""Joined tables as a user meets them: no leak of the target, and words that fit several files."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import StratifiedShuffleSplit
from tests.cli.tables import PLAIN, QUICK, done, flowers, run, write

from kernelmosaic import load
from kernelmosaic.stacking import list_columns

N = 40


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A table of patients of whom nothing predicts the class, and two files of measurements that
    lack some of them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.RandomState(0)
    ids = [f"p{i}" for i in range(N)]
    table = pd.DataFrame({"id": ids, "age": rng.randn(N), "sex": rng.choice(["f", "m"], N)})
    table["kind"] = rng.permutation(["sick", "well"] * (N // 2))
    write(table, "train.csv")
    rna = pd.DataFrame(rng.randn(N, 3), columns=list("uvw")).assign(id=ids)
    write(rna.iloc[::-1].drop(index=[0, 1, 2]), "rna.csv")
    write(
        pd.DataFrame(rng.randn(N, 2), columns=list("kl")).assign(id=ids).drop(index=[2, 5]),
        "prot.csv",
    )
    return table


def fit(capsys, *arguments):
    return done(capsys, "fit", "train.csv", "--target", "kind", "--on", "id", *arguments, *PLAIN)


def columns_of(path="model.skops"):
    return load(path).training_["columns"]


# The target is never learned from -----------------------------------------------------------------


def test_the_training_table_as_a_view_does_not_leak_the_target(capsys, here, hide):
    hide("matplotlib")
    options = (
        "--target",
        "kind",
        "--on",
        "id",
        "--view",
        "clin=train.csv",
        "--report",
        "report.html",
    )
    said = done(capsys, "fit", "train.csv", *options, *QUICK)
    assert columns_of() == ["clin.age", "clin.sex"]
    assert "column 'kind' of train.csv is left out: it has the name of the target." in said.err
    accuracy = float(re.search(r"cross-validated accuracy\D*([\d.]+) %", said.out)[1])
    assert accuracy < 80
    page = unescape(Path("report.html").read_text(encoding="utf-8"))
    assert f"{accuracy:.1f} %" in page
    assert "clin.kind" not in page


def test_nor_does_another_file_that_has_the_target_the_event_or_the_ids(capsys, here):
    rng = np.random.RandomState(1)
    table = here.assign(days=1 + rng.rand(N), died=rng.randint(2, size=N), patient=here["id"])
    write(table, "train.csv")
    write(table.assign(number=range(N)).rename(columns={"number": "index"}), "more.csv")
    said = done(
        capsys,
        "fit",
        "train.csv",
        "--target",
        "days",
        "--event",
        "died",
        "--on",
        "id",
        "--view",
        "m=more.csv",
        *PLAIN,
    )
    assert columns_of() == ["m.age", "m.sex", "m.kind"]
    for line in (
        "column 'days' of more.csv is left out: it has the name of the target.",
        "column 'died' of more.csv is left out: it has the name of the event.",
        "column 'patient' of more.csv is left out: it repeats the names of the rows.",
        "column 'index' of more.csv is left out: it numbers the rows.",
    ):
        assert line in said.err


@pytest.mark.parametrize(
    ("view", "joined"),
    [
        ("clin=age,kind", True),
        ("clin=age,kind", False),
        ("clin=kind", True),
        ("clin=kind", False),
        ("clin=age,id", True),
    ],
)
def test_a_view_that_names_the_target_or_the_ids_is_refused(capsys, here, view, joined):
    options = ["--on", "id", "--view", "rna.csv"] if joined else []
    line = run(capsys, "fit", "train.csv", "--target", "kind", *options, "--view", view).error
    assert f"--view {view}: column {view.rpartition('=')[2].rpartition(',')[2]!r} is the " in line
    assert "never learned from" in line


SAME = "duplicates or recodes the target 'kind'"


def fit_to_copies(capsys, here, code, *arguments):
    write(here.assign(status=code(here["kind"])), "train.csv")
    write(here[["id"]].assign(u=range(N), v=code(here["kind"])), "more.csv")
    views = ("--view", "m=more.csv:linear", "--view", "c=status,age:linear")
    warned = [line for line in fit(capsys, *views, *arguments).err.splitlines() if SAME in line]
    assert len(warned) == 2
    assert {re.search(r"column '([^']*)'", line)[1] for line in warned} == {"status", "m.v"}


@pytest.mark.parametrize(
    "code",
    [
        lambda kind: kind,
        lambda kind: (kind == "sick").astype(int),
        lambda kind: np.where(kind == "sick", "A", "B"),
        lambda kind: np.where(kind == "sick", -3.5, 12.0),
    ],
    ids=["copy", "0 and 1", "letters", "numbers"],
)
def test_a_column_that_is_the_target_in_another_code_is_named_in_a_warning(capsys, here, code):
    fit_to_copies(capsys, here, code)


def test_the_warning_of_such_a_column_is_on_the_page_and_in_the_model(capsys, here, hide):
    hide("matplotlib")
    fit_to_copies(
        capsys, here, lambda kind: np.where(kind == "sick", "A", "B"), "--report", "r.html"
    )
    assert SAME in unescape(Path("r.html").read_text(encoding="utf-8"))
    assert sum(SAME in text for text in load("model.skops").training_["warnings"]) == 2
    assert SAME in done(capsys, "inspect", "model.skops", "--json").out
    said = done(capsys, "fit", "train.csv", "--target", "kind", "--drop", "status,id", *PLAIN)
    assert SAME not in said.err


def test_so_is_a_quantity_in_another_unit(capsys, here):
    rng = np.random.RandomState(2)
    y = rng.randn(N)
    noisy = y + 0.3 * rng.randn(N)  # another order
    write(
        pd.DataFrame({"a": rng.randn(N), "inches": 3.0 + y / 2.54, "noisy": noisy, "y": y}), "q.csv"
    )
    said = done(capsys, "fit", "q.csv", "--target", "y", *PLAIN)
    warned = [
        line for line in said.err.splitlines() if "duplicates or recodes the target 'y'" in line
    ]
    assert len(warned) == 1
    assert "column 'inches'" in warned[0]


# Several files ------------------------------------------------------------------------------------


def test_columns_of_the_table_are_a_view_beside_joined_files(capsys, here):
    said = fit(capsys, "--view", "clin=age,sex:linear", "--view", "rna.csv", "--view", "prot.csv")
    assert "view clin: 2 columns (age, sex); linear\n" in said.err
    assert re.search(r"view rna \(rna\.csv\): 3 columns .*; lacked by 3 of 40 rows\n", said.err)
    assert re.search(r"view prot \(prot\.csv\): 2 columns .*; lacked by 2 of 40 rows\n", said.err)
    assert "not used" not in said.err
    again = (
        "--on",
        "id",
        "--view",
        "clin=age,sex:linear",
        "--view",
        "rna.csv",
        "--view",
        "prot.csv",
    )
    said = done(capsys, "predict", "model.skops", "train.csv", *again, "--id", "id")
    assert len(said.out.splitlines()) == N + 1
    assert "ignored" not in said.err


def test_columns_that_no_view_reads_are_named(capsys, here):
    said = fit(capsys, "--view", "rna.csv", "--view", "prot.csv", "--drop-empty", "--drop", "age")
    assert "1 column is not used: sex." in said.err
    write(flowers(), "f.csv")
    said = done(capsys, "fit", "f.csv", "--target", "kind", "--view", "s=shape_*:linear", *PLAIN)
    assert "3 columns are not used: noise_a, noise_b, colour." in said.err


def test_a_file_of_views_keeps_the_joined_view(capsys, here):
    Path("v.json").write_text(json.dumps({"clin": ["age", "sex"]}))
    fit(capsys, "--view", "rna.csv", "--views", "v.json")
    views = load("model.skops").training_["views"]
    assert {name: view["columns"] for name, view in views.items()} == {
        "rna": ["rna.u", "rna.v", "rna.w"],
        "clin": ["age", "sex"],
    }


def test_views_of_parts_of_joined_files_know_their_files(capsys, here):
    views = {"part": ["rna.u", "rna.v"], "both": ["rna.w", "prot.*"], "clin": ["age"]}
    Path("v.json").write_text(json.dumps(views))
    said = fit(
        capsys, "--view", "rna.csv", "--view", "prot.csv", "--views", "v.json", "--impute", "views"
    )
    noted = load("model.skops").training_["views"]
    assert {name: view["files"] for name, view in noted.items()} == {
        "part": ["rna.csv"],
        "both": ["rna.csv", "prot.csv"],
        "clin": [],
    }
    assert "view both (rna.csv, prot.csv): 3 columns" in said.err
    line = run(capsys, "predict", "model.skops", "train.csv").error
    assert "--on id --view rna=FILE" in line


def test_neither_a_file_nor_columns(capsys, here):
    line = run(
        capsys, "fit", "train.csv", "--target", "kind", "--on", "id", "--view", "c=agee"
    ).error
    assert (
        "--view c=agee: agee is not a file, and train.csv has no such column; did you mean 'age'?"
        in line
    )
    line = run(
        capsys, "fit", "train.csv", "--target", "kind", "--on", "id", "--view", "c=none.csv"
    ).error
    assert "none.csv: there is no such file" in line
    line = run(
        capsys, "fit", "train.csv", "--target", "kind", "--on", "id", "--view", "c=age,length"
    ).error
    assert "the pattern 'length' matches no column; there are 'age', 'sex'" in line
    line = run(
        capsys, "fit", "train.csv", "--target", "kind", "--on", "id", "--view", "c=age,sx"
    ).error
    assert (
        "--view c=age,sx: the pattern 'sx' matches no column; did you mean 'sex'? there are 'age',"
        " 'sex'" in line
    )
    line = run(capsys, "fit", "train.csv", "--target", "kind", "--view", "c=age,sx").error
    assert "the pattern 'sx' matches no column; did you mean 'sex'?" in line


@pytest.mark.parametrize("view", ["rna.csv", "rna=rna.csv", "rna=rna.csv:linear"])
def test_a_file_needs_a_column_to_join_it_by(capsys, here, view):
    line = run(capsys, "fit", "train.csv", "--target", "kind", "--view", view).error
    assert f"--view {view}: rna.csv is a file; files are joined to train.csv by a column" in line
    assert line.endswith("name it with --on COLUMN.")


def test_a_file_that_is_not_there_gives_the_same_hint(capsys, here):
    line = run(capsys, "fit", "train.csv", "--target", "kind", "--view", "rnaa.csv").error
    assert "--view rnaa.csv: write name=PATTERN:KERNEL" in line
    assert line.endswith("files are joined by --on COLUMN and --view name=FILE.")


@pytest.mark.parametrize("options", [("--target", "well"), ("--target", "age", "--event", "well")])
def test_a_target_that_the_file_of_a_view_has(capsys, here, options):
    rna = pd.read_csv("rna.csv")
    write(rna.assign(well=np.arange(len(rna)) % 2), "rna.csv")
    line = run(capsys, "fit", "train.csv", *options, "--on", "id", "--view", "rna.csv").error
    assert (
        "column 'well' is in rna.csv, but the target must be in the first table, which is train.csv"
        in line
    )
    assert "`kernelmosaic fit rna.csv --view train.csv`" in line


def test_a_column_of_names_is_not_called_free_text(capsys, here):
    write(here.rename(columns={"id": "patient"}), "train.csv")
    said = done(capsys, "fit", "train.csv", "--target", "kind", *PLAIN)
    assert (
        "column 'patient' is left out: too many different texts for categories, as of ids or free"
        " text." in said.err
    )


def test_outputs_do_not_replace_joined_files(capsys, here):
    before = Path("rna.csv").read_bytes()
    line = run(
        capsys,
        "fit",
        "train.csv",
        "--target",
        "kind",
        "--on",
        "id",
        "--view",
        "rna.csv",
        "--report",
        "rna.csv",
    ).error
    assert "--report rna.csv: this file is read" in line
    assert Path("rna.csv").read_bytes() == before


def test_rows_that_no_view_has_are_listed_and_dropped_on_request(capsys, here):
    joined = ("--on", "id", "--view", "rna.csv", "--view", "prot.csv")
    line = run(capsys, "fit", "train.csv", "--target", "kind", *joined).error
    assert (
        "train.csv: 1 of 40 rows appear in no view: id 'p2' (row 3). Leave them out with"
        " --drop-empty" in line
    )
    line = run(
        capsys, "fit", "train.csv", "--target", "kind", "--on", "id", "--view", "rna.csv"
    ).error
    assert (
        "3 of 40 rows appear in no view: id 'p0' (row 1), id 'p1' (row 2), id 'p2' (row 3)." in line
    )
    said = fit(capsys, *joined[2:], "--drop-empty")
    assert "1 of 40 rows are left out, which appear in no view: id 'p2' (row 3)" in said.err
    assert "39 rows" in said.out
    assert load("model.skops").training_["rows"] == 39
    line = run(capsys, "predict", "model.skops", "train.csv", *joined).error
    assert "id 'p2' (row 3)" in line
    said = done(
        capsys, "predict", "model.skops", "train.csv", *joined, "--drop-empty", "--id", "id"
    )
    ids = [line.partition(",")[0] for line in said.out.splitlines()[1:]]
    assert ids == [f"p{i}" for i in range(N) if i != 2]
    assert "id 'p2' (row 3)" in said.err
    assert "accuracy" in said.err
    done(capsys, "explain", "model.skops", "train.csv", *joined, "--drop-empty", "-o", "why.csv")
    assert len(pd.read_csv("why.csv")) == 39


def test_an_error_in_a_joined_file_names_the_file_the_id_and_the_way_out(capsys, here):
    rna = pd.read_csv("rna.csv").astype({"v": object})
    rna.loc[rna["id"] == "p7", "v"] = np.nan
    rna.loc[rna["id"] == "p9", "v"] = "wide"
    write(rna, "rna.csv")
    views = ("--view", "clin=age", "--view", "rna.csv", "--view", "prot.csv")
    line = run(capsys, "fit", "train.csv", "--target", "kind", "--on", "id", *views).error
    assert "row 8, column 'rna.v' (column 'v' of rna.csv, id 'p7') is empty" in line
    assert "row 10, column 'rna.v' (column 'v' of rna.csv, id 'p9'): 'wide' is not a number" in line
    assert "--impute views" in line
    assert "--impute median" not in line
    rna.loc[rna["id"] == "p9", "v"] = 1.0
    write(rna, "rna.csv")
    fit(capsys, *views, "--impute", "views")


def test_rows_keep_their_numbers_when_others_are_dropped(capsys, here):
    rna = pd.read_csv("rna.csv").astype({"v": object})
    rna.loc[rna["id"] == "p9", "v"] = "wide"
    write(rna, "rna.csv")
    views = ("--on", "id", "--view", "rna.csv", "--view", "prot.csv", "--drop-empty")
    said = run(capsys, "fit", "train.csv", "--target", "kind", *views)
    assert said.code == 2
    assert "row 10, column 'rna.v' (column 'v' of rna.csv, id 'p9')" in said.err


# What the model file remembers --------------------------------------------------------------------


def test_the_model_remembers_which_file_is_which(capsys, here, hide):
    hide("matplotlib")
    fit(
        capsys,
        "--view",
        "clin=age",
        "--view",
        "rna.csv",
        "--view",
        "p=prot.csv",
        "--report",
        "r.html",
    )
    found = json.loads(done(capsys, "inspect", "model.skops", "--json").out)
    assert found["files"] == {
        "table": "train.csv",
        "on": "id",
        "views": {"rna": "rna.csv", "p": "prot.csv"},
        "kernels": {},
    }
    assert found["lacking"] == {"clin": 0, "rna": 3, "p": 2}
    out = done(capsys, "inspect", "model.skops").out
    assert "train.csv, joined by column 'id'" in out
    assert "view p from prot.csv" in out
    page = unescape(Path("r.html").read_text(encoding="utf-8"))
    assert (
        "kernelmosaic predict model.skops NEW.csv --on id --view rna=NEW_rna.csv --view p=NEW_p.csv"
        " --id id" in page
    )
    assert "rows of the table, joined by column <code>id</code>." in page


def test_predict_says_which_file_is_needed(capsys, here):
    fit(capsys, "--view", "clin=age", "--view", "rna.csv", "--view", "p=prot.csv")
    line = run(capsys, "predict", "model.skops", "train.csv").error
    assert (
        "view 'rna' from a file of its own (rna.csv when it was fitted), joined by column 'id'"
        in line
    )
    assert "--on id --view rna=FILE" in line
    line = run(capsys, "predict", "model.skops", "train.csv", "--view", "rna.csv").error
    assert "name the column that joins it with --on id" in line
    line = run(
        capsys, "predict", "model.skops", "train.csv", "--on", "id", "--view", "prot.csv"
    ).error
    assert (
        "the model has no view 'prot' from a file; it has rna (rna.csv), p (prot.csv). Write"
        " NAME=prot.csv" in line
    )
    said = done(capsys, "predict", "model.skops", "train.csv", "--on", "id", "--view", "p=prot.csv")
    assert "view 'rna' (rna.csv when the model was fitted) is not given: no row has it." in said.err


def test_rows_are_known_by_their_names_whatever_views_are_given(capsys, here):
    fit(capsys, "--view", "clin=age", "--view", "rna.csv", "--view", "p=prot.csv", "--test", "0.25")
    new = here.assign(id=[*here["id"][:35], *(f"q{i}" for i in range(5))])
    write(new.rename(columns={"id": "patient"}), "new.csv")
    write(pd.read_csv("prot.csv").rename(columns={"id": "patient"}), "p2.csv")
    said = done(
        capsys,
        "predict",
        "model.skops",
        "new.csv",
        "--on",
        "patient",
        "--view",
        "p=p2.csv",
        "-o",
        "p.csv",
    )
    known = len({*new["id"]} & {*learned_from(here)})
    assert 0 < known < 35
    assert (
        f"{known} of them are rows that the model was fitted to (by column 'patient')" in said.err
    )


def learned_from(table, test=0.25):
    """The names of the rows that are not held out, by scikit-learn."""
    split = StratifiedShuffleSplit(1, test_size=test, random_state=0).split(table, table["kind"])
    return table["id"].iloc[next(split)[0]]


def test_the_file_of_another_view_is_refused(capsys, here):
    fit(capsys, "--view", "clin=age", "--view", "rna.csv", "--view", "p=prot.csv")
    line = run(
        capsys, "predict", "model.skops", "train.csv", "--on", "id", "--view", "rna=prot.csv"
    ).error
    assert (
        "--view rna=prot.csv: the file has none of the 3 columns of this view, such as 'u'." in line
    )


@pytest.mark.parametrize("impute", ["none", "views"])
def test_a_table_without_the_joined_columns_is_refused_by_view(capsys, here, impute):
    fit(
        capsys,
        "--view",
        "clin=age",
        "--view",
        "rna.csv",
        "--view",
        "p=prot.csv",
        "--impute",
        impute,
    )
    model = load("model.skops")
    with pytest.raises(
        ValueError, match=r"X lacks 5 columns \('rna.u', 'rna.v', 'rna.w'; 'p.k', 'p.l'\) that the"
    ):
        model.predict(here)
    joined = here.assign(**dict.fromkeys(("rna.u", "rna.v", "rna.w", "p.k"), 0.0))
    with pytest.raises(
        ValueError, match=r"X lacks column 'p.l' that the model reads: give a data frame"
    ):
        model.predict(joined)


def test_many_columns_are_counted_and_the_first_of_each_view_named():
    names = [*(f"rna.g{i}" for i in range(50)), "age", "p.a", "p.b"]
    assert (
        list_columns(names)
        == "53 columns ('rna.g0', 'rna.g1', 'rna.g2' and 47 more; 'age'; 'p.a', 'p.b')"
    )
    assert list_columns(["age"]) == "column 'age'"


# Gene sets ----------------------------------------------------------------------------------------


def test_gene_sets_are_views_in_place_of_the_table_that_they_divide(capsys, here):
    Path("sets.gmt").write_text("A\t\tu\tv\tx\nB__1\t\tv\tw\nC\t\tw\ty\n", encoding="utf-8")
    files = ("--view", "rna.csv", "--view", "prot=prot.csv:linear")
    said = fit(capsys, *files, "--gene-sets", "sets.gmt:linear", "--drop-empty", "--method", "mkl")
    views = {name: view["columns"] for name, view in load("model.skops").training_["views"].items()}
    assert views == {
        "prot": ["prot.k", "prot.l"],
        "A": ["rna.u", "rna.v"],
        "B_1": ["rna.v", "rna.w"],
    }
    assert "1 of 3 gene sets have fewer than two genes that are columns: left out." in said.err
    assert load("model.skops").named_steps["model"].kernel_names_ == [
        "prot:linear",
        "A:linear",
        "B_1:linear",
    ]
    new = ("--on", "id", "--view", "rna=rna.csv", "--view", "prot=prot.csv", "--drop-empty")
    assert (
        "Predictions: p.csv"
        in done(capsys, "predict", "model.skops", "train.csv", *new, "-o", "p.csv").out
    )


def test_gene_sets_of_one_table_and_of_a_gene_in_two(capsys, here):
    Path("sets.gmt").write_text("A\t\tage\tu\nB\t\tu\tv\n", encoding="utf-8")
    table = here.assign(u=np.arange(N) % 7, v=np.arange(N) % 5)
    write(table, "one.csv")
    done(
        capsys,
        "fit",
        "one.csv",
        "--target",
        "kind",
        "--gene-sets",
        "sets.gmt",
        "--drop",
        "id",
        *PLAIN,
    )
    assert load("model.skops").named_steps["model"].kernel_names_ == ["A:gauss", "B:gauss"]
    write(table, "train.csv")
    write(table[["id", "u", "v"]], "more.csv")
    options = (
        "fit",
        "train.csv",
        "--target",
        "kind",
        "--on",
        "id",
        "--view",
        "more.csv",
        "--gene-sets",
    )
    assert (
        "gene 'u' is in u and more.u; name the view, such as rna=sets.gmt."
        in run(capsys, *options, "sets.gmt").error
    )
    done(capsys, *options, "more=sets.gmt", *PLAIN)
    assert columns_of() == ["more.u", "more.v"]
    Path("sets.gmt").write_text("A\t\tTP53\tMYC\n", encoding="utf-8")
    assert (
        "no set has two genes that are columns; the columns are 'u', 'v'"
        in run(capsys, *options, "more=sets.gmt").error
    )
    assert (
        "nothing.gmt: there is no such file; give a .gmt file."
        in run(capsys, *options, "nothing.gmt").error
    )
