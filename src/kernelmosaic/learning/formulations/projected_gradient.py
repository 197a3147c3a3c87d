"""The published scheme for one weight per class and kernel."""

from __future__ import annotations

import numpy as np

from kernelmosaic.learning.class_wise import ClassSearch, ClassWiseLearner

#: Sufficient decrease in the line search, and its most halvings.
_ARMIJO = 1e-4
_MAX_HALVINGS = 20


class ProjectedGradient(ClassWiseLearner):
    """The published scheme: gradient steps projected on d ≥ 0, a line search on the re-solved value, and rescaling."""

    def minimise(self, search: ClassSearch) -> None:
        here, step = search.evaluate(search.best.norms), 1.0
        while True:
            slope = 0.5 - here.theta
            for _ in range(_MAX_HALVINGS):
                d = np.maximum(here.d - step * slope, 0.0)
                there = search.evaluate(d)
                if there.value <= here.value + _ARMIJO * float(np.sum(slope * (d - here.d))):
                    break
                step *= 0.5
            else:
                search.increase_precision()
                step = 1.0
                continue
            # Rescaling balances the regulariser; the value there is asked of the machine, not taken from the slope.
            here, step = search.evaluate(there.rescaled()[0]), 2.0 * step
