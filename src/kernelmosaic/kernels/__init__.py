"""Kernels: what turns two sets of samples into a block of similarities."""

from kernelmosaic.kernels.algebra import Product, Scaled, Sum
from kernelmosaic.kernels.base import Kernel, StatisticKernel
from kernelmosaic.kernels.correlation import Correlation
from kernelmosaic.kernels.diffusion import Diffusion
from kernelmosaic.kernels.family import PerColumn, family, per_column
from kernelmosaic.kernels.fft import FFT
from kernelmosaic.kernels.gaussian import Gaussian
from kernelmosaic.kernels.laplacian import Laplacian
from kernelmosaic.kernels.linear import Linear
from kernelmosaic.kernels.polynomial import Polynomial
from kernelmosaic.kernels.precomputed import Precomputed
from kernelmosaic.kernels.projected import Projected
from kernelmosaic.kernels.smith_waterman import SmithWaterman
from kernelmosaic.kernels.spectrum import Spectrum
from kernelmosaic.kernels.weighted_degree import WeightedDegree

__all__ = [
    "FFT",
    "Correlation",
    "Diffusion",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "PerColumn",
    "Polynomial",
    "Precomputed",
    "Product",
    "Projected",
    "Scaled",
    "SmithWaterman",
    "Spectrum",
    "StatisticKernel",
    "Sum",
    "WeightedDegree",
    "family",
    "per_column",
]
