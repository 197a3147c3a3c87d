"""A training in words and figures, as the terminal shows it, and the report page."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Self

import numpy as np

from kernelmosaic._typing import Estimator, Settings, TargetLike
from kernelmosaic.cli.methods import CLASSIFICATION, ONE_CLASS, FitRequest, Method, price_name
from kernelmosaic.cli.output import KernelShare, class_names, kernel_shares, some, weight_texts
from kernelmosaic.reports import Page, Table

SCORES = {
    "classification": "accuracy",
    "regression": "R²",
    "one-class": "share accepted",
    "survival": "concordance",
    "multi-label": "share of rows with all labels right",
}
_BASELINES = {
    "classification": "always the commonest class",
    "regression": "always the mean",
    "one-class": "1 − nu",
    "survival": "any order",
    "multi-label": "always the commonest labels",
}
_BLUE, _ORANGE = "#0072B2", "#D55E00"
#: A confusion matrix of more classes than this is too large to read.
_MOST_CLASSES = 30


@dataclass(frozen=True)
class Facts:
    """What is worth saying of a training.

    Parameters
    ----------
    task, method : str
    guessed_rows, n_columns : int
    classes : list
    price : float
    Cs : list of float
        Those compared.
    score, spread, baseline, test : float or None
        Mean and standard deviation over the folds; None where it was not measured.
    rms : float or None
        Root mean squared error over the folds, of a regression.
    folds, n_loose, n_support : int
    support_fraction, gap, seconds : float
    """

    task: str
    method: str
    n_rows: int
    n_columns: int
    classes: list[Any]
    price: float
    Cs: list[float]
    score: float | None
    spread: float | None
    baseline: float | None
    test: float | None
    rms: float | None
    folds: int
    n_loose: int
    n_support: int
    support_fraction: float
    gap: float
    seconds: float

    @classmethod
    def of(cls, trained: Estimator, settings: FitRequest, training: Any, y: TargetLike, test: float | None) -> Self:
        """Gather them."""
        model, best = trained.pipeline.named_steps["model"], trained.best
        score = None if best is None else best.mean
        if trained.search is not None:
            score = float(trained.search.best_score_)
        is_regression = best is not None and settings.task == "regression"
        return cls(
            task=settings.task,
            method=settings.method,
            n_rows=len(y),
            n_columns=len([c for c in training.plan.columns if c != "(row number)"]),
            classes=class_names(model, {"task": settings.task, "targets": training.target.columns}),
            price=trained.price,
            Cs=[point.price for point in trained.curve],
            score=score,
            spread=None if best is None else float(best.scores.std()),
            baseline=trained.baseline,
            test=test,
            rms=float(np.sqrt(np.mean((y - best.predictions) ** 2))) if is_regression else None,
            folds=0 if best is None else len(best.scores),
            n_loose=sum(point.n_loose for point in trained.curve),
            n_support=len(model.support_),
            support_fraction=float(model.support_fraction_),
            gap=float(model.duality_gap_),
            seconds=trained.seconds,
        )

    def score_entry(self) -> Settings | None:
        """Return the score as it is kept in the model."""
        if self.score is None:
            return None
        return {
            "name": SCORES[self.task],
            "mean": self.score,
            "spread": self.spread,
            "folds": self.folds,
            "baseline": self.baseline,
        }

    def test_entry(self) -> Settings | None:
        """Return the score on held-out rows as it is kept in the model."""
        return None if self.test is None else {"name": SCORES[self.task], "value": self.test}


def figure(task: str, value: float) -> str:
    """Write a score: shares in per cent."""
    return f"{round(value, 3) + 0.0:.3f}" if task in ("regression", "survival") else f"{100 * value:.1f} %"


def title(facts: Facts) -> str:
    """Return the headline of the terminal's table."""
    return f"{facts.method}, {facts.task}"


def lines(facts: Facts, method: Method) -> list[tuple[str, str]]:
    """Return name and value of everything worth a line."""
    found = [("learned from", f"{facts.n_rows} rows, {facts.n_columns} columns")]
    if facts.classes:
        shown = ", ".join(map(str, facts.classes[:10])) + (" …" if len(facts.classes) > 10 else "")
        found.append(("labels" if facts.task == "multi-label" else "classes", f"{len(facts.classes)}: {shown}"))
    how = "given"
    if len(facts.Cs) > 1:
        how = f"the best of {', '.join(f'{price:g}' for price in facts.Cs)}"
    found.append((price_name(method, facts.task), f"{facts.price:g} ({how})"))
    if facts.score is not None and facts.baseline is not None:
        text = f"{figure(facts.task, facts.score)} ± {figure(facts.task, facts.spread or 0.0)}, {facts.folds} folds"
        found.append((f"cross-validated {SCORES[facts.task]}", text))
        found.append((f"  {_BASELINES[facts.task]}", figure(facts.task, facts.baseline)))
    if facts.rms is not None:
        found.append(("cross-validated RMS error", f"{facts.rms:.4g}"))
    if facts.test is not None:
        found.append((f"{SCORES[facts.task]} on held-out rows", figure(facts.task, facts.test)))
    found.append(("support vectors", f"{facts.n_support} ({100 * facts.support_fraction:.1f} % of the rows)"))
    found.append(("certified gap", f"{facts.gap:.1e}"))
    found.append(("seconds in all", f"{facts.seconds:.2f}"))
    return found


