"""The files themselves, where the environment names a folder that has them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn import datasets as sklearn_datasets

from reproduction.data import catalogue, load, names
from reproduction.data.entries import find
from reproduction.data.public import row_digests
from reproduction.sequences import one_hot, windows

FOLDER = os.environ.get("KERNELMOSAIC_DATA")
pytestmark = pytest.mark.skipif(not FOLDER, reason="KERNELMOSAIC_DATA names no folder of npz files")


def stored(stem):
    path = Path(FOLDER) / f"{stem}.npz"
    if not path.exists():
        pytest.skip(f"the folder has no {stem}.npz")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


@pytest.mark.parametrize("stem", names())
def test_every_set(stem):
    arrays, entry = stored(stem), find(stem)
    found = load(entry.title, dtype=None)
    assert found.origin == "file"
    assert len(found.data) == len(found.target) == entry.n_samples
    assert_array_equal(found.target, arrays["y"])
    if entry.views:
        assert_array_equal(found.data, np.hstack([arrays[name] for name in entry.views]))
    elif "X" in arrays:
        assert_array_equal(found.data, arrays["X"])
        assert found.data.shape[1] == int(entry.inputs.split(";")[0])
    if "classes" in arrays:
        assert found.target_names == list(arrays["classes"])
    if entry.n_train is None:
        assert found.train is None
    else:
        assert_array_equal(found.train, np.arange(entry.n_train))
        assert_array_equal(found.test, np.arange(entry.n_train, entry.n_samples))
    kinds = {"binary": 2, "regression": 0}
    assert len(found.classes) == kinds.get(entry.task, len(found.classes))
    assert entry.task != "multiclass" or len(found.classes) > 2
    if found.feature_names:
        assert len(found.feature_names) == found.data.shape[1]


@pytest.mark.parametrize("entry", [e for e in catalogue() if e.rows], ids=lambda entry: entry.stem)
def test_digests_are_those_of_the_files(entry):
    found = row_digests(stored(entry.stem), entry.views)
    assert (found.rows, found.order) == (entry.rows, entry.order)


@pytest.mark.parametrize("stem", ["wdbc", "wine"])
def test_scikit_learns_copies_are_the_files_row_for_row(stem):
    arrays, copy = stored(stem), getattr(sklearn_datasets, f"load_{find(stem).bundled}")()
    assert_array_equal(arrays["X"], copy.data)
    assert_array_equal(arrays["y"], copy.target)
    assert_array_equal(arrays["classes"], copy.target_names)


@pytest.mark.parametrize(("stem", "letters"), [("human_tis", b"ATG"), ("celegans_acceptor", b"AG")])
def test_the_site_is_where_the_signal_is(stem, letters):
    stored(stem)
    found = load(stem)
    assert (windows(found.sequences, found.site, 0, len(letters)) == letters).all()


def test_windows_around_a_start_have_a_thousand_bits():
    stored("human_tis")
    found = load("tis")
    X = one_hot(windows(found.sequences, found.site))
    assert X.shape == (2316, 1000)
    assert (X.sum(axis=1) == 200).all()


def test_bitmaps_tell_digits_apart():
    stored("pendigits_orig")
    digits = load("pendigits")
    few = digits.train[:1500]
    for view in ("4x4", "8x8", "16x16"):
        X = digits.views[view]
        # The nearest of 1500 drawings names most of 300 by other writers.
        other = X[digits.test[:300]]
        distances = (
            (other**2).sum(axis=1)[:, None] - 2 * other @ X[few].T + (X[few] ** 2).sum(axis=1)
        )
        share = np.mean(
            digits.target[few][distances.argmin(axis=1)] == digits.target[digits.test[:300]]
        )
        assert share > 0.8
