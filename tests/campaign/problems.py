"""Random problems, each drawn from (seed, index) alone: data, kernels and an estimator with its
parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

import kernelmosaic as km
from kernelmosaic.kernels import Gaussian, Laplacian, Linear, Polynomial, Precomputed

#: Estimators and how often each is drawn.
_ESTIMATORS = {
    "MKLClassifier": 34,
    "MKLRegressor": 20,
    "MKLOneClass": 10,
    "LocalizedMKLClassifier": 7,
    "LocalizedMKLRegressor": 5,
    "LocalizedMKLOneClass": 4,
    "BilinearMKLClassifier": 6,
    "DiscriminantMKLClassifier": 8,
    "PosteriorMKLClassifier": 6,
}
#: The conic formulations factorise matrices of order n²: more samples than this take them minutes.
_MOST = {"sdp": 20, "qcqp": 60, "sdp_approximate": 40, "kim": 60}


@dataclass(frozen=True)
class DrawnKernel:
    """A kernel as the library has it and as its formula says.

    Attributes
    ----------
    name, kernel, columns
        An entry of the estimator's `kernels`.
    formula : callable
        From two arrays of samples, with the columns this kernel reads, to its matrix.
    noise : float
        How far, relative to √(k(x, x) k(z, z)), the two may be apart for rounding.
    """

    name: str
    kernel: Any
    columns: list[int]
    formula: Any
    noise: float

    @property
    def entry(self) -> tuple[str, Any, list[int]]:
        return self.name, self.kernel, self.columns


@dataclass(frozen=True)
class DrawnProblem:
    """One fit: `estimator.fit(X, y, sample_weight)`; `new` are samples to predict.

    Attributes
    ----------
    single : bool
        Whether X, whose numbers then fit single precision, and `new` are given in it.
    """

    name: str
    parameters: dict[str, Any]
    kernels: list[DrawnKernel]
    X: np.ndarray
    y: np.ndarray | None
    sample_weight: np.ndarray | None
    new: np.ndarray
    compare: bool
    single: bool = False

    @property
    def joint(self) -> bool:
        """Whether all classes are told apart in one problem."""
        if self.name == "BilinearMKLClassifier":
            return True
        several = self.y is not None and self.y.dtype.kind == "i" and len(np.unique(self.y)) > 2
        return several and (
            self.name == "PosteriorMKLClassifier"
            or self.parameters.get("multi_class", "ovr") != "ovr"
        )

    def estimator(self) -> Any:
        return getattr(km, self.name)([drawn.entry for drawn in self.kernels], **self.parameters)

    def fit(self, estimator: Any) -> Any:
        options = {} if self.sample_weight is None else {"sample_weight": self.sample_weight}
        X = self.X.astype(np.float32) if self.single else self.X
        return (
            estimator.fit(X, self.y, **options)
            if self.y is not None
            else estimator.fit(X, **options)
        )

    def __str__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.parameters.items())
        kernels = ", ".join(f"{k.name}: {k.kernel!r}" for k in self.kernels)
        classes = (
            ""
            if self.y is None or self.y.dtype.kind == "f"
            else f", {len(np.unique(self.y))} classes"
        )
        weighted = "" if self.sample_weight is None else ", weighted"
        single = " of float32" if self.single else ""
        return (
            f"{self.name}({given}) on {len(self.X)} samples{single}{classes}{weighted} with"
            f" [{kernels}]"
        )


#: Share of the problems that could do without a stored kernel which have to.
_ON_DEMAND = 0.1
#: Share of the problems whose samples are in single precision.
SINGLE = 0.07


def draw(seed: int, index: int) -> DrawnProblem:
    """Return problem number `index` of a seed."""
    rng = np.random.default_rng([seed, index])
    name = str(
        rng.choice(
            list(_ESTIMATORS), p=np.array(list(_ESTIMATORS.values())) / sum(_ESTIMATORS.values())
        )
    )
    parameters = _parameters(rng, name)
    conic = parameters.get("solver")
    low, high = _pick(rng, {(2, 10): 3, (10, 60): 5, (60, 121): 2})
    n = min(int(rng.integers(low, high)), _MOST.get(conic, 120))
    Z = _samples(rng, n)
    y = _targets(rng, Z, name)
    # A unit and an origin of its own for every table, sometimes for every column.
    scale = (
        10.0 ** rng.uniform(-8, 8, size=Z.shape[1] if rng.random() < 0.3 else 1)
        if rng.random() < 0.3
        else 1.0
    )
    offset = 10.0 ** rng.uniform(0, 7, size=Z.shape[1]) if rng.random() < 0.2 else 0.0
    X = Z * scale + offset
    # Drawn apart, so that problems drawn before this was stay what they were.
    apart = np.random.default_rng([seed, index, 1])
    on_demand, single = apart.random() < _ON_DEMAND, bool(apart.random() < SINGLE)
    if single:
        X = X.astype(np.float32).astype(float)
    kernels, X = _kernels(rng, X, only_radial=parameters.get("approximation") == "fourier")
    P, d = len(kernels), X.shape[1] - (1 if any(k.name.startswith("given") for k in kernels) else 0)
    _complete(rng, name, parameters, P, d)
    weight = None
    if name != "DiscriminantMKLClassifier" and rng.random() < 0.25:
        weight = np.where(
            rng.random(n) < 0.2, 0.0, 10.0 ** rng.uniform(-3, 3, n) if rng.random() < 0.5 else 1.0
        )
        weight[int(rng.integers(n))] = 1.0
    new = X[rng.integers(n, size=5)]
    if on_demand and _may_be_on_demand(name, parameters, n):
        parameters["memory_budget"] = 0.5 * 8 * n**2
    new = new.astype(np.float32) if single else new
    return DrawnProblem(
        name, parameters, kernels, X, y, weight, new, bool(rng.random() < 0.05), single
    )


def _may_be_on_demand(name: str, parameters: dict[str, Any], n: int) -> bool:
    """Whether a kernel that is never stored serves; what needs the whole matrix says so, which is
    not looked for."""
    if (
        n < 30
        or "approximation" in parameters
        or name not in ("MKLClassifier", "MKLRegressor", "MKLOneClass")
    ):
        return False
    # Several classes in one problem take interior points where so few samples are stored, and very
    # small rounds else.
    whole = parameters.get("loss") == "squared" or parameters.get("solver") in ("sdp", "qcqp")
    return not whole and parameters.get("multi_class", "ovr") == "ovr"


def _pick(rng: np.random.Generator, shares: dict[Any, float]) -> Any:
    keys = list(shares)
    return keys[
        int(rng.choice(len(keys), p=np.array(list(shares.values())) / sum(shares.values())))
    ]


def _samples(rng: np.random.Generator, n: int) -> np.ndarray:
    d = int(rng.integers(1, 7))
    kind = _pick(rng, {"normal": 6, "clusters": 2, "grid": 1, "repeated": 1, "line": 1})
    Z = rng.normal(size=(n, d))
    if kind == "clusters":
        return 3.0 * rng.normal(size=(3, d))[rng.integers(3, size=n)] + 0.1 * Z
    if kind == "grid":
        return np.round(Z)
    if kind == "repeated":
        return Z[rng.integers(max(n // 2, 1), size=n)]
    return Z[:, :1] @ rng.normal(size=(1, d)) if kind == "line" else Z


def _targets(rng: np.random.Generator, Z: np.ndarray, name: str) -> np.ndarray | None:
    n, slope = len(Z), rng.normal(size=Z.shape[1])
    if name.endswith("OneClass"):
        return None
    score = Z @ slope + rng.choice([0.0, 0.3, 3.0]) * rng.normal(size=n)
    if name.endswith("Regressor"):
        y = score + np.sin(3.0 * score)
        return y * 10.0 ** rng.uniform(-3, 3) if rng.random() < 0.2 else np.asarray(y)
    k = int(min(rng.integers(3, 6), n)) if n > 2 and rng.random() < 0.35 else 2
    labels = np.argsort(np.argsort(score)) * k // n
    if rng.random() < 0.15:  # a class of one sample
        labels = np.where(
            np.arange(n) == int(rng.integers(n)), 0, np.maximum(labels, 1 if n > 1 else 0)
        )
    return np.asarray(labels)


def _kernels(
    rng: np.random.Generator, X: np.ndarray, only_radial: bool
) -> tuple[list[DrawnKernel], np.ndarray]:
    n, d = X.shape
    shares = {"gaussian": 6, "laplacian": 2}
    if not only_radial:
        shares |= {"linear": 3, "polynomial": 2, "given": 1.5, "copy": 1}
    kinds = [_pick(rng, shares) for _ in range(int(rng.integers(1, 6)))]
    kernels: list[DrawnKernel] = []
    for m, kind in enumerate(kinds):
        columns = (
            list(range(d)) if rng.random() < 0.7 else sorted(set(rng.integers(d, size=2).tolist()))
        )
        if kind == "copy" and kernels:
            last = kernels[-1]
            kernels.append(
                DrawnKernel(
                    f"{last.name}-copy{m}", last.kernel, last.columns, last.formula, last.noise
                )
            )
        elif kind == "given":
            K = _matrix(rng, n)
            formula = lambda A, B, K=K: K[np.ix_(A[:, 0].astype(int), B[:, 0].astype(int))]  # noqa: E731
            kernels.append(DrawnKernel(f"given{m}", Precomputed(K), [d], formula, 1e-15))
        elif kind in ("linear", "polynomial", "copy"):
            kernels.append(_polynomial(rng, kind, m, columns))
        else:
            kernels.append(_radial(rng, kind, m, columns, X[:, columns]))
    if any(kernel.columns == [d] for kernel in kernels):
        X = np.column_stack([X, np.arange(n)])
    return kernels, X


def _radial(
    rng: np.random.Generator, kind: str, m: int, columns: list[int], X: np.ndarray
) -> DrawnKernel:
    metric, power, make = (
        ("euclidean", 2, Gaussian) if kind == "gaussian" else ("cityblock", 1, Laplacian)
    )
    distances = cdist(X, X, metric)[np.triu_indices(len(X), 1)]
    median = float(np.median(distances)) if np.median(distances) > 0 else 1.0
    width = median * 10.0 ** (rng.uniform(-3, 3) if rng.random() < 0.4 else rng.uniform(-0.5, 0.7))
    # Squared distances are known to the rounding of the samples' squared distances from their
    # middle.
    far = float(np.abs(X - X.mean(axis=0)).max(initial=0.0)) * len(columns) / width
    noise = 1e-15 * (100.0 + 50.0 * far**power)
    return DrawnKernel(
        f"{kind}{m}",
        make(width),
        columns,
        lambda A, B: np.exp(-((cdist(A, B, metric) / width) ** power)),
        noise,
    )


def _polynomial(rng: np.random.Generator, kind: str, m: int, columns: list[int]) -> DrawnKernel:
    if kind != "polynomial":
        return DrawnKernel(f"linear{m}", Linear(), columns, lambda A, B: A @ B.T, 1e-13)
    degree, one = int(rng.integers(2, 4)), float(rng.choice([0.0, 1.0]))
    return DrawnKernel(
        f"polynomial{m}",
        Polynomial(degree, one),
        columns,
        lambda A, B: (A @ B.T + one) ** degree,
        1e-12,
    )


def _matrix(rng: np.random.Generator, n: int) -> np.ndarray:
    kind = _pick(
        rng, {"low rank": 3, "full": 2, "zero": 1, "constant": 1, "identity": 1, "block": 1}
    )
    scale = 10.0 ** rng.uniform(-8, 8) if rng.random() < 0.3 else 1.0
    if kind in ("low rank", "full"):
        F = rng.normal(size=(n, 1 + int(rng.integers(3)) if kind == "low rank" else n))
        K = F @ F.T
        return scale * 0.5 * (K + K.T)
    if kind == "block":
        groups = rng.integers(3, size=n)
        return scale * (groups[:, np.newaxis] == groups).astype(float)
    return (
        scale * {"zero": np.zeros((n, n)), "constant": np.ones((n, n)), "identity": np.eye(n)}[kind]
    )


# Parameters ---------------------------------------------------------------------------------------


def _parameters(rng: np.random.Generator, name: str) -> dict[str, Any]:
    p: dict[str, Any] = {
        "normalize": _pick(rng, {"trace": 6, "diagonal": 2, "centered": 2, None: 2})
    }
    approximation = _pick(rng, {None: 8, "nystroem": 1.5, "fourier": 0.5})
    if approximation is not None:
        p |= {"approximation": approximation, "rank": int(rng.integers(1, 40)), "random_state": 0}
    _MACHINES[name.removeprefix("Localized")](rng, p)
    if name in ("MKLClassifier", "MKLRegressor", "MKLOneClass", "PosteriorMKLClassifier"):
        _learner(rng, name, p)
    if rng.random() < 0.2:
        p["tol"] = float(_pick(rng, {1e-6: 1, 1e-2: 1}))
    return p


def _size(rng: np.random.Generator) -> float:
    """Return a factor of the slack, from 10⁻⁴ to 10⁶."""
    return 10.0 ** float(rng.uniform(-4, 6) if rng.random() < 0.4 else rng.uniform(-1, 2))


def _classifier(rng: np.random.Generator, p: dict[str, Any]) -> None:
    p |= {"C": _size(rng), "multi_class": _pick(rng, {"ovr": 3, "joint": 1, "pairwise": 1})}
    p["slack"] = _pick(rng, {1: 2, 2: 1}) if p["multi_class"] == "ovr" else 1


def _regressor(rng: np.random.Generator, p: dict[str, Any]) -> None:
    p |= {"C": _size(rng), "epsilon": float(_pick(rng, {0.1: 3, 0.0: 1, 1e-6: 1, 10.0: 0.5}))}
    p |= {
        "loss": _pick(rng, {"epsilon": 3, "huber": 1, "squared": 1}),
        "slack": _pick(rng, {1: 2, 2: 1}),
    }


def _one_class(rng: np.random.Generator, p: dict[str, Any]) -> None:
    p["nu"] = float(
        _pick(rng, {0.5: 1, 1.0: 0.5, 0.01: 0.5, round(float(rng.uniform(0.02, 1.0)), 3): 3})
    )
    if p["normalize"] == "centered":
        p["normalize"] = "trace"


def _bilinear(rng: np.random.Generator, p: dict[str, Any]) -> None:
    p |= {
        "kappa": _size(rng),
        "solver": _pick(rng, {"newton": 3, "quasi_newton": 1, "projected_gradient": 1}),
    }


def _discriminant(rng: np.random.Generator, p: dict[str, Any]) -> None:
    p["alpha"] = "learn" if rng.random() < 0.2 else 10.0 ** rng.uniform(-6, 2)
    shares = {"newton": 5, "silp": 2, "qcqp": 1}
    if "approximation" not in p:
        shares |= {"sdp": 0.7, "sdp_approximate": 0.5, "kim": 0.5}
    p |= {"solver": _pick(rng, shares), "decision": _pick(rng, {"least_squares": 2, "centroid": 1})}


def _posterior(rng: np.random.Generator, p: dict[str, Any]) -> None:
    p |= {"C": _size(rng), "estimate": _pick(rng, {"neighbors": 1, "density": 1})}


_MACHINES = {
    "MKLClassifier": _classifier,
    "MKLRegressor": _regressor,
    "MKLOneClass": _one_class,
    "BilinearMKLClassifier": _bilinear,
    "DiscriminantMKLClassifier": _discriminant,
    "PosteriorMKLClassifier": _posterior,
}


def _learner(rng: np.random.Generator, name: str, p: dict[str, Any]) -> None:
    solver = "newton"
    if name != "PosteriorMKLClassifier":
        solver = p["solver"] = _solver(rng, name, p)
    norms = {1: 4, 2: 1, 1.2: 0.5, 8.0: 0.5}
    p["norm"] = 1 if solver in ("reduced_gradient", "silp", "qcqp", "sdp") else _pick(rng, norms)
    learnable = (
        name == "MKLClassifier" and p["slack"] == 2 and p["norm"] == 1 and solver == "newton"
    )
    if learnable and rng.random() < 0.2:
        p["C"] = "learn"


def _solver(rng: np.random.Generator, name: str, p: dict[str, Any]) -> str:
    if p.get("multi_class", "ovr") != "ovr":
        return "newton"
    shares = {"newton": 6.0, "reduced_gradient": 1, "silp": 1, "qcqp": 0.7, "sdp": 0.4}
    if name != "MKLOneClass":
        shares["alignment"] = 0.7
    if name == "MKLClassifier":
        shares["easymkl"] = 0.7
    return str(_pick(rng, shares))


def _complete(rng: np.random.Generator, name: str, p: dict[str, Any], P: int, d: int) -> None:
    """Add what depends on the number of kernels and columns."""
    if name.startswith("Localized"):
        p["gating"] = _pick(rng, {"softmax": 3, "sigmoid": 2, "constant": 1, "gaussian": 1})
        p["gating_columns"] = list(range(d))
        p["n_init"] = 1
        p["step"] = _pick(rng, {"lbfgs": 3, "armijo": 1, "fixed": 1})
        return
    if name == "BilinearMKLClassifier":
        return
    if rng.random() < 0.2 and p.get("C") != "learn" and p.get("alpha") != "learn":
        p["weights"] = _pick(rng, {"uniform": 2, "given": 1})
        if p["weights"] == "given":
            p["weights"] = np.round(10.0 ** rng.uniform(-3, 3, P), 6).tolist()
    elif rng.random() < 0.15 and name != "DiscriminantMKLClassifier" and p.get("solver") != "sdp":
        p["penalties"] = np.round(10.0 ** rng.uniform(-1, 1, P), 6).tolist()
