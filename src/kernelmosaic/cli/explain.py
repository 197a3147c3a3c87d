"""The work behind ``kernelmosaic explain``: what each kernel adds to the decision on every row."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from kernelmosaic.cli.errors import after_writing
from kernelmosaic.cli.output import say
from kernelmosaic.cli.predict import NewRows, PredictRequest, announce, decisions_of, rounded, write_answers
from kernelmosaic.reports import Page, Table

#: So many rows are listed one by one on the page; the table has all.
_MOST_ROWS = 500
#: So many kernels of a row are named on the page.
_MOST_TERMS = 3


def run_explanation(asked: PredictRequest, output: Path | None, report: Path | None) -> None:
    """Write the table of contributions, and the page if asked for."""
    from kernelmosaic.tables import write_table

    rows = NewRows.read(asked)
    answers = explain_rows(rows, asked)
    for note in rows.notes(asked.ids):
        say(note=note)
    if report is None:
        write_answers(answers, output, "Contributions")
        return
    # What is announced is there: both files are written before the first word of it.
    if output is not None:
        write_table(answers, output)
    with after_writing("table", output):
        write_explanation(rows, answers, asked, report)
    if output is not None:
        announce(answers, output, "Contributions")
    print(f"Report: {report}")


def explain_rows(rows: NewRows, asked: PredictRequest) -> Any:
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
    """Write the page: which kernels decide, over all rows and row by row."""
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
        alt = "Mean size of each kernel's contribution"
        page.figure(_draw(kernels, size, order), alt, "Mean size of the contributions, the largest first.")
    total = float(size.sum()) or 1.0
    spread = [
        [kernels[m], f"{size[m]:.4g}", f"{100 * size[m] / total:.1f}", f"{terms[:, m].mean():+.4g}"] for m in order
    ]
    page.table(Table("Contributions of the kernels.", ("kernel", "mean size", "share %", "mean"), spread))
    page.heading("Row by row")
    shown = answers.head(_MOST_ROWS)
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


def _lead(rows: NewRows, asked: PredictRequest) -> str:
    classes, task = getattr(rows.model, "classes_", []), rows.training.get("task")
    rule = "The decision is that of the predicted class: the class of the largest is predicted."
    if rows.labels:
        rule = "A label is predicted where its decision is positive."
    elif task == "survival":
        rule = "The decision is the logarithm of the predicted time."
    elif task == "one-class":
        rule = "A row is called novel, −1, where its decision is negative."
    elif len(classes) == 0:
        rule = "The decision is the predicted number."
    elif len(classes) == 2 and np.ndim(rows.model.dual_coef_) == 2 and len(rows.model.dual_coef_) == 1:
        rule = f"Where the decision is positive, `{classes[1]}` is predicted, else `{classes[0]}`."
    return f"{len(rows.table)} rows of `{asked.path}` by the model `{asked.model}`. {rule}"


def _written(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _largest(row: Any, kernels: list[str]) -> str:
    found = sorted(kernels, key=lambda name: -abs(row[name]))[:_MOST_TERMS]
    return ", ".join(f"{name} {row[name]:+.3g}" for name in found)


def _draw(kernels: list[str], size: Any, order: Any) -> Any:
    from matplotlib.figure import Figure

    top = order[:20][::-1]
    figure = Figure(figsize=(6.4, 1.2 + 0.28 * len(top)), layout="constrained")
    axes = figure.subplots()
    axes.barh([kernels[m] for m in top], size[top], color="#0072B2")
    axes.set(xlabel="mean size of the contribution")
    return figure
