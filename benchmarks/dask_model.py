"""What rows on Dask workers cost and gain: a model of one machine's measurements, its crossover,
and a soak test.

    python benchmarks/dask_model.py [--quick] [--parts model memory soak] [--picture FILE]

A fit takes as long as its trips to the workers, each with a latency and the bytes it carries, plus
the passes over the rows, which the workers share, plus what the process that called `fit` does
alone:

    time(n, w) = trips × (latency(w) + a row × n) + (work × n + a constant) / w + home × n + a
    constant.

Latency and what a row of numbers costs are measured with tasks that do nothing. The lines of `work`
and `home` go through the CPU times, on the workers and in the calling process, of fits of two sizes
less those of as many such tasks; that of the plain fit, on one core, goes through its own. The
crossover is the least n from which w workers, a core each, beat the plain fit. The part `memory`
fits features that one worker may not hold: in this process, stored and computed again in every
pass, and on workers with a limit of memory. The soak test fits while a worker is killed again and
again, and with one that is slow, and compares with the plain fit.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import describe_machine, print_table
from scale_cpu import WIDTHS, samples

from kernelmosaic import MKLClassifier
from kernelmosaic.gram._dask_features import DaskFeatures
from kernelmosaic.kernels import Gaussian, family

REPEATS = 20
WORKERS = (1, 2, 4, 8, 16)


def cluster(workers: int) -> Any:
    from distributed import LocalCluster

    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)


def model(rank: int, slack: int) -> MKLClassifier:
    kernels = family(Gaussian(), width=WIDTHS)
    return MKLClassifier(kernels, approximation="nystroem", rank=rank, random_state=0, slack=slack)


def nothing(part: object, rows: np.ndarray) -> np.ndarray:
    return rows


def worker_cpu(client: Any) -> float:
    return float(sum(client.run(time.process_time).values()))


@dataclass(frozen=True)
class Trip:
    """Of a trip that does nothing: wall seconds, and CPU seconds here and on the workers."""

    wall: float
    home: float
    away: float


def empty_trip(client: Any, workers: int, n: int) -> Trip:
    """Send n numbers to two partitions a worker and fetch them again; the best wall time, the mean
    CPU times."""
    import dask

    parts = list(dask.persist(*[dask.delayed(np.zeros, pure=False)(1) for _ in range(2 * workers)]))
    rows = np.array_split(np.random.RandomState(0).standard_normal(n), len(parts))
    task = dask.delayed(nothing, pure=False, traverse=False)
    walls: list[float] = []
    for repeat in range(REPEATS + 3):
        if repeat == 3:  # the first few load modules
            away, home = worker_cpu(client), time.process_time()
        start = time.perf_counter()
        dask.compute(
            *[task(part, own) for part, own in zip(parts, rows, strict=True)], optimize_graph=False
        )
        walls.append(time.perf_counter() - start)
    home = time.process_time() - home
    return Trip(min(walls[3:]), home / REPEATS, (worker_cpu(client) - away) / REPEATS)


class Trips:
    """Counts the trips of fits."""

    def __enter__(self) -> Trips:
        self.count, self.original = 0, DaskFeatures.ask
        original, counter = self.original, self

        def ask(stack: DaskFeatures, tasks: list[Any]) -> list[Any]:
            counter.count += 1
            return original(stack, tasks)

        DaskFeatures.ask = ask
        return self

    def __exit__(self, *_: object) -> None:
        DaskFeatures.ask = self.original


@dataclass(frozen=True)
class Fit:
    """A fit: wall seconds, CPU seconds here and on the workers, trips and objective."""

    wall: float
    home: float
    away: float
    trips: int
    objective: float


def fit_on(client: Any, workers: int, n: int, rank: int, slack: int, repeats: int = 2) -> Fit:
    import dask.array as da

    X, y = samples(n)
    rows = da.from_array(X, chunks=(-(-n // (2 * workers)), X.shape[1])).persist()
    fits = []
    for _ in range(repeats):
        with Trips() as trips:
            away, home, start = worker_cpu(client), time.process_time(), time.perf_counter()
            fitted = model(rank, slack).fit(rows, y)
            wall, home = time.perf_counter() - start, time.process_time() - home
        fits.append(Fit(wall, home, worker_cpu(client) - away, trips.count, fitted.objective_))
    return min(fits, key=lambda one: one.home + one.away)


def fit_plain(n: int, rank: int, slack: int) -> Fit:
    X, y = samples(n)
    fits = []
    for _ in range(2):
        home, start = time.process_time(), time.perf_counter()
        fitted = model(rank, slack).fit(X, y)
        wall, home = time.perf_counter() - start, time.process_time() - home
        fits.append(Fit(wall, home, 0.0, 0, fitted.objective_))
    return min(fits, key=lambda one: one.home)


@dataclass(frozen=True)
class Line:
    """Seconds as the number of rows grows; neither part is negative."""

    constant: float
    a_row: float

    @classmethod
    def through(cls, sizes: tuple[int, int], seconds: tuple[float, float]) -> Line:
        (few, many), (less, more) = sizes, seconds
        a_row = float(np.clip((more - less) / (many - few), 0.0, max(more, 0.0) / many))
        return cls(max(more - a_row * many, 0.0), a_row)

    def __call__(self, n: float) -> float:
        return self.constant + self.a_row * n


@dataclass(frozen=True)
class Model:
    """The numbers of the formula above; latencies of one worker and of two, beyond which they grow
    in a line."""

    trips: int
    latency: dict[int, float]
    a_row: float
    work: Line
    home: Line
    plain: Line

    def seconds(self, workers: int) -> Line:
        latency = self.latency[1] + (workers - 1) * max(self.latency[2] - self.latency[1], 0.0)
        constant = self.trips * latency + self.work.constant / workers + self.home.constant
        return Line(constant, self.trips * self.a_row + self.work.a_row / workers + self.home.a_row)

    def crossover(self, workers: int) -> float:
        """Return the least n from which so many workers are faster than the plain fit; infinity if
        none is."""
        theirs = self.seconds(workers)
        gain = self.plain.a_row - theirs.a_row
        return max(theirs.constant - self.plain.constant, 0.0) / gain if gain > 0 else np.inf


def measure(sizes: tuple[int, int], rank: int, slack: int) -> None:
    from distributed import Client

    features, n = rank * len(WIDTHS), sizes[1]
    plain = [fit_plain(size, rank, slack) for size in sizes]
    with cluster(1) as local, Client(local) as client:
        latency = {1: empty_trip(client, 1, 100).wall}
        empty = [empty_trip(client, 1, size) for size in sizes]
        alone = [fit_on(client, 1, size, rank, slack) for size in sizes]
    with cluster(2) as local, Client(local) as client:
        latency[2] = empty_trip(client, 2, 100).wall
        fits = {1: alone[1], 2: fit_on(client, 2, n, rank, slack)}
    pairs = list(zip(alone, empty, strict=True))
    found = Model(
        fits[1].trips,
        latency,
        max(empty[1].wall - latency[1], 0.0) / n,
        Line.through(sizes, tuple(fit.away - fit.trips * trip.away for fit, trip in pairs)),
        Line.through(sizes, tuple(fit.home - fit.trips * trip.home for fit, trip in pairs)),
        Line.through(sizes, tuple(fit.home for fit in plain)),
    )
    print(
        f"\nslack={slack}, D = {features}: {alone[0].trips} and {found.trips} trips a fit of"
        f" {sizes[0]} and {n}, each {1e3 * latency[1]:.0f} ms (1 worker), {1e3 * latency[2]:.0f} ms"
        f" (2) and {1e9 * found.a_row:.0f} ns a row; CPU here {found.home.constant:.2f} s +"
        f" {1e6 * found.home.a_row:.1f} µs a row, on the workers {found.work.constant:.2f} s +"
        f" {1e9 * found.work.a_row / features:.0f} ns a row and feature; plain"
        f" {found.plain.constant:.2f} s + {1e9 * found.plain.a_row / features:.0f} ns a row and"
        " feature"
    )
    rows = [
        (
            "plain",
            f"{plain[1].wall:.2f}",
            "",
            f"{plain[1].home:.2f}",
            "",
            0,
            f"{plain[1].objective:.2f}",
        )
    ]
    for workers, fit in fits.items():
        cpu = f"{fit.home:.2f}", f"{fit.away:.2f}"
        predicted = f"{found.seconds(workers)(n):.2f}"
        rows.append(
            (workers, f"{fit.wall:.2f}", predicted, *cpu, fit.trips, f"{fit.objective:.2f}")
        )
    heads = (
        "workers",
        "seconds",
        "predicted",
        "CPU s here",
        "CPU s on workers",
        "trips",
        "objective",
    )
    print_table(f"Measured and predicted, n = {n}, slack={slack}", heads, rows)
    table = []
    for size in (1e5, 1e6, 1e7, 1e8):
        seconds = (f"{found.seconds(workers)(size):.0f}" for workers in WORKERS)
        table.append((f"{size:.0e}", f"{found.plain(size):.0f}", *seconds))
    crossings = [found.crossover(workers) for workers in WORKERS]
    table.append(("crossover n", "", *(f"{one:.1e}" for one in crossings)))
    table.append(("crossover n × D", "", *(f"{features * one:.1e}" for one in crossings)))
    heads = ("n", "plain", *(f"{workers} workers" for workers in WORKERS))
    print_table(f"Predicted seconds, a core each, D = {features}, slack={slack}", heads, table)


# Memory -------------------------------------------------------------------------------------------


def peak() -> float:
    """Return the most MB that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def fit_within(n: int, rank: int, budget: int | None) -> tuple[Fit, float]:
    """Fit in this process with a budget in bytes; return also the peak in MB."""
    X, y = samples(n)
    home, start = time.process_time(), time.perf_counter()
    fitted = model(rank, 1).set_params(memory_budget=budget).fit(X, y)
    wall, home = time.perf_counter() - start, time.process_time() - home
    return Fit(wall, home, 0.0, 0, fitted.objective_), peak()


