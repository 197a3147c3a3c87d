"""Displays of searches and solvers: scores and weights along C, the surface over penalties, the
iterations of a fit."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, cycle, repeat
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._typing import Array, AxesOrNone, Estimator, Settings
from kernelmosaic.engine.pipelines import last_step
from kernelmosaic.plots import drawing
from kernelmosaic.plots.drawing import PALETTE, Display, colour, fitted_model, line_style

#: Names up to which a legend is inside the axes; chosen by hand.
_FEW_NAMES = 5
#: Iterations of a line that are marked, about: more markers would hide the line; chosen by hand.
_MARKED_ITERATIONS = 20
#: The smallest gap that is drawn: a logarithm has no zero.
_SMALLEST_GAP = 1e-16


def _search_of(estimator: Estimator, display: str) -> Estimator:
    """Return the search along C in an estimator or pipeline, or raise if there is none."""
    model = last_step(estimator)
    if hasattr(model, "Cs_"):
        return model
    drawable = "MKLClassifierCV, MKLRegressorCV and PathSearchCV"
    return fitted_model(model, "Cs_", display, drawable)


@dataclass
class ValidationPathDisplay(Display):
    """Mean score of the folds along C, one line per norm, and the choice.

    The standard error of the mean is shaded. Make it by :meth:`from_estimator`.

    Parameters
    ----------
    Cs : ndarray of shape (Cs,)
        The values of C.
    scores : dict from norm to ndarray of shape (folds, Cs)
        The scores.
    chosen : tuple
        The chosen norm and C.
    parameter : str, default="C"
        Label of the values.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    lines_ : dict from norm to Line2D
        The mean scores.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifierCV, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> model = MKLClassifierCV(Cs=3, cv=2).fit(X, y)
    >>> display = plots.ValidationPathDisplay.from_estimator(model)
    >>> display.figure_.savefig("path.png")
    """

    Cs: Array
    scores: dict[Any, Array]
    chosen: tuple[Any, float]
    parameter: str = "C"

    @classmethod
    def from_estimator(cls, estimator: Estimator, *, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw the scores of a fitted search along C.

        Parameters
        ----------
        estimator : estimator
            Fitted; a CV estimator, a PathSearchCV, or a pipeline that ends in one.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.plot``.

        Returns
        -------
        ValidationPathDisplay
        """
        model = _search_of(estimator, cls.__name__)
        norm = getattr(model, "norm_", None)
        scores = getattr(model, "scores_by_norm_", {norm: model.scores_})
        display = cls(model.Cs_, scores, (norm, model.C_), getattr(model, "parameter_", "C"))
        return display.plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        ax = self._use_axes(ax)
        self.lines_ = {}
        for i, (norm, scores) in enumerate(self.scores.items()):
            mean = scores.mean(axis=0)
            error = scores.std(axis=0) / np.sqrt(len(scores))
            options = line_style(i) | {"label": _norm_label(norm)} | style
            (line,) = ax.plot(self.Cs, mean, **options)
            self.lines_[norm] = line
            shade = {"color": line.get_color(), "alpha": 0.12, "lw": 0}
            ax.fill_between(self.Cs, mean - error, mean + error, **shade)
        norm, C = self.chosen
        score = self.scores[norm].mean(axis=0)[np.argmin(np.abs(self.Cs - C))]
        ax.plot([C], [score], "o", color=self.lines_[norm].get_color(), label="chosen")
        ax.set(
            xscale="log",
            xlabel=self.parameter,
            ylabel="mean score of the folds, ± its standard error",
        )
        drawing.name_few_values(ax, self.Cs)
        ax.legend(frameon=False)
        return self


def _norm_label(norm: Any) -> str | None:
    """Return the label of a norm in a legend; None has none."""
    if norm is None:
        return None
    return {"uniform": "equal weights", "loo": "loo"}.get(norm, f"norm {norm}")


