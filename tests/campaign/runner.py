"""Runs random problems one by one in worker processes, and says what became of each."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from tests.campaign import certificates, fifth, fourth, problems, sixth, third
from tests.campaign.second import judge
from tests.campaign.second import problems as second

#: A fit that takes longer, in seconds, is too slow; ...
SLOW = 5.0
#: ... and one that takes as long as this is ended.
ENDLESS = 60.0
#: The generators by name: how a problem is drawn, and what judges the fit.
GENERATORS: dict[str, tuple[Callable[[int, int], Any], Callable[[Any, Any], str]]] = {
    "first": (problems.draw, certificates.check_fit),
    "second": (second.draw, judge.check_fit),
    "third": (third.draw, third.check_fit),
    "fourth": (fourth.draw, fourth.check_fit),
    "fifth": (fifth.draw, fifth.check_fit),
    "sixth": (sixth.draw, sixth.check_fit),
}
#: Generators of problems of which nothing is so extreme that rounding would explain a gap above
#: `tol`.
MUST_CONVERGE = ("fifth",)
#: How a judge says that its bound of rounding, which is not the library's, is larger than the
#: tolerance.
HIDDEN = "rounding"
#: What every warning of a tolerance that is not met names, and what only the warning of other fits
#: of a search does: at the ends of a grid these may be hidden by rounding, and the fit that is
#: chosen warns by itself.
_UNMET, _IN_SEARCH = "tol=", "fits stopped above"
#: A share of problems that end at a gap of one or more although nothing is extreme, beyond which
#: the report says so.
_FEW = 0.02
#: What must not happen.
FAILURES = ("CRASH", "DISHONEST", "SLOW", "ENDLESS", "UNREACHED")
#: What an error may name beside the estimator's parameters.
_ALSO = (
    "X",
    "y",
    "sample_weight",
    "kernel",
    "kernels",
    "Gaussian",
    "Laplacian",
    "Linear",
    "Polynomial",
    "Precomputed",
    "Pairwise",
)


@dataclass(frozen=True)
class Outcome:
    """What became of one problem.

    Attributes
    ----------
    kind : str
        "ok"; "warned", of something else than the tolerance; "rounding", a tolerance that is not
        met where the judge shows that rounding is larger; "refused", by a ValueError that names a
        parameter; or a failure, which any other tolerance that is not met is, too ("UNREACHED").
    seconds : float
        What the fit took.
    shown : str
        How the gap was checked: by the returned coefficients ("gap"), by a "conic" solver, not at
        all ("unknown"), or as far as "rounding" allows; see the judges.
    joint : bool
        Whether all classes are told apart in one problem.
    generator : str
        One of `GENERATORS`.
    boundless : bool
        Whether the gap, with a warning, is one or more, which bounds nothing, although nothing
        asked for is extreme.
    solver : str
        What was asked to learn the weights; empty where they are given, or where no gap is stated.
    """

    seed: int
    index: int
    kind: str
    seconds: float = 0.0
    shown: str = ""
    detail: str = ""
    joint: bool = False
    generator: str = "first"
    boundless: bool = False
    solver: str = ""

    @property
    def failed(self) -> bool:
        return self.kind in FAILURES

    def __str__(self) -> str:
        return (
            f"{self.kind} ({self.seconds:.2f} s)"
            f" {GENERATORS[self.generator][0](self.seed, self.index)}\n    {self.detail}\n   "
            f" python -m tests.campaign --generator {self.generator} --seed {self.seed} --index"
            f" {self.index}"
        )


def run_one(seed: int, index: int, *, generator: str = "first", patience: float = SLOW) -> Outcome:
    """Fit and check one problem."""
    draw, check_fit = GENERATORS[generator]
    problem = draw(seed, index)
    kind, seconds, shown, detail, gap = _attempt(problem, check_fit)
    if seconds > patience:
        # The first fit of its kind compiles loops: what counts is the second.
        kind, seconds, shown, detail, gap = _attempt(problem, check_fit)
    if kind == "rounding" and generator in MUST_CONVERGE:
        kind = "UNREACHED"
    if seconds > patience and kind not in FAILURES:
        kind = "SLOW"
    boundless = gap >= 1.0 and getattr(problem, "moderate", False)
    return Outcome(
        seed,
        index,
        kind,
        seconds,
        shown,
        detail,
        problem.joint,
        generator,
        boundless,
        _solver_of(problem),
    )


def _solver_of(problem: Any) -> str:
    """Return the solver that a problem asks to learn weights; empty where there is none."""
    parameters = getattr(problem, "parameters", {})
    if parameters.get("weights") is not None:
        return ""
    return str(parameters.get("solver", "newton"))


def _attempt(
    problem: Any, check_fit: Callable[[Any, Any], str]
) -> tuple[str, float, str, str, float]:
    """Return the kind of outcome, the seconds of a fit, how the gap was shown, what there is to
    say, and the gap."""
    start, fits = (
        time.process_time(),
        len(getattr(problem, "makers", [None])),
    )  # twins are fitted one by one
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = problem.fit(problem.estimator())
        except Exception as error:
            seconds = (time.process_time() - start) / fits
            kind = "refused" if _is_clear(problem, error) else "CRASH"
            return kind, seconds, "", f"{type(error).__name__}: {error}", 0.0
    seconds = (time.process_time() - start) / fits
    arithmetic = [
        one
        for one in caught
        if issubclass(one.category, RuntimeWarning) and "kernelmosaic" in one.filename
    ]
    if arithmetic:
        found = (
            f"warning of arithmetic: {arithmetic[0].message}"
            f" ({arithmetic[0].filename}:{arithmetic[0].lineno})"
        )
        return "CRASH", seconds, "", found, 0.0
    stopped = [str(one.message) for one in caught if issubclass(one.category, ConvergenceWarning)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shown = check_fit(problem, model)
    except (certificates.Dishonest, judge.Contradiction) as fault:
        return "DISHONEST", seconds, "", str(fault), 0.0
    except Exception as error:
        return "CRASH", seconds, "", f"after the fit, {type(error).__name__}: {error}", 0.0
    # Ridge has slopes, of several targets by interpolation, in place of a gap.
    gap = float(getattr(model, "duality_gap_", 0.0))
    if not stopped and gap > model.tol:
        return (
            "DISHONEST",
            seconds,
            shown,
            f"duality_gap_={gap:.3g} is above tol without a warning",
            gap,
        )
    return _kind_of(stopped, gap <= model.tol, shown), seconds, shown, "; ".join(stopped), gap


def _kind_of(stopped: list[str], is_closed: bool, shown: str) -> str:
    """Return what became of an honest fit, from its warnings, whether its gap is within `tol`, and
    its judge's word."""
    if is_closed and not any(
        _UNMET in message and _IN_SEARCH not in message for message in stopped
    ):
        return "warned" if stopped else "ok"
    return "rounding" if shown == HIDDEN else "UNREACHED"


