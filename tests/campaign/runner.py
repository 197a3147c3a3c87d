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
from tests.campaign.certificates import Dishonest, check_fit
from tests.campaign.problems import DrawnProblem, draw

#: A fit that takes longer, in seconds, is too slow; ...
SLOW = 5.0
#: ... and one that takes as long as this is ended.
ENDLESS = 60.0
#: What must not happen.
FAILURES = ("CRASH", "DISHONEST", "SLOW", "ENDLESS")
#: What an error may name beside the estimator's parameters.
_ALSO = ("X", "y", "sample_weight", "kernel", "kernels", "Gaussian", "Laplacian", "Linear", "Polynomial", "Precomputed")


@dataclass(frozen=True)
class Outcome:
    """What became of one problem.

    Attributes
    ----------
    kind : str
        "ok"; "warned", not converged but honest; "refused", by a ValueError that names a parameter; or a failure.
    seconds : float
        What the fit took.
    shown : str
        How the gap was checked: by the returned coefficients ("gap"), by a "conic" solver, not at all ("unknown"), or
        as far as "rounding" allows.
    """

    seed: int
    index: int
    kind: str
    seconds: float = 0.0
    shown: str = ""
    detail: str = ""
    joint: bool = False

    @property
    def failed(self) -> bool:
        return self.kind in FAILURES

    def __str__(self) -> str:
        return (
            f"{self.kind} ({self.seconds:.2f} s) {draw(self.seed, self.index)}\n    {self.detail}\n"
            f"    python -m tests.campaign --seed {self.seed} --index {self.index}"
        )


def run_one(seed: int, index: int, *, patience: float = SLOW) -> Outcome:
    """Fit and check one problem."""
    problem = draw(seed, index)
    kind, seconds, shown, detail = _attempt(problem)
    if seconds > patience:
        # The first fit of its kind compiles loops: what counts is the second.
        kind, seconds, shown, detail = _attempt(problem)
        if seconds > patience and kind not in FAILURES:
            kind = "SLOW"
    return Outcome(seed, index, kind, seconds, shown, detail, problem.joint)


def _attempt(problem: DrawnProblem) -> tuple[str, float, str, str]:
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = problem.fit(problem.estimator())
        except Exception as error:
            seconds = time.process_time() - start
            kind = "refused" if _is_clear(problem, error) else "CRASH"
            return kind, seconds, "", f"{type(error).__name__}: {error}"
    seconds = time.process_time() - start
    arithmetic = [one for one in caught if issubclass(one.category, RuntimeWarning) and "kernelmosaic" in one.filename]
    if arithmetic:
        return "CRASH", seconds, "", f"warning of arithmetic: {arithmetic[0].message} ({arithmetic[0].filename})"
    stopped = [str(one.message) for one in caught if issubclass(one.category, ConvergenceWarning)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shown = check_fit(problem, model)
    except Dishonest as fault:
        return "DISHONEST", seconds, "", str(fault)
    except Exception as error:
        return "CRASH", seconds, "", f"after the fit, {type(error).__name__}: {error}"
    if not stopped and model.duality_gap_ > model.tol:
        return "DISHONEST", seconds, shown, f"duality_gap_={model.duality_gap_:.3g} is above tol without a warning"
    return ("warned" if stopped else "ok"), seconds, shown, "; ".join(stopped)


def _is_clear(problem: DrawnProblem, error: Exception) -> bool:
    """Whether an error is one of ours: about the values given, and naming a parameter or argument."""
    if type(error) is not ValueError:
        return False
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in str(error)).split())
    return bool(words & {*problem.estimator().get_params(deep=False), *_ALSO})


# Many ----------------------------------------------------------------------------------------------------------------


def run_many(
    seed: int, indices: Iterable[int], n_jobs: int = 1, each: Callable[[Outcome], None] = lambda outcome: None
) -> list[Outcome]:
    """Run problems in worker processes, which are ended when a fit does not; return the outcomes in any order."""
    found: list[Outcome] = []
    workers: list[_Worker] = []
    todo = iter(indices)
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

    def take(self, todo: Iterator[int]) -> bool:
        """Begin the next problem; False if there is none."""
        index = next(todo, None)
        if index is not None:
            self.index, self.begun = index, time.monotonic()
            self.ours.send(index)
        return index is not None

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
        return Outcome(self.seed, self.index, kind, seconds, detail=detail, joint=draw(self.seed, self.index).joint)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.ours.close()


def _work(seed: int, pipe: Any) -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    while True:
        try:
            index = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        pipe.send(run_one(seed, index))


def report(outcomes: list[Outcome]) -> str:
    """Return counts, times and failures in words."""
    if not outcomes:
        return "no problems were run"
    lines = [f"{len(outcomes)} problems of seed {outcomes[0].seed}"]
    for title, joint in (("one output at a time", False), ("all classes in one problem", True)):
        group = [outcome for outcome in outcomes if outcome.joint == joint]
        if group:
            kinds, shown = Counter(one.kind for one in group), Counter(one.shown for one in group if one.shown)
            half, most = np.percentile([one.seconds for one in group], [50, 99])
            longest = max(one.seconds for one in group)
            lines += [
                f"{title}: {_counts(kinds)}; gaps shown by: {_counts(shown)}",
                f"    seconds per fit: median {half:.3f}, 99th percentile {most:.2f}, longest {longest:.2f}",
            ]
    return "\n".join([*lines, *(str(outcome) for outcome in outcomes if outcome.failed)])


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())
