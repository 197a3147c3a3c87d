"""The least-squares machine at given weights and ridge, and its criteria.

The criteria are its leave-one-out error and its evidence, each with derivatives.

The machine minimises ½ Σ_i w_i ‖y_i − f(x_i) − b‖² / α + ½ ‖f‖² in the function space of K. With M
= K + α diag(1/w) and the constant b eliminated, A = M⁻¹ − M⁻¹1 1ᵀM⁻¹ / 1ᵀM⁻¹1, the coefficients are
β = A Y, and a sample that is left out has the residual r_i = β_i / A_ii; samples that are left out
together have r_S = A_SS⁻¹ β_S. No machine is solved again.

Every criterion L gives one n × n matrix G with dL = ⟨G, dM⟩, whatever the number of kernels and
parameters of M:

- evidence, ½ tr(Yᵀ A Y) / s² + (c/2)(log det M + log 1ᵀM⁻¹1) + (n − 1) c log s:  G = ½ (c A − β βᵀ
  / s²);
- a sum of losses of r, with g = ∂L/∂r:  G = A D A − ½ (A u βᵀ + β uᵀ A), where u_S = A_SS⁻¹ g_S,
  and D has the blocks D_SS = ½ (u_S r_Sᵀ + r_S u_Sᵀ), which is diag(u_i r_i) where every sample is
  left out alone.

K is stored in one of two ways. `LeastSquares` is the interface of both:

- `MatrixLeastSquares`: by its n × n matrix, of which M is factorised;
- `FeatureLeastSquares`: by features K = Z diag(η) Zᵀ, fewer than the samples. Φ = [Z √η, 1] holds
  the constant as one more feature, without a penalty: J = diag(1, …, 1, 0). Then, with
  B = (Φᵀ diag(w) Φ + αJ)⁻¹, A = diag(w/α)(I − Φ B Φᵀ diag(w)). Where features are centred,
  Z̃ = Z − 1μᵀ with Z̃ᵀw = 0, the constant is orthogonal to all others, and B has one block for
  these and 1 / Σ w.

Such a system belongs to one choice of weights and ridge, and never changes. `MatrixForm` and
`FeatureForm` hold the data that all choices share, and `at(weights, alpha)` returns the system of
one choice. `judge` returns the criterion and its derivatives at a `RidgePoint`, `machine` the
machine there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from scipy.special import expit, logsumexp, softmax

from kernelmosaic._typing import Array, ArrayOrTensor, DType, Indices
from kernelmosaic.backend import backend_of, row_strips
from kernelmosaic.gram.factored import FactoredGram
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.gram.gram import as_input
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.gram.stack import MatrixStack
from kernelmosaic.kernels.numeric import RadialWidths
from kernelmosaic.solvers.tuning import (
    CONSTANT_FEATURE,
    LARGEST_RIDGE_JITTER,
    LARGEST_RIDGE_RESIDUAL,
    LEAST_FIT,
    LEAST_LEFT_OF_CENTRED,
    LEVERAGE_ENTRIES,
    RIDGE_REFINEMENTS,
)

#: Samples that are left out together; None where every sample is left out alone.
Groups = Sequence[Indices] | None
#: From the residuals of samples left out, (n, c), and the scale a of outputs, to the loss, its
#: derivatives in the residuals, (n, c), and its derivative in log a.
Loss = Callable[[Array, float], tuple[float, Array, float]]


# Values -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RidgePoint:
    """A point of the search: weights η, ridge α, scale a and the logarithms of learned widths.

    `log_widths` has an entry for each kernel with learned widths, by the number of the kernel.
    """

    weights: Array
    alpha: float
    scale: float
    log_widths: dict[int, Array]


@dataclass(frozen=True)
class Judged:
    """The value of a criterion at a `RidgePoint`, and its derivatives.

    Attributes
    ----------
    value : float
        The criterion.
    weights : ndarray of shape (P,)
        The derivatives in log η.
    alpha, scale : float
        The derivatives in log α and log a.
    widths : tuple of ndarray
        The derivatives in the logarithms of the widths, of each kernel whose widths are learned.
    """

    value: float
    weights: Array
    alpha: float
    scale: float = 0.0
    widths: tuple[Array, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RidgeMachine:
    """The machine at given weights and ridge.

    Attributes
    ----------
    beta, intercept : ndarray of shape (n, c) and (c,)
        The coefficients and the constants of the outputs.
    residuals : ndarray of shape (n, c)
        The residuals of samples left out.
    value : float
        The criterion.
    sums, covariance : ndarray of shape (features, c) and (features + 1, features + 1), or None
        Of kernels in features: Z_mᵀ β of all kernels, one below the other, computed with more
        digits than β has; and `FeatureLeastSquares.covariance`.
    unsolved : float
        The relative residual of the linear systems of kernels of pairs where it exceeds
        `RidgeOptions.product_residual`; else zero.
    """

    beta: Array
    intercept: Array
    residuals: Array
    value: float
    sums: Array | None = None
    covariance: Array | None = None
    unsolved: float = 0.0


# Matrices -----------------------------------------------------------------------------------------


def _factorised(M: ArrayOrTensor, added: ArrayOrTensor, dtype: DType = None) -> Cholesky:
    """Return the factor of M + diag added.

    A ValueError is raised if rounding leaves it indefinite.
    """
    try:
        return Cholesky(M, added, most=LARGEST_RIDGE_JITTER, dtype=dtype)
    except np.linalg.LinAlgError:
        raise_of_rounding()


def raise_of_rounding() -> NoReturn:
    """Raise a ValueError that says that the rounding of the kernels exceeds the ridge."""
    raise ValueError(
        "kernels: their entries are so large, or so similar, that the ridge alpha is lost in"
        " rounding; scale the columns (scale=True), use normalize='trace' or 'centered', or give a"
        " larger alpha."
    )


def combined_matrix(stack: MatrixStack, weights: Array) -> ArrayOrTensor:
    """Return K = Σ_m weights_m K_m in double precision, on the device of the stack."""
    K = stack.combine(weights).matrix
    if K is None:
        raise MemoryError(
            f"{stack.form}, but exact kernels need the combined matrix; raise memory_budget, or use"
            " approximation='nystroem'."
        )
    return backend_of(K).astype(K, np.float64)


def centre(K: ArrayOrTensor) -> Array:
    """Subtract 1vᵀ + v1ᵀ from a symmetric K in place, and return v.

    v is such that 1 becomes an eigenvector, with the mean of the eigenvalues. The machine stays the
    same but for its constant, as its coefficients sum to zero. The constant part of a wide kernel,
    which is nearly constant, would hide digits of the linear system.
    """
    backend = backend_of(K)
    n = len(K)
    means = K.mean(0)
    v = means - 0.5 * float(means.mean())
    v -= 0.5 * float(K.diagonal().sum() - 2.0 * v.sum()) / n**2
    K -= v
    K -= v[:, None]
    return np.asarray(backend.to_numpy(v))


# Systems at given weights and ridge ---------------------------------------------------------------


class LeastSquares(ABC):
    """A = M⁻¹ − M⁻¹1 1ᵀM⁻¹ / 1ᵀM⁻¹1 of M = K + α diag(1/w), for any form of K."""

    @property
    @abstractmethod
    def log_det(self) -> float:
        """The sum log det M + log 1ᵀM⁻¹1."""

    @property
    @abstractmethod
    def diagonal(self) -> Array:
        """The diagonal of A."""

    @property
    @abstractmethod
    def constants(self) -> Array:
        """The vector c for which b = ⟨c, y⟩ is the constant of the machine of targets y."""

    @abstractmethod
    def times(self, V: ArrayOrTensor) -> ArrayOrTensor:
        """Return A V in the precision of V, on the device of V: the host, or that of K."""

    @abstractmethod
    def block(self, S: Indices) -> Array:
        """Return A_SS."""

    def residuals(self, beta: Any, groups: Groups = None) -> Any:
        """Return the residuals β_i / A_ii of samples left out, or A_SS⁻¹ β_S of groups left out.

        Parameters
        ----------
        beta : array of shape (n, c)
            A Y for residuals. Any other matrix is divided by the diagonal, or blocks, of A, too.
        groups : sequence of ndarray, optional
            The samples that are left out together, every sample in one group; by default each is
            left out alone.

        Returns
        -------
        array of shape (n, c)
            In the precision and on the device of `beta`.
        """
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
class MatrixLeastSquares(LeastSquares):
    """The system of a matrix K.

    Attributes
    ----------
    factor : Cholesky
        The factor of the centred M, on the host or on the device of K.
    offset : ndarray of shape (n,)
        v of `centre`.
    """

    factor: Cholesky
    offset: Array

    @classmethod
    def of(cls, K: ArrayOrTensor, ridge: Array) -> MatrixLeastSquares:
        """Return the system of K, which is centred in place, and a ridge α/w per sample."""
        return cls.of_centred(K, centre(K), ridge)

    @classmethod
    def of_centred(
        cls, K: ArrayOrTensor, offset: Array, ridge: Array, dtype: DType = None
    ) -> MatrixLeastSquares:
        """Return the system of a centred K, factorised in a precision, by default that of K."""
        return cls(_factorised(K, backend_of(K).asarray(ridge), dtype), offset)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the factor."""
        return self.factor.backend.dtype(self.factor.factor)

    def _solve(self, right: Array) -> Array:
        """Return M⁻¹ times columns of the host, solved in the precision of the factor."""
        backend = self.factor.backend
        solution = self.factor.solve(backend.asarray(right, self.dtype))
        return np.asarray(backend.to_numpy(solution), dtype=np.float64)

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
        """M⁻¹ − M⁻¹1 1ᵀM⁻¹ / 1ᵀM⁻¹1, on the device of K."""
        A = self.factor.inverse()
        ones = A.sum(1)
        A -= ones[:, None] * (ones / ones.sum())
        return A

    @cached_property
    def diagonal(self) -> Array:
        """The diagonal of A; from L⁻¹, which takes a third of the operations of A."""
        backend = self.factor.backend
        has_A = "A" in self.__dict__
        if has_A:
            return np.asarray(backend.to_numpy(self.A.diagonal()))
        root = self.factor.inverse_root()
        squares = backend.to_numpy(backend.xp.einsum("ij,ij->j", root, root))
        return np.asarray(squares - self.ones**2 / self.ones.sum())

    @cached_property
    def constants(self) -> Array:
        solved_offset = self.solve(self.offset[:, np.newaxis])[:, 0]
        return np.asarray(self.ones / self.ones.sum() - solved_offset)

    def times(self, V: ArrayOrTensor) -> ArrayOrTensor:
        """Return A V."""
        backend = self.factor.backend
        placed = backend.asarray(V, None)
        return as_input(V, backend.astype(self.A, backend.dtype(placed)) @ placed, backend)

    def solve(self, Y: Array) -> Array:
        """Return A Y by solves with the factor, which keep digits that the inverse A loses."""
        # A maps constants to zero. Subtracted first, they leave no rounding.
        X = self._solve(Y - Y.mean(axis=0))
        X = X - np.outer(self.ones, X.sum(axis=0) / self.ones.sum())
        return np.asarray(X - X.mean(axis=0))

    def influence(self, k: ArrayOrTensor) -> Array:
        """Return the matrix of the h(x) such that outputs are f(x) = h(x)ᵀ y, of shape (m, n).

        Parameters
        ----------
        k : array of shape (m, n)
            The kernel between samples x and those of the machine, on the device of A.
        """
        backend = backend_of(k)
        without_constant = (k - backend.asarray(self.offset)) @ self.A
        return np.asarray(backend.to_numpy(without_constant) + self.ones / self.ones.sum())

    def slope(self, beta: Array, r: Array, g: Array, groups: Groups = None) -> ArrayOrTensor:
        """Return G = A D A − ½ (A u βᵀ + β uᵀ A), the gradient of a sum of losses in M.

        Parameters
        ----------
        beta, r, g : ndarray of shape (n, c)
            Coefficients, residuals of samples left out, and derivatives of the losses in them.
        groups : sequence of ndarray, optional
            The samples that are left out together.
        """
        A = self.A
        backend = self.factor.backend
        u = self.residuals(g, groups)
        if groups is None:
            G = _congruence(A, (u * r).sum(axis=1))
        else:
            D_A = backend.zeros(tuple(A.shape))
            for S in groups:
                outer = u[S] @ r[S].T
                rows = backend.index(S)
                D_A[rows] = backend.asarray(0.5 * (outer + outer.T)) @ A[rows]
            G = A @ D_A
        A_u = backend.asarray(self.times(u))
        across = A_u @ (0.5 * backend.asarray(beta).T)
        G -= across
        G -= across.T
        return G

    def slope_diagonal(self, beta: Array, r: Array, g: Array, groups: Groups = None) -> Array:
        """Return the diagonal of G, the matrix of `slope`.

        It takes n² operations where every sample is left out alone.
        """
        backend = self.factor.backend
        if groups is not None:
            return np.asarray(backend.to_numpy(self.slope(beta, r, g, groups).diagonal()))
        u = self.residuals(g)
        D = backend.asarray((u * r).sum(axis=1), self.dtype)
        squares = backend.xp.einsum("ij,ij,j->i", self.A, self.A, D)
        across = self.times(u.astype(self.dtype))
        return np.asarray(backend.to_numpy(squares) - np.sum(across * beta, axis=1))

    def block(self, S: Indices) -> Array:
        """Return A_SS."""
        backend = self.factor.backend
        rows = backend.index(S)
        return np.asarray(backend.to_numpy(backend.take_block(self.A, rows, rows)))

    def responses(self, V: Array) -> Array:
        """Return Σ_j V_ijᵀ A V_lj for all pairs (i, l) of stacked matrices V_i.

        Each V_i has shape (n, k), and V_ij is its column j.
        """
        count, n, k = V.shape
        columns = V.transpose(1, 0, 2).reshape(n, -1)
        A_V = self.solve(columns).reshape(n, count, k)
        return np.asarray(np.tensordot(V, A_V, ([1, 2], [0, 2])))


