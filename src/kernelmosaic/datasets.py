"""Toy mixtures of Gaussians with their Bayes rule, and sets from a folder of files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.utils import Bunch, check_array, check_random_state

from kernelmosaic._checks import check_choice, check_count
from kernelmosaic._typing import Array
from kernelmosaic.stacking import stack_views

__all__ = ["BayesRule", "load", "make_gaussians"]

# GAUSS2 to GAUSS5 ---------------------------------------------------------------------------------


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
        log_peaks = np.log(
            self.priors[of_class] / (2 * np.pi * np.sqrt(self.variances[of_class].prod(axis=1)))
        )
        return np.asarray(logsumexp(log_peaks - 0.5 * squares.sum(axis=2), axis=1))


def mixture_of(n_components: int) -> Mixture:
    """Return the components of a toy problem."""
    # By number of components: prior and first coordinate of the mean, for the components of each
    # class.
    known = {
        2: {+1: [(0.50, -1.0)], -1: [(0.50, 1.0)]},
        3: {+1: [(0.25, -2.0), (0.25, 2.0)], -1: [(0.50, 0.0)]},
        4: {+1: [(0.25, -3.0), (0.25, 1.0)], -1: [(0.25, -1.0), (0.25, 3.0)]},
        5: {+1: [(0.16, -4.0), (0.18, 0.0), (0.16, 4.0)], -1: [(0.25, -2.0), (0.25, 2.0)]},
    }
    check_choice("n_components", n_components, known)
    rows = [(label, *row) for label, of_class in known[n_components].items() for row in of_class]
    labels, priors, first = (np.array(column) for column in zip(*rows, strict=True))
    # The second coordinate of the mean and the (diagonal) covariance depend on the class alone.
    means = np.column_stack([first, np.where(labels > 0, 1.0, -2.2)])
    return Mixture(labels, priors, means, np.where(labels[:, None] > 0, (0.8, 2.0), (0.8, 4.0)))


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
    Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response surface
    methodology", Table 1.

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


@dataclass(frozen=True)
class BayesRule:
    """The best classifier, from the mixture itself; no other is more accurate on fresh samples of
    it.

    Parameters
    ----------
    n_components : {2, 3, 4, 5}, default=4
        Which mixture of `make_gaussians`.

    Examples
    --------
    >>> from kernelmosaic.datasets import BayesRule, make_gaussians
    >>> X, y = make_gaussians(n_components=4, n_samples=1000, random_state=0)
    >>> bool((BayesRule(4).predict(X) == y).mean() > 0.85)
    True
    """

    n_components: int = 4

    def __post_init__(self) -> None:
        mixture_of(self.n_components)

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the log-odds log p(x, +1) − log p(x, −1) of each row of X: its sign is the best
        possible answer."""
        mixture, points = (
            mixture_of(self.n_components),
            check_array(X, dtype=np.float64, input_name="X"),
        )
        if points.shape[1] != 2:
            raise ValueError(f"X has {points.shape[1]} columns: the mixtures have two; give 2.")
        return mixture.log_joint(points, +1) - mixture.log_joint(points, -1)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the more probable label, −1 or +1, of each row of X."""
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def accuracy(self, step: float = 0.03) -> float:
        """Return the accuracy on the whole population, ∫ max(p(x, +1), p(x, −1)) dx.

        Parameters
        ----------
        step : float, default=0.03
            Distance between the points of the grid the integral is summed over; the error falls
            with its square.
        """
        mixture = mixture_of(self.n_components)
        # Beyond eight standard deviations of every component there is nothing left that a double
        # could count.
        reach = 8 * np.sqrt(mixture.variances)
        low, high = (mixture.means - reach).min(axis=0), (mixture.means + reach).max(axis=0)
        grid = [np.arange(a, b + step, step) for a, b in zip(low, high, strict=True)]
        # The covariances are diagonal: the density of a component at a point of the grid is a
        # product of two numbers.
        first, second = (
            np.exp(-0.5 * (points[:, None] - means) ** 2 / variances)
            / np.sqrt(2 * np.pi * variances)
            for points, means, variances in zip(
                grid, mixture.means.T, mixture.variances.T, strict=True
            )
        )
        by_class = [mixture.labels == label for label in (+1, -1)]
        # A line at a time: the grid as a whole would fill memory for nothing.
        lines = (
            np.maximum(*(second[:, own] @ row[own] for own in by_class))
            for row in first * mixture.priors
        )
        return float(sum(line.sum() for line in lines) * step**2)


# Sets from files ----------------------------------------------------------------------------------


def load(
    name: str, data_home: str | os.PathLike[str] | None = None, *, return_X_y: bool = False
) -> Any:
    """Load a set from a folder of npz files, or one of those that scikit-learn carries.

    ``NAME.npz`` holds ``y`` and either ``X`` or one matrix per view, with a row per entry of y, as
    ``np.savez("patients.npz", y=y, rna=rna, proteins=proteins)`` writes it. Nothing is scaled or
    filled in.

    Parameters
    ----------
    name : str
        Name of the file without ``.npz``, or "breast_cancer", "diabetes", "digits", "iris" or
        "wine".
    data_home : path or None, default=None
        The folder; None means the environment variable ``KERNELMOSAIC_DATA``, if set.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` alone.

    Returns
    -------
    Bunch
        With the following keys.

        data : ndarray of shape (n_samples, n_features)
            X, or all views side by side; numbers in float64.
        target : ndarray of shape (n_samples,)
            Labels or values.
        views : dict of str to ndarray
            The views, as `fit` takes them.
        columns : dict of str to list of int
            Which columns of data each view has.

        Further arrays of the file keep their names.

    Examples
    --------
    >>> from kernelmosaic.datasets import load
    >>> wine = load("wine")
    >>> wine.data.shape
    (178, 13)
    """
    folder, carried = (
        data_folder(data_home),
        ("breast_cancer", "diabetes", "digits", "iris", "wine"),
    )
    path = None if folder is None else folder / f"{name}.npz"
    if path is not None and path.is_file():
        found = _read(path)
    elif name in carried:
        import sklearn.datasets

        found = Bunch(views={}, columns={}, **getattr(sklearn.datasets, f"load_{name}")())
    else:
        raise FileNotFoundError(
            f"name={name!r}: {name}.npz was not found. Put it into a folder and name that folder by"
            " data_home=… or the environment variable KERNELMOSAIC_DATA, or give one of"
            f" {', '.join(carried)}."
        )
    return (found.data, found.target) if return_X_y else found


def data_folder(data_home: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder of npz files that the argument or the environment names; None where neither
    does."""
    variable = "KERNELMOSAIC_DATA"
    said, value = (
        ("data_home", data_home) if data_home is not None else (variable, os.environ.get(variable))
    )
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{said}={str(value)!r} is not a folder: give one that holds the sets as npz files."
        )
    return folder


def _read(path: Path) -> Bunch:
    """Return the arrays of a file under the names of a Bunch."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    if "y" not in arrays:
        raise ValueError(f"{path} holds {', '.join(arrays)}: an array y of the targets is needed.")
    y, X = arrays.pop("y"), arrays.pop("X", None)
    views = (
        {}
        if X is not None
        else {key: v for key, v in arrays.items() if v.ndim == 2 and len(v) == len(y)}
    )
    views = {key: arrays.pop(key).astype(np.float64) for key in views}
    if X is None and not views:
        raise ValueError(
            f"{path} holds no X, and no view, which is a matrix with one row per entry of y."
        )
    taken = [key for key in ("data", "target", "views", "columns") if key in arrays]
    if taken:
        raise ValueError(
            f"{path} holds an array called {taken[0]!r}, as a part of the result is: rename it."
        )
    data, columns = (
        stack_views(views)
        if X is None
        else (X.astype(np.float64) if X.dtype.kind in "biuf" else X, {})
    )
    return Bunch(data=data, target=y, views=views, columns=columns, **arrays)
