"""Build a release, check it as a user would meet it, and tag it.

    python tools/release.py            # build and check
    python tools/release.py --tag      # and tag the commit; pushing and uploading stay yours

The steps, each of which stops the others if it fails: the version is the same everywhere and the changelog has its day;
nothing is uncommitted; source distribution and wheel are built, and their descriptions render; the wheel installs into
an empty environment with what the core needs alone, where the README's example runs and no optional package is loaded.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).parents[1]
#: What the core must run without.
OPTIONAL = ("pandas", "pyarrow", "matplotlib", "skops", "clarabel", "torch", "dask", "typer", "rich")


def read(name: str) -> str:
    return (TOP / name).read_text(encoding="utf-8")


def version() -> str:
    found = re.search(r'^__version__ = "(.+)"$', read("src/kernelmosaic/__init__.py"), re.MULTILINE)
    assert found is not None
    return found[1]


def disagreements(wanted: str) -> list[str]:
    """Return what names another version than the package does."""
    places = {
        "CITATION.cff": rf"^version: {re.escape(wanted)}$",
        "CHANGELOG.md": rf"^## \[{re.escape(wanted)}\] - \d{{4}}-\d\d-\d\d$",
        "packaging/conda/recipe.yaml": rf'^  version: "{re.escape(wanted)}"$',
    }
    return [name for name, pattern in places.items() if not re.search(pattern, read(name), re.MULTILINE)]


def run(*command: str | Path, cwd: Path = TOP) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_version() -> None:
    if wrong := disagreements(version()):
        raise SystemExit(f"{', '.join(wrong)}: not of version {version()}, or without a date.")


def check_committed() -> None:
    if left := run("git", "status", "--porcelain"):
        raise SystemExit(f"Commit or remove first:\n{left}")


def build() -> None:
    for old in (TOP / "dist").glob("*"):
        old.unlink()
    run(sys.executable, "-m", "build")
    run(sys.executable, "-m", "twine", "check", "--strict", *(TOP / "dist").iterdir())


def try_wheel() -> None:
    wheel = next((TOP / "dist").glob("*.whl"))
    example = re.findall(r"^```python\n(.*?)^```$", read("README.md"), re.MULTILINE | re.DOTALL)[0]
    loaded = f"import sys\nfound = [name for name in {OPTIONAL} if name in sys.modules]\nassert not found, found\n"
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, *(("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")))
        run(python, "-m", "pip", "install", "--quiet", wheel)
        run(python, "-c", example + loaded, cwd=Path(folder))
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink())
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB; installed with all it needs {size / 1e6:.0f} MB.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", action="store_true", help="tag the commit once everything is right")
    tags = parser.parse_args().tag
    steps: list[Callable[[], None]] = [check_version, check_committed, build, try_wheel]
    for step in steps:
        print(f"{step.__name__} …", flush=True)
        step()
    if tags:
        run("git", "tag", "--annotate", f"v{version()}", "--message", f"kernelmosaic {version()}")
        print(f"Tagged v{version()}. Now: git push --tags, and twine upload dist/*")


if __name__ == "__main__":
    main()
