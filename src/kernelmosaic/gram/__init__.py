"""Gram matrices: the fitted set of kernels and the stack of its matrices on a training set.

In the order in which it is read: `kernel_set` fits kernels and computes blocks of them,
`normalizing` puts them on one scale, `missing` completes views that samples lack, `stack` keeps the
matrices of a training set or computes them when they are read, and `gram` is a combined kernel as
solvers see it. `row_blocks`, `feature_maps`, `feature_stack` and `factored` do the same for kernels
in features. `factory` chooses a stack of features, `options` and `tuning` hold the numbers.

Words:

- view: the data that a kernel reads: some columns of the samples, prepared or not. Kernels of one
  view number read the same data;
- statistic: a function of two samples, such as their squared distance, that several kernels are
  functions of;
- placed: on the backend, which is the host (NumPy) or a device (torch); `placed_…` returns arrays
  of the backend;
- block: entries of a matrix between some rows and some columns;
- piece, strip, tile, square: parts of a matrix that are worked on at once;
- factors: the weights (P,) or the gates (n, P) of a combined kernel;
- support: the samples whose coefficients are not zero;
- features: Z_m with K_m = Z_m Z_mᵀ; widths are their numbers;
- landmarks: samples that features of other samples are computed from;
- stand-in: the feature vector in place of a view that a sample lacks;
- room: bytes that something may take;
- exact: in double precision, even if entries are stored in single precision.
"""
