"""Arrays in, arrays out: the optimisers behind every machine."""

from kernelmosaic.solvers.linear import solve_linear
from kernelmosaic.solvers.program import Program, Solution, certify, relative_gap
from kernelmosaic.solvers.smo import solve_smo

__all__ = ["Program", "Solution", "certify", "relative_gap", "solve_linear", "solve_smo"]
