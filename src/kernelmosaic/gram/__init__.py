"""Where Gram matrices live: the fitted mosaic of kernels and the bank of its matrices on a training set."""

from kernelmosaic.gram.bank import ComputedBank, KernelBank, StoredBank, make_bank
from kernelmosaic.gram.device import DeviceGram
from kernelmosaic.gram.mosaic import Mosaic, Piece, Views, take_rows
from kernelmosaic.gram.normalizing import make_normalization
from kernelmosaic.gram.product import ProductMosaic

__all__ = [
    "ComputedBank",
    "DeviceGram",
    "KernelBank",
    "Mosaic",
    "Piece",
    "ProductMosaic",
    "StoredBank",
    "Views",
    "make_bank",
    "make_normalization",
    "take_rows",
]
