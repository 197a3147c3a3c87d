"""Estimators with their matrices on a torch device, here the host's, against the same fitted with
NumPy."""

from __future__ import annotations

import pickle
from functools import reduce
from operator import mul

import numpy as np
import pytest

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
)
from kernelmosaic.backend import has_device
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.kernels import Correlation, Gaussian, Linear, Polynomial, Projected, family

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

KERNELS = [Linear(), Polynomial(2), *family(Gaussian(), width=[0.5, 2.0])]
X, Y = make_gaussians(n_components=4, n_samples=160, random_state=0)
THREE = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
TARGET = np.sin(X[:, 0]) + 0.1 * X[:, 1]

#: Tight, so that two answers within their gaps are the same to a few digits.
FITS = {
    "sparse": (MKLClassifier(KERNELS, tol=1e-6), Y),
    "power norm": (MKLClassifier(KERNELS, norm=2, tol=1e-6), Y),
    "given weights": (MKLClassifier(KERNELS, weights="uniform", tol=1e-7), Y),
    "product": (MKLClassifier([reduce(mul, KERNELS)], tol=1e-7), Y),
    "squared slack": (MKLClassifier(KERNELS, slack=2, tol=1e-6), Y),
    "learned C": (MKLClassifier(KERNELS, C="learn", slack=2, tol=1e-5), Y),
    "one versus rest": (MKLClassifier(KERNELS, tol=1e-6), THREE),
    "joint": (MKLClassifier(KERNELS, multi_class="joint", tol=1e-5), THREE),
    "silp": (MKLClassifier(KERNELS, solver="silp", tol=1e-4), Y),
    "reduced gradient": (MKLClassifier(KERNELS, solver="reduced_gradient", tol=1e-5), Y),
    "alignment": (MKLClassifier(KERNELS, solver="alignment", tol=1e-7), Y),
    "easymkl": (MKLClassifier(KERNELS, solver="easymkl", tol=1e-6), Y),
    "diagonal": (MKLClassifier(KERNELS, normalize="diagonal", tol=1e-6), Y),
    "host kernel": (MKLClassifier([*KERNELS, Correlation()], tol=1e-6), Y),
    "regression": (MKLRegressor(KERNELS, epsilon=0.05, tol=1e-6), TARGET),
    "one class": (MKLOneClass(KERNELS, nu=0.3, tol=1e-6), None),
    "bilinear": (BilinearMKLClassifier(KERNELS, tol=1e-5), THREE),
    "discriminant": (DiscriminantMKLClassifier(KERNELS, tol=1e-6), THREE),
    "discriminant price": (DiscriminantMKLClassifier(KERNELS, alpha="learn", tol=1e-5), Y),
    "posterior": (PosteriorMKLClassifier(KERNELS, tol=1e-5), Y),
    "posterior, three": (PosteriorMKLClassifier(KERNELS, tol=1e-5), THREE),
}


def outputs(model):
    return model.predict(X) if isinstance(model, MKLRegressor) else model.decision_function(X)


def on(estimator, device, **parameters):
    from sklearn.base import clone

    return clone(estimator).set_params(device=device, **parameters)


@pytest.mark.parametrize("name", sorted(FITS))
def test_the_device_changes_nothing(name):
    estimator, target = FITS[name]
    here, there = (on(estimator, device).fit(X, target) for device in (None, "cpu"))
    assert there.duality_gap_ <= estimator.tol
    assert there.objective_ == pytest.approx(here.objective_, rel=3 * estimator.tol, abs=1e-9)
    size = np.abs(outputs(here)).max()
    # An error δ in the value is one of √δ in the function.
    np.testing.assert_allclose(
        outputs(there), outputs(here), atol=3 * np.sqrt(estimator.tol) * size
    )
    assert isinstance(there.dual_coef_, np.ndarray)


GATED = {
    "classes": (LocalizedMKLClassifier(KERNELS[:3], max_iter=4), Y),
    "targets": (LocalizedMKLRegressor(KERNELS[:3], max_iter=4), TARGET),
    "one class": (LocalizedMKLOneClass(KERNELS[:3], nu=0.3, max_iter=4), None),
}


@pytest.mark.parametrize("name", sorted(GATED))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_gates_take_the_same_steps(name):
    estimator, target = GATED[name]
    here, there = (on(estimator, device, tol=1e-6).fit(X, target) for device in (None, "cpu"))
    np.testing.assert_allclose(there.gate(X), here.gate(X), atol=1e-2)
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-3)
    size = np.abs(here.contributions(X)).max()
    np.testing.assert_allclose(there.contributions(X), here.contributions(X), atol=2e-2 * size)


