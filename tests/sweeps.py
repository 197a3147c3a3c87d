"""Sweeps over many cases, of which `make test` has one of each kind and `make campaign` all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], now: Collection[Any]) -> list[Any]:
    """Return all cases, with those that are not among `now` left to the campaign; a tuple holds
    several arguments."""
    cases = list(cases)
    unknown = [case for case in now if case not in cases]
    assert unknown == [], f"no such cases: {unknown}"
    return [case if case in now else later(case) for case in cases]


def later(case: Any) -> Any:
    """Return a case that only the campaign runs."""
    arguments = case if isinstance(case, tuple) else (case,)
    return pytest.param(*arguments, marks=pytest.mark.campaign)
