"""Training on a table: the price of errors by cross-validation, then one fit on all rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold

from kernelmosaic.cli._folds import Later, is_shareable, plain_fold, shared_fold
from kernelmosaic.cli._methods import CLASSIFICATION, ONE_CLASS, REGRESSION, Method, Wishes, price_grid, price_name

#: How exactly the fits that only choose a price are solved.
_LOOSE = 1e-2
#: Up to this many kernels a response surface is a quadratic; above, a plane.
_MOST_FOR_QUADRATIC = 6

Advance = Callable[[str, int], None]


@dataclass(frozen=True)
class PricePoint:
    """What cross-validation found at one price: the score on each held-out part, and every row's prediction."""

    price: float
    scores: NDArray[np.float64]
    predictions: NDArray[Any]
    n_loose: int

    @property
    def mean(self) -> float:
        """The mean score."""
        return float(self.scores.mean())


@dataclass(frozen=True)
class Trained:
    """A fitted pipeline and how it came about.

    Parameters
    ----------
    pipeline : Pipeline
    curve : list of PricePoint
        In the order of the prices; empty without cross-validation.
    price : float
        The one used.
    baseline : float or None
        Score, on the same parts, of the rule that looks at no column.
    seconds : float
        Of the last fit.
    warnings : list of str
        What the last fit had to say.
    search : object
        The response-surface search of rmkl.
    """

    pipeline: Any
    curve: list[PricePoint]
    price: float
    baseline: float | None
    seconds: float
    warnings: list[str]
    search: Any = None

    @property
    def best(self) -> PricePoint | None:
        """The point of the price used."""
        return next((point for point in self.curve if point.price == self.price), None)


def score_of(task: str, y: Any, predicted: Any) -> float:
    """Return the share of right answers, R², or of samples accepted as like the training set."""
    if task == CLASSIFICATION:
        return float(np.mean(y == predicted))
    if task == ONE_CLASS:
        return float(np.mean(predicted == 1))
    rest, spread = np.sum((y - predicted) ** 2), np.sum((y - np.mean(y)) ** 2)
    return float(1 - rest / spread) if spread > 0 else 0.0


def baseline_of(task: str, y_train: Any, y_test: Any, nu: float) -> float:
    """Return the score of always giving the same answer: the commonest class, or the mean."""
    if task == ONE_CLASS:
        return 1 - nu
    if task == REGRESSION:
        return score_of(task, y_test, np.full(len(y_test), np.mean(y_train)))
    values, counts = np.unique(y_train, return_counts=True)
    return float(np.mean(y_test == values[counts.argmax()]))


