"""The estimators of scikit-learn's interface, all by name.

Support vector machines with one weight per kernel are defined in this package, the other families
in packages of their own. Names are resolved on first use, so that one estimator is loaded without
the others.

Words
-----
samples
    Before a fit reads them, an array, a table, several tables or rows on a disk; afterwards a
    `FitInput`, which holds them as one table, with targets and weights.
rules
    `InputRules`: what samples a fitted estimator takes.
entry
    A kernel with its name and its columns, `kernels.views.Entry`.
trait
    A class attribute that says what a kernel can read.
recipe
    What an estimator hands to a fit: its kernels, its task, and how weights are learned.
standardizer
    What puts columns of numbers on one scale.
card
    The facts of a fitted model, for terminal and page.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelmosaic.bayesian.estimator import BayesianMKLClassifier
    from kernelmosaic.bayesian.localized import LocalizedBayesianMKLClassifier
    from kernelmosaic.discriminant.estimator import DiscriminantMKLClassifier
    from kernelmosaic.estimators.classifier import MKLClassifier
    from kernelmosaic.estimators.cv import MKLClassifierCV, MKLRegressorCV
    from kernelmosaic.estimators.regressor import MKLOneClass, MKLRegressor
    from kernelmosaic.localized.estimator import (
        LocalizedMKLClassifier,
        LocalizedMKLOneClass,
        LocalizedMKLRegressor,
    )
    from kernelmosaic.multiclass.bilinear import BilinearMKLClassifier
    from kernelmosaic.multiclass.posterior import PosteriorMKLClassifier
    from kernelmosaic.ridge.estimator import MKLRidgeClassifierCV, MKLRidgeCV
    from kernelmosaic.survival.estimator import MKLSurvival
    from kernelmosaic.survival.search import MKLSurvivalCV
    from kernelmosaic.unlabelled.estimator import MKLClustering, MKLKernelPCA

#: The module that defines each estimator, by its path in the library.
HOMES = {
    "BayesianMKLClassifier": "bayesian.estimator",
    "BilinearMKLClassifier": "multiclass.bilinear",
    "DiscriminantMKLClassifier": "discriminant.estimator",
    "LocalizedBayesianMKLClassifier": "bayesian.localized",
    "LocalizedMKLClassifier": "localized.estimator",
    "LocalizedMKLOneClass": "localized.estimator",
    "LocalizedMKLRegressor": "localized.estimator",
    "MKLClassifier": "estimators.classifier",
    "MKLClassifierCV": "estimators.cv",
    "MKLClustering": "unlabelled.estimator",
    "MKLKernelPCA": "unlabelled.estimator",
    "MKLOneClass": "estimators.regressor",
    "MKLRegressor": "estimators.regressor",
    "MKLRegressorCV": "estimators.cv",
    "MKLRidgeCV": "ridge.estimator",
    "MKLRidgeClassifierCV": "ridge.estimator",
    "MKLSurvival": "survival.estimator",
    "MKLSurvivalCV": "survival.search",
    "PosteriorMKLClassifier": "multiclass.posterior",
}

__all__ = [
    "BayesianMKLClassifier",
    "BilinearMKLClassifier",
    "DiscriminantMKLClassifier",
    "LocalizedBayesianMKLClassifier",
    "LocalizedMKLClassifier",
    "LocalizedMKLOneClass",
    "LocalizedMKLRegressor",
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
    "PosteriorMKLClassifier",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"kernelmosaic.{HOMES[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
