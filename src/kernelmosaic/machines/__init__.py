"""Which program: the kernel machines, each with its targets."""

from kernelmosaic.machines.base import SVC, SVR, Huber, Machine, OneClass, Quantile, Survival
from kernelmosaic.machines.survival import Cox, Ranking

__all__ = ["SVC", "SVR", "Cox", "Huber", "Machine", "OneClass", "Quantile", "Ranking", "Survival"]
