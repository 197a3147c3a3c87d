"""Leave-one-out error and evidence of the least-squares machine, with their slopes in the kernel matrix.

The machine minimises ½ Σ_i w_i ‖y_i − f(x_i) − b‖² / α + ½ ‖f‖² in the function space of K. With M = K + α diag(1/w)
and the constant b eliminated, A = M⁻¹ − M⁻¹1 1ᵀM⁻¹ / 1ᵀM⁻¹1, the coefficients are β = A Y, and a sample that is left
out has the residual r_i = β_i / A_ii; samples that are left out together have r_S = A_SS⁻¹ β_S. No machine is solved
again.

Every criterion L gives one n × n matrix G with dL = ⟨G, dM⟩, whatever the number of kernels and parameters of M:

- evidence, ½ tr(Yᵀ A Y) / s² + (c/2)(log det M + log 1ᵀM⁻¹1) + (n − 1) c log s:  G = ½ (c A − β βᵀ / s²);
- a sum of losses of r, with g = ∂L/∂r:  G = A D A − ½ (A u βᵀ + β uᵀ A), where u_S = A_SS⁻¹ g_S, and D has the blocks
  D_SS = ½ (u_S r_Sᵀ + r_S u_Sᵀ), which is diag(u_i r_i) where every sample is left out alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from kernelmosaic._typing import ArrayOrTensor
from kernelmosaic.backend import backend_of
from kernelmosaic.gram.linear_algebra import Cholesky

Array = NDArray[np.float64]
#: Samples that are left out together; None where every sample is left out alone.
Groups = Sequence[NDArray[np.intp]] | None


def inverted(M: ArrayOrTensor) -> tuple[Any, float]:
    """Return the inverse of a symmetric matrix and the logarithm of its determinant.

    Raises
    ------
    ValueError
        If rounding leaves it indefinite.
    """
    try:
        factor = Cholesky(M, most=1e-4)
    except np.linalg.LinAlgError:
        raise_of_rounding()
    return factor.inverse(), factor.log_det


def raise_of_rounding() -> NoReturn:
    """Raise a ValueError: what rounding makes of the kernels is larger than the ridge."""
    raise ValueError(
        "kernels: their entries are so large, or have so much in common, that the ridge alpha is lost in rounding; "
        "scale the columns (scale=True), use normalize='trace' or 'centered', or give a larger alpha."
    )


def centre(K: ArrayOrTensor) -> Array:
    """Take 1vᵀ + v1ᵀ off a symmetric K such that its rows sum to zero, in place, and return v.

    The machine stays the same but for its constant, as its coefficients sum to zero; a wide kernel, nearly constant,
    keeps the digits that its constant part hides in a linear system.
    """
    backend = backend_of(K)
    means = K.mean(0)
    v = means - 0.5 * float(means.mean())
    K -= v
    K -= v[:, None]
    return np.asarray(backend.to_numpy(v))


@dataclass(frozen=True)
class RidgeSystem:
    """The inverse of M = K + diag(ridge), the constant eliminated.

    Attributes
    ----------
    A : array of shape (n, n)
        M⁻¹ − M⁻¹1 1ᵀM⁻¹ / 1ᵀM⁻¹1, where K is: on the host or on a device. All else is on the host.
    ones, diagonal : ndarray of shape (n,)
        M⁻¹1 of the centred M, and the diagonal of A.
    offset : ndarray of shape (n,)
        v of `centre`.
    log_det : float
        log det M + log 1ᵀM⁻¹1.
    """

    A: ArrayOrTensor
    ones: Array
    diagonal: Array
    offset: Array
    log_det: float

    @classmethod
    def of(cls, K: ArrayOrTensor, ridge: Array) -> RidgeSystem:
        """Invert M, as `inverted` does; K is overwritten by M, centred."""
        backend, offset = backend_of(K), centre(K)
        backend.diagonal_view(K)[...] += backend.asarray(ridge)
        A, log_det = inverted(K)
        ones = A.sum(1)
        total = float(ones.sum())
        A -= ones[:, None] * (ones / total)
        ones, diagonal = backend.to_numpy(ones), backend.to_numpy(A.diagonal())
        return cls(A, ones, diagonal, offset, log_det + float(np.log(total)))

    def times(self, V: Array) -> Array:
        """Return A V."""
        backend = backend_of(self.A)
        return np.asarray(backend.to_numpy(self.A @ backend.asarray(V)))

    def refined(self, M: ArrayOrTensor, Y: Array, steps: int = 3) -> Array:
        """Return β = A Y with the digits that the explicit inverse of an ill-conditioned M loses."""
        backend, beta = backend_of(M), self.times(Y)
        for _ in range(steps):
            beta = beta + self.times(Y - backend.to_numpy(M @ backend.asarray(beta)))
            # What rounding leaves of their sum, large kernels would show.
            beta -= beta.mean(axis=0)
        return beta

    def intercept(self, Y: Array, beta: Array) -> Array:
        """Return the constant of every target."""
        return np.asarray(self.ones @ Y / self.ones.sum() - self.offset @ beta)

    def influence(self, k: ArrayOrTensor) -> Array:
        """Return what every target adds to the outputs: f(x) = h(x)ᵀ y.

        Parameters
        ----------
        k : array of shape (m, n)
            The kernel between samples x and those of the machine, where A is.
        """
        backend = backend_of(k)
        through = (k - backend.asarray(self.offset)) @ self.A
        return np.asarray(backend.to_numpy(through) + self.ones / self.ones.sum())

    def residuals(self, beta: Array, groups: Groups = None) -> Array:
        """Return the residuals of samples left out, each alone or with its group."""
        if groups is None:
            return np.asarray(beta / self.diagonal[:, np.newaxis])
        r = np.empty_like(beta)
        for S in groups:
            r[S] = np.linalg.solve(self.block(S), beta[S])
        return r

    def slope(self, beta: Array, r: Array, g: Array, groups: Groups = None) -> ArrayOrTensor:
        """Return G for losses of the residuals with the slopes g."""
        A, backend = self.A, backend_of(self.A)
        if groups is None:
            u = g / self.diagonal[:, np.newaxis]
            G = _congruence(A, (u * r).sum(axis=1))
        else:
            u, middle = np.empty_like(g), backend.zeros(tuple(A.shape))
            for S in groups:
                u[S] = np.linalg.solve(self.block(S), g[S])
                D = u[S] @ r[S].T
                rows = backend.index(S)
                middle[rows] = backend.asarray(0.5 * (D + D.T)) @ A[rows]
            G = A @ middle
        left, right = backend.asarray(self.times(u)), backend.asarray(beta)
        across = left @ (0.5 * right.T)
        G -= across
        G -= across.T
        return G

    def block(self, S: NDArray[np.intp]) -> Array:
        """Return A_SS."""
        backend = backend_of(self.A)
        rows = backend.index(S)
        return np.asarray(backend.to_numpy(backend.take_block(self.A, rows, rows)))


def variances(K: ArrayOrTensor, ridge: Array, k: ArrayOrTensor, own: Array) -> Array:
    """Return the variances of outputs, in units of that of the targets' noise over α; the constant's prior is flat.

    They are differences of large numbers where M is ill-conditioned: centring, and a factor in place of the inverse,
    keep their digits.

    Parameters
    ----------
    K : array of shape (n, n)
        The kernel between the samples of the machine; it is overwritten.
    ridge : ndarray of shape (n,)
        The diagonal of M − K.
    k : array of shape (m, n)
        The kernel between new samples and those of the machine.
    own : ndarray of shape (m,)
        k(x, x).
    """
    backend = backend_of(K)
    v = backend.asarray(centre(K))
    shift = (k - v).mean(1)
    k = k - v - shift[:, None]
    backend.diagonal_view(K)[...] += backend.asarray(ridge)
    factor = backend.cholesky(K)
    if factor is None:
        raise_of_rounding()
    lower = backend.invert_lower(factor)
    V, one = lower @ k.T, lower @ backend.asarray(np.ones(len(K)))
    left = backend.to_numpy(1.0 - one @ V) ** 2 / float(one @ one)
    return np.asarray(own - 2.0 * backend.to_numpy(shift) - backend.to_numpy((V * V).sum(0)) + left)


def _congruence(A: ArrayOrTensor, d: Array) -> ArrayOrTensor:
    """Return A diag(d) A for a symmetric A, by one product of a matrix with its transpose for each sign of d.

    Such a product takes half the operations, of which NumPy makes use.
    """
    backend, G = backend_of(A), None
    for sign in (1.0, -1.0):
        rows = np.flatnonzero(sign * d > 0)
        if len(rows):
            B = A[backend.index(rows)] if len(rows) < len(d) else backend.copy(A)
            B *= backend.asarray(np.sqrt(np.abs(d[rows])))[:, None]
            found = B.T @ B
            G = sign * found if G is None else G + sign * found
    return backend.zeros(tuple(A.shape)) if G is None else G


def squared_loss(r: Array, weight: Array) -> tuple[float, Array]:
    """Return ½ W c log(Σ_i w_i ‖r_i‖² / (W c)), W = Σ w, and its slopes in r.

    This is the loss of Gaussian residuals of the likeliest size, in nats. It does not depend on the unit of the targets
    but for a constant.
    """
    count = float(weight.sum()) * r.shape[1]
    mean = max(float(np.sum(weight[:, np.newaxis] * r**2)) / count, np.finfo(float).tiny)
    return 0.5 * count * float(np.log(mean)), weight[:, np.newaxis] * r / mean


def class_loss(r: Array, Y: Array, labels: NDArray[np.intp], scale: float, weight: Array) -> tuple[float, Array, float]:
    """Return Σ_i w_i log-loss of the outputs f = Y − r, its slopes in r, and that in log a.

    The loss is that of softmax(a f_i), or of the logistic function of a y_i f_i where there is one output.
    """
    f, n = Y - r, len(Y)
    if Y.shape[1] == 1:
        margin = Y * f
        losses = np.logaddexp(0.0, -scale * margin)[:, 0]
        df = -scale * Y * expit(-scale * margin)
    else:
        scores = scale * f
        losses = logsumexp(scores, axis=1) - scores[np.arange(n), labels]
        df = softmax(scores, axis=1)
        df[np.arange(n), labels] -= 1.0
        df *= scale
    df = weight[:, np.newaxis] * df
    return float(weight @ losses), -df, float(np.sum(df * f))


def evidence_value(system: RidgeSystem, Y: Array, beta: Array, noise: float | None = None) -> tuple[float, float]:
    """Return the negative log evidence, constants left out, of Gaussian targets with the covariance s² M, and s².

    s² is that of the largest evidence unless it is given; the constant has a flat prior (restricted likelihood).
    """
    n, c = Y.shape
    fit = max(float(np.sum(Y * beta)), 1e-30)  # of constant targets it is zero
    s2 = fit / ((n - 1) * c) if noise is None else noise
    return float(0.5 * fit / s2 + 0.5 * c * system.log_det + 0.5 * (n - 1) * c * np.log(s2)), s2


def evidence(system: RidgeSystem, Y: Array, noise: float | None = None) -> tuple[float, ArrayOrTensor]:
    """Return `evidence_value`, and its slope G in M."""
    beta = system.times(Y)
    value, s2 = evidence_value(system, Y, beta, noise)
    right = backend_of(system.A).asarray(beta)
    return value, (0.5 * Y.shape[1]) * system.A - right @ (right.T * (0.5 / s2))
