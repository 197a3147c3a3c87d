"""The work behind ``kernelmosaic fit``, ``embed`` and ``cluster``.

A fit reads the training table, chooses C by cross-validation, fits to all training rows, writes the
model, and prints its facts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
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
from kernelmosaic.engine.choice import Choice, HeldOutScoring
from kernelmosaic.engine.search import PathOptions, read_samples, search_paths
from kernelmosaic.estimators.card import ModelCard
from kernelmosaic.estimators.cv import DEFAULT_FOLDS, MKLClassifierCV
from kernelmosaic.model_selection import ResponseSurfaceSearchCV
from kernelmosaic.persistence import save
from kernelmosaic.reports import Page
from kernelmosaic.survival.search import MKLSurvivalCV, likelihood
from kernelmosaic.unlabelled.estimator import MKLClustering, MKLKernelPCA, unlabelled_kernels

Advance = Callable[[str, int], None]

#: The tolerance of fits that only compare penalties. Chosen by hand: scores of a fold hardly depend
#: on the last digits of a fit.
_PENALTY_SEARCH_TOL = 1e-2

#: The points that the search of penalties tries after its design. Chosen by hand.
_PENALTY_SEARCH_STEPS = 10

#: The most kernels for which the response surface is quadratic; above, it is a plane. For P kernels
#: a quadratic surface needs P (P + 1)/2 points, 21 for six, and a plane needs P.
_MOST_KERNELS_OF_QUADRATIC = 6

#: The share of support vectors above which the user is told that predictions will be slow.
_MANY_SUPPORT_VECTORS = 0.9

#: The most views that are described one by one as a table is read.
_MOST_DESCRIBED_VIEWS = 20

# What a fit returns -------------------------------------------------------------------------------


@dataclass(frozen=True)
class PathChoice:
    """The choice of a cross-validation along the values of C, with scores of the task.

    Parameters
    ----------
    choice : Choice
        The chosen norm and C, with the scores by which they were chosen.
    scores : ndarray of shape (folds, Cs)
        The scores of the task with the chosen norm; NaN where nothing was tried.
    """

    choice: Choice
    scores: Array

    @property
    def Cs(self) -> Array:
        """The values of C that were tried."""
        return self.choice.fits.Cs

    @property
    def norm(self) -> Any:
        """The norm of the weights that was chosen."""
        return self.choice.norm

    @property
    def scores_by_norm(self) -> dict[Any, Array]:
        """The scores by which the choice was made, of shape (folds, Cs), by norm."""
        return self.choice.scores_by_norm

    @cached_property
    def learned_weights(self) -> dict[Any, Array]:
        """The weights that every norm learned, where equal weights were chosen; else empty."""
        return self.choice.weights_by_norm() if self.norm == "uniform" else {}

    @property
    def summary(self) -> str:
        """The scores of the chosen norm and of the others; empty if one was tried."""
        return self.choice.described() if len(self.scores_by_norm) > 1 else ""


@dataclass(frozen=True)
class HeldOut:
    """Predictions of the training rows, each by a fit without the row.

    Parameters
    ----------
    how : {"cross-validated", "leave-one-out", "leave-one-group-out"}
    scores : ndarray
        Of a cross-validation the score of each fold; else a number per row or group, whose mean is
        the score.
    predictions : ndarray
    probabilities : ndarray of shape (rows, classes) or None
    baseline : float
        The score of the answer without features, over the same folds.
    """

    how: str
    scores: Array
    predictions: AnyArray
    probabilities: AnyArray | None
    baseline: float


@dataclass(frozen=True)
class Trained:
    """A fitted pipeline, and how it was chosen.

    Parameters
    ----------
    training : TrainingTable
    pipeline : Pipeline
    C : float
        The value that was used.
    seconds : float
        Of all fits, cross-validation included.
    warnings : list of str
        Those of the last fit.
    held_out : HeldOut or None
        None without cross-validation; ridge has leave-one-out predictions.
    path : PathChoice or None
        None of ridge, and without cross-validation.
    search : ResponseSurfaceSearchCV or None
        The search of penalties, of rmkl.
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
        """The fitted estimator, without the steps before it."""
        return self.pipeline.named_steps["model"]

    @property
    def y(self) -> AnyArray:
        """The targets of the training rows."""
        return self.training.target.y[self.training.training_rows]

    @property
    def groups(self) -> Indices | None:
        """The groups of the training rows, if these are left out together."""
        return _training_groups(self.training)

    @cached_property
    def record(self) -> Settings:
        """What the model file says of the fit, for `predict` and `inspect`."""
        training = self.training
        request = training.request
        target = training.target
        test = None
        if len(training.test_rows):
            predicted = self.pipeline.predict(training.table.iloc[training.test_rows])
            test = methods.measured(target.task, target.y[training.test_rows], predicted)
        X = self.pipeline[:-1].transform(training.table.iloc[training.training_rows])
        return {
            "task": target.task,
            "method": request.method,
            "target": request.target,
            "targets": list(target.columns),
            "rows": len(training.training_rows),
            "fingerprints": training.fingerprints[training.training_rows],
            **training.record,
            "price": {
                "name": methods.parameter_of(request),
                "value": float(self.C),
                "how": self._how_chosen(),
            },
            "score": self._score(),
            "test": test,
            "seconds": float(self.seconds),
            "costs": methods.kernel_costs(request.costs, self.model.kernel_names_),
            "gates": gate_summary(self.model, X),
            "choice": "" if self.path is None else self.path.summary,
            "warnings": [*training.warnings, *self.warnings],
        }

    def _how_chosen(self) -> str:
        """Return in words how C, or the parameter in its place, was chosen.

        It was "given" unless ridge learned it or several values were tried.
        """
        request = self.training.request
        if request.method == "ridge" and request.C is None:
            is_evidence = self.model.chosen_criterion_ == "evidence"
            return "learned by evidence" if is_evidence else "learned by leave-one-out error"
        if self.path is None or len(self.path.Cs) < 2:
            return "given"
        Cs = self.path.Cs
        chosen = "best"
        if request.rule == "one-standard-error":
            chosen = "smoothest within one standard error of the best,"
        score = " by partial likelihood" if request.loss == "cox" else ""
        return f"the {chosen} of {len(Cs)} from {min(Cs):.4g} to {max(Cs):.4g}{score}"

    def _score(self) -> Settings | None:
        """Return the held-out score with its errors and further scores; None without one."""
        held_out = self.held_out
        if held_out is None:
            return None
        mean = held_out.scores.mean()
        if self.search is not None:
            mean = self.search.best_score_
        task = self.training.target.task
        return {
            "name": methods.SCORES[task][0],
            "mean": float(mean),
            "error": methods.standard_error(held_out.scores),
            "n": len(self.y),
            "folds": len(held_out.scores),
            "baseline": held_out.baseline,
            "how": held_out.how,
            "further": self._further_scores(held_out),
        }

    def _further_scores(self, held_out: HeldOut) -> dict[str, str]:
        """Return further scores of held-out predictions by name, with their errors, as texts."""
        further: dict[str, str] = {}
        if self.training.target.task == "regression":
            further["RMS error"] = self._with_error(
                _root_mean_square_error, held_out.predictions, ".4g"
            )
        if held_out.probabilities is not None:
            mean_of_classes = "mean of the classes; "
            classes = list(enumerate(self.model.classes_))
            area_note = mean_of_classes
            if len(classes) == 2:
                # The area of the second class is that of the first.
                classes = classes[1:]
                area_note = ""
            further["AUC"] = self._with_error(
                partial(_mean_area, classes), held_out.probabilities, ".3f", area_note
            )
            further["F1"] = self._with_error(
                methods.macro_f1, held_out.predictions, ".3f", mean_of_classes
            )
        return further

    def _with_error(
        self, statistic: Callable[..., float], answers: AnyArray, form: str, note: str = ""
    ) -> str:
        """Return a statistic of the targets and of answers as text, with its standard error.

        Parameters
        ----------
        statistic : callable
        answers : ndarray
            Predictions or probabilities, one row per training row.
        form : str
            The format of the numbers.
        note : str
            What the statistic is of, in brackets.
        """
        y = self.y
        value = statistic(y, answers)
        error = methods.bootstrap_error(statistic, y, answers, groups=self.groups)
        return f"{value:{form}} ± {error:{form}} (standard error; {note}{len(y)} rows)"


