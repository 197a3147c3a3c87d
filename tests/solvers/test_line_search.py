"""Steps of sufficient decrease, on values whose lowest point is known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from kernelmosaic.solvers.line_search import Trials, line_search


def searched(curve, slope, **options):
    """Return what is found along `curve` from 0, and the sizes that were tried."""
    tried = []

    def evaluate(size):
        tried.append(size)
        return SimpleNamespace(upper=curve(size))

    return line_search(
        evaluate, SimpleNamespace(upper=curve(0.0)), slope, Trials(20, **options)
    ), tried


def test_a_step_is_shortened_until_the_value_falls():
    found, tried = searched(lambda size: (size - 0.1) ** 2, -0.2)
    assert found[0] == pytest.approx(0.1)  # the parabola is met at once
    assert len(tried) == 2


@pytest.mark.parametrize("slope", [0.0, 3e-16, 1e-14])
def test_a_slope_lost_in_rounding_leaves_the_whole_step_to_be_tried(slope):
    found, tried = searched(lambda size: 1.0 - 1e-9 * size, slope)
    assert found[0] == 1.0
    assert tried == [1.0]
    # Nothing is kept that does not lower the value, and no shorter step is tried: it would show
    # less.
    for curve in (lambda size: 1.0, lambda size: 1.0 + 1e-9 * size):
        found, tried = searched(curve, slope)
        assert found is None
        assert tried == [1.0]


@pytest.mark.parametrize("slope", [1e-12, np.nan])
def test_a_line_that_rises_is_not_searched(slope):
    assert searched(lambda size: 1.0 - size, slope) == (None, [])