def make_folds(wishes: Wishes, y: Any) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return the parts to hold out in turn; none if that is what was asked for."""
    if wishes.folds == 0:
        return []
    if wishes.task != CLASSIFICATION:
        n = min(wishes.folds, len(y))
        return list(KFold(n, shuffle=True, random_state=wishes.seed).split(y))
    values, counts = np.unique(y, return_counts=True)
    alone = values[counts < 2]
    if len(alone) > max(2, len(y) / 2):
        raise ValueError(
            f"{len(alone)} of {len(values)} classes have one row, such as {str(alone[0])!r}: is --target the right "
            "column? If it is a quantity, write it in numbers and ask for --task regression."
        )
    if len(alone):
        raise ValueError(
            f"class {str(alone[0])!r} has one row to learn from: cross-validation needs two of each class. Leave it "
            "out, or switch cross-validation off with --folds 0 and a price, such as --C 1."
        )
    n = int(min(wishes.folds, counts.min()))
    return list(StratifiedKFold(n, shuffle=True, random_state=wishes.seed).split(y, y))


def train(estimator: Any, method: Method, wishes: Wishes, table: Any, y: Any, advance: Advance) -> Trained:
    """Choose the price of errors, then fit to all rows.

    Parameters
    ----------
    estimator : Pipeline
        Preparation, then ``model``.
    method : Method
    wishes : Wishes
    table : DataFrame
    y : ndarray
        Ignored by one-class machines.
    advance : callable
        Called with what is done next and how many steps are done.
    """
    parameter = f"model__{price_name(method, wishes.task)}"
    prices = price_grid(method, wishes, _scale(wishes.task, y))
    folds = make_folds(wishes, y)
    if not folds and len(prices) > 1:
        raise ValueError(f"--folds 0: without cross-validation give the price, such as --C {prices[len(prices) // 2]}.")
    curve = _cross_validate(estimator, parameter, prices, folds, wishes, table, y, advance)
    # The first of equals: the smoothest model.
    price = max(curve, key=lambda point: point.mean).price if curve else prices[0]
    chosen = clone(estimator).set_params(**{parameter: price})
    search = None
    if wishes.method == "rmkl" and folds:
        advance("searching penalties", 0)
        search = _search_penalties(chosen, folds, wishes, table, y)
        chosen = clone(search.best_estimator_)
    advance("fitting to all rows", 0)
    start = perf_counter()
    said = _fit(chosen, table, y, wishes.task)
    seconds = perf_counter() - start
    base = [baseline_of(wishes.task, y[a], y[b], wishes.nu) for a, b in folds]
    return Trained(chosen, curve, price, float(np.mean(base)) if base else None, seconds, said, search)


def _scale(task: str, y: Any) -> float:
    return float(np.std(y)) or 1.0 if task == REGRESSION else 1.0


def _cross_validate(
    estimator: Any, parameter: str, prices: list[float], folds: Any, wishes: Wishes, table: Any, y: Any, advance: Any
) -> list[PricePoint]:
    quick = {} if wishes.method == "localized" else {"model__tol": _LOOSE}
    quick |= {"model__n_init": 1} if wishes.method == "localized" else {}
    shares = len(prices) > 1 and is_shareable(estimator, len(y), min(effective_n_jobs(wishes.jobs), len(folds)))
    make = shared_fold if shares else plain_fold

    def attempt(i: int, f: int, fold: Later) -> tuple[int, int, Any, bool]:
        given = fold.get()
        model = clone(given.pipeline).set_params(**{parameter: prices[i]}, **quick)
        model.fit(given.train, None if wishes.task == ONE_CLASS else y[folds[f][0]])
        inner = model.named_steps["model"]
        return i, f, model.predict(given.held), not inner.duality_gap_ <= inner.tol

    def tasks() -> Iterator[Any]:
        # Fold by fold, and no fold is held here: its matrices go as soon as its last price is done.
        for f, (rows, held) in enumerate(folds):
            fold = Later(partial(make, estimator, table, rows, held))
            yield from (delayed(attempt)(i, f, fold) for i in range(len(prices)))

    found: dict[tuple[int, int], tuple[Any, bool]] = {}
    # Threads: the compiled loops let others run, and nothing has to be copied or started.
    workers = Parallel(n_jobs=wishes.jobs, prefer="threads", return_as="generator_unordered")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what stopped early is counted
        for done, (i, f, predicted, loose) in enumerate(workers(tasks()), start=1):
            found[i, f] = predicted, loose
            advance("cross-validation", done)
    if not folds:
        return []
    return [
        _gather(price, [found[i, f] for f in range(len(folds))], folds, wishes, y) for i, price in enumerate(prices)
    ]


def _gather(price: float, found: Any, folds: Any, wishes: Wishes, y: Any) -> PricePoint:
    predictions = np.empty(len(y), dtype=np.asarray(found[0][0]).dtype)
    for (predicted, _), (_, held) in zip(found, folds, strict=True):
        predictions[held] = predicted
    scores = np.array([score_of(wishes.task, y[held], predictions[held]) for _, held in folds])
    return PricePoint(price, scores, predictions, sum(loose for _, loose in found))


def _fit(model: Any, table: Any, y: Any, task: str) -> list[str]:
    """Fit, and return what it warned of instead of printing it; not for use in threads, which share the filters."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(table, None if task == ONE_CLASS else y)
    return [str(warning.message) for warning in caught]


def _search_penalties(chosen: Any, folds: Any, wishes: Wishes, table: Any, y: Any) -> Any:
    from kernelmosaic.model_selection import ResponseSurfaceSearchCV

    order = 2 if len(chosen.named_steps["model"].kernels) <= _MOST_FOR_QUADRATIC else 1
    search = ResponseSurfaceSearchCV(
        clone(chosen).set_params(model__tol=_LOOSE),
        on=["model__penalties"],
        cv=folds,
        n_jobs=wishes.jobs,
        order=order,
        max_iter=10,
        scoring="r2" if wishes.task == REGRESSION else "accuracy",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(table, y)
    search.best_estimator_.set_params(model__tol=chosen.named_steps["model"].tol)
    return search
