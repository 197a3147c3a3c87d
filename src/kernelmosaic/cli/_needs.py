"""Packages that are not always there."""

from __future__ import annotations

from importlib.util import find_spec


def need(package: str, extra: str) -> None:
    """Raise naming the extra that brings a package, if it is not there."""
    if find_spec(package) is None:
        raise ImportError(f'This command needs {package}: pip install "kernelmosaic[{extra}]"')
