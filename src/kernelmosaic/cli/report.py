"""What came out of a fit: the model file, the table on the terminal, the report page."""

from __future__ import annotations

import warnings
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.metrics import f1_score

from kernelmosaic._typing import AnyArray, Estimator, Settings
from kernelmosaic.cli.fit import Trained
from kernelmosaic.cli.methods import SCORES, figure, parameter_of
from kernelmosaic.cli.output import (
    class_names,
    is_ridge,
    kernel_shares,
    noting,
    print_facts,
    print_shares,
    say,
    share_rows,
    some,
)
from kernelmosaic.cli.predict import add_waterfall, first_lacking
from kernelmosaic.reports import Page, Table


def publish(trained: Trained) -> None:
    """Write the model and, if asked for, the page; print what came out."""
    from kernelmosaic.persistence import save

    request, noted = trained.request, trained.noted
    # What is announced is there: both files are written before the first word of it.
    trained.pipeline.training_ = noted
    save(trained.pipeline, request.output)
    if request.report is not None:
        with noting(f"The model is complete: {request.output}."):
            write_fit_report(trained)
    reason = f" ({request.reason})" if request.reason else ""
    loss = "" if request.loss is None else f" ({request.loss})"
    print_facts(f"{request.method}{reason}, {request.task}{loss}", lines(trained))
    print_shares(kernel_shares(trained.model), noted["gates"])
    for line in [*trained.warnings, *cautions(trained)]:
        say(note=line)
    print(f"Model: {request.output}")
    if request.report is not None:
        print(f"Report: {request.report}")


def lines(trained: Trained) -> list[tuple[str, str]]:
    """Return name and value of everything worth a line."""
    noted, model, best = trained.noted, trained.model, trained.best
    task, classes = noted["task"], class_names(model, noted)
    score = SCORES[task][0]
    found = [("learned from", f"{noted['rows']} rows, {len(noted['columns'])} columns")]
    if classes:
        shown = ", ".join(map(str, classes[:10])) + (" …" if len(classes) > 10 else "")
        found.append(("labels" if task == "multi-label" else "classes", f"{len(classes)}: {shown}"))
    Cs = [point.C for point in trained.curve]
    by = " by partial likelihood" if trained.request.loss == "cox" else ""
    what = "smoothest within one standard error of the best," if trained.request.rule not in (None, "best") else "best"
    how = f"the {what} of {len(Cs)} from {min(Cs):.4g} to {max(Cs):.4g}{by}" if len(Cs) > 1 else "given"
    if is_ridge(model) and trained.request.C is None:
        how = f"learned by {'evidence' if trained.request.criterion == 'evidence' else 'leave-one-out error'}"
    found.append((noted["price"]["name"], f"{trained.C:.4g} ({how})"))
    if trained.choice:
        found.append(("weights", trained.choice))
    if best is not None:
        mean, spread = figure(task, noted["score"]["mean"]), figure(task, best.spread)
        folds = "" if is_ridge(model) else f", {len(best.scores)} folds"
        found.append((f"{best.how} {score}", f"{mean} ± {spread}{folds}"))
        found.append((f"  {SCORES[task][1]}", figure(task, noted["score"]["baseline"])))
        if task == "regression":
            rms = float(np.sqrt(np.mean((trained.y - best.predictions) ** 2)))
            found.append((f"{best.how} RMS error", f"{rms:.4g}"))
    if (ranked := auc_of(trained)) is not None and best is not None:
        found.append(
            (f"{best.how} AUC", f"{np.mean(ranked):.3f}" + ("" if len(ranked) == 1 else ", mean of the classes"))
        )
        f1 = f1_score(trained.y, best.predictions, average="macro", zero_division=0.0)
        found.append((f"{best.how} F1", f"{f1:.3f}, mean of the classes"))
    if noted["test"]:
        found.append((f"{score} on held-out rows", figure(task, noted["test"]["value"])))
    shares = view_shares(model)
    if 1 < len(shares) < len(model.kernel_names_):
        found.append(("shares of the views", some([f"{name} {100 * one:.1f} %" for name, one in shares.items()], 6)))
    if is_ridge(model):
        found.append(("largest slope per sample", f"{model.stationarity_:.1e}"))
    else:
        found.append(
            ("support vectors", f"{len(model.support_)} ({100 * model.support_fraction_:.1f} % of the distinct rows)")
        )
        found.append(("certified gap", f"{model.duality_gap_:.1e}"))
    found.append(("seconds in all", f"{trained.seconds:.2f}"))
    return found


