"""The compiled loops of the multi-class solver.

The module is imported only when a program is solved, since Numba is slow to import. As in
`_numba_smo`, the functions that a compiled function calls are inlined, and what NumPy does as well
is left to it: a sort in compiled code takes longer to compile than the solver itself.

The tuned values stand here and not in `tuning`, because compiled code is cached until this file
changes.
"""

from __future__ import annotations

import numpy as np

from kernelmosaic._typing import AnyArray
from kernelmosaic.files import njit
from kernelmosaic.solvers.program import Vector

#: Of every sample the class, C, and the upper bound of the coefficient of its class.
Box = tuple[AnyArray, Vector, Vector]

#: Steps of Newton's method for the multiplier of one sample. Each step fixes the set of free
#: classes, so that a handful suffice; the bracket halves in steps that do not.
MULTIPLIER_STEPS = 60
#: Relative to the coefficients. A smaller sum of a sample's coefficients is rounding.
SUM_ROUNDING = 1e-15
#: Relative to C. A coefficient nearer to its bound is at its bound, up to rounding.
BOUND_ROUNDING = 1e-12
#: Relative to the sample's largest diagonal entry, and in place of it where all are zero: the least
#: diagonal entry of a class, so that the step is finite where a class's kernels have no weight.
LEAST_CURVATURE = 1e-8
#: Fraction of the largest violation. A round visits the samples that violate by more than this;
#: chosen by hand.
VISITED = 0.5
#: Visits of a sample in one round; chosen by hand.
MOST_VISITS = 5


@njit(inline="always")
def solve_sample(
    gradient: Vector, curvature: Vector, label: int, C: float, own_upper: float, out: Vector
) -> None:
    """Set `out` to the β that maximises Σ_c gradient_c β_c − ½ curvature_c β_c².

    The constraints are Σβ = 0, −C ≤ β_c ≤ 0 and 0 ≤ β_label ≤ own_upper. β_c is a clipped linear
    function of the multiplier ζ of Σβ = 0, and the sum falls in ζ. Newton's method finds the set of
    free classes; it keeps a bracket of ζ and bisects it where a step would leave it. On the final
    set the multiplier is in closed form.
    """
    k = gradient.shape[0]

    # 1. A bracket of the multiplier.
    low = gradient[0]
    high = gradient[0]
    stiffest = curvature[0]
    for c in range(1, k):
        low = gradient[c] if gradient[c] < low else low
        high = gradient[c] if gradient[c] > high else high
        stiffest = curvature[c] if curvature[c] > stiffest else stiffest
    largest_beta = own_upper if own_upper > C else C
    width = stiffest * largest_beta
    low = low - width
    high = high + width

    # 2. Newton steps from the gradient of the sample's class.
    zeta = gradient[label]
    is_balanced = False
    for _ in range(MULTIPLIER_STEPS):
        # `size` is the sum of |β_c|, `rate` how fast the sum of β falls in ζ.
        total = 0.0
        size = 0.0
        rate = 0.0
        for c in range(k):
            floor, ceiling = (0.0, own_upper) if c == label else (-C, 0.0)
            value = (gradient[c] - zeta) / curvature[c]
            if floor < value < ceiling:
                rate += 1.0 / curvature[c]
            if value <= floor:
                value = floor
            elif value >= ceiling:
                value = ceiling
            out[c] = value
            total += value
            size += abs(value)
        is_balanced = abs(total) <= SUM_ROUNDING * size
        if is_balanced:
            break
        if total > 0.0:
            low = zeta
        else:
            high = zeta
        if rate > 0.0:
            zeta = zeta + total / rate
        if not rate > 0.0 or not low < zeta < high:
            zeta = 0.5 * (low + high)
    if not is_balanced:
        _balance(out, curvature, label, C, own_upper)


@njit(inline="always")
def _balance(out: Vector, curvature: Vector, label: int, C: float, own_upper: float) -> None:
    """Change the coefficients so that they sum to zero.

    What is missing is a rounding error of a diagonal that nearly vanishes. It is added to the
    classes in the order of their curvature, the flattest first, each up to its bounds. Free classes
    are visited before all others: a class that left its bound by a rounding error would look as if
    it had a large violation.
    """
    k = out.shape[0]
    missing = 0.0
    for c in range(k):
        missing -= out[c]
    # Visits 0 to k − 1 are of the free classes, visits k to 2k − 1 of all.
    last = -np.inf
    c = -1
    for visit in range(2 * k):
        if visit == k:
            last = -np.inf
            c = -1
        # The flattest class that comes after the last one; of equal ones that with the next number.
        following = -1
        for i in range(k):
            is_later = curvature[i] > last or (curvature[i] == last and i > c)
            if is_later and (following < 0 or curvature[i] < curvature[following]):
                following = i
        c = following
        last = curvature[c]
        floor, ceiling = (0.0, own_upper) if c == label else (-C, 0.0)
        if visit < k and not floor < out[c] < ceiling:
            continue
        moved = out[c] + missing
        if moved < floor:
            moved = floor
        if moved > ceiling:
            moved = ceiling
        missing -= moved - out[c]
        out[c] = moved


