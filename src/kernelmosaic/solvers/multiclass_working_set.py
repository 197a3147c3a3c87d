"""Rounds of the multi-class program: samples with much to gain are solved in small exact blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.gram import Gram
from kernelmosaic.solvers.multiclass_curvature import free_coefficients
from kernelmosaic.solvers.multiclass_newton import DampedNewton
from kernelmosaic.solvers.multiclass_program import Matrix, MulticlassProgram, MulticlassSolution, certify_multiclass
from kernelmosaic.solvers.multiclass_smo import Climb
from kernelmosaic.solvers.working_set import Evaluation, Options, WorkingSet

#: Beyond so many samples per round, forming their block costs more than the rounds it saves.
OPTIONS = Options(largest=3000, steps=5)
#: At most this share of a round's samples are there only because they may move, not because they have much to gain.
_FREE_SHARE = 0.5
#: Newton steps within a round come only if nobody waits for a turn, up to this many.
_NEWTON = 20
#: Where more coefficients are free than fit a round, rounds undo each other: after so many, Newton steps move all
#: free coefficients at once, ...
_ROUNDS = 10
#: ... while there are at most this many samples with free coefficients to factorise.
_LARGEST_FREE = 4000
#: Down to this gap blocks are in single precision: outputs never come from them.
_SINGLE = 1e-4


def solve_multiclass_working_set(
    gram: Gram,
    program: MulticlassProgram,
    warm_start: Matrix | None = None,
    tol: float = 1e-3,
    max_iter: int | None = None,
    values: Matrix | None = None,
    *,
    options: Options | None = None,
) -> MulticlassSolution:
    """Solve a multi-class dual for a kernel that is known by its products and by blocks of a few thousand samples.

    A round takes the samples with most to gain and those with free coefficients, solves their problem by the loops of
    the solver for arrays, and brings everybody's outputs up to date with one product. Towards the end the free samples
    are all that is left, and one block holds them.

    Parameters
    ----------
    gram : Gram
        One kernel for all classes, or one for each.
    program, warm_start, tol, max_iter, values
        As in `solve_multiclass`.
    options : Options, optional
        How rounds are taken.
    """
    start = program.start(warm_start)
    kind = np.float32 if tol >= _SINGLE else np.float64
    options = OPTIONS if options is None else options
    rounds = SeveralOutputs(gram, program, start, None if warm_start is None else values, options, kind)
    limit = step_limit(program.n_samples, max_iter)
    return rounds.solve(tol, lambda: rounds.n_iter >= limit)


def step_limit(n_samples: int, max_iter: int | None) -> int:
    """Return how many samples may be solved, one after the other and over and over, if nobody says."""
    return max(10_000_000, 10_000 * n_samples) if max_iter is None else max_iter


class SeveralOutputs(WorkingSet[Evaluation, MulticlassSolution]):
    """Rounds of the program with one output per class; β and the outputs K_c β_c are kept in this process.

    Parameters
    ----------
    gram : Gram
        The kernel.
    program : MulticlassProgram
        The rest of the problem.
    beta : ndarray of shape (n, classes)
        Feasible coefficients to start from.
    values : ndarray of shape (n, classes), optional
        Their outputs, if they are known; whoever gives them certifies the answer.
    options : Options
        How rounds are taken.
    dtype : dtype
        Precision of the blocks, to begin with.
    """

    program: MulticlassProgram

    def __init__(
        self,
        gram: Gram,
        program: MulticlassProgram,
        beta: Matrix,
        values: Matrix | None = None,
        options: Options = OPTIONS,
        dtype: Any = np.float64,
    ) -> None:
        from kernelmosaic.solvers import _numba_multiclass

        super().__init__(gram, program, options)
        self.loops = _numba_multiclass
        self.beta, self.trusted, self.dtype = beta, values is not None, dtype
        self.size = max(1, min(gram.block_samples, options.largest)) if options.size is None else options.size
        self.target = program.target
        self.labels, self.tops = program.labels.astype(np.int64), program.tops
        # Among samples with the same to gain, chance chooses: the first of them may all be of one class.
        self.order = np.random.RandomState(0).permutation(program.n_samples)
        self.newton = DampedNewton()
        self._held: tuple[NDArray[np.intp], NDArray[Any]] | None = None
        self.values = self._outputs() if values is None else values.copy()

    def _outputs(self) -> Matrix:
        out = self.gram.products(self.beta, exact=True) if self.beta.any() else np.zeros_like(self.beta)
        return np.asarray(out)

    def evaluate(self) -> Evaluation:
        at = certify_multiclass(self.program, self.beta, self.values, self.n_iter)
        return Evaluation(np.nan, at.objective, at.gap)

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

    def advance(self, at: Evaluation, tol: float, idle: bool) -> Evaluation | None:
        return self.evaluate() if self.round(idle) else None

    def round(self, idle: bool = False) -> int:
        """Solve the problem of those with most to gain, everybody else standing still; return the steps taken."""
        residual = np.ascontiguousarray((self.target - self.values).T)
        violation = self.loops.violations(self.beta, residual, self.labels, self.program.sample_C, self.tops)
        free: NDArray[np.bool_] = np.any(free_coefficients(self.program, self.beta), axis=1)
        which, everybody = self._working_set(violation, free)
        if len(which) == 0:
            return 0
        enough = self.options.inner * float(violation.max())
        steps = self._move(which, residual, enough, _NEWTON if everybody else 0)
        crowded = self.size < free.sum() <= min(self.gram.block_samples, _LARGEST_FREE)
        if steps and crowded and (idle or self.n_rounds % _ROUNDS == 0):
            residual = np.ascontiguousarray((self.target - self.values).T)
            steps += self._move(np.flatnonzero(free), residual, enough, _NEWTON)
        return steps

    def _move(self, which: NDArray[np.intp], residual: Matrix, enough: float, n_newton: int) -> int:
        """Climb with these samples, bring everybody's outputs up to date, and return the steps taken."""
        beta = self.beta[which]
        slopes = np.ascontiguousarray(residual[:, which])
        climb = Climb(self._block(which), self.program.part(which), beta, slopes)
        steps = self._climb(climb, enough, n_newton)
        change = np.zeros_like(self.beta)
        change[which] = beta - self.beta[which]
        self.beta[which] = beta
        self.values += self.gram.products(change)
        self.n_iter += steps
        self.n_rounds += 1
        return steps

    def _climb(self, climb: Climb, enough: float, n_newton: int) -> int:
        """Climb until no violation is above `enough`, with so many Newton steps at most; return the steps taken."""
        most = self.options.steps * len(climb.beta)
        last = taken = climb.run_smo(most, enough)
        for _ in range(n_newton):
            if last < most or climb.newton_step(self.newton) <= 0.0:
                break
            last = climb.run_smo(most, enough)
            taken += last
        return taken

    def _block(self, which: NDArray[np.intp]) -> NDArray[Any]:
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
