"""Learning the weights of ten Gaussian kernels: what it costs in LIBSVM fits, how it grows, and
what others take.

    python benchmarks/mkl.py [--quick] [--parts whole,cost,growth,peers] [--peers-python PYTHON]

whole   fits from samples or given matrices against LIBSVM fits, and filling the stack against its floor
cost    whole fits against one LIBSVM fit of the mean kernel, machine solves, and passes over the stored stack
growth  exponents of the time in the number of samples and of kernels
peers   plain SimpleMKL over LIBSVM, and the packages a user could install instead (see benchmarks/peers.py)

All ratios are taken in one run, on the same matrices, alternating.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import best_time, describe_machine, geometric_mean, print_table
from scipy.optimize import minimize_scalar
from sklearn.datasets import make_classification
from sklearn.svm import SVC as LibSVM

from kernelmosaic import MKLClassifier
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.stack import GramStack, make_stack
from kernelmosaic.kernels import Gaussian, Precomputed, family
from kernelmosaic.kernels.views import lay_specs, read_kernels
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import SumNorm
from kernelmosaic.learning.problem import LearnerOptions
from kernelmosaic.machines.base import SVC

GAP = 1e-3


def make_data(n_samples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(
        n_samples, 20, n_informative=10, flip_y=0.05, class_sep=1.0, random_state=seed
    )
    return (X - X.mean(0)) / X.std(0), np.where(y == 1, 1.0, -1.0)


def fit_mosaic(X: np.ndarray, n_kernels: int) -> KernelSet:
    kernels = family(Gaussian(), width=list(np.logspace(-1, 2, n_kernels)))
    return KernelSet.fit(lay_specs(read_kernels(kernels), X), X, "trace")


def build_stack(X: np.ndarray, n_kernels: int = 10, dtype: object = np.float32) -> GramStack:
    kernel_set = fit_mosaic(X, n_kernels)
    return make_stack(kernel_set, kernel_set.views(X), dtype=dtype)


def learn(stack: GramStack, y: np.ndarray, C: float):
    return Newton(LearnerOptions(SumNorm(), np.ones(stack.n_kernels), tol=GAP)).learn(
        stack, SVC(y, C)
    )


def cost(quick: bool) -> None:
    """(a), (b) and (e): LIBSVM fits, solves, and passes over the stack."""
    rows, ratios = [], []
    for n in (1000, 3000) if quick else (1000, 3000, 5000):
        X, y = make_data(n)
        start = time.perf_counter()
        stack = build_stack(X)
        gram = time.perf_counter() - start
        mean = np.asarray(stack.combine(np.full(10, 0.1)), dtype=float)
        one_pass = best_time(lambda stack=stack: stack.matrices.sum(), 3)
        for C in (1.0, 10.0):
            theirs, ours = [], []
            for _ in range(3):
                theirs.append(
                    best_time(
                        lambda C=C, K=mean, y=y: LibSVM(C=C, kernel="precomputed").fit(K, y), 1
                    )
                )
                start = time.perf_counter()
                learned = learn(stack, y, C)
                ours.append(time.perf_counter() - start)
            ratio = min(ours) / min(theirs)
            ratios.append(ratio)
            timed = (
                f"{gram:.2f}",
                f"{min(theirs):.3f}",
                f"{min(ours):.3f}",
                f"{ratio:.1f}",
                learned.n_solves,
            )
            passes = f"{min(ours) / one_pass:.1f}"
            rows.append(
                (n, C, *timed, f"{learned.gap:.1e}", passes, int(np.count_nonzero(learned.weights)))
            )
    print_table(
        "Ten Gaussian kernels to a gap of 1e-3: whole fits in LIBSVM fits of the mean kernel (at"
        " most 5, goal 3)",
        (
            "n",
            "C",
            "Gram s",
            "LIBSVM s",
            "MKL s",
            "ratio",
            "solves",
            "gap",
            "stack passes",
            "kernels",
        ),
        rows,
    )
    print(f"geometric mean of the ratios: {geometric_mean(ratios):.2f}\n")


def whole(quick: bool) -> None:
    """Whole fits, from X or from matrices to a fitted estimator, in LIBSVM fits; and the stack
    beside its floor.

    The second figure of each pair counts the processor's seconds: ours runs on all cores, LIBSVM on
    one.
    """
    rows, fills = [], []
    for n in (500, 1000, 3000) if quick else (500, 1000, 3000, 5000):
        X, y = make_data(n)
        kernels = family(Gaussian(), factor=list(np.logspace(-1, 1, 10)))
        theirs, ours = seconds_of(
            lambda X=X, y=y: LibSVM(C=1.0).fit(X, y),
            lambda X=X, y=y, kernels=kernels: MKLClassifier(kernels).fit(X, y),
        )
        rows.append(
            (n, "ten Gaussians from X, against its own RBF kernel", *compared(theirs, ours))
        )
        if n == 3000:
            fixed = [one.kernel(X) for one in fit_mosaic(X, 10).fitted]
            for widths, matrices in (
                ("fixed", fixed),
                ("median", [kernel.fit(X)(X) for kernel in kernels]),
            ):
                mean, at = np.mean(matrices, axis=0), np.arange(n).reshape(-1, 1)
                # New kernels for every fit: a matrix that a living one has checked is not checked
                # again.
                theirs, ours = seconds_of(
                    lambda K=mean, y=y: LibSVM(C=1.0, kernel="precomputed").fit(K, y),
                    lambda y=y, at=at, Ks=matrices: MKLClassifier([Precomputed(K) for K in Ks]).fit(
                        at, y
                    ),
                )
                what = f"ten given matrices, {widths} widths, first fit, against their mean"
                rows.append((n, what, *compared(theirs, ours)))
        fills.append((n, *filling(X)))
    print_table(
        "Whole fits in LIBSVM fits, C = 1 (from X at most 5, goal 3; given matrices at most 8)",
        ("n", "what", "LIBSVM s", "ours s", "ratio", "processor ratio"),
        rows,
    )
    print_table(
        "Filling the stack of ten Gaussians, processor seconds (at most twice the floor)",
        ("n", "precision", "stack", "exponentials", "writing", "times the floor"),
        fills,
    )


def seconds_of(*works: Callable[[], object]) -> list[tuple[float, float]]:
    """Return the least wall-clock and processor seconds of each, run in turns."""
    rounds = []
    for _ in range(5):
        taken = []
        for work in works:
            start = time.perf_counter(), time.process_time()
            work()
            taken.append((time.perf_counter() - start[0], time.process_time() - start[1]))
        rounds.append(taken)
    least = np.min(rounds, axis=0)
    return [(float(wall), float(processor)) for wall, processor in least]


def compared(theirs: tuple[float, float], ours: tuple[float, float]) -> tuple[str, ...]:
    return (
        f"{theirs[0]:.3f}",
        f"{ours[0]:.3f}",
        f"{ours[0] / theirs[0]:.1f}",
        f"{ours[1] / theirs[1]:.1f}",
    )


def filling(X: np.ndarray) -> tuple[str, ...]:
    """Return what the stack takes, and what its exponentials and the writing of its entries alone
    do."""
    n, dtype = len(X), np.float64 if len(X) <= 500 else np.float32
    kernel_set = fit_mosaic(X, 10)
    views = kernel_set.views(X)
    block = -np.random.default_rng(0).uniform(0, 5, size=(256, 256)).astype(dtype)
    out = np.empty_like(block)
    # By symmetry half of the exponentials are enough.
    blocks = range(max(1, 10 * n * (n + 1) // 2 // block.size))
    stack, exponentials, writing = seconds_of(
        lambda: make_stack(kernel_set, views, dtype=dtype),
        lambda: [np.exp(block, out=out) for _ in blocks],
        lambda: np.empty((10, n, n), dtype=dtype).fill(1.0),
    )
    times = (f"{taken[1]:.4f}" for taken in (stack, exponentials, writing))
    return np.dtype(dtype).name, *times, f"{stack[1] / (exponentials[1] + writing[1]):.1f}"


def growth(quick: bool) -> None:
    """(c): exponents in n and P by least squares on the logarithms."""
    sizes = (500, 1000, 2000) if quick else (500, 1000, 2000, 4000, 6000)
    times = []
    for n in sizes:
        X, y = make_data(n)
        stack = build_stack(X)
        times.append(best_time(lambda stack=stack, y=y: learn(stack, y, 1.0), 3))
    in_n = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    counts = (5, 10, 20, 40) if quick else (5, 10, 20, 40, 80)
    X, y = make_data(1000)
    stacks = (build_stack(X, P) for P in counts)
    by_count = [best_time(lambda stack=stack: learn(stack, y, 1.0), 3) for stack in stacks]
    in_p = np.polyfit(np.log(counts), np.log(by_count), 1)[0]
    print_table(
        "Growth with samples, 10 kernels, C = 1",
        ("n", "seconds"),
        [(n, f"{t:.3f}") for n, t in zip(sizes, times, strict=True)],
    )
    print(f"exponent in n: {in_n:.2f} (at most 2.2)\n")
    print_table(
        "Growth with kernels, n = 1000, C = 1",
        ("P", "seconds"),
        [(p, f"{t:.3f}") for p, t in zip(counts, by_count, strict=True)],
    )
    print(f"exponent in P: {in_p:.2f} (at most 1.0)\n")


def plain_simplemkl(matrices: np.ndarray, y: np.ndarray, C: float, max_iter: int = 50):
    """SimpleMKL as one would write it over LIBSVM: reduced gradient, golden-section line search, no
    warm start."""

    def solve(eta: np.ndarray):
        K = np.tensordot(eta, matrices, 1)
        machine = LibSVM(C=C, kernel="precomputed").fit(K, y)
        beta, support = machine.dual_coef_[0], machine.support_
        q = np.array([0.5 * beta @ K_m[np.ix_(support, support)] @ beta for K_m in matrices])
        return np.abs(beta).sum() - eta @ q, q, machine

    eta = np.full(len(matrices), 1.0 / len(matrices))
    value, q, machine = solve(eta)
    for _ in range(max_iter):
        if (q.max() - eta @ q) / abs(value) <= GAP:
            break
        top = int(np.argmax(eta))
        direction = np.where((eta <= 0) & (q - q[top] < 0), 0.0, q - q[top])
        direction[top] = -np.delete(direction, top).sum()
        while True:
            # As long as the value falls all the way to where a weight vanishes, go there and let it
            # stay at zero.
            falling = np.flatnonzero(direction < 0)
            first = falling[np.argmin(-eta[falling] / direction[falling])]
            longest = -eta[first] / direction[first]
            there = np.maximum(eta + longest * direction, 0)
            there[first] = 0.0
            reached = solve(there)[0]
            if reached >= value or first == top:
                break
            eta, value = there, reached
            direction[first] = 0.0
            direction[top] = -np.delete(direction, top).sum()
            if not np.any(direction < 0):
                break
        best = minimize_scalar(
            lambda s, eta=eta, direction=direction: solve(np.maximum(eta + s * direction, 0))[0],
            bounds=(0, longest),
            method="bounded",
            options={"xatol": 1e-2 * longest},
        )
        if best.fun < value:
            eta = np.maximum(eta + best.x * direction, 0)
        eta /= eta.sum()
        value, q, machine = solve(eta)
    return eta, machine, (q.max() - eta @ q) / abs(value)


def peers(sizes: tuple[int, ...], python: str | None) -> None:
    """(d): the same training matrices and test blocks for every package; held-out accuracy beside
    the time."""
    rows = []
    for n in sizes:
        X, y = make_data(2 * n)
        kernel_set = fit_mosaic(X[:n], 10)
        train, test = kernel_set.views(X[:n]), kernel_set.views(X[n:])
        stack = make_stack(kernel_set, train, dtype=np.float64)
        blocks = np.array(
            [
                K
                for _, K in sorted(
                    kernel_set.blocks(test, train, range(10)), key=lambda pair: pair[0]
                )
            ]
        )
        labels, truth = y[:n], y[n:]
        start = time.perf_counter()
        learned = learn(stack, labels, 1.0)
        ours = time.perf_counter() - start
        scores = (
            np.tensordot(learned.weights, blocks, 1) @ learned.solution.beta
            + learned.solution.intercept
        )
        rows.append(
            (
                n,
                "kernelmosaic newton",
                f"{ours:.3f}",
                "1",
                f"{100 * np.mean(np.sign(scores) == truth):.1f}",
            )
        )
        start = time.perf_counter()
        eta, machine, gap = plain_simplemkl(stack.matrices, labels, 1.0)
        plain = time.perf_counter() - start
        accuracy = 100 * machine.score(np.tensordot(eta, blocks, 1), truth)
        rows.append(
            (
                n,
                f"SimpleMKL over SVC, plain (gap {gap:.0e})",
                f"{plain:.2f}",
                f"{plain / ours:.0f}",
                f"{accuracy:.1f}",
            )
        )
        for name, answer in ask_peers(python, stack.matrices, blocks, labels, truth):
            if "error" in answer:
                rows.append((n, name, answer["error"], "", ""))
            else:
                rows.append(
                    (
                        n,
                        name,
                        f"{answer['seconds']:.2f}",
                        f"{answer['seconds'] / ours:.0f}",
                        f"{100 * answer['accuracy']:.1f}",
                    )
                )
    print_table(
        "Against what one would use instead, 10 kernels, C = 1",
        ("n", "method", "seconds", "times ours", "held-out %"),
        rows,
    )


def ask_peers(
    python: str | None, train: np.ndarray, test: np.ndarray, y: np.ndarray, truth: np.ndarray
):
    """Run benchmarks/peers.py in the interpreter that has the other packages, one method per
    process, 120 s each."""
    if python is None:
        yield "other packages", {"error": "skipped: give --peers-python (see benchmarks/peers.py)"}
        return
    script = Path(__file__).with_name("peers.py")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "kernels.npz"
        np.savez(data, train=train, test=test, y=y, truth=truth)
        listed = subprocess.run(
            [python, str(script), "--list"], capture_output=True, text=True, check=True
        )
        for name in listed.stdout.split("\n"):
            if not name:
                continue
            try:
                done = subprocess.run(
                    [python, str(script), str(data), name],
                    capture_output=True,
                    text=True,
                    timeout=150,
                )
                yield (
                    name,
                    (
                        json.loads(done.stdout.strip().split("\n")[-1])
                        if done.returncode == 0
                        else {"error": done.stderr.strip().split("\n")[-1][:60]}
                    ),
                )
            except subprocess.TimeoutExpired:
                yield name, {"error": "> 120 s"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--parts", default="whole,cost,growth,peers", help="which parts to run")
    parser.add_argument(
        "--peers-python", help="interpreter of an environment with the other packages"
    )
    parser.add_argument(
        "--peers-sizes", default="500,1000,2000", help="training sizes for the peers"
    )
    arguments = parser.parse_args()
    print(describe_machine())
    X, y = make_data(300)
    for dtype in (np.float32, np.float64):
        learn(build_stack(X, dtype=dtype), y, 1.0)
    parts = arguments.parts.split(",")
    if "whole" in parts:
        whole(arguments.quick)
    if "cost" in parts:
        cost(arguments.quick)
    if "growth" in parts:
        growth(arguments.quick)
    if "peers" in parts:
        sizes = (500,) if arguments.quick else tuple(map(int, arguments.peers_sizes.split(",")))
        peers(sizes, arguments.peers_python)


if __name__ == "__main__":
    sys.exit(main())
