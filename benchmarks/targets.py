"""Weights and ridge of every target: seconds, test R² and error of the shares, beside himalaya.

    PYTHONPATH=src python benchmarks/targets.py [--sizes 1000,4,1000] [--seed 1] [--himalaya FOLDER]
    PYTHONPATH=src python benchmarks/targets.py --device cuda --sizes 1000,4,10000 3000,5,10000
    3000,5,100000

A size is samples, views, targets. Target t is Σ_m √W_tm g_tm + noise, its shares W_t drawn from a
Dirichlet distribution of concentration ½, g_tm linear in view m with normal coefficients; targets
are standardised. Its best weights are W_t and its best ridge is that of the noise, so the R² of an
oracle is known. himalaya 0.4.11 is run if it is installed, or lies in a folder (pip install
--target FOLDER --no-deps himalaya==0.4.11): random search over 20 and over 100 draws of the weights
with 17 ridges, five folds, and its hyper-gradient. Both read the same kernel matrices, in single
precision; only the fit is timed. Of 100,000 targets himalaya is run with 20 draws, in batches of
10,000.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from common import describe_machine, print_table
from scipy.linalg import solve

from kernelmosaic import MKLRidgeCV
from kernelmosaic.kernels import Linear, Precomputed

COLUMNS = (200, 300, 100, 400, 150)
TESTED = 500


class Data(NamedTuple):
    """Views and kernels of all samples, those to test on last, and targets of both."""

    views: list[np.ndarray]
    kernels: list[np.ndarray]
    Y: np.ndarray
    Y_test: np.ndarray
    shares: np.ndarray


def make(n: int, n_views: int, n_targets: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    views = [rng.normal(size=(n + TESTED, d)).astype(np.float32) for d in COLUMNS[:n_views]]
    shares = rng.dirichlet(np.full(n_views, 0.5), size=n_targets).astype(np.float32)
    Y = rng.normal(size=(n + TESTED, n_targets)).astype(np.float32)
    for m, X in enumerate(views):
        coefficients = rng.normal(size=(X.shape[1], n_targets)).astype(np.float32) / np.sqrt(
            X.shape[1]
        )
        Y += np.sqrt(shares[:, m]) * (X @ coefficients)
    Y = (Y - Y[:n].mean(axis=0)) / Y[:n].std(axis=0)
    kernels = [X @ X.T / np.mean((X[:n] ** 2).sum(axis=1)) for X in views]
    return Data(views, kernels, Y[:n], Y[n:], shares)


def mean_score(Y: np.ndarray, F: np.ndarray) -> float:
    return float(np.mean(1 - ((Y - F) ** 2).sum(axis=0) / ((Y - Y.mean(axis=0)) ** 2).sum(axis=0)))


def oracle(data: Data, most: int = 200) -> float:
    """The mean R² of the best weights and ridge, over the first targets."""
    n, some, F = len(data.Y), slice(0, most), []
    for t, share in enumerate(data.shares[some].astype(np.float64)):
        K = sum(one * part for one, part in zip(share, data.kernels, strict=True))
        F.append(K[n:, :n] @ solve(K[:n, :n] + np.eye(n), data.Y[:, t], assume_a="pos"))
    return mean_score(data.Y_test[:, some], np.array(F).T)


class Clock:
    """Seconds that have passed, and of processors: on a busy machine the second are to be
    compared."""

    def __init__(self) -> None:
        self.start = time.perf_counter(), time.process_time()

    def stop(self) -> list[str]:
        return [
            f"{end - start:.1f}"
            for start, end in zip(
                self.start, (time.perf_counter(), time.process_time()), strict=True
            )
        ]


def row(name: str, seconds: list[str], F: np.ndarray, ratios: np.ndarray, data: Data) -> list[Any]:
    shares = ratios / ratios.sum(axis=1, keepdims=True)
    error = np.abs(shares - data.shares).mean()
    first = mean_score(data.Y_test[:, :200], F[:, :200])
    found = [name, *seconds, f"{mean_score(data.Y_test, F):.4f}", f"{first:.4f}", f"{error:.4f}"]
    print(*found, sep=" | ", flush=True)
    return found


def ours(
    data: Data, device: str | None, criterion: str, by_columns: bool, candidates: int = 210
) -> list[Any]:
    n = len(data.Y)
    if by_columns:
        X = np.concatenate(data.views, axis=1)
        ends = np.cumsum([one.shape[1] for one in data.views])
        views = [
            (f"view {m}", Linear(), np.arange(e - data.views[m].shape[1], e))
            for m, e in enumerate(ends)
        ]
    else:
        views = [(f"view {m}", Precomputed(K)) for m, K in enumerate(data.kernels)]
        X = np.arange(n + TESTED)[:, np.newaxis]
    params: Any = {
        "criterion": criterion,
        "n_candidates": candidates,
        "device": device,
        "random_state": 0,
    }
    model = MKLRidgeCV(views, per_target=True, scale=False, normalize=None, **params)
    clock = Clock()
    model.fit(X[:n], data.Y)
    seconds = clock.stop()
    name = (
        f"MKLRidgeCV, {criterion}, {'columns' if by_columns else 'matrices'}, {model.n_iter_}"
        " candidates"
    )
    factors = [np.mean(np.sum(one[:n] ** 2, axis=1)) for one in data.views] if by_columns else 1.0
    return row(name, seconds, model.predict(X[n:]), model.weights_ * factors, data)


def theirs(data: Data, device: str | None, solver: str, n_iter: int | None) -> list[Any]:
    from himalaya.backend import set_backend
    from himalaya.kernel_ridge import MultipleKernelRidgeCV

    backend = set_backend("numpy" if device is None else "torch_cuda")
    params: dict[str, Any] = {
        "progress_bar": False,
        "n_targets_batch": 10_000 if data.Y.shape[1] > 10_000 else None,
    }
    if n_iter:
        params |= {"n_iter": n_iter, "alphas": np.logspace(-3, 5, 17)}
    model = MultipleKernelRidgeCV(
        kernels="precomputed", solver=solver, solver_params=params, cv=5, random_state=0
    )
    n, K = len(data.Y), np.array(data.kernels)
    clock = Clock()
    model.fit(backend.asarray(K[:, :n, :n]), backend.asarray(data.Y))
    deltas = backend.to_numpy(model.deltas_)  # waits for the device
    seconds = clock.stop()
    F = backend.to_numpy(model.predict(backend.asarray(K[:, n:, :n])))
    name = f"himalaya, {solver}" + (f", {n_iter} draws" if n_iter else "")
    return row(name, seconds, F, np.exp(deltas).T, data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["1000,4,1000"], help="samples,views,targets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", help="cuda, for both; the host by default")
    parser.add_argument(
        "--himalaya", help="a folder that holds the package, if it is not installed"
    )
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="himalaya")
    if options.himalaya:
        sys.path.append(options.himalaya)
    small = make(100, 3, 20, 0)
    for by_columns in (False, True):
        ours(small, options.device, "loo", by_columns)  # compiles
    print(describe_machine())
    for size in options.sizes:
        n, n_views, n_targets = map(int, size.split(","))
        data = make(n, n_views, n_targets, options.seed)
        rows = []
        kinds: list[Any] = [("loo", False, 70), ("loo", False), ("evidence", False)] + [
            ("loo", True)
        ] * (sum(COLUMNS[:n_views]) < n)
        rows += [ours(data, options.device, *kind) for kind in kinds]
        try:
            runs = [("random_search", 20), ("random_search", 100), ("hyper_gradient", None)]
            rows += [
                theirs(data, options.device, *one)
                for one in (runs if n_targets <= 10_000 else runs[:1])
            ]
        except ImportError:
            print("himalaya is not installed: it is left out")
        rows.append(["oracle, first 200 targets", "", "", "", f"{oracle(data):.4f}", "0"])
        heads = ["fit", "s", "processor s", "R²", "R², first 200", "mean error of shares"]
        print_table(
            f"{n} samples, {n_views} views, {n_targets} targets, seed {options.seed}", heads, rows
        )


if __name__ == "__main__":
    main()
