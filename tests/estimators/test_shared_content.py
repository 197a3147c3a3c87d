"""What fits that share kernels are told apart by: content, and identity where an object has no
content to read."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from kernelmosaic import MKLClassifier
from kernelmosaic.inspection import stability
from kernelmosaic.kernels import Gaussian, Kernel
from kernelmosaic.model_selection import SharedKernels

X = np.random.RandomState(0).normal(size=(40, 3))
y = (X[:, 0] * X[:, 1] > 0).astype(int)


class OfProducts(Kernel):
    """A function of inner products; its function may be a lambda."""

    def __init__(self, function=None):
        self.function = function

    def _block(self, X, Y):
        return self.function(X @ Y.T)


def test_kernels_with_a_lambda_are_shared_by_clones_and_told_apart_from_others():
    square, cube = (lambda S: (S + 1) ** 2), (lambda S: (S + 1) ** 3)
    first, other = (MKLClassifier([OfProducts(f), Gaussian()], tol=1e-6) for f in (square, cube))
    expected = [clone(model).fit(X, y).decision_function(X) for model in (first, other)]
    with SharedKernels() as shared:
        found = [clone(model).fit(X, y).decision_function(X) for model in (first, other, first)]
        assert len(shared.store.training_sets) == 2
    assert_array_equal(found[0], expected[0])
    assert_array_equal(found[1], expected[1])
    assert_allclose(found[2], expected[0], atol=1e-3)
    assert shared.store.training_sets == []


def test_kernels_of_a_class_within_a_function_and_lists_of_lambdas():
    class Local(OfProducts):
        def _block(self, X, Y):
            return sum(f(X @ Y.T) for f in self.function)

    model = MKLClassifier([Local([lambda S: S, lambda S: S**2]), Gaussian()])
    with SharedKernels() as shared:
        for _ in range(2):
            clone(model).fit(X, y)
        assert len(shared.store.training_sets) == 1
        clone(model).set_params(kernels=[Local([lambda S: S]), Gaussian()]).fit(X, y)
        assert len(shared.store.training_sets) == 2


def test_searches_and_inspections_take_kernels_with_a_lambda():
    model = MKLClassifier([OfProducts(lambda S: (S + 1) ** 2), Gaussian()])
    with SharedKernels():
        search = GridSearchCV(model, {"C": [0.1, 1.0]}, cv=3).fit(X, y)
    plain = GridSearchCV(model, {"C": [0.1, 1.0]}, cv=3).fit(X, y)
    assert search.best_score_ == plain.best_score_
    assert stability(model, X, y, n_resamples=3, random_state=0).selection_frequencies.shape == (2,)
