"""The second generator: columns far from zero, scales far apart, heavy tails and nearly equal
samples.

Independent of the first: nothing is shared but the estimators. Every problem is drawn from (seed,
index) alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import kernelmosaic as km
from kernelmosaic.kernels import Gaussian, Laplacian, Linear, Polynomial, Precomputed

#: Estimators and how often each is drawn.
_ESTIMATORS = {
    "MKLClassifier": 36,
    "MKLRegressor": 20,
    "MKLOneClass": 10,
    "MKLSurvival": 8,
    "BilinearMKLClassifier": 7,
    "DiscriminantMKLClassifier": 10,
    "PosteriorMKLClassifier": 9,
}
#: The conic formulations factorise matrices of order n² or more.
_MOST_SAMPLES = {"sdp": 14, "qcqp": 40, "kim": 25, "sdp_approximate": 14}


@dataclass(frozen=True)
class Formula:
    """A kernel as its docstring prints it.

    Attributes
    ----------
    kind : str
        "linear", "polynomial", "gaussian", "laplacian", "given", "sum", "product" or "scaled".
    numbers : dict
        Its parameters.
    parts : tuple of Formula
        The kernels that a sum, a product or a multiple is made of.
    """

    kind: str
    numbers: dict[str, Any]
    parts: tuple[Formula, ...] = ()

    def kernel(self) -> Any:
        """Return the library's kernel of this formula."""
        made = [part.kernel() for part in self.parts]
        if self.kind == "sum":
            return made[0] + made[1]
        if self.kind == "product":
            return made[0] * made[1]
        if self.kind == "scaled":
            return self.numbers["factor"] * made[0]
        return _KERNELS[self.kind](**self.numbers)


_KERNELS: dict[str, Any] = {
    "linear": Linear,
    "polynomial": Polynomial,
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "given": Precomputed,
}


@dataclass(frozen=True)
class View:
    """A kernel and the columns that it reads."""

    name: str
    formula: Formula
    columns: list[int]


@dataclass(frozen=True)
class OffsetProblem:
    """One fit, `estimator.fit(X, y, sample_weight)`, and samples to predict.

    Attributes
    ----------
    moderate : bool
        Whether nothing of it is extreme: scales, offsets, widths and C are within a factor of 1000
        of ordinary ones.
    single : bool
        Whether samples, whose numbers then fit single precision, are given in it.
    """

    name: str
    parameters: dict[str, Any]
    views: list[View]
    X: np.ndarray
    y: np.ndarray | None
    sample_weight: np.ndarray | None
    new: np.ndarray
    moderate: bool
    single: bool = False

    @property
    def joint(self) -> bool:
        """Whether all classes are told apart in one problem."""
        if self.name == "BilinearMKLClassifier":
            return True
        if self.name == "PosteriorMKLClassifier":
            assert self.y is not None
            return (self.y.shape[1] if self.y.ndim == 2 else len(np.unique(self.y))) > 2
        several = self.name == "MKLClassifier" and len(np.unique(self.y)) > 2
        return several and self.parameters.get("multi_class") in ("joint", "pairwise")

    def estimator(self) -> Any:
        kernels = [(view.name, view.formula.kernel(), view.columns) for view in self.views]
        return getattr(km, self.name)(kernels, **self.parameters)

    def fit(self, estimator: Any) -> Any:
        options = {} if self.sample_weight is None else {"sample_weight": self.sample_weight}
        X = self.given(self.X)
        return (
            estimator.fit(X, **options) if self.y is None else estimator.fit(X, self.y, **options)
        )

    def given(self, rows: np.ndarray) -> np.ndarray:
        """Return samples in the precision they are given in."""
        return rows.astype(np.float32) if self.single else rows

    def __str__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.parameters.items())
        kernels = ", ".join(
            f"{view.name}{view.columns}: {view.formula.kernel()!r}" for view in self.views
        )
        weighted = "" if self.sample_weight is None else ", weighted"
        size = "" if self.y is None else f", y of shape {self.y.shape}"
        single = " of float32" if self.single else ""
        return (
            f"{self.name}({given}) on X of shape {self.X.shape}{single}{size}{weighted} with"
            f" [{kernels}]"
        )


