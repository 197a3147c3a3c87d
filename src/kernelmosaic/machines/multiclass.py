"""The machines that tell all classes apart in one problem, with one output per class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._checks import check_positive
from kernelmosaic._typing import AnyArray, ArrayOrTensor
from kernelmosaic.machines.base import Array, Machine, PosteriorSVC
from kernelmosaic.solvers import Solution, solve_multiclass
from kernelmosaic.solvers.multiclass import step_limit
from kernelmosaic.solvers.multiclass_program import MulticlassProgram


class MulticlassMachine(Machine):
    """A machine with one output per class: everything of the training problem but the kernel.

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

    can_be_subsampled = False
    has_one_output = False
    has_independent_outputs = False
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

    @property
    def most_steps(self) -> int:
        return step_limit(self.program.n_samples)

    def solve(
        self, K: ArrayOrTensor, warm_start: Array | None = None, tol: float = 1e-3, values: Array | None = None
    ) -> Solution:
        """Return the solution for the kernel, one for all classes or one per class, to a relative gap of `tol`.

        `values` are the outputs of a feasible warm start, where they are known: the solver then believes its own sums.
        """
        return solve_multiclass(K, self.program, warm_start, tol, values=values, options=self.options)


class CrammerSinger(MulticlassMachine):
    """One slack per sample: min ½ Σ_c ‖w_c‖² + C Σᵢ ξᵢ with f_y(xᵢ) − f_c(xᵢ) ≥ 1 − ξᵢ for every other class c."""

    margin = 1.0
    pairwise = False


class PairwiseSlack(MulticlassMachine):
    """One slack per sample and class: min ½ Σ_c ‖w_c‖² + C Σᵢ Σ_c ξᵢ_c with f_y(xᵢ) − f_c(xᵢ) ≥ 2 − ξᵢ_c (Weston and
    Watkins 1998; Bredensteiner and Bennett 1999). Two classes are worth twice the binary machine."""

    margin = 2.0
    pairwise = True


def posterior_machine(
    posteriors: Array, C: float, sample_weight: Array | None = None, labels: NDArray[np.intp] | None = None
) -> Machine:
    """Return the machine for posteriors of shape (n, classes): of one output for two classes, else of one per class.

    With more than two classes it is f_y(xᵢ) − f_c(xᵢ) ≥ 2 (Pr(y | xᵢ) − Pr(c | xᵢ)) − ξᵢ_c (Gönen et al. 2008), with a
    constant per class, where y is the sample's label or, without labels, its most probable class. The margin asked of
    a label that is not the most probable class is negative.
    """
    if posteriors.shape[1] == 2:
        # The difference, not 2 Pr − 1: exactly ±1 for hard posteriors and exactly 0 for even ones.
        return PosteriorSVC(posteriors[:, 1] - posteriors[:, 0], C, sample_weight)
    labels = posteriors.argmax(axis=1) if labels is None else labels
    margins = 2.0 * (posteriors[np.arange(len(labels)), labels][:, np.newaxis] - posteriors)
    return PairwiseSlack(labels, C, posteriors.shape[1], sample_weight, margins, constants=True)
