"""Arrays in, arrays out: the optimisers behind every machine."""

from kernelmosaic.solvers.factored import solve_factored
from kernelmosaic.solvers.multiclass import solve_multiclass
from kernelmosaic.solvers.program import Program, RoundOptions, Solution, SolverOptions, certify, relative_gap
from kernelmosaic.solvers.smo import solve_smo
from kernelmosaic.solvers.working_set import solve_working_set

__all__ = [
    "Program",
    "RoundOptions",
    "Solution",
    "SolverOptions",
    "certify",
    "relative_gap",
    "solve_factored",
    "solve_multiclass",
    "solve_smo",
    "solve_working_set",
]
