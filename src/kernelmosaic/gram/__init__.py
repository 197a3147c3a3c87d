"""Where Gram matrices live: the fitted set of kernels and the stack of its matrices on a training set."""

from kernelmosaic.gram.factory import make_feature_stack
from kernelmosaic.gram.gram import DenseGram
from kernelmosaic.gram.kernel_set import KernelSet, Views, take_rows
from kernelmosaic.gram.pairs import PairStack, make_pair_stack
from kernelmosaic.gram.stack import ComputedStack, GramStack, StoredStack, make_stack
from kernelmosaic.gram.subsets import SubsetKernels, SubsetStack

__all__ = [
    "ComputedStack",
    "DenseGram",
    "GramStack",
    "KernelSet",
    "PairStack",
    "StoredStack",
    "SubsetKernels",
    "SubsetStack",
    "Views",
    "make_feature_stack",
    "make_pair_stack",
    "make_stack",
    "take_rows",
]
