"""The report page of ``kernelmosaic fit``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import PredictionErrorDisplay, RocCurveDisplay, confusion_matrix, f1_score

from kernelmosaic import plots
from kernelmosaic._typing import AnyArray, Array, Indices
from kernelmosaic.cli.fit import HeldOut, PathChoice, Trained, cautions, train_without
from kernelmosaic.cli.methods import SCORES, bootstrap_error, score_of, standard_error, usual_answer
from kernelmosaic.cli.output import MOST_ROWS_AT_A_GLANCE, describe_score, facts, share_rows
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
from kernelmosaic.tables import list_names

#: The kernels that pictures show, and the columns that a table lists for each view.
_MOST_KERNELS = 20
_MOST_COLUMNS = 20

#: The bars that the picture of columns has for all views together, and the fewest for one view.
_BARS_OF_COLUMNS = 24
_LEAST_BARS_OF_VIEW = 3

#: The entries of kernels, samples × support vectors × kernels × columns, that the importance of
#: columns may take, and the fewest rows it is measured by. Chosen by hand.
_WORK_OF_IMPORTANCE = 2e9
_LEAST_ROWS_OF_IMPORTANCE = 20

#: The most rows that a view is tested by: the kernel matrices of the test are stored. Chosen by
#: hand.
_MOST_ROWS_OF_TEST = 1000

#: The most classes of a table of confusion, and of a picture with a ROC curve each.
_MOST_CLASSES_OF_TABLE = 30
_MOST_ROC_CURVES = 8

#: The fewest rows for which a calibration curve is drawn, the most points it has, and the fewest
#: rows behind each point. Chosen by hand: the share that is right has a standard error of an eighth
#: at most from 16 rows.
_LEAST_ROWS_OF_CURVE = 50
_MOST_POINTS_OF_CURVE = 10
_LEAST_ROWS_OF_POINT = 16

#: The least probability whose logarithm is taken: a class with probability zero would have an
#: infinite log-loss.
_LEAST_PROBABILITY = 1e-15

#: The tasks whose score is not a share, to be printed in per cent.
_TASKS_WITHOUT_SHARES = ("regression", "survival")


def make_page(trained: Trained) -> Page:
    """Return the page of a fit; its pictures need matplotlib."""
    return _FitReport(trained).page()


class _FitReport:
    """The page of a fit; every method adds a section or a part of one.

    Parameters
    ----------
    trained : Trained
    """

    def __init__(self, trained: Trained) -> None:
        self.trained = trained
        self.training = trained.training
        self.request = trained.training.request
        self.model = trained.model
        self.card = ModelCard(trained.model)
        self.record = trained.record
        self.task = trained.record["task"]
        self.y = trained.y
        self.held_out = trained.held_out
        self.draws = find_spec("matplotlib") is not None
        # What captions call the training rows, each predicted by a fit without it.
        how = "" if self.held_out is None else self.held_out.how.capitalize()
        self.held_out_rows = f"{how} predictions of {len(self.y)} rows"
        self._page = Page(self._title(), self._lead())

    def page(self) -> Page:
        """Add the sections from top to bottom, and return the page."""
        page = self._page
        has_views = bool(self.training.views)
        has_several_views = len(self.model.view_weights_) > 1
        page.table("Summary.", ("what", "value"), facts(self.card, self.record))
        warned = [*self.record["warnings"], *cautions(self.trained)]
        if warned:
            page.bullets(warned)
        if has_views:
            self._add_views()
        self._add_weights()
        if self.held_out is not None or self.record["test"]:
            self._add_scores()
        if self.card.is_ridge and self.task == "regression" and has_several_views:
            self._add_shares_of_r2()
        if self.held_out is not None:
            self._add_held_out(self.held_out)
        if has_views and self.task != "multi-label":
            self._add_columns()
        has_waterfall = self.task not in ("multi-label", "survival")
        if self.draws and has_several_views and has_waterfall:
            self._add_row()
        self._add_convergence()
        self._add_advice()
        if not self.draws:
            page.paragraph(
                'Pictures are left out: matplotlib is missing. `pip install "kernelmosaic[plots]"`'
                " adds it."
            )
        return page

    def _title(self) -> str:
        """Return the title of the page: the file, and what is learned."""
        subject = "what is normal"
        if self.request.target is not None:
            subject = repr(self.request.target)
        return f"{self.request.path.name}: learning {subject}"

    def _lead(self) -> str:
        """Return the first paragraph: the model, and what it was learned from."""
        lead = (
            f"A model of type {type(self.model).__name__} learned from {self.record['rows']} rows"
            f" and {len(self.record['columns'])} columns, with {len(self.model.kernel_names_)}"
            " kernels to choose from."
        )
        test = self.record["test"]
        if test:
            lead += f" {test['n']} test rows were set aside."
        return lead

    def _draw(self, make: Callable[[], Any], alt: str, caption: str) -> None:
        """Add the picture that a function makes, if pictures can be drawn."""
        if self.draws:
            self._page.figure(make(), alt, caption)

    # Views and weights

    def _add_views(self) -> None:
        """Add a table of the views, and a picture of the rows that lack some of them."""
        training = self.training
        files = training.files
        n_test = len(training.test_rows)
        caption = f"The views of all {len(training.table)} rows of the table"
        if n_test:
            caption += f", {n_test} test rows among them"
        if files["on"]:
            caption += f", joined by column `{files['on']}`"
        columns = {name: view["columns"] for name, view in training.views.items()}
        rows = []
        for name, view in training.views.items():
            source = ", ".join(view["files"]) or files["table"]
            lacking = f"{training.lacking[name]} rows"
            rows.append([name, source, list_names(view["columns"], 4), lacking])
        self._page.table(
            f"{caption}.",
            ("view", "file", "columns", "lacked by"),
            rows,
            searchable=len(rows) > MOST_ROWS_AT_A_GLANCE,
        )
        if any(training.lacking.values()):
            self._draw(
                lambda: plots.ViewMapDisplay.from_views(training.table, columns),
                "Which rows have which views",
                "Rows with the same views are grouped together.",
            )

    def _add_weights(self) -> None:
        """Add the weights of views and kernels, as tables and as a picture."""
        self._page.heading("Which kernels count")
        meaning = (
            "The larger its weight, the more it decides; a kernel of weight 0 need never be"
            " computed, nor its columns measured if no other kernel reads them."
        )
        if self.card.is_ridge:
            meaning = (
                "The larger its weight, the less its part of the function is penalised; unimportant"
                " kernels stay near the average weight. The picture has shares of the sum of all"
                " weights, whose size against alpha is learned as well. `kernelmosaic explain` has"
                " what each kernel adds to the decisions."
            )
        self._page.paragraph(
            f"A kernel compares two rows on the columns of its view, all on one scale. {meaning}"
        )
        if len(self.card.views) > 1:
            self._add_view_weights()
        learned_weights = {}
        if self.trained.path is not None:
            learned_weights = self.trained.path.learned_weights
        draw = partial(
            plots.KernelWeightsDisplay.from_estimator,
            self.model,
            sort=True,
            max_kernels=_MOST_KERNELS,
            learned=learned_weights,
        )
        self._draw(draw, "Weight of each kernel", "The weights, the largest first.")

        kernels = sorted(self.card.kernels, key=lambda kernel: -kernel.share)
        head, rows = share_rows(kernels, self.record["gates"])
        caption = "Weights of the kernels."
        if kernels[0].by_class:
            caption = (
                "Weights of the kernels, the mean over the classes first, then each class's own."
            )
            head += [str(c) for c in self.card.classes]
            for row, kernel in zip(rows, kernels, strict=True):
                row += [f"{weight:.3f}" for weight in kernel.by_class]
        self._page.table(caption, head, rows, searchable=len(rows) > MOST_ROWS_AT_A_GLANCE)

    def _add_view_weights(self) -> None:
        """Add the share of every view in all weights.

        With --resamples, the model is trained again without each view, to measure what the view
        adds to the others.
        """
        head = ["view", "share %"]
        rows: list[list[str | None]] = [
            [name, f"{100 * share:.1f}"] for name, share in self.card.views.items()
        ]
        caption = "The total weight of each view, as its share of all weights."
        n_permutations = self.request.resamples
        if n_permutations and self.task != "one-class":
            score = SCORES[self.task][0]
            unit = ", points"
            if self.task in _TASKS_WITHOUT_SHARES:
                unit = ""
            head += ["p", f"{score} lost without it{unit}", "95 % from", "to"]
            for row, name in zip(rows, self.card.views, strict=True):
                row += self._test_view(name)
            caption += (
                f" Without a view, the model is trained again on the others; what the {score} loses"
                f" has an interval of two standard errors over the {len(self.y)} rows. p tests"
                f" whether the view adds nothing to the others: {n_permutations} permutations of"
                " what these leave unexplained are compared with the kernels of the view. A view"
                " can have a large share and add nothing, if others hold the same information."
            )
        self._page.table(caption, head, rows)

    def _test_view(self, view: str) -> list[str | None]:
        """Return the p-value of a view, the score lost without it, and its interval.

        Each is None where it is not known.
        """
        try:
            trained_without, has_other_view = train_without(self.trained, view)
        except ValueError:  # too few rows have another view
            return [None, None, None, None]
        p_value = self._p_value(view, trained_without)
        p_text = None if p_value is None else f"{p_value:.2g}"
        return [p_text, *self._loss_without_view(trained_without, has_other_view)]

    def _loss_without_view(
        self, trained_without: Trained, has_other_view: AnyArray
    ) -> list[str | None]:
        """Return the held-out score lost without a view, and its interval, as texts."""
        task = self.task
        if self.held_out is None or trained_without.held_out is None:
            return [None, None, None]
        predicted = self.held_out.predictions
        predicted_without = np.empty_like(predicted)
        predicted_without[has_other_view] = trained_without.held_out.predictions
        # Rows that have no other view get the answer that needs no features.
        predicted_without[~has_other_view] = usual_answer(
            task, trained_without.y, trained_without.held_out.predictions
        )

        def loss(y: AnyArray, predicted: AnyArray, predicted_without: AnyArray) -> float:
            """Return what the score of predictions loses without the view."""
            return score_of(task, y, predicted) - score_of(task, y, predicted_without)

        arrays = (self.y, predicted, predicted_without)
        value = loss(*arrays)
        error = bootstrap_error(loss, *arrays, groups=self.trained.groups)
        if task in _TASKS_WITHOUT_SHARES:
            return [f"{value + times * error:.3f}" for times in (0, -2, 2)]
        return [f"{100 * (value + times * error):.1f}" for times in (0, -2, 2)]

    def _p_value(self, view: str, trained_without: Trained) -> float | None:
        """Return the p-value of a view given the others; None if few rows have it.

        The test permutes what the machine leaves unexplained, in the rows that have the view.
        """
        training = self.training
        machine_rows = trained_without.training.training_rows
        seed = self.request.seed or 0
        positions = np.arange(len(machine_rows))
        if view in training.views:
            cells = training.table.iloc[machine_rows][training.views[view]["columns"]]
            positions = np.flatnonzero(cells.notna().any(axis=1))
        if len(positions) < LEAST_SAMPLES_TO_PERMUTE:
            return None
        if len(positions) > _MOST_ROWS_OF_TEST:
            # Drawn, since rows at equal distances may all be of one class.
            random = np.random.RandomState(seed)
            positions = np.sort(random.choice(positions, _MOST_ROWS_OF_TEST, replace=False))
        table = training.table.iloc[machine_rows[positions]]
        K = self._gram_of_view(view, self.trained.pipeline[:-1].transform(table))

        machine = trained_without.model
        K_without = np.asarray(
            machine.kernel_matrix(trained_without.pipeline[:-1].transform(table))
        )
        beta = np.zeros((len(machine.dual_coef_), len(machine_rows)))
        beta[:, machine.support_] = machine.dual_coef_
        return conditional_pvalue(
            K,
            # Weights per class give a matrix per class.
            K_without.reshape(-1, *K.shape).mean(axis=0),
            beta[:, positions],
            n_permutations=self.request.resamples,
            random_state=seed,
        )

    def _gram_of_view(self, view: str, X: Any) -> Array:
        """Return the sum of the Gram matrices of a view's kernels, put on one scale.

        The kernels are fitted anew to X. Each matrix is divided by the Frobenius norm that it has
        with centred columns.

        Parameters
        ----------
        view : str
            The name of the view.
        X : ndarray of shape (n, columns)
            Rows behind the first steps of the pipeline.

        Returns
        -------
        ndarray of shape (n, n)
        """
        K = np.zeros((len(X), len(X)))
        for (_, kernel, columns), name in zip(
            self.training.kernels, self.model.view_names_, strict=True
        ):
            if name == view:
                X_view = X[:, columns]
                gram = np.asarray(clone(kernel).fit(X_view)(X_view), dtype=np.float64)
                norm = float(np.linalg.norm(gram - gram.mean(axis=0)))
                if norm == 0:  # a constant matrix
                    norm = 1.0
                K += gram / norm
        return K

    # Scores

    def _add_scores(self) -> None:
        """Add the scores on held-out and on test rows, and the path of the cross-validation."""
        score = self.record["score"]
        test = self.record["test"]
        groups = self.request.groups
        self._page.heading("Accuracy on unseen rows")
        if score:
            value = describe_score(self.task, score["mean"], score["error"], f"{score['n']} rows")
            result = f"The {score['how']} {score['name']} is {value}."
            if self.card.is_ridge:
                subject = "Every row"
                if groups is not None:
                    subject = f"Every group of rows with one value of `{groups}`"
                self._page.paragraph(
                    f"{subject} was left out in turn: leave-one-out predictions have a closed form,"
                    " so that no part had to be held out. Weights and alpha are those of all"
                    f" {score['n']} rows, which favours the score a little. {result}"
                )
            else:
                self._page.paragraph(
                    f"Each of {score['folds']} parts of the {score['n']} rows was held out in turn,"
                    f" preparation of the columns included. Compare the {score['name']} with the"
                    f" baseline without features (dashed). {result}"
                )
        if test:
            value = describe_score(self.task, test["value"], test["error"], f"{test['n']} rows")
            self._page.paragraph(
                "The test rows were set aside before anything was learned or chosen. On them, the"
                f" {test['name']} is {value}."
            )
        if self.trained.path is not None:
            self._add_path(self.trained.path)
        if self.trained.search is not None:
            self._add_penalties()

    def _add_path(self, path: PathChoice) -> None:
        """Add the score of the folds at each C, as a picture and as a table."""
        name = self.record["price"]["name"]
        score = SCORES[self.task][0]
        if len(path.Cs) > 1:
            self._draw(
                partial(self._draw_path, path),
                f"Cross-validated {score} against {name}",
                f"The {score} by {name}.",
            )
        factor, unit = self._unit_of_score()
        head = [name, score, "standard deviation", "used"]
        caption = f"Mean and standard deviation of the {score}{unit} over the folds."
        is_tried = ~np.isnan(path.scores.mean(axis=0))
        rows = []
        for i in np.flatnonzero(is_tried):
            C = path.Cs[i]
            scores = path.scores[:, i]
            is_used = "yes" if C == self.trained.C else "no"
            mean = f"{factor * scores.mean():.3f}"
            rows.append([f"{C:g}", mean, f"{factor * scores.std():.3f}", is_used])
        if self.request.loss == "cox":
            likelihoods = path.scores_by_norm[path.norm].mean(axis=0)
            head.append("partial likelihood")
            for row, value in zip(rows, likelihoods[~np.isnan(likelihoods)], strict=True):
                row.append(f"{value:.4f}")
            caption += (
                f" {name} is chosen by the mean log partial likelihood of rows held out, the last"
                " column, which depends on how large hazards are. The concordance depends on their"
                f" order alone, and differs by chance where few pairs change places: the {name}"
                " used may have a lower one than another."
            )
        self._page.table(caption, head, rows)

    def _draw_path(self, path: PathChoice) -> Any:
        """Return the picture of the scores along the path, with that of the baseline."""
        # Hazards are chosen by their likelihood, which is no score to be shown by norm.
        scores = path.scores_by_norm
        if self.request.loss == "cox":
            scores = {path.norm: path.scores}
        display = plots.ValidationPathDisplay(
            path.Cs, scores, (path.norm, self.trained.C), self.record["price"]["name"]
        ).plot()
        display.ax_.axhline(
            self.record["score"]["baseline"],
            linestyle="--",
            color="0.4",
            label="baseline without features",
        )
        display.ax_.legend(edgecolor="none")  # on white: the legend may lie on the line
        return display

    def _add_penalties(self) -> None:
        """Add the search of the penalties of the kernels, and those it chose."""
        search = self.trained.search
        factor, unit = self._unit_of_score()
        self._page.paragraph(
            "A response surface then searched the penalties of the kernels:"
            f" {search.n_solver_calls_} points, best {SCORES[self.task][0]}"
            f" {factor * search.best_score_:.3f}{unit}."
        )
        penalties = zip(self.model.kernel_names_, self.model.penalties, strict=True)
        self._page.table(
            "Penalties found; one above 1 lowers the weight of its kernel.",
            ("kernel", "penalty"),
            [[name, f"{penalty:.3f}"] for name, penalty in penalties],
        )

    def _unit_of_score(self) -> tuple[int, str]:
        """Return the factor by which scores are printed, and their unit."""
        if self.task in _TASKS_WITHOUT_SHARES:
            return 1, ""
        return 100, " %"

    def _add_shares_of_r2(self) -> None:
        """Add the share of each view in R², on the test rows if there are any."""
        training = self.training
        rows = training.training_rows
        row_kind = "rows learned from"
        if len(training.test_rows):
            rows = training.test_rows
            row_kind = "test rows"
        X = self.trained.pipeline[:-1].transform(training.table.iloc[rows])
        y = training.target.y[rows]
        shares = by_view(self.model.score_split(X, y), self.model.view_names_)
        lines = sorted(shares.items(), key=lambda view: -view[1])
        lines.append(("sum", sum(shares.values())))
        self._page.heading("What each view explains")
        self._page.paragraph(
            f"R² on the {len(rows)} {row_kind}, divided among the views (the product measure): the"
            " shares sum to it. One is negative where a view points away from row_kind the others"
            " leave unexplained."
        )
        self._page.table(
            f"Shares of R² on the {row_kind}.",
            ("view", "share of R²"),
            [[name, f"{share:.3f}"] for name, share in lines],
        )

    # Held-out predictions

    def _add_held_out(self, held_out: HeldOut) -> None:
        """Add a section on the held-out predictions; none of a one-class machine."""
        if self.task == "survival":
            self._add_survival(held_out.predictions)
        elif self.task == "multi-label":
            self._add_labels(held_out.predictions)
        elif self.task == "regression":
            self._add_errors(held_out.predictions)
        elif self.task == "classification":
            self._add_confusion(held_out.predictions)
            if held_out.probabilities is not None:
                self._add_roc_curves(held_out.probabilities)
                self._add_calibration(held_out.probabilities)

    def _add_labels(self, predicted: AnyArray) -> None:
        """Add how often each label is right."""
        self._page.heading("How well each label is predicted")
        rows = []
        for j, name in enumerate(self.record["targets"]):
            has_label = self.y[:, j]
            gets_label = predicted[:, j]
            n_rows = str(int(has_label.sum()))
            n_predicted = str(int(gets_label.sum()))
            rows.append(
                [name, n_rows, n_predicted, f"{100 * np.mean(has_label == gets_label):.1f}"]
            )
        head = ("label", "rows that have it", "predicted", "right %")
        self._page.table(f"{self.held_out_rows}, by label.", head, rows)

    def _add_errors(self, predicted: AnyArray) -> None:
        """Add the size of the errors of a regression, and a picture of them."""
        self._page.heading("Predicted and true")
        errors = self.y - predicted
        median, quantile = np.quantile(np.abs(errors), (0.5, 0.9))
        self._page.paragraph(
            f"{self.held_out_rows}: half of the errors are within {median:.4g}, 90 % within"
            f" {quantile:.4g}; their mean is {errors.mean():.2g}."
        )
        self._draw(
            lambda: PredictionErrorDisplay.from_predictions(
                self.y, predicted, kind="actual_vs_predicted", subsample=None
            ),
            f"{self.held_out_rows} against the true values",
            "Points on the diagonal are predicted exactly.",
        )

    def _add_confusion(self, predicted: AnyArray) -> None:
        """Add the table of true and predicted classes, with the F1 of each class."""
        classes = self.card.classes
        self._page.heading("Which classes are mistaken for which")
        if len(classes) > _MOST_CLASSES_OF_TABLE:
            self._page.paragraph(
                f"There are {len(classes)} classes, too many for a table of all pairs."
            )
            return
        counts = confusion_matrix(self.y, predicted, labels=classes)
        f1 = f1_score(self.y, predicted, average=None, labels=classes, zero_division=0.0)
        rows = []
        for i, line in enumerate(counts):
            right = 100 * line[i] / max(sum(line), 1)
            rows.append([str(classes[i]), *map(str, line), f"{right:.1f}", f"{f1[i]:.3f}"])
        head = ["true class", *(f"→ {c}" for c in classes), "right %", "F1"]
        caption = f"{self.held_out_rows}: true class (down) by predicted class (across)."
        self._page.table(caption, head, rows)

    def _add_roc_curves(self, p: AnyArray) -> None:
        """Add a picture of the ROC curves by the probabilities p, if the classes are few."""
        y = self.y
        classes = self.card.classes
        if len(classes) > _MOST_ROC_CURVES:
            return

        def draw() -> Any:
            """Return the display of the last curve; all are drawn on the same axes."""
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
            # Of two classes, the curve of the second is that of the first.
            first = 1 if len(classes) == 2 else 0
            for k in range(first, len(classes)):
                line_type = ("solid", "dashed", "dashdot", "dotted")[k % 4]
                display = RocCurveDisplay.from_predictions(
                    y == classes[k],
                    p[:, k],
                    ax=ax,
                    name=f"class {classes[k]}",
                    curve_kwargs={"linestyle": line_type},
                    plot_chance_level=k == len(classes) - 1,
                )
            ax.set(xlabel="false positive rate", ylabel="true positive rate")
            return display

        self._draw(
            draw,
            f"ROC curves: {self.held_out_rows}",
            f"ROC curves. {self.held_out_rows}, by their probabilities.",
        )

    def _add_calibration(self, p: AnyArray) -> None:
        """Add the log-loss of the probabilities p, and the calibration of the largest ones."""
        n, n_classes = p.shape
        classes = self.model.classes_
        probability_of_truth = p[np.arange(n), Labels(classes).codes(self.y)]
        largest = p.max(axis=1)
        is_right = classes[p.argmax(axis=1)] == self.y
        losses = -np.log(np.maximum(probability_of_truth, _LEAST_PROBABILITY))
        # The mean loss of a single row has no standard error.
        error_of_mean = standard_error(losses) or 0.0
        self._page.heading("Are its probabilities calibrated?")
        self._page.paragraph(
            f"{self.held_out_rows}: the most probable class has a probability of"
            f" {100 * largest.mean():.1f} % on average, and {100 * is_right.mean():.1f} % are"
            f" right. The mean log-loss is {losses.mean():.3f} ±"
            f" {error_of_mean:.3f} nats (standard error); equal probabilities for"
            f" all classes have {np.log(n_classes):.3f}."
        )

        def draw() -> Any:
            """Return the calibration curve, on axes that its points fill."""
            display = CalibrationDisplay.from_predictions(
                is_right,
                largest,
                n_bins=min(_MOST_POINTS_OF_CURVE, n // _LEAST_ROWS_OF_POINT),
                strategy="quantile",
                name=self.held_out_rows,
            )
            start = min(float(display.prob_true.min()), float(display.prob_pred.min())) - 0.05
            limits = (start, 1.01)
            display.ax_.set(
                xlabel="probability of the predicted class", ylabel="share that is right"
            )
            display.ax_.set(xlim=limits, ylim=limits)
            return display

        if n >= _LEAST_ROWS_OF_CURVE:
            self._draw(
                draw,
                "Share of right predictions by their probability",
                "Points on the diagonal are well calibrated.",
            )

    def _add_survival(self, predicted: AnyArray) -> None:
        """Add survival by risk, and how well survival functions are calibrated.

        Held-out rows have a Brier score, test rows a calibration curve. Without two times at which
        survival can be compared, nothing is added.
        """
        y = self.y
        if len(usual_times(y)) < 2:
            return
        self._page.heading("Do rows of low risk live longer?")
        # Predictions ascend with the time: the first third has the highest risk.
        risks = ("high", "middle", "low")
        thirds = dict(zip(risks, np.array_split(np.argsort(predicted), 3), strict=True))
        names = {}
        for risk, rows in thirds.items():
            n_events = int(y[rows, 0].sum())
            names[risk] = f"{risk} risk: {n_events} events in {len(rows)} rows"
        self._draw(
            lambda: self._draw_risks(thirds, names),
            f"Survival by risk. {'; '.join(names.values())}",
            f"{self.held_out_rows}: Kaplan and Meier's curves of thirds by risk, and how many are"
            " at risk.",
        )

        self._page.heading("Are its survival functions calibrated?")
        functions = self.model.curves_.functions(predicted, False)
        brier_score = integrated_brier_score(y, y, functions)
        same_function = StepFunction(*kaplan_meier(y[:, 1], y[:, 0]))
        baseline = integrated_brier_score(y, y, [same_function] * len(y))
        self._page.paragraph(
            f"{self.held_out_rows}: the integrated Brier score, the mean squared error of the share"
            f" that lives on, is {brier_score:.3f}; one function for all rows, Kaplan and Meier's,"
            f" has {baseline:.3f}."
        )
        test_rows = self.training.test_rows
        if len(test_rows) >= _LEAST_ROWS_OF_CURVE:
            X = self.trained.pipeline[:-1].transform(self.training.table.iloc[test_rows])
            y_test = self.training.target.y[test_rows]
            self._draw(
                lambda: plots.SurvivalCalibrationDisplay.from_estimator(self.model, X, y_test),
                f"Predicted and observed shares that live on, of {len(test_rows)} test rows",
                f"{len(test_rows)} test rows. Points on the diagonal are well calibrated.",
            )

    def _draw_risks(self, groups: Mapping[str, Indices], names: Mapping[str, str]) -> Any:
        """Return a figure of Kaplan and Meier's curves, with the rows at risk by time.

        Parameters
        ----------
        groups : mapping of str to ndarray
            The rows of each curve.
        names : mapping of str to str
            The label of each curve.
        """
        from matplotlib.figure import Figure

        y = self.y
        last_time = y[:, 1].max()
        ax = Figure(figsize=(6.4, 4.4), layout="constrained").subplots()
        for k, (name, rows) in enumerate(groups.items()):
            times, share = kaplan_meier(y[rows, 1], y[rows, 0])
            ax.step(
                np.append(0.0, times),
                np.append(1.0, share),
                where="post",
                label=names[name],
                **line_style(k),
            )
        ax.set(xlim=(0.0, last_time), ylim=(0.0, 1.02), xlabel="time", ylabel="share that lives on")
        ax.legend(frameon=False, fontsize=9)
        open_frame(ax)

        # A line of numbers per group, at the ticks of the time; heights are in units of the axes.
        add_text = partial(ax.text, transform=ax.get_xaxis_transform(), fontsize=8, va="center")
        add_text(0.0, -0.2, "rows at risk")
        for k, (name, rows) in enumerate(groups.items()):
            height = -0.26 - 0.06 * k
            add_text(-0.04 * last_time, height, name, ha="right", color=colour(k))
            for tick in ax.get_xticks()[ax.get_xticks() <= last_time]:
                n_at_risk = str(np.sum(y[rows, 1] >= tick))
                add_text(tick, height, n_at_risk, ha="center", color=colour(k))
        return ax.figure

    # Columns, one row, convergence, advice

    def _add_columns(self) -> None:
        """Add the columns of each view that decisions depend on most.

        The more columns, kernels and support vectors there are, the fewer rows measure them.
        """
        training = self.training
        training_rows = training.training_rows
        n_columns = sum(len(view["columns"]) for view in training.views.values())
        n_support = max(len(self.model.support_), 1)
        work_of_row = max(1, n_columns * n_support * len(self.model.kernel_names_))
        least_rows = min(_LEAST_ROWS_OF_IMPORTANCE, len(training_rows))
        n_rows = int(np.clip(_WORK_OF_IMPORTANCE / work_of_row, least_rows, len(training_rows)))
        rows = training_rows[np.linspace(0, len(training_rows) - 1, n_rows).astype(int)]
        importance = feature_importance(
            self.trained.pipeline, training.table.iloc[rows], n_repeats=1, random_state=0
        )
        importance = replace(importance, feature_names=training.plan.feature_names)
        self._page.heading("Which columns count in each view", "Which columns count")
        self._page.paragraph(
            "How much the decision changes, in the root mean square, when this column is replaced"
            f" by another row's value; by {n_rows} of the rows learned from, with intervals of two"
            " standard errors over these rows. Compare columns within a view, each of which has a"
            " scale of its own: a column of a view of few changes its kernels more than a column"
            " of a view of many, whether or not it has to do with the target. Redundant columns"
            " share the importance. A view whose kernels all have weight 0 is left out."
        )
        n_bars = max(_LEAST_BARS_OF_VIEW, _BARS_OF_COLUMNS // len(importance.views))
        self._draw(
            lambda: plots.FeatureImportanceDisplay(importance).plot(most=n_bars),
            "Most important columns of each view",
            "The most important columns of each view.",
        )
        lines = []
        for view in importance.views:
            for j in importance.largest(view, _MOST_COLUMNS):
                change = f"{importance.importances[j]:.3g}"
                error = f"{importance.errors[j]:.2g}"
                lines.append([view, importance.feature_names[j], change, error])
        self._page.table(
            f"The {_MOST_COLUMNS} most important columns of each view.",
            ("view", "column", "change", "standard error"),
            lines,
            searchable=True,
            folded="As a table",
        )

    def _add_row(self) -> None:
        """Add a section on one row: the first that lacks a view or, if none does, the first."""
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
        """Add what is proven of the optimum, and a picture of the iterations."""
        model = self.model
        curves = "Objective and gap"
        text = (
            "The objective is at most the share of the gap in the summary above the least possible."
            " No other solver is needed to check it."
        )
        if self.card.is_ridge:
            curves = "Criterion"
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
                lambda: plots.ConvergenceDisplay.from_estimator(model),
                f"{curves} by iteration",
                f"{curves}, iteration by iteration.",
            )

    def _add_advice(self) -> None:
        """Add commands that predict with the model, and fits to compare it with."""
        request = self.request
        files = self.training.files
        self._page.heading("What to do next")

        # The options of `predict` that the model needs: files of views and matrices.
        joined = ""
        if files["on"]:
            views = "".join(f" --view {name}=NEW_{name}.csv" for name in files["views"])
            joined = f" --on {files['on']}{views} --id {files['on']}"
        kernels = ""
        if request.rows is None:
            kernels = "".join(f" --kernel {name}=NEW_{name}.npy" for name in files["kernels"])
        predict = (
            f"Predict new rows: `kernelmosaic predict {request.output} NEW.csv{joined}{kernels} -o"
            " predictions.csv`. Columns are found by name; `--scores` adds the decision values and"
            " the contributions of the kernels."
        )
        if joined:
            predict += " A view whose file is left out counts as missing in every row."
        if hasattr(self.model, "predict_interval"):
            predict += " `--interval 0.9` adds intervals that cover 90 % of targets."
        read = (
            f"Read the model again: `kernelmosaic inspect {request.output}`, or `kernelmosaic.load`"
            " in Python."
        )
        advice = [predict, read]

        # Other fits.
        if len(self.model.view_weights_) > 1:
            penalise = ""
            if not self.card.is_ridge:
                penalise = "; penalise an expensive one by `--cost name=2` (mkl, rmkl)"
            advice.append(
                f"Leave out a view by naming the others with `--view`{penalise}, and see whether"
                " the score holds."
            )
        if not request.test:
            advice.append("Set test rows aside for a final, unbiased score: `--test 0.25`.")
        quick = ""
        if self.task == "classification":
            quick = "`discriminant` is quick with many classes, "
        alternative = "`--norm 2` keeps all kernels, `ridge` learns weights without folds"
        if self.card.is_ridge:
            alternative = "`mkl` is a margin with few kernels and a certified gap"
        advice.append(
            "Compare methods on the same seed: `--method localized` lets weights depend on the"
            f" row, {quick}{alternative}."
        )
        self._page.bullets(advice)
