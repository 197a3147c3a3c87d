"""The work behind ``kernelmosaic predict`` and ``explain``.

New rows are read as the model read its training table; then they are predicted, or their decisions
are divided among the kernels.
"""

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
from kernelmosaic.cli.output import (
    MOST_ROWS_AT_A_GLANCE,
    class_names,
    describe_score,
    load_model,
    note_on_failure,
    say,
)
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

#: The rows that a page of explanations lists one by one; the file has all. Chosen by hand.
_MOST_ROWS_OF_PAGE = 500

#: The kernels that a page names beside each row: those of the largest contributions.
_MOST_KERNELS_OF_ROW = 3


@dataclass(frozen=True)
class NewRows:
    """A model, and the rows of a table as the model reads them.

    Parameters
    ----------
    request : NewRowsRequest
    estimator, model : estimator
        The estimator of the model file, which may be a pipeline, and the kernel learner inside it.
    record : dict
        What `kernelmosaic fit` wrote of the fit.
    plan : Plan or None
        None of a model that was made in Python.
    raw : DataFrame
        The rows, with the columns of joined files; its index is their position in the file.
    table : DataFrame
        The columns of these rows that the estimator reads.
    carried : DataFrame
        The columns of --id, of all rows of the file, as they are written there.
    joined : Joined or None
        The joined files of views.
    """

    request: NewRowsRequest
    estimator: Estimator
    model: Estimator
    record: Settings
    plan: Plan | None
    raw: ArrayOrTensor
    table: Any
    carried: ArrayOrTensor
    joined: Joined | None = None

    @classmethod
    def read(cls, request: NewRowsRequest) -> NewRows:
        """Return the model and the new rows of a request.

        Rows that do not suit the model are refused. If matrices of similarities are given, they are
        joined to those of the model.
        """
        estimator, model, record = load_model(request.model)
        path = request.path
        plan = None if record["plan"] is None else Plan(**record["plan"])

        # 1. The table, and the columns that are carried over to the output.
        schema = getattr(estimator, "schema_", NO_SCHEMA)
        names = [] if request.on is None else [request.on]
        raw = schema.with_names(names, tables.MISSING_MARKS).read(path)
        raw.index = range(len(raw))
        tables.require(raw, request.ids, path)
        carried = raw[[]]
        if request.ids:
            carried = tables.read_as_written(path, request.ids)

        # 2. The columns of other files.
        joined = None
        if request.on is not None:
            excluded = dict.fromkeys(record["targets"], "the target")
            excluded[request.on] = "the names of the rows"
            joined = join_tables(raw, request.views, request.on, path, excluded, schema)
            _check_joined_views(joined, record)
            raw = joined.table
            if plan is not None:
                raw = _with_absent_views(raw, plan)
        elif request.views:
            hint = record["files"].get("on") or "COLUMN"
            raise ValueError(
                f"--view {request.views[0]}: name the column that joins it with --on {hint}."
            )

        # 3. The numbers of the rows in the matrices of given kernels.
        needs_matrices = plan is not None and plan.rows == ROW_COLUMN
        if request.kernels or needs_matrices:
            rows_column = ROW_COLUMN
            if plan is not None and plan.rows:
                rows_column = plan.rows
            raw[rows_column] = extend(model, request.kernels, len(raw), plan)

        # 4. The cells that the model reads.
        if plan is None:
            table = _columns_of_python_model(estimator, record, raw, path)
            return cls(request, estimator, model, record, None, raw, table, carried, joined)
        _check_views_are_given(plan, record, raw)
        raw = raw.iloc[rows_with_views(plan, raw, request.on, path, request.drop_empty)]
        table, faults = read_or_faults(lambda: plan.table(raw, path), None)
        tables.refuse(locate_faults(faults, raw, joined), path)
        if not request.kernels:
            check_row_numbers(table, plan, n_samples(model), path, raw.index)
        return cls(request, estimator, model, record, plan, raw, table, carried, joined)

    @property
    def ids(self) -> ArrayOrTensor:
        """The columns of --id, of the rows that are read."""
        return self.carried.iloc[self.raw.index]

    def number_of(self, row: int) -> int:
        """Return the number that a row has in the file, from 1."""
        return int(self.raw.index[row]) + 1

    def row_of(self, number: int) -> int:
        """Return the row that has a number in the file, from 1."""
        path = self.request.path
        n_rows = len(self.carried)
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
        """The rows as the kernels read them, behind the steps of the pipeline."""
        return behind_pipeline(self.estimator, self.table)[1]

    @property
    def labels(self) -> list[str]:
        """The names of the labels of a multi-label task; empty for other tasks."""
        if self.record["task"] != "multi-label":
            return []
        return list(self.record["targets"])

    @property
    def on(self) -> str | None:
        """The column that names the rows; None if the model was fitted to rows without names."""
        on_of_training = self.record["files"].get("on")
        return on_of_training and (self.request.on or on_of_training)

    @cached_property
    def predicted(self) -> AnyArray:
        """The predictions of the model: classes, numbers, labels, or survival times.

        Hazards and ranks predict the median time: the first one beyond which at most half survive,
        infinite if that is later than all times of the training table.
        """
        if self.record["task"] != "survival":
            return np.asarray(self.estimator.predict(self.table))
        if self.model.loss == "censored":
            return np.asarray(np.exp(self.estimator.predict(self.table)))
        curves = self.model.predict_survival_function(self.X, return_array=True)
        is_past_median = curves <= 0.5
        first = is_past_median.argmax(axis=1)
        return np.where(is_past_median.any(axis=1), self.model.unique_times_[first], np.inf)

    def contributions(self) -> tuple[list[str], AnyArray, AnyArray]:
        """Return what each kernel adds to the decision on every row.

        Of several classes, the decision is that of the predicted class.

        Returns
        -------
        names : list of str
            The kernels with a weight.
        terms : ndarray of shape (rows, kernels) or, of labels, (rows, kernels, labels)
        constants : ndarray
            What is added to the sum of the terms, of a shape that broadcasts to (rows,) or to
            (rows, labels).
        """
        model = self.model
        terms = np.asarray(model.contributions(self.X))
        constants = np.atleast_1d(model.intercept_)
        if self.labels:
            constants = constants[np.newaxis]
        elif terms.ndim == 3:
            codes = Labels(model.classes_).codes(self.predicted)
            terms = terms[np.arange(len(terms)), :, codes]
            constants = constants[codes]
        has_weight = np.any(np.atleast_2d(model.weights_) != 0, axis=0)
        names = [name for m, name in enumerate(model.kernel_names_) if has_weight[m]]
        return names, terms[:, has_weight], constants

    def answers(self) -> Settings:
        """Return the first columns of an output: those of --id, then the predictions."""
        if hasattr(self.model, "embedding_"):
            if hasattr(self.model, "transform"):
                Z = self.estimator.transform(self.table)
            else:
                Z = self.model.embed(self.X)
            clusters = self.predicted if hasattr(self.model, "labels_") else None
            columns = columns_of_embedding(clusters, np.asarray(Z))
        elif self.labels:
            columns = {
                f"prediction[{name}]": self.predicted[:, j] for j, name in enumerate(self.labels)
            }
        else:
            columns = {"prediction": self.predicted}
        taken = {*self.request.ids} & {*columns}
        if taken:
            raise ValueError(
                f"--id {min(taken)}: the output's own column has this name; rename yours."
            )
        return {name: self.ids[name].to_numpy() for name in self.request.ids} | columns

    def say_notes(self) -> None:
        """Print notes on the table: views that are missing, columns ignored, new categories."""
        notes = []
        expected = {*self.table.columns, *self.request.ids, *self.record["targets"], ROW_COLUMN}
        if self.joined is not None:
            expected.add(self.joined.on)
            notes += self.joined.lacking_rows
            for name, path in self.record["files"].get("views", {}).items():
                if name not in self.joined.files:
                    notes.append(
                        f"view {name!r} ({path} when the model was fitted) is not given: no row"
                        " has it."
                    )
        ignored = [name for name in self.raw.columns if name not in expected]
        if ignored:
            columns_are = "columns the model does not know are"
            if len(ignored) == 1:
                columns_are = "column the model does not know is"
            notes.append(f"{len(ignored)} {columns_are} ignored: {tables.list_names(ignored, 5)}")
        categories = self.plan.categories if self.plan else {}
        for name, values in categories.items():
            new_values = sorted(set(self.table[name].dropna()) - set(values))
            if new_values:
                notes.append(
                    f"column {name!r} holds {new_values[0]!r}, which is not in the training table:"
                    " it matches no training category."
                )
        say(*notes)


