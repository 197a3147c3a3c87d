"""The report page of ``kernelmosaic fit``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import PredictionErrorDisplay, RocCurveDisplay, confusion_matrix, f1_score

from kernelmosaic import plots
from kernelmosaic._typing import AnyArray, Settings
from kernelmosaic.cli.fit import PathChoice, Trained, cautions, train_without
from kernelmosaic.cli.methods import SCORES, bootstrap_error, score_of, standard_error, usual_answer
from kernelmosaic.cli.output import describe_score, facts, share_rows
from kernelmosaic.cli.predict import add_waterfall, first_lacking
from kernelmosaic.engine.tasks import Labels
from kernelmosaic.estimators.card import ModelCard
from kernelmosaic.inspection import conditional_pvalue, feature_importance
from kernelmosaic.inspection.conditional import LEAST_SAMPLES_TO_PERMUTE
from kernelmosaic.plots.drawing import colour, line_style, open_frame
from kernelmosaic.reports import Page
from kernelmosaic.stacking import by_view
from kernelmosaic.survival.metrics import (
    StepFunction,
    integrated_brier_score,
    kaplan_meier,
    usual_times,
)
from kernelmosaic.tables import some


def make_page(trained: Trained) -> Page:
    """Return the page of a fit; the pictures are there when matplotlib is."""
    return _FitReport(trained).page()


class _FitReport:
    """What the sections of a page read."""

    def __init__(self, trained: Trained) -> None:
        self.trained, self.request, self.training = (
            trained,
            trained.training.request,
            trained.training,
        )
        self.model, self.record, self.held = trained.model, trained.record, trained.held_out
        self.card = ModelCard(self.model)
        self.task, self.y, self.draws = (
            self.record["task"],
            trained.y,
            find_spec("matplotlib") is not None,
        )
        # One name for each set of rows: those learned from, each predicted without it, and the test
        # rows.
        how = "" if self.held is None else self.held.how.capitalize()
        self.rows = f"{how} predictions of {len(self.y)} rows"

    def page(self) -> Page:
        """Return the page, written from top to bottom."""
        noted, test = self.record, self.record["test"]
        what = "what is normal" if self.request.target is None else repr(self.request.target)
        lead = (
            f"A model of type {type(self.model).__name__} learned from {noted['rows']} rows and"
            f" {len(noted['columns'])} columns, with {len(self.model.kernel_names_)} kernels to"
            " choose from."
        )
        lead += f" {test['n']} test rows were set aside." if test else ""
        page = self._page = Page(f"{self.request.path.name}: learning {what}", lead)
        page.table("Summary.", ("what", "value"), facts(self.card, noted))
        warned = [*noted["warnings"], *cautions(self.trained)]
        if warned:
            page.bullets(warned)
        if self.training.views:
            self._add_views()
        self._add_weights()
        if self.held is not None or test:
            self._add_scores()
        if self.card.is_ridge and self.task == "regression" and len(self.model.view_weights_) > 1:
            self._add_split()
        if self.held is not None:
            self._add_answers(self.held.predictions, self.held.probabilities)
        if self.training.views and self.task != "multi-label":
            self._add_columns()
        if (
            self.draws
            and len(self.model.view_weights_) > 1
            and self.task not in ("multi-label", "survival")
        ):
            self._add_row()
        self._add_convergence()
        self._add_advice()
        if not self.draws:
            page.paragraph(
                'Pictures are left out: matplotlib is missing. `pip install "kernelmosaic[plots]"`'
                " adds it."
            )
        return page

    def _draw(self, make: Callable[[], Any], alt: str, caption: str) -> None:
        """Add the picture that a function makes, if pictures can be drawn."""
        if self.draws:
            self._page.figure(make(), alt, caption)

    def _add_views(self) -> None:
        training, files, n_test = self.training, self.training.files, len(self.training.test_rows)
        joined = f", joined by column `{files['on']}`" if files["on"] else ""
        of_test = f", {n_test} test rows among them" if n_test else ""
        caption = f"The views of all {len(training.table)} rows of the table{of_test}{joined}."
        columns = {name: view["columns"] for name, view in training.views.items()}
        sources = {
            name: ", ".join(view["files"]) or files["table"]
            for name, view in training.views.items()
        }
        rows = [
            [name, sources[name], some(own, 4), f"{training.lacking[name]} rows"]
            for name, own in columns.items()
        ]
        self._page.table(
            caption, ("view", "file", "columns", "lacked by"), rows, searchable=len(rows) > 12
        )
        if any(training.lacking.values()):
            alt, caption = (
                "Which rows have which views",
                "Rows with the same views are grouped together.",
            )
            self._draw(
                lambda: plots.ViewMapDisplay.from_views(training.table, columns), alt, caption
            )

    def _add_weights(self) -> None:
        self._page.heading("Which kernels count")
        means = (
            "The larger its weight, the more it decides; a kernel of weight 0 need never be"
            " computed, nor its columns measured if no other kernel reads them."
        )
        if self.card.is_ridge:
            means = (
                "The larger its weight, the less its part of the function is penalised; unimportant"
                " kernels stay near the average weight. The picture has shares of the sum of all"
                " weights, whose size against alpha is learned as well. `kernelmosaic explain` has"
                " what each kernel adds to the decisions."
            )
        self._page.paragraph(
            f"A kernel compares two rows on the columns of its view, all on one scale. {means}"
        )
        if len(self.card.views) > 1:
            self._add_view_weights()
        learned = self.trained.path.learned_weights if self.trained.path else {}
        draw = partial(
            plots.KernelWeightsDisplay.from_estimator,
            self.model,
            sort=True,
            max_kernels=20,
            learned=learned,
        )
        self._draw(draw, "Weight of each kernel", "The weights, the largest first.")
        found = sorted(self.card.kernels, key=lambda share: -share.share)
        head, rows = share_rows(found, self.record["gates"])
        classes = [str(c) for c in self.card.classes] if found[0].by_class else []
        rows = [
            [*row, *(f"{weight:.3f}" for weight in one.by_class)]
            for row, one in zip(rows, found, strict=True)
        ]
        more = ", the mean over the classes first, then each class's own" if classes else ""
        self._page.table(
            f"Weights of the kernels{more}.", [*head, *classes], rows, searchable=len(rows) > 12
        )

    def _add_view_weights(self) -> None:
        """Add the share of every view in all weights; with --resamples, what it adds to the
        others."""
        n, head, more, tested = self.request.resamples, ["view", "share %"], "", {}
        if n and self.task != "one-class":
            score, unit = (
                SCORES[self.task][0],
                "" if self.task in ("regression", "survival") else ", points",
            )
            tested = {name: self._tested(name) for name in self.card.views}
            head += ["p", f"{score} lost without it{unit}", "95 % from", "to"]
            more = (
                f" Without a view, the model is trained again on the others; what the {score} loses"
                f" has an interval of two standard errors over the {len(self.y)} rows. p tests"
                f" whether the view adds nothing to the others: {n} permutations of what these"
                " leave unexplained are compared with the kernels of the view. A view can have a"
                " large share and add nothing, if others hold the same information."
            )
        rows = [
            [name, f"{100 * one:.1f}", *tested.get(name, [])]
            for name, one in self.card.views.items()
        ]
        self._page.table(
            f"The total weight of each view, as its share of all weights.{more}", head, rows
        )

    def _tested(self, view: str) -> list[str | None]:
        """Return the p-value of a view, what the score loses without it, and from where to where;
        None if unknown."""
        task, held = self.task, self.held
        try:
            less, known = train_without(self.trained, view)
        except ValueError:  # the other views are of too few rows
            return [None] * 4
        loss: list[str | None] = [None] * 3
        if held is not None and less.held_out is not None:
            said = np.empty_like(held.predictions)
            said[known] = less.held_out.predictions
            # Rows without another view have the answer that needs none.
            said[~known] = usual_answer(task, less.y, less.held_out.predictions)
            rows = self.y, held.predictions, said

            def lost(y: AnyArray, ours: AnyArray, theirs: AnyArray) -> float:
                return score_of(task, y, ours) - score_of(task, y, theirs)

            value, error = lost(*rows), bootstrap_error(lost, *rows, groups=self.trained.groups)
            factor, form = (1, ".3f") if task in ("regression", "survival") else (100, ".1f")
            loss = [f"{factor * (value + times * error):{form}}" for times in (0, -2, 2)]
        p_value = self._p_value(view, less)
        return [None if p_value is None else f"{p_value:.2g}", *loss]

    def _p_value(self, view: str, less: Trained, most: int = 1000) -> float | None:
        """Return the p-value of a view given the machine without it, by the rows that have it; None
        of too few."""
        training, inside = self.training, less.training.training_rows
        has = np.arange(len(inside))
        if view in training.views:
            own = training.table.iloc[inside][training.views[view]["columns"]]
            has = np.flatnonzero(own.notna().any(axis=1))
        if len(has) < LEAST_SAMPLES_TO_PERMUTE:
            return None
        if len(has) > most:
            # Drawn, as rows at equal distances may all be of one class.
            has = np.sort(
                np.random.RandomState(self.request.seed or 0).choice(has, most, replace=False)
            )
        X = self.trained.pipeline[:-1].transform(training.table.iloc[inside[has]])
        K = np.zeros((len(has), len(has)))
        for (_, kernel, columns), name in zip(
            training.kernels, self.model.view_names_, strict=True
        ):
            if name == view:  # all of one size
                one = np.asarray(clone(kernel).fit(X[:, columns])(X[:, columns]), dtype=np.float64)
                K += one / (np.linalg.norm(one - one.mean(axis=0)) or 1.0)
        machine = less.model
        given = np.asarray(
            machine.kernel_matrix(less.pipeline[:-1].transform(training.table.iloc[inside[has]]))
        )
        beta = np.zeros((len(machine.dual_coef_), len(inside)))
        beta[:, machine.support_] = machine.dual_coef_
        options: Settings = {
            "n_permutations": self.request.resamples,
            "random_state": self.request.seed or 0,
        }
        return conditional_pvalue(
            K, given.reshape(-1, *K.shape).mean(axis=0), beta[:, has], **options
        )

    def _add_scores(self) -> None:
        score, test, groups = self.record["score"], self.record["test"], self.request.groups
        self._page.heading("Accuracy on unseen rows")
        result = ""
        if score:
            value = describe_score(self.task, score["mean"], score["error"], f"{score['n']} rows")
            result = f" The {score['how']} {score['name']} is {value}."
        if score and self.card.is_ridge:
            what = (
                "Every row"
                if groups is None
                else f"Every group of rows with one value of `{groups}`"
            )
            self._page.paragraph(
                f"{what} was left out in turn: leave-one-out predictions have a closed form, so"
                f" that no part had to be held out. Weights and alpha are those of all {score['n']}"
                f" rows, which favours the score a little.{result}"
            )
        elif score:
            self._page.paragraph(
                f"Each of {score['folds']} parts of the {score['n']} rows was held out in turn,"
                f" preparation of the columns included. Compare the {score['name']} with the"
                f" baseline without features (dashed).{result}"
            )
        if test:
            value = describe_score(self.task, test["value"], test["error"], f"{test['n']} rows")
            self._page.paragraph(
                "The test rows were set aside before anything was learned or chosen. On them, the"
                f" {test['name']} is {value}."
            )
        if self.trained.path is not None:
            self._add_path(self.trained.path)

    def _add_path(self, path: PathChoice) -> None:
        """Add the scores of the parts by C, and the penalties that rmkl has found."""
        name, score, C, search = (
            self.record["price"]["name"],
            SCORES[self.task][0],
            self.trained.C,
            self.trained.search,
        )

        def draw() -> Any:
            # Hazards are chosen by their likelihood, which is another score.
            scores = {path.norm: path.scores} if self.request.loss == "cox" else path.scores_by_norm
            drawn = plots.ValidationPathDisplay(path.result.Cs, scores, (path.norm, C), name).plot()
            baseline = self.record["score"]["baseline"]
            drawn.ax_.axhline(
                baseline, linestyle="--", color="0.4", label="baseline without features"
            )
            drawn.ax_.legend(edgecolor="none")  # on white: it may lie on the line
            return drawn

        if len(path.result.Cs) > 1:
            self._draw(draw, f"Cross-validated {score} against {name}", f"The {score} by {name}.")
        factor, unit = (1, "") if self.task in ("regression", "survival") else (100, " %")
        rows = [
            [
                f"{value:g}",
                f"{factor * own.mean():.3f}",
                f"{factor * own.std():.3f}",
                "yes" if value == C else "no",
            ]
            for value, own in zip(path.result.Cs, path.scores.T, strict=True)
            if not np.isnan(own.mean())
        ]
        head, more = [name, score, "standard deviation", "used"], ""
        if self.request.loss == "cox":
            likelihoods = path.scores_by_norm[path.norm].mean(axis=0)
            rows = [
                [*row, f"{one:.4f}"]
                for row, one in zip(rows, likelihoods[~np.isnan(likelihoods)], strict=True)
            ]
            head.append("partial likelihood")
            more = (
                f" {name} is chosen by the mean log partial likelihood of rows held out, the last"
                " column, which depends on how large hazards are. The concordance depends on their"
                f" order alone, and differs by chance where few pairs change places: the {name}"
                " used may have a lower one than another."
            )
        caption = f"Mean and standard deviation of the {score}{unit} over the folds.{more}"
        self._page.table(caption, head, rows)
        if search is not None:
            self._page.paragraph(
                "A response surface then searched the penalties of the kernels:"
                f" {search.n_solver_calls_} points, best {score}"
                f" {factor * search.best_score_:.3f}{unit}."
            )
            rows = [
                [name, f"{d:.3f}"]
                for name, d in zip(self.model.kernel_names_, self.model.penalties, strict=True)
            ]
            caption = "Penalties found; one above 1 lowers the weight of its kernel."
            self._page.table(caption, ("kernel", "penalty"), rows)

    def _add_split(self) -> None:
        training = self.training
        rows, what = (
            (training.test_rows, "test rows")
            if len(training.test_rows)
            else (training.training_rows, "rows learned from")
        )
        X, y = (
            self.trained.pipeline[:-1].transform(training.table.iloc[rows]),
            training.target.y[rows],
        )
        shares = by_view(self.model.score_split(X, y), self.model.view_names_)
        found = sorted(shares.items(), key=lambda item: -item[1])
        self._page.heading("What each view explains")
        self._page.paragraph(
            f"R² on the {len(rows)} {what}, divided among the views (the product measure): the"
            " shares sum to it. One is negative where a view points away from what the others"
            " leave unexplained."
        )
        table = [[name, f"{share:.3f}"] for name, share in [*found, ("sum", sum(shares.values()))]]
        self._page.table(f"Shares of R² on the {what}.", ("view", "share of R²"), table)

    def _add_answers(self, predicted: AnyArray, p: AnyArray | None) -> None:
        """Add what is wrong with the predictions of rows by fits without them."""
        if self.task == "survival":
            self._add_survival(predicted)
        elif self.task == "multi-label":
            self._page.heading("How well each label is predicted")
            rows = [
                [
                    name,
                    str(int(has.sum())),
                    str(int(said.sum())),
                    f"{100 * np.mean(has == said):.1f}",
                ]
                for name, has, said in zip(
                    self.record["targets"], self.y.T, predicted.T, strict=True
                )
            ]
            head = ("label", "rows that have it", "predicted", "right %")
            self._page.table(f"{self.rows}, by label.", head, rows)
        elif self.task == "regression":
            self._page.heading("Predicted and true")
            rest = self.y - predicted
            half, most = np.quantile(np.abs(rest), (0.5, 0.9))
            errors = (
                f"half of the errors are within {half:.4g}, 90 % within {most:.4g}; their mean is"
                f" {rest.mean():.2g}"
            )
            self._page.paragraph(f"{self.rows}: {errors}.")
            kind = {"kind": "actual_vs_predicted", "subsample": None}
            alt, caption = (
                f"{self.rows} against the true values",
                "Points on the diagonal are predicted exactly.",
            )
            self._draw(
                lambda: PredictionErrorDisplay.from_predictions(self.y, predicted, **kind),
                alt,
                caption,
            )
        elif self.task == "classification":
            self._add_confusion(predicted, p)
            if p is not None:
                self._add_calibration(p)

    def _add_confusion(self, predicted: AnyArray, p: AnyArray | None) -> None:
        y, classes = self.y, self.card.classes
        self._page.heading("Which classes are mistaken for which")
        if len(classes) > 30:
            self._page.paragraph(
                f"There are {len(classes)} classes, too many for a table of all pairs."
            )
            return
        counts = confusion_matrix(y, predicted, labels=classes)
        f1 = f1_score(y, predicted, average=None, labels=classes, zero_division=0.0)
        rows = [
            [str(a), *map(str, line), f"{100 * line[i] / max(sum(line), 1):.1f}", f"{f1[i]:.3f}"]
            for i, (a, line) in enumerate(zip(classes, counts, strict=True))
        ]
        head = ["true class", *(f"→ {c}" for c in classes), "right %", "F1"]
        self._page.table(f"{self.rows}: true class (down) by predicted class (across).", head, rows)

        if p is None or len(classes) > 8:
            return

        def draw() -> Any:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
            for k, c in list(enumerate(classes))[1 if len(classes) == 2 else 0 :]:
                style = {"linestyle": ("solid", "dashed", "dashdot", "dotted")[k % 4]}
                curve = {
                    "name": f"class {c}",
                    "curve_kwargs": style,
                    "plot_chance_level": k == len(classes) - 1,
                }
                drawn = RocCurveDisplay.from_predictions(y == c, p[:, k], ax=ax, **curve)
            ax.set(xlabel="false positive rate", ylabel="true positive rate")
            return drawn

        self._draw(
            draw, f"ROC curves: {self.rows}", f"ROC curves. {self.rows}, by their probabilities."
        )

    def _add_calibration(self, p: AnyArray) -> None:
        n, classes = len(self.y), self.model.classes_
        own = p[np.arange(n), Labels(classes).codes(self.y)]
        said, right = p.max(axis=1), classes[p.argmax(axis=1)] == self.y
        losses = -np.log(np.maximum(own, 1e-15))
        self._page.heading("Are its probabilities calibrated?")
        self._page.paragraph(
            f"{self.rows}: the most probable class has a probability of {100 * said.mean():.1f} %"
            f" on average, and {100 * right.mean():.1f} % are right. The mean log-loss is"
            f" {losses.mean():.3f} ± {standard_error(losses) or 0.0:.3f} nats (standard error);"
            f" equal probabilities for all classes have {np.log(p.shape[1]):.3f}."
        )

        def draw() -> Any:
            bins = {"n_bins": min(10, n // 16), "strategy": "quantile", "name": self.rows}
            drawn = CalibrationDisplay.from_predictions(right, said, **bins)
            ends = min(float(drawn.prob_true.min()), float(drawn.prob_pred.min())) - 0.05, 1.01
            drawn.ax_.set(xlabel="probability of the predicted class", ylabel="share that is right")
            drawn.ax_.set(xlim=ends, ylim=ends)
            return drawn

        if n >= 50:
            caption = "Points on the diagonal are well calibrated."
            self._draw(draw, "Share of right predictions by their probability", caption)

    def _add_survival(self, predicted: AnyArray) -> None:
        """Add the Brier score of survival functions of rows held out in turn, and the calibration
        on test rows."""
        y, training, test = self.y, self.training, self.training.test_rows
        if len(usual_times(y)) < 2:
            return
        functions = self.model.curves_.functions(predicted, False)
        same = StepFunction(*kaplan_meier(y[:, 1], y[:, 0]))
        ours, plain = (
            integrated_brier_score(y, y, curves) for curves in (functions, [same] * len(y))
        )
        self._page.heading("Do rows of low risk live longer?")
        thirds = dict(
            zip(("high", "middle", "low"), np.array_split(np.argsort(predicted), 3), strict=True)
        )
        names = {
            k: f"{k} risk: {int(y[rows, 0].sum())} events in {len(rows)} rows"
            for k, rows in thirds.items()
        }
        caption = (
            f"{self.rows}: Kaplan and Meier's curves of thirds by risk, and how many are at risk."
        )
        self._draw(
            lambda: self._draw_risks(thirds, names),
            f"Survival by risk. {'; '.join(names.values())}",
            caption,
        )
        self._page.heading("Are its survival functions calibrated?")
        self._page.paragraph(
            f"{self.rows}: the integrated Brier score, the mean squared error of the share that"
            f" lives on, is {ours:.3f}; one function for all rows, Kaplan and Meier's, has"
            f" {plain:.3f}."
        )
        if len(test) >= 50:
            X = self.trained.pipeline[:-1].transform(training.table.iloc[test])
            draw = plots.SurvivalCalibrationDisplay.from_estimator
            alt = f"Predicted and observed shares that live on, of {len(test)} test rows"
            caption = f"{len(test)} test rows. Points on the diagonal are well calibrated."
            self._draw(lambda: draw(self.model, X, training.target.y[test]), alt, caption)

    def _draw_risks(self, groups: dict[str, AnyArray], names: dict[str, str]) -> Any:
        """Draw Kaplan and Meier's curves of groups of rows, and below them how many are at risk."""
        from matplotlib.figure import Figure

        y, ax = self.y, Figure(figsize=(6.4, 4.4), layout="constrained").subplots()
        for k, (name, rows) in enumerate(groups.items()):
            times, share = kaplan_meier(y[rows, 1], y[rows, 0])
            ax.step(
                np.append(0.0, times),
                np.append(1.0, share),
                where="post",
                label=names[name],
                **line_style(k),
            )
        ax.set(
            xlim=(0.0, y[:, 1].max()), ylim=(0.0, 1.02), xlabel="time", ylabel="share that lives on"
        )
        ax.legend(frameon=False, fontsize=9)
        open_frame(ax)
        below: Settings = {"transform": ax.get_xaxis_transform(), "fontsize": 8, "va": "center"}
        ax.text(0.0, -0.2, "rows at risk", **below)
        for k, (name, rows) in enumerate(groups.items()):
            ax.text(
                -0.04 * y[:, 1].max(), -0.26 - 0.06 * k, name, ha="right", color=colour(k), **below
            )
            for tick in ax.get_xticks()[ax.get_xticks() <= y[:, 1].max()]:
                ax.text(
                    tick,
                    -0.26 - 0.06 * k,
                    str(np.sum(y[rows, 1] >= tick)),
                    ha="center",
                    color=colour(k),
                    **below,
                )
        return ax.figure

    def _add_columns(self, work: float = 2e9) -> None:
        """Add the columns that decisions depend on most, in each view; of many rows and columns, by
        fewer rows."""
        training, inside = self.training, self.training.training_rows
        n_columns = sum(len(view["columns"]) for view in training.views.values())
        each = max(1, n_columns * max(len(self.model.support_), 1) * len(self.model.kernel_names_))
        count = int(np.clip(work / each, min(20, len(inside)), len(inside)))
        rows = inside[np.linspace(0, len(inside) - 1, count).astype(int)]
        found = feature_importance(
            self.trained.pipeline, training.table.iloc[rows], n_repeats=1, random_state=0
        )
        found = replace(found, feature_names=training.plan.feature_names)
        self._page.heading("Which columns count in each view", "Which columns count")
        self._page.paragraph(
            "How much the decision changes, in the root mean square, when this column is replaced"
            f" by another row's value; by {count} of the rows learned from, with intervals of two"
            " standard errors over these rows. Compare columns within a view, each of which has a"
            " scale of its own: a column of a view of few changes its kernels more than a column"
            " of a view of many, whether or not it has to do with the target. Redundant columns"
            " share the importance. A view whose kernels all have weight 0 is left out."
        )
        alt, most = "Most important columns of each view", max(3, 24 // len(found.views))
        self._draw(
            lambda: plots.FeatureImportanceDisplay(found).plot(most=most),
            alt,
            f"The {alt.lower()}.",
        )
        listed = [
            [view, found.feature_names[j], f"{found.importances[j]:.3g}", f"{found.errors[j]:.2g}"]
            for view in found.views
            for j in found.largest(view, 20)
        ]
        caption, head = (
            "The 20 most important columns of each view.",
            ("view", "column", "change", "standard error"),
        )
        self._page.table(caption, head, listed, True, "As a table")

    def _add_row(self) -> None:
        """Add what decides on one row: the first that lacks a view or, if none does, the first."""
        table = self.training.table.iloc[self.training.training_rows]
        row = first_lacking(table, self.training.plan)
        number = self.training.file_rows[self.training.training_rows[row]] + 1
        text = (
            f"Row {number} of the table, which the model has learned from: what each view adds to"
            " its decision. `kernelmosaic explain --report` does the same for new rows."
        )
        truth = None if self.task == "one-class" else self.y[row]
        add_waterfall(self._page, text, self.trained.pipeline, table.iloc[[row]], truth)

    def _add_convergence(self) -> None:
        model, what, draw = self.model, "Objective and gap", plots.ConvergenceDisplay.from_estimator
        text = (
            "The objective is at most the share of the gap in the summary above the least possible."
            " No other solver is needed to check it."
        )
        if self.card.is_ridge:
            what = "Criterion"
            text = (
                "At a stationary point the slope of the criterion in the logarithms of weights and"
                " alpha, in the summary in nats per row, is zero. The criterion is not convex:"
                f" another start may end elsewhere. The best of {model.n_init} is taken."
            )
        if hasattr(model, "gate"):
            text += " For a localized model, this holds of the machine under the final gates."
        self._page.heading("Is it the optimum?")
        self._page.paragraph(text)
        if len(model.history_) > 1:
            self._draw(
                lambda: draw(model), f"{what} by iteration", f"{what}, iteration by iteration."
            )

    def _add_advice(self) -> None:
        request, files, n_views = self.request, self.training.files, len(self.model.view_weights_)
        self._page.heading("What to do next")
        views = "".join(f" --view {name}=NEW_{name}.csv" for name in files["views"])
        joined = f" --on {files['on']}{views} --id {files['on']}" if files["on"] else ""
        kernels = "".join(
            f" --kernel {name}=NEW_{name}.npy" for name in files["kernels"] if request.rows is None
        )
        predict = (
            f"Predict new rows: `kernelmosaic predict {request.output} NEW.csv{joined}{kernels} -o"
            " predictions.csv`. Columns are found by name; `--scores` adds the decision values and"
            " the contributions of the kernels."
        )
        if joined:
            predict += " A view whose file is left out counts as missing in every row."
        if hasattr(self.model, "predict_interval"):
            predict += " `--interval 0.9` adds intervals that cover 90 % of targets."
        fewer, margin = "", "`mkl` is a margin with few kernels and a certified gap"
        if not self.card.is_ridge:
            fewer = "; penalise an expensive one by `--cost name=2` (mkl, rmkl)"
            margin = "`--norm 2` keeps all kernels, `ridge` learns weights without folds"
        views = (
            f"Leave out a view by naming the others with `--view`{fewer}, and see whether the score"
            " holds."
        )
        quick = (
            "`discriminant` is quick with many classes, " if self.task == "classification" else ""
        )
        compare = (
            "Compare methods on the same seed: `--method localized` lets weights depend on the"
            f" row, {quick}{margin}."
        )
        read = (
            f"Read the model again: `kernelmosaic inspect {request.output}`, or `kernelmosaic.load`"
            " in Python."
        )
        test = (
            []
            if request.test
            else ["Set test rows aside for a final, unbiased score: `--test 0.25`."]
        )
        self._page.bullets([predict, read, *([views] if n_views > 1 else []), *test, compare])
