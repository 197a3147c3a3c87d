"""Stability and importance of kernels, and whether a view adds to the others."""

from __future__ import annotations

from kernelmosaic.inspection.conditional import conditional_pvalue
from kernelmosaic.inspection.importance import (
    FeatureImportance,
    KernelImportance,
    feature_importance,
    kernel_importance,
)
from kernelmosaic.inspection.resampling import Stability, stability

__all__ = [
    "FeatureImportance",
    "KernelImportance",
    "Stability",
    "conditional_pvalue",
    "feature_importance",
    "kernel_importance",
    "stability",
]
