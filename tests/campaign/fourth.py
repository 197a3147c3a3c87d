"""Problems told in two ways whose answers must agree, and folds and indices that must be right.

Each is fitted twice by the library, and what relates the two is written here without its solvers:
samples in single precision and the same numbers in double; a search over a pipeline and the steps
fitted one by one at the C it chose; tables with row names and plain arrays; a problem and its copy
with the last bits moved or the columns in another order. The value of a model is recomputed from
its predictions: ½ Σ β_i (f_i − b) + C Σ losses. Survival with few events must end with a model that
its search is not needed for, and folds of pairs must keep apart what they say they do.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.campaign.certificates import Dishonest, hides_tolerance
from tests.campaign.problems import _pick

import kernelmosaic as km
from kernelmosaic.estimators import DiscriminantMKLClassifier, LocalizedMKLClassifier
from kernelmosaic.kernels import Gaussian, Laplacian, Linear, Polynomial, Projected
from kernelmosaic.model_selection import PairSplit, PathSearchCV

Array = np.ndarray


@dataclass
class Told:
    """What became of every way in which a problem is told: models, folds or errors, with their
    warnings."""

    found: list[Any]
    warned: list[bool]
    # Gaps are compared here, not by the runner.
    tol: float = np.inf
    duality_gap_: float = 0.0


@dataclass(frozen=True)
class Twins:
    """One problem told in several ways.

    Attributes
    ----------
    family : str
        What relates the ways, one of `_FAMILIES`.
    makers : list of callable
        Return the estimators, not fitted.
    inputs : list of tuple
        The arguments of `fit`: X, y and a dictionary.
    facts : dict
        What the judge must know.
    """

    family: str
    makers: list[Any]
    inputs: list[tuple[Any, Any, dict[str, Any]]]
    X: Any
    facts: dict[str, Any] = field(default_factory=dict)
    joint: bool = False

    def estimator(self) -> Any:
        return self.makers[0]()

    def fit(self, estimator: Any) -> Told:
        """Fit every way; only an error of the first is raised, unless the family expects it."""
        found: list[Any] = []
        warned = []
        for make, (X, y, options) in zip(self.makers, self.inputs, strict=True):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    found.append(_run(make(), X, y, options))
                except ValueError as error:
                    if not found and self.family != "names":
                        raise
                    found.append(error)
            warned.append(bool(caught))
            for one in caught:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        return Told(found, warned)

    def __str__(self) -> str:
        short = {
            key: value for key, value in self.facts.items() if not isinstance(value, Array | list)
        }
        facts = ", ".join(f"{key}={value!r}" for key, value in short.items())
        return f"{self.family}: {self.makers[0]()!r} on {len(self.X)} samples; {facts}"


def _run(estimator: Any, X: Any, y: Any, options: dict[str, Any]) -> Any:
    if isinstance(estimator, PairSplit):
        return list(estimator.split(X, y, **options))
    return estimator.fit(X, **options) if y is None else estimator.fit(X, y, **options)


def draw(seed: int, index: int) -> Twins:
    """Return problem number `index` of a seed."""
    rng = np.random.default_rng([seed, index, 6])
    shares = {"single": 4, "steps": 3, "names": 4, "pairs": 2, "events": 3, "copy": 5}
    return _DRAWN[_pick(rng, shares)](rng)


def check_fit(problem: Twins, told: Told) -> str:
    """Raise `Dishonest` unless the ways agree; return how that was shown."""
    shown = _JUDGES[problem.family](problem, told)
    fits = zip(told.found, problem.inputs, strict=True)
    kernels = problem.facts.get("kernels", [])
    return (
        "rounding"
        if any(hides_tolerance(model, X, kernels) for model, (X, _, _) in fits)
        else shown
    )


# Samples, targets and kernels ---------------------------------------------------------------------


def _data(rng: np.random.Generator, machine: str, n: int | None = None) -> tuple[Array, Array]:
    n = int(rng.integers(12, 36)) if n is None else n
    X = rng.normal(size=(n, int(rng.integers(2, 5))))
    score = (
        X @ rng.normal(size=X.shape[1])
        + np.sin(2.0 * X[:, 0])
        + rng.choice([0.1, 0.7]) * rng.normal(size=n)
    )
    if machine == "regressor":
        return X, score
    classes = 2 if machine == "two" else int(rng.integers(2, 4))
    return X, np.argsort(np.argsort(score)) * classes // n


def _kernels(rng: np.random.Generator, d: int, most: int = 3) -> list[tuple[str, Any, list[int]]]:
    made = {
        "gaussian": lambda: Gaussian(),
        "wide": lambda: Gaussian(factor=3.0),
        "laplacian": lambda: Laplacian(),
        "linear": lambda: Linear(),
        "polynomial": lambda: Polynomial(int(rng.integers(2, 4))),
    }
    names = rng.permutation(list(made))[: int(rng.integers(1, most + 1))]
    sides = [sorted(rng.permutation(d)[: int(rng.integers(1, d + 1))].tolist()) for _ in names]
    return [
        (str(name), made[str(name)](), columns) for name, columns in zip(names, sides, strict=True)
    ]


# What models are worth ----------------------------------------------------------------------------


def _outputs(model: Any, X: Any) -> Array:
    decide = model.decision_function if hasattr(model, "decision_function") else model.predict
    found = np.asarray(decide(X), dtype=float)
    if not np.all(np.isfinite(found)):
        raise Dishonest("an output is not finite")
    return found.reshape(len(found), -1)


def _worth(
    model: Any, outputs: Array, y: Array, weight: Array | None = None
) -> tuple[float, float]:
    """Return ½ Σ β_i (f_i − b) + C Σ losses by the outputs of the training samples, and the sum of
    absolute terms."""
    weight = np.ones(len(y)) if weight is None else weight
    beta = np.zeros((len(model.dual_coef_), len(y)))
    beta[:, model.support_] = model.dual_coef_
    terms = 0.5 * beta * (outputs - model.intercept_).T
    if hasattr(model, "classes_"):
        member = y[:, np.newaxis] == model.classes_[None, -beta.shape[0] :]
        losses = np.maximum(1.0 - np.where(member, 1.0, -1.0) * outputs, 0.0)
        sizes = 1.0 + np.abs(outputs)
    else:
        tube = getattr(model, "epsilon_", model.epsilon)
        losses = np.maximum(np.abs(y[:, np.newaxis] - outputs) - tube, 0.0)
        sizes = np.abs(y[:, np.newaxis]) + np.abs(outputs) + tube
    C = getattr(model, "C_", model.C) * weight  # of a search, the one that was chosen
    return float(terms.sum() + C @ losses.sum(axis=1)), float(
        np.abs(terms).sum() + C @ sizes.sum(axis=1)
    )


def _check_worth(
    model: Any, outputs: Array, y: Array, weight: Array | None = None, what: str = "outputs"
) -> None:
    """Hold the objective that is certified to what the model predicts: it is known to the tolerance
    or the gap."""
    value, size = _worth(model, outputs, y, weight)
    allowed = max(model.tol, model.duality_gap_) * abs(model.objective_) + 1e-10 * size
    if model.duality_gap_ < 1 and not abs(value - model.objective_) <= allowed:
        raise Dishonest(
            f"objective_={model.objective_:.9g}, by the {what} {value:.9g}, {allowed:.2g} allowed"
        )


def _check_alike(a: Any, b: Any, what: str, off: float = 1e-9) -> None:
    """Hold two models of one problem to the bounds of both: neither is worth less than what the
    other proves."""
    lows = [one.objective_ - one.duality_gap_ * abs(one.objective_) for one in (a, b)]
    allowed = off * (abs(a.objective_) + abs(b.objective_))
    if max(lows) > min(a.objective_, b.objective_) + allowed:
        raise Dishonest(
            f"{what}: objectives {a.objective_:.9g} and {b.objective_:.9g}, gaps"
            f" {a.duality_gap_:.2g} and {b.duality_gap_:.2g}"
        )


def _raise_errors(told: Told) -> None:
    for one in told.found:
        if isinstance(one, Exception):
            raise Dishonest(f"told otherwise it is refused: {one}")


# Single precision ---------------------------------------------------------------------------------


def _single(rng: np.random.Generator) -> Twins:
    machine = _pick(rng, {"MKLClassifier": 2, "MKLRegressor": 3, "MKLRidgeCV": 3})
    X, y = _data(rng, "two" if machine == "MKLClassifier" else "regressor")
    unit = 10.0 ** float(rng.uniform(-3, 7.5)) if rng.random() < 0.6 else 1.0
    offset = 10.0 ** float(rng.uniform(0, 4)) if rng.random() < 0.3 else 0.0
    X = (unit * (X + offset)).astype(np.float32)
    kernels, normalize = _kernels(rng, X.shape[1]), _pick(rng, {"trace": 3, None: 2, "diagonal": 1})
    parameters: dict[str, Any] = {"normalize": normalize}
    if machine == "MKLRidgeCV":
        parameters |= {"scale": bool(rng.random() < 0.3), "random_state": 0}
        if rng.random() < 0.4:
            parameters["alpha"] = 10.0 ** float(rng.uniform(-6, 1))
    else:
        parameters |= {"C": 10.0 ** float(rng.uniform(-2, 3))}
    make = lambda: getattr(km, machine)(kernels, **parameters)  # noqa: E731
    facts = {"unit": unit, "offset": offset, "kernels": kernels}
    return Twins("single", [make, make], [(X, y, {}), (X.astype(float), y, {})], X, facts)


def _check_single(problem: Twins, told: Told) -> str:
    _raise_errors(told)
    (X, y, _), (wide, _, _) = problem.inputs
    single, double = told.found
    for model, samples, what in (
        (single, X, "float32"),
        (single, wide, "float64"),
        (double, wide, "double"),
    ):
        f = _outputs(model, samples)
        if hasattr(model, "alpha_"):
            # The equations of ridge: what is predicted of a sample is its target less α β.
            beta = np.zeros(len(y))
            beta[model.support_] = model.dual_coef_[0]
            off, size = np.abs(f[:, 0] - (y - model.alpha_ * beta)).max(), float(np.ptp(y))
            if off > 1e-3 * size and not any(told.warned):
                raise Dishonest(
                    f"predictions of {what} are {off:.2g} off the equations, without a warning"
                )
        else:
            _check_worth(model, f, y, what=f"outputs of {what}")
    if hasattr(single, "alpha_"):
        return "gap"
    _check_alike(single, double, "float32 and float64", max(single.tol, double.tol))
    return "gap"


# Pipelines ----------------------------------------------------------------------------------------


class Outputs(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What an estimator of ours says of the samples, beside the samples: any of them as a step."""

    def __init__(self, model: Any = None) -> None:
        self.model = model

    def fit(self, X: Array, y: Array) -> Outputs:
        self.model_ = clone(self.model).fit(X, y)
        return self

    def transform(self, X: Array) -> Array:
        return np.hstack([X, _outputs(self.model_, X)])


