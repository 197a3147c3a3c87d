"""The solver of the multi-class program, in working sets: of all samples where the kernel is an
array, of some of them where it is not.

A sample's problem, all other samples fixed, is solved exactly (Algorithm 1 of the bilinear
multi-class formulation; Crammer and Singer 2001), with a floor where a class's diagonal vanishes.
Where these steps converge slowly, Newton steps move all free coefficients at once, and small
problems are left to interior points. Constants are multipliers, found by the method of multipliers
around these solvers.

Words: a *sample step* solves the problem of one sample. A sample's *violation* is the gradient
along the best exchange between two of its coefficients. A kernel is *whole* if its matrices are
arrays of this process, so that every round reads all samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, DType, Indices, Mask
from kernelmosaic.backend import NUMPY
from kernelmosaic.gram.gram import ClassGram
from kernelmosaic.solvers.interior_point import solve_interior
from kernelmosaic.solvers.multiclass_newton import DampedNewton, class_products, free_coefficients
from kernelmosaic.solvers.program import Matrix, MulticlassProgram, Solution, assess, certify
from kernelmosaic.solvers.tuning import (
    CONSTANTS_IDLE,
    CONSTANTS_INNER,
    CROWDED_ROUNDS,
    DEFAULTS,
    ENTRIES_PER_STEP,
    INTERIOR_STEP_COST,
    LEAST_SMALL_STEPS,
    LEAST_STEP_LIMIT,
    MOST_CROWDED,
    PENALTY_GROWTH,
    SINGLE_GAP,
    STEPS_PER_SAMPLE,
    SolverOptions,
)
from kernelmosaic.solvers.working_set import WorkingSet

#: From a program without constants, a feasible β, its outputs if they are known, the gap, the most
#: sample steps, and what is added to every entry of the kernels, to the solution.
Maximise = Callable[[MulticlassProgram, Matrix, Matrix | None, float, int, float], Solution]


def solve_multiclass(
    K: ArrayOrTensor,
    program: MulticlassProgram,
    warm_start: Matrix | None = None,
    tol: float = 1e-3,
    max_iter: int | None = None,
    values: Matrix | None = None,
    options: SolverOptions = DEFAULTS,
    inside: bool = False,
) -> Solution:
    """Solve a multi-class dual to a relative duality gap of `tol`.

    The method is exact block ascent, one sample after the other, and interior points where a small
    problem is not solved by it. Arrays are read whole. Of kernels of other forms, in features or on
    a device, a round takes the samples with the largest violations and those with free
    coefficients, solves their problem by the same loops, and updates all outputs with one product.
    Towards the end only free samples still change, and one round holds them.

    Parameters
    ----------
    K : ClassGram, or ndarray of shape (n, n) or (classes, n, n)
        One symmetric positive semi-definite matrix for all classes, or one for each.
    program : MulticlassProgram
        The program of several classes.
    warm_start : ndarray of shape (n, classes), optional
        Any β, feasible or not.
    tol : float
        The relative duality gap at which to stop.
    max_iter : int, optional
        Most sample steps; if it is given, there are no interior points. By default `step_limit(n)`.
        A gap above `tol` means that they were too few.
    values : ndarray of shape (n, classes), optional
        K_c β_c of a feasible warm start, where they are known; β is then not multiplied with K,
        neither at the start nor at the end. The gap of the solution is that of the updated outputs,
        with their rounding.
    options : SolverOptions
        How rounds are taken, and when interior points take over.
    inside : bool
        Whether interior points come first, where the samples are few enough for them.

    References
    ----------
    The sample's problem is Algorithm 1 of the bilinear multi-class formulation (methods: Crammer
    and Singer 2001), with a floor where a class's diagonal vanishes.
    """
    n = program.n_samples
    is_small = max_iter is None and program.margins.size <= options.small
    gram = _readable(K, program, is_small)
    use_interior = is_small and isinstance(gram, ClassMatrices)
    # Outputs are never computed from blocks, so that blocks in single precision suffice for these
    # gaps.
    dtype = np.float32 if tol >= SINGLE_GAP else np.float64
    if use_interior:
        limit = LEAST_SMALL_STEPS + n**2 // ENTRIES_PER_STEP
    elif max_iter is None:
        limit = step_limit(n)
    else:
        limit = max_iter

    def maximise(
        without_constants: MulticlassProgram,
        start: Matrix,
        start_values: Matrix | None,
        gap: float,
        most_steps: int,
        shift: float,
    ) -> Solution:
        rounds = MultiOutput(
            gram, without_constants, start, start_values, options, dtype, shift, most_steps
        )
        return rounds.solve(gap, lambda: rounds.n_iter >= most_steps)

    def solve_by_steps() -> Solution:
        start = np.zeros(program.margins.shape)
        start_values = None
        if warm_start is not None:
            start = program.feasible(warm_start)
            start_values = values
        if program.constants:
            return _maximise_with_constants(gram, maximise, program, start, tol, limit)
        return maximise(program, start, start_values, tol, limit, 0.0)

    def solve_inside() -> Solution:
        solution = solve_interior(gram, program, tol)
        n_iter = solution.n_iter * max(n, INTERIOR_STEP_COST)
        return replace(solution, n_iter=n_iter, inside=True)

    if not use_interior:
        return solve_by_steps()
    methods = [solve_by_steps, solve_inside]
    if inside:
        methods.reverse()
    first = methods[0]()
    if first.gap <= tol:
        return first
    second = methods[1]()
    best = second if second.gap < first.gap else first
    return replace(best, n_iter=first.n_iter + second.n_iter)


def step_limit(n_samples: int) -> int:
    """Return the default of the most sample steps, in which samples are solved many times."""
    return max(LEAST_STEP_LIMIT, STEPS_PER_SAMPLE * n_samples)


def _readable(K: ArrayOrTensor, program: MulticlassProgram, is_small: bool) -> ClassGram:
    """Return the kernel as `ClassMatrices` where its matrices are arrays, else as it is.

    The matrices of a small problem are formed, and are in double precision.

    Raises
    ------
    TypeError
        If K is neither a kernel nor an array.
    ValueError
        If its shape does not match the program.
    """
    n = program.n_samples
    k = program.n_classes

    # 1. The matrices of a kernel, if it has them in this process or if they are few enough.
    exact_gram = None
    if isinstance(K, ClassGram):
        gram = K
        if gram.matrix is not None and gram.backend is NUMPY:
            K = gram.matrix
        elif is_small and n <= gram.block_samples:
            K = np.asarray(gram.backend.to_numpy(gram.block(np.arange(n))))
            exact_gram = gram
        else:
            return gram

    # 2. Their type, shape and precision.
    if not isinstance(K, np.ndarray):
        raise TypeError(f"K is of type {type(K).__name__}: give a Gram or an array.")
    if K.shape not in ((n, n), (k, n, n)):
        raise ValueError(
            f"K has shape {K.shape}; {n} samples of {k} classes need {(n, n)} or {(k, n, n)}."
        )
    dtype = np.float32 if K.dtype == np.float32 and not is_small else np.float64
    return ClassMatrices(np.ascontiguousarray(K, dtype=dtype), exact_gram)


class ClassMatrices(ClassGram):
    """Matrices of this process, for all classes or for each.

    Parameters
    ----------
    K : ndarray of shape (n, n) or (classes, n, n)
        The matrices.
    exact : ClassGram, optional
        The kernel whose entries these are, if its products are more exact.
    """

    def __init__(self, K: AnyArray, exact: ClassGram | None = None) -> None:
        self.matrix = K if K.ndim == 3 else K[np.newaxis]
        self.exact = exact
        self.n_classes, self.n_samples = self.matrix.shape[:2]
        self.block_samples = self.n_samples
        self.dtype = K.dtype

    def products(self, beta: Matrix, exact: bool = False) -> Matrix:
        if exact and self.exact is not None:
            return np.asarray(self.exact.products(beta, exact=True))
        products = class_products(self.matrix, beta.astype(self.dtype, copy=False))
        return products.astype(np.float64, copy=False)

    def block(self, rows: Indices) -> AnyArray:
        return np.asarray(self.matrix[:, rows[:, np.newaxis], rows])

    def diagonal(self) -> Matrix:
        return np.diagonal(self.matrix, axis1=1, axis2=2).T.astype(np.float64)


def _maximise_with_constants(
    gram: ClassGram,
    maximise: Maximise,
    program: MulticlassProgram,
    beta: Matrix,
    tol: float,
    limit: int,
) -> Solution:
    """Solve a program with constants by the method of multipliers.

    The constants b are given and ½ρ Σ_c (Σ_i β_ic)² is taken off the objective; then b moves by ρ
    Σ_i β_ic, and so on. Given constants are part of the margins, and the quadratic term adds ρ to
    every entry of the kernels: what `maximise` solves is a program without constants. Before a
    solution is certified, its coefficients are changed so that every class's sum to zero.
    """
    current = assess(gram, program, program.balanced(beta))
    best = current
    # The penalty ρ has the unit of the kernel. It is of the size of the kernel's diagonal; where C
    # is so small that coefficients hardly change the outputs, it is of the size of the margins over
    # what the coefficients of a class may sum to.
    mean_C = float(program.sample_C.sum()) / program.n_classes
    margin_curvature = 0.0
    if mean_C > 0:
        margin_curvature = float(np.abs(program.margins).max()) / mean_C
    rho = float(gram.diagonal().mean()) + margin_curvature
    b = current.intercept
    n_steps = 0
    n_idle = 0
    while best.gap > tol and n_steps < limit and n_idle < CONSTANTS_IDLE:
        # 1. Solve with given constants, to a fraction of the current gap.
        inner_gap = CONSTANTS_INNER * min(max(best.gap, tol), 1.0)
        inner = maximise(
            program.given(b), current.beta.copy(), current.values, inner_gap, limit - n_steps, rho
        )
        n_steps += inner.n_iter

        # 2. Move the constants, and certify.
        b = b + rho * inner.beta.sum(axis=0)
        current = assess(gram, program, program.balanced(inner.beta), n_steps, near=b)

        # 3. Unless the gap halves, increase the penalty.
        if current.gap > 0.5 * best.gap:
            rho *= PENALTY_GROWTH
        if current.gap < best.gap:
            n_idle = 0
            best = current
        else:
            n_idle += 1
    return replace(best, n_iter=n_steps)


class MultiOutput(WorkingSet[Solution]):
    """Rounds of the program with one output per class.

    β and the gradient T − K_c β_c are arrays of this process.

    Parameters
    ----------
    gram : ClassGram
        The kernel; matrices of this process are read whole, with all samples in every round.
    program : MulticlassProgram
        A program without constants.
    beta : ndarray of shape (n, classes)
        Feasible coefficients to start from, which are changed in place.
    values : ndarray of shape (n, classes) or None
        Their outputs, if they are known. The solution is then certified by the updated outputs; if
        they are not known, by outputs that are computed anew at full precision.
    options : SolverOptions
        How rounds are taken.
    dtype : dtype
        Precision of the blocks of the first rounds. After a certificate above the tolerance it is
        double.
    shift : float
        Added to every entry of the kernel.
    limit : int
        Most sample steps.

    Attributes
    ----------
    residual : ndarray of shape (classes, n)
        The gradient T − K_c β_c.
    """

    program: MulticlassProgram

    def __init__(
        self,
        gram: ClassGram,
        program: MulticlassProgram,
        beta: Matrix,
        values: Matrix | None,
        options: SolverOptions,
        dtype: DType,
        shift: float,
        limit: int,
    ) -> None:
        from kernelmosaic.solvers import _numba_multiclass

        rounds = options.class_rounds
        super().__init__(gram, program, rounds)
        self.loops = _numba_multiclass
        self.newton = DampedNewton()
        self.n_newton = options.class_newton
        self.dtype = dtype
        self.shift = shift
        self.limit = limit
        self.is_whole = isinstance(gram, ClassMatrices)
        if rounds.size is None:
            self.size = max(1, min(gram.block_samples, rounds.max_size))
        else:
            self.size = rounds.size
        self.target = np.ascontiguousarray(program.target.T)
        self.labels = program.labels.astype(np.int64)
        # The upper bounds of the coefficients of the samples' own labels, of shape (n,).
        self.own_upper = program.own_upper
        # Samples of the same violation are taken in random order: in the order of the data, the
        # first of them may all be of one class.
        self.order = np.random.RandomState(0).permutation(program.n_samples)
        #: The samples of the last block, and their kernels.
        self._last_block: tuple[Indices, AnyArray] | None = None
        self.beta = beta
        self.has_given_values = values is not None
        self._set_values(values)

    def _set_values(self, values: Matrix | None = None) -> None:
        """Compute the gradient from given outputs, or from those of β at full precision.

        The latter removes the rounding that has accumulated over many changes.
        """
        if values is None:
            values = self.beta
            if self.beta.any():
                values = np.asarray(self.gram.products(self.beta, exact=True))
        shifted = values + self.shift * self.beta.sum(axis=0)
        self.residual = np.ascontiguousarray(self.target - shifted.T)

    def evaluate(self) -> Solution:
        values = (self.target - self.residual).T
        return certify(self.program, self.beta, values, self.n_iter)

    def certified(self) -> Solution:
        if not self.has_given_values:
            self._set_values()
        return replace(self.evaluate(), beta=self.beta.copy())

    def continues(self, current: Solution, certified: Solution, tol: float) -> bool:
        # The next rounds are in double precision.
        self.dtype = np.float64
        return True

    def advance(self, current: Solution, tol: float, idle: bool) -> Solution | None:
        n_steps = self.round(idle)
        return self.evaluate() if n_steps else None

    def round(self, idle: bool = False) -> int:
        """Solve the problem of the samples of one round, all others fixed.

        β and the residual are changed. `idle` says that the last round has not made progress.
        Returns the number of steps, zero if no sample has a violation.
        """
        box = self.labels, self.program.sample_C, self.own_upper
        violation = self.loops.violations(self.beta, self.residual, box)
        goal = self.rounds.violation_fraction * float(violation.max())
        if self.is_whole:
            return self._move(slice(None), goal, self.n_newton)

        # 1. The round's samples. Newton steps are of use only where no violating sample is left
        #    out.
        is_free: Mask = np.any(free_coefficients(self.program, self.beta), axis=1)
        samples, is_complete = self._working_set(violation, is_free)
        if len(samples) == 0:
            return 0
        n_newton = self.n_newton if is_complete else 0
        n_steps = self._move(samples, goal, n_newton)

        # 2. Where more samples are free than a round holds, each round undoes part of the last one.
        #    Now and then all free samples are moved together, if they are few enough to factorise
        #    their matrix.
        is_crowded = self.size < is_free.sum() <= min(self.gram.block_samples, MOST_CROWDED)
        is_due = idle or self.n_rounds % CROWDED_ROUNDS == 0
        if n_steps and is_crowded and is_due:
            n_steps += self._move(np.flatnonzero(is_free), goal, self.n_newton)
        return n_steps

    def _move(self, samples: Any, goal: float, n_newton: int) -> int:
        """Maximise over some samples until none of their violations is above `goal`.

        `samples` are row numbers, or a slice of all rows. β and the residual are changed. At most
        `n_newton` Newton steps are taken, each after sample steps that did not suffice. Returns the
        number of sample steps.
        """
        K = self._block(samples)
        program = self.program.take(samples)
        beta = self.beta[samples]
        residual = np.ascontiguousarray(self.residual[:, samples])
        box = self.labels[samples], program.sample_C, program.own_upper
        n_steps = 0
        for attempt in range(n_newton + 1):
            if attempt > 0:
                increase = self.newton.step(K, program, beta, residual, self.shift)
                if increase <= 0.0:
                    break
            left = self.limit - self.n_iter - n_steps
            most = min(self.rounds.steps_per_sample * len(beta), left)
            taken = self.loops.maximise_in_rounds(
                K, float(self.shift), box, beta, residual, most, goal
            )
            n_steps += taken
            is_solved = taken < most
            if is_solved or taken == left:
                break
        # Slices of all samples are views: β and the residual were changed in place.
        if not self.is_whole:
            change = np.zeros_like(self.beta)
            change[samples] = beta - self.beta[samples]
            self.beta[samples] = beta
            self.residual -= (self.gram.products(change) + self.shift * change.sum(axis=0)).T
        self.n_iter += n_steps
        self.n_rounds += 1
        return n_steps

    def _block(self, samples: Any) -> AnyArray:
        """Return the samples' kernels, of shape (1 or classes, q, q).

        The last block is stored, since rounds often have the same samples.
        """
        if self.is_whole:
            return np.asarray(self.gram.matrix)
        last = self._last_block
        if last is not None and last[1].dtype == self.dtype and np.array_equal(last[0], samples):
            return last[1]
        # The memory of the last block is free before the next one is formed.
        self._last_block = last = None
        block = self.gram.block(samples)
        K = np.ascontiguousarray(self.gram.backend.to_numpy(block), dtype=self.dtype)
        K = K if K.ndim == 3 else K[np.newaxis]
        for K_c in K:
            # Steps that read denormal numbers are many times slower.
            K_c[np.abs(K_c) < np.finfo(self.dtype).tiny] = 0.0
        self._last_block = samples, K
        return K

    def _working_set(self, violation: Array, is_free: Mask) -> tuple[Indices, bool]:
        """Return the samples of a round, and whether no other sample has a large violation.

        The samples are those with the largest violations, then as far as they fit those with free
        coefficients, which must change whenever others do, then those with smaller violations.
        """
        q = self.size
        # At most half of a round is for samples that are free but violate little.
        n_violating = q - min(int(is_free.sum()), q // 2)
        ranked = self.order[np.argsort(-violation[self.order], kind="stable")]
        can_change = np.logical_or(is_free, violation > 0.0)
        ranked = ranked[can_change[ranked]]
        group = np.where(is_free[ranked], 0, 1)
        group[:n_violating] = -1
        by_group = np.argsort(group, kind="stable")
        samples = np.sort(ranked[by_group[:q]])
        violation_of_others = np.delete(violation, samples)
        is_complete = not np.any(
            violation_of_others > self.rounds.violation_fraction * violation.max()
        )
        return samples, is_complete
