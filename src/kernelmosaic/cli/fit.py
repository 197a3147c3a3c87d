"""The work behind ``kernelmosaic fit``: read the table, choose C by cross-validation, fit to all rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from kernelmosaic import __version__
from kernelmosaic._typing import AnyArray, Estimator, MatrixLike, Settings, TargetLike
from kernelmosaic.cli.methods import (
    SCORES,
    FitRequest,
    TaskName,
    baseline_of,
    kernel_costs,
    make_estimator,
    method_of,
    parameter_of,
    price_of,
    score_of,
)
from kernelmosaic.cli.output import gate_summary, progress, say
from kernelmosaic.cli.training_table import TrainingTable, read_training_table
from kernelmosaic.cli.views import ROW_COLUMN

if TYPE_CHECKING:
    from kernelmosaic.engine.search import PathResult

Advance = Callable[[str, int], None]


@dataclass(frozen=True)
class CurvePoint:
    """What cross-validation found at one C: the score on each held-out part, and every row's prediction.

    Parameters
    ----------
    C : float
    scores : ndarray
        Of the parts; of rows or groups that are left out one by one, what each adds to the mean.
    predictions : ndarray
        Of every row while it was held out.
    n_loose : int
        How many fits stopped early.
    how : {"cross-validated", "leave-one-out", "leave-one-group-out"}
    """

    C: float
    scores: NDArray[np.float64]
    predictions: AnyArray
    n_loose: int
    how: str = "cross-validated"

    @property
    def mean(self) -> float:
        """The mean score."""
        return float(self.scores.mean())

    @property
    def spread(self) -> float:
        """The standard deviation of the scores over the parts; of rows left out one by one, that of their mean."""
        return float(self.scores.std()) / (1.0 if self.how == "cross-validated" else len(self.scores) ** 0.5)


@dataclass(frozen=True)
class Trained:
    """A fitted pipeline and how it came about.

    Parameters
    ----------
    request : FitRequest
        With the task and the method.
    training : TrainingTable
    pipeline : Pipeline
    curve : list of CurvePoint
        In the order of the Cs; empty without cross-validation.
    C : float
        The one used.
    baseline : float or None
        Score, on the same parts, of the rule that looks at no column.
    seconds : float
        Of all fits, cross-validation included.
    warnings : list of str
        Those of the last fit.
    search : ResponseSurfaceSearchCV or None
        The search of rmkl.
    probabilities : ndarray of shape (rows, classes) or None
        Of classes, of every row while it was held out, by what the other parts say.
    norm : float, str or None
        The norm of the weights that was chosen.
    norms : dict from norm to ndarray of shape (folds, Cs)
        The scores of all norms that were tried.
    learned : dict from norm to ndarray
        Where equal weights scored best, the weights that the others learned.
    """

    request: FitRequest
    training: TrainingTable
    pipeline: Any
    curve: list[CurvePoint]
    C: float
    baseline: float | None
    seconds: float
    warnings: list[str]
    search: Any = None
    probabilities: AnyArray | None = None
    norm: Any = None
    norms: dict[Any, NDArray[np.float64]] = field(default_factory=dict)
    learned: dict[Any, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def model(self) -> Estimator:
        """The fitted estimator."""
        return self.pipeline.named_steps["model"]

    @property
    def choice(self) -> str:
        """Which norm of the weights was chosen, and what the others scored; empty if one was tried."""
        from kernelmosaic.engine.search import describe_choice

        if len(self.norms) < 2:
            return ""
        at = [point.C for point in self.curve].index(self.C)
        return describe_choice(self.norms, self.norm, at, _rule(self.request))

    @property
    def y(self) -> AnyArray:
        """The targets of the rows learned from."""
        return self.training.target.y[self.training.rest]

    @property
    def best(self) -> CurvePoint | None:
        """The point of the C used."""
        return next((point for point in self.curve if point.C == self.C), None)

    @cached_property
    def noted(self) -> Settings:
        """What `predict` and `inspect` need to know; plain values, which a model file can hold."""
        request, training, model, best = self.request, self.training, self.model, self.best
        task, held = training.target.task, training.held
        name = SCORES[task][0]
        score = test = None
        if best is not None:
            mean = best.mean if self.search is None else float(self.search.best_score_)
            folds, baseline = len(best.scores), self.baseline
            score = {"name": name, "mean": mean, "spread": best.spread, "folds": folds, "baseline": baseline}
            score["how"] = best.how
        if len(held):
            predicted = self.pipeline.predict(training.table.iloc[held])
            test = {"name": name, "value": score_of(task, training.target.y[held], predicted)}
        return {
            "version": __version__,
            "task": task,
            "method": request.method,
            "target": request.target,
            "targets": list(training.target.columns),
            "rows": len(training.rest),
            "columns": [name for name in training.plan.columns if name != ROW_COLUMN],
            "plan": asdict(training.plan),
            "views": training.views,
            "lacking": training.lacking,
            "files": training.files,
            "price": {"name": parameter_of(request), "value": float(self.C)},
            "score": score,
            "test": test,
            "seconds": float(self.seconds),
            "costs": kernel_costs(request.costs, model.kernel_names_),
            "gates": gate_summary(model, self.pipeline[:-1].transform(training.table.iloc[training.rest])),
            "choice": self.choice,
            "warnings": [*training.warnings, *self.warnings],
        }


def train_table(request: FitRequest, show: Callable[[int], AbstractContextManager[Advance]] = progress) -> Trained:
    """Read the table, say how it is read, and fit; `show` shows how many steps are done."""
    training = read_training_table(request)
    request = training.request
    y = training.target.y[training.rest]
    splitter = make_splitter(request, y)
    pipeline = make_pipeline(request, training)
    for line in [*describe_views(training), *training.notes, *training.warnings]:
        say(note=line)
    with show((0 if splitter is None else splitter.get_n_splits()) + 1) as advance:
        return train(request, training, pipeline, splitter, advance)


def describe_views(training: TrainingTable, most: int = 20) -> list[str]:
    """Return a line per view: its name, its file, its columns and its kernels, and how many rows lack it."""
    described = []
    for name, view in list(training.views.items())[:most]:
        columns = view["columns"]
        shown = ", ".join(columns[:4]) + (", …" if len(columns) > 4 else "")
        source = f" ({', '.join(view['files'])})" if view["files"] else ""
        lost = training.lacking[name]
        lack = f"; lacked by {lost} of {len(training.table)} rows" if lost or source else ""
        described.append(
            f"view {name}{source}: {len(columns)} column{'s' * (len(columns) > 1)} ({shown}); "
            f"{' + '.join(view['kernels'])}{lack}"
        )
    if len(training.views) > most:
        described.append(f"and {len(training.views) - most} more views")
    given = [name for name, *_ in training.kernels if not name.partition(":")[2]]
    return described + ([f"kernel matrices: {', '.join(given)}"] if given else [])


def make_splitter(request: FitRequest, y: AnyArray) -> Any:
    """Return what divides the rows into parts to be held out in turn; None if that is what was asked for."""
    from sklearn.model_selection import KFold, StratifiedKFold

    from kernelmosaic.estimators.cv import PathSearch

    if request.folds == 0:
        return None
    if request.task == "classification":
        _check_classes(y)
    if request.method == "ridge":
        return None
    folds = PathSearch.cv if request.folds is None else request.folds
    shuffled = {"shuffle": request.seed is not None, "random_state": request.seed}
    if request.task not in ("classification", "survival"):
        # One row alone has no R².
        most = max(2, len(y) // 2) if request.task == "regression" else len(y)
        return KFold(min(folds, most), **shuffled)
    values, counts = np.unique(_strata(request, y), return_counts=True)
    n = int(min(folds, max(counts.min(), 2)))
    alone = values[counts < 2]
    if len(alone):
        what = f"class {str(alone[0])!r}" if request.task == "classification" else f"event {int(alone[0])}"
        raise ValueError(
            f"{what} has one row to learn from: cross-validation needs two of each. Leave it out, or switch "
            "cross-validation off with --folds 0 and a C, such as --C 1."
        )
    return StratifiedKFold(n, **shuffled)


def _check_classes(y: AnyArray) -> None:
    """Refuse a target of which most rows are a class of their own."""
    values, counts = np.unique(y, return_counts=True)
    alone = values[counts < 2]
    if len(alone) > max(2, len(y) / 2):
        raise ValueError(
            f"{len(alone)} of {len(values)} classes have one row, such as {str(alone[0])!r}: is --target the right "
            "column? If it is a quantity, write it in numbers and ask for --task regression."
        )


def _strata(request: FitRequest, y: AnyArray) -> AnyArray:
    """What parts should have alike: the classes, or whether the event was observed."""
    return y[:, 0].astype(int) if request.task == "survival" else y


def _scale(request: FitRequest, y: AnyArray) -> float:
    return float(np.std(y)) or 1.0 if request.task == "regression" else 1.0


def make_pipeline(request: FitRequest, training: TrainingTable) -> Pipeline:
    """Return the preparation of the columns and the estimator, not yet fitted."""
    method_of(request)
    scale = _scale(request, training.target.y[training.rest])
    if request.folds == 0 and request.method != "ridge" and price_of(request) is None:
        raise ValueError(f"--folds 0: without cross-validation give the C, such as --C {scale:.3g}.")
    if request.method == "rmkl" and request.folds != 0 and len(training.kernels) < 2:
        raise ValueError(
            "--method rmkl: it weighs kernels against each other, and there is one; name another, or use mkl."
        )
    model = make_estimator(request, training.kernels, training.plan, scale)
    return Pipeline([*training.plan.steps(), ("model", model)])


def train(request: FitRequest, training: TrainingTable, pipeline: Pipeline, splitter: Any, advance: Advance) -> Trained:
    """Choose C, then fit to all rows.

    Parameters
    ----------
    request : FitRequest
        With the task and the method.
    training : TrainingTable
    pipeline : Pipeline
        Preparation, then ``model``.
    splitter : splitter or None
        What divides the rows into parts.
    advance : callable
        Called with what is done next and how many steps are done, of one per part and one for the fit to all rows.
    """
    table, y = training.table.iloc[training.rest], training.target.y[training.rest]
    target = None if request.task == "one-class" else y
    strata = _strata(request, y)
    folds = [] if splitter is None else list(splitter.split(strata, strata))
    base = [baseline_of(training.target.task, y[a], y[b], request.nu) for a, b in folds]
    baseline, start = float(np.mean(base)) if base else None, perf_counter()
    if not folds:
        advance("fitting to all rows", 0)
        groups = None if training.groups is None else training.groups[training.rest]
        together = {} if groups is None else {"model__groups": groups}
        said = _with_warnings(lambda: pipeline.fit(table, target, **together))[1]
        seconds = perf_counter() - start
        if request.method != "ridge":
            return Trained(request, training, pipeline, [], price_of(request) or 1.0, baseline, seconds, said)
        point = _left_out_point(pipeline.named_steps["model"], training.target.task, y, groups)
        baseline = baseline_of(training.target.task, y, y, request.nu)
        held = getattr(pipeline.named_steps["model"], "loo_probabilities_", None)
        return Trained(request, training, pipeline, [point], point.C, baseline, seconds, said, probabilities=held)

    def scores_of(found: PathResult) -> NDArray[np.float64]:
        return _scores(found, request, training.target.task, y)

    found = _follow_paths(pipeline, request, table, target, folds, advance, scores_of)
    scores = scores_of(found)
    m, i = found.best(scores, _rule(request))
    curve, C, search = _curve(found, m, training.target.task, y), float(found.Cs[i]), None
    norm, norms = found.norms[m], dict(zip(found.norms, scores, strict=True))
    learned = found.learned(scores, _rule(request)) if norm == "uniform" else {}
    if request.method == "rmkl":
        advance("searching penalties", len(folds))
        chosen = clone(pipeline).set_params(**{f"model__{parameter_of(request)}": C})
        search = _search_penalties(chosen, folds, request, table, y)
        chosen.set_params(model__penalties=search.best_estimator_.named_steps["model"].penalties)
        advance("fitting to all rows", len(folds))
        chosen, said = _with_warnings(lambda: chosen.fit(table, y))
    else:
        advance("fitting to all rows", len(folds))
        # Of survival it is the survival functions that rows held out calibrate.
        has_shares = request.task in ("classification", "multi-label", "survival")
        calibrates = has_shares and (request.proba or request.method != "bilinear")
        chosen, said = _with_warnings(lambda: found.fit(m, i, "sigmoid" if calibrates else None))
    held = _held_out_probabilities(found, m, i) if request.task == "classification" else None
    seconds = perf_counter() - start
    return Trained(request, training, chosen, curve, C, baseline, seconds, said, search, held, norm, norms, learned)


def _held_out_probabilities(found: PathResult, m: int, i: int) -> AnyArray | None:
    """Return the probabilities of the classes of every row by parts that do not hold it, if each part has all."""
    assert found.classes is not None
    parts = [path[i] for path in found.found[m]]
    if any(one.classes is None or len(one.classes) < len(found.classes) for one in parts):
        return None
    held = np.empty((found.given.X.shape[0], len(found.classes)))
    for f, one in enumerate(parts):
        calibration = found.calibration(m, i, "sigmoid", without=f)
        held[found.folds[f][1]] = calibration.probabilities(one.aligned(found.classes))
    return held


def _left_out_point(model: Any, task: TaskName, y: AnyArray, groups: NDArray[np.intp] | None) -> CurvePoint:
    """Return what the closed form of a ridge machine says of every row by all others, or by all other groups."""
    left_out = model.loo_predictions_
    right = left_out == y if task == "classification" else 1.0 - (y - left_out) ** 2 / np.var(y)
    scores, how = right.astype(np.float64), "leave-one-out"
    if groups is not None:
        # Errors within a group may be alike: the standard error is that of sums over groups.
        sums = np.bincount(np.unique(groups, return_inverse=True)[1], scores - scores.mean())
        scores, how = scores.mean() + sums * len(sums) / len(y), "leave-one-group-out"
    return CurvePoint(float(model.alpha_), scores, left_out, 0, how)


def _follow_paths(
    pipeline: Pipeline,
    request: FitRequest,
    table: MatrixLike,
    target: TargetLike,
    folds: Any,
    advance: Advance,
    scores: Callable[[PathResult], NDArray[np.float64]],
) -> PathResult:
    """Return what the fits to all parts but one say of that one."""
    from joblib import parallel_config

    from kernelmosaic.engine.search import PathOptions, read_samples, search_paths
    from kernelmosaic.estimators.cv import MKLClassifierCV, MKLSurvivalCV

    # As the CV estimators choose, unless C, the norm, or what kernels cost, is given.
    price, like = price_of(request), MKLSurvivalCV if request.task == "survival" else MKLClassifierCV
    free = request.method == "mkl" and request.task != "one-class" and request.norm is None and not request.costs
    norms, Cs = like.norms if free else [None], like.Cs if price is None else [price]
    options = PathOptions(
        scale=False,  # columns are prepared by the pipeline
        n_jobs=request.jobs,
        show=lambda text, done: advance("cross-validation", done),
        near=like.near if free else None,
        scores=scores,
        rule=_rule(request),
    )
    # Threads: the compiled loops let others run, and nothing has to be copied or started.
    with parallel_config(backend="threading"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what stopped early is counted
        return search_paths(pipeline, read_samples(pipeline, table, target), folds, Cs, norms, options)


def _rule(request: FitRequest) -> str:
    """Return the rule by which C is chosen, as in Python."""
    return (request.rule or "best").replace("-", "_")


def _scores(found: PathResult, request: FitRequest, task: TaskName, y: AnyArray) -> NDArray[np.float64]:
    """Return the scores by norm, part and C that the choice is made by; NaN where nothing was tried."""
    if request.loss == "cox":
        from kernelmosaic.estimators.cv import likelihood

        return found.scores(likelihood, {})
    curves = [_curve(found, m, task, y) for m in range(len(found.norms))]
    return np.array([[point.scores for point in curve] for curve in curves]).swapaxes(1, 2)


def _curve(found: PathResult, m: int, task: TaskName, y: AnyArray) -> list[CurvePoint]:
    """Return what was found at each C, with one of the norms."""
    curve, gaps = [], found.gaps(m)
    for i, C in enumerate(found.Cs):
        parts = [path[i] for path in found.found[m]]
        if any(part.is_untried for part in parts):
            curve.append(CurvePoint(float(C), np.full(len(parts), np.nan), np.empty(0), 0))
            continue
        predictions = np.empty((len(y), *parts[0].predicted.shape[1:]), dtype=parts[0].predicted.dtype)
        for (_, held), part in zip(found.folds, parts, strict=True):
            predictions[held] = part.predicted
        scores = [score_of(task, y[held], predictions[held]) for _, held in found.folds]
        curve.append(CurvePoint(float(C), np.array(scores), predictions, int(np.sum(~(gaps[:, i] <= found.tol)))))
    return curve


def _with_warnings(fit: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return what a fit returns, and its warnings; not for use in threads, which share the filters."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.filterwarnings("always", message=".*samples repeat another one")
        fitted = fit()
    return fitted, [str(warning.message) for warning in caught]


def _search_penalties(chosen: Pipeline, folds: Any, request: FitRequest, table: MatrixLike, y: AnyArray) -> Estimator:
    from kernelmosaic.model_selection import ResponseSurfaceSearchCV

    # Fits that only choose penalties need few digits, and probabilities are for the last fit.
    loose = clone(chosen).set_params(model__tol=1e-2, **({"model__calibration": None} if request.proba else {}))
    search = ResponseSurfaceSearchCV(
        loose,
        on=["model__penalties"],
        cv=folds,
        n_jobs=request.jobs,
        order=2 if len(chosen.named_steps["model"].kernels) <= 6 else 1,  # quadratic, or a plane of more kernels
        max_iter=10,
        scoring="r2" if request.task == "regression" else "accuracy",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(table, y)
    return search
