"""Machines of class posteriors: the margin that a sample asks for is that of its posterior."""

from __future__ import annotations

import numpy as np

from kernelmosaic._typing import Array, Indices
from kernelmosaic.machines.base import SVC, Machine, PairwiseSlack


class PosteriorSVC(SVC):
    """Two classes: min ½‖w‖² + Σ Cᵢ ξᵢ with ŷᵢ f(xᵢ) ≥ ŷᵢ² (1 − ξᵢ), where ŷ = 2 Pr(+1 | x) − 1
    (Tao et al. 2005).

    The program is that of `SVC` for targets ŷ and bounds Cᵢ/|ŷᵢ|. Hard posteriors give the plain
    machine; a sample with ŷ = 0 has no influence and is taken out.

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
        # A soft label below this is none: its bound C/|ŷ| would leave the range of the arithmetic.
        target = np.where(np.abs(soft) > 1e-8, soft, 0.0)
        weight = np.ones(len(target)) if sample_weight is None else sample_weight
        super().__init__(
            target,
            C,
            1,
            np.divide(weight, np.abs(target), out=np.zeros(len(target)), where=target != 0),
        )
        self.has_labels = bool(np.all(np.abs(target) == 1))


def posterior_machine(
    posteriors: Array, C: float, sample_weight: Array | None = None, labels: Indices | None = None
) -> Machine:
    """Return the machine for posteriors of shape (n, classes): of one output for two classes, else
    of one per class.

    With more than two classes it is f_y(xᵢ) − f_c(xᵢ) ≥ 2 (Pr(y | xᵢ) − Pr(c | xᵢ)) − ξᵢ_c (Gönen
    et al. 2008), with a constant per class, where y is the sample's label or, without labels, its
    most probable class. The margin asked of a label that is not the most probable class is
    negative.
    """
    if posteriors.shape[1] == 2:
        # The difference, not 2 Pr − 1: exactly ±1 for hard posteriors and exactly 0 for even ones.
        return PosteriorSVC(posteriors[:, 1] - posteriors[:, 0], C, sample_weight)
    labels = posteriors.argmax(axis=1) if labels is None else labels
    margins = 2.0 * (posteriors[np.arange(len(labels)), labels][:, np.newaxis] - posteriors)
    return PairwiseSlack(labels, C, posteriors.shape[1], sample_weight, margins, constants=True)
