"""Small random fits that rounding makes hard: huge and tiny scales, offsets, heavy tails, copies, C
up to 1e9."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelmosaic as km
from kernelmosaic.kernels import Gaussian, Laplacian, Linear, Polynomial

_NAMES = [
    *["MKLClassifier"] * 6,
    *["MKLRegressor"] * 3,
    *["MKLOneClass", "LocalizedMKLClassifier", "LocalizedMKLRegressor", "LocalizedMKLOneClass"],
    *["BilinearMKLClassifier"] * 2,
    *["DiscriminantMKLClassifier", "PosteriorMKLClassifier", "MKLSurvival"],
]
_MULTI_CLASS = ["ovr", "ovr-shared", "joint", "pairwise"]
_FORMULATIONS = ["newton", "silp", "qcqp", "sdp", "sdp_approximate", "kim"]


def draw(seed: int) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Return an estimator, samples and targets (None for one-class machines), drawn from the seed
    alone."""
    rng = np.random.RandomState(seed)
    n, d = int(rng.choice([6, 8, 12, 20, 30, 45, 60])), int(rng.choice([1, 2, 3, 6]))
    X = rng.standard_t(rng.choice([1, 2, 30]), size=(n, d))
    name = str(rng.choice(_NAMES))
    classes = int(rng.choice([2, 2, 3, 4]))
    y: Any = np.arange(n) % classes
    X = _spoiled(rng, X, y)
    kernels = _kernels(rng)
    C = float(10.0 ** rng.uniform(-3, 9))
    p: dict[str, Any] = {
        "normalize": rng.choice(np.array([None, "trace", "diagonal", "centered"], dtype=object))
    }
    norm = rng.choice(np.array([1, 1, 1, 2, 1.5, 3], dtype=object))
    tol = float(rng.choice([1e-3, 1e-3, 1e-6, 1e-9]))
    if rng.rand() < 0.5:
        p["tol"] = tol
    if name in ("MKLRegressor", "LocalizedMKLRegressor", "MKLSurvival"):
        y = X[:, 0] / (np.abs(X[:, 0]).max() + 1e-300) + 0.1 * rng.standard_t(
            rng.choice([1, 30]), size=n
        )
        y = y * 10.0 ** rng.choice([-6, 0, 0, 6]) + rng.choice([0, 0, 1e6])
    _choose_solver(rng, name, p, norm, n, classes)
    _choose_machine(rng, name, p, C, y)
    if p.get("solver") == "kim":
        y = np.arange(n) % 2
    if name == "MKLSurvival":
        y = np.stack(
            [np.abs(y) + 1e-3 * (np.abs(y).max() + 1e-9), (rng.rand(n) < 0.7).astype(float)], axis=1
        )
        y[:2, 1] = 1
    estimator = getattr(km, name)
    known = estimator().get_params()
    made = estimator(kernels, **{key: value for key, value in p.items() if key in known})
    return made, X, None if "OneClass" in name else y


def _spoiled(rng: np.random.RandomState, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    half = len(X) // 2
    X[:, 0] += rng.choice([0, 0.5, 3]) * y
    if rng.rand() < 0.3:
        X[half : 2 * half] = X[:half]
    if rng.rand() < 0.2:
        X[:, -1] = rng.rand()
    X = X * 10.0 ** rng.choice([-6, -3, 0, 0, 0, 3, 6]) + rng.choice([0, 0, 0, 1, 1e3, 1e6])
    return X * 10.0 ** rng.uniform(-4, 4, size=X.shape[1]) if rng.rand() < 0.15 else X


def _kernels(rng: np.random.RandomState) -> list[Any]:
    base = [Linear(), Gaussian(), Polynomial(2), Polynomial(3), Laplacian()]
    base.append(Gaussian(width=float(10.0 ** rng.uniform(-3, 3))))
    kernels = [base[i] for i in rng.randint(len(base), size=rng.randint(1, 7))]
    return [*kernels, kernels[0]] if rng.rand() < 0.3 else kernels


def _choose_solver(
    rng: np.random.RandomState, name: str, p: dict[str, Any], norm: Any, n: int, classes: int
) -> None:
    if name in ("MKLClassifier", "MKLRegressor", "MKLOneClass", "MKLSurvival"):
        last = "sdp" if n <= 20 else "newton"
        solvers = ["newton", "newton", "silp", "reduced_gradient", "reduced_gradient", "qcqp", last]
        p["solver"] = str(rng.choice(solvers))
        p["norm"] = norm if p["solver"] == "newton" else 1
    if name in ("MKLClassifier", "LocalizedMKLClassifier"):
        p["multi_class"] = str(rng.choice(_MULTI_CLASS))
    if name == "MKLClassifier":
        if classes > 2 and p["multi_class"] != "ovr":
            p["solver"] = str(rng.choice(["newton", "silp"]))
        if p["solver"] != "newton":
            p["norm"] = 1
    if name.startswith("Localized"):
        p["gating"] = str(rng.choice(["softmax", "sigmoid", "constant", "gaussian"]))
        p["step"] = str(rng.choice(["lbfgs", "armijo"]))


def _choose_machine(
    rng: np.random.RandomState, name: str, p: dict[str, Any], C: float, y: np.ndarray
) -> None:
    if name in ("MKLClassifier", "MKLRegressor", "LocalizedMKLClassifier", "LocalizedMKLRegressor"):
        p["slack"] = int(rng.choice([1, 1, 2]))
    p["C"] = p["kappa"] = C
    if "Regressor" in name:
        p["loss"] = str(rng.choice(["epsilon", "epsilon", "huber", "squared"]))
        p["epsilon"] = float(
            rng.choice([0.1, 1e-3, 0.5]) * (np.abs(y).max() if rng.rand() < 0.5 else 1)
        )
        p["slack"] = 1 if p["loss"] != "epsilon" else p["slack"]
    if "OneClass" in name:
        p["nu"], p["slack"] = float(rng.uniform(0.01, 1)), int(rng.choice([1, 2]))
        p["normalize"] = "trace" if p["normalize"] == "centered" else p["normalize"]
    if name == "BilinearMKLClassifier":
        p["solver"] = str(rng.choice(["newton", "quasi_newton", "projected_gradient"]))
    if name == "DiscriminantMKLClassifier":
        p["solver"] = str(rng.choice(_FORMULATIONS))
        p["alpha"] = "learn" if rng.rand() < 0.3 else float(10.0 ** rng.uniform(-12, 3))
        p["alpha"] = 1e-3 if p["solver"] == "kim" else p["alpha"]
    if name == "PosteriorMKLClassifier":
        p.pop("tol", None)
