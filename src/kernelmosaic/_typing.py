"""Names for the types of arguments and results: arrays, samples, targets, estimators.

Samples, targets and blocks of kernels may be NumPy arrays, sparse matrices, data frames or torch
tensors, which no common type describes: their names document the meaning, and type checkers treat
them as Any.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: A NumPy array of numbers in double precision.
Array: TypeAlias = NDArray[np.float64]
#: Numbers of rows, columns, kernels or classes.
Indices: TypeAlias = NDArray[np.intp]
#: Truth values.
Mask: TypeAlias = NDArray[np.bool_]
#: A NumPy array of any type.
AnyArray: TypeAlias = NDArray[Any]
#: A NumPy array, or a torch tensor on a device.
ArrayOrTensor: TypeAlias = Any
#: Samples, one a row: an array, a sparse matrix, a data frame, a list of strings, or a tensor.
MatrixLike: TypeAlias = Any
#: One target per sample: classes, numbers, posteriors, or times and events.
TargetLike: TypeAlias = Any
#: One weight per sample, or None for equal weights.
SampleWeight: TypeAlias = Any
#: A set of rows: their numbers, a mask or a slice.
RowIndex: TypeAlias = Any
#: An estimator of this library or of scikit-learn.
Estimator: TypeAlias = Any
#: A seed, a generator of scikit-learn's kind, or None.
Seed: TypeAlias = Any
#: A type of numbers as NumPy accepts it, or None.
DType: TypeAlias = Any
#: The `kernels` parameter: kernels, or names with kernels and columns.
KernelsLike: TypeAlias = Any
#: Settings, parameters or keyword arguments by name.
Settings: TypeAlias = dict[str, Any]
#: Axes of matplotlib, or None for new ones.
AxesOrNone: TypeAlias = Any
