"""Weights and ridge by leave-one-out error or evidence: seconds of whole fits, beside searches and
Gaussian processes.

    PYTHONPATH=src python benchmarks/ridge.py [--parts small features large] [--device cuda]

Small: n = 1,000 and 3,000, six kernels, beside `GridSearchCV(SVR)` over 40 points, scikit-learn's
Gaussian process and, if it is installed, GPyTorch's. Features: 100,000 samples, six kernels of 300
features. Large, on a device: 10,000 samples and ten kernels exactly, a million samples and ten
kernels of 300 features. Every row is one fit from raw numbers; the first fit of the process, of 50
samples, compiles and is not counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from common import describe_machine, print_table
from sklearn.datasets import make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from kernelmosaic import MKLRidgeCV
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, family

SIX = [Linear(), Polynomial(), *family(Gaussian(), factor=[0.5, 1, 2, 4])]
TEN = family(Gaussian(), factor=np.geomspace(0.25, 8, 10))


def make(n: int) -> tuple[np.ndarray, np.ndarray]:
    return make_friedman1(n, n_features=20, noise=1.0, random_state=0)


def timed(fit: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = fit()
    return time.perf_counter() - start, found


def rows_of(name: str, n: int, model: Any) -> list[Any]:
    X, y = make(n + 1000)
    seconds, fitted = timed(lambda: model.fit(X[:n], y[:n]))
    evaluations = getattr(fitted, "n_iter_", "")
    return [name, n, f"{seconds:.1f}", evaluations, f"{fitted.score(X[n:], y[n:]):.4f}"]


def searched() -> Any:
    grid = {"svr__C": np.logspace(-1, 3, 5), "svr__gamma": np.logspace(-3, 0, 8)}
    return GridSearchCV(make_pipeline(StandardScaler(), SVR()), grid, cv=5)


def process() -> Any:
    kernel = ConstantKernel() * RBF(3.0) + WhiteKernel()
    return make_pipeline(
        StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1)
    )


class GPyTorchProcess:
    """GPyTorch's exact process with one Gaussian kernel, 100 steps of Adam, as in its
    documentation."""

    def __init__(self, device: str) -> None:
        self.device = device

    def fit(self, X: np.ndarray, y: np.ndarray) -> GPyTorchProcess:
        import gpytorch
        import torch

        self.centre, self.spread, self.mean, self.unit = X.mean(0), X.std(0), y.mean(), y.std()
        A = torch.as_tensor((X - self.centre) / self.spread, device=self.device)
        b = torch.as_tensor((y - self.mean) / self.unit, device=self.device)

        class Process(gpytorch.models.ExactGP):  # type: ignore[misc]
            def __init__(self, likelihood: Any) -> None:
                super().__init__(A, b, likelihood)
                self.mean_module = gpytorch.means.ConstantMean()
                self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

            def forward(self, x: Any) -> Any:
                return gpytorch.distributions.MultivariateNormal(
                    self.mean_module(x), self.covar_module(x)
                )

        self.likelihood = gpytorch.likelihoods.GaussianLikelihood().double().to(self.device)
        self.model = Process(self.likelihood).double().to(self.device)
        self.model.train()
        optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        marginal = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood, self.model)
        for _ in range(100):
            optimizer.zero_grad()
            loss = -marginal(self.model(A), b)
            loss.backward()
            optimizer.step()
        self.model.eval()
        return self

    def score(self, X: np.ndarray, y: np.ndarray) -> float:
        import torch

        with torch.no_grad():
            A = torch.as_tensor((X - self.centre) / self.spread, device=self.device)
            found = self.model(A).mean.cpu().numpy() * self.unit + self.mean
        return float(1 - np.sum((y - found) ** 2) / np.sum((y - y.mean()) ** 2))


def small() -> list[list[Any]]:
    rows = [
        rows_of(f"MKLRidgeCV, {c}, six kernels", n, MKLRidgeCV(SIX, criterion=c))
        for n in (1000, 3000)
        for c in ("loo", "evidence")
    ]
    rows.append(rows_of("MKLRidgeCV(), 20 kernels", 1000, MKLRidgeCV()))
    rows.append(rows_of("GridSearchCV(SVR), 40 points", 1000, searched()))
    rows.append(rows_of("GaussianProcessRegressor", 1000, process()))
    try:
        import gpytorch  # noqa: F401
    except ImportError:
        return rows
    return [*rows, rows_of("GPyTorch, one kernel, 100 steps", 1000, GPyTorchProcess("cpu"))]


def features() -> list[list[Any]]:
    params: Any = {"approximation": "nystroem", "rank": 300, "random_state": 0}
    return [
        rows_of(
            f"MKLRidgeCV, {c}, six kernels of 300 features",
            100_000,
            MKLRidgeCV(SIX, criterion=c, **params),
        )
        for c in ("loo", "evidence")
    ]


def large(device: str) -> list[list[Any]]:
    params: Any = {"approximation": "nystroem", "rank": 300, "random_state": 0, "device": device}
    rows_of("warm", 3000, MKLRidgeCV(TEN, device=device))
    rows = [
        rows_of(
            f"MKLRidgeCV, {c}, ten kernels", 10_000, MKLRidgeCV(TEN, criterion=c, device=device)
        )
        for c in ("loo", "evidence")
    ]
    with suppress(ImportError):
        rows.append(rows_of("GPyTorch, one kernel, 100 steps", 10_000, GPyTorchProcess(device)))
    for c in ("loo", "evidence"):
        model = MKLRidgeCV(TEN, criterion=c, **params)
        rows.append(rows_of(f"MKLRidgeCV, {c}, ten kernels of 300 features", 1_000_000, model))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--parts", nargs="+", default=["small", "features"], choices=["small", "features", "large"]
    )
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    X, y = make(50)
    MKLRidgeCV(SIX).fit(X, y)
    print(describe_machine())
    for part in options.parts:
        rows = (
            large(options.device)
            if part == "large"
            else {"small": small, "features": features}[part]()
        )
        print_table(part, ["fit", "n", "s", "evaluations", "R² of 1,000 others"], rows)


if __name__ == "__main__":
    main()
