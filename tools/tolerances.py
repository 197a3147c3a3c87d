"""How much of its tolerance every assertion of the tests uses, as a plugin of pytest.

python -m pytest -p tools.tolerances -o enable_assertion_pass_hook=true tests/solvers

`assert_allclose`, `allclose`, `pytest.approx` and plain comparisons with a number below 1e-2 are
measured; the summary lists the assertions that come closest to failing, with the test where they
do, down to `TOLERANCES_ABOVE` (0.5). Plain comparisons need the option; a `__pycache__` of tests
that ran without it hides them (set PYTHONPYCACHEPREFIX).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from linecache import getline
from pathlib import Path
from typing import Any

import numpy as np
import pytest

#: What `pytest.approx` makes of a number, and of every number of an array, a sequence or a mapping.
ApproxScalar: Any = type(pytest.approx(1.0))
#: The largest share so far in the test that runs, of every line; and in all tests, with the test,
#: where it is reported.
used: dict[str, float] = {}
reported: dict[str, tuple[float, str]] = {}

NUMBER = r"(?:np\.float64\()?([-+.\de]+)\)?"
COMPARED = re.compile(rf"{NUMBER} <=? {NUMBER}$")


def keep(share: float, path: str, line: int) -> None:
    """Keep the largest share of a line; one above 1 makes a test fail, or is of a difference that
    it expects."""
    if share <= 1.0:
        place = f"{path}:{line}"
        used[place] = max(share, used.get(place, 0.0))


def note(error: Any, allowed: Any) -> None:
    """Note the largest share of what is allowed that an error takes, at the line of the tests that
    calls."""
    with np.errstate(all="ignore"):
        shares = np.where(np.equal(error, 0), 0.0, np.divide(error, allowed))
    share = float(np.max(shares, initial=0.0, where=np.isfinite(shares)))
    frame = sys._getframe(1)
    while frame.f_back and "tests" not in Path(frame.f_code.co_filename).parts:
        frame = frame.f_back
    keep(share, frame.f_code.co_filename, frame.f_lineno)


def measured(compare: Callable[..., Any]) -> Callable[..., Any]:
    """Return a comparison of arrays by `rtol` and `atol`, which are noted."""

    def noted(
        actual: Any,
        desired: Any,
        rtol: float | None = None,
        atol: float | None = None,
        **other: Any,
    ) -> Any:
        in_testing = compare.__name__ == "assert_allclose"
        rtol = (1e-7 if in_testing else 1e-5) if rtol is None else rtol
        atol = (0.0 if in_testing else 1e-8) if atol is None else atol
        try:
            x, y = np.asarray(actual, dtype=float), np.asarray(desired, dtype=float)
            note(np.abs(x - y), atol + rtol * np.abs(y))
        except (TypeError, ValueError):
            pass  # not of numbers, or of different shapes: the comparison itself says so
        return compare(actual, desired, rtol=rtol, atol=atol, **other)

    return noted


def equal(self: Any, actual: Any, compare: Callable[..., bool] = ApproxScalar.__eq__) -> bool:
    """Compare as `pytest.approx` does."""
    if isinstance(actual, (int, float, np.floating)) and isinstance(
        self.expected, (int, float, np.floating)
    ):
        note(abs(actual - self.expected), self.tolerance)
    return compare(self, actual)


def pytest_configure() -> None:
    """Replace the comparisons before the tests import them."""
    np.testing.assert_allclose = measured(np.testing.assert_allclose)
    np.allclose = measured(np.allclose)
    ApproxScalar.__eq__ = equal


def pytest_assertion_pass(item: pytest.Item, lineno: int, expl: str) -> None:
    """Take the two sides of a comparison with a small number from what pytest would print."""
    if (sides := COMPARED.match(expl.partition("\n")[0])) is None:
        return
    try:
        error, allowed = map(float, sides.groups())
    except ValueError:
        return
    if 0.0 < allowed < 1e-2 and error >= 0.0:
        keep(error / allowed, str(item.path), lineno)


def pytest_runtest_setup() -> None:
    """Forget the test before."""
    used.clear()


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Hand the shares to whoever reports, which may be another process."""
    item.user_properties.append(("tolerances", dict(used)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect what the tests hand over."""
    shares: Any = dict(report.user_properties).get("tolerances", {})
    for place, share in shares.items():
        reported[place] = max((share, report.nodeid), reported.get(place, (0.0, "")))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the assertions that come closest to failing."""
    terminalreporter.section("shares of tolerances used")
    above = float(os.environ.get("TOLERANCES_ABOVE", "0.5"))
    for place, (share, test) in sorted(reported.items(), key=lambda entry: -entry[1][0]):
        if share >= above:
            path, _, line = place.rpartition(":")
            terminalreporter.write_line(
                f"{share:.2f}  {test}, line {line}: {getline(path, int(line)).strip()}"
            )
