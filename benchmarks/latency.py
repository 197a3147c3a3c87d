"""First use: how long a new process takes to fit 200 samples, with and without compiled code in
Numba's cache.

    python benchmarks/latency.py [--repeats 3]

Every line is a process of its own, in turns, the best of some: seconds by the clock, processor
seconds (on which other work on the machine weighs less), and the latter in those of a plain SVC
script of the same run.

imports     what cannot be avoided: scikit-learn's base classes; Numba; what the command line is made of (scikit-learn,
            pandas); typer, pandas and skops as they come, which loads all of scikit-learn, as model
            files no longer do
fits        200 samples, 5 columns, default parameters; "300 samples" are more than NumPy takes the steps of
commands    `kernelmosaic fit --method mkl` on a table of 200 rows (26 fits: five-fold cross-validation of five prices,
            and the last) and `kernelmosaic predict`

Python's own cache of byte code is warm throughout. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from common import describe_machine

import kernelmosaic

DATA = """
import numpy as np
rng = np.random.RandomState(0)
X = rng.randn({n}, 5)
target = X[:, 0] + 0.5 * rng.randn({n})
two, three = (target > 0).astype(int), np.digitize(target, [-0.5, 0.5])
"""


@dataclass(frozen=True)
class Case:
    """What one process runs: code, or a command, on so many samples."""

    name: str
    code: str = ""
    command: tuple[str, ...] = ()
    n: int = 200
    compiles: bool = True

    def arguments(self) -> list[str]:
        if self.command:
            return [sys.executable, "-m", "kernelmosaic", *self.command]
        return [
            sys.executable,
            "-c",
            (DATA.format(n=self.n) if "fit" in self.code else "") + self.code,
        ]


def fit(name: str, target: str) -> str:
    return f"from kernelmosaic import {name}\n{name}().fit(X, {target})"


CASES = [
    Case("SVC", "from sklearn.svm import SVC\nSVC().fit(X, two)", compiles=False),
    Case("import sklearn.base", "import sklearn.base", compiles=False),
    Case("import numba", "import numba", compiles=False),
    Case("import sklearn.svm, pandas", "import sklearn.svm, pandas", compiles=False),
    Case("import typer, pandas, skops.io", "import typer, pandas, skops.io", compiles=False),
    Case("MKLClassifier, imported", "from kernelmosaic import MKLClassifier", compiles=False),
    Case("MKLClassifier", fit("MKLClassifier", "two")),
    Case("MKLClassifier, three classes", fit("MKLClassifier", "three")),
    Case("MKLRegressor", fit("MKLRegressor", "target")),
    Case("BilinearMKLClassifier", fit("BilinearMKLClassifier", "three")),
    Case("MKLClassifier, 300 samples", fit("MKLClassifier", "two"), n=300),
    Case(
        "kernelmosaic fit --method mkl",
        command=("fit", "table.csv", "--target", "y", "--method", "mkl", "-o", "model.skops"),
    ),
    Case(
        "kernelmosaic predict",
        command=("predict", "model.skops", "table.csv", "-o", "out.csv"),
        compiles=False,
    ),
]


@dataclass(frozen=True)
class Cost:
    """Seconds of a process, by the clock and by the processor."""

    clock: float
    processor: float


def run(case: Case, folder: Path, cache: Path) -> Cost:
    """Run one process to its end."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env |= {"NUMBA_CACHE_DIR": str(cache), "PYTHONPYCACHEPREFIX": str(folder / "pycache")}
    env |= {"PYTHONPATH": str(Path(kernelmosaic.__file__).parents[1])}
    used, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(case.arguments(), cwd=folder, env=env, capture_output=True, text=True)
    seconds, now = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{case.name} failed:\n{done.stderr}")
    return Cost(seconds, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)


def best(costs: list[Cost]) -> Cost:
    return Cost(min(cost.clock for cost in costs), min(cost.processor for cost in costs))


def write_table(path: Path) -> None:
    rng = np.random.RandomState(0)
    X = rng.randn(200, 5)
    labels = np.where(X[:, 0] + 0.5 * rng.randn(200) > 0, "yes", "no")
    rows = [
        ",".join([*(f"{value:.4f}" for value in x), label])
        for x, label in zip(X, labels, strict=True)
    ]
    path.write_text("\n".join(["a,b,c,d,e,y", *rows]) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    empty: dict[str, list[Cost]] = {case.name: [] for case in CASES if case.compiles}
    warm: dict[str, list[Cost]] = {case.name: [] for case in CASES}
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_table(folder / "table.csv")
        for case in CASES:  # fills the caches, and writes the model that is read
            run(case, folder, folder / "numba")
        for repeat in range(repeats):
            for case in CASES:
                warm[case.name].append(run(case, folder, folder / "numba"))
                if case.compiles:
                    empty[case.name].append(
                        run(case, folder, folder / f"numba-{repeat}-{CASES.index(case)}")
                    )
    unit = best(warm["SVC"]).processor
    print(describe_machine(), end="\n\n")
    print(
        "| process | s, empty cache | processor s | in SVC scripts | s, warm cache | processor s |"
        " in SVC scripts |"
    )
    print(f"|{' --- |' * 7}")
    for case in CASES:
        columns = []
        for costs in (empty.get(case.name), warm[case.name]):
            cost = best(costs) if costs else None
            columns += ["", "", ""] if cost is None else cells(cost, unit)
        print(f"| {case.name} | {' | '.join(columns)} |")


def cells(cost: Cost, unit: float) -> list[str]:
    return [f"{cost.clock:.1f}", f"{cost.processor:.1f}", f"{cost.processor / unit:.2f}"]


if __name__ == "__main__":
    main()
