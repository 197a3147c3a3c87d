"""Where Gram matrices live: the fitted mosaic of kernels and the bank of its matrices on a training set."""

from kernelmosaic.gram.bank import ComputedBank, KernelBank, StoredBank, make_bank
from kernelmosaic.gram.gram import DenseGram, Gram, as_gram
from kernelmosaic.gram.mosaic import Mosaic, Piece, Views, take_rows
from kernelmosaic.gram.normalizing import make_normalization
from kernelmosaic.gram.product import ProductMosaic

__all__ = [
    "ComputedBank",
    "DenseGram",
    "Gram",
    "KernelBank",
    "Mosaic",
    "Piece",
    "ProductMosaic",
    "StoredBank",
    "Views",
    "as_gram",
    "make_bank",
    "make_normalization",
    "take_rows",
]
