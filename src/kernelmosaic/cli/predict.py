"""The work behind ``kernelmosaic predict`` and ``explain``: new rows as a model reads them, and its
predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np

from kernelmosaic import tables
from kernelmosaic._typing import (
    AnyArray,
    ArrayOrTensor,
    Estimator,
    MatrixLike,
    Settings,
    TargetLike,
)
from kernelmosaic.cli.layout import ROW_COLUMN, Plan, check_row_numbers, extend, n_samples
from kernelmosaic.cli.methods import measured
from kernelmosaic.cli.output import class_names, describe_score, load_model, note_on_failure, say
from kernelmosaic.cli.requests import ExplainRequest, NewRowsRequest, PredictRequest
from kernelmosaic.cli.training_table import (
    NO_SCHEMA,
    Joined,
    join_tables,
    locate_faults,
    read_or_faults,
    row_names,
    rows_with_views,
    target_values,
)
from kernelmosaic.engine.pipelines import behind_pipeline
from kernelmosaic.engine.tasks import Labels
from kernelmosaic.estimators._base import KernelEstimator
from kernelmosaic.estimators.card import ModelCard
from kernelmosaic.frames import is_number
from kernelmosaic.kernels.views import lay_specs
from kernelmosaic.reports import Page


@dataclass(frozen=True)
class NewRows:
    """A model, and the rows of a table as it reads them.

    Parameters
    ----------
    request : NewRowsRequest
    estimator, model : estimator
        What the model file holds, and the kernel learner inside it.
    training : dict
        What `kernelmosaic fit` noted.
    plan : Plan or None
        None of a model that was made in Python.
    raw : DataFrame
        The rows, with the columns of joined files; its index is their places in the file.
    table : DataFrame
        What the estimator reads of them.
    carried : DataFrame
        The columns of --id, of all rows of the file, as they are written there.
    joined : Joined or None
    """

    request: NewRowsRequest
    estimator: Estimator
    model: Estimator
    training: Settings
    plan: Plan | None
    raw: ArrayOrTensor
    table: Any
    carried: ArrayOrTensor
    joined: Joined | None = None

    @classmethod
    def read(cls, request: NewRowsRequest) -> NewRows:
        """Read the files, or raise saying what does not suit the model."""
        estimator, model, training = load_model(request.model)
        path, joined = request.path, None
        schema = getattr(estimator, "schema_", NO_SCHEMA)
        names = [name for name in (request.on,) if name is not None]
        raw = schema.with_names(names, tables.MISSING_MARKS).read(path)
        raw.index = range(len(raw))
        tables.require(raw, request.ids, path)
        carried = raw[[]]
        if request.ids:
            carried = tables.read_as_written(path, request.ids)
        plan = None if training["plan"] is None else Plan(**training["plan"])
        if request.on is not None:
            never = dict.fromkeys(training["targets"], "the target") | {
                request.on: "the names of the rows"
            }
            joined = join_tables(raw, request.views, request.on, path, never, schema)
            _check_names(joined, training)
            raw = joined.table
        elif request.views:
            hint = training["files"].get("on") or "COLUMN"
            raise ValueError(
                f"--view {request.views[0]}: name the column that joins it with --on {hint}."
            )
        if plan is not None and request.on is not None:
            # No row has a view that is not given.
            absent = [
                name for group in plan.groups if not {*group} & {*raw.columns} for name in group
            ]
            # Views that overlap have columns in common.
            raw = raw.reindex(columns=list(dict.fromkeys([*raw.columns, *absent])))
        if request.kernels or (plan is not None and plan.rows == ROW_COLUMN):
            raw[plan.rows if plan and plan.rows else ROW_COLUMN] = extend(
                model, request.kernels, len(raw), plan
            )
        if plan is None:  # a model made in Python
            names = training["columns"]
            if not names:
                raise ValueError(
                    "the model was fitted to columns without names, so none can be found in a"
                    " table; fit it to a data frame, or with `kernelmosaic fit`."
                )
            tables.require(raw, names, path)
            texts, views = _texts_and_views(estimator, raw[names])
            numbers = [name for name in names if name not in texts]
            table = tables.read_columns(raw, numbers, texts, path, views)[names]
            return cls(request, estimator, model, training, None, raw, table, carried, joined)
        _check_files(plan, training, raw)
        raw = raw.iloc[rows_with_views(plan, raw, request.on, path, request.drop_empty)]
        table, faults = read_or_faults(lambda: plan.table(raw, path), None)
        tables.refuse(locate_faults(faults, raw, joined), path)
        if not request.kernels:
            check_row_numbers(table, plan, n_samples(model), path, raw.index)
        return cls(request, estimator, model, training, plan, raw, table, carried, joined)

    @property
    def ids(self) -> ArrayOrTensor:
        """The columns of --id, of the rows that are read."""
        return self.carried.iloc[self.raw.index]

    def number_of(self, row: int) -> int:
        """Return the number that a row has in the file, from 1."""
        return int(self.raw.index[row]) + 1

    def row_of(self, number: int) -> int:
        """Return the row that has a number in the file, from 1."""
        path, n_rows = self.request.path, len(self.carried)
        if number > n_rows:
            raise ValueError(
                f"--row {number}: {path} has {n_rows} rows; give the number of one of them."
            )
        if number - 1 not in self.raw.index:
            raise ValueError(
                f"--row {number}: this row of {path} is left out, as it has no view; give the"
                " number of another one."
            )
        return int(self.raw.index.get_loc(number - 1))

    @cached_property
    def X(self) -> MatrixLike:
        """What the kernels read."""
        return behind_pipeline(self.estimator, self.table)[1]

    @property
    def labels(self) -> list[str]:
        """The names of labels of which a row may have several; none where it has one class."""
        return list(self.training["targets"]) if self.training["task"] == "multi-label" else []

    @property
    def on(self) -> str | None:
        """The column that names the rows; None of a model that was fitted to rows without names."""
        own = self.training["files"].get("on")
        return own and (self.request.on or own)

    @cached_property
    def predicted(self) -> AnyArray:
        """What the model predicts: classes, numbers, labels, or times.

        The time of hazards and ranks is that beyond which at most half survive, infinite beyond the
        times learned from.
        """
        if self.training["task"] != "survival":
            return np.asarray(self.estimator.predict(self.table))
        if self.model.loss == "censored":
            return np.asarray(np.exp(self.estimator.predict(self.table)))
        below = self.model.predict_survival_function(self.X, return_array=True) <= 0.5
        return np.where(below.any(axis=1), self.model.unique_times_[below.argmax(axis=1)], np.inf)

    def contributions(self) -> tuple[list[str], AnyArray, AnyArray]:
        """Return the kernels in use, what each adds to the decision on every row, and the constant
        added to that.

        Of several classes, the decision is that of the predicted one; of labels there is one each,
        along the last axis.
        """
        model = self.model
        terms, constants = np.asarray(model.contributions(self.X)), np.atleast_1d(model.intercept_)
        used = np.any(np.atleast_2d(model.weights_) != 0, axis=0)
        if self.labels:
            constants = constants[np.newaxis]
        elif terms.ndim == 3:
            chosen = Labels(model.classes_).codes(self.predicted)
            terms, constants = terms[np.arange(len(terms)), :, chosen], constants[chosen]
        return (
            [name for m, name in enumerate(model.kernel_names_) if used[m]],
            terms[:, used],
            constants,
        )

    def answers(self) -> Settings:
        """Return the first columns of an output: those carried over, then the predictions."""
        own = {f"prediction[{name}]": self.predicted[:, j] for j, name in enumerate(self.labels)}
        if hasattr(self.model, "embedding_"):
            Z = (
                self.estimator.transform(self.table)
                if hasattr(self.model, "transform")
                else self.model.embed(self.X)
            )
            own = placed(self.predicted if hasattr(self.model, "labels_") else None, np.asarray(Z))
        own = own or {"prediction": self.predicted}
        taken = {*self.request.ids} & {*own}
        if taken:
            raise ValueError(
                f"--id {min(taken)}: the output's own column has this name; rename yours."
            )
        return {name: self.ids[name].to_numpy() for name in self.request.ids} | own

    def say_notes(self) -> None:
        """Print remarks on the table: columns that are ignored, categories that are new."""
        known, notes = (
            {*self.table.columns, *self.request.ids, *self.training["targets"], ROW_COLUMN},
            [],
        )
        if self.joined is not None:
            known.add(self.joined.on)
            notes += self.joined.lacking_rows
            for name, path in self.training["files"].get("views", {}).items():
                if name not in self.joined.files:
                    notes.append(
                        f"view {name!r} ({path} when the model was fitted) is not given: no row"
                        " has it."
                    )
        extra = [name for name in self.raw.columns if name not in known]
        if extra:
            few = (
                "column the model does not know is"
                if len(extra) == 1
                else "columns the model does not know are"
            )
            notes.append(f"{len(extra)} {few} ignored: {tables.some(extra, 5)}")
        for name, values in (self.plan.categories if self.plan else {}).items():
            strange = sorted(set(self.table[name].dropna()) - set(values))
            if strange:
                unseen = (
                    f"{strange[0]!r}, which is not in the training table: it matches no training"
                    " category."
                )
                notes.append(f"column {name!r} holds {unseen}")
        say(*notes)


def _texts_and_views(estimator: Estimator, table: Any) -> tuple[list[str], list[list[str]]]:
    """Return what a model made in Python reads as text, and the columns that a row may lack
    together.

    What the steps of a pipeline read is not known: these are taken for numbers.
    """
    if not isinstance(estimator, KernelEstimator):
        return [], []
    names = list(table.columns)
    texts = [names[j] for j in estimator.columns_without_numbers(table)]
    specs = lay_specs(estimator.read_kernels(table), table)
    views = [[names[j] for j in spec.columns] for spec in specs if spec.columns is not None]
    return texts, views if estimator.missing is not None else []


def run_prediction(request: PredictRequest) -> None:
    """Predict the rows of a table, and write or print them."""
    import pandas as pd

    rows = NewRows.read(request)
    truth, model = _truth(rows), rows.model
    columns: Settings = rows.answers()
    figures: Settings = {}
    if request.proba:
        if not hasattr(model, "predict_proba"):
            raise ValueError(
                "--proba: the model has no probabilities; fit a classifier with `kernelmosaic fit"
                " --proba`, or leave the option out."
            )
        names = class_names(ModelCard(model), rows.training)
        figures |= dict(
            zip(
                [f"p_{name}" for name in names],
                rows.estimator.predict_proba(rows.table).T,
                strict=True,
            )
        )
    if request.interval is not None:
        if not hasattr(model, "predict_interval"):
            why = (
                "the model has no intervals; a regression by `kernelmosaic fit --method ridge` has"
                " them"
            )
            if ModelCard(model).classes:
                why = (
                    "the model predicts classes, which have no intervals; --proba adds the"
                    " probability of each class"
                )
            raise ValueError(f"--interval {request.interval:g}: {why}.")
        figures |= dict(
            zip(("lower", "upper"), model.predict_interval(rows.X, request.interval).T, strict=True)
        )
    if request.scores:
        figures |= _scores(rows)
    rows.say_notes()
    answers = pd.DataFrame(columns | rounded(figures))
    if request.output is None:
        print(tables.table_text(answers), end="")
    else:
        tables.write_table(answers, request.output)
        print(f"Predictions: {request.output} ({len(answers)} rows)")
    if truth is not None:
        say(_scored(rows, truth))


def placed(clusters: AnyArray | None, Z: AnyArray) -> Settings:
    """Return the columns of an output: clusters, if there are any, and coordinates."""
    own = {} if clusters is None else {"cluster": clusters}
    return own | rounded({f"component{i}": column for i, column in enumerate(Z.T, start=1)})


def _scores(rows: NewRows) -> Settings:
    """Return decision values, and each kernel's share of that of the predicted class; of labels the
    values alone."""
    model, columns = rows.model, {}
    if hasattr(model, "decision_function"):
        values = np.asarray(model.decision_function(rows.X))
        classes = [""] if values.ndim == 1 else [f"[{c}]" for c in rows.labels or model.classes_]
        columns = {
            f"decision{c}": own for c, own in zip(classes, np.atleast_2d(values.T), strict=True)
        }
    elif hasattr(model, "predict_survival_function"):
        columns["decision"] = model.predict(rows.X)
    if not rows.labels:
        names, terms, _ = rows.contributions()
        columns |= {f"share[{name}]": terms[:, m] for m, name in enumerate(names)}
    return columns


def _scored(rows: NewRows, truth: Any) -> str:
    """Return how well rows are predicted, and how many of them the model was fitted to, as a
    sentence."""
    task, target = rows.training["task"], rows.training["target"]
    # Medians may be equal where the order is known.
    score = measured(
        task, truth, rows.estimator.predict(rows.table) if task == "survival" else rows.predicted
    )
    text = describe_score(task, score["value"], score["error"], f"{score['n']} rows")
    text = f"{score['name']} on column {target!r}: {text}"
    if rows.on is not None and rows.on not in rows.raw.columns:
        return text
    marks = tables.fingerprints(rows.table if rows.on is None else row_names(rows.raw, rows.on))
    known = int(np.isin(marks, rows.training["fingerprints"]).sum())
    if known == 0:
        return text
    which = (
        "these are rows"
        if known == score["n"]
        else "1 of them is a row"
        if known == 1
        else f"{known} of them are rows"
    )
    by = f" (by column {rows.on!r})" if rows.on else ""
    return (
        f"{text}; {which} that the model was fitted to{by}, which it predicts better than new ones"
    )


def _check_names(joined: Joined, training: Settings) -> None:
    """Refuse the file of a view that the model does not have, or without any column of the view."""
    files = training["files"].get("views")
    for name, path in joined.files.items():
        if files is not None and name not in files:
            known = ", ".join(f"{view} ({source})" for view, source in files.items()) or "none"
            raise ValueError(
                f"--view {name}={path}: the model has no view {name!r} from a file; it has {known}."
                f" Write NAME={path} with one of these names."
            )
        columns = [column for column in training["columns"] if column.startswith(f"{name}.")]
        if columns and not {*columns} & {*joined.sources}:
            raise ValueError(
                f"--view {name}={path}: the file has none of the {len(columns)} columns of this"
                f" view, such as {columns[0].removeprefix(f'{name}.')!r}."
            )


def _check_files(plan: Plan, training: Settings, raw: ArrayOrTensor) -> None:
    """Refuse a table without the columns of a view that has a file of its own, naming the options
    that give it."""
    files = training["files"]
    for name, path in files.get("views", {}).items():
        columns = {column for column in plan.columns if column.startswith(f"{name}.")}
        if columns and not columns & {*raw.columns}:
            raise ValueError(
                f"the model reads the view {name!r} from a file of its own ({path} when it was"
                f" fitted), joined by column {files['on']!r}: give it with --on {files['on']}"
                f" --view {name}=FILE."
            )


def _truth(rows: NewRows) -> TargetLike:
    """Return the target, where the table has it; a class the model never saw is refused."""
    raw, task, columns, path = (
        rows.raw,
        rows.training["task"],
        rows.training["targets"],
        rows.request.path,
    )
    if (
        not columns
        or task == "one-class"
        or not {*columns} <= {*raw.columns}
        or raw[columns].isna().any(axis=None)
    ):
        return None
    try:
        y, faults = read_or_faults(lambda: target_values(raw, task, columns, path), np.empty(0))
        tables.refuse(locate_faults(faults, raw, None), path)
    except ValueError as error:
        text = str(error).removesuffix(".")
        raise ValueError(
            f"{text}; correct it, or leave the column out to predict without a score."
        ) from None
    if task != "classification":
        return y
    classes = {str(c): c for c in rows.model.classes_}
    labels = [_class_text(str(label), classes) for label in y]
    strange = [i for i, label in enumerate(labels) if label not in classes]
    if strange:
        raise ValueError(
            f"{path}, row {rows.number_of(strange[0])}, column {columns[0]!r}: the class"
            f" {labels[strange[0]]!r} was not in the training table"
            f" ({tables.some(list(classes), 10)}); correct it, or leave the column out to predict"
            " without a score."
        )
    return np.array([classes[label] for label in labels])


def _class_text(label: str, classes: Mapping[str, Any]) -> str:
    """Return the text of the class that a label writes in another way, as 1.0 for 1 and TRUE for
    True; else itself."""
    if label in classes or any(isinstance(c, str) for c in classes.values()):
        return label
    if is_number(label) and float(label).is_integer():
        return str(int(float(label)))
    return label.capitalize()


def rounded(columns: Settings) -> Settings:
    # Digits beyond these are the solver's tolerance, not knowledge.
    return {name: [float(f"{value:.8g}") for value in values] for name, values in columns.items()}


# Explanations -------------------------------------------------------------------------------------


def run_explanation(request: ExplainRequest) -> None:
    """Write the table of contributions, and the page if there is to be one."""
    rows, output, report = NewRows.read(request), request.output, request.report
    if request.row is not None:
        if report is None:
            raise ValueError(f"--row {request.row}: a page shows it; add --report FILE.")
        rows.row_of(request.row)
    answers = explain_rows(rows)
    rows.say_notes()
    # Files are named once every one is written.
    if output is not None:
        tables.write_table(answers, output)
    if report is not None:
        with note_on_failure(f"The table is complete: {output}." if output else ""):
            explanation_page(rows, answers, request).write(report)
    if output is not None:
        print(f"Contributions: {output} ({len(answers)} rows)")
    elif report is None:
        print(tables.table_text(answers), end="")
    if report is not None:
        print(f"Report: {report}")


def explain_rows(rows: NewRows) -> MatrixLike:
    """Return, for every row (and label), the prediction, the decision, the constant, and what each
    kernel adds."""
    import pandas as pd

    names, terms, constants = rows.contributions()
    figures = {
        "decision": terms.sum(axis=1) + constants,
        "constant": np.broadcast_to(constants, (len(terms), *constants.shape[1:])),
        **{name: terms[:, m] for m, name in enumerate(names)},
    }
    first = rows.answers()
    if rows.labels:
        carried = {name: np.repeat(first[name], len(rows.labels)) for name in rows.request.ids}
        figures = {name: values.ravel() for name, values in figures.items()}
        first = carried | {
            "label": np.tile(rows.labels, len(terms)),
            "prediction": rows.predicted.ravel(),
        }
    return pd.DataFrame(first | rounded(figures))


def explanation_page(rows: NewRows, answers: Any, request: ExplainRequest) -> Page:
    """Return the page: which kernels decide, over all rows and, for the first ones, row by row."""
    kernels = [name for name in rows.model.kernel_names_ if name in answers.columns]
    terms = answers[kernels].to_numpy(dtype=float)
    size = np.abs(terms).mean(axis=0)
    order = np.argsort(-size)
    page = Page(f"{request.path.name}: contributions", _lead(rows, request), wide=True)
    page.heading("Which kernels decide")
    page.paragraph(
        "A contribution is what a kernel adds to the decision on a row. Together with the constant"
        " they add up to its decision. A kernel of a large mean size matters on many rows; the sign"
        " of the mean shows to which side."
    )
    if find_spec("matplotlib") is not None:
        from kernelmosaic.plots import KernelWeightsDisplay

        drawn = KernelWeightsDisplay(size, kernels, weight_name="mean size of the contribution")
        alt = "Mean size of each kernel's contribution"
        page.figure(
            drawn.plot(sort=True, max_kernels=20),
            alt,
            "Mean size of the contributions, the largest first.",
        )
    total = float(size.sum()) or 1.0
    spread = [
        [kernels[m], f"{size[m]:.4g}", f"{100 * size[m] / total:.1f}", f"{terms[:, m].mean():+.4g}"]
        for m in order
    ]
    page.table("Contributions of the kernels.", ("kernel", "mean size", "share %", "mean"), spread)
    _add_one(page, rows, request)
    page.heading("Row by row")
    shown = answers.head(500)
    if len(shown) < len(answers):
        page.paragraph(f"The first {len(shown)} of {len(answers)}; `-o table.csv` writes all.")
    head = [name for name in answers.columns if name not in {*kernels, "constant"}]
    body = []
    for i, (_, row) in enumerate(shown.iterrows()):
        number = rows.number_of(i // max(len(rows.labels), 1))
        largest = sorted(kernels, key=lambda name: -abs(row[name]))[:3]
        decided = ", ".join(f"{name} {row[name]:+.3g}" for name in largest)
        body.append(
            [
                str(number),
                *(_written(row[name]) for name in head),
                decided,
                _written(row["constant"]),
            ]
        )
    columns = ("row", *head, "largest contributions", "constant")
    page.table("Decisions and what they are made of.", columns, body, searchable=len(body) > 12)
    return page


def _add_one(page: Page, rows: NewRows, request: ExplainRequest) -> None:
    """Add what decides on the row of --row, or on the first that lacks a view or, if none does, the
    first."""
    if find_spec("matplotlib") is None or rows.training["task"] in ("multi-label", "survival"):
        return
    row = first_lacking(rows.table, rows.plan)
    if request.row is not None:
        row = rows.row_of(request.row)
    # As it is written: nothing is scored by it.
    known = [
        rows.raw[name].iloc[row] for name in rows.training["targets"] if name in rows.raw.columns
    ]
    truth = known[0] if known and known[0] == known[0] else None
    of = "".join(f", {name} `{rows.ids[name].iloc[row]}`" for name in request.ids)
    other = "" if request.row else " `--row N` draws another."
    text = f"Row {rows.number_of(row)}{of}: what each view adds to its decision.{other}"
    add_waterfall(page, text, rows.estimator, rows.table.iloc[[row]], truth)


def first_lacking(table: MatrixLike, plan: Plan | None) -> int:
    """Return the first row of a table that lacks a view; if none does, the first."""
    groups = [list(group) for group in plan.groups] if plan else []
    return (
        int(np.argmax(np.any([table[group].isna().all(axis=1) for group in groups], axis=0)))
        if groups
        else 0
    )


def add_waterfall(
    page: Page, text: str, estimator: Estimator, row: MatrixLike, truth: object
) -> None:
    """Add a section with a picture of what each view adds to the decision on a row."""
    from kernelmosaic.plots import ContributionsDisplay

    page.heading("Contributions for one row")
    page.paragraph(text)
    drawn = ContributionsDisplay.from_estimator(estimator, row, truth=truth)
    said = drawn.title.replace("\n", "; ")
    page.figure(
        drawn,
        f"What each view adds to the decision on one row, {said}",
        f"From the constant on; {said}.",
    )


#: What the decision is, by the task and, of survival, by the loss.
DECISIONS = {
    "multi-label": "A label is predicted where its decision is positive.",
    "one-class": "A row is called novel, −1, where its decision is negative.",
    "regression": "The decision is the predicted number.",
    "censored": "The decision is the logarithm of the predicted time.",
    "cox": "The decision is minus the logarithm of the hazard; the prediction is the median time.",
    "rank": "Larger decisions mean longer survival; the prediction is the median time.",
}


def _lead(rows: NewRows, request: ExplainRequest) -> str:
    model, classes, task = rows.model, getattr(rows.model, "classes_", []), rows.training["task"]
    key = model.loss if task == "survival" else task or ("regression" if len(classes) == 0 else "")
    rule = (
        "The decision is that of the predicted class: the class with the largest decision value is"
        " predicted."
    )
    if len(classes) == 2 and np.ndim(model.dual_coef_) == 2 and len(model.dual_coef_) == 1:
        rule = f"Where the decision is positive, `{classes[1]}` is predicted, else `{classes[0]}`."
    return (
        f"{len(rows.table)} rows of `{request.path}` by the model `{request.model}`."
        f" {DECISIONS.get(key, rule)}"
    )


def _written(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
