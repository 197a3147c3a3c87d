"""Choose cheap representations: costs as penalties.

Handwritten digits in three representations: the image shrunk to 2 x 2 and to 4 x 4 squares, and the
whole 8 x 8 image. Reading more squares costs more. With the costs as penalties d_m the weights obey
Σ d_m² η_m = 1, so that an expensive kernel must earn its weight; `cost` then tells what a
prediction costs: support vectors times the active kernels' share of all costs.

    python examples/cost_conscious.py

In the manner of Gönen and Alpaydın (2010), "Cost-conscious multiple kernel learning".
"""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Gaussian

COSTS = {"2 x 2": 1.0, "4 x 4": 2.0, "8 x 8": 4.0}
PAIRS = ((0, 8), (1, 7), (5, 9), (3, 8))


def shrink(images: np.ndarray, side: int) -> np.ndarray:
    """Average the images over side x side squares."""
    step = images.shape[1] // side
    return (
        images.reshape(-1, side, step, side, step)
        .mean(axis=(2, 4))
        .reshape(-1, side * side)
    )


def representations() -> tuple[np.ndarray, np.ndarray, list[tuple]]:
    """Return all representations side by side, the digits, and one Gaussian kernel a
    representation."""
    digits = load_digits()
    views = [shrink(digits.images / 16.0, side) for side in (2, 4, 8)]
    edges = np.cumsum([0, *(view.shape[1] for view in views)])
    kernels = [
        (name, Gaussian("median"), slice(int(a), int(b)))
        for name, a, b in zip(COSTS, edges, edges[1:], strict=False)
    ]
    return np.hstack(views), digits.target, kernels


def main() -> None:
    X, digit, kernels = representations()
    costs = list(COSTS.values())
    table = Table(
        "pair",
        "method",
        "accuracy %",
        "support vectors %",
        "cost",
        "weights (" + ", ".join(COSTS) + ")",
    )
    for first, second in PAIRS:
        chosen = np.isin(digit, (first, second))
        halves = train_test_split(
            X[chosen],
            digit[chosen],
            test_size=0.5,
            random_state=0,
            stratify=digit[chosen],
        )
        X_train, X_test, y_train, y_test = halves
        for method, penalties in (("MKL", None), ("cost-conscious", costs)):
            model = MKLClassifier(kernels, C=10.0, penalties=penalties).fit(
                X_train, y_train
            )
            table.add_row(
                f"{first} / {second}",
                method,
                f"{100 * model.score(X_test, y_test):.1f}",
                f"{100 * model.support_fraction_:.1f}",
                f"{model.cost(costs):.1f}",
                ", ".join(f"{weight:.2f}" for weight in model.weights_),
            )
    Console().print(table)


if __name__ == "__main__":
    main()
