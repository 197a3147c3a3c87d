"""Draw the README's picture: views of the same digits, the weights learned for them, and what that is worth.

python tools/readme_picture.py docs/images/views.png
"""

from __future__ import annotations

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import ConnectionPatch
from matplotlib.text import Text
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from kernelmosaic import MKLClassifier, stack_views
from kernelmosaic.kernels import Gaussian

COLOURS = {"squares": "#2f6d9c", "profiles": "#4f9d69", "fourier": "#d1893c", "noise": "#9a9a9a"}
INK = "#333333"
#: The digit that is shown, and how many of each are in the picture of the kernel.
SHOWN, EACH = 8, 10


def make_views(images: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "squares": images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16),
        "profiles": np.hstack([images.sum(axis=1), images.sum(axis=2)]),
        "fourier": np.abs(np.fft.rfft2(images)).reshape(len(images), -1),
        "noise": np.random.RandomState(0).normal(size=(len(images), 10)),
    }


def draw_view(axes: Any, name: str, values: np.ndarray) -> None:
    """Show what one view has of one digit."""
    if name == "profiles":
        axes.bar(np.arange(8), values[:8], color=COLOURS[name], width=0.8)
        axes.bar(np.arange(8) + 9.5, values[8:], color=COLOURS[name], width=0.8)
        axes.set_box_aspect(1)
    else:
        shape = {"squares": (4, 4), "fourier": (8, 5), "noise": (2, 5)}[name]
        axes.imshow(np.sqrt(np.abs(values)).reshape(shape), cmap="Greys", aspect="auto")
        axes.set_box_aspect(1)
    axes.set(xticks=[], yticks=[])
    axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11, color=COLOURS[name], fontweight="bold")


def main(path: str) -> None:
    digits = load_digits()
    views = make_views(digits.images / 16)
    X, columns = stack_views(**views)
    odd = digits.target % 2
    train, test = train_test_split(np.arange(len(X)), train_size=500, stratify=odd, random_state=0)
    kernels = [(name, Gaussian("median"), chosen) for name, chosen in columns.items()]

    def accuracy(some: list[Any], **options: Any) -> tuple[Any, float]:
        model = MKLClassifier(some, C=10, **options).fit(X[train], odd[train])
        return model, 100 * model.score(X[test], odd[test])

    bars = {f"{one[0]} alone": accuracy([one])[1] for one in kernels}
    bars["plain sum"] = accuracy(kernels, weights="uniform")[1]
    model, bars["learned weights"] = accuracy(kernels)

    figure = plt.figure(figsize=(10, 3.9), dpi=150)
    grid = figure.add_gridspec(4, 2, width_ratios=[0.6, 5], left=0.1, right=0.6, bottom=0.09, top=0.86, hspace=0.12)
    whole = figure.add_axes((0.335, 0.09, 0.3, 0.77))
    by_digit = [test[digits.target[test] == digit][:EACH] for digit in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)]
    shown = np.concatenate(by_digit)
    whole.imshow(model.kernel_matrix(X[shown]), cmap="Greys")
    whole.set_xticks(EACH * np.arange(10) + EACH / 2 - 0.5, list("0246813579"), fontsize=8)
    whole.tick_params(length=0)
    whole.set_yticks([])
    whole.axhline(5 * EACH - 0.5, color="white", linewidth=1.5)
    whole.axvline(5 * EACH - 0.5, color="white", linewidth=1.5)
    whole.set_title("the learned kernel: how alike are two digits?", fontsize=9, color=INK)
    for row, (name, weight) in enumerate(zip(columns, model.weights_, strict=True)):
        axes = figure.add_subplot(grid[row, 0])
        draw_view(axes, name, views[name][np.flatnonzero(digits.target == SHOWN)[0]])
        ends = (1.12, 0.5), (-0.03, 0.875 - 0.25 * row)
        line = ConnectionPatch(*ends, "axes fraction", "axes fraction", axesA=axes, axesB=whole, color=COLOURS[name])
        line.set(linewidth=0.5 + 14 * weight, capstyle="butt")
        figure.add_artist(line)
        axes.text(1.9, 0.68, f"{weight:.2f}", transform=axes.transAxes, fontsize=11, color=INK, ha="center")
    figure.text(0.122, 0.89, "views", ha="center", fontsize=9, color=INK)
    figure.text(0.245, 0.89, "weights", ha="center", fontsize=9, color=INK)

    axes = figure.add_axes((0.775, 0.09, 0.21, 0.77))
    axes.barh(list(bars), list(bars.values()), color=[*COLOURS.values(), "#c9c9c9", INK], height=0.62)
    for place, value in enumerate(bars.values()):
        axes.text(value + 0.8, place, f"{value:.1f}", va="center", fontsize=9, color=INK)
    axes.set(xlim=(45, 106), ylim=(len(bars) - 0.5, -0.5), xticks=[])
    axes.tick_params(axis="y", length=0, labelsize=9)
    axes.set_title("odd or even: test accuracy, % (bars from 45)", fontsize=9, color=INK, loc="right")
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    figure.canvas.draw()
    for label in figure.findobj(Text):
        box = label.get_window_extent()
        if label.get_text() and not (figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1):
            raise SystemExit(f"{label.get_text()!r} is cut off at the edge of the picture.")
    figure.savefig(path, facecolor="white")


if __name__ == "__main__":
    main(sys.argv[1])
