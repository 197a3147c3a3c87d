"""Arrays in, arrays out: the optimisers behind every machine."""

from kernelmosaic.solvers.blocked import solve_blocked
from kernelmosaic.solvers.dispatch import mean_diagonal, solve, solve_free, solve_unbounded
from kernelmosaic.solvers.factored import solve_factored
from kernelmosaic.solvers.joint_blocks import solve_joint_blocks
from kernelmosaic.solvers.linear import solve_linear
from kernelmosaic.solvers.program import Program, Solution, certify, relative_gap
from kernelmosaic.solvers.shifted import solve_shifted
from kernelmosaic.solvers.smo import solve_smo

__all__ = [
    "Program",
    "Solution",
    "certify",
    "mean_diagonal",
    "relative_gap",
    "solve",
    "solve_blocked",
    "solve_factored",
    "solve_free",
    "solve_joint_blocks",
    "solve_linear",
    "solve_shifted",
    "solve_smo",
    "solve_unbounded",
]
