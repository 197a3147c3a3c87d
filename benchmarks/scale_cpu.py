"""Low-rank learning as the number of samples grows: seconds, passes over the rows, growth, and the
floor.

    python benchmarks/scale_cpu.py [--quick] [--largest N] [--parts growth exact dask]

Ten Gaussian kernels, widths log-uniform on [0.5, 20], Nyström features, ℓ1 weights, gap ≤ 1e-3. The
floor is what the products [Z, 1]ᵀΘ[Z, 1] of the interior-point steps alone would take at the rate
that this machine multiplies large matrices. A second table sets the approximated problem beside the
exact one, a third the same fit with its rows on the processes of a local Dask cluster beside the
plain fit.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
from common import best_time, describe_machine, print_table

from kernelmosaic import MKLClassifier
from kernelmosaic.gram.factory import make_feature_stack
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import StackFactors
from kernelmosaic.gram.row_blocks import open_rows
from kernelmosaic.kernels import Gaussian, family
from kernelmosaic.kernels.views import lay_specs, read_kernels
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import make_norm
from kernelmosaic.learning.problem import LearnerOptions
from kernelmosaic.machines.base import SVC

WIDTHS = list(np.geomspace(0.5, 20, 10))


def samples(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(0)
    X = rng.standard_normal((n, 10))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(n)
    return X, np.where(f > 0, 1.0, -1.0)


def multiply_rate() -> float:
    """Return flops a second of a large matrix product."""
    B = np.random.RandomState(0).standard_normal((4000, 1000))
    return 1000 * 1000 * 4000 / best_time(lambda: B.T @ B)


@dataclass
class Counter:
    """Counts the flops of the products that form Newton matrices."""

    flops: float = 0.0

    def __enter__(self) -> Counter:
        self.original = StackFactors.normal_matrix
        original, counter = self.original, self

        def counted(gram: StackFactors, theta: np.ndarray, precise: bool = False) -> np.ndarray:
            counter.flops += float(np.count_nonzero(theta)) * (gram.n_features + 1) ** 2
            return original(gram, theta, precise)

        StackFactors.normal_matrix = counted
        return self

    def __exit__(self, *_: object) -> None:
        StackFactors.normal_matrix = self.original


@dataclass(frozen=True)
class Run:
    n: int
    rank: int
    features: float
    learning: float
    passes: float
    solves: int
    gap: float
    floor: float


def one_run(n: int, rank: int, rate: float) -> Run:
    X, y = samples(n)
    rows, specs = open_rows(X), lay_specs(read_kernels(family(Gaussian(), width=WIDTHS)), X)
    start = time.perf_counter()
    kernel_set = FeatureMaps.fit(specs, rows, "trace", rank=rank, random_state=0)
    stack = make_feature_stack(kernel_set, rows)
    filled = time.perf_counter()
    with Counter() as counter:
        learned = Newton(LearnerOptions(make_norm(1), np.ones(10), 1e-3, 100)).learn(
            stack, SVC(y, 1.0)
        )
    done = time.perf_counter()
    floor = counter.flops / rate
    return Run(
        n,
        rank,
        filled - start,
        done - filled,
        stack.rows_read / n,
        learned.n_solves,
        learned.gap,
        floor,
    )


def growth(rank: int, sizes: list[int], rate: float) -> None:
    runs = [one_run(n, rank, rate) for n in sizes]
    table = []
    for before, run in zip([None, *runs[:-1]], runs, strict=True):
        total = run.features + run.learning
        slope = ""
        if before is not None:
            slope = f"{np.log(total / (before.features + before.learning)) / np.log(run.n / before.n):.2f}"
        seconds = f"{run.features:.2f}", f"{run.learning:.2f}", slope
        floor = f"{run.floor:.2f}", f"{run.learning / run.floor:.1f}"
        table.append((run.n, *seconds, f"{run.passes:.0f}", run.solves, f"{run.gap:.1e}", *floor))
    heads = (
        "n",
        "features s",
        "learning s",
        "growth",
        "passes",
        "solves",
        "gap",
        "floor s",
        "learning / floor",
    )
    print_table(f"10 kernels × {rank} features", heads, table)


def against_exact(n: int, ranks: list[int]) -> None:
    X, y = samples(2 * n)
    kernels = family(Gaussian(), width=WIDTHS)
    rows = []
    for rank in [*ranks, None]:
        model = MKLClassifier(
            kernels, approximation=None if rank is None else "nystroem", rank=rank, random_state=0
        )
        start = time.perf_counter()
        model.fit(X[:n], y[:n])
        seconds = time.perf_counter() - start
        score = model.score(X[n:], y[n:])
        rows.append(
            (
                rank or "exact",
                f"{seconds:.2f}",
                f"{score:.4f}",
                f"{model.objective_:.1f}",
                len(model.support_),
            )
        )
    print_table(
        f"n = {n}, tested on as many", ("rank", "seconds", "accuracy", "objective", "support"), rows
    )


def on_workers(n: int, rank: int, counts: list[int]) -> None:
    """Fit with the rows on 1, 2, … processes of this machine, each with one thread, and compare
    with the plain fit."""
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    X, y = samples(n)
    model = MKLClassifier(
        family(Gaussian(), width=WIDTHS), approximation="nystroem", rank=rank, random_state=0
    )
    start = time.perf_counter()
    model.fit(X, y)
    plain = time.perf_counter() - start
    rows = [
        ("plain", f"{plain:.2f}", "1.00", f"{model.objective_:.3f}", f"{model.duality_gap_:.1e}")
    ]
    with dask.config.set({"distributed.comm.timeouts.connect": "60s"}):
        for count in counts:
            with (
                LocalCluster(
                    n_workers=count, threads_per_worker=1, dashboard_address=None
                ) as cluster,
                Client(cluster),
            ):
                away = da.from_array(X, chunks=(-(-n // (2 * count)), X.shape[1])).persist()
                start = time.perf_counter()
                model.fit(away, y)
                seconds = time.perf_counter() - start
            found = f"{model.objective_:.3f}", f"{model.duality_gap_:.1e}"
            rows.append((count, f"{seconds:.2f}", f"{seconds / plain:.2f}", *found))
    heads = ("workers", "seconds", "to plain", "objective", "gap")
    print_table(f"Dask: n = {n}, 10 kernels × {rank} features", heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute")
    parser.add_argument("--largest", type=int, default=200_000, help="most samples")
    parts = ["growth", "exact", "dask"]
    parser.add_argument("--parts", nargs="+", default=parts, choices=parts)
    options = parser.parse_args()
    print(describe_machine())
    one_run(500, 10, 1.0)  # compiled loops are compiled here
    rate = multiply_rate()
    print(f"{rate / 1e9:.0f} GFlop/s in symmetric products")
    sizes = [1000, 4000] if options.quick else [1000, 5000, 20_000, 50_000, 200_000]
    if "growth" in options.parts:
        for rank in (30,) if options.quick else (50, 100):
            growth(rank, [n for n in sizes if n <= options.largest], rate)
    if "exact" in options.parts:
        against_exact(
            1000 if options.quick else 5000, [30, 100] if options.quick else [50, 100, 300]
        )
    if "dask" in options.parts:
        on_workers(*((4000, 30, [1, 2]) if options.quick else (50_000, 100, [1, 2, 4])))


if __name__ == "__main__":
    main()
