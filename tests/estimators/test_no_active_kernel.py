"""A model that takes no kernel at all still predicts."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from kernelmosaic import BilinearMKLClassifier
from kernelmosaic.kernels import Gaussian, Linear


def test_a_price_too_low_for_any_kernel():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    # Below a price κ the norms cost more than the slacks they would save: zero is the optimum.
    model = BilinearMKLClassifier([Linear(), Gaussian("median")], kappa=1e-3, tol=1e-6).fit(X, y)
    assert not model.weights_.any()
    np.testing.assert_array_equal(model.decision_function(X), np.zeros((len(X), 3)))
    np.testing.assert_array_equal(model.contributions(X), np.zeros((len(X), 2, 3)))
    np.testing.assert_array_equal(model.kernel_matrix(X[:4], X), np.zeros((3, 4, len(X))))
    assert set(model.predict(X)) == {0}
