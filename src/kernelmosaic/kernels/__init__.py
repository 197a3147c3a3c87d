"""Kernels: what turns two sets of samples into a block of similarities."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelmosaic.kernels.algebra import Product, Scaled, Sum
from kernelmosaic.kernels.base import Kernel
from kernelmosaic.kernels.categorical import Categorical, Clinical
from kernelmosaic.kernels.graphs import ShortestPath, WeisfeilerLehman
from kernelmosaic.kernels.matrices import Diffusion, Precomputed
from kernelmosaic.kernels.numeric import Gaussian, Laplacian, Linear, Polynomial
from kernelmosaic.kernels.strings import SmithWaterman, Spectrum, WeightedDegree
from kernelmosaic.kernels.tanimoto import Tanimoto, fingerprints
from kernelmosaic.kernels.transformed import FFT, Correlation, Projected, Ranked, Rescaled
from kernelmosaic.kernels.views import PerColumn, by_group, family, per_column, read_gmt

if TYPE_CHECKING:
    from kernelmosaic.pairs.kernels import Pairwise, pairwise

#: The modules of families that define kernels, which are loaded on first use.
HOMES = {"Pairwise": "pairs.kernels", "pairwise": "pairs.kernels"}

__all__ = [
    "FFT",
    "Categorical",
    "Clinical",
    "Correlation",
    "Diffusion",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "Pairwise",
    "PerColumn",
    "Polynomial",
    "Precomputed",
    "Product",
    "Projected",
    "Ranked",
    "Rescaled",
    "Scaled",
    "ShortestPath",
    "SmithWaterman",
    "Spectrum",
    "Sum",
    "Tanimoto",
    "WeightedDegree",
    "WeisfeilerLehman",
    "by_group",
    "family",
    "fingerprints",
    "pairwise",
    "per_column",
    "read_gmt",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"kernelmosaic.{HOMES[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
