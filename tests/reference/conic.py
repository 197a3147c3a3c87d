"""The dual programs once more, as conic programs for Clarabel: nothing here comes from the
package's own solvers."""

from __future__ import annotations

from dataclasses import dataclass, field

import clarabel
import numpy as np
from scipy import sparse

#: Eigenvalues below this share of the largest are rounding.
_RANK = 1e-13


def factor(K):
    """Return L of shape (n, rank) with L Lᵀ = K, negative eigenvalues taken for zero."""
    eigenvalues, V = np.linalg.eigh(np.asarray(K, dtype=np.float64))
    keep = eigenvalues > _RANK * max(np.abs(eigenvalues).max(initial=0.0), 1e-300)
    return V[:, keep] * np.sqrt(eigenvalues[keep])


@dataclass
class Model:
    """min ½ Σ Dᵢxᵢ² + ⟨c, x⟩ where every block b − Ax lies in its cone; x opens with β and, if
    there is a tube, |β|."""

    program: object
    n_extra: int
    blocks: list = field(default_factory=list)

    def __post_init__(self):
        p = self.program
        n = len(p.target)
        tube = n if p.epsilon else 0
        self.first_extra = n + tube
        self.width = self.first_extra + self.n_extra
        self.D = np.concatenate([p.ridge, np.zeros(self.width - n)])
        self.c = np.concatenate([-p.target, np.full(tube, p.epsilon), np.zeros(self.n_extra)])
        eye = np.eye(n)
        if tube:
            self.require(clarabel.NonnegativeConeT, np.hstack([eye, -eye]), np.zeros(n))
            self.require(clarabel.NonnegativeConeT, np.hstack([-eye, -eye]), np.zeros(n))
        for side, bound in ((1.0, p.upper), (-1.0, -p.lower)):
            finite = np.isfinite(bound)
            self.require(clarabel.NonnegativeConeT, side * eye[finite], bound[finite])
        if p.total is not None:
            self.require(clarabel.ZeroConeT, np.ones((1, n)), np.array([p.total]))

    def require(self, cone, A, b):
        """Ask that b − Ax lie in the cone (a class of Clarabel's, or an instance of one); A may
        lack last columns."""
        if len(b):
            wide = np.zeros((len(b), self.width))
            wide[:, : A.shape[1]] = A
            self.blocks.append((cone(len(b)) if isinstance(cone, type) else cone, wide, b))

    def extra(self, index):
        """Return the row that reads one of the extra variables."""
        row = np.zeros(self.width)
        row[self.first_extra + index] = 1.0
        return row

    def solve(self):
        """Return Clarabel's solution and the dual variables block by block."""
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_iter = 500
        if not self.blocks:  # Clarabel wants at least one constraint: 0 ≤ 1 will do
            self.require(clarabel.NonnegativeConeT, np.zeros((1, self.width)), np.ones(1))
        cones = [cone for cone, _, _ in self.blocks]
        A = sparse.csc_matrix(np.vstack([A for _, A, _ in self.blocks]))
        b = np.concatenate([b for _, _, b in self.blocks])
        P = sparse.diags(self.D, format="csc")
        # Where rounding ends its progress depends on the machine: fewer digits are still plenty for
        # what is compared.
        for accuracy in (1e-10, 1e-8, 1e-7):
            settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = accuracy
            solution = clarabel.DefaultSolver(P, self.c, A, b, cones, settings).solve()
            if str(solution.status) not in ("InsufficientProgress", "NumericalError"):
                break
        assert str(solution.status) in ("Solved", "AlmostSolved"), solution.status
        ends = np.cumsum([len(b) for _, _, b in self.blocks])[:-1]
        return solution, np.split(np.array(solution.z), ends)


