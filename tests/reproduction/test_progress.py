"""The estimate of the time left."""

from __future__ import annotations

import pytest

from reproduction import Record, Unit
from reproduction.console import Estimate


def unit(method, replicate, cost):
    return Unit("toy", "set", method, "k", replicate, cost=cost)


def test_times_seen_replace_guesses_and_stretch_the_others():
    units = [unit("a", 0, 1.0), unit("a", 1, 1.0), unit("b", 0, 5.0), unit("b", 1, 5.0)]
    estimate = Estimate(units, n_workers=2)
    assert estimate.seconds_left is None
    assert estimate.work_left == 12
    estimate.add(Record(units[0], seconds=3.0))
    # The other `a` took 3 s; guesses were short by a factor of 3, so the two `b` are expected to
    # take 15 s each.
    assert estimate.work_left == pytest.approx(3 + 30)
    assert estimate.seconds_left == pytest.approx(33 / 2)
    estimate.add(Record(units[2], seconds=1.0))
    assert estimate.work_left == pytest.approx(3 + 1)
    estimate.add(Record(units[1], seconds=3.0))
    # One unit is left: the second worker cannot help.
    assert estimate.seconds_left == pytest.approx(1.0)
    estimate.add(Record(units[3], seconds=1.0))
    assert estimate.seconds_left == 0


def test_nothing_to_do_takes_no_time():
    assert Estimate([], 4).seconds_left == 0
