"""Folds of new pairs, of new left or right members, or of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import _safe_indexing, check_random_state

from kernelmosaic._checks import check_choice, check_count
from kernelmosaic._typing import Indices, MatrixLike, Seed, TargetLike
from kernelmosaic.pairs.kernels import Members


class PairSplit(BaseCrossValidator):
    """Folds of pairs, such as drugs with proteins, by what is new in the test part.

    Errors on known drugs and proteins in new combinations do not predict those on new drugs:
    compare published figures only for the same one of the four.

    Parameters
    ----------
    n_splits : int, default=5
        Parts that the pairs, or the members of a side, are divided into at random.
    new : {"pairs", "left", "right", "both"}, default="pairs"
        What the training part lacks: the test pairs, however often they are given; all pairs of the
        left, or right, members of the test pairs; or those of either. Then every part of the left
        side is tested with every part of the right: ``n_splits`` squared splits, and pairs of a new
        member with a known one are in neither part.
    left, right : int, str or list, default=0 and 1
        The columns of X that distinguish the members of a side. Unused where `split` is given
        `groups`. With ``new="pairs"`` and the defaults, equal rows of X are one pair.
    random_state : int, RandomState instance or None, default=None
        Seed or generator; an int gives the same folds every time.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic.model_selection import PairSplit
    >>> X = np.array([[drug, protein] for drug in range(4) for protein in range(3)])
    >>> train, test = next(PairSplit(2, new="left", random_state=0).split(X))
    >>> set(X[test, 0].tolist()), set(X[train, 0].tolist())
    ({0, 3}, {1, 2})
    """

    def __init__(
        self,
        n_splits: int = 5,
        new: str = "pairs",
        *,
        left: Any = 0,
        right: Any = 1,
        random_state: Seed = None,
    ) -> None:
        self.n_splits = n_splits
        self.new = new
        self.left = left
        self.right = right
        self.random_state = random_state

    def get_n_splits(
        self, X: MatrixLike = None, y: TargetLike = None, groups: TargetLike = None
    ) -> int:
        """Return the number of splits; the arguments are there for compatibility."""
        n_splits = check_count("n_splits", self.n_splits, least=2)
        new = check_choice("new", self.new, ("pairs", "left", "right", "both"))
        return n_splits**2 if new == "both" else n_splits

    def split(
        self, X: MatrixLike, y: TargetLike = None, groups: TargetLike = None
    ) -> Iterator[tuple[Indices, Indices]]:
        """Yield the row numbers of the training and of the test pairs.

        Parameters
        ----------
        X : array-like or data frame of shape (n_pairs, n_features)
            Pairs.
        y : ignored
            There for compatibility.
        groups : array-like of shape (n_pairs, 2), optional
            Labels of the left and of the right members, in place of the columns of X.
        """
        self.get_n_splits()  # checks the parameters
        n = len(X) if hasattr(X, "__len__") else X.shape[0]
        random = check_random_state(self.random_state)
        # What is new in the test part, numbered for every pair: pairs, or members of some sides.
        if self.new == "pairs":
            codes_of_side = [self._pairs(X, groups, n)]
        else:
            left, right = self._members(X, groups, n)
            codes_of_side = {"left": [left], "right": [right], "both": [left, right]}[self.new]
        # The number of the part that every pair is in, by each side.
        parts = []
        for codes in codes_of_side:
            part_of_code = random.permutation(int(codes.max()) + 1) % self.n_splits
            parts.append(part_of_code[codes])
        for fold in np.ndindex(*[int(self.n_splits)] * len(parts)):
            is_tested = np.array([numbers == k for numbers, k in zip(parts, fold, strict=True)])
            train = np.flatnonzero(~is_tested.any(axis=0))
            test = np.flatnonzero(is_tested.all(axis=0))
            if len(train) == 0 or len(test) == 0:
                empty = "test" if len(train) else "training"
                raise ValueError(
                    f"n_splits={self.n_splits}, new={self.new!r}: a split of the {n} pairs has no"
                    f" {empty} pair; use fewer splits, or another random_state."
                )
            yield train, test

    def _pairs(self, X: MatrixLike, groups: TargetLike, n: int) -> Indices:
        """Return the number of every pair, in the order of X; equal pairs have the same number."""
        if groups is None and len(np.shape(X)) == 1:
            return np.arange(n)
        if groups is None and np.array_equal(self.left, 0) and np.array_equal(self.right, 1):
            table = np.asarray(X.toarray() if hasattr(X, "toarray") else X).reshape(n, -1)
        else:
            table = np.column_stack(self._members(X, groups, n))
        pairs = Members.of(table).codes
        first = np.unique(pairs, return_index=True)[1]
        return np.asarray(np.argsort(np.argsort(first))[pairs])

    def _members(self, X: MatrixLike, groups: TargetLike, n: int) -> tuple[Indices, Indices]:
        """Return the number of the left and of the right member of every pair."""
        if groups is not None:
            labels = np.asarray(groups)
            if labels.shape != (n, 2):
                raise ValueError(
                    f"groups has shape {labels.shape}: give the labels of both members, ({n}, 2)."
                )
            return Members.of(labels[:, :1]).codes, Members.of(labels[:, 1:]).codes
        table = X if hasattr(X, "shape") else np.asarray(X)
        sides = []
        for name, columns in (("left", self.left), ("right", self.right)):
            listed = [columns] if isinstance(columns, str | int | np.integer) else columns
            try:
                sides.append(Members.of(np.asarray(_safe_indexing(table, listed, axis=1))).codes)
            except (ValueError, IndexError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{name}={columns!r}: X has no such columns: {error}; name those of the {name}"
                    " members, or give groups to split."
                ) from error
        return sides[0], sides[1]
