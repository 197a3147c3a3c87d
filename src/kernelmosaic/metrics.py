"""Scores of survival predictions: concordance and Brier score where times may be censored.

Targets ``y`` are in any form that :meth:`kernelmosaic.MKLSurvival.fit` takes. A larger prediction
means a longer survival. The scores are defined in `kernelmosaic.survival.metrics`.
"""

from __future__ import annotations

from kernelmosaic.survival.metrics import (
    StepFunction,
    brier_score,
    concordance_index,
    integrated_brier_score,
    kaplan_meier,
    uno_concordance_index,
)

__all__ = [
    "StepFunction",
    "brier_score",
    "concordance_index",
    "integrated_brier_score",
    "kaplan_meier",
    "uno_concordance_index",
]
