"""What ``--method`` and ``--task`` mean: which estimator, and which of its parameters is the price of errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelmosaic._typing import KernelsLike, Settings
from kernelmosaic.cli.views import Plan

CLASSIFICATION, REGRESSION, ONE_CLASS = "classification", "regression", "one-class"
SURVIVAL, LABELS = "survival", "multi-label"


@dataclass(frozen=True)
class Method:
    """A way to learn.

    Parameters
    ----------
    tasks : tuple of str
        What it can do.
    price : str
        The parameter that cross-validation chooses.
    grid : tuple of float
        Its values, the smoothest model first.
    takes_penalties : bool
        Whether a kernel can be made dearer.
    """

    tasks: tuple[str, ...]
    price: str = "C"
    grid: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0)
    takes_penalties: bool = False


METHODS = {
    "mkl": Method((CLASSIFICATION, REGRESSION, ONE_CLASS, SURVIVAL), takes_penalties=True),
    "localized": Method((CLASSIFICATION, REGRESSION, ONE_CLASS)),
    "bilinear": Method((CLASSIFICATION,), price="kappa"),
    "discriminant": Method((CLASSIFICATION, LABELS), price="alpha", grid=(0.5, 0.05, 5e-3, 5e-4, 5e-5)),
    "rmkl": Method((CLASSIFICATION, REGRESSION), takes_penalties=True),
}


@dataclass(frozen=True)
class FitRequest:
    """The options of `kernelmosaic fit` that concern the learner.

    Parameters
    ----------
    method : str
        Empty until the task is known.
    task : str
        Empty until it is guessed.
    price : float or None
        None lets cross-validation choose.
    norm : float
        1 for few kernels, above for all.
    nu : float
        Share of one-class samples that may be novel.
    epsilon : float or None
        Half-width of the tube of free errors; None is a tenth of the target's standard deviation.
    costs : dict
        Factors of kernels or whole views.
    seed : int
    folds : int
    jobs : int
    proba : bool
        Whether the model must have probabilities.
    """

    method: str
    task: str
    price: float | None = None
    norm: float = 1.0
    nu: float = 0.1
    epsilon: float | None = None
    costs: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    folds: int = 5
    jobs: int = 1
    proba: bool = False


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


def check_method(settings: FitRequest) -> Method:
    """Return the method, or raise saying what it cannot do."""
    method, task, costs = settings.method, settings.task, settings.costs
    known = METHODS[method]
    if task not in known.tasks:
        able = ", ".join(name for name, other in METHODS.items() if task in other.tasks)
        raise ValueError(f"--method {method} does {' and '.join(known.tasks)}, not {task}; choose {able}.")
    if settings.epsilon is not None and task not in (REGRESSION, SURVIVAL):
        raise ValueError(
            f"--epsilon {settings.epsilon:g}: only a regression has it, and this is a {task}; leave it out."
        )
    if settings.proba and task not in (CLASSIFICATION, LABELS):
        raise ValueError(f"--proba: probabilities are those of classes, and this is a {task}; leave it out.")
    if settings.price is not None and task == ONE_CLASS:
        raise ValueError(f"--C {settings.price:g}: a one-class machine has no price; --nu says how strict it is.")
    if settings.norm != 1 and not known.takes_penalties:
        raise ValueError(f"--norm {settings.norm:g}: --method {method} has no norm to choose; use mkl or rmkl.")
    if costs and not known.takes_penalties:
        raise ValueError(f"--cost: --method {method} has no penalties; use mkl or rmkl.")
    return known


def make_estimator(settings: FitRequest, kernels: KernelsLike, plan: Plan, scale: float, Cs: list[float]) -> Any:
    """Return the estimator with the first of the Cs; `scale` is the spread of a regression's targets."""
    from kernelmosaic import estimators

    family = {REGRESSION: "Regressor", ONE_CLASS: "OneClass", SURVIVAL: "Survival"}.get(settings.task, "Classifier")
    prefix = {"bilinear": "Bilinear", "discriminant": "Discriminant", "localized": "Localized"}
    options: Settings = {price_name(METHODS[settings.method], settings.task): Cs[0], "random_state": settings.seed}
    if settings.task == REGRESSION:
        options["epsilon"] = 0.1 * scale if settings.epsilon is None else settings.epsilon
    elif settings.task == SURVIVAL and settings.epsilon is not None:
        options["epsilon"] = settings.epsilon
    if settings.method in ("mkl", "rmkl"):
        options |= {"norm": settings.norm, "penalties": _penalties(settings.costs, [kernel[0] for kernel in kernels])}
    if settings.method == "localized":
        options["gating_columns"] = _gating_columns(plan)
    if settings.proba and settings.method != "discriminant":
        options["calibration"] = "sigmoid"
    return getattr(estimators, f"{prefix.get(settings.method, '')}MKL{family}")(kernels, **options)


def price_grid(method: Method, settings: FitRequest, scale: float) -> list[float]:
    """Return the Cs to try: one, if it was given or there is none to choose.

    A regression on targets s times as large is the same problem at s times the price.
    """
    if settings.task == ONE_CLASS:
        return [settings.nu]
    return [settings.price] if settings.price is not None else [float(f"{scale * one:.3g}") for one in method.grid]


def price_name(method: Method, task: str) -> str:
    """Return the name of the parameter that the Cs are values of."""
    return "nu" if task == ONE_CLASS else method.price


def _penalties(costs: dict[str, float], names: list[str]) -> Any:
    if not costs:
        return None
    d = np.ones(len(names))
    for wanted, factor in costs.items():
        meant = [i for i, name in enumerate(names) if name == wanted or name.partition(":")[0] == wanted]
        if not meant:
            raise ValueError(f"--cost {wanted}={factor:g}: no kernel or view has this name; there are {_some(names)}.")
        d[meant] *= factor
    return [float(one) for one in d]


def _gating_columns(plan: Plan) -> list[int]:
    if not plan.numbers:
        raise ValueError("--method localized: its gates read numbers, and no view has a column of them; use mkl.")
    return plan.positions(plan.numbers)


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
