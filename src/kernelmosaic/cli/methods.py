"""The score of a task, and the estimator and the chosen parameter of a method."""

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

#: The number of bootstrap samples behind a standard error, up to so many rows and above. The error
#: of a standard error from B samples is a share 1/√(2B) of it: 7 % of 100 samples, 14 % of 25.
_BOOTSTRAP_SAMPLES = 100
_BOOTSTRAP_SAMPLES_OF_MANY_ROWS = 25
_MANY_ROWS = 2000


def score_terms(task: TaskName, y: AnyArray, predicted: AnyArray) -> Array:
    """Return a number per row whose mean is the score.

    The concordance of survival is no such mean. A regression whose targets are all equal has zeros.
    """
    if task == "regression":
        squared_errors = (y - predicted) ** 2
        variance = np.var(y)
        if variance > 0:
            return np.asarray(1.0 - squared_errors / variance, dtype=np.float64)
        return np.zeros(len(y))
    truth = 1 if task == "one-class" else y
    is_right = predicted == truth
    if task == "multi-label":
        is_right = is_right.all(axis=1)
    return np.asarray(is_right, dtype=np.float64)


def score_of(task: TaskName, y: AnyArray, predicted: AnyArray) -> float:
    """Return the score of predictions.

    It is the share of right answers or, of a one-class machine, of samples accepted; R²; or the
    concordance, which is 0.5 where no two rows can be compared.
    """
    if task != "survival":
        return float(np.mean(score_terms(task, y, predicted)))
    from kernelmosaic.survival.metrics import concordance

    with warnings.catch_warnings(action="ignore"):
        value = concordance(y, predicted)
    return 0.5 if np.isnan(value) else value


def measured(task: TaskName, y: AnyArray, predicted: AnyArray) -> Settings:
    """Return the score of predictions with its name, standard error and row count."""
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
    """Return the standard error of the mean of some numbers; None of a single number."""
    n = len(terms)
    if n < 2:
        return None
    error: float = float(terms.std(ddof=1)) / n**0.5
    return error


def bootstrap_error(
    statistic: Callable[..., float], *arrays: AnyArray, groups: AnyArray | None = None
) -> float:
    """Return the bootstrap standard error of a statistic of rows.

    It is the standard deviation of the statistic over samples of the rows, drawn with replacement.

    Parameters
    ----------
    statistic : callable
        Called with rows of all arrays.
    *arrays : ndarray
        With one row per sample.
    groups : ndarray or None
        The group of each sample: whole groups are drawn.
    """
    random = np.random.RandomState(0)
    n = len(arrays[0])
    rows_of_groups = []
    if groups is not None:
        rows_of_groups = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    n_draws = _BOOTSTRAP_SAMPLES
    if n > _MANY_ROWS:
        n_draws = _BOOTSTRAP_SAMPLES_OF_MANY_ROWS
    values = []
    for _ in range(n_draws):
        if groups is None:
            rows = random.randint(n, size=n)
        else:
            drawn = random.randint(len(rows_of_groups), size=len(rows_of_groups))
            rows = np.concatenate([rows_of_groups[group] for group in drawn])
        values.append(statistic(*(array[rows] for array in arrays)))
    return float(np.nanstd(values, ddof=1))


def area(y: AnyArray, outputs: AnyArray) -> float:
    """Return the area under the ROC curve; NaN if all rows are positive, or all negative.

    Parameters
    ----------
    y : ndarray of bool
        Whether each row is positive.
    outputs : ndarray
        The larger, the more likely the row is positive.
    """
    from scipy.stats import rankdata

    # The Mann-Whitney statistic: the share of pairs of a positive and a negative row in order.
    n_positive = int(y.sum())
    n_pairs = n_positive * (len(y) - n_positive)
    if n_pairs == 0:
        return float("nan")
    rank_sum = rankdata(outputs)[y].sum()
    return float((rank_sum - n_positive * (n_positive + 1) / 2) / n_pairs)


def macro_f1(y: AnyArray, predicted: AnyArray) -> float:
    """Return the mean of the classes' F1.

    scikit-learn's function would check the arrays again for every sample of a bootstrap.
    """
    codes = np.unique(np.concatenate([y, predicted]), return_inverse=True)[1]
    truth = codes[: len(y)]
    answers = codes[len(y) :]
    # F1 = 2 TP / (2 TP + FP + FN), and the denominator counts the class in both arrays.
    counts = np.bincount(codes)
    true_positives = np.bincount(truth[truth == answers], minlength=len(counts))
    return float(np.mean(2 * true_positives / counts))


