"""What `uci_classes.py` and `wide.py` share: units that are run, their table, ranks over the sets,
and a picture."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np
from _rivals import BOOSTING, EQUAL, FITS, LEAK, OURS, SVM, TITLES, Split, installed, measure
from common import (
    Row,
    Store,
    data_file,
    device_name,
    in_parallel,
    machine,
    markdown,
    p_text,
    update_table,
    write_table,
)
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from kernelmosaic.stats import wilcoxon, win_tie_loss

#: The machine that sees labels of test samples has figures, but no rank.
UNRANKED = (LEAK,)
FIGURES = ("accuracy", "log_loss", "auc")


class Contest(NamedTuple):
    """A study: its name, its file, how a split is read, how many splits a set of so many samples
    has, its methods.

    `measure` returns the figures of one method on one split.
    """

    name: str
    file: str
    read_split: Callable[[Path, str, int], Split]
    n_splits: Callable[[int], int]
    methods: tuple[str, ...]
    with_area: bool = False
    measure: Callable[..., Row] = measure


class Unit(NamedTuple):
    """One method on one split of one set."""

    set: str
    split: int
    method: str

    @property
    def name(self) -> str:
        return f"{self.set}, {self.split}, {self.method}"


# The run ------------------------------------------------------------------------------------------


def options(about: str, contest: Contest) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument(
        "--data",
        help="folder with the study's files; else the environment variable KERNELMOSAIC_DATA",
    )
    parser.add_argument(
        "--output",
        default="kernelmosaic-studies",
        help="folder of the run; an existing one is resumed",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes that compute, 2 by default")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="SET", help="of the data sets, only these"
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(contest.methods),
        choices=contest.methods,
        help="of the methods, only these",
    )
    parser.add_argument("--most-rows", type=int, metavar="N", help="leave out sets of more samples")
    parser.add_argument(
        "--splits", type=int, metavar="N", help="of each set, only the first N splits"
    )
    parser.add_argument("--minutes", type=float, help="begin no unit after so many minutes")
    parser.add_argument(
        "--device",
        help="where kernelmosaic, xRFM and RFM compute, such as cuda; else on the processor",
    )
    parser.add_argument(
        "--tables",
        nargs="+",
        metavar="RUN",
        help="write tables and page from the runs in these folders; run nothing",
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="make the page from the committed tables, and run nothing",
    )
    return parser.parse_args()


def all_units(path: Path, contest: Contest, most_rows: int | None = None) -> list[Unit]:
    """Return the units set by set, small sets before large ones."""
    with np.load(path) as file:
        sizes = {str(name): len(file[f"{name}_y"]) for name in file["names"]}
    return [
        Unit(name, k, method)
        for name in sorted(sizes, key=lambda one: (sizes[one], one))
        if most_rows is None or sizes[name] <= most_rows
        for k in range(contest.n_splits(sizes[name]))
        for method in contest.methods
    ]


def run_unit(unit: Unit, contest: Contest, path: Path, device: str | None) -> tuple[Unit, Row]:
    """Return the unit's figures; of a fit that fails, what it says."""
    split = contest.read_split(path, unit.set, unit.split)
    try:
        return unit, contest.measure(unit.method, split, device, contest.with_area)
    except Exception as error:  # one method's failure must not end the run of the others
        return unit, {"failed": f"{type(error).__name__}: {error}"}


