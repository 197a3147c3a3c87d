"""Columns of very different scale: one warning that names the two and the remedy, and none where
there is no cause."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import (
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
    PosteriorMKLClassifier,
)
from kernelmosaic.kernels import Correlation, Gaussian, Linear, Polynomial, Precomputed, per_column

rng = np.random.RandomState(0)
PLAIN = rng.randn(40, 4)
Y = (PLAIN[:, 0] > 0).astype(int)
UNLIKE = PLAIN * [1.0, 300.0, 1.0, 0.5]


def heard(estimator, X, y=Y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clone(estimator).fit(X, y)
    return [one for one in caught if "StandardScaler" in str(one.message)]


@pytest.mark.parametrize(
    "estimator",
    [
        MKLClassifier(),
        MKLClassifier(approximation="nystroem", rank=5, random_state=0),
        MKLClassifier([Linear() + Gaussian()], weights="uniform"),
        MKLClassifier([Linear() * Gaussian()], weights="uniform"),
        MKLRegressor(Gaussian()),
        MKLOneClass(Polynomial()),
        BilinearMKLClassifier(Linear()),
        PosteriorMKLClassifier(Linear()),
        DiscriminantMKLClassifier(Linear()),
        LocalizedMKLClassifier([Linear(), Gaussian()], n_init=1, max_iter=2),
    ],
    ids=lambda one: f"{type(one).__name__}-{getattr(one, 'approximation', None)}",
)
def test_every_estimator_warns_once_and_names_the_two(estimator):
    (warning,) = heard(estimator, pd.DataFrame(UNLIKE, columns=list("abcd")))
    assert warning.category is UserWarning
    assert "columns 'b' and 'd'" in str(warning.message)
    # Where fit is called, not somewhere inside nor further out.
    assert (warning.filename, warning.lineno) == (__file__, heard.__code__.co_firstlineno + 3)
    assert heard(estimator, PLAIN) == []


def test_columns_without_names_are_numbered_as_in_the_table():
    (warning,) = heard(
        MKLClassifier([("a", Gaussian(), [3, 1]), ("b", Gaussian(), [0, 2])]), UNLIKE
    )
    assert "columns 1 and 3, which kernel 'a' reads" in str(warning.message)


def test_wine_and_its_remedy():
    X, y = load_wine(return_X_y=True, as_frame=True)
    (warning,) = heard(MKLClassifier(Gaussian()), X, y)
    assert "'proline' and 'nonflavanoid_phenols'" in str(warning.message)
    assert heard(make_pipeline(StandardScaler(), MKLClassifier(Gaussian())), X, y) == []


@pytest.mark.parametrize(
    ("kernels", "X"),
    [
        ([("large", Linear(), [1]), ("rest", Linear(), [0, 2, 3])], UNLIKE),
        (per_column(Gaussian()), UNLIKE),
        (Correlation(), UNLIKE),
        (Precomputed(PLAIN @ PLAIN.T), np.arange(40)[:, np.newaxis]),
        (Linear(), sparse.csr_array(UNLIKE)),
        (Linear(), np.column_stack([PLAIN, 1e6 * np.ones(40)])),
        # A rare indicator.
        (Linear(), np.column_stack([100 * PLAIN, np.arange(40) == 7])),
        (Linear(), PLAIN * [1.0, 90.0, 1.0, 1.0]),
    ],
    ids=[
        "views",
        "per-column",
        "correlation",
        "precomputed",
        "sparse",
        "constant",
        "indicator",
        "within",
    ],
)
def test_no_cause_no_warning(kernels, X):
    assert heard(MKLClassifier(kernels), X) == []


def test_rarely_lit_pixels_are_no_other_scale():
    X, y = load_digits(n_class=2, return_X_y=True)
    deviations = X.std(axis=0)
    assert deviations.max() > 100 * deviations[deviations > 0].min()
    assert heard(MKLClassifier(Linear(), weights="uniform"), X, y) == []
