"""Every number that a test draws, moved by one unit in the last place: a plugin, `-p
tests.last_place`.

Every second number moves away from zero, the others towards it. What is drawn by scikit-learn and
by the library from a seed of its own moves alike, so that a test that repeats a draw still sees the
same numbers.
"""

from __future__ import annotations

import numpy as np

#: Draws of real numbers; of integers and permutations there is nothing to move.
DRAWS = (
    *(
        "normal",
        "standard_normal",
        "randn",
        "uniform",
        "rand",
        "random",
        "random_sample",
        "exponential",
    ),
    *(
        "standard_exponential",
        "gamma",
        "standard_gamma",
        "standard_t",
        "laplace",
        "lognormal",
        "multivariate_normal",
    ),
)


def moved(drawn):
    """Return numbers one unit in the last place away."""
    numbers = np.asarray(drawn)
    if numbers.dtype.kind != "f":
        return drawn
    away = np.arange(numbers.size).reshape(numbers.shape) % 2 == 0
    there = np.nextafter(numbers, np.where(away, 2.0 * numbers, 0.0).astype(numbers.dtype))
    return there if isinstance(drawn, np.ndarray) else float(there)


def drawing(base, name):
    """Return a draw of `base` whose numbers are moved."""

    def draw(self, *args, **kwargs):
        return moved(getattr(base, name)(self, *args, **kwargs))

    return draw


class AnyState(type):
    """States that were made before the plugin, or read from a file, are states, too."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, PLAIN)


PLAIN, default_rng = np.random.RandomState, np.random.default_rng
RandomState = AnyState(
    "RandomState", (PLAIN,), {name: drawing(PLAIN, name) for name in DRAWS if hasattr(PLAIN, name)}
)
BASE = np.random.Generator
Generator = type(
    "Generator", (BASE,), {name: drawing(BASE, name) for name in DRAWS if hasattr(BASE, name)}
)


def moved_rng(seed=None):
    """Return a generator as NumPy does, whose numbers are moved."""
    return seed if isinstance(seed, BASE) else Generator(default_rng(seed).bit_generator)


np.random.RandomState, np.random.default_rng = RandomState, moved_rng
