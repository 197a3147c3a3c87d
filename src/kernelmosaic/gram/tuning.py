"""Numbers that the modules of this package work with, beside the options of stacks and passes.

What a caller may want to set for one stack stands in the classes of `options`. None of these
numbers changes a result beyond rounding, but for those of the section on missing views.
"""

from __future__ import annotations

# The kernel set -----------------------------------------------------------------------------------

#: Sparse matrices of up to this many columns are turned into arrays: products of arrays are several
#: times faster, even where one entry in ten is not zero. The number is chosen by hand.
DENSE_COLUMNS = 500
#: Sparse samples are stored by column if more than this many kernels cut columns out of them: the
#: conversion then costs less than it saves. The number is chosen by hand.
CUTS_BY_ROW = 4
#: Columns of a block that a device multiplies at once: this many entries of a row, of a few rows,
#: stay in its cache.
PRODUCT_COLUMNS = 8192
#: Entries of the blocks, or features, of a prediction that torch computes at once on a CUDA device.
CUDA_PREDICTION_ENTRIES = 2**26
#: The same on a CPU.
CPU_PREDICTION_ENTRIES = 2**20
#: Relative error up to which the ratio of two rates counts as 2 or 4: some 50 roundings.
RATIO_ERROR = 1e-14
#: Statistics of a view that the memory for distances is reserved for: squared distances and sums of
#: absolute differences.
STATISTICS_PER_VIEW = 2
#: Rows of a matrix that are centred at once, so that there is no second matrix in memory.
CENTRED_ROWS = 512

# Stacks of matrices -------------------------------------------------------------------------------

#: Matrices of up to this many samples are stored in double precision: they are small. The number is
#: chosen by hand.
DOUBLE_SAMPLES = 500
#: Numbers that the blocks of all classes may have together, 1 GiB in double precision.
CLASS_BLOCK_NUMBERS = 2**27
#: Arrays of a block that are alive at once while it is computed, in double precision: the
#: statistic, the kernel made of it and one temporary.
ARRAYS_PER_BLOCK = 3
#: Memory for blocks of stored matrices while they are computed, in blocks for the cache of the
#: host: tall strips keep matrix products busy.
TALL_STRIP_BLOCKS = 2
#: One matrix divided by this is the same memory for large matrices: it is little beside the stack.
TALL_STRIP_DIVISOR = 16
#: The budget divided by this is the memory for the blocks of a stack of which the combined kernel
#: alone is stored.
WORKING_BUDGET_DIVISOR = 8
#: Least bytes for these blocks.
LEAST_WORKING_BYTES = 2**20
#: Fraction of the budget that a stack of some samples may take.
PART_SHARE_OF_BUDGET = 0.5
#: Strips of stored matrices that are multiplied by few columns are this many times larger than
#: blocks for the cache, since they are read once.
STRIP_BLOCKS_OF_PRODUCTS = 8
#: Divisor of the height of tiles whose exponentials are multiplied by several columns: they stay in
#: the cache until all columns are.
COLUMN_TILE_DIVISOR = 4
#: Columns of a square of the lower triangle come in multiples of this many: a cache line of single
#: precision.
SQUARE_MULTIPLE = 16

#: Whole rows of up to this many kernels are read faster than half of them is mirrored.
FEW_KERNELS = 3
#: Strips of a matrix that threads fill: as many as the cores of a small machine.
PRODUCT_STRIPS = 4
#: If more than this fraction of β is not zero, whole matrices are read: reading half of a matrix in
#: order is faster than picking most of its entries one by one.
SPARSE_SUPPORT = 0.3

# Features -----------------------------------------------------------------------------------------

#: Eigenvalues of a matrix of landmarks below this fraction of the largest are rounding.
EIGENVALUE_ROUNDING = 1e-12
#: They are so below this many roundings per landmark, too.
ROUNDINGS_PER_LANDMARK = 4.0
#: Landmarks for each leading feature. The three numbers are chosen by hand.
LANDMARKS_PER_FEATURE = 4
#: Least landmarks for leading features.
LEAST_LANDMARKS = 400
#: Landmarks where the number of leading features follows from a fraction of the kernel.
LANDMARKS_FOR_FRACTION = 500

