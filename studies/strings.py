"""Strings: human translation starts and acceptor sites of C. elegans, by words at places and
anywhere.

    python studies/strings.py --data FOLDER [--output FOLDER] [--groups folds ridge]
    python studies/strings.py --page

FOLDER, or the environment variable KERNELMOSAIC_DATA, holds human_tis.npz and
celegans_acceptor.npz. Every fit that is done is kept in the folder of the run: a stopped run goes
on where it was. The group `ridge` has the methods of least squares, `folds` all others; fits run
one after the other, each in all threads. Writes docs/studies/strings*.csv, the picture and its page
docs/studies/strings.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import common
import numpy as np
from common import (
    IMAGES,
    Row,
    Store,
    cpu_time,
    data_file,
    machine,
    markdown,
    read_table,
    update_table,
    write_table,
)
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import average_precision_score
from sklearn.model_selection import KFold, StratifiedKFold, StratifiedShuffleSplit

from kernelmosaic import MKLClassifierCV, MKLRidgeClassifierCV
from kernelmosaic.kernels import Spectrum, WeightedDegree

PICTURE = "studies_strings_weights.png"
REPEATS, BOOTSTRAPS = 10, 1000
#: Two strings with a common word of this length are of the same DNA.
SHARED = 40
#: Of the acceptor sites, in the order of the genome: the last are for test, and so many of the
#: others for exact fits.
TEST, EXACT, RANK = 30_000, 10_000, 100
NORMS = {"MKL, ℓ1": (1,), "MKL, ℓ2": (2,), "MKL, uniform": ("uniform",)}
#: Least squares on the same kernels: the criterion that weights and ridge minimise.
RIDGES = {"ridge, leave-one-out": "loo", "ridge, evidence": "evidence"}
LOO, EVIDENCE = RIDGES
OURS, LINEAR, WHOLE = "MKL, ℓ1", "one-hot, logistic regression", "all places, words of up to 5"
#: The methods for all acceptor sites, in features.
MANY = ("MKL, ℓ1", "MKL, ℓ2", "MKL, uniform", WHOLE, LINEAR)
PROBLEMS = {
    "human_tis": "Human translation starts",
    "celegans exact": "Splice sites of C. elegans, 10,000 windows, exact",
    "celegans features": "Splice sites of C. elegans, 70,000 windows, low rank",
}


@dataclass(frozen=True)
class Sites:
    """Strings around a signal, in columns: windows, what is before and after the signal, and all of
    it."""

    table: np.ndarray
    letters: np.ndarray
    y: np.ndarray
    kernels: list[Any]
    whole: Any


def read_sites(path: Path, signal: slice, width: int) -> Sites:
    with np.load(path) as file:
        sequences, y = file["sequences"], file["y"]
    letters = sequences.view(np.uint8).reshape(len(sequences), -1)
    length = letters.shape[1]
    edges = [(a, min(a + width, length)) for a in range(0, length, width)]
    parts = [*edges, (0, signal.start), (signal.stop, length), (0, length)]
    table = np.empty((len(y), len(parts)), dtype=object)
    for column, (a, b) in enumerate(parts):
        table[:, column] = (
            np.ascontiguousarray(letters[:, a:b]).view(f"S{b - a}").ravel().astype(str)
        )
    kernels: list[Any] = [
        (f"{a - signal.start:+d}", WeightedDegree(5), [i]) for i, (a, _) in enumerate(edges)
    ]
    for place, column in (("before", len(edges)), ("after", len(edges) + 1)):
        kernels += [(f"words of {length} {place}", Spectrum(length), [column]) for length in (3, 6)]
    return Sites(table, letters, y, kernels, (WHOLE, WeightedDegree(5), [len(edges) + 2]))


def one_hot(letters: np.ndarray) -> np.ndarray:
    return (
        (letters[:, :, None] == np.frombuffer(b"ACGT", np.uint8))
        .reshape(len(letters), -1)
        .astype(np.float32)
    )


class Split:
    """One division into training and test strings, on which every method is fitted unless that was
    done before."""

    def __init__(
        self, sites: Sites, train: np.ndarray, test: np.ndarray, folds: Any, **options: Any
    ) -> None:
        self.sites, self.train, self.test, self.folds, self.options = (
            sites,
            train,
            test,
            folds,
            options,
        )

    def works(self, groups: Sequence[str]) -> dict[str, Callable[[], tuple[Row, np.ndarray]]]:
        sites = self.sites
        single = [sites.whole, *sites.kernels[-4:]]
        made: dict[str, Callable[[], tuple[Row, np.ndarray]]] = {
            **{
                name: lambda norms=norms: self.learned(sites.kernels, norms)
                for name, norms in NORMS.items()
            },
            **{one[0]: lambda one=one: self.learned([one], ("uniform",)) for one in single},
            LINEAR: self.linear,
        }
        # In features what takes long, and told least of 10,000, is left out.
        chosen = (
            {name: made[name] for name in (MANY if self.options else made)}
            if "folds" in groups
            else {}
        )
        if "ridge" in groups:
            chosen |= {
                name: lambda criterion=one: self.ridge(criterion) for name, one in RIDGES.items()
            }
        return chosen

    def ridge(self, criterion: str) -> tuple[Row, np.ndarray]:
        X, y = self.sites.table, self.sites.y
        found: Row = {}
        with cpu_time(found, "seconds"):
            model = MKLRidgeClassifierCV(
                self.sites.kernels,
                criterion=criterion,
                normalize="diagonal",
                scale=False,
                random_state=0,
                **self.options,
            ).fit(X[self.train], y[self.train])
        weights = np.asarray(model.weights_) / np.sum(model.weights_)
        return found | {"weights": weights.tolist()}, model.decision_function(X[self.test])

    def learned(self, kernels: list[Any], norms: tuple[Any, ...]) -> tuple[Row, np.ndarray]:
        X, y = self.sites.table, self.sites.y
        found: Row = {}
        options = dict(self.options)
        if "rank" in options:  # as many features for one kernel as for all
            options["rank"] *= len(self.sites.kernels) // len(kernels)
        with cpu_time(found, "seconds"):
            model = MKLClassifierCV(
                kernels,
                Cs=6,
                norms=norms,
                cv=self.folds,
                normalize="diagonal",
                scale=False,
                scoring="average_precision",
                random_state=0,
                **options,
            ).fit(X[self.train], y[self.train])
        weights = np.asarray(model.weights_) / np.sum(model.weights_)
        return found | {
            "gap": float(model.duality_gap_),
            "weights": weights.tolist(),
        }, model.decision_function(X[self.test])

    def linear(self) -> tuple[Row, np.ndarray]:
        letters, y = self.sites.letters, self.sites.y
        found: Row = {}
        with cpu_time(found, "seconds"):
            model = LogisticRegressionCV(
                Cs=np.logspace(-4, 0, 5),
                cv=self.folds,
                scoring="average_precision",
                max_iter=1000,
                l1_ratios=(0,),
            ).fit(one_hot(letters[self.train]), y[self.train])
        return found, model.decision_function(one_hot(letters[self.test]))


def splits(options: Any) -> dict[str, Callable[[], Split]]:
    """Return every split, made when it is needed."""
    wanted = options.only or list(PROBLEMS)
    made: dict[str, Callable[[], Split]] = {}
    if "human_tis" in wanted:
        sites = read_sites(data_file(options.data, "human_tis.npz"), slice(149, 152), 25)
        pairs = StratifiedShuffleSplit(REPEATS, test_size=0.3, random_state=0).split(
            sites.table, sites.y
        )
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        for number, (train, test) in enumerate(pairs, start=1):
            made[f"human_tis, {number}"] = lambda train=train, test=test: Split(
                sites, train, test, folds
            )
    if any(name.startswith("celegans") for name in wanted):
        genome = read_sites(data_file(options.data, "celegans_acceptor.npz"), slice(197, 199), 40)
        n = len(genome.y)
        test, before = np.arange(n - TEST, n), np.arange(n - TEST)
        some = np.linspace(0, len(before) - 1, EXACT).astype(int)
        low = {"approximation": "nystroem", "rank": RANK}
        # Contiguous folds: windows of neighbouring sites overlap.
        made["celegans exact, 1"] = lambda: Split(genome, some, test, KFold(3))
        made["celegans features, 1"] = lambda: Split(genome, before, test, KFold(3), **low)
    return {name: split for name, split in made.items() if name.rpartition(", ")[0] in wanted}


def run(options: Any) -> None:
    store, start = Store(options.output, "strings"), time.time()
    plan = splits(options)
    for name, make in plan.items():
        split = make()
        for method, work in split.works(options.groups).items():
            unit = f"{name}: {method}"
            if store.missing([unit]):
                found, outputs = work()
                found["precision"] = float(
                    average_precision_score(split.sites.y[split.test], outputs)
                )
                np.save(
                    Path(options.output) / f"strings {unit}.npy".replace(":", ""),
                    outputs.astype(np.float32),
                )
                store.add(unit, found)
            print(
                f"{time.time() - start:.0f} s: {unit} {store.units[unit]['precision']:.4f}",
                flush=True,
            )
    write_tables(store, plan, options)
    if "folds" in options.groups and not options.only:
        write_table("strings_check", [check(data_file(options.data, "human_tis.npz"))])
    write_page()


def write_tables(store: Store, plan: dict[str, Callable[[], Split]], options: Any) -> None:
    """Write what the page is made from; a split that is not done in all its methods stays as it
    was."""
    rows, weights = [], []
    for name, make in plan.items():
        problem, _, number = name.rpartition(", ")
        split = make()
        methods = list(split.works(options.groups))
        if store.missing(f"{name}: {method}" for method in methods):
            continue
        y = split.sites.y[split.test] > 0
        paths = {
            method: Path(options.output) / f"strings {name} {method}.npy"
            for method in {OURS, *methods}
        }
        outputs = {method: np.load(path) for method, path in paths.items() if path.exists()}
        for method in methods:
            found = store.units[f"{name}: {method}"]
            # Without the outputs of the method that is compared with there is no interval.
            low, high = 0.0, 0.0
            if problem != "human_tis":
                low, high = (
                    behind(y, outputs[OURS], outputs[method])
                    if OURS in outputs
                    else (np.nan, np.nan)
                )
            rows.append(
                {
                    "problem": problem,
                    "split": number,
                    "method": method,
                    "precision": round(found["precision"], 5),
                    "behind_low": round(low, 4),
                    "behind_high": round(high, 4),
                    "cpu_seconds": round(found["seconds"], 1),
                    "train": len(split.train),
                    "test": len(split.test),
                    "positive": int(y.sum()),
                }
            )
            if "weights" in found and method in (*NORMS, *RIDGES):
                kernels = [one[0] for one in split.sites.kernels]
                weights += [
                    {
                        "problem": problem,
                        "split": number,
                        "method": method,
                        "kernel": kernel,
                        "share": round(share, 5),
                    }
                    for kernel, share in zip(kernels, found["weights"], strict=True)
                ]
    if rows:
        update_table("strings", rows, ("problem", "split", "method"))
        update_table("strings_weights", weights, ("problem", "split", "method", "kernel"))
        machines = [{"group": group, "machine": machine()} for group in options.groups]
        update_table("strings_machine", machines, ("group",))


def check(path: Path) -> Row:
    """Return what is easy about the human set: strings that share long words, and the letters
    before the signal."""
    with np.load(path) as file:
        sequences, y = file["sequences"], file["y"] > 0
    owners: dict[bytes, set[int]] = {}
    for i, string in enumerate(sequences):
        for start in range(len(string) - SHARED + 1):
            owners.setdefault(string[start : start + SHARED], set()).add(i)
    partners = [set[int]() for _ in sequences]
    for those in owners.values():
        for i in those if len(those) > 1 else ():
            partners[i] |= those
    many = np.array([max(len(those) - 1, 0) for those in partners])
    counts = np.array(
        [
            [string[:149].count(letter) for letter in (b"A", b"C", b"G", b"T")]
            for string in sequences
        ]
    )
    found = []
    for train, test in StratifiedShuffleSplit(REPEATS, test_size=0.3, random_state=0).split(
        counts, y
    ):
        model = LogisticRegression(max_iter=1000).fit(counts[train], y[train])
        found.append(average_precision_score(y[test], model.decision_function(counts[test])))
    shares = {
        "sites": np.mean(many[y] > 0),
        "decoys": np.mean(many[~y] > 0),
        "letters": np.mean(found),
    }
    return {key: f"{value:.4f}" for key, value in shares.items()} | {
        "median": int(np.median(many[~y]))
    }


def behind(y: np.ndarray, ours: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Return an interval of 95 % of how far a method is behind, over bootstrap samples of the test
    strings."""
    rng = np.random.RandomState(0)
    gaps = []
    for _ in range(BOOTSTRAPS):
        some = rng.randint(len(y), size=len(y))
        gaps.append(
            average_precision_score(y[some], ours[some])
            - average_precision_score(y[some], other[some])
        )
    return float(np.quantile(gaps, 0.025)), float(np.quantile(gaps, 0.975))


