"""Machines of class posteriors: the posterior of a sample says which margin it asks for."""

from __future__ import annotations

import numpy as np

from kernelmosaic._typing import Array, Indices
from kernelmosaic.machines.base import SVC, Machine, PairwiseSlack

#: Soft labels of smaller size count as zero: their bound C/|ŷ| would leave the range of the
#: arithmetic. Chosen by hand.
LEAST_SOFT_LABEL = 1e-8


class PosteriorSVC(SVC):
    """Two classes: min ½‖w‖² + Σ Cᵢ ξᵢ with ŷᵢ f(xᵢ) ≥ ŷᵢ² (1 − ξᵢ).

    Here ŷ = 2 Pr(+1 | x) − 1 (Tao et al. 2005). The program is that of `SVC` for targets ŷ and
    bounds Cᵢ/|ŷᵢ|. Hard posteriors give the plain machine; a sample with ŷ = 0 has no influence and
    is taken out.

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
        target = np.where(np.abs(soft) > LEAST_SOFT_LABEL, soft, 0.0)
        weight = np.ones(len(target)) if sample_weight is None else sample_weight
        scaled_weight = np.zeros(len(target))
        np.divide(weight, np.abs(target), out=scaled_weight, where=target != 0)
        super().__init__(target, C, 1, scaled_weight)
        self.has_labels = bool(np.all(np.abs(target) == 1))


def posterior_machine(
    posteriors: Array, C: float, sample_weight: Array | None = None, labels: Indices | None = None
) -> Machine:
    """Return the machine for class posteriors.

    It has one output for two classes, else one per class. With more than two classes its
    constraints are f_y(xᵢ) − f_c(xᵢ) ≥ 2 (Pr(y | xᵢ) − Pr(c | xᵢ)) − ξᵢ_c (Gönen et al. 2008), with
    a constant per class. The margin asked of a label that is not the most probable class is
    negative.

    Parameters
    ----------
    posteriors : ndarray of shape (n, classes)
        Pr(c | xᵢ).
    C : float
        Factor of the slack.
    sample_weight : ndarray of shape (n,), optional
        Factors of C, sample by sample.
    labels : ndarray of int of shape (n,), optional
        The y of every sample; by default its most probable class.
    """
    if posteriors.shape[1] == 2:
        # The difference, not 2 Pr − 1: exactly ±1 for hard posteriors and exactly 0 for even ones.
        return PosteriorSVC(posteriors[:, 1] - posteriors[:, 0], C, sample_weight)
    if labels is None:
        labels = posteriors.argmax(axis=1)
    posteriors_of_labels = posteriors[np.arange(len(labels)), labels]
    margins = 2.0 * (posteriors_of_labels[:, np.newaxis] - posteriors)
    return PairwiseSlack(labels, C, posteriors.shape[1], sample_weight, margins, constants=True)
