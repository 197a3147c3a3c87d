"""What the study of digits computes by itself: views of an image, and how far probabilities are
off."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage


@pytest.fixture
def digits(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "studies"))
    for name in ("common", "digits"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import digits

    return digits


@pytest.fixture
def images():
    """Blobs of grey away from the rim."""
    rng = np.random.RandomState(0)
    found = np.zeros((3, 28, 28), dtype=np.float32)
    found[:, 8:20, 9:18] = rng.uniform(size=(3, 12, 9))
    found[1] = ndimage.affine_transform(found[1], [[1, 0], [0.4, 1]], offset=[0, -5.6], order=1)
    return found


def test_an_upright_image_is_the_one_of_an_affine_map(digits, images):
    y, x = np.mgrid[:28, :28]
    for image, got in zip(images, digits.upright(images), strict=True):
        cy, cx = np.average(y, weights=image), np.average(x, weights=image)
        slope = np.average((y - cy) * (x - cx), weights=image) / np.average(
            (y - cy) ** 2, weights=image
        )
        # Rows first, then columns: two maps, since each is interpolated.
        shifted = ndimage.affine_transform(
            image.astype(float), np.eye(2), offset=[cy - 13.5, 0], order=1
        )
        want = ndimage.affine_transform(
            shifted, [[1, 0], [slope, 1]], offset=[0, cx - 13.5 - 13.5 * slope], order=1
        )
        np.testing.assert_allclose(got, want, atol=1e-4)


def test_orientations_are_those_of_a_loop_over_pixels(digits, images):
    image = images[1].astype(float)
    down, right = np.gradient(image)
    found = np.zeros((8, 7, 7))
    for i, j in np.ndindex(image.shape):
        size, place = (
            np.hypot(down[i, j], right[i, j]),
            np.arctan2(down[i, j], right[i, j]) / (np.pi / 4) % 8,
        )
        turns = [max(0, 1 - min(abs(place - k), 8 - abs(place - k))) for k in range(8)]
        for a, b in np.ndindex(7, 7):
            near = max(0, 1 - abs(i - 4 * a - 1.5) / 4) * max(0, 1 - abs(j - 4 * b - 1.5) / 4)
            for k in range(8) if near else ():
                found[k, a, b] += size * turns[k] * near
    want = np.sqrt(found / found.sum()).ravel()
    np.testing.assert_allclose(digits.orientations(images)[1], want, atol=1e-3)


def test_the_calibration_error_is_that_of_a_loop_over_bins(digits):
    rng = np.random.RandomState(1)
    confidence = np.append(rng.uniform(0.1, 1, size=200), 1.0)
    right = rng.uniform(size=201) < confidence**2
    want = 0.0
    for low in np.arange(15) / 15:
        own = (confidence >= low) & (
            confidence < low + 1 / 15 if low < 14 / 15 else confidence <= 1
        )
        if own.any():
            want += own.mean() * abs(right[own].mean() - confidence[own].mean())
    assert digits.calibration_error(confidence, right) == pytest.approx(want)


def test_units_have_names_of_their_own_and_large_exact_fits_need_a_device(digits):
    units = digits.all_units()
    assert len({unit.name for unit in units}) == len(units)
    assert {unit.n for unit in units if unit.on_device} == {60_000, 32_561}
    assert {unit.way for unit in units if unit.on_device} == {"exact", "low rank on a GPU"}