# The page -----------------------------------------------------------------------------------------


def lines_of(problem: str, rows: list[Row]) -> list[list[str]]:
    """Return the methods of a problem with one split: precision, interval by which norm 1 is ahead,
    CPU seconds."""
    lines = []
    for row in (row for row in rows if row["problem"] == problem):
        known = row["method"] != OURS and not np.isnan(row["behind_low"])
        ahead = f"{row['behind_low']:+.3f} to {row['behind_high']:+.3f}" if known else ""
        name = LABELS.get(row["method"], row["method"])
        lines.append(
            [SIZES[problem], name, f"{row['precision']:.3f}", ahead, f"{row['cpu_seconds']:.0f}"]
        )
    return lines


def page() -> str:
    """Return the study's page, made from the committed tables alone."""
    table = read_table("strings")

    def mean(problem: str, method: str) -> float:
        return float(
            np.mean(
                [r["precision"] for r in table if (r["problem"], r["method"]) == (problem, method)]
            )
        )

    methods = [
        method
        for method in dict.fromkeys(row["method"] for row in table)
        if not method.startswith("words of")
    ]
    shown = [row for row in table if row["method"] in methods]
    first = {
        problem: next(row for row in table if row["problem"] == problem) for problem in PROBLEMS
    }
    easy = read_table("strings_check")[0]
    few, many = "celegans exact", "celegans features"
    interval = next(row for row in table if (row["problem"], row["method"]) == (many, LINEAR))
    human = [mean("human_tis", method) for method in methods]
    return TEXT.format(
        table=markdown(
            ["training windows", "method", "average precision", "norm 1 is ahead by", "CPU s"],
            [*lines_of(few, shown), *lines_of(many, shown)],
        ),
        learned=mean(few, OURS),
        uniform=mean(few, "MKL, uniform"),
        whole=mean(few, WHOLE),
        linear=mean(few, LINEAR),
        many=mean(many, OURS),
        many_two=mean(many, "MKL, ℓ2"),
        many_uniform=mean(many, "MKL, uniform"),
        many_whole=mean(many, WHOLE),
        many_linear=mean(many, LINEAR),
        interval=f"{interval['behind_low']:+.3f} to {interval['behind_high']:+.3f}",
        positive=f"{first[few]['positive']:,.0f}",
        test=f"{first[few]['test']:,.0f}",
        decoys=100 * easy["decoys"],
        letters=easy["letters"],
        human=f"{min(human):.3f} to {max(human):.3f}",
        shared=SHARED,
        repeats=REPEATS,
        rank=RANK,
        picture=PICTURE,
        machines=common.machines("strings_machine"),
        ridges=ridges_text(table),
    )


