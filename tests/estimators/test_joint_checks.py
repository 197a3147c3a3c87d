"""scikit-learn's own checks of the estimators that tell all classes apart in one problem."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelmosaic import BilinearMKLClassifier, MKLClassifier, PosteriorMKLClassifier

ESTIMATORS = [
    BilinearMKLClassifier(),
    MKLClassifier(multi_class="joint"),
    MKLClassifier(multi_class="pairwise", weights="uniform"),
    PosteriorMKLClassifier(),
    BilinearMKLClassifier(approximation="nystroem", rank=20, random_state=0),
    MKLClassifier(multi_class="joint", approximation="nystroem", rank=20, random_state=0),
    PosteriorMKLClassifier(estimate="density", approximation="nystroem", rank=20, random_state=0),
]


@parametrize_with_checks(ESTIMATORS)
def test_estimator(estimator, check):
    check(estimator)
