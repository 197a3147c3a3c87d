"""scikit-learn's own checks of the localized estimators, none expected to fail."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelmosaic import LocalizedMKLClassifier, LocalizedMKLOneClass, LocalizedMKLRegressor
from kernelmosaic.kernels import Linear, Polynomial, Projected

# What is checked is how they are used, not what they learn: one start and few steps do, and tol is large enough for
# these to end by themselves.
BRIEF = {"n_init": 1, "tol": 0.3}

ESTIMATORS = [
    LocalizedMKLClassifier(n_init=2, tol=0.3),
    LocalizedMKLRegressor(gating="gaussian", **BRIEF),
    LocalizedMKLOneClass(**BRIEF),
    LocalizedMKLClassifier([Linear(), Linear()], gating="sigmoid", step="armijo", slack=2, **BRIEF),
    LocalizedMKLClassifier([Projected(Linear(), 1), Linear()], **BRIEF),
    # A joint machine has no constants: for one class to prevail everywhere, as a check asks, some kernel must hold one.
    LocalizedMKLClassifier([Linear(), Polynomial()], multi_class="joint", **BRIEF),
    LocalizedMKLClassifier([Projected(Polynomial(), 1), Polynomial()], multi_class="pairwise", **BRIEF),
]


@parametrize_with_checks(ESTIMATORS)
def test_estimator(estimator, check):
    check(estimator)
