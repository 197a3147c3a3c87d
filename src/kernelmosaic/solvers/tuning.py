"""The values that were tuned in the solvers, with their units and what supports them.

"Chosen by hand" means that no benchmark of this repository varies the value. Constants of compiled
loops stand in the modules `_numba_…`, because compiled code is cached by the module's own text.
"""

from __future__ import annotations

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
AT_BOUND = 1e-9
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
RELATIVE_BLOCK_NOISE = 1e-9
SINGLE_BLOCK_NOISE = 1e-5
LEAST_BLOCK_NOISE = 1e-12
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
