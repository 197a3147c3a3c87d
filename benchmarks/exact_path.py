"""The exact path of C beside fifty fits on a grid: breakpoints, seconds, and what a grid misses.

    PYTHONPATH=. python benchmarks/exact_path.py [--sizes 100 200 400]

A Gaussian kernel of median width on GAUSS4, C from 0.01 to 1000. Seconds of the path and of LIBSVM
on the grid, in one run and one thread; the best validation accuracy on the path, at all
breakpoints, beside that on the grid.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.svm import SVC

from kernelmosaic.datasets import make_gaussians
from reproduction.exact_path import support_vector_path


def measure(n: int, seed: int) -> dict[str, float]:
    """Return figures of one draw."""
    X, y = make_gaussians(n_components=4, n_samples=n + 2000, random_state=seed)
    y = np.where(y == y.max(), 1, -1)
    distances = euclidean_distances(X, X[:n], squared=True)
    K = np.exp(-distances / np.median(distances[:n][~np.eye(n, dtype=bool)]))
    train, new, truth = K[:n] + 1e-8 * np.eye(n), K[n:], y[n:]
    start = perf_counter()
    path = support_vector_path(train, y[:n])
    followed = perf_counter() - start
    start = perf_counter()
    Cs = np.geomspace(path.Cs[0], path.Cs[-1], 50)
    machines = [SVC(C=C, kernel="precomputed").fit(train, y[:n]) for C in Cs]
    fitted = perf_counter() - start
    outputs = new @ (path.y * path.alpha).T + path.intercepts
    exact = np.mean(np.sign(outputs) == truth[:, np.newaxis], axis=0).max()
    grid = max(machine.score(new, truth) for machine in machines)
    return {
        "breakpoints": len(path.Cs),
        "path s": followed,
        "grid s": fitted,
        "path %": 100 * exact,
        "grid %": 100 * grid,
    }


def main() -> None:
    """Print a table of means over three draws."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 200, 400])
    for n in parser.parse_args().sizes:
        rows = [measure(n, seed) for seed in range(3)]
        print(
            n,
            "  ".join(f"{name} {np.mean([row[name] for row in rows]):.4g}" for name in rows[0]),
            flush=True,
        )


if __name__ == "__main__":
    main()