def _steps(rng: np.random.Generator) -> Twins:
    last = _pick(rng, {"MKLClassifier": 3, "MKLRegressor": 1})
    X, y = _data(
        rng, "classes" if last == "MKLClassifier" else "regressor", int(rng.integers(18, 36))
    )
    firsts: dict[str, float] = {"outputs": 3, "ridge": 1}
    if last == "MKLClassifier":
        firsts |= {"discriminant": 4, "projected": 1, "search": 2}
    kind, kernels = _pick(rng, firsts), _kernels(rng, X.shape[1], 2)
    number = int(rng.integers(3))
    first = {
        "discriminant": lambda: DiscriminantMKLClassifier(kernels, alpha=0.1),
        "projected": lambda: LocalizedMKLClassifier(
            [Projected(Gaussian(), n_components=1), Linear()], n_init=1, tol=0.3, random_state=0
        ),
        "search": lambda: PathSearchCV(DiscriminantMKLClassifier(kernels), Cs=[0.1, 1.0], cv=2),
        "outputs": lambda: Outputs(getattr(km, last)(kernels, C=1.0)),
        "ridge": lambda: Outputs(km.MKLRidgeCV(kernels, alpha=0.1, random_state=0)),
    }[kind]
    parameters = {"tol": float(_pick(rng, {1e-3: 2, 1e-6: 1}))}
    if rng.random() < 0.3:
        parameters["weights"] = "uniform"
    # The kernels of the last step are never as many as those of the first: a mix-up is an error, or
    # a wrong model.
    own = [Gaussian(), Linear(), Polynomial(2)][: 1 + number]
    before = [StandardScaler()] if rng.random() < 0.3 else []
    scale = bool(rng.random() < 0.5)

    def make() -> Any:
        pipeline = make_pipeline(*before, first(), getattr(km, last)(own, **parameters))
        return PathSearchCV(pipeline, Cs=[0.1, 1.0, 10.0], cv=2, scale=scale, calibration=None)

    return Twins("steps", [make], [(X, y, {})], X, {"first": kind, "scale": scale})