def _with_absent_views(raw: ArrayOrTensor, plan: Plan) -> ArrayOrTensor:
    """Return a table with empty columns for the views that no column of it belongs to."""
    absent: list[str] = []
    for group in plan.groups:
        if {*group}.isdisjoint(raw.columns):
            absent += group
    # Views that overlap have columns in common, which are added once.
    return raw.reindex(columns=list(dict.fromkeys([*raw.columns, *absent])))


def _columns_of_python_model(
    estimator: Estimator, record: Settings, raw: ArrayOrTensor, where: object
) -> ArrayOrTensor:
    """Return the columns that a model without a plan reads, as numbers and texts."""
    names = record["columns"]
    if not names:
        raise ValueError(
            "the model was fitted to columns without names, so none can be found in a"
            " table; fit it to a data frame, or with `kernelmosaic fit`."
        )
    tables.require(raw, names, where)
    texts, views = _texts_and_views(estimator, raw[names])
    numbers = [name for name in names if name not in texts]
    return tables.read_columns(raw, numbers, texts, where, views)[names]


def _texts_and_views(estimator: Estimator, table: Any) -> tuple[list[str], list[list[str]]]:
    """Return the columns that count as texts, and those of each kernel's view.

    Parameters
    ----------
    estimator : estimator
        Fitted. What the steps of a pipeline read is not known: its columns count as numbers.
    table : DataFrame
        The columns of the fit.

    Returns
    -------
    texts : list of str
        The columns that no kernel reads as numbers.
    views : list of list of str
        By kernel, the columns that a row may lack together; kernels of one view repeat them. The
        list is empty if the model refuses missing views.
    """
    if not isinstance(estimator, KernelEstimator):
        return [], []
    names = list(table.columns)
    texts = [names[j] for j in estimator.columns_without_numbers(table)]
    if estimator.missing is None:
        return texts, []
    specs = lay_specs(estimator.read_kernels(table), table)
    # A row without the view of a kernel of all columns would have nothing.
    columns_of_views = [spec.columns for spec in specs if spec.columns is not None]
    return texts, [[names[j] for j in columns] for columns in columns_of_views]


