"""`python -m tests.campaign`: many random problems, or one of them again."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from dataclasses import asdict
from pathlib import Path

from tests.campaign.runner import GENERATORS, Outcome, report, run_many, run_one


def main() -> int:
    """Run what the command line asks for; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument(
        "--generator", choices=[*GENERATORS, "all"], default="all", help="what draws and judges"
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="of the problems; drawn anew if not given"
    )
    parser.add_argument(
        "--index", type=int, help="run this one problem here and print what becomes of it"
    )
    parser.add_argument(
        "--count", type=int, default=1000, help="how many problems of each generator"
    )
    parser.add_argument("--n-jobs", type=int, default=2, help="worker processes")
    parser.add_argument("--joint", action="store_true", help="only problems of all classes at once")
    parser.add_argument(
        "--log", type=Path, help="keep outcomes in this file, and go on where it ends"
    )
    given = parser.parse_args()
    known = _read(given.log) if given.log else []
    seed = (
        given.seed
        if given.seed is not None
        else known[0].seed
        if known
        else secrets.randbelow(2**31)
    )
    generators = list(GENERATORS) if given.generator == "all" else [given.generator]
    if given.index is not None:
        found = [run_one(seed, given.index, generator=generator) for generator in generators]
        print(*found, sep="\n")
        return int(any(one.failed for one in found))
    failed = False
    for generator in generators:
        outcomes = [
            o for o in known if (o.seed, o.generator) == (seed, generator) and o.index < given.count
        ]
        interrupted = _run(given, generator, seed, outcomes)
        print("\n" + report(outcomes))
        failed |= any(one.failed for one in outcomes)
        if interrupted:
            break
    return int(failed)


def _run(given: argparse.Namespace, generator: str, seed: int, outcomes: list[Outcome]) -> bool:
    """Run the problems of one generator that the log does not hold; return whether Ctrl-C ended
    it."""
    todo = sorted(set(range(given.count)) - {one.index for one in outcomes})
    if given.joint:
        todo = [index for index in todo if GENERATORS[generator][0](seed, index).joint]
    total = len(outcomes) + len(todo)

    def each(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if given.log:
            with given.log.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
        failed = sum(one.failed for one in outcomes)
        where = f"{len(outcomes)} of {total} problems of seed {seed}, {generator} generator"
        if sys.stdout.isatty():
            print(f"\r{where}, {failed} failed", end="", flush=True)
        elif len(outcomes) % 500 == 0:
            print(f"{where}, {failed} failed", flush=True)

    try:
        run_many(seed, [(generator, index) for index in todo], given.n_jobs, each)
    except KeyboardInterrupt:
        print("\ninterrupted")
        return True
    return False


def _read(log: Path) -> list[Outcome]:
    """Return the outcomes kept; a last line that a stopped run left half-written is run again."""
    text = log.read_text() if log.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        log.write_text(whole)
    return [Outcome(**json.loads(line)) for line in whole.splitlines()]


if __name__ == "__main__":
    sys.exit(main())
