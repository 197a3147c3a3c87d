"""Significance, stability and importance of kernels."""

from __future__ import annotations

from kernelmosaic.inspection.importance import (
    FeatureImportance,
    KernelImportance,
    feature_importance,
    kernel_importance,
)
from kernelmosaic.inspection.significance import (
    KernelSignificance,
    Stability,
    conditional_pvalue,
    kernel_significance,
    stability,
)

__all__ = [
    "FeatureImportance",
    "KernelImportance",
    "KernelSignificance",
    "Stability",
    "conditional_pvalue",
    "feature_importance",
    "kernel_importance",
    "kernel_significance",
    "stability",
]
