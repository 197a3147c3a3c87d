"""Problems of everything around the solvers: weights and groups of samples, rows, columns, tables,
files and threads.

Every family draws one kind of use, fits it, and holds the answers to what must be true of them
whatever the method:

- machines of least squares with `groups`, `sample_weight`, `class_weight` and `subsample`, exact
  and in features, are those of their linear system, and leave-one-out predictions those of refits
  without the group, both written here;
- fits to shuffled rows, to weights times a constant, and to tables in another order agree;
- clusters of a graph of several components are the components, which a plain search finds;
- views that hardly a sample shares, targets that are missing, tables of swapped widths, names in
  another order and functions that are no kernels are answered rightly, or refused by an error that
  names them;
- tables in every format of files give the texts that were written, and the predictions of those
  rows in Python;
- threads that predict together get the answers of one, and leave the limits of threads as they
  were; all of several processes that save to one file succeed.

The family of a problem is its number modulo the number of families, so that a short run has all of
them.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from tests.campaign.certificates import Dishonest
from tests.campaign.problems import _pick

import kernelmosaic as km
from kernelmosaic.kernels import Categorical, Gaussian, Kernel, Linear, Polynomial
from kernelmosaic.ridge import tuning

Array = np.ndarray
#: Where the package is, for processes of their own.
_SOURCE = Path(km.__file__).parent.parent


@dataclass
class Answers:
    """What fits and predictions answered, by name: arrays, models or errors.

    Attributes
    ----------
    warned : bool
        Whether a fit warned that it did not converge.
    """

    values: dict[str, Any]
    warned: bool
    # Gaps are compared here, not by the runner.
    tol: float = np.inf
    duality_gap_: float = 0.0


@dataclass(frozen=True)
class Trial:
    """One problem.

    Attributes
    ----------
    family : str
        One of `FAMILIES`.
    make : callable
        Returns the estimator, not fitted.
    X : ndarray
        Its samples, complete.
    facts : dict
        What else the family needs.
    """

    family: str
    make: Callable[[], Any]
    X: Array
    facts: dict[str, Any] = field(default_factory=dict)
    joint: bool = False

    def estimator(self) -> Any:
        return self.make()

    def fit(self, estimator: Any) -> Answers:
        """Return the answers of the family to this problem."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            values = FAMILIES[self.family].answer(self)
        for warning in caught:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
        return Answers(
            values, any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
        )

    def __str__(self) -> str:
        short = {
            key: value
            for key, value in self.facts.items()
            if isinstance(value, str | int | float | bool)
        }
        facts = ", ".join(f"{key}={value!r}" for key, value in short.items())
        return f"{self.family}: {self.make()!r} on {len(self.X)} samples; {facts}"


@dataclass(frozen=True)
class Family:
    """How problems of one kind are drawn, answered and judged.

    Attributes
    ----------
    draw : callable
        From a random generator to a trial.
    answer : callable
        From a trial to answers by name; the library is called here.
    judge : callable
        Raises `Dishonest` if the answers to a trial are wrong, or returns how they were shown to be
        right.
    """

    draw: Callable[[np.random.Generator], Trial]
    answer: Callable[[Trial], dict[str, Any]]
    judge: Callable[[Trial, Answers], str]


def draw(seed: int, index: int) -> Trial:
    """Return problem number `index` of a seed."""
    names = list(FAMILIES)
    name = names[index % len(names)]
    return FAMILIES[name].draw(np.random.default_rng([seed, index, 7]))


def check_fit(trial: Trial, answers: Answers) -> str:
    """Raise `Dishonest` unless the answers are right; return how that was shown."""
    return FAMILIES[trial.family].judge(trial, answers)


# Samples, targets and outputs ---------------------------------------------------------------------


def _samples(rng: np.random.Generator, n: int, d: int) -> tuple[Array, Array]:
    """Return samples and a score that depends on them."""
    X = rng.normal(size=(n, d))
    noise = rng.choice([0.1, 0.7]) * rng.normal(size=n)
    return X, X @ rng.normal(size=d) + np.sin(2.0 * X[:, 0]) + noise


