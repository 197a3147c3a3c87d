"""What a fit takes beside the budget of its matrices, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Three thousand samples in a process of their own take a quarter of a minute.
pytestmark = pytest.mark.campaign

#: MiB that documentation says come on top: of every fit up to 5000 samples, with room to spare; and
#: once per process.
FIT, PROCESS = 24, 180

CODE = """
import tracemalloc
import numpy as np
from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Gaussian

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))

X = np.random.RandomState(0).normal(size=(3000, 5))
y = (X[:, 0] * X[:, 1] > 0).astype(int)
for budget, fits in ((10, 2), (38, 1)):
    model = MKLClassifier([Gaussian(factor=f) for f in (0.3, 1.0, 3.0)], tol=0.5, memory_budget=budget * 2**20)
    for _ in range(fits):
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak starts anew
        before = status("VmRSS")
        model.fit(X, y)
        print(status("VmHWM") - before)
    tracemalloc.start()
    model.fit(X, y)
    print(tracemalloc.get_traced_memory()[1] / 2**20)
    tracemalloc.stop()
"""


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="peaks are read from Linux"
)
def test_a_fit_grows_the_process_by_its_budget_and_what_is_documented():
    source = Path(__file__).parents[2] / "src"
    path = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
    threads = {
        "OPENBLAS_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }  # every thread has buffers of its own
    made = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | {"PYTHONPATH": path} | threads,
        capture_output=True,
        text=True,
        check=True,
    )
    figures = iter(map(float, made.stdout.split()))
    assert next(figures) <= 10 + FIT + PROCESS
    for budget in (10, 38):
        grown, arrays = next(figures), next(figures)
        assert grown <= budget + FIT
        assert 0.5 * budget <= arrays <= budget + FIT
