"""Kernels, which turn two sets of samples into a block of similarities.

Words:

- statistic: the inner product or the distance of two samples, of which a kernel is a function.
- block: the values of a kernel between two sets of samples.
- form: a key that is equal for kernels which validate samples in the same way.
- entry: one element of the `kernels` parameter, its columns as the user wrote them.
- specification: one kernel that an estimator weights, with the numbers of its columns.
- new rows: samples that are described by their similarities to the rows of a given matrix.
- bag: the values, such as labels of nodes, that are counted in a graph.
- width: the distance over which a Gaussian or Laplacian kernel falls to 1/e.

The modules in reading order: `distances`, `base`, `numeric`, `transformed`, `algebra`, the kernels
of other samples (`strings`, `graphs`, `categorical`, `tanimoto`, `matrices`), and `views`, which
reads the `kernels` parameter of estimators.
"""

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
    """Return a name of `HOMES`, whose module is imported now, and keep it in this module."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"kernelmosaic.{HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
