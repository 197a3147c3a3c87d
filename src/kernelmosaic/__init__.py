"""Multiple kernel learning behind scikit-learn's interface.

The estimators of first choice are listed here, ``kernelmosaic.MKLClassifierCV`` and so on; those of single papers, such
as ``LocalizedMKLClassifier``, are listed in `kernelmosaic.estimators`, and ``from kernelmosaic import`` finds them too.
Kernels live in `kernelmosaic.kernels`, generators of toy data in `kernelmosaic.datasets`. Names are resolved on first
use, so that ``import kernelmosaic`` alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelmosaic.estimators import (
        MKLClassifier,
        MKLClassifierCV,
        MKLOneClass,
        MKLRegressor,
        MKLRegressorCV,
        MKLRidgeClassifierCV,
        MKLRidgeCV,
        MKLSurvival,
        MKLSurvivalCV,
    )
    from kernelmosaic.estimators.bayesian import BayesianMKLClassifier as BayesianMKLClassifier
    from kernelmosaic.estimators.bayesian_localized import (
        LocalizedBayesianMKLClassifier as LocalizedBayesianMKLClassifier,
    )
    from kernelmosaic.estimators.bilinear import BilinearMKLClassifier as BilinearMKLClassifier
    from kernelmosaic.estimators.discriminant import DiscriminantMKLClassifier as DiscriminantMKLClassifier
    from kernelmosaic.estimators.localized import LocalizedMKLClassifier as LocalizedMKLClassifier
    from kernelmosaic.estimators.localized import LocalizedMKLOneClass as LocalizedMKLOneClass
    from kernelmosaic.estimators.localized import LocalizedMKLRegressor as LocalizedMKLRegressor
    from kernelmosaic.estimators.posterior import PosteriorMKLClassifier as PosteriorMKLClassifier
    from kernelmosaic.persistence import load, save
    from kernelmosaic.stacking import stack_views

__version__ = "0.3.0"

__all__ = [
    "MKLClassifier",
    "MKLClassifierCV",
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
    "stack_views",
    "stacking",
    "stats",
]

#: Estimators of single papers, which this page does not list.
_SPECIAL = (
    "BayesianMKLClassifier",
    "BilinearMKLClassifier",
    "DiscriminantMKLClassifier",
    "LocalizedBayesianMKLClassifier",
    "LocalizedMKLClassifier",
    "LocalizedMKLOneClass",
    "LocalizedMKLRegressor",
    "PosteriorMKLClassifier",
)
#: Where each public name is defined; sub-packages stand for themselves.
_HOMES = {
    **{name: "kernelmosaic.estimators" for name in (*__all__, *_SPECIAL) if name[0].isupper()},
    **dict.fromkeys(("load", "save"), "kernelmosaic.persistence"),
    "stack_views": "kernelmosaic.stacking",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value  # the next look-up does not come here
        return value
    if name in __all__:
        return import_module(f"kernelmosaic.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
