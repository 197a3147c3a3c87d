"""Gates of localized multiple kernel learning, by which weights are functions of the input.

They are defined in `kernelmosaic.localized.gating`.
"""

from __future__ import annotations

from kernelmosaic.localized.gating import (
    Constant,
    Gating,
    GaussianGating,
    LinearGating,
    Sigmoid,
    Softmax,
)

__all__ = ["Constant", "Gating", "GaussianGating", "LinearGating", "Sigmoid", "Softmax"]
