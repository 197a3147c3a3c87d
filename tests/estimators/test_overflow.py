"""Prices and kernels too large for double precision: an error that says so, never a certificate."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from kernelmosaic import (
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    LocalizedMKLRegressor,
    MKLClassifier,
    MKLRegressor,
    PosteriorMKLClassifier,
)
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.solvers.program import relative_gap

KERNELS = [Linear(), Gaussian(1.0)]
HUGE = [1e200 * Linear(), 1e200 * Gaussian(1.0)]


def samples():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((30, 2))
    return X, X[:, 0] + 0.3 * rng.standard_normal(30)


def fit_quietly(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's own, of the overflow
        return model.fit(X, y)


@pytest.mark.parametrize(
    ("primal", "dual"),
    [
        (np.nan, np.nan),
        (1.0, np.nan),
        (np.nan, 1.0),
        (np.inf, 1.0),
        (np.inf, np.inf),
        (1.0, -np.inf),
        (-np.inf, 1.0),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_bounds_that_are_not_finite_certify_nothing(primal, dual, noise):
    assert relative_gap(primal, dual, noise) == np.inf


@pytest.mark.parametrize(
    ("model", "classes"),
    [
        *(
            (MKLClassifier(KERNELS, C=1e200, solver=solver), 2)
            for solver in ("newton", "reduced_gradient", "silp")
        ),
        (MKLClassifier(KERNELS, C=1e200, slack=2), 2),
        (MKLClassifier(KERNELS, C=1e200, norm=2), 2),
        (MKLClassifier(KERNELS, C=1e200, weights="uniform"), 2),
        (MKLClassifier(KERNELS, C=1e200, approximation="nystroem", rank=10, random_state=0), 2),
        (MKLRegressor(KERNELS, C=1e200), None),
        (LocalizedMKLClassifier(KERNELS, C=1e200, n_init=1), 2),
        (LocalizedMKLRegressor(KERNELS, C=1e200, n_init=1), None),
        (PosteriorMKLClassifier(KERNELS, C=1e200), 2),
        (DiscriminantMKLClassifier(HUGE, normalize=None), 3),
    ],
    ids=lambda value: None if value is None or isinstance(value, int) else type(value).__name__,
)
def test_overflow_is_refused_with_its_remedy(model, classes):
    X, t = samples()
    y = t if classes is None else np.digitize(t, [0.0] if classes == 2 else [-0.5, 0.5])
    with pytest.raises(ValueError, match=r"(objective is|K holds) .*normalize='trace'"):
        fit_quietly(model, X, y)


def test_a_machine_lost_in_rounding_ends_and_says_so():
    X, t = samples()
    model = BilinearMKLClassifier(HUGE, normalize=None)
    with pytest.warns(ConvergenceWarning, match="relative duality gap"):
        model.fit(X, np.digitize(t, [-0.5, 0.5]))
    assert np.isfinite(model.objective_)
    assert model.duality_gap_ > model.tol
