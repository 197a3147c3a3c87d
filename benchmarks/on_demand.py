"""Exact learning where not even one combined matrix fits: seconds and peak memory beside
scikit-learn's SVC.

    python benchmarks/on_demand.py [--sizes 10000 20000] [--share 0.15] [--budget BYTES] [--parts
    ours,svc]

Ten Gaussian kernels are learned to a relative duality gap of 1e-3 in a budget of that share of one
combined matrix (for 60,000 samples 0.15 is 2 GiB), kernels included; `SVC` trains one of them with
a cache of the same size. Every fit has a process of its own, whose peak memory is what the system
counted, less that of the same process before the fit.

Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
from common import describe_machine
from sklearn.datasets import make_classification

#: From half to four times the median distance of the samples; SVC's kernel is near the median.
WIDTHS = 10.0 * np.logspace(-0.3, 0.6, 10)


def samples(n: int) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(n, 20, n_informative=8, flip_y=0.05, random_state=0)


def fit(what: str, n: int, budget: float) -> dict[str, Any]:
    """Fit in this process, and return what it took."""
    X, y = samples(n)
    if what == "svc":
        from sklearn.svm import SVC

        model: Any = SVC(C=1.0, gamma=1 / float(WIDTHS[3]) ** 2, cache_size=budget / 2**20)
        model.fit(X[:300], y[:300])
    else:
        from kernelmosaic import MKLClassifier
        from kernelmosaic.kernels import Gaussian

        model = MKLClassifier([Gaussian(float(width)) for width in WIDTHS], memory_budget=budget)
        # Compiled before the clock starts, on demand as well.
        model.set_params(memory_budget=1e6).fit(X[:1500], y[:1500])
        model.set_params(memory_budget=budget)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu = time.perf_counter(), time.process_time()
    model.fit(X, y)
    found = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    found["peak"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if what == "ours":
        found |= {
            "gap": model.duality_gap_,
            "solves": model.n_solves_,
            "kernels": int(np.sum(model.weights_ > 0)),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 20_000])
    parser.add_argument("--share", type=float, default=0.15)
    parser.add_argument("--budget", type=float)
    parser.add_argument("--parts", default="ours,svc")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(fit(given.one, given.sizes[0], given.budget)))
        return
    print(describe_machine())
    print(
        "\n| n | budget | what | seconds | CPU seconds | in CPU time of SVC | peak memory / budget"
        " | gap | solves |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for n in given.sizes:
        budget = given.share * 4 * n**2 if given.budget is None else given.budget
        base = np.nan
        for what in reversed(given.parts.split(",")):
            command = [
                sys.executable,
                __file__,
                "--one",
                what,
                "--sizes",
                str(n),
                "--budget",
                str(budget),
            ]
            row = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
            base = row["cpu"] if what == "svc" else base
            print(
                f"| {n} | {budget / 2**30:.2f} GiB | {what} | {row['seconds']:.1f} |"
                f" {row['cpu']:.1f} | {row['cpu'] / base:.2f} | {row['peak'] / budget:.2f} |"
                f" {row.get('gap', 0):.1e} | {row.get('solves', '')} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
