"""The multi-class program, in working sets: of all samples where the kernel is an array, of a few
where it is not.

A sample's problem, all other samples fixed, is solved exactly (Algorithm 1 of the bilinear
multi-class formulation; Crammer and Singer 2001), with a floor where a class's diagonal vanishes.
Where that creeps, Newton steps move all free coefficients at once, and small problems are left to
interior points. Constants are multipliers, found by the method of multipliers around these solvers.
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
from kernelmosaic.solvers.tuning import DEFAULTS, SolverOptions
from kernelmosaic.solvers.working_set import WorkingSet


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
    """Solve a multi-class dual to a relative duality gap of `tol` by exact block ascent, a sample
    at a time.

    Arrays are read whole. Of kernels of other forms, in features or on a device, a round takes the
    samples with most to gain and those with free coefficients, solves their problem by the same
    loops, and brings all outputs up to date with one product. Towards the end the free samples are
    all that is left, and one block holds them.

    Parameters
    ----------
    K : ClassGram, or ndarray of shape (n, n) or (classes, n, n)
        One symmetric positive semi-definite matrix for all classes, or one for each.
    program : MulticlassProgram
        The rest of the problem.
    warm_start : ndarray of shape (n, classes), optional
        Any β, feasible or not.
    tol : float
        The relative duality gap at which to stop.
    max_iter : int, optional
        Most samples to solve, where interior points do not take over; by default `step_limit(n)`. A
        gap above `tol` means that they were too few.
    values : ndarray of shape (n, classes), optional
        K_c β_c of a feasible warm start, where they are known; β is then not multiplied with K,
        neither at the start nor at the end, and the caller certifies the answer.
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
    small = max_iter is None and program.margins.size <= options.small
    gram = _readable(K, program, small)
    small = small and isinstance(gram, ClassMatrices)
    # Down to this gap blocks are in single precision: outputs never come from them.
    kind = np.float32 if tol >= 1e-4 else np.float64
    # Before interior points: what so many steps have not found is mostly not found by many times as
    # many. One more for so many entries of the kernel takes no longer than interior points do.
    limit = 500 + n**2 // 20 if small else step_limit(n) if max_iter is None else max_iter

    def maximise(
        some: MulticlassProgram, beta: Matrix, f: Matrix | None, gap: float, most: int, shift: float
    ) -> Solution:
        state = MultiOutput(gram, some, beta, f, options, kind, shift, most)
        return state.solve(gap, lambda: state.n_iter >= most)

    def in_steps() -> Solution:
        beta = (
            np.zeros(program.margins.shape) if warm_start is None else program.feasible(warm_start)
        )
        if program.constants:
            return _maximise_with_constants(gram, maximise, program, beta, tol, limit)
        return maximise(program, beta, None if warm_start is None else values, tol, limit, 0.0)

    def from_inside() -> Solution:
        found = solve_interior(gram, program, tol)
        # A step of interior points takes as long as solving a thousand samples.
        return replace(found, n_iter=found.n_iter * max(n, 1000), inside=True)

    if not small:
        return in_steps()
    first, second = (from_inside, in_steps) if inside else (in_steps, from_inside)
    found = first()
    if found.gap <= tol:
        return found
    other = second()
    return replace(other if other.gap < found.gap else found, n_iter=found.n_iter + other.n_iter)


def step_limit(n_samples: int) -> int:
    """Return how many samples may be solved, one after the other and over and over, by default."""
    return max(100_000, 3000 * n_samples)


def _readable(K: ArrayOrTensor, program: MulticlassProgram, small: bool) -> ClassGram:
    """Return a kernel in matrices of this process if it has any, or is small enough to have them
    formed."""
    n, k, exact = program.n_samples, program.n_classes, None
    if isinstance(K, ClassGram):
        if K.matrix is not None and K.backend is NUMPY:
            K = K.matrix
        elif small and n <= K.block_samples:
            K, exact = np.asarray(K.backend.to_numpy(K.block(np.arange(n)))), K
        else:
            return K
    if not isinstance(K, np.ndarray):
        raise TypeError(f"K is of type {type(K).__name__}: give a Gram or an array.")
    if K.shape not in ((n, n), (k, n, n)):
        raise ValueError(
            f"K has shape {K.shape}; {n} samples of {k} classes need {(n, n)} or {(k, n, n)}."
        )
    kind = np.float32 if K.dtype == np.float32 and not small else np.float64
    return ClassMatrices(np.ascontiguousarray(K, dtype=kind), exact)