def view_shares(model: Estimator) -> dict[str, float]:
    """Return the share of every view in the sum of all weights, the largest first; of classes, their mean."""
    sums = {name: float(np.mean(weight)) for name, weight in model.view_weights_.items()}
    total = sum(sums.values()) or 1.0
    return {name: one / total for name, one in sorted(sums.items(), key=lambda item: -item[1])}


def auc_of(trained: Trained) -> list[float] | None:
    """Return the area under the ROC curve of held-out rows: of the second class, or of each of several."""
    from sklearn.metrics import roc_auc_score

    p, classes = trained.probabilities, getattr(trained.model, "classes_", [])
    if p is None:
        return None
    return [float(roc_auc_score(trained.y == c, p[:, k])) for k, c in enumerate(classes) if k > 0 or len(classes) > 2]


def cautions(trained: Trained) -> list[str]:
    """Return what the user should not overlook, a line each."""
    found = []
    noted, Cs = trained.noted, [point.C for point in trained.curve]
    task, score = noted["task"], noted["score"]
    name = noted["price"]["name"]
    if len(Cs) > 2 and trained.C in (Cs[0], Cs[-1]):
        found.append(
            f"the best {name}, {trained.C:g}, is at the edge of those tried ({min(Cs):g} to {max(Cs):g}): one beyond "
            "may be better; try it with --C."
        )
    steps = np.diff(trained.y) if task == "regression" else np.empty(0)
    if Cs and len(steps) and trained.request.seed is None and (np.all(steps >= 0) or np.all(steps <= 0)):
        found.append("the rows are sorted by the target, and parts are taken in their order; --seed 0 shuffles them.")
    n_loose = sum(point.n_loose for point in trained.curve)
    if n_loose:
        found.append(f"{n_loose} of {len(Cs) * score['folds']} cross-validation fits stopped early.")
    if task != "one-class" and score and score["mean"] <= score["baseline"] + score["spread"]:
        found.append(
            f"{score['name']} is no better than that of answering {SCORES[task][1]}: the columns may say nothing about "
            "the target."
        )
    by_support = trained.request.method in ("mkl", "rmkl", "localized")
    if task == "classification" and trained.model.support_fraction_ > 0.9 and by_support:
        found.append("nearly every row is a support vector: predictions will be slow, and the classes overlap.")
    return found


def write_fit_report(trained: Trained) -> None:
    """Write the page; the pictures are there when matplotlib is."""
    request, model, noted = trained.request, trained.model, trained.noted
    draws = find_spec("matplotlib") is not None
    what = "what is usual" if request.target is None else repr(request.target)
    page = Page(
        f"{request.path.name}: learning {what}",
        f"A model of type {type(model).__name__} learned from {noted['rows']} rows and {len(noted['columns'])} "
        f"columns, with {len(model.kernel_names_)} kernels to choose from.",
    )
    page.table(Table("What came out.", ("what", "value"), lines(trained)))
    warned = [*noted["warnings"], *cautions(trained)]
    if warned:
        page.bullets(warned)
    _add_views(page, trained, draws)
    _add_weights(page, trained, draws)
    _add_curve(page, trained, draws)
    if is_ridge(model) and noted["task"] == "regression" and len(model.view_weights_) > 1:
        _add_split(page, trained)
    _add_answers(page, trained, draws)
    if trained.probabilities is not None:
        _add_calibration(page, trained, trained.probabilities, draws)
    _add_columns(page, trained, draws)
    _add_row(page, trained, draws)
    _add_convergence(page, model, draws)
    _add_advice(page, trained)
    if not draws:
        page.paragraph('Pictures are left out: matplotlib is missing. `pip install "kernelmosaic[plots]"` brings it.')
    page.write(str(request.report))


