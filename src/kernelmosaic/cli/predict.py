"""The work behind ``kernelmosaic predict`` and ``explain``: new rows as a model reads them, and its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from kernelmosaic._typing import AnyArray, ArrayOrTensor, Estimator, MatrixLike, Settings, TargetLike
from kernelmosaic.cli.joining import Joined, join_tables, keep_rows, located
from kernelmosaic.cli.methods import SCORES, figure, score_of
from kernelmosaic.cli.output import class_names, core, load_model, noting, plain, say, training_of
from kernelmosaic.cli.views import ROW_COLUMN, Plan, check_row_numbers, extend, n_samples
from kernelmosaic.reports import Page, Table


@dataclass(frozen=True)
class PredictRequest:
    """A model file and a table of new rows, with what belongs to them, as written on the command line.

    `row` is the number, from 1, of the row that the page of an explanation draws.
    """

    model: Path
    path: Path
    ids: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    on: str | None = None
    drop_empty: bool = False
    row: int | None = None


@dataclass(frozen=True)
class NewRows:
    """A model, and the rows of a table as it reads them."""

    estimator: Estimator
    model: Estimator
    training: Settings
    plan: Plan | None
    raw: ArrayOrTensor
    table: Any
    joined: Joined | None = None

    @classmethod
    def read(cls, asked: PredictRequest) -> NewRows:
        """Read the files, or raise saying what does not suit the model."""
        from kernelmosaic.tables import BadCells, read_table, refuse, require

        estimator = load_model(asked.model)
        model, training = core(estimator), training_of(estimator)
        raw = read_table(asked.path)
        raw.index = range(len(raw))
        require(raw, asked.ids, asked.path)
        plan = None if training["plan"] is None else Plan(**training["plan"])
        joined = None
        if asked.on is not None:
            never = dict.fromkeys(training["targets"], "the target")
            joined = join_tables(raw, asked.views, asked.on, asked.path, never)
            _check_names(joined, training)
            raw = joined.table
        elif asked.views:
            hint = (training["files"] or {}).get("on") or "COLUMN"
            raise ValueError(f"--view {asked.views[0]}: say with --on {hint} by which column it is joined.")
        if plan is not None and asked.on is not None:
            # No row has a view that is not given.
            absent = [name for group in plan.groups if not {*group} & {*raw.columns} for name in group]
            raw = raw.reindex(columns=[*raw.columns, *absent])
        if asked.kernels or (plan is not None and plan.rows == ROW_COLUMN):
            raw[plan.rows if plan and plan.rows else ROW_COLUMN] = extend(model, asked.kernels, len(raw), plan)
        if plan is not None:
            _check_files(plan, training, raw)
            raw = raw.iloc[keep_rows(plan, raw, asked.on, asked.path, asked.drop_empty)]
        try:
            table = _table(training["columns"], plan, raw, asked.path)
        except BadCells as error:
            refuse(located(error.faults, raw, joined), asked.path)
            raise
        if plan is not None and not asked.kernels:
            check_row_numbers(table, plan, n_samples(model), asked.path)
        return cls(estimator, model, training, plan, raw, table, joined)

    @property
    def X(self) -> MatrixLike:
        """What the kernels read."""
        is_prepared = len(getattr(self.estimator, "steps", [])) > 1
        return self.estimator[:-1].transform(self.table) if is_prepared else self.table

    @property
    def labels(self) -> list[str]:
        """The names of labels of which a row may have several; none where it has one class."""
        return list(self.training["targets"]) if self.training["task"] == "multi-label" else []

    def predict(self) -> AnyArray:
        """Return what the model predicts: classes, numbers, labels, or times."""
        found = np.asarray(self.estimator.predict(self.table))
        if self.training["task"] != "survival":
            return found
        return np.exp(found) if self.model.loss == "censored" else self._medians()

    def _medians(self) -> AnyArray:
        """Return the times after which at most half live on; infinite beyond the times learned from."""
        below = self.model.predict_survival_function(self.X, return_array=True) <= 0.5
        return np.where(below.any(axis=1), self.model.unique_times_[below.argmax(axis=1)], np.inf)

    def answers(self, ids: Sequence[str], predicted: AnyArray) -> Settings:
        """Return the first columns of an output: those carried over, then the predictions."""
        named = {f"prediction[{name}]": predicted[:, j] for j, name in enumerate(self.labels)}
        own = named or {"prediction": predicted}
        if {*ids} & {*own}:
            raise ValueError(f"--id {min({*ids} & {*own})}: the output's own column has this name; rename yours.")
        return {name: self.raw[name].to_numpy() for name in ids} | own

    def notes(self, ids: Sequence[str]) -> list[str]:
        """Return remarks on the table: columns that are ignored, categories never seen."""
        known, notes = {*self.table.columns, *ids, *self.training["targets"], ROW_COLUMN}, []
        if self.joined is not None:
            known.add(self.joined.on)
            for name, path in (self.training["files"] or {"views": {}})["views"].items():
                if name not in self.joined.files:
                    notes.append(f"view {name!r} ({path} when the model was fitted) is not given: no row has it.")
        extra = [name for name in self.raw.columns if name not in known]
        if extra:
            shown = ", ".join(extra[:5]) + (" …" if len(extra) > 5 else "")
            few = "column the model does not know is" if len(extra) == 1 else "columns the model does not know are"
            notes.append(f"{len(extra)} {few} ignored: {shown}")
        for name, values in (self.plan.categories if self.plan else {}).items():
            strange = sorted(set(self.table[name].dropna()) - set(values))
            if strange:
                unseen = f"{strange[0]!r} was not in the training table, and counts as no category."
                notes.append(f"column {name!r}: {unseen}")
        return notes


def run_prediction(
    asked: PredictRequest, output: Path | None, scores: bool, proba: bool, interval: float | None = None
) -> None:
    """Predict the rows of a table, and write or print them."""
    import pandas as pd

    from kernelmosaic.tables import table_text, write_table

    rows = NewRows.read(asked)
    truth = _truth(rows, asked.path)
    predicted = rows.predict()
    columns = rows.answers(asked.ids, predicted)
    if proba:
        columns |= _probabilities(rows)
    if interval is not None:
        columns |= _intervals(rows, interval)
    if scores:
        columns |= _scores(rows.model, rows.X, predicted, rows.labels)
    for note in rows.notes(asked.ids):
        say(note=note)
    answers = pd.DataFrame(columns)
    if output is None:
        print(table_text(answers), end="")
    else:
        write_table(answers, output)
        print(f"Predictions: {output} ({len(answers)} rows)")
    if truth is not None:
        task = rows.training["task"]
        # Medians may be equal where the order is known.
        value = score_of(task, truth, rows.estimator.predict(rows.table) if task == "survival" else predicted)
        say(note=f"{SCORES[task][0]} on column {rows.training['target']!r}: {figure(task, value)}")


def _check_names(joined: Joined, training: Settings) -> None:
    """Refuse the file of a view that the model does not have."""
    files = (training["files"] or {}).get("views")
    for name, path in joined.files.items():
        if files is not None and name not in files:
            known = ", ".join(f"{view} ({source})" for view, source in files.items()) or "none"
            raise ValueError(
                f"--view {name}={path}: the model has no view {name!r} from a file; it has {known}. Write NAME={path} "
                "with one of these names."
            )


def _check_files(plan: Plan, training: Settings, raw: ArrayOrTensor) -> None:
    """Say which view of a file is needed, and how to give it, where its columns are not there."""
    files = training["files"] or {}
    for name, path in files.get("views", {}).items():
        columns = {column for column in plan.columns if column.startswith(f"{name}.")}
        if columns and not columns & {*raw.columns}:
            raise ValueError(
                f"the model reads the view {name!r} from a file of its own ({path} when it was fitted), joined by "
                f"column {files['on']!r}: give it with --on {files['on']} --view {name}=FILE."
            )


def _table(names: list[str], plan: Plan | None, raw: ArrayOrTensor, path: Path) -> MatrixLike:
    """The columns the model reads, checked."""
    from kernelmosaic.tables import read_columns, require

    if plan is not None:
        return plan.table(raw, path)
    if not names:
        raise ValueError(
            "the model was fitted to columns without names, so none can be found in a table; fit it to a data frame, "
            "or with `kernelmosaic fit`."
        )
    require(raw, names, path)
    return read_columns(raw, names, [], path)


def _truth(rows: NewRows, path: Path) -> TargetLike:
    """The target, where the table has it; a class the model never saw is refused."""
    from kernelmosaic.tables import indicators, labels_of, numbers

    raw, model, task, target = rows.raw, rows.model, rows.training["task"], rows.training["target"]
    columns = rows.training["targets"]
    if target is None or task == "one-class" or not {*columns} <= {*raw.columns} or raw[columns].isna().any(axis=None):
        return None
    try:
        if task == "regression":
            return numbers(raw, target, path)
        if task == "multi-label":
            return indicators(raw, columns, path)
        if task == "survival":
            return np.column_stack([indicators(raw, columns[1:], path)[:, 0], numbers(raw, columns[0], path)])
    except ValueError as error:
        text = str(error).removesuffix(".")
        raise ValueError(f"{text}; mend it, or leave the column out to predict without a score.") from None
    labels = labels_of(raw[target])
    classes = np.asarray(model.classes_)
    if labels.dtype.kind != classes.dtype.kind:  # a table whose classes happen to read as numbers, say
        labels = np.array([str(label) for label in raw[target]])
        names = {str(label): label for label in classes}
        labels = np.array([names.get(label, label) for label in labels])
    strange = ~np.isin(labels, classes)
    if strange.any():
        row = int(np.argmax(strange))
        shown = ", ".join(str(plain(c)) for c in classes[:10])
        raise ValueError(
            f"{path}, row {row + 1}, column {target!r}: the class {str(labels[row])!r} was not in the training table "
            f"({shown}); mend it, or leave the column out to predict without a score."
        )
    return labels


def _probabilities(rows: NewRows) -> Settings:
    """The probability of each class, or label."""
    if not hasattr(rows.model, "predict_proba"):
        raise ValueError(
            "--proba: the model knows no probabilities; fit a classifier with `kernelmosaic fit --proba`, or leave the "
            "option out."
        )
    found = rows.estimator.predict_proba(rows.table)
    return rounded({f"p_{name}": found[:, k] for k, name in enumerate(class_names(rows.model, rows.training))})


def _intervals(rows: NewRows, coverage: float) -> Settings:
    """Between which numbers the target is, with so much probability."""
    if not hasattr(rows.model, "predict_interval"):
        raise ValueError(
            f"--interval {coverage:g}: intervals are those of numbers learned with `kernelmosaic fit --method ridge`, "
            "which the model is not; leave the option out."
        )
    found = rows.model.predict_interval(rows.X, coverage)
    return rounded({"lower": found[:, 0], "upper": found[:, 1]})


def _scores(model: Estimator, X: MatrixLike, predicted: Any, labels: Sequence[str]) -> Settings:
    """Decision values, and each kernel's share of that of the predicted class; of several labels the values alone."""
    columns: Settings = {}
    if hasattr(model, "decision_function"):
        values = np.asarray(model.decision_function(X))
        if values.ndim == 1:
            columns["decision"] = values
        else:
            columns.update({f"decision[{c}]": values[:, k] for k, c in enumerate(labels or model.classes_)})
    elif hasattr(model, "predict_survival_function"):
        columns["decision"] = model.predict(X)
    if not labels:
        names, terms, _ = decisions_of(model, X, predicted, False)
        columns.update({f"share[{name}]": terms[:, m] for m, name in enumerate(names)})
    return rounded(columns)


