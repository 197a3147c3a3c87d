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
