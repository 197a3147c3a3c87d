"""Log-Gabor filters: waves that they are made for, a transform by loops, views for an estimator."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic import MKLClassifier
from reproduction.data import log_gabor


def test_a_filter_sees_the_wave_it_is_made_for():
    place = np.arange(48)
    waves = np.cos(2 * np.pi * np.array(np.meshgrid(place, place)) / 6)  # across, then down
    views = log_gabor(waves)
    names = list(views)
    seen = np.array([view.mean(axis=1) for view in views.values()])
    assert [names[k] for k in seen.argmax(axis=0)] == ["6 px 0°", "6 px 90°"]
    assert_allclose(list(log_gabor(np.ones((1, 16, 16))).values()), 0.0, atol=1e-12)


def test_amplitudes_are_those_of_a_transform_by_loops():
    image = np.random.RandomState(0).standard_normal((5, 4))
    height, width = image.shape
    out = np.zeros((height, width), dtype=complex)
    for u, v in np.ndindex(height, width):
        # The frequencies that a discrete transform stands for, down and across.
        down = (u if u < (height + 1) // 2 else u - height) / height
        across = (v if v < (width + 1) // 2 else v - width) / width
        if down == across == 0:
            continue
        part = sum(
            image[i, j] * np.exp(-2j * np.pi * (u * i / height + v * j / width))
            for i, j in np.ndindex(height, width)
        )
        turn = np.arctan2(-down, across) - np.pi / 2
        turn -= 2 * np.pi * np.round(turn / (2 * np.pi))
        ring = np.exp(-(np.log(np.hypot(down, across) * 4.0) ** 2) / (2 * np.log(0.6) ** 2))
        wedge = np.exp(-(turn**2) / (2 * (np.pi / 2 / 1.2) ** 2))
        for i, j in np.ndindex(height, width):
            out[i, j] += (
                part
                * ring
                * wedge
                * np.exp(2j * np.pi * (u * i / height + v * j / width))
                / (height * width)
            )
    views = log_gabor(image[np.newaxis], 2, 2, wavelength=2.0, bandwidth=0.6, overlap=1.2)
    assert list(views) == ["2 px 0°", "2 px 90°", "4 px 0°", "4 px 90°"]
    assert_allclose(views["4 px 90°"], np.abs(out).reshape(1, -1), atol=1e-12)


def test_views_of_a_fit():
    rng, place = np.random.RandomState(0), np.arange(12)
    y = np.repeat([0, 1], 20)
    stripes = [
        np.cos(2 * np.pi * (place if one else place[:, np.newaxis]) / 6 + 6 * rng.rand())
        for one in y
    ]
    images = np.array([s + np.zeros((12, 12)) for s in stripes]) + 2 * rng.standard_normal(
        (40, 12, 12)
    )
    views = log_gabor(images, n_scales=2, n_orientations=2)
    model = MKLClassifier().fit(views, y)
    assert set(model.view_weights_) == set(views)
    assert (
        model.view_weights_["3 px 0°"]
        < model.view_weights_["6 px 0°"] + model.view_weights_["6 px 90°"]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"images": np.ones((4, 4))},
            r"images have the shape \(4, 4\): give finite numbers of shape",
        ),
        ({"images": np.full((1, 4, 4), np.nan)}, "give finite numbers"),
        ({"bandwidth": 1.0}, r"bandwidth=1\.0.*: all must be positive, and bandwidth below one"),
        ({"n_scales": 0}, "n_scales=0"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        log_gabor(**{"images": np.ones((1, 4, 4)), **arguments})
