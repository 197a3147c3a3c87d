"""Random problems of many linear kernels of single columns, whose machines have many solutions at
the best weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.campaign.certificates import check_fit
from tests.campaign.problems import DrawnKernel, DrawnProblem

from kernelmosaic.kernels import Gaussian, Linear

__all__ = ["KinkProblem", "check_fit", "draw"]


@dataclass(frozen=True)
class KinkProblem(DrawnProblem):
    """One fit whose gap must close.

    Attributes
    ----------
    moderate : bool
        True: nothing is so extreme that rounding would explain a gap.
    """

    moderate: bool = True

    def __str__(self) -> str:
        given = ", ".join(
            f"{key}={value!r}" for key, value in self.parameters.items() if key != "penalties"
        )
        return f"{self.name}({given}) on {len(self.X)} samples with {len(self.kernels)} kernels"


def draw(seed: int, index: int) -> KinkProblem:
    """Return problem number `index` of a seed."""
    rng = np.random.default_rng([seed, index, 5])
    n = int(rng.choice([20, 40, 80, 140], p=[0.2, 0.4, 0.3, 0.1]))
    m = int(rng.choice([2, 5, 10, 30, 60, 100], p=[0.1, 0.15, 0.2, 0.3, 0.2, 0.05]))
    X = _columns(rng, n, m)
    score = X @ (rng.normal(size=m) * (rng.random(m) < 0.3))
    score = score / (score.std() or 1.0) + rng.choice([0.1, 0.7]) * rng.normal(size=n)
    name = str(rng.choice(["MKLClassifier", "MKLRegressor"], p=[0.6, 0.4]))
    parameters: dict[str, Any] = {
        "C": 10.0 ** float(rng.uniform(-2, 3)),
        "solver": str(rng.choice(["newton", "silp", "reduced_gradient"], p=[0.8, 0.1, 0.1])),
        "normalize": [None, "trace"][int(rng.integers(2))],
        "norm": 1,
        "slack": 1,
    }
    if rng.random() < 0.2:
        parameters["tol"] = float(rng.choice([1e-2, 1e-5]))
    y: np.ndarray = score
    if name == "MKLClassifier":
        n_classes = int(rng.choice([2, 3], p=[0.7, 0.3]))
        y = np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes))
        parameters["multi_class"] = "ovr"
    else:
        parameters |= {"epsilon": float(rng.choice([0.0, 0.1, 0.5])), "loss": "epsilon"}
    kernels = [
        DrawnKernel(f"column{j}", Linear(), [j], lambda A, B: A @ B.T, 1e-13) for j in range(m)
    ]
    if rng.random() < 0.15:  # one kernel of full rank among those of single columns
        kernels.append(_gaussian(m))
    if rng.random() < 0.25:
        parameters["penalties"] = np.round(10.0 ** rng.uniform(-0.5, 0.5, len(kernels)), 6).tolist()
    weight = rng.integers(1, 4, n).astype(float) if rng.random() < 0.2 else None
    return KinkProblem(name, parameters, kernels, X, y, weight, X[:3] + 0.1, compare=False)


def _columns(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    kind = str(
        rng.choice(["independent", "correlated", "counts", "duplicated", "nearly duplicated"])
    )
    X = rng.normal(size=(n, m))
    if kind == "counts":
        X = rng.poisson(np.exp(X)).astype(float)
    if kind != "independent":
        X = X + 0.7 * rng.normal(size=(n, 1))
    if kind.endswith("duplicated"):
        half = m // 2
        X[:, m - half :] = X[:, :half]
        if kind.startswith("nearly"):
            X[:, m - half :] += 10.0 ** rng.uniform(-7, -2) * rng.normal(size=(n, half))
    scale = X.std(axis=0)
    return np.asarray((X - X.mean(axis=0)) / np.where(scale > 0, scale, 1.0))


def _gaussian(m: int) -> DrawnKernel:
    width = float(np.sqrt(m))

    def formula(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        squares = ((A[:, np.newaxis] - B) ** 2).sum(axis=2)
        return np.asarray(np.exp(-squares / width**2))

    return DrawnKernel("all", Gaussian(width), list(range(m)), formula, 1e-13)