def decisions_of(model: Estimator, X: MatrixLike, predicted: Any, labels: bool) -> tuple[list[str], AnyArray, AnyArray]:
    """Return the kernels in use, what each adds to the decision on every row, and the constant added to that.

    Of several classes, the decision is that of the predicted one; of labels there is one each, along the last axis.
    """
    terms, constants = np.asarray(model.contributions(X)), np.atleast_1d(model.intercept_)
    used = np.any(np.atleast_2d(model.weights_) != 0, axis=0)
    if terms.ndim == 3 and not labels:
        chosen = np.searchsorted(model.classes_, predicted)
        terms, constants = terms[np.arange(len(terms)), :, chosen], constants[chosen]
    elif labels:
        constants = constants[np.newaxis]
    return [name for m, name in enumerate(model.kernel_names_) if used[m]], terms[:, used], constants


def rounded(columns: Settings) -> Settings:
    # Digits beyond these are the solver's tolerance, not knowledge.
    return {name: [float(f"{value:.8g}") for value in values] for name, values in columns.items()}


# Explanations --------------------------------------------------------------------------------------------------------


def run_explanation(asked: PredictRequest, output: Path | None, report: Path | None) -> None:
    """Write the table of contributions, and the page if asked for."""
    from kernelmosaic.tables import table_text, write_table

    rows = NewRows.read(asked)
    if asked.row is not None and (report is None or asked.row > len(rows.table)):
        what = (
            f"{asked.path} has {len(rows.table)} rows" if report else "it is drawn on a page; ask for one with --report"
        )
        raise ValueError(f"--row {asked.row}: {what}.")
    answers = explain_rows(rows, asked)
    for note in rows.notes(asked.ids):
        say(note=note)
    # What is announced is there: both files are written before the first word of it.
    if output is not None:
        write_table(answers, output)
    if report is not None:
        with noting(f"The table is complete: {output}." if output else ""):
            write_explanation(rows, answers, asked, report)
    if output is not None:
        print(f"Contributions: {output} ({len(answers)} rows)")
    elif report is None:
        print(table_text(answers), end="")
    if report is not None:
        print(f"Report: {report}")