@pytest.mark.parametrize("stored", [True, False])
def test_single_precision_keeps_the_certificate(stored):
    n = len(X)
    model = MKLClassifier(
        KERNELS, tol=1e-5, device="cpu", memory_budget=None if stored else 2.5 * 4 * n * n
    )
    model._stack_dtype = np.float32
    here = MKLClassifier(KERNELS, tol=1e-5).fit(X, Y)
    model.fit(X, Y)
    assert model.duality_gap_ <= 1e-5
    assert model.objective_ == pytest.approx(here.objective_, rel=2e-5)
    np.testing.assert_allclose(model.weights_, here.weights_, atol=5e-3)


def test_predictions_on_the_device_and_without_it():
    model = MKLClassifier(KERNELS, device="cpu").fit(X, Y)
    loaded = pickle.loads(pickle.dumps(model))
    there = loaded.decision_function(X)
    np.testing.assert_allclose(there, model.decision_function(X), rtol=1e-12)
    object.__setattr__(loaded.function_.expansion, "device", None)
    np.testing.assert_allclose(loaded.decision_function(X), there, rtol=1e-9, atol=1e-11)


def test_a_model_from_a_device_that_is_gone():
    model = MKLClassifier(KERNELS, device="cpu").fit(X, Y)
    expected = model.decision_function(X)
    object.__setattr__(model.function_.expansion, "device", "cuda:7")
    np.testing.assert_allclose(model.decision_function(X), expected, rtol=1e-9, atol=1e-11)


def test_tensors_for_arrays():
    model = MKLClassifier(KERNELS, tol=1e-6).fit(torch.as_tensor(X), torch.as_tensor(Y))
    # In the host's memory a tensor is as good as an array: no device is asked for.
    assert model.function_.expansion.device is None
    reference = MKLClassifier(KERNELS, tol=1e-6).fit(X, Y)
    np.testing.assert_allclose(
        model.decision_function(torch.as_tensor(X)), reference.decision_function(X), rtol=1e-12
    )


class OnDevice:
    """A stand-in for a tensor on a GPU."""

    device = torch.device("cuda", 0)
    __module__ = "torch"

    def __init__(self, X):
        self.X = X

    def detach(self):
        return torch.as_tensor(self.X)


def test_a_tensor_says_where_to_compute():
    OnDevice.__module__ = "torch"
    many = np.random.default_rng(0).normal(size=(2001, 2))  # fewer would stay on the host
    model, given = MKLClassifier([Linear()]), (OnDevice(many), many[:, 0] > 0)
    assert model.validated(*given, None).device == "cuda:0"
    if has_device("cuda:0"):
        assert model.fit(*given).function_.expansion.device == "cuda:0"
    else:
        with pytest.raises(ValueError, match="device='cuda:0'"):
            model.fit(*given)


# ---- refusals


@pytest.mark.parametrize(
    "estimator", [MKLClassifier(), LocalizedMKLClassifier(), DiscriminantMKLClassifier()]
)
def test_devices_that_are_none(estimator):
    with pytest.raises(
        ValueError, match=r"device='graphics': give None, 'cuda', 'cuda:1' or 'cpu'"
    ):
        on(estimator, "graphics").fit(X, Y)


def test_projections_stay_on_the_host():
    model = LocalizedMKLClassifier([Projected(Gaussian(1.0), 1)], device="cpu")
    with pytest.raises(
        ValueError, match=r"device='cpu': projected kernels are learned on the host"
    ):
        model.fit(X, Y)


@pytest.mark.parametrize(
    ("model", "few", "many"),
    [
        (MKLClassifier(), 2000, 2001),
        (LocalizedMKLClassifier(), 3000, 3001),
        (BilinearMKLClassifier(), 10_000, 10_001),
        (DiscriminantMKLClassifier(), 500, 501),
    ],
)
def test_so_few_samples_that_a_gpu_would_wait_for_the_host_stay_there(model, few, many):
    def device(n, given):
        recipe = model.recipe(FitInput(None, None, None, None, given))
        return recipe.kernels.placed(n, recipe.task.host_samples).device

    assert device(few, "cuda:0") is None
    assert device(many, "cuda:0") == "cuda:0"
    # Torch on the host does not wait for a device.
    assert device(few, "cpu") == "cpu"