#: Matrices of (D + 1)² numbers that a Newton step holds at once: the matrix, its parts and its
#: factor.
NEWTON_MATRICES = 5
#: Least bytes of a strip of features.
LEAST_STRIP_BYTES = 2**20
#: Most bytes of the strips in which features are computed to be stored.
LARGEST_FILL_STRIP = 2**26
#: Numbers of samples that are read at once to compute hashes of their content.
HASHED_NUMBERS = 2**14
#: Multiplications that a worker makes in about the time of a trip to it.
EAGER_OPERATIONS = 1e9
#: Most results of workers that travel to be added up in this process. The number is chosen by hand.
RESULTS_PER_SUM = 8
#: Numbers that blocks of a combined kernel may have whatever the memory: those of 100 samples.
LEAST_BLOCK_NUMBERS = 100**2
#: Bytes beside the features for one number of a block: half of them, in double precision.
LEFT_BYTES_PER_NUMBER = 16
#: The same of all memory, features included: an eighth of it.
FREE_BYTES_PER_NUMBER = 64
#: Least rows of a strip on a device: with fewer, it would wait for the host. The number is chosen
#: by hand.
LEAST_DEVICE_ROWS = 64

# Linear algebra -----------------------------------------------------------------------------------

#: Entries that are converted to another precision at once, by the name of the backend.
CONVERTED_ENTRIES = {"numpy": 2**20, "torch": 2**26}
#: What is added to the diagonal of a matrix with rounded entries, as a fraction of its mean: some
#: ten roundings of single precision.
SINGLE_JITTER = 1e-6
#: The same in double precision, for sums of many entries.
DOUBLE_JITTER = 1e-10
#: Mean diagonals below this count as this, so that something is added.
SMALLEST_MEAN_DIAGONAL = 1e-300
#: How much more is added to the diagonal after each factorisation that fails.
GROWTH_STEP = 10.0
#: The most samples whose block a device factorises if it has room. The number is chosen by hand.
DEVICE_FACTORISED = 36_000
#: Arrays of n² numbers for that: the block, its factor and working memory.
DEVICE_FACTOR_ARRAYS = 3
#: The largest fraction that the diagonal of a block on a device may grow by. On the host a block
#: that is not positive definite is not solved.
DEVICE_BLOCK_GROWTH = 0.01

# Combined kernels ---------------------------------------------------------------------------------

#: The most samples whose block of a stored matrix is formed on the host: 128 MiB in double
#: precision.
BLOCK_OF_DENSE = 4096
#: The most samples that are copied out of a stored matrix to be worked on by themselves: 275 MiB in
#: double precision. Products with more of them read the whole matrix. The number is chosen by hand.
COPIED_SAMPLES = 6000
#: Bytes of a device that a copy leaves unused, since free memory may be in pieces.
UNUSED_DEVICE_BYTES = 2**30
#: Entries of the strips in which columns for low-rank factors are computed: 128 MiB.
LOW_RANK_STRIP_ENTRIES = 2**24
#: Least rank that low-rank factors are computed for.
LEAST_RANK = 2
#: The largest fraction of the diagonal that is added to a matrix of landmarks so that it can be
#: factorised. One that needs more is no kernel up to rounding.
LOW_RANK_GROWTH = 0.01
#: A block of free samples is solved in features with this fraction of its mean diagonal added to
#: the ridge: the solution is a rough one.
FREE_BLOCK_JITTER = 1e-5
#: Blocks whose mean diagonal is below this have no inverse in double precision.
SMALLEST_FREE_BLOCK = 1e-290

# Missing views ------------------------------------------------------------------------------------

#: Nearest training samples whose mean stands in for a view. The number is chosen by hand.
NEIGHBOURS = 6
#: Decimal digits of distances, in units of their mean, that are compared.
DISTANCE_DIGITS = 10
#: Most training samples that spreads and likeness of the kernels are estimated from.
SPREAD_SAMPLES = 300
#: Most entries of all matrices together that they are estimated from: with many kernels there are
#: fewer samples.
SPREAD_NUMBERS = 2**22
#: Bytes of the distances between a strip of samples and the training set.
STRIP_BYTES_OF_NEIGHBOURS = 2**26
