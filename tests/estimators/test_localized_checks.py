"""scikit-learn's own checks of the localized estimators, none expected to fail."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelmosaic import LocalizedMKLClassifier, LocalizedMKLOneClass, LocalizedMKLRegressor
from kernelmosaic.kernels import Gaussian, Linear, Projected

ESTIMATORS = [
    LocalizedMKLClassifier(),
    LocalizedMKLRegressor(),
    LocalizedMKLOneClass(),
    LocalizedMKLClassifier([Linear(), Linear()], gating="sigmoid", step="armijo", slack=2, n_init=1),
    LocalizedMKLRegressor([Linear(), Gaussian("median")], gating="gaussian", n_init=1),
    LocalizedMKLOneClass(gating="constant"),
    LocalizedMKLClassifier([Projected(Linear(), 1), Projected(Linear(), 1)], n_init=1, max_iter=5),
    LocalizedMKLClassifier(gating_kernel=Gaussian("median"), n_init=1, step="fixed"),
]


@parametrize_with_checks(ESTIMATORS)
def test_estimator(estimator, check):
    check(estimator)
