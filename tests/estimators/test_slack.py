"""The objective of squared slacks is (Σ d‖w‖)² + C Σ ξ², without a half."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from kernelmosaic import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.kernels import Linear, Projected

RNG = np.random.RandomState(0)
X = RNG.randn(60, 3)
y = np.where(X[:, 0] + 0.5 * RNG.randn(60) > 0, 1, -1)


def test_squared_slacks_have_twice_the_C_of_scikit_learn():
    model = MKLClassifier([Linear()], C=2.0, slack=2, normalize=None, tol=1e-9).fit(X, y)
    f, beta = model.decision_function(X), np.zeros(60)
    beta[model.support_] = model.dual_coef_[0]
    objective = beta @ X @ X.T @ beta + 2.0 * np.square(np.maximum(0.0, 1.0 - y * f)).sum()
    assert model.objective_ == pytest.approx(objective, rel=1e-6)
    # The intercept of LIBLINEAR is penalised; a large constant feature makes that negligible.
    machine = LinearSVC(
        C=1.0, loss="squared_hinge", intercept_scaling=1e3, tol=1e-9, max_iter=10**6, dual=False
    )
    np.testing.assert_allclose(machine.fit(X, y).decision_function(X), f, atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_learned_projections_are_an_attribute(n_classes):
    classes = np.digitize(X[:, 0], np.linspace(-0.4, 0.4, n_classes - 1)) if n_classes > 2 else y
    kernels = [
        ("first", Projected(Linear(), 1), [0, 1]),
        ("second", Projected(Linear(), 2), [0, 1, 2]),
    ]
    model = LocalizedMKLClassifier(kernels, n_init=1, tol=0.5, random_state=0).fit(X, classes)
    projections = model.projections_
    assert [W.shape for W in projections.values()][:2] == [(2, 1), (3, 2)]
    columns = [X[:, : len(W)] @ W for W in projections.values()]
    np.testing.assert_allclose(np.hstack(columns), model.transform(X), atol=1e-12)
    names = [f"{name}_{k}" for name, W in projections.items() for k in range(W.shape[1])]
    assert names == list(model.get_feature_names_out())
    assert (
        LocalizedMKLClassifier([Linear(), Linear()], n_init=1, tol=0.5).fit(X, y).projections_ == {}
    )
