"""The solver of kernels in factors as it is, without proximal Newton steps, and without interior
points.

    python benchmarks/factored.py [--part hard] [--out factored.csv] [--minutes 20] [--seed 0]

Programs of every machine with one output, with and without a ridge, on three Gaussian kernels in
Nyström features (or five columns), from zeros and from the solution at other weights of the
kernels. The hard part has large values of C, columns with an offset, repeated ones and powers of
one column, in double and in single precision. CPU seconds with one BLAS thread, the least of up to
three repeats; a solve of over 60 seconds is stopped. Cases come in random order, so that what was
measured in the time given is a random part of all. Prints the ratios of the times, and how many
cases lose their tolerance.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from threadpoolctl import threadpool_limits

from kernelmosaic.gram.factored import FactoredGram
from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.learning.hard_margin import HardMargin
from kernelmosaic.machines.base import SVC, SVR, Huber, Machine, OneClass, Quantile
from kernelmosaic.solvers import factored
from kernelmosaic.solvers.program import Program, Solution, assess
from kernelmosaic.solvers.proximal_newton import ProximalNewton
from kernelmosaic.solvers.tuning import DEFAULTS, SolverOptions
from kernelmosaic.solvers.working_set import FreeThenViolating, SingleOutput

SAMPLES = (150, 300, 1000, 3000, 8000, 20_000)
FEATURES = (5, 50, 200, 500)
C_VALUES = (0.01, 1.0, 1000.0)
TOLERANCES = (1e-3, 1e-5)
#: Seconds after which a solve is stopped.
LONGEST = 60.0
#: Proximal Newton steps where nothing comes after them.
MANY_STEPS = 1000


def machines(f: np.ndarray, C: float) -> dict[str, Machine]:
    """The machines by name, for targets f."""
    n, labels = len(f), np.where(f > 0, 1.0, -1.0)
    # The share of novel samples: a tenth of them where C is 1.
    nu = {0.01: 0.5, 1.0: 0.1, 1000.0: 0.01}[C]
    return {
        "hinge": SVC(labels, C),
        "hinge, squared": SVC(labels, C, slack=2),
        "hinge, diagonal added": SVC(labels, C),
        "tube": SVR(f, C, 0.1),
        "tube, squared": SVR(f, C, 0.1, slack=2),
        "quantile": Quantile(f, C, 0.9),
        "Huber": Huber(f, C, 0.5),
        "margin": HardMargin(SVC(labels, 1.0, slack=2).program),
        "one class": OneClass(n, 1.0 / (nu * n)),
        "one class, squared": OneClass(n, 1.0 / (nu * n), slack=2),
    }


def gaussian(A: np.ndarray, B: np.ndarray, width: float) -> np.ndarray:
    squares = (A**2).sum(axis=1)[:, np.newaxis] + (B**2).sum(axis=1) - 2 * A @ B.T
    return np.asarray(np.exp(-squares / width**2))


def features(n: int, D: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Features of three kernels and targets: of D/3 landmarks each, or, of less than ten, the
    columns themselves."""
    rng = np.random.RandomState(n + D)
    X = rng.standard_normal((n, 20))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * rng.standard_normal(n)
    f = f / f.std()
    if D < 10:
        parts = [X[:, :2], X[:, 2:3], X[:, 3:D]]
    else:
        parts = []
        for factor, rank in zip(
            (1.0, 2.0, 4.0), np.diff(np.linspace(0, D, 4).astype(int)), strict=True
        ):
            landmarks = X[rng.choice(n, rank, replace=False)]
            width = factor * 6.3
            values, vectors = np.linalg.eigh(gaussian(landmarks, landmarks, width))
            parts.append(
                gaussian(X, landmarks, width) @ (vectors / np.sqrt(np.maximum(values, 1e-10)))
            )
    return [part / np.sqrt(np.mean((part**2).sum(axis=1))) for part in parts], f


# The three ways -----------------------------------------------------------------------------------


def _no_newton_steps(
    gram: FactoredGram,
    program: Program,
    tol: float,
    options: SolverOptions,
    nearby: Solution | None,
) -> Solution:
    """Return the solution from nearby, or zeros, where the solver takes Newton steps."""
    if nearby is not None:
        return nearby
    return assess(gram, program, program.feasible(np.zeros(program.n_samples)))