def _classes(score: Array, n_classes: int) -> Array:
    return np.asarray(np.argsort(np.argsort(score)) * n_classes // len(score))


def _outputs(model: Any, X: Any) -> Array:
    """Return the outputs for samples, one column each; raise if one is not finite."""
    decide = getattr(model, "decision_function", None) or model.predict
    outputs = np.asarray(decide(X), dtype=float)
    if not np.all(np.isfinite(outputs)):
        raise Dishonest("an output is not finite")
    return outputs.reshape(len(outputs), -1)


def _attempt(action: Callable[[], Any]) -> Any:
    """Return what an action returns, or its ValueError; other errors are crashes."""
    try:
        return action()
    except ValueError as error:
        return error


def _require_refusal(answer: Any, words: tuple[str, ...], what: str) -> None:
    """Raise unless the answer is an error that has one of the words."""
    if not isinstance(answer, Exception):
        raise Dishonest(f"{what} is taken without a word")
    if not any(word in str(answer) for word in words):
        raise Dishonest(f"{what}: the error names none of {words}: {answer}")


def _require_equal(answer: Any, expected: Array, what: str, off: float = 1e-8) -> None:
    """Raise unless the answer is an array that is nearly the expected one."""
    if isinstance(answer, Exception):
        raise Dishonest(f"{what} is refused: {answer}")
    answer = np.asarray(answer, dtype=float).reshape(expected.shape)
    size = 1.0 + float(np.abs(expected).max(initial=0.0))
    distance = float(np.abs(answer - expected).max(initial=0.0))
    if not distance <= off * size:
        raise Dishonest(f"{what}: off by {distance:.2g}, {off * size:.2g} allowed")


def _require_bounds(first: Any, second: Any, what: str) -> None:
    """Raise if one model of a convex problem is worth more than the other one proves to be
    possible."""
    lower_bounds = [
        model.objective_ - model.duality_gap_ * abs(model.objective_) for model in (first, second)
    ]
    rounding = 1e-9 * (abs(first.objective_) + abs(second.objective_))
    if max(lower_bounds) > min(first.objective_, second.objective_) + rounding:
        raise Dishonest(
            f"{what}: objectives {first.objective_:.9g} and {second.objective_:.9g}, gaps "
            f"{first.duality_gap_:.2g} and {second.duality_gap_:.2g}"
        )


# Least squares with groups, weights, class weights and some samples to learn from -----------------

#: Kernels as the library has them, and their formulas; those of the second row have few features.
_FORMULAS: dict[str, tuple[Callable[[], Any], Callable[[Array, Array], Array]]] = {
    "gaussian": (lambda: Gaussian(1.5), lambda A, B: np.exp(-_squares(A, B) / 1.5**2)),
    "wide": (lambda: Gaussian(4.0), lambda A, B: np.exp(-_squares(A, B) / 4.0**2)),
    "linear": (lambda: Linear(), lambda A, B: A @ B.T),
    "quadratic": (lambda: Polynomial(2), lambda A, B: (A @ B.T + 1.0) ** 2),
}
_FEW_FEATURES = ("linear", "quadratic")


def _squares(A: Array, B: Array) -> Array:
    return np.asarray(((A[:, np.newaxis] - B) ** 2).sum(axis=2))


def _draw_weights(rng: np.random.Generator, n: int) -> Array | None:
    if rng.random() < 0.35:
        return None
    decades = float(rng.choice([0.3, 1.0, 2.0]))
    weight = 10.0 ** rng.uniform(-decades, decades, n)
    if rng.random() < 0.3:
        weight[rng.random(n) < 0.2] = 0.0
    return np.asarray(weight)


def _draw_groups(rng: np.random.Generator, n: int, weight: Array | None) -> Array | None:
    """Return labels of groups, at least two of which have samples of positive weight; None for no
    groups."""
    if rng.random() < 0.35:
        return None
    labels = rng.integers(int(rng.choice([2, 4, max(n // 3, 3)])), size=n)
    if rng.random() < 0.4:  # a large group, and one of a few samples
        labels = np.zeros(n, dtype=int)
        labels[rng.choice(n, int(rng.integers(1, 4)), replace=False)] = 1
    elif rng.random() < 0.3:  # in turn
        labels = np.arange(n) % 2
    counted = labels if weight is None else labels[weight > 0]
    return labels if len(np.unique(counted)) > 1 else None


def _draw_ridge(rng: np.random.Generator, family: str) -> Trial:
    in_features = family == "features"
    n = int(rng.integers(40, 90)) if in_features else int(rng.integers(14, 60))
    X, score = _samples(rng, n, int(rng.integers(1, 4)))
    is_classifier = bool(rng.random() < 0.5)
    y = _classes(score, int(rng.integers(2, 4))) if is_classifier else score
    weight = _draw_weights(rng, n)
    if weight is not None and is_classifier:  # every class keeps two samples
        for label in np.unique(y):
            rows = np.flatnonzero(y == label)[:2]
            weight[rows] = np.maximum(weight[rows], 0.5)
    names = list(_FEW_FEATURES) if in_features else list(_FORMULAS)
    kernels = [str(name) for name in rng.permutation(names)[: int(rng.integers(1, len(names) + 1))]]
    most = n // 2 if in_features else n + 5
    subsample = _pick(rng, {"some": 4, "all": 1, "more": 1})
    parameters: dict[str, Any] = {
        "scale": False,
        "normalize": None,
        "random_state": 0,
        "criterion": _pick(rng, {"loo": 3, "evidence": 1}),
        "subsample": (
            None
            if subsample == "all"
            else n + 3
            if subsample == "more"
            else int(rng.integers(6, most))
        ),
    }
    if in_features:
        parameters["subsample"] = int(rng.integers(10, most))
    if rng.random() < 0.2:
        parameters["alpha"] = 10.0 ** float(rng.uniform(-2, 1))
    if is_classifier:
        factors = {int(label): float(rng.uniform(0.2, 5.0)) for label in np.unique(y)}
        parameters["class_weight"] = [None, "balanced", factors][int(rng.integers(3))]
    machine = km.MKLRidgeClassifierCV if is_classifier else km.MKLRidgeCV
    options = {"sample_weight": weight, "groups": _draw_groups(rng, n, weight)}
    facts = {
        "y": y,
        "options": {name: value for name, value in options.items() if value is not None},
        "kernels": kernels,
        "new": rng.normal(size=(6, X.shape[1])),
        "order": rng.permutation(n),
        "given": ", ".join(name for name, value in options.items() if value is not None),
        "exact_up_to": 30 if in_features else 10**6,
    }

    def make() -> Any:
        return machine([(name, _FORMULAS[name][0]()) for name in kernels], **parameters)

    return Trial(family, make, X, facts)


@contextmanager
def _exact_systems_up_to(n_samples: int) -> Iterator[None]:
    """Let ridge estimators take features above so many samples."""
    limit = tuning.EXACT_UP_TO
    tuning.EXACT_UP_TO = n_samples
    try:
        yield
    finally:
        tuning.EXACT_UP_TO = limit


def _answer_ridge(trial: Trial) -> dict[str, Any]:
    X, y, options, order = trial.X, trial.facts["y"], trial.facts["options"], trial.facts["order"]
    with _exact_systems_up_to(trial.facts["exact_up_to"]):
        model = trial.make().fit(X, y, **options)
        shuffled = trial.make().fit(
            X[order], y[order], **{name: value[order] for name, value in options.items()}
        )
    new = trial.facts["new"]
    left_out = np.asarray(model.loo_predictions_)
    shuffled_left_out = np.empty_like(left_out)
    shuffled_left_out[order] = shuffled.loo_predictions_
    return {
        "model": model,
        "outputs": _outputs(model, new),
        "left_out": left_out,
        "shuffled": _outputs(shuffled, new),
        "shuffled_left_out": shuffled_left_out,
    }


def _total_weights(trial: Trial) -> Array:
    """Return the weight of every sample times the factor of its class."""
    y = trial.facts["y"]
    weight = np.array(trial.facts["options"].get("sample_weight", np.ones(len(y))))
    factors = getattr(trial.make(), "class_weight", None)
    if factors is None:
        return weight
    for label in np.unique(y):
        members = y == label
        if factors == "balanced":
            share = weight[members].sum() / weight.sum()
            factor = 1.0 / (len(np.unique(y)) * share)
            weight = np.where(members, weight * factor, weight) if share > 0 else weight
        else:
            weight = np.where(members, weight * factors[int(label)], weight)
    return weight


def _class_totals_first(trial: Trial) -> Array:
    """Return the same weights, "balanced" by the totals of the weights as they were given."""
    y = trial.facts["y"]
    given = np.array(trial.facts["options"].get("sample_weight", np.ones(len(y))))
    if getattr(trial.make(), "class_weight", None) != "balanced":
        return _total_weights(trial)
    labels = np.unique(y, return_inverse=True)[1]
    totals = np.bincount(labels, weights=given)
    return np.asarray(given * given.sum() / (len(totals) * totals[labels]))


def _solved(K: Array, ridge_terms: Array, Y: Array) -> tuple[Array, Array]:
    """Return coefficients and constants: (K + R) β + b = y, Σ β = 0."""
    one = np.ones((len(K), 1))
    A = np.block([[K + np.diag(ridge_terms), one], [one.T, np.zeros((1, 1))]])
    solution = np.linalg.solve(A, np.vstack([Y, np.zeros((1, Y.shape[1]))]))
    return solution[:-1], solution[-1]


def _left_out_by_refits(K: Array, weight: Array, alpha: float, Y: Array, groups: Array) -> Array:
    """Return the outputs of every sample by the machine without its group, each from its own linear
    system."""
    outputs = np.empty_like(Y)
    for label in np.unique(groups):
        own = groups == label
        rest = np.flatnonzero(~own & (weight > 0))
        beta, constant = _solved(K[np.ix_(rest, rest)], alpha / weight[rest], Y[rest])
        outputs[own] = K[np.ix_(own, rest)] @ beta + constant
    return outputs


def _judge_ridge(trial: Trial, answers: Answers) -> str:
    values, y = answers.values, trial.facts["y"]
    model = values["model"]
    in_features = trial.family == "features"
    is_classifier = hasattr(model, "classes_")
    if is_classifier:
        member = (y[:, np.newaxis] == model.classes_).astype(float)
        Y = 2.0 * member[:, 1:] - 1.0 if len(model.classes_) == 2 else member
    else:
        Y = y[:, np.newaxis]
    weight, alpha = _class_totals_first(trial), float(model.alpha_)
    counted = weight > 0
    eta = np.asarray(model.weights_, dtype=float)
    formulas = [_FORMULAS[name][1] for name in trial.facts["kernels"]]
    X, new = trial.X, trial.facts["new"]
    K = sum(e * formula(X, X) for e, formula in zip(eta, formulas, strict=True))
    new_K = sum(e * formula(new, X[counted]) for e, formula in zip(eta, formulas, strict=True))
    own = K[np.ix_(counted, counted)]
    system = own + np.diag(alpha / weight[counted])
    lost_digits = float(np.linalg.cond(system)) * 1e-15
    if lost_digits > 1e-7 or (in_features and np.min(eta) < 0.02 * np.sum(eta)):
        return "rounding"  # or a kernel of a small weight has fewer features than its rank
    off = (1e-5 if in_features else 1e-6) + 100.0 * lost_digits
    beta, constant = _solved(own, alpha / weight[counted], Y[counted])
    # The constants of classes are those of calibrated probabilities.
    shift = np.asarray(model.intercept_) - constant if is_classifier else np.zeros(Y.shape[1])
    expected = new_K @ beta + constant + shift
    _require_equal(
        values["outputs"], expected, "outputs of new samples beside their linear system", off
    )
    groups = trial.facts["options"].get("groups", np.arange(len(y)))
    left_out = _left_out_by_refits(K, weight, alpha, Y, groups)
    _check_left_out(model, values["left_out"], left_out + shift, off)
    if is_classifier:
        _check_accuracy(trial, model, left_out + shift, off)
    else:
        _check_slope(trial, model, K, weight, groups, left_out, answers.warned)
    if not answers.warned:
        _require_equal(values["shuffled"], values["outputs"], "shuffled rows, outputs", 1e-3)
        # Weights that are learned from a handful of samples, outside of the largest group, are
        # those of rounding.
        n_outside = len(y) - max(np.unique(groups, return_counts=True)[1])
        if not is_classifier and (model.weight_prior_ is None or n_outside >= 10):
            _require_equal(
                values["shuffled_left_out"], values["left_out"], "shuffled rows, left out", 1e-2
            )
    return "gap"


def _check_left_out(model: Any, stated: Array, expected: Array, off: float) -> None:
    """Hold leave-one-out predictions to refits; where weights are learned they are of weights from
    other samples."""
    if model.weight_prior_ is not None:
        return
    if not hasattr(model, "classes_"):
        _require_equal(
            stated, expected[:, 0], "loo_predictions_ beside refits without the group", 10.0 * off
        )
        return
    labels, margin = _labels_of(model, expected)
    wrong = (margin > 100.0 * off) & (labels != stated)
    if wrong.any():
        raise Dishonest(
            f"loo_predictions_ of sample {np.flatnonzero(wrong)[0]} is not that of a refit"
            " without it"
        )


def _labels_of(model: Any, outputs: Array) -> tuple[Array, Array]:
    """Return the classes that outputs say, and how clearly they do."""
    if outputs.shape[1] == 1:
        return model.classes_[(outputs[:, 0] > 0).astype(int)], np.abs(outputs[:, 0])
    ordered = np.sort(outputs, axis=1)
    return model.classes_[outputs.argmax(axis=1)], ordered[:, -1] - ordered[:, -2]


def _check_accuracy(trial: Trial, model: Any, expected: Array, off: float) -> None:
    """Hold the accuracy in training to that of refits."""
    y = trial.facts["y"]
    weight = np.asarray(trial.facts["options"].get("sample_weight", np.ones(len(y))))
    labels, margin = _labels_of(model, expected)
    score = float(weight @ (labels == y) / weight.sum())
    unclear = float(weight @ (margin <= 100.0 * off) / weight.sum())
    if abs(score - model.training_score_) > unclear + 1e-9:
        raise Dishonest(f"training_score_={model.training_score_:.6g}, of refits {score:.6g}")


def _check_slope(
    trial: Trial,
    model: Any,
    K: Array,
    weight: Array,
    groups: Array,
    left_out: Array,
    is_warned: bool,
) -> None:
    """Hold score and ridge to leave-one-out residuals of refits: the criterion of all samples is
    level in the ridge."""
    y = trial.facts["y"]
    share = weight / weight.sum()
    missed = share @ (y - left_out[:, 0]) ** 2
    spread = share @ (y - share @ y) ** 2
    score = 1.0 - missed / spread
    if abs(score - model.training_score_) > 1e-4 * (1.0 + abs(score)):
        raise Dishonest(f"training_score_={model.training_score_:.6g}, of refits {score:.6g}")
    stated = 1.0 - share @ (y - model.loo_predictions_) ** 2 / spread
    if abs(stated - model.best_score_) > 1e-6 * (1.0 + abs(stated)):
        raise Dishonest(f"best_score_={model.best_score_:.6g}, of loo_predictions_ {stated:.6g}")
    is_given = not isinstance(model.get_params()["alpha"], str)
    if is_given or is_warned or model.chosen_criterion_ != "loo" or missed < 1e-10 * np.var(y):
        return
    counted, n = weight > 0, int(np.sum(weight > 0))
    values = []
    for step in (-0.01, 0.01):
        residuals = (
            y
            - _left_out_by_refits(K, weight, model.alpha_ * np.exp(step), y[:, np.newaxis], groups)[
                :, 0
            ]
        )
        ridge_of_mean_weight = model.alpha_ * np.exp(step) / weight[counted].mean()
        prior = 0.05 * (np.log(ridge_of_mean_weight) + 1.0) ** 2
        values.append(0.5 * n * np.log(share @ residuals**2) + prior)
    slope = abs(values[1] - values[0]) / 0.02 / n
    if slope > 5.0 * model.tol:
        raise Dishonest(
            f"the criterion has a slope of {slope:.2g} in the ridge, by refits; tol={model.tol:g}"
        )


# Rows in another order ----------------------------------------------------------------------------


def _draw_rows(rng: np.random.Generator) -> Trial:
    machine = str(
        _pick(
            rng,
            {
                "MKLClassifier": 2,
                "MKLRegressor": 2,
                "MKLOneClass": 1,
                "DiscriminantMKLClassifier": 1,
                "MKLRidgeCV": 2,
                "MKLRidgeClassifierCV": 2,
                "MKLKernelPCA": 1,
            },
        )
    )
    n = int(rng.integers(20, 60))
    X, score = _samples(rng, n, 4)
    parameters: dict[str, Any] = {}
    if machine != "MKLOneClass" and rng.random() < 0.3:
        parameters |= {
            "approximation": "nystroem",
            "rank": int(rng.integers(3, 12)),
            "random_state": 0,
        }
    elif machine.startswith("MKLRidge"):
        parameters["subsample"] = int(rng.integers(8, n))
    is_mosaic = bool(rng.random() < 0.3) and "approximation" not in parameters
    kernels = [
        ("left", Gaussian(), [0, 1]),
        ("right", Gaussian(), [2, 3]),
        ("line", Linear(), [2, 3]),
    ]
    if (
        machine.startswith("MKLRidge")
        and not is_mosaic
        and "approximation" not in parameters
        and rng.random() < 0.3
    ):
        kernels[0] = ("left", Gaussian("learn"), [0, 1])
        parameters["max_iter"] = 200
    lacking = np.zeros((n, 4), dtype=bool)
    if is_mosaic:
        rows = rng.random(n) < 0.3
        lacking[np.ix_(rows, [2, 3])] = True
    no_targets = machine in ("MKLOneClass", "MKLKernelPCA")
    y = (
        None
        if no_targets
        else score
        if machine in ("MKLRegressor", "MKLRidgeCV")
        else _classes(score, 2)
    )
    takes_weights = machine not in ("DiscriminantMKLClassifier", "MKLKernelPCA")
    weight = rng.uniform(0.3, 3.0, n) if takes_weights and rng.random() < 0.4 else None
    facts = {
        "machine": machine,
        "y": y,
        "weight": weight,
        "lacking": lacking,
        "mosaic": is_mosaic,
        "order": rng.permutation(n),
        "new": rng.normal(size=(6, 4)),
    }

    def make() -> Any:
        return getattr(km, machine)(kernels, **parameters)

    return Trial("rows", make, X, facts)


def _fitted(trial: Trial, order: Array, factor: float = 1.0) -> Any:
    facts = trial.facts
    X = np.where(facts["lacking"], np.nan, trial.X)[order]
    options = {} if facts["weight"] is None else {"sample_weight": factor * facts["weight"][order]}
    targets = [] if facts["y"] is None else [facts["y"][order]]
    return trial.make().fit(X, *targets, **options)


def _answer_rows(trial: Trial) -> dict[str, Any]:
    return {
        "first": _fitted(trial, np.arange(len(trial.X))),
        "second": _fitted(trial, trial.facts["order"]),
    }


def _judge_rows(trial: Trial, answers: Answers) -> str:
    first, second = answers.values["first"], answers.values["second"]
    if hasattr(first, "duality_gap_"):
        _require_bounds(first, second, "shuffled rows")
        return "gap"
    if trial.facts["machine"] == "MKLKernelPCA":
        _require_equal(
            second.eigenvalues_, np.asarray(first.eigenvalues_), "shuffled rows, eigenvalues", 1e-6
        )
        return "gap"
    if answers.warned:
        return "unknown"
    new = trial.facts["new"]
    _require_equal(_outputs(second, new), _outputs(first, new), "shuffled rows", 1e-3)
    return "gap"


# Weights of samples times a constant --------------------------------------------------------------


def _draw_factor(rng: np.random.Generator) -> Trial:
    machine = str(
        _pick(
            rng, {"MKLRidgeCV": 2, "MKLRidgeClassifierCV": 2, "MKLClassifier": 1, "MKLRegressor": 1}
        )
    )
    n = int(rng.integers(15, 50))
    X, score = _samples(rng, n, 3)
    factor = 10.0 ** float(rng.uniform(-6, 6))
    is_ridge = machine.startswith("MKLRidge")
    parameters: dict[str, Any] = (
        {"tol": 1e-4} if is_ridge else {"C": 10.0 ** float(rng.uniform(-1, 1))}
    )
    if is_ridge:
        parameters |= {"criterion": _pick(rng, {"loo": 2, "evidence": 1})}
        if rng.random() < 0.4:
            parameters["subsample"] = int(rng.integers(8, n + 5))
    y = _classes(score, int(rng.integers(2, 4))) if "Classifier" in machine else score
    weight = np.ones(n) if rng.random() < 0.4 else rng.uniform(0.2, 4.0, n)
    facts = {
        "machine": machine,
        "y": y,
        "weight": weight,
        "lacking": np.zeros(X.shape, dtype=bool),
        "factor": factor,
        "new": rng.normal(size=(6, 3)),
        "parameters": parameters,
    }

    def make() -> Any:
        return getattr(km, machine)([Gaussian(), Linear(), Polynomial(2)], **parameters)

    return Trial("factor", make, X, facts)


def _answer_factor(trial: Trial) -> dict[str, Any]:
    every, factor = np.arange(len(trial.X)), trial.facts["factor"]
    first = _fitted(trial, every)
    if "C" not in trial.facts["parameters"]:
        return {"first": first, "second": _fitted(trial, every, factor)}
    # C is the price of a sample of weight one: a factor of all weights is one of C.
    parameters = trial.facts["parameters"] | {"C": trial.facts["parameters"]["C"] / factor}
    changed = replace(trial, make=lambda: trial.make().set_params(**parameters))
    return {"first": first, "second": _fitted(changed, every, factor)}


def _judge_factor(trial: Trial, answers: Answers) -> str:
    first, second = answers.values["first"], answers.values["second"]
    if hasattr(first, "duality_gap_"):
        _require_bounds(first, second, "weights times a constant")
        return "gap"
    if answers.warned:
        return "unknown"
    new = trial.facts["new"]
    _require_equal(_outputs(second, new), _outputs(first, new), "weights times a constant", 1e-3)
    if not np.isclose(first.best_score_, second.best_score_, rtol=0.0, atol=1e-3):
        raise Dishonest(
            f"weights times a constant: best_score_ {first.best_score_}, {second.best_score_}"
        )
    if not np.isclose(second.alpha_ / trial.facts["factor"], first.alpha_, rtol=0.1):
        raise Dishonest(
            f"weights times {trial.facts['factor']:.2g}: alpha_ {first.alpha_}, {second.alpha_}"
        )
    return "gap"


# Graphs of several components ---------------------------------------------------------------------


class ClusteringOfMany(km.MKLClustering):
    """Clusters as of many samples: Lanczos' method finds the eigenvectors of more than twenty."""

    def _options(self) -> Any:
        return replace(super()._options(), few_samples=20)


def _draw_components(rng: np.random.Generator) -> Trial:
    n_components = int(rng.integers(2, 8))
    sizes = rng.integers(12, 30, size=n_components)
    labels = rng.permutation(np.repeat(np.arange(n_components), sizes))
    n_views = int(rng.integers(1, 3))
    d = n_components
    X = np.hstack(
        [20.0 * np.eye(d)[labels] + rng.normal(size=(len(labels), d)) for _ in range(n_views)]
    )
    kernels = [(f"view{v}", Linear(), list(range(v * d, (v + 1) * d))) for v in range(n_views)]
    parameters = {
        "embedding": str(_pick(rng, {"graph": 2, "kernel": 1})),
        "random_state": int(rng.integers(100)),
        "scale": False,
        "n_neighbors": int(rng.integers(4, 8)),
    }
    parameters["n_clusters"] = "auto" if rng.random() < 0.5 else n_components
    facts = {"labels": labels, "order": rng.permutation(len(labels)), "components": n_components}

    def make() -> Any:
        return ClusteringOfMany(kernels=kernels, **parameters)

    return Trial("components", make, X, facts)


def _answer_components(trial: Trial) -> dict[str, Any]:
    model = trial.make().fit(trial.X)
    return {
        "model": model,
        "labels": np.asarray(model.labels_),
        "predicted": np.asarray(model.predict(trial.X)),
    }


def _neighbour_matrix(views: list[Array], weights: Array, n_neighbors: int) -> Array:
    """Return the matrix (A + Aᵀ) / 2 of the graph that joins every sample to its nearest ones.

    Kernels are linear ones, centred and divided by their mean diagonal.
    """
    n = len(views[0])
    distances = np.zeros((n, n))
    for view, weight in zip(views, weights, strict=True):
        mean_diagonal = float(((view - view.mean(axis=0)) ** 2).sum(axis=1).mean())
        distances += weight * _squares(view, view) / mean_diagonal
    np.fill_diagonal(distances, np.inf)
    A = np.zeros(distances.shape)
    for sample, row in enumerate(np.argsort(distances, axis=1)[:, :n_neighbors]):
        A[sample, row] = 1.0
    return 0.5 * (A + A.T)


def _count_components(W: Array) -> int:
    """Return the number of components of a graph, by a plain search."""
    unseen, n_components = set(range(len(W))), 0
    while unseen:
        n_components += 1
        front = {unseen.pop()}
        while front:
            neighbours = {int(i) for sample in front for i in np.flatnonzero(W[sample])}
            front = neighbours & unseen
            unseen -= front
    return n_components


def _suggested_clusters(W: Array) -> int | None:
    """Return the k from 2 to 10 with the largest gap between eigenvalues of the random walk.

    Components of few samples may consist of further clusters, so that it is not always the number
    of components. None where two gaps are equal to rounding.
    """
    degrees = W.sum(axis=1)
    eigenvalues = np.linalg.eigvalsh(W / np.sqrt(np.outer(degrees, degrees)))[::-1]
    gaps = eigenvalues[1:10] - eigenvalues[2:11]
    second, first = np.sort(gaps)[-2:]
    return None if first - second < 1e-6 else 2 + int(np.argmax(gaps))


def _judge_components(trial: Trial, answers: Answers) -> str:
    model, labels, n_components = (
        answers.values["model"],
        trial.facts["labels"],
        trial.facts["components"],
    )
    views = np.split(trial.X, len(model.weights_), axis=1)
    W = _neighbour_matrix(views, model.weights_, model.n_neighbors_)
    if _count_components(W) != n_components:
        return "unknown"
    if model.embedding == "graph":
        ones = int(np.sum(np.abs(np.asarray(model.eigenvalues_) - 1.0) < 1e-6))
        if ones != min(n_components, len(model.eigenvalues_)):
            raise Dishonest(
                f"{ones} eigenvalues of one, but the graph has {n_components} components"
            )
    n_expected = n_components if model.n_clusters != "auto" else _suggested_clusters(W)
    if n_expected is None:
        return "unknown"
    if model.n_clusters_ != n_expected:
        raise Dishonest(
            f"{model.n_clusters_} clusters, but the eigenvalues of the graph suggest {n_expected}"
        )
    if n_expected != n_components:
        return "gap"
    for name in ("labels", "predicted"):
        agreement = adjusted_rand_score(labels, answers.values[name])
        if agreement < 1.0 - 1e-9:
            raise Dishonest(
                f"{name}: clusters are not the components, adjusted Rand index {agreement:.3f}"
            )
    return "gap"


# Views without common samples ---------------------------------------------------------------------


def _draw_mosaic(rng: np.random.Generator) -> Trial:
    n, n_views = int(rng.integers(12, 50)), int(rng.integers(2, 5))
    hidden = rng.normal(size=(n, 2))
    X = np.hstack(
        [hidden @ rng.normal(size=(2, 3)) + 0.1 * rng.normal(size=(n, 3)) for _ in range(n_views)]
    )
    present = rng.random((n, n_views)) < 0.6
    kind = str(_pick(rng, {"disjoint": 3, "random": 2, "constant": 1, "new": 1}))
    cut = int(rng.integers(2, n - 2))
    if kind in ("disjoint", "constant"):  # the first and the last view share no sample
        present[:, 0], present[:, -1] = np.arange(n) < cut, np.arange(n) >= cut
        if n_views > 2:
            present[:, 1] = True
    elif kind == "new":  # complete samples, and new ones that lack views
        present[:] = True
    present[np.arange(n), rng.integers(n_views, size=n)] |= ~present.any(axis=1)
    if kind == "constant":
        X[:, :3] = 1.0
    machine = str(
        _pick(
            rng,
            {
                "MKLKernelPCA": 3,
                "MKLClustering": 2,
                "MKLClassifier": 2,
                "MKLRidgeClassifierCV": 2,
                "MKLRidgeCV": 1,
            },
        )
    )
    parameters: dict[str, Any] = {}
    if machine in ("MKLKernelPCA", "MKLClustering"):
        parameters["weights"] = _pick(rng, {"screen": 1, "statis": 2})
    if machine == "MKLClustering":
        parameters |= {
            "n_clusters": 2,
            "random_state": 0,
            "embedding": str(rng.choice(["kernel", "graph"])),
        }
    y = hidden[:, 0] if machine == "MKLRidgeCV" else _classes(hidden[:, 0], 2)
    new_present = rng.random((4, n_views)) < 0.6
    new_present[np.arange(4), rng.integers(n_views, size=4)] = True
    facts = {
        "kind": kind,
        "machine": machine,
        "present": present,
        "new_present": new_present,
        "y": y,
    }

    def make() -> Any:
        return getattr(km, machine)(**parameters)

    return Trial("mosaic", make, X, facts)


def _views_of(X: Array, present: Array) -> dict[str, Array]:
    """Return three columns each as a view, NaN where it is lacking."""
    views = {}
    for v in range(present.shape[1]):
        view = X[:, 3 * v : 3 * v + 3].copy()
        view[~present[:, v]] = np.nan
        views[f"view{v}"] = view
    return views


def _answer_mosaic(trial: Trial) -> dict[str, Any]:
    views = _views_of(trial.X, trial.facts["present"])
    new = _views_of(trial.X[:4], trial.facts["new_present"])

    def fit() -> Any:
        return trial.make().fit(views, trial.facts["y"])

    model = _attempt(fit)
    if isinstance(model, Exception):
        return {"model": model}
    decide = model.transform if trial.facts["machine"] == "MKLKernelPCA" else model.predict
    return {"model": model, "new": np.asarray(decide(new)), "weights": np.asarray(model.weights_)}


def _judge_mosaic(trial: Trial, answers: Answers) -> str:
    values = answers.values
    if isinstance(values["model"], Exception):
        if trial.facts["kind"] == "new":
            raise Dishonest(f"complete samples are refused: {values['model']}")
        _require_refusal(values["model"], ("view", "X"), "views without common samples")
        return "error"
    weights = values["weights"]
    if not (np.all(np.isfinite(weights)) and np.all(weights >= 0) and weights.sum() > 0):
        raise Dishonest(f"weights_ {weights}")
    if not np.all(np.isfinite(np.asarray(values["new"], dtype=float))):
        raise Dishonest("an answer for samples that lack views is not finite")
    return "gap"


# Tables of swapped widths, names in another order -------------------------------------------------


def _draw_widths(rng: np.random.Generator) -> Trial:
    widths = rng.permutation(np.arange(1, 5))[: int(rng.integers(2, 4))]
    n = int(rng.integers(15, 40))
    X, score = _samples(rng, n, int(widths.sum()))
    machine = str(_pick(rng, {"MKLClassifier": 1, "MKLRidgeClassifierCV": 1, "MKLRegressor": 1}))
    y = score if machine == "MKLRegressor" else _classes(score, 2)
    facts = {
        "machine": machine,
        "widths": [int(width) for width in widths],
        "y": y,
        "form": str(_pick(rng, {"dict": 2, "list": 1, "frames": 2})),
        "swap": [
            int(v) for v in np.roll(np.arange(len(widths)), int(rng.integers(1, len(widths))))
        ],
    }

    def make() -> Any:
        return getattr(km, machine)()

    return Trial("widths", make, X, facts)


def _tables(X: Array, widths: list[int], form: str) -> list[Any]:
    import pandas as pd

    parts = np.split(X, np.cumsum(widths)[:-1], axis=1)
    if form != "frames":
        return list(parts)
    return [
        pd.DataFrame(part, columns=[f"t{v}_{j}" for j in range(part.shape[1])])
        for v, part in enumerate(parts)
    ]


def _answer_widths(trial: Trial) -> dict[str, Any]:
    facts = trial.facts
    tables = _tables(trial.X, facts["widths"], facts["form"])
    names = [f"table{v}" for v in range(len(tables))]
    swapped = [tables[v] for v in facts["swap"]]
    if facts["form"] == "list":
        model = trial.make().fit(tables, facts["y"])
        return {
            "outputs": _outputs(model, tables),
            "swapped": _attempt(lambda: _outputs(model, swapped)),
        }
    model = trial.make().fit(dict(zip(names, tables, strict=True)), facts["y"])
    backwards = dict(reversed(list(zip(names, tables, strict=True))))
    return {
        "outputs": _outputs(model, dict(zip(names, tables, strict=True))),
        "swapped": _attempt(lambda: _outputs(model, dict(zip(names, swapped, strict=True)))),
        "backwards": _attempt(lambda: _outputs(model, backwards)),
        "fewer": _attempt(
            lambda: _outputs(model, {names[0]: np.hstack([np.asarray(table) for table in tables])})
        ),
    }


def _judge_widths(trial: Trial, answers: Answers) -> str:
    values = answers.values
    words = ("table", "column", "feature", "name")
    _require_refusal(values["swapped"], words, "tables of swapped widths")
    if "backwards" in values and not isinstance(values["backwards"], Exception):
        _require_equal(values["backwards"], values["outputs"], "tables in another order")
    if "fewer" in values:
        _require_refusal(values["fewer"], words, "one table in place of several")
    return "gap"


def _draw_orders(rng: np.random.Generator) -> Trial:
    n = int(rng.integers(15, 40))
    X, score = _samples(rng, n, 5)
    machine = str(_pick(rng, {"MKLClassifier": 1, "MKLRidgeClassifierCV": 1, "MKLRidgeCV": 1}))
    y = score if machine == "MKLRidgeCV" else _classes(score, 2)
    columns = rng.permutation(5)
    rows = rng.permutation(n)
    facts = {
        "machine": machine,
        "y": y,
        "columns": columns if not np.array_equal(columns, np.arange(5)) else columns[::-1],
        "rows": rows if not np.array_equal(rows, np.arange(n)) else rows[::-1],
    }

    def make() -> Any:
        return getattr(km, machine)(
            [("a", Gaussian(), ["c0", "c1", "c2"]), ("b", Linear(), ["c3", "c4"])]
        )

    return Trial("orders", make, X, facts)


def _answer_orders(trial: Trial) -> dict[str, Any]:
    import pandas as pd

    from kernelmosaic.single_cell import to_anndata

    facts = trial.facts
    n = len(trial.X)
    names = pd.Index([f"cell {i}" for i in range(n)])
    frame = pd.DataFrame(trial.X, index=names, columns=[f"c{j}" for j in range(5)])
    y = pd.Series(facts["y"], index=names)
    model = trial.make().fit(frame, y)
    shuffled = frame.iloc[facts["rows"]]
    cells = SimpleNamespace(
        X=None,
        obs=pd.DataFrame(index=names),
        obs_names=names,
        shape=(n, 5),
        obsm={},
        uns={},
        layers={},
        raw=None,
    )

    def written() -> Any:
        to_anndata(model, cells, X=shuffled)
        return cells.obs["mkl"].to_numpy()

    def score_of_shuffled() -> float:
        return float(model.score(shuffled, y))

    weight = pd.Series(np.linspace(1.0, 2.0, n), index=names)
    return {
        "predictions": np.asarray(model.predict(frame)),
        "columns": _attempt(lambda: model.predict(frame.iloc[:, facts["columns"]])),
        "rows": np.asarray(model.predict(shuffled)),
        "written": _attempt(written),
        "score": float(model.score(frame, y)),
        "shuffled score": _attempt(score_of_shuffled),
        "shuffled targets": _attempt(lambda: trial.make().fit(shuffled, y)),
        "shuffled weights": _attempt(
            lambda: trial.make().fit(frame, y, sample_weight=weight.iloc[facts["rows"]])
        ),
    }


def _judge_orders(trial: Trial, answers: Answers) -> str:
    values, predictions = answers.values, answers.values["predictions"]

    def same(answer: Any, expected: Array) -> bool:
        return bool(
            np.allclose(
                np.asarray(answer, dtype=float), np.asarray(expected, dtype=float), atol=1e-8
            )
        )

    if not same(values["rows"], predictions[trial.facts["rows"]]):
        raise Dishonest("predictions of shuffled rows are not those of the rows")
    for name in ("columns", "written"):
        answer = values[name]
        if isinstance(answer, Exception):
            _require_refusal(answer, ("feature names", "column", "rows", "X"), name)
        elif not same(answer, predictions):
            raise Dishonest(f"{name} in another order: predictions of others")
    if not isinstance(values["shuffled score"], Exception) and not np.isclose(
        values["shuffled score"], values["score"], atol=1e-8
    ):
        raise Dishonest(
            f"score of targets in another order {values['shuffled score']}, of these"
            f" {values['score']}"
        )
    _require_refusal(values["shuffled targets"], ("y",), "targets in another order")
    _require_refusal(values["shuffled weights"], ("sample_weight",), "weights in another order")
    return "gap"


# Functions that are no kernels --------------------------------------------------------------------


class OfUser(Kernel):
    """A function of two samples that a user takes for a kernel.

    Parameters
    ----------
    formula : str
        "sigmoid", "distance", "power", "difference", "lopsided" and "narrow" are none, "bell" and
        "products" are.
    slope : float
        A factor of inner products and distances.
    """

    def __init__(self, formula: str = "bell", slope: float = 1.0) -> None:
        self.formula = formula
        self.slope = slope

    def _block(self, X: Array, Y: Array) -> Array:
        products, squares = self.slope * X @ Y.T, self.slope * _squares(X, Y)
        blocks = {
            "sigmoid": lambda: np.tanh(products - 1.0),
            "distance": lambda: squares,
            "power": lambda: np.exp(-(squares**2)),
            "difference": lambda: np.exp(-squares) - 0.6 * np.exp(-0.5 * squares),
            "lopsided": lambda: products + 0.1 * X[:, :1],
            "narrow": lambda: X[:, :1],
            "bell": lambda: np.exp(-squares),
            "products": lambda: products,
        }
        return np.asarray(blocks[self.formula]())


def _draw_indefinite(rng: np.random.Generator) -> Trial:
    n = int(rng.integers(12, 50))
    X, score = _samples(rng, n, int(rng.integers(1, 4)))
    shares = dict.fromkeys(
        ("sigmoid", "distance", "power", "difference", "lopsided", "narrow", "products"), 1.0
    )
    formula = str(_pick(rng, shares | {"bell": 2.0}))
    slope = 10.0 ** float(rng.uniform(-1, 1))
    machine = str(
        _pick(
            rng,
            {
                "MKLClassifier": 3,
                "MKLRegressor": 2,
                "MKLOneClass": 1,
                "MKLRidgeCV": 1,
                "MKLKernelPCA": 1,
            },
        )
    )
    parameters: dict[str, Any] = {}
    if rng.random() < 0.3:
        parameters["normalize"] = None
    y = score if machine in ("MKLRegressor", "MKLRidgeCV") else _classes(score, 2)
    facts = {"machine": machine, "y": y, "formula": formula, "slope": slope}
    beside = bool(rng.random() < 0.5)

    def make() -> Any:
        kernels = [("mine", OfUser(formula, slope))] + [("line", Linear())] * beside
        return getattr(km, machine)(kernels, **parameters)

    return Trial("indefinite", make, X, facts)


def _answer_indefinite(trial: Trial) -> dict[str, Any]:
    has_targets = trial.facts["machine"] not in ("MKLOneClass", "MKLKernelPCA")
    targets = [trial.facts["y"]] if has_targets else []
    return {"model": _attempt(lambda: trial.make().fit(trial.X, *targets))}


def _judge_indefinite(trial: Trial, answers: Answers) -> str:
    model, formula = answers.values["model"], trial.facts["formula"]
    # What estimators that standardise columns read is not what is given here.
    X = trial.X
    if getattr(trial.make(), "scale", False):
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    if formula == "narrow" and len(X) > 1:
        _require_refusal(model, ("kernel", "mine", "shape"), "a block of the wrong shape")
        return "error"
    K = OfUser(formula, trial.facts["slope"])._block(X, X)
    size = float(np.abs(K).max())
    asymmetry = float(np.abs(K - K.T).max()) / size
    smallest = float(np.linalg.eigvalsh(0.5 * (K + K.T))[0]) / (size * len(K))
    is_kernel = asymmetry < 1e-12 and smallest > -1e-14
    if isinstance(model, Exception):
        if is_kernel:
            raise Dishonest(
                f"{formula} is a kernel, its least eigenvalue {smallest:.2g}, and refused: {model}"
            )
        _require_refusal(model, ("kernel", "mine", "definite", "symmetric"), formula)
        return "error"
    if asymmetry > 1e-6 or smallest < -1e-6:
        gap = getattr(model, "duality_gap_", None)
        raise Dishonest(
            f"{formula} is fitted, gap {gap}: least eigenvalue {smallest:.2g}, asymmetry"
            f" {asymmetry:.2g}"
        )
    return "gap"


# Targets that lack values -------------------------------------------------------------------------


def _draw_targets(rng: np.random.Generator) -> Trial:
    n = int(rng.integers(12, 40))
    X, score = _samples(rng, n, 3)
    several = bool(rng.random() < 0.5)
    lacking = rng.choice(n, int(rng.integers(1, 4)), replace=False)
    mark = str(_pick(rng, {"None": 2, "nan": 2, "NA": 1, "inf": 1}))
    is_classifier = bool(rng.random() < 0.5) and not several
    names = (
        ["MKLClassifier", "MKLRidgeClassifierCV", "MKLClassifierCV", "DiscriminantMKLClassifier"]
        if is_classifier
        else ["MKLRegressor", "MKLRidgeCV", "MKLRegressorCV"]
    )
    machine = "MKLRidgeCV" if several else str(rng.choice(names))
    facts: dict[str, Any] = {
        "machine": machine,
        "several": several,
        "classifier": is_classifier,
        "mark": mark,
    }
    if several:
        n_targets = int(rng.integers(2, 5))
        Y = score[:, np.newaxis] * rng.normal(size=n_targets) + 0.3 * rng.normal(
            size=(n, n_targets)
        )
        Y[rng.random(Y.shape) < 0.2] = np.nan
        Y[:6] = np.where(np.isnan(Y[:6]), 0.5, Y[:6])
        facts |= {"Y": Y, "new": rng.normal(size=(5, 3))}
    else:
        facts |= {
            "score": score,
            "lacking": lacking,
            "form": str(_pick(rng, {"list": 1, "array": 1, "series": 2})),
        }
    parameters: dict[str, Any] = (
        {"per_target": True, "n_candidates": 40, "random_state": 0} if several else {}
    )
    if several:
        parameters |= {
            "weights": rng.uniform(0.2, 2.0, 2).round(3).tolist(),
            "scale": False,
            "normalize": None,
        }

    def make() -> Any:
        return getattr(km, machine)([Gaussian(1.5), Linear()], **parameters)

    return Trial("targets", make, X, facts)


def _targets_with_gaps(facts: dict[str, Any]) -> Any:
    import pandas as pd

    marks = {"None": None, "nan": np.nan, "NA": pd.NA, "inf": np.inf}
    values: list[Any] = facts["score"].tolist()
    if facts["classifier"]:
        values = np.where(_classes(facts["score"], 2), "case", "control").tolist()
    for row in facts["lacking"]:
        values[row] = (
            marks[facts["mark"]] if facts["mark"] != "inf" or not facts["classifier"] else None
        )
    if facts["form"] == "list":
        return values
    if facts["form"] == "array":
        return np.array(values, dtype=object)
    return pd.Series(values, dtype=object)


def _answer_targets(trial: Trial) -> dict[str, Any]:
    facts = trial.facts
    if not facts["several"]:
        return {"model": _attempt(lambda: trial.make().fit(trial.X, _targets_with_gaps(facts)))}
    model = trial.make().fit(trial.X, facts["Y"])
    return {
        "model": model,
        "outputs": np.asarray(model.predict(facts["new"])).reshape(len(facts["new"]), -1),
    }


def _judge_targets(trial: Trial, answers: Answers) -> str:
    facts, values = trial.facts, answers.values
    if not facts["several"]:
        _require_refusal(
            values["model"], ("y ", "y:", "target"), f"a target that is {facts['mark']}"
        )
        return "error"
    model, Y, new = values["model"], facts["Y"], facts["new"]
    formulas = (lambda A, B: np.exp(-_squares(A, B) / 1.5**2), lambda A, B: A @ B.T)
    for t in range(Y.shape[1]):
        has = np.flatnonzero(~np.isnan(Y[:, t]))
        eta, alpha = np.asarray(model.weights_)[t], float(np.asarray(model.alpha_)[t])
        K = sum(
            e * formula(trial.X[has], trial.X[has])
            for e, formula in zip(eta, formulas, strict=True)
        )
        new_K = sum(
            e * formula(new, trial.X[has]) for e, formula in zip(eta, formulas, strict=True)
        )
        if np.linalg.cond(K + alpha * np.eye(len(has))) > 1e8:
            continue
        beta, constant = _solved(K, np.full(len(has), alpha), Y[has, t : t + 1])
        expected = (new_K @ beta + constant)[:, 0]
        _require_equal(
            values["outputs"][:, t], expected, f"target {t} beside the samples that have it", 1e-5
        )
        left_out = _left_out_by_refits(
            K, np.ones(len(has)), alpha, Y[has, t : t + 1], np.arange(len(has))
        )
        score = 1.0 - np.sum((Y[has, t] - left_out[:, 0]) ** 2) / np.sum(
            (Y[has, t] - Y[has, t].mean()) ** 2
        )
        if abs(score - model.loo_scores_[t]) > 1e-4 * (1.0 + abs(score)):
            raise Dishonest(f"loo_scores_[{t}]={model.loo_scores_[t]:.6g}, of refits {score:.6g}")
    return "gap"


# Files --------------------------------------------------------------------------------------------

_CODES = (
    "01",
    "02",
    "10",
    "0",
    "1",
    "1.0",
    "1E5",
    "2e3",
    "-7",
    "1.10",
    "007",
    "True",
    "0x1F",
    "1_000",
    "+5",
)
_FORMATS = ("csv", "tsv", "parquet", "npz")


def _draw_files(rng: np.random.Generator) -> Trial:
    n = int(rng.integers(30, 50))
    X, score = _samples(rng, n, 2)
    X = np.round(X, 4)
    # Most cells are no numbers, and every text is there twice: the column is one of categories.
    codes = rng.permutation(_CODES)[: int(rng.integers(1, 5))]
    is_code = np.arange(n) < max(2 * len(codes), int(0.4 * n))
    site = np.where(is_code, np.resize(codes, n), np.resize(["A1", "b", "C"], n))
    order = rng.permutation(n)
    site, is_code = site[order], is_code[order]
    pool = np.flatnonzero(is_code) if rng.random() < 0.7 else np.arange(n)
    facts = {
        "y": np.round(score + np.unique(site, return_inverse=True)[1], 4),
        "site": site,
        "ids": rng.permutation([f"{i:03d}" if i % 2 else f"{i}E{i % 7}" for i in range(n)]),
        "learned from": str(rng.choice(_FORMATS)),
        "predicted from": str(rng.choice(_FORMATS)),
        "rows": rng.choice(pool, min(int(rng.integers(1, 7)), len(pool)), replace=False),
        "columns": rng.permutation(4),
    }
    if rng.random() < 0.4:  # classes whose names look like numbers
        names = rng.permutation(["01", "1", "1.0", "2E0"])[:2]
        facts["y"] = names[_classes(score, 2)]
    facts["classes"] = facts["y"].dtype.kind == "U"

    def make() -> Any:
        kernels = [("numbers", Linear(), ["a", "b"]), ("site", Categorical(), ["site"])]
        return (km.MKLClassifier if facts["classes"] else km.MKLRegressor)(kernels, C=1.0)

    return Trial("files", make, X, facts)


def _command(*arguments: object) -> tuple[int, str]:
    """Run the command line in this process; return its exit status and what it said."""
    from kernelmosaic.cli import main

    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        status = main([str(argument) for argument in arguments])
    return int(status), said.getvalue()


def _answer_files(trial: Trial) -> dict[str, Any]:
    import pandas as pd
    from tests.cli.tables import write_as

    facts = trial.facts
    table = pd.DataFrame(
        {"id": facts["ids"], "a": trial.X[:, 0], "b": trial.X[:, 1], "site": facts["site"]}
    )
    rows = facts["rows"]
    new = table.iloc[rows, facts["columns"]]
    views = ("--view", "numbers=a,b:linear", "--view", "site=site:linear")
    task = "classification" if facts["classes"] else "regression"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        learned = write_as(table.assign(y=facts["y"]), folder / f"train.{facts['learned from']}")
        model = folder / "model.skops"
        fit = ["fit", learned, "--target", "y", "--task", task, *views]
        fitted = _command(*fit, "--C", "1", "--folds", "0", "-o", model)
        if fitted[0] != 0:
            return {"said": fitted}
        outputs = {}
        for ending in ("csv", facts["predicted from"]):
            given = write_as(new, folder / f"new.{ending}")
            predicted = _command("predict", model, given, "--id", "id", "-o", folder / "out.csv")
            if predicted[0] != 0:
                return {"said": predicted}
            outputs[ending] = pd.read_csv(folder / "out.csv", dtype=str, na_filter=False)
        whole = write_as(table, folder / "whole.csv")
        predicted = _command("predict", model, whole, "--id", "id", "-o", folder / "out.csv")
        if predicted[0] != 0:
            return {"said": predicted}
        everything = pd.read_csv(folder / "out.csv", dtype=str, na_filter=False)
    return {"outputs": outputs, "everything": everything}


def _judge_files(trial: Trial, answers: Answers) -> str:
    facts, values = trial.facts, answers.values
    if "said" in values:
        raise Dishonest(
            f"the command line ends with {values['said'][0]}: {values['said'][1][-300:]}"
        )
    everything, rows = values["everything"], facts["rows"]
    if everything["id"].tolist() != facts["ids"].tolist():
        raise Dishonest("ids are not those that were written")
    if facts["classes"]:
        unknown = set(everything["prediction"]) - set(facts["y"])
        if unknown:
            raise Dishonest(f"classes {unknown} are not those that were written")
    for ending, output in values["outputs"].items():
        if output["id"].tolist() != facts["ids"][rows].tolist():
            raise Dishonest(f"ids of a .{ending} file are not those that were written")
        stated, expected = (
            output["prediction"].to_numpy(),
            everything["prediction"].to_numpy()[rows],
        )
        if facts["classes"]:
            if stated.tolist() != expected.tolist():
                raise Dishonest(
                    f"classes of rows of a .{ending} file alone {stated}, among all {expected}"
                )
        else:
            _require_equal(
                stated.astype(float),
                expected.astype(float),
                f"rows of a .{ending} file alone",
                1e-6,
            )
    return "gap"


# Threads and processes ----------------------------------------------------------------------------

_SAVES = """
import sys
from pathlib import Path
from kernelmosaic.files import write_bytes
content = Path(sys.argv[2]).read_bytes()
for _ in range(int(sys.argv[3])):
    write_bytes(Path(sys.argv[1]), content)
"""


def _draw_together(rng: np.random.Generator) -> Trial:
    n = int(rng.integers(20, 60))
    X, score = _samples(rng, n, 3)
    machine = str(
        _pick(
            rng, {"MKLClassifier": 1, "MKLRidgeClassifierCV": 1, "MKLRidgeCV": 1, "MKLRegressor": 1}
        )
    )
    facts = {
        "machine": machine,
        "y": _classes(score, 2) if "Classifier" in machine else score,
        "threads": int(rng.integers(2, 7)),
        "calls": int(rng.integers(10, 40)),
        "blas": int(rng.integers(1, 4)),
        "processes": int(rng.random() < 0.3) * int(rng.integers(2, 4)),
        "fits": bool(rng.random() < 0.3),
    }

    if facts["fits"]:
        facts["blas"] = 1

    def make() -> Any:
        return getattr(km, machine)([Gaussian(), Linear()])

    return Trial("at once", make, X, facts)


def _blas_threads() -> list[int]:
    from threadpoolctl import threadpool_info

    return [
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    ]


def _answer_together(trial: Trial) -> dict[str, Any]:
    from threadpoolctl import threadpool_limits

    facts = trial.facts
    model = trial.make().fit(trial.X, facts["y"])
    one_by_one = [_outputs(model, trial.X[i % 20 :]) for i in range(facts["calls"])]
    with threadpool_limits(facts["blas"], "blas"):
        before = _blas_threads()
        with ThreadPoolExecutor(facts["threads"]) as pool:
            fits = [
                pool.submit(trial.make().fit, trial.X, facts["y"]) for _ in range(2 * facts["fits"])
            ]
            at_once = list(
                pool.map(lambda i: _outputs(model, trial.X[i % 20 :]), range(facts["calls"]))
            )
            others = [fit.result() for fit in fits]
        after = _blas_threads()
    errors, loaded, left = _save_at_once(model, facts["threads"], facts["processes"])
    return {
        "one by one": one_by_one,
        "at once": at_once,
        "fits": [_outputs(other, trial.X) for other in others],
        "alone": _outputs(model, trial.X),
        "limits": (before, after),
        "errors": errors,
        "loaded": _outputs(loaded, trial.X),
        "left": left,
    }


def _save_at_once(
    model: Any, n_threads: int, n_processes: int, times: int = 2
) -> tuple[list[str], Any, list[str]]:
    """Save a model to one file by threads and processes; return what failed, what it holds, and the
    folder's files."""
    errors: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, copy = folder / "model.skops", folder / "copy.skops"
        km.save(model, copy)
        command = [sys.executable, "-c", _SAVES, str(path), str(copy), "100"]
        environment = os.environ | {"PYTHONPATH": str(_SOURCE)}
        processes = [
            subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
            for _ in range(n_processes)
        ]
        begin = threading.Barrier(n_threads)

        def save_some() -> None:
            begin.wait()
            try:
                for _ in range(times):
                    km.save(model, path)
                km.load(path)
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")

        threads = [threading.Thread(target=save_some) for _ in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for process in processes:
            said = process.communicate(timeout=50)[1]
            if process.returncode != 0:
                errors.append(said.decode()[-300:])
        return errors, km.load(path), sorted(os.listdir(folder))


def _judge_together(trial: Trial, answers: Answers) -> str:
    values = answers.values
    before, after = values["limits"]
    if before != after:
        raise Dishonest(
            f"threads of the linear algebra {before}, after predictions at once {after}"
        )
    for alone, together in zip(values["one by one"], values["at once"], strict=True):
        _require_equal(together, alone, "predictions at once", 1e-9)
    for outputs in values["fits"]:
        _require_equal(outputs, values["alone"], "fits at once", 1e-6)
    if values["errors"]:
        raise Dishonest(f"{len(values['errors'])} saves at once failed: {values['errors'][0]}")
    _require_equal(values["loaded"], values["alone"], "the model that was saved", 1e-9)
    if values["left"] != ["copy.skops", "model.skops"]:
        raise Dishonest(f"saves at once left {values['left']}")
    return "gap"


#: The families by name, in the order in which they are drawn.
FAMILIES = {
    "ridge": Family(lambda rng: _draw_ridge(rng, "ridge"), _answer_ridge, _judge_ridge),
    "features": Family(lambda rng: _draw_ridge(rng, "features"), _answer_ridge, _judge_ridge),
    "rows": Family(_draw_rows, _answer_rows, _judge_rows),
    "factor": Family(_draw_factor, _answer_factor, _judge_factor),
    "components": Family(_draw_components, _answer_components, _judge_components),
    "mosaic": Family(_draw_mosaic, _answer_mosaic, _judge_mosaic),
    "widths": Family(_draw_widths, _answer_widths, _judge_widths),
    "orders": Family(_draw_orders, _answer_orders, _judge_orders),
    "indefinite": Family(_draw_indefinite, _answer_indefinite, _judge_indefinite),
    "targets": Family(_draw_targets, _answer_targets, _judge_targets),
    "files": Family(_draw_files, _answer_files, _judge_files),
    "at once": Family(_draw_together, _answer_together, _judge_together),
}
