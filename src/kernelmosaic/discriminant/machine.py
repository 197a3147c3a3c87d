"""Regularised kernel discriminant analysis: its targets and its least-squares form."""

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

#: Eigenvalues of a criterion below this share of the largest are directions that do not separate
#: classes.
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
        The regulariser λ of the total-scatter form. None where it is learned as the weight of the
        identity; the problem then is F₇* (F₉*), Σ h_iᵀ(λI + G̃)⁻¹h_i, without the factor λ.

    Attributes
    ----------
    targets : ndarray of shape (n, k)
        `binary_targets` in one column for two classes, else `class_targets`.
    counts : ndarray of shape (classes,)
        Samples per class.
    objective_scale : float
        λ, or 1 where it is learned: the problem's value is this times Σ h_iᵀ(λI + G̃)⁻¹h_i.

    References
    ----------
    Ye, Ji and Chen (2008), "Multi-class discriminant kernel learning via convex programming",
    sections 2 to 4.
    """

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
        two = len(self.counts) == 2
        self.targets = (
            binary_targets(self.labels)[:, np.newaxis] if two else class_targets(self.labels)
        )

    # β has one column per target, and all samples are in all of them.
    has_one_output = False
    can_be_subsampled = False
    #: Whether every sample has one class; else it may have several labels, and `root` turns targets
    #: into indicators.
    has_classes = True
    root: Matrix

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of β: one coefficient per sample and target."""
        return self.targets.shape

    def continued(self, beta: Matrix, before: Discriminant) -> None:
        """Nothing: a linear system needs no start."""
        return

    def primal_value(self, solution: Any) -> float:
        """Return the value of a solution, no less than the optimum at its weights."""
        return float(solution.value)

    def system(self, K: ArrayOrTensor, alpha: float) -> MatrixLeastSquares:
        """Return λI + G̃ of a kernel in whatever form a stack gives it, whose A has β = A targets;
        K may be overwritten.

        Raises
        ------
        numpy.linalg.LinAlgError
            If λ is so small that λI + G̃ is not positive definite to machine precision.
        """
        gram = as_gram(K)
        # Kernels in factors are written down for few samples only; more are solved in the features.
        matrix = gram.block(np.arange(gram.n_samples)) if gram.matrix is None else gram.matrix
        G = gram.backend.astype(matrix, np.float64)
        offset = centre(G)
        return MatrixLeastSquares(Cholesky(G, alpha, most=0.0), offset)


class LabelDiscriminant(Discriminant):
    """The same for samples that may have several labels, or none.

    H = √n Π Y (YᵀY)^(−½) for the indicators Y: labels that go together share directions. Where
    every sample has one label, YᵀY holds the counts, and H is `class_targets`.

    Parameters
    ----------
    indicators : array of shape (n, labels)
        Y, of zeros and ones; no column is constant.
    alpha : float or None
        See `Discriminant`.

    Attributes
    ----------
    root : ndarray of shape (labels, labels)
        (YᵀY)^½ / √n, with which targets become indicators again.
    """

    def __init__(self, indicators: AnyArray, alpha: float | None) -> None:
        Y = np.asarray(indicators, dtype=np.float64)
        n = len(Y)
        self.counts = Y.sum(axis=0)
        if np.any((self.counts == 0) | (self.counts == n)):
            constant = int(np.flatnonzero((self.counts == 0) | (self.counts == n))[0])
            raise ValueError(
                f"y: the label in column {constant} is the same for all samples; leave it out."
            )
        self.alpha = None if alpha is None else check_positive("alpha", alpha)
        self.objective_scale = 1.0 if self.alpha is None else self.alpha
        eigenvalues, V = eigh(Y.T @ Y / n)
        known = eigenvalues > _RANK * eigenvalues[-1]
        roots = np.sqrt(np.where(known, eigenvalues, 0.0))
        self.root = (V * roots) @ V.T
        inverse = (V * np.divide(1.0, roots, out=np.zeros_like(roots), where=known)) @ V.T
        self.targets = (Y - Y.mean(axis=0)) @ inverse

    has_classes = False


@dataclass(frozen=True)
class Projection:
    """The discriminant space: samples are projected by Σ_i A_ij k(x_i, ·), centred on the training
    set.

    Attributes
    ----------
    coefficients : ndarray of shape (n, components)
        A; at most classes − 1 columns, in which the regularised total scatter is the identity.
    eigenvalues : ndarray of shape (components,)
        What each adds to F₄*, largest first.
    rotation : ndarray of shape (k, components)
        C with A = β C, up to directions without any scatter.
    """

    coefficients: Matrix
    eigenvalues: Vector
    rotation: Matrix


def discriminant_projection(targets: Matrix, beta: Matrix, values: Matrix) -> Projection:
    """Return the maximiser of F₄ = tr((Wᵀ(Σ_K + λI)W)⁻¹ WᵀB_KW).

    With β = (λI + G̃)⁻¹H it is φ(X) β C, where C holds the eigenvectors of HᵀG̃β = HᵀG̃(λI +
    G̃)⁻¹H.

    Parameters
    ----------
    targets, beta, values : ndarray of shape (n, k)
        H, β, and G̃β.
    """
    S = targets.T @ values
    eigenvalues, V = eigh(0.5 * (S + S.T))
    eigenvalues, V = eigenvalues[::-1], V[:, ::-1]
    keep = max(int(np.sum(eigenvalues > _RANK * max(eigenvalues[0], 1e-300))), 1)
    C = V[:, :keep] / np.sqrt(np.maximum(eigenvalues[:keep], 1e-300))
    # Eigenvectors have no sign of their own: let the largest entry be positive.
    C = C * np.where(C[np.abs(C).argmax(axis=0), np.arange(keep)] < 0, -1.0, 1.0)
    return Projection(beta @ C, eigenvalues[:keep], C)


# Targets ------------------------------------------------------------------------------------------


def binary_targets(labels: AnyArray) -> Vector:
    """Return a: 1/m₊ for class 1, −1/m₋ for class 0, so that φ(X)a is the difference of the class
    means."""
    counts = np.bincount(labels, minlength=2)
    return np.asarray(np.where(labels == 1, 1.0 / counts[1], -1.0 / counts[0]))


def class_targets(labels: AnyArray) -> Matrix:
    """Return H of shape (n, classes): h_i is √(n/n_i) − √(n_i/n) in class i and −√(n_i/n)
    elsewhere."""
    n, counts = len(labels), np.bincount(labels)
    H = np.tile(-np.sqrt(counts / n), (n, 1))
    H[np.arange(n), labels] += np.sqrt(n / counts)[labels]
    return H


def center(K: ArrayOrTensor) -> ArrayOrTensor:
    """Return ΠKΠ for a square matrix, in place."""
    means = K.mean(0)
    K -= means
    K -= (means - means.mean())[:, None]
    return K


def within_from_least_squares(value: float, counts: AnyArray) -> float:
    """Return F₁* from F₃*, whose regulariser is m times that of F₁*: m (1/(c F₃*) − 1)/c with c =
    m₊m₋/m."""
    m, c = float(counts.sum()), float(counts.prod() / counts.sum())
    return m * (1.0 / (c * value) - 1.0) / c


def within_class_matrix(labels: AnyArray) -> Matrix:
    """Return J: every class centred by itself, over √m."""
    same = labels[:, np.newaxis] == labels
    return np.asarray((np.eye(len(labels)) - same / same.sum(axis=1)) / np.sqrt(len(labels)))
