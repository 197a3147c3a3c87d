"""Choosing parameters by validation: paths of C, response surfaces, and splits.

Words:

- terrain, exploration: the box in which a response surface is sought, and its evaluation there.
- factor: one of the numbers that a response-surface search changes.
- response: minus a mean validation score, which is minimised.
"""

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