def draw(seed: int, index: int) -> OffsetProblem:
    """Return problem number `index` of a seed."""
    rng = np.random.default_rng([20, seed, index])
    wild = bool(rng.random() < 0.6)
    name = str(_pick(rng, _ESTIMATORS))
    P = int(_pick(rng, {1: 1, 2: 3, 3: 3, 5: 2}))
    parameters = _DRAWN_BY[name](rng, wild)
    _add_learner(rng, name, parameters, P)
    parameters["normalize"] = _pick(rng, {"trace": 4, "diagonal": 2, "centered": 2, None: 2})
    if name == "MKLOneClass" and parameters["normalize"] == "centered":
        parameters["normalize"] = "trace"
    if rng.random() < 0.25:
        parameters["tol"] = float(_pick(rng, {1e-6: 2, 1e-2: 1, 1e-9: 0.5}))
    largest = _MOST_SAMPLES.get(parameters.get("solver", ""), 60)
    n = int(min(round(4.0 * 15.0 ** rng.random()), largest))
    Z, y = _signal(rng, n, name)
    X = _spoil(rng, Z, wild)
    # Drawn apart, so that problems drawn before this was stay what they were.
    single = bool(np.random.default_rng([20, seed, index, 1]).random() < 0.07)
    if single:
        X = X.astype(np.float32).astype(float)
    views, X = _views(rng, X, P, wild)
    weight = None
    if name != "DiscriminantMKLClassifier" and rng.random() < 0.25:
        weight = (
            10.0 ** rng.uniform(-2.0, 2.0, n)
            if rng.random() < 0.5
            else rng.integers(0, 3, n).astype(float)
        )
        weight[:: max(n // 4, 1)] = 1.0
    new = _new_rows(rng, X, views)
    new = new.astype(np.float32).astype(float) if single else new
    return OffsetProblem(name, parameters, views, X, y, weight, new, not wild, single)


def _pick(rng: np.random.Generator, shares: dict[Any, float]) -> Any:
    keys = list(shares)
    return keys[
        int(rng.choice(len(keys), p=np.array(list(shares.values())) / sum(shares.values())))
    ]


# Samples and targets ------------------------------------------------------------------------------


def _signal(rng: np.random.Generator, n: int, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return samples in ordinary units, and targets that depend on them."""
    d = int(rng.integers(1, 7))
    Z = rng.normal(size=(n, d))
    score = Z @ rng.normal(size=d) + rng.choice([0.1, 1.0]) * rng.normal(size=n)
    if name == "MKLOneClass":
        return Z, None
    if name == "MKLRegressor":
        y = score * 10.0 ** rng.uniform(-3, 4) + (
            10.0 ** rng.uniform(0, 6) if rng.random() < 0.3 else 0.0
        )
        other = rng.normal(size=n) * np.abs(y).max()
        return Z, np.column_stack([y, other]) if rng.random() < 0.1 else np.asarray(y)
    if name == "MKLSurvival":
        event = rng.random(n) < 0.7
        event[0] = True
        return Z, np.column_stack([event, np.exp(score)])
    k = int(min(_pick(rng, {2: 5, 3: 2, 4: 1}), n))
    if name == "PosteriorMKLClassifier" and rng.random() < 0.5:
        P = rng.dirichlet(np.full(k, 0.3), size=n)
        return Z, P / P.sum(axis=1, keepdims=True)
    # From even classes to one with a single sample.
    shares = np.cumsum(rng.dirichlet(np.full(k, _pick(rng, {10.0: 3, 1.0: 1, 0.2: 1}))))
    rank = (np.argsort(np.argsort(score)) + 0.5) / n
    labels = np.searchsorted(shares[:-1], rank)
    if len(np.unique(labels)) < k:
        labels[rng.permutation(n)[:k]] = np.arange(k)
    return Z, np.asarray(labels)


def _spoil(rng: np.random.Generator, Z: np.ndarray, wild: bool) -> np.ndarray:
    """Return samples with the tails, repetitions, scales and offsets that make arithmetic hard."""
    n, d = Z.shape
    X = Z.copy()
    tail = _pick(rng, {"none": 4, "cauchy": 1, "log-normal": 1}) if wild else "none"
    if tail == "cauchy":
        X = np.sign(X) * np.abs(np.tan(np.pi * (np.clip(_normal_rank(X), 0.001, 0.999) - 0.5)))
    elif tail == "log-normal":
        X = np.exp(3.0 * X)
    if rng.random() < 0.3:  # equal and nearly equal samples
        rows, sources = rng.integers(n, size=(2, max(n // 3, 1)))
        near = 10.0 ** rng.uniform(-12, -3) if rng.random() < 0.6 else 0.0
        X[rows] = X[sources] * (1.0 + near * rng.normal(size=(len(rows), d)))
    if rng.random() < 0.15:  # a column that is constant, or nearly
        flat = int(rng.integers(d))
        X[:, flat] = 1.0 + (
            10.0 ** rng.uniform(-15, -6) * X[:, flat] if rng.random() < 0.6 else 0.0
        )
    if wild and rng.random() < 0.4:
        X = X * 10.0 ** rng.uniform(-6, 8, size=d if rng.random() < 0.5 else 1)
    elif rng.random() < 0.3:
        X = X * 10.0 ** rng.uniform(-1, 1, size=d)
    if rng.random() < 0.4:
        far = 10.0 ** rng.uniform(0, 8 if wild else 3, size=d) * rng.choice([-1.0, 1.0], size=d)
        X = X + np.abs(X).max(axis=0) * far
    return X


def _normal_rank(Z: np.ndarray) -> np.ndarray:
    from scipy.stats import norm

    return np.asarray(norm.cdf(Z))


def _new_rows(rng: np.random.Generator, X: np.ndarray, views: list[View]) -> np.ndarray:
    """Return samples to predict: some of those seen, some between them, one far away."""
    seen = X[rng.integers(len(X), size=4)]
    if any("given" in view.name for view in views):
        return seen
    between = 0.5 * (X[rng.integers(len(X), size=3)] + X[rng.integers(len(X), size=3)])
    far = X.mean(axis=0) + 10.0 * np.ptp(X, axis=0)
    return np.vstack([seen, between, far])


# Kernels ------------------------------------------------------------------------------------------


def _views(
    rng: np.random.Generator, X: np.ndarray, P: int, wild: bool
) -> tuple[list[View], np.ndarray]:
    n, d = X.shape
    views = []
    for m in range(P):
        columns = sorted(rng.permutation(d)[: int(rng.integers(1, d + 1))].tolist())
        if rng.random() < 0.08:
            F = rng.normal(size=(n, int(rng.integers(1, n + 1)))) * (
                10.0 ** rng.uniform(-4, 4) if wild else 1.0
            )
            K = F @ F.T
            views.append(View(f"given{m}", Formula("given", {"K": 0.5 * (K + K.T)}), [d]))
        else:
            views.append(View(f"view{m}", _formula(rng, X[:, columns], wild), columns))
    if any(view.columns == [d] for view in views):
        X = np.column_stack([X, np.arange(n)])
    return views, X


def _formula(rng: np.random.Generator, A: np.ndarray, wild: bool, depth: int = 0) -> Formula:
    shares = {"linear": 3, "polynomial": 1.5, "gaussian": 5, "laplacian": 2}
    if depth == 0:
        shares |= {"sum": 1, "product": 1, "scaled": 0.5}
    kind = str(_pick(rng, shares))
    if kind in ("sum", "product"):
        return Formula(kind, {}, (_formula(rng, A, wild, 1), _formula(rng, A, wild, 1)))
    if kind == "scaled":
        return Formula(kind, {"factor": 10.0 ** rng.uniform(-4, 4)}, (_formula(rng, A, wild, 1),))
    if kind == "polynomial":
        return Formula(
            kind, {"degree": int(rng.integers(2, 5)), "offset": float(rng.choice([0.0, 1.0]))}
        )
    if kind == "linear":
        return Formula(kind, {})
    reach = _pick(rng, {0.5: 3, 2.0: 1, 6.0: 2}) if wild else 0.5
    factor = 10.0 ** rng.uniform(-reach, reach)
    if rng.random() < 0.4:
        return Formula(
            kind, {"width": str(_pick(rng, {"median": 2, "nearest": 1})), "factor": factor}
        )
    spread = np.abs(A - np.median(A, axis=0))
    spread = float(np.sqrt(np.sum(np.median(spread, axis=0) ** 2))) or float(spread.max()) or 1.0
    return Formula(kind, {"width": spread * factor})


# Parameters ---------------------------------------------------------------------------------------


def _price(rng: np.random.Generator, wild: bool) -> float:
    return 10.0 ** float(rng.uniform(-6, 9) if wild and rng.random() < 0.7 else rng.uniform(-2, 3))


def _classifier(rng: np.random.Generator, wild: bool) -> dict[str, Any]:
    p: dict[str, Any] = {"C": _price(rng, wild), "slack": _pick(rng, {1: 3, 2: 1})}
    p["multi_class"] = str(_pick(rng, {"ovr": 2, "ovr-shared": 1, "joint": 1, "pairwise": 1}))
    if p["multi_class"] in ("joint", "pairwise"):
        p["slack"] = 1
    p["class_weight"] = _pick(rng, {None: 4, "balanced": 1})
    if p["multi_class"] == "ovr" and rng.random() < 0.04:
        p |= {"C": np.inf, "class_weight": None, "slack": 1}
    return p


def _regressor(rng: np.random.Generator, wild: bool) -> dict[str, Any]:
    loss = str(_pick(rng, {"epsilon": 3, "huber": 1.5, "squared": 1.5}))
    epsilon = 10.0 ** float(rng.uniform(-4, 1)) if rng.random() < 0.8 else 0.0
    return {
        "C": _price(rng, wild),
        "loss": loss,
        "epsilon": epsilon,
        "slack": _pick(rng, {1: 2, 2: 1}),
    }


def _one_class(rng: np.random.Generator, wild: bool) -> dict[str, Any]:
    return {
        "nu": float(np.clip(10.0 ** rng.uniform(-2, 0.1), 0.01, 1.0)),
        "slack": _pick(rng, {1: 3, 2: 1}),
    }


def _survival(rng: np.random.Generator, wild: bool) -> dict[str, Any]:
    return {
        "C": _price(rng, wild),
        "epsilon": float(rng.choice([0.0, 0.1, 1e-4])),
        "slack": _pick(rng, {1: 2, 2: 1}),
    }


def _bilinear(rng: np.random.Generator, wild: bool) -> dict[str, Any]:
    return {
        "kappa": _price(rng, wild),
        "solver": str(_pick(rng, {"newton": 3, "quasi_newton": 1, "projected_gradient": 1})),
    }


def _discriminant(rng: np.random.Generator, wild: bool) -> dict[str, Any]:
    shares = {"newton": 4, "silp": 1.5, "qcqp": 1.5, "sdp": 0.5, "kim": 0.5, "sdp_approximate": 0.3}
    alpha = (
        "learn"
        if rng.random() < 0.2
        else 10.0 ** float(rng.uniform(-9, 3) if wild else rng.uniform(-4, 0))
    )
    return {
        "solver": str(_pick(rng, shares)),
        "alpha": alpha,
        "decision": str(_pick(rng, {"least_squares": 2, "centroid": 1})),
    }


def _posterior(rng: np.random.Generator, wild: bool) -> dict[str, Any]:
    return {"C": _price(rng, wild), "estimate": str(_pick(rng, {"neighbors": 1, "density": 1}))}


_DRAWN_BY = {
    "MKLClassifier": _classifier,
    "MKLRegressor": _regressor,
    "MKLOneClass": _one_class,
    "MKLSurvival": _survival,
    "BilinearMKLClassifier": _bilinear,
    "DiscriminantMKLClassifier": _discriminant,
    "PosteriorMKLClassifier": _posterior,
}


def _add_learner(rng: np.random.Generator, name: str, p: dict[str, Any], P: int) -> None:
    """Draw how the weights come about."""
    if name == "BilinearMKLClassifier":
        return
    given = rng.random()
    if given < 0.25 and p.get("alpha") != "learn":
        p["weights"] = "uniform" if given < 0.1 else (10.0 ** rng.uniform(-3, 3, P)).tolist()
    if name == "DiscriminantMKLClassifier":
        return
    if "weights" not in p:
        p["solver"] = _solver(rng, name, p)
    sums_to_one = p.get("solver") in ("reduced_gradient", "silp", "qcqp", "sdp")
    p["norm"] = 1 if sums_to_one else _pick(rng, {1: 3, 2: 1, 1.3: 0.5, 4.0: 0.5})
    if rng.random() < 0.2 and "weights" not in p and p.get("solver") != "sdp":
        p["penalties"] = (10.0 ** rng.uniform(-1.5, 1.5, P)).tolist()


def _solver(rng: np.random.Generator, name: str, p: dict[str, Any]) -> str:
    if name == "PosteriorMKLClassifier" or p.get("multi_class", "ovr") != "ovr":
        return "newton"
    shares = {"newton": 5.0, "reduced_gradient": 1, "silp": 1, "qcqp": 1, "sdp": 0.5}
    if name != "MKLOneClass":
        shares["alignment"] = 0.5
    if name == "MKLClassifier":
        shares["easymkl"] = 0.5
    return str(_pick(rng, shares))
