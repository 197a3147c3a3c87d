"""Where the samples of an experiment come from: generated, or loaded by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from typing import Protocol as Interface

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from reproduction.experiment import Settings


@dataclass(frozen=True)
class Samples:
    """Samples and their targets; the rows of the published split, where there is one that the
    papers keep."""

    X: Any
    y: NDArray[Any]
    train: NDArray[np.intp] | None = None
    test: NDArray[np.intp] | None = None


class Source(Interface):
    """Gives the samples of a data set, the same ones every time for the same settings."""

    def __call__(self, settings: Settings) -> Samples:
        """Return all samples."""


@dataclass(frozen=True)
class Dataset:
    """A data set under the name it has in the table.

    Parameters
    ----------
    name : str
    source : Source
    cost : float
        How long its units take beside those of other data sets.
    quick : bool
        Whether it is part of a quick look.
    seeds : int
        With so many split seeds it is run; large sets, which differ little from split to split,
        with fewer.
    """

    name: str
    source: Source
    cost: float = 1.0
    quick: bool = False
    seeds: int = 3


@dataclass(frozen=True)
class Loaded:
    """A set that `reproduction.data.load` knows.

    Parameters
    ----------
    name : str
        Its name there.
    views : tuple of str
        Representations to put side by side, in this order; none means the plain samples.
    classes : tuple
        Keep these classes only; none means all.
    max_samples : int or None
        Thin a larger set to so many samples, class shares kept.
    options : tuple of (str, value) pairs
        Further arguments of `load`.
    """

    name: str
    views: tuple[str, ...] = ()
    classes: tuple[Any, ...] = ()
    max_samples: int | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, settings: Settings) -> Samples:
        """Return all samples."""
        bunch = settings.load(self.name, settings.data_home, self.options)
        y = np.asarray(bunch["target"])
        lacking = [view for view in self.views if view not in bunch["views"]]
        if lacking:
            raise FileNotFoundError(
                f"{self.name} came without {', '.join(lacking)}: the data folder, which data_home=…"
                " or the environment variable KERNELMOSAIC_DATA names, lacks the file they are"
                " made from; see the documentation of reproduction.data.load."
            )
        X = (
            np.hstack([bunch["views"][view] for view in self.views])
            if self.views
            else bunch["data"]
        )
        rows = np.arange(len(y))
        if self.classes:
            rows = rows[np.isin(y, self.classes)]
        for limit in (self.max_samples, settings.scale.max_samples):
            rows = rows[thin(y[rows], limit, settings.seed_for(self.name, "thin"))]
        return Samples(take(X, rows), y[rows])


@dataclass(frozen=True)
class Generated:
    """A set drawn anew from a generator such as `make_gaussians`, by the seed of the run.

    Parameters
    ----------
    make : callable
        Called with the options and ``random_state``; returns samples and targets.
    n_samples : int
    options : tuple of (str, value) pairs
    """

    make: Callable[..., tuple[Any, Any]]
    n_samples: int
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, settings: Settings) -> Samples:
        """Return all samples."""
        limit = settings.scale.max_samples or self.n_samples
        seed = settings.seed_for(self.make.__name__, self.options)
        X, y = self.make(
            n_samples=min(self.n_samples, limit), random_state=seed, **dict(self.options)
        )
        return Samples(X, np.asarray(y))


def thin(y: NDArray[Any], limit: int | None, seed: int) -> NDArray[np.intp]:
    """Return at most `limit` row numbers in their order, class shares kept where y holds
    classes."""
    if limit is None or len(y) <= limit:
        return np.arange(len(y))
    from sklearn.model_selection import train_test_split

    rows, _ = train_test_split(
        np.arange(len(y)), train_size=limit, stratify=classes_or_none(y), random_state=seed
    )
    return np.sort(rows)


def classes_or_none(y: NDArray[Any]) -> NDArray[Any] | None:
    """Return y if it holds classes, of which there are few and none rare; else None, for splits at
    random."""
    if y.dtype.kind == "f" and not np.array_equal(y, np.round(y)):
        return None
    counts = np.unique(y, return_counts=True)[1]
    return y if len(counts) <= 50 and counts.min() >= 6 else None


#: How columns are put on a scale, by the samples that train.
SCALES: dict[str, Callable[[], Any]] = {
    "as given": lambda: None,
    "standardised": StandardScaler,
    "[0, 1]": MinMaxScaler,
    "[-1, 1]": lambda: MinMaxScaler((-1, 1)),
}


def on_scale(samples: Samples, train: NDArray[np.intp], inputs: str) -> Samples:
    """Return the samples with their columns on one of the `SCALES`, which these rows decide."""
    scaler = SCALES[inputs]()
    if scaler is None:
        return samples
    X = np.asarray(samples.X, dtype=np.float64)
    return replace(samples, X=scaler.fit(X[train]).transform(X))


def take(X: Any, rows: NDArray[np.intp]) -> Any:
    """Return these rows of an array, or these items of a list."""
    return X[rows] if hasattr(X, "shape") else [X[row] for row in rows]
