"""Kernels: learned weights, relevances and shares; stability and importance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np

from kernelmosaic import inspection, stacking
from kernelmosaic._checks import check_count
from kernelmosaic._typing import Array, AxesOrNone, Estimator, MatrixLike, Settings, TargetLike
from kernelmosaic.plots import drawing
from kernelmosaic.plots.drawing import MARKERS, Display, colour, fitted_model, title_left_out

# Weights ------------------------------------------------------------------------------------------


@dataclass
class KernelWeightsDisplay(Display):
    """The weights of the kernels: bars, or a heat map where every class has its own weights.

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
        Label of the numbers.
    beside : dict of ndarray of shape (P,) or None
        Other weights of the same kernels by what they are, drawn as points on the bars: of a search
        that chose equal weights, those that it learned.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    bars_ : BarContainer or None
        The bars, in the order of `shown_`.
    points_ : dict of Line2D
        The points of `beside`.
    image_ : AxesImage or None
        The heat map: one row per kernel in the order of `shown_`, one column per class.
    shown_ : ndarray of int
        Which kernels are shown, from top to bottom.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> display = plots.KernelWeightsDisplay.from_estimator(MKLClassifier().fit(X, y))
    >>> display.figure_.savefig("weights.png")
    """

    weights: Array
    names: list[str]
    classes: Any = None
    weight_name: str = "weight"
    beside: Any = None

    # What the rows of weights are of.
    _rows_are: ClassVar[str] = "class"

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        *,
        sort: bool = False,
        max_kernels: int = 40,
        by_view: bool = False,
        learned: dict[Any, Array] | None = None,
        ax: AxesOrNone = None,
        **style: Any,
    ) -> Self:
        """Draw the weights of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted; any of this package, or a pipeline or search around one. Of a localized one, the
            mean gates; of a ridge estimator, whose weights are not normalised, their shares of the
            sum.
        sort : bool, default=False
            Largest first, instead of in the order of the kernels.
        max_kernels : int, default=40
            Of more kernels, those of largest weight are drawn.
        by_view : bool, default=False
            The weights summed over the kernels of every view, as ``view_weights_``, instead of
            those of the kernels.
        learned : dict from norm to ndarray, optional
            Weights to draw beside equal ones; by default ``weights_by_norm_`` of a search that
            chose equal weights.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.barh`` or ``Axes.imshow``.

        Returns
        -------
        KernelWeightsDisplay
        """
        model = fitted_model(estimator, "kernel_names_", cls.__name__)
        names, weights = model.kernel_names_, model.weight_shares_
        if learned is None:
            learned = model.weights_by_norm_ if getattr(model, "norm_", None) == "uniform" else {}
        beside = {
            f"learned, norm {norm}": one for norm, one in learned.items() if norm != "uniform"
        }
        if by_view:
            sums = [stacking.by_view(one, model.view_names_) for one in (weights, *beside.values())]
            weights, *others = (np.stack(list(one.values()), axis=-1) for one in sums)
            names, beside = list(sums[0]), dict(zip(beside, others, strict=True))
        if weights.ndim == 2 and np.ndim(getattr(model, "alpha_", 0.0)) == 1:
            raise ValueError(
                f"{cls.__name__}: every target has weights of its own; use TargetSharesDisplay."
            )
        classes = (
            list(getattr(model, "classes_", range(len(weights)))) if weights.ndim == 2 else None
        )
        name = "mean gate" if hasattr(model, "gate") else "weight"
        name = "share of all weights" if hasattr(model, "stationarity_") else name
        name = f"{name}; equal weights scored best" if beside else name
        shown = cls(weights, names, classes, name, beside if weights.ndim == 1 else None)
        return shown.plot(ax=ax, sort=sort, max_kernels=max_kernels, **style)

    def plot(
        self, ax: AxesOrNone = None, *, sort: bool = False, max_kernels: int = 40, **style: Any
    ) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        size = np.abs(np.atleast_2d(self.weights)).max(axis=0)
        order = np.argsort(-size, kind="stable")[: check_count("max_kernels", max_kernels)]
        self.shown_ = order if sort else np.sort(order)
        self.bars_: Any = None
        self.image_: Any = None
        labels = drawing.shortened([self.names[m] for m in self.shown_])
        ax = self._use_axes(ax, self._size(max(map(len, labels))))
        if self.weights.ndim == 1:
            self._draw_bars(ax, labels, style)
        else:
            self._draw_map(ax, style)
            drawing.name_rows(ax, labels)
        title_left_out(ax, len(self.shown_), len(self.names))
        return self

    def _size(self, letters: int) -> tuple[float, float]:
        """Inches: room for the longest name, a line for each kernel."""
        lines = (0.26 if len(self.shown_) <= 25 else 0.19) * len(self.shown_)
        if self.weights.ndim == 1:
            return 3.6 + 0.075 * letters, 0.9 + lines
        below = max(
            (len(str(label)) for label in (() if self.classes is None else self.classes)), default=0
        )
        return (
            1.6 + 0.075 * letters + max(0.46 * self.weights.shape[0], 1.6),
            0.9 + 0.05 * min(below, 36) + lines,
        )

    def _draw_bars(self, ax: AxesOrNone, labels: list[str], style: Settings) -> None:
        values = self.weights[self.shown_]
        self.bars_ = ax.barh(
            np.arange(len(values)), values, **({"color": colour(0), "height": 0.7} | style)
        )
        ax.bar_label(self.bars_, list(map(_number, values)), padding=3, fontsize=8)
        ax.set_xlabel(self.weight_name)
        drawing.bar_rows(ax, labels)
        self.points_ = {
            name: ax.plot(
                one[self.shown_], np.arange(len(values)), MARKERS[k], color=colour(k), label=name
            )[0]
            for k, (name, one) in enumerate((self.beside or {}).items(), start=1)
            if one.ndim == 1
        }
        if self.points_:
            ax.legend(frameon=False, fontsize=8)
        ax.margins(x=0.14)

    def _draw_map(self, ax: AxesOrNone, style: Settings) -> None:
        values = self.weights[:, self.shown_].T
        options: Settings = {
            "vmin": min(0.0, float(values.min())),
            "interpolation": "nearest",
        } | style
        self.image_ = drawing.draw_map(self, values, self.weight_name, **options)
        labels = [
            str(label)
            for label in (range(values.shape[1]) if self.classes is None else self.classes)
        ]
        crowded = max(map(len, labels)) > 5
        turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        ax.set_xticks(np.arange(len(labels)), drawing.shortened(labels), fontsize=9, **turned)
        ax.set_xlabel(self._rows_are)
        ax.tick_params(axis="x", length=0)
        if values.shape[1] <= 12:  # numbers in the cells of more columns would touch
            dark = self.image_.norm(values) < 0.55
            for (m, c), value in np.ndenumerate(values):
                ink = "white" if dark[m, c] else "black"
                ax.text(c, m, _number(value), ha="center", va="center", fontsize=7, color=ink)


@dataclass
class ColumnRelevanceDisplay(KernelWeightsDisplay):
    """Relevance of each column in kernels with one learned width per column: bars, or a heat map of
    several kernels.

    The relevance of a column is the inverse of its width, relative to the largest one of the
    kernel: 0 is that of a column that does not matter. Make it by :meth:`from_estimator`.

    Parameters
    ----------
    weights : ndarray of shape (columns,) or (kernels, columns)
        The relevances.
    names : list of str
        Of the columns.
    classes : list or None
        The names of the kernels, if there are several.
    weight_name : str, default="relevance, 1 / width of the column"
        Label of the numbers.

    Attributes
    ----------
    ax_, figure_, bars_, image_, shown_
        As in :class:`KernelWeightsDisplay`.

    Examples
    --------
    >>> from kernelmosaic import MKLRidgeCV, plots
    >>> from kernelmosaic.kernels import Gaussian
    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(80, n_features=6, random_state=0)
    >>> learned = Gaussian(width="learn", per_column=True)
    >>> model = MKLRidgeCV([learned], criterion="evidence").fit(X, y)
    >>> display = plots.ColumnRelevanceDisplay.from_estimator(model)
    >>> display.figure_.savefig("relevance.png")
    """

    weight_name: str = "relevance, 1 / width of the column"

    _rows_are: ClassVar[str] = "kernel"

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        *,
        sort: bool = True,
        max_kernels: int = 40,
        ax: AxesOrNone = None,
        **style: Any,
    ) -> Self:
        """Draw the relevance of the columns in a fitted estimator.

        Parameters
        ----------
        estimator : MKLRidgeCV or MKLRidgeClassifierCV
            Fitted, with a kernel that has ``width="learn"`` and ``per_column=True``; or a pipeline
            or search around it.
        sort : bool, default=True
            Most relevant first, instead of in the order of the columns.
        max_kernels : int, default=40
            Of more columns, the most relevant ones are drawn.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.barh`` or ``Axes.imshow``.

        Returns
        -------
        ColumnRelevanceDisplay
        """
        model = fitted_model(
            estimator, "kernels_", cls.__name__, "MKLRidgeCV and MKLRidgeClassifierCV"
        )
        columns = [f"x{j}" for j in range(model.n_features_in_)]
        columns = [str(name) for name in getattr(model, "feature_names_in_", columns)]
        rows: dict[str, Array] = {}
        for name, entry in zip(model.kernel_names_, model.kernels_, strict=True):
            kernel, where = (entry[1], entry[2]) if isinstance(entry, tuple) else (entry, None)
            scale = getattr(
                getattr(kernel, "kernel_", kernel), "scale_", getattr(kernel, "scale_", None)
            )
            if scale is not None:
                rows[name] = np.zeros(len(columns))
                rows[name][slice(None) if where is None else where] = scale.min() / scale
        if not rows:
            raise ValueError(
                f"{cls.__name__}: no kernel of the estimator has one learned width per column; fit"
                " one with Gaussian(width='learn', per_column=True)."
            )
        found = np.array(list(rows.values()))
        read = np.flatnonzero(np.any(found > 0, axis=0))
        found, names = found[:, read], [columns[j] for j in read]
        shown = cls(found, names, list(rows)) if len(rows) > 1 else cls(found[0], names)
        return shown.plot(ax=ax, sort=sort, max_kernels=max_kernels, **style)


def _number(value: float) -> str:
    """Two digits; zero as one letter, so that a kernel left out looks different from a small
    weight."""
    if value == 0:
        return "0"
    text = f"{value:.2f}" if 0.005 <= abs(value) < 1000 else f"{value:.0e}"
    return text.replace("e-0", "e-").replace("e+0", "e")


# Inspections --------------------------------------------------------------------------------------


def _kernel_axes(display: Display, ax: AxesOrNone, names: list[str]) -> Any:
    """Return the axes of a display with one line per kernel, the first at the top."""
    ax = display._use_axes(ax, (4.6 + 0.075 * max(map(len, names)), 1.1 + 0.32 * len(names)))
    drawing.bar_rows(ax, names)
    drawing.open_frame(ax, grid="x")
    return ax


def _of_class(classes: list[Any] | None, of_class: Any, *arrays: Array) -> list[Array]:
    """Return one row per kernel: of one class, where every class has its own."""
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

    #: The inspection, called with an estimator and samples, and with targets if it refits.
    _inspect: ClassVar[Callable[..., Any]]

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: MatrixLike,
        y: TargetLike = None,
        *,
        ax: AxesOrNone = None,
        **options: Any,
    ) -> Self:
        """Inspect an estimator, and draw what was found.

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
        drawn = {
            name: options.pop(name) for name in signature(cls.plot).parameters if name in options
        }
        targets = () if y is None else (y,)  # an inspection without refits takes none
        display: Self = cls(cls._inspect(estimator, X, *targets, **options)).plot(ax, **drawn)
        return display

    def _draw_classes(self, ax: AxesOrNone, values: Array, name: str) -> Self:
        """Draw numbers between 0 and 1 of every class and kernel as a heat map."""
        drawn = KernelWeightsDisplay(
            values, self.result.kernel_names, self.result.classes, name
        ).plot(ax, vmax=1.0)
        self.ax_, self.figure_, self.image_ = drawn.ax_, drawn.figure_, drawn.image_
        return self


