"""The tutorial is typed in from top to bottom; what is printed is what it says.

Words must be the same. Numbers must be there, and where they are percentages of accuracy about the same: others depend
on rounding, the clock or the versions of packages.
"""

from __future__ import annotations

import contextlib
import doctest
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmosaic.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(console|python|text|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = r"[-+]?\d[-\d.,:T+e]*(?<![.,:])"
FRAME = re.compile(r"[\u2500-\u257f]")


def pattern(said: str) -> re.Pattern[str]:
    """What a line may look like: any numbers for numbers, percentages in groups, anything for an ellipsis."""
    parts = []
    for token in re.split(rf"(…|(?<![\w.]){NUMBER}(?: %)?)", " ".join(FRAME.sub(" ", said).split())):
        if token == "…":
            parts.append(".*")
        elif re.fullmatch(rf"{NUMBER} %", token):
            parts.append(rf"({NUMBER}) %")
        else:
            parts.append(NUMBER if re.fullmatch(NUMBER, token) else re.escape(token))
    return re.compile("".join(parts))


def agree(said: str, printed: str) -> None:
    """Compare line by line; a line with an ellipsis alone stands for any others."""
    lines = [line for line in (" ".join(FRAME.sub(" ", one).split()) for one in printed.splitlines()) if line]
    for line in filter(lambda one: FRAME.sub("", one).strip(), said.splitlines()):
        if line.strip() == "…":
            return
        assert lines, f"{line!r} was not printed"
        found = pattern(line).fullmatch(lines[0])
        assert found, f"{line!r} was printed as {lines[0]!r}"
        shares = [float(share.removesuffix(" %")) for share in re.findall(r"[\d.]+ %", line)]
        if "accuracy" in line or re.fullmatch(r"[\d.]+ %", line):
            assert [float(group) for group in found.groups()] == pytest.approx(shares, abs=1.5)
        lines.pop(0)
    assert lines == []


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with the output below it."""
    parts = re.split(r"^\$ ((?:.*\\\n)*.*)\n", block, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def typed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command, ours in this process, and return what a terminal would show."""
    if not command.startswith("kernelmosaic "):
        shell = command.replace("python ", f"{shlex.quote(sys.executable)} ", 1)
        return subprocess.run(shell, shell=True, capture_output=True, text=True, check=True).stdout
    with contextlib.redirect_stderr(sys.stdout):
        code = main(shlex.split(command.replace("\\\n", " "))[1:])
    out = capsys.readouterr().out
    assert code == (2 if out.startswith("kernelmosaic: ") and len(out.splitlines()) == 1 else 0)
    return out


@pytest.mark.skipif(shutil.which("cut") is None or shutil.which("sed") is None, reason="the page uses cut and sed")
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
            assert doctest.DocTestRunner(optionflags=flags).run(test).failed == 0, capsys.readouterr().out
        else:
            for command, said in commands(block):
                agree(said, printed := typed(command, capsys))
                mistakes += printed.startswith("kernelmosaic: ") and len(printed.splitlines()) == 1
    assert mistakes >= 8
    assert {"report.html", "why.html", "weights.png", "tumours.skops"} <= {path.name for path in tmp_path.iterdir()}
    pyplot.close("all")


def test_the_comparison_itself_sees_what_it_must():
    agree(
        "│ C │ 10 (the best of 0.01, 100) │\n└──┘\naccuracy 98.0 % ± 0.2 %\n",
        "C 1 (the best of 0.1, 10)\naccuracy 97.5 % ± 1 %",
    )
    agree("columns are 'a', …\n", "columns are 'a', 'b', 'c'.")
    for said, printed in [
        ("a 1", "a one"),
        ("a 1", "b 1"),
        ("a\nb", "a"),
        ("a", "a\nb"),
        ("accuracy 98 %", "accuracy 60 %"),
    ]:
        with pytest.raises(AssertionError):
            agree(said, printed)
