"""What holds for the whole suite."""

from __future__ import annotations

import errno
import gc
import math
import os
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest
from threadpoolctl import threadpool_limits


def pytest_report_header() -> str:
    """Say how long it takes, as measured with `-n 2`."""
    return (
        "kernelmosaic: about 10 CPU minutes, 5 minutes on 2 idle cores (Xeon, 2.5 GHz), without"
        " lint and the tests of the reproduction; the first run compiles the loops, half a CPU"
        " minute more in each worker"
    )


def pytest_collection_finish() -> None:
    """Take what is loaded from the garbage collector, and leave each of several workers one thread
    of BLAS.

    There are as many workers as cores, unless told otherwise: more threads would wait for one
    another, spinning, for longer than the small matrices here take. By now the test modules have
    loaded the libraries; other processes that tests start read the environment.
    """
    # The modules and the tests stay to the end: the collector need not look through them again and
    # again.
    gc.collect()
    gc.freeze()
    if "PYTEST_XDIST_WORKER" in os.environ and "OPENBLAS_NUM_THREADS" not in os.environ:
        threadpool_limits(1)
        for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")


@pytest.fixture(params=[None, pytest.param("cpu", marks=pytest.mark.torch)], ids=["numpy", "torch"])
def device(request):
    """Run a test on every backend: None stands for NumPy, and torch computes on the host."""
    if request.param is not None:
        pytest.importorskip("torch", reason="torch is not installed")
    return request.param


@pytest.fixture
def hide(monkeypatch):
    """Return a function that hides packages, as if they were not installed."""

    def hidden(*packages):
        for package in packages:
            monkeypatch.setitem(sys.modules, package, None)

    return hidden


@pytest.fixture
def full_disk(monkeypatch):
    """Return a function after whose call the disk takes as many files as it is given, and no
    further one."""
    synchronise, room = os.fsync, [math.inf]

    def fsync(number):
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synchronise(number)

    def fill(n_files=0):
        room[0] = n_files

    monkeypatch.setattr(os, "fsync", fsync)
    return fill


@pytest.fixture
def fixed_margins(monkeypatch):
    """Draw figures with the margins they begin with: to fit them, as tests/plots does, takes half
    of the time."""
    if find_spec("matplotlib") is not None:
        engines = import_module("matplotlib.layout_engine")
        monkeypatch.setattr(engines.ConstrainedLayoutEngine, "execute", lambda engine, figure: None)