def _is_clear(problem: Any, error: Exception) -> bool:
    """Whether an error is one of ours: about the values given, and naming a parameter or
    argument."""
    if type(error) is not ValueError:
        return False
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in str(error)).split())
    estimator = problem.estimator()
    known = (
        estimator.get_params(deep=False) if hasattr(estimator, "get_params") else vars(estimator)
    )
    return bool(words & {*known, *_ALSO})


# Many ---------------------------------------------------------------------------------------------


def run_many(
    seed: int,
    numbers: Iterable[tuple[str, int]],
    n_jobs: int = 1,
    each: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run problems, given by generator and number, in worker processes; return the outcomes in any
    order.

    A process whose fit does not end is ended.
    """
    found: list[Outcome] = []
    workers: list[_Worker] = []
    todo = iter(numbers)
    try:
        workers = [_Worker(seed) for _ in range(n_jobs)]
        busy = [worker for worker in workers if worker.take(todo)]
        while busy:
            wait([worker.ours for worker in busy], timeout=1.0)
            for worker in list(busy):
                outcome = worker.outcome()
                if outcome is None:
                    continue
                found.append(outcome)
                each(outcome)
                if not worker.take(todo):
                    busy.remove(worker)
    finally:
        for worker in workers:
            worker.end()
    return found


class _Worker:
    """A process that runs one problem at a time."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.start()

    def start(self) -> None:
        context = get_context("spawn")
        self.ours, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(self.seed, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.fresh = True

    def take(self, todo: Iterator[tuple[str, int]]) -> bool:
        """Begin the next problem; False if there is none."""
        number = next(todo, None)
        if number is not None:
            (self.generator, self.index), self.begun = number, time.monotonic()
            self.ours.send(number)
        return number is not None

    def outcome(self) -> Outcome | None:
        """Return what became of the problem, None while it is running."""
        try:
            if self.ours.poll():
                self.fresh = False
                outcome: Outcome = self.ours.recv()
                return outcome
        except (EOFError, OSError):
            return self._ended("CRASH", f"the process ended with exit code {self.process.exitcode}")
        # A new process has to import the library first.
        seconds = time.monotonic() - self.begun
        if seconds > ENDLESS * (2.0 if self.fresh else 1.0):
            return self._ended("ENDLESS", f"ended after {seconds:.0f} s")
        return None

    def _ended(self, kind: str, detail: str) -> Outcome:
        seconds = time.monotonic() - self.begun
        self.end()
        self.start()
        joint = GENERATORS[self.generator][0](self.seed, self.index).joint
        return Outcome(
            self.seed,
            self.index,
            kind,
            seconds,
            detail=detail,
            joint=joint,
            generator=self.generator,
        )

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.ours.close()


def _work(seed: int, pipe: Any) -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    while True:
        try:
            generator, index = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        pipe.send(run_one(seed, index, generator=generator))


def report(outcomes: list[Outcome]) -> str:
    """Return counts, times and failures in words."""
    if not outcomes:
        return "no problems were run"
    several = {name: [one for one in outcomes if one.generator == name] for name in GENERATORS}
    return "\n".join(_report(own) for own in several.values() if own)


def _report(outcomes: list[Outcome]) -> str:
    lines = [
        f"{len(outcomes)} problems of seed {outcomes[0].seed}, {outcomes[0].generator} generator"
    ]
    for title, joint in (("one output at a time", False), ("all classes in one problem", True)):
        group = [outcome for outcome in outcomes if outcome.joint == joint]
        if group:
            kinds, shown = (
                Counter(one.kind for one in group),
                Counter(one.shown for one in group if one.shown),
            )
            half, most = np.percentile([one.seconds for one in group], [50, 99])
            longest = max(one.seconds for one in group)
            lines += [
                f"{title}: {_counts(kinds)}; gaps shown by: {_counts(shown)}",
                (
                    f"    seconds per fit: median {half:.3f}, 99th percentile {most:.2f}, longest"
                    f" {longest:.2f}"
                ),
            ]
    lines += _reached_lines(outcomes)
    boundless = sum(one.boundless for one in outcomes)
    if boundless > _FEW * len(outcomes):
        lines.append(
            f"{boundless / len(outcomes):.1%} end at a gap of one or more although nothing is"
            " extreme"
        )
    return "\n".join([*lines, *(str(outcome) for outcome in outcomes if outcome.failed)])


def _reached_lines(outcomes: list[Outcome]) -> list[str]:
    """Return how many of the fits of each solver reached the tolerance that was asked for."""
    fits = [
        one for one in outcomes if one.kind in ("ok", "warned", "SLOW", "rounding", "UNREACHED")
    ]
    lines = []
    for solver in sorted({one.solver for one in fits}):
        kinds = Counter(one.kind for one in fits if one.solver == solver)
        reached = kinds["ok"] + kinds["warned"] + kinds["SLOW"]
        line = f"reached tol, {solver or 'given weights'}: {reached} of {kinds.total()}"
        if kinds["rounding"]:
            line += f", where rounding hides the tolerance of {kinds['rounding']}"
        lines.append(line)
    return lines


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())