@dataclass(frozen=True)
class FeatureLeastSquares(LeastSquares):
    """The system in features: A = diag(w/α)(I − Φ B Φᵀ diag(w)).

    Rows and columns of A are those of the samples in Φ, which may be some of all samples.

    Attributes
    ----------
    used : ndarray of shape (used,) or None
        The numbers of the features in Φ; None if these are all.
    root : array of shape (used + 1,)
        √η of every feature in Φ, and one of the constant.
    factor : Cholesky
        The factor of Φᵀ diag(w) Φ + αJ; of centred features without the constant.
    B : array of shape (used + 1, used + 1), or None
        The inverse of that matrix. None where features are centred: solves by the factor are
        refined to the last digit, and few right-hand sides take fewer operations than an inverse.
    alpha : float
        α.
    means : ndarray of shape (used,), or None
        μ √η, where features are centred.
    n_samples, total, log_weights : int, float, float
        The number of all samples, Σ w, and Σ log w.
    weight : ndarray of shape (samples,)
        w of the samples in Φ.
    Phi : array of shape (samples, used + 1), or None
        Φ; None as long as no rows and columns of A are needed.
    """

    used: Indices | None
    root: ArrayOrTensor
    factor: Cholesky
    B: ArrayOrTensor | None
    alpha: float
    means: Array | None
    n_samples: int
    total: float
    log_weights: float
    weight: Array
    Phi: ArrayOrTensor | None = None

    @property
    def log_det(self) -> float:
        n_free = self.n_samples - len(self.root)
        log_det = self.factor.log_det + n_free * np.log(self.alpha) - self.log_weights
        if self.B is None:  # the constant is not in the factor
            log_det += np.log(self.total)
        return float(log_det)

    @cached_property
    def T(self) -> ArrayOrTensor:
        """Φ B."""
        assert self.Phi is not None
        if self.B is not None:
            return self.Phi @ self.B
        of_features = self.factor.solve(self.Phi[:, :-1].T).T
        return self.factor.backend.xp.concatenate([of_features, self.Phi[:, -1:] / self.total], 1)

    @cached_property
    def leverage(self) -> Array:
        """The diagonal of Φ B Φᵀ diag(w)."""
        return np.asarray(self.weight * backend_of(self.T).to_numpy((self.T * self.Phi).sum(1)))

    @cached_property
    def diagonal(self) -> Array:
        least_left = LEAST_LEFT_OF_CENTRED if self.B is None else np.finfo(float).eps
        return np.asarray(self.weight / self.alpha * np.maximum(1.0 - self.leverage, least_left))

    @cached_property
    def constants(self) -> Array:
        column = self.T[:, -1]
        if self.means is not None:
            # Outputs of features that are not centred are larger by ⟨μ √η, θ⟩.
            column = column - self.T[:, :-1] @ self.means
        return np.asarray(self.weight * backend_of(self.T).to_numpy(column))

    def times(self, V: ArrayOrTensor) -> ArrayOrTensor:
        backend = backend_of(self.T)
        X = backend.asarray(V, None)
        place = partial(backend.asarray, dtype=backend.dtype(X))
        T = place(self.T)
        Phi = place(self.Phi)
        w = place(self.weight[:, np.newaxis])
        return as_input(V, w / self.alpha * (X - T @ (Phi.T @ (w * X))), backend)

    def block(self, S: Indices) -> Array:
        assert self.Phi is not None
        backend = backend_of(self.T)
        rows = backend.index(S)
        w = self.weight[S]
        product = backend.to_numpy(self.T[rows] @ self.Phi[rows].T)
        return np.asarray((w / self.alpha)[:, np.newaxis] * (np.eye(len(w)) - product * w))

    def of_samples(self, Phi: ArrayOrTensor, weight: Array) -> FeatureLeastSquares:
        """Return the rows and columns of the system that belong to samples with these Φ and w."""
        return replace(self, Phi=Phi, weight=weight)

    def coefficients(self, Y: Array, theta: Array) -> Array:
        """Return β = (Y − Φθ) w/α of the samples in Φ.

        Parameters
        ----------
        Y : ndarray of shape (samples, c)
            Their targets.
        theta : ndarray of shape (used + 1, c)
            The machine θ = B Φᵀ diag(w) Y of all samples.
        """
        assert self.Phi is not None
        backend = backend_of(self.Phi)
        outputs = backend.to_numpy(self.Phi @ backend.asarray(theta))
        return np.asarray((self.weight / self.alpha)[:, np.newaxis] * (Y - outputs))

    def covariance(self) -> Array:
        """Return C = α B in features that are not weighted.

        An output has the variance φᵀ C φ, φ = [z_m(x), 1].
        """
        assert self.B is not None
        weighted = self.alpha * self.root[:, None] * self.B * self.root
        return np.asarray(self.factor.backend.to_numpy(weighted))

    def slopes(
        self, beta: Array, r: Array, g: Array, theta: Array, groups: Groups = None
    ) -> tuple[Array, float]:
        """Return the derivatives of a sum of losses in log η of every feature, and in log α.

        Parameters
        ----------
        beta, r, g : ndarray of shape (samples, c)
            Coefficients, residuals and derivatives of the losses, of the samples in Φ.
        theta : ndarray of shape (used + 1, c)
            The machine of all samples.
        groups : sequence of ndarray, optional
            The samples in Φ that are left out together.
        """
        w = self.weight[:, np.newaxis]
        R = len(theta) - 1
        backend = backend_of(self.T)
        u = self.residuals(g, groups)
        squares = self._squares(w * u, w * r, groups)
        across = backend.to_numpy(self.T.T @ backend.asarray(w * u))
        in_log_eta = squares[:R] - np.sum(across[:R] * theta[:R], axis=1)
        # Σ ridge_i (A u)_i β_i = Σ u_i (β_i − w_i T_i Φᵀβ), where Φᵀβ is θ but for the constant,
        # which is zero.
        of_ridge = float(np.sum(u * beta)) - float(np.sum(across[:R] * theta[:R]))
        in_log_alpha = float(np.sum(g * r)) - float(squares[:R].sum()) - of_ridge
        return in_log_eta, in_log_alpha

    def _squares(self, left: Array, right: Array, groups: Groups = None) -> Array:
        """Return Σ_S Σ_c (T_Sᵀ left_S)_c (T_Sᵀ right_S)_c over the groups S, per feature."""
        backend = backend_of(self.T)
        if groups is None:
            products = backend.asarray(np.sum(left * right, axis=1))
            return backend.to_numpy((self.T * self.T).T @ products)
        T = backend.to_numpy(self.T)
        by_group = (((T[S].T @ left[S]) * (T[S].T @ right[S])).sum(axis=1) for S in groups)
        return np.asarray(sum(by_group))

    def responses(self, inner: Array, sums: Array) -> Array:
        """Return Σ_j V_ijᵀ A V_lj for all pairs (i, l) of matrices V_i, in centred features.

        The columns of every V_i sum to zero, and all samples weigh one.

        Parameters
        ----------
        inner : ndarray of shape (count, count)
            Σ_j V_ijᵀ V_lj.
        sums : ndarray of shape (count, features, k)
            Z̃ᵀ V_i.
        """
        # (V_iᵀV_l − V_iᵀΦ B ΦᵀV_l) / α; the constant, orthogonal to all V_i, adds nothing.
        roots = self.root[:-1, np.newaxis]
        Phi_V = (roots * sums[:, self.used]).transpose(1, 0, 2).reshape(len(roots), -1)
        shape = (len(roots), len(sums), -1)
        B_Phi_V = self.factor.solve(Phi_V).reshape(shape)
        explained = np.einsum("dij,dlj->il", Phi_V.reshape(shape), B_Phi_V)
        return np.asarray((inner - explained) / self.alpha)


