"""The same numbers in rows, in columns or in a data frame: the same fit, to the last bit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from kernelmosaic import (
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
)
from kernelmosaic.kernels import Gaussian, Laplacian, Linear, Polynomial

RANDOM = np.random.RandomState(3)
X = RANDOM.normal(size=(40, 7)) * [1, 3, 1, 0.2, 1, 1, 2]
CLASSES = np.digitize(X[:, 0] * X[:, 1] + X[:, 4], [-1.0, 1.0])
KERNELS = [Linear(), Polynomial(2), Gaussian(factor=0.3), Gaussian(), Laplacian()]
FOURIER = [Gaussian(factor=0.3), Gaussian(), Laplacian()]
COLUMNS = [("left", Gaussian(), [0, 1, 2, 3]), ("right", Linear(), [3, 4, 5, 6])]
#: Bits are equal after the first steps or never.
MODELS = [
    *(
        MKLClassifier(KERNELS, multi_class=kind, tol=0.05)
        for kind in ("ovr", "ovr-shared", "joint")
    ),
    MKLRegressor(KERNELS, norm=2, tol=0.05),
    MKLOneClass(KERNELS, tol=0.05),
    DiscriminantMKLClassifier(KERNELS, tol=0.05),
    LocalizedMKLClassifier(KERNELS, n_init=1, max_iter=1, random_state=0),
    MKLClassifierCV(KERNELS[2:4], Cs=[1.0], norms=(1,), cv=2, tol=0.05),
]
APPROXIMATIONS = {
    "exact": {},
    "nystroem": {"rank": 15},
    "fourier": {"rank": 16, "kernels": FOURIER},
}


def fitted_values(model, samples, new):
    y = X[:, 0] if isinstance(model, MKLRegressor) else CLASSES
    model = clone(model)
    model.fit(samples) if isinstance(model, MKLOneClass) else model.fit(samples, y)
    decide = model.predict if isinstance(model, MKLRegressor) else model.decision_function
    return model.weights_, model.dual_coef_, decide(new)


@pytest.mark.filterwarnings("ignore:Localized:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("model", "approximation"),
    [
        *((model, "exact") for model in MODELS),
        *((model, ("nystroem", "fourier")[i % 2]) for i, model in enumerate(MODELS)),
    ],
    ids=lambda value: (
        value
        if isinstance(value, str)
        else f"{type(value).__name__} {getattr(value, 'multi_class', '')}"
    ),
)
def test_the_order_in_memory_does_not_matter(model, approximation):
    options = APPROXIMATIONS[approximation]
    if options:
        options = {"approximation": approximation, "random_state": 0} | options
    model = clone(model).set_params(**options)
    expected = fitted_values(model, X, X[::2])
    strided = np.repeat(X, 2, axis=1)[:, ::2]
    # Samples become rows in one place, before they are approximated. Frames hold columns; see
    # below.
    for samples in (np.asfortranarray(X), strided)[: 2 if approximation == "exact" else 1]:
        for found, own in zip(fitted_values(model, samples, samples[::2]), expected, strict=True):
            assert_array_equal(found, own)


@pytest.mark.parametrize("approximation", [None, "nystroem"])
def test_columns_by_name_and_by_number(approximation):
    options = {"random_state": 0}
    if approximation is not None:
        options |= {"approximation": approximation, "rank": 15}
    frame = pd.DataFrame(X, columns=list("abcdefg"))
    names = [("left", Gaussian(), list("abcd")), ("right", Linear(), list("defg"))]
    expected = fitted_values(MKLClassifier(COLUMNS, multi_class="pairwise", **options), X, X)
    for model, samples in (
        (MKLClassifier(names), frame),
        (MKLClassifier(COLUMNS), np.asfortranarray(X)),
    ):
        model.set_params(multi_class="pairwise", **options)
        for found, own in zip(fitted_values(model, samples, samples), expected, strict=True):
            assert_array_equal(found, own)