# Predictions --------------------------------------------------------------------------------------


def run_prediction(request: PredictRequest) -> None:
    """Predict the rows of a table, and write or print them.

    If the table has the target, a note on stderr says how well it is predicted.
    """
    import pandas as pd

    rows = NewRows.read(request)
    truth = _read_truth(rows)
    columns: Settings = rows.answers()
    numbers: Settings = {}
    if request.proba:
        numbers |= _probabilities(rows)
    if request.interval is not None:
        numbers |= _intervals(rows, request.interval)
    if request.scores:
        numbers |= _decisions_and_shares(rows)
    rows.say_notes()
    answers = pd.DataFrame(columns | rounded(numbers))
    if request.output is None:
        print(tables.table_text(answers), end="")
    else:
        tables.write_table(answers, request.output)
        print(f"Predictions: {request.output} ({len(answers)} rows)")
    if truth is not None:
        say(_describe_accuracy(rows, truth))


def _probabilities(rows: NewRows) -> Settings:
    """Return the columns of --proba: the probability of each class or label."""
    if not hasattr(rows.model, "predict_proba"):
        raise ValueError(
            "--proba: the model has no probabilities; fit a classifier with `kernelmosaic fit"
            " --proba`, or leave the option out."
        )
    names = [f"p_{name}" for name in class_names(ModelCard(rows.model), rows.record)]
    probabilities = rows.estimator.predict_proba(rows.table)
    return dict(zip(names, probabilities.T, strict=True))