def _check_steps(problem: Twins, told: Told) -> str:
    ((X, y, _),) = problem.inputs
    search = told.found[0]
    chosen, plain = search.best_estimator_, clone(search.estimator[:-1]).fit(X, y)
    model, first = chosen[-1], chosen[-2]
    if search.C_ not in (0.1, 1.0, 10.0) or model.C != search.C_:
        raise Dishonest(f"C_={search.C_}, but the last step has C={model.C}")
    inner = [
        getattr(one, "best_estimator_", getattr(one, "model_", one)) for one in (first, plain[-1])
    ]
    if hasattr(first, "C_") and first.C_ != plain[-1].C_:
        raise Dishonest(f"the first step chooses {first.C_}, by itself {plain[-1].C_}")
    if hasattr(inner[0], "duality_gap_") and problem.facts["first"] != "projected":
        _check_alike(inner[0], inner[1], "first step and the same by itself")
    Z = chosen[:-1].transform(X)
    alone = clone(search.estimator[-1]).set_params(C=search.C_)
    alone.fit(StandardScaler().fit_transform(Z) if problem.facts["scale"] else Z, y)
    _check_worth(model, _outputs(chosen, X), y, what="outputs of the pipeline")
    _check_alike(model, alone, "last step and the same by itself", 1e-7)
    return "gap"


