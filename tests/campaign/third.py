"""Quantiles, hazards, ranks and ridge on columns, pairs and graphs: problems drawn at random, and
their judge.

Matrices are those of the kernels' formulas. Of margins the objective is computed from the returned
coefficients and weights, and no point found by descent, or by a conic solver, may be below the
bound that the gap states. Of ridge the coefficients must solve their linear system, and what is
said of every sample left out must be what a machine of the others says.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.optimize import minimize
from tests.campaign import problems
from tests.campaign.certificates import Dishonest, _optimum
from tests.reference import naive_kernels as naive

import kernelmosaic as km
from kernelmosaic.kernels import Precomputed, ShortestPath, WeisfeilerLehman, pairwise

Array = np.ndarray

#: What is learned, and how often each is drawn.
_MACHINES = {
    "quantile": 3,
    "quantiles": 2,
    "cox": 3,
    "rank": 3,
    "ridge": 4,
    "classes": 3,
    "targets": 2,
}
_NAMES = {"ridge": "MKLRidgeCV", "classes": "MKLRidgeClassifierCV", "targets": "MKLRidgeCV"}
_NAMES |= {
    "quantile": "MKLRegressor",
    "quantiles": "MKLRegressor",
    "cox": "MKLSurvival",
    "rank": "MKLSurvival",
}
_RIDGE = ("ridge", "classes", "targets")


@dataclass(frozen=True)
class ThirdProblem:
    """One fit: `estimator.fit(X, y, sample_weight)`; `new` are samples to predict.

    Attributes
    ----------
    machine : str
        What is learned.
    Ks, new_Ks : ndarray of shape (P, n, n) and (P, n_new, n)
        The kernels by their formulas, as normalised.
    noise : float
        How far, relative to √(k(x, x) k(z, z)), rounding may move an entry.
    """

    machine: str
    parameters: dict[str, Any]
    kernels: list[Any]
    X: Any
    y: Array
    sample_weight: Array | None
    new: Any
    Ks: Array
    new_Ks: Array
    noise: float
    moderate: bool = True
    joint: bool = False

    @property
    def weight(self) -> Array:
        return np.ones(len(self.y)) if self.sample_weight is None else self.sample_weight

    def estimator(self) -> Any:
        return getattr(km, _NAMES[self.machine])(self.kernels, **self.parameters)

    def fit(self, estimator: Any) -> Any:
        options = {} if self.sample_weight is None else {"sample_weight": self.sample_weight}
        return estimator.fit(self.X, self.y, **options)

    def __str__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.parameters.items())
        weighted = "" if self.sample_weight is None else ", weighted"
        return (
            f"{self.machine}: {_NAMES[self.machine]}({given}) on {len(self.y)} samples{weighted},"
            f" {self.kernels!r}"
        )


# Drawing ------------------------------------------------------------------------------------------


def draw(seed: int, index: int) -> ThirdProblem:
    """Return problem number `index` of a seed."""
    rng = np.random.default_rng([seed, index, 3])
    machine, data = (
        problems._pick(rng, _MACHINES),
        problems._pick(rng, {"columns": 4, "pairs": 4, "graphs": 2}),
    )
    n = int(rng.integers(*problems._pick(rng, {(4, 12): 2, (12, 50): 4})))
    far = 0.0
    if machine in _RIDGE and data == "columns":
        # Drawn apart, so that problems drawn before this was stay what they were.
        apart = np.random.default_rng([seed, index, 5])
        far = 10.0 ** float(apart.uniform(1, 7)) if apart.random() < 0.25 else 0.0
    X, kernels, score, matrices, noise = _DATA[data](rng, n + 3, *([far] if far else []))
    n = len(score) - 3
    rows, new = np.arange(n), np.arange(n, n + 3)
    y = _targets(rng, machine, score[:n])
    weight = None
    if machine not in ("cox", "rank") and rng.random() < 0.25:
        weight = np.where(rng.random(n) < 0.15, 0.0, 10.0 ** rng.uniform(-1, 1, n))
        weight[np.unique(y, axis=0, return_index=True)[1][:2]] = 1.0
    parameters = _parameters(
        rng, machine, len(matrices), "×" in str(kernels[0][0]) if data == "pairs" else False
    )
    if far:
        parameters["normalize"] = None
    # Drawn apart, so that problems drawn before this was stay what they were.
    apart = np.random.default_rng([seed, index, 4])
    wide = machine not in _RIDGE and apart.random() < 0.2
    if wide:
        parameters["C"] = problems._size(apart)
    if data == "pairs" and machine in ("quantile", "quantiles") and apart.random() < 0.4:
        parameters["memory_budget"] = (
            0.5 * 8 * n**2
        )  # products of the members' matrices, where these are small
    share = np.ones(n) / n if weight is None else weight / weight.sum()
    both = [_normalised(K, rows, share, parameters["normalize"]) for K in matrices]
    take = (lambda some: [X[i] for i in some]) if data == "graphs" else (lambda some: X[some])
    Ks, new_Ks = (np.array([K[np.ix_(some, rows)] for K in both]) for some in (rows, new))
    return ThirdProblem(
        machine, parameters, kernels, take(rows), y, weight, take(new), Ks, new_Ks, noise, not wide
    )


def _columns(rng: np.random.Generator, n: int, far: float = 0.0) -> tuple[Any, ...]:
    X = problems._samples(rng, n)
    score = X @ rng.normal(size=X.shape[1])
    X = X + far
    drawn, X = problems._kernels(rng, X, only_radial=False)
    matrices = [one.formula(X[:, one.columns], X[:, one.columns]) for one in drawn]
    return X, [one.entry for one in drawn], score, matrices, max(one.noise for one in drawn)


def _pairs(rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    mode = problems._pick(
        rng, {"product": 4, "sum": 1, "cartesian": 1, "symmetric": 1, "antisymmetric": 1}
    )
    one_kind = mode in ("symmetric", "antisymmetric")
    sizes = [int(one) for one in rng.integers(3, 10, size=2)]
    sizes[1] = sizes[0] if one_kind else sizes[1]
    table = np.argwhere(np.ones(sizes))
    table = rng.permutation(table)[: n if rng.random() < 0.7 else len(table)]
    sides, made = [], []
    for size in sizes:
        count, F = int(rng.integers(1, 4)), rng.normal(size=(size, 2))
        sides.append([problems._matrix(rng, size) / 1.0 for _ in range(count - 1)] + [F @ F.T])
        made.append(F)
    if one_kind:
        sides[1], made[1] = sides[0], made[0]
    (i, j), (a, b) = table.T, made
    entries = [
        [(f"{k}", Precomputed(K), [side]) for k, K in enumerate(own)]
        for side, own in enumerate(sides)
    ]
    kernels = pairwise(*entries, mode=mode)
    score = np.sum(a[i] * b[j], axis=1)
    same = [code[:, None] == code for code in (i, j)]
    at = lambda K, u, v: K[np.ix_(u, v)]  # noqa: E731
    if one_kind:
        sign = 1.0 if mode == "symmetric" else -1.0
        found = []
        for K in sides[0]:
            term, turned = at(K, i, i) * at(K, j, j), at(K, i, j) * at(K, j, i)
            half = 0.5 * (term + sign * turned)
            # Of matrices of rank one nothing but rounding is left.
            found.append(np.where(np.abs(half) <= 1e-14 * np.abs(term), 0.0, half))
    else:
        rules = {
            "product": lambda K, G: at(K, i, i) * at(G, j, j),
            "sum": lambda K, G: at(K, i, i) + at(G, j, j),
            "cartesian": lambda K, G: at(K, i, i) * same[1] + same[0] * at(G, j, j),
        }
        found = [rules[mode](K, G) for K in sides[0] for G in sides[1]]
    return table.astype(float), kernels, score, found, 1e-13


def _graphs(rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    n = min(n, 25)
    X = []
    for size in rng.integers(2, 9, size=n):
        edges = rng.integers(0, size, size=(int(rng.integers(1, 2 * size)), 2))
        X.append((edges, rng.choice(["C", "N", "O"], size).tolist()))
    iterations, mode = int(rng.integers(0, 3)), str(rng.choice(["subtree", "assignment"]))
    kernels = [WeisfeilerLehman(iterations, mode)] + (
        [ShortestPath()] if rng.random() < 0.5 else []
    )
    # The estimators weigh every iteration.
    parts = [
        lambda x, z, h=h: naive.weisfeiler_lehman(x, z, [h], mode) for h in range(iterations + 1)
    ]
    parts += [naive.shortest_path] * (len(kernels) - 1)
    score = np.array([len(edges) - 0.5 * labels.count("C") for edges, labels in X], dtype=float)
    return X, kernels, score, [np.array(naive.block(one, X, X)) for one in parts], 1e-13


_DATA = {"columns": _columns, "pairs": _pairs, "graphs": _graphs}


def _targets(rng: np.random.Generator, machine: str, score: Array) -> Array:
    n = len(score)
    y = score + rng.choice([0.1, 1.0]) * rng.normal(size=n)
    if machine in ("cox", "rank"):
        unit = max(float(np.std(y)), 1e-300)
        time = np.exp(y / unit + 0.3 * rng.normal(size=n))
        time = np.ceil(4 * time) if rng.random() < 0.4 else time  # with ties
        event = rng.random(n) < rng.choice([0.3, 0.7, 1.0])
        event[int(rng.integers(n))] = True
        return np.column_stack([event, time]).astype(float)
    if machine == "classes":
        classes = int(min(rng.integers(2, 5), n // 2))
        return np.argsort(np.argsort(y)) * classes // n
    if machine == "targets":
        return np.column_stack([y, score**2 + rng.normal(size=n), rng.normal(size=n)])[
            :, : int(rng.integers(2, 4))
        ]
    return y


def _parameters(rng: np.random.Generator, machine: str, P: int, products: bool) -> dict[str, Any]:
    p: dict[str, Any] = {"normalize": problems._pick(rng, {"trace": 4, "diagonal": 1, None: 2})}
    given = problems._pick(rng, {None: 6, "uniform": 1, "given": 1})
    if machine in _RIDGE:
        p |= {"scale": False, "random_state": 0}
        given = "factorized" if products and machine != "targets" and rng.random() < 0.4 else given
        if machine == "targets":
            p |= {"per_target": True, "n_candidates": 40}
        if rng.random() < 0.3:
            p["criterion"] = "evidence"
        if rng.random() < 0.2:
            p["alpha"] = 10.0 ** float(rng.uniform(-3, 2))
    else:
        p |= {"C": 10.0 ** float(rng.uniform(-2, 2)), "norm": problems._pick(rng, {1: 3, 2: 1})}
        if rng.random() < 0.2:
            p["penalties"] = np.round(10.0 ** rng.uniform(-0.5, 0.5, P), 6).tolist()
            given = None
        levels = sorted(np.round(rng.uniform(0.05, 0.95, 3), 3).tolist())
        losses = {"quantile": {"loss": "quantile", "quantile": levels[1]}, "cox": {"loss": "cox"}}
        losses |= {"quantiles": {"loss": "quantile", "quantile": levels}, "rank": {"loss": "rank"}}
        p |= losses[machine]
    if given is not None:
        p["weights"] = (
            np.round(10.0 ** rng.uniform(-1, 1, P), 6).tolist() if given == "given" else given
        )
    return p


def _normalised(K: Array, rows: Array, share: Array, rule: str | None) -> Array:
    diagonal = np.diag(K)
    if rule == "trace":
        mean = share @ diagonal[rows]
        return K / mean if mean > 0 else K
    if rule == "diagonal":
        norms = np.where(diagonal > 0, np.sqrt(np.maximum(diagonal, 0.0)), 1.0)
        return K / np.outer(norms, norms)
    return K


# Judging ------------------------------------------------------------------------------------------


def check_fit(problem: ThirdProblem, model: Any) -> str:
    """Raise `Dishonest` unless everything the fitted model states holds; return how the gap was
    shown."""
    for name in ("weights_", "dual_coef_", "intercept_"):
        if not np.all(np.isfinite(getattr(model, name))):
            raise Dishonest(f"{name} is not finite")
    beta = np.zeros((len(model.dual_coef_), len(problem.y)))
    beta[:, model.support_ if hasattr(model, "support_") else slice(None)] = model.dual_coef_
    eta = np.broadcast_to(model.weights_, (len(beta), len(problem.Ks)))
    new = np.stack(
        [np.tensordot(e, problem.new_Ks, 1) @ one for e, one in zip(eta, beta, strict=True)], axis=1
    )
    _check_outputs(problem, model, eta, beta, new + model.intercept_)
    return (_check_ridge if problem.machine in _RIDGE else _check_margin)(problem, model, eta, beta)


def _check_outputs(
    problem: ThirdProblem, model: Any, eta: Array, beta: Array, outputs: Array
) -> None:
    """Hold predictions of new samples to the expansion."""
    decide = model.decision_function if hasattr(model, "decision_function") else model.predict
    found = np.asarray(decide(problem.new)).reshape(len(outputs), -1)
    wanted = np.sort(outputs, axis=1) if problem.machine == "quantiles" else outputs
    K = np.sqrt(
        np.abs(np.array([np.tensordot(e, problem.Ks, 1).diagonal() for e in eta]).max(axis=0))
    )
    largest = max(
        float(K.max(initial=0.0)), float(np.sqrt(np.abs(problem.new_Ks).max(initial=0.0)))
    )
    size = float(np.abs(beta).sum(axis=1).max()) * largest**2 + float(np.abs(outputs).max())
    allowed = (1e-9 + 100.0 * problem.noise) * size + 1e-300
    if found.shape == wanted.shape and not np.all(np.abs(found - wanted) <= allowed):
        raise Dishonest(
            f"outputs are off the expansion by {np.abs(found - wanted).max():.2g}, {allowed:.2g}"
            " allowed"
        )


# Margins


def _check_margin(problem: ThirdProblem, model: Any, eta: Array, beta: Array) -> str:
    p, weights = problem.parameters, eta[0]
    d = np.asarray(p.get("penalties", np.ones(len(weights))))
    if "weights" not in p and abs(np.linalg.norm(d**2 * weights, ord=p["norm"]) - 1.0) > 1e-9:
        raise Dishonest(f"weights {weights} are off their norm")
    K = np.tensordot(weights, problem.Ks, 1)
    F = (K @ beta.T).T
    losses = _losses(problem)
    parts = [
        0.5 * b @ f + loss(f + c)[0]
        for b, f, c, loss in zip(beta, F, model.intercept_, losses, strict=True)
    ]
    upper, stated = float(sum(parts)), float(model.duality_gap_)
    reach = float(np.sum(np.abs(beta) @ np.sqrt(np.maximum(K.diagonal(), 0.0))) ** 2)
    slack = p["C"] * float(problem.weight.sum()) * float(np.abs(F).max(initial=0.0))
    rounding = (1e-11 + 100.0 * problem.noise) * (reach + slack + abs(upper))
    if not stated >= 0 or np.isnan(model.objective_):
        raise Dishonest(f"duality_gap_={stated}, objective_={model.objective_}")
    if stated <= 1 and abs(model.objective_ - upper) > 1e-8 * abs(upper) + rounding:
        raise Dishonest(
            f"objective_={model.objective_:.9g}, recomputed {upper:.9g} (rounding {rounding:.1g})"
        )
    # An end above the tolerance is excused where rounding is as large.
    if stated > model.tol and rounding > model.tol * abs(upper):
        return "rounding"
    if not stated < 1:
        return "unknown"
    if problem.machine in ("quantile", "quantiles"):
        if len(beta) == 1 and upper - _proved(
            problem, weights, beta[0], d
        ) <= stated * upper + 1e-8 * abs(upper):
            return "gap"
        return _check_conic(problem, weights, upper, stated, rounding)
    best = _descended(problem, weights, losses[0], d)
    if best < upper * (1.0 - stated) - 1e-7 * abs(upper) - rounding:
        raise Dishonest(f"duality_gap_={stated:.3g} of {upper:.9g}, but descent finds {best:.9g}")
    return "gap"


def _proved(problem: ThirdProblem, weights: Array, beta: Array, d: Array) -> float:
    """Return the lower bound of the optimum by the coefficients of one quantile, in long double; −∞
    if none."""
    p, C = problem.parameters, problem.parameters["C"] * problem.weight
    if np.any(beta < (p["quantile"] - 1.0) * C) or np.any(beta > p["quantile"] * C):
        return -np.inf
    exact, Ks = beta.astype(np.longdouble), problem.Ks.astype(np.longdouble)
    if abs(float(exact.sum())) > 1e-15 * float(np.abs(beta).sum()):
        return -np.inf
    q = np.maximum(0.5 * np.array([float(exact @ K @ exact) for K in Ks]), 0.0)
    linear = float(exact @ problem.y)
    if "weights" in p:
        return linear - float(weights @ q)
    norm = p.get("norm", 1)
    return linear - float(
        np.linalg.norm(q / d**2, ord=np.inf if norm == 1 else norm / (norm - 1.0))
    )


def _losses(problem: ThirdProblem) -> list[Any]:
    """Return, for every output, the loss of outputs and its slopes."""
    p, y, C = problem.parameters, problem.y, problem.parameters["C"] * problem.weight
    if problem.machine in ("cox", "rank"):
        one = _cox if problem.machine == "cox" else _ranks
        return [lambda f: tuple(p["C"] * part for part in one(f, y))]

    def pinball(f: Array, q: float) -> tuple[float, None]:
        r = y - f
        return float(C @ np.maximum(q * r, (q - 1.0) * r)), None

    return [lambda f, q=q: pinball(f, q) for q in np.atleast_1d(p["quantile"])]


def _cox(f: Array, y: Array) -> tuple[float, Array]:
    """Minus the logarithm of the partial likelihood by Efron's terms, and its slopes."""
    event, time = y[:, 0] > 0, y[:, 1]
    value, slopes = 0.0, np.zeros(len(f))
    for t in np.unique(time[event]):
        now, later = event & (time == t), time >= t
        d, level = int(now.sum()), float(f[later].min())
        risk = np.exp(level - np.where(later, f, np.inf))
        value += float(f[now].sum())
        slopes[now] += 1.0
        for k in range(d):
            share = later - k / d * now
            total = float(share @ risk)
            value += np.log(total) - level
            slopes -= share * risk / total
    return value, slopes