@njit(inline="always")
def _violation(
    beta: Vector, residual: AnyArray, i: int, label: int, C: float, own_upper: float
) -> float:
    """Return the gradient along the best exchange between two coefficients of sample i.

    `beta` are the coefficients of the sample, `residual` is the gradient of all samples, of shape
    (classes, n). The result is zero if no exchange gains.
    """
    rise = -np.inf
    fall = np.inf
    rounding = BOUND_ROUNDING * C
    for c in range(beta.shape[0]):
        if c == label:
            can_rise = beta[c] < own_upper - rounding
            can_fall = beta[c] > rounding
        else:
            can_rise = beta[c] < -rounding
            can_fall = beta[c] > rounding - C
        if can_rise and residual[c, i] > rise:
            rise = residual[c, i]
        if can_fall and residual[c, i] < fall:
            fall = residual[c, i]
    return rise - fall if rise > fall else 0.0


def violations(beta: AnyArray, residual: AnyArray, box: Box) -> Vector:
    """Return the violation of every sample, of shape (n,).

    It is the gradient along the best exchange between two coefficients; zero where the sample is
    optimal.
    """
    out = np.empty(beta.shape[0])
    _fill_violations(beta, residual, box, out)
    return out


@njit(cache=True, nogil=True)
def _fill_violations(beta: AnyArray, residual: AnyArray, box: Box, out: Vector) -> None:
    labels, sample_C, own_upper = box
    for i in range(beta.shape[0]):
        out[i] = _violation(beta[i], residual, i, labels[i], sample_C[i], own_upper[i])


@njit(cache=True, nogil=True, fastmath={"contract"})
def _maximise_samples(
    K: AnyArray,
    shift: float,
    box: Box,
    beta: AnyArray,
    residual: AnyArray,
    order: AnyArray,
    threshold: float,
    workspace: AnyArray,
) -> int:
    """Solve the samples of `order` whose violation exceeds the threshold, one after the other.

    β and the residual are changed in place.

    Parameters
    ----------
    K : ndarray of shape (1, n, n) or (classes, n, n)
        The kernels, one for all classes or one for each.
    shift : float
        Added to every entry of the kernels.
    box : tuple of ndarray
        Of every sample the class, C, and the upper bound of the coefficient of its class.
    beta : ndarray of shape (n, classes)
        Feasible coefficients.
    residual : ndarray of shape (classes, n)
        The gradient T − K_c β_c.
    order : ndarray
        Samples.
    threshold : float
        Samples with no larger violation are left as they are.
    workspace : ndarray of shape (3, classes)
        Memory for the problem of one sample.

    Returns
    -------
    int
        The number of samples whose coefficients have changed.
    """
    labels, sample_C, own_upper = box
    gradient, curvature, new = workspace[0], workspace[1], workspace[2]
    k = beta.shape[1]
    steps = 0
    for o in range(order.shape[0]):
        i = order[o]
        if _violation(beta[i], residual, i, labels[i], sample_C[i], own_upper[i]) <= threshold:
            continue

        # 1. The problem of the sample in its own coefficients.
        largest = 0.0
        for c in range(k):
            curvature[c] = K[c % K.shape[0], i, i] + shift
            if curvature[c] > largest:
                largest = curvature[c]
        least = max(LEAST_CURVATURE * largest, 1e-300) if largest > 0.0 else LEAST_CURVATURE
        for c in range(k):
            if not curvature[c] > least:
                curvature[c] = least
            gradient[c] = residual[c, i] + curvature[c] * beta[i, c]

        # 2. Its solution, and the change of all gradients.
        solve_sample(gradient, curvature, labels[i], sample_C[i], own_upper[i], new)
        moved = False
        for c in range(k):
            change = new[c] - beta[i, c]
            if change != 0.0:
                row = K[c % K.shape[0], i]
                residual_c = residual[c]
                for j in range(residual_c.shape[0]):
                    residual_c[j] -= change * (row[j] + shift)
                beta[i, c] = new[c]
                moved = True
        # Rounding can leave a sample with a violation where it is. This is no step: a round of such
        # samples must count as one without progress.
        steps += moved
    return steps


def maximise_in_rounds(
    K: AnyArray,
    shift: float,
    box: Box,
    beta: AnyArray,
    residual: AnyArray,
    most: int,
    goal: float,
) -> int:
    """Solve samples in rounds until no violation is above `goal`; return the number of steps.

    A round visits only the samples with large violations, several times. Rounds end after `most`
    steps, or when one takes no step. The other parameters are those of `_maximise_samples`.
    """
    workspace = np.empty((3, beta.shape[1]))
    taken = 0
    while taken < most:
        # 1. The samples of the round, those with the largest violations first.
        violation = violations(beta, residual, box)
        if violation.max() <= goal:
            break
        threshold = VISITED * violation.max()
        order = np.flatnonzero(violation > threshold)
        order = order[np.argsort(-violation[order], kind="stable")]

        # 2. Visits.
        taken_before = taken
        for _ in range(MOST_VISITS):
            visited = order[: most - taken]
            steps = _maximise_samples(K, shift, box, beta, residual, visited, threshold, workspace)
            taken += steps
            if steps == 0:
                break
        if taken == taken_before:
            break
    return taken


# Blocks of symmetric matrices, of which only the lower halves are used ----------------------------


@njit(cache=True, nogil=True)
def take_lower(K: AnyArray, shift: float, rows: AnyArray, out: AnyArray) -> None:
    """Fill the lower half of out = K[rows, rows] + shift."""
    for i in range(len(rows)):
        source = K[rows[i]]
        for j in range(i + 1):
            out[i, j] = source[rows[j]] + shift


@njit(cache=True, nogil=True)
def add_lower(block: AnyArray, rows: AnyArray, out: AnyArray) -> None:
    """Add the lower half of a block to that of out[rows, rows]; the rows must be ascending."""
    for i in range(len(rows)):
        target = out[rows[i]]
        for j in range(i + 1):
            target[rows[j]] += block[i, j]
