"""How the papers measure: one file a protocol."""

from __future__ import annotations

from kernelmosaic.experiments.protocols.five_by_two import FiveByTwo
from kernelmosaic.experiments.protocols.pairs import Pair
from kernelmosaic.experiments.protocols.random_splits import RandomSplits
from kernelmosaic.experiments.protocols.search import PRICES, Grid
from kernelmosaic.experiments.protocols.shared_search import SharedSearch

__all__ = ["PRICES", "FiveByTwo", "Grid", "Pair", "RandomSplits", "SharedSearch"]
