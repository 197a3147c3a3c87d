"""What is left where only the core dependencies are installed: fits say how far they are, commands
what they need."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

TOP = Path(__file__).parents[1]
#: Not pandas and its like: scikit-learn looks for them among the loaded modules, and takes a
#: blocked one for loaded.
EXTRAS = ("rich", "typer", "skops", "matplotlib", "clarabel")
FITS = """
import warnings
import numpy as np
from kernelmosaic import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.kernels import Linear, Polynomial
from kernelmosaic.model_selection import ResponseSurfaceSearchCV
rng = np.random.RandomState(0)
X, y = rng.randn(30, 2), np.arange(30) % 2
X[:, 0] += y
kernels = [("linear", Linear()), ("quadratic", Polynomial())]
warnings.simplefilter("ignore")  # that few iterations did not converge
MKLClassifier(kernels, verbose=True).fit(X, y)
LocalizedMKLClassifier(kernels, max_iter=3, n_init=1, verbose=True).fit(X, y)
ResponseSurfaceSearchCV(MKLClassifier(kernels), on="penalties", cv=2, max_iter=1, verbose=True).fit(X, y)
"""
FORMS = (
    r"\w+: 2 kernel matrices of \S+ KiB are stored, the budget is .+\.",
    r"SVC: iteration \d+, gap \d\.\de[-+]\d\d of 1e-03",
    r"Learning gates: iteration \d+, J = .*, decrease .* of .*",
    r"response surface: \d+/\d+ points(, best score .*)?",
)


def blocked(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter that cannot import what the extras bring."""
    path = os.pathsep.join(filter(None, (str(TOP / "src"), os.environ.get("PYTHONPATH"))))
    start = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))\n"
    command = [sys.executable, "-c", start + code]
    return subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=300
    )


def test_verbose_writes_plain_lines(hide, capsys):
    # In this process: no module imports an extra at its top, says tests/test_imports.py, and
    # whether one is there is looked up by every fit.
    hide(
        *EXTRAS,
        *(name for name in sys.modules if name.startswith(tuple(f"{extra}." for extra in EXTRAS))),
    )
    with warnings.catch_warnings():
        exec(FITS, {})
    said = capsys.readouterr()
    assert said.err == ""
    lines = said.out.splitlines()
    assert all(any(re.fullmatch(form, line) for form in FORMS) for line in lines), lines
    assert all(any(re.fullmatch(form, line) for line in lines) for form in FORMS), lines


def test_the_command_line_names_its_extra_in_one_line():
    arguments = (["fit", "x.csv"], ["demo"], ["--version"], [])
    done = blocked(f"from kernelmosaic.cli import main; sys.exit(min(map(main, {arguments!r})))")
    assert done.returncode == 2
    assert done.stdout == ""
    line = 'kernelmosaic: the command line needs typer, rich: pip install "kernelmosaic[cli]"\n'
    assert done.stderr == len(arguments) * line


def test_the_core_dependencies_are_few():
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split("[>=<]", entry)[0] for entry in project["dependencies"]}
    assert names == {"numpy", "scipy", "scikit-learn", "numba", "joblib", "threadpoolctl"}
