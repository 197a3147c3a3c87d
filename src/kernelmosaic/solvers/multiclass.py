"""The multi-class program: sample by sample where the kernel is an array, in working sets where it is not.

A sample's problem, all other samples fixed, is solved exactly (Algorithm 1 of the bilinear multi-class
formulation; Crammer and Singer 2001), with a floor where a class's diagonal vanishes. Where that creeps, Newton steps
move all free coefficients at once, and small problems are left to interior points. Constants are multipliers, found by
the method of multipliers around these solvers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, ArrayOrTensor, DType
from kernelmosaic.backend import NUMPY
from kernelmosaic.gram.gram import ClassGram
from kernelmosaic.solvers.multiclass_interior import solve_interior
from kernelmosaic.solvers.multiclass_newton import DampedNewton, free_coefficients
from kernelmosaic.solvers.multiclass_program import Matrix, MulticlassProgram, MulticlassSolution, certify_multiclass
from kernelmosaic.solvers.working_set import RoundOptions, RoundState, WorkingSet

#: A round visits the samples whose violation is above this share of the largest: the others are left out for now.
_VISITED = 0.5
#: Most visits to the same set before all samples are looked at again.
_REPEATS = 5
#: Steps before the gap is looked at, which costs as much as many steps of a small problem.
_STEPS_PER_RUN = 300
#: A Newton step comes after so many runs, which cost about as much: most problems never see one.
_PATIENCE = 10
#: Beyond so many samples per round, forming their block costs more than the rounds it saves.
OPTIONS = RoundOptions(largest=3000, steps=5)
#: At most this share of a round's samples are there only because they may move, not because they have much to gain.
_FREE_SHARE = 0.5
#: Newton steps within a round come only if no sample is left over, up to this many.
_NEWTON = 20
#: Where more coefficients are free than fit a round, rounds undo each other: after so many, Newton steps move all
#: free coefficients at once, ...
_ROUNDS = 10
#: ... while there are at most this many samples with free coefficients to factorise.
_LARGEST_FREE = 4000
#: Down to this gap blocks are in single precision: outputs never come from them.
_SINGLE = 1e-4
#: Most steps, in all and per sample; see `smo.most_steps`.
_MOST_STEPS, _MOST_STEPS_PER_SAMPLE = 100_000, 3000
#: With at most this many coefficients, interior points take over ...
_SMALL = 1500
#: ... after so many steps, and one more for so many entries of the kernel, which take no longer than they do: what has
#: not been found by then mostly is not found by many times as many.
_FIRST_STEPS, _ENTRIES_PER_STEP = 500, 20
#: A step of interior points takes as long as solving so many samples.
_STEPS_PER_INTERIOR = 1000
#: The machine with its constants given is solved to this share of the gap that is left.
_SHARE = 0.2
#: Unless the gap falls to this share of what it was, the sums of the classes are penalised by so much more, ...
_FALLS, _STIFFER = 0.5, 3.0
#: ... until it has not fallen at all so many times in a row.
_IDLE = 10


def class_products(K: AnyArray, beta: Matrix) -> Matrix:
    """Return K_c β_c, of shape (n, classes), for K shared by the classes, (n, n), or one a class, (classes, n, n)."""
    if K.ndim == 2:
        return np.asarray(K @ beta.astype(K.dtype, copy=False), dtype=np.float64)
    columns = (k_c @ b.astype(K.dtype) for k_c, b in zip(K, beta.T, strict=True))
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])


def solve_multiclass(
    K: ArrayOrTensor,
    program: MulticlassProgram,
    warm_start: Matrix | None = None,
    tol: float = 1e-3,
    max_iter: int | None = None,
    values: Matrix | None = None,
) -> MulticlassSolution:
    """Solve a multi-class dual to a relative duality gap of `tol` by exact block ascent, a sample at a time.

    Arrays are solved as they are. Kernels of other forms, in features or on a device, are solved a few thousand samples
    at a time; see `MultiOutput`.

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
        Most samples to solve, where interior points do not take over; by default `step_limit(n)`. A gap above `tol`
        means that they were too few.
    values : ndarray of shape (n, classes), optional
        K_c β_c of a feasible warm start, where they are known; β is then not multiplied with K, neither at the start
        nor at the end, and the caller certifies the answer.

    Returns
    -------
    MulticlassSolution

    References
    ----------
    The sample's problem is Algorithm 1 of the bilinear multi-class formulation (methods: Crammer and Singer 2001), with
    a floor where a class's diagonal vanishes.
    """
    n, k = program.n_samples, program.n_classes
    small = max_iter is None and program.margins.size <= _SMALL
    exact = None
    if isinstance(K, ClassGram):
        exact = K
        if K.matrix is not None and K.backend is NUMPY:
            K, exact = K.matrix, None
        elif small and n <= K.block_samples:
            K = np.asarray(K.backend.to_numpy(K.block(np.arange(n))))
        else:
            return solve_multiclass_working_set(K, program, warm_start, tol, max_iter, values)
    if not isinstance(K, np.ndarray):
        raise TypeError(f"K is of type {type(K).__name__}: give a Gram or an array.")
    if K.shape not in ((n, n), (k, n, n)):
        raise ValueError(f"K has shape {K.shape}; {n} samples of {k} classes ask for {(n, n)} or {(k, n, n)}.")
    kind = np.float32 if K.dtype == np.float32 and not small else np.float64
    A = np.ascontiguousarray(K, dtype=kind)

    def maximise(
        some: MulticlassProgram, beta: Matrix, f: Matrix | None, gap: float, most: int, shift: float
    ) -> ArrayOrTensor:
        return _WholeMatrix(A, some, beta, f, shift).solve(gap, most)

    def products(beta: Matrix) -> Matrix:
        return class_products(A, beta) if exact is None else np.asarray(exact.products(beta, exact=True))

    kernel = _Kernel(maximise, products, float(np.diagonal(A, axis1=-2, axis2=-1).mean(dtype=np.float64)))
    limit = _FIRST_STEPS + n**2 // _ENTRIES_PER_STEP if small else step_limit(n) if max_iter is None else max_iter
    found = _solve(kernel, program, warm_start, tol, limit, values)
    if found.gap <= tol or not small:
        return found
    inside = solve_interior(A, products, program, tol)
    best = inside if inside.gap < found.gap else found
    return replace(best, n_iter=found.n_iter + inside.n_iter * max(n, _STEPS_PER_INTERIOR))


def step_limit(n_samples: int) -> int:
    """Return how many samples may be solved, one after the other and over and over, by default."""
    return max(_MOST_STEPS, _MOST_STEPS_PER_SAMPLE * n_samples)


# What all kernels share ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kernel:
    """What is asked of a kernel, whatever its form.

    Attributes
    ----------
    maximise : callable
        From a program without constants, feasible β, their outputs if known, the gap to stop at, the most steps and a
        number added to all entries of the kernel to the solution.
    products : callable
        From β to K_c β_c, as exactly as can be.
    mean_diagonal : float
        The mean of the diagonals.
    """

    maximise: Callable[[MulticlassProgram, Matrix, Matrix | None, float, int, float], MulticlassSolution]
    products: Callable[[Matrix], Matrix]
    mean_diagonal: float


def _solve(
    kernel: _Kernel,
    program: MulticlassProgram,
    warm_start: Matrix | None,
    tol: float,
    limit: int,
    values: Matrix | None,
) -> MulticlassSolution:
    """Solve, with constants or without."""
    beta = program.start(warm_start)
    if program.constants:
        return _maximise_with_constants(kernel, program, beta, tol, limit)
    return kernel.maximise(program, beta, None if warm_start is None else values, tol, limit, 0.0)


def _maximise_with_constants(
    kernel: _Kernel, program: MulticlassProgram, beta: Matrix, tol: float, limit: int
) -> MulticlassSolution:
    """Solve with the constants given, ½ρ Σ_c (Σ_i β_ic)² taken off, and move them by ρ Σ_i β_ic, over and over.

    Given constants are part of the margins, and the quadratic term adds ρ to every entry of the kernels: what is left
    is the program without constants. The answers' sums are mended before they are certified.
    """

    def certified(beta: Matrix, b: NDArray[np.float64], n_iter: int) -> MulticlassSolution:
        values = kernel.products(beta)
        return certify_multiclass(program, beta, values, n_iter, program.best_constants(values, b))

    best = at = certified(program.balanced(beta), np.zeros(program.n_classes), 0)
    # Both the kernel and, where prices are small, the margins can say what a sum of coefficients is worth.
    reach = float(program.sample_C.sum()) / program.n_classes
    rho = kernel.mean_diagonal + (float(np.abs(program.margins).max()) / reach if reach > 0 else 0.0)
    b, steps, idle = at.intercept, 0, 0
    while best.gap > tol and steps < limit and idle < _IDLE:
        inner = _SHARE * min(max(best.gap, tol), 1.0)
        found = kernel.maximise(program.given(b), at.beta.copy(), at.values, inner, limit - steps, rho)
        steps += found.n_iter
        b = b + rho * found.beta.sum(axis=0)
        at = certified(program.balanced(found.beta), b, steps)
        rho *= _STIFFER if at.gap > _FALLS * best.gap else 1.0
        idle = 0 if at.gap < best.gap else idle + 1
        best = at if at.gap < best.gap else best
    return replace(best, n_iter=steps)


# Kernels in arrays ---------------------------------------------------------------------------------------------------


class BlockAscent:
    """Coefficients and slopes of some samples, both changed in place.

    Parameters
    ----------
    K : ndarray of shape (n, n), (1, n, n) or (classes, n, n)
        Their kernels, in C order.
    program : MulticlassProgram
        The rest of their problem; its target is not read.
    beta : ndarray of shape (n, classes)
        Feasible coefficients.
    residual : ndarray of shape (classes, n)
        The slopes T − K_c β_c, whatever else has gone into T.
    shift : float, default=0.0
        Added to every entry of the kernels.
    """

    def __init__(
        self, K: AnyArray, program: MulticlassProgram, beta: Matrix, residual: Matrix, shift: float = 0.0
    ) -> None:
        from kernelmosaic.solvers import _numba_multiclass

        self.loops = _numba_multiclass
        self.K = K if K.ndim == 3 else K[np.newaxis]
        self.program, self.beta, self.residual, self.shift = program, beta, residual, float(shift)
        self.bounds = program.labels.astype(np.int64), program.sample_C, program.own_upper

    def run_smo(self, least: int, enough: float = 0.0) -> int:
        """Take at least so many steps, if no violation is above `enough` sooner, and return how many."""
        rounds = self.loops.maximise_in_rounds
        state = self.K, self.shift, *self.bounds, self.beta, self.residual
        return int(rounds(*state, _VISITED, _REPEATS, least, enough))

    def newton_step(self, newton: DampedNewton) -> float:
        """Take a Newton step on the free coefficients, and return what it gains."""
        return newton.step(self.K, self.program, self.beta, self.residual, self.shift)


class _WholeMatrix:
    """The state of one solve: the ascent of all samples, and how it is certified."""

    def __init__(
        self, K: AnyArray, program: MulticlassProgram, beta: Matrix, values: Matrix | None, shift: float
    ) -> None:
        self.K, self.shift = K, shift
        self.program = program
        self.target = np.ascontiguousarray(program.target.T)
        self.trusted = values is not None
        values = class_products(K, beta) if values is None else values
        residual = np.ascontiguousarray(self.target - (values + shift * beta.sum(axis=0)).T)
        self.samples = BlockAscent(K, program, beta, residual, shift)
        self.newton = DampedNewton()
        self.n_iter = self.n_runs = 0

    def refresh(self) -> None:
        """Recompute the residual from β: rounding gathers over many steps."""
        beta = self.samples.beta
        values = class_products(self.K, beta) + self.shift * beta.sum(axis=0)
        self.samples.residual[...] = self.target - values.T

    def solution(self) -> MulticlassSolution:
        return certify_multiclass(self.program, self.samples.beta, (self.target - self.samples.residual).T, self.n_iter)

    def solve(self, tol: float, limit: int) -> MulticlassSolution:
        """Ascend until the certified gap is at most `tol`, the steps are used up, or no sample has anything to gain."""
        while True:
            solution = self.solution()
            stuck = False
            if solution.gap > tol and self.n_iter < limit:
                stuck = self.run_smo(min(max(self.program.n_samples, _STEPS_PER_RUN), limit - self.n_iter)) == 0
            if solution.gap <= tol or self.n_iter >= limit or stuck:
                if not self.trusted:
                    self.refresh()
                solution = self.solution()
                if solution.gap <= tol or self.n_iter >= limit or stuck:
                    return solution

    def run_smo(self, least: int) -> int:
        """Take at least so many steps, unless there are none to take, and return how many."""
        steps = self.samples.run_smo(least)
        self.n_iter += steps
        self.n_runs += 1
        if steps and self.n_runs % _PATIENCE == 0:
            self.samples.newton_step(self.newton)
        return steps


# Working sets --------------------------------------------------------------------------------------------------------


def solve_multiclass_working_set(
    gram: ClassGram,
    program: MulticlassProgram,
    warm_start: Matrix | None = None,
    tol: float = 1e-3,
    max_iter: int | None = None,
    values: Matrix | None = None,
    *,
    options: RoundOptions | None = None,
) -> MulticlassSolution:
    """Solve a multi-class dual for a kernel that is known by its products and by blocks of a few thousand samples.

    A round takes the samples with most to gain and those with free coefficients, solves their problem by the loops of
    the solver for arrays, and brings all outputs up to date with one product. Towards the end the free samples
    are all that is left, and one block holds them.

    Parameters
    ----------
    gram : ClassGram
        One kernel for all classes, or one for each.
    program, warm_start, tol, max_iter, values
        As in `solve_multiclass`.
    options : RoundOptions, optional
        How rounds are taken.
    """
    kind = np.float32 if tol >= _SINGLE else np.float64
    options = OPTIONS if options is None else options

    def maximise(
        some: MulticlassProgram, beta: Matrix, f: Matrix | None, gap: float, most: int, shift: float
    ) -> ArrayOrTensor:
        rounds = MultiOutput(gram, some, beta, f, options, kind, shift)
        return rounds.solve(gap, lambda: rounds.n_iter >= most)

    def products(beta: Matrix) -> Matrix:
        return np.asarray(gram.products(beta, exact=True))

    kernel = _Kernel(maximise, products, float(gram.diagonal().mean()))
    limit = step_limit(program.n_samples) if max_iter is None else max_iter
    return _solve(kernel, program, warm_start, tol, limit, values)


class MultiOutput(WorkingSet[RoundState, MulticlassSolution]):
    """Rounds of the program with one output per class; β and the outputs K_c β_c are kept in this process.

    Parameters
    ----------
    gram : ClassGram
        The kernel.
    program : MulticlassProgram
        The rest of the problem.
    beta : ndarray of shape (n, classes)
        Feasible coefficients to start from.
    values : ndarray of shape (n, classes), optional
        Their outputs, if they are known; the caller certifies the answer.
    options : RoundOptions
        How rounds are taken.
    dtype : dtype
        Precision of the blocks, to begin with.
    shift : float
        Added to every entry of the kernel.
    """

    program: MulticlassProgram

    def __init__(
        self,
        gram: ClassGram,
        program: MulticlassProgram,
        beta: Matrix,
        values: Matrix | None = None,
        options: RoundOptions = OPTIONS,
        dtype: DType = np.float64,
        shift: float = 0.0,
    ) -> None:
        from kernelmosaic.solvers import _numba_multiclass

        super().__init__(gram, program, options)
        self.loops = _numba_multiclass
        self.beta, self.trusted, self.dtype, self.shift = beta, values is not None, dtype, shift
        self.size = max(1, min(gram.block_samples, options.largest)) if options.size is None else options.size
        self.target = program.target
        self.labels, self.own_upper = program.labels.astype(np.int64), program.own_upper
        # Among samples with the same to gain, chance chooses: the first of them may all be of one class.
        self.order = np.random.RandomState(0).permutation(program.n_samples)
        self.newton = DampedNewton()
        self._held: tuple[NDArray[np.intp], AnyArray] | None = None
        self.values = self._outputs() if values is None else values + shift * beta.sum(axis=0)

    def _outputs(self) -> Matrix:
        out = self.gram.products(self.beta, exact=True) if self.beta.any() else np.zeros_like(self.beta)
        return np.asarray(out + self.shift * self.beta.sum(axis=0))

    def evaluate(self) -> RoundState:
        at = certify_multiclass(self.program, self.beta, self.values, self.n_iter)
        return RoundState(np.nan, at.objective, at.gap)

    def certified(self) -> MulticlassSolution:
        if not self.trusted:
            # Rounding gathers over many changes.
            self.values = self._outputs()
        return replace(certify_multiclass(self.program, self.beta, self.values, self.n_iter), beta=self.beta.copy())

    def gap_of(self, solution: MulticlassSolution) -> float:
        return solution.gap

    def increase_precision(self) -> bool:
        self.dtype = np.float64
        return True

    def advance(self, at: RoundState, tol: float, idle: bool) -> RoundState | None:
        return self.evaluate() if self.round(idle) else None

    def round(self, idle: bool = False) -> int:
        """Solve the problem of those with most to gain, all other samples fixed; return the steps taken."""
        residual = np.ascontiguousarray((self.target - self.values).T)
        violation = self.loops.violations(self.beta, residual, self.labels, self.program.sample_C, self.own_upper)
        free: NDArray[np.bool_] = np.any(free_coefficients(self.program, self.beta), axis=1)
        which, complete = self._working_set(violation, free)
        if len(which) == 0:
            return 0
        enough = self.options.inner * float(violation.max())
        steps = self._move(which, residual, enough, _NEWTON if complete else 0)
        crowded = self.size < free.sum() <= min(self.gram.block_samples, _LARGEST_FREE)
        if steps and crowded and (idle or self.n_rounds % _ROUNDS == 0):
            residual = np.ascontiguousarray((self.target - self.values).T)
            steps += self._move(np.flatnonzero(free), residual, enough, _NEWTON)
        return steps

    def _move(self, which: NDArray[np.intp], residual: Matrix, enough: float, n_newton: int) -> int:
        """Maximise over these samples, bring all outputs up to date, and return the steps taken."""
        beta = self.beta[which]
        slopes = np.ascontiguousarray(residual[:, which])
        samples = BlockAscent(self._block(which), self.program.part(which), beta, slopes, self.shift)
        steps = self._maximise(samples, enough, n_newton)
        change = np.zeros_like(self.beta)
        change[which] = beta - self.beta[which]
        self.beta[which] = beta
        self.values += self.gram.products(change) + self.shift * change.sum(axis=0)
        self.n_iter += steps
        self.n_rounds += 1
        return steps

    def _maximise(self, samples: BlockAscent, enough: float, n_newton: int) -> int:
        """Take steps until no violation is above `enough`, with so many Newton steps at most; return how many."""
        most = self.options.steps * len(samples.beta)
        last = taken = samples.run_smo(most, enough)
        for _ in range(n_newton):
            if last < most or samples.newton_step(self.newton) <= 0.0:
                break
            last = samples.run_smo(most, enough)
            taken += last
        return taken

    def _block(self, which: NDArray[np.intp]) -> AnyArray:
        """Return the samples' kernels, of shape (1 or classes, q, q); those of the last round are at hand."""
        if self._held is None or self._held[1].dtype != self.dtype or not np.array_equal(self._held[0], which):
            self._held = None  # two of them at once would be one too many
            block = self.gram.block(which)
            K = np.ascontiguousarray(self.gram.backend.to_numpy(block), dtype=self.dtype)
            K = K if K.ndim == 3 else K[np.newaxis]
            for one in K:
                # Steps that read denormal numbers are many times slower.
                one[np.abs(one) < np.finfo(self.dtype).tiny] = 0.0
            self._held = which, K
        return self._held[1]

    def _working_set(self, violation: NDArray[np.float64], free: NDArray[np.bool_]) -> tuple[NDArray[np.intp], bool]:
        """Return the samples of a round, and whether these are all that have something to gain.

        They are those with most to gain, then as far as they fit those with free coefficients, which answer to whatever
        the others do, then those with less to gain.
        """
        q = self.size
        room = q - min(int(free.sum()), int(_FREE_SHARE * q))
        ranked = self.order[np.argsort(-violation[self.order], kind="stable")]
        movable = np.logical_or(free, violation > 0.0)
        ranked = ranked[movable[ranked]]
        late = np.where(free[ranked], 0, 1)
        late[:room] = -1
        chosen = np.sort(ranked[np.argsort(late, kind="stable")[:q]])
        left = np.delete(violation, chosen)
        return chosen, not np.any(left > self.options.inner * violation.max())
