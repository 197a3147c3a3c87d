"""One other package on given kernel matrices, in an environment of its own.

    python -m venv peers && peers/bin/pip install torch==2.13.0 MKLpy himalaya packaging
    scikit-multimodallearn python benchmarks/mkl.py --parts peers --peers-python peers/bin/python

Called by benchmarks/mkl.py as ``peers.py KERNELS.npz METHOD``; prints one line of JSON: seconds and
held-out accuracy. The kernel matrices are given, so only the learning is timed.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")


def mklpy(name: str):
    def run(train, test, y):
        import torch
        from MKLpy import algorithms
        from sklearn.svm import SVC

        maker = getattr(algorithms, name)
        model = maker(learner=SVC(C=1.0)) if name in ("EasyMKL", "GRAM", "MEMO") else maker(C=1.0)
        kernels = [torch.tensor(K) for K in train]
        start = time.perf_counter()
        model.fit(kernels, y)
        seconds = time.perf_counter() - start
        return seconds, np.asarray(model.decision_function([torch.tensor(K) for K in test])).ravel()

    return run


def himalaya(train, test, y):
    from himalaya.kernel_ridge import MultipleKernelRidgeCV

    model = MultipleKernelRidgeCV(
        kernels="precomputed", solver="hyper_gradient", solver_params={"progress_bar": False}
    )
    start = time.perf_counter()
    model.fit(train, y)
    seconds = time.perf_counter() - start
    return seconds, np.asarray(model.predict(test)).ravel()


def multimodal(train, test, y):
    from multimodal.kernels.lpMKL import MKL

    # The package takes matrices as views; its own test call is not defined for precomputed kernels,
    # so f = Σ w_m K_m C by hand.
    model = MKL(lmbda=0.1, kernel="precomputed", use_approx=False)
    start = time.perf_counter()
    model.fit(dict(enumerate(train)), y)
    seconds = time.perf_counter() - start
    coefficients = np.asarray(model.C).ravel()
    weights = np.asarray(model.weights).ravel()
    return seconds, np.tensordot(weights, test, 1) @ coefficients


METHODS = {
    "MKLpy EasyMKL": mklpy("EasyMKL"),
    "MKLpy R-MKL": mklpy("RMKL"),
    "MKLpy GRAM": mklpy("GRAM"),
    "MKLpy MEMO": mklpy("MEMO"),
    "himalaya hyper-gradient": himalaya,
    "scikit-multimodallearn MKL": multimodal,
}


def main() -> None:
    if sys.argv[1] == "--list":
        print("\n".join(METHODS))
        return
    data = np.load(sys.argv[1])
    seconds, scores = METHODS[sys.argv[2]](data["train"], data["test"], data["y"])
    print(
        json.dumps(
            {"seconds": seconds, "accuracy": float(np.mean(np.sign(scores) == data["truth"]))}
        )
    )


if __name__ == "__main__":
    main()
