"""Toy problems whose truth is known: mixtures of Gaussians with their Bayes rule, Breiman's waveforms and ringnorm."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.utils import check_array, check_random_state


def check_count(name: str, value: object, minimum: int = 1) -> int:
    """Return `value` as an int, or raise naming the parameter, what was given and what would do."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r}: give a whole number of at least {minimum}.")
    if value < minimum:
        raise ValueError(f"{name}={value!r}: give a whole number of at least {minimum}.")
    return int(value)


# GAUSS2 to GAUSS5 -----------------------------------------------------------------------------------------------------

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Mixture:
    """The components of both classes, one per row."""

    labels: NDArray[np.int64]
    priors: Array
    means: Array
    variances: Array

    def log_joint(self, X: Array, label: int) -> Array:
        """Return log p(x, label) for every row of X."""
        of_class = self.labels == label
        squares = (X[:, None, :] - self.means[of_class]) ** 2 / self.variances[of_class]
        log_peaks = np.log(self.priors[of_class] / (2 * np.pi * np.sqrt(self.variances[of_class].prod(axis=1))))
        return np.asarray(logsumexp(log_peaks - 0.5 * squares.sum(axis=2), axis=1))


def mixture_of(n_components: int) -> Mixture:
    """Return the components of a toy problem."""
    # By number of components: prior and first coordinate of the mean, for the components of each class.
    known = {
        2: {+1: [(0.50, -1.0)], -1: [(0.50, 1.0)]},
        3: {+1: [(0.25, -2.0), (0.25, 2.0)], -1: [(0.50, 0.0)]},
        4: {+1: [(0.25, -3.0), (0.25, 1.0)], -1: [(0.25, -1.0), (0.25, 3.0)]},
        5: {+1: [(0.16, -4.0), (0.18, 0.0), (0.16, 4.0)], -1: [(0.25, -2.0), (0.25, 2.0)]},
    }
    if n_components not in known:
        raise ValueError(f"n_components={n_components!r}: give one of {', '.join(map(str, known))}.")
    # The second coordinate of the mean and the (diagonal) covariance depend on the class alone.
    second_mean, variances = {+1: 1.0, -1: -2.2}, {+1: (0.8, 2.0), -1: (0.8, 4.0)}
    rows = [(label, *row) for label, of_class in known[n_components].items() for row in of_class]
    return Mixture(
        labels=np.array([label for label, _, _ in rows]),
        priors=np.array([prior for _, prior, _ in rows]),
        means=np.array([(mean, second_mean[label]) for label, _, mean in rows]),
        variances=np.array([variances[label] for label, _, _ in rows]),
    )


def make_gaussians(
    n_components: int = 4, n_samples: int = 1200, random_state: int | RandomState | None = None
) -> tuple[Array, NDArray[np.int64]]:
    """Draw from GAUSS2, GAUSS3, GAUSS4 or GAUSS5.

    Parameters
    ----------
    n_components : {2, 3, 4, 5}, default=4
        Number of Gaussians in both classes together.
    n_samples : int, default=1200
        Number of samples; each one's component is drawn by the priors.
    random_state : int, RandomState instance or None, default=None
        Seed or generator; pass an int for the same draw every time.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
    y : ndarray of shape (n_samples,)
        Labels −1 and +1.

    References
    ----------
    Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response surface methodology", Table 1.

    Examples
    --------
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, y = make_gaussians(n_components=4, n_samples=100, random_state=0)
    >>> X.shape, sorted(set(y.tolist()))
    ((100, 2), [-1, 1])
    """
    mixture = mixture_of(n_components)
    n_samples = check_count("n_samples", n_samples)
    rng = check_random_state(random_state)
    component = rng.choice(len(mixture.priors), size=n_samples, p=mixture.priors)
    noise = rng.standard_normal((n_samples, 2))
    X = mixture.means[component] + noise * np.sqrt(mixture.variances[component])
    return X, mixture.labels[component]


def bayes_decision(X: ArrayLike, n_components: int = 4) -> Array:
    """Return the log-odds log p(x, +1) − log p(x, −1) of each row of X: its sign is the best possible answer.

    Parameters
    ----------
    X : array-like of shape (n_samples, 2)
    n_components : {2, 3, 4, 5}, default=4

    Returns
    -------
    ndarray of shape (n_samples,)

    Examples
    --------
    >>> from kernelmosaic.datasets import bayes_decision, make_gaussians
    >>> X, y = make_gaussians(n_components=4, n_samples=1000, random_state=0)
    >>> bool(((bayes_decision(X, n_components=4) > 0) == (y > 0)).mean() > 0.85)
    True
    """
    mixture, points = mixture_of(n_components), check_array(X, dtype=np.float64, input_name="X")
    if points.shape[1] != 2:
        raise ValueError(f"X has {points.shape[1]} columns: the mixtures live in the plane, give 2.")
    return mixture.log_joint(points, +1) - mixture.log_joint(points, -1)