def run(chosen: argparse.Namespace, contest: Contest) -> None:
    """Run the units that are missing, and say how long each and each method took; a unit that fails
    is not kept."""
    path = data_file(chosen.data, contest.file)
    methods = installed(chosen.methods)
    units = {
        unit.name: unit
        for unit in all_units(path, contest, chosen.most_rows)
        if unit.method in methods
    }
    known = {unit.set for unit in units.values()}
    unknown = [name for name in chosen.only if name not in known]
    if unknown:
        raise SystemExit(
            f"--only {' '.join(unknown)}: no such set here; choose of {', '.join(sorted(known))}."
        )
    store, start = Store(chosen.output, contest.name), time.monotonic()
    due = [unit for unit in units.values() if not chosen.only or unit.set in chosen.only]
    due = [unit for unit in due if chosen.splits is None or unit.split < chosen.splits]
    missing = [unit for unit in due if unit.name not in store.units]

    def begun() -> Iterator[tuple[Any, ...]]:
        for unit in missing:
            if chosen.minutes is not None and time.monotonic() - start > 60 * chosen.minutes:
                return
            yield unit, contest, path, chosen.device

    here, there = machine(), device_name(chosen.device)
    failed: list[str] = []
    taken: dict[str, list[tuple[float, str]]] = {}
    print(f"{len(missing)} of {len(due)} units are to be run.", flush=True)
    for number, (unit, found) in enumerate(in_parallel(chosen.jobs, run_unit, begun()), start=1):
        line = f"{number} of {len(missing)}, {time.monotonic() - start:.0f} s: {unit.name}: "
        if "failed" in found:
            failed.append(unit.name)
            print(line + found["failed"], flush=True)
            continue
        store.add(unit.name, found | {"machine": f"{here}; {there}" if found["device"] else here})
        taken.setdefault(unit.method, []).append((found["seconds"], unit.name))
        print(f"{line}accuracy {found['accuracy']:.4f} in {found['seconds']:.1f} s", flush=True)
    for method, seconds in taken.items():
        mean, (longest, where) = np.mean([one for one, _ in seconds]), max(seconds)
        print(f"{method}: {mean:.1f} s a unit, at most {longest:.1f} s ({where})")
    print(
        f"{len(store.missing(units))} of {len(units)} units are missing in {store.path};"
        f" {len(failed)} failed."
    )


def write_tables(runs: Sequence[str], contest: Contest, path: Path) -> None:
    """Write one line for every unit of the runs, the last one of a unit that several have; lines of
    others stay."""
    found: Row = {}
    for folder in runs:
        found |= Store(folder, contest.name).units
    rows = []
    for unit in all_units(path, contest):
        if unit.name in found:
            one = found[unit.name]
            line = {"set": unit.set, "split": unit.split, "method": unit.method}
            line |= {key: one[key] for key in ("train", "test", "columns")}
            line |= {
                key: f"{one[key]:.6g}" if key in one else ""
                for key in FIGURES
                if key != "auc" or contest.with_area
            }
            # Cores are shared with other work, a GPU is not.
            line["seconds"] = f"{one['seconds' if one['device'] else 'cpu_seconds']:.2f}"
            rows.append(line | {"device": one["device"]})
    if not rows:
        raise SystemExit(
            f"--tables {' '.join(runs)}: no units of {contest.name} there; name the folders of its"
            " runs."
        )
    machines = dict.fromkeys(one["machine"] for one in found.values())
    update_table(f"{contest.name}_machines", [{"machine": one} for one in machines], ["machine"])
    update_table(contest.name, rows, ["set", "split", "method"])


def main(
    about: str,
    contest: Contest,
    write_page: Callable[[], None],
    write_more: Callable[[Any], None] | None = None,
) -> None:
    """Do what the command line says; `write_more` writes further tables."""
    chosen = options(about, contest)
    if chosen.tables:
        write_tables(chosen.tables, contest, data_file(chosen.data, contest.file))
        if write_more:
            write_more(chosen)
    if chosen.tables or chosen.page:
        write_page()
    else:
        run(chosen, contest)


# Figures over the sets ----------------------------------------------------------------------------


def title(method: str) -> str:
    """Return the name of a method on the page; published ones have that of their table."""
    return TITLES.get(method, method)


def has_tables(name: str) -> bool:
    return (common.TABLES / f"{name}.csv").exists()


def _unrounded(row: Row, figure: str) -> float:
    """Return a figure of a row; a rounded accuracy as a share of the test samples, so that equal
    ones are equal."""
    value = float(row[figure])
    if figure != "accuracy" or row.get("test", "") == "":
        return value
    share = round(value * row["test"]) / row["test"]
    return share if abs(share - value) < 1e-5 else value


