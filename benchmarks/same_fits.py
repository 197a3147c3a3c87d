"""More than 200 fits of every estimator, recorded before a change of the code and compared after it.

    python benchmarks/same_fits.py record before.json
    python benchmarks/same_fits.py compare before.json

The second fits again, and ends with exit code 1 if an objective moved beyond its tolerance. Each setting is fitted
exactly, in Nyström and Fourier features, with torch on the host (where torch is installed) and from a Dask array (where
Dask is). An objective that differs by less than 1e-9 of itself counts as the same arithmetic; a convex fit may differ
by its `tol`; gates are not convex, and may differ by 100 times that.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from kernelmosaic import (
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    LocalizedMKLOneClass,
    LocalizedMKLRegressor,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
    PosteriorMKLClassifier,
)
from kernelmosaic.kernels import Gaussian, Linear, Polynomial

SAME, NOT_CONVEX = 1e-9, 100.0
rng = np.random.RandomState(0)
X = rng.standard_normal((90, 4))
SCORE = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(90)
TWO = (SCORE > 0).astype(int)
THREE = (SCORE > -0.5).astype(int) + (SCORE > 0.7)
WEIGHT = rng.randint(1, 4, 90).astype(float)
KERNELS = [Gaussian(1.0), ("wide", Gaussian(4.0)), Linear(), ("square", Polynomial(2), [0, 1])]
GAUSSIANS = [Gaussian(1.0), ("wide", Gaussian(4.0)), ("wider", Gaussian(9.0))]
STORAGES = ("exact", "nystroem", "fourier", "torch", "dask")


def settings() -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, estimator, y)."""
    for C, norm, slack in product((0.3, 10.0), (1, 2), (1, 2)):
        yield f"two classes C={C} norm={norm} slack={slack}", MKLClassifier(KERNELS, C=C, norm=norm, slack=slack), TWO
    for solver in ("reduced_gradient", "silp", "qcqp", "sdp", "alignment", "easymkl"):
        yield f"two classes {solver}", MKLClassifier(KERNELS, solver=solver), TWO
    for normalize in ("diagonal", "centered", None):
        yield f"two classes normalize={normalize}", MKLClassifier(KERNELS, normalize=normalize), TWO
    yield "two classes uniform", MKLClassifier(KERNELS, weights="uniform"), TWO
    yield "two classes product", MKLClassifier([Gaussian(1.0) * Linear()]), TWO
    yield "two classes penalties", MKLClassifier(KERNELS, penalties=[1.0, 2.0, 1.0, 0.5]), TWO
    yield "two classes learned C", MKLClassifier(KERNELS, slack=2, C="learn"), TWO
    for multi_class, C in product(("ovr", "joint", "pairwise"), (0.3, 10.0)):
        yield f"classes {multi_class} C={C}", MKLClassifier(KERNELS, multi_class=multi_class, C=C), THREE
    for epsilon, slack in product((0.0, 0.1), (1, 2)):
        yield f"numbers epsilon={epsilon} slack={slack}", MKLRegressor(KERNELS, epsilon=epsilon, slack=slack), SCORE
    for nu in (0.1, 0.5):
        yield f"one class nu={nu}", MKLOneClass(GAUSSIANS, nu=nu), TWO
    for solver, kappa in product(("newton", "quasi_newton", "projected_gradient"), (0.5, 5.0)):
        yield f"bilinear {solver} kappa={kappa}", BilinearMKLClassifier(KERNELS, kappa=kappa, solver=solver), THREE
    for formulation, alpha in product(("newton", "silp", "qcqp", "sdp"), (1e-2, "learn")):
        model = DiscriminantMKLClassifier(KERNELS, solver=formulation, alpha=alpha)
        yield f"discriminant {formulation} alpha={alpha}", model, THREE
    for y, name in ((TWO, "two"), (THREE, "three")):
        yield f"posterior {name}", PosteriorMKLClassifier(KERNELS), y
    gates: dict[str, Any] = {"n_init": 1, "max_iter": 5, "random_state": 0}
    for gating, multi_class in product(("softmax", "sigmoid", "constant"), ("ovr", "joint")):
        model = LocalizedMKLClassifier(KERNELS, gating=gating, multi_class=multi_class, **gates)
        yield f"localized {gating} {multi_class}", model, THREE
    yield "localized numbers", LocalizedMKLRegressor(KERNELS, **gates), SCORE
    yield "localized one class", LocalizedMKLOneClass(GAUSSIANS, gating="softmax", **gates), TWO


def stored(model: Any, storage: str) -> tuple[Any, Any]:
    """Return the estimator and samples of one storage."""
    model = clone(model)
    if storage == "fourier":
        model.set_params(kernels=GAUSSIANS)
        if "penalties" in model.get_params() and model.penalties is not None:
            model.set_params(penalties=[1.0, 2.0, 0.5])
    if storage in ("nystroem", "fourier", "dask"):
        approximation = "fourier" if storage == "fourier" else "nystroem"
        model.set_params(approximation=approximation, rank=20, random_state=0)
    if storage == "torch":
        model.set_params(device="cpu")
    if storage == "dask":
        import dask.array

        return model, dask.array.from_array(X, chunks=(30, 4))
    return model, X


def fit_all() -> dict[str, dict[str, Any]]:
    """Fit every setting; those that an estimator refuses by a ValueError are recorded as refused."""
    missing = {"torch": "torch", "dask": "distributed"}
    storages = [name for name in STORAGES if find_spec(missing.get(name, "numpy"))]
    found: dict[str, dict[str, Any]] = {}
    for (name, base, y), storage in product(list(settings()), storages):
        model, samples = stored(base, storage)
        key = f"{storage}: {name}"
        if sys.stderr.isatty():
            print(f"\r{len(found):4d} {key:70s}", end="", file=sys.stderr, flush=True)
        try:
            model.fit(samples, y, **({"sample_weight": WEIGHT} if "uniform" in name else {}))
        except (TypeError, ValueError, NotImplementedError) as error:
            found[key] = {"refused": str(error)}
            continue
        convex = not name.startswith("localized")
        tol = float(model.tol) * (1.0 if convex else NOT_CONVEX)
        found[key] = {"objective": model.objective_, "gap": model.duality_gap_, "tol": max(tol, model.duality_gap_)}
    return found


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Print a line per storage and return what moved too far."""
    wrong = [f"{key}: only in one of the two" for key in before.keys() ^ after.keys()]
    for storage in STORAGES:
        differences = []
        for key in (key for key in before if key.startswith(storage) and key in after):
            b, a = before[key], after[key]
            if ("refused" in b) != ("refused" in a):
                wrong.append(f"{key}: refused in one of the two ({a.get('refused') or b.get('refused')})")
            elif "refused" not in b:
                scale = max(abs(b["objective"]), abs(a["objective"]), 1e-300)
                differences.append(abs(b["objective"] - a["objective"]) / scale)
                if not differences[-1] <= max(b["tol"], a["tol"]):
                    wrong.append(f"{key}: {b['objective']:.10g} before, {a['objective']:.10g} after")
        if differences:
            same = sum(d <= SAME for d in differences)
            print(f"{storage:9s} {len(differences):4d} fits, {same} equal to {SAME:g}, largest {max(differences):.1e}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    found = fit_all()
    if arguments.task == "record":
        arguments.file.write_text(json.dumps(found, indent=1))
        print(f"{sum('objective' in one for one in found.values())} fits recorded")
        return 0
    wrong = compare(json.loads(arguments.file.read_text()), found)
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