@dataclass(frozen=True)
class BayesRule:
    """The best classifier, from the mixture itself; no other is more accurate on fresh samples of it.

    Parameters
    ----------
    n_components : {2, 3, 4, 5}, default=4
        Which mixture of `make_gaussians`.
    """

    n_components: int = 4

    def __post_init__(self) -> None:
        mixture_of(self.n_components)

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the log-odds of class +1; see `bayes_decision`."""
        return bayes_decision(X, self.n_components)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the more probable label, −1 or +1, of each row of X."""
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def accuracy(self, step: float = 0.03) -> float:
        """Return the accuracy on the whole population, ∫ max(p(x, +1), p(x, −1)) dx.

        Parameters
        ----------
        step : float, default=0.03
            Distance between the points of the grid the integral is summed over; the error falls with its square.
        """
        mixture = mixture_of(self.n_components)
        # Beyond eight standard deviations of every component there is nothing left that a double could count.
        reach = 8 * np.sqrt(mixture.variances)
        low, high = (mixture.means - reach).min(axis=0), (mixture.means + reach).max(axis=0)
        first, second = (np.arange(a, b + step, step) for a, b in zip(low, high, strict=True))
        total = 0.0
        for x in first:  # a column at a time: the grid as a whole would fill memory for nothing
            column = np.column_stack([np.full_like(second, x), second])
            total += np.exp(np.maximum(mixture.log_joint(column, +1), mixture.log_joint(column, -1))).sum()
        return float(total * step**2)


# Waveforms ------------------------------------------------------------------------------------------------------------


def make_waveform(
    n_samples: int = 5000, random_state: int | RandomState | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw waveforms: u · one wave + (1 − u) · another, u uniform on [0, 1], plus unit noise at each of 21 times.

    Parameters
    ----------
    n_samples : int, default=5000
        Number of samples; the three classes are equally likely.
    random_state : int, RandomState instance or None, default=None
        Seed or generator; pass an int for the same draw every time.

    Returns
    -------
    X : ndarray of shape (n_samples, 21)
    y : ndarray of shape (n_samples,)
        Labels 0, 1, 2.

    References
    ----------
    Breiman, Friedman, Olshen and Stone (1984), "Classification and Regression Trees", section 2.6.2.

    Examples
    --------
    >>> from kernelmosaic.datasets import make_waveform
    >>> X, y = make_waveform(n_samples=50, random_state=0)
    >>> X.shape
    (50, 21)
    """
    n_samples = check_count("n_samples", n_samples)
    rng = check_random_state(random_state)
    # Triangles of height 6 and half-width 6, peaking at 7, 11 and 15.
    waves = np.maximum(6.0 - np.abs(np.arange(1, 22) - np.array([[7], [11], [15]])), 0.0)
    # The two waves each class mixes; numbered as in the published sample of this problem.
    pairs = np.array([(0, 2), (0, 1), (1, 2)])
    y = rng.randint(len(pairs), size=n_samples)
    u = rng.uniform(size=(n_samples, 1))
    one, other = waves[pairs[y].T]
    return u * one + (1 - u) * other + rng.standard_normal((n_samples, waves.shape[1])), y


# Ringnorm -------------------------------------------------------------------------------------------------------------


def make_ringnorm(
    n_samples: int = 7400, n_features: int = 20, random_state: int | RandomState | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw from two equally likely Gaussians that no hyperplane separates.

    Class 0 is N(0, 4I), class 1 is N(a, I), where every entry of a is 2 / √n_features: its mean lies at distance 2 of
    the origin whatever the dimension.

    Parameters
    ----------
    n_samples : int, default=7400
    n_features : int, default=20
    random_state : int, RandomState instance or None, default=None
        Seed or generator; pass an int for the same draw every time.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
        Labels 0 and 1.

    References
    ----------
    Breiman (1996), "Bias, variance, and arcing classifiers", technical report 460, Statistics Department, Berkeley.

    Examples
    --------
    >>> from kernelmosaic.datasets import make_ringnorm
    >>> X, y = make_ringnorm(n_samples=50, random_state=0)
    >>> X.shape
    (50, 20)
    """
    n_samples, n_features = check_count("n_samples", n_samples), check_count("n_features", n_features)
    rng = check_random_state(random_state)
    y = rng.randint(2, size=n_samples)
    spread, centre = np.array([2.0, 1.0]), np.array([0.0, 2.0 / np.sqrt(n_features)])
    return centre[y, None] + spread[y, None] * rng.standard_normal((n_samples, n_features)), y
