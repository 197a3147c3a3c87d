"""From decision values to probabilities: functions of a few numbers, fitted to values of samples that were held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

Array = NDArray[np.float64]

#: What there is to choose from.
CALIBRATIONS = ("sigmoid", "isotonic")
#: Newton steps, which end long before.
_STEPS = 100
#: Relative change of the slope at which they end.
_SMALL = 1e-10
#: Decision values that tell nothing, or the wrong way round, have a slope of this share of where the search starts.
_LEAST = 1e-6


@dataclass(frozen=True)
class Calibration:
    """Probabilities of classes as a function of decision values.

    ``"sigmoid"`` fits p ∝ exp(a f_c), by the likelihood; for two classes that is a sigmoid of the decision value. The
    class of largest probability is the one that is predicted. As with Platt (2000), a sample's own class has the target
    (n_c + 1) / (n_c + 2), so that separated classes do not ask for an infinite slope. A slope and a constant per
    class lower the log-loss, by 6 % over the sets of docs/probabilities.md, but the most probable class would then be
    another than the one predicted for some samples. ``"isotonic"`` fits one monotone function per class.

    No class is less probable than one sample more, of an unknown class, would make it: n samples held out cannot tell
    how rare something is that none of them shows, and outliers have decision values of any size.

    Attributes
    ----------
    method : {"sigmoid", "isotonic"}
        See above.
    least : float
        The least probability.
    slope : float
        a of the sigmoid.
    steps : tuple of (ndarray, ndarray)
        Per class, the knots of the monotone function and its values there; for two classes of the second alone.
    labels : tuple of Calibration
        One per label, where a sample may have several.
    """

    method: str
    least: float = 0.0
    slope: float = 1.0
    steps: tuple[tuple[Array, Array], ...] = ()
    labels: tuple[Calibration, ...] = ()

    @classmethod
    def fit(cls, outputs: Array, labels: NDArray[np.intp], n_classes: int, weight: Any, method: str) -> Calibration:
        """Fit to decision values of held-out samples.

        Parameters
        ----------
        outputs : ndarray of shape (n,) or (n, classes)
            Decision values; one column for two classes, positive for the second.
        labels : ndarray of shape (n,) or (n, labels)
            Classes as numbers, or indicators of labels, whose decision values are then positive where they are given.
        n_classes : int
        weight : ndarray of shape (n,) or None
            How much each sample counts.
        method : {"sigmoid", "isotonic"}
        """
        weight = np.ones(len(labels)) if weight is None else np.asarray(weight, dtype=np.float64)
        if labels.ndim == 2:
            each = zip(outputs.T, labels.T, strict=True)
            return cls(method, labels=tuple(cls.fit(f, one.astype(np.intp), 2, weight, method) for f, one in each))
        least = 1.0 / (n_classes * (1.0 + float(weight.sum())))
        if method == "sigmoid":
            return cls(method, least, _fit_slope(_columns(outputs), labels, n_classes, weight))
        from sklearn.isotonic import isotonic_regression

        steps = []
        for c, f in _each_class(outputs):
            # Samples of equal values have one probability.
            knots, at = np.unique(f, return_inverse=True)
            total = np.bincount(at, weights=weight)
            counted = total > 0
            hits = np.bincount(at, weights=weight * (labels == c))
            heights = isotonic_regression(hits[counted] / total[counted], sample_weight=total[counted])
            steps.append((knots[counted], heights))
        return cls(method, least, steps=tuple(steps))

    def probabilities(self, outputs: Array) -> Array:
        """Return the probabilities of the classes, or labels, of shape (n, classes), for decision values."""
        if self.labels:
            each = zip(outputs.T, self.labels, strict=True)
            return np.column_stack([one.probabilities(f)[:, 1] for f, one in each])
        if self.method == "sigmoid":
            p = np.exp(log_softmax(self.slope * _columns(outputs), axis=1))
        else:
            fitted = zip(_each_class(outputs), self.steps, strict=True)
            p = np.column_stack([np.interp(f, knots, heights) for (_, f), (knots, heights) in fitted])
            p = np.hstack([1.0 - p, p]) if p.shape[1] == 1 else p
        p = np.maximum(p, self.least)
        return np.asarray(p / p.sum(axis=1, keepdims=True))


def check_calibration(calibration: Any) -> str:
    """Return the name of a calibration, or raise naming the ones there are."""
    if not isinstance(calibration, str) or calibration not in CALIBRATIONS:
        raise ValueError(f"calibration={calibration!r}: choose {' or '.join(map(repr, CALIBRATIONS))}.")
    return calibration


def _columns(outputs: Array) -> Array:
    """One column per class; of two classes that share an output, each has half of the difference."""
    return np.column_stack([-0.5 * outputs, 0.5 * outputs]) if outputs.ndim == 1 else outputs


def _each_class(outputs: Array) -> list[tuple[int, Array]]:
    return [(1, outputs)] if outputs.ndim == 1 else list(enumerate(outputs.T))


def _fit_slope(F: Array, labels: NDArray[np.intp], k: int, weight: Array) -> float:
    """Minimise the cross-entropy of p ∝ exp(a F) over a > 0 by Newton's method; it is convex in a."""
    counts = np.bincount(labels, weights=weight, minlength=k)
    own = (counts + 1.0) / (counts + 2.0)
    T = np.repeat(((1.0 - own) / (k - 1))[labels][:, np.newaxis], k, axis=1)
    T[np.arange(len(labels)), labels] = own[labels]
    a = 1.0 / (float(np.abs(F - F.mean(axis=1, keepdims=True)).mean()) or 1.0)
    least = _LEAST * a
    for _ in range(_STEPS):
        P = np.exp(log_softmax(a * F, axis=1))
        mean = np.sum(P * F, axis=1)
        slope = float(weight @ (mean - np.sum(T * F, axis=1)))
        curvature = float(weight @ (np.sum(P * F**2, axis=1) - mean**2))
        # Far off, where the curvature vanishes, steps by a factor.
        new = min(max(a - slope / curvature if curvature > 0 else 0.0, 0.1 * a), 10.0 * a)
        done, a = abs(new - a) <= _SMALL * a, max(new, least)
        if done or a == least:
            break
    return a
