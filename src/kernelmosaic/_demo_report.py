"""The demonstration's report: one HTML page that needs no other file and no network."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from kernelmosaic.demo import COLUMNS, DemoResult, summary
from kernelmosaic.reports import Page, Picture, Table


def write_report(result: DemoResult, path: Path) -> None:
    """Write the page; the pictures are there when matplotlib is."""
    page = Page(
        "One kernel, several kernels, and the best possible rule",
        "GAUSS4 is a two-class problem in the plane: each class is a mixture of two Gaussians. Support vector machines "
        f"were trained on {len(result.y)} samples, on one kernel each, on the unweighted sum of all and on sums whose "
        "weights are learned with the machine (l1: sparse weights, l2: all kernels kept), and scored on "
        f"{result.n_test} fresh ones. {summary(result)}",
    )
    caption = (
        "Accuracy on the test sample, support vectors (and their share of the training sample), certified relative "
        f"duality gap, and seconds to train. Seed {result.seed}."
    )
    page.table(Table(caption, COLUMNS, [row.cells() for row in result.rows]))
    page.heading("Where each machine draws the line")
    if find_spec("matplotlib") is None:
        page.paragraph('Not drawn: matplotlib is missing. `pip install "kernelmosaic[plots]"` brings it.')
    else:
        _add_pictures(page, result)
    page.write(path)


def _add_pictures(page: Page, result: DemoResult) -> None:
    *machines, rule = result.rows
    page.paragraph(
        "Dots are class +1, crosses class −1 of the training sample; the shaded side is where the machine answers +1. "
        "The dashed line is the Bayes rule."
    )
    page.figures(
        Picture(
            _draw(row.model, rule.model, result),
            f"Training sample in the plane with the decision boundary of {row.name} and that of the Bayes rule",
            f"{row.name}: {100 * row.accuracy:.2f} %",
        )
        for row in machines
    )


def _draw(model: Any, rule: Any, result: DemoResult) -> Any:
    from matplotlib.figure import Figure  # without pyplot: no window system, no global state

    low, high = result.X.min(axis=0) - 0.5, result.X.max(axis=0) + 0.5
    first, second = (np.linspace(a, b, 120) for a, b in zip(low, high, strict=True))
    grid = np.stack(np.meshgrid(first, second), axis=-1)
    values, best = (m.decision_function(grid.reshape(-1, 2)).reshape(grid.shape[:2]) for m in (model, rule))
    figure = Figure(figsize=(4.4, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.contourf(first, second, values > 0, levels=[0.5, 1.5], colors=["#cfe3f3"])
    # Blue and vermilion stay apart for the colour-blind, and the markers differ as well.
    for label, marker, colour in ((1, "o", "#0072B2"), (-1, "x", "#D55E00")):
        X = result.X[result.y == label]
        axes.scatter(X[:, 0], X[:, 1], s=10, linewidths=0.8, marker=marker, color=colour)
    axes.contour(first, second, values, levels=[0.0], colors="black", linewidths=1.6)
    axes.contour(first, second, best, levels=[0.0], colors="black", linewidths=1.2, linestyles="dashed")
    return figure
