"""Tables in and out: what a spreadsheet would run, and columns without a name."""

from __future__ import annotations

import csv
import io
import runpy

import numpy as np
import pandas as pd
import pytest
from tests.cli.tables import PLAIN, done, run

from kernelmosaic.tables import looks_like_an_index, read_table, table_text


@pytest.mark.parametrize(
    "text", ["=1+2", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "\tx", "\r=1", "-"]
)
def test_a_text_that_spreadsheets_would_run_gets_an_apostrophe(text):
    table = pd.DataFrame({"prediction": [text, "fine"], "score": [-1.5, 2.0]})
    rows = list(csv.reader(io.StringIO(table_text(table), newline="")))
    assert rows[1] == [f"'{text}", "-1.5"]
    assert rows[2] == ["fine", "2.0"]


@pytest.mark.parametrize("text", ["-1", "+1", "-2.5e-3", "a=b", "1-2", "", "'x"])
def test_numbers_and_harmless_texts_stay(text):
    rows = list(
        csv.reader(
            io.StringIO(table_text(pd.DataFrame({"prediction": [text], "n": [1]})), newline="")
        )
    )
    assert rows[1][0] == text


def test_so_do_names_of_columns_and_what_is_no_text():
    table = pd.DataFrame(
        {
            "=A1": [1, -2],
            "kind": pd.Categorical(["@a", "b"]),
            "mixed": [-1, "-y"],
            "none": [None, "b"],
        }
    )
    rows = list(csv.reader(io.StringIO(table_text(table))))
    assert rows == [
        ["'=A1", "kind", "mixed", "none"],
        ["1", "'@a", "-1", ""],
        ["-2", "b", "'-y", "b"],
    ]


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
@pytest.mark.parametrize(
    ("values", "numbers_rows"),
    [
        ([0, 1, 2, 3], True),
        ([4, 3, 2, 1], True),
        (["r1", "r2", "r3", "r4"], True),
        ([0.5, 1.5, 2.5, 3.5], False),
        ([3, 17, 4, 120], False),
        (["ACGTACGTAA", "ACGGACGTAC", "TCGTACGTAG", "ACGTTCGTAT"], False),
    ],
)
def test_a_column_without_a_name_numbers_rows_or_holds_data(name, values, numbers_rows):
    assert looks_like_an_index(pd.Series(values, name=name)) == numbers_rows


def test_a_column_called_id_may_have_gaps_but_is_no_measurement():
    assert looks_like_an_index(pd.Series([101, 7, 3005], name="id"))
    assert not looks_like_an_index(pd.Series([0.1, 0.7, 0.3], name="index"))


def test_data_without_a_name_is_learned_from(tmp_path, capsys):
    path = tmp_path / "t.csv"
    rows = [f"{i % 3}.5,{(7 * i) % 12 + 0.25},{'pn'[i % 2]}" for i in range(12)]
    path.write_text("a,,y\n" + "\n".join(rows) + "\n")
    assert list(read_table(path)) == ["a", "Unnamed: 1", "y"]
    said = done(capsys, "fit", path, "--target", "y", "-o", tmp_path / "m.skops", *PLAIN)
    assert "2 columns" in said.out
    assert "left out" not in said.out + said.err


# Cells of any length ------------------------------------------------------------------------------


@pytest.fixture
def csv_limit():
    """The limit of a fresh interpreter."""
    given = csv.field_size_limit(131_072)
    yield 131_072
    csv.field_size_limit(given)


def test_the_limit_of_the_csv_module_is_left_as_it_is(tmp_path, csv_limit):
    path = tmp_path / "t.csv"
    path.write_text("dna,y\n" + "ACGT" * 50_000 + ",1\n")
    # The modules run anew, as on import.
    for module in ("kernelmosaic.tables", "kernelmosaic.cli.commands"):
        names = runpy.run_module(module)
        assert csv.field_size_limit() == csv_limit
        names.get("read_table", read_table)(path)
        assert csv.field_size_limit() == csv_limit


