"""Regularised kernel discriminant analysis: its targets, its least-squares form, its projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh

from kernelmosaic._checks import check_positive
from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor
from kernelmosaic.gram.gram import as_gram
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.solvers.least_squares import MatrixLeastSquares, centre
from kernelmosaic.solvers.program import Vector

Matrix = Array

#: Relative to the largest eigenvalue of a criterion. Directions of smaller eigenvalues do not
#: separate classes: they are rounding (chosen by hand).
_RANK = 1e-10


class Discriminant:
    """Regularised kernel discriminant analysis as least squares on centred features.

    Two classes: min ‖(φΠ)ᵀw − a‖² + λ‖w‖², whose value F₃* = aᵀ(I + G̃/λ)⁻¹a is aᵀa − F₂*, the
    total-scatter Fisher criterion. More classes: the same for every column h_i of H at once, with
    the value F₆* = Σ h_iᵀ(I + G̃/λ)⁻¹h_i. G̃ = ΠGΠ is the centred kernel matrix.

    Parameters
    ----------
    labels : array of shape (n,)
        Classes as numbers 0 … classes − 1, all of which occur.
    alpha : float or None
        The regulariser λ of the total-scatter form. None if it is learned as the weight of the
        identity; the problem then is F₇* (F₉*), Σ h_iᵀ(λI + G̃)⁻¹h_i, without the factor λ.

    Attributes
    ----------
    targets : ndarray of shape (n, k)
        `binary_targets` in one column for two classes, else `class_targets`.
    counts : ndarray of shape (classes,)
        Samples per class.
    objective_scale : float
        λ, or 1 if it is learned: the problem's value is this times Σ h_iᵀ(λI + G̃)⁻¹h_i.
    has_classes : bool
        Whether every sample has one class. If it may have several labels, `root` turns targets into
        indicators.

    References
    ----------
    Ye, Ji and Chen (2008), "Multi-class discriminant kernel learning via convex programming",
    sections 2 to 4.
    """

    # Flags of a machine (see `Machine`): β has one column per target, and every sample has a
    # coefficient in each.
    has_one_output = False
    can_be_subsampled = False

    has_classes = True
    root: Matrix

    def __init__(self, labels: AnyArray, alpha: float | None) -> None:
        self.labels = np.asarray(labels)
        self.counts = np.bincount(self.labels)
        if len(self.counts) < 2 or np.any(self.counts == 0):
            raise ValueError(
                "labels: give at least two classes, numbered from 0 without gaps; the counts are"
                f" {self.counts}."
            )
        self.alpha = None if alpha is None else check_positive("alpha", alpha)
        self.objective_scale = 1.0 if self.alpha is None else self.alpha
        if len(self.counts) == 2:
            self.targets = binary_targets(self.labels)[:, np.newaxis]
        else:
            self.targets = class_targets(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of β: one coefficient per sample and target."""
        return self.targets.shape

    def continued(self, beta: Matrix, before: Discriminant) -> None:
        """Return None: a linear system needs no start."""
        return

    def primal_value(self, solution: Any) -> float:
        """Return the value of a solution, which is at least the optimum at its weights."""
        return float(solution.value)

    def system(self, K: ArrayOrTensor, alpha: float) -> MatrixLeastSquares:
        """Return the system λI + G̃ of a kernel, factorised.

        K is a `Gram` or an array, which may be overwritten. The system solves for β = A targets,
        where A is its inverse on centred vectors.

        Raises
        ------
        numpy.linalg.LinAlgError
            If λ is so small that λI + G̃ is not positive definite to machine precision.
        """
        gram = as_gram(K)
        matrix = gram.matrix
        if matrix is None:
            # Kernels in factors come here only with few samples; others are solved in the features.
            matrix = gram.block(np.arange(gram.n_samples))
        G = gram.backend.astype(matrix, np.float64)
        offset = centre(G)
        return MatrixLeastSquares(Cholesky(G, alpha, most=0.0), offset)


