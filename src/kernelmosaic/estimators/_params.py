"""Nested parameters of estimators whose kernels are a list: ``kernels__gauss__width`` from any search."""

from __future__ import annotations

from inspect import signature
from typing import Any, Self

from sklearn.base import BaseEstimator

from kernelmosaic.kernels.base import Kernel
from kernelmosaic.kernels.family import PerColumn
from kernelmosaic.kernels.views import Entry, default_kernels, read_kernels

#: Items of a list that is too long to print that are printed nevertheless.
_SHOWN = 4


class KernelListMixin(BaseEstimator):
    """Reach into the list of kernels by their names, and print it as it was written."""

    kernels: Any

    @staticmethod
    def _default_kernels() -> list[Kernel]:
        """Return what ``kernels=None`` stands for."""
        return default_kernels()

    def _read_kernels(self) -> list[Entry]:
        return read_kernels(self.kernels, self._default_kernels)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; if deep, also the kernels, ``kernels__name``, and theirs, ``kernels__name__width``."""
        params: dict[str, Any] = super().get_params(deep=False)
        if deep:
            for entry in self._entries():
                params[f"kernels__{entry.name}"] = entry.kernel
                nested = entry.kernel.get_params(deep=True)
                params.update({f"kernels__{entry.name}__{key}": value for key, value in nested.items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernels__name`` replaces a kernel, ``kernels__name__width`` sets one of its own."""
        if "kernels" in params:
            self.kernels = params.pop("kernels")
        nested = {key.removeprefix("kernels__"): params.pop(key) for key in list(params) if key.startswith("kernels__")}
        super().set_params(**params)
        if nested:
            self._set_kernels(nested)
        return self

    def _set_kernels(self, nested: dict[str, Any]) -> None:
        entries = self._read_kernels()
        known = {entry.name: entry for entry in entries}
        # A kernel is replaced before its own parameters are set, as in scikit-learn.
        for key, value in sorted(nested.items(), key=lambda item: item[0].count("__")):
            name, _, parameter = key.partition("__")
            if name not in known:
                raise ValueError(
                    f"Invalid parameter 'kernels__{key}' for {type(self).__name__}: the kernels are {', '.join(known)}."
                )
            if parameter:
                known[name].kernel.set_params(**{parameter: value})
            else:
                known[name] = Entry(name, value, known[name].columns)
        # A new list: the one the user gave may be shared with other estimators.
        self.kernels = [
            (name, entry.kernel) if entry.columns is None else (name, entry.kernel, entry.columns)
            for name, entry in known.items()
        ]

    def _entries(self) -> list[Entry]:
        """The kernels by name; none where the list is not one, which `fit` will say."""
        if self.kernels is None:
            return []
        try:
            return self._read_kernels()
        except (TypeError, ValueError):
            return []

    def _kernels_take(self, trait: str) -> list[Any]:
        """A class attribute of every kernel."""
        kernels = [entry.kernel for entry in self._read_kernels()]
        return [getattr(k.kernel if isinstance(k, PerColumn) else k, trait) for k in kernels]

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        # scikit-learn's printer would write kernels out as constructor calls, and a precomputed one with its matrix.
        changed = [
            (key, value)
            for key, parameter in signature(type(self)).parameters.items()
            if repr(value := getattr(self, key)) != repr(parameter.default)
        ]
        text = _call(self, {key: repr(value) for key, value in changed})
        if len(text) > N_CHAR_MAX:
            text = _call(self, {key: _shortened(value) for key, value in changed})
        return text if len(text) <= N_CHAR_MAX else text[: max(N_CHAR_MAX - 4, 0)] + "...)"


def _call(estimator: Any, arguments: dict[str, str]) -> str:
    return f"{type(estimator).__name__}({', '.join(f'{key}={text}' for key, text in arguments.items())})"


def _shortened(value: Any) -> str:
    """Write a long list as its beginning, its end and how many items it has."""
    if not isinstance(value, list | tuple) or len(value) <= _SHOWN:
        return repr(value)
    return f"[{', '.join(map(repr, value[: _SHOWN - 1]))}, ..., {value[-1]!r} ({len(value)} in all)]"
