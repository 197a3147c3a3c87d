"""The work behind ``kernelmosaic fit``: read, plan, train, tell, save."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic import __version__
from kernelmosaic.cli._kernel_specs import default_specs
from kernelmosaic.cli._methods import (
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
from kernelmosaic.cli._prepare import (
    ROW_COLUMN,
    Plan,
    check_lengths,
    check_row_numbers,
    lay_kernels,
    make_plan,
    read_given_kernels,
)
from kernelmosaic.cli._views import Views, guess_views, match_columns, read_views


@dataclass(frozen=True)
class Columns:
    """Which columns and matrices to use, as they were written on the command line."""

    target: str | None
    views: tuple[str, ...]
    kernels: tuple[str, ...]
    rows: str | None
    drop: tuple[str, ...]


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
    from kernelmosaic.cli import _fit_summary as summary
    from kernelmosaic.cli._rich_output import print_facts, print_shares, progress, say
    from kernelmosaic.cli._training import train
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
    facts = summary.Facts.of(trained, wishes, material, y, _test_score(trained.pipeline, material, held))
    _note_training(trained, facts, request, method, material, rest)
    save(trained.pipeline, request.output)
    print_facts(summary.title(facts), summary.lines(facts, method))
    print_shares(summary.shares(trained), trained.pipeline.training_["gates"])
    for line in [*material.views.notes, *trained.warnings, *summary.cautions(facts, trained)]:
        say(note=line)
    print(f"Model: {request.output}")
    if request.report is not None:
        from kernelmosaic.cli._fit_report import write_fit_report

        write_fit_report(trained, facts, request, method, y)
        print(f"Report: {request.report}")


def read_material(request: Request) -> Material:
    """Read the files, and lay out which kernel reads which columns."""
    from kernelmosaic.cli._pandas_columns import kind_of, looks_like_an_index
    from kernelmosaic.cli._pandas_tables import read_table

    raw = read_table(request.path)
    task, y = _read_target(raw, request)
    dropped = [
        name for text in request.columns.drop for name in match_columns(text, list(raw.columns), f"--drop {text}")
    ]
    names = [name for name in raw.columns if name not in {request.columns.target, request.columns.rows, *dropped}]
    indices = [] if request.columns.views else [name for name in names if looks_like_an_index(raw[name])]
    kinds = {name: kind_of(raw[name]) for name in names if name not in indices}
    rows_column = _add_row_numbers(raw, request)
    views = _choose_views(request, kinds, task)
    views.notes += [f"column {name!r} is left out: it numbers the rows." for name in indices]
    plan = make_plan(views.views, kinds, raw, rows_column, request.path)
    table = plan.table(raw, request.path)
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
    from kernelmosaic.cli._pandas_columns import guess_task, labels_of, numbers, target_of

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


def _choose_views(request: Request, kinds: dict[str, str], task: str) -> Views:
    # Fewer kernels where every further one costs most.
    default = default_specs(task == ONE_CLASS, few=request.wishes.method in ("localized", "bilinear", "rmkl"))
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
    from kernelmosaic.cli._training import score_of

    if len(held) == 0:
        return None
    return score_of(material.task, material.y[held], pipeline.predict(material.table.iloc[held]))


def _note_training(trained: Any, facts: Any, request: Request, method: Method, material: Material, rest: Any) -> None:
    """Leave in the pipeline what `predict` and `inspect` need to know; plain values, which a model file can hold."""
    from kernelmosaic.cli._model import gate_summary

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