def _root_mean_square_error(y: AnyArray, predicted: AnyArray) -> float:
    """Return the root of the mean squared error."""
    return float(np.sqrt(np.mean((y - predicted) ** 2)))


def _mean_area(classes: list[tuple[int, Any]], y: AnyArray, p: AnyArray) -> float:
    """Return the mean area under the ROC curve of classes; each with its column of p."""
    return float(np.mean([methods.area(y == c, p[:, k]) for k, c in classes]))


# The steps of a fit -------------------------------------------------------------------------------


def train_table(
    request: FitRequest, show: Callable[[int], AbstractContextManager[Advance]] = progress
) -> Trained:
    """Read the table, print how it is read, and return the fit.

    Parameters
    ----------
    request : FitRequest
    show : callable
        Called with the number of steps; its context shows how many are done.
    """
    training = read_training_table(request)
    splitter = make_splitter(training)
    pipeline = make_pipeline(training)
    say(*describe_views(training), *training.notes, *training.warnings)
    n_folds = 0 if splitter is None else splitter.get_n_splits()
    with show(n_folds + 1) as advance:
        return train(training, pipeline, splitter, advance)


def describe_views(training: TrainingTable) -> list[str]:
    """Return a line per view: its file, columns, kernels, and the rows that lack it.

    A last line names the kernels that are given as matrices.
    """
    lines = []
    for name, view in list(training.views.items())[:_MOST_DESCRIBED_VIEWS]:
        columns = view["columns"]
        n_lacking = training.lacking[name]
        n_columns = "1 column"
        if len(columns) > 1:
            n_columns = f"{len(columns)} columns"
        first_columns = ", ".join(columns[:4])
        if len(columns) > 4:
            first_columns += ", …"
        source = f" ({', '.join(view['files'])})" if view["files"] else ""
        lacking = ""
        if n_lacking or source:
            lacking = f"; lacked by {n_lacking} of {len(training.table)} rows"
        content = f"{n_columns} ({first_columns}); {' + '.join(view['kernels'])}"
        lines.append(f"view {name}{source}: {content}{lacking}")
    if len(training.views) > _MOST_DESCRIBED_VIEWS:
        lines.append(f"and {len(training.views) - _MOST_DESCRIBED_VIEWS} more views")
    # Kernels of views are called ``view:kernel``.
    matrices = [name for name, *_ in training.kernels if not name.partition(":")[2]]
    if matrices:
        lines.append(f"kernel matrices: {', '.join(matrices)}")
    return lines


