"""Samples in learned projections: what estimators with projected kernels transform to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kernelmosaic.kernels.projected import Projected
from kernelmosaic.learning.projections import projected_kernels


def has_projections(estimator: Any) -> bool:
    """Whether some kernel of the estimator is a projected one."""
    return any(isinstance(entry.kernel, Projected) for entry in estimator._read_kernels())


def has_learned_projections(estimator: Any) -> bool:
    """The same of the kernels that were fitted, whatever the parameters say now; of the parameters before a fit."""
    if not hasattr(estimator, "_expansions"):
        return has_projections(estimator)
    mosaics = (getattr(one.kernel_set, "kernel_set", one.kernel_set) for one in estimator._expansions)
    return any(projected_kernels(kernel_set) for kernel_set in mosaics)


class ProjectedSamples(TransformerMixin):
    """The methods of a transformer, in the containers `set_output` asks for.

    Localized estimators take them over one by one, each available only if there is a projected kernel; scikit-learn
    wraps them where they are defined, and would not leave a method that need not be there as it is.
    """

    def transform(self: Any, X: Any) -> Any:
        """Return the samples in the learned projections, side by side in the order of the kernels (and classes).

        Only estimators with a :class:`~kernelmosaic.kernels.Projected` kernel have this method.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_components), or a data frame if ``set_output`` asked for one
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        every = [expansion.kernel_set.views(X) for expansion in self._expansions]
        return np.hstack([kernel.transform(every[c][m]) for c, m, kernel in _learned(self)])

    def get_feature_names_out(self: Any, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns of :meth:`transform`: the kernel's, after the class's if each has its own.

        Parameters
        ----------
        input_features : ignored
            Every projection reads all columns of its kernel.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        names = []
        for c, m, kernel in _learned(self):
            owner = f"{self.classes_[c]}_" if len(self._expansions) > 1 else ""
            names += [f"{owner}{self.kernel_names_[m]}_{k}" for k in range(kernel.W_.shape[1])]
        return np.array(names, dtype=object)


def _learned(estimator: Any) -> Iterator[tuple[int, int, Projected]]:
    """Yield (class, number among the kernels, kernel) of every learned projection."""
    for c, expansion in enumerate(estimator._expansions):
        for m in projected_kernels(expansion.kernel_set):
            yield c, m, expansion.kernel_set.fitted[m].kernel
