"""The least-squares problems of discriminant analysis at any weights of the kernels: in matrices, or in features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import singledispatch
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.gram.linear import Cholesky
from kernelmosaic.learning.norms import Weights
from kernelmosaic.machines.discriminant import Discriminant, Factored, Matrix

#: A solution in features is refined until it is this exact, relative to its size, ...
_EXACT = 1e-10
#: ... at most so often, and as long as every refinement halves the error.
_REFINEMENTS = 5
#: A feature whose variance is below this share of its mean square is constant up to rounding.
_CONSTANT = 1e-12


@dataclass(frozen=True)
class RidgeSolution(ABC):
    """β = (λI + G̃)⁻¹H for the centred combined kernel G̃ = Σ θ_iG̃_i and the targets H.

    Attributes
    ----------
    beta, values : ndarray of shape (n, k)
        β, whose columns sum to zero, and G̃β.
    value : float
        No less than Σ_j h_jᵀ(λI + G̃)⁻¹h_j, however inexact β is.
    forms : ndarray of shape (P,)
        Σ_j β_jᵀG̃_iβ_j for every kernel.
    """

    beta: Matrix
    values: Matrix
    value: float
    forms: Weights

    @abstractmethod
    def responses(self, identity: bool) -> NDArray[np.float64]:
        """Return Σ_j (G̃_iβ_j)ᵀ(λI + G̃)⁻¹(G̃_lβ_j) for all pairs of kernels, the identity first if it is one."""


class Ridge(ABC):
    """min ‖H − φ̃w‖²/λ + ‖w‖² for every target of a machine, on the centred kernels of a stack.

    Parameters
    ----------
    stack : GramStack
        The kernels, not centred.
    machine : Discriminant
        The targets, every column of which sums to zero.
    """

    def __init__(self, stack: GramStack, machine: Discriminant) -> None:
        self.stack, self.machine = stack, machine

    @abstractmethod
    def solve(self, theta: Weights, alpha: float) -> RidgeSolution:
        """Solve for all targets.

        Raises
        ------
        numpy.linalg.LinAlgError
            If λ is so small that λI + G̃ is not positive definite to machine precision.
        """

    @abstractmethod
    def forms(self, beta: Matrix) -> Weights:
        """Return Σ_j β_jᵀG̃_iβ_j for every kernel and any β whose columns sum to zero."""


@singledispatch
def make_ridge(stack: GramStack, machine: Discriminant) -> Ridge:
    """Return the least-squares problems in the form that the stack's kernels have."""
    return MatrixRidge(stack, machine)


# Kernels in matrices -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MatrixSolution(RidgeSolution):
    """A solution with the factorised matrix, and with G̃_iβ of every kernel, of shape (P, n, k)."""

    factored: Factored
    products: NDArray[np.float64]

    def responses(self, identity: bool) -> NDArray[np.float64]:
        V = np.concatenate([self.beta[np.newaxis], self.products]) if identity else self.products
        flat = V.transpose(1, 0, 2).reshape(V.shape[1], -1)
        answer = self.factored.solve(flat).reshape(V.shape[1], *V.shape[::2])
        return np.asarray(np.einsum("inj,nlj->il", V, answer))


class MatrixRidge(Ridge):
    """One factorisation of an n × n matrix a solution."""

    def solve(self, theta: Weights, alpha: float) -> MatrixSolution:
        factored = self.machine.solve(self.stack.combine(theta), alpha)
        products = self._products(factored.beta)
        forms = np.einsum("inj,nj->i", products, factored.beta)
        values = np.tensordot(theta, products, 1)
        # The problem itself, by the same products as the forms: no less than its optimum whatever β is.
        value = float(np.sum((self.machine.targets - values) ** 2) / alpha + theta @ forms)
        return MatrixSolution(factored.beta, values, value, forms, factored, products)

    def forms(self, beta: Matrix) -> Weights:
        return np.asarray(np.einsum("inj,nj->i", self._products(beta), beta))

    def _products(self, beta: Matrix) -> NDArray[np.float64]:
        # Coefficients sum to zero, so centring what comes out is enough.
        out = self.stack.products(beta)
        out -= out.mean(axis=1, keepdims=True)
        return out


# Kernels in features -------------------------------------------------------------------------------------------------


