"""What `gpu.py` measures: one method per part, each on data and kernels made here, with the bytes
its matrices move."""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from kernelmosaic import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.gram.gram import DenseGram
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.stack import make_stack
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.kernels.views import lay_specs, read_kernels
from kernelmosaic.machines.base import SVC
from kernelmosaic.solvers import working_set
from kernelmosaic.solvers.tuning import RoundOptions, SolverOptions
from kernelmosaic.solvers.working_set import solve_working_set

N_KERNELS = 10


def make_mixture(n: int, seed: int = 0, n_features: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Two classes of four clusters each in 20 dimensions, overlapping so that about 6 % cannot be
    told apart."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(12345).normal(size=(8, n_features)) * 0.33
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    X = centres[rng.integers(0, 4, n) + 4 * (y > 0)] + 0.6 * rng.normal(size=(n, n_features))
    return X, y


def make_kernels(X: np.ndarray) -> list[Gaussian]:
    """Ten widths over a factor of forty around the median distance."""
    part = X[:1000]
    squares = ((part[:, None] - part[None]) ** 2).sum(-1)
    return [
        Gaussian(float(w)) for w in np.sqrt(np.median(squares)) * np.logspace(-0.8, 0.8, N_KERNELS)
    ]


class Meter:
    """Counts the bytes of kernel matrices that are written and read, and the seconds of each stage
    if asked."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.bytes = 0.0
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @contextmanager
    def attached(self, staged: bool) -> Iterator[Meter]:
        """Wrap the operations that touch matrices; their own code knows nothing of it."""
        from kernelmosaic.gram.stack import MatrixStack as stack

        rounds, block = working_set.SingleOutput, working_set.GramForm

        def moved_rows(self_: Any, rows: Any, *_: Any) -> float:
            return len(rows) * self_.gram.n_samples * self_.gram.dtype.itemsize

        def gathered(self_: Any, rows: Any) -> float:
            return len(rows) ** 2 * self_.dtype.itemsize

        def whole(self_: Any, *_: Any, **__: Any) -> float:
            return self_.n_samples**2 * self_.dtype.itemsize

        def free_block(self_: Any, *_: Any) -> float:
            return self_.A.n_samples**2 * self_.A.dtype.itemsize

        wraps = [
            (rounds, "_place", "update slopes", moved_rows),
            (DenseGram, "block", "gather blocks", gathered),
            (stack, "combine", "combine", whole),
            (block, "direction", "newton direction", free_block),
        ]
        nothing: Callable[..., float] = lambda *_, **__: 0.0  # noqa: E731
        if staged:
            wraps += [
                (rounds, "evaluate", "evaluate", nothing),
                (rounds, "round", "rounds, all of them", nothing),
                (rounds, "certified", "certificate", nothing),
                (stack, "products", "products", nothing),
                (block, "_direction", "newton factor", nothing),
            ]
        saved = [(owner, name, getattr(owner, name)) for owner, name, _, _ in wraps]
        for owner, name, stage, size in wraps:
            setattr(owner, name, self._wrap(getattr(owner, name), stage, size, staged))
        try:
            yield self
        finally:
            for owner, name, original in saved:
                setattr(owner, name, original)

    def _wrap(
        self, work: Callable[..., Any], stage: str, size: Callable[..., float], staged: bool
    ) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.bytes += size(*args, **kwargs)
            self.calls[stage] += 1
            if not staged:
                return work(*args, **kwargs)
            self.synchronise()
            start = time.perf_counter()
            try:
                return work(*args, **kwargs)
            finally:
                self.synchronise()
                self.seconds[stage] += time.perf_counter() - start

        return wrapped


class Parts:
    """The parts, on one device and at one price of the slack."""

    def __init__(self, device: torch.device, C: float) -> None:
        self.device = device
        self.C = C
        self.bandwidth = np.nan

    def timed(self, work: Callable[[], Any]) -> tuple[float, Any]:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        out = work()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start, out

    def measure_bandwidth(self) -> dict[str, Any]:
        size = 2**31 if self.device.type == "cuda" else 2**26
        source = torch.ones(size, dtype=torch.float32, device=self.device)
        target = torch.empty_like(source)
        seconds = min(self.timed(lambda: target.copy_(source))[0] for _ in range(6))
        self.bandwidth = 2 * 4 * size / seconds
        return {"seconds": seconds, "gb_s": self.bandwidth / 1e9}

    def warm_up(self) -> dict[str, Any]:
        """Compile the loops and open the libraries, so that no part pays for it."""
        X, y = make_mixture(3000)
        seconds, _ = self.timed(lambda: self.model(make_kernels(X)).fit(X, y))
        from kernelmosaic.gpu._torch_passes import available

        return {"seconds": seconds, "compiled_passes": available(self.device)}

    def model(self, kernels: Any, **parameters: Any) -> MKLClassifier:
        return MKLClassifier(kernels, C=self.C, device=str(self.device), tol=1e-3, **parameters)

    def stack(self, n: int, budget: float | None = None) -> tuple[Any, np.ndarray]:
        X, y = make_mixture(n)
        kernel_set = KernelSet.fit(lay_specs(read_kernels(make_kernels(X)), X), X, "trace")
        return make_stack(
            kernel_set,
            kernel_set.views(X),
            device=str(self.device),
            budget=budget,
            dtype=np.float32,
        ), y

    def combine(self, n: int) -> dict[str, Any]:
        stack, _ = self.stack(n, budget=2.5 * 4 * n * n)
        weights = np.full(N_KERNELS, 1.0 / N_KERNELS)
        first, gram = self.timed(lambda: stack.combine(weights))
        seconds = min(self.timed(lambda: stack.combine(weights, out=gram))[0] for _ in range(3))
        return {"seconds": seconds, "first": first, "bytes": 4.0 * n * n}

    def products(self, n: int) -> dict[str, Any]:
        stack, _ = self.stack(n, budget=2.5 * 4 * n * n)
        beta = np.zeros(n)
        beta[::3] = np.random.default_rng(0).normal(size=len(beta[::3]))
        support = np.flatnonzero(beta)
        seconds = min(self.timed(lambda: stack.products(beta, support))[0] for _ in range(2))
        gram = stack.combine(np.full(N_KERNELS, 0.1))
        exact = self.timed(lambda: gram.exact(support, beta[support]))[0]
        return {"seconds": seconds, "exact_s": exact, "support": len(support)}

    def svm(
        self, n: int, tol: float = 1e-3, block: int | None = None, staged: bool = False
    ) -> dict[str, Any]:
        stack, y = self.stack(n, budget=2.5 * 4 * n * n)
        meter = Meter(self.device)
        program = SVC(y, self.C).program
        with meter.attached(staged):
            combining, gram = self.timed(lambda: stack.combine(np.full(N_KERNELS, 1.0 / N_KERNELS)))
            seconds, solution = self.timed(
                lambda: solve_working_set(
                    gram, program, tol=tol, options=SolverOptions(rounds=RoundOptions(size=block))
                )
            )
        free = np.sum((np.abs(solution.beta) > 0) & (np.abs(solution.beta) < self.C))
        row = {
            "seconds": seconds,
            "combine_s": combining,
            "gap": solution.gap,
            "steps": solution.n_iter,
        }
        row |= {
            "bytes": meter.bytes,
            "support": int(np.count_nonzero(solution.beta)),
            "free": int(free),
        }
        return row | self.stages(meter, staged)

    def mkl(self, n: int, staged: bool = False, **parameters: Any) -> dict[str, Any]:
        X, y = make_mixture(n)
        kernels = make_kernels(X)
        meter = Meter(self.device)
        model = self.model(kernels, **parameters)
        with meter.attached(staged), warnings.catch_warnings():
            warnings.simplefilter("always")
            seconds, _ = self.timed(lambda: model.fit(X, y))
        X_test, y_test = make_mixture(20_000, seed=1)
        predicting, predicted = self.timed(lambda: model.predict(X_test))
        row = {
            "seconds": seconds,
            "gap": model.duality_gap_,
            "solves": model.n_solves_,
            "bytes": meter.bytes,
        }
        row |= {"active": int(np.sum(model.weights_ > 0)), "support": len(model.support_)}
        row |= {"test_error": float(np.mean(predicted != y_test)), "predict_20k_s": predicting}
        row |= {"history": [round(step["gap"], 7) for step in model.history_]}
        return row | self.stages(meter, staged)

    def localized(self, n: int) -> dict[str, Any]:
        X, y = make_mixture(n)
        width = make_kernels(X)[N_KERNELS // 2].width
        model = LocalizedMKLClassifier(
            [Linear(), Polynomial(2), Gaussian(width)],
            C=self.C,
            step="lbfgs",
            device=str(self.device),
            tol=1e-3,
            max_iter=30,
        )
        meter = Meter(self.device)
        with meter.attached(False), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds, _ = self.timed(lambda: model.fit(X, y))
        return {
            "seconds": seconds,
            "gap": model.duality_gap_,
            "solves": model.n_solves_,
            "bytes": meter.bytes,
            "support": len(model.support_),
        }

    def low_rank(self, n: int, rank: int = 500) -> dict[str, Any]:
        """Ten kernels in Fourier features; the floor is the arithmetic of the Newton matrices at
        the measured rate."""
        from kernelmosaic.gram import feature_stack as features

        X, y = make_mixture(n)
        model = self.model(make_kernels(X), approximation="fourier", rank=rank, random_state=0)
        seconds: dict[str, float] = defaultdict(float)
        calls: dict[str, int] = defaultdict(int)
        flops = 0.0

        def watched(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any, **kwargs: Any) -> Any:
                nonlocal flops
                took, found = self.timed(lambda: work(*args, **kwargs))
                seconds[name] += took
                calls[name] += 1
                if name == "normal_matrix":
                    flops += float((args[1] != 0).sum()) * (args[0].n_features + 1) ** 2
                return found

            return run

        gram, names = features.StackFactors, ("normal_matrix", "apply", "adjoint", "rows")
        originals = {name: getattr(gram, name) for name in names} | {
            "fill": features.StoredFeatures.fill.__func__
        }
        try:
            for name in names:
                setattr(gram, name, watched(name, originals[name]))
            features.StoredFeatures.fill = classmethod(watched("fill", originals["fill"]))  # type: ignore[assignment]
            took, _ = self.timed(lambda: model.fit(X, y))
        finally:
            for name in names:
                setattr(gram, name, originals[name])
            features.StoredFeatures.fill = classmethod(originals["fill"])  # type: ignore[assignment]
        X_test, y_test = make_mixture(20_000, seed=1)
        row = {
            "seconds": took,
            "gap": model.duality_gap_,
            "solves": model.n_solves_,
            "floor_s": flops / self.rate(),
        }
        row |= {"active": int(np.sum(model.weights_ > 0)), "support": len(model.support_)}
        row |= {
            "ratio": took / row["floor_s"],
            "test_error": float(np.mean(model.predict(X_test) != y_test)),
        }
        return row | {"stages": {name: [round(seconds[name], 3), calls[name]] for name in seconds}}

    def rate(self) -> float:
        """Floating-point operations a second of a product of double matrices; a symmetric one needs
        half as many."""
        size = 4096 if self.device.type == "cuda" else 512
        A = torch.randn(size, size, dtype=torch.float64, device=self.device)
        return 2.0 * size**3 / min(self.timed(lambda: A @ A)[0] for _ in range(4))

    def libsvm(self, n: int) -> dict[str, Any]:
        from sklearn.svm import SVC as LibSVC

        X, y = make_mixture(n)
        width = make_kernels(X)[N_KERNELS // 2].width
        machine = LibSVC(C=self.C, gamma=1.0 / width**2, cache_size=4000)
        start = time.perf_counter()
        machine.fit(X, y)
        return {"seconds": time.perf_counter() - start, "support": len(machine.support_)}

    def accelerated_gradient(self, n: int, limit: float = 20.0) -> dict[str, Any]:
        """The same machine by accelerated projected gradient in torch alone, to the same gap or the
        time limit."""
        stack, y = self.stack(n, budget=2.5 * 4 * n * n)
        gram = stack.combine(np.full(N_KERNELS, 1.0 / N_KERNELS))
        start = time.perf_counter()
        gap, steps, reads = _accelerated_gradient(gram.matrix, y, self.C, 1e-3, limit)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "gap": gap, "steps": steps, "bytes": 4.0 * n * n * reads}

    def stages(self, meter: Meter, staged: bool) -> dict[str, Any]:
        if not staged:
            return {"calls": dict(meter.calls)}
        found = {stage: [round(s, 4), meter.calls[stage]] for stage, s in meter.seconds.items()}
        return {"stages": dict(sorted(found.items(), key=lambda item: -item[1][0]))}


def _accelerated_gradient(
    K: torch.Tensor, y: np.ndarray, C: float, tol: float, limit: float
) -> tuple[float, int, int]:
    t = torch.as_tensor(y, dtype=torch.float32, device=K.device)
    lower, upper = torch.minimum(0 * t, C * t), torch.maximum(0 * t, C * t)
    vector = torch.ones_like(t)
    for _ in range(10):
        vector = K @ (vector / vector.norm())
    rate = 1.0 / float(1.05 * vector.norm())
    beta, ahead, momentum = torch.zeros_like(t), torch.zeros_like(t), 1.0
    gap, start, reads = np.inf, time.perf_counter(), 10
    for step in range(1, 100_000):
        old, previous = beta, momentum
        beta = _project(ahead + rate * (t - K @ ahead), lower, upper)
        momentum = 0.5 * (1 + (1 + 4 * momentum**2) ** 0.5)
        ahead = beta + (previous - 1) / momentum * (beta - old)
        reads += 1
        if step % 50 == 0:
            gap, reads = min(gap, _gap(K, t, beta, C)), reads + 1
            if gap <= tol or time.perf_counter() - start > limit:
                break
    return gap, step, reads


def _project(z: torch.Tensor, lower: torch.Tensor, upper: torch.Tensor) -> torch.Tensor:
    low, high = z.min() - upper.max(), z.max() - lower.min()
    for _ in range(40):
        middle = 0.5 * (low + high)
        surplus = torch.clamp(z - middle, lower, upper).sum() > 0
        low, high = torch.where(surplus, middle, low), torch.where(surplus, high, middle)
    return torch.clamp(z - high, lower, upper)


def _gap(K: torch.Tensor, t: torch.Tensor, beta: torch.Tensor, C: float) -> float:
    from kernelmosaic.solvers.program import certify

    program = SVC(t.double().cpu().numpy(), C).program
    values = (K @ beta).double().cpu().numpy()
    return certify(program, beta.double().cpu().numpy(), values, 0).gap
