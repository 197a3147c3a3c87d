"""The work behind ``kernelmosaic fit``: read, plan, choose the price of errors, train, tell, save."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold

from kernelmosaic import __version__
from kernelmosaic.cli.methods import (
    CLASSIFICATION,
    ONE_CLASS,
    REGRESSION,
    Method,
    Wishes,
    check_method,
    make_estimator,
    price_grid,
    price_name,
)
from kernelmosaic.cli.views import (
    ROW_COLUMN,
    Plan,
    Views,
    check_lengths,
    check_row_numbers,
    default_specs,
    guess_views,
    join_tables,
    joined_views,
    lay_kernels,
    make_plan,
    match_columns,
    read_given_kernels,
    read_views,
)
from kernelmosaic.estimators._path import HeldOut, Samples, follow_path

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
        In the order of the Cs; empty without cross-validation.
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
    Cs = price_grid(method, wishes, _scale(wishes.task, y))
    folds = make_folds(wishes, y)
    if not folds and len(Cs) > 1:
        raise ValueError(f"--folds 0: without cross-validation give the price, such as --C {Cs[len(Cs) // 2]}.")
    curve = _cross_validate(estimator, parameter, Cs, folds, wishes, table, y, advance)
    # The first of equals: the smoothest model.
    price = max(curve, key=lambda point: point.mean).price if curve else Cs[0]
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
    estimator: Any,
    parameter: str,
    Cs: list[float],
    folds: Any,
    wishes: Wishes,
    table: Any,
    y: Any,
    advance: Any,
) -> list[PricePoint]:
    quick = {} if wishes.method == "localized" else {"model__tol": _LOOSE}
    quick |= {"model__n_init": 1} if wishes.method == "localized" else {}

    def follow(rows: NDArray[np.intp], held: NDArray[np.intp]) -> list[HeldOut]:
        # What the preparation learns it learns from the rows of the fold, too.
        prepare = clone(estimator[:-1]).fit(table.iloc[rows])
        X = np.vstack([prepare.transform(table.iloc[rows]), prepare.transform(table.iloc[held])])
        target = None if wishes.task == ONE_CLASS else np.concatenate([y[rows], y[held]])
        models = [clone(estimator).set_params(**{parameter: C}, **quick).named_steps["model"] for C in Cs]
        every = np.arange(len(X))
        return follow_path(models, Samples.read(models, X, target), every[: len(rows)], every[len(rows) :], scale=False)

    found = []
    # Threads: the compiled loops let others run, and nothing has to be copied or started.
    workers = Parallel(n_jobs=wishes.jobs, prefer="threads", return_as="generator")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what stopped early is counted
        for done, path in enumerate(workers(delayed(follow)(*fold) for fold in folds), start=1):
            found.append(path)
            advance("cross-validation", done * len(Cs))
    if not folds:
        return []
    tol = clone(estimator).set_params(**quick).named_steps["model"].tol
    return [_gather(price, [path[i] for path in found], folds, wishes, y, tol) for i, price in enumerate(Cs)]


def _gather(price: float, found: list[HeldOut], folds: Any, wishes: Wishes, y: Any, tol: float) -> PricePoint:
    predictions = np.empty(len(y), dtype=found[0].predicted.dtype)
    for one, (_, held) in zip(found, folds, strict=True):
        predictions[held] = one.predicted
    scores = np.array([score_of(wishes.task, y[held], predictions[held]) for _, held in folds])
    return PricePoint(price, scores, predictions, sum(not one.gap <= tol for one in found))


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


@dataclass(frozen=True)
class Columns:
    """Which columns and matrices to use, as they were written on the command line."""

    target: str | None
    views: tuple[str, ...]
    kernels: tuple[str, ...]
    rows: str | None
    drop: tuple[str, ...]
    on: str | None = None


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line; see ``kernelmosaic fit --help``."""

    path: Path
    columns: Columns
    wishes: Wishes
    test: float
    output: Path
    report: Path | None


@dataclass(frozen=True)
class Material:
    """What there is to learn from, read and checked; `held` are the rows kept back for the test, `rest` the others."""

    table: Any
    y: NDArray[Any]
    rest: NDArray[np.intp]
    held: NDArray[np.intp]
    task: str
    plan: Plan
    views: Views
    kernels: list[Any]


