"""Residuals, deviations and probabilities by the closed form of leave-one-out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from kernelmosaic._typing import Array, Indices, MatrixLike
from kernelmosaic.backend import row_strips
from kernelmosaic.engine.conformal import BLOCK, Unseen
from kernelmosaic.engine.expansion import Function
from kernelmosaic.engine.tasks import per_class
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.ridge import tuning
from kernelmosaic.solvers.least_squares import MatrixLeastSquares, softmax_loss, variances


@dataclass(frozen=True)
class LeftOutMachines:
    """The machines without one sample, or its group, each in closed form.

    Attributes
    ----------
    function : Function
        The machine of all samples.
    X : array or None
        The samples as the kernels read them; None where the machine is one of features.
    groups : sequence of ndarray or None
        Samples that are left out together.
    ridge : ndarray of shape (n,)
        α / w_i.
    mean_ridge : float
        α of a sample of mean weight.
    residuals : ndarray of shape (n, outputs)
        Targets minus outputs of the machine without the sample, by the weights of the model.
    unseen_residuals : ndarray of shape (n, outputs)
        The same; for samples that folds judged, by weights that had not seen them.
    seen_share : float
        The fraction of the calibration for outputs by weights that have seen the sample.
    left_out_outputs : ndarray of shape (n, outputs)
        Targets minus unseen residuals.
    covariance : ndarray of shape (D + 1, D + 1), or None
        (ZᵀWZ + αI)⁻¹ of the active features Z and a one, in units of the noise; None of matrices.
    has_matrix : bool
        Whether there is a matrix of all samples, so that all machines are known in closed form.
    """

    function: Function
    X: Any
    groups: Sequence[Indices] | None
    ridge: Array
    mean_ridge: float
    residuals: Array
    unseen_residuals: Array
    seen_share: float
    left_out_outputs: Array
    covariance: Array | None
    has_matrix: bool

    def influence(self, X: MatrixLike, training: MatrixLike) -> Array:
        """Return what the target of every training sample adds to the outputs for samples X.

        Parameters
        ----------
        X, training : array-like
            Validated samples; those of the fit stand in `training`.

        Returns
        -------
        ndarray of shape (len(X), len(training))
        """
        if self.covariance is None:
            placed = self.function.expansion.placed
            system = MatrixLeastSquares.of(placed(self.X, self.X), self.ridge)
            return system.influence(placed(X, training))
        right = self.features(training)
        return np.asarray(self.features(X) @ self.covariance @ right.T / self.ridge)

    def features(self, X: MatrixLike) -> Array:
        """Return the features of validated samples, and a one, of shape (n, D + 1)."""
        maps = self.function.expansion.kernel_set
        assert isinstance(maps, FeatureMaps)
        blocks = dict(maps.blocks(X, range(len(maps))))
        in_order = [blocks[m] for m in range(len(maps))]
        return np.column_stack([*in_order, np.ones(X.shape[0])])

    def variances(self, X: MatrixLike) -> Array:
        """Return the variances of the outputs for validated samples, in units of the noise over
        α."""
        expansion = self.function.expansion
        if self.covariance is None:
            K = expansion.placed(self.X, self.X)
            k = expansion.placed(X, self.X)
            return variances(K, self.ridge, k, expansion.diagonal(X))
        strips = []
        for _, (X_strip,) in expansion.sums.strips(X, None):
            Z = self.features(X_strip)
            strips.append(np.einsum("ij,ij->i", Z @ self.covariance, Z))
        return np.concatenate(strips)


@dataclass(frozen=True)
class LeftOut(Unseen):
    """All machines of a ridge estimator without one sample, or its group, in closed form.

    In features, and of many pairs, no sample changes the machine by much, and the machine itself
    takes their place.

    Attributes
    ----------
    model : BaseRidge
        Fitted.
    """

    model: Any

    def bands(self, X: MatrixLike) -> Iterator[tuple[Array, Array]]:
        left_out: LeftOutMachines = self.model._left_out
        X = self.model.read(X)
        outputs = self.model.function_.outputs(X)
        if not left_out.has_matrix:
            yield outputs[:, np.newaxis], outputs[:, np.newaxis]
            return
        residuals = left_out.residuals
        groups = left_out.groups
        influence = left_out.influence(X, left_out.X)
        group_of_sample = np.arange(len(residuals))
        for number, members in enumerate(groups or []):
            group_of_sample[members] = number
        for rows in row_strips(len(outputs), BLOCK // residuals.size):
            changes = influence[rows, :, np.newaxis] * residuals
            if groups is not None:
                of_groups = [changes[:, members].sum(axis=1) for members in groups]
                changes = np.stack(of_groups, axis=1)[:, group_of_sample]
            values = outputs[rows, np.newaxis] - changes
            yield values, values


def noise_of(beta: Array, residuals: Array, unseen_residuals: Array) -> Array:
    """Return the deviation s of every output's noise over √α.

    Standardised leave-one-out residuals r_i √A_ii / s have mean square one, A the inverse of the
    system's matrix; residuals that the weights did not see are larger by a factor, which multiplies
    s.

    Parameters
    ----------
    beta, residuals, unseen_residuals : ndarray of shape (n, outputs)
        Coefficients, and leave-one-out residuals by weights of all samples and of other ones.

    Returns
    -------
    ndarray of shape (outputs,)
    """
    unit = np.maximum(np.abs(residuals).max(axis=0), np.finfo(float).tiny)
    noise = unit * np.sqrt(np.mean(beta / unit * (residuals / unit), axis=0))
    seen = np.sqrt(np.mean((residuals / unit) ** 2, axis=0))
    unseen = np.sqrt(np.mean((unseen_residuals / unit) ** 2, axis=0))
    factor = np.divide(unseen, seen, out=np.ones_like(seen), where=seen > 0)
    return np.asarray(noise * factor)


@dataclass(frozen=True)
class ScaledSoftmax:
    """Probabilities softmax(a f), shrunk by one sample of equal probabilities.

    Attributes
    ----------
    scale : float
        a.
    total : float
        The weight of the samples that it was fitted to.
    """

    scale: float
    total: float

    @classmethod
    def fit(cls, outputs: Array, labels: Indices, weight: Array) -> tuple[ScaledSoftmax, Array]:
        """Return the softmax(a f + b) of least log-loss, and the shift b / a of the outputs f.

        The priors, in nats, are `tuning.CONSTANT_PRIOR` · ‖b‖² and `tuning.SCALE_PRIOR` · (log a)².

        Parameters
        ----------
        outputs : ndarray of shape (n, outputs)
            f, one per class, or a single one of two classes.
        labels : ndarray of shape (n,)
            The places of the classes.
        weight : ndarray of shape (n,)
            Weights of the samples.

        Returns
        -------
        probabilities : ScaledSoftmax
        shift : ndarray of shape (outputs,)
        """
        scores = per_class(outputs)

        def value(x: Array) -> tuple[float, Array]:
            log_scale, constants = x[0], x[1:]
            z = np.exp(log_scale) * scores + constants
            loss, gradient = softmax_loss(z, labels, weight)
            squares = float(constants @ constants)
            prior = tuning.SCALE_PRIOR * log_scale**2 + tuning.CONSTANT_PRIOR * squares
            in_scale = np.exp(log_scale) * float(np.sum(gradient * scores))
            in_scale = in_scale + 2.0 * tuning.SCALE_PRIOR * log_scale
            in_constants = gradient.sum(axis=0) + 2.0 * tuning.CONSTANT_PRIOR * constants
            return loss + prior, np.concatenate([[in_scale], in_constants])

        start = np.zeros(1 + scores.shape[1])
        best = minimize(value, start, jac=True, method="L-BFGS-B").x
        scale = np.exp(best[0])
        shift = best[1:] / scale
        if outputs.shape[1] == 1:
            shift = 0.5 * (shift[1:] - shift[:1])
        return cls(float(scale), float(weight.sum())), shift

    def probabilities(self, outputs: Array) -> Array:
        """Return the probabilities of the classes, of shape (n, classes)."""
        p = softmax(self.scale * per_class(outputs), axis=1)
        return np.asarray((self.total * p + 1.0 / p.shape[1]) / (self.total + 1.0))