@dataclass
class WeightsPathDisplay(Display):
    """The weights of the kernels along C, averaged over the folds, and the C that was chosen.

    Where the folds chose equal weights, those that the other norms learned are drawn with them.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    Cs : ndarray of shape (Cs,)
        The values of C.
    weights : ndarray of shape (Cs, P)
        The weights.
    names : list of str
        The names of the kernels.
    chosen : float
        The chosen C.
    parameter : str, default="C"
        Label of the values.
    beside : dict from norm to ndarray of shape (Cs, P), optional
        Weights that were learned and not chosen.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    lines_ : list of Line2D
        One per kernel, in the order of `shown_`.
    beside_ : dict from norm to list of Line2D
        The lines of the norms that were not chosen, in the same order.
    shown_ : ndarray of int
        The numbers of the kernels that are drawn.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifierCV, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> model = MKLClassifierCV(Cs=3, cv=2, norms=[1]).fit(X, y)
    >>> display = plots.WeightsPathDisplay.from_estimator(model)
    >>> display.figure_.savefig("weights.png")
    """

    Cs: Array
    weights: Array
    names: list[str]
    chosen: float
    parameter: str = "C"
    beside: dict[Any, Array] | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        *,
        norm: Any = None,
        of_class: Any = None,
        max_kernels: int = 12,
        ax: AxesOrNone = None,
        **style: Any,
    ) -> Self:
        """Draw the weights that a fitted search has learned along its path.

        Parameters
        ----------
        estimator : estimator
            Fitted; a CV estimator, a PathSearchCV, or a pipeline that ends in one.
        norm : norm, optional
            The norm whose weights to draw, one that the search has tried; by default the chosen
            norm, with the learned weights beside them where these are equal weights.
        of_class : label, optional
            The class whose weights to draw, where every class has its own; by default the mean of
            the classes.
        max_kernels : int, default=12
            Of more kernels, those of largest weight anywhere on the path are drawn.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.plot``.

        Returns
        -------
        WeightsPathDisplay
        """
        model = _search_of(estimator, cls.__name__)
        chosen_norm = getattr(model, "norm_", None)
        paths = getattr(model, "weights_path_by_norm_", {chosen_norm: model.weights_path_})
        drawn_norm = chosen_norm if norm is None else norm
        if drawn_norm not in paths:
            raise ValueError(
                f"norm={norm!r}: the search has tried {list(paths)}; give one of these."
            )
        weights = np.asarray(paths[drawn_norm])
        classes = list(getattr(model, "classes_", [])) if weights.ndim == 3 else []
        if of_class is not None and of_class not in classes:
            raise ValueError(
                f"of_class={of_class!r}: weights are shared, or the classes are {classes}."
            )
        class_number = None if of_class is None else classes.index(of_class)
        beside = {}
        if norm is None and chosen_norm == "uniform":
            for learned_norm, path in paths.items():
                if learned_norm != "uniform":
                    beside[learned_norm] = _weights_of_kernels(path, class_number)
        display = cls(
            Cs=model.Cs_,
            weights=_weights_of_kernels(weights, class_number),
            names=list(fitted_model(model).kernel_names_),
            chosen=model.C_,
            parameter=getattr(model, "parameter_", "C"),
            beside=beside,
        )
        return display.plot(ax=ax, max_kernels=max_kernels, **style)

    def plot(self, ax: AxesOrNone = None, *, max_kernels: int = 12, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        ax = self._use_axes(ax)
        beside = self.beside or {}

        # 1. The kernels to draw. Beside equal weights, dashes distinguish norms, and only the
        # colour distinguishes kernels: there are no more kernels than colours then.
        n_drawn = min(max_kernels, len(PALETTE)) if beside else max_kernels
        largest = np.nanmax(np.concatenate([self.weights, *beside.values()]), axis=0)
        self.shown_ = np.sort(np.argsort(-largest, kind="stable")[:n_drawn])
        names = [self.names[m] for m in self.shown_]

        def draw(weights: Array, line_options: Iterable[Settings]) -> list[Any]:
            """Draw the weights of the kernels along C, and return one line per kernel."""
            lines = []
            for m, options in zip(self.shown_, line_options, strict=False):
                (line,) = ax.plot(self.Cs, weights[:, m], **options | style)
                lines.append(line)
            return lines

        # 2. The chosen weights: grey if they are equal and others are drawn beside them.
        if beside:
            grey = {"color": "0.5", "linestyle": "dotted"}
            first = grey | {"label": "equal weights, chosen"}
            self.lines_ = draw(self.weights, chain([first], repeat(grey)))
        else:
            coloured = [line_style(i) | {"label": name} for i, name in enumerate(names)]
            self.lines_ = draw(self.weights, coloured)

        # 3. The weights beside them. The kernels are named once, at the first norm.
        self.beside_: dict[Any, list[Any]] = {}
        dashes = cycle(("solid", "dashed", "dashdot"))
        for linestyle, (norm, weights) in zip(dashes, beside.items(), strict=False):
            labels = [None] * len(names) if self.beside_ else names
            line_options = [
                {"color": colour(i), "linestyle": linestyle, "label": label}
                for i, label in enumerate(labels)
            ]
            self.beside_[norm] = draw(weights, line_options)
            ax.plot([], [], color="0.5", linestyle=linestyle, label=f"learned, norm {norm}")

        # 4. The chosen C, and the axes.
        ax.axvline(self.chosen, color="0.6", lw=1, zorder=0)
        ax.annotate(
            "chosen",
            xy=(self.chosen, 1),
            xytext=(3, -3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            fontsize=8,
        )
        ax.set(
            xscale="log", xlabel=self.parameter, ylabel="weight, mean of the folds", ylim=(0, None)
        )
        drawing.name_few_values(ax, self.Cs)
        drawing.title_left_out(ax, len(self.shown_), len(self.names))
        legend: Settings = {"frameon": False, "fontsize": 8}
        if len(names) > _FEW_NAMES:
            legend |= {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        ax.legend(**legend)
        return self


def _weights_of_kernels(path: Array, class_number: int | None) -> Array:
    """Return weights along C of shape (Cs, P): of one class, or the mean of all.

    Parameters
    ----------
    path : ndarray of shape (Cs, P) or (Cs, classes, P)
    class_number : int or None
        None means the mean of the classes.
    """
    if path.ndim == 2:
        return path
    if class_number is not None:
        return path[:, class_number]
    # NumPy warns of values of C that were not tried: their mean is NaN.
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        return np.asarray(np.nanmean(path, axis=1))


@dataclass
class ResponseSurfaceDisplay(Display):
    """Contours of the fitted surface, with the points evaluated and the best of them.

    Make it by :meth:`from_search`.

    Parameters
    ----------
    x, y : ndarray of shape (n_grid,)
        The two factors, on their own scale.
    response : ndarray of shape (n_grid, n_grid)
        The fitted surface, rows along `y`.
    points : ndarray of shape (n_points, 2)
        The evaluated points, on the factors' own scale; the centre first, failures left out.
    n_initial : int
        The number of points of the design, which come first.
    best : ndarray of shape (2,)
        The best validated point.
    labels : tuple of str
        Names of the factors.
    response_name : str
        Label of the contours.

    Attributes
    ----------
    ax_ : Axes
        Where it was drawn.
    figure_ : Figure
        Its figure.
    contours_ : QuadContourSet
        The filled contours.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier, model_selection, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.kernels import Gaussian, Linear, Polynomial
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> model = MKLClassifier([Linear(), Polynomial(), Gaussian()])
    >>> search = model_selection.ResponseSurfaceSearchCV(model, cv=2, max_iter=1).fit(X, y)
    >>> display = plots.ResponseSurfaceDisplay.from_search(search)
    >>> display.figure_.savefig("surface.png")
    """

    x: Array
    y: Array
    response: Array
    points: Array
    n_initial: int
    best: Array
    labels: tuple[str, str]
    response_name: str = "fitted response"

    @classmethod
    def from_search(
        cls, search: Any, factors: Any = None, *, grid_resolution: int = 101, ax: AxesOrNone = None
    ) -> Self:
        """Draw the surface of a fitted search.

        Parameters
        ----------
        search : ResponseSurfaceSearchCV
            Fitted.
        factors : pair of int or str, optional
            Two of ``search.design_.labels`` or their numbers; needed with more than two factors.
            The others stay at the best point.
        grid_resolution : int, default=101
            Points of the grid along each axis.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ResponseSurfaceDisplay
        """
        if not hasattr(search, "estimator"):
            raise TypeError(
                f"{type(search).__name__} has no surface_: {cls.__name__} shows"
                " ResponseSurfaceSearchCV."
            )
        check_is_fitted(search, "surface_")
        design = search.design_
        pair = _pair_of_factors(factors, list(design.labels))
        is_drawn = np.isfinite(design.responses)
        is_drawn[0] = True  # the centre is drawn even if its fit failed
        best = design.points[np.nanargmin(design.responses)]

        # 1. A grid over the box that was searched, around the first point of the design.
        n_factors = design.points.shape[1]
        bounds = np.broadcast_to(np.asarray(search.bounds, dtype=np.float64), (n_factors, 2))
        lower, upper = design.points[0] + bounds.T
        x, y = (np.linspace(lower[k], upper[k], grid_resolution) for k in pair)
        Z = np.tile(best, (grid_resolution**2, 1))
        Z[:, pair] = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)

        # 2. The surface predicts minus the score; one minus the accuracy is the error.
        surface = search.surface_.predict(Z).reshape(grid_resolution, grid_resolution)
        is_default_accuracy = search.scoring is None and is_classifier(search.estimator)
        if search.scoring == "accuracy" or is_default_accuracy:
            response = 1.0 + surface
            response_name = "fitted validation error"
        else:
            response = 0.0 + surface
            response_name = "minus the fitted score"

        # The factors of the design are logarithms.
        display = cls(
            x=10.0**x,
            y=10.0**y,
            response=response,
            points=10.0 ** design.points[is_drawn][:, pair],
            n_initial=int(is_drawn[: design.n_initial].sum()),
            best=10.0 ** best[pair],
            labels=(design.labels[pair[0]], design.labels[pair[1]]),
            response_name=response_name,
        )
        return display.plot(ax=ax)

    # The name that all displays have.
    from_estimator = from_search

    def plot(self, ax: AxesOrNone = None, *, cmap: str = "cividis", levels: int = 12) -> Self:
        """Draw, on the given axes or in a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.
        cmap : str, default="cividis"
            Colours, dark for low; the default reads alike for all kinds of colour vision.
        levels : int, default=12
            Number of contours.

        Returns
        -------
        self
        """
        ax = self._use_axes(ax, (6.2, 4.8))
        from matplotlib import colormaps
        from matplotlib.colors import BoundaryNorm
        from matplotlib.ticker import LogLocator, NullFormatter

        low = float(self.response.min())
        high = float(self.response.max())
        # With these levels the contours of a quadratic are at equal distances, which resolves the
        # neighbourhood of the optimum.
        values = low + max(high - low, 1e-9) * np.linspace(0, 1, levels + 1) ** 2
        style = {"cmap": colormaps[cmap].resampled(levels), "norm": BoundaryNorm(values, levels)}
        self.contours_ = ax.contourf(self.x, self.y, self.response, levels=values, **style)
        lines = {
            "levels": self.contours_.levels,
            "colors": "white",
            "linewidths": 0.4,
            "alpha": 0.6,
        }
        ax.contour(self.x, self.y, self.response, **lines)
        self.figure_.colorbar(
            self.contours_, ax=ax, label=self.response_name, ticks=values[::2], format="%.3f"
        )
        self._draw_points(ax)
        ax.set(
            xscale="log",
            yscale="log",
            xlabel=_mathematical(self.labels[0]),
            ylabel=_mathematical(self.labels[1]),
        )
        # Labels 0.1, 0.2, 0.5, 1, … instead of powers of ten: users write penalties as numbers.
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(LogLocator(base=10.0, subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
        ax.margins(0)
        legend = {"ncols": 4, "frameon": False, "handletextpad": 0.2, "columnspacing": 1.2}
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), **legend)
        return self

    def _draw_points(self, ax: AxesOrNone) -> None:
        """Draw the centre, the design, later points and the best point."""
        ring = {"s": 42, "linewidths": 1.2, "edgecolors": "black", "clip_on": False}
        design = self.points[1 : self.n_initial]
        later = self.points[self.n_initial :]
        ax.scatter(*self.points[:1].T, facecolors="black", label="centre", zorder=3.5, **ring)
        ax.scatter(*design.T, facecolors="white", label="design", zorder=3, **ring)
        if len(later):
            ax.scatter(*later.T, facecolors=colour(5), marker="s", label="later", zorder=3, **ring)
        star = ring | {"s": 230, "linewidths": 0.9, "edgecolors": "white"}
        ax.scatter(*self.best, facecolors=colour(4), marker="*", label="best", zorder=4, **star)


def _pair_of_factors(factors: Any, labels: list[str]) -> list[int]:
    """Return the numbers of the two factors to draw, which are given by numbers or labels."""
    if factors is None and len(labels) != 2:
        raise ValueError(
            f"the search has {len(labels)} factors: choose two by factors=, among"
            f" {', '.join(labels)}."
        )
    pair = (0, 1) if factors is None else factors
    numbers = []
    for factor in pair:
        number = labels.index(factor) if factor in labels else factor
        numbers.append(number)
    are_two = len(numbers) == 2 and numbers[0] != numbers[1]
    if not are_two or any(number not in range(len(labels)) for number in numbers):
        raise ValueError(
            f"factors={factors!r}: give two different ones of {', '.join(labels)}, or their"
            " numbers."
        )
    return numbers


def _mathematical(label: str) -> str:
    """Return ``d[gaussian]`` as d with a subscript, in matplotlib's notation of formulas.

    η is treated likewise; other labels are returned as they are.
    """
    letter, bracket, name = label.removesuffix("]").partition("[")
    if not bracket or not label.endswith("]") or letter not in ("d", "η"):
        return label
    symbol = {"d": "d", "η": r"\eta"}[letter]
    word = name.replace("_", r"\_").replace(" ", r"\ ")
    return rf"${symbol}_{{\mathrm{{{word}}}}}$"


# Iterations ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """The iterations of one problem, which are one line.

    Attributes
    ----------
    label : str
        The class or the start of the problem; empty if there is one problem only.
    iterations, objectives, gaps : ndarray of shape (n_iterations,)
        The entries of the history.
    """

    label: str
    iterations: Array
    objectives: Array
    gaps: Array


@dataclass
class ConvergenceDisplay(Display):
    """Objective and relative duality gap of every iteration, one line per class.

    The objective is above, the gap below on a logarithmic axis. Make it by :meth:`from_estimator`.
    Of a ridge estimator, which has no gap, there is one picture: the criterion at every evaluation
    as dots, and the lowest so far as a line.

    Parameters
    ----------
    courses : list of Course
        The lines.
    tol : float or None, default=None
        The tolerance of the gap, drawn as a dotted line.
    gap_name : str, default="relative duality gap"
        Label of the gap.

    Attributes
    ----------
    axes_ : ndarray of Axes, shape (2,), or (1,) without gaps
        The axes of the objective and of the gap.
    ax_, figure_
        The last of the axes, and the figure.
    objective_lines_, gap_lines_ : list of Line2D
        One line per course.

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
        model = fitted_model(estimator, "history_", cls.__name__)
        if not model.history_:
            raise ValueError(f"{type(model).__name__} has an empty history_: nothing was iterated.")
        has_gates = hasattr(model, "gate")
        if hasattr(model, "elbo_"):
            gap_name = "relative rise of the bound"
        else:
            gap_name = "gap of the machine" if has_gates else "relative duality gap"
        # With gates the gap is that of the machine, and the tolerance that of the gates.
        tol = None if has_gates else float(model.tol)
        courses = _courses(model.history_, getattr(model, "classes_", None))
        return cls(courses, tol, gap_name).plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        if all(np.isnan(course.gaps).all() for course in self.courses):
            return self._plot_values(ax, style)
        has_legend = len(self.courses) > 1
        self.axes_ = _two_axes(ax, has_legend)
        from matplotlib.ticker import MaxNLocator, NullFormatter

        above, below = self.axes_
        self.ax_ = below
        self.figure_ = below.figure
        self.objective_lines_ = []
        self.gap_lines_ = []
        for k, course in enumerate(self.courses):
            options = line_style(k) | {
                "marker": drawing.MARKERS[k % 5],
                "markersize": 4.0,
                "markevery": max(1, len(course.iterations) // _MARKED_ITERATIONS),
                "linewidth": 1.4,
            }
            options |= style
            self.objective_lines_ += above.plot(
                course.iterations, course.objectives, label=course.label, **options
            )
            positive_gaps = np.maximum(course.gaps, _SMALLEST_GAP)
            gaps = np.where(np.isfinite(course.gaps), positive_gaps, np.nan)
            self.gap_lines_ += below.plot(course.iterations, gaps, **options)
        if self.tol is not None:
            self._draw_tolerance(below)
        above.set_ylabel("objective")
        above.ticklabel_format(axis="y", useOffset=False)
        below.set(ylabel=self.gap_name, xlabel="iteration", yscale="log")
        # The axis ends at powers of ten, so that it has at least two labels.
        low, high = below.dataLim.intervaly
        if np.isfinite([low, high]).all() and 0 < low <= high:
            lower_end = 10.0 ** np.floor(np.log10(0.9 * low))
            upper_end = 10.0 ** np.ceil(np.log10(1.1 * high))
            below.set_ylim(lower_end, upper_end)
        below.yaxis.set_minor_formatter(NullFormatter())
        above.sharex(below)
        above.tick_params(labelbottom=False)
        below.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        drawing.open_frame(above)
        drawing.open_frame(below)
        if has_legend:
            above.legend(
                loc="upper left",
                bbox_to_anchor=(1.01, 1.0),
                frameon=False,
                fontsize=8,
                handlelength=3.0,
            )
        return self

    def _draw_tolerance(self, ax: AxesOrNone) -> None:
        """Draw the tolerance as a dotted line.

        Its label is on the left: the lines of the gaps come down to the tolerance on the right.
        """
        ax.axhline(self.tol, color="0.35", linestyle="dotted", linewidth=1.2, zorder=1)
        ax.annotate(
            f"tol = {self.tol:g}",
            xy=(0.0, self.tol),
            xytext=(3, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="left",
            fontsize=8,
            color="0.25",
        )

    def _plot_values(self, ax: AxesOrNone, style: Settings) -> Self:
        """Draw the values of a search as dots, and the lowest value so far as a line.

        The values may rise from one evaluation to the next.
        """
        from matplotlib.ticker import MaxNLocator

        ax = self._use_axes(ax, (6.0, 3.2))
        self.axes_ = np.array([ax])
        self.objective_lines_ = []
        self.gap_lines_ = []
        for k, course in enumerate(self.courses):
            lowest = np.minimum.accumulate(course.objectives)
            options = line_style(k) | {"linewidth": 1.4, "label": "lowest so far"} | style
            self.objective_lines_ += ax.plot(course.iterations, lowest, **options)
            dots = {"markersize": 3.5, "color": "0.55", "zorder": 1, "label": "evaluation"}
            ax.plot(course.iterations, course.objectives, "o", **dots)
        # The axis ends above the first value: steps that are too long, and other starts, may be far
        # above it.
        low = min(course.objectives.min() for course in self.courses)
        high = self.courses[0].objectives[0]
        margin = 0.06 * (high - low) or 1.0
        ax.set(xlabel="evaluation", ylabel="criterion", ylim=(low - margin, high + margin))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        ax.ticklabel_format(axis="y", useOffset=False)
        drawing.open_frame(ax)
        ax.legend(frameon=False, fontsize=8)
        return self


def _courses(history: list[Settings], classes: Any) -> list[Course]:
    """Return one course per output and start of a history.

    Parameters
    ----------
    history : list of dict
        The `history_` of an estimator.
    classes : ndarray or None
        Its classes.
    """
    steps_of_problem: dict[tuple[int, int], list[Settings]] = {}
    for step in history:
        problem = (step.get("output", 0), step.get("start", 0))
        steps_of_problem.setdefault(problem, []).append(step)
    n_outputs = len({output for output, _ in steps_of_problem})
    n_starts = len({start for _, start in steps_of_problem})
    # With as many outputs as classes, an output is a class; otherwise it has a number only.
    has_output_per_class = classes is not None and len(classes) == n_outputs
    courses = []
    for (output, start), steps in sorted(steps_of_problem.items()):
        labels = []
        if n_outputs > 1:
            labels.append(f"class {classes[output] if has_output_per_class else output}")
        if n_starts > 1:
            labels.append(f"start {start}")
        columns = {}
        for key in ("iteration", "objective", "gap"):
            columns[key] = np.array([step.get(key, np.nan) for step in steps], dtype=np.float64)
        course = Course(
            ", ".join(labels), columns["iteration"], columns["objective"], columns["gap"]
        )
        courses.append(course)
    return courses


def _two_axes(ax: AxesOrNone, has_legend: bool) -> Any:
    """Return two axes, one above the other.

    Parameters
    ----------
    ax : Axes, pair of Axes or None
        One is divided into two, with room for a legend if there is one; None makes a new figure.
    has_legend : bool
    """
    if ax is None:
        _, axes = drawing.pyplot().subplots(
            2, 1, figsize=(6.0, 4.6), sharex=True, layout="constrained"
        )
        return axes
    axes = np.ravel(np.asarray(ax, dtype=object))
    if len(axes) == 2:
        return axes
    if len(axes) != 1:
        raise ValueError(
            f"ax holds {len(axes)} axes: give one, or two for the objective and the gap."
        )
    outer = axes[0]
    outer.set_axis_off()
    width = 0.68 if has_legend else 1.0
    return np.array([outer.inset_axes((0.0, start, width, 0.46)) for start in (0.54, 0.0)])
