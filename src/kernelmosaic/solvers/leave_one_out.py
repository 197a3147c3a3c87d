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
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
from scipy.special import expit, logsumexp, softmax

from kernelmosaic._typing import Array, ArrayOrTensor, DType, Indices
from kernelmosaic.backend import backend_of
from kernelmosaic.gram.factored import FactoredGram, as_input
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.gram.stack import MatrixStack

#: Samples that are left out together; None where every sample is left out alone.
Groups = Sequence[Indices] | None


def _factorised(M: ArrayOrTensor, added: ArrayOrTensor, dtype: DType = None) -> Cholesky:
    """Return the factor of M + diag added; raises a ValueError if rounding leaves it indefinite."""
    try:
        return Cholesky(M, added, most=1e-4, dtype=dtype)
    except np.linalg.LinAlgError:
        raise_of_rounding()


def raise_of_rounding() -> NoReturn:
    """Raise a ValueError: what rounding makes of the kernels is larger than the ridge."""
    raise ValueError(
        "kernels: their entries are so large, or so similar, that the ridge alpha is lost in rounding; "
        "scale the columns (scale=True), use normalize='trace' or 'centered', or give a larger alpha."
    )


def combined_matrix(stack: MatrixStack, weights: Array) -> ArrayOrTensor:
    """Return K = Σ_m weights_m K_m in double precision, where the stack is."""
    K = stack.combine(weights).matrix
    if K is None:
        raise MemoryError(
            f"{stack.form}, but exact kernels need the combined matrix; raise memory_budget, or use "
            "approximation='nystroem'."
        )
    return backend_of(K).astype(K, np.float64)


def centre(K: ArrayOrTensor) -> Array:
    """Take 1vᵀ + v1ᵀ off a symmetric K such that 1 is an eigenvector, of the mean eigenvalue; return v.

    The machine stays the same but for its constant, as its coefficients sum to zero; a wide kernel, nearly constant,
    keeps the digits that its constant part hides in a linear system.
    """
    backend, n = backend_of(K), len(K)
    means = K.mean(0)
    v = means - 0.5 * float(means.mean())
    v -= 0.5 * float(K.diagonal().sum() - 2.0 * v.sum()) / n**2
    K -= v
    K -= v[:, None]
    return np.asarray(backend.to_numpy(v))


class System:
    """A = M⁻¹ − M⁻¹1 1ᵀM⁻¹ / 1ᵀM⁻¹1 of M = K + diag(ridge), in whatever form K is known.

    Every form has `times(V)`, A V in the precision of V, which is on the host or where K is; `block(S)`, A_SS; and

    Attributes
    ----------
    log_det : float
        log det M + log 1ᵀM⁻¹1.
    diagonal : ndarray of shape (n,)
        That of A.
    constants : ndarray of shape (n,)
        What targets count for the constant of their machine: b = ⟨constants, y⟩.
    """

    def residuals(self: Any, beta: ArrayOrTensor, groups: Groups = None) -> Any:
        """Return the residuals β_i / A_ii of samples left out, or A_SS⁻¹ β_S of those left out together."""
        backend = backend_of(beta)
        place = partial(backend.asarray, dtype=backend.dtype(beta))
        if groups is None:
            return beta / place(self.diagonal)[:, None]
        r = backend.zeros(beta.shape, backend.dtype(beta))
        for S in groups:
            rows = backend.index(S)
            r[rows] = place(np.linalg.inv(self.block(S))) @ beta[rows]
        return r


