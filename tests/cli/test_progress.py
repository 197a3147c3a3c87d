"""How far a fit is: a bar with the time left on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from tests.cli.tables import flowers, write

from kernelmosaic.cli import output
from kernelmosaic.cli.fit import train_table
from kernelmosaic.cli.requests import FitRequest


def test_lines_where_nobody_watches(capsys):
    times = iter([0.0, 4.0, 12.0, 15.0, 200.0])
    with output.progress(6, clock=lambda: next(times)) as advance:
        advance("cross-validation", 0)  # after 4 seconds: too early to speak
        advance("cross-validation", 1)
        advance("cross-validation", 2)
        advance("fitting to all rows", 5)
    assert capsys.readouterr().err.splitlines() == [
        "kernelmosaic: cross-validation: 1 of 6 steps after 12 s, about 60 s left",
        "kernelmosaic: fitting to all rows: 5 of 6 steps after 3 min, about 40 s left",
    ]


def test_a_bar_on_a_terminal():
    screen = io.StringIO()
    with output.progress(
        6, console=Console(file=screen, force_terminal=True, width=120)
    ) as advance:
        advance("cross-validation", 1)
        advance("cross-validation", 2)
    shown = screen.getvalue()
    assert "cross-validation" in shown
    assert "2/6" in shown
    assert "left:" in shown


@pytest.mark.parametrize(("method", "parts"), [("mkl", 3), ("bilinear", 3), ("rmkl", 3)])
def test_steps_are_the_parts_and_the_last_fit(tmp_path, method, parts):
    told = []

    class Told:
        def __init__(self, total):
            told.append(total)

        def __enter__(self):
            return lambda what, done: told.append((what, done))

        def __exit__(self, *error):
            pass

    path = write(flowers(), tmp_path / "t.csv")
    request = FitRequest(
        path, "kind", views=("s=shape_*:linear+gauss",), method=method, C=1.0, folds=parts
    )
    train_table(request, Told)
    total, *steps = told
    assert total == parts + 1
    assert [n for _, n in steps] == sorted(n for _, n in steps)
    assert steps[-1] == ("fitting to all rows", parts)
    assert any(what == "cross-validation" and n > 0 for what, n in steps)