def _intervals(rows: NewRows, coverage: float) -> Settings:
    """Return the columns of --interval: the ends of an interval for each target."""
    model = rows.model
    if not hasattr(model, "predict_interval"):
        reason = (
            "the model has no intervals; a regression by `kernelmosaic fit --method ridge` has them"
        )
        if ModelCard(model).classes:
            reason = (
                "the model predicts classes, which have no intervals; --proba adds the"
                " probability of each class"
            )
        raise ValueError(f"--interval {coverage:g}: {reason}.")
    lower, upper = model.predict_interval(rows.X, coverage).T
    return {"lower": lower, "upper": upper}


def _decisions_and_shares(rows: NewRows) -> Settings:
    """Return the columns of --scores: decision values, and the share of each kernel.

    The decision of several classes that is divided is that of the predicted class; those of labels
    are not divided.
    """
    model = rows.model
    columns: Settings = {}
    if hasattr(model, "decision_function"):
        values = np.asarray(model.decision_function(rows.X))
        if values.ndim == 1:
            columns["decision"] = values
        else:
            names = rows.labels or model.classes_
            for name, decisions in zip(names, values.T, strict=True):
                columns[f"decision[{name}]"] = decisions
    elif hasattr(model, "predict_survival_function"):
        columns["decision"] = model.predict(rows.X)
    if not rows.labels:
        kernel_names, terms, _ = rows.contributions()
        for m, name in enumerate(kernel_names):
            columns[f"share[{name}]"] = terms[:, m]
    return columns


def columns_of_embedding(clusters: AnyArray | None, Z: AnyArray) -> Settings:
    """Return the columns of an output: clusters if any, and rounded coordinates Z."""
    columns = {f"component{i}": column for i, column in enumerate(Z.T, start=1)}
    if clusters is None:
        return rounded(columns)
    return {"cluster": clusters} | rounded(columns)


def rounded(columns: Settings) -> Settings:
    """Return columns of numbers with eight significant digits.

    Digits beyond these are the tolerance of the solver, not knowledge.
    """
    rounded_columns = {}
    for name, values in columns.items():
        rounded_columns[name] = [float(f"{value:.8g}") for value in values]
    return rounded_columns


def _describe_accuracy(rows: NewRows, truth: Any) -> str:
    """Return a sentence on the score, and on how many rows are training rows."""
    task = rows.record["task"]
    predicted = rows.predicted
    if task == "survival":
        # Median times may be equal where the decisions are not.
        predicted = rows.estimator.predict(rows.table)
    score = measured(task, truth, predicted)
    text = describe_score(task, score["value"], score["error"], f"{score['n']} rows")
    text = f"{score['name']} on column {rows.record['target']!r}: {text}"

    # Rows that the model was fitted to are recognised by their names or, without, by their cells.
    if rows.on is not None and rows.on not in rows.raw.columns:
        return text
    identity = rows.table if rows.on is None else row_names(rows.raw, rows.on)
    fingerprints = tables.fingerprints(identity)
    n_known = int(np.isin(fingerprints, rows.record["fingerprints"]).sum())
    if n_known == 0:
        return text
    if n_known == score["n"]:
        these_are = "these are rows"
    elif n_known == 1:
        these_are = "1 of them is a row"
    else:
        these_are = f"{n_known} of them are rows"
    fitted_to = "that the model was fitted to"
    if rows.on:
        fitted_to += f" (by column {rows.on!r})"
    return f"{text}; {these_are} {fitted_to}, which it predicts better than new ones"