def _add_views(page: Page, trained: Trained, draws: bool) -> None:
    training, files = trained.training, trained.training.files
    if not training.views:
        return
    caption = "The views" + (f", joined by column `{files['on']}`." if files["on"] else ".")
    rows = [
        [name, ", ".join(view["files"]) or files["table"], some(view["columns"], 4), f"{training.lacking[name]} rows"]
        for name, view in training.views.items()
    ]
    page.table(Table(caption, ("view", "file", "columns", "lacked by"), rows, searchable=len(rows) > 12))
    if draws and any(training.lacking.values()):
        from kernelmosaic.plots import ViewMapDisplay

        columns = {name: view["columns"] for name, view in training.views.items()}
        drawn = ViewMapDisplay.from_views(training.table, columns)
        page.figure(drawn, "Which rows have which views", "Rows with the same views stand side by side.")


def _add_weights(page: Page, trained: Trained, draws: bool) -> None:
    page.heading("Which kernels count")
    means = (
        "The larger its weight, the more it decides; a kernel of weight 0 need never be computed, nor its columns "
        "measured if no other kernel reads them."
    )
    if is_ridge(trained.model):
        means = (
            "The larger its weight, the more freely the model uses it; one that matters little keeps a weight near the "
            "others'. What is drawn are shares of the sum of all weights, whose size against alpha is learned as well. "
            "`kernelmosaic explain` has what each kernel adds to the decisions."
        )
    page.paragraph(f"A kernel compares two rows on the columns of its view, all kernels on one scale. {means}")
    _add_view_weights(page, trained)
    if draws:
        from kernelmosaic.plots import KernelWeightsDisplay

        drawn = KernelWeightsDisplay.from_estimator(trained.model, sort=True, max_kernels=20, learned=trained.learned)
        page.figure(drawn, "Weight of each kernel", "The weights, the largest first.")
    found = sorted(kernel_shares(trained.model), key=lambda share: -share.share)
    head, rows = share_rows(found, trained.noted["gates"])
    classes = [str(c) for c in getattr(trained.model, "classes_", [])] if found[0].by_class else []
    rows = [[*row, *(f"{weight:.3f}" for weight in one.by_class)] for row, one in zip(rows, found, strict=True)]
    caption = "Weights of the kernels" + (
        ", the mean over the classes first, then each class's own." if classes else "."
    )
    page.table(Table(caption, [*head, *classes], rows, searchable=len(rows) > 12))


def _add_view_weights(page: Page, trained: Trained) -> None:
    """Add the share of every view in all weights; on request with its interval and its p-value."""
    shares, n = view_shares(trained.model), trained.request.resamples
    if len(shares) == 1:
        return
    rows = {name: [name, f"{100 * one:.1f}"] for name, one in shares.items()}
    head, more = ["view", "share %"], ""
    if n:
        head += ["95 % from", "to", "p"]
        more = (
            f" The interval holds the middle 95 % of the shares in {n} bootstrap samples of the rows; p is the "
            f"share of {n} permutations of the target, and of the target as it is, in which the view has as large a "
            "share. It tests whether the target has to do with the kernels at all."
        )
        for name, low, high, p in resampled_shares(trained, list(shares)):
            rows[name] += [f"{100 * low:.1f}", f"{100 * high:.1f}", f"{p:.3g}"]
    page.table(Table(f"The total weight of each view, as its share of all weights.{more}", head, list(rows.values())))


