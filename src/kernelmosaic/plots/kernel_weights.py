"""How much each kernel counts, for all samples or class by class."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.plots._unwrapping import attribute, fitted_model
from kernelmosaic.plots.gating import _pyplot

Array = NDArray[np.float64]

#: Okabe and Ito's blue.
_BAR = "#0072B2"
#: Columns beyond which numbers in the cells would touch.
_MOST_ANNOTATED = 12


@dataclass
class KernelWeightsDisplay:
    """The weights of the kernels: bars, or a heat map where every class has weights of its own.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    weights : ndarray of shape (P,) or (classes, P)
        The weights.
    names : list of str
        Of the kernels.
    classes : list or None
        Whose weights the rows are.
    weight_name : str, default="weight"
        What the numbers are.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    bars_ : BarContainer or None
        The bars, in the order of `shown_`.
    image_ : AxesImage or None
        The heat map: a row a kernel in the order of `shown_`, a column a class.
    shown_ : ndarray of int
        Which kernels are shown, from top to bottom.
    """

    weights: Array
    names: list[str]
    classes: Any = None
    weight_name: str = "weight"
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)
    bars_: Any = field(default=None, init=False, repr=False)
    image_: Any = field(default=None, init=False, repr=False)
    shown_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, sort: bool = False, max_kernels: int = 40, ax: Any = None, **style: Any
    ) -> Self:
        """Draw the weights of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted; any of this package, or a pipeline or search around one. Of a localized one, the mean gates.
        sort : bool, default=False
            Largest first, instead of in the order of the kernels.
        max_kernels : int, default=40
            Of more kernels, those of largest weight are drawn.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.barh`` or ``Axes.imshow``.

        Returns
        -------
        KernelWeightsDisplay
        """
        model = fitted_model(estimator)
        weights = np.asarray(attribute(model, "weights_", cls.__name__), dtype=np.float64)
        names = list(attribute(model, "kernel_names_", cls.__name__))
        classes = list(getattr(model, "classes_", range(len(weights)))) if weights.ndim == 2 else None
        name = "mean gate" if hasattr(model, "gate") else "weight"
        return cls(weights, names, classes, name).plot(ax=ax, sort=sort, max_kernels=max_kernels, **style)

    def plot(self, ax: Any = None, *, sort: bool = False, max_kernels: int = 40, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        plt = _pyplot()
        self.shown_ = self._chosen(sort, max_kernels)
        if ax is None:
            _, ax = plt.subplots(figsize=self._size(), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        if self.weights.ndim == 1:
            self._draw_bars(ax, style)
        else:
            self._draw_map(ax, style)
        labels = self._kernel_labels()
        ax.set_yticks(np.arange(len(labels)), labels, fontsize=9 if len(labels) <= 25 else 7)
        ax.tick_params(axis="y", length=0)
        left_out = len(self.names) - len(self.shown_)
        if left_out:
            ax.set_title(f"the {len(self.shown_)} largest of {len(self.names)}", fontsize=9, loc="left")
        return self

    def _chosen(self, sort: bool, max_kernels: int) -> NDArray[np.intp]:
        if isinstance(max_kernels, bool) or not isinstance(max_kernels, int | np.integer) or max_kernels < 1:
            raise ValueError(f"max_kernels={max_kernels!r}: give a whole number, at least 1.")
        size = np.abs(self.weights).max(axis=0) if self.weights.ndim == 2 else np.abs(self.weights)
        order = np.argsort(-size, kind="stable")[: int(max_kernels)]
        return order if sort else np.sort(order)

    def _kernel_labels(self) -> list[str]:
        return _shortened([self.names[m] for m in self.shown_])

    def _size(self) -> tuple[float, float]:
        """Inches: room for the longest name, a line for each kernel."""
        letters = max(map(len, self._kernel_labels()))
        lines = (0.26 if len(self.shown_) <= 25 else 0.19) * len(self.shown_)
        if self.weights.ndim == 1:
            return 3.6 + 0.075 * letters, 0.9 + lines
        below = max((len(str(label)) for label in self.classes), default=0) if self.classes is not None else 0
        return 1.6 + 0.075 * letters + max(0.46 * self.weights.shape[0], 1.6), 0.9 + 0.05 * min(below, 36) + lines

    def _draw_bars(self, ax: Any, style: dict[str, Any]) -> None:
        values = self.weights[self.shown_]
        self.bars_ = ax.barh(np.arange(len(values)), values, **({"color": _BAR, "height": 0.7} | style))
        texts = [_number(value) for value in values]
        ax.bar_label(self.bars_, texts, padding=3, fontsize=8)
        ax.set(xlabel=self.weight_name, ylim=(len(values) - 0.4, -0.6))
        ax.axvline(0.0, color="black", linewidth=0.8)
        ax.margins(x=0.14)
        ax.spines[["top", "right", "left"]].set_visible(False)

    def _draw_map(self, ax: Any, style: dict[str, Any]) -> None:
        values = self.weights[:, self.shown_].T
        low = min(0.0, float(values.min()))
        options = {"cmap": "cividis", "vmin": low, "aspect": "auto", "interpolation": "nearest"} | style
        self.image_ = ax.imshow(values, **options)
        self.figure_.colorbar(self.image_, ax=ax, label=self.weight_name, shrink=0.9)
        labels = [str(label) for label in (range(values.shape[1]) if self.classes is None else self.classes)]
        crowded = max(map(len, labels)) > 5
        turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        ax.set_xticks(np.arange(len(labels)), _shortened(labels), fontsize=9, **turned)
        ax.set_xlabel("class")
        ax.tick_params(axis="x", length=0)
        if values.shape[1] <= _MOST_ANNOTATED:
            self._write_cells(ax, values)

    def _write_cells(self, ax: Any, values: Array) -> None:
        dark = self.image_.norm(values) < 0.55
        for (m, c), value in np.ndenumerate(values):
            colour = "white" if dark[m, c] else "black"
            ax.text(c, m, _number(value), ha="center", va="center", fontsize=7, color=colour)


def _number(value: float) -> str:
    """Two digits; zero as one letter, so that a kernel left out is told from a small weight."""
    if value == 0:
        return "0"
    text = f"{value:.2f}" if 0.005 <= abs(value) < 1000 else f"{value:.0e}"
    return text.replace("e-0", "e-").replace("e+0", "e")


def _shortened(names: list[str], most: int = 36) -> list[str]:
    """Long names lose their middle, unless that is where they differ."""
    half = most // 2
    short = [name if len(name) <= most else f"{name[: half - 1]}…{name[-half:]}" for name in names]
    return short if len(set(short)) == len(set(names)) else names
