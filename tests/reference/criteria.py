"""The criteria F₁* to F₆* and F₈* of discriminant analysis, as the paper writes them."""

from __future__ import annotations

import numpy as np

from kernelmosaic.discriminant.machine import binary_targets, center, within_class_matrix


def least_squares_value(K, targets, alpha):
    """Return F₃* or F₆*: Σ_i h_iᵀ(I + G̃/λ)⁻¹h_i for the kernel matrix K (not yet centred)."""
    A = center(np.array(K, dtype=np.float64)) / alpha
    A[np.diag_indices_from(A)] += 1.0
    T = targets.reshape(len(A), -1)
    return float(np.sum(T * np.linalg.solve(A, T)))


def total_scatter_value(K, targets, alpha):
    """Return F₂* or F₅*, the Fisher ratio over the regularised total scatter, at its maximiser
    φ(X)Π(λI + G̃)⁻¹h."""
    G = center(np.array(K, dtype=np.float64))
    T = targets.reshape(len(G), -1)
    B = np.linalg.solve(G + alpha * np.eye(len(G)), T)
    GB = G @ B
    ratios = np.sum(T * GB, axis=0) ** 2 / (
        np.sum(GB * GB, axis=0) + alpha * np.sum(B * GB, axis=0)
    )
    return float(ratios.sum())


def joint_ratio_value(K, targets, tau):
    """Return F₈* = Σ_i h_iᵀ(h_i − (I + τG̃)⁻¹h_i)/τ, the Fisher ratio over τΣ_K + I, with λ = 1/τ
    in the data term.

    At a fixed τ kernels rank by it as by F₉*. It falls with τ for every kernel, so it is not what
    to choose τ by: that is F₉*, the objective of ``alpha="learn"``.
    """
    T = targets.reshape(len(K), -1)
    return (float(np.sum(T * T)) - least_squares_value(K, T, 1.0 / tau)) / tau


def trace_value(K, H, alpha):
    """Return F₄* = tr(S_t⁺S_b) with S_t = GΠG + λG and S_b = GHHᵀG."""
    G = np.asarray(K, dtype=np.float64)
    centred = G - G.mean(axis=0)
    S_t, S_b = centred.T @ centred + alpha * G, G @ H @ H.T @ G
    return float(np.trace(np.linalg.pinv(S_t, rcond=1e-12, hermitian=True) @ S_b))


def within_class_value(K, labels, alpha):
    """Return F₁* = (1/λ) aᵀG(I − J(λI + JGJ)⁻¹JG)a, the Fisher ratio over the regularised
    within-class scatter.

    F₂* with the regulariser mλ is g / (1 + cg), where g = F₁*/m and c = m₊m₋/m: both prefer the
    same kernels.
    """
    G, a, J = np.asarray(K, dtype=np.float64), binary_targets(labels), within_class_matrix(labels)
    Ga = G @ a
    inner = np.linalg.solve(alpha * np.eye(len(G)) + J @ G @ J, J @ Ga)
    return float((a @ Ga - (J @ Ga) @ inner) / alpha)
