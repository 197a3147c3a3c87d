"""The same data and seed give the same bits, whether the loops were compiled just now or read from
Numba's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numba
import pytest

import kernelmosaic

_ROOT = Path(kernelmosaic.__file__).parent
_MODULES = sorted(
    ".".join(("kernelmosaic", *path.relative_to(_ROOT).with_suffix("").parts))
    for path in _ROOT.rglob("_numba_*.py")
)

# The solver alone, which for fewer samples would not be compiled. Steps are many and the box is
# wide: a difference in the last bit shows.
_FIT = """
import numpy as np
from kernelmosaic.solvers.program import Program
from kernelmosaic.solvers.smo import solve_smo

rng = np.random.RandomState(0)
X = rng.standard_normal((300, 8))
y = np.where(X[:, 0] * X[:, 1] + 0.5 * rng.standard_normal(300) > 0, 1.0, -1.0)
K = np.exp(-((X[:, None] - X) ** 2).sum(axis=-1) / 16.0)
found = solve_smo(K, Program(y, np.minimum(100 * y, 0), np.maximum(100 * y, 0), np.zeros(300)), tol=1e-3)
print(found.objective.hex(), found.beta.tobytes().hex())
"""


# What was read from the cache, and Numba's own setting, which other packages need as it was.
_CACHE = """
import numba
from kernelmosaic.solvers._numba_smo import maximise_pairs
print(sum(maximise_pairs.stats.cache_hits.values()), repr(numba.config.CACHE_DIR))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, and a user's cache that is empty at first."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(
        _ROOT, folder / "package" / "kernelmosaic", ignore=shutil.ignore_patterns("__pycache__")
    )
    return folder


@pytest.fixture(scope="module")
def printed(installed: Path) -> list[list[str]]:
    """What two processes print of the same fit, the first with a cold cache, the second with a warm
    one."""
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    env |= {"XDG_CACHE_HOME": str(installed / "cache"), "PYTHONPATH": str(installed / "package")}
    command = [sys.executable, "-c", _FIT + _CACHE]
    runs = [
        subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    return [run.stdout.splitlines() for run in runs]


def test_a_cold_and_a_warm_cache_give_the_same_bits(printed: list[list[str]]) -> None:
    (cold, _), (warm, _) = printed
    assert len(cold.split()) == 2
    assert warm == cold


def test_what_is_compiled_is_kept_in_the_users_cache_and_not_in_the_package(
    installed: Path, printed: list[list[str]]
) -> None:
    assert [caches for _, caches in printed] == ["0 ''", "1 ''"]
    assert any((installed / "cache" / "kernelmosaic" / "compiled").rglob("*.nbi"))
    assert not any((installed / "package").rglob("*.nbi"))


def _loops(module: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, numba.core.dispatcher.Dispatcher)
    }


def _inlined(loop: Any) -> bool:
    return (
        bool(loop.targetoptions.get("forceinline")) or loop.targetoptions.get("inline") == "always"
    )


@pytest.mark.parametrize("name", _MODULES)
def test_loops_that_round_freely_are_inlined_into_those_that_call_them(name: str) -> None:
    loops = _loops(import_module(name))
    assert loops
    called = {
        other
        for loop in loops.values()
        for other in loop.py_func.__code__.co_names
        if other in loops
    }
    free = {other for other in called if loops[other].targetoptions.get("fastmath")}
    assert {other for other in free if not _inlined(loops[other])} == set()
