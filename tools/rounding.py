"""Run the tests as machines that round otherwise do.

python tools/rounding.py                                       # every setting, one after the other
python tools/rounding.py --only generic --pytest-args "-n 2 tests/solvers"

The settings: other kernels of OpenBLAS, NumPy without the instructions it chooses among, loops that
Numba compiles for any processor, one and two threads, and samples moved by one unit in the last
place (`tests/last_place.py`). A setting that this processor or these packages do not know is said
to be left out. One line says what came of each, and the tests that failed follow; the exit status
is 1 if any did.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

TOP = Path(__file__).parents[1]
#: Kernels that compute differently; others of OpenBLAS are the same as one of these.
CORES = {
    "x86_64": ("Nehalem", "Haswell", "SkylakeX"),
    "aarch64": ("ARMV8", "CORTEXA53", "THUNDERX", "THUNDERX2T99", "NEOVERSEN1", "TSV110"),
}
SUITE = ("-q", "-rfE", "--maxprocesses=8", "--dist=worksteal", "-m", "not torch and not campaign")

#: Prints the features among which NumPy chooses here, and the kernels that NumPy's and SciPy's
#: OpenBLAS use, once a product has shown that they run.
PROBE = """
import numpy as np, scipy.linalg
from threadpoolctl import threadpool_info
try:
    from numpy._core import _multiarray_umath as umath
except ImportError:
    from numpy.core import _multiarray_umath as umath
A = np.random.RandomState(0).normal(size=(300, 300))
scipy.linalg.cholesky(A @ A.T)
print(*(name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)))
print(*(info["architecture"] for info in threadpool_info() if info["internal_api"] == "openblas"))
"""


@dataclass(frozen=True)
class Setting:
    """Another machine: what the environment holds there, further arguments of pytest, and whose
    kernels BLAS uses."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    core: str = ""


def probe(environment: dict[str, str]) -> list[list[str]]:
    """Return the words that `PROBE` prints, line by line; none where it ends otherwise."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return [line.split() for line in done.stdout.splitlines()] if done.returncode == 0 else [[], []]


def settings(features: list[str], compiled: str) -> list[Setting]:
    """Return those of this kind of processor; loops compiled for any go into the folder
    `compiled`."""
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    return [
        *(
            Setting(core.lower(), {"OPENBLAS_CORETYPE": core}, core=core)
            for core in CORES.get(machine, ())
        ),
        Setting("plain-numpy", {"NPY_DISABLE_CPU_FEATURES": " ".join(features)}),
        Setting("generic", {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": compiled}),
        *(
            Setting(
                name,
                dict.fromkeys(
                    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), count
                ),
            )
            for name, count in (("one-thread", "1"), ("two-threads", "2"))
        ),
        Setting("last-place", arguments=("-p", "tests.last_place")),
    ]


def known(setting: Setting) -> bool:
    """Return whether every OpenBLAS here has the kernels of a setting, and they run on this
    processor."""
    return not setting.core or {core.lower() for core in probe(setting.environment)[1]} == {
        setting.core.lower()
    }


def run(setting: Setting, arguments: list[str]) -> bool:
    """Run the tests, print what came of them, and return whether all passed."""
    start = time.monotonic()
    command = [sys.executable, "-m", "pytest", *SUITE, *setting.arguments, *arguments]
    done = subprocess.run(
        command,
        cwd=TOP,
        env=os.environ | setting.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    ends = [
        line
        for line in lines
        if re.search(r"\d+ (passed|failed|skipped|error|deselected).* in ", line)
    ]
    came = re.sub(r",? \d+ warnings?| in .*", "", ends[-1]).strip(" =") if ends else "no end"
    print(f"{setting.name:12}  {came}, {time.monotonic() - start:.0f} s", flush=True)
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if done.returncode and not failed:
        failed = [*lines, *done.stderr.splitlines()][-10:]
    for line in failed:
        print(f"    {line}", flush=True)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="one setting; may be given several times"
    )
    parser.add_argument(
        "--pytest-args",
        default="-n auto",
        help="as one word; without paths, all tests of the library",
    )
    options = parser.parse_args()
    arguments = shlex.split(options.pytest_args)
    if not any((TOP / word.partition("::")[0]).exists() for word in arguments):
        arguments += ["--ignore=tests/reproduction"]
    green = True
    with TemporaryDirectory() as compiled:
        listed = settings(probe({})[0], compiled)
        if unknown := set(options.only or ()) - {setting.name for setting in listed}:
            names = ", ".join(setting.name for setting in listed)
            parser.error(f"--only {', '.join(sorted(unknown))}: choose from {names}.")
        for setting in listed:
            if options.only and setting.name not in options.only:
                continue
            if known(setting):
                green = run(setting, arguments) and green
            else:
                print(
                    f"{setting.name:12}  left out: no such kernels in a BLAS here, or they do"
                    " not run",
                    flush=True,
                )
    return 0 if green else 1


if __name__ == "__main__":
    sys.exit(main())
