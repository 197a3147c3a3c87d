"""Families so large that their kernels are generated on first use: one per subset of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from math import comb
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from kernelmosaic._typing import Indices, MatrixLike, Settings
from kernelmosaic.kernels.base import Kernel, is_whole, settings_of, suggest_kernel
from kernelmosaic.kernels.numeric import Gaussian, Laplacian, Radial

#: A kernel as an estimator takes it: its name, the kernel, and the numbers of its columns.
Named = tuple[str, Kernel, Indices]


class Subsets(BaseEstimator):
    """One kernel for every subset of a given number of columns and every width: up to millions of kernels, none stored.

    Stands alone for the `kernels` of an estimator that learns sparse weights, ``MKLClassifier(Subsets(Gaussian()))``:
    all pairs of columns, all triples. Only the kernels that get a weight are ever kept.

    Parameters
    ----------
    kernel : Kernel
        The pattern: `Gaussian` or `Laplacian`, whose distance is a sum over the columns.
    size : int or sequence of int, default=2
        How many columns a kernel reads: 2 for all pairs, ``(1, 2, 3)`` for single columns, pairs and triples.
    width : sequence of {float, "median", "nearest"}, optional
        Widths that every subset gets, each as in the pattern: a word is measured on the columns of the subset. By
        default that of the pattern.
    factor : sequence of float, optional
        Factors of the widths; ``factor=[0.5, 1, 2]`` with the pattern's ``width="median"`` is a family
        around the scale of each subset. By default that of the pattern.

    Examples
    --------
    >>> from kernelmosaic.kernels import Gaussian, Subsets
    >>> pairs = Subsets(Gaussian(), size=2, width=[0.5, 2.0])
    >>> family = pairs.expand(range(60))
    >>> len(family)
    3540
    >>> family[1][:2]
    ('gaussian[0,1](width=2.0)', Gaussian(width=2.0))
    """

    input_kind: ClassVar[str] = "numbers"
    accepts_sparse: ClassVar[bool] = False

    def __init__(self, kernel: Kernel, size: Any = 2, width: Any = None, factor: Any = None) -> None:
        self.kernel = kernel
        self.size = size
        self.width = width
        self.factor = factor

    def expand(
        self, columns: Sequence[int] | Indices, labels: Sequence[Any] | None = None, name: str | None = None
    ) -> SubsetFamily:
        """Return the kernels on these columns, as a sequence that makes ``(name, kernel, columns)`` on access.

        Parameters
        ----------
        columns : sequence of int
            The numbers of the columns to take subsets of; an estimator takes all of them.
        labels : sequence, optional
            Their names; by default their numbers.
        name : str, optional
            Prefix of the names of the kernels; by default the class of the pattern.
        """
        if type(self.kernel) not in (Gaussian, Laplacian):
            given = "" if isinstance(self.kernel, Kernel) else f" {suggest_kernel(self.kernel)}"
            raise TypeError(
                f"kernel={self.kernel!r}: Subsets supports Gaussian() and Laplacian(), whose distances are sums over "
                f"the columns.{given}"
            )
        numbers = np.asarray(columns, dtype=np.intp)
        return SubsetFamily(
            name=type(self.kernel).__name__.lower() if name is None else name,
            kernel=self.kernel,
            columns=numbers,
            labels=tuple(map(str, numbers if labels is None else labels)),
            sizes=self._sizes(len(numbers)),
            settings=self._settings(),
        )

    def _sizes(self, n_columns: int) -> tuple[int, ...]:
        several = isinstance(self.size, Sequence | np.ndarray) and not isinstance(self.size, str)
        sizes = list(self.size) if several else [self.size]
        if not sizes or not all(is_whole(size) for size in sizes) or len(set(sizes)) < len(sizes):
            raise ValueError(f"size={self.size!r}: give a number of columns, such as 2, or distinct ones, (1, 2).")
        if max(sizes) > n_columns:
            raise ValueError(f"size={self.size!r}: there are {n_columns} columns to take subsets of; give no more.")
        return tuple(int(size) for size in sizes)

    def _settings(self) -> tuple[Settings, ...]:
        """The parameters that the kernels of a subset differ in, checked."""
        both = {"width": self.width, "factor": self.factor}
        grids = {name: values for name, values in both.items() if values is not None}
        for name, values in grids.items():
            if not isinstance(values, Sequence | np.ndarray):
                raise TypeError(f"{name}={values!r}: give a list of values, such as {name}=[{values!r}].")
        settings = settings_of(grids)
        for one in settings:
            # Two samples are enough to check a width.
            clone(self.kernel).set_params(**one).fit([[0.0], [1.0]])
        return tuple(settings)


@dataclass(frozen=True, eq=False)
class SubsetFamily(Sequence[Named]):
    """The kernels of `Subsets` on given columns: ``family[m]`` is made on access.

    Subsets come in the order of :func:`itertools.combinations`, size after size; the widths change fastest.

    Attributes
    ----------
    name : str
        What names begin with.
    kernel : Radial
        The pattern.
    columns : ndarray of shape (n_columns,)
        The numbers of the columns.
    labels : tuple of str
        What they are called.
    sizes : tuple of int
        How many of them a kernel reads.
    settings : tuple of dict
        The parameters that the kernels of one subset differ in.
    """

    input_kind: ClassVar[str] = "numbers"
    keeps_scale: ClassVar[bool] = False
    name: str
    kernel: Any
    columns: Indices
    labels: tuple[str, ...]
    sizes: tuple[int, ...]
    settings: tuple[Settings, ...]

    @property
    def n_subsets(self) -> int:
        return sum(comb(len(self.columns), size) for size in self.sizes)

    def __len__(self) -> int:
        return self.n_subsets * len(self.settings)

    def __getitem__(self, m: Any) -> Any:
        if isinstance(m, slice):
            return [self[k] for k in range(*m.indices(len(self)))]
        members, setting = self.subset(m)
        return self._name(members, setting), self.make(setting), self.columns[members]

    def subset(self, m: int) -> tuple[list[int], Settings]:
        """Return which of the columns kernel m reads, by their places, and its setting."""
        index = range(len(self))[m]  # a negative number counts from the end, one too large is an IndexError
        rank, setting = divmod(index, len(self.settings))
        for size in self.sizes:
            if rank < comb(len(self.columns), size):
                return _combination(rank, len(self.columns), size), self.settings[setting]
            rank -= comb(len(self.columns), size)
        raise IndexError(m)  # pragma: no cover

    def make(self, setting: Settings) -> Radial:
        """Return the pattern with a setting, not fitted."""
        made: Radial = clone(self.kernel).set_params(**setting)
        return made

    def table(self) -> NDArray[np.int32]:
        """Return the places of every subset's columns, of shape (n_subsets, largest size); smaller ones end in n."""
        n, widest = len(self.columns), max(self.sizes)
        parts = []
        for size in self.sizes:
            flat = np.fromiter(chain.from_iterable(combinations(range(n), size)), np.int32, comb(n, size) * size)
            parts.append(np.pad(flat.reshape(-1, size), ((0, 0), (0, widest - size)), constant_values=n))
        return np.concatenate(parts)

    def validate(self, X: MatrixLike) -> MatrixLike:
        """Return samples as the kernels read them."""
        return self.kernel.validate(X)

    def _name(self, members: Sequence[int], setting: Settings) -> str:
        values = ", ".join(f"{key}={value}" for key, value in setting.items()) if len(self.settings) > 1 else ""
        return f"{self.name}[{','.join(self.labels[c] for c in members)}]{f'({values})' if values else ''}"

    @property
    def names(self) -> FamilyNames:
        """The names, each made on access."""
        return FamilyNames(self)


class FamilyNames(Sequence[str]):
    """The names of a family's kernels, each made on access.

    Parameters
    ----------
    family : SubsetFamily
        The kernels.
    """

    def __init__(self, family: SubsetFamily) -> None:
        self.family = family

    def __len__(self) -> int:
        return len(self.family)

    def __getitem__(self, m: Any) -> Any:
        if isinstance(m, slice):
            return [self[k] for k in range(*m.indices(len(self)))]
        return self.family._name(*self.family.subset(int(m)))

    def __repr__(self) -> str:
        return f"<{len(self)} names, from {self[0]!r} to {self[-1]!r}>"


def _combination(rank: int, n: int, size: int) -> list[int]:
    """Return the subset of that rank among those of n things, in lexicographic order."""
    members: list[int] = []
    first = 0
    for left in range(size - 1, -1, -1):
        while rank >= comb(n - first - 1, left):
            rank -= comb(n - first - 1, left)
            first += 1
        members.append(first)
        first += 1
    return members
