"""The columns of a table: an estimator under the names the papers give it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from kernelmosaic.experiments.units import Measurement


@dataclass(frozen=True)
class Fit:
    """A fitted model, its training time in seconds, and whether it ended within its tolerance."""

    model: Any
    seconds: float
    converged: bool


@dataclass(frozen=True)
class Method:
    """One column of a table.

    Parameters
    ----------
    name, kernels : str
        As printed: ``"LMKL"`` and ``"kP-kG"``.
    estimator : estimator
        A template; it is cloned, given the parameters of the search, and fitted.
    cost : float
        How long it takes beside other methods.
    costs : tuple of float
        What evaluating each kernel costs, if ``total_cost`` is to be measured.
    shares : bool
        Record weights divided by their sum, as some tables print them.
    """

    name: str
    kernels: str
    estimator: Any
    cost: float = 1.0
    costs: tuple[float, ...] = ()
    shares: bool = False

    def fit(self, X: Any, y: Any, seed: int, **parameters: Any) -> Fit:
        """Return the estimator fitted with these parameters."""
        model = clone(self.estimator).set_params(**parameters)
        if "random_state" in model.get_params(deep=False):
            model.set_params(random_state=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", ConvergenceWarning)
            start = perf_counter()
            model.fit(X, y)
            return Fit(model, perf_counter() - start, converged=not caught)

    def describe(self, fit: Fit, setting: str = "") -> list[Measurement]:
        """Return what a table may say of a fitted model besides its errors."""
        found = {"seconds": fit.seconds, "converged": float(fit.converged)}
        model = fit.model
        if hasattr(model, "best_estimator_"):  # a search: its last fit is what there is to describe
            found["refit_seconds"] = float(model.refit_time_)
            model = model.best_estimator_
        if hasattr(model, "support_fraction_"):
            # Of the distinct samples, as repeated ones are one to the solver.
            found["sv_percent"] = 100 * float(model.support_fraction_)
        if hasattr(model, "weights_"):
            weights = np.atleast_2d(model.weights_)
            found["active_kernels"] = float(np.count_nonzero(weights.max(axis=0) > 0))
            shown = weights.mean(axis=0) / (weights.mean(axis=0).sum() if self.shares else 1.0)
            found |= {f"weight:{name}": float(one) for name, one in zip(model.kernel_names_, shown, strict=True)}
        if self.costs:
            n_samples = len(model.support_) / model.support_fraction_
            found["total_cost"] = 100 * model.cost(self.costs) / n_samples
        return [Measurement(metric, value, setting) for metric, value in found.items()]
