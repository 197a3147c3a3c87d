"""C learned with the weights: the estimator against the machine refitted at the price it found."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic import MKLClassifier
from kernelmosaic.datasets import make_gaussians

X, Y = make_gaussians(n_components=2, n_samples=80, random_state=0)


def test_refitting_at_the_learned_price_gives_the_same_model():
    joint = MKLClassifier(C="learn", slack=2, tol=1e-8).fit(X, Y)
    again = MKLClassifier(C=float(joint.C_[0]), slack=2, tol=1e-8).fit(X, Y)
    assert joint.duality_gap_ <= 1e-8
    np.testing.assert_allclose(joint.weights_, again.weights_, atol=1e-3)
    np.testing.assert_allclose(joint.decision_function(X), again.decision_function(X), atol=1e-2)


def test_every_class_learns_its_own_price():
    labels = np.repeat([0, 1, 2], [30, 30, 20])
    model = MKLClassifier(C="learn", slack=2).fit(X + 3.0 * labels[:, None], labels)
    assert model.C_.shape == (3,)
    assert np.all(model.C_ > 0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": "learn"}, "slack=2"),
        ({"C": "guess", "slack": 2}, "'guess'"),
        ({"C": "learn", "slack": 2, "weights": "uniform"}, "weights=None"),
        ({"C": "learn", "slack": 2, "norm": 2}, "norm=1"),
        ({"C": "learn", "slack": 2, "solver": "silp"}, "newton"),
    ],
)
def test_what_cannot_be_learned_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        MKLClassifier(**parameters).fit(X, Y)
