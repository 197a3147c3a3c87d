"""Fitted functions: outputs, shares of kernels and the combined kernel of new samples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import MatrixLike
from kernelmosaic.backend import row_strips
from kernelmosaic.engine.expansion import Expansion

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Function:
    """f_c(x) = Σ_m η_cm Σ_i β_ci k_m(x, x_i) + b_c.

    Attributes
    ----------
    expansion : Expansion
        The sums.
    intercept : ndarray of shape (outputs,)
        The constants.
    shares_weights : bool
        Whether all outputs have the same weights.
    """

    expansion: Expansion
    intercept: Array
    shares_weights: bool = True

    def outputs(self, X: MatrixLike) -> Array:
        """Return the outputs for validated samples, of shape (n, outputs)."""
        return np.asarray(self.expansion.values(X) + self.intercept)

    def terms(self, X: MatrixLike) -> Array:
        """Return each kernel's share of the outputs, of shape (n, P, outputs)."""
        return self.expansion.terms(X)

    def combined(self, X: MatrixLike, Y: MatrixLike) -> Array:
        """Return the combined kernel between validated samples, one for every set of weights."""
        one = replace(self.expansion, eta=self.expansion.eta[:1])
        return (one if self.shares_weights else self.expansion).combined(X, Y)


@dataclass(frozen=True)
class StripFunction(Function):
    """Many outputs with weights of their own, so many of which are evaluated at once."""

    at_once: ClassVar[int] = 4096

    def outputs(self, X: MatrixLike) -> Array:
        out = np.empty((X.shape[0], len(self.intercept)))
        for part in row_strips(len(self.intercept), self.at_once):
            out[:, part] = self.expansion.take(part).values(X) + self.intercept[part]
        return out


@dataclass(frozen=True)
class DifferenceFunction(Function):
    """Of two classes that have a function each, by how much the second is ahead."""

    def outputs(self, X: MatrixLike) -> Array:
        return np.diff(self.expansion.values(X)) + self.intercept

    def terms(self, X: MatrixLike) -> Array:
        return np.diff(self.expansion.terms(X))


@dataclass(frozen=True)
class ProjectedFunction(Function):
    """Linear functions of projections: slopes · (Σ_m η_m Σ_i a_i k_m(x, x_i)) + b.

    Attributes
    ----------
    slopes : ndarray of shape (outputs, components)
    center : ndarray of shape (components,)
        The projection of the training samples' mean.
    """

    slopes: Array = field(kw_only=True)
    center: Array = field(kw_only=True)

    def projections(self, X: MatrixLike) -> Array:
        """Return centred projections of validated samples, of shape (n, components)."""
        return np.asarray(self.expansion.values(X) - self.center)

    def outputs(self, X: MatrixLike) -> Array:
        return np.asarray(self.expansion.values(X) @ self.slopes.T + self.intercept)

    def terms(self, X: MatrixLike) -> Array:
        return np.asarray(self.expansion.terms(X) @ self.slopes.T)
