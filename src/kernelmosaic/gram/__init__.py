"""Gram matrices: the fitted set of kernels and the stack of its matrices on a training set."""
