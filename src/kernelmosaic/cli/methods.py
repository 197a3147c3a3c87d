"""What ``kernelmosaic fit`` is asked for, and what a task and a method mean: estimator, parameter to choose, score."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from kernelmosaic._typing import AnyArray, Estimator, KernelsLike, Settings
    from kernelmosaic.cli.views import Plan

TaskName = Literal["classification", "regression", "one-class", "survival", "multi-label"]
MethodName = Literal["mkl", "localized", "bilinear", "discriminant", "rmkl", "ridge"]
CriterionName = Literal["loo", "evidence"]
LossName = Literal["cox", "censored", "rank"]
RuleName = Literal["best", "one-standard-error"]
ImputeName = Literal["none", "median", "frequent", "views"]


@dataclass(frozen=True)
class FitRequest:
    """The options of ``kernelmosaic fit``, as its help explains them.

    Parameters
    ----------
    path : Path
        The table.
    task, method : str or None
        None until `with_method` sets them.
    reason : str
        Why `with_method` took mkl where ridge is the default.
    C : float or None
        None lets cross-validation choose, or ridge learn it.
    norm : float or None
        None is 1.
    epsilon : float or None
        Half-width of the tube of free errors; None is a tenth of the target's standard deviation.
    loss : {"cox", "censored", "rank"} or None
        What survival minimises; None is "censored" with an epsilon, which it alone has, and "cox" without.
    criterion : {"loo", "evidence"} or None
        What ridge minimises; None is "loo".
    rule : {"best", "one-standard-error"} or None
        How C is chosen; None is "best".
    groups : str or None
        The column by which ridge leaves rows out together.
    costs : dict
        Factors of kernels or whole views.
    folds : int or None
        None is that of the searches in Python; ridge has none.
    seed : int or None
        None takes the parts of the rows in their order, as the searches in Python do, and 0 for all else.
    """

    path: Path
    target: str | None = None
    event: str | None = None
    views: tuple[str, ...] = ()
    view_file: Path | None = None
    on: str | None = None
    impute: ImputeName = "none"
    kernels: tuple[str, ...] = ()
    rows: str | None = None
    drop: tuple[str, ...] = ()
    drop_empty: bool = False
    method: MethodName | None = None
    task: TaskName | None = None
    reason: str = ""
    C: float | None = None
    norm: float | None = None
    epsilon: float | None = None
    loss: LossName | None = None
    criterion: CriterionName | None = None
    rule: RuleName | None = None
    groups: str | None = None
    nu: float = 0.1
    costs: dict[str, float] = field(default_factory=dict)
    test: float = 0.0
    folds: int | None = None
    seed: int | None = None
    jobs: int = 1
    proba: bool = False
    output: Path = Path("model.skops")
    report: Path | None = None
    resamples: int = 0


@dataclass(frozen=True)
class Method:
    """A way to learn.

    Parameters
    ----------
    tasks : tuple of str
        What it can do.
    parameter : str
        The parameter that cross-validation chooses, C or what stands in its place.
    takes_penalties : bool
        Whether kernels may have penalties.
    """

    tasks: tuple[TaskName, ...]
    parameter: str = "C"
    takes_penalties: bool = False


METHODS: dict[MethodName, Method] = {
    "mkl": Method(("classification", "regression", "one-class", "survival"), takes_penalties=True),
    "localized": Method(("classification", "regression", "one-class")),
    "bilinear": Method(("classification",), "kappa"),
    "discriminant": Method(("classification", "multi-label"), "alpha"),
    "rmkl": Method(("classification", "regression"), takes_penalties=True),
    "ridge": Method(("classification", "regression"), "alpha"),
}

# Scores ---------------------------------------------------------------------------------------------------------------

#: The score of each task, and the rule that looks at no column.
SCORES: dict[TaskName, tuple[str, str]] = {
    "classification": ("accuracy", "always the commonest class"),
    "regression": ("R²", "always the mean"),
    "one-class": ("share accepted", "1 − nu"),
    "survival": ("concordance", "any order"),
    "multi-label": ("share of rows with all labels right", "always the commonest labels"),
}


def score_of(task: TaskName, y: Any, predicted: Any) -> float:
    """Return the score of predictions: the share of right answers or of samples accepted, R², or the concordance."""
    import numpy as np

    if task == "classification":
        return float(np.mean(y == predicted))
    if task == "multi-label":
        return float(np.mean((y == predicted).all(axis=1)))
    if task == "one-class":
        return float(np.mean(predicted == 1))
    if task == "survival":
        from kernelmosaic.metrics import concordance

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = concordance(y, predicted)
        return 0.5 if np.isnan(value) else value  # of rows that cannot be compared, any order is as good
    rest, spread = np.sum((y - predicted) ** 2), np.sum((y - np.mean(y)) ** 2)
    return float(1 - rest / spread) if spread > 0 else 0.0


def baseline_of(task: TaskName, y_train: AnyArray, y_test: AnyArray, nu: float) -> float:
    """Return the score of always giving the same answer: the commonest class or labels, or the mean."""
    import numpy as np

    if task in ("one-class", "survival"):
        return 1 - nu if task == "one-class" else 0.5
    if task == "regression":
        return score_of(task, y_test, np.full(len(y_test), np.mean(y_train)))
    values, counts = np.unique(y_train, return_counts=True, axis=0)
    return score_of(task, y_test, np.broadcast_to(values[counts.argmax()], np.shape(y_test)))


def figure(task: TaskName, value: float) -> str:
    """Write a score: shares in per cent."""
    return f"{round(value, 3) + 0.0:.3f}" if task in ("regression", "survival") else f"{100 * value:.1f} %"


# The estimator --------------------------------------------------------------------------------------------------------


def read_costs(given: Iterable[str]) -> dict[str, float]:
    """Return the factors written as ``name=2.0``."""
    costs = {}
    for text in given:
        name, _, value = text.rpartition("=")
        try:
            costs[name] = float(value)
        except ValueError:
            costs[name] = 0.0
        if not name or not 0 < costs[name] < float("inf"):
            raise ValueError(f"--cost {text}: write name=FACTOR with a positive number, such as genes=2.0.")
    return costs


#: The most rows to learn from by ridge unless it is asked for: the time of exact kernels grows with their cube.
MOST_RIDGE_ROWS = 3000


def with_method(request: FitRequest, task: TaskName, n: int) -> FitRequest:
    """Return a request with its task and a method for n rows.

    The default is ridge for classes and numbers, but mkl if there are more than `MOST_RIDGE_ROWS` or an option asks for
    what mkl alone has: its C, norm, epsilon, rule, penalties or folds.
    """
    method, reason = request.method, ""
    if method is None and task in METHODS["ridge"].tasks:
        options = {name: getattr(request, name) for name in ("C", "norm", "epsilon", "rule", "folds")}
        options["cost"] = request.costs or None
        given = [f"--{name}" for name, value in options.items() if value is not None]
        if given:
            reason = f"{', '.join(given)} given"
        elif n > MOST_RIDGE_ROWS:
            reason = f"more than {MOST_RIDGE_ROWS} rows"
        else:
            method = "ridge"
    method = method or ("discriminant" if task == "multi-label" else "mkl")
    loss = request.loss
    if task == "survival" and loss is None:
        loss = "cox" if request.epsilon is None else "censored"
    return replace(request, task=task, method=method, reason=reason, loss=loss)


def method_of(request: FitRequest) -> Method:
    """Return the method of a request whose task is known, or raise naming what it cannot do."""
    assert request.method is not None
    method, task = request.method, request.task
    known = METHODS[method]
    if task not in known.tasks:
        able = ", ".join(name for name, other in METHODS.items() if task in other.tasks)
        raise ValueError(f"--method {method} does {' and '.join(known.tasks)}, not {task}; choose {able}.")
    _check_loss(request)
    if request.criterion is not None and method != "ridge":
        raise ValueError(f"--criterion {request.criterion}: --method {method} has no criterion; use --method ridge.")
    if request.rule is not None and method == "ridge":
        raise ValueError(f"--rule {request.rule}: --method ridge learns alpha without folds; leave it out, or use mkl.")
    if request.groups is not None and method != "ridge":
        raise ValueError(f"--groups {request.groups}: --method {method} leaves out no groups; use --method ridge.")
    if method == "ridge" and request.folds:
        raise ValueError(
            f"--folds {request.folds}: --method ridge leaves every row out in turn, without folds; leave the option "
            "out, or use mkl."
        )
    if request.proba and task not in ("classification", "multi-label"):
        raise ValueError(f"--proba: probabilities are those of classes, and this is a {task}; leave it out.")
    if request.C is not None and task == "one-class":
        raise ValueError(f"--C {request.C:g}: a one-class machine has no C; --nu says how strict it is.")
    if request.norm not in (None, 1) and not known.takes_penalties:
        raise ValueError(f"--norm {request.norm:g}: --method {method} has no norm to choose; use mkl or rmkl.")
    if request.costs and not known.takes_penalties:
        raise ValueError(f"--cost: --method {method} has no penalties; use mkl or rmkl.")
    return known


def _check_loss(request: FitRequest) -> None:
    """Refuse options of a loss that the task or the method does not have."""
    task, loss = request.task, request.loss
    if loss is not None and task != "survival":
        raise ValueError(f"--loss {loss}: survival alone has it, and this is a {task}; leave it out.")
    if request.epsilon is None:
        return
    given = f"--epsilon {request.epsilon:g}"
    if task not in ("regression", "survival"):
        raise ValueError(f"{given}: only a regression has it, and this is a {task}; leave it out.")
    if loss in ("cox", "rank"):
        raise ValueError(f"{given}: --loss {loss} has no epsilon; leave it out, or use --loss censored.")
    if request.method == "ridge":
        raise ValueError(f"{given}: --method ridge squares all errors and has no epsilon; leave it out.")


def parameter_of(request: FitRequest) -> str:
    """Return the name of the parameter that the Cs are values of."""
    return "nu" if request.task == "one-class" or request.method is None else METHODS[request.method].parameter


def price_of(request: FitRequest) -> float | None:
    """Return the value that was given for this parameter; None if it is to be chosen, or learned."""
    return request.nu if request.task == "one-class" else request.C


def make_estimator(request: FitRequest, kernels: KernelsLike, plan: Plan, scale: float) -> Estimator:
    """Return the estimator; `scale` is the spread of a regression's targets."""
    from kernelmosaic import estimators

    price = price_of(request)
    if request.method == "ridge":
        ridge = estimators.MKLRidgeClassifierCV if request.task == "classification" else estimators.MKLRidgeCV
        return ridge(
            kernels,
            criterion=request.criterion or "loo",
            alpha="learn" if price is None else price,
            scale=False,  # columns are prepared by the pipeline
            random_state=request.seed or 0,
        )
    families = {"regression": "Regressor", "one-class": "OneClass", "survival": "Survival"}
    prefixes = {"bilinear": "Bilinear", "discriminant": "Discriminant", "localized": "Localized"}
    options: Settings = {"random_state": request.seed or 0} | ({} if price is None else {parameter_of(request): price})
    if request.task == "regression":
        options["epsilon"] = 0.1 * scale if request.epsilon is None else request.epsilon
    elif request.task == "survival":
        options |= {"loss": request.loss} | ({} if request.epsilon is None else {"epsilon": request.epsilon})
    if request.method in ("mkl", "rmkl"):
        penalties = kernel_costs(request.costs, [kernel[0] for kernel in kernels]) if request.costs else None
        options |= {"norm": 1.0 if request.norm is None else request.norm, "penalties": penalties}
    if request.method == "localized":
        if not plan.numbers:
            raise ValueError("--method localized: its gates read numbers, and no view has a column of them; use mkl.")
        options["gating_columns"] = plan.positions(plan.numbers)
    if request.proba and request.method != "discriminant":
        options["calibration"] = "sigmoid"
    name = f"{prefixes.get(str(request.method), '')}MKL{families.get(str(request.task), 'Classifier')}"
    return getattr(estimators, name)(kernels, **options)


def kernel_costs(costs: dict[str, float], names: list[str]) -> list[float]:
    """Return the factor of each kernel: that of its name times that of its view."""
    d = [1.0] * len(names)
    for wanted, factor in costs.items():
        meant = [i for i, name in enumerate(names) if wanted in (name, name.partition(":")[0])]
        if not meant:
            some = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
            raise ValueError(f"--cost {wanted}={factor:g}: no kernel or view has this name; there are {some}.")
        for i in meant:
            d[i] *= factor
    return d