# Forms: the data from which systems at any weights are made ---------------------------------------


@dataclass(frozen=True)
class MatrixForm:
    """Kernels in matrices of all pairs of samples: a system takes n³ operations.

    Attributes
    ----------
    stack : MatrixStack
        The kernels.
    weight : ndarray of shape (n,)
        w, of the samples.
    Y : ndarray of shape (n, c), or None
        Targets of the machines.
    groups : sequence of ndarray, or None
        Samples that are left out together.
    widths : dict of int to RadialWidths
        The kernels whose widths are learned: their matrices are computed anew at every point.
    dtype : dtype
        The precision of `products`.
    """

    stack: MatrixStack
    weight: Array
    Y: Any = None
    groups: Groups = None
    widths: Mapping[int, RadialWidths] = field(default_factory=dict)
    dtype: DType = np.float64

    def at(self, weights: Array, alpha: float = 1.0) -> MatrixLeastSquares:
        """Return the system of the stack at weights and ridge; learned widths are not read."""
        return MatrixLeastSquares.of(combined_matrix(self.stack, weights), alpha / self.weight)

    def judge(self, point: RidgePoint, loss: Loss | None) -> Judged:
        """Return the criterion and its derivatives at a point.

        Parameters
        ----------
        point : RidgePoint
            Weights, ridge, scale and widths.
        loss : Loss, or None
            The loss of the residuals of samples left out; None for the evidence.
        """
        ridge = point.alpha / self.weight
        in_scale = 0.0

        # 1. The criterion and its gradient G in M.
        K, learned_kernels = self.combine(point)
        system = MatrixLeastSquares.of(K, ridge)
        if loss is None:
            value, G = evidence(system, self.Y)
        else:
            beta = system.times(self.Y)
            r = system.residuals(beta, self.groups)
            value, g, in_scale = loss(r, point.scale)
            G = system.slope(beta, r, g, self.groups)

        # 2. The derivatives ⟨G, K_m⟩ in the weights, by the stack for matrices that it holds.
        kernels_of_stack = None
        if learned_kernels:
            kernels_of_stack = np.setdiff1d(np.arange(self.stack.n_kernels), [*learned_kernels])
        in_eta = self.stack.inner_products(G, kernels_of_stack)
        in_widths: list[Array] = []
        for m, matrix in learned_kernels.items():
            matrix *= G
            in_eta[m] = float(matrix.sum())
            in_log_widths = self.widths[m].slopes(point.log_widths[m], matrix)
            in_widths.append(point.weights[m] * in_log_widths)

        # 3. The derivatives in logarithms.
        in_alpha = float(ridge @ backend_of(G).to_numpy(G.diagonal()))
        return Judged(value, point.weights * in_eta, in_alpha, in_scale, tuple(in_widths))

    def residuals_left_out(self, point: RidgePoint) -> Array:
        """Return the residuals of samples left out, of shape (n, c)."""
        system = MatrixLeastSquares.of(self.combine(point)[0], point.alpha / self.weight)
        return np.asarray(system.residuals(system.solve(self.Y), self.groups))

    def machine(self, point: RidgePoint, loss: Loss | None) -> RidgeMachine:
        """Return the machine at a point.

        Parameters
        ----------
        point : RidgePoint
            Its weights and ridge.
        loss : Loss, or None
            The loss of the residuals of all samples left out, which is the machine's value; None
            for the evidence.
        """
        K, _ = self.combine(point)
        system = MatrixLeastSquares.of(K, point.alpha / self.weight)
        return self.solved_machine(system, K, point, loss)

    def solved_machine(
        self, system: MatrixLeastSquares, K: ArrayOrTensor, point: RidgePoint, loss: Loss | None
    ) -> RidgeMachine:
        """Return the machine of a system, whose solution is refined in double precision.

        Parameters
        ----------
        system : MatrixLeastSquares
            The system, in double precision.
        K : array of shape (n, n)
            The centred matrix that was factorised.
        point, loss : RidgePoint, Loss or None
            As in `machine`.
        """
        ridge = point.alpha / self.weight
        Y = self.Y
        backend = backend_of(K)
        beta = system.solve(Y)
        # The factor may be that of M and a jitter. Refinements solve the system of M itself.
        for _ in range(RIDGE_REFINEMENTS):
            outputs = backend.to_numpy(K @ backend.asarray(beta))
            unsolved = Y - outputs - ridge[:, np.newaxis] * beta
            beta = beta + system.solve(unsolved)
        largest_unsolved = np.abs(unsolved - unsolved.mean(axis=0)).max()
        is_solved = largest_unsolved <= LARGEST_RIDGE_RESIDUAL * np.abs(Y).max()
        if not is_solved:
            raise_of_rounding()
        residuals = system.residuals(beta, self.groups)
        if loss is None:
            value, _ = evidence_at(system, Y, beta)
        else:
            value, _, _ = loss(residuals, point.scale)
        return RidgeMachine(
            beta=beta, intercept=system.constants @ Y, residuals=residuals, value=value
        )

    def combine(self, point: RidgePoint) -> tuple[ArrayOrTensor, dict[int, ArrayOrTensor]]:
        """Return the combined K at a point, and the matrices of the kernels with learned widths.

        K is in double precision. The matrices are without their weights, by the numbers of kernels.
        """
        fixed = point.weights.copy()
        fixed[list(self.widths)] = 0.0
        K = combined_matrix(self.stack, fixed)
        learned_kernels = {
            m: widths.matrix(point.log_widths[m]) for m, widths in self.widths.items()
        }
        for m, matrix in learned_kernels.items():
            backend_of(K).add_scaled(K, matrix, float(point.weights[m]))
        return K, learned_kernels

    # Targets that have weights each ---------------------------------------------------------------

    def sizes(self) -> tuple[Array, Array]:
        """Return the trace of every kernel, and the sum of the squares of its entries."""
        n = self.stack.n_samples
        backend = self.stack.backend
        traces, squares = np.zeros((2, self.stack.n_kernels))
        for strip in self.stack.row_strips(n):
            kernels = range(self.stack.n_kernels)
            for m, block in self.stack.placed_blocks(kernels, strip, slice(0, n)):
                exact = backend.astype(block, np.float64)
                traces[m] += float(exact[:, strip].diagonal().sum())
                squares[m] += float((exact * exact).sum())
        return traces, squares

    @cached_property
    def _matrices(self) -> list[ArrayOrTensor]:
        """The matrices of the kernels in the precision of `products`."""
        all_samples = slice(0, self.stack.n_samples)
        kernels = range(self.stack.n_kernels)
        blocks = dict(self.stack.placed_blocks(kernels, all_samples, all_samples))
        astype = self.stack.backend.astype
        return [astype(blocks[m], self.dtype) for m in kernels]

    @cached_property
    def _placed_weight(self) -> ArrayOrTensor:
        """The samples' weights, of shape (n, 1), for `products`.

        They are on the device of the kernels, in the precision of `products`.
        """
        return self.stack.backend.asarray(self.weight, self.dtype)[:, None]

    def products(self, V: ArrayOrTensor, gammas: ArrayOrTensor) -> ArrayOrTensor:
        """Return (Σ_m γ_m K_m + diag(1/w)) v for columns v of V.

        Parameters
        ----------
        V : array of shape (n, columns)
            On the device of the kernels, in the precision `dtype`.
        gammas : array of shape (P, columns)
            The weights γ of every column.
        """
        by_kernel = (K @ (V * gamma) for K, gamma in zip(self._matrices, gammas, strict=True))
        return sum(by_kernel, V / self._placed_weight)