# Checks against the model -------------------------------------------------------------------------


def _check_joined_views(joined: Joined, record: Settings) -> None:
    """Refuse files of views that the model does not have, or without their columns."""
    files = record["files"].get("views")
    for name, path in joined.files.items():
        if files is not None and name not in files:
            listed = ", ".join(f"{view} ({source})" for view, source in files.items()) or "none"
            raise ValueError(
                f"--view {name}={path}: the model has no view {name!r} from a file; it has"
                f" {listed}. Write NAME={path} with one of these names."
            )
        columns = [column for column in record["columns"] if column.startswith(f"{name}.")]
        if columns and not {*columns} & {*joined.sources}:
            raise ValueError(
                f"--view {name}={path}: the file has none of the {len(columns)} columns of this"
                f" view, such as {columns[0].removeprefix(f'{name}.')!r}."
            )


def _check_views_are_given(plan: Plan, record: Settings, raw: ArrayOrTensor) -> None:
    """Refuse rows without any column of a view that was joined from another file."""
    files = record["files"]
    for name, path in files.get("views", {}).items():
        columns = {column for column in plan.columns if column.startswith(f"{name}.")}
        if columns and not columns & {*raw.columns}:
            raise ValueError(
                f"the model reads the view {name!r} from a file of its own ({path} when it was"
                f" fitted), joined by column {files['on']!r}: give it with --on {files['on']}"
                f" --view {name}=FILE."
            )


def _read_truth(rows: NewRows) -> TargetLike:
    """Return the target of the new rows; None if it is missing or incomplete.

    Classes that the model does not have are refused.
    """
    raw = rows.raw
    task = rows.record["task"]
    columns = rows.record["targets"]
    path = rows.request.path
    has_no_score = not columns or task == "one-class"
    if has_no_score or not {*columns} <= {*raw.columns} or raw[columns].isna().any(axis=None):
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
    class_texts = [_class_text(str(label), classes) for label in y]
    unknown_rows = [i for i, text in enumerate(class_texts) if text not in classes]
    if unknown_rows:
        row = unknown_rows[0]
        raise ValueError(
            f"{path}, row {rows.number_of(row)}, column {columns[0]!r}: the class"
            f" {class_texts[row]!r} was not in the training table"
            f" ({tables.list_names(list(classes), 10)}); correct it, or leave the column out to"
            " predict without a score."
        )
    return np.array([classes[text] for text in class_texts])


def _class_text(label: str, classes: Mapping[str, Any]) -> str:
    """Return the text of the class that a label means, as 1 for 1.0 and True for TRUE.

    Labels of classes that are texts are returned unchanged.
    """
    if label in classes or any(isinstance(c, str) for c in classes.values()):
        return label
    if is_number(label) and float(label).is_integer():
        return str(int(float(label)))
    return label.capitalize()


# Explanations -------------------------------------------------------------------------------------


def run_explanation(request: ExplainRequest) -> None:
    """Write or print the table of contributions, and write the page of --report."""
    rows = NewRows.read(request)
    output = request.output
    report = request.report
    if request.row is not None:
        if report is None:
            raise ValueError(f"--row {request.row}: a page shows it; add --report FILE.")
        rows.row_of(request.row)
    answers = explain_rows(rows)
    rows.say_notes()
    # 1. Write the files. They are named on stdout once all of them are written.
    if output is not None:
        tables.write_table(answers, output)
    if report is not None:
        note = f"The table is complete: {output}." if output else ""
        with note_on_failure(note):
            explanation_page(rows, answers, request).write(report)
    # 2. Name them. Without any file, the table is printed.
    if output is not None:
        print(f"Contributions: {output} ({len(answers)} rows)")
    elif report is None:
        print(tables.table_text(answers), end="")
    if report is not None:
        print(f"Report: {report}")