def explain_rows(rows: NewRows, asked: PredictRequest) -> MatrixLike:
    """Return, for every row (and label), the prediction, the decision, the constant, and what each kernel adds."""
    import pandas as pd

    predicted = rows.predict()
    names, terms, constants = decisions_of(rows.model, rows.X, predicted, bool(rows.labels))
    figures = {
        "decision": terms.sum(axis=1) + constants,
        "constant": np.broadcast_to(constants, (len(terms), *constants.shape[1:])),
        **{name: terms[:, m] for m, name in enumerate(names)},
    }
    first = rows.answers(asked.ids, predicted)
    if not rows.labels:
        return pd.DataFrame(first | rounded(figures))
    carried = {name: np.repeat(first[name], len(rows.labels)) for name in asked.ids}
    own = {"label": np.tile(rows.labels, len(predicted)), "prediction": predicted.ravel()}
    return pd.DataFrame(carried | own | rounded({name: values.ravel() for name, values in figures.items()}))


def write_explanation(rows: NewRows, answers: Any, asked: PredictRequest, path: Path) -> None:
    """Write the page: which kernels decide, over all rows and, for the first ones, row by row."""
    kernels = [name for name in rows.model.kernel_names_ if name in answers.columns]
    terms = answers[kernels].to_numpy(dtype=float)
    size = np.abs(terms).mean(axis=0)
    order = np.argsort(-size)
    page = Page(f"{asked.path.name}: what decides", _lead(rows, asked), wide=True)
    page.heading("Which kernels decide")
    page.paragraph(
        "A contribution is what a kernel adds to the decision on a row. Together with the constant they add up "
        "to its decision. A kernel of a large mean size matters on many rows; the mean tells to which side."
    )
    if find_spec("matplotlib") is not None:
        from kernelmosaic.plots import KernelWeightsDisplay

        drawn = KernelWeightsDisplay(size, kernels, weight_name="mean size of the contribution")
        alt = "Mean size of each kernel's contribution"
        page.figure(drawn.plot(sort=True, max_kernels=20), alt, "Mean size of the contributions, the largest first.")
    total = float(size.sum()) or 1.0
    spread = [
        [kernels[m], f"{size[m]:.4g}", f"{100 * size[m] / total:.1f}", f"{terms[:, m].mean():+.4g}"] for m in order
    ]
    page.table(Table("Contributions of the kernels.", ("kernel", "mean size", "share %", "mean"), spread))
    _add_one(page, rows, asked)
    page.heading("Row by row")
    shown = answers.head(500)
    if len(shown) < len(answers):
        page.paragraph(f"The first {len(shown)} of {len(answers)}; `-o table.csv` writes all.")
    head = [name for name in answers.columns if name not in {*kernels, "constant"}]
    body = [
        [
            str(1 + i // max(len(rows.labels), 1)),
            *(_written(row[name]) for name in head),
            _largest(row, kernels),
            _written(row["constant"]),
        ]
        for i, (_, row) in enumerate(shown.iterrows())
    ]
    columns = ("row", *head, "largest contributions", "constant")
    page.table(Table("Decisions and what they are made of.", columns, body, searchable=len(body) > 12))
    page.write(path)


def _add_one(page: Page, rows: NewRows, asked: PredictRequest) -> None:
    """Add what decides on the row that was asked for, or on the first that lacks a view or, if none does, the first."""
    if find_spec("matplotlib") is None or rows.training["task"] in ("multi-label", "survival"):
        return
    row = first_lacking(rows.table, rows.plan) if asked.row is None else asked.row - 1
    # As it is written: nothing is scored by it.
    known = [rows.raw[name].iloc[row] for name in rows.training["targets"] if name in rows.raw.columns]
    truth = known[0] if known and known[0] == known[0] else None
    of = "".join(f", {name} `{rows.raw[name].iloc[row]}`" for name in asked.ids)
    other = "" if asked.row else " `--row N` draws another."
    page.heading("What decides on one row")
    page.paragraph(f"Row {row + 1}{of}: what each view adds to its decision.{other}")
    add_waterfall(page, rows.estimator, rows.table.iloc[[row]], truth)


def first_lacking(table: MatrixLike, plan: Plan | None) -> int:
    """Return the first row of a table that lacks a view; if none does, the first."""
    groups = [list(group) for group in plan.groups] if plan else []
    return int(np.argmax(np.any([table[group].isna().all(axis=1) for group in groups], axis=0))) if groups else 0


def add_waterfall(page: Page, estimator: Estimator, row: MatrixLike, truth: object) -> None:
    """Add the picture of what each view adds to the decision on a row."""
    from kernelmosaic.plots import ContributionsDisplay

    drawn = ContributionsDisplay.from_estimator(estimator, row, truth=truth)
    said = drawn.title.replace("\n", "; ")
    page.figure(drawn, f"What each view adds to the decision on one row, {said}", f"From the constant on; {said}.")


#: The decision on survival, by the loss.
DECISIONS = {
    "censored": "The decision is the logarithm of the predicted time.",
    "cox": "The decision is minus the logarithm of the hazard; the prediction is the median time.",
    "rank": "The larger the decision, the longer the survival; the prediction is the median time.",
}


def _lead(rows: NewRows, asked: PredictRequest) -> str:
    classes, task = getattr(rows.model, "classes_", []), rows.training["task"]
    rule = "The decision is that of the predicted class: the class of the largest is predicted."
    if rows.labels:
        rule = "A label is predicted where its decision is positive."
    elif task == "survival":
        rule = DECISIONS[rows.model.loss]
    elif task == "one-class":
        rule = "A row is called novel, −1, where its decision is negative."
    elif len(classes) == 0:
        rule = "The decision is the predicted number."
    elif len(classes) == 2 and np.ndim(rows.model.dual_coef_) == 2 and len(rows.model.dual_coef_) == 1:
        rule = f"Where the decision is positive, `{classes[1]}` is predicted, else `{classes[0]}`."
    return f"{len(rows.table)} rows of `{asked.path}` by the model `{asked.model}`. {rule}"


def _written(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _largest(row: MatrixLike, kernels: list[str]) -> str:
    found = sorted(kernels, key=lambda name: -abs(row[name]))[:3]
    return ", ".join(f"{name} {row[name]:+.3g}" for name in found)
