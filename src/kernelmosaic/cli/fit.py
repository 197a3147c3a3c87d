"""The work behind ``kernelmosaic fit``, ``embed`` and ``cluster``: choose C, fit, write and print
what is found."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np
from joblib import parallel_config
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline

from kernelmosaic import tables
from kernelmosaic._typing import AnyArray, Array, Estimator, Indices, Mask, Settings
from kernelmosaic.cli import methods
from kernelmosaic.cli.output import (
    facts,
    gate_summary,
    note_on_failure,
    print_facts,
    print_shares,
    progress,
    say,
)
from kernelmosaic.cli.predict import columns_of_embedding, rounded
from kernelmosaic.cli.requests import (
    ClusterRequest,
    EmbedRequest,
    FitRequest,
    TableRequest,
    TaskName,
)
from kernelmosaic.cli.training_table import TrainingTable, read_training_table
from kernelmosaic.engine.search import (
    PathOptions,
    PathResult,
    describe_choice,
    read_samples,
    search_paths,
)
from kernelmosaic.estimators.card import ModelCard
from kernelmosaic.estimators.cv import DEFAULT_FOLDS, MKLClassifierCV
from kernelmosaic.model_selection import ResponseSurfaceSearchCV
from kernelmosaic.persistence import save
from kernelmosaic.reports import Page
from kernelmosaic.survival.search import MKLSurvivalCV, likelihood
from kernelmosaic.unlabelled.estimator import MKLClustering, MKLKernelPCA, unlabelled_kernels

Advance = Callable[[str, int], None]


@dataclass(frozen=True)
class PathChoice:
    """What cross-validation found along the values of C, and which C and norm it chose.

    Parameters
    ----------
    found : PathResult
    m, i : int
        The numbers of the norm and of the C that were chosen.
    scores : ndarray of shape (folds, Cs)
        The scores of the task, of the chosen norm; NaN where nothing was tried.
    norms : dict of ndarray of shape (folds, Cs)
        By norm, the scores that the choice was made by.
    learned : dict of ndarray
        The weights that every norm learned, where equal weights were chosen.
    summary : str
        The scores of the chosen norm and of the others; empty if one was tried.
    """

    found: PathResult
    m: int
    i: int
    scores: Array
    norms: dict[Any, Array]
    learned: dict[Any, Array]
    summary: str

    @property
    def norm(self) -> Any:
        """The norm of the weights that was chosen."""
        return self.found.norms[self.m]

    def predictions(self, i: int) -> AnyArray:
        """Return the prediction of every row, at one C, while it was held out."""
        return self._in_order([path[i].predicted for path in self.found.found[self.m]])

    def probabilities(self) -> AnyArray:
        """Return the probabilities of every row while it was held out; every part has all
        classes."""
        found, classes = self.found, np.asarray(self.found.classes)
        parts = [path[self.i] for path in found.found[self.m]]
        calibrations = [
            found.calibration(self.m, self.i, "sigmoid", without=f) for f in range(len(parts))
        ]
        each = zip(calibrations, parts, strict=True)
        return self._in_order(
            [calibration.probabilities(one.aligned(classes)) for calibration, one in each]
        )

    def _in_order(self, parts: list[AnyArray]) -> AnyArray:
        """Return what belongs to the rows of every part in the order of the table."""
        return np.concatenate(parts)[
            np.argsort(np.concatenate([held for _, held in self.found.folds]))
        ]


@dataclass(frozen=True)
class HeldOut:
    """Predictions of the rows learned from, each by fits without it.

    Parameters
    ----------
    how : {"cross-validated", "leave-one-out", "leave-one-group-out"}
    scores : ndarray
        Of the parts; of rows or groups that are left out one by one, numbers whose mean is the
        score.
    predictions : ndarray
    probabilities : ndarray of shape (rows, classes) or None
    baseline : float
        The score of the baseline without features on the same parts.
    """

    how: str
    scores: Array
    predictions: AnyArray
    probabilities: AnyArray | None
    baseline: float


@dataclass(frozen=True)
class Trained:
    """A fitted pipeline and how it came about.

    Parameters
    ----------
    training : TrainingTable
    pipeline : Pipeline
    C : float
        The one used.
    seconds : float
        Of all fits, cross-validation included.
    warnings : list of str
        Those of the last fit.
    held_out : HeldOut or None
        None without cross-validation.
    path : PathChoice or None
        None of ridge, and without cross-validation.
    search : ResponseSurfaceSearchCV or None
        The search of rmkl.
    """

    training: TrainingTable
    pipeline: Any
    C: float
    seconds: float
    warnings: list[str]
    held_out: HeldOut | None = None
    path: PathChoice | None = None
    search: Any = None

    @property
    def model(self) -> Estimator:
        """The fitted estimator."""
        return self.pipeline.named_steps["model"]

    @property
    def y(self) -> AnyArray:
        """The targets of the rows learned from."""
        return self.training.target.y[self.training.training_rows]

    @property
    def groups(self) -> Indices | None:
        """The groups of the rows learned from, if these are left out together."""
        return (
            None
            if self.training.groups is None
            else self.training.groups[self.training.training_rows]
        )

    @cached_property
    def noted(self) -> Settings:
        """What `predict` and `inspect` need; values that a model file can hold."""
        request, training, model, path = self.training.request, self.training, self.model, self.path
        task, inside, test = training.target.task, training.table.iloc[training.training_rows], None
        if len(training.test_rows):
            predicted = self.pipeline.predict(training.table.iloc[training.test_rows])
            test = methods.measured(task, training.target.y[training.test_rows], predicted)
        return {
            "task": task,
            "method": request.method,
            "target": request.target,
            "targets": list(training.target.columns),
            "rows": len(training.training_rows),
            "fingerprints": training.fingerprints[training.training_rows],
            **training.record,
            "price": {
                "name": methods.parameter_of(request),
                "value": float(self.C),
                "how": self._how(),
            },
            "score": self._score(),
            "test": test,
            "seconds": float(self.seconds),
            "costs": methods.kernel_costs(request.costs, model.kernel_names_),
            "gates": gate_summary(model, self.pipeline[:-1].transform(inside)),
            "choice": "" if path is None else path.summary,
            "warnings": [*training.warnings, *self.warnings],
        }

    def _how(self) -> str:
        """Say how C, or the parameter in its place, was chosen."""
        request, Cs = (
            self.training.request,
            np.empty(0) if self.path is None else self.path.found.Cs,
        )
        if request.method == "ridge" and request.C is None:
            is_evidence = self.model.chosen_criterion_ == "evidence"
            return "learned by evidence" if is_evidence else "learned by leave-one-out error"
        if len(Cs) < 2:
            return "given"
        by = " by partial likelihood" if request.loss == "cox" else ""
        best = (
            "best"
            if request.rule in (None, "best")
            else "smoothest within one standard error of the best,"
        )
        return f"the {best} of {len(Cs)} from {min(Cs):.4g} to {max(Cs):.4g}{by}"

    def _score(self) -> Settings | None:
        held, y, task = self.held_out, self.y, self.training.target.task
        if held is None:
            return None
        further: dict[str, str] = {}

        def add(
            name: str, form: str, statistic: Callable[..., float], *rows: AnyArray, mean: str = ""
        ) -> None:
            error = methods.bootstrap_error(statistic, *rows, groups=self.groups)
            further[name] = (
                f"{statistic(*rows):{form}} ± {error:{form}} (standard error; {mean}{len(y)} rows)"
            )

        if task == "regression":
            add(
                "RMS error",
                ".4g",
                lambda y, said: np.sqrt(np.mean((y - said) ** 2)),
                y,
                held.predictions,
            )
        if held.probabilities is not None:
            classes, mean = list(enumerate(self.model.classes_)), "mean of the classes; "
            shown = classes[1:] if len(classes) == 2 else classes

            def areas(y: AnyArray, p: AnyArray) -> float:
                return float(np.mean([methods.area(y == c, p[:, k]) for k, c in shown]))

            add("AUC", ".3f", areas, y, held.probabilities, mean=mean if len(shown) > 1 else "")
            add("F1", ".3f", methods.macro_f1, y, held.predictions, mean=mean)
        return {
            "name": methods.SCORES[task][0],
            "mean": float(held.scores.mean() if self.search is None else self.search.best_score_),
            "error": methods.standard_error(held.scores),
            "n": len(y),
            "folds": len(held.scores),
            "baseline": held.baseline,
            "how": held.how,
            "further": further,
        }


def train_table(
    request: FitRequest, show: Callable[[int], AbstractContextManager[Advance]] = progress
) -> Trained:
    """Read the table, print how it is read, and fit; `show` shows how many steps are done."""
    training = read_training_table(request)
    splitter = make_splitter(training)
    pipeline = make_pipeline(training)
    say(*describe_views(training), *training.notes, *training.warnings)
    with show((0 if splitter is None else splitter.get_n_splits()) + 1) as advance:
        return train(training, pipeline, splitter, advance)


def describe_views(training: TrainingTable, most: int = 20) -> list[str]:
    """Return a line per view: its name, its file, its columns and its kernels, and how many rows
    lack it."""
    described = []
    for name, view in list(training.views.items())[:most]:
        columns, lost = view["columns"], training.lacking[name]
        shown = ", ".join(columns[:4]) + (", …" if len(columns) > 4 else "")
        source = f" ({', '.join(view['files'])})" if view["files"] else ""
        lack = f"; lacked by {lost} of {len(training.table)} rows" if lost or source else ""
        what = (
            f"{len(columns)} column{'s' * (len(columns) > 1)} ({shown});"
            f" {' + '.join(view['kernels'])}"
        )
        described.append(f"view {name}{source}: {what}{lack}")
    if len(training.views) > most:
        described.append(f"and {len(training.views) - most} more views")
    given = [name for name, *_ in training.kernels if not name.partition(":")[2]]
    return described + ([f"kernel matrices: {', '.join(given)}"] if given else [])


def make_splitter(training: TrainingTable) -> Any:
    """Return what divides the rows into parts to be held out in turn; None of ridge, and with
    --folds 0."""
    request, y = training.request, training.target.y[training.training_rows]
    if request.folds == 0:
        return None
    values, counts = np.unique(_strata(request, y), return_counts=True)
    alone = values[counts < 2]
    if request.task == "classification" and len(alone) > max(2, len(y) / 2):
        raise ValueError(
            f"{len(alone)} of {len(values)} classes have one row, such as {str(alone[0])!r}: is"
            " --target the right column? If it is a quantity, write it in numbers and give --task"
            " regression."
        )
    if request.method == "ridge":
        return None
    folds = DEFAULT_FOLDS if request.folds is None else request.folds
    shuffled = {"shuffle": request.seed is not None, "random_state": request.seed}
    if request.task not in ("classification", "survival"):
        # One row alone has no R².
        most = max(2, len(y) // 2) if request.task == "regression" else len(y)
        return KFold(min(folds, most), **shuffled)
    if len(alone):
        what = (
            f"class {str(alone[0])!r}"
            if request.task == "classification"
            else f"event {int(alone[0])}"
        )
        raise ValueError(
            f"{what} has one row to learn from: cross-validation needs two of each. Leave it out,"
            " or switch cross-validation off with --folds 0 and a C, such as --C 1."
        )
    return StratifiedKFold(int(min(folds, counts.min())), **shuffled)


def _strata(request: FitRequest, y: AnyArray) -> AnyArray:
    """What parts should have alike: the classes, or whether the event was observed."""
    return y[:, 0].astype(int) if request.task == "survival" else y


def make_pipeline(training: TrainingTable) -> Pipeline:
    """Return the preparation of the columns and the estimator, not yet fitted."""
    request = training.request
    methods.check_request(request)
    scale = (
        float(np.std(training.target.y[training.training_rows])) or 1.0
        if request.task == "regression"
        else 1.0
    )
    if request.folds == 0 and request.method != "ridge" and methods.given_value_of(request) is None:
        raise ValueError(
            f"--folds 0: without cross-validation give the C, such as --C {scale:.3g}."
        )
    if request.method == "rmkl" and request.folds != 0 and len(training.kernels) < 2:
        raise ValueError(
            "--method rmkl: it learns penalties of several kernels, and there is one; name another,"
            " or use mkl."
        )
    model = methods.make_estimator(request, training.kernels, training.plan, scale)
    return Pipeline([*training.plan.steps(), ("model", model)])


def train(training: TrainingTable, pipeline: Pipeline, splitter: Any, advance: Advance) -> Trained:
    """Choose C, then fit to all rows.

    Parameters
    ----------
    training : TrainingTable
    pipeline : Pipeline
        Preparation, then ``model``.
    splitter : splitter or None
        What divides the rows into parts.
    advance : callable
        Called with what is done next and how many steps are done, of one per part and one for the
        fit to all rows.
    """
    request, task = training.request, training.target.task
    table, y = (
        training.table.iloc[training.training_rows],
        training.target.y[training.training_rows],
    )
    start = perf_counter()
    if splitter is None:
        advance("fitting to all rows", 0)
        groups = None if training.groups is None else training.groups[training.training_rows]
        params = {} if groups is None else {"model__groups": groups}
        target = None if task == "one-class" else y
        _, said = _with_warnings(lambda: pipeline.fit(table, target, **params))
        seconds = perf_counter() - start
        if request.method != "ridge":
            return Trained(
                training, pipeline, methods.given_value_of(request) or 1.0, seconds, said
            )
        model = pipeline.named_steps["model"]
        held = _left_out(model, task, y, groups, methods.baseline_of(task, y, y, request.nu))
        return Trained(training, pipeline, float(model.alpha_), seconds, said, held)
    strata = _strata(request, y)
    folds = list(splitter.split(strata, strata))
    path = _follow_paths(training, pipeline, folds, advance)
    C, search = float(path.found.Cs[path.i]), None
    if request.method == "rmkl":
        advance("searching penalties", len(folds))
        chosen = clone(pipeline).set_params(**{f"model__{methods.parameter_of(request)}": C})
        search = _search_penalties(chosen, folds, request, table, y)
        chosen.set_params(model__penalties=search.best_estimator_.named_steps["model"].penalties)
        advance("fitting to all rows", len(folds))
        chosen, said = _with_warnings(lambda: chosen.fit(table, y))
    else:
        advance("fitting to all rows", len(folds))
        # Of survival it is the survival functions that rows held out calibrate.
        has_shares = task in ("classification", "multi-label", "survival")
        calibrates = has_shares and (request.proba or request.method != "bilinear")
        chosen, said = _with_warnings(
            lambda: path.found.fit(path.m, path.i, "sigmoid" if calibrates else None)
        )
    held = HeldOut(
        "cross-validated",
        path.scores[:, path.i],
        path.predictions(path.i),
        path.probabilities() if task == "classification" else None,
        float(np.mean([methods.baseline_of(task, y[a], y[b], request.nu) for a, b in folds])),
    )
    return Trained(training, chosen, C, perf_counter() - start, said, held, path, search)


def _left_out(
    model: Estimator, task: TaskName, y: AnyArray, groups: Indices | None, baseline: float
) -> HeldOut:
    """Return the predictions of every row by a ridge machine without it, or without its group, in
    closed form."""
    left_out, how = model.loo_predictions_, "leave-one-out"
    scores = methods.score_terms(task, y, left_out)
    if groups is not None:
        # Errors within a group may be alike: the standard error is that of sums over groups.
        sums = np.bincount(np.unique(groups, return_inverse=True)[1], scores - scores.mean())
        scores, how = scores.mean() + sums * len(sums) / len(y), "leave-one-group-out"
    return HeldOut(how, scores, left_out, getattr(model, "loo_probabilities_", None), baseline)


def _follow_paths(
    training: TrainingTable, pipeline: Pipeline, folds: Any, advance: Advance
) -> PathChoice:
    """Fit to all parts but one along the values of C, for every norm, and choose by the rows held
    out."""
    request, task = training.request, training.target.task
    table, y = (
        training.table.iloc[training.training_rows],
        training.target.y[training.training_rows],
    )
    # As the CV estimators choose, unless C, the norm, or what kernels cost, is given.
    price = methods.given_value_of(request)
    like = MKLSurvivalCV() if task == "survival" else MKLClassifierCV()
    free = (
        request.method == "mkl"
        and task != "one-class"
        and request.norm is None
        and not request.costs
    )
    norms, Cs = like.norms if free else [None], like.Cs if price is None else [price]
    rule = (request.rule or "best").replace("-", "_")

    def score(model: Estimator, X: Any, y: Any = None) -> float:
        return methods.score_of(task, y, model.predict(X))

    def scores_of(found: PathResult) -> Array:
        return found.scores(likelihood if request.loss == "cox" else score, {})

    options = PathOptions(
        scale=False,  # columns are prepared by the pipeline
        n_jobs=request.jobs or 1,
        show=lambda text, done: advance("cross-validation", done),
        near=like.near if free else None,
        scores=scores_of,
        rule=rule,
    )
    # Threads: the compiled loops let others run, and nothing has to be copied or started.
    # What stopped early is counted.
    with parallel_config(backend="threading"), warnings.catch_warnings(action="ignore"):
        given = read_samples(pipeline, table, None if task == "one-class" else y)
        found = search_paths(pipeline, given, folds, Cs, norms, options)
    scores = scores_of(found)
    m, i = found.best(scores, rule)
    by_norm, norm = dict(zip(found.norms, scores, strict=True)), found.norms[m]
    learned = found.learned(scores, rule) if norm == "uniform" else {}
    summary = describe_choice(by_norm, norm, i, rule) if len(by_norm) > 1 else ""
    own = found.scores(score, {})[m] if request.loss == "cox" else scores[m]
    return PathChoice(found, m, i, own, by_norm, learned, summary)


def train_without(trained: Trained, view: str) -> tuple[Trained, Mask]:
    """Train as before without the kernels of a view; also return which rows have another one, and
    are learned from."""
    training, names = trained.training, trained.model.view_names_
    table, others = training.table.iloc[training.training_rows], {*names} - {view}
    known = np.ones(len(table), dtype=bool)
    if training.plan.impute in ("none", "views") and others <= {*training.views}:
        known = np.any(
            [table[training.views[name]["columns"]].notna().any(axis=1) for name in others], axis=0
        )
    kernels = [kernel for kernel, of in zip(training.kernels, names, strict=True) if of != view]
    left = {part for name, *_ in kernels for part in (name, name.partition(":")[0])}
    request = replace(
        training.request,
        costs=tuple(text for text in training.request.costs if text.rpartition("=")[0] in left),
        method=(
            "mkl"
            if training.request.method == "rmkl" and len(kernels) < 2
            else training.request.method
        ),
    )
    less = replace(
        training, request=request, kernels=kernels, training_rows=training.training_rows[known]
    )
    return train(less, make_pipeline(less), make_splitter(less), lambda what, done: None), known


def _with_warnings(fit: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return what a fit returns, and its warnings; not for use in threads, which share the
    filters."""
    with warnings.catch_warnings(record=True, action="ignore") as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.filterwarnings("always", message=".*samples duplicate another one")
        fitted = fit()
    return fitted, [str(warning.message) for warning in caught]


