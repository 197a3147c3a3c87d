"""The least-squares machine at given weights and ridge, its leave-one-out error and evidence, and
their slopes.

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

K is known in one of two ways, and `LeastSquares` is what both answer:

- `MatrixLeastSquares`: by its n × n matrix, of which M is factorised;
- `FeatureLeastSquares`: by features K = Z diag(η) Zᵀ, fewer than the samples. Φ = [Z √η, 1] holds
  the constant as one more feature, without a penalty: J = diag(1, …, 1, 0). Then, with
  B = (Φᵀ diag(w) Φ + αJ)⁻¹, A = diag(w/α)(I − Φ B Φᵀ diag(w)). Where features are centred,
  Z̃ = Z − 1μᵀ with Z̃ᵀw = 0, the constant is orthogonal to all others, and B has one block for
  these and 1 / Σ w.

Such a system belongs to one choice of weights and ridge, and never changes. `MatrixForm` and
`FeatureForm` hold what all choices share, and make one system after the other by
`at(weights, alpha)`. Their criterion and its slopes are `judge`, and the machine is `machine`.
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

#: Samples that are left out together; None where every sample is left out alone.
Groups = Sequence[Indices] | None
#: Returns, for residuals of samples left out, (n, c), and the scale a of outputs, the loss, its
#: slopes in the residuals, and that in log a.
Loss = Callable[[Array, float], tuple[float, Array, float]]

#: Largest fraction by which the diagonal of M grows where rounding leaves M indefinite. A matrix
#: that needs more has lost its ridge; `REFINEMENTS` take what is added off again.
LARGEST_JITTER = 1e-4
#: Rounds in which what a solution leaves of its targets is solved for once more.
REFINEMENTS = 3
#: Largest entry that may be left then, relative to the largest target: outputs are off by it.
LARGEST_RESIDUAL = 1e-3
#: Least tr(Yᵀ A Y), in squared units of the targets, whose logarithm is taken: of constant targets
#: it is zero.
LEAST_FIT = 1e-30
#: Fraction of its mean square below which the variance of a feature is rounding: it is constant.
CONSTANT_FEATURE = 1e-12
#: Least 1 − leverage of a sample in centred features, as exact as their refined solutions are.
LEAST_LEFT_OF_CENTRED = 1e-10
#: Entries of centred features that are held at once where leverages are computed: 128 MB.
STRIP_ENTRIES = 2**24


# Values -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RidgePoint:
    """Weights η, ridge α and scale a, and the logarithms of the widths that are learned, by the
    numbers of kernels."""

    weights: Array
    alpha: float
    scale: float
    log_widths: dict[int, Array]


@dataclass(frozen=True)
class Judged:
    """A criterion at given weights, ridge, scale and widths, with its slopes in their
    logarithms."""

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
        Its coefficients and constants.
    residuals : ndarray of shape (n, c)
        Of samples left out.
    value : float
        The criterion.
    sums, covariance : ndarray of shape (features, c) and (features + 1, features + 1), or None
        In features, Z_mᵀ β of all kernels, one below the other, with more digits than β gives it,
        and `FeatureLeastSquares.covariance`.
    unsolved : float
        Of kernels of pairs, the relative residual of the linear systems where it exceeds
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
    """Return the factor of M + diag added; raises a ValueError if rounding leaves it indefinite."""
    try:
        return Cholesky(M, added, most=LARGEST_JITTER, dtype=dtype)
    except np.linalg.LinAlgError:
        raise_of_rounding()


def raise_of_rounding() -> NoReturn:
    """Raise a ValueError: what rounding makes of the kernels is larger than the ridge."""
    raise ValueError(
        "kernels: their entries are so large, or so similar, that the ridge alpha is lost in"
        " rounding; scale the columns (scale=True), use normalize='trace' or 'centered', or give a"
        " larger alpha."
    )


def combined_matrix(stack: MatrixStack, weights: Array) -> ArrayOrTensor:
    """Return K = Σ_m weights_m K_m in double precision, where the stack is."""
    K = stack.combine(weights).matrix
    if K is None:
        raise MemoryError(
            f"{stack.form}, but exact kernels need the combined matrix; raise memory_budget, or use"
            " approximation='nystroem'."
        )
    return backend_of(K).astype(K, np.float64)


def centre(K: ArrayOrTensor) -> Array:
    """Take 1vᵀ + v1ᵀ off a symmetric K such that 1 is an eigenvector, of the mean eigenvalue;
    return v.

    The machine stays the same but for its constant, as its coefficients sum to zero; a wide kernel,
    nearly constant, keeps the digits that its constant part hides in a linear system.
    """
    backend, n = backend_of(K), len(K)
    means = K.mean(0)
    v = means - 0.5 * float(means.mean())
    v -= 0.5 * float(K.diagonal().sum() - 2.0 * v.sum()) / n**2
    K -= v
    K -= v[:, None]
    return np.asarray(backend.to_numpy(v))


# Systems at given weights and ridge ---------------------------------------------------------------


class LeastSquares(ABC):
    """A = M⁻¹ − M⁻¹1 1ᵀM⁻¹ / 1ᵀM⁻¹1 of M = K + α diag(1/w), in whatever form K is known."""

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
        """What targets count for the constant of their machine: b = ⟨constants, y⟩."""

    @abstractmethod
    def times(self, V: ArrayOrTensor) -> ArrayOrTensor:
        """Return A V in the precision of V, which is on the host or where K is."""

    @abstractmethod
    def block(self, S: Indices) -> Array:
        """Return A_SS."""

    def residuals(self, beta: Any, groups: Groups = None) -> Any:
        """Return the residuals β_i / A_ii of samples left out, or A_SS⁻¹ β_S of those left out
        together."""
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
        That of the centred M, where K is: on the host or on a device.
    offset : ndarray of shape (n,)
        v of `centre`.
    """

    factor: Cholesky
    offset: Array

    @classmethod
    def of(cls, K: ArrayOrTensor, ridge: Array) -> MatrixLeastSquares:
        """Factorise M; K is centred in place."""
        return cls.of_centred(K, centre(K), ridge)

    @classmethod
    def of_centred(
        cls, K: ArrayOrTensor, offset: Array, ridge: Array, dtype: DType = None
    ) -> MatrixLeastSquares:
        """Factorise M in a precision, by default that of K, which is centred."""
        return cls(_factorised(K, backend_of(K).asarray(ridge), dtype), offset)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the factor."""
        return self.factor.backend.dtype(self.factor.factor)

    def _solve(self, right: Array) -> Array:
        """Return M⁻¹ times columns of the host, in the precision of the factor."""
        backend = self.factor.backend
        return np.asarray(
            backend.to_numpy(self.factor.solve(backend.asarray(right, self.dtype))),
            dtype=np.float64,
        )

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
        return np.asarray(
            self.ones / self.ones.sum() - self.solve(self.offset[:, np.newaxis])[:, 0]
        )

    def times(self, V: ArrayOrTensor) -> ArrayOrTensor:
        """Return A V."""
        backend = self.factor.backend
        placed = backend.asarray(V, None)
        return as_input(V, backend.astype(self.A, backend.dtype(placed)) @ placed, backend)

    def solve(self, Y: Array) -> Array:
        """Return A Y by the factor, with the digits that the inverse of an ill-conditioned M
        loses."""
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
        """Return the diagonal of G alone, which takes n² operations where every sample is left out
        alone."""
        backend = self.factor.backend
        if groups is not None:
            return np.asarray(backend.to_numpy(self.slope(beta, r, g, groups).diagonal()))
        u = self.residuals(g)
        squares = backend.xp.einsum(
            "ij,ij,j->i", self.A, self.A, backend.asarray((u * r).sum(axis=1), self.dtype)
        )
        across = self.times(u.astype(self.dtype))
        return np.asarray(backend.to_numpy(squares) - np.sum(across * beta, axis=1))

    def block(self, S: Indices) -> Array:
        """Return A_SS."""
        backend = self.factor.backend
        rows = backend.index(S)
        return np.asarray(backend.to_numpy(backend.take_block(self.A, rows, rows)))

    def responses(self, V: Array) -> Array:
        """Return Σ_j V_ijᵀ A V_lj for all pairs (i, l) of the stacked matrices V_i, of shape (n,
        k)."""
        flat = V.transpose(1, 0, 2).reshape(V.shape[1], -1)
        answer = self.solve(flat).reshape(V.shape[1], *V.shape[::2])
        return np.asarray(np.tensordot(V, answer, ([1, 2], [0, 2])))


@dataclass(frozen=True)
class FeatureLeastSquares(LeastSquares):
    """The system in features: A = diag(w/α)(I − Φ B Φᵀ diag(w)).

    It may be asked for the rows and columns of A that belong to some samples only.

    Attributes
    ----------
    used : ndarray of shape (used,) or None
        The numbers of the features in Φ, where these are not all.
    root : array of shape (used + 1,)
        √η of every feature in Φ, and one of the constant.
    factor : Cholesky
        That of Φᵀ diag(w) Φ + αJ; of centred features without the constant.
    B : array of shape (used + 1, used + 1), or None
        The inverse. None where features are centred: solves by the factor are refined to the last
        digit, and few right-hand sides take fewer operations than an inverse.
    alpha : float
        α.
    means : ndarray of shape (used,), or None
        μ √η, where features are centred.
    n_samples, total, log_weights : int, float, float
        How many samples there are, Σ w, and Σ log w.
    weight : ndarray of shape (samples,)
        w of the samples in Φ.
    Phi : array of shape (samples, used + 1), or None
        Φ, where samples are asked for.
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
        least_left = np.finfo(float).eps if self.B is not None else LEAST_LEFT_OF_CENTRED
        return np.asarray(self.weight / self.alpha * np.maximum(1.0 - self.leverage, least_left))

    @cached_property
    def constants(self) -> Array:
        of_constant = self.T[:, -1]
        if self.means is not None:  # outputs of features that are not centred are larger by μ √η θ
            of_constant = of_constant - self.T[:, :-1] @ self.means
        return np.asarray(self.weight * backend_of(self.T).to_numpy(of_constant))

    def times(self, V: ArrayOrTensor) -> ArrayOrTensor:
        backend = backend_of(self.T)
        X = backend.asarray(V, None)
        place = partial(backend.asarray, dtype=backend.dtype(X))
        T, Phi, w = place(self.T), place(self.Phi), place(self.weight[:, np.newaxis])
        return as_input(V, w / self.alpha * (X - T @ (Phi.T @ (w * X))), backend)

    def block(self, S: Indices) -> Array:
        assert self.Phi is not None
        backend = backend_of(self.T)
        rows, w = backend.index(S), self.weight[S]
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
        """Return the slopes of a sum of losses: in log η of every feature, and in log α.

        Parameters
        ----------
        beta, r, g : ndarray of shape (samples, c)
            Coefficients, residuals and slopes of the samples in Φ.
        theta : ndarray of shape (used + 1, c)
            The machine of all samples.
        groups : sequence of ndarray, optional
            The samples in Φ that are left out together.
        """
        w, R, backend = self.weight[:, np.newaxis], len(theta) - 1, backend_of(self.T)
        u = self.residuals(g, groups)
        squares = self._squares(w * u, w * r, groups)
        across = backend.to_numpy(self.T.T @ backend.asarray(w * u))
        per_feature = squares[:R] - np.sum(across[:R] * theta[:R], axis=1)
        # Σ ridge_i (A u)_i β_i = Σ u_i (β_i − w_i T_i Φᵀβ), where Φᵀβ is θ but for the constant,
        # which is zero.
        moved = float(np.sum(u * beta)) - float(np.sum(across[:R] * theta[:R]))
        return per_feature, float(np.sum(g * r)) - float(squares[:R].sum()) - moved

    def _squares(self, left: Array, right: Array, groups: Groups = None) -> Array:
        """Return the sum over the groups of Σ_c (T_Sᵀ left_S)_c (T_Sᵀ right_S)_c, one number per
        feature."""
        backend = backend_of(self.T)
        if groups is None:
            return backend.to_numpy(
                (self.T * self.T).T @ backend.asarray(np.sum(left * right, axis=1))
            )
        T = backend.to_numpy(self.T)
        return np.asarray(
            sum(((T[S].T @ left[S]) * (T[S].T @ right[S])).sum(axis=1) for S in groups)
        )

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
        sides = (roots * sums[:, self.used]).transpose(1, 0, 2).reshape(len(roots), -1)
        shape = (len(roots), len(sums), -1)
        taken = np.einsum(
            "dij,dlj->il", sides.reshape(shape), self.factor.solve(sides).reshape(shape)
        )
        return np.asarray((inner - taken) / self.alpha)


