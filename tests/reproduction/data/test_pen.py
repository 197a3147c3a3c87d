"""Drawn traces against a loop over all pixels and all fitted of the path, and against shapes known
beforehand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from reproduction.data._numba_pen import render_pen


def by_hand(trace, stroke, size, pen):
    """Share of a fine grid's centres nearer to the path than half the pen, one after the other."""
    fine = -(-64 // size)
    side = size * fine
    low, high = trace.min(axis=0), trace.max(axis=0)
    extent = max(high - low)
    scale = (1 - pen) * side / extent if extent > 0 else 0.0
    # Complex numbers for points: a product of one by the conjugate of another has their inner
    # product as its real part.
    placed = [complex(x, y) for x, y in side / 2 + scale * (trace - (low + high) / 2) * [1, -1]]
    lines = zip(placed[:-1], placed[1:], stroke[:-1], stroke[1:], strict=True)
    segments = [(a, b - a) for a, b, of_a, of_b in lines if of_a == of_b and a != b]
    image = np.zeros((size, size))
    for row in range(side):
        for column in range(side):
            centre = complex(column + 0.5, row + 0.5)
            nearest = min(abs(centre - point) for point in placed)
            for start, along in segments:
                share = ((centre - start) * along.conjugate()).real / abs(along) ** 2
                nearest = min(nearest, abs(centre - start - min(max(share, 0.0), 1.0) * along))
            image[row // fine, column // fine] += nearest <= pen * side / 2
    return image.ravel() / fine**2


@pytest.mark.parametrize("size", [7, 16])
def test_against_a_loop(size):
    rng = np.random.RandomState(size)
    points = rng.randint(-200, 300, (11, 2))
    stroke = np.array([0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 1])
    offsets = [0, 6, 11]
    drawn = render_pen(points, offsets, stroke, size, pen=0.1)
    for image, a, b in zip(drawn, offsets[:-1], offsets[1:], strict=True):
        expected = by_hand(points[a:b].astype(float), stroke[a:b], size, 0.1)
        # A centre just at the pen's edge may fall on either side.
        assert_allclose(image, expected, atol=1.5 / (-(-64 // size)) ** 2)
        assert abs(image.sum() - expected.sum()) < 0.02


def test_a_level_line_fills_the_middle_rows():
    image = render_pen([[0, 5], [100, 5]], [0, 2], [0, 0], 8, pen=1 / 4).reshape(8, 8)
    assert_array_equal(image[[0, 1, 2, 5, 6, 7]], 0)
    assert_array_equal(image[3:5, 1:7], 1)
    # The ends are round: less than the corner pixels, more than half of them.
    assert ((image[3:5, [0, 7]] > 0.6) & (image[3:5, [0, 7]] < 1)).all()


def test_a_dot_is_a_disc_in_the_middle():
    image = render_pen([[17, -4]], [0, 1], [0], 8, pen=1 / 4).reshape(8, 8)
    assert_array_equal(image, image.T)
    assert_array_equal(image, image[::-1])
    # Eight fine pixels to a coarse one, and a radius of eight of them.
    inside = sum((i + 0.5) ** 2 + (j + 0.5) ** 2 <= 64 for i in range(-9, 9) for j in range(-9, 9))
    assert image.sum() == inside / 64
    assert abs(image.sum() - np.pi) < 0.05 * np.pi


def test_y_is_upwards():
    # A stroke up the left side, then along the top.
    image = render_pen([[0, 0], [0, 10], [10, 10]], [0, 3], [0, 0, 0], 4).reshape(4, 4)
    assert image[0].min() > 0
    assert image[:, 0].min() > 0
    assert_array_equal(image[1:, 1:], 0)


def test_place_and_size_do_not_matter_and_proportions_do():
    rng = np.random.RandomState(1)
    points, offsets, stroke = rng.randint(0, 100, (20, 2)), [0, 12, 20], np.repeat([0, 1], 10)
    drawn = render_pen(points, offsets, stroke, 8)
    assert_array_equal(drawn, render_pen(points + np.array([1000, -37]), offsets, stroke, 8))
    assert_array_equal(drawn, render_pen(points * 4, offsets, stroke, 8))
    assert not np.allclose(drawn, render_pen(points * [1, 4], offsets, stroke, 8))


def test_the_pen_is_lifted_between_strokes_and_examples():
    points = [[0, 0], [0, 10], [10, 0], [10, 10]]
    apart = render_pen(points, [0, 4], [0, 0, 1, 1], 8).reshape(8, 8)
    joined = render_pen(points, [0, 4], [0, 0, 0, 0], 8).reshape(8, 8)
    assert_array_equal(apart[:, 2:6], 0)
    assert joined[:, 2:6].max() > 0
    two = render_pen(points, [0, 2, 4], [0, 0, 0, 0], 8)
    assert_array_equal(two[0], two[1])
    assert_array_equal(two.reshape(2, 8, 8)[:, :, :2], 0)


def test_coarse_images_are_means_of_fine_ones():
    points = np.random.RandomState(2).randint(0, 100, (30, 2))
    fine = render_pen(points, [0, 30], np.zeros(30), 16).reshape(4, 4, 4, 4)
    assert_allclose(
        fine.mean(axis=(1, 3)).ravel(), render_pen(points, [0, 30], np.zeros(30), 4)[0], atol=1e-12
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 0}, "size=0"),
        ({"pen": 1.5}, "pen=1.5"),
        ({"points": [[0, 1, 2]]}, r"points has shape \(1, 3\)"),
        ({"points": [[0, np.nan], [1, 1]]}, "finite"),
        ({"offsets": [0, 1]}, r"offsets=\[0, 1\].*2 points"),
        ({"offsets": [0, 2, 2]}, "offsets"),
        ({"stroke": [0]}, r"stroke has shape \(1,\)"),
    ],
    ids=["size", "pen", "shape", "nan", "short offsets", "empty example", "stroke"],
)
def test_what_cannot_be_drawn(changes, message):
    given = {"points": [[0, 0], [1, 1]], "offsets": [0, 2], "stroke": [0, 0], "size": 4} | changes
    with pytest.raises(ValueError, match=message):
        render_pen(**given)
