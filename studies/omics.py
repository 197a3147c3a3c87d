"""Omics: Alzheimer's disease and subtypes of breast cancer from several views of each patient.

    python studies/omics.py --data FOLDER [--output FOLDER] [--jobs 2] [--groups folds ridge]
    python studies/omics.py --page

FOLDER, or the environment variable KERNELMOSAIC_DATA, holds rosmap.npz and breast_tcga.npz. Every
split that is done is kept in the folder of the run: a stopped run goes on where it was. The group
`ridge` has the methods of least squares, `folds` all others. Writes docs/studies/omics*.csv, the
picture and its page docs/studies/omics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import common
import numpy as np
from common import Row, Store, cpu_time, data_file, different, markdown, p_text, read_table
from joblib import Parallel, delayed, parallel_config
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelmosaic import MKLClassifierCV, MKLRidgeClassifierCV
from kernelmosaic.kernels import Gaussian, Laplacian, Linear, family
from kernelmosaic.stats import t_test_resampled

RESAMPLINGS = 20
NORMS = {"ℓ1": 1, "ℓ2": 2, "uniform": "uniform"}
OURS = "MKL, chosen by folds"
PARTIAL = "MKL, and protein where known"
CS = np.geomspace(0.01, 100, 7)
#: Least squares on nine kernels a view: the criterion that weights and ridge minimise, or the ridge
#: of equal weights.
RIDGES: dict[str, Row] = {
    "ridge, leave-one-out": {"criterion": "loo"},
    "ridge, evidence": {"criterion": "evidence"},
    "ridge, equal weights": {"criterion": "loo", "weights": "uniform"},
}
LOO, EVIDENCE, EQUAL = RIDGES
SAME = "SVM, same kernels, equal weights"
PARTIAL_RIDGE = "ridge, leave-one-out, and protein where known"
KINDS = ("linear", "Gaussian", "Laplacian")
FIGURES = ("accuracy", "F1", "AUC")
#: Methods of other packages.
RIVALS = (
    "best view, SVC",
    "all columns, SVC",
    "stacked SVCs",
    "random forest",
    "gradient boosting",
)


@dataclass(frozen=True)
class Problem:
    """Patients, their views, and the published split, if there is one."""

    title: str
    file: str
    views: tuple[str, ...]
    #: Whether only patients count for whom every view was measured.
    complete: bool = False
    #: Views that some patients lack.
    partial: tuple[str, ...] = ()


PROBLEMS = {
    "rosmap": Problem(
        "Alzheimer's disease (ROSMAP)", "rosmap.npz", ("mrna", "methylation", "mirna")
    ),
    "breast": Problem(
        "Breast cancer, all patients", "breast_tcga.npz", ("mrna", "mirna"), partial=("protein",)
    ),
    "breast3": Problem(
        "Breast cancer, with protein",
        "breast_tcga.npz",
        ("mrna", "mirna", "protein"),
        complete=True,
    ),
}


@dataclass(frozen=True)
class Views:
    """The views beside one another, and which columns are whose; those that every patient has come
    first."""

    X: np.ndarray
    y: np.ndarray
    columns: dict[str, slice]
    partial: dict[str, slice]
    splits: dict[str, tuple[np.ndarray, np.ndarray]]


def read_views(problem: Problem, folder: str | None) -> Views:
    with np.load(data_file(folder, problem.file)) as file:
        parts = {view: file[view].astype(np.float64) for view in (*problem.views, *problem.partial)}
        y, train, test = file["y"], file["train"], file["test"]
    X = np.hstack(list(parts.values()))
    ends = np.cumsum([0, *(part.shape[1] for part in parts.values())])
    columns = {
        view: slice(int(a), int(b)) for view, a, b in zip(parts, ends, ends[1:], strict=False)
    }
    splits = {"published": (train, test)}
    if problem.complete:
        known = ~np.isnan(X).any(axis=1)
        X, y, splits = X[known], y[known], {}
    share = len(test) / (len(train) + len(test))
    resampled = StratifiedShuffleSplit(RESAMPLINGS, test_size=share, random_state=0).split(X, y)
    splits |= {f"resampling {number}": split for number, split in enumerate(resampled, start=1)}
    partial = {view: columns.pop(view) for view in problem.partial}
    return Views(X, y, columns, partial, splits)


# Methods ------------------------------------------------------------------------------------------


def kernels_of(columns: dict[str, slice]) -> list[Any]:
    """Return two kernels per view: a linear one, and a Gaussian as wide as the median distance."""
    kinds = {"linear": Linear(), "Gaussian": Gaussian("median")}
    return [
        (f"{view}, {kind}", kernel, place)
        for view, place in columns.items()
        for kind, kernel in kinds.items()
    ]


def tuned_svc(gammas: Sequence[Any] = (1e-3, "scale")) -> Any:
    grid = {"svc__C": [0.1, 1, 10, 100], "svc__gamma": gammas}
    return GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=5)


def stacked(columns: dict[str, slice]) -> Any:
    """Return a logistic regression on the held-out outputs of one machine per view."""
    each = [
        (
            view,
            make_pipeline(
                ColumnTransformer([("view", "passthrough", place)]), StandardScaler(), SVC(C=1.0)
            ),
        )
        for view, place in columns.items()
    ]
    return StackingClassifier(each, LogisticRegression(), cv=5, stack_method="decision_function")


def learners(columns: dict[str, slice]) -> dict[str, Any]:
    kernels = kernels_of(columns)
    return {
        name: MKLClassifierCV(kernels, Cs=CS, norms=(norm,), cv=5) for name, norm in NORMS.items()
    }


def others(columns: dict[str, slice]) -> dict[str, Any]:
    return {
        "all columns, SVC": tuned_svc(),
        "stacked SVCs": stacked(columns),
        "random forest": RandomForestClassifier(200, random_state=0),
        "gradient boosting": HistGradientBoostingClassifier(max_iter=50, random_state=0),
    }


def ridge_kernels_of(columns: dict[str, slice]) -> list[Any]:
    """Return nine kernels per view: linear, Gaussians and Laplacians of ½, 1, 2 and 4 times the
    median distance."""
    kinds: dict[str, list[Any]] = {"linear": [Linear()]}
    kinds |= {
        type(one).__name__: family(one, factor=[0.5, 1, 2, 4]) for one in (Gaussian(), Laplacian())
    }
    return [
        (f"{view}, {kind} {number}", kernel, place)
        for view, place in columns.items()
        for kind, kernels in kinds.items()
        for number, kernel in enumerate(kernels, start=1)
    ]


def run_ridges(unit: str, views: Views, train: np.ndarray, test: np.ndarray) -> Row:
    """Return the figures of least squares on one split, the weights by view and kind of kernel, and
    CPU seconds."""
    known = max(place.stop for place in views.columns.values())
    X, y = views.X[:, :known], views.y
    kernels = ridge_kernels_of(views.columns)
    models: dict[str, Any] = {
        name: MKLRidgeClassifierCV(kernels, **given) for name, given in RIDGES.items()
    }
    models[SAME] = MKLClassifierCV(kernels, Cs=CS, norms=("uniform",), cv=5)
    if views.partial:
        models[PARTIAL_RIDGE] = MKLRidgeClassifierCV(
            ridge_kernels_of(views.columns | views.partial)
        )
    seconds: Row = {}
    figures: Row = {}
    weights: Row = {}
    for name, model in models.items():
        samples = views.X if name == PARTIAL_RIDGE else X
        with cpu_time(seconds, name):
            model.fit(samples[train], y[train])
        figures[name] = scored(model, samples[test], y[test])
        if name in (LOO, EVIDENCE):
            kinds = [one.rpartition(" ")[0] for one, *_ in kernels]
            weights[name] = dict.fromkeys(kinds, 0.0)
            for kind, weight in zip(kinds, model.weights_, strict=True):
                weights[name][kind] += float(weight)
    found = {
        "figures": figures,
        "weights": weights,
        "seconds": seconds,
        "sizes": [len(train), len(test)],
    }
    return {"unit": unit, **found}


def run_split(unit: str, views: Views, train: np.ndarray, test: np.ndarray) -> Row:
    """Return the figures of the methods whose settings folds choose on one split, the weights, and
    CPU seconds."""
    known = max(place.stop for place in views.columns.values())
    whole, X, y = views.X, views.X[:, :known], views.y
    seconds: Row = {}
    figures: Row = {}
    weights: Row = {}

    def best(prefix: str, methods: dict[str, Any], cut: Callable[[str], np.ndarray]) -> list[float]:
        """Fit some methods, keep the figures of each, and return those of the one that folds score
        highest."""
        top = -np.inf
        for name, model in methods.items():
            with cpu_time(seconds, prefix + name):
                model.fit(cut(name)[train], y[train])
            figures[prefix + name] = scored(model, cut(name)[test], y[test])
            if prefix == "MKL, ":
                means = np.atleast_2d(model.weights_).mean(axis=0).tolist()
                weights[name] = dict(
                    zip((kernel for kernel, *_ in kernels_of(views.columns)), means, strict=True)
                )
            if model.best_score_ > top:
                top, found = model.best_score_, figures[prefix + name]
        return found

    figures[OURS] = best("MKL, ", learners(views.columns), lambda name: X)
    if views.partial:
        # A view that a patient lacks is NaN in all its columns, for training and test patients
        # alike.
        figures[PARTIAL] = best(
            f"{PARTIAL}, ", learners(views.columns | views.partial), lambda name: whole
        )
    each = {view: tuned_svc() for view in views.columns}
    figures["best view, SVC"] = best("only ", each, lambda view: X[:, views.columns[view]])
    for name, model in others(views.columns).items():
        with cpu_time(seconds, name):
            model.fit(X[train], y[train])
        figures[name] = scored(model, X[test], y[test])
    found = {
        "figures": figures,
        "weights": weights,
        "seconds": seconds,
        "sizes": [len(train), len(test)],
    }
    return {"unit": unit, **found}


def scored(model: Any, X: np.ndarray, y: np.ndarray) -> list[float]:
    """Return accuracy, F1 (of the disease, or the mean over the classes) and the area under the ROC
    curve."""
    predicted, two = model.predict(X), len(np.unique(y)) == 2
    if hasattr(model, "decision_function"):
        outputs = model.decision_function(X)
    else:
        outputs = model.predict_proba(X)[:, 1] if two else model.predict_proba(X)
    if two:
        area = roc_auc_score(y, outputs)
    else:
        area = np.mean([roc_auc_score(y == label, outputs[:, label]) for label in np.unique(y)])
    return [
        float(accuracy_score(y, predicted)),
        float(f1_score(y, predicted, average="binary" if two else "macro")),
        float(area),
    ]


# All splits ---------------------------------------------------------------------------------------


def run(options: Any) -> None:
    """Run the splits that are missing, and write tables, picture and page once all are there."""
    store = Store(options.output, "omics")
    views = {name: read_views(problem, options.data) for name, problem in PROBLEMS.items()}
    units = {
        f"{name}: {split}{mark}": (work, name, split)
        for mark, work in (MARKS[group] for group in options.groups)
        for name in PROBLEMS
        for split in views[name].splits
    }
    wanted = [
        unit for unit in store.missing(units) if not options.only or units[unit][1] in options.only
    ]

    def task(unit: str) -> Any:
        work, name, split = units[unit]
        return delayed(work)(unit, views[name], *views[name].splits[split])

    with parallel_config("loky", n_jobs=options.jobs, inner_max_num_threads=1):
        found = Parallel(return_as="generator_unordered", pre_dispatch=options.jobs)(
            map(task, wanted)
        )
        for done, one in enumerate(found, start=1):
            store.add(one["unit"], one)
            shown = ", ".join(
                f"{name} {one['figures'][name][0]:.3f}"
                for name in METHODS
                if name in one["figures"]
            )
            print(f"{done} of {len(wanted)}, {one['unit']}: accuracy {shown}", flush=True)
    if not store.missing(units):
        write_tables(
            store, {unit: (name, split) for unit, (_, name, split) in units.items()}, options.groups
        )
        write_page()


#: What follows the name of a split in that of a unit, and what the unit runs.
MARKS = {"folds": ("", run_split), "ridge": (", ridge", run_ridges)}


# Tables, picture and page -------------------------------------------------------------------------

NORMS_NAMED = tuple(f"MKL, {name}" for name in NORMS)
METHODS = (
    *RIDGES,
    PARTIAL_RIDGE,
    SAME,
    OURS,
    PARTIAL,
    *NORMS_NAMED,
    "best view, SVC",
    "all columns, SVC",
    "stacked SVCs",
    "random forest",
    "gradient boosting",
)
#: Wang et al. (2021), Nature Communications 12:3445: means of five runs on the published split.
MOGONET = (0.815, 0.821, 0.874)
PICTURE = "studies_omics_weights.png"


def write_tables(store: Store, units: dict[str, tuple[str, str]], groups: Sequence[str]) -> None:
    """Write what the page is made from: figures and weights of every split, CPU seconds, the
    machine."""
    figures, weights = [], []
    seconds: dict[tuple[str, str], list[float]] = {}
    for unit, (problem, split) in units.items():
        found = store.units[unit]
        for method, values in found["figures"].items():
            line = {
                "problem": problem,
                "split": split,
                "train": found["sizes"][0],
                "test": found["sizes"][1],
            }
            line["method"] = method
            figures.append(
                line | {name: f"{value:.4f}" for name, value in zip(FIGURES, values, strict=True)}
            )
        for name, own in found["weights"].items():
            if name == "uniform":
                continue
            line = {"problem": problem, "split": split, "norm": name}
            total = sum(own.values())
            weights += [
                line | {"kernel": kernel, "share": f"{weight / total:.4f}"}
                for kernel, weight in own.items()
            ]
        for method, spent in found["seconds"].items():
            seconds.setdefault((problem, method), []).append(spent)
    times = [
        {"problem": a, "method": b, "cpu_seconds": f"{np.mean(spent):.2f}"}
        for (a, b), spent in seconds.items()
    ]
    common.update_table("omics", figures, ("problem", "split", "method"))
    common.update_table("omics_weights", weights, ("problem", "split", "norm", "kernel"))
    common.update_table("omics_times", times, ("problem", "method"))
    machines = [{"group": group, "machine": common.machine()} for group in groups]
    common.update_table("omics_machine", machines, ("group",))


def draw(rows: list[Row]) -> None:
    """Draw the share of every kernel over the resamplings: the median, and where nine of ten
    are."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    known = {(row["problem"], row["norm"], row["kernel"]) for row in rows}
    labels = {"ℓ1": "norm 1", "ℓ2": "norm 2", LOO: LOO, EVIDENCE: EVIDENCE}
    for ax, problem in zip(figure.subplots(1, len(problems)), problems, strict=True):
        kernels = kinds_of(problem)
        for number, norm in enumerate(labels):
            places = [
                place for place, kernel in enumerate(kernels) if (problem, norm, kernel) in known
            ]
            found = [interval(rows, problem, norm, kernels[place]) for place in places]
            low, middle, high = 100 * np.array(found).reshape(-1, 3).T
            ax.errorbar(
                middle,
                np.array(places) + 0.18 * (number - 1.5),
                xerr=[middle - low, high - middle],
                fmt="o",
                ms=3,
                capsize=2,
                label=labels[norm],
            )
        ax.set_yticks(range(len(kernels)), kernels, fontsize=8)
        ax.invert_yaxis()
        ax.set_xlim(-3, 103)
        ax.set_xlabel("share of the weights, percent", fontsize=8)
        ax.set_title(PROBLEMS[problem].title, fontsize=9)
    ax.legend(fontsize=8)
    figure.savefig(common.IMAGES / PICTURE, dpi=110, metadata={"Software": None})


