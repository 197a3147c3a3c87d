"""The facts of a fitted model as names and values, for terminal, page and notebook; and how a
notebook shows them."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from kernelmosaic._typing import Array, Estimator
from kernelmosaic.engine.choice import describe_choice


@dataclass(frozen=True)
class KernelShare:
    """One kernel of a fitted model.

    Parameters
    ----------
    name : str
    weight : float
        The mean over the classes where each has its own.
    share : float
        Of all weights.
    by_class : list of float
        The classes' own weights, if they have.
    """

    name: str
    weight: float
    share: float
    by_class: list[float]


@dataclass(frozen=True)
class ModelCard:
    """The facts of a fitted model.

    Parameters
    ----------
    model : estimator
        Of this package, fitted.
    """

    model: Estimator

    @property
    def is_ridge(self) -> bool:
        """Whether a criterion is stationary, in place of a certified gap and support vectors."""
        return hasattr(self.model, "stationarity_")

    @property
    def has_targets(self) -> bool:
        """Whether every target has weights and a ridge of its own."""
        return self.is_ridge and np.ndim(self.model.alpha_) == 1

    @property
    def has_support(self) -> bool:
        """Whether some samples may be no support vectors; a smooth loss gives all a coefficient."""
        return not self.is_ridge and getattr(self.model, "loss", "") not in (
            "cox",
            "rank",
            "squared",
        )

    @property
    def classes(self) -> list[Any]:
        """The classes as Python's own values; empty of what is no classifier."""
        return list(np.asarray(getattr(self.model, "classes_", [])).tolist())

    @property
    def kernels(self) -> list[KernelShare]:
        """The kernels with their weights, in the model's order."""
        weights = np.atleast_2d(np.asarray(self.model.weights_, dtype=np.float64))
        means, several = weights.mean(axis=0), np.ndim(self.model.weights_) == 2
        shares = means / (float(means.sum()) or 1.0)
        return [
            KernelShare(name, float(mean), float(share), own.tolist() if several else [])
            for name, mean, share, own in zip(
                self.model.kernel_names_, means, shares, weights.T, strict=True
            )
        ]

    @property
    def views(self) -> dict[str, float]:
        """The share of every view in the sum of all weights, the largest first; of classes, their
        mean."""
        sums = {name: float(np.mean(weight)) for name, weight in self.model.view_weights_.items()}
        total = sum(sums.values()) or 1.0
        return {name: one / total for name, one in sorted(sums.items(), key=lambda item: -item[1])}

    @property
    def choice(self) -> list[tuple[str, str]]:
        """Name and value of what a search or a ridge estimator chose, and its score."""
        model = self.model
        if self.has_targets:
            # The weights of a target were chosen by the score.
            what = f"training score by leave-one-out, mean of {len(model.alpha_)} targets"
            return [
                (what, f"{model.best_score_:.4f}"),
                ("alpha, median", f"{np.median(model.alpha_):.3g}"),
            ]
        if self.is_ridge:
            return [
                ("leave-one-out score", f"{model.best_score_:.4f}"),
                ("alpha", f"{model.alpha_:.3g}"),
            ]
        if len(getattr(model, "scores_by_norm_", ())) < 2:
            return []
        at = int(np.searchsorted(model.Cs_, model.C_))
        return [("weights", describe_choice(model.scores_by_norm_, model.norm_, at, model.rule))]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Name and value of the objective, of what is proven of it, of support vectors and
        iterations."""
        model = self.model
        if hasattr(model, "elbo_"):
            return [
                ("evidence lower bound", f"{model.elbo_:.6g}"),
                ("iterations", f"{model.n_iter_}"),
            ]
        if hasattr(model, "similarity_"):
            largest = ", ".join(f"{value:.4g}" for value in model.eigenvalues_[:5])
            found = [("components", f"{len(model.eigenvalues_)}, largest eigenvalues {largest}")]
            return found + (
                [("clusters", f"{model.n_clusters_} by {model.embedding}")]
                if hasattr(model, "labels_")
                else []
            )
        if self.has_targets:
            return [
                ("criterion, in nats, mean", f"{np.mean(model.criterion_):.6g}"),
                ("candidates", f"{model.n_iter_}"),
            ]
        if self.is_ridge:
            return [
                ("criterion, in nats", f"{model.criterion_:.6g}"),
                (
                    "largest slope per sample",
                    f"{model.stationarity_:.2g} after {model.n_iter_} evaluations",
                ),
            ]
        gap = ("gap of the machine under the gates", f"{model.duality_gap_:.2g}")
        if not hasattr(model, "gate"):
            met = "within" if model.duality_gap_ <= model.tol else "above"
            gap = ("certified gap", f"{model.duality_gap_:.2g}, {met} tol={model.tol:g}")
        support = (
            f"{len(model.support_)} ({100 * model.support_fraction_:.1f} % of the distinct samples)"
        )
        iterations = f"{model.n_iter_} (machine solves: {model.n_solves_})"
        found = [gap, ("objective", f"{model.objective_:.6g}"), ("iterations", iterations)]
        return [
            *found[:2],
            *([("support vectors", support)] if self.has_support else []),
            *found[2:],
        ]


# In a notebook ------------------------------------------------------------------------------------

#: Kernels and classes shown at most; of more, the heaviest kernels, and the mean over the classes.
_MOST_KERNELS = 30
_MOST_CLASSES = 12

# One blue that is seen on white and on black; everything else is as where it stands. Notebooks
# colour and align tables for data frames: those here are part of scikit-learn's box, which is light
# in dark notebooks, too.
_STYLE = """<style>
.km-summary{font-size:0.9em;margin:0.6em;color:inherit;background:transparent}
.km-summary :is(table,tr,th,td){border:none!important;background:transparent;color:inherit!important}
.km-summary tr{background:transparent!important}
.km-summary table{border-collapse:collapse;margin:0.4em 0!important;font-size:inherit!important}
.km-summary :is(th,td){padding:0.1em 0.6em;text-align:left!important}
.km-summary th[scope=row]{font-weight:normal}
.km-summary .km-number{text-align:right!important;font-variant-numeric:tabular-nums}
.km-summary .km-track{min-width:9em}
.km-summary .km-bar{height:0.8em;background:#3b8bc4}
.km-summary .km-warning{font-weight:bold;text-decoration:underline}
</style>"""


def summary_html(model: Estimator) -> str:
    """Return facts and weights of a fitted estimator as HTML without scripts; nothing for an
    unfitted one."""
    if not hasattr(model, "history_") and not hasattr(model, "embedding_"):
        return ""
    card = ModelCard(model)
    rows = ""
    for name, value in [*card.choice, *card.facts]:
        mark = ' class="km-warning"' if ", above tol=" in value else ""
        rows += f'<tr><th scope="row">{escape(name)}</th><td{mark}>{escape(value)}</td></tr>'
    return f'<div class="km-summary">{_STYLE}<table>{rows}</table>{_weights(model)}</div>'


def _weights(model: Estimator) -> str:
    weights = np.asarray(model.weights_, dtype=np.float64)
    names = model.kernel_names_
    title = "mean gate" if hasattr(model, "gate") else "weight"
    of_targets = ModelCard(model).has_targets
    if weights.ndim == 2 and len(weights) > _MOST_CLASSES:
        title = f"{title}, mean over {len(weights)} {'targets' if of_targets else 'classes'}"
        weights = weights.mean(axis=0)
    size = np.abs(weights) if weights.ndim == 1 else np.abs(weights).max(axis=0)
    shown = np.sort(np.argsort(-size, kind="stable")[:_MOST_KERNELS])
    scale = float(size.max(initial=0.0)) or 1.0
    if weights.ndim == 1:
        head = f'<tr><th scope="col">kernel</th><th scope="col" colspan="2">{title}</th></tr>'
        rows = [_bar_row(str(names[m]), weights[m], scale) for m in shown]
    else:
        labels = [escape(str(label)) for label in getattr(model, "classes_", range(len(weights)))]
        columns = "".join(f'<th scope="col" class="km-number">{label}</th>' for label in labels)
        output = "target" if of_targets else "class"
        head = f'<tr><th scope="col">kernel, {title} by {output}</th>{columns}</tr>'
        rows = [_cell_row(str(names[m]), weights[:, m], scale) for m in shown]
    rest = len(names) - len(shown)
    foot = f"<p>and {rest} more of smaller weight</p>" if rest else ""
    return f"<table>{head}{''.join(rows)}</table>{foot}"


def _bar_row(name: str, weight: float, scale: float) -> str:
    share = 100 * min(abs(weight) / scale, 1.0)
    return (
        f'<tr><th scope="row">{escape(name)}</th><td class="km-number">{weight:.3g}</td>'
        f'<td class="km-track"><div class="km-bar" style="width:{share:.1f}%"></div></td></tr>'
    )


def _cell_row(name: str, weights: Array, scale: float) -> str:
    # Half transparent at most: the page's own text stays readable on it.
    shades = 0.6 * np.minimum(np.abs(weights) / scale, 1.0)
    cells = (
        f'<td class="km-number" style="background:rgba(59,139,196,{shade:.2f})">{weight:.3g}</td>'
        for weight, shade in zip(weights, shades, strict=True)
    )
    return f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>'
