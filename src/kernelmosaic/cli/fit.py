"""The work behind ``kernelmosaic fit``: read, plan, choose the price of errors, train, tell, save."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from kernelmosaic import __version__
from kernelmosaic._typing import AnyArray, ArrayOrTensor, Estimator, Settings, TargetLike
from kernelmosaic.cli.errors import after_writing
from kernelmosaic.cli.joining import Joined, join_tables, keep_rows, located
from kernelmosaic.cli.leaks import copies_of_target
from kernelmosaic.cli.methods import (
    CLASSIFICATION,
    LABELS,
    ONE_CLASS,
    REGRESSION,
    SURVIVAL,
    FitRequest,
    Method,
    check_method,
    make_estimator,
    price_grid,
    price_name,
)
from kernelmosaic.cli.views import (
    ROW_COLUMN,
    Plan,
    Views,
    ViewSpec,
    check_lengths,
    check_row_numbers,
    default_specs,
    guess_views,
    lay_kernels,
    make_plan,
    match_columns,
    read_given_kernels,
    read_options,
    read_view_file,
    read_views,
)

if TYPE_CHECKING:
    from kernelmosaic.estimators._path import PathResult

#: How exactly the fits that only choose penalties are solved.
_LOOSE = 1e-2
#: The same of paths, whose fits begin near the solution of another part and would end where they began.
_LOOSE_ON_PATHS = 3e-3
#: So many views are told one by one.
_MOST_VIEWS = 20
#: Up to this many kernels a response surface is a quadratic; above, a plane.
_MOST_FOR_QUADRATIC = 6

Advance = Callable[[str, int], None]


@dataclass(frozen=True)
class PricePoint:
    """What cross-validation found at one price: the score on each held-out part, and every row's prediction."""

    price: float
    scores: NDArray[np.float64]
    predictions: AnyArray
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
        Of all fits, cross-validation included.
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


def score_of(task: str, y: TargetLike, predicted: Any) -> float:
    """Return the score of predictions: the share of right answers or of samples accepted, R², or the concordance."""
    if task == CLASSIFICATION:
        return float(np.mean(y == predicted))
    if task == LABELS:
        return float(np.mean((y == predicted).all(axis=1)))
    if task == ONE_CLASS:
        return float(np.mean(predicted == 1))
    if task == SURVIVAL:
        from kernelmosaic.estimators.survival import concordance

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = concordance(y, predicted)
        return 0.5 if np.isnan(value) else value  # of rows that cannot be compared, any order is as good
    rest, spread = np.sum((y - predicted) ** 2), np.sum((y - np.mean(y)) ** 2)
    return float(1 - rest / spread) if spread > 0 else 0.0


def baseline_of(task: str, y_train: Any, y_test: Any, nu: float) -> float:
    """Return the score of always giving the same answer: the commonest class or labels, or the mean."""
    if task in (ONE_CLASS, SURVIVAL):
        return 1 - nu if task == ONE_CLASS else 0.5
    if task == REGRESSION:
        return score_of(task, y_test, np.full(len(y_test), np.mean(y_train)))
    values, counts = np.unique(y_train, return_counts=True, axis=0)
    return score_of(task, y_test, np.broadcast_to(values[counts.argmax()], np.shape(y_test)))