def explain_rows(rows: NewRows) -> MatrixLike:
    """Return a table with the prediction, the decision, and what each kernel adds to it.

    It has a line per row or, of a multi-label task, per row and label.
    """
    import pandas as pd

    names, terms, constants = rows.contributions()
    numbers = {
        "decision": terms.sum(axis=1) + constants,
        "constant": np.broadcast_to(constants, (len(terms), *constants.shape[1:])),
        **{name: terms[:, m] for m, name in enumerate(names)},
    }
    answers = rows.answers()
    if rows.labels:
        numbers = {name: values.ravel() for name, values in numbers.items()}
        n_labels = len(rows.labels)
        answers = {name: np.repeat(answers[name], n_labels) for name in rows.request.ids}
        answers["label"] = np.tile(rows.labels, len(terms))
        answers["prediction"] = rows.predicted.ravel()
    return pd.DataFrame(answers | rounded(numbers))


def explanation_page(rows: NewRows, answers: Any, request: ExplainRequest) -> Page:
    """Return the page of contributions: over all rows, of one row, and row by row.

    Parameters
    ----------
    rows : NewRows
    answers : DataFrame
        As `explain_rows` returns it.
    request : ExplainRequest
    """
    kernels = [name for name in rows.model.kernel_names_ if name in answers.columns]
    page = Page(f"{request.path.name}: contributions", _lead(rows, request), wide=True)
    _add_kernels(page, answers[kernels].to_numpy(dtype=float), kernels)
    _add_one_row(page, rows, request)
    _add_all_rows(page, rows, answers, kernels)
    return page


def _add_kernels(page: Page, terms: AnyArray, kernels: list[str]) -> None:
    """Add a section on the contributions of each kernel over all rows.

    Parameters
    ----------
    page : Page
    terms : ndarray of shape (rows, kernels)
    kernels : list of str
    """
    page.heading("Which kernels decide")
    page.paragraph(
        "A contribution is what a kernel adds to the decision on a row. Together with the constant"
        " they add up to its decision. A kernel of a large mean size matters on many rows; the sign"
        " of the mean shows to which side."
    )
    sizes = np.abs(terms).mean(axis=0)
    if find_spec("matplotlib") is not None:
        from kernelmosaic.plots import KernelWeightsDisplay

        display = KernelWeightsDisplay(sizes, kernels, weight_name="mean size of the contribution")
        page.figure(
            display.plot(sort=True, max_kernels=20),
            "Mean size of each kernel's contribution",
            "Mean size of the contributions, the largest first.",
        )
    total = float(sizes.sum()) or 1.0
    lines = []
    for m in np.argsort(-sizes):
        share = 100 * sizes[m] / total
        lines.append([kernels[m], f"{sizes[m]:.4g}", f"{share:.1f}", f"{terms[:, m].mean():+.4g}"])
    page.table("Contributions of the kernels.", ("kernel", "mean size", "share %", "mean"), lines)


def _add_one_row(page: Page, rows: NewRows, request: ExplainRequest) -> None:
    """Add a section on one row, with a picture.

    It is the row of --row; by default the first that lacks a view, or the first. There is none
    without matplotlib, nor for labels and survival, which the picture cannot show.
    """
    has_picture = rows.record["task"] not in ("multi-label", "survival")
    if find_spec("matplotlib") is None or not has_picture:
        return
    row = first_lacking(rows.table, rows.plan)
    if request.row is not None:
        row = rows.row_of(request.row)

    # The true value as it is written, since nothing is scored by it; an empty cell is not equal to
    # itself.
    truth = None
    target_columns = [name for name in rows.record["targets"] if name in rows.raw.columns]
    if target_columns:
        cell = rows.raw[target_columns[0]].iloc[row]
        if cell == cell:
            truth = cell
    names = "".join(f", {name} `{rows.ids[name].iloc[row]}`" for name in request.ids)
    hint = "" if request.row else " `--row N` draws another."
    text = f"Row {rows.number_of(row)}{names}: what each view adds to its decision.{hint}"
    add_waterfall(page, text, rows.estimator, rows.table.iloc[[row]], truth)


