"""The correlation of two rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from kernelmosaic.kernels.base import Block, Kernel


class Correlation(Kernel):
    """k(x, z) = Pearson's correlation between the entries of x and those of z, as for two expression profiles.

    It is the inner product of the rows after each is centred and scaled to length one. A constant row has no direction
    left once it is centred: it stands for the zero vector, and its similarity to every sample, itself included, is 0.
    """

    def validate(self, X: Any) -> Any:
        return check_array(X, dtype=(np.float64, np.float32), ensure_min_features=2, input_name="X", estimator=self)

    def _block(self, X: Any, Y: Any) -> Block:
        Z = _standardised(X)
        return np.asarray(Z @ (Z if Y is X else _standardised(Y)).T)

    def _diagonal(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(X.max(axis=1) > X.min(axis=1), dtype=np.float64)


def _standardised(X: Any) -> Block:
    # Scaled first: squaring then neither overflows nor underflows, and a constant row, of ones now, is centred to exact
    # zeros; rounding of its mean would otherwise leave dust for the division by the length to blow up.
    largest = np.abs(X).max(axis=1, keepdims=True)
    Z = X / np.where(largest > 0, largest, 1)
    Z -= Z.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(Z, axis=1, keepdims=True)
    Z /= np.where(lengths > 0, lengths, 1)
    return np.asarray(Z)