GENOME = "ACGT" * 100_000


@pytest.mark.parametrize(
    "cell",
    [
        GENOME,
        f'"{GENOME}"',
        '"' + "\n".join([GENOME[:70]] * 4000) + '"',
        '"' + ", ".join([GENOME[:40]] * 5000) + '"',
        '"' + '""'.join([GENOME[:500]] * 500) + '"',
    ],
    ids=["plain", "quoted", "in lines", "with commas", "with quotes"],
)
def test_a_cell_may_hold_a_whole_genome(tmp_path, cell):
    path = tmp_path / "t.csv"
    text = f"name,dna,y\na,{cell},1\nb,ACGT,2\n"
    path.write_text(text)
    table = read_table(path)
    read = cell[1:-1].replace('""', '"') if cell.startswith('"') else cell
    assert table["dna"].tolist() == [read, "ACGT"]
    assert table["y"].tolist() == [1, 2]
    line = text.count("\n") + 1
    path.write_text(f"{text}c,ACGT\n")
    with pytest.raises(ValueError, match=f"t.csv, line {line}: 2 cells, but the first line has 3"):
        read_table(path)


def test_a_cell_that_is_too_long_all_the_same_is_one_clear_error(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,y\n1,2\n"' + '"",' * 100_000 + '",1\n')
    with pytest.raises(
        ValueError, match=r"t\.csv, line 3: a cell is too long .*; shorten it, or write Parquet\."
    ):
        read_table(path)


@pytest.mark.parametrize("digits", [401, 5000])
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_of_very_many_digits_is_refused_where_it_is_computed_with(
    capsys, tmp_path, digits, sign
):
    path = tmp_path / "t.csv"
    rows = [f"{i % 7},{i % 5},{'pn'[i % 2]}" for i in range(30)]
    rows[3] = f"{sign}{'9' * digits},1,p"
    path.write_text("a,b,y\n" + "\n".join(rows) + "\n")
    line = run(capsys, "fit", path, "--target", "y", *PLAIN, "-o", tmp_path / "m.skops").error
    assert "row 4, column 'a': '" in line
    assert f"… ({digits + len(sign)} letters) is too large to compute with" in line
    assert len(line) < 400
    line = run(
        capsys,
        "fit",
        path,
        "--target",
        "a",
        "--task",
        "regression",
        *PLAIN,
        "-o",
        tmp_path / "m.skops",
    ).error
    assert "is too large to compute with" in line


@pytest.mark.parametrize("digits", [25, 401])
def test_a_number_of_very_many_digits_may_be_a_name(capsys, tmp_path, digits):
    ids = [str(10**digits + i) for i in range(30)]
    table = pd.DataFrame({"id": ids, "a": np.arange(30) % 7, "y": ["p", "n"] * 15})
    table.to_csv(tmp_path / "t.csv", index=False)
    assert read_table(tmp_path / "t.csv")["id"].tolist() == ids
    said = done(
        capsys, "fit", tmp_path / "t.csv", "--target", "y", *PLAIN, "-o", tmp_path / "m.skops"
    )
    assert "column 'id' is left out: it numbers the rows" in said.err
    said = done(capsys, "predict", tmp_path / "m.skops", tmp_path / "t.csv", "--id", "id")
    assert said.out.splitlines()[1].startswith(f"{ids[0]},")


@pytest.mark.parametrize("name", ["surv", "event"])
def test_a_structured_array_is_one_column(tmp_path, name):
    times = np.array([(True, 1.0), (False, 2.5)], dtype=[("event", "?"), ("time", "f8")])
    np.savez(tmp_path / "table.npz", X=np.eye(2), **{name: times})
    table = read_table(tmp_path / "table.npz")
    assert list(table.columns) == ["X_0", "X_1", name]
    assert [tuple(row) for row in table[name]] == [(True, 1.0), (False, 2.5)]