def ridges_text(table: list[Row]) -> str:
    """Return the sentence about least squares, with what was run."""
    parts = []
    for problem, where in (
        ("celegans exact", "10,000 windows"),
        ("celegans features", "70,000 windows"),
    ):
        own = {row["method"]: row["precision"] for row in table if row["problem"] == problem}
        if LOO in own and EVIDENCE in own:
            parts.append(
                f"{own[LOO]:.3f} by leave-one-out and {own[EVIDENCE]:.3f} by the evidence on"
                f" {where}"
            )
    if not parts:
        return (
            "Weights learned by ridge regression were not run on the splice sites (`--groups ridge`"
            " runs them)."
        )
    return "\n  ".join(wrap(f"Weights learned by ridge regression have {'; '.join(parts)}.", 112))


SIZES = {"celegans exact": "10,000, exact", "celegans features": "70,000, low rank"}
LABELS = {"MKL, ℓ1": "MKL, norm 1", "MKL, ℓ2": "MKL, norm 2", "MKL, uniform": "MKL, equal weights"}
LABELS |= {WHOLE: "one kernel, all positions"}
TEXT = """\
# DNA: the position of a signal

**Do learned weights help when only a few positions of a sequence carry the signal?** Yes, most with few examples. On
10,000 windows around splice sites of *C. elegans*, kernels of windows with weights of norm 1 have an average precision
of {learned:.3f}. Equal weights of the same kernels have {uniform:.3f}, one kernel on all positions {whole:.3f}, and
logistic regression on one-hot letters {linear:.3f}.

- **With 70,000 windows the advantage shrinks**: {many:.3f} with norm 1, {many_two:.3f} with norm 2, {many_uniform:.3f}
  with equal weights, {many_whole:.3f} with one kernel. Kernels are approximated there. The linear model, which is not,
  has {many_linear:.3f}; norm 1 is ahead by {interval} (95 % interval).
- **The weights show where the signal is** (picture).
- {ridges}

## Protocol

Acceptor splice sites: 398 bases around an AG in the genome of *C. elegans*; 3 % are true sites. Windows are in the
order of the genome, and the last {test} ({positive} true sites) are the test set, so that it hardly overlaps the
training set. Each stretch of the sequence has a {{class}}`~kernelmosaic.kernels.WeightedDegree` kernel, which compares
words of up to five letters at the same position; the parts before and after the signal have
{{class}}`~kernelmosaic.kernels.Spectrum` kernels. {{class}}`~kernelmosaic.MKLClassifierCV` learns the weights and
chooses C. In low rank (Nyström) every kernel has rank {rank}, and the single kernel has as many features as all of
them.

## Results

Intervals are 95 % bootstrap intervals over the test windows. [All methods](strings.csv), single spectrum kernels
included.

{table}

![Share of the weights by position](../images/{picture})

[Weights](strings_weights.csv).

## Limits

- One genome, one split, one signal.
- **The human set is not evidence.** The script also runs translation starts of human genes ({repeats} random splits),
  where these methods have {human}. {decoys:.0f} % of its decoys share a word of {shared} letters with another decoy,
  so that random splits put the same DNA on both sides; and counts of the four letters before the signal alone have
  {letters:.3f}. This was noticed after the runs.

## Run it

    python studies/strings.py --data FOLDER --groups folds ridge

The files are described under [data sets](../datasets.md). Machine: {machines}.
"""


