"""Discriminant kernel learning by the protocol of Ye, Ji and Chen (2008): accuracy and weights
beside theirs, and time.

    PYTHONPATH=. python benchmarks/discriminant.py [--data FOLDER] [--published results.csv]
    [--repeats 30]
        [--sets sonar,wine(3),…] [--methods newton,silp,…] [--form 2] [--json FILE]

FOLDER holds the sets as npz files; see docs/datasets.md.

Ten Gaussian kernels, λ = 5e-4 or learned, random splits: 80 % of the two-class sets for training,
60 % of the others, of which 100 samples per class are drawn first. Columns are standardised on the
training part. `--form 2` is exp(−‖x − z‖² / 2σ²), `--form 1` without the 2: the paper does not say
which.

Double cross-validation, with which the paper compares, is scikit-learn's GridSearchCV over the ten
kernels and five regularisers, of kernel discriminant analysis with one kernel and of SVC; five
folds.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelmosaic import DiscriminantMKLClassifier
from kernelmosaic.kernels import Gaussian, family
from reproduction.data import load

SIGMAS = [0.10, 0.22, 0.46, 1.00, 2.15, 4.64, 10.0, 21.54, 46.42, 100.0]
ALPHA, TOL = 5e-4, 5e-4
#: File, classes (0 for all, with all their samples), size of the training part.
SETS = {
    "sonar": ("sonar", 0, 167),
    "heart": ("heart", 0, 216),
    "ionosphere": ("ionosphere", 0, 281),
    "cancer": ("breast_cancer_original", 0, 546),
    "wine(3)": ("wine", 0, 107),
    "USPS(3)": ("usps", 3, 180),
    "USPS(6)": ("usps", 6, 360),
    "USPS(8)": ("usps", 8, 480),
    "satimage(3)": ("satimage", 3, 180),
    "satimage(5)": ("satimage", 5, 300),
    "satimage(6)": ("satimage", 6, 360),
    "segment(3)": ("segment", 3, 180),
    "segment(4)": ("segment", 4, 240),
    "waveform(3)": ("waveform", 3, 180),
}
#: Our name and the paper's.
METHODS = {
    "newton": "SILP_theta",
    "silp": "SILP_theta",
    "qcqp": "QCQP_theta",
    "sdp_approximate": "SDP_theta",
    "newton+λ": "SILP_theta_lambda",
    "silp+λ": "SILP_theta_lambda",
    "qcqp+λ": "QCQP_theta_lambda",
    "cv KDA": "RKDA_K_lambda",
    "cv SVC": "SVM_K_C",
}


class OneKernelKDA(ClassifierMixin, BaseEstimator):
    """Kernel discriminant analysis with one Gaussian kernel, for a grid over its width."""

    def __init__(
        self, width: float = 1.0, alpha: float = ALPHA, decision: str = "least_squares"
    ) -> None:
        self.width, self.alpha, self.decision = width, alpha, decision

    def fit(self, X: np.ndarray, y: np.ndarray) -> OneKernelKDA:
        kernels = [Gaussian(self.width)]
        model = DiscriminantMKLClassifier(
            kernels, weights="uniform", alpha=self.alpha, decision=self.decision
        )
        self.model_ = model.fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model_.predict(X)


@dataclass
class Runs:
    """What one method did on one set."""

    accuracy: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)
    alpha: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    solves: list[int] = field(default_factory=list)


def draw_set(
    folder: Path | None, name: str, draw: str = "random", seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    file, classes, _ = SETS[name]
    X, y = load(file, folder, return_X_y=True)
    if classes:
        random = np.random.RandomState(seed)
        members = [np.flatnonzero(y == c) for c in np.unique(y)[:classes]]
        kept = [(rows if draw == "first" else random.permutation(rows))[:100] for rows in members]
        X, y = X[np.concatenate(kept)], y[np.concatenate(kept)]
    return X, y


def make(method: str, form: int, decision: str):
    widths = [sigma * np.sqrt(form) for sigma in SIGMAS]
    if method == "cv KDA":
        grid = {"width": widths, "alpha": [1e-6, 1e-5, 1e-4, 1e-3, 1e-2]}
        return GridSearchCV(OneKernelKDA(decision=decision), grid, cv=5)
    if method == "cv SVC":
        return GridSearchCV(
            SVC(), {"gamma": [w**-2 for w in widths], "C": [0.1, 1.0, 10.0, 100.0, 1000.0]}, cv=5
        )
    formulation, _, joint = method.partition("+")
    return DiscriminantMKLClassifier(
        family(Gaussian(), width=widths),
        solver=formulation,
        alpha="learn" if joint else ALPHA,
        decision=decision,
        tol=TOL,
    )


def run_set(name: str, methods: list[str], args) -> dict[str, Runs]:
    """Fit every method to the same splits, alternating, so that all see the machine in the same
    state."""
    out = {method: Runs() for method in methods}
    for repeat in range(args.repeats):
        X, y = draw_set(args.data, name, args.draw, repeat if args.draw == "fresh" else 0)
        A, B, a, b = train_test_split(X, y, train_size=SETS[name][2], random_state=repeat)
        scaler = StandardScaler().fit(A)
        A, B = scaler.transform(A), scaler.transform(B)
        for method in list(out):
            runs, model = out[method], make(method, args.form, args.decision)
            start = time.perf_counter()
            try:
                model.fit(A, a)
            except MemoryError:
                del out[method]
                continue
            runs.seconds.append(time.perf_counter() - start)
            runs.accuracy.append(100.0 * np.mean(model.predict(B) == b))
            if isinstance(model, DiscriminantMKLClassifier):
                # The printed coefficients are shares of the trace; the learned λ has the
                # identity's.
                runs.weights.append(model.trace_shares_)
                runs.alpha.append(model.alpha_ * (len(a) if model.alpha == "learn" else 1))
                runs.gaps.append(model.duality_gap_)
                runs.solves.append(model.n_solves_)
    return out


def read_published(path: str | None) -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """Return {(set, method): {metric: (mean, deviation)}} of the paper's tables."""
    found: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    if path is None:
        return found
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["seed"].startswith("004") and (row["metric"] != "accuracy" or row["std"]):
                try:
                    value = float(row["mean"]), float(row["std"] or "nan")
                except ValueError:
                    continue
                found.setdefault((row["dataset"], row["method"]), {})[row["metric"]] = value
    return found


