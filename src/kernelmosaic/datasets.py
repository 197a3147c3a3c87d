"""Toy mixtures of Gaussians with their Bayes rule, and data sets from a folder of files."""

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
    """The Gaussian components of two classes, one per row, with diagonal covariances.

    Attributes
    ----------
    labels : ndarray of shape (n_components,)
        The class of each component, −1 or +1.
    priors : ndarray of shape (n_components,)
        The probabilities of the components.
    means, variances : ndarray of shape (n_components, 2)
    """

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


#: The components of the toy problems by their number: for each class the prior and the first
#: coordinate of the mean of every component.
_COMPONENTS = {
    2: {+1: [(0.50, -1.0)], -1: [(0.50, 1.0)]},
    3: {+1: [(0.25, -2.0), (0.25, 2.0)], -1: [(0.50, 0.0)]},
    4: {+1: [(0.25, -3.0), (0.25, 1.0)], -1: [(0.25, -1.0), (0.25, 3.0)]},
    5: {+1: [(0.16, -4.0), (0.18, 0.0), (0.16, 4.0)], -1: [(0.25, -2.0), (0.25, 2.0)]},
}
#: Standard deviations around every mean beyond which a mixture has no mass that a double counts.
_REACH = 8
#: Data sets that scikit-learn carries and `load` knows.
_CARRIED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
#: The environment variable that names the folder of data sets.
_FOLDER_VARIABLE = "KERNELMOSAIC_DATA"


def mixture_of(n_components: int) -> Mixture:
    """Return the mixture of a toy problem by its number of components."""
    check_choice("n_components", n_components, _COMPONENTS)
    rows = [
        (label, prior, first_mean)
        for label, components in _COMPONENTS[n_components].items()
        for prior, first_mean in components
    ]
    labels, priors, first_means = (np.array(column) for column in zip(*rows, strict=True))
    # The second coordinate of the mean and the (diagonal) covariance depend on the class alone.
    means = np.column_stack([first_means, np.where(labels > 0, 1.0, -2.2)])
    variances = np.where(labels[:, None] > 0, (0.8, 2.0), (0.8, 4.0))
    return Mixture(labels, priors, means, variances)


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
    """The best classifier for a mixture of Gaussians, computed from the mixture itself.

    No other is more accurate on new samples of it.

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
        """Return the log-odds log p(x, +1) − log p(x, −1) of each row of X.

        Their sign is the best possible answer.
        """
        mixture = mixture_of(self.n_components)
        points = check_array(X, dtype=np.float64, input_name="X")
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
        reach = _REACH * np.sqrt(mixture.variances)
        low = (mixture.means - reach).min(axis=0)
        high = (mixture.means + reach).max(axis=0)
        # The covariances are diagonal: the density of a component at a point of the grid is a
        # product of two numbers, one for each coordinate.
        densities = []
        for coordinate in range(2):
            points = np.arange(low[coordinate], high[coordinate] + step, step)
            means = mixture.means[:, coordinate]
            variances = mixture.variances[:, coordinate]
            densities.append(
                np.exp(-0.5 * (points[:, None] - means) ** 2 / variances)
                / np.sqrt(2 * np.pi * variances)
            )
        first, second = densities
        positive = mixture.labels == +1
        negative = mixture.labels == -1
        # Line by line, since the whole grid would fill memory.
        total = 0.0
        for row in first * mixture.priors:
            p_positive = second[:, positive] @ row[positive]
            p_negative = second[:, negative] @ row[negative]
            total += np.maximum(p_positive, p_negative).sum()
        return float(total * step**2)


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
    folder = data_folder(data_home)
    path = None if folder is None else folder / f"{name}.npz"
    if path is not None and path.is_file():
        bunch = _read(path)
    elif name in _CARRIED:
        import sklearn.datasets

        load_carried = getattr(sklearn.datasets, f"load_{name}")
        bunch = Bunch(views={}, columns={}, **load_carried())
    else:
        raise FileNotFoundError(
            f"name={name!r}: {name}.npz was not found. Put it into a folder and name that folder by"
            " data_home=… or the environment variable KERNELMOSAIC_DATA, or give one of"
            f" {', '.join(_CARRIED)}."
        )
    return (bunch.data, bunch.target) if return_X_y else bunch


def data_folder(data_home: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder of data sets that the argument or the environment names, or None."""
    source = "data_home"
    value = data_home
    if data_home is None:
        source = _FOLDER_VARIABLE
        value = os.environ.get(_FOLDER_VARIABLE)
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{source}={str(value)!r} is not a folder: give one that holds the sets as npz files."
        )
    return folder


def _read(path: Path) -> Bunch:
    """Return the data set in an npz file: data, target, views, columns and further arrays."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    if "y" not in arrays:
        raise ValueError(f"{path} holds {', '.join(arrays)}: an array y of the targets is needed.")
    y = arrays.pop("y")
    X = arrays.pop("X", None)
    views = {}
    if X is None:
        view_names = [
            key for key, array in arrays.items() if array.ndim == 2 and len(array) == len(y)
        ]
        views = {key: arrays.pop(key).astype(np.float64) for key in view_names}
        if not views:
            raise ValueError(
                f"{path} holds no X, and no view, which is a matrix with one row per entry of y."
            )
    reserved = [key for key in ("data", "target", "views", "columns") if key in arrays]
    if reserved:
        raise ValueError(
            f"{path} holds an array called {reserved[0]!r}, as a part of the result is: rename it."
        )
    columns: dict[str, list[int]] = {}
    if X is None:
        data, columns = stack_views(views)
    else:
        data = X.astype(np.float64) if X.dtype.kind in "biuf" else X
    return Bunch(data=data, target=y, views=views, columns=columns, **arrays)
