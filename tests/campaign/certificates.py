"""Both sides of every training problem once more, from what a fitted estimator shows: none of the
package's solvers.

Kernels are called by themselves and held to their formulas; losses, duals and norms are written
here as textbooks have them. With the returned coefficients and weights that gives a value no less
than the optimum and one no more than it. A certificate is honest if these two, or a conic solver
where the returned coefficients alone do not show it, are within the gap the estimator states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.base import clone
from tests.reference.conic import solve_mkl_conic, solve_mkl_lp_generic, solve_program_conic
from tests.reference.discriminant import solve_matrix_fractional
from tests.reference.joint import solve_bilinear_conic, solve_joint_conic, solve_joint_mkl_conic

from kernelmosaic import MKLClassifier

#: Relative: rounding of sums of products in double precision, with kernels that were rounded on
#: their own.
_ROUNDING = 1e-13
#: How near to the optimum a conic solver's point is expected, relative; where it is ten times as
#: far, it shows nothing.
_CONIC = 1e-4


class Dishonest(AssertionError):
    """The estimator states what does not hold."""


@dataclass(frozen=True)
class Bounds:
    """What the returned coefficients and weights are worth, in the scale of `objective_`.

    Attributes
    ----------
    upper, lower : float
        Values of the primal and the dual problem.
    rounding : float
        How far rounding may have moved either.
    optimum : callable or None
        The value that the point of a conic solver attains, no less than the optimum.
    certain : bool
        Whether the stated gap is that of these coefficients. Where weights are learned, the lower
        bound may be that of other coefficients, seen on the way.
    """

    upper: float
    lower: float
    rounding: float
    optimum: Any = None
    certain: bool = False

    @property
    def size(self) -> float:
        """What gaps are relative to."""
        return max(abs(self.upper), abs(self.lower)) if np.isfinite(self.lower) else abs(self.upper)


def check_fit(problem: Any, model: Any) -> str:
    """Raise `Dishonest` unless everything the fitted model states holds; return how the gap was
    shown."""
    _check_numbers(problem, model)
    codes = problem.y
    if problem.name == "PosteriorMKLClassifier":
        codes = np.column_stack([codes, model.posteriors_])
    rows, weight = _distinct(problem, codes)
    if not set(model.support_) <= set(rows):
        raise Dishonest("support_ names a sample of weight zero, or not the first of repeated ones")
    try:
        Ks = _matrices(problem, rows, weight)
    except ValueError:  # an approximated kernel that can be had with the others only
        return "unknown"
    if problem.name == "DiscriminantMKLClassifier":
        return _check_gap(
            problem, model, [_discriminant(problem, model, Ks)], _amplified(problem, rows, weight)
        )
    _check_norm(problem, model)
    noise = _amplified(problem, rows, weight)
    beta = np.zeros((model.dual_coef_.shape[0], len(problem.X)))
    beta[:, model.support_] = model.dual_coef_
    beta = beta[:, rows]
    Ks = _check_kernel_matrix(problem, model, rows, Ks, noise)
    if model.dual_coef_.shape[0] > 1 and not _one_versus_rest(problem):
        return _check_gap(problem, model, [_joint(problem, model, rows, weight, beta, Ks)], noise)
    learned_C = problem.parameters.get("C") == "learn"
    found = [
        (_learned_C if learned_C else _one_output)(problem, model, rows, weight, beta[c], c, Ks)
        for c in range(len(beta))
    ]
    return _check_gap(problem, model, found, noise)


# The gap ------------------------------------------------------------------------------------------


def _check_gap(problem: Any, model: Any, outputs: list[Bounds], noise: float = 1.0) -> str:
    outputs = [replace(one, rounding=noise * one.rounding) for one in outputs]
    stated = model.duality_gap_
    if not stated >= 0:
        raise Dishonest(f"duality_gap_={stated}")
    upper, rounding = sum(one.upper for one in outputs), sum(one.rounding for one in outputs)
    # A gap above one, which is warned of, says that not even the sign of the objective is known.
    if stated <= 1 and not abs(model.objective_ - upper) <= 1e-8 * abs(upper) + 10.0 * rounding:
        raise Dishonest(
            f"objective_={model.objective_:.9g}, recomputed {upper:.9g} (rounding {rounding:.1g})"
        )
    # An end above the tolerance is excused where rounding is as large.
    is_hidden = stated > model.tol and any(one.rounding > model.tol * one.size for one in outputs)
    shown = "rounding" if is_hidden else "gap"
    if np.isinf(stated):  # nothing is claimed, and a warning says so
        return "rounding" if is_hidden else "unknown"
    for one in outputs:
        # The bound of the semi-definite program meets its equalities up to the rounding of a
        # least-squares problem.
        digits = (
            1e-6
            if problem.parameters.get("solver") == "sdp" and not problem.name.startswith("Disc")
            else 1e-9
        )
        allowed = (stated * (1.0 + 1e-6) + digits) * one.size + one.rounding
        lost = one.rounding > 1e-3 * one.size
        if lost:
            shown = "rounding"
        # Where rounding is as large as that, a conic solver is no more exact than what it is to
        # judge.
        if not one.upper - one.lower <= allowed or (
            problem.compare and one.optimum is not None and not lost
        ):
            shown = _check_optimum(one, stated, allowed)
    return "rounding" if is_hidden else shown


def _check_optimum(one: Bounds, stated: float, allowed: float) -> str:
    """Compare with a conic solver; "unknown" where it has no answer."""
    gap = (one.upper - one.lower) / max(abs(one.upper), abs(one.lower))
    if one.certain and not one.upper - one.lower <= allowed:
        raise Dishonest(
            f"duality_gap_={stated:.3g}, recomputed {gap:.3g}: {one.upper:.9g} above"
            f" {one.lower:.9g}"
        )
    if one.optimum is None:
        return "unknown"
    try:
        optimum = one.optimum()
    except Exception:  # whatever ends a conic solver on a badly conditioned problem
        return "unknown"
    scale = max(abs(one.upper), abs(optimum))
    if (
        not optimum - one.upper <= one.rounding + 10 * _CONIC * scale
        or one.lower - optimum > allowed + _CONIC * scale
    ):
        return (  # the conic solver's point is far from the optimum, or rounding hides what it attains
            "unknown"
        )
    # What a point attains is proof, but for its rounding, which is that of the returned one.
    if one.upper - optimum > allowed + one.rounding:
        raise Dishonest(
            f"duality_gap_={stated:.3g}, but {one.upper:.9g} is above {optimum:.9g}, which is"
            " attained"
        )
    return "conic"


def hides_tolerance(model: Any, X: Any, kernels: list[Any]) -> bool:
    """Whether rounding alone may be a larger share of the objective than the tolerance.

    An output Σ_j k_ij β_j is a sum of terms no larger than √(k_ii k_jj) |β_j|; it is off by their
    rounding. So is ½ βᵀKβ, and every loss is off by C times what its output is off by. The lower
    bound reads ½ βᵀK_mβ of every kernel, given as (name, kernel, columns) where it is not
    normalised.
    """
    if not hasattr(model, "duality_gap_") or model.duality_gap_ <= model.tol:
        return False
    Ks = np.atleast_3d(np.asarray(model.kernel_matrix(X)).T).T
    sizes = np.sqrt(np.abs(np.diagonal(Ks, axis1=1, axis2=2)))
    sums = np.sum(sizes[:, model.support_] * np.abs(model.dual_coef_), axis=1)
    off = float(np.finfo(float).eps) * np.sqrt(len(Ks[0])) * sums
    noise = np.sum(off * sums) + getattr(model, "C", 1.0) * np.sum(off * sizes.sum(axis=1))
    for _, kernel, columns in kernels if model.normalize is None else []:
        A = np.asarray(X)[:, columns].astype(float)
        diagonal = np.abs(np.diagonal(clone(kernel).fit(A)(A)))
        sums = np.sqrt(diagonal[model.support_]) @ np.abs(model.dual_coef_).T
        noise += float(np.finfo(float).eps) * np.sqrt(len(A)) * np.sum(sums**2)
    return bool(noise > model.tol * abs(model.objective_))


# What holds of every estimator --------------------------------------------------------------------


def _check_numbers(problem: Any, model: Any) -> None:
    for name in ("weights_", "dual_coef_", "intercept_", "objective_"):
        if not np.all(np.isfinite(getattr(model, name))):
            raise Dishonest(f"{name} is not finite")
    decide = model.decision_function if hasattr(model, "decision_function") else model.predict
    values, terms = decide(problem.new), model.contributions(problem.new)
    predicted = model.predict(problem.new)
    if not np.all(np.isfinite(values)) or (
        predicted.dtype.kind == "f" and not np.all(np.isfinite(predicted))
    ):
        raise Dishonest("predictions are not finite")
    intercept = model.intercept_
    total = terms.sum(axis=1) + (intercept if terms.ndim == 3 else intercept[0])
    size = np.abs(terms).sum(axis=1) + np.abs(intercept if terms.ndim == 3 else intercept[0])
    if not np.all(np.abs(total - values) <= 1e-8 * size + 1e-300):
        raise Dishonest("contributions and intercept_ do not add up to the decision")


def _check_norm(problem: Any, model: Any) -> None:
    p, P = problem.parameters, len(problem.kernels)
    if problem.name.startswith("Localized") or problem.name == "BilinearMKLClassifier":
        if np.any(model.weights_ < 0):
            raise Dishonest("a weight is negative")
        return
    given = p.get("weights")
    for eta in np.atleast_2d(model.weights_):
        if given is not None:
            wanted = np.full(P, 1.0 / P) if isinstance(given, str) else np.asarray(given)
            if not np.array_equal(eta, wanted):
                raise Dishonest("given weights were changed")
        elif p.get("solver") != "sdp":  # which keeps the trace, with weights of any sign
            theta = np.asarray(p.get("penalties", np.ones(P))) ** 2 * eta
            if np.any(theta < 0) or abs(_norm(p, theta) - 1.0) > 1e-9:
                raise Dishonest(f"weights {eta} are off their norm: {_norm(p, theta)}")


def _norm(p: dict[str, Any], theta: np.ndarray) -> float:
    norm = p.get("norm", 1)
    return float(np.linalg.norm(theta, ord=norm))


def _support(p: dict[str, Any], q: np.ndarray) -> float:
    """Return the largest ⟨θ, q⟩ of all θ ≥ 0 of norm one."""
    norm, top = p.get("norm", 1), float(q.max())
    if norm == 1 or top <= 0:
        return top
    return top * float(np.linalg.norm(q / top, ord=norm / (norm - 1.0)))


# Samples and kernels ------------------------------------------------------------------------------


def _distinct(problem: Any, codes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the first of every group of equal samples of positive weight, and the sum of their
    weights."""
    n = len(problem.X)
    weight = np.ones(n) if problem.sample_weight is None else problem.sample_weight
    if problem.name == "DiscriminantMKLClassifier":
        return np.arange(n), weight
    counted = np.flatnonzero(weight)
    keys = problem.X if codes is None else np.column_stack([problem.X, codes])
    _, first, group = np.unique(keys[counted], axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return counted[first[order]], np.bincount(group.ravel(), weights=weight[counted])[order]


def _matrices(problem: Any, rows: np.ndarray, weight: np.ndarray) -> np.ndarray | None:
    """Return the normalised Gram matrices, of shape (P, n, n); None where only the combined one can
    be had."""
    if problem.parameters.get("approximation") is not None:
        if problem.name.startswith("Localized"):
            return None
        return np.array([_approximated(problem, m, rows) for m in range(len(problem.kernels))])
    Ks = []
    for drawn in problem.kernels:
        A = problem.X[rows][:, drawn.columns]
        K, naive = np.asarray(clone(drawn.kernel).fit(A)(A), dtype=np.float64), drawn.formula(A, A)
        size = np.sqrt(np.outer(np.diag(naive), np.diag(naive)))
        if not np.all(np.abs(K - naive) <= drawn.noise * size):
            worst = np.max(np.abs(K - naive) / np.maximum(size, 1e-300))
            raise Dishonest(
                f"kernel {drawn.name} is off its formula by {worst:.2g}, noise {drawn.noise:.2g}"
            )
        Ks.append(
            _normalised(K, weight, problem.parameters["normalize"], drawn.kernel.entry_roundings(A))
        )
    return np.array(Ks)


def _amplified(problem: Any, rows: np.ndarray, weight: np.ndarray) -> float:
    """Return by how much centring raises the rounding of the kernels relative to what it leaves of
    them.

    Features come from the inverse of a matrix that may be nearly singular.
    """
    if problem.parameters.get("approximation") is not None:
        return 1e6
    if problem.parameters["normalize"] != "centered":
        return 1.0
    share, factors = weight / weight.sum(), [1.0]
    for drawn in problem.kernels:
        A = problem.X[rows][:, drawn.columns]
        K = drawn.formula(A, A)
        level = share @ np.diag(K)
        left = level - share @ K @ share
        # Of a kernel that is constant up to rounding nothing but rounding may be left.
        factors.append(level / max(left, np.finfo(float).eps * level) if level > 0 else 1.0)
    return max(factors)


def _approximated(problem: Any, m: int, rows: np.ndarray) -> np.ndarray:
    """Return kernel m in the features that the fit drew: that of an estimator which gives it all
    weight."""
    alone = np.eye(len(problem.kernels))[m].tolist()
    model = problem.estimator()
    if problem.name == "BilinearMKLClassifier":
        kept = {
            key: problem.parameters[key]
            for key in ("normalize", "approximation", "rank", "random_state")
        }
        model = MKLClassifier(model.kernels, **kept)
    calm = {key: 1.0 for key in ("C", "alpha") if key in model.get_params(deep=False)}
    model.set_params(weights=alone, **calm)
    K = problem.fit(model).kernel_matrix(problem.X[rows])
    return np.asarray(K if K.ndim == 2 else K[0])


def _normalised(
    K: np.ndarray, weight: np.ndarray, rule: str | None, roundings: float = 1.0
) -> np.ndarray:
    share = weight / weight.sum()
    diagonal = np.diag(K).copy()
    if rule == "trace":
        mean = share @ diagonal
        return K / mean if mean > 0 else K
    if rule == "diagonal":
        norms = np.where(diagonal > 0, np.sqrt(np.maximum(diagonal, 0.0)), 1.0)
        return K / np.outer(norms, norms)
    if rule == "centered":
        level = share @ diagonal
        apart = (K - level) @ share
        centred = K - level - apart[:, np.newaxis] - apart + share @ apart
        trace = share @ np.diag(centred)
        # A kernel of which rounding leaves fewer than three digits counts as constant.
        noise = np.sqrt(len(K)) * roundings * np.finfo(float).eps * abs(level)
        return centred / trace if trace > 0 and noise <= 1e-3 * trace else np.zeros_like(K)
    return K


def _check_kernel_matrix(
    problem: Any, model: Any, rows: np.ndarray, Ks: np.ndarray | None, amplified: float
) -> np.ndarray:
    """Hold `kernel_matrix` to the weighted, or gated, sum; return the kernels, or if gated one
    matrix per output."""
    combined = model.kernel_matrix(problem.X[rows])
    combined = combined[np.newaxis] if combined.ndim == 2 else combined
    if Ks is None:
        return combined
    if problem.name.startswith("Localized"):
        gates = model.gate(problem.X[rows])
        gates = gates[:, :, np.newaxis] if gates.ndim == 2 else gates
        sums = np.array([np.einsum("mij,im,jm->ij", Ks, g, g) for g in np.moveaxis(gates, 2, 0)])
    else:
        sums = np.tensordot(np.atleast_2d(model.weights_), Ks, 1)
        if len(sums) > len(combined):
            sums = sums[: len(combined)]
    noise = (1e-9 + 100.0 * max(drawn.noise for drawn in problem.kernels)) * amplified
    size = np.sqrt(np.abs(np.einsum("kii,kjj->kij", sums, sums))) + np.abs(sums).max(
        axis=(1, 2), keepdims=True
    )
    if problem.parameters.get("solver") == "sdp":  # whose weights may be negative, and cancel
        size += np.tensordot(np.abs(np.atleast_2d(model.weights_)), np.abs(Ks), 1).max(
            axis=(1, 2), keepdims=True
        )
    if not np.all(np.abs(combined - sums) <= noise * size + 1e-300):
        worst = np.max(np.abs(combined - sums) / np.maximum(size, 1e-300))
        raise Dishonest(f"kernel_matrix is off the weighted sum of the kernels by {worst:.2g}")
    return sums if problem.name.startswith("Localized") else Ks


def _one_versus_rest(problem: Any) -> bool:
    if problem.name in ("BilinearMKLClassifier", "PosteriorMKLClassifier"):
        return False
    return problem.parameters.get("multi_class", "ovr") == "ovr"


# Machines with one output -------------------------------------------------------------------------


def _program(
    problem: Any, model: Any, rows: np.ndarray, weight: np.ndarray, c: int
) -> SimpleNamespace:
    """Return target, box, ridge, tube and sum of the dual program, and the losses of the primal
    one."""
    p, n = problem.parameters, len(rows)
    zero, two = np.zeros(n), p.get("slack", 1) == 2
    if problem.name.endswith("OneClass"):
        C = weight / (p["nu"] * weight.sum())
        losses = lambda f: C @ np.maximum(-f, 0.0)  # noqa: E731
        return SimpleNamespace(
            target=zero, lower=zero, upper=C, ridge=zero, epsilon=0.0, total=1.0, losses=losses
        )
    C = (1.0 if p["C"] == "learn" else p["C"]) * weight
    if problem.name.endswith("Regressor"):
        return _regression(problem.y[rows], C, p["epsilon"], p["loss"], two)
    if problem.name == "PosteriorMKLClassifier":
        t = model.posteriors_[rows, 1] - model.posteriors_[rows, 0]
        t = np.where(np.abs(t) > 1e-8, t, 0.0)
        C, two = np.divide(C, np.abs(t), out=np.zeros(n), where=t != 0), False
    else:
        positive = model.classes_[c if len(model.classes_) > 2 else 1]
        t = np.where(problem.y[rows] == positive, 1.0, -1.0)
    reach = np.full(n, np.inf) if two else C

    def hinge(f: np.ndarray) -> float:
        xi = np.maximum(np.abs(t) - np.sign(t) * f, 0.0)
        return float(0.5 * C @ xi**2 if two else C @ xi)

    return SimpleNamespace(
        target=t,
        lower=np.where(t < 0, -reach, 0.0),
        upper=np.where(t > 0, reach, 0.0),
        ridge=1.0 / C if two else zero,
        epsilon=0.0,
        total=0.0,
        losses=hinge,
    )


def _regression(
    y: np.ndarray, C: np.ndarray, epsilon: float, loss: str, two: bool
) -> SimpleNamespace:
    n = len(y)
    if loss == "huber":

        def losses(f: np.ndarray) -> float:
            r = np.abs(y - f)
            small = r**2 / (2.0 * epsilon) if epsilon else r
            return float(C @ np.where(r <= epsilon, small, r - 0.5 * epsilon))

        box = {"lower": -C, "upper": C, "ridge": epsilon / C, "epsilon": 0.0}
    else:
        tube = 0.0 if loss == "squared" else epsilon
        squared = two or loss == "squared"

        def losses(f: np.ndarray) -> float:
            r = np.maximum(np.abs(y - f) - tube, 0.0)
            return float(0.5 * C @ r**2 if squared else C @ r)

        bound = np.full(n, np.inf) if squared else C
        box = {
            "lower": -bound,
            "upper": bound,
            "ridge": 1.0 / C if squared else np.zeros(n),
            "epsilon": tube,
        }
    return SimpleNamespace(target=y, total=0.0, losses=losses, **box)


def _scale(problem: Any) -> float:
    """Return 2 where the problem is written without the factor ½: ‖w‖² + C Σ ξ²."""
    p = problem.parameters
    if problem.name.endswith("Regressor"):
        return (
            2.0 if p["loss"] == "squared" or (p["loss"] == "epsilon" and p["slack"] == 2) else 1.0
        )
    return (
        2.0
        if p.get("slack", 1) == 2
        and problem.name.endswith("Classifier")
        and _one_versus_rest(problem)
        else 1.0
    )


def _check_feasible(program: SimpleNamespace, beta: np.ndarray) -> None:
    size = max(np.abs(beta).max(initial=0.0), 1e-300)
    outside = np.maximum(beta - program.upper, program.lower - beta).max(initial=0.0)
    if outside > 1e-9 * size:
        raise Dishonest(f"a dual coefficient is {outside:.2g} beyond its bound")
    room = np.abs(program.upper[np.isfinite(program.upper)]).max(initial=0.0)
    if not np.isfinite(program.upper).all():  # the last digit of a target, over the ridge
        room = max(
            room, np.abs(program.target).max() / program.ridge[program.ridge > 0].min(initial=1.0)
        )
    if (
        abs(beta.sum() - program.total)
        > 1e-9 * max(np.abs(beta).sum(), abs(program.total)) + 1e-14 * room + 1e-18
    ):
        raise Dishonest(f"the dual coefficients sum to {beta.sum():.9g}, not to {program.total:g}")


def _one_output(
    problem: Any,
    model: Any,
    rows: np.ndarray,
    weight: np.ndarray,
    beta: np.ndarray,
    c: int,
    Ks: np.ndarray,
) -> Bounds:
    p, scale = problem.parameters, _scale(problem)
    program = _program(problem, model, rows, weight, c)
    _check_feasible(program, beta)
    b = model.intercept_[c]
    gated = problem.name.startswith("Localized")
    K = Ks[c] if gated else np.tensordot(np.atleast_2d(model.weights_)[c], Ks, 1)
    f = K @ beta
    quadratic = 0.5 * beta @ f
    upper = quadratic + program.losses(f + b) + b * program.total
    linear = (
        program.target @ beta - program.epsilon * np.abs(beta).sum() - 0.5 * program.ridge @ beta**2
    )
    heuristic = p.get("solver") in ("alignment", "easymkl", "sdp")
    fixed = gated or p.get("weights") is not None or heuristic
    if fixed:
        lower, optimum = linear - quadratic, lambda: scale * _optimum(p, K[np.newaxis], program)
    else:
        d = np.asarray(p.get("penalties", np.ones(len(Ks))))
        q = np.maximum(0.5 * np.einsum("i,mij,j->m", beta, Ks, beta), 0.0) / d**2
        lower = linear - _support(p, q)
        optimum = lambda: scale * _optimum(p, Ks / (d**2)[:, np.newaxis, np.newaxis], program)  # noqa: E731
    # Weights of both signs, which only solver="sdp" has, may cancel; what they multiply is rounded
    # before.
    sizes = K if gated else np.tensordot(np.abs(np.atleast_2d(model.weights_)[c]), Ks, 1)
    norms = np.sqrt(np.maximum(np.diag(sizes), 0.0))
    reach = float(np.abs(beta) @ norms)
    slopes = np.where(
        np.isfinite(program.upper - program.lower), program.upper - program.lower, np.abs(beta)
    )
    # The matrices of a fit may differ from those formed here by the rounding of the kernels' own
    # formulas.
    digits = max(_ROUNDING, *(drawn.noise for drawn in problem.kernels))
    rounding = digits * (reach**2 + float(slopes @ norms) * reach) + _ROUNDING * float(
        np.abs(program.target) @ slopes
    )
    rounding += _ROUNDING * abs(b) * float(slopes.sum()) + abs(b) * abs(beta.sum() - program.total)
    if program.ridge.any():  # a quadratic loss: outputs that are off by δ cost about δ²/(2ρ)
        off = _ROUNDING * (norms * reach + abs(b))
        rounding += float(
            np.sum(
                np.divide(
                    off**2, 2.0 * program.ridge, out=np.zeros(len(off)), where=program.ridge > 0
                )
            )
        )
    if problem.name.endswith("OneClass"):
        # Samples that surround the origin are worth nothing, and no relative gap to zero is small.
        # Where ½βᵀKβ is zero to ten digits, the outputs are so to five.
        rounding += 1e-5 * float(np.mean(np.diag(K)))
    return Bounds(scale * upper, scale * lower, scale * rounding, optimum, certain=fixed)


def _optimum(p: dict[str, Any], Ks: np.ndarray, program: SimpleNamespace) -> float:
    """Return the value that a conic solver's point attains, over the weights if there are several
    kernels.

    The value that the solver states is no bound: what its coefficients miss of their equalities,
    however little, counts as much as the multipliers of these are large. The primal value of its
    weights and coefficients is no less than the optimum, up to rounding.

    The solver's accuracy is absolute, and kernels of 10⁸ make for values of 10⁻⁸: with β = γ/u the
    value is 1/u times that of kernels and ridge divided by u, and bounds multiplied with it.
    Targets of thousands do the opposite: with β = sγ it is s² times that of targets, tube and
    bounds divided by s.
    """
    unit = float(np.einsum("mii->m", Ks).max()) / Ks.shape[1]
    unit = unit if unit > 1.0 and not program.total else 1.0
    size = 1.0 if program.total else max(float(np.abs(program.target).max()), 1.0)
    parts = {
        "target": program.target / size,
        "epsilon": program.epsilon / size,
        "lower": unit * program.lower / size,
        "upper": unit * program.upper / size,
        "ridge": program.ridge / unit,
    }
    program, norm = SimpleNamespace(**(vars(program) | parts)), p.get("norm", 1)
    Ks, theta = Ks / unit, np.ones(1)
    if len(Ks) == 1:
        _, beta = solve_program_conic(Ks[0], program)
    elif norm == 1:
        _, theta, beta = solve_mkl_conic(Ks, program)
    else:
        _, theta, beta = solve_mkl_lp_generic(Ks, program, norm)
    theta = np.maximum(theta, 0.0)
    return size**2 * _attained(np.tensordot(theta / _norm(p, theta), Ks, 1), program, beta) / unit


def _attained(K: np.ndarray, program: SimpleNamespace, beta: np.ndarray) -> float:
    """Return the primal value of β with the best constant: the loss of a residual r is max rβ −
    ε|β| − ½ρβ²."""
    f = K @ beta

    def pulled(b: float) -> tuple[np.ndarray, np.ndarray]:
        r = program.target - f - b
        r = np.sign(r) * np.maximum(np.abs(r) - program.epsilon, 0.0)
        far = np.where(r == 0, 0.0, np.copysign(np.inf, r))
        return r, np.clip(
            np.divide(r, program.ridge, out=far, where=program.ridge > 0),
            program.lower,
            program.upper,
        )

    def value(b: float) -> float:
        r, best = pulled(b)
        return float(r @ best - 0.5 * program.ridge @ best**2 + b * program.total)

    apart = program.target - f
    low, high = float(apart.min()) - program.epsilon, float(apart.max()) + program.epsilon
    for _ in range(100):  # the slope in the constant rises from below zero to above
        middle = 0.5 * (low + high)
        low, high = (middle, high) if program.total < pulled(middle)[1].sum() else (low, middle)
    return 0.5 * float(beta @ f) + min(value(low), value(high))


def _learned_C(
    problem: Any,
    model: Any,
    rows: np.ndarray,
    weight: np.ndarray,
    beta: np.ndarray,
    c: int,
    Ks: np.ndarray,
) -> Bounds:
    """The machine without slack on Σ η_m K_m + η_0 D, where Σ d_m² η_m + η_0 = 1 and D is the
    identity by weights.

    Every kernel carries 10⁻⁶ D. The estimator shows weights divided by their sum, coefficients
    multiplied with it, and C, from which the sum follows.
    """
    p, floor = problem.parameters, 1e-6
    program = _program(problem, model, rows, weight, c)
    _check_feasible(program, beta)
    D = program.ridge / program.ridge.mean()
    shown = np.atleast_2d(model.weights_)[c]
    kept = 1.0 / (1.0 + program.ridge.mean() / model.C_[c] - floor * shown.sum())
    eta, beta = kept * shown, beta / kept
    share = 1.0 - kept + floor * eta.sum()
    K = np.tensordot(eta, Ks, 1) + share * np.diag(D)
    f = K @ beta
    # Halfway between the classes; `intercept_` is that of the machine with the slack that was
    # learned.
    b = -0.5 * (f[program.target > 0].min() + f[program.target < 0].max())
    margin = float(np.min(program.target * (f + b)))
    upper = beta @ K @ beta / margin**2 if margin > 0 else np.inf
    d = np.append(np.asarray(p.get("penalties", np.ones(len(Ks)))), 1.0)
    every = np.concatenate([Ks + floor * np.diag(D), np.diag(D)[np.newaxis]])
    q = np.einsum("i,mij,j->m", beta, every, beta) / d**2
    lower = 2.0 * program.target @ beta - q.max()
    reach = float(np.abs(beta) @ np.sqrt(np.diag(K)))
    return Bounds(float(upper), float(lower), 1e3 * _ROUNDING * reach**2)


# Machines with one output per class ---------------------------------------------------------------


def _joint(
    problem: Any, model: Any, rows: np.ndarray, weight: np.ndarray, beta: np.ndarray, Ks: np.ndarray
) -> Bounds:
    p, n, k = problem.parameters, len(rows), len(model.classes_)
    all_rows = np.arange(n)
    labels = np.searchsorted(model.classes_, problem.y[rows])
    pairwise = problem.name == "PosteriorMKLClassifier" or p.get("multi_class") == "pairwise"
    if problem.name == "PosteriorMKLClassifier":
        posteriors = model.posteriors_[rows]
        margins = 2.0 * (posteriors[all_rows, labels][:, np.newaxis] - posteriors)
    else:
        margins = np.full((n, k), 2.0 if pairwise else 1.0)
    margins[all_rows, labels] = 0.0
    C = (p["kappa"] if problem.name == "BilinearMKLClassifier" else p["C"]) * weight
    beta = beta.T
    b = model.intercept_
    if (
        problem.name != "BilinearMKLClassifier"
    ):  # which shows those of each class divided by a number of its own
        _check_joint_feasible(beta, labels, C, pairwise)
    if problem.name == "BilinearMKLClassifier":
        K = np.tensordot(model.weights_, Ks, 1)
    elif problem.name.startswith("Localized"):
        K = np.broadcast_to(Ks[0], (k, n, n))
    else:
        K = np.broadcast_to(np.tensordot(model.weights_, Ks, 1), (k, n, n))
    f = np.einsum("cij,jc->ic", K, beta) + b
    behind = np.maximum(margins + f - f[all_rows, labels][:, np.newaxis], 0.0)
    behind[all_rows, labels] = 0.0
    losses = float(C @ (behind.sum(axis=1) if pairwise else behind.max(axis=1)))
    quadratic = 0.5 * np.einsum("ic,cij,jc->", beta, K, beta)
    linear = -float(np.sum(margins * beta))
    norms = np.sqrt(np.maximum(np.einsum("cii->ic", K), 0.0))
    reach = float(np.sum(np.abs(beta) * norms))
    rounding = _ROUNDING * (
        reach**2 + float(C @ norms.sum(axis=1)) * reach + float(C.sum()) * (1.0 + np.abs(b).sum())
    )
    if problem.name == "BilinearMKLClassifier":
        upper = quadratic + 0.5 * model.weights_.sum() + losses
        plain = len(np.unique(weight)) == 1 and n <= 60
        optimum = (lambda: solve_bilinear_conic(Ks, labels, k, C[0])[0]) if plain else None
        return Bounds(upper, _bilinear_dual(beta, labels, C, Ks), rounding, optimum)
    if problem.name.startswith("Localized") or p.get("weights") is not None:
        optimum = lambda: solve_joint_conic(K[0], labels, k, C, margins, pairwise, constants=True)  # noqa: E731
        return Bounds(
            quadratic + losses,
            linear - quadratic,
            rounding,
            optimum if n <= 60 else None,
            certain=True,
        )
    d = np.asarray(p.get("penalties", np.ones(len(Ks))))
    q = np.maximum(0.5 * np.einsum("ic,mij,jc->m", beta, Ks, beta), 0.0) / d**2
    scaled = Ks / (d**2)[:, np.newaxis, np.newaxis]
    best = lambda: solve_joint_mkl_conic(scaled, labels, k, C, margins, pairwise, constants=True)[0]  # noqa: E731
    return Bounds(
        quadratic + losses,
        linear - _support(p, q),
        rounding,
        best if p["norm"] == 1 and n <= 60 else None,
    )


def _check_joint_feasible(
    beta: np.ndarray, labels: np.ndarray, C: np.ndarray, pairwise: bool
) -> None:
    """A sample's coefficients sum to zero, and, since every class has a constant, those of a class
    as well."""
    size = 1e-9 * max(np.abs(beta).max(initial=0.0), 1e-300)
    own = beta[np.arange(len(beta)), labels]
    others = beta.copy()
    others[np.arange(len(beta)), labels] = 0.0
    if (
        np.abs(beta.sum(axis=1)).max() > size * beta.shape[1]
        or others.max(initial=0.0) > size
        or own.min() < -size
    ):
        raise Dishonest("the coefficients of a sample do not sum to zero, or have a wrong sign")
    if np.any(-others > C[:, np.newaxis] + size) or (not pairwise and np.any(own > C + size)):
        raise Dishonest("a dual coefficient is beyond its bound")
    if np.abs(beta.sum(axis=0)).max() > size * len(beta):
        raise Dishonest("the coefficients of a class do not sum to zero")


def _bilinear_dual(beta: np.ndarray, labels: np.ndarray, C: np.ndarray, Ks: np.ndarray) -> float:
    """Return the value of the largest feasible multiple of Σ_c u_c β_c: the sum of the own class's
    coefficients.

    The coefficients of every sample sum to zero once those of each class are multiplied with the
    right number, and no class's norm in any kernel exceeds one.
    """
    n, k = beta.shape
    used = np.flatnonzero(np.any(beta != 0, axis=0))
    if len(used) < 2:
        return 0.0
    factors = np.zeros(k)
    null = np.linalg.svd(beta[:, used])[2][-1]
    factors[used] = null * np.sign(null.sum())
    tau = beta * factors
    own = tau[np.arange(n), labels]
    largest = max(
        float(np.max(own / C)),
        float(np.sqrt(np.einsum("ic,mij,jc->cm", tau, Ks, tau).max())),
        1e-300,
    )
    residual = np.abs(tau.sum(axis=1)).max() if np.all(factors[used] > 0) else np.inf
    return float(own.sum()) / largest if residual <= 1e-7 * np.abs(tau).max() else -np.inf


# Discriminant analysis ----------------------------------------------------------------------------


def _discriminant(problem: Any, model: Any, Ks: np.ndarray) -> Bounds:
    p, n = problem.parameters, len(problem.X)
    labels = np.searchsorted(model.classes_, problem.y)
    counts = np.bincount(labels)
    member = np.eye(len(counts))[labels]
    if len(counts) == 2:
        H = (member[:, 1] / counts[1] - member[:, 0] / counts[0])[:, np.newaxis]
    else:
        H = np.sqrt(n / counts) * member - np.sqrt(counts / n)
    centring = np.eye(n) - 1.0 / n
    Gs = centring @ Ks @ centring
    traces = np.maximum(np.trace(Gs, axis1=1, axis2=2), 0.0)
    theta, learned, given = model.weights_, p["alpha"] == "learn", p.get("weights")
    if p["solver"] in ("kim", "sdp_approximate") and given is None:
        return Bounds(model.objective_, model.objective_, 0.0)  # criteria of their own
    if np.any(theta < 0):
        raise Dishonest("a weight is negative")
    # A kernel that is constant but for rounding has no trace to speak of.
    real = traces > 1e-12 * np.maximum(np.trace(Ks, axis1=1, axis2=2), 1e-300)
    total = float(theta[real] @ traces[real]) + (n * model.alpha_ if learned else 0.0)
    noise = 1e-8 + 1e-13 * float(
        np.max(np.trace(Ks, axis1=1, axis2=2)[real] / traces[real], initial=0.0)
    )
    if (given is None or given == "uniform") and real.any() and abs(total - 1.0) > noise:
        raise Dishonest(f"the traces sum to {total:.9g}, not to one")
    G = np.tensordot(theta, Gs, 1)
    lam = model.alpha_
    try:
        beta = np.linalg.solve(lam * np.eye(n) + G, H)
    except np.linalg.LinAlgError:  # the ridge is lost in the kernel's digits
        return Bounds(model.objective_, model.objective_, np.inf)
    value = float(np.sum(H * beta))
    forms = np.einsum("ic,mij,jc->m", beta, Gs, beta)
    ratios = np.divide(forms, traces, out=np.zeros(len(Gs)), where=real)
    scale = 1.0 if learned else lam
    if given is not None:
        lower = value
    elif learned:
        lower = 2.0 * value - max(float(ratios.max()), float(np.sum(beta**2)) / n)
    else:
        lower = 2.0 * value - lam * float(np.sum(beta**2)) - float(ratios.max())
    # Before centring, entries may be much larger than what it leaves of them.
    rounding = scale * 1e-13 * n * float(theta @ np.abs(Ks).max(axis=(1, 2))) / lam * abs(value)
    shares = Gs[real] / traces[real][:, np.newaxis, np.newaxis]

    def optimum() -> float:
        matrices = [np.eye(n) / n, *shares] if learned else shares
        s = np.maximum(solve_matrix_fractional(matrices, H, 0.0 if learned else lam)[1], 0.0)
        s = s / s.sum()
        ridge = float(s[0]) / n if learned else lam
        M = np.tensordot(s[1:] if learned else s, shares, 1)
        # The problem's primal value, ‖H − Mβ‖²/λ + βᵀMβ, of whatever β.
        beta = np.linalg.solve(ridge * np.eye(n) + M, H)
        return scale * float(np.sum((H - M @ beta) ** 2) / ridge + np.sum(beta * (M @ beta)))

    # Centring leaves rounding of large entries, a kernel of full rank that a conic solver uses
    # where it exceeds the ridge.
    left = 2e-16 * n * np.abs(Ks).max(axis=(1, 2))[real] / traces[real]
    unknown = given is not None or (not learned and bool(np.any(left > 1e-3 * lam)))
    return Bounds(
        scale * value, scale * lower, rounding, None if unknown else optimum, given is not None
    )