def _newton_to_the_end(
    gram: FactoredGram, program: Program, tol: float, options: SolverOptions, best: Solution | None
) -> Solution:
    """Take Newton steps and working sets where the solver takes interior points, for every kind of
    program."""
    softened, plain = program, gram
    if gram.shift is not None:
        ridge = program.ridge + gram.shift
        softened = Program(
            program.target, program.lower, program.upper, ridge, program.epsilon, program.total
        )
        plain = gram.take(np.arange(gram.n_samples))
        plain.shift = None
    n_iter, start = 0, np.zeros(program.n_samples)
    if best is not None:
        n_iter, start = best.n_iter, best.beta
    newton = ProximalNewton(plain, softened, softened.feasible(start))
    goals = [max(tol, 3e-4), tol]
    if gram.shift is not None:
        goals += [0.03 * tol, 1e-3 * tol]
    for goal in goals:
        steps = newton.solve(goal, MANY_STEPS)
        policy = factored.FactoredRounds(gram, options)
        rounds = SingleOutput(
            gram, program, program.feasible(steps.beta), policy, n_iter=n_iter
        ).solve(tol)
        if best is None or rounds.gap < best.gap:
            best = rounds
        if best.gap <= tol:
            break
    assert best is not None
    return best


@contextmanager
def as_it_is() -> Iterator[None]:
    yield


@contextmanager
def without_newton() -> Iterator[None]:
    with mock.patch.object(factored, "_solve_by_newton", _no_newton_steps):
        yield


@contextmanager
def without_interior_points() -> Iterator[None]:
    with (
        mock.patch.object(factored, "_solve_by_interior_points", _newton_to_the_end),
        mock.patch.object(factored.FactoredRounds, "solve_inside", FreeThenViolating.solve_inside),
    ):
        yield


WAYS: dict[str, Callable[[], Any]] = {
    "as it is": as_it_is,
    "without Newton": without_newton,
    "without interior points": without_interior_points,
}

# Measuring ----------------------------------------------------------------------------------------


class _TooLongError(Exception):
    """A solve was stopped."""


def _stop(*_: Any) -> None:
    raise _TooLongError


def timed(solve: Callable[[], Solution], longest: float = LONGEST) -> tuple[float, float]:
    """Return CPU seconds and the gap of a solve, repeated for 50 ms; of a stopped one, the limit
    and infinity."""
    signal.signal(signal.SIGVTALRM, _stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, longest)
    start, repeats = time.process_time(), 0
    try:
        # The clock of a virtual machine may tick in milliseconds.
        while repeats == 0 or time.process_time() - start < 0.05:
            gap = solve().gap
            repeats += 1
    except _TooLongError:
        return longest, np.inf
    except (ValueError, np.linalg.LinAlgError) as error:
        print("#", error, flush=True)
        return longest, np.inf
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    return (time.process_time() - start) / repeats, gap


def compared(solve: Callable[[], Solution]) -> dict[str, tuple[float, float]]:
    """Return the CPU seconds and the gap of every way."""
    best = dict.fromkeys(WAYS, (np.inf, np.inf))
    for _ in range(3):
        for way, context in WAYS.items():
            with context():
                best[way] = min(best[way], timed(solve))
        if max(seconds for seconds, _ in best.values()) > 0.5:
            break
    return best


def measure(
    n: int, D: int, kind: str, C: float, warm: bool, tol: float
) -> dict[str, tuple[float, float]]:
    """Compare the ways on three kernels."""
    parts, f = features(n, D)
    machine = machines(f, C)[kind]
    added = {"hinge, diagonal added": 0.1, "margin": 1.0 / C}.get(kind)

    def kernel(weights: tuple[float, ...]) -> Any:
        # The entries that pair steps read are kept with the kernel: a search writes them at every
        # new weights.
        gram = StoredFeatures(parts).combine(np.array(weights))
        gram = gram if added is None else gram.add_diagonal(np.full(n, added))
        return gram.block(np.arange(n)) if n <= DEFAULTS.few_samples else gram

    start = machine.solve(kernel((0.4, 0.35, 0.25)), None, tol).beta if warm else None
    return compared(lambda: machine.solve(kernel((0.5, 0.3, 0.2)), start, tol))


