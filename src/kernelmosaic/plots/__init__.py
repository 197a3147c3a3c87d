"""Pictures of fitted models and searches, in the manner of scikit-learn's displays; they need
matplotlib.

A display that serves one family stands in the folder of that family, all others in this package.
Names are resolved on first use: `drawing`, which all displays use, is below the families.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelmosaic.localized.displays import GatingDisplay, LocalKernelDisplay
    from kernelmosaic.plots.kernels import (
        ColumnRelevanceDisplay,
        FeatureImportanceDisplay,
        KernelImportanceDisplay,
        KernelWeightsDisplay,
        StabilityDisplay,
    )
    from kernelmosaic.plots.plane import DecisionRegionDisplay, ProjectionDisplay
    from kernelmosaic.plots.samples import ContributionsDisplay, ViewMapDisplay
    from kernelmosaic.plots.searches import (
        ConvergenceDisplay,
        ResponseSurfaceDisplay,
        ValidationPathDisplay,
        WeightsPathDisplay,
    )
    from kernelmosaic.ridge.displays import TargetSharesDisplay
    from kernelmosaic.survival.displays import SurvivalCalibrationDisplay
    from kernelmosaic.unlabelled.displays import (
        EigenvaluesDisplay,
        EmbeddingDisplay,
        ViewSimilarityDisplay,
    )

#: The module that defines each display.
HOMES = {
    "ColumnRelevanceDisplay": "plots.kernels",
    "ContributionsDisplay": "plots.samples",
    "ConvergenceDisplay": "plots.searches",
    "DecisionRegionDisplay": "plots.plane",
    "EigenvaluesDisplay": "unlabelled.displays",
    "EmbeddingDisplay": "unlabelled.displays",
    "FeatureImportanceDisplay": "plots.kernels",
    "GatingDisplay": "localized.displays",
    "KernelImportanceDisplay": "plots.kernels",
    "KernelWeightsDisplay": "plots.kernels",
    "LocalKernelDisplay": "localized.displays",
    "ProjectionDisplay": "plots.plane",
    "ResponseSurfaceDisplay": "plots.searches",
    "StabilityDisplay": "plots.kernels",
    "SurvivalCalibrationDisplay": "survival.displays",
    "TargetSharesDisplay": "ridge.displays",
    "ValidationPathDisplay": "plots.searches",
    "ViewMapDisplay": "plots.samples",
    "ViewSimilarityDisplay": "unlabelled.displays",
    "WeightsPathDisplay": "plots.searches",
}

__all__ = [
    "ColumnRelevanceDisplay",
    "ContributionsDisplay",
    "ConvergenceDisplay",
    "DecisionRegionDisplay",
    "EigenvaluesDisplay",
    "EmbeddingDisplay",
    "FeatureImportanceDisplay",
    "GatingDisplay",
    "KernelImportanceDisplay",
    "KernelWeightsDisplay",
    "LocalKernelDisplay",
    "ProjectionDisplay",
    "ResponseSurfaceDisplay",
    "StabilityDisplay",
    "SurvivalCalibrationDisplay",
    "TargetSharesDisplay",
    "ValidationPathDisplay",
    "ViewMapDisplay",
    "ViewSimilarityDisplay",
    "WeightsPathDisplay",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"kernelmosaic.{HOMES[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