# Row names ----------------------------------------------------------------------------------------


def _names(rng: np.random.Generator) -> Twins:
    import pandas as pd

    machine = _pick(
        rng, {"MKLClassifier": 3, "MKLRegressor": 3, "MKLClassifierCV": 1, "MKLRegressorCV": 1}
    )
    X, y = _data(rng, "two" if "Class" in machine else "regressor")
    n, d = X.shape
    names = np.array([f"row {i}" for i in rng.permutation(n)])
    weight = rng.uniform(0.5, 2.0, n) if rng.random() < 0.5 else None
    groups = rng.integers(4, size=n) if machine.endswith("CV") and rng.random() < 0.7 else None
    if groups is not None:
        groups[:4] = np.arange(4)
    tables = bool(rng.random() < 0.3) and d > 1
    arrangement = str(
        _pick(rng, {"same": 2, "integers": 2, "arrays": 1, "shuffled": 4, "others": 2})
    )
    # What carries the order that is not that of X.
    carriers = (
        ["y"]
        + ["sample_weight"] * (weight is not None)
        + ["groups"] * (groups is not None)
        + ["table"] * tables
    )
    carrier = str(rng.choice(carriers))
    order = rng.permutation(n)
    if np.array_equal(order, np.arange(n)):
        order = order[::-1]

    def index(what: str) -> Any:
        if arrangement == "integers":  # tables of one set are held to one index, whatever it is of
            return np.arange(n) if what in ("X", "table") else rng.permutation(n)
        if what != carrier or arrangement in ("same", "arrays"):
            return names
        return (
            names[order] if arrangement == "shuffled" else np.array([f"{name}?" for name in names])
        )

    def table(values: Array, what: str) -> Any:
        return pd.DataFrame(
            values, index=index(what), columns=[f"{what}{j}" for j in range(values.shape[1])]
        )

    def series(values: Array | None, what: str) -> Any:
        if values is None or (arrangement == "arrays" and what == carrier):
            return values
        return pd.Series(values, index=index(what))

    named: Any = (
        {"left": table(X[:, :1], "X"), "right": table(X[:, 1:], "table")}
        if tables
        else table(X, "X")
    )
    plain: Any = {"left": X[:, :1], "right": X[:, 1:]} if tables else X
    given = {"sample_weight": weight, "groups": groups}
    ways = [
        (
            named,
            series(y, "y"),
            {key: series(one, key) for key, one in given.items() if one is not None},
        ),
        (plain, y, {key: one for key, one in given.items() if one is not None}),
    ]

    def make() -> Any:
        kernels = None if tables else [Gaussian(), Linear()]
        if not machine.endswith("CV"):
            return getattr(km, machine)(kernels)
        from sklearn.model_selection import GroupKFold

        cv = GroupKFold(2) if groups is not None else 2
        return getattr(km, machine)(kernels, Cs=[0.1, 1.0], norms=(1, "uniform"), cv=cv)

    facts = {
        "arrangement": arrangement,
        "carrier": carrier,
        "tables": tables,
        "weighted": weight is not None,
    }
    return Twins("names", [make, make], ways, X, facts)


