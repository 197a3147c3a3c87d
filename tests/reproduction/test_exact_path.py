"""The exact path of C beside LIBSVM at many values between its breakpoints."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from kernelmosaic import MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Gaussian, Linear
from reproduction.exact_path import support_vector_path


def problem(n=60, width=1.0, share=0.5, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((n, 3))
    y = np.where(
        X[:, 0] * X[:, 1] + 0.5 * rng.standard_normal(n)
        > np.quantile(X[:, 0] * X[:, 1], 1 - share),
        1,
        -1,
    )
    return rbf_kernel(X, gamma=width), y


def check(K, y, path, Cs):
    for C in Cs:
        beta, b = path.at(C)
        alpha = y * beta
        assert alpha.min() > -1e-9 * C
        assert alpha.max() < (1 + 1e-9) * C
        assert abs(beta.sum()) < 1e-8 * C
        # The conditions of the optimum, and the optimum of LIBSVM.
        margins = y * (K @ beta + b)
        assert np.all(margins[alpha < 1e-9 * C] > 1 - 1e-7)
        assert np.all(margins[alpha > (1 - 1e-9) * C] < 1 + 1e-7)
        assert_allclose(margins[(alpha > 1e-9 * C) & (alpha < (1 - 1e-9) * C)], 1.0, atol=1e-7)
        theirs = SVC(C=C, kernel="precomputed", tol=1e-8).fit(K, y)
        dual = np.zeros(len(y))
        dual[theirs.support_] = theirs.dual_coef_[0]

        def value(one):
            return 0.5 * one @ K @ one - np.abs(one).sum()

        assert_allclose(value(beta), value(dual), rtol=1e-6)
        assert_allclose(K @ beta, K @ dual, atol=1e-3 * max(1.0, np.abs(K @ dual).max()))


@pytest.mark.parametrize("share", [0.5, 0.2])
@pytest.mark.parametrize("width", [0.05, 5.0])
def test_between_breakpoints_solutions_are_those_of_libsvm(width, share):
    K, y = problem(width=width, share=share)
    path = support_vector_path(K, y, 1e-2, 1e3)
    assert np.all(np.diff(path.Cs) >= 0)
    assert_allclose(path.Cs[[0, -1]], [1e-2, 1e3])
    check(K, y, path, np.geomspace(1e-2, 1e3, 23))
    # Between two breakpoints the samples keep their places: the middle is a solution as the ends
    # are.
    middle = 0.5 * (path.Cs[1:] + path.Cs[:-1])
    check(K, y, path, middle[:: max(len(middle) // 20, 1)])


def test_a_learned_kernel_has_a_path():
    X, y = make_gaussians(n_components=2, n_samples=80, random_state=0)
    model = MKLClassifier([Linear(), Gaussian()], C=1.0, tol=1e-6).fit(X, y)
    path = support_vector_path(model.kernel_matrix(X) + 1e-6 * np.eye(80), y, 0.1, 100.0)
    beta, b = path.at(1.0)
    assert_allclose(model.kernel_matrix(X) @ beta + b, model.decision_function(X), atol=0.01)


def test_no_sample_at_the_margin():
    # All samples are within it up to C = 1, where the interval of the constant closes.
    path = support_vector_path(np.eye(4) + 1.0, [0, 0, 1, 1], 0.1, 10.0)
    check(np.eye(4) + 1.0, np.array([-1, -1, 1, 1]), path, [0.1, 0.3, 0.99, 1.0, 1.5, 10.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [1] * 60}, "y holds 1 classes: the path is that of two"),
        ({"K": np.ones((3, 2))}, r"K has the shape \(3, 2\): give a finite square matrix"),
        ({"C_max": 1e-3}, "C_max=0.001: must be finite and above C_min=0.01"),
        ({"C_min": 0.0}, "C_min=0.0: give a positive, finite number"),
        ({"max_steps": 2}, "max_steps=2: the path is at C="),
        (
            {"K": np.tile(problem(30)[0], (2, 2)), "y": np.tile(problem(30)[1], 2)},
            "add a small multiple of the identity to K",
        ),
    ],
)
def test_errors(change, message):
    K, y = problem()
    with pytest.raises(ValueError, match=message):
        support_vector_path(**{"K": K, "y": y, **change})


def test_a_value_beyond_the_ends():
    path = support_vector_path(*problem(20), 0.1, 1.0)
    with pytest.raises(ValueError, match=r"C=2\.0: the path goes from 0\.1 to 1"):
        path.at(2.0)
