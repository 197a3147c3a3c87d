"""Tuning values of the learners: what each is a number of, and the reason behind it.

No benchmark varies them one by one. Values "chosen by hand" have no better reason than that fits
succeed with them. Numbers of steps and of samples state what they compare.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Where a search ends, and where the next one starts -----------------------------------------------

#: Learners stop at this fraction of the tolerance, because the certificate adds bounds of rounding
#: to theirs. Chosen by hand.
AIM = 0.96

#: Weights that differ by less than this fraction of the largest are the same up to rounding.
SAME_WEIGHTS = 1e-12

# Steps of the machine's solver, over one whole search ---------------------------------------------

#: How many solves in a row may begin with steps and end in interior points. Later solves begin with
#: interior points. Chosen by hand.
MAX_STALLS = 3

#: Rows (gap, count): a solve that ends above its tolerance but within this gap uses up at least the
#: fraction 1/count of the steps that one solve may take, so that a search gives up after at most
#: `count` of them. Solvers of kernels that are not stored matrices count other steps than steps of
#: pairs, so the steps alone say too little. Solves that end far above their tolerance are less
#: likely to succeed later. Chosen by hand.
FAILED_SOLVES_ALLOWED = ((1e-3, 48), (0.1, 16), (np.inf, 4))

#: How often all solves of a search together may take the steps that one solve may take. Chosen by
#: hand: it bounds the time of a search whose solves all reach their gap slowly.
MAX_STEP_BUDGETS = 8

# Newton steps: the quadratic model and its minimum over the weights -------------------------------

#: A smaller weight of sum one is rounding, and its kernel would be evaluated for nothing.
ZERO_WEIGHT = 1e-12
#: Fraction of the mean diagonal that is added to a curvature, so that equal kernels leave it
#: regular. Chosen by hand, well above rounding and well below what changes a step.
DAMPING = 1e-8
#: Smallest weight for which a step of a power norm is computed: steps are relative to the weights,
#: and a smaller one would leave the range of the arithmetic. Chosen by hand.
LEAST_STEP_WEIGHT = 1e-12
#: Fraction of a weight that a step of a power norm may take off at most: the weight is zero only in
#: the limit. Chosen by hand.
MAX_SHRINKAGE = 0.9
#: Smallest weight at the start of a search with a power norm, as a fraction of the largest. From a
#: weight of zero there is no step. Chosen by hand.
POWER_START = 1e-3
#: Power κ in q ∝ θ^(−κ) from which q is trusted to follow the power down to the smallest weights.
#: Chosen by hand.
STEEP_POWER = 1.5
#: Fraction of the mean weight below which a weight may become zero in one step. Chosen by hand.
LEAST_TRUSTED = 1e-2
#: Most changes of the free set of the active-set method for the quadratic model; the solver of
#: machines takes over then. Chosen by hand.
MAX_EXCHANGES = 100
#: Smallest gain of a variable that enters the free set, relative to the numbers that it is the
#: difference of: smaller ones are rounding.
LEAST_GAIN = 1e-12
#: Relative gap of the quadratic model where the solver of machines minimises it. Chosen by hand.
MODEL_TOL = 1e-10
#: Most steps of pairs of that solver. Chosen by hand.
MAX_MODEL_STEPS = 100_000

# Newton steps: curvatures from few data -----------------------------------------------------------

#: Relative tolerance of the linear systems behind the curvature of a smooth loss: the curvature
#: only chooses a direction. Chosen by hand.
CURVED_TOL = 1e-4
#: Smallest curvature of a secant, as a fraction of the product of the lengths of its step and its
#: change of the gradient: a smaller one is rounding. Chosen by hand.
LEAST_SECANT = 1e-8
#: Smallest q of which a curvature is made, as a fraction of the largest. Chosen by hand.
LEAST_SECANT_GRADIENT = 1e-12
#: Smallest weight of which a curvature is made, as a fraction of equal weights. Chosen by hand.
LEAST_CURVED_WEIGHT = 1e-3

# Newton steps: where they go on -------------------------------------------------------------------

#: Relative rise of the value that rounding explains, beside the machine's own gap, where a step is
#: taken because it raises the lower bound.
HIDDEN_RISE = 1e-12
#: The gradients of all kernels are computed where those of some prove a gap of this many times tol.
#: Chosen by hand.
NEARLY_PROVED = 2.0
#: How far a search goes towards the θ where the maximum of the planes is least: that θ jumps from
#: corner to corner, and half of the way is nearer to the lowest point of the value. Chosen by hand.
CORNER_FRACTION = 0.5

# Newton steps: machine tolerances as fractions of tol ---------------------------------------------

#: Of the first solve from the solution of a similar problem: the first steps are also the last.
#: Chosen by hand.
WARM_MACHINE_TOL = 0.3
#: Of the first solve from nothing: later steps solve more exactly. Chosen by hand.
COLD_MACHINE_TOL = 10.0
#: The least of later solves where the combined kernel is stored. Chosen by hand.
STORED_KERNEL_MACHINE_TOL = 1e-2
#: The least of later solves where the combined kernel is computed when it is needed: there the last
#: digits of a solve cost more than another step. Chosen by hand.
COMPUTED_KERNEL_MACHINE_TOL = 0.1
#: Of later solves, as a fraction of the square of the gap: an error δ in the machine's value is one
#: of √δ in β and in the gradient. Chosen by hand.
SQUARED_GAP_FRACTION = 0.1

# Interior points over weights and machine ---------------------------------------------------------

#: Kernels: Newton steps on the weights of fewer kernels take less time than interior points, also
#: where the kernels are of rank one.
FEW_KERNELS = 8
#: Units of rounding, relative to the largest entry of the diagonal, up to which an incomplete
#: Cholesky factorisation must reproduce a kernel. Chosen by hand.
PIVOT_ROUNDINGS = 100.0

# Machines without slack ---------------------------------------------------------------------------

#: The values of C that are tried, for a kernel of mean diagonal one: C grows until it exceeds the
#: coefficients of the machine without slack. Chosen by hand.
GROWING_C = (1e3, 1e5, 1e7, 1e9, 1e11)
#: Smallest margin of a function that separates the classes. Near the optimum the margin is one;
#: the margin that is left of a sample that both classes have is rounding. Chosen by hand.
LEAST_MARGIN = 0.1
#: Fraction of the identity that every kernel carries where C is learned, so that the machine has a
#: solution even if the identity has no weight. Chosen by hand.
IDENTITY_FRACTION = 1e-6

# Conic programs -----------------------------------------------------------------------------------

#: Machine tolerances at the weights of the conic program, as fractions of tol: of the first solve,
#: and of another one where the gap is not met. Chosen by hand.
CONIC_MACHINE_TOLS = (0.1, 1e-3)
#: The same at weights of any sign. Chosen by hand.
SDP_MACHINE_TOL = 0.01
#: Smallest eigenvalue of a kernel, as a fraction of its largest: smaller ones are rounding.
LEAST_EIGENVALUE = 1e-12
#: Smallest multiplier, as a fraction of the largest: smaller ones are those that interior points
#: leave of constraints that are not active. Chosen by hand.
LEAST_MULTIPLIER = 1e-7
#: Smallest fraction of the trace that a kernel may have in the combined kernel, for weights of any
#: sign. Chosen by hand, for the same reason.
LEAST_TRACE_FRACTION = 1e-7


@dataclass(frozen=True, kw_only=True)
class LearnerTuning:
    """Tuning values of the searches over the weights."""

    # The accuracy of the machine.

    #: Relative gap of the first solve of the machine, and tolerance of the fit to a subsample, the
    #: weights of which are only a start.
    first_machine_tol: float = 1e-2
    #: Factor of the machine tolerance where no step gains anything at the present one.
    machine_tol_factor: float = 0.03
    #: Smallest machine tolerance: rounding in double precision hides smaller gaps.
    least_machine_tol: float = 1e-13

    # The end of a search.

    #: Most evaluations in one line search.
    max_line_evaluations: int = 8
    #: Factor by which a step must lower the gap to count as progress.
    progress_factor: float = 0.9
    #: Iterations in a row that leave the gap as it was. So many show that rounding is reached.
    max_idle_steps: int = 20
    #: Newton steps in a row without progress of the gap. So many suggest that J has a kink.
    max_flat_steps: int = 5
    #: The same for kernels of few features, whose interior points cost less.
    max_flat_steps_factored: int = 3

    # Interior points over weights and machine (the successor).

    #: Iterations that must be left for interior points to begin: they need more than this.
    min_path_steps: int = 8
    #: Iterations that are enough for interior points.
    max_path_steps: int = 30
    #: Solves of the machine after which interior points take over: they take some 30 steps, each of
    #: which costs about two solves.
    max_solves_before_path: int = 60
    #: The same for kernels of few features: all steps together cost a few solves.
    max_solves_before_factored_path: int = 20
    #: Most samples of interior points over matrices: a step takes 4 seconds of a core there.
    max_path_samples: int = 6_000
    #: Arrays, each as large as all features or as one matrix, that a step of interior points holds.
    path_arrays: int = 6
    #: Most features of a kernel in matrix form that are looked for: a search for more takes longer
    #: than a few solves of the machine.
    max_rank: int = 100
    #: Fewest samples per feature: with fewer of them, features save little time, and rounding hides
    #: more of the gap.
    samples_per_feature: int = 4
    #: Fractions of tol to which interior points are followed, tried in turn: rounding the
    #: coefficients to their bounds costs the rest of tol.
    path_tol_fractions: tuple[float, ...] = (0.1, 3e-3, 1e-4)

    # Sizes.

    #: Fewest samples of a subsample: the weights of a smaller one are too far from those of all
    #: samples to be a good start.
    min_subsample: int = 200
    #: Fraction of the samples in the subsample whose weights are a start. Chosen by hand.
    subsample_fraction: float = 0.2
    #: Fraction of the largest q_m. A kernel without a weight whose q_m is below it cannot enter
    #: soon, so its gradient is not computed at every evaluation.
    entering_fraction: float = 0.8
    #: Most samples for which double precision costs little.
    few_samples: int = 500
    #: Smallest tol for which curvatures, and the matrices of classes, may be in single precision.
    single_tol: float = 1e-4
    #: Most free samples: to factorise a larger block costs more time than the solves that it saves.
    max_free_samples: int = 4000
    #: Most entries of the matrices of a conic program: its solver holds several times as many.
    max_conic_entries: int = 20_000_000
    #: Most samples of the program over weights of any sign: it factorises matrices of order n²/2.
    max_sdp_samples: int = 100


@dataclass(frozen=True)
class DescentTuning:
    """Tuning values of the descent along the reduced gradient. All were chosen by hand."""

    #: Machine tolerance at first, as a fraction of tol: the search compares values.
    machine_tol: float = 0.01
    #: Most evaluations in the search of the last stretch of a step.
    max_cuts: int = 12
    #: Fraction of the remaining stretch that an evaluation keeps from both of its ends.
    margin: float = 0.05
    #: Fraction of the slope at the start by which the value must fall per unit of a step (Armijo).
    armijo: float = 1e-4
    #: Fraction of the slope at the start that counts as zero.
    flat_slope: float = 0.1


@dataclass(frozen=True)
class PlaneTuning:
    """Tuning values of column generation. All were chosen by hand."""

    #: Machine tolerance at first, as a fraction of tol.
    machine_tol: float = 0.1
    #: Machine tolerance where an evaluation is no better than the best, as a fraction of the gap.
    gap_fraction: float = 0.1
    #: Fraction of the way from the best weights to those of the master problem, of the first step.
    first_fraction: float = 0.3
    #: Factor of the fraction after a step to worse weights; a step to better ones divides by it.
    fraction_factor: float = 0.7
    #: The smallest fraction.
    least_fraction: float = 1e-3
