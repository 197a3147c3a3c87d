"""Kernels that leave linear systems singular to rounding: an answer with an honest gap, and nothing
on the terminal."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from tests.reference.criteria import least_squares_value

from kernelmosaic import DiscriminantMKLClassifier, MKLClassifier
from kernelmosaic.discriminant.learning import _unit_rows
from kernelmosaic.discriminant.machine import binary_targets, class_targets
from kernelmosaic.kernels import Gaussian, Linear, Precomputed


def make_samples(seed, n=24, classes=2):
    rng = np.random.RandomState(seed)
    y = np.arange(n) % classes
    X = rng.randn(n, 3)
    X[:, 0] += y
    return X, y


def fit_quietly(model, X, y):
    """Fit where it may stop early."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def targets_of(y):
    return binary_targets(y)[:, np.newaxis] if len(np.unique(y)) == 2 else class_targets(y)


def value_of(model, X, y):
    """F₃* or F₆* at the model's weights and λ, by plain algebra; F₇* or F₉* where λ is learned."""
    value = least_squares_value(model.kernel_matrix(X), targets_of(y), model.alpha_)
    return value / model.alpha_ if model.alpha == "learn" else value


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("formulation", ["sdp", "sdp_approximate"])
@pytest.mark.parametrize("count", [1, 3])
def test_matrix_inequalities_end_where_rounding_hides_their_curvature(
    capfd, formulation, classes, count
):
    X, y = make_samples(0, classes=classes)
    model = fit_quietly(
        DiscriminantMKLClassifier([Linear()] * count, solver=formulation, alpha=1e-12), X, y
    )
    assert np.isfinite(model.duality_gap_)
    assert np.all(np.isfinite(model.dual_coef_))
    # With next to no regulariser the optimum is the residual of plain least squares; the
    # approximate one lies above.
    targets, centred = targets_of(y), X - X.mean(axis=0)
    best = float(
        np.sum((targets - centred @ np.linalg.lstsq(centred, targets, rcond=None)[0]) ** 2)
    )
    assert model.objective_ >= best * (1.0 - 1e-4)
    assert (
        model.objective_ * (1.0 - model.duality_gap_)
        <= (1 if formulation == "sdp" else classes) * best * 1.0001
    )
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seed", "kernels", "alpha", "tol"),
    [
        (0, [Gaussian()] * 2, 5e-4, 1e-15),
        (1, [Linear()] * 3, "learn", 1e-15),
        (2, [Linear(), Gaussian()] * 2, "learn", 1e-15),
        (3, [Linear(), Gaussian()] * 2, 1e-9, 1e-15),
        (4, [Linear()], 5e-4, 1e-15),
    ],
)
def test_interior_points_pass_kernels_that_are_alike(capfd, seed, kernels, alpha, tol):
    for n, classes in ((8, 2), (20, 3), (40, 2)):
        X, y = make_samples(seed, n, classes)
        model = fit_quietly(
            DiscriminantMKLClassifier(kernels, solver="qcqp", alpha=alpha, tol=tol), X, y
        )
        reference = fit_quietly(DiscriminantMKLClassifier(kernels, alpha=alpha, tol=1e-8), X, y)
        assert model.objective_ == pytest.approx(value_of(model, X, y), rel=1e-4)
        assert model.objective_ * (1.0 - model.duality_gap_) <= reference.objective_ * (1.0 + 1e-6)
        assert model.objective_ == pytest.approx(reference.objective_, rel=1e-3)
    assert capfd.readouterr() == ("", "")


def test_bounds_of_the_approximate_program_need_unit_rows_whatever_rounding_leaves_of_the_multipliers():
    X = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.5], [0.0, 0.5, -1e-9]])
    for one in (X, np.zeros((3, 3)), np.full((3, 3), np.nan)):
        assert np.sum(_unit_rows(one) ** 2, axis=1) == pytest.approx(np.ones(3))


@pytest.mark.parametrize("solver", ["sdp", "qcqp"])
@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_conic_programs_of_kernels_of_any_scale(capfd, solver, scale):
    X, y = make_samples(1, 12)
    Ks = [X @ X.T, np.outer(X[:, 0], X[:, 0]), X @ X.T]
    model = MKLClassifier([Precomputed(scale * K) for K in Ks], solver=solver, normalize=None)
    fit_quietly(model, np.arange(12)[:, np.newaxis], y)
    assert np.all(np.isfinite(model.weights_))
    # Where the program has no point to rounding, weights stay equal and the gap says that nothing
    # is proved.
    assert 0 <= model.duality_gap_ <= 2
    assert capfd.readouterr() == ("", "")


def test_semidefinite_programs_do_not_depend_on_the_scale_of_the_kernels():
    X, y = make_samples(1, 12)
    Ks = [X @ X.T, np.outer(X[:, 0], X[:, 0]), np.exp(-((X[:, np.newaxis] - X) ** 2).sum(axis=2))]
    shares = []
    for scales in ((1.0, 1.0, 1.0), (1e160, 1e-160, 1e3)):
        kernels = [Precomputed(scale * K) for scale, K in zip(scales, Ks, strict=True)]
        model = MKLClassifier(kernels, solver="sdp", normalize=None).fit(
            np.arange(12)[:, np.newaxis], y
        )
        shares.append(model.weights_ * scales * [np.trace(K) / 12 for K in Ks])
    assert shares[1] == pytest.approx(shares[0], abs=1e-4)


def test_the_error_of_a_lost_regulariser_states_alpha_as_it_was_given():
    X, y = make_samples(0)
    for formulation in ("newton", "kim"):
        model = DiscriminantMKLClassifier(
            [Linear()], solver=formulation, normalize=None, alpha=1e-40
        )
        with pytest.raises(ValueError, match=r"alpha=1e-40 leaves .*: raise alpha"):
            model.fit(1e3 * X, y)
