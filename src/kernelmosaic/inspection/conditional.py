"""A permutation test whether a view adds information to the others."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from kernelmosaic._checks import check_count
from kernelmosaic._typing import Array, Seed
from kernelmosaic.backend import threads_for

#: Relative differences up to which statistics count as equal: a permutation may change nothing but
#: the rounding.
ROUNDING = 1e-9
#: Samples that are needed for a test: fewer have fewer than six orders.
LEAST_SAMPLES_TO_PERMUTE = 3
#: Numbers of permuted coefficients that are computed with at a time; chosen by hand.
_BATCH_SIZE = 2**22


def conditional_pvalue(
    K: Array,
    given: Array,
    dual_coef: Array,
    *,
    n_permutations: int = 999,
    random_state: Seed = None,
) -> float:
    """Test by permutations whether a kernel adds anything to a machine that does not have it.

    The null hypothesis is that the samples in the kernel's feature space are independent of the
    targets, given the kernel of the machine. The dual coefficients β of the machine measure what it
    leaves unexplained: for least squares they are the residuals divided by α, for hazards the
    martingale residuals. Ridge regression on the machine's kernel, with an intercept and the ridge
    of least leave-one-out error, removes the explained part from β and from the tested kernel: a
    kernel that repeats those of the machine adds nothing. With R the matrix that turns targets into
    residuals, the statistic is tr(β̃ᵀ K̃ β̃) / ‖Rβ̃‖² for K̃ = R K R, the gradient of the objective
    in the weight of the remaining kernel K̃. It is compared with the statistics of β̃ in permuted
    order.

    A sample that lacks the tested view is left out: the replacement of its view is computed from
    the other views, so that a completed kernel repeats what these say of the targets. The machine
    is fitted to all samples. Where a sample lacks another view, the null hypothesis is conditional
    on the replacement that the machine uses: a view that repeats another one adds something for the
    samples that lack the other.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        The kernel between training samples, or the sum of the kernels of a view. A sample that
        lacks the view has NaN in its row and column.
    given : ndarray of shape (n, n)
        The kernel of a machine that was fitted without it, its `kernel_matrix`.
    dual_coef : ndarray of shape (outputs, n)
        The coefficients of that machine, zero where a sample is not a support vector.
    n_permutations : int, default=999
        How often the coefficients are permuted; the p-value is a multiple of 1 / (n_permutations +
        1).
    random_state : int, RandomState or None, default=None
        Draws the permutations.

    References
    ----------
    Zhang, Peters, Janzing and Schölkopf (2011), "Kernel-based conditional independence test and
    application in causal discovery"; Shah and Peters (2020), "The hardness of conditional
    independence testing".

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLRidgeCV
    >>> from kernelmosaic.inspection import conditional_pvalue
    >>> first, second = np.random.RandomState(0).normal(size=(2, 60, 3))
    >>> model = MKLRidgeCV().fit(first, first[:, 0] + second[:, 0])
    >>> machine = model.kernel_matrix(first), model.dual_coef_
    >>> conditional_pvalue(second @ second.T, *machine, random_state=0)
    0.001

    Twenty samples lack the second view:

    >>> K = second @ second.T
    >>> K[:20] = K[:, :20] = np.nan
    >>> conditional_pvalue(K, *machine, random_state=0)
    0.001
    """
    N = check_count("n_permutations", n_permutations)
    random = check_random_state(random_state)
    if not np.shape(K) == np.shape(given) == (np.shape(dual_coef)[-1],) * 2:
        raise ValueError(
            f"dual_coef has shape {np.shape(dual_coef)}, K {np.shape(K)} and given"
            f" {np.shape(given)}: give kernels between all training samples, and a column for each,"
            " zero where a sample is not a support vector."
        )
    K = np.asarray(K, dtype=np.float64)
    given = np.asarray(given, dtype=np.float64)
    beta = np.atleast_2d(np.asarray(dual_coef, dtype=np.float64)).T

    # 1. Only samples that have the tested view are compared.
    having = np.flatnonzero(~np.isnan(K.diagonal()))
    n = len(having)
    if n < LEAST_SAMPLES_TO_PERMUTE:
        raise ValueError(
            f"K: {n} of {len(K)} samples have the view, too few to permute; give at least"
            f" {LEAST_SAMPLES_TO_PERMUTE}."
        )
    K = K[np.ix_(having, having)]
    given = given[np.ix_(having, having)]
    beta = beta[having]
    for name, values in (("K", K), ("given", given), ("dual_coef", beta)):
        if not np.all(np.isfinite(values)):
            raise ValueError(
                f"{name} has NaN or infinite entries between samples that have the view: a sample"
                " that lacks it has NaN in its whole row and column of K, and no NaN elsewhere."
            )

    # 2. Ridge regression on the given kernel removes what it explains of the coefficients and of
    #    the tested kernel.
    with threads_for(n):
        smoother = _KernelSmoother(given)
        eigenvalues, eigenvectors = np.linalg.eigh(_centred(K))
        is_positive = eigenvalues > ROUNDING * np.abs(eigenvalues).max()
        # K = features @ features.T, up to rounding.
        features = eigenvectors[:, is_positive] * np.sqrt(eigenvalues[is_positive])
        R = smoother.residual_matrix(features)
        beta = smoother.residual_matrix(beta) @ beta
        features = R @ features

    # 3. The statistic of the coefficients in their own order, and in every permuted order.
    orders = np.array([np.arange(n), *(random.permutation(n) for _ in range(N))])
    n_outputs = beta.shape[1]
    statistics = np.empty(N + 1)
    batch = max(1, _BATCH_SIZE // beta.size)
    for start in range(0, N + 1, batch):
        n_orders = min(batch, N + 1 - start)
        # Shape (n, n_orders * n_outputs): one product for all orders.
        permuted = beta[orders[start : start + n_orders].T].reshape(n, -1)
        squared_features = np.square(features.T @ permuted).reshape(-1, n_orders, n_outputs)
        squared_residuals = np.square(R @ permuted).reshape(-1, n_orders, n_outputs)
        gradients = squared_features.sum(axis=(0, 2))
        norms = squared_residuals.sum(axis=(0, 2))
        statistics[start : start + n_orders] = np.divide(
            gradients, norms, out=np.zeros(n_orders), where=norms > 0
        )
    # The own order is one of those that are equally probable under the null hypothesis.
    is_as_large = statistics[1:] >= statistics[0] * (1.0 - ROUNDING)
    return float((1 + np.count_nonzero(is_as_large)) / (1 + N))


def _centred(K: Array) -> Array:
    """Return the Gram matrix of the centred feature vectors of K."""
    K = K - K.mean(axis=0)
    return np.asarray(K - K.mean(axis=1, keepdims=True))


class _KernelSmoother:
    """Ridge regression with an intercept on a kernel, for any targets.

    Parameters
    ----------
    kernel : ndarray of shape (n, n)
        The kernel between the samples.
    """

    #: Ridges to choose from, in units of the mean eigenvalue; chosen by hand. With the last one
    #: only the intercept is fitted.
    RIDGES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, np.inf)

    def __init__(self, kernel: Array) -> None:
        eigenvalues, eigenvectors = np.linalg.eigh(_centred(kernel))
        self.eigenvalues = np.maximum(eigenvalues, 0.0)
        # The intercept explains the constant vector. Without it, the leave-one-out error of centred
        # targets would be too small: they sum to zero, so the other samples determine the one that
        # is left out.
        self.eigenvectors: Array = eigenvectors - eigenvectors.mean(axis=0)

    def residual_matrix(self, targets: Array) -> Array:
        """Return the matrix that turns targets into their residuals.

        The ridge is the one of least leave-one-out error for these targets.
        Parameters
        ----------
        targets : ndarray of shape (n, outputs)

        Returns
        -------
        ndarray of shape (n, n)
        """
        mean_eigenvalue = self.eigenvalues.mean() or 1.0
        rotated = self.eigenvectors.T @ targets
        best_error = np.inf
        # The fraction of each eigenvector that ridge regression does not explain.
        best_unexplained: Array = np.ones_like(self.eigenvalues)
        for factor in self.RIDGES:
            unexplained: Array = np.ones_like(self.eigenvalues)
            if factor < np.inf:
                ridge = factor * mean_eigenvalue
                unexplained = ridge / (self.eigenvalues + ridge)
            residuals = self.eigenvectors @ (unexplained[:, np.newaxis] * rotated)
            diagonal = np.square(self.eigenvectors) @ unexplained
            error = float(np.sum(np.square(residuals / diagonal[:, np.newaxis])))
            if error < best_error:
                best_error = error
                best_unexplained = unexplained
        return np.asarray((self.eigenvectors * best_unexplained) @ self.eigenvectors.T)
