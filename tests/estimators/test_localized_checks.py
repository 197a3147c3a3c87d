"""scikit-learn's own checks of the localized estimators, none expected to fail."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelmosaic import LocalizedMKLClassifier, LocalizedMKLOneClass, LocalizedMKLRegressor
from kernelmosaic.kernels import Linear, Polynomial, Projected

ESTIMATORS = [
    LocalizedMKLClassifier(),
    LocalizedMKLRegressor(gating="gaussian", n_init=1),
    LocalizedMKLOneClass(n_init=1),
    LocalizedMKLClassifier([Linear(), Linear()], gating="sigmoid", step="armijo", slack=2, n_init=1),
    LocalizedMKLClassifier([Projected(Linear(), 1), Projected(Linear(), 1)], n_init=1, max_iter=5),
    # A joint machine has no constants: for one class to prevail everywhere, as a check asks, some kernel must hold one.
    LocalizedMKLClassifier([Linear(), Polynomial()], multi_class="joint", n_init=1),
    LocalizedMKLClassifier([Projected(Polynomial(), 1), Polynomial()], multi_class="pairwise", n_init=1, max_iter=5),
]


@parametrize_with_checks(ESTIMATORS)
def test_estimator(estimator, check):
    check(estimator)
