"""Given matrices too large for a proof that they are positive semi-definite: what is told of them,
and when."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from kernelmosaic import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.kernels import Gaussian, Linear, Precomputed, matrices

N = 640
ROWS = np.arange(N).reshape(-1, 1)
Z = np.random.RandomState(0).normal(size=(N, 4))
LABELS = np.where(Z[:, 0] + 0.5 * Z[:, 1] ** 2 > 0.4, 1, -1)
SMOOTH = Gaussian(factor=2.0).fit(Z)(Z)
#: Every eigenvalue is at least ½, so that nothing but a look in the right direction tells of a
#: negative one.
ROUGH = 0.5 * np.eye(N) + 0.5 * Gaussian(factor=0.3).fit(Z)(Z)


def less(K, direction, eigenvalue):
    """K with that eigenvalue instead of its own in a direction."""
    v = direction / np.linalg.norm(direction)
    Q = np.eye(N) - np.outer(v, v)
    M = Q @ K @ Q + eigenvalue * np.outer(v, v)
    return (M + M.T) / 2


def spread(seed=1):
    return np.random.RandomState(seed).normal(size=N)


def few(*samples):
    v = np.zeros(N)
    v[list(samples)] = 1.0
    return v


@pytest.fixture
def proofs(monkeypatch):
    asked = []
    prove = matrices._prove_positive
    monkeypatch.setattr(matrices, "_prove_positive", lambda K: (asked.append(len(K)), prove(K)))
    return asked


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "K",
    [
        SMOOTH,
        ROUGH,
        Linear()(Z),
        np.outer(Z[:, 0], Z[:, 0]),
        Gaussian(0.05).fit(Z)(Z),
        1e12 * SMOOTH,
        np.repeat(np.repeat(SMOOTH[: N // 2, : N // 2], 2, axis=0), 2, axis=1),
    ],
    ids=["smooth", "rough", "low rank", "rank one", "narrow", "large", "repeated"],
)
def test_kernels_pass_without_a_proof(K, dtype, proofs):
    kernel = Precomputed(K.astype(dtype)).fit(ROWS)
    kernel.check_definite(np.arange(300), np.random.RandomState(2).normal(size=(2, 300)))
    assert not proofs


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("K", "eigenvalue"),
    [
        (-SMOOTH, None),
        (SMOOTH - 0.5 * np.eye(N), -0.5),
        (Linear()(Z) - 0.01 * np.eye(N), -0.01),
        (less(SMOOTH, spread(), -200.0), -200.0),
        (less(SMOOTH, spread(), -0.5), -0.5),
        (less(ROUGH, spread(), -50.0), -50.0),
        (np.tanh(Z @ Z.T - 1.0), None),
        (less(ROUGH, few(3, 400), -1.0), -1.0),  # between two samples
        (less(ROUGH, few(7), -0.1), -0.1),  # of one
    ],
    ids=[
        "negative",
        "shifted",
        "slightly",
        "large",
        "smooth, one",
        "rough, one",
        "tanh",
        "pair",
        "sample",
    ],
)
def test_others_are_refused_at_first_use(K, eigenvalue, dtype):
    smallest = np.linalg.eigvalsh(K)[0]
    assert eigenvalue is None or abs(smallest - eigenvalue) < 1e-6 * max(1.0, abs(eigenvalue))
    with pytest.raises(
        ValueError, match=r"K has the eigenvalue -.*positive semi-definite\. Add .* to its diagonal"
    ):
        Precomputed(K.astype(dtype)).fit(ROWS)


def hidden():
    """A matrix with a negative eigenvalue among three samples, any two of which are fine, and their
    numbers."""
    samples = [10, 20, 30]
    K = ROUGH.copy()
    K[np.ix_(samples, samples)] = 1.5 * np.eye(3) - 0.6
    K[samples, samples] = 1.0
    return K, samples


def test_what_only_three_samples_tell_passes_until_they_count():
    K, samples = hidden()
    assert np.linalg.eigvalsh(K)[0] < -0.1
    kernel = Precomputed(K).fit(ROWS)
    others = np.setdiff1d(np.arange(N), samples)
    kernel.check_definite(others, np.ones((1, N - 3)))
    with pytest.raises(ValueError, match="K has the eigenvalue -0"):
        kernel.check_definite(
            np.arange(N), np.where(np.isin(np.arange(N), samples), 2.0, 1.0)[None]
        )


@pytest.mark.parametrize("is_kernel", [True, False])
def test_the_check_of_a_fit_does_not_depend_on_fits_before(is_kernel):
    K, samples = (SMOOTH.copy(), []) if is_kernel else hidden()
    kernel, others = Precomputed(K).fit(ROWS), np.setdiff1d(np.arange(N), samples)
    for _ in range(8):
        clone(kernel).check_definite(
            others, spread(5)[None, others]
        )  # what these do not tell stays unseen
    kernel.K[...] *= -1.0
    with pytest.raises(ValueError, match="K has the eigenvalue"):
        clone(kernel).check_definite(others, spread(5)[None, others])


def test_a_quadratic_form_tells_of_a_direction(proofs):
    v = spread()
    K = less(ROUGH, v, -0.4)
    kernel = Precomputed(K).fit(ROWS)
    kernel.check_definite(np.arange(N), spread(5)[None])
    assert not proofs
    with pytest.raises(ValueError, match=r"K has the eigenvalue -0\.4"):
        kernel.check_definite(np.arange(N), np.stack([spread(5), v]))
    assert proofs == [N]


def test_a_fit_that_rests_on_them_is_refused():
    K, samples = hidden()
    y = LABELS.copy()
    y[samples] = 1  # least alike of all, they are support vectors at their bound
    kernels = [("smooth", Precomputed(SMOOTH)), ("hidden", Precomputed(K))]
    with pytest.raises(ValueError, match=r"kernel 'hidden': K has the eigenvalue -"):
        MKLClassifier(kernels).fit(ROWS, y)


def test_gated_fits_look_at_their_support():
    looked = []

    class Recording(Precomputed):
        def check_definite(self, rows, coefficients):
            looked.append((len(rows), coefficients.shape))

    table = np.hstack([ROWS, Z[:, :1]])
    kernels = [("smooth", Recording(SMOOTH), [0]), ("rough", Recording(ROUGH), [0])]
    model = LocalizedMKLClassifier(kernels, gating_columns=[1]).fit(table, LABELS)
    n_support = len(model.support_)
    assert looked == [(n_support, (1, n_support))] * 2


def test_a_matrix_of_zeros_is_a_kernel():
    assert not Precomputed(np.zeros((N, N))).fit(ROWS)([0, 1]).any()


def test_small_matrices_are_proved(proofs):
    v = np.random.RandomState(3).normal(size=400)
    v /= np.linalg.norm(v)
    K = np.eye(400) - 1.3 * np.outer(v, v)
    with pytest.raises(ValueError, match=r"K has the eigenvalue -0\.3"):
        Precomputed(K).fit([0])
    assert proofs == [400]


def test_clones_are_checked_once_and_other_kernels_of_the_matrix_again():
    K = SMOOTH.copy()
    first = Precomputed(K).fit(ROWS)
    K *= -1.0  # which every check refuses
    clone(first).fit(ROWS)
    with pytest.raises(ValueError, match="eigenvalue"):
        Precomputed(K).fit(ROWS)


@pytest.mark.parametrize(
    ("i", "j", "value", "message"),
    [
        (600, 3, np.nan, r"K\[600, 3\] is nan"),
        (3, 600, np.inf, r"K\[3, 600\] is inf"),
        (5, 5, -np.inf, r"K\[5, 5\] is -inf"),
        (600, 3, 0.25, r"K\[3, 600\] is .* but K\[600, 3\] is 0\.25"),
    ],
)
def test_one_bad_entry_of_many_is_named(i, j, value, message):
    K = SMOOTH.copy()
    K[i, j] = value
    with pytest.raises(ValueError, match=message):
        Precomputed(K).fit(ROWS)