class ClassMatrices(ClassGram):
    """Matrices of this process: one for all classes, of shape (n, n), or one per class, of shape
    (classes, n, n).

    `exact` is the kernel that they are the entries of, if its products are more exact.
    """

    def __init__(self, K: AnyArray, exact: ClassGram | None = None) -> None:
        self.matrix, self.exact = K if K.ndim == 3 else K[np.newaxis], exact
        self.n_classes, self.n_samples = self.matrix.shape[:2]
        self.block_samples, self.dtype = self.n_samples, K.dtype

    def products(self, beta: Matrix, exact: bool = False) -> Matrix:
        if exact and self.exact is not None:
            return np.asarray(self.exact.products(beta, exact=True))
        return class_products(self.matrix, beta.astype(self.dtype, copy=False)).astype(
            np.float64, copy=False
        )

    def block(self, rows: Indices) -> AnyArray:
        return np.asarray(self.matrix[:, rows[:, np.newaxis], rows])

    def diagonal(self) -> Matrix:
        return np.diagonal(self.matrix, axis1=1, axis2=2).T.astype(np.float64)


def _maximise_with_constants(
    gram: ClassGram,
    maximise: Callable[..., Solution],
    program: MulticlassProgram,
    beta: Matrix,
    tol: float,
    limit: int,
) -> Solution:
    """Solve with the constants given, ½ρ Σ_c (Σ_i β_ic)² taken off, and move them by ρ Σ_i β_ic,
    over and over.

    Given constants are part of the margins, and the quadratic term adds ρ to every entry of the
    kernels: what is left is the program without constants. The answers' sums are mended before they
    are certified.
    """
    best = at = assess(gram, program, program.balanced(beta))
    # Both the kernel and, where C is small, the margins can say what a sum of coefficients is
    # worth.
    mean_C = float(program.sample_C.sum()) / program.n_classes
    rho = float(gram.diagonal().mean()) + (
        float(np.abs(program.margins).max()) / mean_C if mean_C > 0 else 0.0
    )
    b, steps, idle = at.intercept, 0, 0
    while best.gap > tol and steps < limit and idle < 10:
        # With its constants given, the machine is solved to a share of the gap that is left.
        inner = 0.2 * min(max(best.gap, tol), 1.0)
        found = maximise(program.given(b), at.beta.copy(), at.values, inner, limit - steps, rho)
        steps += found.n_iter
        b = b + rho * found.beta.sum(axis=0)
        at = assess(gram, program, program.balanced(found.beta), steps, near=b)
        # Unless the gap halves, the sums of the classes are penalised by more.
        rho *= 3.0 if at.gap > 0.5 * best.gap else 1.0
        idle = 0 if at.gap < best.gap else idle + 1
        best = at if at.gap < best.gap else best
    return replace(best, n_iter=steps)