class Figures:
    """Means over the splits, of sets on which a method has all that any has, and what follows over
    the sets.

    Attributes
    ----------
    sets, methods : list of str
        In the order of the table.
    splits : dict
        How many splits the table has of each set.
    least : float
        Share of the sets that a ranked method must have.
    """

    def __init__(self, rows: Sequence[Row], least: float = 0.5) -> None:
        self.rows, self.least = rows, least
        self.sets = list(dict.fromkeys(str(row["set"]) for row in rows))
        order = {method: k for k, method in enumerate(FITS)}
        self.methods = sorted(
            {str(row["method"]) for row in rows}, key=lambda one: (order.get(one, len(order)), one)
        )
        self._rows: dict[tuple[str, str], dict[int, Row]] = {}
        for row in rows:
            self._rows.setdefault((str(row["set"]), str(row["method"])), {})[int(row["split"])] = (
                row
            )
        self.splits = {
            name: len({k for method in self.methods for k in self._rows.get((name, method), {})})
            for name in self.sets
        }

    def of(self, name: str, method: str, figure: str = "accuracy") -> dict[int, float]:
        """Return a figure of every split that the method has it of."""
        own = {
            k: row
            for k, row in sorted(self._rows.get((name, method), {}).items())
            if row.get(figure, "") != ""
        }
        return {k: _unrounded(row, figure) for k, row in own.items()}

    def complete(self, method: str) -> list[str]:
        """Return the sets of which the method has all splits."""
        return [name for name in self.sets if len(self.of(name, method)) == self.splits[name]]

    def means(self, method: str, sets: Iterable[str], figure: str = "accuracy") -> np.ndarray:
        """Return the mean over the splits of each set; NaN where there is none."""
        values = (list(self.of(name, method, figure).values()) for name in sets)
        return np.array([np.mean(own) if own else np.nan for own in values])

    @property
    def ranked(self) -> list[str]:
        """The methods that have at least this share of the sets that the most complete one has."""
        counts = {
            method: len(self.complete(method)) for method in self.methods if method not in UNRANKED
        }
        most = max(counts.values(), default=0)
        return [method for method, count in counts.items() if 0 < self.least * most <= count]

    @property
    def compared(self) -> list[str]:
        """The sets of which all ranked methods have all splits."""
        complete = [set(self.complete(method)) for method in self.ranked]
        return [name for name in self.sets if all(name in own for own in complete)]

    def ranks(self) -> dict[str, float]:
        """Return the mean ranks by accuracy over the compared sets, 1 the best; equal ones share
        their mean rank."""
        means = np.round([self.means(method, self.compared) for method in self.ranked], 9).T
        return dict(zip(self.ranked, rankdata(-means, axis=1).mean(axis=0).tolist(), strict=True))

    def friedman(self) -> float:
        """Return the p-value of Friedman's test of the ranks; 1 where there are too few methods for
        one."""
        if len(self.ranked) < 3 or not self.compared:
            return 1.0
        return float(
            friedmanchisquare(*(self.means(method, self.compared) for method in self.ranked)).pvalue
        )

    def pair(self, a: str, b: str) -> Pair:
        shared = [name for name in self.complete(a) if name in self.complete(b)]
        return Pair(shared, self.means(a, shared), self.means(b, shared))

    def pair_of_splits(self, a: str, b: str) -> Pair:
        """Return both methods on the splits that both have, also of sets of which one lacks
        some."""
        means = {}
        for name in self.sets:
            first, second = self.of(name, a), self.of(name, b)
            splits = first.keys() & second.keys()
            if splits:
                means[name] = [np.mean([values[k] for k in splits]) for values in (first, second)]
        return Pair(list(means), *np.array(list(means.values())).T)


class Pair(NamedTuple):
    """The accuracies of two methods on the sets that both have."""

    sets: list[str]
    first: np.ndarray
    second: np.ndarray

    @property
    def points(self) -> float:
        return float(100 * np.mean(self.first - self.second))

    @property
    def p(self) -> float:
        return float(wilcoxon(self.first, self.second).p_value)

    def cells(self) -> list[str]:
        won = win_tie_loss(self.first, self.second)
        counts = f"{won.wins} / {won.ties} / {won.losses}"
        return [f"{self.points:+.2f}", counts, p_text(self.p)]

    def said(self) -> str:
        """Return the figures as part of a sentence."""
        won = win_tie_loss(self.first, self.second)
        ties = f", equal on {won.ties}" if won.ties else ""
        counts = f"better on {won.wins} of {len(self.sets)} sets{ties}"
        return f"{self.points:+.2f} points of accuracy, {counts} (*p* = {p_text(self.p)})"


def critical_difference(n_methods: int, n_sets: int, level: float = 0.05) -> float:
    """Return by how much two mean ranks must differ to be told apart by Nemenyi's test of all
    pairs."""
    q = studentized_range.ppf(1 - level, n_methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_sets)))


