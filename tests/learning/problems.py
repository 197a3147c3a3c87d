"""Small training problems for learners: random kernels, machines of every kind."""

from __future__ import annotations

import numpy as np

from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.learning.norms import make_norm
from kernelmosaic.learning.problem import LearnerOptions
from kernelmosaic.machines.base import SVC, SVR, Huber, OneClass

#: Machines by kind, of labels y, numbers f and C.
MACHINES = {
    "svc": lambda y, f, C: SVC(y, C),
    "svc squared": lambda y, f, C: SVC(y, C, slack=2),
    "svr": lambda y, f, C: SVR(f, C, 0.1),
    "svr squared": lambda y, f, C: SVR(f, C, 0.1, slack=2),
    "one class": lambda y, f, C: OneClass(len(y), max(C, 2.0) / len(y)),
    "least squares": lambda y, f, C: SVR(f, C, 0.0, slack=2),
    "huber": lambda y, f, C: Huber(f, C, 0.5),
}
KINDS = tuple(MACHINES)


def make_kernels(rng, n, P):
    """Return samples, and linear and Gaussian kernels of many widths on pairs of their columns,
    mean diagonal one."""
    X = rng.standard_normal((n, 4))
    Ks = np.empty((P, n, n))
    for m in range(P):
        Z = X[:, rng.choice(4, 2, replace=False)]
        D = ((Z[:, None] - Z[None]) ** 2).sum(-1)
        K = Z @ Z.T if m % 3 == 0 else np.exp(-D / 10 ** rng.uniform(-1, 1.5))
        Ks[m] = K * n / np.trace(K)
    return X, Ks


def make_machine(kind, rng, X, C):
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(len(X))
    return MACHINES[kind](np.where(f > 0, 1.0, -1.0), f, C)


def make_problem(kind, seed, n=40, P=6):
    """Kernels, machine and penalties; every second seed has penalties that differ."""
    rng = np.random.RandomState(seed)
    X, Ks = make_kernels(rng, n, P)
    machine = make_machine(kind, rng, X, 10.0 ** rng.uniform(-1, 2.5))
    return Ks, machine, np.exp(0.5 * rng.standard_normal(P)) if seed % 2 else np.ones(P)


def options(P, norm=1, penalties=None, tol=1e-6, max_iter=500, **tuning):
    penalties = np.ones(P) if penalties is None else penalties
    return LearnerOptions(make_norm(norm), penalties, tol, max_iter, **tuning)


def learn(learner, Ks, machine, **changes):
    """What the class learns from these matrices."""
    return learner(options(len(Ks), **changes)).learn(StoredStack(np.asarray(Ks)), machine)


def slopes(Ks, beta, penalties):
    """½ βᵀK_mβ / d_m², by the book."""
    return np.array([0.5 * beta @ K @ beta for K in Ks]) / penalties**2
