"""Which program: the kernel machines, each with its targets."""

from kernelmosaic.machines.base import Machine
from kernelmosaic.machines.huber import Huber
from kernelmosaic.machines.least_squares import LeastSquares
from kernelmosaic.machines.one_class import OneClass
from kernelmosaic.machines.svc import SVC
from kernelmosaic.machines.svr import SVR

__all__ = ["SVC", "SVR", "Huber", "LeastSquares", "Machine", "OneClass"]