def _search_penalties(
    chosen: Pipeline, folds: Any, request: FitRequest, table: Any, y: AnyArray
) -> Estimator:
    # Fits that only choose penalties need few digits, and probabilities are for the last fit.
    loose = clone(chosen).set_params(
        model__tol=1e-2, **({"model__calibration": None} if request.proba else {})
    )
    search = ResponseSurfaceSearchCV(
        loose,
        on=["model__penalties"],
        cv=folds,
        n_jobs=request.jobs,
        order=(
            2 if len(chosen.named_steps["model"].kernels) <= 6 else 1
        ),  # quadratic, or a plane of more kernels
        max_iter=10,
        scoring="r2" if request.task == "regression" else "accuracy",
    )
    with warnings.catch_warnings(action="ignore"):
        search.fit(table, y)
    return search


# What is written and printed ----------------------------------------------------------------------


def publish(trained: Trained, make_page: Callable[[Trained], Page] | None = None) -> None:
    """Write the model and, where there is a function that makes it, the report page; print the
    facts."""
    request, noted, card = trained.training.request, trained.noted, ModelCard(trained.model)
    # Files are named once every one is written.
    trained.pipeline.training_ = noted
    trained.pipeline.schema_ = trained.training.schema
    save(trained.pipeline, request.output)
    if make_page is not None:
        with note_on_failure(f"The model is complete: {request.output}."):
            make_page(trained).write(str(request.report))
    reason = f" ({request.reason})" if request.reason else ""
    loss = "" if request.loss is None else f" ({request.loss})"
    clock = ("seconds in all", f"{perf_counter() - request.started:.1f}")
    print_facts(f"{request.method}{reason}, {request.task}{loss}", [*facts(card, noted), clock])
    print_shares(card.kernels, noted["gates"])
    say(*trained.warnings, *cautions(trained))
    print(f"Model: {request.output}")
    if make_page is not None:
        print(f"Report: {request.report}")


