"""The work behind ``kernelmosaic predict``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelmosaic._typing import AnyArray, ArrayOrTensor, Estimator, MatrixLike, Settings
from kernelmosaic.cli.joining import Joined, join_tables, keep_rows, located
from kernelmosaic.cli.output import class_names, core, load_model, plain, say, training_columns, training_of
from kernelmosaic.cli.views import ROW_COLUMN, Plan, check_row_numbers, extend, n_samples


@dataclass(frozen=True)
class PredictRequest:
    """A model file and a table of new rows, with what belongs to them, as written on the command line."""

    model: Path
    path: Path
    ids: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    on: str | None = None
    drop_empty: bool = False


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
        plan = _plan_of(training)
        joined = None
        if asked.on is not None:
            never = dict.fromkeys(training.get("targets", []), "the target")
            joined = join_tables(raw, asked.views, asked.on, asked.path, never)
            _check_names(joined, training)
            raw = joined.table
        elif asked.views:
            hint = (training.get("files") or {}).get("on") or "COLUMN"
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
            table = _table(estimator, plan, raw, asked.path)
        except BadCells as error:
            refuse(located(error.faults, raw, joined), asked.path)
            raise
        if plan is not None and not asked.kernels:
            check_row_numbers(table, plan, n_samples(model), asked.path)
        return cls(estimator, model, training, plan, raw, table, joined)

    @property
    def X(self) -> Any:
        """What the kernels read."""
        is_prepared = len(getattr(self.estimator, "steps", [])) > 1
        return self.estimator[:-1].transform(self.table) if is_prepared else self.table

    @property
    def labels(self) -> list[str]:
        """The names of labels of which a row may have several; none where it has one class."""
        return list(self.training["targets"]) if self.training.get("task") == "multi-label" else []

    def predict(self) -> AnyArray:
        """Return what the model predicts: classes, numbers, labels, or times."""
        found = np.asarray(self.estimator.predict(self.table))
        return np.exp(found) if self.training.get("task") == "survival" else found

    def answers(self, ids: Sequence[str], predicted: AnyArray) -> Settings:
        """Return the first columns of an output: those carried over, then the predictions."""
        named = {f"prediction[{name}]": predicted[:, j] for j, name in enumerate(self.labels)}
        own = named or {"prediction": predicted}
        if {*ids} & {*own}:
            raise ValueError(f"--id {min({*ids} & {*own})}: the output's own column has this name; rename yours.")
        return {name: self.raw[name].to_numpy() for name in ids} | own

    def notes(self, ids: Sequence[str]) -> list[str]:
        """Return remarks on the table: columns that are ignored, categories never seen."""
        known = {*self.table.columns, *ids, *self.training.get("targets", [self.training.get("target")]), ROW_COLUMN}
        files = (self.training.get("files") or {}).get("views", {})
        known |= set() if self.joined is None else {self.joined.on}
        extra = [name for name in self.raw.columns if name not in known]
        notes = []
        for name, path in files.items():
            if self.joined is not None and name not in self.joined.files:
                notes.append(f"view {name!r} ({path} when the model was fitted) is not given: no row has it.")
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


def run_prediction(asked: PredictRequest, output: Path | None, scores: bool, proba: bool) -> None:
    """Predict the rows of a table, and write or print them."""
    import pandas as pd

    rows = NewRows.read(asked)
    truth = _truth(rows, asked.path)
    predicted = rows.predict()
    columns = rows.answers(asked.ids, predicted)
    if proba:
        columns |= _probabilities(rows)
    if scores:
        columns |= _scores(rows.model, rows.X, predicted, rows.labels)
    for note in rows.notes(asked.ids):
        say(note=note)
    write_answers(pd.DataFrame(columns), output, "Predictions")
    if truth is not None:
        from kernelmosaic.cli.fit import score_of
        from kernelmosaic.cli.report import SCORES, figure

        task = rows.training["task"]
        value = score_of(task, truth, predicted)
        say(note=f"{SCORES[task]} on column {rows.training['target']!r}: {figure(task, value)}")


def write_answers(answers: Any, output: Path | None, what: str) -> None:
    """Write a table and say where it is, or print it."""
    from kernelmosaic.tables import table_text, write_table

    if output is None:
        print(table_text(answers), end="")
    else:
        write_table(answers, output)
        announce(answers, output, what)


def announce(answers: Any, output: Path, what: str) -> None:
    """Say where a table was written, and how many rows it has."""
    print(f"{what}: {output} ({len(answers)} rows)")


def _check_names(joined: Joined, training: Settings) -> None:
    """Refuse the file of a view that the model does not have."""
    files = (training.get("files") or {}).get("views")
    for name, path in joined.files.items():
        if files is not None and name not in files:
            known = ", ".join(f"{view} ({source})" for view, source in files.items()) or "none"
            raise ValueError(
                f"--view {name}={path}: the model has no view {name!r} from a file; it has {known}. Write NAME={path} "
                "with one of these names."
            )


def _check_files(plan: Plan, training: Settings, raw: ArrayOrTensor) -> None:
    """Say which view of a file is needed, and how to give it, where its columns are not there."""
    files = training.get("files") or {}
    for name, path in files.get("views", {}).items():
        columns = {column for column in plan.columns if column.startswith(f"{name}.")}
        if columns and not columns & {*raw.columns}:
            raise ValueError(
                f"the model reads the view {name!r} from a file of its own ({path} when it was fitted), joined by "
                f"column {files['on']!r}: give it with --on {files['on']} --view {name}=FILE."
            )


def _plan_of(training: Settings) -> Plan | None:
    noted = training.get("plan")
    if noted is None:
        return None
    groups = tuple(tuple(group) for group in noted.get("groups", ()))
    kinds = tuple(noted["numbers"]), dict(noted["categories"]), tuple(noted["texts"])
    return Plan(*kinds, noted["rows"], groups, noted.get("impute", "none"))


def _table(estimator: Estimator, plan: Plan | None, raw: ArrayOrTensor, path: Path) -> Any:
    """The columns the model reads, checked."""
    from kernelmosaic.tables import read_columns, require

    if plan is not None:
        return plan.table(raw, path)
    names = training_columns(estimator)
    if not names:
        raise ValueError(
            "the model was fitted to columns without names, so none can be found in a table; fit it to a data frame, "
            "or with `kernelmosaic fit`."
        )
    require(raw, names, path)
    return read_columns(raw, names, [], path)


def _truth(rows: NewRows, path: Path) -> Any:
    """The target, where the table has it; a class the model never saw is refused."""
    from kernelmosaic.tables import indicators, labels_of, numbers

    raw, model, task, target = rows.raw, rows.model, rows.training.get("task"), rows.training.get("target")
    columns = rows.training.get("targets", [target])
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


def _scores(model: Estimator, X: MatrixLike, predicted: Any, labels: Sequence[str]) -> Settings:
    """Decision values, and each kernel's share of that of the predicted class; of several labels the values alone."""
    columns: Settings = {}
    if hasattr(model, "decision_function"):
        values = np.asarray(model.decision_function(X))
        if values.ndim == 1:
            columns["decision"] = values
        else:
            columns.update({f"decision[{c}]": values[:, k] for k, c in enumerate(labels or model.classes_)})
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
