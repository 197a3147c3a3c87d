"""Multiple kernel learning behind scikit-learn's interface.

All estimators can be imported from here; ``__all__`` has those of first choice,
`kernelmosaic.estimators` also those of single papers, such as ``LocalizedMKLClassifier``. Kernels
are in `kernelmosaic.kernels`, generators of toy data in `kernelmosaic.datasets`. Names are
resolved on first use, so that ``import kernelmosaic`` alone costs next to nothing.
"""

# ruff: noqa: F403, F405
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelmosaic.estimators import *
    from kernelmosaic.persistence import load, save
    from kernelmosaic.stacking import stack_views

__version__ = "0.4.0"

__all__ = [
    "MKLClassifier",
    "MKLClassifierCV",
    "MKLClustering",
    "MKLKernelPCA",
    "MKLOneClass",
    "MKLRegressor",
    "MKLRegressorCV",
    "MKLRidgeCV",
    "MKLRidgeClassifierCV",
    "MKLSurvival",
    "MKLSurvivalCV",
    "__version__",
    "datasets",
    "estimators",
    "gating",
    "imputing",
    "inspection",
    "kernels",
    "load",
    "metrics",
    "model_selection",
    "persistence",
    "plots",
    "save",
    "single_cell",
    "stack_views",
    "stacking",
    "stats",
]

#: The modules of the public names that are neither estimators nor sub-packages.
_HOMES = {"load": "persistence", "save": "persistence", "stack_views": "stacking"}


def __getattr__(name: str) -> Any:
    # Classes are estimators.
    home = "estimators" if name[0].isupper() else _HOMES.get(name)
    if home is None and name in __all__:
        return import_module(f"kernelmosaic.{name}")
    module = None if home is None else import_module(f"kernelmosaic.{home}")
    # Names of the module that are not in its `__all__` are not public.
    if module is None or name not in module.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The next access finds the name in the module and does not come here.
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*__all__, *import_module("kernelmosaic.estimators").__all__})
