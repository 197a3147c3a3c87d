"""Exact multiple kernel learning on one GPU: seconds, the floor the device's memory sets, and their
ratio.

Run with ``PYTHONPATH=src python benchmarks/gpu.py``; ``--quick`` for small sizes, ``--parts`` for
some of the parts, ``--device cpu`` to try the script without a GPU. Needs no files and nothing but
the package's own dependencies and torch. A part that fails is reported and the others go on. The
table is printed, everything measured goes to ``--json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_parts import Parts


class Runner:
    """Runs parts one by one, keeps what they measured, survives those that fail."""

    def __init__(self, parts: Parts, json_path: str) -> None:
        self.parts = parts
        self.json_path = json_path
        self.rows: list[dict[str, Any]] = []

    def run(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        print(f"... {name}", flush=True)
        if self.parts.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        try:
            row = work()
        except Exception as error:
            traceback.print_exc()
            row = {"error": f"{type(error).__name__}: {error}"}
        if self.parts.device.type == "cuda":
            row["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
        if "bytes" in row and np.isfinite(self.parts.bandwidth):
            row["floor_s"] = row["bytes"] / self.parts.bandwidth
            row["ratio"] = row["seconds"] / row["floor_s"] if row["floor_s"] else np.nan
        self.rows.append({"part": name, **row})
        print(
            "    " + ", ".join(f"{key} {_short(value)}" for key, value in row.items()), flush=True
        )
        if self.json_path:
            Path(self.json_path).write_text(json.dumps(self.report(), indent=1, default=float))

    def report(self) -> dict[str, Any]:
        name = (
            torch.cuda.get_device_name()
            if self.parts.device.type == "cuda"
            else platform.processor() or "cpu"
        )
        return {
            "device": name,
            "date": time.strftime("%Y-%m-%d"),
            "torch": torch.__version__,
            "cores": os.cpu_count(),
            "bandwidth_gb_s": self.parts.bandwidth / 1e9,
            "rows": self.rows,
        }


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_table(rows: list[dict[str, Any]]) -> None:
    columns = [
        "part",
        "seconds",
        "gap",
        "solves",
        "support",
        "bytes",
        "floor_s",
        "ratio",
        "peak_gb",
        "error",
    ]
    lines = [columns] + [[_short(row.get(column, "")) for column in columns] for row in rows]
    widths = [max(len(line[i][:44]) for line in lines) for i in range(len(columns))]
    for line in lines:
        print("  ".join(cell[:44].ljust(width) for cell, width in zip(line, widths, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 50_000, 100_000])
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--quick", action="store_true", help="10,000 samples only")
    parser.add_argument(
        "--block", type=int, nargs="*", default=[], help="block sizes to try on the single machine"
    )
    parser.add_argument("--json", default="gpu.json")
    parser.add_argument(
        "--low-rank", type=int, nargs="+", default=[1_000_000], help="samples of the low-rank part"
    )
    everything = [
        "combine",
        "products",
        "svm",
        "mkl",
        "stages",
        "localized",
        "libsvm",
        "gradient",
        "low_rank",
    ]
    parser.add_argument(
        "--parts", nargs="+", default=everything, choices=[*everything, "stored", "tight"]
    )
    options = parser.parse_args()
    sizes = options.sizes[:1] if options.quick else options.sizes
    middle = sizes[min(1, len(sizes) - 1)]
    parts = Parts(torch.device(options.device), options.C)
    runner = Runner(parts, options.json)
    runner.run("bandwidth", parts.measure_bandwidth)
    runner.run("warm up", parts.warm_up)
    plan: list[tuple[str, str, Callable[[], dict[str, Any]]]] = []
    plan += [
        ("combine", f"combine 10 Gaussians, n={n}", lambda n=n: parts.combine(n)) for n in sizes
    ]
    plan += [("products", f"products of 10 kernels, n={middle}", lambda: parts.products(middle))]
    plan += [("svm", f"one machine, mean kernel, n={n}", lambda n=n: parts.svm(n)) for n in sizes]
    plan += [
        ("svm", f"one machine, block {b}, n={middle}", lambda b=b: parts.svm(middle, block=b))
        for b in options.block
    ]
    plan += [("tight", f"one machine to 1e-5, n={middle}", lambda: parts.svm(middle, tol=1e-5))]
    plan += [("mkl", f"l1 MKL, 10 kernels, n={n}", lambda n=n: parts.mkl(n)) for n in sizes]
    plan += [
        ("stages", f"one machine by stage, n={middle}", lambda: parts.svm(middle, staged=True))
    ]
    plan += [
        ("stages", f"l1 MKL by stage, n={n}", lambda n=n: parts.mkl(n, staged=True))
        for n in sizes[1:] or sizes
    ]
    plan += [
        (
            "stored",
            f"l1 MKL recomputing, n={middle}",
            lambda: parts.mkl(middle, memory_budget=2.5 * 4 * middle**2),
        )
    ]
    plan += [("localized", f"localized, 3 kernels, n={middle}", lambda: parts.localized(middle))]
    plan += [
        ("libsvm", f"scikit-learn SVC, one kernel, n={sizes[0]}", lambda: parts.libsvm(sizes[0]))
    ]
    plan += [
        ("gradient", f"accelerated gradient, n={n}", lambda n=n: parts.accelerated_gradient(n))
        for n in sizes[:2]
    ]
    plan += [
        ("low_rank", f"l1 MKL, 10 x 500 features, n={n}", lambda n=n: parts.low_rank(n))
        for n in options.low_rank
    ]
    for part, name, work in plan:
        if part in options.parts:
            runner.run(name, work)
    print_table(runner.rows)


if __name__ == "__main__":
    main()
