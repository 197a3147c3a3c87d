"""Folds: halves for the paired F test, and parts whose kernels are computed once while the memory allows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.pipeline import Pipeline

from kernelmosaic.backend import default_budget
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.kernels import Precomputed
from kernelmosaic.kernels.matrices import trusted
from kernelmosaic.kernels.views import lay_specs, read_kernels

# Five times two folds -------------------------------------------------------------------------------------------------


class FiveByTwoFold(RepeatedStratifiedKFold):  # type: ignore[misc]
    """Halve the samples five times at random, class shares kept, and let each half train once.

    The ten splits come replication by replication, which is the order that
    :func:`kernelmosaic.stats.f_test_5x2cv` reads.

    Parameters
    ----------
    random_state : int, RandomState instance or None, default=None
        Seed or generator; pass an int for the same halves every time.

    References
    ----------
    Alpaydın (1999), "Combined 5×2 cv F test for comparing supervised classification learning algorithms".

    Examples
    --------
    >>> from kernelmosaic.model_selection import FiveByTwoFold
    >>> FiveByTwoFold(random_state=0).get_n_splits()
    10
    """

    def __init__(self, random_state: int | RandomState | None = None) -> None:
        super().__init__(n_splits=2, n_repeats=5, random_state=random_state)


# Folds that share kernels ---------------------------------------------------------------------------------------------

Rows = NDArray[np.intp]

#: Kernels on fewer columns of numbers cost about as much to read from a matrix as to compute.
WIDE = 100
#: Share of a stack's usual budget that the matrices of the folds may take: every fit makes a stack of its own besides.
_SHARE = 0.5


@dataclass(frozen=True)
class Fold:
    """One part held out, ready for any number of fits.

    Parameters
    ----------
    pipeline : Pipeline
        To be cloned; its last step is ``model``.
    train, held : DataFrame or ndarray
        The rows to fit to and those held out, as the pipeline reads them.
    """

    pipeline: Any
    train: Any
    held: Any


class Later:
    """A fold that is made when it is first asked for, by whichever thread comes first."""

    def __init__(self, make: Callable[[], Fold]) -> None:
        self._make = make
        self._lock = Lock()
        self._made: Fold | None = None

    def get(self) -> Fold:
        """Return the fold."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made


def plain_fold(pipeline: Any, table: Any, rows: Rows, held: Rows) -> Fold:
    """Return a fold whose every fit computes its kernels for itself."""
    return Fold(pipeline, table.iloc[rows], table.iloc[held])


def shared_fold(pipeline: Any, table: Any, rows: Rows, held: Rows) -> Fold:
    """Return a fold whose kernels are matrices; what they and the preparation learn is learned from `rows` alone.

    The samples keep their columns, which gates read, and get one more: their number in the matrices. Equal samples have
    the same one, so that a model still recognises them as repeated.
    """
    prepare = clone(pipeline[:-1]).fit(table.iloc[rows])
    X = np.vstack([prepare.transform(table.iloc[rows]), prepare.transform(table.iloc[held])])
    number = _number_samples(X)
    distinct = X[np.unique(number, return_index=True)[1]]
    n_training = int(number[: len(rows)].max()) + 1
    entries = read_kernels(pipeline[-1].kernels)
    specs = [tile for tile in lay_specs(entries, X) if not isinstance(tile.kernel, Precomputed)]
    kernel_set = KernelSet.fit(specs, distinct[:n_training], None)  # on no common scale yet: that is for the model
    matrices = StoredStack.fill(kernel_set, kernel_set.views(distinct), np.dtype(np.float64)).matrices
    given = iter(matrices)
    kernels = [
        (one.name, one.kernel, one.columns)
        if isinstance(one.kernel, Precomputed)
        else (one.name, trusted(next(given)), [X.shape[1]])
        for one in entries
    ]
    numbered = np.hstack([X, number[:, np.newaxis]])
    model = clone(pipeline[-1]).set_params(kernels=kernels)
    return Fold(Pipeline([("model", model)]), numbered[: len(rows)], numbered[len(rows) :])


def _number_samples(X: NDArray[Any]) -> Rows:
    """Count the samples, in their order; one that came before has the number it had there."""
    # Adding zero makes one of the two zeros that compare equal but differ in their bits.
    keys = map(tuple, X) if X.dtype.kind == "O" else (row.tobytes() for row in np.ascontiguousarray(X + 0.0))
    seen: dict[Any, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.intp)


def is_shareable(pipeline: Any, n_rows: int, n_at_once: int, budget: float | None = None, wide: int = WIDE) -> bool:
    """Whether the matrices of so many folds at once fit the memory, and some kernel is expensive enough to gain by it.

    Parameters
    ----------
    pipeline : Pipeline
    n_rows : int
        Of the table.
    n_at_once : int
        Folds that may be worked on at the same time.
    budget : float, optional
        Bytes; by default a share of what is free.
    wide : int
        Columns of numbers from which on a kernel gains by it.
    """
    computed = [one for one in read_kernels(pipeline[-1].kernels) if not isinstance(one.kernel, Precomputed)]
    if not any(one.kernel.input_kind != "numbers" or len(one.columns) >= wide for one in computed):
        return False
    allowed = _SHARE * default_budget() if budget is None else budget
    return n_at_once * len(computed) * n_rows**2 * 8 <= allowed
