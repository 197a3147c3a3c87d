"""Which program: the kernel machines, each with its targets."""

from kernelmosaic.machines.base import SVC, SVR, Huber, LeastSquares, Machine, OneClass, Quantile, Survival

__all__ = ["SVC", "SVR", "Huber", "LeastSquares", "Machine", "OneClass", "Quantile", "Survival"]
