"""scikit-learn's own checks of the discriminant classifier, none expected to fail."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelmosaic import DiscriminantMKLClassifier
from kernelmosaic.kernels import Gaussian, Linear

ESTIMATORS = [
    DiscriminantMKLClassifier(),
    DiscriminantMKLClassifier(formulation="silp", alpha="learn", decision="centroid"),
    DiscriminantMKLClassifier([("line", Linear()), ("bell", Gaussian("median"))], weights="uniform", normalize=None),
]


@parametrize_with_checks(ESTIMATORS)
def test_estimator(estimator, check):
    check(estimator)