def memory(n: int, rank: int, limits: tuple[int, ...]) -> None:
    """Print what fits cost whose features one worker of so many bytes may not hold."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from distributed import Client, LocalCluster

    size = 8 * n * rank * len(WIDTHS)
    table = []

    def note(name: str, fit: Fit, most: float) -> None:
        cpu = f"{fit.home:.1f} + {fit.away:.1f}"
        table.append(
            (name, f"{fit.wall:.1f}", cpu, fit.trips, f"{most:.0f}", f"{fit.objective:.2f}")
        )
        print(*table[-1], flush=True)

    for name, budget in (("stored", 2 * size), ("computed again", size // 4)):
        with ProcessPoolExecutor(
            1, mp_context=get_context("spawn")
        ) as alone:  # so that its peak is its own
            alone.submit(fit_within, 500, 10, None).result()
            fit, most = alone.submit(fit_within, n, rank, budget).result()
        note(f"one process, {name}", fit, most)
    for (
        limit
    ) in limits:  # one worker with the first of them is killed for its memory, again and again
        options = {"threads_per_worker": 1, "dashboard_address": None, "memory_limit": limit}
        with LocalCluster(n_workers=2, **options) as local, Client(local) as client:
            fit_on(client, 2, 2000, rank, 1, repeats=1)
            fit = fit_on(client, 2, n, rank, 1, repeats=1)
            note(f"2 workers of {limit / 1e6:.0f} MB", fit, max(client.run(peak).values()))
    heads = (
        "rows",
        "seconds",
        "CPU s here + workers",
        "trips",
        "peak MB of one process",
        "objective",
    )
    print_table(f"n = {n}, features of {size / 1e6:.0f} MB", heads, table)


def draw(path: str, features: int = 300, held: float = 16e9, again: float = 8.1) -> None:
    """Draw the seconds that the model of the page, `slack=1`, predicts for machines that hold so
    many bytes each.

    `again` is what a fit costs that computes its features in every pass, as a multiple of one that
    stores them.
    """
    from matplotlib.figure import Figure

    work, home, plain = (Line(0.0, each) for each in (210e-9 * features, 27e-6, 270e-9 * features))
    page = Model(83, {1: 0.010, 2: 0.020}, 50e-9, work, home, plain)
    axes = Figure(figsize=(6.4, 3.6), dpi=120, layout="constrained").subplots()
    n = np.geomspace(1e4, 3e8, 400)
    edge = held / (4 * features)  # in single precision; workers keep double
    axes.loglog(
        n, plain(n) * np.where(n <= edge, 1.0, again), color="#333333", label="one machine, no Dask"
    )
    for workers, colour in ((2, "#d1893c"), (4, "#4f9d69"), (16, "#2f6d9c")):
        held_by_all = n[n <= workers * edge / 2]
        axes.loglog(
            held_by_all,
            page.seconds(workers)(held_by_all),
            color=colour,
            label=f"{workers} workers",
        )
    axes.axvline(edge, color="#9a9a9a", linestyle="dotted")
    text = (
        f" one machine of {held / 1e9:.0f} GB\n is full: features are\n computed again\n in every"
        " pass"
    )
    axes.text(edge, 1.5, text, fontsize=8, color="#555555")
    axes.set(
        xlabel=f"rows, with {features} features each", ylabel="seconds, by the model", ylim=(1, 3e5)
    )
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.figure.savefig(path)


# Soak ---------------------------------------------------------------------------------------------


def slow_down(seconds: float) -> None:
    """Make every operation of this worker wait first."""
    from kernelmosaic.gram import _dask_features

    work = _dask_features._operate

    def slow(*args: Any, **options: Any) -> Any:
        time.sleep(seconds)
        return work(*args, **options)

    _dask_features._operate = slow


def kill_now_and_then(client: Any, over: threading.Event, every: float, killed: list[str]) -> None:
    """Kill a worker of the cluster that this process has started, wait, and kill the next."""
    while not over.wait(every):
        workers = client.run(os.getpid, on_error="ignore")
        if len(workers) == 2:
            name = min(workers)
            os.kill(workers[name], signal.SIGKILL)
            killed.append(name)


def soak(n: int, rank: int, rounds: int) -> None:
    import dask.array as da
    from distributed import Client

    X, y = samples(n)
    table = []
    for slack in (1, 2):
        plain = model(rank, slack).fit(X, y)
        for kind in ("killed", "slow"):
            for _ in range(rounds):
                with cluster(2) as local, Client(local) as client:
                    rows = da.from_array(X, chunks=(-(-n // 4), X.shape[1]))
                    over, killed = threading.Event(), []
                    watch = threading.Thread(
                        target=kill_now_and_then, args=(client, over, 3.0, killed)
                    )
                    if kind == "killed":
                        watch.start()
                    else:
                        client.run(
                            slow_down, 0.2, workers=list(client.scheduler_info()["workers"])[:1]
                        )
                    start = time.perf_counter()
                    try:
                        away = model(rank, slack).fit(rows, y)
                        apart = abs(away.objective_ / plain.objective_ - 1)
                        allowed = away.duality_gap_ + plain.duality_gap_
                        result = f"{apart:.1e}", "same" if apart <= allowed else "ANOTHER RESULT"
                    except (
                        Exception
                    ) as error:  # what is to be seen here is whether there is one, and how clear
                        result = "", f"{type(error).__name__}: {error}".splitlines()[0][:70]
                    seconds = time.perf_counter() - start
                    over.set()
                    if kind == "killed":
                        watch.join()
                table.append((slack, kind, len(killed), f"{seconds:.1f}", *result))
                print(*table[-1], flush=True)
    heads = ("slack", "worker", "times", "seconds", "objective apart", "result")
    print_table(f"Soak: n = {n}, 10 kernels × {rank} features, two workers", heads, table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parts = ["model", "memory", "soak"]
    parser.add_argument("--parts", nargs="+", default=parts, choices=parts)
    parser.add_argument(
        "--picture", metavar="FILE", help="draw the model of the page there, and do nothing else"
    )
    options = parser.parse_args()
    if options.picture:
        draw(options.picture)
        return
    print(describe_machine())
    fit_plain(500, 10, 1)  # compiled loops are compiled here
    if "model" in options.parts:
        for slack in (1, 2):
            measure(*(((2000, 8000), 20) if options.quick else ((10_000, 40_000), 30)), slack)
    if "memory" in options.parts:
        memory(
            *(
                (20_000, 20, (800_000_000,))
                if options.quick
                else (80_000, 30, (450_000_000, 800_000_000))
            )
        )
    if "soak" in options.parts:
        soak(*((4000, 20, 1) if options.quick else (20_000, 30, 2)))


if __name__ == "__main__":
    main()
