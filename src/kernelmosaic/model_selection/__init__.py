"""Choosing parameters by validation: paths of C, the response-surface search, folds of pairs and
the 5×2 folds."""

from __future__ import annotations

from kernelmosaic.engine.training_set import SharedKernels
from kernelmosaic.model_selection.path_search import PathSearchCV, SplitConformal
from kernelmosaic.model_selection.response_surface import ResponseSurface, ResponseSurfaceSearchCV
from kernelmosaic.model_selection.splits import FiveByTwoFold
from kernelmosaic.pairs.splits import PairSplit

__all__ = [
    "FiveByTwoFold",
    "PairSplit",
    "PathSearchCV",
    "ResponseSurface",
    "ResponseSurfaceSearchCV",
    "SharedKernels",
    "SplitConformal",
]
