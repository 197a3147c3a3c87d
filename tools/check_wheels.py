"""Which packages have no wheel on one of the platforms and Pythons that the library supports.

    python tools/check_wheels.py

uv resolves what `[test,lint,docs]` and `[all]` need, from wheels alone, for every platform and
Python, by the metadata of the package index: nothing is installed, no large file is downloaded.
Where there is no solution, each requirement is resolved on its own with what it depends on, and
those without are printed. The exit status is 1 if `[test,lint,docs]` lacks something, and 0 if only
`[all]` does.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[1]
REQUIRED, OPTIONAL = ("test", "lint", "docs"), ("all",)
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: Platforms as readers and as uv name them.
PLATFORMS = {
    "Linux x86-64": "x86_64-manylinux_2_28",
    "Linux ARM64": "aarch64-manylinux_2_28",
    "macOS ARM64": "aarch64-apple-darwin",
    "Windows x86-64": "x86_64-pc-windows-msvc",
}
#: Where a set of requirements has wheels: requirements, platform, Python.
Resolves = Callable[[Sequence[str], str, str], bool]


def requirements(project: dict[str, Any], extras: Iterable[str]) -> list[str]:
    """Return what the package and its extras need, with extras that name others written out, each
    once."""
    found, waiting = list(project["dependencies"]), list(extras)
    seen = set(waiting)
    for extra in waiting:
        for requirement in project["optional-dependencies"][extra]:
            own = re.fullmatch(rf"{project['name']}\[(.+)\]", requirement)
            if own is None:
                found.append(requirement)
                continue
            others = [name for name in map(str.strip, own[1].split(",")) if name not in seen]
            seen.update(others)
            waiting += others
    return list(dict.fromkeys(found))


def lacking(needed: Sequence[str], resolves: Resolves) -> dict[str, dict[str, list[str]]]:
    """Return the requirements without wheels: by requirement and platform, the Pythons."""
    found: dict[str, dict[str, list[str]]] = {}
    for platform in PLATFORMS:
        for python in PYTHONS:
            if resolves(needed, platform, python):
                continue
            alone = [one for one in needed if not resolves([one], platform, python)]
            for one in alone or ["all of them together"]:
                found.setdefault(one, {}).setdefault(platform, []).append(python)
    return found


def table(found: dict[str, dict[str, list[str]]]) -> list[str]:
    """Return lines of Markdown: requirements by platforms, with the Pythons for which there is no
    wheel."""
    rows = [["no wheel for", *PLATFORMS], ["---"] * (1 + len(PLATFORMS))]
    rows += [
        [one, *(", ".join(where.get(platform, [])) for platform in PLATFORMS)]
        for one, where in found.items()
    ]
    return [f"| {' | '.join(row)} |" for row in rows]


def by_uv(needed: Sequence[str], platform: str, python: str) -> bool:
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "--quiet",
        "-",
        "--only-binary",
        ":all:",
    ]
    command += ["--python-platform", PLATFORMS[platform], "--python-version", python]
    done = subprocess.run(command, input="\n".join(needed), capture_output=True, text=True, cwd=TOP)
    if done.returncode not in (0, 1):  # 1: there is no solution; anything else is no answer
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.returncode == 0


def main(resolves: Resolves = by_uv) -> int:
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    status = 0
    for extras in (REQUIRED, OPTIONAL):
        needed = requirements(project, extras)
        found = lacking(needed, resolves)
        print(
            f"[{','.join(extras)}]: {len(needed)} requirements and what these depend on,", end=" "
        )
        print(f"{len(PLATFORMS)} platforms, Python {PYTHONS[0]} to {PYTHONS[-1]}:", end=" ")
        print("\n".join(["some have no wheel", *table(found)]) if found else "wheels for all")
        status |= extras == REQUIRED and bool(found)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