def _ranks(f: Array, y: Array) -> tuple[float, Array]:
    """Squared hinges of the pairs in which one outlives the event of the other, over n, and their
    slopes."""
    event, time = y[:, 0] > 0, y[:, 1]
    outlives = (time > time[:, None]) | ((time == time[:, None]) & ~event)
    behind = np.maximum(1.0 - (f - f[:, None]), 0.0) * (outlives & event[:, None])
    slopes = 2.0 * (behind.sum(axis=1) - behind.sum(axis=0)) / len(f)
    return float(np.sum(behind**2)) / len(f), slopes


def _descended(problem: ThirdProblem, weights: Array, loss: Any, d: Array) -> float:
    """Return the smallest objective found: that of machines at weights which are improved by
    turns."""
    p, fixed = problem.parameters, "weights" in problem.parameters
    best, norm = np.inf, p.get("norm", 1)
    if not fixed:  # kernels left out may come back
        theta = 0.9 * d**2 * weights + 0.1 / len(weights)
        weights = theta / np.linalg.norm(theta, ord=norm) / d**2
    for _ in range(1 if fixed else 5):
        values, vectors = np.linalg.eigh(np.tensordot(weights, problem.Ks, 1))
        kept = values > 1e-12 * max(values[-1], 1e-300)
        if not kept.any():
            return min(best, loss(np.zeros(len(problem.y)))[0])
        L = vectors[:, kept] * np.sqrt(values[kept])

        def objective(v: Array, L: Array = L) -> tuple[float, Array]:
            value, slopes = loss(L @ v)
            return 0.5 * float(v @ v) + value, v + L.T @ slopes

        found = minimize(
            objective, np.zeros(L.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 200}
        )
        best = min(best, float(found.fun))
        beta = -loss(L @ found.x)[1]
        sizes = (
            d * weights * np.sqrt(np.maximum(np.einsum("i,mij,j->m", beta, problem.Ks, beta), 0.0))
        )
        if fixed or not sizes.any():
            break
        theta = sizes ** (2.0 / (norm + 1.0))
        weights = theta / np.linalg.norm(theta, ord=norm) / d**2
    return best


