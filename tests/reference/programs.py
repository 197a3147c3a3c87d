"""Random programs of every kind, each with the loss of its primal problem as a textbook writes
it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from kernelmosaic.solvers.program import Program


@dataclass(frozen=True)
class Case:
    """A kernel matrix, the dual program, and the loss on f = Kβ + b of the primal min ½βᵀKβ +
    loss(f) + b · total."""

    kind: str
    K: np.ndarray
    program: Program
    loss: Callable[[np.ndarray], float]

    @property
    def exact(self):
        """K as the solver reads it, in double precision."""
        return self.K.astype(np.float64)

    def dual(self, beta):
        p = self.program
        tube = p.epsilon * np.abs(beta).sum()
        return p.target @ beta - tube - 0.5 * beta @ self.exact @ beta - 0.5 * p.ridge @ beta**2

    def primal(self, beta, intercept):
        values = self.exact @ beta
        return (
            0.5 * beta @ values
            + self.loss(values + intercept)
            + intercept * (self.program.total or 0.0)
        )


def hinge(x):
    return np.maximum(x, 0.0)


def labels(rng, n):
    """±1, both present."""
    y = np.where(rng.rand(n) < 0.5, -1.0, 1.0)
    y[:2] = 1.0, -1.0
    return y


def svm(y, C):
    """The program of a support vector machine with the labels y = ±1."""
    return Program(y, np.minimum(0, C * y), np.maximum(0, C * y), np.zeros(len(y)))


def one_class(n, C):
    """The program of a one-class machine."""
    return Program(np.zeros(n), np.zeros(n), np.full(n, C), np.zeros(n), total=1.0)


def assert_feasible(program, beta):
    """Within the box exactly, on the sum up to rounding."""
    assert np.all((beta >= program.lower) & (beta <= program.upper))
    if program.total is not None:
        assert abs(beta.sum() - program.total) <= 1e-10 * max(1.0, np.abs(beta).sum())


def _svm(rng, n, C):
    y = labels(rng, n)
    return svm(y, C), lambda f: C * hinge(1 - y * f).sum()


def _svm_squared(rng, n, C):
    y = labels(rng, n)
    p = Program(y, np.where(y > 0, 0.0, -np.inf), np.where(y > 0, np.inf, 0.0), np.full(n, 1 / C))
    return p, lambda f: 0.5 * C * (hinge(1 - y * f) ** 2).sum()


def _svm_weighted(rng, n, C):
    y = labels(rng, n)
    sample_C = C * rng.gamma(1.0, size=n) * (rng.rand(n) < 0.8)
    p = Program(y, np.where(y > 0, 0.0, -sample_C), np.where(y > 0, sample_C, 0.0), np.zeros(n))
    return p, lambda f: sample_C @ hinge(1 - y * f)


def _svr(rng, n, C):
    t, epsilon = rng.standard_normal(n), 0.5 * rng.rand()
    p = Program(t, np.full(n, -C), np.full(n, C), np.zeros(n), epsilon=epsilon)
    return p, lambda f: C * hinge(np.abs(t - f) - epsilon).sum()


def _svr_squared(rng, n, C):
    t, epsilon, inf = rng.standard_normal(n), 0.5 * rng.rand(), np.full(n, np.inf)
    p = Program(t, -inf, inf, np.full(n, 1 / C), epsilon=epsilon)
    return p, lambda f: 0.5 * C * (hinge(np.abs(t - f) - epsilon) ** 2).sum()


def _svr_free(rng, n, C):
    t, epsilon, sample_C = rng.standard_normal(n), 0.3 * rng.rand(), C * rng.gamma(1.0, size=n)
    p = Program(t, -sample_C, sample_C, np.zeros(n), epsilon=epsilon, total=None)
    return p, lambda f: sample_C @ hinge(np.abs(t - f) - epsilon)


def _svr_tilted(rng, n, C):
    """A tube, a ridge, uneven bounds and a sum that is not zero, all at once."""
    t, epsilon, ridge = rng.standard_normal(n), 0.3 * rng.rand(), rng.rand(n)
    lower, upper = -C * rng.rand(n), C * rng.rand(n)
    share = 0.8 * rng.rand()
    total = share * (upper.sum() if rng.rand() < 0.5 else lower.sum())
    p = Program(t, lower, upper, ridge, epsilon=epsilon, total=float(total))

    def loss(f):
        # The largest of u·r − ε|u| − ½ρu² over the box, from the roots of its two halves.
        r = t - f
        over = np.clip((r - epsilon) / ridge, 0, upper)
        under = np.clip((r + epsilon) / ridge, lower, 0)
        return sum((u * r - epsilon * np.abs(u) - 0.5 * ridge * u**2).sum() for u in (over, under))

    return p, loss


def _one_class(rng, n, C):
    price = max(C, 1.0) / n
    return one_class(n, price), lambda f: price * hinge(-f).sum()


def _posterior(rng, n, C):
    soft = 2 * rng.rand(n) - 1
    soft[0], soft[1] = abs(soft[0]) + 0.1, -abs(soft[1]) - 0.1
    soft[2:][rng.rand(n - 2) < 0.1] = 0.0
    reach = np.divide(C, soft, out=np.zeros(n), where=soft != 0)
    p = Program(soft, np.minimum(0, reach), np.maximum(0, reach), np.zeros(n))
    return p, lambda f: C * hinge(1 - f[soft != 0] / soft[soft != 0]).sum()


def _svm_free(rng, n, C):
    y = labels(rng, n)
    p = Program(y, np.minimum(0, C * y), np.maximum(0, C * y), np.zeros(n), total=None)
    return p, lambda f: C * hinge(1 - y * f).sum()


def _ridge(rng, n, C):
    t, inf = rng.standard_normal(n), np.full(n, np.inf)
    return Program(t, -inf, inf, np.full(n, 1 / C)), lambda f: 0.5 * C * ((t - f) ** 2).sum()


def _ridge_free(rng, n, C):
    t, inf, sample_C = rng.standard_normal(n), np.full(n, np.inf), C * (0.1 + rng.rand(n))
    return Program(t, -inf, inf, 1 / sample_C, total=None), lambda f: 0.5 * sample_C @ (t - f) ** 2


MAKERS = {
    "svm": _svm,
    "svm squared": _svm_squared,
    "svm weighted": _svm_weighted,
    "svm free": _svm_free,
    "svr": _svr,
    "svr squared": _svr_squared,
    "svr free": _svr_free,
    "svr tilted": _svr_tilted,
    "one class": _one_class,
    "posterior": _posterior,
    "ridge": _ridge,
    "ridge free": _ridge_free,
}
LINEAR = ("ridge", "ridge free")


def gram(rng, n, shape):
    """A kernel matrix: Gaussian (wide or narrow), linear (low rank), or with samples that come
    several times."""
    X = rng.standard_normal((n, 3))
    if shape == "linear":
        return X @ X.T
    if shape == "repeated":
        X = X[rng.randint((n + 1) // 2, size=n)]
    D = ((X[:, None] - X[None]) ** 2).sum(-1)
    return np.exp(-D / {"wide": 20.0, "narrow": 0.5, "repeated": 2.0}[shape])


SHAPES = ("wide", "narrow", "linear", "repeated")


def make_case(kind, n, C, shape, seed, dtype=np.float64):
    rng = np.random.RandomState(seed)
    K = gram(rng, n, shape)
    if dtype == np.float32:  # rounding must not make it indefinite
        K += 1e-5 * np.eye(n)
    program, loss = MAKERS[kind](rng, n, C)
    return Case(kind, K.astype(dtype), program, loss)


def cases(kinds=tuple(MAKERS), max_samples=40):
    """Strategy for a case of any of the kinds."""
    return st.builds(
        make_case,
        st.sampled_from(sorted(kinds)),
        st.integers(2, max_samples),
        st.floats(-2.0, 2.0).map(lambda e: float(10.0**e)),
        st.sampled_from(SHAPES),
        st.integers(0, 10**6),
        st.sampled_from([np.float64, np.float32]),
    )