def _check_names(problem: Twins, told: Told) -> str:
    named, plain = told.found
    if isinstance(plain, Exception):
        if isinstance(named, Exception) and str(named) == str(plain):
            return "error"
        raise Dishonest(f"arrays are refused: {plain}")
    arrangement = problem.facts["arrangement"]
    if arrangement in ("shuffled", "others"):
        if not isinstance(named, Exception):
            raise Dishonest("rows with other names, or in another order, are taken as they come")
        # Tables are joined by `stack_views`.
        carrier, line = problem.facts["carrier"], ".loc["
        carrier, line = ("X", "stack_views(") if carrier == "table" else (carrier, line)
        if not str(named).startswith(carrier) or (
            arrangement == "shuffled" and line not in str(named)
        ):
            raise Dishonest(f"the error does not name {carrier}, or has no line to write: {named}")
        return "error"
    if isinstance(named, Exception):
        raise Dishonest(f"row names that agree, or are numbers, are refused: {named}")
    (X, _, _), (_, target, options) = problem.inputs
    if hasattr(named, "C_") and (named.C_, named.norm_) != (plain.C_, plain.norm_):
        raise Dishonest(
            f"C_, norm_: {named.C_}, {named.norm_} with names, {plain.C_}, {plain.norm_} without"
        )
    _check_alike(named, plain, "with names and without")
    _check_worth(
        named, _outputs(named, X), target, options.get("sample_weight"), "outputs of named rows"
    )
    return "gap"


# Pairs --------------------------------------------------------------------------------------------