def cautions(trained: Trained) -> list[str]:
    """Return what the user should not overlook, a line each."""
    found, noted, path = [], trained.noted, trained.path
    task, score, name = noted["task"], noted["score"], noted["price"]["name"]
    Cs = [] if path is None else path.found.Cs.tolist()
    if len(Cs) > 2 and trained.C in (Cs[0], Cs[-1]):
        found.append(
            f"the best {name}, {trained.C:g}, is at the edge of those tried ({min(Cs):g} to"
            f" {max(Cs):g}): one beyond may be better; try it with --C."
        )
    steps = np.diff(trained.y) if task == "regression" else np.empty(0)
    if (
        score
        and len(steps)
        and trained.training.request.seed is None
        and (np.all(steps >= 0) or np.all(steps <= 0))
    ):
        found.append(
            "the rows are sorted by the target, and parts are taken in their order; --seed 0"
            " shuffles them."
        )
    if path is not None:
        tried, met = ~np.isnan(path.scores), path.found.gaps(path.m) <= path.found.model.tol
        if np.any(tried & ~met):
            found.append(
                f"{np.sum(tried & ~met)} of {tried.sum()} cross-validation fits stopped early."
            )
    if (
        task != "one-class"
        and score
        and score["mean"] <= score["baseline"] + 2 * (score["error"] or 0.0)
    ):
        found.append(
            f"{score['name']} is not better than {methods.SCORES[task][1]} by two standard errors:"
            " the columns may not predict the target."
        )
    by_support = trained.training.request.method in ("mkl", "rmkl", "localized")
    if task == "classification" and trained.model.support_fraction_ > 0.9 and by_support:
        found.append(
            "nearly every row is a support vector: predictions will be slow, and the classes"
            " overlap."
        )
    return found


