"""The second judge: what a fitted model states, recomputed in long double from the printed formulas.

It reads the drawn problem and the model's public fitted attributes, and calls nothing of the library but
`decision_function` and `predict`. Kernel entries come from the kernels' printed formulas on the raw columns, distances
from differences of the columns, normalisers from their definitions, primal and dual values from the printed problems.

What rounding may explain is derived beside every value. U = 2⁻⁵³ is the rounding of one operation, and a sum of n
terms, in whatever order, is off by about √n U times the sum of the absolute terms: 4 √n U of it is allowed (`_sum`).

- ⟨x, z⟩ of d columns is a sum. A difference x − z of two columns that were shifted by their mean μ first is off by at
  most U (|x − z| + |x − μ| + |z − μ|), and exact where x = z. A squared distance may be made of products of samples
  less their mean, which is off by 8 √d U (‖x − μ‖² + ‖z − μ‖²), as long as 43 of 53 binary digits are left, relative to
  itself or to the squared width. Squares, powers, exponentials, products and the rules of `normalize` pass these
  errors on to first order. This bounds every entry: |k̂ − k| ≤ E.
- An output Σ β_j k_j + b is off by φ = Σ |β_j| E_j + 4 √n U Σ |β_j k_j| + 2 U (|f| + |b| + |t|).
- A loss is convex: outputs that are off by φ move it by no more than the larger of l(f ± φ) − l(f).
- ½ βᵀKβ is off by ½ Σ |β_i| φ_i, and ⟨t, β⟩ by 4 √n U Σ |t_i β_i|.

Rounding excuses no more than the tolerance: a model that states a gap within it states a value that is as near, and one
whose sums are not that exact has to say so by a larger gap and a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tests.campaign.ascent import Quadratic, maximise, solved
from tests.campaign.offsets import Formula, OffsetProblem, View

#: What everything is computed in. Where long double is double, the judge is as exact as what it judges.
Long = np.longdouble
Array = np.ndarray
#: The rounding of one operation in double precision.
U = Long(2.0) ** -53
#: The error that products may leave in a squared distance, relative to itself or to the squared width.
_DIGITS = Long(2.0) ** -43
#: Relative to the sizes added: how far coefficients and weights may be off the sums that they must have.
_SUMS = 1e-12
#: The share of a kernel's mean diagonal below which the library takes what centring leaves of it for rounding, in √n U.
_NOISE = 32.0
#: The same for discriminant analysis, as a share of the trace.
_CONSTANT = 1e-12


#: How often weights and coefficients take turns where the weights do not sum to one.
_TURNS = 12


class Contradiction(AssertionError):
    """The model states what does not hold; the message begins with the kind of statement."""


@dataclass(frozen=True)
class Entries:
    """Values and by how much rounding in double precision may move each."""

    K: Array
    E: Array


@dataclass(frozen=True)
class Bounds:
    """Both sides of one training problem at the returned model.

    Attributes
    ----------
    upper, lower : long double
        The primal value of the model, and the bound that its coefficients prove.
    off_upper, off_lower : long double
        By how much rounding may have moved either.
    fixed : bool
        Whether the weights are given: then the stated gap is that of these coefficients. Where they are learned, the
        lower bound may be that of other coefficients.
    terms : long double
        The sum of the absolute terms of the primal value where they may cancel, as those of one-class machines.
    optimum : callable or None
        Returns bounds on the optimum that do not rest on the model, or None where none were found.
    """

    upper: Any
    lower: Any
    off_upper: Any
    off_lower: Any
    fixed: bool = False
    terms: Any = 0.0
    optimum: Callable[[], tuple[Any, Any] | None] | None = None

    @property
    def size(self) -> Any:
        return max(abs(self.upper), abs(self.lower), self.terms)


def check_fit(problem: OffsetProblem, model: Any) -> str:
    """Raise a `Contradiction` unless what the model states holds; return how its gap was shown."""
    _check_finite(model)
    data = _Training(problem, model)
    if data.undecided:
        return "undecided"
    faults, shown = [], ""
    for check in (_check_weights, _check_gap, _check_outputs):
        try:
            shown += check(problem, model, data)
        except Contradiction as fault:
            faults.append(str(fault))
    if faults:
        raise Contradiction(" | ".join(faults))
    return shown


# Statements ----------------------------------------------------------------------------------------------------------


def _check_gap(problem: OffsetProblem, model: Any, data: _Training) -> str:
    if problem.name == "DiscriminantMKLClassifier":
        found = [_discriminant(problem, model, data)]
    else:
        found = _machine_bounds(problem, model, data)
    return _check_statements(problem, model, [one for one in found if one is not None])


def _check_finite(model: Any) -> None:
    for name in ("weights_", "dual_coef_", "intercept_", "objective_"):
        if not np.all(np.isfinite(getattr(model, name))):
            raise Contradiction(f"NaN: {name} is not finite")
    if not model.duality_gap_ >= 0:
        raise Contradiction(f"NaN: duality_gap_={model.duality_gap_}")


def _check_statements(problem: OffsetProblem, model: Any, found: list[Bounds]) -> str:
    if not found:
        return "not judged"
    value, off, size = (sum(getattr(one, name) for one in found) for name in ("upper", "off_upper", "size"))
    stated, gap = Long(model.objective_), Long(model.duality_gap_)
    excused = min(off, model.tol * size) if gap <= model.tol else off
    if not abs(stated - value) <= excused + 4 * U * abs(value):
        raise Contradiction(
            f"objective: objective_={model.objective_:.9g} is off by {float(abs(stated - value)):.2g}, rounding "
            f"{float(off):.2g}, duality_gap_={model.duality_gap_:.2g}"
        )
    shown = "gap"
    for one in found:
        scale, rounding = max(abs(one.upper), abs(one.lower)), one.off_upper + one.off_lower
        allowed = gap * scale + (min(rounding, model.tol * one.size) if gap <= model.tol else rounding)
        if one.upper - one.lower <= allowed:
            continue
        if one.fixed:
            raise Contradiction(
                f"gap: duality_gap_={model.duality_gap_:.3g}, recomputed {float((one.upper - one.lower) / scale):.3g} "
                f"({float(one.upper):.9g} above {float(one.lower):.9g}, rounding {float(rounding / scale):.2g})"
            )
        shown = _by_others(model, one, allowed, rounding)
    return shown


def _by_others(model: Any, one: Bounds, allowed: Any, rounding: Any) -> str:
    """Hold the gap to bounds on the optimum that do not rest on the returned coefficients."""
    found = None if one.optimum is None else one.optimum()
    if found is None:
        return "unknown"
    lower, upper = found
    if one.upper - upper > allowed:
        raise Contradiction(
            f"gap: duality_gap_={model.duality_gap_:.3g}, but the value {float(one.upper):.9g} is above the optimum, "
            f"{float(upper):.9g}, by {float((one.upper - upper) / abs(one.upper)):.3g} of it, rounding "
            f"{float(rounding / abs(one.upper)):.2g}"
        )
    return "ascent" if one.upper - lower <= allowed else "unknown"


def _check_outputs(problem: OffsetProblem, model: Any, data: _Training) -> str:
    """Hold decision values to the recomputed sums, and those of one sample to those of many."""
    decide = model.decision_function if hasattr(model, "decision_function") else model.predict
    for rows, blocks in ((problem.X[data.rows], data.blocks), (problem.new, data.new_blocks)):
        stated = _columns(decide(rows))
        if not np.all(np.isfinite(stated)):
            raise Contradiction("NaN: a decision value is not finite")
        values, off = _outputs(problem, model, data, blocks)
        if problem.name == "MKLOneClass":  # decision values this near to zero are given as zero
            off = off + np.where(stated == 0, 1e-9 * abs(model.intercept_[0]), 0.0)
        wrong = ~(abs(stated - values) <= off)
        if np.any(wrong):
            i, c = np.argwhere(wrong)[0]
            raise Contradiction(
                f"decision: sample {i}, output {c}: {stated[i, c]:.9g} is off by "
                f"{float(abs(stated - values)[i, c]):.2g}, rounding {float(off[i, c]):.2g}"
            )
        for i in range(0, len(rows), max(len(rows) // 4, 1)):
            alone = _columns(decide(rows[i : i + 1]))[0]
            if not np.all(abs(alone - stated[i]) <= 2 * off[i]):
                apart = float(abs(alone - stated[i]).max())
                raise Contradiction(f"rows: sample {i} alone and among others differs by {apart:.2g}, off {off[i]}")
    return ""


def _columns(values: Array) -> Array:
    return np.asarray(values).reshape(len(values), -1)


def _outputs(problem: OffsetProblem, model: Any, data: _Training, blocks: list[Entries]) -> tuple[Array, Array]:
    eta = np.atleast_2d(model.weights_).astype(Long)
    b = model.intercept_.astype(Long)
    beta = data.beta
    f, off = [], []
    for c in range(len(beta)):
        K = _combined(eta[c if len(eta) > 1 else 0], blocks)
        one = _applied(K, beta[c])
        f.append(one.K)
        off.append(one.E)
    values, errors = np.array(f).T, np.array(off).T
    if problem.name == "BilinearMKLClassifier" and values.shape[1] == 2:
        values, errors = values[:, 1:] - values[:, :1], errors.sum(axis=1, keepdims=True)
    if problem.name == "DiscriminantMKLClassifier":
        # The library keeps the coefficients of the projections, which the decision combines.
        errors = 8 * errors
    values = values + b
    return values, errors + 4 * U * (abs(values) + abs(b))


# The training set and its kernels ------------------------------------------------------------------------------------


class _Training:
    """The samples that count, each once, their coefficients, and the kernels on them.

    Attributes
    ----------
    rows, weight : ndarray of shape (n,)
        The first of every group of equal samples with equal targets, and the sum of their weights.
    beta : ndarray of shape (outputs, n)
        The coefficients.
    blocks, new_blocks : list of Entries
        The normalised kernels among the training samples, and between new samples and them.
    undecided : bool
        Whether a kernel is so nearly constant that the library may or may not take it for zero.
    """

    def __init__(self, problem: OffsetProblem, model: Any) -> None:
        self.rows, self.weight = _distinct(problem, model)
        full = np.zeros((model.dual_coef_.shape[0], len(problem.X)), dtype=Long)
        full[:, model.support_] = model.dual_coef_
        self.beta = full[:, self.rows]
        if not set(model.support_.tolist()) <= set(self.rows.tolist()):
            raise Contradiction("support: support_ names a sample that does not count")
        train, share = problem.X[self.rows], self.weight / self.weight.sum()
        rule = problem.parameters["normalize"]
        self.blocks, self.new_blocks, self.undecided = [], [], False
        for view in problem.views:
            own, new, clear = _normalised(view, rule, train, problem.new, share)
            self.blocks.append(own)
            self.new_blocks.append(new)
            self.undecided |= not clear

    def __len__(self) -> int:
        return len(self.rows)


def _distinct(problem: OffsetProblem, model: Any) -> tuple[Array, Array]:
    n = len(problem.X)
    weight = np.ones(n) if problem.sample_weight is None else problem.sample_weight
    if problem.name == "DiscriminantMKLClassifier":
        return np.arange(n), np.ones(n, dtype=Long)
    target = np.zeros(n) if problem.y is None else problem.y
    if problem.name == "PosteriorMKLClassifier":
        target = np.column_stack([_labels(problem, model), model.posteriors_])
    groups: dict[tuple[float, ...], int] = {}
    total: dict[int, Any] = {}
    for i in range(n):
        if weight[i] > 0:
            key = (*problem.X[i].tolist(), *np.atleast_1d(target[i]).tolist())
            first = groups.setdefault(key, i)
            total[first] = total.get(first, Long(0)) + Long(weight[i])
    return np.array(list(total)), np.array(list(total.values()), dtype=Long)


def _labels(problem: OffsetProblem, model: Any) -> Array:
    assert problem.y is not None
    if problem.y.ndim == 2:
        return np.asarray(problem.y.argmax(axis=1))
    return np.minimum(np.searchsorted(model.classes_, problem.y), len(model.classes_) - 1)


def _normalised(view: View, rule: str | None, train: Array, new: Array, share: Array) -> tuple[Entries, Entries, bool]:
    """Return a kernel among the training samples and between new ones and these, normalised by its definition.

    False comes last where centring leaves of the kernel about what rounding would.
    """
    A, B = train[:, view.columns], new[:, view.columns]
    own, other = _entries(view.formula, A, A, A), _entries(view.formula, B, A, A)
    if rule is None:
        return own, other, True
    k, e = np.diag(own.K), np.diag(own.E)
    if rule == "trace":
        mean = share @ k
        if not mean > 0:
            return own, other, True
        off = (share @ e) / mean + _sum(len(k))
        return _divided(own, mean, off), _divided(other, mean, off), True
    if rule == "diagonal":
        itself = [_entries(view.formula, x[np.newaxis], x[np.newaxis], A) for x in B]
        squares = np.array([one.K[0, 0] for one in itself]), np.array([one.E[0, 0] for one in itself])
        return _cosines(own, k, e, k, e), _cosines(other, *squares, k, e), True
    return _centred(own, other, share)


def _divided(block: Entries, by: Any, off: Any) -> Entries:
    """Divide by numbers that are known to a relative `off`."""
    K = block.K / by
    return Entries(K, block.E / abs(by) + abs(K) * (off + 2 * U))


def _cosines(block: Entries, left: Array, off_left: Array, right: Array, off_right: Array) -> Entries:
    """Divide by the roots of k(x, x) and k(z, z)."""
    left, right = (np.where(one > 0, one, Long(1)) for one in (left, right))
    off = (off_left / left)[:, np.newaxis] / 2 + off_right / right / 2 + 4 * U
    return _divided(block, np.sqrt(left)[:, np.newaxis] * np.sqrt(right), off)


def _centred(own: Entries, other: Entries, share: Array) -> tuple[Entries, Entries, bool]:
    n = len(share)
    means, mean = own.K @ share, share @ own.K @ share
    off_means = own.E @ share + _sum(n) * (abs(own.K) @ share)
    off_mean = share @ off_means
    trace = share @ np.diag(own.K) - mean
    level = share @ abs(np.diag(own.K))
    noise = _NOISE * np.sqrt(Long(n)) * U * level
    if trace <= noise / 2:
        nothing = [Entries(np.zeros_like(one.K), np.zeros_like(one.K)) for one in (own, other)]
        return nothing[0], nothing[1], True
    off_trace = share @ np.diag(own.E) + 2 * off_mean + 4 * U * (level + abs(mean))
    both = []
    for block in (own, other):
        side = block.K @ share
        off_side = block.E @ share + _sum(n) * (abs(block.K) @ share)
        K = block.K - side[:, np.newaxis] - means + mean
        size = abs(block.K) + abs(side)[:, np.newaxis] + abs(means) + abs(mean)
        E = block.E + off_side[:, np.newaxis] + off_means + off_mean + 2 * U * size
        both.append(_divided(Entries(K, E), trace, off_trace / trace))
    return both[0], both[1], bool(trace > 2 * noise)


# Kernel entries ------------------------------------------------------------------------------------------------------


def _sum(n: int) -> Any:
    """Return what rounding may do to a sum of n terms, relative to the sum of their absolute values."""
    return 4 * np.sqrt(Long(n)) * U


def _entries(formula: Formula, A: Array, B: Array, train: Array) -> Entries:
    """Return k(a, b) of the rows of A and B, and how far it may be off in double precision."""
    parts = [_entries(part, A, B, train) for part in formula.parts]
    if formula.kind == "sum":
        K = parts[0].K + parts[1].K
        return Entries(K, parts[0].E + parts[1].E + U * abs(K))
    if formula.kind == "product":
        (a, b), K = parts, parts[0].K * parts[1].K
        return Entries(K, abs(a.K) * b.E + abs(b.K) * a.E + a.E * b.E + U * abs(K))
    if formula.kind == "scaled":
        factor = Long(formula.numbers["factor"])
        return Entries(factor * parts[0].K, factor * parts[0].E + U * abs(factor * parts[0].K))
    if formula.kind == "given":
        K = formula.numbers["K"].astype(Long)[np.ix_(A[:, 0].astype(int), B[:, 0].astype(int))]
        return Entries(K, np.zeros_like(K))
    if formula.kind in ("linear", "polynomial"):
        return _of_products(formula, A, B)
    return _of_distances(formula, A, B, train)


def _of_products(formula: Formula, A: Array, B: Array) -> Entries:
    S, size = np.zeros((len(A), len(B)), dtype=Long), np.zeros((len(A), len(B)), dtype=Long)
    for a, b in zip(A.T.astype(Long), B.T.astype(Long), strict=True):
        S += np.multiply.outer(a, b)
        size += abs(np.multiply.outer(a, b))
    E = (_sum(A.shape[1]) + U) * size
    if formula.kind == "linear":
        return Entries(S, E)
    degree, offset = formula.numbers["degree"], Long(formula.numbers["offset"])
    base = S + offset
    off = E + U * abs(base)
    K = base**degree
    return Entries(K, (abs(base) + off) ** degree - abs(K) + degree * U * abs(K))


def _of_distances(formula: Formula, A: Array, B: Array, train: Array) -> Entries:
    power = 2 if formula.kind == "gaussian" else 1
    width, off_width = _width(formula, train)
    S, off = _distances(A, B, train, power)
    if power == 2:
        mean = train.astype(Long).mean(axis=0)
        left, right = (((one.astype(Long) - mean) ** 2).sum(axis=1) for one in (A, B))
        made = 8 * np.sqrt(Long(A.shape[1])) * U * np.add.outer(left, right)
        off = np.where(S > 0, np.maximum(off, np.minimum(made, _DIGITS * np.maximum(S, width**2))), off)
    a = S / width**power
    E = off / width**power + a * (power * off_width + 4 * U)
    K = np.exp(-a)
    return Entries(K, np.minimum(K * np.expm1(np.minimum(E, 100)) + 2 * U * K + Long(1e-300), 1))


def _distances(A: Array, B: Array, train: Array, power: int) -> tuple[Array, Array]:
    """Return Σ |a − b|^power over the columns, and how far it may be off."""
    S, off = np.zeros((len(A), len(B)), dtype=Long), np.zeros((len(A), len(B)), dtype=Long)
    for j in range(A.shape[1]):
        a, b, mean = A[:, j].astype(Long), B[:, j].astype(Long), train[:, j].astype(Long).mean()
        D = abs(np.subtract.outer(a, b))
        e = np.where(D > 0, U * (D + np.add.outer(abs(a - mean), abs(b - mean))), 0)
        S += D**power
        off += e if power == 1 else (2 * D + e) * e + U * D**2
    return S, off + _sum(A.shape[1]) * S


def _width(formula: Formula, train: Array) -> tuple[Any, Any]:
    """Return the width, its factor included, and how far it may be off, relative."""
    width, factor = formula.numbers["width"], Long(formula.numbers.get("factor", 1.0))
    if not isinstance(width, str):
        return Long(width) * factor, 2 * U
    rows = np.array(sorted({tuple(row) for row in train.tolist()}))
    if len(rows) < 2:
        return factor, 2 * U
    power = 2 if formula.kind == "gaussian" else 1
    S, off = _distances(rows, rows, train, power)
    D = np.sqrt(S) if power == 2 else S
    off = off / (2 * np.where(D > 0, D, 1)) if power == 2 else off
    if width == "median":
        apart = np.triu_indices(len(rows), 1)
        value, error = np.median(D[apart]), np.median(D[apart] + off[apart]) - np.median(D[apart])
    else:
        D = D + np.where(np.eye(len(rows)) > 0, Long(np.inf), Long(0))
        value, error = D.min(axis=1).mean(), (D + off).min(axis=1).mean() - D.min(axis=1).mean()
    return value * factor, error / value + _sum(len(rows))


def _combined(eta: Array, blocks: list[Entries]) -> Entries:
    K = sum(weight * block.K for weight, block in zip(eta, blocks, strict=True))
    size = sum(abs(weight * block.K) for weight, block in zip(eta, blocks, strict=True))
    E = sum(abs(weight) * block.E for weight, block in zip(eta, blocks, strict=True))
    return Entries(K, E + _sum(len(eta)) * size)


def _applied(block: Entries, beta: Array) -> Entries:
    """Return Kβ."""
    return Entries(block.K @ beta, block.E @ abs(beta) + _sum(len(beta)) * (abs(block.K) @ abs(beta)))


# Weights -------------------------------------------------------------------------------------------------------------


def _check_weights(problem: OffsetProblem, model: Any, data: _Training) -> str:
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
            if traces.any() and abs(total - 1) > 1e-9 * max(size, Long(1)):
                raise Contradiction(f"weights: the mean diagonal is {float(total):.12g}, not one")
            continue
        if np.any(eta < 0):
            raise Contradiction("weights: a weight is negative")
        if problem.name == "BilinearMKLClassifier":
            continue
        norm = _norm(p, _penalties(p, P) ** 2 * eta)
        if abs(norm - 1) > _SUMS:
            raise Contradiction(f"weights: their norm is 1 + {float(norm - 1):.3g}")
    return ""


def _penalties(p: dict[str, Any], P: int) -> Array:
    return np.asarray(p.get("penalties", np.ones(P)), dtype=Long)


def _norm(p: dict[str, Any], theta: Array) -> Any:
    norm = p.get("norm", 1)
    if norm == "elastic":
        ratio = Long(p["l1_ratio"])
        return ratio * theta.sum() + (1 - ratio) * np.sqrt(theta @ theta)
    return (theta ** Long(norm)).sum() ** (1 / Long(norm))


def _support(p: dict[str, Any], q: Array) -> Any:
    """Return the largest ⟨θ, q⟩ over θ ≥ 0 of norm at most one."""
    norm, top = p.get("norm", 1), q.max()
    if norm == 1 or not top > 0:
        return top
    if norm != "elastic":
        dual = Long(norm) / (Long(norm) - 1)
        return top * ((q / top) ** dual).sum() ** (1 / dual)
    # The dual of the sum of two norms: the least t with q ≤ ratio t + (1 − ratio) t u for some u of 2-norm one.
    ratio = Long(p["l1_ratio"])
    low, high = Long(0), top / ratio
    for _ in range(80):
        t = (low + high) / 2
        above = np.sqrt((np.maximum(q - ratio * t, 0) ** 2).sum()) > (1 - ratio) * t
        low, high = (t, high) if above else (low, t)
    return high


# Machines with one output --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Machine:
    """One machine as printed: minimise ½‖w‖² + Σ loss_i(f(x_i)) + b total, and its dual.

    Attributes
    ----------
    target, lower, upper, ridge : ndarray of shape (n,)
        The dual: maximise ⟨t, β⟩ − ε‖β‖₁ − ½ Σ ρ β² − ½ βᵀKβ with lower ≤ β ≤ upper and Σβ = total.
    loss : callable
        From outputs to the losses of the samples.
    factor : float
        2 where the problem is printed without the factor ½.
    """

    target: Array
    lower: Array
    upper: Array
    ridge: Array
    loss: Callable[[Array], Array]
    epsilon: float = 0.0
    total: float = 0.0
    factor: float = 1.0


def _machine_bounds(problem: OffsetProblem, model: Any, data: _Training) -> list[Bounds | None]:
    p, outputs = problem.parameters, len(data.beta)
    # Where the samples that count have two classes only, theirs is the machine of two classes.
    if problem.joint and (problem.name == "BilinearMKLClassifier" or len(model.classes_) > 2):
        return [(_bilinear if problem.name == "BilinearMKLClassifier" else _joint)(problem, model, data)]
    if np.isinf(p.get("C", 1.0)):
        return [_hard_margin(problem, model, data, c) for c in range(outputs)]
    machines = [_machine(problem, model, data, c) for c in range(outputs)]
    # One problem for all outputs where they share their weights; one for each else.
    shared = outputs > 1 and model.weights_.ndim == 1
    groups = [list(range(outputs))] if shared else [[c] for c in range(outputs)]
    return [_one_problem(problem, model, data, machines, group) for group in groups]


def _machine(problem: OffsetProblem, model: Any, data: _Training, c: int) -> _Machine:
    p, n, zero = problem.parameters, len(data), np.zeros(len(data), dtype=Long)
    two = p.get("slack", 1) == 2
    if problem.name == "MKLOneClass":
        C = data.weight / (Long(p["nu"]) * (1 if two else data.weight.sum()))
        bound = np.full(n, Long(np.inf)) if two else C
        loss = (lambda f: C * np.maximum(-f, 0) ** 2 / 2) if two else (lambda f: C * np.maximum(-f, 0))
        return _Machine(zero, zero, bound, 1 / C if two else zero, loss, total=1.0)
    C = Long(p["C"]) * data.weight
    if problem.name == "MKLRegressor":
        assert problem.y is not None
        return _regression(p, _columns(problem.y)[data.rows, c].astype(Long), C)
    if problem.name == "MKLSurvival":
        assert problem.y is not None
        event, time = problem.y[data.rows].T
        # The library takes the logarithm in double precision, too.
        return _tube(np.log(time).astype(Long), C, p["epsilon"], two, np.where(event > 0, 1, 0))
    if problem.name == "PosteriorMKLClassifier":
        soft = (model.posteriors_[data.rows, 1] - model.posteriors_[data.rows, 0]).astype(Long)
        soft = np.where(abs(soft) > 1e-8, soft, 0)
        C = np.where(soft != 0, C / np.where(soft != 0, abs(soft), 1), 0)
        return _hinge(soft, C, two=False)
    assert problem.y is not None
    positive = model.classes_[c if len(model.classes_) > 2 else 1]
    labels = problem.y[data.rows]
    if p.get("class_weight") == "balanced":
        totals = {one: data.weight[labels == one].sum() for one in model.classes_}
        C = C * np.array([data.weight.sum() / (len(totals) * totals[one]) for one in labels])
    return _hinge(np.where(labels == positive, Long(1), Long(-1)), C, two)


def _hinge(t: Array, C: Array, two: bool) -> _Machine:
    """C max(0, |t| − sign(t) f), or ½ C of its square."""
    reach = np.full(len(t), Long(np.inf)) if two else C

    def loss(f: Array) -> Array:
        xi = np.maximum(abs(t) - np.sign(t) * f, 0)
        return C * xi**2 / 2 if two else C * xi

    lower, upper = np.where(t < 0, -reach, 0), np.where(t > 0, reach, 0)
    return _Machine(t, lower, upper, 1 / C if two else 0 * C, loss, factor=2.0 if two else 1.0)


def _regression(p: dict[str, Any], y: Array, C: Array) -> _Machine:
    if p["loss"] == "squared":
        return _tube(y, C, 0.0, True, 1)
    if p["loss"] == "epsilon":
        return _tube(y, C, p["epsilon"], p["slack"] == 2, 1)
    delta = Long(p["epsilon"])

    def huber(f: Array) -> Array:
        r = abs(y - f)
        near = r**2 / (2 * delta) if delta > 0 else r
        return C * np.where(r <= delta, near, r - delta / 2)

    return _Machine(y, -C, C, delta / C, huber)


def _tube(y: Array, C: Array, epsilon: float, two: bool, above: Any) -> _Machine:
    """C max(0, |y − f| − ε), or ½ C of its square; outputs above y cost nothing where `above` is 0."""
    reach = np.full(len(y), Long(np.inf)) if two else C

    def loss(f: Array) -> Array:
        xi = np.maximum(np.maximum(y - f, above * (f - y)) - epsilon, 0)
        return C * xi**2 / 2 if two else C * xi

    lower = np.where(np.broadcast_to(above, y.shape) > 0, -reach, 0)
    return _Machine(y, lower, reach, 1 / C if two else 0 * C, loss, epsilon=epsilon, factor=2.0 if two else 1.0)


def _one_problem(
    problem: OffsetProblem, model: Any, data: _Training, machines: list[_Machine], group: list[int]
) -> Bounds:
    """Return both sides of the problem of some outputs that share their weights."""
    p, n = problem.parameters, len(data)
    eta = np.atleast_2d(model.weights_).astype(Long)[group[0] if model.weights_.ndim == 2 else 0]
    K, zero = _combined(eta, data.blocks), Long(0)
    quadratic, losses, linear, ridges, missed = zero, zero, zero, zero, zero
    off_quadratic, off_losses, off_linear = zero, zero, zero
    for c in group:
        machine, beta, b = machines[c], data.beta[c], Long(model.intercept_[c])
        missed += abs(b) * _check_feasible(machine, beta)
        f = _applied(K, beta)
        lost, off = _lost(machine.loss, f.K + b, f.E + 2 * U * (abs(f.K) + abs(b) + abs(machine.target)))
        losses += lost + b * machine.total
        off_losses += off + U * abs(b) * machine.total
        quadratic += beta @ f.K / 2
        off_quadratic += abs(beta) @ f.E / 2 + _sum(n) * (abs(beta) @ abs(f.K))
        linear += machine.target @ beta - machine.epsilon * abs(beta).sum()
        ridges += machine.ridge @ beta**2 / 2
        off_linear += _sum(n) * (abs(machine.target) @ abs(beta) + machine.epsilon * abs(beta).sum() + ridges)
    fixed = "weights" in p or p.get("solver") in ("alignment", "easymkl", "sdp")
    taken, off_taken = (quadratic, off_quadratic) if fixed else _taken(p, data, [data.beta[c] for c in group])
    # A multiple of the coefficients, up to themselves, is feasible as well unless they have a sum to meet.
    curved, share = taken + ridges, Long(1)
    if machines[group[0]].total == 0 and curved > 0:
        share = min(share, max(linear, zero) / (2 * curved))
    lower = share * linear - share**2 * curved - missed
    factor = Long(machines[group[0]].factor)
    upper, off_upper = quadratic + losses, off_quadratic + off_losses
    chosen = [machines[c] for c in group]

    def optimum() -> tuple[Any, Any] | None:
        found = _optimum(p, data, chosen, eta)
        return None if found is None else (factor * found[0], factor * found[1])

    off_lower = factor * (off_linear + off_taken)
    # That of a one-class machine is ½‖w‖² + Σ C ξ − ρ, which vanishes where the samples surround the origin.
    terms = quadratic + abs(losses) + sum(2 * abs(model.intercept_[c]) * machines[c].total for c in group)
    return Bounds(factor * upper, factor * lower, factor * off_upper, off_lower, fixed, factor * terms, optimum)


def _optimum(p: dict[str, Any], data: _Training, machines: list[_Machine], eta: Array) -> tuple[Any, Any] | None:
    """Return a lower and an upper bound on the optimum of machines that share their weights, by interior points."""
    n, tube = len(data), machines[0].epsilon > 0
    # Of a tube both sides count: β is the difference of two parts.
    parts = [(machine, sign) for machine in machines for sign in ((1, -1) if tube else (1,))]
    S = np.kron(np.eye(len(machines)), np.hstack([np.eye(n), -np.eye(n)] if tube else [np.eye(n)])).astype(Long)
    linear = np.concatenate([sign * machine.target - machine.epsilon for machine, sign in parts])
    high = np.concatenate([machine.upper if sign > 0 else -machine.lower for machine, sign in parts])
    low = np.zeros(len(high), dtype=Long) if tube else np.concatenate([machine.lower for machine in machines])
    free = high > low
    S = S[:, free]
    frame = Quadratic(
        linear[free],
        low[free],
        high[free],
        S.T @ np.diag(np.concatenate([machine.ridge for machine in machines])) @ S,
        [],
        np.kron(np.eye(len(machines)), np.ones(n)).astype(Long) @ S,
        np.array([machine.total for machine in machines], dtype=Long),
    )

    def bounds(z: Array, weights: Array, y: Array) -> tuple[Any, Any]:
        K = _combined(weights, data.blocks).K
        betas = (S @ z).reshape(len(machines), n)
        lower, upper = -_taken(p, data, list(betas))[0], Long(0)
        for machine, beta, b in zip(machines, betas, y, strict=True):
            f = K @ beta
            upper += beta @ f / 2 + machine.loss(f + b).sum() + b * machine.total
            lower += machine.target @ beta - machine.epsilon * abs(beta).sum() - machine.ridge @ beta**2 / 2
            lower -= abs(b) * abs(beta.sum() - machine.total)
        return lower, upper

    return _over_weights(p, data, frame, S, len(machines), eta, bounds)


def _over_weights(
    p: dict[str, Any],
    data: _Training,
    frame: Quadratic,
    S: Array,
    outputs: int,
    eta: Array,
    bounds: Callable[[Array, Array, Array], tuple[Any, Any]],
) -> tuple[Any, Any] | None:
    """Return the bounds at the best weights: in one go where they sum to one, else by turns with the coefficients.

    At weights θ the functions have norms g_m = θ_m √(2 q_m), for which θ_m ∝ g_m^(2/(1 + p)) is best.
    """
    d2, norm = _penalties(p, len(data.blocks)) ** 2, p.get("norm", 1)
    eye, size = np.eye(outputs, dtype=Long), max(abs(data.beta).max(), Long(1e-30))
    forms = [S.T @ np.kron(eye, block.K / one) @ S for block, one in zip(data.blocks, d2, strict=True)]
    if norm == 1:
        found = maximise(replace(frame, forms=forms), size)
        if found is None:
            return None
        theta = np.maximum(found[1], 0)
        return bounds(found[0], theta / theta.sum() / d2, found[2])
    theta, lower, upper = eta * d2, Long(-np.inf), Long(np.inf)
    for _ in range(_TURNS if norm != "elastic" else 1):
        combined = sum(t * form for t, form in zip(theta, forms, strict=True))
        found = maximise(replace(frame, forms=[combined]), size)
        if found is None:
            return None
        below, above = bounds(found[0], theta / d2, found[2])
        lower, upper = max(lower, below), min(upper, above)
        if upper - lower <= 1e-10 * max(abs(lower), abs(upper)) or norm == "elastic":
            break
        norms = np.array([t**2 * max(found[0] @ form @ found[0], 0) for t, form in zip(theta, forms, strict=True)])
        theta = norms ** (1 / (1 + Long(norm)))
        theta = theta / _norm(p, theta)
    return lower, upper


def _taken(p: dict[str, Any], data: _Training, betas: list[Array]) -> tuple[Any, Any]:
    """Return what the best weights take from the dual value, max ⟨θ, q⟩ with q_m = ½ Σ βᵀK_mβ / d_m², and its error."""
    d2, n = _penalties(p, len(data.blocks)) ** 2, len(data)
    q, off = np.zeros(len(d2), dtype=Long), np.zeros(len(d2), dtype=Long)
    for beta in betas:
        for m, block in enumerate(data.blocks):
            own = _applied(block, beta)
            q[m] += beta @ own.K / 2
            off[m] += abs(beta) @ own.E / 2 + _sum(n) * (abs(beta) @ abs(own.K))
    return _support(p, np.maximum(q, 0) / d2), _support(p, off / d2)


def _lost(loss: Callable[[Array], Array], f: Array, phi: Array) -> tuple[Any, Any]:
    """Return the sum of the losses, and by how much outputs that are off by φ move it."""
    here = loss(f)
    return here.sum(), (np.maximum(loss(f + phi), loss(f - phi)) - here).sum() + (_sum(len(f)) + 4 * U) * here.sum()


def _check_feasible(machine: _Machine, beta: Array) -> Any:
    """Raise unless the coefficients are within the box; return by how much they miss their sum."""
    room = 8 * U * np.maximum(abs(beta), 0)
    outside = np.maximum(beta - machine.upper, machine.lower - beta) - room
    if np.any(outside > 0):
        raise Contradiction(f"feasible: a coefficient is {float(outside.max()):.2g} beyond its bound")
    missing = abs(beta.sum() - machine.total)
    if missing > _SUMS * max(abs(beta).sum(), Long(machine.total)):
        raise Contradiction(f"feasible: the coefficients sum to {float(beta.sum()):.3g}, not to {machine.total:g}")
    return missing


def _hard_margin(problem: OffsetProblem, model: Any, data: _Training, c: int) -> Bounds:
    """min ½ (Σ d‖w‖)² subject to y f(x) ≥ 1: the function divided by its smallest margin meets the constraints."""
    p, n = problem.parameters, len(data)
    assert problem.y is not None
    positive = model.classes_[c if len(model.classes_) > 2 else 1]
    y = np.where(problem.y[data.rows] == positive, Long(1), Long(-1))
    eta, beta = np.atleast_2d(model.weights_).astype(Long)[c], data.beta[c]
    machine = _hinge(y, np.full(n, Long(np.inf)), two=False)
    missing = _check_feasible(machine, beta)
    f = _applied(_combined(eta, data.blocks), beta)
    quadratic = beta @ f.K / 2
    off_quadratic = abs(beta) @ f.E / 2 + _sum(n) * (abs(beta) @ abs(f.K))
    b = Long(model.intercept_[c])
    margins = y * (f.K + b)
    at = int(np.argmin(margins))
    margin, off = margins[at], f.E[at] + 4 * U * (abs(f.K[at]) + abs(b))
    if not margin > 0:
        raise Contradiction(f"margin: C=inf, but the smallest margin is {float(margin):.3g}")
    upper = quadratic / margin**2
    fixed = "weights" in p or p.get("solver") in ("alignment", "easymkl", "sdp")
    taken, off_taken = (quadratic, off_quadratic) if fixed else _taken(p, data, [beta])
    linear = y @ beta
    lower = linear - taken - abs(b) * missing
    if taken > 0:  # the best multiple of the coefficients
        lower = max(lower, linear**2 / (4 * taken) - abs(b) * missing)
    off_upper = off_quadratic / margin**2 + 2 * upper * off / margin
    return Bounds(upper, lower, off_upper, off_taken + _sum(n) * abs(beta).sum(), fixed=False)


# Machines with one output per class ----------------------------------------------------------------------------------


def _joint(problem: OffsetProblem, model: Any, data: _Training) -> Bounds:
    p, n = problem.parameters, len(data)
    everyone, k = np.arange(n), len(model.classes_)
    labels = _labels(problem, model)[data.rows]
    pairwise = problem.name == "PosteriorMKLClassifier" or p["multi_class"] == "pairwise"
    margins = np.full((n, k), Long(2 if pairwise else 1))
    if problem.name == "PosteriorMKLClassifier":
        posteriors = model.posteriors_[data.rows].astype(Long)
        margins = 2 * (posteriors[everyone, labels][:, np.newaxis] - posteriors)
    margins[everyone, labels] = 0
    C = Long(p["C"]) * data.weight
    if p.get("class_weight") == "balanced":
        totals = np.array([data.weight[labels == c].sum() for c in range(k)])
        C = C * (data.weight.sum() / (k * totals))[labels]
    tau = data.beta.T
    missing = _check_joint(tau, labels, C, pairwise)
    b = model.intercept_.astype(Long)
    K = _combined(model.weights_.astype(Long), data.blocks)
    quadratic, off_quadratic, f, phi = _all_classes([K] * k, tau, b)
    losses, off_losses = _behind(f, phi + 2 * U * abs(margins), margins, labels, C, pairwise)
    fixed = "weights" in p
    linear = -(margins * tau).sum()
    taken, off_taken = (quadratic, off_quadratic) if fixed else _taken(p, data, list(tau.T))
    share = min(Long(1), max(linear, 0) / (2 * taken)) if taken > 0 else Long(1)
    lower = share * linear - share**2 * taken - abs(b) @ missing
    off_lower = off_taken + _sum(n * k) * (abs(margins) * abs(tau)).sum()

    def optimum() -> tuple[Any, Any] | None:
        return _joint_optimum(p, data, margins, labels, C, pairwise, model.weights_.astype(Long))

    return Bounds(quadratic + losses, lower, off_quadratic + off_losses, off_lower, fixed, optimum=optimum)


def _joint_optimum(
    p: dict[str, Any], data: _Training, margins: Array, labels: Array, C: Array, pairwise: bool, eta: Array
) -> tuple[Any, Any] | None:
    """Return a lower and an upper bound on the optimum, by interior points in τ, class by class."""
    n, k = margins.shape
    own = labels[:, np.newaxis] == np.arange(k)
    low = np.where(own, Long(0), -C[:, np.newaxis]).T.ravel()
    high = np.where(own, (k if pairwise else 1) * C[:, np.newaxis], Long(0)).T.ravel()
    samples = np.hstack([np.eye(n)] * k)
    # The last class's sum follows from the others.
    classes = np.kron(np.eye(k), np.ones(n))[:-1]
    rows = np.vstack([samples, classes]).astype(Long)
    sums, S = np.zeros(len(rows), dtype=Long), np.eye(n * k, dtype=Long)
    frame = Quadratic(-margins.T.ravel(), low, high, np.zeros((n * k, n * k), dtype=Long), [], rows, sums)

    def bounds(z: Array, weights: Array, y: Array) -> tuple[Any, Any]:
        tau, b = z.reshape(k, n).T, np.append(y[n:], Long(0))
        K = _combined(weights, data.blocks)
        quadratic, _, f, phi = _all_classes([K] * k, tau, b)
        upper = quadratic + _behind(f, 0 * phi, margins, labels, C, pairwise)[0]
        lower = -(margins * tau).sum() - _taken(p, data, list(tau.T))[0] - abs(b) @ abs(tau.sum(axis=0))
        return lower - abs(f).max() * abs(tau.sum(axis=1)).sum(), upper

    return _over_weights(p, data, frame, S, k, eta, bounds)


def _all_classes(Ks: list[Entries], tau: Array, b: Array) -> tuple[Any, Any, Array, Array]:
    """Return ½ Σ_c τ_cᵀKτ_c and how far it may be off, the outputs of all classes and how far these may be."""
    each = [_applied(K, t) for K, t in zip(Ks, tau.T, strict=True)]
    quadratic = sum(t @ one.K / 2 for t, one in zip(tau.T, each, strict=True))
    off = sum(abs(t) @ one.E / 2 + _sum(len(t)) * (abs(t) @ abs(one.K)) for t, one in zip(tau.T, each, strict=True))
    f, phi = np.array([one.K for one in each]).T + b, np.array([one.E for one in each]).T
    return quadratic, off, f, phi + 2 * U * (abs(f) + abs(b))


def _behind(f: Array, phi: Array, margins: Array, labels: Array, C: Array, pairwise: bool) -> tuple[Any, Any]:
    """Return Σ C ξ with ξ the sum, or the largest, of max(0, margin + f_c − f_y), and how far it may be off."""
    everyone = np.arange(len(f))

    def losses(extra: Array) -> Array:
        xi = np.maximum(margins + f - f[everyone, labels][:, np.newaxis] + extra, 0)
        xi[everyone, labels] = 0
        return C * (xi.sum(axis=1) if pairwise else xi.max(axis=1))

    here = losses(np.zeros_like(f))
    beyond = losses(phi + phi[everyone, labels][:, np.newaxis])
    return here.sum(), (beyond - here).sum() + _sum(len(f)) * here.sum()


def _check_joint(tau: Array, labels: Array, C: Array, pairwise: bool) -> Array:
    """Raise unless the coefficients of every sample are feasible; return by how much those of each class miss zero."""
    everyone = np.arange(len(tau))
    own = tau[everyone, labels]
    others = tau.copy()
    others[everyone, labels] = 0
    room = 16 * U * np.maximum(abs(tau).max(axis=1), 0)
    if np.any(abs(tau.sum(axis=1)) > room * tau.shape[1]):
        raise Contradiction(f"feasible: a sample's coefficients sum to {float(abs(tau.sum(axis=1)).max()):.2g}")
    if np.any(others.max(axis=1) > room) or np.any(own < -room):
        raise Contradiction("feasible: a coefficient has the wrong sign")
    if np.any(-others.min(axis=1) > C + room) or (not pairwise and np.any(own > C + room)):
        raise Contradiction("feasible: a coefficient is beyond its bound")
    missing = abs(tau.sum(axis=0))
    if np.any(missing > _SUMS * abs(tau).sum(axis=0)):
        raise Contradiction(f"feasible: the coefficients of a class sum to {float(missing.max()):.3g}, not to zero")
    return missing


def _bilinear(problem: OffsetProblem, model: Any, data: _Training) -> Bounds:
    """½ Σ_c (‖w_c‖² + Σ_r d_cr) + κ Σ ξ; its dual is max Σ_i τ_iy with τ_cᵀK_rτ_c ≤ 1, τ_i ≤ κ e_y and Σ_c τ_ic = 0."""
    n, k = len(data), len(model.classes_)
    everyone, labels = np.arange(n), _labels(problem, model)[data.rows]
    C = Long(problem.parameters["kappa"]) * data.weight
    d = model.weights_.astype(Long)
    Ks = [_combined(own, data.blocks) for own in d]
    margins = np.ones((n, k), dtype=Long)
    margins[everyone, labels] = 0
    b = np.zeros(k, dtype=Long)
    quadratic, off, f, phi = _all_classes(Ks, data.beta.T, b)
    losses, off_losses = _behind(f, phi, margins, labels, C, pairwise=False)
    upper = quadratic + d.sum() / 2 + losses
    return Bounds(upper, _bilinear_dual(data, labels, C), off + off_losses + _sum(d.size) * d.sum(), U * upper)


def _bilinear_dual(data: _Training, labels: Array, C: Array) -> Any:
    """Return the bound of the coefficients, each class's multiplied with the number that has a sample's sum to zero.

    The model shows the coefficients of a class divided by a number of its own, which leaves its outputs as they are.
    """
    tau, everyone = data.beta.T, np.arange(len(data))
    used = np.flatnonzero(np.any(tau != 0, axis=0))
    if len(used) < 2:
        return Long(0)
    size = np.sqrt((tau[:, used] ** 2).sum(axis=0))
    V = tau[:, used] / size
    factors = _null_vector(V.T @ V) / size
    if not (np.all(factors > 0) or np.all(factors < 0)):
        return Long(0)
    scaled = np.zeros_like(tau)
    scaled[:, used] = tau[:, used] * abs(factors)
    # What is left of the sums is taken from the sample's own class.
    scaled[everyone, labels] -= scaled.sum(axis=1)
    others = scaled.copy()
    others[everyone, labels] = 0
    if others.max(initial=0) > 1e-12 * abs(scaled).max():
        return Long(0)
    forms = max((t @ block.K @ t for t in scaled.T for block in data.blocks), default=Long(0))
    own = scaled[everyone, labels]
    largest = max((own / C).max(), np.sqrt(max(forms, Long(0))))
    return own.sum() / largest if largest > 0 else Long(0)


def _null_vector(M: Array) -> Array:
    """Return the eigenvector of the smallest eigenvalue of a positive semi-definite matrix by inverse iteration."""
    v = np.ones(len(M), dtype=Long)
    shifted = M + 1e-17 * np.trace(M) * np.eye(len(M), dtype=Long)
    for _ in range(20):
        v = solved(shifted, v[:, np.newaxis])[:, 0]
        v = v / np.sqrt(v @ v)
    return v


# Discriminant analysis -----------------------------------------------------------------------------------------------


def _discriminant(problem: OffsetProblem, model: Any, data: _Training) -> Bounds | None:
    """Return both sides of Σ_j h_jᵀ(λI + Σ θ_i G̃_i)⁻¹h_j, which the weights alone determine."""
    p, n = problem.parameters, len(data)
    assert problem.y is not None
    labels = np.searchsorted(model.classes_, problem.y)
    counts = np.bincount(labels).astype(Long)
    H = _targets(labels, counts)
    theta, learned, lam = model.weights_.astype(Long), p["alpha"] == "learn", Long(model.alpha_)
    if np.any(theta < 0):
        raise Contradiction("weights: a weight is negative")
    kim = p["formulation"] == "kim" and "weights" not in p
    lam = n * lam if kim else lam
    centring = np.eye(n, dtype=Long) - Long(1) / n
    Gs = [centring @ block.K @ centring for block in data.blocks]
    traces = np.array([np.trace(G) for G in Gs])
    sizes = np.array([np.trace(block.K) for block in data.blocks])
    nearly = (traces > _CONSTANT / 4 * sizes) & (traces < 4 * _CONSTANT * sizes)
    real = traces > _CONSTANT * sizes
    if nearly.any():
        return None
    _check_shares(p, data, theta, traces, real, n * lam if learned else Long(0), kim)
    if p["decision"] == "least_squares":
        _check_least_squares(model, data, counts)
    G = sum(t * one for t, one in zip(theta, Gs, strict=True))
    beta = solved(lam * np.eye(n, dtype=Long) + G, H)
    value = (H * beta).sum()
    K = _combined(theta, data.blocks)
    off = Long(0)
    for column in beta.T:
        phi = _applied(K, column).E + 4 * U * (lam * abs(column) + abs(G @ column))
        off += 2 * abs(column) @ phi + phi @ phi / lam
    forms = np.array([sum(c @ one @ c for c in beta.T) for one in Gs])
    ratios = np.where(real, forms / np.where(real, np.ones_like(traces) if kim else traces, 1), 0)
    most = max(ratios.max(), (beta**2).sum() / n) if learned else lam * (beta**2).sum() + ratios.max()
    lower = value if "weights" in p else value**2 / most
    scale = Long(1) if learned else lam
    if p["formulation"] == "sdp_approximate" and "weights" not in p:
        # Its optimum is that of one matrix inequality for all classes, which lies above.
        if not model.objective_ >= scale * (value - off):
            raise Contradiction(f"objective: objective_={model.objective_:.9g} is below {float(scale * value):.9g}")
        return None
    if kim:
        m, c = Long(n), counts.prod() / counts.sum()
        within = lambda F: m * (1 / (c * F) - 1) / c  # noqa: E731
        slope = m / (c * scale * value) ** 2
        reached, bound = within(scale * value), within(scale * lower)
        return _maximised(reached, bound, slope * scale * off)

    def optimum() -> tuple[Any, Any] | None:
        found = _fractional_optimum([G / r for G, r in zip(Gs, traces, strict=True) if r > 0], H, lam, learned)
        return None if found is None else (scale * found[0], scale * found[1])

    return Bounds(scale * value, scale * lower, scale * off, scale * off, "weights" in p, optimum=optimum)


def _fractional_optimum(Ns: list[Array], H: Array, lam: Any, learned: bool) -> tuple[Any, Any] | None:
    """Return bounds on the least Σ_j h_jᵀ(λI + Σ s_i N_i)⁻¹h_j over s ≥ 0, Σ s_i = 1, by interior points."""
    n, k = H.shape
    matrices = [np.eye(n, dtype=Long) / n, *Ns] if learned else Ns
    ridge = Long(0) if learned else lam
    eye, N = np.eye(k, dtype=Long), n * k
    rows = np.kron(np.eye(k), np.ones(n)).astype(Long)
    found = maximise(
        Quadratic(
            2 * H.T.ravel(),
            np.full(N, Long(-np.inf)),
            np.full(N, Long(np.inf)),
            2 * ridge * np.eye(N, dtype=Long),
            [2 * np.kron(eye, one) for one in matrices],
            rows,
            np.zeros(k, dtype=Long),
        ),
        abs(H).max() / lam,
    )
    if found is None:
        return None
    shares = np.maximum(found[1], 0) / np.maximum(found[1], 0).sum()
    beta = found[0].reshape(k, n).T
    beta = beta - beta.mean(axis=0)
    most = max(sum(c @ one @ c for c in beta.T) for one in matrices) + ridge * (beta**2).sum()
    M = sum(share * one for share, one in zip(shares, matrices, strict=True)) + ridge * np.eye(n, dtype=Long)
    value = (H * solved(M + np.ones((n, n), dtype=Long) * np.trace(M) / n**2, H)).sum()
    return (H * beta).sum() ** 2 / most, value


def _maximised(value: Any, bound: Any, off: Any) -> Bounds:
    """Return the bounds of a problem that is maximised: the model has the value, nothing exceeds the bound."""
    return Bounds(value, value - max(bound - value, 0), off, off)


def _check_least_squares(model: Any, data: _Training, counts: Array) -> None:
    """The fit of the class indicators, or of ±1, has a constant: its mean is theirs."""
    n = len(data)
    wanted = counts / n if len(counts) > 2 else np.array([(counts[1] - counts[0]) / n])
    K = _combined(model.weights_.astype(Long), data.blocks)
    for c, (beta, b) in enumerate(zip(data.beta, model.intercept_.astype(Long), strict=True)):
        f = _applied(K, beta)
        off = 8 * f.E.mean() + _sum(n) * (abs(f.K).mean() + abs(b))
        if not abs(f.K.mean() + b - wanted[c]) <= off:
            raise Contradiction(
                f"rule: the outputs of class {c} have the mean {float(f.K.mean() + b):.9g}, the indicators "
                f"{float(wanted[c]):.9g}, rounding {float(off):.2g}"
            )


def _targets(labels: Array, counts: Array) -> Array:
    """Return a, with 1/m₊ and −1/m₋, or H with √(n/n_i) − √(n_i/n) in class i and −√(n_i/n) elsewhere."""
    n = Long(len(labels))
    if len(counts) == 2:
        return np.where(labels == 1, 1 / counts[1], -1 / counts[0])[:, np.newaxis]
    member = labels[:, np.newaxis] == np.arange(len(counts))
    return np.sqrt(n / counts) * member - np.sqrt(counts / n)


def _check_shares(
    p: dict[str, Any], data: _Training, theta: Array, traces: Array, real: Array, identity: Any, kim: bool
) -> None:
    """Hold the weights to Σ θ_i r_i = 1, or with Kim et al. Σ θ_i = 1, unless they are given."""
    given = p.get("weights")
    if isinstance(given, list):
        if not np.array_equal(theta, np.asarray(given)):
            raise Contradiction("weights: given weights were changed")
        return
    total = (theta[real].sum() if kim else theta @ np.where(real, traces, 0)) + identity
    off = sum(
        t * np.trace(block.E + _sum(len(data)) * abs(block.K)) for t, block in zip(theta, data.blocks, strict=True)
    )
    if abs(total - 1) > _SUMS + 4 * off:
        raise Contradiction(f"weights: the traces sum to 1 + {float(total - 1):.3g}")
