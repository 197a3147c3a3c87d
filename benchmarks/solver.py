"""The solver against LIBSVM on precomputed kernels: cold, warm, and in memory.

    python benchmarks/solver.py [--quick]

The kernel is the mean of ten Gaussians whose widths are log-uniform on [0.1, 100]. LIBSVM stops at its default violation of
1e-3, we at a relative duality gap of 1e-3; since a violation and a gap are not the same thing, a second column asks us for at
least the gap that LIBSVM's own solution has. Times are the best of some runs, alternating.
"""

from __future__ import annotations

import argparse
import tracemalloc

import numpy as np
from common import best_time, describe_machine, geometric_mean, print_table
from sklearn.datasets import make_classification
from sklearn.svm import SVC as LibSVM

from kernelmosaic.datasets import make_gaussians, make_waveform
from kernelmosaic.gram import KernelBank, Mosaic, make_bank
from kernelmosaic.kernels import Gaussian, family
from kernelmosaic.kernels.views import lay_tiles, read_kernels
from kernelmosaic.machines import SVC
from kernelmosaic.solvers import certify


def classification(n: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(n, 20, n_informative=10, flip_y=0.05, random_state=0)
    return X, np.where(y == 1, 1.0, -1.0)


def gaussians(n: int) -> tuple[np.ndarray, np.ndarray]:
    return make_gaussians(n_components=4, n_samples=n, random_state=0)


def waveform(n: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_waveform(n, random_state=0)
    return X, np.where(y == 0, 1.0, -1.0)


DATA = {"classification": classification, "GAUSS4": gaussians, "waveform": waveform}


def build_bank(name: str, n: int) -> tuple[KernelBank, np.ndarray]:
    X, y = DATA[name](n)
    X = (X - X.mean(0)) / X.std(0)
    kernels = family(Gaussian(), width=list(np.logspace(-1, 2, 10)))
    mosaic = Mosaic.fit(lay_tiles(read_kernels(kernels), X), X, "trace")
    return make_bank(mosaic, mosaic.views(X), dtype=np.float32), np.asarray(y, dtype=float)


def their_gap(K: np.ndarray, y: np.ndarray, C: float) -> float:
    machine = LibSVM(C=C, kernel="precomputed").fit(K, y)
    beta = np.zeros(len(y))
    beta[machine.support_] = machine.dual_coef_[0]
    return certify(SVC(y, C).program, beta, K @ beta, 0).gap


def cold_and_warm(sizes: tuple[int, ...], names: tuple[str, ...]) -> None:
    rows, ratios, fair, warm = [], [], [], []
    weights = np.full(10, 0.1)
    moved = weights * (1 + 0.05 * np.random.default_rng(0).choice([-1.0, 1.0], 10))
    for name in names:
        for n in sizes:
            bank, y = build_bank(name, n)
            K32, M32 = bank.combine(weights), bank.combine(moved)
            K64 = K32.astype(np.float64)
            repeats = 3 if n <= 3000 else 1
            for C in (1.0, 10.0, 100.0):
                machine = SVC(y, C)
                gap = their_gap(K64, y, C)
                theirs = best_time(lambda: LibSVM(C=C, kernel="precomputed").fit(K64, y), repeats)  # noqa: B023
                ours = best_time(lambda: machine.solve(K32), repeats)  # noqa: B023
                double = best_time(lambda: machine.solve(K64), repeats)  # noqa: B023
                equal = best_time(lambda: machine.solve(K32, tol=min(gap, 1e-3)), repeats)  # noqa: B023
                beta = machine.solve(K32).beta
                cold = best_time(lambda: machine.solve(M32), repeats)  # noqa: B023
                again = best_time(lambda: machine.solve(M32, warm_start=beta), repeats)  # noqa: B023
                ratios.append(ours / theirs)
                fair.append(equal / theirs)
                warm.append(again / cold)
                rows.append(
                    (name, n, C, f"{theirs:.3f}", f"{gap:.0e}", f"{ours:.3f}", f"{ours / theirs:.2f}")
                    + (f"{double / theirs:.2f}", f"{equal / theirs:.2f}", f"{again / cold:.2f}")
                )
    heads = ("data", "n", "C", "LIBSVM s", "its gap", "ours s", "ratio", "in double", "at its gap", "warm / cold")
    print_table(
        "Cold solves against LIBSVM (at most 1.0), and warm re-solves after the weights move 5 % (at most 0.3)",
        heads,
        rows,
    )
    print(
        f"geometric means: {geometric_mean(ratios):.2f} of LIBSVM's time at a gap of 1e-3, {geometric_mean(fair):.2f} at "
        f"LIBSVM's own gap; warm re-solve {geometric_mean(warm):.2f} of a cold one\n"
    )


def memory(n: int) -> None:
    """Peak of building the bank, combining it and solving, beside the bank plus one combined matrix."""
    build_bank("GAUSS4", 100)[0].combine(np.ones(10))
    tracemalloc.start()
    bank, y = build_bank("GAUSS4", n)
    K = bank.combine(np.full(10, 0.1))
    SVC(y, 10.0).solve(K)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    allowed = bank.matrices.nbytes + K.nbytes
    print(
        f"peak memory at n = {n}: {peak / 2**20:.0f} MiB, the bank plus one combined matrix: {allowed / 2**20:.0f} MiB ({peak / allowed:.3f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="n = 1000 and 3000, one data set")
    quick = parser.parse_args().quick
    print(describe_machine())
    for K in (np.eye(20, dtype=np.float32), np.eye(20)):
        SVC(np.resize([1.0, -1.0], 20)).solve(K)
    cold_and_warm((1000, 3000) if quick else (1000, 3000, 10000), ("classification",) if quick else tuple(DATA))
    memory(1000 if quick else 3000)


if __name__ == "__main__":
    main()