def shares(trained: Estimator) -> list[KernelShare]:
    """Return the kernels of the fitted model with their weights."""
    return kernel_shares(trained.pipeline.named_steps["model"])


def cautions(facts: Facts, trained: Estimator) -> list[str]:
    """Return what the user should not overlook, a line each."""
    found = []
    if len(facts.Cs) > 2 and facts.price in (facts.Cs[0], facts.Cs[-1]):
        found.append(
            f"the best price, {facts.price:g}, is at the edge of those tried ({min(facts.Cs):g} to "
            f"{max(facts.Cs):g}): one beyond may be better; try it with --C."
        )
    if facts.n_loose:
        found.append(f"{facts.n_loose} of {len(facts.Cs) * facts.folds} cross-validation fits stopped early.")
    if facts.task != ONE_CLASS and facts.score is not None and facts.baseline is not None:
        margin = facts.spread or 0.0
        if facts.score <= facts.baseline + margin:
            found.append(
                f"{SCORES[facts.task]} is no better than that of answering {_BASELINES[facts.task]}: the columns may "
                "say nothing about the target."
            )
    if facts.task == CLASSIFICATION and facts.support_fraction > 0.9 and facts.method in ("mkl", "rmkl", "localized"):
        found.append("nearly every row is a support vector: predictions will be slow, and the classes overlap.")
    return found


def write_fit_report(trained: Estimator, facts: Facts, request: Any, method: Method, y: TargetLike) -> None:
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
    _add_views(page, trained.pipeline.training_)
    _add_weights(page, trained, draws)
    _add_curve(page, trained, facts, method, draws)
    _add_answers(page, trained, facts, y, draws)
    _add_convergence(page, model, draws)
    _add_advice(page, facts, request, trained.pipeline.training_["files"])
    if not draws:
        page.paragraph('Pictures are left out: matplotlib is missing. `pip install "kernelmosaic[plots]"` brings it.')
    page.write(request.report)


def _add_views(page: Page, training: Settings) -> None:
    files, lacking = training["files"], training["lacking"]
    if not training["views"]:
        return
    caption = "The views" + (f", joined by column `{files['on']}`." if files["on"] else ".")
    rows = [
        [name, ", ".join(view["files"]) or files["table"], some(view["columns"], 4), f"{lacking[name]} rows"]
        for name, view in training["views"].items()
    ]
    page.table(Table(caption, ("view", "file", "columns", "lacked by"), rows, searchable=len(rows) > 12))


def _add_weights(page: Page, trained: Estimator, draws: bool) -> None:
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


def _add_curve(page: Page, trained: Estimator, facts: Facts, method: Method, draws: bool) -> None:
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
    factor, unit = (1, "") if facts.task in ("regression", "survival") else (100, " %")
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


def _draw_curve(trained: Estimator, facts: Facts, name: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    Cs = [point.price for point in trained.curve]
    means = [point.mean for point in trained.curve]
    axes.errorbar(Cs, means, [p.scores.std() for p in trained.curve], marker="o", capsize=3, color=_BLUE)
    axes.axhline(trained.baseline, linestyle="--", color=_ORANGE, label="looking at no column")
    used = trained.best
    axes.plot([used.price], [used.mean], marker="*", markersize=15, color=_BLUE, linestyle="", label="used")
    axes.set(xscale="log", xlabel=name, ylabel=f"cross-validated {SCORES[facts.task]}")
    axes.legend(frameon=False)
    return figure


def _add_answers(page: Page, trained: Estimator, facts: Facts, y: TargetLike, draws: bool) -> None:
    best = trained.best
    if best is None or facts.task in ("one-class", "survival"):
        return
    if facts.task == "multi-label":
        page.heading("How well each label is predicted")
        rows_of_labels = [
            [name, str(int(has.sum())), str(int(said.sum())), f"{100 * np.mean(has == said):.1f}"]
            for name, has, said in zip(facts.classes, y.T, best.predictions.T, strict=True)
        ]
        page.table(
            Table("Held-out rows by label.", ("label", "rows that have it", "predicted", "right %"), rows_of_labels)
        )
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


def _draw_residuals(y: TargetLike, predictions: Any) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.scatter(y, predictions, s=12, alpha=0.6, color=_BLUE, linewidths=0)
    ends = [min(y.min(), predictions.min()), max(y.max(), predictions.max())]
    axes.plot(ends, ends, color=_ORANGE, linewidth=1.2)
    axes.set(xlabel="true", ylabel="predicted")
    return figure


def _add_convergence(page: Page, model: Estimator, draws: bool) -> None:
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


def _add_advice(page: Page, facts: Facts, request: Any, files: Settings) -> None:
    page.heading("What to do next")
    views = "".join(f" --view {name}=NEW_{name}.csv" for name in files["views"])
    joined = f" --on {files['on']}{views} --id {files['on']}" if files["on"] else ""
    kernels = "".join(f" --kernel {name}=NEW_{name}.npy" for name in files["kernels"] if request.columns.rows is None)
    predict = (
        f"Predict new rows: `kernelmosaic predict {request.output} NEW.csv{joined}{kernels} -o predictions.csv`. "
        "Columns are found by name; `--scores` adds how sure the model is, and which kernel says so."
        + (" A view whose file is left out counts as missing in every row." if joined else "")
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
