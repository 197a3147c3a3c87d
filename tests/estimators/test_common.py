"""scikit-learn's own checks of an estimator, all of them, none expected to fail."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelmosaic import MKLClassifier, MKLOneClass, MKLRegressor, MKLSurvival
from kernelmosaic.kernels import Gaussian, Linear

ESTIMATORS = [
    MKLClassifier(),
    MKLRegressor(),
    MKLOneClass(),
    # The checks know times without censoring.
    MKLSurvival(),
    # Fixed weights, squared slack, other norms and normalisations are the same code in all three.
    MKLClassifier(weights="uniform"),
    MKLRegressor(slack=2, norm=2),
    MKLOneClass(norm=2, slack=2, normalize="diagonal"),
    MKLClassifier([("line", Linear()), ("bell", Gaussian("median"))], normalize="centered", class_weight="balanced"),
]


@parametrize_with_checks(ESTIMATORS)
def test_estimator(estimator, check):
    check(estimator)