class FeatureRidge(Ridge):
    """G̃_i = Z̃_iZ̃_iᵀ: one pass over the rows forms Z̃ᵀZ̃ of all features, and every solution is one in features.

    At weights θ the features are Z̃R with R² = diag θ, and w = (λI + RZ̃ᵀZ̃R)⁻¹RZ̃ᵀH gives β = (H − Z̃Rw)/λ. Any w is
    a point of the problem, worth ‖H − Z̃Rw‖²/λ + ‖w‖², and any β gives a bound; so both are computed from the rows,
    which costs two more passes with k columns, and rounding in Z̃ᵀZ̃ costs nothing but exactness. Between them lies
    ‖w − RZ̃ᵀβ‖², which tells when to refine.
    """

    stack: FeatureStack

    def __init__(self, stack: FeatureStack, machine: Discriminant) -> None:
        super().__init__(stack, machine)
        self.everything = stack.combine(np.ones(stack.n_kernels))
        moments = self.everything.normal_matrix(np.ones(stack.n_samples), precise=True)
        self.means = moments[-1, :-1] / stack.n_samples
        self.moments = moments[:-1, :-1]
        squares = np.diag(self.moments).copy()
        self.moments -= np.outer(moments[-1, :-1], self.means)
        constant = np.diag(self.moments) <= _CONSTANT * squares
        self.moments[constant] = self.moments[:, constant] = 0.0
        self.right = self.sums(machine.targets)
        edges = np.concatenate([[0], np.cumsum(stack.widths)])
        self.places = [slice(int(a), int(b)) for a, b in pairwise(edges)]

    def solve(self, theta: Weights, alpha: float) -> FeatureSolution:
        system = _FeatureSystem(self, theta, alpha)
        best = system.evaluate(system.solve(system.roots * self.right[system.active]))
        for _ in range(_REFINEMENTS):
            if np.linalg.norm(best.missing) <= _EXACT * np.sqrt(best.value):
                break
            there = system.evaluate(best.w + system.solve(alpha * best.missing))
            if not np.linalg.norm(there.missing) < 0.5 * np.linalg.norm(best.missing):
                break
            best = there
        return best

    def forms(self, beta: Matrix) -> Weights:
        return self.squares(self.sums(beta))

    def sums(self, beta: Matrix) -> Matrix:
        """Return Z̃ᵀβ over the features of all kernels."""
        return np.asarray(self.everything.adjoint(beta) - np.outer(self.means, beta.sum(axis=0)))

    def squares(self, sums: Matrix) -> Weights:
        """Return the squared size of the sums of every kernel."""
        return np.array([np.sum(sums[place] ** 2) for place in self.places])


class _FeatureSystem:
    """λI + RZ̃ᵀZ̃R over the features of the kernels with a weight, factorised."""

    def __init__(self, ridge: FeatureRidge, theta: Weights, alpha: float) -> None:
        self.ridge, self.alpha = ridge, alpha
        self.gram = ridge.stack.combine(theta)
        spread = np.repeat(theta, ridge.stack.widths)
        self.active = np.flatnonzero(spread)
        self.roots = np.sqrt(spread[self.active])[:, np.newaxis]
        A = ridge.moments[np.ix_(self.active, self.active)]
        A *= self.roots
        A *= self.roots.T
        A[np.diag_indices_from(A)] += alpha
        if alpha <= np.finfo(np.float64).eps * np.diag(A).max(initial=0.0):
            raise np.linalg.LinAlgError("The regulariser is lost in rounding.")
        # What rounding takes from a small λ, refining gives back.
        self.factor = Cholesky(A)

    def solve(self, right: Matrix) -> Matrix:
        return np.asarray(self.factor.solve(right))

    def evaluate(self, w: Matrix) -> FeatureSolution:
        """Return what w is worth, from the rows."""
        values = self.gram.apply(w)
        values -= values.mean(axis=0)
        beta = (self.ridge.machine.targets - values) / self.alpha
        beta -= beta.mean(axis=0)
        sums = self.ridge.sums(beta)
        value = self.alpha * float(np.sum(beta**2)) + float(np.sum(w**2))
        return FeatureSolution(beta, values, value, self.ridge.squares(sums), self, w, sums)


@dataclass(frozen=True)
class FeatureSolution(RidgeSolution):
    """A solution with its system, its w, and Z̃ᵀβ over the features of all kernels."""

    system: _FeatureSystem
    w: Matrix
    sums: Matrix

    @property
    def missing(self) -> Matrix:
        """RZ̃ᵀβ − w, zero at the optimum."""
        return np.asarray(self.system.roots * self.sums[self.system.active] - self.w)

    def responses(self, identity: bool) -> NDArray[np.float64]:
        # With V_i = G̃_iβ it is (V_iᵀV_l − V_iᵀZ̃R(λI + RZ̃ᵀZ̃R)⁻¹RZ̃ᵀV_l)/λ, and Z̃ᵀV_i = Z̃ᵀZ̃_i Z̃_iᵀβ has no n in it.
        system, sums, places = self.system, self.sums, self.system.ridge.places
        Y = np.array([system.ridge.moments[:, place] @ sums[place] for place in places])
        X = np.array([[np.sum(sums[place] * y[place]) for y in Y] for place in places])
        if identity:
            Y = np.concatenate([sums[np.newaxis], Y])
            corner = np.array([[np.sum(self.beta**2)]])
            X = np.block([[corner, self.forms[np.newaxis]], [self.forms[:, np.newaxis], X]])
        sides = (system.roots * Y[:, system.active]).transpose(1, 0, 2).reshape(len(system.active), -1)
        shape = (len(system.active), len(Y), -1)
        taken = np.einsum("dij,dlj->il", sides.reshape(shape), system.solve(sides).reshape(shape))
        return np.asarray((X - taken) / system.alpha)


@make_ridge.register
def _make_feature_ridge(stack: FeatureStack, machine: Discriminant) -> Ridge:
    # Where samples are fewer than features, so are the entries of their matrix.
    few = stack.n_samples <= stack.widths.sum()
    return MatrixRidge(stack, machine) if few else FeatureRidge(stack, machine)
