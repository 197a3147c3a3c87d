"""What localized multiple kernel learning gains, and what it costs; to be run with PYTHONPATH=. in
the environment.

python benchmarks/localized.py gauss4 [--seeds 10] [--starts 3]    accuracy and support vectors beside the Bayes rule
python benchmarks/localized.py plain [--sizes 1000 3000]   time against the same algorithm written plainly
python benchmarks/localized.py crisp                   prediction that skips against prediction that does not
python benchmarks/localized.py features [--sizes 3000] exact kernels against kernels in features
python benchmarks/localized.py columns [--seeds 3]     scikit-learn's digits: how many columns gates read
python benchmarks/localized.py steps [--seeds 5]       Armijo's steps against quasi-Newton ones, on public sets
python benchmarks/localized.py data [--data FOLDER]    the papers' sets, beside the published figures
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from time import perf_counter, process_time
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC as LibSVC

from kernelmosaic import LocalizedMKLClassifier, LocalizedMKLRegressor, MKLClassifier, MKLRegressor
from kernelmosaic.datasets import BayesRule, make_gaussians
from kernelmosaic.gating import Softmax
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.stack import make_stack
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, family
from kernelmosaic.kernels.views import KernelSpec
from kernelmosaic.localized.learning import FixedStep, GateLearner, LearnedGates
from kernelmosaic.machines.base import SVC
from kernelmosaic.stats import wilcoxon
from reproduction.data import load

N_TEST = 100_000


# The toy ------------------------------------------------------------------------------------------


def gauss4(n_seeds: int, n_init: int) -> None:
    """1500 training points, 100,000 test points, default settings but the kernels, the step and
    maybe the starts."""
    models = {
        "LMKL kL-kP": LocalizedMKLClassifier([Linear(), Polynomial()], step="lbfgs", n_init=n_init),
        "LMKL kL-kL-kL": LocalizedMKLClassifier([Linear()] * 3, step="lbfgs", n_init=n_init),
        "MKL kL-kP": MKLClassifier([Linear(), Polynomial()], C=10.0),
        "SVM kL": MKLClassifier([Linear()], C=10.0),
    }
    rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in models}
    for seed in range(n_seeds):
        X, y = make_gaussians(4, 1500, random_state=seed)
        X_test, y_test = make_gaussians(4, N_TEST, random_state=10_000 + seed)
        bayes = 100 * np.mean(BayesRule(4).predict(X_test) == y_test)
        for name, model in models.items():
            start = perf_counter()
            model.fit(X, y)
            seconds = perf_counter() - start
            accuracy = 100 * model.score(X_test, y_test)
            rows[name].append((bayes - accuracy, 100 * model.support_fraction_, seconds))
            print(
                f"seed {seed} Bayes {bayes:.2f} {name:14s} {accuracy:.2f} % SV"
                f" {100 * model.support_fraction_:.1f} %"
            )
    print(f"\n{'':14s} points below Bayes (worst seed)   support vectors   seconds")
    for name, values in rows.items():
        below, support, seconds = np.array(values).T
        print(
            f"{name:14s} {below.mean():6.2f} ({below.max():.2f}) {support.mean():24.1f} %"
            f" {seconds.mean():12.1f}"
        )


# The same algorithm written plainly ---------------------------------------------------------------


def plain_descent(
    K: np.ndarray, y: np.ndarray, Z: np.ndarray, V: np.ndarray, C: float, step: float, n_steps: int
) -> list:
    """Fixed steps as the first paper has them, an SVC fit per step and all dense; the value at each
    step."""
    inputs = np.column_stack([Z, np.ones(len(Z))])
    trace = []
    for k in range(n_steps + 1):
        E = np.exp(inputs @ V.T)
        eta = E / E.sum(axis=1, keepdims=True)
        combined = sum(np.outer(eta[:, m], eta[:, m]) * K[m] for m in range(len(K)))
        machine = LibSVC(C=C, kernel="precomputed", tol=1e-3, cache_size=1000).fit(combined, y)
        beta = np.zeros(len(y))
        beta[machine.support_] = machine.dual_coef_[0]
        trace.append(float(y @ beta - 0.5 * beta @ combined @ beta))
        if k == n_steps:
            break
        G = np.column_stack([-beta * (K[m] @ (eta[:, m] * beta)) for m in range(len(K))])
        V = V - step * (eta * (G - np.sum(eta * G, axis=1, keepdims=True))).T @ inputs
    return trace


def plain(sizes: list[int], n_steps: int, C: float) -> None:
    """The same fixed steps from the same start, and the default optimiser until it has reached the
    same value.

    Processor seconds beside wall seconds: on a busy machine only the former can be compared.
    """
    compile_loops()
    for n in sizes:
        X, y = make_gaussians(4, n, random_state=0)
        signs = np.where(y == y.max(), 1.0, -1.0)
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        kernel_set = KernelSet.fit(
            [KernelSpec("line", Linear(), None), KernelSpec("square", Polynomial(), None)],
            X,
            "trace",
        )
        K = np.array(
            [k for _, k in kernel_set.blocks(kernel_set.views(X), kernel_set.views(X), [0, 1])]
        )
        V = Softmax().init(np.random.RandomState(0), 2, 2)
        wall, cpu, trace = timed(
            lambda K=K, s=signs, Z=Z, V=V: plain_descent(K, s, Z, V, C, 0.01 / C, n_steps)
        )
        goal = trace[-1]
        print(
            f"n = {n}: plain, {n_steps} steps from J = {trace[0]:.1f} to {goal:.4f}: {wall:.2f} s,"
            f" {cpu:.2f} s of CPU"
        )
        for name, step in (("same fixed steps", FixedStep(0.01 / C, n_steps)), ("lbfgs", "lbfgs")):
            ours = timed(
                lambda m=kernel_set, X=X, Z=Z, s=signs, step=step: ours_descent(m, X, Z, s, step, C)
            )
            history = [line.objective for line in ours[2].history]
            reached = next(
                (k for k, value in enumerate(history) if value <= goal * (1 + 1e-4)), None
            )
            print(
                f"    {name:17s} J = {history[-1]:.4f} in {len(history) - 1} steps, plain's value"
                f" after {reached}: {ours[0]:.2f} s, {ours[1]:.2f} s of CPU: {wall / ours[0]:.1f}"
                f" and {cpu / ours[1]:.1f} times faster",
                flush=True,
            )


def ours_descent(
    kernel_set: KernelSet, X: np.ndarray, Z: np.ndarray, y: np.ndarray, step, C: float
) -> LearnedGates:
    stack = make_stack(kernel_set, kernel_set.views(X))
    return GateLearner(Softmax(), step, tol=1e-3).learn(
        stack, SVC(y, C), Z, np.random.RandomState(0)
    )


def compile_loops() -> None:
    """So that no time below contains a compilation."""
    for n in (100, 2100):
        X, y = make_gaussians(4, n, random_state=0)
        LocalizedMKLClassifier([Linear(), Polynomial()], n_init=1, max_iter=2).fit(X, y)


def timed(work) -> tuple[float, float, Any]:
    wall, cpu = perf_counter(), process_time()
    result = work()
    return perf_counter() - wall, process_time() - cpu, result


# Prediction ---------------------------------------------------------------------------------------


def crisp() -> None:
    """Clusters far apart, a kernel each: gates become crisp, and each kernel is asked for its own
    cluster only."""
    rng = np.random.RandomState(0)
    P, n, n_test, d = 6, 2400, 20_000, 40
    centres = 12.0 * rng.normal(size=(P, d))

    def draw(size: int) -> tuple[np.ndarray, np.ndarray]:
        cluster = rng.randint(P, size=size)
        noise = rng.normal(size=(size, d))
        slopes = np.random.RandomState(1).normal(size=(P, d))
        return centres[cluster] + noise, np.where(
            np.sum(slopes[cluster] * noise, axis=1) > 0, 1, -1
        )

    X, y = draw(n)
    X_test, y_test = draw(n_test)
    model = LocalizedMKLClassifier(
        [Gaussian("median") for _ in range(P)], gating="gaussian", step="lbfgs", C=100.0
    ).fit(X, y)
    gates = model._gates(X_test)
    skipping = model._expansions[0]
    everything = replace(skipping, skip=False)
    results = {}
    for name, expansion in (("everything", everything), ("skipping", skipping)):
        start = perf_counter()
        values = expansion.values(X_test, gates)
        results[name] = (perf_counter() - start, values, expansion.n_evaluations(gates))
        print(
            f"{name:11s} {results[name][0]:.2f} s, {results[name][2] / 1e6:.1f} million kernel"
            " values"
        )
    difference = np.abs(results["everything"][1] - results["skipping"][1]).max()
    print(
        f"accuracy {100 * model.score(X_test, y_test):.1f} %, largest difference {difference:.1e}"
    )


# Kernels in features ------------------------------------------------------------------------------


def features(sizes: list[int], exact_up_to: int = 10_000) -> None:
    """One start on the toy, with the kernels as they are and in features of rank 200."""
    compile_loops()
    X_test, y_test = make_gaussians(4, N_TEST, random_state=10_000)
    sets = {
        "three linear": [Linear()] * 3,
        "three Gaussian": [Gaussian(1.0), Gaussian(3.0), Gaussian(8.0)],
    }
    for n in sizes:
        X, y = make_gaussians(4, n, random_state=0)
        for name, kernels in sets.items():
            for approximation in (None, "nystroem") if n <= exact_up_to else ("nystroem",):
                model = LocalizedMKLClassifier(
                    kernels, step="lbfgs", n_init=1, approximation=approximation, rank=200
                )
                wall, cpu, _ = timed(lambda model=model, X=X, y=y: model.fit(X, y))
                print(
                    f"n = {n} {name:14s} {approximation or 'exact':8s} {wall:.1f} s, {cpu:.1f} s of"
                    f" CPU, {model.n_solves_} solves, J = {model.objective_:.1f},"
                    f" {100 * model.score(X_test, y_test):.2f} %",
                    flush=True,
                )


# How much gates read ------------------------------------------------------------------------------


def columns(n_seeds: int) -> None:
    """Digits, 600 for training and default kernels; gates read leading principal components, or all
    64 pixels."""
    X, y = load_digits(return_X_y=True)
    rows: dict[str, list[tuple[float, float, float]]] = {}
    plain: list[Any] = [Linear(), Polynomial(), *family(Gaussian(), factor=[1, 2, 4])]
    kernels = [(f"{m}", kernel, slice(0, 64)) for m, kernel in enumerate(plain)]
    models: dict[str, Any] = {"global weights": MKLClassifier(kernels, C=10.0)}
    for count in (1, 2, 5, 10, 20):
        models[f"{count} component{'s' * (count > 1)}"] = LocalizedMKLClassifier(
            kernels, gating_columns=list(range(64, 64 + count)), n_init=1
        )
    for n_init in (1, 3):
        models[f"64 pixels, best of {n_init}"] = LocalizedMKLClassifier(
            kernels, gating_columns=list(range(64)), n_init=n_init
        )
    for seed in range(n_seeds):
        train, test = train_test_split(
            np.arange(len(y)), train_size=600, random_state=seed, stratify=y
        )
        both = np.hstack([X, PCA(20, random_state=0).fit(X[train]).transform(X)])
        for name, model in models.items():
            start = process_time()
            model.fit(both[train], y[train])
            found = (
                100 * model.score(both[test], y[test]),
                process_time() - start,
                float(np.sum(model.objective_)),
            )
            rows.setdefault(name, []).append(found)
    print(
        "| gates read | test accuracy, % | objective, all classes | CPU seconds |\n| --- | --- |"
        " --- | --- |"
    )
    for name, values in rows.items():
        accuracy, seconds, objective = np.mean(values, axis=0)
        print(f"| {name} | {accuracy:.1f} | {objective:.0f} | {seconds:.1f} |")


# How gates are improved ---------------------------------------------------------------------------

#: Public sets, of which the larger ones are thinned to a thousand samples. The last two are
#: regressions.
SETS = (
    "heart",
    "sonar",
    "ionosphere",
    "liver",
    "wine",
    "wdbc",
    "pima",
    "australian",
    "vehicle",
    "german_numeric",
)
SETS += ("banana", "ringnorm", "spambase", "digits", "concrete", "whitewine")


def steps(folder: str | None, n_seeds: int, names: list[str]) -> None:
    """Test errors of gates by step and by starts, everything else at its default; two thirds train,
    one tests.

    An error is the share of wrong labels, or of the variance that is not explained, in percent;
    targets and columns are standardised by the training part. What decides is Wilcoxon's test over
    the data sets between the two steps with the default starts, on the means of the two sets of
    kernels.
    """
    means: dict[str, dict[str, float]] = {}
    for name in names:
        found: dict[str, list[tuple[float, ...]]] = {}
        X, y = (
            load_digits(return_X_y=True)
            if name == "digits"
            else load(name, folder, return_X_y=True)
        )
        for seed in range(n_seeds):
            rows = np.random.RandomState(seed).permutation(len(y))[:1000]
            train, test = np.split(rows, [2 * len(rows) // 3])
            for label, model in _gated_models(regression=name in SETS[-2:]):
                result = _measured(model, X, y, train, test)
                found.setdefault(label, []).append(result)
        means[name] = {label: float(np.mean(values, axis=0)[0]) for label, values in found.items()}
        for label, values in found.items():
            error, objective, solves, seconds = np.mean(values, axis=0)
            print(
                f"{name:15s} {label:38s} error {error:6.2f}, objective {objective:9.4g},"
                f" {solves:5.0f} machines, {seconds:5.1f} s of CPU",
                flush=True,
            )
    _step_tables(means)


def _gated_models(regression: bool) -> list[tuple[str, Any]]:
    """The global combination, and gates by both steps from one start and from three, of two sets of
    kernels."""
    plain, local = (
        (MKLRegressor, LocalizedMKLRegressor)
        if regression
        else (MKLClassifier, LocalizedMKLClassifier)
    )
    return [
        (f"{kernels}, {label}", model)
        for kernels, specs in (("default", None), ("three linear", [Linear()] * 3))
        for label, model in (
            ("global", plain(specs, C=10.0)),
            *(
                (f"{step}, {n} start{'s' * (n > 1)}", local(specs, step=step, n_init=n))
                for step in ("lbfgs", "armijo")
                for n in (1, 3)
            ),
        )
    ]


def _measured(
    model: Any, X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray
) -> tuple[float, ...]:
    scale = np.where(X[train].std(axis=0) > 0, X[train].std(axis=0), 1.0)
    X = (X - X[train].mean(axis=0)) / scale
    if isinstance(model, MKLRegressor):
        y = (y - y[train].mean()) / y[train].std()
    start = process_time()
    model.fit(X[train], y[train])
    seconds = process_time() - start
    return (
        100 - 100 * model.score(X[test], y[test]),
        float(np.sum(model.objective_)),
        float(model.n_solves_),
        seconds,
    )


def _step_tables(means: dict[str, dict[str, float]]) -> None:
    for kernels in ("default", "three linear"):
        labels = [label for label in next(iter(means.values())) if label.startswith(f"{kernels}, ")]
        print(
            f"\n| {kernels} kernels | "
            + " | ".join(label.partition(", ")[2] for label in labels)
            + " |"
        )
        print("| --- " * (len(labels) + 1) + "|")
        for name, found in means.items():
            print(f"| {name} | " + " | ".join(f"{found[label]:.1f}" for label in labels) + " |")
    for starts in ("1 start", "3 starts"):
        both = [
            [
                np.mean(
                    [
                        found[f"{kernels}, {step}, {starts}"]
                        for kernels in ("default", "three linear")
                    ]
                )
                for found in means.values()
            ]
            for step in ("lbfgs", "armijo")
        ]
        test = wilcoxon(both[0], both[1])
        print(
            f"\n{starts}: mean error {np.mean(both[0]):.2f} by lbfgs, {np.mean(both[1]):.2f} by"
            f" armijo; armijo less on {np.sum(np.array(both[1]) < np.array(both[0]))} of"
            f" {len(means)} sets; Wilcoxon p = {test.p_value:.3f}"
        )


# The papers' sets ---------------------------------------------------------------------------------


def split(n: int, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """A third for test; of the rest half for training, as a fold of five times two has it."""
    order = rng.permutation(n)
    return order[n // 3 : n // 3 + (n - n // 3) // 2], order[: n // 3]


def data(folder: str | None, n_seeds: int, most: int) -> None:
    sets = {"banana": _banana, "concrete": _concrete, "motorcycle": _motorcycle}
    for name, run in (sets | {"multifeat": _multifeat, "whitewine": _whitewine}).items():
        run(load(name, folder), n_seeds, most)


def report(
    name: str, model, X, y, n_seeds: int, most: int, published: str, error: bool = False
) -> None:
    scores, support = [], []
    for seed in range(n_seeds):
        train, test = split(len(y), np.random.RandomState(seed))
        train = train[:most]
        model.fit(X[train], y[train])
        predicted = model.predict(X[test])
        scores.append(
            np.mean((predicted - y[test]) ** 2) if error else 100 * np.mean(predicted == y[test])
        )
        support.append(100 * model.support_fraction_)
    unit = "MSE" if error else "%"
    print(
        f"{name:44s} {np.mean(scores):8.2f} ± {np.std(scores):.2f} {unit}, SV"
        f" {np.mean(support):.1f} % | published {published}",
        flush=True,
    )


def _banana(d, n_seeds: int, most: int) -> None:
    X, y = d.data, d.target
    pair = [Linear(), Polynomial()]
    report("BANANA MKL kL-kP", MKLClassifier(pair, C=10.0), X, y, n_seeds, most, "70.52, SV 82.36")
    report(
        "BANANA LMKL kL-kP",
        LocalizedMKLClassifier(pair, step="lbfgs"),
        X,
        y,
        n_seeds,
        most,
        "84.46, SV 41.28",
    )
    report(
        "BANANA LMKL kL-kL-kL",
        LocalizedMKLClassifier([Linear()] * 3, step="lbfgs"),
        X,
        y,
        n_seeds,
        most,
        "81.39, SV 54.03",
    )


#: Mean squared error and share of support vectors, slides of the thesis; MOTORCYCLE is only a
#: picture there.
PUBLISHED = {
    "WHITEWINE": {
        "SVR kL": "0.59, SV 66.83",
        "SVR kP2": "0.54, SV 66.22",
        "SVR kP3": "0.54, SV 66.14",
    }
    | {"LMKR softmax": "0.52, SV 18.66", "LMKR sigmoid": "0.51, SV 38.29"},
    "CONCRETE": {
        "SVR kL": "120.61, SV 44.31",
        "SVR kP2": "92.57, SV 36.22",
        "SVR kP3": "58.32, SV 73.16",
    }
    | {"LMKR softmax": "44.80, SV 64.28", "LMKR sigmoid": "48.18, SV 49.20"},
}


def _regression(name: str, d, n_seeds: int, most: int, C: float, epsilon: float) -> None:
    """Linear and polynomial kernels of degrees 2 to 5, on standardised columns."""
    X, y = d.data, d.target
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    kernels = [Linear(), *(Polynomial(degree=q) for q in (2, 3, 4, 5))]
    price = {"C": C, "epsilon": epsilon}
    rows = {
        f"SVR {label}": MKLRegressor([k], **price)
        for label, k in zip(("kL", "kP2", "kP3"), kernels, strict=False)
    }
    rows["MKL"] = MKLRegressor(kernels, **price)
    for gating in ("softmax", "sigmoid"):
        rows[f"LMKR {gating}"] = LocalizedMKLRegressor(
            kernels, gating=gating, step="lbfgs", **price
        )
    for label, model in rows.items():
        published = PUBLISHED.get(name, {}).get(label, "no figure")
        report(f"{name} {label}", model, X, y, n_seeds, most, published, error=True)


def _whitewine(d, n_seeds: int, most: int) -> None:
    _regression("WHITEWINE", d, n_seeds, most, C=1.0, epsilon=0.25)


def _concrete(d, n_seeds: int, most: int) -> None:
    _regression("CONCRETE", d, n_seeds, most, C=100.0, epsilon=2.0)


def _motorcycle(d, n_seeds: int, most: int) -> None:
    _regression("MOTORCYCLE", d, n_seeds, most, C=100.0, epsilon=10.0)


def _multifeat(d, n_seeds: int, most: int) -> None:
    """Digits 0-4 against 5-9; one linear kernel per view, gates on all views."""
    X = (d.data - d.data.mean(axis=0)) / np.maximum(d.data.std(axis=0), 1e-12)
    y = np.where(d.target >= 5, 1, -1)
    kernels = [(view, Linear(), columns) for view, columns in d.columns.items()]
    rows = {
        "MKL": (MKLClassifier(kernels, C=10.0), "97.40, SV 32.59"),
        "LMKL softmax": (
            LocalizedMKLClassifier(kernels, gating="softmax", step="lbfgs", C=10.0),
            "97.69, SV 15.06",
        ),
        "LMKL sigmoid": (
            LocalizedMKLClassifier(kernels, gating="sigmoid", step="lbfgs", C=10.0),
            "98.58, SV 15.27",
        ),
    }
    for label, (model, published) in rows.items():
        report(f"MULTIFEAT small/large {label}", model, X, y, n_seeds, most, published)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", choices=("gauss4", "plain", "crisp", "features", "columns", "steps", "data")
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--starts", type=int, default=3, help="random starts of the gates on the toy"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 3000])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--price", type=float, default=10.0, help="C of the plain comparison")
    parser.add_argument("--data", help="folder with the sets as npz files; else KERNELMOSAIC_DATA")
    parser.add_argument(
        "--sets", nargs="+", choices=SETS, default=SETS, help="of the comparison of steps"
    )
    parser.add_argument("--most", type=int, default=10_000, help="most training samples of a set")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if options.what == "gauss4":
        gauss4(options.seeds, options.starts)
    elif options.what == "plain":
        plain(options.sizes, options.steps, options.price)
    elif options.what == "crisp":
        crisp()
    elif options.what == "features":
        features(options.sizes)
    elif options.what == "columns":
        columns(options.seeds)
    elif options.what == "steps":
        steps(options.data, options.seeds, options.sets)
    else:
        data(options.data, options.seeds, options.most)


if __name__ == "__main__":
    main()
