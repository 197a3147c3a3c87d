"""Kernels of the user's: what is no kernel is refused on its first matrix, as a given matrix is."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic import (
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLKernelPCA,
    MKLRidgeCV,
)
from kernelmosaic.kernels import Gaussian, Kernel, Linear, Projected

RNG = np.random.RandomState(0)
X = RNG.randn(60, 3)
CLASSES = np.arange(60) % 2


class Sigmoid(Kernel):
    """tanh ⟨x, z⟩, which is not positive semi-definite."""

    def _block(self, X, Y):
        return np.tanh(X @ Y.T - 1.0)


class Distance(Kernel):
    """‖x − z‖², zero on the diagonal."""

    def _block(self, X, Y):
        return np.square(X[:, None] - Y).sum(axis=2)


class NegativeDistance(Kernel):
    """−‖x − z‖², which is a kernel once it is centred."""

    def _block(self, X, Y):
        return -np.square(X[:, None] - Y).sum(axis=2)


class Lopsided(Kernel):
    """A kernel plus something of x alone."""

    def _block(self, X, Y):
        return X @ Y.T + 0.1 * X[:, :1]


class Narrow(Kernel):
    """One column in place of a block."""

    def _block(self, X, Y):
        return X[:, :1]


class ScaledByBlock(Kernel):
    """⟨x, z⟩ over the largest one of the block."""

    def _block(self, X, Y):
        K = X @ Y.T
        return K / np.abs(K).max()


class WrongDiagonal(Kernel):
    def _block(self, X, Y):
        return X @ Y.T

    def _diagonal(self, X):
        return np.ones(len(X))


class Cosine(Kernel):
    """A kernel."""

    def _block(self, X, Y):
        left, right = (Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in (X, Y))
        return left @ right.T


REFUSED = [
    (
        Sigmoid(),
        (
            r"kernel 'own': the matrix of 60 training samples has the eigenvalue -.* positive"
            r" semi-definite"
        ),
    ),
    (2.0 * Sigmoid(), "kernel 'own': the matrix of 60 training samples has the eigenvalue -"),
    (
        Sigmoid() + 1e-3 * Linear(),
        "kernel 'own': the matrix of 60 training samples has the eigenvalue -",
    ),
    (Distance(), "kernel 'own': the matrix of 60 training samples has the eigenvalue -"),
    (Lopsided(), r"kernel 'own': k\(x, z\) is .* and k\(z, x\) is .* must be symmetric"),
    (Narrow(), r"kernel 'own': _block returned an array of shape \(60, 1\) for 60 and 60 samples"),
    (ScaledByBlock(), "kernel 'own': .* depend on the other samples"),
    (WrongDiagonal(), "kernel 'own': _diagonal returns 1 and _block"),
]


@pytest.mark.parametrize(("kernel", "message"), REFUSED, ids=lambda one: repr(one)[:40])
def test_what_is_no_kernel_is_refused(kernel, message):
    with pytest.raises(ValueError, match=message):
        MKLClassifier([("own", kernel), ("line", Linear())]).fit(X, CLASSES)


@pytest.mark.parametrize(
    "estimator",
    [DiscriminantMKLClassifier, LocalizedMKLClassifier, MKLRidgeCV, MKLKernelPCA],
    ids=lambda one: one.__name__,
)
def test_every_estimator_refuses_it(estimator):
    with pytest.raises(
        ValueError, match="kernel 'own': the matrix of 60 training samples has the eigenvalue"
    ):
        estimator([("own", Sigmoid()), ("line", Linear())]).fit(X, CLASSES)


def test_kernels_are_taken_and_counted_by_what_learning_reads():
    expected = MKLClassifier([Linear(), Gaussian()], normalize="diagonal").fit(X, CLASSES)
    model = MKLClassifier([Cosine(), Gaussian()], normalize="diagonal").fit(X, CLASSES)
    np.testing.assert_allclose(model.objective_, expected.objective_, rtol=1e-6)
    # Centred, the negative distance is twice the linear kernel.
    centred = MKLClassifier([NegativeDistance()], normalize="centered", tol=1e-9).fit(X, CLASSES)
    line = MKLClassifier([Linear()], normalize="centered", tol=1e-9).fit(X, CLASSES)
    np.testing.assert_allclose(centred.decision_function(X), line.decision_function(X), atol=1e-6)
    with pytest.raises(ValueError, match="eigenvalue"):
        MKLClassifier([NegativeDistance()]).fit(X, CLASSES)


def test_samples_that_lack_the_view_are_no_part_of_the_check():
    views = np.hstack([X, RNG.randn(60, 2)])
    views[:9, 3:] = np.nan
    kernels = [("line", Linear(), [0, 1, 2]), ("own", Cosine(), [3, 4])]
    for missing in ("neighbors", "zero"):
        MKLClassifier(kernels, missing=missing).fit(views, CLASSES)
    with pytest.raises(ValueError, match="the matrix of 51 training samples has the eigenvalue"):
        MKLClassifier([kernels[0], ("own", Sigmoid(), [3, 4])]).fit(views, CLASSES)


def test_of_many_samples_some_are_drawn():
    many = RNG.randn(700, 3)
    with pytest.raises(ValueError, match="the matrix of 500 training samples has the eigenvalue"):
        MKLClassifier([("own", Sigmoid())]).fit(many, np.arange(700) % 2)


def test_kernels_of_the_package_are_not_computed_twice(monkeypatch):
    calls = []
    block = Projected._block

    def counted(self, X, Y):
        calls.append((len(X), len(Y)))
        return block(self, X, Y)

    monkeypatch.setattr(Projected, "_block", counted)
    MKLClassifier([Projected(Linear(), 2), Gaussian()]).fit(X, CLASSES)
    assert calls.count((60, 60)) <= 1
