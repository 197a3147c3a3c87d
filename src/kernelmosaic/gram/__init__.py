"""Where Gram matrices live: the fitted set of kernels and the stack of its matrices on a training set."""

from kernelmosaic.gram.factory import make_feature_stack
from kernelmosaic.gram.gram import DenseGram, Gram, as_gram
from kernelmosaic.gram.kernel_set import FittedKernel, KernelSet, PlacedSamples, Views, take_rows
from kernelmosaic.gram.normalizing import make_normalization
from kernelmosaic.gram.stack import ComputedStack, GramStack, StoredStack, make_stack
from kernelmosaic.gram.subsets import SubsetKernels, SubsetStack

__all__ = [
    "ComputedStack",
    "DenseGram",
    "FittedKernel",
    "Gram",
    "GramStack",
    "KernelSet",
    "PlacedSamples",
    "StoredStack",
    "SubsetKernels",
    "SubsetStack",
    "Views",
    "as_gram",
    "make_feature_stack",
    "make_normalization",
    "make_stack",
    "take_rows",
]
