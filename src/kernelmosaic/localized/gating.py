"""Gates, which are weights of the kernels as functions of the sample, and their derivatives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator

from kernelmosaic._checks import check_choice, check_positive
from kernelmosaic._typing import Array, ArrayOrTensor, Settings

__all__ = ["Constant", "Gating", "GaussianGating", "LinearGating", "Sigmoid", "Softmax"]

# What a gating is ---------------------------------------------------------------------------------


class Gating(BaseEstimator, ABC):
    """Gates η_m(x | V) of P kernels, with one row of parameters per kernel: V has shape (P, q).

    A new gating is a subclass with `init`, `values` and `vjp`; nothing else depends on it, since a
    machine hands over only ∂J/∂η. Gates may have any sign: Σ_m η_m(x) k_m(x, z) η_m(z) is a kernel
    whatever they are.

    The inputs Z are standardised, mean 0 and standard deviation 1 column by column, unless
    `standardize` is False.
    """

    standardize: bool = True

    @abstractmethod
    def init(self, rng: np.random.RandomState, n_features: int, n_kernels: int) -> Array:
        """Return the parameters to start from, of shape (P, q)."""

    @abstractmethod
    def values(self, V: Array, Z: Array) -> Array:
        """Return the gates η_m(z_i), of shape (n, P)."""

    @abstractmethod
    def vjp(self, V: Array, Z: Array, G: Array) -> Array:
        """Return Σ_im G_im ∂η_m(z_i)/∂V, of the shape of V.

        G, of shape (n, P), is the gradient of an objective in the gates; the result is that in V.
        """

    def in_user_units(self, V: Array, mean: Array, scale: Array) -> Settings:
        """Return the parameters by name, for inputs x = mean + scale · z.

        By default they are returned unchanged, as ``parameters``.
        """
        return {"parameters": V}


class LinearGating(Gating):
    """A gating by linear scores a_m(z) = ⟨v_m, z⟩ + v_m0.

    The last column of V holds the v_m0.

    Parameters
    ----------
    scale : float, default=1.0
        Standard deviation of the random scores at the start. Copies of one kernel start apart only
        by chance, so it should not be small.
    standardize : bool, default=True
        Whether the gates read their columns with mean 0 and standard deviation 1. If not, they read
        them unscaled, and `scale` is the standard deviation of all of V at the start, the v_m0
        included.
    """

    def __init__(self, scale: float = 1.0, standardize: bool = True) -> None:
        self.scale = scale
        self.standardize = standardize

    def init(self, rng: np.random.RandomState, n_features: int, n_kernels: int) -> Array:
        """Return random parameters to start from, of shape (P, n_features + 1)."""
        check_positive("scale", self.scale, zero=True)
        if not self.standardize:
            return rng.normal(scale=self.scale, size=(n_kernels, n_features + 1))
        # The deviation of a score over the samples is then `scale`, for any number of features, and
        # its mean is the constant v_m0: with zeros, no kernel prevails over all samples.
        deviation = self.scale / np.sqrt(max(n_features, 1))
        V = rng.normal(scale=deviation, size=(n_kernels, n_features + 1))
        V[:, -1] = 0.0
        return V

    def in_user_units(self, V: Array, mean: Array, scale: Array) -> Settings:
        """Return ``coef`` (P, n_features) and ``intercept`` (P,) of the scores.

        They are those of the scores as functions of the user's columns.
        """
        coef = V[:, :-1] / scale
        return {"coef": coef, "intercept": V[:, -1] - coef @ mean}


def scores(V: Array, Z: Array) -> Array:
    """Return ⟨v_m, z_i⟩ + v_m0, of shape (n, P)."""
    return np.asarray(Z @ V[:, :-1].T + V[:, -1])


def scores_vjp(Z: Array, A: Array) -> Array:
    """Return the gradient in V for the gradient A, of shape (n, P), in the scores."""
    return np.column_stack([A.T @ Z, A.sum(axis=0)])


def softmax_vjp(eta: Array, G: Array) -> Array:
    """Return η_m (G_m − Σ_h η_h G_h), the gradient in the scores for G, that in the gates."""
    return np.asarray(eta * (G - np.sum(eta * G, axis=1, keepdims=True)))


# Kernels compete for each sample ------------------------------------------------------------------


class Softmax(LinearGating):
    """η_m(x) = exp(⟨v_m, x⟩ + v_m0) / Σ_h exp(⟨v_h, x⟩ + v_h0).

    The gates of a sample sum to one, and the regions where one kernel prevails are bounded by
    hyperplanes.

    Parameters
    ----------
    scale : float, default=1.0
        Standard deviation of the random scores at the start.
    standardize : bool, default=True
        Whether the gates read their columns with mean 0 and standard deviation 1. If not, they read
        them unscaled, and `scale` is the standard deviation of all coefficients at the start; 0.01
        is a small one.

    References
    ----------
    Gönen and Alpaydın (2008), "Localized multiple kernel learning", eq. 3.

    Examples
    --------
    >>> from kernelmosaic import LocalizedMKLClassifier
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.gating import Softmax
    >>> from kernelmosaic.kernels import Linear
    >>> X, y = make_gaussians(n_samples=60, random_state=0)
    >>> options = {"gating": Softmax(scale=0.5), "random_state": 0}
    >>> model = LocalizedMKLClassifier([Linear(), Linear()], **options).fit(X, y)
    >>> bool(abs(model.gate(X).sum(axis=1) - 1).max() < 1e-9)
    True
    """

    def values(self, V: Array, Z: Array) -> Array:
        return np.asarray(softmax(scores(V, Z), axis=1))

    def vjp(self, V: Array, Z: Array, G: Array) -> Array:
        return scores_vjp(Z, softmax_vjp(self.values(V, Z), G))


# Every kernel is switched on or off independently -------------------------------------------------


class Sigmoid(LinearGating):
    """η_m(x) = 1 / (1 + exp(−⟨v_m, x⟩ − v_m0)).

    Several kernels may be on for one sample, or none.

    Parameters
    ----------
    scale : float, default=1.0
        Standard deviation of the random scores at the start.
    standardize : bool, default=True
        Whether the gates read their columns with mean 0 and standard deviation 1. If not, they read
        them unscaled, and `scale` is the standard deviation of all coefficients at the start; 0.01
        is a small one.

    References
    ----------
    Gönen (2010), thesis, "Localized multiple kernel learning: sigmoid gating".

    Examples
    --------
    >>> from kernelmosaic import LocalizedMKLClassifier
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.gating import Sigmoid
    >>> from kernelmosaic.kernels import Gaussian, Linear
    >>> X, y = make_gaussians(n_samples=60, random_state=0)
    >>> options = {"gating": Sigmoid(), "random_state": 0}
    >>> model = LocalizedMKLClassifier([Linear(), Gaussian()], **options).fit(X, y)
    >>> bool((0 <= model.gate(X)).all() and (model.gate(X) <= 1).all())
    True
    """

    def values(self, V: Array, Z: Array) -> Array:
        return np.asarray(expit(scores(V, Z)))

    def vjp(self, V: Array, Z: Array, G: Array) -> Array:
        eta = self.values(V, Z)
        return scores_vjp(Z, G * eta * (1.0 - eta))


# Every kernel has a region where it prevails ------------------------------------------------------


class GaussianGating(Gating):
    """η_m(x) = exp(−q_m(x)) / Σ_h exp(−q_h(x)) with q_m(x) = ½ Σ_d ((x_d − c_md) / w_md)².

    Every kernel has a centre c_m and widths w_m; a sample belongs to the kernels near it. Unlike
    softmax gates of linear scores, the regions may be closed. V holds the centres, then the
    logarithms of the widths.

    Parameters
    ----------
    scale : float, default=1.0
        Standard deviation of the random centres at the start, in standard deviations of the inputs.

    Examples
    --------
    >>> from kernelmosaic import LocalizedMKLClassifier
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.gating import GaussianGating
    >>> from kernelmosaic.kernels import Linear
    >>> X, y = make_gaussians(n_samples=60, random_state=0)
    >>> options = {"gating": GaussianGating(), "tol": 1e-2, "random_state": 0}
    >>> model = LocalizedMKLClassifier([Linear(), Linear()], **options)
    >>> model.fit(X, y).gate(X).shape
    (60, 2)
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def init(self, rng: np.random.RandomState, n_features: int, n_kernels: int) -> Array:
        check_positive("scale", self.scale, zero=True)
        centres = rng.normal(scale=self.scale, size=(n_kernels, n_features))
        # Distances grow with the square root of the number of features; widths that grow with it
        # keep the first gates soft.
        widths = np.full((n_kernels, n_features), 0.5 * np.log(max(n_features, 1)))
        return np.hstack([centres, widths])

    def values(self, V: Array, Z: Array) -> Array:
        centres, widths = self._split(V)
        inverse = widths**-2
        # Σ_d (z_d − c_d)² / w_d² is multiplied out, so that no array has the shape
        # (n, P, n_features).
        q = 0.5 * (
            (Z**2) @ inverse.T
            - 2.0 * Z @ (centres * inverse).T
            + np.sum(centres**2 * inverse, axis=1)
        )
        return np.asarray(softmax(-q, axis=1))

    def vjp(self, V: Array, Z: Array, G: Array) -> Array:
        centres, widths = self._split(V)
        # The gradient in −q, and its sums over samples with the factors 1, z and z².
        A = softmax_vjp(self.values(V, Z), G)
        total = A.sum(axis=0)[:, np.newaxis]
        first = A.T @ Z
        second = A.T @ Z**2
        gradient_in_centres = (first - total * centres) / widths**2
        gradient_in_log_widths = (second - 2.0 * centres * first + total * centres**2) / widths**2
        return np.hstack([gradient_in_centres, gradient_in_log_widths])

    def in_user_units(self, V: Array, mean: Array, scale: Array) -> Settings:
        """Return ``centres`` and ``widths`` (P, n_features) in the units of the user's columns."""
        centres, widths = self._split(V)
        return {"centres": mean + scale * centres, "widths": scale * widths}

    @staticmethod
    def _split(V: Array) -> tuple[Array, Array]:
        """Return the centres and the widths, each of shape (P, n_features).

        Logarithms of widths are bounded, so that no width overflows.
        """
        half = V.shape[1] // 2
        return V[:, :half], np.exp(np.clip(V[:, half:], -50.0, 50.0))


