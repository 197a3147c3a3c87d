"""Local alignment of strings, made a kernel."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kernelmosaic.kernels.base import Block
from kernelmosaic.kernels.sequence import SequenceKernel, Sequences


class SmithWaterman(SequenceKernel):
    """k(x, z) = Σ_t s_t(x) s_t(z), s_t(x) = SW(x, t) / √(SW(x, x) SW(t, t)), over the training strings t.

    SW is the score of the best local alignment. Scores themselves are no kernel: their matrix has negative eigenvalues.
    Here a string is described by its scores against every training string, each between 0 and 1, and strings are
    compared by the inner product of these descriptions. That is positive semi-definite whatever the scores are, and a
    new string is described exactly as a training string is, so test-versus-train blocks agree with the training matrix.

    `fit` keeps the training strings and their descriptions: n²/2 alignments and one matrix. A string outside the
    training set costs n alignments each time it is met. Needs parasail.

    Parameters
    ----------
    matrix : str, default="blosum62"
        Substitution scores: a matrix that parasail has by this name, such as ``"blosum50"``, ``"pam250"`` or, for
        nucleotides, ``"nuc44"``. Letters it does not list count as its ``*``; case does not matter.
    gap_open, gap_extend : int, default=11 and 1
        A gap of n letters costs gap_open + (n − 1) gap_extend.

    Attributes
    ----------
    sequences_ : ndarray of str
        The training strings.
    features_ : ndarray of shape (n, n)
        Their descriptions, a row a string.

    References
    ----------
    Liao and Noble (2003), "Combining pairwise sequence similarity and support vector machines for detecting remote
    protein evolutionary and structural relationships".
    """

    def __init__(self, matrix: str = "blosum62", gap_open: int = 11, gap_extend: int = 1) -> None:
        self.matrix = matrix
        self.gap_open = gap_open
        self.gap_extend = gap_extend

    def fit(self, X: Any, y: Any = None) -> Self:
        self.sequences_ = self.validate(X)
        self._check_parameters()
        # Strings that repeat are aligned once.
        place = {s: i for i, s in enumerate(dict.fromkeys(self.sequences_))}
        rows = [place[s] for s in self.sequences_]
        self.features_ = self._normalised_scores(list(place), None)[np.ix_(rows, rows)]
        return self

    def validate(self, X: Any) -> Sequences:
        strings: Sequences = super().validate(X)
        for i, s in enumerate(strings):
            if not s.isascii():
                raise ValueError(f"X[{i}] is {s[:20]!r}: SmithWaterman aligns letters of the ASCII alphabet only.")
        return strings

    def _block(self, X: Any, Y: Any) -> Block:
        if not hasattr(self, "features_"):
            # An unfitted kernel takes its columns for the training set, as a test-versus-train block has them.
            return self._fitted_clone(Y)._block(X, Y)
        features = self._features(X)
        return np.asarray(features @ (features if Y is X else self._features(Y)).T)

    def _diagonal(self, X: Any) -> NDArray[np.float64]:
        if not hasattr(self, "features_"):
            return self._fitted_clone(X)._diagonal(X)
        features = self._features(X)
        return np.asarray(np.einsum("ij,ij->i", features, features))

    def _fitted_clone(self, X: Sequences) -> SmithWaterman:
        fitted: SmithWaterman = clone(self).fit(X)
        return fitted

    def _features(self, X: Sequences) -> NDArray[np.float64]:
        known = {s: i for i, s in enumerate(self.sequences_)}
        new = list(dict.fromkeys(s for s in X if s not in known))
        features = self.features_
        if new:
            known.update((s, len(features) + i) for i, s in enumerate(new))
            features = np.vstack([features, self._normalised_scores(new, list(self.sequences_))])
        return features[[known[s] for s in X]]

    def _normalised_scores(self, queries: list[str], targets: list[str] | None) -> NDArray[np.float64]:
        """Return the scores of queries against targets, or against each other, over those against themselves."""
        score = self._scorer()
        if targets is None:
            S = np.zeros((len(queries), len(queries)))
            for i, query in enumerate(queries):
                S[i, i:] = S[i:, i] = score(query, queries[i:])
            own = own_targets = S.diagonal()
        else:
            S = np.array([score(query, targets) for query in queries], dtype=np.float64)
            own, own_targets = (np.array([score(s, [s])[0] for s in strings]) for strings in (queries, targets))
        norms = np.sqrt(np.outer(own, own_targets))
        # A string that does not even match itself, being all unknown letters, scores 0 with all.
        return np.divide(S, norms, out=np.zeros_like(S), where=norms > 0)

    def _scorer(self) -> Any:
        """Return a function of one string and several others that gives the score with each."""
        parasail = _parasail()
        self._check_parameters()
        table = getattr(parasail, self.matrix)
        gaps = int(self.gap_open), int(self.gap_extend)
        # The faster of the two misses some alignments where a gap costs no more to open than to extend.
        align = parasail.sw_striped_profile_sat if gaps[0] > gaps[1] else parasail.sw_scan_profile_sat

        def score(query: str, targets: list[str]) -> list[int]:
            profile = parasail.profile_create_sat(query, table)
            return [align(profile, target, *gaps).score for target in targets]

        return score

    def _check_parameters(self) -> None:
        for name in ("gap_open", "gap_extend"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name}={value!r}: the cost of a gap must be an integer of at least 0.")
        if self.gap_open < self.gap_extend:
            raise ValueError(
                f"gap_open={self.gap_open} is less than gap_extend={self.gap_extend}: opening a gap must cost at least "
                "as much as making it longer."
            )
        parasail = _parasail()
        if not isinstance(self.matrix, str) or not isinstance(getattr(parasail, self.matrix, None), parasail.Matrix):
            raise ValueError(
                f"matrix={self.matrix!r}: parasail has no such substitution matrix; it has 'blosum30' to 'blosum100', "
                "'pam10' to 'pam500' and, for nucleotides, 'nuc44' and 'dnafull'."
            )


def _parasail() -> Any:
    try:
        import parasail
    except ImportError as error:
        raise ImportError('SmithWaterman needs parasail: pip install "kernelmosaic[sequences]"') from error
    return parasail
