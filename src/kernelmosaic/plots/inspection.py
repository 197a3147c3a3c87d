"""Which kernels are real: null distributions, intervals from resampling, and what a score loses without a kernel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np

from kernelmosaic._checks import check_choice
from kernelmosaic._typing import AxesOrNone, Estimator, MatrixLike, TargetLike
from kernelmosaic.inspection import (
    FeatureImportance,
    KernelImportance,
    KernelSignificance,
    Stability,
    feature_importance,
    kernel_importance,
    kernel_significance,
    stability,
)
from kernelmosaic.plots._common import Array, Display, colour
from kernelmosaic.plots.learned import KernelWeightsDisplay


def _kernel_axes(display: Display, ax: AxesOrNone, names: list[str]) -> Any:
    """Return the axes of a display with one line per kernel, the first at the top."""
    ax = display._use_axes(ax, (4.6 + 0.075 * max(map(len, names)), 1.1 + 0.32 * len(names)))
    ax.set_yticks(np.arange(len(names)), names, fontsize=9)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.grid(axis="x", color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def _of_class(classes: list[Any] | None, of_class: Any, *arrays: Array) -> list[Array]:
    """Return one row per kernel: of the class asked for, where every class has its own."""
    if classes is None:
        return list(arrays)
    if of_class not in classes:
        raise ValueError(f"of_class={of_class!r}: the classes are {', '.join(map(repr, classes))}.")
    return [array[..., classes.index(of_class), :] for array in arrays]


def _write_right(ax: AxesOrNone, texts: list[str], head: str) -> None:
    """Write one text per kernel to the right of the axes, under a head."""
    place = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": 8}
    for m, text in enumerate(texts):
        ax.text(1.02, m, text, **place)
    ax.text(1.02, -0.75, head, **place)


@dataclass
class InspectionDisplay(Display):
    """What an inspection returns, as a picture."""

    result: Any

    #: The inspection, called with an estimator, samples and targets.
    _inspect: ClassVar[Callable[..., Any]]

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, X: MatrixLike, y: TargetLike, *, ax: AxesOrNone = None, **options: Any
    ) -> Self:
        """Inspect the kernels of an estimator, and draw what was found.

        Parameters
        ----------
        estimator, X, y
            As the inspection takes them.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **options
            Passed to :meth:`plot`, those that it takes, and to the inspection.

        Returns
        -------
        The display.
        """
        drawn = {name: options.pop(name) for name in signature(cls.plot).parameters if name in options}
        return cls(cls._inspect(estimator, X, y, **options)).plot(ax, **drawn)

    @abstractmethod
    def plot(self, ax: AxesOrNone = None, **options: Any) -> Self:
        """Draw, on the given axes or in a new figure."""


@dataclass
class KernelSignificanceDisplay(InspectionDisplay):
    """The weight or alignment of each kernel beside what permuted targets give, with p-values.

    Make it by :meth:`from_estimator`, or of a result: ``KernelSignificanceDisplay(result).plot()``. Grey boxes hold the
    middle half of the null distribution and grey lines reach to its 95th percentile; dots are the targets as they are,
    filled where the p-value is at most `level`. Where every class has weights of its own, p-values are drawn as a heat
    map, unless `of_class` names one.

    Parameters
    ----------
    result : KernelSignificance
        What to draw.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    dots_ : list of Line2D or None
        One per kernel.
    image_ : AxesImage or None
        The heat map.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier, inspection, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> options = {"n_permutations": 19, "random_state": 0}
    >>> found = inspection.kernel_significance(MKLClassifier(), X, y, **options)
    >>> plots.KernelSignificanceDisplay(found).plot().figure_.savefig("significance.png")
    """

    result: KernelSignificance
    _inspect = staticmethod(kernel_significance)

    def plot(  # type: ignore[override]
        self, ax: AxesOrNone = None, *, statistic: str = "weight", level: float = 0.05, of_class: Any = None
    ) -> Self:
        """Draw, on the given axes or in a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        statistic : {"weight", "alignment"}, default="weight"
            What to draw.
        level : float, default=0.05
            P-values up to it are significant.
        of_class : label, optional
            Whose weights to draw, where every class has its own.
        """
        self.dots_ = self.image_ = None
        one, weights = self.result, check_choice("statistic", statistic, ("weight", "alignment")) == "weight"
        p = one.weight_pvalues if weights else one.alignment_pvalues
        what = "p-value" if one.correction is None else f"p-value ({one.correction})"
        if one.classes is not None and of_class is None:
            drawn = KernelWeightsDisplay(p, one.kernel_names, one.classes, what).plot(ax, vmax=1.0)
            self.ax_, self.figure_, self.image_ = drawn.ax_, drawn.figure_, drawn.image_
            return self
        null, observed, p = _of_class(
            one.classes,
            of_class,
            one.null_weights if weights else one.null_alignments,
            one.weights if weights else one.alignments,
            p,
        )
        ax, self.dots_ = _kernel_axes(self, ax, one.kernel_names), []
        low, middle, high, most = np.quantile(null, [0.25, 0.5, 0.75, 0.95], axis=0)
        for m, value in enumerate(observed):
            ax.barh(m, high[m] - low[m], left=low[m], height=0.5, color="0.72", label="permuted" if m == 0 else None)
            ax.plot([high[m], most[m]], [m, m], color="0.72", linewidth=1.5, label="to 95 %" if m == 0 else None)
            ax.plot([middle[m]] * 2, [m - 0.25, m + 0.25], color="white", linewidth=1.2)
            style = {"markerfacecolor": colour(4) if p[m] <= level else "white", "markeredgecolor": colour(4)}
            label = "as they are" if m == 0 else None
            self.dots_ += ax.plot([value], [m], "o", markersize=6, zorder=3, label=label, **style)
        _write_right(ax, [f"{value:.2g}" for value in p], what)
        ax.set_xlabel(statistic if of_class is None else f"{statistic}, class {of_class}")
        ax.axvline(0.0, color="black", linewidth=0.8, zorder=1)
        return self


@dataclass
class StabilityDisplay(InspectionDisplay):
    """The weight of each kernel with the interval that resampling gives it, and how often it is selected.

    Make it by :meth:`from_estimator`, or of a result: ``StabilityDisplay(result).plot()``. Where every class has
    weights of its own, the frequencies are drawn as a heat map, unless `of_class` names one.

    Parameters
    ----------
    result : Stability
        What to draw.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    dots_ : Line2D or None
        The weights of the fit to all samples.
    lines_ : LineCollection or None
        The intervals.
    image_ : AxesImage or None
        The heat map.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier, inspection, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> found = inspection.stability(MKLClassifier(), X, y, n_resamples=10, random_state=0)
    >>> plots.StabilityDisplay(found).plot().figure_.savefig("stability.png")
    """

    result: Stability
    _inspect = staticmethod(stability)

    def plot(self, ax: AxesOrNone = None, *, of_class: Any = None) -> Self:  # type: ignore[override]
        """Draw, on the given axes or in a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        of_class : label, optional
            Whose weights to draw, where every class has its own.
        """
        self.dots_ = self.lines_ = self.image_ = None
        one = self.result
        if one.classes is not None and of_class is None:
            frequencies = one.selection_frequencies
            drawn = KernelWeightsDisplay(frequencies, one.kernel_names, one.classes, "selected").plot(ax, vmax=1.0)
            self.ax_, self.figure_, self.image_ = drawn.ax_, drawn.figure_, drawn.image_
            return self
        weights, lower, upper, frequencies = _of_class(
            one.classes, of_class, one.weights, one.lower, one.upper, one.selection_frequencies
        )
        ax, places = _kernel_axes(self, ax, one.kernel_names), np.arange(len(weights))
        self.lines_ = ax.hlines(places, lower, upper, color=colour(0), linewidth=3.0, alpha=0.45)
        (self.dots_,) = ax.plot(weights, places, "o", color=colour(0), markersize=6)
        _write_right(ax, [f"{100 * share:.0f} %" for share in frequencies], "selected")
        ax.set_xlabel(
            f"weight, and {100 * one.confidence_level:g} % of those of {len(one.resampled_weights)} resamples"
            + ("" if of_class is None else f", class {of_class}")
        )
        ax.axvline(0.0, color="black", linewidth=0.8, zorder=1)
        return self


@dataclass
class KernelImportanceDisplay(InspectionDisplay):
    """What a score loses without each kernel, by both ways; lines are the standard deviation over folds.

    Make it by :meth:`from_estimator`, or of a result: ``KernelImportanceDisplay(result).plot()``.

    Parameters
    ----------
    result : KernelImportance
        What to draw.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    bars_ : dict from str to BarContainer
        Of "dropped" and "permuted".

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier, inspection, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> found = inspection.kernel_importance(MKLClassifier(), X, y, cv=2, random_state=0)
    >>> plots.KernelImportanceDisplay(found).plot().figure_.savefig("importance.png")
    """

    result: KernelImportance
    _inspect = staticmethod(kernel_importance)

    def plot(self, ax: AxesOrNone = None) -> Self:  # type: ignore[override]
        """Draw, on the given axes or in a new figure."""
        one = self.result
        ax, places = _kernel_axes(self, ax, one.kernel_names), np.arange(len(one.kernel_names))
        ways = {
            "dropped": (-0.18, one.drop_mean, one.drop_std, colour(0)),
            "permuted": (0.18, one.permutation_mean, one.permutation_std, colour(1)),
        }
        self.bars_ = {
            name: ax.barh(places + shift, mean, 0.34, xerr=spread, color=filled, label=name, error_kw={"lw": 1.0})
            for name, (shift, mean, spread, filled) in ways.items()
        }
        ax.axvline(0.0, color="black", linewidth=0.8)
        ax.set_xlabel(f"loss of score, from {one.scores.mean():.3g}")
        ax.legend(frameon=False, fontsize=8)
        return self


@dataclass
class FeatureImportanceDisplay(Display):
    """The most important columns of each view: bars, one colour per view.

    Make it by :meth:`from_estimator`, or of a result: ``FeatureImportanceDisplay(result).plot()``.

    Parameters
    ----------
    result : FeatureImportance
        What to draw.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    bars_ : dict of BarContainer
        By the name of the view.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> model = MKLClassifier().fit(X, y)
    >>> display = plots.FeatureImportanceDisplay.from_estimator(model, X, random_state=0)
    >>> display.figure_.savefig("columns.png")
    """

    result: FeatureImportance

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, X: MatrixLike, *, most: int = 8, ax: AxesOrNone = None, **options: Any
    ) -> Self:
        """Rank the columns of a fitted estimator, and draw what was found.

        Parameters
        ----------
        estimator, X
            As :func:`~kernelmosaic.inspection.feature_importance` takes them.
        most : int, default=8
            How many columns of each view are drawn.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **options
            Passed to the inspection.

        Returns
        -------
        FeatureImportanceDisplay
        """
        return cls(feature_importance(estimator, X, **options)).plot(ax, most=most)

    def plot(self, ax: AxesOrNone = None, *, most: int = 8) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        found = {view: self.result.top(view, most) for view in self.result.views}
        names = [name if len(name) <= 40 else f"{name[:38]}…" for own in found.values() for name, _ in own]
        ax = _kernel_axes(self, ax, names)
        self.bars_, start = {}, 0
        for k, (view, own) in enumerate(found.items()):
            places = start + np.arange(len(own))
            self.bars_[view] = ax.barh(places, [value for _, value in own], 0.7, color=colour(k), label=view)
            start += len(own)
        ax.set_xlabel("change of the decision with the column of another sample")
        if len(found) > 1:
            ax.legend(frameon=False, fontsize=8, title="view", loc="best")
        return self
