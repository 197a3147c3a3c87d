"""The tutorial is typed in from top to bottom; what is printed is what it says.

Words must be the same, and numbers, too, but for 8 % and a unit of the last place that is printed:
last digits depend on rounding. Numbers of the clock, of versions and of how far a solver went are
any.
"""

from __future__ import annotations

import contextlib
import doctest
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmosaic.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(console|python|text|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
ANY = r"[-+]?\d[-\d.,:T+e]*(?<![.,:])"  # dates and versions, too
FRAME = re.compile(r"[\u2500-\u257f]")


#: What stands in the lines whose numbers depend on the machine.
VARYING = ("seconds", "written ", "slope", "certified gap", "support vectors", "iterations")


def pattern(said: str) -> re.Pattern[str]:
    """What a line may look like: any numbers in groups for numbers, anything for an ellipsis."""
    parts = []
    number = ANY if any(word in said for word in VARYING) else NUMBER
    for token in re.split(rf"(…|(?<![\w.]){number})", " ".join(FRAME.sub(" ", said).split())):
        is_number = re.fullmatch(number, token)
        parts.append(".*" if token == "…" else f"({number})" if is_number else re.escape(token))
    return re.compile("".join(parts))


def is_near(said: str, printed: str) -> bool:
    """Whether two numbers are the same but for last digits; whole numbers are the same."""
    if said == printed:
        return True
    one, other = float(said), float(printed)
    decimals = len(said.partition("e")[0].partition(".")[2])
    scale = 10.0 ** (int(said.partition("e")[2] or 0) - decimals)
    return decimals > 0 and abs(one - other) <= 0.08 * abs(one) + 1.01 * scale


def agree(said: str, printed: str) -> None:
    """Compare line by line; a line with an ellipsis alone stands for any others."""
    lines = [
        line
        for line in (" ".join(FRAME.sub(" ", one).split()) for one in printed.splitlines())
        if line
    ]
    for line in filter(lambda one: FRAME.sub("", one).strip(), said.splitlines()):
        if line.strip() == "…":
            return
        assert lines, f"{line!r} was not printed"
        form = pattern(line)
        found = form.fullmatch(lines[0])
        assert found, f"{line!r} was printed as {lines[0]!r}"
        if not any(word in line for word in VARYING):
            written = form.fullmatch(" ".join(FRAME.sub(" ", line).split()).replace("…", ""))
            assert written is not None
            for one, other in zip(written.groups(), found.groups(), strict=True):
                assert is_near(one, other), (
                    f"{line!r} was printed as {lines[0]!r}: {one} is {other}"
                )
        lines.pop(0)
    assert lines == []


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with the output below it."""
    parts = re.split(r"^\$ ((?:.*\\\n)*.*)\n", block, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def typed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command, ours in this process, and return what a terminal would show."""
    if command.startswith("python "):  # a script, which needs no interpreter of its own
        runpy.run_path(command.removeprefix("python "), run_name="__main__")
        return capsys.readouterr().out
    if not command.startswith("kernelmosaic "):
        return subprocess.run(
            command, shell=True, capture_output=True, text=True, check=True
        ).stdout
    with contextlib.redirect_stderr(sys.stdout):
        code = main(shlex.split(command.replace("\\\n", " "))[1:])
    # A machine that takes more than ten seconds says how far it is.
    out = re.sub(
        r"^kernelmosaic: .*: \d+ of \d+ steps after .*\n",
        "",
        capsys.readouterr().out,
        flags=re.MULTILINE,
    )
    assert code == (2 if out.startswith("kernelmosaic: ") and len(out.splitlines()) == 1 else 0)
    return out


@pytest.mark.usefixtures("fixed_margins")
@pytest.mark.skipif(
    shutil.which("cut") is None or shutil.which("sed") is None, reason="the page uses cut and sed"
)
def test_the_page_is_what_happens(tmp_path, monkeypatch, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    script, *rest = BLOCK.findall(PAGE.read_text(encoding="utf-8").split("## A table", 1)[1])
    (tmp_path / "cells.py").write_text(script[1], encoding="utf-8")
    names: dict[str, object] = {}
    mistakes = 0
    for language, block in rest:
        if language == "python":
            exec(compile(block, PAGE.name, "exec"), names)
        elif language == "text":
            agree(block, capsys.readouterr().out)
        elif language == "pycon":
            test = doctest.DocTestParser().get_doctest(block, names, PAGE.name, PAGE.name, 0)
            mistakes += len(test.examples)
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.DocTestRunner(optionflags=flags).run(test).failed == 0, (
                capsys.readouterr().out
            )
        else:
            for command, said in commands(block):
                agree(said, printed := typed(command, capsys))
                mistakes += printed.startswith("kernelmosaic: ") and len(printed.splitlines()) == 1
    assert mistakes >= 8
    assert {"report.html", "why.html", "weights.png", "tumours.skops"} <= {
        path.name for path in tmp_path.iterdir()
    }
    pyplot.close("all")


def test_the_comparison_itself_sees_what_it_must():
    agree(
        "│ weight │ 1.5243 │ 69.9 │\n└──┘\naccuracy 98.0 % ± 0.8 %\n",
        "weight 1.5257 70.0\naccuracy 97.9 % ± 0.8 %",
    )
    agree("columns are 'a', …\n", "columns are 'a', 'b', 'c'.")
    agree(
        "seconds in all 3.1\nwritten on 2026-01-01T00:00:00+00:00",
        "seconds in all 900\nwritten on 2031-02-03",
    )
    agree("0.0048424021,1.2e-05", "0.0048424022,1.25e-05")
    for said, printed in [
        ("a 1", "a one"),
        ("a 1", "b 1"),
        ("a\nb", "a"),
        ("a", "a\nb"),
        ("accuracy 98.0 %", "accuracy 60.0 %"),
        ("the best of 20 from 0.01 to 1000", "the best of 11 from 0.01 to 1000"),
        ("weight 0.8989", "weight 0.5989"),
        ("C = 4.28", "C = 1.28"),
        ("{'mean': 0.1, 'worst': 0.9}", "{'mean': 0.3, 'worst': 0.7}"),
        ("67 (22.3 % of the samples)", "67 (32.3 % of the samples)"),
        ("mean 0.101 0.7 0 0.295", "mean 0.101 0.7 0 0.495"),
    ]:
        with pytest.raises(AssertionError):
            agree(said, printed)


def test_a_wrong_number_on_the_page_is_found():
    """Every number in the output of the page's commands, made wrong, is found, but for those that
    vary."""
    found = 0
    for _, block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        for line in block.splitlines():
            if (
                FRAME.search(line)
                and re.search(NUMBER, line)
                and not any(word in line for word in VARYING)
            ):
                wrong = re.sub(NUMBER, lambda number: "7" + number[0], line, count=1)
                with pytest.raises(AssertionError):
                    agree(wrong, line)
                found += 1
    assert found > 15
