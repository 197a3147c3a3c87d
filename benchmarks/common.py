"""What the benchmarks share: timing, tables, and a line about the machine."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table


def best_time(work: Callable[[], Any], repeats: int = 3) -> float:
    """Return the seconds of the fastest of some runs: on a shared machine the others measure the
    neighbours."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def best_times(works: Sequence[Callable[[], Any]], repeats: int = 3) -> list[float]:
    """Return the best seconds of each, run in turns so that a neighbour's burst of work falls on
    all alike."""
    rounds = [[best_time(work, 1) for work in works] for _ in range(repeats)]
    return [min(times) for times in zip(*rounds, strict=True)]


def geometric_mean(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))


def print_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    table = Table(*heads, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=140).print(table)


def describe_machine() -> str:
    """Name what the figures depend on: processor, cores, load, versions."""
    import numba
    import scipy
    import sklearn

    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            processor = next(
                line.split(":")[1].strip() for line in info if line.startswith("model name")
            )
    except (OSError, StopIteration):
        pass
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    packages = ", ".join(
        f"{package.__name__} {package.__version__}" for package in (np, scipy, sklearn, numba)
    )
    return (
        f"{processor}, {os.cpu_count()} cores{load}; Python {platform.python_version()}, {packages}"
    )