# What makes systems at one choice of weights after the other --------------------------------------


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
        Targets that machines are asked for.
    groups : sequence of ndarray, or None
        Samples that are left out together.
    widths : dict of int to RadialWidths
        The kernels whose widths are learned: their matrices are computed anew at every point.
    dtype : dtype
        Of `products`.
    """

    stack: MatrixStack
    weight: Array
    Y: Any = None
    groups: Groups = None
    widths: Mapping[int, RadialWidths] = field(default_factory=dict)
    dtype: DType = np.float64

    def at(self, weights: Array, alpha: float = 1.0) -> MatrixLeastSquares:
        """Return the system at weights and ridge, widths left aside."""
        return MatrixLeastSquares.of(combined_matrix(self.stack, weights), alpha / self.weight)

    def judge(self, point: RidgePoint, loss: Loss | None) -> Judged:
        """Return the criterion and its slopes.

        Parameters
        ----------
        point : RidgePoint
            Where.
        loss : Loss, or None
            Of the residuals of samples left out; None for the evidence.
        """
        ridge, in_scale = point.alpha / self.weight, 0.0
        K, learned_kernels = self.combine(point)
        system = MatrixLeastSquares.of(K, ridge)
        if loss is None:
            value, G = evidence(system, self.Y)
        else:
            beta = system.times(self.Y)
            r = system.residuals(beta, self.groups)
            value, g, in_scale = loss(r, point.scale)
            G = system.slope(beta, r, g, self.groups)
        in_widths: list[Array] = []
        fixed = None
        if learned_kernels:
            fixed = np.setdiff1d(np.arange(self.stack.n_kernels), [*learned_kernels])
        slopes = self.stack.inner_products(G, fixed)
        for m, matrix in learned_kernels.items():
            matrix *= G
            slopes[m] = float(matrix.sum())
            slope_in_widths = self.widths[m].slopes(point.log_widths[m], matrix)
            in_widths.append(point.weights[m] * slope_in_widths)
        in_alpha = float(ridge @ backend_of(G).to_numpy(G.diagonal()))
        return Judged(value, point.weights * slopes, in_alpha, in_scale, tuple(in_widths))

    def residuals_left_out(self, point: RidgePoint) -> Array:
        """Return the residuals of samples left out."""
        system = MatrixLeastSquares.of(self.combine(point)[0], point.alpha / self.weight)
        return np.asarray(system.residuals(system.solve(self.Y), self.groups))

    def machine(self, point: RidgePoint, loss: Loss | None) -> RidgeMachine:
        """Return the machine.

        Parameters
        ----------
        point : RidgePoint
            Its weights and ridge.
        loss : Loss, or None
            Of the residuals of all samples left out, which is the machine's value; None for the
            evidence.
        """
        K, _ = self.combine(point)
        system = MatrixLeastSquares.of(K, point.alpha / self.weight)
        return self.solved_machine(system, K, point, loss)

    def solved_machine(
        self, system: MatrixLeastSquares, K: ArrayOrTensor, point: RidgePoint, loss: Loss | None
    ) -> RidgeMachine:
        """Return the refined machine of a system.

        Parameters
        ----------
        system : MatrixLeastSquares
            The system, in double precision.
        K : array of shape (n, n)
            The centred matrix that was factorised.
        point, loss : RidgePoint, Loss or None
            As in `machine`.
        """
        ridge, Y, backend = point.alpha / self.weight, self.Y, backend_of(K)
        beta = system.solve(Y)
        for _ in range(
            REFINEMENTS
        ):  # what was added to the diagonal for rounding is taken off again
            outputs = backend.to_numpy(K @ backend.asarray(beta))
            left = Y - outputs - ridge[:, np.newaxis] * beta
            beta = beta + system.solve(left)
        largest_left = np.abs(left - left.mean(axis=0)).max()
        if not largest_left <= LARGEST_RESIDUAL * np.abs(Y).max():  # β does not solve the system
            raise_of_rounding()
        residuals = system.residuals(beta, self.groups)
        value = evidence_at(system, Y, beta)[0] if loss is None else loss(residuals, point.scale)[0]
        return RidgeMachine(
            beta=beta, intercept=system.constants @ Y, residuals=residuals, value=value
        )

    def combine(self, point: RidgePoint) -> tuple[ArrayOrTensor, dict[int, ArrayOrTensor]]:
        """Return K in double precision, and the matrices of the kernels whose widths are
        learned."""
        fixed = point.weights.copy()
        fixed[list(self.widths)] = 0.0
        K = combined_matrix(self.stack, fixed)
        learned_kernels = {
            m: widths.matrix(point.log_widths[m]) for m, widths in self.widths.items()
        }
        for m, matrix in learned_kernels.items():
            backend_of(K).add_scaled(K, matrix, float(point.weights[m]))
        return K, learned_kernels

    # Of targets with weights of their own ---------------------------------------------------------

    def sizes(self) -> tuple[Array, Array]:
        """Return of every kernel its trace, and the sum of the squares of its entries."""
        n, backend = self.stack.n_samples, self.stack.backend
        traces, squares = np.zeros((2, self.stack.n_kernels))
        for strip in self.stack.row_strips(n):
            for m, block in self.stack.placed_blocks(
                range(self.stack.n_kernels), strip, slice(0, n)
            ):
                exact = backend.astype(block, np.float64)
                traces[m] += float(exact[:, strip].diagonal().sum())
                squares[m] += float((exact * exact).sum())
        return traces, squares

    @cached_property
    def _matrices(self) -> list[ArrayOrTensor]:
        """The kernels in the precision of `products`."""
        n, place = self.stack.n_samples, self.stack.backend.astype
        blocks = dict(
            self.stack.placed_blocks(range(self.stack.n_kernels), slice(0, n), slice(0, n))
        )
        return [place(blocks[m], self.dtype) for m in range(self.stack.n_kernels)]

    @cached_property
    def _placed_weight(self) -> ArrayOrTensor:
        """The weights of the samples where the kernels are, in the precision of `products`."""
        return self.stack.backend.asarray(self.weight, self.dtype)[:, None]

    def products(self, V: ArrayOrTensor, gammas: ArrayOrTensor) -> ArrayOrTensor:
        """Return (Σ_m γ_m K_m + diag(1/w)) v for columns v of V.

        Parameters
        ----------
        V : array of shape (n, columns)
            Where the kernels are, in the precision `dtype`.
        gammas : array of shape (P, columns)
            γ of every column.
        """
        by_kernel = (K @ (V * gamma) for K, gamma in zip(self._matrices, gammas, strict=True))
        return sum(by_kernel, V / self._placed_weight)


@dataclass(frozen=True)
class FeatureForm:
    """Kernels in features K_m = Z_m Z_mᵀ, r of all together: n r² operations once, and r³ for a
    system.

    Leave-one-out errors take n r² operations more at every choice of weights, and so those of some
    rows are judged; every sample is learned from.

    Attributes
    ----------
    stack : FeatureStack
        The kernels.
    weight : ndarray of shape (n,)
        w, of the samples.
    factors : FactoredGram
        The features of all kernels, one beside the other.
    normal : array of shape (r + 1, r + 1)
        [Z, 1]ᵀ diag(w) [Z, 1], where the features are; Z̃ᵀ diag(w) Z̃ of centred features.
    means : ndarray of shape (r,), or None
        μ, where features are centred.
    Y, right, square : ndarray of shape (n, c) and (r + 1, c), float
        Targets that machines are asked for, [Z, 1]ᵀ diag(w) Y, and Σ w Y²; of centred features Z̃ᵀ
        Y.
    groups : sequence of ndarray, or None
        Samples that are left out together.
    rows : ndarray of shape (rows,), or None
        The samples whose leave-one-out errors are judged, one group after the other.
    row_groups : sequence of ndarray, or None
        Their groups, as places in `rows`.
    Z : array of shape (rows, r + 1), or None
        [Z, 1] of these samples.
    dtype : dtype
        Of `products`.
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
        """Return the form of kernels alone."""
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
        """Return the form of kernels and targets, some samples of which are left out."""
        form = cls.of(stack, weight)
        weighted = weight[:, np.newaxis] * Y
        right = np.vstack([form.factors.adjoint(weighted), weighted.sum(axis=0)])
        return replace(
            form,
            Y=Y,
            right=right,
            square=float(np.sum(weighted * Y)),
            groups=groups,
            rows=rows,
            row_groups=row_groups,
            Z=None if rows is None else with_constant(form.factors, rows),
        )

    @classmethod
    def of_all_samples(cls, stack: FeatureStack, weight: Array, dtype: DType) -> FeatureForm:
        """Return the form that keeps the features of all samples, for targets of a precision."""
        rows, factors = np.arange(stack.n_samples), stack.factors(np.ones(stack.n_kernels))
        Z = with_constant(factors, rows)
        normal = Z.T @ (stack.backend.asarray(weight)[:, None] * Z)
        return cls(stack, weight, factors, normal, rows=rows, Z=Z, dtype=dtype)

    @classmethod
    def of_centred(cls, stack: FeatureStack, Y: Array) -> FeatureForm:
        """Return the form of centred features, and of targets; all samples weigh one.

        Features that are constant up to rounding become zero.
        """
        factors, n = stack.factors(np.ones(stack.n_kernels)), stack.n_samples
        moments = factors.normal_matrix(np.ones(n), precise=True)
        sums, normal = moments[-1, :-1], moments[:-1, :-1]
        means = sums / n
        squares = np.diag(normal).copy()
        normal -= np.outer(sums, means)
        constant = np.diag(normal) <= CONSTANT_FEATURE * squares
        normal[constant] = normal[:, constant] = 0.0
        form = cls(stack, np.ones(n), factors, normal, means, Y)
        return replace(form, right=form.sums(Y))

    def sums(self, V: Array) -> Array:
        """Return Z̃ᵀV over the centred features of all kernels."""
        assert self.means is not None
        return np.asarray(self.factors.adjoint(V) - np.outer(self.means, V.sum(axis=0)))

    @cached_property
    def places(self) -> list[slice]:
        """Where the features of every kernel are."""
        edges = np.concatenate([[0], np.cumsum(self.stack.widths)])
        return [slice(int(first), int(end)) for first, end in pairwise(edges)]

    @cached_property
    def kernel(self) -> Indices:
        """The number of every feature's kernel."""
        return np.repeat(np.arange(self.stack.n_kernels), self.stack.widths)

    def at(self, weights: Array, alpha: float = 1.0) -> FeatureLeastSquares:
        """Return the system at weights and ridge, with the samples that are kept.

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
        # What rounding takes from a small α, refined solutions give back.
        centre_of_used = self.means[used] * roots[:, 0]
        return self._system(
            used, np.append(roots[:, 0], 1.0), Cholesky(N), None, alpha, centre_of_used
        )

    def _system(
        self,
        used: Indices | None,
        root: ArrayOrTensor,
        factor: Cholesky,
        B: ArrayOrTensor | None,
        alpha: float,
        means: Array | None,
    ) -> FeatureLeastSquares:
        """Return the system of a factor, without samples."""
        total, log_weights = float(self.weight.sum()), float(np.log(self.weight).sum())
        n = len(self.weight)
        return FeatureLeastSquares(
            used, root, factor, B, alpha, means, n, total, log_weights, self.weight
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
        """Return the diagonal of A, the features of some samples at a time."""
        n = len(self.weight)
        diagonal = np.empty(n)
        for strip in row_strips(n, STRIP_ENTRIES // max(len(system.root), 1)):
            diagonal[strip] = self.of_samples(system, np.arange(strip.start, strip.stop)).diagonal
        return diagonal

    def judge(self, point: RidgePoint, loss: Loss | None) -> Judged:
        """Return the criterion and its slopes.

        Parameters
        ----------
        point : RidgePoint
            Where.
        loss : Loss, or None
            Of the residuals of `rows`, each left out; None for the evidence.
        """
        system = self.at(point.weights, point.alpha)
        b, theta = self._solve(system)
        if loss is None:
            return self._evidence(system, b, theta)
        beta = system.coefficients(self.Y[self.rows], theta)
        r = system.residuals(beta, self.row_groups)
        value, g, in_scale = loss(r, point.scale)
        per_feature, in_alpha = system.slopes(beta, r, g, theta, self.row_groups)
        return Judged(value, self._per_kernel(per_feature), in_alpha, in_scale)

    def residuals_left_out(self, point: RidgePoint) -> Array:
        """Return the residuals of samples left out."""
        return self._all_samples(point)[2]

    def machine(self, point: RidgePoint, loss: Loss | None) -> RidgeMachine:
        """Return the machine.

        Parameters
        ----------
        point : RidgePoint
            Its weights and ridge.
        loss : Loss, or None
            Of the residuals of all samples left out, which is the machine's value; None for the
            evidence.
        """
        system, beta, residuals = self._all_samples(point)
        b, theta = self._solve(system)
        value = (
            self._evidence(system, b, theta).value
            if loss is None
            else loss(residuals, point.scale)[0]
        )
        # The sums of a kernel without a weight are not read.
        root = self.stack.backend.to_numpy(system.root)[:-1, np.newaxis]
        return RidgeMachine(
            beta=beta,
            intercept=theta[-1],
            residuals=residuals,
            value=value,
            sums=theta[:-1] / np.where(root > 0, root, 1.0),
            covariance=system.covariance(),
        )

    def _solve(self, system: FeatureLeastSquares) -> tuple[Array, Array]:
        """Return Φᵀ diag(w) Y and θ = B Φᵀ diag(w) Y."""
        backend = self.stack.backend
        b = backend.to_numpy(system.root)[:, np.newaxis] * self.right
        return b, backend.to_numpy(system.B @ backend.asarray(b))

    def _all_samples(self, point: RidgePoint) -> tuple[FeatureLeastSquares, Array, Array]:
        """Return the system, the coefficients, and the residuals of samples left out."""
        system = self.at(point.weights, point.alpha)
        _, theta = self._solve(system)
        beta, residuals = np.empty_like(self.Y), np.empty_like(self.Y)
        for rows, groups in self._parts():
            part = self.of_samples(system, rows)
            beta[rows] = part.coefficients(self.Y[rows], theta)
            residuals[rows] = part.residuals(beta[rows], consecutive(groups))
        return system, beta, residuals

    def _evidence(self, system: FeatureLeastSquares, b: Array, theta: Array) -> Judged:
        """Return the evidence and its slopes."""
        assert system.B is not None
        (n, c), alpha, R = self.Y.shape, system.alpha, len(theta) - 1
        explained = float(np.sum(b * theta))
        # Rounding may leave nothing of targets without noise.
        fit = max(self.square - explained, np.finfo(float).eps * self.square, LEAST_FIT) / alpha
        value, s2 = evidence_value(fit, system.log_det, n, c)
        fitted = 1.0 - alpha * self.stack.backend.to_numpy(system.B.diagonal())[:R]
        # W_mᵀ β = (Φᵀ A Y)_m = θ_m, as A W = diag(w) Φ B.
        per_feature = 0.5 * (c * fitted - np.sum(theta[:R] ** 2, axis=1) / s2)
        residual = (self.square - explained - alpha * float(np.sum(theta[:R] ** 2))) / alpha
        slope = 0.5 * (c * (n - 1 - float(fitted.sum())) - residual / s2)
        return Judged(value, self._per_kernel(per_feature), slope)

    def _per_kernel(self, features: Array) -> Array:
        """Return the sums over the features of every kernel."""
        return np.bincount(self.kernel, features, self.stack.n_kernels).astype(np.float64)

    def _parts(self) -> Iterator[tuple[Indices, Groups]]:
        """Yield all samples in parts, or all groups, with the numbers of the samples of both."""
        if self.groups is None:
            every = np.arange(self.stack.n_samples)
            yield from ((every[part], None) for part in self.stack.strips(copied=True))
            return
        ends = np.cumsum([len(S) for S in self.groups])
        rows_at_once = max(self.stack.options.strip_bytes // (8 * len(self.normal)), 1)
        cuts = np.flatnonzero(np.diff(ends // rows_at_once)) + 1
        for i, j in pairwise([0, *cuts.tolist(), len(self.groups)]):
            yield np.concatenate(self.groups[i:j]), self.groups[i:j]

    # Of targets with weights of their own ---------------------------------------------------------

    def sizes(self) -> tuple[Array, Array]:
        """Return of every kernel its trace, and the sum of the squares of its entries."""
        assert self.Z is not None
        products = self.stack.backend.to_numpy(self.Z.T @ self.Z)
        traces, squares = np.zeros((2, self.stack.n_kernels))
        for m in range(self.stack.n_kernels):
            of_kernel = self.kernel == m
            part = products[np.ix_(of_kernel, of_kernel)]
            traces[m], squares[m] = part.trace(), (part**2).sum()
        return traces, squares

    @cached_property
    def _placed(self) -> tuple[ArrayOrTensor, ArrayOrTensor]:
        """Features, without the constant, and weights of the samples in the precision of
        `products`."""
        assert self.Z is not None
        backend = self.stack.backend
        weight = backend.astype(backend.asarray(self.weight)[:, None], self.dtype)
        return backend.astype(self.Z, self.dtype)[:, :-1], weight

    def products(self, V: ArrayOrTensor, gammas: ArrayOrTensor) -> ArrayOrTensor:
        """Return (Σ_m γ_m K_m + diag(1/w)) v for columns v of V.

        Parameters
        ----------
        V : array of shape (n, columns)
            Where the kernels are, in the precision `dtype`.
        gammas : array of shape (P, columns)
            γ of every column.
        """
        Z, weight = self._placed
        of_features = gammas[self.stack.backend.index(self.kernel)]
        return V / weight + Z @ (of_features * (Z.T @ V))


def with_constant(factors: FactoredGram, rows: Indices) -> ArrayOrTensor:
    """Return [Z, 1] of some samples in double precision: rounding hides slopes where α is small."""
    Z = factors.placed_rows(rows)
    return factors.backend.xp.concatenate([Z, factors.backend.asarray(np.ones((len(rows), 1)))], 1)


def consecutive(groups: Groups) -> Groups:
    """Return where the samples of groups are once all are put one after the other."""
    return groups and np.split(
        np.arange(sum(map(len, groups))), np.cumsum([len(S) for S in groups[:-1]])
    )


# Variances and criteria ---------------------------------------------------------------------------


def variances(K: ArrayOrTensor, ridge: Array, k: ArrayOrTensor, own: Array) -> Array:
    """Return the variances of outputs, in units of that of the targets' noise over α; the
    constant's prior is flat.

    They are differences of large numbers where M is ill-conditioned: centring, and a factor in
    place of the inverse, keep their digits.

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
    backend, system = backend_of(K), MatrixLeastSquares.of(K, ridge)
    k = k - backend.asarray(system.offset)
    shift = k.mean(1)
    k = k - shift[:, None]
    V = system.factor.inverse_root() @ k.T
    left = (1.0 - backend.to_numpy(k) @ system.ones) ** 2 / system.ones.sum()
    return np.asarray(own - 2.0 * backend.to_numpy(shift) - backend.to_numpy((V * V).sum(0)) + left)