def _check_conic(
    problem: ThirdProblem, weights: Array, upper: float, stated: float, rounding: float
) -> str:
    """Hold the bound of quantiles to conic solvers; of several ones at learned weights it is that
    of each alone."""
    p, C = problem.parameters, problem.parameters["C"] * problem.weight
    there = C > 0
    Ks, C, y = problem.Ks[:, there][:, :, there], C[there], problem.y[there]
    d = np.asarray(p.get("penalties", np.ones(len(weights))))
    Ks = np.tensordot(weights, Ks, 1)[np.newaxis] if "weights" in p else Ks / (d**2)[:, None, None]
    levels, zero = np.atleast_1d(p["quantile"]), np.zeros(len(y))
    optimum = 0.0
    try:
        for q in levels:
            parts = {
                "target": y,
                "epsilon": 0.0,
                "lower": (q - 1.0) * C,
                "upper": q * C,
                "ridge": zero,
                "total": 0.0,
            }
            optimum += _optimum(p, Ks, SimpleNamespace(**parts))
    except Exception:  # whatever ends a conic solver on a badly conditioned problem
        return "unknown"
    off = 1e-3 * max(abs(upper), abs(optimum)) + rounding
    if optimum > upper + off:
        return "unknown"  # the conic solver is off
    # Each alone has weights of its own, and their sum is no more than the optimum of shared ones.
    if (len(levels) == 1 or "weights" in p) and upper - optimum > stated * upper + off + 1e-8:
        raise Dishonest(
            f"duality_gap_={stated:.3g}, but {upper:.9g} is above the optimum {optimum:.9g}"
        )
    return "conic"


