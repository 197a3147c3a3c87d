"""Folds of pairs, by the sets of members in both parts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import check_cv

from kernelmosaic.model_selection import PairSplit

rng = np.random.RandomState(0)
PAIRS = np.array([[i, j] for i in range(8) for j in range(6)])[rng.permutation(48)[:40]]


def members(rows, side):
    return set(PAIRS[rows, side])


@pytest.mark.parametrize("new", ["pairs", "left", "right", "both"])
def test_what_is_new_is_not_in_the_training_part(new):
    folds = PairSplit(3, new=new, random_state=0)
    splits = list(folds.split(PAIRS))
    assert len(splits) == folds.get_n_splits() == (9 if new == "both" else 3)
    for train, test in splits:
        assert not set(train) & set(test)
        for side in {"pairs": (), "left": (0,), "right": (1,), "both": (0, 1)}[new]:
            assert not members(train, side) & members(test, side)
        if new != "both":
            assert len(train) + len(test) == len(PAIRS)
    # Every pair is tested once.
    np.testing.assert_array_equal(
        np.sort(np.concatenate([test for _, test in splits])), np.arange(len(PAIRS))
    )


def test_pairs_of_a_new_member_with_a_known_one_are_in_neither_part():
    table = np.array([[i, j] for i in range(8) for j in range(6)])
    for train, test in PairSplit(3, new="both", random_state=0).split(table):
        new = [np.isin(table[:, side], table[test, side]) for side in (0, 1)]
        np.testing.assert_array_equal(train, np.flatnonzero(~new[0] & ~new[1]))
        np.testing.assert_array_equal(test, np.flatnonzero(new[0] & new[1]))


def test_new_pairs_have_known_members():
    for train, test in PairSplit(5, random_state=1).split(PAIRS):
        assert members(test, 0) <= members(train, 0)
        assert members(test, 1) <= members(train, 1)


def test_members_by_columns_by_names_or_by_labels():
    frame = pd.DataFrame(
        {
            "y": rng.rand(40),
            "drug": [f"d{i}" for i, _ in PAIRS],
            "a": PAIRS[:, 1] % 2,
            "b": PAIRS[:, 1] // 2,
        }
    )
    by_names = list(
        PairSplit(2, new="right", left="drug", right=["a", "b"], random_state=3).split(frame)
    )
    by_labels = list(PairSplit(2, new="right", random_state=3).split(np.zeros(40), groups=PAIRS))
    for train, test in by_names:
        assert not members(train, 1) & members(test, 1)
    for train, test in by_labels:
        assert not members(train, 1) & members(test, 1)


def test_a_seed_gives_the_same_folds_and_scikit_learn_takes_them():
    folds = PairSplit(3, new="left", random_state=7)
    first, second = ([test.tolist() for _, test in folds.split(PAIRS)] for _ in range(2))
    assert first == second
    assert check_cv(folds) is folds
    assert clone(folds, safe=False).new == "left"
    assert "n_splits=3" in repr(folds)
    assert [
        test.tolist() for _, test in PairSplit(3, new="left", random_state=8).split(PAIRS)
    ] != first


@pytest.mark.parametrize(
    ("folds", "groups", "message"),
    [
        (PairSplit(1), None, "n_splits=1: give a whole number of at least 2"),
        (PairSplit(new="drug"), None, "new='drug': choose one of 'pairs', 'left', 'right', 'both'"),
        (PairSplit(new="left", left="drug"), None, "left='drug': X has no such columns"),
        (PairSplit(new="right", right=5), None, "right=5: X has no such columns"),
        (
            PairSplit(new="left"),
            np.zeros(40),
            r"groups has shape \(40,\): give the labels of both members, \(40, 2\)",
        ),
        (
            PairSplit(9, new="left", random_state=0),
            None,
            "n_splits=9, new='left': a split of the 40 pairs has no test",
        ),
    ],
)
def test_what_is_wrong_is_named(folds, groups, message):
    with pytest.raises(ValueError, match=message):
        list(folds.split(PAIRS, groups=groups))


@pytest.mark.parametrize("form", ["columns", "features", "labels", "text"])
def test_a_pair_that_is_given_again_stays_on_one_side(form):
    pairs = np.vstack([PAIRS, PAIRS[::3], PAIRS[:5]])
    X, folds, groups = pairs, PairSplit(3, random_state=0), None
    if form == "columns":
        X, folds = (
            np.column_stack([np.arange(len(pairs)), pairs]),
            PairSplit(3, left=1, right=2, random_state=0),
        )
    elif form == "features":
        X = np.column_stack([np.sin(pairs[:, 0]), np.sin(pairs[:, 0]), np.cos(pairs[:, 1])])
    elif form == "labels":
        X, groups = np.zeros(len(pairs)), pairs
    else:
        X = pd.DataFrame({"drug": [f"d{i}" for i in pairs[:, 0]], "protein": pairs[:, 1]})
    tested = []
    for train, test in folds.split(X, groups=groups):
        assert not set(map(tuple, pairs[train])) & set(map(tuple, pairs[test]))
        assert len(train) + len(test) == len(pairs)
        tested.extend(test)
    assert sorted(tested) == list(range(len(pairs)))


def test_rows_in_place_of_pairs_are_all_different():
    assert [len(test) for _, test in PairSplit(4, random_state=0).split(np.zeros(40))] == [10] * 4
