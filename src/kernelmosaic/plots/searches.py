"""What searches and solvers went through: scores and weights along C, the surface over penalties,
the iterations."""

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


def _search_of(estimator: Estimator, display: str) -> Estimator:
    """Return the search along C in a fitted pipeline, or what stands in its place; raise if there
    is none."""
    model, shown = last_step(estimator), "MKLClassifierCV, MKLRegressorCV and PathSearchCV"
    return model if hasattr(model, "Cs_") else fitted_model(model, "Cs_", display, shown)


@dataclass
class ValidationPathDisplay(Display):
    """Mean score of the folds along C, one line per norm, with the spread between folds and the
    choice.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    Cs : ndarray of shape (Cs,)
        The values tried.
    scores : dict from norm to ndarray of shape (folds, Cs)
        The scores.
    chosen : tuple
        The norm and the C chosen.
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
        """Draw what a fitted search along C tried.

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
        return cls(model.Cs_, scores, (norm, model.C_), getattr(model, "parameter_", "C")).plot(
            ax=ax, **style
        )

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        ax, self.lines_ = self._use_axes(ax), {}
        for i, (norm, scores) in enumerate(self.scores.items()):
            mean = scores.mean(axis=0)
            error = scores.std(axis=0) / np.sqrt(len(scores))
            label = (
                None
                if norm is None
                else {"uniform": "equal weights", "loo": "loo"}.get(norm, f"norm {norm}")
            )
            (self.lines_[norm],) = ax.plot(
                self.Cs, mean, **{**line_style(i), "label": label, **style}
            )
            ax.fill_between(
                self.Cs,
                mean - error,
                mean + error,
                color=self.lines_[norm].get_color(),
                alpha=0.12,
                lw=0,
            )
        norm, C = self.chosen
        best = self.scores[norm].mean(axis=0)[np.argmin(np.abs(self.Cs - C))]
        ax.plot([C], [best], "o", color=self.lines_[norm].get_color(), label="chosen")
        ax.set(
            xscale="log",
            xlabel=self.parameter,
            ylabel="mean score of the folds, ± its standard error",
        )
        drawing.name_few_values(ax, self.Cs)
        ax.legend(frameon=False)
        return self