# Ridge


def _check_ridge(problem: ThirdProblem, model: Any, eta: Array, beta: Array) -> str:
    rows = np.flatnonzero(problem.weight > 0)
    weight = problem.weight[rows]
    Y = _columns_of(problem, model)[rows]
    alphas = np.broadcast_to(model.alpha_, len(beta))
    left_out, shift, lost = np.empty((len(rows), len(beta))), np.zeros(len(beta)), False
    for t, alpha in enumerate(alphas):
        K = np.tensordot(eta[t], problem.Ks[:, rows][:, :, rows], 1)
        A = _bordered(K, alpha / weight)
        digits = np.linalg.cond(A) * (1e-15 + problem.noise)
        if digits > 1e-6:  # rounding of the kernels moves the solution
            lost = True
            continue
        wanted = np.linalg.solve(A, np.append(Y[:, t], 0.0))
        # The constants of classes are those of calibrated probabilities.
        shift[t] = model.intercept_[t] - wanted[-1] if problem.machine == "classes" else 0.0
        off = np.abs(wanted - np.append(beta[t, rows], model.intercept_[t] - shift[t]))
        size = float(np.abs(wanted).max())
        if not np.all(off <= (1e-6 + 100.0 * digits) * size):
            raise Dishonest(
                f"coefficients are off their linear system by {off.max():.2g} of {size:.2g}"
            )
        for i in range(len(rows)):
            rest = np.delete(np.arange(len(rows)), i)
            one = np.linalg.solve(
                _bordered(K[np.ix_(rest, rest)], alpha / weight[rest]), np.append(Y[rest, t], 0.0)
            )
            left_out[i, t] = K[i, rest] @ one[:-1] + one[-1]
    if lost or len(rows) < 3:
        return "rounding"
    _check_left_out(problem, model, rows, weight, Y, left_out + shift)
    return "gap"


