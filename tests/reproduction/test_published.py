"""The published figures, and how ours are set beside them."""

from __future__ import annotations

import csv

import pytest

from reproduction import EXPERIMENTS, FULL, Row
from reproduction.rows import agrees, join, published_figures, row_of, write_rows


def test_figures_are_those_of_the_paper():
    figures = published_figures()
    assert figures["000", "Table 1", "BANANA", "LMKL", "kP-kG", "accuracy"].mean == 83.84
    assert figures["001", "slide CONCRETE", "CONCRETE", "LMKL sigmoid", "kL-kP2-kP3-kP4-kP5", "mse"].std == 5.22
    assert figures["000", "Table 1", "10 benchmark sets", "LMKL vs MKL", "kP-kG", "wins:5x2cvF:sv_percent"].mean == 3


def test_every_cell_of_table_1_has_its_figures():
    cells = {(unit.dataset, unit.method, unit.kernels) for unit in EXPERIMENTS["000-table1"].units(FULL)}
    assert len(cells) == 60
    for cell in cells:
        for metric in ("accuracy", "sv_percent"):
            assert ("000", "Table 1", *cell, metric) in published_figures()


def test_published_figures_belong_to_an_experiment():
    tables = {(one.paper, one.table) for one in EXPERIMENTS.values()}
    strangers = {key[:2] for key in published_figures()} - tables
    assert strangers == set()


@pytest.mark.parametrize(
    ("metric", "difference", "std", "expected"),
    [
        ("accuracy", 0.9, 0.5, True),
        ("accuracy", -1.1, 0.5, False),
        ("accuracy", -1.9, None, True),
        ("sv_percent", 2.1, None, False),
        ("mse", 0.01, 0.0, True),
        ("mse", 0.02, 0.0, False),
        ("mse", 0.02, None, None),
        ("weight:kL", 0.02, None, True),
        ("weight:kL", 0.03, None, False),
        ("wins:5x2cvF:accuracy", 0.0, None, True),
        ("wins:5x2cvF:accuracy", 1.0, None, False),
    ],
)
def test_what_counts_as_agreement(metric, difference, std, expected):
    assert agrees(metric, difference, std) is expected


def test_rows_are_joined_by_the_whole_cell():
    rows = [
        row_of("BANANA", "LMKL", "kP-kG", "accuracy", [83.0, 85.0], "C=10"),
        row_of("BANANA", "LMKL", "kP-kG", "seconds", [1.0]),
        row_of("BANANA", "LMKL", "kP", "accuracy", [83.0]),
    ]
    first, *others = join(rows, "000", "Table 1")
    assert (first.published, first.published_std, first.within) == (83.84, None, True)
    assert first.difference == pytest.approx(84.0 - 83.84)
    assert first.std == pytest.approx(2**0.5)
    assert all(row.published is None and row.within is None for row in others)
    assert join(rows, "000", "Table 9") == rows


def test_tables_are_written_with_what_is_not_known_left_empty(tmp_path):
    write_rows([Row("a, b", "SVM", "kL", "accuracy", 83.123456789, None, 1)], tmp_path / "table.csv")
    (line,) = csv.DictReader((tmp_path / "table.csv").open(encoding="utf-8"))
    assert (line["dataset"], line["mean"], line["std"], line["within"]) == ("a, b", "83.1235", "", "")
