"""Classes and their codes, outputs and their columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, TargetLike

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Labels:
    """Classes in order.

    Outputs have one column per class, or for two classes a single one, which is positive for the second.
    """

    classes: AnyArray

    def __len__(self) -> int:
        return len(self.classes)

    def codes(self, y: TargetLike) -> NDArray[np.intp]:
        """Return the places of classes in the order."""
        return np.asarray(np.searchsorted(self.classes, np.asarray(y)))

    def indicators(self, y: TargetLike) -> Array:
        """Return 1 in the column of each sample's class, else 0."""
        return np.asarray(np.asarray(y)[:, np.newaxis] == self.classes, dtype=np.float64)

    def decide(self, outputs: Array) -> AnyArray:
        """Return the class with the largest output; of a single output, the second class where it is positive."""
        one = outputs.shape[1] == 1
        return np.asarray(self.classes[(outputs[:, 0] > 0).astype(int) if one else outputs.argmax(axis=1)])

    def spread(self, values: Array, classes: AnyArray, fill: float) -> Array:
        """Return columns of some of the classes among those of all, `fill` in the others."""
        full = np.full((len(values), len(self)), fill)
        full[:, self.codes(classes)] = values
        return full


def per_class(outputs: Array) -> Array:
    """Return outputs with one column per class: a single one is that of the second class, its negative the first's."""
    columns: Array = outputs if outputs.ndim > 1 else outputs[:, np.newaxis]
    return columns if columns.shape[-1] > 1 else np.concatenate([-columns, columns], axis=-1)


def single(values: AnyArray) -> AnyArray:
    """Return values of shape (n, outputs) as (n,) where there is one output."""
    return values[:, 0] if values.shape[1] == 1 else values
