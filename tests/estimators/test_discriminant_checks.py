"""scikit-learn's own checks of the discriminant classifier, one expected to fail."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelmosaic import DiscriminantMKLClassifier
from kernelmosaic.kernels import Gaussian, Linear

ESTIMATORS = [
    DiscriminantMKLClassifier(),
    DiscriminantMKLClassifier(formulation="silp", alpha="learn", decision="centroid"),
    DiscriminantMKLClassifier([("line", Linear()), ("bell", Gaussian("median"))], weights="uniform", normalize=None),
]


#: As with calibrated classifiers everywhere: the check asks for the most probable class to be the one decided on.
REASONS = {"check_classifiers_train": "slopes and constants of the classes move probabilities, not decisions"}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: REASONS)
def test_estimator(estimator, check):
    check(estimator)