def interval(rows: list[Row], problem: str, norm: str, kernel: str) -> tuple[float, float, float]:
    """Return the second lowest share over the resamplings, the median and the second highest: most
    are between."""
    wanted = (problem, norm, kernel)
    shares = [row["share"] for row in rows if (row["problem"], row["norm"], row["kernel"]) == wanted
              and row["split"] != "published"]  # fmt: skip
    shares = np.sort(shares)
    return float(shares[1]), float(np.median(shares)), float(shares[-2])


def kinds_of(problem: str) -> list[str]:
    return [f"{view}, {kind}" for view in PROBLEMS[problem].views for kind in KINDS]


class Figures:
    """The committed figures of one problem."""

    def __init__(self, problem: str) -> None:
        self.rows = [row for row in read_table("omics") if row["problem"] == problem]
        first = next(row for row in self.rows if row["split"] != "published")
        self.sizes = {"n_train": int(first["train"]), "n_test": int(first["test"])}
        there = {row["method"] for row in self.rows}
        self.methods = [method for method in METHODS if method in there]

    def each(self, method: str, figure: str = "accuracy") -> np.ndarray:
        """Return a figure over the resamplings."""
        own = (row for row in self.rows if row["method"] == method and row["split"] != "published")
        return np.array([row[figure] for row in own])

    def mean(self, method: str, figure: str = "accuracy") -> str:
        return f"{self.each(method, figure).mean():.3f}"

    def published(self, method: str, figure: str = "accuracy") -> str:
        """Return a figure of the published split."""
        own = (row for row in self.rows if row["method"] == method and row["split"] == "published")
        return f"{next(own)[figure]:.3f}"

    def p(self, method: str, figure: str = "accuracy") -> float:
        """Return the p-value of the corrected resampled t-test against weights learned by
        leave-one-out."""
        return float(
            t_test_resampled(
                self.each(LOO, figure), self.each(method, figure), **self.sizes
            ).p_value
        )

    def best_rival(self) -> str:
        return max(RIVALS, key=lambda method: self.each(method).mean())