def quadratic_rows(rows, bound_row, bound, scale):
    """Return A, b such that b − Ax in a second-order cone says ‖rows x‖² ≤ scale · (bound_row x +
    bound)."""
    # u + v above ‖(2 rows x, u − v)‖ says ‖rows x‖² ≤ uv, here with u = bound_row x + bound and v =
    # scale.
    A = np.vstack([-bound_row, -bound_row, -2.0 * rows])
    return A, np.concatenate([[bound + scale, bound - scale], np.zeros(len(rows))])


def wide(rows, width):
    return np.hstack([rows, np.zeros((len(rows), width - rows.shape[1]))])


def solve_program_conic(K, program):
    """Return the optimum of a `Program` for the kernel matrix K, and a β that attains it."""
    L = factor(K)
    n, rank = L.shape
    model = Model(program, rank)
    first = model.first_extra
    # The extra variables are w = Lᵀβ, so that the quadratic term is ½‖w‖², however ill-conditioned
    # K is.
    model.D[first:] = 1.0
    rows = wide(L.T, model.width)
    rows[:, first:] -= np.eye(rank)
    model.require(clarabel.ZeroConeT, rows, np.zeros(rank))
    solution, _ = model.solve()
    return -solution.obj_val, np.array(solution.x[:n])


def solve_mkl_conic(Ks, program, penalties=None):
    """Return optimum, weights and β of min over {η ≥ 0, Σ d_m² η_m = 1} of the program's value for
    Σ η_m K_m.

    By the minimax theorem that is max ⟨t, β⟩ − … − γ over β and γ with d_m² γ ≥ ½ βᵀK_mβ; the
    constraints' multipliers are d_m² η_m.
    """
    d = np.ones(len(Ks)) if penalties is None else np.asarray(penalties, dtype=np.float64)
    model = Model(program, 1)
    model.c[-1] = 1.0
    for K, penalty in zip(Ks, d, strict=True):
        rows = wide(factor(K).T, model.width)
        model.require(
            clarabel.SecondOrderConeT, *quadratic_rows(rows, model.extra(0), 0.0, 2.0 * penalty**2)
        )
    solution, duals = model.solve()
    # The multiplier of γ ≥ ½βᵀK_mβ / d_m² is the sum of the two entries of the cone's dual that γ
    # appears in.
    multipliers = np.array([z[0] + z[1] for z in duals[-len(Ks) :]])
    return -solution.obj_val, multipliers / d**2, np.array(solution.x[: len(program.target)])


def solve_mkl_lp_generic(Ks, program, p):
    """Return optimum, weights and β of min over {η ≥ 0, ‖η‖_p = 1} of the program's value for Σ η_m
    K_m, p > 1.

    By the minimax theorem that is max ⟨t, β⟩ − … − ½‖(βᵀK_mβ)_m‖_q with 1/p + 1/q = 1. The q-norm
    of u is at most r if u_m ≤ v_m^(1/q) r^(1 − 1/q), a power cone, for some v with Σ v_m = r.
    """
    P, q = len(Ks), p / (p - 1.0)
    model = Model(program, 2 * P + 1)
    u, v, r = range(P), range(P, 2 * P), 2 * P
    model.c[model.first_extra + r] = 0.5
    for m, K in enumerate(Ks):
        rows = wide(factor(K).T, model.width)
        model.require(clarabel.SecondOrderConeT, *quadratic_rows(rows, model.extra(u[m]), 0.0, 1.0))
    model.require(
        clarabel.ZeroConeT,
        (sum(model.extra(k) for k in v) - model.extra(r))[np.newaxis],
        np.zeros(1),
    )
    for m in range(P):
        power = np.vstack([model.extra(v[m]), model.extra(r), model.extra(u[m])])
        model.require(clarabel.PowerConeT(1.0 / q), -power, np.zeros(3))
    solution, _ = model.solve()
    beta = np.array(solution.x[: len(program.target)])
    forms = np.array([max(beta @ K @ beta, 0.0) for K in Ks])
    weights = forms ** (q - 1.0)
    return -solution.obj_val, weights / np.linalg.norm(weights, ord=p), beta
