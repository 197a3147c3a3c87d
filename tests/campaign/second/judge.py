"""The second judge: what a fitted model states, recomputed in long double from the printed
formulas.

It reads the drawn problem and the model's public fitted attributes, and calls nothing of the
library but `decision_function` and `predict`. Kernel entries come from the kernels' printed
formulas on the raw columns, distances from differences of the columns, normalisers from their
definitions, primal and dual values from the printed problems.

What rounding may explain is derived beside every value. U = 2⁻⁵³ is the rounding of one operation.
A sum of n terms, in whatever order, is off by about √n U times the sum of the absolute terms, and
never by more than about n U: the larger of 4 √n U and (n + 2) U is allowed (`summed`).

- ⟨x, z⟩ of d columns is a sum. A difference x − z of two columns that were shifted by their mean μ
  first is off by at most U (|x − z| + |x − μ| + |z − μ|), and exact where x = z. A squared distance
  may be made of products of samples less their mean, which is off by 8 √d U (‖x − μ‖² + ‖z − μ‖²),
  as long as 43 of 53 binary digits are left, relative to itself or to the squared width. Squares,
  powers, exponentials, products and the rules of `normalize` pass these errors on to first order.
  This bounds every entry: |k̂ − k| ≤ E.
- An output Σ β_j k_j + b is off by φ = Σ |β_j| E_j + 4 √n U Σ |β_j k_j| + 2 U (|f| + |b| + |t|).
- A loss is convex: outputs that are off by φ move it by no more than the larger of l(f ± φ) − l(f).
- ½ βᵀKβ is off by ½ Σ |β_i| φ_i, and ⟨t, β⟩ by 4 √n U Σ |t_i β_i|.

Rounding excuses no more than the tolerance: a model that states a gap within it states a value that
is as near, and one whose sums are not that exact has to say so by a larger gap and a warning. Only
what the last digit of outputs, targets and constants does to the losses, which no model in double
precision could better, is excused in any case.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from tests.campaign.second.bounds import FIRST_ORDER, SUMS, Bounds, norm_of, penalties
from tests.campaign.second.discriminant import discriminant_bounds
from tests.campaign.second.entries import Array, Entries, Long, U, applied, combined
from tests.campaign.second.one_output import one_output_bounds
from tests.campaign.second.problems import OffsetProblem
from tests.campaign.second.several import bilinear_bounds, joint_bounds
from tests.campaign.second.training import Contradiction, Training, columns


def check_fit(problem: OffsetProblem, model: Any) -> str:
    """Raise a `Contradiction` unless what the model states holds; return how its gap was shown."""
    _check_finite(model)
    data = Training(problem, model)
    found = []
    # Where few digits are left of centred kernels, any of these may count as constant.
    for count in range(len(data.undecided) + 1):
        for constant in combinations(data.undecided, count):
            try:
                return _check(problem, model, data.without(constant))
            except Contradiction as fault:
                found.append(fault)
    raise found[0]


def _check(problem: OffsetProblem, model: Any, data: Training) -> str:
    faults, shown = [], ""
    for check in (_check_weights, _check_gap, _check_outputs):
        try:
            shown += check(problem, model, data)
        except Contradiction as fault:
            faults.append(str(fault))
    if faults:
        raise Contradiction(" | ".join(faults))
    return shown


def _check_gap(problem: OffsetProblem, model: Any, data: Training) -> str:
    if problem.name == "DiscriminantMKLClassifier":
        found = discriminant_bounds(problem, model, data)
    elif problem.name == "BilinearMKLClassifier":
        found = [bilinear_bounds(problem, model, data)]
    # Where the samples that count have two classes only, theirs is the machine of two classes.
    elif problem.joint and len(model.classes_) > 2:
        found = [joint_bounds(problem, model, data)]
    else:
        found = one_output_bounds(problem, model, data)
    return _check_statements(model, found)


def _check_finite(model: Any) -> None:
    for name in ("weights_", "dual_coef_", "intercept_", "objective_"):
        if not np.all(np.isfinite(getattr(model, name))):
            raise Contradiction(f"NaN: {name} is not finite")
    if not model.duality_gap_ >= 0:
        raise Contradiction(f"NaN: duality_gap_={model.duality_gap_}")


def _check_statements(model: Any, found: list[Bounds]) -> str:
    if not found:
        return "not judged"
    stated, gap = Long(model.objective_), Long(model.duality_gap_)
    value, off = sum(one.upper for one in found), sum(one.off_upper for one in found)
    excused = sum(one.excused(one.off_upper, gap, model.tol) for one in found)
    # Discriminants state the rounding of their objective as a part of their gap, which a warning
    # names if it is large.
    if type(model).__name__ == "DiscriminantMKLClassifier":
        excused = max(
            excused,
            (gap if gap > model.tol else min(gap, Long(1e-7))) * max(abs(value), abs(stated)),
        )
    if not abs(stated - value) <= excused + 4 * U * abs(value) + Long(1e-300):
        raise Contradiction(
            f"objective: objective_={model.objective_:.9g} is off by"
            f" {float(abs(stated - value)):.2g}, rounding {float(off):.2g},"
            f" duality_gap_={model.duality_gap_:.2g}"
        )
    # An end above the tolerance is excused where rounding is as large.
    is_hidden = gap > model.tol and any(
        one.off_upper + one.off_lower > model.tol * one.size for one in found
    )
    shown = "gap"
    if not gap < 1:  # nothing is claimed, and a warning says so
        return "rounding" if is_hidden else "unknown"
    for one in found:
        scale, rounding = max(abs(one.upper), abs(one.lower)), one.off_upper + one.off_lower
        allowed = gap * scale + one.excused(rounding, gap, model.tol)
        if one.upper - one.lower <= allowed:
            continue
        if one.fixed:
            raise Contradiction(
                f"gap: duality_gap_={model.duality_gap_:.3g}, recomputed"
                f" {float((one.upper - one.lower) / scale):.3g} ({float(one.upper):.9g} above"
                f" {float(one.lower):.9g}, rounding {float(rounding / scale):.2g})"
            )
        shown = _by_others(model, one, allowed, rounding)
    return "rounding" if is_hidden else shown


def _by_others(model: Any, one: Bounds, allowed: Any, rounding: Any) -> str:
    """Hold the gap to bounds on the optimum that do not rest on the returned coefficients."""
    found = None if one.optimum is None else one.optimum()
    if found is None:
        return "unknown"
    lower, upper = found
    # Coefficients that the model does not show may miss their sums as those that it shows.
    if one.upper - upper > allowed + SUMS * one.size:
        raise Contradiction(
            f"gap: duality_gap_={model.duality_gap_:.3g}, but the value {float(one.upper):.9g} is"
            f" above the optimum, {float(upper):.9g}, by"
            f" {float((one.upper - upper) / abs(one.upper)):.3g} of it, rounding"
            f" {float(rounding / abs(one.upper)):.2g}"
        )
    return "ascent" if one.upper - lower <= allowed + SUMS * one.size else "unknown"


def _check_outputs(problem: OffsetProblem, model: Any, data: Training) -> str:
    """Hold decision values to the recomputed sums, and those of one sample to those of many."""
    decide = model.decision_function if hasattr(model, "decision_function") else model.predict
    for rows, blocks in ((problem.X[data.rows], data.blocks), (problem.new, data.new_blocks)):
        stated = columns(decide(problem.given(rows)))
        if not np.all(np.isfinite(stated)):
            raise Contradiction("NaN: a decision value is not finite")
        values, off = _outputs(problem, model, data, blocks)
        if problem.name == "MKLOneClass":  # decision values this near to zero are given as zero
            off = off + np.where(stated == 0, 1e-9 * abs(model.intercept_[0]), 0.0)
        wrong = ~(abs(stated - values) <= FIRST_ORDER * off)
        if np.any(wrong):
            i, c = np.argwhere(wrong)[0]
            raise Contradiction(
                f"decision: sample {i}, output {c}: {stated[i, c]:.9g} is off by "
                f"{float(abs(stated - values)[i, c]):.2g}, rounding {float(off[i, c]):.2g}"
            )
        for i in range(0, len(rows), max(len(rows) // 4, 1)):
            alone = columns(decide(problem.given(rows[i : i + 1])))[0]
            if not np.all(abs(alone - stated[i]) <= 2 * FIRST_ORDER * off[i]):
                apart = float(abs(alone - stated[i]).max())
                raise Contradiction(
                    f"rows: sample {i} alone and among others differs by {apart:.2g}, off {off[i]}"
                )
    return ""


def _outputs(
    problem: OffsetProblem, model: Any, data: Training, blocks: list[Entries]
) -> tuple[Array, Array]:
    eta = np.atleast_2d(model.weights_).astype(Long)
    b = model.intercept_.astype(Long)
    beta = data.beta
    f, off = [], []
    for c in range(len(beta)):
        K = combined(eta[c if len(eta) > 1 else 0], blocks)
        one = applied(K, beta[c])
        f.append(one.K)
        off.append(one.E)
    values, errors = np.array(f).T, np.array(off).T
    if problem.name == "BilinearMKLClassifier" and values.shape[1] == 2:
        values, errors = values[:, 1:] - values[:, :1], errors.sum(axis=1, keepdims=True)
    if problem.name == "DiscriminantMKLClassifier":
        # The library keeps the coefficients of the projections, which the decision combines: their
        # products with the kernel are as large as the largest output's, and larger where outputs
        # are alike.
        errors = 512 * errors.max(axis=1, keepdims=True)
    values = values + b
    return values, errors + 4 * U * (abs(values) + abs(b)) + Long(1e-300)


def _check_weights(problem: OffsetProblem, model: Any, data: Training) -> str:
    p, P = problem.parameters, len(problem.views)
    if problem.name == "DiscriminantMKLClassifier":  # whose weights are judged with its value
        return ""
    given = p.get("weights")
    for eta in np.atleast_2d(model.weights_).astype(Long):
        if given is not None:
            wanted = np.full(P, 1.0 / P) if isinstance(given, str) else np.asarray(given)
            if not np.array_equal(eta, wanted):
                raise Contradiction("weights: given weights were changed")
            continue
        if p.get("solver") == "sdp":
            traces = np.array([np.trace(block.K) / len(data) for block in data.blocks])
            total, size = eta @ traces, abs(eta) @ abs(traces)
            # What centring leaves of a diagonal has the rounding of what it removed.
            off = sum(
                abs(w) * np.trace(block.E) for w, block in zip(eta, data.blocks, strict=True)
            ) / len(data)
            if traces.any() and abs(total - 1) > 1e-9 * max(size, Long(1)) + 4 * off:
                raise Contradiction(f"weights: the mean diagonal is {float(total):.12g}, not one")
            continue
        if np.any(eta < 0):
            raise Contradiction("weights: a weight is negative")
        if problem.name == "BilinearMKLClassifier":
            continue
        norm = norm_of(p, penalties(p, P) ** 2 * eta)
        if abs(norm - 1) > SUMS:
            raise Contradiction(f"weights: their norm is 1 + {float(norm - 1):.3g}")
    return ""