@dataclass(frozen=True)
class FeatureForm:
    """Kernels in features K_m = Z_m Z_mᵀ: a system takes r³ operations, r features in all.

    Making the form takes n r² operations. Leave-one-out errors take as many again at every choice
    of weights, so the criterion sums the errors of some samples, `rows`; every machine is fitted to
    all samples.

    Attributes
    ----------
    stack : FeatureStack
        The kernels.
    weight : ndarray of shape (n,)
        w, of the samples.
    factors : FactoredGram
        The features of all kernels, one beside the other.
    normal : array of shape (r + 1, r + 1)
        [Z, 1]ᵀ diag(w) [Z, 1], on the device of the features; Z̃ᵀ diag(w) Z̃ of centred features.
    means : ndarray of shape (r,), or None
        μ, where features are centred.
    Y, right, square : ndarray of shape (n, c) and (r + 1, c), float
        Targets of the machines, [Z, 1]ᵀ diag(w) Y, and Σ w Y²; of centred features `right` is Z̃ᵀ Y.
    groups : sequence of ndarray, or None
        Samples that are left out together.
    rows : ndarray of shape (rows,), or None
        The samples whose leave-one-out errors are summed, one group after the other.
    row_groups : sequence of ndarray, or None
        Their groups, as positions in `rows`.
    Z : array of shape (rows, r + 1), or None
        [Z, 1] of these samples.
    dtype : dtype
        The precision of `products`.
    """

    stack: FeatureStack
    weight: Array
    factors: FactoredGram
    normal: ArrayOrTensor
    means: Array | None = None
    Y: Any = None
    right: Any = None
    square: float = 0.0
    groups: Groups = None
    rows: Indices | None = None
    row_groups: Groups = None
    Z: ArrayOrTensor | None = None
    dtype: DType = np.float64

    @classmethod
    def of(cls, stack: FeatureStack, weight: Array) -> FeatureForm:
        """Return the form of kernels without targets."""
        factors = stack.factors(np.ones(stack.n_kernels))
        normal = stack.backend.asarray(factors.normal_matrix(weight, precise=True))
        return cls(stack, weight, factors, normal)

    @classmethod
    def of_targets(
        cls,
        stack: FeatureStack,
        weight: Array,
        Y: Array,
        groups: Groups = None,
        rows: Indices | None = None,
        row_groups: Groups = None,
    ) -> FeatureForm:
        """Return the form of kernels and targets; errors of `rows` are summed, if they are given.

        Parameters are the attributes of the same names.
        """
        form = cls.of(stack, weight)
        weighted = weight[:, np.newaxis] * Y
        right = np.vstack([form.factors.adjoint(weighted), weighted.sum(axis=0)])
        Z = None if rows is None else with_constant(form.factors, rows)
        return replace(
            form,
            Y=Y,
            right=right,
            square=float(np.sum(weighted * Y)),
            groups=groups,
            rows=rows,
            row_groups=row_groups,
            Z=Z,
        )

    @classmethod
    def of_all_samples(cls, stack: FeatureStack, weight: Array, dtype: DType) -> FeatureForm:
        """Return the form that holds the features of all samples.

        `dtype` is the precision of `products`.
        """
        rows = np.arange(stack.n_samples)
        factors = stack.factors(np.ones(stack.n_kernels))
        Z = with_constant(factors, rows)
        normal = Z.T @ (stack.backend.asarray(weight)[:, None] * Z)
        return cls(stack, weight, factors, normal, rows=rows, Z=Z, dtype=dtype)

    @classmethod
    def of_centred(cls, stack: FeatureStack, Y: Array) -> FeatureForm:
        """Return the form of centred features with targets, and with sample weights of one.

        Targets are not centred: Z̃ᵀY is the same if they are. A feature that is constant up to
        rounding has zeros in `normal`, so that it counts as zero in every system.

        Parameters
        ----------
        stack : FeatureStack
            The kernels, not centred.
        Y : ndarray of shape (n, c)
            The targets.
        """
        factors = stack.factors(np.ones(stack.n_kernels))
        n = stack.n_samples
        moments = factors.normal_matrix(np.ones(n), precise=True)
        sums = moments[-1, :-1]
        normal = moments[:-1, :-1]
        means = sums / n
        squared_norms = np.diag(normal).copy()
        normal -= np.outer(sums, means)
        is_constant = np.diag(normal) <= CONSTANT_FEATURE * squared_norms
        normal[is_constant] = normal[:, is_constant] = 0.0
        form = cls(stack, np.ones(n), factors, normal, means, Y)
        return replace(form, right=form.sums(Y))

    def sums(self, V: Array) -> Array:
        """Return Z̃ᵀV over the centred features of all kernels."""
        assert self.means is not None
        return np.asarray(self.factors.adjoint(V) - np.outer(self.means, V.sum(axis=0)))

    @cached_property
    def places(self) -> list[slice]:
        """The columns of every kernel among the features of all."""
        edges = np.concatenate([[0], np.cumsum(self.stack.widths)])
        return [slice(int(first), int(end)) for first, end in pairwise(edges)]

    @cached_property
    def kernel(self) -> Indices:
        """The number of the kernel of every feature."""
        return np.repeat(np.arange(self.stack.n_kernels), self.stack.widths)

    def at(self, weights: Array, alpha: float = 1.0) -> FeatureLeastSquares:
        """Return the system at weights and ridge, for the samples of `rows` if there are any.

        Raises
        ------
        numpy.linalg.LinAlgError
            In centred features, if α is lost in rounding.
        """
        if self.means is not None:
            return self._centred_system(weights, alpha)
        eta = weights[self.kernel]
        place = backend_of(self.normal).asarray
        root = place(np.append(np.sqrt(eta), 1.0))
        penalties = place(np.append(np.full(len(eta), alpha), 0.0))
        factor = _factorised(root[:, None] * self.normal * root, penalties)
        system = self._system(None, root, factor, factor.inverse(), alpha, None)
        if self.Z is None or self.rows is None:
            return system
        return system.of_samples(self.Z * root, self.weight[self.rows])

    def _centred_system(self, weights: Array, alpha: float) -> FeatureLeastSquares:
        """Return the system in centred features of the kernels that have a weight."""
        assert self.means is not None
        eta = weights[self.kernel]
        used = np.flatnonzero(eta)
        roots = np.sqrt(eta[used])[:, np.newaxis]
        N = self.normal[np.ix_(used, used)]
        N *= roots
        N *= roots.T
        N[np.diag_indices_from(N)] += alpha
        if alpha <= np.finfo(np.float64).eps * np.diag(N).max(initial=0.0):
            raise np.linalg.LinAlgError("The regulariser is lost in rounding.")
        # Rounding takes digits off a small α; callers refine their solutions.
        weighted_means = self.means[used] * roots[:, 0]
        root = np.append(roots[:, 0], 1.0)
        return self._system(used, root, Cholesky(N), None, alpha, weighted_means)

    def _system(
        self,
        used: Indices | None,
        root: ArrayOrTensor,
        factor: Cholesky,
        B: ArrayOrTensor | None,
        alpha: float,
        means: Array | None,
    ) -> FeatureLeastSquares:
        """Return the system of a factor, without Φ."""
        return FeatureLeastSquares(
            used=used,
            root=root,
            factor=factor,
            B=B,
            alpha=alpha,
            means=means,
            n_samples=len(self.weight),
            total=float(self.weight.sum()),
            log_weights=float(np.log(self.weight).sum()),
            weight=self.weight,
        )

    def of_samples(self, system: FeatureLeastSquares, rows: Indices) -> FeatureLeastSquares:
        """Return the rows and columns of a system that belong to some samples."""
        if self.means is None:
            Phi = with_constant(self.factors, rows) * system.root
        else:
            centred = self.factors.rows(rows) - self.means
            Phi = np.column_stack([centred[:, system.used], np.ones(len(rows))]) * system.root
        return system.of_samples(Phi, self.weight[rows])

    def diagonal(self, system: FeatureLeastSquares) -> Array:
        """Return the diagonal of A for all samples, of shape (n,).

        Φ of all samples may not fit the memory: it is formed for a strip of samples at a time.

        Parameters
        ----------
        system : FeatureLeastSquares
            A system of this form.
        """
        n = len(self.weight)
        diagonal = np.empty(n)
        for strip in row_strips(n, LEVERAGE_ENTRIES // max(len(system.root), 1)):
            diagonal[strip] = self.of_samples(system, np.arange(strip.start, strip.stop)).diagonal
        return diagonal

    def judge(self, point: RidgePoint, loss: Loss | None) -> Judged:
        """Return the criterion and its derivatives at a point.

        Parameters
        ----------
        point : RidgePoint
            Weights, ridge and scale.
        loss : Loss, or None
            The loss of the residuals of `rows`, each left out; None for the evidence.
        """
        system = self.at(point.weights, point.alpha)
        b, theta = self._solve(system)
        if loss is None:
            return self._evidence(system, b, theta)
        beta = system.coefficients(self.Y[self.rows], theta)
        r = system.residuals(beta, self.row_groups)
        value, g, in_scale = loss(r, point.scale)
        in_log_eta, in_log_alpha = system.slopes(beta, r, g, theta, self.row_groups)
        return Judged(value, self._per_kernel(in_log_eta), in_log_alpha, in_scale)

    def residuals_left_out(self, point: RidgePoint) -> Array:
        """Return the residuals of all samples left out, of shape (n, c)."""
        return self._all_samples(point)[2]

    def machine(self, point: RidgePoint, loss: Loss | None) -> RidgeMachine:
        """Return the machine at a point.

        Parameters
        ----------
        point : RidgePoint
            Its weights and ridge.
        loss : Loss, or None
            The loss of the residuals of all samples left out, which is the machine's value; None
            for the evidence.
        """
        system, beta, residuals = self._all_samples(point)
        b, theta = self._solve(system)
        if loss is None:
            value = self._evidence(system, b, theta).value
        else:
            value, _, _ = loss(residuals, point.scale)
        # θ = √η Zᵀβ. Nobody reads the sums of a kernel without a weight.
        root = self.stack.backend.to_numpy(system.root)[:-1, np.newaxis]
        sums = theta[:-1] / np.where(root > 0, root, 1.0)
        return RidgeMachine(
            beta=beta,
            intercept=theta[-1],
            residuals=residuals,
            value=value,
            sums=sums,
            covariance=system.covariance(),
        )

    def _solve(self, system: FeatureLeastSquares) -> tuple[Array, Array]:
        """Return Φᵀ diag(w) Y and θ = B Φᵀ diag(w) Y."""
        backend = self.stack.backend
        b = backend.to_numpy(system.root)[:, np.newaxis] * self.right
        return b, backend.to_numpy(system.B @ backend.asarray(b))

    def _all_samples(self, point: RidgePoint) -> tuple[FeatureLeastSquares, Array, Array]:
        """Return the system at a point, its coefficients, and the residuals of samples left out."""
        system = self.at(point.weights, point.alpha)
        _, theta = self._solve(system)
        beta = np.empty_like(self.Y)
        residuals = np.empty_like(self.Y)
        for rows, groups in self._parts():
            system_of_rows = self.of_samples(system, rows)
            beta[rows] = system_of_rows.coefficients(self.Y[rows], theta)
            residuals[rows] = system_of_rows.residuals(beta[rows], consecutive(groups))
        return system, beta, residuals

    def _evidence(self, system: FeatureLeastSquares, b: Array, theta: Array) -> Judged:
        """Return the negative log evidence and its derivatives.

        Parameters
        ----------
        system : FeatureLeastSquares
            The system at the weights and the ridge.
        b, theta : ndarray of shape (r + 1, c)
            The results of `_solve`.
        """
        assert system.B is not None
        n, c = self.Y.shape
        alpha = system.alpha
        R = len(theta) - 1
        explained = float(np.sum(b * theta))
        # Of targets without noise, rounding may leave a fit of zero or less.
        fit = max(self.square - explained, np.finfo(float).eps * self.square, LEAST_FIT) / alpha
        value, s2 = evidence_value(fit, system.log_det, n, c)
        fitted = 1.0 - alpha * self.stack.backend.to_numpy(system.B.diagonal())[:R]
        # W_mᵀ β = (Φᵀ A Y)_m = θ_m, as A W = diag(w) Φ B.
        in_log_eta = 0.5 * (c * fitted - np.sum(theta[:R] ** 2, axis=1) / s2)
        residual = (self.square - explained - alpha * float(np.sum(theta[:R] ** 2))) / alpha
        in_log_alpha = 0.5 * (c * (n - 1 - float(fitted.sum())) - residual / s2)
        return Judged(value, self._per_kernel(in_log_eta), in_log_alpha)

    def _per_kernel(self, numbers: Array) -> Array:
        """Return the sums over the features of each kernel of one number per feature."""
        return np.bincount(self.kernel, numbers, self.stack.n_kernels).astype(np.float64)

    def _parts(self) -> Iterator[tuple[Indices, Groups]]:
        """Yield the numbers of the samples of each strip, and their groups, none of which is cut.

        The features of a strip fit the memory of strips, unless a group is larger.
        """
        if self.groups is None:
            samples = np.arange(self.stack.n_samples)
            for strip in self.stack.strips(copied=True):
                yield samples[strip], None
            return
        ends = np.cumsum([len(S) for S in self.groups])
        rows_at_once = max(self.stack.options.strip_bytes // (8 * len(self.normal)), 1)
        cuts = np.flatnonzero(np.diff(ends // rows_at_once)) + 1
        for i, j in pairwise([0, *cuts.tolist(), len(self.groups)]):
            groups = self.groups[i:j]
            yield np.concatenate(groups), groups

    # Targets that have weights each ---------------------------------------------------------------

    def sizes(self) -> tuple[Array, Array]:
        """Return the trace of every kernel, and the sum of the squares of its entries."""
        assert self.Z is not None
        products = self.stack.backend.to_numpy(self.Z.T @ self.Z)
        traces, squares = np.zeros((2, self.stack.n_kernels))
        for m in range(self.stack.n_kernels):
            of_kernel = self.kernel == m
            block = products[np.ix_(of_kernel, of_kernel)]
            traces[m] = block.trace()
            squares[m] = (block**2).sum()
        return traces, squares

    @cached_property
    def _placed(self) -> tuple[ArrayOrTensor, ArrayOrTensor]:
        """Z without the constant, and the samples' weights, in the precision of `products`."""
        assert self.Z is not None
        backend = self.stack.backend
        weight = backend.astype(backend.asarray(self.weight)[:, None], self.dtype)
        return backend.astype(self.Z, self.dtype)[:, :-1], weight

    def products(self, V: ArrayOrTensor, gammas: ArrayOrTensor) -> ArrayOrTensor:
        """Return (Σ_m γ_m K_m + diag(1/w)) v for columns v of V.

        Parameters
        ----------
        V : array of shape (n, columns)
            On the device of the kernels, in the precision `dtype`.
        gammas : array of shape (P, columns)
            The weights γ of every column.
        """
        Z, weight = self._placed
        gammas_of_features = gammas[self.stack.backend.index(self.kernel)]
        return V / weight + Z @ (gammas_of_features * (Z.T @ V))


def with_constant(factors: FactoredGram, rows: Indices) -> ArrayOrTensor:
    """Return [Z, 1] of some samples, in double precision.

    In single precision rounding would hide the derivatives where α is small.
    """
    Z = factors.placed_rows(rows)
    return factors.backend.xp.concatenate([Z, factors.backend.asarray(np.ones((len(rows), 1)))], 1)


def consecutive(groups: Groups) -> Groups:
    """Return the positions of the groups' samples in the concatenation of all groups."""
    if not groups:
        return groups
    sizes = [len(S) for S in groups]
    return np.split(np.arange(sum(sizes)), np.cumsum(sizes[:-1]))


# Variances and criteria ---------------------------------------------------------------------------


def variances(K: ArrayOrTensor, ridge: Array, k: ArrayOrTensor, own: Array) -> Array:
    """Return the posterior variances of outputs, in units of the noise's variance over α.

    The constant has a flat prior. Variances are differences of large numbers where M is
    ill-conditioned: centring, and a factor in place of the inverse, keep their digits.

    Parameters
    ----------
    K : array of shape (n, n)
        The kernel between the samples of the machine; it is overwritten.
    ridge : ndarray of shape (n,)
        The diagonal of M − K.
    k : array of shape (m, n)
        The kernel between new samples and those of the machine.
    own : ndarray of shape (m,)
        k(x, x) of the new samples.
    """
    backend = backend_of(K)
    system = MatrixLeastSquares.of(K, ridge)
    k = k - backend.asarray(system.offset)
    shift = k.mean(1)
    k = k - shift[:, None]
    V = system.factor.inverse_root() @ k.T
    explained = backend.to_numpy((V * V).sum(0))
    of_constant = (1.0 - backend.to_numpy(k) @ system.ones) ** 2 / system.ones.sum()
    return np.asarray(own - 2.0 * backend.to_numpy(shift) - explained + of_constant)


def _congruence(A: ArrayOrTensor, d: Array) -> ArrayOrTensor:
    """Return A diag(d) A for a symmetric A.

    It is BᵀB of the rows with positive d less that of the rows with negative d. NumPy computes the
    product of a matrix with its own transpose in half the operations.
    """
    backend = backend_of(A)
    G = None
    for sign in (1.0, -1.0):
        rows = np.flatnonzero(sign * d > 0)
        if len(rows) == 0:
            continue
        B = A[backend.index(rows)] if len(rows) < len(d) else backend.copy(A)
        B *= backend.asarray(np.sqrt(np.abs(d[rows])))[:, None]
        product = sign * (B.T @ B)
        G = product if G is None else G + product
    return backend.zeros(tuple(A.shape)) if G is None else G


def squared_loss(r: Array, weight: Array) -> tuple[float, Array]:
    """Return ½ W c log(Σ_i w_i ‖r_i‖² / (W c)), W = Σ w, and its derivatives in r.

    This is the negative log likelihood of Gaussian residuals with their likeliest variance, in
    nats. Another unit of the targets adds a constant to it.
    """
    count = float(weight.sum()) * r.shape[1]
    mean = max(float(np.sum(weight[:, np.newaxis] * r**2)) / count, np.finfo(float).tiny)
    return 0.5 * count * float(np.log(mean)), weight[:, np.newaxis] * r / mean


def class_loss(
    r: Array, Y: Array, labels: Indices, scale: float, weight: Array
) -> tuple[float, Array, float]:
    """Return the log-loss of the outputs f = Y − r, and its derivatives in r and in log a.

    The loss is the sum over the samples, weighted by w.

    The loss is that of softmax(a f_i), or of the logistic function of a y_i f_i where there is one
    output.
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
    """Return Σ_i w_i log-loss of softmax(scores), and its derivatives in the scores.

    Scores have one column per class.
    """
    samples = np.arange(len(scores))
    gradient = softmax(scores, axis=1)
    gradient[samples, labels] -= 1.0
    losses = logsumexp(scores, axis=1) - scores[samples, labels]
    return float(weight @ losses), weight[:, np.newaxis] * gradient


def evidence_value(
    fit: float, log_det: float, n: int, c: int, noise: float | None = None
) -> tuple[float, float]:
    """Return the negative log evidence of Gaussian targets with the covariance s² M, and s².

    Additive constants are left out. The constant of the machine has a flat prior (restricted
    likelihood).

    Parameters
    ----------
    fit : float
        tr(Yᵀ A Y) of n samples and c targets.
    log_det : float
        log det M + log 1ᵀM⁻¹1.
    n, c : int
        The shape of Y.
    noise : float, optional
        s²; by default the one with the largest evidence.
    """
    s2 = fit / ((n - 1) * c) if noise is None else noise
    value = 0.5 * fit / s2 + 0.5 * c * log_det + 0.5 * (n - 1) * c * np.log(s2)
    return float(value), s2


def evidence(
    system: MatrixLeastSquares, Y: Array, noise: float | None = None
) -> tuple[float, ArrayOrTensor]:
    """Return the negative log evidence of `evidence_value`, and its gradient G in M."""
    beta = system.times(Y)
    c = Y.shape[1]
    value, s2 = evidence_at(system, Y, beta, noise)
    right = backend_of(system.A).asarray(beta)
    return value, (0.5 * c) * system.A - right @ (right.T * (0.5 / s2))


def evidence_diagonal(system: MatrixLeastSquares, Y: Array, beta: Array) -> Array:
    """Return the diagonal of the gradient G of the negative log evidence, for β = A Y."""
    _, s2 = evidence_at(system, Y, beta)
    return np.asarray(0.5 * Y.shape[1] * system.diagonal - (0.5 / s2) * np.sum(beta**2, axis=1))


def evidence_at(
    system: LeastSquares, Y: Array, beta: Array, noise: float | None = None
) -> tuple[float, float]:
    """Return the negative log evidence and s², from the coefficients β = A Y.

    See `evidence_value`.
    """
    fit = max(float(np.sum(Y * beta)), LEAST_FIT)
    return evidence_value(fit, system.log_det, len(Y), Y.shape[1], noise)