def _congruence(A: ArrayOrTensor, d: Array) -> ArrayOrTensor:
    """Return A diag(d) A for a symmetric A, by one product of a matrix with its transpose for each
    sign of d.

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

    This is the loss of Gaussian residuals of the likeliest size, in nats. It does not depend on the
    unit of the targets but for a constant.
    """
    count = float(weight.sum()) * r.shape[1]
    mean = max(float(np.sum(weight[:, np.newaxis] * r**2)) / count, np.finfo(float).tiny)
    return 0.5 * count * float(np.log(mean)), weight[:, np.newaxis] * r / mean


def class_loss(
    r: Array, Y: Array, labels: Indices, scale: float, weight: Array
) -> tuple[float, Array, float]:
    """Return Σ_i w_i log-loss of the outputs f = Y − r, its slopes in r, and that in log a.

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
    """Return Σ_i w_i log-loss of softmax(scores), one column per class, and its slopes in the
    scores."""
    every = np.arange(len(scores))
    slope = softmax(scores, axis=1)
    slope[every, labels] -= 1.0
    return (
        float(weight @ (logsumexp(scores, axis=1) - scores[every, labels])),
        weight[:, np.newaxis] * slope,
    )


def evidence_value(
    fit: float, log_det: float, n: int, c: int, noise: float | None = None
) -> tuple[float, float]:
    """Return the negative log evidence, constants left out, of Gaussian targets with the covariance
    s² M, and s².

    s² is that of the largest evidence unless it is given; the constant has a flat prior (restricted
    likelihood).

    Parameters
    ----------
    fit : float
        tr(Yᵀ A Y) of n samples and c targets.
    log_det : float
        As in `LeastSquares`.
    n, c : int
        The shape of Y.
    noise : float, optional
        s².
    """
    s2 = fit / ((n - 1) * c) if noise is None else noise
    return float(0.5 * fit / s2 + 0.5 * c * log_det + 0.5 * (n - 1) * c * np.log(s2)), s2


def evidence(
    system: MatrixLeastSquares, Y: Array, noise: float | None = None
) -> tuple[float, ArrayOrTensor]:
    """Return `evidence_value`, and its slope G in M."""
    beta, c = system.times(Y), Y.shape[1]
    value, s2 = evidence_at(system, Y, beta, noise)
    right = backend_of(system.A).asarray(beta)
    return value, (0.5 * c) * system.A - right @ (right.T * (0.5 / s2))


def evidence_diagonal(system: MatrixLeastSquares, Y: Array, beta: Array) -> Array:
    """Return the diagonal of G alone."""
    s2 = evidence_at(system, Y, beta)[1]
    return np.asarray(0.5 * Y.shape[1] * system.diagonal - (0.5 / s2) * np.sum(beta**2, axis=1))


def evidence_at(
    system: LeastSquares, Y: Array, beta: Array, noise: float | None = None
) -> tuple[float, float]:
    """Return `evidence_value` of the coefficients β = A Y, without A."""
    fit = max(float(np.sum(Y * beta)), LEAST_FIT)
    return evidence_value(fit, system.log_det, len(Y), Y.shape[1], noise)
