"""Displays of kernels: learned weights, relevance of columns, stability and importance."""

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

#: Kernels up to which the rows of a picture are high; chosen by hand.
_FEW_KERNELS = 25
#: Columns of a heat map up to which numbers in its cells do not touch; chosen by hand.
_MOST_NUMBERED_COLUMNS = 12
#: Letters up to which the names of the columns of a heat map are written horizontally; chosen by
#: hand.
_SHORT_NAME = 5

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
        The names of the kernels.
    classes : list or None
        The classes, one for each row of weights.
    weight_name : str, default="weight"
        Label of the numbers.
    beside : dict of ndarray of shape (P,) or None
        Other weights of the same kernels by their label, drawn as points on the bars: of a search
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
        The numbers of the kernels that are drawn, from top to bottom.

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

    #: The label of the columns of the heat map, which are the rows of the weights.
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
        names = model.kernel_names_
        weights = model.weight_shares_
        if learned is None:
            chose_equal_weights = getattr(model, "norm_", None) == "uniform"
            learned = {}
            if chose_equal_weights:
                learned = model.weights_by_norm_
        beside = {
            f"learned, norm {norm}": norm_weights
            for norm, norm_weights in learned.items()
            if norm != "uniform"
        }
        if by_view:
            names = list(stacking.by_view(weights, model.view_names_))
            weights = _summed_by_view(weights, model.view_names_)
            beside = {
                label: _summed_by_view(norm_weights, model.view_names_)
                for label, norm_weights in beside.items()
            }
        has_classes = weights.ndim == 2
        if has_classes and np.ndim(getattr(model, "alpha_", 0.0)) == 1:
            raise ValueError(
                f"{cls.__name__}: every target has weights of its own; use TargetSharesDisplay."
            )
        classes = list(getattr(model, "classes_", range(len(weights)))) if has_classes else None
        weight_name = "weight"
        if hasattr(model, "stationarity_"):
            weight_name = "share of all weights"
        elif hasattr(model, "gate"):
            weight_name = "mean gate"
        if beside:
            weight_name += "; equal weights scored best"
        display = cls(weights, names, classes, weight_name, None if has_classes else beside)
        return display.plot(ax=ax, sort=sort, max_kernels=max_kernels, **style)

    def plot(
        self, ax: AxesOrNone = None, *, sort: bool = False, max_kernels: int = 40, **style: Any
    ) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        largest = np.abs(np.atleast_2d(self.weights)).max(axis=0)
        order = np.argsort(-largest, kind="stable")[: check_count("max_kernels", max_kernels)]
        self.shown_ = order if sort else np.sort(order)
        self.bars_: Any = None
        self.image_: Any = None
        labels = drawing.shorten_names([self.names[m] for m in self.shown_])
        ax = self._use_axes(ax, self._size(max(map(len, labels))))
        if self.weights.ndim == 1:
            self._draw_bars(ax, labels, style)
        else:
            self._draw_map(ax, style)
            drawing.name_rows(ax, labels)
        title_left_out(ax, len(self.shown_), len(self.names))
        return self

    def _size(self, n_letters: int) -> tuple[float, float]:
        """Return width and height of the figure in inches.

        There is room for a name of `n_letters`, a line for each kernel and the names of the
        classes.
        """
        n_kernels = len(self.shown_)
        lines = (0.26 if n_kernels <= _FEW_KERNELS else 0.19) * n_kernels
        if self.weights.ndim == 1:
            return 3.6 + 0.075 * n_letters, 0.9 + lines
        classes = () if self.classes is None else self.classes
        n_letters_below = max((len(str(label)) for label in classes), default=0)
        width = 1.6 + 0.075 * n_letters + max(0.46 * self.weights.shape[0], 1.6)
        height = 0.9 + 0.05 * min(n_letters_below, 36) + lines
        return width, height

    def _draw_bars(self, ax: AxesOrNone, labels: list[str], style: Settings) -> None:
        """Draw bars of the weights, and points of the weights beside them.

        Sets `bars_` and `points_`. Of weights beside them that differ by class there are no points:
        a kernel has one row.
        """
        weights = self.weights[self.shown_]
        rows = np.arange(len(weights))
        options = {"color": colour(0), "height": 0.7} | style
        self.bars_ = ax.barh(rows, weights, **options)
        ax.bar_label(self.bars_, list(map(_number, weights)), padding=3, fontsize=8)
        ax.set_xlabel(self.weight_name)
        drawing.bar_rows(ax, labels)
        self.points_ = {}
        for k, (name, other_weights) in enumerate((self.beside or {}).items(), start=1):
            if other_weights.ndim == 1:
                values = other_weights[self.shown_]
                (points,) = ax.plot(values, rows, MARKERS[k], color=colour(k), label=name)
                self.points_[name] = points
        if self.points_:
            ax.legend(frameon=False, fontsize=8)
        ax.margins(x=0.14)

    def _draw_map(self, ax: AxesOrNone, style: Settings) -> None:
        """Draw a heat map of the weights, kernels by classes."""
        values = self.weights[:, self.shown_].T
        n_columns = values.shape[1]
        lowest = min(0.0, float(values.min()))
        options: Settings = {"vmin": lowest, "interpolation": "nearest"} | style
        self.image_ = drawing.draw_map(self, values, self.weight_name, **options)
        classes = range(n_columns) if self.classes is None else self.classes
        labels = [str(label) for label in classes]
        turned = {}
        if max(map(len, labels)) > _SHORT_NAME:
            turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(np.arange(len(labels)), drawing.shorten_names(labels), fontsize=9, **turned)
        ax.set_xlabel(self._rows_are)
        ax.tick_params(axis="x", length=0)
        if n_columns <= _MOST_NUMBERED_COLUMNS:
            is_dark = self.image_.norm(values) < 0.55
            for (m, c), value in np.ndenumerate(values):
                ink = "white" if is_dark[m, c] else "black"
                ax.text(c, m, _number(value), ha="center", va="center", fontsize=7, color=ink)


