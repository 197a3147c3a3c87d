"""The display of ridge estimators: the shares of the kernels in every target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kernelmosaic._typing import Array, AxesOrNone, Estimator
from kernelmosaic.plots import drawing
from kernelmosaic.plots.drawing import Display, fitted_model, shorten_names

#: Width of a figure without the names of its rows, and the width of one letter, in inches.
WIDTH = 5.5
WIDTH_OF_LETTER = 0.075
#: Height of a figure without its rows, and the height of a row, in inches.
HEIGHT = 1.2
HEIGHT_OF_ROW = 0.26
#: Quantiles of the shares that the colours span; chosen by hand.
COLOUR_QUANTILES = (0.01, 0.99)


@dataclass
class TargetSharesDisplay(Display):
    """The shares of the kernels in every target: a heat map of kernels by targets.

    Targets are ordered by the kernel of their largest share, and by this share. Make it by
    :meth:`from_estimator`.

    Parameters
    ----------
    shares : ndarray of shape (targets, P)
        The shares.
    names : list of str
        The names of the kernels.
    share_name : str, default="share of all weights"
        Label of the numbers.

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
        cls,
        estimator: Estimator,
        X: Any = None,
        y: Any = None,
        *,
        ax: AxesOrNone = None,
        **style: Any,
    ) -> Self:
        """Draw the shares of a fitted estimator.

        Parameters
        ----------
        estimator : MKLRidgeCV
            Fitted with ``per_target=True``.
        X, y : array-like, optional
            Samples and their targets: the shares are then those of R², by `score_split`, in place
            of those of the weights.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.imshow``.

        Returns
        -------
        TargetSharesDisplay
        """
        model = fitted_model(estimator, "alpha_", cls.__name__, "MKLRidgeCV")
        if np.ndim(model.alpha_) != 1:
            raise ValueError(
                f"{cls.__name__}: all targets share their weights; fit MKLRidgeCV(per_target=True)."
            )
        names = model.kernel_names_
        if X is None:
            return cls(model.weight_shares_, names).plot(ax, **style)
        return cls(model.score_split(X, y).T, names, "share of R²").plot(ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        labels = shorten_names(self.names)
        width = WIDTH + WIDTH_OF_LETTER * max(map(len, labels))
        height = HEIGHT + HEIGHT_OF_ROW * len(labels)
        ax = self._use_axes(ax, (width, height))
        largest_share = self.shares.max(axis=1)
        kernel_of_target = self.shares.argmax(axis=1)
        self.order_ = np.lexsort((-largest_share, kernel_of_target))
        # The colours span all but the extreme shares: a few extreme targets would leave one colour
        # for all others.
        low, high = np.quantile(self.shares, COLOUR_QUANTILES)
        options = {"vmin": min(0.0, float(low)), "vmax": float(high)} | style
        self.image_ = drawing.draw_map(self, self.shares[self.order_].T, self.share_name, **options)
        drawing.name_rows(ax, labels)
        ax.set_xlabel("target, by the kernel of its largest share")
        return self
