"""Learned kernels of low rank beside what users do instead: scikit-learn's `Nystroem` and
`LinearSVC`.

    PYTHONPATH=. python benchmarks/lowrank.py [--repeats 3] [--rank 200] [--parts gaussians a9a
    sparse]

Three Gaussian kernels of rank r against one of rank 3 r, fitted in turns. CPU seconds, the best of
the repeats: the process is limited to one BLAS thread, since those of OpenBLAS count the time for
which they wait for each other. The pipeline is given its kernel; MKL learns the weights of its
three to a certified gap of 1e-3. `LinearSVC` squares the hinge loss, as `slack=2` does. a9a is read
from the folder KERNELMOSAIC_DATA or fetched.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import describe_machine, print_table
from scipy import sparse
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Gaussian, family
from reproduction.data import load

Split = tuple[Any, np.ndarray, Any, np.ndarray]


def gaussians() -> Split:
    """Two labels of 20 columns, three of which count."""
    rng = np.random.RandomState(0)
    X = rng.standard_normal((50_000, 20))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(len(X))
    y = np.where(f > 0, 1, -1)
    return X[:40_000], y[:40_000], X[40_000:], y[40_000:]


def a9a() -> Split:
    """Adult, 14 of 123 columns are one in every row, with the published split."""
    data = load("a9a")
    X, y, train, test = data.data, data.target, data.train, data.test
    return X[train], y[train], X[test], y[test]


def sparse_a9a() -> Split:
    X, y, X_test, y_test = a9a()
    return sparse.csr_matrix(X), y, sparse.csr_matrix(X_test), y_test


def pipelines(rank: int, C: float, width: float) -> dict[str, Callable[[], Any]]:
    """The estimators by name, each made anew for every fit."""
    kernels = family(Gaussian(), factor=[1, 2, 4])

    def mkl(slack: int) -> Any:
        return MKLClassifier(
            kernels, C=C, slack=slack, approximation="nystroem", rank=rank, random_state=0
        )

    def given(gamma: float | None) -> Any:
        return make_pipeline(
            Nystroem(n_components=3 * rank, gamma=gamma, random_state=0), LinearSVC(C=C)
        )

    return {
        "Nystroem + LinearSVC, default width": lambda: given(None),
        **{
            f"Nystroem + LinearSVC, width {f} × median": lambda f=f: given((f * width) ** -2)
            for f in (1, 2, 4)
        },
        "MKLClassifier(slack=1)": lambda: mkl(1),
        "MKLClassifier(slack=2)": lambda: mkl(2),
    }


def compare(title: str, split: Split, rank: int, C: float, repeats: int) -> None:
    X, y, X_test, y_test = split
    some = X[:1000].toarray() if sparse.issparse(X) else X[:1000]
    width = float(np.median(np.linalg.norm(some[:500, None] - some[None, 500:], axis=2)))
    makers = pipelines(rank, C, width)
    seconds: dict[str, list[float]] = {name: [] for name in makers}
    rows = []
    for repeat in range(repeats):
        for name, make in makers.items():
            model = make()
            start = time.process_time()
            model.fit(X, y)
            seconds[name].append(time.process_time() - start)
            if repeat == repeats - 1:
                learned = hasattr(model, "weights_")
                weights = (
                    " ".join(f"{one:.2f}" for one in np.ravel(model.weights_)) if learned else ""
                )
                gap = f"{model.duality_gap_:.0e}" if learned else ""
                rows.append((name, f"{100 * model.score(X_test, y_test):.2f}", weights, gap))
    best = {name: min(times) for name, times in seconds.items()}
    unit = min(best[name] for name in best if "LinearSVC" in name)
    table = [(name, f"{best[name]:.2f}", f"{best[name] / unit:.2f}", *rest) for name, *rest in rows]
    heads = ("", "CPU s", "to the fastest pipeline", "% right", "weights", "gap")
    print_table(
        f"{title}: {X.shape[0]} × {X.shape[1]}, total rank {3 * rank}, C = {C}", heads, table
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sets = {"gaussians": gaussians, "a9a": a9a, "sparse": sparse_a9a}
    parser.add_argument("--parts", nargs="+", default=list(sets), choices=list(sets))
    parser.add_argument(
        "--rank", type=int, default=None, help="of each of the three kernels; default 100, a9a 200"
    )
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(describe_machine())
    with threadpool_limits(1):
        X, y, *_ = gaussians()
        for slack in (1, 2):  # compiled loops are compiled here
            MKLClassifier(
                family(Gaussian(), factor=[1, 2, 4]), slack=slack, approximation="nystroem", rank=50
            ).fit(X[:3000], y[:3000])
        for name in options.parts:
            rank = options.rank or (100 if name == "gaussians" else 200)
            compare(name, sets[name](), rank, options.C, options.repeats)


if __name__ == "__main__":
    main()