@dataclass
class WeightsPathDisplay(Display):
    """The weights of the kernels along C, averaged over the folds, and the C that was chosen.

    Where the folds chose equal weights, those that the other norms learned are drawn with them.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    Cs : ndarray of shape (Cs,)
        The values tried.
    weights : ndarray of shape (Cs, P)
        The weights.
    names : list of str
        Of the kernels.
    chosen : float
        The C chosen.
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
        The same of the norms that were not chosen.
    shown_ : ndarray of int
        Which kernels are shown.

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
        """Draw the weights that a fitted search found along its path.

        Parameters
        ----------
        estimator : estimator
            Fitted; a CV estimator, a PathSearchCV, or a pipeline that ends in one.
        norm : norm, optional
            Whose weights to draw, one of the norms that the search has tried; by default those of
            the norm chosen, with the learned ones beside them where these are equal weights.
        of_class : label, optional
            Where every class has weights of its own, whose to draw; by default their mean.
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
        known = list(getattr(model, "classes_", [])) if weights.ndim == 3 else []
        if of_class is not None and of_class not in known:
            raise ValueError(
                f"of_class={of_class!r}: weights are shared, or the classes are {known}."
            )

        def of_kernels(path: Array) -> Array:
            if path.ndim == 2:
                return path
            if of_class is not None:
                return path[:, known.index(of_class)]
            # Values that were not tried have no mean.
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
                return np.asarray(np.nanmean(path, axis=1))

        beside = {}
        if norm is None and chosen_norm == "uniform":
            beside = {
                other: of_kernels(path) for other, path in paths.items() if other != "uniform"
            }
        names = list(fitted_model(model).kernel_names_)
        display = cls(
            model.Cs_,
            of_kernels(weights),
            names,
            model.C_,
            getattr(model, "parameter_", "C"),
            beside,
        )
        return display.plot(ax=ax, max_kernels=max_kernels, **style)

    def plot(self, ax: AxesOrNone = None, *, max_kernels: int = 12, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        ax, others = self._use_axes(ax), self.beside or {}
        # Beside equal weights, norms differ in dashes and kernels in colour alone.
        most = min(max_kernels, len(PALETTE)) if others else max_kernels
        largest = np.nanmax(np.concatenate([self.weights, *others.values()]), axis=0)
        self.shown_ = np.sort(np.argsort(-largest, kind="stable")[:most])

        def draw(weights: Array, looks: Iterable[Settings]) -> list[Any]:
            pairs = zip(self.shown_, looks, strict=False)
            return [ax.plot(self.Cs, weights[:, m], **{**look, **style})[0] for m, look in pairs]

        names = [self.names[m] for m in self.shown_]
        grey = {"color": "0.5", "linestyle": "dotted"}
        equal = chain([grey | {"label": "equal weights, chosen"}], repeat(grey))
        own = [line_style(i) | {"label": name} for i, name in enumerate(names)]
        self.lines_ = draw(self.weights, equal if others else own)
        self.beside_: dict[Any, list[Any]] = {}
        for dashes, (norm, weights) in zip(
            cycle(("solid", "dashed", "dashdot")), others.items(), strict=False
        ):
            labels = [None] * len(names) if self.beside_ else names
            looks = [
                {"color": colour(i), "linestyle": dashes, "label": one}
                for i, one in enumerate(labels)
            ]
            self.beside_[norm] = draw(weights, looks)
            ax.plot([], [], color="0.5", linestyle=dashes, label=f"learned, norm {norm}")
        ax.axvline(self.chosen, color="0.6", lw=1, zorder=0)
        place = ((self.chosen, 1), (3, -3), ("data", "axes fraction"), "offset points")
        ax.annotate("chosen", *place, va="top", fontsize=8)
        ax.set(
            xscale="log", xlabel=self.parameter, ylabel="weight, mean of the folds", ylim=(0, None)
        )
        drawing.name_few_values(ax, self.Cs)
        drawing.title_left_out(ax, len(self.shown_), len(self.names))
        outside: Settings = (
            {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if len(names) > 5 else {}
        )
        ax.legend(frameon=False, fontsize=8, **outside)
        return self


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
        What was evaluated, failures left out, on the factors' own scale; the centre first.
    n_initial : int
        How many of the points are the design.
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
            Which two of ``search.design_.labels`` to show; needed with more than two. The others
            stay at the best.
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
        pair = _pair(factors, list(design.labels))
        ok = np.isfinite(design.responses)
        ok[0] = True  # the centre is shown even if its fit failed
        best = design.points[np.nanargmin(design.responses)]
        # The box that was searched; the design is centred at its first point.
        bounds = np.broadcast_to(
            np.asarray(search.bounds, dtype=np.float64), (design.points.shape[1], 2)
        )
        lower, upper = design.points[0] + bounds.T
        x, y = (np.linspace(lower[k], upper[k], grid_resolution) for k in pair)
        Z = np.tile(best, (grid_resolution**2, 1))
        Z[:, pair] = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
        # One minus the accuracy is an error; of any other score only the sign is turned.
        is_accuracy = search.scoring == "accuracy" or (
            search.scoring is None and is_classifier(search.estimator)
        )
        offset, name = (
            (1.0, "fitted validation error") if is_accuracy else (0.0, "minus the fitted score")
        )
        response = offset + search.surface_.predict(Z).reshape(grid_resolution, grid_resolution)
        points, n_initial = design.points[ok][:, pair], int(ok[: design.n_initial].sum())
        labels = (design.labels[pair[0]], design.labels[pair[1]])
        return cls(
            10.0**x, 10.0**y, response, 10.0**points, n_initial, 10.0 ** best[pair], labels, name
        ).plot(ax=ax)

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

        low, high = float(self.response.min()), float(self.response.max())
        # Contours of a quadratic at equal distances, which resolve the neighbourhood of the
        # optimum.
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
        # Labels 0.1, 0.2, 0.5, 1, … instead of powers of ten: a penalty is read as a number.
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(LogLocator(base=10.0, subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
        ax.margins(0)
        tight = {"ncols": 4, "frameon": False, "handletextpad": 0.2, "columnspacing": 1.2}
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), **tight)
        return self

    def _draw_points(self, ax: AxesOrNone) -> None:
        ring = {"s": 42, "linewidths": 1.2, "edgecolors": "black", "clip_on": False}
        design, later = self.points[1 : self.n_initial], self.points[self.n_initial :]
        ax.scatter(*self.points[:1].T, facecolors="black", label="centre", zorder=3.5, **ring)
        ax.scatter(*design.T, facecolors="white", label="design", zorder=3, **ring)
        if len(later):
            ax.scatter(*later.T, facecolors=colour(5), marker="s", label="later", zorder=3, **ring)
        star = ring | {"s": 230, "linewidths": 0.9, "edgecolors": "white"}
        ax.scatter(*self.best, facecolors=colour(4), marker="*", label="best", zorder=4, **star)


def _pair(factors: Any, labels: list[str]) -> list[int]:
    """The columns of the two factors to show."""
    if factors is None and len(labels) != 2:
        raise ValueError(
            f"the search has {len(labels)} factors: choose two by factors=, among"
            f" {', '.join(labels)}."
        )
    chosen = [
        labels.index(f) if f in labels else f for f in ((0, 1) if factors is None else factors)
    ]
    if (
        len(chosen) != 2
        or chosen[0] == chosen[1]
        or any(f not in range(len(labels)) for f in chosen)
    ):
        raise ValueError(
            f"factors={factors!r}: give two different ones of {', '.join(labels)}, or their"
            " numbers."
        )
    return chosen


def _mathematical(label: str) -> str:
    """``d[gaussian]`` as d with a subscript; other names as they are."""
    letter, bracket, name = label.removesuffix("]").partition("[")
    if not bracket or not label.endswith("]") or letter not in ("d", "η"):
        return label
    symbol = {"d": "d", "η": r"\eta"}[letter]
    word = name.replace("_", r"\_").replace(" ", r"\ ")
    return rf"${symbol}_{{\mathrm{{{word}}}}}$"


# Iterations ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """One line: the iterations of one problem.

    Attributes
    ----------
    label : str
        Whose: a class, a start; empty if there is one problem only.
    iterations, objectives, gaps : ndarray of shape (n_iterations,)
        Of the history.
    """

    label: str
    iterations: Array
    objectives: Array
    gaps: Array


@dataclass
class ConvergenceDisplay(Display):
    """Objective (above) and relative duality gap (below, on a log axis) of every iteration; one
    line per class.

    Make it by :meth:`from_estimator`. Of a ridge estimator, which has no gap, there is one picture:
    the criterion at every evaluation as dots, and the lowest so far as a line.

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
        model = fitted_model(estimator, "history_", cls.__name__)
        if not model.history_:
            raise ValueError(f"{type(model).__name__} has an empty history_: nothing was iterated.")
        gated = hasattr(model, "gate")
        # Under gates the gap is the machine's; the tolerance is that of the gates.
        name = "gap of the machine" if gated else "relative duality gap"
        name = "relative rise of the bound" if hasattr(model, "elbo_") else name
        tol = None if gated else float(model.tol)
        return cls(_courses(model.history_, getattr(model, "classes_", None)), tol, name).plot(
            ax=ax, **style
        )

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
            every = max(1, len(course.iterations) // 20)
            marks = {"marker": drawing.MARKERS[k % 5], "markersize": 4.0, "markevery": every}
            drawn = line_style(k) | marks | {"linewidth": 1.4} | style
            self.objective_lines_ += above.plot(
                course.iterations, course.objectives, label=course.label, **drawn
            )
            # A logarithm has no zero.
            gaps = np.where(np.isfinite(course.gaps), np.maximum(course.gaps, 1e-16), np.nan)
            self.gap_lines_ += below.plot(course.iterations, gaps, **drawn)
        if self.tol is not None:
            below.axhline(self.tol, color="0.35", linestyle="dotted", linewidth=1.2, zorder=1)
            # On the left: the lines come down to it on the right.
            place = {
                "xycoords": ("axes fraction", "data"),
                "textcoords": "offset points",
                "ha": "left",
            }
            below.annotate(
                f"tol = {self.tol:g}", (0.0, self.tol), (3, 3), fontsize=8, color="0.25", **place
            )
        above.set_ylabel("objective")
        above.ticklabel_format(axis="y", useOffset=False)
        below.set(ylabel=self.gap_name, xlabel="iteration", yscale="log")
        # The axis ends at powers of ten, so that there are at least two to read it by.
        low, high = below.dataLim.intervaly
        if np.isfinite([low, high]).all() and 0 < low <= high:
            below.set_ylim(
                10.0 ** np.floor(np.log10(0.9 * low)), 10.0 ** np.ceil(np.log10(1.1 * high))
            )
        below.yaxis.set_minor_formatter(NullFormatter())
        above.sharex(below)
        above.tick_params(labelbottom=False)
        below.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        drawing.open_frame(above)
        drawing.open_frame(below)
        if len(self.courses) > 1:
            above.legend(
                loc="upper left",
                bbox_to_anchor=(1.01, 1.0),
                frameon=False,
                fontsize=8,
                handlelength=3.0,
            )
        return self

    def _plot_values(self, ax: AxesOrNone, style: Settings) -> Self:
        """Draw the values of a search, which may rise between two that are lower than all
        before."""
        from matplotlib.ticker import MaxNLocator

        ax = self._use_axes(ax, (6.0, 3.2))
        self.axes_, self.objective_lines_, self.gap_lines_ = np.array([ax]), [], []
        for k, course in enumerate(self.courses):
            lowest = np.minimum.accumulate(course.objectives)
            drawn = line_style(k) | {"linewidth": 1.4, "label": "lowest so far"} | style
            self.objective_lines_ += ax.plot(course.iterations, lowest, **drawn)
            dots = {"markersize": 3.5, "color": "0.55", "zorder": 1, "label": "evaluation"}
            ax.plot(course.iterations, course.objectives, "o", **dots)
        # Steps that are too long, and other starts, may be far above: what is not below the first
        # is left out.
        low, high = (
            min(course.objectives.min() for course in self.courses),
            self.courses[0].objectives[0],
        )
        margin = 0.06 * (high - low) or 1.0
        ax.set(xlabel="evaluation", ylabel="criterion", ylim=(low - margin, high + margin))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        ax.ticklabel_format(axis="y", useOffset=False)
        drawing.open_frame(ax)
        ax.legend(frameon=False, fontsize=8)
        return self


def _courses(history: list[Settings], classes: Any) -> list[Course]:
    """One course per output and, where there are several, per start."""
    groups: dict[tuple[int, int], list[Settings]] = {}
    for step in history:
        groups.setdefault((step.get("output", 0), step.get("start", 0)), []).append(step)
    n_outputs, n_starts = (len(set(numbers)) for numbers in zip(*groups, strict=True))
    named = classes is not None and len(classes) == n_outputs
    courses = []
    for (output, start), steps in sorted(groups.items()):
        parts = [f"class {classes[output] if named else output}"] if n_outputs > 1 else []
        parts += [f"start {start}"] if n_starts > 1 else []
        rows = [
            [step.get(key, np.nan) for key in ("iteration", "objective", "gap")] for step in steps
        ]
        courses.append(Course(", ".join(parts), *np.array(rows, dtype=np.float64).T))
    return courses


def _two_axes(ax: AxesOrNone, legend: bool) -> Any:
    if ax is None:
        _, axes = drawing.pyplot().subplots(
            2, 1, figsize=(6.0, 4.6), sharex=True, layout="constrained"
        )
        return axes
    given = np.ravel(np.asarray(ax, dtype=object))
    if len(given) == 2:
        return given
    if len(given) != 1:
        raise ValueError(
            f"ax holds {len(given)} axes: give one, or two for the objective and the gap."
        )
    given[0].set_axis_off()
    width = 0.68 if legend else 1.0
    return np.array([given[0].inset_axes((0.0, start, width, 0.46)) for start in (0.54, 0.0)])