def page() -> str:
    """Return the study's page, made from the committed tables alone."""
    rosmap, *breast = (Figures(problem) for problem in ("rosmap", "breast", "breast3"))
    lines = []
    for method in (LOO, EVIDENCE, EQUAL, SAME, OURS, "MKL, ℓ1", "MKL, uniform", *RIVALS):
        cells = []
        for figure in ("accuracy", "AUC"):
            p = "" if method == LOO else p_text(rosmap.p(method, figure))
            cells += [
                f"{rosmap.mean(method, figure)} ± {rosmap.each(method, figure).std(ddof=1):.3f}",
                p,
            ]
        lines.append([LABELS.get(method, method), *cells, rosmap.published(method)])
    lines.append(["MOGONET, as published", "", "", "", "", f"{MOGONET[0]:.3f}"])
    shown = [LOO, EQUAL, OURS, *RIVALS]
    rival = rosmap.best_rival()
    named = {
        "loo": LOO,
        "equal": EQUAL,
        "same": SAME,
        "ours": OURS,
        "forest": "random forest",
        "view": "best view, SVC",
    }
    seconds = {
        row["method"]: row["cpu_seconds"]
        for row in read_table("omics_times")
        if row["problem"] == "rosmap"
    }
    return TEXT.format(
        table=markdown(
            ["method", "accuracy", "*p*", "AUC", "*p*", "accuracy, published split"], lines
        ),
        breast=markdown(
            ["method", "all patients", "with protein"],
            [[LABELS.get(one, one), *(of.mean(one) for of in breast)] for one in shown],
        ),
        **{name: rosmap.mean(method) for name, method in named.items()},
        **{f"{name}_auc": rosmap.mean(method, "AUC") for name, method in named.items()},
        **{
            f"{name}_p": p_text(rosmap.p(method)) for name, method in named.items() if name != "loo"
        },
        **{
            f"{name}_p_auc": p_text(rosmap.p(method, "AUC"))
            for name, method in named.items()
            if name != "loo"
        },
        rival=LABELS.get(rival, rival),
        rival_mean=rosmap.mean(rival),
        rival_verdict=different(rosmap.p(rival)),
        rival_p=p_text(rosmap.p(rival)),
        forest_published=rosmap.published("random forest"),
        loo_published=rosmap.published(LOO),
        mogonet=MOGONET[0],
        spread=f"{rosmap.each(LOO).std(ddof=1):.3f}",
        partial=breast[0].mean(PARTIAL_RIDGE),
        without=breast[0].mean(LOO),
        resamplings=RESAMPLINGS,
        weak=f"{0.05 / (len(rosmap.methods) - 1):.3f}",
        sizes=[of.sizes for of in (rosmap, *breast)],
        seconds=f"{seconds[LOO]:.1f}",
        folds_seconds=f"{seconds['MKL, ℓ1']:.1f}",
        picture=PICTURE,
        machines=common.machines("omics_machine"),
    )