def _pairs(rng: np.random.Generator) -> Twins:
    sizes = rng.integers(3, 9, size=2)
    n = int(rng.integers(8, 60))
    pairs = np.column_stack([rng.integers(size, size=n) for size in sizes])
    if rng.random() < 0.8:  # some twice and more, the first rows among them
        pairs = np.vstack([pairs, pairs[rng.integers(n, size=int(rng.integers(1, n)))]])
        pairs = rng.permutation(pairs)
    new = str(_pick(rng, {"pairs": 3, "left": 1, "right": 1, "both": 1}))
    form = str(_pick(rng, {"numbers": 2, "text": 1, "groups": 1}))
    X: Any = pairs.astype(float)
    if form == "text":
        X = np.array([[f"drug {i}", f"protein {j}"] for i, j in pairs], dtype=object)
    options = {"groups": X} if form == "groups" else {}
    X = rng.normal(size=(len(pairs), 3)) if form == "groups" else X
    splits, state = int(rng.integers(2, 4)), int(rng.integers(1000))
    make = lambda: PairSplit(splits, new=new, random_state=state)  # noqa: E731
    facts = {"new": new, "form": form, "splits": splits, "pairs": pairs, "state": state}
    return Twins("pairs", [make], [(X, None, options)], X, facts)


def _check_pairs(problem: Twins, told: Told) -> str:
    pairs, new, splits = (problem.facts[key] for key in ("pairs", "new", "splits"))
    tested = np.zeros(len(pairs), dtype=int)
    folds = told.found[0]
    if len(folds) != splits ** (2 if new == "both" else 1):
        raise Dishonest(f"{len(folds)} splits")
    for train, test in folds:
        tested[test] += 1
        if set(train) & set(test) or not len(train) or not len(test):
            raise Dishonest("a row is on both sides, or a side is empty")
        known = [set(map(tuple, pairs[train])), set(pairs[train, 0]), set(pairs[train, 1])]
        seen = [set(map(tuple, pairs[test])), set(pairs[test, 0]), set(pairs[test, 1])]
        sides = {"pairs": (0,), "left": (0, 1), "right": (0, 2), "both": (0, 1, 2)}[new]
        for side in sides:
            if known[side] & seen[side]:
                what = ("pair", "left member", "right member")[side]
                raise Dishonest(f"a {what} of the test part is in the training part")
        if new != "both" and len(train) + len(test) != len(pairs):
            raise Dishonest("a row is in neither part")
    if np.any(tested != 1):
        raise Dishonest("a row is tested more than once, or never")
    return "folds"


# Few events ---------------------------------------------------------------------------------------


def _events(rng: np.random.Generator) -> Twins:
    X, score = _data(rng, "regressor")
    n = len(X)
    event = np.zeros(n)
    event[rng.permutation(n)[: int(_pick(rng, {1: 3, 2: 2, 4: 3}))]] = 1.0
    time = np.exp(score / np.std(score))
    time = np.ceil(4.0 * time) if rng.random() < 0.3 else time
    if rng.random() < 0.2:  # the only event may be the last, which nothing outlives
        time[event > 0] = time.max() + 1.0
    loss = str(_pick(rng, {"cox": 2, "rank": 2, "censored": 1}))
    kernels = _kernels(rng, X.shape[1], 2)
    form = str(_pick(rng, {"search": 3, "plain": 1}))
    cv = int(rng.integers(2, 4))

    def make() -> Any:
        if form == "plain":
            return km.MKLSurvival(kernels, loss=loss, C=1.0)
        return km.MKLSurvivalCV(
            kernels, loss=loss, Cs=[0.01, 0.1, 1.0], norms=(1, "uniform"), cv=cv
        )

    facts = {"loss": loss, "form": form, "events": int(event.sum()), "kernels": kernels}
    return Twins("events", [make], [(X, np.column_stack([event, time]), {})], X, facts)