def measure_hard(
    n: int, D: int, kind: str, C: float, columns: str, tol: float, dtype: str
) -> dict[str, tuple[float, float]]:
    """Compare the ways on a linear kernel of columns that are far from independent, at a large
    C."""
    rng = np.random.RandomState(n + D)
    X = rng.standard_normal((n, D))
    if columns == "offset":
        X = np.hstack([np.full((n, 3), 13.0), X])
    elif columns == "repeated":
        X = np.hstack([X, X])
        X[n // 2 : n // 2 + n // 4] = X[: n // 4]
    elif columns == "powers":
        X = X[:, :1] ** np.arange(min(D, 8))
    X = X / np.sqrt((X**2).sum(axis=1).mean())
    f = np.sin(6 * X[:, 0]) + 0.5 * rng.standard_normal(n)
    f, labels = f / f.std(), np.where(f > 0, 1.0, -1.0)
    machine = {
        "hinge": lambda: SVC(labels, C),
        "tube": lambda: SVR(f, C, 0.1),
        "quantile": lambda: Quantile(f, C, 0.9),
        "hinge, squared": lambda: SVC(labels, C, slack=2),
        "tube, squared": lambda: SVR(f, C, 0.1, slack=2),
    }[kind]()
    return compared(
        lambda: machine.solve(StoredFeatures([X.astype(dtype)]).combine(np.ones(1)), None, tol)
    )


PARTS = {
    "all": (measure, ("n", "D", "kind", "C", "warm", "tol")),
    "hard": (measure_hard, ("n", "D", "kind", "C", "columns", "tol", "dtype")),
}


def cases_of(part: str) -> list[tuple[Any, ...]]:
    """Return all cases of a part."""
    if part == "hard":
        kinds = ("hinge", "tube", "quantile", "hinge, squared", "tube, squared")
        columns = ("plain", "offset", "repeated", "powers")
        sizes = ((100, 400, 2500), (3, 12, 40))
        return list(
            itertools.product(*sizes, kinds, (1e2, 1e4, 1e6), columns, (1e-3, 1e-6), ("f8", "f4"))
        )
    kinds = tuple(machines(np.ones(4), 1.0))
    cases = itertools.product(SAMPLES, FEATURES, kinds, C_VALUES, (False, True), TOLERANCES)
    return [case for case in cases if 2 * case[1] <= case[0]]


def report(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> None:
    """Print how the times compare, for all cases and by each of their properties."""
    reference = "as it is"
    for way in list(WAYS)[1:]:
        print(f"\n{way}: CPU seconds over those of the solver as it is")
        print("| cases | number | geometric mean | largest above 0.2 s | tolerance lost |")
        print("| --- | --- | --- | --- | --- |")
        groups: list[tuple[str, list[dict[str, Any]]]] = [("all", rows)]
        for key in keys:
            for value in sorted({row[key] for row in rows}, key=str):
                groups.append((f"{key} = {value}", [row for row in rows if row[key] == value]))  # noqa: PERF401
        for name, some in groups:
            pairs = [(row[f"{way}: s"], row[f"{reference}: s"]) for row in some]
            logarithms = [np.log(after / before) for after, before in pairs]
            largest = max(
                [after / before for after, before in pairs if max(after, before) > 0.2],
                default=np.nan,
            )
            lost = sum(row[f"{way}: gap"] > row["tol"] >= row[f"{reference}: gap"] for row in some)
            print(
                f"| {name} | {len(some)} | {np.exp(np.mean(logarithms)):.2f} | {largest:.2f} |"
                f" {lost} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=list(PARTS), default="all")
    parser.add_argument("--out", help="CSV of all cases")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    compare, keys = PARTS[options.part]
    cases = cases_of(options.part)
    np.random.RandomState(options.seed).shuffle(cases)
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for kind in machines(np.ones(4), 1.0):  # compiled loops are compiled here
            measure(300, 5, kind, 1.0, False, 1e-3)
        end = time.monotonic() + 60 * options.minutes
        for case in cases:
            if time.monotonic() > end:
                break
            row = dict(zip(keys, case, strict=True))
            for way, (seconds, gap) in compare(*case).items():
                row |= {f"{way}: s": round(seconds, 5), f"{way}: gap": float(f"{gap:.3g}")}
            rows.append(row)
            if options.out:
                with Path(options.out).open("w", newline="") as file:
                    writer = csv.DictWriter(file, list(row))
                    writer.writeheader()
                    writer.writerows(rows)
    report(rows, keys)


if __name__ == "__main__":
    main()