class MultiOutput(WorkingSet[Solution]):
    """Rounds of the program with one output per class; β and the slopes T − K_c β_c are kept in
    this process.

    Parameters
    ----------
    gram : ClassGram
        The kernel; matrices of this process are read whole, with all samples in every round.
    program : MulticlassProgram
        The rest of the problem.
    beta : ndarray of shape (n, classes)
        Feasible coefficients to start from.
    values : ndarray of shape (n, classes) or None
        Their outputs, if they are known; the caller certifies the answer.
    options : SolverOptions
        How rounds are taken.
    dtype : dtype
        Precision of the blocks, to begin with.
    shift : float
        Added to every entry of the kernel.
    limit : int
        Most samples to solve.
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
        self.loops, self.n_newton = _numba_multiclass, options.class_newton
        self.beta, self.trusted, self.dtype = beta, values is not None, dtype
        self.shift, self.limit = shift, limit
        self.whole = isinstance(gram, ClassMatrices)
        self.size = (
            max(1, min(gram.block_samples, rounds.max_size)) if rounds.size is None else rounds.size
        )
        self.target = np.ascontiguousarray(program.target.T)
        self.labels, self.own_upper = program.labels.astype(np.int64), program.own_upper
        # Among samples with the same to gain, chance chooses: the first of them may all be of one
        # class.
        self.order = np.random.RandomState(0).permutation(program.n_samples)
        self.newton = DampedNewton()
        self._held: tuple[Indices, AnyArray] | None = None
        self._set_values(values)

    def _set_values(self, values: Matrix | None = None) -> None:
        """Compute the slopes from outputs, or from β, as exactly as can be: rounding gathers over
        many changes."""
        if values is None:
            values = (
                np.asarray(self.gram.products(self.beta, exact=True))
                if self.beta.any()
                else self.beta
            )
        self.residual = np.ascontiguousarray(
            self.target - (values + self.shift * self.beta.sum(axis=0)).T
        )

    def evaluate(self) -> Solution:
        return certify(self.program, self.beta, (self.target - self.residual).T, self.n_iter)

    def certified(self) -> Solution:
        if not self.trusted:
            self._set_values()
        return replace(self.evaluate(), beta=self.beta.copy())

    def continues(self, at: Solution, found: Solution, tol: float) -> bool:
        self.dtype = np.float64
        return True

    def advance(self, at: Solution, tol: float, idle: bool) -> Solution | None:
        return self.evaluate() if self.round(idle) else None

    def round(self, idle: bool = False) -> int:
        """Solve the problem of those with most to gain, all other samples fixed; return the steps
        taken."""
        box = self.labels, self.program.sample_C, self.own_upper
        violation = self.loops.violations(self.beta, self.residual, box)
        enough = self.rounds.violation_fraction * float(violation.max())
        if self.whole:
            return self._move(slice(None), enough, self.n_newton)
        free: Mask = np.any(free_coefficients(self.program, self.beta), axis=1)
        which, complete = self._working_set(violation, free)
        if len(which) == 0:
            return 0
        # Newton steps within a round come only if no sample is left over.
        steps = self._move(which, enough, self.n_newton if complete else 0)
        # Where more coefficients are free than fit a round, rounds undo each other: after ten,
        # Newton steps move all free coefficients at once, while there are few enough such samples
        # to factorise.
        crowded = self.size < free.sum() <= min(self.gram.block_samples, 4000)
        if steps and crowded and (idle or self.n_rounds % 10 == 0):
            steps += self._move(np.flatnonzero(free), enough, self.n_newton)
        return steps

    def _move(self, which: Any, enough: float, n_newton: int) -> int:
        """Maximise over these samples until no violation is above `enough`, with so many Newton
        steps at most.

        All slopes are brought up to date. Returns the steps taken.
        """
        K, program = self._block(which), self.program.take(which)
        beta, slopes = self.beta[which], np.ascontiguousarray(self.residual[:, which])
        box = self.labels[which], program.sample_C, program.own_upper
        taken = 0
        for newton in range(n_newton + 1):
            if newton and self.newton.step(K, program, beta, slopes, self.shift) <= 0.0:
                break
            left = self.limit - self.n_iter - taken
            most = min(self.rounds.steps_per_sample * len(beta), left)
            steps = self.loops.maximise_in_rounds(
                K, float(self.shift), box, beta, slopes, most, enough
            )
            taken += steps
            if steps < most or steps == left:
                break
        if not self.whole:  # else both were changed in place
            change = np.zeros_like(self.beta)
            change[which] = beta - self.beta[which]
            self.beta[which] = beta
            self.residual -= (self.gram.products(change) + self.shift * change.sum(axis=0)).T
        self.n_iter += taken
        self.n_rounds += 1
        return taken

    def _block(self, which: Any) -> AnyArray:
        """Return the samples' kernels, of shape (1 or classes, q, q); those of the last round are
        kept."""
        if self.whole:
            return np.asarray(self.gram.matrix)
        if (
            self._held is None
            or self._held[1].dtype != self.dtype
            or not np.array_equal(self._held[0], which)
        ):
            self._held = None  # two of them at once would be one too many
            block = self.gram.block(which)
            K = np.ascontiguousarray(self.gram.backend.to_numpy(block), dtype=self.dtype)
            K = K if K.ndim == 3 else K[np.newaxis]
            for one in K:
                # Steps that read denormal numbers are many times slower.
                one[np.abs(one) < np.finfo(self.dtype).tiny] = 0.0
            self._held = which, K
        return self._held[1]

    def _working_set(self, violation: Array, free: Mask) -> tuple[Indices, bool]:
        """Return the samples of a round, and whether these are all that have something to gain.

        They are those with most to gain, then as far as they fit those with free coefficients,
        which answer to whatever the others do, then those with less to gain.
        """
        q = self.size
        # At most half of a round is chosen because it may move, not because it has much to gain.
        room = q - min(int(free.sum()), q // 2)
        ranked = self.order[np.argsort(-violation[self.order], kind="stable")]
        movable = np.logical_or(free, violation > 0.0)
        ranked = ranked[movable[ranked]]
        late = np.where(free[ranked], 0, 1)
        late[:room] = -1
        chosen = np.sort(ranked[np.argsort(late, kind="stable")[:q]])
        left = np.delete(violation, chosen)
        return chosen, not np.any(left > self.rounds.violation_fraction * violation.max())