# A global combination -----------------------------------------------------------------------------


class Constant(Gating):
    """η_m(x) = √θ_m with θ_m = exp(v_m) / Σ_h exp(v_h), for all samples.

    The combined kernel is Σ_m θ_m k_m. Learned θ are the weights of multiple kernel learning with
    Σ θ_m = 1.

    Parameters
    ----------
    weights : array-like of shape (P,), optional
        The θ_m to keep; None learns them.

    References
    ----------
    Gönen and Alpaydın (2008), "Localized multiple kernel learning", section 2: a gate that does not
    read its input.

    Examples
    --------
    >>> from kernelmosaic import LocalizedMKLClassifier
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.gating import Constant
    >>> from kernelmosaic.kernels import Gaussian, Linear
    >>> X, y = make_gaussians(n_samples=60, random_state=0)
    >>> options = {"gating": Constant(), "random_state": 0}
    >>> model = LocalizedMKLClassifier([Linear(), Gaussian()], **options).fit(X, y)
    >>> bool((model.gate(X) == model.gate(X)[0]).all())
    True
    """

    def __init__(self, weights: ArrayOrTensor = None) -> None:
        self.weights = weights

    def init(self, rng: np.random.RandomState, n_features: int, n_kernels: int) -> Array:
        if self.weights is None:
            return np.zeros((n_kernels, 1))
        if self._fixed_weights().shape != (n_kernels,):
            raise ValueError(
                f"weights={self.weights!r}: constant gates need {n_kernels} numbers, one per"
                " kernel."
            )
        return np.zeros((n_kernels, 0))

    def values(self, V: Array, Z: Array) -> Array:
        return np.tile(np.sqrt(self._theta(V)), (Z.shape[0], 1))

    def vjp(self, V: Array, Z: Array, G: Array) -> Array:
        if self.weights is not None:
            return np.zeros_like(V)
        theta = softmax(V.T, axis=1)
        # ∂√θ/∂θ = 1/(2√θ), and the softmax multiplies by θ; the product ½√θ is finite for θ = 0.
        root = np.sqrt(theta)
        gradient = 0.5 * root * G.sum(axis=0)
        return np.asarray((gradient - theta * gradient.sum()).T)

    def in_user_units(self, V: Array, mean: Array, scale: Array) -> Settings:
        """Return ``weights`` (P,): the θ_m, squares of the gates."""
        return {"weights": self._theta(V)}

    def _theta(self, V: Array) -> Array:
        """Return the weights θ, of shape (P,): fixed ones, or those of the parameters V."""
        if self.weights is not None:
            return self._fixed_weights()
        return np.asarray(softmax(V[:, 0]))

    def _fixed_weights(self) -> Array:
        """Return the parameter `weights` as an array, or raise a ValueError if it is wrong."""
        weights = np.asarray(self.weights, dtype=np.float64)
        are_valid = weights.ndim == 1 and np.all(np.isfinite(weights) & (weights >= 0))
        if not are_valid or not np.any(weights > 0):
            raise ValueError(
                f"weights={self.weights!r}: give finite numbers, none negative and not all zero."
            )
        return weights


# By name ------------------------------------------------------------------------------------------

#: Gatings by their names in the parameter `gating` of estimators.
GATINGS: dict[str, type[Gating]] = {
    "softmax": Softmax,
    "sigmoid": Sigmoid,
    "constant": Constant,
    "gaussian": GaussianGating,
}


def make_gating(gating: Any) -> Gating:
    """Return the gating of a name, or a `Gating` as it is; other values raise a ValueError."""
    if isinstance(gating, Gating):
        return gating
    return GATINGS[check_choice("gating", gating, GATINGS, ", or give a Gating object")]()
