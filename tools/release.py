"""Build a release, check it as a user would meet it, and tag it.

    python tools/release.py            # build and check
    python tools/release.py --tag      # and tag the commit; pushing and uploading stay yours

The steps, each of which stops the others if it fails: the version is the same everywhere and the
changelog has its day; nothing is uncommitted; the repository meets Scientific Python's guide
(sp-repo-review), but for the exceptions in pyproject.toml; the source distribution is built, the
wheel from it, and their descriptions render; the wheel holds the library alone, and the source
distribution what tests and builds it; the wheel installs into an empty environment with what the
core needs alone, where the README's example runs and no optional package is loaded.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

TOP = Path(__file__).parents[1]
#: What the core must run without.
OPTIONAL = (
    "pandas",
    "pyarrow",
    "matplotlib",
    "skops",
    "clarabel",
    "torch",
    "dask",
    "typer",
    "rich",
)
#: What the wheel must have, and the source distribution.
IN_WHEEL = (
    *("kernelmosaic/__init__.py", "kernelmosaic/py.typed", "kernelmosaic/cli/__init__.py"),
    *(
        "kernelmosaic/report.html",
        "kernelmosaic/report.js",
        "kernelmosaic/kernels/substitution.txt",
    ),
)
IN_SOURCE = (
    *(
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "SUPPORT.md",
        "Makefile",
    ),
    *(
        "src/kernelmosaic/py.typed",
        "docs/conf.py",
        "tests/conftest.py",
        "tools/release.py",
        "paper/paper.md",
    ),
)


def read(name: str) -> str:
    return (TOP / name).read_text(encoding="utf-8")


def version() -> str:
    found = re.search(r'^__version__ = "(.+)"$', read("src/kernelmosaic/__init__.py"), re.MULTILINE)
    assert found is not None
    return found[1]


def disagreements(wanted: str, read: Callable[[str], str] = read) -> list[str]:
    """Return what names another version than the package does, or another day than the
    changelog."""
    dated = re.search(
        rf"^## \[{re.escape(wanted)}\] - (\d{{4}}-\d\d-\d\d)$", read("CHANGELOG.md"), re.MULTILINE
    )
    day = dated[1] if dated else "a day"
    places = {
        "CITATION.cff": rf"^version: {re.escape(wanted)}\ndate-released: {day}$",
        "packaging/conda/recipe.yaml": rf'^  version: "{re.escape(wanted)}"$',
        "docs/_static/switcher.json": rf'"version": "{re.escape(wanted)}"',
    }
    wrong = [
        name for name, pattern in places.items() if not re.search(pattern, read(name), re.MULTILINE)
    ]
    return wrong if dated else ["CHANGELOG.md", *wrong]


def misplaced(wheel: Iterable[str], source: Iterable[str]) -> list[str]:
    """Return what the wheel and the source distribution lack, or should not have, of the names of
    their files.

    Names in a source distribution begin with the folder that it unpacks to.
    """
    in_wheel, in_source = set(wheel), {name.partition("/")[2] for name in source}
    foreign = [
        name for name in in_wheel if not re.match(r"kernelmosaic(-[\d.a-z]+\.dist-info)?/", name)
    ]
    left = [
        name
        for name in in_wheel | in_source
        if re.search(r"__pycache__|\.py[co]$|\.nb[ci]$|/\.venv|\.whl$", name)
    ]
    lacking = [*(set(IN_WHEEL) - in_wheel), *(set(IN_SOURCE) - in_source)]
    return [
        *(f"the wheel has {name}" for name in sorted(foreign)),
        *(f"{name} is no source" for name in sorted(left)),
        *(f"{name} is missing" for name in sorted(lacking)),
    ]


def run(*command: str | Path, cwd: Path = TOP) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_version() -> None:
    if wrong := disagreements(version()):
        raise SystemExit(
            f"{', '.join(wrong)}: not of version {version()}, or without the date of the changelog."
        )


def check_committed() -> None:
    if left := run("git", "status", "--porcelain"):
        raise SystemExit(f"Commit or remove first:\n{left}")


def review() -> None:
    run(sys.executable, "-m", "repo_review", TOP)


def build() -> None:
    for old in (TOP / "dist").glob("*"):
        old.unlink()
    run(sys.executable, "-m", "build")
    run(sys.executable, "-m", "twine", "check", "--strict", *(TOP / "dist").iterdir())


def check_contents() -> None:
    (wheel,), (source,) = (list((TOP / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    with zipfile.ZipFile(wheel) as packed, tarfile.open(source) as unpacked:
        if wrong := misplaced(packed.namelist(), unpacked.getnames()):
            raise SystemExit("\n".join(wrong))


def try_wheel() -> None:
    wheel = next((TOP / "dist").glob("*.whl"))
    example = re.findall(r"^```python\n(.*?)^```$", read("README.md"), re.MULTILINE | re.DOTALL)[0]
    loaded = (
        f"import sys\nfound = [name for name in {OPTIONAL} if name in sys.modules]\nassert not"
        " found, found\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(
            folder, *(("Scripts", "python.exe") if os.name == "nt" else ("bin", "python"))
        )
        run(python, "-I", "-m", "pip", "install", "--quiet", wheel)
        run(python, "-I", "-c", example + loaded, cwd=Path(folder))
        size = sum(
            path.stat().st_size
            for path in Path(folder).rglob("*")
            if path.is_file() and not path.is_symlink()
        )
    print(
        f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB; installed with all it needs"
        f" {size / 1e6:.0f} MB."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tag", action="store_true", help="tag the commit once everything is right"
    )
    tags = parser.parse_args().tag
    steps: list[Callable[[], None]] = [
        check_version,
        check_committed,
        review,
        build,
        check_contents,
        try_wheel,
    ]
    for step in steps:
        print(f"{step.__name__} …", flush=True)
        step()
    if tags:
        run("git", "tag", "--annotate", f"v{version()}", "--message", f"kernelmosaic {version()}")
        print(
            f"Tagged v{version()}. Now push the tag, and publish a release of it: the workflow"
            " uploads what it builds."
        )


if __name__ == "__main__":
    main()