LABELS = {"MKL, ℓ1": "MKL, norm 1", "MKL, uniform": "MKL, equal weights"}
LABELS |= {"best view, SVC": "SVC on the best view", "all columns, SVC": "SVC on all columns"}
TEXT = """\
# Omics: several views of a patient

**Do learned kernels on several views classify patients better than the best view or other ways to combine views?** On
Alzheimer's disease (ROSMAP) they have a higher AUC than the best view and than trees, and do not differ significantly
from other combinations.
{{class}}`~kernelmosaic.MKLRidgeClassifierCV` with weights learned by leave-one-out has an accuracy of {loo} and an AUC
of {loo_auc} over {resamplings} resamplings. The best other method, *{rival}*, has {rival_mean} ({rival_verdict},
*p* = {rival_p}).

- **Several views help**: the best single view has {view} (*p* = {view_p}) and an AUC of {view_auc} (*p* =
  {view_p_auc}).
- **Trees are behind**: the random forest has {forest} (*p* = {forest_p}) and an AUC of {forest_auc}
  (*p* = {forest_p_auc}).
- **Learned weights add little to equal weights** of the same kernels: {loo} against {equal} (*p* = {equal_p}).
- **One split decides nothing**: on the published split ours has {loo_published}, the random forest {forest_published},
  MOGONET {mogonet}; the standard deviation between splits is {spread}.

## Protocol

ROSMAP (prepared by MOGONET's authors, who selected 200 columns per view): Alzheimer's disease from gene expression,
methylation and microRNA; {sizes[0][n_train]} patients train and {sizes[0][n_test]} test. TCGA breast cancer (from
mixOmics): three subtypes from gene expression, microRNA and protein. Figures are means ± standard deviations over
{resamplings} stratified resamplings with the sizes of the published split.

- *ridge*: nine kernels per view, linear and Gaussian and Laplacian at ½, 1, 2 and 4 times the median distance; no
  folds. *equal weights* learns the ridge alone; *SVM, same kernels* chooses C by five folds.
- *MKL*: {{class}}`~kernelmosaic.MKLClassifierCV` on a linear and a Gaussian kernel per view, C by five folds; *chosen
  by folds* chooses the norm, too.
- Others: SVC on the best view or on all columns (C and width by five folds), SVCs of the views stacked by logistic
  regression, a random forest of 200 trees, histogram gradient boosting.

*p* compares with *ridge, leave-one-out* by {{func}}`~kernelmosaic.stats.t_test_resampled`, which corrects for shared
samples. With this many comparisons, *p* above {weak} is weak evidence.

## Results

ROSMAP ([every split](omics.csv)):

{table}

Breast cancer, mean accuracy ({sizes[1][n_test]} and {sizes[2][n_test]} test patients; *with protein*: patients for whom
all three views were measured):

{breast}

![Share of each kernel: median and range over the resamplings](../images/{picture})

Bars run from the second lowest to the second highest share ([all shares](omics_weights.csv)). Norm 1 varies more
between resamplings than norm 2.

## Limits

- Breast cancer subtypes are easy: gene expression alone is as good as all views. Proteins used where they are known
  ([missing views](../missing_views.md)) change the accuracy from {without} to {partial}.
- ROSMAP was not unseen: a trial with four kernels per view had been scored on its published split and on resamplings,
  and rank kernels were dropped after a look at leave-one-out accuracy on its training part.
- To save time, grids and numbers of trees were reduced after one look at the published splits.

## Run it

    python studies/omics.py --data FOLDER --groups folds ridge

Each `.npz` file has one array per view, `y`, `train` and `test`. One split of ROSMAP takes {seconds} CPU s for
*ridge, leave-one-out* and {folds_seconds} CPU s for *MKL, norm 1* with its folds. Machines: {machines}.
"""


def summary() -> tuple[str, str, str]:
    """Return the study's cells of the overview: ours, the best other, the verdict."""
    figures = Figures("rosmap")
    rival = figures.best_rival()
    p = figures.p(rival)
    return (
        f"accuracy {figures.mean(LOO)}",
        f"{figures.mean(rival)}, {LABELS.get(rival, rival)}",
        f"{different(p)} (corrected resampled t-test over {RESAMPLINGS} splits, *p* = {p_text(p)})",
    )


def write_page() -> None:
    draw(read_table("omics_weights"))
    common.write_page("omics", page(), summary())


if __name__ == "__main__":
    common.main(__doc__ or "", run, write_page, groups=tuple(MARKS))
