"""Tuning values of the batches on a device: what each is a number of, and the reason behind it.

`benchmarks/path.py --parts gpu` times whole searches with these values; no benchmark varies them
one by one. Values "chosen by hand" have no better reason than that those searches succeed.
"""

from __future__ import annotations

from dataclasses import dataclass

# Products of kernels with many columns ------------------------------------------------------------

#: Entries of a row that the units of a device which multiply halves read at once: rows in half
#: precision are padded to a multiple of it.
HALF_ALIGNMENT = 8
#: Entries of a matrix that are rounded to half precision at once: the copy in between takes so many
#: numbers of the precision of the matrix, 256 MiB in single precision.
ROUNDED_ENTRIES = 2**26
#: Samples from which on a product takes longer than gathering the columns that it is needed for.
#: Chosen by hand.
LARGE_SAMPLES = 8192
#: Fraction of the columns up to which only the columns with a weight in a large kernel are
#: multiplied with it. With more of them, gathering saves too little. Chosen by hand.
MAX_GATHERED_FRACTION = 0.75
#: Largest eigenvalue over ridge up to which an inverse is kept in half precision: beyond it, the
#: rounding of halves counts for more than the ridge. Chosen by hand; see
#: `test_half_precision_ends_where_it_would_round_more_than_the_ridge`.
MAX_HALF_CONDITION = 2e4
#: Bytes that one entry takes in half precision.
HALF_BYTES = 2.0
#: Bytes per entry that must stay free beside the halves: five matrices in single precision, while
#: one is inverted.
INVERSION_BYTES = 20.0
#: Steps of the power iteration for the largest eigenvalue, which is compared with
#: `MAX_HALF_CONDITION` and needs one digit. Chosen by hand.
POWER_STEPS = 6
#: Columns of a panel of the blocked Cholesky factorisation of a batch. A device factorises larger
#: blocks one by one, and smaller ones leave it idle. Chosen by hand.
PANEL_COLUMNS = 256

# The intercepts of a batch ------------------------------------------------------------------------

#: Passes of the search for intercepts, and candidates of a pass: an interval shrinks by the factor
#: candidates − 1 in a pass, by 7¹² = 1.4e10 in all.
INTERCEPT_PASSES = 12
INTERCEPT_CANDIDATES = 8
#: How far the first interval reaches beyond the residuals, relative to their size, and absolutely:
#: above rounding, so that the crossing is inside.
INTERCEPT_MARGIN = 1e-6
LEAST_INTERCEPT_MARGIN = 1e-12

# Alternating directions ---------------------------------------------------------------------------

#: Over-relaxation takes a·x − (a − 1)·z in place of x; these are a and a − 1. Steps converge for a
#: between 0 and 2, and between 1.5 and 1.8 as a rule fastest (Boyd et al. 2011, section 3.4.3).
RELAXED_X = 1.6
RELAXED_Z = 0.6
#: Fraction of the width of its box within which a coefficient counts as at its bound.
NEAR_BOUND = 1e-3
#: Smallest number that a norm is divided by.
LEAST_SIZE = 1e-300

# ρ and the shared inverse -------------------------------------------------------------------------

#: Widest box that ρ is chosen for: beyond it, as without a bound, coefficients are not as large as
#: their box.
WIDEST_BOX = 1e6
#: Largest factor by which ρ changes between two rounds. One round may misjudge the balance. Chosen
#: by hand.
MAX_RHO_FACTOR = 10.0
#: Factor by which weights may exceed those of the shared kernel: alternating directions converge
#: for kernels that exceed it by up to a third.
SHARED_REACH = 1.3
#: One in so many columns of the batch must be unfinished for ρ to change: for fewer, a new inverse
#: costs more than their steps.
RHO_COLUMNS = 4

# Newton steps -------------------------------------------------------------------------------------

#: Bytes of free memory for each entry of the free blocks. An entry takes 32 bytes: its place, two
#: copies in single and two in double precision; all entries may take half of the memory.
BLOCK_ENTRY_BYTES = 64
#: Jitter on the diagonal of the free blocks, as a fraction of its mean: blocks are in single
#: precision, whose rounding it exceeds.
FREE_JITTER = 1e-6
#: Fraction of `tol` at which the rounds of a column end: the certificate from exact products adds
#: what rounding may hide. Chosen by hand.
ROUND_AIM = 0.9
#: Fraction of the lowest gap so far below which a gap counts as progress. Chosen by hand.
PROGRESS = 0.9

# Steps of the weights: a model of the objective is trusted as far as it came true -----------------

#: Least fraction of the promised gain that must come true; below it the next step is damped.
POOR_STEP = 0.25
#: Fraction of the promised gain above which the damping decreases.
GOOD_STEP = 0.75
#: Factors of the damping after a poor and after a good step; the first damping is at least
#: `LEAST_DAMPING`, in units of the largest possible curvature. Chosen by hand.
MORE_DAMPING = 4.0
LESS_DAMPING = 0.25
LEAST_DAMPING = 0.05
#: Fraction of a step that is left where it made the objective worse. Chosen by hand.
SHORTENED_STEP = 0.25


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """How the paths of several folds are followed together. All values are chosen by hand.

    Attributes
    ----------
    n_columns : int
        About so many problems are one batch: neighbouring values of all paths.
    max_size_ratio : float
        Largest ratio of the sizes of the bounds in a batch: its columns share ρ.
    n_steps : int
        Steps of alternating directions in a round.
    max_rounds : int
        Most rounds before a certificate.
    max_certificates : int
        Most certificates. Problems that none of them finishes are learned alone.
    max_idle_rounds : int
        The rounds end after so many in a row without progress in the gap of any column.
    max_block_entries : int
        Most entries of the free blocks, in all columns together. Where a column has more free
        samples, some of them stand for all.
    settled_fraction : float
        The weights of a column move where the gap of its machine is at most this fraction of the
        gap of machine and weights.
    max_imbalance : float
        ρ changes where the primal residual is more than this factor, squared, above or below the
        dual one.
    half_precision : bool, optional
        Whether kernels multiply in half precision up to the first certificate; None where that is
        faster and there is memory.
    shared_floor : float
        Every kernel has at least this fraction of the largest weight in the shared kernel.
    shared_excess : float
        The shared inverse is computed anew where the weights exceed its own by more than this
        fraction of their sum.
    """

    n_columns: int = 64
    max_size_ratio: float = 12.0
    n_steps: int = 20
    max_rounds: int = 25
    max_certificates: int = 3
    max_idle_rounds: int = 4
    max_block_entries: int = 2**28
    settled_fraction: float = 0.3
    max_imbalance: float = 2.0
    half_precision: bool | None = None
    shared_floor: float = 0.02
    shared_excess: float = 0.1
