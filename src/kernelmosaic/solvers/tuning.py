"""The values that were tuned in the solvers, with their units and what supports them.

"Chosen by hand" means that no benchmark of this repository varies the value. Costs are compared in
floating-point operations (flops), steps or samples, none of which depends on how busy the machine
is, so that the same problem is solved the same way every time. No value has an optimum that is
sharp.

Compiled code is cached by the text of its own module: after a change of `STRIP` or
`FLAT_CURVATURE`, the compiled loops of `_numba_smo` must be compiled anew. Constants that no other
module reads stand in the modules `_numba_…`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelmosaic.backend import TINY

# Programs (`program`) -----------------------------------------------------------------------------

#: Relative to the sizes of the coefficients: a sum this near to its total meets it up to rounding.
#: It is a few thousand units of rounding, which a sum of that many coefficients may be off by.
SUM_ROUNDING = 1e-12
#: Samples. With more of them, the best intercept is first searched among about `SPACED_SAMPLES` of
#: them; with fewer, the bends of all losses are sorted (chosen by hand).
MANY_SAMPLES = 4000
SPACED_SAMPLES = 1000
#: Candidates that the first step of that search passes over (chosen by hand).
FIRST_CANDIDATE_STEP = 8
#: Newton steps for the shift that meets a sum. A start is rarely so far off its total that more
#: than a few are needed; `Program.optimal_intercepts` is the way out.
MAX_SHIFT_STEPS = 40
#: Largest excess of a class's coefficients, relative to the size of all, that is rounding.
CLASS_SUM_ROUNDING = 1e-14
#: Steps that move the excess of classes between the coefficients of a sample, and sweeps over the
#: constants of the classes (chosen by hand): what is left after them is met otherwise.
MAX_BALANCING_STEPS = 5
MAX_CONSTANT_SWEEPS = 3
#: Fraction of a sample's C from which on its largest coefficient counts as being at the bound.
AT_BOUND = 1.0 - 1e-9

# Steps of one coefficient or two (`smo`, `_numba_smo`) --------------------------------------------

#: Curvature below which a direction counts as flat: the kernel is positive semi-definite only up to
#: rounding.
FLAT_CURVATURE = 1e-12
#: Steps after which a solve ends: the larger of so many, and so many per sample. That is about five
#: times what the hardest problems take that converge.
MOST_STEPS_OF_FEW = 50_000
MAX_STEPS_PER_SAMPLE = 500
#: Least steps of a run, after which the gap is computed, of few samples and of more
#: (`SolverOptions.few_samples`).
LEAST_RUN_OF_FEW = 100
LEAST_RUN_OF_MANY = 1000
#: Steps of few samples that take as long as computing the gap.
ASSESSMENT_STEPS = 100
#: Newton steps are tried this many times earlier on few samples.
FEW_SAMPLES_NEWTON_FACTOR = 6
#: Factor by which the flops allowed to Newton steps grow each time (chosen by hand).
NEWTON_ALLOWANCE_GROWTH = 2
#: Relative to the sizes of the coefficients: an error of their sum above this is mended before the
#: certificate.
PAIR_SUM_ROUNDING = 1e-14
#: Relative to the largest residual: a target of the violation below this is below its rounding.
REACHED_ROUNDING = 1e-15
#: The first run aims at this fraction of the violation. A later one aims at `TARGET_SAFETY` times
#: the violation at which the gap would meet the tolerance, but multiplies the last target by a
#: factor between the two limits (chosen by hand). A target is never zero.
FIRST_TARGET_FRACTION = 0.1
TARGET_SAFETY = 0.7
SMALLEST_TARGET_FACTOR = 0.05
LARGEST_TARGET_FACTOR = 0.5
LEAST_TARGET = 1e-300
#: Samples that compiled steps handle at once: the keys of a strip stay in the first-level cache.
STRIP = 512

# Newton steps on free samples (`free_newton`) -----------------------------------------------------

#: Size of a step that counts as one: it differs from one by rounding (chosen by hand).
WHOLE_STEP = 0.999
#: Coefficients. Up to so many move from a device to the host to be cut back to the box.
MOST_HOST_SAMPLES = 20_000
#: Steps to the shift that meets a sum; halving the interval alone would take about as many to the
#: last digit.
MAX_SUM_STEPS = 60
#: Change of the shift, relative to its size and to those of the coefficients, that is rounding.
SHIFT_ROUNDING = 1e-15
#: Relative to the mean diagonal: least noise of the entries of a block. And the least noise of all.
LEAST_RELATIVE_NOISE = 1e-10
LEAST_BLOCK_NOISE = 1e-12
#: Flops of a factorisation that take as long as updating one entry of an inverse.
INVERSE_FLOPS_PER_ENTRY = 80
#: Largest fraction by which the diagonal of a block grows to be factorised (chosen by hand).
GRAM_FORM_JITTER = 0.01

# Line searches (`line_search`) --------------------------------------------------------------------

#: Fraction of the value below which rounding hides the sign of a derivative.
FLAT_SLOPE = 1e-14
#: Fraction of the decrease that the derivative promises, of which a step must keep so much: the
#: usual constant of Armijo's rule.
ARMIJO = 1e-4
#: Doublings or halvings of a step that is low enough (chosen by hand).
MAX_STEP_CHANGES = 6
#: Factors by which a step is shortened where the derivative at its end is known: the least one of a
#: smooth value and of one with a kink, and the largest one (chosen by hand).
LEAST_SMOOTH_FACTOR = 0.1
LEAST_KINK_FACTOR = 1e-3
LARGEST_SHORTENING = 0.7

# Rounds of working sets (`working_set`) -----------------------------------------------------------

#: Linear systems of kernels that are not stored: conjugate-gradient steps of one solve, and solves,
#: each of which corrects the previous one (chosen by hand).
CG_STEPS = 1000
MAX_CG_SOLVES = 6
#: Relative residual of the first solve, as a fraction of the root of the tolerance, and the factor
#: by which later solves lower it. The gap falls with the square of the residual.
CG_FIRST_GOAL = 0.03
CG_GOAL_FACTOR = 0.1
#: Fraction of the diagonal of K that stays beside its low-rank factors, so that programs without a
#: ridge get one; relative gap to which that start is solved (both chosen by hand).
UNEXPLAINED_DIAGONAL = 1e-3
LOW_RANK_START_GAP = 0.1
#: Intercepts that are compared at once on a device; the certificate takes the best one instead.
INTERCEPT_CANDIDATES = 64
#: Newton steps after the first one, those that may be cut back to the box, and the fraction of the
#: first step's gain below which a step is the last (chosen by hand).
NEWTON_BUDGET = 3
NEWTON_CUT_BACKS = 4
NEWTON_LEAST_GAIN = 0.02
#: Rounds that take about as long as Newton steps where the host computes products.
NEWTON_WAIT_ON_HOST = 4
#: Fraction of the largest residual of all rounds. Below it the residual is computed anew: of the
#: seven digits that products in single precision have, three are lost.
LOST_RESIDUAL = 1e-3
#: Rounds are solved to this fraction of the tolerance, or, while samples are outside of them, to a
#: fraction of the current gap if that is larger; the fraction is smaller for kernels in factors
#: (chosen by hand).
ROUND_GAP = 0.1
EARLY_ROUND_GAP = 0.1
FACTORED_EARLY_ROUND_GAP = 0.01
#: A round after which the gap is above this fraction of the gap before is slow: the next ones are
#: solved to `ROUND_FACTOR_STEP` of the gap, and to no less than `LEAST_ROUND_FACTOR` of the first
#: (chosen by hand).
SLOW_ROUND_GAP_RATIO = 0.5
ROUND_FACTOR_STEP = 0.1
LEAST_ROUND_FACTOR = 1e-8
#: Samples per free sample in a round of a kernel in factors (chosen by hand).
SAMPLES_PER_FREE_SAMPLE = 3
#: Pair steps per sample of a round. Few samples have had their pair steps before the rounds:
#: interior points take over sooner.
MAX_ROUND_STEPS = 200
MAX_ROUND_STEPS_OF_FEW = 30

# Least squares (`least_squares`) ------------------------------------------------------------------

#: Largest fraction by which the diagonal of M grows where rounding leaves M indefinite. A matrix
#: that needs more has lost its ridge; `RIDGE_REFINEMENTS` make up for smaller ones.
LARGEST_RIDGE_JITTER = 1e-4
#: Rounds in which the residual of the linear system is solved for (chosen by hand).
RIDGE_REFINEMENTS = 3
#: Largest entry of the residual that may be left after them, relative to the largest target:
#: outputs are off by it.
LARGEST_RIDGE_RESIDUAL = 1e-3
#: Least tr(Yᵀ A Y), in squared units of the targets, whose logarithm is taken: of constant targets
#: it is zero.
LEAST_FIT = 1e-30
#: Fraction of its mean square below which the variance of a feature is rounding: it is constant.
CONSTANT_FEATURE = 1e-12
#: Least 1 − leverage of a sample in centred features, as exact as their refined solutions are.
LEAST_LEFT_OF_CENTRED = 1e-10
#: Entries of centred features that are held at once where leverages are computed: 128 MB.
LEVERAGE_ENTRIES = 2**24

# Interior points (`interior_point`, `weight_path`) ------------------------------------------------

#: Fraction of the step to the nearest bound. Steps are cut this far before the bound, which is the
#: usual rule of primal-dual methods; chosen by hand.
FRACTION_TO_BOUNDARY = 0.995

# Kernels in factors: `CentralPath`

#: Steps. More than this many mean that rounding prevents progress: cold starts take about 25
#: (`tests/solvers/test_interior_point.py`).
MOST_PATH_STEPS = 100
#: Fraction of a Newton step. A step that the bounds cut shorter than this shows rounding.
SHORTEST_PATH_STEP = 1e-8
#: Corrections of one step (Gondzio 1996), each of which costs a product with Z and one with Zᵀ.
MOST_CORRECTIONS = 3
#: Fraction of a Newton step. A step that the bounds allow this far is not corrected.
LONG_ENOUGH_STEP = 0.95
#: Fraction of a Newton step by which a correction is to make the step longer; the value of
#: Gondzio (1996) is 0.1, this one was chosen by hand.
CORRECTION_AIM = 0.3
#: Fraction of a Newton step. A correction that makes the step longer by less is dropped.
LEAST_CORRECTION_GAIN = 0.03
#: Factor. Products of distances and multipliers are corrected outside this factor of their aim, by
#: this factor of the aim at most (Gondzio 1996).
PRODUCT_SPREAD = 10
#: Relative to the sizes of the coefficients. While their sum misses the total by more than this,
#: the gap of the path proves nothing; chosen by hand.
PATH_SUM_ERROR = 1e-7
#: Relative to the mean row. Rows of the Newton matrix with less weight are below its rounding.
NEGLIGIBLE_ROW = 1e-14
#: Samples, spread evenly, whose mean stands for that of the kernel's diagonal.
DIAGONAL_SAMPLES = 200
#: Relative to the width of the box. A start nearer to a bound would be lost in rounding where the
#: coefficients end at the opposite bound; chosen by hand.
LEAST_START_WIDTH = 1e-5

# Several classes: `solve_interior`

#: Relative to the mean diagonal and the margins: what is added to the diagonals, one value after
#: the other. The larger value keeps a step short along which neither kernel nor barrier bend the
#: objective. The smaller one is tried where the larger one makes steps too short; rounding defeats
#: it more often.
CLASS_PATH_JITTERS = (1e-10, 1e-13)
#: Steps with all jitters together. Problems that rounding does not prevent take a few dozen.
MOST_CLASS_PATH_STEPS = 80
#: Relative to the tolerance. Below this estimated gap further steps no longer change the solution
#: when its coefficients are put at their bounds.
FINAL_CLASS_GAP = 1e-5
#: Relative to the tolerance. Iterates with a larger estimated gap are not certified, which costs
#: products with all kernels.
CERTIFIED_CLASS_GAP = 3.0
#: Certified steps. So many that do not halve the gap show rounding; chosen by hand.
MOST_IDLE_CLASS_STEPS = 6
#: Relative to the right-hand side, and to the step: a Newton system solved to these residuals is
#: not refined.
CLASS_SYSTEM_RESIDUAL = 1e-10
CLASS_SUM_RESIDUAL = 1e-12
#: Refinements of the solution of one Newton system; chosen by hand.
CLASS_REFINEMENTS = 2

# Interior points over weights and coefficients: `WeightPath`

#: Relative to the sizes of the coefficients. While their sum misses the total by more than this,
#: the iterate proves no gap.
WEIGHT_PATH_SUM_ERROR = 1e-9
#: Steps in a row without a smaller gap after which rounding prevents progress.
MOST_IDLE_WEIGHT_STEPS = 12
#: Fraction of a Newton step. A step that the bounds cut shorter than this shows rounding.
SHORTEST_WEIGHT_STEP = 1e-8
#: Largest fraction by which a diagonal grows so that a matrix is positive definite in spite of
#: rounding.
LARGEST_WEIGHT_PATH_JITTER = 1e-6
#: Samples per feature up to which the system of the samples is solved: it is more work above two,
#: but loses fewer digits.
NARROW_RATIO = 4
#: Relative to the largest ½βᵀK_mβ: least product of a distance and a multiplier at the start
#: (chosen by hand).
LEAST_MU = 1e-12
#: Fraction of the linear slack above which the exact one replaces it (chosen by hand).
EXACT_SLACK = 0.3

# Kernels in factors (`factored`) ------------------------------------------------------------------

#: Relative duality gap. The written kernel is in single precision, whose rounding can keep the gap
#: above smaller tolerances.
WRITTEN_GAP = 1e-6
#: Fraction of the cost of interior points from a cold start. Rounds of working sets that do not
#: halve the gap end once they have cost this much; chosen by hand.
IDLE_COST_FRACTION = 0.1
#: Fraction of the tolerance of a working set, and relative duality gap. The central path of a
#: working set is followed to the smaller of both; chosen by hand.
BLOCK_PATH_FRACTION = 0.3
BLOCK_PATH_GAP = 1e-8
#: Relative to the largest free coefficient. Where samples are rounded to their bounds, a free
#: sample without a tube changes by less than this; chosen by hand.
UNBOUNDED_ROOM = 1e3
#: Relative to the mean diagonal. What is added to the diagonal of the system of those changes, so
#: that columns of Z which depend on each other do not make it singular.
COMPENSATION_JITTER = 1e-10
#: Fraction of a free sample's distance to its nearest bound, up to which it may change.
COMPENSATION_FRACTION = 0.9

# Newton steps of several classes (`multiclass_newton`) --------------------------------------------

#: Relative to the sample's C. A coefficient nearer to its bound is at its bound, up to rounding.
BOUND_ROUNDING = 1e-9
#: Relative to the mean diagonal. The damping of the first step, and the limits between which it is
#: adapted; chosen by hand.
FIRST_DAMPING = 1e-2
LEAST_DAMPING = 1e-7
LARGEST_DAMPING = 10.0
#: Fractions of the damped step. If the best step along it is at least the first, the damping
#: decreases by its factor; below the second it increases by its factor. Chosen by hand.
LONG_NEWTON_STEP = 0.9
DAMPING_DECREASE = 0.4
SHORT_NEWTON_STEP = 0.4
DAMPING_INCREASE = 4.0
#: Relative to the mean diagonal, in double and in single precision, and absolute: what is added to
#: the diagonal of a block that rounding may have left slightly indefinite.
RELATIVE_CLASS_NOISE = 1e-9
SINGLE_CLASS_NOISE = 1e-5
LEAST_CLASS_NOISE = 1e-12
#: The mean diagonal. Blocks with a larger one are not computed in single precision, whose largest
#: number is 3e38.
LARGEST_SINGLE_SCALE = 1e30
#: Relative to the largest singular value. Flatter directions of the classes' constants count as
#: undetermined; one is, since a number added to all constants changes nothing.
FLAT_CONSTANTS = 1e-6
#: Flops. As many of a factorisation take as long as reading a byte, by which `run_threads` measures
#: work; chosen by hand.
FLOPS_PER_BYTE = 16

# Sample steps of several classes (`multiclass`) ---------------------------------------------------

#: Sample steps of a small problem before interior points: the least number, and the entries of a
#: kernel for each further step. Problems that these do not solve are mostly not solved by many
#: times as many; together the steps then take no longer than interior points do. Chosen by hand.
LEAST_SMALL_STEPS = 500
ENTRIES_PER_STEP = 20
#: Sample steps of a problem for which there are no interior points: the least limit, and the limit
#: per sample. Chosen by hand.
LEAST_STEP_LIMIT = 100_000
STEPS_PER_SAMPLE = 3000
#: Sample steps. Each step of interior points counts as this many, or as one for every sample.
INTERIOR_STEP_COST = 1000
#: Relative duality gap. Down to it the first blocks are in single precision, whose rounding of 6e-8
#: is small beside it.
SINGLE_GAP = 1e-4
#: Fraction of the gap to which the program with given constants is solved; chosen by hand.
CONSTANTS_INNER = 0.2
#: Factor of the penalty of the classes' sums where a step does not halve the gap; chosen by hand.
PENALTY_GROWTH = 3.0
#: Moves of the constants. After so many in a row that do not lower the gap, rounding prevents it.
CONSTANTS_IDLE = 10
#: Rounds. Where more samples are free than a round holds, all of them move together once in this
#: many rounds; chosen by hand.
CROWDED_ROUNDS = 10
#: Free samples. A matrix of this many, 128 MB in double precision, is factorised for such a move.
MOST_CROWDED = 4000

# Newton steps in features (`proximal_newton`) -----------------------------------------------------

#: Relative to the mean diagonal of the kernel: the least first σ. Chosen by hand.
LEAST_SIGMA = 0.02
#: Factor by which σ shrinks from one softened program to the next; chosen by hand.
SIGMA_DECREASE = 0.3
#: Fraction of the program's gap. A softened program is solved once its own gap is this small;
#: chosen by hand.
PROXIMAL_GAP = 0.1
#: Relative to the primal value. The same where the program's gap is within the tolerance.
FINAL_PROXIMAL_GAP = 1e-9
#: Trials of a step that is too long, each half of the last one.
MOST_HALVINGS = 12

# The barrier for matrix inequalities (`conic`) ----------------------------------------------------

#: Squared Newton decrement. Below it a point counts as the centre of its steepness.
CENTRED_DECREMENT = 1e-2
#: Squared Newton decrement. If steps end above it, rounding prevents centring: the method stops.
UNCENTRED_DECREMENT = 1.0
#: Factor by which the steepness grows from one centre to the next; chosen by hand.
BARRIER_INCREASE = 3.0
#: Newton steps of one centre, and of all. The second is about ten times what the hardest problems
#: take that rounding does not prevent.
MOST_CENTRING_STEPS = 100
MOST_BARRIER_STEPS = 1000
#: Trials of a step, each half of the last one.
MOST_BARRIER_HALVINGS = 40
#: Relative to the largest singular value. Flatter directions of the Newton system are rounding.
HESSIAN_RANK = 1e-15

# Machines with smooth losses (`smooth_newton`) ----------------------------------------------------

#: Relative residual. Newton systems are solved to the root of the gap, so that convergence becomes
#: quadratic, but at least to this.
LARGEST_SMOOTH_RESIDUAL = 0.1
#: Trials of the length of a Newton step; chosen by hand.
SMOOTH_TRIALS = 30
#: Steps of conjugate gradients for one Newton system; chosen by hand.
CURVED_CG_STEPS = 500

# Options of whole solves --------------------------------------------------------------------------


@dataclass(frozen=True)
class RoundOptions:
    """How the driver of working sets takes rounds.

    Attributes
    ----------
    size : int or None
        Samples per round. None stands for `fraction` of all samples, but at least `min_size` and at
        most `max_size`: the host solves so many as fast as a device updates the outputs of all.
    fraction : float
    min_size, max_size : int
    violation_fraction : float
        A round ends when no violation is above this fraction of the largest one it began with.
    steps_per_sample : int
        A round ends after so many steps per sample of it.
    max_idle_rounds : int
        So many rounds in a row without progress end the solve, since rounding hides the rest. A
        round makes progress if it raises the dual value by more than `least_rise` of its size, or
        lowers the gap below `least_gap_ratio` of the smallest: near the optimum the value has
        converged while the gap has half as many digits.
    least_rise, least_gap_ratio : float
    tol_fraction : float
        Fraction of the tolerance that rounds aim at: the certificate includes what single precision
        leaves out.
    max_certificates : int
        Certificates that may be above the tolerance before the best solution is returned.
    max_newton_samples : int
        Free samples up to which Newton steps are tried.
    max_factorised : int
        Free samples up to which their block is factorised; larger blocks take conjugate-gradient
        steps.
    max_newton_wait : int
        Most rounds between Newton steps. Their number doubles while a round gains more than Newton
        steps do.
    """

    size: int | None = None
    fraction: float = 1 / 4
    min_size: int = 1024
    max_size: int = 4096
    violation_fraction: float = 0.1
    steps_per_sample: int = 10
    max_idle_rounds: int = 5
    least_rise: float = 1e-14
    least_gap_ratio: float = 0.9
    tol_fraction: float = 1.0
    max_certificates: int = 4
    max_newton_samples: int = 400_000
    max_factorised: int = 6000
    max_newton_wait: int = 16


@dataclass(frozen=True)
class SolverOptions:
    """How the programs are solved: when a method takes over from another.

    The first words of a comment are the unit.
    """

    # Few samples ----------------------------------------------------------------------------------

    # Samples. Up to so many NumPy does what compiled code does for more, which takes half a second
    # to load (`benchmarks/latency.py`), and calls cost more than their arithmetic: kernels in
    # factors are read as one array.
    few_samples: int = TINY
    # Pair steps per sample of one solve, and per sample of all solves of a fit. After so many
    # NumPy's steps have taken as long as compiled code takes to load: it is loaded then.
    numpy_steps: float = 10
    fit_steps: int = 5000

    # Pair steps on a stored matrix (`benchmarks/solver.py`) ---------------------------------------

    # A fraction of the samples. The active samples are copied out and solved alone when they are
    # fewer than this fraction of all, so that their block has at most a quarter of the entries.
    compact_fraction: float = 0.5
    # Samples that the problem must have for that copy to pay.
    min_compact_samples: int = 2000
    # Pair steps per sample that have not been enough once Newton steps on the free samples are
    # tried. Those of up to `few_samples` samples cost next to nothing: they are tried after a sixth
    # as many.
    newton_after: float = 3
    # Free samples. Newton steps are for at most so many, whose block of 128 MB in double precision
    # is factorised.
    max_newton_samples: int = 4000
    # Flops per sample and pair step. Factorising the block of |F| free samples takes |F|³: it waits
    # until the pair steps since the last time make up for it, and then takes no longer than they
    # did.
    flops_per_step: float = 20

    # Rounds of working sets -----------------------------------------------------------------------

    # Of a matrix on a device.
    rounds: RoundOptions = RoundOptions()
    # Of a kernel that is not stored, which must halve the gap in `max_idle_rounds` rounds.
    free_rounds: RoundOptions = RoundOptions(
        max_idle_rounds=30,
        least_rise=np.inf,
        least_gap_ratio=0.5,
        tol_fraction=0.9,
        max_certificates=3,
    )
    # Of the program of several classes, where forming a larger block costs more than the rounds it
    # saves.
    class_rounds: RoundOptions = RoundOptions(max_size=3000, steps_per_sample=5)
    # A fraction of a round. All free samples are in a round of a kernel that is not stored unless
    # they take more than this: the rest is for those that violate optimality.
    free_fraction: float = 0.8
    # Samples per sample of a round. Above it a round sees little of the problem, and the first one
    # starts from the solution for low-rank factors of the kernel.
    low_rank_start_ratio: int = 4

    # Kernels in factors (`benchmarks/factored.py`, `benchmarks/lowrank.py`) -----------------------

    # Pair steps per sample. After so many a problem of few samples is left to interior points,
    # which take some thirty factorisations however hard it is.
    pairs: int = 50
    # Samples. Up to `few_written` the kernel is written down for pair steps, 16 MB in single
    # precision; up to `most_written`, 144 MB, where there are half as many features or more: n²D
    # flops are then no more than those of two Newton matrices of all samples.
    few_written: int = 2000
    most_written: int = 6000
    # Samples. Least of a working set on the host: a round costs two passes over the rows besides.
    least_factored: int = 1000
    # Rounds of working sets. So many in a row may fail to halve the gap before other methods are
    # faster: at least `patience`, at most `longest_patience`, in between what costs a tenth of
    # interior points.
    patience: int = 3
    longest_patience: int = 15
    # Newton matrices. Interior points from a cold start factorise about so many
    # (`tests/solvers/test_interior_point.py` holds them to it).
    path_matrices: int = 25
    # Flops. What an entry of a working set's block costs once it is formed.
    entry_flops: int = 50
    # Proximal Newton steps. After so many interior points are faster, although their matrices sum
    # over all samples and not only over the free ones.
    newton_steps: int = 50
    # Relative duality gap. Below it softened Newton steps slow down, and working sets are at their
    # best.
    newton_goal: float = 3e-4
    # Shares of the tolerance. The central path stops at these, one after the other: rounding
    # coefficients to their bounds costs the rest of it. The gap of a machine whose kernel has a
    # diagonal of its own is larger, by about a root, than that of the path, which counts the
    # diagonal as slack.
    path_fractions: tuple[float, ...] = (0.3, 0.01)
    shifted_path_fractions: tuple[float, ...] = (0.3, 0.01, 3e-4, 1e-5, 3e-7)
    # Relative duality gap. The path is followed to no larger one: its last steps are few, and tell
    # samples at their bounds from those that are free, from which the next solve starts.
    path_gap: float = 3e-5
    # Pair steps. As many take as long as one factorisation of few samples: for the count of steps
    # of a fit.
    steps_per_factorisation: int = 400

    # Several classes ------------------------------------------------------------------------------

    # Newton steps. Most in a round that leaves no sample out.
    class_newton: int = 20
    # Coefficients. Up to so many interior points, which factorise a matrix per class in each step,
    # take over from steps that solve one sample each.
    small: int = 1500


DEFAULTS = SolverOptions()
