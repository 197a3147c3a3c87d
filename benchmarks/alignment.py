"""Local alignment: seconds and cells per second of `SmithWaterman`, beside parasail's where that is
installed.

    python benchmarks/alignment.py [--strings 500] [--length 350] [--repeats 3]

All pairs of random proteins whose lengths vary by a third, both on one thread, in turns in one run;
the scores of both must be equal. Cells are the products of the lengths of two strings, summed over
all pairs. parasail aligns as kernelmosaic 0.3 had it do: a profile per string, then the striped
function that starts with 8 bits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import describe_machine, print_table
from threadpoolctl import threadpool_limits

from kernelmosaic.kernels import SmithWaterman
from kernelmosaic.kernels.strings import _substitution


def proteins(count: int, length: int) -> list[str]:
    rng = np.random.RandomState(0)
    letters = list(_substitution("blosum62")[0][:20])
    return [
        "".join(rng.choice(letters, n))
        for n in rng.randint(2 * length // 3, 4 * length // 3 + 1, size=count)
    ]


def by_parasail(parasail: Any, X: list[str]) -> np.ndarray:
    S = np.zeros((len(X), len(X)))
    for i, x in enumerate(X):
        profile = parasail.profile_create_sat(x, parasail.blosum62)
        S[i, i:] = S[i:, i] = [
            parasail.sw_striped_profile_sat(profile, z, 11, 1).score for z in X[i:]
        ]
    return S


def seconds(work: Callable[[list[str]], Any], X: list[str]) -> float:
    """Return processor seconds: both keep to one thread, and the neighbours' work is not
    counted."""
    start = time.process_time()
    work(X)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strings", type=int, default=500)
    parser.add_argument("--length", type=int, default=350)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    X = proteins(arguments.strings, arguments.length)
    lengths = np.array([len(x) for x in X], dtype=np.float64)
    cells = (lengths.sum() ** 2 + (lengths**2).sum()) / 2
    kernel = SmithWaterman()
    works = {"kernelmosaic": lambda strings: kernel._scores(strings)}
    try:
        import parasail
    except ImportError:
        print("parasail is not installed: no ratio")
    else:
        works["parasail"] = lambda strings: by_parasail(parasail, strings)
    with threadpool_limits(1):  # before the first alignment: the count of threads is read once
        scores = [work(X[:50]) for work in works.values()]  # compiles, too
        np.testing.assert_array_equal(scores[0], scores[-1])
        rounds = [[seconds(work, X) for work in works.values()] for _ in range(arguments.repeats)]
    times = np.min(rounds, axis=0)
    print(describe_machine())
    rows = [
        (name, f"{t:.2f}", f"{cells / t:.2e}", f"{times[-1] / t:.2f}")
        for name, t in zip(works, times, strict=True)
    ]
    pairs = len(X) * (len(X) + 1) // 2
    heads = ("by", "processor seconds", "cells/s", f"speed, {list(works)[-1]} = 1")
    print_table(f"{pairs} alignments, {cells:.2e} cells, one thread", heads, rows)


if __name__ == "__main__":
    main()
