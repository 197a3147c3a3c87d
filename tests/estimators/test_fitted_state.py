"""Predictions read what was fitted, not the parameters, which may have changed since."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.utils import get_tags
from tests.sweeps import thinned

from kernelmosaic import (
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    LocalizedMKLOneClass,
    LocalizedMKLRegressor,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
    PosteriorMKLClassifier,
    load,
    save,
)
from kernelmosaic.kernels import Gaussian, Linear, Projected, Spectrum

MODELS = [
    MKLClassifier,
    MKLRegressor,
    MKLOneClass,
    BilinearMKLClassifier,
    PosteriorMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    LocalizedMKLRegressor,
    LocalizedMKLOneClass,
]
METHODS = (
    "predict",
    "decision_function",
    "contributions",
    "kernel_matrix",
    "score_samples",
    "gate",
    "transform",
)


def fitted(kind, **parameters):
    rng = np.random.RandomState(0)
    X = rng.standard_normal((30, 3))
    y = X[:, 0] > 0 if "Classifier" in kind.__name__ else X[:, 0]
    # What is answered need not be learned well.
    parameters |= {"n_init": 1, "max_iter": 1} if "Localized" in kind.__name__ else {"tol": 0.1}
    return kind([Linear(), ("some", Gaussian(1.0), [0, 1])], **parameters).fit(X, y), X, y


def answers(model, X, y):
    found = {name: getattr(model, name)(X) for name in METHODS if hasattr(model, name)}
    return {**found, "score": np.array(model.score(X, y))} if hasattr(model, "score") else found


#: Features are read by the same lines for all machines, and by others for discriminants and under
#: gates.
IN_FEATURES = (MKLClassifier, DiscriminantMKLClassifier, LocalizedMKLClassifier)
FITS = [(kind, approximation) for kind in MODELS for approximation in (None, "nystroem")]


@pytest.mark.filterwarnings("ignore:Localized:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("kind", "approximation"),
    thinned(FITS, [(kind, name) for kind, name in FITS if name is None or kind in IN_FEATURES]),
)
def test_answers_stay_when_parameters_change(kind, approximation):
    model, X, y = fitted(kind, approximation=approximation)
    before = answers(model, X, y)
    assert "predict" in before
    for kernels in ([], [Spectrum(2)], "nonsense"):
        model.set_params(
            kernels=kernels, approximation="fourier" if approximation is None else None
        )
        after = answers(model, X, y)
        assert after.keys() == before.keys()
        for name in before:
            assert_array_equal(after[name], before[name], err_msg=name)
        get_tags(model)


def test_sparse_samples_and_projections_stay():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((30, 3))
    model = LocalizedMKLClassifier([Projected(Linear()), Gaussian(1.0)], n_init=1).fit(
        sparse.csr_matrix(X), X[:, 0] > 0
    )
    before = model.transform(sparse.csr_matrix(X))
    model.set_params(kernels=[Linear()], gating_kernel=Spectrum(2))
    assert_array_equal(model.transform(sparse.csr_matrix(X)), before)
    assert len(model.get_feature_names_out()) == before.shape[1]
    assert len(model.predict(sparse.csr_matrix(X))) == 30
    # A new fit follows the parameters again.
    model.set_params(kernels=[Gaussian(1.0)], gating_kernel=None).fit(X, X[:, 0] > 0)
    assert not hasattr(model, "transform")


def test_model_files_keep_what_predictions_take(tmp_path):
    pytest.importorskip("skops")
    model, X, _ = fitted(MKLClassifier)
    expected = model.decision_function(X)
    save(model.set_params(kernels=[Spectrum(2)]), tmp_path / "model.skops")
    assert_array_equal(load(tmp_path / "model.skops").decision_function(X), expected)
