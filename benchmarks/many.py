"""Hundreds of thousands of kernels: Gaussians on all triples of SONAR's 60 columns times some widths, norm 1.

    PYTHONPATH=. python benchmarks/many.py [--widths 3 30] [--C 1 10 100] [--size 3] [--tol 1e-3] [--median]

3 widths are 102,660 kernels, 30 are 1,026,600. Columns are standardised; widths are spread evenly on a logarithmic
scale from 0.3 to 10, or, with --median, factors from 0.1 to 3 of the median distance in the columns of each triple.
Seconds are from raw samples to a fitted model, after one small fit that compiles the loops. SONAR is read as
`reproduction.data.load("sonar")` finds it (the environment variable KERNELMOSAIC_DATA may name a folder); where it
does not, samples of the same size are generated, and the table says so.

Prints Markdown.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from common import describe_machine
from sklearn.datasets import make_classification
from sklearn.preprocessing import StandardScaler

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Gaussian, Subsets
from reproduction.data import load


def samples() -> tuple[str, np.ndarray, np.ndarray]:
    try:
        name, (X, y) = "SONAR", load("sonar", return_X_y=True, download=False)
    except (OSError, ValueError):
        name, (X, y) = "generated, as large as SONAR", make_classification(208, 60, n_informative=20, random_state=0)
    return name, StandardScaler().fit_transform(X), y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[3, 30])
    parser.add_argument("--C", type=float, nargs="+", default=[1.0, 10.0, 100.0])
    parser.add_argument("--size", type=int, default=3)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--median", action="store_true")
    given = parser.parse_args()
    name, X, y = samples()
    MKLClassifier(Subsets(Gaussian(), size=2)).fit(X, y)  # compiled
    print(f"{describe_machine()}\n\n{name}, {X.shape[0]} samples, {X.shape[1]} columns, gap of at most {given.tol:g}\n")
    print("| kernels | C | seconds | CPU seconds | rounds | machine solves | gap | kernels with a weight | peak MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for count in given.widths:
        scale = np.logspace(-0.5, 1.0, count) * (0.3 if given.median else 1.0)
        subsets = Subsets(Gaussian(), given.size, **{"factor" if given.median else "width": scale.tolist()})
        for C in given.C:
            start, cpu = time.perf_counter(), time.process_time()
            model = MKLClassifier(subsets, C=C, tol=given.tol).fit(X, y)
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            work = f"{seconds:.1f} | {cpu:.1f} | {model.n_iter_} | {model.n_solves_}"
            found = f"{model.duality_gap_:.1e} | {np.count_nonzero(model.weights_)} | {peak:.0f}"
            print(f"| {len(model.weights_):,} | {C:g} | {work} | {found} |", flush=True)


if __name__ == "__main__":
    main()