# Rows without labels ------------------------------------------------------------------------------


def run_unlabelled(request: EmbedRequest) -> None:
    """Read the table, fit, write or print coordinates and clusters, and print the facts."""
    import pandas as pd

    # Rows without targets are read as those of a one-class machine are.
    shared: Settings = {one.name: getattr(request, one.name) for one in fields(TableRequest)}
    training = read_training_table(FitRequest(**shared, task="one-class"), unlabelled_kernels())
    raw = tables.read_table(request.path)
    tables.require(raw, request.ids, request.path)
    own = raw.iloc[training.file_rows]
    say(*describe_views(training), *training.notes)
    pipeline = Pipeline([*training.plan.steps(), ("model", make_model(request, training.kernels))])
    with warnings.catch_warnings(record=True, action="always") as said:
        pipeline.fit(training.table)
    say(*dict.fromkeys(str(one.message) for one in said))
    model = pipeline.named_steps["model"]
    ids: Settings = {}
    if request.ids:
        carried = tables.read_as_written(request.path, request.ids).iloc[training.file_rows]
        ids = {name: carried[name].to_numpy() for name in request.ids}
    found = pd.DataFrame(
        ids | columns_of_embedding(getattr(model, "labels_", None), model.embedding_)
    )
    if getattr(model, "n_clusters_", 0) > 1:
        found["silhouette"] = rounded({"silhouette": model.silhouette_})["silhouette"]
    pipeline.training_ = training.record
    pipeline.schema_ = training.schema
    if request.output is None:
        print(tables.table_text(found), end="")
    else:
        tables.write_table(found, request.output)
        print_facts(str(request.path), [("rows", str(len(found))), *ModelCard(model).facts])
        print_shares(ModelCard(model).kernels)
        print(f"Table: {request.output} ({len(found)} rows)")
    if request.model is not None:
        save(pipeline, request.model)
        say(f"Model: {request.model}")
    if request.report is not None:
        target = None if request.target is None else own[request.target].to_numpy()
        unlabelled_page(pipeline, training, target).write(request.report)
        say(f"Report: {request.report}")


