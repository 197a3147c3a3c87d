"""The locally combined kernel as a heat map."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kernelmosaic.plots.gating import _of_output, _pyplot

Array = NDArray[np.float64]


@dataclass
class LocalKernelDisplay:
    """The combined kernel matrix, samples ordered by class, then by the kernel with the largest gate.

    Samples in different regions have a combined kernel near zero, so blocks appear as gates become crisp.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        The combined kernel, ordered.
    groups : list of (str, int)
        Names and sizes of the classes, in order.

    Attributes
    ----------
    ax_, figure_, image_
        Where it was drawn.
    """

    K: Array
    groups: list[tuple[str, int]]
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)
    image_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any = None, *, output: int = 0, max_samples: int = 1000, ax: Any = None
    ) -> Self:
        """Draw the combined kernel of a fitted localized estimator.

        Parameters
        ----------
        estimator : localized estimator
            Fitted.
        X : array-like of shape (n, n_features)
            Samples.
        y : array-like of shape (n,), optional
            Their classes.
        output : int, default=0
            Whose kernel, with more than two classes.
        max_samples : int, default=1000
            Of more samples an even selection is shown.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        """
        check_is_fitted(estimator)
        X = np.asarray(X)
        labels = np.zeros(len(X), dtype=int) if y is None else np.asarray(y)
        gates = _of_output(estimator.gate(X), output)
        # Within a region by the decision: samples that are alike stand together, and the block is not a weave.
        decision = np.asarray(getattr(estimator, "decision_function", estimator.predict)(X))
        decision = decision[:, output] if decision.ndim == 2 else decision
        order = np.lexsort((decision, gates.argmax(axis=1), np.unique(labels, return_inverse=True)[1]))
        if len(order) > max_samples:
            order = order[np.linspace(0, len(order) - 1, max_samples).astype(int)]
        K = estimator.kernel_matrix(X[order])
        K = K[output] if K.ndim == 3 else K
        values, counts = np.unique(labels[order], return_counts=True)
        names = ["samples"] if y is None else [f"class {value}" for value in values]
        return cls(K, list(zip(names, map(int, counts), strict=True))).plot(ax=ax)

    def plot(self, ax: Any = None, *, cmap: str = "RdBu_r") -> Self:
        """Draw, on the given axes or in a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.
        cmap : str, default="RdBu_r"
            A diverging map: white is zero, where two samples have nothing in common.
        """
        plt = _pyplot()
        if ax is None:
            _, ax = plt.subplots(figsize=(6.0, 5.2), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        # A few far samples would bleach all others.
        reach = float(np.quantile(np.abs(self.K), 0.98)) or 1.0
        self.image_ = ax.imshow(self.K, cmap=cmap, vmin=-reach, vmax=reach, interpolation="nearest")
        self.figure_.colorbar(self.image_, ax=ax, label="combined kernel", extend="both", shrink=0.9)
        edges = np.cumsum([0, *(size for _, size in self.groups)])
        for edge in edges[1:-1]:
            ax.axhline(edge - 0.5, color="black", linewidth=0.8)
            ax.axvline(edge - 0.5, color="black", linewidth=0.8)
        centres = (edges[:-1] + edges[1:]) / 2 - 0.5
        names = [name for name, _ in self.groups]
        ax.set_xticks(centres, names)
        ax.set_yticks(centres, names, rotation=90, va="center")
        ax.tick_params(length=0)
        return self