@dataclass
class StabilityDisplay(InspectionDisplay):
    """The weight of each kernel with the interval that resampling gives it, and how often it is
    selected.

    Make it by :meth:`from_estimator`, or of a result: ``StabilityDisplay(result).plot()``. Where
    every class has weights of its own, the frequencies are drawn as a heat map, unless `of_class`
    names one.

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
    >>> X, y = make_gaussians(n_samples=50, random_state=0)
    >>> found = inspection.stability(MKLClassifier(), X, y, n_resamples=10, random_state=0)
    >>> plots.StabilityDisplay(found).plot().figure_.savefig("stability.png")
    """

    result: inspection.Stability
    _inspect = staticmethod(inspection.stability)

    def plot(self, ax: AxesOrNone = None, *, of_class: Any = None) -> Self:
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
            return self._draw_classes(ax, one.selection_frequencies, "selected")
        found = (one.weights, one.lower, one.upper, one.selection_frequencies)
        weights, lower, upper, frequencies = _of_class(one.classes, of_class, *found)
        ax, places = _kernel_axes(self, ax, one.kernel_names), np.arange(len(weights))
        self.lines_ = ax.hlines(places, lower, upper, color=colour(0), linewidth=3.0, alpha=0.45)
        (self.dots_,) = ax.plot(weights, places, "o", color=colour(0), markersize=6)
        _write_right(ax, [f"{100 * share:.0f} %" for share in frequencies], "selected")
        label = (
            f"weight, and {100 * one.confidence_level:g} % of those of {len(one.resampled_weights)}"
            " resamples"
        )
        ax.set_xlabel(label if of_class is None else f"{label}, class {of_class}")
        return self


