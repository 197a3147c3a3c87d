"""A training in words and figures, as the terminal and the report show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kernelmosaic.cli._methods import CLASSIFICATION, ONE_CLASS, Method, Wishes, price_name
from kernelmosaic.cli._model import KernelShare, kernel_shares

SCORES = {"classification": "accuracy", "regression": "R²", "one-class": "share accepted"}
_BASELINES = {"classification": "always the commonest class", "regression": "always the mean", "one-class": "1 − nu"}


@dataclass(frozen=True)
class Facts:
    """What is worth saying of a training.

    Parameters
    ----------
    task, method : str
    guessed_rows, n_columns : int
    classes : list
    price : float
    prices : list of float
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
    prices: list[float]
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
    def of(cls, trained: Any, wishes: Wishes, material: Any, y: Any, test: float | None) -> Self:
        """Gather them."""
        model, best = trained.pipeline.named_steps["model"], trained.best
        score = None if best is None else best.mean
        if trained.search is not None:
            score = float(trained.search.best_score_)
        is_regression = best is not None and wishes.task == "regression"
        return cls(
            task=wishes.task,
            method=wishes.method,
            n_rows=len(y),
            n_columns=len([c for c in material.plan.columns if c != "(row number)"]),
            classes=[getattr(c, "item", lambda c=c: c)() for c in getattr(model, "classes_", [])],
            price=trained.price,
            prices=[point.price for point in trained.curve],
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

    def score_entry(self) -> dict[str, Any] | None:
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

    def test_entry(self) -> dict[str, Any] | None:
        """Return the score on held-out rows as it is kept in the model."""
        return None if self.test is None else {"name": SCORES[self.task], "value": self.test}


def figure(task: str, value: float) -> str:
    """Write a score: shares in per cent."""
    return f"{round(value, 3) + 0.0:.3f}" if task == "regression" else f"{100 * value:.1f} %"


def title(facts: Facts) -> str:
    """Return the headline of the terminal's table."""
    return f"{facts.method}, {facts.task}"


def lines(facts: Facts, method: Method) -> list[tuple[str, str]]:
    """Return name and value of everything worth a line."""
    found = [("learned from", f"{facts.n_rows} rows, {facts.n_columns} columns")]
    if facts.classes:
        shown = ", ".join(map(str, facts.classes[:10])) + (" …" if len(facts.classes) > 10 else "")
        found.append(("classes", f"{len(facts.classes)}: {shown}"))
    how = "given"
    if len(facts.prices) > 1:
        how = f"the best of {', '.join(f'{price:g}' for price in facts.prices)}"
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
    found.append(("seconds to fit", f"{facts.seconds:.2f}"))
    return found


def shares(trained: Any) -> list[KernelShare]:
    """Return the kernels of the fitted model with their weights."""
    return kernel_shares(trained.pipeline.named_steps["model"])


def cautions(facts: Facts, trained: Any) -> list[str]:
    """Return what the user should not overlook, a line each."""
    found = []
    if len(facts.prices) > 2 and facts.price in (facts.prices[0], facts.prices[-1]):
        found.append(
            f"the best price, {facts.price:g}, is at the edge of those tried ({min(facts.prices):g} to "
            f"{max(facts.prices):g}): one beyond may be better; try it with --C."
        )
    if facts.n_loose:
        found.append(f"{facts.n_loose} of {len(facts.prices) * facts.folds} cross-validation fits stopped early.")
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