def _check_events(problem: Twins, told: Told) -> str:
    (model,), ((X, y, _),) = told.found, problem.inputs
    for name in ("weights_", "dual_coef_", "intercept_", "objective_"):
        if not np.all(np.isfinite(getattr(model, name))):
            raise Dishonest(f"{name} is not finite")
    _outputs(model, X)
    if problem.facts["form"] == "search":
        scores = np.array(list(model.scores_by_norm_.values()))
        if not np.isfinite(model.best_score_) or model.C_ not in model.Cs_:
            raise Dishonest(
                f"C_={model.C_}, best_score_={model.best_score_}, scores {scores.mean(axis=1)}"
            )
        uniform = {"weights": "uniform"} if model.norm_ == "uniform" else {"norm": model.norm_}
        alone = km.MKLSurvival(
            problem.facts["kernels"], loss=problem.facts["loss"], C=model.C_, **uniform
        )
        _check_alike(
            model,
            alone.fit(StandardScaler().fit_transform(X), y),
            "search and the same by itself",
            1e-7,
        )
    if hasattr(model, "predict_survival_function"):
        curves = np.asarray(model.predict_survival_function(X, return_array=True), dtype=float)
        if not np.all((curves >= 0) & (curves <= 1)) or np.any(np.diff(curves, axis=1) > 1e-12):
            raise Dishonest("a survival function is not between one and zero, or rises")
    return "gap"


# Copies -------------------------------------------------------------------------------------------


def _copy(rng: np.random.Generator) -> Twins:
    machine = str(
        _pick(
            rng,
            {"MKLClassifierCV": 3, "MKLRegressorCV": 3, "MKLRidgeCV": 3, "MKLRidgeClassifierCV": 1},
        )
    )
    kind = {
        "MKLClassifierCV": "two" if rng.random() < 0.8 else "classes",
        "MKLRidgeClassifierCV": "classes",
    }
    X, y = _data(rng, kind.get(machine, "regressor"), int(rng.integers(12, 28)))
    d = X.shape[1]
    kernels = _kernels(rng, d)
    change = str(_pick(rng, {"last bits": 2, "columns": 1, "both": 1}))
    # Columns with nothing in them, on which scores are plateaus, and ones that say all.
    if rng.random() < 0.3:
        y = rng.permutation(y)
    elif rng.random() < 0.3 and machine == "MKLClassifierCV":
        X[:, 0] = y + 0.01 * X[:, 0]
    place = rng.permutation(d) if change != "last bits" else np.arange(d)
    Z = X[:, np.argsort(place)]
    if change != "columns":
        Z = np.nextafter(Z, np.where(rng.random(Z.shape) < 0.5, -np.inf, np.inf))
    moved = [(name, kernel, [int(place[j]) for j in columns]) for name, kernel, columns in kernels]
    if machine.startswith("MKLRidge"):
        parameters: dict[str, Any] = {"random_state": 0}
        if rng.random() < 0.4:
            parameters["criterion"] = "evidence"
    else:
        # Large ones, where scores are plateaus, take many steps.
        spans = {(-2, 3): 2, (2, 6): 1} if len(np.unique(y)) != 3 else {(-2, 3): 1}
        Cs = np.logspace(*_pick(rng, spans), 4) if rng.random() < 0.8 else 4
        parameters = {"Cs": Cs, "cv": int(rng.integers(2, 4)), "norms": (1, "uniform"), "tol": 1e-6}
    makers = [lambda k=k: getattr(km, machine)(k, **parameters) for k in (kernels, moved)]
    facts = {"change": change, "kernels": kernels, "place": place}
    return Twins("copy", makers, [(X, y, {}), (Z, y, {})], X, facts)