def run_training(request: Request) -> None:
    """Train, print what came out, write the model and, if asked for, the report."""
    from kernelmosaic.cli import report
    from kernelmosaic.cli.output import print_facts, print_shares, progress, say
    from kernelmosaic.persistence import save

    material = read_material(request)
    wishes = replace(request.wishes, task=material.task)
    method = check_method(wishes)
    estimator, scale = _pipeline(wishes, material)
    rest, held = material.rest, material.held
    y = material.y[rest]
    n_prices = len(price_grid(method, wishes, scale))
    with progress(n_prices * wishes.folds) as advance:
        trained = train(estimator, method, wishes, material.table.iloc[rest], y, advance)
    facts = report.Facts.of(trained, wishes, material, y, _test_score(trained.pipeline, material, held))
    _note_training(trained, facts, request, method, material, rest)
    save(trained.pipeline, request.output)
    print_facts(report.title(facts), report.lines(facts, method))
    print_shares(report.shares(trained), trained.pipeline.training_["gates"])
    for line in [*material.views.notes, *trained.warnings, *report.cautions(facts, trained)]:
        say(note=line)
    print(f"Model: {request.output}")
    if request.report is not None:
        report.write_fit_report(trained, facts, request, method, y)
        print(f"Report: {request.report}")


def read_material(request: Request) -> Material:
    """Read the files, and lay out which kernel reads which columns."""
    from kernelmosaic.tables import kind_of, looks_like_an_index, read_table

    raw = read_table(request.path)
    joined: dict[str, Any] = {}
    if request.columns.on is not None:
        if not request.columns.views:
            raise ValueError("--on: there is no --view of a file to join; write --view name=FILE.")
        raw, joined = join_tables(raw, request.columns.views, request.columns.on, request.path)
    task, y = _read_target(raw, request)
    dropped = [
        name for text in request.columns.drop for name in match_columns(text, list(raw.columns), f"--drop {text}")
    ]
    names = [name for name in raw.columns if name not in {request.columns.target, request.columns.rows, *dropped}]
    indices = [] if request.columns.views else [name for name in names if looks_like_an_index(raw[name])]
    kinds = {name: kind_of(raw[name]) for name in names if name not in indices}
    rows_column = _add_row_numbers(raw, request)
    views = _choose_views(request, kinds, task, joined)
    views.notes += [f"column {name!r} is left out: it numbers the rows." for name in indices]
    plan = make_plan(views.views, kinds, raw, rows_column, request.path, bool(request.columns.views))
    table = plan.table(raw, request.path)
    if request.wishes.method not in ("mkl", "localized", "rmkl") and table[list(plan.numbers)].isna().any(axis=None):
        raise ValueError(
            f"--method {request.wishes.method}: some rows lack a view, which mkl, localized and rmkl alone learn from."
        )
    check_lengths(views.views, table, request.path)
    rest, held = split_off(request, task, y)
    kernels = lay_kernels(plan, views.views)
    given = read_given_kernels(request.columns.kernels, plan, len(raw))
    if given:
        check_row_numbers(table, plan, len(given[0][1].K), request.path)
    kernels += given
    names = [name for name, *_ in kernels]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ValueError(f"two kernels are called {repeated[0]!r}; choose another name.")
    return Material(table, y, rest, held, task, plan, views, kernels)


def _read_target(raw: Any, request: Request) -> tuple[str, NDArray[Any]]:
    from kernelmosaic.tables import guess_task, labels_of, numbers, target_of

    if request.wishes.task == ONE_CLASS:
        if request.columns.target is not None:
            target_of(raw, request.columns.target, request.path)  # left out of the columns, so it must at least be one
        return ONE_CLASS, np.zeros(len(raw))
    if request.columns.target is None:
        known = ", ".join(raw.columns[-8:])
        raise ValueError(f"name the column to predict with --target (… {known}), or ask for --task one-class.")
    target = target_of(raw, request.columns.target, request.path)
    task = request.wishes.task or guess_task(target)
    if task == REGRESSION:
        try:
            y = numbers(raw, [request.columns.target], request.path)[request.columns.target].to_numpy()
        except ValueError as error:
            text = str(error).removesuffix(".")
            raise ValueError(
                f"{text}. A regression learns numbers: mend it, or ask for --task classification if column "
                f"{request.columns.target!r} names classes."
            ) from None
        if np.ptp(y) == 0:
            raise ValueError(
                f"{request.path}, column {request.columns.target!r}: every row has the same value, {y[0]:g}; there is "
                "nothing to learn. Name another column with --target."
            )
        return task, y
    y = labels_of(target)
    if len(np.unique(y)) < 2:
        raise ValueError(
            f"{request.path}, column {request.columns.target!r} holds one class only, {y[0]}: a classifier needs two; "
            "--task one-class learns what is usual."
        )
    return task, y


def _add_row_numbers(raw: Any, request: Request) -> str | None:
    if not request.columns.kernels:
        if request.columns.rows is not None:
            raise ValueError("--rows: there is no --kernel whose rows they would number.")
        return None
    if request.columns.rows is None:
        raw[ROW_COLUMN] = np.arange(len(raw))
        return ROW_COLUMN
    return request.columns.rows