def table(title: str, head: list[str], rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    print(f"\n{title}\n")
    for row in (head, ["-" * w for w in widths], *rows):
        print("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |")


def report(results: dict[str, dict[str, Runs]], published) -> None:
    rows, inside, compared = [], 0, 0
    for name, methods in results.items():
        for method, runs in methods.items():
            theirs = published.get((name, METHODS[method]), {})
            mean, deviation = (
                np.mean(runs.accuracy),
                np.std(runs.accuracy, ddof=1) if len(runs.accuracy) > 1 else 0.0,
            )
            printed, off = "", ""
            if "accuracy" in theirs:
                m, s = theirs["accuracy"]
                printed, off = f"{m:.2f} ± {s:.2f}", f"{(mean - m) / s:+.2f}"
                if method == "newton":
                    compared, inside = compared + 1, inside + (abs(mean - m) <= 2 * s)
            solves = f"{np.mean(runs.solves):.1f}" if runs.solves else ""
            seconds, their_time = (
                f"{np.median(runs.seconds):.3f}",
                theirs.get("time", (np.nan, 0.0))[0],
            )
            rows.append(
                [
                    name,
                    method,
                    f"{mean:.2f} ± {deviation:.2f}",
                    printed,
                    off,
                    seconds,
                    solves,
                    f"{their_time:g}",
                ]
            )
    head = [
        "set",
        "method",
        "accuracy %",
        "published",
        "off / s.d.",
        "seconds",
        "factorisations",
        "published s",
    ]
    table("Accuracy on the test parts, and time to fit (medians)", head, rows)
    print(f"\nnewton within two published deviations on {inside} of {compared} sets")
    report_ratios(results)
    report_weights(results, published)


def report_ratios(results: dict[str, dict[str, Runs]]) -> None:
    rows = []
    for name, methods in results.items():
        seconds = {method: float(np.median(runs.seconds)) for method, runs in methods.items()}
        row = [name]
        for fast in ("newton", "silp"):
            for slow in ("cv KDA", "cv SVC", "qcqp", "sdp_approximate"):
                known = fast in seconds and slow in seconds
                row.append(f"{seconds[slow] / seconds[fast]:.1f}" if known else "")
        row.append(
            f"{seconds['silp'] / seconds['newton']:.2f}"
            if {"silp", "newton"} <= set(seconds)
            else ""
        )
        rows.append(row)
    head = [
        "set",
        *(
            f"{slow} / {fast}"
            for fast in ("newton", "silp")
            for slow in ("KDA", "SVC", "qcqp", "sdp")
        ),
    ]
    table("How many times longer", [*head, "silp / newton"], rows)


def report_weights(results: dict[str, dict[str, Runs]], published) -> None:
    rows = []
    for name, methods in results.items():
        for method, runs in methods.items():
            if not runs.weights or not method.startswith(("newton", "silp")):
                continue
            rows.append(
                [
                    name,
                    method,
                    *(f"{w:.3f}" for w in np.mean(runs.weights, axis=0)),
                    f"{np.mean(runs.alpha):.1e}",
                ]
            )
            theirs = published.get((name, METHODS[method]))
            if theirs:
                printed = [theirs.get(f"weight:rbf{i:02d}", (np.nan,))[0] for i in range(1, 11)]
                rows.append(
                    [
                        name,
                        "published",
                        *(f"{w:.3f}" for w in printed),
                        f"{theirs['lambda'][0]:.1e}",
                    ]
                )
    if rows:
        table(
            "Mean weights as shares of the trace, by σ, and λ (where learned, its share)",
            ["set", "method", *map(str, SIGMAS), "λ"],
            rows,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="folder with the sets as npz files; else KERNELMOSAIC_DATA"
    )
    parser.add_argument("--published")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--form", type=int, choices=(1, 2), default=2)
    parser.add_argument(
        "--decision", choices=("least_squares", "centroid"), default="least_squares"
    )
    parser.add_argument(
        "--draw",
        choices=("random", "first", "fresh"),
        default="random",
        help="which 100 of a class: drawn once, the first, or drawn again for every split",
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    methods, names = args.methods.split(","), args.sets.split(",")
    # Compiled loops and imports are paid once, before the clock starts.
    X, y = draw_set(args.data, names[0])
    for method in methods:
        if not method.startswith("cv"):
            DiscriminantMKLClassifier(
                [Gaussian(1.0), Gaussian(2.0)], solver=method.partition("+")[0]
            ).fit(X[::6], y[::6])
    results = {}
    for name in names:
        results[name] = run_set(name, methods, args)
        print(f"{name} done", flush=True)
    report(results, read_published(args.published))
    if args.json:
        plain = {
            n: {m: {"accuracy": r.accuracy, "seconds": r.seconds} for m, r in d.items()}
            for n, d in results.items()
        }
        args.json.write_text(json.dumps(plain, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