def _check_copy(problem: Twins, told: Told) -> str:
    _raise_errors(told)
    (X, y, _), (Z, _, _) = problem.inputs
    a, b = told.found
    if hasattr(a, "alpha_"):
        # Constants of classes are calibrated on folds, which are dealt by what samples hold, column
        # after column.
        outputs = _outputs(a, X) - a.intercept_, _outputs(b, Z) - b.intercept_
        off = float(np.abs(outputs[0] - outputs[1]).max()) / max(float(np.ptp(y)), 1e-300)
        if not abs(np.log(a.alpha_ / b.alpha_)) <= 0.01 or not off <= 1e-3:
            raise Dishonest(
                f"alpha_ {a.alpha_:.6g}, of the copy {b.alpha_:.6g}; outputs differ by {off:.2g}"
                " of y"
            )
        return _check_weights(a, b)
    if (a.C_, a.norm_) == (b.C_, b.norm_):
        _check_alike(a, b, "problem and copy", 1e-8)
        try:
            return _check_weights(a, b)
        except Dishonest:
            # Where weights change the objective by less than `tol`, they are chosen by a smaller
            # one.
            if a.norm_ == "uniform":
                raise
            makers = zip((a, b), problem.inputs, strict=True)
            return _check_weights(
                *(_solved_more_exactly(model, X, y) for model, (X, y, _) in makers)
            )
    tables = [np.array(list(one.scores_by_norm_.values())) for one in (a, b)]
    said = f"C_={a.C_:.4g}, norm_={a.norm_}, of the copy {b.C_:.4g}, {b.norm_}"
    if hasattr(a, "classes_"):
        # A sample may be so near to the boundary that the last bits decide on its class.
        apart = np.nanmax(np.abs(tables[0] - tables[1]))
        if apart > 1e-9:
            return "flip"
        raise Dishonest(f"{said}, with the same scores")
    # What is within 4 tol of the best, relative to its distance from a perfect score, ties: scores
    # may lie at the edge.
    chosen = [(one.C_, one.norm_) for one in (a, b)]
    factors = np.geomspace(0.5, 2.0, 9)
    both = zip((a, b), tables, strict=True)
    if set(chosen) <= {
        _smoothest(model, table, factor) for model, table in both for factor in factors
    }:
        return "edge"
    raise Dishonest(
        f"{said}; mean scores {tables[0].mean(axis=1).tolist()} and"
        f" {tables[1].mean(axis=1).tolist()}"
    )


def _solved_more_exactly(model: Any, X: Array, y: Array) -> Any:
    """Return the fit of the chosen C and norm to a thousandth of the gap."""
    plain = getattr(km, type(model).__name__.removesuffix("CV"))
    return plain(model.kernels, C=model.C_, norm=model.norm_, tol=1e-3 * model.tol).fit(X, y)


def _smoothest(model: Any, scores: Array, factor: float) -> tuple[float, Any]:
    """Return the smallest C whose score ties with the best, and the first norm there, with a
    multiple of the margin."""
    means = scores.mean(axis=1)
    best = np.nanmax(means)
    margin = factor * max(4.0 * model.tol * abs((1.0 if best > 0 else 0.0) - best), 1e-12)
    i = int(np.flatnonzero((means >= best - margin).any(axis=0))[0])
    m = int(np.argmax(means[:, i] >= np.nanmax(means[:, i]) - margin))
    return float(model.Cs_[i]), list(model.scores_by_norm_)[m]


def _check_weights(a: Any, b: Any) -> str:
    """Hold chosen kernels to each other: none has a share of its own in one model and none in the
    other."""
    left, right = (
        np.atleast_2d(one.weights_) / max(float(np.max(one.weights_)), 1e-300) for one in (a, b)
    )
    if np.any((np.minimum(left, right) == 0) & (np.maximum(left, right) > 0.05)):
        raise Dishonest(f"weights {a.weights_}, of the copy {b.weights_}")
    return "gap"


_DRAWN = {
    "single": _single,
    "steps": _steps,
    "names": _names,
    "pairs": _pairs,
    "events": _events,
    "copy": _copy,
}
_JUDGES = {
    "single": _check_single,
    "steps": _check_steps,
    "names": _check_names,
    "pairs": _check_pairs,
    "events": _check_events,
    "copy": _check_copy,
}
