"""Which part of a face decides: gates of patch kernels as a saliency map.

One person of OLIVETTI against the other 39, with one linear kernel for each square patch of the
image and gates that read a coarse 8 x 8 copy of it. Multiple kernel learning gives one map of
weights for all faces; gates give one a face: softmax gates choose few patches, sigmoid gates
several.

    python examples/olivetti_saliency.py FOLDER [--person 0] [--picture saliency.png]

FOLDER holds olivetti.npz; see docs/datasets.md. In the manner of Gönen (2010), thesis, whose task
was another: this one is named by the file itself.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score

from kernelmosaic import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.datasets import load
from kernelmosaic.kernels import Linear

SIDE = 64


def patches(side: int) -> list[np.ndarray]:
    """Return the pixel numbers of each square patch of a side x side grid, row by row."""
    step = SIDE // side
    pixels = (
        np.arange(SIDE * SIDE).reshape(side, step, side, step).transpose(0, 2, 1, 3)
    )
    return list(pixels.reshape(side * side, -1))


def shrink(X: np.ndarray, side: int) -> np.ndarray:
    """Average the images over a side x side grid."""
    step = SIDE // side
    return X.reshape(-1, side, step, side, step).mean(axis=(2, 4)).reshape(len(X), -1)


def enlarge(values: np.ndarray, side: int) -> np.ndarray:
    """Return a map of patches as an image of the faces' size."""
    return np.kron(values.reshape(side, side), np.ones((SIDE // side,) * 2))


def faces(folder: Path | None, person: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the faces and +1 for this person's, −1 for all others'."""
    X, who = load("olivetti", folder, return_X_y=True)
    return X / 255, np.where(who == person, 1, -1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument(
        "--person", type=int, default=0, help="whom to tell from the others, 0 to 39"
    )
    parser.add_argument("--picture", default="saliency.png")
    parser.add_argument("--side", type=int, default=8, help="patches along each side")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, y = faces(options.folder, options.person)
    # Of every person's ten faces, the last five are for test.
    test = np.arange(len(y)) % 10 >= 5
    both = np.hstack([X, shrink(X, 8)])
    squares = patches(options.side)
    kernels = [(f"patch {m}", Linear(), columns) for m, columns in enumerate(squares)]
    coarse = np.arange(X.shape[1], both.shape[1])
    settings = {"C": 10.0, "class_weight": "balanced"}
    models = {"MKL": MKLClassifier(kernels, normalize="centered", **settings)}
    for gating in ("softmax", "sigmoid"):
        models[gating] = LocalizedMKLClassifier(
            kernels,
            gating=gating,
            gating_columns=coarse,
            normalize="centered",
            n_init=2,
            tol=1e-2,
            **settings,
        )
    for name, model in models.items():
        model.fit(both[~test], y[~test])
        scores = model.decision_function(both[test])
        share = 100 * model.support_fraction_
        found = 100 * np.mean((scores > 0) == (y[test] > 0))
        print(
            f"{name:8s} accuracy {found:.1f} %, AUC {roc_auc_score(y[test], scores):.3f}, SV {share:.1f} %",
            flush=True,
        )
    draw(X, both, y, test, models, options.side).savefig(options.picture, dpi=110)
    print(f"wrote {options.picture}")


def draw(
    X: np.ndarray,
    both: np.ndarray,
    y: np.ndarray,
    test: np.ndarray,
    models: dict,
    side: int,
):
    """A column a face: the face, then the face under MKL's weights, under softmax and under sigmoid
    gates."""
    import matplotlib.pyplot as plt

    shown = np.concatenate(
        [
            np.flatnonzero(test & (y == 1))[:4],
            np.flatnonzero(test & (y == -1))[::45][:4],
        ]
    )
    maps = {
        "face": np.ones((len(shown), side * side)),
        "MKL": np.tile(models["MKL"].weights_, (len(shown), 1)),
    }
    maps |= {
        f"{name} gates": models[name].gate(both[shown])
        for name in ("softmax", "sigmoid")
    }
    figure, axes = plt.subplots(
        len(maps),
        len(shown),
        figsize=(1.25 * len(shown) + 0.4, 5.4),
        layout="constrained",
    )
    for row, (name, weights) in zip(axes, maps.items(), strict=True):
        for ax, i, weight in zip(row, shown, weights, strict=True):
            face = X[i].reshape(SIDE, SIDE)
            strength = enlarge(weight / max(weight.max(), 1e-12), side)
            # Patches that do not count fade into a pale background; the face stays faintly visible.
            ax.imshow(
                0.12 * face + 0.88 * (strength * face + (1 - strength) * 0.85),
                cmap="gray",
                vmin=0,
                vmax=1,
            )
            ax.set(xticks=[], yticks=[])
        row[0].set_ylabel(name, fontsize=10)
    return figure


if __name__ == "__main__":
    main()
