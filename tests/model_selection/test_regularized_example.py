"""The example runs, and its table has a row for every method."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "regularized_mkl.py"


@pytest.mark.slow
def test_small_run_prints_the_table(capsys):
    names = runpy.run_path(str(EXAMPLE))
    main, searches = names["main"], names["searches"]
    # Settings are compared on one of the ten halves.
    main.__globals__["searches"] = lambda model, folds, n_jobs: searches(model, folds[:1], n_jobs)
    main(["--seeds", "1", "--samples", "30", "--components", "2"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| GAUSS2")]
    assert [row.split(" | ")[1] for row in rows] == ["MKL", "RMKL", "EMKL", "RWKL"]
    calls = [float(row.split(" | ")[5]) for row in rows]
    assert calls[0] == 1
    assert calls[2] == 11
    assert min(calls[1], calls[3]) >= 6