def make_splitter(settings: FitRequest, y: TargetLike) -> Any:
    """Return what divides the rows into parts to be held out in turn; None if that is what was asked for."""
    from sklearn.model_selection import KFold, StratifiedKFold

    if settings.folds == 0:
        return None
    if settings.task not in (CLASSIFICATION, SURVIVAL):
        # One row alone has no R².
        most = max(2, len(y) // 2) if settings.task == REGRESSION else len(y)
        return KFold(min(settings.folds, most), shuffle=True, random_state=settings.seed)
    values, counts = np.unique(_strata(settings.task, y), return_counts=True)
    n = int(min(settings.folds, max(counts.min(), 2)))
    alone = values[counts < 2]
    if settings.task == CLASSIFICATION and len(alone) > max(2, len(y) / 2):
        raise ValueError(
            f"{len(alone)} of {len(values)} classes have one row, such as {str(alone[0])!r}: is --target the right "
            "column? If it is a quantity, write it in numbers and ask for --task regression."
        )
    if len(alone):
        what = f"class {str(alone[0])!r}" if settings.task == CLASSIFICATION else f"event {int(alone[0])}"
        raise ValueError(
            f"{what} has one row to learn from: cross-validation needs two of each. Leave it out, or switch "
            "cross-validation off with --folds 0 and a price, such as --C 1."
        )
    return StratifiedKFold(n, shuffle=True, random_state=settings.seed)


def _strata(task: str, y: TargetLike) -> Any:
    """What parts should have alike: the classes, or whether the event was observed."""
    return y[:, 0].astype(int) if task == SURVIVAL else y


def train(
    pipeline: Any, method: Method, settings: FitRequest, table: Any, y: TargetLike, splitter: Any, advance: Advance
) -> Trained:
    """Choose the price of errors, then fit to all rows.

    Parameters
    ----------
    pipeline : Pipeline
        Preparation, then ``model``.
    method : Method
    settings : FitRequest
    table : DataFrame
    y : ndarray
        Ignored by one-class machines.
    splitter : splitter or None
        What divides the rows into parts.
    advance : callable
        Called with what is done next and how many steps are done, of one per part and one for the fit to all rows.
    """
    strata = _strata(settings.task, y)
    folds = [] if splitter is None else list(splitter.split(strata, strata))
    base = [baseline_of(settings.task, y[a], y[b], settings.nu) for a, b in folds]
    baseline, start = float(np.mean(base)) if base else None, perf_counter()
    Cs = price_grid(method, settings, _scale(settings.task, y))
    if not folds:
        advance("fitting to all rows", 0)
        said = _noted(lambda: pipeline.fit(table, None if settings.task == ONE_CLASS else y))[1]
        return Trained(pipeline, [], Cs[0], baseline, perf_counter() - start, said)
    found = _follow_paths(pipeline, settings, table, y, folds, Cs, advance)
    curve = _curve(found, settings.task, y)
    i = found.best(np.array([[point.scores for point in curve]]).swapaxes(1, 2))[1]
    price, search = curve[i].price, None
    if settings.method == "rmkl":
        advance("searching penalties", len(folds))
        chosen = clone(pipeline).set_params(**{f"model__{price_name(method, settings.task)}": price})
        # Probabilities are for the last fit.
        plain = clone(chosen).set_params(model__calibration=None) if settings.proba else chosen
        search = _search_penalties(plain, folds, settings, table, y)
        chosen.set_params(model__penalties=search.best_estimator_.named_steps["model"].penalties)
        advance("fitting to all rows", len(folds))
        chosen, said = _noted(lambda: chosen.fit(table, y))
    else:
        advance("fitting to all rows", len(folds))
        has_classes = settings.task in (CLASSIFICATION, LABELS)
        calibrates = has_classes and (settings.proba or settings.method != "bilinear")
        chosen, said = _noted(lambda: found.fit(0, i, "sigmoid" if calibrates else None))
    return Trained(chosen, curve, price, baseline, perf_counter() - start, said, search)


def _scale(task: str, y: TargetLike) -> float:
    return float(np.std(y)) or 1.0 if task == REGRESSION else 1.0


def _follow_paths(
    pipeline: Any, settings: FitRequest, table: Any, y: TargetLike, folds: Any, Cs: list[float], advance: Advance
) -> PathResult:
    """Return what the fits to all parts but one say of that one."""
    from joblib import parallel_config

    from kernelmosaic.estimators._path import PathOptions, read_samples, search_paths

    options = PathOptions(
        scale=False,  # columns are prepared by the pipeline
        fold_tol=None if settings.method == "localized" else _LOOSE_ON_PATHS,
        n_jobs=settings.jobs,
        show=lambda text, done: advance("cross-validation", done),
    )
    # Threads: the compiled loops let others run, and nothing has to be copied or started.
    with parallel_config(backend="threading"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what stopped early is counted
        given = read_samples(pipeline, table, None if settings.task == ONE_CLASS else y)
        return search_paths(pipeline, given, folds, Cs, [None], options)


def _curve(found: PathResult, task: str, y: TargetLike) -> list[PricePoint]:
    """Return what was found at each price."""
    curve, gaps = [], found.gaps(0)
    for i, C in enumerate(found.Cs):
        parts = [path[i].predicted for path in found.found[0]]
        predictions = np.empty((len(y), *parts[0].shape[1:]), dtype=parts[0].dtype)
        for (_, held), predicted in zip(found.folds, parts, strict=True):
            predictions[held] = predicted
        scores = np.array([score_of(task, y[held], predictions[held]) for _, held in found.folds])
        curve.append(PricePoint(float(C), scores, predictions, int(np.sum(~(gaps[:, i] <= found.tol)))))
    return curve


def _noted(fit: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return what a fit returns, and what it warned of; not for use in threads, which share the filters."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConvergenceWarning)
        fitted = fit()
    return fitted, [str(warning.message) for warning in caught]


def _search_penalties(chosen: Any, folds: Any, settings: FitRequest, table: Any, y: TargetLike) -> Any:
    from kernelmosaic.model_selection import ResponseSurfaceSearchCV

    order = 2 if len(chosen.named_steps["model"].kernels) <= _MOST_FOR_QUADRATIC else 1
    search = ResponseSurfaceSearchCV(
        clone(chosen).set_params(model__tol=_LOOSE),
        on=["model__penalties"],
        cv=folds,
        n_jobs=settings.jobs,
        order=order,
        max_iter=10,
        scoring="r2" if settings.task == REGRESSION else "accuracy",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(table, y)
    return search


@dataclass(frozen=True)
class Columns:
    """Which columns and matrices to use, as they were written on the command line."""

    target: str | None
    views: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    rows: str | None = None
    drop: tuple[str, ...] = ()
    on: str | None = None
    event: str | None = None
    view_file: Path | None = None
    impute: str = "none"
    drop_empty: bool = False


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line; see ``kernelmosaic fit --help``."""

    path: Path
    columns: Columns
    settings: FitRequest
    test: float
    output: Path
    report: Path | None


@dataclass(frozen=True)
class Target:
    """What is to be predicted: the task, the columns it is written in, and its values, one row per sample."""

    task: str
    columns: tuple[str, ...]
    y: AnyArray


@dataclass(frozen=True)
class TrainingTable:
    """What there is to learn from, read and checked.

    Parameters
    ----------
    table : DataFrame
    target : Target
    rest, held : ndarray
        The rows to learn from, and those kept back for the test.
    plan : Plan
    views : Views
    kernels : list
    read : dict
        The columns, kernels and files of each view.
    lacking : dict
        How many rows lack each view.
    files : dict
        Which file plays which part: the table, the views, the kernel matrices; and the column that names the rows.
    warnings : list of str
        What makes the score of the model doubtful.
    """

    table: Any
    target: Target
    rest: NDArray[np.intp]
    held: NDArray[np.intp]
    plan: Plan
    views: Views
    kernels: list[Any]
    read: dict[str, dict[str, list[str]]]
    lacking: dict[str, int]
    files: Settings
    warnings: list[str]

    @property
    def task(self) -> str:
        """What is learned."""
        return self.target.task

    @property
    def y(self) -> AnyArray:
        """The targets of all rows."""
        return self.target.y


def run_training(request: Request) -> None:
    """Train, print what came out, write the model and, if asked for, the report."""
    from kernelmosaic.cli import report
    from kernelmosaic.cli.output import print_facts, print_shares, progress, say
    from kernelmosaic.persistence import save

    training = read_training_table(request)
    settings = settings_for(request.settings, training.task)
    request = replace(request, settings=settings)
    method = check_method(settings)
    rest, held = training.rest, training.held
    y = training.y[rest]
    splitter = make_splitter(settings, y)
    pipeline = make_pipeline(settings, method, training, splitter)
    for line in [*describe_views(training), *training.views.notes, *training.warnings]:
        say(note=line)
    with progress((0 if splitter is None else splitter.get_n_splits()) + 1) as advance:
        trained = train(pipeline, method, settings, training.table.iloc[rest], y, splitter, advance)
    said = trained.warnings
    trained = replace(trained, warnings=[*training.warnings, *said])
    facts = report.Facts.of(trained, settings, training, y, _test_score(trained.pipeline, training, held))
    _note_training(trained, facts, request, method, training, rest)
    # What is announced is there: both files are written before the first word of it.
    save(trained.pipeline, request.output)
    if request.report is not None:
        with after_writing("model", request.output):
            report.write_fit_report(trained, facts, request, method, y)
    print_facts(report.title(facts), report.lines(facts, method))
    print_shares(report.shares(trained), trained.pipeline.training_["gates"])
    for line in [*said, *report.cautions(facts, trained)]:
        say(note=line)
    print(f"Model: {request.output}")
    if request.report is not None:
        print(f"Report: {request.report}")


def settings_for(settings: FitRequest, task: str) -> FitRequest:
    """Return the settings with the task, and the method that does it where none was asked for."""
    return replace(settings, task=task, method=settings.method or ("discriminant" if task == LABELS else "mkl"))


def make_pipeline(settings: FitRequest, method: Method, training: TrainingTable, splitter: Any) -> Any:
    """Return the preparation of the columns and the estimator, not yet fitted."""
    from sklearn.pipeline import Pipeline

    scale = _scale(training.task, training.y[training.rest])
    Cs = price_grid(method, settings, scale)
    if splitter is None and len(Cs) > 1:
        raise ValueError(f"--folds 0: without cross-validation give the price, such as --C {Cs[len(Cs) // 2]}.")
    if settings.method == "rmkl" and splitter is not None and len(training.kernels) < 2:
        raise ValueError(
            "--method rmkl: it weighs kernels against each other, and there is one; name another, or use mkl."
        )
    model = make_estimator(settings, training.kernels, training.plan, scale, Cs)
    return Pipeline([*training.plan.steps(), ("model", model)])


def describe_views(training: TrainingTable) -> list[str]:
    """Return a line per view: its name, its file, its columns and its kernels, and how many rows lack it."""
    found = training.read
    described = []
    for name, view in list(found.items())[:_MOST_VIEWS]:
        columns = view["columns"]
        shown = ", ".join(columns[:4]) + (", …" if len(columns) > 4 else "")
        source = f" ({', '.join(view['files'])})" if view["files"] else ""
        lost = training.lacking[name]
        lack = f"; lacked by {lost} of {len(training.table)} rows" if lost or source else ""
        described.append(
            f"view {name}{source}: {len(columns)} column{'s' * (len(columns) > 1)} ({shown}); "
            f"{' + '.join(view['kernels'])}{lack}"
        )
    if len(found) > _MOST_VIEWS:
        described.append(f"and {len(found) - _MOST_VIEWS} more views")
    given = [name for name, kernel, _ in training.kernels if not name.partition(":")[2]]
    return described + ([f"kernel matrices: {', '.join(given)}"] if given else [])


def read_training_table(request: Request) -> TrainingTable:
    """Read the files, and lay out which kernel reads which columns."""
    from kernelmosaic.tables import kind_of, looks_like_an_index, read_table, refuse

    asked = request.columns
    raw = read_table(request.path)
    raw.index = range(len(raw))  # rows that are left out below leave the numbers of the others as they are
    target, faults = _target_or_faults(raw, request)
    never = _never(target, asked)
    joined = None
    if asked.on is not None:
        joined = join_tables(raw, asked.views, asked.on, request.path, never)
        if not joined.files:
            raise ValueError("--on: there is no --view of a file to join; write --view name=FILE.")
        raw = joined.table
    everything = list(raw.columns)
    dropped = [name for text in asked.drop for name in match_columns(text.split(","), everything, f"--drop {text}")]
    names = [name for name in everything if name not in {*never, *dropped}]
    named = bool(asked.views) or asked.view_file is not None
    indices = [] if named else [name for name in names if looks_like_an_index(raw[name])]
    kinds = {name: kind_of(raw[name]) for name in names if name not in indices}
    rows_column = _add_row_numbers(raw, request)
    views = _choose_views(request, kinds, target.task, joined, never)
    views.notes += [f"column {name!r} is left out: it numbers the rows." for name in indices]
    views.notes += [] if joined is None else joined.notes
    plan = make_plan(views.views, kinds, raw, rows_column, request.path, named, asked.impute)
    if named or asked.kernels:
        views.notes += _unused(list(kinds), plan)
    kept = keep_rows(plan, raw, asked.on, request.path, asked.drop_empty)
    if len(kept) < len(raw):
        raw = raw.iloc[kept]
        target, faults = _target_or_faults(raw, request)
    table, more = _table_or_faults(plan, raw, request)
    refuse(located([*faults, *more], raw, joined), request.path)
    _check_missing_views(request, plan, table)
    check_lengths(views.views, table, request.path)
    rest, held = split_off(request, target.task, target.y)
    kernels = lay_kernels(plan, views.views)
    given = read_given_kernels(asked.kernels, plan, len(raw))
    if given:
        check_row_numbers(table, plan, len(given[0][1].K), request.path)
    kernels += given
    names = [name for name, *_ in kernels]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ValueError(f"two kernels are called {repeated[0]!r}; choose another name.")
    read = _views_of(views, joined)
    lacking = {name: int(raw[view["columns"]].isna().all(axis=1).sum()) for name, view in read.items()}
    return TrainingTable(
        table,
        target,
        rest,
        held,
        plan,
        views,
        kernels,
        read,
        lacking,
        _files(request, joined),
        _doubts(table, plan, target),
    )


def _never(target: Target, asked: Columns) -> dict[str, str]:
    """The columns that are never learned from, wherever they come from, and what each is."""
    found = {name: "the event" if name == asked.event else "the target" for name in target.columns}
    found |= {} if asked.rows is None else {asked.rows: "the row numbers"}
    return found if asked.on is None else {**found, asked.on: "the names of the rows"}


def _unused(names: list[str], plan: Plan) -> list[str]:
    """What to say of columns that no view reads and no option leaves out."""
    left = [name for name in names if name not in plan.columns]
    if not left:
        return []
    shown = ", ".join(left[:_MOST_VIEWS]) + (f" and {len(left) - _MOST_VIEWS} more" if len(left) > _MOST_VIEWS else "")
    few = "column is" if len(left) == 1 else "columns are"
    return [f"{len(left)} {few} not used: {shown}. A --view of them, such as name={left[0]}, learns from them."]


def _files(request: Request, joined: Joined | None) -> Settings:
    """Which file plays which part, as plain texts."""
    kernels = (text.partition("=") for text in request.columns.kernels)
    return {
        "table": str(request.path),
        "on": request.columns.on,
        "views": {name: str(path) for name, path in joined.files.items()} if joined else {},
        "kernels": {name: path for name, _, path in kernels},
    }


def _doubts(table: Any, plan: Plan, target: Target) -> list[str]:
    """A warning for every column that is the target written otherwise."""
    columns = [name for name in plan.columns if name != plan.rows]
    return [
        f"column {name!r} says the same as the target {of!r}, in its own or in other words, in every row that has it: "
        f"the score means nothing if it is not known before the target is; --drop {name!r} leaves it out."
        for name, of in copies_of_target(table, columns, target.task, target.columns, target.y).items()
    ]


def _check_missing_views(request: Request, plan: Plan, table: Any) -> None:
    """Refuse rows that lack views for methods that need every one."""
    lacking = [table[list(group)].isna().all(axis=1).any() for group in plan.groups]
    if request.settings.method in ("bilinear", "discriminant") and plan.impute in ("none", "views") and any(lacking):
        raise ValueError(
            f"--method {request.settings.method}: some rows lack a view, which mkl, localized and rmkl alone learn "
            "from; --impute median fills it in."
        )


def _target_or_faults(raw: ArrayOrTensor, request: Request) -> tuple[Target, list[Any]]:
    """Return the target; if it has cells that cannot be used, its columns and these, to be told with all others."""
    from kernelmosaic.tables import BadCells

    try:
        return read_target(raw, request), []
    except BadCells as error:
        names = [*(request.columns.target or "").split(","), request.columns.target, request.columns.event]
        return Target(request.settings.task, tuple(str(name).strip() for name in names), np.empty(0)), error.faults


def _table_or_faults(plan: Plan, raw: ArrayOrTensor, request: Request) -> tuple[Any, list[Any]]:
    from kernelmosaic.tables import BadCells

    try:
        return plan.table(raw, request.path), []
    except BadCells as error:
        return None, error.faults


def read_target(raw: ArrayOrTensor, request: Request) -> Target:
    """Return what is to be predicted, the task guessed where it was not asked for."""
    from kernelmosaic.tables import guess_task, labels_of, numbers, target_of

    name, asked, where = request.columns.target, request.settings.task, request.path
    if request.columns.event is not None or asked == SURVIVAL:
        return _read_survival(raw, request)
    if asked == ONE_CLASS:
        if name is not None:
            target_of(raw, name, where)  # left out of the columns, so it must at least be one
        return Target(ONE_CLASS, () if name is None else (name,), np.zeros(len(raw)))
    if name is None:
        known = ", ".join(raw.columns[-8:])
        raise ValueError(f"name the column to predict with --target (… {known}), or ask for --task one-class.")
    if asked == LABELS or ("," in name and name not in raw.columns):
        return _read_labels(raw, request, [part.strip() for part in name.split(",")])
    target = target_of(raw, name, where)
    task = asked or guess_task(target)
    if task == REGRESSION:
        try:
            y = numbers(raw, name, where)
        except ValueError as error:
            raise ValueError(
                f"{error} A regression learns numbers: mend it, or ask for --task classification if column "
                f"{name!r} names classes."
            ) from None
        if np.ptp(y) == 0:
            raise ValueError(
                f"{where}, column {name!r}: every row has the same value, {y[0]:g}; there is nothing to learn. Name "
                "another column with --target."
            )
        return Target(task, (name,), y)
    y = labels_of(target)
    if len(np.unique(y)) < 2:
        raise ValueError(
            f"{where}, column {name!r} holds one class only, {y[0]}: a classifier needs two; --task one-class learns "
            "what is usual."
        )
    return Target(task, (name,), y)


def _read_survival(raw: ArrayOrTensor, request: Request) -> Target:
    from kernelmosaic.tables import Fault, indicators, numbers, refuse, target_of

    time, event, where = request.columns.target, request.columns.event, request.path
    if request.settings.task not in ("", SURVIVAL):
        raise ValueError(f"--event {event}: a {request.settings.task} has no events; leave the option out.")
    if time is None or event is None:
        raise ValueError("--task survival: name the column of times with --target and that of events with --event.")
    target_of(raw, time, where)
    y = np.column_stack([indicators(raw, [event], where)[:, 0], numbers(raw, time, where)])
    remedy = "Times must be positive: leave such rows out, or add a small number to all."
    refuse(Fault.at(y[:, 1] <= 0, time, lambda row: f": the time {y[row, 1]:g}", remedy), where)
    if not y[:, 0].any():
        raise ValueError(f"{where}, column {event!r}: no event was observed; there is nothing to learn from.")
    return Target(SURVIVAL, (time, event), y)


def _read_labels(raw: ArrayOrTensor, request: Request, names: list[str]) -> Target:
    from kernelmosaic.tables import indicators

    if request.settings.task not in ("", LABELS):
        raise ValueError(
            f"--target {request.columns.target}: a {request.settings.task} has one target; name one column."
        )
    if len(names) < 2:
        raise ValueError(f"--target {names[0]}: name several columns of 0 and 1, such as --target a,b,c.")
    y = indicators(raw, names, request.path).astype(int)
    constant = [name for name, column in zip(names, y.T, strict=True) if np.ptp(column) == 0]
    if constant:
        raise ValueError(
            f"{request.path}, column {', '.join(map(repr, constant))}: every row has the same value; there is nothing "
            "to learn. Leave it out of --target."
        )
    return Target(LABELS, tuple(names), y)


def _add_row_numbers(raw: ArrayOrTensor, request: Request) -> str | None:
    if not request.columns.kernels:
        if request.columns.rows is not None:
            raise ValueError("--rows: there is no --kernel whose rows they would number.")
        return None
    if request.columns.rows is None:
        raw[ROW_COLUMN] = np.arange(len(raw))
        return ROW_COLUMN
    return request.columns.rows


def _choose_views(
    request: Request, kinds: dict[str, str], task: str, joined: Joined | None, never: dict[str, str]
) -> Views:
    # Fewer kernels where every further one costs most.
    default = default_specs(task == ONE_CLASS, few=request.settings.method in ("localized", "bilinear", "rmkl"))
    asked = request.columns
    wanted = _joined_views(joined, kinds) if joined else read_options(asked.views, kinds)
    if asked.view_file is not None:
        further = read_view_file(asked.view_file)
        if joined is not None:
            # A joined view keeps the columns that the file gives to no other.
            taken = {column for one in further for column in match_columns(one.patterns, list(kinds), one.where)}
            wanted = _joined_views(joined, {name: kind for name, kind in kinds.items() if name not in taken})
        wanted = [*wanted, *further]
    for one in wanted:
        for part in map(str.strip, one.patterns):
            if part in never:
                raise ValueError(f"{one.where}: column {part!r} is {never[part]}, never learned from; leave it out.")
    if wanted:
        return read_views(wanted, kinds, default)
    if asked.kernels:
        return Views([])
    if not kinds:
        raise ValueError(f"{request.path} has no column to learn from beside the target.")
    return guess_views(kinds, default)


def _joined_views(joined: Joined, usable: dict[str, str]) -> list[ViewSpec]:
    """The views of joined tables; those of files have the columns that are usable, and are left out without any."""
    found = []
    for one in joined.views:
        left = tuple(name for name in one.patterns if name in usable)
        if one.name not in joined.files:
            found.append(one)
        elif left:
            found.append(replace(one, patterns=left))
    return found


def split_off(request: Request, task: str, y: AnyArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows to learn from and those to hold out for the test, in their order."""
    from sklearn.model_selection import train_test_split

    all_rows = np.arange(len(y))
    if request.test == 0:
        return all_rows, all_rows[:0]
    _check_split(request, task, y)
    rest, held = train_test_split(
        all_rows,
        test_size=request.test,
        random_state=request.settings.seed,
        stratify=y if task == CLASSIFICATION else None,
    )
    return np.sort(rest), np.sort(held)


def _check_split(request: Request, task: str, y: AnyArray) -> None:
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


def _test_score(pipeline: Any, training: TrainingTable, held: NDArray[np.intp]) -> float | None:
    if len(held) == 0:
        return None
    return score_of(training.task, training.y[held], pipeline.predict(training.table.iloc[held]))


def _note_training(
    trained: Estimator, facts: Any, request: Request, method: Method, training: TrainingTable, rest: Any
) -> None:
    """Leave in the pipeline what `predict` and `inspect` need to know; plain values, which a model file can hold."""
    from kernelmosaic.cli.output import gate_summary

    model = trained.pipeline.named_steps["model"]
    X = trained.pipeline[:-1].transform(training.table.iloc[rest])
    plan = training.plan
    trained.pipeline.training_ = {
        "version": __version__,
        "task": training.task,
        "method": request.settings.method,
        "target": request.columns.target,
        "targets": list(training.target.columns),
        "rows": len(rest),
        "columns": [name for name in plan.columns if name != ROW_COLUMN],
        "plan": {
            "numbers": list(plan.numbers),
            "categories": dict(plan.categories),
            "texts": list(plan.texts),
            "rows": plan.rows,
            "groups": [list(group) for group in plan.groups],
            "impute": plan.impute,
        },
        "views": training.read,
        "lacking": dict(training.lacking),
        "files": training.files,
        "price": {"name": price_name(method, training.task), "value": float(trained.price)},
        "score": facts.score_entry(),
        "test": facts.test_entry(),
        "seconds": float(trained.seconds),
        "costs": _costs_of(model, request.settings.costs),
        "gates": gate_summary(model, X),
        "warnings": list(trained.warnings),
    }


def _costs_of(model: Estimator, costs: dict[str, float]) -> list[float]:
    own = {name: costs.get(name, costs.get(name.partition(":")[0], 1.0)) for name in model.kernel_names_}
    return [float(cost) for cost in own.values()]


def _views_of(views: Views, joined: Joined | None = None) -> dict[str, dict[str, list[str]]]:
    """The columns and kernels of each view, and the files that its columns are joined from."""
    found: dict[str, dict[str, list[str]]] = {}
    for view in views.views:  # one written in several parts is still one
        entry = found.setdefault(view.name, {"columns": [], "kernels": [], "files": []})
        entry["columns"] += [column for column in view.columns if column not in entry["columns"]]
        entry["kernels"] += [spec.label for spec in view.specs]
    sources = {} if joined is None else joined.sources
    for entry in found.values():
        paths = [str(sources[name][0]) for name in entry["columns"] if name in sources]
        entry["files"] = list(dict.fromkeys(paths))
    return found
