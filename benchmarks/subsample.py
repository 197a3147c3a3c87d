"""Weights of the ridge estimators learned from 1,000 samples, beside weights learned from all of
them.

    python benchmarks/subsample.py --data FOLDER [--device cuda] [--splits 1] [--output FILE]

FOLDER holds uci_classes.npz (docs/studies.md). Of every set with more than 1,000 training samples,
`MKLRidgeClassifierCV()` is fitted twice to the first published splits: with its default
`subsample="auto"`, and with `subsample=None`. Ridge and machine use all samples in both. Writes
accuracies and seconds, and prints the mean difference by size; kernels of 10,000 samples learned
from all take minutes without a GPU.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from pathlib import Path

import numpy as np
from common import describe_machine

from kernelmosaic import MKLRidgeClassifierCV

SIZES = ((1000, 2000), (2000, 10_000), (10_000, 20_000))


def main() -> None:
    """Fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("docs/benchmarks/subsample.csv"))
    chosen = parser.parse_args()
    print(describe_machine())
    rows = []
    with np.load(chosen.data / "uci_classes.npz") as file:
        sizes = {str(name): len(file[f"{name}_train_0"]) for name in file["names"]}
        for name in sorted((name for name in sizes if sizes[name] > 1000), key=sizes.__getitem__):
            for split in range(chosen.splits):
                X, y, train, test = (
                    file[f"{name}_{part}"] for part in ("X", "y", f"train_{split}", f"test_{split}")
                )
                X = X[:, X[train].min(axis=0) < X[train].max(axis=0)].astype(np.float64)
                row = {"set": name, "split": split, "samples": len(train), "columns": X.shape[1]}
                for title, subsample in (("sample", "auto"), ("all", None)):
                    start = time.monotonic()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        model = MKLRidgeClassifierCV(
                            subsample=subsample, device=chosen.device, random_state=0
                        )
                        model.fit(X[train], y[train])
                    row[f"seconds_{title}"] = round(time.monotonic() - start, 2)
                    row[f"accuracy_{title}"] = round(
                        float(np.mean(model.predict(X[test]) == y[test])), 4
                    )
                rows.append(row)
                print(row, flush=True)
    with chosen.output.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for low, high in SIZES:
        off = [
            100 * (row["accuracy_sample"] - row["accuracy_all"])
            for row in rows
            if low < row["samples"] <= high
        ]
        if off:
            print(
                f"{low} to {high} samples, {len(off)} fits: {np.mean(off):+.2f} points on average"
            )


if __name__ == "__main__":
    main()
