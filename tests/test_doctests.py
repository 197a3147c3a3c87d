"""The examples in docstrings do what they say."""

from __future__ import annotations

import doctest
import warnings
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
WITH_EXAMPLES = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


@pytest.mark.parametrize("name", [module_name(path) for path in WITH_EXAMPLES])
def test_examples_of_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an example that warns is a bad example
        result = doctest.testmod(
            import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, raise_on_error=False
        )
    assert result.attempted > 0
    assert result.failed == 0


def test_there_are_examples():
    assert len(WITH_EXAMPLES) > 10
