"""Choosing parameters by validation: paths of C, the response-surface search, folds of pairs and the 5×2 folds."""

from __future__ import annotations

from kernelmosaic.engine.training_set import SharedKernels
from kernelmosaic.model_selection.path_search import PathSearchCV
from kernelmosaic.model_selection.response_surface import ResponseSurfaceSearchCV
from kernelmosaic.model_selection.split_conformal import SplitConformal
from kernelmosaic.model_selection.splits import FiveByTwoFold, PairSplit
from kernelmosaic.model_selection.surface import ResponseSurface

__all__ = [
    "FiveByTwoFold",
    "PairSplit",
    "PathSearchCV",
    "ResponseSurface",
    "ResponseSurfaceSearchCV",
    "SharedKernels",
    "SplitConformal",
]
