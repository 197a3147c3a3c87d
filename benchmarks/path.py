"""What tuning costs: folds × values of C along a path, against one fit, a grid search, and TorchKM
on a GPU.

    python benchmarks/path.py [--parts cpu,gpu] [--n 1500] [--gpu-n 5000 10000 20000] [--Cs 50]
    [--json path.json]

cpu   MKLClassifierCV(Cs=20, cv=5, norms=(1,)) with ten Gaussian kernels, in units of one fit of MKLClassifier with the
      same kernels at C = 1; GridSearchCV over the same points, plain and within SharedKernels; and
      GridSearchCV(SVC) over the same C on ONE Gaussian kernel. All from raw samples to a refitted
      model.
gpu   five folds × 50 values of C with ten kernels learned, and with one kernel, on the device, beside TorchKM (if it is
      installed) with its one kernel and its own 50 values: seconds from raw samples, and accuracy
      on 10,000 others. The columns between say where the seconds go (matrices, the batch of all
      folds and values) and what the batch took: products of a matrix with a column, inverses,
      steps, waits for the device, fits that were finished alone. ``--device cpu --gpu-n 500`` tries
      it without a GPU, and ``--one-by-one`` takes the fits one after the other.

Prints Markdown; the gpu part goes to ``--json`` as well.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
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
        "GridSearchCV(SVC), one kernel": (
            lambda: GridSearchCV(SVC(gamma=1 / 4.5**2), grid, cv=5).fit(X, y)
        ),
    }
    print(f"\nn = {n}, ten Gaussian kernels, 20 values of C × 5 folds and a refit\n")
    print("| what | CPU seconds | fits | seconds | largest difference of scores |")
    print("| --- | --- | --- | --- | --- |")
    found: dict[str, Any] = {}
    for name, work in works.items():
        model, seconds, processor = clocked(work)
        found[name] = model
        print(
            f"| {name} | {processor:.2f} | {processor / one:.1f} | {seconds:.2f} |"
            f" {difference(found, name)} |",
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


def gpu(sizes: list[int], n_Cs: int, device: str, one_by_one: bool) -> list[dict[str, Any]]:
    import torch

    from kernelmosaic.gpu import folds as _together
    from kernelmosaic.gpu.paths import Counts

    def waited(work: Callable[[], Any]) -> tuple[Any, float]:
        found, seconds, _ = clocked(
            lambda: (work(), torch.cuda.synchronize() if device == "cuda" else None)[0]
        )
        return found, seconds

    spent: dict[str, float] = {}
    taken = Counts()

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **params: Any) -> Any:
            found, seconds = waited(lambda: work(*args, **params))
            spent[name] = spent.get(name, 0.0) + seconds
            return found

        return call

    learn = _together.learn_paths
    _together.make_stack = timed("matrices", _together.make_stack)
    _together.learn_paths = timed(
        "batch", lambda *args, **params: learn(*args, **params, counts=taken)
    )
    if one_by_one:
        _together.follow_together = lambda tasks, record: None
    Cs, small = np.logspace(-2, 3, n_Cs), samples(4000)
    for kernels in (TEN, ONE):  # the passes are compiled, the libraries loaded
        waited(lambda k=kernels: search(k, Cs[::8], device).fit(*small[:2]))
    name = torch.cuda.get_device_name() if device == "cuda" else "the host"
    print(f"\n{name}, five folds × {n_Cs} values of C and a refit\n")
    print("| n | what | seconds | matrices | batch | accuracy | largest gap | the batch took |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for n in sizes:
        X, y, A, b = samples(n, 10_000)
        for what, kernels in (("ten kernels, learned", TEN), ("one kernel", ONE)):
            spent.clear()
            taken.__dict__.update(vars(Counts()))
            model, seconds = waited(lambda k=kernels: search(k, Cs, device).fit(X, y))  # noqa: B023
            rows.append(
                {
                    "n": n,
                    "what": what,
                    "seconds": seconds,
                    "matrices": spent.get("matrices", 0.0),
                    "batch": spent.get("batch", 0.0),
                    "accuracy": 100 * model.score(A, b),
                    "gap": float(model.duality_gaps_.max()),
                    "C": model.C_,
                    "best_score": model.best_score_,
                    "scores": model.scores_.mean(axis=0).tolist(),
                    "counts": dict(vars(taken)),
                }
            )
            show(rows[-1])
        rows += [show(row) for row in peer(n, X, y, A, b, n_Cs)] if device == "cuda" else []
    return rows


def search(kernels: list[Gaussian], Cs: np.ndarray, device: str) -> MKLClassifierCV:
    return MKLClassifierCV(kernels, Cs=Cs, norms=(1,), scale=False, device=device)


def show(row: dict[str, Any]) -> dict[str, Any]:
    parts = " | ".join(f"{row[name]:.2f}" if name in row else "" for name in ("matrices", "batch"))
    took = ", ".join(f"{name} {count}" for name, count in row.get("counts", {}).items())
    gap = f"{row['gap']:.1e}" if "gap" in row else ""
    head = f"| {row['n']} | {row['what']} | {row['seconds']:.2f} | {parts}"
    print(f"{head} | {row['accuracy']:.2f} | {gap} | {took} |", flush=True)
    return row


def peer(
    n: int, X: np.ndarray, y: np.ndarray, A: np.ndarray, b: np.ndarray, n_Cs: int
) -> list[dict[str, Any]]:
    try:
        from torchkm.estimators import TorchKMSVC
    except ImportError:
        return []
    signs = 2 * y - 1
    model = TorchKMSVC(kernel="rbf", nC=n_Cs, cv=5, device="cuda", random_state=0)
    model, seconds, _ = clocked(lambda: model.fit(X, signs))
    accuracy = 100 * np.mean(np.asarray(model.predict(A)).ravel() == 2 * b - 1)
    return [{"n": n, "what": "TorchKM, one kernel", "seconds": seconds, "accuracy": accuracy}]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="cpu")
    parser.add_argument("--n", type=int, default=1500)
    parser.add_argument("--gpu-n", type=int, nargs="+", default=[5000, 10_000, 20_000])
    parser.add_argument("--Cs", type=int, default=50)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--one-by-one", action="store_true", help="fits one after the other, not together"
    )
    parser.add_argument("--json", default="path.json")
    given = parser.parse_args()
    print(describe_machine())
    if "cpu" in given.parts:
        cpu(given.n)
    if "gpu" in given.parts:
        rows = gpu(given.gpu_n, given.Cs, given.device, given.one_by_one)
        Path(given.json).write_text(
            json.dumps({"machine": describe_machine(), "rows": rows}, indent=1, default=float)
        )


if __name__ == "__main__":
    main()
