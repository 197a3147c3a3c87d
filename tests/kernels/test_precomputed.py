"""Matrices computed elsewhere: what is refused, what is shared, and that searches work on row
numbers."""

from __future__ import annotations

import pickle
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC

from kernelmosaic.kernels import Precomputed, matrices

rng = np.random.RandomState(2)
Z = rng.normal(size=(40, 6))
K = Z @ Z.T
y = np.where(Z[:, 0] + Z[:, 1] > 0, 1, -1)
ROWS = np.arange(40).reshape(-1, 1)


def changed(i, j, value):
    M = K.copy()
    M[i, j] = value
    return M


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (K[:, :30], r"K has shape \(40, 30\).*square"),
        (K[0], r"K has shape \(40,\).*square"),
        (np.empty((0, 0)), r"K has shape \(0, 0\)"),
        (changed(3, 5, np.nan), r"K\[3, 5\] is nan.*finite"),
        (changed(39, 0, -np.inf), r"K\[39, 0\] is -inf.*finite"),
        (changed(3, 5, 9.5), r"K\[3, 5\] is 9\.5 but K\[5, 3\] is .*symmetric.*\(K \+ K\.T\) / 2"),
        (changed(3, 5, K[3, 5] + 1e-4), r"K\[3, 5\] is .*symmetric"),
        (K - 0.5 * np.eye(40), r"K has the eigenvalue -0\.5.*positive semi-definite.*Add 0\.5"),
        (-K, r"K has the eigenvalue -.*positive semi-definite"),
        (K + 1j, r"K must be a matrix of real numbers"),
        ([["a", "b"], ["c", "d"]], r"K must be a matrix of real numbers"),
        ([[1.0, 2.0], [3.0]], r"K must be a matrix of real numbers"),
        (None, r"K must be a matrix of real numbers|K has shape"),
    ],
)
def test_bad_matrices_are_named(matrix, message):
    kernel = Precomputed(matrix)  # building never fails, so that clone and set_params do not either
    assert repr(kernel).startswith("Precomputed(<")
    for use in (kernel.fit, kernel, kernel.diag):
        with pytest.raises(ValueError, match=message):
            use([0])


def test_sparse_matrix_is_refused():
    from scipy import sparse

    with pytest.raises(ValueError, match=r"K is sparse.*toarray"):
        Precomputed(sparse.eye_array(3, format="csr")).fit([0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rounding_is_forgiven(dtype):
    M = np.exp(-((np.linspace(0, 1, 60)[:, None] - np.linspace(0, 1, 60)) ** 2)).astype(dtype)
    assert (
        np.linalg.eigvalsh(M.astype(np.float64))[0] < 0
    )  # only by rounding: the formula is a kernel
    Precomputed(M).fit([0])
    M[0, 1] *= 1 + 2 * np.finfo(dtype).eps
    Precomputed(M).fit([0])
    Precomputed(np.round(K, 7)).fit([0])


def test_zero_and_integer_matrices_are_fine():
    assert_array_equal(Precomputed(np.zeros((3, 3))).fit([0])([0, 1]), np.zeros((2, 2)))
    assert Precomputed(np.eye(3, dtype=int))([0, 1]).dtype == np.float64
    assert Precomputed([[2, 1], [1, 2]])([1]) == 2


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([0, 40], r"X\[1\] is 40: X must hold row numbers of K, whole numbers from 0 to 39"),
        ([[0.0], [-1.0]], r"X\[1\] is -1"),
        ([0.0, 1.5], r"X\[1\] is 1\.5"),
        ([0.0, np.nan], r"X\[1\] is nan"),
        ([np.inf], r"X\[0\] is inf"),
        (np.zeros((3, 2)), r"X has shape \(3, 2\).*one column"),
        (np.zeros((3, 1, 1)), r"X has shape \(3, 1, 1\)"),
        (3, r"X has shape \(\)"),
        ([], r"X has shape \(0,\)"),
        (["a", "b"], r"X holds entries such as .*'a'"),
        (np.array(["a", 1], dtype=object), r"X holds entries such as 'a'"),
        (np.array([True, False]), r"X holds entries such as .*True"),
    ],
)
def test_bad_row_numbers_are_named(X, message):
    kernel = Precomputed(K)
    for use in (kernel.fit, kernel, kernel.diag, lambda rows: kernel([0], rows)):
        with pytest.raises(ValueError, match=message):
            use(X)


def test_repr_does_not_print_the_matrix():
    assert repr(Precomputed(np.eye(1000))) == "Precomputed(<1000 x 1000>)"
    assert repr(2.0 * Precomputed(K)) == "2.0 * Precomputed(<40 x 40>)"
    assert repr(Precomputed([[1.0]])) == "Precomputed(<1 x 1>)"


def test_single_precision_and_blocks():
    kernel = Precomputed(K.astype(np.float32))
    block = kernel([5, 3, 3], [0, 1])
    assert block.dtype == np.float32
    assert_array_equal(block, K.astype(np.float32)[[5, 3, 3]][:, [0, 1]])
    block[:] = 0  # the block is the caller's
    assert kernel.K[5, 0] == np.float32(K[5, 0])


