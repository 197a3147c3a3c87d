"""The published figures, and how ours are set beside them."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest

from reproduction import EXPERIMENTS, FULL, Row
from reproduction.rows import (
    Apart,
    gain_metric,
    join,
    merge,
    published_figures,
    row_of,
    tallies,
    tolerance,
    write_rows,
)


def test_figures_are_those_of_the_paper():
    figures = published_figures()
    assert figures["000", "Table 1", "BANANA", "LMKL", "kP-kG", "accuracy"].mean == 83.84
    assert (
        figures[
            "001", "slide CONCRETE", "CONCRETE", "LMKL sigmoid", "kL-kP2-kP3-kP4-kP5", "mse"
        ].std
        == 5.22
    )
    assert (
        figures[
            "000", "Table 1", "10 benchmark sets", "LMKL vs MKL", "kP-kG", "wins:5x2cvF:sv_percent"
        ].mean
        == 3
    )


def test_every_cell_of_table_1_has_its_figures():
    cells = {
        (unit.dataset, unit.method, unit.kernels) for unit in EXPERIMENTS["000-table1"].units(FULL)
    }
    assert len(cells) == 60
    for cell in cells:
        for metric in ("accuracy", "sv_percent"):
            assert ("000", "Table 1", *cell, metric) in published_figures()


def test_published_figures_belong_to_an_experiment():
    tables = {(one.paper, one.table) for one in EXPERIMENTS.values()}
    strangers = {key[:2] for key in published_figures()} - tables
    assert strangers == set()


@pytest.mark.parametrize(
    ("metric", "ours", "theirs", "expected"),
    [
        ("accuracy", 0.3, 0.4, 1.0),
        ("accuracy", 0.3, None, 2 * 2**0.5 * 0.3),  # theirs is taken to be ours
        ("mse", None, 0.4, 2 * 2**0.5 * 0.4),
        ("gain:accuracy:SVM:kL", 0.3, 0.4, 1.0),
        ("accuracy", None, None, 2.0),
        ("weight:kL", None, None, 0.02),
        ("weight:kL", 0.0, None, 0.005),  # rounding
        ("mse", None, None, None),
        ("wins:5x2cvF:accuracy", 3.0, None, 0.0),
        ("seconds", 0.3, 0.4, None),
        ("p:accuracy", 0.3, 0.4, None),
    ],
)
def test_how_far_figures_that_agree_may_be_apart(metric, ours, theirs, expected):
    assert tolerance(metric, ours, theirs) == (
        None if expected is None else pytest.approx(expected)
    )


def test_runs_agree_with_the_paper_and_with_each_other_by_one_rule():
    # Three runs of ten splits each, deviation √10 within: standard error 1. Theirs is 6 / √36 = 1.
    row = Row("set", "MKL", "k", "accuracy", 82.0, 10**0.5, 30, runs=(80.0, 82.0, 84.0))
    row = replace(row, published=79.0, published_std=6.0, published_count=36)
    assert row.error == pytest.approx(1.0)
    assert row.difference == pytest.approx(3.0)
    # Allowed is 2 √2 = 2.83: 80 is 1 away, 82 is 3, 84 is 5.
    assert row.share == pytest.approx(1 / 3)
    assert row.within is False
    # 80–82 and 82–84 agree, 80–84 do not.
    assert row.ceiling == pytest.approx(2 / 3)
    # Without a printed deviation theirs is ours, which is the same here.
    assert replace(row, published_std=None).share == pytest.approx(1 / 3)
    assert replace(row, runs=()).ceiling is None
    assert Row("set", "MKL", "k", "accuracy", 82.0).share is None


def test_rows_of_several_split_seeds_become_one():
    first = [
        row_of("a", "MKL", "k", "accuracy", [80.0, 84.0], "C=1"),
        Row("all", "x", "k", "wins:direct:accuracy", 3),
    ]
    second = [
        row_of("a", "MKL", "k", "accuracy", [90.0, 90.0], "C=10"),
        Row("all", "x", "k", "wins:direct:accuracy", 5),
    ]
    second.append(Row("7 of all", "x", "k", "wins:direct:accuracy", 5))
    figure, count = merge([first, second])
    assert (figure.mean, figure.count, figure.runs, figure.setting) == (
        86.0,
        4,
        (82.0, 90.0),
        "C=1 / C=10",
    )
    assert figure.std == pytest.approx(2.0)  # the root of the mean of 8 and 0
    assert (count.mean, count.runs) == (3, (3, 5))
    assert merge([first]) == first
    assert merge([]) == []
    # Figures that a run has one of: the spread is that between runs, and the error of a run is all
    # of it.
    (alone,) = merge([[Row("a", "MKL", "k", "weight:k", value)] for value in (0.2, 0.4)])
    assert alone.error == alone.std == pytest.approx(0.2 / 2**0.5)


def test_rows_are_joined_by_the_whole_cell():
    rows = [
        row_of("BANANA", "LMKL", "kP-kG", "accuracy", [83.0, 85.0], "C=10"),
        row_of("BANANA", "LMKL", "kP-kG", "seconds", [1.0]),
        row_of("BANANA", "LMKL", "kP", "accuracy", [83.0]),
    ]
    first, *others = join(rows, "000", "Table 1", 10)
    assert (first.published, first.published_std, first.published_count, first.within) == (
        83.84,
        None,
        10,
        True,
    )
    assert first.difference == pytest.approx(84.0 - 83.84)
    assert first.std == pytest.approx(2**0.5)
    assert all(row.published is None and row.within is None for row in others)
    assert join(rows, "000", "Table 9") == rows


def test_a_printed_count_of_splits_tells_its_own_deviation():
    # The deviation of splits that count thirty or nothing.
    names = ("sonar", "RKDA_K_lambda", "10 RBF")
    rows = [
        row_of(*names, "selections:rbf07", [30.0, 0.0]),
        row_of(*names, "selections:rbf01", [0.0, 0.0]),
    ]
    some, none = join(rows, "004", "Tables 2-5, 17", 30)
    assert (some.published, none.published) == (14, 0)
    assert some.published_std == pytest.approx(float(np.std([30.0] * 14 + [0.0] * 16)))
    assert (none.published_std, none.within) == (0.0, True)
    assert [tally.metric for tally in tallies([some, none])] == [
        "selections",
        "kernels never selected",
    ]


def test_every_printed_selection_has_its_cell():
    figures = [key[1:4] for key in published_figures() if key[-1].startswith("selections:")]
    assert len(figures) == 280
    experiments = [EXPERIMENTS[name] for name in ("004-binary", "004-multiclass")]
    cells = {
        (one.table, unit.dataset, unit.method) for one in experiments for unit in one.units(FULL)
    }
    assert set(figures) <= cells


def test_gains_are_joined_with_the_difference_of_the_printed_figures():
    (row,) = join(
        [row_of("BANANA", "LMKL", "kP-kG", gain_metric("accuracy", "SVM", "kP"), [27.0])],
        "000",
        "Table 1",
    )
    assert row.published == pytest.approx(83.84 - 56.51)
    assert row.published_std is None


def test_cells_are_counted_kind_by_kind_beside_their_ceilings():
    def row(metric, method, published, *runs, dataset="a"):
        return Row(
            dataset,
            method,
            "k",
            metric,
            sum(runs) / len(runs),
            1.0,
            len(runs),
            runs=runs,
            published=published,
        )

    rows = [
        row("accuracy", "SVM", 80.0, 80.0, 90.0),
        row("accuracy", "MKL", 85.0, 85.0, 85.0),
        row("accuracy", "MKL", 99.0, 85.0, 85.0, dataset="b"),
        row("gain:accuracy:SVM:k", "MKL", 5.0, 5.0, 5.0),
        row("accuracy", "MKL", 50.0, 85.0, 85.0, dataset="no target"),
        row("seconds", "MKL", 50.0, 85.0, 85.0),
    ]
    apart = (Apart("its rows are not at hand", "no target"),)
    found = {
        (one.metric, one.group): (one.within, one.compared, one.ceiling)
        for one in tallies(rows, apart)
    }
    assert found == {
        ("accuracy", "baselines"): (0.5, 1, 0.0),
        ("accuracy", "methods"): (1.0, 2, 1.0),
        ("accuracy", "gains"): (1.0, 1, 1.0),
        ("accuracy within 2", "baselines"): (0.5, 1, 0.0),
        ("accuracy within 2", "methods"): (1.0, 2, 1.0),
    }
    assert sum(one.compared for one in tallies(rows)) == 9
    # Three points are within the errors of a noisy cell, but not within two.
    noisy = Row("a", "SVM", "k", "accuracy", 80.0, 5.0, 2, runs=(80.0, 80.0), published=83.0)
    assert {one.metric: one.within for one in tallies([noisy])} == {
        "accuracy": 1.0,
        "accuracy within 2": 0.0,
    }


def test_zero_weights_are_counted_apart_and_near_ones_too():
    def weights(method, printed, ours):
        return [
            Row("a", method, "k", f"weight:{place}", one, 0.01, 10, published=given)
            for place, (given, one) in enumerate(zip(printed, ours, strict=True))
        ]

    # Allowed is 2 √2 0.01 / √10 = 0.009.
    rows = weights("SILP", (0.0, 0.4, 0.6), (0.001, 0.42, 0.605))
    found = {one.metric: (one.within, one.compared) for one in tallies(rows)}
    assert found == {"zero weights": (1.0, 1), "weights": (1.0, 2), "weights within 0.03": (2.0, 2)}
    # Of weights that sum to ten, 0.03 is 0.3.
    tens = weights("SM1", (0.0, 4.0, 6.0), (0.2, 4.2, 5.6))
    assert {one.metric: one.within for one in tallies(tens)} == {
        "zero weights": 0.0,
        "weights": 0.0,
        "weights within 0.03": 1.0,
    }


def test_tables_are_written_with_what_is_not_known_left_empty(tmp_path):
    write_rows(
        [Row("a, b", "SVM", "kL", "accuracy", 83.123456789, None, 1)], tmp_path / "table.csv"
    )
    (line,) = csv.DictReader((tmp_path / "table.csv").open(encoding="utf-8"))
    assert (line["dataset"], line["mean"], line["std"], line["within"]) == (
        "a, b",
        "83.1235",
        "",
        "",
    )
