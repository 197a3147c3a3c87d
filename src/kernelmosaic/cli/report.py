"""What came out of a fit: the model file, the table on the terminal, the report page."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from kernelmosaic._typing import Estimator
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
    tried = ", ".join(f"{point.C:g}" for point in trained.curve)
    by = " by partial likelihood" if trained.request.loss == "cox" else ""
    how = f"the best of {tried}{by}" if len(trained.curve) > 1 else "given"
    if is_ridge(model) and trained.request.C is None:
        how = f"learned by {'evidence' if trained.request.criterion == 'evidence' else 'leave-one-out error'}"
    found.append((noted["price"]["name"], f"{trained.C:.4g} ({how})"))
    if best is not None:
        mean, spread = figure(task, noted["score"]["mean"]), figure(task, best.spread)
        folds = "" if is_ridge(model) else f", {len(best.scores)} folds"
        found.append((f"{best.how} {score}", f"{mean} ± {spread}{folds}"))
        found.append((f"  {SCORES[task][1]}", figure(task, noted["score"]["baseline"])))
        if task == "regression":
            rms = float(np.sqrt(np.mean((trained.y - best.predictions) ** 2)))
            found.append((f"{best.how} RMS error", f"{rms:.4g}"))
    if noted["test"]:
        found.append((f"{score} on held-out rows", figure(task, noted["test"]["value"])))
    if is_ridge(model):
        total = sum(model.view_weights_.values())
        if 1 < len(model.view_weights_) < len(model.kernel_names_):
            shares = [f"{name} {100 * one / total:.1f} %" for name, one in model.view_weights_.items()]
            found.append(("shares of the views", some(shares, 6)))
        found.append(("largest slope per sample", f"{model.stationarity_:.1e}"))
    else:
        found.append(("support vectors", f"{len(model.support_)} ({100 * model.support_fraction_:.1f} % of the rows)"))
        found.append(("certified gap", f"{model.duality_gap_:.1e}"))
    found.append(("seconds in all", f"{trained.seconds:.2f}"))
    return found


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
    _add_views(page, trained)
    _add_weights(page, trained, draws)
    _add_curve(page, trained, draws)
    if is_ridge(model) and noted["task"] == "regression" and len(model.view_weights_) > 1:
        _add_split(page, trained)
    _add_answers(page, trained, draws)
    if is_ridge(model) and noted["task"] == "classification":
        _add_calibration(page, trained, draws)
    _add_convergence(page, model, draws)
    _add_advice(page, trained)
    if not draws:
        page.paragraph('Pictures are left out: matplotlib is missing. `pip install "kernelmosaic[plots]"` brings it.')
    page.write(str(request.report))


def _add_views(page: Page, trained: Trained) -> None:
    training, files = trained.training, trained.training.files
    if not training.views:
        return
    caption = "The views" + (f", joined by column `{files['on']}`." if files["on"] else ".")
    rows = [
        [name, ", ".join(view["files"]) or files["table"], some(view["columns"], 4), f"{training.lacking[name]} rows"]
        for name, view in training.views.items()
    ]
    page.table(Table(caption, ("view", "file", "columns", "lacked by"), rows, searchable=len(rows) > 12))


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
    if draws:
        from kernelmosaic.plots import KernelWeightsDisplay

        drawn = KernelWeightsDisplay.from_estimator(trained.model, sort=True, max_kernels=20)
        page.figure(drawn, "Weight of each kernel", "The weights, the largest first.")
    found = sorted(kernel_shares(trained.model), key=lambda share: -share.share)
    head, rows = share_rows(found, trained.noted["gates"])
    classes = [str(c) for c in getattr(trained.model, "classes_", [])] if found[0].by_class else []
    rows = [[*row, *(f"{weight:.3f}" for weight in one.by_class)] for row, one in zip(rows, found, strict=True)]
    caption = "Weights of the kernels" + (
        ", the mean over the classes first, then each class's own." if classes else "."
    )
    page.table(Table(caption, [*head, *classes], rows, searchable=len(rows) > 12))
    sums = {name: float(np.mean(weight)) for name, weight in trained.model.view_weights_.items()}
    if 1 < len(sums) < len(found):
        total = sum(sums.values()) or 1.0
        rows = [[name, f"{100 * one / total:.1f}"] for name, one in sorted(sums.items(), key=lambda item: -item[1])]
        page.table(Table("The same, summed per view.", ("view", "share %"), rows))


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
        drawn = ValidationPathDisplay(Cs, {None: scores.T}, (None, trained.C), name).plot()
        drawn.ax_.axhline(trained.baseline, linestyle="--", color="0.4", label="looking at no column")
        drawn.ax_.legend(frameon=False)
        page.figure(drawn, f"Cross-validated {score} against {name}", f"The {score} by {name}.")
    factor, unit = (1, "") if task in ("regression", "survival") else (100, " %")
    rows = [
        [f"{p.C:g}", f"{factor * p.mean:.3f}", f"{factor * p.spread:.3f}", "yes" if p.C == trained.C else "no"]
        for p in trained.curve
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
    for name, share in zip(trained.model._view_names, shares, strict=True):
        views[name] = views.get(name, 0.0) + float(share)
    page.heading("What each view explains")
    page.paragraph(
        f"R² on {what}, divided among the views (the product measure): the shares sum to it. One is negative where a "
        "view points away from what the others leave unexplained, as views do that make up for each other."
    )
    found = sorted(views.items(), key=lambda item: -item[1])
    table = [[name, f"{share:.3f}"] for name, share in found] + [["sum", f"{shares.sum():.3f}"]]
    page.table(Table(f"Shares of R² on {what}.", ("view", "share of R²"), table))


def _add_calibration(page: Page, trained: Trained, draws: bool) -> None:
    p, y = trained.model.loo_probabilities_, trained.y
    own = p[np.arange(len(y)), np.searchsorted(trained.model.classes_, y)]
    said, right = p.max(axis=1), trained.model.loo_predictions_ == y
    page.heading("Are its probabilities right?")
    page.paragraph(
        f"Of every row left out, the predicted class has a probability of {100 * said.mean():.1f} % on average, and "
        f"{100 * right.mean():.1f} % are right. The mean log-loss is {-np.log(own).mean():.3f} nats; equal "
        f"probabilities for all classes have {np.log(p.shape[1]):.3f}."
    )
    if draws and len(y) >= 50:
        from sklearn.calibration import CalibrationDisplay

        bins = {"n_bins": min(10, len(y) // 16), "strategy": "quantile", "name": "rows left out"}
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
    functions = trained.model._curves.functions(trained.best.predictions, False)
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
        rows = [
            [str(a), *map(str, line), f"{100 * line[i] / max(sum(line), 1):.1f}"]
            for i, (a, line) in enumerate(zip(classes, counts, strict=True))
        ]
        head = ["true class", *(f"→ {c}" for c in classes), "right %"]
        page.table(Table("Held-out rows of each class (down) by the class they were given (across).", head, rows))


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
        "objective is at most that share above the least possible. It needs no other solver to be believed."
        + (" For a localized model it speaks of the machine under the final gates." if hasattr(model, "gate") else "")
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
        "Columns are found by name; `--scores` adds how sure the model is, and which kernel says so."
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