def _add_all_rows(page: Page, rows: NewRows, answers: Any, kernels: list[str]) -> None:
    """Add a section with the decisions on the first rows, and their main kernels."""
    page.heading("Row by row")
    first_answers = answers.head(_MOST_ROWS_OF_PAGE)
    if len(first_answers) < len(answers):
        page.paragraph(
            f"The first {len(first_answers)} of {len(answers)}; `-o table.csv` writes all."
        )
    columns = [name for name in answers.columns if name not in {*kernels, "constant"}]
    lines_per_row = max(len(rows.labels), 1)
    lines = []
    for i, (_, answer) in enumerate(first_answers.iterrows()):
        largest = sorted(kernels, key=lambda name: -abs(answer[name]))[:_MOST_KERNELS_OF_ROW]
        lines.append(
            [
                str(rows.number_of(i // lines_per_row)),
                *(_cell_text(answer[name]) for name in columns),
                ", ".join(f"{name} {answer[name]:+.3g}" for name in largest),
                _cell_text(answer["constant"]),
            ]
        )
    head = ("row", *columns, "largest contributions", "constant")
    is_searchable = len(lines) > MOST_ROWS_AT_A_GLANCE
    page.table("Decisions and what they are made of.", head, lines, searchable=is_searchable)


def first_lacking(table: MatrixLike, plan: Plan | None) -> int:
    """Return the first row of a table that lacks a view; if none does, the first."""
    if plan is None or not plan.groups:
        return 0
    lacks = [table[list(group)].isna().all(axis=1) for group in plan.groups]
    return int(np.argmax(np.any(lacks, axis=0)))


def add_waterfall(
    page: Page, text: str, estimator: Estimator, row: MatrixLike, truth: object
) -> None:
    """Add a section with a picture of what each view adds to the decision on a row.

    Parameters
    ----------
    page : Page
    text : str
        The paragraph above the picture.
    estimator : estimator
    row : DataFrame
        With one row, as the estimator reads it.
    truth : object
        The true value; None if it is not known.
    """
    from kernelmosaic.plots import ContributionsDisplay

    page.heading("Contributions for one row")
    page.paragraph(text)
    display = ContributionsDisplay.from_estimator(estimator, row, truth=truth)
    title = display.title.replace("\n", "; ")
    page.figure(
        display,
        f"What each view adds to the decision on one row, {title}",
        f"From the constant on; {title}.",
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
    """Return the first paragraph: the rows, the model, and what its decision is."""
    model = rows.model
    task = rows.record["task"]
    classes = getattr(model, "classes_", [])
    # Models that were made in Python have no task in their record.
    key = task or ""
    if task == "survival":
        key = model.loss
    elif not task and len(classes) == 0:
        key = "regression"
    if key in DECISIONS:
        decision = DECISIONS[key]
    elif len(classes) == 2 and np.ndim(model.dual_coef_) == 2 and len(model.dual_coef_) == 1:
        decision = (
            f"Where the decision is positive, `{classes[1]}` is predicted, else `{classes[0]}`."
        )
    else:
        decision = (
            "The decision is that of the predicted class: the class with the largest decision value"
            " is predicted."
        )
    n_rows = len(rows.table)
    return f"{n_rows} rows of `{request.path}` by the model `{request.model}`. {decision}"


def _cell_text(value: object) -> str:
    """Return a cell of a table as text, numbers with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
