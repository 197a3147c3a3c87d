"""The designs: sizes, levels, and that they determine the polynomial they are meant for."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic.model_selection.response_surface import koshal_design


@pytest.mark.parametrize(("P", "size"), [(2, 3), (3, 6), (5, 15), (6, 21)])
def test_second_order_has_as_many_points_as_coefficients(P, size):
    design = koshal_design(P - 1)
    assert design.shape == (size, P - 1)
    assert len(np.unique(design, axis=0)) == size
    m, h = np.triu_indices(P - 1)
    system = np.hstack([np.ones((size, 1)), design, design[:, m] * design[:, h]])
    assert np.linalg.matrix_rank(system) == size == system.shape[1]


def test_three_kernels_as_printed_in_the_paper():
    # Gönen and Alpaydın (2011), section 3, rows k_2 and k_3 of the design, in units of the step
    printed = [[0, 1, -1, 0, 0, 1], [0, 0, 0, 1, -1, 1]]
    np.testing.assert_array_equal(koshal_design(2).T, printed)


def test_first_order_is_linear_in_the_factors():
    design = koshal_design(40, order=1)
    assert design.shape == (41, 40)
    assert np.linalg.matrix_rank(np.hstack([np.ones((41, 1)), design])) == 41


@pytest.mark.parametrize("arguments", [(0,), (2, 3)])
def test_nonsense_is_refused(arguments):
    with pytest.raises(ValueError, match=r"n_factors|order"):
        koshal_design(*arguments)
