"""Sizes and shares that stacks and combined kernels work with: none of them changes a result beyond
rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelmosaic._typing import DType
from kernelmosaic.backend import TINY, Backend


@dataclass(frozen=True)
class StackOptions:
    """How a stack of matrices is made and read.

    Attributes
    ----------
    distance_bytes : int
        Distances between training samples, which widths are learned of, are kept for the matrices
        in so much memory.
    few_samples : int
        Up to this many samples the passes over matrices are NumPy's, which wait for no compiler.
    triangle_bytes : int
        Where stored kernels are combined with many weights, the host keeps their lower triangles in
        up to so much more memory: two products with these take a quarter of the time of NumPy's
        passes over matrices.
    cache_bytes : int
        Bytes of a block that the host works on at once: it stays in the second-level cache.
    host_tile : tuple of int
        Height and width of the blocks that the host computes at once where it stores nothing.
    cpu_tile, cuda_tile : int
        Side of the squares that a device works on at once, which stay in its cache.
    on_demand_bytes : int
        Memory for the blocks that the host works on at once where not even the combined kernel is
        stored.
    block_share : float
        Share of the budget that the block of a working set may take: its solver copies a part of
        it.
    most_rank, rank_share : int, float
        Most columns of the low-rank factors of a kernel that is not stored, and the share of the
        budget they may take.
    few_pairs, pair_share : int, float
        Matrices of up to so many pairs are stored where there is room; and those of pairs with more
        members, on both sides together, than this share of their number are not made of their
        members'.
    pair_block, pair_factorised, pair_members : int
        Most pairs whose block of a combined kernel is formed, and whose linear system is
        factorised; and most members on a side whose eigenvectors are computed.
    pair_rank, pair_rank_bytes : int
        Where these eigenvectors are not enough, most leading eigenvectors of the combined kernel of
        all pairs, and the memory that they may take.
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
        """Return how many of n samples a block within the budget may have."""
        return int(min(n, (self.block_share * budget / dtype.itemsize) ** 0.5))

    def tile_entries(self, backend: Backend) -> int:
        """Return the entries of a square that a device works on at once."""
        return (self.cuda_tile if str(backend.device).startswith("cuda") else self.cpu_tile) ** 2


def device_entries(backend: Backend) -> int:
    """Return the entries of the blocks, or features, that a device works on at once in a
    prediction."""
    return 2**26 if str(backend.device).startswith("cuda") else 2**20


@dataclass(frozen=True)
class PassOptions:
    """How passes over the rows of features are made.

    Attributes
    ----------
    strip_bytes : int
        Of a strip of features, in double precision, that is worked on at once.
    block_samples, block_numbers : int
        Up to this many samples may have their block of a combined kernel formed; and if there is
        one per class, the blocks may have this many numbers together.
    columns : int or None
        Columns of the features whose products are formed at once, of a symmetric matrix only the
        blocks on one side; None leaves that to the library.
    sparse : float
        Below this share of rows that count, the others of stored features are left out by a copy.
    double_bytes : int
        Up to this many bytes features are stored in double precision.
    wide : float
        See `FactoredGram`.
    few_features : int
        Up to this many features, passes over the rows are too little work for several cores.
    many_features, part_samples : int, int
        Of more features than the first, the search for weights starts from those of at most so many
        samples.
    """

    # Strips large enough to keep the matrix products busy, and blocks whose solution costs no more
    # than a few passes.
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


#: Of the host and of a device, by the name of the backend. A device forms large blocks in no time
#: and factorises fast, but rounds of small steps are slow there.
PASSES = {
    "numpy": PassOptions(),
    "torch": PassOptions(2**30, block_samples=16_000, columns=640, sparse=0.5, wide=2.0),
}


@dataclass(frozen=True)
class FitOptions:
    """How much of the training set feature maps are fitted to.

    Attributes
    ----------
    most_rows, least_rows : int
        What a kernel learns of the training set, such as a width, it learns from at most so many
        samples; and from so many whatever the memory.
    strip_bytes : int
        Of samples read at once while constants are learned.
    """

    most_rows: int = 20_000
    least_rows: int = 1000
    strip_bytes: int = 2**24


@dataclass(frozen=True)
class BlockOptions:
    """How a block of the free samples is solved.

    Attributes
    ----------
    dtype : dtype
        Precision of the arithmetic.
    jitter : float or None
        Relative to the mean diagonal, what is added to the diagonal; None adds what rounding of the
        entries requires.
    factorised : int
        Blocks up to this many samples are factorised, larger ones take conjugate-gradient steps.
    cg_steps : int
        Most of these.
    cg_tol : float
        Relative size of the residual at which they end.
    """

    dtype: DType = np.float64
    jitter: float | None = None
    factorised: int = 20_000
    cg_steps: int = 50
    cg_tol: float = 1e-2


#: Of the host and of a device, by the name of the backend. On the host a rough solution in single
#: precision is enough: large blocks are of well-conditioned kernels.
BLOCKS = {"numpy": BlockOptions(np.float32, 1e-5, 500, 8), "torch": BlockOptions()}
