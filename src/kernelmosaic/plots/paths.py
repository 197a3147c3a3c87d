"""What a search along C found: scores of the folds, and how the weights of the kernels change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AxesOrNone, Estimator, Settings
from kernelmosaic.plots._common import attribute, fitted_model, pyplot

Array = NDArray[np.float64]

#: Okabe and Ito's colours, then dashes and dots.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", ":", "-.")
#: Of more kernels, those of largest weight anywhere on the path are drawn.
_MOST_LINES = 12


def _style(i: int) -> Settings:
    return {"color": _COLOURS[i % len(_COLOURS)], "linestyle": _DASHES[i // len(_COLOURS) % len(_DASHES)]}


def _search_of(estimator: Estimator) -> Any:
    """Return the search along C in a fitted pipeline, or what stands in its place."""
    if hasattr(estimator, "steps") and not hasattr(estimator, "Cs_"):
        return _search_of(estimator.steps[-1][1])
    return estimator if hasattr(estimator, "Cs_") else fitted_model(estimator)


@dataclass
class ValidationPathDisplay:
    """Mean score of the folds along C, one line per norm, with the spread between folds and the choice.

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
        What the values are of.

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
    >>> display = plots.ValidationPathDisplay.from_estimator(MKLClassifierCV(Cs=3, cv=2).fit(X, y))
    >>> display.figure_.savefig("path.png")
    """

    Cs: Array
    scores: dict[Any, Array]
    chosen: tuple[Any, float]
    parameter: str = "C"
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)
    lines_: Any = field(default=None, init=False, repr=False)

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
        model = _search_of(estimator)
        Cs = attribute(model, "Cs_", cls.__name__)
        norm = getattr(model, "norm_", None)
        scores = getattr(model, "scores_by_norm_", {norm: model.scores_})
        return cls(Cs, scores, (norm, model.C_), getattr(model, "parameter_", "C")).plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        plt = pyplot()
        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        self.ax_, self.figure_, self.lines_ = ax, ax.figure, {}
        for i, (norm, scores) in enumerate(self.scores.items()):
            mean = scores.mean(axis=0)
            error = scores.std(axis=0) / np.sqrt(len(scores))
            label = None if norm is None else "uniform" if norm == "uniform" else f"norm {norm}"
            (self.lines_[norm],) = ax.plot(self.Cs, mean, **{**_style(i), "label": label, **style})
            ax.fill_between(self.Cs, mean - error, mean + error, color=self.lines_[norm].get_color(), alpha=0.12, lw=0)
        norm, C = self.chosen
        best = self.scores[norm].mean(axis=0)[np.argmin(np.abs(self.Cs - C))]
        ax.plot([C], [best], "o", color=self.lines_[norm].get_color(), label="chosen")
        ax.set(xscale="log", xlabel=self.parameter, ylabel="mean score of the folds, ± its standard error")
        ax.legend(frameon=False)
        return self


@dataclass
class WeightsPathDisplay:
    """The weights of the kernels along C, averaged over the folds, and the C that was chosen.

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
        What the values are of.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    lines_ : list of Line2D
        One per kernel, in the order of `shown_`.
    shown_ : ndarray of int
        Which kernels are shown.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifierCV, plots
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> display = plots.WeightsPathDisplay.from_estimator(MKLClassifierCV(Cs=3, cv=2, norms=[1]).fit(X, y))
    >>> display.figure_.savefig("weights.png")
    """

    Cs: Array
    weights: Array
    names: list[str]
    chosen: float
    parameter: str = "C"
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)
    lines_: Any = field(default=None, init=False, repr=False)
    shown_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        *,
        of_class: Any = None,
        max_kernels: int = _MOST_LINES,
        ax: AxesOrNone = None,
        **style: Any,
    ) -> Self:
        """Draw the weights that a fitted search found along its path.

        Parameters
        ----------
        estimator : estimator
            Fitted; a CV estimator, a PathSearchCV, or a pipeline that ends in one.
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
        model = _search_of(estimator)
        weights = np.asarray(attribute(model, "weights_path_", cls.__name__))
        if weights.ndim == 3 and of_class is None:
            weights = np.nanmean(weights, axis=1)
        elif of_class is not None:
            known = model.classes_.tolist()
            if weights.ndim != 3 or of_class not in known:
                raise ValueError(f"of_class={of_class!r}: weights are shared, or the classes are {known}.")
            weights = weights[:, known.index(of_class)]
        names = list(fitted_model(model).kernel_names_)
        display = cls(model.Cs_, weights, names, model.C_, getattr(model, "parameter_", "C"))
        return display.plot(ax=ax, max_kernels=max_kernels, **style)

    def plot(self, ax: AxesOrNone = None, *, max_kernels: int = _MOST_LINES, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        plt = pyplot()
        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        largest = np.argsort(-self.weights.max(axis=0), kind="stable")[:max_kernels]
        self.shown_ = np.sort(largest)
        self.lines_ = [
            ax.plot(self.Cs, self.weights[:, m], **{**_style(i), "label": self.names[m], **style})[0]
            for i, m in enumerate(self.shown_)
        ]
        ax.axvline(self.chosen, color="0.6", lw=1, zorder=0)
        ax.annotate(
            "chosen", (self.chosen, 1), (3, -3), ("data", "axes fraction"), "offset points", va="top", fontsize=8
        )
        ax.set(xscale="log", xlabel=self.parameter, ylabel="weight, mean of the folds", ylim=(0, None))
        left_out = len(self.names) - len(self.shown_)
        if left_out:
            ax.set_title(f"the {len(self.shown_)} largest of {len(self.names)}", fontsize=9, loc="left")
        ax.legend(frameon=False, fontsize=8)
        return self
