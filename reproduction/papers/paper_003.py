"""Bilinear formulated multiple kernel learning (Kobayashi and Otsu): four benchmark sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV

from kernelmosaic.estimators import BilinearMKLClassifier, MKLClassifier
from kernelmosaic.kernels import Gaussian
from reproduction.experiment import Experiment, Method
from reproduction.protocols import RandomSplits
from reproduction.sources import Dataset, Loaded

#: Ten widths, log-uniform on [0.1, 100]; the kernel is exp(−‖x − z‖² / 2σ²), of which the paper says neither this nor
#: that.
TEN = [(f"rbf{k:02d}", Gaussian(float(sigma) * np.sqrt(2.0))) for k, sigma in enumerate(np.logspace(-1, 2, 10), 1)]


def _method(name: str, estimator: Any, parameter: str = "C") -> Method:
    return Method(name, "10 RBF", GridSearchCV(estimator, {parameter: [0.5, 1.0, 10.0]}, cv=3))


BENCHMARKS = Experiment(
    name="003-benchmarks",
    title="One weight per class and kernel against one versus rest and shared weights",
    paper="003",
    table="Figure 1",
    protocol=RandomSplits(
        datasets=(
            Dataset("waveform", Loaded("waveform"), cost=20, seeds=1),
            Dataset("satimage", Loaded("satimage"), cost=40, seeds=1),
            Dataset("segment", Loaded("segment"), cost=40, quick=True, seeds=1),
            Dataset("USPS", Loaded("usps"), cost=60, seeds=1),
        ),
        sizes=(1000, 1000, 1000, 1000),
        methods=(
            _method("bilinear", BilinearMKLClassifier(TEN, solver="projected_gradient", max_iter=40), "kappa"),
            _method("one versus rest", MKLClassifier(TEN, solver="reduced_gradient", max_iter=40)),
            _method("shared weights", MKLClassifier(TEN, solver="silp", multi_class="joint", max_iter=40)),
        ),
        repeats=10,
    ),
    notes="1000 random training samples, columns standardised on them, the rest for test, ten "
    "repetitions; κ and C from {0.5, 1, 10} by three folds, at most 40 iterations. The paper prints bars, no "
    "numbers, so nothing is set beside these but its claims. The solvers are those that it names, each ours: its own "
    "projected gradient with a line search; reduced gradients (SimpleMKL) for one versus rest; a semi-infinite linear "
    "program for the shared weights of Zien and Ong.",
    pace=0.3,
    version=4,
)

EXPERIMENTS = (BENCHMARKS,)
