"""What a gating is: weights of the kernels as a function of the sample, and how they answer to their parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

Array = NDArray[np.float64]


class Gating(BaseEstimator, ABC):  # type: ignore[misc]
    """Gates η_m(x | V) of P kernels, with one row of parameters a kernel: V has shape (P, q).

    A new gating is a subclass with `init`, `values` and `vjp`; nothing else needs to know of it, since a machine hands
    over only ∂J/∂η. Gates may have any sign: Σ_m η_m(x) k_m(x, z) η_m(z) is a kernel whatever they are.

    The inputs Z are standardised: mean 0 and standard deviation 1, column by column.
    """

    @abstractmethod
    def init(self, rng: np.random.RandomState, n_features: int, n_kernels: int) -> Array:
        """Return the parameters to start from, of shape (P, q)."""

    @abstractmethod
    def values(self, V: Array, Z: Array) -> Array:
        """Return the gates η_m(z_i), of shape (n, P)."""

    @abstractmethod
    def vjp(self, V: Array, Z: Array, G: Array) -> Array:
        """Return Σ_im G_im ∂η_m(z_i)/∂V for G of shape (n, P): what an objective's slope in the gates means for V."""

    def in_user_units(self, V: Array, mean: Array, scale: Array) -> dict[str, Any]:
        """Return the parameters by name, for inputs x = mean + scale · z; unchanged unless a subclass knows better."""
        return {"parameters": V}


class LinearGating(Gating):
    """A gating whose parameters are linear scores a_m(z) = ⟨v_m, z⟩ + v_m0; the last column of V holds the v_m0.

    Parameters
    ----------
    scale : float, default=1.0
        Standard deviation of the random v_m at the start. Copies of one kernel start apart only by chance, so it
        should not be small.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def init(self, rng: np.random.RandomState, n_features: int, n_kernels: int) -> Array:
        if not 0 <= self.scale < np.inf:
            raise ValueError(
                f"scale={self.scale!r}: the spread of the first coefficients must be finite and not negative."
            )
        # A score's spread over the samples is then `scale`, whatever the number of features.
        V = rng.normal(scale=self.scale / np.sqrt(max(n_features, 1)), size=(n_kernels, n_features + 1))
        V[:, -1] = 0.0
        return V

    def in_user_units(self, V: Array, mean: Array, scale: Array) -> dict[str, Any]:
        """Return ``coef`` (P, n_features) and ``intercept`` (P,) of the scores as functions of the user's columns."""
        coef = V[:, :-1] / scale
        return {"coef": coef, "intercept": V[:, -1] - coef @ mean}


def scores(V: Array, Z: Array) -> Array:
    """Return ⟨v_m, z_i⟩ + v_m0, of shape (n, P)."""
    return np.asarray(Z @ V[:, :-1].T + V[:, -1])


def scores_vjp(Z: Array, A: Array) -> Array:
    """Return what slopes A (n, P) in the scores mean for V."""
    return np.column_stack([A.T @ Z, A.sum(axis=0)])


def softmax(A: Array) -> Array:
    """Return exp(a_m) / Σ_h exp(a_h), row by row, without overflow."""
    E = np.exp(A - A.max(axis=1, keepdims=True))
    return np.asarray(E / E.sum(axis=1, keepdims=True))


def softmax_vjp(eta: Array, G: Array) -> Array:
    """Return the slopes in the scores, given those in the gates: η_m (G_m − Σ_h η_h G_h)."""
    return np.asarray(eta * (G - np.sum(eta * G, axis=1, keepdims=True)))
