"""Kernels: what turns two sets of samples into a block of similarities."""

from kernelmosaic.kernels.algebra import Product, Scaled, Sum
from kernelmosaic.kernels.base import Kernel
from kernelmosaic.kernels.categorical import Categorical, Clinical
from kernelmosaic.kernels.graphs import ShortestPath, WeisfeilerLehman
from kernelmosaic.kernels.matrices import Diffusion, Precomputed
from kernelmosaic.kernels.numeric import Gaussian, Laplacian, Linear, Polynomial
from kernelmosaic.kernels.pairs import Pairwise, pairwise
from kernelmosaic.kernels.strings import SmithWaterman, Spectrum, WeightedDegree
from kernelmosaic.kernels.tanimoto import Tanimoto, fingerprints
from kernelmosaic.kernels.transformed import FFT, Correlation, Projected, Ranked, Rescaled
from kernelmosaic.kernels.views import PerColumn, by_group, family, per_column, read_gmt

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