@dataclass(frozen=True)
class RidgeSystem(System):
    """The system of a matrix K.

    Attributes
    ----------
    factor : Cholesky
        That of the centred M, where K is: on the host or on a device.
    offset : ndarray of shape (n,)
        v of `centre`.
    """

    factor: Cholesky
    offset: Array

    @classmethod
    def of(cls, K: ArrayOrTensor, ridge: Array) -> RidgeSystem:
        """Factorise M; K is centred in place."""
        return cls.of_centred(K, centre(K), ridge)

    @classmethod
    def of_centred(cls, K: ArrayOrTensor, offset: Array, ridge: Array, dtype: DType = None) -> RidgeSystem:
        """Factorise M in a precision, by default that of K, which is centred."""
        return cls(_factorised(K, backend_of(K).asarray(ridge), dtype), offset)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the factor."""
        return self.factor.backend.dtype(self.factor.factor)

    def _solve(self, right: Array) -> Array:
        """Return M⁻¹ times columns of the host, in the precision of the factor."""
        backend = self.factor.backend
        return np.asarray(backend.to_numpy(self.factor.solve(backend.asarray(right, self.dtype))), dtype=np.float64)

    @cached_property
    def ones(self) -> Array:
        """M⁻¹1 of the centred M."""
        return self._solve(np.ones(len(self.offset)))

    @cached_property
    def log_det(self) -> float:
        """The sum log det M + log 1ᵀM⁻¹1."""
        return self.factor.log_det + float(np.log(self.ones.sum()))

    @cached_property
    def A(self) -> ArrayOrTensor:
        """M⁻¹ − M⁻¹1 1ᵀM⁻¹ / 1ᵀM⁻¹1, where K is."""
        A = self.factor.inverse()
        ones = A.sum(1)
        A -= ones[:, None] * (ones / ones.sum())
        return A

    @cached_property
    def diagonal(self) -> Array:
        """The diagonal of A; by L⁻¹, at a third of the operations, where A is not known."""
        backend = self.factor.backend
        if "A" in self.__dict__:
            return np.asarray(backend.to_numpy(self.A.diagonal()))
        root = self.factor.inverse_root()
        squares = backend.to_numpy(backend.xp.einsum("ij,ij->j", root, root))
        return np.asarray(squares - self.ones**2 / self.ones.sum())

    @cached_property
    def constants(self) -> Array:
        """What targets count for their constant."""
        return np.asarray(self.ones / self.ones.sum() - self.solve(self.offset[:, np.newaxis])[:, 0])

    def times(self, V: ArrayOrTensor) -> ArrayOrTensor:
        """Return A V."""
        backend = self.factor.backend
        placed = backend.asarray(V, None)
        return as_input(V, backend.astype(self.A, backend.dtype(placed)) @ placed, backend)

    def solve(self, Y: Array) -> Array:
        """Return A Y by the factor, with the digits that the inverse of an ill-conditioned M loses."""
        # Constants are nothing to A, and large next to what rounding leaves of them.
        X = self._solve(Y - Y.mean(axis=0))
        X = X - np.outer(self.ones, X.sum(axis=0) / self.ones.sum())
        return np.asarray(X - X.mean(axis=0))

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

    def slope(self, beta: Array, r: Array, g: Array, groups: Groups = None) -> ArrayOrTensor:
        """Return G for losses of the residuals with the slopes g."""
        A, backend, u = self.A, self.factor.backend, self.residuals(g, groups)
        if groups is None:
            G = _congruence(A, (u * r).sum(axis=1))
        else:
            middle = backend.zeros(tuple(A.shape))
            for S in groups:
                D = u[S] @ r[S].T
                rows = backend.index(S)
                middle[rows] = backend.asarray(0.5 * (D + D.T)) @ A[rows]
            G = A @ middle
        left, right = backend.asarray(self.times(u)), backend.asarray(beta)
        across = left @ (0.5 * right.T)
        G -= across
        G -= across.T
        return G

    def slope_diagonal(self, beta: Array, r: Array, g: Array, groups: Groups = None) -> Array:
        """Return the diagonal of G alone, which takes n² operations where every sample is left out alone."""
        backend = self.factor.backend
        if groups is not None:
            return np.asarray(backend.to_numpy(self.slope(beta, r, g, groups).diagonal()))
        u = self.residuals(g)
        squares = backend.xp.einsum("ij,ij,j->i", self.A, self.A, backend.asarray((u * r).sum(axis=1), self.dtype))
        across = self.times(u.astype(self.dtype))
        return np.asarray(backend.to_numpy(squares) - np.sum(across * beta, axis=1))

    def block(self, S: Indices) -> Array:
        """Return A_SS."""
        backend = self.factor.backend
        rows = backend.index(S)
        return np.asarray(backend.to_numpy(backend.take_block(self.A, rows, rows)))


def with_constant(factors: FactoredGram, rows: Indices) -> ArrayOrTensor:
    """Return [Z, 1] of some samples in double precision: rounding hides slopes where α is small."""
    Z = factors.placed_rows(rows)
    return factors.backend.xp.concatenate([Z, factors.backend.asarray(np.ones((len(rows), 1)))], 1)


@dataclass(frozen=True)
class FeatureInverse:
    """B = (Φᵀ diag(w) Φ + αJ)⁻¹ of features Φ = [Z √η, 1], where J = diag(1, …, 1, 0) and the ridge is α/w.

    Attributes
    ----------
    root : array of shape (features + 1,)
        √η of every feature, and one of the constant.
    B : array of shape (features + 1, features + 1)
        Where the features are, as `root` is.
    alpha : float
        α.
    log_det : float
        As in `System`.
    """

    root: ArrayOrTensor
    B: ArrayOrTensor
    alpha: float
    log_det: float

    @classmethod
    def of(cls, normal: ArrayOrTensor, eta: Array, weight: Array, alpha: float = 1.0) -> FeatureInverse:
        """Invert, where [Z, 1]ᵀ diag(w) [Z, 1] is known."""
        place = backend_of(normal).asarray
        root = place(np.append(np.sqrt(eta), 1.0))
        factor = _factorised(root[:, None] * normal * root, place(np.append(np.full(len(eta), alpha), 0.0)))
        log_det = factor.log_det + (len(weight) - len(root)) * np.log(alpha) - float(np.log(weight).sum())
        return cls(root, factor.inverse(), alpha, log_det)

    def covariance(self) -> Array:
        """Return α B in features that are not weighted: the variance of an output is φᵀ α B φ, φ = [z_m(x), 1]."""
        return np.asarray(backend_of(self.B).to_numpy(self.alpha * self.root[:, None] * self.B * self.root))

    def system(self, Z: ArrayOrTensor, weight: Array) -> FeatureSystem:
        """Return the system between some samples with the features [Z, 1]."""
        Phi = Z * self.root
        return FeatureSystem(Phi, Phi @ self.B, weight, self.alpha, self.log_det)


@dataclass(frozen=True)
class FeatureSystem(System):
    """The system in features: A = diag(w/α) (I − Φ B Φᵀ diag(w)), or its rows and columns of some samples.

    Attributes
    ----------
    Phi, T : array of shape (n, features + 1)
        Φ and ΦB.
    weight : ndarray of shape (n,)
        w.
    alpha : float
        α.
    """

    Phi: ArrayOrTensor
    T: ArrayOrTensor
    weight: Array
    alpha: float
    log_det: float

    @cached_property
    def diagonal(self) -> Array:
        """The diagonal of A."""
        leverage = self.weight * backend_of(self.T).to_numpy((self.T * self.Phi).sum(1))
        return np.asarray(self.weight / self.alpha * np.maximum(1.0 - leverage, np.finfo(float).eps))

    @cached_property
    def constants(self) -> Array:
        """What targets count for their constant."""
        return np.asarray(self.weight * backend_of(self.T).to_numpy(self.T[:, -1]))

    def times(self, V: ArrayOrTensor) -> ArrayOrTensor:
        """Return A V."""
        backend = backend_of(self.T)
        X = backend.asarray(V, None)
        T, Phi, w = (backend.asarray(one, backend.dtype(X)) for one in (self.T, self.Phi, self.weight[:, np.newaxis]))
        return as_input(V, w / self.alpha * (X - T @ (Phi.T @ (w * X))), backend)

    def block(self, S: Indices) -> Array:
        """Return A_SS."""
        rows, w = backend_of(self.T).index(S), self.weight[S]
        product = backend_of(self.T).to_numpy(self.T[rows] @ self.Phi[rows].T)
        return np.asarray((w / self.alpha)[:, np.newaxis] * (np.eye(len(w)) - product * w))

    def squares(self, left: Array, right: Array, groups: Groups = None) -> Array:
        """Return the sum over the groups of Σ_c (T_Sᵀ left_S)_c (T_Sᵀ right_S)_c, one number per feature."""
        backend = backend_of(self.T)
        if groups is None:
            return backend.to_numpy((self.T * self.T).T @ backend.asarray(np.sum(left * right, axis=1)))
        T = backend.to_numpy(self.T)
        return np.asarray(sum(((T[S].T @ left[S]) * (T[S].T @ right[S])).sum(axis=1) for S in groups))


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
    backend, system = backend_of(K), RidgeSystem.of(K, ridge)
    k = k - backend.asarray(system.offset)
    shift = k.mean(1)
    k = k - shift[:, None]
    V = system.factor.inverse_root() @ k.T
    left = (1.0 - backend.to_numpy(k) @ system.ones) ** 2 / system.ones.sum()
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


def class_loss(r: Array, Y: Array, labels: Indices, scale: float, weight: Array) -> tuple[float, Array, float]:
    """Return Σ_i w_i log-loss of the outputs f = Y − r, its slopes in r, and that in log a.

    The loss is that of softmax(a f_i), or of the logistic function of a y_i f_i where there is one output.
    """
    f = Y - r
    if Y.shape[1] == 1:
        margin = scale * Y * f
        loss = float(weight @ np.logaddexp(0.0, -margin)[:, 0])
        df = -weight[:, np.newaxis] * Y * expit(-margin)
    else:
        loss, df = softmax_loss(scale * f, labels, weight)
    return loss, -scale * df, scale * float(np.sum(df * f))


def softmax_loss(scores: Array, labels: Indices, weight: Array) -> tuple[float, Array]:
    """Return Σ_i w_i log-loss of softmax(scores), one column per class, and its slopes in the scores."""
    every = np.arange(len(scores))
    slope = softmax(scores, axis=1)
    slope[every, labels] -= 1.0
    return float(weight @ (logsumexp(scores, axis=1) - scores[every, labels])), weight[:, np.newaxis] * slope


def evidence_value(fit: float, log_det: float, n: int, c: int, noise: float | None = None) -> tuple[float, float]:
    """Return the negative log evidence, constants left out, of Gaussian targets with the covariance s² M, and s².

    s² is that of the largest evidence unless it is given; the constant has a flat prior (restricted likelihood).

    Parameters
    ----------
    fit : float
        tr(Yᵀ A Y) of n samples and c targets.
    log_det : float
        As in `System`.
    n, c : int
        The shape of Y.
    noise : float, optional
        s².
    """
    s2 = fit / ((n - 1) * c) if noise is None else noise
    return float(0.5 * fit / s2 + 0.5 * c * log_det + 0.5 * (n - 1) * c * np.log(s2)), s2


def evidence(system: RidgeSystem, Y: Array, noise: float | None = None) -> tuple[float, ArrayOrTensor]:
    """Return `evidence_value`, and its slope G in M."""
    beta, c = system.times(Y), Y.shape[1]
    value, s2 = evidence_at(system, Y, beta, noise)
    right = backend_of(system.A).asarray(beta)
    return value, (0.5 * c) * system.A - right @ (right.T * (0.5 / s2))


def evidence_diagonal(system: RidgeSystem, Y: Array, beta: Array) -> Array:
    """Return the diagonal of G alone."""
    s2 = evidence_at(system, Y, beta)[1]
    return np.asarray(0.5 * Y.shape[1] * system.diagonal - (0.5 / s2) * np.sum(beta**2, axis=1))


def evidence_at(system: RidgeSystem, Y: Array, beta: Array, noise: float | None = None) -> tuple[float, float]:
    """Return `evidence_value` of the coefficients β = A Y, without A."""
    fit = max(float(np.sum(Y * beta)), 1e-30)  # of constant targets it is zero
    return evidence_value(fit, system.log_det, len(Y), Y.shape[1], noise)
