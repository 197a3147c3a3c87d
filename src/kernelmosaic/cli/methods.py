"""What a task and a method mean: estimator, parameter to choose, score."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmosaic.cli.requests import FitRequest, MethodName, TaskName

if TYPE_CHECKING:
    from kernelmosaic._typing import AnyArray, Array, Estimator, KernelsLike, Settings
    from kernelmosaic.cli.layout import Plan


#: The tasks that each method can do.
METHODS: dict[MethodName, tuple[TaskName, ...]] = {
    "mkl": ("classification", "regression", "one-class", "survival"),
    "localized": ("classification", "regression", "one-class"),
    "bilinear": ("classification",),
    "discriminant": ("classification", "multi-label"),
    "rmkl": ("classification", "regression"),
    "ridge": ("classification", "regression"),
}

# Scores -------------------------------------------------------------------------------------------

#: The score of each task, and the baseline without features.
SCORES: dict[TaskName, tuple[str, str]] = {
    "classification": ("accuracy", "majority-class baseline"),
    "regression": ("R²", "baseline of the mean"),
    "one-class": ("share accepted", "1 − nu"),
    "survival": ("concordance", "random order"),
    "multi-label": ("share of rows with all labels right", "baseline of the most frequent labels"),
}


def score_terms(task: TaskName, y: AnyArray, predicted: AnyArray) -> Array:
    """Return a number per row whose mean is the score; the concordance has none."""
    if task == "regression":
        rest, variance = (y - predicted) ** 2, np.var(y)
        return np.asarray(
            1.0 - rest / variance if variance > 0 else np.zeros(len(y)), dtype=np.float64
        )
    right = predicted == (1 if task == "one-class" else y)
    return np.asarray(right.all(axis=1) if task == "multi-label" else right, dtype=np.float64)


def score_of(task: TaskName, y: AnyArray, predicted: AnyArray) -> float:
    """Return the score of predictions: the share of right answers or of samples accepted, R², or
    the concordance."""
    if task != "survival":
        return float(np.mean(score_terms(task, y, predicted)))
    from kernelmosaic.survival.metrics import concordance

    with warnings.catch_warnings(action="ignore"):
        value = concordance(y, predicted)
    return (
        0.5 if np.isnan(value) else value
    )  # of rows that cannot be compared, any order is as good


def measured(task: TaskName, y: AnyArray, predicted: AnyArray) -> Settings:
    """Return the score of predictions with its name, its standard error, and the number of rows."""
    if task == "survival":
        error: float | None = bootstrap_error(partial(score_of, task), y, predicted)
    else:
        error = standard_error(score_terms(task, y, predicted))
    return {
        "name": SCORES[task][0],
        "value": score_of(task, y, predicted),
        "error": error,
        "n": len(y),
    }


def standard_error(terms: Array) -> float | None:
    """Return the standard error of the mean of some numbers; None of one."""
    return float(terms.std(ddof=1)) / len(terms) ** 0.5 if len(terms) > 1 else None


def bootstrap_error(
    statistic: Callable[..., float], *given: AnyArray, groups: AnyArray | None = None
) -> float:
    """Return the standard error of a statistic of rows: its standard deviation if rows, or groups,
    are drawn anew."""
    random, n, found = np.random.RandomState(0), len(given[0]), []
    places = None if groups is None else [np.flatnonzero(groups == g) for g in np.unique(groups)]
    for _ in range(100 if n <= 2000 else 25):
        if places is None:
            rows = random.randint(n, size=n)
        else:
            rows = np.concatenate(
                [places[k] for k in random.randint(len(places), size=len(places))]
            )
        found.append(statistic(*(one[rows] for one in given)))
    return float(np.nanstd(found, ddof=1))


def area(y: AnyArray, outputs: AnyArray) -> float:
    """Return the area under the ROC curve of outputs for rows that are positive or not; NaN if all
    are alike."""
    from scipy.stats import rankdata

    count = int(y.sum())
    pairs = count * (len(y) - count)
    return (
        float((rankdata(outputs)[y].sum() - count * (count + 1) / 2) / pairs)
        if pairs
        else float("nan")
    )


def macro_f1(y: AnyArray, predicted: AnyArray) -> float:
    """Return the mean of the classes' F1 from their counts; scikit-learn would check every draw of
    a bootstrap."""
    codes = np.unique(np.concatenate([y, predicted]), return_inverse=True)[1]
    truth, said = codes[: len(y)], codes[len(y) :]
    of_class = np.bincount(codes)
    return float(np.mean(2 * np.bincount(truth[truth == said], minlength=len(of_class)) / of_class))


def baseline_of(task: TaskName, y_train: AnyArray, y_test: AnyArray, nu: float) -> float:
    """Return the score of always giving the same answer: the most frequent class or labels, or the
    mean."""
    if task in ("one-class", "survival"):
        return 1 - nu if task == "one-class" else 0.5
    return score_of(
        task, y_test, np.broadcast_to(usual_answer(task, y_train, y_train), np.shape(y_test))
    )


def usual_answer(task: TaskName, y: AnyArray, predicted: AnyArray) -> Any:
    """Return the answer that needs no features: the most frequent class or labels, or the mean; a
    middle prediction."""
    if task in ("regression", "survival"):
        return np.mean(y if task == "regression" else predicted)
    values, counts = np.unique(y, return_counts=True, axis=0)
    return values[counts.argmax()]


def figure(task: TaskName, value: float, error: float | None = None) -> str:
    """Write a score, with its standard error if there is one; shares are in per cent."""
    if error is not None:
        return f"{figure(task, value)} ± {figure(task, error)}"
    return (
        f"{round(value, 3) + 0.0:.3f}"
        if task in ("regression", "survival")
        else f"{100 * value:.1f} %"
    )


# The estimator ------------------------------------------------------------------------------------


def with_method(request: FitRequest, task: TaskName) -> FitRequest:
    """Return a request with its task and a method.

    The default is ridge for classes and numbers, but mkl if an option needs what only mkl has: its
    C, norm, epsilon, rule, penalties or folds.
    """
    method, reason = request.method, ""
    if method is None and task in METHODS["ridge"]:
        options = {
            name: getattr(request, name) for name in ("C", "norm", "epsilon", "rule", "folds")
        }
        options["cost"] = request.costs or None
        given = [f"--{name}" for name, value in options.items() if value is not None]
        if given:
            reason = f"{', '.join(given)} given"
        else:
            method = "ridge"
    method = method or ("discriminant" if task == "multi-label" else "mkl")
    loss = request.loss
    if task == "survival" and loss is None:
        loss = "cox" if request.epsilon is None else "censored"
    return replace(request, task=task, method=method, reason=reason, loss=loss)


#: The only methods, or tasks, that have an option.
ONLY: dict[str, tuple[str, tuple[str, ...]]] = {
    "criterion": ("method", ("ridge",)),
    "groups": ("method", ("ridge",)),
    "folds": ("method", ("mkl", "localized", "bilinear", "discriminant", "rmkl")),
    "rule": ("method", ("mkl", "localized", "bilinear", "discriminant", "rmkl")),
    "norm": ("method", ("mkl", "rmkl")),
    "cost": ("method", ("mkl", "rmkl")),
    "loss": ("task", ("survival",)),
    "proba": ("task", ("classification", "multi-label")),
    "epsilon": ("task", ("regression", "survival")),
}


def check_request(request: FitRequest) -> None:
    """Refuse options that the task or the method of a request does not have."""
    method, task, loss = request.method, request.task, request.loss
    assert method is not None
    if task not in METHODS[method]:
        able = ", ".join(name for name, tasks in METHODS.items() if task in tasks)
        raise ValueError(
            f"--method {method} does {' and '.join(METHODS[method])}, not {task}; choose {able}."
        )
    given = {name: getattr(request, name) for name in ONLY if name != "cost"}
    given |= {
        "cost": ", ".join(request.costs) or None,
        "norm": None if request.norm == 1 else request.norm,
    }
    given |= {"folds": request.folds or None, "proba": request.proba or None}
    for name, (kind, having) in ONLY.items():
        value, own = given[name], getattr(request, kind)
        if value is not None and own not in having:
            text = (
                "" if value is True else f" {value:g}" if isinstance(value, float) else f" {value}"
            )
            known = " or ".join([", ".join(having[:-1]), having[-1]] if len(having) > 1 else having)
            raise ValueError(
                f"--{name}{text}: the {kind} must be {known}, not {own}; leave the option out."
            )
    if request.C is not None and task == "one-class":
        raise ValueError(
            f"--C {request.C:g}: a one-class machine has no C; --nu sets the share of rows that may"
            " be novel."
        )
    if request.epsilon is not None and (method == "ridge" or loss in ("cox", "rank")):
        who, other = (
            ("--method ridge", "--method mkl")
            if method == "ridge"
            else (f"--loss {loss}", "--loss censored")
        )
        raise ValueError(
            f"--epsilon {request.epsilon:g}: {who} has no epsilon; leave it out, or use {other}."
        )


def parameter_of(request: FitRequest) -> str:
    """Return the name of the parameter that the Cs are values of: C, or what stands in its
    place."""
    own = {"bilinear": "kappa", "discriminant": "alpha", "ridge": "alpha"}
    return "nu" if request.task == "one-class" else own.get(str(request.method), "C")


def price_of(request: FitRequest) -> float | None:
    """Return the value that was given for this parameter; None if it is to be chosen, or
    learned."""
    return request.nu if request.task == "one-class" else request.C


def make_estimator(
    request: FitRequest, kernels: KernelsLike, plan: Plan, scale: float
) -> Estimator:
    """Return the estimator; `scale` is the spread of a regression's targets."""
    from kernelmosaic import estimators

    price = price_of(request)
    if request.method == "ridge":
        ridge = (
            estimators.MKLRidgeClassifierCV
            if request.task == "classification"
            else estimators.MKLRidgeCV
        )
        return ridge(
            kernels,
            criterion=request.criterion or "auto",
            alpha="learn" if price is None else price,
            scale=False,  # columns are prepared by the pipeline
            random_state=request.seed or 0,
        )
    families = {"regression": "Regressor", "one-class": "OneClass", "survival": "Survival"}
    prefixes = {"bilinear": "Bilinear", "discriminant": "Discriminant", "localized": "Localized"}
    options: Settings = {"random_state": request.seed or 0} | (
        {} if price is None else {parameter_of(request): price}
    )
    if request.task == "regression":
        options["epsilon"] = 0.1 * scale if request.epsilon is None else request.epsilon
    elif request.task == "survival":
        options |= {"loss": request.loss} | (
            {} if request.epsilon is None else {"epsilon": request.epsilon}
        )
    if request.method in ("mkl", "rmkl"):
        penalties = (
            kernel_costs(request.costs, [kernel[0] for kernel in kernels])
            if request.costs
            else None
        )
        options |= {"norm": 1.0 if request.norm is None else request.norm, "penalties": penalties}
    if request.method == "localized":
        if not plan.numbers:
            raise ValueError(
                "--method localized: its gates read numbers, and no view has a column of them; use"
                " mkl."
            )
        read = {column for _, _, own in kernels for column in own}
        options["gating_columns"] = [
            column for column in plan.positions(plan.numbers) if column in read
        ]
    if request.proba and request.method != "discriminant":
        options["calibration"] = "sigmoid"
    name = (
        f"{prefixes.get(str(request.method), '')}MKL{families.get(str(request.task), 'Classifier')}"
    )
    return getattr(estimators, name)(kernels, **options)


def kernel_costs(given: Sequence[str], names: list[str]) -> list[float]:
    """Return the factor of each kernel, that of its name times that of its view, from texts such as
    ``name=2.0``."""
    factors = [1.0] * len(names)
    for text in given:
        wanted, _, value = text.rpartition("=")
        try:
            factor = float(value)
        except ValueError:
            factor = 0.0
        if not wanted or not 0 < factor < float("inf"):
            raise ValueError(
                f"--cost {text}: write name=FACTOR with a positive number, such as genes=2.0."
            )
        meant = [i for i, name in enumerate(names) if wanted in (name, name.partition(":")[0])]
        if not meant:
            some = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
            raise ValueError(f"--cost {text}: no kernel or view has this name; there are {some}.")
        for i in meant:
            factors[i] *= factor
    return factors
