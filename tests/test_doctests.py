"""The examples in docstrings do what they say."""

from __future__ import annotations

import doctest
import re
import warnings
from dataclasses import is_dataclass
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from pkgutil import resolve_name

import pytest

TOP = Path(__file__).parents[1]
WITH_EXAMPLES = [
    ".".join(path.relative_to(home).with_suffix("").parts)
    for home, package in ((TOP / "src", "kernelmosaic"), (TOP, "reproduction"))
    for path in sorted((home / package).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.usefixtures("fixed_margins")
@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_of_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend(
        "Agg"
    )  # closes all figures, too: of many open ones there would be a warning
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an example that warns is a bad example
        warnings.filterwarnings(
            "ignore", category=DeprecationWarning, module="matplotlib|pyparsing"
        )  # of older ones
        result = doctest.testmod(
            import_module(name),
            optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS,
            raise_on_error=False,
        )
    pyplot.close("all")
    assert result.attempted > 0
    assert result.failed == 0


def test_what_the_reference_lists_has_an_example():
    """But for what functions return, which are tuples and dataclasses that do not draw, and for
    abstract classes."""
    page = (TOP / "docs" / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\. currentmodule:: (\S+)$(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names = [
        f"{home}.{name}"
        for home, rest in listed
        for name in re.findall(r"^   ([\w.]+)$", rest, re.MULTILINE)
    ]
    assert len(names) > 90
    missing = []
    for name in names:
        kind = resolve_name(name)
        returned = isinstance(kind, type) and (
            issubclass(kind, tuple) or (is_dataclass(kind) and not hasattr(kind, "plot"))
        )
        if ">>> " not in kind.__doc__ and not returned and not isabstract(kind):
            missing.append(name)
    assert missing == []