class LabelDiscriminant(Discriminant):
    """Discriminant analysis of samples that may have several labels, or none.

    H = √n Π Y (YᵀY)^(−½) for the indicators Y: labels that occur together share directions. If
    every sample has one label, YᵀY is diagonal with the counts, and H is `class_targets`.

    Parameters
    ----------
    indicators : array of shape (n, labels)
        Y, of zeros and ones; no column is constant.
    alpha : float or None
        See `Discriminant`.

    Attributes
    ----------
    root : ndarray of shape (labels, labels)
        (YᵀY)^½ / √n, which turns targets into centred indicators.
    """

    has_classes = False

    def __init__(self, indicators: AnyArray, alpha: float | None) -> None:
        Y = np.asarray(indicators, dtype=np.float64)
        n = len(Y)
        self.counts = Y.sum(axis=0)
        constant_columns = np.flatnonzero((self.counts == 0) | (self.counts == n))
        if len(constant_columns) > 0:
            column = int(constant_columns[0])
            raise ValueError(
                f"y: the label in column {column} is the same for all samples; leave it out."
            )
        self.alpha = None if alpha is None else check_positive("alpha", alpha)
        self.objective_scale = 1.0 if self.alpha is None else self.alpha
        # The root of YᵀY / n, and its pseudo-inverse.
        eigenvalues, V = eigh(Y.T @ Y / n)
        is_significant = eigenvalues > _RANK * eigenvalues[-1]
        roots = np.sqrt(np.where(is_significant, eigenvalues, 0.0))
        inverse_roots = np.divide(1.0, roots, out=np.zeros_like(roots), where=is_significant)
        self.root = (V * roots) @ V.T
        self.targets = (Y - Y.mean(axis=0)) @ ((V * inverse_roots) @ V.T)


@dataclass(frozen=True)
class Projection:
    """The discriminant space: a sample x is projected to Σ_i A_ij k(x_i, x), centred.

    The projections of the training samples have mean zero.

    Attributes
    ----------
    coefficients : ndarray of shape (n, components)
        A; at most classes − 1 columns, in which the regularised total scatter is the identity.
    eigenvalues : ndarray of shape (components,)
        What each direction adds to F₄*, largest first.
    rotation : ndarray of shape (k, components)
        C with A = βC, without directions that have no scatter.
    """

    coefficients: Matrix
    eigenvalues: Vector
    rotation: Matrix


def discriminant_projection(targets: Matrix, beta: Matrix, values: Matrix) -> Projection:
    """Return the projection W that maximises F₄ = tr((Wᵀ(Σ_K + λI)W)⁻¹ WᵀB_KW).

    With β = (λI + G̃)⁻¹H it is φ(X) β C, where C holds the eigenvectors of HᵀG̃β = HᵀG̃(λI +
    G̃)⁻¹H, divided by the roots of their eigenvalues.

    Parameters
    ----------
    targets, beta, values : ndarray of shape (n, k)
        H, β, and G̃β.
    """
    S = targets.T @ values
    ascending_eigenvalues, ascending_V = eigh(0.5 * (S + S.T))
    eigenvalues = ascending_eigenvalues[::-1]
    V = ascending_V[:, ::-1]
    is_significant = eigenvalues > _RANK * max(eigenvalues[0], 1e-300)
    n_components = max(int(np.sum(is_significant)), 1)
    C = V[:, :n_components] / np.sqrt(np.maximum(eigenvalues[:n_components], 1e-300))
    # The sign of an eigenvector is arbitrary: its largest entry is made positive.
    largest = C[np.abs(C).argmax(axis=0), np.arange(n_components)]
    C = C * np.where(largest < 0, -1.0, 1.0)
    return Projection(beta @ C, eigenvalues[:n_components], C)


# Targets ------------------------------------------------------------------------------------------


def binary_targets(labels: AnyArray) -> Vector:
    """Return a, of shape (n,): 1/m₊ for class 1 and −1/m₋ for class 0.

    φ(X)a is the difference of the class means.
    """
    counts = np.bincount(labels, minlength=2)
    return np.asarray(np.where(labels == 1, 1.0 / counts[1], -1.0 / counts[0]))


def class_targets(labels: AnyArray) -> Matrix:
    """Return H, of shape (n, classes).

    Column h_i is √(n/n_i) − √(n_i/n) at the samples of class i and −√(n_i/n) at all others.
    """
    n = len(labels)
    counts = np.bincount(labels)
    H = np.tile(-np.sqrt(counts / n), (n, 1))
    H[np.arange(n), labels] += np.sqrt(n / counts)[labels]
    return H


def center(K: ArrayOrTensor) -> ArrayOrTensor:
    """Return ΠKΠ for a square matrix K, which is overwritten by it."""
    means = K.mean(0)
    K -= means
    K -= (means - means.mean())[:, None]
    return K


def within_from_least_squares(value: float, counts: AnyArray) -> float:
    """Return the within-class criterion F₁* of the value F₃* of the least-squares problem.

    F₁* = m (1/(c F₃*) − 1)/c with c = m₊m₋/m, where the regulariser of F₃* is m times that of F₁*.
    """
    m = float(counts.sum())
    c = float(counts.prod() / counts.sum())
    return m * (1.0 / (c * value) - 1.0) / c


def within_class_matrix(labels: AnyArray) -> Matrix:
    """Return J, of shape (m, m): the matrix that centres every class by itself, divided by √m."""
    m = len(labels)
    is_same_class = labels[:, np.newaxis] == labels
    class_means = is_same_class / is_same_class.sum(axis=1)
    return np.asarray((np.eye(m) - class_means) / np.sqrt(m))
