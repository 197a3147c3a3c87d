"""Fits of every estimator and option, recorded before a change of the code and compared after it.

    python benchmarks/same_fits.py record before.npz
    python benchmarks/same_fits.py compare before.npz

Each case keeps what its fit found (weights, coefficients' constant, objective, certified gap,
criterion) and what it says of twenty new samples (outputs, predictions, probabilities, embeddings).
The second command fits again, prints how many cases are equal bit for bit, to 1e-10 and within the
tolerance of the fit, lists the others, and ends with exit code 1 if there are any. A case that is
refused is recorded with its error.

A convex fit may differ by its `tol` in the objective, and by the root of it in outputs. What is not
convex (gates, the criteria of the ridge estimators, variational bounds) is given a hundred times
that.

Plain machines are fitted exactly, in Nyström and Fourier features, with torch on the host (where
torch is installed) and from a Dask array (where Dask is).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import KFold

from kernelmosaic.estimators import (
    BayesianMKLClassifier,
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedBayesianMKLClassifier,
    LocalizedMKLClassifier,
    LocalizedMKLOneClass,
    LocalizedMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLClustering,
    MKLKernelPCA,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    MKLRidgeClassifierCV,
    MKLRidgeCV,
    MKLSurvival,
    MKLSurvivalCV,
    PosteriorMKLClassifier,
)
from kernelmosaic.kernels import (
    Categorical,
    Correlation,
    Gaussian,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    Projected,
    Ranked,
    Spectrum,
    Tanimoto,
    pairwise,
    per_column,
)
from kernelmosaic.model_selection import PathSearchCV, ResponseSurfaceSearchCV

#: Differences that rounding alone makes, relative to the largest entry.
ROUNDING = 1e-10
#: How much further than a convex problem one with several optima may move.
NOT_CONVEX = 100.0
N_SAMPLES, N_NEW = 90, 20

rng = np.random.RandomState(0)
X_ALL = rng.standard_normal((N_SAMPLES + N_NEW, 4))
X, X_NEW = X_ALL[:N_SAMPLES], X_ALL[N_SAMPLES:]
SCORE = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(N_SAMPLES)
TWO = (SCORE > 0).astype(int)
THREE = (SCORE > -0.5).astype(int) + (SCORE > 0.7)
TARGETS = np.column_stack([SCORE, np.cos(X[:, 2]) + 0.1 * rng.standard_normal(N_SAMPLES)])
INDICATORS = np.column_stack([SCORE > 0, X[:, 2] > 0.3]).astype(int)
SAMPLE_WEIGHT = rng.randint(1, 4, N_SAMPLES).astype(float)
GROUPS = np.arange(N_SAMPLES) // 3
REPEATED = np.arange(N_SAMPLES) % 60  # a bootstrap: a third of the samples stand there twice
TIMES = np.array(
    list(zip(rng.uniform(size=N_SAMPLES) < 0.7, np.exp(-SCORE) + 0.1, strict=True)),
    dtype=[("event", bool), ("time", float)],
)
GAPS = X_ALL.copy()
GAPS[::5, 2:] = np.nan
WORDS = np.array(
    [["".join(rng.choice(list("ACGT"), 12))] for _ in range(N_SAMPLES + N_NEW)], dtype=object
)
BITS = (rng.uniform(size=(N_SAMPLES + N_NEW, 20)) < 0.3).astype(float)
MATRIX = X_ALL @ X_ALL.T
ROW_NUMBERS = np.arange(N_SAMPLES + N_NEW)[:, np.newaxis]

KERNELS = [Gaussian(1.0), ("wide", Gaussian(4.0)), Linear(), ("square", Polynomial(2), [0, 1])]
GAUSSIANS = [Gaussian(1.0), ("wide", Gaussian(4.0)), ("wider", Gaussian(9.0))]
VIEWS = [("left", Gaussian(), [0, 1]), ("right", Gaussian(), [2, 3]), ("line", Linear(), [0, 1])]


@dataclass(frozen=True)
class Case:
    """One fit.

    Attributes
    ----------
    name : str
        Says which estimator, and which option.
    estimator : estimator
        As it is given to `clone`.
    y : array or None
        Targets of the samples.
    samples : array or sparse matrix
        Those to fit, followed by twenty new ones.
    fit_params : dict
        Sample weights and groups.
    is_convex : bool
        Whether all solvers have to find one optimum.
    """

    name: str
    estimator: Any
    y: Any
    samples: Any = field(default_factory=lambda: X_ALL)
    fit_params: dict[str, Any] = field(default_factory=dict)
    is_convex: bool = True


def classifier_cases() -> Iterator[Case]:
    """Yield plain classifiers: losses, norms, solvers, weights, forms of several classes."""
    for C, norm, slack in product((0.3, 10.0), (1, 2), (1, 2)):
        model = MKLClassifier(KERNELS, C=C, norm=norm, slack=slack)
        yield Case(f"classifier C={C} norm={norm} slack={slack}", model, TWO)
    for solver in ("reduced_gradient", "silp", "qcqp", "sdp", "alignment", "easymkl"):
        yield Case(f"classifier solver={solver}", MKLClassifier(KERNELS, solver=solver), TWO)
    for solver in ("newton", "reduced_gradient", "silp"):
        model = MKLClassifier(KERNELS, solver=solver, norm=2, slack=2)
        yield Case(f"classifier solver={solver} norm=2 slack=2", model, TWO)
    for normalize in ("diagonal", "centered", None):
        yield Case(
            f"classifier normalize={normalize}", MKLClassifier(KERNELS, normalize=normalize), TWO
        )
    for weights in ("uniform", "loo", [0.4, 0.3, 0.2, 0.1]):
        yield Case(f"classifier weights={weights}", MKLClassifier(KERNELS, weights=weights), TWO)
    for penalties in ([1.0, 2.0, 1.0, 0.5], "eigenvalue"):
        yield Case(
            f"classifier penalties={penalties}", MKLClassifier(KERNELS, penalties=penalties), TWO
        )
    yield Case("classifier norm=1.5", MKLClassifier(KERNELS, norm=1.5), TWO)
    yield Case("classifier C learned", MKLClassifier(KERNELS, slack=2, C="learn"), TWO)
    yield Case(
        "classifier one linear kernel a column",
        MKLClassifier(per_column(Linear()), C=10.0, norm=1),
        TWO,
    )
    yield Case("classifier default kernels", MKLClassifier(), TWO)
    for calibration in ("sigmoid", "isotonic"):
        yield Case(
            f"classifier calibration={calibration}",
            MKLClassifier(KERNELS, calibration=calibration),
            TWO,
        )
    for multi_class, C in product(("ovr", "ovr-shared", "joint", "pairwise"), (0.3, 10.0)):
        model = MKLClassifier(KERNELS, multi_class=multi_class, C=C)
        yield Case(f"classes multi_class={multi_class} C={C}", model, THREE)
        weighted = {"sample_weight": SAMPLE_WEIGHT}
        yield Case(
            f"classes multi_class={multi_class} C={C} weighted", model, THREE, fit_params=weighted
        )
    balanced = MKLClassifier(KERNELS, class_weight="balanced")
    yield Case(
        "classes balanced and weighted",
        balanced,
        THREE,
        fit_params={"sample_weight": SAMPLE_WEIGHT},
    )
    for kappa, solver in product((0.5, 5.0), ("newton", "quasi_newton", "projected_gradient")):
        model = BilinearMKLClassifier(KERNELS, kappa=kappa, solver=solver)
        yield Case(f"bilinear kappa={kappa} solver={solver}", model, THREE)
    for name, y in (("two", TWO), ("three", THREE)):
        yield Case(f"posterior classes={name}", PosteriorMKLClassifier(KERNELS), y)
    yield Case("posterior density", PosteriorMKLClassifier(KERNELS, estimate="density"), TWO)


def regressor_cases() -> Iterator[Case]:
    """Yield plain regressors, one-class machines and machines of censored times."""
    for epsilon, slack in product((0.0, 0.1), (1, 2)):
        model = MKLRegressor(KERNELS, epsilon=epsilon, slack=slack)
        yield Case(f"regressor epsilon={epsilon} slack={slack}", model, SCORE)
    for loss, norm in product(("squared", "huber", "quantile"), (1, 2)):
        yield Case(
            f"regressor loss={loss} norm={norm}", MKLRegressor(KERNELS, loss=loss, norm=norm), SCORE
        )
    yield Case(
        "regressor two quantiles",
        MKLRegressor(KERNELS, loss="quantile", quantile=[0.1, 0.9]),
        SCORE,
    )
    for loss in ("epsilon", "squared"):
        yield Case(f"regressor two targets loss={loss}", MKLRegressor(KERNELS, loss=loss), TARGETS)
    for nu, norm in product((0.1, 0.5), (1, 2)):
        yield Case(f"one class nu={nu} norm={norm}", MKLOneClass(GAUSSIANS, nu=nu, norm=norm), TWO)
    for loss, norm in product(("censored", "cox", "rank"), (1, 2, "uniform")):
        given = {"weights": "uniform"} if norm == "uniform" else {"norm": norm}
        yield Case(
            f"survival loss={loss} norm={norm}", MKLSurvival(KERNELS, loss=loss, **given), TIMES
        )


def kernel_cases() -> Iterator[Case]:
    """Yield other kernels, forms of samples, samples that lack a view, and samples that are
    repeated."""
    plans: dict[str, tuple[Any, Any]] = {
        "columns": (per_column(Gaussian()), X_ALL),
        "ranks": ([Ranked(Gaussian()), Laplacian(), Correlation()], X_ALL),
        "product and sum": ([Gaussian(1.0) * Linear(), Gaussian(2.0) + Linear()], X_ALL),
        "matrix": ([Precomputed(MATRIX)], ROW_NUMBERS),
        "words": ([Spectrum(2), Spectrum(3)], WORDS),
        "bits": ([Tanimoto(), Linear()], BITS),
        "codes": ([Categorical(), Linear()], np.rint(X_ALL)),
        "sparse": (
            [Linear(), Gaussian(2.0)],
            sparse.csr_matrix(np.where(np.abs(X_ALL) > 0.5, X_ALL, 0.0)),
        ),
    }
    for name, (kernels, samples) in plans.items():
        yield Case(f"kernels {name}", MKLClassifier(kernels), TWO, samples)
    for missing in ("neighbors", "zero"):
        yield Case(
            f"classifier missing={missing}", MKLClassifier(VIEWS, missing=missing), TWO, GAPS
        )
    yield Case("regressor missing=neighbors", MKLRegressor(VIEWS), SCORE, GAPS)
    yield Case("ridge missing=neighbors", MKLRidgeCV(VIEWS), SCORE, GAPS, is_convex=False)
    bootstrap = np.concatenate([X[REPEATED], X_NEW])
    yield Case("classifier repeated samples", MKLClassifier(KERNELS), TWO[REPEATED], bootstrap)
    yield Case("regressor repeated samples", MKLRegressor(KERNELS), SCORE[REPEATED], bootstrap)


def discriminant_cases() -> Iterator[Case]:
    """Yield discriminants."""
    for solver, alpha in product(("newton", "silp", "qcqp", "sdp"), (1e-2, "learn")):
        model = DiscriminantMKLClassifier(KERNELS, solver=solver, alpha=alpha)
        yield Case(f"discriminant solver={solver} alpha={alpha}", model, THREE)
    for decision in ("least_squares", "centroid"):
        model = DiscriminantMKLClassifier(KERNELS, decision=decision)
        yield Case(f"discriminant decision={decision}", model, THREE)
    yield Case("discriminant indicators", DiscriminantMKLClassifier(KERNELS), INDICATORS)
    yield Case("discriminant uniform", DiscriminantMKLClassifier(KERNELS, weights="uniform"), TWO)


def localized_cases() -> Iterator[Case]:
    """Yield machines with gates."""
    quick: dict[str, Any] = {"n_init": 1, "max_iter": 5, "random_state": 0}
    for gating, multi_class in product(("softmax", "sigmoid", "constant"), ("ovr", "joint")):
        model = LocalizedMKLClassifier(KERNELS, gating=gating, multi_class=multi_class, **quick)
        yield Case(
            f"localized gating={gating} multi_class={multi_class}", model, THREE, is_convex=False
        )
    for step in ("lbfgs", "fixed"):
        model = LocalizedMKLClassifier(KERNELS, step=step, **quick)
        yield Case(f"localized step={step}", model, TWO, is_convex=False)
    projected = [Projected(Linear(), 2), Projected(Gaussian(2.0), 1)]
    yield Case(
        "localized projections", LocalizedMKLClassifier(projected, **quick), TWO, is_convex=False
    )
    in_kernel = LocalizedMKLClassifier(KERNELS, gating_kernel=Gaussian(2.0), **quick)
    yield Case("localized gates in a kernel", in_kernel, TWO, is_convex=False)
    yield Case(
        "localized regressor", LocalizedMKLRegressor(KERNELS, **quick), SCORE, is_convex=False
    )
    one_class = LocalizedMKLOneClass(GAUSSIANS, gating="softmax", **quick)
    yield Case("localized one class", one_class, TWO, is_convex=False)


def ridge_cases() -> Iterator[Case]:
    """Yield the ridge estimators."""
    both = (("numbers", MKLRidgeCV, SCORE), ("classes", MKLRidgeClassifierCV, THREE))
    for (name, estimator, y), criterion in product(both, ("auto", "loo", "evidence")):
        yield Case(
            f"ridge {name} criterion={criterion}",
            estimator(KERNELS, criterion=criterion),
            y,
            is_convex=False,
        )
    for name, estimator, y in both:
        weighted = {"sample_weight": SAMPLE_WEIGHT, "groups": GROUPS}
        yield Case(
            f"ridge {name} groups and weights",
            estimator(KERNELS),
            y,
            fit_params=weighted,
            is_convex=False,
        )
        yield Case(f"ridge {name} default kernels", estimator(), y, is_convex=False)
        yield Case(f"ridge {name} subsample", estimator(KERNELS, subsample=40), y, is_convex=False)
        yield Case(
            f"ridge {name} weights", estimator(KERNELS, weights="uniform"), y, is_convex=False
        )
        learned_widths = estimator([Gaussian("learn"), Laplacian("learn", per_column=True)])
        yield Case(f"ridge {name} learned widths", learned_widths, y, is_convex=False)
        features = estimator(KERNELS, approximation="nystroem", rank=20, random_state=0)
        yield Case(f"ridge {name} nystroem", features, y, is_convex=False)
        one_a_column = estimator(per_column(Gaussian()))
        yield Case(f"ridge {name} one kernel a column", one_a_column, y, is_convex=False)
    yield Case("ridge two classes", MKLRidgeClassifierCV(KERNELS), TWO, is_convex=False)
    yield Case("ridge two targets", MKLRidgeCV(KERNELS), TARGETS, is_convex=False)
    yield Case(
        "ridge per target",
        MKLRidgeCV(KERNELS, per_target=True, n_candidates=30),
        TARGETS,
        is_convex=False,
    )
    pairs = pairwise(
        [("left", Gaussian(), [0, 1])], [("right", Gaussian(), [2]), ("line", Linear(), [3])]
    )
    yield Case("ridge pairs", MKLRidgeCV(pairs), SCORE, is_convex=False)
    yield Case(
        "ridge pairs factorized", MKLRidgeCV(pairs, weights="factorized"), SCORE, is_convex=False
    )


def other_cases() -> Iterator[Case]:
    """Yield variational estimators and those without targets."""
    yield Case("bayesian", BayesianMKLClassifier(KERNELS), TWO, is_convex=False)
    yield Case("bayesian classes", BayesianMKLClassifier(KERNELS), THREE, is_convex=False)
    local = LocalizedBayesianMKLClassifier(GAUSSIANS, n_init=1, random_state=0)
    yield Case("bayesian localized", local, TWO, is_convex=False)
    for weights in ("screen", "equal", "statis"):
        model = MKLKernelPCA(VIEWS, weights=weights)
        yield Case(f"kernel pca weights={weights}", model, None, is_convex=False)
    yield Case("kernel pca missing views", MKLKernelPCA(VIEWS), None, GAPS, is_convex=False)
    for embedding in ("kernel", "graph"):
        model = MKLClustering(2, VIEWS, embedding=embedding, random_state=0)
        yield Case(f"clustering embedding={embedding}", model, None, is_convex=False)


def mean_output(model: Any, samples: Any, y: Any = None) -> float:
    """Return the mean decision, a score of one-class machines."""
    return float(np.mean(model.decision_function(samples)))


def search_cases() -> Iterator[Case]:
    """Yield searches over C, norms and penalties."""
    grid: dict[str, Any] = {"Cs": [0.1, 1.0, 10.0], "cv": KFold(3)}
    searches = (
        ("two", MKLClassifierCV, TWO),
        ("three", MKLClassifierCV, THREE),
        ("numbers", MKLRegressorCV, SCORE),
    )
    for name, search, y in searches:
        yield Case(f"search {name}", search(KERNELS, **grid), y)
        yield Case(
            f"search {name} whole grid",
            search(KERNELS, near=None, rule="one_standard_error", **grid),
            y,
        )
    yield Case("search norms with loo", MKLClassifierCV(KERNELS, norms=[1, "loo"], **grid), TWO)
    yield Case("search times", MKLSurvivalCV(KERNELS, **grid), TIMES)
    inner: dict[str, Any] = {
        "one class": (
            MKLOneClass(GAUSSIANS),
            {"Cs": [0.2, 0.5], "norms": None, "scoring": mean_output},
            TWO,
        ),
        "bilinear": (BilinearMKLClassifier(KERNELS), {}, THREE),
        "discriminant": (DiscriminantMKLClassifier(KERNELS), {}, THREE),
    }
    for name, (estimator, changed, y) in inner.items():
        yield Case(f"path search {name}", PathSearchCV(estimator, **(grid | changed)), y)
    surface = ResponseSurfaceSearchCV(MKLClassifier(KERNELS), cv=KFold(3), max_iter=2)
    yield Case("response surface", surface, TWO)


def stored_cases() -> Iterator[Case]:
    """Yield plain, discriminant and localized machines in features, with torch and from a Dask
    array."""
    storages = ["nystroem", "fourier", "leading"]
    if find_spec("torch"):
        storages.append("torch")
    for case in (
        *classifier_cases(),
        *regressor_cases(),
        *discriminant_cases(),
        *localized_cases(),
    ):
        for storage in storages:
            estimator = clone(case.estimator)
            options: dict[str, Any] = {"approximation": storage, "rank": 20, "random_state": 0}
            if storage == "torch":
                options = {"device": "cpu"}
            if storage == "fourier":
                options["kernels"] = GAUSSIANS
                if np.ndim(getattr(estimator, "penalties", None) or 0) == 1:
                    options["penalties"] = [1.0, 2.0, 0.5]
                if np.ndim(getattr(estimator, "weights", None) or 0) == 1:
                    options["weights"] = [0.5, 0.3, 0.2]
            if storage == "leading" and not case.name.startswith(
                ("classifier C", "regressor epsilon")
            ):
                continue
            estimator.set_params(**options)
            named = f"{storage}: {case.name}"
            yield Case(named, estimator, case.y, case.samples, case.fit_params, case.is_convex)
    if find_spec("distributed"):
        import dask.array

        rows = dask.array.from_array(X_ALL, chunks=(55, 4))
        for name, base, y in (
            ("classifier", MKLClassifier, TWO),
            ("regressor", MKLRegressor, SCORE),
        ):
            model = base(KERNELS, approximation="nystroem", rank=20, random_state=0)
            yield Case(f"dask: {name}", model, y, rows)


def all_cases() -> Iterator[Case]:
    """Yield every case."""
    yield from classifier_cases()
    yield from regressor_cases()
    yield from kernel_cases()
    yield from discriminant_cases()
    yield from localized_cases()
    yield from ridge_cases()
    yield from other_cases()
    yield from search_cases()
    yield from stored_cases()


#: Fitted attributes and methods whose values are kept, where an estimator has them.
ATTRIBUTES = (
    "weights_",
    "intercept_",
    "objective_",
    "duality_gap_",
    "criterion_",
    "alpha_",
    "best_score_",
    "loo_predictions_",
    "scores_",
    "Cs_",
    "labels_",
)
METHODS = ("decision_function", "predict", "predict_proba", "transform", "contributions", "gate")
#: What a fit is judged by: it may differ by the tolerance itself, all else by the root of it.
OBJECTIVES = ("objective_", "criterion_")


def measure(case: Case) -> dict[str, np.ndarray]:
    """Return what the fit found, as arrays of numbers, or the error by which it was refused."""
    model = clone(case.estimator)
    training, new = case.samples[:N_SAMPLES], case.samples[N_SAMPLES:]
    try:
        model.fit(training, case.y, **case.fit_params)
    except (TypeError, ValueError, NotImplementedError, MemoryError) as error:
        return {"refused": np.array(str(error))}
    values = {name: getattr(model, name) for name in ATTRIBUTES if hasattr(model, name)}
    for name in METHODS:
        try:
            values[name] = getattr(model, name)(new)
        except (AttributeError, NotImplementedError, TypeError):
            continue  # the estimator has no such method
        except ValueError as error:
            values[name] = str(error)
    values["tol"] = max(
        float(getattr(model, "tol", 1e-3)), float(np.max(values.get("duality_gap_", 0.0)))
    )
    kept = {}
    for name, value in values.items():
        array = np.asarray(value)
        kept[name] = array if array.dtype.kind in "biufU" else array.astype(str)
    return kept


def measure_all(only: str) -> dict[str, dict[str, np.ndarray]]:
    """Fit every case whose name contains `only`."""
    measured: dict[str, dict[str, np.ndarray]] = {}
    for case in all_cases():
        if only not in case.name:
            continue
        if case.name in measured:
            raise ValueError(f"two cases are called {case.name!r}")
        if sys.stderr.isatty():
            print(f"\r{len(measured):4d} {case.name:90.90s}", end="", file=sys.stderr, flush=True)
        measured[case.name] = measure(case)
    return measured


def difference(before: np.ndarray, after: np.ndarray) -> float:
    """Return the largest difference of two arrays, relative to their largest entry; infinity if
    they are of two kinds.

    Of words it is the share that differs.
    """
    if before.shape != after.shape or (before.dtype.kind == "U") != (after.dtype.kind == "U"):
        return np.inf
    if before.size == 0 or np.array_equal(before, after, equal_nan=before.dtype.kind == "f"):
        return 0.0
    if before.dtype.kind == "U":
        return float(np.mean(before != after))
    if not np.array_equal(np.isfinite(before), np.isfinite(after)):
        return np.inf
    is_number = np.isfinite(before)
    moved = np.abs(before[is_number].astype(float) - after[is_number].astype(float)).max(
        initial=0.0
    )
    return float(moved / max(np.abs(before[is_number]).max(), np.finfo(float).tiny))


def compare(
    before: dict[str, dict[str, np.ndarray]], after: dict[str, dict[str, np.ndarray]]
) -> int:
    """Print what moved, and return how many cases moved beyond their tolerance."""
    is_convex = {case.name: case.is_convex for case in all_cases()}
    counts = {"bit for bit": 0, f"to {ROUNDING:g}": 0, "within tol": 0, "beyond": 0}
    lines = [f"{name}: only in one of the two" for name in sorted(before.keys() ^ after.keys())]
    for name in (name for name in before if name in after):
        quantities = before[name].keys() | after[name].keys()
        if before[name].keys() != after[name].keys():
            lines.append(
                f"{name}: only in one of the two {sorted(before[name].keys() ^ after[name].keys())}"
            )
            counts["beyond"] += 1
            continue
        moved = {
            key: difference(before[name][key], after[name][key])
            for key in quantities - {"tol", "duality_gap_"}
        }
        largest = max(moved.values(), default=0.0)
        if largest <= ROUNDING:
            counts["bit for bit" if largest == 0.0 else f"to {ROUNDING:g}"] += 1
            continue
        tol = float(
            max(before[name].get("tol", np.array(0.0)), after[name].get("tol", np.array(0.0)))
        )
        tol *= 1.0 if is_convex[name] else NOT_CONVEX
        allowed = {key: tol if key in OBJECTIVES else np.sqrt(tol) for key in moved}
        is_within = all(moved[key] <= allowed[key] for key in moved)
        counts["within tol" if is_within else "beyond"] += 1
        details = ", ".join(
            f"{key} {moved[key]:.1e}" for key in sorted(moved) if moved[key] > ROUNDING
        )
        lines.append(f"{'within tol' if is_within else 'BEYOND'}: {name}: {details}")
    print(*lines, sep="\n")
    print(f"{len(after)} cases; " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return counts["beyond"] + len(before.keys() ^ after.keys())


def write(file: Path, measured: dict[str, dict[str, np.ndarray]]) -> None:
    """Keep all arrays in one file."""
    np.savez_compressed(
        file,
        **{
            f"{name}|{key}": value for name, kept in measured.items() for key, value in kept.items()
        },
    )


def read(file: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return what `write` kept."""
    measured: dict[str, dict[str, np.ndarray]] = {}
    with np.load(file) as arrays:
        for joined in arrays.files:
            name, _, key = joined.rpartition("|")
            measured.setdefault(name, {})[key] = arrays[joined]
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="cases whose names contain this")
    arguments = parser.parse_args()
    warnings.simplefilter(
        "ignore"
    )  # of convergence, repeats and subsets, which are not what is compared
    measured = measure_all(arguments.only)
    if arguments.task == "record":
        write(arguments.file, measured)
        refused = sum("refused" in kept for kept in measured.values())
        print(f"{len(measured)} cases recorded, {refused} of them refused")
        return 0
    before = {name: kept for name, kept in read(arguments.file).items() if arguments.only in name}
    return int(compare(before, measured) > 0)


if __name__ == "__main__":
    sys.exit(main())