@dataclass
class KernelImportanceDisplay(InspectionDisplay):
    """Loss of a score without each kernel, dropped and permuted; lines are the standard deviation
    over folds.

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
    >>> X, y = make_gaussians(n_samples=50, random_state=0)
    >>> found = inspection.kernel_importance(MKLClassifier(), X, y, cv=2, random_state=0)
    >>> plots.KernelImportanceDisplay(found).plot().figure_.savefig("importance.png")
    """

    result: inspection.KernelImportance
    _inspect = staticmethod(inspection.kernel_importance)

    def plot(self, ax: AxesOrNone = None) -> Self:
        """Draw, on the given axes or in a new figure."""
        one = self.result
        ax, places = _kernel_axes(self, ax, one.kernel_names), np.arange(len(one.kernel_names))
        ways = {
            "dropped": (one.drop_mean, one.drop_std),
            "permuted": (one.permutation_mean, one.permutation_std),
        }
        self.bars_ = {}
        for k, (name, (mean, spread)) in enumerate(ways.items()):
            style = {"xerr": spread, "color": colour(k), "label": name, "error_kw": {"lw": 1.0}}
            self.bars_[name] = ax.barh(places + 0.36 * (k - 0.5), mean, 0.34, **style)
        ax.set_xlabel(f"loss of score, from {one.scores.mean():.3g}")
        ax.legend(frameon=False, fontsize=8)
        return self


