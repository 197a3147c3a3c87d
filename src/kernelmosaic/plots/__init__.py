"""Pictures of fitted models and searches, in the manner of scikit-learn's displays; they need
matplotlib."""

from __future__ import annotations

from kernelmosaic.plots.kernels import (
    ColumnRelevanceDisplay,
    FeatureImportanceDisplay,
    KernelImportanceDisplay,
    KernelWeightsDisplay,
    StabilityDisplay,
    TargetSharesDisplay,
)
from kernelmosaic.plots.plane import (
    DecisionRegionDisplay,
    GatingDisplay,
    LocalKernelDisplay,
    ProjectionDisplay,
)
from kernelmosaic.plots.samples import (
    ContributionsDisplay,
    EigenvaluesDisplay,
    EmbeddingDisplay,
    SurvivalCalibrationDisplay,
    ViewMapDisplay,
    ViewSimilarityDisplay,
)
from kernelmosaic.plots.searches import (
    ConvergenceDisplay,
    ResponseSurfaceDisplay,
    ValidationPathDisplay,
    WeightsPathDisplay,
)

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