def draw(table: list[Row]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    problems = [problem for problem in PROBLEMS if any(row["problem"] == problem for row in table)]
    figure, axes = plt.subplots(
        len(problems), 1, figsize=(9, 2.5 * len(problems)), constrained_layout=True, squeeze=False
    )
    for place, problem in zip(axes[:, 0], problems, strict=True):
        kernels = list(dict.fromkeys(row["kernel"] for row in table if row["problem"] == problem))
        for offset, (method, colour) in enumerate(((OURS, "#2f6d9c"), ("MKL, ℓ2", "#d1893c"))):
            shares = [
                np.mean(
                    [
                        r["share"]
                        for r in table
                        if (r["problem"], r["method"], r["kernel"]) == (problem, method, k)
                    ]
                )
                for k in kernels
            ]
            place.bar(
                np.arange(len(kernels)) + 0.4 * offset - 0.2,
                shares,
                0.38,
                color=colour,
                label=LABELS.get(method),
            )
        # Windows are named by where they begin, which reads as a number.
        names = [
            (
                k.replace("words of ", "").replace(" ", " letters\n")
                if isinstance(k, str)
                else f"{k:+.0f}"
            )
            for k in kernels
        ]
        place.set_xticks(range(len(kernels)), names, fontsize=6)
        place.set_title(PROBLEMS[problem], fontsize=9, loc="left")
        place.set_ylabel("share", fontsize=8)
        place.tick_params(axis="y", labelsize=7)
        place.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(fontsize=8, frameon=False)
    axes[-1, 0].set_xlabel(
        "where the window begins, in bases from the signal; words anywhere before and after it",
        fontsize=8,
    )
    figure.savefig(IMAGES / PICTURE, dpi=110, metadata={"Software": None})
    plt.close(figure)


def summary() -> tuple[str, str, str]:
    """Return the study's cells of the overview: ours, the best other, the verdict."""
    rows = {
        row["method"]: row for row in read_table("strings") if row["problem"] == "celegans exact"
    }
    whole = rows[WHOLE]
    interval = f"{whole['behind_low']:.3f} to {whole['behind_high']:.3f}"
    return (
        f"average precision {rows[OURS]['precision']:.3f}",
        f"{whole['precision']:.3f}, one kernel on all positions",
        f"ahead by {interval} (95 % bootstrap interval over {whole['test']:,.0f} test windows)",
    )


def write_page() -> None:
    draw(read_table("strings_weights"))
    common.write_page("strings", page(), summary())


if __name__ == "__main__":
    common.main(__doc__ or "", run, write_page, groups=("folds", "ridge"))
