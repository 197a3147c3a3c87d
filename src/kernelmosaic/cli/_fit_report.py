"""The report of a training: what was learned, how well it does, and what to do next."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from kernelmosaic.cli._fit_summary import SCORES, Facts, cautions, lines, shares
from kernelmosaic.cli._methods import Method, price_name
from kernelmosaic.cli._model import weight_texts
from kernelmosaic.reports import Page, Table

_BLUE, _ORANGE = "#0072B2", "#D55E00"
#: More classes than this make a confusion matrix nobody reads.
_MOST_CLASSES = 30


def write_fit_report(trained: Any, facts: Facts, request: Any, method: Method, y: Any) -> None:
    """Write the page; the pictures are there when matplotlib is."""
    draws = find_spec("matplotlib") is not None
    model = trained.pipeline.named_steps["model"]
    what = "what is usual" if request.columns.target is None else repr(request.columns.target)
    page = Page(
        f"{request.path.name}: learning {what}",
        f"A model of type {type(model).__name__} learned from {facts.n_rows} rows and {facts.n_columns} columns, "
        f"with {len(model.kernel_names_)} kernels to choose from.",
    )
    page.table(Table("What came out.", ("what", "value"), lines(facts, method)))
    warned = [*trained.warnings, *cautions(facts, trained)]
    if warned:
        page.bullets(warned)
    _add_weights(page, trained, draws)
    _add_curve(page, trained, facts, method, draws)
    _add_answers(page, trained, facts, y, draws)
    _add_convergence(page, model, draws)
    _add_advice(page, facts, request)
    if not draws:
        page.paragraph('Pictures are left out: matplotlib is missing. `pip install "kernelmosaic[plots]"` brings it.')
    page.write(request.report)


def _add_weights(page: Page, trained: Any, draws: bool) -> None:
    page.heading("Which kernels count")
    model, gates = trained.pipeline.named_steps["model"], trained.pipeline.training_["gates"]
    found = sorted(shares(trained), key=lambda share: -share.share)
    page.paragraph(
        "A kernel compares two rows on the columns of its view, all kernels on one scale. The larger its weight, the "
        "more it decides; a kernel of weight 0 need never be computed, nor its columns measured if no other kernel "
        "reads them."
    )
    if draws:
        from kernelmosaic.plots import KernelWeightsDisplay

        drawn = KernelWeightsDisplay.from_estimator(model, sort=True, max_kernels=20)
        _add_display(page, drawn, "Weight of each kernel", "The weights, the largest first.")
    classes = [str(c) for c in getattr(model, "classes_", [])] if found[0].by_class else []
    head = ["kernel", "weight", "share %", *(["gate, 10 % to 90 %"] if gates else []), *classes]
    rows, texts = [], weight_texts(found)
    for share in found:
        low, _, high = gates[share.name] if gates else (0.0, 0.0, 0.0)
        extra = [f"{low:.3f} to {high:.3f}"] if gates else []
        own = [f"{weight:.3f}" for weight in share.by_class]
        rows.append([share.name, texts[share.name], f"{100 * share.share:.1f}", *extra, *own])
    caption = "Weights of the kernels" + (
        ", the mean over the classes first, then each class's own." if classes else "."
    )
    page.table(Table(caption, head, rows, searchable=len(rows) > 12))


def _add_curve(page: Page, trained: Any, facts: Facts, method: Method, draws: bool) -> None:
    if not trained.curve:
        return
    name, score = price_name(method, facts.task), SCORES[facts.task]
    page.heading("How well it does on rows it has not seen")
    page.paragraph(
        f"Each of {facts.folds} parts was held out in turn, preparation of the columns included. Judge the {score} by "
        "the line of a rule that looks at no column."
    )
    if draws and len(trained.curve) > 1:
        page.figure(
            _draw_curve(trained, facts, name), f"Cross-validated {score} against {name}", f"The score by {name}."
        )
    factor, unit = (1, "") if facts.task == "regression" else (100, " %")
    rows = [
        [
            f"{p.price:g}",
            f"{factor * p.mean:.3f}",
            f"{factor * p.scores.std():.3f}",
            "yes" if p.price == facts.price else "no",
        ]
        for p in trained.curve
    ]
    page.table(Table(f"Mean and spread of the {score}{unit} over the folds.", (name, score, "spread", "used"), rows))
    if trained.search is not None:
        found = trained.search
        page.paragraph(
            f"A response surface then searched the penalties of the kernels: {found.n_solver_calls_} points, best "
            f"{score} {factor * found.best_score_:.3f}{unit}."
        )
        penalties = found.best_estimator_.named_steps["model"].penalties
        names = found.best_estimator_.named_steps["model"].kernel_names_
        rows = [[name, f"{d:.3f}"] for name, d in zip(names, penalties, strict=True)]
        page.table(Table("Penalties found; above 1 a kernel is made dearer.", ("kernel", "penalty"), rows))


def _draw_curve(trained: Any, facts: Facts, name: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    prices = [point.price for point in trained.curve]
    means = [point.mean for point in trained.curve]
    axes.errorbar(prices, means, [p.scores.std() for p in trained.curve], marker="o", capsize=3, color=_BLUE)
    axes.axhline(trained.baseline, linestyle="--", color=_ORANGE, label="looking at no column")
    used = trained.best
    axes.plot([used.price], [used.mean], marker="*", markersize=15, color=_BLUE, linestyle="", label="used")
    axes.set(xscale="log", xlabel=name, ylabel=f"cross-validated {SCORES[facts.task]}")
    axes.legend(frameon=False)
    return figure


def _add_answers(page: Page, trained: Any, facts: Facts, y: Any, draws: bool) -> None:
    best = trained.best
    if best is None or facts.task == "one-class":
        return
    if facts.task == "regression":
        page.heading("Predicted and true")
        rest = y - best.predictions
        page.paragraph(
            f"Errors on held-out rows: half are within {np.median(np.abs(rest)):.4g}, nine in ten within "
            f"{np.quantile(np.abs(rest), 0.9):.4g}; their mean is {rest.mean():.2g}."
        )
        if draws:
            alt = "Predictions of held-out rows against the true values"
            page.figure(_draw_residuals(y, best.predictions), alt, "On the line, predictions are right.")
        return
    page.heading("Which classes are mistaken for which")
    classes = facts.classes
    if len(classes) > _MOST_CLASSES:
        page.paragraph(f"There are {len(classes)} classes, too many for a table of all pairs.")
        return
    values = np.array(classes)
    counts = [[int(np.sum((y == a) & (best.predictions == b))) for b in values] for a in values]
    rows = [
        [str(a), *map(str, line), f"{100 * line[i] / max(sum(line), 1):.1f}"]
        for i, (a, line) in enumerate(zip(classes, counts, strict=True))
    ]
    head = ["true class", *(f"→ {c}" for c in classes), "right %"]
    page.table(Table("Held-out rows of each class (down) by the class they were given (across).", head, rows))


def _draw_residuals(y: Any, predictions: Any) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.scatter(y, predictions, s=12, alpha=0.6, color=_BLUE, linewidths=0)
    ends = [min(y.min(), predictions.min()), max(y.max(), predictions.max())]
    axes.plot(ends, ends, color=_ORANGE, linewidth=1.2)
    axes.set(xlabel="true", ylabel="predicted")
    return figure


def _add_convergence(page: Page, model: Any, draws: bool) -> None:
    page.heading("Is it the optimum?")
    page.paragraph(
        f"The certified relative duality gap is {model.duality_gap_:.1e}, after {model.n_iter_} iterations: the "
        "objective is at most that share above the least possible. It needs no other solver to be believed."
        + (" For a localized model it speaks of the machine under the final gates." if hasattr(model, "gate") else "")
    )
    if draws and len(model.history_) > 1:
        from kernelmosaic.plots import ConvergenceDisplay

        alt = "Objective and duality gap by iteration"
        drawn = ConvergenceDisplay.from_estimator(model)
        _add_display(page, drawn, alt, "Objective and gap, iteration by iteration.")


def _add_display(page: Page, display: Any, alt: str, caption: str) -> None:
    import matplotlib.pyplot as plt

    page.figure(display, alt, caption)
    plt.close(display.figure_)


def _add_advice(page: Page, facts: Facts, request: Any) -> None:
    page.heading("What to do next")
    predict = (
        f"Predict new rows: `kernelmosaic predict {request.output} NEW.csv -o predictions.csv`. Columns are found by "
        "name; `--scores` adds how sure the model is, and which kernel says so."
    )
    fewer = (
        "Leave out a view of weight 0 by naming the others with `--view`; make an expensive one dearer with "
        "`--cost name=2` (mkl, rmkl), and see whether the score holds."
    )
    compare = (
        "Compare methods on the same seed: `--method localized` lets weights depend on the row, `discriminant` is "
        "quick with many classes, `--norm 2` keeps all kernels."
    )
    read = f"Read the model again: `kernelmosaic inspect {request.output}`, or `kernelmosaic.load` in Python."
    hold_out = [] if facts.test is not None else ["Hold out rows for a last honest score: `--test 0.25`."]
    page.bullets([predict, read, fewer, *hold_out, compare])