def make_splitter(training: TrainingTable) -> Any:
    """Return what divides the training rows into folds.

    It is None for ridge, which needs no folds, and with --folds 0.
    """
    request = training.request
    y = training.target.y[training.training_rows]
    if request.folds == 0:
        return None
    values, counts = np.unique(_strata(request, y), return_counts=True)
    single = values[counts < 2]
    if request.task == "classification" and len(single) > max(2, len(y) / 2):
        raise ValueError(
            f"{len(single)} of {len(values)} classes have one row, such as {str(single[0])!r}: is"
            " --target the right column? If it is a quantity, write it in numbers and give --task"
            " regression."
        )
    if request.method == "ridge":
        return None
    n_folds = request.folds
    if n_folds is None:
        n_folds = DEFAULT_FOLDS
    shuffled = {"shuffle": request.seed is not None, "random_state": request.seed}
    if request.task == "regression":
        # R² needs two rows in a fold.
        return KFold(min(n_folds, max(2, len(y) // 2)), **shuffled)
    if request.task not in ("classification", "survival"):
        return KFold(min(n_folds, len(y)), **shuffled)
    if len(single):
        if request.task == "classification":
            stratum = f"class {str(single[0])!r}"
        else:
            stratum = f"event {int(single[0])}"
        raise ValueError(
            f"{stratum} has one row to learn from: cross-validation needs two of each. Leave it"
            " out, or switch cross-validation off with --folds 0 and a C, such as --C 1."
        )
    return StratifiedKFold(int(min(n_folds, counts.min())), **shuffled)


def _strata(request: FitRequest, y: AnyArray) -> AnyArray:
    """Return the targets; of survival, whether the event was observed.

    Stratified folds have the same share of each of these values.
    """
    if request.task == "survival":
        return y[:, 0].astype(int)
    return y


def _training_groups(training: TrainingTable) -> Indices | None:
    """Return the groups of the training rows; None without groups."""
    if training.groups is None:
        return None
    return training.groups[training.training_rows]


def make_pipeline(training: TrainingTable) -> Pipeline:
    """Return the preparation of the columns and the estimator, not fitted.

    The estimator is the step ``model``.
    """
    request = training.request
    methods.check_request(request)
    scale = 1.0
    if request.task == "regression":
        scale = float(np.std(training.target.y[training.training_rows])) or 1.0
    needs_value = request.folds == 0 and request.method != "ridge"
    if needs_value and methods.given_value_of(request) is None:
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
    """Choose C by cross-validation, then fit to all training rows.

    Parameters
    ----------
    training : TrainingTable
    pipeline : Pipeline
        Preparation, then ``model``.
    splitter : splitter or None
        What divides the training rows into folds; None for no cross-validation.
    advance : callable
        Called with what is done next and how many steps are done, of one per fold and one for the
        fit to all training rows.
    """
    if splitter is None:
        return _train_without_folds(training, pipeline, advance)
    request = training.request
    task = training.target.task
    table = training.table.iloc[training.training_rows]
    y = training.target.y[training.training_rows]
    start = perf_counter()

    # 1. Choose C, and the norm of the weights.
    strata = _strata(request, y)
    folds = list(splitter.split(strata, strata))
    path = _follow_paths(training, pipeline, folds, advance)
    choice = path.choice
    C = choice.C

    # 2. Fit to all training rows; rmkl chooses penalties of the kernels before.
    search = None
    if request.method == "rmkl":
        advance("searching penalties", len(folds))
        chosen = clone(pipeline).set_params(**{f"model__{methods.parameter_of(request)}": C})
        search = _search_penalties(chosen, folds, request, table, y)
        chosen.set_params(model__penalties=search.best_estimator_.named_steps["model"].penalties)
        advance("fitting to all rows", len(folds))
        fitted, warned = _with_warnings(lambda: chosen.fit(table, y))
    else:
        advance("fitting to all rows", len(folds))
        # Held-out decision values calibrate the probabilities of classes and labels, and the
        # survival functions.
        has_probabilities = task in ("classification", "multi-label", "survival")
        calibrates = has_probabilities and (request.proba or request.method != "bilinear")
        calibration = "sigmoid" if calibrates else None
        fitted, warned = _with_warnings(lambda: choice.refit(calibration))

    # 3. The held-out predictions, and the score of the answer without features.
    baselines = [methods.baseline_of(task, y[a], y[b], request.nu) for a, b in folds]
    probabilities = None
    if task == "classification":
        probabilities = choice.probabilities_held_out("sigmoid")
    held_out = HeldOut(
        how="cross-validated",
        scores=path.scores[:, choice.value_number],
        predictions=choice.predictions_held_out(),
        probabilities=probabilities,
        baseline=float(np.mean(baselines)),
    )
    seconds = perf_counter() - start
    return Trained(training, fitted, C, seconds, warned, held_out, path, search)


def _train_without_folds(training: TrainingTable, pipeline: Pipeline, advance: Advance) -> Trained:
    """Fit to all training rows, with the C that is given; ridge learns it."""
    request = training.request
    task = training.target.task
    table = training.table.iloc[training.training_rows]
    y = training.target.y[training.training_rows]
    groups = _training_groups(training)
    start = perf_counter()
    advance("fitting to all rows", 0)
    target = None if task == "one-class" else y
    params = {}
    if groups is not None:
        params["model__groups"] = groups
    _, warned = _with_warnings(lambda: pipeline.fit(table, target, **params))
    seconds = perf_counter() - start
    if request.method != "ridge":
        C = methods.given_value_of(request) or 1.0
        return Trained(training, pipeline, C, seconds, warned)
    model = pipeline.named_steps["model"]
    baseline = methods.baseline_of(task, y, y, request.nu)
    held_out = _leave_one_out(model, task, y, groups, baseline)
    return Trained(training, pipeline, float(model.alpha_), seconds, warned, held_out)


def _leave_one_out(
    model: Estimator, task: TaskName, y: AnyArray, groups: Indices | None, baseline: float
) -> HeldOut:
    """Return the predictions of a ridge machine without each row, or without its group.

    The machine has computed them in closed form.
    """
    predictions = model.loo_predictions_
    how = "leave-one-out"
    scores = methods.score_terms(task, y, predictions)
    if groups is not None:
        how = "leave-one-group-out"
        # Errors within a group may be alike: the standard error is that of sums over groups. A
        # number per group has the mean of the rows' terms and the spread of these sums.
        group_numbers = np.unique(groups, return_inverse=True)[1]
        sums = np.bincount(group_numbers, scores - scores.mean())
        scores = scores.mean() + sums * len(sums) / len(y)
    probabilities = getattr(model, "loo_probabilities_", None)
    return HeldOut(how, scores, predictions, probabilities, baseline)


def _follow_paths(
    training: TrainingTable, pipeline: Pipeline, folds: Any, advance: Advance
) -> PathChoice:
    """Follow the values of C on every fold, and choose C and the norm.

    Fits to all folds but one are made for every norm. The choice is made by the scores of the
    held-out rows.
    """
    request = training.request
    task = training.target.task
    table = training.table.iloc[training.training_rows]
    y = training.target.y[training.training_rows]

    # 1. The values and norms that are tried: as the estimators with CV in their name do, unless C,
    # the norm, or the costs of kernels are given.
    C = methods.given_value_of(request)
    target = None if task == "one-class" else y
    defaults = MKLClassifierCV()
    if task == "survival":
        defaults = MKLSurvivalCV()
    chooses_norm = (
        request.method == "mkl"
        and task != "one-class"
        and request.norm is None
        and not request.costs
    )
    norms = [None]
    near = None
    if chooses_norm:
        norms = defaults.norms
        near = defaults.near
    Cs = defaults.Cs if C is None else [C]
    rule = (request.rule or "best").replace("-", "_")

    # 2. The score that chooses: that of the task, but of hazards their likelihood.
    def score(model: Estimator, X: Any, y: Any = None) -> float:
        """Return the score of the task, called like a scorer of scikit-learn."""
        return methods.score_of(task, y, model.predict(X))

    score_of_task = HeldOutScoring(score, {}, rule=rule)
    scoring = score_of_task
    if request.loss == "cox":
        scoring = HeldOutScoring(likelihood, {}, rule=rule)

    # 3. The fits of all folds.
    options = PathOptions(
        scale=False,  # the pipeline standardises the columns
        n_jobs=request.jobs or 1,
        show=lambda text, done: advance("cross-validation", done),
        near=near,
        best_value=scoring.best_value,
    )
    # Threads: the compiled loops let others run, and nothing has to be copied or started. Fits that
    # stop early warn; `cautions` counts them instead.
    with parallel_config(backend="threading"), warnings.catch_warnings(action="ignore"):
        samples = read_samples(pipeline, table, target)
        fits = search_paths(pipeline, samples, folds, Cs, norms, options)

    # 4. The choice.
    choice = scoring.choose(fits)
    task_scores = choice.scores_of_norm
    if scoring is not score_of_task:
        task_scores = score_of_task.scores(fits)[choice.norm_number]
    return PathChoice(choice, task_scores)


def train_without(trained: Trained, view: str) -> tuple[Trained, Mask]:
    """Return the fit without the kernels of a view, with the same options.

    Returns
    -------
    trained : Trained
        Its training rows are those that have another view.
    has_other_view : ndarray of bool
        Which of the former training rows these are.
    """
    training = trained.training
    view_names = trained.model.view_names_
    table = training.table.iloc[training.training_rows]
    other_views = {*view_names} - {view}
    has_other_view = np.ones(len(table), dtype=bool)
    leaves_views_empty = training.plan.impute in ("none", "views")
    if leaves_views_empty and other_views <= {*training.views}:
        masks = [table[training.views[name]["columns"]].notna().any(axis=1) for name in other_views]
        has_other_view = np.any(masks, axis=0)

    kernels = [
        kernel for kernel, name in zip(training.kernels, view_names, strict=True) if name != view
    ]
    # Costs of the kernels and views that are left out would be refused.
    names_with_costs = {name for name, *_ in kernels}
    names_with_costs |= {name.partition(":")[0] for name in names_with_costs}
    request = training.request
    costs = [text for text in request.costs if text.rpartition("=")[0] in names_with_costs]
    method = request.method
    if method == "rmkl" and len(kernels) < 2:
        method = "mkl"
    reduced = replace(
        training,
        request=replace(request, costs=tuple(costs), method=method),
        kernels=kernels,
        training_rows=training.training_rows[has_other_view],
    )
    trained_without = train(
        reduced, make_pipeline(reduced), make_splitter(reduced), lambda what, done: None
    )
    return trained_without, has_other_view


def _with_warnings(fit: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return what a fit returns, and its warnings of convergence and of repeated samples.

    Not for use in threads, which share the filters of warnings.
    """
    with warnings.catch_warnings(record=True, action="ignore") as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.filterwarnings("always", message=".*samples duplicate another one")
        fitted = fit()
    return fitted, [str(warning.message) for warning in caught]


def _search_penalties(
    pipeline: Pipeline, folds: Any, request: FitRequest, table: Any, y: AnyArray
) -> Estimator:
    """Return the search of the penalties of the kernels, by their cross-validated score."""
    # Fits that only choose penalties need few digits, and probabilities are for the last fit.
    params: Settings = {"model__tol": _PENALTY_SEARCH_TOL}
    if request.proba:
        params["model__calibration"] = None
    n_kernels = len(pipeline.named_steps["model"].kernels)
    is_quadratic = n_kernels <= _MOST_KERNELS_OF_QUADRATIC
    scoring = "r2" if request.task == "regression" else "accuracy"
    search = ResponseSurfaceSearchCV(
        clone(pipeline).set_params(**params),
        on=["model__penalties"],
        cv=folds,
        n_jobs=request.jobs,
        order=2 if is_quadratic else 1,
        max_iter=_PENALTY_SEARCH_STEPS,
        scoring=scoring,
    )
    with warnings.catch_warnings(action="ignore"):
        search.fit(table, y)
    return search


# What is written and printed ----------------------------------------------------------------------


def publish(trained: Trained, make_page: Callable[[Trained], Page] | None = None) -> None:
    """Write the model and the report page, and print the facts of the fit.

    Parameters
    ----------
    trained : Trained
    make_page : callable or None
        Returns the page of a fit; None for no page.
    """
    request = trained.training.request
    record = trained.record
    card = ModelCard(trained.model)
    # Files are named on stdout once all of them are written.
    trained.pipeline.training_ = record
    trained.pipeline.schema_ = trained.training.schema
    save(trained.pipeline, request.output)
    if make_page is not None:
        with note_on_failure(f"The model is complete: {request.output}."):
            make_page(trained).write(str(request.report))
    reason = f" ({request.reason})" if request.reason else ""
    loss = "" if request.loss is None else f" ({request.loss})"
    seconds = ("seconds in all", f"{perf_counter() - request.started:.1f}")
    title = f"{request.method}{reason}, {request.task}{loss}"
    print_facts(title, [*facts(card, record), seconds])
    print_shares(card.kernels, record["gates"])
    say(*trained.warnings, *cautions(trained))
    print(f"Model: {request.output}")
    if make_page is not None:
        print(f"Report: {request.report}")


def cautions(trained: Trained) -> list[str]:
    """Return reasons to doubt the fit or its score, a sentence each."""
    lines = []
    task = trained.record["task"]
    score = trained.record["score"]
    path = trained.path

    Cs = [] if path is None else path.Cs.tolist()
    if len(Cs) > 2 and trained.C in (Cs[0], Cs[-1]):
        name = trained.record["price"]["name"]
        lines.append(
            f"the best {name}, {trained.C:g}, is at the edge of those tried ({min(Cs):g} to"
            f" {max(Cs):g}): one beyond may be better; try it with --C."
        )
    if score and _is_split_by_target(trained):
        lines.append(
            "the rows are sorted by the target, and parts are taken in their order; --seed 0"
            " shuffles them."
        )
    if path is not None:
        was_tried = ~np.isnan(path.scores)
        fits = path.choice.fits
        is_converged = fits.gaps(path.choice.norm_number) <= fits.problem.model.tol
        stopped_early = was_tried & ~is_converged
        if np.any(stopped_early):
            lines.append(
                f"{np.sum(stopped_early)} of {was_tried.sum()} cross-validation fits stopped early."
            )
    if score and task != "one-class":
        margin = 2 * (score["error"] or 0.0)
        if score["mean"] <= score["baseline"] + margin:
            lines.append(
                f"{score['name']} is not better than {methods.SCORES[task][1]} by two standard"
                " errors: the columns may not predict the target."
            )
    has_margin = trained.training.request.method in ("mkl", "rmkl", "localized")
    has_classes = task == "classification"
    if has_classes and has_margin and trained.model.support_fraction_ > _MANY_SUPPORT_VECTORS:
        lines.append(
            "nearly every row is a support vector: predictions will be slow, and the classes"
            " overlap."
        )
    return lines


def _is_split_by_target(trained: Trained) -> bool:
    """Return whether the folds of a regression are stretches of sorted targets."""
    if trained.record["task"] != "regression" or trained.training.request.seed is not None:
        return False
    steps = np.diff(trained.y)
    return len(steps) > 0 and bool(np.all(steps >= 0) or np.all(steps <= 0))


# Rows without labels ------------------------------------------------------------------------------


def run_unlabelled(request: EmbedRequest) -> None:
    """Embed or cluster the rows of a table, and write or print the coordinates."""
    import pandas as pd

    # 1. Read the table, without targets as for a one-class machine, and fit.
    shared: Settings = {field.name: getattr(request, field.name) for field in fields(TableRequest)}
    training = read_training_table(FitRequest(**shared, task="one-class"), unlabelled_kernels())
    raw = tables.read_table(request.path)
    tables.require(raw, request.ids, request.path)
    say(*describe_views(training), *training.notes)
    pipeline = Pipeline([*training.plan.steps(), ("model", make_model(request, training.kernels))])
    with warnings.catch_warnings(record=True, action="always") as caught:
        pipeline.fit(training.table)
    say(*dict.fromkeys(str(warning.message) for warning in caught))
    model = pipeline.named_steps["model"]
    pipeline.training_ = training.record
    pipeline.schema_ = training.schema

    # 2. The table of coordinates, beside the columns of --id.
    columns: Settings = {}
    if request.ids:
        carried = tables.read_as_written(request.path, request.ids).iloc[training.file_rows]
        columns = {name: carried[name].to_numpy() for name in request.ids}
    columns |= columns_of_embedding(getattr(model, "labels_", None), model.embedding_)
    if getattr(model, "n_clusters_", 0) > 1:
        columns |= rounded({"silhouette": model.silhouette_})
    coordinates = pd.DataFrame(columns)

    # 3. Write the files that are named.
    if request.output is None:
        print(tables.table_text(coordinates), end="")
    else:
        tables.write_table(coordinates, request.output)
        card = ModelCard(model)
        print_facts(str(request.path), [("rows", str(len(coordinates))), *card.facts])
        print_shares(card.kernels)
        print(f"Table: {request.output} ({len(coordinates)} rows)")
    if request.model is not None:
        save(pipeline, request.model)
        say(f"Model: {request.model}")
    if request.report is not None:
        target = None
        if request.target is not None:
            target = raw.iloc[training.file_rows][request.target].to_numpy()
        unlabelled_page(pipeline, training, target).write(request.report)
        say(f"Report: {request.report}")


def make_model(request: EmbedRequest, kernels: list[Any]) -> Estimator:
    """Return the estimator of an embedding or of clusters, not fitted."""
    options: Settings = {
        "kernels": kernels,
        "weights": request.weights,
        "random_state": request.seed,
        "scale": False,  # the pipeline standardises the columns
    }
    if not isinstance(request, ClusterRequest):
        return MKLKernelPCA(n_components=request.components or 2, **options)
    return MKLClustering(
        n_clusters=request.clusters or "auto",
        n_components=request.components or "auto",
        embedding=request.embedding,
        **options,
    )


def unlabelled_page(pipeline: Any, training: TrainingTable, target: AnyArray | None) -> Page:
    """Return the page of an embedding or of clusters; its pictures need matplotlib.

    Parameters
    ----------
    pipeline : Pipeline
        Fitted.
    training : TrainingTable
    target : ndarray or None
        The column of --target, by which the rows of a second picture are coloured.
    """
    model = pipeline.named_steps["model"]
    rows = f"{len(training.table)} rows without labels"
    page = Page(
        f"{training.request.path.name}: {rows}",
        f"{rows}: {type(model).__name__} on the sum of the kernels of {len(model.views_)} views.",
    )
    page.table("Summary.", ("what", "value"), ModelCard(model).facts)
    weights = [
        [name, f"{weight:.3f}", training.lacking.get(name, 0)]
        for name, weight in model.view_weights_.items()
    ]
    page.table("The views.", ("view", "weight", "lacked by"), weights)
    if hasattr(model, "labels_") and model.n_clusters_ > 1:
        clusters = []
        for k in range(model.n_clusters_):
            silhouettes = model.silhouette_[model.labels_ == k]
            clusters.append([str(k), len(silhouettes), f"{np.mean(silhouettes):.3f}"])
        page.table("The clusters.", ("cluster", "rows", "mean silhouette"), clusters)
    if find_spec("matplotlib") is not None:
        _add_unlabelled_pictures(page, pipeline, training, target)
    return page


def _add_unlabelled_pictures(
    page: Page, pipeline: Any, training: TrainingTable, target: AnyArray | None
) -> None:
    """Add the pictures of a page: views, coordinates, eigenvalues."""
    from kernelmosaic import plots

    model = pipeline.named_steps["model"]
    page.figure(
        plots.ViewSimilarityDisplay.from_estimator(model), "Similarity", "How alike the views are."
    )
    colourings: list[tuple[AnyArray | None, str]] = [(None, "")]
    if target is not None:
        colourings.append((target, f", by {training.request.target}"))
    for y, by in colourings:
        page.figure(
            plots.EmbeddingDisplay.from_estimator(pipeline, training.table, y),
            f"The rows in two coordinates{by}",
            f"The rows, in two of the coordinates{by}.",
        )
    page.figure(
        plots.EigenvaluesDisplay.from_estimator(model),
        "Eigenvalues",
        "Eigenvalues, the largest first.",
    )