def baseline_of(task: TaskName, y_train: AnyArray, y_test: AnyArray, nu: float) -> float:
    """Return the score on test targets of the answer that needs no features.

    Of a one-class machine it is the share 1 − nu that it is to accept, of survival the concordance
    of a random order.
    """
    if task == "one-class":
        return 1 - nu
    if task == "survival":
        return 0.5
    answer = usual_answer(task, y_train, y_train)
    return score_of(task, y_test, np.broadcast_to(answer, np.shape(y_test)))


def usual_answer(task: TaskName, y: AnyArray, predicted: AnyArray) -> Any:
    """Return the answer that needs no features, learned from the targets y.

    It is the most frequent class or combination of labels, or the mean of the targets; of survival,
    where targets and predictions have different units, the mean of the predictions.
    """
    if task == "regression":
        return np.mean(y)
    if task == "survival":
        return np.mean(predicted)
    values, counts = np.unique(y, return_counts=True, axis=0)
    return values[counts.argmax()]


def figure(task: TaskName, value: float, error: float | None = None) -> str:
    """Return a score as text, with its standard error if there is one.

    Shares are in per cent.
    """
    if error is not None:
        return f"{figure(task, value)} ± {figure(task, error)}"
    if task in ("regression", "survival"):
        # Adding zero makes 0.000 of −0.000.
        return f"{round(value, 3) + 0.0:.3f}"
    return f"{100 * value:.1f} %"


# The estimator ------------------------------------------------------------------------------------


def with_method(request: FitRequest, task: TaskName) -> FitRequest:
    """Return the request with its task, its method and its loss.

    The default method of classes and numbers is ridge, but mkl if an option needs what only mkl
    has: its C, norm, epsilon, rule, penalties or folds.
    """
    method = request.method
    reason = ""
    if method is None and task in METHODS["ridge"]:
        mkl_options = {
            "C": request.C,
            "norm": request.norm,
            "epsilon": request.epsilon,
            "rule": request.rule,
            "folds": request.folds,
            "cost": request.costs or None,
        }
        typed_options = [f"--{name}" for name, value in mkl_options.items() if value is not None]
        if typed_options:
            reason = f"{', '.join(typed_options)} given"
        else:
            method = "ridge"
    if method is None:
        method = "discriminant" if task == "multi-label" else "mkl"
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
    method = request.method
    task = request.task
    assert method is not None
    if task not in METHODS[method]:
        able = ", ".join(name for name, tasks in METHODS.items() if task in tasks)
        raise ValueError(
            f"--method {method} does {' and '.join(METHODS[method])}, not {task}; choose {able}."
        )
    _check_options(request)
    if request.C is not None and task == "one-class":
        raise ValueError(
            f"--C {request.C:g}: a one-class machine has no C; --nu sets the share of rows that may"
            " be novel."
        )
    if request.epsilon is None:
        return
    option = f"--epsilon {request.epsilon:g}"
    if method == "ridge":
        raise ValueError(
            f"{option}: --method ridge has no epsilon; leave it out, or use --method mkl."
        )
    if request.loss in ("cox", "rank"):
        raise ValueError(
            f"{option}: --loss {request.loss} has no epsilon; leave it out, or use --loss censored."
        )


def _check_options(request: FitRequest) -> None:
    """Refuse options that `ONLY` gives to other methods or tasks."""
    # Values that are defaults in effect, such as a norm of 1, are as if they were not given.
    values = {name: getattr(request, name) for name in ONLY if name != "cost"}
    values["cost"] = ", ".join(request.costs) or None
    values["folds"] = request.folds or None
    values["proba"] = request.proba or None
    if request.norm == 1:
        values["norm"] = None
    for name, (kind, allowed) in ONLY.items():
        value = values[name]
        chosen = getattr(request, kind)
        if value is None or chosen in allowed:
            continue
        if value is True:
            text = ""
        elif isinstance(value, float):
            text = f" {value:g}"
        else:
            text = f" {value}"
        alternatives = allowed[-1]
        if len(allowed) > 1:
            alternatives = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
        raise ValueError(
            f"--{name}{text}: the {kind} must be {alternatives}, not {chosen}; leave the option"
            " out."
        )


def parameter_of(request: FitRequest) -> str:
    """Return the name of the parameter that is chosen: C, or the one in its place."""
    if request.task == "one-class":
        return "nu"
    names = {"bilinear": "kappa", "discriminant": "alpha", "ridge": "alpha"}
    return names.get(str(request.method), "C")


