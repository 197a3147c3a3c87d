"""Which positive parameters a search moves, and how a point on the log10 scale becomes a setting of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.kernels.family import PerColumn
from kernelmosaic.kernels.views import default_kernels, lay_specs, read_kernels

Array = NDArray[np.float64]

#: Parameters with one number a kernel, and the letter the papers use for it.
_LETTERS = {"penalties": "d", "weights": "η"}


@dataclass(frozen=True)
class Factor:
    """One free number of the search.

    Parameters
    ----------
    parameter : str
        The parameter of the estimator it belongs to.
    label : str
        What to write on an axis: ``d[gaussian]`` for a penalty, ``η[gaussian]`` for a weight, else the parameter.
    centre : float
        log10 of the value the search starts from.
    """

    parameter: str
    label: str
    centre: float


@dataclass(frozen=True)
class Factors:
    """All free numbers, and the first entry of each parameter that has one number a kernel: that one stays."""

    free: tuple[Factor, ...]
    anchors: dict[str, float]

    @property
    def centre(self) -> Array:
        """The point the search starts from."""
        return np.array([factor.centre for factor in self.free])

    def setting(self, z: Array) -> dict[str, Any]:
        """Return the parameters at a point, as `set_params` takes them."""
        values: dict[str, list[float]] = {}
        for factor, value in zip(self.free, 10.0 ** np.asarray(z), strict=True):
            values.setdefault(factor.parameter, []).append(float(value))
        return {
            name: (self.anchors[name], *numbers) if name in self.anchors else numbers[0]
            for name, numbers in values.items()
        }


def read_factors(estimator: Any, on: Any, X: Any = None) -> Factors:
    """Return the factors that `on` names, centred at the estimator's own values.

    Parameters
    ----------
    estimator : estimator
        The one to search.
    on : str or list of str
        Names as `set_params` takes them; those ending in ``penalties`` or ``weights`` count one number a kernel.
    X : array-like, optional
        The samples, for kernels that stand for one a column.
    """
    names = [on] if isinstance(on, str) else on
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"on={on!r}: give 'penalties', 'weights' or a list of names of positive parameters.")
    if len(set(names)) < len(names):
        raise ValueError(f"on={on!r}: a name occurs twice.")
    known = estimator.get_params()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"on={on!r}: {type(estimator).__name__} has no parameter {unknown[0]!r}.")
    free: list[Factor] = []
    anchors: dict[str, float] = {}
    for name in names:
        owner_name, _, last = name.rpartition("__")
        owner = known[owner_name] if owner_name else estimator
        if last in _LETTERS and hasattr(owner, "kernels"):
            values, labels = _one_a_kernel(owner, last, X if owner is estimator else None)
            anchors[name] = float(values[0])
            free += [Factor(name, label, float(np.log10(v))) for label, v in zip(labels[1:], values[1:], strict=True)]
        else:
            free.append(Factor(name, name, float(np.log10(_positive_number(name, known[name])))))
    _refuse_idle_penalties(names, known)
    return Factors(tuple(free), anchors)


def _one_a_kernel(owner: Any, parameter: str, X: Any) -> tuple[Array, list[str]]:
    """The values to start from, ones unless the estimator has its own, and a label for each."""
    entries = read_kernels(owner.kernels, getattr(owner, "_default_kernels", default_kernels))
    names = [entry.name for entry in entries]
    if any(isinstance(entry.kernel, PerColumn) for entry in entries):
        if X is None:
            raise ValueError(
                f"on={parameter!r}: a kernel that stands for one a column is only counted when the estimator is "
                "searched directly, not inside a pipeline; write its kernels out one by one."
            )
        names = [tile.name for tile in lay_specs(entries, X)]
    if len(names) < 2:
        raise ValueError(f"on={parameter!r}: the first kernel's stays fixed, so at least two kernels are needed.")
    own = getattr(owner, parameter)
    values = np.ones(len(names)) if own is None or isinstance(own, str) else np.asarray(own, dtype=np.float64)
    if values.shape != (len(names),) or not np.all((values > 0) & np.isfinite(values)):
        raise ValueError(
            f"{parameter}={own!r}: the search starts there, so give {len(names)} positive numbers or None."
        )
    return values, [f"{_LETTERS[parameter]}[{name}]" for name in names]


def _positive_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < np.inf:
        raise ValueError(
            f"{name}={value!r}: the search starts from the estimator's own value, which must be a positive number."
        )
    return float(value)


def _refuse_idle_penalties(names: Sequence[str], known: dict[str, Any]) -> None:
    """Penalties act on learned weights only: to search them beside given weights would compare equals."""
    for name in names:
        weights = f"{name.removesuffix('penalties')}weights"
        if name.endswith("penalties") and (weights in names or known.get(weights) is not None):
            raise ValueError(
                f"on={list(names)!r}: {name} has no effect where {weights} are given; leave {weights} at None."
            )
