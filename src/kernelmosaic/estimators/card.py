"""The facts of a fitted model, and their table in a notebook.

Facts are pairs of a name and a value as text, for terminal, page and notebook.
"""

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
        The name of the kernel.
    weight : float
        Its weight; the mean over the classes, if every class has weights of its own.
    share : float
        Its fraction of the sum of all weights.
    by_class : list of float
        Its weight in every class; empty if all classes have the same weights.
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
        """Whether the model minimises a criterion, and has no certified gap or support vectors."""
        return hasattr(self.model, "stationarity_")

    @property
    def has_targets(self) -> bool:
        """Whether every target has weights and a ridge of its own."""
        return self.is_ridge and np.ndim(self.model.alpha_) == 1

    @property
    def has_support(self) -> bool:
        """Whether some samples may be no support vectors.

        Under a smooth loss, every sample has a coefficient.
        """
        has_smooth_loss = getattr(self.model, "loss", "") in ("cox", "rank", "squared")
        return not self.is_ridge and not has_smooth_loss

    @property
    def classes(self) -> list[Any]:
        """The classes as values of Python; empty for a model that is no classifier."""
        return list(np.asarray(getattr(self.model, "classes_", [])).tolist())

    @property
    def kernels(self) -> list[KernelShare]:
        """The kernels with their weights, in the order of the model."""
        # Shape (classes, P), or (1, P).
        weights = np.atleast_2d(np.asarray(self.model.weights_, dtype=np.float64))
        classes_have_weights = np.ndim(self.model.weights_) == 2
        means = weights.mean(axis=0)
        total = float(means.sum()) or 1.0
        shares = means / total
        kernels = []
        for m, name in enumerate(self.model.kernel_names_):
            by_class = []
            if classes_have_weights:
                by_class = weights[:, m].tolist()
            kernels.append(KernelShare(name, float(means[m]), float(shares[m]), by_class))
        return kernels

    @property
    def views(self) -> dict[str, float]:
        """The fraction of every view in the sum of all weights, the largest first.

        If every class has weights of its own, these are the means over the classes.
        """
        sums = {name: float(np.mean(weight)) for name, weight in self.model.view_weights_.items()}
        total = sum(sums.values()) or 1.0
        largest_first = sorted(sums, key=lambda name: -sums[name])
        return {name: sums[name] / total for name in largest_first}

    @property
    def choice(self) -> list[tuple[str, str]]:
        """Name and value of what a search or a ridge estimator chose, and its score."""
        model = self.model
        if self.has_targets:
            # The weights of a target were chosen by this score, which is therefore optimistic.
            score_name = f"training score by leave-one-out, mean of {len(model.alpha_)} targets"
            return [
                (score_name, f"{model.best_score_:.4f}"),
                ("alpha, median", f"{np.median(model.alpha_):.3g}"),
            ]
        if self.is_ridge:
            return [
                ("leave-one-out score", f"{model.best_score_:.4f}"),
                ("alpha", f"{model.alpha_:.3g}"),
            ]
        n_norms = len(getattr(model, "scores_by_norm_", ()))
        if n_norms < 2:
            return []
        i = int(np.searchsorted(model.Cs_, model.C_))
        return [("weights", describe_choice(model.scores_by_norm_, model.norm_, i, model.rule))]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Name and value of the objective, the bound on its error, support vectors, iterations.

        Models without these have others of their family in their place.
        """
        model = self.model
        if hasattr(model, "elbo_"):
            return [
                ("evidence lower bound", f"{model.elbo_:.6g}"),
                ("iterations", f"{model.n_iter_}"),
            ]
        if hasattr(model, "similarity_"):
            return self._facts_of_embedding()
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
        return self._facts_of_machine()

    def _facts_of_embedding(self) -> list[tuple[str, str]]:
        """Return the facts of components or clusters without labels."""
        model = self.model
        largest = ", ".join(f"{value:.4g}" for value in model.eigenvalues_[:5])
        facts = [("components", f"{len(model.eigenvalues_)}, largest eigenvalues {largest}")]
        if hasattr(model, "labels_"):
            facts.append(("clusters", f"{model.n_clusters_} by {model.embedding}"))
        return facts

    def _facts_of_machine(self) -> list[tuple[str, str]]:
        """Return the facts of a kernel machine, whose duality gap is certified."""
        model = self.model
        facts = []
        if hasattr(model, "gate"):
            # The problem is not convex: only the machine for the learned gates has a gap.
            facts.append(("gap of the machine under the gates", f"{model.duality_gap_:.2g}"))
        else:
            relation = "within" if model.duality_gap_ <= model.tol else "above"
            gap = f"{model.duality_gap_:.2g}, {relation} tol={model.tol:g}"
            facts.append(("certified gap", gap))
        facts.append(("objective", f"{model.objective_:.6g}"))
        if self.has_support:
            percentage = f"{100 * model.support_fraction_:.1f} % of the distinct samples"
            facts.append(("support vectors", f"{len(model.support_)} ({percentage})"))
        facts.append(("iterations", f"{model.n_iter_} (machine solves: {model.n_solves_})"))
        return facts


# In a notebook ------------------------------------------------------------------------------------

#: Rows of the table of weights: so many kernels of the largest weights. Chosen by hand.
_MOST_KERNELS = 30
#: Columns of the table of weights: more classes are shown by their mean. Chosen by hand.
_MOST_CLASSES = 12

# One blue that is seen on white and on black; all other colours are those of the page. The rules
# undo those of notebooks for tables of data frames, since these tables are part of scikit-learn's
# box, which is light in dark notebooks, too.
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
    """Return the facts and weights of an estimator as HTML, without scripts.

    The text is empty for an estimator that is not fitted.
    """
    if not hasattr(model, "history_") and not hasattr(model, "embedding_"):
        return ""
    card = ModelCard(model)
    rows = ""
    for name, value in [*card.choice, *card.facts]:
        mark = ' class="km-warning"' if ", above tol=" in value else ""
        rows += f'<tr><th scope="row">{escape(name)}</th><td{mark}>{escape(value)}</td></tr>'
    return f'<div class="km-summary">{_STYLE}<table>{rows}</table>{_table_of_weights(model)}</div>'


def _table_of_weights(model: Estimator) -> str:
    """Return the table of weights as HTML: one row per kernel, one column per class."""
    weights = np.asarray(model.weights_, dtype=np.float64)
    names = model.kernel_names_
    title = "mean gate" if hasattr(model, "gate") else "weight"
    output, outputs = "class", "classes"
    if ModelCard(model).has_targets:
        output, outputs = "target", "targets"

    # 1. The mean over the classes, if these are too many for columns.
    if weights.ndim == 2 and len(weights) > _MOST_CLASSES:
        title = f"{title}, mean over {len(weights)} {outputs}"
        weights = weights.mean(axis=0)
    classes_have_weights = weights.ndim == 2

    # 2. The kernels of the largest weights, in the order of the model.
    sizes = np.abs(weights)
    if classes_have_weights:
        sizes = sizes.max(axis=0)
    largest = np.sort(np.argsort(-sizes, kind="stable")[:_MOST_KERNELS])
    scale = float(sizes.max(initial=0.0)) or 1.0

    # 3. The table: a bar for a single weight, a shaded cell for each of several.
    if classes_have_weights:
        labels = [escape(str(label)) for label in getattr(model, "classes_", range(len(weights)))]
        columns = "".join(f'<th scope="col" class="km-number">{label}</th>' for label in labels)
        head = f'<tr><th scope="col">kernel, {title} by {output}</th>{columns}</tr>'
        rows = [_cell_row(str(names[m]), weights[:, m], scale) for m in largest]
    else:
        head = f'<tr><th scope="col">kernel</th><th scope="col" colspan="2">{title}</th></tr>'
        rows = [_bar_row(str(names[m]), weights[m], scale) for m in largest]
    foot = ""
    n_left_out = len(names) - len(largest)
    if n_left_out > 0:
        foot = f"<p>and {n_left_out} more of smaller weight</p>"
    return f"<table>{head}{''.join(rows)}</table>{foot}"


def _bar_row(name: str, weight: float, scale: float) -> str:
    """Return a row of a kernel with one weight, whose bar is full at the weight `scale`."""
    percentage = 100 * min(abs(weight) / scale, 1.0)
    return (
        f'<tr><th scope="row">{escape(name)}</th><td class="km-number">{weight:.3g}</td>'
        f'<td class="km-track"><div class="km-bar" style="width:{percentage:.1f}%"></div></td></tr>'
    )


def _cell_row(name: str, weights: Array, scale: float) -> str:
    """Return a row of a kernel with one cell per class, darkest at the weight `scale`."""
    # At most 60 % opaque, so that the text stays readable.
    shades = 0.6 * np.minimum(np.abs(weights) / scale, 1.0)
    cells = (
        f'<td class="km-number" style="background:rgba(59,139,196,{shade:.2f})">{weight:.3g}</td>'
        for weight, shade in zip(weights, shades, strict=True)
    )
    return f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>'