def given_value_of(request: FitRequest) -> float | None:
    """Return the value given for the parameter of `parameter_of`.

    It is None if the parameter is to be chosen or learned.
    """
    return request.nu if request.task == "one-class" else request.C


#: The name of a kernel estimator is prefix, MKL and suffix: the prefix by method, the suffix by
#: task.
_PREFIXES = {"bilinear": "Bilinear", "discriminant": "Discriminant", "localized": "Localized"}
_SUFFIXES = {"regression": "Regressor", "one-class": "OneClass", "survival": "Survival"}


def make_estimator(
    request: FitRequest, kernels: KernelsLike, plan: Plan, scale: float
) -> Estimator:
    """Return the estimator of a request, not fitted.

    Parameters
    ----------
    request : FitRequest
        With the task and the method.
    kernels : list of tuples
        Name, kernel and columns of each.
    plan : Plan
    scale : float
        The standard deviation of a regression's targets, in whose units the default epsilon is.
    """
    from kernelmosaic import estimators

    if request.method == "ridge":
        return _make_ridge(request, kernels)
    options: Settings = {"random_state": request.seed or 0}
    value = given_value_of(request)
    if value is not None:
        options[parameter_of(request)] = value
    options |= _loss_options(request, scale)
    if request.method in ("mkl", "rmkl"):
        options["norm"] = 1.0 if request.norm is None else request.norm
        options["penalties"] = None
        if request.costs:
            names = [name for name, *_ in kernels]
            options["penalties"] = kernel_costs(request.costs, names)
    if request.method == "localized":
        options["gating_columns"] = _gating_columns(kernels, plan)
    if request.proba and request.method != "discriminant":
        options["calibration"] = "sigmoid"
    prefix = _PREFIXES.get(str(request.method), "")
    suffix = _SUFFIXES.get(str(request.task), "Classifier")
    return getattr(estimators, f"{prefix}MKL{suffix}")(kernels, **options)


def _make_ridge(request: FitRequest, kernels: KernelsLike) -> Estimator:
    """Return the ridge estimator of a request, not fitted."""
    from kernelmosaic import estimators

    ridge: Any = estimators.MKLRidgeCV
    if request.task == "classification":
        ridge = estimators.MKLRidgeClassifierCV
    alpha: float | str = "learn"
    if request.C is not None:
        alpha = request.C
    return ridge(
        kernels,
        criterion=request.criterion or "auto",
        alpha=alpha,
        scale=False,  # the pipeline standardises the columns
        random_state=request.seed or 0,
    )


def _loss_options(request: FitRequest, scale: float) -> Settings:
    """Return the options of the loss of a machine; `scale` is that of `make_estimator`."""
    options: Settings = {}
    if request.task == "survival":
        options["loss"] = request.loss
    has_epsilon = request.task in ("regression", "survival")
    if has_epsilon and request.epsilon is not None:
        options["epsilon"] = request.epsilon
    elif request.task == "regression":
        # The estimator's default of 0.1, for targets that are put on unit variance.
        options["epsilon"] = 0.1 * scale
    return options


def _gating_columns(kernels: KernelsLike, plan: Plan) -> list[int]:
    """Return the columns that gates read: those of numbers that a kernel reads."""
    if not plan.numbers:
        raise ValueError(
            "--method localized: its gates read numbers, and no view has a column of them; use mkl."
        )
    columns_of_kernels = {column for _, _, columns in kernels for column in columns}
    return [column for column in plan.positions(plan.numbers) if column in columns_of_kernels]


def kernel_costs(costs: Sequence[str], names: list[str]) -> list[float]:
    """Return the cost of each kernel: its own factor times that of its view.

    Parameters
    ----------
    costs : sequence of str
        Texts such as ``name=2.0``, with the name of a kernel or of a view.
    names : list of str
        The names of the kernels, such as ``view:kernel``.
    """
    factors = [1.0] * len(names)
    for text in costs:
        wanted, _, value = text.rpartition("=")
        try:
            factor = float(value)
        except ValueError:
            factor = 0.0
        if not wanted or not 0 < factor < float("inf"):
            raise ValueError(
                f"--cost {text}: write name=FACTOR with a positive number, such as genes=2.0."
            )
        matches = [m for m, name in enumerate(names) if wanted in (name, name.partition(":")[0])]
        if not matches:
            listed = ", ".join(names[:8])
            if len(names) > 8:
                listed += " …"
            raise ValueError(f"--cost {text}: no kernel or view has this name; there are {listed}.")
        for m in matches:
            factors[m] *= factor
    return factors
