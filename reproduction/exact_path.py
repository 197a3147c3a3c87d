"""The whole path of C of a support vector machine on one matrix, by its breakpoints."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from kernelmosaic._checks import check_positive
from kernelmosaic._typing import ArrayOrTensor

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SupportVectorPath:
    """Coefficients at the breakpoints; between two of them everything is linear in C.

    Attributes
    ----------
    Cs : ndarray of shape (n_breakpoints,)
        The values of C at which a sample reaches or leaves the margin, and the two ends, ascending.
    alpha : ndarray of shape (n_breakpoints, n)
        Dual coefficients, in [0, C].
    intercepts : ndarray of shape (n_breakpoints,)
        The constants.
    y : ndarray of shape (n,)
        Labels, +1 or −1.
    """

    Cs: Array
    alpha: Array
    intercepts: Array
    y: Array

    def at(self, C: float) -> tuple[Array, float]:
        """Return y α, the coefficients as LIBSVM writes them, and the constant, for a C within the
        ends."""
        if not self.Cs[0] <= C <= self.Cs[-1]:
            raise ValueError(f"C={C!r}: the path goes from {self.Cs[0]:g} to {self.Cs[-1]:g}.")
        k = min(int(np.searchsorted(self.Cs, C, side="right")), len(self.Cs) - 1)
        share = (C - self.Cs[k - 1]) / (self.Cs[k] - self.Cs[k - 1])
        alpha = (1.0 - share) * self.alpha[k - 1] + share * self.alpha[k]
        intercept = (1.0 - share) * self.intercepts[k - 1] + share * self.intercepts[k]
        return np.asarray(self.y * alpha), float(intercept)


def support_vector_path(
    K: ArrayOrTensor,
    y: ArrayOrTensor,
    C_min: float = 1e-2,
    C_max: float = 1e3,
    max_steps: int = 100_000,
) -> SupportVectorPath:
    """Return the solutions of min ½ αᵀ(y yᵀ ∘ K)α − Σ α, 0 ≤ α ≤ C, ⟨y, α⟩ = 0, for all C between
    two ends.

    Samples are beyond the margin (α = 0), at it, or within (α = C). While none changes its place, α
    of the samples at the margin and the constant b are linear in C, by y_i f(x_i) = 1 there. The
    next breakpoint is the least C at which one of their α reaches a bound, or another sample the
    margin. With no sample at the margin b is any number of an interval, up to the C at which its
    ends meet.

    Parameters
    ----------
    K : array-like of shape (n, n)
        A positive definite matrix, such as ``model.kernel_matrix(X)``.
    y : array-like of shape (n,)
        Labels, of which there are two.
    C_min, C_max : float, default=1e-2 and 1e3
        The ends.
    max_steps : int, default=100000
        Most breakpoints.

    Returns
    -------
    SupportVectorPath

    References
    ----------
    Hastie, Rosset, Tibshirani and Zhu (2004), "The entire regularization path for the support
    vector machine", in C instead of λ = 1/C, and upwards; the first solution is LIBSVM's.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.exact_path import support_vector_path
    >>> path = support_vector_path(np.eye(4) + 1.0, [0, 0, 1, 1])
    >>> path.at(0.5)[0]
    array([-0.5, -0.5,  0.5,  0.5])
    """
    K, classes = np.asarray(K, dtype=np.float64), np.unique(np.asarray(y))
    if K.ndim != 2 or K.shape != (len(np.asarray(y)),) * 2 or not np.all(np.isfinite(K)):
        raise ValueError(
            f"K has the shape {K.shape}: give a finite square matrix with one row per label of y."
        )
    if len(classes) != 2:
        raise ValueError(f"y holds {len(classes)} classes: the path is that of two.")
    if not check_positive("C_min", C_min) < check_positive("C_max", C_max) < np.inf:
        raise ValueError(f"C_max={C_max!r}: must be finite and above C_min={C_min!r}.")
    y = np.where(np.asarray(y) == classes[1], 1.0, -1.0)
    with warnings.catch_warnings():
        # Whether it is the optimum is checked below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        first = SVC(C=C_min, kernel="precomputed", tol=1e-9, max_iter=200_000).fit(K, y)
    alpha = np.zeros(len(y))
    alpha[first.support_] = np.abs(first.dual_coef_[0])
    place = np.where(
        alpha > (1.0 - 1e-7) * C_min, WITHIN, np.where(alpha < 1e-7 * C_min, BEYOND, AT)
    )
    C, b, found = float(C_min), float(first.intercept_[0]), []
    for _ in range(max_steps):
        linear = _at_margin if np.any(place == AT) else _none_at_margin
        stretch = linear(K, y, C, float(C_max), place, b)
        found.append((C, stretch.alpha, stretch.b))
        C, b = C + stretch.step, stretch.b + stretch.step * stretch.b_slope
        if C_max <= C:
            found.append((float(C_max), stretch.alpha + stretch.step * stretch.slope, b))
            Cs, alphas, intercepts = (np.array(one) for one in zip(*found, strict=True))
            return SupportVectorPath(Cs, alphas, intercepts, y)
        for i, to in stretch.moves:
            place[i] = to
    raise ValueError(
        f"max_steps={max_steps!r}: the path is at C={C:g}; raise max_steps, or lower C_max."
    )


#: Where a sample is: α = 0, 0 ≤ α ≤ C with y f(x) = 1, or α = C.
BEYOND, AT, WITHIN = 0, 1, 2


class Stretch(NamedTuple):
    """The solution at a C, its slopes, how far they hold, and which samples then move where."""

    alpha: Array
    b: float
    slope: Array
    b_slope: float
    step: float
    moves: list[tuple[int, int]]


def _at_margin(
    K: Array, y: Array, C: float, C_max: float, place: NDArray[np.intp], b: float
) -> Stretch:
    """Solve y_i f(x_i) = 1 at the margin and ⟨y, α⟩ = 0 for α there and b, and the same for their
    slopes."""
    at, within, n = place == AT, place == WITHIN, len(y)
    alpha, slope = np.where(within, C, 0.0), within.astype(np.float64)
    rows = y[at, np.newaxis] * K[at] * y
    left = np.block([[rows[:, at], y[at, np.newaxis]], [y[at], 0.0]])
    right = np.column_stack(
        [np.append(1.0 - rows @ alpha, -y @ alpha), np.append(-rows @ slope, -y @ slope)]
    )
    try:
        solved = np.linalg.solve(left, right)
    except np.linalg.LinAlgError:
        solved = np.full(right.shape, np.nan)
    (*alpha[at], b), (*slope[at], b_slope) = solved.T
    margins, turn = y * (K @ (y * alpha) + b), y * (K @ (y * slope) + b_slope)
    off = max(float(np.max(-alpha[at])), float(np.max(alpha[at] - C))) / C
    off = max(off, float(np.max(np.where(at, 0.0, np.where(within, margins - 1.0, 1.0 - margins)))))
    if not off <= 1e-6:
        raise ValueError(
            f"K: at C={C:g} samples tie, or their rows depend on one another, so that the path is"
            " not followed; add a small multiple of the identity to K."
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        down = np.where(at & (slope < 0), -alpha / slope, np.inf)
        up = np.where(at & (slope > 1), (C - alpha) / (slope - 1.0), np.inf)
        comes = np.where(np.where(within, turn > 0, turn < 0) & ~at, (1.0 - margins) / turn, np.inf)
    events = np.maximum(np.concatenate([down, up, comes]), 0.0)
    first = int(np.argmin(events))
    moves = [(first % n, (BEYOND, WITHIN, AT)[first // n])]
    return Stretch(
        alpha, float(b), slope, float(b_slope), min(float(events[first]), C_max - C), moves
    )


def _none_at_margin(
    K: Array, y: Array, C: float, C_max: float, place: NDArray[np.intp], b: float
) -> Stretch:
    """Let b go from where it is to where the ends of its interval meet."""
    within = place == WITHIN
    slope = within.astype(np.float64)
    f, turn = K @ (y * C * slope), K @ (y * slope)
    # A sample bounds b by y − f(x) from below or from above; two bounds meet at a step.
    bounds, low = y - f, np.where(within, y < 0, y > 0)
    i, j = np.flatnonzero(low), np.flatnonzero(~low)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = (bounds[j] - bounds[i, np.newaxis]) / (turn[j] - turn[i, np.newaxis])
    steps = np.where(turn[j] - turn[i, np.newaxis] > 0, np.maximum(steps, 0.0), np.inf)
    p, q = np.unravel_index(np.argmin(steps), steps.shape)
    step = min(float(steps[p, q]), C_max - C)
    ends = bounds - step * turn
    end = 0.5 * float(ends[low].max() + ends[~low].min())
    return Stretch(
        C * slope, b, slope, (end - b) / max(step, 1e-300), step, [(int(i[p]), AT), (int(j[q]), AT)]
    )
