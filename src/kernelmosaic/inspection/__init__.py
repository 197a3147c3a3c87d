"""Inspection: stability and importance of kernels and columns, and tests whether a view adds."""

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
