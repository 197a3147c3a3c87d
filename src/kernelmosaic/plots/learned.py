"""What was learned: the weights of the kernels, and the way to the optimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kernelmosaic import stacking
from kernelmosaic._typing import AxesOrNone, Estimator, Settings
from kernelmosaic.plots._common import (
    MARKERS,
    Array,
    Display,
    attribute,
    colour,
    fitted_model,
    line_style,
    pyplot,
    title_left_out,
)

# Weights --------------------------------------------------------------------------------------------------------------


@dataclass
class KernelWeightsDisplay(Display):
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
    beside : dict of ndarray of shape (P,) or None
        Other weights of the same kernels by what they are, drawn as points on the bars: of a search that chose equal
        weights, those that it learned.

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
            Fitted; any of this package, or a pipeline or search around one. Of a localized one, the mean gates; of a
            ridge estimator, whose weights are not normalised, their shares of the sum.
        sort : bool, default=False
            Largest first, instead of in the order of the kernels.
        max_kernels : int, default=40
            Of more kernels, those of largest weight are drawn.
        by_view : bool, default=False
            The weights summed over the kernels of every view, as ``view_weights_``, instead of those of the kernels.
        learned : dict from norm to ndarray, optional
            Weights to draw beside equal ones; by default ``weights_by_norm_`` of a search that chose equal weights.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.barh`` or ``Axes.imshow``.

        Returns
        -------
        KernelWeightsDisplay
        """
        model = fitted_model(estimator)
        attribute(model, "weights_", cls.__name__)
        names = attribute(model, "kernel_names_", cls.__name__)
        weights = model.weight_shares_
        equal = getattr(model, "norm_", None) == "uniform"
        learned = (getattr(model, "weights_by_norm_", {}) if equal else {}) if learned is None else learned
        beside = {f"learned, norm {norm}": one for norm, one in learned.items() if norm != "uniform"}
        if by_view:
            sums = [stacking.by_view(one, model.view_names_) for one in (weights, *beside.values())]
            weights, *others = (np.stack(list(one.values()), axis=-1) for one in sums)
            names, beside = list(sums[0]), dict(zip(beside, others, strict=True))
        if weights.ndim == 2 and np.ndim(getattr(model, "alpha_", 0.0)) == 1:
            raise ValueError(f"{cls.__name__}: every target has weights of its own; use TargetSharesDisplay.")
        classes = list(getattr(model, "classes_", range(len(weights)))) if weights.ndim == 2 else None
        name = "mean gate" if hasattr(model, "gate") else "weight"
        name = "share of all weights" if hasattr(model, "stationarity_") else name
        name = f"{name}; equal weights scored best" if beside else name
        return cls(weights, names, classes, name, beside if weights.ndim == 1 else None).plot(
            ax=ax, sort=sort, max_kernels=max_kernels, **style
        )

    def plot(self, ax: AxesOrNone = None, *, sort: bool = False, max_kernels: int = 40, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        self.shown_ = self._chosen(sort, max_kernels)
        self.bars_: Any = None
        self.image_: Any = None
        ax = self._use_axes(ax, self._size())
        if self.weights.ndim == 1:
            self._draw_bars(ax, style)
        else:
            self._draw_map(ax, style)
        labels = self._kernel_labels()
        ax.set_yticks(np.arange(len(labels)), labels, fontsize=9 if len(labels) <= 25 else 7)
        ax.tick_params(axis="y", length=0)
        title_left_out(ax, len(self.shown_), len(self.names))
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

    def _draw_bars(self, ax: AxesOrNone, style: Settings) -> None:
        values = self.weights[self.shown_]
        self.bars_ = ax.barh(np.arange(len(values)), values, **({"color": colour(0), "height": 0.7} | style))
        texts = [_number(value) for value in values]
        ax.bar_label(self.bars_, texts, padding=3, fontsize=8)
        ax.set(xlabel=self.weight_name, ylim=(len(values) - 0.4, -0.6))
        ax.axvline(0.0, color="black", linewidth=0.8)
        self.points_ = {
            name: ax.plot(one[self.shown_], np.arange(len(values)), MARKERS[k], color=colour(k), label=name)[0]
            for k, (name, one) in enumerate((self.beside or {}).items(), start=1)
            if one.ndim == 1
        }
        if self.points_:
            ax.legend(frameon=False, fontsize=8)
        ax.margins(x=0.14)
        ax.spines[["top", "right", "left"]].set_visible(False)

    def _draw_map(self, ax: AxesOrNone, style: Settings) -> None:
        values = self.weights[:, self.shown_].T
        low = min(0.0, float(values.min()))
        options = {"cmap": "cividis", "vmin": low, "aspect": "auto", "interpolation": "nearest"} | style
        self.image_ = ax.imshow(values, **options)
        self.figure_.colorbar(self.image_, ax=ax, label=self.weight_name, shrink=0.9)
        labels = [str(label) for label in (range(values.shape[1]) if self.classes is None else self.classes)]
        crowded = max(map(len, labels)) > 5
        turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        ax.set_xticks(np.arange(len(labels)), _shortened(labels), fontsize=9, **turned)
        ax.set_xlabel(self._rows_are)
        ax.tick_params(axis="x", length=0)
        if values.shape[1] <= 12:  # numbers in the cells of more columns would touch
            dark = self.image_.norm(values) < 0.55
            for (m, c), value in np.ndenumerate(values):
                ink = "white" if dark[m, c] else "black"
                ax.text(c, m, _number(value), ha="center", va="center", fontsize=7, color=ink)


@dataclass
class ColumnRelevanceDisplay(KernelWeightsDisplay):
    """How much each column counts in kernels with one learned width per column: bars, or a heat map of several kernels.

    The relevance of a column is the inverse of its width, relative to the largest one of the kernel: 0 is that of a
    column that does not matter. Make it by :meth:`from_estimator`.

    Parameters
    ----------
    weights : ndarray of shape (columns,) or (kernels, columns)
        The relevances.
    names : list of str
        Of the columns.
    classes : list or None
        The names of the kernels, if there are several.
    weight_name : str, default="relevance, 1 / width of the column"
        What the numbers are.

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
        cls, estimator: Estimator, *, sort: bool = True, max_kernels: int = 40, ax: AxesOrNone = None, **style: Any
    ) -> Self:
        """Draw the relevance of the columns in a fitted estimator.

        Parameters
        ----------
        estimator : MKLRidgeCV or MKLRidgeClassifierCV
            Fitted, with a kernel that has ``width="learn"`` and ``per_column=True``; or a pipeline or search around it.
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
        model = fitted_model(estimator)
        kernels = attribute(model, "kernels_", cls.__name__, "MKLRidgeCV and MKLRidgeClassifierCV")
        columns = [f"x{j}" for j in range(model.n_features_in_)]
        columns = [str(name) for name in getattr(model, "feature_names_in_", columns)]
        names, rows = [], []
        for name, entry in zip(model.kernel_names_, kernels, strict=True):
            kernel, where = (entry[1], entry[2]) if isinstance(entry, tuple) else (entry, None)
            scale = getattr(getattr(kernel, "kernel_", kernel), "scale_", getattr(kernel, "scale_", None))
            if scale is not None:
                row = np.zeros(len(columns))
                row[slice(None) if where is None else where] = scale.min() / scale
                names.append(name)
                rows.append(row)
        if not rows:
            raise ValueError(
                f"{cls.__name__}: no kernel of the estimator has one learned width per column; fit one with "
                "Gaussian(width='learn', per_column=True)."
            )
        read = np.flatnonzero(np.any(np.array(rows) > 0, axis=0))
        found = np.array(rows)[:, read]
        shown = cls(found if len(rows) > 1 else found[0], [columns[j] for j in read], names if len(rows) > 1 else None)
        return shown.plot(ax=ax, sort=sort, max_kernels=max_kernels, **style)


@dataclass
class TargetSharesDisplay(Display):
    """The shares of the kernels in every target: a heat map of kernels by targets.

    Targets are ordered by the kernel of their largest share, and by this share. Make it by :meth:`from_estimator`.

    Parameters
    ----------
    shares : ndarray of shape (targets, P)
        The shares.
    names : list of str
        Of the kernels.
    share_name : str, default="share of all weights"
        What the numbers are.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    image_ : AxesImage
        The heat map, one row per kernel and one column per target.
    order_ : ndarray of int
        The targets from left to right.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLRidgeCV, plots
    >>> from kernelmosaic.kernels import Linear
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 6))
    >>> Y = X @ rng.normal(size=(6, 20)) + rng.normal(size=(60, 20))
    >>> views = [("a", Linear(), [0, 1, 2]), ("b", Linear(), [3, 4, 5])]
    >>> model = MKLRidgeCV(views, per_target=True).fit(X, Y)
    >>> display = plots.TargetSharesDisplay.from_estimator(model)
    >>> display.figure_.savefig("shares.png")
    """

    shares: Array
    names: list[str]
    share_name: str = "share of all weights"

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, X: Any = None, y: Any = None, *, ax: AxesOrNone = None, **style: Any
    ) -> Self:
        """Draw the shares of a fitted estimator.

        Parameters
        ----------
        estimator : MKLRidgeCV
            Fitted with ``per_target=True``.
        X, y : array-like, optional
            Samples and their targets: the shares are then those of R², by `score_split`, in place of those of the
            weights.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.imshow``.

        Returns
        -------
        TargetSharesDisplay
        """
        model = fitted_model(estimator)
        if np.ndim(attribute(model, "alpha_", cls.__name__, "MKLRidgeCV")) != 1:
            raise ValueError(f"{cls.__name__}: all targets share their weights; fit MKLRidgeCV(per_target=True).")
        if X is None:
            return cls(model.weight_shares_, model.kernel_names_).plot(ax, **style)
        return cls(model.score_split(X, y).T, model.kernel_names_, "share of R²").plot(ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        labels = _shortened(self.names)
        ax = self._use_axes(ax, (5.5 + 0.075 * max(map(len, labels)), 1.2 + 0.26 * len(labels)))
        self.order_ = np.lexsort((-self.shares.max(axis=1), self.shares.argmax(axis=1)))
        # A few targets that are far off would leave one colour for all others.
        low, high = np.quantile(self.shares, [0.01, 0.99])
        options = {"cmap": "cividis", "aspect": "auto", "vmin": min(0.0, float(low)), "vmax": float(high)} | style
        self.image_ = ax.imshow(self.shares[self.order_].T, **options)
        self.figure_.colorbar(self.image_, ax=ax, label=self.share_name, shrink=0.9)
        ax.set_yticks(np.arange(len(labels)), labels, fontsize=9 if len(labels) <= 25 else 7)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("target, by the kernel of its largest share")
        return self


def _number(value: float) -> str:
    """Two digits; zero as one letter, so that a kernel left out looks different from a small weight."""
    if value == 0:
        return "0"
    text = f"{value:.2f}" if 0.005 <= abs(value) < 1000 else f"{value:.0e}"
    return text.replace("e-0", "e-").replace("e+0", "e")


def _shortened(names: list[str], most: int = 36) -> list[str]:
    """Long names lose their middle, unless that is where they differ."""
    half = most // 2
    short = [name if len(name) <= most else f"{name[: half - 1]}…{name[-half:]}" for name in names]
    return short if len(set(short)) == len(set(names)) else names


# The way to the optimum -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """One line: the iterations of one problem.

    Attributes
    ----------
    label : str
        Whose: a class, a start; empty if there is one problem only.
    iterations, objectives, gaps : ndarray of shape (n_iterations,)
        What the history says.
    """

    label: str
    iterations: Array
    objectives: Array
    gaps: Array


@dataclass
class ConvergenceDisplay(Display):
    """Objective (above) and relative duality gap (below, on a log axis) of every iteration; one line per class.

    Make it by :meth:`from_estimator`. Of a ridge estimator, which has no gap, there is one picture: the criterion at
    every evaluation as dots, and the lowest so far as a line.

    Parameters
    ----------
    courses : list of Course
        The lines.
    tol : float or None, default=None
        The gap asked for, drawn as a dotted line.
    gap_name : str, default="relative duality gap"
        What the gap is of.

    Attributes
    ----------
    axes_ : ndarray of Axes, shape (2,), or (1,) without gaps
        Of the objective and of the gap.
    ax_, figure_
        The last of the axes, and the figure.
    objective_lines_, gap_lines_ : list of Line2D
        One a course.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> display = plots.ConvergenceDisplay.from_estimator(MKLClassifier().fit(X, y))
    >>> display.figure_.savefig("convergence.png")
    """

    courses: list[Course]
    tol: float | None = None
    gap_name: str = "relative duality gap"

    @classmethod
    def from_estimator(cls, estimator: Estimator, *, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw the history of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted; any of this package, or a pipeline or search around one.
        ax : Axes or pair of Axes, optional
            Where to draw: two axes, or one whose place two will take; a new figure by default.
        **style
            Passed to ``Axes.plot``.

        Returns
        -------
        ConvergenceDisplay
        """
        model = fitted_model(estimator)
        history = attribute(model, "history_", cls.__name__)
        if not history:
            raise ValueError(f"{type(model).__name__} has an empty history_: nothing was iterated.")
        gated = hasattr(model, "gate")
        # Under gates the gap is the machine's, which the tolerance on the gates does not speak of.
        name = "gap of the machine" if gated else "relative duality gap"
        name = "relative rise of the bound" if hasattr(model, "elbo_") else name
        tol = None if gated else float(model.tol)
        return cls(_courses(history, getattr(model, "classes_", None)), tol, name).plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        if all(np.isnan(course.gaps).all() for course in self.courses):
            return self._plot_values(ax, style)
        self.axes_ = _two_axes(ax, legend=len(self.courses) > 1)
        from matplotlib.ticker import MaxNLocator, NullFormatter

        above, below = self.axes_
        self.ax_, self.figure_ = below, below.figure
        self.objective_lines_, self.gap_lines_ = [], []
        for k, course in enumerate(self.courses):
            # One marker per iteration reads well up to a few dozen; then some are enough.
            marks = {"marker": MARKERS[k % 5], "markersize": 4.0, "markevery": max(1, len(course.iterations) // 20)}
            drawn = line_style(k) | marks | {"linewidth": 1.4} | style
            self.objective_lines_ += above.plot(course.iterations, course.objectives, label=course.label, **drawn)
            # A logarithm has no zero.
            gaps = np.where(np.isfinite(course.gaps), np.maximum(course.gaps, 1e-16), np.nan)
            self.gap_lines_ += below.plot(course.iterations, gaps, **drawn)
        if self.tol is not None:
            below.axhline(self.tol, color="0.35", linestyle="dotted", linewidth=1.2, zorder=1)
            below.annotate(
                f"tol = {self.tol:g}",
                (0.0, self.tol),  # on the left: the lines come down to it on the right
                xycoords=("axes fraction", "data"),
                xytext=(3, 3),
                textcoords="offset points",
                ha="left",
                fontsize=8,
                color="0.25",
            )
        above.set_ylabel("objective")
        above.ticklabel_format(axis="y", useOffset=False)
        below.set(ylabel=self.gap_name, xlabel="iteration", yscale="log")
        # The axis ends at powers of ten, so that there are at least two to read it by.
        low, high = below.dataLim.intervaly
        if np.isfinite([low, high]).all() and 0 < low <= high:
            below.set_ylim(10.0 ** np.floor(np.log10(0.9 * low)), 10.0 ** np.ceil(np.log10(1.1 * high)))
        below.yaxis.set_minor_formatter(NullFormatter())
        above.sharex(below)
        above.tick_params(labelbottom=False)
        below.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        for axes in (above, below):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="0.9", linewidth=0.6)
            axes.set_axisbelow(True)
        if len(self.courses) > 1:
            above.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8, handlelength=3.0)
        return self

    def _plot_values(self, ax: AxesOrNone, style: Settings) -> Self:
        """Draw the values of a search, which may rise between two that are lower than all before."""
        from matplotlib.ticker import MaxNLocator

        ax = self._use_axes(ax, (6.0, 3.2))
        self.axes_, self.objective_lines_, self.gap_lines_ = np.array([ax]), [], []
        for k, course in enumerate(self.courses):
            lowest = np.minimum.accumulate(course.objectives)
            drawn = line_style(k) | {"linewidth": 1.4, "label": "lowest so far"} | style
            self.objective_lines_ += ax.plot(course.iterations, lowest, **drawn)
            ax.plot(
                course.iterations, course.objectives, "o", markersize=3.5, color="0.55", zorder=1, label="evaluation"
            )
        # Steps that are too long, and other starts, may be far above: what is not below the first is left out.
        low, high = min(course.objectives.min() for course in self.courses), self.courses[0].objectives[0]
        margin = 0.06 * (high - low) or 1.0
        ax.set(xlabel="evaluation", ylabel="criterion", ylim=(low - margin, high + margin))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        ax.ticklabel_format(axis="y", useOffset=False)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="0.9", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.legend(frameon=False, fontsize=8)
        return self


def _courses(history: list[Settings], classes: Any) -> list[Course]:
    """One course per output and, where there are several, per start."""
    groups: dict[tuple[int, int], list[Settings]] = {}
    for step in history:
        groups.setdefault((step.get("output", 0), step.get("start", 0)), []).append(step)
    outputs = sorted({output for output, _ in groups})
    starts = sorted({start for _, start in groups})
    named = classes is not None and len(classes) == len(outputs)
    courses = []
    for (output, start), steps in sorted(groups.items()):
        parts = [f"class {classes[output] if named else output}"] if len(outputs) > 1 else []
        parts += [f"start {start}"] if len(starts) > 1 else []
        columns = (
            np.array([step.get(key, np.nan) for step in steps], dtype=np.float64)
            for key in ("iteration", "objective", "gap")
        )
        courses.append(Course(", ".join(parts), *columns))
    return courses


def _two_axes(ax: AxesOrNone, legend: bool) -> Any:
    if ax is None:
        _, axes = pyplot().subplots(2, 1, figsize=(6.0, 4.6), sharex=True, layout="constrained")
        return axes
    given = np.ravel(np.asarray(ax, dtype=object))
    if len(given) == 2:
        return given
    if len(given) != 1:
        raise ValueError(f"ax holds {len(given)} axes: give one, or two for the objective and the gap.")
    given[0].set_axis_off()
    width = 0.68 if legend else 1.0
    return np.array([given[0].inset_axes((0.0, start, width, 0.46)) for start in (0.54, 0.0)])
