"""C learned with the weights: the estimator against the machine refitted at the price it found."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sklearn.base import clone
from tests.sweeps import thinned

from kernelmosaic import MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Gaussian, Linear, Polynomial

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


# ---- kernels in features

KERNELS = [Gaussian(1.0), ("wide", Gaussian(4.0)), Linear(), ("square", Polynomial(2), [0, 1])]
LOW = {"approximation": "nystroem", "rank": 15, "random_state": 0}


def assert_alike(found, expected, tol):
    assert found.duality_gap_ <= tol
    assert found.objective_ == pytest.approx(expected.objective_, rel=3 * tol)
    np.testing.assert_allclose(found.C_, expected.C_, rtol=10 * np.sqrt(tol))
    np.testing.assert_allclose(found.weights_, expected.weights_, atol=10 * np.sqrt(tol))
    np.testing.assert_allclose(
        found.decision_function(X), expected.decision_function(X), atol=30 * np.sqrt(tol)
    )


# A gap of g moves the value by about g²: below √ε double precision does not see whether a step
# pays.
TOLERANCES = (1e-3, 8 * np.sqrt(np.finfo(float).eps))
FULL_RANK = list(product(TOLERANCES, ["trace", "centered"], [False, True]))


#: Every two settings meet at each commit.
@pytest.mark.parametrize(
    ("tol", "normalize", "weighted"),
    thinned(
        FULL_RANK,
        [(tol, name, (tol == 1e-3) == (name == "centered")) for tol, name, _ in FULL_RANK],
    ),
)
def test_full_rank_is_exact(tol, normalize, weighted):
    weight = np.random.RandomState(1).randint(0, 3, len(X)).astype(float) if weighted else None
    model = MKLClassifier(KERNELS, C="learn", slack=2, normalize=normalize, tol=tol)
    exact = clone(model).fit(X, Y, sample_weight=weight)
    full = (
        clone(model)
        .set_params(approximation="nystroem", random_state=0)
        .fit(X, Y, sample_weight=weight)
    )
    assert_alike(full, exact, tol)


def test_in_features_refitting_at_the_learned_price_gives_the_same_model():
    joint = MKLClassifier(KERNELS, C="learn", slack=2, tol=1e-8, **LOW).fit(X, Y)
    again = MKLClassifier(KERNELS, C=float(joint.C_[0]), slack=2, tol=1e-8, **LOW).fit(X, Y)
    assert joint.duality_gap_ <= 1e-8
    np.testing.assert_allclose(joint.weights_, again.weights_, atol=1e-3)
    np.testing.assert_allclose(joint.decision_function(X), again.decision_function(X), atol=1e-2)


def test_rows_may_be_elsewhere(tmp_path):
    model = MKLClassifier(KERNELS, C="learn", slack=2, tol=1e-6, **LOW)
    here = clone(model).fit(X, Y)
    written = np.memmap(tmp_path / "samples.dat", dtype=np.float64, mode="w+", shape=X.shape)
    written[:] = X
    assert_alike(clone(model).fit(written, Y), here, 1e-6)
    dask, da = pytest.importorskip("dask"), pytest.importorskip("dask.array")
    with dask.config.set(scheduler="synchronous"):
        assert_alike(clone(model).fit(da.from_array(X, chunks=(30, 2)), Y), here, 1e-6)


@pytest.mark.torch
def test_features_on_a_device():
    pytest.importorskip("torch")
    model = MKLClassifier(KERNELS, C="learn", slack=2, tol=1e-6, **LOW)
    assert_alike(clone(model).set_params(device="cpu").fit(X, Y), clone(model).fit(X, Y), 1e-6)


@pytest.mark.parametrize(
    "where", ["here", pytest.param("device", marks=pytest.mark.torch), "workers"]
)
def test_labels_without_a_pattern(where):
    rng = np.random.RandomState(0)
    samples, labels = rng.standard_normal((500, 5)), rng.rand(500) > 0.5
    model = MKLClassifier([Linear()], C="learn", slack=2, **LOW)
    if where == "device":
        pytest.importorskip("torch")
        model.set_params(device="cpu")
    if where == "workers":
        samples = pytest.importorskip("dask.array").from_array(samples, chunks=(200, 5))
    with pytest.raises(ValueError, match="all weight to the slack"):
        model.fit(samples, labels)


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
