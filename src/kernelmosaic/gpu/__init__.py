"""What runs on a device alone: passes in CUDA, and batches of problems for searches.

Batches
-------
A search fits one machine for every fold and every value of C, and each of them learns kernel
weights. On the host these problems are learned one by one, each from the solution of its neighbour:
`learning/newton.py` solves the machine for the weights by steps of pairs or working sets, which
change a few coefficients at a time and stop when the gap of the machine is small. Such steps are
short and depend on each other. A device takes as long to start one as to multiply a whole matrix
with dozens of vectors, and every decision on the host waits until the device is done.

A batch therefore holds many problems on the same Gram matrices as *columns*: neighbouring values
of C of all folds and classes, about 64 of them. Samples that a fold holds out have the box [0, 0]
in its columns. One product reads a matrix once for all columns, every step changes all coefficients
of all columns by operations of whole arrays, and none of 20 steps (a *round*) waits for the device.
It takes more arithmetic than the host's algorithm, and far fewer operations.

One column. With its combined kernel K = Σ_m η_m K_m, the program of its machine is

    max ⟨t, β⟩ − ε‖β‖₁ − ½βᵀKβ − ½ Σ ρᵢβᵢ²   subject to   lower ≤ β ≤ upper,  Σβ = total.

Alternating directions (ADMM) keep β twice: x meets the sum, z the box, and multipliers y make them
agree. With a penalty ρ of x ≠ z, one step is

    x ← x + M (t − Kx + ρ(z − x) − y)                   among vectors whose sum is the total,
    v = ρx + y,   z ← clip(shrink(v, ε) / (ρ + ρᵢ)),    sample by sample,
    y ← v − ρz.

Exact steps have M = (K + ρ)⁻¹, one inverse per column. A batch has one for all of them,
M = (K̄ + ρ)⁻¹, with a *shared* kernel K̄ = Σ_m θ_m K_m whose weights are the largest of any column.
That adds the proximal term ½(x − x_before)ᵀ(K̄ − K)(x − x_before) to the step for x; the fixed
points are the same, and steps converge where K̄ − K is positive semi-definite. They are slower where
K is much smaller than K̄: thus a batch has neighbouring values only. The z-step takes an
over-relaxed x, and ρ changes between rounds until primal and dual residuals are balanced.

One round (`paths.take_round`):

1. 20 steps of alternating directions.
2. The bounds. β is the feasible point nearest to z. Its objective, its dual value and q_m = ½βᵀK_mβ
   come to the host in one transfer; they prove the gap of the machine and that of the weights.
3. Newton steps. Alternating directions find soon which coefficients are at a bound, and need long
   for the last digits of the others. So a Newton step is taken on the *free* coefficients, with one
   Cholesky factorisation of their block for each column, and is kept where it lowers the gap. The
   same factorisation gives the curvature ∂²J/∂η² of the optimal value, and with −∂J/∂η = q a Newton
   step on the weights of columns whose machine is solved well enough.

Precision. Products are in that of the stack, single or half, and only of differences to
coefficients whose products are known: their rounding vanishes as the steps converge. Columns whose
gap is small are certified from exact products in double precision (`paths.certify`). Those whose
certificate is too loose go on from there. After three certificates, the host's learner finishes
what is left, so that every result has the certificate of any other fit.

Files, in the order in which they are read: `tuning` (options and constants), `products` (combined
kernels of many columns), `programs` (steps of alternating directions), `paths` (rounds and batches
along C), `folds` (from the folds of a search to paths, and back). `_torch_passes` stands apart:
passes in CUDA that the stacks of `gram/` call. Each function that other packages call is loaded
from its module on first use.

Words: *column*, one problem of a batch; *round*, the steps between two looks at the bounds;
*shared inverse*, M; *base*, the coefficients whose products with every kernel are known; *free*,
strictly between the bounds, and not zero where there is a tube; *pass*, one kernel in CUDA that
reads or writes whole matrices.

References
----------
Boyd, Parikh, Chu, Peleato and Eckstein (2011), "Distributed optimization and statistical learning
via the alternating direction method of multipliers": the steps, over-relaxation (section 3.4.3) and
the choice of ρ (section 3.4.1).

Fazel, Pong, Sun and Tseng (2013), "Hankel matrix rank minimization with applications to system
identification and realization": alternating directions with proximal terms.

Stellato, Banjac, Goulart, Bemporad and Boyd (2020), "OSQP: an operator splitting solver for
quadratic programs": the polishing of the free coefficients.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: The functions that other packages call, and the modules that define them.
HOMES = {
    "add_gaussians": "_torch_passes",
    "combine_directly": "_torch_passes",
    "follow_together": "folds",
    "multiply_directly": "_torch_passes",
    "multiply_features": "_torch_passes",
}


def __getattr__(name: str) -> Any:
    """Return one of these functions, loading its module on first use."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
