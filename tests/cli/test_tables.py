"""Tables in and out: what a spreadsheet would run, and columns without a name."""

from __future__ import annotations

import csv
import io

import pandas as pd
import pytest
from tests.cli.tables import QUICK, done

from kernelmosaic.tables import looks_like_an_index, read_table, table_text


@pytest.mark.parametrize("text", ["=1+2", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "\tx", "\r=1", "-"])
def test_a_text_that_spreadsheets_would_run_gets_an_apostrophe(text):
    table = pd.DataFrame({"prediction": [text, "fine"], "score": [-1.5, 2.0]})
    rows = list(csv.reader(io.StringIO(table_text(table), newline="")))
    assert rows[1] == [f"'{text}", "-1.5"]
    assert rows[2] == ["fine", "2.0"]


@pytest.mark.parametrize("text", ["-1", "+1", "-2.5e-3", "a=b", "1-2", "", "'x"])
def test_numbers_and_harmless_texts_stay(text):
    rows = list(csv.reader(io.StringIO(table_text(pd.DataFrame({"prediction": [text], "n": [1]})), newline="")))
    assert rows[1][0] == text


def test_so_do_names_of_columns_and_what_is_no_text():
    table = pd.DataFrame(
        {"=A1": [1, -2], "kind": pd.Categorical(["@a", "b"]), "mixed": [-1, "-y"], "none": [None, "b"]}
    )
    rows = list(csv.reader(io.StringIO(table_text(table))))
    assert rows == [["'=A1", "kind", "mixed", "none"], ["1", "'@a", "-1", ""], ["-2", "b", "'-y", "b"]]


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
    said = done(capsys, "fit", path, "--target", "y", "-o", tmp_path / "m.skops", *QUICK)
    assert "2 columns" in said.out
    assert "left out" not in said.out + said.err
