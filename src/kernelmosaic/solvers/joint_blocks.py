"""The joint program for kernels that are no array: samples with much to gain are solved in small exact blocks."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.class_grams import ClassGram
from kernelmosaic.gram.device import DeviceGram
from kernelmosaic.gram.factored import FactoredGram
from kernelmosaic.solvers.joint_climb import Climb
from kernelmosaic.solvers.joint_curvature import free_coefficients
from kernelmosaic.solvers.joint_newton import DampedNewton
from kernelmosaic.solvers.joint_program import JointProgram, JointSolution, Matrix, certify_joint
from kernelmosaic.solvers.multiclass import solve_joint, step_limit

#: Most samples a round: beyond, forming their block costs more than the rounds it saves.
_LARGEST_BLOCK = 3000
#: At most this share of a round's samples are there only because they may move, not because they have much to gain.
_FREE_SHARE = 0.5
#: A round ends when no violation is above this share of the largest it began with, ...
_INNER = 0.1
#: ... or after so many steps a sample.
_STEPS = 5
#: Unless nobody waits for a turn: then Newton steps come in between, up to this many.
_NEWTON = 20
#: Where more coefficients are free than fit a round, rounds undo each other: after so many, Newton steps move all
#: free coefficients at once, ...
_ROUNDS = 10
#: ... while there are at most this many samples with free coefficients to factorise.
_LARGEST_FREE = 4000
#: Rounds in a row that neither raise the value by more than this share of it nor lower the gap to that share before
#: rounding is blamed: near the optimum the value has converged to rounding while the gap has half as many digits.
_IDLE = 5
_ROUNDING = 1e-14
_LOWER = 0.9
#: Down to this gap blocks are in single precision: outputs never come from them.
_SINGLE = 1e-4


@solve_joint.register(FactoredGram)
@solve_joint.register(ClassGram)
@solve_joint.register(DeviceGram)
def solve_joint_blocks(
    gram: JointGram,
    program: JointProgram,
    warm_start: Matrix | None = None,
    tol: float = 1e-3,
    max_iter: int | None = None,
    values: Matrix | None = None,
    *,
    block: int | None = None,
) -> JointSolution:
    """Solve a multi-class dual for a kernel that is known by its products and by blocks of a few thousand samples.

    A round takes the samples with most to gain and those with free coefficients, solves their problem by the loops of
    the solver for arrays, and brings everybody's outputs up to date with one product. Towards the end the free samples
    are all that is left, and one block holds them.

    Parameters
    ----------
    gram : FactoredGram, DeviceGram or ClassGram
        One kernel for all classes, or one for each.
    program, warm_start, tol, max_iter, values
        As in `solve_joint`.
    block : int, optional
        Most samples a round; by default what the kernel allows, and no more than is good.
    """
    start = program.start(warm_start)
    rounds = BlockRounds(gram, program, start, None if warm_start is None else values, block)
    return rounds.reach(tol, step_limit(program.n_samples, max_iter))


class JointGram(Protocol):
    """What is asked of a kernel, or of one a class: products with a change of few rows, and small blocks."""

    block_samples: int

    def products(self, beta: Matrix, exact: bool = False) -> Matrix:
        """Return K_c β_c for β of shape (n, classes); for a certificate, as exactly as can be."""

    def block(self, which: NDArray[np.intp]) -> Any:
        """Return what becomes an array, (q, q) or (classes, q, q), that is nobody else's: these samples' kernels."""


class BlockRounds:
    """The state of one solve: β and the outputs K_c β_c.

    Parameters
    ----------
    gram : JointGram
        The kernel.
    program : JointProgram
        The rest of the problem.
    beta : ndarray of shape (n, classes)
        Feasible coefficients to start from.
    values : ndarray of shape (n, classes), optional
        Their outputs, if they are known; whoever gives them certifies the answer.
    block : int, optional
        Most samples a round.
    """

    def __init__(
        self,
        gram: JointGram,
        program: JointProgram,
        beta: Matrix,
        values: Matrix | None = None,
        block: int | None = None,
    ) -> None:
        from kernelmosaic.solvers import _numba_multiclass

        self.loops = _numba_multiclass
        self.gram, self.program = gram, program
        self.beta, self.trusted = beta, values is not None
        self.block = max(1, min(gram.block_samples, _LARGEST_BLOCK)) if block is None else block
        self.target = program.target
        self.labels, self.tops = program.labels.astype(np.int64), program.tops
        # Among samples with the same to gain, chance chooses: the first of them may all be of one class.
        self.order = np.random.RandomState(0).permutation(program.n_samples)
        self.newton = DampedNewton()
        self.n_iter = self.n_rounds = 0
        self._held: tuple[NDArray[np.intp], NDArray[Any]] | None = None
        self.values = self._outputs() if values is None else values.copy()

    def _outputs(self) -> Matrix:
        return self.gram.products(self.beta, exact=True) if self.beta.any() else np.zeros_like(self.beta)

    def reach(self, tol: float, limit: int) -> JointSolution:
        """Go on until the certified gap is at most `tol`, the steps are used up, or rounding hides what is left."""
        kind: Any = np.float32 if tol >= _SINGLE else np.float64
        fresh, idle, best, least = True, 0, -np.inf, np.inf
        while True:
            solution = certify_joint(self.program, self.beta, self.values, self.n_iter)
            pays = solution.objective > best + _ROUNDING * abs(best) or solution.gap < _LOWER * least
            idle = 0 if pays else idle + 1
            best, least = max(best, solution.objective), min(least, solution.gap)
            done = solution.gap <= tol or self.n_iter >= limit
            if not done and idle < _IDLE and self.round(kind, idle > 0):
                fresh = self.trusted
            elif not fresh:
                # Rounding gathers over many changes.
                self.values, fresh = self._outputs(), True
            elif not done and kind == np.float32:
                kind, idle = np.float64, 0
            else:
                return solution

    def round(self, kind: Any, idle: bool = False) -> int:
        """Solve the problem of those with most to gain, everybody else standing still; return the steps taken."""
        residual = np.ascontiguousarray((self.target - self.values).T)
        violation = self.loops.violations(self.beta, residual, self.labels, self.program.prices, self.tops)
        free: NDArray[np.bool_] = np.any(free_coefficients(self.program, self.beta), axis=1)
        which, everybody = self._working_set(violation, free)
        if len(which) == 0:
            return 0
        enough = _INNER * float(violation.max())
        steps = self._move(which, residual, kind, enough, _NEWTON if everybody else 0)
        crowded = self.block < free.sum() <= min(self.gram.block_samples, _LARGEST_FREE)
        if steps and crowded and (idle or self.n_rounds % _ROUNDS == 0):
            residual = np.ascontiguousarray((self.target - self.values).T)
            steps += self._move(np.flatnonzero(free), residual, kind, enough, _NEWTON)
        return steps

    def _move(self, which: NDArray[np.intp], residual: Matrix, kind: Any, enough: float, n_newton: int) -> int:
        """Climb with these samples, bring everybody's outputs up to date, and return the steps taken."""
        beta = self.beta[which]
        slopes = np.ascontiguousarray(residual[:, which])
        climb = Climb(self._block(which, kind), self.program.part(which), beta, slopes)
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
        most = _STEPS * len(climb.beta)
        last = taken = climb.sample_by_sample(most, enough)
        for _ in range(n_newton):
            if last < most or climb.all_at_once(self.newton) <= 0.0:
                break
            last = climb.sample_by_sample(most, enough)
            taken += last
        return taken

    def _block(self, which: NDArray[np.intp], kind: Any) -> NDArray[Any]:
        """Return the samples' kernels, of shape (1 or classes, q, q); those of the last round are at hand."""
        if self._held is None or self._held[1].dtype != kind or not np.array_equal(self._held[0], which):
            self._held = None  # two of them at once would be one too many
            K = np.ascontiguousarray(self.gram.block(which), dtype=kind)
            K = K if K.ndim == 3 else K[np.newaxis]
            for one in K:
                # Steps that read denormal numbers are many times slower.
                one[np.abs(one) < np.finfo(kind).tiny] = 0.0
            self._held = which, K
        return self._held[1]

    def _working_set(self, violation: NDArray[np.float64], free: NDArray[np.bool_]) -> tuple[NDArray[np.intp], bool]:
        """Return the samples of a round, and whether these are all that have something to gain.

        They are those with most to gain, then as far as they fit those with free coefficients, which answer to whatever
        the others do, then those with less to gain.
        """
        q = self.block
        room = q - min(int(free.sum()), int(_FREE_SHARE * q))
        ranked = self.order[np.argsort(-violation[self.order], kind="stable")]
        movable = np.logical_or(free, violation > 0.0)
        ranked = ranked[movable[ranked]]
        late = np.where(free[ranked], 0, 1)
        late[:room] = -1
        chosen = np.sort(ranked[np.argsort(late, kind="stable")[:q]])
        left = np.delete(violation, chosen)
        return chosen, not np.any(left > _INNER * violation.max())
