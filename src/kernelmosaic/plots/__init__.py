"""Pictures of fitted models and searches, in the manner of scikit-learn's displays; they need matplotlib."""

from __future__ import annotations

from kernelmosaic.plots.gates import GatingDisplay, LocalKernelDisplay
from kernelmosaic.plots.inspection import (
    FeatureImportanceDisplay,
    KernelImportanceDisplay,
    KernelSignificanceDisplay,
    StabilityDisplay,
)
from kernelmosaic.plots.learned import (
    ColumnRelevanceDisplay,
    ConvergenceDisplay,
    KernelWeightsDisplay,
    TargetSharesDisplay,
)
from kernelmosaic.plots.plane import DecisionRegionDisplay, ProjectionDisplay
from kernelmosaic.plots.samples import ContributionsDisplay, ViewMapDisplay
from kernelmosaic.plots.searches import ResponseSurfaceDisplay, ValidationPathDisplay, WeightsPathDisplay
from kernelmosaic.plots.survival import SurvivalCalibrationDisplay

__all__ = [
    "ColumnRelevanceDisplay",
    "ContributionsDisplay",
    "ConvergenceDisplay",
    "DecisionRegionDisplay",
    "FeatureImportanceDisplay",
    "GatingDisplay",
    "KernelImportanceDisplay",
    "KernelSignificanceDisplay",
    "KernelWeightsDisplay",
    "LocalKernelDisplay",
    "ProjectionDisplay",
    "ResponseSurfaceDisplay",
    "StabilityDisplay",
    "SurvivalCalibrationDisplay",
    "TargetSharesDisplay",
    "ValidationPathDisplay",
    "ViewMapDisplay",
    "WeightsPathDisplay",
]