def _choose_views(request: Request, kinds: dict[str, str], task: str, joined: dict[str, Any]) -> Views:
    # Fewer kernels where every further one costs most.
    default = default_specs(task == ONE_CLASS, few=request.wishes.method in ("localized", "bilinear", "rmkl"))
    if joined:
        return joined_views(joined, kinds, default)
    if request.columns.views:
        return read_views(request.columns.views, kinds, default)
    if request.columns.kernels:
        return Views([])
    if not kinds:
        raise ValueError(f"{request.path} has no column to learn from beside the target.")
    return guess_views(kinds, default)


def _pipeline(wishes: Wishes, material: Material) -> tuple[Any, float]:
    from sklearn.pipeline import Pipeline

    scale = float(np.std(material.y[material.rest])) if material.task == REGRESSION else 1.0
    model = make_estimator(wishes, material.kernels, material.plan, scale)
    return Pipeline([("prepare", material.plan.transformer()), ("model", model)]), scale


def split_off(request: Request, task: str, y: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows to learn from and those to hold out for the test, in their order."""
    from sklearn.model_selection import train_test_split

    everyone = np.arange(len(y))
    if request.test == 0:
        return everyone, everyone[:0]
    _check_split(request, task, y)
    rest, held = train_test_split(
        everyone,
        test_size=request.test,
        random_state=request.wishes.seed,
        stratify=y if task == CLASSIFICATION else None,
    )
    return np.sort(rest), np.sort(held)


def _check_split(request: Request, task: str, y: NDArray[Any]) -> None:
    """Refuse a share of test rows that leaves one of the parts without a class, or with too little."""
    option, n = f"--test {request.test:g}", len(y)
    n_held = math.ceil(request.test * n)
    least, what = 2, "two"
    if task == CLASSIFICATION:
        values, counts = np.unique(y, return_counts=True)
        if counts.min() < 2:
            raise ValueError(
                f"{option}: class {str(values[counts.argmin()])!r} of column {request.columns.target!r} has one row, "
                "which cannot be both learned from and held out; leave the row out, or hold out none with --test 0."
            )
        least, what = len(values), f"one of each of the {len(values)} classes"
    if n - n_held < least or (task == CLASSIFICATION and n_held < least):
        too_few = n_held if n_held < least and task == CLASSIFICATION else n - n_held
        does = "holds out" if too_few == n_held else "leaves, to learn from,"
        way = f"{least / n:.3f} to {min(0.9, 1 - least / n):.3f}" if 2 * least < n else "0, for none"
        raise ValueError(f"{option} {does} {too_few} of {n} rows, but at least {what} must be there; give {way}.")


def _test_score(pipeline: Any, material: Material, held: NDArray[np.intp]) -> float | None:
    if len(held) == 0:
        return None
    return score_of(material.task, material.y[held], pipeline.predict(material.table.iloc[held]))


def _note_training(trained: Any, facts: Any, request: Request, method: Method, material: Material, rest: Any) -> None:
    """Leave in the pipeline what `predict` and `inspect` need to know; plain values, which a model file can hold."""
    from kernelmosaic.cli.output import gate_summary

    model = trained.pipeline.named_steps["model"]
    X = trained.pipeline.named_steps["prepare"].transform(material.table.iloc[rest])
    plan = material.plan
    trained.pipeline.training_ = {
        "version": __version__,
        "task": material.task,
        "method": request.wishes.method,
        "target": request.columns.target,
        "rows": len(rest),
        "columns": [name for name in plan.columns if name != ROW_COLUMN],
        "plan": {
            "numbers": list(plan.numbers),
            "categories": dict(plan.categories),
            "texts": list(plan.texts),
            "rows": plan.rows,
            "groups": [list(group) for group in plan.groups],
        },
        "views": _views_of(material.views),
        "price": {"name": price_name(method, material.task), "value": float(trained.price)},
        "score": facts.score_entry(),
        "test": facts.test_entry(),
        "seconds": float(trained.seconds),
        "costs": _costs_of(model, request.wishes.costs),
        "gates": gate_summary(model, X),
        "warnings": list(trained.warnings),
    }


def _costs_of(model: Any, costs: dict[str, float]) -> list[float]:
    own = {name: costs.get(name, costs.get(name.partition(":")[0], 1.0)) for name in model.kernel_names_}
    return [float(cost) for cost in own.values()]


def _views_of(views: Views) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for view in views.views:  # one written in several parts is still one
        entry = found.setdefault(view.name, {"columns": [], "kernels": []})
        entry["columns"] += [column for column in view.columns if column not in entry["columns"]]
        entry["kernels"] += [spec.label for spec in view.specs]
    return found
