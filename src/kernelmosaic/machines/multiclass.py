"""The machines that tell all classes apart in one problem, with one output per class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, ArrayOrTensor
from kernelmosaic.machines.base import check_positive
from kernelmosaic.solvers.multiclass import solve_multiclass
from kernelmosaic.solvers.multiclass_program import MulticlassProgram, MulticlassSolution, certify_multiclass

Array = NDArray[np.float64]


class MulticlassMachine:
    """A machine with one output per class: everything of the training problem but the kernel.

    As with every machine only β crosses to the learner of the kernel, here with one column per class:
    ∂J/∂K = −½ Σ_c β_c β_cᵀ.

    Parameters
    ----------
    y : array of shape (n,)
        The classes, as numbers from zero.
    C : float
        Factor of the slack.
    n_classes : int, optional
        How many classes there are; by default as many as `y` shows.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample; zero takes a sample out.
    margins : array of shape (n, classes), optional
        By how much the sample's class should be ahead of each other class; by default `margin`.
    constants : bool, default=False
        Whether every output has a constant, f_c = ⟨w_c, φ⟩ + b_c.
    """

    objective_scale: float = 1.0
    can_be_subsampled: bool = False
    has_one_output: bool = False
    has_independent_outputs: bool = False
    has_targets: bool = True
    has_labels: bool = False
    has_one_slack: bool = True
    margin: float
    pairwise: bool

    def __init__(
        self,
        y: AnyArray,
        C: float = 1.0,
        n_classes: int | None = None,
        sample_weight: Array | None = None,
        margins: Array | None = None,
        *,
        constants: bool = False,
    ) -> None:
        check_positive("C", C)
        labels = np.asarray(y, dtype=np.intp)
        k = int(labels.max()) + 1 if n_classes is None else n_classes
        if labels.min() < 0 or labels.max() >= k or k < 2:
            raise ValueError(f"y: give at least two classes, numbered from 0 to {k - 1}.")
        sample_C = C * (np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64))
        if margins is None:
            margins = np.full((len(labels), k), self.margin)
        if margins.shape != (len(labels), k):
            raise ValueError(f"margins has shape {margins.shape}; {len(labels)} samples of {k} classes are given.")
        margins = np.asarray(margins, dtype=np.float64)
        self.program = MulticlassProgram(labels, margins, sample_C, self.pairwise, constants)
        #: Of β: one coefficient per sample and class.
        self.shape = margins.shape

    def solve(
        self, K: ArrayOrTensor, warm_start: Array | None = None, tol: float = 1e-3, values: Array | None = None
    ) -> MulticlassSolution:
        """Return the solution for the kernel, one for all classes or one per class, to a relative gap of `tol`.

        `values` are the outputs of a feasible warm start, where they are known: the solver then believes its own sums.
        """
        return solve_multiclass(K, self.program, warm_start, tol, values=values)

    def assess(self, gram: Any, beta: Array) -> MulticlassSolution:
        """Return a feasible β as a solution for a kernel, with what it is worth."""
        values = np.asarray(gram.products(beta, exact=True))
        none = np.zeros(self.program.n_classes)
        constants = self.program.best_constants(values, none) if self.program.constants else none
        return certify_multiclass(self.program, beta, values, 0, constants)

    def continued(self, beta: Array, before: MulticlassMachine) -> Array:
        """Return coefficients to start from where the solution of a like machine, with another C say, ended.

        A sample whose coefficients are as large as they may be keeps them so; the others stay as they are.
        """
        sample_C, earlier = self.program.sample_C, before.program.sample_C
        ratio = np.divide(sample_C, earlier, out=np.ones(len(sample_C)), where=earlier > 0)
        full = -beta.min(axis=1) >= (1.0 - 1e-9) * earlier
        if not self.pairwise:
            full = beta.max(axis=1) >= (1.0 - 1e-9) * earlier
        return beta * np.where(full, ratio, 1.0)[:, np.newaxis]

    def primal_value(self, solution: MulticlassSolution) -> float:
        """Return the primal value of a solution: no less than the optimum for its kernel."""
        quadratic = 0.5 * float(np.sum(solution.beta * solution.values))
        return self.program.primal_value(quadratic, solution.values, solution.intercept)


class CrammerSinger(MulticlassMachine):
    """One slack per sample: min ½ Σ_c ‖w_c‖² + C Σᵢ ξᵢ with f_y(xᵢ) − f_c(xᵢ) ≥ 1 − ξᵢ for every other class c."""

    margin = 1.0
    pairwise = False


class PairwiseSlack(MulticlassMachine):
    """One slack per sample and class: min ½ Σ_c ‖w_c‖² + C Σᵢ Σ_c ξᵢ_c with f_y(xᵢ) − f_c(xᵢ) ≥ 2 − ξᵢ_c (Weston and
    Watkins 1998; Bredensteiner and Bennett 1999). Two classes are worth twice the binary machine."""

    margin = 2.0
    pairwise = True