def _bordered(K: Array, ridge: Array) -> Array:
    """Return the system of coefficients and constant: (K + R) β + b = y, Σ β = 0."""
    one = np.ones((len(K), 1))
    return np.block([[K + np.diag(ridge), one], [one.T, np.zeros((1, 1))]])


def _columns_of(problem: ThirdProblem, model: Any) -> Array:
    if problem.machine != "classes":
        return problem.y.reshape(len(problem.y), -1)
    member = problem.y[:, None] == model.classes_
    if len(model.classes_) == 2:
        return np.where(member[:, 1:], 1.0, -1.0)
    return member.astype(float)


def _check_left_out(
    problem: ThirdProblem, model: Any, rows: Array, weight: Array, Y: Array, left_out: Array
) -> None:
    if problem.machine == "classes":
        if not np.allclose(model.loo_probabilities_.sum(axis=1), 1.0):
            raise Dishonest("loo_probabilities_ do not sum to one")
        if len(model.classes_) == 2:
            clear, found = (
                np.abs(left_out[:, 0]) > 1e-6,
                model.classes_[(left_out[:, 0] > 0).astype(int)],
            )
        else:
            order = np.sort(left_out, axis=1)
            clear, found = (
                order[:, -1] - order[:, -2] > 1e-6,
                model.classes_[left_out.argmax(axis=1)],
            )
        share = weight / weight.sum()
        score = float(share @ (found == problem.y[rows]))
        if abs(score - model.training_score_) > share @ ~clear + 1e-9:
            raise Dishonest(f"training_score_={model.training_score_:.6g}, of n refits {score:.6g}")
        # Others are of weights that had not seen the sample.
        wrong = clear & (found != model.loo_predictions_[rows]) & (model.weight_prior_ is None)
        if wrong.any():
            raise Dishonest(
                f"loo_predictions_ of sample {rows[wrong][0]} is not that of the others"
            )
        return
    if problem.machine == "targets":
        means = weight @ Y / weight.sum()
        scores = 1.0 - weight @ (Y - left_out) ** 2 / (weight @ (Y - means) ** 2)
        off = np.abs(scores - model.loo_scores_).max()
        if off > 1e-5 * (1.0 + np.abs(scores).max()):
            raise Dishonest(f"loo_scores_ {model.loo_scores_}, of refits {scores}")
        return
    missed = weight @ (Y[:, 0] - left_out[:, 0]) ** 2
    score = 1.0 - missed / (weight @ (Y[:, 0] - weight @ Y[:, 0] / weight.sum()) ** 2)
    if abs(score - model.training_score_) > 1e-4 * (1.0 + abs(score)):
        raise Dishonest(f"training_score_={model.training_score_:.6g}, of n refits {score:.6g}")
    if model.weight_prior_ is not None:
        return  # loo_predictions_ are of weights that had not seen the sample
    off = np.abs(left_out[:, 0] - model.loo_predictions_[rows]).max()
    if off > 1e-5 * (np.ptp(Y) + np.abs(left_out).max()):
        raise Dishonest(f"loo_predictions_ are off those of n refits by {off:.2g}")
