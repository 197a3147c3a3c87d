"""Options of stacks, of passes over features, of fits of feature maps and of free blocks.

None of them changes a result beyond rounding. Numbers that no caller sets stand in `tuning`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelmosaic._typing import DType
from kernelmosaic.backend import TINY, Backend
from kernelmosaic.gram.tuning import CPU_PREDICTION_ENTRIES, CUDA_PREDICTION_ENTRIES


@dataclass(frozen=True)
class StackOptions:
    """How a stack of matrices is made and read.

    Attributes
    ----------
    distance_bytes : int
        Bytes that distances between training samples may take. Widths are learned from them, and
        the matrices computed.
    few_samples : int
        Up to this many samples, passes over matrices are those of NumPy, which need no compiler.
    triangle_bytes : int
        Bytes that the lower triangles of stored kernels may take on the host, beside the matrices.
        They are for combinations with many weights: two products with them take a quarter of the
        time of NumPy's passes over the matrices.
    cache_bytes : int
        Bytes of a block that the host works on at once: it stays in the second-level cache.
    host_tile : tuple of int
        Height and width of the blocks that the host computes at once if it stores nothing.
    cpu_tile, cuda_tile : int
        Side of the squares that torch works on at once on a CPU and on a CUDA device: they stay in
        its cache.
    on_demand_bytes : int
        Bytes of the blocks that the host works on at once if not even the combined kernel is
        stored.
    block_share : float
        Fraction of the budget that the block of a working set may take. Its solver copies a part of
        it.
    most_rank : int
        The largest rank of low-rank factors of a kernel that is not stored.
    rank_share : float
        Fraction of the budget that these factors may take.
    few_pairs : int
        Matrices of up to this many pairs are stored if there is room.
    pair_share : float
        Pairs are known by the matrices of their members if the members of both sides together are
        at most this fraction of the pairs.
    pair_block : int
        The most pairs whose block of a combined kernel is formed.
    pair_factorised : int
        The most pairs whose linear system is factorised.
    pair_members : int
        The most members of a side whose eigenvectors are computed.
    pair_rank : int
        The most leading eigenvectors of the combined kernel of all pairs that are computed if those
        of the sides are not enough.
    pair_rank_bytes : int
        Bytes that these eigenvectors may take.
    """

    distance_bytes: int = 2**27
    few_samples: int = TINY
    triangle_bytes: int = 2**27
    cache_bytes: int = 2**19
    host_tile: tuple[int, int] = (256, 1024)
    cpu_tile: int = 512
    cuda_tile: int = 2048
    on_demand_bytes: int = 2**24
    block_share: float = 0.6
    most_rank: int = 1000
    rank_share: float = 0.1
    few_pairs: int = 2000
    pair_share: float = 0.5
    pair_block: int = 3000
    pair_factorised: int = 1500
    pair_members: int = 3000
    pair_rank: int = 500
    pair_rank_bytes: int = 2**28

    def block_samples(self, n: int, budget: float, dtype: np.dtype[DType]) -> int:
        """Return how many of n samples a block may have whose entries fit the budget."""
        return int(min(n, (self.block_share * budget / dtype.itemsize) ** 0.5))

    def tile_entries(self, backend: Backend) -> int:
        """Return the entries of a square that torch works on at once."""
        side = self.cuda_tile if str(backend.device).startswith("cuda") else self.cpu_tile
        return side**2


def device_entries(backend: Backend) -> int:
    """Return the entries of blocks or features that torch works on at once in a prediction."""
    is_cuda = str(backend.device).startswith("cuda")
    return CUDA_PREDICTION_ENTRIES if is_cuda else CPU_PREDICTION_ENTRIES


@dataclass(frozen=True)
class PassOptions:
    """How passes over the rows of features are made.

    Attributes
    ----------
    strip_bytes : int
        Bytes of a strip of features, in double precision, that is worked on at once.
    block_samples : int
        The most samples whose block of a combined kernel is formed.
    block_numbers : int
        The most numbers of all blocks together if there is one per class.
    columns : int or None
        Columns of the features whose products are formed at once, only the blocks on one side of
        the diagonal. None leaves the division of the product to the library of linear algebra.
    sparse : float
        If fewer rows than this fraction count, stored features of these rows are copied; else all
        rows are read.
    double_bytes : int
        Features of up to this many bytes are stored in double precision.
    wide : float
        See `FactoredGram`.
    few_features : int
        Up to this many features, passes over the rows are too little work for several cores.
    many_features : int
        With more features, the search for weights starts from those of a part of the samples.
    part_samples : int
        The most samples of that part.
    """

    # Strips are large enough to keep matrix products busy, and blocks small enough that solving
    # one takes no longer than a few passes.
    strip_bytes: int = 2**24
    block_samples: int = 3000
    block_numbers: int = 2**27
    columns: int | None = None
    sparse: float = 1.0
    double_bytes: int = 2**28
    wide: float = np.inf
    few_features: int = 300
    many_features: int = 1000
    part_samples: int = 2000


#: The options of the host and of a device, by the name of the backend. A device forms and
#: factorises large blocks fast, while rounds of small steps are slow there.
PASSES = {
    "numpy": PassOptions(),
    "torch": PassOptions(2**30, block_samples=16_000, columns=640, sparse=0.5, wide=2.0),
}


@dataclass(frozen=True)
class FitOptions:
    """How much of the training set feature maps are fitted to.

    Attributes
    ----------
    most_rows : int
        The most samples that a kernel learns from, such as its width.
    least_rows : int
        The number of samples that it learns from whatever the memory.
    strip_bytes : int
        Bytes of the samples that are read at once while constants are learned.
    """

    most_rows: int = 20_000
    least_rows: int = 1000
    strip_bytes: int = 2**24


@dataclass(frozen=True)
class BlockOptions:
    """How a linear system in the block of the free samples is solved.

    Attributes
    ----------
    dtype : dtype
        Precision of the arithmetic.
    jitter : float or None
        The fraction of the mean diagonal that is added to the diagonal; None adds as much as the
        rounding of the entries requires.
    factorised : int
        Blocks of up to this many samples are factorised, larger ones take conjugate-gradient steps.
    cg_steps : int
        The most conjugate-gradient steps.
    cg_tol : float
        Relative size of the residual at which the steps end.
    """

    dtype: DType = np.float64
    jitter: float | None = None
    factorised: int = 20_000
    cg_steps: int = 50
    cg_tol: float = 1e-2


#: The options of the host and of a device, by the name of the backend. On the host a rough solution
#: in single precision is enough, since large blocks come from well-conditioned kernels.
BLOCKS = {"numpy": BlockOptions(np.float32, 1e-5, 500, 8), "torch": BlockOptions()}