def make_model(request: EmbedRequest, kernels: list[Any]) -> Estimator:
    """Return the estimator of a request; columns are put on one scale before it."""
    given: Settings = {
        "kernels": kernels,
        "weights": request.weights,
        "random_state": request.seed,
        "scale": False,
    }
    if not isinstance(request, ClusterRequest):
        return MKLKernelPCA(n_components=request.components or 2, **given)
    given |= {
        "n_clusters": request.clusters or "auto",
        "n_components": request.components or "auto",
    }
    return MKLClustering(embedding=request.embedding, **given)


def unlabelled_page(pipeline: Any, training: TrainingTable, target: AnyArray | None) -> Page:
    """Return the page: views and their similarity, clusters, the embedding; pictures are there when
    matplotlib is."""
    model, what = pipeline.named_steps["model"], f"{len(training.table)} rows without labels"
    lead = f"{what}: {type(model).__name__} on the sum of the kernels of {len(model.views_)} views."
    page = Page(f"{training.request.path.name}: {what}", lead)
    page.table("Summary.", ("what", "value"), ModelCard(model).facts)
    weights = [
        [name, f"{weight:.3f}", training.lacking.get(name, 0)]
        for name, weight in model.view_weights_.items()
    ]
    page.table("The views.", ("view", "weight", "lacked by"), weights)
    if hasattr(model, "labels_") and model.n_clusters_ > 1:
        each = [(k, model.silhouette_[model.labels_ == k]) for k in range(model.n_clusters_)]
        sizes = [[str(k), len(own), f"{np.mean(own):.3f}"] for k, own in each]
        page.table("The clusters.", ("cluster", "rows", "mean silhouette"), sizes)
    if find_spec("matplotlib") is not None:
        from kernelmosaic import plots

        page.figure(
            plots.ViewSimilarityDisplay.from_estimator(model),
            "Similarity",
            "How alike the views are.",
        )
        for y, by in [
            (None, ""),
            *([] if target is None else [(target, f", by {training.request.target}")]),
        ]:
            drawn = plots.EmbeddingDisplay.from_estimator(pipeline, training.table, y)
            page.figure(
                drawn,
                f"The rows in two coordinates{by}",
                f"The rows, in two of the coordinates{by}.",
            )
        page.figure(
            plots.EigenvaluesDisplay.from_estimator(model),
            "Eigenvalues",
            "Eigenvalues, the largest first.",
        )
    return page
