"""A process forked while other threads fit can fit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: One thread stands in the midst of making its matrices when the process forks; the child fits.
_PROGRAM = """
import faulthandler, os, threading
import numpy as np
from kernelmosaic import MKLClassifier, MKLRegressor
from kernelmosaic.engine import training_set as _training_set

X = np.random.RandomState(0).standard_normal((20, 2))
y = (X[:, 0] > 0).astype(int)
MKLClassifier().fit(X, y)
inside, go_on = threading.Event(), threading.Event()
plain = {name: getattr(_training_set, name) for name in ("make_stack", "make_feature_stack")}

def slow(name):
    def make(*arguments, **options):
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            go_on.wait()
        return plain[name](*arguments, **options)
    return make

for name in plain:
    setattr(_training_set, name, slow(name))
for approximation in (None, "nystroem"):
    inside.clear()
    go_on.clear()
    thread = threading.Thread(target=lambda: MKLClassifier(approximation=approximation).fit(X, y))
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(30, exit=True)
        MKLClassifier(approximation=approximation).fit(X, y).predict(X)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    go_on.set()
    thread.join()
    if status:
        raise SystemExit(f"approximation={approximation}: the child ended with {status}")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_another_thread_fits_does_not_hang():
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM],
        timeout=100,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
