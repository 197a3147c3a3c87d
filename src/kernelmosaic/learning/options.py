"""The options of a learner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.learning.norms import WeightNorm


@dataclass(frozen=True)
class LearnerOptions:
    """What an estimator asks of a learner, and the tuning values of the searches.

    Attributes
    ----------
    norm : WeightNorm
        The set of weights.
    penalties : ndarray of shape (P,)
        The d_m; infinite for a kernel that is to have no weight.
    tol : float
        Relative duality gap at which to stop.
    max_iter : int
        Most iterations.
    verbose : bool
        Whether to show a progress bar.
    """

    norm: WeightNorm
    penalties: NDArray[np.float64]
    tol: float = 1e-3
    max_iter: int = 100
    verbose: bool = False

    # How exactly the machine is solved: relative gaps.
    first_tol: float = 1e-2  # the first one, and that of parts whose weights are only a start
    sharper: float = 0.03  # factor of the next one where no step pays
    sharpest: float = 1e-13  # the last one: rounding hides smaller gaps

    # When a search ends.
    attempts: int = 8  # most evaluations in one line search
    closer: float = 0.9  # factor of the gap that counts as progress where rounding hides the value
    n_idle: int = 20  # iterations in a row that leave the gap as it was: rounding is reached

    # Sizes.
    least_part: int = 200  # samples: the weights of a smaller part are too far from those of all to be a start
    near: float = 0.8  # share of the steepest slope below which a kernel cannot enter soon, and is not read
    few_samples: int = 500  # up to here double precision costs little
    single_tol: float = 1e-4  # down to this tol single precision suffices for curvatures and matrices of classes
    most_free: int = 4000  # samples: factorising a larger block costs more than the solves that it saves
    most_entries: int = 20_000_000  # of the matrices of a conic program; interior points keep several times as many
    most_sdp_samples: int = 100  # weights of any sign factorise a matrix of order n²/2

    def in_single(self, n_samples: int) -> bool:
        """Whether matrices that no certificate reads are in single precision."""
        return self.tol >= self.single_tol and n_samples > self.few_samples
