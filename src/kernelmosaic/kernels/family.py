"""Many kernels in one line: a kernel a parameter combination, or a kernel a column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from kernelmosaic.kernels.base import Kernel
from kernelmosaic.kernels.spelling import suggest_kernel


def family(kernel: Kernel, **grids: Iterable[Any]) -> list[Kernel]:
    """Return one clone of the kernel for every combination of the given parameter values.

    Parameters
    ----------
    kernel : Kernel
        The pattern; parameters that are not named keep its values.
    **grids : iterable
        The values of each parameter; nested parameters are written with two underscores, as ``left__width``.

    Returns
    -------
    list of Kernel
        In the order of nested loops, the last parameter changing fastest.

    Examples
    --------
    >>> from kernelmosaic.kernels import Gaussian, family
    >>> family(Gaussian(), width=[0.1, 1, 10])
    [Gaussian(width=0.1), Gaussian(width=1), Gaussian(width=10)]
    >>> family(Gaussian(), factor=[0.5, 2])  # times the median distance between training samples
    [Gaussian(factor=0.5), Gaussian(factor=2)]
    """
    _check_kernel(kernel, "family")
    known = kernel.get_params()
    for name in grids:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ValueError(f"{name}: {kernel!r} has no such parameter; {has}.")
    values = [_grid_values(name, grid) for name, grid in grids.items()]
    return [clone(kernel).set_params(**dict(zip(grids, chosen, strict=True))) for chosen in product(*values)]


class PerColumn(BaseEstimator):
    """One kernel a column: stands in a list of kernels for clones of a kernel, each on a column of its own.

    Parameters
    ----------
    kernel : Kernel
        The pattern.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def expand(self, columns: Sequence[int]) -> list[Kernel]:
        """Return a clone of the kernel for every column, in their order; an estimator does this at `fit`."""
        _check_kernel(self.kernel, "PerColumn")
        return [clone(self.kernel) for _ in columns]


def per_column(kernel: Kernel) -> PerColumn:
    """Return what an estimator expands, at `fit`, to one clone of the kernel for every column.

    Examples
    --------
    >>> from kernelmosaic.kernels import Linear, per_column
    >>> per_column(Linear())
    PerColumn(kernel=Linear())
    """
    _check_kernel(kernel, "per_column")
    return PerColumn(kernel)


def _check_kernel(kernel: Any, owner: str) -> None:
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel={kernel!r}: {owner} needs a kernel; {suggest_kernel(kernel)}")


def _grid_values(name: str, grid: Any) -> list[Any]:
    if isinstance(grid, str | bytes) or not isinstance(grid, Iterable):
        raise TypeError(f"{name}={grid!r}: give a list of values, such as {name}=[{grid!r}].")
    # Plain numbers print as numbers; matrices of a stack stay the arrays they are.
    values = grid.tolist() if isinstance(grid, np.ndarray) and grid.ndim == 1 else list(grid)
    if not values:
        raise ValueError(f"{name}=[]: a family needs at least one value of each parameter.")
    return values
