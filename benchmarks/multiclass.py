"""All classes in one problem: bilinear MKL, one versus rest and shared weights, in error and time,
and how they grow.

    python benchmarks/multiclass.py [--data FOLDER] [--quick] [--repeats 10] [--parts
    error,cost,conic,growth,features]

error   waveform, satimage, segment and USPS from FOLDER (one NumPy file per set: X, y), or from the folder that the
        environment variable KERNELMOSAIC_DATA names: 1000 training samples, ten Gaussian kernels,
        widths 0.1 to 100, standardised features, κ (or C) of 0.5, 1 or 10 by 3-fold
        cross-validation, at most 40 iterations
cost    bilinear MKL, by each of its solvers, and shared weights in LIBSVM one-versus-rest fits of the mean kernel; with
        ten kernels, and with 69 on data shaped like the protein localisation sets
conic   the shared-weight problem by a conic solver against the same problem by ours, and the bilinear one
growth  exponents of the time in classes, kernels and samples features  kernels in features: 10
classes of three clusters each, five Gaussian kernels of rank 200, up to 20,000
        samples, beside exact kernels where these are quick

All ratios are taken in one run, on the same matrices.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from common import best_time, best_times, describe_machine, print_table
from scipy import sparse
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC as LibSVM

from kernelmosaic import BilinearMKLClassifier, MKLClassifier
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.kernels import Gaussian, family
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import SumNorm
from kernelmosaic.learning.problem import LearnerOptions
from kernelmosaic.machines.base import CrammerSinger
from kernelmosaic.multiclass.learning import ClassNewton, ProjectedGradient, QuasiNewton
from kernelmosaic.solvers.multiclass import MultiOutput
from kernelmosaic.solvers.program import Solution

SETS = ("waveform", "satimage", "segment", "usps")
PRICES = [0.5, 1.0, 10.0]
GAP = 1e-3


def make_stack(n: int, n_classes: int, P: int, seed: int = 0) -> tuple[StoredStack, np.ndarray]:
    X, y = make_classification(
        n, 20, n_informative=10, n_classes=n_classes, n_clusters_per_class=1, random_state=seed
    )
    X = (X - X.mean(0)) / X.std(0)
    squares = np.maximum((X**2).sum(1)[:, None] + (X**2).sum(1) - 2 * X @ X.T, 0.0)
    return (
        StoredStack(np.stack([np.exp(-squares / width**2) for width in np.logspace(-1, 2, P)])),
        y,
    )


def shared(stack: StoredStack, y: np.ndarray, kappa: float = 1.0):
    return Newton(LearnerOptions(SumNorm(), np.ones(stack.n_kernels), GAP)).learn(
        stack, CrammerSinger(y, kappa)
    )


def bilinear(
    stack: StoredStack, y: np.ndarray, kappa: float = 1.0, learner=ClassNewton, max_iter: int = 100
):
    options = LearnerOptions(SumNorm(), np.ones(stack.n_kernels), GAP, max_iter)
    return learner(options).learn(stack, CrammerSinger(y, kappa))


def error(quick: bool, folder: Path | None, repeats: int) -> None:
    """Test error and time of one fit at the chosen price."""
    if folder is None:
        print("error: skipped, give --data or set KERNELMOSAIC_DATA\n")
        return
    kernels = family(Gaussian(), width=list(np.logspace(-1, 2, 4 if quick else 10)))
    n_train, repeats = (200, 1) if quick else (1000, repeats)
    methods = {
        "bilinear": (BilinearMKLClassifier(kernels, max_iter=40), "bilinearmklclassifier__kappa"),
        "one versus rest": (MKLClassifier(kernels, max_iter=40), "mklclassifier__C"),
        "shared weights": (
            MKLClassifier(kernels, multi_class="joint", max_iter=40),
            "mklclassifier__C",
        ),
    }
    rows = []
    for name in SETS:
        with np.load(folder / f"{name}.npz") as data:
            X, y = data["X"].astype(float), data["y"]
        found: dict[str, list[tuple[float, float]]] = {method: [] for method in methods}
        for seed in range(repeats):
            parts = train_test_split(X, y, train_size=n_train, random_state=seed, stratify=y)
            for method, (model, price) in methods.items():
                search = GridSearchCV(
                    make_pipeline(StandardScaler(), model), {price: PRICES}, cv=3
                ).fit(parts[0], parts[2])
                wrong = 1.0 - search.score(parts[1][:2000], parts[3][:2000])
                found[method].append((100 * wrong, search.refit_time_))
        for method, values in found.items():
            mean, spread = np.mean(values, axis=0), np.std(values, axis=0)
            rows.append((name, method, f"{mean[0]:.2f} ± {spread[0]:.2f}", f"{mean[1]:.2f}"))
    print_table(
        f"{n_train} training samples, {repeats} repeats",
        ("set", "method", "error %", "fit s"),
        rows,
    )


def make_localisation(n: int, n_classes: int, seed: int = 0) -> tuple[StoredStack, np.ndarray]:
    """69 kernels in the proportions of the localisation sets: 64 of motifs, each knowing a little,
    and five broader."""
    rng = np.random.default_rng(seed)
    y = rng.choice(
        n_classes, size=n, p=np.arange(n_classes, 0, -1) / np.arange(1, n_classes + 1).sum()
    )
    matrices = np.empty((69, n, n))
    for m in range(69):
        width = 10 if m < 64 else 40
        told = (
            rng.normal(size=(n_classes, width))
            * (0.3 if m < 64 else 0.6)
            * (rng.random((n_classes, 1)) < 0.5)
        )
        X = told[y] + rng.normal(size=(n, width))
        squares = np.maximum((X**2).sum(1)[:, None] + (X**2).sum(1) - 2 * X @ X.T, 0.0)
        matrices[m] = np.exp(-squares / squares.mean())
    return StoredStack(matrices), y


def cost(quick: bool) -> None:
    """What a fit costs, Gram matrices given; LIBSVM and ours in turns, so that a burst of other
    work falls on both."""
    rows = []
    fits = {
        "bilinear, Newton": lambda stack, y: bilinear(stack, y),
        "bilinear, quasi-Newton": lambda stack, y: bilinear(stack, y, learner=QuasiNewton),
        "bilinear, published": lambda stack, y: bilinear(
            stack, y, learner=ProjectedGradient, max_iter=40
        ),
        "shared weights": lambda stack, y: shared(stack, y),
    }
    stacks = (
        [make_stack(300, 5, 10), make_localisation(200, 4)] if quick else [make_stack(1000, 10, 10)]
    )
    stacks += [] if quick else [make_localisation(n, k) for n, k in ((376, 4), (577, 4), (1095, 3))]
    for stack, y in stacks:
        mean, k = stack.matrices.mean(0), int(y.max()) + 1
        for label, fit in fits.items():
            found = fit(stack, y)
            theirs, ours = best_times(
                [
                    lambda y=y, mean=mean, k=k: [
                        LibSVM(kernel="precomputed").fit(mean, y == c) for c in range(k)
                    ],
                    lambda fit=fit, stack=stack, y=y: fit(stack, y),
                ],
                3 if "Newton" in label or "shared" in label else 1,
            )
            rows.append(
                (stack.n_samples, k, stack.n_kernels, label, f"{theirs:.3f}", f"{ours:.2f}")
            )
            rows[-1] += (
                f"{ours / theirs:.1f}",
                found.n_solves,
                f"{found.objective:.4f}",
                f"{found.gap:.1e}",
            )
            rows[-1] += (f"{np.mean(found.weights > 0):.2f}",)
    heads = (
        "n",
        "classes",
        "kernels",
        "method",
        "LIBSVM s",
        "fit s",
        "ratio",
        "solves",
        "objective",
        "gap",
        "share > 0",
    )
    title = (
        "Fits to a gap of 1e-3 in LIBSVM one-versus-rest fits of the mean kernel (goal 10 at 1000,"
        " 10, 10)"
    )
    print_table(title, heads, rows)


def solve_shared_conic(Ks: np.ndarray, y: np.ndarray, kappa: float) -> float:
    """The shared-weight problem's dual as its authors solved it, whole: max Σ τ_{i,y} − γ with ½
    Σ_c τ_cᵀK_mτ_c ≤ γ."""
    import clarabel

    n, k = len(y), int(y.max()) + 1
    own = np.zeros((n, k))
    own[np.arange(n), y] = 1.0
    c = np.append(-own.T.ravel(), 1.0)
    balance = sparse.hstack([sparse.hstack([sparse.eye(n)] * k), sparse.csc_matrix((n, 1))])
    box = sparse.hstack([sparse.eye(n * k), sparse.csc_matrix((n * k, 1))])
    A, b = [balance, box], [np.zeros(n), kappa * own.T.ravel()]
    cones = [clarabel.ZeroConeT(n), clarabel.NonnegativeConeT(n * k)]
    for K in Ks:
        values, V = np.linalg.eigh(K)
        keep = values > 1e-10 * values.max()
        L = (V[:, keep] * np.sqrt(values[keep])).T
        gamma = sparse.csc_matrix(([-2.0, -2.0], ([0, 1], [n * k, n * k])), shape=(2, n * k + 1))
        A += [
            gamma,
            sparse.hstack([sparse.block_diag([-2.0 * L] * k), sparse.csc_matrix((k * len(L), 1))]),
        ]
        b += [np.array([1.0, -1.0]), np.zeros(k * len(L))]
        cones.append(clarabel.SecondOrderConeT(2 + k * len(L)))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_rel = GAP
    nothing = sparse.csc_matrix((len(c), len(c)))
    return (
        -clarabel.DefaultSolver(
            nothing, c, sparse.vstack(A, format="csc"), np.concatenate(b), cones, settings
        )
        .solve()
        .obj_val
    )


def conic(quick: bool) -> None:
    rows = []
    for n, k, P in [(60, 3, 4)] if quick else [(60, 3, 5), (120, 3, 5), (200, 4, 5)]:
        stack, y = make_stack(n, k, P)
        start = time.perf_counter()
        optimum = solve_shared_conic(stack.matrices, y, 1.0)
        theirs = time.perf_counter() - start
        for label, fit in (("shared weights", shared), ("bilinear", bilinear)):
            fit(stack, y)
            ours = best_time(lambda fit=fit, stack=stack, y=y: fit(stack, y))
            value = f"{fit(stack, y).objective:.4f}"
            rows.append(
                (
                    n,
                    k,
                    P,
                    label,
                    f"{theirs:.2f}",
                    f"{optimum:.4f}",
                    f"{ours:.3f}",
                    value,
                    f"{theirs / ours:.0f}",
                )
            )
    heads = (
        "n",
        "classes",
        "kernels",
        "ours",
        "conic s",
        "conic value",
        "ours s",
        "value",
        "times faster",
    )
    print_table(
        "The shared-weight problem by a conic solver, and ours (published claim: bilinear over 20"
        " times faster)",
        heads,
        rows,
    )


def growth(quick: bool) -> None:
    base = (200, 4, 5) if quick else (500, 5, 10)
    steps = {
        "samples": [(m * base[0], base[1], base[2]) for m in (1, 2, 4)],
        "classes": [(base[0], k, base[2]) for k in (3, 6, 12)],
        "kernels": [(base[0], base[1], m * base[2]) for m in (1, 2, 4)],
    }
    rows = []
    for which, (what, shapes) in enumerate(steps.items()):
        for label, fit in (("bilinear", bilinear), ("shared weights", shared)):
            times = [
                best_time(lambda s=s, fit=fit: fit(*made[s]), 1)
                for s in shapes
                if made.setdefault(s, make_stack(*s))
            ]
            slope = np.polyfit(np.log([s[which] for s in shapes]), np.log(times), 1)[0]
            rows.append(
                (
                    what,
                    label,
                    " ".join(str(s[which]) for s in shapes),
                    " ".join(f"{t:.2f}" for t in times),
                    f"{slope:.2f}",
                )
            )
    print_table(
        f"Growth around {base} samples, classes, kernels",
        ("in", "method", "sizes", "seconds", "exponent"),
        rows,
    )


def clusters(n: int, n_classes: int = 10, dimension: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(0)
    y = rng.randint(n_classes, size=n)
    centres = 1.3 * rng.standard_normal((3, n_classes, dimension))
    return rng.standard_normal((n, dimension)) + centres[rng.randint(3, size=n), y], y


@contextmanager
def counted_rounds() -> Iterator[list[int]]:
    """Yield a list that the rounds of every machine solved in blocks are added to."""
    rounds: list[int] = []
    original = MultiOutput.solve

    def solve(self: MultiOutput, tol: float, exhausted: Callable[[], bool]) -> Solution:
        solution = original(self, tol, exhausted)
        rounds.append(self.n_rounds)
        return solution

    MultiOutput.solve = solve
    try:
        yield rounds
    finally:
        MultiOutput.solve = original


def features(quick: bool) -> None:
    low = {"approximation": "nystroem", "rank": 200, "random_state": 0}
    bells = family(Gaussian(), width=[0.5, 1, 2, 4, 8])
    makers = {
        "shared weights, one slack": lambda price, **how: MKLClassifier(
            bells, C=price, multi_class="joint", **how
        ),
        "shared weights, pairwise": lambda price, **how: MKLClassifier(
            bells, C=price, multi_class="pairwise", **how
        ),
        "bilinear": lambda price, **how: BilinearMKLClassifier(bells, kappa=price, **how),
    }
    cases = [(n, name, 1.0, how) for n in (1000, 3000) for name in makers for how in (low, {})]
    if not quick:
        cases += [(20_000, name, price, low) for name in makers for price in (0.1, 1.0, 10.0)][:-1]
    X, y = clusters(22_000)
    rows = []
    makers["bilinear"](1.0, **low).fit(X[:300], y[:300])  # compile the loops outside the clocks
    for n, name, price, how in cases:
        model = makers[name](price, **how)
        with counted_rounds() as rounds:
            seconds = best_time(lambda model=model, n=n: model.fit(X[:n], y[:n]), 1)
        score = model.score(X[20_000:], y[20_000:])
        turns = sum(rounds) if how else ""
        form = "features" if how else "exact"
        gap, solves = f"{model.duality_gap_:.0e}", model.n_solves_
        rows.append((n, name, price, form, f"{seconds:.1f}", solves, turns, gap, f"{score:.3f}"))
    heads = (
        "samples",
        "method",
        "price",
        "kernels",
        "seconds",
        "solves",
        "rounds",
        "gap",
        "accuracy",
    )
    print_table("Kernels in features, 10 classes, 5 kernels of rank 200", heads, rows)


made: dict[tuple[int, int, int], tuple[StoredStack, np.ndarray]] = {}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = os.environ.get("KERNELMOSAIC_DATA")
    parser.add_argument("--data", type=Path, default=Path(folder) if folder else None)
    parser.add_argument(
        "--repeats", type=int, default=10, help="splits of each set in the error part"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", default="error,cost,conic,growth,features")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(describe_machine() + "\n")
    stack, y = make_stack(60, 3, 3)  # compile the loops outside the clocks
    bilinear(stack, y), shared(stack, y)
    for part in args.parts.split(","):
        (
            error(args.quick, args.data, args.repeats)
            if part == "error"
            else globals()[part](args.quick)
        )


if __name__ == "__main__":
    main()
