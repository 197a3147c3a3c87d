"""The work behind ``kernelmosaic predict``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelmosaic.cli.output import core, load_model, plain, say, training_columns, training_of
from kernelmosaic.cli.views import ROW_COLUMN, Plan, check_row_numbers, extend, join_tables, n_samples


def run_prediction(
    model_path: Path,
    path: Path,
    output: Path | None,
    ids: Sequence[str],
    scores: bool,
    kernels: Sequence[str],
    views: Sequence[str] = (),
    on: str | None = None,
) -> None:
    """Predict the rows of a table, and write or print them."""
    from kernelmosaic.tables import read_table, require, table_text, write_table

    estimator = load_model(model_path)
    model, training = core(estimator), training_of(estimator)
    raw = read_table(path)
    require(raw, ids, path)
    plan = _plan_of(estimator, training)
    if on is not None:
        raw, _ = join_tables(raw, views, on, path)
    elif views:
        raise ValueError(f"--view {views[0]}: say with --on by which column it is joined.")
    if plan is not None and on is not None:
        # A view that is not given nobody has.
        absent = [name for group in plan.groups if not {*group} & {*raw.columns} for name in group]
        raw = raw.reindex(columns=[*raw.columns, *absent])
    if kernels or (plan is not None and plan.rows == ROW_COLUMN):
        raw[plan.rows if plan and plan.rows else ROW_COLUMN] = extend(model, kernels, len(raw), plan)
    table = _table(estimator, plan, raw, path)
    if plan is not None and not kernels:
        check_row_numbers(table, plan, n_samples(model), path)
    truth = _truth(raw, training, model, path)
    answers = _answers(estimator, model, raw, table, ids, scores)
    for note in _notes(raw, plan, training, ids, table):
        say(note=note)
    if output is None:
        print(table_text(answers), end="")
    else:
        write_table(answers, output)
        print(f"Predictions: {output} ({len(answers)} rows)")
    if truth is not None:
        from kernelmosaic.cli.fit import score_of
        from kernelmosaic.cli.report import SCORES, figure

        value = score_of(training["task"], truth, np.asarray(answers["prediction"]))
        say(note=f"{SCORES[training['task']]} on column {training['target']!r}: {figure(training['task'], value)}")


def _plan_of(estimator: Any, training: dict[str, Any]) -> Plan | None:
    noted = training.get("plan")
    if noted is None:
        return None
    groups = tuple(tuple(group) for group in noted.get("groups", ()))
    return Plan(tuple(noted["numbers"]), dict(noted["categories"]), tuple(noted["texts"]), noted["rows"], groups)


def _table(estimator: Any, plan: Plan | None, raw: Any, path: Path) -> Any:
    """The columns the model reads, checked."""
    from kernelmosaic.tables import numbers, require

    if plan is not None:
        return plan.table(raw, path)
    names = training_columns(estimator)
    if not names:
        raise ValueError(
            "the model was fitted to columns without names, so none can be found in a table; fit it to a data frame, "
            "or with `kernelmosaic fit`."
        )
    require(raw, names, path)
    return numbers(raw, names, path)


def _notes(raw: Any, plan: Plan | None, training: dict[str, Any], ids: Sequence[str], table: Any) -> list[str]:
    known = {*table.columns, *ids, training.get("target"), ROW_COLUMN}
    extra = [name for name in raw.columns if name not in known]
    notes = []
    if extra:
        shown = ", ".join(extra[:5]) + (" …" if len(extra) > 5 else "")
        few = "column the model does not know is" if len(extra) == 1 else "columns the model does not know are"
        notes.append(f"{len(extra)} {few} ignored: {shown}")
    for name, values in (plan.categories if plan else {}).items():
        strange = sorted(set(table[name]) - set(values))
        if strange:
            notes.append(f"column {name!r}: {strange[0]!r} was not in the training table, and counts as no category.")
    return notes


def _truth(raw: Any, training: dict[str, Any], model: Any, path: Path) -> Any:
    """The target column, where the table has it; a class the model never saw is refused."""
    from kernelmosaic.tables import labels_of, numbers

    target = training.get("target")
    if target is None or target not in raw.columns or training["task"] == "one-class" or raw[target].isna().any():
        return None
    if training["task"] == "regression":
        try:
            return numbers(raw, [target], path)[target].to_numpy()
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


def _answers(estimator: Any, model: Any, raw: Any, table: Any, ids: Sequence[str], scores: bool) -> Any:
    import pandas as pd

    columns: dict[str, Any] = {name: raw[name].to_numpy() for name in ids}
    if "prediction" in columns:
        raise ValueError("--id prediction: the output's own column has this name; rename yours.")
    predicted = np.asarray(estimator.predict(table))
    columns["prediction"] = predicted
    if scores:
        X = estimator.named_steps["prepare"].transform(table) if hasattr(estimator, "named_steps") else table
        columns.update(_scores(model, X, predicted))
    return pd.DataFrame(columns)


def _scores(model: Any, X: Any, predicted: Any) -> dict[str, Any]:
    """Decision values, and each kernel's share of that of the predicted class."""
    columns: dict[str, Any] = {}
    terms = np.asarray(model.contributions(X))
    if hasattr(model, "decision_function"):
        values = np.asarray(model.decision_function(X))
        if values.ndim == 1:
            columns["decision"] = values
        else:
            columns.update({f"decision[{c}]": values[:, k] for k, c in enumerate(model.classes_)})
    if terms.ndim == 3:
        terms = terms[np.arange(len(terms)), :, np.searchsorted(model.classes_, predicted)]
    used = np.any(np.atleast_2d(model.weights_) != 0, axis=0).reshape(-1)
    columns.update({f"share[{name}]": terms[:, m] for m, name in enumerate(model.kernel_names_) if used[m]})
    # Digits beyond these are the solver's tolerance, not knowledge.
    return {name: [float(f"{value:.8g}") for value in values] for name, values in columns.items()}
