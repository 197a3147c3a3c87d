"""Where Gram matrices live: the fitted kernel_set of kernels and the stack of its matrices on a training set."""

from kernelmosaic.gram.gram import DenseGram, Gram, as_gram
from kernelmosaic.gram.kernel_set import FittedKernel, KernelSet, Views, take_rows
from kernelmosaic.gram.normalizing import make_normalization
from kernelmosaic.gram.product import ProductKernelSet
from kernelmosaic.gram.stack import ComputedStack, GramStack, StoredStack, make_stack

__all__ = [
    "ComputedStack",
    "DenseGram",
    "FittedKernel",
    "Gram",
    "GramStack",
    "KernelSet",
    "ProductKernelSet",
    "StoredStack",
    "Views",
    "as_gram",
    "make_normalization",
    "make_stack",
    "take_rows",
]
