"""What tuning costs: folds × values of C along a path, against one fit, a grid search, and TorchKM on a GPU.

    python benchmarks/path.py [--parts cpu,gpu] [--n 1500] [--gpu-n 5000 10000 20000] [--Cs 50] [--n-jobs 4]

cpu   MKLClassifierCV(Cs=20, cv=5, norms=(1,)) with ten Gaussian kernels, in units of one fit of MKLClassifier with the
      same kernels at C = 1; GridSearchCV over the same points, as it comes and within SharedKernels; and
      GridSearchCV(SVC) over the same C on ONE Gaussian kernel. All from raw samples to a refitted model.
gpu   five folds × 50 values of C with ten kernels learned, and with one kernel, on the device, beside TorchKM (if it is
      installed) with its one kernel and its own 50 values: seconds from raw samples, and accuracy on 10,000 others.

Prints Markdown, as docs/choosing.md has it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import describe_machine
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from kernelmosaic import MKLClassifier, MKLClassifierCV
from kernelmosaic.kernels import Gaussian
from kernelmosaic.model_selection import SharedKernels

TEN = [Gaussian(float(width)) for width in np.logspace(-0.3, 1.5, 10)]
ONE = [Gaussian(4.5)]


def samples(n: int, others: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    X, y = make_classification(n + others, 20, n_informative=8, flip_y=0.05, random_state=0)
    return X[:n], y[:n], X[n:], y[n:]


def clocked(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what the work returns, its seconds, and its processor seconds."""
    start, cpu = time.perf_counter(), time.process_time()
    out = work()
    return out, time.perf_counter() - start, time.process_time() - cpu


def cpu(n: int) -> None:
    X, y, _, _ = samples(n)
    Cs = np.logspace(-2, 3, 20)
    MKLClassifier(TEN).fit(X[:400], y[:400])  # compiled
    fits = [clocked(lambda: MKLClassifier(TEN).fit(X, y)) for _ in range(3)]
    one = min(fit[2] for fit in fits)
    grid = {"C": Cs}
    works: dict[str, Callable[[], Any]] = {
        "one fit at C = 1": lambda: MKLClassifier(TEN).fit(X, y),
        "MKLClassifierCV": lambda: MKLClassifierCV(TEN, Cs=Cs, norms=(1,), scale=False).fit(X, y),
        "GridSearchCV within SharedKernels": lambda: shared(grid, X, y),
        "GridSearchCV": lambda: GridSearchCV(MKLClassifier(TEN), grid, cv=5).fit(X, y),
        "GridSearchCV(SVC), one kernel": lambda: GridSearchCV(SVC(gamma=1 / 4.5**2), grid, cv=5).fit(X, y),
    }
    print(f"\nn = {n}, ten Gaussian kernels, 20 values of C × 5 folds and a refit\n")
    print("| what | CPU seconds | fits | seconds | largest difference of scores |")
    print("| --- | --- | --- | --- | --- |")
    found: dict[str, Any] = {}
    for name, work in works.items():
        model, seconds, processor = clocked(work)
        found[name] = model
        print(
            f"| {name} | {processor:.2f} | {processor / one:.1f} | {seconds:.2f} | {difference(found, name)} |",
            flush=True,
        )
    print(f"\nlargest gap of a fit: {found['MKLClassifierCV'].duality_gaps_.max():.1e}")


def shared(grid: dict[str, Any], X: np.ndarray, y: np.ndarray) -> Any:
    with SharedKernels():
        return GridSearchCV(MKLClassifier(TEN), grid, cv=5).fit(X, y)


def difference(found: dict[str, Any], name: str) -> str:
    """By how much mean scores differ from those of MKLClassifierCV."""
    if not name.startswith("GridSearchCV") or "SVC" in name:
        return ""
    means = found["MKLClassifierCV"].scores_.mean(axis=0)
    return f"{np.abs(found[name].cv_results_['mean_test_score'] - means).max():.4f}"


def gpu(sizes: list[int], n_Cs: int, n_jobs: int | None) -> None:
    import torch

    def finished(model: Any, X: np.ndarray, y: np.ndarray) -> Any:
        model.fit(X, y)
        torch.cuda.synchronize()
        return model

    Cs = np.logspace(-2, 3, n_Cs)
    small = samples(6000)
    for kernels in (TEN, ONE):  # the passes are compiled
        finished(MKLClassifierCV(kernels, Cs=Cs[::8], norms=(1,), scale=False, device="cuda"), *small[:2])
    print(f"\n{torch.cuda.get_device_name()}, five folds × {n_Cs} values of C and a refit\n")
    print("| n | what | seconds | accuracy | largest gap |\n| --- | --- | --- | --- | --- |")
    for n in sizes:
        X, y, A, b = samples(n, 10_000)
        for name, kernels in (("ten kernels, learned", TEN), ("one kernel", ONE)):
            search = MKLClassifierCV(kernels, Cs=Cs, norms=(1,), scale=False, device="cuda", n_jobs=n_jobs)
            model, seconds, _ = clocked(lambda search=search: finished(search, X, y))  # noqa: B023
            gap = model.duality_gaps_.max()
            print(f"| {n} | {name} | {seconds:.1f} | {100 * model.score(A, b):.2f} | {gap:.1e} |", flush=True)
        peer(n, X, y, A, b, n_Cs)


def peer(n: int, X: np.ndarray, y: np.ndarray, A: np.ndarray, b: np.ndarray, n_Cs: int) -> None:
    try:
        from torchkm.estimators import TorchKMSVC
    except ImportError:
        return
    signs = 2 * y - 1
    model = TorchKMSVC(kernel="rbf", nC=n_Cs, cv=5, device="cuda", random_state=0)
    model, seconds, _ = clocked(lambda: model.fit(X, signs))
    accuracy = 100 * np.mean(np.asarray(model.predict(A)).ravel() == 2 * b - 1)
    print(f"| {n} | TorchKM, one kernel | {seconds:.1f} | {accuracy:.2f} | |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="cpu")
    parser.add_argument("--n", type=int, default=1500)
    parser.add_argument("--gpu-n", type=int, nargs="+", default=[5000, 10_000, 20_000])
    parser.add_argument("--Cs", type=int, default=50)
    parser.add_argument("--n-jobs", type=int, help="processes that share the device")
    given = parser.parse_args()
    print(describe_machine())
    if "cpu" in given.parts:
        cpu(given.n)
    if "gpu" in given.parts:
        gpu(given.gpu_n, given.Cs, given.n_jobs)


if __name__ == "__main__":
    main()
