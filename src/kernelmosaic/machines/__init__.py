"""Which program: the kernel machines, each with its targets."""

from kernelmosaic.machines.base import Machine
from kernelmosaic.machines.one_output import SVC, SVR, Huber, LeastSquares, OneClass, Survival

__all__ = ["SVC", "SVR", "Huber", "LeastSquares", "Machine", "OneClass", "Survival"]
