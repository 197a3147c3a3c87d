"""Projections learned with the machine against projections learned before it, on USPS digits.

Even against odd digits (or 0-4 against 5-9) in a few dimensions: principal components (PCA) and
local Fisher discriminant analysis (LFDA), each followed by a support vector machine, against one
projection learned with the machine (GPK) and three gated ones (LPK). Accuracy and share of support
vectors over the number of dimensions.

    PYTHONPATH=. python examples/projection_kernels.py [FOLDER] [--task EO|SL] [--dimensions 1 2 5
    10] [--train 1000]

FOLDER holds usps.npz; see docs/datasets.md. In the manner of Gönen (2010), thesis.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

from kernelmosaic import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.kernels import Linear, Projected
from reproduction.data import load
from reproduction.lfda import LFDA


def models(R: int, C: float) -> dict[str, Any]:
    local = {"C": C, "max_iter": 30, "tol": 5e-3, "n_init": 1}
    return {
        "PCA": make_pipeline(PCA(R, random_state=0), MKLClassifier([Linear()], C=C)),
        "LFDA": make_pipeline(LFDA(R), MKLClassifier([Linear()], C=C)),
        "GPK": LocalizedMKLClassifier([Projected(Linear(), R)], **local),
        "LPK": LocalizedMKLClassifier([Projected(Linear(), R)] * 3, **local),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument(
        "--task",
        choices=("EO", "SL"),
        default="EO",
        help="even and odd, or small and large",
    )
    parser.add_argument("--dimensions", type=int, nargs="+", default=[1, 2, 5, 10])
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--picture", default="projections.png")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    digits = load("usps", options.folder, task=options.task)
    if digits.train is None:
        raise SystemExit(
            "This copy of USPS has its rows in another order, and so no published split: give FOLDER."
        )
    X, y, test = digits.data, digits.target, digits.test
    train = np.random.RandomState(0).permutation(digits.train)[: options.train]
    results: dict[str, list[tuple[float, float]]] = {}
    for R in options.dimensions:
        for name, model in models(R, C=10.0).items():
            model.fit(X[train], y[train])
            machine = model[-1] if hasattr(model, "steps") else model
            accuracy = 100 * model.score(X[test], y[test])
            results.setdefault(name, []).append(
                (accuracy, 100 * machine.support_fraction_)
            )
            print(
                f"R = {R:2d} {name:5s} accuracy {accuracy:.2f} % support vectors {results[name][-1][1]:.1f} %",
                flush=True,
            )
    draw(options.dimensions, results).savefig(options.picture, dpi=110)
    print(f"wrote {options.picture}")


def draw(dimensions: list[int], results: dict[str, list[tuple[float, float]]]):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    colours = {"PCA": "#999999", "LFDA": "#E69F00", "GPK": "#56B4E9", "LPK": "#009E73"}
    for name, values in results.items():
        for ax, series in zip(axes, np.array(values).T, strict=True):
            ax.plot(dimensions, series, marker="o", color=colours[name], label=name)
    axes[0].set_ylabel("test accuracy, %")
    axes[1].set_ylabel("support vectors, %")
    for ax in axes:
        ax.set(xlabel="dimensions", xticks=dimensions)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