@dataclass
class ColumnRelevanceDisplay(KernelWeightsDisplay):
    """Relevance of each column in kernels that learn one width per column.

    One kernel is drawn as bars, several as a heat map. The relevance of a column is the inverse of
    its width, relative to the largest one of the kernel: 0 is that of a column that does not
    matter. Make it by :meth:`from_estimator`.

    Parameters
    ----------
    weights : ndarray of shape (columns,) or (kernels, columns)
        The relevances.
    names : list of str
        The names of the columns.
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
        default_names = [f"x{j}" for j in range(model.n_features_in_)]
        column_names = [str(name) for name in getattr(model, "feature_names_in_", default_names)]
        relevance_of_kernel: dict[str, Array] = {}
        for name, entry in zip(model.kernel_names_, model.kernels_, strict=True):
            kernel = entry
            columns = None
            if isinstance(entry, tuple):
                _, kernel, columns = entry
            widths = _column_widths(kernel)
            if widths is not None:
                if columns is None:
                    columns = slice(None)
                relevance = np.zeros(len(column_names))
                relevance[columns] = widths.min() / widths
                relevance_of_kernel[name] = relevance
        if not relevance_of_kernel:
            raise ValueError(
                f"{cls.__name__}: no kernel of the estimator has one learned width per column; fit"
                " one with Gaussian(width='learn', per_column=True)."
            )
        relevances = np.array(list(relevance_of_kernel.values()))
        is_read = np.flatnonzero(np.any(relevances > 0, axis=0))
        relevances = relevances[:, is_read]
        names = [column_names[j] for j in is_read]
        if len(relevances) > 1:
            display = cls(relevances, names, list(relevance_of_kernel))
        else:
            display = cls(relevances[0], names)
        return display.plot(ax=ax, sort=sort, max_kernels=max_kernels, **style)


def _summed_by_view(weights: Array, view_names: list[str]) -> Array:
    """Return weights, whose last axis is that of the kernels, summed over each view."""
    return np.stack(list(stacking.by_view(weights, view_names).values()), axis=-1)


def _column_widths(kernel: Any) -> Array | None:
    """Return the learned widths of a fitted kernel, one per column; None if it has none."""
    # A kernel around another one has that as `kernel_`.
    widths: Array | None = getattr(kernel, "scale_", None)
    return getattr(getattr(kernel, "kernel_", kernel), "scale_", widths)


def _number(value: float) -> str:
    """Return a number with two digits as text.

    Zero is one letter, so that a kernel without a weight looks different from a small weight.
    """
    if value == 0:
        return "0"
    text = f"{value:.2f}" if 0.005 <= abs(value) < 1000 else f"{value:.0e}"
    return text.replace("e-0", "e-").replace("e+0", "e")


# Inspections --------------------------------------------------------------------------------------


def _kernel_axes(display: Display, ax: AxesOrNone, names: list[str]) -> Any:
    """Return the axes of a display with one line per kernel, the first at the top."""
    width = 4.6 + 0.075 * max(map(len, names))
    ax = display._use_axes(ax, (width, 1.1 + 0.32 * len(names)))
    drawing.bar_rows(ax, names)
    drawing.open_frame(ax, grid="x")
    return ax


def _of_class(classes: list[Any] | None, of_class: Any, *arrays: Array) -> list[Array]:
    """Return arrays with one number per kernel: those of one class, if classes have their own."""
    if classes is None:
        return list(arrays)
    if of_class not in classes:
        raise ValueError(f"of_class={of_class!r}: the classes are {', '.join(map(repr, classes))}.")
    return [array[..., classes.index(of_class), :] for array in arrays]


def _write_right(ax: AxesOrNone, texts: list[str], head: str) -> None:
    """Write one text per kernel to the right of the axes, under a head."""
    style = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": 8}
    for m, text in enumerate(texts):
        ax.text(1.02, m, text, **style)
    ax.text(1.02, -0.75, head, **style)


@dataclass
class InspectionDisplay(Display):
    """The result of an inspection as a picture."""

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
        """Inspect an estimator, and draw the result.

        Parameters
        ----------
        estimator, X, y
            As the inspection takes them.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **options
            Parameters of :meth:`plot` are passed to it, and all others to the inspection.

        Returns
        -------
        InspectionDisplay
            The drawn display, of the class that the method is called on.
        """
        plot_parameters = signature(cls.plot).parameters
        plot_options = {name: options.pop(name) for name in plot_parameters if name in options}
        # An inspection without refits takes no targets.
        targets = () if y is None else (y,)
        result = cls._inspect(estimator, X, *targets, **options)
        display: Self = cls(result).plot(ax, **plot_options)
        return display


@dataclass
class StabilityDisplay(InspectionDisplay):
    """The weight of each kernel with its interval under resampling, and how often it is selected.

    Make it by :meth:`from_estimator`, or of a result: ``StabilityDisplay(result).plot()``. Where
    every class has weights of its own, the frequencies are drawn as a heat map, unless `of_class`
    names one.

    Parameters
    ----------
    result : Stability
        The result to draw.

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
    >>> result = inspection.stability(MKLClassifier(), X, y, n_resamples=10, random_state=0)
    >>> plots.StabilityDisplay(result).plot().figure_.savefig("stability.png")
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
            The class whose weights to draw, where every class has its own.
        """
        self.dots_ = self.lines_ = self.image_ = None
        result = self.result
        if result.classes is not None and of_class is None:
            return self._draw_frequencies(ax)
        weights, lower, upper, frequencies = _of_class(
            result.classes,
            of_class,
            result.weights,
            result.lower,
            result.upper,
            result.selection_frequencies,
        )
        ax = _kernel_axes(self, ax, result.kernel_names)
        rows = np.arange(len(weights))
        self.lines_ = ax.hlines(rows, lower, upper, color=colour(0), linewidth=3.0, alpha=0.45)
        (self.dots_,) = ax.plot(weights, rows, "o", color=colour(0), markersize=6)
        _write_right(ax, [f"{100 * share:.0f} %" for share in frequencies], "selected")
        label = (
            f"weight, and {100 * result.confidence_level:g} % of those of"
            f" {len(result.resampled_weights)} resamples"
        )
        if of_class is not None:
            label += f", class {of_class}"
        ax.set_xlabel(label)
        return self

    def _draw_frequencies(self, ax: AxesOrNone) -> Self:
        """Draw how often the kernels are selected in every class, as a heat map."""
        result = self.result
        heat_map = KernelWeightsDisplay(
            result.selection_frequencies, result.kernel_names, result.classes, "selected"
        )
        heat_map.plot(ax, vmax=1.0)
        self.ax_ = heat_map.ax_
        self.figure_ = heat_map.figure_
        self.image_ = heat_map.image_
        return self


@dataclass
class KernelImportanceDisplay(InspectionDisplay):
    """Loss of a score without each kernel, dropped and permuted.

    Lines are standard deviations over folds. Make it by :meth:`from_estimator`, or of a result:
    ``KernelImportanceDisplay(result).plot()``.

    Parameters
    ----------
    result : KernelImportance
        The result to draw.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    bars_ : dict from str to BarContainer
        The bars, by "dropped" and "permuted".

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier, inspection, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_samples=50, random_state=0)
    >>> result = inspection.kernel_importance(MKLClassifier(), X, y, cv=2, random_state=0)
    >>> plots.KernelImportanceDisplay(result).plot().figure_.savefig("importance.png")
    """

    result: inspection.KernelImportance
    _inspect = staticmethod(inspection.kernel_importance)

    def plot(self, ax: AxesOrNone = None) -> Self:
        """Draw, on the given axes or in a new figure."""
        result = self.result
        ax = _kernel_axes(self, ax, result.kernel_names)
        rows = np.arange(len(result.kernel_names))
        losses = {
            "dropped": (result.drop_mean, result.drop_std),
            "permuted": (result.permutation_mean, result.permutation_std),
        }
        self.bars_ = {}
        for k, (name, (mean, deviation)) in enumerate(losses.items()):
            style = {"xerr": deviation, "color": colour(k), "label": name, "error_kw": {"lw": 1.0}}
            self.bars_[name] = ax.barh(rows + 0.36 * (k - 0.5), mean, 0.34, **style)
        ax.set_xlabel(f"loss of score, from {result.scores.mean():.3g}")
        ax.legend(frameon=False, fontsize=8)
        return self


@dataclass
class FeatureImportanceDisplay(InspectionDisplay):
    """The most important columns of each view as bars, with intervals of two standard errors.

    Every view has axes of its own. Make it by :meth:`from_estimator`, or of a result:
    ``FeatureImportanceDisplay(result).plot()``.

    Parameters
    ----------
    result : FeatureImportance
        The result to draw.

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
        result = self.result
        columns = {view: result.largest(view, most) for view in result.views}
        names = {}
        for view, numbers in columns.items():
            # Names are shortened one by one: those of a view may become equal.
            names[view] = [drawing.shorten_names([result.feature_names[j]])[0] for j in numbers]
        n_views = len(columns)
        n_rows = sum(map(len, columns.values()))
        n_letters = max(len(name) for view_names in names.values() for name in view_names)
        ax = self._use_axes(ax, (4.6 + 0.075 * n_letters, 0.4 + 0.75 * n_views + 0.28 * n_rows))
        ax.set_axis_off()
        heights = [1.0 + len(numbers) for numbers in columns.values()]
        grid = ax.get_subplotspec().subgridspec(n_views, 1, height_ratios=heights)
        self.axes_ = {}
        self.bars_ = {}
        for k, (view, numbers) in enumerate(columns.items()):
            view_ax = self.figure_.add_subplot(grid[k])
            self.axes_[view] = view_ax
            style = {
                "color": colour(k),
                "xerr": 2.0 * result.errors[numbers],
                "error_kw": {"elinewidth": 1, "ecolor": "0.3"},
            }
            rows = np.arange(len(numbers))
            self.bars_[view] = view_ax.barh(rows, result.importances[numbers], 0.7, **style)
            drawing.bar_rows(view_ax, names[view])
            view_ax.set_xlim(left=0.0)
            drawing.open_frame(view_ax, grid="x")
            title = f"{view} ({len(result.views[view])} columns)"
            view_ax.set_title(title, fontsize=9, loc="left")
        view_ax.set_xlabel("change of the decision with the column of another sample")
        return self