@pytest.mark.parametrize(
    "rows", [range(5, 12), [3], [7, 6, 5], [4, 5, 7], [2, 2, 3], range(40)], ids=repr
)
def test_rows_in_a_run_and_others_give_the_same_entries(rows):
    kernel, rows = Precomputed(K), list(rows)
    for columns in ([0, 1, 2], [9, 4]):
        block = kernel(rows, columns)
        assert_array_equal(block, [[K[i, j] for j in columns] for i in rows])
        block[:] = 0  # the caller's in every case
    assert_array_equal(kernel(ROWS), K)


def test_new_samples_join_a_fitted_kernel():
    block = np.random.RandomState(3).normal(size=(5, 6)) @ Z.T
    kernel = Precomputed(K).fit(ROWS)
    other = clone(kernel)
    matrices.join_samples(kernel, block)
    assert_array_equal(kernel(np.arange(40, 45), ROWS), block)
    assert_array_equal(kernel([3], [44, 40]), [[block[4, 3], block[0, 3]]])
    assert_array_equal(kernel(ROWS), K)
    assert kernel.K.shape == (45, 45)
    assert other.K is K
    with pytest.raises(ValueError, match="X\\[0\\] is 45"):
        kernel([45])
    with pytest.raises(
        ValueError, match="eigenvalue"
    ):  # whoever takes the matrix as it is gets the checks
        Precomputed(kernel.K).fit(ROWS)


def test_frames_and_memory_maps(tmp_path):
    assert_array_equal(Precomputed(pd.DataFrame(K))(ROWS), K)
    assert_array_equal(Precomputed(pd.DataFrame(K).convert_dtypes())(ROWS), K)
    np.save(tmp_path / "K.npy", K)
    kernel = Precomputed(np.load(tmp_path / "K.npy", mmap_mode="r"))
    assert_array_equal(kernel(ROWS), K)
    assert np.shares_memory(kernel._prepared(), kernel.K)


def test_clones_share_the_matrix_and_one_check():
    own = K.copy()
    kernel = Precomputed(own)
    early = clone(kernel)  # before the first use, as a search clones
    assert early.K is own
    early.fit(ROWS)
    own *= -1.0  # which every check refuses
    for other in (kernel, clone(kernel), clone(early), pickle.loads(pickle.dumps(kernel))):
        assert_array_equal(other.fit(ROWS)(ROWS), own)
    (2.0 * kernel + kernel).fit(ROWS)
    kernel.set_params(K=2 * own)
    with pytest.raises(ValueError, match="eigenvalue"):
        kernel(ROWS)
    kernel.set_params(K=2 * K)
    assert_array_equal(kernel(ROWS), 2 * K)
    assert_array_equal(early(ROWS), own)


def test_a_matrix_that_failed_its_check_fails_again():
    kernel = Precomputed(-K)
    for _ in range(2):
        with pytest.raises(ValueError, match="eigenvalue"):
            clone(kernel).fit(ROWS)


def test_pickle_of_a_clone_carries_the_matrix_once():
    kernel = clone(Precomputed(K)).fit(ROWS)
    assert len(pickle.dumps(kernel)) < 1.2 * K.nbytes
    assert_array_equal(pickle.loads(pickle.dumps(kernel))([3], [4, 5]), K[[3]][:, [4, 5]])


def test_cross_validation_equals_scikit_learns_own_precomputed():
    cv = KFold(5)
    ours = cross_val_score(SVC(kernel=Precomputed(K)), ROWS, y, cv=cv)
    theirs = cross_val_score(SVC(kernel="precomputed"), K, y, cv=cv)
    assert_allclose(ours, theirs)
    assert ours.mean() > 0.8
    piped = make_pipeline(FunctionTransformer(), SVC(kernel=Precomputed(K)))
    assert_allclose(cross_val_score(piped, ROWS, y, cv=cv), theirs)


def test_search_over_a_stack_of_matrices_copies_none():
    class Counted(Precomputed):
        checks: ClassVar[list] = []

        def _prepare(self, given):
            self.checks.append(given)
            return super()._prepare(given)

    noise = np.cov(rng.normal(size=(40, 80)))
    stack = [Counted(noise), Counted(K), Counted(K.astype(np.float32))]
    search = GridSearchCV(SVC(), {"kernel": stack, "C": [0.1, 1.0]}, cv=4).fit(ROWS, y)
    assert search.best_params_["kernel"] is not stack[0]
    assert {id(p["kernel"].K) for p in search.cv_results_["params"]} == {
        id(kernel.K) for kernel in stack
    }
    assert any(search.best_estimator_.kernel.K is kernel.K for kernel in stack)
    assert len(Counted.checks) == 3  # one per matrix, for 24 fits and the last
    assert search.predict(ROWS[:3]).shape == (3,)
