"""Machines fitted to class posteriors instead of hard labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.machines.base import Machine, check_positive
from kernelmosaic.machines.multiclass import PairwiseSlack
from kernelmosaic.solvers import Program

Array = NDArray[np.float64]

#: A soft label below this is none: its bound C/|ŷ| would leave the range of the arithmetic.
_UNDECIDED = 1e-8


class PosteriorSVC(Machine):
    """Two classes: min ½‖w‖² + Σ Cᵢ ξᵢ with ŷᵢ f(xᵢ) ≥ ŷᵢ² (1 − ξᵢ), where ŷ = 2 Pr(+1 | x) − 1 (Tao et al. 2005).

    Hard posteriors give the plain machine; a sample with ŷ = 0 says nothing and is taken out.

    Parameters
    ----------
    soft : array of shape (n,)
        The soft labels ŷ in [−1, 1].
    C : float
        Factor of the slack.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample.
    """

    def __init__(self, soft: Array, C: float = 1.0, sample_weight: Array | None = None) -> None:
        check_positive("C", C)
        target = np.where(np.abs(soft) > _UNDECIDED, soft, 0.0)
        sample_C = C * (np.ones(len(target)) if sample_weight is None else sample_weight)
        reach = np.divide(sample_C, np.abs(target), out=np.zeros(len(target)), where=target != 0)
        lower, upper = np.where(target > 0, 0.0, -reach), np.where(target > 0, reach, 0.0)
        self._program = Program(target, lower, upper, np.zeros(len(target)))
        self.has_labels = bool(np.all(np.abs(target) == 1))

    @property
    def program(self) -> Program:
        return self._program


def posterior_machine(
    posteriors: Array, C: float, sample_weight: Array | None = None, labels: NDArray[np.intp] | None = None
) -> Machine | PairwiseSlack:
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
