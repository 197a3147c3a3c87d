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
#: Relative change of the loss at which they end.
_SMALL = 1e-10
#: Penalty on how far the slopes of the classes, for values of size one, lie apart.
_TOGETHER = 1.0


@dataclass(frozen=True)
class Calibration:
    """Probabilities of classes as a function of decision values.

    ``"sigmoid"`` fits p ∝ exp(a_c f_c + b_c) with a slope and a constant per class, by the likelihood; for two classes
    that is Platt's sigmoid. The targets are moved towards the class frequencies as Platt's are, so that separated
    classes do not ask for an infinite slope; slopes are not negative, and a mild penalty keeps those that few samples
    tell of near the others. ``"isotonic"`` fits one monotone step function per class.

    No class is less probable than one sample more, of an unknown class, would make it: n samples held out cannot tell
    how rare something is that none of them shows, and outliers have decision values of any size.

    Attributes
    ----------
    method : {"sigmoid", "isotonic"}
        See above.
    least : float
        The least probability.
    slopes : ndarray of shape (classes,)
        a of the sigmoid.
    constants : ndarray of shape (classes,)
        b of the sigmoid.
    steps : list of (ndarray, ndarray)
        Per class, the knots of the monotone function, for two classes of the second alone.
    """

    method: str
    least: float
    slopes: Array | None = None
    constants: Array | None = None
    steps: tuple[tuple[Array, Array], ...] = ()

    @classmethod
    def fit(cls, outputs: Array, labels: NDArray[np.intp], n_classes: int, weight: Any, method: str) -> Calibration:
        """Fit to decision values of held-out samples.

        Parameters
        ----------
        outputs : ndarray of shape (n,) or (n, classes)
            Decision values; one column for two classes, positive for the second.
        labels : ndarray of shape (n,)
            Classes as numbers.
        n_classes : int
        weight : ndarray of shape (n,) or None
            How much each sample counts.
        method : {"sigmoid", "isotonic"}
        """
        weight = np.ones(len(labels)) if weight is None else np.asarray(weight, dtype=np.float64)
        least = 1.0 / (n_classes * (1.0 + float(weight.sum())))
        if method == "sigmoid":
            return cls(method, least, *_fit_softmax(_columns(outputs), labels, n_classes, weight))
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
        """Return the probabilities of the classes, of shape (n, classes), for decision values."""
        if self.method == "sigmoid":
            assert self.slopes is not None
            assert self.constants is not None
            p = np.exp(log_softmax(self.slopes * _columns(outputs) + self.constants, axis=1))
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


def _fit_softmax(F: Array, labels: NDArray[np.intp], k: int, weight: Array) -> tuple[Array, Array]:
    """Minimise the cross-entropy of p ∝ exp(a F + b) over a ≥ 0 and b, each of shape (k,)."""
    counts = np.bincount(labels, weights=weight, minlength=k)
    # Platt's targets: (n_c + 1) / (n_c + 2) for the sample's own class, the rest shared by the others.
    own = (counts + 1.0) / (counts + 2.0)
    T = np.repeat(((1.0 - own) / (k - 1))[labels][:, np.newaxis], k, axis=1)
    T[np.arange(len(labels)), labels] = own[labels]
    scale = float(np.sqrt(np.average(F**2, weights=np.repeat(weight[:, np.newaxis], k, axis=1)))) or 1.0
    x = np.concatenate([np.ones(k), np.log((counts + 1.0) / (counts.sum() + k))])
    free = np.ones(2 * k, dtype=bool)
    for _ in range(k + 1):
        x = _newton(x, free, F / scale, T, weight)
        wrong = free[:k] & (x[:k] < 0)
        if not wrong.any():
            break
        # Values that tell nothing of a class, or the wrong way round, are no evidence of it.
        x[:k][wrong], free[:k][wrong] = 0.0, False
    return x[:k] / scale, x[k:] - x[k:].mean()


def _newton(x: Array, free: NDArray[np.bool_], G: Array, T: Array, weight: Array) -> Array:
    """Minimise −Σ w T log p + ½ρ Σ (a_c − ā)² over the free ones of (a, b), where p ∝ exp(a G + b)."""
    k = G.shape[1]
    ridge = _TOGETHER * (np.eye(k) - 1.0 / k)

    def loss(x: Array) -> float:
        fit = weight @ np.sum(T * log_softmax(x[:k] * G + x[k:], axis=1), axis=1)
        return 0.5 * float(x[:k] @ ridge @ x[:k]) - float(fit)

    value = loss(x)
    for _ in range(_STEPS):
        P = np.exp(log_softmax(x[:k] * G + x[k:], axis=1))
        R = weight[:, np.newaxis] * (P - T)
        gradient = np.concatenate([np.sum(R * G, axis=0) + ridge @ x[:k], R.sum(axis=0)])
        PG = P * G
        WPG, WP = weight[:, np.newaxis] * PG, weight[:, np.newaxis] * P
        mixed = np.diag(WPG.sum(axis=0)) - WPG.T @ P
        among_slopes = np.diag(np.sum(WPG * G, axis=0)) - WPG.T @ PG + ridge
        H = np.block([[among_slopes, mixed], [mixed.T, np.diag(WP.sum(axis=0)) - WP.T @ P]])
        # Constants are known up to a common one only.
        H += 1e-9 * max(float(np.trace(H)), 1e-300) * np.eye(2 * k)
        step = np.zeros(2 * k)
        step[free] = np.linalg.solve(H[np.ix_(free, free)], gradient[free])
        size = 1.0
        while size > 1e-6 and loss(x - size * step) > value:
            size *= 0.5
        x, before, value = x - size * step, value, min(value, loss(x - size * step))
        if before - value <= _SMALL * abs(value):
            break
    return x