def resampled_shares(trained: Trained, views: list[str]) -> list[tuple[str, float, float, float]]:
    """Return name, ends of the 95 % interval by resampled rows and p-value by permuted targets of each view's share."""
    from kernelmosaic.inspection import kernel_significance, stability
    from kernelmosaic.inspection.significance import p_values
    from kernelmosaic.plots.learned import summed_by_view

    request, training, model = trained.request, trained.training, trained.model
    table, names = training.table.iloc[training.rest], list(dict.fromkeys(model.view_names_))

    def shares(weights: object) -> Any:
        by_view = summed_by_view(np.asarray(weights), model.view_names_)
        by_view = by_view.mean(axis=-2) if np.ndim(model.weights_) == 2 else by_view
        return by_view / by_view.sum(axis=-1, keepdims=True)

    alike: Settings = {"random_state": request.seed or 0, "n_jobs": request.jobs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = stability(
            trained.pipeline, table, trained.y, n_resamples=request.resamples, method="bootstrap", **alike
        ).resampled_weights
        null = kernel_significance(
            trained.pipeline, table, trained.y, n_permutations=request.resamples, **alike
        ).null_weights
    low, high = np.quantile(shares(drawn), (0.025, 0.975), axis=0)
    p = p_values(shares(model.weights_), shares(null))
    return [(name, low[k], high[k], p[k]) for name in views for k in [names.index(name)]]


def _add_curve(page: Page, trained: Trained, draws: bool) -> None:
    if not trained.curve:
        return
    task = trained.training.target.task
    name, score = parameter_of(trained.request), SCORES[task][0]
    page.heading("How well it does on rows it has not seen")
    if is_ridge(trained.model):
        (point,) = trained.curve
        groups = trained.request.groups
        what = "Every row" if groups is None else f"Every group of rows with one value of `{groups}`"
        page.paragraph(
            f"{what} was left out in turn: a least-squares machine knows its outputs without it in closed form, "
            "so that no part had to be held out. Weights and alpha are those of all rows, which favours the score a "
            f"little. The {score} is {figure(task, point.mean)}, with a standard error of "
            f"{figure(task, point.spread)}; {SCORES[task][1]} gives {figure(task, trained.baseline or 0.0)}."
        )
        return
    page.paragraph(
        f"Each of {len(trained.curve[0].scores)} parts was held out in turn, preparation of the columns included. "
        f"Judge the {score} by the line of a rule that looks at no column."
    )
    if draws and len(trained.curve) > 1:
        from kernelmosaic.plots import ValidationPathDisplay

        Cs, scores = (np.array([getattr(p, what) for p in trained.curve]) for what in ("C", "scores"))
        # Hazards are chosen by their likelihood, which is another score.
        drawn_scores = {trained.norm: scores.T} if trained.request.loss == "cox" else trained.norms
        drawn = ValidationPathDisplay(Cs, drawn_scores, (trained.norm, trained.C), name).plot()
        drawn.ax_.axhline(trained.baseline, linestyle="--", color="0.4", label="looking at no column")
        drawn.ax_.legend(frameon=False)
        page.figure(drawn, f"Cross-validated {score} against {name}", f"The {score} by {name}.")
    factor, unit = (1, "") if task in ("regression", "survival") else (100, " %")
    rows = [
        [f"{p.C:g}", f"{factor * p.mean:.3f}", f"{factor * p.spread:.3f}", "yes" if p.C == trained.C else "no"]
        for p in trained.curve
        if not np.isnan(p.mean)
    ]
    page.table(Table(f"Mean and spread of the {score}{unit} over the folds.", (name, score, "spread", "used"), rows))
    if trained.search is not None:
        found = trained.search
        page.paragraph(
            f"A response surface then searched the penalties of the kernels: {found.n_solver_calls_} points, best "
            f"{score} {factor * found.best_score_:.3f}{unit}."
        )
        best = found.best_estimator_.named_steps["model"]
        rows = [[name, f"{d:.3f}"] for name, d in zip(best.kernel_names_, best.penalties, strict=True)]
        page.table(Table("Penalties found; one above 1 lowers the weight of its kernel.", ("kernel", "penalty"), rows))


def _add_split(page: Page, trained: Trained) -> None:
    training = trained.training
    rows, what = training.rest, "the rows learned from"
    if len(training.held):
        rows, what = training.held, "the rows held out"
    X, y = trained.pipeline[:-1].transform(training.table.iloc[rows]), training.target.y[rows]
    shares = trained.model.score_split(X, y)
    views: dict[str, float] = {}
    for name, share in zip(trained.model.view_names_, shares, strict=True):
        views[name] = views.get(name, 0.0) + float(share)
    page.heading("What each view explains")
    page.paragraph(
        f"R² on {what}, divided among the views (the product measure): the shares sum to it. One is negative where a "
        "view points away from what the others leave unexplained, as views do that make up for each other."
    )
    found = sorted(views.items(), key=lambda item: -item[1])
    table = [[name, f"{share:.3f}"] for name, share in found] + [["sum", f"{shares.sum():.3f}"]]
    page.table(Table(f"Shares of R² on {what}.", ("view", "share of R²"), table))


def _add_calibration(page: Page, trained: Trained, p: AnyArray, draws: bool) -> None:
    y = trained.y
    own = p[np.arange(len(y)), np.searchsorted(trained.model.classes_, y)]
    said, right = p.max(axis=1), trained.model.classes_[p.argmax(axis=1)] == y
    page.heading("Are its probabilities right?")
    page.paragraph(
        "While a row is held out, its most probable class has a probability of "
        f"{100 * said.mean():.1f} % on average, and {100 * right.mean():.1f} % are right. The mean log-loss is "
        f"{-np.log(np.maximum(own, 1e-15)).mean():.3f} nats; equal probabilities for all classes have "
        f"{np.log(p.shape[1]):.3f}."
    )
    if draws and len(y) >= 50:
        from sklearn.calibration import CalibrationDisplay

        bins = {"n_bins": min(10, len(y) // 16), "strategy": "quantile", "name": "rows held out"}
        drawn = CalibrationDisplay.from_predictions(right, said, **bins)
        low = min(float(drawn.prob_true.min()), float(drawn.prob_pred.min())) - 0.05
        drawn.ax_.set(xlabel="probability of the predicted class", ylabel="share that is right")
        drawn.ax_.set(xlim=(low, 1.01), ylim=(low, 1.01))
        page.figure(drawn, "Share of right predictions by their probability", "On the line, probabilities are right.")


def _add_survival(page: Page, trained: Trained, draws: bool) -> None:
    """Add how far survival functions are right: for rows held out by cross-validation, and by --test in a picture."""
    from kernelmosaic.metrics import StepFunction, integrated_brier_score, kaplan_meier, usual_times

    assert trained.best is not None
    y, held = trained.y, trained.training.held
    if len(usual_times(y)) < 2:
        return
    functions = trained.model.curves_.functions(trained.best.predictions, False)
    same = StepFunction(*kaplan_meier(y[:, 1], y[:, 0]))
    ours, plain = (integrated_brier_score(y, y, curves) for curves in (functions, [same] * len(y)))
    page.heading("Are its survival functions right?")
    page.paragraph(
        f"The integrated Brier score, the mean squared error of the share that lives on, is {ours:.3f} on rows held "
        f"out in turn; one function for all rows, Kaplan and Meier's, has {plain:.3f}."
    )
    if draws and len(held) >= 50:
        from kernelmosaic.plots import SurvivalCalibrationDisplay

        X = trained.pipeline[:-1].transform(trained.training.table.iloc[held])
        drawn = SurvivalCalibrationDisplay.from_estimator(trained.model, X, trained.training.target.y[held])
        page.figure(drawn, "Predicted and observed shares that live on", "On the line, survival functions are right.")


def _add_answers(page: Page, trained: Trained, draws: bool) -> None:
    best, task, y = trained.best, trained.training.target.task, trained.y
    if best is None or task == "one-class":
        return
    if task == "survival":
        _add_survival(page, trained, draws)
        return
    classes = class_names(trained.model, trained.noted)
    if task == "multi-label":
        page.heading("How well each label is predicted")
        rows = [
            [name, str(int(has.sum())), str(int(said.sum())), f"{100 * np.mean(has == said):.1f}"]
            for name, has, said in zip(classes, y.T, best.predictions.T, strict=True)
        ]
        page.table(Table("Held-out rows by label.", ("label", "rows that have it", "predicted", "right %"), rows))
    elif task == "regression":
        page.heading("Predicted and true")
        rest = y - best.predictions
        page.paragraph(
            f"Errors on held-out rows: half are within {np.median(np.abs(rest)):.4g}, nine in ten within "
            f"{np.quantile(np.abs(rest), 0.9):.4g}; their mean is {rest.mean():.2g}."
        )
        if draws:
            from sklearn.metrics import PredictionErrorDisplay

            alt = "Predictions of held-out rows against the true values"
            kind = {"kind": "actual_vs_predicted", "subsample": None}
            drawn = PredictionErrorDisplay.from_predictions(y, best.predictions, **kind)
            page.figure(drawn, alt, "On the line, predictions are right.")
    else:
        page.heading("Which classes are mistaken for which")
        if len(classes) > 30:
            page.paragraph(f"There are {len(classes)} classes, too many for a table of all pairs.")
            return
        counts = [[int(np.sum((y == a) & (best.predictions == b))) for b in classes] for a in classes]
        each, areas = f1_score(y, best.predictions, average=None, labels=classes, zero_division=0.0), auc_of(trained)
        rows = [
            [str(a), *map(str, line), f"{100 * line[i] / max(sum(line), 1):.1f}", f"{each[i]:.3f}"]
            for i, (a, line) in enumerate(zip(classes, counts, strict=True))
        ]
        head = ["true class", *(f"→ {c}" for c in classes), "right %", "F1"]
        page.table(Table("Held-out rows of each class (down) by the class they were given (across).", head, rows))
        if draws and areas is not None and trained.probabilities is not None and len(classes) <= 8:
            _draw_roc(page, trained, trained.probabilities)


def _draw_roc(page: Page, trained: Trained, p: AnyArray) -> None:
    from sklearn.metrics import RocCurveDisplay

    from kernelmosaic.plots._common import line_style, pyplot

    classes = list(trained.model.classes_)
    _, ax = pyplot().subplots(figsize=(4.6, 4.2), layout="constrained")
    for k, c in list(enumerate(classes))[1 if len(classes) == 2 else 0 :]:
        curve = {"name": f"class {c}", "curve_kwargs": line_style(k), "plot_chance_level": k == len(classes) - 1}
        drawn = RocCurveDisplay.from_predictions(trained.y == c, p[:, k], ax=ax, **curve)
    ax.set(xlabel="share of other rows called so", ylabel="share of the class's rows called so")
    page.figure(drawn, "ROC curves of held-out rows", "ROC curves by the probabilities of held-out rows.")


def _add_columns(page: Page, trained: Trained, draws: bool, work: float = 2e9) -> None:
    """Add the columns that decisions depend on most, in each view; of many rows and columns, by fewer rows."""
    from kernelmosaic.inspection import feature_importance

    training, model = trained.training, trained.model
    if not training.views or training.target.task == "multi-label":
        return
    n_columns, n_support = sum(len(view["columns"]) for view in training.views.values()), len(model.support_)
    each = max(1, n_columns * max(n_support, 1) * len(model.kernel_names_))
    count = int(np.clip(work / each, min(20, len(training.rest)), len(training.rest)))
    rows = training.rest[np.linspace(0, len(training.rest) - 1, count).astype(int)]
    found = feature_importance(trained.pipeline, training.table.iloc[rows], n_repeats=1, random_state=0)
    found = replace(found, feature_names=training.plan.feature_names)
    page.heading("Which columns count in each view", "Which columns count")
    page.paragraph(
        "How much the decision changes, in the root mean square, if a row has the value of another row in this column "
        f"alone; by {count} rows. Of columns that say the same, each counts a part. A view whose kernels all have "
        "weight 0 is left out."
    )
    if draws:
        from kernelmosaic.plots import FeatureImportanceDisplay

        drawn = FeatureImportanceDisplay(found).plot(most=max(3, 24 // len(found.views)))
        page.figure(drawn, "Most important columns of each view", "The most important columns of each view.")
    listed = [[view, name, f"{value:.4g}"] for view in found.views for name, value in found.top(view, 20)]
    page.table(
        Table("The 20 most important columns of each view.", ("view", "column", "change"), listed, True, "As a table")
    )


def _add_row(page: Page, trained: Trained, draws: bool) -> None:
    """Add what decides on one row: the first that lacks a view or, if none does, the first."""
    training = trained.training
    if not draws or len(trained.model.view_weights_) == 1 or training.target.task in ("multi-label", "survival"):
        return
    table = training.table.iloc[training.rest]
    row = first_lacking(table, training.plan)
    page.heading("What decides on one row")
    page.paragraph(
        f"Row {training.rest[row] + 1} of the table, which the model has learned from: what each view adds to its "
        "decision. `kernelmosaic explain --report` does the same for new rows."
    )
    truth = None if training.target.task == "one-class" else trained.y[row]
    add_waterfall(page, trained.pipeline, table.iloc[[row]], truth)


def _add_convergence(page: Page, model: Estimator, draws: bool) -> None:
    page.heading("Is it the optimum?")
    if is_ridge(model):
        page.paragraph(
            f"The largest slope of the criterion in the logarithms of weights and alpha is {model.stationarity_:.1e} "
            f"nats per row, after {model.n_iter_} evaluations; at a stationary point it is zero. The criterion is not "
            f"convex: another start may end elsewhere. The best of {model.n_init} is taken."
        )
    else:
        _say_gap(page, model)
    if draws and len(model.history_) > 1:
        from kernelmosaic.plots import ConvergenceDisplay

        what = "Criterion" if is_ridge(model) else "Objective and gap"
        drawn = ConvergenceDisplay.from_estimator(model)
        page.figure(drawn, f"{what} by iteration", f"{what}, iteration by iteration.")


def _say_gap(page: Page, model: Estimator) -> None:
    page.paragraph(
        f"The certified relative duality gap is {model.duality_gap_:.1e}, after {model.n_iter_} iterations: the "
        "objective is at most that share above the least possible. No other solver is needed to check it."
        + (" For a localized model it is that of the machine under the final gates." if hasattr(model, "gate") else "")
    )


def _add_advice(page: Page, trained: Trained) -> None:
    request, files = trained.request, trained.training.files
    page.heading("What to do next")
    views = "".join(f" --view {name}=NEW_{name}.csv" for name in files["views"])
    joined = f" --on {files['on']}{views} --id {files['on']}" if files["on"] else ""
    kernels = "".join(f" --kernel {name}=NEW_{name}.npy" for name in files["kernels"] if request.rows is None)
    intervals = hasattr(trained.model, "predict_interval")
    predict = (
        f"Predict new rows: `kernelmosaic predict {request.output} NEW.csv{joined}{kernels} -o predictions.csv`. "
        "Columns are found by name; `--scores` adds the decision values and the contributions of the kernels."
        + (" A view whose file is left out counts as missing in every row." if joined else "")
        + (" `--interval 0.9` adds between which numbers nine in ten targets are." if intervals else "")
    )
    fewer = (
        "Leave out a view of weight 0 by naming the others with `--view`; penalise an expensive one by "
        "`--cost name=2` (mkl, rmkl), and see whether the score holds."
    )
    margin = "`--norm 2` keeps all kernels, `ridge` learns weights without folds"
    if is_ridge(trained.model):
        fewer = "Leave out a view by naming the others with `--view`, and see whether the score holds."
        margin = "`mkl` is a margin with few kernels and a certified gap"
    quick = "`discriminant` is quick with many classes, " if request.task == "classification" else ""
    compare = f"Compare methods on the same seed: `--method localized` lets weights depend on the row, {quick}{margin}."
    read = f"Read the model again: `kernelmosaic inspect {request.output}`, or `kernelmosaic.load` in Python."
    hold_out = [] if request.test else ["Hold out rows for a last honest score: `--test 0.25`."]
    several = len(trained.model.view_weights_) > 1
    page.bullets([predict, read, *([fewer] if several else []), *hold_out, compare])