def cliques(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Return first and last of the runs of sorted ranks within a difference; none that lies within
    another."""
    runs = []
    for first, rank in enumerate(ranks):
        last = max(k for k, one in enumerate(ranks) if one - rank <= difference)
        if last > first and not (runs and runs[-1][1] == last):
            runs.append((first, last))
    return runs


def draw_ranks(figures: Figures, path: Path) -> None:
    """Draw the mean ranks on a line; bars join those that Nemenyi's test does not tell apart."""
    from matplotlib.figure import Figure

    ranks = sorted(figures.ranks().items(), key=lambda one: one[1])
    k = len(ranks)
    difference = critical_difference(k, len(figures.compared))
    half, rows = (k + 1) // 2, k // 2 + 2
    figure = Figure(figsize=(9, 1.2 + 0.28 * rows), layout="constrained")
    ax = figure.subplots()
    ax.plot([1, k], [0, 0], color="black", linewidth=1)
    for tick in range(1, k + 1):
        ax.plot([tick, tick], [0, 0.15], color="black", linewidth=1)
        ax.text(tick, 0.25, str(tick), ha="center", va="bottom", fontsize=8)
    bars = cliques([rank for _, rank in ranks], difference)
    for row, (first, last) in enumerate(bars):
        y = -0.25 - 0.18 * row
        ax.plot([ranks[first][1] - 0.03, ranks[last][1] + 0.03], [y, y], color="black", linewidth=3)
    below = -0.5 - 0.18 * len(bars)
    for place, (method, rank) in enumerate(ranks):
        left = place < half
        y = below - 0.5 * (place if left else k - 1 - place)
        end = 0.8 if left else k + 0.2
        ax.plot([rank, rank, end], [0, y, y], color="0.4", linewidth=0.8)
        label = f"{title(method)}  {rank:.2f}" if left else f"{rank:.2f}  {title(method)}"
        ax.text(end, y, f" {label} ", ha="right" if left else "left", va="center", fontsize=9)
    ax.plot([1, 1 + difference], [0.95, 0.95], color="black", linewidth=2)
    ax.text(
        1 + difference / 2,
        1.05,
        f"critical difference {difference:.2f}",
        ha="center",
        va="bottom",
        fontsize=8,
    )
    ax.set_xlim(1 - 0.45 * k, k + 0.45 * k)
    ax.axis("off")
    figure.savefig(path, dpi=95, metadata={"Software": None})


# Parts of a page ----------------------------------------------------------------------------------


def methods_table(figures: Figures, other: str, head: str) -> str:
    """Return every method's means and rank over the compared sets, and kernelmosaic beside it on
    those both have."""
    ranks, sets = figures.ranks(), figures.compared
    order = sorted(ranks, key=lambda method: ranks[method])
    lines = []
    for method in [
        *order,
        *(one for one in figures.methods if one not in ranks and figures.complete(one)),
    ]:
        sure = set(sets) <= set(figures.complete(method))

        def cell(
            figure: str, form: str, factor: float = 1.0, method: str = method, sure: bool = sure
        ) -> str:
            value = (
                factor * np.mean(figures.means(method, sets, figure)) if sure and sets else np.nan
            )
            return "" if np.isnan(value) else format(value, form)

        pair = figures.pair(OURS, method)
        lines.append(
            [
                *(
                    title(method),
                    cell("accuracy", ".2f", 100.0),
                    f"{ranks[method]:.2f}" if method in ranks else "",
                ),
                *(cell(other, ".3f"), cell("seconds", ".1f")),
                *(pair.cells() if method != OURS and pair.sets else [""] * 3),
            ]
        )
    heads = ["method", "accuracy, %", "mean rank", head, "seconds"]
    return markdown([*heads, "points", "better / equal / worse", "*p*"], lines)


def results(figures: Figures, contest: Contest, other: str, head: str) -> Row:
    """Return what the section of results has on every page: its table, how many sets and splits,
    the machines."""
    return {
        "table": methods_table(figures, other, head),
        "n_compared": len(figures.compared),
        "n_sets": len(figures.sets),
        "splits_run": splits_run(figures, contest.n_splits),
        "difference": f"{critical_difference(len(figures.ranked), len(figures.compared)):.2f}",
        "machines": common.machines(f"{contest.name}_machines"),
    }


def write_sets(figures: Figures, name: str) -> None:
    """Write the mean accuracy of every method on every set, in percent; nothing where splits are
    missing."""
    complete = {method: set(figures.complete(method)) for method in figures.methods}
    lines = []
    for one in figures.sets:
        first = next(row for row in figures.rows if row["set"] == one)
        line: Row = {
            "set": one,
            "train": f"{first['train']:.0f}",
            "columns": f"{first['columns']:.0f}",
        }
        for method in figures.methods:
            mean = 100 * figures.means(method, [one])[0]
            line[title(method)] = f"{mean:.1f}" if one in complete[method] else ""
        lines.append(line)
    write_table(f"{name}_sets", lines)


def splits_run(figures: Figures, n_splits: Callable[[int], int]) -> str:
    """Say of which sets fewer splits were run than are published."""
    sizes = {
        str(row["set"]): int(row["train"] + row["test"])
        for row in figures.rows
        if row.get("train", "") != ""
    }
    fewer = [name for name in figures.sets if figures.splits[name] < n_splits(sizes[name])]
    if not fewer:
        return "All published ones were run."
    counts = " or ".join(map(str, sorted({figures.splits[name] for name in fewer})))
    least = min(sizes[name] for name in fewer)
    return (
        f"{len(fewer)} sets, of {least:,} samples or more, were run on {counts} of the published"
        " splits only."
    )


def behind(figures: Figures, count: int = 3) -> str:
    """Name the sets on which kernelmosaic is furthest behind the best of the ranked methods, with
    both figures."""
    rivals = [method for method in figures.ranked if method != OURS]
    sets = figures.complete(OURS)  # also those that another method lacks
    own = figures.means(OURS, sets)
    others = np.full((len(rivals), len(sets)), -np.inf)
    for row, method in zip(others, rivals, strict=True):
        there = np.isin(sets, figures.complete(method))
        row[there] = figures.means(method, np.array(sets)[there].tolist())
    off = others.max(axis=0) - own
    found = [
        f"{sets[k]} ({100 * own[k]:.1f} for {100 * others[:, k].max():.1f},"
        f" {title(rivals[others[:, k].argmax()])})"
        for k in np.argsort(-off, kind="stable")[:count]
        if off[k] > 0
    ]
    return ", ".join(found) or "none"


def not_run(figures: Figures) -> str:
    """Name the sizes of the sets that have figures of other methods alone, as a line of the
    limits."""
    sizes = {
        str(row["set"]): int(row["train"] + row["test"])
        for row in figures.rows
        if row.get("train", "") != ""
    }
    missing = [sizes[name] for name in figures.sets if not figures.of(name, OURS)]
    if not missing:
        return ""
    return (
        f"- kernelmosaic was not run on {len(missing)} sets, of {min(missing):,} to"
        f" {max(missing):,} samples.\n"
    )


def answer(figures: Figures) -> str:
    """Return the primary figure, and kernelmosaic beside the methods of interest."""
    ranks = figures.ranks()
    order = sorted(ranks, key=lambda one: ranks[one])
    best = ", ".join(f"{title(one)} ({ranks[one]:.2f})" for one in order[:3])
    number = len(figures.compared)
    lines = [
        (
            f"Over {number} of {len(figures.sets)} sets it has a mean rank of {ranks[OURS]:.2f}"
            f" among {len(ranks)} methods"
        ),
        f"(Friedman's test, *p* = {p_text(figures.friedman())}). The best mean ranks are {best}.",
        "",
    ]
    others = dict.fromkeys(
        one for one in (*order[:2], EQUAL, SVM, BOOSTING) if one != OURS and one in figures.methods
    )
    lines += [
        f"- **Against {title(one)}**: {pair.said()}."
        for one in others
        if (pair := figures.pair(OURS, one)).sets
    ]
    return "\n".join(lines)


def summary(figures: Figures | None) -> tuple[str, str, str]:
    """Return a study's cells of the overview: ours, the best other, the verdict."""
    if figures is None or not figures.compared:
        return "not run yet", "", ""
    ranks, sets = figures.ranks(), figures.compared
    best = min((one for one in ranks if one != OURS), key=lambda one: ranks[one])
    ours, other = (100 * np.mean(figures.means(one, sets)) for one in (OURS, best))
    place = 1 + sum(rank < ranks[OURS] for rank in ranks.values())
    return (
        f"accuracy {ours:.2f} %, mean rank {ranks[OURS]:.2f}",
        f"{other:.2f} %, mean rank {ranks[best]:.2f}, {title(best)}",
        (
            f"rank {place} of {len(ranks)} methods over {len(sets)} sets (Wilcoxon against"
            f" {title(best)}, *p* = {p_text(figures.pair(OURS, best).p)})"
        ),
    )
