"""Graphs: molecules, proteins and circles of actors by Weisfeiler-Lehman and shortest-path kernels.

    python studies/graphs.py --data FOLDER [--output FOLDER] [--jobs 2] [--only MUTAG PTC]
    python studies/graphs.py --page

FOLDER, or the environment variable KERNELMOSAIC_DATA, holds graphs_<set>.npz and graphs_results.csv. Every fit that is
done is kept in the folder of the run: a stopped run goes on where it was. What counts most is fitted first. All
matrices of a set are computed once and kept in the same folder, for all processes to read (3.4 GB of NCI1). At the end,
and when it is stopped by Ctrl-C, a run writes what is complete in docs/studies/graphs*.csv, the picture and the page
docs/studies/graphs.md.
"""

from __future__ import annotations

import csv
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np
from common import (
    Row,
    Store,
    cpu_time,
    data_file,
    in_parallel,
    machine,
    markdown,
    met,
    p_text,
    read_table,
    update_table,
    write_table,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, train_test_split
from sklearn.svm import SVC

from kernelmosaic import MKLClassifierCV, MKLRidgeClassifierCV
from kernelmosaic.kernels import Precomputed, ShortestPath, WeisfeilerLehman
from kernelmosaic.stats import t_test_resampled, wilcoxon

PICTURE = "studies_graphs_accuracies.png"
SETS = ("MUTAG", "PTC", "ENZYMES", "PROTEINS", "IMDB-BINARY", "IMDB-MULTI", "NCI1", "NCI109")
FILE, RANDOM = "folds of the files", "A"
#: How often ten folds are drawn at random (protocol A).
REPEATS = 10
ITERATIONS, MODES = 5, ("subtree", "assignment")
KERNELS = [*(f"{mode} {h}" for mode in MODES for h in range(ITERATIONS + 1)), "paths"]
CS = (0.1, 1.0, 10.0, 100.0, 1000.0)
#: Of more training graphs, this many, drawn at random, serve to learn weights and ridge; the machine is then that of
#: all.
MOST_LEARNED = 1200
RIDGE, RIDGE_EQUAL = "ridge, learned", "ridge, uniform"
MARGIN, MARGIN_EQUAL, SINGLE = "margin, learned", "margin, uniform", "best single kernel"
WL, OA = "SVM, 1-WL", "SVM, WL-OA"
#: In the order in which they run.
METHODS = (RIDGE, RIDGE_EQUAL, MARGIN_EQUAL, OA, MARGIN, SINGLE, WL)
#: What takes longest comes after all others.
LAST = ("IMDB-MULTI", "NCI1", "NCI109")
#: Accuracies that were to be reached, by which set.
AIMS = {"NCI1": 85.0, "ENZYMES": 56.0, "PROTEINS": 75.0, "IMDB-BINARY": 73.0}


class Unit(NamedTuple):
    """One method on one fold."""

    set: str
    protocol: str
    repeat: int
    fold: int
    method: str

    @property
    def name(self) -> str:
        return f"{self.set}, {self.protocol}, {self.repeat}, {self.fold}, {self.method}"


def all_units() -> list[Unit]:
    """Return all fits in the order in which they run, so that a run that is stopped has finished what counts most."""
    protocols = [(RANDOM, 0), (FILE, 0), *((RANDOM, repeat) for repeat in range(1, REPEATS))]
    units = [
        Unit(name, *protocol, fold, method)
        for protocol in protocols
        for method in METHODS
        for name in SETS
        for fold in range(10)
    ]
    # Stable: within both halves the order stays.
    return sorted(units, key=lambda u: u.set in LAST and (u.set, u.method, *u[1:3]) != ("NCI1", RIDGE, RANDOM, 0))


# Graphs and matrices -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Graphs with their classes, the folds of the file, and the matrices of all kernels."""

    y: np.ndarray
    fold: np.ndarray
    #: Kernels of cosines.
    kernels: list[tuple[str, Precomputed]]
    #: Cosines of the sums over iterations from 0 to each, by mode.
    sums: dict[str, list[np.ndarray]]
    seconds: Row


def read_graphs(path: Path) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """Return the graphs, their classes and their folds; labels that are all the same stand for none."""
    with np.load(path) as file:
        edges, labels = (
            np.split(file[name], file[f"{kind}_offsets"][1:-1])
            for name, kind in (("edges", "edge"), ("node_labels", "node"))
        )
        labelled = len(np.unique(file["node_labels"])) > 1
        y, fold = file["y"].astype(int), file["fold"].astype(int)
    return [(e, one if labelled else len(one)) for e, one in zip(edges, labels, strict=True)], y, fold


def cosines(K: np.ndarray) -> np.ndarray:
    norms = np.sqrt(K.diagonal())
    norms[norms == 0] = 1.0
    return np.asarray(K / norms[:, None] / norms)


def write_matrices(path: Path, folder: Path) -> None:
    """Compute all matrices of a set and the seconds they take, and write both: they depend on no training sample."""
    seconds: Row = {}
    with cpu_time(seconds, "reading"):
        graphs, _, _ = read_graphs(path)
        X = ShortestPath().validate(graphs)
    single, sums = [], []
    for mode in MODES:
        with cpu_time(seconds, mode):
            found = [one(X) for one in WeisfeilerLehman(ITERATIONS, mode).terms().values()]
        single += map(cosines, found)
        sums += map(cosines, accumulate(found))
    with cpu_time(seconds, "paths"):
        K = ShortestPath()(X)
    (folder / f"{path.stem}.json").write_text(json.dumps(seconds), encoding="utf-8")
    np.save(folder / f"{path.stem}.part.npy", [*single, cosines(K), *sums])
    # A file under this name is whole.
    (folder / f"{path.stem}.part.npy").replace(folder / f"{path.stem}.npy")


@lru_cache(maxsize=len(SETS))
def read_problem(path: Path, folder: Path) -> Problem:
    """Read a set, and map its matrices from the folder of the run into memory, computed if they are not there."""
    if not (folder / f"{path.stem}.npy").exists():
        write_matrices(path, folder)
    _, y, fold = read_graphs(path)
    matrices = np.load(folder / f"{path.stem}.npy", mmap_mode="r")
    sums = matrices[len(KERNELS) :].reshape(len(MODES), ITERATIONS + 1, len(y), len(y))
    return Problem(
        y,
        fold,
        [(name, Precomputed(K)) for name, K in zip(KERNELS, matrices, strict=False)],
        {mode: list(own) for mode, own in zip(MODES, sums, strict=True)},
        json.loads((folder / f"{path.stem}.json").read_text(encoding="utf-8")),
    )


def split_of(problem: Problem, unit: Unit) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows to train on and to test on, and of the former nine tenths and the tenth that chooses parameters."""
    rows = np.arange(len(problem.y))
    if unit.protocol == FILE:
        test = np.flatnonzero(problem.fold == unit.fold)
    else:
        test = list(KFold(10, shuffle=True, random_state=unit.repeat).split(rows))[unit.fold][1]
    train = np.setdiff1d(rows, test)
    inside, tenth = train_test_split(np.arange(len(train)), test_size=0.1, random_state=10 * unit.repeat + unit.fold)
    return train, test, np.sort(inside), np.sort(tenth)


# Methods -------------------------------------------------------------------------------------------------------------


def fit_ridge(problem: Problem, train: np.ndarray, most: int = MOST_LEARNED, **options: Any) -> Any:
    """Return the machine of all training graphs, its weights and ridge learned from at most so many."""
    options |= {"normalize": None, "scale": False, "random_state": 0}
    some = train if len(train) <= most else np.random.RandomState(0).permutation(train)[:most]
    model = MKLRidgeClassifierCV(problem.kernels, **options).fit(some, problem.y[some])
    if len(some) == len(train):
        return model
    combined = sum(weight * one.K for weight, (_, one) in zip(model.weights_, problem.kernels, strict=True))
    options |= {"weights": [1.0], "alpha": model.alpha_}
    whole = MKLRidgeClassifierCV([Precomputed(combined)], **options).fit(train, problem.y[train])
    whole.learned_weights_ = model.weights_
    return whole


def fit_margin(problem: Problem, train: np.ndarray, inside: np.ndarray, tenth: np.ndarray, norms: Any) -> Any:
    options: Row = {"Cs": CS, "cv": [(inside, tenth)], "normalize": None, "scale": False}
    model = MKLClassifierCV(problem.kernels, norms=norms, random_state=0, **options)
    return model.fit(train, problem.y[train])


def svm_labels(
    matrices: list[np.ndarray],
    y: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
    inside: np.ndarray,
    tenth: np.ndarray,
) -> np.ndarray:
    """Return the classes of the test rows by a support vector machine, its matrix and C chosen on the tenth."""

    def predicted(K: np.ndarray, C: float, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        model = SVC(C=C, kernel="precomputed", cache_size=1000).fit(K[np.ix_(left, left)], y[left])
        return np.asarray(model.predict(K[np.ix_(right, left)]))

    scores = {
        (m, C): np.mean(predicted(K, C, train[inside], train[tenth]) == y[train[tenth]])
        for m, K in enumerate(matrices)
        for C in CS
    }
    m, C = max(scores, key=lambda one: scores[one])
    return predicted(matrices[m], C, train, test)


def run_unit(unit: Unit, path: Path, folder: Path) -> tuple[str, Row]:
    """Return the unit's name, how many test graphs its method has right, and what it took."""
    problem = read_problem(path, folder)
    train, test, inside, tenth = split_of(problem, unit)
    y, kernels = problem.y, problem.kernels
    works: dict[str, Callable[[], Any]] = {
        RIDGE: lambda: fit_ridge(problem, train),
        RIDGE_EQUAL: lambda: fit_ridge(problem, train, weights="uniform"),
        MARGIN: lambda: fit_margin(problem, train, inside, tenth, (1, 2)),
        MARGIN_EQUAL: lambda: fit_margin(problem, train, inside, tenth, ("uniform",)),
        SINGLE: lambda: svm_labels([one.K for _, one in kernels], y, train, test, inside, tenth),
        WL: lambda: svm_labels(problem.sums["subtree"], y, train, test, inside, tenth),
        OA: lambda: svm_labels(problem.sums["assignment"], y, train, test, inside, tenth),
    }
    found: Row = {"train": len(train), "test": len(test)}
    with cpu_time(found, "seconds"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = works[unit.method]()
    labels = model if isinstance(model, np.ndarray) else model.predict(test)
    if unit.method in (RIDGE, MARGIN):
        # Of several classes each may have its own.
        weights = np.atleast_2d(getattr(model, "learned_weights_", model.weights_)).sum(axis=0)
        found["weights"] = (weights / weights.sum()).round(4).tolist()
        found["gap"] = float(getattr(model, "duality_gap_", 0.0))
    return unit.name, found | {"right": int(np.sum(labels == y[test])), "kernels": problem.seconds}


def run(options: Any, every: Sequence[Unit] = ()) -> None:
    """Run the fits that are missing, and write tables, picture and page unless only some sets were asked for.

    `every` stands for `all_units()` unless it is given.
    """
    store, folder = Store(options.output, "graphs"), Path(options.output)
    paths = {name: data_file(options.data, f"graphs_{name}.npz") for name in options.only or SETS}
    units = {unit.name: unit for unit in every or all_units() if unit.set in paths}
    missing = [units[name] for name in store.missing(units)]
    start, where = time.monotonic(), machine()
    try:
        new = {paths[unit.set] for unit in missing if not (folder / f"graphs_{unit.set}.npy").exists()}
        list(in_parallel(options.jobs, write_matrices, ((path, folder) for path in sorted(new))))
        done = in_parallel(options.jobs, run_unit, ((unit, paths[unit.set], folder) for unit in missing))
        for number, (name, found) in enumerate(done, start=1):
            store.add(name, found | {"machine": where})
            told = f"{found['right'] / found['test']:.3f}, {found['seconds']:.1f} s"
            print(f"{number} of {len(missing)}, {time.monotonic() - start:.0f} s: {name}: {told}", flush=True)
    except KeyboardInterrupt:
        print("Stopped.")
    if options.only:
        print(f"{len(store.missing(unit.name for unit in all_units()))} fits are missing; the page stays as it is.")
        return
    write_tables(store, data_file(options.data, "graphs_results.csv"))
    write_page()


# Tables, picture and page --------------------------------------------------------------------------------------------


def write_tables(store: Store, published: Path) -> None:
    """Write the fits of all repetitions that are complete, times and weights, and the figures published for kernels.

    Fits of runs in other folders stay in the tables.
    """
    done = {unit: store.units[unit.name] for unit in all_units() if unit.name in store.units}
    rows = []
    for name, protocol, repeat, method in dict.fromkeys((u.set, u.protocol, u.repeat, u.method) for u in done):
        own = [done.get(Unit(name, protocol, repeat, fold, method)) for fold in range(10)]
        found = [one for one in own if one is not None]
        if len(found) == 10:
            rows.append(
                {"set": name, "protocol": protocol, "repeat": repeat, "method": method, "train": found[0]["train"]}
                | {f"fold {k}": f"{100 * one['right'] / one['test']:.2f}" for k, one in enumerate(found)}
                | {"seconds": f"{np.mean([one['seconds'] for one in found]):.2f}"}
            )
    update_table("graphs", rows, ["set", "protocol", "repeat", "method"])
    times = {unit.set: found["kernels"] for unit, found in done.items()}
    took = [{"set": name} | {k: f"{v:.2f}" for k, v in one.items()} for name, one in times.items()]
    update_table("graphs_times", took, ["set"])
    shares = {
        (name, method): np.mean(
            [np.atleast_2d(f["weights"]).sum(axis=0) for u, f in done.items() if (u.set, u.method) == (name, method)],
            axis=0,
        )
        for name, method in dict.fromkeys((u.set, u.method) for u in done if u.method in (RIDGE, MARGIN))
    }
    weights = [
        {"set": name, "method": method} | {k: f"{share:.3f}" for k, share in zip(KERNELS, one, strict=True)}
        for (name, method), one in shares.items()
    ]
    update_table("graphs_weights", weights, ["set", "method"])
    with published.open(encoding="utf-8", newline="") as file:
        kept = [row for row in csv.DictReader(file) if row["protocol"] in "AB"]
    keys = ("set", "method", "accuracy", "protocol", "source")
    write_table("graphs_published", [{key: row[key] for key in keys} for row in kept])
    machines = dict.fromkeys(found["machine"] for found in done.values())
    update_table("graphs_machine", [{"machine": one} for one in machines], ["machine"])


class Figures:
    """The committed tables."""

    def __init__(self) -> None:
        self.rows = read_table("graphs")
        self.published = read_table("graphs_published")
        self.sets = [name for name in SETS if any(row["set"] == name for row in self.rows)]

    def folds(self, name: str, protocol: str, method: str) -> np.ndarray:
        """Return the accuracies of all folds, of shape (repetitions, 10)."""
        own = [r for r in self.rows if (r["set"], r["protocol"], r["method"]) == (name, protocol, method)]
        return np.array([[row[f"fold {k}"] for k in range(10)] for row in own]).reshape(-1, 10)

    def mean(self, name: str, protocol: str, method: str) -> float:
        found = self.folds(name, protocol, method)
        return float(found.mean()) if len(found) else np.nan

    def best(self, name: str, protocol: str) -> Row | None:
        own = [row for row in self.published if (row["set"], row["protocol"]) == (name, protocol)]
        return max(own, key=lambda row: row["accuracy"], default=None)

    def table(self, protocol: str) -> str:
        """Return the mean accuracies of a protocol, with the deviation of repetitions where there are several."""
        lines = []
        for name in self.sets:
            repeats = max(len(self.folds(name, protocol, method)) for method in METHODS)
            if not repeats:
                continue
            cells = []
            for method in METHODS:
                each = self.folds(name, protocol, method).mean(axis=1)
                deviation = f" ± {each.std(ddof=1):.1f}" if len(each) > 1 else ""
                short = f" ({len(each)})" if 0 < len(each) < repeats else ""
                cells.append(f"{each.mean():.1f}{deviation}{short}" if len(each) else "")
            best = self.best(name, "A") if protocol == RANDOM else None
            beside = [] if protocol == FILE else ["" if best is None else f"{best['accuracy']:g}, {best['method']}"]
            lines.append([name, *([repeats] if protocol == RANDOM else []), *cells, *beside])
        if not lines:
            return "Not run yet."
        heads = ["set", *(["repetitions"] if protocol == RANDOM else []), *METHODS]
        return markdown([*heads, *(["best published, protocol A"] if protocol == RANDOM else [])], lines)

    def compared(self, a: str, b: str) -> list[str]:
        """Return by how much a method is ahead of another on average, on how many sets, and on how many p < 0.05."""
        ahead, sure = [], [0, 0]
        for name in self.sets:
            protocol = RANDOM if len(self.folds(name, RANDOM, a)) and len(self.folds(name, RANDOM, b)) else FILE
            one, other = (self.folds(name, protocol, method) for method in (a, b))
            repeats = min(len(one), len(other))
            if not repeats:
                continue
            one, other = one[:repeats].ravel(), other[:repeats].ravel()
            train = int(next(row["train"] for row in self.rows if row["set"] == name))
            p = t_test_resampled(one, other, n_train=train, n_test=train // 9).p_value
            ahead.append(float(np.mean(one - other)))
            sure[int(ahead[-1] < 0)] += p < 0.05
        if not ahead:
            return ["", "", ""]
        return [f"{np.mean(ahead):+.1f}", f"{np.sum(np.array(ahead) > 0)} of {len(ahead)}", f"{sure[0]} / {sure[1]}"]

    def reached(self, name: str, method: str = RIDGE) -> tuple[float, str]:
        """Return the accuracy that an aim is measured by, and how it was taken."""
        repeats = len(self.folds(name, RANDOM, method))
        if repeats:
            return self.mean(name, RANDOM, method), f"protocol A, {repeats} repetition{'s' * (repeats > 1)}"
        return self.mean(name, FILE, method), FILE


def draw(figures: Figures) -> None:
    """Draw the accuracies of all methods beside those published for kernels and networks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    ax = figure.subplots()
    for k, name in enumerate(figures.sets):
        for protocol, colour in (("A", "0.35"), ("B", "0.75")):
            own = [row["accuracy"] for row in figures.published if (row["set"], row["protocol"]) == (name, protocol)]
            label = f"published, protocol {protocol}" if k == 0 else None
            ax.plot(own, [k - 0.22] * len(own), "|", color=colour, markersize=9, label=label)
    for method, marker in zip(METHODS, "oo^s^vD", strict=True):
        found = [(figures.reached(name, method)[0], k) for k, name in enumerate(figures.sets)]
        filled = {"markerfacecolor": "none"} if method in (RIDGE_EQUAL, MARGIN_EQUAL) else {}
        ax.plot(*zip(*found, strict=True), marker, label=method, markersize=6, alpha=0.8, **filled)
    ax.set_yticks(range(len(figures.sets)), figures.sets, fontsize=8)
    ax.invert_yaxis()
    ax.grid(axis="y", color="0.92")
    ax.set_xlabel("accuracy in percent", fontsize=9)
    ax.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(common.IMAGES / PICTURE, dpi=95, metadata={"Software": None})


def aims(figures: Figures) -> str:
    lines = []
    for name, aim in AIMS.items():
        if name not in figures.sets:
            lines.append([f"{name} ≥ {aim:g}", "not run to the end", ""])
            continue
        reached, how = figures.reached(name)
        lines.append([f"{name} ≥ {aim:g}", f"{reached:.1f} ({how})", met(reached >= aim)])
    return markdown(["aim", f"*{RIDGE}*", ""], lines)


def conclusion(figures: Figures, times: dict[str, Row]) -> str:
    """Return what the tables say in a few lines, and what has not been run."""
    lines = []
    published = [
        f"{name} {figures.mean(name, RANDOM, RIDGE):.1f} ({best['accuracy']:g}, {best['method']})"
        for name in figures.sets
        if len(figures.folds(name, RANDOM, RIDGE)) and (best := figures.best(name, "A"))
    ]
    if published:
        lines.append(f"*{RIDGE}*, and in parentheses the best published under protocol A: {', '.join(published)}.")
    for a, b in ((RIDGE, RIDGE_EQUAL), (MARGIN, MARGIN_EQUAL), (RIDGE, MARGIN), (RIDGE, SINGLE)):
        ahead, sets, sure = figures.compared(a, b)
        if ahead:
            lines.append(
                f"*{a}* against *{b}*: {ahead} points on average, better on {sets} sets; sets on which the folds show "
                f"a difference, for / against: {sure}."
            )
    if "NCI1" in times:
        each = {kind: times["NCI1"][kind] for kind in ("reading", "subtree", "assignment", "paths")}
        lines.append(
            f"NCI1's 4,110 graphs: read in {each['reading']:.1f} CPU s, 13 matrices in "
            f"{sum(each.values()) - each['reading']:.1f}, of which shortest paths take {each['paths']:.1f}."
        )
    absent = [name for name in SETS if not len(figures.folds(name, RANDOM, RIDGE))]
    few = [name for name in SETS if 0 < len(figures.folds(name, RANDOM, RIDGE)) < REPEATS]
    if few:
        lines.append(f"Of the {REPEATS} repetitions of protocol A not all have been run: {', '.join(few)}.")
    if absent:
        lines.append(f"No figures yet: {', '.join(absent)}.")
    return "\n".join(f"- {line}" for line in lines) + "\n"


def page() -> str:
    """Return the study's page, made from the committed tables alone."""
    figures = Figures()
    times = {row["set"]: row for row in read_table("graphs_times")}
    kinds = ("reading", "subtree", "assignment", "paths")
    weights = read_table("graphs_weights")
    kernels = [key for key in weights[0] if key not in ("set", "method")]
    pairs = [
        *((RIDGE, other) for other in METHODS if other != RIDGE),
        (MARGIN, MARGIN_EQUAL),
        (RIDGE_EQUAL, MARGIN_EQUAL),
    ]
    return TEXT.format(
        primary=RIDGE,
        aims=aims(figures),
        random=figures.table(RANDOM),
        file=figures.table(FILE),
        pairs=markdown(
            ["", "difference in accuracy", "sets where it is above zero", "sets with p < 0.05: for / against"],
            [[f"{a} less {b}", *figures.compared(a, b)] for a, b in pairs],
        ),
        conclusion=conclusion(figures, times),
        weights=markdown(
            ["set", "method", *kernels],
            [[row["set"], row["method"], *(f"{row[k]:.2f}" for k in kernels)] for row in weights],
        ),
        times=markdown(
            ["set", *kinds], [[name, *(f"{row[kind]:.1f}" for kind in kinds)] for name, row in times.items()]
        ),
        fits=markdown(
            ["set", *METHODS],
            [[name, *(_seconds(figures, name, method) for method in METHODS)] for name in figures.sets],
        ),
        machines="; ".join(row["machine"] for row in read_table("graphs_machine")),
        picture=PICTURE,
        cs=", ".join(f"{C:g}" for C in CS),
        most=MOST_LEARNED,
    )


def _seconds(figures: Figures, name: str, method: str) -> str:
    own = [row["seconds"] for row in figures.rows if (row["set"], row["method"]) == (name, method)]
    return f"{np.mean(own):.1f}" if own else ""


TEXT = """\
# Graphs: iterations weighed

Eight public sets of graphs, each with one class per graph: molecules (MUTAG, PTC, NCI1, NCI109), proteins (ENZYMES,
PROTEINS) and circles of actors (IMDB, without labels: degrees are labels). Published figures follow protocols that
differ by several points. Under *protocol A* (Morris et al. 2020) ten random folds are drawn ten times, and parameters
are chosen on a tenth of each training part, drawn at random; it is the one followed here. The files have ten folds of
their own, too, on which no figures were published; parameters are chosen in the same way.

Kernels, parameters and the figure that counts, the accuracy of *{primary}* under protocol A, were fixed before the
first fit: {{class}}`~kernelmosaic.kernels.WeisfeilerLehman` with iterations 0 to 5, as subtrees and as assignments, and
{{class}}`~kernelmosaic.kernels.ShortestPath`, 13 kernels, as cosines (`normalize="diagonal"`). Iteration 0 of the
subtrees is the histogram of labels. One fold of MUTAG, ENZYMES, PROTEINS and NCI1 each was fitted to see how long it
takes. For their times, and nothing else, a best single kernel by least squares was left out, and weights are learned
from {most:,} graphs at most, which were 1,500 before the fold of NCI1.

- *ridge*: {{class}}`~kernelmosaic.MKLRidgeClassifierCV` by leave-one-out error, which needs no tenth; *uniform* learns
  the ridge alone. Of more than {most:,} training graphs, so many are drawn to learn weights and ridge; the machine is
  that of all.
- *margin*: {{class}}`~kernelmosaic.MKLClassifierCV`, C ({cs}) and the norm of the weights (1 or 2) chosen on the tenth;
  *uniform* chooses C alone.
- *best single kernel*: `SVC`, one of the 13 kernels and C chosen on the tenth.
- *SVM, 1-WL* and *WL-OA*: what was published, once more. `SVC` on the cosine of the sum of iterations 0 to h, with h
  and C chosen on the tenth.

## Conclusion

{conclusion}
{aims}

## Protocol A

Mean accuracy in percent, ± its standard deviation between repetitions; in parentheses the repetitions of a method that
has fewer. Between repetitions of the published kernels the deviation is 0.3 to 1.8 points, so that a single repetition
settles no smaller difference.

{random}

![Accuracies beside the published ones](../images/{picture})

## Folds of the files

{file}

## In pairs

{pairs}

The mean over the sets of the difference in accuracy, under protocol A where both have it, else on the folds of the
files; the last column has the sets on which the folds show a difference by
{{func}}`~kernelmosaic.stats.t_test_resampled`.

## Weights

Mean share of each kernel over all fits.

{weights}

## Seconds

CPU time, one thread: reading a set, six matrices of subtrees, six of assignments, one of shortest paths, all graphs
against all.

{times}

A fit with its choice of parameters, on given matrices:

{fits}

Machines: {machines}.
"""


def summary() -> tuple[str, str, str]:
    """Return the study's cells of the overview: ours, the best other, the verdict."""
    figures = Figures()
    known = [name for name in figures.sets if figures.best(name, "A") and len(figures.folds(name, RANDOM, RIDGE))]
    ours = np.array([figures.mean(name, RANDOM, RIDGE) for name in known])
    best = np.array([(figures.best(name, "A") or {})["accuracy"] for name in known])
    p = wilcoxon(ours, best).p_value
    return (
        f"accuracy {ours.mean():.1f} %",
        f"{best.mean():.1f} %, the best published kernel of each set",
        f"higher on {np.sum(ours > best)} of {len(known)} sets (Wilcoxon, *p* = {p_text(p)})",
    )


def write_page() -> None:
    draw(Figures())
    common.write_page("graphs", page(), summary())


if __name__ == "__main__":
    # Under its own name the module is imported once a process, and keeps what `read_problem` has read.
    import graphs

    common.main(graphs.__doc__ or "", graphs.run, graphs.write_page)
