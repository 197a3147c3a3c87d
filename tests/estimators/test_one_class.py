"""One-class estimators as they come: novelty found as scikit-learn finds it, and a warning where kernels mislead."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

from kernelmosaic import LocalizedMKLOneClass, MKLOneClass
from kernelmosaic.datasets import make_ringnorm, make_waveform
from kernelmosaic.kernels import Correlation, Gaussian, Linear, Polynomial, Precomputed

BOTH = [MKLOneClass, LocalizedMKLOneClass]
#: A set and which of its classes is the normal one.
TASKS = [
    *((load_breast_cancer, normal) for normal in (0, 1)),
    *((load_digits, normal) for normal in (0, 1, 8)),
    *((load_wine, normal) for normal in (0, 1)),
    (load_iris, 1),
    (make_ringnorm, 1),
    (make_waveform, 0),
]
X = np.random.RandomState(0).normal(size=(30, 3))


def areas(load, normal, models):
    """Area under the ROC curve of each model, the other half of the normal class against the other classes."""
    given = {"n_samples": 300, "random_state": 0} if load.__module__.startswith("kernelmosaic") else {}
    X, y = load(**given) if given else load(return_X_y=True)
    usual, odd = X[y == normal], X[y != normal]
    found = []
    for seed in range(2):
        order = np.random.RandomState(seed).permutation(len(usual))
        half = len(order) // 2
        scaler = StandardScaler().fit(usual[order[:half]])
        train, held, other = map(scaler.transform, (usual[order[:half]], usual[order[half:]], odd))
        truth = np.repeat([1, 0], [len(held), len(other)])
        test = np.vstack([held, other])
        found.append([roc_auc_score(truth, model.fit(train).decision_function(test)) for model in models])
    return np.mean(found, axis=0)


@pytest.mark.parametrize(("load", "normal"), TASKS, ids=lambda value: getattr(value, "__name__", value))
def test_defaults_find_novelty_as_scikit_learn_does(load, normal):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        reference, *ours = areas(load, normal, [OneClassSVM(), *(kind() for kind in BOTH)])
    assert min(ours) > reference - 0.02


@pytest.mark.parametrize("approximation", [None, "nystroem"])
@pytest.mark.parametrize("kind", BOTH)
def test_kernels_that_grow_with_the_distance_are_named_once(kind, approximation):
    kernels = [("line", Linear()), ("square", Polynomial()), ("bell", Gaussian())]
    model = kind(kernels, approximation=approximation, rank=20, random_state=0)
    with pytest.warns(UserWarning, match=r"of line, square differs .*Gaussian\(\).* normalize='diagonal'") as caught:
        model.fit(X)
    assert len([one for one in caught if "normalize" in str(one.message)]) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("approximation", [None, "nystroem"])
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("kernels", "options"),
    [
        (None, {}),
        ([Gaussian(), Correlation()], {}),
        ([Linear(), Polynomial()], {"normalize": "diagonal"}),
    ],
)
def test_kernels_of_constant_diagonal_are_not(kind, kernels, options, approximation):
    model = kind(kernels, approximation=approximation, rank=20, random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(X)


def test_given_matrices_are_looked_at_too():
    bell, rows = Gaussian()(X), np.arange(len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        MKLOneClass([Precomputed(bell)]).fit(rows)
    with pytest.warns(UserWarning, match="precomputed differs"):
        MKLOneClass([Precomputed(bell * np.outer(1 + rows, 1 + rows))]).fit(rows)


def test_samples_of_no_weight_are_not_looked_at():
    ring = X / np.linalg.norm(X, axis=1, keepdims=True)
    far, weight = np.vstack([ring, 10 * ring[:3]]), np.repeat([1.0, 0.0], [len(ring), 3])
    for approximation in (None, "nystroem"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            MKLOneClass([Linear()], approximation=approximation).fit(far, sample_weight=weight)
