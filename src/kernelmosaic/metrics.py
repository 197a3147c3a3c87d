"""How well survival is predicted: concordance and Brier score of samples whose times may be
censored.

``y`` is in every form that :meth:`kernelmosaic.MKLSurvival.fit` takes, and predictions are the
larger the longer the survival. The scores are defined in `kernelmosaic.survival.metrics`.
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