@dataclass
class FeatureImportanceDisplay(InspectionDisplay):
    """The most important columns of each view, with intervals of two standard errors: bars, an axis
    per view.

    Make it by :meth:`from_estimator`, or of a result: ``FeatureImportanceDisplay(result).plot()``.

    Parameters
    ----------
    result : FeatureImportance
        What to draw.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    axes_, bars_ : dict of Axes and of BarContainer
        By the name of the view; the scales differ.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> model = MKLClassifier().fit(X, y)
    >>> display = plots.FeatureImportanceDisplay.from_estimator(model, X, random_state=0)
    >>> display.figure_.savefig("columns.png")
    """

    result: inspection.FeatureImportance
    _inspect = staticmethod(inspection.feature_importance)

    def plot(self, ax: AxesOrNone = None, *, most: int = 8) -> Self:
        """Draw, on the given axes or in a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        most : int, default=8
            How many columns of each view are drawn.
        """
        found = self.result
        shown = {view: found.largest(view, most) for view in found.views}
        names = {
            view: [drawing.shortened([found.feature_names[j]])[0] for j in own]
            for view, own in shown.items()
        }
        rows, longest = (
            sum(map(len, shown.values())),
            max(len(name) for own in names.values() for name in own),
        )
        ax = self._use_axes(ax, (4.6 + 0.075 * longest, 0.4 + 0.75 * len(shown) + 0.28 * rows))
        ax.set_axis_off()
        ratios = [1.0 + len(own) for own in shown.values()]
        parts = ax.get_subplotspec().subgridspec(len(shown), 1, height_ratios=ratios)
        self.axes_, self.bars_ = {}, {}
        for k, (view, own) in enumerate(shown.items()):
            one = self.axes_[view] = self.figure_.add_subplot(parts[k])
            values, ends = found.importances[own], 2.0 * found.errors[own]
            bars = {
                "color": colour(k),
                "xerr": ends,
                "error_kw": {"elinewidth": 1, "ecolor": "0.3"},
            }
            self.bars_[view] = one.barh(np.arange(len(own)), values, 0.7, **bars)
            drawing.bar_rows(one, names[view])
            one.set_xlim(left=0.0)
            drawing.open_frame(one, grid="x")
            one.set_title(f"{view} ({len(found.views[view])} columns)", fontsize=9, loc="left")
        one.set_xlabel("change of the decision with the column of another sample")
        return self
